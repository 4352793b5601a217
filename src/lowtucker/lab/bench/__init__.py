"""Benchmarks, run by ``lowtucker bench``. No test asserts a time; these do the measuring."""
