"""Passes over bindings, functions and virtual devices that compile does not run."""
