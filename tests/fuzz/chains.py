"""Texts of random kernels with two products of matrices and steps on rows between them.

They are like attention, but most have something that it has not: a step that reads another row, a
buffer that is used once more, a store to an operand in between, sums that begin with other values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

PARAMETERS = {"Q": "nk", "K": "mk", "V": "mh", "B": "nm", "R": "nh", "Y": "nh"}
"""The dimensions: rows, columns of the first product, its sums, columns of the second product."""
VARIABLES = {"n": "i", "m": "j", "h": "o", "k": "s"}
"""The loop variable of each dimension."""


@dataclass
class Chain:
    """Writes one kernel over arrays of int32, some of which are a batch of two matrices.

    Sizes are numbers or variables.
    """

    random: Random
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sizes = {name: self.random.randint(1, 5) for name in "nmkh"}
        self.dims = {n: n if self.chance(0.3) else str(size) for n, size in self.sizes.items()}
        self.batch = self.chance(0.5)
        self.shapes = dict(PARAMETERS)
        self.shapes["K"] = self.random.choice(["mk", "km"])
        self.batched = {name for name in self.shapes if self.batch and self.chance(0.9)}

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def arguments(self, seed: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        shapes = (
            [2] * (name in self.batched) + [self.sizes[d] for d in self.shapes[name]]
            for name in PARAMETERS
        )
        return tuple(rng.integers(-3, 4, shape).astype(np.int32) for shape in shapes)

    def text(self) -> str:
        params = ", ".join(f"{name}_: T.handle" for name in PARAMETERS)
        self.lines = ["@T.prim_func", f"def f({params}):"]
        for size in (name for name, dim in self.dims.items() if dim == name):
            self.put(1, f"{size} = T.int64()")
        for name in PARAMETERS:
            self.put(1, f"{name} = T.match_buffer({name}_, {self.shape(name)})")
        scores = self.product("nm", self.at("Q", "is"), self.at("K", self.indices("K")), "k")
        for _ in range(self.random.randint(0, 3)):
            self.aside()
            scores = self.step(scores)
        self.aside()
        result = self.product("nh", self.at(scores, "is"), self.at("V", "so"), "m")
        if self.chance(0.2):
            self.update("B", scores)
        added = self.random.choice([self.at("R", "io"), self.at("Y", "io"), "2"])
        self.store("Y", f"{self.at(result, 'io')} + {added}")
        return "\n".join(self.lines) + "\n"

    # -- pieces

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def shape(self, name: str) -> str:
        dims = ["2"] * (name in self.batched) + [self.dims[d] for d in self.shapes[name]]
        return f'({", ".join(dims)},), "int32"'

    def indices(self, name: str) -> str:
        return "".join(VARIABLES[d] for d in self.shapes[name])

    def at(self, name: str, indices: str) -> str:
        """An element, of the matrix `z` of a batch."""
        return f"{name}[{', '.join(['z'] * (name in self.batched) + list(indices))}]"

    def local(self, dims: str) -> str:
        """A new buffer, with a matrix for each of a batch."""
        name = f"L{len(self.shapes)}"
        self.shapes[name] = dims
        self.batched |= {name} if self.batch else set()
        self.put(1, f"{name} = T.alloc_buffer({self.shape(name)})")
        return name

    def loops(self, name: str) -> int:
        """Open loops over the elements of a buffer; the depth inside."""
        depth = 1
        if name in self.batched:
            self.put(depth, "for z in range(2):")
            depth += 1
        for d in self.shapes[name]:
            self.put(depth, f"for {VARIABLES[d]} in range({self.dims[d]}):")
            depth += 1
        return depth

    def store(self, name: str, value: str) -> None:
        """Store a value in all elements of a buffer, of the first matrix unless it is a batch."""
        depth = self.loops(name)
        value = value if name in self.batched else value.replace("z, ", "0, ")
        self.put(depth, f"{self.at(name, self.indices(name))} = {value}")

    def update(self, name: str, other: str = "") -> None:
        added = self.at(other, self.indices(name)) if other else "1"
        self.store(name, f"{self.at(name, self.indices(name))} + {added}")

    def product(self, dims: str, a: str, b: str, summed: str) -> str:
        """A new buffer with the sums of products along `summed`."""
        name = self.local(dims)
        element = self.at(name, self.indices(name))
        depth = self.loops(name)
        self.put(depth, f"{element} = {self.random.choice(['0'] * 4 + ['3', self.at('Q', 'i0')])}")
        self.put(depth, f"for s in range({self.dims[summed]}):")
        if self.chance(0.1):
            self.put(depth + 1, "if s < 2:")
            depth += 1
        self.put(depth + 1, f"{element} = {element} + {a} * {b}")
        return name

    def step(self, scores: str) -> str:
        """A step on the rows of a buffer; the buffer with its result."""
        here = self.at(scores, "ij")
        if self.chance(0.1):
            here = here.replace("i, j]", f"{self.dims['n']} - 1 - i, j]")
        if self.chance(0.5):
            name = self.local("nm")
            operand = self.random.choice([self.at("B", "ij"), self.at("B", "i0"), "5", here])
            self.store(name, f"{here} * 2 - {operand}")
            return name
        best = self.local("n")
        element = self.at(best, "i")
        depth = self.loops(best)
        self.put(depth, f"{element} = {self.random.choice(['0', '-9'])}")
        self.put(depth, f"for j in range({self.dims['m']}):")
        value = self.random.choice(["T.max({0}, {1})", "{0} + {1}"])
        self.put(depth + 1, f"{element} = {value.format(element, here)}")
        name = scores if self.chance(0.3) else self.local("nm")
        self.store(name, f"{self.at(scores, 'ij')} - {element}")
        return name

    def aside(self) -> None:
        """Perhaps a statement that does something else between the steps."""
        if self.chance(0.25):
            self.update(self.random.choice("VRBQK"))
