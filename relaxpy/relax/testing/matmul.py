"""Modules with one product of matrices."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.matmul")
if TYPE_CHECKING:
    from relaxpy.tvm.test_models import get_relax_matmul_module as get_relax_matmul_module
