"""Passes, sequences of passes, contexts, instruments, and passes from Python functions."""
