"""The reference evaluator for Relax functions, which follows the evaluation rules literally.

It is slow and simple, and accepts IR that is not in normal form. Kernels run scalar by scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Final

import numpy as np

from relaxpy.errors import CompileError, RuntimeCheckError, Span
from relaxpy.exec.runtime import checks
from relaxpy.exec.runtime.dynamic import DynamicOperator, DynamicPrograms, OperatorCall, is_dynamic
from relaxpy.exec.runtime.instrument import Instrument, Instrumented
from relaxpy.exec.runtime.operators import truth
from relaxpy.exec.runtime.python_functions import resolve_python_callee
from relaxpy.exec.runtime.registry import implementation, packed_function
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.exec.runtime.support import (
    call_tir_dyn,
    field as tuple_field,
    fields,
    invoke,
    packed_name,
    sizes,
    with_context,
)
from relaxpy.exec.runtime.tail_calls import split_result
from relaxpy.exec.runtime.users import call_users
from relaxpy.exec.runtime.values import (
    Category,
    Closure,
    PrimFuncValue,
    ShapeTuple,
    Value,
    category_of,
    describe,
    empty,
    from_packed,
    prim_value,
)
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.ops.packed import python_callee
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace


@contextmanager
def _at(span: Span | None) -> Iterator[None]:
    """Set the position of errors of the program that have none."""
    try:
        yield
    except RuntimeCheckError as error:
        if not any(d.span for d in error.diagnostics):
            error.located(span)
        raise


@dataclass(slots=True)
class Scope:
    """The variables in scope with their values."""

    name: str = ""
    values: dict[rx.Var, Value] = field(default_factory=dict)
    bindings: checks.Bindings = field(default_factory=checks.Bindings)

    def nested(self) -> Scope:
        """A scope nested in this one (EV-20)."""
        return Scope(self.name, dict(self.values), self.bindings.copy())

    def captured(self) -> Scope:
        """The scope that a function defined here captures: no DataflowVars (EV-8, EV-11)."""
        scope = self.nested()
        for var in [v for v in scope.values if isinstance(v, rx.DataflowVar)]:
            del scope.values[var]
        return scope

    def bind(self, var: rx.Var, value: Value) -> None:
        """Bind `var` to `value` itself, not to a copy (EV-21)."""
        self.values[var] = value
        self.bindings.shapes[var] = value


@dataclass(frozen=True, slots=True)
class _Code:
    """A function of the program with the scope that it captured, called with values."""

    evaluator: ReferenceEvaluator
    func: rx.Function
    captured: Scope
    signature: checks.Signature

    def __call__(self, *args: Value) -> Value:
        """Call the function (EV-18)."""
        return self.run(args)

    def run(self, args: tuple[Value, ...]) -> Value:
        """The result for these arguments.

        The result of a tail call is checked against the signatures of its callers, too, the last
        caller first.
        """
        code = self
        callers: dict[object, tuple[checks.Signature, checks.Bindings]] = {}
        span: Span | None = None
        certain: set[rx.Function] = set()
        while True:
            with _at(span):
                scope = code.captured.nested()
                code.signature.bind(args, scope.bindings)
                for param, arg in zip(code.func.params, args, strict=True):
                    scope.bind(param, arg)
                result = code.evaluator.result(code.func.body, scope)
                if not isinstance(result, _TailCall):
                    code.signature.check_result(result, scope.bindings)
                    break
            key = code._check_key(scope.bindings)
            callers.pop(key, None)
            callers[key] = code.signature, scope.bindings
            certain = certain | {code.func} if result.is_certain else set()
            code, args, span = result.code, result.args, result.span
            if code.func in certain:
                raise RecursionError  # the loop is infinite for all values
        for signature, bindings in reversed(callers.values()):
            signature.check_result(result, bindings)
        return result

    def _check_key(self, bindings: checks.Bindings) -> object:
        """All that the check of the result depends on: the annotation and its variables."""
        ret = self.func.ret_struct_info
        nodes = () if ret is None else walk(ret)
        values = [bindings.sizes.get(n) for n in nodes if isinstance(n, tir.Var)]
        shapes = [bindings.shapes.get(n) for n in nodes if isinstance(n, rx.Var)]
        return self.func, *values, *shapes


@dataclass(frozen=True, slots=True)
class _TailCall:
    """A tail call of a function, not yet made.

    It `is_certain` if no If precedes it and the module names the callee: values of variables may be
    closures with different captured values.
    """

    code: _Code
    args: tuple[Value, ...]
    span: Span | None
    is_certain: bool


class ReferenceEvaluator:
    """Runs the functions of one module."""

    def __init__(self, module: IRModule, instrument: Instrument | None = None) -> None:
        self._module = module
        self._instrument = instrument
        self._symbols = {
            str(func.attrs["global_symbol"]): var
            for var, func in module.functions.items()
            if isinstance(func, PrimFunc) and "global_symbol" in func.attrs
        }
        self._programs = DynamicPrograms(_program_function, as_written=True)
        self._dynamic: dict[rx.Call, DynamicOperator] = {}

    def global_value(self, var: rx.GlobalVar) -> Value:
        """The function that a GlobalVar refers to, as a value (TOP-5, TOP-6)."""
        func = self._module[var]
        if isinstance(func, PrimFunc):
            return self._prim_func(func, var.name_hint)
        if isinstance(func, rx.ExternFunc):
            return python_function_of(func) or self._extern(func.global_symbol, var.span)
        assert isinstance(func, rx.Function)
        return self._closure(func, Scope(var.name_hint), var.name_hint)

    def _prim_func(self, func: PrimFunc, name: str) -> PrimFuncValue:
        from relaxpy.exec.reference.kernel import run_prim_func

        def work(*args: Value) -> Value:
            return run_prim_func(func, args, name, self._call_global)

        watched = self._instrumented(work, name)

        def run(*args: Value) -> Value:
            result = watched(*args)
            return () if result is None else result

        info = func.struct_info
        assert isinstance(info, rx.FuncStructInfo)
        return PrimFuncValue(run, info, name)

    def _instrumented(self, function: Callable[..., Value], symbol: str) -> Callable[..., Value]:
        """`function` with its calls reported to the instrument, if there is one."""
        if self._instrument is None:
            return function
        is_user_function = category_of(function) is Category.PACKED_FUNC
        return Instrumented(function, symbol, self._instrument, is_user_function=is_user_function)

    def _call_global(self, var: rx.GlobalVar, args: tuple[Value, ...]) -> Value:
        return invoke(self.global_value(var), *args)

    # ---- expressions

    def value(self, expr: rx.Expr | Op, scope: Scope) -> Value:
        """The value of `expr` in `scope`.

        Rule:
            EV-2, EV-3, EV-4, EV-5, EV-6, EV-7, EV-8, EV-12, EV-20.
        """
        match expr:
            case rx.Constant(data=data):
                return np.array(data)
            case rx.Var():
                return self._variable(expr, scope)
            case rx.GlobalVar():
                return self.global_value(expr)
            case rx.Tuple(fields=fields):
                return tuple(self.value(f, scope) for f in fields)
            case rx.TupleGetItem(tuple_value=tuple_value, index=index):
                return tuple_field(self.value(tuple_value, scope), index)
            case rx.ShapeExpr(values=values):
                return ShapeTuple(scope.bindings.evaluate(v) for v in values)
            case rx.PrimValue(value=scalar):
                evaluator = ScalarEvaluator(scope.bindings.sizes, checked)
                return prim_value(evaluator.value(scalar), scalar.dtype)
            case rx.StringImm(value=text):
                return text
            case rx.DataTypeImm(value=dtype):
                return dtype
            case rx.Function():
                return self._closure(expr, scope.captured(), "")
            case rx.If(cond=cond, true_branch=yes, false_branch=no):
                return self.value(yes if truth(self.value(cond, scope)) else no, scope.nested())
            case rx.SeqExpr():
                return self._sequence(expr, scope.nested())
            case rx.ExternFunc(global_symbol=name):
                return self._extern(name, expr.span)
            case rx.Call():
                return self._call(expr, scope)
            case _:
                raise CompileError(f"{expr} cannot be used as a value")

    def _variable(self, var: rx.Var, scope: Scope) -> Value:
        if var not in scope.values:
            raise RuntimeCheckError(
                f"variable {var.name_hint} is not bound here", rule="SC-5", span=var.span
            )
        return scope.values[var]

    def _sequence(self, seq: rx.SeqExpr, scope: Scope) -> Value:
        for block in seq.blocks:
            for binding in block.bindings:
                self._bind(binding, scope)
            for binding in block.bindings:
                if isinstance(binding.var, rx.DataflowVar):
                    del scope.values[binding.var]
        with _at(seq.body.span):
            return self.value(seq.body, scope)

    def _bind(self, binding: rx.Binding, scope: Scope) -> None:
        if isinstance(binding.value, rx.Function):
            captured = scope.captured()
            name = binding.var.name_hint if binding.var is not None else ""
            value: Value = self._closure(binding.value, captured, name)
            if binding.var is not None:
                captured.bind(binding.var, value)
        else:
            with _at(checks.span_of_binding(binding)):
                value = self.value(binding.value, scope)
        if isinstance(binding, rx.MatchCast):
            title = checks.cast_title(binding, scope.name)
            checks.match_cast(value, binding.struct_info, scope.bindings, title, binding.span)
        elif (declared := checks.declared_result(binding.value)) is not None and (
            value is not None or not checks.may_be_null(binding.value)
        ):
            checks.check_declared_result(
                value, declared[0], scope.bindings, declared[1], checks.span_of_binding(binding)
            )
        if binding.var is not None:
            scope.bind(binding.var, value)

    # ---- functions

    def _closure(self, func: rx.Function, captured: Scope, name: str) -> Closure:
        """The closure of `func` over the values of its free variables (EV-8)."""
        signature = checks.Signature.of(func, name or "the local function")
        code = _Code(self, func, captured, signature)
        return Closure(code, checks.closure_sinfo(func), name, captured.bindings.sizes)

    def result(self, body: rx.Expr, scope: Scope) -> Value | _TailCall:
        """The value of a function body; a tail call of a Relax function is returned unevaluated."""
        is_certain = True
        while True:
            bindings, result = split_result(body)
            if (
                not isinstance(result, (rx.Call, rx.If))
                or checks.declared_result(result) is not None
            ):
                return self.value(body, scope)
            scope = scope.nested()
            for binding in bindings:
                self._bind(binding, scope)
            with _at(result.span):
                if isinstance(result, rx.If):
                    test = truth(self.value(result.cond, scope))
                    body = result.true_branch if test else result.false_branch
                    is_certain = False
                    continue
                if isinstance(result.op, Op):
                    return self.value(result, scope)
                callee = self._callee(result.op, result, scope)
                args = tuple(self.value(arg, scope) for arg in result.args)
                code = _code_of(callee)
                if code is not None:
                    is_certain = is_certain and isinstance(result.op, rx.GlobalVar)
                    return _TailCall(code, args, result.span, is_certain)
                return self._invoke(callee, args, result)

    def _extern(self, name: str, span: Span | None) -> Value:
        """A registered function, or else the module's PrimFunc of that symbol (EV-13, EV-14)."""
        var = self._symbols.get(name)
        return packed_function(name, None if var is None else self.global_value(var), span)

    # ---- calls

    def _call(self, call: rx.Call, scope: Scope) -> Value:
        if isinstance(call.op, Op):
            return self._operator(call, call.op, scope)
        callee = self._callee(call.op, call, scope)
        args = tuple(self.value(a, scope) for a in call.args)
        code = _code_of(callee)
        return self._invoke(callee, args, call) if code is None else code.run(args)

    def _callee(self, callee: rx.Expr, call: rx.Call, scope: Scope) -> Value:
        """The value of a callee; calls of packed and global functions are instrumented."""
        if isinstance(callee, rx.ExternFunc):
            symbol = callee.global_symbol
            function = python_function_of(callee) or self._extern(symbol, call.span)
        else:
            function = self.value(callee, scope)
            symbol = callee.name_hint if isinstance(callee, rx.GlobalVar) else packed_name(function)
        category = category_of(function)
        by_name = category is Category.CLOSURE and isinstance(callee, rx.GlobalVar)
        if by_name or category is Category.PACKED_FUNC:
            return self._instrumented(function, symbol)
        return function

    def _invoke(self, callee: Value, args: Sequence[Value], call: rx.Call) -> Value:
        if category_of(callee) is not Category.PACKED_FUNC:
            return invoke(callee, *args)
        attrs = checks.packed_keywords(call)
        if isinstance(callee, Instrumented):
            return from_packed(callee(*args, **attrs), call.sinfo_args)
        op = call.op
        symbol = op.global_symbol if isinstance(op, rx.ExternFunc) else packed_name(callee)
        result = call_users(callee, symbol, tuple(args), attrs, call.span)
        return from_packed(result, call.sinfo_args)

    def _operator(self, call: rx.Call, op: Op, scope: Scope) -> Value:
        match op.record.calls:
            case CallKind.KERNEL | CallKind.INPLACE_KERNEL:
                return self._call_tir(call, scope)
            case CallKind.DPS_PACKED:
                return self._call_dps_packed(call, scope)
            case CallKind.PACKED | CallKind.INPLACE_PACKED as kind:
                callee = self._callee(call.args[0], call, scope)
                args = [self.value(a, scope) for a in call.args[1:]]
                plain = call if kind is CallKind.PACKED else replace(call, attrs=EMPTY_ATTRS)
                return self._invoke(callee, args, plain)
            case CallKind.PACKED_WITH_CONTEXT:
                callee, args = (self.value(a, scope) for a in call.args)
                return with_context(callee, call.sinfo_args, *args)
            case CallKind.DYNAMIC_KERNEL:
                return call_tir_dyn(*(self.value(a, scope) for a in call.args))
            case CallKind.PYTHON:
                called, operands = python_callee(call)
                function = self._callee(resolve_python_callee(self._module, called), call, scope)
                return self._invoke(function, [self.value(a, scope) for a in operands], call)
            case CallKind.CLOSURE:
                callee = self._callee(call.args[0], call, scope)
                return invoke(callee, *fields(self.value(call.args[1], scope)))
            case None if op.record.runtime is not None:
                return implementation(call)(
                    *(self.value(a, scope) for a in call.args), **call.attrs
                )
            case None if is_dynamic(call):
                return self._dynamic_operator(call, scope)
            case _:
                raise CompileError(f"operator {op.name} has no lowering", span=call.span)

    def _dynamic_operator(self, call: rx.Call, scope: Scope) -> Value:
        """Call an operator that was not lowered at compile time."""
        site = OperatorCall(call)
        operator = self._dynamic.get(call)
        if operator is None:
            programs = self._programs if site.has_arrays else _shared
            operator = self._dynamic[call] = DynamicOperator(site, programs)
        run = self._instrumented(operator, operator.name)
        return run(*[self.value(operand, scope) for operand in site.open_operands])

    def _call_tir(self, call: rx.Call, scope: Scope) -> Value:
        """OP-5, OP-6, OP-7, OP-8; the scalars of `tir_vars` are the last arguments."""
        callee = self.value(call.args[0], scope)
        if category_of(callee) is not Category.PRIM_FUNC:
            raise RuntimeCheckError(
                f"call_tir calls a PrimFunc, found {describe(callee)}", rule="OP-1", span=call.span
            )
        inputs = fields(self.value(call.args[1], scope))
        scalars: Sequence[Value] = ()
        if len(call.args) > 2:
            scalars = sizes(self.value(shape := call.args[2], scope))
            if isinstance(shape, rx.ShapeExpr):
                dtypes = [value.dtype for value in shape.values]
                scalars = [prim_value(v, d) for v, d in zip(scalars, dtypes, strict=True)]
        sinfos = checks.output_sinfos(call)
        indices = call.attrs.get("inplace_indices", (-1,) * len(sinfos))
        assert isinstance(indices, tuple)
        outputs = [
            self._allocate(sinfo, scope) if index < 0 else inputs[index]
            for sinfo, index in zip(sinfos, indices, strict=True)
        ]
        fresh = [out for out, index in zip(outputs, indices, strict=True) if index < 0]
        args = (*inputs, *fresh, *scalars)
        if isinstance(call.args[0], rx.GlobalVar):
            signature = checks.signature_of(self._module[call.args[0]], call.args[0].name_hint)
            replace(signature, span=call.span).bind(args, checks.Bindings())
        callee(*args)
        return outputs_value(call, outputs)

    def _call_dps_packed(self, call: rx.Call, scope: Scope) -> Value:
        callee = self._callee(call.args[0], call, scope)
        inputs = fields(self.value(call.args[1], scope))
        outputs = [self._allocate(sinfo, scope) for sinfo in checks.output_sinfos(call)]
        invoke(callee, *inputs, *outputs)
        return outputs_value(call, outputs)

    def _allocate(self, sinfo: rx.TensorStructInfo, scope: Scope) -> Array:
        assert sinfo.shape is not None
        return empty(sizes(self.value(sinfo.shape, scope)), sinfo.dtype.numpy())


def _code_of(callee: Value) -> _Code | None:
    """The code of a closure of an evaluator, or None; a direct call takes fewer Python frames."""
    return callee.run if isinstance(callee, Closure) and isinstance(callee.run, _Code) else None


def _program_function(program: IRModule) -> Value:
    """The main function of a lowered operator."""
    return ReferenceEvaluator(program).global_value(program.get_global_var("main"))


_shared: Final = DynamicPrograms(_program_function, as_written=True)
"""Programs that evaluators share, as those of operators depend on no module."""


def outputs_value(call: rx.Call, outputs: list[Array]) -> Value:
    """The tensor or the tuple of tensors that a call returns (OP-6)."""
    several = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
    return tuple(outputs) if several else outputs[0]
