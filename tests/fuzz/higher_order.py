"""Random graph functions whose values are functions, and functions of functions.

What is varied: types of values, which are tensors, tuples and functions of any of these; where a
value comes from: parameters, captured variables, calls, fields of tuples, conditionals, casts, new
local functions; whether functions declare their results; functions of the module, called by their
names or as values; whether dimensions are fixed or are captured shape variables.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from relaxpy.ir.module import IRModule
from relaxpy.script import from_source


@dataclass(frozen=True)
class Func:
    """The type of a function."""

    params: tuple[Type, ...]
    result: Type


Type: TypeAlias = "Func | tuple[Type, ...] | None"
"""A function, a tuple, or a tensor."""
TENSOR: Type = None


@dataclass
class Writer:
    """Writes the bindings of a function; `scope` has the visible variables with their types."""

    rng: random.Random
    size: str
    names: Iterator[int]
    scope: list[tuple[str, Type]]
    indent: str = " " * 8
    lines: list[str] = field(default_factory=list)

    def inside(self, *variables: tuple[str, Type]) -> Writer:
        return replace(self, scope=[*self.scope, *variables], indent=self.indent + " " * 4)

    def type(self, depth: int) -> Type:
        kind = self.rng.random() if depth else 0
        if kind < 0.45:
            return TENSOR
        if kind < 0.85:
            count = self.rng.choice((0, 1, 1, 1, 2, 2))
            return Func(tuple(self.type(depth - 1) for _ in range(count)), self.type(depth - 1))
        return tuple(self.type(depth - 1) for _ in range(self.rng.randint(1, 2)))

    def annotation(self, of: Type) -> str:
        if of is TENSOR:
            return f'R.Tensor(({self.size},), "float32")'
        if isinstance(of, Func):
            params = "".join(f"{self.annotation(param)}, " for param in of.params)
            return f"R.Callable(({params}), {self.annotation(of.result)})"
        return f"R.Tuple({', '.join(map(self.annotation, of))})"

    def put(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def fresh(self, letter: str = "v") -> str:
        return f"{letter}{next(self.names)}"

    def bind(self, value: str, of: Type) -> str:
        name = self.fresh()
        self.put(f"{name} = {value}")
        self.scope.append((name, of))
        return name

    def call(self, name: str, of: Func, depth: int) -> str:
        args = ", ".join(self.value(param, depth - 1) for param in of.params)
        return self.bind(f"{name}({args})", of.result)

    def value(self, of: Type, depth: int) -> str:
        """A variable of this type."""
        known = [name for name, other in self.scope if other == of]
        calls = [(n, f) for n, f in self.scope if isinstance(f, Func) and f.result == of]
        fields = [(n, t) for n, t in self.scope if isinstance(t, tuple) and of in t]
        kinds = ["known"] * 3 * bool(known)
        if depth > 0:
            kinds += ["call"] * 3 * bool(calls) + ["field"] * 2 * bool(fields)
            kinds += ["if", "cast", "new call"]
        match self.rng.choice([*kinds, "literal", "literal"]):
            case "known":
                return self.rng.choice(known)
            case "call":
                return self.call(*self.rng.choice(calls), depth)
            case "field":
                name, types = self.rng.choice(fields)
                return self.bind(f"{name}[{types.index(of)}]", of)
            case "cast":
                return self.bind(
                    f"R.match_cast({self.value(of, depth - 1)}, {self.annotation(of)})", of
                )
            case "if":
                result = self.fresh()
                for keyword in ("if choice", "else"):
                    self.put(f"{keyword}:")
                    branch = self.inside()
                    branch.put(f"{result} = {branch.value(of, depth - 1)}")
                self.scope.append((result, of))
                return result
            case "new call":
                func = Func(tuple(self.type(1) for _ in range(self.rng.randint(0, 2))), of)
                return self.call(self.function(func, depth - 1), func, depth)
        if isinstance(of, Func):
            return self.function(of, depth - 1)
        if of is not TENSOR:
            return self.bind(f"({''.join(f'{self.value(t, depth - 1)}, ' for t in of)})", of)
        if depth <= 0:
            return known[0]
        return self.bind(
            f"R.subtract({self.value(of, depth - 1)}, {self.value(of, depth - 1)})", of
        )

    def function(self, of: Func, depth: int) -> str:
        """A new local function."""
        params = [(self.fresh("p"), param) for param in of.params]
        name, body = self.fresh("f"), self.inside(*params)
        result = f" -> {self.annotation(of.result)}" if self.rng.random() < 0.5 else ""
        self.put("@R.function")
        self.put(
            f"def {name}({', '.join(f'{p}: {self.annotation(t)}' for p, t in params)}){result}:"
        )
        body.put(f"return {body.value(of.result, depth)}")
        self.scope.append((name, of))
        return name


def write(seed: object) -> IRModule:
    """A module whose `main` takes two tensors of 4 elements and a Boolean, and returns tensors."""
    rng, numbers = random.Random(f"higher order {seed}"), itertools.count()
    size = rng.choice(("4", "n"))
    lines = ["@I.ir_module", "class Module:"]
    makers: list[tuple[str, Type]] = []
    for number in range(rng.randint(0, 2)):
        writer = Writer(rng, size, numbers, [("x", TENSOR), ("y", TENSOR)])
        of = writer.type(2)
        writer.put(f"return {writer.value(of, 3)}")
        lines += [*_head(f"maker{number}", size, "private=True"), *writer.lines]
        makers.append((f"cls.maker{number}", of))
    main = Writer(rng, size, numbers, [("x", TENSOR), ("y", TENSOR)])
    for maker, of in makers:
        callee = main.fresh() if rng.random() < 0.5 else maker
        if callee != maker:
            main.put(f"{callee} = {maker}")
        main.bind(f"{callee}(x, y, choice)", of)
    results = [main.value(TENSOR, 4) for _ in range(2)]
    functions = [(n, of) for n, of in main.scope if isinstance(of, Func) and of.result is TENSOR]
    results += [main.call(name, of, 2) for name, of in functions[:4]]
    main.put(f"return ({', '.join(results)})")
    return from_source("\n".join([*lines, *_head("main", size), *main.lines]))


def _head(name: str, size: str, options: str = "private=False") -> list[str]:
    tensor = f'R.Tensor(({size if size == "4" else repr(size)},), "float32")'
    return [
        f"    @R.function({options})",
        f'    def {name}(x: {tensor}, y: {tensor}, choice: R.Tensor((), "bool")):',
        "        cls = Module",
        *(["        n = T.int64()"] if size == "n" else []),
    ]
