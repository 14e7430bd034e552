"""ConvertLayout: programs before and after, and their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import MisuseError, RelaxpyError, UnknownNameError
from relaxpy.ir import assert_structural_equal, structural_hash
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import ConvertLayout
from relaxpy.script import from_source
from tests.counting import calls
from tests.fuzz.images import Images
from tests.fuzz.seed import COUNT, SEED

NHWC: Mapping[str, Sequence[str]] = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
BLOCKS: Mapping[str, Sequence[str]] = {"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]}


def main(params: str, *lines: str, output: str = "gv", after: str = "") -> IRModule:
    """A module whose function `main` has one dataflow block."""
    indent = "\n            "
    mod = from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main({params}):
        with R.dataflow():
            {indent.join(lines)}
            R.output({output})
        {after}
        return {output}
""")
    assert isinstance(mod, IRModule)
    return mod


def inputs(mod: IRModule, sizes: Mapping[str, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    func = mod["main"]
    assert isinstance(func, relax.Function)
    found = []
    for param in func.params:
        sinfo = param.struct_info
        assert isinstance(sinfo, relax.TensorStructInfo)
        shape = [
            size.value if isinstance(size, tir.IntImm) else sizes[size.name]
            for size in sinfo.get_shape()
        ]
        found.append(rng.standard_normal(shape).astype(str(sinfo.dtype)))
    return found


def flat(value: Any) -> list[Any]:
    return [v for part in value for v in flat(part)] if isinstance(value, tuple) else [value]


def verify(
    before: IRModule, after: IRModule, desired: Mapping[str, Sequence[str]] = NHWC, **sizes: int
) -> None:
    """The pass makes `after` of `before`, in which nothing is left to do; both have one value."""
    hash_before = structural_hash(before)
    converted = ConvertLayout(desired)(before)
    assert_structural_equal(converted, after)
    assert structural_hash(before) == hash_before
    assert check_well_formed(converted, normal_form=True) == []
    assert ConvertLayout(desired)(converted) is converted
    values = [
        flat(relaxpy.compile(mod)["main"](*inputs(before, sizes))) for mod in (before, converted)
    ]
    for first, second in zip(*values, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)


CONV = 'x: R.Tensor((2, 3, 9, 9), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")'
BIAS = f'{CONV}, bias: R.Tensor((2, 4, 7, 7), "float32")'
TO = "R.permute_dims({}, (0, 2, 3, 1))"
BACK = "R.permute_dims({}, (0, 3, 1, 2))"
IN_NHWC = (
    f"x1 = {TO.format('x')}",
    f"w1 = {TO.format('w')}",
    'lv = R.nn.conv2d(x1, w1, data_layout="NHWC", kernel_layout="OHWI")',
)


def converted(*lines: str, params: str = CONV) -> IRModule:
    return main(params, *IN_NHWC, *lines)


def test_the_result_of_the_block_has_its_layout() -> None:
    verify(main(CONV, "gv = R.nn.conv2d(x, w)"), converted(f"gv = {BACK.format('lv')}"))


def test_elementwise_operators_follow() -> None:
    verify(
        main(CONV, "lv = R.nn.relu(R.nn.conv2d(x, w))", "gv = R.tanh(lv)"),
        converted("lv1 = R.nn.relu(lv)", "lv2 = R.tanh(lv1)", f"gv = {BACK.format('lv2')}"),
    )


def test_operators_before_a_convolution_keep_their_layouts() -> None:
    verify(
        main(CONV, "lv = R.nn.relu(x)", "gv = R.nn.conv2d(lv, w)"),
        main(
            CONV,
            "lv = R.nn.relu(x)",
            f"lv1 = {TO.format('lv')}",
            f"w1 = {TO.format('w')}",
            'lv2 = R.nn.conv2d(lv1, w1, data_layout="NHWC", kernel_layout="OHWI")',
            f"gv = {BACK.format('lv2')}",
        ),
    )


def test_the_other_operand_is_converted() -> None:
    verify(
        main(BIAS, "lv = R.nn.conv2d(x, w)", "gv = R.add(lv, bias)"),
        converted(
            f"b1 = {TO.format('bias')}",
            "lv1 = R.add(lv, b1)",
            f"gv = {BACK.format('lv1')}",
            params=BIAS,
        ),
    )


def test_an_operand_of_lower_rank_decides() -> None:
    params = f'{CONV}, bias: R.Tensor((7, 7), "float32")'
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.add(lv, bias)"),
        converted(f"lv1 = {BACK.format('lv')}", "gv = R.add(lv1, bias)", params=params),
    )


def test_a_scalar_has_no_layout() -> None:
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", 'gv = R.add(lv, R.const(1, "float32"))'),
        converted('lv1 = R.add(lv, R.const(1, "float32"))', f"gv = {BACK.format('lv1')}"),
    )


def test_two_of_three_operands_decide() -> None:
    verify(
        main(BIAS, "lv = R.nn.conv2d(x, w)", "gv = R.ewise_fma(lv, bias, bias)"),
        converted(f"lv1 = {BACK.format('lv')}", "gv = R.ewise_fma(lv1, bias, bias)", params=BIAS),
    )


def test_axes_move_with_the_layout() -> None:
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.sum(lv, axis=[2, 3])"),
        converted("gv = R.sum(lv, axis=[1, 2])"),
    )
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.sum(lv, axis=[2, 3], keepdims=True)"),
        converted("lv1 = R.sum(lv, axis=[1, 2], keepdims=True)", f"gv = {BACK.format('lv1')}"),
    )
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.nn.softmax(lv, axis=1)"),
        converted("lv1 = R.nn.softmax(lv, axis=3)", f"gv = {BACK.format('lv1')}"),
    )
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.permute_dims(lv, axes=[3, 2, 1, 0])"),
        converted("gv = R.permute_dims(lv, axes=[2, 1, 3, 0])"),
    )
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.expand_dims(lv, axis=(-3, 1))"),
        converted(
            "lv1 = R.expand_dims(lv, axis=(-3, 1))", "gv = R.permute_dims(lv1, (0, 1, 5, 3, 2, 4))"
        ),
    )
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.strided_slice(lv, [1], [0], [4], [2])"),
        converted("lv1 = R.strided_slice(lv, [3], [0], [4], [2])", f"gv = {BACK.format('lv1')}"),
    )


def test_an_axis_that_is_squeezed_is_left_out() -> None:
    params = 'x: R.Tensor((1, 3, 9, 9), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")'
    after = converted(
        "lv1 = R.squeeze(lv, axis=[0])", "gv = R.permute_dims(lv1, (2, 0, 1))", params=params
    )
    verify(main(params, "lv = R.nn.conv2d(x, w)", "gv = R.squeeze(lv, axis=[0])"), after)


def test_tuples_keep_the_layouts_of_their_fields() -> None:
    verify(
        main(
            CONV,
            "lv = R.nn.conv2d(x, w)",
            "lv1 = R.nn.relu(lv)",
            "lv2 = R.concat((lv, lv1), axis=1)",
            "gv = R.split(lv2, 2, axis=1)",
        ),
        converted(
            "lv1 = R.nn.relu(lv)",
            "lv2 = R.concat((lv, lv1), axis=3)",
            "lv3 = R.split(lv2, 2, axis=3)",
            "lv4 = lv3[0]",
            f"lv5 = {BACK.format('lv4')}",
            "lv6 = lv3[1]",
            f"lv7 = {BACK.format('lv6')}",
            "gv = (lv5, lv7)",
        ),
    )


def test_a_field_that_outlives_the_block_has_its_layout() -> None:
    params = f'{CONV}, g: R.Tensor((4,), "float32")'
    verify(
        main(
            params,
            "lv = R.nn.conv2d(x, w)",
            "lv1 = R.nn.batch_norm(lv, g, g, g, g, axis=1)",
            "gv = lv1[0]",
        ),
        converted(
            "lv1 = R.nn.batch_norm(lv, g, g, g, g, axis=3)",
            "lv2 = lv1[0]",
            f"gv = {BACK.format('lv2')}",
            params=params,
        ),
    )


def test_pools_take_the_layout_by_their_attributes() -> None:
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.nn.max_pool2d(lv, pool_size=(2, 2))"),
        converted(
            'lv1 = R.nn.max_pool2d(lv, pool_size=(2, 2), layout="NHWC")',
            f"gv = {BACK.format('lv1')}",
        ),
    )
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.nn.adaptive_avg_pool2d(lv, (1, 1))"),
        converted(
            'lv1 = R.nn.adaptive_avg_pool2d(lv, (1, 1), layout="NHWC")',
            f"gv = {BACK.format('lv1')}",
        ),
    )


def test_resize2d_has_a_desired_layout_too() -> None:
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.image.resize2d(lv, (3, 5))"),
        converted(
            'lv1 = R.image.resize2d(lv, (3, 5), layout="NHWC")', f"gv = {BACK.format('lv1')}"
        ),
    )
    image = 'x: R.Tensor((1, 2, 4, 4), "float32")'
    verify(
        main(image, "gv = R.image.resize2d(x, (3, 5))"),
        main(
            image,
            f"x1 = {TO.format('x')}",
            'lv1 = R.image.resize2d(x1, (3, 5), layout="NHWC")',
            f"gv = {BACK.format('lv1')}",
        ),
        {"relax.image.resize2d": ["NHWC"]},
    )


def test_other_operators_force_their_operands_back() -> None:
    verify(
        main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.reshape(lv, (2, 196))"),
        converted(f"lv1 = {BACK.format('lv')}", "gv = R.reshape(lv1, (2, 196))"),
    )


@pytest.mark.parametrize("bias", ["R.Tensor(dtype='float32')", "R.Tensor('float32', ndim=4)"])
def test_a_tensor_of_unknown_rank_has_no_layout(bias: str) -> None:
    params = f"{CONV}, bias: {bias}"
    known = "ndim=4" in bias
    mod = ConvertLayout(NHWC)(main(params, "lv = R.nn.conv2d(x, w)", "gv = R.add(lv, bias)"))
    if known:
        lines = [f"b1 = {TO.format('bias')}", "lv1 = R.add(lv, b1)", f"gv = {BACK.format('lv1')}"]
    else:
        lines = [f"lv1 = {BACK.format('lv')}", "gv = R.add(lv1, bias)"]
    assert_structural_equal(mod, converted(*lines, params=params))


@pytest.mark.rule("MC-1")
def test_a_cast_checks_the_converted_tensor() -> None:
    params = CONV.replace("(2, 3,", '("n", 3,')
    verify(
        main(
            params,
            "lv = R.nn.conv2d(x, w)",
            'lv1 = R.match_cast(lv, R.Tensor((2, 4, 7, 7), "float32"))',
            "gv = R.nn.relu(lv1)",
        ),
        converted(
            'lv1 = R.match_cast(lv, R.Tensor((2, 7, 7, 4), "float32"))',
            "lv2 = R.nn.relu(lv1)",
            f"gv = {BACK.format('lv2')}",
            params=params,
        ),
        n=2,
    )


def test_symbolic_sizes_are_permuted() -> None:
    params = CONV.replace("(2, 3,", '("n", 3,')
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.nn.relu(lv)"),
        converted("lv1 = R.nn.relu(lv)", f"gv = {BACK.format('lv1')}", params=params),
        n=3,
    )


SUB = 'x: R.Tensor(({}, 8, 9, 9), "float32"), w: R.Tensor((4, 8, 3, 3), "float32")'
TO_BLOCKS = (
    "R.layout_transform({}, T.index_map(lambda a, b, c, d: (a, b // 4, c, d, b % 4), "
    'index_dtype="int32"))'
)
FROM_BLOCKS = (
    "R.layout_transform({}, T.index_map(lambda a, b, c, d, e: (a, b * 4 + e, c, d), "
    'index_dtype="int32"))'
)
IN_BLOCKS = (
    f"x1 = {TO_BLOCKS.format('x')}",
    "w1 = R.layout_transform(w, T.index_map(lambda a, b, c, d: (a // 4, b, c, d, a % 4), "
    'index_dtype="int32"))',
    'lv = R.nn.conv2d(x1, w1, data_layout="NCHW4c", kernel_layout="OIHW4o")',
)


@pytest.mark.parametrize("batch", ["2", '"n"'])
def test_blocks_are_made_by_layout_transform(batch: str) -> None:
    params = SUB.format(batch)
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.nn.max_pool2d(R.nn.relu(lv), 2)"),
        main(
            params,
            *IN_BLOCKS,
            "lv1 = R.nn.relu(lv)",
            'lv2 = R.nn.max_pool2d(lv1, 2, layout="NCHW4c")',
            f"gv = {FROM_BLOCKS.format('lv2')}",
        ),
        BLOCKS,
        n=2,
    )


@pytest.mark.parametrize(
    "operator",
    [
        "R.nn.softmax({}, axis=1)",
        "R.argmax({}, axis=-3)",
        "R.cumsum({}, axis=1)",
        "R.sum({}, axis=[1, 2], keepdims=True)",
        "R.sum({}, keepdims=True)",
        "R.split({}, 2, axis=1)",
        "R.split({}, [1], axis=1)",
        "R.gather_elements({}, R.const([[[[0]]]], 'int64'), axis=2)",
        "R.squeeze({}, axis=[])",
    ],
)
def test_an_axis_in_blocks_is_put_together_again(operator: str) -> None:
    params = SUB.format(2)
    changed = ConvertLayout(BLOCKS)(
        main(params, "lv = R.nn.conv2d(x, w)", f"gv = {operator.format('lv')}")
    )
    after = (f"lv1 = {FROM_BLOCKS.format('lv')}", f"gv = {operator.format('lv1')}")
    assert_structural_equal(changed, main(params, *IN_BLOCKS, *after))


@pytest.mark.parametrize(
    ("operator", "in_blocks"),
    [
        ("R.nn.softmax({}, axis=-1)", "R.nn.softmax({}, axis=3)"),
        ("R.cumsum({}, axis=2)", "R.cumsum({}, axis=2)"),
        ("R.argmax({}, axis=0, keepdims=True)", "R.argmax({}, axis=0, keepdims=True)"),
        ("R.nn.layer_norm({}, v, v, axes=[-1, -2])", "R.nn.layer_norm({}, v, v, axes=[3, 2])"),
        ("R.max({}, axis=[-1, 2], keepdims=True)", "R.max({}, axis=[2, 3], keepdims=True)"),
        ("R.concat(({0}, {0}), axis=1)", "R.concat(({0}, {0}), axis=1)"),
    ],
)
def test_operators_along_other_axes_take_blocks(operator: str, in_blocks: str) -> None:
    params = SUB.format(2) + ', v: R.Tensor((7, 7), "float32")'
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", f"gv = {operator.format('lv')}"),
        main(
            params,
            *IN_BLOCKS,
            f"lv1 = {in_blocks.format('lv')}",
            f"gv = {FROM_BLOCKS.format('lv1')}",
        ),
        BLOCKS,
    )


def test_a_reduction_drops_axes_with_their_blocks() -> None:
    params = SUB.format(2)
    join = (
        "R.layout_transform({}, T.index_map(lambda a, b, c: (a, b * 4 + c), index_dtype='int32'))"
    )
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.sum(lv, axis=[-2, -1])"),
        main(params, *IN_BLOCKS, "lv1 = R.sum(lv, axis=[2, 3])", f"gv = {join.format('lv1')}"),
        BLOCKS,
    )
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.sum(lv, axis=[2, 1])"),
        main(params, *IN_BLOCKS, "gv = R.sum(lv, axis=[1, 2, 4])"),
        BLOCKS,
    )
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.sum(lv)"),
        main(params, *IN_BLOCKS, "gv = R.sum(lv)"),
        BLOCKS,
    )


@pytest.mark.parametrize(("cuts", "in_blocks"), [("2", "2"), ("[4]", "[1]")])
def test_sections_of_whole_blocks_are_split(cuts: str, in_blocks: str) -> None:
    params = SUB.format(2).replace("(4, 8, 3, 3)", "(8, 8, 3, 3)")
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", f"gv = R.split(lv, {cuts}, axis=-3)"),
        main(
            params,
            *IN_BLOCKS,
            f"lv1 = R.split(lv, {in_blocks}, axis=1)",
            "lv2 = lv1[0]",
            f"lv3 = {FROM_BLOCKS.format('lv2')}",
            "lv4 = lv1[1]",
            f"lv5 = {FROM_BLOCKS.format('lv4')}",
            "gv = (lv3, lv5)",
        ),
        BLOCKS,
    )


def test_two_of_three_operands_decide_about_blocks() -> None:
    params = SUB.format(2) + ', y: R.Tensor((2, 4, 7, 7), "float32")'
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.ewise_fma(lv, y, y)"),
        main(
            params, *IN_BLOCKS, f"lv1 = {FROM_BLOCKS.format('lv')}", "gv = R.ewise_fma(lv1, y, y)"
        ),
        BLOCKS,
    )
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.ewise_fma(y, lv, lv)"),
        main(
            params,
            *IN_BLOCKS,
            f"y1 = {TO_BLOCKS.format('y')}",
            "lv1 = R.ewise_fma(y1, lv, lv)",
            f"gv = {FROM_BLOCKS.format('lv1')}",
        ),
        BLOCKS,
    )
    verify(
        main(params, "lv = R.nn.conv2d(x, w)", "gv = R.add(y, lv)"),
        main(
            params,
            *IN_BLOCKS,
            f"y1 = {TO_BLOCKS.format('y')}",
            "lv1 = R.add(y1, lv)",
            f"gv = {FROM_BLOCKS.format('lv1')}",
        ),
        BLOCKS,
    )


def test_blocks_that_do_not_divide_a_tensor_are_not_made() -> None:
    mod = main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.nn.relu(lv)")
    assert ConvertLayout(BLOCKS)(mod) is mod
    symbolic = main(
        CONV.replace("3, 9", '"c", 9').replace("4, 3, 3", '4, "c", 3'), "gv = R.nn.conv2d(x, w)"
    )
    assert ConvertLayout(BLOCKS)(symbolic) is symbolic


def test_nothing_to_do_is_the_identical_module() -> None:
    mod = main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.nn.softmax(R.sum(lv, [-1]), -1)")
    for desired in ({}, {"relax.nn.conv2d": ["NCHW", "OIHW"]}):
        assert ConvertLayout(desired)(mod) is mod


def test_code_outside_of_dataflow_blocks_stays() -> None:
    text = f"""
@R.function
def main({CONV}):
    lv = R.nn.conv2d(x, w)
    return lv
"""
    mod = relaxpy.IRModule.from_expr(from_source(text))
    assert ConvertLayout(NHWC)(mod) is mod


def test_calls_of_other_functions_see_the_layouts_of_the_program() -> None:
    mod = main(
        CONV,
        "a = R.nn.conv2d(x, w)",
        "b = R.nn.relu(a)",
        "@R.function",
        'def inner(y: R.Tensor((2, 4, 7, 7), "float32")) -> R.Tensor((2, 4, 7, 7), "float32"):',
        "    z = R.add(y, a)",
        "    return z",
        "gv = inner(b)",
        output="a, gv",
    )
    changed = ConvertLayout(NHWC)(mod)
    assert check_well_formed(changed, normal_form=True) == []
    assert changed is not mod
    data = inputs(mod, {})
    values = [flat(relaxpy.compile(m)["main"](*data)) for m in (mod, changed)]
    for first, second in zip(*values, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)


def test_a_variable_of_vague_struct_info_has_no_layout() -> None:
    mod = main(
        CONV,
        "lv: R.Object = R.nn.conv2d(x, w)",
        "gv = R.match_cast(lv, R.Tensor((2, 4, 7, 7), 'float32'))",
    )
    data = inputs(mod, {})
    changed = ConvertLayout(NHWC)(mod)
    first, second = (relaxpy.compile(m)["main"](*data) for m in (mod, changed))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)


def test_calls_without_default_attributes_are_converted() -> None:
    x, w = (
        relax.Var(name, relax.TensorStructInfo(shape, "float32"))
        for name, shape in (("x", (2, 3, 9, 9)), ("w", (4, 3, 3, 3)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            lv = builder.emit(relax.Call(relaxpy.ir.Op.get("relax.nn.conv2d"), (x, w)))
            lv1 = builder.emit(relax.Call(relaxpy.ir.Op.get("relax.nn.softmax"), (lv,)))
            gv = builder.emit_output(lv1)
        builder.emit_func_output(gv)
    mod = builder.finalize()
    assert ConvertLayout({"relax.nn.conv2d": ["NCHW", "OIHW"]})(mod) is mod
    changed = ConvertLayout(NHWC)(mod)
    after = converted("lv1 = R.nn.softmax(lv, axis=2)", f"gv = {BACK.format('lv1')}")
    assert changed.script().count("R.permute_dims(") == 3
    data = inputs(mod, {})
    first, second = (relaxpy.compile(m)["main"](*data) for m in (after, changed))
    np.testing.assert_array_equal(first, second)


def test_an_alias_has_the_layout_of_its_value() -> None:
    mod = main(CONV, "lv = R.nn.conv2d(x, w)", "lv1 = lv", "gv = R.nn.relu(lv1)")
    after = ConvertLayout(NHWC)(mod)
    first, second = (relaxpy.compile(m)["main"](*inputs(mod, {})) for m in (mod, after))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)
    assert "R.nn.relu" in after.script()
    assert after.script().count("permute_dims") == 3


@pytest.mark.parametrize(
    ("desired", "error", "message"),
    [
        ({"relax.nn.conv2d": ["NHWC", "OHWJJ"]}, MisuseError, "'OHWJJ' has J twice"),
        ({"relax.nn.conv7d": ["NHWC"]}, UnknownNameError, "relax.nn.conv7d"),
        ({"relax.matmul": ["NHWC"]}, MisuseError, "relax.matmul is computed in one layout"),
        (
            {"relax.nn.relu": ["NHWC"]},
            MisuseError,
            "relax.nn.relu takes the layouts of its operands, found a desired one",
        ),
        (
            {"relax.nn.conv2d": ["NHWC"]},
            MisuseError,
            r"layouts of relax.nn.conv2d are 2 or 3 \(data_layout, kernel_layout, out_layout\), "
            r"found \['NHWC'\]",
        ),
        (
            {"relax.nn.conv2d": ["NWC", "OHWI"]},
            MisuseError,
            "the desired data_layout of relax.nn.conv2d arranges the axes of 'NCHW', found 'NWC'",
        ),
        (
            {"relax.nn.conv2d": ["NHWC", "OHWX"]},
            MisuseError,
            "the desired kernel_layout of relax.nn.conv2d arranges the axes of 'OIHW', found",
        ),
        (
            {"relax.nn.conv2d": ["NHWC", "OHWI", "NHC"]},
            MisuseError,
            "the desired out_layout of relax.nn.conv2d arranges the axes of 'NCHW', found 'NHC'",
        ),
        (
            {"relax.image.resize2d": ["NHC"]},
            MisuseError,
            "the desired layout of relax.image.resize2d arranges the axes of 'NCHW', found 'NHC'",
        ),
    ],
)
def test_a_layout_that_cannot_be_desired_is_refused(
    desired: Any, error: type[RelaxpyError], message: str
) -> None:
    for lines in (("lv = R.nn.conv2d(x, w)", "gv = R.nn.relu(lv)"), ("gv = R.tanh(x)",)):
        with pytest.raises(error, match=message):
            ConvertLayout(desired)(main(CONV, *lines))


DESIRED: list[Mapping[str, Sequence[str]]] = [
    NHWC,
    BLOCKS,
    {"relax.nn.conv2d": ["NCHW2c", "OIHW2i2o", "NHWC"]},
    {"relax.nn.conv2d": ["HWNC", "HWIO", "CHWN"], "relax.image.resize2d": ["NHWC"]},
]


@pytest.mark.rule("OPT-1")
@pytest.mark.parametrize("number", range(-(-COUNT // 10)))
def test_generated_programs_have_the_same_value_in_all_layouts(number: int) -> None:
    program = Images(f"{SEED}.{number}")
    text, data = program.text(), program.inputs()
    mod = from_source(text)
    assert isinstance(mod, IRModule)
    try:
        expected = flat((relaxpy.compile(mod)["main"](*data),))
        for desired in DESIRED:
            changed = ConvertLayout(desired)(mod)
            assert changed is not mod
            assert check_well_formed(changed, normal_form=True) == []
            assert changed["main"].struct_info == mod["main"].struct_info
            found = flat((relaxpy.compile(changed)["main"](*data),))
            for first, second in zip(expected, found, strict=True):
                np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-3)
    except BaseException as error:
        error.add_note(f"seed {SEED}.{number}\n{text}")
        raise


def chain(count: int) -> IRModule:
    lines = ["lv0 = R.nn.conv2d(x, w)"]
    for k in range(count):
        operator = ("R.nn.relu({})", "R.add({}, bias)", "R.nn.softmax({}, 1)")[k % 3]
        lines.append(f"lv{k + 1} = {operator.format(f'lv{k}')}")
    return main(BIAS, *lines, f"gv = R.exp(lv{count})")


def test_work_grows_with_the_program() -> None:
    small, large = chain(30), chain(300)
    ConvertLayout(NHWC)(chain(3))
    first = calls(lambda: ConvertLayout(NHWC)(small))
    assert calls(lambda: ConvertLayout(NHWC)(large)) < 11 * first
