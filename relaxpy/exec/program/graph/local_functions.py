"""Local functions: inlined where they are called, or loops, or recursions."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import field
from typing import TYPE_CHECKING, Final

from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.program.graph.joins import Join
from relaxpy.exec.program.graph.largest import UPPER_BOUND
from relaxpy.exec.program.graph.parameters import is_native
from relaxpy.exec.program.graph.program import (
    Branch,
    Loop,
    Recursion,
    RecursiveCall,
    Region,
    Shape,
    Step,
    Tensor,
    Value,
    have_shape,
    shape_text,
    tensors_of,
)
from relaxpy.exec.program.memory import Memory
from relaxpy.exec.runtime.tail_calls import calls_itself_last, split_result
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.passes.append_in_place import declared_bounds
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, map_params
from relaxpy.ir.relax.rewrite.bind import MOST_BODIES
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.exec.program.graph.read_function import GraphReader

_ANY = rx.ObjectStructInfo()
_ZERO = tir.IntImm("int64", 0)
MAX_DEPTH: Final = "max_depth"
"""The attribute of a function that calls itself: how many calls of it are nested at most."""
_MOST_NESTED: Final = 1_000
"""Each call takes a few hundred bytes of the stack, and a thread may have half a MB of it."""


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


class LocalFunctions:
    """The local functions that `reader` finds, whose bodies it reads where they are called.

    If the reader `runs_once`, those that do not call themselves are inlined, and those that call
    themselves and not last, or declare the depth of calls with other sizes, are recursions. All
    others are loops, or refused.
    """

    def __init__(self, reader: GraphReader) -> None:
        self._reader = reader
        self._functions: dict[rx.Expr, rx.Function] = {}
        self._open: set[rx.Var] = set()
        """The loops that are being read."""
        self._recursions: dict[
            rx.Expr, tuple[rx.Function, Recursion, Mapping[tir.Var, tir.Var]]
        ] = {}
        """The recursions that are being read, without their regions, and the variables of their
        calls for those of their parameters that change.
        """
        self._inlined_count = 0

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def add(self, name: rx.Var, func: rx.Function) -> None:
        """Add a function that a binding defines."""
        self._functions[name] = func

    def call(self, name: rx.Var, call: rx.Call) -> Value:
        """The result of a call of a function, whose steps are added.

        Errors:
            RefusedError: the call has no native form.
        """
        if name in self._recursions:
            return self._recursive_call(name, call)
        func, runs_once = self._functions[name], self._reader.runs_once
        if name in self._open:
            where = f"{name.name_hint} calls itself, and not last"
            raise RefusedError(f"{where}: only a call in the end becomes a loop")
        if runs_once and not any(var is name for var in occurrences(func.body, rx.Var)):
            return self._inlined(func, call)
        changes = MAX_DEPTH in func.attrs and _changing(func, name)
        if runs_once and (changes or not calls_itself_last(func, name)):
            return self._recursion(name, func, call)
        return self._loop(name, func, call)

    # ---- functions that do not call themselves

    def _inlined(self, func: rx.Function, call: rx.Call) -> Value:
        """The result of a local function that does not call itself; its casts may fail."""
        reader = self._reader
        self._inlined_count += 1
        if self._inlined_count > MOST_BODIES:
            raise RefusedError(f"it calls local functions more than {MOST_BODIES:,} times")
        known = dict(reader.known)
        for param, arg in zip(func.params, call.args, strict=True):
            reader.values[param] = self._as_parameter(reader.value(arg), param.struct_info)
        value = reader.body(func.body)
        reader.check_result(func, value)
        reader.known = known
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
                return self._reader.cast(value, declared)
            case _:
                return value

    # ---- loops

    def _loop(self, name: rx.Var, func: rx.Function, call: rx.Call) -> Value:
        """The result of a function whose calls of itself are last."""
        reader, join = self._reader, Join(self._reader)
        self._open.add(name)
        initial = self._arguments(func, name.name_hint, call)
        states = [self._state(*pair) for pair in zip(func.params, initial, strict=True)]
        reader.share_all(states, initial)
        tail = self._tail(func.body, name)
        again = [each.again for each in tail.ends() if each.again is not None]
        ends = [each for each in tail.ends() if each.again is None]
        if not again or not ends:
            raise RefusedError("a local function is no loop")
        following = self._following(name, func, states, again)
        join.in_place = in_place = {state.memory for state in states} & reader.written
        if in_place and any(len({t.memory for t in each}) < len(each) for each in again):
            raise RefusedError("states of a loop are one tensor")
        value = join.joined([end.value for end in ends])
        for number, end in enumerate(ends):
            end.sizes.extend(join.differing(number, end.steps))
        reader.check_result(func, value, f"the result of {name.name_hint}")
        results = join.outputs()
        iteration, _ = self._tail_region(tail, following, results, in_place)
        reader.steps.append(Loop(states, initial, following, results, iteration))
        join.find_sizes(results)
        self._open.remove(name)
        return value

    def _state(self, param: rx.Var, value: Tensor) -> Tensor:
        """The state of a loop for a parameter, whose first value is `value`."""
        reader, sizes = self._reader, _shape_of(param)
        for size, actual in zip(sizes, value.shape, strict=True):
            if isinstance(size, tir.Var) and size not in {*reader.known, *reader.given}:
                reader.known[size] = actual
        state = reader.new(value.sinfo)
        if not have_shape(value, reader.replaced(sizes)):
            raise RefusedError(
                f"the shape of {param.name_hint}, which is a state of a loop, is not known to be"
                f" {shape_text(value.shape)}, as that of its first value: R.match_cast it"
            )
        reader.values[param] = state
        return state

    def _tail(self, body: rx.Expr, name: rx.Var) -> _Tail:
        """The body of a loop or an arm of it, whose calls of `name` are last."""
        reader, (bindings, last) = self._reader, split_result(body)
        with reader.adding_to([]) as steps:
            reader.bind(bindings)
            if isinstance(last, rx.Call) and last.op is name:
                return _Tail(steps, again=[self._tensor_of(arg) for arg in last.args])
            if isinstance(last, rx.If) and any(v is name for v in occurrences(last, rx.Var)):
                condition = reader.condition(last.cond)
                ways = [self._tail(arm, name) for arm in (last.true_branch, last.false_branch)]
                return _Tail(steps, condition, ways)
            return _Tail(steps, value=reader.operand(reader.value(last)))

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
                        f"the shape of {param.name_hint} changes from {shape_text(state.shape)}"
                        f" to {shape_text(found.shape)} in {name.name_hint}, which calls itself:"
                        " declare how many calls there are at most,"
                        f' R.func_attr({{"{MAX_DEPTH}": ...}})'
                    )
        return [
            None
            if all(each[n].memory is state.memory for each in again)
            else self._reader.new(state.sinfo)
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
        reader = self._reader
        if tail.again is not None:
            pairs = zip(tail.again, following, strict=True)
            moved = [(value, target) for value, target in pairs if target is not None]
            return reader.nested(tail.steps, [v for v, _ in moved]), [target for _, target in moved]
        if tail.condition is None:
            found = [*tensors_of(tail.value), *tail.sizes]
            reader.check_distinct(found, "a loop")
            ends = zip(found, results, strict=True)
            given = [(value, target) for value, target in ends if target.memory not in in_place]
            return reader.region(tail.steps, [v for v, _ in given]), [target for _, target in given]
        ways = [self._tail_region(way, following, results, in_place) for way in tail.ways]
        (first, targets), (second, others) = ways
        again = tuple(n for n, way in enumerate(tail.ways) if way.again is not None)
        branch = Branch(tail.condition, (first, second), (targets, others), again=again)
        return reader.nested([*tail.steps, branch], ()), ()

    # ---- recursions

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
        reader = self._reader
        known, written = reader.known, set(reader.written)
        arguments = self._arguments(func, where, call)
        defined: set[tir.PrimExpr] = {*known, *reader.given}
        own = self._sizes_of(func, arguments, defined)
        outputs = self._declared(func, where, own)
        changing, declared = _changing(func, name), declared_bounds(func, UPPER_BOUND)
        sizes = {v: tir.Var(f"{where}.{v.name}", INT64) for v in own if v in changing}
        for size, var in sizes.items():
            bound = declared.get(size.name)
            reader.found[var] = own[size] if bound is None else tir.IntImm("int64", bound)
        reader.known = {**known, **own, **sizes}
        params = [self._parameter(param) for param in func.params]
        first = {var: own[size] for size, var in sizes.items()}
        depth = tir.Var("depth", INT64)
        step = Recursion(
            where, params, arguments, Region((), ()), tensors_of(outputs), first, depth, most
        )
        self._recursions[name] = func, step, sizes
        with reader.adding_to([]) as steps:
            value = reader.operand(reader.body(func.body))
            reader.check_result(func, value, f"the result of {where}")
            if reader.written != written:
                raise RefusedError(f"{where}, which calls itself, has kernels that write in place")
            region = reader.region(steps, tensors_of(value))
        del self._recursions[name]
        reader.known = known
        reader.steps.append(replace(step, region=region))
        reader.share_all(params, arguments)
        reader.share_all(step.outputs, region.results)
        return outputs

    def _recursive_call(self, name: rx.Var, call: rx.Call) -> Value:
        """The result of a call of a function in itself."""
        reader = self._reader
        func, step, sizes = self._recursions[name]
        arguments = self._arguments(func, step.name, call)
        defined: set[tir.PrimExpr] = {*reader.known, *reader.given}
        defined -= sizes.keys()
        own = self._sizes_of(func, arguments, defined)
        outputs = self._declared(func, step.name, own)
        given = {var: own[size] for size, var in sizes.items()}
        reader.sizes.update(given.values())
        reader.steps.append(
            RecursiveCall(step.name, arguments, tensors_of(outputs), given, step.depth, step.most)
        )
        reader.share_all(step.params, arguments)
        reader.share_all(tensors_of(outputs), step.outputs)
        return outputs

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
            if not have_shape(tensor, self._reader.replaced(sizes, found)):
                raise RefusedError(
                    f"the shape of {param.name_hint}, {shape_text(sizes)}, is not known to be that"
                    f" of an argument, {shape_text(tensor.shape)}: R.match_cast it before the call"
                )
        return found

    def _parameter(self, param: rx.Var) -> Tensor:
        """The tensor of a parameter, which is a value from here on."""
        reader, sinfo = self._reader, param.struct_info
        assert isinstance(sinfo, rx.TensorStructInfo)
        shape = rx.ShapeExpr(reader.replaced(_shape_of(param)))
        reader.values[param] = found = reader.new(replace(sinfo, shape=shape))
        return found

    def _declared(
        self, func: rx.Function, where: str, sizes: Mapping[tir.Var, tir.PrimExpr]
    ) -> Value:
        """New tensors for the results of a function that calls itself."""
        reader = self._reader

        def new(sinfo: rx.StructInfo | None) -> Value:
            match sinfo:
                case rx.TupleStructInfo(fields=fields):
                    return tuple(map(new, fields))
                case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims)):
                    return reader.new(
                        replace(sinfo, shape=rx.ShapeExpr(reader.replaced(dims, sizes)))
                    )
                case _:
                    raise RefusedError(
                        f"the result of {where}, which calls itself, is {sinfo}: declare its shape"
                    )

        return new(func.ret_struct_info)

    # ---- arguments

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

    def _tensor_of(self, expr: rx.Expr) -> Tensor:
        """An argument as an operand."""
        reader = self._reader
        value = reader.operand(reader.value(expr))
        if not isinstance(value, Tensor):
            raise RefusedError("a state of a loop is not a tensor")
        return value


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
