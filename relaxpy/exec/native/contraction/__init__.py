"""Contractions in LLVM IR: register tiles, packing of operands, int8 dot products."""
