"""Nodes by the names of their kinds, and sources that have a name and no content."""

from __future__ import annotations

from dataclasses import field

from relaxpy.errors import MisuseError, RelaxpyError, Source, UnknownNameError, close_names
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.serialize import KINDS
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing


@user_facing
def make_node(type_key: str, **fields: object) -> Node | Attrs:
    """Build a node of the kind that is saved as `type_key`, or Attrs for "ir.DictAttrs".

    Keys may differ in the words before the last, such as TVM's "ir.IntImm" and "relax.expr.Var".

    Errors:
        UnknownNameError (also ValueError): there is no such kind.
        MisuseError: the kind has other fields.
    """
    words = type_key.split(".") if isinstance(type_key, str) else [""]
    if words[-1] == "DictAttrs":
        return Attrs(fields)
    ends = [name for name in KINDS if name.rpartition(".")[2] == words[-1]]
    own = [name for name in ends if name.startswith(f"{words[0]}.")]
    kind = KINDS[(own or ends)[0]] if len(own) == 1 or len(ends) == 1 else None
    if kind is None:
        raise UnknownNameError(
            f"there is no kind of node {type_key!r:.60}",
            hint=close_names(str(type_key), KINDS),
            about=type_key,
        )
    try:
        return kind(**fields)
    except TypeError as error:
        if isinstance(error, RelaxpyError):
            raise
        raise MisuseError(f"cannot build a {type_key}: {error}", about=type_key) from None


@dataclass(frozen=True, slots=True, eq=False)
class SourceName(Source):
    """The source of spans that are built by hand, without a program."""

    text: str = field(default="", repr=False)
