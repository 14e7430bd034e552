"""Convolutions and pools, from their definitions element by element."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.ir.relax import nodes as rx
from tests.ir.ops.cases.case import Array, Case, floats, integers

Ints = tuple[int, ...]


def cases() -> Iterator[Case]:
    yield from _convolutions()
    yield from _transposed()
    yield from _backward()
    yield from _pools()
    yield from _adaptive()
    yield from _backward_pools()


# ---- layouts


def _axes(layout: str) -> list[tuple[str, int]]:
    return [(letter, int(block or 0)) for block, letter in re.findall(r"(\d*)([A-Za-z])", layout)]


def from_layout(x: Array, layout: str, canonical: str) -> Array:
    """The array with the axes of `canonical`; blocks are put together."""
    names = [letter for letter, _ in _axes(layout)]
    order = [names.index(n) for a in canonical for n in (a, a.lower()) if n in names]
    sizes = dict(zip(names, x.shape, strict=True))
    return x.transpose(order).reshape([sizes[a] * sizes.get(a.lower(), 1) for a in canonical])


def to_layout(x: Array, layout: str, canonical: str) -> Array:
    blocks = {letter.upper(): block for letter, block in _axes(layout) if block}
    shape: list[int] = []
    names: list[str] = []
    for axis, size in zip(canonical, x.shape, strict=True):
        block = blocks.get(axis)
        shape += [size] if block is None else [size // block, block]
        names += [axis] if block is None else [axis, axis.lower()]
    return x.reshape(shape).transpose([names.index(letter) for letter, _ in _axes(layout)])


def _spatial(count: int) -> str:
    return "DHW"[3 - count :]


def _each(value: Any, count: int) -> Ints:
    return (value,) * count if isinstance(value, int) else tuple(value)


def _sides(padding: Any, count: int) -> tuple[Ints, Ints]:
    found = _each(padding, count)
    return (found, found) if len(found) == count else (found[:count], found[count:])


# ---- convolutions


def convolve(
    x: Array, w: Array, s: Any = 1, padding: Any = 0, d: Any = 1, groups: int = 1
) -> Array:
    """The convolution of (N, C, ...) with (O, I, ...)."""
    count = x.ndim - 2
    s, d = _each(s, count), _each(d, count)
    before, after = _sides(padding, count)
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    own, window = w.shape[1], w.shape[2:]
    sizes = [
        (n - dk * (k - 1) - 1) // sk + 1
        for n, k, sk, dk in zip(x.shape[2:], window, s, d, strict=True)
    ]
    y = np.zeros((len(x), len(w), *sizes))
    for n, o in np.ndindex(*y.shape[:2]):
        first = o // (len(w) // groups) * own
        for at in np.ndindex(*sizes):
            for k in np.ndindex(*window):
                place = tuple(a * sa + b * da for a, sa, b, da in zip(at, s, k, d, strict=True))
                for i in range(own):
                    y[(n, o, *at)] += float(x[(n, first + i, *place)]) * float(w[(o, i, *k)])
    return y


def transpose_convolve(
    x: Array, w: Array, s: Any = 1, padding: Any = 0, d: Any = 1, groups: int = 1, more: Any = 0
) -> Array:
    """Each element of (N, I, ...) times (I, O, ...), where the windows of a convolution lie."""
    count = x.ndim - 2
    s, d, more = _each(s, count), _each(d, count), _each(more, count)
    before, after = _sides(padding, count)
    window, own = w.shape[2:], w.shape[1]
    whole = [
        (n - 1) * sk + dk * (k - 1) + 1 + m
        for n, k, sk, dk, m in zip(x.shape[2:], window, s, d, more, strict=True)
    ]
    y = np.zeros((len(x), own * groups, *whole))
    for index in np.ndindex(*x.shape):
        n, i, *at = index
        group = i // (len(w) // groups)
        for o in range(own):
            for k in np.ndindex(*window):
                place = tuple(a * sa + b * da for a, sa, b, da in zip(at, s, k, d, strict=True))
                y[(n, group * own + o, *place)] += float(x[index]) * float(w[(i, o, *k)])
    kept = (slice(b, n - a) for b, a, n in zip(before, after, whole, strict=True))
    return y[(slice(None), slice(None), *kept)]


def _case(
    name: str,
    label: str,
    inputs: tuple[Array, ...],
    function: Callable[..., Array],
    attrs: dict[str, Any],
    layouts: Sequence[str],
    result: str,
    **options: Any,
) -> Case:
    """A row whose oracle takes and returns arrays in canonical layouts."""
    count = int(name[name.index("d") - 1] if "pool" not in name else name[name.index("pool") + 4])
    spatial = _spatial(count)
    canonical = {"d": f"NC{spatial}", "w": f"OI{spatial}", "t": f"IO{spatial}"}

    def expected(*arrays: Array) -> Array:
        found = [
            from_layout(x, layout[1:], canonical[layout[0]])
            for x, layout in zip(arrays, layouts, strict=True)
        ]
        return to_layout(function(*found), result[1:], canonical[result[0]])

    placed = tuple(
        to_layout(x, layout[1:], canonical[layout[0]]).copy()
        for x, layout in zip(inputs, layouts, strict=True)
    )
    space = op.grad if "backward" in name or "selected" in name else op.nn
    operator = getattr(space, name)
    full = f"relax.{'grad' if space is op.grad else 'nn'}.{name}"
    options["literal"] = tuple(
        (k, axis)
        for k, layout in enumerate(layouts)
        for axis, letter in enumerate(re.sub(r"\d", "", layout[1:]))
        if letter.islower()
    )
    return Case(full, label, placed, lambda *v: operator(*v, **attrs), expected, **options)


def _convolution(label: str, x: Array, w: Array, *, transposed: bool = False, **attrs: Any) -> Case:
    """`attrs` are those of the operator, layouts as `data`, `kernel` and `out`."""
    count = x.ndim - 2
    data = attrs.get("data", f"NC{_spatial(count)}")
    kernel = attrs.get("kernel", ("IO" if transposed else "OI") + _spatial(count))
    out, groups = attrs.get("out", data), attrs.get("groups", 1)
    names = {name: f"{name}_layout" for name in ("data", "kernel", "out")}
    given = {names.get(name, name): value for name, value in attrs.items()}
    how = [attrs.get(name, 1 - (name == "padding")) for name in ("strides", "padding", "dilation")]

    def function(v: Array, k: Array) -> Array:
        if transposed:
            return transpose_convolve(v, k, *how, groups, attrs.get("output_padding", 0))
        return convolve(v, k, *how, groups)

    # Whether groups and blocks divide channels is only known of numbers.
    is_number = groups > 1 or (transposed and "c" in out)
    name = f"conv{count}d{'_transpose' if transposed else ''}"
    layouts = (f"d{data}", f"{'t' if transposed else 'w'}{kernel}")
    needs = ("numbers",) * is_number
    return _case(name, label, (x, w), function, given, layouts, f"d{out}", needs=needs)


def _convolutions() -> Iterator[Case]:
    x, w = floats(1, 2, 4, 5), floats(2, 2, 2, 3, seed=1)
    both: list[tuple[str, dict[str, Any]]] = [
        ("plain", {}),
        ("padded", {"padding": 1}),
        ("padded by axis", {"padding": (1, 2)}),
        ("padded by side", {"padding": (0, 1, 2, 0)}),
        ("strides", {"strides": (2, 1), "padding": (1, 0)}),
        ("strides that leave a rest", {"strides": (2, 3), "padding": (1, 1)}),
        ("dilation", {"dilation": (2, 1), "padding": (1, 1)}),
        ("all", {"strides": (2, 2), "dilation": (1, 2), "padding": (1, 2, 0, 1)}),
        ("NHWC", {"data": "NHWC", "kernel": "HWIO", "padding": 1}),
        ("HWOI", {"data": "HWNC", "kernel": "HWOI", "strides": 2}),
        ("out_layout", {"out": "NHWC", "padding": 1}),
        ("WCNH to CHNW", {"data": "WCNH", "kernel": "IWOH", "out": "CHNW", "strides": (1, 2)}),
        ("blocks", {"data": "NCHW2c", "kernel": "OIHW2i2o", "out": "NHWC2c", "padding": 1}),
    ]
    for label, attrs in both:
        yield _convolution(label, x, w, **attrs)
    for label, c, o, groups in (
        ("groups", 4, 4, 2),
        ("more outputs", 2, 6, 2),
        ("fewer outputs", 6, 2, 2),
        ("depthwise", 3, 3, 3),
        ("depthwise, multiplied", 2, 4, 2),
    ):
        data, weight = floats(1, c, 3, 3), floats(o, c // groups, 2, 2, seed=2)
        yield _convolution(label, data, weight, groups=groups, padding=(1, 0))
        layouts = {"data": "NHWC", "kernel": "HWOI"}
        yield _convolution(
            f"{label}, NHWC", data, weight, groups=groups, strides=2, padding=1, **layouts
        )
    large = floats(2, 1, 9, 1, seed=4)
    yield _convolution(
        "depthwise, large", floats(1, 2, 20, 4), large.repeat(8, 3), groups=2, padding=4
    )
    yield _convolution("a batch", floats(3, 2, 4, 5), w, strides=2)
    yield _convolution("no batch", x[:0], w, padding=1)
    yield _convolution("no channels", x[:, :0], w[:, :0], padding=1)
    yield _convolution("no outputs", x, w[:0])
    yield _convolution("depthwise, no outputs", x, w[:0, :1], groups=x.shape[1])
    yield _convolution("no window", x[:, :, :1], w[:, :, :3].repeat(2, 2), strides=(4, 1))
    yield _convolution("1 x 1", x, w[:, :, :1, :1])
    yield _convolution("ints", integers(1, 2, 4, 5), integers(2, 2, 2, 2))
    yield _convolution(
        "bytes",
        integers(1, 2, 4, 5, dtype="int8"),
        integers(2, 2, 1, 1, dtype="int8"),
        out_dtype="int32",
    )
    truths = np.array([[[[True, False, False], [False, False, True]]]])
    yield _convolution("bool", truths, np.array([[[[True, False]]]]), padding=1)
    special = x.copy()
    special[0, 0, 1, 1], special[0, 1, 2, 3], special[0, 0, 3, 4] = np.inf, np.nan, -np.inf
    yield _convolution("not finite", special, w)
    narrow = floats(1, 2, 4, 4, dtype="float16"), floats(2, 2, 2, 2, dtype="float16", seed=2)
    yield _convolution("float16", *narrow, padding=1)
    yield _convolution("out_dtype", *narrow, out_dtype="float32")
    yield _convolution("float64", x.astype("float64"), w.astype("float64"), padding=1)
    line, taps = floats(2, 2, 7), floats(3, 2, 3, seed=3)
    yield _convolution("plain", line, taps)
    yield _convolution("all", line, taps, strides=2, padding=(1, 2), dilation=2)
    yield _convolution("groups", line, taps[:2, :1], groups=2, padding=1)
    yield _convolution("NWC", line, taps, data="NWC", kernel="WIO", padding=1)
    cube, kernel = floats(1, 2, 3, 3, 2), floats(1, 2, 2, 2, 1, seed=3)
    yield _convolution("plain", cube, kernel)
    yield _convolution(
        "all", cube, kernel, strides=(1, 2, 1), padding=(1, 0, 1, 0, 1, 0), dilation=(2, 1, 1)
    )
    yield _convolution("NDHWC", cube, kernel, data="NDHWC", kernel="DHWIO", out="NCDHW", padding=1)
    yield _convolution("depthwise", cube, kernel.reshape(2, 1, 2, 2, 1), groups=2)


def _transposed_case(label: str, x: Array, w: Array, **attrs: Any) -> Case:
    return _convolution(label, x, w, transposed=True, **attrs)


def _transposed() -> Iterator[Case]:
    x, w = floats(1, 2, 3, 3), floats(2, 2, 2, 3, seed=1)
    both: list[tuple[str, dict[str, Any]]] = [
        ("plain", {}),
        ("padded by side", {"padding": (0, 1, 1, 2)}),
        ("strides", {"strides": 2}),
        ("output_padding", {"strides": (3, 2), "output_padding": (2, 1), "padding": (1, 0)}),
        ("dilation", {"dilation": (2, 1), "padding": 1}),
        ("all", {"strides": (2, 3), "dilation": (3, 2), "padding": 1, "output_padding": (0, 2)}),
        ("NHWC", {"data": "NHWC", "kernel": "HWOI", "strides": 2, "padding": 1}),
        ("out_layout", {"out": "HWNC", "kernel": "OIWH", "strides": 2, "padding": 1}),
        ("blocks", {"data": "NCHW2c", "kernel": "IOHW2o", "out": "NHWC2c", "strides": 2}),
    ]
    for label, attrs in both:
        yield _transposed_case(label, x, w, **attrs)
    for label, i, o, groups in (("groups", 4, 1, 2), ("depthwise", 3, 1, 3), ("wider", 2, 3, 2)):
        weight = floats(i, o, 2, 2, seed=2)
        yield _transposed_case(label, floats(1, i, 2, 3), weight, groups=groups, strides=2)
        layouts = {"data": "NHWC", "kernel": "HWIO", "out": "CNHW"}
        yield _transposed_case(
            f"{label}, NHWC", floats(2, i, 2, 2), weight, groups=groups, padding=1, **layouts
        )
    yield _transposed_case("no batch", x[:0], w, padding=1)
    yield _transposed_case("no channels", x[:, :0], w[:0])
    yield _transposed_case("ints", integers(1, 2, 3, 3), integers(2, 1, 2, 2), strides=2)
    truths = np.array([[[[True, False, False], [False, False, True]]]])
    yield _transposed_case("bool", truths, np.array([[[[True, True]]]]))
    special, weights = x.copy(), w.copy()
    special[0, 0, 1, 1], weights[1, 1, 0, 1] = np.nan, np.inf
    yield _transposed_case("not finite", special, weights, strides=2)
    narrow = floats(1, 2, 3, 3, dtype="float16"), floats(2, 2, 2, 2, dtype="float16", seed=2)
    yield _transposed_case("float16", *narrow, padding=1)
    yield _transposed_case("out_dtype", *narrow, out_dtype="float32")
    line, taps = floats(2, 2, 5), floats(2, 3, 3, seed=3)
    yield _transposed_case("plain", line, taps)
    yield _transposed_case(
        "all", line, taps, strides=2, padding=(1, 2), output_padding=1, dilation=2
    )
    yield _transposed_case("NWC", line, taps, data="NWC", kernel="WOI", padding=1)
    cube, kernel = floats(1, 2, 2, 3, 2), floats(2, 1, 2, 2, 1, seed=3)
    yield _transposed_case("plain", cube, kernel)
    yield _transposed_case("all", cube, kernel, strides=(1, 2, 1), padding=(1, 0, 0), groups=2)


def _gradient_of_data(g: Array, w: Array, shape: Ints, **attrs: Any) -> Array:
    """By the transpose of the map of each unit of data."""
    found = np.zeros(shape)
    for index in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[index] = 1
        found[index] = (convolve(unit, w, **attrs) * g).sum()
    return found


def _gradient_of_weight(g: Array, x: Array, shape: Ints, **attrs: Any) -> Array:
    found = np.zeros(shape)
    for index in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[index] = 1
        found[index] = (convolve(x, unit, **attrs) * g).sum()
    return found


def _backward() -> Iterator[Case]:
    rows: list[tuple[str, Ints, Ints, dict[str, Any]]] = [
        ("plain", (1, 2, 4), (2, 2, 2), {}),
        ("all", (1, 2, 6), (2, 1, 2), {"s": 2, "padding": (1, 0), "d": 2, "groups": 2}),
        ("plain", (1, 2, 3, 3), (2, 2, 2, 2), {}),
        ("a rest", (2, 1, 4, 4), (2, 1, 2, 3), {"s": (3, 2), "padding": (1, 0, 0, 1)}),
        ("groups", (1, 4, 3, 2), (2, 2, 2, 1), {"groups": 2, "padding": 1, "s": 2}),
        ("depthwise", (1, 3, 3, 3), (3, 1, 2, 2), {"groups": 3, "d": (1, 2), "padding": 1}),
        ("no batch", (0, 2, 3, 3), (2, 2, 2, 2), {}),
        ("plain", (1, 1, 2, 3, 2), (2, 1, 2, 2, 1), {}),
        ("strides", (1, 2, 3, 2, 3), (2, 1, 2, 1, 2), {"groups": 2, "s": (2, 1, 1)}),
    ]
    names = {"s": "strides", "d": "dilation", "padding": "padding", "groups": "groups"}
    for label, data, weight, attrs in rows:
        count = len(data) - 2
        x, w = floats(*data), floats(*weight, seed=1)
        g = floats(*convolve(x, w, **attrs).shape, seed=2)
        given = {names[key]: value for key, value in attrs.items()}
        spatial = _spatial(count)
        for layouts in (None, (f"N{spatial}C", f"{spatial}IO", f"C{spatial[::-1]}N")):
            d, k, o = layouts or (f"NC{spatial}", f"OI{spatial}", f"NC{spatial}")
            placed = {"data_layout": d, "kernel_layout": k, "out_layout": o} if layouts else {}
            suffix = f", {d}" if layouts else ""
            yield _backward_case(
                f"{label}{suffix}", g, w, x, attrs, given | placed, (d, k, o), "data"
            )
            yield _backward_case(
                f"{label}{suffix}", g, x, w, attrs, given | placed, (d, k, o), "weight"
            )
    narrow = floats(1, 2, 2, 2, dtype="float16"), floats(2, 2, 2, 2, dtype="float16", seed=1)
    layouts3 = ("NCHW", "OIHW", "NCHW")
    yield _backward_case("float16", *narrow, floats(1, 2, 3, 3), {}, {}, layouts3, "data")
    wide = {"out_dtype": "float32"}
    like = np.zeros((2, 2, 1, 1), "float16")
    yield _backward_case("out_dtype", *narrow[:1], narrow[0], like, {}, wide, layouts3, "weight")


def _backward_case(
    label: str,
    g: Array,
    other: Array,
    like: Array,
    attrs: dict[str, Any],
    given: dict[str, Any],
    layouts: tuple[str, str, str],
    kind: str,
) -> Case:
    count = g.ndim - 2
    data, kernel, out = f"d{layouts[0]}", f"w{layouts[1]}", f"d{layouts[2]}"
    source, target = (kernel, data) if kind == "data" else (data, kernel)
    canonical = "NC" if target[0] == "d" else "OI"
    shape = to_layout(like, target[1:], canonical + _spatial(count)).shape
    function = _gradient_of_data if kind == "data" else _gradient_of_weight
    case = _case(
        f"conv{count}d_backward_{kind}",
        label,
        (g, other),
        lambda u, v: function(u, v, like.shape, **attrs),
        given,
        (out, source),
        target,
        needs=("numbers",),
    )
    operator = getattr(op.grad, f"conv{count}d_backward_{kind}")

    def call(u: rx.Expr, v: rx.Expr) -> rx.Expr:
        return operator(u, v, shape, **given)  # type: ignore[no-any-return]

    return replace(case, call=call, only=("values",))


# ---- pools


def windows_of(
    shape: Ints, k: Ints, s: Ints, padding: Any, d: Ints, ceil: bool
) -> Iterator[tuple[Ints, list[Ints], int]]:
    """Each window: its index, the positions in the data, and how many lie in data or padding."""
    count = len(shape)
    before, after = _sides(padding, count)
    sizes = []
    for n, ka, sa, da, b, a in zip(shape, k, s, d, before, after, strict=True):
        room = n + b + a - da * (ka - 1) - 1
        sizes.append((-(-room // sa) if ceil else room // sa) + 1)
    for at in np.ndindex(*sizes):
        inside, padded = [], 0
        for step in np.ndindex(*k):
            place = tuple(
                i * sa - b + j * da for i, sa, b, j, da in zip(at, s, before, step, d, strict=True)
            )
            ranges = list(zip(place, shape, before, after, strict=True))
            inside += [place] if all(0 <= p < n for p, n, _, _ in ranges) else []
            padded += all(-b <= p < n + a for p, n, b, a in ranges)
        yield at, inside, padded


def pool(
    x: Array,
    kind: str,
    k: Any = 1,
    s: Any = 1,
    padding: Any = 0,
    d: Any = 1,
    ceil: bool = False,
    counted: bool = False,
) -> Array:
    count = x.ndim - 2
    spans = windows_of(
        x.shape[2:], _each(k, count), _each(s, count), padding, _each(d, count), ceil
    )
    found = {}
    for at, inside, padded in spans:
        values = np.stack([x[(slice(None), slice(None), *p)] for p in inside]) if inside else None
        if kind == "max":
            low = np.full(x.shape[:2], -np.inf)
            found[at] = low if values is None else values.max(0)
        else:
            total = np.zeros(x.shape[:2]) if values is None else values.sum(0)
            found[at] = total / max(padded if counted else len(inside), 1)
    return _assembled(found, x.shape[:2])


def _assembled(found: dict[Ints, Array], head: Ints) -> Array:
    sizes = [max(at[a] for at in found) + 1 for a in range(len(next(iter(found))))]
    y = np.zeros((*head, *sizes))
    for at, value in found.items():
        y[(slice(None), slice(None), *at)] = value
    return y


def _pool_case(label: str, x: Array, kind: str, *, name: str = "", **attrs: Any) -> Case:
    """`attrs` are those of the operator; what is left out has its default."""
    count = x.ndim - 2
    layout = attrs.get("layout", f"NC{_spatial(count)}")
    counted = attrs.get("count_include_pad", kind == "avg" and count != 2)

    def function(v: Array) -> Array:
        found = pool(
            v,
            kind,
            attrs.get("pool_size", 1),
            attrs.get("strides", 1),
            attrs.get("padding", 0),
            attrs.get("dilation", 1),
            attrs.get("ceil_mode", False),
            counted,
        )
        return np.trunc(found) if v.dtype.kind in "iu" else found

    out = f"d{attrs.get('out_layout', layout)}"
    options: dict[str, Any] = {"smooth": bool(np.isfinite(function(x)).all())}
    return _case(
        f"{kind}_pool{count}d", label, (x,), function, attrs, (f"d{layout}",), out, **options
    )


POOLS: list[tuple[str, dict[str, Any]]] = [
    ("nothing", {}),
    ("halves", {"pool_size": 2, "strides": 2}),
    ("overlapping", {"pool_size": (3, 2), "strides": (2, 1)}),
    ("padded", {"pool_size": 3, "padding": 1, "strides": 2}),
    ("padded by side", {"pool_size": (2, 3), "padding": (1, 2, 0, 1)}),
    ("padding counts", {"pool_size": 3, "padding": (1, 2), "count_include_pad": True}),
    ("padding does not count", {"pool_size": 3, "padding": (1, 2), "count_include_pad": False}),
    ("ceil_mode", {"pool_size": 2, "strides": (3, 2), "ceil_mode": True}),
    (
        "ceil_mode, padded",
        {"pool_size": 3, "strides": 2, "padding": (1, 1, 0, 1), "ceil_mode": True},
    ),
    (
        "ceil_mode, all counts",
        {
            "pool_size": 3,
            "strides": (3, 4),
            "padding": 1,
            "ceil_mode": True,
            "count_include_pad": True,
        },
    ),
    ("a window in the padding", {"pool_size": 1, "strides": 4, "ceil_mode": True}),
    ("dilation", {"pool_size": 2, "dilation": (2, 3), "padding": 1}),
    ("gaps", {"pool_size": 1, "strides": (2, 3)}),
    ("large", {"pool_size": (2, 20), "padding": (0, 9)}),
    ("NHWC", {"pool_size": (2, 3), "strides": 2, "padding": (1, 0), "layout": "NHWC"}),
    ("WCNH", {"pool_size": (3, 2), "layout": "WCNH"}),
    ("out_layout", {"pool_size": 2, "out_layout": "NHWC"}),
    ("blocks", {"pool_size": 2, "layout": "NCHW2c"}),
    (
        "blocks of axes",
        {"pool_size": 2, "strides": (1, 5), "layout": "NHWC2h", "padding": (0, 0, 1, 0)},
    ),
]
#: What is the default of one of the operators, and not of another.
OTHERWISE: dict[str, dict[str, Any]] = {
    f"ceil_mode {ceil}, counted {counted}": {
        "pool_size": 2,
        "strides": 3,
        "padding": 1,
        "ceil_mode": ceil,
        "count_include_pad": counted,
    }
    for ceil, counted in ((True, False), (False, True))
}


def _pools() -> Iterator[Case]:
    x = floats(1, 2, 4, 5)
    for kind in ("max", "avg"):
        for label, attrs in POOLS:
            yield _pool_case(label, x, kind, **attrs)
        yield _pool_case("a batch", floats(3, 2, 4, 4), kind, pool_size=2, strides=2)
        yield _pool_case("no batch", x[:0], kind, pool_size=2, padding=1)
        yield _pool_case("no channels", x[:, :0], kind, pool_size=2, ceil_mode=True)
        yield _pool_case("ints", integers(1, 2, 4, 4), kind, pool_size=2)
        large = np.full((1, 1, 4, 4), 120, "int8")
        yield _pool_case("bytes", large, kind, pool_size=4)
        special = x.copy()
        special[0, 0, 1, 1], special[0, 1, 2, 3], special[0, 0, 3, 4] = np.inf, np.nan, -np.inf
        yield _pool_case("not finite", special, kind, pool_size=2, strides=2, padding=(0, 1))
        yield _pool_case("float16", x.astype("float16"), kind, pool_size=3, padding=1)
        yield _pool_case("float64", x.astype("float64"), kind, pool_size=2)
        line, cube = floats(2, 2, 7), floats(1, 2, 3, 4, 2)
        yield _pool_case("padded", line, kind, pool_size=3, strides=2, padding=1)
        yield _pool_case(
            "NWC", line, kind, pool_size=2, padding=(0, 1), layout="NWC", ceil_mode=True
        )
        yield _pool_case("padded", cube, kind, pool_size=(2, 3, 1), padding=(1, 1, 0), strides=2)
        for label, other in OTHERWISE.items():
            yield _pool_case(label, line, kind, **other)
            yield _pool_case(label, cube, kind, **other)
        yield _pool_case(
            "NDHWC", cube, kind, pool_size=2, layout="NDHWC", padding=(0, 1, 0, 1, 0, 0)
        )
    yield _pool_case("bool", x > 0, "max", pool_size=2, padding=0)


def _adaptive_mean(x: Array, sizes: Sequence[int]) -> Array:
    if not all(x.shape[2:]):
        return np.zeros((*x.shape[:2], *sizes))
    found = {}
    for at in np.ndindex(*sizes):
        spans = zip(at, sizes, x.shape[2:], strict=True)
        part = tuple(slice(k * n // m, -(-(k + 1) * n // m)) for k, m, n in spans)
        block = x[(slice(None), slice(None), *part)]
        found[at] = block.mean(axis=tuple(range(2, x.ndim)))
    return _assembled(found, x.shape[:2])


def _adaptive() -> Iterator[Case]:
    x = floats(1, 2, 4, 6)
    rows: list[tuple[str, Array, dict[str, Any]]] = [
        ("as it is", x, {}),
        ("one", x, {"output_size": 1}),
        ("parts", x, {"output_size": (2, 3)}),
        ("overlapping", x, {"output_size": (3, 4)}),
        ("more", x, {"output_size": (5, 9)}),
        ("one axis", x, {"output_size": (4, 1)}),
        ("NHWC", x, {"output_size": (3, 2), "layout": "NHWC"}),
        ("out_layout", x, {"output_size": (3, 2), "out_layout": "HWNC"}),
        ("only out_layout", x, {"out_layout": "NHWC"}),
        ("blocks", x, {"output_size": 3, "layout": "NCHW2c"}),
        ("large", floats(1, 1, 3, 20), {"output_size": (2, 1)}),
        ("large, overlapping", floats(1, 1, 1, 37), {"output_size": (1, 2)}),
        ("no batch", x[:0], {"output_size": 2}),
        ("float16", x.astype("float16"), {"output_size": 3}),
        ("one", floats(2, 2, 5), {"output_size": 1}),
        ("overlapping", floats(2, 2, 5), {"output_size": 3}),
        ("NWC", floats(2, 2, 6), {"output_size": 4, "layout": "NWC"}),
        ("one", floats(1, 2, 2, 3, 2), {"output_size": 1}),
        ("overlapping", floats(1, 2, 2, 3, 2), {"output_size": (1, 2, 3)}),
    ]
    for label, data, attrs in rows:
        count = data.ndim - 2
        sizes = attrs.get("output_size")
        layout = attrs.get("layout", f"NC{_spatial(count)}")
        out = attrs.get("out_layout", layout)

        def function(v: Array, sizes: Any = sizes, count: int = count) -> Array:
            return v if sizes is None else _adaptive_mean(v, _each(sizes, count))

        name = f"adaptive_avg_pool{count}d"
        case = _case(name, label, (data,), function, attrs, (f"d{layout}",), f"d{out}")
        yield case
        shape = case.inputs[0].shape
        g = floats(*np.shape(case.expected(case.inputs[0])), dtype=str(data.dtype), seed=1)

        def backward(v: Array, case: Case = case, shape: Ints = shape) -> Array:
            found = np.zeros(shape)
            for index in np.ndindex(*shape):
                unit = np.zeros(shape)
                unit[index] = 1
                found[index] = (case.expected(unit) * v).sum()
            return found

        operator = getattr(op.grad, f"{name}_backward")

        def call(
            v: rx.Expr, operator: Any = operator, shape: Ints = shape, attrs: Any = attrs
        ) -> Any:
            return operator(v, shape, **attrs)

        yield Case(
            f"relax.grad.{name}_backward",
            label,
            (g,),
            call,
            backward,
            needs=("numbers",),
            only=("values",),
        )
    whole = _case(
        "adaptive_avg_pool2d",
        "ints",
        (integers(1, 2, 4, 4),),
        lambda v: np.trunc(_adaptive_mean(v, (3, 2))),
        {"output_size": (3, 2)},
        ("dNCHW",),
        "dNCHW",
        only=("dtype",),
    )
    yield whole


def _spread(g: Array, x: Array, attrs: dict[str, Any], kind: str, counted: bool) -> Array:
    """The gradient of the data of a pool."""
    count, found = x.ndim - 2, np.zeros(x.shape)
    for at, inside, padded in _windows_by(x, attrs):
        members = max(padded if counted else len(inside), 1)
        for n, c in np.ndindex(*x.shape[:2]):
            value = g[(n, c, *at)]
            if kind == "avg":
                for place in inside:
                    found[(n, c, *place)] += value / members
            elif inside:
                found[(n, c, *_greatest(x[n, c], inside))] += value
    assert count
    return found


def _windows_by(x: Array, attrs: dict[str, Any]) -> Iterator[tuple[Ints, list[Ints], int]]:
    count = x.ndim - 2
    k, s, d = (_each(attrs.get(name, 1), count) for name in ("pool_size", "strides", "dilation"))
    ceil = attrs.get("ceil_mode", False)
    return windows_of(x.shape[2:], k, s, attrs.get("padding", 0), d, ceil)


def _greatest(x: Array, places: list[Ints]) -> Ints:
    """The first place with a NaN, or else with the greatest element."""
    values = [x[place] for place in places]
    return places[int(np.argmax(values))]


def _selected(v: Array, x: Array, attrs: dict[str, Any]) -> Array:
    found: dict[Ints, Array] = {}
    for at, inside, _ in _windows_by(x, attrs):
        block = np.zeros(x.shape[:2])
        for n, c in np.ndindex(*x.shape[:2]):
            if inside:
                block[n, c] = v[(n, c, *_greatest(x[n, c], inside))]
        found[at] = block
    return _assembled(found, x.shape[:2])


def _backward_pools() -> Iterator[Case]:
    # Distances between elements are larger than the steps of differences.
    many = np.random.default_rng(5).permutation(1 * 2 * 4 * 5).reshape(1, 2, 4, 5)
    x = (many / 7).astype("float32")
    line = floats(2, 2, 7)
    cube = x.reshape(1, 2, 2, 5, 2)
    tied = np.array([[[[1, 3, 3], [3, 0, np.nan], [np.nan, 2, 2]]]], "float32")
    rows: list[tuple[str, Array, dict[str, Any]]] = [
        *((label, x, attrs) for label, attrs in POOLS),
        ("tied", tied, {"pool_size": 2}),
        ("float16", x.astype("float16"), {"pool_size": 3, "padding": 1}),
        ("no batch", x[:0], {"pool_size": 2}),
        ("small", x[:, :1, :, :4], {"pool_size": (3, 2), "padding": 1, "strides": 2}),
        ("small", cube[:, :1], {"pool_size": 2, "padding": (0, 0, 0, 0, 1, 0)}),
        ("padded", line, {"pool_size": 3, "strides": 2, "padding": 1}),
        ("NWC", line, {"pool_size": 2, "layout": "NWC", "out_layout": "WNC"}),
        ("padded", cube, {"pool_size": (2, 3, 1), "padding": (0, 1, 0), "strides": (1, 2, 1)}),
        *((label, data, attrs) for label, attrs in OTHERWISE.items() for data in (line, cube)),
    ]
    for label, data, attrs in rows:
        count = data.ndim - 2
        layout = attrs.get("layout", f"NC{_spatial(count)}")
        out = attrs.get("out_layout", layout)
        for kind in ("max", "avg"):
            counted = attrs.get("count_include_pad", kind == "avg" and count != 2)
            if kind == "avg" and label == "tied":
                continue
            shape = pool(data.astype("float64"), "avg", *_pool_arguments(attrs)).shape
            g = floats(*shape, dtype=str(data.dtype), seed=1)

            def function(
                u: Array, v: Array, attrs: Any = attrs, kind: str = kind, counted: bool = counted
            ) -> Array:
                return _spread(u, v, attrs, kind, counted)

            layouts = (f"d{out}", f"d{layout}")
            yield _case(
                f"{kind}_pool{count}d_backward",
                label,
                (g, data),
                function,
                attrs,
                layouts,
                f"d{layout}",
                needs=("numbers",),
            )
        values = floats(*data.shape, dtype=str(data.dtype), seed=2)
        yield _case(
            f"max_pool{count}d_selected",
            label,
            (values, data),
            lambda u, v, attrs=attrs: _selected(u, v, attrs),
            attrs,
            (f"d{layout}", f"d{layout}"),
            f"d{out}",
        )


def _pool_arguments(attrs: dict[str, Any]) -> list[Any]:
    names = ("pool_size", "strides", "padding", "dilation", "ceil_mode")
    defaults = (1, 1, 0, 1, False)
    return [attrs.get(name, default) for name, default in zip(names, defaults, strict=True)]
