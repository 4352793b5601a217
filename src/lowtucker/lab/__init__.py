"""What is run with the library: experiments, benchmarks, the playground, video."""
