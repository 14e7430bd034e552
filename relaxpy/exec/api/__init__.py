"""Compilation, executables, and what is called like them."""
