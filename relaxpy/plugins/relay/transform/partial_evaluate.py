"""Partial evaluation: calls, branches, matches and projections."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeVar as TypingVar

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.budget import Task, run
from relaxpy.ir.core.traverse import children, rename, strongly_connected, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.infer.solver import substitute
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule, global_names
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.normal_forms import a_normal_form
from relaxpy.plugins.relay.transform.passes import RelayPass, is_cast, map_functions
from relaxpy.plugins.relay.transform.simplify import evaluated_call
from relaxpy.plugins.relay.ty import FuncType, TensorType, Type, TypeVar
from relaxpy.plugins.relay.variables import all_type_vars, free_vars_of_functions
from relaxpy.support.dataclass import dataclass, replace

E = TypingVar("E", bound=rl.RelayExpr)

MAX_CALLS: Final = 1000
"""The number of calls in `main`, and in each function of a small module, that are replaced."""
MAX_CALLS_ELSEWHERE: Final = 16_000
"""The number of calls in the other functions of a module that are replaced, in equal shares."""
STEPS_PER_CALL: Final = 100
"""The number of expressions in the bodies that replace calls, as a multiple of these numbers."""
MAX_GROWING: Final = 64
"""The number of nested calls of a recursive function whose arguments do not become smaller."""


@dataclass(frozen=True)
class PartialEvaluate(RelayPass):
    """Evaluates what is known before the program runs (RLY-1).

    Known callees are replaced by their bodies, and branches, matches, projections and the contents
    of cells by their known values. A recursive function is replaced while an argument is known, up
    to a limit. Cells are created, read and written as before (RLY-108). The result is in A-normal
    form; DeadCodeElimination removes the lets that are no longer used.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        typed = infer_module(mod)
        forms = infer_module(map_functions(typed, a_normal_form))
        graph = {n: tuple(global_names(f)) for n, f in forms.functions_by_name.items()}
        recursive = {
            name
            for group in strongly_connected(graph)
            for name in group
            if len(group) > 1 or name in graph[name]
        }

        functions = forms.functions_by_name
        free = {k: v for f in functions.values() for k, v in free_vars_of_functions(f).items()}
        share = min(MAX_CALLS, max(1, MAX_CALLS_ELSEWHERE // max(1, len(functions))))

        def evaluated(function: rl.Function) -> rl.RelayExpr:
            calls = MAX_CALLS if function is functions.get("main") else share
            evaluation = _Evaluation(forms, recursive, free, calls)
            return run(evaluation.residual(_Closure(function, {}, {}, False)))

        return map_functions(forms, evaluated)


@dataclass(frozen=True, slots=True)
class _Closure:
    """A function with the values of its free variables, and the types of its type parameters."""

    function: rl.Function
    env: dict[rl.Var, _Value]
    types: dict[TypeVar, Any]
    recursive: bool


@dataclass(frozen=True, slots=True)
class _Instance:
    """An instance of a data type."""

    constructor: rl.Constructor
    fields: tuple[_Value, ...]


class _Cell:
    """The identity of a cell."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A value: the atom that stands for it in the result, and what is known of it.

    Known is a tensor, a tuple of values, a closure, an instance, a cell, or a constructor.
    """

    atom: rl.RelayExpr
    known: Any = None


@dataclass(slots=True)
class _Frame:
    """A scope that is evaluated: values of variables, types of type parameters, and the result.

    The result is lets so far; `cells` are the known contents of cells.
    """

    env: dict[rl.Var, _Value]
    types: dict[TypeVar, Any]
    lets: list[tuple[rl.Var, rl.RelayExpr]] = field(default_factory=list)
    cells: dict[_Cell, _Value] = field(default_factory=dict)

    def branch(self, env: Mapping[rl.Var, _Value] | None = None) -> _Frame:
        """A frame inside this one, with further variables."""
        return _Frame({**self.env, **(env or {})}, self.types, cells=dict(self.cells))

    def called(self, env: dict[rl.Var, _Value], types: dict[TypeVar, Any]) -> _Frame:
        """The frame of a body that is evaluated in place."""
        return _Frame(env, types, self.lets, self.cells)

    def typed(self, ty: Any) -> Any:
        """A type with type parameters replaced; None if one of them is not known."""
        if ty is None or not self.types:
            return ty
        if any(self.types.get(var, var) is None for var in all_type_vars(ty)):
            return None
        return substitute(ty, self.types)

    def emit(
        self, expr: rl.RelayExpr, hint: str, known: Any = None, ty: Type | None = None
    ) -> _Value:
        """Bind an expression to a new variable.

        It is annotated if its type `ty` has functions: of polymorphic ones in tuples and cells, the
        uses decide the instances, and uses may be evaluated.
        """
        has_functions = ty is not None and any(isinstance(part, FuncType) for part in walk(ty))
        var = rl.Var(hint, ty if has_functions else None, span=expr.span)
        self.lets.append((var, expr))
        return _Value(var, known)

    def cast(self, value: _Value, annotation: Type | None, actual: Type | None) -> _Value:
        """A value that an annotated let binds where its type has another `?` (RLY-88).

        The types of the components of a tuple, an instance or a cell are those of the annotation.
        """
        if not is_cast(annotation, actual):
            return value
        var = rl.Var("x", annotation, span=value.atom.span)
        self.lets.append((var, value.atom))
        known = value.known if isinstance(value.known, (np.ndarray, _Closure)) else None
        return _Value(var, known)

    def closed(self, value: rl.RelayExpr) -> rl.RelayExpr:
        """The lets with a value as the innermost body."""
        last = self.lets[-1][0] if self.lets else None
        if last is not None and last is value and last.type_annotation is None:
            value = self.lets.pop()[1]
        for var, bound in reversed(self.lets):
            value = rl.Let(var, bound, value, span=bound.span)
        return value


class _Evaluation:
    """The partial evaluation of one function of a typed module in A-normal form."""

    def __init__(
        self,
        module: RelayModule,
        recursive: Container[str],
        free: Mapping[int, Iterable[rl.Var]],
        calls: int,
    ) -> None:
        self.module = module
        self.recursive = recursive
        self.free = free
        self.calls_left = calls
        self.steps_left = calls * STEPS_PER_CALL
        self.replacing = 0
        self.branches = 0
        self.active: dict[int, list[tuple[tuple[int, ...], int]]] = {}

    def residual(self, closure: _Closure, itself: rl.Var | None = None) -> Task[rl.Function]:
        """The function of a closure, whose parameters are not known.

        `itself` is the variable that its let binds it to.
        """
        function = closure.function
        types = dict(closure.types)
        if itself is not None:  # the module may contain several copies
            types |= {p: TypeVar(p.name_hint, p.kind) for p in function.type_params}
        frame = _Frame(dict(closure.env), types)
        for var, value in closure.env.items():
            if value.atom is itself:
                frame.env[var] = _Value(value.atom)
        params = tuple(
            rl.Var(p.name_hint, frame.typed(p.type_annotation), span=p.span)
            for p in function.params
        )
        frame.env.update(zip(function.params, map(_Value, params), strict=True))
        nested = self.active.setdefault(id(function), [])
        nested.append(((), self.branches))
        value = yield self._scope(function.body, frame)
        nested.pop()
        own = tuple(types.get(param, param) for param in function.type_params)
        return rl.Function(
            params,
            frame.closed(value.atom),
            frame.typed(function.ret_type),
            own,
            function.attrs,
            constraints=tuple(map(frame.typed, function.constraints)),
            span=function.span,
        )

    def _scope(self, expr: rl.RelayExpr, frame: _Frame) -> Task[_Value]:
        """Evaluate lets, and the expression after them."""
        while isinstance(expr, rl.Let):
            value = yield self._value(expr.value, frame, expr.var)
            annotation = frame.typed(expr.var.type_annotation)
            frame.env[expr.var] = frame.cast(value, annotation, _type_of(expr.value, frame))
            expr = expr.body
        return (yield from self._value(expr, frame))

    def _value(self, expr: rl.RelayExpr, frame: _Frame, var: rl.Var | None = None) -> Task[_Value]:
        """Evaluate an expression whose operands are atoms; `var` is bound to it."""
        hint = "x" if var is None else var.name_hint
        if self.replacing:
            self.steps_left -= 1
        match expr:
            case rl.Function():
                return (yield from self._closure(expr, frame, var))
            case rl.Call():
                return (yield from self._call(expr, frame, hint))
            case rl.If():
                return (yield from self._if(expr, frame, hint))
            case rl.Match():
                return (yield from self._match(expr, frame, hint))
            case rl.Tuple(fields=fields):
                values = tuple(self._atom(field, frame) for field in fields)
                new = _with(expr, fields=_atoms(values))
                return frame.emit(new, hint, values, _type_of(expr, frame))
            case rl.TupleGetItem(tuple_value=whole, index=index):
                value = self._atom(whole, frame)
                if isinstance(value.known, tuple):
                    known: _Value = value.known[index]
                    return known
                return frame.emit(_with(expr, tuple_value=value.atom), hint)
            case rl.RefCreate() | rl.RefRead() | rl.RefWrite():
                return self._cell(expr, frame, hint)
            case _:
                return self._atom(expr, frame)

    def _atom(self, expr: rl.RelayExpr, frame: _Frame) -> _Value:
        match expr:
            case rl.Var():
                return frame.env[expr]
            case rl.Constant(data=data):
                return _Value(expr, data)
            case rl.GlobalVar(name_hint=name):
                closure = _Closure(self.module[name], {}, {}, name in self.recursive)
                return _Value(expr, closure)
            case rl.Constructor(inputs=inputs):
                return _Value(expr, expr if inputs else None)
            case _:
                return _Value(expr)

    def _cell(
        self, expr: rl.RefCreate | rl.RefRead | rl.RefWrite, frame: _Frame, hint: str
    ) -> _Value:
        if isinstance(expr, rl.RefCreate):
            content, cell = self._atom(expr.value, frame), _Cell()
            frame.cells[cell] = content
            new = _with(expr, value=content.atom)
            return frame.emit(new, hint, cell, _type_of(expr, frame))
        ref = self._atom(expr.ref, frame)
        if isinstance(expr, rl.RefRead):
            read = frame.emit(_with(expr, ref=ref.atom), hint)
            return frame.cells.get(ref.known, read) if isinstance(ref.known, _Cell) else read
        content = self._atom(expr.value, frame)
        if isinstance(ref.known, _Cell):
            frame.cells[ref.known] = content
        else:  # it may be any of them
            frame.cells.clear()
        return frame.emit(_with(expr, ref=ref.atom, value=content.atom), hint, ())

    def _closure(self, function: rl.Function, frame: _Frame, bound: rl.Var | None) -> Task[_Value]:
        """Emit a local function, which may call itself if a let binds it."""
        free = self.free[id(function)]
        env = {var: frame.env[var] for var in free if var in frame.env}
        recursive = bound is not None and bound in free
        closure = _Closure(function, env, frame.types, recursive)
        var = rl.Var("f" if bound is None else bound.name_hint, span=function.span)
        value = _Value(var, closure)
        if bound is not None and recursive:
            env[bound] = value
        residual = yield self.residual(closure, var)
        frame.lets.append((var, residual))
        return value

    # Calls

    def _call(self, call: rl.Call, frame: _Frame, hint: str) -> Task[_Value]:
        callee = self._atom(call.op, frame)
        args = tuple(self._atom(arg, frame) for arg in call.args)
        ty = _type_of(call, frame)
        if isinstance(call.op, Op):
            constants = tuple(map(_constant, args))
            folded = evaluated_call(replace(call, args=constants, checked_type_=ty))
            if folded is not None:
                return _folded(folded, frame)
        elif isinstance(callee.known, _Closure) and self._enters(callee.known, args):
            return (yield from self._entered(callee.known, call, args, frame))
        type_args = tuple(map(frame.typed, call.type_args))
        if None in type_args:
            type_args = ()
        new = _with(call, op=callee.atom, args=_atoms(args), type_args=type_args)
        constructor = call.op if isinstance(call.op, rl.Constructor) else callee.known
        if isinstance(constructor, rl.Constructor):
            return frame.emit(new, hint, _Instance(constructor, args))
        if not isinstance(call.op, Op):  # it may write all cells
            frame.cells.clear()
        return frame.emit(new, hint)

    def _enters(self, closure: _Closure, args: Sequence[_Value]) -> bool:
        """True if a call is replaced by the body of its callee, so that this ends.

        Recursion goes on while an argument becomes smaller, or for some time if all branches on the
        way from one call to the next are known.
        """
        if self.calls_left <= 0 or self.steps_left <= 0 or "Primitive" in closure.function.attrs:
            return False
        nested = self.active.get(id(closure.function))
        if not closure.recursive and not nested:
            return True
        sizes = tuple(map(_size, args))
        if all(size < 0 for size in sizes):
            return False
        if not nested:
            return True
        before, branches = nested[-1]
        if any(0 <= new < old for new, old in zip(sizes, before, strict=False)):
            return True
        return branches == self.branches and len(nested) < MAX_GROWING

    def _entered(
        self, closure: _Closure, call: rl.Call, args: Sequence[_Value], frame: _Frame
    ) -> Task[_Value]:
        """Inline a call: evaluate the body of its callee."""
        self.calls_left -= 1
        function = closure.function
        types: dict[TypeVar, Any] = {**closure.types, **dict.fromkeys(function.type_params)}
        given = [_type_of(arg, frame) for arg in call.args]
        if len(call.type_args) == len(function.type_params):
            types |= zip(function.type_params, map(frame.typed, call.type_args), strict=True)
        else:  # a polymorphic function that came as an argument
            pairs = [(p.type_annotation, ty) for p, ty in zip(function.params, given, strict=True)]
            _match_types([*pairs, (function.ret_type, _type_of(call, frame))], types)
        inner = frame.called(dict(closure.env), types)
        for param, arg, ty in zip(function.params, args, given, strict=True):
            inner.env[param] = inner.cast(arg, inner.typed(param.type_annotation), ty)
        nested = self.active.setdefault(id(function), [])
        nested.append((tuple(map(_size, args)), self.branches))
        self.replacing += 1
        value = yield self._scope(function.body, inner)
        self.replacing -= 1
        nested.pop()
        return inner.cast(value, inner.typed(function.ret_type), _type_of(function.body, inner))

    # Branches and matches

    def _if(self, node: rl.If, frame: _Frame, hint: str) -> Task[_Value]:
        cond = self._atom(node.cond, frame)
        if isinstance(cond.known, np.ndarray):
            chosen = node.true_branch if cond.known else node.false_branch
            return (yield from self._scope(chosen, frame))
        bodies, cells = [], []
        self.branches += 1
        for branch in (node.true_branch, node.false_branch):
            inner = frame.branch()
            value = yield self._scope(branch, inner)
            bodies.append(inner.closed(value.atom))
            cells.append(inner.cells)
        self.branches -= 1
        _join(frame, cells)
        return frame.emit(rl.If(cond.atom, *bodies, span=node.span), hint)

    def _match(self, node: rl.Match, frame: _Frame, hint: str) -> Task[_Value]:
        data, ty = self._atom(node.data, frame), _type_of(node.data, frame)
        for clause in node.clauses:
            bound: dict[rl.Var, _Value] = {}
            fits = _fits(clause.lhs, data, bound)
            if fits is None:
                break
            if fits:
                for var, value in bound.items():
                    annotation = frame.typed(var.type_annotation)
                    frame.env[var] = frame.cast(value, annotation, ty)
                return (yield from self._scope(clause.rhs, frame))
        clauses, cells = [], []
        self.branches += 1
        for clause in node.clauses:
            pattern, variables = _renewed(clause.lhs, frame)
            inner = frame.branch(variables)
            value = yield self._scope(clause.rhs, inner)
            clauses.append(replace(clause, lhs=pattern, rhs=inner.closed(value.atom)))
            cells.append(inner.cells)
        self.branches -= 1
        _join(frame, cells)
        return frame.emit(_with(node, data=data.atom, clauses=tuple(clauses)), hint)


def _atoms(values: Sequence[_Value]) -> tuple[rl.RelayExpr, ...]:
    return tuple(value.atom for value in values)


def _with(node: E, **changes: object) -> E:
    """A node with other fields, whose type is not known."""
    return replace(node, checked_type_=None, **changes)  # type: ignore[arg-type]


def _type_of(expr: rl.RelayExpr, frame: _Frame) -> Any:
    return frame.typed(expr.checked_type_)


def _match_types(
    pairs: Sequence[tuple[Type | None, Type | None]], types: dict[TypeVar, Any]
) -> None:
    """Enter what type parameters stand for where declared types meet known ones."""
    stack: list[Any] = [*pairs]
    while stack:
        declared, known = stack.pop()
        if isinstance(declared, TypeVar):
            if declared in types and types[declared] is None:
                types[declared] = known
        elif isinstance(declared, TensorType) and isinstance(known, TensorType):
            stack += [(declared.shape, known.shape), (declared.dtype, known.dtype)]
        elif isinstance(declared, tuple) and isinstance(known, tuple):
            stack += zip(declared, known, strict=False)
        elif isinstance(declared, Type) and type(declared) is type(known):
            stack += zip(children(declared), children(known), strict=False)


def _constant(value: _Value) -> rl.RelayExpr:
    """The constant, or the tuple of constants, that a value is, or the atom."""
    if isinstance(value.known, np.ndarray):
        return rl.Constant(value.known)
    if isinstance(value.known, tuple):
        return rl.Tuple(tuple(map(_constant, value.known)))
    return value.atom


def _folded(expr: rl.RelayExpr, frame: _Frame) -> _Value:
    """A constant, or a tuple of constants, as a value."""
    if isinstance(expr, rl.Tuple):
        fields = tuple(_folded(part, frame) for part in expr.fields)
        return frame.emit(rl.Tuple(_atoms(fields)), "x", fields)
    assert isinstance(expr, rl.Constant)
    return _Value(expr, expr.data)


def _size(value: _Value) -> int:
    """A measure of the size of the known part of a value; -1 if nothing is known."""
    match value.known:
        case np.ndarray() as data:
            return abs(int(data.reshape(()))) if data.size == 1 and data.dtype.kind in "iu" else 0
        case _Instance():
            count, stack = 0, [value]
            while stack and count < MAX_CALLS:
                known = stack.pop().known
                if isinstance(known, _Instance):
                    count += 1
                    stack += known.fields
            return count
        case _:
            return -1


def _join(frame: _Frame, branches: Sequence[dict[_Cell, _Value]]) -> None:
    """Keep the contents of cells that no branch changed."""
    for cell, value in list(frame.cells.items()):
        if any(cells.get(cell) is not value for cells in branches):
            del frame.cells[cell]


def _fits(pattern: rl.Pattern, value: _Value, bound: dict[rl.Var, _Value]) -> bool | None:
    """Bind the variables of a pattern if it fits a value; None if that is not known."""
    result: bool | None = True
    stack = [(pattern, value)]
    while stack:
        part, subject = stack.pop()
        match part, subject.known:
            case rl.PatternVar(var=var), _:
                bound[var] = subject
            case rl.PatternWildcard(), _:
                pass
            case rl.PatternTuple(patterns=patterns), tuple() as fields:
                stack += zip(patterns, fields, strict=True)
            case rl.PatternConstructor(constructor=wanted, patterns=patterns), _Instance() as made:
                if made.constructor.tag != wanted.tag:
                    return False
                stack += zip(patterns, made.fields, strict=True)
            case _:
                result = None
    return result


def _renewed(pattern: rl.Pattern, frame: _Frame) -> tuple[rl.Pattern, dict[rl.Var, _Value]]:
    """A pattern with new variables, and these as the values of the old ones."""
    variables = {
        part.var: rl.Var(part.var.name_hint, frame.typed(part.var.type_annotation))
        for part in walk(pattern)
        if isinstance(part, rl.PatternVar)
    }
    return rename(pattern, variables), {var: _Value(new) for var, new in variables.items()}
