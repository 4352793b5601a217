"""Applications of the library: experiments, benchmarks, the playground, video."""
