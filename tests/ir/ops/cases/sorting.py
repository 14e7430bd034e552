"""Operators that order elements, and running sums and products."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import SPECIAL, Array, Case, case, floats, integers, same


def cases() -> Iterator[Case]:
    yield from _ordered()
    yield from _top()
    yield from _looked_up()
    yield from _running()


def _order(v: Array, axis: int, descending: bool) -> Array:
    """By Python's sort, line by line; NaN last, or first in descending order."""

    def line(values: Array) -> Array:
        def key(k: int) -> tuple[bool, float]:
            return (bool(np.isnan(values[k])), 0.0 if np.isnan(values[k]) else values[k])

        return np.array(sorted(range(len(values)), key=key, reverse=descending), "int64")

    lines = np.moveaxis(v, axis, -1)
    out = np.empty(lines.shape, "int64")
    for index in np.ndindex(*lines.shape[:-1]):
        found = line(lines[index])
        if descending:  # of equal elements, Python's reversed sort keeps the order
            found = np.array(sorted(found, key=lambda k, x=lines[index]: _rank(x, k)), "int64")
        out[index] = found
    return np.moveaxis(out, -1, axis)


def _rank(values: Array, k: int) -> int:
    """How many elements are greater than element k."""
    x = values[k]
    if np.isnan(x):
        return 0
    return int(np.isnan(values).sum() + (values > x).sum())


def _ordered() -> Iterator[Case]:
    x = floats(3, 4)
    tied = np.array([[2, 1, 2, 1, 0], [5, 5, 5, -1, 7]], "int32")
    for descending in (False, True):
        way = "descending" if descending else "ascending"
        for label, (y, axis) in {
            "rows": (x, -1),
            "columns": (x, 0),
            "ties": (tied, 1),
            "nan": (SPECIAL, 0),
            "half": (x.astype("float16"), 1),
            "empty": (x[:, :0], 1),
        }.items():
            yield Case(
                "relax.sort",
                f"{label} {way}",
                (y,),
                lambda v, a=axis, d=descending: op.sort(v, a, d),
                lambda v, a=axis, d=descending: np.take_along_axis(v, _order(v, a, d), a),
            )
            yield same("argsort", f"{label} {way}", (y,), _order, axis, descending)
    yield case("argsort", "dtype", (x,), lambda v: _order(v, -1, False), dtype="float32")
    holes = np.where(integers(5, 4, low=0, high=4) == 1, np.nan, floats(5, 4)).astype("float32")
    for n in (np.array(-9), np.array(2), np.array(9, "uint8"), np.array([[4, 0, 1, 3]])):
        yield Case(
            "relax.nth_index", f"{n.tolist()}", (holes, n), lambda v, n: op.nth_index(v, n, 0), _nth
        )


def _nth(v: Array, n: Array) -> Array:
    """The indices at positions along the first axis, which are clipped to its range."""
    places = np.broadcast_to(n.clip(0, len(v) - 1).astype("int64"), (1, *v.shape[1:]))
    return np.take_along_axis(_order(v, 0, False), places, 0)


def _top() -> Iterator[Case]:
    x = floats(3, 4)
    ties = integers(12, 5, low=0, high=3)
    holes = np.where(ties == 1, np.nan, ties).astype("float32")
    for label, v in (("ties", ties), ("NaN", holes)):
        for largest in (False, True):
            yield Case(
                "relax.topk",
                f"few {label} {largest}",
                (v,),
                lambda v, m=largest: op.topk(v, 3, 0, "indices", m),
                lambda v, m=largest: _order(v, 0, m)[:3],
            )
    for k, axis, largest in ((2, -1, True), (1, 0, False), (9, 1, True), (0, 1, False)):

        def places(v: Array, k: int = k, axis: int = axis, largest: bool = largest) -> Array:
            found = _order(v, axis, largest)
            return np.take(found, range(min(k or 99, v.shape[axis])), axis)

        def values(v: Array, axis: int = axis, places: Any = places) -> Array:
            return np.take_along_axis(v, places(v), axis)

        for kind in ("both", "values", "indices"):
            yield Case(
                "relax.topk",
                f"{kind} {k} {axis} {largest}",
                (x,),
                lambda v, k=k, a=axis, r=kind, m=largest: op.topk(v, k, a, r, m),
                {
                    "both": lambda v, f=values, p=places: (f(v), p(v)),
                    "values": values,
                    "indices": places,
                }[kind],
            )


def _looked_up() -> Iterator[Case]:
    x, boundaries = floats(3, 4), np.array([-1, 0, 0, 1.5], "float32")
    for right in (False, True):
        for out_int32 in (False, True):
            yield Case(
                "relax.bucketize",
                f"right {right} int32 {out_int32}",
                (np.concatenate([x, boundaries[None]]), boundaries),
                lambda v, b, r=right, o=out_int32: op.bucketize(v, b, o, r),
                lambda v, b, r=right: np.searchsorted(b, v, "right" if r else "left"),
                smooth=False,  # on the boundaries
            )
    repeated = integers(3, 4, low=0, high=4)
    yield case("unique", "ints", (repeated,), np.unique)
    yield case("unique", "scalar", (repeated[0, 0].reshape(()),), np.unique)
    yield Case(
        "relax.unique",
        "all",
        (repeated,),
        lambda v: op.unique(v, True, True, True, True),
        lambda v: (
            np.unique(v),
            np.array([list(v.ravel()).index(n) for n in np.unique(v)]),
            np.searchsorted(np.unique(v), v.ravel()),
            np.array([(v == n).sum() for n in np.unique(v)]),
        ),
    )
    yield case(
        "unique",
        "in the order of the elements",
        (repeated,),
        lambda v: np.array([*dict.fromkeys(v.ravel().tolist())], v.dtype),
        False,
    )
    yield same("unique", "rows", (repeated[[0, 1, 0]],), np.unique, return_counts=True, axis=0)
    sparse = np.array([[0, 1.5, 0], [-2, 0, np.nan]], "float32")
    for label, y in {
        "matrix": sparse,
        "bool": sparse > 0,
        "scalar": sparse[0, 1].reshape(()),
    }.items():
        yield case("nonzero", label, (y,), lambda v: np.argwhere(np.atleast_1d(v) != 0).T)
    prob = np.array([[0.2, 0.3, 0.5], [0.9, 0.1, 0.0]], "float32")
    sample = np.array([[0.1], [0.4], [0.99], [0.95], [0.0]], "float32")
    rows = np.array([[0], [0], [0], [1], [1]], "int64")

    def sampled(p: Array, u: Array, i: Array) -> Array:
        found = [
            next(k for k in range(3) if p[r, : k + 1].sum() > s)
            for s, r in zip(u[:, 0], i[:, 0], strict=True)
        ]
        return np.array(found)[:, None]

    yield case("multinomial_from_uniform", "rows", (prob, sample, rows), sampled)


def _exclusive(function: Any, start: int) -> Any:
    def shifted(v: Array, axis: int) -> Array:
        found = np.roll(function(v, axis), 1, axis)
        np.moveaxis(found, axis, 0)[:1] = start
        return found

    return shifted


def _running() -> Iterator[Case]:
    x = floats(3, 4)
    zeros = x.copy()
    zeros[0, 1] = zeros[2, 0] = zeros[2, 3] = 0
    for name, function, start in (("cumsum", np.cumsum, 0), ("cumprod", np.cumprod, 1)):
        make, shifted = getattr(op, name), _exclusive(function, start)
        for axis in (None, 0, -1):
            yield Case(
                f"relax.{name}",
                f"axis {axis}",
                (x,),
                lambda v, a=axis, m=make: m(v, a),
                lambda v, a=axis, f=function: f(v, a),
            )
        for label, y in {"zeros": zeros, "empty": x[:, :0], "ints": integers(2, 5)}.items():
            yield Case(
                f"relax.{name}",
                label,
                (y,),
                lambda v, m=make: m(v, 1),
                lambda v, f=function: f(v, axis=1),
            )
            yield Case(
                f"relax.{name}",
                f"{label} exclusive",
                (y,),
                lambda v, m=make: m(v, 1, exclusive=True),
                lambda v, f=shifted: f(v, 1),
            )
        yield Case(
            f"relax.{name}", "half", (np.full(64, 1.01, "float16"),), make, function, smooth=False
        )
        yield Case(
            f"relax.{name}",
            "bool",
            (x > 0,),
            lambda v, m=make: m(v, 0, "int64"),
            lambda v, f=function: f(v, 0),
        )
        yield Case(f"relax.{name}", "scalar", (x[0, 0].reshape(()),), make, function)
    for exclusive in (False, True):

        def slopes(g: Array, v: Array, e: bool = exclusive) -> Array:
            out = np.zeros(v.shape)
            for k in range(v.shape[1]):
                for j in range(k + e, v.shape[1]):
                    others = [i for i in range(j + 1 - e) if i != k]
                    out[:, k] += g[:, j] * v[:, others].prod(1)
            return out

        yield Case(
            "relax.grad.cumprod_backward",
            f"exclusive {exclusive}",
            (floats(3, 4, seed=1), zeros),
            lambda g, v, e=exclusive: op.grad.cumprod_backward(g, v, 1, e),
            slopes,
            only=("values",),
        )
    yield from _recurrences()


def _recurrences() -> Iterator[Case]:
    factors, terms = floats(3, 4), floats(3, 4, seed=1)
    for transposed, exclusive in itertools.product((False, True), repeat=2):

        def solution(a: Array, b: Array, t: bool = transposed, e: bool = exclusive) -> Array:
            """One column after the other, y[k] = b[k] + a[k] * y[k - 1] or its transpose."""
            y = np.zeros(b.shape, np.result_type(b, np.float64))
            columns = list(range(b.shape[1]))[:: -1 if t else 1]
            for k, before in zip(columns, [None, *columns], strict=False):
                term = b[:, k]
                if t and e:
                    term = np.zeros_like(term) if before is None else b[:, before]
                y[:, k] = term
                if before is not None:
                    y[:, k] += a[:, before if t else k] * y[:, before]
            if e and not t:
                y = np.concatenate([np.zeros_like(y[:, :1]), y[:, :-1]], 1)
            return y

        yield case(
            "grad.linear_recurrence",
            f"transposed {transposed} exclusive {exclusive}",
            (factors, terms),
            solution,
            1,
            transposed=transposed,
            exclusive=exclusive,
            only=("values",),  # what is not read may be multiplied by 0
        )
    yield case(
        "grad.linear_recurrence",
        "first axis of halves",
        (floats(5, 2, dtype="float16"), floats(5, 2, dtype="float16", seed=3)),
        lambda a, b: solution(a.T, b.T, t=False, e=False).T,
        -2,
        only=("values",),
    )
