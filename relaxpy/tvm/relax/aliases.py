"""Alias analysis: the memory that variables may refer to, and calls that may write in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from relaxpy.ir.arith.prove import always, prove_equal
from relaxpy.ir.core.traverse import reached
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind, Memory
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import dataflow_liveness_analysis
from relaxpy.ir.relax.known import expect
from relaxpy.ir.te.topi.shapes import product
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

EXTERNAL: Final = -1
"""The number of all unknown memory."""

Memories = frozenset[int]


class Aliases:
    """The memory of each variable of bindings: the numbers of values that may be the same.

    The variables `inputs` refer to different values that nothing else refers to, other variables of
    enclosing scopes to `EXTERNAL`. If the analysis `follows_calls`, the result of a function is a
    new value or anything that its arguments refer to. Otherwise it is external, and the arguments
    are `exposed` from then on, which takes linear time.

    Fields:
        of       the memory of each variable
        fields   for each value that is a tuple, the memory of its fields; tuples in tuples precede
        exposed  what a called function may have kept
    """

    def __init__(
        self,
        bindings: Iterable[rx.Binding],
        inputs: Iterable[rx.Var] = (),
        *,
        follows_calls: bool = True,
    ) -> None:
        self.of: dict[rx.Var, Memories] = {}
        self.fields: dict[int, list[Memories]] = {}
        self.exposed: set[int] = set()
        self._count = 0
        self._follows_calls = follows_calls
        for var in inputs:
            self.of[var] = self._new(var.struct_info)
        for binding in bindings:
            memories = self._memories(binding.value)
            if binding.var is not None:
                self.of[binding.var] = memories

    def reachable_from(self, variables: Iterable[rx.Var]) -> Iterator[int]:
        """The numbers of all that variables may refer to, directly or as fields of tuples."""
        return self.reachable(n for var in variables for n in self.of.get(var, ()))

    def reachable(self, memories: Iterable[int]) -> Iterator[int]:
        """The numbers, and those of the fields of tuples among them."""
        return reached(memories, lambda n: (m for field in self.fields.get(n, ()) for m in field))

    def _new(self, sinfo: rx.StructInfo | None) -> Memories:
        """A fresh value, with fresh fields if it is a tuple."""
        number = self._count
        self._count += 1
        if isinstance(sinfo, rx.TupleStructInfo):
            self.fields[number] = [self._new(field) for field in sinfo.fields]
        return frozenset((number,))

    def _memories(self, value: rx.Expr) -> Memories:
        match value:
            case rx.Var():
                return self.of.get(value, frozenset((EXTERNAL,)))
            case rx.Tuple(fields=fields):
                number = self._count
                self._count += 1
                self.fields[number] = [self._memories(field) for field in fields]
                return frozenset((number,))
            case rx.TupleGetItem(tuple_value=whole, index=index):
                return self._field(self._memories(whole), index)
            case rx.Call(op=Op() as op):
                return self._of_operator(value, op)
            case rx.Call(op=rx.Expr() as callee, args=args):
                return self._of_function(value, callee, args)
            case _:
                return self._new(value.struct_info)

    def _field(self, whole: Memories, index: int) -> Memories:
        if EXTERNAL in whole:
            return frozenset((EXTERNAL,))
        tuples = (self.fields[number] for number in whole if number in self.fields)
        memories = [fields[index] for fields in tuples if index < len(fields)]
        return frozenset().union(*memories) if memories else frozenset((EXTERNAL,))

    def _of_operator(self, call: rx.Call, op: Op) -> Memories:
        if op.record.calls is CallKind.INPLACE_KERNEL:
            return self._in_place(call)
        memory = op.record.result_memory(call)
        if memory is Memory.NEW or not call.args:
            return self._new(call.struct_info)
        if memory is Memory.ANY:
            return self._of_function(call, call.args[0], call.args[1:])
        operand, result = call.args[0].struct_info, call.struct_info
        if isinstance(operand, rx.TupleStructInfo) or not isinstance(result, rx.TupleStructInfo):
            return self._memories(call.args[0])
        return self._memories(rx.Tuple((call.args[0],) * len(result.fields)))

    def _in_place(self, call: rx.Call) -> Memories:
        """The memory of the outputs of a kernel, some of which are operands."""
        inputs, indices = call.args[1], call.attrs["inplace_indices"]
        assert isinstance(indices, tuple)
        [sinfo] = call.sinfo_args
        result = self._new(sinfo)
        [number] = result
        outputs = self.fields.get(number, [result])
        for k, index in enumerate(indices):
            if index >= 0:
                operand = rx.TupleGetItem(inputs, index)
                fields = inputs.fields if isinstance(inputs, rx.Tuple) else ()
                outputs[k] = self._memories(fields[index] if fields else operand)
        return result if number in self.fields else outputs[0]

    def _of_function(self, call: rx.Call, callee: rx.Expr, args: Iterable[rx.Expr]) -> Memories:
        """The result of a function, which may be or contain anything that it gets."""
        passed = [self._memories(arg) for arg in args]
        if not isinstance(
            callee, (rx.GlobalVar, rx.ExternFunc)
        ):  # a closure, with its captured values
            passed += [frozenset((EXTERNAL,)), self._memories(callee)]
        if not self._follows_calls:
            self.exposed.update(*map(self.reachable, passed))
            return frozenset((EXTERNAL,))
        result = self._new(call.struct_info)
        new = list(self.reachable(result))
        everything = frozenset(new).union(*map(self.reachable, passed))
        for number in new:
            if number in self.fields:
                self.fields[number] = [everything] * len(self.fields[number])
        return everything


@user_facing
def dataflow_alias_analysis(
    block: rx.DataflowBlock, inputs: list[rx.Var]
) -> tuple[dict[rx.Var, set[int]], dict[int, list[set[int]]]]:
    """The memory that each variable of a block may refer to, and that of the fields of tuples.

    Each value that the block creates has a number, and so has each of the `inputs`, which are known
    to be different. -1 is any unknown memory. The result of a function is a new
    value, or whatever its arguments refer to.

    Errors:
        MisuseError (also TypeError): `block` is not a block, or an input not a variable.
    """
    expect(block, rx.BindingBlock)
    for var in inputs:
        expect(var, rx.Var)
    aliases = Aliases(block.bindings, inputs)
    of = {var: set(memories) for var, memories in aliases.of.items()}
    return of, {n: [set(f) for f in aliases.fields[n]] for n in sorted(aliases.fields)}


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
    """True if an operand is known memory that only this operand refers to in the call."""
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
    return False if always(product(have) >= product(want)) else None


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
