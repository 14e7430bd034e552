"""Random kernels that leave elements of their results as they were.

Their blocks are below `T.where` and `if`, in blocks, and skip the iteration that would run an init;
they store to every second element, backwards, or shifted, and to buffers with values from before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.exec.reference.kernel import KernelRun
from relaxpy.script import from_source
from relaxpy.tir import BufferLoad, PrimFunc

SHAPES = {1: (48,), 2: (12, 12)}
"""The shape of vectors, and of matrices."""
RANKS = {"A": 1, "B": 2, "C": 1, "D": 2}
"""The parameters, beside P, which has n elements."""


@dataclass
class Partial:
    """Writes one kernel over vectors A, C and matrices B, D; a loop may have n iterations."""

    random: Random
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def text(self) -> str:
        """The text of a kernel."""
        self.ranks = dict(RANKS)
        self.lines = [
            "@T.prim_func",
            "def f(a: T.handle, b: T.handle, c: T.handle, d: T.handle, p: T.handle):",
        ]
        self.put(1, "n = T.int64()")
        for name in self.ranks:
            self.buffer(name, f"T.match_buffer({name.lower()}, ")
        self.put(1, 'P = T.match_buffer(p, (n,), "float32")')
        for name in ("K", "L")[: self.random.choice([0, 0, 1, 2])]:
            self.ranks[name] = self.random.choice([1, 1, 2])
            self.buffer(name, "T.alloc_buffer(")
        self.odd = self.random.choice([0.03, 0.1, 0.3])
        self.written = [*RANKS]
        locals_ = [name for name in self.ranks if name not in RANKS]
        for target in [*locals_, *self.random.choices(["C", "D"], k=self.random.choice([1, 1, 2]))]:
            self.stage(1, target)
            self.written.append(target)
        return "\n".join(self.lines) + "\n"

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def buffer(self, name: str, begin: str) -> None:
        self.put(1, f'{name} = {begin}{SHAPES[self.ranks[name]]}, "float32")')

    # -- stages

    def stage(self, depth: int, target: str) -> None:
        """Loops around a block that stores to a buffer, or around a bare store."""
        if self.chance(self.odd / 4):
            i = self.fresh("i")
            self.put(depth, f"for {i} in range({self.extent()}):")
            self.store(depth + 1, target, [i], [])
            return
        outer: list[str] = []
        is_local = target not in RANKS
        if self.chance(
            self.odd
        ):  # a block in a block, whose condition may be over the outer variable
            extent = self.extent()
            i = self.fresh("i")
            self.put(depth, f"for {i} in range({extent}):")
            depth = self.branch(depth + 1, [i])
            self.put(depth, f'with T.block("{self.fresh("outer")}"):')
            v = self.fresh("v")
            self.put(depth + 1, f"{v} = T.axis.spatial({extent}, {i})")
            self.where(depth + 1, [i])
            depth, outer = depth + 1, [v]
        depth = self.branch(depth, outer)
        loops: dict[str, str] = {}
        most = [self.ranks[target]] * 3 + [3] if is_local else [1, 2, 2, 3]
        for _ in range(self.random.choice(most if not outer else [0, 1, 2])):
            i = self.fresh("i")
            loops[i] = "6" if is_local else self.extent()
            self.put(depth, f"for {i} in range({loops[i]}):")
            depth = self.branch(depth + 1, [*outer, *loops])
        self.put(depth, f'with T.block("{self.fresh(target)}"):')
        spatial, reduced = self.variables(depth + 1, loops)
        self.where(depth + 1, [*outer, *loops])
        spatial += outer
        if reduced and self.chance(0.85):
            place = self.place(target, spatial)
            self.put(depth + 1, "with T.init():")
            self.put(depth + 2, f"{place} = T.float32({self.random.randint(-2, 2)})")
            self.update(depth + 1, target, place, [*spatial, *reduced])
        else:
            self.store(depth + 1, target, spatial, reduced)

    def extent(self) -> str:
        return self.random.choice(["2", "3", "4", "5", "6", "n"])

    def branch(self, depth: int, names: Sequence[str]) -> int:
        """Perhaps begin a branch, and return how deep it is."""
        if not names or not self.chance(self.odd):
            return depth
        self.put(depth, f"if {self.condition(names)}:")
        return depth + 1

    def where(self, depth: int, names: Sequence[str]) -> None:
        if names and self.chance(0.1 + self.odd):
            self.put(depth, f"T.where({self.condition(names)})")

    def condition(self, names: Sequence[str]) -> str:
        i, j = self.random.choice(names), self.random.choice(names)
        number = self.random.randint(0, 4)
        form = self.random.choice(
            [
                *["{i} > 0", "{i} < {number}", "{i} >= {number}", "{i} != 1", "{i} % 2 == 0"],
                *["{i} * 3 + {j} < {size}", "{i} + {j} > 0", "{i} < {j}", "A[{i}] > T.float32(0)"],
                *["T.Or({i} > 1, {j} == 0)", "C[{i}] > T.float32(0)"],
            ]
        )
        return form.format(i=i, j=j, number=number, size=number * 4)

    def variables(self, depth: int, loops: dict[str, str]) -> tuple[list[str], list[str]]:
        """Write the variables of a block; the spatial and the reduction variables."""
        found: tuple[list[str], list[str]] = ([], [])
        for i, extent in loops.items():
            if extent == "6" and self.chance(2 * self.odd):
                pairs = [("2", f"{i} // 3"), ("3", f"{i} % 3")]
            else:
                wider = f"{extent} + 1"
                others = [(extent, f"{extent} - 1 - {i}"), (wider, f"{i} + 1"), (wider, i)]
                odd = self.chance(self.odd)
                pairs = [self.random.choice(others) if odd else (extent, i)]
            for size, value in pairs:
                v, kind = self.fresh("v"), len(found[0]) > 0 and self.chance(0.4)
                kind = kind or self.chance(self.odd / 2)
                name = ("spatial", "reduce")[kind]
                self.put(depth, f"{v} = T.axis.{name}({size}, {value})")
                found[kind].append(v)
        return found

    # -- statements

    def store(self, depth: int, target: str, spatial: list[str], reduced: list[str]) -> None:
        """Store once or twice, perhaps in a branch."""
        for _ in range(self.random.choices([1, 2], [1, self.odd])[0]):
            at = self.branch(depth, [*spatial, *reduced])
            place = self.place(target, spatial)
            if reduced or self.chance(0.1):
                self.update(at, target, place, [*spatial, *reduced])
            else:
                self.put(at, f"{place} = {self.value(spatial)}")

    def update(self, depth: int, target: str, place: str, names: list[str]) -> None:
        value = self.value(names)
        form = self.random.choice(
            ["{0} + {1}"] * 4 + ["T.max({0}, {1})", "{0} * T.float32(2) + {1}"]
        )
        self.put(self.branch(depth, names), f"{place} = {form.format(place, value)}")

    def place(self, target: str, spatial: Sequence[str]) -> str:
        """An element of a buffer, mostly another one for each value of the variables."""
        own = self.random.sample(list(spatial), len(spatial))
        dims: list[list[str]] = [[] for _ in range(self.ranks[target])]
        for k, v in enumerate(own):
            dims[k % len(dims)].append(v)
        return f"{target}[{', '.join(self.index(names) for names in dims)}]"

    def index(self, names: Sequence[str]) -> str:
        match names:
            case []:
                return str(self.random.randint(0, 3))
            case [v]:
                if not self.chance(2 * self.odd):
                    return v
                return self.random.choice(
                    [f"{v} * 2", f"{v} + 1", f"6 - {v}", f"{v} % 3", f"11 - {v} * 2"]
                )
            case [v, w, *_]:
                odd = [f"{v} * 3 + {w}", f"{v} + {w}", f"{w} * 7 + {v} * 2"]
                return self.random.choice(odd) if self.chance(self.odd) else f"{v} * 7 + {w}"

    def value(self, names: Sequence[str]) -> str:
        loads = []
        for _ in range(self.random.randint(1, 2)):
            name = self.random.choice(self.written)
            at = ", ".join(
                self.index([self.random.choice(names)] if names else [])
                for _ in range(self.ranks[name])
            )
            load = f"{name}[{at}]"
            if names and self.chance(0.15):
                load = f"T.if_then_else({self.condition(names)}, {load}, T.float32(1))"
            loads.append(load)
        return self.random.choice([" + ", " - "]).join(
            [*loads, f"T.float32({self.random.randint(0, 3)})"]
        )


class _Defined(KernelRun):
    """A run that fails where the kernel reads memory that nothing wrote, which is NaN."""

    @override
    def load(self, load: BufferLoad) -> Any:
        value = super().load(load)
        if np.isnan(value):
            raise RuntimeCheckError(f"{load} is read before it is written")
        return value


Arrays = list[npt.NDArray[np.float32]]


def arguments(seed: object) -> Arrays:
    """Whole numbers, of which sums are exact, and so many elements of P."""
    random = Random(str(seed))
    rng = np.random.default_rng(random.getrandbits(32))
    shapes = [*(SHAPES[rank] for rank in RANKS.values()), (random.randint(0, 6),)]
    return [rng.integers(-5, 6, shape).astype("float32") for shape in shapes]


@cache
def partial_kernel(seed: object) -> tuple[PrimFunc, Callable[[], Arrays], Arrays]:
    """A kernel, its arguments, and what they are after its call by the reference evaluator.

    No index of it is outside of a buffer, and it reads no memory that nothing wrote.
    """
    for attempt in range(1000):
        name = f"{seed} {attempt}"
        try:
            text = Partial(Random(name)).text()
            if "T.block" not in text:
                continue
            func = from_source(text)
            expected = arguments(name)
            with np.errstate(all="ignore"):
                _Defined(func, "f", None).run(expected)
        except RelaxpyError:
            continue
        return func, partial(arguments, name), expected
    raise AssertionError(f"no kernel of the seed {seed} is right")
