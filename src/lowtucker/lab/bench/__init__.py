"""Benchmarks, run by ``lowtucker bench``. Times are measured here, not asserted in tests."""
