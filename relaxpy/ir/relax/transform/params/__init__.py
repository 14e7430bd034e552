"""Parameters: values in place of them, tuples of them, and what depends on them alone."""
