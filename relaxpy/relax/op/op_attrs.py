"""The classes of attributes of calls."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.op_attrs", "relaxpy.tvm.relax.op_attrs:attributes")
if TYPE_CHECKING:
    pass

    def __getattr__(name: str) -> _Any: ...
