"""The kernel compiler: a PrimFunc becomes a plan, and the plan a Python function over NumPy."""
