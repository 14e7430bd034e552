"""What AppendInPlace does: the module before it, and after it."""

from relaxpy.relax.transform import AppendInPlace
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((1, 4), "float32"), past: R.Tensor(("n", 4), "float32")):
        row = R.exp(x)
        present = R.concat((past, row), axis=0)
        y = R.sum(present, axis=0)
        return (y, present)


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((1, 4), "float32"), past: R.Tensor(("n", 4), "float32")):
        R.func_attr({"relax.force_pure": True})
        n = T.int64()
        room = T.int64()
        reserved = R.call_packed(
            "relaxpy.growing.reserve", past, R.prim_value(0), R.prim_value(1),
            sinfo_args=R.Tensor(dtype="float32", ndim=2),
        )  # fmt: skip
        memory = R.match_cast(reserved, R.Tensor((room, 4), "float32"))
        results = After.main_appending(x, memory, R.prim_value(n))
        y = results[0]
        grown = results[1]
        present = R.call_packed(
            "relaxpy.growing.grown", grown, R.shape([n + 1, 4]),
            sinfo_args=R.Tensor((n + 1, 4), "float32"),
        )  # fmt: skip
        return (y, present)

    @R.function(private=True)
    def main_appending(
        x: R.Tensor((1, 4), "float32"),
        memory: R.Tensor(("room", 4), "float32"),
        n: R.Prim(value="n"),
    ):
        room = T.int64()
        n = T.int64(is_size_var=True)
        row = R.exp(x)
        written = R.call_tir_inplace(
            After.append, (memory, row), [0], R.Tensor((room, 4), "float32"), tir_vars=R.shape([n])
        )
        present = R.call_tir(
            After.first, (written,), R.Tensor((n + 1, 4), "float32"), tir_vars=R.shape([n])
        )
        y = R.sum(present, axis=0)
        return (y, written)

    @T.prim_func(private=True)
    def append(var_memory: T.handle, rows: T.Buffer((T.int64(1), T.int64(4))), n: T.int64):
        T.func_attr({"tir.noalias": True})
        room = T.int64()
        memory = T.match_buffer(var_memory, (room, T.int64(4)))
        for i, j in T.grid(T.int64(1), T.int64(4)):
            memory[n + i, j] = rows[i, j]

    @T.prim_func(private=True)
    def first(var_memory: T.handle, var_first: T.handle, n: T.int64):
        T.func_attr({"tir.noalias": True})
        room = T.int64()
        memory = T.match_buffer(var_memory, (room, T.int64(4)))
        first = T.match_buffer(var_first, (n + T.int64(1), T.int64(4)))
        for i, j in T.grid(n + T.int64(1), T.int64(4)):
            with T.block("first"):
                vi, vj = T.axis.remap("SS", [i, j])
                first[vi, vj] = memory[vi, vj]


step = AppendInPlace()
