"""Integer expressions as values: polynomials, intervals, residue classes, and their printing."""
