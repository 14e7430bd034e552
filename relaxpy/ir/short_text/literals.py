"""Literals of Python that give a value back exactly: strings, floats, arrays."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.short_text.document import Doc, Group, keyword, tuple_doc


def string_text(value: str) -> str:
    """A string literal, in double quotes where that needs no escapes."""
    text = str.__repr__(value)  # an enumeration's member has one of its own
    return text if '"' in text else f'"{text[1:-1]}"'


def float_text(value: float) -> str:
    """A float as an argument of a datatype: infinities and NaN as strings."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


def python_float_text(value: float) -> str:
    """A float as a Python expression of literals alone."""
    if math.isnan(value):
        return "1e999 - 1e999"
    return float.__repr__(value).replace("inf", "1e999")


def constant_literal(data: npt.NDArray[np.generic]) -> tuple[Doc, ...]:
    """The arguments of `R.const` that give `data` to the last bit."""
    dtype = DataType(data.dtype)
    named = f'"{dtype}"'
    if 0 in data.shape[:-1]:  # nested lists cannot tell how many columns no rows have
        return "[]", named, keyword("shape", tuple_doc(map(str, data.shape)))
    if not dtype.is_float:
        return _nested([str(v) for v in data.ravel().tolist()], data.shape), named
    return _nested(_float_elements(data), data.shape), named


def _float_elements(data: npt.NDArray[np.generic]) -> list[str]:
    """Floats as literals, in as few digits as tell them apart; as their bits where none do."""
    values = data.ravel()
    texts = [str(v) for v in values]
    again = np.array([float(t) for t in texts]).astype(data.dtype)
    words = np.dtype(f"u{data.dtype.itemsize}")
    bits = np.ascontiguousarray(values).view(words)
    for i in np.flatnonzero(bits != again.view(words)):
        # Some datatypes show fewer digits than they have, and a NaN does not show its sign.
        texts[i] = f"0x{bits[i]:x}"
        for text in (repr(float(values[i])), "-nan"):
            if np.array([float(text)]).astype(data.dtype).view(words)[0] == bits[i]:
                texts[i] = text
                break
    return [_float_element(text) for text in texts]


def _float_element(text: str) -> str:
    if text.endswith(("nan", "inf")) or text.startswith("0x"):
        return f'"{text}"'
    return f"{text}.0" if text.lstrip("-").isdigit() else text  # -0 would be the integer 0


def _nested(values: list[str], shape: tuple[int, ...]) -> Doc:
    """The elements as lists in lists."""
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    rows = (_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))
    return Group("[", rows, "]")
