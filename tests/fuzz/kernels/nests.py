"""Random loops, and the lines inside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from tests.fuzz.kernels.expressions import Expressions, Index, Size


class Nests(Expressions):
    """Writes lines, and loops of any kind around them."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.lines: list[str] = []
        self.depth = 1
        self.nested = 0
        """How many loops there are around."""

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def suite(self, head: str) -> Iterator[None]:
        """The lines inside a statement, with names of their own."""
        self.write(head)
        self.depth += 1
        outer = list(self.lets), list(self.buffers), list(self.loops), set(self.names), self.nested
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.write("T.evaluate(0)")
        self.lets, self.buffers, self.loops, self.names, self.nested = outer
        self.names |= self.lasting
        self.depth -= 1

    @contextmanager
    def loop_over(self, head: str, low: int, high: int, over: str = "") -> Iterator[Index]:
        """One loop."""
        name = self._loop_name()
        if "range" in self.names and head.startswith("range"):
            head = "T.serial" + head.removeprefix("range")
        with self.suite(f"for {name} in {head}:"):
            index = Index(name, low, high, over)
            self.names.add(name)
            self.loops.append(index)
            self.nested += 1
            yield index

    def _loop_name(self) -> str:
        before = set(self.names)
        name = self.fresh("ijklabcd"[len(self.loops) % 8])
        self.names = before
        return name

    @contextmanager
    def nest(self, shape: Sequence[Size]) -> Iterator[list[Index]]:
        """Loops over `shape`: in any order, split, fused, or as a grid; an index for each size."""
        if not shape:
            yield []
            return
        kind = self.random.random()
        if kind < 0.25 and len(shape) > 1:
            with self._grid(shape) as at:
                yield at
        elif kind < 0.33:
            with self._split(shape[0]) as first, self.nest(shape[1:]) as rest:
                yield [first, *rest]
        elif kind < 0.38 and len(shape) == 2:
            a, b = shape
            with self.loop_over(f"range({a} * {b})", 0, a.value * b.value - 1) as i:
                empty = a.value * b.value <= 0
                row = Index(f"({i} // {b})", 0, -1 if empty else a.value - 1, a.text)
                column = Index(f"({i} % {b})", 0, -1 if empty else b.value - 1, b.text)
                self.loops += [] if b.value <= 0 else [row, column]
                yield [row, column]
        elif kind < 0.5 and len(shape) > 1:
            first, *rest = shape
            with self.nest(rest) as inner, self.nest([first]) as [outer]:
                yield [outer, *inner]
        else:
            with (
                self.loop_over(self._head(shape[0]), 0, shape[0].value - 1, shape[0].text) as i,
                self.nest(shape[1:]) as r,
            ):
                yield [i, *r]

    def _head(self, size: Size) -> str:
        kinds = ["range"] * 6 + ["T.serial", "T.parallel"]
        if size.text.isdigit() and size.value > 0:
            kinds += ["T.vectorized", "T.unroll"]
        return f"{self.pick(kinds)}({size})"

    @contextmanager
    def _grid(self, shape: Sequence[Size]) -> Iterator[list[Index]]:
        before = set(self.names)
        names = [self.fresh("ijklabcd"[(len(self.loops) + k) % 8]) for k in range(len(shape))]
        self.names = before
        sizes = ", ".join(map(str, shape))
        with self.suite(f"for {', '.join(names)} in T.grid({sizes}):"):
            at = [Index(n, 0, s.value - 1, s.text) for n, s in zip(names, shape, strict=True)]
            self.names |= set(names)
            self.loops += at
            self.nested += len(at)
            yield at

    @contextmanager
    def _split(self, size: Size) -> Iterator[Index]:
        """Tiles of two or three, the last one cut off by a guard."""
        factor = self.pick([2, 3])
        tiles = Size(f"(({size} + {factor - 1}) // {factor})", (size.value + factor - 1) // factor)
        with (
            self.loop_over(f"range({tiles})", 0, tiles.value - 1) as i,
            self.loop_over(f"range({factor})", 0, factor - 1) as j,
        ):
            place = Index(f"({i} * {factor} + {j})", 0, size.value - 1, size.text)
            with self.suite(f"if {place} < {size}:"):
                self.loops.append(place)
                yield place
