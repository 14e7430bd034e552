"""The operators `f.gradient`, which compute the gradients of the operands of an operator `f`."""

from __future__ import annotations

from relaxpy.dataclass import replace
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.op import Op as RelaxOp
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.registry import find
from relaxpy.ir.relax.transform.gradient.adjoints import Adjoints
from relaxpy.ir.relay.op.lookup import relation_named
from relaxpy.ir.relay.op.registry import GRADIENT, Op, OpRecord, list_op_names
from relaxpy.ir.relay.op.relations import Relation, RelationError, Solver
from relaxpy.ir.relay.op.translate import translated
from relaxpy.ir.relay.ty import TupleType, Type


def _relation(name: str) -> Relation:
    """Return the relation of the gradient of an operator: each operand's has its type."""

    def relation(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
        *operands, gradient, result = args
        of_operator = relation_named(name)
        if of_operator is None or not of_operator(solver, (*operands, gradient), attrs):
            return False
        solver.unify(result, TupleType(operands))  # type: ignore[arg-type]
        return True

    return relation


def _emit(
    builder: BlockBuilder, record: OpRecord, args: tuple[rx.Expr, ...], attrs: Attrs
) -> rx.Expr:
    """Emit the expression of an operator and its adjoint; return the gradients of the operands.

    Errors:
        RelationError: an operator of Relax has no gradient.
    """
    operands: list[rx.Var] = []
    for arg in args[:-1]:
        fresh = isinstance(arg, rx.Var) and arg not in operands
        operands.append(arg if fresh else builder.emit(arg))  # type: ignore[arg-type]
    forward = _Forward(builder, operands)
    result = forward.atom(translated(builder, record, tuple(operands), attrs, None))
    adjoints = Adjoints(builder)
    adjoints.add(result, args[-1])
    for var, value in reversed(forward.bindings):
        gradient = adjoints.get(var)
        if gradient is None:
            continue
        if isinstance(value, rx.TupleGetItem):
            adjoints.add_field(value.tuple_value, value.index, gradient)
            continue
        assert isinstance(value, rx.Call)
        operator = find(value.op) if isinstance(value.op, RelaxOp) else None
        if operator is None or operator.gradient is None:
            name = value.op.name if isinstance(value.op, RelaxOp) else str(value.op)
            raise RelationError(f"{name} has no gradient")
        gradients = operator.operand_gradients(var, value, gradient, builder)
        for operand, partial in zip(value.args, gradients, strict=True):
            adjoints.add(operand, partial)
    return rx.Tuple(tuple(map(adjoints.get_or_zeros, operands)))


class _Forward:
    """The calls of an expression that were emitted, in their order."""

    def __init__(self, builder: BlockBuilder, operands: list[rx.Var]) -> None:
        self.builder = builder
        self.bindings: list[tuple[rx.Var, rx.Expr]] = []
        self.atoms: dict[int, tuple[rx.Expr, rx.Expr]] = {id(v): (v, v) for v in operands}

    def atom(self, expr: rx.Expr) -> rx.Expr:
        """Return a variable for a call, and the same expression for one without calls."""
        known = self.atoms.get(id(expr))
        if known is None:
            known = self.atoms[id(expr)] = expr, self._emitted(expr)
        return known[1]

    def _emitted(self, expr: rx.Expr) -> rx.Expr:
        match expr:
            case rx.Var():
                return self._bound(expr)
            case rx.Tuple(fields=fields):
                return rx.Tuple(tuple(map(self.atom, fields)))
            case rx.Call(args=args):
                value: rx.Expr = rx.Call(
                    expr.op, tuple(map(self.atom, args)), expr.attrs, expr.sinfo_args
                )
            case rx.TupleGetItem(tuple_value=whole, index=index):
                whole = self.atom(whole)
                if isinstance(whole, rx.Tuple):
                    return whole.fields[index]
                value = rx.TupleGetItem(whole, index)
            case _:
                return expr
        value = self.builder.normalize(value)
        var = self.builder.emit(value)
        self.bindings.append((var, value))
        return var

    def _bound(self, var: rx.Var) -> rx.Expr:
        """Enter a variable that the operator has emitted, after those that it refers to.

        A variable that is another name of something else is replaced by that.
        """
        value = self.builder.lookup_binding(var)
        match value:
            case rx.Call(args=args):
                value = replace(value, args=tuple(map(self.atom, args)))
            case rx.TupleGetItem(tuple_value=whole):
                value = replace(value, tuple_value=self.atom(whole))
            case rx.Var() | rx.Tuple():
                return self.atom(value)
            case _:
                return var
        self.bindings.append((var, value))
        return var


def enter_gradient(name: str) -> None:
    """Register the operator that computes the gradients of the operands of another, if it has any.

    That operator may itself be one that computes gradients.
    """
    record = Op.get(name).record
    if not (record.translate or record.emit) or record.is_stateful:
        return
    Op.enter(
        OpRecord(
            name + GRADIENT,
            (*record.operands, "gradient"),
            attributes=record.attributes,
            maker_defaults=record.maker_defaults,
            relation=_relation(name),
            emit=lambda builder, args, attrs: _emit(builder, record, args, attrs),
            description=f"The gradients of the operands of `{name}`, from that of its result.",
        )
    )


for _name in list_op_names():
    enter_gradient(_name)
