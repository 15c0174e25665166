"""The table of jobs: its columns, the checks on the way in, and the way to the compiled core."""
