"""Structural equality and hashing, and the path at which two programs differ."""
