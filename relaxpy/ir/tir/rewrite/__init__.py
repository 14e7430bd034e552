"""Rewriting of blocks and loops, for the planner of kernels and for schedules."""
