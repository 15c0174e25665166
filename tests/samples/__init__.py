"""Small invented inputs, one of each format, with the defects that real ones have."""
