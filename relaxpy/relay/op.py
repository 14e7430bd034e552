"""The registry of Relay operators, and the functions that build their calls."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.op", "relaxpy.plugins.relay.op.makers:public_name")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.op.makers import maker as maker
    from relaxpy.plugins.relay.op.registry import Op as Op, list_op_names as list_op_names, register as register, register_compute as register_compute
    from relaxpy.plugins.relay.op.registry import Op as _Op
    get = _Op.get

    def __getattr__(name: str) -> _Any: ...
    __all__ = ['Op', 'get', 'list_op_names', 'maker', 'register', 'register_compute']
