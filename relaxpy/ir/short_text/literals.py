"""Python literals that evaluate to a value exactly: strings, floats, arrays."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.short_text.document import Doc, Group, keyword, tuple_doc


def string_text(value: str) -> str:
    """Return a string literal, in double quotes where no escapes are needed."""
    text = str.__repr__(value)  # members of a `StrEnum` override `__repr__`
    return text if '"' in text else f'"{text[1:-1]}"'


def float_text(value: float) -> str:
    """Return a float as the argument of a datatype; infinities and NaN are strings."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


def python_float_text(value: float) -> str:
    """Return a float as a Python expression of literals."""
    if math.isnan(value):
        return "1e999 - 1e999"
    return float.__repr__(value).replace("inf", "1e999")


def constant_literal(data: npt.NDArray[np.generic]) -> tuple[Doc, ...]:
    """Return the arguments of `R.const` that evaluate to `data` bit by bit."""
    dtype = DataType(data.dtype)
    dtype_text = f'"{dtype}"'
    if 0 in data.shape[:-1]:  # nested lists cannot express the columns of an array without rows
        return "[]", dtype_text, keyword("shape", tuple_doc(map(str, data.shape)))
    if not dtype.is_float:
        return _nested([str(v) for v in data.ravel().tolist()], data.shape), dtype_text
    return _nested(_float_elements(data), data.shape), dtype_text


def _float_elements(data: npt.NDArray[np.generic]) -> list[str]:
    """Return floats as the shortest literals that round-trip; as their bits where none does."""
    values = data.ravel()
    texts = [str(v) for v in values]
    parsed = np.array([float(t) for t in texts]).astype(data.dtype)
    bits_dtype = np.dtype(f"u{data.dtype.itemsize}")
    bits = np.ascontiguousarray(values).view(bits_dtype)
    for i in np.flatnonzero(bits != parsed.view(bits_dtype)):
        # Some datatypes print fewer digits than they have, and NaN is printed without its sign.
        texts[i] = f"0x{bits[i]:x}"
        for text in (repr(float(values[i])), "-nan"):
            if np.array([float(text)]).astype(data.dtype).view(bits_dtype)[0] == bits[i]:
                texts[i] = text
                break
    return [_float_element(text) for text in texts]


def _float_element(text: str) -> str:
    if text.endswith(("nan", "inf")) or text.startswith("0x"):
        return f'"{text}"'
    return f"{text}.0" if text.lstrip("-").isdigit() else text  # -0 would be the integer 0


def _nested(values: list[str], shape: tuple[int, ...]) -> Doc:
    """Return the elements as nested lists."""
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    rows = (_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))
    return Group("[", rows, "]")
