"""Detection of calls in a dataflow block that may write their result into an operand."""

from __future__ import annotations

from collections.abc import Iterable

from relaxpy.ir.arith.prove import always, prove_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import dataflow_liveness_analysis
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.tvm.relax.aliases import EXTERNAL, Aliases


@dataclass(frozen=True, slots=True)
class InplaceCandidates:
    """The operands in whose memory the call of binding `index` may write its result.

    Those that are `large` enough, and those whose shape is the `same`, the last ones first.
    """

    index: int
    large: tuple[int, ...]
    same: tuple[int, ...]


def inplace_candidates(
    block: rx.DataflowBlock, inputs: Iterable[rx.Var]
) -> list[InplaceCandidates]:
    """The elementwise calls with an operand that is dead after the call (OPT-11).

    Such an operand has memory that the block has allocated, or an input has. No function has had
    it, and it is neither used later by any name, nor in a tuple, nor in another operand.
    """
    aliases = Aliases(block.bindings, inputs, follows_calls=False)
    last_use = _last_uses(block, aliases)
    result = []
    for index, binding in enumerate(block.bindings):
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            continue
        if not call.op.record.in_place:
            continue
        large, same = [], []
        for position in reversed(range(len(call.args))):
            fits = _fits(call.args[position].struct_info, call.struct_info)
            if fits is None or not _is_free(call, position, aliases):
                continue
            if all(last_use.get(n, -1) <= index for n in aliases.of[call.args[position]]):  # type: ignore[index]
                large.append(position)
                same += [position] if fits else []
        if large:
            result.append(InplaceCandidates(index, tuple(large), tuple(same)))
    return result


def _last_uses(block: rx.DataflowBlock, aliases: Aliases) -> dict[int, int]:
    """The last binding after which any variable may refer to a value; tuples use their fields."""
    last: dict[int, int] = {}

    def use(numbers: Iterable[int], index: int) -> None:
        for number in numbers:
            last[number] = max(index, last.get(number, index))

    for var, (_, end) in dataflow_liveness_analysis(block).items():
        use(aliases.of.get(var, ()), end)
    for number in reversed(aliases.fields):
        for field in aliases.fields[number] if number in last else ():
            use(field, last[number])
    return last


def _is_free(call: rx.Call, position: int, aliases: Aliases) -> bool:
    """Return whether an operand is known memory that only this operand refers to in the call."""
    operand = call.args[position]
    memories = aliases.of.get(operand) if isinstance(operand, rx.Var) else None
    if not memories or EXTERNAL in memories or memories & aliases.exposed:
        return False
    others = [arg for arg in call.args if isinstance(arg, rx.Var) and arg is not operand]
    return all(memories.isdisjoint(aliases.of.get(other, ())) for other in others)


def _fits(operand: rx.StructInfo | None, result: rx.StructInfo | None) -> bool | None:
    """True if two tensors of a datatype have the same shape; None if the operand may be smaller."""
    if not isinstance(operand, rx.TensorStructInfo) or not isinstance(result, rx.TensorStructInfo):
        return None
    if not isinstance(operand.shape, rx.ShapeExpr) or not isinstance(result.shape, rx.ShapeExpr):
        return None
    if operand.dtype.is_void or operand.dtype != result.dtype or operand.vdevice != result.vdevice:
        return None
    have, want = operand.shape.values, result.shape.values
    if len(have) == len(want) and all(
        prove_equal(a, b) is True for a, b in zip(have, want, strict=True)
    ):
        return True
    return False if always(ops.compare(tir.GE, product(have), product(want))) else None


Listed = list[tuple[int, set[int]]]


@user_facing
def dataflow_inplace_analysis(
    block: rx.DataflowBlock, inputs: list[rx.Var], mod: IRModule
) -> tuple[Listed, Listed]:
    """The elementwise calls of a block that may be done in place, as indices of bindings.

    Each comes with the indices of the operands whose memory can be overwritten: in the first list
    those that are large enough for the result, in the second one those of exactly its shape.
    Nothing else refers to the `inputs`.

    Errors:
        MisuseError (also TypeError): `block` is not a block, an input not a variable, or `mod` not
            a module.
    """
    expect(block, rx.BindingBlock)
    expect(mod, IRModule)
    for var in inputs:
        expect(var, rx.Var)
    found = inplace_candidates(block, inputs)
    return (
        [(call.index, set(call.large)) for call in found],
        [(call.index, set(call.same)) for call in found if call.same],
    )
