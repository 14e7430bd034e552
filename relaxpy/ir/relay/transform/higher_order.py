"""Gradients of programs with closures, branches, recursion, data types and cells.

Every tensor becomes a pair of itself and a cell for its gradient. Every function takes a further
cell, with the function that propagates gradients backwards: each call of an operator puts one that
does its own part, and then calls the one before, in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from relaxpy.dataclass import replace
from relaxpy.errors import Span, TransformError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.trampoline import Task, run
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.transform.eta_expand import EtaExpand, values_expanded
from relaxpy.ir.relay.transform.normal_forms import a_normal_form
from relaxpy.ir.relay.transform.passes import map_functions
from relaxpy.ir.relay.ty import (
    UNIT,
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeData,
    TypeKind,
)

Emit = Callable[[rl.RelayExpr, str], rl.Var]
Gradients = Callable[[rl.Call, rl.RelayExpr, Emit], list[rl.RelayExpr]]
"""The gradients of the operands of a call of an operator, from that of its result."""

_TAPE: Final = RefType(FuncType((), UNIT))


def prepared_for_gradient(module: RelayModule) -> RelayModule:
    """Return a typed module in A-normal form, in which only functions are values of their types."""
    typed = infer_module(EtaExpand(expand_constructor=True).apply(infer_module(module)))
    typed = infer_module(map_functions(typed, lambda f: values_expanded(f, typed)))
    return infer_module(map_functions(typed, a_normal_form))


class HigherOrderGradient:
    """The differentiation of functions of a module that `prepared_for_gradient` returned.

    `functions` and `data_types` are what the result needs besides: a function `f_grad` for each
    function f that is called, and a data type for each whose fields contain tensors or functions.
    """

    def __init__(self, module: RelayModule, gradients: Gradients) -> None:
        self.module = module
        self.gradients = gradients
        self.functions: dict[str, rl.Function] = {}
        self.data_types: list[TypeData] = []
        self.vars: dict[rl.Var, rl.Var] = {}
        self.lets: list[tuple[rl.Var, rl.RelayExpr]] = []
        self.tape: rl.Var
        self._globals: dict[str, rl.GlobalVar] = {}
        self._waiting: list[str] = []
        self._constructors: dict[str, rl.Constructor] = {}
        self._headers: dict[str, GlobalTypeVar] = {}
        self._undeclared: list[str] = []
        self._taken = {*module.definitions_by_name, *module.constructors}
        self._changed = self._changed_types()

    def result(self, function: rl.Function) -> rl.Function:
        """Return the function of the result of a function and the gradients of its parameters.

        Errors:
            TransformError: a parameter or the result is neither a tensor nor a tuple of tensors, or
                an operator has no gradient.
        """
        if function.type_params:
            raise TransformError(
                f"the gradient of a function that is polymorphic in {function.type_params[0]} has "
                "no known type",
                rule="RLY-16",
                span=function.span,
            )
        types = [p.checked_type for p in function.params]
        params = [rl.Var(p.name_hint, p.checked_type, span=p.span) for p in function.params]
        for what, ty, span in (
            *((f"%{p.name_hint}", t, p.span) for p, t in zip(params, types, strict=True)),
            ("the result", function.body.checked_type, function.body.span),
        ):
            _check_tensors(what, ty, span or function.span)
        inner = run(self._function(function))
        while self._waiting:
            name = self._waiting.pop()
            self.functions[self._globals[name].name_hint] = run(self._function(self.module[name]))
        self._declare()
        self.lets = []
        tape = self._emit(rl.RefCreate(rl.Function((), rl.Tuple(()))), "tape")
        inputs = [self._lifted(p, t) for p, t in zip(params, types, strict=True)]
        result = self._emit(rl.Call(inner, (*inputs, tape)), "result")
        ty = function.body.checked_type
        for cell, value, part in self._cells(result, ty):
            if _is_float(part):
                self._add(cell, rl.Call(Op.get("ones_like"), (value,)))
        self._emit(rl.Call(rl.RefRead(tape), ()), "done")
        adjoints = [self._adjoint(i, t) for i, t in zip(inputs, types, strict=True)]
        value = rl.Tuple((self._primal(result, ty), rl.Tuple(adjoints)))  # type: ignore[arg-type]
        body = self._closed(value)
        return rl.Function(params, body, attrs=function.attrs, span=function.span)  # type: ignore[arg-type]

    # Types

    def _changed_types(self) -> set[str]:
        """Return the names of the data types whose fields contain tensors or functions."""
        definitions = self.module.definitions_by_name
        changed: set[str] = set()
        while True:
            more = {
                name
                for name, data in definitions.items()
                if name not in changed
                and any(_changes(c.inputs, changed) for c in data.constructors)
            }
            if not more:
                return changed
            changed |= more

    def _header(self, header: GlobalTypeVar) -> GlobalTypeVar:
        """Return the name of the data type in place of another; its declaration will follow."""
        name = header.name_hint
        if name in self._changed and name not in self._headers:
            self._headers[name] = GlobalTypeVar(_fresh(name, self._taken))
            self._undeclared.append(name)
        return self._headers.get(name, header)

    def _constructor(self, constructor: rl.Constructor) -> rl.Constructor:
        """Return the constructor in place of another."""
        self._header(constructor.belong_to)
        self._declare()
        return self._constructors.get(constructor.name_hint, constructor)

    def _declare(self) -> None:
        """Create the data types that were mentioned so far."""
        while self._undeclared:
            name = self._undeclared.pop()
            data, header = self.module.definitions_by_name[name], self._headers[name]
            constructors = []
            for old in data.constructors:
                fields = tuple(map(self._type, old.inputs))
                new = rl.Constructor(_fresh(old.name_hint, self._taken), fields, header)
                self._constructors[old.name_hint] = new
                constructors.append(new)
            self.data_types.append(TypeData(header, data.type_vars, constructors))  # type: ignore[arg-type]

    def _type(self, ty: Any) -> Any:
        """Return a type in which tensors have cells, and functions take the tape."""

        def rule(part: Node) -> Node | None:
            match part:
                case TensorType():
                    return TupleType((part, RefType(part)))
                case FuncType():
                    return replace(part, arg_types=(*part.arg_types, _TAPE))
                case GlobalTypeVar():
                    return self._header(part)
                case _:
                    return None

        return None if ty is None else rewrite(ty, rule) if isinstance(ty, Type) else ty

    # Tensors with their cells

    def _lifted(self, value: rl.RelayExpr, ty: Type) -> rl.RelayExpr:
        """Return a value with new cells that contain zeros."""
        if isinstance(ty, TupleType):
            fields = (
                self._lifted(rl.TupleGetItem(value, index), field)
                for index, field in enumerate(ty.fields)
            )
            return self._emit(rl.Tuple(tuple(fields)), "x")
        tensor = value if isinstance(value, rl.Var) else self._emit(value, "x")
        zeros = rl.Call(Op.get("zeros_like"), (tensor,))
        return self._emit(rl.Tuple((tensor, rl.RefCreate(zeros))), "x")

    def _cells(
        self, value: rl.RelayExpr, ty: Type
    ) -> Iterable[tuple[rl.RelayExpr, rl.RelayExpr, TensorType]]:
        """Yield the cells and the tensors of a value with cells, with their types."""
        if isinstance(ty, TupleType):
            for index, field in enumerate(ty.fields):
                yield from self._cells(rl.TupleGetItem(value, index), field)
        elif isinstance(ty, TensorType):
            yield rl.TupleGetItem(value, 1), rl.TupleGetItem(value, 0), ty

    def _primal(self, value: rl.RelayExpr, ty: Type) -> rl.RelayExpr:
        """Return a value without its cells."""
        if isinstance(ty, TupleType):
            fields = enumerate(ty.fields)
            return rl.Tuple(tuple(self._primal(rl.TupleGetItem(value, i), f) for i, f in fields))
        return rl.TupleGetItem(value, 0)

    def _adjoint(self, value: rl.RelayExpr, ty: Type) -> rl.RelayExpr:
        """Return the contents of the cells of a value."""
        if isinstance(ty, TupleType):
            fields = enumerate(ty.fields)
            return rl.Tuple(tuple(self._adjoint(rl.TupleGetItem(value, i), f) for i, f in fields))
        return rl.RefRead(rl.TupleGetItem(value, 1))

    def _add(self, cell: rl.RelayExpr, gradient: rl.RelayExpr) -> None:
        """Add a gradient to a cell."""
        total = rl.Call(Op.get("add"), (rl.RefRead(cell), gradient))
        self._emit(rl.RefWrite(cell, total), "u")

    # Expressions

    def _emit(self, expr: rl.RelayExpr, hint: str) -> rl.Var:
        var = rl.Var(hint, span=expr.span)
        self.lets.append((var, expr))
        return var

    def _closed(self, value: rl.RelayExpr) -> rl.RelayExpr:
        for var, bound in reversed(self.lets):
            value = rl.Let(var, bound, value, span=bound.span)
        return value

    def _renewed(self, var: rl.Var) -> rl.Var:
        new = rl.Var(var.name_hint, self._type(var.type_annotation), span=var.span)
        self.vars[var] = new
        return new

    def _function(self, function: rl.Function) -> Task[rl.Function]:
        if function.constraints or any(p.kind is not TypeKind.Type for p in function.type_params):
            raise TransformError(
                "gradients do not pass through a function that is polymorphic in shapes, datatypes "
                "or relations",
                rule="RLY-17",
                span=function.span,
                hint="write its types, or call it with known types and use PartialEvaluate",
            )
        outer = getattr(self, "tape", None)
        params = tuple(map(self._renewed, function.params))
        self.tape = rl.Var("tape", _TAPE)
        params = (*params, self.tape)
        body = yield self._scope(function.body)
        if outer is not None:
            self.tape = outer
        return rl.Function(
            params,
            body,
            self._type(function.ret_type),
            function.type_params,
            function.attrs,
            span=function.span,
        )

    def _scope(self, expr: rl.RelayExpr) -> Task[rl.RelayExpr]:
        """Return the lets of a scope, which also have what operators do, around its value."""
        outer, self.lets = self.lets, []
        while isinstance(expr, rl.Let):
            var = expr.var
            itself = self._renewed(var) if isinstance(expr.value, rl.Function) else None
            value = yield self._value(expr.value)
            self.lets.append((itself or self._renewed(var), value))
            expr = expr.body
        value = yield self._value(expr)
        result = self._closed(value)
        self.lets = outer
        return result

    def _value(self, expr: rl.RelayExpr) -> Task[rl.RelayExpr]:
        """Return the value of an expression whose operands are atoms."""
        match expr:
            case rl.Function():
                return (yield from self._function(expr))
            case rl.If(cond=cond):
                true = yield self._scope(expr.true_branch)
                false = yield self._scope(expr.false_branch)
                test = rl.TupleGetItem(self._atom(cond), 0)
                return rl.If(test, true, false, span=expr.span)
            case rl.Match(data=data):
                clauses = []
                for clause in expr.clauses:
                    pattern = self._pattern(clause.lhs)
                    body = yield self._scope(clause.rhs)
                    clauses.append(replace(clause, lhs=pattern, rhs=body))
                new = {"data": self._atom(data), "clauses": tuple(clauses)}
                return replace(expr, checked_type_=None, **new)  # type: ignore[arg-type]
            case rl.Call(op=Op()):
                return self._operator_call(expr)
            case rl.Call(op=callee):
                args = tuple(map(self._atom, expr.args))
                if not isinstance(callee, rl.Constructor):
                    args = (*args, self.tape)
                types = tuple(map(self._type, expr.type_args))
                return rl.Call(self._atom(callee), args, type_args=types, span=expr.span)
            case rl.Tuple(fields=fields):
                return rl.Tuple(tuple(map(self._atom, fields)), span=expr.span)
            case rl.TupleGetItem(tuple_value=value, index=index):
                return rl.TupleGetItem(self._atom(value), index, span=expr.span)
            case rl.RefCreate(value=value):
                return rl.RefCreate(self._atom(value), span=expr.span)
            case rl.RefRead(ref=ref):
                return rl.RefRead(self._atom(ref), span=expr.span)
            case rl.RefWrite(ref=ref, value=value):
                return rl.RefWrite(self._atom(ref), self._atom(value), span=expr.span)
            case _:
                return self._atom(expr)

    def _atom(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        match expr:
            case rl.Var():
                return self.vars[expr]
            case rl.GlobalVar(name_hint=name):
                return self._global(name)
            case rl.Constructor():
                return self._constructor(expr)
            case rl.Constant():
                return self._lifted(expr, expr.checked_type)
            case _:
                raise TransformError(
                    f"gradients do not pass through {expr} as a value",
                    rule="RLY-96",
                    span=expr.span,
                )

    def _global(self, name: str) -> rl.GlobalVar:
        """Return the name of the differentiated function, which will follow."""
        known = self._globals.get(name)
        if known is None:
            taken = {*self.module.functions_by_name, *(v.name_hint for v in self._globals.values())}
            known = self._globals[name] = rl.GlobalVar(_fresh(name, taken))
            self._waiting.append(name)
        return known

    def _pattern(self, pattern: rl.Pattern) -> rl.Pattern:
        match pattern:
            case rl.PatternVar(var=var):
                return rl.PatternVar(self._renewed(var))
            case rl.PatternConstructor(constructor=old, patterns=inner):
                new = self._constructor(old)
                return rl.PatternConstructor(new, tuple(map(self._pattern, inner)))
            case rl.PatternTuple(patterns=inner):
                return rl.PatternTuple(tuple(map(self._pattern, inner)))
            case _:
                return pattern

    def _operator_call(self, call: rl.Call) -> rl.RelayExpr:
        """Return the result of an operator with its cells, and put its part on the tape."""
        for arg in call.args:
            _check_tensors("an operand", arg.checked_type, call.span)
        args = list(map(self._atom, call.args))
        types = [arg.checked_type for arg in call.args]
        primals = [self._primal(arg, ty) for arg, ty in zip(args, types, strict=True)]
        new = rl.Call(call.op, tuple(primals), call.attrs, span=call.span)
        result = self._lifted(self._emit(new, "x"), call.checked_type)
        if not (_has_floats(call.checked_type) and any(map(_has_floats, types))):
            return result
        before = self._emit(rl.RefRead(self.tape), "before")
        outer, self.lets = self.lets, []
        adjoint = self._emit(self._adjoint(result, call.checked_type), "g")
        found = self.gradients(new, adjoint, self._emit)
        for arg, ty, gradient in zip(args, types, found, strict=True):
            for (cell, _, part), path in zip(
                self._cells(arg, ty), _paths(gradient, ty), strict=True
            ):
                if _is_float(part):
                    self._add(cell, path)
        backward = rl.Function((), self._closed(rl.Call(before, ())))
        self.lets = outer
        self._emit(rl.RefWrite(self.tape, backward), "u")
        return result


def _paths(value: rl.RelayExpr, ty: Type) -> Iterable[rl.RelayExpr]:
    """Yield the tensors of a value, in their order."""
    if isinstance(ty, TupleType):
        for index, field in enumerate(ty.fields):
            yield from _paths(rl.TupleGetItem(value, index), field)
    else:
        yield value


def _is_float(ty: TensorType) -> bool:
    return isinstance(ty.dtype, DataType) and "float" in ty.dtype.family


def _has_floats(ty: Type) -> bool:
    """Return whether a tensor, or one in a tuple, has a floating datatype."""
    if isinstance(ty, TupleType):
        return any(map(_has_floats, ty.fields))
    return isinstance(ty, TensorType) and _is_float(ty)


def _check_tensors(what: str, ty: Type, span: Span | None) -> None:
    """Check that a type is that of a tensor, or of a tuple of them."""
    for part in [ty] if not isinstance(ty, TupleType) else ty.fields:
        if isinstance(part, TupleType):
            _check_tensors(what, part, span)
        elif not isinstance(part, TensorType):
            raise TransformError(
                f"gradients are those of tensors and tuples of tensors, but {what} has the type "
                f"{ty}",
                rule="RLY-84",
                span=span,
            )


def _changes(fields: Iterable[Type], changed: set[str]) -> bool:
    """Return whether types contain tensors, functions, or one of some data types."""
    stack: list[Node] = list(fields)
    for part in (inner for root in stack for inner in walk(root)):
        if isinstance(part, (TensorType, FuncType)):
            return True
        if isinstance(part, TypeCall) and str(part.func) in changed:
            return True
    return False


def _fresh(name: str, taken: set[str]) -> str:
    """Return the name of what belongs to a differentiated program, and enter it."""
    name = f"{name}_grad"
    while name in taken:
        name += "_"
    taken.add(name)
    return name
