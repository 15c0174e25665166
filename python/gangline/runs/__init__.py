"""Runs: their arguments, their results, the folders of results, and comparisons."""
