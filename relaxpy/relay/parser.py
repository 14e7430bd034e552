"""Reading of programs, under the path of TVM, and the operators `parser`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.parser", "relaxpy.plugins.relay.op.makers:public_name")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.op.makers import maker as maker
    from relaxpy.plugins.relay.text.parser import fromtext as fromtext, parse as parse, parse_expr as parse_expr

    def __getattr__(name: str) -> _Any: ...
