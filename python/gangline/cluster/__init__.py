"""Clusters: their description, checks, presets, networks, sharing, elastic jobs and rates."""
