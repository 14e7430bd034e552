"""L D L^T of symmetric matrices that need not be definite, as LAPACK's sytrf and sytrs have it."""

from __future__ import annotations

from typing import Any

from relaxpy.frontend.shared.loops import Loops, Number, kernel
from relaxpy.frontend.shared.tensors import dtype_of, product, reshaped, shape_of
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.ops.factors import joint, matrices, size_of
from relaxpy.frontend.torch.registry import converter
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select

#: A pivot of this part of the largest element bounds the growth of the others best.
_PART = (1 + 17**0.5) / 8


def _exchange(k: Loops, buffer: Any, first: Any, second: Any) -> None:
    kept = k.local(buffer[first])
    k.store(buffer, first, buffer[second])
    k.store(buffer, second, kept[0])


def _largest(k: Loops, best: Any, value: Number, at: Any, place: Number) -> None:
    """Keep the first largest absolute value, and where it is."""
    with k.when(size_of(value) > best[0]):
        k.store(best, 0, size_of(value))
        k.store(at, 0, place)


def _factor(k: Loops, a: Any, pivots: Any, info: Any, b: Number) -> None:
    """Factor the lower triangle in place (Bunch and Kaufman, Math. Comp. 31, 1977)."""
    n, dtype = a.shape[1], str(a.dtype)
    p = k.local(ops.const(0, "int64"))
    with k.repeat(p[0] < n):
        j = k.local(p[0])[0]
        own = k.local(size_of(a[b, j, j]))[0]
        column, row = (k.local(ops.const(0.0, dtype)) for _ in range(2))
        far, unused = k.local(j), k.local(j)
        width, chosen = k.local(ops.const(1, "int64")), k.local(j)
        with k.loop(n - j - 1, start=j + 1) as i:
            _largest(k, column, a[b, i, j], far, i)
        with k.when((own == 0.0) & (column[0] == 0.0)):
            k.store(
                info,
                b,
                Select(info[b] == ops.const(0, "int32"), ops.cast_to(j + 1, info.dtype), info[b]),
            )
        with k.otherwise():
            with k.when(own < _PART * column[0]):
                with k.loop(far[0] - j, start=j) as i:
                    _largest(k, row, a[b, far[0], i], unused, i)
                with k.loop(n - far[0] - 1, start=far[0] + 1) as i:
                    _largest(k, row, a[b, i, far[0]], unused, i)
                with k.when(own < _PART * column[0] * (column[0] / row[0])):
                    k.store(chosen, 0, far[0])
                    with k.when(size_of(a[b, far[0], far[0]]) < _PART * row[0]):
                        k.store(width, 0, 2)
            _move(k, a, b, j, chosen[0], width[0])
            with k.when(width[0] == 1):
                _eliminate(k, a, b, j)
            with k.otherwise():
                _eliminate_two(k, a, b, j)
        with k.when(width[0] == 1):
            k.store(pivots, (b, j), chosen[0] + 1)
        with k.otherwise():
            k.store(pivots, (b, j), -(chosen[0] + 1))
            k.store(pivots, (b, j + 1), -(chosen[0] + 1))
        k.store(p, 0, j + width[0])


def _move(k: Loops, a: Any, b: Number, j: Number, chosen: Number, width: Number) -> None:
    """Exchange the row and column that are chosen with the first, or second, of the pivot."""
    n, at = a.shape[1], k.local(j + width - 1)[0]
    with k.when(chosen != at):
        with k.loop(n - chosen - 1, start=chosen + 1) as i:
            _exchange(k, a, (b, i, at), (b, i, chosen))
        with k.loop(chosen - at - 1, start=at + 1) as i:
            _exchange(k, a, (b, i, at), (b, chosen, i))
        _exchange(k, a, (b, at, at), (b, chosen, chosen))
        with k.when(width == 2):
            _exchange(k, a, (b, j + 1, j), (b, chosen, j))


def _eliminate(k: Loops, a: Any, b: Number, j: Number) -> None:
    rest = a.shape[1] - j - 1
    inverse = k.local(1.0 / a[b, j, j])[0]
    with k.loop(rest, start=j + 1) as c:
        factor = k.local(inverse * a[b, c, j])[0]
        with k.loop(a.shape[1] - c, start=c) as i:
            k.store(a, (b, i, c), a[b, i, c] - factor * a[b, i, j])
    with k.loop(rest, start=j + 1) as i:
        k.store(a, (b, i, j), a[b, i, j] * inverse)


def _eliminate_two(k: Loops, a: Any, b: Number, j: Number) -> None:
    n = a.shape[1]
    with k.loop(n - j - 2, start=j + 2) as c:
        pair = _two(k, a, b, j, (a[b, c, j], a[b, c, j + 1]))
        with k.loop(n - c, start=c) as i:
            change = a[b, i, j] * pair[0] + a[b, i, j + 1] * pair[1]
            k.store(a, (b, i, c), a[b, i, c] - change)
        k.store(a, (b, c, j), pair[0])
        k.store(a, (b, c, j + 1), pair[1])


def _two(k: Loops, a: Any, b: Number, j: Number, given: tuple[Number, Number]) -> list[Number]:
    """What the pivot of two rows from `j` on takes to the given pair."""
    side = k.local(a[b, j + 1, j])[0]
    last, first = k.local(a[b, j + 1, j + 1] / side)[0], k.local(a[b, j, j] / side)[0]
    scale = k.local(1.0 / (first * last - 1.0) / side)[0]
    x, y = given
    return [k.local(value)[0] for value in (scale * (last * x - y), scale * (first * y - x))]


@converter("linalg_ldl_factor_ex")
def ldl_factor(
    cx: Context, x: Expr, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Expr, Expr, Expr]:
    *batch, n, _ = shape_of(x)
    a = matrices(cx, x)
    total = product(batch)

    def write(k: Loops, a: Any, out: Any, pivots: Any, info: Any) -> None:
        with k.loop(a.shape[0]) as b:
            k.store(info, b, 0)
            with k.loop(a.shape[1]) as i, k.loop(a.shape[1]) as j:
                k.store(out, (b, i, j), Select(j <= i, a[b, i, j], ops.const(0.0, out.dtype)))
            _factor(k, out, pivots, info, b)

    outputs = [(shape_of(a), dtype_of(x)), ([total, n], "int32"), ([total], "int32")]
    factors, pivots, info = kernel(cx, "ldl_factor", outputs, [a], write)
    return reshaped(factors, shape_of(x)), reshaped(pivots, [*batch, n]), reshaped(info, batch)


@converter("linalg_ldl_factor")
def ldl_factor_only(cx: Context, x: Expr, *, hermitian: bool = False) -> tuple[Expr, Expr]:
    return ldl_factor(cx, x)[:2]


@converter("linalg_ldl_solve")
def ldl_solve(
    cx: Context, factors: Expr, pivots: Expr, x: Expr, *, hermitian: bool = False
) -> Expr:
    *outer, n, columns = shape_of(x)
    batch = joint(shape_of(factors)[:-2], outer)
    given, a = matrices(cx, x, batch), matrices(cx, factors, batch)
    total = product(batch)
    at = cx.emit(reshaped(R.broadcast_to(pivots, (*batch, n)), [total, n]))

    def write(k: Loops, a: Any, pivots: Any, given: Any, out: Any) -> None:
        n = a.shape[1]
        with k.loop(given.shape[0]) as b, k.loop(given.shape[2]) as c:
            with k.loop(n) as i:
                k.store(out, (b, i, c), given[b, i, c])
            p = k.local(ops.const(0, "int64"))
            with k.repeat(p[0] < n):
                j = k.local(p[0])[0]
                width = k.local(Select(pivots[b, j] > 0, 1, 2), "int64")[0]
                other = k.local(size_of(pivots[b, j]), "int64")[0]
                _exchange(k, out, (b, j + width - 1, c), (b, other - 1, c))
                with k.loop(n - j - width, start=j + width) as i:
                    change = k.local(a[b, i, j] * out[b, j, c])
                    with k.when(width == 2):
                        k.store(change, 0, change[0] + a[b, i, j + 1] * out[b, j + 1, c])
                    k.store(out, (b, i, c), out[b, i, c] - change[0])
                with k.when(width == 1):
                    k.store(out, (b, j, c), out[b, j, c] / a[b, j, j])
                with k.otherwise():
                    pair = _two(k, a, b, j, (out[b, j, c], out[b, j + 1, c]))
                    k.store(out, (b, j, c), pair[0])
                    k.store(out, (b, j + 1, c), pair[1])
                k.store(p, 0, j + width)
            with k.repeat(p[0] > 0):
                last = k.local(p[0] - 1)[0]
                width = k.local(Select(pivots[b, last] > 0, 1, 2), "int64")[0]
                j = k.local(last + 1 - width)[0]
                with k.loop(width, start=j) as row, k.loop(n - last - 1, start=last + 1) as i:
                    k.store(out, (b, row, c), out[b, row, c] - a[b, i, row] * out[b, i, c])
                other = k.local(size_of(pivots[b, last]), "int64")[0]
                _exchange(k, out, (b, last, c), (b, other - 1, c))
                k.store(p, 0, j)

    (out,) = kernel(cx, "ldl_solve", [(shape_of(given), dtype_of(x))], [a, at, given], write)
    return reshaped(out, [*batch, n, columns])
