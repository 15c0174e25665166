"""The command `gangline`: everything a person types; nobody imports it."""
