"""The effects and the failures of bindings, which decide which may be moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Memory
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.purity import is_pure_in
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.context import Context


def _is_pure_inside(expr: rx.Expr) -> bool:
    """Return whether a function calls only pure ones."""
    return (
        isinstance(expr, rx.Function)
        and expr.is_pure
        and not expr.attrs.get("relax.force_pure", False)
    )


class Effects:
    """Decides which calls in a function have effects; `functions` are those of its module.

    An unknown callee is pure if the function is declared pure, since it calls only pure ones then
    (PU-8).
    """

    def __init__(
        self, context: Context, functions: Mapping[str, rx.BaseFunc], expr: rx.Expr
    ) -> None:
        self.context = context
        self.functions = functions
        self.in_pure_function = _is_pure_inside(expr)

    @contextmanager
    def inside(self, func: rx.Function) -> Iterator[None]:
        """Decide about calls in `func` inside the `with` statement."""
        outer = self.in_pure_function
        self.in_pure_function = _is_pure_inside(func)
        yield
        self.in_pure_function = outer

    def is_pure(self, call: rx.Call) -> bool:
        """Return whether a call has no effect but its result."""
        return is_pure_in(call, self.functions, unknown=self.in_pure_function, context=self.context)

    def is_barrier(self, binding: rx.Binding) -> bool:
        """Return whether a binding is a barrier: nothing may move past it (OPT-3, OPT-4).

        It has effects, branches, or mutates operands.
        """
        value = binding.value
        if isinstance(value, rx.Call):
            return not self.is_pure(value) or mutates(binding)
        return isinstance(value, rx.If)


def mutates(binding: rx.Binding) -> bool:
    """True if a binding's call stores its results in operands, as call_tir_inplace does.

    It is declared pure, since no later code uses those operands.
    """
    call = binding.value
    if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
        return False
    kind = call.op.record.calls
    return kind is not None and kind.mutates


def cast_may_fail(cast: rx.MatchCast) -> bool:
    """Return whether a cast is not known to succeed, or binds a shape variable (OPT-9)."""
    actual, sinfo = cast.value.struct_info, cast.struct_info
    if actual is None or any(isinstance(node, rx.FuncStructInfo) for node in walk(sinfo)):
        return True
    return not is_base_of(sinfo, actual)


def may_fail(binding: rx.Binding) -> bool:
    """True if a pure binding may raise an error or not terminate; OPT-3 keeps such ones in order.

    A conditional may if a binding outside the dataflow blocks of its branches may. An operator with
    a legalisation fails only because of the shapes and datatypes of its operands. If these are
    known, derivation has checked them.
    """
    value = binding.value
    if isinstance(binding, rx.MatchCast):
        return True
    if isinstance(value, rx.If):
        blocks = (*value.true_branch.blocks, *value.false_branch.blocks)
        ordinary = (block for block in blocks if not isinstance(block, rx.DataflowBlock))
        return any(may_fail(b) for block in ordinary for b in block.bindings)
    if not isinstance(value, rx.Call):
        return False
    if not isinstance(value.op, Op) or not value.op.has_attr("FLegalize"):
        return True
    if value.op.record.takes_twice and value.args[0] is value.args[1]:
        return not isinstance(value.args[0].struct_info, rx.TensorStructInfo)
    return not (_is_known_sinfo(value.struct_info) and all(map(_is_known, value.args)))


def _is_known(expr: rx.Expr) -> bool:
    if isinstance(expr, rx.Tuple):
        return all(map(_is_known, expr.fields))
    return _is_known_sinfo(expr.struct_info)


def _is_known_sinfo(sinfo: rx.StructInfo | None) -> bool:
    match sinfo:
        case rx.TensorStructInfo(dtype=dtype):
            return sinfo.get_shape() is not None and not dtype.is_void
        case rx.TupleStructInfo(fields=fields):
            return all(map(_is_known_sinfo, fields))
        case rx.PrimStructInfo():
            return True
        case rx.ShapeStructInfo(values=values):
            return values is not None
        case _:
            return False


def memory_of(value: rx.Expr) -> Memory | None:
    """The memory of the result of a call of an operator; None for any other value."""
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return None
    return value.op.record.result_memory(value)


def is_of_operands(value: rx.Expr) -> bool:
    """Return whether a value is a variable, an operand of a call, or a tuple of such ones."""
    if isinstance(value, (rx.Var, rx.Tuple, rx.TupleGetItem)):
        return True
    memory = memory_of(value)
    return memory is not None and memory.is_of_operand and not memory.is_new


def computes(value: rx.Expr) -> bool:
    """True if a value is newly computed from operands that are only read, without any effect.

    No mutation of an operand or of the result can then be seen in the other one (OPT-11).
    """
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return False
    record = value.op.record
    return record.pure is True and record.result_memory(value).is_new
