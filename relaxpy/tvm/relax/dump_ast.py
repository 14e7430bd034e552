"""The syntax tree of a program as text, and a visit of all expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from relaxpy.errors import unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attr, Attrs, Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.static_type import DynTensorType, FuncType, ShapeType, TupleType, Type
from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor, decorated
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.errors import Span

_FIELDS: Mapping[type[Node], tuple[str, ...]] = {
    rx.Call: ("op", "args", "sinfo_args", "attrs"),
    rx.Constant: ("data",),
    rx.DataTypeImm: ("value",),
    rx.DataflowVar: ("name_hint",),
    rx.ExternFunc: ("global_symbol",),
    rx.Function: ("params", "body", "ret_struct_info", "is_pure", "attrs"),
    rx.GlobalVar: ("name_hint",),
    rx.If: ("cond", "true_branch", "false_branch"),
    Op: ("name",),
    rx.PrimValue: ("value",),
    rx.SeqExpr: ("blocks", "body"),
    rx.ShapeExpr: ("values",),
    rx.StringImm: ("value",),
    rx.Tuple: ("fields",),
    rx.TupleGetItem: ("tuple_value", "index"),
    rx.Var: ("name_hint",),
    rx.FuncStructInfo: ("params", "ret", "purity"),
    rx.PrimStructInfo: ("dtype",),
    rx.ShapeStructInfo: ("ndim", "values"),
    rx.TensorStructInfo: ("dtype", "shape"),
    rx.TupleStructInfo: ("fields",),
    DynTensorType: ("ndim", "dtype"),
    FuncType: ("arg_types", "ret_type"),
    ShapeType: ("ndim",),
    TupleType: ("fields",),
}
"""The fields that are printed, in order; those that are None are left out."""
_OMITTED_IF_EMPTY = ("attrs", "sinfo_args")


@user_facing
def dump_ast(
    exp: rx.Expr | rx.BindingBlock | rx.VarBinding | rx.MatchCast,
    indent_str: str = "    ",
    include_struct_info_annotations: bool = True,
    include_call_attrs: bool = True,
) -> str:
    """The nodes of an expression, block or binding as nested constructor calls, field by field."""
    printer = ASTPrinter(indent_str, include_struct_info_annotations, include_call_attrs)
    return printer.node(exp)


def _quoted(text: object) -> str:
    return f'"{text}"'


def _plain(value: Attr) -> str:
    return _quoted(value) if isinstance(value, str) else str(value)


class ASTPrinter(ExprFunctor):
    """Prints nodes as nested constructor calls; see `dump_ast`."""

    def __init__(
        self,
        indent_str: str = "    ",
        include_struct_info_annotations: bool = True,
        include_call_attrs: bool = True,
    ) -> None:
        self.indent = indent_str
        self.include_struct_info = include_struct_info_annotations
        self.include_call_attrs = include_call_attrs

    def node(self, node: object) -> str:
        """A node of a graph, or one of its fields, as a constructor call."""
        match node:
            case rx.BindingBlock():
                kind = type(node).__name__
                return self._node(kind, bindings=self._listed(map(self.node, node.bindings), True))
            case rx.VarBinding(var=var, value=value):
                return self._node("VarBinding", var=self.node(var), value=self.node(value))
            case rx.MatchCast(var=var, value=value, struct_info=sinfo):
                return self._node(
                    "MatchCast",
                    var="None" if var is None else self.node(var),
                    value=self.node(value),
                    struct_info=self.node(sinfo),
                )
            case PrimExpr():
                return self._node("PrimExpr", value=f"`{node}`")
            case rx.StructInfo():
                return self.visit_struct_info_(node)
            case Type():
                return self.visit_type_(node)
            case rx.Expr() | Op():
                text: str = self.visit_expr(node)
                return text
            case _:
                raise unexpected(node, "expected a node of Relax")

    def _value(self, value: object) -> str:
        match value:
            case Node():
                return self.node(value)
            case tuple():
                return self._listed(map(self.node, value))
            case Attrs():
                items = (f"{_quoted(k)}: {_plain(v)}" for k, v in value.items())
                return self._listed(items, begin="{", end="}")
            case str() if not isinstance(value, DataType):
                return _quoted(value)
            case _:
                return str(value)

    def _listed(
        self, members: Iterable[str], newline: bool = False, *, begin: str = "[", end: str = "]"
    ) -> str:
        """Members on lines of their own; a single short one is on the line of the brackets."""
        texts = list(members)
        if not texts:
            return begin + end
        if len(texts) == 1 and not newline and "\n" not in texts[0]:
            return begin + texts[0] + end
        lines = ",\n".join(
            "\n".join(self.indent + line for line in text.split("\n")) for text in texts
        )
        return f"{begin}\n{lines}\n{end}"

    def _node(self, kind: str, **fields: str) -> str:
        texts = [f"{name}={text}" for name, text in fields.items()]
        return self._listed(texts, begin=f"{kind}(", end=")")

    def _fields(self, node: Node) -> dict[str, str]:
        fields: dict[str, str] = {}
        for name in _FIELDS.get(type(node), ()):
            value = getattr(node, name)
            if value is not None and not (name in _OMITTED_IF_EMPTY and not value):
                fields[name] = self._value(value)
        return fields

    def visit_struct_info_(self, sinfo: rx.StructInfo) -> str:
        """A struct info as a constructor call."""
        fields = self._fields(sinfo)
        if isinstance(sinfo, rx.TensorStructInfo) and sinfo.shape is None:
            fields["ndim"] = str(sinfo.ndim)
        return self._node(type(sinfo).__name__, **fields)

    def visit_type_(self, type_: Type) -> str:
        """A type as a constructor call."""
        return self._node(type(type_).__name__, **self._fields(type_))

    def _visit(self, op: Any) -> str:
        fields = self._fields(op)
        if isinstance(op, rx.Call) and not self.include_call_attrs:
            fields.pop("attrs", None)
        declares = not isinstance(op, (Op, rx.ExternFunc)) and op.struct_info is not None
        if declares and self.include_struct_info:
            fields["struct_info"] = self.node(op.struct_info)
        return self._node(type(op).__name__, **fields)

    visit_call_ = _visit
    visit_constant_ = _visit
    visit_data_type_imm_ = _visit
    visit_dataflow_var_ = _visit
    visit_extern_func_ = _visit
    visit_function_ = _visit
    visit_global_var_ = _visit
    visit_if_ = _visit
    visit_op_ = _visit
    visit_prim_value_ = _visit
    visit_seq_expr_ = _visit
    visit_shape_expr_ = _visit
    visit_string_imm_ = _visit
    visit_tuple_ = _visit
    visit_tuple_getitem_ = _visit
    visit_var_ = _visit

    @override
    def visit_binding_block_(self, block: rx.BindingBlock) -> str:
        return self.node(block)

    @override
    def visit_dataflow_block_(self, block: rx.DataflowBlock) -> str:
        return self.node(block)


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

    def _visit_operands(self, op: rx.Expr, *operands: rx.Expr) -> None:
        self.visit_span(op.span)
        for operand in operands:
            self.visit_expr(operand)
        self._visit_sinfo(op.struct_info)

    visit_constant_ = _visit_leaf
    visit_shape_expr_ = _visit_leaf
    visit_extern_func_ = _visit_leaf
    visit_global_var_ = _visit_leaf
    visit_prim_value_ = _visit_leaf
    visit_string_imm_ = _visit_leaf
    visit_data_type_imm_ = _visit_leaf

    @override
    def visit_tuple_(self, op: rx.Tuple) -> None:
        self._visit_operands(op, *op.fields)

    @override
    def visit_var_(self, op: rx.Var) -> None:
        self._visit_operands(op)

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
        self._visit_operands(op, op.cond, op.true_branch, op.false_branch)

    @override
    def visit_op_(self, op: Op) -> None:
        pass

    @override
    def visit_tuple_getitem_(self, op: rx.TupleGetItem) -> None:
        self._visit_operands(op, op.tuple_value)

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
