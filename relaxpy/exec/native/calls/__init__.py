"""Calls from Python into native code: entries, and the interpreter as they see it."""
