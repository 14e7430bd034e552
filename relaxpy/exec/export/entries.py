"""Emits the functions of an exported program that callers call, with all that they check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Final

from relaxpy.exec.export.table import (
    HEADER_BYTES,
    MISUSE,
    THREAD_FIELDS,
    THREADS,
    ExportedFunction,
    ExportedTensor,
    Field,
)
from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import BOOL, I32, I64, POINTER, Function, Value
from relaxpy.exec.native.threads.code import COUNT, INDEX, OWNER, RUN, SIZE, WEIGHTS, context_word
from relaxpy.exec.native.values.expressions import Values
from relaxpy.exec.program.graph.emit_region import Exported, RegionEmitter, conjunction, possible
from relaxpy.exec.program.graph.program import Graph, KernelCall
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.expr import IntImm

CPU, SIZES, WORKSPACE, ADDRESSES, OTHER_WEIGHTS = MISUSE
_MOST_THREADS = 1 << 16


class FunctionEmitter:
    """Emits a function of an exported program, and those that stand beside it, in `module`."""

    def __init__(
        self,
        module: Module,
        function: ExportedFunction,
        graph: Graph,
        kernels: Mapping[KernelCall, str],
        shared: Exported,
    ) -> None:
        self.module, self.function, self.graph = module, function, graph
        self.kernels, self.shared = kernels, shared

    def emit(self, prefix: str, header: bytes, size: int) -> None:
        """Emit the functions; weights of the caller have `size` bytes, and begin with `header`."""
        self._emit_main(prefix, header, size)
        self._emit_workspace()
        self._emit_result_sizes()

    def _begin(self, suffix: str, params: Sequence[str], result: object) -> Function:
        f = self.module.function(
            f"{self.function.symbol}{suffix}",
            [(POINTER, name) for name in params],
            result,  # type: ignore[arg-type]
            optimised=False,
        )
        f.is_public = True
        return f

    def _inputs(self, f: Function) -> dict[str, Value]:
        """The addresses of the fields of the first struct."""
        return _places(f, f.params[0], [*self.function.input_fields()])

    def _frame(self, f: Function, places: Mapping[str, Value]) -> Values:
        """An environment with the sizes that the caller passes, and the number of its threads."""
        variables = {v: f.load(I64, places[n], 8) for n, v in self.function.sizes.items()}
        threads = f.load(POINTER, places["threads"], f.module.platform.pointer_bytes)
        has_threads = f.new(BOOL, f"icmp ne {threads}, null")

        def count() -> list[Value]:
            return [f.load(I64, _places(f, threads, THREAD_FIELDS)["count"], 8)]

        variables[THREADS] = f.branch(has_threads, count, lambda: [f.const(I64, 1)])[0]
        return Values(f, {}, variables, (), frozenset(variables))

    def _sizes_hold(self, frame: Values) -> Value:
        """True if the sizes that the caller passes are possible, and those of all memory."""
        f, limit = frame.function, self.function.limit
        conditions = [
            f.compare("ult", frame.variables[var] + (limit - 1), 2 * limit - 1)
            for var in self.function.sizes.values()
        ]
        count = frame.variables[THREADS]
        conditions.append(f.compare("ult", count - 1, _MOST_THREADS))
        tensors = [*self.graph.tensors.values(), *self.graph.region.new_tensors()]
        conditions += possible(frame, tensors)
        if not isinstance(self.function.workspace, IntImm):
            needed = _approximate(frame, self.function.workspace)
            conditions.append(f.compare("olt", needed, f.module.platform.most_bytes))
        found = conjunction(conditions)
        assert found is not None
        return found

    def _emit_workspace(self) -> None:
        f = self._begin("_workspace", ["inputs"], I64)
        frame = self._frame(f, self._inputs(f))
        f.ret(
            f.branch(
                self._sizes_hold(frame),
                lambda: [frame.index(self.function.workspace)],
                lambda: [f.const(I64, SIZES)],
            )[0]
        )

    def _emit_result_sizes(self) -> None:
        f = self._begin("_result_sizes", ["inputs", "outputs"], I32)
        frame = self._frame(f, self._inputs(f))

        def store() -> list[Value]:
            places = _places(f, f.params[1], [*self.function.output_fields()])
            for tensor in self.function.outputs:
                place = places.get(f"{tensor.name}_shape")
                for axis, size in enumerate(tensor.shape if place is not None else ()):
                    assert place is not None
                    f.store(frame.index(size), f.element(place, axis, I64), 8)
            return [f.const(I32, 0)]

        f.ret(f.branch(self._sizes_hold(frame), store, lambda: [f.const(I32, SIZES)])[0])

    def _emit_main(self, prefix: str, header: bytes, size: int) -> None:
        f = self._begin("", ["inputs", "outputs", "workspace"], I32)
        places = self._inputs(f)
        places |= _places(f, f.params[1], [*self.function.output_fields()])
        frame = self._frame(f, places)
        start = f.cast("ptrtoint", f.params[2], "i64") + (LINE_BYTES - 1)
        start = f.arithmetic("and", start, -LINE_BYTES)
        f.memory = f.cast("inttoptr", start, "ptr")
        tests: list[tuple[Callable[[], Value], int]] = [
            (lambda: f.compare("eq", f.call(f"{prefix}_cpu", I32), 0), CPU),
            (lambda: self._sizes_hold(frame), SIZES),
            (lambda: self._has_workspace(frame, places), WORKSPACE),
            (lambda: self._addresses_hold(frame, places), ADDRESSES),
        ]
        if self.function.takes_weights:
            given = f.load(I64, places["weights_bytes"], 8)
            tests.append((partial(_is_enough, f, given, f.const(I64, size)), OTHER_WEIGHTS))
            tests.append((partial(_begins_with, f, places["weights"], header), OTHER_WEIGHTS))

        def tested(number: int = 0) -> list[Value]:
            if number == len(tests):
                return [self._run(frame, places, prefix)]
            condition, status = tests[number]
            passed = lambda: tested(number + 1)  # noqa: E731
            return f.branch(condition(), passed, lambda: [f.const(I32, status)])

        f.ret(tested()[0])

    def _load(self, f: Function, places: Mapping[str, Value], name: str) -> Value:
        return f.load(POINTER, places[name], f.module.platform.pointer_bytes)

    def _has_workspace(self, frame: Values, places: Mapping[str, Value]) -> Value:
        """True if the workspace is there, and as large as needed if the caller passes its size."""
        f, needed = frame.function, frame.index(self.function.workspace)
        given = f.load(I64, places["workspace_bytes"], 8)
        is_there = f.new(BOOL, f"icmp ne {f.params[2]}, null")
        is_there = f.arithmetic("or", is_there, f.compare("slt", needed, LINE_BYTES))
        return f.arithmetic("and", _is_enough(f, given, needed), is_there)

    def _addresses_hold(self, frame: Values, places: Mapping[str, Value]) -> Value:
        """True if all tensors are aligned to their elements, and there unless they are empty."""
        f, conditions = frame.function, list[Value]()
        own = [tensor for tensor in self.function.outputs if not tensor.same_as]
        for tensor in (*self.function.inputs, *own):
            address = f.cast("ptrtoint", self._load(f, places, tensor.name), "i64")
            itemsize = DataType(tensor.dtype).numpy().itemsize
            low = f.arithmetic("and", address, itemsize - 1)
            is_there = f.compare("ne", address, 0)
            if not _has_elements(tensor):
                count = frame.index(_count(tensor))
                is_there = f.arithmetic("or", is_there, f.compare("eq", count, 0))
            conditions += [f.compare("eq", low, 0), is_there]
        found = conjunction(conditions)
        return f.const(BOOL, 1) if found is None else found

    def _run(self, frame: Values, places: Mapping[str, Value], prefix: str) -> Value:
        """The status of the steps."""
        f, graph = frame.function, self.graph
        f.context = f.alloca(I64, 1 + WEIGHTS)
        threads = self._load(f, places, "threads")
        has_threads = f.new(BOOL, f"icmp ne {threads}, null")

        def given() -> list[Value]:
            fields = _places(f, threads, THREAD_FIELDS)
            return [self._load(f, fields, name) for name in ("parallel_for", "owner")]

        null = f.const(POINTER, 0)
        run, owner = f.branch(has_threads, given, lambda: [null, null])
        weights = null
        if self.function.takes_weights:
            weights = self._load(f, places, "weights")
        elif self.function.has_weights:
            weights = Value(f, POINTER, f"@{prefix}_weights")
        zero = f.const(I64, 0)
        words = {RUN: run, OWNER: owner, COUNT: frame.variables[THREADS], INDEX: zero, SIZE: zero}
        for word, value in {**words, WEIGHTS: weights}.items():
            f.store(value, context_word(f, word), 8)
        memories = {
            tensor.memory: self._load(f, places, given.name)
            for tensor, given in zip(graph.tensors.values(), self.function.inputs, strict=True)
        }
        own = [tensor for tensor in self.function.outputs if not tensor.same_as]
        outputs = [self._load(f, places, tensor.name) for tensor in own]
        outputs += [places[f"{own[number].name}_shape"] for number in graph.measured]
        sizes = {v: frame.variables[v] for v in self.function.sizes.values()}
        inner = Values(f, {}, sizes, (), frozenset(sizes))
        region = graph.region, inner, memories, outputs, self.shared
        status = RegionEmitter(self.function.symbol, self.kernels, *region).status([])
        for name, word in (("failed_index", INDEX), ("failed_size", SIZE)):
            f.store(f.load(I64, context_word(f, word), 8), places[name], 8)
        return status


_FLOATS: Final[Mapping[type[tir.PrimExpr], str]] = {
    tir.Add: "add",
    tir.Sub: "sub",
    tir.Mul: "mul",
    tir.FloorDiv: "div",
}
_ORDERS: Final[Mapping[type[tir.PrimExpr], str]] = {tir.Max: "ogt", tir.Min: "olt"}


def _approximate(frame: Values, size: tir.PrimExpr) -> Value:
    """A size as a float, which does not overflow."""
    f = frame.function
    kind = type(size)
    if isinstance(size, tir.BinaryOpExpr) and (kind in _FLOATS or kind in _ORDERS):
        a, b = _approximate(frame, size.a), _approximate(frame, size.b)
        if kind in _FLOATS:
            return f.arithmetic(_FLOATS[kind], a, b)
        return f.select(f.compare(_ORDERS[kind], a, b), a, b)
    return f.cast("sitofp", frame.index(size), "double")


def _places(f: Function, struct: Value, fields: Sequence[Field]) -> dict[str, Value]:
    """The addresses of the fields of a struct."""
    names = {"pointer": "ptr", "int64": "i64"}
    types = (names[x.kind] if x.count == 1 else f"[{x.count} x {names[x.kind]}]" for x in fields)
    text = f"{{ {', '.join(types)} }}"
    return {
        field.name: f.new(POINTER, f"getelementptr {text}, {struct}, i32 0, i32 {number}")
        for number, field in enumerate(fields)
    }


def _is_enough(f: Function, given: Value, needed: Value) -> Value:
    """True if a number of bytes is 0, which is not known, or at least as large as needed."""
    return f.arithmetic("or", f.compare("eq", given, 0), f.compare("sge", given, needed))


def _begins_with(f: Function, place: Value, header: bytes) -> Value:
    """True if weights are there, at a multiple of 64, and begin with a header."""
    weights = f.load(POINTER, place, f.module.platform.pointer_bytes)
    address = f.cast("ptrtoint", weights, "i64")
    is_there = f.compare("ne", address, 0)
    is_there = f.arithmetic(
        "and", is_there, f.compare("eq", f.arithmetic("and", address, LINE_BYTES - 1), 0)
    )

    def compared() -> list[Value]:
        words = (
            int.from_bytes(header[n : n + 8], "little", signed=True)
            for n in range(0, HEADER_BYTES, 8)
        )
        same = conjunction(
            f.compare("eq", f.load(I64, f.element(weights, n, I64), 8), word)
            for n, word in enumerate(words)
        )
        assert same is not None
        return [same]

    return f.branch(is_there, compared, lambda: [f.const(BOOL, 0)])[0]


def _has_elements(tensor: ExportedTensor) -> bool:
    return all(isinstance(size, IntImm) and size.value > 0 for size in tensor.shape)


def _count(tensor: ExportedTensor) -> IndexPoly:
    return prod((as_poly(size) for size in tensor.shape), start=as_poly(1))


def emit_texts(
    module: Module, prefix: str, texts: Mapping[str, str], errors: Iterable[str]
) -> None:
    """Emit the functions that return texts: those named, and the text of a status."""
    for name, text in texts.items():
        f = module.function(f"{prefix}_{name}", [], POINTER, optimised=False)
        f.is_public = True
        f.ret(_text(f, f"{prefix}.{name}", text))
    known = {**MISUSE, 0: "success"} | dict(enumerate(errors, 1))
    numbers = sorted(known)
    f = module.function(f"{prefix}_error", [(I32, "status")], POINTER, optimised=False)
    f.is_public = True
    addresses = [_text(f, f"{prefix}.error{n - numbers[0]}", known[n]) for n in numbers]
    listed = ", ".join(map(str, addresses))
    module.add_text(f"@{prefix}.errors = internal constant [{len(numbers)} x ptr] [{listed}]")
    index = f.cast("sext", f.params[0], "i64") - numbers[0]

    def found() -> list[Value]:
        table = Value(f, POINTER, f"@{prefix}.errors")
        place = f.new(POINTER, f"getelementptr ptr, {table}, {index}")
        return [f.load(POINTER, place, f.module.platform.pointer_bytes)]

    unknown = _text(f, f"{prefix}.unknown", "an unknown status")
    f.ret(f.branch(f.compare("ult", index, len(numbers)), found, lambda: [unknown])[0])


def _text(f: Function, name: str, text: str) -> Value:
    raw = text.encode()
    content = raw.hex("\\")
    data = f"\\{content}\\00" if raw else "\\00"
    f.module.add_text(f'@{name} = internal constant [{len(raw) + 1} x i8] c"{data}"')
    return Value(f, POINTER, f"@{name}")
