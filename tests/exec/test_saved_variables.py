"""Saved programs whose tables take one variable of a kernel for another run, or are refused."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.store.container import Container, Sections
from tests.fuzz.seed import COUNT, SEED
from tests.ir.relax.texts import module

PROGRAM = module("""
@kernel
def k(a: T.handle, b: T.handle, s: T.int64):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    for i, j in T.grid(n, m):
        with T.block("double"):
            v, w = T.axis.remap("SS", [i, j])
            t = T.float32(2)
            B[v, w] = A[v, w] * t
    for p in range(n):
        B[p, 0] = B[p, 0] + T.cast(s, "float32")

def main(x: f32[n, m]):
    return R.call_tir(cls.k, (x,), out_sinfo=f32[n, m], tir_vars=R.shape([3]))
""")


def with_reference(field: Any, old: int, new: int) -> Any:
    """A field of a node that refers to another node in place of one."""
    match field:
        case bool():
            return field
        case int():
            return new if field == old else field
        case list():
            return [with_reference(f, old, new) for f in field]
        case {"int": _} | {"prim": _} | {"dtype": _} | {"enum": _} | {"float": _}:
            return field
        case dict():
            return {name: with_reference(f, old, new) for name, f in field.items()}
        case _:
            return field


@pytest.mark.parametrize("target", ["native", "numpy"])
def test_a_variable_in_the_place_of_another(tmp_path: Path, target: str) -> None:
    path = tmp_path / "model.rxp"
    relaxpy.compile(PROGRAM, target).save(path)
    saved = Container.read(path)
    table = saved.content["module"]
    kinds = [kind[0] for kind in table["kinds"]]
    variables = [i for i, node in enumerate(table["nodes"]) if kinds[node[0]] == "tir.Var"]
    rng = random.Random(f"{SEED} {target}")
    refused = 0
    for _ in range(COUNT):
        old, new = rng.sample(variables, 2)
        nodes = [[kind, *with_reference(fields, old, new)] for kind, *fields in table["nodes"]]
        sections = Sections()
        for array in saved.arrays:
            sections.add(array)
        content = {**saved.content, "module": {**table, "nodes": nodes}}
        path.unlink()  # programs that were loaded have it mapped
        path.write_bytes(b"".join(Container.of(content, sections).chunks()))
        try:
            relaxpy.load_executable(path)["main"](np.ones((2, 3), "float32"))
        except RelaxpyError:
            refused += 1
    assert refused > COUNT // 3
