"""The NumPy target: kernels as Python source."""
