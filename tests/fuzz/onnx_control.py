"""Steps of random ONNX models that hold graphs: If, Loop, Scan, functions of the model."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.fuzz.onnx_draw import FLOATS, NUMBERS, STRINGS, Draw, Redraw, Value, draw_step, step


def _filled(d: Draw, count: int) -> None:
    for _ in range(count):
        draw_step(d)


def _result(d: Draw, like: Value | None = None) -> Value:
    """A tensor that was computed in this graph; of a shape and datatype, if one is to be `like`."""
    made = {name for node in d.nodes for name in node.output}
    found = [v for v in d.values if v.name in made and not isinstance(v.content, list)]
    if like is not None:
        kept = [v for v in found if v.dtype == like.dtype and v.shape == like.shape]
        if not kept:
            return d.node("Identity", [d.like(like.shape, like.dtype)])[0]
        return d.rng.choice(kept)
    return d.rng.choice(found) if found else d.node("Identity", [d.tensor()])[0]


def _condition(d: Draw) -> Value:
    found = d.pick(("bool",), lambda v: v.array.size == 1 and v.exact)
    if found is not None and d.chance():
        return found
    return d.new(np.array(d.chance(), bool).reshape(d.rng.choice([(), (1,)])), fixed=True)


@step("If", "If")
def _if(d: Draw, op: str) -> None:
    condition = _condition(d)
    ways = [d.inner(), d.inner()]
    for way in ways:
        _filled(way, d.rng.randint(1, 3))
    results: list[list[Value]] = [[], []]
    for _ in range(d.rng.choice((1, 1, 2))):
        first = _result(ways[0])
        results[0].append(first)
        results[1].append(_result(ways[1], first))
    if any(len({v.name for v in found}) < len(found) for found in results):
        raise Redraw("an output twice")
    graphs = [
        way.graph(name, [], found, typed=True)
        for way, name, found in zip(ways, ("then", "else"), results, strict=True)
    ]
    d.node(op, [condition], len(results[0]), then_branch=graphs[0], else_branch=graphs[1])


def _grows_calmly(d: Draw, state: Value) -> Value:
    """A value of the shape and datatype of a state, which no number of iterations makes large."""
    if state.dtype == STRINGS:
        condition = d.like(d.broadcast(state.shape), "bool")
        return d.node("Where", [condition, d.like(state.shape, STRINGS), state])[0]
    kind = d.rng.choice(("Neg", "Abs", "Max", "Identity", "Sub"))
    if kind in ("Max", "Sub"):
        return d.node(kind, [d.like(state.shape, state.dtype), state])[0]
    return d.node(kind, [state])[0]


@step("Loop", "Loop")
def _loop(d: Draw, op: str) -> None:
    body = d.inner()
    states = [
        d.tensor(("float32", "int64", "int32", STRINGS), high=4)
        for _ in range(d.rng.choice((0, 1, 1, 2)))
    ]
    number = Value(d.model.name(), np.array(0))
    going = Value(d.model.name(), np.array(True))
    inside = [Value(d.model.name(), v.content, v.exact) for v in states]
    body.values += [number, going, *inside]
    _filled(body, d.rng.randint(1, 3))
    after = [_grows_calmly(body, state) for state in inside]
    rows = [_result(body) for _ in range(d.rng.randint(0 if states else 1, 2))]
    ends = d.chance(0.4)
    if ends:
        limit = body.new(np.array(d.rng.randint(0, 3)), fixed=True)
        (again,) = body.node("Less", [number, limit])
    else:
        (again,) = body.node("Identity", [going])
    outputs = [again, *after, *rows]
    if len({v.name for v in outputs}) < len(outputs):
        raise Redraw("an output twice")
    trips = d.known(d.rng.choice((0, 1, 2, 3))) if not ends or d.chance() else None
    start = d.new(np.array(d.chance(0.9)), fixed=True) if d.chance() else None
    graph = body.graph("body", [number, going, *inside], outputs, typed=True)
    count = len(states) + len(rows)
    d.node(op, [trips, start, *states], count, body=graph)


@step("Scan", "Scan")
def _scan(d: Draw, op: str) -> None:
    body = d.inner()
    states = [d.tensor(("float32", "int64", STRINGS), high=3) for _ in range(d.rng.choice((0, 1)))]
    x = d.tensor((*NUMBERS, *(STRINGS,) * 3), 1, 4, fits=lambda v: all(v.shape))
    axis = d.axis(len(x.shape))
    scanned = [x]
    if d.chance(0.3):
        scanned.append(d.like(x.shape, x.dtype))
    inside = [Value(d.model.name(), v.content, v.exact) for v in states]
    parts = [
        Value(d.model.name(), np.asarray(v.array.take(0, axis), v.array.dtype), v.exact)
        for v in scanned
    ]
    body.values += [*inside, *parts]
    _filled(body, d.rng.randint(1, 2))
    after = [_grows_calmly(body, state) for state in inside]
    rows = [_result(body) for _ in range(d.rng.choice((1, 1, 2)))]
    outputs = [*after, *rows]
    if len({v.name for v in outputs}) < len(outputs):
        raise Redraw("an output twice")
    attributes = {"num_scan_inputs": len(scanned)}
    if axis or d.chance():
        attributes["scan_input_axes"] = [axis] * len(scanned)
    attributes |= d.some(scan_input_directions=[d.rng.randrange(2) for _ in scanned])
    attributes |= d.some(scan_output_directions=[d.rng.randrange(2) for _ in rows])
    attributes |= d.some(
        # ONNX Runtime divides by the number of elements where it moves an axis.
        scan_output_axes=[
            d.rng.randint(-1, len(v.shape)) if v.shape and v.array.size else 0 for v in rows
        ]
    )
    graph = body.graph("body", [*inside, *parts], outputs, typed=True)
    d.node(op, [*states, *scanned], len(outputs), body=graph, **attributes)


@step("function")
def _function(d: Draw, op: str) -> None:
    x = d.tensor((*FLOATS, STRINGS, STRINGS))
    inside = d.inner(closed=True)
    parameter = Value(d.model.name(), x.content, x.exact)
    inside.values.append(parameter)
    _filled(inside, d.rng.randint(1, 3))
    result = _result(inside)
    name = f"f{d.model.count}"
    imports = [helper.make_opsetid("", d.opset)]
    made = helper.make_function(
        "local", name, [parameter.name], [result.name], inside.nodes, imports
    )
    d.model.functions.append(made)
    d.node(name, [x], domain="local", rounds=not result.exact)
