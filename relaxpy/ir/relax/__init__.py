"""Graph-level IR: expressions, StructInfo, the laws between infos, and the builder."""
