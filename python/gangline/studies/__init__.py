"""Carries out studies that need many runs: sweeps, capacity plans, benchmarks, papers."""
