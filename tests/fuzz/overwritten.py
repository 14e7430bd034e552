"""Random graph functions of equal values, some of which are overwritten.

Few operators are called on few operands, so that many values are equal; what is overwritten may
also be reached by other names. The reference evaluator is the oracle.

What is varied, each by itself:

- values: operators, kernels, literals and pure packed functions, each of which returns new memory;
- names of one value: aliases, casts, calls that return their operand, views, fields of tuples and
  of tuples in tuples, results of conditionals and of local functions; and copies that a back end
  may leave out;
- what overwrites: kernels with one output or two, of which one is new, and packed functions; whose
  operands stand in the call or are variables, as a tuple may be, or fields of tuples in the call;
- copies that are read after their original has been overwritten, or are not;
- where: in the function, in dataflow blocks, in branches, in local functions, in functions of the
  module, twice or not at all;
- whether other names of what has been overwritten are used later;
- the results: any of the values, the arguments.

All tensors are of two by two float32, which hold small integers; sizes are varied by `graphs.py`.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from relaxpy.ir.module import IRModule
from tests.ir.relax.texts import module

INFO = 'R.Tensor((2, 2), "float32")'
KERNELS = """
@kernel
def double(a: f32[2, 2]):
    for i, j in T.grid(2, 2):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            a[vi, vj] = a[vi, vj] * T.float32(2)

@kernel
def swap(a: f32[2, 2], b: f32[2, 2]):
    for i, j in T.grid(2, 2):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = a[vi, vj]
            a[vi, vj] = a[vi, vj] + T.float32(1)

@kernel
def accumulate(a: f32[2, 2], b: f32[2, 2]):
    for i, j in T.grid(2, 2):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            a[vi, vj] = a[vi, vj] + b[vi, vj]

@kernel
def plus(a: f32[2, 2], b: f32[2, 2]):
    for i, j in T.grid(2, 2):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = a[vi, vj] + T.float32(1)

@private
def itself(x: f32[2, 2]):
    return x

@private
def doubled(x: f32[2, 2]):
    y = R.call_tir_inplace(cls.double, (x,), [0], f32[2, 2])
    return y
"""
ZEROS = 'R.zeros(R.shape([2, 2]), "float32")'
NEW = (
    "R.negative({0})",
    "R.add({0}, {1})",
    "R.add({0}, {0})",
    "R.multiply({0}, {0})",
    "R.matmul({0}, {1})",
    ZEROS,
    'R.full(R.shape([2, 2]), R.const(3.0), "float32")',
    'R.const([[1.0, 2.0], [3.0, 4.0]], "float32")',
    f"R.call_tir(cls.plus, ({{0}},), out_sinfo={INFO})",
    f'R.call_pure_packed("test.overwritten.negate", {{0}}, sinfo_args={INFO})',
)
#: Other names of a value, by what the tensor `{}` is called.
NAMES = (
    "{}",
    'R.wrap_param({}, "float32")',
    "R.memory.view({}, R.shape([2, 2]))",
    "R.memory.ensure_zero_offset({})",
    "R.grad.no_grad({})",
    f"R.match_cast({{}}, {INFO})",
    "cls.itself({})",
)
COPIES = (
    "R.reshape({}, R.shape([2, 2]))",
    "R.permute_dims({}, [0, 1])",
    'R.astype({}, "float32")',
    "R.flatten({})",
)


@dataclass
class Writer:
    """Writes the lines of one function.

    Fields:
        scope        the tensors that are visible
        memory       the number of what a name refers to; names that may be of one tensor share it
        kept         the parameter that is not overwritten
        written      what has been overwritten
        stale        that of which no name is used from then on
        used_later   whether nothing becomes stale
        overwritten  results of calls in place in a dataflow block
    """

    rng: random.Random
    scope: list[str]
    used_later: bool
    kept: str = ""
    lines: list[str] = field(default_factory=list)
    indent: str = "    "
    count: Iterator[int] = field(default_factory=itertools.count)
    memory: dict[str, int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    overwritten: list[str] = field(default_factory=list)

    def inside(self) -> Writer:
        inner = replace(self, scope=[*self.scope], overwritten=[])
        inner.indent += "    "
        return inner

    def fresh(self, letter: str = "v") -> str:
        return f"{letter}{next(self.count)}"

    def put(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def bind(self, value: str, memory: int | None = None) -> str:
        """Bind a tensor, in new memory or in that of a number."""
        name = self.fresh()
        self.put(f"{name} = {value}")
        self.enter(name, memory)
        return name

    def enter(self, name: str, memory: int | None = None) -> None:
        self.memory[name] = next(self.count) if memory is None else memory
        self.scope.append(name)

    def known(self) -> list[str]:
        """The tensors that may be used."""
        return [name for name in self.scope if self.memory[name] not in self.stale]

    def tensor(self) -> str:
        """One of the last tensors, or of the parameters, or any."""
        known = self.known() or [self.bind(ZEROS)]
        return self.rng.choice([*known[-3:], *known[:2], *known])

    def step(self, depth: int = 0, *, dataflow: bool = False) -> None:
        kinds = ["new"] * 5 + ["again"] * 4 + ["name"] * 4 + ["copy", "tuple"] + ["overwrite"] * 2
        if not dataflow and depth < 2:
            kinds += ["dataflow", "dataflow", "branch", "local"]
        match self.rng.choice(kinds):
            case "new":
                self.new()
            case "again":
                self.again(dataflow=dataflow)
            case "name":
                self.name(self.tensor())
            case "copy":
                self.copy(dataflow=dataflow)
            case "tuple":
                self.tuple()
            case "overwrite":
                self.overwrite(self.tensor(), dataflow=dataflow)
            case "dataflow":
                self.dataflow(depth)
            case "branch":
                self.branch(depth)
            case "local":
                self.local(depth)

    def new(self) -> str:
        return self.bind(self.rng.choice(NEW).format(self.tensor(), self.tensor()))

    def again(self, *, dataflow: bool) -> None:
        """A value that has been bound already; one of the two is overwritten, the other read."""
        words = {text.partition("(")[0] for text in NEW}
        pairs = [line.strip().split(" = ", 1) for line in self.lines if " = " in line]
        equal = [(x, v) for x, v in pairs if v.partition("(")[0] in words and self.is_known(v)]
        if not equal:
            return
        first, value = self.rng.choice(equal)
        both = [self.bind(value), *({first} & {*self.known()})]
        if self.rng.random() < 0.7:
            self.rng.shuffle(both)
            one = both[0] if self.rng.random() < 0.5 else self.name(both[0])
            self.overwrite(one, dataflow=dataflow)
            if both[-1] in self.known():
                self.bind(f"R.negative({both[-1]})")

    def is_known(self, text: str) -> bool:
        names = set(re.findall(r"\w+", text)) & self.memory.keys()
        return names <= {*self.known()}

    def name(self, x: str) -> str:
        return self.bind(self.rng.choice(NAMES).format(x), self.memory[x])

    def copy(self, *, dataflow: bool) -> None:
        """A copy, which may be read after the original has been overwritten."""
        x = self.tensor()
        value = self.rng.choice(COPIES).format(x)
        copy = self.bind(f"R.reshape({value}, R.shape([2, 2]))")
        if self.rng.random() < 0.5:
            self.overwrite(x, dataflow=dataflow)
            self.bind(f"R.add({copy}, {copy})")

    def operands(self, *names: str) -> str:
        """The operands of a call, maybe as a variable, or as a field of a tuple in the call."""
        text = f"({', '.join(names)},)"
        match self.rng.randrange(6):
            case 0:
                whole = self.fresh("t")
                self.put(f"{whole} = {text}")
                return whole
            case 1:
                return f"({', '.join(f'(({name},), {names[0]})[0][0]' for name in names)},)"
            case _:
                return text

    def tuple(self) -> None:
        x, y = self.tensor(), self.tensor()
        whole = self.fresh("t")
        if self.rng.random() < 0.5:
            self.put(f"{whole} = ({x}, ({y}, {x}))")
            inner = self.fresh("t")
            self.put(f"{inner} = {whole}[1]")
            self.bind(f"{inner}[0]", self.memory[y])
        else:
            self.put(f"{whole} = ({y}, {x})")
            self.bind(f"{whole}[1]", self.memory[x])

    def is_kept(self, x: str) -> bool:
        return self.memory[x] == self.memory.get(self.kept)

    def write(self, x: str) -> None:
        """Note that a tensor has been overwritten."""
        self.written.add(self.memory[x])
        if not self.used_later:
            self.stale.add(self.memory[x])

    def overwrite(self, x: str, *, dataflow: bool) -> None:
        """A call that writes into a tensor."""
        if self.is_kept(x):
            x = self.new()
        if self.rng.random() < 0.2 and not dataflow:
            self.put(f'_ = R.call_packed("test.overwritten.increase", {x})')
            self.written.add(self.memory[x])
            return
        other = self.tensor()
        if self.rng.random() < 0.4 and self.memory[other] != self.memory[x]:
            operands = self.operands(x, other)
            call = f"R.call_tir_inplace(cls.accumulate, {operands}, [0], {INFO})"
        elif self.rng.random() < 0.3:
            whole = self.fresh("t")
            operands = self.operands(x)
            call = f"R.call_tir_inplace(cls.swap, {operands}, [0, -1], [{INFO}, {INFO}])"
            self.put(f"{whole} = {call}")
            self.bind(f"{whole}[1]")
            call = f"{whole}[0]"
        elif self.rng.random() < 0.3:
            call = f'R.call_inplace_packed("test.overwritten.increase", {x}, inplace_indices=[0]'
            call += f", sinfo_args={INFO})"
        else:
            call = f"R.call_tir_inplace(cls.double, {self.operands(x)}, [0], {INFO})"
        self.write(x)
        if not self.used_later:
            self.bind(call)
            return
        result = self.bind(call, self.memory[x])
        if dataflow:  # a call whose result is not used may be left out
            self.overwritten.append(result)
        else:
            self.see(result)

    def see(self, name: str) -> None:
        self.put(f'_ = R.call_packed("test.overwritten.see", {name})')

    def dataflow(self, depth: int) -> None:
        self.put("with R.dataflow():")
        inner = self.inside()
        inner.new()
        for _ in range(self.rng.randint(1, 6)):
            inner.step(depth + 1, dataflow=True)
        new = inner.scope[len(self.scope) :]
        outputs = sorted({*self.rng.choices(new, k=2), *inner.overwritten})
        inner.put(f"R.output({', '.join(outputs)})")
        self.scope += outputs
        for name in inner.overwritten:
            self.see(name)

    def branch(self, depth: int) -> None:
        result = self.fresh()
        memories = []
        for word in ("if c:", "else:"):
            self.put(word)
            inner = self.inside()
            for _ in range(self.rng.randint(0, 3)):
                inner.step(depth + 1)
            last = inner.tensor()
            memories.append(self.memory[last])
            inner.put(f"{result} = {last}")
        self.enter(result, self.merge(*memories))

    def merge(self, one: int, other: int) -> int:
        """The number of what either of two tensors may be from now on."""
        self.memory.update((n, one) for n, memory in self.memory.items() if memory == other)
        for numbers in (self.stale, self.written):
            numbers |= {one} if other in numbers else set()
        return one

    def local(self, depth: int) -> None:
        """A local function, which is called once or twice; it may overwrite what it captures."""
        func, param = self.fresh("g"), self.fresh("p")
        self.put("@R.function(pure=False)")
        self.put(f"def {func}({param}: {INFO}) -> {INFO}:")
        inner = self.inside()
        inner.enter(param)
        for _ in range(self.rng.randint(1, 3)):
            inner.step(depth + 1)
        result = inner.tensor()
        inner.put(f"return {result}")
        for _ in range(self.rng.randint(1, 2) if self.used_later else 1):
            own, returned = self.memory[param], self.memory[result]
            x = self.tensor()
            if own in self.written and self.is_kept(x):
                x = self.new()
            if own in self.written:
                self.write(x)
            self.bind(
                f"{func}({x})", self.merge(self.memory[x], own) if returned == own else returned
            )


def text(seed: str, kept: str = "") -> str:
    """The text of the program of this seed, for `tests.ir.relax.texts.module`."""
    rng = random.Random(seed)
    writer = Writer(rng, [], rng.random() < 0.5, kept)
    for name in ("x", "y"):
        writer.enter(name)
    for _ in range(rng.randint(3, 9)):
        writer.step()
    results = {writer.tensor() for _ in range(rng.randint(1, 4))}
    body = "\n".join(writer.lines)
    return (
        f"{KERNELS}\n@impure\ndef main(x: f32[2, 2], c: bool, y: f32[2, 2]):\n{body}\n"
        f"    return ({', '.join(sorted(results))},)\n"
    )


def write(seed: str, kept: str = "") -> IRModule:
    """The program of this seed, which does not overwrite its parameter `kept`."""
    return module(text(seed, kept))


def arguments(seed: str) -> list[np.ndarray]:
    """Two arrays, and a condition between them."""
    rng = np.random.default_rng([*seed.encode()])
    x, y = (rng.integers(-2, 3, (2, 2)).astype(np.float32) for _ in range(2))
    return [x, np.array(rng.random() < 0.5), y]
