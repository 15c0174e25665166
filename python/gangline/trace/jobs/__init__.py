"""The table of jobs: its columns, the checks of its input, and its form for the compiled core."""
