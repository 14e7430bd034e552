"""Every operator of the registry reads back, with operands, attributes and struct infos."""

import pytest

from relaxpy.ir import IRModule, Op, assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.ops import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.printer import metadata
from tests.ir.ops.cases import CASES
from tests.ir.ops.variants import program

#: Read back in tests/ir/ops/test_inspect.py and in test_parse_distributed.py.
ELSEWHERE = ("relax.inspect.", "relax.dist.")


def read_back(module: IRModule) -> None:
    text = module.script()
    names = {"I": I, "R": R, "T": T, "metadata": metadata(module)}
    again = from_source(text, names)
    assert_structural_equal(module, again)
    assert again.script() == text


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize("operator", sorted({case.operator for case in CASES}))
def test_operators_read_back(operator: str):
    for case in CASES:
        if case.operator == operator:
            read_back(program(case))


CALLS_AND_EFFECTS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def k(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @T.prim_func(private=True)
    def twice(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Object:
        cls = Module
        a = R.call_tir(cls.k, (x,), out_sinfo=R.Tensor((4,), "float32"))
        b = R.call_tir_inplace(
            cls.twice, (a,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32")
        )
        b = R.call_tir_with_grad(
            cls.k, (b,), out_sinfo=R.Tensor((4,), "float32"), te_grad_name="k_grad"
        )
        b = R.call_tir_with_grad(
            cls.k, (b,), out_sinfo=R.Tensor((4,), "float32"), te_grad_name="k_grad",
            te_grad_kwargs={"k": T.float32(2), "axes": [0, 1], "how": "sum"},
        )
        d = R.call_dps_packed("f", (x, b), out_sinfo=R.Tensor((4,), "float32"))
        e = R.call_pure_packed("g", d, sinfo_args=(R.Object,))
        e = R.call_py_func("h", e, d, out_sinfo=R.Tensor((4,), "float32"))
        R.assert_op(c, x, format="no {}")
        R.print(d, e, format="{} {}")
        d = R.to_vdevice(d, "cuda:1")
        d = R.hint_on_device(d, R.cuda(1), memory_scope="shared")
        f = R.null_value()
        h = R.shape_of(d)
        return (e, f, h)
"""
MEMORY_AND_CLOSURES = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def k(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @R.function(private=True)
    def lifted(x: R.Tensor((4,), "float32"), y: R.Object) -> R.Tensor((4,), "float32"):
        return x

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), s: R.Tensor((2,), "int64")) -> R.Object:
        cls = Module
        a = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        b = R.memory.alloc_tensor(a, 0, R.shape([4]), "float32")
        c = R.builtin.alloc_tensor(R.shape([4]), "float32", 0, storage_scope="local")
        d = R.vm.alloc_storage(R.shape([16]), 0, "uint8")
        e = R.vm.alloc_tensor(d, 0, R.shape([4]), "float32")
        R.vm.call_tir_dyn(cls.k, (x, e, R.shape([4])))
        f = R.memory.view(e, R.shape([2, 2]))
        g = R.memory.ensure_zero_offset(f)
        h = R.builtin.stop_lift_params(x)
        i = R.make_closure(cls.lifted, (x,))
        j = R.invoke_closure(i, (h,), sinfo_args=R.Tensor((4,), "float32"))
        k = R.invoke_pure_closure(i, (j,), sinfo_args=R.Tensor((4,), "float32"))
        l = R.call_inplace_packed(
            "p", x, k, inplace_indices=[0], sinfo_args=R.Tensor((4,), "float32")
        )
        m = R.call_builtin_with_ctx("q", (l,), sinfo_args=R.Tensor((4,), "float32"))
        n = R.tensor_to_shape(s)
        w = R.ccl.allreduce(x, "sum", in_group=True)
        w = R.ccl.allgather(w, 1)
        w = R.ccl.broadcast_from_worker0(w)
        w = R.ccl.scatter_from_worker0(w, 1, axis=0)
        w = R.ccl.reduce_to_worker0(w)
        w = R.ccl.gather_to_worker0(w, 1, axis=0)
        w = R.ccl.reduce_scatter(w, 1)
        o = R.shape_to_tensor(n)
        R.memory.kill_tensor(b)
        R.memory.kill_storage(a)
        R.vm.kill_object(d)
        return (c, g, m, o)
"""


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize("text", [CALLS_AND_EFFECTS, MEMORY_AND_CLOSURES])
def test_operators_without_kernels_read_back(text: str):
    read_back(from_source(text))


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_no_operator_is_forgotten():
    read = {case.operator for case in CASES}
    for text in (CALLS_AND_EFFECTS, MEMORY_AND_CLOSURES):
        for func in from_source(text).functions_by_name.values():
            calls = (node for node in walk(func) if isinstance(node, rx.Call))
            read |= {call.op.name for call in calls if isinstance(call.op, Op)}
    assert {name for name in registered_ops() if not name.startswith(ELSEWHERE)} <= read
