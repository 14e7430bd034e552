"""Products of bytes with zero points are products of the bytes themselves, and stay exact."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.ir import ops as op
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.passes.fusion.fuse_zero_points import FuseZeroPoints
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.known import tensor_sinfo
from relaxpy.ir.tir.expr import Var

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = Sequence[int]
RNG = np.random.default_rng(0)


def drawn(shape: Sizes, dtype: str) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def product(
    a: Array, p: Array | None, b: Array, q: Array | None, *, constant: bool, symbolic: bool
) -> tuple[relaxpy.IRModule, list[Array]]:
    """`(a - p) @ (b - q)`, of which the second factor may be constant, and its arguments."""
    builder, arrays = BlockBuilder(), [x for x in (a, p) if x is not None]
    rows = Var("m", "int64")

    def variable(name: str, x: Array) -> rx.Expr:
        sizes: list[Any] = list(x.shape)
        if symbolic and len(sizes) > 1 and (x is a or x is p):
            sizes[-2] = rows
        return rx.Var(name, rx.TensorStructInfo(sizes, str(x.dtype)))

    names = {id(x): variable(n, x) for n, x in zip("ap", arrays, strict=False)}
    for name, x in (("b", b), ("q", q)):
        if x is not None:
            names[id(x)] = rx.const(x) if constant else variable(name, x)
            arrays += [] if constant else [x]
    params = [v for v in names.values() if isinstance(v, rx.Var)]
    with builder.function("main", params):
        with builder.dataflow():
            factors = []
            for x, zero in ((a, p), (b, q)):
                wide = builder.emit(op.astype(names[id(x)], "int32"))
                if zero is not None:
                    point = builder.emit(op.astype(names[id(zero)], "int32"))
                    wide = builder.emit(op.subtract(wide, point))
                factors.append(wide)
            result = builder.emit_output(op.matmul(*factors, "int32"))
        builder.emit_func_output(result)
    return builder.finalize(), arrays


def names_of(mod: relaxpy.IRModule) -> set[str]:
    return {var.name_hint for var in mod.functions}


@pytest.mark.each_choice
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("left", "p", "right", "q"),
    [
        ((3, 18), (), (18, 9), ()),
        ((3, 18), (3, 1), (18, 9), (9,)),
        ((3, 18), (1,), (18, 9), None),
        ((3, 18), None, (18, 9), (1, 9)),
        ((3, 18), None, (18, 9), None),
        ((2, 3, 18), (1, 3, 1), (2, 18, 9), (2, 1, 9)),
        ((2, 3, 18), (), (18, 9), (9,)),
    ],
)
def test_products_are_exact(left, p, right, q, *, constant, symbolic) -> None:
    for kinds in (("uint8", "int8"), ("int8", "uint8")):
        a, b = drawn(left, kinds[0]), drawn(right, kinds[1])
        zeros = [None if s is None else drawn(s, k) for s, k in zip((p, q), kinds, strict=True)]
        mod, arrays = product(a, zeros[0], b, zeros[1], constant=constant, symbolic=symbolic)
        assert "matmul_of_bytes" in names_of(FuseZeroPoints()(mod))
        factors = [
            x.astype("int64") - (0 if z is None else z) for x, z in zip((a, b), zeros, strict=True)
        ]
        for target in ("native", "reference"):
            found = relaxpy.compile(mod, target=target)["main"](*arrays)
            np.testing.assert_array_equal(found, factors[0] @ factors[1])


def test_zeros_of_constant_zero_points_take_nothing_away() -> None:
    a, b = drawn((3, 18), "int8"), drawn((18, 9), "int8")
    mod, _ = product(a, None, b, np.zeros(9, "int8"), constant=True, symbolic=False)
    assert "subtract" not in FuseZeroPoints()(mod).script()


@pytest.mark.parametrize(
    ("left", "p", "right", "kind"),
    [
        ((3, 18), (18,), (18, 9), "int8"),  # a zero point for each term of the sum
        ((3, 18), (2, 3, 1), (18, 9), "int8"),  # it has more rows than the matrix
        ((3, 18), (), (18, 9), "int16"),  # these are no bytes
        ((18,), (), (18, 9), "int8"),
    ],
)
def test_other_products_stay(left: Sizes, p: Sizes, right: Sizes, kind: str) -> None:
    a, zero, b = drawn(left, kind), drawn(p, kind), drawn(right, kind)
    mod, arrays = product(a, zero, b, None, constant=False, symbolic=False)
    assert FuseZeroPoints()(mod) is mod
    expected = (a.astype("int64") - zero) @ b.astype("int64")
    found = relaxpy.compile(mod, target="native")["main"](*arrays)
    np.testing.assert_array_equal(found, expected.astype("int32"))


def windows(x: Array, kernel: Sizes, strides: int, dilation: int) -> Array:
    """The elements of all windows along the axes after the first two, as more axes at the end."""
    spans = [(k - 1) * dilation + 1 for k in kernel]
    axes = tuple(range(2, x.ndim))
    every = np.lib.stride_tricks.sliding_window_view(x, spans, axes)
    steps = [slice(None, None, n) for n in (strides, dilation) for _ in kernel]
    return every[(slice(None), slice(None), *steps)]


def convolved(x: Array, w: Array, groups: int, strides: int, pads: Sizes, dilation: int) -> Array:
    """The sums of products, channels first, in int64."""
    count = len(pads) // 2
    sides = [(0, 0), (0, 0), *((pads[k], pads[k + count]) for k in range(count))]
    every = windows(np.pad(x, sides), w.shape[2:], strides, dilation)
    n, c, *sizes = every.shape
    every = every.reshape(n, groups, c // groups, *sizes)
    filters = w.reshape(groups, -1, *w.shape[1:])
    places, taps = "xyz"[:count], "uvw"[:count]
    found = np.einsum(f"ngc{places}{taps},goc{taps}->ngo{places}", every, filters)
    return found.reshape(n, -1, *sizes[:count])


def convolution(
    x: Array, p: Array | None, w: Array, q: Array | None, *, constant: str, n: bool, **attrs: Any
) -> tuple[relaxpy.IRModule, list[Array]]:
    """The convolution of `x - p` by `w - q`, of which the operands in `constant` are constants.

    With `n`, images are of any number and size. The arrays have the layouts of the attributes.
    """
    builder, values, arrays = BlockBuilder(), dict[str, rx.Expr](), []
    for name, array in (("x", x), ("p", p), ("w", w), ("q", q)):
        if array is None:
            continue
        if name in constant:
            values[name] = rx.const(array)
            continue
        layout = attrs.get("data_layout", "NCHW") if name == "x" and n else ""
        sizes: list[Any] = list(array.shape)
        sizes[: len(layout)] = [
            size if axis == "C" else Var(axis.lower(), "int64")
            for axis, size in zip(layout, sizes, strict=False)
        ]
        values[name] = rx.Var(name, rx.TensorStructInfo(sizes, str(array.dtype)))
        arrays.append(array)
    params = [v for v in values.values() if isinstance(v, rx.Var)]
    with builder.function("main", params):
        with builder.dataflow():
            factors = []
            for name, zero in ("xp", "wq"):
                wide = builder.emit(op.astype(values[name], "int32"))
                if zero in values:
                    point = builder.emit(op.astype(values[zero], "int32"))
                    wide = builder.emit(op.subtract(wide, point))
                factors.append(wide)
            convolve = getattr(op.nn, f"conv{w.ndim - 2}d")
            result = builder.emit_output(convolve(*factors, out_dtype="int32", **attrs))
        builder.emit_func_output(result)
    return builder.finalize(), arrays


def multiplies_bytes(mod: relaxpy.IRModule) -> bool:
    calls = occurrences(FuseZeroPoints()(mod)["main"], rx.Call)
    convolutions = [c for c in calls if getattr(c.op, "name", "").startswith("relax.nn.conv")]
    dtypes = [[str(tensor_sinfo(arg).dtype) for arg in c.args] for c in convolutions]
    return any(names <= {"int8", "uint8"} for names in map(set, dtypes))


LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
SHAPES: list[tuple[Sizes, Sizes, dict[str, Any]]] = [
    ((1, 5, 9, 8), (7, 5, 3, 3), {}),
    ((2, 6, 9, 8), (16, 6, 3, 3), {"padding": (1, 1, 1, 1)}),
    ((2, 32, 6, 7), (18, 32, 1, 1), {"strides": (2, 2)}),
    ((1, 8, 9, 11), (12, 4, 3, 2), {"groups": 2, "padding": (2, 0, 1, 1), "strides": (2, 2)}),
    ((1, 40, 14, 14), (24, 40, 3, 3), {"dilation": (2, 2), "padding": (2, 2, 2, 2)}),
    ((1, 380, 5, 5), (17, 380, 3, 3), {"padding": (1, 1, 1, 1)}),
    ((2, 6, 30), (4, 3, 4), {"groups": 2, "padding": (3, 1)}),
    ((1, 3, 4, 5, 6), (6, 3, 2, 2, 2), {"padding": (1,)}),
]
KINDS = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]


def check_convolution(
    shape: Sizes,
    filters: Sizes,
    attrs: dict[str, Any],
    kinds: tuple[str, str],
    zeros: tuple[Sizes | None, Sizes | None],
    constant: str,
    layout: str | None = None,
    *,
    n: bool = False,
) -> None:
    x, w = drawn(shape, kinds[0]), drawn(filters, kinds[1])
    p, q = (None if s is None else drawn(s, k) for s, k in zip(zeros, kinds, strict=True))
    wide = [a.astype("int64") - (0 if z is None else z) for a, z in ((x, p), (w, q))]
    count = len(shape) - 2
    pads = attrs.get("padding", (0,))
    pads = pads * 2 * count if len(pads) == 1 else pads
    steps = [attrs.get(name, (1,))[0] for name in ("strides", "dilation")]
    expected = convolved(*wide, attrs.get("groups", 1), steps[0], pads, steps[1])
    names = LAYOUT[count], LAYOUT[count].replace("NC", "OI")
    if layout is not None:
        last = (names[0][0] + names[0][2:] + "C", names[1][2:] + "IO")
        order = [[old.index(axis) for axis in new] for old, new in zip(names, last, strict=True)]
        x, w, expected = (
            a.transpose(o) for a, o in ((x, order[0]), (w, order[1]), (expected, order[0]))
        )
        if q is not None and q.ndim:
            q = q.transpose(order[1])
        names = last
    attrs = {**attrs, "data_layout": names[0], "kernel_layout": names[1]}
    mod, arrays = convolution(x, p, w, q, constant=constant, n=n, **attrs)
    assert multiplies_bytes(mod)
    found = relaxpy.compile(mod, target="native")["main"](*arrays)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.each_choice
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("shape", "filters", "attrs"), SHAPES)
def test_convolutions_are_exact(shape, filters, attrs, kinds) -> None:
    k = KINDS.index(kinds) + SHAPES.index((shape, filters, attrs))
    zeros = [((), None), ((), (filters[0], *[1] * (len(filters) - 1))), (None, ()), ((1,), (1,))]
    constant = "wpq" if k % 3 else "wq"
    check_convolution(shape, filters, attrs, kinds, zeros[k % 4], constant, n=k % 5 > 1)


@pytest.mark.parametrize(
    ("constant", "layout", "symbolic"),
    [("", None, True), ("wq", "last", True), ("wpq", "last", False), ("wq", None, False)],
)
def test_convolutions_in_other_layouts(constant, layout, *, symbolic) -> None:
    shape, filters, attrs = SHAPES[3]
    zeros = ((), (filters[0], 1, 1, 1))
    check_convolution(shape, filters, attrs, KINDS[0], zeros, constant, layout, n=symbolic)


@pytest.mark.parametrize(
    ("kinds", "p", "q", "layouts"),
    [
        (("uint8", "uint8", "int8", "int8"), (4, 1, 1), None, ()),  # one for each channel
        (("uint8", "int8", "int8", "int8"), (), None, ()),  # padding is no byte of this type
        (("int16", "int16", "int8", "int8"), (), None, ()),  # these are no bytes
        (("uint8", "uint8", "int8", "int8"), (), (4, 1, 1), ()),  # one for each input channel
        (("uint8", "uint8", "int8", "int8"), (), (1, 1, 3), ()),
        (("uint8", "uint8", "int8", "int8"), (), None, ("NCHW2c", "OIHW")),  # channels in blocks
    ],
)
def test_other_convolutions_stay(kinds, p, q, layouts) -> None:
    x, w = drawn((1, 4, 5, 5), kinds[0]), drawn((4, 4, 3, 3), kinds[2])
    zero, other = drawn(p, kinds[1]), None if q is None else drawn(q, kinds[3])
    wide = x.astype("int64") - zero, w.astype("int64") - (0 if other is None else other)
    expected = convolved(*wide, 1, 1, (1, 1, 1, 1), 1).astype("int32")
    attrs: dict[str, Any] = {"padding": (1, 1, 1, 1)}
    if layouts:
        attrs |= dict(zip(("data_layout", "kernel_layout"), layouts, strict=True))
        x, expected = (a.reshape(1, 2, 2, 5, 5).transpose(0, 1, 3, 4, 2) for a in (x, expected))
    mod, arrays = convolution(x, zero, w, other, constant="wq", n=False, **attrs)
    assert FuseZeroPoints()(mod) is mod
    found = relaxpy.compile(mod, target="native")["main"](*arrays)
    np.testing.assert_array_equal(found, expected)


def dequantised(
    kind: str, shapes: Sequence[Sizes], zeros: Sequence[Sizes | None], scales: Sequence[Array]
) -> tuple[relaxpy.IRModule, Array, Array]:
    """A product in float32 of dequantised bytes, its argument, and the result in float64."""
    builder, dtypes = BlockBuilder(), ("uint8", "int8")
    arrays = [drawn(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    points = [None if z is None else drawn(z, d) for z, d in zip(zeros, dtypes, strict=True)]
    x = rx.Var("x", rx.TensorStructInfo(list(shapes[0]), dtypes[0]))
    with builder.function("main", [x]):
        with builder.dataflow():
            factors, exact = [], []
            for value, array, zero, scale in zip(
                (x, rx.const(arrays[1])), arrays, points, scales, strict=True
            ):
                number, wide = value, array.astype("float64")
                if zero is not None:
                    point = builder.emit(op.astype(rx.const(zero), "int32"))
                    number = builder.emit(op.astype(value, "int32"))
                    number, wide = builder.emit(op.subtract(number, point)), wide - zero
                number = builder.emit(op.astype(number, "float32"))
                factors.append(builder.emit(op.multiply(number, rx.const(scale))))
                exact.append(wide * scale)
            if kind == "matmul":
                result, expected = op.matmul(*factors), exact[0] @ exact[1]
            else:
                result = op.nn.conv2d(*factors, padding=(1, 1, 1, 1))
                expected = convolved(exact[0], exact[1], 1, 1, (1, 1, 1, 1), 1)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.finalize(), arrays[0], expected


def scale_of(*shape: int, size: float = 0.02) -> Array:
    return (size * RNG.uniform(0.5, 1, shape)).astype("float32")


@pytest.mark.parametrize(
    ("kind", "shapes", "zeros", "scales"),
    [
        ("matmul", ((5, 40), (40, 9)), ((), (9,)), (scale_of(5, 1), scale_of(9))),
        ("matmul", ((2, 5, 40), (40, 9)), ((1,), None), (scale_of(), scale_of(1, 9))),
        ("conv", ((2, 20, 6, 7), (18, 20, 3, 3)), ((), None), (scale_of(), scale_of(18, 1, 1, 1))),
        ("conv", ((2, 3, 6, 7), (4, 3, 3, 3)), (None, (4, 1, 1, 1)), (scale_of(1), scale_of())),
    ],
)
def test_products_of_dequantised_bytes_are_rounded_at_their_end(kind, shapes, zeros, scales):
    mod, x, expected = dequantised(kind, shapes, zeros, scales)
    assert FuseZeroPoints()(mod) is not mod
    found = relaxpy.compile(mod, target="native")["main"](x)
    # The sum, the product of the scales and the result are rounded once each.
    np.testing.assert_allclose(found, expected, rtol=4 * 2**-24, atol=0)


@pytest.mark.parametrize(
    ("kind", "shapes", "scales"),
    [
        ("matmul", ((5, 40), (40, 9)), (scale_of(40), scale_of(9))),  # a scale for each term
        ("matmul", ((5, 40), (40, 9)), (scale_of(), scale_of(size=2e-30))),  # it underflows
        ("matmul", ((1, 33_100), (33_100, 2)), (scale_of(), scale_of())),  # the sum may wrap
        ("conv", ((1, 3, 6, 7), (4, 3, 3, 3)), (scale_of(3, 1, 1), scale_of())),
        ("conv", ((1, 3, 6, 7), (4, 3, 3, 3)), (scale_of(), scale_of(4, 3, 1, 1))),
    ],
)
def test_other_products_of_dequantised_bytes_stay(kind, shapes, scales) -> None:
    mod, _, _ = dequantised(kind, shapes, ((), None), scales)
    assert FuseZeroPoints()(mod) is mod
