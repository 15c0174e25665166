"""Measures rates of models on one GPU, and compares predicted with real runs of jobs."""
