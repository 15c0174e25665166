"""Runs: from arguments to a result, its folder, and comparisons."""
