"""The operators of nn: functions from tensors to tensors, which emit calls of Relax operators."""
