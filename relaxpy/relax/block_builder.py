"""The builder of Relax programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.block_builder")
if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder as BlockBuilder
