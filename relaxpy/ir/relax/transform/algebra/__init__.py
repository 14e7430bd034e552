"""Passes that use laws of arithmetic."""
