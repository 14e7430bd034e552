"""Functions of floating-point numbers as vector code, without external libraries."""
