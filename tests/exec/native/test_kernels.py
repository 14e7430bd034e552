"""Kernels of the target "native" compute what those of NumPy do, and what their text says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.native.calls.interpreter import DTYPES
from relaxpy.script import from_source
from tests.exec.loops.written import run_row
from tests.fuzz.kernels.compare import examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.seed import SEED
from tests.rows import sections

RNG = np.random.default_rng(20)


def function(body: str, *params: str) -> Any:
    """A Relax function of the parameters x0, x1... whose struct infos are given."""
    listed = ", ".join(f"x{n}: R.Tensor({param})" for n, param in enumerate(params))
    return from_source(
        f"""
@R.function
def main({listed}):
    n, m = T.int64(), T.int64()
    with R.dataflow():
        y = {body}
        R.output(y)
    return y
"""
    )


def methods(executable: Any) -> list[str]:
    return [row.method + row.reason for row in executable.report()]


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


ROWS = '("n", 67), "float32"'
COLUMN = '(67,), "float32"'
PROGRAMS = {
    "R.add(R.multiply(x0, x0), x1)": (ROWS, COLUMN),
    "R.nn.softmax(x0)": (ROWS,),
    "R.nn.softmax(x0, axis=0)": (ROWS,),
    "R.nn.softmax(R.strided_slice(x0, [1], [0], [1]))": ('("n", "m"), "float32"',),
    "R.nn.layer_norm(R.add(R.nn.gelu(x0), x0), x1, x1, axes=[-1])": (ROWS, COLUMN),
    "R.sum(x0, axis=0)": (ROWS,),
    "R.sum(x0, axis=1)": (ROWS,),
    "R.max(x0)": (ROWS,),
    "R.variance(x0, axis=[1])": (ROWS,),
    "R.cumsum(x0, axis=1)": (ROWS,),
    "R.cumsum(x0, axis=0)": (ROWS,),
    "R.argmax(x0, axis=1)": (ROWS,),
    "R.permute_dims(x0)": (ROWS,),
    "R.nn.pad(x0, [1, 2, 3, 0])": (ROWS,),
    "R.flip(x0, axis=1)": (ROWS,),
    "R.astype(R.multiply(x0, R.const(9, 'float32')), 'int32')": (ROWS,),
    "R.sigmoid(R.astype(x0, 'float16'))": (ROWS,),
    "R.where(R.greater(x0, x1), x0, R.exp(x1))": (ROWS, COLUMN),
}


@pytest.mark.parametrize("body", PROGRAMS)
def test_programs_run_natively_and_agree_with_numpy(body: str) -> None:
    func = function(body, *PROGRAMS[body])
    native, numpy = (relaxpy.compile(func, target=t) for t in ("native", "numpy"))
    assert all(method.startswith("native") for method in methods(native))
    for rows in (1, 5, 16, 130):
        args = [floats(rows, 67), floats(67)][: len(PROGRAMS[body])]
        found, expected = native["main"](*args), numpy["main"](*args)
        assert found.dtype == expected.dtype
        # Sums of at most 130 * 67 terms of order 1 in another order.
        tolerance = 1e-2 if found.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [*("float16", "bfloat16", "float8_e5m2"), "float32", "float64"])
def test_remainders_and_floors_of_quotients_are_those_of_numpy(dtype: str) -> None:
    pair = f'(4096,), "{dtype}"'
    func = function("(R.mod(x0, x1), R.floor_mod(x0, x1), R.floor_divide(x0, x1))", pair, pair)
    native, numpy = (relaxpy.compile(func, target=t) for t in ("native", "numpy"))
    assert all(method.startswith("native") for method in methods(native))
    special = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3, -3, 0.5]
    a, b = (RNG.standard_normal(4096) * 10.0 ** RNG.uniform(-3, 3, 4096) for _ in range(2))
    a[:2000], b[:2000] = np.round(a[:2000]), np.round(b[:2000])
    a[:100], b[:100] = np.repeat(special, 10), np.tile(special, 10)
    args = [x.astype(DTYPES[dtype]) for x in (a, b)]
    for found, expected in zip(native["main"](*args), numpy["main"](*args), strict=True):
        one, other = found.astype("float64"), expected.astype("float64")
        np.testing.assert_array_equal(one, other)
        numbers = ~np.isnan(one)
        np.testing.assert_array_equal(*(np.signbit(x[numbers]) for x in (one, other)))


def test_quotients_by_the_number_of_a_row_have_the_bits_of_numpy() -> None:
    """Rows are divided by reciprocals, except where digits of a remainder would be lost."""
    func = function("R.divide(x0, x1)", '("n", 4099), "float32"', '("n", 1), "float32"')
    native = relaxpy.compile(func, target="native")
    limits = np.float32(2.0) ** np.array(
        [-149, -127, -126, -86, -85, -84, -41, -40, 39, 40, 85, 86]
    )
    special = np.array([0, 1, 3, 1e-40, 3e38, np.inf, np.nan], "float32")
    special = np.concatenate([special, limits, np.nextafter(limits, np.float32(0))])
    special = np.concatenate([special, -special])
    scales = 10.0 ** RNG.uniform(-38, 38, 500)
    b = np.concatenate([special, *RNG.standard_normal((2, 500)) * [scales, np.ones(500)]])
    a = RNG.standard_normal((len(b), 4099)) * 10.0 ** RNG.uniform(-30, 30, 4099)
    a[::2, 1024:] = RNG.standard_normal((len(b[::2]), 3075))
    a[:, :500:8] = RNG.choice(special, a[:, :500:8].shape)
    a, b = a.astype("float32"), b.astype("float32")[:, None]
    with np.errstate(all="ignore"):
        expected = a / b
    found = native["main"](a, b)
    same = (found.view("int32") == expected.view("int32")) | (np.isnan(found) & np.isnan(expected))
    assert same.all()


KERNEL = """
@T.prim_func
def main(
    A: T.Buffer(({size},), "float32"), I: T.Buffer((4,), "int64"), B: T.Buffer((4,), "float32")
):
    T.func_attr({{"global_symbol": "main"}})
    for i in range(4):
        B[i] = {value}
"""


KERNELS = sections("""
--- an index outside is found
def f(A: f32[8], I: i64[4], B: f32[4]):
    for i in range(4):
        B[i] = A[I[i]]
# native: runs
# args: I=[7, 0, 3, 1]
# args: I=[7, 0, 3, 8] -> outside dimension 0 of buffer A
# args: I=[7, 0, 3, -1] -> outside dimension 0 of buffer A
# args: I=[7, 0, 3, 2**62] -> outside dimension 0 of buffer A
--- a division by zero is found
def f(I: i64[4], B: f32[4]):
    for i in range(4):
        B[i] = f32(T.floordiv(i64(12), I[i]))
# native: runs
# args: I=[1, -5, 12, -13]
# args: I=[1, 2, 3, 0] -> zero
--- arguments that overlap or have strides
def f(A: f32[4], B: f32[4]):
    for i in range(4):
        B[i] = A[3 - i] + f32(1)
# memory: 4: m, m
# args: A=floats(8)[::2], B=floats(4, 2)[:, 1]
--- a dimension that is negative has no elements
def f(m: T.int64, A: f32[4]):
    B = T.alloc_buffer((m,), "float32")
    for i in range(2):
        B[i] = f32(1)
    for i in range(2):
        A[i] = B[i]
# native: runs
# args: m=2
# args: m=1 -> outside dimension 0 of buffer B
# args: m=0 -> outside dimension 0 of buffer B
# args: m=-1 -> outside dimension 0 of buffer B
""")


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_do_what_their_text_says(name: str) -> None:
    run_row(KERNELS[name])


def test_what_is_found_before_a_store_leaves_the_result_as_it_was() -> None:
    for value in ("A[I[i]]", 'T.Cast("float32", T.floordiv(T.int64(12), I[i] - T.int64(8)))'):
        main = relaxpy.compile(from_source(KERNEL.format(size=8, value=value)), "native")["main"]
        b = np.full(4, 5, "float32")
        with pytest.raises(RuntimeCheckError, match=r"outside|zero"):
            main(floats(8), np.array([7, 0, 3, 8]), b)
        assert b.tolist() == [5] * 4


@pytest.mark.parametrize("columns", [3, 200])
def test_blocks_of_rows_have_loops_over_integers_of_both_widths(columns: int) -> None:
    kernel = from_source(f"""
@T.prim_func
def main(A: T.Buffer((20000, {columns}), "float32"), B: T.Buffer((20000, {columns}), "float32")):
    t = T.alloc_buffer((20000, {columns}), "float32")
    for i in range(20000):
        for j in range({columns}):
            t[i, j] = A[i, j] * T.Cast("float32", i * 2 + j)
    for i in T.serial(T.int64(20000)):
        for j in range({columns}):
            B[i, j] = t[i, {columns - 1} - j] + T.Cast("float32", i * T.int64(3))
""")
    executable = relaxpy.compile(kernel, "native")
    assert all(method.startswith("native, in row blocks") for method in methods(executable))
    a, b = np.ones((20000, columns), "float32"), np.zeros((20000, columns), "float32")
    executable["main"](a, b)
    rows, numbers = np.arange(20000)[:, None], np.arange(columns)[::-1]
    assert (b == (2 * rows + numbers) + 3 * rows).all()


def test_what_has_no_native_form_runs_on_numpy_and_the_report_says_why() -> None:
    func = from_source(KERNEL.format(size=4, value='T.call_extern("float32", "f", A[i])'))
    [row] = relaxpy.compile(func, target="native").report()
    assert "not native" in row.reason or "calls" in row.reason


def test_a_saved_executable_is_compiled_again_for_its_target(tmp_path: Any) -> None:
    executable = relaxpy.compile(function("R.exp(x0)", ROWS), target="native")
    executable.save(tmp_path / "model.json")
    loaded = relaxpy.load_executable(tmp_path / "model.json")
    assert loaded.target == "native"
    x = floats(3, 67)
    np.testing.assert_array_equal(loaded["main"](x), executable["main"](x))


@pytest.mark.rule("OPT-1", "OPT-8")
def test_random_kernels_do_what_their_text_says() -> None:
    for number in range(8):
        program = generate(f"{SEED}/native/{number}")
        failures = examine(program, ("native",), trip=False).failures
        assert not failures, f"seed {SEED}/native/{number}: {failures[0]}\n\n{program.standalone()}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2fnuz"])
@pytest.mark.parametrize("source", ["int8", "uint8"])
def test_only_integers_that_a_short_float_has_are_not_rounded(source: str, dtype: str) -> None:
    large = 240.0 if "8_" in dtype else 60000.0
    numbers = [f"T.Cast('{dtype}', {x})" for x in (
        "X[i]", "T.bitwise_and(T.Cast('int32', X[i]) * 9, 1023)", "T.Cast('uint16', X[i])",
        "T.Cast('int64', X[i]) * T.int64(37)",
    )]  # fmt: skip
    texts = [
        text.format(x=x)
        for x in numbers
        for text in ("{x}", "{x} - T.F(128.0)", "{x} * T.F(17.0) - {x}", "{x} + T.F(0.5) + {x}",
                     "({x} - T.F(3.0)) * ({x} + T.F(7.0))", "T.F(-0.0) * {x}",
                     f"{{x}} * T.F({large})")
    ]  # fmt: skip
    stores = "\n        ".join(f"Y[{n}, i] = {text}" for n, text in enumerate(texts))
    program = from_source(
        f"""
@T.prim_func
def main(X: T.Buffer((256,), "{source}"), Y: T.Buffer(({len(texts)}, 256), "{dtype}")):
    for i in range(256):
        {stores}
""".replace("T.F(", f"T.{dtype}(")
    )
    x = np.arange(256, dtype="uint8").view(source)
    found = []
    for target in ("native", "reference"):
        y = relaxpy.runtime.tensor(np.zeros((len(texts), 256), relaxpy.DataType(dtype).numpy()))
        relaxpy.compile(program, target=target)["main"](x, y)
        found.append(y.numpy().tobytes())
    assert found[0] == found[1]
