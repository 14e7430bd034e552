"""Patterns of NVIDIA's libraries, and functions that partition modules by them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend.cuda")
if TYPE_CHECKING:
    from relaxpy.relax.backend.cuda import cublas as cublas, cudnn as cudnn, cutlass as cutlass
