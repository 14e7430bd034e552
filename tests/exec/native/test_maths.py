"""The functions of maths, against extended precision and the special cases of NumPy."""

import ctypes
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
import pytest

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I64, POINTER, Type, Value
from relaxpy.exec.native.machine_code.machine import host, narrow
from relaxpy.exec.native.maths.by_name import MATHS, emit_maths
from tests.exec.native.oracle import ELEMENTS, Array, errors, evaluate, samples

_LIBM = ctypes.CDLL(None)
_LIBM.erfl.restype, _LIBM.erfl.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]


def erf(x: Array) -> Array:
    return np.array([_LIBM.erfl(value) for value in x], np.longdouble)


ORACLES: Mapping[str, Callable[..., Array]] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt")},
    **{n: getattr(np, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{n: getattr(np, n) for n in ("floor", "ceil", "trunc")},
    **{f"a{n}": getattr(np, f"arc{n}") for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
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
    "atan2": np.arctan2,
    "fmod": np.fmod,
}
#: The largest errors in ulp that are in the docstrings, but for functions whose errors are larger.
BOUNDS = {"float32": 1.69, "float64": 1.63}
LARGER = {"tanh": 1.98, "sigmoid": 1.71}
EXACT = {"fabs", "floor", "ceil", "trunc", "round", "nearbyint", "copysign", "sqrt", "fmod"}


def test_each_function_has_an_oracle() -> None:
    assert ORACLES.keys() | BINARY.keys() | {"nextafter", "ldexp"} == MATHS


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def unary(request: pytest.FixtureRequest) -> tuple[Array, dict[str, Array]]:
    x = samples(request.param, 16 if request.param is np.float32 else 2)
    return x, evaluate(sorted(ORACLES), [x])


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_functions_of_one_number(name: str, unary: tuple[Array, dict[str, Array]]) -> None:
    x, found = unary
    with np.errstate(all="ignore"):
        exact = ORACLES[name](x.astype(np.longdouble))
    error = errors(found[name], exact)
    worst = int(np.argmax(error))
    bound = 0.5 if name in EXACT else BOUNDS[x.dtype.name]
    if x.dtype == np.float32:
        bound = LARGER.get(name, bound)
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
        bound = 0.5 if name in EXACT else 1.02
        assert error[worst] <= bound, (name, a[worst], b[worst], found[worst], exact[worst])


def test_functions_are_as_exact_without_fused_products() -> None:
    """Their error terms and the reductions of arguments need products that are rounded once."""
    for dtype in (np.float32, np.float64):
        x = samples(dtype, 4 if dtype is np.float32 else 1)
        every = evaluate(sorted(ORACLES), [x], machine=host().strict())
        with np.errstate(all="ignore"):
            found = {n: errors(y, ORACLES[n](x.astype(np.longdouble))) for n, y in every.items()}
        worst = {name: error.max() for name, error in found.items()}
        assert max(worst.values()) <= max(LARGER.values()), worst
        assert all(worst[name] <= 0.5 for name in EXACT & worst.keys()), worst
    every = evaluate(["pow"], [x, x[::-1]], machine=host().strict())
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), x[::-1].astype(np.longdouble))
    assert errors(every["pow"], exact).max() <= 1.5


def test_bits_depend_neither_on_the_machine_nor_on_the_number_of_lanes(unary) -> None:
    x, wide = unary
    names = sorted(ORACLES.keys() - EXACT)
    for other in (evaluate(names, [x], 8, narrow()), evaluate(names, [x], 1)):
        for name in names:
            np.testing.assert_array_equal(wide[name], other[name], err_msg=name)
            number = ~np.isnan(wide[name])  # processors give NaN either sign
            np.testing.assert_array_equal(
                np.signbit(wide[name][number]), np.signbit(other[name][number]), err_msg=name
            )


@pytest.mark.parametrize("lanes", [4, 32])
def test_functions_of_tables_have_any_number_of_lanes(lanes: int) -> None:
    x = samples(np.float32, 4)
    x = x[: x.size // 32 * 32]
    wide = evaluate(["erf", "exp"], [x])
    for machine in (host(), narrow()):
        for name, found in evaluate(["erf", "exp"], [x], lanes, machine).items():
            np.testing.assert_array_equal(found, wide[name], err_msg=name)


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_limits_of_odd_functions_are_exact(name: str) -> None:
    x = np.float32([0, -0.0, 1e-45, -1e-45, 9.2, -9.2, 1e38, np.inf, -np.inf, np.nan] * 8)
    expected = np.float32([0, -0.0, 1e-45, -1e-45, 1, -1, 1, 1, -1, np.nan] * 8)
    found = evaluate([name], [x[:64]])[name]
    np.testing.assert_array_equal(found, expected[:64])
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected[:64]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_of_powers_of_the_base_are_exact(dtype: type[np.generic]) -> None:
    exponents = {"log2": np.arange(-144, 128), "log10": np.resize(np.arange(11), 32)}
    for name, expected in exponents.items():
        x = (np.longdouble(int(name[3:])) ** expected).astype(dtype)
        np.testing.assert_array_equal(evaluate([name], [x])[name], expected)


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_multiples_of_half_of_pi_leave_an_accurate_rest(dtype) -> None:
    hardest = 6381956970095103 * 2.0**797  # of all numbers, the nearest to a multiple of pi/2
    n = np.arange(1, 4001)
    parts = [
        n * np.pi / 2,
        n * 1e17 * np.pi,
        [hardest] * 16 if dtype is np.float64 else [1e30] * 16,
    ]
    x = np.concatenate(parts).astype(dtype)
    for name, found in evaluate(["sin", "cos", "tan"], [x]).items():
        error = errors(found, ORACLES[name](x.astype(np.longdouble)))
        assert error.max() <= 1.0, (name, x[np.argmax(error)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_the_next_number_is_that_of_numpy(dtype: type[np.generic]) -> None:
    with np.errstate(all="ignore"):
        x = samples(np.float32, 1).astype(dtype)
        y = np.random.default_rng(2).permutation(x)
        a, b = np.concatenate([x, x, x]), np.concatenate([y, x, -x])
        # Of equal numbers, C returns the second; NumPy does not for zeros in half precision.
        expected = np.where(a == b, b, np.nextafter(a, b))
    found = evaluate(["nextafter"], [a, b])["nextafter"]
    bits = f"u{found.itemsize}"
    same = (found.view(bits) == expected.view(bits)) | (np.isnan(found) & np.isnan(expected))
    assert same.all(), (a[~same][0], b[~same][0], found[~same][0], expected[~same][0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("integer", ["i8", "i32", "i64"])
def test_products_with_powers_of_two_are_rounded_once(dtype, integer) -> None:
    x = samples(dtype, 4)
    rng = np.random.default_rng(5)
    edges = [0, 1, -1, 127, -126, 1023, -1022, -1074, 2100, -2098, 2**31 - 1, -(2**31)]
    exponents = np.where(
        rng.random(x.size) < 0.2, rng.choice(edges, x.size), rng.integers(-2200, 2200, x.size)
    ).astype(f"int{integer[1:]}")
    module = Module(host().triple, host().vector_bits)
    type, kind = Type(ELEMENTS[x.dtype.name], 16), Type(integer, 16)
    pointers = [(POINTER, name) for name in ("x", "e", "out")]
    f = module.function("run", [*pointers, (I64, "n")])
    source, powers, out, size = f.params

    def body(index: Value) -> None:
        value, power = (
            f.load(t, f.element(p, index, t)) for t, p in ((type, source), (kind, powers))
        )
        f.store(emit_maths(f, "ldexp", value, power), f.element(out, index, type))

    f.loop(0, size, 16, [], body)
    f.ret()
    library = compile_module(module, ["run"])
    found = np.empty_like(x)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(library["run"])
    run(x.ctypes.data, exponents.ctypes.data, found.ctypes.data, x.size)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.ldexp(x, exponents.astype(np.int64)))
