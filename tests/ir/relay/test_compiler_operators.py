"""Operators that TVM's compiler inserts: their types, their texts, and what of them runs."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy import relay
from relaxpy.errors import RelaxpyError, RuntimeCheckError, TransformError
from relaxpy.tir import IndexMap
from tests.ir.relay.operator_checks import check

DATA = np.arange(2 * 8 * 3, dtype="float32").reshape(2, 8, 3)


def typed(text: str) -> relay.IRModule:
    """A module that also has the type of storage; its text reads back equal."""
    module = relay.IRModule()
    module.import_from_std("core.rly")
    module = relay.parse(text, init_module=module)
    assert str(relay.parse(module.astext())) == str(module)
    return module


LOWERED = """
def @kernel(%a: Tensor[(2,), float32], %b: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
  %a + %b * 2f
}
def @main(%x: Tensor[(2,), float32]) { call_lowered(@kernel, (%x, %x)) }
"""


def test_a_lowered_call_is_a_call() -> None:
    module = typed(LOWERED)
    assert str(module["main"].ret_type) == "Tensor[(2,), float32]"
    x = np.array([1, 2], "float32")
    functions = [relay.create_executor(kind, mod=module).evaluate() for kind in ("debug", "vm")]
    functions += [
        relaxpy.compile(relay.to_relax(module), target)["main"] for target in ("numpy", "native")
    ]
    assert all(function(x).tolist() == [3, 6] for function in functions)


def test_the_operands_of_a_lowered_call_fit_the_function() -> None:
    with pytest.raises(relay.RelayTypeError, match="call_lowered"):
        typed(LOWERED.replace("(%x, %x)", "(%x,)"))
    with pytest.raises(relay.RelayTypeError, match="expected a function, found"):
        typed(LOWERED.replace("call_lowered(@kernel", "call_lowered(%x"))


INVOKED = """
def @kernel(%a: Tensor[(2, 3), float32]) -> Tensor[(6,), float32] { reshape(%a, newshape=[6]) }
def @main(%x: Tensor[(2, 3), float32], %out: Tensor[(6,), float32]) {
  vm.invoke_tvm_op(@kernel, (%x,), (%out,))
}
"""
SHAPES = """
def @kernel(%a: Tensor[(2, 3), float32], %n: int64) -> Tensor[(?,), float32] {
  dyn.full(0f, reshape(%n, newshape=[1]), dtype="float32")
}
def @main(%a, %n, %out) {
  vm.shape_func(@kernel, (%a, %n), (%out,), is_input=[False, True])
}
"""
ALLOCATED = """
def @main() {
  let %storage = memory.alloc_storage(96i64, meta[relay.Constant][0], 64i64);
  memory.alloc_tensor(%storage, 0i64, meta[relay.Constant][0], assert_shape=[2, 3],
                      dtype="int32")
}
#[metadata]
{"relay.Constant": [{"dtype": "int64", "shape": [2], "data": "AgAAAAAAAAADAAAAAAAAAA=="}]}
"""


@pytest.mark.parametrize(
    ("text", "result", "arguments", "reason"),
    [
        (INVOKED, "()", (np.ones((2, 3), "float32"), np.ones(6, "float32")), "values"),
        (
            SHAPES,
            "()",
            (np.array([2, 3]), np.array(4), np.array([0])),
            "it writes its results into tensors that exist already",
        ),
        (ALLOCATED, "Tensor[(2, 3), int32]", (), "memory is not a value"),
    ],
)
def test_what_only_directs_a_machine_has_a_type_and_does_not_run(
    text: str, result: str, arguments: tuple[np.ndarray, ...], reason: str
) -> None:
    module = typed(text)
    assert str(module["main"].ret_type) == result
    with pytest.raises(RuntimeCheckError, match=reason):
        relay.create_executor(mod=module).evaluate()(*arguments)
    with pytest.raises(TransformError):
        relay.to_relax(module)


def test_shape_functions_take_shapes() -> None:
    types = [str(param.type_annotation) for param in typed(SHAPES)["main"].params]
    assert types == ["Tensor[(2,), int64]", "int64", "Tensor[(1,), int64]"]
    with pytest.raises(relay.RelayTypeError, match="is_input has 2 members"):
        typed(SHAPES.replace("[False, True]", "[True]"))


def test_storage_needs_its_type() -> None:
    with pytest.raises(relay.RelayTypeError, match=r'import_from_std\("core.rly"\)'):
        relay.parse(ALLOCATED)
    with pytest.raises(relay.RelayTypeError, match="const_shape or assert_shape"):
        typed(ALLOCATED.replace("assert_shape=[2, 3],", ""))


def test_markers_run_as_their_operand() -> None:
    check("debug", (DATA,), DATA)
    module = typed("def @main(%x: Tensor[(2,), float32]) { memory.kill(%x) }")
    assert relay.create_executor(mod=module).evaluate()(np.ones(2, "float32")) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('fn(%x: float32) { torch_op(%x, %x, serialized_function="gASV", len=4) }', "pickled"),
        ('parser.MetaRef(node_type_key="relay.Constant", node_index=0)', r"write meta\[kind\]"),
    ],
)
def test_operators_of_other_systems_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError, match=reason):
        relay.parse(text)


def test_variadic_operators_have_makers() -> None:
    x = relay.var("x", "float32")
    call = relay.torch_op(x, x, x, serialized_function="gASV")
    assert len(call.args) == 3
    assert call.attrs["len"] == 0


# Layouts


def test_axes_are_split_and_moved() -> None:
    call = 'auto_scheduler_layout_transform(%0, src_layout="2N8C3W", dst_layout="2N2C3W4c")'
    check(call, (DATA,), DATA.reshape(2, 2, 4, 3).transpose(0, 1, 3, 2))
    call = 'meta_schedule_layout_transform(%0, index_map="lambda n, c, w: (w, n * 8 + c)")'
    check(call, (DATA,), DATA.transpose(2, 0, 1).reshape(3, 16))


def test_layouts_may_be_index_maps() -> None:
    x = relay.var("x", shape=(2, 8, 3))
    for index_map in (lambda n, c, w: (c, w, n), IndexMap.from_func(lambda n, c, w: (c, w, n))):
        call = relay.meta_schedule_layout_transform(x, index_map)
        function = relay.create_executor().evaluate(relay.Function([x], call))
        assert function(DATA).tolist() == DATA.transpose(1, 2, 0).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('auto_scheduler_layout_transform(%x, src_layout="2N", dst_layout="2N")', "the sizes of"),
        (
            'auto_scheduler_layout_transform(%x, src_layout="2N8C3W", dst_layout="2N3C3W2c")',
            "dst_layout splits the axes",
        ),
        (
            'auto_scheduler_layout_transform(%x, src_layout="NCW", dst_layout="2N8C3W")',
            "sizes and names in turn",
        ),
        ('meta_schedule_layout_transform(%x, index_map="lambda i: i")', "of 3 indices"),
        (
            'meta_schedule_layout_transform(%x, index_map="lambda a, b, c: open(a)")',
            r"an index is computed by \+ - \* // %",
        ),
    ],
)
def test_layouts_that_do_not_fit_are_refused(call: str, message: str) -> None:
    with pytest.raises(RelaxpyError, match=message):
        relay.parse(f"fn(%x: Tensor[(2, 8, 3), float32]) {{ {call} }}")


# Ethos-U


SCALES = "ifm_scale=1f, ifm_zero_point=0, ofm_scale=1f, ofm_zero_point=0"
IFM = "%x: Tensor[(1, 8, 9, 16), int8], %t: Tensor[(0,), int8]"
WEIGHTS = "%w: Tensor[(20, 3, 3, 16), int8], %s: Tensor[(20, 10), uint8]"
DEPTHWISE = "%w: Tensor[(16, 3, 3, 1), int8], %s: Tensor[(16, 10), uint8]"
OPTIONS = "kernel_shape=[3, 3], weight_zero_point=0, strides=[2, 2], padding=[1, 1, 1, 1]"
COMMANDS = [
    (
        f"fn({IFM}, {WEIGHTS}) {{ contrib.ethosu.conv2d(%x, %w, %s, %t, {SCALES}, {OPTIONS}, "
        "ofm_channels=20) }",
        "Tensor[(1, 4, 5, 20), int8]",
    ),
    (
        f"fn({IFM}, {WEIGHTS}) {{ contrib.ethosu.conv2d(%x, %w, %s, %t, {SCALES}, {OPTIONS}, "
        'ofm_channels=20, ofm_layout="NHCWB16") }',
        "Tensor[(1, 4, 2, 5, 16), int8]",
    ),
    (
        f"fn({IFM}, {DEPTHWISE}) {{ contrib.ethosu.depthwise_conv2d(%x, %w, %s, %t, {SCALES}, "
        f'{OPTIONS}, ofm_channels=16, ofm_dtype="uint8") }}',
        "Tensor[(1, 4, 5, 16), uint8]",
    ),
    (
        f'fn({IFM}) {{ contrib.ethosu.pooling(%x, %t, {SCALES}, pooling_type="MAX", '
        "pool_shape=[2, 2], ofm_channels=16) }",
        "Tensor[(1, 7, 8, 16), int8]",
    ),
    (f"fn({IFM}) {{ contrib.ethosu.identity(%x, %t, {SCALES}) }}", "Tensor[(1, 8, 9, 16), int8]"),
    (
        f"fn({IFM}) {{ contrib.ethosu.unary_elementwise(%x, %t, {SCALES}, "
        'operator_type="ABS", ofm_channels=16) }',
        "Tensor[(1, 8, 9, 16), int8]",
    ),
    (
        f"fn({IFM}) {{ contrib.ethosu.binary_elementwise(%x, %x, %t, {SCALES}, "
        'operator_type="ADD", ifm2_scale=1f, ifm2_zero_point=0, ifm_channels=16, '
        'ifm2_channels=16, ofm_dtype="int32") }',
        "Tensor[(1, 8, 9, 16), int32]",
    ),
]


@pytest.mark.parametrize(("text", "result"), COMMANDS)
def test_commands_of_ethosu_have_types_and_do_not_run(text: str, result: str) -> None:
    module = typed(text)
    assert str(module["main"].ret_type) == result
    with pytest.raises(TransformError, match=r"cannot run: it is a command of the processor"):
        relay.to_relax(module)


@pytest.mark.parametrize(
    ("number", "old", "new", "message"),
    [
        (0, "(20, 10)", "(20, 9)", "scale_bias has the shape"),
        (0, "(20, 3, 3, 16)", "(20, 3, 4, 16)", "weight has the shape"),
        (0, "(1, 8, 9, 16), int8", "(1, 8, 9, 16), float32", "ifm has the datatype"),
        (2, '"uint8"', '"float32"', "ofm_dtype is int8 or uint8"),
        (3, '"MAX"', '"MEDIAN"', "pooling_type is AVG or MAX or SUM"),
        (3, "ofm_channels=16", 'ofm_channels=16, ifm_layout="NHCWB16"', "NHCWB16, of 5"),
        (5, '"ABS"', '"CLZ"', "ifm has the datatype int32"),
        (6, '"ADD"', '"MAX"', "ofm_dtype is uint8 or int8"),
    ],
)
def test_commands_that_do_not_fit_are_refused(
    number: int, old: str, new: str, message: str
) -> None:
    text = COMMANDS[number][0]
    assert old in text
    with pytest.raises(relay.RelayTypeError, match=message):
        typed(text.replace(old, new))


def test_all_operators_of_tvm_are_registered() -> None:
    assert len([n for n in relay.op.list_op_names() if not n.startswith("my.")]) == 304
