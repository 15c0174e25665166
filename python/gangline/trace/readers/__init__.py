"""Reads trace formats; each format has a module with `read(source, options) -> Raw`."""
