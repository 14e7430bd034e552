"""Analyses of Relax programs: free variables, calls, purity, recursion, well-formedness."""
