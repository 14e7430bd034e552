"""Functions over Relax expressions as classes with one method for each kind of node.

This is the style of user code and of TVM; passes of relaxpy itself use `map_bindings`.
"""

from __future__ import annotations

from types import new_class
from typing import Any, NoReturn, TypeVar, assert_never

from relaxpy.entry import nested_too_deeply
from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.sharing import VisitBudget
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx

C = TypeVar("C", bound="type[ExprFunctor]")
_VISIT_COST = 8  # how many times as long as a visit of `VisitBudget` a method takes


def _no_such_kind(what: str, node: object) -> MisuseError:
    return MisuseError(f"expected {what}, found {type(node).__name__} {node!r:.60}", about=node)


class ExprFunctor:
    """A function over expressions: `visit_expr` calls the method for the kind of the expression.

    Subclasses define the methods.

    Errors:
        MisuseError (also TypeError): a node is not an expression, binding, block or variable, or
            the subclass has no method for its kind. Or an expression is nested too deeply, or has
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
            return self._dispatch(expr)  # type: ignore[arg-type]
        except RecursionError:
            raise nested_too_deeply() from None
        finally:
            self._visits = outer

    def _dispatch(self, expr: rx.AnyExpr) -> Any:
        match expr:
            case rx.Call():
                return self.visit_call_(expr)
            case rx.DataflowVar():
                return self.visit_dataflow_var_(expr)
            case rx.Var():
                return self.visit_var_(expr)
            case Op():
                return self.visit_op_(expr)
            case rx.Constant():
                return self.visit_constant_(expr)
            case rx.Tuple():
                return self.visit_tuple_(expr)
            case rx.ShapeExpr():
                return self.visit_shape_expr_(expr)
            case rx.TupleGetItem():
                return self.visit_tuple_getitem_(expr)
            case rx.GlobalVar():
                return self.visit_global_var_(expr)
            case rx.ExternFunc():
                return self.visit_extern_func_(expr)
            case rx.PrimValue():
                return self.visit_prim_value_(expr)
            case rx.StringImm():
                return self.visit_string_imm_(expr)
            case rx.DataTypeImm():
                return self.visit_data_type_imm_(expr)
            case rx.SeqExpr():
                return self.visit_seq_expr_(expr)
            case rx.If():
                return self.visit_if_(expr)
            case rx.Function():
                return self.visit_function_(expr)
            case rx.Expr():  # a PrimFunc, which only modules contain
                raise _no_such_kind("a Relax expression", expr)
            case _:
                assert_never(expr)

    def visit_binding(self, binding: rx.Binding) -> None:
        """Call the method for the kind of `binding`."""
        match binding:
            case rx.VarBinding():
                self.visit_var_binding_(binding)
            case rx.MatchCast():
                self.visit_match_cast_(binding)
            case _:
                raise _no_such_kind("a binding", binding)

    def visit_binding_block(self, block: rx.BindingBlock) -> Any:
        """The result of the method for the kind of `block`."""
        match block:
            case rx.DataflowBlock():
                return self.visit_dataflow_block_(block)
            case rx.BindingBlock():
                return self.visit_binding_block_(block)
            case _:
                raise _no_such_kind("a block", block)

    def visit_var_def(self, var: rx.Var) -> Any:
        """The result of the method for the kind of `var`, where `var` is defined."""
        match var:
            case rx.DataflowVar():
                return self.visit_dataflow_var_def_(var)
            case rx.Var():
                return self.visit_var_def_(var)
            case _:
                raise _no_such_kind("a variable", var)

    def _undefined(self, hook: str, node: Node) -> NoReturn:
        raise MisuseError(
            f"{type(self).__name__} has no method for a {type(node).__name__}",
            hint=f"define {hook}",
            about=node,
        )

    def visit_constant_(self, op: rx.Constant) -> Any:
        """A tensor literal."""
        self._undefined("visit_constant_", op)

    def visit_tuple_(self, op: rx.Tuple) -> Any:
        """A tuple."""
        self._undefined("visit_tuple_", op)

    def visit_var_(self, op: rx.Var) -> Any:
        """A use of a variable."""
        self._undefined("visit_var_", op)

    def visit_dataflow_var_(self, op: rx.DataflowVar) -> Any:
        """A use of a variable of a dataflow block."""
        self._undefined("visit_dataflow_var_", op)

    def visit_shape_expr_(self, op: rx.ShapeExpr) -> Any:
        """A shape value."""
        self._undefined("visit_shape_expr_", op)

    def visit_extern_func_(self, op: rx.ExternFunc) -> Any:
        """A packed function."""
        self._undefined("visit_extern_func_", op)

    def visit_global_var_(self, op: rx.GlobalVar) -> Any:
        """A use of a function of the module."""
        self._undefined("visit_global_var_", op)

    def visit_function_(self, op: rx.Function) -> Any:
        """A function, global or local."""
        self._undefined("visit_function_", op)

    def visit_call_(self, op: rx.Call) -> Any:
        """A call."""
        self._undefined("visit_call_", op)

    def visit_seq_expr_(self, op: rx.SeqExpr) -> Any:
        """Blocks with a result."""
        self._undefined("visit_seq_expr_", op)

    def visit_if_(self, op: rx.If) -> Any:
        """A choice of two branches."""
        self._undefined("visit_if_", op)

    def visit_op_(self, op: Op) -> Any:
        """An operator that is called."""
        self._undefined("visit_op_", op)

    def visit_tuple_getitem_(self, op: rx.TupleGetItem) -> Any:
        """A field of a tuple."""
        self._undefined("visit_tuple_getitem_", op)

    def visit_prim_value_(self, op: rx.PrimValue) -> Any:
        """A scalar."""
        self._undefined("visit_prim_value_", op)

    def visit_string_imm_(self, op: rx.StringImm) -> Any:
        """A string."""
        self._undefined("visit_string_imm_", op)

    def visit_data_type_imm_(self, op: rx.DataTypeImm) -> Any:
        """A datatype."""
        self._undefined("visit_data_type_imm_", op)

    def visit_var_binding_(self, binding: rx.VarBinding) -> None:
        """A value bound to a variable."""
        self._undefined("visit_var_binding_", binding)

    def visit_match_cast_(self, binding: rx.MatchCast) -> None:
        """A value checked, and perhaps bound."""
        self._undefined("visit_match_cast_", binding)

    def visit_binding_block_(self, block: rx.BindingBlock) -> Any:
        """An ordinary block."""
        self._undefined("visit_binding_block_", block)

    def visit_dataflow_block_(self, block: rx.DataflowBlock) -> Any:
        """A dataflow block."""
        self._undefined("visit_dataflow_block_", block)

    def visit_var_def_(self, var: rx.Var) -> Any:
        """The definition of a variable: a parameter, or the left of a binding."""
        self._undefined("visit_var_def_", var)

    def visit_dataflow_var_def_(self, var: rx.DataflowVar) -> Any:
        """The definition of a variable of a dataflow block."""
        self._undefined("visit_dataflow_var_def_", var)


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
