"""Functions of zeros, infinities and NaN are those of C (C99, annex F), in every float datatype."""

from functools import cache

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.ir.core.dtype import DataType
from relaxpy.script import from_source
from tests.exec.native.test_maths import BINARY as BINARY_ORACLES, ORACLES

SMALL = ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"]
SMALL += ["float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn"]
SMALL += ["float4_e2m1fn"]
TARGETS = ["reference", "numpy", *(["native"] if obstacle() is None else [])]
UNARY = """
    exp         0:1  -0:1  -inf:0  inf:inf  nan:nan
    exp2        0:1  -0:1  3:8  -inf:0  inf:inf  nan:nan
    exp10       0:1  -0:1  -inf:0  inf:inf  nan:nan
    log         1:0  0:-inf  -0:-inf  -1:nan  -inf:nan  inf:inf
    log2        1:0  8:3  0:-inf  -0:-inf  -1:nan  inf:inf
    log10       1:0  0:-inf  -0:-inf  -1:nan  inf:inf  nan:nan
    log1p       0:0  -0:-0  -1:-inf  -2:nan  inf:inf
    sqrt        0:0  -0:-0  4:2  -1:nan  -inf:nan  inf:inf  nan:nan
    rsqrt       0:inf  -0:-inf  0.25:2  -1:nan  -inf:nan  inf:0  nan:nan
    sin         0:0  -0:-0  inf:nan  -inf:nan  nan:nan
    cos         0:1  -0:1  inf:nan  -inf:nan
    tan         0:0  -0:-0  inf:nan  nan:nan
    asin        0:0  -0:-0  2:nan  -2:nan  inf:nan
    acos        1:0  2:nan  -2:nan  -inf:nan
    atan        0:0  -0:-0  nan:nan
    sinh        0:0  -0:-0  inf:inf  -inf:-inf  nan:nan
    cosh        0:1  -0:1  inf:inf  -inf:inf  nan:nan
    tanh        0:0  -0:-0  inf:1  -inf:-1  nan:nan
    asinh       0:0  -0:-0  inf:inf  -inf:-inf
    acosh       1:0  0.5:nan  -inf:nan  inf:inf
    atanh       0:0  -0:-0  1:inf  -1:-inf  2:nan  -inf:nan
    erf         0:0  -0:-0  inf:1  -inf:-1  nan:nan
    sigmoid     0:0.5  -0:0.5  inf:1  -inf:0  nan:nan
    fabs        0:0  -0:0  -2:2  -inf:inf  nan:nan
    floor       0:0  -0:-0  1.5:1  -1.5:-2  -inf:-inf  nan:nan
    ceil        0:0  -0:-0  1.5:2  -0.5:-0  -1.5:-1  inf:inf  nan:nan
    trunc       0:0  -0:-0  1.75:1  -0.5:-0  -1.75:-1  inf:inf  -inf:-inf  nan:nan
    round       0:0  -0:-0  0.5:0  1.5:2  2.5:2  -0.5:-0  -1.5:-2  inf:inf  nan:nan
    nearbyint   0:0  -0:-0  0.5:0  1.5:2  2.5:2  -0.5:-0  -2.5:-2  -inf:-inf  nan:nan
"""
BINARY = """
    pow         0,-1:inf  -0,-1:-inf  0,-2:inf  -0,-2:inf  0,-inf:inf  -0,-inf:inf  0,3:0  -0,3:-0
    pow         0,2:0  -0,2:0
    pow         -1,inf:1  -1,-inf:1  1,inf:1  1,nan:1  nan,0:1  nan,-0:1  inf,0:1  0,0:1
    pow         -2,0.5:nan  -8,1.5:nan
    pow         0.5,-inf:inf  -0.5,-inf:inf  2,-inf:0  -2,-inf:0  0.5,inf:0  -0.5,inf:0  2,inf:inf
    pow         -2,inf:inf
    pow         -inf,-3:-0  -inf,-2:0  -inf,3:-inf  -inf,2:inf  inf,-1:0  inf,1:inf  nan,1:nan
    pow         2,nan:nan  -2,3:-8
    pow         -inf,0.5:inf  -inf,-0.5:0  -0,0.5:0  0,0.5:0  -0,-0.5:inf  inf,0.5:inf  -1,0.5:nan
    pow         nan,0.5:nan  4,0.5:2
    pow         -0,-3:-inf  -inf,1:-inf  -inf,-1:-0  -0,1:-0
    atan2       0,0:0  -0,0:-0  0,1:0  -0,1:-0  1,inf:0  -1,inf:-0  0,inf:0  nan,1:nan  1,nan:nan
    fmod        0,2:0  -0,2:-0  inf,2:nan  -inf,2:nan  2,0:nan  2,-0:nan  1.5,inf:1.5
    fmod        -1.5,-inf:-1.5  5,-3:2  -5,3:-2  -4,2:-0  nan,1:nan
    hypot       inf,nan:inf  nan,-inf:inf  -inf,1:inf  0,-0:0  3,4:5  -3,-4:5  nan,1:nan
    copysign    1,-0:-1  -1,0:1  0,-1:-0  -0,1:0  inf,-2:-inf  -inf,3:inf
    truncmod    -0,2:-0  inf,2:nan  2,0:nan  1.5,inf:1.5  -5,3:-2  -4,2:-0
    min         1,nan:nan  nan,1:nan  -inf,1:-inf  inf,nan:nan
    max         1,nan:nan  nan,1:nan  -inf,1:1  inf,nan:nan
    ldexp       0,5:0  -0,5:-0  inf,-9:inf  -inf,3:-inf  nan,1:nan  1.5,2:6  -1,-2:-0.25
"""

LITERAL = ("pow", "fmod")
"""Those whose second operand is also tried as a literal."""


def rows(table: str) -> dict[str, list[list[float]]]:
    """The operands and the result of each row, by function."""
    found: dict[str, list[list[float]]] = {}
    name = ""
    for word in table.split():
        if ":" in word:
            found.setdefault(name, []).append([float(x) for x in word.replace(":", ",").split(",")])
        else:
            name = word
    return found


def representable(name: str, values: list[float], dtype: str) -> bool:
    """Whether all numbers of a row exist in `dtype`, which may have no infinities and no -0.0."""
    kind = DataType(dtype).numpy()
    numbers = [values[0], values[-1]] if name == "ldexp" else values
    rounded = np.array(numbers).astype(kind).astype(float)
    return all(repr(x) == repr(float(y)) for x, y in zip(numbers, rounded, strict=True))


@cache
def program(dtype: str) -> tuple[relaxpy.IRModule, dict[str, list[list[float]]]]:
    """A kernel for each function: on arrays, and on an array and a literal."""
    text, table = "", {}
    for name, found in (rows(UNARY) | rows(BINARY)).items():
        kept = [row for row in found if representable(name, row, dtype)]
        if not kept:
            continue
        table[name] = kept
        count, is_binary = len(kept), len(kept[0]) == 3
        second = "int32" if name == "ldexp" else dtype
        text += (
            f'@T.prim_func\ndef f_{name}(A: T.Buffer(({count}, 2), "{dtype}"), '
            f'B: T.Buffer(({count}, 2), "{second}"), C: T.Buffer((2, {count}, 2), "{dtype}")):\n'
            f"    for i, j in T.grid({count}, 2):\n"
            f"        C[0, i, j] = T.{name}(A[i, j]{', B[i, j]' if is_binary else ''})\n"
        )
        for n, row in enumerate(kept if name in LITERAL else []):
            call = f'T.{name}(A[{n}, j], T.{dtype}("{row[1]}"))'
            text += f"    for j in range(2):\n        C[1, {n}, j] = {call}\n"
    return from_source(text), table


FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e5m2", "float8_e4m3fnuz"]


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_are_those_of_c(dtype: str, target: str) -> None:
    module, table = program(dtype)
    functions = relaxpy.compile(module, target=target)
    kind = DataType(dtype).numpy()
    wrong = []
    for name, found in table.items():
        columns = np.repeat(np.array(found)[:, None], 2, axis=1)
        a, b, expected = columns[..., 0], columns[..., -2], columns[..., -1]
        result = np.zeros((2, len(found), 2), kind)
        functions[f"f_{name}"](a.astype(kind), b.astype("i4" if name == "ldexp" else kind), result)
        for form in result.astype(float)[: 1 + (name in LITERAL)]:
            same = np.isnan(form) & np.isnan(expected)
            same |= (form == expected) & (np.signbit(form) == np.signbit(expected))
            wrong += [(name, *found[n], form[n, k]) for n, k in np.argwhere(~same)]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_the_next_number_is_that_of_the_datatype(dtype: str, target: str) -> None:
    kind = DataType(dtype).numpy()
    a = np.array([0, -0.0, 0, 1, 1, -1, 2, np.nan, 3, 1.5]).astype(kind)
    b = np.array([1, -1, 0, 2, 0, 1, 2, 1, np.nan, -2]).astype(kind)
    found = np.zeros(10, kind)
    buffers = ", ".join(f'{name}: T.Buffer((10,), "{dtype}")' for name in "ABC")
    text = f"@T.prim_func\ndef f({buffers}):\n    for i in range(10):\n"
    text += "        C[i] = T.nextafter(A[i], B[i])\n"
    relaxpy.compile(from_source(text), target=target)["f"](a, b, found)
    np.testing.assert_array_equal(found.astype(float), np.nextafter(a, b).astype(float))


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["reference", "numpy"])
@pytest.mark.parametrize("dtype", SMALL)
def test_functions_of_all_small_floats_are_rounded_once(dtype: str, target: str) -> None:
    bits = np.arange(1 << DataType(dtype).bits, dtype=np.uint8)
    x = bits.view(DataType(dtype).numpy())
    y = np.roll(x, 77)
    names = [*ORACLES, *BINARY_ORACLES]
    size, count = x.size, len(names)
    text = (
        f'@T.prim_func\ndef f(A: T.Buffer(({size},), "{dtype}"), '
        f'B: T.Buffer(({size},), "{dtype}"), C: T.Buffer(({count}, {size}), "{dtype}")):\n'
    )
    for n, name in enumerate(names):
        operands = "A[i]" if name in ORACLES else "A[i], B[i]"
        text += f"    for i in range({size}):\n        C[{n}, i] = T.{name}({operands})\n"
    found = np.zeros((count, size), x.dtype)
    relaxpy.compile(from_source(text), target=target)["f"](x, y, found)
    for n, name in enumerate(names):
        wide = [x.astype(np.longdouble), y.astype(np.longdouble)]
        with np.errstate(all="ignore"):
            function = ORACLES.get(name) or BINARY_ORACLES[name]
            exact = function(*wide[: 1 + (name in BINARY_ORACLES)])
            # Before the one rounding, an error of 4 units in the last place of float32.
            ends = [(exact * (1 + e * 2.0**-22)).astype(np.float32) for e in (-1, 0, 1)]
            allowed = [end.astype(x.dtype).astype(float) for end in ends]
        value = found[n].astype(float)
        fits = [(value == end) | (np.isnan(value) & np.isnan(end)) for end in allowed]
        wrong = ~np.logical_or.reduce(fits)
        assert not wrong.any(), (name, x[wrong][:4], y[wrong][:4], found[n][wrong][:4])
