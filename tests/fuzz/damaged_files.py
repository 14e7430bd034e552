"""Damaged files of executables and modules: `python -m tests.fuzz.damaged_files COUNT [SEED]`.

What is varied, each by itself:

- programs: of fixed and symbolic sizes, with weights, kernels, tuples, branches, closures, text and
  several functions; saved for the targets native and numpy, or as the JSON of a module;
- bytes: cut off, added, changed, exchanged, repeated, set to 0; the file is empty or another one;
- tables, with right hashes: values of other kinds, huge and negative numbers, deep lists; members
  that are absent, repeated or exchanged with others; rows of nodes as in `damaged_kernels.py`; text
  that is not JSON;
- how it is read: as it is, with `native_code` where a hash shows the damage, or by `load_json`.

What is read runs with arguments of the program. Nothing but an error of relaxpy may come of it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.store.container import HEADER
from relaxpy.ir import load_json, save_json
from relaxpy.script import from_source
from tests.fuzz.batches import LongError, command_line, limited, run
from tests.fuzz.damaged_kernels import damaged

PROGRAMS: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "weights": (
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 5), "float32"):
        with R.dataflow():
            y = R.matmul(x, R.const(W, "float32"))
            z = R.nn.relu(y)
            R.output(z)
        return z
""",
        [(3, 4)],
    ),
    "symbolic": (
        """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("double"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_tir(Module.double, (x,), out_sinfo=R.Tensor((n,), "float32"))
        z = R.concat((y, R.add(x, y)))
        return (z, R.shape([n, n + 1]), R.str("text"))
""",
        [(6,)],
    ),
    "branches": (
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 2), "float32"), t: R.Tensor((), "bool")):
        @R.function
        def inner(y: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            return R.add(y, x)

        if t:
            z = inner(x)
        else:
            z = Module.other(x)
        return z

    @R.function
    def other(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
        y = R.sum(R.nn.softmax(x, axis=-1), axis=[0], keepdims=True)
        return R.broadcast_to(y, (2, 2))
""",
        [(2, 2), ()],
    ),
}
WEIGHTS = np.arange(20, dtype="float32").reshape(4, 5)
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, "", "x", "float32", "main"),
    *([], {}, [[]], {"x": 1}, {"int": 2**70}, {"dtype": "int7"}, {"enum": ["A", 3]}),
    *([-1], [2**62, 2], {"float": "nan"}, [1] * 300),
]
TEXTS = ["NaN", "1e999", "{", '"', "[" * 3000 + "]" * 3000, "\\ud800", "\u00e9", "0" * 5000, ","]


@cache
def module_of(name: str) -> relaxpy.IRModule:
    """The module of a program."""
    from relaxpy.script import ir as I, relax as R, tir as T

    names = {"I": I, "R": R, "T": T, "W": WEIGHTS}
    found = from_source(PROGRAMS[name][0], names)
    assert isinstance(found, relaxpy.IRModule)
    return found


@cache
def saved(name: str, target: str) -> bytes:
    """The file of an executable."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "saved"
        relaxpy.compile(module_of(name), target).save(path)
        return path.read_bytes()


def arguments(name: str, rng: np.random.Generator) -> list[Any]:
    """Arguments of the program."""
    return [
        rng.integers(0, 4, shape).astype("float32") if shape else np.array(True)
        for shape in PROGRAMS[name][1]
    ]


def in_bytes(data: bytes, choose: random.Random) -> bytes:
    """The file with other bytes."""
    low, high = sorted(choose.randrange(len(data) + 1) for _ in range(2))
    near = choose.randrange(min(len(data), 200))
    return choose.choice(
        [
            lambda: data[:low],
            lambda: data[:near],
            lambda: data + data[:high],
            lambda: data[:low] + bytes(high - low) + data[high:],
            lambda: data[:low] + data[high:],
            lambda: data[:high] + data[low:],
            lambda: data[:near] + bytes([choose.randrange(256)]) + data[near + 1 :],
            lambda: data[:low] + bytes([choose.randrange(256)]) + data[low + 1 :],
            lambda: data[high:] + data[:high],
            lambda: choose.choice([b"", b"PK\x03\x04", b"{}", b"\x93relaxpy", data[:64]]),
        ]
    )()


def places(value: Any) -> list[tuple[Any, Any]]:
    """The members of all lists and dictionaries of a table: each container, and the key."""
    found, left = [], [value]
    while left:
        item = left.pop()
        keys = range(len(item)) if isinstance(item, list) else list(item)
        found += [(item, key) for key in keys]
        left += [item[key] for key in keys if isinstance(item[key], (list, dict))]
    return found


def in_table(table: Any, choose: random.Random) -> None:
    """Change one member of a table of JSON."""
    every = places(table)
    small = [place for place in every if len(place[0]) < 12]
    item, key = choose.choice(choose.choice([every, small or every]))
    other, name = choose.choice(every)
    match choose.randrange(6):
        case 0:
            del item[key]
        case 1 if isinstance(item, list):
            item.insert(key, item[key])
        case 2:
            item[key], other[name] = other[name], item[key]
        case 3 if isinstance(item[key], int):
            item[key] += choose.choice([-1, 1, 2**32])
        case _:
            item[key] = choose.choice(VALUES)


def in_text(text: str, choose: random.Random) -> str:
    """The text of a table with something that may not be JSON."""
    at = choose.randrange(len(text))
    return text[:at] + choose.choice(TEXTS) + text[at + choose.randrange(3) :]


def other_table(text: str, choose: random.Random, nodes: Callable[[Any], Any]) -> str:
    """The text of a table after some changes; `nodes` finds the table of its nodes."""
    if choose.random() < 0.2:
        return in_text(text, choose)
    table = json.loads(text)
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        try:
            if choose.random() < 0.5:
                damaged(nodes(table), choose)
            else:
                in_table(table, choose)
        except (LookupError, TypeError, ValueError, AttributeError):
            break  # it is no table any more
    try:
        return json.dumps(table)
    except (ValueError, RecursionError):  # it contains itself
        return text


def damaged_file(data: bytes, choose: random.Random) -> bytes:
    """The file with another table, which has the hash in the header."""
    magic, version, length, _ = HEADER.unpack(data[: HEADER.size])
    text = data[HEADER.size : HEADER.size + length].decode()
    table = other_table(text, choose, lambda table: table["content"]["module"]).encode(
        errors="surrogatepass"
    )
    header = HEADER.pack(magic, version, len(table), hashlib.sha256(table).digest())
    rest = data[HEADER.size + length :].lstrip(b"\0") if choose.random() < 0.1 else None
    if rest is None:  # sections begin at multiples of 64 bytes
        begin = -(-(HEADER.size + length) // 64) * 64
        rest = bytes(-(HEADER.size + len(table)) % 64) + data[begin:] if data[begin:] else b""
    return header + table + rest


def read(name: str, choose: random.Random) -> Any:
    """What is read of a damaged file, and whether it is an executable."""
    if choose.random() < 0.3:
        text = other_table(save_json(module_of(name)), choose, lambda table: table)
        found = load_json(text)
        if not isinstance(found, relaxpy.IRModule):
            return None
        return relaxpy.compile(found, choose.choice(("native", "numpy")))
    data = saved(name, choose.choice(("native", "numpy")))
    is_table = choose.random() < 0.7
    data = damaged_file(data, choose) if is_table else in_bytes(data, choose)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "damaged"
        path.write_bytes(data)
        return relaxpy.load_executable(path, native_code=not is_table and choose.random() < 0.5)


def check(seed: str) -> Counter[str]:
    """What became of one damaged file."""
    choose = random.Random(seed)
    name = choose.choice([*PROGRAMS])
    saved(name, "native")
    saved(name, "numpy")
    try:
        with limited():
            found = read(name, choose)
            if found is None:
                return Counter({"another object": 1})
            found["main"](*arguments(name, np.random.default_rng(0)))
            found.report()
    except RelaxpyError:
        return Counter(refused=1)
    except LongError:
        return Counter(long=1)
    return Counter(ran=1)


def main(count: int, seed: str) -> int:
    """Try `count` cases; the number of faults."""
    return run(__spec__.name, "damaged files", count, seed)


if __name__ == "__main__":
    command_line(check, main)
