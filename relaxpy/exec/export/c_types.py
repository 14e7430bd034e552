"""Datatypes and declarations in C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from relaxpy.exec.program.graph.program import ExternCall

_TYPES: Final = {"float32": "float", "float64": "double", "bool": "uint8_t"}
"""The types of C for elements; those of other floats are the integers of as many bits."""


def c_type(dtype: str) -> str:
    """The type of the elements of a tensor in C."""
    if dtype in _TYPES:
        return _TYPES[dtype]
    if dtype.startswith(("int", "uint")):
        return f"{dtype}_t"
    return "uint8_t" if dtype.startswith("float8") else "uint16_t"


def declaration(symbol: str, step: ExternCall) -> str:
    """The declaration of a function that the program calls: each tensor is followed by its shape.

    The caller of the library defines it. It returns 0, or a status that ends the call.
    """
    return f"int32_t {symbol}({', '.join(_parameters(step))});"


def _parameters(step: ExternCall) -> Iterator[str]:
    for tensors, name, const in ((step.inputs, "input", "const "), (step.outputs, "output", "")):
        for number, tensor in enumerate(tensors):
            kind = c_type(str(tensor.sinfo.dtype))
            yield f"{const}{kind} *{name}{number}, const int64_t *{name}{number}_shape"
