"""Passes that rewrite PrimFuncs."""
