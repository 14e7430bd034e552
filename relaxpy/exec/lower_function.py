"""One Relax function as one straight Python function."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from relaxpy.errors import CompileError
from relaxpy.exec import pytree as py
from relaxpy.exec.checks import (
    CompiledCast,
    CompiledSignature,
    Signature,
    Surroundings,
    cast_title,
)
from relaxpy.exec.dynamic import DynamicOperator, is_dynamic
from relaxpy.exec.liveness import delete_after_last_use
from relaxpy.exec.lower_check import CheckLowering, QuickCheck
from relaxpy.exec.lower_scope import GlobalCallee, Globals, Scope
from relaxpy.exec.lower_size import SizeLowering
from relaxpy.exec.operands import OperatorCall
from relaxpy.exec.operators import RUNTIME_OPERATORS
from relaxpy.exec.signatures import function_info, output_infos
from relaxpy.exec.support import CompiledClosure, CompiledPackedCall
from relaxpy.exec.uses import shared_constants, values_used
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.shape_vars import free_shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.function import PrimFunc
from relaxpy.ir.traverse import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

_OBJECT = rx.ObjectStructInfo()


class FunctionLowering:
    """Writes the Python function for one Relax function of the module, local functions included."""

    def __init__(self, module: Globals, func: rx.Function, name: str) -> None:
        self._module = module
        self._func = func
        self._name = name
        self._names = module.names.local()
        self._scope = Scope()
        self._out: list[ast.stmt] = []
        self._owned: set[str] = set()
        self._used_as_values = values_used(func)
        self._shared = shared_constants(func, self._kernel)

    def _kernel(self, var: rx.GlobalVar) -> PrimFunc | None:
        callee = self._module.callee(var)
        return callee.prim_func if isinstance(callee, GlobalCallee) else None

    @property
    def _sizes(self) -> SizeLowering:
        return SizeLowering(self._scope.sizes, self._module.share)

    def lower(self, python_name: str) -> ast.FunctionDef:
        """The definition, under `python_name`.

        Errors:
            CompileError: something in the function cannot be lowered.
        """
        return self._definition(self._func, self._name, python_name)

    def _definition(self, func: rx.Function, name: str, python_name: str) -> ast.FunctionDef:
        outer_scope, outer_out, outer_owned = self._scope, self._out, self._owned
        self._scope, self._out, self._owned = outer_scope.captured(), [], set()
        signature = Signature.of(func, name)
        params = [self._names.fresh(p.name_hint) for p in func.params]
        for param, param_name in zip(func.params, params, strict=True):
            self._scope.values[param] = py.name(param_name)
        full = self._check_arguments(signature, params, outer_scope)
        for param in func.params:
            self._scope.known[param] = param.struct_info or _OBJECT
        result = self._expression(func.body)
        known = self._known(func.body)
        self._check_result(signature, result, known, full, outer_scope)
        body = delete_after_last_use(self._out, self._owned)
        made = py.function_def(python_name, params, body, doc=str(signature))
        self._scope, self._out, self._owned = outer_scope, outer_out, outer_owned
        return made

    # ---- checks

    def _surroundings(self, infos: Sequence[rx.StructInfo | None], scope: Scope) -> Surroundings:
        """What of `scope` the infos use."""
        given = [info for info in infos if info is not None]
        free = dict.fromkeys(v for info in given for v in free_shape_vars(info, scope.sizes))
        sizes = tuple(v for v in free if v in scope.sizes)
        shapes = dict.fromkeys(
            node for info in given for node in walk(info) if isinstance(node, rx.Var)
        )
        return Surroundings(
            sizes,
            tuple(v for v in shapes if v in scope.values),
            {v: scope.origins.get(v, "") or "the surroundings" for v in sizes},
        )

    def _captured(self, around: Surroundings) -> list[ast.expr]:
        sizes = [py.name(self._scope.sizes[v]) for v in around.size_vars]
        return sizes + [self._scope.values[v] for v in around.shape_vars]

    def _quick(self, new_names: bool = True) -> CheckLowering:
        return CheckLowering(
            self._scope.sizes,
            self._sizes,
            self._shape_name,
            self._module.dtype_name,
            self._names.fresh if new_names else None,
        )

    def _shape_name(self, var: rx.Var) -> str | None:
        found = self._scope.values.get(var)
        return found.id if isinstance(found, ast.Name) else None

    def _emit_check(self, quick: QuickCheck, full: ast.expr) -> None:
        """The quick check in line, the full one where it fails."""
        if quick.always_full:
            self._out.append(py.evaluated(full))
        elif quick.structure:
            self._out.append(_unless(quick.structure, full))
        for var, found in quick.binds:
            self._out.append(py.assign(self._scope.sizes[var], found))
        if quick.comparisons and not quick.always_full:
            self._out.append(_unless(quick.comparisons, full))

    def _check_arguments(
        self, signature: Signature, params: Sequence[str], outer: Scope
    ) -> ast.expr:
        """FN-1 to FN-7; the name of the full checks, made when the result is known."""
        infos = [p.struct_info for p in signature.params]
        around = self._surroundings(infos, outer)
        quick = self._quick()
        for param, info in zip(params, infos, strict=True):
            quick.add(py.name(param), info)
        found = quick.finish()
        for var, _ in found.binds:
            self._scope.origins[var] = f"the parameters of {signature.name}"
        inside = self._surroundings([signature.ret], self._scope)
        check = CompiledSignature(signature, around, inside)
        name = self._module.share(f"{signature.name}_signature", check)
        args = [*map(py.name, params), *self._captured(around)]
        self._emit_check(found, py.call(py.attribute(name, "arguments"), *args))
        return name

    def _check_result(
        self,
        signature: Signature,
        result: ast.expr,
        known: rx.StructInfo,
        full: ast.expr,
        outer: Scope,
    ) -> None:
        """FN-8, FN-9, left out where what is surely known of the result fits."""
        ret = signature.ret
        if ret is None or is_base_of(ret, known, self._scope.sizes):
            self._out.append(ast.Return(result))
            return
        value = self._named(result, "result")
        quick = self._quick(new_names=False)
        quick.add(value, ret)
        inside = self._surroundings([ret], self._scope)
        self._emit_check(
            quick.finish(),
            py.call(py.attribute(full, "result"), value, *self._captured(inside)),
        )
        self._out.append(ast.Return(value))

    # ---- expressions

    def _named(self, value: ast.expr, hint: str) -> ast.expr:
        """`value`, bound to a new name unless it is a name or a literal already."""
        if isinstance(value, (ast.Name, ast.Constant)):
            return value
        name = self._names.fresh(hint)
        self._owned.add(name)
        self._out.append(py.assign(name, value))
        return py.name(name)

    def _operand(self, expr: rx.Expr | Op, hint: str = "v") -> ast.expr:
        """An operand: what takes more than naming is computed before, in order (EV-17)."""
        value = self._expression(expr, hint)
        simple = isinstance(expr, (rx.Var, rx.GlobalVar, rx.StringImm, rx.DataTypeImm))
        simple = simple or isinstance(expr, (rx.PrimValue, rx.ShapeExpr, rx.Constant, rx.Tuple))
        return value if simple else self._named(value, hint)

    def _expression(self, expr: rx.Expr | Op, hint: str = "v") -> ast.expr:
        """`expr` as Python; statements that must run before it are put out."""
        match expr:
            case rx.Var():
                return self._variable(expr)
            case rx.GlobalVar():
                return self._module.function_value(expr)
            case rx.Constant(data=data):
                shared = self._module.share("const", data)
                return shared if expr in self._shared else py.call(py.attribute(shared, "copy"))
            case rx.PrimValue(value=scalar):
                return self._sizes.prim_value(scalar)
            case rx.ShapeExpr(values=values):
                dims = py.tuple_of(self._sizes.write(v) for v in values)
                return py.call("rx.ShapeTuple", dims)
            case rx.StringImm(value=text):
                return py.literal(text)
            case rx.DataTypeImm(value=dtype):
                return self._module.share(f"datatype_{dtype}", dtype)
            case rx.Tuple(fields=fields):
                return py.tuple_of([self._operand(f) for f in fields])
            case rx.TupleGetItem(tuple_value=of, index=index):
                known = self._known(of)
                value = self._operand(of)
                if isinstance(known, rx.TupleStructInfo) and index < len(known.fields):
                    return py.item(value, index)
                return py.call("rx.field", value, py.literal(index))
            case rx.ExternFunc():
                return py.call(py.attribute(self._packed(expr, None), "function"))
            case rx.SeqExpr():
                return self._sequence(expr, hint)
            case rx.If():
                return self._conditional(expr, hint)
            case rx.Function():
                return self._function_value(expr, hint, None)
            case rx.Call():
                return self._call(expr, hint)
            case _:
                raise CompileError(f"{expr} has no value here", span=getattr(expr, "span", None))

    def _variable(self, var: rx.Var) -> ast.expr:
        found = self._scope.values.get(var)
        if found is None:
            raise CompileError(
                f"variable {var.name_hint} is not bound here", rule="SC-5", span=var.span
            )
        return found

    def _sequence(self, seq: rx.SeqExpr, hint: str) -> ast.expr:
        for block in seq.blocks:
            for binding in block.bindings:
                self._bind(binding)
        return self._expression(seq.body, hint)

    def _bind(self, binding: rx.Binding) -> None:
        var = binding.var
        if isinstance(binding.value, rx.Function):
            forced = isinstance(binding, rx.MatchCast)
            value = self._function_value(binding.value, var.name_hint if var else "v", var, forced)
        else:
            value = self._expression(binding.value, var.name_hint if var else "v")
        known = self._known(binding.value)
        if isinstance(binding, rx.MatchCast):
            value = self._named(value, var.name_hint if var else "v")
            self._match_cast(binding, value)
            known = binding.struct_info
        if var is None:
            if not isinstance(value, (ast.Name, ast.Constant)):
                self._out.append(py.evaluated(value))
            return
        alias = isinstance(binding.value, (rx.Var, rx.Function)) or isinstance(value, ast.Constant)
        if not alias and not (isinstance(value, ast.Name) and value.id in self._owned):
            value = self._rebound(value, var)
        self._scope.values[var] = value
        self._scope.known[var] = known

    def _rebound(self, value: ast.expr, var: rx.Var) -> ast.expr:
        name = self._names.fresh(var.name_hint)
        self._owned.add(name)
        self._out.append(py.assign(name, value))
        return py.name(name)

    def _match_cast(self, cast: rx.MatchCast, value: ast.expr) -> None:
        """MC-1 to MC-20."""
        title = cast_title(cast, self._name)
        around = self._surroundings([cast.struct_info], self._scope)
        full = self._module.share("cast", CompiledCast(cast.struct_info, title, around, cast.span))
        captured = self._captured(around)
        quick = self._quick()
        quick.add(value, cast.struct_info)
        found = quick.finish()
        for bound, _ in found.binds:
            self._scope.origins[bound] = title
        self._emit_check(found, py.call(py.attribute(full, "check"), value, *captured))

    def _conditional(self, branch: rx.If, hint: str) -> ast.expr:
        """EV-12."""
        test = self._operand(branch.cond, "cond")
        known = self._known(branch.cond)
        if not (isinstance(known, rx.TensorStructInfo) and known.ndim == 0 and known.dtype.is_bool):
            test = py.call("rx.truth", test)
        name = self._names.fresh(hint)
        self._owned.add(name)
        arms = []
        for arm in (branch.true_branch, branch.false_branch):
            with self._branch() as statements:
                statements.append(py.assign(name, self._expression(arm, hint)))
                arms.append(statements)
        self._out.append(ast.If(test, *arms))
        return py.name(name)

    @contextmanager
    def _branch(self) -> Iterator[list[ast.stmt]]:
        """A scope and a place for statements of its own."""
        scope, out = self._scope, self._out
        self._scope, self._out = scope.opened(), []
        try:
            yield self._out
        finally:
            self._scope, self._out = scope, out

    # ---- functions

    def _function_value(
        self, func: rx.Function, hint: str, var: rx.Var | None, forced: bool = False
    ) -> ast.expr:
        """EV-8, EV-9: the local function, and the closure where it is used as a value."""
        name = self._names.fresh(hint)
        needs_value = forced or var is None or var in self._used_as_values
        value_name = self._names.fresh(f"{hint}_closure") if needs_value else name
        if var is not None:
            self._scope.functions[var] = (name, len(func.params))
            self._scope.values[var] = py.name(value_name)
        self._out.append(self._definition(func, hint, name))
        if needs_value:
            info = function_info(func)
            around = self._scope.sizes
            sizes = tuple(v for v in free_shape_vars(info, around) if v in around)
            made = self._module.share(f"{hint}_info", CompiledClosure(info, hint, sizes))
            captured = [py.name(self._scope.sizes[v]) for v in sizes]
            closure = py.call(py.attribute(made, "make"), py.name(name), *captured)
            self._out.append(py.assign(value_name, closure))
        return py.name(value_name)

    # ---- what is surely known

    def _known(self, expr: rx.Expr | Op) -> rx.StructInfo:
        """An info that the value of `expr` has for certain, as it was checked or made so."""
        match expr:
            case rx.Var():
                return self._scope.known.get(expr, _OBJECT)
            case rx.Tuple(fields=fields):
                return rx.TupleStructInfo(tuple(self._known(f) for f in fields))
            case rx.TupleGetItem(tuple_value=of, index=index):
                known = self._known(of)
                if isinstance(known, rx.TupleStructInfo) and index < len(known.fields):
                    return known.fields[index]
                return _OBJECT
            case rx.Constant() | rx.ShapeExpr() | rx.PrimValue():
                return expr.struct_info or _OBJECT
            case rx.SeqExpr(body=body):
                return self._known(body)
            case rx.Call(op=Op(name="relax.call_tir" | "relax.call_dps_packed")):
                return expr.sinfo_args[0]
            case _:
                return _OBJECT

    # ---- calls

    def _call(self, call: rx.Call, hint: str) -> ast.expr:
        match call.op:
            case Op(name=name):
                return self._operator(call, name, hint)
            case rx.GlobalVar() as var:
                callee = self._module.callee(var)
                if isinstance(callee, rx.ExternFunc):
                    return self._call_packed(callee, call.args, call)
                return self._call_global(var, callee, call)
            case rx.ExternFunc() as func:
                return self._call_packed(func, call.args, call)
            case rx.Var() as var if self._scope.functions.get(var, ("", -1))[1] == len(call.args):
                args = [self._operand(a) for a in call.args]
                return py.call(self._scope.functions[var][0], *args)
            case op:
                callee_value = self._operand(op, "f")
                args = [self._operand(a) for a in call.args]
                return py.call("rx.invoke", callee_value, *args)

    def _call_global(self, var: rx.GlobalVar, callee: GlobalCallee, call: rx.Call) -> ast.expr:
        args = [self._operand(a) for a in call.args]
        if callee.prim_func is not None or len(args) != len(callee.signature.params):
            return py.call("rx.invoke", self._module.function_value(var), *args)
        return py.call(callee.name, *args)

    def _packed(self, func: rx.ExternFunc, call: rx.Call | None) -> ast.expr:
        """The call of a packed function, which looks it up each time."""
        infos = call.sinfo_args if call is not None else ()
        attrs = call.attrs if call is not None else {}
        made = CompiledPackedCall(func.global_symbol, infos, attrs, self._module.own_functions)
        return self._module.share(f"packed_{func.global_symbol}", made)

    def _call_packed(self, func: rx.ExternFunc, args: Sequence[rx.Expr], call: rx.Call) -> ast.expr:
        callee = self._packed(func, call)
        return py.call(callee, *[self._operand(a) for a in args])

    def _operator(self, call: rx.Call, name: str, hint: str) -> ast.expr:
        match name:
            case "relax.call_tir" | "relax.call_tir_inplace":
                return self._call_tir(call, hint)
            case "relax.call_dps_packed":
                return self._call_dps_packed(call, hint)
            case "relax.call_pure_packed":
                callee, *args = call.args
                if isinstance(callee, rx.ExternFunc):
                    return self._call_packed(callee, args, call)
                values = [self._operand(a) for a in call.args]
                return py.call("rx.invoke", *values)
            case "relax.invoke_closure" | "relax.invoke_pure_closure":
                function = self._operand(call.args[0], "f")
                return py.call("rx.invoke", function, *self._spread(call.args[1]))
            case _ if name in RUNTIME_OPERATORS:
                function_name = RUNTIME_OPERATORS[name].__name__
                values = [self._operand(a) for a in call.args]
                named = {key: self._attribute(value) for key, value in call.attrs.items()}
                return py.call(f"rx.{function_name}", *values, **named)
            case _ if is_dynamic(call):
                site = OperatorCall(call)
                made = DynamicOperator(site, self._module.programs)
                operator = self._module.share(f"any_{name.rpartition('.')[2]}", made)
                return py.call(operator, *[self._operand(e) for e in site.open_operands])
            case _:
                raise CompileError(f"operator {name} has no lowering", span=call.span)

    def _attribute(self, value: object) -> ast.expr:
        if isinstance(value, (bool, int, str)) or value is None:
            return py.literal(value)
        return self._module.share("attribute", value)

    def _spread(self, expr: rx.Expr) -> list[ast.expr]:
        """The fields of a tuple, as arguments."""
        if isinstance(expr, rx.Tuple):
            return [self._operand(f) for f in expr.fields]
        return [ast.Starred(self._operand(expr), ast.Load())]

    def _outputs(self, call: rx.Call, hint: str) -> list[ast.expr]:
        """New tensors for what a call writes, one name each."""
        infos = output_infos(call)
        return [
            self._allocate(info, hint if len(infos) == 1 else f"{hint}_{i}")
            for i, info in enumerate(infos)
        ]

    def _allocate(self, info: rx.TensorStructInfo, hint: str) -> ast.expr:
        dtype = py.name(self._module.dtype_name(info.dtype))
        if isinstance(info.shape, rx.ShapeExpr):
            dims = info.shape.values
            shape = py.tuple_of(self._sizes.write(d) for d in dims)
            static = all(isinstance(d, tir.IntImm) and d.value >= 0 for d in dims)
            return self._named(py.call("np.empty" if static else "rx.empty", shape, dtype), hint)
        assert info.shape is not None
        return self._named(py.call("rx.empty", self._operand(info.shape), dtype), hint)

    def _call_tir(self, call: rx.Call, hint: str) -> ast.expr:
        """OP-5 to OP-8, with the scalars of `tir_vars` at the end."""
        callee = (
            self._module.callee(call.args[0]) if isinstance(call.args[0], rx.GlobalVar) else None
        )
        if not isinstance(callee, GlobalCallee) or callee.prim_func is None:
            raise CompileError(
                f"call_tir calls a PrimFunc of the module, found {call.args[0]}",
                rule="OP-1",
                span=call.span,
            )
        inputs = self._spread(call.args[1])
        infos = output_infos(call)
        indices = call.attrs.get("inplace_indices", (-1,) * len(infos))
        assert isinstance(indices, tuple)
        outputs = [
            self._allocate(info, hint if len(infos) == 1 else f"{hint}_{i}")
            if index < 0
            else inputs[index]
            for i, (info, index) in enumerate(zip(infos, indices, strict=True))
        ]
        fresh = [out for out, index in zip(outputs, indices, strict=True) if index < 0]
        scalars = [member for shape in call.args[2:] for member in self._members(shape)]
        run = py.call(callee.name, *inputs, *fresh, *scalars)
        self._out.append(py.evaluated(run))
        several = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        return py.tuple_of(outputs) if several else outputs[0]

    def _members(self, shape: rx.Expr) -> list[ast.expr]:
        if isinstance(shape, rx.ShapeExpr):
            return [self._sizes.write(v) for v in shape.values]
        return [ast.Starred(self._operand(shape), ast.Load())]

    def _call_dps_packed(self, call: rx.Call, hint: str) -> ast.expr:
        """OP-9: as call_tir, of a packed function."""
        inputs = self._spread(call.args[1])
        outputs = self._outputs(call, hint)
        callee = call.args[0]
        if isinstance(callee, rx.ExternFunc):
            made = py.call(self._packed(callee, None), *inputs, *outputs)
        else:
            made = py.call("rx.invoke", self._operand(callee, "f"), *inputs, *outputs)
        self._out.append(py.evaluated(made))
        several = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        return py.tuple_of(outputs) if several else outputs[0]


def _unless(conditions: Sequence[ast.expr], then: ast.expr) -> ast.stmt:
    return ast.If(py.negated(py.all_of(conditions)), [py.evaluated(then)], [])
