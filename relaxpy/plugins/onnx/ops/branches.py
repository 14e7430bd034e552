"""Branches as Relax branches, and the join of their results' shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import TensorProto

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.shape_vars import variables_of
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.importing.tensors import (
    Contents,
    Size,
    as_size,
    new_analyzer,
    rank_of,
    shape_of,
    tensor_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, RanksDifferError, Value, converter
from relaxpy.plugins.onnx.view import Graph
from relaxpy.support.dataclass import dataclass


def closed_scope(cx: Context, values: Sequence[Value]) -> rx.SeqExpr:
    """The innermost scope with these results: the value itself if there is one."""
    exprs = [cx.tensor(value) for value in values]
    return cx.builder.end_scope(exprs[0] if len(exprs) == 1 else rx.Tuple(tuple(exprs)))


def as_scalar(cx: Context, value: Value, dtype: str) -> rx.Expr:
    """The only element of a tensor as one of rank 0."""
    if isinstance(value, Contents) and not value.is_constant and dtype == "bool":
        [element] = value.elements
        number = tir.Select(element, as_size(1), as_size(0))
        value = R.not_equal(cx.tensor(cx.contents([number], (), "int64")), rx.const(0, "int64"))
    x = cx.tensor(value)
    if rank_of(x) == 0:
        return x
    return cx.emit(R.reshape(x, ()))


@converter("If", strings=True)
def if_(cx: Context, cond: Value, *, then_branch: Graph, else_branch: Graph) -> list[Value]:
    known = cx.array(cond)
    if known is not None:
        if known.size != 1:
            raise UnsupportedError(f"the condition has {known.size} elements, expected one")
        return cx.subgraph(then_branch if known.item() else else_branch, [])
    cx.require_branches()
    test = as_scalar(cx, cond, "bool")
    ways = [lambda graph=graph: cx.subgraph(graph, []) for graph in (then_branch, else_branch)]
    return branches(cx, test, ways, rest_differs=cx.importer.may_split)


def branches(
    cx: Context, test: rx.Expr, ways: Sequence[Callable[[], Sequence[Value]]], *, rest_differs: bool
) -> list[Value]:
    """The values that one of two ways to go on has, by a condition.

    Errors:
        RanksDifferError: the ranks of values depend on the way, if `rest_differs`.
    """
    return _either(cx, test, [_closed_way(cx, way) for way in ways], ways if rest_differs else None)


#: A way, and the struct info and the element type of ONNX of each of its values.
_Way = tuple[rx.SeqExpr, list[tuple[rx.StructInfo, int | None]]]


def _closed_way(cx: Context, way: Callable[[], Sequence[Value]]) -> _Way:
    """A branch as a SeqExpr, and the struct info of its values."""
    with cx.builder.inner_scope():
        values = way()
        if any(value is None for value in values):
            raise UnsupportedError("one of its branches has no value for an output")
        tensors = [cx.tensor(value) for value in values]
        exprs = [cx.builder.normalize(tensor) for tensor in tensors]
        infos = [cx.builder.struct_info_of(expr) for expr in exprs]
        return closed_scope(cx, exprs), list(zip(infos, map(cx.code, values), strict=True))


def _either(
    cx: Context,
    test: rx.Expr,
    found: Sequence[_Way],
    ways: Sequence[Callable[[], Sequence[Value]]] | None,
) -> list[Value]:
    """The values of one of two ways; if their ranks differ, `ways` are to go on."""
    (then, first), (otherwise, second) = found
    merged = [_merged(cx, a, b) for a, b in zip(first, second, strict=True)]
    if ways and any(shape.dtype and shape.sizes is None for shape in merged):
        raise RanksDifferError(cx, test, ways)
    result = cx.builder.emit(rx.If(test, then, otherwise))
    if len(merged) == 1:
        return [cast_to(cx, result, merged[0])]
    return [cast_to(cx, rx.TupleGetItem(result, k), info) for k, info in enumerate(merged)]


def possible(
    cx: Context, test: rx.Expr, ways: Sequence[Callable[[], Sequence[Value]]]
) -> list[Value]:
    """As `branches`, where one way may be one that cannot be imported: the program checks then.

    Errors:
        UnsupportedError: neither way can be imported.
    """
    found: list[_Way | UnsupportedError] = []
    for way in ways:
        try:
            found.append(_closed_way(cx, way))
        except UnsupportedError as error:
            found.append(error)
    closed = [way for way in found if not isinstance(way, UnsupportedError)]
    if not closed:
        raise next(way for way in found if isinstance(way, UnsupportedError))
    if len(closed) == len(found):
        return _either(cx, test, closed, None)
    chosen = next(k for k, way in enumerate(found) if not isinstance(way, UnsupportedError))
    expected = R.equal(R.astype(test, "int64"), rx.const(1 - chosen, "int64"))
    vector = cx.emit(R.reshape(R.astype(expected, "int64"), (1,)))
    shape = cx.builder.emit(R.tensor_to_shape(vector))
    cx.builder.match_cast(shape, rx.ShapeStructInfo((as_size(1),)), "checked")
    return list(ways[chosen]())


def _visible(cx: Context, size: Size) -> bool:
    return isinstance(size, int) or cx.builder.context.shape_vars.issuperset(variables_of(size))


def _sizes(info: rx.TensorStructInfo, rank: int) -> list[Size | None]:
    """The sizes that a struct info states."""
    try:
        return [*shape_of(rx.Var("x", info))]
    except UnsupportedError:
        return [None] * rank


def _same(a: Size | None, b: Size | None) -> bool:
    if isinstance(a, int) or isinstance(b, int) or a is None or b is None:
        return isinstance(a, int) and isinstance(b, int) and a == b
    return new_analyzer().can_prove_equal(a, b)


@dataclass(frozen=True, eq=False)
class Shape:
    """The known datatype and sizes of a tensor; None for an unknown size or unknown rank.

    The datatype of a sequence, which is an object, is "".
    """

    dtype: str
    sizes: tuple[Size | None, ...] | None
    #: The element type of ONNX where the datatype does not tell it: strings, less than a byte.
    code: int | None = None

    @property
    def has_strings(self) -> bool:
        """True if it is the shape of strings."""
        return self.code == TensorProto.STRING

    def info(self, cx: Context, *, fresh: bool) -> rx.StructInfo:
        """The struct info; with `fresh`, sizes that are not known are new variables."""
        if not self.dtype:
            return rx.ObjectStructInfo()
        if self.sizes is None:
            return tensor_of(None, self.dtype)
        if fresh:
            known = [cx.new_size("d") if s is None else s for s in self.sizes]
            return tensor_of(known, self.dtype)
        if None in self.sizes:
            return rx.TensorStructInfo(dtype=DataType(self.dtype), ndim=len(self.sizes))
        return tensor_of([s for s in self.sizes if s is not None], self.dtype)


def shape_seen(cx: Context, info: rx.StructInfo | None, code: int | None = None) -> Shape:
    """The shape of a struct info, without variables that are not in scope here."""
    if isinstance(info, rx.ObjectStructInfo):
        return Shape("", None, code)
    if not isinstance(info, rx.TensorStructInfo):
        raise UnsupportedError(f"expected a tensor, found {info}")
    if info.ndim < 0:
        return Shape(str(info.dtype), None, code)
    known = _sizes(info, info.ndim)
    sizes = tuple(s if s is not None and _visible(cx, s) else None for s in known)
    return Shape(str(info.dtype), sizes, code)


def joined(a: Shape, b: Shape) -> Shape:
    """The join of two shapes: the sizes that are equal in both.

    Errors:
        UnsupportedError: they are of different datatypes.
    """
    if (a.dtype, a.has_strings) != (b.dtype, b.has_strings):
        first, second = ("strings" if s.has_strings else s.dtype for s in (a, b))
        raise UnsupportedError(f"a value is {first} on one way and {second} on another")
    if a.sizes is None or b.sizes is None or len(a.sizes) != len(b.sizes):
        return Shape(a.dtype, None, a.code)
    pairs = zip(a.sizes, b.sizes, strict=True)
    return Shape(a.dtype, tuple(s if _same(s, t) else None for s, t in pairs), a.code)


def _merged(
    cx: Context, a: tuple[rx.StructInfo, int | None], b: tuple[rx.StructInfo, int | None]
) -> Shape:
    """The join of two branches; for values that are not tensors only whether they are strings."""
    ways = [
        shape_seen(cx, info, code)
        if isinstance(info, rx.TensorStructInfo)
        else Shape("", None, code)
        for info, code in (a, b)
    ]
    return joined(*ways)


def cast_to(cx: Context, expr: rx.Expr, shape: Shape) -> rx.Expr:
    """A value cast to its known shape, with new variables for the other sizes."""
    var: rx.Expr = cx.builder.emit(expr)
    if shape.sizes is not None and None in shape.sizes:
        cast = cx.builder.match_cast(var, shape.info(cx, fresh=True))
        assert cast is not None
        var = cast
    return cx.of_element_type(var, shape.code)
