"""Kernels of tensor expressions compute on elements and scalars what was written: it wraps."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, te, tir
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.tir import transform
from tests.fuzz.seed import COUNT, SEED
from tests.fuzz.wrapping import Session

VALUES_EACH = 6


def kernel_of(expr: tir.PrimExpr, *atoms: tir.PrimExpr) -> tir.PrimFunc:
    """The kernel that computes `expr` of tensors of elements, and of scalars."""
    n = tir.Var("n", "int64")
    params = [
        te.placeholder((n,), str(atom.dtype)) if isinstance(atom, BufferLoad) else atom
        for atom in atoms
    ]

    def body(i: tir.Var) -> tir.PrimExpr:
        loads = {a: p[i] for a, p in zip(atoms, params, strict=True) if isinstance(a, BufferLoad)}
        return rewrite(expr, lambda node: loads[node] if isinstance(node, BufferLoad) else None)

    return te.create_prim_func([*params, te.compute((n,), body)])


def computed_as_written(seed: str, target: str) -> None:
    """Compare kernels of random expressions with NumPy's values of them."""
    session = Session(seed)
    session.leaves = [leaf for leaf in session.leaves if leaf in session.points.data]
    first, second = dict.fromkeys(session.leaves)
    atoms = session.points.atoms
    chosen = np.random.default_rng(len(seed)).permutation(len(atoms[first]))[:2000]
    is_scalar = isinstance(second, tir.Var)
    if is_scalar:  # one value in each call
        chosen = chosen[atoms[second][chosen] == atoms[second][chosen[0]]]
    x, y = atoms[first][chosen], atoms[second][chosen]
    for _ in range(VALUES_EACH):
        expr = session.number(session.chosen.choice(session.targets), 6)
        known = session.points.of(expr)
        inside = known.defined[chosen]
        if not inside.any():
            continue
        kernel = kernel_of(expr, first, second)
        module = IRModule({"main": kernel})
        for mod in (module, transform.Simplify()(module)):
            result = np.zeros(int(inside.sum()), str(expr.dtype))
            value = int(y[0]) if is_scalar else y[inside]
            relaxpy.compile(mod, target)["main"](x[inside], value, result)
            expected = known.numbers[chosen][inside]
            np.testing.assert_array_equal(result, expected, mod.script())


@pytest.mark.rule("PX-1")
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_kernels_of_data_compute_what_was_written(target: str, number: int) -> None:
    computed_as_written(f"fixed:{number}", target)


@pytest.mark.rule("PX-1")
@pytest.mark.parametrize("number", range(COUNT // 5))
@pytest.mark.parametrize("target", ["native", "numpy"])
def test_kernels_of_other_data_compute_what_was_written(target: str, number: int) -> None:
    print(f"RELAXPY_FUZZ_SEED={SEED}")
    computed_as_written(f"{SEED}:{number}", target)
