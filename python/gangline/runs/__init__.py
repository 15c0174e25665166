"""Handles runs: their arguments, results, result folders, and comparisons."""
