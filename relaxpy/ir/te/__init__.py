"""Tensor expressions: tensors as functions of their indices, turned into PrimFuncs."""
