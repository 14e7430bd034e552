"""The reference evaluator of Relay, which follows the rules literally.

A call of an operator runs as the Relax expression that translates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError, RelaxpyError, RuntimeCheckError, counted
from relaxpy.exec.api.compile import compile
from relaxpy.ir.core.budget import Task, run
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import Scope, Scopes
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op, OpRecord
from relaxpy.plugins.relay.op.relations import RelationError
from relaxpy.plugins.relay.op.struct_info import translated
from relaxpy.plugins.relay.run.values import (
    ConstructorValue,
    FieldTypes,
    FunctionValue,
    RefValue,
    TypeArgs,
    check_value,
    from_python,
    value_text,
)
from relaxpy.plugins.relay.transform.passes import is_cast
from relaxpy.plugins.relay.ty import FuncType, RefType, TupleType, Type, TypeCall


class _Frame:
    """The values of an activation of a function: of its variables and expressions by identity."""

    __slots__ = ("parent", "scopes", "values")

    def __init__(self, scopes: Scopes, parent: _Frame | None) -> None:
        self.scopes = scopes
        self.parent = parent
        self.values: dict[int, Any] = {}

    def find(self, expr: rl.RelayExpr) -> Any:
        """The value of a variable or an expression that was evaluated before."""
        frame: _Frame | None = self
        while frame is not None:
            if id(expr) in frame.values:
                return frame.values[id(expr)]
            frame = frame.parent
        name = f"%{expr.name_hint}" if isinstance(expr, rl.Var) else type(expr).__name__
        raise RuntimeCheckError(f"{name} is used before it is bound", rule="RLY-95", span=expr.span)


class _Closure(FunctionValue):
    """A function with the values of its free variables (RLY-15)."""

    __slots__ = ("frame", "function")

    def __init__(self, evaluator: Evaluator, function: rl.Function, frame: _Frame | None) -> None:
        self.function = function
        self.frame = frame
        super().__init__("closure", function.checked_type_, lambda args: evaluator.call(self, args))


class _TailCall(NamedTuple):
    """A tail call, which replaces the activation of its caller."""

    callee: FunctionValue
    args: tuple[Any, ...]
    call: rl.Call


class Evaluator:
    """An evaluator of the functions of a typed module; some may be `compiled`."""

    def __init__(
        self, module: RelayModule, compiled: Mapping[str, FunctionValue] | None = None
    ) -> None:
        self.module = module
        self.compiled = compiled or {}
        self.scopes: dict[int, tuple[rl.RelayExpr, Scopes]] = {}
        self.casts: dict[tuple[int, int], bool] = {}
        self.checked_patterns: dict[int, tuple[rl.Clause, set[rl.Var]]] = {}
        self.field_types = FieldTypes()
        self.alive: list[Type] = []

    def function(self, name: str) -> FunctionValue:
        """A function of the module as a value."""
        return self.compiled.get(name) or _Closure(self, self.module[name], None)

    def call(self, callee: FunctionValue, args: Sequence[Any]) -> Any:
        """The value of a call from Python, whose arguments are checked.

        Errors:
            RuntimeCheckError: an argument has another type than the parameter.
        """
        ty = callee.type
        types: Sequence[Type | None] = [None] * len(args)
        if isinstance(ty, FuncType):
            if len(args) != len(ty.arg_types):
                raise RuntimeCheckError(
                    f"{callee.name} takes {counted(len(ty.arg_types), 'argument')}, "
                    f"found {len(args)}",
                    rule="RLY-94",
                )
            types = ty.arg_types
        values = tuple(from_python(a, t) for a, t in zip(args, types, strict=True))
        type_args: TypeArgs = {}  # all arguments agree on them
        for number, (value, expected) in enumerate(zip(values, types, strict=True), 1):
            if expected is not None:
                check_value(value, expected, f"argument {number}", "RLY-12", None, type_args)
        return run(self._apply(callee, values, None))

    def _apply(
        self, callee: FunctionValue, args: tuple[Any, ...], call: rl.Call | None
    ) -> Task[Any]:
        """Call functions until one returns a value instead of a call in its last place."""
        while True:
            if not isinstance(callee, _Closure):
                return callee.call(args)
            function = callee.function
            # A closure shares expressions with the function around it (RLY-110).
            outer = callee.frame
            scopes = self._scopes_of(function) if outer is None else outer.scopes
            frame = _Frame(scopes, outer)
            for param, arg in zip(function.params, args, strict=True):
                frame.values[id(param)] = arg
            self._check_args(function, args, call)
            result = yield self._scope(
                scopes.inner[id(function)][0], frame, tail=not self._result_is_checked(function)
            )
            if not isinstance(result, _TailCall):
                self._check_result(function, result)
                return result
            callee, args, call = result

    def _scopes_of(self, function: rl.Function) -> Scopes:
        known = self.scopes.get(id(function))
        if known is None:
            known = self.scopes[id(function)] = function, Scopes(function)
        return known[1]

    # Sizes that are known only now (RLY-88)

    def _is_cast(self, annotation: Type | None, actual: Type | None) -> bool:
        """True if `?` of one type meets a size of the other."""
        if annotation is None or actual is None or annotation is actual:
            return False
        key = id(annotation), id(actual)
        known = self.casts.get(key)
        if known is None:
            known = self.casts[key] = is_cast(annotation, actual)
            self.alive += (annotation, actual)
        return known

    def _variables_to_check(self, clause: rl.Clause, ty: Type | None) -> set[rl.Var]:
        """The variables of a pattern for values of a type whose sizes are checked."""
        known = self.checked_patterns.get(id(clause))
        if known is None:
            types = {} if ty is None else types_of_variables(clause.lhs, ty)
            found = {v for v, actual in types.items() if is_cast(v.type_annotation, actual)}
            known = self.checked_patterns[id(clause)] = clause, found
        return known[1]

    def _check_args(
        self, function: rl.Function, args: tuple[Any, ...], call: rl.Call | None
    ) -> None:
        if call is None:
            return
        for param, arg, expr in zip(function.params, args, call.args, strict=True):
            annotation = param.type_annotation
            if annotation is not None and self._is_cast(annotation, expr.checked_type_):
                what = f"the argument %{param.name_hint}"
                check_value(arg, annotation, what, "RLY-88", expr.span or call.span)

    def _result_is_checked(self, function: rl.Function) -> bool:
        return self._is_cast(function.ret_type, function.body.checked_type_)

    def _check_result(self, function: rl.Function, result: Any) -> None:
        if function.ret_type is not None and self._result_is_checked(function):
            check_value(result, function.ret_type, "the result", "RLY-88", function.span)

    # Expressions

    def _scope(self, scope: Scope, frame: _Frame, *, tail: bool) -> Task[Any]:
        """Evaluate the expressions of a scope in order; the value is that of its root."""
        scopes = frame.scopes
        while True:
            root = scope.root
            last = root if scopes.of.get(id(root)) is scope else None
            for node in scope.nodes:
                if node is not last:
                    frame.values[id(node)] = yield from self._node(node, frame, tail=False)
            if not isinstance(last, rl.Let):
                break
            self._bind(last, frame)
            scope = scopes.inner[id(last)][0]
        if last is None:
            return self._value(root, frame)
        return (yield from self._node(last, frame, tail=tail))

    def _bind(self, let: rl.Let, frame: _Frame) -> None:
        value = self._value(let.value, frame)
        annotation = let.var.type_annotation
        if annotation is not None and self._is_cast(annotation, let.value.checked_type_):
            what = f"the value of %{let.var.name_hint}"
            check_value(value, annotation, what, "RLY-88", let.value.span or let.span)
        frame.values[id(let.var)] = value

    def _value(self, expr: rl.RelayExpr, frame: _Frame) -> Any:
        """The value of an operand."""
        match expr:
            case rl.Constant(data=data):
                return data
            case rl.GlobalVar(name_hint=name):
                return self.function(name)
            case rl.Constructor():
                return self._constructor(expr)
            case Op():
                return FunctionValue(
                    expr.name, None, lambda args: run_operator(expr, args, Attrs())
                )
            case _:
                return frame.find(expr)

    def _constructor(self, constructor: rl.Constructor) -> FunctionValue:
        return FunctionValue(
            constructor.name_hint,
            constructor.checked_type_,
            lambda args: ConstructorValue(constructor.tag, tuple(args), constructor),
        )

    def _node(self, node: rl.RelayExpr, frame: _Frame, *, tail: bool) -> Task[Any]:
        """Evaluate an expression whose operands have values."""
        match node:
            case rl.Tuple(fields=fields):
                return tuple(self._value(field, frame) for field in fields)
            case rl.TupleGetItem(tuple_value=value, index=index):
                return self._value(value, frame)[index]
            case rl.Function():
                return _Closure(self, node, frame)
            case rl.Call():
                return (yield from self._call(node, frame, tail=tail))
            case rl.If(cond=cond):
                chosen = not bool(np.asarray(self._value(cond, frame)))
                scope = frame.scopes.inner[id(node)][chosen]
                return (yield self._scope(scope, frame, tail=tail))
            case rl.Match():
                return (yield from self._match(node, frame, tail=tail))
            case rl.Let():
                self._bind(node, frame)
                scope = frame.scopes.inner[id(node)][0]
                return (yield self._scope(scope, frame, tail=False))
            case rl.RefCreate(value=value):
                return RefValue(self._value(value, frame))
            case rl.RefRead(ref=ref):
                return self._value(ref, frame).value
            case rl.RefWrite(ref=ref, value=value):
                content = self._value(value, frame)
                ty = ref.checked_type_
                if isinstance(ty, RefType) and self._is_cast(ty.value, value.checked_type_):
                    check_value(content, ty.value, "operand 2 of ref_write", "RLY-88", node.span)
                self._value(ref, frame).value = content
                return ()
            case _:
                raise MisuseError(
                    f"a program contains no {type(node).__name__}", rule="RLY-56", about=node
                )

    def _call(self, node: rl.Call, frame: _Frame, *, tail: bool) -> Task[Any]:
        callee = node.op
        args = tuple(self._value(arg, frame) for arg in node.args)
        if isinstance(callee, Op):
            try:
                return run_operator(callee, args, node.attrs, node.checked_type_)
            except RuntimeCheckError as error:
                raise error.located(node.span) from None
        if isinstance(callee, rl.Constructor):
            self._check_fields(node, callee, args)
            return ConstructorValue(callee.tag, args, callee)
        function = self._value(callee, frame)
        if tail:
            return _TailCall(function, args, node)
        return (yield self._apply(function, args, node))

    def _check_fields(
        self, call: rl.Call, constructor: rl.Constructor, fields: tuple[Any, ...]
    ) -> None:
        if not isinstance(call.checked_type_, TypeCall):
            return
        types = self.field_types(constructor, call.checked_type_)
        for number, (arg, field, ty) in enumerate(zip(call.args, fields, types, strict=False), 1):
            if self._is_cast(ty, arg.checked_type_):
                what = f"argument {number} of {constructor.name_hint}"
                check_value(field, ty, what, "RLY-88", arg.span or call.span)

    def _match(self, node: rl.Match, frame: _Frame, *, tail: bool) -> Task[Any]:
        value = self._value(node.data, frame)
        scopes = frame.scopes.inner.get(id(node), ())
        for clause, scope in zip(node.clauses, scopes, strict=True):
            bound = fitting(clause.lhs, value)
            if bound is not None:
                checked = self._variables_to_check(clause, node.data.checked_type_)
                for var, part in bound.items():
                    if var in checked and var.type_annotation is not None:
                        what = f"the pattern %{var.name_hint}"
                        check_value(part, var.type_annotation, what, "RLY-88", clause.span)
                    frame.values[id(var)] = part
                return (yield self._scope(scope, frame, tail=tail))
        raise RuntimeCheckError(
            f"no clause fits {value_text(value)}", rule="RLY-55", span=node.span
        )


def types_of_variables(pattern: rl.Pattern, ty: Type) -> dict[rl.Var, Type]:
    """The types of the variables of a pattern for a value of a type."""
    found: dict[rl.Var, Type] = {}
    fields_of = FieldTypes()
    stack: list[tuple[rl.Pattern, Type]] = [(pattern, ty)]
    while stack:
        match stack.pop():
            case rl.PatternVar(var=var), actual:
                found[var] = actual
            case rl.PatternConstructor(constructor=constructor, patterns=patterns), TypeCall() as t:
                stack += zip(patterns, fields_of(constructor, t), strict=False)
            case rl.PatternTuple(patterns=patterns), TupleType(fields=fields):
                stack += zip(patterns, fields, strict=True)
            case _:
                pass
    return found


def fitting(pattern: rl.Pattern, value: Any) -> dict[rl.Var, Any] | None:
    """The bindings of a pattern's variables, or None if it does not match."""
    bound: dict[rl.Var, Any] = {}
    stack: list[tuple[rl.Pattern, Any]] = [(pattern, value)]
    while stack:
        part, subject = stack.pop()
        match part:
            case rl.PatternVar(var=var):
                bound[var] = subject
            case rl.PatternConstructor(constructor=constructor, patterns=patterns):
                if subject.tag != constructor.tag:
                    return None
                stack += zip(patterns, subject.fields, strict=True)
            case rl.PatternTuple(patterns=patterns):
                stack += zip(patterns, subject, strict=True)
            case _:
                pass
    return bound


_Key: TypeAlias = Any


def run_operator(op: Op, args: Sequence[Any], attrs: Attrs, result: Type | None = None) -> Any:
    """The result of an operator for tensors and tuples of tensors.

    A user's computation receives the type of the `result`.

    Errors:
        RuntimeCheckError: the shapes do not fit, or the operator cannot be run.
    """
    completed = Attrs(op.record.text_attrs(attrs))
    key = tuple(map(_key, args))
    try:
        given = None if op.record.compute is None else result
        return _compiled(op, op.record, completed, key, given)(*args)
    except RelaxpyError as error:
        if isinstance(error, RuntimeCheckError):
            raise
        message = f"{op.name}: {error.diagnostic.message}"
        raise RuntimeCheckError(message, rule=error.diagnostic.rule) from None
    except RelationError as error:
        raise RuntimeCheckError(f"{op.name}: {error}", rule="RLY-28") from None


def _key(value: Any) -> _Key:
    """The datatype and the shape of a tensor, or those of the fields of a tuple."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if not isinstance(value, np.ndarray):
        raise RuntimeCheckError(f"expected a tensor, found {value!r:.60}", rule="RLY-35")
    return str(DataType(value.dtype)), value.shape


@lru_cache(maxsize=1024)
def _compiled(
    op: Op, record: OpRecord, attrs: Attrs, key: tuple[_Key, ...], ty: Type | None
) -> Callable[..., Any]:
    """The compiled function of a call; `record` makes it outdated when it changes."""
    operands = record.operands or tuple(f"arg{i}" for i in range(len(key)))
    params = [rx.Var(n, _struct_info(k)) for n, k in zip(operands, key, strict=True)]
    builder = BlockBuilder()
    with builder.function("main", params):
        result = builder.emit(translated(builder, record, tuple(params), attrs, ty))
        builder.emit_func_output(result)
    return compile(builder.get())["main"]


def _struct_info(key: _Key) -> rx.StructInfo:
    match key:
        case (str() as dtype, shape):
            return rx.TensorStructInfo(shape, DataType(dtype))
        case _:
            return rx.TupleStructInfo(tuple(map(_struct_info, key)))
