"""Passes that read parameters and write outputs one by one."""
