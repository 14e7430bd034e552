"""Reads a Relax function as a program of native kernels, if it is one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, cast

from relaxpy.exec.native.calls.entry import Array, Integer, sizes_of
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.native.values.packing import Packing
from relaxpy.exec.program.graph.largest import largest
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
    Loop,
    Passed,
    Region,
    Shape,
    Step,
    Tensor,
    Value,
    elements,
    have_shape,
    leaves,
    may_run_again,
)
from relaxpy.exec.program.lower.known import Sizes, kernel_use, sizes_if_equal
from relaxpy.exec.program.lower.scope import GlobalCallee
from relaxpy.exec.program.memory import Memory
from relaxpy.exec.runtime.checks import output_sinfos, widened
from relaxpy.exec.runtime.tail_calls import split_result
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.traverse import occurrences, walk
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
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.exec.native.backend import NativeKernel
    from relaxpy.exec.program.lower.python_module import ModuleLowering

_ANY = rx.ObjectStructInfo()
_MOST_BODIES = 20_000
"""The most local functions that are inlined: one that calls another twice doubles its bodies."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tail:
    """Steps of an iteration, and how it ends: by a branch of tails, by the next one, or by a value.

    Fields:
        again: the states of the next iteration.
    """

    steps: list[Step]
    condition: Tensor | None = None
    ways: Sequence[_Tail] = ()
    again: Sequence[Tensor] | None = None
    value: Value = ()

    def ends(self) -> Iterator[_Tail]:
        """The tails without branches."""
        if not self.ways:
            yield self
        for way in self.ways:
            yield from way.ends()


class GraphReader:
    """Reads the function `func`, which calls these native `kernels`, by Python name.

    With `packs`, constants get the layouts in which kernels can take them. If the function
    `runs_once`, a refusal of data is final, and kernels may write parameters. The packed functions
    `externs` are functions of C.
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
        self._runs_once, self._externs = runs_once, externs
        self._func, self._context = func, context
        self._kernels, self._packs = kernels, packs
        self._values: dict[rx.Var, Value] = {}
        self._functions: dict[rx.Expr, rx.Function] = {}
        """Local functions by name, without those that are being read, which are open."""
        self._open: set[rx.Var] = set()
        self._inlined_count = 0
        self._parameters = Parameters()
        self._given = self._parameters.given
        self._literals: dict[Memory, rx.Constant] = {}
        self._constants: dict[tuple[rx.Constant, Packing | None], Memory] = {}
        self._outermost: list[Step] = []
        self._steps = self._outermost
        """The steps of the innermost region."""
        self._written: set[Memory] = set()
        """The memory that kernels write in place."""
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
        self._known: dict[tir.Var, tir.PrimExpr] = {}
        """The values of shape variables that casts define."""
        self._sizes, self._found = self._parameters.sizes, self._parameters.found
        self._unbounded: dict[tir.Var, str] = {}
        """The sizes that depend on data and may be of any value, by the name in the program."""
        self._sessions = Sessions(self._parameters)

    def read(self) -> Graph:
        """The program.

        Errors:
            RefusedError: something in the function has no native form.
        """
        func, parameters = self._func, self._parameters
        for var in func.params:
            self._values[var] = parameters.add(var.struct_info)
        result = self._body(func.body)
        self._check_result(func, result)
        result = self._read(self._original(result))
        arguments = set(parameters.tensors.values())
        results = [t for t in dict.fromkeys(leaves(result)) if t not in arguments]
        written = [m for m in self._written if m.origin == "parameter"]
        if any(tensor.memory in written for tensor in results):
            raise RefusedError("it returns a view of a parameter that a kernel writes")
        self._declare_largest()
        measured = [n for n, tensor in enumerate(results) if self._mentions_found(tensor.shape)]
        shapes = [self._filling(Shape(results[n].shape)) for n in measured]
        return Graph(
            parameters.params,
            parameters.given,
            parameters.limit(),
            parameters.tensors,
            [Constant(*constant) for constant in self._constants],
            self._region([*results, *shapes]),
            results,
            self._found,
            measured,
            result,
            sorted(m.index for m in written)
            if self._runs_once
            else sorted(map(parameters.written, written)),
            self._sessions.found(),
        )

    def _check_result(self, func: rx.Function, result: Value) -> None:
        ret = func.ret_struct_info
        known = None if ret is None else substitute_info(ret, self._known)
        variables = {size for size in self._given if isinstance(size, tir.Var)} | {*self._found}
        if known is not None and not is_base_of(known, _sinfo(result), variables):
            raise RefusedError("the struct info of its result is checked when it runs")

    def _region(self, results: Sequence[Tensor]) -> Region:
        """The steps that were read, with these results."""
        self._check_passed(results)
        return self._nested(self._steps, results)

    def _nested(self, steps: Sequence[Step], results: Sequence[Tensor]) -> Region:
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
                shape = rx.ShapeExpr([largest(size, self._found) for size in tensor.shape])
                sinfo = rx.TensorStructInfo(shape, tensor.sinfo.dtype)
                outer.append(inner.setdefault(tensor, Tensor(Memory("new"), sinfo)))
        region = self._nested(steps[first + 1 :], [*inner])
        return Region([*before, Finding(step.sizes, region, [*inner.values()])], outer)

    def _declare_largest(self) -> None:
        """Give the sizes that depend on data, and are unbounded, the bounds that are declared."""
        declared = declared_bounds(self._func, "tir_var_upper_bound") if self._unbounded else {}
        for var, name in self._unbounded.items():
            if name not in declared:
                raise RefusedError(
                    f"the size {name} depends on data: declare its largest value,"
                    f' R.func_attr({{"tir_var_upper_bound": {{"{name}": ...}}}})'
                )
            self._found[var] = tir.IntImm("int64", declared[name])
        self._unbounded = {}

    def _mentions_found(
        self, sizes: Iterable[tir.PrimExpr], without: Set[tir.Var] = frozenset()
    ) -> bool:
        """True if a size depends on data, by other variables than those to leave out."""
        found = (self._found.keys() | self._unbounded.keys()) - without
        return any(node in found for size in sizes for node in walk(size))

    def _check_passed(self, results: Sequence[Tensor]) -> None:
        """Refuse results that may be one tensor for a caller in Python."""
        if not self._runs_once and any(tensor.memory in self._passed for tensor in results):
            raise RefusedError("results may be the same tensor")

    def _check_distinct(self, results: Sequence[Tensor], where: str) -> None:
        if not self._runs_once and len({t.memory for t in results}) < len(results):
            raise RefusedError(f"results of {where} are one tensor")

    def _body(self, body: rx.Expr) -> Value:
        """The value of a body, whose steps are added."""
        bindings, last = split_result(body)
        self._bind(bindings)
        return self._value(last)

    def _bind(self, bindings: Iterable[rx.Binding]) -> None:
        """Add the steps of bindings."""
        for binding in bindings:
            if isinstance(binding.value, rx.Function) and binding.var is not None:
                self._functions[binding.var] = binding.value
                continue
            value = self._value(binding.value)
            if isinstance(binding, rx.MatchCast):
                value = self._cast(value, binding.struct_info)
            if binding.var is not None:
                self._values[binding.var] = value

    # ---- expressions

    def _value(self, expr: rx.Expr) -> Value:
        match expr:
            case rx.Var() if expr in self._values:
                return self._values[expr]
            case rx.Constant():
                memory = Memory("constant")
                self._literals[memory] = expr
                return tensor_of(memory, expr.data_sinfo)
            case rx.ShapeExpr(values=sizes):
                return Shape(self._replaced(sizes))
            case rx.Tuple(fields=fields):
                return tuple(map(self._value, fields))
            case rx.If():
                return self._branch(expr)
            case rx.TupleGetItem(tuple_value=value, index=index):
                whole = self._value(value)
                if not isinstance(whole, tuple) or index >= len(whole):
                    raise RefusedError("it selects a field of a value that is not a tuple")
                return whole[index]
            case rx.Call(op=Op() as op) if op.record.calls and op.record.calls.is_kernel:
                return self._kernel(expr)
            case rx.Call(op=Op() as op) if op.record.calls is CallKind.DPS_PACKED:
                return self._packed(expr)
            case rx.Call(op=rx.Var() as name) if name in self._functions:
                return self._loop(name, expr)
            case rx.Call(op=rx.ExternFunc() as func, args=args) if self._is_extern(func):
                return self._extern(func, args, expr)
            case rx.Call(op=Op(name="relax.call_pure_packed"), args=[func, *args]) if (
                self._is_extern(func)
            ):
                return self._extern(func, args, expr)
            case rx.Call(op=Op(name="relax.shape_of"), args=[arg]):
                tensor = self._value(arg)
                if not isinstance(tensor, Tensor):
                    raise RefusedError("it takes the shape of a value that is not a tensor")
                return Shape(tensor.shape)
            case rx.Call(op=Op(name="relax.shape_to_tensor"), args=[shape]):
                return self._filling(self._value(shape))
            case rx.Call(op=Op(name="relax.assert_op"), args=[test, *_], attrs=attrs):
                self._steps.append(Assertion(self._condition(test), str(attrs["format"])))
                return ()
            case rx.Call(op=Op(name="relax.memory.view"), args=args) if self._runs_once:
                return self._view(*args)
            case rx.Call(op=Op(name="relax.tensor_to_shape"), args=[arg]):
                return elements(self._read(self._value(arg)))
            case rx.Call(op=rx.Var() as name) if name in self._open:
                where = f"{name.name_hint} calls itself, and not last"
                raise RefusedError(f"{where}: only a call in the end becomes a loop")
            case rx.Call(op=op):
                raise RefusedError(f"it calls {getattr(op, 'name', None) or op}")
            case rx.Var() if isinstance(expr.struct_info, rx.FuncStructInfo):
                raise RefusedError(f"it has the function {expr.name_hint} as a value")
            case _:
                raise RefusedError(f"it has a {type(expr).__name__}")

    def _read(self, value: Value, packing: Packing | None = None) -> Value:
        """A value that the program reads, whose constants get numbers."""
        if isinstance(value, tuple):
            return tuple(map(self._read, value))
        if isinstance(value, Shape | Passed):
            return value
        if value.memory in self._stale:
            raise RefusedError("a tensor is read that a kernel writes by another name")
        literal = self._literals.get(value.memory)
        if literal is None:
            return value
        memory = Memory("constant", len(self._constants))
        return Tensor(self._constants.setdefault((literal, packing), memory), value.sinfo)

    def _share(self, copy: Memory, original: Memory) -> None:
        """Note that two memories are copies of what may be one tensor in Python."""
        if "constant" not in (copy.origin, original.origin):
            group = {copy, original}.union(*(self._shared.get(m, ()) for m in (copy, original)))
            self._shared.update(dict.fromkeys(group, group))

    def _new(self, sinfo: rx.StructInfo) -> Tensor:
        tensor = tensor_of(Memory("new"), sinfo)
        self._sizes.update(tensor.shape)
        return tensor

    # ---- sizes

    def _replaced(self, sizes: Iterable[tir.PrimExpr]) -> list[tir.PrimExpr]:
        """The sizes over variables of parameters."""
        return [substitute(size, self._known) for size in sizes] if self._known else list(sizes)

    def _check(self, found: tir.PrimExpr | Element, expected: tir.PrimExpr) -> None:
        """Add a check that both are equal."""
        self._sizes.update(size for size in (found, expected) if isinstance(size, tir.PrimExpr))
        self._steps.append(Check(found, expected))

    def _cast(self, value: Value, sinfo: rx.StructInfo) -> Value:
        """The value with the sizes that a cast declares, some of which may be variables."""
        match value, sinfo:
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
            if isinstance(size, tir.Var) and size not in {*self._known, *self._given}:
                self._known[size] = self._size(size, found, new)
            else:
                [size] = self._replaced([size])
                if isinstance(found, Element) or prove_equal(found, size) is not True:
                    self._check(found, size)
        if new:
            self._steps.append(Finding(new, Region((), ())))
        sizes = self._replaced(expected)
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
        if not self._runs_once:
            raise RefusedError("a size depends on data")
        var = tir.Var(size.name, INT64)
        new[var], self._unbounded[var] = found, size.name
        return var

    def _view(self, data: rx.Expr, shape: rx.Expr, dtype: rx.Expr, offset: rx.Expr) -> Tensor:
        """The first elements of a tensor as one of another shape.

        A size that depends on data is at most the dimension in its place.
        """
        tensor, sizes = self._value(data), self._value(shape)
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
            if isinstance(size, tir.Var) and self._unbounded.pop(size, None) is not None:
                self._found[size] = most
        if not have_shape(tensor, [self._found.get(size, size) for size in new.shape]):  # type: ignore[call-overload]
            raise RefusedError("it takes a view whose size is not known")
        return new

    def _original(self, value: Value) -> Value:
        """The value with the tensors before casts."""
        if isinstance(value, tuple):
            return tuple(map(self._original, value))
        return self._originals.get(value, value) if isinstance(value, Tensor) else value

    def _filling(self, shape: Value) -> Tensor:
        if not isinstance(shape, Shape) or any(isinstance(size, Element) for size in shape.sizes):
            raise RefusedError("a shape is not known")
        sizes = [size for size in shape.sizes if isinstance(size, tir.PrimExpr)]
        self._sizes.update(sizes)
        tensor = self._new(
            rx.TensorStructInfo(rx.ShapeExpr((tir.IntImm("int64", len(sizes)),)), DataType("int64"))
        )
        self._steps.append(Filling(tensor, sizes))
        return tensor

    # ---- branches

    def _branch(self, expr: rx.If) -> Value:
        condition = self._condition(expr.cond)
        ways = [self._way(way) for way in (expr.true_branch, expr.false_branch)]
        (first, then), (second, otherwise) = ways
        outputs: list[Tensor] = []
        value = self._joined(first, second, outputs)
        self._steps.append(Branch(condition, (then, otherwise), (outputs, outputs), outputs))
        return value

    def _condition(self, expr: rx.Expr) -> Tensor:
        condition = self._read(self._value(expr))
        if not isinstance(condition, Tensor) or condition.sinfo.dtype != "bool" or condition.shape:
            raise RefusedError("a condition is not a tensor")
        return condition

    def _way(self, body: rx.Expr) -> tuple[Value, Region]:
        """The value of one arm, and its region."""
        around, self._steps = self._steps, []
        value = self._read(self._body(body))
        results = list(leaves(value))
        self._check_distinct(results, "a branch")
        region = self._region(results)
        new = {tensor.memory for tensor in region.new_tensors()}
        for tensor in results:
            if tensor.memory.origin == "parameter" and not self._runs_once:
                raise RefusedError("a branch returns a parameter")
            if tensor.memory.origin != "constant" and tensor.memory not in new:
                self._passed.add(tensor.memory)
        self._steps = around
        return value, region

    def _joined(self, first: Value, second: Value, outputs: list[Tensor]) -> Value:
        """The merge (phi) of two values, with new tensors, which are added to the outputs."""
        if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
            return tuple(self._joined(a, b, outputs) for a, b in zip(first, second, strict=True))
        if isinstance(first, Passed) and first == second:
            return first
        if isinstance(first, Tensor) and isinstance(second, Tensor):
            same = first.sinfo.dtype == second.sinfo.dtype
            if same and have_shape(first, second.shape):
                outputs.append(Tensor(Memory("new"), first.sinfo))
                for tensor in (first, second):
                    self._share(outputs[-1].memory, tensor.memory)
                return outputs[-1]
        raise RefusedError("the kind of a result depends on a branch")

    # ---- loops

    def _loop(self, name: rx.Var, call: rx.Call) -> Value:
        """The result of a local function with a recursive tail call."""
        func, known = self._functions[name], {*self._found, *self._unbounded}
        if self._runs_once and not any(var is name for var in occurrences(func.body, rx.Var)):
            return self._inlined(func, call)
        del self._functions[name]
        self._open.add(name)
        initial = [self._tensor_of(arg) for arg in call.args]
        states = [self._state(*pair) for pair in zip(func.params, initial, strict=True)]
        for state, start in zip(states, initial, strict=True):
            self._share(state.memory, start.memory)
        around, self._steps = self._steps, []
        tail = self._tail(func.body, name)
        again = [each.again for each in tail.ends() if each.again is not None]
        ends = [each.value for each in tail.ends() if each.again is None]
        if not again or not ends:
            raise RefusedError("a local function is no loop")
        following = self._following(states, again)
        results: list[Tensor] = []
        in_place = {state.memory for state in states} & self._written
        if in_place and any(len({t.memory for t in each}) < len(each) for each in again):
            raise RefusedError("states of a loop are one tensor")
        value = self._ended(ends, in_place, results)
        if any(self._mentions_found(t.shape, known) for t in results):
            raise RefusedError("the size of a result of a loop depends on data")
        self._check_result(func, value)
        iteration, _ = self._tail_region(tail, following, results, in_place)
        self._steps = around
        self._steps.append(Loop(states, initial, following, results, iteration))
        self._functions[name] = func
        self._open.remove(name)
        return value

    def _inlined(self, func: rx.Function, call: rx.Call) -> Value:
        """The result of a local function that does not call itself; its casts may fail."""
        self._inlined_count += 1
        if self._inlined_count > _MOST_BODIES:
            raise RefusedError(f"it calls local functions more than {_MOST_BODIES:,} times")
        known = dict(self._known)
        for param, arg in zip(func.params, call.args, strict=True):
            self._values[param] = self._as_parameter(self._value(arg), param.struct_info)
        value = self._body(func.body)
        self._check_result(func, value)
        self._known = known
        return value

    def _as_parameter(self, value: Value, sinfo: rx.StructInfo | None) -> Value:
        """The value of a parameter of an inlined function, which may define sizes."""
        match value, sinfo:
            case tuple(), rx.TupleStructInfo(fields=fields):
                return tuple(map(self._as_parameter, value, fields))
            case (Tensor(), rx.TensorStructInfo(shape=rx.ShapeExpr()) as declared) | (
                Shape(),
                rx.ShapeStructInfo(values=tuple()) as declared,
            ):
                return self._cast(value, declared)
            case _:
                return value

    def _state(self, param: rx.Var, value: Tensor) -> Tensor:
        """The state of a loop for a parameter, whose first value is `value`."""
        sinfo = param.struct_info
        same = isinstance(sinfo, rx.TensorStructInfo) and sinfo.dtype == value.sinfo.dtype
        if not same or not isinstance(sinfo.shape, rx.ShapeExpr):  # type: ignore[union-attr]
            raise RefusedError("a state of a loop is not a tensor of known rank")
        sizes = sinfo.shape.values  # type: ignore[union-attr]
        if len(sizes) != len(value.shape):
            raise RefusedError("the rank of a state changes")
        for size, actual in zip(sizes, value.shape, strict=True):
            if isinstance(size, tir.Var) and size not in {*self._known, *self._given}:
                self._known[size] = actual
        state = self._new(value.sinfo)
        if not have_shape(value, self._replaced(sizes)):
            raise RefusedError("the shape of a state is not known")
        self._values[param] = state
        return state

    def _tail(self, body: rx.Expr, name: rx.Var) -> _Tail:
        """The body of a loop or an arm of it, whose calls of `name` are last."""
        bindings, last = split_result(body)
        around, self._steps = self._steps, []
        self._bind(bindings)
        if isinstance(last, rx.Call) and last.op is name:
            found = _Tail(self._steps, again=[self._tensor_of(arg) for arg in last.args])
        elif isinstance(last, rx.If) and any(v is name for v in occurrences(last, rx.Var)):
            condition = self._condition(last.cond)
            ways = [self._tail(arm, name) for arm in (last.true_branch, last.false_branch)]
            found = _Tail(self._steps, condition, ways)
        else:
            found = _Tail(self._steps, value=self._read(self._value(last)))
        self._steps = around
        return found

    def _following(
        self, states: Sequence[Tensor], again: Sequence[Sequence[Tensor]]
    ) -> list[Tensor | None]:
        """The locations of the next states, None if no end of an iteration changes them."""
        if not all(
            have_shape(a, b.shape) for each in again for a, b in zip(each, states, strict=True)
        ):
            raise RefusedError("the shape of a state changes")
        return [
            None
            if all(each[n].memory is state.memory for each in again)
            else self._new(state.sinfo)
            for n, state in enumerate(states)
        ]

    def _ended(
        self, values: Sequence[Value], in_place: Set[Memory], results: list[Tensor]
    ) -> Value:
        """The result of a loop with these ends, whose tensors are added to the `results`.

        A state that is a result has its memory, if iterations write it in place.
        """
        first, *others = values
        if isinstance(first, tuple) and all(
            isinstance(other, tuple) and len(other) == len(first) for other in others
        ):
            fields = zip(*cast("Sequence[tuple[Value, ...]]", values), strict=True)
            return tuple(self._ended(each, in_place, results) for each in fields)
        if isinstance(first, Passed) and all(other == first for other in others):
            return first
        if isinstance(first, Tensor) and all(
            isinstance(other, Tensor)
            and other.sinfo.dtype == first.sinfo.dtype
            and have_shape(other, first.shape)
            and (other.memory is first.memory or in_place.isdisjoint({other.memory, first.memory}))
            for other in others
        ):
            memory = first.memory if first.memory in in_place else Memory("new")
            results.append(Tensor(memory, first.sinfo))
            for tensor in cast("Sequence[Tensor]", values):
                self._share(memory, tensor.memory)
            self._sizes.update(first.shape)
            return results[-1]
        raise RefusedError("the kind of a result depends on a branch")

    def _tail_region(
        self,
        tail: _Tail,
        following: Sequence[Tensor | None],
        results: Sequence[Tensor],
        in_place: Set[Memory],
    ) -> tuple[Region, Sequence[Tensor]]:
        """The region of a tail, and the tensors that its results become."""
        if tail.again is not None:
            pairs = zip(tail.again, following, strict=True)
            moved = [(value, target) for value, target in pairs if target is not None]
            return self._nested(tail.steps, [v for v, _ in moved]), [target for _, target in moved]
        if tail.condition is None:
            found = [*leaves(tail.value)]
            self._check_distinct(found, "a loop")
            ends = zip(found, results, strict=True)
            given = [(value, target) for value, target in ends if target.memory not in in_place]
            self._check_passed([v for v, _ in given])
            return self._nested(tail.steps, [v for v, _ in given]), [target for _, target in given]
        ways = [self._tail_region(way, following, results, in_place) for way in tail.ways]
        (first, targets), (second, others) = ways
        again = tuple(n for n, way in enumerate(tail.ways) if way.again is not None)
        branch = Branch(tail.condition, (first, second), (targets, others), again=again)
        return self._nested([*tail.steps, branch], ()), ()

    def _tensor_of(self, expr: rx.Expr) -> Tensor:
        value = self._read(self._value(expr))
        if not isinstance(value, Tensor):
            raise RefusedError("a state of a loop is not a tensor")
        return value

    # ---- kernels

    def _kernel(self, call: rx.Call) -> Value:
        use = kernel_use(call, self._context.kernel_of)
        if use is None:
            raise RefusedError("it calls a kernel with arguments that are not known")
        if use.callee.name not in self._kernels:
            raise RefusedError(f"it calls the kernel {use.callee.name}, which is not native")
        callee, inplace = use.callee, use.inplace
        scalars = self._replaced(use.scalars)
        tensors = [self._value(field) for field in use.inputs]
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise RefusedError("the arguments of a kernel are not tensors")
        sinfos = [tensor.sinfo for tensor in tensors if isinstance(tensor, Tensor)]
        outputs = [substitute_info(sinfo, self._known) for sinfo in use.outputs]
        given = [sinfo for sinfo, index in zip(outputs, inplace, strict=True) if index < 0]
        found = sizes_if_equal(callee, sinfos, given, scalars, inplace)
        if found is None:
            raise RefusedError("the arguments of a kernel do not match")
        sizes, compared = found
        for expected, actual in compared:
            self._check(actual, expected)
        new = [self._new(sinfo) for sinfo in given]
        if use.is_unary and self._context.is_reshape(callee):
            [source] = tensors
            assert isinstance(source, Tensor)
            self._viewed.add(source.memory)
            return Tensor(source.memory, outputs[0])
        self._steps.append(self._call(callee, [*tensors, *new], new, scalars, sizes))  # type: ignore[list-item]
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
        self._written.add(memory)
        if memory.origin == "new" or self._runs_once:
            return value
        is_outermost = self._steps is self._outermost and "global_symbol" not in self._func.attrs
        before = self._steps[:-1]
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
                tensor = self._read(next(arrays), packing)
                assert isinstance(tensor, Tensor)
                arguments.append(tensor)
            elif isinstance(param, Integer):
                scalar = next(numbers)
                self._sizes.add(scalar)
                arguments.append(scalar)
            else:
                raise RefusedError("a kernel takes strides or numbers")
        passed: list[tir.PrimExpr] = [tir.IntImm("int64", n) for n in signature.constants]
        wide = {var: cast_to(value, INT64) for var, value in sizes.items()}
        for declared in sizes_of(signature.params):
            size = widened(declared, wide)
            self._sizes.add(size)
            passed.append(size)
        return KernelCall(callee.name, callee.prim_func, arguments, passed, new)

    def _is_extern(self, func: rx.Expr) -> bool:
        return isinstance(func, rx.ExternFunc) and func.global_symbol in self._externs

    def _extern(self, func: rx.Expr, args: Sequence[rx.Expr], call: rx.Call) -> Value:
        """The result of a call of a function of C on tensors."""
        assert isinstance(func, rx.ExternFunc)
        inputs = [self._read(self._value(arg)) for arg in args]
        tensors = [tensor for tensor in inputs if isinstance(tensor, Tensor)]
        infos = output_sinfos(call) if call.sinfo_args else ()
        if len(tensors) < len(inputs) or not infos:
            raise RefusedError(f"{func.global_symbol} takes or returns other values than tensors")
        outputs = [self._new(substitute_info(sinfo, self._known)) for sinfo in infos]
        self._steps.append(ExternCall(func.global_symbol, tensors, outputs))
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
        inputs = [self._read(self._value(arg)) for arg in others[len(numbers) :]]
        outputs = [self._new(substitute_info(sinfo, self._known)) for sinfo in output_sinfos(call)]
        step = self._sessions.step(func, self._value(item), numbers, inputs, outputs)
        self._steps.append(step)
        is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        return tuple(outputs) if is_tuple else outputs[0]


def _sinfo(value: Value) -> rx.StructInfo:
    if isinstance(value, Tensor):
        return value.sinfo
    return rx.TupleStructInfo(tuple(map(_sinfo, value))) if isinstance(value, tuple) else _ANY
