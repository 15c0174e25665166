"""Trains small models as copies on workers of unlike speed, and compares with one worker."""
