"""Explains the waiting of a job, which jobs took its GPUs, and its losses."""

from __future__ import annotations

from gangline.runs.explain.explanation import Explanation

__all__ = ["Explanation"]
