"""Integer reasoning: canonical forms, bounds, residues, and proofs over PrimExprs."""
