"""Graph-level IR: expressions, struct info and its relations, and the builder."""
