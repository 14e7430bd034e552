"""Patterns of libraries for graphics processors, and the partition of modules by them."""
