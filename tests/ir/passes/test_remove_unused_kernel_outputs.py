"""RemoveUnusedKernelOutputs: kernels do not compute outputs that nothing uses."""

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import transform
from tests.ir.relax.texts import graph, module


def reduced(mod: IRModule) -> IRModule:
    """The module after legalisation and the pass, which a second run does not change."""
    after = transform.RemoveUnusedKernelOutputs()(transform.LegalizeOps()(mod))
    assert transform.RemoveUnusedKernelOutputs()(after) is after
    return after


def outputs(mod: IRModule) -> list[int]:
    """The number of outputs of each kernel that `main` calls."""
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    infos = [v.sinfo_args[0] for v in values if isinstance(v, rx.Call)]
    return [len(i.fields) if isinstance(i, rx.TupleStructInfo) else 1 for i in infos]


def check(mod: IRModule, *args: np.ndarray) -> None:
    """The program returns what it returned before."""
    expected = relaxpy.compile(mod, "reference")["main"](*args)
    for target in ("numpy", "reference"):
        found = relaxpy.compile(reduced(mod), target, relax_pipeline=None)["main"](*args)
        for a, b in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def test_a_normalisation_has_one_output_if_the_moments_are_not_used() -> None:
    Model = graph("""
    def main(x: f32[2, 3, 4], g: f32[3], v: f32[3]):
        a = R.nn.batch_norm(x, g, g, g, v, axis=1, training=False)
        y = a[0]
        b = R.nn.batch_norm(y, g, g, g, v, axis=1, training=False)
        z = R.nn.relu(b[0])
        return z
    """)
    after = reduced(Model)
    assert outputs(after) == [1, 1, 1]
    check(Model, floats(2, 3, 4), floats(3), floats(3))
    ex = relaxpy.compile(Model, "numpy")
    assert len({row.kernel for row in ex.report()}) == 1


def test_some_of_several_outputs() -> None:
    Model = graph("""
    def main(x: f32[n, 6]):
        a = R.split(x, 3, 1)
        y = (a[2], a[0])
        return y
    """)
    assert outputs(reduced(Model)) == [2]
    check(Model, floats(3, 6))


def test_outputs_that_are_used_as_a_tuple_stay() -> None:
    Model = module("""
    def main(x: f32[3, 6]):
        a = R.split(x, 2, 1)
        y = a[0]
        return (a, y)
    """)
    after = transform.LegalizeOps()(Model)
    assert transform.RemoveUnusedKernelOutputs()(after) is after


def test_an_output_that_another_statement_reads_stays() -> None:
    Model = graph("""
    @kernel
    def both(a: f32[4], b: f32[4], c: f32[4]):
        for i in S(4):
            b[vi] = a[vi] * T.float32(2)
        for i in S(4):
            c[vi] = b[vi] * T.float32(3)

    def main(x: f32[4]):
        pair = R.call_tir(cls.both, (x,), [f32[4], f32[4]])
        z = pair[1]
        return z
    """)
    assert transform.RemoveUnusedKernelOutputs()(Model) is Model
    check(Model, floats(4))


def test_a_kernel_that_may_fail_stays() -> None:
    Model = graph("""
    @kernel
    def both(a: i32[4], b: i32[4], c: i32[4]):
        for i in S(4):
            b[vi] = T.floordiv(1, a[vi])
        for i in S(4):
            c[vi] = a[vi] * 3

    def main(x: i32[4]):
        pair = R.call_tir(cls.both, (x,), [i32[4], i32[4]])
        z = pair[1]
        return z
    """)
    assert transform.RemoveUnusedKernelOutputs()(Model) is Model
