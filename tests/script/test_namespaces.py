"""I, R and T: what they hold, also where Python itself evaluates them."""

import inspect
import math

import pytest

from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.te.tensor import ProducerLoad
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.script.marked import rejected

LANES = (2, 4, 8, 16, 32, 64)
INTS = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)]
FLOATS = [
    *("float16", "float32", "float64", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn"),
    *("float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
]


@pytest.mark.parametrize("space", [I, R, T])
def test_every_public_name_is_there_and_documented(space: object) -> None:
    names = space.__all__  # type: ignore[attr-defined]
    assert len(set(names)) == len(names)
    for name in names:
        found = getattr(space, name)
        if inspect.isfunction(found):
            assert found.__doc__, name


def test_relu6_is_written_like_an_operator_and_is_a_call_of_clip() -> None:
    text = '@R.function\ndef main(x: R.Tensor((3,), "float32")):\n    return R.nn.relu6(x)\n'
    assert "R.clip(x, R.prim_value(0), R.prim_value(6))" in from_source(text).script()
    assert "relu6" in dir(R.nn)
    x = rx.Var("x", rx.TensorStructInfo((3,), "float32"))
    assert R.nn.relu6(x).struct_info == x.struct_info


@pytest.mark.parametrize("name", INTS + FLOATS)
def test_every_dtype_is_a_word(name: str) -> None:
    assert getattr(T, name)(1).dtype == name
    for lanes in LANES:
        assert getattr(T, f"{name}x{lanes}").dtype == f"{name}x{lanes}"


def test_words_of_dtypes() -> None:
    x = tir.Var("x", "int32")
    assert T.float32("inf").value == float("inf")
    assert str(T.float32("nan")) == 'T.float32("nan")'
    assert str(T.float32("-nan")) == 'T.float32("-nan")'
    assert math.copysign(1, T.float32("-nan").value) == -1
    assert T.int64(x).dtype == "int64"
    assert T.int32(x) is x
    assert T.bool(True).dtype == T.boolean(True).dtype == "bool"
    assert T.float32x4(1.0).dtype == "float32x4"
    assert isinstance(T.int64(), tir.Var)
    assert T.handle().dtype == "handle"
    pointer = T.handle("float32", "local").type_annotation
    assert (pointer.element_type.dtype, pointer.storage_scope) == ("float32", "local")
    with pytest.raises(MisuseError, match="'many' is not a value of float32"):
        T.float32("many")


def test_expressions_work_in_any_python_code() -> None:
    x, f = tir.Var("x", "int32"), tir.Var("f", "float32")
    assert str(T.max(x, 3)) == "T.max(x, 3)"
    assert str(T.exp(f, dtype="float32")) == "T.exp(f)"
    assert str(T.if_then_else(x < 3, x, 0)) == "T.if_then_else(x < 3, x, 0)"
    assert str(T.call_extern("g", x, dtype="int32")) == 'T.call_extern("int32", "g", x)'
    assert str(T.call_extern("int32", "g", x)) == 'T.call_extern("int32", "g", x)'
    assert str(T.Let(x + 1, where={x: 3})) == "T.Let(x + 1, where={x: 3})"
    assert str(T.bitwise_and(x, 3)) == "T.bitwise_and(x, 3)"
    assert str(T.bitwise_not(x)) == "T.bitwise_not(x)"
    assert str(T.nearbyint(f)) == "T.nearbyint(f)"
    assert T.cast(x, "int64").dtype == "int64"
    assert T.Cast("int8", x).dtype == "int8"
    assert str(T.ceildiv(x, 4)) == "(x + 4 - 1) // 4"
    assert T.ProducerLoad is ProducerLoad
    assert str(T.infinity("float32")) == 'T.float32("inf")'


def test_operators_are_those_of_the_registry() -> None:
    assert R.shape_of is registered_ops()["relax.shape_of"]
    for name in registered_ops():
        path = name.split(".")
        assert path.pop(0) == "relax"
        found: object = R
        for part in path:
            assert part in dir(found)
            found = getattr(found, part)
        assert found is registered_ops()[name]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = R.nothing


def test_annotations_are_struct_infos_where_python_evaluates_them() -> None:
    assert rx.as_struct_info(R.Tensor((4, 5), "float32")) == rx.TensorStructInfo((4, 5), "float32")  # type: ignore[arg-type]
    assert rx.as_struct_info(R.Tensor) == rx.TensorStructInfo(dtype="")
    assert rx.as_struct_info(R.Shape) == rx.ShapeStructInfo()
    assert rx.as_struct_info(R.Object) == rx.ObjectStructInfo()
    assert rx.as_struct_info(R.Tuple) == rx.TupleStructInfo(())
    assert rx.as_struct_info(R.Prim("int64")) == rx.PrimStructInfo("int64")
    sinfo = rx.as_struct_info(R.Callable((R.Tensor,), R.Shape))
    assert isinstance(sinfo, rx.FuncStructInfo)
    assert sinfo.purity
    assert rx.as_struct_info(R.Callable) == rx.FuncStructInfo.opaque_func()
    assert rx.Var("x", R.Tensor((4,), "int8")).struct_info == rx.TensorStructInfo((4,), "int8")  # type: ignore[arg-type]


def test_string_dimensions_wait_for_a_signature() -> None:
    annotation = R.Tensor(("n", 4), "float32")
    assert annotation.shape == ("n", 4)
    with pytest.raises(MisuseError, match="a meaning only in a signature"):
        rx.as_struct_info(annotation)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: R.Tensor(16), "a shape is a sequence"),
        (lambda: R.Tensor((4,), ndim=1), "not both"),
        (lambda: R.Tensor(ndim=-2), "ndim is"),
        (lambda: R.Tensor(ndim="2"), "ndim is"),
        (lambda: R.Tensor((True,)), "a dimension is"),
        (lambda: R.Tensor("float32", "int8"), "a shape is a sequence"),
        (lambda: R.Tensor(dtype="flaot"), "unknown dtype"),
        (lambda: R.Shape(5), "a list of dimensions"),
        (lambda: R.Shape([1], ndim=1), "not both"),
        (lambda: R.Prim(), "dtype or a value"),
        (lambda: R.Tuple(5), "expected a struct info"),
        (lambda: R.Callable((5,)), "expected a struct info"),
        (lambda: R.Callable((R.Tensor,), derive_func="empty_derive"), "not both"),
        (lambda: R.shape(5), "a list of dimensions"),
        (lambda: R.str(5), "expected a string"),
        (lambda: R.ExternFunc(5), "named by a string"),
        (lambda: R.func_attr([1]), "keyed by strings"),
        (lambda: T.func_attr({1: 2}), "keyed by strings"),
        (lambda: I.module_attrs(5), "keyed by strings"),
        (lambda: T.thread_binding(4), "names a hardware index"),
        (lambda: T.axis.spatial((1, 2, 3), 0), "an extent or"),
        (lambda: T.reads(5), "expected a region"),
        (lambda: T.Buffer(("n",)), "a dimension of a buffer"),
        (lambda: T.block(5), "named by a string"),
    ],
)
def test_misuse_is_refused_at_once(make: object, message: str) -> None:
    with rejected(MisuseError, message):
        make()  # type: ignore[operator]


def test_an_unknown_derivation_is_refused_at_once() -> None:
    with rejected(UnknownNameError, "no derivation is named 'mine'; there are default_derive"):
        R.Callable(derive_func="mine")


def test_a_buffer_annotation() -> None:
    spec = T.Buffer(16, "float32", scope="local", align=8)
    buffer = spec.create("A")
    assert (buffer.name, str(buffer.shape[0]), buffer.scope()) == ("A", "16", "local")
    assert buffer.data_alignment == 8
    assert T.Buffer((4,), T.int8).dtype == DataType("int8")


def test_records_hold_what_they_were_given() -> None:
    buffer = decl_buffer((4, 4), "float32", "A")
    regions = (buffer[0, 0], buffer[0:2, 1])
    assert T.reads(list(regions)).regions == T.reads(*regions).regions == regions
    form = T.grid(2, 3)
    assert [str(extent) for _, extent in form.bounds] == ["2", "3"]
    with pytest.raises(AttributeError):
        form.kind = 3  # type: ignore[misc]


def test_global_infos_of_a_module() -> None:
    mod = from_source(
        "@I.ir_module\nclass M:\n    I.module_global_infos({'vdevice': [1, 2]})\n"
        "    @R.function\n    def main(x: R.Tensor):\n        return x\n"
    )
    assert mod.global_infos == {"vdevice": (1, 2)}
