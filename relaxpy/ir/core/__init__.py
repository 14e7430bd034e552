"""The base of all nodes: `Node`, datatypes, types, devices, and the walk over their fields."""
