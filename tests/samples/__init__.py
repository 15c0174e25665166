"""Small invented inputs, one of each format, with the defects of real ones."""
