"""The native back end for whole modules: kernels, and Relax functions that only call these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from typing_extensions import override

from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import OUTLINING, PACKED_WEIGHTS, SHARED_WEIGHTS, WHOLE_GRAPH
from relaxpy.exec.native.backend import NativeBackend
from relaxpy.exec.native.calls.entry_table import EntryTable
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.program.graph.emit import GraphEmitter
from relaxpy.exec.program.graph.link import NativeFunction
from relaxpy.exec.program.graph.program import Graph, KernelCall
from relaxpy.exec.program.graph.read_function import GraphReader
from relaxpy.exec.program.graph.times import Times
from relaxpy.exec.program.lower.scope import GlobalCallee
from relaxpy.exec.runtime.dynamic import dynamic_calls, is_dynamic
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import infer_op_call
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.exec.program.graph.outline import OutlinedFunctions
    from relaxpy.exec.program.lower.python_module import ModuleLowering


class GraphBackend(NativeBackend):
    """Compiles the PrimFuncs and the Relax functions of one module."""

    runs_once = False
    """True if nothing runs the steps of a function again where native code refuses its data."""

    times: Times | None = None
    """The times that native functions note, if they do."""

    externs: Collection[str] = ()
    """The packed functions that are functions of C."""

    def __init__(self, *, as_written: bool = False) -> None:
        super().__init__(as_written=as_written)
        self.graphs: dict[str, NativeFunction] = {}
        """The functions of Relax functions that run natively, by the name in the module."""

        self._outlined: OutlinedFunctions | None = None
        self._called: set[str] = set()
        self._replaced: set[str] = set()
        """The functions of kernels whose tasks an entry runs directly."""

    @property
    def native(self) -> Self:
        """The back end itself."""
        return self

    def program(self, module: IRModule) -> IRModule:
        """The module, with kernels for operands whose sizes are equal at run time."""
        program = with_equal_sizes(module)
        self.find_classes(program)
        self.find_weights(program)
        return program

    def compile_graph(self, context: ModuleLowering, func: rx.Function, name: str) -> bool:
        """Compile a Relax function; return whether it has a native form."""
        if not WHOLE_GRAPH:
            return False
        known = self._outlined
        twin = None if known is None else self.graphs.get(known.twin_of(func) or "")
        if twin is not None and not twin.constants:
            self.graphs[name] = twin
            return True
        symbol = f"graph{len(self.graphs)}"
        if self.times is not None:
            callees = context.callees.items()
            self.times.names = {c.name: n for n, c in callees if isinstance(c, GlobalCallee)}
        try:
            with self.faults_refused(f"{name} cannot be native code", f"{name} runs in Python"):
                graph = self.read(context, func)
                kernels = self.forms_of(graph)
                entry = self._emit_graph(symbol, graph, kernels)
        except RefusedError as error:
            self.refusals[name] = str(error)
            return False
        if entry.tasks > 0:
            self._replaced.update(kernels.values())
        else:
            self._called.update(kernels.values())
        self.graphs[name] = NativeFunction(
            symbol, graph.constants, entry, graph.written, graph.sessions
        )
        return True

    def read(self, context: ModuleLowering, func: rx.Function) -> Graph:
        """The program of a Relax function, after all kernels were compiled.

        Errors:
            RefusedError: it has no native form.
        """
        reader = GraphReader(
            func,
            context,
            self.claimed,
            packs=bool(PACKED_WEIGHTS) and not func.attrs.get(SHARED_WEIGHTS),
            runs_once=self.runs_once,
            externs=self.externs,
        )
        return reader.read()

    def _emit_graph(
        self, symbol: str, graph: Graph, kernels: Mapping[KernelCall, str]
    ) -> EntryTable:
        """Emit a graph. Errors: RefusedError, and then the module is as before."""
        before = self.module.copy()
        try:
            return GraphEmitter(self.module, symbol, graph, kernels, self.times).emit()
        except BaseException:
            self.module = before
            raise

    def forms_of(self, graph: Graph) -> Mapping[KernelCall, str]:
        """The functions that calls of kernels call: those for the constants that are packed.

        Errors:
            RefusedError: one has no native form.
        """
        calls = [step for step in graph.region.all_steps() if isinstance(step, KernelCall)]
        return {call: self.form(call.kernel, graph.packed(call)) for call in calls}

    def outlined(
        self,
        context: ModuleLowering,
        func: rx.Function,
        compiled: Callable[[rx.Function], rx.GlobalVar | None],
    ) -> rx.Function:
        """A function that stays in Python, with calls of native functions that `compiled` adds."""
        if not OUTLINING:
            return func
        from relaxpy.exec.program.graph.outline import OutlinedFunctions, Outliner

        self._outlined = self._outlined or OutlinedFunctions()
        name_of = partial(self._outlined.name_of, compiled)
        with (
            suppress(RefusedError),
            self.faults_refused(
                "calls of its kernels cannot be native code", "a function runs in Python"
            ),
        ):
            return Outliner(func, context, name_of).outlined()
        return func

    @override
    def without_entries(self) -> Module:
        module = self.module.copy()
        for symbol in self._replaced - self._called:
            del module.functions[symbol]
        return module


def with_equal_sizes(module: IRModule) -> IRModule:
    """The module with casts to equal sizes, in functions whose operators then all have kernels."""
    result = module
    for name in dict.fromkeys(name for name, _ in dynamic_calls(module)):
        func = module[name]
        assert isinstance(func, rx.Function)
        candidate = result.clone()
        candidate[name] = _Casts().expr(func)
        try:
            candidate = LegalizeOps().transform(candidate, PassContext())
        except RelaxpyError:  # it fails whatever the values are, and does so when it runs
            continue
        if name not in (caller for caller, _ in dynamic_calls(candidate)):
            result = candidate
    return result


class _Casts(BindingRewriter):
    """Casts the operands of operators that are lowered at run time."""

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not is_dynamic(call):
            return None
        op = cast("Op", call.op)
        kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        casts: list[rx.Binding] = []
        args = list(call.args)
        for index, sinfo in _equal_shapes(call.args):
            equal = kind("equal", sinfo)
            casts.append(rx.MatchCast(equal, args[index], sinfo, span=binding.span))
            args[index] = equal
        call = rebuild(call, args=tuple(args))
        try:
            result = infer_op_call(op, call, Context())
        except RelaxpyError:  # it fails whatever the values are, and does so when it runs
            return None
        if not isinstance(binding, rx.VarBinding):
            return [*casts, replace(binding, value=call)]
        return [*casts, rx.VarBinding(self.rederived(binding.var, result), call, binding.span)]


def _equal_shapes(args: Sequence[rx.Expr]) -> list[tuple[int, rx.TensorStructInfo]]:
    """The operands whose sizes may be unequal, with equal sizes, in reverse order."""
    one = const(1, "int64")
    sizes: list[tir.PrimExpr] = []
    changed = []
    for index, arg in enumerate(args):
        sinfo = getattr(arg, "struct_info", None)  # its replacement may have none
        shape = sinfo.get_shape() if isinstance(sinfo, rx.TensorStructInfo) else None
        if shape is None or not isinstance(sinfo, rx.TensorStructInfo):
            continue
        known = list(reversed(shape))
        for axis, size in enumerate(known):
            if axis == len(sizes):
                sizes.append(size)
            elif prove_equal(sizes[axis], one) is True:
                sizes[axis] = size
            elif prove_equal(size, one) is not True and prove_equal(size, sizes[axis]) is None:
                known[axis] = sizes[axis]
        if any(a is not b for a, b in zip(known, reversed(shape), strict=True)):
            shape = tuple(reversed(known))
            changed.append((index, replace(sinfo, shape=rx.ShapeExpr(shape))))
    return changed
