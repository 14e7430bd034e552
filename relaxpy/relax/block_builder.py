"""The builder of Relax programs."""

from relaxpy.ir.relax.builder import BlockBuilder

__all__ = [
    "BlockBuilder",
]
