"""Loops and scans: unrolled where they are short, else recursive functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, serial_loops
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, Value, converter
from relaxpy.plugins.onnx.ops.branches import (
    Shape,
    as_scalar,
    cast_to,
    closed_scope,
    joined,
    shape_seen,
)
from relaxpy.plugins.onnx.ops.sequences import as_object, item_info
from relaxpy.plugins.onnx.view import Graph
from relaxpy.support.dataclass import dataclass

#: The number of nodes that an unrolled loop may have.
_UNROLLED = 128
#: The number of iterations up to which a loop over sequences is unrolled.
_UNROLLED_SEQUENCES = 256
#: Counts from here on stand for "until the condition is false".
_ENDLESS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class _Step:
    """The results of an iteration: condition (None: go on), states, elements of the outputs."""

    cond: Value
    states: list[Value]
    items: list[Value]


@dataclass(frozen=True, eq=False)
class _Loop:
    """An iteration: `step(i, condition, states)` emits one; there are `count` at most."""

    step: Callable[[Value, Value, list[Value]], _Step]
    initial: list[Value]
    count: Value
    cond: Value
    #: How many outputs have an element for each iteration.
    outputs: int
    nodes: int
    #: True if the trip count alone ends the loop.
    counts: bool


def _goes_on(body: Graph) -> bool:
    """True if the condition that a body returns is its argument, or constant true."""
    name, given = body.outputs[0], list(body.inputs)[1]
    made = {output: node for node in body.nodes for output in node.outputs}
    while name != given:
        if name in body.initializers:
            return bool(body.initializers[name].array.all())
        node = made.pop(name, None)  # of a cycle, once
        if node is not None and node.op == "Constant":
            return bool(getattr(node.attributes.get("value"), "all", lambda: False)())
        if node is None or node.op not in ("Identity", "Cast") or not node.inputs:
            return False
        name = node.inputs[0]
    return True


@converter("Loop", strings=True)
def loop(
    cx: Context, M: Value = None, cond: Value = None, *v_initial: Value, body: Graph
) -> list[Value]:
    states = len(v_initial)
    if len(body.inputs) != states + 2 or len(body.outputs) < states + 1:
        raise UnsupportedError(
            f"the body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, expected "
            f"{states + 2} and at least {states + 1}"
        )
    goes_on = _goes_on(body)

    def step(i: Value, condition: Value, values: list[Value]) -> _Step:
        given = rx.const(True) if goes_on else condition
        found = cx.subgraph(body, [i, given, *values])
        return _Step(None if goes_on else found[0], found[1 : states + 1], found[states + 1 :])

    known = cx.array(cond)
    first = None if cond is None or (known is not None and known.all()) else cond
    if known is not None and not known.all():
        M = cx.contents([0], (), "int64")  # noqa: N806
    count = cx.integers(M) if M is not None else None
    if count is not None and isinstance(count[0], int) and count[0] >= _ENDLESS:
        M = None  # noqa: N806
    initial = list(v_initial)
    outputs = len(body.outputs) - states - 1
    found, stacked = _iterated(
        cx, _Loop(step, initial, M, first, outputs, len(body.nodes), goes_on)
    )
    return [*found, *stacked]


def _iterated(
    cx: Context, loop: _Loop, *, backwards: Sequence[bool] = ()
) -> tuple[list[Value], list[Value]]:
    """The last states, and the outputs along a new first axis."""
    known = None if loop.count is None else cx.integers(loop.count)
    count = known[0] if known else None
    limit = _UNROLLED // max(loop.nodes, 1)
    if not all(_is_tensor(value) for value in loop.initial):
        limit = _UNROLLED_SEQUENCES
    if isinstance(count, int) and loop.cond is None and 0 < count <= max(limit, 1):
        found = _unrolled(cx, loop, count, backwards)
        if found is not None:
            return found
    if isinstance(count, int) and count <= 0 and not loop.outputs:
        return list(loop.initial), []
    return _recursive(cx, loop, backwards)


def _is_tensor(value: Value) -> bool:
    if isinstance(value, tensors.Contents):
        return True
    return value is not None and isinstance(value.struct_info, rx.TensorStructInfo)


def _unrolled(
    cx: Context, loop: _Loop, count: int, backwards: Sequence[bool]
) -> tuple[list[Value], list[Value]] | None:
    states = list(loop.initial)
    items: list[list[rx.Expr]] = [[] for _ in range(loop.outputs)]
    codes: list[int | None] = []
    for i in range(count):
        found = loop.step(cx.contents([i], (), "int64"), rx.const(True), states)
        if found.cond is not None and cx.array(found.cond) is None:
            return None
        states, codes = found.states, [cx.code(item) for item in found.items]
        for k, item in enumerate(found.items):
            tensor = cx.tensor(item)
            items[k].append(cx.of_element_type(cx.emit(tensor), codes[k]))
        if found.cond is not None and not cx.array(found.cond):
            break
    stacked: list[Value] = []
    for k, (parts, code) in enumerate(zip(items, codes, strict=True)):
        ordered = parts[::-1] if backwards and backwards[k] else parts
        rows = cx.emit(R.stack(rx.Tuple(tuple(ordered)), 0))
        stacked.append(cx.of_element_type(rows, code))
    return states, stacked


def _recursive(
    cx: Context, loop: _Loop, backwards: Sequence[bool]
) -> tuple[list[Value], list[Value]]:
    """The loop as a local function that calls itself in tail position."""
    cx.require_branches()
    initial = [_state(cx, value) for value in loop.initial]
    shapes = [_seen(cx, value) for value in initial]
    items: list[Shape] | None = None if loop.outputs else []
    limit = None if loop.count is None else cx.emit(as_scalar(cx, loop.count, "int64"))
    first = rx.const(True) if loop.cond is None else cx.emit(as_scalar(cx, loop.cond, "bool"))
    begin = rx.const(0, "int64") if limit is None else rx.const(0, tensors.dtype_of(limit))
    function, length = None, None
    while function is None:
        shapes, items, function = _function(
            cx, loop, initial, shapes, items, limit, tensors.dtype_of(begin), backwards, length
        )
        if length is None and any(map(_is_known, items)):
            length = _iterations(cx, loop)
            function = None if length is not None else function
    rows = [_rows(item, length) for item in items or ()]
    empty = [_empty(cx, item) for item in rows]
    var, value = function
    bound = cx.builder.emit(value, var=var)
    result = cx.builder.emit(rx.Call(bound, (begin, first, *initial, *empty)))
    found: list[Value] = []
    for k, shape in enumerate([*shapes, *rows]):
        found.append(cast_to(cx, rx.TupleGetItem(result, k), shape))
        if k < len(initial) and not shape.dtype:
            cx.importer.items[cx.tensor(found[-1])] = item_info(cx, initial[k])
    return found[: len(shapes)], found[len(shapes) :]


def _state(cx: Context, value: Value) -> rx.Expr:
    """A value that a loop carries: a sequence is one of any length."""
    if _is_tensor(value):
        return cx.of_element_type(cx.emit(cx.tensor(value)), cx.code(value))
    if value is None:
        return as_object(cx, R.null_value())
    return as_object(cx, cx.tensor(value))


def _seen(cx: Context, value: rx.Expr) -> Shape:
    return shape_seen(cx, value.struct_info, cx.code(value))


def _iterations(cx: Context, loop: _Loop) -> tensors.Size | None:
    """How many iterations there are, where the count alone decides."""
    if loop.count is None or loop.cond is not None or not loop.counts:
        return None
    known = cx.integers(loop.count)
    if known is not None:
        return max(known[0], 0) if isinstance(known[0], int) else known[0]
    count = cx.emit(as_scalar(cx, loop.count, "int64"))
    return cx.size_in(cx.emit(R.maximum(count, rx.const(0, "int64"))))


def _is_known(item: Shape) -> bool:
    return item.sizes is not None and None not in item.sizes


def _rows(item: Shape, length: tensors.Size | None) -> Shape:
    """An output that has an element for each of `length` iterations, or for those so far.

    All rows are there from the beginning, and written where they stand, if their sizes are known.
    """
    if item.sizes is None:
        raise UnsupportedError("the rank of an output of the body is not known")
    return Shape(item.dtype, (length if _is_known(item) else None, *item.sizes), item.code)


def _empty(cx: Context, rows: Shape) -> rx.Expr:
    """No elements yet; where their sizes are not known, the first one decides."""
    sizes = [0 if size is None else size for size in rows.sizes or ()]
    return cx.emit(R.zeros(tuple(sizes), rows.dtype))


def _function(
    cx: Context,
    loop: _Loop,
    initial: list[rx.Expr],
    shapes: list[Shape],
    items: list[Shape] | None,
    limit: rx.Expr | None,
    counter: str,
    backwards: Sequence[bool],
    length: tensors.Size | None,
) -> tuple[list[Shape], list[Shape], tuple[rx.Var, rx.Function] | None]:
    """The function for states and elements of these shapes; None if an iteration changes them."""
    i = rx.Var("i", tensors.tensor_of((), counter))
    condition = rx.Var("cond", tensors.tensor_of((), "bool"))
    states = [rx.Var(f"v{k}", shape.info(cx, fresh=True)) for k, shape in enumerate(shapes)]
    for state, before, shape in zip(states, initial, shapes, strict=True):
        cx.importer.items[state] = item_info(cx, before)
        cx.of_element_type(state, shape.code)
    rows = [_rows(item, length) for item in items or []]
    outputs = [rx.Var(f"rows{k}", shape.info(cx, fresh=True)) for k, shape in enumerate(rows)]
    params = [i, condition, *states, *outputs]
    returned = rx.TupleStructInfo(tuple(s.info(cx, fresh=False) for s in (*shapes, *rows)))
    signature = rx.FuncStructInfo(tuple(map(cx.builder.struct_info_of, params)), returned)
    itself = rx.Var("loop", signature)
    with cx.builder.inner_scope():
        cx.builder.declare(itself)
        with cx.builder.inner_scope(params):
            test: rx.Expr = condition
            if limit is not None:
                test = R.less(i, limit)
                if loop.cond is not None or not loop.counts:
                    test = R.logical_and(test, condition)
            test = cx.emit(test)
            with cx.builder.inner_scope():
                number = i if counter == "int64" else cx.emit(R.astype(i, "int64"))
                found = loop.step(number, condition, list(states))
                goes_on = (
                    rx.const(True) if found.cond is None else as_scalar(cx, found.cond, "bool")
                )
                next_states = [_state(cx, value) for value in found.states]
                next_items = [_state(cx, value) for value in found.items]
                seen = [_seen(cx, value) for value in (*next_states, *next_items)]
                pairs = zip((*shapes, *(items or ())), seen, strict=items is not None)
                then: rx.SeqExpr | None = None
                # Values of other shapes could not be given to the next iteration.
                if items is not None and all(_known(a) == _known(joined(a, b)) for a, b in pairs):
                    fronts = backwards or [False] * len(outputs)
                    grown = [
                        _appended(cx, whole, i, item, shape, front=front)
                        if length is None or not _is_known(shape)
                        else _written(cx, whole, i, item, front=front)
                        for whole, item, shape, front in zip(
                            outputs, next_items, items or [], fronts, strict=True
                        )
                    ]
                    one = rx.const(1, counter)
                    again = [cx.emit(i + one), goes_on, *next_states, *grown]
                    then = closed_scope(cx, [cx.builder.emit(rx.Call(itself, tuple(again)))])
            body: rx.SeqExpr | None = None
            if then is not None:
                with cx.builder.inner_scope():
                    done = rx.Tuple((*states, *outputs))
                    otherwise = cx.builder.end_scope(done)
                # Both results are tuples, also of one value.
                result = cx.builder.emit(rx.If(test, then, otherwise))
                body = cx.builder.end_scope(result)
    states_now = [joined(a, b) for a, b in zip(shapes, seen, strict=False)]
    now = seen[len(shapes) :]
    if items is not None:
        now = [joined(a, b) for a, b in zip(items, now, strict=True)]
    if body is None:
        return states_now, now, None
    return shapes, now, (itself, rx.Function(tuple(params), body, returned))


def _known(shape: Shape) -> tuple[bool, ...] | None:
    """For each size, whether it is known: joining shapes only forgets some."""
    return None if shape.sizes is None else tuple(size is not None for size in shape.sizes)


def _appended(
    cx: Context, whole: rx.Var, i: rx.Var, item: rx.Expr, shape: Shape, *, front: bool
) -> rx.Expr:
    """The rows of an output with one more; where its sizes are not known, the first one decides."""
    row = cx.emit(R.expand_dims(item, 0))
    sizes = tensors.shape_of(whole)[1:]

    def both(last: rx.Expr) -> rx.Expr:
        return cx.emit(R.concat(rx.Tuple((last, whole) if front else (whole, last)), 0))

    if _is_known(shape):
        return both(row)
    is_first = cx.emit(R.equal(i, rx.const(0, tensors.dtype_of(i))))
    with cx.builder.inner_scope():
        first = closed_scope(cx, [row])
    with cx.builder.inner_scope():
        later = closed_scope(cx, [both(cx.match(row, [1, *sizes], shape.dtype))])
    return cast_to(cx, rx.If(is_first, first, later), _rows(shape, None))


def _written(cx: Context, whole: rx.Var, i: rx.Var, item: rx.Expr, *, front: bool) -> rx.Expr:
    """The rows of an output; that of this iteration is written in place."""
    dtype, counter = tensors.dtype_of(whole), tensors.dtype_of(i)
    dims = [
        size if isinstance(size, int) else tir.Var(f"d{k}", "int64")
        for k, size in enumerate(tensors.shape_of(whole))
    ]
    rows = decl_buffer(dims, dtype, "rows")
    number, row = decl_buffer((), counter, "number"), decl_buffer(dims[1:], dtype, "row")
    place = ops.cast_to(BufferLoad(number, ()), "int64")
    place = rows.shape[0] - 1 - place if front else place
    index = [tir.Var(f"i{k}", "int64") for k in range(len(dims) - 1)]
    store = BufferStore(rows, BufferLoad(row, index), (place, *index))
    body = serial_loops(index, row.shape, store)
    buffers = {tir.Var(buffer.name, "handle"): buffer for buffer in (rows, number, row)}
    kernel = cx.builder.add_func(PrimFunc(tuple(buffers), body, buffer_map=buffers), "write_row")
    operands = rx.Tuple((whole, i, item))
    return cx.emit(R.call_tir_inplace(kernel, operands, [0], out_sinfo=whole.struct_info))


def _scanned(
    cx: Context,
    operands: Sequence[rx.Expr],
    body: Graph,
    inputs: int,
    input_axes: Sequence[int],
    input_directions: Sequence[int],
    output_axes: Sequence[int],
    output_directions: Sequence[int],
    used: rx.Expr | None = None,
) -> list[Value]:
    """The results of a scan; after `used` iterations states stay and the rows of outputs are 0."""
    states = len(operands) - inputs
    sequences: list[rx.Expr] = []
    for name, whole in zip([*body.inputs][states:], operands[states:], strict=False):
        rank = body.ranks[name] + 1 if name in body.ranks else None
        sequences.append(cx.tensor(cx.with_stated_rank(whole, rank, name)))
    outputs = len(body.outputs) - states
    axes = [
        tensors.normal_axis(axis, tensors.rank_of(x))
        for axis, x in zip(input_axes or [0] * inputs, sequences, strict=True)
    ]
    length = tensors.shape_of(sequences[0])[axes[0]]
    reverse = [bool(flag) for flag in input_directions or [0] * inputs]

    def step(i: Value, _: Value, values: list[Value]) -> _Step:
        last = None
        parts: list[Value] = []
        for x, axis, backwards in zip(sequences, axes, reverse, strict=True):
            if backwards and last is None:
                count = used or cx.tensor(cx.contents([length], (), "int64"))
                done = cx.emit(cx.tensor(i) + rx.const(1, "int64"))
                # Below 0 are iterations after the last one.
                last = cx.emit(R.maximum(count - done, rx.const(0, "int64")))
            index = last if backwards and last is not None else cx.tensor(i)
            part = cx.emit(R.take(x, index, axis=axis))
            parts.append(cx.of_element_type(part, cx.code(x)))
        found = cx.subgraph(body, [*values, *parts])
        if used is None:
            return _Step(None, found[:states], found[states:])
        runs = cx.emit(cx.tensor(i) < used)
        old = [cx.tensor(value) for value in values]
        old += [cx.emit(R.zeros_like(cx.tensor(value))) for value in found[states:]]
        kept: list[Value] = [
            cx.of_element_type(cx.emit(R.where(runs, cx.tensor(new), other)), cx.code(new))
            for new, other in zip(found, old, strict=True)
        ]
        return _Step(None, kept[:states], kept[states:])

    count = cx.contents([length], (), "int64")
    known: Value = rx.const(length, "int64") if isinstance(length, int) else count
    nodes = len(body.nodes) + inputs
    loop = _Loop(step, list(operands[:states]), known, None, outputs, nodes, counts=True)
    backwards = [bool(flag) for flag in output_directions or [0] * outputs]
    found, stacked = _iterated(cx, loop, backwards=backwards)
    moved: list[Value] = []
    for x, axis in zip(stacked, output_axes or [0] * outputs, strict=True):
        tensor = _of_length(cx, x, length)
        rank = tensors.rank_of(tensor)
        place = tensors.normal_axis(axis, rank)
        if place:
            order = list(range(1, rank))
            order.insert(place, 0)
            tensor = cx.emit(R.permute_dims(tensor, order))
        moved.append(cx.of_element_type(tensor, cx.code(x)))
    return [*found, *moved]


@converter("Scan", since=9, strings=True)
def scan(
    cx: Context,
    *operands: rx.Expr,
    body: Graph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> list[Value]:
    return _scanned(
        cx,
        operands,
        body,
        num_scan_inputs,
        scan_input_axes or [],
        scan_input_directions or [],
        scan_output_axes or [],
        scan_output_directions or [],
    )


@converter("Scan", strings=True)
def scan_8(
    cx: Context,
    sequence_lens: Value = None,
    *operands: rx.Expr,
    body: Graph,
    num_scan_inputs: int,
    directions: list[int] | None = None,
) -> list[Value]:
    """A loop over the batch, each element of which is a scan of its own."""
    batch = tensors.shape_of(operands[0])[0]

    def step(k: Value, *_: object) -> _Step:
        number = cx.tensor(k)
        parts = [cx.as_strings(cx.emit(R.take(x, number, axis=0)), x) for x in operands]
        used = None
        if sequence_lens is not None:
            used = cx.emit(R.take(cx.tensor(sequence_lens), number, axis=0))
        found = _scanned(cx, parts, body, num_scan_inputs, [], directions or [], [], [], used)
        return _Step(None, [], found)

    count = cx.contents([batch], (), "int64")
    loop = _Loop(step, [], count, None, len(body.outputs), len(body.nodes), counts=True)
    _, stacked = _iterated(cx, loop)
    return [cx.of_element_type(_of_length(cx, x, batch), cx.code(x)) for x in stacked]


def _of_length(cx: Context, stacked: Value, length: tensors.Size) -> rx.Expr:
    """The elements of an output: that number of them."""
    tensor = cx.tensor(stacked)
    sizes = tensors.shape_of(tensor)[1:]
    return cx.match(tensor, [length, *sizes], tensors.dtype_of(tensor))
