"""Functions of single elements, computed in float64 by kernels of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.loops import Loops, Number, kernel
from relaxpy.plugins.importing.tensors import product, reshaped, shape_of
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import Value, converter

#: A function of numbers that are variables of a kernel, to a number.
Scalar = Callable[..., Number]


def spread(cx: Context, value: Value, dtype: str) -> Expr:
    """An operand as a vector of the result's elements, in a datatype."""
    sizes = cx.result_shape()
    tensor = cx.tensor(value, dtype)
    if shape_of(tensor) != sizes:
        tensor = R.broadcast_to(tensor, tuple(sizes))
    return cx.emit(reshaped(tensor, [product(sizes)]))


def each_element(
    cx: Context, name: str, function: Scalar, *operands: Value, dtype: str = "float64"
) -> Expr:
    """The function of each element of the operands, which broadcast."""
    vectors = [spread(cx, operand, dtype) for operand in operands]
    total = shape_of(vectors[0])[0]

    def write(k: Loops, *buffers: Any) -> None:
        *ins, out = buffers
        with k.loop(out.shape[0]) as i:
            numbers = [k.local(buffer[i])[0] for buffer in ins]
            k.store(out, i, function(k, *numbers))

    (flat,) = kernel(cx, name, [([total], dtype)], vectors, write)
    return R.astype(reshaped(flat, cx.result_shape()), cx.result_dtype())


def elementwise(*names: str, prims: str = "") -> Callable[[Scalar], Scalar]:
    """Register a function of numbers as the converter of operators, by their names of ATen."""

    def register(function: Scalar) -> Scalar:
        def convert(cx: Context, *operands: Value) -> Expr:
            return each_element(cx, names[0], function, *operands)

        converter(*names)(convert)
        if prims:
            converter(prims, namespace="prims")(convert)
        return function

    return register
