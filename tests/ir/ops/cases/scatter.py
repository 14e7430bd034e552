"""Operators that gather elements at indices, or store elements there."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import Array, Case, case, floats, integers, same

UFUNCS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": np.maximum,
    "min": np.minimum,
}


def cases() -> Iterator[Case]:
    yield from _gathered()
    yield from _advanced()
    yield from _scattered()
    yield from _positions()
    yield from _slices()
    yield from _taken()


def _gathered() -> Iterator[Case]:
    x = floats(3, 4)
    rows = np.array([[2, 0, 1, 1], [0, 0, 2, 1]], "int64")
    columns = np.array([[3], [0], [3]], "int32")
    for axis, indices in ((0, rows), (-1, columns), (1, columns.astype("uint8"))):
        yield case(
            "gather_elements",
            f"axis {axis} {indices.dtype}",
            (x, indices),
            lambda v, i, a=axis: np.take_along_axis(
                v[:, : i.shape[1]] if a == 0 else v, i.astype("int64"), a
            ),
            axis,
        )
    yield case("gather_elements", "empty", (x, rows[:0]), lambda v, i: np.zeros(i.shape))
    yield case(
        "gather_nd",
        "elements",
        (x, np.array([[0, 1], [2, 3], [2, 3]], "int64")),
        lambda v, i: v[i[:, 0], i[:, 1]],
        needs=("numbers",),
    )
    yield case("gather_nd", "rows", (x, np.array([[[2], [0]]], "int32")), lambda v, i: v[i[..., 0]])
    cube = floats(2, 3, 2)
    yield case(
        "gather_nd",
        "batch",
        (cube, np.array([[[2], [0]], [[1], [1]]], "int64")),
        lambda v, i: np.stack([v[b][i[b, :, 0]] for b in range(len(v))]),
        batch_dims=1,
    )
    yield case(
        "gather_nd",
        "one position",
        (x, np.array([2, 3], "int64")),
        lambda v, i: v[tuple(i)],
        needs=("numbers",),
    )


def _advanced() -> Iterator[Case]:
    x = floats(3, 4)
    first, second = np.array([[0], [-1]], "int64"), np.array([1, 3, 1], "int32")
    yield Case(
        "relax.index_tensor",
        "rows",
        (x, first),
        lambda v, *i: op.index_tensor(v, i),
        lambda v, i: v[i],
    )
    yield Case(
        "relax.index_tensor",
        "broadcast",
        (x, first, second),
        lambda v, *i: op.index_tensor(v, i),
        lambda v, i, j: v[i, j],
    )
    yield Case(
        "relax.index_tensor",
        "nothing",
        (x, second[:0]),
        lambda v, *i: op.index_tensor(v, i),
        lambda v, i: v[i],
    )
    rows, columns = np.array([0, 2, 0], "int64"), np.array([1, -1, 3], "int64")
    for accumulate in (False, True):

        def expected(v: Array, i: Array, j: Array, w: Array, add: bool = accumulate) -> Array:
            out = v.copy()
            for k in range(len(i)):
                new = w if w.ndim == 0 else w[k]
                out[i[k], j[k]] = out[i[k], j[k]] + new if add else new
            return out

        for label, values in (("", floats(3, seed=1)), (" a scalar", floats(1)[0].reshape(()))):
            yield Case(
                "relax.index_put",
                f"{'add' if accumulate else 'store'}{label}",
                (x, rows, columns, values),
                lambda v, i, j, w, add=accumulate: op.index_put(v, (i, j), w, accumulate=add),
                expected,
            )
    twice = np.array([1, 1, -2], "int32")
    for accumulate in (False, True):
        for label, values in (("rows", floats(3, 4, seed=3)), ("a row", floats(4, seed=3))):
            yield Case(
                "relax.index_put",
                f"{'added' if accumulate else 'stored'} twice {label}",
                (x, twice, values),
                lambda v, i, w, add=accumulate: op.index_put(v, (i,), w, accumulate=add),
                lambda v, i, w, add=accumulate: _put_rows(v, i, w, add=add),
                only=("shape",),
            )


def _put_rows(data: Array, indices: Array, updates: Array, *, add: bool) -> Array:
    out = data.copy()
    for index, row in zip(indices, np.broadcast_to(updates, (3, 4)), strict=True):
        out[index] = out[index] + row if add else row
    return out


def _scatter(data: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    out = data.copy()
    count = np.ones(data.shape)
    for index in np.ndindex(*updates.shape):
        place = list(index)
        place[axis] = indices[index]
        key = tuple(place)
        count[key] += 1
        name = "add" if reduction == "mean" else reduction
        out[key] = UFUNCS[name](out[key], updates[index])
    return _mean(out, count) if reduction == "mean" else out


def _mean(total: Array, count: Array) -> Array:
    if total.dtype == bool:
        raise TypeError("Booleans have no mean")
    return total / count if total.dtype.kind == "f" else total // count


def _scattered() -> Iterator[Case]:
    x, updates = floats(4, 3), floats(3, 3, seed=1)
    unique = np.array([[0, 1, -1], [2, 3, 1], [1, 0, 2]], "int64")
    repeated = np.array([[0, 1, 2], [0, 1, 2], [-4, 0, 2]], "int32")
    across = np.array([[2, 0], [1, 1]], "int64")
    for reduction in (*UFUNCS, "mean"):
        for label, indices in (("unique", unique), ("repeated", repeated)):
            yield case(
                "scatter_elements",
                f"{reduction} {label}",
                (x, indices, updates),
                lambda v, i, u, r=reduction: _scatter(v, i, u, 0, r),
                reduction=reduction,
            )
    yield Case(
        "relax.scatter_elements",
        "last axis",
        (x, across, updates[:2, :2]),
        lambda v, i, u: op.scatter_elements(v, i, u, axis=-1, reduction="add"),
        lambda v, i, u: _scatter(v, i, u, -1, "add"),
    )
    truths, marks = np.eye(4, 3) > 0, np.ones((3, 3), "bool")
    yield case(
        "scatter_elements",
        "Booleans",
        (truths, repeated, marks),
        lambda v, i, u: _scatter(v, i, u, 0, "add"),
        reduction="add",
    )
    yield Case(
        "relax.index_put",
        "Booleans",
        (truths, np.array([0, 0, 3], "int64"), marks),
        lambda v, i, u: op.index_put(v, (i,), u, accumulate=True),
        lambda v, i, u: v | np.isin(np.arange(len(v)), i)[:, None],
        only=("dtype", "shape"),
    )
    for reduction in ("add", "mean", "max"):
        yield case(
            "scatter_elements",
            f"ints {reduction}",
            (integers(4, 3), repeated, integers(3, 3, low=0)),
            lambda v, i, u, r=reduction: _scatter(v, i, u, 0, r),
            reduction=reduction,
        )
    yield case("scatter_elements", "nothing", (x, unique[:0], updates[:0]), lambda v, i, u: v)


def _scatter_nd(data: Array, indices: Array, updates: Array, reduction: str) -> Array:
    out, count = data.copy(), np.ones(data.shape)
    function = UFUNCS["add" if reduction == "mean" else reduction]
    for index in np.ndindex(*indices.shape[:-1]):
        key = tuple(indices[index])
        count[key] += 1
        if out[key].ndim:
            pairs = zip(out[key].ravel(), updates[index].ravel(), strict=True)
            out[key] = np.array([function(a, b) for a, b in pairs]).reshape(out[key].shape)
        else:
            out[key] = function(out[key], updates[index])
    return _mean(out, count) if reduction == "mean" else out


def _positions() -> Iterator[Case]:
    x = floats(3, 4)
    elements = np.array([[0, 1], [2, -1], [1, 0]], "int64")
    rows = np.array([[[2], [0]]], "int64")
    for reduction in (*UFUNCS, "mean"):
        for label, indices, shape in (("elements", elements, (3,)), ("rows", rows, (1, 2, 4))):
            yield same(
                "scatter_nd",
                f"{reduction} {label}",
                (x, indices, floats(*shape, seed=2)),
                _scatter_nd,
                reduction,
                needs=("numbers",) if label == "elements" else (),
            )
    twice = np.array([[1], [-2]], "int64")
    for reduction in (*UFUNCS, "mean"):
        yield same(
            "scatter_nd",
            f"{reduction} twice",
            (x, twice, floats(2, 4, seed=2)),
            _scatter_nd,
            reduction,
        )


def _slices() -> Iterator[Case]:
    x = floats(3, 6)
    for label, (start, end, step, axis) in {
        "rows": (0, 2, 1, 0),
        "columns": (1, 6, 2, 1),
        "last": (2, 4, 1, -1),
        "none": (3, 3, 1, 1),
    }.items():
        shape = list(x.shape)
        shape[axis] = len(range(start, end, step))

        def expected(
            v: Array, u: Array, where: tuple[int, slice] = (axis, slice(start, end, step))
        ) -> Array:
            out = v.copy()
            np.moveaxis(out, where[0], 0)[where[1]] = np.moveaxis(u, where[0], 0)
            return out

        yield Case(
            "relax.slice_scatter",
            label,
            (x, floats(*shape, seed=4)),
            lambda v, u, b=(start, end, step), a=axis: op.slice_scatter(v, u, *b, axis=a),
            expected,
        )


def _taken() -> Iterator[Case]:
    x = floats(3, 4)
    indices = np.array([[2, 0], [2, 2]], "int64")
    for axis, shape in ((0, (2, 2, 4)), (1, (3, 2, 2)), (-2, (2, 2, 4))):

        def expected(g: Array, v: Array, i: Array, a: int = axis) -> Array:
            out = np.zeros(np.shape(v))
            places: list[Any] = [slice(None)] * v.ndim
            places[a] = i
            np.add.at(out, tuple(places), g)
            return out

        yield case(
            "grad.take_backward",
            f"axis {axis}",
            (floats(*shape, seed=3), x, indices),
            expected,
            axis=axis,
            only=("shape",),
        )
    yield case(
        "grad.take_backward",
        "no axis",
        (floats(2, 2, seed=3), x[0], indices),
        lambda g, v, i: np.bincount(i.ravel(), g.ravel(), minlength=4),
        only=("shape",),
    )
