"""The model as relaxpy reads it: four kernels, and the function that strings them together."""

from typing import cast

from relaxpy import IRModule
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Digits:
    """64 pixels to 32 hidden units to 10 probabilities, for any number `n` of pictures at once."""

    @T.prim_func(private=True)
    def dense(x: T.handle, w: T.handle, b: T.handle, y: T.handle) -> None:
        n, k, m = T.int64(), T.int64(), T.int64()
        X = T.match_buffer(x, (n, k), "float32")
        W = T.match_buffer(w, (k, m), "float32")
        B = T.match_buffer(b, (m,), "float32")
        Y = T.match_buffer(y, (n, m), "float32")
        for i, j, r in T.grid(n, m, k):
            with T.block("dense"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    Y[vi, vj] = B[vj]
                Y[vi, vj] = Y[vi, vj] + X[vi, vr] * W[vr, vj]

    @T.prim_func(private=True)
    def relu(x: T.handle, y: T.handle) -> None:
        n, m = T.int64(), T.int64()
        X = T.match_buffer(x, (n, m), "float32")
        Y = T.match_buffer(y, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.block("relu"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.max(X[vi, vj], T.float32(0))

    @T.prim_func(private=True)
    def softmax(x: T.handle, p: T.handle) -> None:
        n, m = T.int64(), T.int64()
        X = T.match_buffer(x, (n, m), "float32")
        P = T.match_buffer(p, (n, m), "float32")
        top = T.alloc_buffer((n,), "float32")
        powers = T.alloc_buffer((n, m), "float32")
        total = T.alloc_buffer((n,), "float32")
        for i, j in T.grid(n, m):
            with T.block("top"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    top[vi] = T.min_value("float32")
                top[vi] = T.max(top[vi], X[vi, vj])
        for i, j in T.grid(n, m):
            with T.block("powers"):
                vi, vj = T.axis.remap("SS", [i, j])
                powers[vi, vj] = T.exp(X[vi, vj] - top[vi])
        for i, j in T.grid(n, m):
            with T.block("total"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + powers[vi, vj]
        for i, j in T.grid(n, m):
            with T.block("share"):
                vi, vj = T.axis.remap("SS", [i, j])
                P[vi, vj] = powers[vi, vj] / total[vi]

    @T.prim_func(private=True)
    def argmax(p: T.handle, label: T.handle) -> None:
        n, m = T.int64(), T.int64()
        P = T.match_buffer(p, (n, m), "float32")
        L = T.match_buffer(label, (n,), "int64")
        top = T.alloc_buffer((n,), "float32")
        for i, j in T.grid(n, m):
            with T.block("best"):  # a later probability must be larger to take the place
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    L[vi] = T.int64(0)
                    top[vi] = T.min_value("float32")
                place: T.int64 = T.Select(top[vi] >= P[vi, vj], L[vi], vj)
                value: T.float32 = T.Select(top[vi] >= P[vi, vj], top[vi], P[vi, vj])
                L[vi] = place
                top[vi] = value

    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        w1: R.Tensor((64, 32), "float32"),
        b1: R.Tensor((32,), "float32"),
        w2: R.Tensor((32, 10), "float32"),
        b2: R.Tensor((10,), "float32"),
    ) -> R.Tuple(R.Tensor(("n", 10), "float32"), R.Tensor(("n",), "int64")):
        n = T.int64()
        cls = Digits
        with R.dataflow():
            before = R.call_tir(cls.dense, (x, w1, b1), out_sinfo=R.Tensor((n, 32), "float32"))
            hidden = R.call_tir(cls.relu, (before,), out_sinfo=R.Tensor((n, 32), "float32"))
            logits = R.call_tir(cls.dense, (hidden, w2, b2), out_sinfo=R.Tensor((n, 10), "float32"))
            probabilities = R.call_tir(
                cls.softmax, (logits,), out_sinfo=R.Tensor((n, 10), "float32")
            )
            labels = R.call_tir(cls.argmax, (probabilities,), out_sinfo=R.Tensor((n,), "int64"))
            R.output(probabilities, labels)
        return (probabilities, labels)


MODULE = cast("IRModule", Digits)
"""The module, for type checkers that take a decorated class for a class, as mypy does."""
