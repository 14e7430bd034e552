"""Shape variables of infos: which are mentioned, which are bound where, renaming, substitution."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar, cast

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.substitution import substitute

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
def certain_divisions(size: tir.PrimExpr) -> tuple[Division, ...]:
    """The divisions of integers in an expression that are made whatever its conditions give."""
    found: list[Division] = []
    waiting, met = [size], set[tir.PrimExpr]()
    while waiting:
        expr = waiting.pop()
        if expr in met:
            continue
        met.add(expr)
        match expr:
            case tir.Select(condition=first) | tir.And(a=first) | tir.Or(a=first):
                waiting.append(first)
            case tir.Call(op=Op(name="tir.if_then_else"), args=[first, *_]):
                waiting.append(first)
            case _:
                if isinstance(expr, Division) and expr.dtype.is_int:
                    found.append(expr)
                waiting += [part for part in children(expr) if isinstance(part, tir.PrimExpr)]
    return tuple(found)


def sizes_of(info: rx.StructInfo) -> tuple[tir.PrimExpr, ...]:
    """The dimensions, members or value that the info itself states, those of its parts excluded."""
    match info:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=values)):
            return values
        case rx.ShapeStructInfo(values=values) if values is not None:
            return values
        case rx.PrimStructInfo(value=value) if value is not None:
            return (value,)
        case _:
            return ()


def _lone(infos: Collection[rx.StructInfo]) -> Iterator[tir.Var]:
    for info in infos:
        if isinstance(info, rx.TupleStructInfo):
            yield from _lone(rx.within_size_limit(info).fields)
        elif isinstance(info, DTensorStructInfo):
            yield from _lone((info.tensor_sinfo,))
        else:
            yield from (size for size in sizes_of(info) if isinstance(size, tir.Var))


@user_facing
def definable_shape_vars(*infos: rx.StructInfo) -> tuple[tir.Var, ...]:
    """The variables that stand alone in `infos` outside Func infos, each once, in order (WF-6a)."""
    return tuple(dict.fromkeys(_lone(tuple(map(rx.as_struct_info, infos)))))


def as_scope(shape_vars: object) -> Container[tir.Var]:
    """What a caller says is in scope; None is nothing.

    Errors:
        MisuseError (also TypeError): it is no collection of shape variables.
    """
    if shape_vars is None:
        return ()
    if isinstance(shape_vars, (str, tir.PrimExpr)) or not isinstance(shape_vars, Container):
        found: object = shape_vars
    elif isinstance(shape_vars, (list, tuple)):
        found = next((v for v in shape_vars if not isinstance(v, tir.Var)), None)
    else:
        found = None
    if found is not None:
        raise MisuseError(
            f"the variables in scope are a collection of tir.Var, found {found!r:.60}",
            about=shape_vars,
        )
    return cast("Container[tir.Var]", shape_vars)


def bound_shape_vars(
    info: rx.FuncStructInfo, shape_vars: Container[tir.Var] = ()
) -> tuple[tir.Var, ...]:
    """The variables that a closure form binds itself where `shape_vars` are in scope (SC-16)."""
    if not info.params:
        return ()
    return tuple(var for var in definable_shape_vars(*info.params) if var not in shape_vars)


class Scope:
    """A container of variables with some more laid over it."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Container[tir.Var], inner: Collection[tir.Var]) -> None:
        self._outer = outer
        self._inner = frozenset(inner)

    def __contains__(self, var: object) -> bool:
        return var in self._inner or var in self._outer


def enlarged(scope: Container[tir.Var], more: Collection[tir.Var]) -> Container[tir.Var]:
    """`scope` and `more` together."""
    return Scope(scope, more) if more else scope


def _mentioned(info: rx.StructInfo, scope: Container[tir.Var]) -> Iterator[tir.Var]:
    match info:
        case rx.TupleStructInfo():
            for part in rx.within_size_limit(info).fields:
                yield from _mentioned(part, scope)
        case DTensorStructInfo(tensor_sinfo=whole):
            yield from _mentioned(whole, scope)
        case rx.FuncStructInfo(params=params, ret=ret):
            rx.within_size_limit(info)
            own = frozenset(bound_shape_vars(info, scope))
            for part in (*(params or ()), ret):
                for var in _mentioned(part, enlarged(scope, own)):
                    if var not in own:
                        yield var
        case _:
            for size in sizes_of(info):
                yield from variables_of(size)


@user_facing
def free_shape_vars(
    info: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> tuple[tir.Var, ...]:
    """The variables that `info` mentions, each once, in order, less those its Func infos own.

    `shape_vars` are in scope around it: a Func info does not own those.
    """
    return tuple(dict.fromkeys(_mentioned(rx.as_struct_info(info), shape_vars)))


def map_infos(fn: Callable[[rx.StructInfo], rx.StructInfo], info: I) -> I:
    """`info` rebuilt over `fn` of its parts, or itself if none changed."""
    match info:
        case rx.TupleStructInfo(fields=fields):
            new = tuple(fn(f) for f in rx.within_size_limit(info).fields)
            if all(a is b for a, b in zip(fields, new, strict=True)):
                return info
            return cast("I", replace(info, fields=new))
        case rx.FuncStructInfo(params=params, ret=ret):
            rx.within_size_limit(info)
            parts = None if params is None else tuple(fn(p) for p in params)
            result = fn(ret)
            same = all(a is b for a, b in zip(params or (), parts or (), strict=True))
            if result is ret and same:
                return info
            return cast("I", replace(info, params=parts, ret=result))
        case DTensorStructInfo(tensor_sinfo=whole):
            part = fn(whole)
            return info if part is whole else cast("I", replace(info, tensor_sinfo=part))  # type: ignore[arg-type]
        case _:
            return info


def map_sizes(fn: Callable[[tir.PrimExpr], tir.PrimExpr], info: I) -> I:
    """`info` with each size, at every depth, replaced by `fn` of it; itself if none changed."""
    match info:
        case rx.TupleStructInfo() | rx.FuncStructInfo() | DTensorStructInfo():
            return map_infos(lambda part: map_sizes(fn, part), info)
        case _:
            return _map_own_sizes(fn, info)


def _map_own_sizes(fn: Callable[[tir.PrimExpr], tir.PrimExpr], info: I) -> I:
    old = sizes_of(info)
    new = tuple(fn(size) for size in old)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return info
    match info:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(span=span)):
            return cast("I", replace(info, shape=rx.ShapeExpr(new, span=span)))
        case rx.ShapeStructInfo():
            return cast("I", replace(info, values=new))
        case rx.PrimStructInfo():
            return cast("I", replace(info, value=new[0]))
        case _:
            return info


@user_facing
def substitute_info(info: I, values: Mapping[tir.Var, tir.PrimExpr]) -> I:
    """`info` with variables replaced at every place at once.

    Changed sizes are simplified, unless variables are only renamed.

    `values` and the variables in them count as in scope around `info`: none is taken for a Func
    info's own. An info from elsewhere goes through `alpha_rename` first (MAP-9, RES-71).

    Errors:
        MisuseError (also TypeError): one is no info, or the other no table of sizes.
    """
    if not isinstance(info, rx.StructInfo):
        info = cast("I", rx.as_struct_info(info))
    if not isinstance(values, Mapping):
        raise MisuseError(
            f"expected a table of variables and sizes, found {values!r:.60}", about=values
        )
    if not values:
        return info
    _check_variable(next(iter(values)))  # of a large table, one stands for all
    table = {var: _image(var, values[var]) for var in _in_sizes(info) if var in values}
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


def _in_sizes(info: rx.StructInfo) -> dict[tir.Var, None]:
    """The variables in sizes, those that Func infos own included."""
    rx.within_size_limit(info)
    found: dict[tir.Var, None] = {}
    waiting = [info]
    while waiting:
        match waiting.pop():
            case rx.TupleStructInfo(fields=fields):
                waiting += fields
            case rx.FuncStructInfo(params=params, ret=ret):
                waiting += (*(params or ()), ret)
            case DTensorStructInfo(tensor_sinfo=whole):
                waiting.append(whole)
            case part:
                for size in sizes_of(part):
                    found.update(dict.fromkeys(variables_of(size)))
    return found


def _check_variable(key: object) -> None:
    if not isinstance(key, tir.Var):
        raise MisuseError(f"sizes stand for a tir.Var, found {key!r:.60}", about=key)


def _image(var: tir.Var, value: tir.ExprLike) -> tir.PrimExpr:
    image = value if isinstance(value, tir.PrimExpr) else ops.const(value, var.dtype)
    return ops.cast_to(image, var.dtype) if image.dtype.is_int else image


def alpha_rename(info: I, shape_vars: Container[tir.Var] = ()) -> I:
    """`info` with the own variables of its Func infos, at every depth, made new ones (RES-71).

    `shape_vars` are in scope where `info` was written.

    Errors:
        MisuseError: the info is too large to go through.
    """
    match info:
        case rx.FuncStructInfo():
            own = bound_shape_vars(info, shape_vars)
            fresh = {var: var.renamed(var.name) for var in own}
            inner = enlarged(shape_vars, tuple(fresh.values()))
            renamed = substitute_info(info, fresh)
            return map_infos(lambda part: alpha_rename(part, inner), renamed)
        case rx.TupleStructInfo():
            return map_infos(lambda part: alpha_rename(part, shape_vars), info)
        case _:
            return info


def alpha_rename_clashes(info: I, other: rx.StructInfo, shape_vars: Container[tir.Var] = ()) -> I:
    """`info`, or its copy with new own variables where `other` mentions some of them free.

    `shape_vars` are in scope around both.
    """
    own = bound_shape_vars(info, shape_vars) if isinstance(info, rx.FuncStructInfo) else ()
    if own and not frozenset(own).isdisjoint(free_shape_vars(other, shape_vars)):
        return alpha_rename(info, shape_vars)
    return info
