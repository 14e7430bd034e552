"""Random Relay programs, well-typed by construction, and ill-typed twins of them.

What is varied, each by itself:

- types of values: tensors of rank 0 to 2 of three datatypes, Booleans, tuples, unit, functions;
  dimensions that are known, and `?`, which the values meet;
- expressions: literals with and without suffix, operators with broadcasting, tuples and
  projections, branches, matches of tuples, blocks, lets with and without annotation;
- names: few, so that they shadow each other; graph bindings that are used often, in branches too;
- functions: local ones over captured variables, recursive ones with a counter, as arguments and
  as results; global ones, called by others and by themselves, polymorphic ones of the Prelude;
  operators as values, and local functions of any type;
- data types and cells (`with_data`), which Relax does not have: lists, options, types that mention
  each other, reads and writes, through other names, tuples and closures too;
- sizes of 0.

`mutant` has one fault that type inference must refuse: an operand of a wrong kind or datatype, a
wrong number of arguments, a projection out of range, a condition that is not a Boolean, branches of
two types, an annotation that does not hold, a name that nothing defines.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

Ty: TypeAlias = str | tuple["Ty", ...]
"""A datatype for rank 0, `dtype[m,n]` for a tensor, or a tuple of types."""
Env: TypeAlias = dict[str, Ty]

NUMBERS = ("int32", "float32", "int64")
SUFFIX = {"int32": "i32", "float32": "f", "int64": "i64"}
NAMES = ("a", "b", "c", "d")
TENSORS = tuple(f"{dtype}[{dims}]" for dtype in NUMBERS for dims in ("2,3", "3", "1,3", "0,3"))
TYPES = "type Odd[A] { OCons(A, Even[A]) }\ntype Even[A] { ENil, ECons(A, Odd[A]) }"
PARAMS: tuple[Ty, ...] = ("float32[2,3]", "int32[2,3]", "bool", "float32", ("int32", "float32[3]"))


def dtype_of(ty: str) -> str:
    return ty.partition("[")[0]


def dims_of(ty: str) -> list[int]:
    return [int(d) for d in ty.partition("[")[2].rstrip("]").split(",") if d]


class Texts:
    """A program that is being written."""

    def __init__(self, seed: object, *, with_data: bool = False, faulty: bool = False) -> None:
        self.rng = random.Random(str(seed))
        self.with_data = with_data
        self.faults = int(faulty)
        self.fault = ""
        self.shared = 0
        self.globals: dict[str, tuple[tuple[Ty, ...], Ty]] = {}
        definitions = [self.definition(f"f{k}") for k in range(self.rng.randint(0, 3))]
        definitions.append(self.definition("main"))
        while self.faults:
            definitions[-1] = self.definition("main")
        self.text = "\n".join([*([TYPES] if with_data else []), *definitions])

    # Types

    def written(self, ty: Ty, *, open_dims: bool = False) -> str:
        """The text of a type; with `open_dims` some dimensions are `?`."""
        if isinstance(ty, tuple):
            fields = "".join(f"{self.written(field)}, " for field in ty)
            return f"({fields})"
        dims = ["?" if open_dims and self.rng.random() < 0.3 else str(dim) for dim in dims_of(ty)]
        if not dims:
            return ty
        return f"Tensor[({', '.join(dims)},), {dtype_of(ty)}]"

    def type(self) -> Ty:
        """Any type of values but functions."""
        kind = self.rng.randrange(8)
        if kind == 0:
            return tuple(self.type() for _ in range(self.rng.randrange(3)))
        if kind == 1:
            return "bool"
        return self.rng.choice(NUMBERS if kind < 4 else TENSORS)

    # Functions of the module

    def definition(self, name: str) -> str:
        """A function, which later ones call; all but `main` may call themselves with a counter."""
        rng = self.rng
        main = name == "main"
        types = PARAMS if main else tuple(self.type() for _ in range(rng.randint(0, 3)))
        result = self.type()
        recursive = not main and rng.random() < 0.4
        params = [f"p{i}" for i in range(len(types))]
        env: Env = dict(zip(params, types, strict=True))
        heads = [f"%{p}: {self.written(t)}" for p, t in env.items()]
        bindings: dict[str, str] = {}
        for _ in range(rng.randrange(3)):
            ty = self.type()
            bindings[f"%{self.shared}"] = self.expr(ty, env, 2)
            env[str(self.shared)] = ty
            self.shared += 1
        body = self.expr(result, env, 4)
        for number in bindings:  # one without uses is no node, so that its faults do not matter
            body = f"{number}; {body}"
        if recursive:
            heads.append("%n: int32")
            again = ", ".join([*(self.expr(t, env, 1) for t in types), "%n - 1"])
            body = f"if (%n < 1) {{ {body} }} else {{ @{name}({again}) }}"
            types = (*types, "count")
        self.globals[name] = types, result
        declared = f" -> {self.written(result)}" if recursive or rng.random() < 0.5 else ""
        shared = " ".join(f"{number} = {value};" for number, value in bindings.items())
        return f"def @{name}({', '.join(heads)}){declared} {{ {shared} {body} }}"

    # Expressions

    def expr(self, ty: Ty, env: Env, depth: int) -> str:
        """An expression of a type over the variables that are visible."""
        if ty == "count":
            return str(self.rng.randrange(3))
        if depth <= 0 or self.rng.random() < 0.1:
            return self.atom(ty, env)
        steps: list[Callable[[Ty, Env, int], str]] = [
            *(self.conditional, self.let, self.projected, self.matched, self.block),
            *(self.called, self.local, self.recursive, self.prelude, self.polymorphic),
            *([self.listed, self.cell, self.mutual, self.aliased] if self.with_data else []),
            *([self.operator] * 4 if isinstance(ty, str) else [self.fields] * 4),
            *([self.operator_as_value] if isinstance(ty, str) and ty != "bool" else []),
        ]
        return self.rng.choice(steps)(ty, env, depth - 1)

    def atom(self, ty: Ty, env: Env) -> str:
        known = [name for name, other in env.items() if other == ty]
        if known and self.rng.random() < 0.8:
            return f"%{self.rng.choice(known)}"
        if isinstance(ty, tuple):
            return self.fields(ty, env, 0)
        if ty == "bool":
            return self.rng.choice(("True", "False"))
        dtype, dims = dtype_of(ty), dims_of(ty)
        number = str(self.rng.randrange(5))
        if dims:
            return f"Constant({number}, ({', '.join(map(str, dims))},), {dtype})"
        return number + SUFFIX[dtype]

    def fields(self, ty: Ty, env: Env, depth: int) -> str:
        assert isinstance(ty, tuple)
        return f"({''.join(f'{self.expr(field, env, depth)}, ' for field in ty)})" if ty else "()"

    def operand(self, ty: str, env: Env, depth: int, *, any_dtype: bool = False) -> str:
        """An operand of an operator, at which a fault may be."""
        if self.faults and self.rng.random() < 0.3:
            self.faults = 0
            wrong = "()" if any_dtype else "1f" if dtype_of(ty) == "bool" else "True"
            self.fault = self.rng.choice((
                "()", wrong, "(1, 2).2", "%undefined", "@undefined(1)", "fn() { 1 }", "exp(1f, 2f)",
                f"(let %t: ({self.written(ty)}, ) = {self.atom(ty, {})}; %t.0)",
                f"(if ({self.atom(ty, {})}) {{ () }} else {{ (1, ) }})",
                f"(fn(%a: int32) {{ {self.atom(ty, {})} }})()",
            ))  # fmt: skip
            return self.fault
        return self.expr(ty, env, depth)

    def operator(self, ty: Ty, env: Env, depth: int) -> str:
        assert isinstance(ty, str)
        rng = self.rng
        if ty == "bool":
            number = rng.choice(NUMBERS)
            sides = self.operand(number, env, depth), self.operand(number, env, depth)
            return f"({sides[0]} {rng.choice(('<', '==', '>=', '!='))} {sides[1]})"
        dtype, dims = dtype_of(ty), dims_of(ty)
        kind = rng.randrange(6)
        if kind == 0:
            name = rng.choice(("negative", "abs", "nn.relu"))
            return f"{name}({self.operand(ty, env, depth, any_dtype=True)})"
        if kind == 1 and not dims:
            whole = rng.choice([t for t in TENSORS if dtype_of(t) == dtype])
            return f"sum({self.operand(whole, env, depth, any_dtype=True)})"
        if kind == 2 and ty.endswith("[2,3]"):
            rows = f"{dtype}[1,3]"
            both = f"({self.operand(rows, env, depth)}, {self.operand(rows, env, depth)})"
            return f"concatenate({both}, axis=0)"
        if kind == 3:
            other = rng.choice(NUMBERS)
            source = self.operand(ty.replace(dtype, other, 1), env, depth, any_dtype=True)
            return f'cast({source}, dtype="{dtype}")'
        if kind == 4:
            condition = self.operand("bool", env, depth)
            sides = self.operand(ty, env, depth), self.operand(ty, env, depth)
            return f"where({condition}, {', '.join(sides)})"
        smaller = [
            d for d in (f"{dtype}[3]", f"{dtype}[1,3]", dtype) if len(dims) > len(dims_of(d))
        ]
        sides = self.operand(ty, env, depth), self.operand(rng.choice([ty, *smaller]), env, depth)
        name = rng.choice(("add", "subtract", "multiply", "maximum"))
        return f"{name}({', '.join(rng.sample(sides, 2))})"

    def conditional(self, ty: Ty, env: Env, depth: int) -> str:
        condition = self.operand("bool", env, depth)
        branches = self.expr(ty, env, depth), self.expr(ty, env, depth)
        return f"(if ({condition}) {{ {branches[0]} }} else {{ {branches[1]} }})"

    def let(self, ty: Ty, env: Env, depth: int) -> str:
        other, name = self.type(), self.rng.choice(NAMES)
        kind = self.rng.randrange(3)
        annotation = f": {self.written(other, open_dims=kind == 1)}" if kind else ""
        value = self.expr(other, env, depth)
        inner = {**env, name: other} if kind != 1 else {k: t for k, t in env.items() if k != name}
        body = self.expr(ty, inner, depth)
        return f"(let %{name}{annotation} = {value}; {body})"

    def projected(self, ty: Ty, env: Env, depth: int) -> str:
        fields = [self.type() for _ in range(self.rng.randint(1, 3))]
        index = self.rng.randrange(len(fields))
        fields[index] = ty
        return f"{self.fields(tuple(fields), env, depth)}.{index}"

    def matched(self, ty: Ty, env: Env, depth: int) -> str:
        others = self.type(), self.type()
        one, other = self.rng.sample(NAMES, 2)
        value = self.fields(others, env, depth)
        if self.rng.random() < 0.3:
            inner, pattern = {**env, one: others[0]}, f"(%{one}, _)"
        else:
            inner, pattern = {**env, one: others[0], other: others[1]}, f"(%{one}, %{other})"
        body = self.expr(ty, inner, depth)
        if self.rng.random() < 0.5:
            return f"(match ({value}) {{ {pattern} => {body}, }})"
        return f"(match ({value}) {{ case {pattern} {{ {body} }} }})"

    def block(self, ty: Ty, env: Env, depth: int) -> str:
        first = self.expr(self.type(), env, depth)
        return f"({{ {first}; {self.expr(ty, env, depth)} }})"

    def called(self, ty: Ty, env: Env, depth: int) -> str:
        fitting = [(name, types) for name, (types, result) in self.globals.items() if result == ty]
        if not fitting:
            return self.expr(ty, env, depth)
        name, types = self.rng.choice(fitting)
        args = [self.expr(t, env, depth) for t in types]
        if self.faults and self.rng.random() < 0.5:
            self.faults, self.fault = 0, f"a further argument of @{name}"
            args.append("1")
        return f"@{name}({', '.join(args)})"

    def local(self, ty: Ty, env: Env, depth: int) -> str:
        """A local function that is bound and called, or passed on."""
        types = [self.type() for _ in range(self.rng.randrange(3))]
        names = list(NAMES[: len(types)])
        self.rng.shuffle(names)
        heads = [
            f"%{n}" + (f": {self.written(t)}" if self.rng.random() < 0.7 else "")
            for n, t in zip(names, types, strict=True)
        ]
        inner = {**env, **dict(zip(names, types, strict=True))}
        function = f"fn({', '.join(heads)}) {{ {self.expr(ty, inner, depth)} }}"
        args = ", ".join(self.expr(t, env, depth) for t in types)
        kind = self.rng.randrange(3)
        if kind == 0:
            return f"({function})({args})"
        if kind == 1:
            return (
                f"(if ({self.expr('bool', env, 1)}) {{ {function} }} else {{ {function} }})({args})"
            )
        return f"({function}, 1).0({args})"

    def polymorphic(self, ty: Ty, env: Env, depth: int) -> str:
        """A local function of any type, called at two types, perhaps as an argument."""
        value = self.expr(ty, env, depth)
        head = self.rng.choice(("fn<t>(%y: t) -> t", "fn(%y)"))
        if self.rng.random() < 0.3:
            return f"(let %i = {head} {{ %y }}; @compose(%i, @id)({value}))"
        other = self.expr(self.type(), env, depth)
        return f"(let %i = {head} {{ %y }}; (%i({other}), %i({value})).1)"

    def operator_as_value(self, ty: Ty, env: Env, depth: int) -> str:
        one, other = self.expr(ty, env, depth), self.expr(ty, env, depth)
        names = self.rng.sample(("add", "subtract", "multiply", "maximum"), 2)
        if self.rng.random() < 0.5:
            return f"(let %o = {names[0]}; %o({one}, {other}))"
        condition = self.expr("bool", env, 1)
        chosen = f"(if ({condition}) {{ {names[0]} }} else {{ {names[1]} }})"
        return f"{chosen}({one}, {other})"

    def recursive(self, ty: Ty, env: Env, depth: int) -> str:
        """A local function that calls itself as often as a counter says."""
        inner = {k: t for k, t in env.items() if k not in ("k", "x")}
        step = self.expr(ty, {**inner, "x": ty}, depth)
        head = f"fn(%k: int32, %x: {self.written(ty)}) -> {self.written(ty)}"
        body = f"if (%k < 1) {{ %x }} else {{ %r(%k - 1, {step}) }}"
        start = self.expr(ty, env, depth)
        return f"(let %r = {head} {{ {body} }}; %r({self.rng.choice((0, 1, 2, 9))}, {start}))"

    def prelude(self, ty: Ty, env: Env, depth: int) -> str:
        value = self.expr(ty, env, depth)
        kind = self.rng.randrange(3)
        if kind == 0:
            return f"@id({value})"
        if kind == 1:
            head = f"fn(%b: {self.written(ty)}) -> {self.written(ty)}"
            step = f"{head} {{ {self.expr(ty, {**env, 'b': ty}, depth)} }}"
            return f"@compose({step}, {head} {{ %b }})({value})"
        other = self.type()
        flipped = f"fn(%b: {self.written(other)}, %c: {self.written(ty)}) {{ %c }}"
        return f"@flip({flipped})({value}, {self.expr(other, env, depth)})"

    def listed(self, ty: Ty, env: Env, depth: int) -> str:
        """A value that is taken out of a list or an option again."""
        values = [self.expr(ty, env, depth) for _ in range(2)]
        if self.rng.random() < 0.5:
            return f"(match (Some({values[0]})) {{ Some(%d) => %d, None => {values[1]} }})"
        items = f"Cons({values[0]}, Cons({values[1]}, Nil))"
        if self.rng.random() < 0.5:
            return f"@nth({items}, {self.rng.randrange(2)})"
        step = self.expr(ty, {**env, "c": ty}, depth)
        head = f"fn(%c: {self.written(ty)}) -> {self.written(ty)}"
        return f"@hd(@map({head} {{ {step} }}, {items}))"

    def cell(self, ty: Ty, env: Env, depth: int) -> str:
        """The content of a cell that is perhaps written in between."""
        hidden = {k: t for k, t in env.items() if k != "s"}
        writes = f"ref_write(%s, {self.expr(ty, hidden, depth)})"
        if self.rng.random() < 0.5:
            writes = f"(if ({self.expr('bool', hidden, 1)}) {{ {writes} }} else {{ () }})"
        start = self.expr(ty, env, depth)
        return f"(let %s = ref({start}); {writes}; ref_read(%s))"

    def mutual(self, ty: Ty, env: Env, depth: int) -> str:
        """A field of an instance of one of two data types that mention each other."""
        three = self.expr(ty, env, depth)
        inner = self.expr(ty, {**env, "a": ty, "b": ty}, depth)
        whole = "ENil"
        if self.rng.random() < 0.5:  # what is drawn is written: the fault of a twin may be in it
            one, two = self.expr(ty, env, depth), self.expr(ty, env, depth)
            whole = f"ECons({one}, OCons({two}, ENil))"
        patterns = [f"ECons(%a, OCons(%b, ENil)) => {inner}", f"ECons(%a, _) => {three}"]
        self.rng.shuffle(patterns)
        start = f"(let %e: Even[{self.written(ty)}] = {whole}; %e)"
        return f"(match ({start}) {{ {', '.join(patterns)}, ENil => {three} }})"

    def aliased(self, ty: Ty, env: Env, depth: int) -> str:
        """The content of a cell that is written through another name, a tuple, or a closure."""
        hidden = {k: t for k, t in env.items() if k not in ("s", "u", "w")}
        start, new = self.expr(ty, hidden, depth), self.expr(ty, hidden, depth)
        write = self.rng.choice((
            f"let %u = %s; ref_write(%u, {new})",
            f"let %u = (1, (%s, ())); ref_write(%u.1.0, {new})",
            f"let %w = fn(%u: ref({self.written(ty)})) {{ ref_write(%u, {new}) }}; %w(%s)",
            f"let %u = ref(%s); ref_write(ref_read(%u), {new})",
            f"let %w = fn() {{ ref_write(%s, {new}) }}; (%w(), ref_read(%s)).0",
        ))  # fmt: skip
        return f"(let %s = ref({start}); {write}; ref_read(%s))"


def write(seed: object, *, with_data: bool = False) -> str:
    """A well-typed program, for a module with the Prelude."""
    return Texts(seed, with_data=with_data).text


def mutant(seed: object) -> tuple[str, str]:
    """A program with one fault, and the fault."""
    texts = Texts(seed, with_data=True, faulty=True)
    return texts.text, texts.fault
