"""Kernels as functions of a module: `PrimFunc`, its specialisation, its check, its passes."""
