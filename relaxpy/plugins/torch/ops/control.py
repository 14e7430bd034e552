"""Operators that take graphs, and assertions about values, sizes and what LAPACK returns.

Graphs are branches, loops, and regions that change how PyTorch computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.ops import const as number
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import Size, dtype_of, rank_of, reshaped, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.arrays import dtype_name
from relaxpy.plugins.torch.complexes import (
    Complex,
    as_tensor,
    complex_converter,
    from_pair,
    has_complex_result,
)
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.complex_numbers import truth
from relaxpy.plugins.torch.registry import Value, converter

#: A loop of at most this number of iterations is unrolled.
_UNROLLED = 64


def _region(cx: Context, *args: Any) -> Any:
    """A graph that is computed here; the arguments before it say how PyTorch would."""
    at = next(k for k, arg in enumerate(args) if hasattr(arg, "graph"))
    return cx.importer.inlined(args[at], args[at + 1 :])


def _autocast(
    cx: Context, device: str, dtype: Any, enabled: bool, cached: Any, *region: Any
) -> Any:
    importer, outside = cx.importer, cx.importer.casts
    importer.casts = enabled
    try:
        return _region(cx, *region)
    finally:
        importer.casts = outside


def _test(cx: Context, condition: Value) -> rx.Expr:
    if isinstance(condition, PrimExpr):
        chosen = if_then_else(condition, number(1, "int64"), number(0, "int64"))
        return R.not_equal(cx.tensor(chosen), rx.const(0, "int64"))
    x = cx.tensor(condition)
    return x if rank_of(x) == 0 else reshaped(x, [])


@contextmanager
def _scope(cx: Context, params: Sequence[rx.Var] = ()) -> Iterator[None]:
    """A scope of the builder, which is dropped when what stands in it cannot be imported."""
    cx.builder.begin_scope(list(params))
    try:
        yield
    except Exception:
        cx.builder.end_scope()
        raise


def _closed(cx: Context, body: Callable[[], Sequence[Any]]) -> rx.SeqExpr:
    """The bindings that a function emits, as a SeqExpr whose result is a tuple."""
    with _scope(cx):
        exprs = tuple(cx.builder.normalize(as_tensor(cx, value)) for value in body())
        return cx.builder.end_scope(rx.Tuple(exprs))


def _items(cx: Context, result: rx.Expr) -> tuple[Any, ...]:
    """The fields of a result, with the shapes that PyTorch knows."""
    return _fields(cx, [cx.builder.emit(rx.TupleGetItem(result, k)) for k in range(len(cx.meta()))])


def _fields(cx: Context, fields: Sequence[rx.Expr]) -> tuple[Any, ...]:
    """The results that tensors are, with the shapes that PyTorch knows."""
    return tuple(
        from_pair(cx, field)
        if has_complex_result(meta)
        else cx.importer.variable(cx.name, field, meta)
        for field, meta in zip(fields, cx.meta(), strict=True)
    )


def _cond(
    cx: Context, condition: Value, then: Any, otherwise: Any, operands: Sequence[Value] = ()
) -> Any:
    if isinstance(condition, bool):
        return cx.importer.inlined(then if condition else otherwise, operands)
    test = cx.builder.emit(_test(cx, condition))
    first, second = (
        _closed(cx, partial(cx.importer.inlined, graph, operands)) for graph in (then, otherwise)
    )
    return _items(cx, cx.builder.emit(rx.If(test, first, second)))


def _loop(
    cx: Context,
    initial: Sequence[rx.Expr],
    test: Callable[[Sequence[rx.Expr]], Value],
    step: Callable[[Sequence[rx.Expr]], Sequence[Value]],
) -> rx.Expr:
    """The last states of a loop, as a local function that calls itself in tail position."""
    infos: tuple[rx.StructInfo, ...] = tuple(map(cx.builder.struct_info_of, initial))
    params = [rx.Var(f"v{k}", info) for k, info in enumerate(infos)]
    returned = rx.TupleStructInfo(infos)
    pure = cx.importer.program.is_pure
    itself = rx.Var("loop", rx.FuncStructInfo(infos, returned, purity=pure))
    with _scope(cx):
        cx.builder.declare(itself)
        with _scope(cx, params):
            goes_on = cx.emit(_test(cx, test(params)))
            with _scope(cx):
                following = tuple(cx.emit(as_tensor(cx, value)) for value in step(params))
                then = cx.builder.end_scope(cx.builder.emit(rx.Call(itself, following)))
            with _scope(cx):
                otherwise = cx.builder.end_scope(rx.Tuple(tuple(params)))
            body = cx.builder.end_scope(cx.builder.emit(rx.If(goes_on, then, otherwise)))
        cx.builder.end_scope()
    function = cx.builder.emit(rx.Function(tuple(params), body, returned, is_pure=pure), var=itself)
    return cx.builder.emit(rx.Call(function, tuple(initial)))


def _as_before(cx: Context, values: Sequence[rx.Expr], before: Sequence[Value]) -> list[Value]:
    """Tensors as those of the values `before`: complex numbers are stored as pairs."""
    pairs = zip(values, before, strict=True)
    return [from_pair(cx, new) if isinstance(old, Complex) else new for new, old in pairs]


def _while_loop(
    cx: Context, test: Any, body: Any, carried: Sequence[Value], more: Sequence[Value] = ()
) -> Any:
    def inlined(graph: Any, states: Sequence[rx.Expr]) -> Any:
        return cx.importer.inlined(graph, [*_as_before(cx, states, carried), *more])

    def goes_on(states: Sequence[rx.Expr]) -> Value:
        found = inlined(test, states)
        return found[0] if isinstance(found, (tuple, list)) else found

    initial = [cx.emit(as_tensor(cx, value)) for value in carried]
    return _items(cx, _loop(cx, initial, goes_on, partial(inlined, body)))


def _map(cx: Context, body: Any, xs: Sequence[Value], more: Sequence[Value] = ()) -> Any:
    return _scan(cx, body, [], xs, more)


def _scan(
    cx: Context,
    body: Any,
    carried: Sequence[Value],
    xs: Sequence[Value],
    more: Sequence[Value] = (),
) -> Any:
    states, wholes = ([cx.emit(as_tensor(cx, value)) for value in part] for part in (carried, xs))
    count = shape_of(wholes[0])[0]

    def inlined(current: Sequence[rx.Expr], rows: Sequence[rx.Expr]) -> list[rx.Expr]:
        values = _as_before(cx, [*current, *rows], [*carried, *xs])
        return [as_tensor(cx, value) for value in cx.importer.inlined(body, [*values, *more])]

    if isinstance(count, int) and 0 < count <= _UNROLLED:
        return _fields(cx, _unrolled(inlined, states, wholes, count, cx))
    metas = cx.meta()[len(states) :]
    outputs = [
        cx.emit(R.zeros(tuple(cx.sizes(meta.shape)), dtype_name(meta.dtype)))
        for meta in (torch.view_as_real(m) if has_complex_result(m) else m for m in metas)
    ]
    begin = cx.emit(cx.tensor(0, "int64"))

    def step(current: Sequence[rx.Expr]) -> Sequence[Value]:
        i = current[0]
        at = cx.emit(reshaped(i, [1]))
        rows = [cx.emit(R.take(x, i, 0)) for x in wholes]
        old, written = current[1 : 1 + len(states)], current[1 + len(states) :]
        found = inlined(old, rows)
        grown = [
            R.index_put(whole, [at], R.expand_dims(cx.tensor(row, dtype_of(whole)), 0))
            for whole, row in zip(written, found[len(states) :], strict=True)
        ]
        return [i + rx.const(1, "int64"), *found[: len(states)], *grown]

    result = _loop(
        cx,
        [begin, *states, *outputs],
        lambda current: R.less(current[0], cx.tensor(count, "int64")),
        step,
    )
    numbers = range(1, 1 + len(cx.meta()))
    return _fields(cx, [cx.builder.emit(rx.TupleGetItem(result, k)) for k in numbers])


def _unrolled(
    inlined: Callable[[Sequence[rx.Expr], Sequence[rx.Expr]], list[rx.Expr]],
    states: Sequence[rx.Expr],
    xs: Sequence[rx.Expr],
    count: int,
    cx: Context,
) -> Sequence[rx.Expr]:
    rows: list[Sequence[rx.Expr]] = []
    for k in range(count):
        found = inlined(states, [_row(cx, x, k) for x in xs])
        states, produced = found[: len(states)], found[len(states) :]
        rows.append(produced)
    return (*states, *(R.stack(list(column), 0) for column in zip(*rows, strict=True)))


def _row(cx: Context, x: rx.Expr, k: Size) -> rx.Expr:
    sizes = shape_of(x)
    return cx.emit(reshaped(R.strided_slice(x, [0], [k], [k + 1]), sizes[1:]))


def _with_effects(cx: Context, token: Value, op: Any, *args: Value, **kwargs: Value) -> Any:
    if op._schema.returns:
        raise UnsupportedError(f"the order of the effects of {op}")
    return in_order(cx, token, op, *args)


HIGHER_ORDER: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "map_impl": _map,
    "scan": _scan,
    "wrap_with_set_grad_enabled": _region,
    "wrap_with_autocast": _autocast,
    "hints_wrapper": _region,
    "with_effects": _with_effects,
}


_ABOUT_VALUES = ("_assert_async", "_assert_async.msg", "_functional_assert_async.msg")
_OVERLOADS = frozenset(
    {
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._functional_assert_async.msg,
    }
)
_OF_LAPACK = torch.ops.aten._linalg_check_errors.default


def _operator(node: Any) -> tuple[Any, Any]:
    """The operator of a node and its arguments; a token may order its effects."""
    if str(node.target) == "with_effects":
        return node.args[1], node.args[2:]
    return node.target, node.args


def asserts(node: Any) -> bool:
    """True if a node asserts something about values."""
    return node.op == "call_function" and _operator(node)[0] in _OVERLOADS


def checks_matrices(node: Any) -> bool:
    """True if a node raises where LAPACK's info is not 0."""
    return node.op == "call_function" and _operator(node)[0] is _OF_LAPACK


def checked_names(node: Any) -> Iterator[str]:
    """The names of the functions in whose names results of this node are checked."""
    for field in node.users:
        for user in filter(checks_matrices, field.users):
            yield _operator(user)[1][1]


@complex_converter(*_ABOUT_VALUES)
@converter(*_ABOUT_VALUES)
def assert_values(
    cx: Context, condition: Value, text: str = "an assertion of the program", *unused: Value
) -> None:
    """An assertion that is computed in the order of the program."""
    test: rx.Expr = cx.emit(
        truth(cx.tensor(condition) if isinstance(condition, bool) else condition)
    )
    shown = text.replace("{", "{{").replace("}", "}}")
    cx.emit(R.assert_op(test if rank_of(test) == 0 else reshaped(test, []), [], shown))


@complex_converter("_assert_tensor_metadata")
@converter(
    *("_assert_scalar", "_assert_tensor_metadata", "_linalg_check_errors", "_make_dep_token"),
    *("sym_constrain_range", "sym_constrain_range_for_size", "_functional_assert_scalar"),
    *("_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size"),
)
def known(cx: Context, *args: Value) -> None:
    """Nothing: sizes are checked where they are bound, matrices where they are factored."""


def in_order(cx: Context, token: Value, op: Any, *args: Value) -> Any:
    """An assertion in the order that tokens give, which is that of the program."""
    if op in _OVERLOADS:
        assert_values(cx, *args)
    return token, None
