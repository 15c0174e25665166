"""Provides helpers for text, numbers and progress, which know nothing about scheduling."""
