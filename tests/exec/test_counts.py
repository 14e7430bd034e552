"""Sizes and shapes that cannot be are the same errors on all targets, with memory or without."""

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.relax.transform import LegalizeOps
from relaxpy.script import from_source
from relaxpy.tir import PrimFunc

TARGETS = ["reference", "numpy", *(["native"] if obstacle() is None else [])]
VALUES = {
    "R.sum(R.ones(R.shape([n * m]), 'float32'))": 0,
    "R.max(R.zeros(R.shape([n * m, 1]), 'int8'))": -128,
    "R.sum(R.abs(R.full(R.shape([2, n * m]), R.const(1, 'int16'), 'int16')))": 0,
    "R.argmax(R.zeros(R.shape([n * m * 4]), 'float32'))": None,
    "R.sum(R.broadcast_to(R.const(1, 'float32'), R.shape([n * m])))": 0,
    "R.mean(R.exp(R.ones(R.shape([n * m]), 'float64')))": None,
}
OVERFLOWS = [(2**32, 2**32), (2**62, 4), (2**63 - 1, 2), (3, 2**62)]


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("value", VALUES)
def test_the_shape_of_what_is_only_reduced_may_not_overflow(value: str, target: str) -> None:
    text = f"""
    @R.function
    def main(s: R.Shape(["n", "m"])):
        n = T.int64()
        m = T.int64()
        y = {value}
        return y
    """
    program = relaxpy.compile(relaxpy.IRModule({"main": from_source(text)}), target=target)
    for sizes in OVERFLOWS:
        with pytest.raises(RuntimeCheckError, match="PX-9"):
            program["main"](ShapeTuple(sizes))
    if VALUES[value] is not None:
        assert program["main"](ShapeTuple((0, 2**40))) == VALUES[value]
    assert program["main"](ShapeTuple((3, 2))).shape == ()


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "loops", ["for i in range(n * m)", "for i, j in T.grid(n, m)", "for i in T.parallel(n * 8 * m)"]
)
def test_the_number_of_iterations_of_a_kernel_may_not_overflow(loops: str, target: str) -> None:
    kernel = from_source(
        "@T.prim_func\ndef f(n: T.int64, m: T.int64, C: T.Buffer((1,), 'int64')):\n"
        f"    {loops}:\n        C[0] = C[0] + T.int64(1)\n"
    )
    run = relaxpy.compile(kernel, target=target)["f"]
    for sizes in OVERFLOWS:
        count = np.zeros(1, "int64")
        with pytest.raises(RuntimeCheckError, match="PX-9"):
            run(*map(np.int64, sizes), count)
        assert count[0] == 0
    run(np.int64(-(2**40)), np.int64(2**40), count)
    assert count[0] == 0
    run(np.int64(3), np.int64(2), count)
    assert count[0] in (6, 48)


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("inner", ["n // n", "n * 4 // n", "n * (n % n + 1)"])
def test_counts_inside_loops_without_iterations_are_not_divided(inner: str, target: str) -> None:
    kernel = from_source(
        "@T.prim_func\ndef f(n: T.int64, C: T.Buffer((1,), 'int64')):\n"
        f"    for i in range(n):\n        for j in T.parallel({inner}):\n"
        "            C[0] = C[0] + T.int64(1)\n"
    )
    run, count = relaxpy.compile(kernel, target=target)["f"], np.zeros(1, "int64")
    run(np.int64(0), count)
    assert count[0] == 0
    run(np.int64(2), count)
    assert count[0] > 0


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("n", "m", "found"),
    [
        (0, 2**63 - 1, "buffer"),
        (1, 2**63 - 1, "buffer"),
        (-1, 2**63 - 2, "buffer"),
        (-1, 2**63 - 1, "PX-9"),
        (-(2**63), 0, "PX-9"),
        (-(2**62), 2**62, "PX-9"),
        (2**63 - 1, 1 - 2**63, "PX-9"),
        (2**62, -(2**62) - 1, "PX-9"),
        (2**62, -(2**62), ""),
        (2**62 + 1, 2**62, ""),
    ],
)
def test_a_difference_is_exact(n: int, m: int, found: str, target: str) -> None:
    kernel = from_source(
        "@T.prim_func\ndef f(n: T.int64, m: T.int64, C: T.Buffer((1,), 'int64')):\n"
        "    for i in range(n, m):\n        C[0] = C[i + 2]\n"
    )
    run, count = relaxpy.compile(kernel, target=target)["f"], np.zeros(1, "int64")
    with pytest.raises(RuntimeCheckError, match=found) if found else nullcontext():
        run(np.int64(n), np.int64(m), count)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "value",
    ["R.reshape(x, s)", "R.broadcast_to(x, s)", "R.zeros(s, 'int8')", "R.full(s, R.const(1))"],
)
def test_shapes_that_no_tensor_has_are_refused(value: str, target: str) -> None:
    text = f"""
    @R.function
    def main(x: R.Tensor((6,), "float32"), s: R.Shape(ndim=2)):
        y = {value}
        return y
    """
    program = relaxpy.compile(relaxpy.IRModule({"main": from_source(text)}), target=target)
    for sizes in [(-1, -1), (-2, -3), (0, -1), (2**62, 4), (-(2**63), 2)]:
        with pytest.raises(RuntimeCheckError):
            program["main"](np.ones(6, "float32"), ShapeTuple(sizes))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.skipif(not hasattr(ml_dtypes, "uint1"), reason="new in ml_dtypes 0.6")
def test_integers_of_one_bit_are_not_truth_values(target: str) -> None:
    text = '@R.function\ndef main(x: R.Tensor((2,), "bool")):\n    return R.logical_not(x)\n'
    program = relaxpy.compile(relaxpy.IRModule({"main": from_source(text)}), target=target)
    assert program["main"](np.array([True, False])).tolist() == [False, True]
    with pytest.raises(RuntimeCheckError, match="its dtype is uint1, not bool"):
        program["main"](np.array([1, 0]).astype(ml_dtypes.uint1))


def test_loops_that_arrays_cannot_have_are_refused_on_numpy() -> None:
    kernel = from_source(
        "@T.prim_func\ndef f(n: T.int64, m: T.int64, C: T.Buffer((1,), 'int64')):\n"
        "    for i in range(n * m):\n        C[0] = C[0] + T.int64(1)\n"
    )
    with pytest.raises(RuntimeCheckError, match="a loop of 4611686018427387904 iterations"):
        relaxpy.compile(kernel, "numpy")["f"](np.int64(2**31), np.int64(2**31), np.zeros(1, "i8"))


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("target", TARGETS)
def test_the_partial_sums_of_many_sizes_may_not_overflow(target: str) -> None:
    names = [f"n{k}" for k in range(250)]
    declared = "".join(f"    {name} = T.int64()\n" for name in names)
    func = from_source(
        f"@R.function\ndef main(s: R.Shape({names})):\n{declared}"
        f"    return R.shape([{' + '.join(names)}])"
    )
    main = relaxpy.compile(relaxpy.IRModule({"main": func}), target=target)["main"]
    sizes = [*range(248)]
    assert main(ShapeTuple([*sizes, 0, 0])) == ShapeTuple((sum(sizes),))
    with pytest.raises(RuntimeCheckError, match="PX-9"):
        main(ShapeTuple([*sizes, 2**63 - 1, -(2**63)]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "value", ["R.concat(t, -1)", "R.concat([s, t[0], s, *[t[k] for k in range(1, 50)]], 1)"]
)
def test_tensors_of_many_different_sizes_are_joined_in_groups(value: str, target: str) -> None:
    tensors = ", ".join(f"R.Tensor((2, 'n{k}'), 'float32')" for k in range(50))
    func = from_source(
        f"@R.function\ndef main(s: R.Tensor((2, 1), 'float32'), t: R.Tuple({tensors})):\n"
        f"    return {value}"
    )
    mod = relaxpy.IRModule({"main": func})
    kernels = [f for f in LegalizeOps()(mod).functions.values() if isinstance(f, PrimFunc)]
    assert max(len(kernel.buffer_map) for kernel in kernels) <= 9
    s = np.full((2, 1), 50, "float32")
    t = [np.full((2, k % 3), k, "float32") for k in range(50)]
    joined = t if "t," in value else [s, t[0], s, *t[1:]]
    result = relaxpy.compile(mod, target=target)["main"](s, tuple(t))
    np.testing.assert_array_equal(result, np.concatenate(joined, 1))
