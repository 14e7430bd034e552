"""The classes of the lists and tables in nodes, under TVM's module name."""

from collections.abc import Mapping as Map

Array = tuple

__all__ = ["Array", "Map"]
