"""The dataflow pattern language: patterns of expressions, matching, and rewriting."""
