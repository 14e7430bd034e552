"""Golden texts, written by hand: each is read, and printed as it was written."""

import pytest

from relaxpy.script.read import from_source

MODULE = """
# from relaxpy.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func(private=True)
    def dense(var_x: T.handle, w: T.Buffer((4, 2), "float32"), var_y: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 4))
        y = T.match_buffer(var_y, (n, 2))
        # with T.block("root"):
        for i, j, k in T.grid(n, 2, 4):
            with T.block("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(x[vi, vk], w[vk, vj])
                T.writes(y[vi, vj])
                with T.init():
                    y[vi, vj] = T.float32(0.0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]

    @R.function
    def main(
        x: R.Tensor(("n", 4), dtype="float32"), w: R.Tensor((4, 2), dtype="float32")
    ) -> R.Tensor(("n", 2), dtype="float32"):
        n = T.int64()
        cls = Module
        with R.dataflow():
            lv: R.Tensor((n, 2), dtype="float32") = R.call_tir(
                cls.dense, (x, w), out_sinfo=R.Tensor((n, 2), dtype="float32")
            )
            gv: R.Tensor((n, 2), dtype="float32") = lv
            R.output(gv)
        return gv
"""

GRAPH = """
# from relaxpy.script import relax as R, tir as T

@R.function(private=True, pure=False)
def main(
    x: R.Tensor(("n", "m"), dtype="float32"),
    flag: R.Tensor((), dtype="bool"),
    rest: R.Tuple(R.Tensor(("n * 2",), dtype="int8"), R.Object, R.Shape(["m", 4]), R.Tuple()),
    f: R.Callable((R.Tensor(dtype="float32", ndim=1),), R.Prim("int64"), False),
    s: R.Prim(value="k"),
) -> R.Object:
    R.func_attr({"relax.force_pure": True})
    n = T.int64()
    m = T.int64()
    k = T.int64()
    a: R.Shape([n, m]) = R.shape_of(x)
    b: R.Tensor((4, k)) = R.call_packed("my.func", x, scale=1.5, sinfo_args=(R.Tensor((4, k)),))
    if flag:
        c: R.Shape(ndim=2) = R.shape_of(b)
    else:
        d: R.Shape([n, m]) = R.shape_of(x)
        R.print(d)
        c: R.Shape(ndim=2) = d
    R.print(a, c, R.str("and"), format="{} {} {}")
    e: R.Tuple(R.Shape([n, m]), R.Shape(ndim=2)) = (a, c)
    g: R.Shape([n, m]) = e[0]
    h = R.match_cast(b, R.Tensor((k, k * 2), dtype="float32"))
    R.match_cast(x, R.Tensor((n, 4), dtype="float32"))

    @R.function
    def inner(y: R.Tensor((n,), dtype="float32")) -> R.Tensor((n,), dtype="float32"):
        return y

    i: R.Prim("int64") = f(R.const([1.0, "nan", "-inf", -0.0], "float32"))
    return (h, g, i, inner)
"""

KERNEL = """
# from relaxpy.script import tir as T

@T.prim_func
def main(
    A: T.Buffer((128,), "float32"),
    n: T.int64,
    B: T.Buffer((n, 4), "float16", scope="shared", align=16),
    p: T.handle,
) -> T.int32:
    T.func_attr({"layout": ["N", "C"], "sizes": {"a": 1, "b": T.int64(2)}})
    m = T.int32()
    C = T.match_buffer(p, (m, m * 2), "int8", strides=(m * 2, 1))
    # with T.block("root"):
    D = T.alloc_buffer((128,))
    for i in T.parallel(128, annotations={"pragma": 1}):
        with T.block("D"):
            v = T.axis.spatial(128, i)
            T.where(i < 100)
            T.reads(A[v])
            T.writes(D[v])
            T.block_attr({"hint": "fast"})
            D[v] = T.if_then_else(v < 64, T.exp(A[v]), T.max(A[v], T.float32(0.5)))
    for i in range(1, m):
        for j in T.unroll(4):
            with T.block("C"):
                v = T.axis.spatial((1, m), i)
                w = T.axis.reduce(T.int64(4), T.Cast("int64", j))
                T.reads()
                T.writes(C[v, 0:4])
                C[v, w] = T.int8(1)
    for t in T.thread_binding(32, thread="threadIdx.x"):
        if t < 4 and not t == 2:
            D[t] = T.float32("inf")
        elif t < 8:
            D[t] = A[t] / T.float32(2.0)
        else:
            T.evaluate(0)
    k: T.int32 = m // 2 % 3
    while k < 10:
        D[k] = T.float32(-1.0)
        T.call_extern("int32", "tick", k)
    assert k < m, "k is too large"
    return k
"""


@pytest.mark.parametrize("golden", [MODULE, GRAPH, KERNEL], ids=["module", "graph", "kernel"])
def test_a_program_is_printed_as_it_is_written(golden: str):
    text = golden.strip()
    program = from_source(text, check_well_formed=False)
    assert program.script() == text
    assert str(program) == text
    assert repr(program) == text
