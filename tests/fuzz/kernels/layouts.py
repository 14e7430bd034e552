"""Random arguments for a random kernel."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz.kernels.expressions import Tensor
from tests.fuzz.kernels.nests import Nests
from tests.fuzz.kernels.program import Argument, Call, Edge, Memory, Scalar, View
from tests.fuzz.kernels.semantics import FLOATS, low_and_high

_EDGES: tuple[Edge, ...] = ("start", "end", "end")


class Arguments(Nests):
    """Draws the arguments of each call: their sizes, where they lie in memory, their elements."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.values: dict[str, int] = {}
        """Shape variables and integer arguments, as they are in the first call."""
        self.params: list[tuple[str, str]] = []
        self.passed: dict[str, Tensor] = {}
        """The buffers by their parameters."""
        self.strides: dict[Tensor, list[str]] = {}
        """The strides that buffers declare."""
        self.edges = self.chance(0.25)
        """Whether memory lies beside pages that must not be accessed."""

    def call(self, values: dict[str, int]) -> Call:
        """Arguments of these sizes."""
        memories: list[Memory] = []
        arguments: list[Argument] = []
        for name, annotation in self.params:
            dtype = annotation.removeprefix("T.")
            if name in values:
                arguments.append(Scalar(values[name]))
            elif name in self.passed:
                arguments.append(self._array(self.passed[name], values, memories))
            elif (name, dtype) in self.wide:
                low, high = low_and_high(dtype)
                near = self.pick([low, high, low // 2, high // 2 + 1, low // 3])
                arguments.append(Scalar(min(near + self.random.randint(0, 2), high)))
            else:
                arguments.append(Scalar(self.element(dtype)))
        return Call(tuple(memories), tuple(arguments))

    def element(self, dtype: str) -> Any:
        """A random element."""
        if dtype == "bool":
            return self.chance(0.5)
        if dtype in FLOATS:
            return self.real(dtype)
        low, high = low_and_high(dtype)
        if self.style == "special" and self.chance(0.2):
            return self.pick([low, high, high - 1, low + 1])
        if self.chance(0.1):
            return max(self.random.randint(-3, 5), low)
        return self.random.randint(0, 2)

    def _array(self, buffer: Tensor, values: dict[str, int], memories: list[Memory]) -> View:
        """An array that fits `buffer`, laid in new memory or in that of an earlier argument."""
        shape = tuple(max(self.evaluated(s.text, values), 0) for s in buffer.shape)
        if shape and self.chance(0.02):
            shape = (*shape[:-1], shape[-1] + self.pick([1, -1] if shape[-1] else [1]))
        strides = self._strides(shape, self.strides.get(buffer))
        reach = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
        low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        needed = 0 if 0 in shape else high - low + 1
        origin = self.random.choices(["view", "copy", "pickle"], [4, 6, 0.5])[0]
        shared = [
            k
            for k, m in enumerate(memories)
            if m.dtype == buffer.dtype and len(m.values) >= needed and needed
        ]
        if shared and self.chance(0.15):
            number, origin = self.pick(shared), "view"
        else:
            number = len(memories)
            count = needed + (self.random.randint(0, 4) if self.chance(0.3) else 0)
            elements = tuple(self.element(buffer.dtype) for _ in range(count))
            edge = self.pick(_EDGES) if self.edges else ""
            memories.append(Memory(buffer.dtype, elements, edge))
        spare = len(memories[number].values) - needed
        offset = self.random.randint(0, spare) - low if needed else 0
        frozen = self.chance(0.05) or (0 in strides and self.chance(0.8))
        return View(number, offset, shape, strides, frozen, origin)

    def _strides(self, shape: tuple[int, ...], declared: list[str] | None) -> tuple[int, ...]:
        """Compact ones, or with gaps, reversed, transposed, standing still; as declared mostly."""
        order = list(range(len(shape)))
        plain = self.chance(0.7)
        if not plain and self.chance(0.3):
            self.random.shuffle(order)
        steps = [0] * len(shape)
        step = 1
        for axis in reversed(order):
            own = step
            if not plain:
                own = self.random.choices([step, 2 * step, -step, 0], [6, 2, 2, 1])[0]
            if declared and declared[axis].isdigit() and self.chance(0.9):
                own = int(declared[axis])
            steps[axis] = own
            step = max(abs(own), step) * max(shape[axis], 1) if own else step
        return tuple(steps)
