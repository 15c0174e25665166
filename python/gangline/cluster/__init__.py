"""Describes clusters: checks, presets, networks, sharing, elastic jobs and rates."""
