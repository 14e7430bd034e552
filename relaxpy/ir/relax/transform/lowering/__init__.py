"""Passes that make the calls, the memory and the checks of a program explicit."""
