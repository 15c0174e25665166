"""Analyses of results: audits, explanations, reports."""
