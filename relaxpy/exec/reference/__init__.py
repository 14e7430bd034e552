"""The reference evaluator: a literal implementation of the evaluation rules, scalar by scalar."""
