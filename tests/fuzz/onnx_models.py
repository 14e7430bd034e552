"""Random ONNX models beside ONNX Runtime: `python -m tests.fuzz.onnx_models COUNT [SEED]`.

Nodes that ONNX Runtime refuses or is known to compute wrongly are computed by ONNX's reference.
What is varied, each by itself:

- opsets 1 to 28, and so the form of each operator: attributes, or operands in their place;
- operators of every family (`onnx_steps.py`, `onnx_moves.py`, `onnx_layers.py`,
  `onnx_strings.py`), in chains of 1 to
  12 nodes, in any order, with an operand twice or different ones;
- optional operands and outputs, present or absent; attributes at their defaults or not;
- text: moved, joined, split, compared, and as labels and categories of classical models;
- ranks 0 to 6, sizes 0 and 1, axes counted from the end, datatypes;
- quantised integers of 16 to 2 bits, also saturated, for a tensor, an axis or blocks; their zero
  points are given, or moved and cast on the way;
- sizes and scales of images whose products are not whole, in every mode and rounding;
- shapes, axes, pads and bounds of slices: constant, given when the program runs, or computed from
  shapes of other tensors by `Shape`, `Gather`, `Mul` and `Concat`; how many axes are reduced
  may be known only then;
- sizes of inputs: numbers, named, or not stated; then the executable runs for other sizes as well;
- branches, loops, scans and functions around chains, which use values from outside, two deep
  (`onnx_control.py`);
- results: several, inputs and initialisers among them; initialisers that several nodes share, that
  none uses, or that are also inputs; names that are no identifiers.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import relaxpy
from relaxpy.plugins.importing.unsupported import OpNotImplemented
from relaxpy.relax.frontend.onnx import from_onnx
from tests.fuzz import (
    onnx_control as onnx_control,
    onnx_draw as draws,
    onnx_layers as onnx_layers,
    onnx_moves as onnx_moves,
    onnx_steps as onnx_steps,
    onnx_strings as onnx_strings,
)
from tests.fuzz.onnx_pools import POOLS, attributes_of, has_wide_steps, is_miscounted
from tests.fuzz.progress import command_line, noted, report

TARGETS = ("native", "numpy")


def is_wrong(node: onnx.NodeProto, feed: Mapping[str, draws.Content], opset: int) -> bool:
    """Whether ONNX Runtime is known not to compute what ONNX says for this node."""
    # Variances of equal numbers that are below zero by rounding have no root.
    # The mean of nothing is no number. The masks of opset 10 and 11 are false everywhere.
    # Padding by `auto_pad` is not that of dilated windows, and never negative. Different elements
    # of nothing end the process. Exponentials of integers are integers.
    # The scale of nothing but zeros is 1. Powers of integers are computed in double, and are any
    # number where they are too large.
    operands = [feed[name] for name in node.input if name in feed]
    empty = any(not isinstance(x, list) and x.size == 0 for x in operands)
    if node.op_type in ("ReduceMean", "Unique"):
        return empty
    if node.op_type == "Gather":
        # Of each row of strings, the first one is copied only.
        x = operands[0]
        assert not isinstance(x, list)
        rows = x.shape[attributes_of(node).get("axis", 0) :][1:]
        return x.dtype == object and bool(np.prod(rows) > 1)
    if node.op_type == "StringSplit":
        # Of an empty string there is one part, which is empty.
        splits = bool(attributes_of(node).get("delimiter"))
        return splits and bool(np.any(np.asarray(operands[0]) == ""))
    if node.op_type == "Pow":
        base, exponent = operands
        assert not isinstance(base, list)
        assert not isinstance(exponent, list)
        return _overflows(base, exponent, attributes_of(node).get("axis"))
    if node.op_type == "DynamicQuantizeLinear":
        return not np.any(operands[0])  # type: ignore[arg-type]
    if node.op_type == "ReduceLogSumExp":
        return any(not isinstance(x, list) and x.dtype.kind != "f" for x in operands[:1])
    if node.op_type in POOLS:
        return is_miscounted(node, operands[0].shape)  # type: ignore[union-attr]
    if node.op_type == "ConvTranspose":
        return has_wide_steps(node, operands[1].shape[2:])  # type: ignore[union-attr]
    masked = node.op_type == "Dropout" and len(node.output) > 1 and opset < 12
    return masked or node.op_type == "MeanVarianceNormalization"


def _overflows(base: draws.Array, exponent: draws.Array, axis: int | None) -> bool:
    """Whether a power of integers is outside their datatype; `axis`: the exponent's first one."""
    if base.dtype.kind != "i":
        return False
    if axis is not None:
        exponent = exponent[(..., *[None] * (base.ndim - axis - exponent.ndim))]
    with np.errstate(all="ignore"):
        return bool(np.any(np.abs(np.float_power(base, exponent)) > np.iinfo(base.dtype).max))


@dataclass(frozen=True)
class Case:
    """A model, and what it returns for some arguments."""

    proto: onnx.ModelProto
    runs: Sequence[tuple[Mapping[str, draws.Array], Sequence[draws.Content]]]


def write(seed: object) -> Case:
    """The model of this seed."""
    for k in range(20):
        try:
            return _write(random.Random(f"{seed}.{k}"))
        except draws.Redraw:
            continue
    raise AssertionError(f"no model for the seed {seed}")


def _write(rng: random.Random) -> Case:
    opset = rng.choice((*range(1, 29), *range(7, 29), 13, 17, 18, 21))
    model = draws.Model(rng, opset, is_wrong)
    draw = draws.Draw(model)
    for _ in range(rng.choice((1, 1, 2, 3, 4, 6, 9, 12))):
        draws.draw_step(draw)
    last = draw.nodes[-1].output
    made = [v for v in draw.values if not isinstance(v.content, list)]
    others = [v for v in made if v.name not in last]
    chosen = [v for v in made if v.name in last] + rng.sample(others, min(len(others), 2))
    given = [
        draws.Value(name, array) for name, array in (model.inputs | model.initializers).items()
    ]
    if given and draw.chance(0.15):
        chosen.append(rng.choice(given))
    if not chosen:
        raise draws.Redraw("no tensor is returned")
    for node in draw.nodes:
        if not node.domain and draw.chance(0.1):
            node.domain = "ai.onnx"
    sizes = _declared(model)
    both = [v.name for v in given if v.name in model.initializers and draw.chance(0.1)]
    inputs = [draws.value_info(name, model.inputs[name], sizes[name]) for name in model.inputs]
    inputs += [draws.value_info(name, model.initializers[name], None) for name in both]
    proto = model.proto(
        draw.nodes,
        inputs,
        [draws.value_info(v.name, v.content) for v in chosen],
        model.initializers,
    )
    runs: list[tuple[Mapping[str, draws.Array], Sequence[draws.Content]]] = [
        (model.inputs, [v.content for v in chosen])
    ]
    feed = _resized(model, sizes)
    if feed is not None and not model.doubted:
        with contextlib.suppress(draws.Redraw):
            runs.append((feed, draws.run_runtime(proto, feed)))
    return Case(proto, runs)


def _declared(model: draws.Model) -> dict[str, list[Any]]:
    """The sizes that the inputs of a model state: numbers, names, or none."""
    rng = model.rng
    way = rng.choice(("numbers", "names", "none", "mixed"))

    def declared(name: str, k: int, size: int) -> int | str | None:
        kind = rng.choice(("numbers", "names", "none")) if way == "mixed" else way
        if name in model.open:
            return None
        if kind == "numbers" or name in model.fixed or size == 1:
            return size
        return None if kind == "none" else f"n{size}"

    return {
        name: [declared(name, k, size) for k, size in enumerate(array.shape)]
        for name, array in model.inputs.items()
    }


def _resized(model: draws.Model, sizes: Mapping[str, list[Any]]) -> dict[str, draws.Array] | None:
    """Other arguments, in which the sizes that have names are larger by one, and none of them 1."""
    if not any(isinstance(size, str) for shape in sizes.values() for size in shape):
        return None
    feed = {
        name: np.resize(
            array,
            [
                size + isinstance(stated, str) * (2 if size == 0 else 1)
                for size, stated in zip(array.shape, sizes[name], strict=True)
            ],
        )
        for name, array in model.inputs.items()
    }
    # ONNX Runtime does not compare the sizes of tensors that have no elements.
    if any(array.size == 0 for array in (*feed.values(), *model.initializers.values())):
        return None
    return feed


def _in_bytes(array: draws.Array) -> draws.Array:
    """The array; integers of less than a byte are in bytes."""
    name = array.dtype.name
    return array.astype("uint8" if name[0] == "u" else "int8") if name in draws.NARROW else array


def _agree(found: Any, expected: draws.Content, what: str) -> None:
    found = np.asarray(found)
    assert not isinstance(expected, list)
    expected = _in_bytes(expected)
    assert found.dtype == expected.dtype, f"{what}: {found.dtype} instead of {expected.dtype}"
    assert found.shape == expected.shape, f"{what}: {found.shape} instead of {expected.shape}"
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected, what)
        return
    tolerance = {2: 2e-2, 4: 3e-4, 8: 1e-5}[expected.dtype.itemsize]
    np.testing.assert_allclose(
        found.astype("f8"), expected.astype("f8"), tolerance, tolerance, err_msg=what
    )


def run(case: Case, targets: Sequence[str] = TARGETS) -> None:
    """Import, compile and run the model for each target.

    Errors:
        AssertionError: it returns something else than the oracle.
    """
    mod = from_onnx(case.proto)
    assert relaxpy.relax.analysis.well_formed(mod)
    for target in targets:
        main = relaxpy.compile(mod, target)["main"]
        for k, (feed, expected) in enumerate(case.runs):
            found = main(*map(_in_bytes, feed.values()))
            results = found if isinstance(found, tuple) else (found,)
            for name, a, b in zip(case.proto.graph.output, results, expected, strict=True):
                _agree(a, b, f"{name.name} of run {k} by {target}")


#: What is said of sizes and values that are known when the program runs, where a kernel needs them.
_LATE = (
    *("symbolic", "when the program runs", "is not known", "expected a shape of numbers"),
    "has nodes that cannot be imported",
)


def is_refused(case: Case, error: BaseException) -> bool:
    """Whether a model may be refused: all that it lacks are sizes or values not known at import."""
    if not isinstance(error, OpNotImplemented):
        return False
    static = all(
        dim.HasField("dim_value")
        for value in case.proto.graph.input
        for dim in value.type.tensor_type.shape.dim
    )
    late = all(any(text in node.reason for text in _LATE) for node in error.nodes)
    return late and not static


def check(name: str, number: int = 0) -> None:
    """Compare the model of a seed with the oracle.

    Errors:
        AssertionError: it does not return the same.
    """
    case = write(name)
    with noted(onnx.printer.to_text(case.proto)):
        try:
            run(case)
        except OpNotImplemented as error:
            if not is_refused(case, error):
                raise


def main(count: int, seed: str) -> int:
    """Report failures of `count` models; 1 if there are any."""
    return report("ONNX models", count, seed, check)


if __name__ == "__main__":
    command_line(main)
