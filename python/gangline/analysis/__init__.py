"""Analyses results: audits, explanations, reports."""
