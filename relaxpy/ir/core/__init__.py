"""The base of all nodes: `Node`, datatypes, types, devices, and the traversal of node fields."""
