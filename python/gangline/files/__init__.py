"""Reads and writes files: their packing, format, text, cells and origin."""
