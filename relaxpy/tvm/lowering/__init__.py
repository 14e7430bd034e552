"""Lowering to TVM's virtual machine: memory, shapes, purity."""
