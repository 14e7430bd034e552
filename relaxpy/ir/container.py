"""The classes of the lists and tables in nodes, under TVM's module name."""

from builtins import tuple as Array  # noqa: N812
from collections.abc import Mapping as Map

__all__ = ["Array", "Map"]
