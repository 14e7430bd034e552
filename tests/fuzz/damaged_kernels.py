"""Saved kernels that are damaged are refused, or run without harm: `python -m ... [count] [seed]`.

Rows of the saved form are changed: variables and buffers are exchanged, and so are datatypes,
extents and kinds of loops; definitions disappear. What is read then is compiled for all targets and
called with arrays that lie between others. Nothing but an error of ours may come of it: no other
exception, no write beside the arrays, no crash and no call that cannot be interrupted.
"""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from typing import Any

import numpy as np

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.ir import load_json, save_json
from relaxpy.script import from_source
from tests.fuzz.batches import LongError, command_line, limited, run

KERNELS = [
    """
@T.prim_func
def kernel(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    for i, j in T.grid(6, 4):
        B[i, j] = T.max(A[i, j] + T.float32(1), T.float32(0)) * T.exp(A[5 - i, j])
""",
    """
@T.prim_func
def kernel(a: T.handle, b: T.handle, C: T.Buffer((4, 4), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (4, n), "float32")
    B = T.match_buffer(b, (n, 4), "float32")
    for i, j, k in T.grid(4, 4, n):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""",
    """
@T.prim_func
def kernel(A: T.Buffer((8,), "float32"), P: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for i in T.parallel(8):
        C[i] = A[P[i]]
    for i in T.vectorized(8):
        B[P[i]] = C[i] + T.Cast("float32", P[7 - i])
""",
    """
@T.prim_func
def kernel(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
    left = T.alloc_buffer((1,), "int64")
    left[0] = A[0] % T.int64(7)
    for i in range(8):
        B[i] = T.int64(0)
    while left[0] > T.int64(0):
        with T.LetStmt(left[0] // T.int64(2)) as half:
            if half < T.int64(8):
                B[half] = B[half] + A[left[0]]
            else:
                B[0] = half
        left[0] = left[0] - T.int64(1)
""",
    """
@T.prim_func
def kernel(a: T.handle, b: T.handle, scale: T.float32):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32", strides=(m, 1))
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        for j in range(m):
            with T.block("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                T.where(i + j < n + m - 1)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + T.if_then_else(vj < vi, A[vi, vj] * scale, A[vi, vj])
""",
    """
@T.prim_func
def kernel(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float16")):
    D = T.decl_buffer((4, 4), "float32", data=A.data)
    for i in T.unroll(4):
        B[T.Ramp(i * 4, 1, 4)] = T.Cast("float16x4", A[T.Ramp(i * 4, 1, 4)])
    for i in range(4):
        B[i * 4] = B[i * 4] + T.Cast("float16", D[i, 3 - i])
""",
]

NUMBERS = [
    -(1 << 63),
    -(1 << 31),
    -5,
    -1,
    0,
    1,
    2,
    3,
    5,
    9,
    17,
    1000,
    (1 << 31) - 1,
    1 << 40,
    (1 << 63) - 1,
]
DTYPES = [
    "int8",
    "int32",
    "int64",
    "uint8",
    "float16",
    "float32",
    "float64",
    "bool",
    "handle",
    "float32x4",
    "int4",
    "bfloat16",
    "void",
]
SCOPES = ["global", "shared", "local", ""]


def damaged(table: dict[str, Any], choose: random.Random) -> str:
    """Change a row, and return what was done."""
    kinds, rows = table["kinds"], table["nodes"]
    number = choose.randrange(len(rows))
    kind, *fields = rows[number]
    name, *names = kinds[kind]
    field = choose.randrange(len(fields))
    before, of_kind = fields[field], {}
    for other, row in enumerate(rows):
        of_kind.setdefault(row[0], []).append(other)

    def replaced(value: Any) -> Any:
        match value:
            case bool() | None | str():
                return value
            case int() if choose.random() < 0.7:  # a node of the same kind, or one of the same row
                return choose.choice(of_kind[rows[value][0]])
            case int():
                return choose.randrange(max(1, number))
            case {"int": _}:
                return {"int": choose.choice(NUMBERS)}
            case {"dtype": _}:
                return {"dtype": choose.choice(DTYPES)}
            case {"prim": _}:
                return {"prim": choose.choice(DTYPES)}
            case {"pointer": _}:
                return {"pointer": [choose.choice(DTYPES), choose.choice(SCOPES)]}
            case {"enum": [str() as of, _]}:
                return {"enum": [of, choose.randrange(5)]}
            case list() if value:
                place = choose.randrange(len(value))
                way = choose.randrange(4)
                if way == 0:
                    return [*value[:place], *value[place + 1 :]]
                if way == 1:
                    return [*value, value[place]]
                return [*value[:place], replaced(value[place]), *value[place + 1 :]]
            case _:
                return value

    rows[number][field + 1] = replaced(before)
    return f"{name}.{names[field]}: {before} -> {rows[number][field + 1]}"


def between(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> tuple[Any, Any]:
    """An array, and the memory in which it lies between others."""
    values = rng.integers(0, 4, shape).astype(dtype)
    memory = np.full(values.nbytes + 8192, 0xA5, np.uint8)
    array = memory[4096 : 4096 + values.nbytes].view(dtype).reshape(shape)
    array[...] = values
    return array, memory


def arguments(number: int, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Arguments of an undamaged kernel, and the memory around them."""
    shapes: list[list[Any]] = [
        [((6, 4), "float32")] * 2,
        [((4, 5), "float32"), ((5, 4), "float32"), ((4, 4), "float32")],
        [((8,), "float32"), ((8,), "int32"), ((8,), "float32")],
        [((8,), "int64")] * 2,
        [((3, 5), "float32"), ((3,), "float32")],
        [((16,), "float32"), ((16,), "float16")],
    ]
    pairs = [between(*case, rng) for case in shapes[number]]
    others = [np.float32(2)] if number == 4 else []
    return [*(array for array, _ in pairs), *others], [memory for _, memory in pairs]


def check(seed: str) -> Counter[str]:
    """What became of one damaged kernel."""
    choose, rng = random.Random(seed), np.random.default_rng(zlib.crc32(seed.encode()))
    number = choose.randrange(len(KERNELS))
    table = json.loads(save_json(relaxpy.IRModule({"kernel": from_source(KERNELS[number])})))
    for _ in range(choose.choice((1, 1, 2, 3))):
        damaged(table, choose)
    try:
        module = load_json(json.dumps(table))
    except RelaxpyError:
        return Counter(unread=1)
    found: Counter[str] = Counter()
    for target in ("numpy", "native", "reference"):
        values, memory = arguments(number, rng)
        try:
            with limited():
                relaxpy.compile(module, target)["kernel"](*values)
        except RelaxpyError:
            found["refused"] += 1
        except LongError:
            found["long"] += 1
        else:
            found["ran"] += 1
            for block in memory:
                assert (block[:4096] == 0xA5).all(), f"{target} wrote before an array"
                assert (block[-4096:] == 0xA5).all(), f"{target} wrote behind an array"
    return found


def main(count: int, seed: str) -> int:
    """Try `count` cases; the number of faults."""
    return run(__spec__.name, "damaged kernels", count, seed)


if __name__ == "__main__":
    command_line(check, main)
