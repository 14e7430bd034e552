"""Tensors that are spread over several devices: read, written, compared; no target runs them."""

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import CompileError, MisuseError, ParseError, StructInfoError
from relaxpy.ir import VDevice, load_json, save_json, structural_equal
from relaxpy.relax.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
    device_mesh,
)
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.printer import metadata
from tests.script.marked import check_line, rejected

MESH = DeviceMesh((2, 2), (0, 1, 2, 3))
MESH_OF_ONE = DeviceMesh((1,), (0,))


def spread(
    *shape: int | tir.Var, placement: str = "S[0], R", mesh: DeviceMesh = MESH
) -> DTensorStructInfo:
    whole = relax.TensorStructInfo(shape, "float32")
    return DTensorStructInfo(whole, mesh, Placement.from_text(placement))


@I.ir_module
class Spread:
    I.module_attrs({"device_num": 4})
    I.module_global_infos(
        {"mesh": [R.dist.device_mesh((2, 2), I.Range(0, 4)), R.dist.device_mesh((2,), [4, 5])]}
    )

    @R.function(private=True)
    def inner(x: R.DTensor(("n", 8), "float32", "mesh[0]", "S[0], R")) -> R.DTensor(
        ("n", 8), "float32", "mesh[0]", "S[0], R"
    ):
        return x

    @R.function
    def main(
        x: R.DTensor((4, 8), "float32", "mesh[0]", "S[0], R"),
        y: R.Tuple(R.DTensor(None, "int8", "mesh[1]", "R", ndim=3)),
        z: R.dist.DTensor((3,), None, R.dist.device_mesh((1,), [7]), "S[0]"),
    ) -> R.DTensor((4, 8), "float32", "mesh[0]", "S[0], R"):
        cls = Spread
        a = cls.inner(x)
        b = y[0]
        m, k = T.int64(), T.int64()
        c = R.match_cast(b, R.DTensor((m, k, 2), "int8", "mesh[1]", "R"))
        return a


def test_spread_tensors_are_read_and_written() -> None:
    x, y, z = (p.struct_info for p in Spread["main"].params)
    assert x == spread(4, 8)
    assert (x.dtype, x.ndim, x.shape.values[1]) == ("float32", 2, 8)
    assert y.fields[0].device_mesh == DeviceMesh((2,), (4, 5))
    assert y.fields[0].tensor_sinfo == relax.TensorStructInfo(dtype="int8", ndim=3)
    assert z.tensor_sinfo == relax.TensorStructInfo((3,), "")
    assert Spread["main"].body.blocks[0].bindings[0].var.struct_info == spread(4, 8)
    for copy in (from_source(Spread.script()), load_json(save_json(Spread))):
        assert structural_equal(copy, Spread)
    text = 'R.DTensor((4, 8), "float32", R.dist.device_mesh((2, 2), [0, 1, 2, 3]), "S[0], R")'
    assert str(x) == text
    assert Spread.global_infos["mesh"][0] == MESH


def test_a_mesh_that_the_module_lists_is_written_by_its_name() -> None:
    text = Spread.script()
    assert 'c = R.match_cast(b, R.DTensor((m, k, 2), "int8", "mesh[1]", "R"))' in text
    assert text.count("device_mesh") == 3, "two in the list, and one that it does not have"
    alone = Spread["main"].script()
    assert 'x: R.DTensor((4, 8), "float32", R.dist.device_mesh((2, 2), [0, 1, 2, 3])' in alone
    mesh, twin = DeviceMesh((100, 10), range(1000)), DeviceMesh((100, 10), range(999, -1, -1))
    builder = relax.BlockBuilder()
    x = relax.Var("x", spread(4, 8, mesh=mesh))
    with builder.function("main", [x]):
        moved = builder.emit(relax.op.dist.redistribute(x, twin, Placement.from_text("R, S[1]")))
        builder.emit_func_output(moved)
    infos = {"not a name": [mesh], "grids": [twin, mesh, mesh], "vdevice": [VDevice("llvm")]}
    module = IRModule(builder.get().functions, global_infos=infos)
    text = module.script()
    assert 'x, device_mesh="grids[0]", placement="R, S[1]"' in text
    assert 'x: R.DTensor((4, 8), "float32", "grids[1]", "S[0], R")' in text
    assert structural_equal(from_source(text), module)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_no_target_runs_them(target: str) -> None:
    with pytest.raises(CompileError, match="main has tensors spread over several devices"):
        relaxpy.compile(Spread, target)


def test_struct_infos_of_spread_tensors_are_ordered_as_those_of_whole_ones() -> None:
    n = tir.Var("n", "int64")
    known, vague = spread(4, 8), DTensorStructInfo(relax.TensorStructInfo(ndim=2), MESH, "S[0], R")
    base = relax.analysis.is_base_of
    assert base(vague, known)
    assert not base(known, vague)
    assert not base(spread(4, 8, placement="R, R"), known)
    assert not base(spread(4, 8, mesh=DeviceMesh((2, 2), (0, 1, 2, 4))), known)
    assert not base(relax.TensorStructInfo((4, 8)), known)
    assert not base(known, relax.TensorStructInfo((4, 8)))
    assert base(relax.ObjectStructInfo(), known)
    explain = relax.analysis.explain_incompatibility
    assert "dimension 1: 8 is not 9" in str(explain(spread(4, 8), spread(4, 9)))
    assert "placement S[0], R is not R, R" in str(explain(known, spread(4, 8, placement="R, R")))
    lca = relax.analysis.struct_info_lca(spread(4, 8), spread(4, 9))
    assert lca == DTensorStructInfo(
        relax.TensorStructInfo(dtype="float32", ndim=2), MESH, "S[0], R"
    )
    assert relax.analysis.struct_info_lca(known, relax.TensorStructInfo((4, 8))) == (
        relax.ObjectStructInfo()
    )
    assert relax.analysis.struct_info_glb(vague, spread(4, n)) == spread(4, n)
    assert relax.analysis.definable_shape_vars(spread(4, n)) == (n,)
    assert relax.analysis.free_shape_vars(spread(4, n)) == (n,)
    assert relax.analysis.shape_var_map(spread(4, n), spread(4, 9))[n] == 9
    assert relax.analysis.substitute_info(spread(4, n), {n: tir.IntImm("int64", 9)}) == spread(4, 9)
    assert relax.analysis.erase_to_well_defined(spread(4, n)).shape is None


def test_placements_are_read_and_written() -> None:
    placement = Placement((PlacementSpec.sharding(0), PlacementSpec.replica()))
    assert Placement.from_text("S[0], R") == placement
    assert str(placement) == "S[0], R"
    assert Placement.from_text("") == Placement(())
    assert device_mesh((2,), I.Range(3, 5)) == DeviceMesh((2,), (3, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeviceMesh((2, 2), (0, 1)), r"of shape \(2, 2\) has 4 devices, found 2"),
        (lambda: device_mesh((2,), I.Range(0, 4)), r"of shape \(2,\) has 2 devices, found 4"),
        (lambda: device_mesh((10**9,), I.Range(0, 10**9)), "at most 65536 devices"),
        (lambda: device_mesh((1,), I.Range(0, tir.Var("n", "int64"))), "of devices are constants"),
        (lambda: device_mesh((1,), I.Range(tir.Var("n"), 1)), "of devices are constants"),
        (lambda: DeviceMesh({2}, (0, 1)), "the shape of a mesh is a list"),  # type: ignore[arg-type]
        (lambda: DeviceMesh(2, (0, 1)), "the shape of a mesh is a list"),  # type: ignore[arg-type]
        (lambda: DeviceMesh((2, 0), ()), r"a mesh has at least one device .* found \(2, 0\)"),
        (lambda: DeviceMesh((2,), (0, -1)), "numbered from 0"),
        (lambda: PlacementSpec.sharding(-1), "an axis is an integer >= 0"),
        (lambda: Placement.from_text("S[x]"), "consists of R and S"),
        (lambda: Placement.from_text("R,"), "consists of R and S"),
        (lambda: Placement(("R",)), "a list of PlacementSpec"),  # type: ignore[arg-type]
        (lambda: spread(4, 8, placement="R"), "the mesh has 2 axes, the placement 1"),
        (lambda: spread(4, placement="S[1], R"), "of rank 1 has no axis 1 to split"),
        (
            lambda: DTensorStructInfo(relax.ShapeStructInfo(), MESH, "R, R"),
            "expected a TensorStructInfo",
        ),  # type: ignore[arg-type]
        (lambda: R.DTensor((4,), "float32"), "has a mesh of devices"),
        (lambda: R.DTensor((4,), "float32", MESH), "has a placement"),
        (lambda: relax.Var("x", R.DTensor((4,), "int8", "mesh[0]", "R")), "lists no mesh"),
    ],
)
def test_what_is_not_a_spread_tensor(make: Callable[[], object], message: str) -> None:
    with rejected(MisuseError, message):
        make()


def test_a_placement_of_another_mesh_is_what_the_error_is_about() -> None:
    with pytest.raises(MisuseError) as caught:
        spread(4, 8, placement="R")
    assert caught.value.about == Placement.from_text("R")


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ('R.DTensor((4,), "float32", "mesh[1]", "R")', r"the module lists no mesh 'mesh\[1\]'"),
        ('R.DTensor((4,), "float32", "vdevice[0]", "R")', r"lists no mesh 'vdevice\[0\]'"),
        ('R.DTensor((4,), "float32", "mesh[0]", "R, R")', "the mesh has 1 axes"),
        ('R.DTensor((4,), "float32", "mesh[0]", "S[1]")', "no axis 1 to split"),
        ('R.DTensor((4,), "float32", "mesh[0]", "Q")', "consists of R and S"),
        ('R.DTensor((4,), "float32", 3, "R")', "has a mesh of devices, found 3"),
    ],
)
def test_wrong_annotations_are_located(annotation: str, message: str) -> None:
    text = f"""
@I.ir_module
class Module:
    I.module_global_infos(
        {{"mesh": [R.dist.device_mesh((2,), [0, 1])], "vdevice": [I.vdevice("llvm")]}}
    )
    @R.function
    def main(x: {annotation}) -> R.Object:
        return x
"""
    check_line(text, 8, message, ParseError)


def test_another_placement_is_not_accepted() -> None:
    text = Spread.script().replace(
        'x: R.DTensor((4, 8), "float32", "mesh[0]", "S[0], R")',
        'x: R.DTensor((4, 8), "float32", "mesh[0]", "R, R")',
    )
    assert text != Spread.script()
    with pytest.raises(StructInfoError, match=r"placement R, R is not S\[0\], R"):
        from_source(text)
    assert isinstance(Spread, IRModule)


@I.ir_module
class Operators:
    I.module_global_infos(
        {"mesh": [R.device_mesh((2, 2), I.Range(0, 4)), R.dist.device_mesh((1,), [4])]}
    )

    @T.prim_func
    def copy(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j]

    @R.function
    def spread(x: R.DTensor((4, 8), "float32", "mesh[0]", "S[0], R")):
        cls = Operators
        a = R.dist.call_tir(cls.copy, x, R.DTensor((4, 8), "float32", "mesh[0]", "S[0], R"))
        b = R.dist.redistribute(a, "mesh[1]", "S[1]")
        c = R.dist.redistribute(b, device_mesh="mesh[0]", placement="R, R")
        out = R.DTensor((4, 8), "float32", "mesh[0]", "R, R")
        d = R.dist.call_tir_local_view(cls.copy, (c,), out_sinfo=out)
        return (b, d)

    @R.function
    def whole(x: R.Tensor((4, "n"), "float32")):
        y = R.dist.annotate_sharding(x, R.dist.device_mesh((2,), [0, 1]), "S[1]")
        z = R.dist.redistribute_replica_to_shard(y, 2, axis=0)
        return R.dist.redistribute_replica_to_shard(z, num_workers=2, axis=-1)


def test_the_namespace_of_spread_tensors_has_two_names() -> None:
    @R.function
    def f(x: R.Tensor((4, "n"), "float32")):
        return R.distributed.redistribute_replica_to_shard(x, 2, axis=0)

    assert R.distributed is R.dist
    assert "R.dist.redistribute_replica_to_shard(" in f.script()


def test_operators_on_spread_tensors_are_read_and_written() -> None:
    b, d = Operators["spread"].struct_info.ret.fields
    assert b == spread(4, 8, placement="S[1]", mesh=DeviceMesh((1,), (4,)))
    assert d == spread(4, 8, placement="R, R")
    sinfos = [b.var.struct_info for b in Operators["whole"].body.blocks[0].bindings]
    assert [str(i) for i in sinfos] == [
        'R.Tensor((4, n), dtype="float32")',
        'R.Tensor((2, n), dtype="float32")',
        'R.Tensor((2, n // 2), dtype="float32")',
    ]
    for copy in (from_source(Operators.script()), load_json(save_json(Operators))):
        assert structural_equal(copy, Operators)
    assert "redistribute" in dir(R.dist)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('R.dist.annotate_sharding(x, "mesh[5]", "R")', "the module lists no mesh"),
        ('R.dist.annotate_sharding(x, "mesh[0]", "R")', "the mesh has 2 axes, the placement 1"),
        ('R.dist.annotate_sharding(x, "mesh[0]", "S[7], R")', "no axis 7 to split"),
        ('R.dist.annotate_sharding(x, "mesh[0]", 3)', "placement is Placement, found 3"),
        (
            'R.dist.redistribute(x, "mesh[0]", "R, R")',
            r"input is a tensor over several devices, found R\.Tensor",
        ),
        (
            "R.dist.redistribute_replica_to_shard(x, 3, 0)",
            "is 4, which is not a multiple of 3 workers",
        ),
        ("R.dist.redistribute_replica_to_shard(x, 0, 0)", "num_workers is at least 1, found 0"),
        (
            "R.dist.call_tir_local_view(cls.f, (x,), R.Tensor((4,)))",
            r"outputs are tensors over several devices, found R\.Tensor",
        ),
        ("R.dist.shard(x)", r"R\.dist has no attribute 'shard'"),
        ("R.dist._words", "refused in text"),
    ],
)
def test_wrong_calls_are_located(call: str, message: str) -> None:
    text = f"""
@I.ir_module
class Module:
    I.module_global_infos({{"mesh": [R.dist.device_mesh((2, 2), [0, 1, 2, 3])]}})
    @T.prim_func
    def f(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        y[0] = x[0]
    @R.function
    def main(x: R.Tensor((4, "n"), "float32")):
        cls = Module
        return {call}
"""
    check_line(text, 11, message, (ParseError, StructInfoError))


def test_literals_can_be_spread_over_devices() -> None:
    large = np.arange(200, dtype="float32").reshape(50, 4)
    two = DeviceMesh((2,), (0, 1))
    module = from_source(
        """
        @I.ir_module
        class Module:
            @R.function
            def main() -> R.Object:
                x = R.dist.const([1, 2], R.DTensor((2,), "int8", mesh, "S[0]"))
                y = R.dist.const(large, R.DTensor((50, 4), "float32", mesh, "R"))
                z = R.const([1, 2], "int8")
                return (x, y, z)
        """,
        {"I": I, "R": R, "large": large, "mesh": two},
    )
    x, _, z = (b.value for b in module["main"].body.blocks[0].bindings)
    assert x.struct_info == DTensorStructInfo(relax.TensorStructInfo((2,), "int8"), two, "S[0]")
    assert x.data.dtype == "int8"
    assert x.data.tobytes() == z.data.tobytes()
    assert not structural_equal(x, z)
    assert not structural_equal(
        x, relax.Constant(x.data, DTensorStructInfo(z.struct_info, two, "R"))
    )
    names = {"I": I, "R": R, "T": T, "metadata": metadata(module)}
    for copy in (from_source(module.script(), names), load_json(save_json(module))):
        assert structural_equal(copy, module)


@pytest.mark.rule("DER-4")
def test_a_spread_literal_fits_its_struct_info() -> None:
    mesh = DeviceMesh((2,), (0, 1))
    for sinfo, message in [
        (relax.TensorStructInfo((2,), "int8"), "takes an R.DTensor"),
        (DTensorStructInfo(relax.TensorStructInfo((3,), "int8"), mesh, "R"), "DER-4"),
    ]:
        with rejected(MisuseError, message):
            R.dist.const([1, 2], sinfo)


def spread_function(text: str, placement: str) -> relax.Function:
    func = from_source(
        "@R.function\n"
        f'def f(x: R.DTensor((4,), "float32", mesh, "{placement}")) -> R.Object:\n'
        "    y = x\n"
        f"    return {text}\n",
        {"R": R, "mesh": MESH_OF_ONE},
    )
    assert isinstance(func, relax.Function)
    return func


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("text", ["R.flip(x, 0)", "R.cumsum(x, 0)", "R.nn.dropout(x)"])
def test_other_operators_take_whole_tensors_only(text: str) -> None:
    assert relax.analysis.well_formed(spread_function(text, "R"))
    message = r"<string>:4:\d+: relax.*DTensor.* has to be whole on every device"
    with pytest.raises(StructInfoError, match=message) as caught:
        spread_function(text, "S[0]")
    assert "R.dist.redistribute" in str(caught.value)


@pytest.mark.rule("DER-36")
def test_operators_on_tuples_refuse_spread_tensors() -> None:
    with pytest.raises(StructInfoError, match=r"<string>:4:\d+: relax.concat: .*DTensor"):
        spread_function("R.concat((x, x))", "R")


def test_the_range_of_consecutive_devices() -> None:
    assert structural_equal(DeviceMesh((2, 2), tir.Range(2, 6)).device_range, tir.Range(2, 6))
    assert structural_equal(MESH.device_range, tir.Range(0, 4))
    assert DeviceMesh((2,), (1, 0)).device_range is None
