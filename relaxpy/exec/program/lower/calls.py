"""Calls in a Relax function that is being lowered: of kernels, operators and other functions."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from relaxpy.errors import CompileError
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.numpy.emit.emitted import Unchecked
from relaxpy.exec.program.lower.checks import SizeLowering
from relaxpy.exec.program.lower.known import (
    OBJECT,
    Known,
    Sizes,
    certainly_succeeds,
    is_release,
    is_reshape,
    kernel_use,
    signature_sizes,
    sizes_if_equal,
)
from relaxpy.exec.program.lower.places import Places
from relaxpy.exec.program.lower.scope import GlobalCallee, Scope, is_allocation
from relaxpy.exec.runtime.checks import Signature, output_sinfos, packed_keywords
from relaxpy.exec.runtime.dynamic import DynamicOperator, OperatorCall, is_dynamic
from relaxpy.exec.runtime.registry import UsersImplementation, implementation
from relaxpy.exec.runtime.support import CompiledPackedCall
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.ops.packed import python_callee
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.exec.program.lower.python_module import ModuleLowering


class CallLowering(ABC):
    """Writes the calls of one function, each after the statements that compute its operands.

    NumPy may warn in the statements `_may_warn`. If the function `_calls_out`, that is, calls more
    than kernels, NumPy's settings must be those of the caller.
    """

    def __init__(self, module: ModuleLowering) -> None:
        self._module = module
        self._names = module.names.local()
        self._scope = Scope()
        self._out: list[ast.stmt] = []
        self._owned: set[str] = set()
        self._may_warn: list[ast.stmt] = []
        self._calls_out = False
        self._known: Known
        self._places: Places
        self._new: dict[str, tuple[ast.Assign, rx.TensorStructInfo]] = {}
        """The statements that allocate tensors, by name."""

    @abstractmethod
    def _expression(self, expr: rx.Expr | Op, hint: str = "v") -> ast.expr:
        """`expr` as Python; the statements that must run before it are appended to `_out`."""

    @property
    def _sizes(self) -> SizeLowering:
        return SizeLowering(self._scope.sizes, self._module.share)

    def _named(self, value: ast.expr, hint: str) -> ast.expr:
        """Assign `value` to a new name, unless it is a name or a literal."""
        if isinstance(value, (ast.Name, ast.Constant)):
            return value
        name = self._names.fresh(hint)
        self._owned.add(name)
        self._out.append(py.assign(name, value))
        return py.path(name)

    def _operand(self, expr: rx.Expr | Op, hint: str = "v") -> ast.expr:
        """An operand, assigned to a name unless its expression is simple."""
        value = self._expression(expr, hint)
        simple = isinstance(expr, (rx.Var, rx.GlobalVar, rx.StringImm, rx.DataTypeImm))
        simple = simple or isinstance(expr, (rx.PrimValue, rx.ShapeExpr, rx.Constant, rx.Tuple))
        return value if simple else self._named(value, hint)

    def _operands(self, exprs: Iterable[rx.Expr | Op]) -> list[ast.expr]:
        """Operands, which are evaluated in order (EV-17)."""
        values: list[ast.expr] = []
        for expr in exprs:
            mark = len(self._out)
            value = self._operand(expr)
            if len(self._out) > mark:
                computed = self._out[mark:]
                del self._out[mark:]
                values = [self._named(v, "v") for v in values]
                self._out += computed
            values.append(value)
        return values

    # ---- calls

    def _call(self, call: rx.Call, hint: str) -> ast.expr:
        match call.op:
            case Op() as op:
                return self._operator(call, op, hint)
            case rx.GlobalVar() as var:
                callee = self._module.callee(var)
                if isinstance(callee, rx.ExternFunc):
                    return self._call_packed(callee, call.args, call)
                return self._call_global(var, callee, call)
            case rx.ExternFunc() as func:
                return self._call_packed(func, call.args, call, hint)
            case rx.Var() as var if self._scope.functions.get(var, ("", -1))[1] == len(call.args):
                args = self._operands(call.args)
                return self._call_out(self._scope.functions[var][0], *args)
            case op:
                return self._invoke((op, *call.args), call)

    def _invoke(self, operands: Sequence[rx.Expr], call: rx.Call) -> ast.expr:
        """A call of a function value, the first operand, which may be a packed function."""
        attrs = packed_keywords(call)
        if not call.sinfo_args and not attrs:
            return self._call_out("rx.invoke", *self._operands(operands))
        declared = [self._module.share("infos", call.sinfo_args), self._attribute(attrs)]
        return self._call_out("rx.invoke_declared", *declared, *self._operands(operands))

    def _call_out(self, function: str | ast.expr, *args: ast.expr) -> ast.expr:
        """A call of a function that may run any code."""
        self._calls_out = True
        return py.call(function, *args)

    def _call_global(self, var: rx.GlobalVar, callee: GlobalCallee, call: rx.Call) -> ast.expr:
        args = self._operands(call.args)
        if len(args) != len(callee.signature.params):
            return self._call_out("rx.invoke", self._module.function_value(var), *args)
        if self._module.is_outlined(var.name_hint):
            return py.call(callee.name, *args)
        if callee.prim_func is None:
            return self._call_out(callee.name, *args)
        known = [self._known(arg) for arg in call.args[_tensors(callee) :]]
        values = [k.value for k in known if isinstance(k, rx.PrimStructInfo)]
        scalars = [value for value in values if value is not None]
        sizes = self._direct_sizes(callee, call.args[: _tensors(callee)], scalars, call)
        if sizes is None:
            return self._call_out("rx.invoke", self._module.function_value(var), *args)
        return self._run_directly(callee, args, sizes, call, call.args)

    def _call_dynamic(self, call: rx.Call) -> ast.expr:
        """A call of a kernel or packed function on tensors and the members of a shape."""
        function, packed = call.args
        callee, fields = self._module.kernel_of(function), getattr(packed, "fields", ())
        shape = self._known(fields[-1]) if fields else OBJECT
        values = shape.values if isinstance(shape, rx.ShapeStructInfo) else None
        if callee is not None and values is not None and self._known.are_bound(values):
            sizes = self._direct_sizes(callee, fields[:-1], values, call)
            if sizes is not None:
                args = [*self._operands(fields[:-1]), *map(self._sizes.write, values)]
                return self._run_directly(callee, args, sizes, call, fields)
        return self._call_out("rx.call_tir_dyn", *[self._operand(arg) for arg in call.args])

    def _run_directly(
        self,
        callee: GlobalCallee,
        args: Sequence[ast.expr],
        sizes: Sizes,
        call: rx.Call,
        operands: Sequence[rx.Expr],
    ) -> ast.expr:
        """Write a `call` of a kernel whose arguments match; return unit.

        Its new tensors get the memory of operands of the same shape and datatype that are free.
        """
        written = {size: self._sizes.write(value) for size, value in sizes.items()}
        self._run_unchecked(callee, args, written)
        memories = [*map(self._places.of, operands)]
        free = {
            memory: (arg, self._known(operand))
            for memory, arg, operand in zip(memories, args, operands, strict=False)
            if isinstance(arg, ast.Name) and self._places.is_free(memory, call)
        }
        pairs = self._module.overwritable(callee) if free else ()
        recent = self._out[-1 - len(callee.written) : -1]
        for target in sorted(callee.written) if pairs else ():
            stmt, sinfo = self._new.get(getattr(args[target], "id", ""), (None, None))
            for memory, (name, known) in free.items() if stmt in recent else ():
                uses = {(index, target) for index, m in enumerate(memories) if m is memory}
                if stmt is not None and known == sinfo and uses.issubset(pairs):
                    stmt.value = py.path(name.id)
                    del free[memory]
                    break
        return py.tuple_of(())

    def _direct_sizes(
        self,
        callee: GlobalCallee,
        tensors: Sequence[rx.Expr],
        scalars: Sequence[tir.PrimExpr],
        call: rx.Call,
    ) -> Sizes | None:
        """The sizes of a kernel that is called directly, if its arguments certainly match.

        It writes its last tensors, which this function has allocated.
        """
        first = _tensors(callee) - len(callee.written)
        inputs, outputs = tensors[:first], tensors[first:]
        is_last = callee.written == set(range(first, len(tensors)))
        sinfo = callee.prim_func.struct_info if callee.prim_func is not None else None
        is_unit = isinstance(sinfo, rx.FuncStructInfo) and sinfo.ret == rx.TupleStructInfo(())
        if not is_last or not is_unit or not self._places.are_new(outputs, inputs, call):
            return None
        known = [self._known(tensor) for tensor in tensors]
        return self._known_sizes(callee, known[:first], known[first:], scalars)

    def _packed(
        self, func: rx.ExternFunc, call: rx.Call | None, *, is_called: bool = False
    ) -> ast.expr:
        """The expression that looks up a packed function, and calls it if it `is_called`."""
        packed_call = CompiledPackedCall(
            self._module.packed_symbol(func),
            call.sinfo_args if call is not None else (),
            packed_keywords(call) if call is not None else {},
            self._module.module_functions,
            func.span if call is None else call.span,
            is_called,
        )
        return self._module.share(f"packed_{func.global_symbol}", packed_call)

    def _call_packed(
        self, func: rx.ExternFunc, args: Sequence[rx.Expr], call: rx.Call, hint: str = "v"
    ) -> ast.expr:
        if is_reshape(call):
            reshaped = self._reshape(args[0], self._known(call), call, hint)
            if reshaped is not None:
                return reshaped
        if not self._module.is_instrumented and certainly_succeeds(call, self._known):
            return py.tuple_of(())
        mark = len(self._out)
        operands = self._operands(args)
        is_plain = all(isinstance(a, ast.Name | ast.Constant) for a in operands)
        is_called = is_plain and len(self._out) == mark
        callee = self._packed(func, call, is_called=is_called)
        if len(self._out) > mark:
            callee = self._resolved_before(mark, callee)
        elif not is_called:
            callee = py.call(py.attribute(callee, "resolved"))
        return self._call_out(callee, *operands)

    def _resolved_before(self, mark: int, packed: ast.expr) -> ast.expr:
        """A packed function that is looked up before the statements from `mark` on (EV-17)."""
        following = self._out[mark:]
        del self._out[mark:]
        resolved = self._named(py.call(py.attribute(packed, "resolved")), "f")
        self._out += following
        return resolved

    def _operator(self, call: rx.Call, op: Op, hint: str) -> ast.expr:
        match op.record.calls:
            case CallKind.KERNEL | CallKind.INPLACE_KERNEL:
                return self._call_tir(call, hint)
            case CallKind.DPS_PACKED:
                return self._call_dps_packed(call, hint)
            case CallKind.PACKED | CallKind.INPLACE_PACKED as kind:
                callee, *args = call.args
                plain = call if kind is CallKind.PACKED else replace(call, attrs=EMPTY_ATTRS)
                if isinstance(callee, rx.ExternFunc):
                    return self._call_packed(callee, args, plain)
                return self._invoke(call.args, plain)
            case CallKind.PACKED_WITH_CONTEXT:
                function = self._operand(call.args[0], "f")
                sinfos = self._module.share("infos", call.sinfo_args)
                spread = self._spread(call.args[1])
                return self._call_out("rx.with_context", function, sinfos, *spread)
            case CallKind.DYNAMIC_KERNEL:
                return self._call_dynamic(call)
            case CallKind.PYTHON:
                name, operands = python_callee(call)
                return self._call_packed(self._module.python_callee(name), operands, call)
            case CallKind.CLOSURE:
                function = self._operand(call.args[0], "f")
                return self._call_out("rx.invoke", function, *self._spread(call.args[1]))
            case None if self._known.is_own(call):
                return self._allocate(self._known.allocated(call), hint)
            case None if is_release(call):
                return py.tuple_of(())
            case None if op.record.runtime is not None:
                values = self._operands(call.args)
                attrs = {key: self._attribute(value) for key, value in call.attrs.items()}
                run = implementation(call)
                self._calls_out |= op.record.calls_out or isinstance(run, UsersImplementation)
                name = getattr(run, "__name__", op.name.rpartition(".")[2])
                return py.call(self._module.share(name, run), *values, **attrs)
            case None if is_dynamic(call):
                if op.name == "relax.reshape":
                    reshaped = self._reshape(call.args[0], self._known(call), call, hint)
                    if reshaped is not None:
                        return reshaped
                template = OperatorCall(call)
                dynamic = DynamicOperator(template, self._module.programs)
                operator = self._module.share(f"any_{op.name.rpartition('.')[2]}", dynamic)
                return py.call(operator, *self._operands(template.open_operands))
            case _:
                raise CompileError(f"operator {op.name} has no lowering", span=call.span)

    def _attribute(self, value: object) -> ast.expr:
        if isinstance(value, (bool, int, str)) or value is None:
            return py.text(value) if isinstance(value, str) else py.code(value)
        return self._module.share("attribute", value)

    def _spread(self, expr: rx.Expr) -> list[ast.expr]:
        """The fields of a tuple, as arguments."""
        if isinstance(expr, rx.Tuple):
            return self._operands(expr.fields)
        value = self._operand(expr)
        if py.is_tuple_of_names(value):
            return [*value.elts]
        if not isinstance(self._known(expr), rx.TupleStructInfo):
            value = self._named(py.call("rx.fields", value), "fields")
        return [ast.Starred(value, ast.Load())]

    def _outputs(
        self, call: rx.Call, hint: str, inputs: Sequence[ast.expr], indices: Sequence[int] = ()
    ) -> tuple[list[ast.expr], list[ast.expr]]:
        """The outputs of a call, and the new tensors among them; others are inputs at `indices`."""
        sinfos = output_sinfos(call)
        outputs, new = [], []
        for i, sinfo in enumerate(sinfos):
            if indices and indices[i] >= 0:
                outputs.append(_input(inputs, indices[i]))
                continue
            outputs.append(self._allocate(sinfo, hint if len(sinfos) == 1 else f"{hint}_{i}"))
            new.append(outputs[-1])
        return outputs, new

    def _allocate(self, sinfo: rx.TensorStructInfo, hint: str) -> ast.expr:
        """The name of a new tensor."""
        name, stmt = self._named(self._allocation(sinfo), hint), self._out[-1]
        assert isinstance(name, ast.Name)
        assert isinstance(stmt, ast.Assign)
        self._new[name.id] = stmt, sinfo
        return name

    def _allocation(self, sinfo: rx.TensorStructInfo) -> ast.expr:
        """A new tensor."""
        dtype = py.path(self._module.dtype_name(sinfo.dtype))
        if isinstance(sinfo.shape, rx.ShapeExpr):
            dims = sinfo.shape.values
            shape = py.tuple_of(self._sizes.write(d) for d in dims)
            literals = [d.value for d in dims if isinstance(d, tir.IntImm)]
            # For its limits, NumPy counts an axis of size 0 as one of size 1.
            bits = prod(n or 1 for n in literals) * sinfo.dtype.bits
            small = len(literals) == len(dims) <= 32 and bits < NumPy.SMALL_BITS
            safe = small and min(literals, default=0) >= 0
            return py.call("np.empty" if safe else "rx.empty", shape, dtype)
        assert sinfo.shape is not None
        return py.call("rx.empty", self._shape(sinfo.shape), dtype)

    def _reshape(
        self, value: rx.Expr, result: rx.StructInfo, call: rx.Call, hint: str
    ) -> ast.expr | None:
        """A tensor with the elements of `value`, if their number provably is that of the result."""
        if not isinstance(result, rx.TensorStructInfo) or not isinstance(
            result.shape, rx.ShapeExpr
        ):
            return None
        dims = result.shape.values
        if self._known.reshaped(self._known(value), rx.ShapeStructInfo(dims)) is None:
            return None
        source = self._named(self._operand(value), "v")
        sizes = py.tuple_of(self._sizes.write(dim) for dim in dims)
        place = self._places.of(value)
        if self._places.is_free(place, call) or self._places.share(place, call):
            known = all(isinstance(dim, tir.IntImm) for dim in dims)
            reshape = py.attribute(source, "reshape")
            view = py.call(reshape, sizes) if known else py.call("rx.viewed", source, sizes)
            return self._named(view, hint)
        return self._named(py.call("rx.reshaped", source, sizes), hint)

    def _shape(self, expr: rx.Expr) -> ast.expr:
        """The shape that is the value of a variable."""
        value = self._operand(expr)
        known = isinstance(self._known(expr), rx.ShapeStructInfo)
        return value if known else py.call("rx.sizes", value)

    def _call_tir(self, call: rx.Call, hint: str) -> ast.expr:
        """OP-5, OP-6, OP-7, OP-8; the scalars of `tir_vars` are the last arguments."""
        callee = self._module.kernel_of(call.args[0])
        if callee is None:
            raise CompileError(
                f"call_tir calls a PrimFunc of the module, found {call.args[0]}",
                rule="OP-1",
                span=call.span,
            )
        use, sizes = kernel_use(call, self._module.kernel_of), None
        if use is not None:
            outputs = [o for o, i in zip(use.outputs, use.inplace, strict=True) if i < 0]
            known = [*map(self._known, use.inputs)]
            sizes = self._known_sizes(callee, known, outputs, use.scalars, use.inplace)
        is_reshape = sizes is not None and self._module.is_reshape(callee)
        if use is not None and use.is_unary and is_reshape:
            reshaped = self._reshape(use.inputs[0], use.outputs[0], call, hint)
            if reshaped is not None:
                return reshaped
        inputs = self._spread(call.args[1])
        indices = call.attrs.get("inplace_indices", ())
        assert isinstance(indices, tuple)
        for index in indices:
            if index >= 0 and not isinstance(inputs[0], ast.Starred):
                inputs[index] = self._named(inputs[index], hint)
        scalars = [member for shape in call.args[2:] for member in self._members(shape)]
        results, new = self._outputs(call, hint, inputs, indices)
        args = [*inputs, *new, *scalars]
        if sizes is None:
            self._run_checked(call, callee, args, len(inputs))
        elif indices:  # the kernel checks that it writes to none of the other operands
            self._out.append(py.do(self._call_out(callee.name, *args)))
        else:
            self._run_directly(callee, args, sizes, call, use.inputs if use is not None else ())
        return _result(call, results)

    def _known_sizes(
        self,
        callee: GlobalCallee,
        inputs: Sequence[rx.StructInfo],
        outputs: Sequence[rx.StructInfo],
        scalars: Sequence[tir.PrimExpr],
        inplace: Sequence[int] = (),
    ) -> Sizes | None:
        """The sizes that a kernel without checks takes, if it exists and these arguments match."""
        unchecked = callee.kernel.unchecked if callee.kernel is not None else None
        found = sizes_if_equal(callee, inputs, outputs, scalars, inplace)
        if unchecked is None or found is None or found[1]:
            return None
        passed = {size: found[0][size] for size in unchecked.sizes}
        return passed if self._known.are_bound(passed.values()) else None

    def _run_checked(
        self, call: rx.Call, callee: GlobalCallee, args: Sequence[ast.expr], inputs: int
    ) -> None:
        """Call the kernel after a check of its arguments, whose errors have the call's position.

        The first `inputs` are not new tensors.
        """
        unchecked = callee.kernel.unchecked if callee.kernel is not None else None
        fixed = not any(isinstance(arg, ast.Starred) for arg in args)
        if not fixed or len(args) != len(callee.signature.params):
            function = self._module.function_value(call.args[0])  # type: ignore[arg-type]
            self._out.append(py.do(self._call_out("rx.invoke", function, *args)))
            return
        args = [self._named(arg, "v") for arg in args]
        names = self._check_call(replace(callee.signature, span=call.span), args)
        writes_inputs = (
            "inplace_indices" in call.attrs or min(callee.written, default=inputs) < inputs
        )
        if unchecked is None or writes_inputs:
            self._out.append(py.do(self._call_out(callee.name, *args)))
            return
        wide = signature_sizes(callee)
        sizes = {size: py.path(names[wide[size]]) for size in unchecked.sizes}
        self._run_unchecked(callee, args, sizes)

    @abstractmethod
    def _check_call(self, signature: Signature, args: Sequence[ast.expr]) -> Mapping[tir.Var, str]:
        """Check the arguments of a kernel; return the names of the sizes that they determine."""

    def _run_unchecked(
        self, callee: GlobalCallee, args: Sequence[ast.expr], sizes: Mapping[tir.Var, ast.expr]
    ) -> ast.Expr:
        unchecked = self._module.unchecked(callee)
        passed = [sizes[var] for var in unchecked.sizes]
        run = ast.Expr(py.call(unchecked.name, *args, *passed))
        self._out.append(run)
        if isinstance(unchecked, Unchecked):
            self._may_warn.append(run)
        return run

    def _members(self, shape: rx.Expr) -> list[ast.expr]:
        """The members of a shape as arguments that are already evaluated."""
        if isinstance(shape, rx.ShapeExpr):
            return [self._named(self._sizes.write(v), "scalar") for v in shape.values]
        return [ast.Starred(self._named(self._shape(shape), "scalars"), ast.Load())]

    def _call_dps_packed(self, call: rx.Call, hint: str) -> ast.expr:
        """OP-9: like call_tir, with a packed function."""
        callee = call.args[0]
        if isinstance(callee, rx.ExternFunc):
            mark = len(self._out)
            inputs = self._spread(call.args[1])
            outputs, _ = self._outputs(call, hint, inputs)
            is_called = all(is_allocation(stmt, "np") for stmt in self._out[mark:])
            packed = self._packed(replace(callee, span=call.span), None, is_called=is_called)
            if not is_called:
                packed = self._resolved_before(mark, packed)
            run = self._call_out(packed, *inputs, *outputs)
        else:
            function = self._operand(callee, "f")
            inputs = self._spread(call.args[1])
            outputs, _ = self._outputs(call, hint, inputs)
            run = self._call_out("rx.invoke", function, *inputs, *outputs)
        self._out.append(py.do(run))
        return _result(call, outputs)


def _result(call: rx.Call, outputs: Sequence[ast.expr]) -> ast.expr:
    """The tensor or the tuple of tensors that a call returns (OP-6)."""
    is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
    return py.tuple_of(outputs) if is_tuple else outputs[0]


def _tensors(callee: GlobalCallee) -> int:
    """The number of parameters of a kernel that are tensors."""
    assert callee.prim_func is not None
    return sum(buffer is not None for buffer in callee.prim_func.buffer_map_items)


def _input(inputs: Sequence[ast.expr], index: int) -> ast.expr:
    """Argument `index`, which may be a field of a starred tuple."""
    match inputs:
        case [ast.Starred(value=fields)]:
            return py.item(fields, index)
        case _:
            return inputs[index]
