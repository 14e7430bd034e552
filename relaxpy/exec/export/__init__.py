"""Programs as libraries without Python: another way to finish a compiled program."""
