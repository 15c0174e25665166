"""Carries out studies of many runs: sweeps, capacity plans, benchmarks, evaluations of papers."""
