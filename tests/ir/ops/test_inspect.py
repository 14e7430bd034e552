"""Properties of tensors: known ones are values, others are read when the program runs."""

import re
import textwrap

import numpy as np
import pytest

from relaxpy import IRModule, relax, tir
from relaxpy.errors import MisuseError, ParseError, RelaxpyError, RuntimeCheckError, StructInfoError
from relaxpy.exec.api.compile import compile
from relaxpy.ir import Op, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.script import from_source, relax as R
from tests.script.marked import check_marks

TARGETS = ("reference", "numpy")


def read(text: str) -> IRModule:
    module: IRModule = from_source(textwrap.dedent(text))
    assert_structural_equal(from_source(module.script()), module)
    return module


def calls(module: IRModule) -> list[str]:
    main = module["main"]
    assert isinstance(main, rx.Function)
    assert isinstance(main.body, rx.SeqExpr)
    values = [b.value for block in main.body.blocks for b in block.bindings]
    return [v.op.name.removeprefix("relax.inspect.") for v in values if isinstance(v, rx.Call)]


OPEN = """
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor, i: R.Prim("int64")):
            c = x.dtype.type_code
            b = x.dtype.bits
            l = x.dtype.lanes
            n = x.ndim
            d = x.shape[0]
            e = x.shape[i]
            s = x.strides[0]
            t = x.strides[i]
            o = x.byte_offset
            p = x.elem_offset
            return (c, b, l, n, d, e, s, t, o, p)
"""
INFOS = ["uint8", "uint8", "uint16", "int32", *["int64"] * 4, "uint64", "uint64"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [("bool", 1, 1), ("int8", 0, 8), ("float64", 2, 64), ("bfloat16", 4, 16), ("int4", 0, 4)],
)
def test_what_is_not_known_is_read_off_the_value(target, dtype, code, bits) -> None:
    array = np.zeros((3, 4, 5), relax.TensorStructInfo((), dtype).dtype.numpy())
    main = compile(read(OPEN), target)["main"]
    expected = (code, bits, 1, 3, 3, 4, 20, 5, 0, 0)
    for x in (array, np.zeros((6, 4, 10), array.dtype)[::-2, :, ::2]):  # strides are no matter
        found = main(x, 1)
        assert found == expected
        assert [np.asarray(v).dtype.name for v in found] == INFOS
    assert main(np.zeros((0, 7), array.dtype), 1)[3:] == (2, 0, 7, 7, 1, 0, 0)


def test_what_is_not_known_has_the_datatype_of_its_operator() -> None:
    module = read(OPEN)
    main = module["main"]
    assert isinstance(main, rx.Function)
    assert main.ret_struct_info is None or isinstance(main.ret_struct_info, rx.TupleStructInfo)
    sinfo = main.body.struct_info
    assert isinstance(sinfo, rx.TupleStructInfo)
    assert [f.dtype for f in sinfo.fields] == INFOS
    assert all(f.value is None for f in sinfo.fields)
    assert calls(module) == [
        *["tensor_dtype_code", "tensor_dtype_bits", "tensor_dtype_lanes", "tensor_ndim"],
        *["tensor_shape_i", "tensor_shape_i", "tensor_stride_i", "tensor_stride_i"],
        *["tensor_byte_offset", "tensor_elem_offset"],
    ]


def test_what_is_known_is_the_value_however_it_is_asked_for() -> None:
    written = read("""
        @I.ir_module
        class M:
            @R.function
            def main(x: R.Tensor(("n", 4, "m"), "float16")):
                a = x.dtype.type_code
                b = x.dtype.bits
                c = x.dtype.lanes
                d = x.ndim
                e = x.shape[-1]
                f = x.strides[0]
                g = x.byte_offset
                h = x.elem_offset
                return (a, b, c, d, e, f, g, h)
    """)
    called = read("""
        @I.ir_module
        class M:
            @R.function
            def main(x: R.Tensor(("n", 4, "m"), "float16")):
                a = R.inspect.tensor_dtype_code(x)
                b = R.inspect.tensor_dtype_bits(x)
                c = R.inspect.tensor_dtype_lanes(x)
                d = R.inspect.tensor_ndim(x)
                e = R.inspect.tensor_shape_i(x, 2)
                f = R.inspect.tensor_stride_i(x, 0)
                g = R.inspect.tensor_byte_offset(x)
                h = R.inspect.tensor_elem_offset(x)
                return (a, b, c, d, e, f, g, h)
    """)
    assert_structural_equal(written, called)
    assert calls(written) == []
    for target in TARGETS:
        found = compile(written, target)["main"](np.zeros((3, 4, 5), "float16"))
        assert found == (2, 16, 1, 3, 5, 20, 0, 0)


def test_numbers_in_python_stay_numbers_of_python() -> None:
    module = read("""
        @I.ir_module
        class M:
            @R.function
            def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor(ndim=2)):
                z = R.zeros((x.dtype.bits // x.ndim, *x.strides), x.dtype)
                for k in range(y.ndim):
                    z = R.exp(z)
                return (z, *y.shape)
    """)
    sinfo = module["main"].body.struct_info
    assert sinfo.fields[0] == rx.TensorStructInfo((16, 4, 1), "float32")
    assert calls(module) == [*["relax.zeros", "relax.exp", "relax.exp"], *["tensor_shape_i"] * 2]


@pytest.mark.parametrize("target", TARGETS)
def test_properties_are_operands_and_of_expressions_too(target: str) -> None:
    module = read("""
        @I.ir_module
        class M:
            @R.function
            def main(x: R.Tensor, y: R.Tensor(("n", 4)), i: R.Prim("int64")):
                dtype = x.dtype
                a = x.shape[0] * R.concat((x, x)).shape[0] + 1
                b = dtype.bits == 32
                c = y.shape[i]
                d = y.strides[y.shape[0]]
                return (a, b, c, d, y.dtype.bits)
    """)
    main = compile(module, target)["main"]
    x, y = np.zeros((3, 2), "float32"), np.zeros((1, 4), "int8")
    assert main(x, y, 0) == (19, True, 1, 1, 8)
    assert main(x, y, 1) == (19, True, 4, 1, 8)
    for axis in (2, -1):
        with pytest.raises(RuntimeCheckError, match=f"axis {axis} is out of range for an int8"):
            main(x, y, axis)
    with pytest.raises(RuntimeCheckError, match="axis 0 is out of range"):
        main(np.zeros((), "float32"), y, 0)


@pytest.mark.rule("DER-36")
def test_what_has_no_meaning_is_refused_where_it_stands() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor, y: R.Tensor(("n", 4)), z: R.Tensor(ndim=3), s: R.Shape(["n"])):
            a = x.shape[1.5]
            #           ^^^ the index of .shape is an integer, found 1.5
            b = x.shape[-1]
            #           ^^ axis -1 is counted from the end, but the rank is not known [DER-36]
            # hint: declare the rank with R.match_cast first
            c = y.shape[2]
            #           ^ axis 2 is out of range for rank 2 [DER-36]
            d = z.strides[-4]
            #             ^^ axis -4 is out of range for rank 3 [DER-36]
            e = x.shape[x]
            #           ^ relax.inspect.tensor_shape_i: axis is a scalar, found R.Tensor [DER-36]
            f = x.shape[1:]
            #           ^^ the index of .shape is an integer, found a slice
            g = x.dtype.code
            #           ^^^^ a datatype of a tensor has no attribute 'code'
            h = s.shape
            #   ^^^^^^^ only a tensor has .shape, found R.Shape([n])
            i = x.dtype == "float32"
            #   ^^^^^^^^^^^^^^^^^^^^ x.dtype is known only when the program runs
            # hint: compare its .type_code, .bits and .lanes, or declare it with R.match_cast first
            j = R.exp(x.shape)
            #         ^^^^^^^ relax.exp: expected a Relax expression, found a shape that is not
            # ... known while the program is
            # ... parsed [AST-15]
            # hint: name its sizes with R.match_cast first, or take R.shape_of
            for n in x.shape:
            #        ^^^^^^^ the rank of x is not known
            # hint: index it, or declare the rank with R.match_cast first
                pass
            return x
    """)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("tensor_ndim(s)", "tensor is a tensor, found R.Shape"),
        ("tensor_shape_i(x, 2)", "axis 2 is out of range for rank 2"),
        ("tensor_stride_i(x, -1)", "axis -1 is out of range for rank 2"),
        ("tensor_shape_i(y, -1)", "axis -1 is out of range: they are counted from 0"),
        ("tensor_shape_i(x, 0.5)", "the axis is an integer, found R.Prim"),
        ("tensor_shape_i(x)", "argument 'axis' is missing"),
    ],
)
def test_operators_refuse_what_has_no_such_property(call: str, message: str) -> None:
    with pytest.raises(RelaxpyError, match=re.escape(message)):
        read(f"""
            @R.function
            def main(x: R.Tensor((2, 4)), y: R.Tensor, s: R.Shape):
                return R.inspect.{call}
        """)


def test_a_size_that_is_read_when_the_program_runs_is_not_a_dimension() -> None:
    with pytest.raises(ParseError, match=r"found Call R.inspect.tensor_shape_i") as found:
        read("""
            @R.function
            def main(x: R.Tensor):
                return R.zeros((x.shape[0],), "float32")
        """)
    assert found.value.diagnostic.hint == (
        "name its sizes with R.match_cast first, or take R.shape_of"
    )


def test_expressions_have_the_same_properties_in_python() -> None:
    n = tir.Var("n", "int64")
    x = relax.Var("x", R.Tensor((n, 4), "float32"))
    found = [x.shape[0], x.shape[-1], *x.strides, x.ndim, x.dtype.bits, x.dtype.type_code]
    sinfos = [call.struct_info for call in (*found, x.dtype.lanes, x.byte_offset, x.elem_offset)]
    expected = ["n", "4", "4", "1", "2", "32", "2", "1", "0", "0"]
    assert [str(getattr(sinfo.value, "value", sinfo.value)) for sinfo in sinfos] == expected
    builder = BlockBuilder()
    with builder.function("main", [x]):
        known = builder.emit(x.shape[1])
        builder.emit_func_output(known)
    assert isinstance(builder.finalize()["main"].body.blocks[0].bindings[0].value, rx.PrimValue)

    unknown = relax.Var("y")
    assert unknown.shape[3].struct_info is None
    assert str(unknown.shape) == "y.shape"
    with pytest.raises(StructInfoError, match="axis 2 is out of range for rank 2"):
        x.shape[2]
    with pytest.raises(MisuseError, match=r"the index of .shape is an integer, found 1\.5"):
        x.shape[1.5]
    with pytest.raises(MisuseError, match="the rank of y is not known"):
        list(unknown.shape)
    with pytest.raises(MisuseError, match=r"y\.dtype is known only when the program runs"):
        assert unknown.dtype == "float32"
    with pytest.raises(StructInfoError, match=r"tensor is a tensor, found R\.Shape"):
        relax.Var("s", R.Shape).ndim  # noqa: B018


@pytest.mark.rule("DER-35")
def test_a_property_of_which_a_rule_of_the_user_knows_nothing_is_read_when_the_program_runs():
    ndim = Op.get("relax.inspect.tensor_ndim")
    rule = ndim.get_attr("FInferStructInfo")
    call = rx.Call(ndim, (rx.Constant(np.ones((2, 3))),))
    assert isinstance(BlockBuilder().normalize(call), rx.PrimValue)
    try:
        ndim.set_attr("FInferStructInfo", lambda call, ctx: rx.ObjectStructInfo())
        found = BlockBuilder().normalize(call)
    finally:
        ndim.set_attr("FInferStructInfo", rule)
    assert isinstance(found, rx.Call)
    assert found.struct_info == rx.ObjectStructInfo()
