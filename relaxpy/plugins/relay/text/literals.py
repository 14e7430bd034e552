"""Reading of literals, constants, metadata and attributes (RLY-39, RLY-62, RLY-63, RLY-71)."""

from __future__ import annotations

import json
import math
from typing import Final

import numpy as np

from relaxpy.errors import ParseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.text.cursor import Cursor, Scope
from relaxpy.plugins.relay.text.lexer import Token
from relaxpy.plugins.relay.text.printer import MAX_DIGITS
from relaxpy.plugins.relay.text.types import Types, datatype

_SUFFIXES: Final = {"i": "int32", "f": "float32"} | {
    f"{letter}{bits}": f"{family}{bits}"
    for letter, family in (("i", "int"), ("f", "float"))
    for bits in (16, 32, 64)
}
_LITERALS: Final = {"True": True, "False": False, "None": None, "nullptr": None}
_MAX_DEPTH: Final = 50
MAX_DIMENSIONS: Final = 32
"""The dimensions of an array in every version of NumPy."""


class Literals:
    """A reader of literals at the position of a cursor."""

    def __init__(self, cursor: Cursor, scope: Scope, types: Types) -> None:
        self.cursor = cursor
        self.scope = scope
        self.types = types

    def attribute_value(self, depth: int = 0) -> object:
        """Return the value of an attribute: a number, Boolean, string, list or None."""
        cursor = self.cursor
        token = cursor.token
        if depth > _MAX_DEPTH:
            raise cursor.error(token, f"lists nested more than {_MAX_DEPTH} deep", "RLY-71")
        if cursor.accept("["):
            return tuple(cursor.listed("]", lambda: self.attribute_value(depth + 1), "RLY-71"))
        if cursor.at("meta"):
            return self._attribute_entry()
        if cursor.accept("("):
            return self._bracketed_attribute(depth + 1)
        if token.kind == "string":
            cursor.take()
            return self._string(token)
        if token.kind == "name" and token.text in _LITERALS:
            cursor.take()
            return _LITERALS[token.text]
        negative = cursor.accept("-")
        if cursor.token.kind == "number":
            value, _ = self._number(cursor.take(), negative=negative)
            return value
        if not negative and token.kind == "name" and datatype(token.text) is not None:
            cursor.take()
            return token.text
        raise cursor.unexpected("a number, Boolean, string, list or None", "RLY-71")

    def _attribute_entry(self) -> object:
        """Return an entry of the metadata: a number that no literal can write, or an array."""
        data = self.meta(self.cursor.take()).data
        return data.item() if data.ndim == 0 and data.dtype == "float64" else data

    def _bracketed_attribute(self, depth: int) -> object:
        cursor = self.cursor
        value = self.attribute_value(depth)
        if not cursor.at(","):
            cursor.expect(")", "RLY-71")
            return value
        cursor.take()
        return (value, *cursor.listed(")", lambda: self.attribute_value(depth), "RLY-71"))

    def _string(self, token: Token) -> str:
        try:
            text: str = json.loads(token.text, strict=False)
        except ValueError:
            raise self.cursor.error(
                token, "this string has an unknown escape", "RLY-71", "escapes are those of JSON"
            ) from None
        return text

    def _number(self, token: Token, *, negative: bool) -> tuple[int | float, DataType | None]:
        """Return the number of a token, and the datatype of its suffix (RLY-62)."""
        text = token.text
        letters = text.lstrip("0123456789.eE+-")
        suffix = letters if letters in _SUFFIXES else ""
        digits = text.removesuffix(suffix) if suffix else text
        whole = digits.isdigit()
        if len(digits) > MAX_DIGITS:
            message = f"this number has more than {MAX_DIGITS} digits"
            raise self.cursor.error(token, message, "RLY-62")
        value: int | float = int(digits) if whole else float(digits)
        value = -value if negative else value
        if not suffix:
            if isinstance(value, float) and not np.isfinite(value):
                raise self.cursor.error(token, f"{text} does not fit float64", "RLY-63")
            return value, None
        dtype = DataType(_SUFFIXES[suffix])
        if dtype.family == "float":
            with np.errstate(over="ignore"):
                rounded = float(np.array(_as_float(value), str(dtype)))
            if np.isfinite(rounded):
                return -0.0 if negative and not value else _as_float(value), dtype
        elif whole and -(1 << dtype.bits - 1) <= value < 1 << dtype.bits - 1:
            return value, dtype
        sign = "-" if negative else ""
        raise self.cursor.error(token, f"{sign}{digits} does not fit {dtype}", "RLY-62")

    def literal(self, first: Token, *, negative: bool) -> rl.RelayExpr:
        """A number, whose datatype is open if it has no suffix (RLY-63)."""
        cursor = self.cursor
        token = cursor.take()
        value, dtype = self._number(token, negative=negative)
        span = cursor.span(first)
        if dtype is not None:
            return rl.Constant(np.array(value, str(dtype)), span=span)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise cursor.error(token, f"{value} does not fit int64", "RLY-63")
        return rl.Literal(value, span=span)

    def constant(self, first: Token) -> rl.Constant:
        """`Constant(value, shape, datatype)` (RLY-64)."""
        cursor = self.cursor
        cursor.expect("(", "RLY-64")
        value = cursor.token
        negative = cursor.accept("-")
        number: int | float | bool
        if cursor.at("True", "False"):
            number = cursor.take().text == "True"
        else:
            number, _ = self._number(
                cursor.expect_kind("number", "a number", "RLY-64"), negative=negative
            )
        cursor.expect(",", "RLY-64", "and the shape")
        cursor.expect("(", "RLY-64", "before the shape")
        shape = cursor.listed(")", self.types.dim, "RLY-64")
        cursor.expect(",", "RLY-64", "and the datatype")
        name = cursor.expect_kind("name", "a datatype", "RLY-64")
        dtype = datatype(name.text)
        cursor.accept(",")
        cursor.expect(")", "RLY-64")
        if dtype is None:
            raise cursor.error(name, f"{name.text} is not a datatype", "RLY-64")
        sizes = [d for d in shape if isinstance(d, int)]
        if len(sizes) < len(shape):
            raise cursor.error(first, "the shape of a constant consists of integers", "RLY-64")
        if len(sizes) > MAX_DIMENSIONS:
            raise cursor.error(
                first,
                f"a constant has at most {MAX_DIMENSIONS} dimensions, found {len(sizes)}",
                "RLY-64",
            )
        element = _element(number, dtype)
        if element is None:
            raise cursor.error(value, f"{number} does not fit {dtype}", "RLY-64")
        span = cursor.span(first)
        try:
            cursor.budget.spend_bytes(element.itemsize * math.prod(d or 1 for d in sizes))
        except ParseError as error:
            raise error.located(span) from None
        return rl.Constant(np.full(sizes, element), span=span)

    def meta(self, first: Token) -> rl.Constant:
        """`meta[relay.Constant][i]` (RLY-65)."""
        cursor = self.cursor
        cursor.expect("[", "RLY-65")
        kind = cursor.expect_kind("name", "the kind of the entry", "RLY-65")
        cursor.expect("]", "RLY-65")
        cursor.expect("[", "RLY-65")
        index = cursor.expect_kind("number", "the number of the entry", "RLY-65")
        cursor.expect("]", "RLY-65")
        constants = self.scope.constants
        if kind.text != "relay.Constant":
            raise cursor.error(
                kind, f"there is no table {kind.text}", "RLY-65", "the table is relay.Constant"
            )
        number = index.text.lstrip("0") or "0"
        if not index.text.isdigit() or len(number) > 9 or int(number) >= len(constants):
            raise cursor.error(
                index,
                f"there is no entry {index.text} among {len(constants)} constants",
                "RLY-65",
                "entries are listed after #[metadata], or passed as init_meta_table",
                last=index,
            )
        entry = constants[int(number)]
        return rl.Constant(entry.data, span=cursor.span(first))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _element(value: float, dtype: DataType) -> rl.Array | None:
    """Return `value` as an array of rank 0; None if it does not fit the datatype."""
    try:
        with np.errstate(all="ignore"):
            element = np.array(value, str(dtype))
    except (OverflowError, ValueError, TypeError):
        return None
    if dtype.family != "float" and element.item() != value:
        return None
    if np.isinf(element.astype("float64")) and np.isfinite(_as_float(value)):
        return None
    return element
