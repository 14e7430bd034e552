"""Steps of random ONNX models that move elements: shapes, slices, gathers, sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.fuzz.onnx_draw import ANY, FLOATS, NUMBERS, STRINGS, Draw, Redraw, Value, step

_ENDS = (-9, -1, 0, 1, 2, 3, 2**31 - 1, 2**63 - 1, -(2**63))


@step("Shape", "Size")
def _shape(d: Draw, op: str) -> None:
    x = d.tensor()
    ends = {"start": d.rng.randint(-3, 3), "end": d.rng.randint(-3, 5)}
    d.node(op, [x], **(d.some(**ends) if op == "Shape" and d.opset >= 15 else {}))


@step("Reshape")
def _reshape(d: Draw, op: str) -> None:
    x = d.tensor()
    count = x.array.size
    divisor = d.rng.choice([k for k in (1, 2, 3, 4, 5, 6) if count % k == 0])
    shapes = [[-1], [divisor, -1], [-1, divisor], list(x.shape[::-1]), [*x.shape, 1], [1, *x.shape]]
    if x.shape:
        shapes += [[0, -1], [0] * len(x.shape), [0] * (len(x.shape) - 1) + [-1]]
    shape = d.rng.choice(shapes)
    if d.opset < 5:
        d.node(op, [x], shape=shape)
        return
    attributes = {"allowzero": 1} if d.opset >= 14 and d.chance(0.3) else {}
    if attributes and {0, -1} <= set(shape):
        raise Redraw("any size is possible beside one of 0")
    # A size that is computed is no request for the size of `x`.
    wanted = d.new(np.array(shape), fixed=True) if 0 in shape else d.known(shape)
    d.node(op, [x, wanted], **attributes)


@step("Flatten")
def _flatten(d: Draw, op: str) -> None:
    x = d.tensor(ANY if d.opset >= 9 else FLOATS)
    rank = len(x.shape)
    axis = d.rng.randint(-rank if d.opset >= 11 else 0, rank)
    d.node(op, [x], **({"axis": axis} if d.chance(0.7) else {}))


@step("Transpose")
def _transpose(d: Draw, op: str) -> None:
    x = d.tensor()
    d.node(op, [x], **d.some(perm=d.rng.sample(range(len(x.shape)), len(x.shape))))


def _with_axes(d: Draw, op: str, x: Value, axes: list[int]) -> None:
    if d.opset >= 13:
        d.node(op, [x, d.known(axes)])
    else:
        d.node(op, [x], axes=axes if d.opset >= 11 else [a % 7 for a in axes])


@step("Squeeze")
def _squeeze(d: Draw, op: str) -> None:
    x = d.tensor(fits=lambda v: 1 in v.shape)
    rank = len(x.shape)
    ones = [k for k in range(rank) if x.shape[k] == 1 and d.chance(0.6)]
    if not ones:
        d.node(op, [x])
    else:
        _with_axes(d, op, x, [k - rank if d.opset >= 11 and d.chance(0.4) else k for k in ones])


@step("Unsqueeze")
def _unsqueeze(d: Draw, op: str) -> None:
    x = d.tensor(high=4)
    rank = len(x.shape) + d.rng.choice((1, 1, 2))
    axes = d.rng.sample(range(rank), rank - len(x.shape))
    signed = d.opset >= 11
    axes = axes if signed else sorted(axes)  # the reference of opset 1 adds one after the other
    _with_axes(d, op, x, [k - rank if signed and d.chance(0.4) else k for k in axes])


@step("Expand")
def _expand(d: Draw, op: str) -> None:
    x = d.tensor(high=4)
    larger = [d.rng.choice((0, 2, 3)) if s == 1 and d.chance(0.4) else s for s in x.shape]
    larger = [1 if d.chance(0.3) else s for s in larger]
    d.node(op, [x, d.known([*[2] * d.rng.choice((0, 0, 1)), *larger])])


@step("Tile")
def _tile(d: Draw, op: str) -> None:
    x = d.tensor(ANY if d.opset >= 6 else NUMBERS, high=4)
    if d.opset < 6:
        axis = d.axis(len(x.shape)) % len(x.shape)
        d.node(op, [x, *(d.new(np.array(k, x.dtype), fixed=True) for k in (2, axis))])
    else:
        d.node(op, [x, d.known([d.rng.choice((0, 1, 1, 2)) for _ in x.shape])])


@step("Concat")
def _concat(d: Draw, op: str) -> None:
    x = d.tensor(low=1)
    axis = d.axis(len(x.shape))
    operands = [x]
    for _ in range(d.rng.randint(0, 2)):
        shape = list(x.shape)
        shape[axis] = d.rng.choice((0, 1, 2, shape[axis]))
        operands.append(d.like(shape, x.dtype))
    d.rng.shuffle(operands)
    axis = axis if d.opset >= 11 else axis % len(x.shape)
    d.node(op, operands, axis=axis)


@step("Split")
def _split(d: Draw, op: str) -> None:
    x = d.tensor(low=1)
    axis = d.axis(len(x.shape))
    size = x.shape[axis]
    count = d.rng.choice([k for k in (1, 2, 3) if k <= max(size, 1)])
    cuts = sorted(d.rng.randint(0, size) for _ in range(count - 1))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    attributes: dict[str, Any] = {"axis": axis if d.opset >= 11 else axis % len(x.shape)}
    operands = [x]
    if d.opset >= 18 and d.chance():
        attributes["num_outputs"] = count
    elif size % count or d.chance(0.6):
        if d.opset >= 13:
            operands.append(d.known(parts))
        else:
            attributes["split"] = parts
    d.node(op, operands, count, **attributes)


@step("Slice", "Slice")
def _slice(d: Draw, op: str) -> None:
    x = d.tensor(low=1)
    rank = len(x.shape)
    axes = d.axes(rank, signed=d.opset >= 10)
    starts = [d.rng.randrange(-5, 6) for _ in axes]
    ends = [d.rng.choice(_ENDS) for _ in axes]
    if d.opset < 10:
        if d.chance(0.3):
            axes = [*range(len(axes))]
            d.node(op, [x], starts=starts, ends=ends)
        else:
            d.node(op, [x], axes=axes, starts=starts, ends=ends)
        return
    dtype = "int64" if d.chance(0.8) or any(abs(e) >= 2**31 for e in ends) else "int32"
    operands: list[Value | None] = [x, d.known(starts, dtype), d.known(ends, dtype)]
    leading = axes == [*range(len(axes))]
    operands.append(None if leading and d.chance() else d.known(axes, dtype))
    if d.chance(0.6):
        steps = (1, 2, -1, -2, -7, 2**40 if dtype == "int64" else 9)
        signs = [-1 if abs(e) < 2**31 - 1 or e < 0 else 1 for e in ends]
        chosen = [d.rng.choice(steps) for _ in axes]
        # Backwards to the largest integer is everything in ONNX Runtime only.
        chosen = [abs(c) if sign > 0 else c for c, sign in zip(chosen, signs, strict=True)]
        operands.append(d.known(chosen, dtype))
    d.node(op, operands)


@step("Pad", "Pad")
def _pad(d: Draw, op: str) -> None:
    kinds = (*NUMBERS, STRINGS, STRINGS) if d.opset >= 13 else NUMBERS
    x = d.tensor(kinds if d.opset >= 11 else FLOATS, high=4)
    rank = len(x.shape)
    modes = ["constant", "constant", "edge", "reflect"] + (["wrap"] if d.opset >= 19 else [])
    mode = d.rng.choice(modes)
    sizes = [*x.shape, *x.shape]
    choices = (0, 0, 1, 2, -1) if mode == "constant" else (0, 0, 1, 2)
    pads = [d.rng.choice(choices) for _ in range(2 * rank)]
    if mode == "reflect":
        pads = [min(p, max(s - 1, 0)) for p, s in zip(pads, sizes, strict=True)]
    elif mode != "constant":
        pads = [min(p, s) for p, s in zip(pads, sizes, strict=True)]
    attributes = {} if mode == "constant" and d.chance() else {"mode": mode}
    if d.opset < 11:
        name = "pads" if d.opset >= 2 else "paddings"
        d.node(op, [x], **{name: pads}, **attributes, **d.some(value=1.5))
        return
    operands: list[Value | None] = [x, d.known(pads)]
    # ONNX's reference pads strings by the number 0.
    value = d.new(d.array((), x.dtype)) if d.chance() or x.dtype == STRINGS else None
    operands.append(value)
    if d.opset >= 18 and d.chance(0.4):
        axes = d.axes(rank)
        both = [pads[a] for a in axes] + [pads[a % rank + rank] for a in axes]
        operands[1] = d.known(both)
        operands.append(d.known(axes))
    d.node(op, operands, **attributes)


def _indices(d: Draw, size: int, shape: tuple[int, ...]) -> Value:
    """Indices below a size, also counted from the end."""
    if not size and math.prod(shape):
        raise Redraw("nothing can be indexed")
    rng = np.random.default_rng(d.rng.randrange(1 << 30))
    low = -size if d.opset >= 11 else 0
    array = rng.integers(low, max(size, 1), shape).astype(d.rng.choice(("int32", "int64")))
    return d.new(np.asarray(array), fixed=True)


@step("Gather", "GatherElements", "GatherND")
def _gather(d: Draw, op: str) -> None:
    x = d.tensor(low=1)
    rank = len(x.shape)
    axis = d.axis(rank)
    if op == "GatherND":
        # The indices have as many batches as `x` in calls with other sizes, too.
        batch = d.rng.choice((0, 1)) if d.opset >= 12 and rank > 1 and x.shape[0] == 1 else 0
        depth = d.rng.randint(1, rank - batch)
        sizes = x.shape[batch : batch + depth]
        places = np.stack([np.arange(3) % max(s, 1) for s in sizes], -1)
        if 0 in sizes:
            raise Redraw("nothing can be indexed")
        where = np.broadcast_to(places, (*x.shape[:batch], 3, depth)).copy()
        attributes = {"batch_dims": batch} if batch else {}
        d.node(op, [x, d.new(where, fixed=True)], **attributes)
        return
    given = {"axis": axis if d.opset >= 11 or op != "Gather" else axis % rank}
    given = given if d.chance(0.7) else {}
    size = x.shape[given.get("axis", 0)]
    shape = d.shape(0, 2) if op == "Gather" else x.shape
    d.node(op, [x, _indices(d, size, shape if size or op != "Gather" else (0,))], **given)


@step("ScatterElements", "ScatterND", "Scatter")
def _scatter(d: Draw, op: str) -> None:
    x = d.tensor((*NUMBERS, *(STRINGS,) * 4), 1)
    rank = len(x.shape)
    reductions = {16: ("add", "mul"), 18: ("add", "mul", "max", "min")}
    names = next((reductions[v] for v in (18, 16) if d.opset >= v), ())
    attributes = {"reduction": d.rng.choice(names)} if names and d.chance() else {}
    attributes = {} if x.dtype == STRINGS else attributes
    if op == "ScatterND":
        depth = d.rng.randint(1, rank)
        if 0 in x.shape[:depth]:
            raise Redraw("nothing can be indexed")
        count = 1 if not attributes else 3
        places = np.stack([np.arange(count) % s for s in x.shape[:depth]], -1)
        updates = d.like((count, *x.shape[depth:]), x.dtype)
        d.node(op, [x, d.new(places, fixed=True), updates], **attributes)
        return
    axis = d.axis(rank)
    size = x.shape[axis]
    count = 1 if not attributes and size else d.rng.choice((0, 1, 2)) if size else 0
    shape = [min(2, s) for s in x.shape]
    shape[axis] = count
    axis = axis if d.opset >= 11 else axis % rank
    indices = _indices(d, size, tuple(shape))
    d.node(op, [x, indices, d.like(shape, x.dtype)], axis=axis, **attributes)


@step("TopK")
def _top_k(d: Draw, op: str) -> None:
    x = d.tensor((*FLOATS, "int64", "int32"), 1)
    axis = d.axis(len(x.shape))
    rng = np.random.default_rng(d.rng.randrange(1 << 30))
    distinct = rng.permutation(x.array.size).reshape(x.shape).astype(x.dtype)
    k = d.rng.randint(0, x.shape[axis])
    given = {"axis": axis if d.opset >= 10 else axis % len(x.shape)}
    operands = [d.new(distinct)]
    if d.opset < 10:
        given["k"] = k
    else:
        operands.append(d.known([k]))
    if d.opset >= 11:
        given |= d.some(largest=0, sorted=1)
    d.node(op, operands, 2, **given)


@step("OneHot", "EyeLike", "Range", "ConstantOfShape")
def _created(d: Draw, op: str) -> None:
    if op == "EyeLike":
        d.node(op, [d.tensor(NUMBERS, 2, 2)], **d.some(k=d.rng.randint(-2, 2), dtype=7))
    elif op == "OneHot":
        indices = d.tensor(("int64", "int32", "float32"), high=3, exact=True, fits=_is_whole)
        depth = d.new(np.array(d.rng.choice((1, 3, 5)), "int64"), fixed=True)
        values = d.new(d.array((2,), d.rng.choice(("float32", "int64", "bool", STRINGS))))
        axis = d.rng.randint(-len(indices.shape) - 1, len(indices.shape))
        d.node(op, [indices, depth, values], **d.some(axis=axis))
    elif op == "Range":
        dtype = d.rng.choice(("int64", "int32", "float32"))
        bounds = d.rng.choice([(0, 5, 1), (4, -1, -2), (0, 0, 1), (3, 1, 1), (1, 8, 3)])
        d.node(op, [d.known(b, dtype) for b in bounds])
    else:
        shape = d.known([*d.shape(0, 4)])
        dtype = d.rng.choice(("float32", "int64", "bool", "float16"))
        value = onnx_tensor(d.array((1,), dtype))
        d.node(op, [shape], **d.some(value=value))


def _is_whole(value: Value) -> bool:
    return bool(np.all(value.array == np.floor(value.array.astype("float64"))))


def onnx_tensor(array: np.ndarray[Any, Any]) -> Any:
    """The array as an attribute."""
    return numpy_helper.from_array(array)


@step("DepthToSpace", "SpaceToDepth")
def _depth(d: Draw, op: str) -> None:
    deep = op == "DepthToSpace"
    shape = (d.rng.choice((0, 1, 2)), 8 if deep else 2, 2, 4)
    modes = d.some(mode=d.rng.choice(("DCR", "CRD"))) if deep and d.opset >= 11 else {}
    d.node(op, [d.like(shape, d.rng.choice(("float32", STRINGS)))], blocksize=2, **modes)


@step("ReverseSequence")
def _reverse(d: Draw, op: str) -> None:
    x = d.tensor(low=2)
    time = d.rng.randrange(2)
    lengths = np.array([d.rng.randint(0, x.shape[time]) for _ in range(x.shape[1 - time])], "int64")
    d.node(op, [x, d.new(lengths, fixed=True)], time_axis=time, batch_axis=1 - time)


@step("SequenceConstruct", "SplitToSequence")
def _sequence(d: Draw, op: str) -> None:
    x = d.tensor(low=1)
    if op == "SequenceConstruct":
        items = [x, *(d.like(x.shape, x.dtype) for _ in range(d.rng.randint(0, 2)))]
        (made,) = d.node(op, items)
        count = len(items)
    else:
        axis = d.axis(len(x.shape))
        size = x.shape[axis]
        parts = d.rng.choice([None, d.known([size]), d.known(1)])
        count = 1 if parts is not None and parts.array.ndim else size
        (made,) = d.node(op, [x, parts], axis=axis, **({} if parts else d.some(keepdims=0)))
    if not count:
        raise Redraw("the sequence is empty")
    if d.chance():
        place = d.known(d.rng.randrange(-count, count)) if d.chance(0.6) else None
        if d.chance():
            (made,) = d.node("SequenceErase", [made, place])
            count -= 1
        else:
            shape = made.content[0].shape if isinstance(made.content, list) else x.shape
            (made,) = d.node("SequenceInsert", [made, d.like(shape, x.dtype), place])
            count += 1
    way = d.rng.choice(("SequenceLength", "SequenceAt", "ConcatFromSequence"))
    if way == "SequenceLength":
        d.node(way, [made])
    elif not count:
        raise Redraw("the sequence is empty")
    elif way == "SequenceAt":
        d.node(way, [made, d.known(d.rng.randrange(-count, count))])
    else:
        rank = made.content[0].ndim if isinstance(made.content, list) else 1
        stacked = d.rng.randrange(2) if rank else 1
        axis = d.rng.randrange(-rank - stacked, rank + stacked)
        d.node(way, [made], axis=axis, **({"new_axis": 1} if stacked else d.some(new_axis=0)))
