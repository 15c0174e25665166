"""Reasons of waiting and takers of GPUs: by hand, and against a walk second by second."""

from __future__ import annotations



