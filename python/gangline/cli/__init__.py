"""The command line `gangline`; no other module imports it."""
