"""Functions of maths on arrays, and their errors against extended precision."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.writer import I64, POINTER, Type
from relaxpy.exec.native.machine_code.machine import Machine, host
from relaxpy.exec.native.maths.by_name import emit_maths

ELEMENTS = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat"}
Array = np.ndarray[Any, Any]


def evaluate(
    names: Sequence[str], inputs: Sequence[Array], lanes: int = 16, machine: Machine | None = None
) -> dict[str, Array]:
    """The functions of arrays whose size is a multiple of `lanes`, compiled as one module."""
    machine = machine or host()
    module = machine.module()
    type = Type(ELEMENTS[inputs[0].dtype.name], lanes)
    for name in names:
        params = [(POINTER, f"x{n}") for n in range(len(inputs))]
        function = module.function(f"run_{name}", [*params, (POINTER, "out"), (I64, "n")])
        *sources, out, size = function.params

        def body(index: Any, name: str = name, out: Any = out, sources: Any = sources) -> None:
            f = out.function
            values = [f.load(type, f.element(source, index, type)) for source in sources]
            f.store(emit_maths(f, name, *values), f.element(out, index, type))

        function.loop(0, size, lanes, [], body)
        function.ret()
    library = compile_module(module, [f"run_{name}" for name in names], machine)
    arrays = [np.ascontiguousarray(x) for x in inputs]
    assert arrays[0].size % lanes == 0
    results = {}
    for name in names:
        results[name] = np.empty_like(arrays[0])
        pointers = [x.ctypes.data for x in (*arrays, results[name])]
        types = [ctypes.c_void_p] * len(pointers)
        run = ctypes.CFUNCTYPE(None, *types, ctypes.c_int64)(library[f"run_{name}"])
        run(*pointers, arrays[0].size)
    return results


def errors(found: Array, exact: Array) -> Array:
    """The distance of `found` from the exact values, in ulp of its format.

    It is infinite where one is a NaN, an infinity or a zero of a sign that the other is not. Zero
    and infinity count as found where the exact value rounds to them.
    """
    dtype = found.dtype.type
    limits = np.finfo(dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        ulp = np.spacing(np.minimum(np.abs(rounded), limits.max)).astype(np.longdouble)
        distance = np.abs(found.astype(np.longdouble) - exact) / ulp
        special = np.isnan(found) | ~np.isfinite(exact)
        distance = np.where(special, np.inf, distance)
        # Beyond the largest number, an ulp further is infinite.
        edge = np.isinf(found) & np.isfinite(exact) & (np.abs(rounded) >= limits.max)
        distance = np.where(edge, 1.0, distance)
        distance = np.where(np.signbit(found) != np.signbit(rounded), np.inf, distance)
        same = (found == rounded) & (np.signbit(found) == np.signbit(rounded))
        exactly = np.where(np.isfinite(rounded), distance, 0)
        both = np.isnan(found) & np.isnan(rounded)
        return np.where(both, 0, np.where(same, exactly, distance)).astype(np.float64)


SPECIALS = [
    *(0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0),
    *(1e-40, -1e-40, 1e-310, 1.5, -1.5, 2.5, 4.0, 88.73, -103.9, 709.79, -745.2, 1024.0),
]


def samples(dtype: type[np.float32] | type[np.float64], per_exponent: int) -> Array:
    """Random mantissas of all exponents and both signs, special and moderate numbers."""
    rng = np.random.default_rng(7)
    exponents, bits = (256, 23) if dtype is np.float32 else (2048, 52)
    upper = np.repeat(np.arange(2 * exponents, dtype=np.uint64) << np.uint64(bits), per_exponent)
    lower = rng.integers(0, 1 << bits, upper.size, dtype=np.uint64)
    every = (upper | lower).astype(np.uint32 if dtype is np.float32 else np.uint64).view(dtype)
    moderate = [rng.uniform(-b, b, 3000) for b in (1, 4, 20, 100, 800)]
    near_one = 1 + rng.standard_normal(2000) * 10.0 ** rng.uniform(-16, 0, 2000)
    with np.errstate(all="ignore"):
        rest = np.concatenate([SPECIALS, *moderate, near_one]).astype(dtype)
    values = np.concatenate([rest, every])
    return np.resize(values, -(-values.size // 16) * 16)
