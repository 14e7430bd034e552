"""Rows of comparisons in other datatypes, shapes and memory layouts, with less known of operands.

Everything here is derived from the rows in `cases`: a new row is varied without a change here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RelaxpyError
from relaxpy.ir import DataType, IRModule, Op
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from tests.ir.ops.cases import CASES, Array, Case
from tests.ir.ops.comparison import is_float
from tests.rows import draw

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
KNOWLEDGE = ("static", "symbolic", "rank", "unknown")
TARGETS = ("native", "numpy", "reference")

#: Operands whose elements are positions, counts or probabilities: other numbers mean nothing there.
_POSITIONS = {"indices", "targets", "begin", "end", "strides", "sample_indices", "boundaries"}
_POSITIONS |= {"seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k", "zero_point", "scale"}
_POSITIONS |= {"prob", "uniform_sample", "moving_var", "condition"}


@dataclass(frozen=True)
class Inputs:
    """Operands, and in which way they are not those of the row."""

    arrays: tuple[Array, ...]
    label: str

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(x.shape for x in self.arrays)

    def keeps_ones(self, others: tuple[Array, ...]) -> bool:
        """Whether dimensions that are 1 in the others, which symbolic shapes state, are 1 here."""
        pairs = zip(self.shapes, (x.shape for x in others), strict=True)
        return all(n == 1 or m != 1 for a, b in pairs for n, m in zip(a, b, strict=True))


def is_possible(case: Case, knowledge: str) -> bool:
    """Whether so little may be known of the operands."""
    needs = {"symbolic": {"numbers"}, "rank": {"shape"}, "unknown": {"shape", "rank", "dtype"}}
    return not needs.get(knowledge, set()) & set(case.needs)


def drawn_with_each_choice(config: pytest.Config) -> dict[str, tuple[Case, str]]:
    """Rows with known or symbolic sizes, each choice of an attribute among them, by their names."""
    table = [
        (case, knowledge)
        for case in CASES
        for knowledge in ("static", "symbolic")
        if is_possible(case, knowledge)
    ]
    drawn = draw(config, table, lambda row: row[0].operator, lambda row: row[0].choices())
    return {f"{case.name}-{knowledge}": (case, knowledge) for case, knowledge in drawn}


def values_of(case: Case) -> list[int]:
    """The operands whose elements are numbers to compute with."""
    if case.name not in _values:
        _values[case.name] = _values_of(case)
    return _values[case.name]


_values: dict[str, list[int]] = {}


def _values_of(case: Case) -> list[int]:
    params = [
        rx.Var(f"x{k}", rx.TensorStructInfo(x.shape, DataType(x.dtype)))
        for k, x in enumerate(case.inputs)
    ]
    call = case.call(*params)
    assert isinstance(call, rx.Call)
    assert isinstance(call.op, Op)
    names: dict[rx.Expr, str] = {}
    parameters = registered_ops()[call.op.name].parameters
    operands = [p for p in parameters if p.is_operand]
    for k, arg in enumerate(call.args):
        name = operands[min(k, len(operands) - 1)].name
        names |= {node: name for node in walk(arg) if isinstance(node, rx.Var)}
    return [k for k, param in enumerate(params) if names.get(param) not in _POSITIONS]


def main_dtype(case: Case) -> np.dtype[Any] | None:
    """The datatype of the first operand with numbers, a float if there is one."""
    numbers = [case.inputs[k] for k in values_of(case)]
    return next((x.dtype for x in sorted(numbers, key=is_float, reverse=True)), None)


def dtypes(case: Case) -> tuple[str, ...]:
    """The datatypes to try; gradients are of real numbers."""
    main = main_dtype(case)
    if main is None or "dtype" in case.only:
        return (str(main),)
    return FLOATS if case.operator.startswith("relax.grad.") else DTYPES


def in_dtype(case: Case, dtype: str) -> Case:
    """The row with `dtype` in place of its main datatype, and numbers that fit."""
    main = main_dtype(case)
    if dtype in (str(main), main):
        return case
    assert main is not None
    chosen = values_of(case)
    inputs = tuple(
        np.asarray(converted(x, dtype, number=k in chosen))
        if x.dtype == main and (k in chosen or is_float(x))
        else x
        for k, x in enumerate(case.inputs)
    )
    return replace(case, inputs=inputs)


def converted(array: Array, dtype: str, *, number: bool) -> Array:
    """The numbers in another datatype, or others that it has."""
    to = DataType(dtype)
    with np.errstate(all="ignore"):
        if to == "bool":
            return array > 0
        if to.is_float:
            return array.astype(to.numpy())
        bounds = np.iinfo(dtype)
        least, most = float(bounds.min), float(bounds.max)
        if most > bounds.max:  # of int64 and uint64, the greatest is not a number of float64
            most = np.nextafter(most, 0)
        whole = np.nan_to_num(np.round(array.astype("float64") * (2 if is_float(array) else 1)))
        if number and least == 0:
            whole = np.abs(whole)
        return np.clip(whole, least, most).astype(dtype)


def one_call(case: Case, params: list[rx.Var]) -> IRModule:
    """The function of the parameters that the case calls its operator on."""
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(case.call(*params))
        builder.emit_func_output(out)
    return builder.finalize()


def module(case: Case, inputs: tuple[Array, ...], knowledge: str) -> IRModule:
    """A function of one call; with symbolic sizes, equal sizes are one variable, 1 stays 1."""
    sizes: dict[int, Any] = {}
    params = []
    for k, array in enumerate(inputs):
        dtype = DataType(array.dtype)
        match knowledge:
            case "static":
                info = rx.TensorStructInfo(array.shape, dtype)
            case "symbolic":
                shape = tuple(
                    sizes.setdefault(n, tir.Var(f"n{n}", "int64"))
                    if n > 1 and (k, axis) not in case.literal
                    else n
                    for axis, n in enumerate(array.shape)
                )
                info = rx.TensorStructInfo(shape, dtype)
            case "rank":
                info = rx.TensorStructInfo(None, dtype, ndim=array.ndim)
            case _:
                info = rx.TensorStructInfo(None, "void")
        params.append(rx.Var(f"x{k}", info))
    return one_call(case, params)


def program(case: Case, knowledge: str = "static") -> IRModule:
    """The module of the case with its own inputs."""
    return module(case, case.inputs, knowledge)


def is_taken(case: Case, inputs: tuple[Array, ...]) -> bool:
    """Whether the operator takes operands of these shapes and datatypes."""
    try:
        module(case, inputs, "static")
    except RelaxpyError:
        return False
    return True


def resized(case: Case) -> Iterator[Inputs]:
    """Operands of which all dimensions of one size are 0, or 1, or larger."""
    if "shape" in case.only:
        return
    for size in sorted({n for x in case.inputs for n in x.shape} - {0}):
        for other in (0, 1, size + 2):
            if other != size:
                arrays = tuple(_resized(x, size, other) for x in case.inputs)
                yield Inputs(arrays, f"{size} -> {other}")


def _resized(array: Array, size: int, other: int) -> Array:
    for axis, n in enumerate(array.shape):
        if n == size:
            array = np.take(array, np.minimum(np.arange(other), size - 1), axis)
    return array


def special(case: Case) -> Iterator[Inputs]:
    """Operands with NaN, infinities, -0.0; or with the least and the greatest integers."""
    chosen = values_of(case)
    if "values" in case.only:
        return
    for label, numbers in {
        "-0.0": (-0.0, 0.0),
        "NaN": (np.nan,),
        "infinities": (np.inf, -np.inf),
        "extremes": (),
    }.items():
        arrays = []
        for k, x in enumerate(case.inputs):
            planted = np.array(x)
            own: tuple[float, ...] = numbers if is_float(x) else ()
            if label == "extremes" and x.dtype.kind in "iu":
                own = (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
            if k in chosen and x.size:
                for n, number in enumerate(own):
                    planted.reshape(-1)[(5 * k + 3 * n + 1) % x.size] = number
            arrays.append(planted)
        if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, case.inputs, strict=True)):
            yield Inputs(tuple(arrays), label)


def arranged(case: Case) -> Iterator[Inputs]:
    """The same numbers elsewhere in memory: transposed, reversed, with gaps, or read-only."""
    for label, arrange in {
        "column-major": _column_major,
        "reversed": _reversed,
        "gaps": _with_gaps,
        "read-only": _read_only,
    }.items():
        yield Inputs(tuple(arrange(np.asarray(x)) for x in case.inputs), label)


def _column_major(array: Array) -> Array:
    return np.asfortranarray(array) if array.ndim else array


def _reversed(array: Array) -> Array:
    ways = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[ways])[ways] if array.ndim else array


def _with_gaps(array: Array) -> Array:
    wide = np.zeros([2 * n for n in array.shape], array.dtype)
    view = wide[(slice(None, None, 2),) * array.ndim]
    if array.ndim:
        view[...] = array
    return view if array.ndim else array


def _read_only(array: Array) -> Array:
    array = array.copy()
    array.setflags(write=False)
    return array
