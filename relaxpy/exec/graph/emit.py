"""Emits a program as a native function, and the builtin that calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from relaxpy.exec.fast_paths import ONLY_KERNEL
from relaxpy.exec.graph.emit_region import RegionEmitter, conjunction, possible
from relaxpy.exec.graph.program import (
    Graph,
    KernelCall,
    Passed,
    Tensor,
    Value as Result,
    constants_name,
)
from relaxpy.exec.native.calls.entry import (
    Anything,
    Integer,
    call_kernel,
    emit_entry,
    leaves_of,
    size_names,
)
from relaxpy.exec.native.calls.interpreter import call_python, data_of, new_array
from relaxpy.exec.native.calls.static_entry import StaticEntry, is_static
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.typed_values import Signature
from relaxpy.exec.native.llvm.writer import I32, I64, POINTER, VOID, Function, Value
from relaxpy.exec.native.values.expressions import Values
from relaxpy.ir.tir.expr import IntImm


class GraphEmitter:
    """Emits `graph` as the function `symbol` and its builtin; `kernels` has symbols by name."""

    def __init__(
        self, module: Module, symbol: str, graph: Graph, kernels: Mapping[str, str]
    ) -> None:
        self.module, self.symbol, self.graph, self.kernels = module, symbol, graph, kernels
        self.outputs: Sequence[Tensor] = graph.region.results
        self.leaves = leaves_of(graph.params)
        self.names = size_names(self.leaves)
        self.function = ""

    def emit(self) -> StaticEntry | None:
        """Emit both functions, or without a builtin the entry for fixed shapes, which is returned.

        Errors:
            RefusedError: a size has no native form.
        """
        count = len(self.graph.constants)
        if count:
            self.module.words(constants_name(self.symbol), count)
        self.function = self._only_kernel() or self._emit_region()
        if self._is_static():
            return self._static_entry()
        emit_entry(self.module, self.symbol, self.graph.params, result=self._result)
        return None

    def _emit_region(self) -> str:
        """The function that runs the steps: it takes the arguments of a kernel, and the outputs."""
        taken = self._taken()
        params = [(I64 if isinstance(self.leaves[n], Integer) else POINTER, f"p{n}") for n in taken]
        params += [(I64, name) for name in self.names]
        first = len(params)
        params += [(POINTER, f"out{n}") for n in range(len(self.outputs))]
        f = self.module.function(self.symbol, params, I32, optimised=False)
        arguments = dict(zip(taken, f.params, strict=False))
        given = {tensor.memory: arguments[n] for n, tensor in self.graph.tensors.items()}
        frame = self.frame(f, self.variables(f.params[:first]))
        region = self.graph.region
        RegionEmitter(self.symbol, self.kernels, region, frame, given, f.params[first:]).emit()
        return f.name

    def _taken(self) -> list[int]:
        """The numbers of the parameters that the function takes."""
        return [n for n, leaf in enumerate(self.leaves) if not isinstance(leaf, Anything)]

    def _only_kernel(self) -> str:
        """The kernel that takes the arguments of the function itself, if there is one."""
        graph = self.graph
        match graph.region.steps:
            case [KernelCall(arguments=arguments, sizes=sizes, kernel=kernel)] if ONLY_KERNEL:
                passed = [*(a.memory if isinstance(a, Tensor) else a for a in arguments), *sizes]
            case _:
                return ""
        arrays = [t.memory for _, t in sorted(graph.tensors.items(), key=lambda entry: entry[0])]
        taken = [*arrays, *(t.memory for t in self.outputs)]
        counts = {len(passed), len(taken), len({*taken}), len(self._taken()) + len(self.outputs)}
        is_same = len(counts) == 1 and all(a is b for a, b in zip(passed, taken, strict=True))
        return self.kernels[kernel] if is_same and not self.names else ""

    def _is_static(self) -> bool:
        """True if an entry for fixed shapes returns the result: one or more distinct new arrays."""
        graph, outputs = self.graph, list(self.outputs)
        fields = [graph.result] if not isinstance(graph.result, tuple) else list(graph.result)
        return (
            fields == outputs
            and bool(outputs)
            and is_static(graph.params, [_dtype_and_sizes(t) for t in outputs])
        )

    def _static_entry(self) -> StaticEntry:
        arguments = (POINTER,) * (len(self.graph.params) + len(self.outputs))
        self.module.require(self.function, Signature(I32, arguments))
        is_kernel = self.function != self.symbol
        tasks = self.module.functions[self.function].only_tasks() if is_kernel else None
        function, count, scratch = tasks or (self.function, 0, 0)
        tensors = (*(t for _, t in sorted(self.graph.tensors.items())), *self.outputs)
        arrays = [_dtype_and_sizes(t) for t in tensors]
        split = len(self.graph.params)
        return StaticEntry(
            *(function, count, arrays[:split], arrays[split:]),
            release_gil=not self.graph.is_small,
            is_tuple=not isinstance(self.graph.result, Tensor),
            written=self.graph.written,
            scratch=scratch,
        )

    def variables(self, arguments: Sequence[Value]) -> dict[str, Value]:
        """The sizes by name, among the arguments of the function."""
        params = [self.leaves[n] for n in self._taken()]
        found = dict(zip(self.names, arguments[len(params) :], strict=False))
        pairs = zip(params, arguments, strict=False)
        return found | {p.name: value for p, value in pairs if isinstance(p, Integer)}

    def frame(self, f: Function, sizes: Mapping[str, Value]) -> Values:
        """An environment that computes sizes at this position of `f`."""
        variables = {var: sizes[name] for var, name in self.graph.variables.items()}
        return Values(f, {}, variables, (), frozenset(variables))

    # ---- the builtin

    def _result(self, f: Function, objects: Sequence[Value], arguments: Sequence[Value]) -> Value:
        """The result for arguments that were checked, or null."""
        null = Value(f, POINTER, "null")
        sizes = self.variables(arguments)
        frame = self.frame(f, sizes)
        valid = self._valid(f, frame, sizes)

        def outputs() -> list[Value]:
            arrays: list[Value] = []
            for tensor in self.outputs:
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
        """The condition that the sizes are the declared ones, and those of outputs possible."""
        graph = self.graph
        conditions = []
        for var in graph.variables:
            shifted = frame.variable(var) + graph.limit
            conditions.append(f.compare("ult", shifted, 2 * graph.limit))
        for name, size in graph.declared.items():
            conditions.append(f.compare("eq", frame.index(size), sizes[name]))
        conditions += possible(frame, self.outputs)
        return conjunction(conditions)

    def _run(
        self,
        f: Function,
        objects: Sequence[Value],
        arguments: Sequence[Value],
        arrays: Sequence[Value],
    ) -> Value:
        """The result, after the kernels have run; null if one refuses its data."""
        null = Value(f, POINTER, "null")
        if not self.graph.region.steps and not self.outputs:
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
        objects: Sequence[Value],
        arrays: Sequence[Value],
        used: set[int],
    ) -> Value:
        """A new reference to the result; the first use of an output takes over its reference."""
        if isinstance(value, tuple):
            fields = [self._built(f, field, objects, arrays, used) for field in value]
            built = call_python(f, "PyTuple_New", POINTER, f.const(I64, len(fields)))
            for index, field in enumerate(fields):
                call_python(f, "PyTuple_SetItem", I32, built, f.const(I64, index), field)
            return built
        position = next((n for n, t in self.graph.tensors.items() if t is value), None)
        if isinstance(value, Passed):
            position = value.index
        if position is not None:
            item = objects[position]
        else:
            index = next(n for n, t in enumerate(self.outputs) if t is value)
            item = arrays[index]
            if index not in used:
                used.add(index)
                return item
        call_python(f, "Py_IncRef", VOID, item)
        return item


def _new_arrays(f: Function, dtype: str, dims: Sequence[Value]) -> list[Value]:
    return [new_array(f, dtype, dims)]


def _dtype_and_sizes(tensor: Tensor) -> tuple[str, list[Any]]:
    """The datatype and the shape, with numbers where they are known."""
    sizes = [dim.value if isinstance(dim, IntImm) else dim for dim in tensor.shape]
    return str(tensor.sinfo.dtype), sizes
