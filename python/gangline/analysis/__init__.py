"""What results say: audits, explanations, reports."""
