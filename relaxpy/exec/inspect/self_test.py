"""Kernels whose results are compared with those of NumPy: run in a child, it prints a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from relaxpy.exec.api.compile import compile
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.target import target_facts
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.support.dataclass import dataclass

_MANY: Final = 1 << 17
"""The elements that several threads share."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel: its operator and attributes, its operands, and what it computes.

    `tolerance` is the largest difference that rounding explains, relative to 1 and to the result.
    """

    operator: str
    operands: tuple[Array, ...]
    expected: Callable[..., Array]
    tolerance: float = 0.0
    attrs: tuple[tuple[str, object], ...] = ()


def cases() -> Iterator[Case]:
    """Elementwise kernels, reductions, products, and a window, of several datatypes."""
    draw = np.random.default_rng(61)
    single, double, half = np.float32, np.float64, np.float16
    x = draw.uniform(-2, 2, (9, 37))
    for dtype, tolerance in ((single, 1e-6), (double, 1e-14), (half, 2e-3)):
        yield Case("exp", (x.astype(dtype),), np.exp, tolerance)
    long = draw.uniform(-2, 2, _MANY).astype(single)
    yield Case("sin", (long,), np.sin, 1e-6)
    yield Case("sum", (x.astype(single),), np.sum, 1e-4)
    yield Case("nn.relu", (x.astype(single),), lambda x: np.maximum(x, 0))
    for dtype, tolerance in ((single, 1e-5), (double, 1e-13)):
        operands = x.astype(dtype), draw.standard_normal((37, 53)).astype(dtype)
        yield Case("matmul", operands, np.matmul, tolerance)
    for rows, depth, columns in ((9, 40, 33), (53, 150, 81)):
        shapes = (rows, depth), (depth, columns)
        left, right = (draw.integers(-128, 128, shape).astype("int8") for shape in shapes)
        yield Case("matmul", (left, right), _product_of_bytes, attrs=(("out_dtype", "int32"),))
    shapes = (53, 150), (150, 81)
    # Sums of these numbers are exact.
    left, right = (draw.integers(-12, 12, shape).astype("bfloat16") for shape in shapes)
    yield Case("matmul", (left, right), _product_of_halves, attrs=(("out_dtype", "float32"),))
    image = draw.standard_normal((1, 3, 11, 12)).astype(single)
    weights = draw.standard_normal((5, 3, 3, 3)).astype(single)
    yield Case("nn.conv2d", (image, weights), _windows, 1e-5)
    yield Case("nn.softmax", (x.astype(single),), _softmax, 1e-6)


def _product_of_bytes(left: Array, right: Array) -> Array:
    result: Array = np.matmul(left.astype(np.int32), right.astype(np.int32))
    return result


def _product_of_halves(left: Array, right: Array) -> Array:
    result: Array = np.matmul(left.astype(np.float32), right.astype(np.float32))
    return result


def _windows(image: Array, weights: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))
    result: Array = np.einsum("bchwij,ocij->bohw", windows, weights)
    return result


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    result: Array = powers / powers.sum(-1, keepdims=True)
    return result


def problem_of(case: Case) -> str:
    """The problem with the result of a kernel; empty if it is right."""
    kinds = ", ".join(f"{x.dtype}{[*x.shape]}" for x in case.operands)
    title = f"{case.operator} of {kinds}"
    executable = compile(_program(case), "native")
    if not all(target_facts(row.backend).is_native for row in executable.report()):
        return f"{title} has no native code"
    found = executable["main"](*case.operands)
    with np.errstate(all="ignore"):
        expected = case.expected(*case.operands)
    if isinstance(found, np.ndarray) and found.shape == expected.shape:
        far = np.abs(found.astype(np.float64) - expected)
        if (far <= case.tolerance * (1 + np.abs(expected))).all():
            return ""
    return f"native code computes {title} wrongly"


def _program(case: Case) -> Any:
    params = [
        rx.Var(f"x{n}", rx.TensorStructInfo(x.shape, x.dtype.name))
        for n, x in enumerate(case.operands)
    ]
    builder = BlockBuilder()
    with builder.function("main", params):
        call = rx.Call(Op.get(f"relax.{case.operator}"), tuple(params), Attrs(dict(case.attrs)))
        builder.emit_func_output(builder.emit(call))
    return builder.get()


def main() -> None:
    """Print the first problem."""
    print(next(filter(None, map(problem_of, cases())), ""))


if __name__ == "__main__":
    main()
