"""Reads a Relax function as a program of native kernels, if it is one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from relaxpy.exec.native.calls.entry import Array, Integer, sizes_of
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.native.values.packing import Packing
from relaxpy.exec.program.graph.joins import Join
from relaxpy.exec.program.graph.largest import UPPER_BOUND, largest
from relaxpy.exec.program.graph.local_functions import LocalFunctions
from relaxpy.exec.program.graph.packed_calls import Sessions
from relaxpy.exec.program.graph.parameters import Parameters, tensor_of
from relaxpy.exec.program.graph.program import (
    Assertion,
    Branch,
    Check,
    Constant,
    Element,
    ExternCall,
    Filling,
    Finding,
    Graph,
    KernelCall,
    Passed,
    Region,
    Shape,
    Step,
    Tensor,
    Value,
    elements,
    have_shape,
    may_run_again,
    sinfo_of,
    tensors_of,
)
from relaxpy.exec.program.lower.known import Sizes, kernel_use, sizes_if_equal
from relaxpy.exec.program.lower.scope import GlobalCallee
from relaxpy.exec.program.memory import Memory
from relaxpy.exec.runtime.checks import output_sinfos, widened
from relaxpy.exec.runtime.tail_calls import split_result
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.passes.append_in_place import declared_bounds
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import substitute_info
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import cast_to
from relaxpy.ir.tir.substitution import substitute

if TYPE_CHECKING:
    from relaxpy.exec.native.backend import NativeKernel
    from relaxpy.exec.program.lower.python_module import ModuleLowering


class _BindingRefusedError(RefusedError):
    """A binding is unsupported; the message says which."""


class GraphReader:
    """Reads the function `func`, which calls these native `kernels`, by Python name.

    With `packs`, constants get the layouts in which kernels can take them. If the function
    `runs_once`, a refusal of data is final, and kernels may write parameters. The packed functions
    `externs` are functions of C.

    `LocalFunctions` and `Join` read with it, and add to its fields.

    Fields:
        values: those of variables.
        known: the values of shape variables that casts and parameters of local functions define.
        given: the sizes that parameters define.
        sizes: what the program computes.
        found: the largest values of sizes that depend on data.
        unbounded: the others of these, which may be of any value, by the name in the program.
        steps: those of the innermost region.
        written: the memory that kernels write in place.
    """

    def __init__(
        self,
        func: rx.Function,
        context: ModuleLowering,
        kernels: Mapping[str, NativeKernel],
        *,
        packs: bool = True,
        runs_once: bool = False,
        externs: Container[str] = (),
    ) -> None:
        self.runs_once, self._externs = runs_once, externs
        self._func, self._context = func, context
        self._kernels, self._packs = kernels, packs
        self.values: dict[rx.Var, Value] = {}
        self._functions = LocalFunctions(self)
        self._parameters = Parameters()
        self.given = self._parameters.given
        self._literals: dict[Memory, rx.Constant] = {}
        self._constants: dict[tuple[rx.Constant, Packing | None], Memory] = {}
        self._outermost: list[Step] = []
        self.steps = self._outermost
        self.written: set[Memory] = set()
        self._viewed: set[Memory] = set()
        """The memory that tensors of two shapes share, though they would be copies in Python."""
        self._passed: set[Memory] = set()
        """The memory that a branch returns unchanged, so that two names may be one tensor."""
        self._shared: dict[Memory, set[Memory]] = {}
        """The memory of copies of tensors that may be one tensor in Python, with each other."""
        self._stale: set[Memory] = set()
        """The memory whose elements Python would have written by another name."""
        self._originals: dict[Tensor, Tensor] = {}
        """The tensors before casts that gave them another shape."""
        self.known: dict[tir.Var, tir.PrimExpr] = {}
        self.sizes, self.found = self._parameters.sizes, self._parameters.found
        self.unbounded: dict[tir.Var, str] = {}
        self._sessions = Sessions(self._parameters)

    def read(self) -> Graph:
        """The program.

        Errors:
            RefusedError: something in the function has no native form.
        """
        func, parameters = self._func, self._parameters
        for var in func.params:
            try:
                self.values[var] = parameters.add(var.struct_info)
            except RefusedError as error:
                raise RefusedError(f"parameter {var.name_hint}: {error}") from None
        result = self.body(func.body)
        self.check_result(func, result)
        result = self.operand(self._original(result))
        arguments = set(parameters.tensors.values())
        results = [t for t in dict.fromkeys(tensors_of(result)) if t not in arguments]
        written = [m for m in self.written if m.origin == "parameter"]
        if any(tensor.memory in written for tensor in results):
            raise RefusedError("it returns a view of a parameter that a kernel writes")
        self.declare_largest({*self.unbounded})
        measured = [n for n, tensor in enumerate(results) if self.mentions_found(tensor.shape)]
        shapes = [self.filling(Shape(results[n].shape)) for n in measured]
        return Graph(
            parameters.params,
            parameters.given,
            parameters.limit(),
            parameters.tensors,
            [Constant(*constant) for constant in self._constants],
            self.region(self.steps, [*results, *shapes]),
            results,
            self.found,
            measured,
            result,
            sorted(m.index for m in written)
            if self.runs_once
            else sorted(map(parameters.written, written)),
            self._sessions.found(),
        )

    def check_result(self, func: rx.Function, result: Value, where: str = "") -> None:
        """Refuse a result of a function unless it certainly is what the function declares."""
        ret = func.ret_struct_info
        known = None if ret is None else substitute_info(ret, self.known)
        variables = {size for size in self.given if isinstance(size, tir.Var)} | {*self.found}
        if known is not None and not is_base_of(known, sinfo_of(result), variables):
            found, where = sinfo_of(result), where or "its result"
            raise RefusedError(
                f"{where} is {found}, and is checked to be {known} when it runs: R.match_cast it"
                " before it is returned, or declare what it is"
            )

    @contextmanager
    def adding_to(self, steps: list[Step]) -> Iterator[list[Step]]:
        """Add the steps that are read here to `steps`."""
        enclosing, self.steps = self.steps, steps
        try:
            yield steps
        finally:
            self.steps = enclosing

    def region(self, steps: Sequence[Step], results: Sequence[Tensor]) -> Region:
        """The region of steps whose results also have to be distinct tensors in Python."""
        self._check_passed(results)
        return self.nested(steps, results)

    def nested(self, steps: Sequence[Step], results: Sequence[Tensor]) -> Region:
        """The region of steps; those after sizes that depend on data are a region in it."""
        first = next((n for n, step in enumerate(steps) if isinstance(step, Finding)), None)
        if first is None:
            return Region(steps, results)
        step, before, outer = steps[first], steps[:first], list[Tensor]()
        assert isinstance(step, Finding)
        inner: dict[Tensor, Tensor] = {}
        left = {tensor.memory for each in before for tensor in each.outputs}
        for tensor in results:
            if tensor.memory in left:
                left.remove(tensor.memory)
                outer.append(tensor)
            else:
                shape = rx.ShapeExpr([largest(size, self.found) for size in tensor.shape])
                sinfo = rx.TensorStructInfo(shape, tensor.sinfo.dtype)
                outer.append(inner.setdefault(tensor, Tensor(Memory("new"), sinfo)))
        region = self.nested(steps[first + 1 :], [*inner])
        return Region([*before, Finding(step.sizes, region, [*inner.values()])], outer)

    def declare_largest(self, sizes: Container[Node]) -> None:
        """Give those of these sizes that are unbounded the bounds that are declared."""
        unbounded = {v: name for v, name in self.unbounded.items() if v in sizes}
        declared = declared_bounds(self._func, UPPER_BOUND) if unbounded else {}
        missing = [name for name in dict.fromkeys(unbounded.values()) if name not in declared]
        if missing:
            options = " ".join(f"--at-most {name}=..." for name in missing)
            bounds = ", ".join(f'"{name}": ...' for name in missing)
            raise RefusedError(
                f"sizes depend on data: declare the largest value of {', '.join(missing)},"
                f" at_most={{{bounds}}} ({options}), or in the program"
                f' R.func_attr({{"{UPPER_BOUND}": {{{bounds}}}}})'
            )
        for var, name in unbounded.items():
            self.found[var] = tir.IntImm("int64", declared[name])
            del self.unbounded[var]

    def mentions_found(
        self, sizes: Iterable[tir.PrimExpr], without: Set[tir.Var] = frozenset()
    ) -> bool:
        """True if a size depends on data, by other variables than those to leave out."""
        found = (self.found.keys() | self.unbounded.keys()) - without
        return any(node in found for size in sizes for node in walk(size))

    def _check_passed(self, results: Sequence[Tensor]) -> None:
        """Refuse results that may be one tensor for a caller in Python."""
        if not self.runs_once and any(tensor.memory in self._passed for tensor in results):
            raise RefusedError("results may be the same tensor")

    def check_distinct(self, results: Sequence[Tensor], where: str) -> None:
        """Refuse the results of `where`, a branch or a loop, if two of them are one tensor."""
        if not self.runs_once and len({t.memory for t in results}) < len(results):
            raise RefusedError(f"results of {where} are one tensor")

    def body(self, body: rx.Expr) -> Value:
        """The value of a body, whose steps are added."""
        bindings, last = split_result(body)
        self.bind(bindings)
        return self.value(last)

    def bind(self, bindings: Iterable[rx.Binding]) -> None:
        """Add the steps of bindings."""
        for binding in bindings:
            if isinstance(binding.value, rx.Function) and binding.var is not None:
                self._functions.add(binding.var, binding.value)
                continue
            try:
                value = self.value(binding.value)
                if isinstance(binding, rx.MatchCast):
                    value = self.cast(value, binding.struct_info)
            except _BindingRefusedError:
                raise
            except RefusedError as error:
                raise _BindingRefusedError(f"{error}{_location(binding)}") from None
            if binding.var is not None:
                self.values[binding.var] = value

    # ---- expressions

    def value(self, expr: rx.Expr) -> Value:
        """The value of an expression, whose steps are added."""
        match expr:
            case rx.Var() if expr in self.values:
                return self.values[expr]
            case rx.Constant():
                memory = Memory("constant")
                self._literals[memory] = expr
                return tensor_of(memory, expr.data_sinfo)
            case rx.ShapeExpr(values=sizes):
                return Shape(self.replaced(sizes))
            case rx.Tuple(fields=fields):
                return tuple(map(self.value, fields))
            case rx.If():
                return self._branch(expr)
            case rx.TupleGetItem(tuple_value=value, index=index):
                whole = self.value(value)
                if not isinstance(whole, tuple) or index >= len(whole):
                    raise RefusedError("it selects a field of a value that is not a tuple")
                return whole[index]
            case rx.Call(op=Op() as op) if op.record.calls and op.record.calls.is_kernel:
                return self._kernel(expr)
            case rx.Call(op=Op() as op) if op.record.calls is CallKind.DPS_PACKED:
                return self._packed(expr)
            case rx.Call(op=rx.Var() as name) if name in self._functions:
                return self._functions.call(name, expr)
            case rx.Call(op=rx.ExternFunc() as func, args=args) if self._is_extern(func):
                return self._extern(func, args, expr)
            case rx.Call(op=Op(name="relax.call_pure_packed"), args=[func, *args]) if (
                self._is_extern(func)
            ):
                return self._extern(func, args, expr)
            case rx.Call(op=Op(name="relax.shape_of"), args=[arg]):
                tensor = self.value(arg)
                if not isinstance(tensor, Tensor):
                    raise RefusedError("it takes the shape of a value that is not a tensor")
                return Shape(tensor.shape)
            case rx.Call(op=Op(name="relax.shape_to_tensor"), args=[shape]):
                return self.filling(self.value(shape))
            case rx.Call(op=Op(name="relax.assert_op"), args=[test, *shown], attrs=attrs):
                numbers = self.replaced(n.value for n in shown if isinstance(n, rx.PrimValue))
                self.sizes.update(numbers)
                step = Assertion(self._asserted(test), str(attrs["format"]), numbers)
                self.steps.append(step)
                return ()
            case rx.Call(op=Op(name="relax.memory.view"), args=args) if self.runs_once:
                return self._view(*args)
            case rx.Call(op=Op(name="relax.tensor_to_shape"), args=[arg]):
                return elements(self.operand(self.value(arg)))
            case rx.Call(op=op):
                raise RefusedError(f"it calls {getattr(op, 'name', None) or op}")
            case rx.Var() if isinstance(expr.struct_info, rx.FuncStructInfo):
                raise RefusedError(f"it has the function {expr.name_hint} as a value")
            case _:
                raise RefusedError(f"it has a {type(expr).__name__}")

    def operand(self, value: Value, packing: Packing | None = None) -> Value:
        """A value that the program reads, whose constants get numbers."""
        if isinstance(value, tuple):
            return tuple(map(self.operand, value))
        if isinstance(value, Shape | Passed):
            return value
        if value.memory in self._stale:
            raise RefusedError("a tensor is read that a kernel writes by another name")
        literal = self._literals.get(value.memory)
        if literal is None:
            return value
        memory = Memory("constant", len(self._constants))
        return Tensor(self._constants.setdefault((literal, packing), memory), value.sinfo)

    def share(self, copy: Memory, original: Memory) -> None:
        """Note that two memories are copies of what may be one tensor in Python."""
        if "constant" not in (copy.origin, original.origin):
            group = {copy, original}.union(*(self._shared.get(m, ()) for m in (copy, original)))
            self._shared.update(dict.fromkeys(group, group))

    def share_all(self, copies: Iterable[Tensor], originals: Iterable[Tensor]) -> None:
        """Note that tensors are copies of what may be the same tensors in Python."""
        for copy, original in zip(copies, originals, strict=True):
            self.share(copy.memory, original.memory)

    def new(self, sinfo: rx.StructInfo) -> Tensor:
        """A new tensor."""
        tensor = tensor_of(Memory("new"), sinfo)
        self.sizes.update(tensor.shape)
        return tensor

    # ---- sizes

    def replaced(
        self, sizes: Iterable[tir.PrimExpr], more: Mapping[tir.Var, tir.PrimExpr] | None = None
    ) -> list[tir.PrimExpr]:
        """The sizes over variables of parameters, with `more` values of variables."""
        known = {**self.known, **more} if more else self.known
        return [substitute(size, known) for size in sizes] if known else list(sizes)

    def _check(self, found: tir.PrimExpr | Element, expected: tir.PrimExpr) -> None:
        """Add a check that both are equal."""
        self.sizes.update(size for size in (found, expected) if isinstance(size, tir.PrimExpr))
        self.steps.append(Check(found, expected))

    def cast(self, value: Value, sinfo: rx.StructInfo) -> Value:
        """The value with the sizes that a cast declares, some of which may be variables."""
        match value, sinfo:
            case tuple(), rx.TupleStructInfo(fields=fields) if len(value) == len(fields):
                return tuple(map(self.cast, value, fields))
            case Tensor(), rx.TensorStructInfo(shape=rx.ShapeExpr(values=expected)):
                same = value.sinfo.dtype == sinfo.dtype and len(value.shape) == len(expected)
                sizes: Sequence[tir.PrimExpr | Element] = value.shape
            case Shape(sizes=sizes), rx.ShapeStructInfo(values=expected) if expected is not None:
                same = len(sizes) == len(expected)
            case _:
                raise RefusedError("it casts a value to something that is checked when it runs")
        if not same:
            raise RefusedError("a cast fails")
        new: dict[tir.Var, Element] = {}
        for found, size in zip(sizes, expected, strict=True):
            if isinstance(size, tir.Var) and size not in {*self.known, *self.given}:
                self.known[size] = self._size(size, found, new)
            else:
                [size] = self.replaced([size])
                if isinstance(found, Element) or prove_equal(found, size) is not True:
                    self._check(found, size)
        if new:
            self.steps.append(Finding(new, Region((), ())))
        sizes = self.replaced(expected)
        if isinstance(value, Shape):
            return Shape(sizes)
        cast = Tensor(
            value.memory, rx.TensorStructInfo(rx.ShapeExpr(tuple(sizes)), value.sinfo.dtype)
        )
        self._originals[cast] = self._originals.get(value, value)
        return cast

    def _size(
        self, size: tir.Var, found: tir.PrimExpr | Element, new: dict[tir.Var, Element]
    ) -> tir.PrimExpr:
        """The value of a shape variable; if it depends on data, a new variable, which is added."""
        if not isinstance(found, Element):
            return found
        if not self.runs_once:
            raise RefusedError("a size depends on data")
        var = tir.Var(size.name, INT64)
        new[var], self.unbounded[var] = found, size.name
        return var

    def _view(self, data: rx.Expr, shape: rx.Expr, dtype: rx.Expr, offset: rx.Expr) -> Tensor:
        """The first elements of a tensor as one of another shape.

        A size that depends on data is at most the dimension in its place.
        """
        tensor, sizes = self.value(data), self.value(shape)
        is_plain = all(isinstance(each, rx.Tuple) for each in (dtype, offset))
        if not isinstance(tensor, Tensor) or not isinstance(sizes, Shape) or not is_plain:
            raise RefusedError("it takes a view of other elements")
        new = Tensor(
            tensor.memory,
            rx.TensorStructInfo(rx.ShapeExpr(tuple(sizes.sizes)), tensor.sinfo.dtype),  # type: ignore[arg-type]
        )
        self._viewed.add(tensor.memory)
        if prove_equal(product(new.shape), product(tensor.shape)) is True:
            return new
        for size, most in zip(new.shape, tensor.shape, strict=False):
            if isinstance(size, tir.Var) and self.unbounded.pop(size, None) is not None:
                self.found[size] = most
        if not have_shape(tensor, [self.found.get(size, size) for size in new.shape]):  # type: ignore[call-overload]
            raise RefusedError("it takes a view whose size is not known")
        return new

    def _original(self, value: Value) -> Value:
        """The value with the tensors before casts."""
        if isinstance(value, tuple):
            return tuple(map(self._original, value))
        return self._originals.get(value, value) if isinstance(value, Tensor) else value

    def filling(self, shape: Value) -> Tensor:
        """A shape as a tensor; adds the step that stores it."""
        if not isinstance(shape, Shape) or any(isinstance(size, Element) for size in shape.sizes):
            raise RefusedError(
                "the sizes of a shape are elements of a tensor: name them, R.match_cast(R.tensor_to"
                "_shape(...), R.Shape([...]))"
            )
        sizes = [size for size in shape.sizes if isinstance(size, tir.PrimExpr)]
        self.sizes.update(sizes)
        tensor = self.new(
            rx.TensorStructInfo(rx.ShapeExpr((tir.IntImm("int64", len(sizes)),)), DataType("int64"))
        )
        self.steps.append(Filling(tensor, sizes))
        return tensor

    # ---- branches

    def _branch(self, expr: rx.If) -> Value:
        condition, join = self.condition(expr.cond), Join(self)
        ways = [self._way(way) for way in (expr.true_branch, expr.false_branch)]
        value = join.joined([value for value, _ in ways])
        then, otherwise = (
            self._way_region([*tensors_of(each), *join.differing(number, steps)], steps)
            for number, (each, steps) in enumerate(ways)
        )
        outputs = join.outputs()
        self.steps.append(Branch(condition, (then, otherwise), (outputs, outputs), outputs))
        join.find_sizes(outputs)
        return value

    def condition(self, expr: rx.Expr) -> Tensor:
        """The tensor that decides which steps run."""
        condition = self.operand(self.value(expr))
        if not isinstance(condition, Tensor) or condition.sinfo.dtype != "bool" or condition.shape:
            raise RefusedError("a condition is not a tensor")
        return condition

    def _asserted(self, expr: rx.Expr) -> Tensor | tir.PrimExpr:
        """A condition, which may be one on sizes."""
        if not isinstance(expr, rx.PrimValue):
            return self.condition(expr)
        [test] = self.replaced([expr.value])
        self.sizes.add(test)
        return test

    def _way(self, body: rx.Expr) -> tuple[Value, list[Step]]:
        """The value of one arm, and its steps."""
        with self.adding_to([]) as steps:
            value = self.operand(self.body(body))
            self.check_distinct(tensors_of(value), "a branch")
        return value, steps

    def _way_region(self, results: Sequence[Tensor], steps: list[Step]) -> Region:
        region = self.region(steps, results)
        new = {tensor.memory for tensor in region.new_tensors()}
        for tensor in results:
            if tensor.memory.origin == "parameter" and not self.runs_once:
                raise RefusedError("a branch returns a parameter")
            if tensor.memory.origin != "constant" and tensor.memory not in new:
                self._passed.add(tensor.memory)
        return region

    # ---- kernels

    def _kernel(self, call: rx.Call) -> Value:
        use = kernel_use(call, self._context.kernel_of)
        if use is None:
            raise RefusedError("it calls a kernel with arguments that are not known")
        if use.callee.name not in self._kernels:
            raise RefusedError(f"it calls the kernel {use.callee.name}, which is not native")
        callee, inplace = use.callee, use.inplace
        scalars = self.replaced(use.scalars)
        tensors = [self.value(field) for field in use.inputs]
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise RefusedError("the arguments of a kernel are not tensors")
        sinfos = [tensor.sinfo for tensor in tensors if isinstance(tensor, Tensor)]
        outputs = [substitute_info(sinfo, self.known) for sinfo in use.outputs]
        given = [sinfo for sinfo, index in zip(outputs, inplace, strict=True) if index < 0]
        found = sizes_if_equal(callee, sinfos, given, scalars, inplace)
        if found is None:
            raise RefusedError("the arguments of a kernel do not match")
        sizes, compared = found
        for expected, actual in compared:
            self._check(actual, expected)
        new = [self.new(sinfo) for sinfo in given]
        if use.is_unary and self._context.is_reshape(callee):
            [source] = tensors
            assert isinstance(source, Tensor)
            self._viewed.add(source.memory)
            return Tensor(source.memory, outputs[0])
        self.steps.append(self._call(callee, [*tensors, *new], new, scalars, sizes))  # type: ignore[list-item]
        fresh = iter(new)
        results = [
            next(fresh) if index < 0 else self._in_place(callee, index, tensors, sinfo)
            for index, sinfo in zip(inplace, outputs, strict=True)
        ]
        return tuple(results) if use.is_tuple else results[0]

    def _in_place(
        self, callee: GlobalCallee, index: int, tensors: Sequence[Value], sinfo: rx.TensorStructInfo
    ) -> Tensor:
        """A tensor that the last step writes.

        If a later step refuses its data, all run again. A parameter is therefore written only in
        private functions, which own its memory, and by kernels that may run twice.
        """
        operands = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
        value, memory = operands[index], operands[index].memory
        if memory.origin == "constant" or not have_shape(value, sinfo.shape.values):  # type: ignore[union-attr]
            raise RefusedError("a kernel writes a constant")
        if memory in self._viewed:
            raise RefusedError("a kernel writes what a reshaped tensor keeps")
        others = self._shared.get(memory, set()) - {memory}
        if any(m.origin == "parameter" for m in others):
            raise RefusedError("a kernel writes a parameter")
        if any(tensor.memory in others for tensor in operands):
            raise RefusedError("a kernel writes two operands that may be one")
        self._stale |= others
        self.written.add(memory)
        if memory.origin == "new" or self.runs_once:
            return value
        is_outermost = self.steps is self._outermost and "global_symbol" not in self._func.attrs
        before = self.steps[:-1]
        if not is_outermost or not may_run_again(callee.prim_func, index, operands, before):
            raise RefusedError("a kernel writes a parameter")
        return value

    def _call(
        self,
        callee: GlobalCallee,
        tensors: Iterable[Tensor],
        new: list[Tensor],
        scalars: Iterable[tir.PrimExpr],
        sizes: Sizes,
    ) -> KernelCall:
        assert callee.prim_func is not None
        kernel, signature = self._kernels[callee.name], self._kernels[callee.name].signature
        arrays, numbers = iter(tensors), iter(scalars)
        arguments: list[Tensor | tir.PrimExpr] = []
        for number, param in enumerate(signature.params):
            if isinstance(param, Array) and param.strides is None:
                packing = kernel.packings.get(number) if self._packs else None
                tensor = self.operand(next(arrays), packing)
                assert isinstance(tensor, Tensor)
                arguments.append(tensor)
            elif isinstance(param, Integer):
                scalar = next(numbers)
                self.sizes.add(scalar)
                arguments.append(scalar)
            else:
                raise RefusedError("a kernel takes strides or numbers")
        passed: list[tir.PrimExpr] = [tir.IntImm("int64", n) for n in signature.constants]
        wide = {var: cast_to(value, INT64) for var, value in sizes.items()}
        for declared in sizes_of(signature.params):
            size = widened(declared, wide)
            self.sizes.add(size)
            passed.append(size)
        return KernelCall(callee.name, callee.prim_func, arguments, passed, new)

    def _is_extern(self, func: rx.Expr) -> bool:
        return isinstance(func, rx.ExternFunc) and func.global_symbol in self._externs

    def _extern(self, func: rx.Expr, args: Sequence[rx.Expr], call: rx.Call) -> Value:
        """The result of a call of a function of C on tensors."""
        assert isinstance(func, rx.ExternFunc)
        inputs = [self.operand(self.value(arg)) for arg in args]
        tensors = [tensor for tensor in inputs if isinstance(tensor, Tensor)]
        infos = output_sinfos(call) if call.sinfo_args else ()
        if len(tensors) < len(inputs) or not infos:
            raise RefusedError(f"{func.global_symbol} takes or returns other values than tensors")
        outputs = [self.new(substitute_info(sinfo, self.known)) for sinfo in infos]
        self.steps.append(ExternCall(func.global_symbol, tensors, outputs))
        is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        return tuple(outputs) if is_tuple else outputs[0]

    def _packed(self, call: rx.Call) -> Value:
        """The result of a call of a packed function on an object, numbers and tensors."""
        func, operands = call.args
        if not isinstance(func, rx.ExternFunc) or not isinstance(operands, rx.Tuple):
            raise RefusedError("it calls a function value")
        if self._is_extern(func):
            return self._extern(func, operands.fields, call)
        item, *others = operands.fields
        numbers = [arg for arg in others if isinstance(arg, rx.PrimValue)]
        inputs = [self.operand(self.value(arg)) for arg in others[len(numbers) :]]
        outputs = [self.new(substitute_info(sinfo, self.known)) for sinfo in output_sinfos(call)]
        step = self._sessions.step(func, self.value(item), numbers, inputs, outputs)
        self.steps.append(step)
        is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        return tuple(outputs) if is_tuple else outputs[0]


def _location(binding: rx.Binding) -> str:
    """Where a binding is in the program, for a message."""
    name = f"the value of {binding.var.name_hint}" if binding.var is not None else "a check"
    span = binding.span or binding.value.span
    return f" ({name}{f', line {span.line}' if span is not None else ''})"
