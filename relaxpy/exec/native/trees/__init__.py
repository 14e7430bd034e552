"""Loop trees of kernels, and what is decided about them before any code is written."""
