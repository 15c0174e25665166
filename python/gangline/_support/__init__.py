"""Provides helpers for text, numbers and progress; they do not depend on scheduling."""
