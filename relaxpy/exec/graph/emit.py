"""Emits a straight program as a native function, and the builtin that calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from relaxpy.exec.graph.memory import ALIGNMENT, MemoryPlan, byte_count, plan_memory
from relaxpy.exec.graph.program import Graph, KernelCall, Memory, Tensor, Value as Result
from relaxpy.exec.native.calls.entry import Integer, call_kernel, emit_entry, size_names
from relaxpy.exec.native.calls.interpreter import call_python, data_of, new_array
from relaxpy.exec.native.calls.static_entry import StaticEntry, is_static
from relaxpy.exec.native.llvm.function import (
    BOOL,
    F64,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    Function,
    Value,
)
from relaxpy.exec.native.llvm.module import Module
from relaxpy.exec.native.values.expressions import Values
from relaxpy.ir.tir.expr import IntImm, Var

_STACK_BYTES = 1 << 14
"""Up to so many bytes, the workspace is on the stack."""
_MOST_BYTES = float(1 << 56)
"""No tensor of a possible size is larger."""


def constants_name(symbol: str) -> str:
    """The table with the addresses of the constants of a graph; the library has to export it."""
    return f"{symbol}.constants"


class GraphEmitter:
    """Emits `graph` as the function `symbol` and its builtin; `kernels` has symbols by name."""

    def __init__(
        self, module: Module, symbol: str, graph: Graph, kernels: Mapping[str, str]
    ) -> None:
        self.module, self.symbol, self.graph, self.kernels = module, symbol, graph, kernels
        self.plan: MemoryPlan = plan_memory(graph)
        self.names = size_names(graph.params)
        self.function = ""

    def emit(self) -> StaticEntry | None:
        """Emit both functions; none for what is returned, if an entry for fixed shapes fits.

        Errors:
            RefusedError: a size has no native form.
        """
        count = len(self.graph.constants)
        if count:
            self.module.words(constants_name(self.symbol), count)
        self.function = self._only_kernel() or _Body(self).emit()
        if self._is_static():
            return self._static_entry()
        emit_entry(self.module, self.symbol, self.graph.params, result=self._result)
        return None

    def _only_kernel(self) -> str:
        """The kernel that takes the arguments of the function itself, if there is one."""
        graph = self.graph
        if self.names or len(graph.calls) != 1 or self.plan.copied:
            return ""
        (call,) = graph.calls
        memories = [a.memory for a in call.arguments if isinstance(a, Tensor)]
        arrays = [t.memory for _, t in sorted(graph.tensors.items(), key=lambda entry: entry[0])]
        takes = [*arrays, *(t.memory for t in self.plan.outputs)]
        is_same = len(takes) == len(graph.params) + len(self.plan.outputs) == len(call.arguments)
        return self.kernels[call.kernel] if is_same and memories == takes else ""

    def _is_static(self) -> bool:
        """Whether an entry for fixed shapes returns the result: new arrays, each of them once."""
        graph, outputs = self.graph, list(self.plan.outputs)
        fields = [graph.result] if isinstance(graph.result, Tensor) else list(graph.result)
        return (
            fields == outputs
            and (bool(graph.calls) or bool(self.plan.copied))
            and is_static(graph.params, len(outputs))
            and all(isinstance(dim, IntImm) for t in outputs for dim in t.shape)
        )

    def _static_entry(self) -> StaticEntry:
        is_kernel = self.function != self.symbol
        tasks = self.module.functions[self.function].only_tasks() if is_kernel else None
        function, count, scratch = tasks or (self.function, 0, 0)
        tensors = (*(t for _, t in sorted(self.graph.tensors.items())), *self.plan.outputs)
        arrays = [
            (str(t.sinfo.dtype), [d.value for d in t.shape if isinstance(d, IntImm)])
            for t in tensors
        ]
        split = len(self.graph.params)
        return StaticEntry(
            *(function, count, arrays[:split], arrays[split:]),
            release_gil=not self.graph.is_small,
            is_tuple=not isinstance(self.graph.result, Tensor),
            scratch=scratch,
        )

    def variables(self, arguments: Sequence[Value]) -> dict[str, Value]:
        """The sizes by name, among the arguments of the function."""
        params = self.graph.params
        found = dict(zip(self.names, arguments[len(params) :], strict=False))
        pairs = zip(params, arguments, strict=False)
        return found | {p.name: value for p, value in pairs if isinstance(p, Integer)}

    def frame(self, f: Function, sizes: Mapping[str, Value]) -> Values:
        """What computes sizes at this position of `f`."""
        variables = {var: sizes[name] for var, name in self.graph.variables.items()}
        return Values(f, {}, variables, (), frozenset(variables))

    # ---- the builtin

    def _result(self, f: Function, objects: Value, arguments: Sequence[Value]) -> Value:
        """The result for arguments that were checked, or null."""
        null = Value(f, POINTER, "null")
        sizes = self.variables(arguments)
        frame = self.frame(f, sizes)
        valid = self._valid(f, frame, sizes)

        def outputs() -> list[Value]:
            arrays: list[Value] = []
            for tensor in self.plan.outputs:
                dims = [frame.index(dim) for dim in tensor.shape]
                create = partial(_new_arrays, f, str(tensor.sinfo.dtype), dims)
                if arrays:
                    arrays += f.branch(f.compare("ne", arrays[-1], null), create, lambda: [null])
                else:
                    arrays += create()

            def run() -> list[Value]:
                return [self._run(f, objects, arguments, arrays)]

            def absent() -> list[Value]:
                call_python(f, "PyErr_Clear", VOID)  # Python will fail in the same way
                return [null]

            if not arrays:
                return run()
            (result,) = f.branch(f.compare("ne", arrays[-1], null), run, absent)

            def release() -> None:
                for array in arrays:
                    call_python(f, "Py_DecRef", VOID, array)

            f.branch(f.compare("eq", result, null), release)
            return [result]

        if valid is None:
            return outputs()[0]
        return f.branch(valid, outputs, lambda: [null])[0]

    def _valid(self, f: Function, frame: Values, sizes: Mapping[str, Value]) -> Value | None:
        """The condition that the sizes are as declared, and those of tensors possible."""
        graph = self.graph
        conditions = []
        for var in graph.variables:
            shifted = frame.variable(var) + graph.limit
            conditions.append(f.compare("ult", shifted, 2 * graph.limit))
        for name, size in graph.declared.items():
            conditions.append(f.compare("eq", frame.index(size), sizes[name]))
        done: set[object] = set()
        for tensor in (*graph.new_tensors(), *self.plan.outputs):
            if tensor.shape in done or all(isinstance(dim, IntImm) for dim in tensor.shape):
                continue
            done.add(tensor.shape)
            total = f.const(F64, tensor.itemsize)
            for dim in tensor.shape:
                value = frame.index(dim)
                if not isinstance(dim, Var | IntImm):
                    conditions.append(f.compare("sge", value, 0))
                total = total * f.cast("sitofp", value, "double")
            conditions.append(f.compare("olt", total, _MOST_BYTES))
        result: Value | None = None
        for condition in conditions:
            result = condition if result is None else f.arithmetic("and", result, condition)
        return result

    def _run(
        self, f: Function, objects: Value, arguments: Sequence[Value], arrays: Sequence[Value]
    ) -> Value:
        """The result, after the kernels have run; null if one refuses its data."""
        null = Value(f, POINTER, "null")
        if not self.graph.calls and not self.plan.copied:
            return self._built(f, self.graph.result, objects, arrays, set())
        outputs = [data_of(f, array) for array in arrays]
        release = not self.graph.is_small
        status = call_kernel(f, self.function, [*arguments, *outputs], release_gil=release)
        build = lambda: [self._built(f, self.graph.result, objects, arrays, set())]  # noqa: E731
        return f.branch(f.compare("eq", status, 0), build, lambda: [null])[0]

    def _built(
        self,
        f: Function,
        value: Result,
        objects: Value,
        arrays: Sequence[Value],
        used: set[int],
    ) -> Value:
        """A new reference to the result; the first use of an output takes over its reference."""
        if not isinstance(value, Tensor):
            fields = [self._built(f, field, objects, arrays, used) for field in value]
            built = call_python(f, "PyTuple_New", POINTER, f.const(I64, len(fields)))
            for index, field in enumerate(fields):
                call_python(f, "PyTuple_SetItem", I32, built, f.const(I64, index), field)
            return built
        position = next((n for n, t in self.graph.tensors.items() if t is value), None)
        if position is not None:
            item = f.load(POINTER, f.element(objects, position, POINTER), 8)
        else:
            index = next(n for n, t in enumerate(self.plan.outputs) if t is value)
            item = arrays[index]
            if index not in used:
                used.add(index)
                return item
        call_python(f, "Py_IncRef", VOID, item)
        return item


def _new_arrays(f: Function, dtype: str, dims: Sequence[Value]) -> list[Value]:
    return [new_array(f, dtype, dims)]


class _Body:
    """The function that runs the kernels: it takes what a kernel would, and the outputs.

    It returns 0, or 1 if a kernel refuses its data or there is no memory.
    """

    def __init__(self, emitter: GraphEmitter) -> None:
        self.emitter, self.graph, self.plan = emitter, emitter.graph, emitter.plan
        params = [
            (I64 if isinstance(p, Integer) else POINTER, f"p{n}")
            for n, p in enumerate(self.graph.params)
        ]
        params += [(I64, name) for name in emitter.names]
        first = len(params)
        params += [(POINTER, f"out{n}") for n in range(len(self.plan.outputs))]
        self.function = f = emitter.module.function(emitter.symbol, params, I32, optimised=False)
        self.outputs = f.params[first:]
        self.frame = emitter.frame(f, emitter.variables(f.params[:first]))
        self.workspace: Value | None = None
        self.starts: list[Value] = []

    def emit(self) -> str:
        """Emit the function, and return its name."""
        f = self.function
        total = f.const(I64, self.plan.fixed)
        for sizes in self.plan.slot_sizes:
            size = self.frame.index(sizes[0])
            for other in sizes[1:]:
                size = f.intrinsic("smax", size, self.frame.index(other))
            self.starts.append(total)
            total = total + f.arithmetic("and", size + (ALIGNMENT - 1), -ALIGNMENT)
        if self.starts or self.plan.fixed > _STACK_BYTES:
            self._run_with_memory(total)
            return f.name
        if self.plan.offsets:  # possibly of tensors without elements
            self.workspace = f.alloca(I8, max(self.plan.fixed, 1))
        f.ret(self._run())
        return f.name

    def _run_with_memory(self, total: Value) -> None:
        f = self.function
        memory = f.call("malloc", POINTER, total + ALIGNMENT)

        def run() -> list[Value]:
            first = f.cast("ptrtoint", memory, "i64") + (ALIGNMENT - 1)
            aligned = f.arithmetic("and", first, -ALIGNMENT)
            self.workspace = f.new(POINTER, f"inttoptr {aligned} to ptr")
            status = self._run()
            f.call("free", VOID, memory)
            return [status]

        there = f.new(BOOL, f"icmp ne {memory}, null")
        f.ret(f.branch(there, run, lambda: [f.const(I32, 1)])[0])

    def _run(self) -> Value:
        """The status after all calls and copies."""
        f = self.function
        status = f.const(I32, 0)
        for call in self.graph.calls:
            if status.name == "0":
                status = self._call(call)
            else:
                succeeded = f.compare("eq", status, 0)
                [status] = f.branch(succeeded, partial(self._called, call), partial(list, [status]))
        for index, tensor in self.plan.copied:
            size = self.frame.index(byte_count(tensor))
            name = "llvm.memcpy.p0.p0.i64"
            f.module.declare(name, VOID, ["ptr", "ptr", "i64", "i1 immarg"])
            operands = self.outputs[index], self._pointer(tensor.memory), size, f.const(BOOL, 0)
            f.put(f"call void @{name}({', '.join(map(str, operands))})")
        return status

    def _called(self, call: KernelCall) -> list[Value]:
        return [self._call(call)]

    def _call(self, call: KernelCall) -> Value:
        arguments = [
            self._pointer(a.memory) if isinstance(a, Tensor) else self.frame.index(a)
            for a in call.arguments
        ]
        arguments += [self.frame.index(size) for size in call.sizes]
        return self.function.call(self.emitter.kernels[call.kernel], I32, *arguments)

    def _pointer(self, memory: Memory) -> Value:
        f, plan = self.function, self.plan
        if memory.origin == "parameter":
            return f.params[memory.index]
        if memory.origin == "constant":
            table = Value(f, POINTER, f"@{constants_name(self.emitter.symbol)}")
            return f.load(POINTER, f.element(table, memory.index, I64), 8)
        if memory in plan.direct:
            return self.outputs[plan.direct[memory]]
        assert self.workspace is not None
        if memory in plan.offsets:
            return f.element(self.workspace, plan.offsets[memory], I8)
        return f.element(self.workspace, self.starts[plan.slots[memory]], I8)
