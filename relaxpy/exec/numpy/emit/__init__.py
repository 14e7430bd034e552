"""From plans to Python over NumPy."""
