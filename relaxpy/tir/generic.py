"""Arithmetic of scalars, by name."""

from relaxpy.ir.tir.intrin import cast as cast
from relaxpy.tir import (
    add as add,
    div,
    floordiv as floordiv,
    multiply as multiply,
    subtract as subtract,
)

divide = div
