"""Loop trees of kernels, and their optimisation before code is emitted."""
