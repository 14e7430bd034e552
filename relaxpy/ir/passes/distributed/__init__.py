"""Passes over distributed programs: sharding propagation, and lowering to SPMD."""
