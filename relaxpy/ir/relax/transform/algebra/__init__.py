"""Algebraic rewrites."""
