"""The sums of products along rows that NumPy computes as dot products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from relaxpy.exec.loops.plan.dependence import aligned_axes
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Contraction, Plan, Run, Tile, Tree, written_memory
from relaxpy.exec.loops.plan.updates import Update
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Mul, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

_DATATYPES: Final = (DataType("float32"), DataType("float64"))


@dataclass(frozen=True, slots=True, eq=False)
class RowProducts:
    """Sums along rows as `contractions` of the factors of a product without other readers.

    The runs that compute the products are `omitted`, and the buffers in `unused` have no memory.
    """

    contractions: Mapping[Run, Run]
    omitted: Set[Run]
    unused: Set[Buffer]


def row_products(plan: Plan) -> RowProducts:
    """The sums of `plan` that are dot products of vectors.

    Rule:
        Only for float32 and float64, whose dot products NumPy gets from BLAS. Rows are contiguous
        in both factors, or nearly so: the last index is that of the sum.
    """
    visible = {*plan.func.buffer_map.values(), *plan.nest.pointers.values()}
    visible |= {*plan.nest.constants, *plan.views, *plan.views.values()}
    found: dict[Run, Run] = {}
    products: dict[Run, Buffer] = {}
    for trees in _sequences(plan.trees):
        stores: dict[Buffer, int] = {}
        for number, run in enumerate(trees):
            if not isinstance(run, Run):
                continue
            if run.store is not None:
                stores[run.store.target] = number
            match run.accumulation:
                case Assignment(update=Update(combine="add", operand=BufferLoad() as load)):
                    pass
                case _:
                    continue
            position = stores.get(load.buffer)
            if position is None or plan.uses[load.buffer] != 2 or load.buffer in visible:
                continue
            product = trees[position]
            assert isinstance(product, Run)
            contraction = _contraction(product, run, load)
            if contraction is None:
                continue
            changed = written_memory(trees[position + 1 : number + 1], plan.root)
            if changed.isdisjoint(plan.root(r.buffer) for r in product.statement.reads):
                found[run] = contraction
                products[product] = load.buffer
    unused = set(products.values()).difference(plan.shared.values())
    return RowProducts(found, products.keys(), unused)


def _sequences(trees: Sequence[Tree]) -> Iterator[Sequence[Tree]]:
    """The trees, and those of each block."""
    yield trees
    yield from (tree.body for tree in trees if isinstance(tree, Tile))


def _contraction(product: Run, total: Run, load: BufferLoad) -> Run | None:
    """The sum `total` of the elements `load` of a product, as a contraction; None if it is not."""
    statement, summing = product.store, total.accumulation
    if statement is None or summing is None:
        return None
    value, dtype = statement.value, statement.target.dtype
    if (
        dtype not in _DATATYPES
        or dtype != summing.target.dtype
        or not isinstance(value, Mul)
        or statement.guards
        or summing.guards
        or len(total.over) != 1
    ):
        return None
    renamed = aligned_axes(statement.indices, product.axes, load.indices, total.loops)
    if renamed is None:
        return None
    factors = substitute(value.a, renamed), substitute(value.b, renamed)
    everywhere = [a.var for a in total.loops]
    along = total.over[0].var
    if not all(_is_row(factor, along, everywhere) for factor in factors):
        return None
    summing = replace(summing, value=Mul(*factors))
    return replace(total, statements=(summing,), idiom=Contraction(factors))


def _is_row(factor: PrimExpr, along: Var, everywhere: Sequence[Var]) -> bool:
    """True if a factor is a load that uses each axis, and the last index is `along`."""
    return (
        isinstance(factor, BufferLoad)
        and bool(factor.indices)
        and factor.indices[-1] is along
        and all(mentions(factor, {v}) for v in everywhere)
    )
