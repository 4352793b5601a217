"""Simulations: jobs that any worker can compute, saved as they finish and resumable."""
