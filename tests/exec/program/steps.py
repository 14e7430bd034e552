"""Random functions whose kernels stand between calls of packed functions, and their twins in NumPy.

Packed functions return their argument, a view of it in reverse order, or a pair with one tensor
twice; keep it, change it, write their last argument, call the program again, or fail. Their
arguments and results may be tuples and objects, in branches, loops of calls, and in place. Indices,
assertions, casts and operands of unknown sizes may fail, at any step and in any iteration. Some
functions call no packed functions, so that they are native as a whole.
"""

from random import Random
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
PICK = """
@kernel
def pick{number}(x: f32[4], at: T.Buffer((4,), "int64"), {i}y: f32[4]{e}):
    for k in range(4):
        {statement}
"""
PICKS = (
    "y[k] = x[at[e] + k]",
    "y[k] = x[T.if_then_else(at[e] < 9, at[e], T.int64(0)) + k]",
    "y[k] = T.Cast('float32', at[e]); y[k] = x[T.Cast('int64', y[k]) + k]",
    "assert at[e] * at[e] + k < 4, 'too large'; y[k] = x[k]",
    "y[k] = x[k]; assert at[e] == 0, 'not zero'",
)
"""Statements of kernels that copy a row if the element of `at` is 0, and fail otherwise."""
UPDATE = """
@private
def update(x: {a}, y: {a}, c: f32[4], at: i64[4]):
    {sizes}
    z = R.call_tir_inplace(cls.fill, (x, y), [0], {a})
    p = R.call_tir(cls.pick{number}, (c, at), f32[4], tir_vars=R.shape([1]))
    return (R.add(z, y), p)

@kernel
def fill(p: T.handle, q: T.handle):
    {sizes}
    x = T.match_buffer(p, ({shape}), "float32")
    y = T.match_buffer(q, ({shape}), "float32")
    for i, j in T.grid({shape}):
        x[i, j] = y[i, j] * T.float32(0.5)
"""
"""A function that writes a parameter before it may fail."""
KERNEL = """
@kernel
def plus_{kind}(p: T.handle, q: T.handle):
    {sizes}
    x = T.match_buffer(p, ({shape},), "float32")
    y = T.match_buffer(q, ({shape},), "float32")
    for {axes} in T.grid({shape}):
        x[{axes}] = x[{axes}] * T.float32(0.5) + y[{axes}]
"""


class StepError(Exception):
    """What a packed function raises."""


class FailedError(Exception):
    """What stands for an error that relaxpy raises."""


class Twin:
    """The packed functions, with what they saw; and what kernels compute, in float64."""

    def __init__(self, fails_at: int = -1) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.kept: list[Array] = []
        self.messages: list[str] = []
        self.fails_at = fails_at
        self.again: Any = None

    def _enter(self, name: str, *args: Any) -> None:
        self.log.append((name, *map(np.array, args)))
        if len(self.log) - 1 == self.fails_at:
            raise StepError(name)

    def same(self, x: Array) -> Array:
        return x

    def reverse(self, x: Array) -> Array:
        return x[::-1]

    def pair(self, x: Array, other: object) -> tuple[Any, ...]:
        return x, (x, other)

    def keep(self, x: Array) -> Array:
        self._enter("keep", x)
        self.kept.append(x)
        return x

    def change(self, x: Array) -> tuple[()]:
        self._enter("change", x)
        x += np.float32(0.25)
        return ()

    def write(self, x: Array, out: Array) -> None:
        out[...] = x * np.float32(0.5)

    def call_again(self, x: Array) -> Array:
        self._enter("call_again", x)
        return self.again(x)

    # ---- kernels

    @staticmethod
    def kernel(x: Any) -> Array:
        return np.array(x, np.float32)

    @staticmethod
    def holds(x: Array, condition: Any) -> Array:
        if not condition:
            raise FailedError
        return x

    def plus(self, x: Array, y: Array) -> Array:
        for index in np.ndindex(x.shape):  # they may be views of the same memory
            x[index] = x[index] * np.float32(0.5) + y[index]
        return x

    def update(self, x: Array, y: Array, c: Array, condition: Any) -> tuple[Array, Array]:
        for index in np.ndindex(x.shape):
            x[index] = y[index] * np.float32(0.5)
        return self.kernel(x + y), self.holds(c + 0, condition)


class Writer:
    """Writes the steps of one function in Relax and in Python."""

    def __init__(
        self, random: Random, *, symbolic: bool, effects: bool, aliases: bool, packed: bool = True
    ) -> None:
        self.random, self.effects, self.aliases, self.calls = random, effects, aliases, packed
        self.n = "n" if symbolic else "3"
        self.count = 0
        self.relax: list[str] = []
        self.python: list[str] = []
        self.kinds: dict[str, str] = {}

    def sinfo(self, kind: str) -> str:
        return {"a": f"f32[{self.n}, 4]", "b": f"f32[{self.n}]", "c": "f32[4]"}[kind]

    def line(self, indent: str, relax: str, python: str) -> None:
        self.relax.append(indent + relax)
        self.python.append(indent + python)

    def bind(self, indent: str, kind: str, relax: str, python: str) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.line(indent, f"{name} = {relax}", f"{name} = {python}")
        self.kinds[name] = kind
        return name

    def some(self, kind: str) -> str:
        return self.random.choice([name for name, k in self.kinds.items() if k == kind])

    def steps(self, indent: str, count: int, depth: int) -> None:
        for _ in range(count):
            makers = [self.unary] * 5 + [self.reduced] * 3 + [self.in_place, self.view, self.cast]
            makers += [self.pick] * 2 + [self.open]
            makers += [self.packed] * 4 + [self.pair] if self.calls else [self.loop]
            makers += [self.dps] * 2 if self.calls else []
            makers += [self.change, self.again, self.inner] if self.effects else []
            makers += [self.branch] if depth else []
            maker = self.random.choice(makers)
            maker(indent, depth) if maker == self.branch else maker(indent)  # type: ignore[operator]

    def unary(self, indent: str) -> None:
        kind = self.random.choice("abc")
        x, y = self.some(kind), self.some(kind)
        relax, python = self.random.choice(
            [
                ("R.tanh({0})", "np.tanh({0})"),
                ("R.add({0}, {1})", "{0} + {1}"),
                ("R.multiply(R.tanh({0}), R.sigmoid({1}))", "np.tanh({0}) / (1 + np.exp(-{1}))"),
            ]
        )
        self.bind(indent, kind, relax.format(x, y), f"t.kernel({python.format(x, y)})")

    def reduced(self, indent: str) -> None:
        x = self.some("a")
        axis, kind = self.random.choice([(1, "b"), (0, "c")])
        value = f"t.kernel({x}.mean({axis}, np.float64))"
        self.bind(indent, kind, f"R.mean({x}, axis=[{axis}])", value)

    def view(self, indent: str) -> None:
        kind = self.random.choice("abc")
        self.view_of(self.some(kind), kind, indent)

    def view_of(self, x: str, kind: str, indent: str) -> str:
        flat = f"R.reshape({x}, R.shape([{'n * 4' if self.n == 'n' else 12}]))"
        if kind != "a":
            flat = f"R.reshape({x}, R.shape([1, {self.n if kind == 'b' else 4}]))"
        shape = {"a": f"[{self.n}, 4]", "b": f"[{self.n}]", "c": "[4]"}[kind]
        relax = f"R.reshape({flat}, R.shape({shape}))"
        return self.bind(indent, kind, relax, f"np.array({x}, order='C')")

    def packed(self, indent: str) -> None:
        kind = self.random.choice("abc")
        names = ["same", "reverse"] + ["keep"] * self.effects
        x, name = self.some(kind), self.random.choice(names)
        call = "R.call_packed" if name == "keep" else "R.call_pure_packed"
        relax = f'{call}("test.steps.{name}", {x}, sinfo_args={self.sinfo(kind)})'
        self.bind(indent, kind, relax, f"t.{name}({x})")

    def pair(self, indent: str) -> None:
        kind = self.random.choice("abc")
        x, sinfo = self.some(kind), self.sinfo(kind)
        whole = f"R.Tuple({sinfo}, R.Tuple({sinfo}, R.Object))"
        relax = f'R.call_pure_packed("test.steps.pair", {x}, s, sinfo_args={whole})'
        name = self.bind(indent, "", relax, f"t.pair({x}, s)")
        self.bind(indent, kind, f"{name}[0]", f"{name}[0]")
        self.bind(indent, kind, f"{name}[1][0]", f"{name}[1][0]")

    def dps(self, indent: str) -> None:
        kind = self.random.choice("abc")
        x = self.some(kind)
        relax = f'R.call_dps_packed("test.steps.write", ({x},), {self.sinfo(kind)})'
        name = self.bind(indent, kind, relax, f"np.empty({x}.shape, np.float32)")
        self.python.append(f"{indent}t.write({x}, {name})")

    def change(self, indent: str) -> None:
        x = self.some(self.random.choice("abc"))
        self.line(indent, f'_ = R.call_packed("test.steps.change", {x})', f"t.change({x})")

    def again(self, indent: str) -> None:
        x = self.some("c")
        relax = f'R.call_packed("test.steps.call_again", {x}, sinfo_args=f32[4])'
        self.bind(indent, "c", relax, f"t.call_again({x})")

    def inner(self, indent: str) -> None:
        x = self.some("c")
        self.bind(indent, "c", f"cls.inner({x})", f"inner(t, {x})")

    def in_place(self, indent: str) -> None:
        kind = self.random.choice("aaabc")
        y, x = self.some(kind), self.some(kind)
        if not (self.effects and self.aliases) or self.random.random() < 0.5:
            x = self.bind(indent, kind, f"R.tanh({x})", f"t.kernel(np.tanh({x}))")
        view = self.view_of(x, kind, indent) if self.aliases and self.random.random() < 0.5 else y
        relax = f"R.call_tir_inplace(cls.plus_{kind}, ({x}, {y}), [0], {self.sinfo(kind)})"
        if self.aliases and kind == "a" and self.random.random() < 0.5:
            c = self.some("c")
            python = f"t.update({x}, {y}, {c}, at[1] == 0)"
            pair = self.bind(indent, "", f"cls.update({x}, {y}, {c}, at)", python)
            self.bind(indent, "c", f"{pair}[1]", f"{pair}[1]")
            self.bind(indent, kind, f"{pair}[0]", f"{pair}[0]")
        else:
            self.bind(indent, kind, relax, f"t.plus({x}, {y})")
        self.bind(indent, kind, f"R.tanh({view})", f"t.kernel(np.tanh({view}))")
        if not self.aliases:  # passes may drop a call whose result is unused
            del self.kinds[x]

    # ---- what may fail

    def pick(self, indent: str) -> None:
        x, number, e = self.some("c"), self.random.randrange(len(PICKS)), self.random.randrange(4)
        call = f"R.call_tir(cls.pick{number}, ({x}, at), f32[4], tir_vars=R.shape([{e}]))"
        self.bind(indent, "c", call, f"t.holds({x} + 0, at[{e}] == 0)")

    def loop(self, indent: str) -> None:
        x, number = self.some("c"), self.random.randrange(len(PICKS))
        self.count += 1
        name, start = f"loop{self.count}", self.random.randrange(4)
        for line in (
            f"def {name}(i: i64, s: f32[4]) -> f32[4]:",
            "    if i < R.const(4, 'int64'):",
            f"        s1 = R.call_tir(cls.pick{number}_at, (s, at, i), f32[4])",
            f"        r: f32[4] = {name}(i + 1, R.tanh(s1))",
            "    else:",
            "        r = s",
            "    return r",
        ):
            self.relax.append(indent + line)
        self.bind(indent, "c", f"{name}(R.const({start}, 'int64'), {x})", x)
        self.python.append(f"{indent}for i in range({start}, 4):")
        last = [*self.kinds][-1]
        self.python.append(f"{indent}    {last} = t.kernel(np.tanh(t.holds({last}, at[i] == 0)))")

    def cast(self, indent: str) -> None:
        self.count += 1
        relax, python = self.random.choice(
            [
                ("s{0} = R.match_cast(R.tensor_to_shape(z), R.Shape([{1}, 4]))", "z[0] == 3"),
                ("s{0} = R.match_cast(d, f32[4])", "d.shape == (4,)"),
                ("s{0} = R.match_cast(R.shape_of(d), R.Shape([4]))", "d.shape == (4,)"),
                ("s{0} = R.match_cast(g, f32[{1}])", "len(g) == 3"),
                ("s{0} = R.match_cast(g, f32[m{0}])", "True"),
                ("s{0} = R.match_cast(w[1][1], R.Object)", "True"),
            ]
        )
        size = f"{indent}m{self.count} = T.int64()"
        self.relax += [size] * ("m{0}" in relax)
        self.line(indent, relax.format(self.count, self.n), f"t.holds(None, {python})")

    def open(self, indent: str) -> None:
        x = self.some("c")
        relax = f"R.match_cast(R.add({x}, d), f32[4])"
        self.bind(indent, "c", relax, f"t.kernel(t.holds({x}, len(d) in (1, 4)) + d)")

    def branch(self, indent: str, depth: int) -> None:
        kind = self.random.choice("abc")
        condition = self.random.choice("cd")
        self.count += 1
        name = f"v{self.count}"
        before = dict(self.kinds)
        for way in (f"if {condition}flag:", "else:"):
            self.line(indent, way, way)
            self.steps(indent + "    ", self.random.randint(1, 4), depth - 1)
            x = self.some(kind)
            if not self.calls:  # a native function does not return one of two tensors
                x = self.bind(indent + "    ", kind, f"R.negative({x})", f"t.kernel(-{x})")
            self.line(indent + "    ", f"{name} = {x}", f"{name} = {x}")
            self.kinds = dict(before)
        self.kinds[name] = kind


PARAMS = (
    "a0: {a}, b0: {b}, c0: f32[4], w: R.Tuple({a}, R.Tuple(f32[4], R.Object)), s: R.Object, "
    "cflag: bool, dflag: bool, at: i64[4], z: i64[2], d: {d}, g: f32[k]"
)


def write(random: Random, *, symbolic: bool, aliases: bool) -> tuple[str, str]:
    """A program in Relax, and its functions `main(t, ...)` and `inner(t, c0)` in Python.

    With `aliases`, tensors are read after kernels have written them in place.
    """
    relax, python = [], []
    for name in ("main", "inner"):
        packed = random.random() < 0.6
        effects = name == "main" and packed and random.random() < 0.6
        w = Writer(random, symbolic=symbolic, effects=effects, aliases=aliases, packed=packed)
        w.kinds = {"a0": "a", "b0": "b", "c0": "c"}
        d = "R.Tensor('float32', ndim=1)" if packed else "f32[h]"
        params = PARAMS.format(a=w.sinfo("a"), b=w.sinfo("b"), d=d)
        if name == "inner":
            w.n, params = "3", "c0: f32[4]"
            w.kinds = {"c0": "c"}
            w.bind("    ", "c", "R.tanh(c0)", "t.kernel(np.tanh(c0))")
            w.bind(
                "    ",
                "c",
                'R.call_pure_packed("test.steps.same", v1, sinfo_args=f32[4])',
                "t.same(v1)",
            )
            w.bind("    ", "c", "R.add(v2, R.sigmoid(v1))", "t.kernel(v2 + 1 / (1 + np.exp(-v1)))")
        else:
            w.bind("    ", "a", "w[0]", "w[0]")
            w.bind("    ", "c", "w[1][0]", "w[1][0]")
            w.steps("    ", random.randint(4, 14), 2)
        kept = [n for n, kind in w.kinds.items() if kind]
        results = random.sample(kept, min(3, len(kept))) if name == "main" else ["v3"]
        result = f"({', '.join(results)}, s, w)" if name == "main" else "v3"
        sizes = ["    n = T.int64()"] if symbolic and name == "main" else []
        sizes += [f"    {size} = T.int64()" for size in "kh" if name == "main"]
        relax += ["@impure", f"def {name}({params}):", *sizes, *w.relax, f"    return {result}"]
        args = "t, c0" if name == "inner" else "t, a0, b0, c0, w, s, cflag, dflag, at, z, d, g"
        python += [f"def {name}({args}):", *w.python, f"    return {result}"]
    for kind, axes in (("a", "i, j"), ("b", "i"), ("c", "i")):
        shape = {"a": "n, 4", "b": "n", "c": "4"}[kind]
        shape = shape if symbolic else shape.replace("n", "3")
        sizes = "n = T.int64()" if "n" in shape else "pass"
        relax.append(KERNEL.format(kind=kind, axes=axes, shape=shape, sizes=sizes))
    n, sizes = ("n", "n = T.int64()") if symbolic else ("3", "pass")
    number = random.randrange(len(PICKS))
    relax.append(UPDATE.format(a=f"f32[{n}, 4]", shape=f"{n}, 4", sizes=sizes, number=number))
    for number, text in enumerate(PICKS):
        lines = text.replace("; ", "\n        ")
        relax.append(PICK.format(number=number, i="", e=", e: T.int64", statement=lines))
        lines = lines.replace("[e]", "[i[()]]")
        i = 'i: T.Buffer((), "int64"), '
        relax.append(PICK.format(number=f"{number}_at", i=i, e="", statement=lines))
    return "\n".join(relax).replace("    pass\n", ""), "\n".join(python)
