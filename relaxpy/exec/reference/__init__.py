"""The reference evaluator: the evaluation rules word for word, one scalar at a time."""
