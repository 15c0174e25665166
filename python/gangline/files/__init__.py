"""Reads and writes files: their compression, format, text, cells and origin."""
