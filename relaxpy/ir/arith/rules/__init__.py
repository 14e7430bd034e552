"""Rules that bound, simplify or decide one kind of expression by the results of an engine."""
