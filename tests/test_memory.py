"""What a process keeps does not grow with the number of programs: caches are bounded or weak."""

from __future__ import annotations

import functools
import gc
import importlib
import linecache
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import tir as T
from relaxpy.arith import prove_equal, simplify
from relaxpy.ir.arith import canonical
from relaxpy.relax import transform
from relaxpy.script import from_source
from relaxpy.support.dataclass import _INSTANCES

_FINGERPRINTS = "_files", "_generator", "_interface", "_record"
#: Keyed by what a process has a few of: hooks, datatypes, machines, positions of operands, texts
#: of kernels in relaxpy, or nothing.
FEW = {
    "relaxpy.plugin.models",
    "relaxpy.exec.inspect.check_values._least_normal",
    "relaxpy.ir.op.load_unlisted",
    "relaxpy.support.absent._instead",
    "relaxpy.support.missing.names_toml",
    "relaxpy.plugins.distributed.mpi._combining",
    "relaxpy.plugins.llm.connections.connection_class",
    "relaxpy.exec.machine.blas._symbol",
    "relaxpy.exec.numpy.row_blocks._pool",
    "relaxpy.exec.numpy.runtime._series",
    "relaxpy.exec.native.calls.entry.empty_builtin",
    "relaxpy.exec.native.calls.entry.table_offset",
    "relaxpy.exec.native.calls.interpreter.addresses",
    "relaxpy.exec.native.calls.packed._library",
    "relaxpy.exec.native.calls.interpreter.fits_interpreter",
    "relaxpy.exec.native.machine_code.machine.forbidden",
    "relaxpy.exec.native.machine_code.machine.host",
    "relaxpy.exec.native.machine_code.machine.llvm",
    "relaxpy.exec.native.machine_code.machine.obstacle",
    "relaxpy.exec.native.machine_code.machine.tiles_are_confirmed",
    "relaxpy.exec.native.machine_code.machine.unfit",
    "relaxpy.ir.arith.prove._general",
    "relaxpy.exec.native.machine_code.machine.target_machine",
    "relaxpy.exec.native.peak._copied",
    "relaxpy.exec.native.peak.peak_operations",
    "relaxpy.exec.native.threads.freed_memory.memory",
    "relaxpy.exec.native.threads.pool.pool",
    "relaxpy.exec.runtime.threads.ring",
    "relaxpy.exec.machine.process.own_platform",
    "relaxpy.exec.machine.process.process",
    *(f"relaxpy.exec.native.machine_code.processor.{name}" for name in _FINGERPRINTS),
    "relaxpy.exec.native.machine_code.processor.processor",
    "relaxpy.exec.native.calls.entry_table._connect_pool",
    "relaxpy.exec.native.calls.entry_table._library",
    "relaxpy.exec.runtime.dynamic._scalar",
    "relaxpy.exec.runtime.dynamic._size",
    "relaxpy.exec.runtime.threads._current_processor",
    "relaxpy.exec.runtime.threads._environment_functions",
    "relaxpy.exec.runtime.threads.thread_count",
    "relaxpy.exec.runtime.values.holds_numbers",
    "relaxpy.exec.machine.process._granted",
    "relaxpy.ir.core.dtype._numpy_type",
    "relaxpy.plugins.torch.decompose._core",
    "relaxpy.ir.hooks.resolve",
    "relaxpy.plugins.torch.dynamo._note_steps",
    "relaxpy.plugins.relay.saved.enter",
    "relaxpy.script.parser.evaluate.macros.of_text",
    *("relaxpy.plugin.installed", "relaxpy.plugin.manifests", "relaxpy.plugin.own"),
    *("relaxpy.plugin.hooks", "relaxpy.support.lazy._is_installed"),
    "relaxpy.plugins.llm.template._renderer",
    "relaxpy.ir.tir.ops.float_range",
    "relaxpy.ir.tir.ops.int_range",
    "relaxpy.rules.all_rules",
    "relaxpy.support.pysource._to_source",
}
MOST = 1 << 12


def caches() -> Iterator[tuple[str, Any]]:
    """All functions of the package that remember what they gave."""
    for module in pkgutil.walk_packages(relaxpy.__path__, "relaxpy."):
        try:
            loaded = importlib.import_module(module.name)
        except ImportError as error:
            without_torch = error.name == "torch"  # an extra
            if not without_torch and not str(error).startswith(f"there is no {module.name}; "):
                raise  # not one that TVM has
            continue
        for value in vars(loaded).values():
            if isinstance(value, functools._lru_cache_wrapper):
                yield f"{value.__module__}.{value.__qualname__}", value


def test_every_cache_has_a_bound_or_few_keys() -> None:
    unbounded = {name for name, cache in caches() if cache.cache_parameters()["maxsize"] is None}
    assert unbounded - FEW == set()
    assert all((cache.cache_parameters()["maxsize"] or 0) <= MOST for _, cache in caches())


PROGRAM = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, "m"), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            z = R.reshape(R.concat([y, y], axis=1), (-1,))
            R.output(z)
        return z
"""


def legalize() -> None:
    transform.LegalizeOps()(from_source(PROGRAM))


def compile_and_run() -> None:
    built = relaxpy.compile(from_source(PROGRAM))
    built["main"](np.ones((2, 8), "float32"), np.ones((8, 3), "float32"))


def expressions() -> None:
    n, m = T.Var("n", "int64"), T.Var("m", "int64")
    assert prove_equal((n + 1) * (m // 3), n * (m // 3) + m // 3)
    simplify(T.Select(n < m, T.Max(n, m + 1) // 2, n % 7))


def empty_caches() -> None:
    canonical.GENERAL._forget()
    for name, cache in caches():
        if name not in FEW:
            cache.cache_clear()


def living() -> Counter[str]:
    """Objects of the package, and functions, alive once every bounded cache is empty, by kind."""
    empty_caches()
    gc.collect()
    kinds = map(type, gc.get_objects())
    return Counter(
        kind.__name__
        for kind in kinds
        if str(kind.__module__).startswith("relaxpy") or kind is FunctionType
    )


@pytest.mark.parametrize("work", [expressions, legalize, compile_and_run])
def test_nothing_else_outlives_a_program(work: Callable[[], None]) -> None:
    for _ in range(_INSTANCES + 1):  # after which constructors are compiled
        work()
        empty_caches()
    before, lines = living(), len(linecache.cache)
    for _ in range(5):
        work()
    more = living() - before
    assert {kind: count for kind, count in more.items() if count >= 5} == {}
    assert len(linecache.cache) <= lines + 2


@pytest.mark.parametrize("name", ["LegalizeOps", "default"])
def test_what_passes_leave_needs_no_collector_of_cycles(name: str) -> None:
    passes = transform.LegalizeOps() if name == "LegalizeOps" else relaxpy.get_pipeline(name)
    passes(from_source(PROGRAM))
    module = from_source(PROGRAM)
    gc.collect()
    gc.disable()
    try:
        passes(module)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = {type(item).__name__ for item in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert kinds.isdisjoint(("BlockBuilder", "IRModule", "Function", "VarBinding", "Buffer"))


def test_tables_of_canonical_forms_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "_MOST_ENTRIES", 50)
    most = 0
    for _ in range(60):
        expressions()
        most = max(most, entries(canonical.GENERAL))
    one = entries(canonical.GENERAL)
    canonical.GENERAL._forget()
    expressions()
    assert most <= 50 + 2 * max(one, entries(canonical.GENERAL))


def entries(engine: canonical.Canonical) -> int:
    """How much is in the tables of `engine`, and of those for what holds under conditions."""
    tables = [value for value in vars(engine).values() if isinstance(value, dict)]
    inner = [e for table in tables for e in table.values() if isinstance(e, canonical.Canonical)]
    return sum(map(len, tables)) + sum(map(entries, inner))
