"""Keeps padded images of bfloat16 and of floats of 8 bits short, for dot-product instructions.

A convolution pads its image in float32, which it has to widen once. Where instructions multiply
bfloat16, which has all numbers of these datatypes, the image is bfloat16 instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Contraction, For, Plan, Run, Tree, accesses, runs
from relaxpy.exec.native.llvm.narrow_floats import IN_BFLOAT16
from relaxpy.exec.native.machine_code.machine import current
from relaxpy.ir.core.dtype import FLOAT32, DataType
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import Call, Cast, FloatImm, Mul, PrimExpr, Select
from relaxpy.support.dataclass import replace

_SHORT = DataType("bfloat16")


def with_short_factors(plan: Plan) -> Plan:
    """`plan` with these factors in bfloat16, if there are instructions for it."""
    short = {b: decl_buffer(b.shape, _SHORT, b.name) for b in short_factors(plan)}
    if not short or not any(name.endswith("bf16ps") for name in current().instructions):
        return plan
    return replace(
        plan,
        trees=tuple(_changed(tree, short) for tree in plan.trees),
        nest=replace(
            plan.nest,
            local=tuple(replace(x, buffer=short.get(x.buffer, x.buffer)) for x in plan.nest.local),
        ),
        local=tuple(short.get(b, b) for b in plan.local),
        uses=Counter({short.get(b, b): count for b, count in plan.uses.items()}),
    )


def short_factors(plan: Plan) -> Sequence[Buffer]:
    """The local buffers of float32 that only have numbers of bfloat16, and are only factors."""
    shared = {*plan.shared, *plan.shared.values(), *plan.fixed}
    found = [b for b in plan.local if b.dtype == FLOAT32 and b not in shared and not b.strides]
    for run in runs(plan.trees) if found else ():
        accessed, kept = {a.buffer for a in accesses(run)}, _kept(run)
        found = [b for b in found if b is kept or b not in accessed]
    return found


def _kept(run: Run) -> Buffer | None:
    """The buffer that a run may access in bfloat16."""
    match run:
        case Run(statements=[Assignment(combine=None, target=target) as member], after=()):
            found = None if _short(member.value) is None else target
        case Run(accumulation=Assignment(value=Mul(a=a, b=b)) as member, after=()):
            pair = (a, b) if _is_short(b) else (b, a)
            found = (
                pair[0].buffer if isinstance(pair[0], BufferLoad) and _is_short(pair[1]) else None
            )
        case _:
            return None
    return found if sum(b is found for b, _ in member.elements()) == 1 else None


def _is_short(expr: PrimExpr) -> bool:
    """True if an expression is a number of bfloat16 in float32."""
    match expr:
        case Cast(value=BufferLoad(buffer=buffer), dtype=dtype):
            return dtype == FLOAT32 and str(buffer.dtype) in IN_BFLOAT16
        case _:
            return False


def _short(expr: PrimExpr) -> PrimExpr | None:
    """The expression of float32 in bfloat16, if that has the same values."""
    match expr:
        case Cast(value=inner) if _is_short(expr):
            return ops.cast_to(inner, _SHORT)
        case FloatImm(value=0):
            return FloatImm(_SHORT, expr.value)
        case Select(condition=test, true_value=yes, false_value=no):
            a, b = _short(yes), _short(no)
            return None if a is None or b is None else Select(test, a, b)
        case Call(op=Op(name="tir.if_then_else") as op, args=[test, yes, no]):
            a, b = _short(yes), _short(no)
            return None if a is None or b is None else Call(_SHORT, op, (test, a, b))
        case _:
            return None


def _changed(tree: Tree, short: Mapping[Buffer, Buffer]) -> Tree:
    """A tree with the short buffers instead of others."""
    match tree:
        case For(body=body):
            return replace(tree, body=tuple(_changed(inner, short) for inner in body))
        case Run(statements=[Assignment() as member]) if member.target in short:
            value = _short(member.value)
            assert value is not None
            store = replace(member, target=short[member.target], value=value)
            return replace(tree, statements=(store,))
        case Run(statements=[Assignment(value=Mul(a=a, b=b)) as member]):
            factors = _wide(a, short), _wide(b, short)
            if factors == (a, b):
                return tree
            sum_ = replace(member, value=ops.mul(*factors))
            return replace(tree, statements=(sum_,), idiom=Contraction(factors))
        case _:
            return tree


def _wide(expr: PrimExpr, short: Mapping[Buffer, Buffer]) -> PrimExpr:
    """A factor, which may be an element of a short buffer."""
    match expr:
        case BufferLoad(buffer=buffer, indices=indices) if buffer in short:
            return ops.cast_to(BufferLoad(short[buffer], indices), FLOAT32)
        case _:
            return expr
