"""Meaning of the names in `I`, `R` and `T`: records, annotations, directives, kernel builder."""
