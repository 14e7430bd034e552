"""Converters, one module for each family of operators, which `find` loads when it needs one."""
