"""Rates of models on one GPU, and jobs that are predicted and run there."""
