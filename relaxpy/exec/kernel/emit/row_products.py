"""Finds products that only a sum reads, so that both become one product of vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import cast

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.steps import (
    Blocked,
    Contract,
    Map,
    Plan,
    Reduce,
    Step,
    accesses,
    flatten_steps,
)
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Mul, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute

_DATATYPES = (DataType("float32"), DataType("float64"))


@dataclass(frozen=True, slots=True, eq=False)
class RowProducts:
    """Sums along rows as `contractions` of the factors of a product that nothing else reads.

    The steps that compute the products are `omitted`, and the buffers in `unused` have no memory.
    """

    contractions: Mapping[Step, Contract]
    omitted: Set[Step]
    unused: Set[Buffer]


def row_products(plan: Plan) -> RowProducts:
    """The sums of `plan` that are products of vectors.

    Rule:
        Only of float32 and float64, in which NumPy has products of vectors from BLAS. Rows are
        contiguous in both factors, or nearly so: the last index is that of the sum.
    """
    uses = Counter(b for s in flatten_steps(plan.steps) for b in {a.buffer for a in accesses(s)})
    visible = {*plan.func.buffer_map.values(), *plan.nest.pointers.values()}
    visible |= {*plan.nest.constants, *plan.views, *plan.views.values()}
    found: dict[Step, Contract] = {}
    products: set[Map] = set()
    for steps in _sequences(plan.steps):
        maps: dict[Buffer, int] = {}
        for number, step in enumerate(steps):
            if isinstance(step, Map):
                maps[step.statement.target] = number
            if not isinstance(step, Reduce) or not isinstance(step.update.operand, BufferLoad):
                continue
            buffer = step.update.operand.buffer
            position = maps.get(buffer)
            if position is None or uses[buffer] != 2 or buffer in visible:
                continue
            product = steps[position]
            assert isinstance(product, Map)
            contraction = _contraction(product, step, step.update.operand)
            if contraction is None:
                continue
            changed = {
                _memory(plan, w.buffer)
                for inner in flatten_steps(steps[position + 1 : number + 1])
                for w in inner.statement.writes
            }
            if changed.isdisjoint(_memory(plan, r.buffer) for r in product.statement.reads):
                found[step] = contraction
                products.add(product)
    targets = {product.statement.target for product in products}
    return RowProducts(found, products, targets.difference(plan.shared.values()))


def _sequences(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """The steps, and those of each block."""
    yield steps
    yield from (step.steps for step in steps if isinstance(step, Blocked))


def _memory(plan: Plan, buffer: Buffer) -> Buffer:
    buffer = plan.views.get(buffer, buffer)
    return plan.shared.get(buffer, buffer)


def _contraction(product: Map, total: Reduce, load: BufferLoad) -> Contract | None:
    """The sum `total` of the elements `load` of a product, as a contraction; None if it is not."""
    statement, value = product.statement, product.statement.value
    kinds = {total.statement.target.dtype, statement.target.dtype}
    dtype = statement.target.dtype
    if (
        total.update.combine != "add"
        or len(kinds) > 1
        or dtype not in _DATATYPES
        or not isinstance(value, Mul)
        or statement.guards
        or total.statement.guards
        or len(total.over) != 1
    ):
        return None
    renamed = _renamed(product, (*total.axes, *total.over), load)
    if renamed is None:
        return None
    factors = substitute(value.a, renamed), substitute(value.b, renamed)
    everywhere = [a.var for a in (*total.axes, *total.over)]
    along = total.over[0].var
    if not all(_is_row(factor, along, everywhere) for factor in factors):
        return None
    factored = Mul(*factors)
    summed = cast(
        "PrimExpr",
        rewrite(total.statement.value, lambda node: factored if node is load else None),
    )
    return Contract(
        replace(total.statement, value=summed),
        total.axes,
        total.over,
        factors,
        regrouped=False,
        initial=total.initial,
        always_initialises=total.always_initialises,
    )


def _renamed(product: Map, axes: Sequence[Axis], load: BufferLoad) -> Mapping[Var, Var] | None:
    """The axes of the sum for those of the product, if `load` reads what the product stores."""
    own = {a.var: a for a in product.axes}
    others = {a.var: a for a in axes}
    renamed: dict[Var, Var] = {}
    for stored, read in zip(product.statement.indices, load.indices, strict=True):
        a = own.get(stored) if isinstance(stored, Var) else None
        b = others.get(read) if isinstance(read, Var) else None
        if a is not None and b is not None and a.has_bounds_of(b) and a.var not in renamed:
            renamed[a.var] = b.var
        elif stored is not read or mentions(stored, {*own, *others}):
            return None
    is_one_to_one = len(renamed) == len(own) == len(set(renamed.values())) == len(others)
    return renamed if is_one_to_one else None


def _is_row(factor: PrimExpr, along: Var, everywhere: Sequence[Var]) -> bool:
    """Whether a factor is a load that uses each axis, and the last index is `along`."""
    return (
        isinstance(factor, BufferLoad)
        and bool(factor.indices)
        and factor.indices[-1] is along
        and all(mentions(factor, {v}) for v in everywhere)
    )
