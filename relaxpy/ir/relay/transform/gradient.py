"""Adds the gradients of a function's result by its parameters, in reverse mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from typing_extensions import override

from relaxpy.dataclass import dataclass, replace
from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.core.traverse import map_children
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import Scopes, same_scope
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule, as_function
from relaxpy.ir.relay.op.gradients import enter_gradient
from relaxpy.ir.relay.op.registry import GRADIENT, GRADIENT_COLUMN, Op, is_op_name
from relaxpy.ir.relay.transform.lets import replace_lets, with_fresh_variables
from relaxpy.ir.relay.transform.passes import RelayPass, map_functions
from relaxpy.ir.relay.ty import TensorType, TupleType, Type

_Adjoint: TypeAlias = Any
"""The gradient of a value: None for zeros, an expression, or a list with those of its fields."""


@dataclass(frozen=True)
class FirstOrderGradient(RelayPass):
    """Replace each function by one that returns its result and the gradients of its parameters.

    The gradients are those of the sum of all elements of the result; parameters that are not
    floats have zeros. The functions consist of calls of operators, tuples and lets.

    Errors:
        TransformError: a function contains anything else, or an operator without a gradient.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        graph = infer_module(map_functions(infer_module(mod), _graph_form))
        return map_functions(graph, lambda function: _Differentiation(function).result())


@user_facing
def gradient(
    expr: rl.RelayExpr, mod: RelayModule | None = None, mode: str = "first_order"
) -> rl.Function:
    """Return a function that returns the result of `expr` and the tuple of its gradients.

    `expr` is a function, or a global function of `mod`. The gradients by the parameters are those
    of the sum of all elements of the result. The body consists of calls of operators, tuples and
    lets; PartialEvaluate removes calls of known functions, and branches and matches that are known.

    Errors:
        RelayTypeError: the program is not well-typed.
        MisuseError (also TypeError, ValueError): there is no such mode, or `expr` is none of Relay.
        TransformError: the body contains anything else, or an operator without a gradient.
    """
    if mode != "first_order":
        raise MisuseError(
            f'the mode is "first_order", found {mode!r:.60}',
            hint="to_relax(mod) makes a Relax module, whose pass Gradient knows more programs",
            about=mode,
        )
    if not isinstance(expr, rl.RelayExpr):
        raise MisuseError(f"expected a Relay expression, found {expr!r:.60}", about=expr)
    module = RelayModule() if mod is None else mod.clone()
    if isinstance(expr, rl.GlobalVar):
        name = expr.name_hint
    else:
        name = "main"
        while name in module:
            name += "_"
        module[name] = with_fresh_variables(as_function(expr))
    module[name] = _graph_form(infer_module(module)[name])
    module[name] = _Differentiation(infer_module(module)[name]).result()
    result: rl.Function = infer_module(module)[name]
    return result


def _graph_form(function: rl.Function) -> rl.RelayExpr:
    """Return a function without lets.

    Errors:
        TransformError: it does not consist of operators, tuples and lets.
    """
    if function.type_params:
        raise TransformError(
            f"the gradient of a function that is polymorphic in {function.type_params[0]} has no "
            "known type",
            rule="RLY-16",
            span=function.span,
        )
    for node in Scopes(function).nodes:
        if node is not function and not _is_differentiable(node):
            what = type(node).__name__
            if isinstance(node, rl.Call):
                name = node.op.name_hint if isinstance(node.op, rl.Var) else None
                what = f"the call of {node.op if name is None else '%' + name}"
            raise TransformError(
                f"first-order gradients pass through operators, tuples and lets, not {what}",
                rule="RLY-2",
                span=node.span or function.span,
                hint="PartialEvaluate removes known calls, branches and matches",
                about=node,
            )
    return replace_lets(function, lambda let, value: False)


def _is_differentiable(node: rl.RelayExpr) -> bool:
    is_call = isinstance(node, rl.Call) and isinstance(node.op, Op)
    return is_call or isinstance(node, (rl.Tuple, rl.TupleGetItem, rl.Let))


def operand_gradients(
    call: rl.Call, gradient: rl.RelayExpr, emit: Callable[[rl.RelayExpr, str], rl.Var]
) -> list[rl.RelayExpr]:
    """Return the gradients of the operands of a call of an operator, from that of its result.

    Errors:
        TransformError: the operator has no gradient.
    """
    op = call.op
    assert isinstance(op, Op)
    rule: Any = op.get_attr(GRADIENT_COLUMN)
    if rule is not None:
        results = list(rule(call, gradient))
        if len(results) != len(call.args):
            raise TransformError(
                f"the gradient of {op.name} returned {len(results)} expressions for "
                f"{len(call.args)} operands",
                about=op,
            )
        return results
    if op.name.endswith(GRADIENT) and not is_op_name(op.name + GRADIENT):
        enter_gradient(op.name)
    if not is_op_name(op.name + GRADIENT):
        raise TransformError(
            f"the operator {op.name} has no gradient",
            rule="RLY-28",
            span=call.span,
            hint=f'register one: relay.op.register_gradient("{op.name}", function)',
            about=op,
        )
    operator = Op.get(op.name + GRADIENT)
    both = emit(replace(call, op=operator, args=(*call.args, gradient)), "g")
    return [rl.TupleGetItem(both, index) for index in range(len(call.args))]


class _Differentiation:
    """The differentiation of a typed function without lets."""

    def __init__(self, function: rl.Function) -> None:
        self.function = function
        self.lets: list[tuple[rl.Var, rl.RelayExpr]] = []
        self.values: dict[int, rl.RelayExpr] = {}
        self.adjoints: dict[int, _Adjoint] = {}
        self.active: set[int] = set()

    def result(self) -> rl.Function:
        """Return the function of the result and the gradients."""
        function = self.function
        params = tuple(rl.Var(p.name_hint, p.type_annotation, span=p.span) for p in function.params)
        for old, new in zip(function.params, params, strict=True):
            self.values[id(old)] = new
            self.active.add(id(old))
        order = [node for node in Scopes(function).nodes if node is not function]
        for node in order:
            self._forward(node)
        body = function.body
        self._add(body, self._filled("ones_like", self._value(body), body.checked_type))
        for node in reversed(order):
            self._backward(node)
        gradients = [
            self._whole(self.adjoints.get(id(old)), new, old.checked_type)
            for old, new in zip(function.params, params, strict=True)
        ]
        value: rl.RelayExpr = rl.Tuple((self._value(body), rl.Tuple(tuple(gradients))))
        for var, bound in reversed(self.lets):
            value = rl.Let(var, bound, value, span=bound.span)
        return rl.Function(params, value, attrs=function.attrs, span=function.span)

    def _emit(self, expr: rl.RelayExpr, hint: str) -> rl.Var:
        var = rl.Var(hint, span=expr.span)
        self.lets.append((var, expr))
        return var

    def _value(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        """Return the variable of an expression that was visited, or an atom."""
        return self.values.get(id(expr), expr)

    def _forward(self, node: rl.RelayExpr) -> None:
        """Bind the value of an expression."""
        operands = same_scope(node)
        if any(id(operand) in self.active for operand in operands):
            self.active.add(id(node))
        new = map_children(lambda child: self.values.get(id(child), child), node)
        self.values[id(node)] = self._emit(replace(new, checked_type_=None), "x")  # type: ignore[type-var]

    def _backward(self, node: rl.RelayExpr) -> None:
        """Add the gradients of the operands of an expression."""
        adjoint = self.adjoints.get(id(node))
        if adjoint is None or id(node) not in self.active:
            return
        match node:
            case rl.Tuple(fields=fields):
                for index, field in enumerate(fields):
                    self._add(field, _item(adjoint, index))
            case rl.TupleGetItem(tuple_value=value, index=index):
                ty = value.checked_type
                assert isinstance(ty, TupleType)
                self._add(value, [adjoint if i == index else None for i in range(len(ty.fields))])
            case _:
                assert isinstance(node, rl.Call)
                whole = self._whole(adjoint, self._value(node), node.checked_type)
                for operand, gradient in zip(node.args, self._gradients(node, whole), strict=True):
                    self._add(operand, gradient)

    def _gradients(self, call: rl.Call, gradient: rl.RelayExpr) -> list[rl.RelayExpr]:
        """Return the gradients of the operands of a call of an operator."""
        args = tuple(map(self._value, call.args))
        new = rl.Call(call.op, args, call.attrs, span=call.span)
        return operand_gradients(new, gradient, self._emit)

    # Adjoints

    def _add(self, expr: rl.RelayExpr, adjoint: _Adjoint) -> None:
        if id(expr) in self.active:
            known = self.adjoints.get(id(expr))
            self.adjoints[id(expr)] = self._sum(known, adjoint, expr.checked_type)

    def _sum(self, one: _Adjoint, other: _Adjoint, ty: Type) -> _Adjoint:
        if one is None or other is None:
            return other if one is None else one
        if isinstance(ty, TupleType):
            return [
                self._sum(_item(one, index), _item(other, index), field)
                for index, field in enumerate(ty.fields)
            ]
        return self._emit(rl.Call(Op.get("add"), (one, other)), "g")

    def _whole(self, adjoint: _Adjoint, value: rl.RelayExpr, ty: Type) -> rl.RelayExpr:
        """Return an adjoint as an expression, with zeros where there is no gradient."""
        if adjoint is None:
            return self._filled("zeros_like", value, ty)
        if isinstance(adjoint, rl.RelayExpr):
            return adjoint
        assert isinstance(ty, TupleType)
        fields = [
            self._whole(part, rl.TupleGetItem(value, index), field)
            for index, (part, field) in enumerate(zip(adjoint, ty.fields, strict=True))
        ]
        return self._emit(rl.Tuple(tuple(fields)), "g")

    def _filled(self, name: str, value: rl.RelayExpr, ty: Type) -> rl.RelayExpr:
        """Return tensors of one number like a value, which has no functions in it."""
        match ty:
            case TupleType(fields=types):
                fields = [
                    self._filled(name, rl.TupleGetItem(value, index), field)
                    for index, field in enumerate(types)
                ]
                return self._emit(rl.Tuple(tuple(fields)), "g")
            case TensorType():
                return self._emit(rl.Call(Op.get(name), (value,)), "g")
            case _:
                raise TransformError(f"values of type {ty} have no gradient", rule="RLY-84")


def _item(adjoint: _Adjoint, index: int) -> _Adjoint:
    if adjoint is None or isinstance(adjoint, list):
        return None if adjoint is None else adjoint[index]
    return rl.TupleGetItem(adjoint, index)
