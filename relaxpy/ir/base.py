"""Structural comparison and serialisation of programs, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.ir.base")
if TYPE_CHECKING:
    from relaxpy.ir.equality.structural import assert_structural_equal as assert_structural_equal, get_first_structural_mismatch as get_first_structural_mismatch, structural_equal as structural_equal, structural_hash as structural_hash
    from relaxpy.ir.serialize import load_json as load_json, save_json as save_json
