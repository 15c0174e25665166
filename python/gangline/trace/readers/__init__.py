"""Reads trace formats, one module per format; each offers `read(source, options) -> Raw`."""
