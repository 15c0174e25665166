"""Text, numbers and progress: helpers that know nothing of scheduling."""
