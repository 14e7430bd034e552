"""Analyses of Relay programs."""
