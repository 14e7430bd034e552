"""Adjoints: the gradients of the target by the variables of a program, summed over their uses."""

from __future__ import annotations

from typing import cast

from relaxpy.errors import Span
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.registry import R

_NO_GRAD = Op("relax.grad.no_grad")


class Adjoints:
    """The adjoint of each variable: the variable that `builder` binds to the sum of its gradients.

    `span` is that of the bindings that follow.
    """

    def __init__(self, builder: BlockBuilder) -> None:
        self._builder = builder
        self._table: dict[rx.Var, rx.Var] = {}
        self.span: Span | None = None

    def get(self, var: rx.Var) -> rx.Var | None:
        """The adjoint of `var`; None if no gradient was added, so that it is 0."""
        return self._table.get(var)

    def get_or_zeros(self, var: rx.Var) -> rx.Var:
        """The adjoint of `var`, zeros if no gradient was added."""
        if var not in self._table:
            self._bind(var, _zeros(var, var.struct_info))
        return self._table[var]

    def add(self, operand: rx.Expr, gradient: rx.Expr) -> None:
        """Add `gradient` to the adjoints of the variables in `operand`."""
        if _is_zero(gradient):
            return
        if isinstance(operand, rx.Var):
            self._bind(operand, self._sum(self._table.get(operand), operand, gradient))
        elif isinstance(operand, rx.Tuple):
            gradient = self._leaf(gradient)
            for k, field in enumerate(operand.fields):
                self.add(field, _item(gradient, k))

    def add_field(self, operand: rx.Expr, index: int, gradient: rx.Expr) -> None:
        """Add `gradient` to the adjoint of field `index` of the tuple `operand`."""
        if isinstance(operand, rx.Tuple):
            self.add(operand.fields[index], gradient)
            return
        assert isinstance(operand, rx.Var)
        sinfo = operand.struct_info
        assert isinstance(sinfo, rx.TupleStructInfo)
        present = self._table.get(operand)
        fields: list[rx.Expr] = []
        for k, info in enumerate(sinfo.fields):
            item = rx.TupleGetItem(operand, k)
            before = None if present is None else rx.TupleGetItem(present, k)
            if k == index:
                field = self._sum(before, item, gradient, info)
            else:
                field = _zeros(item, info) if before is None else before
            fields.append(self._leaf(field))
        self._bind(operand, rx.Tuple(tuple(fields)))

    def _bind(self, var: rx.Var, adjoint: rx.Expr) -> None:
        self._table[var] = self._builder.emit(adjoint, f"{var.name_hint}_adjoint", span=self.span)

    def _leaf(self, expr: rx.Expr) -> rx.Expr:
        """`expr`, bound to a variable unless it is a variable or a tuple."""
        return expr if isinstance(expr, (rx.Var, rx.Tuple)) else self._builder.emit(expr)

    def _sum(
        self,
        adjoint: rx.Expr | None,
        value: rx.Expr,
        gradient: rx.Expr,
        sinfo: rx.StructInfo | None = None,
    ) -> rx.Expr:
        """The adjoint of `value`, which is 0 for None, with another gradient added."""
        sinfo = value.struct_info if sinfo is None else sinfo
        if _is_zero(gradient):
            return _zeros(value, sinfo) if adjoint is None else adjoint
        if not isinstance(sinfo, rx.TupleStructInfo):
            return gradient if adjoint is None else cast("rx.Expr", R.add(adjoint, gradient))
        if adjoint is None and not isinstance(gradient, rx.Tuple):
            return gradient
        first: rx.Expr | None = None
        if adjoint is not None:
            adjoint = self._leaf(adjoint)
            first = self._leaf(_item(adjoint, 0)) if sinfo.fields else None
        gradient = self._leaf(gradient)
        fields: list[rx.Expr] = []
        for k, info in enumerate(sinfo.fields):
            before = first if adjoint is None or k == 0 else _item(adjoint, k)
            field = self._sum(before, rx.TupleGetItem(value, k), _item(gradient, k), info)
            fields.append(self._leaf(field))
        return rx.Tuple(tuple(fields))


def _is_zero(gradient: rx.Expr) -> bool:
    return isinstance(gradient, rx.Call) and gradient.op == _NO_GRAD


def _item(value: rx.Expr, index: int) -> rx.Expr:
    return value.fields[index] if isinstance(value, rx.Tuple) else rx.TupleGetItem(value, index)


def _zeros(value: rx.Expr, sinfo: rx.StructInfo | None) -> rx.Expr:
    """Zeros like `value`, which has this struct info."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return rx.Tuple(tuple(_zeros(_item(value, k), s) for k, s in enumerate(sinfo.fields)))
    if isinstance(sinfo, rx.TensorStructInfo) and not sinfo.dtype.is_void:
        shape = sinfo.shape
        if isinstance(shape, rx.ShapeExpr):
            return cast("rx.Expr", R.zeros(shape, sinfo.dtype))
    return cast("rx.Expr", R.zeros_like(value))
