"""Passes that group computations into functions, and turn these into one kernel each."""
