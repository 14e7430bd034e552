"""Rewriting of whole functions: visitors, mutators, substitution, binding, inlining."""
