"""Loops in LLVM IR: over axes, runs and trees."""
