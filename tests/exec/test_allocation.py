"""What is promised about the allocation of memory, and about checks that are left out."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.relax import get_pipeline
from relaxpy.relax.transform import DeadCodeElimination
from tests.ir.relax.texts import graph, module

X = np.array([1.0, 2.0, 3.0, 4.0], "float32")
WAYS: dict[str, dict[str, Any]] = {
    "numpy": {"target": "numpy", "relax_pipeline": "legalize"},
    "without passes": {"target": "numpy", "relax_pipeline": None},
    "explicit memory": {"target": "numpy", "relax_pipeline": get_pipeline("default_build")},
    "reference": {"target": "reference"},
}
ways = pytest.mark.parametrize("way", WAYS)

Huge = graph("""
def main(x: f32[4], s: R.Shape(["n"])):
    zeros = R.zeros(R.shape([n, 1048576, 1048576]), "float32")
    unused = R.exp(zeros)
    y = R.add(x, x)
    return y
""")


@pytest.mark.rule("OPT-12", "OPT-10")
@ways
@pytest.mark.parametrize("size", [16, 2**40])
def test_an_allocation_may_fail_and_may_be_left_out(way: str, size: int) -> None:
    shape = relaxpy.runtime.ShapeTuple((size,))
    with pytest.raises(RuntimeCheckError, match=r"\[PX-9\]"):
        relaxpy.compile(Huge, **WAYS[way])["main"](X, shape)
    np.testing.assert_array_equal(relaxpy.compile(Huge)["main"](X, shape), X + X)
    after = DeadCodeElimination()(Huge)
    np.testing.assert_array_equal(relaxpy.compile(after, **WAYS[way])["main"](X, shape), X + X)


Sizes = module("""
@kernel
def plus_size(a: T.handle, b: T.handle):
    n, m = (T.int64(), T.int64())
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    for i, j in SS(n, m):
        B[vi, vj] = A[vi] + T.cast(n * 10 + m, "float32")

def main(x: f32[n], s: R.Shape(["m"])):
    y = R.call_tir(cls.plus_size, (x,), out_sinfo=f32[n, m])
    return y
""")


@pytest.mark.rule("OPT-13")
@pytest.mark.parametrize("sizes", [(4, 2), (3, 1), (1, 5)])
def test_a_kernel_that_is_called_without_checks_knows_the_shape_variables(sizes) -> None:
    executable = relaxpy.compile(Sizes, "numpy")
    assert "plus_size_unchecked(" in executable.source
    n, m = sizes
    y = executable["main"](X[:n], relaxpy.runtime.ShapeTuple((m,)))
    np.testing.assert_array_equal(y, np.tile(X[:n, None] + (n * 10 + m), (1, m)))


Keeping = module("""
@impure
def main(x: f32[4]):
    a = R.add(x, x)
    b = R.call_packed("tests.allocation.keep", a, sinfo_args=f32[4])
    c = R.exp(x)
    d = R.add(c, b)
    e = R.multiply(d, d)
    return e
""")


@pytest.mark.rule("OPT-15", "OPT-11")
@ways
def test_a_packed_function_that_keeps_memory_changes_no_value_of_the_program(way: str) -> None:
    """What it kept may change later: of that nothing is promised."""
    kept = []

    def keep(a: Any) -> Any:
        kept.append(a)
        return a

    relaxpy.register_func("tests.allocation.keep", keep)
    try:
        run = relaxpy.compile(Keeping, **WAYS[way])["main"]
        for x in (X, X + 1, X - 3):
            expected = (np.exp(x) + (x + x)) ** 2
            np.testing.assert_allclose(run(x), expected, rtol=1e-5)
    finally:
        relaxpy.runtime.remove_global_func("tests.allocation.keep")
    assert len(kept) == 3


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("R.concat([R.ones((2 - n,), 'float32'), x])", [1, 5, 6]),
        ("R.sum(R.ones((2 - n,), 'float32'))", 1),
        ("R.concat([R.abs(R.ones((2 - n,), 'float32')), x])", [1, 5, 6]),
        ("R.concat([R.concat([R.ones((2 - n,), 'float32'), x]), x])", [1, 5, 6, 5, 6]),
        ("R.concat([R.ones((m,), 'float32'), x])", [1, 5, 6]),
        ("R.concat([R.zeros((k,), 'float32'), x])", [0, 5, 6]),
        ("R.sum(R.broadcast_to(R.strided_slice(x, [0], [1], [2]), (k,)))", 6),
        ("R.sum(R.exp(R.zeros((k, m), 'float32')))", 1),
        ("R.sum(R.ones((T.max(k, -3),), 'float32'))", 1),
        ("R.reshape(R.ones((m, m), 'float32'), (m * m,))", [1]),
        ("R.reshape(R.ones((m * m,), 'float32'), (m, m))", [[1]]),
        ("R.sum(R.ones((T.max(k, 0) * 2 - 1,), 'float32'))", 1),
    ],
)
def test_a_negative_size_is_refused_also_inside_a_group(value: str, result: Any, target) -> None:
    program = graph(
        f"def main(x: f32[2], s: R.Shape(['n', 'm']), k: R.Prim(value='k')):\n    return {value}"
    )
    main = relaxpy.compile(program, target)["main"]
    x = np.array([5, 6], "float32")
    np.testing.assert_array_equal(main(x, relaxpy.runtime.ShapeTuple((1, 1)), 1), result)
    with pytest.raises(RuntimeCheckError, match=r"of shape \(-1,.*\).*\[PX-9\]"):
        main(x, relaxpy.runtime.ShapeTuple((3, -1)), -1)
