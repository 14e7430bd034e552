"""Checks for tests: gradients against finite differences, comparisons, packed functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Category, ShapeTuple, Value, category_of
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.exec.api.vm import VirtualMachine

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


_OPAQUE = (Category.CLOSURE, Category.PACKED_FUNC, Category.PRIM_FUNC, Category.OBJECT)


@user_facing
def assert_allclose(
    actual: Value, desired: Value, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Assert that shapes are equal and elements differ by at most `atol + rtol * abs(desired)`.

    Tuples are compared field by field, numbers narrower than 32 bits in double precision. NaN is
    close to NaN only. Values that are not numbers must be equal.

    Errors:
        AssertionError: the values differ; `verbose` shows both.
    """
    __tracebackhide__ = True
    stack = [("the value", actual, desired)]
    while stack:
        where, a_value, b_value = stack.pop()
        if isinstance(a_value, tuple) and isinstance(b_value, tuple):
            if len(a_value) != len(b_value):
                raise AssertionError(
                    f"{where} has {len(a_value)} fields, {len(b_value)} were expected"
                )
            fields = zip(a_value, b_value, strict=True)
            stack += [(f"field {k} of {where}", *pair) for k, pair in enumerate(fields)][::-1]
            continue
        if _is_opaque(a_value) or _is_opaque(b_value):
            if a_value is not b_value and not np.array_equal(a_value, b_value):
                raise AssertionError(f"{where} is {a_value!r:.60}, {b_value!r:.60} was expected")
            continue
        a, b = _comparable(a_value), _comparable(b_value)
        if a.shape != b.shape:
            raise AssertionError(f"{where} has shape {a.shape}, {b.shape} was expected")
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=where, verbose=verbose)


def _is_opaque(value: Value) -> bool:
    numeric = isinstance(value, list) or hasattr(value, "__array__")
    return not numeric and category_of(value) in _OPAQUE


def _comparable(value: Value) -> Array:
    """The value as an array that NumPy can compare with tolerances: narrow numbers are widened."""
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.itemsize < 4 else array


EPSILONS = 32
"""The error that is allowed, in roundings to the narrowest datatype."""


def rounding(dtype: DataType) -> float:
    """The relative error of one rounding to a float; 0 for other datatypes."""
    if dtype.family in ("bool", "int", "uint"):
        return 0.0
    return float(ml_dtypes.finfo(dtype.numpy()).eps)  # type: ignore[no-untyped-call]


def difference(
    actual: Value,
    expected: Value,
    rtol: float,
    where: str = "the result",
    samples: Sequence[Value] = (),
) -> str:
    """The first difference of two values; empty if there is none.

    Floats may differ by `rtol` times the largest finite number of the expected tensor. Floats and
    integers may differ by the largest difference of a tensor of the first of `samples` and that of
    another, which are results of the same computation with other roundings. Values that are not
    tensors, numbers, shapes or tuples of these are not compared.
    """
    if isinstance(expected, tuple) and not isinstance(expected, ShapeTuple):
        if not isinstance(actual, tuple) or len(actual) != len(expected):
            return f"{where} is {actual!r:.60}, expected {len(expected)} fields"
        texts = (
            difference(a, b, rtol, f"field {k} of {where}", [sample[k] for sample in samples])
            for k, (a, b) in enumerate(zip(actual, expected, strict=True))
        )
        return next(filter(None, texts), "")
    if isinstance(expected, np.ndarray):
        if not isinstance(actual, np.ndarray):
            return f"{where} is {actual!r:.60}, expected a tensor"
        return _tensor_difference(actual, expected, rtol, where, samples)
    if isinstance(expected, float) and isinstance(actual, float):
        return _tensor_difference(np.array(actual), np.array(expected), rtol, where, samples)
    if isinstance(expected, (int, str, ShapeTuple)) and actual != expected:
        return f"{where} is {actual!r:.60}, expected {expected!r:.60}"
    return ""


def _tensor_difference(
    actual: Array, expected: Array, rtol: float, where: str, samples: Sequence[Value]
) -> str:
    for fact in ("dtype", "shape"):
        one, other = getattr(actual, fact), getattr(expected, fact)
        if one != other:
            return f"{where} has {fact} {one}, expected {other}"
    spread = _spread(samples, expected.shape)
    if expected.dtype.kind in "biu":
        wrong = actual != expected
        if spread:
            wrong &= abs(actual.astype(np.float64) - expected.astype(np.float64)) > spread
    else:
        a, b = (v.astype(np.float64) for v in (actual, expected))
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
            allowed = max(rtol * largest, spread)
            wrong = ~((np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b)))
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    place = tuple(int(axis[0]) for axis in np.nonzero(wrong)) if wrong.ndim else ()
    element = f"element {place} of {where}" if place else where
    others = f"; {count} of {wrong.size} elements differ" if wrong.size > 1 else ""
    return f"{element} is {actual[place]}, expected {expected[place]}{others}"


def _spread(samples: Sequence[Value], shape: tuple[int, ...]) -> float:
    """The largest finite difference of elements of the first tensor and of another one."""
    arrays = [np.asarray(sample, np.float64) for sample in samples]
    with np.errstate(all="ignore"):
        gaps = [np.abs(array - arrays[0]) for array in arrays[1:] if array.shape == shape]
    return max((float(np.max(g, initial=0.0, where=np.isfinite(g))) for g in gaps), default=0.0)


def check_saved_func(vm: VirtualMachine, func_name: str, *inputs: object) -> Any:
    """The result of a function, which is also saved with its arguments and called again.

    The saved function is called as `func_name`, followed by "_saved".

    Errors:
        AssertionError: the results differ.
    """
    saved_name = f"{func_name}_saved"
    vm.save_function(func_name, saved_name, *inputs)
    result = vm[func_name](*inputs)
    assert_allclose(vm[saved_name](), result)
    return result


@provided("test.vm.move")
def _move(value: Any) -> Any:
    return value


@provided("test.vm.add")
def _add(a: Array, b: Array) -> Array:
    return np.asarray(a + b)


@provided("test.vm.mul")
def _mul(a: Array, b: Array) -> Array:
    return np.asarray(a * b)


@provided("test.vm.equal_zero")
def _equal_zero(a: Array) -> Array:
    return np.asarray(not a.any())


@provided("test.vm.subtract_one")
def _subtract_one(a: Array) -> Array:
    return np.subtract(a, 1)


@provided("test.vm.identity")
def _identity(a: Array, output: Array) -> None:
    output[:] = a


@provided("test.vm.tile")
def _tile(a: Array, output: Array) -> None:
    output[:] = np.tile(a, (1, 2))


@provided("test.vm.add_scalar")
def _add_scalar(a: int, b: int) -> int:
    return a + b


@provided("test.vm.get_device_id")
def _get_device_id(device: Device) -> int:
    return device.index


@provided("test.vm.check_if_defined")
def _check_if_defined(value: object) -> bool:
    return value is not None
