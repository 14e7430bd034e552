"""The values of expressions in a program text, and the only module that calls what a text names."""
