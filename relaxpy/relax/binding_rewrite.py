"""Rewriting of one dataflow block of a function."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.rewrite.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
else:
    _face(globals(), """
        relaxpy.ir.relax.rewrite.binding_rewrite: DataflowBlockRewrite
    """)
