"""Values of expressions in LLVM IR, and the variables and buffers that they read."""
