"""Simulations: jobs that any worker may compute, kept as they come, resumed where they stopped."""
