"""Texts of random kernels: colliding stores, recurrences, scratch buffers, views, moving bounds.

Every index lies inside its buffer, and every loop has an iteration unless its bounds move: a
reduction block over nothing executes its init all the same, which the checker does not replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SIZE = 6
"""The elements of a vector; matrices have as many rows and columns, loops up to 4 iterations."""


@dataclass
class Adversary:
    """Writes one kernel over vectors X, Y, matrices Z, W, a number S, places P, and U[m, n].

    There are 1 to 4 rows m and 1 to 4 places n.
    Once there are `most` lines no more loops, branches and blocks begin.
    """

    random: Random
    lines: list[str] = field(default_factory=list)
    count: int = 0
    most: int = 22

    def text(self) -> str:
        self.ranks = {"X": 1, "Y": 1, "Z": 2, "W": 2, "S": 0}
        self.readable = [*self.ranks]
        self.lines = [
            "@T.prim_func",
            f"def f({', '.join(f'{b.lower()}: T.handle' for b in 'XYZWSPU')}):",
        ]
        self.put(1, "m, n = T.int64(), T.int64()")
        for name, rank in self.ranks.items():
            shape = ", ".join([str(SIZE)] * rank) + "," * (rank == 1)
            self.put(1, f'{name} = T.match_buffer({name.lower()}, ({shape}), "int32")')
        self.put(1, 'P = T.match_buffer(p, (n,), "int64")')
        self.put(1, 'U = T.match_buffer(u, (m, n), "int32")')
        made = [f"L{k}" for k in range(self.random.randint(0, 3))]
        for name in made:
            self.ranks[name] = self.random.choice([0, 1, 1, 2])
            self.alloc(1, name)
        if self.chance(0.3):
            self.ranks["V"] = 1
            offset = self.random.choice([0, 6, 30])
            self.put(1, f'V = T.decl_buffer(({SIZE},), "int32", data=Z.data, elem_offset={offset})')
            self.readable.append("V")
        for name in self.shuffled(made):
            self.fill(1, name)
            self.readable.append(name)
        for _ in range(self.random.randint(1, 3)):
            if self.chance(0.3):
                self.stage()
            else:
                self.statement(1, [], 2)
        return "\n".join(self.lines) + "\n"

    # -- pieces

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def shuffled(self, names: list[str]) -> list[str]:
        return self.random.sample(names, len(names))

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def alloc(self, depth: int, name: str) -> None:
        shape = ", ".join([str(SIZE)] * self.ranks[name]) + "," * (self.ranks[name] == 1)
        self.put(depth, f'{name} = T.alloc_buffer(({shape}), "int32")')

    def fill(self, depth: int, name: str) -> None:
        """Give every element of a new buffer a value."""
        loops = [self.fresh("f") for _ in range(self.ranks[name])]
        for level, var in enumerate(loops):
            self.put(depth + level, f"for {var} in range({SIZE}):")
        value = self.value([], 1) if not loops else self.aligned(loops)
        self.put(depth + len(loops), f"{name}[{', '.join(loops) or '()'}] = {value}")

    def aligned(self, loops: list[str]) -> str:
        """A value made of the same elements of other buffers."""
        alike = [b for b in self.readable if self.ranks[b] == len(loops)]
        found = f"T.Cast('int32', {loops[0]})"
        for _ in range(self.random.randint(1, 2)):
            load = f"{self.random.choice(alike)}[{', '.join(loops)}]" if alike else "2"
            load = self.random.choice([load, f"T.abs({load})", f"({load} * 3)"])
            found = f"({found} {self.random.choice('+-*')} {load})"
        return found

    def index(self, loops: list[str]) -> str:
        i = self.random.choice(loops) if loops else str(self.random.randint(0, 3))
        j = self.random.choice(loops) if loops else "1"
        return self.random.choice(
            [
                *([i] * 5, [f"{i} + 1", f"{i} + 2", f"5 - {i}", str(self.random.randint(0, 5))])[
                    self.chance(0.4)
                ],
                *[f"({i} + {j}) % 6", f"T.min({i} + {j}, 5)", f"({i} + {j}) // 2"],
                *[
                    f"{i} * {j} % 6",
                    f"P[{i} % n]",
                    f"T.max({i} - {j}, 0)",
                    f"{i} // 2 * 2 + {j} % 2",
                ],
            ]
            if self.chance(0.5)
            else [i, f"{i} + 1"]
        )

    def access(self, name: str, loops: list[str]) -> str:
        return f"{name}[{', '.join(self.index(loops) for _ in range(self.ranks[name])) or '()'}]"

    def value(self, loops: list[str], depth: int) -> str:
        if depth == 0 or self.chance(0.2):
            if self.chance(0.2):
                return f"T.int32({self.random.randint(-3, 3)})"
            if loops and self.chance(0.2):
                return f"T.Cast('int32', {self.random.choice(loops)})"
            return self.access(self.random.choice(self.readable), loops)
        a, b = self.value(loops, depth - 1), self.value(loops, depth - 1)
        if self.chance(0.15):
            return f"T.if_then_else({self.test(loops)}, {a}, {b})"
        if self.chance(0.15):
            return f"T.Select({a} < {b}, {a}, {b})"
        if self.chance(0.1):
            return f"T.abs({a})"
        return self.random.choice(
            [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"T.min({a}, {b})"]
        )

    def test(self, loops: list[str]) -> str:
        if loops and self.chance(0.6):
            i, j = self.random.choice(loops), self.random.choice([*loops, "1", "2"])
            return f"{i} {self.random.choice(['<', '>=', '=='])} {j}"
        return f"{self.access(self.random.choice(self.readable), loops)} > T.int32(0)"

    # -- statements

    def statement(self, depth: int, loops: list[str], left: int) -> None:
        kind = self.random.random() if len(self.lines) < self.most else 1.0
        if kind < 0.45 and len(loops) < 3:
            self.loop(depth, loops, left)
        elif kind < 0.55 and left:
            self.put(depth, f"if {self.test(loops)}:")
            self.body(depth + 1, loops, left - 1)
            if self.chance(0.4):
                self.put(depth, "else:")
                self.body(depth + 1, loops, left - 1)
        elif kind < 0.62 and left:
            var = self.fresh("x")
            self.put(depth, f"with T.LetStmt({self.value(loops, 1)}) as {var}:")
            target = self.access(self.random.choice(self.readable), loops)
            self.put(depth + 1, f"{target} = {var} + {self.value(loops, 1)}")
            self.statement(depth + 1, loops, left - 1)
        elif kind < 0.72 and loops:
            self.block(depth, loops, left)
        elif kind < 0.75:
            best, place = self.shuffled([b for b in self.readable if b in "XYS"])[:2]
            value, where = self.value(loops, 0), [self.access(b, loops) for b in (best, place)]
            self.put(depth, f"if {value} > {where[0]}:")
            self.put(depth + 1, f"{where[0]} = {value}")
            self.put(depth + 1, f"{where[1]} = T.Cast('int32', {self.index(loops)})")
        else:
            self.store(depth, loops)

    def loop(self, depth: int, loops: list[str], left: int) -> None:
        var = self.fresh("i")
        ends = ["4", "3", "n", "2"] + [f"{i} + 1" for i in loops[:1]] * 2
        first = self.random.choice(["", "", "1, "] + [f"{i}, " for i in loops[-1:]])
        end = self.random.choice(ends) if not first else "4"
        self.put(depth, f"for {var} in range({first}{end}):")
        self.body(depth + 1, [*loops, var], left)

    def body(self, depth: int, loops: list[str], left: int) -> None:
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.statement(depth, loops, left)

    def store(self, depth: int, loops: list[str]) -> None:
        target = self.access(self.random.choice(self.readable), loops)
        value = self.value(loops, 2)
        if self.chance(0.4):
            value = self.updated(target, value)
        self.put(depth, f"{target} = {value}")

    def updated(self, target: str, value: str) -> str:
        """An element combined with a value."""
        return self.random.choice(
            [
                f"{target} + {value}",
                f"{target} - {value}",
                f"T.max({target}, {value})",
                f"T.min({target}, {value})",
                f"{target} * {value}",
                f"{value} + {target}",
            ]
        )

    def stage(self) -> None:
        """A block over U: its loops in any order, perhaps split, perhaps an init or a condition."""
        nest: list[tuple[str, str]] = []
        bound, tests = [], []
        for size in "mn":
            i, j = self.fresh("i"), self.fresh("i")
            if self.chance(0.4):
                nest += [(i, f"({size} + 1) // 2"), (j, "2")]
                bound.append(f"({i} * 2 + {j})")
                tests.append(f"{bound[-1]} < {size}")
            else:
                nest.append((i, size))
                bound.append(i)
        if self.chance(0.4):
            self.random.shuffle(nest)
        for level, (var, extent) in enumerate(nest, 1):
            self.put(level, f"for {var} in range({extent}):")
        depth = len(nest) + 1
        self.put(depth, f'with T.block("{self.fresh("b")}"):')
        axes = [self.fresh("v") for _ in bound]
        vectors = [b for b in self.readable if self.ranks[b] == 1]
        target = self.random.choice(["U", *vectors])
        kept = axes if target == "U" else [self.random.choice(axes)]
        for axis, size, value in zip(axes, "mn", bound, strict=True):
            way = "spatial" if axis in kept else "reduce"
            self.put(depth + 1, f"{axis} = T.axis.{way}({size}, {value})")
        if self.chance(0.3):
            tests.append(self.test(bound))
        if tests:
            self.put(depth + 1, f"T.where({' and '.join(tests)})")
        element = f"{target}[{', '.join(kept)}]"
        if kept != axes:
            starts = ["T.int32(0)", "T.int32(-2)", f"{self.random.choice(vectors)}[{kept[0]}]"]
            self.put(depth + 1, "with T.init():")
            self.put(depth + 2, f"{element} = {self.random.choice(starts)}")
        value = self.value(axes, 1)
        if self.chance(0.7):
            value = f"({value} {self.random.choice('+-*')} U[{', '.join(axes)}])"
        self.put(depth + 1, f"{element} = {self.updated(element, value)}")

    def block(self, depth: int, loops: list[str], left: int) -> None:
        self.put(depth, f'with T.block("{self.fresh("b")}"):')
        depth += 1
        kinds = [self.random.choice("SSR") for _ in loops]
        axes = [self.fresh("v") for _ in loops]
        for axis, kind, var in zip(axes, kinds, loops, strict=True):
            way = "spatial" if kind == "S" else "reduce"
            self.put(depth, f"{axis} = T.axis.{way}({SIZE}, {var})")
        spatial = [axis for axis, kind in zip(axes, kinds, strict=True) if kind == "S"]
        scratch = self.fresh("q") if self.chance(0.5) else None
        if scratch is not None:
            self.ranks[scratch] = self.random.choice([0, 1])
            self.alloc(depth, scratch)
        region = None
        if self.chance(0.25):
            region = self.fresh("m")
            self.ranks[region] = 1
            row = self.random.choice([*spatial, "2"])
            self.put(depth, f"{region} = T.match_buffer(W[{row}, 0:{SIZE}], ({SIZE},), 'int32')")
        outer = list(self.readable)
        self.readable += [region] * (region is not None)
        target = self.access(self.random.choice(self.readable), spatial)
        if "R" in kinds and self.chance(0.7) and loops == sorted(set(loops), key=loops.index):
            self.put(depth, "with T.init():")
            self.put(depth + 1, f"{target} = {self.random.choice(['T.int32(0)', 'T.int32(1)'])}")
        if scratch is not None:
            self.fill(depth, scratch)
            self.readable.append(scratch)
        self.put(
            depth, f"{target} = {self.random.choice([target + ' + ', ''])}{self.value(axes, 2)}"
        )
        if self.chance(0.5):
            self.statement(depth, axes, 0)
        self.readable = outer
