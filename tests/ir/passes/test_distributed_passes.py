"""The passes for several devices: what the devices compute together is what one would compute."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import StructInfoError, TransformError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.ops import register, unregister
from relaxpy.ir.ops.definition.axis_rules import REDUCED
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, Placement
from relaxpy.relax.analysis import well_formed
from relaxpy.relax.distributed import transform
from relaxpy.relax.transform import DeadCodeElimination, LegalizeOps
from tests.ir.passes.before_after import stays
from tests.ir.relax.texts import module, pair
from tests.plugins.distributed.team import Team

WORKERS = 2
Array = np.ndarray[Any, Any]


def lowered(mod: IRModule) -> IRModule:
    """The program of each device."""
    for step in (
        transform.PropagateSharding(),
        LegalizeOps(),
        transform.LegalizeRedistribute(),
        transform.LowerGlobalViewToLocalView(),
        transform.LowerDistIR(),
        DeadCodeElimination(),
    ):
        mod = step(mod)
        assert well_formed(mod)
    return mod


def run_on_workers(mod: IRModule, *args: Any) -> list[Any]:
    """The results of `main` on all workers, of which only the first has the arguments."""
    main = relaxpy.compile(mod)["main"]
    others = [
        tuple(map(np.zeros_like, arg)) if isinstance(arg, tuple) else np.zeros_like(arg)
        for arg in args
    ]
    operands = zip(args, *[others] * (WORKERS - 1), strict=True)
    return Team(WORKERS).run(main, *map(list, operands))


def random(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype="float32") for shape in shapes]


Mlp = module("""
I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

def main(x: f32[6, 8], weights: R.Tuple(f32[8, 4], f32[4, 6])) -> f32[6, 6]:
    first = weights[0]
    a = R.matmul(x, first)
    b = R.add(a, R.const(2, "float32"))
    c = R.dist.annotate_sharding(R.nn.relu(b), device_mesh="mesh[0]", placement="S[1]")
    second = weights[1]
    d = R.matmul(c, second)
    return d
""")


def test_a_network_is_computed_on_two_devices() -> None:
    x, v, w = random((6, 8), (8, 4), (4, 6))
    expected = np.maximum(x.astype("float64") @ v + 2, 0) @ w
    mod = lowered(Mlp)
    for result in run_on_workers(mod, x, (v, w)):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert {"matmul11", "matmul2"} <= {var.name_hint for var in mod.functions}
    assert mod["main"].params[1].struct_info == Mlp["main"].params[1].struct_info


Halves = module("""
I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

@kernel
def halves(A: f32[8, 6], B: f32[4, 6], C: f32[4, 6]):
    for i, j in SS(4, 6, "first"):
        B[vi, vj] = A[vi, vj]
    for i, j in SS(4, 6, "second"):
        C[vi, vj] = A[vi + 4, vj]

def main(x: f32[8, 6], w: f32[6, 2]):
    parts = R.call_tir(cls.halves, (x,), out_sinfo=[f32[4, 6], f32[4, 6]])
    second = parts[1]
    y = R.dist.annotate_sharding(second, "mesh[0]", "S[1]")
    z = R.matmul(y, w)
    return z
""")


def test_a_kernel_is_split_along_axes_that_it_indexes_by_loops_alone() -> None:
    x, w = random((8, 6), (6, 2))
    mod = lowered(Halves)
    for result in run_on_workers(mod, x, w):
        np.testing.assert_allclose(result, x[4:] @ w, rtol=1e-5, atol=1e-5)
    shapes = [[int(n) for n in b.shape] for b in mod["halves1"].buffer_map.values()]
    assert shapes == [[8, 3], [4, 3], [4, 3]]


@pytest.mark.parametrize(
    ("size", "value", "message"),
    [
        (8, "A[vi + 4]", r"axis 0 of A, which is .*, cannot be split"),
        (4, "A[vi] + vi", "cannot be split"),
    ],
    ids=["a shifted index", "an index that is a value"],
)
def test_a_kernel_is_not_split_along_other_axes(size: int, value: str, message: str) -> None:
    Module = module(f"""
    I.module_global_infos({{"mesh": [R.device_mesh((2,), I.Range(0, 2))]}})

    @kernel
    def k(A: i32[{size}], B: i32[4]):
        for i in S(4, "k"):
            B[vi] = {value}

    def main(x: R.DTensor(({size},), "int32", "mesh[0]", "S[0]")):
        y = R.dist.call_tir(cls.k, (x,), out_sinfo=R.DTensor((4,), "int32", "mesh[0]", "S[0]"))
        return y
    """)
    with pytest.raises(TransformError, match=message):
        transform.LowerGlobalViewToLocalView()(Module)


@pytest.mark.parametrize(("op", "combine"), [("sum", np.sum), ("max", np.max)])
def test_partial_results_are_combined(op: str, combine: Any) -> None:
    mod = module(f"""
    I.module_global_infos({{"mesh": [R.device_mesh((2,), I.Range(0, 2))]}})

    def main(x: f32[3, 8]):
        y = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")
        return R.{op}(y, axis=1)
    """)
    (data,) = random((3, 8))
    for result in run_on_workers(lowered(mod), data):
        np.testing.assert_allclose(result, combine(data, axis=1), rtol=1e-5)


def test_a_reduction_of_a_user_is_combined_by_its_record() -> None:
    def total(call: relax.Call, bound: Callable[[Any], Any]) -> Any:
        return relax.op.sum(bound(relax.op.abs(*call.args)), call.attrs["axis"])

    @register(
        "test.norm",
        pure=True,
        legalize=lambda builder, call: total(call, builder.emit),
        partial=total,
        **REDUCED,
    )
    def norm(
        x: relax.TensorStructInfo, axis: int = 1, keepdims: bool = False
    ) -> relax.TensorStructInfo:
        """The sum of |x| along the second axis."""
        return relax.TensorStructInfo((4,), x.dtype)

    try:
        x, builder = relax.Var("x", relax.TensorStructInfo((4, 6), "float32")), relax.BlockBuilder()
        mesh, placement = DeviceMesh((WORKERS,), (0, 1)), Placement.from_text("S[1]")
        with builder.function("main", [x]):
            split = builder.emit(relax.op.dist.annotate_sharding(x, mesh, placement))
            builder.emit_func_output(builder.emit(norm(split)))
        mod = lowered(builder.get())
        assert "allreduce" in mod.script()
        assert "allgather" not in mod.script()
        (data,) = random((4, 6))
        for result in run_on_workers(mod, data):
            np.testing.assert_allclose(result, np.abs(data).sum(axis=1), rtol=1e-6)
    finally:
        unregister("test.norm")


def test_annotations_separate_what_is_on_different_meshes() -> None:
    Before, After = pair("""
    I.module_global_infos(
        {"mesh": [R.device_mesh((2,), I.Range(0, 2)), R.device_mesh((2,), I.Range(2, 4))]}
    )

    -def main(x: f32[4, 4], v: f32[4, 4]):
    +def main(
    +   x: R.DTensor((4, 4), "float32", "mesh[0]", "S[0]"),
    +   v: R.DTensor((4, 4), "float32", "mesh[1]", "S[1]"),
    +):
        a = R.exp(x)
    -   b = R.dist.annotate_sharding(a, "mesh[0]", "S[0]")
    -   c = R.exp(b)
    -   d = R.dist.annotate_sharding(c, "mesh[1]", "R")
    +   c = R.exp(a)
    +   d = R.dist.redistribute(c, "mesh[1]", "R")
        e = R.matmul(d, v)
    -   f = R.dist.annotate_sharding(e, "mesh[1]", "S[1]")
    -   return f
    +   return e
    """)
    assert_structural_equal(transform.PropagateSharding()(Before), After)
    with pytest.raises(TransformError, match="which is on another mesh"):
        transform.LegalizeRedistribute()(After)


def test_a_program_of_one_device_stays() -> None:
    Module = module("""
    def main(x: f32[4]):
        y = R.exp(x)
        return y
    """)
    for step in (
        transform.PropagateSharding(),
        transform.LegalizeRedistribute(),
        transform.LowerGlobalViewToLocalView(),
        transform.LowerDistIR(),
    ):
        stays(step, Module)


def annotated(first: str, second: str) -> IRModule:
    return module(f"""
    I.module_global_infos({{"mesh": [R.device_mesh((2,), I.Range(0, 2))]}})

    def main(x: f32[4, 4], y: f32[4, 4]):
        a = R.dist.annotate_sharding(x, "mesh[0]", "{first}")
        b = R.dist.annotate_sharding(y, "mesh[0]", "{second}")
        return R.add(a, b)
    """)


def test_annotations_that_contradict_each_other() -> None:
    with pytest.raises(TransformError, match=r"axes 0 and 1 of .* would both be split"):
        transform.PropagateSharding()(annotated("S[0]", "S[1]"))
    transform.PropagateSharding()(annotated("S[0]", "S[0]"))
    transform.PropagateSharding()(annotated("S[0]", "R"))


def test_a_tensor_that_no_annotation_reaches() -> None:
    Module = module("""
    I.module_global_infos(
        {"mesh": [R.device_mesh((2,), I.Range(0, 2)), R.device_mesh((2, 1), I.Range(0, 2))]}
    )

    def main(x: f32[4], y: f32[4]):
        a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
        b = R.dist.annotate_sharding(x, "mesh[1]", "R, R")
        c = R.exp(y)
        return (a, b, c)
    """)
    with pytest.raises(TransformError, match="nothing says on which of several meshes y is"):
        transform.PropagateSharding()(Module)


def test_a_tensor_of_unknown_rank_has_no_axis_to_split() -> None:
    Module = module("""
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    def main(x: R.Tensor("float32")):
        return R.dist.annotate_sharding(x, "mesh[0]", "S[1]")
    """)
    with pytest.raises(TransformError, match="axis 1 is split of a tensor of unknown rank"):
        transform.PropagateSharding()(Module)


def test_partial_results_are_not_forgotten() -> None:
    Module = module("""
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    def main(x: R.DTensor((4, 4), "float32", "mesh[0]", "S[1]")):
        y = R.sum(x, axis=1)
        return y
    """)
    with pytest.raises(TransformError, match="each device has a partial result"):
        transform.LowerDistIR()(Module)


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ('R.dist.redistribute(x, "mesh[0]", "R")', "LegalizeRedistribute"),
        (
            'R.dist.call_tir(cls.copy, (x,), R.DTensor((4,), "float32", "mesh[0]", "S[0]"))',
            "LowerGlobalViewToLocalView",
        ),
    ],
)
def test_what_works_on_whole_tensors_is_lowered_first(source: str, needed: str) -> None:
    mod = relaxpy.script.from_source(f"""
@I.ir_module
class Module:
    I.module_global_infos({{"mesh": [R.device_mesh((2,), I.Range(0, 2))]}})

    @T.prim_func(private=True)
    def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @R.function
    def main(x: R.DTensor((4,), "float32", "mesh[0]", "S[0]")):
        cls = Module
        y = {source}
        return y
""")
    with pytest.raises(TransformError, match=f"works on whole tensors(.|\n)*{needed} first"):
        transform.LowerDistIR()(mod)


def test_the_shard_of_a_distributed_tensor() -> None:
    mesh = relax.distributed.DeviceMesh((2,), [0, 1])
    whole = relax.TensorStructInfo((4, 6), "float32")
    x = relax.Var("x", relax.distributed.DTensorStructInfo(whole, mesh, "R"))
    split = relax.op.dist.redistribute_replica_to_shard(x, 2, -1)
    assert split.struct_info == relax.distributed.DTensorStructInfo(whole, mesh, "S[1]")
    with pytest.raises(StructInfoError, match="placed as R over 3 devices"):
        relax.op.dist.redistribute_replica_to_shard(x, 3, 1)
    with pytest.raises(StructInfoError, match="placed as R over 2 devices"):
        relax.op.dist.redistribute_replica_to_shard(relax.Var("y", split.struct_info), 2, 1)


Cached, CachedOnDevices = pair("""
I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

@impure
-def main(x: f32[3, 4, 8], cache: R.Object):
-   k = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")
+def main(x: R.DTensor((3, 4, 8), "float32", "mesh[0]", "S[1]"), cache: R.Object):
    later = R.call_packed(
-       "vm.builtin.attention_kv_cache_append", cache, k, sinfo_args=(R.Object,)
+       "vm.builtin.distributed.attention_kv_cache_append", cache, x, sinfo_args=(R.Object,)
    )
    rows = R.call_packed(
-       "vm.builtin.attention_kv_cache_view",
+       "vm.builtin.distributed.attention_kv_cache_view",
        later,
        R.shape([6, 4, 8]),
-       sinfo_args=(f32[6, 4, 8],),
+       sinfo_args=(R.DTensor((6, 4, 8), "float32", "mesh[0]", "S[1]"),),
    )
-   return R.exp(R.dist.annotate_sharding(rows, "mesh[0]", "S[1]"))
+   return R.exp(rows)
""")

CachedOnOneDevice = module("""
I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

@impure
def main(x: f32[3, 4, 8], cache: R.Object):
    k = R.ccl.scatter_from_worker0(x, num_workers=2, axis=1)
    later = R.call_packed(
        "vm.builtin.attention_kv_cache_append", cache, k, sinfo_args=(R.Object,)
    )
    rows = R.call_packed(
        "vm.builtin.attention_kv_cache_view",
        later,
        R.shape([6, 2, 8]),
        sinfo_args=(f32[6, 2, 8],),
    )
    return R.exp(rows)
""")


def test_caches_of_several_devices_have_parts_of_the_rows() -> None:
    distributed = DeadCodeElimination()(transform.PropagateSharding()(Cached))
    assert_structural_equal(distributed, CachedOnDevices)
    assert_structural_equal(transform.LowerDistIR()(distributed), CachedOnOneDevice)


def test_packed_functions_return_distributed_tensors() -> None:
    Before = module("""
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @impure
    def main(x: f32[4, 6]):
        y = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
        pair = R.call_packed("tests.pair", y, sinfo_args=(f32[4, 6], f32[4, 6]))
        return R.add(R.dist.annotate_sharding(pair[0], "mesh[0]", "S[0]"), pair[1])
    """)
    mod = transform.PropagateSharding()(Before)
    assert well_formed(mod)
    parts = transform.LowerDistIR()(mod)
    assert well_formed(parts)
    [call] = [
        binding.value
        for block in parts["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, relax.ExternFunc)
    ]
    assert [str(sinfo) for sinfo in call.sinfo_args] == ['R.Tensor((2, 6), dtype="float32")'] * 2
