"""Convolutions of constant filters have their channels last where that pays."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.passes.convert_layout import ChannelsLast
from relaxpy.script import from_source
from tests.ir.relax.texts import module


def network(body: str, *, groups: int = 1, channels: int = 32, spatial: str = "20, 20") -> IRModule:
    """A function of an image; three filters are constants, one of them with a channel each."""
    mod = module(f"""
    def main(
        x: f32[1, 32, {spatial}],
        w: f32[{channels}, {32 // groups}, 3, 3],
        v: f32[32, 1, 3, 3],
        u: f32[32, 32, 3, 3],
    ):
        with R.dataflow():
            {body}
        return y
    """)
    rng = np.random.default_rng(0)
    shapes = {"w": (channels, 32 // groups, 3, 3), "v": (32, 1, 3, 3), "u": (32, 32, 3, 3)}
    weights = {n: rng.integers(-3, 4, s).astype("float32") for n, s in shapes.items()}
    mod["main"] = mod["main"].bind_params(weights)
    return mod


def layouts(module: IRModule) -> tuple[int, int]:
    """The numbers of convolutions with channels last, and of transpositions of images."""
    text = module.script()
    return text.count('data_layout="NHWC"'), text.count("R.permute_dims")


CHAIN = """h = R.nn.relu(R.nn.conv2d(x, w, padding=1))
            g = R.nn.conv2d(h, w, padding=1, groups=1)
            y = R.add(h, g)"""
DEPTHWISE = """h = R.nn.conv2d(x, w, padding=1)
            g = R.nn.conv2d(h, v, padding=1, groups=32, dilation=2)
            y = R.nn.relu(g)"""

GROUPED = """h = R.nn.conv2d(R.nn.conv2d(x, u, padding=1), u, padding=1)
            y = R.nn.conv2d(h, w, padding=1, groups=16)"""


def test_images_are_transposed_at_both_ends_only() -> None:
    count, transposed = layouts(ChannelsLast()(network(CHAIN)))
    assert count == 2
    assert transposed == 2  # the image and the result, not the filters


def test_filters_of_one_channel_are_stored_as_they_are_read() -> None:
    module = ChannelsLast()(network("y = R.nn.conv2d(R.nn.conv2d(x, w), v, groups=32)"))
    assert layouts(module) == (2, 2)  # the image and the result
    constants = [c.data.shape for c in occurrences(module["main"], relax.Constant)]
    assert (3, 3, 1, 32) in constants


def test_filters_of_few_results_are_read_along_the_channels() -> None:
    before = network("y = R.nn.conv2d(R.nn.conv2d(x, u), w)", channels=3)
    after = ChannelsLast()(before)
    assert layouts(after) == (2, 2)  # the image and the result
    constants = [c.data.shape for c in occurrences(after["main"], relax.Constant)]
    assert (3, 3, 3, 32) in constants
    x = np.random.default_rng(2).integers(-3, 4, (1, 32, 20, 20)).astype("float32")
    expected = relaxpy.compile(before, target="numpy")["main"](x)
    np.testing.assert_array_equal(relaxpy.compile(before, target="native")["main"](x), expected)


def test_filters_of_many_channels_keep_their_layout() -> None:
    mod = module("""
    def main(x: f32[1, 32, 20, 20], w: f32[32, 32, 3, 3], v: f32[3, 3, 32, 16]):
        with R.dataflow():
            y = R.nn.conv2d(R.nn.conv2d(x, w), v, kernel_layout="HWIO")
        return y
    """)
    mod["main"] = mod["main"].bind_params({"w": np.ones((32, 32, 3, 3), "float32")})
    after = ChannelsLast()(mod)
    assert layouts(after) == (2, 2)  # the image and the result
    assert after.script().count('kernel_layout="HWIO"') == 1


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (network("y = R.nn.conv2d(x, w)", channels=8), "few channels"),
        (network("y = R.nn.conv2d(x, w, groups=4)", groups=4), "groups of channels"),
        (network(GROUPED, groups=16), "groups of two channels, which fill no vectors"),
        (network("y = R.nn.conv2d(x, R.add(w, w))"), "a filter that is computed"),
        (network("y = R.add(x, x)"), "no convolution"),
    ],
)
def test_other_functions_stay(module: IRModule, reason: str) -> None:
    del reason
    assert ChannelsLast()(module) is module or layouts(ChannelsLast()(module)) == layouts(module)


def test_a_function_stays_that_would_be_transposed_too_often() -> None:
    # A normalisation of groups has one layout: the image is transposed before and after each.
    body = "\n            ".join(
        f"h{n + 1} = R.nn.group_norm(R.nn.conv2d(h{n}, k{n}), g, b, 4, 1, [2, 3])" for n in range(3)
    )
    rng = np.random.default_rng(1)
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(
        h0: R.Tensor((1, 16, 9, 9), "float32"),
        k0: R.Tensor((16, 16, 1, 1), "float32"),
        k1: R.Tensor((16, 16, 1, 1), "float32"),
        k2: R.Tensor((16, 16, 1, 1), "float32"),
        g: R.Tensor((16,), "float32"),
        b: R.Tensor((16,), "float32"),
    ):
        with R.dataflow():
            {body}
            R.output(h3)
        return h3
"""
    module = from_source(text)
    weights = {f"k{n}": rng.random((16, 16, 1, 1), "float32") for n in range(3)}
    module["main"] = module["main"].bind_params(weights)
    assert layouts(ChannelsLast()(module)) == (0, 0)


@pytest.mark.each_choice
@pytest.mark.parametrize("spatial", ["20, 20", "7, 9", '"h", "w"'])
@pytest.mark.parametrize("body", [CHAIN, DEPTHWISE])
def test_values_are_those_of_the_program(spatial: str, body: str) -> None:
    module = network(body, spatial=spatial)
    assert layouts(ChannelsLast()(module))[0] == 2
    size = (7, 9) if spatial == "7, 9" else (20, 20)
    x = np.random.default_rng(2).integers(-3, 4, (1, 32, *size)).astype("float32")
    expected = relaxpy.compile(module, target="numpy")["main"](x)
    np.testing.assert_array_equal(relaxpy.compile(module, target="native")["main"](x), expected)


def with_vectors(body: str) -> IRModule:
    """A function of an image and two vectors, whose filter is a constant."""
    mod = module(f"""
    def main(x: f32[1, 32, 9, 9], w: f32[32, 32, 3, 3], b: f32[32], c: f32[32]):
        with R.dataflow():
            h = R.nn.conv2d(R.nn.conv2d(x, w, padding=1), w, padding=1)
            p = R.reshape(b, (1, 32, 1, 1))
            q = R.reshape(c, (1, 32, 1, 1))
            {body}
        return y
    """)
    w = np.random.default_rng(3).integers(-3, 4, (32, 32, 3, 3)).astype("float32")
    mod["main"] = mod["main"].bind_params({"w": w})
    return mod


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("body", "reshapes"),
    [
        ("y = R.add(h, p)", 0),
        ("y = R.maximum(p, R.multiply(h, q))", 0),
        ("y = R.add(h, R.reshape(R.reshape(b, (4, 8)), (1, 32, 1, 1)))", 0),
        ("y = R.where(R.greater(h, p), q, h)", 0),
        ("y = R.add(h, R.multiply(p, q))", 1),  # of two vectors, one keeps the rank
        ("y = R.add(h, R.reshape(R.permute_dims(R.reshape(b, (4, 8))), (1, 32, 1, 1)))", 1),
        ("y = R.add(h, R.reshape(R.strided_slice(b, [0], [0], [9]), (1, 1, 1, 9)))", 1),
    ],
)
def test_vectors_along_channels_are_operands_as_they_are(body: str, reshapes: int) -> None:
    module = with_vectors(body)
    after = ChannelsLast()(module)
    assert layouts(after)[0] == 2
    text = after.script()
    assert [text.count("R.reshape"), text.count("axes=[0, 2, 3, 1]")][0] >= reshapes
    assert ("R.reshape" in text) == (reshapes > 0)
    rng = np.random.default_rng(4)
    shapes = (1, 32, 9, 9), (32,), (32,)
    values = [rng.integers(-9, 9, shape).astype("float32") for shape in shapes]
    expected = relaxpy.compile(module, target="numpy")["main"](*values)
    np.testing.assert_array_equal(
        relaxpy.compile(module, target="native")["main"](*values), expected
    )
