"""Moves zero points out of int8 contractions, so that dot-product instructions apply.

`sum((a - p) * (b - q))` is `sum(a * b) - p * sum(b - q) - q * sum(a)`, exactly, as sums of integers
are modulo a power of two. The correction is a step after the sum, like other epilogues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from relaxpy.exec.loops.nest.nodes import Axis, Local, loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Contraction, For, Plan, Run, Tree, accesses, runs
from relaxpy.exec.native.trees.product import A, B, product_of
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import Add, Cast, IntImm, Mul, PrimExpr, Sub, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace

_PLAIN: Final = (Add, BufferLoad, Cast, IntImm, Mul, Sub, Var)
"""The nodes of zero points, which can be computed wherever their indices are in bounds."""


def without_zero_points(plan: Plan) -> Plan:
    """`plan` with the zero points of int8 contractions subtracted after their sums."""
    local: list[Buffer] = []
    trees = tuple(t for tree in plan.trees for t in _expanded(tree, plan, local))
    if not local:
        return plan
    nest = replace(plan.nest, local=(*plan.nest.local, *(Local(b, ()) for b in local)))
    uses = Counter(b for run in runs(trees) for b in {a.buffer for a in accesses(run)})
    # The counts of uses stay, by which a parameter with a second shape has more than one.
    uses |= plan.uses
    return replace(plan, trees=trees, nest=nest, local=(*plan.local, *local), uses=uses)


def _expanded(tree: Tree, plan: Plan, local: list[Buffer]) -> Iterator[Tree]:
    match tree:
        case For(body=body):
            yield replace(tree, body=tuple(t for x in body for t in _expanded(x, plan, local)))
        case Run(accumulation=Assignment(value=Mul(a=a, b=b)) as member):
            factors = [_without_zero(x, tree.over) for x in (a, b)]
            if _is_expandable(tree, member, factors, plan):
                yield from _parts(tree, member, factors, local)
            else:
                yield tree
        case _:
            yield tree


def _without_zero(expr: PrimExpr, over: Sequence[Axis]) -> tuple[PrimExpr, PrimExpr | None]:
    """An element and its zero point, if it has one, which does not depend on the axes `over`."""
    variables = {axis.var for axis in over}
    match expr:
        case Sub(a=element, b=zero) if not mentions(zero, variables):
            return element, zero
        case Add(a=element, b=zero) if not mentions(zero, variables):
            return element, ops.sub(ops.const(0, zero.dtype), zero)
        case Add(a=zero, b=element) if not mentions(zero, variables):
            return element, ops.sub(ops.const(0, zero.dtype), zero)
        case _:
            return expr, None


def _is_expandable(
    run: Run, member: Assignment, factors: Sequence[tuple[PrimExpr, PrimExpr | None]], plan: Plan
) -> bool:
    """True if a run is an int8 contraction with at least one zero point."""
    zeros = [zero for _, zero in factors if zero is not None]
    if not zeros or not member.target.dtype == member.value.dtype == factors[0][0].dtype:
        return False
    nodes = (node for zero in zeros for node in walk(zero) if isinstance(node, PrimExpr))
    if not all(isinstance(node, _PLAIN) for node in nodes):
        return False
    target = plan.root(member.target)
    if any(plan.root(load.buffer) is target for zero in zeros for load in loads(zero)):
        return False
    product = product_of(_sum_of(run, member, ops.mul(*(element for element, _ in factors))))
    return product is not None and all(
        product.operands[n].buffer.dtype.is_int and product.operands[n].buffer.dtype.bits == 8
        for n in (A, B)
    )


def _sum_of(run: Run, member: Assignment, value: PrimExpr) -> Run:
    return replace(run, statements=(replace(member, value=value),), idiom=None)


def _parts(
    run: Run,
    member: Assignment,
    factors: Sequence[tuple[PrimExpr, PrimExpr | None]],
    local: list[Buffer],
) -> Iterator[Run]:
    """The sums, and the step that stores the result."""
    (a, p), (b, q) = factors
    dtype, target = member.target.dtype, BufferLoad(member.target, member.indices)
    taken: list[PrimExpr] = []
    for zero, other in ((p, b if q is None else ops.sub(b, q)), (q, a)):
        if zero is not None:
            axes = tuple(x for x in run.axes if mentions(other, {x.var}))
            part = _element(f"{member.target.name}_rest", str(dtype), axes, local)
            rest = replace(
                member,
                axes=(*axes, *run.over),
                target=part.buffer,
                indices=part.indices,
                initial=ops.const(0, dtype),
            )
            yield replace(_sum_of(run, rest, other), axes=axes)
            taken.append(ops.mul(part, zero))
    products = ops.mul(a, b)
    if member.initial is not None:
        # A buffer that nothing else uses is not stored, but the step is part of the sum.
        total = _element(f"{member.target.name}_products", str(dtype), run.axes, local)
        member = replace(member, target=total.buffer, indices=total.indices)
    found: PrimExpr = BufferLoad(member.target, member.indices)
    yield replace(_sum_of(run, member, products), idiom=Contraction((a, b)))
    for summand in taken:
        found = ops.sub(found, summand)
    last = replace(
        member,
        axes=run.axes,
        target=target.buffer,
        indices=target.indices,
        value=found,
        combine=None,
        initial=None,
    )
    yield Run((last,), run.axes)


def _element(name: str, dtype: str, axes: Sequence[Axis], local: list[Buffer]) -> BufferLoad:
    """The element of a new buffer in an iteration of the axes."""
    shape = [ops.cast_to(a.extent.expr(), INT64) for a in axes]
    buffer = decl_buffer(shape, dtype, name)
    local.append(buffer)
    return BufferLoad(buffer, tuple((as_poly(a.var) - as_poly(a.start)).expr() for a in axes))
