"""Many runs with a purpose: sweeps, capacity plans, benchmarks, evaluations of papers."""
