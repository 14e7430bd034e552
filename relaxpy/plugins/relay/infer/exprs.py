"""The types of expressions and patterns."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Any, Final, TypeAlias, assert_never

from relaxpy.errors import Diagnostic, RelaxpyError, Span, counted
from relaxpy.ir.core.budget import Task
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node
from relaxpy.ir.core.traverse import children
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import kind_errors
from relaxpy.plugins.relay.infer.solver import (
    OccursError,
    OpenRelation,
    Solver,
    UnifyError,
    default_dtype,
    substitute,
)
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.op.relations import ProjectionError
from relaxpy.plugins.relay.op.struct_info import relation_named
from relaxpy.plugins.relay.ty import (
    UNIT,
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeKind,
    TypeRelation,
    TypeVar,
    scalar_type,
)
from relaxpy.plugins.relay.variables import free_type_vars
from relaxpy.support.dataclass import replace


def bind_pattern(inference: ExprInference, root: rl.Pattern, data: Type) -> None:
    """Unify the type of a pattern with that of its input, and bind its variables (RLY-91)."""
    bound: set[rl.Var] = set()
    stack: list[tuple[rl.Pattern, Type]] = [(root, data)]
    while stack:
        pattern, ty = stack.pop()
        match pattern:
            case rl.PatternVar(var=var):
                if var in bound:
                    message = f"the pattern binds %{var.name_hint} twice"
                    inference.report(message, "RLY-92", pattern.span)
                    continue
                bound.add(var)
                if var.type_annotation is not None:
                    annotation = inference.annotation(var.type_annotation, var.span)
                    what = f"the pattern %{var.name_hint}"
                    inference.expect(ty, annotation, what, "RLY-91", pattern.span)
                inference.bind(var, ty)
            case rl.PatternTuple(patterns=patterns):
                fields = tuple(inference.solver.hole() for _ in patterns)
                inference.expect(ty, TupleType(fields), "the pattern", "RLY-91", pattern.span)
                stack += reversed(list(zip(patterns, fields, strict=True)))
            case rl.PatternConstructor(constructor=constructor, patterns=patterns):
                inputs = _field_types(inference, pattern, ty)
                if len(inputs) != len(patterns):
                    inference.report(
                        f"{constructor.name_hint} has {counted(len(inputs), 'field')}, "
                        f"found {counted(len(patterns), 'pattern')}",
                        "RLY-91",
                        pattern.span,
                    )
                    inputs = tuple(inference.solver.hole() for _ in patterns)
                stack += reversed(list(zip(patterns, inputs, strict=True)))
            case _:
                pass


def _field_types(
    inference: ExprInference, pattern: rl.PatternConstructor, ty: Type
) -> tuple[Type, ...]:
    """The field types of a constructor pattern for an input of type `ty`."""
    constructor = pattern.constructor
    function = inference.constructor_type(constructor)
    if not isinstance(function, FuncType):
        return tuple(inference.solver.hole() for _ in pattern.patterns)
    mono, _ = inference.instantiate(function, (), pattern.span)
    what = f"the pattern {constructor.name_hint}"
    inference.expect(ty, mono.ret_type, what, "RLY-91", pattern.span)
    return mono.arg_types


def place(expr: rl.RelayExpr, user: rl.RelayExpr | rl.Clause) -> Span | None:
    """The position of an operand; for a name, whose own is its definition's, of its user."""
    is_name = isinstance(expr, (rl.Var, rl.GlobalVar, rl.Constructor, Op))
    return user.span if is_name else expr.span or user.span


def callee_text(callee: rl.RelayExpr) -> str:
    """The name of a callee in messages."""
    match callee:
        case rl.GlobalVar(name_hint=name):
            return f"@{name}"
        case rl.Var(name_hint=name):
            return f"%{name}"
        case rl.Constructor(name_hint=name):
            return name
        case _:
            return "the function"


_BOOL: Final = scalar_type("bool")
_Inferring: TypeAlias = Generator[Task[Any], Any, Type]


class ExprInference:
    """The types of the expressions of one module, by the identity of the expressions."""

    def __init__(self, module: RelayModule, solver: Solver) -> None:
        self.module = module
        self.solver = solver
        self.types: dict[int, Type] = {}
        self.env: dict[rl.Var, Type] = {}
        self.signatures: dict[str, Type] = {}
        self.type_args: dict[int, tuple[Any, ...]] = {}
        self.new_params: dict[int, tuple[TypeVar, ...]] = {}
        self.instantiated: list[tuple[rl.Call, tuple[Any, ...]]] = []
        self.renamings: dict[int, dict[TypeVar, Any]] = {}
        self.recursive_calls: dict[rl.RelayExpr, list[rl.Call]] = {}
        self.matches: list[rl.Match] = []
        self.literals: dict[int, tuple[rl.Literal, IncompleteType]] = {}
        self.diagnostics: list[Diagnostic] = []
        self._span: Span | None = None  # that of the function, for operators, which have none
        self._checked_kinds: dict[int, Node] = {}

    def report(
        self, message: str, rule: str, span: Span | None, hint: str = "", note: str = ""
    ) -> None:
        """Add a type error."""
        notes = (note,) if note else ()
        self.diagnostics.append(Diagnostic(message, rule, span, hint or None, notes))

    def text(self, ty: object) -> str:
        """The text of a partially inferred type; open literals have their defaults."""
        completed = self.solver.complete(ty)
        open_ = {hole: default_dtype(n) for hole, n in self.solver.literals.items()}
        if not isinstance(completed, Type) or open_.keys().isdisjoint(self.solver.holes(completed)):
            return str(completed)
        return str(substitute(completed, open_))

    def expect(self, actual: Type, expected: Type, what: str, rule: str, span: Span | None) -> None:
        """Make two types equal, or report that `what` has another type than expected."""
        try:
            self.solver.unify(expected, actual)
        except UnifyError as error:
            whole = self.solver.complete(expected), self.solver.complete(actual)
            message = f"{what}: expected {self.text(expected)}, found {self.text(actual)}"
            if isinstance(error, OccursError):
                message, rule = f"{what} has an infinite type: it would contain itself", "RLY-87"
            note = str(error)
            is_part = note not in ("{} is not {}".format(*pair) for pair in (whole, whole[::-1]))
            self.report(message, rule, span, note=note if is_part else "")

    def solve(self) -> None:
        """Ask the relations whose types have changed, and report those that fail."""
        for relation in self.solver.solve():
            described = relation.describe() if relation.describe else relation.name
            rule = "RLY-41" if isinstance(relation.error, ProjectionError) else "RLY-23"
            self.report(f"{described}: {relation.error}", rule, relation.span)

    # Expressions

    def infer(self, expr: rl.RelayExpr) -> Task[Type]:
        """Infer the type of an expression; that of a shared one is inferred once.

        Variables are looked up at each use, since their types may have been generalised.
        """
        if isinstance(expr, rl.Var):
            return self._variable(expr)
        if isinstance(expr, rl.GlobalVar):
            return self._global(expr)
        known = self.types.get(id(expr))
        if known is not None:
            return known
        ty = yield from self._infer(expr)  # type: ignore[arg-type]
        self.types[id(expr)] = ty
        return ty

    def mono(self, expr: rl.RelayExpr) -> Task[Type]:
        """Infer the type of a value; a polymorphic one is instantiated (RLY-97)."""
        ty = self.solver.resolve((yield self.infer(expr)))
        if isinstance(ty, FuncType) and ty.type_params:
            return self.instantiate(ty, (), expr.span)[0]
        return ty  # type: ignore[no-any-return]

    def monos(self, exprs: Sequence[rl.RelayExpr]) -> Task[tuple[Type, ...]]:
        """Infer the types of several values, from left to right."""
        types: list[Type] = []
        for expr in exprs:
            ty = yield self.mono(expr)
            types.append(ty)
        return tuple(types)

    def _infer(self, expr: AnyExpr) -> _Inferring:
        match expr:
            case rl.Constant(data=data):
                return expr.checked_type_ or TensorType(data.shape, data.dtype)  # type: ignore[arg-type]
            case rl.Literal(value=value):
                hole = self.solver.literal(value)
                self.literals[id(expr)] = expr, hole
                return TensorType((), hole)
            case rl.Tuple(fields=fields):
                return _kept(expr, TupleType((yield self.monos(fields))))
            case rl.TupleGetItem():
                return (yield from self._projection(expr))
            case rl.Function():
                return (yield from self._function(expr))
            case rl.Call():
                return (yield from self._call(expr))
            case rl.Let():
                return (yield from self._lets(expr))
            case rl.If():
                return (yield from self._if(expr))
            case rl.Match():
                return (yield from self._match(expr))
            case rl.RefCreate(value=value):
                return _kept(expr, RefType((yield self.mono(value))))
            case rl.RefRead() | rl.RefWrite():
                return (yield from self._cell(expr))
            case rl.Constructor():
                return self.constructor_type(expr)
            case Op():
                return expr.checked_type
            case rl.TempExpr():
                self.report(
                    f"a program contains no TempExpr, found {type(expr).__name__}", "RLY-56", None
                )
                return self.solver.hole()
            case _:
                assert_never(expr)

    def _variable(self, var: rl.Var) -> Type:
        ty = self.env.get(var)
        if ty is None:
            self.report(f"the variable %{var.name_hint} is not defined here", "RLY-95", var.span)
            ty = self.env[var] = self.annotation(var.type_annotation, var.span)
        return ty

    def _global(self, var: rl.GlobalVar) -> Type:
        ty = self.signatures.get(var.name_hint)
        if ty is None:
            self.report(f"the module has no function @{var.name_hint}", "RLY-95", var.span)
            ty = self.signatures[var.name_hint] = self.solver.hole()
        return ty

    def annotation(self, annotation: Type | None, span: Span | None) -> Type:
        """An annotated type whose kinds are right, or a hole."""
        if annotation is None:
            return self.solver.hole(span=span)
        errors = kind_errors(annotation, self.module, self._checked_kinds)
        for rule, message in errors:
            self.report(message, rule, annotation.span or span)
        return self.solver.hole(span=span) if errors else annotation

    def bind(self, var: rl.Var, ty: Type) -> None:
        """Bind a variable to its type in all that follows."""
        if var in self.env:
            self.report(f"the variable %{var.name_hint} is bound twice", "RLY-85", var.span)
        self.env[var] = ty

    def _projection(self, expr: rl.TupleGetItem) -> _Inferring:
        """`t.i`, which waits while the type of t is not known (RLY-41, RLY-104)."""
        ty = yield self.mono(expr.tuple_value)
        result = self.solver.hole()

        def project(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
            match args[0]:
                case IncompleteType():
                    return False
                case TupleType(fields=fields) if expr.index < len(fields):
                    solver.unify(args[1], fields[expr.index])
                    return True
                case TupleType(fields=fields):
                    raise ProjectionError(
                        f"index {expr.index} is out of range for a tuple of "
                        f"{counted(len(fields), 'field')}"
                    )
                case other:
                    raise ProjectionError(f"expected a tuple, found {other}")

        self._relate("projection", project, (ty, result), EMPTY_ATTRS, expr.span)
        return self.solver.resolve(result)  # type: ignore[no-any-return]

    def _relate(
        self, name: str, relation: Any, args: tuple[Type, ...], attrs: Attrs, span: Span | None
    ) -> None:
        """Add a relation between operands and a result, and ask it."""

        def describe() -> str:
            return f"{name} of {', '.join(map(self.text, args[:-1])) or 'no operands'}"

        self.solver.relate(OpenRelation(name, relation, args, attrs, span or self._span, describe))
        self.solve()

    # Functions and calls

    def _function(self, function: rl.Function) -> _Inferring:
        params = []
        outer, self._span = self._span, function.span or self._span
        for param in function.params:
            ty = self.annotation(param.type_annotation, param.span)
            self.bind(param, ty)
            params.append(ty)
        given = [(r.func, r.args) for r in function.constraints]
        self.solver.given += given
        result = self.annotation(function.ret_type, function.span)
        wanted = self.solver.resolve(result)
        polymorphic = isinstance(wanted, FuncType) and bool(wanted.type_params)
        body = yield self.infer(function.body) if polymorphic else self.mono(function.body)
        self.expect(
            body, result, "the body of the function", "RLY-12", place(function.body, function)
        )
        self.solve()
        self._span = outer
        if given:
            del self.solver.given[-len(given) :]
        for constraint in function.constraints:
            if not free_type_vars(constraint) and not self.solver.holes(constraint):
                self._demand(constraint, constraint.span or function.span)
        ty = FuncType(params, result, function.type_params, function.constraints)  # type: ignore[arg-type]
        if function.type_params:  # holes that stand for them are instantiated too
            ty = self.solver.complete(ty)
        return _kept(function, ty)

    def instantiate(
        self, ty: FuncType, type_args: Sequence[Any], span: Span | None
    ) -> tuple[FuncType, tuple[Any, ...]]:
        """A polymorphic type for new type arguments, and these (RLY-19, RLY-97)."""
        if len(type_args) > len(ty.type_params):
            self.report(
                f"found {counted(len(type_args), 'type argument')} for "
                f"{counted(len(ty.type_params), 'type parameter')}",
                "RLY-94",
                span,
            )
            type_args = ()
        holes = [self.solver.hole(param.kind) for param in ty.type_params]
        for hole, arg in zip(holes, type_args, strict=False):
            try:
                self.solver.unify(hole, _as_kind(arg, hole.kind))
            except UnifyError as error:
                self.report(f"a type argument: {error}", "RLY-17", span)
        mono: FuncType = self.solver.substitute(
            replace(ty, type_params=()), dict(zip(ty.type_params, holes, strict=True))
        )
        for constraint in mono.type_constraints:
            self._demand(constraint, span)
        return replace(mono, type_constraints=()), tuple(holes)

    def _demand(self, constraint: TypeRelation, span: Span | None) -> None:
        """Demand a relation of a function again at a call (RLY-22, RLY-99)."""
        relation = relation_named(constraint.func)
        if relation is None:
            self.report(f"the type relation {constraint.func} is not defined", "RLY-95", span)
            return
        self._relate(constraint.func, relation, constraint.args, constraint.attrs, span)

    def constructor_type(self, constructor: rl.Constructor) -> Type:
        """The type of a constructor as a function (RLY-32)."""
        known = constructor.belong_to.name_hint in self.module.definitions_by_name
        if known and constructor.checked_type_ is not None:
            return constructor.checked_type_
        self.report(
            f"the module has no data type {constructor.belong_to}", "RLY-95", constructor.span
        )
        return self.solver.hole()

    def _call(self, call: rl.Call) -> _Inferring:
        if isinstance(call.op, Op):
            return (yield from self._operator_call(call, call.op))
        callee = self.solver.resolve((yield self.infer(call.op)))
        if isinstance(callee, FuncType):
            return (yield from self._function_call(call, callee))
        if call.op in self.recursive_calls:
            self.recursive_calls[call.op].append(call)
        args = yield self.monos(call.args)
        callee = self.solver.resolve(callee)
        if isinstance(callee, FuncType):
            return (yield from self._function_call(call, callee))
        if not isinstance(callee, IncompleteType):
            self.report(
                f"only functions can be called, found {self.text(callee)}", "RLY-35", call.span
            )
            return self.solver.hole(span=call.span)
        result = self.solver.hole(span=call.span)
        self.expect(FuncType(args, result), callee, "the callee", "RLY-94", call.span)
        return result

    def _function_call(self, call: rl.Call, callee: FuncType) -> _Inferring:
        name = callee_text(call.op)
        if callee.type_params or call.type_args:
            callee, args = self.instantiate(callee, call.type_args, call.span)
            self.type_args[id(call)] = args
            self.instantiated.append((call, args))
        elif call.op in self.recursive_calls:
            self.recursive_calls[call.op].append(call)
        if len(call.args) != len(callee.arg_types):
            self.report(
                f"{name} takes {counted(len(callee.arg_types), 'argument')}, "
                f"found {len(call.args)}",
                "RLY-94",
                call.span,
            )
            for arg in call.args:
                yield self.mono(arg)
            return callee.ret_type
        for i, (arg, expected) in enumerate(zip(call.args, callee.arg_types, strict=True), 1):
            wanted = self.solver.resolve(expected)
            polymorphic = isinstance(wanted, FuncType) and bool(wanted.type_params)
            actual = yield self.infer(arg) if polymorphic else self.mono(arg)
            self.expect(actual, expected, f"argument {i} of {name}", "RLY-12", place(arg, call))
        self.solve()
        return callee.ret_type

    def _operator_call(self, call: rl.Call, op: Op) -> _Inferring:
        args = yield self.monos(call.args)
        operands = op.record.operands
        if len(args) != len(operands):
            self.report(
                f"{op.name} takes {counted(len(operands), 'operand')} "
                f"({', '.join(operands)}), found {len(args)}",
                "RLY-94",
                call.span,
            )
            return self.solver.hole(span=call.span)
        result = self.solver.hole(span=call.span)
        relation = relation_named(op.name) if op.record.relation is None else op.record.relation
        try:
            attrs = Attrs(op.record.text_attrs(call.attrs))
        except RelaxpyError as error:
            self.diagnostics += error.located(call.span).diagnostics
            return result
        name = op.record.relation_name or op.name
        self.solver.relate(
            OpenRelation(
                name,
                relation,  # type: ignore[arg-type]
                (*args, result),
                attrs,
                call.span,
                lambda: f"{op.name} of {', '.join(map(self.text, args)) or 'no operands'}",
            )
        )
        self.solve()
        return self.solver.resolve(result)  # type: ignore[no-any-return]

    # Bindings

    def _lets(self, let: rl.Let) -> _Inferring:
        """A chain of lets, however long."""
        chain: list[rl.Let] = []
        expr: rl.RelayExpr = let
        while isinstance(expr, rl.Let) and id(expr) not in self.types:
            chain.append(expr)
            yield from self._let(expr)
            expr = expr.body
        ty = yield self.mono(expr)
        for inner in chain:
            self.types[id(inner)] = ty
        return ty  # type: ignore[no-any-return]

    def _let(self, let: rl.Let) -> Generator[Task[Any], Any, None]:
        """Infer the type of a bound value, and generalise that of a function (RLY-98)."""
        var, value = let.var, let.value
        annotation = None
        if var.type_annotation is not None:
            annotation = self.annotation(var.type_annotation, var.span)
        what, span = f"the value of %{var.name_hint}", place(value, let)
        if isinstance(value, rl.Function) and id(value) not in self.types:
            ty = yield from self.bound_function(var, value, annotation)
            self.env[var] = ty
        else:
            is_name = isinstance(value, (rl.Var, rl.GlobalVar, rl.Constructor, Op))
            ty = self.solver.resolve((yield self.infer(value)))
            keeps = is_name and annotation is None and not getattr(ty, "type_constraints", ())
            if isinstance(ty, FuncType) and ty.type_params and not keeps:
                poly = isinstance(annotation, FuncType) and bool(annotation.type_params)
                ty = ty if poly else self.instantiate(ty, (), span)[0]
            if annotation is not None:
                self.expect(ty, annotation, what, "RLY-42", span)
                ty = annotation
            self.bind(var, ty)
        self.solve()

    def bound_function(
        self, name: rl.Var | rl.GlobalVar, function: rl.Function, annotation: Type | None
    ) -> _Inferring:
        """Infer the type of a function that a let or a def binds, and generalise it."""
        solver = self.solver
        declared = declared_type(function)
        solver.level += 1
        own = annotation or declared or solver.hole(span=function.span)
        if isinstance(name, rl.Var):
            self.bind(name, own)
        if declared is None:
            self.recursive_calls[name] = []
        ty = yield self.infer(function)
        assert isinstance(ty, FuncType)
        what = f"the value of %{name.name_hint}"
        if annotation is not None:
            self.expect(ty, annotation, what, "RLY-42", function.span)
        elif declared is None:
            inside = replace(ty, type_params=(), type_constraints=())
            self.expect(inside, own, what, "RLY-42", function.span)
        self.solve()
        solver.level -= 1
        return self.generalise(name, function, ty)

    def generalise(
        self,
        name: rl.Var | rl.GlobalVar,
        function: rl.Function,
        ty: FuncType,
        shared: Collection[TypeVar] = (),
    ) -> FuncType:
        """Make parameters of the holes that only the type of a function mentions (RLY-98).

        `shared` are the parameters of functions that are recursive together with this one, for
        which it gets parameters of its own.
        """
        solver = self.solver
        mentioned = {
            hole for relation in solver.open for arg in relation.args for hole in solver.holes(arg)
        }
        taken = {param.name_hint for param in ty.type_params}
        params: list[TypeVar] = []
        for hole in solver.holes(ty):
            if (
                solver.levels.get(hole, 0) <= solver.level
                or hole in mentioned
                or hole in solver.literals
            ):
                continue
            param = TypeVar(fresh_name(taken), hole.kind)
            params.append(param)
            solver.unify(hole, param)
        completed: FuncType = solver.complete(ty)
        used = [p for p in free_type_vars(completed) if p in shared] if shared else []
        own = {param: TypeVar(param.name_hint, param.kind) for param in used}
        for call in self.recursive_calls.pop(name, ()):
            self.type_args[id(call)] = (*ty.type_params, *used, *params)
        if params or own:
            self.new_params[id(function)] = (*own.values(), *params)
            self.renamings[id(function)] = dict(own)
            all_params = (*ty.type_params, *own.values(), *params)
            completed = solver.substitute(replace(completed, type_params=all_params), dict(own))
        self.types[id(function)] = completed
        return completed

    # Control flow and cells

    def _if(self, expr: rl.If) -> _Inferring:
        condition = yield self.mono(expr.cond)
        self.expect(condition, _BOOL, "the condition", "RLY-49", place(expr.cond, expr))
        ty = yield self.mono(expr.true_branch)
        other = yield self.mono(expr.false_branch)
        self.expect(
            other,
            ty,
            "the branches of an if have one type",
            "RLY-89",
            place(expr.false_branch, expr),
        )
        self.solve()
        return ty  # type: ignore[no-any-return]

    def _match(self, expr: rl.Match) -> _Inferring:
        data = yield self.mono(expr.data)
        result = self.solver.hole(span=expr.span)
        for clause in expr.clauses:
            bind_pattern(self, clause.lhs, data)
            self.solve()
            ty = yield self.mono(clause.rhs)
            self.expect(
                ty,
                result,
                "the clauses of a match have one type",
                "RLY-90",
                place(clause.rhs, clause),
            )
        self.solve()
        self.matches.append(expr)
        return self.solver.resolve(result)  # type: ignore[no-any-return]

    def _cell(self, expr: rl.RefRead | rl.RefWrite) -> _Inferring:
        ref = yield self.mono(expr.ref)
        content = self.solver.hole(span=expr.span)
        what = "ref_read" if isinstance(expr, rl.RefRead) else "ref_write"
        self.expect(ref, RefType(content), f"operand 1 of {what}", "RLY-105", place(expr.ref, expr))
        if isinstance(expr, rl.RefRead):
            return self.solver.resolve(content)  # type: ignore[no-any-return]
        value = yield self.mono(expr.value)
        self.expect(value, content, "operand 2 of ref_write", "RLY-105", place(expr.value, expr))
        return UNIT


AnyExpr: TypeAlias = (
    rl.Constant
    | rl.Literal
    | rl.Tuple
    | rl.TupleGetItem
    | rl.Function
    | rl.Call
    | rl.Let
    | rl.If
    | rl.Match
    | rl.RefCreate
    | rl.RefRead
    | rl.RefWrite
    | rl.Constructor
    | Op
    | rl.TempExpr
)


def _kept(expr: rl.RelayExpr, ty: Type) -> Type:
    """The type that an expression has already, if its components are those of `ty`.

    Types are compared by structure, which takes no time for a type and itself.
    """
    known = expr.checked_type_
    if type(known) is not type(ty):
        return ty
    old, new = list(children(known)), list(children(ty))
    same = len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
    return known if same else ty


def declared_type(function: rl.Function) -> FuncType | None:
    """The type of a function whose annotations have no holes, or None."""
    ty = rl.function_type(function)
    return None if ty is None or Solver().holes(ty) else ty


def fresh_name(taken: set[str]) -> str:
    """Add a name for a type parameter that is not taken, and return it."""
    number = 0
    while (name := f"t{number}") in taken:
        number += 1
    taken.add(name)
    return name


def _as_kind(arg: object, kind: TypeKind) -> object:
    """A type argument as a component of this kind: a scalar's type can be a datatype."""
    if kind is TypeKind.BaseType and isinstance(arg, TensorType) and arg.shape == ():
        return arg.dtype
    if kind is TypeKind.Shape and arg == UNIT:
        return ()
    return arg
