"""What `tvm.arith` offers beyond proofs: the Analyzer, sets, solvers, patterns, iterator maps."""
