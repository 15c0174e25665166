"""Writes RESULTS.md from the saved measurements.

python -m examples.gpu_profile > examples/gpu_profile/RESULTS.md
"""

from __future__ import annotations

from .report import HERE, profile_of, read_jobs, write

if __name__ == "__main__":
    print(write(profile_of(HERE / "h100.json"), read_jobs(HERE / "h100_jobs.csv")), end="")
