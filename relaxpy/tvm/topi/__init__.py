"""Functions of tensors that no operator is legalised to."""
