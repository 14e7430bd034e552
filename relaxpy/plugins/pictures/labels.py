"""Short texts of expressions and struct info, as the items of a picture show them."""

from __future__ import annotations

import re
from typing import Final

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.short_text.nodes import ShortText, short_text

MAX_LABEL: Final = 44
MAX_ABOUT: Final = 600
#: Characters that XML excludes, and those that change the direction of text.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str, limit: int = MAX_LABEL) -> str:
    """The text on one line, without control characters, and cut after `limit` characters."""
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return _UNPRINTABLE.sub("\ufffd", text.replace("\n", " ").replace("\t", " "))


def sinfo_text(sinfo: rx.StructInfo | None) -> str:
    """Struct info as a label has it: the shape and the datatype of a tensor."""
    match sinfo:
        case None:
            return ""
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=sizes)):
            dims = ", ".join(ShortText().prim(size, INT64) for size in sizes)
            return f"({dims}{',' if len(sizes) == 1 else ''}) {sinfo.dtype or ''}".strip()
        case rx.TensorStructInfo():
            rank = "?" if sinfo.ndim < 0 else f"rank {sinfo.ndim}"
            return f"({rank}) {sinfo.dtype or ''}".strip()
        case rx.TupleStructInfo(fields=fields):
            return f"({', '.join(map(sinfo_text, fields[:8]))}{', …' if fields[8:] else ''})"
        case _:
            return short_text(sinfo).removeprefix("R.")


def operator_text(op: Node) -> str:
    """The name of a callee, without the dialect."""
    match op:
        case Op():
            return op.name.removeprefix("relax.")
        case rx.GlobalVar() | rx.Var():
            return op.name_hint
        case rx.ExternFunc():
            return op.global_symbol
        case _:
            return type(op).__name__


def literal_text(expr: Node) -> str | None:
    """The text of an operand that a label contains; None for a value with an item of its own."""
    match expr:
        case rx.Constant() if expr.size == 1:
            return str(expr.data.item())
        case rx.PrimValue():
            return ShortText().prim(expr.value, INT64)
        case rx.ShapeExpr(values=sizes):
            return f"({', '.join(ShortText().prim(size, INT64) for size in sizes)})"
        case rx.StringImm():
            return repr(expr.value[:MAX_LABEL])
        case rx.DataTypeImm():
            return str(expr.value)
        case _:
            return None


def attributes_text(call: rx.Call) -> str:
    """The attributes of a call that have a value."""
    found = []
    for name, value in call.attrs.items():
        if value is not None:
            text = short_text(value) if isinstance(value, Node) else f"{value!r:.80}"
            found.append(f"{name}={text}")
    return ", ".join(found)
