"""What RewriteCUDAGraph does: the module before it, and after it."""

from relaxpy.relax.transform import RewriteCUDAGraph
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def exp(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = T.exp(x[i])

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"relax.force_pure": True})
        cls = Before
        s = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        a = R.memory.alloc_tensor(s, 0, R.shape([4]), "float32")
        cls.exp(x, a)
        t = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        b = R.memory.alloc_tensor(t, 0, R.shape([4]), "float32")
        cls.exp(a, b)
        c = R.builtin.alloc_tensor(R.shape([4]), "float32", 0)
        cls.exp(b, c)
        return c


@I.ir_module
class After:
    @T.prim_func(private=True)
    def exp(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = T.exp(x[i])

    @R.function(private=True)
    def cuda_graph_alloc() -> R.Tuple(R.Object, R.Object):
        R.func_attr({"relax.force_pure": True})
        s = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        t = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        storages = (s, t)
        return storages

    @R.function(private=True)
    def main_cuda_graph_capture(
        a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")
    ) -> R.Tuple():
        R.func_attr({"relax.force_pure": True})
        cls = After
        cls.exp(a, b)
        results = R.tuple()
        return R.tuple()

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"relax.force_pure": True})
        cls = After
        storages = R.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.get_cached_alloc",
            (cls.cuda_graph_alloc, R.prim_value(0)),
            sinfo_args=R.Tuple(R.Object, R.Object),
        )
        s = storages[0]
        a = R.memory.alloc_tensor(s, 0, R.shape([4]), "float32")
        cls.exp(x, a)
        t = storages[1]
        b = R.memory.alloc_tensor(t, 0, R.shape([4]), "float32")
        results = R.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.run_or_capture",
            (cls.main_cuda_graph_capture, (a, b), R.prim_value(0)),
            sinfo_args=R.Tuple(),
        )
        c = R.builtin.alloc_tensor(R.shape([4]), "float32", 0)
        cls.exp(b, c)
        return c


step = RewriteCUDAGraph()
