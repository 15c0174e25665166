"""Clusters: description, checks, presets, networks, sharing, elastic jobs, tables of rates."""
