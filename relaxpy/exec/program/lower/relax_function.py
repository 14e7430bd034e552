"""Lowering of one Relax function to one Python function."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from typing_extensions import override

from relaxpy.errors import CompileError
from relaxpy.exec.machine.fast_paths import SHARED_MEMORY
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.program.lower.calls import CallLowering
from relaxpy.exec.program.lower.checks import CheckLowering, QuickCheck, SizeLowering
from relaxpy.exec.program.lower.deletions import delete_after_last_use
from relaxpy.exec.program.lower.known import OBJECT, Known
from relaxpy.exec.program.lower.places import Places
from relaxpy.exec.program.lower.scope import CheckedFunction, GlobalCallee, Scope, suppress_warnings
from relaxpy.exec.runtime.checks import (
    CapturedVars,
    CompiledCast,
    CompiledResult,
    CompiledSignature,
    Signature,
    cast_title,
    closure_sinfo,
    declared_result,
    span_of_binding,
)
from relaxpy.exec.runtime.support import CompiledClosure
from relaxpy.exec.runtime.tail_calls import Jumps
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass
from relaxpy.support.pysource import set_span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relaxpy.errors import Span
    from relaxpy.exec.program.lower.python_module import ModuleLowering


@dataclass(slots=True)
class Loop:
    """The loop of tail calls (`jumps`) of the function being lowered.

    `callers` is the variable with the sizes by which earlier iterations check the result, if they
    may differ. `start` are the statements before the loop.
    """

    signature: Signature
    params: Sequence[str]
    full: ast.expr
    jumps: Jumps
    callers: str | None = None
    start: list[ast.stmt] = field(default_factory=list)


class FunctionLowering(CallLowering):
    """Writes the Python function for one Relax function of the module, local functions included."""

    def __init__(self, module: ModuleLowering, func: rx.Function, name: str) -> None:
        CallLowering.__init__(self, module)
        self._func = func
        self._name = name
        shares = bool(SHARED_MEMORY) and not module.is_instrumented
        self._places = Places(func, module.kernel_of, shares=shares)
        separate = self._places.separate()
        self._known = Known(module, func, separate, lambda: self._scope.sizes)
        self._loop: Loop | None = None
        self._local_steps: dict[rx.Var, tuple[str, Signature]] = {}

    def lower(self, callee: GlobalCallee) -> list[ast.FunctionDef]:
        """The definitions of the step, if there is one, and of the function.

        Errors:
            CompileError: something in the function cannot be lowered.
        """
        jumps = self._module.jumps.get((self._name, None), Jumps())
        if callee.step is None:
            return [self._definition(self._func, self._name, callee.name, None, jumps)]
        step = self._definition(self._func, self._name, callee.step, None, jumps)
        return [step, self._run_of(step, callee.name)]

    def _definition(
        self, func: rx.Function, name: str, python_name: str, itself: rx.Var | None, jumps: Jumps
    ) -> ast.FunctionDef:
        outer_scope, outer_out, outer_owned = self._scope, self._out, self._owned
        outer_calls, outer_loop = (self._may_warn, self._calls_out), self._loop
        self._scope, self._out, self._owned = outer_scope.captured(itself), [], set()
        self._may_warn, self._calls_out = [], False
        signature = Signature.of(func, name)
        params = [self._names.fresh(p.name_hint) for p in func.params]
        for param, param_name in zip(func.params, params, strict=True):
            self._scope.values[param] = py.path(param_name)
        full = self._check_arguments(signature, params, outer_scope)
        self._loop = Loop(signature, params, full, jumps)
        set_span(self._out, func.span)
        checks = tuple(self._out)
        self._known.add_parameters(func)
        result = self._body(func.body, "v")
        if not py.leaves(self._out):
            self._check_result(signature.ret, result, self._known(func.body), full)
        if isinstance(func.body, rx.SeqExpr):
            set_span(self._out[-1:], func.body.body.span)
        set_span(self._out, func.span)
        whole = not (self._calls_out or self._module.is_instrumented)
        decorators: list[ast.expr] = []
        if whole and self._may_warn and self._is_plain(func, jumps):
            # The function that suppresses warnings checks the arguments, too.
            self._out[: len(checks)] = [s for s in checks if isinstance(s, ast.Assign)]
            names = self._names.fresh("function"), self._names.fresh("context")
            decorator = CheckedFunction(tuple(params), checks, names)
            shared = self._module.share(f"{signature.name}_arguments", decorator)
            decorators.append(py.attribute(shared, "checked"))
        body = delete_after_last_use(self._out, self._owned)
        doc = py.docstring(str(signature))
        definition = py.function(python_name, params, [doc, *body], decorators)
        if not decorators:
            suppress_warnings(definition, self._may_warn, whole=whole)
        if jumps.calls and not jumps.by_steps:
            definition.body = [
                doc,
                *self._loop.start,
                ast.While(py.code(True), definition.body[1:], []),
            ]
        self._scope, self._out, self._owned = outer_scope, outer_out, outer_owned
        (self._may_warn, self._calls_out), self._loop = outer_calls, outer_loop
        return definition

    # ---- checks

    def _is_plain(self, func: rx.Function, jumps: Jumps) -> bool:
        """True if a definition is a function of the module without tail calls."""
        return func is self._func and not jumps.calls and not jumps.by_steps

    def _captured_vars(self, sinfos: Sequence[rx.StructInfo | None], scope: Scope) -> CapturedVars:
        """The variables of `scope` that the struct info uses."""
        used = [sinfo for sinfo in sinfos if sinfo is not None]
        free = dict.fromkeys(v for sinfo in used for v in free_shape_vars(sinfo, scope.sizes))
        sizes = tuple(v for v in free if v in scope.sizes)
        shapes = dict.fromkeys(
            node for sinfo in used for node in walk(sinfo) if isinstance(node, rx.Var)
        )
        return CapturedVars(
            sizes,
            tuple(v for v in shapes if v in scope.values),
            {v: scope.origins.get(v, "") or "the enclosing scope" for v in sizes},
        )

    def _captured_values(self, captured: CapturedVars) -> list[ast.expr]:
        sizes = [py.path(self._scope.sizes[v]) for v in captured.size_vars]
        return sizes + [self._scope.values[v] for v in captured.shape_vars]

    def _quick(self, new_names: bool = True) -> CheckLowering:
        return CheckLowering(
            self._scope.sizes,
            self._sizes,
            self._shape_name,
            self._module.dtype_name,
            self._names.fresh if new_names else None,
        )

    def _shape_name(self, var: rx.Var) -> str | None:
        expr = self._scope.values.get(var)
        return expr.id if isinstance(expr, ast.Name) else None

    def _emit_check(
        self, quick: QuickCheck, full: ast.expr, names: Mapping[tir.Var, str] | None = None
    ) -> None:
        """Write the quick check, and a call of the full check if it fails."""
        names = self._scope.sizes if names is None else names
        if quick.needs_full_check:
            self._out.append(py.do(full))
        elif quick.structure:
            self._out.append(_unless(quick.structure, full))
        for var, value in quick.binds:
            self._out.append(py.assign(names[var], value))
        if quick.comparisons and not quick.needs_full_check:
            self._out.append(_unless(quick.comparisons, full))

    def _check_arguments(
        self, signature: Signature, params: Sequence[str], outer: Scope
    ) -> ast.expr:
        """Write the check of the arguments; return the object with the full checks.

        Rule:
            FN-1, FN-3, FN-4, FN-5, FN-6, FN-7.
        """
        sinfos = [p.struct_info for p in signature.params]
        captured = self._captured_vars(sinfos, outer)
        quick = self._quick()
        for param, sinfo in zip(params, sinfos, strict=True):
            quick.add(py.path(param), sinfo)
        check = quick.finish()
        for var, _ in check.binds:
            self._scope.origins[var] = f"the parameters of {signature.name}"
        local = self._captured_vars([signature.ret], self._scope)
        signature_check = CompiledSignature(signature, captured, local)
        name = self._module.share(f"{signature.name}_signature", signature_check)
        args = [*map(py.path, params), *self._captured_values(captured)]
        self._emit_check(check, py.call(py.attribute(name, "arguments"), *args))
        return name

    @override
    def _check_call(self, signature: Signature, args: Sequence[ast.expr]) -> Mapping[tir.Var, str]:
        names: dict[tir.Var, str] = {}
        sizes = SizeLowering(names, self._module.share)
        fresh = self._names.fresh
        quick = CheckLowering(names, sizes, self._shape_name, self._module.dtype_name, fresh)
        for arg, param in zip(args, signature.params, strict=True):
            quick.add(arg, param.struct_info)
        full = self._module.share(f"call_of_{signature.name}", CompiledSignature(signature))
        self._emit_check(quick.finish(), py.call(py.attribute(full, "arguments"), *args), names)
        return names

    def _check_result(
        self, ret: rx.StructInfo | None, result: ast.expr, known: rx.StructInfo, full: ast.expr
    ) -> None:
        """FN-8 and FN-9, unless the known struct info of the result implies the annotation."""
        if ret is None or is_base_of(ret, known, self._scope.sizes):
            if self._loop is not None and self._loop.callers is not None:
                result = self._named(result, "result")
                self._check_for_callers(result)
            self._out.append(ast.Return(result))
            return
        value = self._named(result, "result")
        quick = self._quick(new_names=False)
        quick.add(value, ret)
        local = self._captured_vars([ret], self._scope)
        self._emit_check(
            quick.finish(),
            py.call(py.attribute(full, "result"), value, *self._captured_values(local)),
        )
        self._check_for_callers(value)
        self._out.append(ast.Return(value))

    # ---- tail calls

    def _jump(self, call: rx.Call, loop: Loop) -> None:
        """Write a tail call of the function itself as an assignment to its parameters."""
        if loop.jumps.by_steps:
            self._return_call(call, loop)
            return
        known = [self._known(arg) for arg in call.args]
        args = self._operands(call.args)
        self._note_caller(loop, known)
        moves = [
            (param, arg)
            for param, arg in zip(loop.params, args, strict=True)
            if not (isinstance(arg, ast.Name) and arg.id == param)
        ]
        if len(moves) == 1:
            self._out.append(py.assign(*moves[0]))
        elif moves:
            targets = ast.Tuple([ast.Name(p, ast.Store()) for p, _ in moves], ast.Store())
            self._out.append(ast.Assign([targets], py.tuple_of(arg for _, arg in moves)))
        self._out.append(ast.Continue())

    def _return_call(self, call: rx.Call, loop: Loop) -> None:
        """Write a tail call in a step, which the trampoline performs."""
        if isinstance(call.op, rx.Var):
            self._variable(call.op)
            step, callee = self._local_steps[call.op]
        else:
            assert isinstance(call.op, rx.GlobalVar)
            target = self._module.callee(call.op)
            assert isinstance(target, GlobalCallee)
            assert target.step is not None
            step, callee = target.step, target.signature
        args = [py.path(step), py.tuple_of(self._operands(call.args))]
        ret = loop.signature.ret
        sizes = self._captured_values(self._captured_vars([ret], self._scope))
        if ret is not None and (sizes or not _implies(callee.ret, ret)):
            args += [py.attribute(loop.full, "result"), py.tuple_of(sizes)]
        self._out.append(ast.Return(py.call("rx.TailCall", *args)))

    def _note_caller(self, loop: Loop, known: Sequence[rx.StructInfo]) -> None:
        """Save the sizes by which the result is checked, unless they cannot change."""
        ret = loop.signature.ret
        if ret is None:
            return
        sizes = self._captured_values(self._captured_vars([ret], self._scope))
        sinfos = [param.struct_info or OBJECT for param in loop.signature.params]
        pairs = ((i, k) for i, k in zip(sinfos, known, strict=True) if free_shape_vars(i))
        if not sizes or all(is_base_of(param, arg, self._scope.sizes) for param, arg in pairs):
            return
        if loop.callers is None:
            loop.callers = self._names.fresh("callers")
            loop.start.append(py.assign(loop.callers, ast.Dict([], [])))
        self._out.append(py.do(py.call("rx.note_caller", loop.callers, py.tuple_of(sizes))))

    def _check_for_callers(self, result: ast.expr) -> None:
        """Write the checks of the result by the sizes of earlier iterations."""
        if self._loop is not None and self._loop.callers is not None:
            check = py.attribute(self._loop.full, "result")
            self._out.append(
                py.do(py.call("rx.check_for_callers", check, result, self._loop.callers))
            )

    # ---- expressions

    @override
    def _expression(self, expr: rx.Expr | Op, hint: str = "v") -> ast.expr:
        """`expr` as Python; the statements that must run before it are appended to `_out`."""
        match expr:
            case rx.Var():
                return self._variable(expr)
            case rx.GlobalVar():
                return self._module.function_value(expr)
            case rx.Constant():
                shared = self._module.literal(expr)
                is_only_read = self._places.is_only_read(expr)
                return shared if is_only_read else py.call(py.attribute(shared, "copy"))
            case rx.PrimValue(value=scalar):
                return self._sizes.prim_value(scalar)
            case rx.ShapeExpr(values=values):
                dims = py.tuple_of(self._sizes.write(v) for v in values)
                return py.call("rx.ShapeTuple", dims)
            case rx.StringImm(value=text):
                return py.text(text)
            case rx.DataTypeImm(value=dtype):
                return self._module.share(f"datatype_{dtype}", dtype)
            case rx.Tuple(fields=fields):
                return py.tuple_of(self._operands(fields))
            case rx.TupleGetItem(tuple_value=tuple_value, index=index):
                known = self._known(tuple_value)
                value = self._operand(tuple_value)
                if py.is_tuple_of_names(value) and index < len(value.elts):
                    return value.elts[index]
                if isinstance(known, rx.TupleStructInfo) and index < len(known.fields):
                    return py.item(value, index)
                return py.call("rx.field", value, py.code(index))
            case rx.ExternFunc():
                return py.call(py.attribute(self._packed(expr, None), "function"))
            case rx.SeqExpr():
                outer, self._scope = self._scope, self._scope.nested()
                value = self._body(expr, hint)
                self._scope = outer
                return value
            case rx.If():
                return self._conditional(expr, hint)
            case rx.Function():
                return self._function_value(expr, hint, None)
            case rx.Call():
                return self._call(expr, hint)
            case _:
                raise CompileError(
                    f"{expr} cannot be used as a value", span=getattr(expr, "span", None)
                )

    def _variable(self, var: rx.Var) -> ast.expr:
        expr = self._scope.values.get(var)
        if expr is None:
            raise CompileError(
                f"variable {var.name_hint} is not bound here", rule="SC-5", span=var.span
            )
        return expr

    def _body(self, body: rx.Expr, hint: str) -> ast.expr:
        """Write the body of a function or branch in the current scope (EV-20); its result."""
        if not isinstance(body, rx.SeqExpr):
            return self._expression(body, hint)
        for block in body.blocks:
            for binding in block.bindings:
                self._bind(binding)
        return self._expression(body.body, hint)

    def _bind(self, binding: rx.Binding) -> None:
        start = len(self._out)
        self._write_binding(binding)
        set_span(self._out[start:], span_of_binding(binding))

    def _write_binding(self, binding: rx.Binding) -> None:
        var = binding.var
        if var in self._known.separate:
            return
        if self._loop is not None and binding.value in self._loop.jumps.calls:
            assert isinstance(binding.value, rx.Call)
            assert var is not None
            self._jump(binding.value, self._loop)
            self._scope.values[var] = py.code(None)
            return
        if isinstance(binding.value, rx.Function):
            forced = isinstance(binding, rx.MatchCast)
            value = self._function_value(binding.value, var.name_hint if var else "v", var, forced)
        else:
            value = self._expression(binding.value, var.name_hint if var else "v")
        declared = declared_result(binding.value)
        if isinstance(binding, rx.MatchCast):
            value = self._named(value, var.name_hint if var else "v")
            title = cast_title(binding, self._name)
            self._check_value(CompiledCast, "cast", binding.struct_info, title, value, binding.span)
        elif declared is not None and self._known(binding.value) is OBJECT:
            value = self._named(value, var.name_hint if var else "v")
            always = self._known.is_checked(binding)
            self._declared_result(*declared, value, span_of_binding(binding), always=always)
        self._known.add(binding)
        if var is None:
            if not isinstance(value, (ast.Name, ast.Constant)):
                self._out.append(py.do(value))
            return
        alias = isinstance(binding.value, (rx.Var, rx.Function)) or _is_literal(value)
        # Its fields are used, rather than the tuple itself.
        alias = alias or (isinstance(binding.value, rx.Call) and py.is_tuple_of_names(value))
        if not alias and not (isinstance(value, ast.Name) and value.id in self._owned):
            value = self._rebound(value, var)
        if isinstance(value, ast.Name):
            self._module.note_variable(self._name, value.id, var)
        self._scope.values[var] = value

    def _rebound(self, value: ast.expr, var: rx.Var) -> ast.expr:
        name = self._names.fresh(var.name_hint)
        self._owned.add(name)
        self._out.append(py.assign(name, value))
        return py.path(name)

    def _declared_result(
        self, sinfo: rx.StructInfo, title: str, value: ast.expr, span: Span | None, *, always: bool
    ) -> None:
        """DER-29; the null object passes, unless the value is `always` checked."""
        checks, self._out = self._out, []
        self._check_value(CompiledResult, "returned", sinfo, title, value, span)
        checks, self._out = self._out, checks
        if always:
            self._out += checks
        elif checks:
            is_given = py.compare(value, ast.IsNot, py.code(None))
            self._out.append(ast.If(is_given, checks, []))

    def _check_value(
        self,
        kind: type[CompiledCast],
        hint: str,
        sinfo: rx.StructInfo,
        title: str,
        value: ast.expr,
        span: Span | None,
    ) -> None:
        """Write a check of a value; that of a cast binds new sizes (MC-18, MC-19, MC-20)."""
        captured = self._captured_vars([sinfo], self._scope)
        full = self._module.share(hint, kind(sinfo, title, captured, span))
        values = self._captured_values(captured)
        quick = self._quick(new_names=kind is CompiledCast)
        quick.add(value, sinfo)
        check = quick.finish()
        for bound, _ in check.binds:
            self._scope.origins[bound] = title
        self._emit_check(check, py.call(py.attribute(full, "check"), value, *values))

    def _conditional(self, branch: rx.If, hint: str) -> ast.expr:
        """EV-12."""
        test = self._operand(branch.cond, "cond")
        known = self._known(branch.cond)
        if not (isinstance(known, rx.TensorStructInfo) and known.ndim == 0 and known.dtype.is_bool):
            test = py.call("rx.truth", test)
        name = self._names.fresh(hint)
        self._owned.add(name)
        arms, sinfos = [], []
        for arm in (branch.true_branch, branch.false_branch):
            with self._branch() as statements:
                result = self._body(arm, hint)
                arms.append(statements)
                if py.leaves(statements):
                    continue
                statements.append(py.assign(name, result))
                if isinstance(arm, rx.SeqExpr):
                    set_span(statements[-1:], arm.body.span)
                sinfos.append(self._known(arm))
        self._out.append(ast.If(test, *arms))
        if not sinfos:
            return py.code(None)
        self._known.add_branch(branch, sinfos)
        return py.path(name)

    @contextmanager
    def _branch(self) -> Iterator[list[ast.stmt]]:
        """Enter a nested scope; return its list of statements."""
        scope, out = self._scope, self._out
        self._scope, self._out = scope.nested(), []
        try:
            yield self._out
        finally:
            self._scope, self._out = scope, out

    # ---- functions

    def _run_of(self, step: ast.FunctionDef, name: str) -> ast.FunctionDef:
        """The trampoline: the function that runs `step`, and the tail calls that steps return."""
        params = [arg.arg for arg in step.args.args]
        returned = self._names.fresh("returned")
        run = py.assign(returned, py.call(step.name, *params))
        is_call = py.compare(py.call("type", returned), ast.Is, "rx.TailCall")
        finish = py.when(is_call, [py.assign(returned, py.call(f"{returned}.result"))])
        body = [step.body[0], run, finish, ast.Return(py.path(returned))]
        return py.function(name, params, body)

    def _function_value(
        self, func: rx.Function, hint: str, var: rx.Var | None, forced: bool = False
    ) -> ast.expr:
        """Write a local function, and its closure if it is used as a value (EV-8, EV-9)."""
        name = self._names.fresh(hint)
        needs_value = forced or var is None or self._places.is_kept(var)
        value_name = self._names.fresh(f"{hint}_closure") if needs_value else name
        if var is not None:
            self._scope.functions[var] = (name, len(func.params))
            self._scope.values[var] = py.path(value_name)
        jumps = self._module.jumps.get((self._name, var), Jumps()) if var is not None else Jumps()
        if var is not None and jumps.by_steps:
            step = self._names.fresh(f"{hint}_step")
            self._local_steps[var] = step, Signature.of(func, hint)
            step_definition = self._definition(func, hint, step, var, jumps)
            self._out += [step_definition, self._run_of(step_definition, name)]
        else:
            self._out.append(self._definition(func, hint, name, var, jumps))
        if needs_value:
            sinfo = closure_sinfo(func)
            outer_sizes = self._scope.sizes
            sizes = tuple(v for v in free_shape_vars(sinfo, outer_sizes) if v in outer_sizes)
            shared = self._module.share(f"{hint}_sinfo", CompiledClosure(sinfo, hint, sizes))
            captured = [py.path(self._scope.sizes[v]) for v in sizes]
            closure = py.call(py.attribute(shared, "make"), py.path(name), *captured)
            self._out.append(py.assign(value_name, closure))
        return py.path(value_name)


def _is_literal(value: ast.expr) -> bool:
    """True if an expression is a literal, or unit."""
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Tuple) and not value.elts)


def _implies(actual: rx.StructInfo | None, expected: rx.StructInfo) -> bool:
    """True if every result of `actual` struct info satisfies `expected`."""
    return actual is not None and not free_shape_vars(expected) and is_base_of(expected, actual)


def _unless(conditions: Sequence[ast.expr], then: ast.expr) -> ast.stmt:
    return ast.If(py.negated(py.both(conditions)), [py.do(then)], [])
