"""Kernels as native code: vector LLVM IR, compiled through llvmlite."""
