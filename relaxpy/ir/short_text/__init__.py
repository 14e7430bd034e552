"""The short text of nodes, for messages and `repr`; whole programs are printed by `script`."""
