"""Passes that remove, order and simplify bindings and functions."""
