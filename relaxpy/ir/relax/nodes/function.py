"""Bindings, blocks, sequences, conditionals and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import WRAPPER_ASSIGNMENTS
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node, as_attrs, set_fields
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import base_classes as base
from relaxpy.ir.relax.nodes.expr import DataflowVar, GlobalVar, Var, make_call
from relaxpy.ir.relax.nodes.struct_info import DEFAULT_DERIVE, FuncStructInfo, ObjectStructInfo
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VarBinding(Node):
    """`var` = `value` (AST-18)."""

    _fields = ("var", "value")
    _binds = frozenset(("var",))
    var: Var
    value: base.Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        base.check_kind(self.var, Var, "a variable", "AST-18")
        base.check_expr(self.value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MatchCast(Node):
    """A check of `value` against `struct_info`, which binds `var` if there is one (AST-19)."""

    _fields = ("value", "struct_info", "var")
    _binds = frozenset(("var", "struct_info"))
    _binds_shape_vars = frozenset(("struct_info",))
    var: Var | None
    value: base.Expr
    struct_info: base.StructInfo
    span: Span | None = None

    def __post_init__(self) -> None:
        if self.var is not None:
            base.check_kind(self.var, Var, "a variable", "AST-19")
        base.check_expr(self.value)
        set_fields(self, struct_info=base.as_struct_info(self.struct_info))

    @property
    def ty(self) -> base.StructInfo:
        """The name of `struct_info` in TVM after v0.22."""
        return self.struct_info


Binding: TypeAlias = VarBinding | MatchCast


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BindingBlock(Node):
    """Bindings in order (AST-17)."""

    _fields = ("bindings",)
    var_type: ClassVar[type[Var]] = Var
    """The kind of variables that are bound here, unless they are outputs of a dataflow block."""
    bindings: tuple[Binding, ...]
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(self, bindings: Sequence[Binding], span: Span | None = ...) -> None: ...

    def __post_init__(self) -> None:
        bindings = base.as_members(self.bindings, "bindings", "AST-17")
        for binding in bindings:
            if type(binding) is not VarBinding:
                base.check_kind(binding, (VarBinding, MatchCast), "a binding", "AST-17")
        set_fields(self, bindings=bindings)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataflowBlock(BindingBlock):
    """Bindings without side effects or control flow (PU-5, WF-7)."""

    var_type = DataflowVar


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeqExpr(base.Expr):
    """Blocks in order, then the value of `body` (AST-10)."""

    _fields = ("blocks", "body")
    _derived_from = frozenset(("body",))
    blocks: tuple[BindingBlock, ...]
    body: base.Expr
    struct_info: base.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            blocks: Sequence[BindingBlock],
            body: base.Expr,
            span: Span | None = ...,
            *,
            struct_info: base.StructInfo | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        blocks = base.as_members(self.blocks, "blocks", "AST-10")
        for block in blocks:
            base.check_kind(block, BindingBlock, "a block", "AST-10")
        base.check_expr(self.body)
        set_fields(self, blocks=blocks, struct_info=base.as_declared(self.struct_info))


def function_attrs(attrs: Mapping[str, object] | None) -> Attrs:
    """The attributes of a function; names in `tirx`, as TVM 0.27 calls `tir`, are those in `tir`.

    Errors:
        MisuseError (also TypeError): the `global_symbol` is not a string, or `relax.force_pure` is
            not a Boolean.
    """
    result = as_attrs(attrs)
    if not result:
        return result
    if any(key.startswith("tirx.") for key in result):
        pairs = result.items()
        result = Attrs({f"tir.{k[5:]}" if k.startswith("tirx.") else k: v for k, v in pairs})
    forced = result.get("relax.force_pure")
    check_type(forced, int | None, "relax.force_pure is True or False", rule="WF-21")
    symbol = result.get("global_symbol")
    if symbol is not None and not isinstance(symbol, str):
        raise unexpected(symbol, "global_symbol is a string", rule="WF-13")
    return result


def as_seq(body: base.Expr | Op) -> SeqExpr:
    """Wrap `body` in a SeqExpr without blocks, unless it is a SeqExpr (NF-6, NF-7).

    Errors:
        MisuseError (also TypeError): `body` is not an expression.
    """
    if isinstance(body, SeqExpr):
        return body
    seq = SeqExpr((), body)  # type: ignore[arg-type]
    if isinstance(body, base.Expr):
        set_fields(seq, struct_info=body.struct_info, span=body.span)
    return seq


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(base.Expr):
    """A conditional (AST-13); a branch that is not a SeqExpr is wrapped in one (NF-7)."""

    _fields = ("cond", "true_branch", "false_branch")
    _derived_from = frozenset(("true_branch", "false_branch"))
    cond: base.Expr
    true_branch: SeqExpr
    false_branch: SeqExpr
    struct_info: base.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            cond: base.Expr,
            true_branch: base.Expr,
            false_branch: base.Expr,
            span: Span | None = ...,
            *,
            struct_info: base.StructInfo | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        base.check_expr(self.cond)
        branches = as_seq(self.true_branch), as_seq(self.false_branch)
        sinfo = base.as_declared(self.struct_info)
        set_fields(self, true_branch=branches[0], false_branch=branches[1], struct_info=sinfo)


class BaseFunc(base.Expr):
    """The base class of the functions of a module: Function, PrimFunc and ExternFunc.

    One that was written in Python has the metadata of that function, as after `functools.wraps`.
    """

    __slots__ = ("__dict__",)  # for this metadata, which the type would hide otherwise
    attrs: Attrs

    @property
    def __name__(self) -> str:
        """The global symbol, or the name in Python, which its tools show.

        Errors:
            AttributeError: there is none, since the function is private or local.
        """
        symbol = self.attrs.get("global_symbol")
        if isinstance(symbol, str):
            return symbol
        try:
            name: str = self.__dict__["__wrapped__"].__name__
        except KeyError:
            message = f"this {type(self).__name__} has no name"
            raise AttributeError(message, name="__name__") from None
        return name

    def documented_as(self, function: FunctionType) -> Self:
        """This function with the docstring, the signature and the module of one of Python."""
        metadata = (name for name in WRAPPER_ASSIGNMENTS if name != "__name__")
        self.__dict__.update({name: getattr(function, name) for name in metadata})
        # Without a docstring, `help` describes the origin instead of the class of the object.
        self.__dict__.update({"__wrapped__": function, "__origin__": function})
        return self

    @user_facing
    def graph(self, fold: bool | None = None) -> Any:
        """The dataflow as a picture, which notebooks show."""
        return hooks.call("graph", self, fold)

    def with_attr(
        self, attr_key_or_dict: str | Mapping[str, object], attr_value: object = None
    ) -> Self:
        """A copy of this function with attribute `attr_key_or_dict`, or a table of attributes, set.

        Errors:
            MisuseError (also TypeError): `attr_key_or_dict` is neither a name nor a table.
        """
        check_type(
            attr_key_or_dict, (str, Mapping), "expected the name of an attribute, or a table"
        )
        changes = (
            {attr_key_or_dict: attr_value}
            if isinstance(attr_key_or_dict, str)
            else dict(attr_key_or_dict)
        )
        return self._with_attrs(self.attrs.updated(changes))

    @user_facing
    def with_attrs(self, attr_map: Mapping[str, object]) -> Self:
        """A copy of this function with a table of attributes set."""
        return self._with_attrs(self.attrs.updated(attr_map))

    @user_facing
    def without_attr(self, attr_key: str) -> Self:
        """A copy of this function without attribute `attr_key`."""
        return self._with_attrs(self.attrs.without(attr_key))

    def _with_attrs(self, attrs: Attrs) -> Self:
        return replace(self, attrs=attrs)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(BaseFunc):
    """A Relax function (AST-11), whose name is that of the binding or module entry (AST-12).

    A body that is not a SeqExpr is wrapped in one (NF-6). `callees` are the functions that a
    function outside of a module calls, directly or indirectly, by name.
    """

    _fields = ("params", "is_pure", "body", "ret_struct_info", "attrs")
    _derived_from = frozenset(("params", "is_pure", "body", "ret_struct_info"))
    _binds = frozenset(("params",))
    _binds_shape_vars = frozenset(("params",))
    _scope = True
    _compared_as: ClassVar[Mapping[str, str]] = {"ret_struct_info": "result_sinfo"}
    params: tuple[Var, ...]
    body: SeqExpr
    ret_struct_info: base.StructInfo | None = None
    is_pure: bool = True
    attrs: Attrs = EMPTY_ATTRS
    #: A FuncStructInfo; None only before it is derived, as where a function is made by hand.
    struct_info: Any = field(default=None, kw_only=True)
    callees: Attrs = field(default=EMPTY_ATTRS, kw_only=True)
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            params: Sequence[Var],
            body: base.Expr,
            ret_struct_info: base.StructInfo | None = ...,
            is_pure: bool | None = ...,
            attrs: Mapping[str, object] | None = ...,
            span: Span | None = ...,
            *,
            struct_info: base.StructInfo | None = ...,
            callees: Mapping[str, object] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        params = base.as_members(self.params, "parameters", "AST-11")
        for param in params:
            base.check_kind(param, Var, "a variable", "AST-11")
        set_fields(
            self,
            params=params,
            body=as_seq(self.body),
            ret_struct_info=base.as_declared(self.ret_struct_info),
            is_pure=True if self.is_pure is None else bool(self.is_pure),
            attrs=function_attrs(self.attrs),
            callees=as_attrs(self.callees),
            struct_info=base.as_declared(self.struct_info),
        )

    @property
    def ret_ty(self) -> base.StructInfo | None:
        """The name of `ret_struct_info` in TVM after v0.22."""
        return self.ret_struct_info

    @property
    def result_sinfo(self) -> base.StructInfo | None:
        """The struct info that structural equality compares for the result of this function.

        It is the annotation if that is more precise than the body's, and else None: whether an
        annotation is written, and how little it says, makes no difference. Callers see
        `struct_info`.

        Rule:
            DER-46, DER-47.
        """
        declared = self.ret_struct_info
        if declared is None and isinstance(self.struct_info, FuncStructInfo):
            declared = self.struct_info.ret
        if declared is None:
            return None
        result: base.Expr | Op = self.body.body
        derived = self.body.struct_info
        if derived is None and not isinstance(result, Op):  # an Op is ill-formed (WF-9)
            derived = result.struct_info
        if derived == declared:
            return None
        return None if declared.is_base_of(derived or ObjectStructInfo()) else declared

    @staticmethod
    @user_facing
    def create_empty(
        params: Sequence[Var],
        ret_struct_info: base.StructInfo,
        is_pure: bool = True,
        attrs: Mapping[str, object] | None = None,
    ) -> Function:
        """A declaration: a function whose body is a variable that is not bound yet."""
        ret = base.as_struct_info(ret_struct_info)
        body = SeqExpr((), Var("undefined", ret), struct_info=ret)
        sinfos = tuple(p.struct_info or ObjectStructInfo() for p in params)
        sinfo = FuncStructInfo(sinfos, ret, is_pure)
        return Function(tuple(params), body, ret, is_pure, as_attrs(attrs), struct_info=sinfo)

    @user_facing
    def bind_params(self, binding_map: Mapping[Var | str, object]) -> Function:
        """See `relaxpy.ir.relax.rewrite.bind.bind_params`."""
        result: Function = hooks.call("bind_params", self, binding_map)
        return result

    @user_facing
    def bind_symbolic_vars(
        self, binding_map: Mapping[tir.Var | str, tir.PrimExpr | int]
    ) -> Function:
        """See `relaxpy.ir.relax.rewrite.bind.bind_symbolic_vars`."""
        result: Function = hooks.call("bind_symbolic_vars", self, binding_map)
        return result

    @user_facing
    def inline_functions(self, function_map: Mapping[GlobalVar | str, Function]) -> Function:
        """See `relaxpy.ir.relax.rewrite.bind.inline_functions`."""
        result: Function = hooks.call("inline_functions", self, function_map)
        return result

    @override
    @user_facing
    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        """Run this function on arrays, or build a Call if an argument contains an expression."""
        if not any(map(_contains_expr, (*args, *kwargs.values()))):
            return hooks.call("call_function", self, args, kwargs)
        named = sorted(kwargs.keys() - {"attrs"})
        if named:
            raise MisuseError(
                f"a call in a program passes its arguments by position, found {named[0]}=...",
                rule="AST-15",
                about=kwargs[named[0]],
            )
        return make_call(self, args, cast("Mapping[str, object] | None", kwargs.get("attrs")))


def _contains_expr(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_contains_expr, value))
    return isinstance(value, base.Expr)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ExternFunc(BaseFunc):
    """A packed function, by its registered name (AST-14, DER-34)."""

    _fields = ("global_symbol", "attrs")
    global_symbol: str
    struct_info: base.StructInfo | None = None
    attrs: Attrs = field(default=EMPTY_ATTRS, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        base.check_name(self.global_symbol, "the name of a packed function")
        sinfo = base.as_declared(self.struct_info)
        if sinfo is None:
            sinfo = FuncStructInfo.opaque_func(derive_func=DEFAULT_DERIVE)
        base.check_kind(sinfo, FuncStructInfo, "a Callable struct info", "DER-34")
        set_fields(self, struct_info=sinfo, attrs=function_attrs(self.attrs))
