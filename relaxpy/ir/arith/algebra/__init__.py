"""What integer expressions are as values: polynomials, intervals, residues, and their text."""
