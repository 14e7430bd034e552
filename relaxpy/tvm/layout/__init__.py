"""Passes that choose layouts by hand."""
