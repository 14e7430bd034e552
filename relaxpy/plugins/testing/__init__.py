"""Assertions of tests about programs: golden files, targets, passes, and inputs of hypothesis."""
