"""Kernels as functions of a module: `PrimFunc`, its specialisation and its verifier."""
