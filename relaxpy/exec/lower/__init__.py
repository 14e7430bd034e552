"""From Relax functions to Python functions: one straight function for each."""
