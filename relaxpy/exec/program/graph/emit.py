"""Emits a program as a native function, and the builtin that calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.exec.machine.fast_paths import ONLY_KERNEL
from relaxpy.exec.machine.tuning import Allocations, Signals
from relaxpy.exec.native.calls.entry import Anything, Array, leaves_of
from relaxpy.exec.native.calls.entry_table import (
    BY_WORDS,
    PASSED,
    Answer,
    EntryTable,
    entry_table,
    from_words,
    positions_of,
    types_of,
)
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.typed_values import Signature
from relaxpy.exec.native.llvm.writer import I32, I64, POINTER, EntryCode, Function, Type, Value
from relaxpy.exec.native.values.expressions import Values
from relaxpy.exec.program.graph.emit_region import RegionEmitter
from relaxpy.exec.program.graph.program import (
    Graph,
    KernelCall,
    Loop,
    Passed,
    Tensor,
    Value as Result,
    constants_name,
)
from relaxpy.exec.program.graph.times import Times
from relaxpy.ir.tir.analysis.iterations import most_iterations
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var


class GraphEmitter:
    """Emits `graph` as the function `symbol` and its builtin; `kernels` are those of its calls.

    With `times`, the function notes those of its steps.
    """

    def __init__(
        self,
        module: Module,
        symbol: str,
        graph: Graph,
        kernels: Mapping[KernelCall, str],
        times: Times | None = None,
    ) -> None:
        self.times = times
        self.module, self.symbol, self.graph, self.kernels = module, symbol, graph, kernels
        self.outputs: Sequence[Tensor] = graph.region.results
        self.leaves = leaves_of(graph.params)

    def emit(self) -> EntryTable:
        """Emit the function, and that of its sizes; return how Python calls them.

        Errors:
            RefusedError: a size has no native form.
        """
        graph, results = self.graph, [*map(self._result, self.outputs)]
        count = len(graph.constants)
        if count:
            self.module.words(constants_name(self.symbol), count)
        types = types_of(graph.params) + [POINTER] * len(results)
        code = None if self.times is not None else self._only_kernel(types)
        code = code or self._emit_region(types)
        return entry_table(
            *(code.function, graph.params, results, self._answer(graph.result)),
            tasks=code.tasks,
            scratch=code.scratch,
            limit=graph.limit,
            sizes=self._emit_sizes(positions_of(graph.params, results)),
            is_small=self._is_small(),
            is_graph=True,
        )

    def _is_small(self) -> bool:
        """True if the function is so fast that it need not release the GIL."""
        graph, count = self.graph, 0
        if not all(isinstance(leaf, Array) for leaf in self.leaves):
            return False
        steps = [*graph.region.all_steps()]
        if any(isinstance(step, Loop) for step in steps):
            return False
        used = [tensor for step in steps for tensor in step.reads()]
        for tensor in {t.memory: t for t in (*graph.tensors.values(), *used)}.values():
            number = 1
            for dim in tensor.shape:
                number *= getattr(dim, "value", Allocations.DYNAMIC_ELEMENTS)
            count += number
        if count >= Allocations.DYNAMIC_ELEMENTS:
            return False
        calls = (step for step in steps if isinstance(step, KernelCall))
        return sum(map(_iterations, calls)) <= Signals.WITH_GIL

    def _emit_region(self, types: Sequence[Type]) -> EntryCode:
        """The function that runs the steps; an empty name if there are none."""
        graph = self.graph
        if not graph.region.steps and not self.outputs:
            return EntryCode("")
        by_words = len(types) > PASSED
        params = [(type, f"p{n}") for n, type in enumerate(types)]
        params = [(POINTER, "words")] if by_words else params
        f = self.module.function(self.symbol, params, I32, optimised=False)
        arguments = from_words(f, types) if by_words else f.params
        given = dict(zip(self._taken(), arguments, strict=False))
        memories = {tensor.memory: given[n] for n, tensor in graph.tensors.items()}
        positions = positions_of(graph.params)
        frame = self.frame(f, {size: arguments[n] for size, n in positions.items()})
        outputs = arguments[len(types) - len(self.outputs) :]
        operands = graph.region, frame, memories, outputs
        RegionEmitter(self.symbol, self.kernels, *operands, times=self.times).emit()
        return EntryCode(f.name, BY_WORDS if by_words else 0)

    def _taken(self) -> list[int]:
        """The numbers of the parameters that the function takes."""
        return [n for n, leaf in enumerate(self.leaves) if not isinstance(leaf, Anything)]

    def _only_kernel(self, types: Sequence[Type]) -> EntryCode | None:
        """The kernel that takes the arguments of the function itself, or the tasks that it runs."""
        graph = self.graph
        match graph.region.steps:
            case [KernelCall(arguments=arguments, sizes=sizes) as call] if ONLY_KERNEL:
                passed = [*(a.memory if isinstance(a, Tensor) else a for a in arguments), *sizes]
            case _:
                return None
        taken = [t.memory for t in (*graph.tensors.values(), *self.outputs)]
        counts = {len(passed), len(taken), len({*taken}), len(types)}
        if len(counts) > 1 or not all(a is b for a, b in zip(passed, taken, strict=True)):
            return None
        symbol = self.kernels[call]
        self.module.require(symbol, Signature(I32, tuple(types)))
        tasks = self.module.functions[symbol].only_tasks()
        return tasks or (EntryCode(symbol) if len(types) <= PASSED else None)

    def frame(self, f: Function, sizes: Mapping[PrimExpr, Value]) -> Values:
        """An environment that computes sizes at this position of `f`."""
        variables = {var: sizes[var] for var in self.graph.variables}
        return Values(f, {}, variables, (), frozenset(variables))

    # ---- the entry

    def _result(self, tensor: Tensor) -> Array:
        """A new array."""
        return Array(str(tensor.sinfo.dtype), tensor.shape)

    def _answer(self, value: Result) -> Answer:
        if isinstance(value, tuple):
            return tuple(map(self._answer, value))
        if isinstance(value, Passed):
            return value.index
        position = next((n for n, t in self.graph.tensors.items() if t is value), None)
        if position is not None:
            return position
        return ~next(n for n, t in enumerate(self.outputs) if t is value)

    def _emit_sizes(self, positions: Mapping[PrimExpr, int]) -> str:
        """The function that checks sizes and computes those of results; empty if all are known."""
        variables = self.graph.variables
        computed = [size for size in positions if not isinstance(size, Var | IntImm)]
        if not computed:
            return ""
        f = self.module.function(f"{self.symbol}.sizes", [(POINTER, "words")], I32, optimised=False)
        words = {size: f.element(f.params[0], n, I64) for size, n in positions.items()}
        frame = self.frame(f, {var: f.load(I64, words[var]) for var in variables})
        differs = f.const(I64, 0)
        for size in computed:
            if size not in self.graph.sizes:
                f.store(frame.index(size), words[size])
                continue
            difference = f.arithmetic("xor", frame.index(size), f.load(I64, words[size]))
            differs = f.arithmetic("or", differs, difference)
        f.ret(f.cast("zext", f.compare("ne", differs, 0), "i32"))
        return f.name


def _iterations(call: KernelCall) -> float:
    """An upper bound of the loop iterations of a kernel."""
    shapes = (a.shape if isinstance(a, Tensor) else () for a in call.arguments)
    return most_iterations(call.func, [*shapes])
