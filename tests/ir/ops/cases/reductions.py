"""Reductions and searches along axes."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.ir.ops.reduction import REDUCTIONS
from relaxpy.ir.relax import nodes as rx
from tests.ir.ops.cases.case import SPECIAL, Array, Case, case, floats, integers, same


def _mean(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    """An integer if `x` has integers, rounded towards 0."""
    mean = np.mean(x, axis=axis, keepdims=keepdims)
    if x.dtype.kind not in "iu":
        return mean
    if not np.isfinite(mean).all() or np.sum(np.abs(x.astype("float64"))) > 2**60:
        raise ArithmeticError(
            "integers have no mean if there are none, or if their sum is too large"
        )
    total = np.sum(x.astype("int64"), axis=axis, keepdims=keepdims)
    count = x.size // max(total.size, 1)
    return np.sign(total) * (np.abs(total) // count)


def _variance(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    x = x.astype("int64") if x.dtype.kind in "iu" else x
    return _mean((x - _mean(x, axis=axis, keepdims=True)) ** 2, axis=axis, keepdims=keepdims)


def _deviation(x: Array, **attrs: Any) -> Any:
    deviation = np.sqrt(_variance(x, **attrs))
    return np.trunc(deviation).astype("int64") if x.dtype.kind in "iu" else deviation


def cases() -> Iterator[Case]:
    table: dict[str, Callable[..., Any]] = {
        **{n: getattr(np, n) for n in ("sum", "max", "min", "prod")},
        "mean": _mean,
        "std": _deviation,
        "variance": _variance,
    }
    x = floats(2, 3, 4)
    for name, function in table.items():
        make = REDUCTIONS[name]
        for axis in (None, 0, (1,), (-1, 0), (0, 1, 2)):
            for keep in (False, True):

                def call(v: rx.Expr, axis: Any = axis, keep: bool = keep, make: Any = make) -> Any:
                    return make(v, axis, keep)

                def expected(
                    v: Array, axis: Any = axis, keep: bool = keep, function: Any = function
                ) -> Any:
                    return function(v, axis=axis, keepdims=keep)

                label = f"axis {axis}{' kept' if keep else ''}"
                yield Case(f"relax.{name}", label, (x,), call, expected)
        for label, special in (("nan", SPECIAL), ("-inf", np.full((2,), -np.inf, "float32"))):
            if label == "nan" or name in ("sum", "max", "min", "prod"):
                # The square of an infinity as an integer is out of range.
                only = ("dtype",) if name in ("std", "variance") else ()
                yield Case(f"relax.{name}", label, (special,), make, function, only=only)
        yield Case(f"relax.{name}", "int", (integers(2, 3),), make, function)
        if name in ("sum", "prod"):

            def inner(v: rx.Expr, make: Any = make) -> Any:
                return make(v, 1)

            def inner_value(v: Array, function: Any = function) -> Any:
                return function(v, axis=1)

            yield Case(f"relax.{name}", "empty axis", (x[:, :0],), inner, inner_value)
        lone = (x[0, 0, 0].reshape(()),)
        yield Case(f"relax.{name}", "scalar", lone, make, function, smooth=name != "std")
    for name, function in (("any", np.any), ("all", np.all)):
        truths = np.array([[True, False], [True, True]])
        relax_name = "sum" if name == "any" else "prod"

        def rowwise(v: rx.Expr, relax_name: str = relax_name) -> rx.Expr:
            return REDUCTIONS[relax_name](v, 1)

        def truth(v: Array, function: Any = function) -> Any:
            return function(v, axis=1)

        yield Case(f"relax.{relax_name}", "bool", (truths,), rowwise, truth, only=("dtype",))
    for name in ("argmax", "argmin"):
        make, function = getattr(op, name), getattr(np, name)
        tied = np.array([[1, 3, 3], [2, 0, 0]], "float32")
        for label, axis in (("all", None), ("rows", 1), ("columns", -2)):
            yield Case(
                f"relax.{name}",
                label,
                (tied,),
                lambda v, axis=axis, make=make: make(v, axis),
                lambda v, axis=axis, function=function: function(v, axis=axis),
            )
        yield Case(f"relax.{name}", "nan", (SPECIAL[3:5].repeat(2),), make, function)
        yield Case(f"relax.{name}", "first nan", (SPECIAL[::-1].copy(),), make, function)
        lowest = np.full((3,), -np.inf if name == "argmax" else np.inf, "float32")
        yield Case(f"relax.{name}", "infinities", (lowest,), make, function)
        least = np.full((3,), -(2**31) if name == "argmax" else 2**31 - 1, "int32")
        yield Case(f"relax.{name}", "int", (least,), make, function)
        yield Case(
            f"relax.{name}",
            "of nothing",
            (tied[:, :0],),
            lambda v, make=make: make(v, 1),
            lambda v: np.full(len(v), -1),
        )
        kept: Any = lambda v, make=make: make(v, 1, True)  # noqa: E731
        yield Case(
            f"relax.{name}",
            "kept",
            (tied,),
            kept,
            lambda v, function=function: function(v, axis=1, keepdims=True),
        )
    yield from _medians()
    yield from _collapsed()


def _median(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    """The lower median, and along one axis its first index in a stable order."""
    axes = range(x.ndim) if axis is None else [k % x.ndim for k in np.atleast_1d(axis)]
    rest = [k for k in range(x.ndim) if k not in axes]
    kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    shape = kept if keepdims else tuple(x.shape[k] for k in rest)
    values, indices = [], []
    for index in np.ndindex(*(x.shape[k] for k in rest)):
        row = np.transpose(x, [*rest, *axes])[index].ravel().tolist()
        ranked = sorted(range(len(row)), key=lambda k: row[k])
        nans = [k for k, value in enumerate(row) if value != value]
        indices.append(nans[0] if nans else ranked[(len(row) - 1) // 2])
        values.append(row[indices[-1]])
    value = np.array(values).reshape(shape)
    alone = axis is None or len(np.atleast_1d(axis)) > 1
    return value if alone else (value, np.array(indices, "int64").reshape(shape))


def _medians() -> Iterator[Case]:
    x, tied = floats(2, 3, 4), np.array([[1, 3, 3, 1], [2, 0, 0, 0]], "float32")
    for axis in (None, 0, (1,), (-1, 0), (0, 1, 2)):
        for keep in (False, True):
            yield same(
                "median", f"axis {axis}{(' kept' if keep else '')}", (x,), _median, axis, keep
            )
    for label, values in {
        "nan": SPECIAL,
        "int": integers(7),
        "tied": tied,
        "bool": tied > 1,
        "scalar": tied[0, 0].reshape(()),
    }.items():
        axis = 1 if label == "tied" else None if label == "scalar" else 0
        yield same("median", label, (values,), _median, axis, smooth=label != "tied")


def _collapsed() -> Iterator[Case]:
    x = floats(2, 3, 4)
    table: tuple[tuple[tuple[int, ...], Callable[[Array], Array]], ...] = (
        ((4,), lambda v: v.sum((0, 1))),
        ((3, 1), lambda v: v.sum(0).sum(-1, keepdims=True)),
        ((2, 1, 4), lambda v: v.sum(1, keepdims=True)),
        ((2, 3, 4), lambda v: v),
        ((), np.sum),
    )
    for shape, function in table:
        yield case("collapse_sum_to", str(shape), (x,), function, shape, needs=("numbers",))
        yield case(
            "collapse_sum_like",
            str(shape),
            (x, np.zeros(shape, "float32")),
            lambda v, target, f=function: f(v),
            only=("shape",),
        )
