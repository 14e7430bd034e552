"""Functions over Relax expressions as classes with one method for each kind of node.

This is the style of user code and of TVM; passes of relaxpy itself use `map_bindings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import new_class
from typing import Any, Final, TypeVar

from relaxpy.errors import MisuseError
from relaxpy.ir.core.memo import VisitBudget
from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.description import described
from relaxpy.support.entry import nested_too_deeply

C = TypeVar("C", bound="type[ExprFunctor]")
_VISIT_COST = 8  # the cost of a method, in visits of `VisitBudget`


def _no_such_kind(what: str, node: object) -> MisuseError:
    return MisuseError(f"expected {what}, found {described(node)}", about=node)


EXPR_HOOKS: Final[Mapping[type, str]] = {
    rx.Constant: "visit_constant_",
    rx.Tuple: "visit_tuple_",
    rx.Var: "visit_var_",
    rx.DataflowVar: "visit_dataflow_var_",
    rx.ShapeExpr: "visit_shape_expr_",
    rx.ExternFunc: "visit_extern_func_",
    rx.GlobalVar: "visit_global_var_",
    rx.Function: "visit_function_",
    rx.Call: "visit_call_",
    rx.SeqExpr: "visit_seq_expr_",
    rx.If: "visit_if_",
    Op: "visit_op_",
    rx.TupleGetItem: "visit_tuple_getitem_",
    rx.PrimValue: "visit_prim_value_",
    rx.StringImm: "visit_string_imm_",
    rx.DataTypeImm: "visit_data_type_imm_",
}
"""The method for each kind of expression."""
_BINDING_HOOKS: Final[Mapping[type, str]] = {
    rx.VarBinding: "visit_var_binding_",
    rx.MatchCast: "visit_match_cast_",
}
_BLOCK_HOOKS: Final[Mapping[type, str]] = {
    rx.BindingBlock: "visit_binding_block_",
    rx.DataflowBlock: "visit_dataflow_block_",
}
_DEFINITION_HOOKS: Final[Mapping[type, str]] = {
    rx.Var: "visit_var_def_",
    rx.DataflowVar: "visit_dataflow_var_def_",
}


def hook_of(kind: type, hooks: Mapping[type, str] = EXPR_HOOKS) -> str | None:
    """The name of the method for a kind of node, or for its nearest base class."""
    hook = hooks.get(kind)
    return hook or next((hooks[base] for base in kind.__mro__ if base in hooks), None)


def _undefined(hook: str) -> Callable[[Any, Any], Any]:
    def visit(self: object, node: Any) -> Any:
        raise MisuseError(
            f"{type(self).__name__} has no method for a {type(node).__name__}",
            hint=f"define {hook}",
            about=node,
        )

    return visit


class ExprFunctor:
    """A function over expressions: `visit_expr` calls the method for the kind of the expression.

    Subclasses define the methods. There is one for each kind of expression, binding and block, such
    as `visit_call_`, `visit_match_cast_` and `visit_dataflow_block_`, which takes the node. A
    variable is visited by `visit_var_` where it is used, by `visit_var_def_` where it is defined.

    Errors:
        MisuseError (also TypeError): a node is not an expression, binding, block or variable, or
            the subclass has no method for its kind; or an expression is nested too deeply, or has
            so many shared nodes that the visit takes too long.
    """

    _visits: VisitBudget | None = None

    def visit_expr(self, expr: rx.Expr | Op) -> Any:
        """The result of the method for the kind of `expr`."""
        if not isinstance(expr, (rx.Expr, Op)):
            raise _no_such_kind("a Relax expression", expr)
        outer = self._visits
        if outer is None:
            self._visits = VisitBudget(expr)
        else:
            outer.spend(_VISIT_COST)
        try:
            return self._visited(expr, "a Relax expression", EXPR_HOOKS)
        except RecursionError:
            raise nested_too_deeply() from None
        finally:
            self._visits = outer

    def _visited(self, node: Node, what: str, hooks: Mapping[type, str]) -> Any:
        """The result of the method for the kind of `node`."""
        hook = hook_of(type(node), hooks)
        if hook is None:
            raise _no_such_kind(what, node)
        return getattr(self, hook)(node)

    def visit_binding(self, binding: rx.Binding) -> None:
        """Call the method for the kind of `binding`."""
        self._visited(binding, "a binding", _BINDING_HOOKS)

    def visit_binding_block(self, block: rx.BindingBlock) -> Any:
        """The result of the method for the kind of `block`."""
        return self._visited(block, "a block", _BLOCK_HOOKS)

    def visit_var_def(self, var: rx.Var) -> Any:
        """The result of the method for the kind of `var`, where `var` is defined."""
        return self._visited(var, "a variable", _DEFINITION_HOOKS)

    visit_constant_ = _undefined("visit_constant_")
    visit_tuple_ = _undefined("visit_tuple_")
    visit_var_ = _undefined("visit_var_")
    visit_dataflow_var_ = _undefined("visit_dataflow_var_")
    visit_shape_expr_ = _undefined("visit_shape_expr_")
    visit_extern_func_ = _undefined("visit_extern_func_")
    visit_global_var_ = _undefined("visit_global_var_")
    visit_function_ = _undefined("visit_function_")
    visit_call_ = _undefined("visit_call_")
    visit_seq_expr_ = _undefined("visit_seq_expr_")
    visit_if_ = _undefined("visit_if_")
    visit_op_ = _undefined("visit_op_")
    visit_tuple_getitem_ = _undefined("visit_tuple_getitem_")
    visit_prim_value_ = _undefined("visit_prim_value_")
    visit_string_imm_ = _undefined("visit_string_imm_")
    visit_data_type_imm_ = _undefined("visit_data_type_imm_")
    visit_var_binding_ = _undefined("visit_var_binding_")
    visit_match_cast_ = _undefined("visit_match_cast_")
    visit_binding_block_ = _undefined("visit_binding_block_")
    visit_dataflow_block_ = _undefined("visit_dataflow_block_")
    visit_var_def_ = _undefined("visit_var_def_")
    visit_dataflow_var_def_ = _undefined("visit_dataflow_var_def_")


def decorated(cls: C, base: type[ExprFunctor]) -> C:
    """The subclass that replaces a decorated class, which is its `_cls`.

    Errors:
        MisuseError (also TypeError): `cls` is not a subclass of `base`, or is one of a decorated
            class; TVM has users inherit from the `_cls` of that.
    """
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise MisuseError(f"the decorator is for classes that inherit from {base.__name__}")
    if any("_cls" in vars(ancestor) for ancestor in cls.__mro__):
        raise MisuseError(
            f"Inheritance from a decorated object `{cls.__name__}` is not allowed. "
            f"Please inherit from `{cls.__name__}._cls`."
        )
    names = ("__module__", "__qualname__", "__doc__")
    kept = {name: getattr(cls, name) for name in names}
    return new_class(  # type: ignore[return-value]
        cls.__name__, (cls,), exec_body=lambda body: body.update(kept, _cls=cls)
    )
