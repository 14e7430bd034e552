"""Reads a Relax function as a program of native kernels, if it is one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from functools import reduce
from typing import TYPE_CHECKING, Final, cast

from relaxpy.exec.native.calls.entry import Array, Integer, sizes_of
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.native.values.packing import Packing
from relaxpy.exec.program.graph.largest import largest
from relaxpy.exec.program.graph.packed_calls import Sessions
from relaxpy.exec.program.graph.parameters import Parameters, is_native, tensor_of
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
    Recursion,
    RecursiveCall,
    Region,
    Shape,
    Step,
    Tensor,
    Value,
    elements,
    have_shape,
    may_run_again,
    tensors_of,
)
from relaxpy.exec.program.lower.known import Sizes, kernel_use, sizes_if_equal
from relaxpy.exec.program.lower.scope import GlobalCallee
from relaxpy.exec.program.memory import Memory
from relaxpy.exec.runtime.checks import output_sinfos, widened
from relaxpy.exec.runtime.tail_calls import calls_itself_last, split_result
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, walk
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.passes.append_in_place import declared_bounds
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, map_params, substitute_info
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import cast_to, maximum
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.exec.native.backend import NativeKernel
    from relaxpy.exec.program.lower.python_module import ModuleLowering

_ANY = rx.ObjectStructInfo()
_ZERO = tir.IntImm("int64", 0)
UPPER_BOUND: Final = "tir_var_upper_bound"
"""The attribute with the largest values of sizes by their names."""
MAX_DEPTH: Final = "max_depth"
"""The attribute of a function that calls itself: how many calls of it are nested at most."""
_MOST_NESTED: Final = 1_000
"""The calls take a few hundred bytes each of the stack, of which threads may have half a MB."""
_MOST_BODIES: Final = 20_000
"""The most local functions that are inlined: one that calls another twice doubles its bodies."""


class _BindingRefusedError(RefusedError):
    """A binding is unsupported; the message says which."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tail:
    """Steps of an iteration, and how it ends: by a branch of tails, by the next one, or by a value.

    Fields:
        again: the states of the next iteration.
        sizes: the tensor with the sizes of the value that depend on how the loop ends.
    """

    steps: list[Step]
    condition: Tensor | None = None
    ways: Sequence[_Tail] = ()
    again: Sequence[Tensor] | None = None
    value: Value = ()
    sizes: list[Tensor] = field(default_factory=list)

    def ends(self) -> Iterator[_Tail]:
        """The tails without branches."""
        if not self.ways:
            yield self
        for way in self.ways:
            yield from way.ends()


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    """The results of a branch or a loop, which has several ends with a value each.

    Fields:
        known: the sizes that depend on data and are known before it.
        in_place: the memory that a loop writes in place.
        results: the new tensors.
        sizes: the sizes of results that differ, with their values in all ends.
    """

    known: Set[tir.Var]
    in_place: Set[Memory] = frozenset()
    results: list[Tensor] = field(default_factory=list)
    sizes: dict[tir.Var, Sequence[tir.PrimExpr]] = field(default_factory=dict)


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
        self._recursions: dict[
            rx.Expr, tuple[rx.Function, Recursion, Mapping[tir.Var, tir.Var]]
        ] = {}
        """The open functions that call themselves and not last, without their regions, and the
        variables of their calls for those of their parameters that change.
        """
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
            try:
                self._values[var] = parameters.add(var.struct_info)
            except RefusedError as error:
                raise RefusedError(f"parameter {var.name_hint}: {error}") from None
        result = self._body(func.body)
        self._check_result(func, result)
        result = self._read(self._original(result))
        arguments = set(parameters.tensors.values())
        results = [t for t in dict.fromkeys(tensors_of(result)) if t not in arguments]
        written = [m for m in self._written if m.origin == "parameter"]
        if any(tensor.memory in written for tensor in results):
            raise RefusedError("it returns a view of a parameter that a kernel writes")
        self._declare_largest({*self._unbounded})
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

    def _check_result(self, func: rx.Function, result: Value, where: str = "") -> None:
        ret = func.ret_struct_info
        known = None if ret is None else substitute_info(ret, self._known)
        variables = {size for size in self._given if isinstance(size, tir.Var)} | {*self._found}
        if known is not None and not is_base_of(known, _sinfo(result), variables):
            found, where = _sinfo(result), where or "its result"
            raise RefusedError(
                f"{where} is {found}, and is checked to be {known} when it runs: R.match_cast it"
                " before it is returned, or declare what it is"
            )

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

    def _declare_largest(self, sizes: Container[Node]) -> None:
        """Give those of these sizes that are unbounded the bounds that are declared."""
        unbounded = {v: name for v, name in self._unbounded.items() if v in sizes}
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
            self._found[var] = tir.IntImm("int64", declared[name])
            del self._unbounded[var]

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
            try:
                value = self._value(binding.value)
                if isinstance(binding, rx.MatchCast):
                    value = self._cast(value, binding.struct_info)
            except _BindingRefusedError:
                raise
            except RefusedError as error:
                raise _BindingRefusedError(f"{error}{_location(binding)}") from None
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
            case rx.Call(op=rx.Var() as name) if name in self._recursions:
                return self._recursive_call(name, expr)
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
            case rx.Call(op=Op(name="relax.assert_op"), args=[test, *shown], attrs=attrs):
                numbers = self._replaced(n.value for n in shown if isinstance(n, rx.PrimValue))
                self._sizes.update(numbers)
                step = Assertion(self._asserted(test), str(attrs["format"]), numbers)
                self._steps.append(step)
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

    def _share_all(self, copies: Iterable[Tensor], originals: Iterable[Tensor]) -> None:
        for copy, original in zip(copies, originals, strict=True):
            self._share(copy.memory, original.memory)

    def _new(self, sinfo: rx.StructInfo) -> Tensor:
        tensor = tensor_of(Memory("new"), sinfo)
        self._sizes.update(tensor.shape)
        return tensor

    # ---- sizes

    def _replaced(
        self, sizes: Iterable[tir.PrimExpr], more: Mapping[tir.Var, tir.PrimExpr] | None = None
    ) -> list[tir.PrimExpr]:
        """The sizes over variables of parameters, with `more` values of variables."""
        known = {**self._known, **more} if more else self._known
        return [substitute(size, known) for size in sizes] if known else list(sizes)

    def _check(self, found: tir.PrimExpr | Element, expected: tir.PrimExpr) -> None:
        """Add a check that both are equal."""
        self._sizes.update(size for size in (found, expected) if isinstance(size, tir.PrimExpr))
        self._steps.append(Check(found, expected))

    def _cast(self, value: Value, sinfo: rx.StructInfo) -> Value:
        """The value with the sizes that a cast declares, some of which may be variables."""
        match value, sinfo:
            case tuple(), rx.TupleStructInfo(fields=fields) if len(value) == len(fields):
                return tuple(map(self._cast, value, fields))
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
            raise RefusedError(
                "the sizes of a shape are elements of a tensor: name them, R.match_cast(R.tensor_to"
                "_shape(...), R.Shape([...]))"
            )
        sizes = [size for size in shape.sizes if isinstance(size, tir.PrimExpr)]
        self._sizes.update(sizes)
        tensor = self._new(
            rx.TensorStructInfo(rx.ShapeExpr((tir.IntImm("int64", len(sizes)),)), DataType("int64"))
        )
        self._steps.append(Filling(tensor, sizes))
        return tensor

    # ---- branches

    def _branch(self, expr: rx.If) -> Value:
        condition, join = self._condition(expr.cond), self._join()
        ways = [self._way(way) for way in (expr.true_branch, expr.false_branch)]
        value = self._joined([value for value, _ in ways], join)
        then, otherwise = (
            self._way_region([*tensors_of(each), *self._differing(join, number, steps)], steps)
            for number, (each, steps) in enumerate(ways)
        )
        outputs = [*join.results, *self._sizes_after(join)]
        self._steps.append(Branch(condition, (then, otherwise), (outputs, outputs), outputs))
        self._find(join, outputs)
        return value

    def _condition(self, expr: rx.Expr) -> Tensor:
        condition = self._read(self._value(expr))
        if not isinstance(condition, Tensor) or condition.sinfo.dtype != "bool" or condition.shape:
            raise RefusedError("a condition is not a tensor")
        return condition

    def _asserted(self, expr: rx.Expr) -> Tensor | tir.PrimExpr:
        """A condition, which may be one on sizes."""
        if not isinstance(expr, rx.PrimValue):
            return self._condition(expr)
        [test] = self._replaced([expr.value])
        self._sizes.add(test)
        return test

    def _way(self, body: rx.Expr) -> tuple[Value, list[Step]]:
        """The value of one arm, and its steps."""
        around, self._steps = self._steps, []
        value = self._read(self._body(body))
        self._check_distinct(tensors_of(value), "a branch")
        steps, self._steps = self._steps, around
        return value, steps

    def _way_region(self, results: Sequence[Tensor], steps: list[Step]) -> Region:
        around, self._steps = self._steps, steps
        region = self._region(results)
        self._steps = around
        new = {tensor.memory for tensor in region.new_tensors()}
        for tensor in results:
            if tensor.memory.origin == "parameter" and not self._runs_once:
                raise RefusedError("a branch returns a parameter")
            if tensor.memory.origin != "constant" and tensor.memory not in new:
                self._passed.add(tensor.memory)
        return region

    # ---- results of branches and loops

    def _join(self, in_place: Set[Memory] = frozenset()) -> _Join:
        return _Join({*self._found, *self._unbounded}, in_place)

    def _joined(self, values: Sequence[Value], join: _Join) -> Value:
        """The merge (phi) of values, with new tensors, which are added to the results.

        A state of a loop that is a result has its memory, if iterations write it in place.
        """
        first, *others = values
        if isinstance(first, tuple) and all(
            isinstance(other, tuple) and len(other) == len(first) for other in others
        ):
            fields = zip(*cast("Sequence[tuple[Value, ...]]", values), strict=True)
            return tuple(self._joined(each, join) for each in fields)
        if isinstance(first, Passed) and all(other == first for other in others):
            return first
        in_place = join.in_place
        if isinstance(first, Tensor) and all(
            isinstance(other, Tensor)
            and other.sinfo.dtype == first.sinfo.dtype
            and len(other.shape) == len(first.shape)
            and (other.memory is first.memory or in_place.isdisjoint({other.memory, first.memory}))
            for other in others
        ):
            tensors = cast("Sequence[Tensor]", values)
            memory = first.memory if first.memory in in_place else Memory("new")
            shapes = zip(*(tensor.shape for tensor in tensors), strict=True)
            sizes = rx.ShapeExpr([self._joined_size(each, join) for each in shapes])
            room = rx.ShapeExpr([self._found[n] if n in join.sizes else n for n in sizes.values])  # type: ignore[index]
            join.results.append(Tensor(memory, replace(first.sinfo, shape=room)))
            for tensor in tensors:
                self._share(memory, tensor.memory)
            self._sizes.update(sizes.values)
            return Tensor(memory, replace(first.sinfo, shape=sizes))
        kinds = " or ".join(dict.fromkeys(str(_sinfo(value)) for value in values))
        raise RefusedError(f"the kind of a result depends on a branch: it is {kinds}")

    def _joined_size(self, sizes: Sequence[tir.PrimExpr], join: _Join) -> tir.PrimExpr:
        """The size that is one of these: a new variable if they differ or depend on data."""
        first = sizes[0]
        if all(prove_equal(first, size) is True for size in sizes) and not self._mentions_found(
            sizes, join.known
        ):
            return first
        if not self._runs_once or join.in_place:
            raise RefusedError(f"a size depends on a branch: it is {_written(sizes)}")
        var = tir.Var("size", INT64)
        self._declare_largest({node for size in sizes for node in walk(size)} - join.known)
        most = (largest(size, self._found) for size in sizes)
        self._found[var] = reduce(maximum, most)
        join.sizes[var] = sizes
        return var

    def _differing(self, join: _Join, number: int, steps: list[Step]) -> list[Tensor]:
        """The tensor, which steps of an end get, with its values of the sizes that differ."""
        if not join.sizes:
            return []
        around, self._steps = self._steps, steps
        found = self._filling(Shape([sizes[number] for sizes in join.sizes.values()]))
        self._steps = around
        return [found]

    def _sizes_after(self, join: _Join) -> list[Tensor]:
        """The new tensor for the sizes that differ."""
        count = rx.ShapeExpr([len(join.sizes)])
        return [self._new(rx.TensorStructInfo(count, INT64))] if join.sizes else []

    def _find(self, join: _Join, outputs: Sequence[Tensor]) -> None:
        """Add the step that reads the sizes that differ, which are in the last output."""
        if join.sizes:
            found = {var: Element(outputs[-1], n) for n, var in enumerate(join.sizes)}
            self._steps.append(Finding(found, Region((), ())))

    # ---- loops

    def _loop(self, name: rx.Var, call: rx.Call) -> Value:
        """The result of a local function with a recursive tail call."""
        func, join = self._functions[name], self._join()
        if self._runs_once and not any(var is name for var in occurrences(func.body, rx.Var)):
            return self._inlined(func, call)
        changes = MAX_DEPTH in func.attrs and _changing(func, name)
        if self._runs_once and (changes or not calls_itself_last(func, name)):
            return self._recursion(name, func, call)
        del self._functions[name]
        self._open.add(name)
        initial = self._arguments(func, name.name_hint, call)
        states = [self._state(*pair) for pair in zip(func.params, initial, strict=True)]
        self._share_all(states, initial)
        around, self._steps = self._steps, []
        tail = self._tail(func.body, name)
        again = [each.again for each in tail.ends() if each.again is not None]
        ends = [each for each in tail.ends() if each.again is None]
        if not again or not ends:
            raise RefusedError("a local function is no loop")
        following = self._following(name, func, states, again)
        in_place = {state.memory for state in states} & self._written
        if in_place and any(len({t.memory for t in each}) < len(each) for each in again):
            raise RefusedError("states of a loop are one tensor")
        join = replace(join, in_place=in_place)
        value = self._joined([end.value for end in ends], join)
        for number, end in enumerate(ends):
            end.sizes.extend(self._differing(join, number, end.steps))
        self._check_result(func, value, f"the result of {name.name_hint}")
        results = [*join.results, *self._sizes_after(join)]
        iteration, _ = self._tail_region(tail, following, results, in_place)
        self._steps = around
        self._steps.append(Loop(states, initial, following, results, iteration))
        self._find(join, results)
        self._functions[name] = func
        self._open.remove(name)
        return value

    def _recursion(self, name: rx.Var, func: rx.Function, call: rx.Call) -> Value:
        """The result of a local function that calls itself, and then computes something.

        A size that differs in nested calls is a variable, which is at most that of the first call,
        or what the function declares.
        """
        where, most = name.name_hint, func.attrs.get(MAX_DEPTH)
        most = most.value if isinstance(most, tir.IntImm) else most
        if type(most) is not int or not 1 <= most <= _MOST_NESTED:
            raise RefusedError(
                f"{where} calls itself, and not last: declare how many calls are nested at most,"
                f' R.func_attr({{"{MAX_DEPTH}": ...}}), {_MOST_NESTED:,} or fewer'
            )
        around, known, written = self._steps, self._known, set(self._written)
        arguments = self._arguments(func, where, call)
        defined: set[tir.PrimExpr] = {*known, *self._given}
        own = self._sizes_of(func, arguments, defined)
        outputs = self._declared(func, where, own)
        changing, declared = _changing(func, name), declared_bounds(func, UPPER_BOUND)
        sizes = {v: tir.Var(f"{where}.{v.name}", INT64) for v in own if v in changing}
        for size, var in sizes.items():
            bound = declared.get(size.name)
            self._found[var] = own[size] if bound is None else tir.IntImm("int64", bound)
        self._known = {**known, **own, **sizes}
        params = [self._parameter(param, where) for param in func.params]
        first = {var: own[size] for size, var in sizes.items()}
        depth = tir.Var("depth", INT64)
        step = Recursion(
            where, params, arguments, Region((), ()), tensors_of(outputs), first, depth, most
        )
        self._recursions[name] = func, step, sizes
        self._steps = []
        value = self._read(self._body(func.body))
        self._check_result(func, value, f"the result of {where}")
        if self._written != written:
            raise RefusedError(f"{where}, which calls itself, has kernels that write in place")
        region = self._region(tensors_of(value))
        del self._recursions[name]
        self._steps, self._known = around, known
        self._steps.append(replace(step, region=region))
        self._share_all(params, arguments)
        self._share_all(step.outputs, region.results)
        return outputs

    def _recursive_call(self, name: rx.Var, call: rx.Call) -> Value:
        """The result of a call of a function in itself."""
        func, step, sizes = self._recursions[name]
        arguments = self._arguments(func, step.name, call)
        defined: set[tir.PrimExpr] = {*self._known, *self._given}
        defined -= sizes.keys()
        own = self._sizes_of(func, arguments, defined)
        outputs = self._declared(func, step.name, own)
        given = {var: own[size] for size, var in sizes.items()}
        self._sizes.update(given.values())
        self._steps.append(
            RecursiveCall(step.name, arguments, tensors_of(outputs), given, step.depth, step.most)
        )
        self._share_all(step.params, arguments)
        self._share_all(tensors_of(outputs), step.outputs)
        return outputs

    def _arguments(self, func: rx.Function, where: str, call: rx.Call) -> list[Tensor]:
        """The tensors of a call of a function that calls itself; dimensions are not compared."""
        found = [self._tensor_of(arg) for arg in call.args]
        for param, tensor in zip(func.params, found, strict=True):
            sinfo = param.struct_info
            if not is_native(sinfo) or sinfo.dtype != tensor.sinfo.dtype:
                raise RefusedError(
                    f"the parameter {param.name_hint} of {where}, which calls itself, is {sinfo}:"
                    f" declare its shape and its datatype, which is {tensor.sinfo.dtype}"
                )
            if len(tensor.shape) != sinfo.ndim:
                raise RefusedError(f"the rank of {param.name_hint} of {where} changes")
        return found

    def _sizes_of(
        self, func: rx.Function, arguments: Sequence[Tensor], defined: Container[tir.PrimExpr]
    ) -> dict[tir.Var, tir.PrimExpr]:
        """The values of the sizes that parameters define, without those that are `defined`."""
        found: dict[tir.Var, tir.PrimExpr] = {}
        pairs = [*zip(map(_shape_of, func.params), arguments, strict=True)]
        for sizes, tensor in pairs:
            for size, actual in zip(sizes, tensor.shape, strict=True):
                if isinstance(size, tir.Var) and size not in defined:
                    found.setdefault(size, actual)
        for param, (sizes, tensor) in zip(func.params, pairs, strict=True):
            if not have_shape(tensor, self._replaced(sizes, found)):
                raise RefusedError(
                    f"the shape of {param.name_hint}, {_written(sizes)}, is not known to be that of"
                    f" an argument, {_written(tensor.shape)}: R.match_cast it before the call"
                )
        return found

    def _parameter(self, param: rx.Var, where: str) -> Tensor:
        """The tensor of a parameter, which is a value from here on."""
        assert is_native(param.struct_info)
        shape = rx.ShapeExpr(self._replaced(_shape_of(param)))
        self._values[param] = found = self._new(replace(param.struct_info, shape=shape))
        return found

    def _declared(
        self, func: rx.Function, where: str, sizes: Mapping[tir.Var, tir.PrimExpr]
    ) -> Value:
        """New tensors for the results of a function that calls itself."""

        def new(sinfo: rx.StructInfo | None) -> Value:
            match sinfo:
                case rx.TupleStructInfo(fields=fields):
                    return tuple(map(new, fields))
                case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims)):
                    return self._new(
                        replace(sinfo, shape=rx.ShapeExpr(self._replaced(dims, sizes)))
                    )
                case _:
                    raise RefusedError(
                        f"the result of {where}, which calls itself, is {sinfo}: declare its shape"
                    )

        return new(func.ret_struct_info)

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
        sizes = _shape_of(param)
        for size, actual in zip(sizes, value.shape, strict=True):
            if isinstance(size, tir.Var) and size not in {*self._known, *self._given}:
                self._known[size] = actual
        state = self._new(value.sinfo)
        if not have_shape(value, self._replaced(sizes)):
            raise RefusedError(
                f"the shape of {param.name_hint}, which is a state of a loop, is not known to be"
                f" {_written(value.shape)}, as that of its first value: R.match_cast it"
            )
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
        self,
        name: rx.Var,
        func: rx.Function,
        states: Sequence[Tensor],
        again: Sequence[Sequence[Tensor]],
    ) -> list[Tensor | None]:
        """The locations of the next states, None if no end of an iteration changes them."""
        for each in again:
            for param, found, state in zip(func.params, each, states, strict=True):
                if not have_shape(found, state.shape):
                    raise RefusedError(
                        f"the shape of {param.name_hint} changes from {_written(state.shape)} to"
                        f" {_written(found.shape)} in {name.name_hint}, which calls itself: declare"
                        f' how many calls there are at most, R.func_attr({{"{MAX_DEPTH}": ...}})'
                    )
        return [
            None
            if all(each[n].memory is state.memory for each in again)
            else self._new(state.sinfo)
            for n, state in enumerate(states)
        ]

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
            found = [*tensors_of(tail.value), *tail.sizes]
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


def _shape_of(param: rx.Var) -> Sequence[tir.PrimExpr]:
    assert isinstance(param.struct_info, rx.TensorStructInfo)
    return param.struct_info.get_shape() or ()


def _changing(func: rx.Function, name: rx.Var) -> set[tir.Var]:
    """The sizes that parameters define and that may differ in calls of the function in itself."""
    params = [param.struct_info or _ANY for param in func.params]
    sizes = definable_shape_vars(*params)
    found = set()
    for call in occurrences(func.body, rx.Call):
        if call.op is name:
            images = map_params(params, [arg.struct_info or _ANY for arg in call.args])
            found |= {v for v in sizes if prove_equal(images.get(v, _ZERO), v) is not True}
    return found


def _location(binding: rx.Binding) -> str:
    """Where a binding is in the program, for a message."""
    name = f"the value of {binding.var.name_hint}" if binding.var is not None else "a check"
    span = binding.span or binding.value.span
    return f" ({name}{f', line {span.line}' if span is not None else ''})"


def _written(sizes: Iterable[tir.PrimExpr]) -> str:
    return f"({', '.join(ShortText().prim(size, INT64) for size in sizes)})"


def _sinfo(value: Value) -> rx.StructInfo:
    if isinstance(value, Tensor):
        return value.sinfo
    return rx.TupleStructInfo(tuple(map(_sinfo, value))) if isinstance(value, tuple) else _ANY
