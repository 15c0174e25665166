"""Explains why a job waited, which jobs took its GPUs, and what it lost."""

from __future__ import annotations

from gangline.runs.explain.explanation import Explanation

__all__ = ["Explanation"]
