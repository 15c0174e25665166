"""Trains an agent to schedule a cluster, and compares it with policies."""
