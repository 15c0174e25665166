"""The table of jobs: its columns, the checks of its input, and its conversion for the core."""
