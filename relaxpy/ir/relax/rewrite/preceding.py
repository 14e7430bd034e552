"""New variables for the operands of what a pass binds: their bindings precede that binding."""

from __future__ import annotations

from relaxpy.dataclass import replace
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    TupleGetItem,
    Var,
    VarBinding,
)


class PrecedingBindings:
    """The `bindings` of new variables that replace `binding` of a block, together with `ended`.

    The variables are named like that of the binding, and calls without a position have its.
    """

    def __init__(self, binding: Binding, block: BindingBlock) -> None:
        self.binding = binding
        self.bindings: list[Binding] = []
        self._kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        self.name = "lv" if binding.var is None else binding.var.name_hint

    def bound(self, value: Expr, suffix: str = "") -> Var:
        """A new variable that is bound to a value; the value itself if it is a variable."""
        if isinstance(value, Var):
            return value
        var = self._kind(self.name + suffix, value.struct_info)
        self.bindings.append(VarBinding(var, self.located(value), self.binding.span))
        return var

    def ended(self, value: Expr) -> list[Binding]:
        """All bindings, and after them that of the value to the variable of the program."""
        return [*self.bindings, replace(self.binding, value=self.located(value))]

    def located(self, value: Expr) -> Expr:
        """The value with the position of what it replaces, unless it has one."""
        if not isinstance(value, (Call, TupleGetItem)) or value.span is not None:
            return value
        return replace(value, span=self.binding.value.span or self.binding.span)
