"""Front ends: other ways to describe models."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend", "relaxpy.support.lazy:submodule")
if TYPE_CHECKING:
    from relaxpy.plugins.importing.tensors import detach_params as detach_params
    from relaxpy.relax.frontend import common as common, nn as nn

    def __getattr__(name: str) -> _Any: ...
