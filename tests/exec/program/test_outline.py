"""Runs of kernels in functions that run in Python: native functions that these call."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import OUTLINING
from relaxpy.exec.program.graph.emit import GraphEmitter
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.ir.module import IRModule
from tests.exec.program.agreement import agree, programs
from tests.ir.relax.texts import module

pytest.importorskip("llvmlite")

Array = np.ndarray[Any, Any]
X = np.arange(12, dtype="float32").reshape(3, 4)
SEEN: list[Array] = []


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    """Packed functions: `see` keeps its argument, `twice` writes to its last one."""

    def see(x: Array) -> Array:
        SEEN.append(x)
        return x

    def twice(x: Array, out: Array) -> None:
        SEEN.append(x)
        np.multiply(x, 2, out=out)

    relaxpy.register_func("test.outline.see", see, override=True)
    relaxpy.register_func("test.outline.twice", twice, override=True)
    yield
    SEEN.clear()


TWICE = 'R.call_dps_packed("test.outline.twice", ({},), {})'


def layers(count: int, sizes: str = "3, 4") -> IRModule:
    """A model whose parameters are an object and a tuple of weights, and whose layers are alike."""
    lines = ["y = x"]
    for k in range(count):
        lines += [
            f"w{k} = weights[{k}]",
            f"a{k} = R.exp(R.sum(R.multiply(y, w{k}), axis=[0], keepdims=True))",
            f"b{k} = R.nn.softmax(R.add(y, a{k}))",
            f"z{k} = {TWICE.format(f'b{k}', f'f32[{sizes}]')}",
            f"y = R.add(R.tanh(z{k}), y)",
        ]
    body = "\n        ".join(lines)
    fields = ", ".join(["R.Tensor((4,), 'float32')"] * count)
    return module(f"""
    @impure
    def main(x: f32[{sizes}], cache: R.Object, weights: R.Tuple({fields})):
        {body}
        return (y, cache)
    """)


def native_functions(mod: IRModule, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """The names of the Relax functions that are native."""
    names: list[str] = []
    compile_graph = GraphBackend.compile_graph

    def spy(self: Any, context: Any, func: Any, name: str) -> bool:
        is_native = compile_graph(self, context, func, name)
        names.extend([name] * is_native)
        return is_native

    monkeypatch.setattr(GraphBackend, "compile_graph", spy)
    relaxpy.compile(mod, "native", **options)
    return names


def on_and_off(mod: IRModule, **options: Any) -> tuple[relaxpy.Executable, relaxpy.Executable]:
    """The executables with and without outlined functions."""
    with OUTLINING.off():
        without = relaxpy.compile(mod, "native", **options)
    return relaxpy.compile(mod, "native", **options), without


@pytest.mark.parametrize("sizes", ["3, 4", "n, 4"])
def test_layers_share_a_function(sizes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[str] = []
    emit = GraphEmitter.emit

    def spy(self: GraphEmitter) -> object:
        emitted.append(self.symbol)
        return emit(self)

    monkeypatch.setattr(GraphEmitter, "emit", spy)
    relaxpy.compile(layers(6, sizes), "native")
    # Two kernels are before the first call and three between calls; after the last one is only one.
    assert len(emitted) == 2
    weights = tuple(np.full(4, k + 1, "float32") / 9 for k in range(6))
    expected = relaxpy.compile(layers(6, sizes), "reference")["main"](X, "cache", weights)
    for executable in on_and_off(layers(6, sizes)):
        agree(executable["main"](X, "cache", weights), expected)


PROGRAMS = programs(
    """
--- a size of another parameter <- X, relaxpy.runtime.ShapeTuple([5])
def main(x: f32[3, 4], s: R.Shape(['n'])):
    n = T.int64()
    a = R.call_pure_packed('test.outline.see', x, sinfo_args=f32[3, 4])
    b = R.broadcast_to(R.sum(R.exp(x)), (n, 2))
    c = R.multiply(b, R.broadcast_to(R.max(x), (n, 2)))
    return (R.nn.relu(c), a)
--- fields of a result <- X, 'object'
def main(x: f32[3, 4], s: R.Object):
    a = R.split(R.exp(x), 2, axis=1)
    b = R.add(a[0], a[1])
    return (a, R.tanh(b), s, R.shape_of(x))
--- arms <- X, np.array(True), 'object'
def main(x: f32[3, 4], c: bool[()], s: R.Object):
    if c:
        a = R.exp(x)
        b = R.sum(a, axis=[1])
        y = R.call_pure_packed('test.outline.see', b, sinfo_args=f32[3])
    else:
        a = R.tanh(x)
        b = R.sum(a, axis=[0])
        y = R.nn.softmax(R.sum(R.exp(a), axis=[1]))
    return (y, x, s)
--- a constant <- X, 'object'
def main(x: f32[3, 4], s: R.Object):
    a = R.add(x, R.const([1.0, 2.0, 3.0, 4.0]))
    b = R.sum(a, axis=[1], keepdims=True)
    c = R.nn.softmax(R.multiply(a, b))
    return (c, b, s, R.shape_of(x))
--- a result that is a parameter <- X, 'object'
def main(x: f32[3, 4], s: R.Object):
    a = R.sum(R.exp(x), axis=[1])
    b = R.nn.softmax(R.tanh(a))
    y = x
    return (y, a, a, b, s, R.shape_of(x))
--- recursion <- X, np.array(4), 'object'
def main(x: f32[3, 4], count: i64[()], s: R.Object) -> f32[3, 4]:
    done = R.less_equal(count, R.const(0, 'int64'))
    if done:
        y = x
    else:
        a = R.sum(R.exp(R.tanh(x)), axis=[1], keepdims=True)
        b = R.nn.softmax(R.multiply(x, a))
        one = R.subtract(count, R.const(1, 'int64'))
        y = cls.main(b, one, s)
    return y
--- a value of unknown shape <- X, 'object'
def main(x: f32[3, 4], s: R.Object):
    a = R.call_pure_packed('test.outline.see', x, sinfo_args=R.Tensor)
    b = R.exp(x)
    c = R.sum(b, axis=[1])
    return (R.add(a, b), R.nn.softmax(c), s)
--- a checked result <- X
def main(x: f32[n, 4]):
    n = T.int64()
    pair = (x,)
    a = R.call_pure_packed('test.outline.see', pair, sinfo_args=R.Tuple(f32[n, 4]))
    b = R.exp(a[0])
    return (R.nn.softmax(b), a)
--- a result of a function <- X
def main(x: f32[n, 4]):
    n = T.int64()
    a = cls.inner(x)
    b = R.exp(a)
    return (R.nn.softmax(b), a)
def inner(x: f32[n, 4]):
    n = T.int64()
    return R.call_pure_packed('test.outline.see', x, sinfo_args=f32[n, 4])
--- a result of a branch <- X, np.array(True)
def main(x: f32[n, 4], c: bool[()]):
    n = T.int64()
    if c:
        a = R.call_pure_packed('test.outline.see', x, sinfo_args=f32[n, 4])
    else:
        a = R.tanh(x)
    b = R.exp(a)
    return (R.nn.softmax(b), a)
--- a cast <- X, X[::-1].copy()
def main(x: R.Object, y: f32[3, 4]):
    m = T.int64()
    z = R.match_cast(x, f32[m, 4])
    a = R.sum(R.exp(z), axis=[0])
    b = R.nn.softmax(R.multiply(y, a))
    return (R.sum(b, axis=[1]), x)
""",
    globals(),
)


@pytest.mark.parametrize("options", [{}, {"relax_pipeline": "legalize"}], ids=["default", "legal"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_reference(name: str, options: Any) -> None:
    text, args = PROGRAMS[name]
    expected = relaxpy.compile(module(text), "reference")["main"](*args)
    for executable in on_and_off(module(text), **options):
        agree(executable["main"](*args), expected)
    if name == "a result that is a parameter":
        y, a, again, *_ = relaxpy.compile(module(text), "native", **options)["main"](*args)
        assert (y is X, a is again) == (True, True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_outlined_functions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = PROGRAMS[name]
    assert "main_kernels" in native_functions(module(text), monkeypatch, relax_pipeline="legalize")


GATHER = """
@impure
def main(x: f32[3, 4], index: i64[2], s: R.Object):
    a = R.call_dps_packed("test.outline.twice", (x,), f32[3, 4])
    b = R.exp(a)
    c = R.take(b, index, axis=0)
    d = R.sum(c, axis=[1])
    return (d, s)
"""


def test_a_kernel_that_fails_raises_where_it_is_called() -> None:
    messages = []
    for executable in on_and_off(module(GATHER), relax_pipeline="legalize"):
        with pytest.raises(RelaxpyError) as error:
            executable["main"](X, np.array([0, 7]), None)
        messages.append((type(error.value), str(error.value)))
        assert len(SEEN) == 1  # the packed function is called once
        SEEN.clear()
        agree(executable["main"](X, np.array([0, 2]), None)[0], np.exp(2 * X[[0, 2]]).sum(1))
        SEEN.clear()
    assert messages[0] == messages[1]


def test_a_packed_function_that_fails_is_called_once() -> None:
    def fail(x: Array) -> None:
        SEEN.append(x)
        raise KeyError("no")

    relaxpy.register_func("test.outline.fail", fail, override=True)
    mod = module("""
    def main(x: f32[3, 4]):
        a = R.nn.softmax(R.sum(R.exp(x), axis=[1]))
        b = R.call_pure_packed("test.outline.fail", a, sinfo_args=f32[3])
        c = R.nn.softmax(R.sum(R.exp(b), axis=[0], keepdims=True))
        return c
    """)
    messages = []
    for executable in on_and_off(mod, relax_pipeline="legalize"):
        with pytest.raises(KeyError) as error:
            executable["main"](X)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert len(SEEN) == 2


def test_what_a_packed_function_keeps_is_not_overwritten() -> None:
    main = relaxpy.compile(layers(4), "native")["main"]
    weights = tuple(np.full(4, k + 1, "float32") / 9 for k in range(4))
    main(X, None, weights)
    first = [x.copy() for x in SEEN]
    kept = list(SEEN)
    for k in range(3):
        main(X * k, None, weights)
    for x, before in zip(kept, first, strict=True):
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("order", ["step", "reversed", "columns"])
def test_parameters_may_be_views(order: str) -> None:
    text, _ = PROGRAMS["fields of a result"]
    wide = np.arange(24, dtype="float32").reshape(3, 8) / 24
    x = {"step": wide[:, ::2], "reversed": X[::-1], "columns": np.asfortranarray(X)}[order]
    expected = relaxpy.compile(module(text), "reference")["main"](x, None)
    agree(relaxpy.compile(module(text), "native")["main"](x, None), expected)


def test_a_run_that_is_written_in_place() -> None:
    mod = module("""
    @impure
    def main(x: f32[3, 4], s: R.Object):
        a = R.call_dps_packed("test.outline.twice", (x,), f32[3, 4])
        b = R.exp(x)
        c = R.call_tir_inplace(cls.add, (a, b), [0], f32[3, 4])
        d = R.sum(c, axis=[1])
        return (d, c, s)

    @kernel
    def add(x: f32[3, 4], y: f32[3, 4]):
        for i, j in T.grid(3, 4):
            x[i, j] = x[i, j] + y[i, j]
    """)
    for executable in on_and_off(mod, relax_pipeline="legalize"):
        c = 2 * X + np.exp(X)
        agree(executable["main"](X, "s"), (c.sum(1), c, "s"))


def test_functions_run_in_threads() -> None:
    main = relaxpy.compile(layers(3), "native")["main"]
    weights = tuple(np.full(4, k + 1, "float32") / 9 for k in range(3))
    expected = [main(X + k, None, weights)[0] for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: main(X + k % 8, None, weights)[0], range(64)))
    for k, one in enumerate(found):
        np.testing.assert_array_equal(one, expected[k % 8])


def test_references_are_dropped() -> None:
    main = relaxpy.compile(layers(3), "native")["main"]
    weights = tuple(np.full(4, k + 1, "float32") / 9 for k in range(3))
    main(X, None, weights)
    SEEN.clear()
    gc.collect()
    before = sum(type(o) is np.ndarray for o in gc.get_objects())
    for _ in range(20):
        main(X, None, weights)
    SEEN.clear()
    gc.collect()
    assert sum(type(o) is np.ndarray for o in gc.get_objects()) <= before + 1


@pytest.mark.parametrize("native_code", [False, True])
def test_it_is_saved(native_code: bool, tmp_path: Path) -> None:
    weights = tuple(np.full(4, k + 1, "float32") / 9 for k in range(4))
    executable = relaxpy.compile(layers(4), "native")
    expected = executable["main"](X, None, weights)
    executable.save(tmp_path / "layers.rx")
    loaded = relaxpy.load_executable(tmp_path / "layers.rx", native_code=native_code)
    for one, other in zip(loaded["main"](X, None, weights), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(RelaxpyError) as error:
        loaded["main"](X[:2], None, weights)
    with pytest.raises(RelaxpyError) as first:
        executable["main"](X[:2], None, weights)
    assert str(first.value).splitlines()[0].endswith(str(error.value).splitlines()[0])


def test_a_profile_has_all_kernels() -> None:
    weights = tuple(np.full(4, k + 1, "float32") / 9 for k in range(4))
    on, off = (e.profile(X, None, weights, repeat=1) for e in on_and_off(layers(4)))
    assert {row.name for row in on.rows} == {row.name for row in off.rows}


FILL = """
    @kernel
    def fill(a: T.handle, b: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n, 4), "float32")
        y = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            x[i, j] = y[n - 1 - i, j] + T.float32(1)
"""
IN_PLACE = {
    "a private function": """
    @impure
    def main(x: {sizes}):
        y = R.call_packed("test.outline.see", x, sinfo_args={sizes})
        return cls.inner(x, R.exp(x))

    @R.function(private=True, pure=False)
    def inner(x: {sizes}, y: {sizes}):
        c = R.call_tir_inplace(cls.fill, (x, y), [0], {sizes})
        d = R.add(c, y)
        return (R.sum(d, axis=[1]), c)
    """,
    "a run": """
    @impure
    def main(x: {sizes}):
        e = R.exp(x)
        y = R.call_packed("test.outline.see", e, sinfo_args={sizes})
        c = R.call_tir_inplace(cls.fill, (x, e), [0], {sizes})
        d = R.tanh(R.add(c, y))
        return (R.sum(d, axis=[1]), c)
    """,
}


@pytest.mark.parametrize("sizes", ["f32[3, 4]", "f32[n, 4]"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_read_only_array_is_not_written(name, sizes, monkeypatch) -> None:
    text = IN_PLACE[name].format(sizes=sizes) + FILL
    x = X.copy()
    x.flags.writeable = False
    assert native_functions(module(text), monkeypatch, relax_pipeline="legalize")
    for executable in on_and_off(module(text), relax_pipeline="legalize"):
        with pytest.raises(RelaxpyError, match="the memory of buffer x is read-only"):
            executable["main"](x)
        agree(executable["main"](X.copy())[1], np.exp(X)[::-1] + 1)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("before", ["z = x", "z = R.call_packed('test.outline.see', x)"])
@pytest.mark.parametrize(
    ("view", "read"),
    [("v = R.exp(a)", "a"), ("v = R.reshape(a, (12,))", "R.reshape(v, (3, 4))")],
    ids=["the tensor itself", "one that was reshaped"],
)
def test_what_is_read_after_a_kernel_wrote_in_place(before: str, view: str, read: str) -> None:
    mod = module(f"""
    @impure
    def main(x: f32[3, 4]):
        {before}
        a = R.nn.softmax(x)
        {view}
        b = R.call_tir_inplace(cls.add, (a, x), [0], f32[3, 4])
        c = R.add({read}, b)
        return (a, b, c, v, z)

    @kernel
    def add(x: f32[3, 4], y: f32[3, 4]):
        for i, j in T.grid(3, 4):
            x[i, j] = x[i, j] + y[i, j]
    """)
    expected = relaxpy.compile(mod, "reference")["main"](X)
    for executable in on_and_off(mod):
        found = executable["main"](X)
        agree(found, expected)
        assert found[0] is found[1]
