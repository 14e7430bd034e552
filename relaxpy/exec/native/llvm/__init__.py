"""LLVM IR as text: types, values, functions and modules."""
