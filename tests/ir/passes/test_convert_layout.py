"""ConvertLayout: programs before and after, and their values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.ir import assert_structural_equal, structural_hash
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import ConvertLayout
from relaxpy.script import from_source
from tests.fuzz.images import Images
from tests.fuzz.seed import COUNT, SEED
from tests.ir.passes.before_after import leaves
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module
from tests.rows import titled

NHWC: Mapping[str, Sequence[str]] = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
BLOCKS: Mapping[str, Sequence[str]] = {"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]}


def main(params: str, *lines: str, output: str = "gv", after: str = "") -> IRModule:
    """A module whose function `main` has one dataflow block."""
    body = "\n            ".join(lines)
    return module(f"""
    def main({params}):
        with R.dataflow():
            {body}
            R.output({output})
        {after}
        return {output}
    """)


def inputs(mod: IRModule) -> list[Any]:
    """Random arguments of `main`; dimensions that are not known are 2."""
    rng = np.random.default_rng(0)
    func = mod["main"]
    assert isinstance(func, relax.Function)
    found = []
    for param in func.params:
        sinfo = param.struct_info
        assert isinstance(sinfo, relax.TensorStructInfo)
        shape = [size.value if isinstance(size, tir.IntImm) else 2 for size in sinfo.get_shape()]
        found.append(rng.standard_normal(shape).astype(str(sinfo.dtype)))
    return found


def verify(before: IRModule, after: IRModule, desired: Mapping[str, Sequence[str]] = NHWC) -> None:
    """The pass makes `after` of `before`, in which nothing is left to do; both have one value."""
    hash_before = structural_hash(before)
    converted = ConvertLayout(desired)(before)
    assert_structural_equal(converted, after)
    assert structural_hash(before) == hash_before
    assert check_well_formed(converted, normal_form=True) == []
    assert ConvertLayout(desired)(converted) is converted
    same_values(before, converted)


def same_values(before: IRModule, after: IRModule) -> None:
    values = [leaves(relaxpy.compile(mod)["main"](*inputs(before))) for mod in (before, after)]
    for first, second in zip(*values, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)


CONV = 'x: R.Tensor((2, 3, 9, 9), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")'
TO = "R.permute_dims({}, (0, 2, 3, 1))"
BACK = "R.permute_dims({}, (0, 3, 1, 2))"
IN_NHWC = (
    f"x1 = {TO.format('x')}",
    f"w1 = {TO.format('w')}",
    'lv = R.nn.conv2d(x1, w1, data_layout="NHWC", kernel_layout="OHWI")',
)


def converted(*lines: str, params: str = CONV) -> IRModule:
    return main(params, *IN_NHWC, *lines)


def rows(text: str) -> list[Any]:
    """Rows `--- name`: lines of parameters, the bindings before the pass, `=>`, those after it.

    Without a convolution in them, the bindings follow one, whose result is `lv`; `x` and `w` are
    its operands, unless there are parameters of these names. What `to` and `back` do is the layout.
    """
    found = []
    for name, marks, body in titled(text):
        params = dict(re.findall(r"^(\w+): (.*)\n", body, re.MULTILINE))
        bindings = re.sub(r"^\w+: .*\n", "", body, flags=re.MULTILINE)
        before, after = map(str.strip, bindings.split("=>"))
        found.append(pytest.param(params, before, after, id=name, marks=marks))
    return found


def verify_row(
    params: dict[str, str],
    before: str,
    after: str,
    operands: str,
    layout: Sequence[str],
    to: str,
    back: str,
    desired: Mapping[str, Sequence[str]],
) -> None:
    known = dict(param.split(": ", 1) for param in re.split(", (?=w: )", operands)) | params
    signature = ", ".join(f"{name}: {kind}" for name, kind in known.items())
    moves = {"to": to, "back": back}
    moved = re.sub(r"\b(to|back)\((\w+)\)", lambda m: moves[m[1]].format(m[2]), after)
    first = "" if "conv2d" in before else "lv = R.nn.conv2d(x, w)\n"
    made = () if "conv2d" in after else layout
    verify(
        main(signature, *(first + before).split("\n")),
        main(signature, *made, *moved.split("\n")),
        desired,
    )


IMAGES = rows("""
--- the result of the block has its layout
gv = R.nn.conv2d(x, w)
=>
gv = back(lv)
--- elementwise operators follow
lv1 = R.nn.relu(lv)
gv = R.tanh(lv1)
=>
lv1 = R.nn.relu(lv)
lv2 = R.tanh(lv1)
gv = back(lv2)
--- operators before a convolution keep their layouts
lv = R.nn.relu(x)
gv = R.nn.conv2d(lv, w)
=>
lv = R.nn.relu(x)
lv1 = to(lv)
w1 = to(w)
lv2 = R.nn.conv2d(lv1, w1, data_layout="NHWC", kernel_layout="OHWI")
gv = back(lv2)
--- the other operand is converted
bias: R.Tensor((2, 4, 7, 7), "float32")
gv = R.add(lv, bias)
=>
b1 = to(bias)
lv1 = R.add(lv, b1)
gv = back(lv1)
--- an operand of lower rank decides
bias: R.Tensor((7, 7), "float32")
gv = R.add(lv, bias)
=>
lv1 = back(lv)
gv = R.add(lv1, bias)
--- an operand of lower rank follows if the axes that it lacks come first
bias: R.Tensor((4, 1, 1), "float32")
gv = R.add(bias, lv)
=>
b1 = R.permute_dims(bias, (1, 2, 0))
lv1 = R.add(b1, lv)
gv = back(lv1)
--- an operand that is broadcast does not decide
bias: R.Tensor((1, 4, 1, 1), "float32")
gv = R.add(bias, lv)
=>
b1 = to(bias)
lv1 = R.add(b1, lv)
gv = back(lv1)
--- a scalar has no layout
gv = R.add(lv, R.const(1, "float32"))
=>
lv1 = R.add(lv, R.const(1, "float32"))
gv = back(lv1)
--- two of three operands decide
bias: R.Tensor((2, 4, 7, 7), "float32")
gv = R.ewise_fma(lv, bias, bias)
=>
lv1 = back(lv)
gv = R.ewise_fma(lv1, bias, bias)
--- the axes of a sum move
gv = R.sum(lv, axis=[2, 3])
=>
gv = R.sum(lv, axis=[1, 2])
--- the axes of a sum that keeps them move
gv = R.sum(lv, axis=[2, 3], keepdims=True)
=>
lv1 = R.sum(lv, axis=[1, 2], keepdims=True)
gv = back(lv1)
--- the axis of a softmax moves
gv = R.nn.softmax(lv, axis=1)
=>
lv1 = R.nn.softmax(lv, axis=3)
gv = back(lv1)
--- a permutation is composed
gv = R.permute_dims(lv, axes=[3, 2, 1, 0])
=>
gv = R.permute_dims(lv, axes=[2, 1, 3, 0])
--- new axes stay where they are
gv = R.expand_dims(lv, axis=(-3, 1))
=>
lv1 = R.expand_dims(lv, axis=(-3, 1))
gv = R.permute_dims(lv1, (0, 1, 5, 3, 2, 4))
--- the axis of a slice moves
gv = R.strided_slice(lv, [1], [0], [4], [2])
=>
lv1 = R.strided_slice(lv, [3], [0], [4], [2])
gv = back(lv1)
--- an axis that is squeezed is left out
x: R.Tensor((1, 3, 9, 9), "float32")
gv = R.squeeze(lv, axis=[0])
=>
lv1 = R.squeeze(lv, axis=[0])
gv = R.permute_dims(lv1, (2, 0, 1))
--- tuples keep the layouts of their fields
lv1 = R.nn.relu(lv)
lv2 = R.concat((lv, lv1), axis=1)
gv = R.split(lv2, 2, axis=1)
=>
lv1 = R.nn.relu(lv)
lv2 = R.concat((lv, lv1), axis=3)
lv3 = R.split(lv2, 2, axis=3)
lv4 = lv3[0]
lv5 = back(lv4)
lv6 = lv3[1]
lv7 = back(lv6)
gv = (lv5, lv7)
--- a field that outlives the block has its layout
g: R.Tensor((4,), "float32")
lv1 = R.nn.batch_norm(lv, g, g, g, g, axis=1)
gv = lv1[0]
=>
lv1 = R.nn.batch_norm(lv, g, g, g, g, axis=3)
lv2 = lv1[0]
gv = back(lv2)
--- pools take the layout by their attributes
gv = R.nn.max_pool2d(lv, pool_size=(2, 2))
=>
lv1 = R.nn.max_pool2d(lv, pool_size=(2, 2), layout="NHWC")
gv = back(lv1)
--- adaptive pools take the layout by their attributes
gv = R.nn.adaptive_avg_pool2d(lv, (1, 1))
=>
lv1 = R.nn.adaptive_avg_pool2d(lv, (1, 1), layout="NHWC")
gv = back(lv1)
--- resize2d takes the layout by its attribute
gv = R.image.resize2d(lv, (3, 5))
=>
lv1 = R.image.resize2d(lv, (3, 5), layout="NHWC")
gv = back(lv1)
--- other operators force their operands back
gv = R.reshape(lv, (2, 196))
=>
lv1 = back(lv)
gv = R.reshape(lv1, (2, 196))
--- MC-1: a cast checks the converted tensor
x: R.Tensor(("n", 3, 9, 9), "float32")
lv1 = R.match_cast(lv, R.Tensor((2, 4, 7, 7), "float32"))
gv = R.nn.relu(lv1)
=>
lv1 = R.match_cast(lv, R.Tensor((2, 7, 7, 4), "float32"))
lv2 = R.nn.relu(lv1)
gv = back(lv2)
--- symbolic sizes are permuted
x: R.Tensor(("n", 3, 9, 9), "float32")
gv = R.nn.relu(lv)
=>
lv1 = R.nn.relu(lv)
gv = back(lv1)
""")


@pytest.mark.parametrize(("params", "before", "after"), IMAGES)
def test_programs_in_a_permuted_layout(params: dict[str, str], before: str, after: str) -> None:
    verify_row(params, before, after, CONV, IN_NHWC, TO, BACK, NHWC)


def test_resize2d_has_a_desired_layout_too() -> None:
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


BLOCKED = rows("""
--- blocks are made by layout transform
gv = R.nn.max_pool2d(R.nn.relu(lv), 2)
=>
lv1 = R.nn.relu(lv)
lv2 = R.nn.max_pool2d(lv1, 2, layout="NCHW4c")
gv = back(lv2)
--- blocks of a symbolic batch
x: R.Tensor(("n", 8, 9, 9), "float32")
gv = R.nn.max_pool2d(R.nn.relu(lv), 2)
=>
lv1 = R.nn.relu(lv)
lv2 = R.nn.max_pool2d(lv1, 2, layout="NCHW4c")
gv = back(lv2)
--- a reduction drops axes without blocks
gv = R.sum(lv, axis=[-2, -1])
=>
lv1 = R.sum(lv, axis=[2, 3])
gv = R.layout_transform(lv1, T.index_map(lambda a, b, c: (a, b * 4 + c), index_dtype='int32'))
--- a reduction drops axes with their blocks
gv = R.sum(lv, axis=[2, 1])
=>
gv = R.sum(lv, axis=[1, 2, 4])
--- a reduction drops all axes
gv = R.sum(lv)
=>
gv = R.sum(lv)
--- sections of whole blocks are split
w: R.Tensor((8, 8, 3, 3), "float32")
gv = R.split(lv, 2, axis=-3)
=>
lv1 = R.split(lv, 2, axis=1)
lv2 = lv1[0]
lv3 = back(lv2)
lv4 = lv1[1]
lv5 = back(lv4)
gv = (lv3, lv5)
--- cuts between blocks are split
w: R.Tensor((8, 8, 3, 3), "float32")
gv = R.split(lv, [4], axis=-3)
=>
lv1 = R.split(lv, [1], axis=1)
lv2 = lv1[0]
lv3 = back(lv2)
lv4 = lv1[1]
lv5 = back(lv4)
gv = (lv3, lv5)
--- two of three operands decide against blocks
y: R.Tensor((2, 4, 7, 7), "float32")
gv = R.ewise_fma(lv, y, y)
=>
lv1 = back(lv)
gv = R.ewise_fma(lv1, y, y)
--- two of three operands decide for blocks
y: R.Tensor((2, 4, 7, 7), "float32")
gv = R.ewise_fma(y, lv, lv)
=>
y1 = to(y)
lv1 = R.ewise_fma(y1, lv, lv)
gv = back(lv1)
--- one of two operands decides for blocks
y: R.Tensor((2, 4, 7, 7), "float32")
gv = R.add(y, lv)
=>
y1 = to(y)
lv1 = R.add(y1, lv)
gv = back(lv1)
""")


@pytest.mark.parametrize(("params", "before", "after"), BLOCKED)
def test_programs_in_blocks(params: dict[str, str], before: str, after: str) -> None:
    verify_row(params, before, after, SUB.format(2), IN_BLOCKS, TO_BLOCKS, FROM_BLOCKS, BLOCKS)


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


def test_blocks_that_do_not_divide_a_tensor_are_not_made() -> None:
    mod = main(CONV, "lv = R.nn.conv2d(x, w)", "gv = R.nn.relu(lv)")
    assert ConvertLayout(BLOCKS)(mod) is mod
    symbolic = main(
        CONV.replace("3, 9", '"c", 9').replace("4, 3, 3", '4, "c", 3'), "gv = R.nn.conv2d(x, w)"
    )
    assert ConvertLayout(BLOCKS)(symbolic) is symbolic


def test_a_callback_chooses_the_layouts_of_each_call() -> None:
    before = main(
        CONV,
        "lv: R.Tensor = R.nn.conv2d(x, w, padding=[1, 1])",
        "gv: R.Tensor = R.nn.conv2d(x, w, dilation=[2, 2])",
        output="lv, gv",
    )

    def layouts(call: relax.Call) -> Mapping[str, Sequence[str]]:
        return NHWC if call.attrs["dilation"] == (2, 2) else {}

    after = ConvertLayout({}, layouts)(before)
    text = after.script()
    assert text.count('data_layout="NHWC"') == 1
    assert re.search('dilation=.2, 2.[^)]*data_layout="NHWC"', text)
    same_values(before, after)
    with pytest.raises(MisuseError, match="layout_cb returns a dict of the layouts"):
        ConvertLayout({}, lambda call: ["NHWC"])(before)  # type: ignore[arg-type, return-value]


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
    same_values(mod, changed)


def test_a_variable_of_vague_struct_info_has_no_layout() -> None:
    mod = main(
        CONV,
        "lv: R.Object = R.nn.conv2d(x, w)",
        "gv = R.match_cast(lv, R.Tensor((2, 4, 7, 7), 'float32'))",
    )
    same_values(mod, ConvertLayout(NHWC)(mod))


def test_calls_without_default_attributes_are_converted() -> None:
    conv2d, softmax = map(relaxpy.ir.Op.get, ("relax.nn.conv2d", "relax.nn.softmax"))
    mod = returning(
        lambda *v: relax.Call(softmax, (relax.Call(conv2d, v),)),
        *(tensor(2, 3, 9, 9), tensor(4, 3, 3, 3)),
    )
    assert ConvertLayout({"relax.nn.conv2d": ["NCHW", "OIHW"]})(mod) is mod
    changed = ConvertLayout(NHWC)(mod)
    after = converted("lv1 = R.nn.softmax(lv, axis=2)", f"gv = {BACK.format('lv1')}")
    assert changed.script().count("R.permute_dims(") == 3
    data = relaxpy.testing.random_inputs(mod["main"], seed=0)
    np.testing.assert_array_equal(*(relaxpy.compile(m)["main"](*data) for m in (after, changed)))


def test_an_alias_has_the_layout_of_its_value() -> None:
    mod = main(CONV, "lv = R.nn.conv2d(x, w)", "lv1 = lv", "gv = R.nn.relu(lv1)")
    after = ConvertLayout(NHWC)(mod)
    same_values(mod, after)
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
def test_a_layout_that_cannot_be_desired_is_refused(desired, error, message) -> None:
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
        expected = leaves(relaxpy.compile(mod)["main"](*data))
        for desired in DESIRED:
            changed = ConvertLayout(desired)(mod)
            assert changed is not mod
            assert check_well_formed(changed, normal_form=True) == []
            assert changed["main"].struct_info == mod["main"].struct_info
            found = leaves(relaxpy.compile(changed)["main"](*data))
            for first, second in zip(expected, found, strict=True):
                np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-3)
    except BaseException as error:
        error.add_note(f"seed {SEED}.{number}\n{text}")
        raise
