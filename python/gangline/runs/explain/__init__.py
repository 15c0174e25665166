"""The explanation of a job's waiting, of the jobs that took its GPUs, and of its losses."""

from __future__ import annotations

from gangline.runs.explain.explanation import Explanation

__all__ = ["Explanation"]
