"""Reading of programs, under the path of TVM, and the operators `parser`."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relay.op.makers import maker as maker
    from relaxpy.script.relay.parser import fromtext as fromtext, parse as parse, parse_expr as parse_expr
else:
    _face(globals(), """
        relaxpy.ir.relay.op.makers: maker
        relaxpy.script.relay.parser: fromtext parse parse_expr
    """, "relaxpy.ir.relay.op.makers:public_name")
