"""New variables for operands of a binding that a pass inserts: their bindings precede it."""

from __future__ import annotations

from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import replace


class PrecedingBindings:
    """The `bindings` of new variables that replace `binding` of a block, together with `ended`.

    The variables are named like that of the binding, and calls without a position have its.
    """

    def __init__(self, binding: rx.Binding, block: rx.BindingBlock) -> None:
        self.binding = binding
        self.bindings: list[rx.Binding] = []
        self._kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        self.name = "lv" if binding.var is None else binding.var.name_hint

    def bound(self, value: rx.Expr, suffix: str = "") -> rx.Var:
        """A new variable that is bound to a value; the value itself if it is a variable."""
        if isinstance(value, rx.Var):
            return value
        var = self._kind(self.name + suffix, value.struct_info)
        self.bindings.append(rx.VarBinding(var, self.located(value), self.binding.span))
        return var

    def cast(self, name: str, value: rx.Expr, sinfo: rx.StructInfo) -> rx.Var:
        """A new variable of this name for a value that is cast to struct info."""
        var = self._kind(name, sinfo)
        self.bindings.append(rx.MatchCast(var, value, sinfo, self.binding.span))
        return var

    def ended(self, value: rx.Expr) -> list[rx.Binding]:
        """All bindings, and after them that of the value to the variable of the program."""
        return [*self.bindings, replace(self.binding, value=self.located(value))]

    def located(self, value: rx.Expr) -> rx.Expr:
        """The value with the position of the replaced node, unless it has one."""
        if not isinstance(value, (rx.Call, rx.TupleGetItem)) or value.span is not None:
            return value
        return replace(value, span=self.binding.value.span or self.binding.span)
