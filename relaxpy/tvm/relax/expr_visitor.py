"""PyExprVisitor: a visit of all expressions, in which subclasses handle the kinds they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor, decorated

if TYPE_CHECKING:
    from relaxpy.errors import Span

V = TypeVar("V", bound="type[PyExprVisitor]")


class PyExprVisitor(ExprFunctor):
    """Visits every expression, with its operands in order and then the shapes in its struct info.

    A subclass overrides the methods that it needs, and calls `super()` to visit the operands.
    """

    @override
    def visit_expr(self, expr: rx.Expr | Op) -> None:
        """Visit an expression of any kind."""
        super().visit_expr(expr)

    def visit_span(self, span: Span | None) -> None:
        """Visit the position of a node."""

    def _visit_sinfo(self, sinfo: rx.StructInfo | None) -> None:
        """Visit the expressions in a struct info; in a Callable none is of this scope."""
        match sinfo:
            case rx.TensorStructInfo(shape=shape) if shape is not None:
                self.visit_expr(shape)
            case rx.TupleStructInfo():
                for field in sinfo.fields:
                    self._visit_sinfo(field)
            case _:
                pass

    def _visit_leaf(self, op: rx.Expr) -> None:
        self.visit_span(op.span)

    visit_constant_ = _visit_leaf
    visit_shape_expr_ = _visit_leaf
    visit_extern_func_ = _visit_leaf
    visit_global_var_ = _visit_leaf
    visit_prim_value_ = _visit_leaf
    visit_string_imm_ = _visit_leaf
    visit_data_type_imm_ = _visit_leaf

    @override
    def visit_tuple_(self, op: rx.Tuple) -> None:
        self.visit_span(op.span)
        for field in op.fields:
            self.visit_expr(field)
        self._visit_sinfo(op.struct_info)

    @override
    def visit_var_(self, op: rx.Var) -> None:
        self.visit_span(op.span)
        self._visit_sinfo(op.struct_info)

    @override
    def visit_dataflow_var_(self, op: rx.DataflowVar) -> None:
        self.visit_var_(op)

    @override
    def visit_function_(self, op: rx.Function) -> None:
        self.visit_span(op.span)
        for param in op.params:
            self.visit_var_def(param)
        self.visit_expr(op.body)

    @override
    def visit_call_(self, op: rx.Call) -> None:
        self.visit_span(op.span)
        self.visit_expr(op.op)
        for sinfo in op.sinfo_args:
            self._visit_sinfo(sinfo)
        for arg in op.args:
            self.visit_expr(arg)
        self._visit_sinfo(op.struct_info)

    @override
    def visit_seq_expr_(self, op: rx.SeqExpr) -> None:
        self.visit_span(op.span)
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)
        self._visit_sinfo(op.struct_info)

    @override
    def visit_if_(self, op: rx.If) -> None:
        self.visit_span(op.span)
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)
        self._visit_sinfo(op.struct_info)

    @override
    def visit_op_(self, op: Op) -> None:
        pass

    @override
    def visit_tuple_getitem_(self, op: rx.TupleGetItem) -> None:
        self.visit_span(op.span)
        self.visit_expr(op.tuple_value)
        self._visit_sinfo(op.struct_info)

    @override
    def visit_var_binding_(self, binding: rx.VarBinding) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    @override
    def visit_match_cast_(self, binding: rx.MatchCast) -> None:
        self.visit_expr(binding.value)
        self._visit_sinfo(binding.struct_info)
        if binding.var is not None:
            self.visit_var_def(binding.var)

    @override
    def visit_binding_block_(self, block: rx.BindingBlock) -> None:
        for binding in block.bindings:
            self.visit_binding(binding)

    visit_dataflow_block_ = visit_binding_block_

    @override
    def visit_var_def_(self, var: rx.Var) -> None:
        self.visit_span(var.span)

    @override
    def visit_dataflow_var_def_(self, var: rx.DataflowVar) -> None:
        self.visit_var_def_(var)


def visitor(visitor_cls: V) -> V:
    """The class, ready for use: `@relax.expr_functor.visitor` is the decorator of subclasses.

    Errors:
        MisuseError (also TypeError): it is not a subclass, or one of a class that is decorated.
    """
    return decorated(visitor_cls, PyExprVisitor)
