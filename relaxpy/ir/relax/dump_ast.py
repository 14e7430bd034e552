"""The tree of nodes that a program is, as text: to show how programs are put together."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Attr
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.nodes.static_type import DynTensorType, FuncType, ShapeType, TupleType, Type
from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor
from relaxpy.ir.tir.expr import PrimExpr


@user_facing
def dump_ast(
    expr: Expr | BindingBlock | VarBinding | MatchCast,
    indent_str: str = "    ",
    include_struct_info_annotations: bool = True,
    include_call_attrs: bool = True,
) -> str:
    """The nodes of an expression, block or binding as nested constructor calls, field by field."""
    printer = ASTPrinter(indent_str, include_struct_info_annotations, include_call_attrs)
    return printer.node(expr)


def _quoted(text: object) -> str:
    return f'"{text}"'


def _plain(value: Attr) -> str:
    return _quoted(value) if isinstance(value, str) else str(value)


class ASTPrinter(ExprFunctor):
    """Writes nodes as nested constructor calls; see `dump_ast`."""

    def __init__(
        self,
        indent_str: str = "    ",
        include_struct_info_annotations: bool = True,
        include_call_attrs: bool = True,
    ) -> None:
        self.indent = indent_str
        self.infos = include_struct_info_annotations
        self.attrs = include_call_attrs

    def node(self, node: object) -> str:
        """A node of a graph, or a part of one, as a constructor call."""
        match node:
            case BindingBlock():
                kind = type(node).__name__
                return self._node(kind, bindings=self._listed(map(self.node, node.bindings), True))
            case VarBinding(var=var, value=value):
                return self._node("VarBinding", var=self.node(var), value=self.node(value))
            case MatchCast(var=var, value=value, struct_info=info):
                bound = "None" if var is None else self.node(var)
                checked = self.visit_struct_info_(info)
                return self._node(
                    "MatchCast", var=bound, value=self.node(value), struct_info=checked
                )
            case PrimExpr():
                return self._node("PrimExpr", value=f"`{node}`")
            case Expr() | Op():
                text: str = self.visit_expr(node)
                return text
            case _:
                raise MisuseError(f"expected a node of Relax, found {node!r:.60}", about=node)

    def _list(self, members: Iterable[object]) -> str:
        return self._listed(map(self.node, members))

    def _listed(
        self, members: Iterable[str], newline: bool = False, *, begin: str = "[", end: str = "]"
    ) -> str:
        """Members on lines of their own; one that is short beside the brackets."""
        texts = list(members)
        if not texts:
            return begin + end
        if len(texts) == 1 and not newline and "\n" not in texts[0]:
            return begin + texts[0] + end
        lines = ",\n".join(
            "\n".join(self.indent + line for line in text.split("\n")) for text in texts
        )
        return f"{begin}\n{lines}\n{end}"

    def _node(self, kind: str, **fields: object) -> str:
        texts = [f"{name}={text}" for name, text in fields.items()]
        return self._listed(texts, begin=f"{kind}(", end=")")

    def _expr(self, expr: Expr, **fields: object) -> str:
        if self.infos and expr.struct_info is not None:
            fields["struct_info"] = self.visit_struct_info_(expr.struct_info)
        return self._node(type(expr).__name__, **fields)

    def visit_struct_info_(self, info: StructInfo) -> str:
        """An info as a constructor call."""
        kind = type(info).__name__
        match info:
            case TensorStructInfo(dtype=dtype, shape=None, ndim=ndim):
                return self._node(kind, dtype=dtype, ndim=ndim)
            case TensorStructInfo(dtype=dtype, shape=shape):
                return self._node(kind, dtype=dtype, shape=self.node(shape))
            case ShapeStructInfo(ndim=ndim, values=None):
                return self._node(kind, ndim=ndim)
            case ShapeStructInfo(ndim=ndim, values=values):
                return self._node(kind, ndim=ndim, values=self._list(values or ()))
            case PrimStructInfo(dtype=dtype):
                return self._node(kind, dtype=dtype)
            case TupleStructInfo(fields=fields):
                return self._node(kind, fields=self._listed(map(self.visit_struct_info_, fields)))
            case FuncStructInfo(params=params, ret=ret, purity=purity):
                parts: dict[str, object] = {}
                if params is not None:
                    parts["params"] = self._listed(map(self.visit_struct_info_, params))
                return self._node(kind, **parts, ret=self.visit_struct_info_(ret), purity=purity)
            case _:
                assert isinstance(info, ObjectStructInfo)
                return self._node(kind)

    def visit_type_(self, type_: Type) -> str:
        """A type as a constructor call."""
        kind = type(type_).__name__
        match type_:
            case ShapeType(ndim=ndim):
                return self._node(kind, ndim=ndim)
            case DynTensorType(ndim=ndim, dtype=dtype):
                return self._node(kind, ndim=ndim, dtype=dtype)
            case TupleType(fields=fields):
                return self._node(kind, fields=self._listed(map(self.visit_type_, fields)))
            case FuncType(arg_types=args, ret_type=ret):
                arg_types = self._listed(map(self.visit_type_, args))
                return self._node(kind, arg_types=arg_types, ret_type=self.visit_type_(ret))
            case _:
                return self._node(kind)

    def _table(self, items: Iterable[tuple[str, Attr]]) -> str:
        return self._listed((f"{_quoted(k)}: {_plain(v)}" for k, v in items), begin="{", end="}")

    @override
    def visit_constant_(self, op: Constant) -> str:
        return self._expr(op, data=op.data)

    @override
    def visit_tuple_(self, op: Tuple) -> str:
        return self._expr(op, fields=self._list(op.fields))

    @override
    def visit_var_(self, op: Var) -> str:
        return self._expr(op, name_hint=_quoted(op.name_hint))

    @override
    def visit_dataflow_var_(self, op: DataflowVar) -> str:
        return self.visit_var_(op)

    @override
    def visit_shape_expr_(self, op: ShapeExpr) -> str:
        return self._expr(op, values=self._list(op.values))

    @override
    def visit_extern_func_(self, op: ExternFunc) -> str:
        return self._node("ExternFunc", global_symbol=_quoted(op.global_symbol))

    @override
    def visit_global_var_(self, op: GlobalVar) -> str:
        return self._expr(op, name_hint=_quoted(op.name_hint))

    @override
    def visit_function_(self, op: Function) -> str:
        fields: dict[str, object] = {"params": self._list(op.params), "body": self.node(op.body)}
        if op.ret_struct_info is not None:
            fields["ret_struct_info"] = self.visit_struct_info_(op.ret_struct_info)
        fields["is_pure"] = op.is_pure
        if op.attrs:
            fields["attrs"] = self._table(op.attrs.items())
        return self._expr(op, **fields)

    @override
    def visit_call_(self, op: Call) -> str:
        fields: dict[str, object] = {"op": self.node(op.op), "args": self._list(op.args)}
        if op.sinfo_args:
            fields["sinfo_args"] = self._listed(map(self.visit_struct_info_, op.sinfo_args))
        if op.attrs and self.attrs:
            fields["attrs"] = self._table(op.attrs.items())
        return self._expr(op, **fields)

    @override
    def visit_seq_expr_(self, op: SeqExpr) -> str:
        return self._expr(op, blocks=self._list(op.blocks), body=self.node(op.body))

    @override
    def visit_if_(self, op: If) -> str:
        branches = {"true_branch": self.node(op.true_branch)}
        branches["false_branch"] = self.node(op.false_branch)
        return self._expr(op, cond=self.node(op.cond), **branches)

    @override
    def visit_op_(self, op: Op) -> str:
        return self._node("Op", name=_quoted(op.name))

    @override
    def visit_tuple_getitem_(self, op: TupleGetItem) -> str:
        return self._expr(op, tuple_value=self.node(op.tuple_value), index=op.index)

    @override
    def visit_prim_value_(self, op: PrimValue) -> str:
        return self._expr(op, value=self.node(op.value))

    @override
    def visit_string_imm_(self, op: StringImm) -> str:
        return self._expr(op, value=_quoted(op.value))

    @override
    def visit_data_type_imm_(self, op: DataTypeImm) -> str:
        return self._expr(op, value=op.value)

    @override
    def visit_binding_block_(self, block: BindingBlock) -> str:
        return self.node(block)

    @override
    def visit_dataflow_block_(self, block: DataflowBlock) -> str:
        return self.node(block)
