"""ForceNarrowIndexToInt32: variables, indices and shapes in 32 bits, and the same values."""

import warnings

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import TransformError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.tir.transform import ForceNarrowIndexToInt32


@T.prim_func
def wide(A: T.Buffer((T.int64(64),), "float32"), b: T.handle, n: T.int64):
    m = T.int64()
    B = T.match_buffer(b, (m,), "float32")
    x = T.env_thread("blockIdx.x")
    T.launch_thread(x, T.int64(2))
    for i in range(T.int64(32)):
        with T.block("copy"):
            vi = T.axis.spatial(T.int64(64), T.Cast("int64", x) * T.int64(32) + i)
            T.where(i * T.int64(2) < n)
            k: T.int64 = vi // T.int64(2)
            B[k] = T.Select(k <= n, A[k + n], T.Cast("float32", vi))


@T.prim_func
def narrow(A: T.Buffer((64,), "float32"), b: T.handle, n: T.int32):
    m = T.int32()
    B = T.match_buffer(b, (m,), "float32")
    x = T.env_thread("blockIdx.x")
    T.launch_thread(x, 2)
    for i in range(32):
        with T.block("copy"):
            vi = T.axis.spatial(64, x * 32 + i)
            T.where(i * 2 < n)
            k: T.int32 = vi // 2
            B[k] = T.Select(k <= n, A[k + n], T.Cast("float32", vi))


def test_variables_indices_and_shapes_become_narrow() -> None:
    mod = IRModule({"f": wide.without_attr("global_symbol")})
    after = ForceNarrowIndexToInt32()(mod)
    assert_structural_equal(after["f"], narrow.without_attr("global_symbol"))
    assert ForceNarrowIndexToInt32()(after) is after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Elements and large literals are computed in 64 bits, as calls of other arguments are.
        ('A[i] = T.Cast("int32", T.Cast("int64", A[i]) * i // T.int64(3))',
         'A[i] = T.Cast("int32", T.Cast("int64", A[i]) * T.Cast("int64", i) // T.int64(3))'),
        ('A[i] = T.Cast("int32", i + T.int64(1 << 40) >> T.int64(38))',
         'A[i] = T.Cast("int32", T.shift_right(T.Cast("int64", i) + T.int64(1099511627776), '
         "T.int64(38)))"),
        ("A[i] = T.clz(i)", 'A[i] = T.clz(T.Cast("int64", i))'),
        ('A[T.Cast("int64", A[i]) % T.int64(4)] = 1', "A[A[i] % 4] = 1"),
        ("A[T.ramp(i, T.int64(1), 2)] = T.broadcast(0, 2)", "A[i:i + 2] = T.Broadcast(0, 2)"),
    ],
)  # fmt: skip
def test_values_are_not_narrowed(before: str, after: str) -> None:
    head = '@T.prim_func\ndef f(A: T.Buffer((T.int64(4),), "int32"), i: T.int64):\n    '
    func = ForceNarrowIndexToInt32()(IRModule({"f": from_source(head + before)}))["f"]
    assert func.script().endswith(f'(A: T.Buffer((4,), "int32"), i: T.int32):\n    {after}')


def test_buffers_of_wide_integers_are_refused() -> None:
    text = '@T.prim_func\ndef f(A: T.Buffer((4,), "int64")):\n    A[0] = T.int64(1)'
    with pytest.raises(TransformError, match="buffer A holds int64"):
        ForceNarrowIndexToInt32()(IRModule({"f": from_source(text)}))


@I.ir_module
class Program:
    @T.prim_func(private=True)
    def rows(a: T.handle, b: T.handle, s: T.int64):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("b"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] + T.Cast("float32", s + v)

    @R.function
    def main(x: R.Tensor(("m", 4), "float32")):
        m = T.int64()
        cls = Program
        out = R.Tensor((m, 4), "float32")
        return R.call_tir(cls.rows, (x,), out_sinfo=out, tir_vars=R.shape([m]))

    @R.function
    def kernel(x: R.Tensor(("m", 4), "float32")):
        m = T.int64()
        cls = Program
        return (cls.rows, R.call_tir(cls.rows, (x,), R.Tensor((m, 4), "float32"), R.shape([m])))


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_callers_pass_narrow_integers(target: str) -> None:
    after = ForceNarrowIndexToInt32()(Program)
    assert relax.analysis.well_formed(after)
    x = np.ones((3, 4), "float32")
    want = x + np.arange(3, 6, dtype="float32")[:, None]
    lowered = relax.transform.CallTIRRewrite()(relax.transform.ToNonDataflow()(after))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered = relax.transform.Normalize()(lowered)
    for mod in (after, lowered):
        np.testing.assert_array_equal(relaxpy.compile(mod, target=target)["main"](x), want)
