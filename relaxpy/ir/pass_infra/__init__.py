"""Passes as values: sequences, contexts, instruments' hooks, and functions made into passes."""
