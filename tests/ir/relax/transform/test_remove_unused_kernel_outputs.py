"""RemoveUnusedKernelOutputs: kernels do not compute outputs that nothing uses."""

from __future__ import annotations

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import transform
from relaxpy.script import ir as I, relax as R, tir as T


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
    @I.ir_module
    class Model:
        @R.function
        def main(
            x: R.Tensor((2, 3, 4), "float32"),
            g: R.Tensor((3,), "float32"),
            v: R.Tensor((3,), "float32"),
        ):
            with R.dataflow():
                a = R.nn.batch_norm(x, g, g, g, v, axis=1, training=False)
                y = a[0]
                b = R.nn.batch_norm(y, g, g, g, v, axis=1, training=False)
                z = R.nn.relu(b[0])
                R.output(z)
            return z

    after = reduced(Model)
    assert outputs(after) == [1, 1, 1]
    check(Model, floats(2, 3, 4), floats(3), floats(3))
    ex = relaxpy.compile(Model, "numpy")
    assert len({row.kernel for row in ex.report()}) == 1


def test_some_of_several_outputs() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor(("n", 6), "float32")):
            with R.dataflow():
                a = R.split(x, 3, 1)
                y = (a[2], a[0])
                R.output(y)
            return y

    assert outputs(reduced(Model)) == [2]
    check(Model, floats(3, 6))


def test_outputs_that_are_used_as_a_tuple_stay() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((3, 6), "float32")):
            a = R.split(x, 2, 1)
            y = a[0]
            return (a, y)

    after = transform.LegalizeOps()(Model)
    assert transform.RemoveUnusedKernelOutputs()(after) is after


def test_an_output_that_another_statement_reads_stays() -> None:
    @I.ir_module
    class Model:
        @T.prim_func(private=True)
        def both(
            a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")
        ):
            for i in range(4):
                with T.block("b"):
                    vi = T.axis.spatial(4, i)
                    b[vi] = a[vi] * T.float32(2)
            for i in range(4):
                with T.block("c"):
                    vi = T.axis.spatial(4, i)
                    c[vi] = b[vi] * T.float32(3)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Model
            with R.dataflow():
                pair = R.call_tir(
                    cls.both, (x,), [R.Tensor((4,), "float32"), R.Tensor((4,), "float32")]
                )
                z = pair[1]
                R.output(z)
            return z

    assert transform.RemoveUnusedKernelOutputs()(Model) is Model
    check(Model, floats(4))


def test_a_kernel_that_may_fail_stays() -> None:
    @I.ir_module
    class Model:
        @T.prim_func(private=True)
        def both(
            a: T.Buffer((4,), "int32"), b: T.Buffer((4,), "int32"), c: T.Buffer((4,), "int32")
        ):
            for i in range(4):
                with T.block("b"):
                    vi = T.axis.spatial(4, i)
                    b[vi] = T.floordiv(1, a[vi])
            for i in range(4):
                with T.block("c"):
                    vi = T.axis.spatial(4, i)
                    c[vi] = a[vi] * 3

        @R.function
        def main(x: R.Tensor((4,), "int32")):
            cls = Model
            with R.dataflow():
                pair = R.call_tir(
                    cls.both, (x,), [R.Tensor((4,), "int32"), R.Tensor((4,), "int32")]
                )
                z = pair[1]
                R.output(z)
            return z

    assert transform.RemoveUnusedKernelOutputs()(Model) is Model
