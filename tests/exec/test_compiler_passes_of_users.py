"""Passes that programs of TVM bring along: lifted allocations, new functions, launch sizes."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typing_extensions import override

import relaxpy
from relaxpy import IRModule, relax, tir, transform
from relaxpy.ir import Op
from relaxpy.relax.expr_functor import PyExprMutator, mutator
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.script import ir as I, relax as R, tir as T
from relaxpy.target import Target

TARGETS = ("numpy", "native", "reference")


def lift(func: tir.PrimFunc) -> tuple[tir.PrimFunc, list[relax.TensorStructInfo]]:
    """The kernel that gets its buffers as parameters, and their struct info."""
    root = func.body.block
    params, buffer_map = list(func.params), dict(func.buffer_map)
    for buffer in root.alloc_buffers:
        params.append(tir.Var(f"var_{buffer.name}", "handle"))
        buffer_map[params[-1]] = buffer
    block = tir.Block([], [], [], "root", root.body, annotations=root.annotations)
    body = tir.BlockRealize([], True, block)
    lifted = tir.PrimFunc(params, body, func.ret_type, buffer_map, func.attrs)
    return lifted, [relax.TensorStructInfo(b.shape, b.dtype) for b in root.alloc_buffers]


@mutator
class LiftAllocations(PyExprMutator):
    """Kernels get the buffers that they allocate from their callers."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.lifted: dict[relax.GlobalVar, Any] = {}

    def transform(self) -> IRModule:
        for var, func in self.mod.functions_items():
            if isinstance(func, tir.PrimFunc):
                kernel, buffers = lift(func)
                self.lifted[var] = self.builder_.add_func(kernel, var.name_hint), buffers, func
        for var, func in self.builder_.get().functions_items():
            if isinstance(func, relax.Function):
                self.builder_.update_func(var, self.visit_expr(func))
        return relax.transform.DeadCodeElimination()(self.builder_.get())

    @override
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if call.op != Op.get("relax.call_tir") or call.args[0] not in self.lifted:
            return call
        kernel, buffers, before = self.lifted[call.args[0]]
        [result] = call.sinfo_args
        values = {}
        sinfos = [*(arg.struct_info for arg in call.args[1]), result]
        for param, sinfo in zip(before.params, sinfos, strict=True):
            dims = before.buffer_map[param].shape
            values |= dict(zip(dims, sinfo.shape.values, strict=True))
        values = {dim: value for dim, value in values.items() if isinstance(dim, tir.Var)}
        called = [
            relax.TensorStructInfo(
                [tir.stmt_functor.substitute(dim, values) for dim in buffer.shape.values],
                buffer.dtype,
            )
            for buffer in buffers
        ]
        both = relax.TupleStructInfo([result, *called])
        new = relax.Call(call.op, [kernel, *call.args[1:]], call.attrs, [both])
        return relax.TupleGetItem(self.builder_.emit(new), 0)


@I.ir_module
class CentredRows:
    """The kernel counts some sizes of buffers in int32; the caller counts in int64."""

    @T.prim_func(private=True)
    def centre(a: T.handle, b: T.handle):
        n, m = T.int64(is_size_var=True), T.int32(is_size_var=True)
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n, m), "float32")
        first = T.alloc_buffer((n,), "float32")
        twice = T.alloc_buffer((n, m * 2), "float32")
        for i in range(n):
            with T.block("first"):
                vi = T.axis.spatial(n, i)
                first[vi] = A[vi, 0]
        for i, j in T.grid(n, m):
            with T.block("centre"):
                vi, vj = T.axis.remap("SS", [i, j])
                twice[vi, vj * 2] = A[vi, vj] - first[vi]
        for i, j in T.grid(n, m):
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = twice[vi, vj * 2]

    @R.function
    def main(x: R.Tensor(("rows", "m"), "float32")) -> R.Tensor(("rows", "m"), "float32"):
        cls = CentredRows
        rows, m = T.int64(), T.int64()
        y = R.call_tir(cls.centre, (x,), out_sinfo=R.Tensor((rows, m), "float32"))
        return y


@pytest.mark.parametrize("target", TARGETS)
def test_allocations_of_kernels_are_lifted_into_their_callers(target: str) -> None:
    lifted = LiftAllocations(CentredRows).transform()
    assert "alloc_buffer" not in lifted.script()
    x = np.arange(12, dtype="float32").reshape(3, 4) ** 2
    assert_array_equal(relaxpy.compile(lifted, target=target)["main"](x), x - x[:, :1])


@I.ir_module
class Embedding:
    @R.function
    def embed(ids: R.Tensor(("n",), "int32"), table: R.Tensor((16, 8), "float16")) -> R.Tensor(
        ("n", 8), "float16"
    ):
        return R.take(table, ids, axis=0)


@transform.module_pass(opt_level=0, name="AttachAllocation")
class AttachAllocation:
    """Adds a function that allocates a tensor like the embeddings of some tokens."""

    def transform_module(self, mod: IRModule, _ctx: transform.PassContext) -> IRModule:
        sinfo = mod["embed"].ret_struct_info
        bb = relax.BlockBuilder(mod)
        with bb.function("alloc", []):
            shape = relax.ShapeExpr([5, sinfo.shape[-1]])
            dtype = sinfo.dtype.dtype
            tensor = relax.op.builtin.alloc_tensor(shape, dtype, runtime_device_index=0)
            bb.emit_func_output(bb.emit(tensor))
        return bb.finalize()


@pytest.mark.parametrize("target", TARGETS)
def test_the_datatype_of_a_type_of_elements_is_its_dtype(target: str) -> None:
    allocated = relaxpy.compile(AttachAllocation()(Embedding), target=target)["alloc"]()
    assert (allocated.shape, allocated.dtype) == ((5, 8), "float16")


@pytest.mark.parametrize(("kind", "threads"), [("cuda", 1024), ("metal", 256), ("vulkan", 256)])
def test_the_options_of_a_device_have_values_that_are_not_written(kind: str, threads: int) -> None:
    target = Target(kind)
    assert int(target.attrs["max_num_threads"]) == target.max_num_threads == threads
    assert min(512, target.attrs["max_num_threads"]) == min(512, threads)
    assert Target(f"{kind} -max_num_threads=64").attrs["max_num_threads"] == 64


class Crop(nn.Module):
    """The middle of images, by a scheduled kernel that describes its block in a branch."""

    def forward(self, image: nn.Tensor, height: int, width: int) -> nn.Tensor:
        n, _, h, w = image.shape
        top, left = (h - height) // 2, (w - width) // 2

        @T.prim_func
        def kernel(image: T.handle, out: T.handle, top: T.int64, left: T.int64):
            T.func_attr({"op_pattern": 8, "tir.noalias": True, "tir.is_scheduled": 1})
            n, c, h, w = T.int64(), T.int64(), T.int64(), T.int64()
            A = T.match_buffer(image, (n, c, h, w), "uint8")
            B = T.match_buffer(out, (n, c, height, width), "uint8")
            for b in T.thread_binding(n, thread="blockIdx.x"):
                for k in T.thread_binding(c, thread="blockIdx.y"):
                    for i, j in T.grid(height, width):
                        with T.sblock("crop"):
                            if i + top < h and j + left < w:
                                T.writes(B[b, k, i, j])
                                T.reads(A[b, k, i + top, j + left])
                                B[b, k, i, j] = A[b, k, i + top, j + left]

        sch = tir.Schedule(kernel)
        *_, i, j = sch.get_loops(sch.get_sblock("crop"))
        outer, inner = sch.split(i, factors=[2, None])
        columns, rest = sch.split(j, factors=[2, None])
        sch.reorder(outer, columns, inner, rest)
        rows, lanes = sch.split(sch.fuse(outer, columns), factors=[None, 2])
        sch.bind(rows, "threadIdx.y")
        sch.bind(lanes, "threadIdx.x")
        result = nn.Tensor.placeholder([n, 3, height, width], "uint8")
        return nn.op.tensor_ir_op(sch.mod["main"], "crop", [image, top, left], [result])


@pytest.mark.parametrize("target", TARGETS)
def test_a_module_crops_images_of_any_size(target: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.crop = Crop()

        def forward(self, image: nn.Tensor) -> nn.Tensor:
            return self.crop(image, 5, 7)

    mod, _ = Model().export_tvm({"forward": {"image": spec.Tensor([1, 3, "h", "w"], "uint8")}})
    ex = relaxpy.compile(mod, target=target)
    for h, w in ((5, 7), (9, 8), (6, 15)):
        image = np.random.default_rng(h).integers(0, 256, (1, 3, h, w), dtype="uint8")
        top, left = (h - 5) // 2, (w - 7) // 2
        expected = image[:, :, top : top + 5, left : left + 7]
        assert_array_equal(ex["forward"](image), expected)
