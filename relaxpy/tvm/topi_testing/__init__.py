"""The functions of topi on arrays of NumPy, straight from their definitions, for tests."""
