"""Transformations of kernels by steps that keep their values: the primitives of a Schedule."""
