"""A random graph program while it is written, as Relax and as its twin in NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fuzz.twin import FLOATS

INTS = ("int8", "uint8", "int16", "int32", "int64")
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
LARGEST = 5
"""The largest size of a symbolic dimension."""
REACH = 200.0
"""Floats stay below it, so that none of 16 bits overflows."""


@dataclass(frozen=True)
class Tensor:
    """A variable of a program: sizes are numbers or text over the symbolic ones.

    Its elements are multiples of 2**-`quarters`, if that is not None, and at most `reach` large.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    reach: float = REACH
    quarters: int | None = None

    @property
    def exact(self) -> bool:
        """Whether every rounding up to here is known to change nothing."""
        if self.dtype not in FLOATS:
            return True
        return (
            self.quarters is not None and self.reach * 2**self.quarters <= 2 ** DIGITS[self.dtype]
        )

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


def sinfo_text(dtype: str, shape: tuple[int | str, ...], *, binds: bool = False) -> str:
    """The text of a tensor's struct info; one that `binds` symbols quotes them."""
    sizes = "".join(f"{s!r}, " if binds else f"{s}, " for s in shape)
    return f'R.Tensor(({sizes}), "{dtype}")'


@dataclass
class Body:
    """The statements of one function, in both languages."""

    source: Source
    tensors: list[Tensor]
    indent: str
    impure: bool
    symbols: tuple[str, ...]
    depth: int = 0
    alone: bool = False
    """Whether the function is of no module, whose kernels and functions it then does not call."""
    dataflow: bool = False
    """Whether these are the statements of a dataflow block."""
    relax: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    tuples: list[tuple[str, tuple[Tensor, ...]]] = field(default_factory=list)

    @property
    def rng(self) -> random.Random:
        return self.source.rng

    def line(self, relax: str, python: str | None = None) -> None:
        self.relax.append(self.indent + relax)
        self.python.append(self.indent + (relax if python is None else python))

    def bind(self, like: Tensor, relax: str, python: str, **changes: Any) -> Tensor:
        made = replace(like, name=self.source.fresh(), **changes)
        if not made.exact:
            made = replace(made, quarters=None)
        self.line(f"{made.name} = {relax}", f"{made.name} = {python}")
        self.tensors.append(made)
        return made

    def pick(self, accept: Callable[[Tensor], bool] = lambda t: True) -> Tensor | None:
        found = [t for t in self.tensors if accept(t)]
        return self.rng.choice(found) if found else None


@dataclass
class Source:
    """A whole program while it is written."""

    rng: random.Random
    counter: int = 0
    helpers: list[tuple[str, str]] = field(default_factory=list)
    functions: list[tuple[str, str]] = field(default_factory=list)
    decorated: list[tuple[str, str]] = field(default_factory=list)
    callable: list[tuple[str, tuple[Tensor, ...], Tensor]] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    decoders: dict[str, str] = field(default_factory=dict)
    """The texts of kernels that decode weights of few bits."""
    weights: list[Tensor] | None = None
    """The packed weights that `main` takes, once its body is written."""

    def fresh(self, stem: str = "v") -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def parameter(self, symbols: tuple[str, ...]) -> Tensor:
        dtype = self.rng.choice((*FLOATS, *FLOATS, *INTS, "bool"))
        rank = self.rng.choice((0, 1, 2, 2, 2, 3))
        shape = tuple(self.rng.choice((*symbols, *symbols, 1, 2, 3, 0)) for _ in range(rank))
        return Tensor(self.fresh("x"), dtype, shape, *extent_of(dtype))


def extent_of(dtype: str) -> tuple[float, int]:
    if dtype in FLOATS:
        return 3.0, 2
    return {"bool": 1, "uint8": 255}.get(dtype, 127.0), 0
