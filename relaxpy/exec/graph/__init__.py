"""Relax functions as one native function: their kernels run on planned memory, without Python."""
