"""The interface of `tvm.arith`: the Analyzer, integer sets, solvers, patterns, iterator maps."""
