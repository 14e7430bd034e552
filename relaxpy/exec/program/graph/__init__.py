"""Relax functions as single native functions: kernels run on planned memory, without Python."""
