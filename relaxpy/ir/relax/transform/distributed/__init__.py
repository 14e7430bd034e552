"""Passes over programs on several devices: how tensors are split, and what each device computes."""
