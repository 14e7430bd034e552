"""Facts about dimensions of tensors: they are at least 0, and short."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, TypeVar, cast

from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.memo import unshared_size
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import replace

I = TypeVar("I", bound=rx.StructInfo)  # noqa: E741

MAX_NODES: Final = 128
"""The number of nodes of the largest dimension that is derived."""
MAX_REPEATED_NODES: Final = 32
"""The number of nodes of the largest dimension that replaces a variable."""
_SMALL_HEIGHT: Final = 3


def dimension_vars(*infos: rx.StructInfo) -> Iterator[tir.Var]:
    """The variables that are a whole dimension of a tensor, outside Callables."""
    for info in infos:
        if isinstance(info, rx.TensorStructInfo):
            yield from (size for size in shape_vars.sizes_of(info) if isinstance(size, tir.Var))
        elif not isinstance(info, rx.FuncStructInfo):
            yield from dimension_vars(*shape_vars.nested_infos(info))


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
    known = tuple(var for var in shape_vars.variables_of(size) if var in sizes)
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
    """Return whether an expression has more nodes than `most`; shared ones count for each use."""
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
    return shape_vars.map_sizes(lambda size: over_sizes(size, sizes), info) if sizes else info


def _without_large_shapes(
    info: I, sizes: Collection[tir.Var], operands: Callable[[], Iterable[rx.StructInfo]]
) -> I:
    """Struct info in which the shapes of tensors with a new large dimension are unknown.

    The dimensions of repeatedly split and joined tensors would grow exponentially.
    """
    if isinstance(info, rx.TensorStructInfo):
        large = {size for size in shape_vars.sizes_of(info) if is_large(size)}
        known = large and {
            over_sizes(size, sizes)
            for operand in operands()
            for part in (operand, *shape_vars.nested_infos(operand))
            for size in shape_vars.sizes_of(part)
        }
        return cast("I", replace(info, shape=None)) if large - known else info
    if isinstance(info, rx.FuncStructInfo):
        return cast("I", info)
    return shape_vars.map_nested(lambda part: _without_large_shapes(part, sizes, operands), info)
