"""The reference evaluator: a module run literally by the evaluation rules.

It is slow and obvious, and takes IR that is not in normal form. Kernels run scalar by scalar.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from relaxpy.errors import CompileError, Diagnostic, RuntimeCheckError, Span, counted
from relaxpy.exec.reference.kernel import check_supported, run_prim_func
from relaxpy.exec.runtime.checks import (
    Bindings,
    Signature,
    cast_title,
    check_declared_result,
    match_cast,
    place_of,
)
from relaxpy.exec.runtime.dynamic import DynamicOperator, DynamicPrograms, is_dynamic
from relaxpy.exec.runtime.instrument import Instrument, Watched
from relaxpy.exec.runtime.operands import OperatorCall
from relaxpy.exec.runtime.operators import truth
from relaxpy.exec.runtime.packed import call_users
from relaxpy.exec.runtime.registry import packed_function
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.exec.runtime.signatures import (
    declared_result,
    function_info,
    output_infos,
    packed_keywords,
    signature_of,
)
from relaxpy.exec.runtime.support import call_tir_dyn, fields, packed_name, sizes, with_context
from relaxpy.exec.runtime.tail_calls import split_result
from relaxpy.exec.runtime.values import (
    Array,
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
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.relax.op.python import python_callee
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func.function import PrimFunc


def check_runnable(module: IRModule, *, kernels: bool = True) -> None:
    """Look for what cannot be run; in kernels, for what the reference evaluator cannot.

    Errors:
        CompileError: operators without a lowering, names that the module does not have,
            intrinsics without meaning; all of them are named.
    """
    faults: list[Diagnostic] = []
    for name, func in module.functions_by_name.items():
        if isinstance(func, PrimFunc):
            if kernels:
                check_supported(func, name)
            continue
        for node in walk(func):
            error = _fault(node, name, module)
            if error is not None:
                faults += error.diagnostics
    if faults:
        raise CompileError(faults)


def _fault(node: object, name: str, module: IRModule) -> CompileError | None:
    if isinstance(node, rx.GlobalVar) and node not in module:
        return CompileError(
            f"{name} uses the global function {node.name_hint}, which the module does not have",
            rule="SC-1",
            span=node.span,
        )
    if isinstance(node, DTensorStructInfo):
        return CompileError(
            f"{name} has tensors spread over several devices, which no target runs",
            span=node.span,
            hint="write R.Tensor for tensors that are in one memory",
        )
    if not isinstance(node, rx.Call) or not isinstance(node.op, Op):
        return None
    operator, record = node.op.name, node.op.record
    if record.runtime is not None:
        try:
            inspect.signature(record.runtime).bind(*node.args, **node.attrs)
        except TypeError as error:
            return CompileError(f"{operator}: {error} (in {name})", rule="DER-36", span=node.span)
        except ValueError:  # a function in C does not say what it takes
            pass
        return None
    if record.calls not in (None, CallKind.LOCAL_KERNEL):
        least, most = record.calls.operand_range
        if least <= len(node.args) <= most:
            return None
        problem = f"{operator} does not take {counted(len(node.args), 'operand')} (in {name})"
        return CompileError(problem, rule="DER-36", span=node.span)
    if is_dynamic(node):
        return None
    return CompileError(
        f"operator {operator} has no lowering (in {name})",
        span=node.span,
        hint="register a legalisation, or write it as a PrimFunc and use R.call_tir",
    )


@contextmanager
def _at(span: Span | None) -> Iterator[None]:
    """Give errors of the program that say no place this one."""
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
    bindings: Bindings = field(default_factory=Bindings)

    def opened(self) -> Scope:
        """A scope inside this one (EV-20)."""
        return Scope(self.name, dict(self.values), self.bindings.copy())

    def captured(self) -> Scope:
        """What a function made here takes with it: all but the DataflowVars (EV-8, EV-11)."""
        scope = self.opened()
        for var in [v for v in scope.values if isinstance(v, rx.DataflowVar)]:
            del scope.values[var]
        return scope

    def bind(self, var: rx.Var, value: Value) -> None:
        """Let `var` stand for `value`, itself and not a copy (EV-21)."""
        self.values[var] = value
        self.bindings.shapes[var] = value


@dataclass(frozen=True, slots=True)
class _Code:
    """A function of the program, with the scope that it was defined in."""

    func: rx.Function
    captured: Scope
    signature: Signature

    def checked_by(self, bindings: Bindings) -> object:
        """What the check of the result depends on: the annotation, its sizes and shapes."""
        ret = self.func.ret_struct_info
        nodes = () if ret is None else walk(ret)
        values = [bindings.sizes.get(n) for n in nodes if isinstance(n, tir.Var)]
        shapes = [bindings.shapes.get(n) for n in nodes if isinstance(n, rx.Var)]
        return self.func, *values, *shapes


class _Defined(Closure):
    """A closure of the evaluator's own."""

    __slots__ = ("code",)
    code: _Code


@dataclass(frozen=True, slots=True)
class _TailCall:
    """The call that gives the result of the function that is being evaluated.

    It `is_certain` if no If stands before it.
    """

    code: _Code
    args: tuple[Value, ...]
    place: Span | None
    is_certain: bool


class ReferenceEvaluator:
    """Runs the functions of one module."""

    def __init__(self, module: IRModule, instrument: Instrument | None = None) -> None:
        self.module = module
        self._instrument = instrument
        self.symbols = {
            str(func.attrs["global_symbol"]): var
            for var, func in module.functions.items()
            if isinstance(func, PrimFunc) and "global_symbol" in func.attrs
        }
        self._programs = DynamicPrograms(_program_function)
        self._dynamic: dict[rx.Call, DynamicOperator] = {}

    def run(self, name: str, args: Sequence[Value]) -> Value:
        """What global function `name` gives for values `args`.

        Errors:
            RuntimeCheckError: a check of the program fails.
        """
        return self.call(self.global_value(self.module.get_global_var(name)), args)

    def global_value(self, var: rx.GlobalVar) -> Value:
        """The function that a GlobalVar stands for, as a value (TOP-5, TOP-6)."""
        func = self.module[var]
        if isinstance(func, PrimFunc):
            return self._prim_func(func, var.name_hint)
        if isinstance(func, rx.ExternFunc):
            return python_function_of(func) or self._extern(func.global_symbol, var.span)
        assert isinstance(func, rx.Function)
        return self._closure(func, Scope(var.name_hint), var.name_hint)

    def _prim_func(self, func: PrimFunc, name: str) -> PrimFuncValue:
        def work(*args: Value) -> Value:
            return run_prim_func(func, args, name, self._call_global)

        watched = self._watched(work, name)

        def run(*args: Value) -> Value:
            result = watched(*args)
            return () if result is None else result

        info = func.struct_info
        assert isinstance(info, rx.FuncStructInfo)
        return PrimFuncValue(run, info, name)

    def _watched(self, function: Callable[..., Value], symbol: str) -> Callable[..., Value]:
        """`function`, whose calls the instrument sees if there is one."""
        if self._instrument is None:
            return function
        is_users = category_of(function) is Category.PACKED_FUNC
        return Watched(function, symbol, self._instrument, is_users=is_users)

    def _call_global(self, var: rx.GlobalVar, args: tuple[Value, ...]) -> Value:
        return self.call(self.global_value(var), args)

    def call(self, callee: Value, args: Sequence[Value]) -> Value:
        """EV-17, EV-18, EV-19, EV-27: what a function value gives for `args`."""
        match category_of(callee):
            case Category.CLOSURE | Category.PRIM_FUNC:
                return callee(*args)
            case Category.PACKED_FUNC:
                return from_packed(call_users(callee, packed_name(callee), tuple(args)), ())
            case _:
                raise RuntimeCheckError(f"{describe(callee)} cannot be called", rule="EV-17")

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
            case rx.TupleGetItem(tuple_value=of, index=index):
                return self._field(self.value(of, scope), index)
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
                return self.value(yes if truth(self.value(cond, scope)) else no, scope.opened())
            case rx.SeqExpr():
                return self._sequence(expr, scope.opened())
            case rx.ExternFunc(global_symbol=name):
                return self._extern(name, expr.span)
            case rx.Call():
                return self._call(expr, scope)
            case _:
                raise CompileError(f"{expr} has no value here")

    def _variable(self, var: rx.Var, scope: Scope) -> Value:
        if var not in scope.values:
            raise RuntimeCheckError(
                f"variable {var.name_hint} is not bound here", rule="SC-5", span=var.span
            )
        return scope.values[var]

    def _field(self, of: Value, index: int) -> Value:
        if category_of(of) is not Category.TUPLE or index >= len(of):
            raise RuntimeCheckError(f"{describe(of)} has no field {index}", rule="EV-5")
        return of[index]

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
            with _at(place_of(binding)):
                value = self.value(binding.value, scope)
        if isinstance(binding, rx.MatchCast):
            title = cast_title(binding, scope.name)
            match_cast(value, binding.struct_info, scope.bindings, title, binding.span)
        elif (declared := declared_result(binding.value)) is not None:
            check_declared_result(
                value, declared[0], scope.bindings, declared[1], place_of(binding)
            )
        if binding.var is not None:
            scope.bind(binding.var, value)

    # ---- functions

    def _closure(self, func: rx.Function, captured: Scope, name: str) -> Closure:
        """EV-8: the function with the present values of what is free in it."""
        signature = Signature.of(func, name or "the local function")
        code = _Code(func, captured, signature)
        found = _Defined(
            partial(self._run, code), function_info(func), name, captured.bindings.sizes
        )
        found.code = code
        return found

    def _run(self, code: _Code, *args: Value) -> Value:
        """EV-18; what a tail call gives is checked by those who made it, the last one first."""
        callers: dict[object, tuple[Signature, Bindings]] = {}
        place: Span | None = None
        certain: set[rx.Function] = set()
        while True:
            with _at(place):
                scope = code.captured.opened()
                code.signature.bind(args, scope.bindings)
                for param, arg in zip(code.func.params, args, strict=True):
                    scope.bind(param, arg)
                result = self._result(code.func.body, scope)
                if not isinstance(result, _TailCall):
                    code.signature.check_result(result, scope.bindings)
                    break
            key = code.checked_by(scope.bindings)
            callers.pop(key, None)
            callers[key] = code.signature, scope.bindings
            certain = certain | {code.func} if result.is_certain else set()
            code, args, place = result.code, result.args, result.place
            if code.func in certain:
                raise RecursionError  # whatever the values are, this never ends
        for signature, bindings in reversed(callers.values()):
            signature.check_result(result, bindings)
        return result

    def _result(
        self, body: rx.Expr, around: Scope, *, is_certain: bool = True
    ) -> Value | _TailCall:
        """What a body evaluates to; a call of a Relax function at its end is not yet made."""
        bindings, result = split_result(body)
        if not isinstance(result, (rx.Call, rx.If)) or declared_result(result) is not None:
            return self.value(body, around)
        scope = around.opened()
        for binding in bindings:
            self._bind(binding, scope)
        with _at(result.span):
            if isinstance(result, rx.If):
                test = truth(self.value(result.cond, scope))
                branch = result.true_branch if test else result.false_branch
                return self._result(branch, scope, is_certain=False)
            if isinstance(result.op, Op):
                return self.value(result, scope)
            callee = self._callee(result.op, result, scope)
            args = tuple(self.value(arg, scope) for arg in result.args)
            if isinstance(callee, _Defined):
                return _TailCall(callee.code, args, result.span, is_certain)
            return self._invoke(callee, args, result)

    def _extern(self, name: str, span: Span | None) -> Value:
        """EV-13, EV-14: a registered function, else the module's own PrimFunc of that symbol."""
        own = self.symbols.get(name)
        return packed_function(name, None if own is None else self.global_value(own), span)

    # ---- calls

    def _call(self, call: rx.Call, scope: Scope) -> Value:
        if isinstance(call.op, Op):
            return self._operator(call, call.op, scope)
        callee = self._callee(call.op, call, scope)
        args = [self.value(a, scope) for a in call.args]
        return self._invoke(callee, args, call)

    def _python_callee(self, name: str) -> rx.BaseFunc:
        """What `call_py_func` calls by a name: a Python function of the module, or a packed one."""
        own = self.module.functions_by_name.get(name)
        return rx.ExternFunc(name) if own is None or python_function_of(own) is None else own

    def _callee(self, callee: rx.Expr, call: rx.Call, scope: Scope) -> Value:
        """What is called; an instrument sees packed functions, and those called by name."""
        if isinstance(callee, rx.ExternFunc):
            symbol = callee.global_symbol
            function = python_function_of(callee) or self._extern(symbol, call.span)
        else:
            function = self.value(callee, scope)
            symbol = callee.name_hint if isinstance(callee, rx.GlobalVar) else packed_name(function)
        category = category_of(function)
        by_name = category is Category.CLOSURE and isinstance(callee, rx.GlobalVar)
        if by_name or category is Category.PACKED_FUNC:
            return self._watched(function, symbol)
        return function

    def _invoke(self, callee: Value, args: Sequence[Value], call: rx.Call) -> Value:
        if category_of(callee) is not Category.PACKED_FUNC:
            return self.call(callee, args)
        attrs = packed_keywords(call)
        if isinstance(callee, Watched):
            return from_packed(callee(*args, **attrs), call.sinfo_args)
        op = call.op
        symbol = op.global_symbol if isinstance(op, rx.ExternFunc) else packed_name(callee)
        found = call_users(callee, symbol, tuple(args), attrs, call.span)
        return from_packed(found, call.sinfo_args)

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
                function = self._callee(self._python_callee(called), call, scope)
                return self._invoke(function, [self.value(a, scope) for a in operands], call)
            case CallKind.CLOSURE:
                callee = self._callee(call.args[0], call, scope)
                return self.call(callee, fields(self.value(call.args[1], scope)))
            case None if op.record.runtime is not None:
                return op.record.runtime(*(self.value(a, scope) for a in call.args), **call.attrs)
            case None if is_dynamic(call):
                return self._dynamic_operator(call, scope)
            case _:
                raise CompileError(f"operator {op.name} has no lowering", span=call.span)

    def _dynamic_operator(self, call: rx.Call, scope: Scope) -> Value:
        """An operator that was not lowered beforehand."""
        site = OperatorCall(call)
        operator = self._dynamic.get(call)
        if operator is None:
            operator = self._dynamic[call] = DynamicOperator(site, self._programs)
        run = self._watched(operator, operator.name)
        return run(*[self.value(operand, scope) for operand in site.open_operands])

    def _call_tir(self, call: rx.Call, scope: Scope) -> Value:
        """OP-5, OP-6, OP-7, OP-8, with the scalars of `tir_vars` at the end."""
        callee = self.value(call.args[0], scope)
        if category_of(callee) is not Category.PRIM_FUNC:
            raise RuntimeCheckError(
                f"call_tir calls a PrimFunc, found {describe(callee)}", rule="OP-1", span=call.span
            )
        inputs = fields(self.value(call.args[1], scope))
        scalars = sizes(self.value(call.args[2], scope)) if len(call.args) > 2 else ()
        infos = output_infos(call)
        indices = call.attrs.get("inplace_indices", (-1,) * len(infos))
        assert isinstance(indices, tuple)
        outputs = [
            self._allocate(info, scope) if index < 0 else inputs[index]
            for info, index in zip(infos, indices, strict=True)
        ]
        fresh = [out for out, index in zip(outputs, indices, strict=True) if index < 0]
        args = (*inputs, *fresh, *scalars)
        if isinstance(call.args[0], rx.GlobalVar):
            signature = signature_of(self.module[call.args[0]], call.args[0].name_hint)
            replace(signature, span=call.span).bind(args, Bindings())
        callee(*args)
        return outputs_value(call, outputs)

    def _call_dps_packed(self, call: rx.Call, scope: Scope) -> Value:
        callee = self._callee(call.args[0], call, scope)
        inputs = fields(self.value(call.args[1], scope))
        outputs = [self._allocate(info, scope) for info in output_infos(call)]
        self.call(callee, (*inputs, *outputs))
        return outputs_value(call, outputs)

    def _allocate(self, info: rx.TensorStructInfo, scope: Scope) -> Array:
        assert info.shape is not None
        return empty(sizes(self.value(info.shape, scope)), info.dtype.numpy())


def _program_function(program: IRModule) -> Value:
    """The function of a lowered operator, which the evaluation rules run."""
    return ReferenceEvaluator(program).global_value(program.get_global_var("main"))


def outputs_value(call: rx.Call, outputs: list[Array]) -> Value:
    """OP-6: the tensor, or the tuple of them."""
    several = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
    return tuple(outputs) if several else outputs[0]


def evaluate(expr: rx.Expr, module: IRModule | None = None) -> Value:
    """The value of an expression without free variables; globals are those of `module`."""
    return ReferenceEvaluator(module or IRModule()).value(expr, Scope())
