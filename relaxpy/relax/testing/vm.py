"""Packed functions that tests of programs call, `test.vm.add` and others, and a check."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.vm")
if TYPE_CHECKING:
    from relaxpy.plugins.testing.verify import check_saved_func as check_saved_func
