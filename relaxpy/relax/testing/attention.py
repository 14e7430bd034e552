"""Modules with one attention."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.attention")
if TYPE_CHECKING:
    from relaxpy.tvm.test_models import get_relax_attention_module as get_relax_attention_module, get_relax_stacked_attention_module as get_relax_stacked_attention_module
