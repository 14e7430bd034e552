"""Arithmetic in every datatype has the results of the scalar program."""

import math
import re

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.exec.machine.platforms import PLATFORMS
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.numpy.emit import scope
from relaxpy.exec.numpy.runtime import erf
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.expr import FloorDiv, FloorMod, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind
from relaxpy.script import from_source
from tests.exec.loops.support import check
from tests.exec.loops.written import run_row
from tests.rows import sections

TARGETS = ["numpy", "native"] if obstacle() is None else ["numpy"]


@pytest.mark.parametrize("node", [FloorDiv, FloorMod])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_divided_and_floored(node: type[FloorDiv | FloorMod], dtype: str) -> None:
    """No text says so: these nodes come from code that builds kernels."""
    a, b = (decl_buffer((4,), dtype, name) for name in "AB")
    i, j = Var("i", "int64"), Var("j", "int64")
    table = decl_buffer((4, 4), dtype, "C")
    store = BufferStore(table, node(a[i], b[j]), [i, j])
    rows = For(i, 0, 4, ForKind.SERIAL, For(j, 0, 4, ForKind.SERIAL, store))
    x = np.array([7.5, -7.5, -0.0, np.inf]).astype(DataType(dtype).numpy())
    y = np.array([2, -2, 0.5, np.nan]).astype(x.dtype)
    check(PrimFunc([a, b, table], rows), x, y, np.zeros((4, 4), x.dtype))


DATATYPES = sections("""
--- a division that is not taken does not stop the program
def f(A: i32[4], B: i32[4], C: i32[4]):
    for i in range(4):
        C[i] = T.if_then_else(B[i] != 0, A[i] // B[i], -1)
# args: A=ints(9, 9, -9, 9), B=ints(2, 0, 2, 0)
--- integers wrap without a warning
def f(A: i8[3], B: i8[3], S: T.Buffer((), "int8"), P: T.Buffer((), "int8")):
    for i in range(3):
        B[i] = A[i] * A[i] + A[i]
    for i in R(3):
        with T.init():
            S[()] = T.int8(0)
        S[()] = S[()] + A[vi]
    for i in R(3):
        with T.init():
            P[()] = T.int8(1)
        P[()] = P[()] * A[vi]
# args: A=np.int8([100, 27, 127])
--- truth values are reduced
def f(A: bool[4, 3], some: bool[4], every: bool[4]):
    for i, j in SR(4, 3):
        with T.init():
            some[vi] = False
        some[vi] = some[vi] or A[vi, vj]
    for i, j in SR(4, 3):
        with T.init():
            every[vi] = True
        every[vi] = every[vi] and A[vi, vj]
# args: A=np.array([[0, 0, 0], [1, 0, 0], [1, 1, 1], [0, 1, 1]], bool)
# methods: or reduction over j; and reduction over j
--- extremes pass nan on and start from the given value
def f(A: f32[4, 3], low: f32[4], high: f32[4]):
    for i, j in SR(4, 3):
        with T.init():
            low[vi] = T.max_value("float32")
            high[vi] = T.min_value("float32")
        low[vi] = T.min(low[vi], A[vi, vj])
        high[vi] = T.max(high[vi], A[vi, vj])
# args: A=np.float32([[1, np.nan, 2], [-np.inf] * 3, [np.inf] * 3, [-0.0, 0.0, -0.0]])
--- truth values that are divided by the ones before them
def f(A: bool[6], B: bool[6]):
    for i in range(1, 6):
        B[i] = T.bitwise_not(T.FloorDiv(B[i - 1], A[i])) | T.truncmod(A[i - 1], A[i])
# args: A=np.ones(6, bool), B=np.zeros(6, bool)
# args: A=np.zeros(6, bool), B=np.zeros(6, bool) -> PX-3
--- truth values are divided
def f(A: bool[6, 2], C: bool[6, 2], B: bool[6, 2]):
    total = T.alloc_buffer((6, 2), "bool")
    for i, j in T.grid(6, 2):
        total[i, j] = T.Div(A[i, j], C[i, j])
    for i, j in T.grid(6, 2):
        B[i, j] = T.bitwise_not(T.Div(total[i, j], T.bool(True))) | T.floormod(A[i, j], C[i, j])
# args: A=[1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0], C=[1] * 12
# args: A=[1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0], C=[1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0] -> PX-3
--- integers divide toward zero and down
def f(A: i8[4], B: i8[4], C: i8[4, 4]):
    for i in range(4):
        C[0, i] = T.truncdiv(A[i], B[i])
        C[1, i] = T.truncmod(A[i], B[i])
        C[2, i] = A[i] // B[i]
        C[3, i] = A[i] % B[i]
# args: A=[-7, 7, -128, 5], B=[2, -2, -1, 3]
# args: A=[1, 1, 1, 1], B=[1, 0, 1, 1] -> division by zero .PX-3
--- integers that wrap among literals do so without a warning
def f(A: i32[3, 3]):
    for a, b in T.grid(2, 2):
        A[1, a * b] = T.Cast("int32", 1) - -2147483648
""")


@pytest.mark.rule("PX-2", "PX-3")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fact", DATATYPES)
def test_arithmetic_of_datatypes(fact: str) -> None:
    run_row(DATATYPES[fact])


@pytest.mark.rule("PX-2")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_quotients_and_remainders_are_those_of_integers(target: str) -> None:
    func = from_source("""
@T.prim_func
def f(A: T.Buffer((4,), "int8"), B: T.Buffer((4,), "int8"), C: T.Buffer((4, 4), "int8")):
    for i in range(4):
        C[0, i] = T.truncdiv(A[i], B[i])
        C[1, i] = T.truncmod(A[i], B[i])
        C[2, i] = A[i] // B[i]
        C[3, i] = A[i] % B[i]
""")
    a, b = np.array([-7, 7, -128, 5], np.int8), np.array([2, -2, -1, 3], np.int8)
    c = np.zeros((4, 4), np.int8)
    relaxpy.compile(func, target)["f"](a, b, c)
    assert c.tolist() == [[-3, -3, -128, 1], [-1, 1, 0, 2], [-4, -4, -128, 1], [1, -1, 0, 2]]


def test_the_error_function_is_accurate_in_double_precision() -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), np.logspace(-300, 0, 200)])
    exact = np.array([math.erf(v) for v in x])
    # A handful of roundings in a sum of terms below 1.
    assert np.max(np.abs(erf(x) - exact) / np.spacing(np.abs(exact))) <= 8
    np.testing.assert_array_equal(erf(np.array([np.inf, -np.inf, np.nan])), [1, -1, np.nan])
    assert math.copysign(1, erf(np.array(-0.0))) == -1


def test_the_error_function_of_single_precision() -> None:
    tiny = np.float32(np.finfo(np.float32).smallest_subnormal)
    x = np.concatenate([np.linspace(-5, 5, 20001), np.logspace(-38, 1, 5001), [tiny, 0, -0.0]])
    x = x.astype(np.float32)
    exact = np.array([math.erf(v) for v in x.tolist()])
    assert np.max(np.abs(erf(x) - exact) / np.spacing(np.abs(exact).astype(np.float32))) <= 6
    ends = np.array([np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(erf(ends), [1, -1, np.nan])
    assert math.copysign(1, erf(np.float32(-0.0))) == -1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 6)])
def test_the_error_function_keeps_shape_and_datatype(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.5, dtype)
    out = np.zeros((*shape, 2), dtype)[..., 0]  # with gaps
    for found in (np.asarray(erf(x)), erf(x, out=out)):
        assert found.shape == shape
        assert found.dtype == dtype
        np.testing.assert_allclose(found, math.erf(0.5), rtol=1e-3)
    assert (out == np.asarray(erf(x))).all()


_REFERENCES: dict[str, list[np.ndarray]] = {}
ELSEWHERE = "numpy on a CPU that saturates"
SMALL = [name for name in dir(ml_dtypes) if re.match(r"float[468]_", name)]


@pytest.mark.parametrize(
    ("source", "target"),
    [(s, t) for s in ("float64", "float32", "float16", "bfloat16") for t in (*TARGETS, ELSEWHERE)]
    + [(small, t) for small in SMALL for t in ("numpy", ELSEWHERE)],
)
def test_casts_of_floats_that_are_outside_the_range(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target == ELSEWHERE:
        other = next(p for p in PLATFORMS if p.architecture.saturates)
        monkeypatch.setattr(scope, "own_platform", lambda: other)
        target = "numpy"
    kinds = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    kinds += ["float8_e8m0fnu", "float8_e4m3fn", "float16"] if source in SMALL else []
    powers = [2.0**n + m for n in (7, 8, 15, 16, 31, 32, 63, 64, 70) for m in (-1.5, 0, 1)]
    numbers = [0.0, 1.5, math.nan, math.inf, *powers]
    values = np.array([*numbers, *(-x for x in numbers)])
    with np.errstate(over="ignore"):
        x = values.astype(DataType(source).numpy())
    if source in SMALL:
        x = np.arange(1 << DataType(source).bits, dtype="u1").view(x.dtype)
    lines = [
        "@T.prim_func",
        f"def casts(A: T.Buffer(({x.size},), '{source}'), "
        + ", ".join(f"B{n}: T.Buffer((3, {x.size}), '{to}')" for n, to in enumerate(kinds))
        + "):",
    ]
    for n, to in enumerate(kinds):
        lines += [
            f"    for i in range({x.size}):",
            f"        B{n}[0, i] = T.Cast('{to}', A[i])",
            f"        B{n}[1, i] = T.Cast('{to}', A[i]) + T.{to}(1)",
            f"    for i in range({x.size}):",
            f"        B{n}[2, i] = B{n}[1, T.max(i - 1, 0)] - T.Cast('{to}', A[i])",
        ]
    func = from_source("\n".join(lines))

    def results(target: str) -> list[np.ndarray]:
        found = [np.zeros((3, x.size), DataType(to).numpy()) for to in kinds]
        relaxpy.compile(func, target=target)["casts"](x, *found)
        return found

    reference = _REFERENCES.get(source) or _REFERENCES.setdefault(source, results("reference"))
    for expected, found in zip(reference, results(target), strict=True):
        exact = expected.dtype.kind in "iu"
        np.testing.assert_array_equal(*(x if exact else x.astype(float) for x in (found, expected)))
