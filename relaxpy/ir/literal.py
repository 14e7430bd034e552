"""Literals of Python that give a value back exactly: strings, floats, arrays."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from relaxpy.ir.doc import Doc, Group
from relaxpy.ir.dtype import DataType


def string_text(value: str) -> str:
    """A string literal, in double quotes where that needs no escapes."""
    text = repr(value)
    if text[0] == "'" and '"' not in value:
        return '"' + text[1:-1].replace("\\'", "'") + '"'
    return text


def float_text(value: float) -> str:
    """A float as an argument of a datatype: infinities and NaN as strings."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


def python_float_text(value: float) -> str:
    """A float as a Python expression of literals alone."""
    if math.isnan(value):
        return "1e999 - 1e999"
    return repr(value).replace("inf", "1e999")


def constant_literal(
    data: npt.NDArray[np.generic], *, exact: bool = True
) -> tuple[Doc, Doc] | None:
    """The arguments of `R.const` that give `data` to the last bit, or None if there are none.

    If it need not be `exact`, one NaN may stand for another.
    """
    if 0 in data.shape[:-1]:  # nested lists cannot tell how many columns no rows have
        return None
    dtype = DataType(data.dtype)
    to_text = _float_element if dtype.is_float else _plain_element
    for element in (str, lambda v: repr(v.item())):
        values = [to_text(element(v), v) for v in data.ravel()]
        plain = np.array([v.strip('"') for v in values], dtype=object)
        if data.dtype == np.bool_ or not exact or _same_bits(plain, data):
            return _nested(values, data.shape), f'"{dtype}"'
    return None


def _plain_element(text: str, value: np.generic) -> str:
    return text


def _float_element(text: str, value: np.generic) -> str:
    if text == "nan":
        return '"-nan"' if np.signbit(value) else '"nan"'
    if text.endswith("inf"):
        return f'"{text}"'
    return f"{text}.0" if text.lstrip("-").isdigit() else text  # -0 would be the integer 0


def _same_bits(texts: npt.NDArray[np.object_], data: npt.NDArray[np.generic]) -> bool:
    number = int if DataType(data.dtype).is_int else float
    again = np.array([number(t) for t in texts], dtype=data.dtype)
    return again.tobytes() == data.tobytes()


def _nested(values: list[str], shape: tuple[int, ...]) -> Doc:
    """The elements as lists in lists."""
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    rows = (_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))
    return Group("[", rows, "]")
