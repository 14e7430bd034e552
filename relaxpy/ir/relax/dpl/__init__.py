"""The dataflow pattern language: patterns of expressions, how they are found, and rewriting."""
