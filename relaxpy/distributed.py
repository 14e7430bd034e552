"""Programs that several processes run together, which MPI has started."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.distributed")
if TYPE_CHECKING:
    from relaxpy.ir.ops.distributed import Workers as Workers, current_workers as current_workers
    from relaxpy.plugins.distributed.communication import communication as communication, own_part as own_part, own_parts as own_parts
    from relaxpy.plugins.distributed.start import use as use
