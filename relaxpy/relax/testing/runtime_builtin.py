"""The codes that calls of `vm.builtin.match_shape` and `vm.builtin.make_shape` contain."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.runtime_builtin")
if TYPE_CHECKING:
    from relaxpy.ir.ops.vm import MakeShapeCode as MakeShapeCode, MatchShapeCode as MatchShapeCode
