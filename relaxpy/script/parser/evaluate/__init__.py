"""The values of expressions in a program text, and the one door for calls."""
