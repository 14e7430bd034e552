"""From Relax functions to Python functions: one flat function for each."""
