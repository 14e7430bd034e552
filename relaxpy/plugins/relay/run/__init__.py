"""Execution of Relay: values, the reference evaluator, and executors."""
