"""Provides helpers for text, numbers and progress that know nothing about scheduling."""
