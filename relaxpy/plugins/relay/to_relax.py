"""`relay.to_relax`: the translation of modules and their functions to Relax.

The expressions of each scope are bound in their order of evaluation. Functions without a
translation stay out, for reasons that an error or a warning names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import (
    Diagnostic,
    RelaxpyError,
    RelayTypeError,
    Span,
    TransformError,
    check_type,
)
from relaxpy.ir.core.budget import Task, run
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.passes.cleanup.dataflow_blocks import ConvertToDataflow
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import Scope, Scopes, same_scope, scope_roots
from relaxpy.plugins.relay.infer.solver import substitute
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.op.relations import RelationError
from relaxpy.plugins.relay.op.struct_info import Names, translated
from relaxpy.plugins.relay.transform.fuse_ops import defused
from relaxpy.plugins.relay.transform.inline import is_polymorphic, values_expanded
from relaxpy.plugins.relay.transform.passes import map_functions, with_fresh_variables
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
from relaxpy.plugins.relay.variables import free_vars
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused


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
        return rx.FuncStructInfo(params, self.result(ty.ret_type, ty.arg_types))

    def result(self, ty: Type, params: tuple[Type, ...]) -> rx.StructInfo:
        """The struct info of the result of a function with parameters of these types.

        A shape with a dimension that is not known, or that no parameter defines, is open.
        """
        bound = {dim for param in params for dim in _defined(param)}

        def visit(part: Type) -> rx.StructInfo:
            match part:
                case TupleType(fields=fields):
                    return rx.TupleStructInfo([visit(field) for field in fields])
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
        function = rx.Function(params, body, result, attrs=attrs, span=node.span)
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


_MAX_INSTANCES: Final = 4096
"""The number of instances of local functions in a function."""


def prepared(module: RelayModule) -> RelayModule:
    """A typed module for translation.

    Operators and polymorphic functions that are values become functions that call them. Local
    polymorphic functions are replaced by their instances.
    """
    result = _inferred(module, defused)
    with suppress(RelayTypeError):  # the use of a value does not say its whole type
        result = _inferred(result, partial(values_expanded, module=result))
    return _inferred(result, _specialised)


def _inferred(module: RelayModule, transform: Callable[[rl.Function], rl.RelayExpr]) -> RelayModule:
    """The typed module of transformed functions; the given one if none changed."""
    new = map_functions(module, transform)
    return module if new is module else infer_module(new)


# Instances of local functions


def _specialised(function: rl.Function) -> rl.RelayExpr:
    """A function in which calls of local polymorphic functions call instances of these.

    It is the function itself if there are none, or none whose types are known.
    """

    def rule(node: Node) -> Node | None:
        match node:
            case rl.Call(op=rl.Function() as callee) if is_polymorphic(callee) and node.type_args:
                instance = instance_of(callee, node.type_args)
                return replace(node, op=instance, type_args=other_type_args(callee, node.type_args))
            case _:
                return None

    return _Specialisation(rl.rewrite(function, rule)).result()


class _Specialisation:
    """The instances of the polymorphic functions that lets bind in a function.

    Each has its own let, instead of that of the polymorphic function. Its body is a copy, in which
    calls demand instances of other functions.
    """

    def __init__(self, function: rl.Function) -> None:
        self.function = function
        self.templates: dict[rl.Var, rl.Function] = {}
        self.names: dict[rl.Var, dict[tuple[Any, ...], rl.Var]] = {}
        self.instances: dict[rl.Var, rl.RelayExpr] = {}

    def result(self) -> rl.RelayExpr:
        """The function with the instances; itself if there are none, or too many."""
        waiting: list[rl.RelayExpr] = [self.function]
        while waiting:
            for var, args in self._demanded(waiting.pop()):
                names, template = self.names[var], self.templates[var]
                if args in names or args in ((), template.type_params):  # or it calls itself
                    continue
                if len(self.instances) == _MAX_INSTANCES:
                    return self.function
                name = names[args] = rl.Var(f"{var.name_hint}_{len(names)}", span=var.span)
                instance = instance_of(rename(template, {var: name}), args)
                self.instances[name] = _without_type_args(instance, name)
                waiting.append(self.instances[name])
        if not self.templates:
            return self.function
        for name, body in reversed(list(self.instances.items())):  # instances inside others first
            self.instances[name] = self._rewritten(body)
        return self._rewritten(self.function)

    def _demanded(self, root: rl.RelayExpr) -> list[tuple[rl.Var, tuple[Any, ...]]]:
        """The callees and type arguments of calls in `root`, outside polymorphic functions.

        There are none if one of these functions is not translated: it is not bound by a let, calls
        itself with other types, or is used as a value.
        """
        found: dict[rl.Var, rl.Function] = {}
        uses: list[rl.Var] = []
        calls: list[rl.Var] = []
        closures = 0
        for node in walk(root):
            closures += node is not self.function and is_polymorphic(node)
            uses += (part for part in children(node) if isinstance(part, rl.Var))
            if isinstance(node, rl.Call) and isinstance(node.op, rl.Var):
                calls.append(node.op)
            elif isinstance(node, rl.Let) and is_polymorphic(node.value):
                assert isinstance(node.value, rl.Function)
                found[node.var] = node.value
                calls.append(node.var)
        as_values = Counter(uses) - Counter(calls)
        if closures > len(found) or any(var in as_values for var in found):
            return []
        if any(map(_is_polymorphic_recursion, found, found.values())):
            return []
        self.templates |= found
        self.names |= {var: {} for var in found}
        templates = set(map(id, found.values()))
        demanded: list[tuple[rl.Var, tuple[Any, ...]]] = []
        visited: set[int] = set()
        stack: list[Node] = [root]
        while stack:
            node = stack.pop()
            if id(node) in visited or id(node) in templates or isinstance(node, Type):
                continue
            visited.add(id(node))
            if isinstance(node, rl.Call) and node.op in self.templates:
                demanded.append((node.op, node.type_args))
            stack += children(node)
        return demanded

    def _rewritten(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        """An expression that binds and calls instances."""

        def rule(node: Node) -> Node | None:
            match node:
                case rl.Call(op=rl.Var() as op, type_args=args) if op in self.names:
                    name = self.names[op].get(args)
                    others = other_type_args(self.templates[op], args) if name is not None else ()
                    return None if name is None else replace(node, op=name, type_args=others)
                case rl.Let(var=var, body=body) if var in self.names:
                    for name in reversed(self.names[var].values()):
                        body = rl.Let(name, self.instances[name], body, span=node.span)
                    return body
                case _:
                    return None

        return rl.rewrite(expr, rule)


def _is_polymorphic_recursion(var: rl.Var, function: rl.Function) -> bool:
    """True if a function calls itself with other type arguments than its parameters."""
    return any(
        isinstance(node, rl.Call)
        and node.op is var
        and node.type_args not in ((), function.type_params)
        for node in walk(function)
    )


def _without_type_args(function: rl.Function, var: rl.Var) -> rl.RelayExpr:
    """An instance whose calls of itself have no type arguments any more."""

    def rule(node: Node) -> Node | None:
        is_call = isinstance(node, rl.Call) and node.op is var
        return replace(node, type_args=()) if is_call else None  # type: ignore[type-var]

    return rl.rewrite(function, rule)


def instance_of(function: rl.Function, args: tuple[Any, ...]) -> rl.Function:
    """A copy of a function, with variables of its own, for these type arguments."""
    types: dict[Node, Node] = {
        param: arg
        for param, arg in zip(function.type_params, args, strict=True)
        if param.kind is TypeKind.Type
    }
    rest = tuple(param for param in function.type_params if param not in types)
    mono = rename(replace(function, type_params=rest, checked_type_=None), types)
    return with_fresh_variables(mono)


def other_type_args(function: rl.Function, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of the type parameters that an instance still has."""
    pairs = zip(function.type_params, args, strict=True)
    return tuple(arg for param, arg in pairs if param.kind is not TypeKind.Type)


_MAX_INSIDE: Final = 12
"""The number of instances of a function that may demand each other, one by one."""
#: The rule of functions that have no translation since they refer to one that has none.
REFERENCE: Final = "RLY-5"

_Key = tuple[str, tuple[Any, ...]]


@user_facing
def to_relax(mod: RelayModule, entry_functions: Sequence[str] | None = None) -> IRModule:
    """The Relax module of the entry functions and of all functions that they refer to.

    Without entry functions, `main` is the entry; if there is no `main`, every function is one that
    is not polymorphic. Functions keep their names; a polymorphic one has a translation for each
    instance. The module is well-formed and in normal form.

    Errors:
        RelayTypeError: the module is not well-typed.
        TransformError: an expression or a type is not one of Relax; all are reported.
        UnknownNameError: the module does not have an entry function.
    """
    check_type(mod, RelayModule, "expected a Relay module")
    module = infer_module(mod)
    if entry_functions is None:
        entry_functions = ["main"] if "main" in module else _monomorphic(module)
    translation = ModuleTranslation(module)
    for name in entry_functions:
        translation.require(name)
    reasons = {d: None for found in translation.obstacles.values() for d in found}
    if reasons:  # those of functions that refer to others are no reasons of their own
        raise TransformError([d for d in reasons if d.rule != REFERENCE])
    return translation.result()


def _monomorphic(mod: RelayModule) -> list[str]:
    """The names of the functions without type parameters that stand for any type."""
    return [
        var.name_hint
        for var, function in mod.items()
        if all(param.kind is not TypeKind.Type for param in function.type_params)
    ]


def _no_translation(name: str) -> str:
    return f"the function refers to @{name}, which has no translation"


@user_facing
def untranslatable(mod: RelayModule) -> dict[str, tuple[Diagnostic, ...]]:
    """The functions that `to_relax` refuses, by name, each with the reasons.

    Errors:
        RelayTypeError: the module is not well-typed.
    """
    check_type(mod, RelayModule, "expected a Relay module")
    return translate_all(infer_module(mod)).obstacles_by_name()


def translate_all(module: RelayModule) -> ModuleTranslation:
    """The translation of all functions of a typed module that have one."""
    translation = ModuleTranslation(module)
    for var in module.functions:
        translation.require(var.name_hint)
    return translation


class ModuleTranslation:
    """The functions of a typed module that were translated, and the `obstacles` of the others."""

    def __init__(self, module: RelayModule) -> None:
        self.module = prepared(module)
        self.builder = BlockBuilder(suppress_warnings=True)
        self.names: dict[_Key, rx.GlobalVar] = {}
        self.instances: defaultdict[str, int] = defaultdict(int)
        self.obstacles: dict[_Key, tuple[Diagnostic, ...]] = {}
        self.callers: defaultdict[_Key, list[_Key]] = defaultdict(list)
        self.demanded_by: dict[_Key, _Key] = {}
        self._queue: list[tuple[_Key, StructInfos, list[rx.Var], rx.StructInfo]] = []

    @gc_paused
    def require(self, name: str) -> None:
        """Translate a function and all that it refers to, as far as they have translations."""
        self.module.get_global_var(name)
        key: _Key = (name, ())
        try:
            self._declare(key)
        except UntranslatableError as error:
            polymorphic = Diagnostic(str(error), error.rule, self.module[name].span)
            self._refuse(key, obstacles(self.module[name]) or [polymorphic])
        while self._queue:
            self._define(*self._queue.pop())

    def _refuse(self, key: _Key, diagnostics: Sequence[Diagnostic]) -> None:
        """Enter the obstacles of a function, and of all functions that refer to it."""
        self.obstacles.setdefault(key, tuple(diagnostics))
        stack = [key]
        while stack:
            refused = stack.pop()
            for caller in self.callers[refused]:
                if caller not in self.obstacles:
                    span = self.module[caller[0]].span
                    message = _no_translation(refused[0])
                    self.obstacles[caller] = (Diagnostic(message, REFERENCE, span),)
                    stack.append(caller)

    def _declare(self, key: _Key) -> rx.GlobalVar:
        """The Relax name of an instance of a function; its translation will follow."""
        known = self.names.get(key)
        if known is not None:
            return known
        name, args = key
        function = self.module[name]
        params = [p for p in function.type_params if p.kind is TypeKind.Type]
        if len(params) != len(args):
            raise UntranslatableError(
                f"@{name} is polymorphic: only its instances, at calls, have translations", "RLY-97"
            )
        if params and self._demanding(key) > _MAX_INSIDE:
            raise UntranslatableError(
                f"@{name} calls itself with other types each time: it has no end of instances",
                "RLY-97",
            )
        count = self.instances[name]
        self.instances[name] = count + 1
        infos = StructInfos(dict(zip(params, args, strict=True)))
        gvar = rx.GlobalVar(self._instance_name(f"{name}_{count}") if params else name)
        self.names[key] = gvar
        try:
            found = obstacles(function)
            if found:
                raise Obstacles(found)
            variables, result = signature(function, infos)
        except Obstacles as error:
            self._refuse(key, error.diagnostics)
        else:
            self.builder.declare_global(gvar, translated_sinfo(variables, result))
            self._queue.append((key, infos, variables, result))
        return gvar

    def _demanding(self, key: _Key) -> int:
        """The number of instances of a function that demanded an instance, through others."""
        count, caller = 0, self.demanded_by.get(key)
        while caller is not None:
            count += caller[0] == key[0]
            caller = self.demanded_by.get(caller)
        return count

    def _instance_name(self, name: str) -> str:
        """The name of an instance, which no function of the module has."""
        while name in self.module:
            name += "_"
        return name

    def _define(
        self, key: _Key, infos: StructInfos, params: list[rx.Var], result: rx.StructInfo
    ) -> None:
        function = self.module[key[0]]

        def callee(name: str, type_args: tuple[Any, ...]) -> rx.GlobalVar:
            parameters = self.module[name].type_params
            pairs = zip(parameters, type_args, strict=bool(type_args))
            types = tuple(arg for param, arg in pairs if param.kind is TypeKind.Type)
            other: _Key = (name, types)
            if other not in self.names:
                self.demanded_by[other] = key
            gvar = self._declare(other)
            self.callers[other].append(key)
            if other in self.obstacles:
                raise UntranslatableError(_no_translation(name), REFERENCE)
            return gvar

        translation = FunctionTranslation(self.module, self.builder, function, infos, callee)
        gvar = self.names[key]
        try:
            with self.builder.inner_scope():
                self.builder.begin_scope(params)
                body = self.builder.end_scope(translation.body(params))
        except Obstacles as error:
            self._refuse(key, error.diagnostics)
        else:
            attrs = kept_attrs(function)
            if not key[1]:
                attrs["global_symbol"] = gvar.name_hint
            defined = rx.Function(params, body, result, True, attrs, span=function.span)
            self.builder.update_func(gvar, defined)

    def obstacles_by_name(self) -> dict[str, tuple[Diagnostic, ...]]:
        """The obstacles of the functions by name; those of all instances together."""
        named: defaultdict[str, dict[Diagnostic, None]] = defaultdict(dict)
        for (name, _), diagnostics in self.obstacles.items():
            own = [d for d in diagnostics if d.message != _no_translation(name)]
            named[name].update(dict.fromkeys(own))
        return {name: tuple(found) for name, found in named.items()}

    def result(self) -> IRModule:
        """The module of all functions without obstacles."""
        module = self.builder.get()
        for key in self.obstacles:
            if key in self.names and self.names[key].name_hint in module:
                del module[self.names[key]]
        return ConvertToDataflow(min_size=1)(module)


MAX_DEPTH: Final = 60
"""The number of branches and local functions inside each other in a function of Relax."""
MAX_TYPE_DEPTH: Final = 100
"""The number of tuples, or functions, inside each other in a type of Relax."""
_EVALUATED: Final = 'relay.create_executor("vm") runs it'
_INSTANCES: Final = f"call it where its type arguments are known; {_EVALUATED}"


def obstacles(function: rl.Function) -> list[Diagnostic]:
    """The reasons why a function of a typed module has no translation, one an expression."""
    found: list[Diagnostic] = []
    depths: dict[int, int] = {}
    scopes = Scopes(function)
    deepest = _deepest(scopes)
    if deepest is not None:
        what = f"more than {MAX_DEPTH} branches and functions are inside each other"
        return [Diagnostic(what, "RLY-50", deepest.span or function.span, _EVALUATED)]
    for node in scopes.nodes:
        if _depth(node.checked_type_, depths) > MAX_TYPE_DEPTH:
            what = f"a type contains more than {MAX_TYPE_DEPTH} types inside each other"
            return [Diagnostic(what, "RLY-66", node.span or function.span)]
        found += _of_node(node, is_local=node is not function)
    return found


def _depth(ty: Type | None, known: dict[int, int]) -> int:
    """The number of types inside each other in a type; `known` are depths by identity."""
    if ty is None:
        return 0
    if id(ty) not in known:
        for part in walk(ty):
            known[id(part)] = 1 + max((known[id(inner)] for inner in children(part)), default=0)
    return known[id(ty)]


def _deepest(scopes: Scopes) -> rl.RelayExpr | None:
    """An expression that is nested in too many branches and functions, if there is one."""
    depths = {id(scopes.outermost): 0}
    for node in reversed(scopes.nodes):
        depth = depths[id(scopes.of[id(node)])] + isinstance(node, (rl.If, rl.Function))
        if depth > MAX_DEPTH:
            return node
        depths.update((id(scope), depth) for scope in scopes.inner.get(id(node), ()))
    return None


def _of_node(node: rl.RelayExpr, *, is_local: bool) -> list[Diagnostic]:
    """The reason why an expression, apart from its operands, has no translation."""
    operands = (*same_scope(node), *scope_roots(node))
    callee = node.op if isinstance(node, rl.Call) else None
    reasons: list[tuple[str, str, Span | None]] = []
    hint: str | None = None
    for operand in operands:
        if isinstance(operand, rl.Constructor):
            name = operand.name_hint
            reasons.append((f"{name} constructs an instance of a data type", "RLY-34", None))
        elif isinstance(operand, Op) and operand is not callee:
            reasons.append((f"the operator {operand.name} is used as a value", "RLY-96", None))
    match node:
        case rl.RefCreate() | rl.RefRead() | rl.RefWrite():
            reasons.append(("Relax has no reference cells", "RLY-107", None))
        case rl.Match(clauses=clauses):
            if any(isinstance(p, rl.PatternConstructor) for c in clauses for p in walk(c.lhs)):
                reasons.append(("a match takes instances of data types apart", "RLY-52", None))
        case rl.Function():
            if is_local and is_polymorphic(node):
                ty = node.checked_type
                reasons.append((f"a closure is polymorphic, of type {ty}", "RLY-97", None))
                hint = _INSTANCES
            for param in node.params:
                part = next(
                    (p for p in walk(param.checked_type) if isinstance(p, (TypeCall, RefType))),
                    None,
                )
                if part is not None:
                    what = f"%{param.name_hint} has the type {part}, which Relax does not have"
                    rule = "RLY-31" if isinstance(part, TypeCall) else "RLY-105"
                    reasons.append((what, rule, param.span))
        case _:
            pass
    return [Diagnostic(what, rule, span or node.span, hint) for what, rule, span in reasons]
