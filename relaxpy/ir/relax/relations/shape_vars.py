"""Shape variables of struct info: renaming, substitution, matching (MAP) and erasure (ERA)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain
from typing import Final, TypeVar, cast

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.memo import unshared_size
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, rebuild, walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.base_classes import as_struct_info
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

Division = tir.Div | tir.Mod | tir.FloorDiv | tir.FloorMod
I = TypeVar("I", bound=rx.StructInfo)  # noqa: E741


@lru_cache(maxsize=1 << 10)
def variables_of(size: tir.PrimExpr) -> tuple[tir.Var, ...]:
    """The variables in an expression, each once, from left to right."""
    if isinstance(size, tir.Var):
        return (size,)
    if isinstance(size, tir.IntImm):
        return ()
    bound = {node.var for node in walk(size) if isinstance(node, tir.Let)}
    return tuple(node for node in walk(size) if isinstance(node, tir.Var) and node not in bound)


@lru_cache(maxsize=1 << 10)
def unconditional_divisions(size: tir.PrimExpr) -> tuple[Division, ...]:
    """The integer divisions in an expression that are evaluated unconditionally."""
    divisions: list[Division] = []
    waiting, seen = [size], set[tir.PrimExpr]()
    while waiting:
        expr = waiting.pop()
        if expr in seen:
            continue
        seen.add(expr)
        match expr:
            case tir.Select(condition=first) | tir.And(a=first) | tir.Or(a=first):
                waiting.append(first)
            case tir.Call(op=Op(name="tir.if_then_else"), args=[first, *_]):
                waiting.append(first)
            case _:
                if isinstance(expr, Division) and expr.dtype.is_int:
                    divisions.append(expr)
                waiting += [child for child in children(expr) if isinstance(child, tir.PrimExpr)]
    return tuple(divisions)


def sizes_of(sinfo: rx.StructInfo) -> tuple[tir.PrimExpr, ...]:
    """The dimensions, members or value of `sinfo`, without those of nested struct infos."""
    match sinfo:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=values)):
            return values
        case rx.ShapeStructInfo(values=values) if values is not None:
            return values
        case rx.PrimStructInfo(value=value) if value is not None:
            return (value,)
        case _:
            return ()


def nested_infos(sinfo: rx.StructInfo) -> tuple[rx.StructInfo, ...]:
    """The struct infos directly inside `sinfo`, in order."""
    match sinfo:
        case rx.TupleStructInfo(fields=fields):
            return fields
        case rx.FuncStructInfo(params=params, ret=ret):
            return (*(params or ()), ret)
        case DTensorStructInfo(tensor_sinfo=tensor):
            return (tensor,)
        case _:
            return ()


def _definable(sinfo: rx.StructInfo) -> Iterator[tir.Var]:
    yield from (size for size in sizes_of(sinfo) if isinstance(size, tir.Var))
    if not isinstance(sinfo, rx.FuncStructInfo):
        for nested in nested_infos(sinfo):
            yield from _definable(nested)


@user_facing
def definable_shape_vars(*infos: rx.StructInfo) -> tuple[tir.Var, ...]:
    """The variables that are a whole dimension, member or value outside Callables (WF-6a).

    Each is listed once, in the order of the first uses.
    """
    return tuple(
        dict.fromkeys(var for info in infos for var in _definable(rx.as_struct_info(info)))
    )


def shape_vars_of(values: Iterable[rx.Expr]) -> tuple[tir.Var, ...]:
    """The shape variables that parameters or arguments determine, in the order of first uses."""
    sinfos = (value.struct_info for value in values)
    return tuple(
        dict.fromkeys(v for sinfo in sinfos if sinfo is not None for v in _definable(sinfo))
    )


def as_scope(shape_vars: object) -> Container[tir.Var]:
    """Check a collection of the shape variables in scope; None is the empty one.

    Errors:
        MisuseError (also TypeError): it is not a collection of shape variables.
    """
    if shape_vars is None:
        return ()
    wrong = None
    if isinstance(shape_vars, (str, tir.PrimExpr)) or not isinstance(shape_vars, Container):
        wrong = shape_vars
    elif isinstance(shape_vars, (list, tuple)):
        wrong = next((v for v in shape_vars if not isinstance(v, tir.Var)), None)
    if wrong is not None:
        raise MisuseError(
            f"the variables in scope are a collection of tir.Var, found {wrong!r:.60}",
            about=shape_vars,
        )
    return cast("Container[tir.Var]", shape_vars)


def bound_shape_vars(
    sinfo: rx.FuncStructInfo, shape_vars: Container[tir.Var] = ()
) -> tuple[tir.Var, ...]:
    """The variables that the parameters of a Callable bind if `shape_vars` are in scope (SC-16)."""
    if not sinfo.params:
        return ()
    return tuple(var for var in definable_shape_vars(*sinfo.params) if var not in shape_vars)


class _ExtendedScope:
    """The variables of an enclosing scope and some more."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Container[tir.Var], inner: Collection[tir.Var]) -> None:
        self._outer = outer
        self._inner = frozenset(inner)

    def __contains__(self, var: object) -> bool:
        return var in self._inner or var in self._outer


def extended(scope: Container[tir.Var], more: Collection[tir.Var]) -> Container[tir.Var]:
    """The scope that contains `scope` and `more`."""
    return _ExtendedScope(scope, more) if more else scope


def _free(sinfo: rx.StructInfo, scope: Container[tir.Var]) -> Iterator[tir.Var]:
    bound: Collection[tir.Var] = ()
    if isinstance(sinfo, rx.FuncStructInfo):
        bound = frozenset(bound_shape_vars(sinfo, scope))
        scope = extended(scope, bound)
    for size in sizes_of(sinfo):
        yield from variables_of(size)
    for nested in nested_infos(sinfo):
        yield from (var for var in _free(nested, scope) if var not in bound)


@user_facing
def free_shape_vars(
    info: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> tuple[tir.Var, ...]:
    """The variables that `info` mentions and no Callable in it binds, each once, in order.

    A Callable does not bind `shape_vars`, which are in scope at `info`.
    """
    return tuple(dict.fromkeys(_free(rx.as_struct_info(info), shape_vars)))


def map_nested(fn: Callable[[rx.StructInfo], rx.StructInfo], sinfo: I) -> I:
    """Rebuild `sinfo` with `fn` applied to the struct infos directly inside it."""
    return map_children(lambda c: fn(c) if isinstance(c, rx.StructInfo) else c, sinfo)


def map_sizes(fn: Callable[[tir.PrimExpr], tir.PrimExpr], sinfo: I) -> I:
    """Rebuild `sinfo` with `fn` applied to each dimension, member and value, nested ones too."""

    def rule(node: Node) -> Node:
        if isinstance(node, tir.PrimExpr):
            return fn(node)
        if isinstance(node, rx.ShapeExpr):
            values = tuple(map(fn, node.values))
            changed = any(new is not old for new, old in zip(values, node.values, strict=True))
            return rx.ShapeExpr(values, span=node.span) if changed else node
        if isinstance(node, rx.TensorStructInfo):  # the most frequent kind has only one such field
            shape = None if node.shape is None else rule(node.shape)
            return node if shape is node.shape else rebuild(node, shape=shape)
        return map_children(rule, node) if isinstance(node, rx.StructInfo) else node

    return cast("I", rule(sinfo))


@user_facing
def substitute_info(info: I, values: Mapping[tir.Var, tir.PrimExpr]) -> I:
    """Replace variables in `info` by their values, all at once.

    Changed dimensions are simplified, unless variables are only renamed. No Callable in `info`
    binds a key of `values` or a variable in a value: they are taken to be in scope at `info`.
    Struct info from another scope is alpha-renamed first (MAP-9, RES-71).

    Errors:
        MisuseError (also TypeError): `info` is not a StructInfo, or `values` not a table of sizes.
    """
    if not isinstance(info, rx.StructInfo):
        info = cast("I", rx.as_struct_info(info))
    check_type(values, Mapping, "expected a table of variables and sizes")
    if not values:
        return info
    first = next(iter(values))  # checking every key of a large table would take too long
    check_type(first, tir.Var, "sizes replace a tir.Var")
    table = {var: _image(var, values[var]) for var in _mentioned(info) if var in values}
    if not table:
        return info

    renames = all(isinstance(value, tir.Var) for value in table.values())

    def replaced(size: tir.PrimExpr) -> tir.PrimExpr:
        if isinstance(size, tir.Var):
            return table.get(size, size)
        if not any(var in table for var in variables_of(size)):
            return size
        new = substitute(size, table)
        return new if new is size or renames else simplify(new)

    return map_sizes(replaced, info)


def _mentioned(sinfo: rx.StructInfo) -> Iterator[tir.Var]:
    """The variables in `sinfo`, those that Callables bind included."""
    for size in sizes_of(sinfo):
        yield from variables_of(size)
    for nested in nested_infos(sinfo):
        yield from _mentioned(nested)


def _image(var: tir.Var, value: tir.ExprLike) -> tir.PrimExpr:
    image = value if isinstance(value, tir.PrimExpr) else ops.const(value, var.dtype)
    return ops.cast_to(image, var.dtype) if image.dtype.is_int else image


def alpha_rename(sinfo: I, shape_vars: Container[tir.Var] = ()) -> I:
    """Replace the variables that Callables in `sinfo` bind by new ones (RES-71).

    `shape_vars` are in scope at `sinfo`.
    """
    match sinfo:
        case rx.FuncStructInfo():
            fresh = {var: var.renamed(var.name) for var in bound_shape_vars(sinfo, shape_vars)}
            inner = extended(shape_vars, tuple(fresh.values()))
            renamed = substitute_info(sinfo, fresh)
            return map_nested(lambda nested: alpha_rename(nested, inner), renamed)
        case rx.TupleStructInfo():
            return map_nested(lambda nested: alpha_rename(nested, shape_vars), sinfo)
        case _:
            return sinfo


def alpha_rename_clashes(sinfo: I, other: rx.StructInfo, shape_vars: Container[tir.Var]) -> I:
    """Alpha-rename the Callable `sinfo` if it binds a variable that is free in `other`.

    `shape_vars` are in scope at both.
    """
    bound = bound_shape_vars(sinfo, shape_vars) if isinstance(sinfo, rx.FuncStructInfo) else ()
    if bound and not frozenset(bound).isdisjoint(free_shape_vars(other, shape_vars)):
        return alpha_rename(sinfo, shape_vars)
    return sinfo


Pair = tuple[tir.Var, tir.PrimExpr]


@user_facing
def shape_var_map(
    s1: rx.StructInfo, s2: rx.StructInfo, bound: Container[tir.Var] = ()
) -> dict[tir.Var, tir.PrimExpr]:
    """The value in `s2` of each definable variable of `s1`, at its leftmost position.

    Rule:
        MAP-1, MAP-2, MAP-3, MAP-4, MAP-5, MAP-6, MAP-7, MAP-8.
        The variables in `bound` are in scope at both, and get no value.
    """
    return map_params((as_struct_info(s1),), (as_struct_info(s2),), as_scope(bound))


def map_params(
    params: Sequence[rx.StructInfo], sinfos: Sequence[rx.StructInfo], bound: Container[tir.Var] = ()
) -> dict[tir.Var, tir.PrimExpr]:
    """The value in `sinfos` of each definable variable of `params` (DER-40, CMP-20).

    All parameters are matched together, since a Callable in one may use what another one binds.
    """
    table: dict[tir.Var, tir.PrimExpr] = {}
    for var, image in matched_pairs(params, sinfos, bound):
        table.setdefault(var, image)
    return table


def matched_pairs(
    params: Sequence[rx.StructInfo], sinfos: Sequence[rx.StructInfo], bound: Container[tir.Var]
) -> Iterator[Pair]:
    """Each use of a definable variable of `params` with the expression at its position in `sinfos`.

    The pairs are in order from left to right; variables in `bound` are left out.
    """
    unbound = frozenset(var for var in definable_shape_vars(*params) if var not in bound)
    scope = extended(bound, unbound)
    for s1, s2 in zip(params, sinfos, strict=False):
        yield from _pairs(s1, s2, unbound, scope, bound)


def _pairs(
    s1: rx.StructInfo,
    s2: rx.StructInfo,
    unbound: Collection[tir.Var],
    scope1: Container[tir.Var],
    scope2: Container[tir.Var],
) -> Iterator[Pair]:
    match s1, s2:
        case rx.TupleStructInfo(fields=a), rx.TupleStructInfo(fields=b) if len(a) == len(b):
            yield from chain.from_iterable(
                _pairs(x, y, unbound, scope1, scope2) for x, y in zip(a, b, strict=True)
            )
        case DTensorStructInfo(tensor_sinfo=a), DTensorStructInfo(tensor_sinfo=b):
            yield from _pairs(a, b, unbound, scope1, scope2)
        case rx.FuncStructInfo(params=a), rx.FuncStructInfo(params=b) if (
            a is not None and b is not None and len(a) == len(b)
        ):
            local = bound_shape_vars(s2, scope2)
            inner1 = extended(scope1, bound_shape_vars(s1, scope1))
            inner2 = extended(scope2, local)
            for x, y in zip(a, b, strict=True):
                for var, image in _pairs(x, y, unbound, inner1, inner2):
                    if not any(v in local for v in variables_of(image)):
                        yield var, image
        case (
            (rx.TensorStructInfo(), rx.TensorStructInfo())
            | (rx.ShapeStructInfo(), rx.ShapeStructInfo())
            | (rx.PrimStructInfo(), rx.PrimStructInfo())
        ):
            sizes1, sizes2 = sizes_of(s1), sizes_of(s2)
            if len(sizes1) == len(sizes2):
                for size, image in zip(sizes1, sizes2, strict=True):
                    if isinstance(size, tir.Var) and size in unbound and _fits(size, image):
                        yield size, image
        case _:
            pass


def _fits(var: tir.Var, image: tir.PrimExpr) -> bool:
    """True if the variable can have this value: both are integers or have the same datatype."""
    return var.dtype == image.dtype or (var.dtype.is_int and image.dtype.is_int)


def erase_to_well_defined(
    sinfo: I, relax_vars: Container[rx.Var] = (), shape_vars: Container[tir.Var] = ()
) -> I:
    """`sinfo` without the shapes and values that mention variables out of scope.

    Rule:
        ERA-1, ERA-2, ERA-3, ERA-4, ERA-5, ERA-6, ERA-10, ERA-11.
        `relax_vars` and `shape_vars` are the variables in scope.
    """
    match sinfo:
        case rx.TensorStructInfo(shape=shape) if shape is not None:
            is_var = isinstance(shape, rx.Var)
            kept = shape in relax_vars if is_var else _in_scope(sinfo, shape_vars)
            return sinfo if kept else cast("I", replace(sinfo, shape=None))
        case rx.ShapeStructInfo() if not _in_scope(sinfo, shape_vars):
            return cast("I", replace(sinfo, values=None))
        case rx.PrimStructInfo() if not _in_scope(sinfo, shape_vars):
            return cast("I", replace(sinfo, value=None))
        case rx.FuncStructInfo():
            return _erase_callable(sinfo, relax_vars, shape_vars)  # type: ignore[return-value]
        case _:
            return map_nested(lambda s: erase_to_well_defined(s, relax_vars, shape_vars), sinfo)


def _in_scope(sinfo: rx.StructInfo, shape_vars: Container[tir.Var]) -> bool:
    return all(var in shape_vars for size in sizes_of(sinfo) for var in variables_of(size))


def _erase_callable(
    sinfo: rx.FuncStructInfo, relax_vars: Container[rx.Var], shape_vars: Container[tir.Var]
) -> rx.FuncStructInfo:
    """ERA-7, ERA-8, ERA-9: an erased parameter may no longer bind variables that others use."""
    bound = bound_shape_vars(sinfo, shape_vars)
    while True:
        scope = extended(shape_vars, bound)
        rule = partial(erase_to_well_defined, relax_vars=relax_vars, shape_vars=scope)
        erased = map_nested(rule, sinfo)
        still_bound = bound_shape_vars(erased, shape_vars)
        if len(still_bound) == len(bound):
            return erased
        bound = still_bound


MAX_NODES: Final = 128
"""The number of nodes of the largest dimension that is derived."""
MAX_REPEATED_NODES: Final = 32
"""The number of nodes of the largest dimension that replaces a variable."""
_SMALL_HEIGHT: Final = 3


def dimension_vars(*infos: rx.StructInfo) -> Iterator[tir.Var]:
    """The variables that are a whole dimension of a tensor, outside Callables."""
    for info in infos:
        if isinstance(info, rx.TensorStructInfo):
            yield from (size for size in sizes_of(info) if isinstance(size, tir.Var))
        elif not isinstance(info, rx.FuncStructInfo):
            yield from dimension_vars(*nested_infos(info))


@contextmanager
def known_inside(sizes: set[tir.Var], *infos: rx.StructInfo) -> Iterator[None]:
    """Add the dimensions of values with these struct infos to `sizes`, until the end."""
    before = frozenset(sizes)
    sizes.update(dimension_vars(*infos))
    try:
        yield
    finally:
        sizes &= before


def over_sizes(size: tir.PrimExpr, sizes: Collection[tir.Var]) -> tir.PrimExpr:
    """An integer expression simplified, where the variables in `sizes` are at least 0.

    An expression without a select, min or max is returned unchanged.
    """
    if size.height == 0 or not _has_choice(size):
        return size
    known = tuple(var for var in variables_of(size) if var in sizes)
    return _simplified(size, known) if known else size


@lru_cache(maxsize=1 << 10)
def _simplified(size: tir.PrimExpr, sizes: tuple[tir.Var, ...]) -> tir.PrimExpr:
    known: dict[tir.Var, tir.PrimExpr] = {v: tir.SizeVar(v.name, v.dtype) for v in sizes}
    variables = {cast("tir.Var", known[var]): var for var in sizes}
    return substitute(simplify(substitute(size, known)), variables)


@lru_cache(maxsize=1 << 10)
def _has_choice(size: tir.PrimExpr) -> bool:
    return any(
        isinstance(node, (tir.Min, tir.Max, tir.Select))
        or (isinstance(node, tir.Call) and getattr(node.op, "name", "") == "tir.if_then_else")
        for node in walk(size)
    )


@lru_cache(maxsize=1 << 10)
def _nodes(size: tir.PrimExpr) -> int:
    return unshared_size(size)[0]


def is_large(size: tir.PrimExpr, most: int = MAX_NODES) -> bool:
    """True if an expression has more nodes than `most`; shared ones count for each use."""
    return size.height > _SMALL_HEIGHT and _nodes(size) > most


def simplified_shapes(
    info: I, sizes: Collection[tir.Var], operands: Callable[[], Iterable[rx.StructInfo]]
) -> I:
    """Derived struct info: simplified by the signs of `sizes`, and without large shapes.

    A large dimension that an operand has as a dimension or member was written, or derived before.
    """
    return _without_large_shapes(over_sizes_info(info, sizes), sizes, operands)


def over_sizes_info(info: I, sizes: Collection[tir.Var]) -> I:
    """Struct info with its dimensions simplified, where the variables in `sizes` are at least 0."""
    return map_sizes(lambda size: over_sizes(size, sizes), info) if sizes else info


def _without_large_shapes(
    info: I, sizes: Collection[tir.Var], operands: Callable[[], Iterable[rx.StructInfo]]
) -> I:
    """Struct info in which the shapes of tensors with a new large dimension are unknown.

    The dimensions of repeatedly split and joined tensors would grow exponentially.
    """
    if isinstance(info, rx.TensorStructInfo):
        large = {size for size in sizes_of(info) if is_large(size)}
        known = large and {
            over_sizes(size, sizes)
            for operand in operands()
            for part in (operand, *nested_infos(operand))
            for size in sizes_of(part)
        }
        return cast("I", replace(info, shape=None)) if large - known else info
    if isinstance(info, rx.FuncStructInfo):
        return cast("I", info)
    return map_nested(lambda part: _without_large_shapes(part, sizes, operands), info)
