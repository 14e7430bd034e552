"""Parameters: replacing them by values or tuples, and lifting what depends on them alone."""
