"""Contractions in LLVM IR: register tiles, copies of operands, products of bytes."""
