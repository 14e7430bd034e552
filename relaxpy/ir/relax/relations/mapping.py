"""Matching of struct info: the values of shape variables that make one equal the other (MAP)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from itertools import chain

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.base import as_struct_info
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing

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
    return map_params((as_struct_info(s1),), (as_struct_info(s2),), shape_vars.as_scope(bound))


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
    unbound = frozenset(var for var in shape_vars.definable_shape_vars(*params) if var not in bound)
    scope = shape_vars.extended(bound, unbound)
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
            local = shape_vars.bound_shape_vars(s2, scope2)
            inner1 = shape_vars.extended(scope1, shape_vars.bound_shape_vars(s1, scope1))
            inner2 = shape_vars.extended(scope2, local)
            for x, y in zip(a, b, strict=True):
                for var, image in _pairs(x, y, unbound, inner1, inner2):
                    if not any(v in local for v in shape_vars.variables_of(image)):
                        yield var, image
        case (
            (rx.TensorStructInfo(), rx.TensorStructInfo())
            | (rx.ShapeStructInfo(), rx.ShapeStructInfo())
            | (rx.PrimStructInfo(), rx.PrimStructInfo())
        ):
            sizes1, sizes2 = shape_vars.sizes_of(s1), shape_vars.sizes_of(s2)
            if len(sizes1) == len(sizes2):
                for size, image in zip(sizes1, sizes2, strict=True):
                    if isinstance(size, tir.Var) and size in unbound and _fits(size, image):
                        yield size, image
        case _:
            pass


def _fits(var: tir.Var, image: tir.PrimExpr) -> bool:
    """True if the variable can have this value: both are integers or have the same datatype."""
    return var.dtype == image.dtype or (var.dtype.is_int and image.dtype.is_int)
