"""Patterns of GPU libraries, and the partition of modules by them."""
