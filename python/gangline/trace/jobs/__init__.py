"""Defines the table of jobs: its columns, the checks of its input, its conversion for the core."""
