"""The functions of maths, against extended precision and the special cases of NumPy."""

import ctypes
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
import pytest

from relaxpy.exec.native.llvm import Module, Type
from relaxpy.exec.native.machine import host, narrow
from relaxpy.exec.native.maths import MATHS, emit_maths
from tests.exec.native.oracle import Array, errors, evaluate, samples

_LIBM = ctypes.CDLL(None)
_LIBM.erfl.restype, _LIBM.erfl.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]


def erf(x: Array) -> Array:
    return np.array([_LIBM.erfl(value) for value in x], np.longdouble)


ORACLES: Mapping[str, Callable[..., Array]] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt")},
    **{n: getattr(np, n) for n in ("sinh", "cosh", "tanh", "floor", "ceil", "trunc")},
    **{n: getattr(np, f"arc{n[1:]}") for n in ("asinh", "acosh", "atanh")},
    **dict.fromkeys(("round", "nearbyint"), np.rint),
    "fabs": np.abs,
    "erf": erf,
    "exp10": lambda x: np.power(np.longdouble(10), x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
BINARY: Mapping[str, Callable[..., Array]] = {
    "pow": np.power,
    "hypot": np.hypot,
    "copysign": np.copysign,
}
#: The largest errors in ulp that are in the docstrings.
BOUNDS = {"float32": 1.5, "float64": 1.8}
EXACT = {"fabs", "floor", "ceil", "trunc", "round", "nearbyint", "copysign", "sqrt"}


def test_each_function_has_an_oracle() -> None:
    assert ORACLES.keys() | BINARY.keys() == MATHS


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def unary(request: pytest.FixtureRequest) -> tuple[Array, dict[str, Array]]:
    x = samples(request.param, 30 if request.param is np.float32 else 4)
    return x, evaluate(sorted(ORACLES), [x])


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_functions_of_one_number(name: str, unary: tuple[Array, dict[str, Array]]) -> None:
    x, found = unary
    with np.errstate(all="ignore"):
        exact = ORACLES[name](x.astype(np.longdouble))
    error = errors(found[name], exact)
    worst = int(np.argmax(error))
    bound = 0.5 if name in EXACT else BOUNDS[x.dtype.name]
    assert error[worst] <= bound, (x[worst], found[name][worst], exact[worst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_two_numbers(dtype: type[np.float32] | type[np.float64]) -> None:
    rng = np.random.default_rng(3)
    x = samples(dtype, 4)
    special = np.resize(x[:20], 400)
    small = np.round(rng.uniform(-300, 300, x.size)).astype(dtype)
    a = np.concatenate([x, special, np.abs(x), x])
    b = np.concatenate([rng.permutation(x), np.repeat(x[:20], 20), rng.permutation(x), small])
    for name, found in evaluate(sorted(BINARY), [a, b]).items():
        with np.errstate(all="ignore"):
            exact = BINARY[name](a.astype(np.longdouble), b.astype(np.longdouble))
        error = errors(found, exact)
        worst = int(np.argmax(error))
        bound = 0.5 if name in EXACT else 1.0
        assert error[worst] <= bound, (name, a[worst], b[worst], found[worst], exact[worst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_depend_neither_on_the_machine_nor_on_the_number_of_lanes(
    dtype: type[np.float32] | type[np.float64],
) -> None:
    x = samples(dtype, 1)
    names = sorted(ORACLES.keys() - EXACT)
    wide = evaluate(names, [x])
    for other in (evaluate(names, [x], 8, narrow()), evaluate(names, [x], 1)):
        for name in names:
            np.testing.assert_array_equal(wide[name], other[name], err_msg=name)
            np.testing.assert_array_equal(np.signbit(wide[name]), np.signbit(other[name]))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_single_precision_rounded(dtype: type[np.generic]) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    names = ["exp", "tanh", "floor", "log2", "fabs"]
    with np.errstate(all="ignore"):
        single = evaluate(names, [x.astype(np.float32)])
        for name, found in evaluate(names, [x]).items():
            expected = single[name].astype(dtype)
            same = found.view(np.uint16) == expected.view(np.uint16)
            assert (same | (np.isnan(found) & np.isnan(expected))).all(), name


def test_contraction_is_off_in_the_functions_only() -> None:
    module = Module(host().triple, host().vector_bits)
    function = module.function("f", [(Type("float"), "x")], Type("float"))
    (x,) = function.params
    function.ret(emit_maths(function, "exp", x) * x + x)
    lines = module.text().splitlines()
    assert [line for line in lines if "contract" in line] == lines[-5:-3]
