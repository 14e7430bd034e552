"""Checks for tests: gradients against finite differences, and properties of scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.exec.runtime.values import Array
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.substitution import substitute

Values = Mapping[str, Array] | Sequence[Array]


def assert_structural_equal_ignore_global_symbol(
    func1: PrimFunc, func2: PrimFunc, *args: Any, **kwargs: Any
) -> None:
    """Assert that kernels are structurally equal, ignoring their global symbols.

    Errors:
        StructuralMismatch (also AssertionError, ValueError): they differ otherwise.
    """
    first, second = (func.with_attr("global_symbol", "main") for func in (func1, func2))
    assert_structural_equal(first, second, *args, **kwargs)


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Values,
    grad_values: Values,
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Assert that gradients of a scalar function agree with finite differences.

    The inputs are positional arguments, or keyword arguments if they are in a table. `delta` is the
    distance of the points. `function_value` is not needed, and exists for tests of TVM.

    Rule:
        Central differences d(h) = (f(x + h) - f(x - h)) / 2h, extrapolated as (4 d(h/2) - d(h)) / 3
        where they disagree with the gradient. For n elements the distance of both is at most
        atol * sqrt(n) + rtol * norm.

    Errors:
        AssertionError: a gradient has another shape, or differs.
        MisuseError (also TypeError, ValueError): there is no input for a gradient, an input is not
            of floats, the function returns no number, or a difference is not finite.
    """
    __tracebackhide__ = True
    inputs, grads = _table(input_values), _table(grad_values)

    def value(name: str, index: int, step: float) -> float:
        changed = inputs[name].copy()
        changed.reshape(-1)[index] += step
        arguments = {**inputs, name: changed}
        by_name = isinstance(input_values, Mapping)
        result = function(**arguments) if by_name else function(*arguments.values())
        if np.size(result) != 1:
            raise MisuseError(
                f"the function returns a number, found an array of shape {np.shape(result)}"
            )
        return float(np.reshape(result, ()))

    def difference(name: str, index: int, step: float) -> float:
        return (value(name, index, step) - value(name, index, -step)) / (2 * step)

    for name, grad in grads.items():
        if name not in inputs or not np.issubdtype(inputs[name].dtype, np.floating):
            problem = inputs[name].dtype if name in inputs else "no such input"
            raise MisuseError(f"gradient {name} is that by an input of floats, found {problem}")
        if grad.shape != inputs[name].shape:
            raise AssertionError(
                f"the gradient by {name} has shape {grad.shape}, expected {inputs[name].shape}"
            )
        numerical = np.zeros(grad.size)
        for index, expected in enumerate(grad.reshape(-1).astype(np.float64)):
            found = difference(name, index, delta)
            if abs(found - expected) > atol + rtol * abs(found):
                found = (4 * difference(name, index, delta / 2) - found) / 3
            numerical[index] = found
        _compare(name, grad, numerical.reshape(grad.shape), atol, rtol)


def _table(values: Values) -> dict[str, Array]:
    if isinstance(values, Mapping):
        return {name: np.array(value) for name, value in values.items()}
    if not isinstance(values, (list, tuple)):
        raise MisuseError(f"expected a list or a table of arrays, found {values!r:.60}")
    return {str(i): np.array(value) for i, value in enumerate(values)}


def _compare(name: str, grad: Array, numerical: Array, atol: float, rtol: float) -> None:
    distance = float(np.linalg.norm(numerical - grad))
    limit = atol * np.sqrt(grad.size) + rtol * float(np.linalg.norm(numerical))
    if not np.isfinite(distance) or not np.isfinite(limit):
        raise MisuseError(f"the function or its gradient by {name} is not finite at this point")
    if distance > limit:
        raise AssertionError(
            f"the gradient by {name} differs from differences by {distance:.3g}, "
            f"the limit is {limit:.3g}\ngradient: {grad}\ndifferences: {numerical}"
        )


def assert_prim_expr_equal(lhs: tir.PrimExpr, rhs: tir.PrimExpr) -> None:
    """Assert that two scalar expressions are provably equal.

    Errors:
        AssertionError: this is not proved.
    """
    __tracebackhide__ = True
    if prove_equal(lhs, rhs) is not True:
        raise AssertionError(f"{lhs} and {rhs} are not provably equal")


def check_bool_expr_is_true(
    bool_expr: tir.PrimExpr, vranges: Mapping[tir.Var, Range], cond: tir.PrimExpr | None = None
) -> None:
    """Assert that a condition holds for all values of variables in ranges, where `cond` holds.

    Errors:
        AssertionError: it does not; the message has the values.
        MisuseError (also TypeError, ValueError): a range is symbolic, or there is no table.
    """
    __tracebackhide__ = True
    if not isinstance(vranges, Mapping) or not all(isinstance(r, Range) for r in vranges.values()):
        raise unexpected(vranges, "expected a table from variables to ranges")
    if not all(isinstance(simplify(r.extent), tir.IntImm) for r in vranges.values()):
        raise MisuseError("the values of a symbolic range cannot be enumerated", about=vranges)
    extents = [range(int(simplify(r.extent).value)) for r in vranges.values()]  # type: ignore[attr-defined]
    for offsets in product(*extents):
        pairs = zip(vranges.items(), offsets, strict=True)
        point = {var: simplify(r.min + ops.const(i, var.dtype)) for (var, r), i in pairs}
        if cond is not None and not _holds(cond, point):
            continue
        if not _holds(bool_expr, point):
            values = ", ".join(f"{var} = {value}" for var, value in point.items())
            raise AssertionError(f"{bool_expr} is false for {values}")


def _holds(condition: tir.PrimExpr, point: Mapping[tir.Var, tir.PrimExpr]) -> bool:
    result = simplify(substitute(condition, point))
    return isinstance(result, tir.IntImm) and result.value != 0
