"""The builder of Relax programs."""

from relaxpy.ir.relax.block_builder.builder import BlockBuilder as BlockBuilder
