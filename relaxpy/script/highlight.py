"""Programs in colour, under TVM's module name."""

from relaxpy.script.printer import cprint

__all__ = ["cprint"]
