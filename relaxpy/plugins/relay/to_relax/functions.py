"""Translation of one function: the expressions of each scope in their order of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import Diagnostic, RelaxpyError, Span
from relaxpy.ir.core.budget import Task, run
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import Scope, Scopes
from relaxpy.plugins.relay.analysis.variables import free_vars
from relaxpy.plugins.relay.infer.solver import substitute
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.op.relations import RelationError
from relaxpy.plugins.relay.op.struct_info import Names, translated
from relaxpy.plugins.relay.ty import (
    FuncType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeVar,
    UnknownDim,
)


class UntranslatableError(RelationError):
    """Relax cannot express something of Relay; `rule` is the rule that defines it."""

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class StructInfos(Names):
    """The struct infos of the types in one function, whose type parameters have `instances`.

    A ShapeVar is one shape variable in the whole function; each `?` of a parameter is a new one.
    """

    def __init__(self, instances: Mapping[TypeVar, Any]) -> None:
        super().__init__()
        self.instances = dict(instances)

    def substituted(self, ty: Type) -> Type:
        """A type with the type parameters of the function replaced by their instances."""
        result: Type = substitute(ty, self.instances)
        return result

    @override
    def struct_info(self, ty: Type) -> rx.StructInfo:
        """The struct info of a parameter.

        Errors:
            UntranslatableError: Relax has no values of this type.
        """
        match ty:
            case FuncType():
                return self._function(ty)
            case TensorType() | TupleType():
                return super().struct_info(ty)
            case _:
                raise refusal(ty)

    def _function(self, ty: FuncType) -> rx.FuncStructInfo:
        if any(param.kind is TypeKind.Type for param in ty.type_params):
            raise refusal(ty)
        params = [self.struct_info(arg) for arg in ty.arg_types]
        return rx.FuncStructInfo(params, self.result(ty.ret_type, ty.arg_types))  # type: ignore[arg-type]

    def result(self, ty: Type, params: tuple[Type, ...]) -> rx.StructInfo:
        """The struct info of the result of a function with parameters of these types.

        A shape with a dimension that is not known, or that no parameter defines, is open.
        """
        bound = {dim for param in params for dim in _defined(param)}

        def visit(part: Type) -> rx.StructInfo:
            match part:
                case TupleType(fields=fields):
                    return rx.TupleStructInfo([visit(field) for field in fields])  # type: ignore[arg-type]
                case TensorType(shape=tuple() as shape, dtype=dtype) if any(
                    isinstance(dim, UnknownDim) or (isinstance(dim, TypeVar) and dim not in bound)
                    for dim in shape
                ):
                    known = dtype if isinstance(dtype, DataType) else DataType("")
                    return rx.TensorStructInfo(dtype=known, ndim=len(shape))
                case _:
                    return self.struct_info(part)

        return visit(ty)

    def needs_cast(self, sinfo: rx.StructInfo | None, ty: Type) -> bool:
        """True if struct info says less than a type does.

        Errors:
            UntranslatableError: a function does not have the type, and no cast can change that.
        """
        match ty, sinfo:
            case TensorType(), rx.TensorStructInfo():
                return self._tensor_needs_cast(sinfo, ty)
            case TupleType(fields=types), rx.TupleStructInfo(fields=fields):
                pairs = zip(fields, types, strict=True)
                return any(self.needs_cast(field, expected) for field, expected in pairs)
            case FuncType(), rx.FuncStructInfo():
                if not is_base_of(self.struct_info(ty), sinfo):
                    raise UntranslatableError(
                        f"a function that is expected to be {ty} has other dimensions", "RLY-88"
                    )
                return False
            case _:
                return True

    def _tensor_needs_cast(self, sinfo: rx.TensorStructInfo, ty: TensorType) -> bool:
        if isinstance(ty.dtype, DataType) and sinfo.dtype != ty.dtype:
            return True
        if not isinstance(ty.shape, tuple):
            return False
        shape = sinfo.get_shape()
        if shape is None or len(shape) != len(ty.shape):
            return True
        return any(
            self.variables.get(dim) is not size
            if isinstance(dim, TypeVar)
            else isinstance(dim, int) and not (isinstance(size, tir.IntImm) and size.value == dim)
            for dim, size in zip(ty.shape, shape, strict=True)
        )


def _defined(param: Type) -> list[TypeVar]:
    """The dimensions that a parameter defines: those of tensors in it."""
    match param:
        case TupleType(fields=fields):
            return [dim for field in fields for dim in _defined(field)]
        case TensorType(shape=tuple() as shape):
            return [dim for dim in shape if isinstance(dim, TypeVar)]
        case _:
            return []


def refusal(ty: Type) -> UntranslatableError:
    """The reason why Relax has no values of a type."""
    for part in reversed(list(walk(ty))):
        match part:
            case TypeCall():
                return UntranslatableError(f"{part} is a data type", "RLY-31")
            case RefType():
                return UntranslatableError(f"{part} is a reference cell", "RLY-105")
            case FuncType(type_params=params) if any(p.kind is TypeKind.Type for p in params):
                return UntranslatableError(f"{part} is a polymorphic function", "RLY-97")
            case _:
                pass
    return UntranslatableError(f"{ty} is a type parameter of no known instance", "RLY-97")


_OTHERS: Final = ("Primitive", "global_symbol")
Callee = Callable[[str, tuple[Any, ...]], rx.GlobalVar]
"""The Relax function of a function of the module, for type arguments."""


class Obstacles(Exception):  # noqa: N818
    """Expressions that Relax cannot express, with the reasons."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        super().__init__()
        self.diagnostics = tuple(diagnostics)


def signature(function: rl.Function, infos: StructInfos) -> tuple[list[rx.Var], rx.StructInfo]:
    """The parameters of a function with types, and the struct info of its result.

    Errors:
        Obstacles: a type is not one of Relax.
    """
    params: list[rx.Var] = []
    types: list[Type] = []
    span = function.span
    try:
        for param in function.params:
            span = param.span or function.span
            assert param.type_annotation is not None
            types.append(infos.substituted(param.type_annotation))
            params.append(rx.Var(param.name_hint, infos.struct_info(types[-1]), span=param.span))
        span = function.span
        assert function.ret_type is not None
        result = infos.result(infos.substituted(function.ret_type), tuple(types))
    except UntranslatableError as error:
        raise Obstacles([Diagnostic(str(error), error.rule, span)]) from None
    return params, result


@contextmanager
def located(node: rl.RelayExpr) -> Iterator[None]:
    """Give the errors of the translation of an expression its position."""
    what = f"{node.op.name}: " if isinstance(node, rl.Call) and isinstance(node.op, Op) else ""
    try:
        yield
    except UntranslatableError as error:
        raise Obstacles([Diagnostic(str(error), error.rule, node.span)]) from None
    except RelaxpyError as error:
        found = error.diagnostic
        raise Obstacles([Diagnostic(what + found.message, found.rule, node.span)]) from None
    except (RelationError, TypeError, ValueError) as error:  # an attribute of a wrong type
        raise Obstacles([Diagnostic(f"{what}{error}", "RLY-28", node.span)]) from None


def translated_sinfo(params: Sequence[rx.Var], result: rx.StructInfo) -> rx.FuncStructInfo:
    """The struct info of a function of these parameters."""
    return rx.FuncStructInfo(tuple(p.struct_info for p in params if p.struct_info), result)


def kept_attrs(function: rl.Function) -> dict[str, Any]:
    """The attributes of a function, except for those that mean something else in Relax."""
    return {key: value for key, value in function.attrs.items() if key not in _OTHERS}


class FunctionTranslation:
    """The translation of a function of the module in the open function of a builder."""

    def __init__(
        self,
        module: RelayModule,
        builder: BlockBuilder,
        function: rl.Function,
        infos: StructInfos,
        callee: Callee,
    ) -> None:
        self.module = module
        self.builder = builder
        self.function = function
        self.infos = infos
        self.callee = callee
        self.scopes = Scopes(function)
        self.values: dict[int, rx.Expr] = {}
        self.names = {id(let.value): let.var for let in self.scopes.lets}

    def body(self, params: Sequence[rx.Var]) -> rx.Expr:
        """Emit the body of the function, and return its result.

        Errors:
            Obstacles: an expression cannot be translated.
        """
        return run(self._body(self.function, params))

    def _body(self, function: rl.Function, params: Sequence[rx.Var]) -> Task[rx.Expr]:
        for param, var in zip(function.params, params, strict=True):
            self.values[id(param)] = var
        value = yield self._scope(self.scopes.inner[id(function)][0])
        assert function.ret_type is not None
        with located(function):
            return self._cast(value, function.ret_type, function.span)

    def _scope(self, scope: Scope) -> Task[rx.Expr]:
        """Emit the expressions of a scope in order, and return the value of its root."""
        while True:
            root = scope.root
            last = root if self.scopes.of.get(id(root)) is scope else None
            for node in scope.nodes:
                if node is not last or not isinstance(node, rl.Let):
                    yield self._emitted(node)
            if not isinstance(last, rl.Let):
                with located(root):
                    return self._value(root)
            self._bind(last)
            scope = self.scopes.inner[id(last)][0]

    def _bind(self, let: rl.Let) -> None:
        with located(let):
            value = self._value(let.value)
            if let.var.type_annotation is not None:
                value = self._cast(value, let.var.type_annotation, let.span)
            self.values[id(let.var)] = value

    def _emitted(self, node: rl.RelayExpr) -> Task[None]:
        """Emit an expression whose operands have values."""
        if isinstance(node, rl.Let):
            self._bind(node)
            self.values[id(node)] = yield self._scope(self.scopes.inner[id(node)][0])
            return
        name = self.names.get(id(node))
        hint = "" if name is None else name.name_hint
        with located(node):
            expr = yield self._node(node)
            if not isinstance(expr, (rx.Var, rx.Constant)):
                expr = self.builder.emit(expr, hint, span=node.span)
            if isinstance(node, (rl.Call, rl.If)):
                expr = self._cast(expr, node.checked_type, node.span)
            self.values[id(node)] = expr

    def _cast(self, value: rx.Expr, ty: Type, span: Span | None) -> rx.Expr:
        """A value with the struct info of a type, which is checked at run time."""
        ty = self.infos.substituted(ty)
        if not self.infos.needs_cast(self.builder.struct_info_of(value), ty):
            return value
        result = self.builder.match_cast(value, self.infos.struct_info(ty), span=span)
        assert result is not None
        return result

    def _value(self, expr: rl.RelayExpr) -> rx.Expr:
        """The value of an operand."""
        match expr:
            case rl.Constant(data=data):
                return rx.Constant(data, span=expr.span)
            case rl.GlobalVar(name_hint=name):
                return self.callee(name, ())
            case _:
                return self.values[id(expr)]

    def _node(self, node: rl.RelayExpr) -> Task[rx.Expr]:
        match node:
            case rl.Tuple(fields=fields):
                return rx.Tuple(tuple(map(self._value, fields)))
            case rl.TupleGetItem(tuple_value=value, index=index):
                return rx.TupleGetItem(self._value(value), index)
            case rl.Function():
                return (yield from self._closure(node))
            case rl.Call():
                return self._call(node)
            case rl.If(cond=cond):
                true, false = self.scopes.inner[id(node)]
                true_branch = yield self._branch(true)
                false_branch = yield self._branch(false)
                return rx.If(self._value(cond), true_branch, false_branch)
            case _:
                assert isinstance(node, rl.Match)
                return (yield from self._match(node))

    def _branch(self, scope: Scope) -> Task[rx.SeqExpr]:
        self.builder.begin_scope()
        value = yield self._scope(scope)
        return self.builder.end_scope(value)

    def _closure(self, node: rl.Function) -> Task[rx.Var]:
        """Emit a local function, which may call itself if a let binds it (RLY-14, RLY-15)."""
        name = self.names.get(id(node))
        params, result = signature(node, self.infos)
        sinfo = translated_sinfo(params, result)
        var = rx.Var("closure" if name is None else name.name_hint, sinfo)
        if name is not None and name in free_vars(node):
            self.builder.declare(var)
            self.values[id(name)] = var
        self.builder.begin_scope(params)
        value = yield self._body(node, params)
        body = self.builder.end_scope(value)
        attrs = kept_attrs(node)
        function = rx.Function(params, body, result, attrs=attrs, span=node.span)  # type: ignore[arg-type]
        return self.builder.emit(function, var=var)

    def _call(self, node: rl.Call) -> rx.Expr:
        if isinstance(node.op, Op):
            args = tuple(map(self._value, node.args))
            ty = self.infos.substituted(node.checked_type)
            return translated(self.builder, node.op.record, args, node.attrs, ty)
        if isinstance(node.op, rl.GlobalVar):
            type_args = tuple(map(self.infos.substituted, node.type_args))
            callee: rx.Expr = self.callee(node.op.name_hint, type_args)
            ty = self.module[node.op.name_hint].checked_type
        else:
            callee, ty = self._value(node.op), node.op.checked_type
        assert isinstance(ty, FuncType)
        table = dict(zip(ty.type_params, node.type_args, strict=True))
        operands = [
            self._cast(self._value(arg), substitute(param, table), arg.span or node.span)
            for arg, param in zip(node.args, ty.arg_types, strict=True)
        ]
        return rx.Call(callee, tuple(operands))

    def _match(self, node: rl.Match) -> Task[rx.Expr]:
        """Emit a match without constructors, whose first clause fits."""
        clause, scope = node.clauses[0], self.scopes.inner[id(node)][0]
        stack = [(clause.lhs, self._value(node.data))]
        while stack:
            pattern, subject = stack.pop()
            match pattern:
                case rl.PatternVar(var=var):
                    if var.type_annotation is not None:
                        subject = self._cast(subject, var.type_annotation, clause.span)
                    self.values[id(var)] = subject
                case rl.PatternTuple(patterns=patterns):
                    for index, part in enumerate(patterns):
                        field = self.builder.emit(rx.TupleGetItem(subject, index))
                        stack.append((part, field))
                case _:
                    pass
        value: rx.Expr = yield self._scope(scope)
        return value
