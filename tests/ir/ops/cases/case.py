"""The row of a comparison: a call of an operator on small inputs, and its value by NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from relaxpy.ir import DataType, ops as op
from relaxpy.ir.relax import nodes as rx

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A call of `operator` on tensors like `inputs`, and its value there."""

    operator: str
    label: str
    inputs: tuple[Array, ...]
    call: Callable[..., rx.Expr]
    expected: Callable[..., Any]
    roundings: int = 8
    """How many roundings an element passes through, beside those of sums (see `comparison`)."""
    needs: tuple[str, ...] = ()
    """What must be known of operands: "numbers" (no symbolic sizes), "shape", "rank", "dtype"."""
    only: tuple[str, ...] = ()
    """What the definition is written for alone: the "dtype", the "shape" or "values" like these."""
    literal: tuple[tuple[int, int], ...] = ()
    """The axes, as (operand, axis), whose sizes are literals where other sizes are symbolic."""
    smooth: bool = True
    """Whether the operator has a derivative at the inputs, in float64."""

    @property
    def name(self) -> str:
        return f"{self.operator.removeprefix('relax.')}-{self.label}"

    def choices(self) -> set[tuple[str, str]]:
        """The attributes with their values if these are names or booleans, or else with a kind."""
        sinfos = (rx.TensorStructInfo(x.shape, DataType(x.dtype)) for x in self.inputs)
        call = self.call(*(rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos)))
        return {
            (name, str(value) if isinstance(value, bool | str) else type(value).__name__)
            for name, value in call.attrs.items()
        }


def case(
    operator: str,
    label: str,
    inputs: tuple[Array, ...],
    expected: Callable[..., Any],
    *attrs: Any,
    roundings: int = 8,
    needs: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    literal: tuple[tuple[int, int], ...] = (),
    smooth: bool = True,
    **named: Any,
) -> Case:
    """The call of an operator on the inputs with these attributes, and a function of the inputs."""

    def call(*v: rx.Expr) -> Any:
        return attrgetter(operator)(op)(*v, *attrs, **named)

    options = roundings, needs, only, literal, smooth
    return Case(f"relax.{operator}", label, inputs, call, expected, *options)


def same(
    operator: str,
    label: str,
    inputs: tuple[Array, ...],
    function: Callable[..., Any],
    *attrs: Any,
    **named: Any,
) -> Case:
    """A case whose value is that of a function of the inputs and of the same attributes."""
    options = {k: v for k, v in named.items() if k in Case.__dataclass_fields__}
    rest = {k: v for k, v in named.items() if k not in options}

    def expected(*v: Array) -> Any:
        return function(*v, *attrs, **rest)

    return case(operator, label, inputs, expected, *attrs, **named)


def floats(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 2).astype(dtype)


def integers(*shape: int, dtype: str = "int32", low: int = -9, high: int = 10) -> Array:
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 0.5, 3.0], "float32")
ODD = np.array([-7, -1, 0, 1, 2, 8], "int64")
LARGE = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], "uint64")


def slopes(total: Callable[[Array], Any], x: Array, step: float = 1e-6) -> Array:
    """The derivative of a number by each element of an array, by differences."""
    found = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        above, below = x.copy(), x.copy()
        above[index] += step
        below[index] -= step
        found[index] = (total(above) - total(below)) / (2 * step)
    return found
