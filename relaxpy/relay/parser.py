"""Reading of programs, under the path of TVM, and the operators `parser`."""

from typing import TYPE_CHECKING

from relaxpy.ir.relay.op.makers import maker
from relaxpy.script.relay.parser import (
    fromtext as fromtext,
    parse as parse,
    parse_expr as parse_expr,
)

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        return maker(f"parser.{name}")
