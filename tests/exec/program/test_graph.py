"""Relax functions that run as one native function: results, errors, aliases, threads."""

from __future__ import annotations

import copy
import gc
import sys
import textwrap
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MatchCastError, RelaxpyError
from relaxpy.exec.native.values.failures import FailureTable
from relaxpy.exec.numpy.emit.numpy import NumpyEmitter
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.exec.program.link import linked_kernels
from relaxpy.script import from_source
from tests.counting import calls_of
from tests.ir.relax.texts import module

Array = np.ndarray[Any, Any]
X = np.arange(12, dtype="float32").reshape(3, 4)
Y = X[::-1].copy() - 5


def build(body: str, params: str, target: str = "native", **options: Any) -> relaxpy.Executable:
    """The executable of a function `main` with these statements."""
    text = f"def main({params}):\n" + textwrap.indent(body, "    ")
    return relaxpy.compile(module(text), target, **options)


MATRIX = 'x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")'
ANY = 'x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("n", "m"), "float32")'
PROGRAMS: dict[str, tuple[str, Callable[[Array, Array], Any]]] = {
    "chain": (
        "a = R.exp(x)\nb = R.add(a, y)\nc = R.nn.relu(b)\nreturn c",
        lambda x, y: np.maximum(np.exp(x) + y, 0),
    ),
    "tuple": (
        "a = R.add(x, y)\nb = R.sum(a, axis=[1])\nreturn (a, (b, x))",
        lambda x, y: (x + y, ((x + y).sum(1), x)),
    ),
    "product": (
        "a = R.permute_dims(y)\nb = R.matmul(x, a)\nc = R.matmul(b, x)\nd = R.tanh(c)\nreturn d",
        lambda x, y: np.tanh(x @ y.T @ x),
    ),
    "reshape": (
        "a = R.reshape(x, (-1,))\nb = R.reshape(y, (-1,))\nc = R.add(a, b)\n"
        "d = R.cumsum(c)\nreturn (c, d)",
        lambda x, y: ((x + y).ravel(), (x + y).ravel().cumsum()),
    ),
    "constant": (
        "a = R.multiply(x, R.const(2.5))\nb = R.argmax(a, axis=1)\nreturn (b, R.const([1, 2]))",
        lambda x, y: (x.argmax(1), np.array([1, 2])),
    ),
    "shape": (
        "s = R.shape_of(x)\na = R.shape_to_tensor(s)\nb = R.astype(a, 'float32')\n"
        "c = R.sum(b)\nd = R.multiply(x, c)\nreturn d",
        lambda x, y: x * np.float32(sum(x.shape)),
    ),
    "argument": ("return x", lambda x, y: x),
    "unit": ("return ()", lambda x, y: ()),
}


def flat(value: Any) -> list[Any]:
    return [leaf for field in value for leaf in flat(field)] if type(value) is tuple else [value]


def agree(found: Any, expected: Any) -> None:
    assert len(flat(found)) == len(flat(expected))
    for a, b in zip(flat(found), flat(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("no_text")
@pytest.mark.parametrize("params", [MATRIX, ANY])
@pytest.mark.parametrize("pipeline", ["default", "legalize"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_straight_function_needs_no_python(name: str, pipeline: str, params: str) -> None:
    body, expected = PROGRAMS[name]
    main = build(body, params, relax_pipeline=pipeline)["main"]
    agree(main(X, Y), expected(X, Y))
    agree(main(y=Y[::-1].copy(), x=X), expected(X, Y[::-1]))
    if params is ANY:
        for shape in ((5, 7), (1, 1), (2, 65)):
            x, y = (np.random.default_rng(k).random(shape, "float32") for k in range(2))
            agree(main(x, y), expected(x, y))


def test_what_the_entry_refuses_runs_in_python() -> None:
    body, expected = PROGRAMS["chain"]
    main = build(body, ANY)["main"]
    wide = np.arange(48, dtype="float32").reshape(6, 8)
    for x, y in ((wide[::2, ::2], Y), (X, np.asfortranarray(Y)), (X.tolist(), Y)):
        if isinstance(x, list):
            x = np.array(x, "float32").view(np.memmap)
        agree(main(x, y), expected(np.asarray(x), y))


@pytest.mark.parametrize(
    "args", [(X, Y[:2]), (X, Y.astype("float64")), (X, Y[0]), (X,), (X, "no array"), (X, Y, X)]
)
@pytest.mark.parametrize("params", [MATRIX, ANY])
def test_errors_are_those_of_the_text(args: tuple[Any, ...], params: str) -> None:
    messages = []
    for target in ("native", "numpy"):
        main = build("a = R.add(x, y)\nreturn a", params, target)["main"]
        with pytest.raises(RelaxpyError) as error:
            main(*args)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_kernels_of_the_text_are_linked_when_it_calls_one() -> None:
    params = 'x: R.Tensor(("n", 4), "float32"), y: R.Tensor((2,), "int64")'
    main = build("a = R.exp(x)\nb = R.take(a, y, axis=0)\nreturn b", params)["main"]

    def refused() -> None:
        with pytest.raises(RelaxpyError, match="FN-5"):
            main(X, np.arange(3))

    def failing() -> None:
        with pytest.raises(RelaxpyError, match="index 7 is outside"):
            main(X, np.array([0, 7]))

    runs = (refused, failing, refused, failing)
    assert [calls_of(linked_kernels, run) for run in runs] == [0, 1, 0, 0]
    agree(main(X, np.arange(2)), np.exp(X)[:2])


def test_an_error_shows_the_frames_of_the_user_alone() -> None:
    main = build("a = R.add(x, y)\nreturn a", MATRIX)["main"]
    with pytest.raises(RelaxpyError) as error:
        main(X, Y[:2])
    frames = traceback.extract_tb(error.value.__traceback__)
    assert [frame.filename for frame in frames] == [__file__]


def test_an_executable_that_is_not_used_is_freed() -> None:
    executable = build("a = R.add(x, y)\nreturn a", MATRIX)
    main = executable["main"]
    agree(main(X, Y), X + Y)
    references = weakref.ref(main), weakref.ref(executable)
    assert copy.copy(main) is main
    assert repr(main).startswith("<function main(x: R.Tensor((3, 4)")
    del main, executable
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_results_share_memory_as_they_do_in_python() -> None:
    body = (
        "a = R.add(x, y)\nb = R.reshape(a, (12,))\nc = R.reshape(x, (12,))\nreturn (x, a, a, b, c)"
    )
    found, a, again, b, c = build(body, MATRIX, relax_pipeline="legalize")["main"](X, Y)
    assert found is X
    assert a is again
    for k, one in enumerate((X, a, b, c)):
        assert not any(np.shares_memory(one, other) for other in (X, a, b, c)[:k])
    np.testing.assert_array_equal(b, a.ravel())
    np.testing.assert_array_equal(c, X.ravel())


@pytest.mark.usefixtures("no_text")
def test_a_constant_is_new_in_each_call() -> None:
    main = build("return R.const([1.0, 2.0])", "")["main"]
    first = main()
    first[:] = 7
    np.testing.assert_array_equal(main(), [1, 2])


def test_dimensions_may_be_computed() -> None:
    params = 'x: R.Tensor(("n",), "float32"), y: R.Tensor(("2 * n",), "float32")'
    main = build("a = R.concat([x, y, x])\nb = R.exp(a)\nreturn R.reshape(b, (2, -1))", params)[
        "main"
    ]
    for n in (0, 1, 9):
        x, y = np.ones(n, "float32"), np.zeros(2 * n, "float32")
        agree(main(x, y), np.exp(np.concatenate([x, y, x])).reshape(2, 2 * n))


OPEN = 'x: R.Tensor(("n", "a"), "float32"), y: R.Tensor(("n", "b"), "float32")'
UNDECIDED: dict[str, tuple[str, Callable[[Array, Array], Any]]] = {
    "sum": ("return R.add(R.exp(x), y)", lambda x, y: np.exp(x) + y),
    "twice": ("a = R.maximum(x, y)\nreturn R.multiply(a, y)", lambda x, y: np.maximum(x, y) * y),
    "choice": ("return R.where(R.less(x, y), y, x)", lambda x, y: np.where(x < y, y, x)),
    "cast": (
        "n, b = T.int64(), T.int64()\na = R.subtract(x, y)\n"
        'c = R.match_cast(a, R.Tensor((n, b), "float32"))\nreturn R.sum(c, axis=[1])',
        lambda x, y: (x - y).sum(1),
    ),
}


@pytest.mark.usefixtures("no_text")
@pytest.mark.parametrize("name", UNDECIDED)
def test_sizes_that_may_be_equal_are_compared_when_it_runs(name: str) -> None:
    body, expected = UNDECIDED[name]
    executable = build(body, OPEN)
    for x, y in [(X, Y), (X[:, :1], Y[:, :1]), (X[:0], Y[:0])]:
        agree(executable["main"](x.copy(), y.copy()), expected(x, y))


@pytest.mark.parametrize("name", UNDECIDED)
def test_sizes_that_are_unequal_broadcast_or_are_refused_as_in_python(name: str) -> None:
    body, expected = UNDECIDED[name]
    native = build(body, OPEN)["main"]
    agree(native(X[:, :1].copy(), Y), expected(X[:, :1], Y))
    narrow = Y[:, :1].copy()
    if name != "cast":  # which says that the result has the columns of y
        agree(native(X, narrow), expected(X, narrow))
    with pytest.raises(RelaxpyError, match="do not broadcast"):
        native(X, Y[:, :2].copy())


@pytest.mark.parametrize("branch", ["", "if c:", "else:"])
def test_sizes_are_compared_before_kernels_run(branch: str) -> None:
    lines = ["a = R.call_tir(cls.small, (x,), f32[n])", "b = R.sum(R.add(a, y))"]
    if branch:
        ways = {way: ["b = R.sum(x)"] for way in ("if c:", "else:")} | {branch: lines}
        lines = [line for way in ways for line in (way, *(f"    {each}" for each in ways[way]))]
    body = "\n        ".join([*lines, "return b"])
    mod = module(f"""
    def main(x: f32[n], y: f32[m], c: bool):
        {body}

    @kernel
    def small(p: T.handle, q: T.handle):
        n = T.int64()
        x = T.match_buffer(p, (n,), "float32")
        y = T.match_buffer(q, (n,), "float32")
        for k in range(n):
            y[k] = x[k]
            assert y[k] < T.float32(9), "too large"
    """)
    main = relaxpy.compile(mod, "native")["main"]
    x, c = np.full(3, 2, "float32"), np.array(branch == "if c:")
    assert main(x, x, c) == 12
    assert main(x, x[:1], c) == 12

    def fail() -> None:
        with pytest.raises(RelaxpyError, match="too large"):
            main(x * 5, x[:1], c)

    assert calls_of(FailureTable.__call__, fail) == 1


def test_dimensions_that_are_computed_are_checked() -> None:
    params = 'x: R.Tensor(("n",), "float32"), y: R.Tensor(("2 * n",), "float32")'
    main = build("a = R.exp(x)\nb = R.exp(y)\nreturn (a, b)", params)["main"]
    with pytest.raises(RelaxpyError, match="dimension 0"):
        main(np.ones(3, "float32"), np.ones(5, "float32"))


INDEXED = """
from relaxpy.script import ir as I, relax as R, tir as T
@I.ir_module
class M:
    @T.prim_func(private=True)
    def pick(x: T.Buffer((8,)), i: T.Buffer((2,), "int64"), y: T.Buffer((2,))):
        for k in range(2):
            with T.block("pick"):
                vk = T.axis.spatial(2, k)
                y[vk] = x[i[vk]]

    @R.function
    def main(x: R.Tensor((8,), "float32"), i: R.Tensor((2,), "int64")):
        cls = M
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir(cls.pick, (a, i), R.Tensor((2,), "float32"))
            c = R.negative(b)
            R.output(a, c)
        return (a, c)
"""


def test_a_kernel_that_refuses_its_data_ends_the_call() -> None:
    main = relaxpy.compile(from_source(INDEXED), "native")["main"]
    plain = relaxpy.compile(from_source(INDEXED), "numpy")["main"]
    x = np.arange(8, dtype="float32")
    agree(main(x, np.array([1, 7])), plain(x, np.array([1, 7])))
    messages = []
    for run in (main, plain):
        with pytest.raises(RelaxpyError) as error:
            run(x, np.array([1, 8]))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("result", ["b", "R.tuple()", 'R.call_packed("test.graph.same", a)'])
def test_errors_of_kernels_name_the_call(result: str) -> None:
    relaxpy.register_func("test.graph.same", lambda a: a, override=True)
    mod = module(f"""
    @impure
    def main(x: f32[4], i: i64):
        a = R.tanh(x)
        b = R.call_tir(cls.late, (a, i), f32[4])
        c = {result}
        return c

    @kernel
    def late(x: f32[4], i: i64, y: f32[4]):
        for k in range(4):
            y[k] = T.Cast("float32", i[()])
            y[k] = x[T.Cast("int64", y[k]) + k]
    """)
    messages = []
    for target in ("native", "numpy"):
        main = relaxpy.compile(mod, target, relax_pipeline="legalize")["main"]
        with pytest.raises(RelaxpyError, match="called at") as error:
            main(X[0].copy(), np.array(8))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_native_kernels_are_written_for_numpy_when_that_is_needed(monkeypatch) -> None:
    """Also in a program of which a function runs in Python, as one does whose argument is a tuple.

    Those that only its other functions call are not in the text that runs, but in the source.
    """
    written: list[str] = []
    emitted = NumpyEmitter.emitted
    monkeypatch.setattr(
        NumpyEmitter, "emitted", lambda self: written.append(self.plan.name) or emitted(self)
    )
    text = INDEXED.replace("x: R.Tensor((8,), ", "t: R.Tuple(R.Tensor((8,), ")
    text = text.replace('"float32"), i: R', '"float32")), i: R').replace("R.exp(x)", "R.exp(t[0])")
    text += """
    @R.function
    def other(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        return R.tanh(x)
"""
    native = relaxpy.compile(from_source(text), "native")
    x = np.arange(8, dtype="float32")
    agree(native["main"]((x,), np.array([1, 7])), (np.exp(x), -np.exp(x[[1, 7]])))
    agree(native["other"](x), np.tanh(x))
    assert not written
    plain = relaxpy.compile(from_source(text), "numpy")
    kernels = len(written)
    written.clear()
    messages = []
    for executable in (native, plain):
        with pytest.raises(RelaxpyError) as error:
            executable["main"]((x,), np.array([1, 8]))
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert len(written) == kernels
    assert all(f"def {name}(" in native.source for name in ("pick", "main", "other", *written))
    assert len(written) == kernels


@pytest.mark.usefixtures("no_text")
def test_calls_keep_no_references() -> None:
    main = build("a = R.add(x, y)\nreturn (x, a, (a, y))", MATRIX)["main"]
    x, y = X.copy(), Y.copy()
    objects = x, y, X.dtype
    for _ in range(3):
        main(x, y)
    gc.collect()  # what other tests left refers to datatypes, too
    before = [sys.getrefcount(o) for o in objects]
    result = [main(x, y) for _ in range(50)][-1]
    new = np.ones(3)
    alike = x, new, (new, y)
    del new
    references = [sys.getrefcount(value[1]) for value in (result, alike)]
    assert references[0] == references[1]
    del result, alike
    gc.collect()
    found = [sys.getrefcount(o) for o in objects]
    assert all(abs(a - b) < 20 for a, b in zip(before, found, strict=True))


@pytest.mark.usefixtures("no_text")
def test_threads_share_no_memory() -> None:
    body = "a = R.exp(x)\nb = R.matmul(a, y)\nc = R.nn.softmax(b)\nd = R.sum(c, axis=[0])\n"
    body += "return (c, d)"
    params = 'x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n", "n"), "float32")'
    main = build(body, params, relax_pipeline="legalize")["main"]

    def run(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        x, y = (rng.random((40 + seed % 7, 40 + seed % 7), "float32") for _ in range(2))
        first = main(x, y)
        return all(
            np.array_equal(a, b) for _ in range(5) for a, b in zip(first, main(x, y), strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(64)))


BRANCHES: dict[str, tuple[str, Callable[[Array, Array], Any], Callable[[Array, Array], Any]]] = {
    "one step": ("a = R.exp(x)", "a = R.add(x, y)", lambda x, y: np.exp(x), np.add),
    "steps": (
        "b = R.exp(x)\nc = R.sum(b, axis=[0])\na = R.add(c, y)",
        "b = R.sum(y, axis=[1], keepdims=True)\na = R.multiply(x, b)",
        lambda x, y: np.exp(x).sum(0) + y,
        lambda x, y: x * y.sum(1, keepdims=True),
    ),
    "a value from before": (
        "a = before",
        "b = R.exp(before)\na = R.add(b, R.const(1.0))",
        np.subtract,
        lambda x, y: np.exp(x - y) + 1,
    ),
    "nested": (
        "d = R.sum(y)\ne = R.greater(d, R.const(0.0))\n"
        "if e:\n    f = R.exp(x)\n    g = R.tanh(f)\nelse:\n    g = R.negative(before)\n"
        "a = R.add(g, y)",
        "a = R.add(before, before)",
        lambda x, y: (np.tanh(np.exp(x)) if y.sum() > 0 else y - x) + y,
        lambda x, y: 2 * (x - y),
    ),
    "a cast": (
        "s = R.shape_of(y)\nt = R.shape_to_tensor(s)\nu = R.tensor_to_shape(t)\n"
        "v = R.match_cast(u, R.Shape([3, 4]))\na = R.exp(x)",
        'k = T.int64()\nb = R.match_cast(x, R.Tensor((3, k), "float32"))\n'
        "d = R.sum(b)\na = R.add(d, y)",
        lambda x, y: np.exp(x),
        lambda x, y: x.sum() + y,
    ),
}


@pytest.mark.usefixtures("no_text")
@pytest.mark.parametrize("params", [MATRIX, ANY])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_function_that_branches_needs_no_python(name: str, params: str) -> None:
    then, otherwise, *expected = BRANCHES[name]
    ways = ["\n".join(f"    {line}" for line in way.splitlines()) for way in (then, otherwise)]
    body = f"before = R.subtract(x, y)\nif c:\n{ways[0]}\nelse:\n{ways[1]}\nz = R.multiply(a, y)\n"
    main = build(f"{body}return (z, a)", f'{params}, c: R.Tensor((), "bool")')["main"]
    for condition, function in zip((True, False), expected, strict=True):
        for y in (Y, abs(Y)):
            result = function(X, y)
            agree(main(X, y, np.array(condition)), (result * y, result))


def test_what_branches_return_is_the_same_tensor_as_in_python() -> None:
    body = "b = R.add(x, x)\nif c:\n    a = {0}\nelse:\n    a = R.exp(x)\nreturn (a, b)"
    for name, position in (("x", None), ("b", 1)):
        params = 'x: R.Tensor((3,), "float32"), c: R.Tensor((), "bool")'
        main = build(body.format(name), params)["main"]
        x = np.ones(3, "float32")
        result = main(x, np.array(True))
        assert result[0] is (x if position is None else result[position])
        agree(main(x, np.array(False)), (np.exp(x), x + x))


@pytest.mark.usefixtures("no_text")
def test_a_cast_returns_the_tensor_itself() -> None:
    body = 'a = R.match_cast(x, R.Tensor((3, 4), "float32"))\nb = R.exp(a)\nreturn (a, b)'
    main = build(body, ANY)["main"]
    result = main(X, Y)
    assert result[0] is X
    agree(result[1], np.exp(X))


@pytest.mark.parametrize("inside", [False, True])
def test_a_cast_that_fails_says_so(inside: bool) -> None:
    cast = 'a = R.match_cast(x, R.Tensor((3, 4), "float32"))\nb = R.exp(a)'
    if inside:
        lines = cast.replace("\n", "\n    ")
        cast = f"if c:\n    {lines}\nelse:\n    b = R.exp(y)"
        cast = f"n, m = T.int64(), T.int64()\n{cast}"
        cast += '\nb = R.match_cast(b, R.Tensor((n, m), "float32"))'
    main = build(f"{cast}\nreturn b", f'{ANY}, c: R.Tensor((), "bool")')["main"]
    true = np.array(True)
    agree(main(X, Y, true), np.exp(X))
    with pytest.raises(MatchCastError):
        main(X.T.copy(), Y.T.copy(), true)
    if inside:
        agree(main(X.T.copy(), Y.T.copy(), np.array(False)), np.exp(Y.T))


@pytest.mark.usefixtures("no_text")
def test_a_workspace_may_have_only_tensors_without_elements() -> None:
    body = "a = R.take(x, i, axis=1)\nb = R.permute_dims(a)\nc = R.matmul(a, b)\nreturn c"
    ex = build(body, 'x: R.Tensor((3, 3), "float32"), i: R.Tensor((0,), "int64")')
    assert (ex["main"](np.ones((3, 3), "float32"), np.zeros(0, "int64")) == np.zeros((3, 3))).all()


CALLED = """
from relaxpy.script import ir as I, relax as R

@I.ir_module
class M:
    @R.function(private=True)
    def inner(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")):
        a = R.matmul(x, R.permute_dims(x))
        b = R.matmul(a, x)
        return (R.add(b, y), x)

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")):
        first = M.inner(x, y)
        seen = R.call_packed("test.seen", first[0], sinfo_args=R.Tuple)
        second = M.inner(first[0], y)
        return (second[0], second[1])
"""


def test_a_function_that_python_calls_runs_natively() -> None:
    seen: list[Array] = []
    relaxpy.register_global_func("test.seen", lambda a: seen.append(np.array(a)), override=True)
    main = relaxpy.compile(from_source(CALLED), "native")["main"]

    def expected(x: Array, y: Array) -> Array:
        return x @ x.T @ x + y

    y = Y[0].copy()
    for x in (X / 8, X[:1].copy(), np.asfortranarray(X / 4)):
        agree(main(x, y), (expected(expected(x, y), y), expected(x, y)))
        np.testing.assert_allclose(seen.pop(), expected(x, y), rtol=1e-5)
    program = main.program.compiled
    assert program is not None
    assert program.text is not None
    assert "def main(" in program.text.source
    assert "def inner(" not in program.text.source
    with pytest.raises(RelaxpyError, match=r"x.*float32"):
        main(X.astype("float64"), y)


@pytest.mark.parametrize(
    ("decorator", "before", "kernel", "is_native"),
    [
        ("private", "", "fill", True),
        ("private", "", "scale", False),  # it would do so twice if a later kernel refused its data
        ("private", "y = R.exp(x)", "fill", False),  # it would be of other values then
        ("R.function", "", "fill", False),  # a caller may pass one array twice
    ],
)
def test_parameters_are_written_by_what_may_run_again(
    monkeypatch: pytest.MonkeyPatch, decorator: str, before: str, kernel: str, is_native: bool
) -> None:
    found: dict[str, bool] = {}
    compile_graph = GraphBackend.compile_graph

    def spy(self: Any, context: Any, func: Any, name: str) -> bool:
        found[name] = compile_graph(self, context, func, name)
        return found[name]

    monkeypatch.setattr(GraphBackend, "compile_graph", spy)
    mod = module(f"""
    def main(x: f32[3, 4]):
        memory = R.call_pure_packed("test.graph.memory", x, sinfo_args=f32[3, 4])
        return cls.inner(memory, x)

    @{decorator}
    def inner(x: f32[3, 4], rows: f32[3, 4]):
        {before or "y = rows"}
        z = R.call_tir_inplace(cls.{kernel}, (x, rows), [0], f32[3, 4])
        return (z, R.add(z, y))

    @kernel
    def fill(x: f32[3, 4], rows: f32[3, 4]):
        for i, j in T.grid(3, 4):
            x[i, j] = rows[i, j] * T.float32(2)

    @kernel
    def scale(x: f32[3, 4], rows: f32[3, 4]):
        for i, j in T.grid(3, 4):
            x[i, j] = x[i, j] * T.float32(2)
    """)
    memory = X.copy()
    relaxpy.register_func("test.graph.memory", lambda x: memory, override=True)
    z, y = relaxpy.compile(mod, "native")["main"](X)
    assert found["inner"] == is_native
    assert z is memory
    np.testing.assert_array_equal(z, X * 2)
    np.testing.assert_allclose(y, z + (np.exp(X) if before else X), rtol=1e-5)
