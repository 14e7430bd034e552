"""Passes over Relay modules."""
