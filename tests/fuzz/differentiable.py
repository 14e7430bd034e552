"""Random differentiable programs, whose target is a float of rank 0.

What is varied: smooth operators on elements, with and without broadcasting; reductions, softmax and
running sums along axes; matrix products of several ranks; operators on shapes, joins, splits and
slices; sizes that are numbers or shape variables; casts, those that bind new shape variables among
them; parameters whose shape is unknown, or that hold integers; tuples, nested ones, as parameters
and inside; aliases; several uses of each value, or none; one result or several; checkpoints at any
values, paired or not; and which variables the gradients are by.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Shape: TypeAlias = tuple[str, ...]
Kind: TypeAlias = "Shape | list[Kind]"
"""The sizes of a tensor, as written; or the kinds of the fields of a tuple, in a list."""

SIZES = {"n": 3, "m": 2}
UNARY = (
    "R.sin({0})",
    "R.cos({0})",
    "R.tanh({0})",
    "R.sigmoid({0})",
    "R.atan({0})",
    "R.erf({0})",
    "R.negative({0})",
    "R.exp(R.tanh({0}))",
    "R.log(R.add(R.square({0}), R.const(1, 'float64')))",
    "R.sqrt(R.add(R.square({0}), R.const(1, 'float64')))",
    "R.nn.silu({0})",
    "R.nn.gelu({0})",
    "R.multiply({0}, R.const(0.5, 'float64'))",
    "R.astype({0}, 'float64')",
    "R.clip({0}, -0.75, 0.75)",
    "R.where(R.greater({0}, R.const(0.1, 'float64')), {0}, R.sin({0}))",
)
BINARY = (
    "R.add({0}, {1})",
    "R.subtract({0}, {1})",
    "R.multiply({0}, {1})",
    "R.divide({0}, R.add(R.square({1}), R.const(1, 'float64')))",
    "R.power(R.exp(R.tanh({0})), R.tanh({1}))",
    "R.where(R.less(R.sin({0}), R.cos({1})), {1}, {0})",
)


@dataclass(frozen=True)
class Program:
    """A module with a function `main`.

    `required` are the names of the variables that the gradients are by, parameters or not; None for
    all parameters.
    """

    header: str
    params: dict[str, tuple[str, Kind | None]]
    """The annotation of each parameter and its kind; None for integers."""
    lines: tuple[tuple[str, str], ...]
    kinds: dict[str, Kind]
    results: tuple[str, ...]
    target: int
    required: tuple[str, ...] | None

    def text(self, *, checkpoints: bool = True, added: str = "") -> str:
        """The text of the module; with a parameter `delta` that is added to the variable `added`.

        Without `checkpoints` there are aliases in their place.
        """
        params = [f"{name}: {annotation}" for name, (annotation, _) in self.params.items()]
        if added:
            params.append(f"delta: {_tensor(self.kinds[added])}")
        lines = []
        for name, value in self.lines:
            if not checkpoints and value.startswith("R.grad."):
                value = value.partition("(")[2].rstrip(")")
            if name == added:
                value = f"R.add({value}, delta)"
            lines.append(f"            {name} = {value}\n")
        results = ", ".join(self.results)
        return (
            "from relaxpy.script import ir as I, relax as R, tir as T\n\n"
            "@I.ir_module\nclass Module:\n    @R.function\n"
            f"    def main({', '.join(params)}):\n{self.header}"
            f"        with R.dataflow():\n{''.join(lines)}"
            f"            R.output({results})\n"
            f"        return {results}\n"
        )

    def arguments(self, seed: object) -> dict[str, Any]:
        """Values of the parameters, by name."""
        numbers = np.random.default_rng(random.Random(str(seed)).getrandbits(64))
        return {
            name: np.array([1, 0, 1]) if kind is None else draw(kind, numbers)
            for name, (_, kind) in self.params.items()
        }


def draw(kind: Kind, numbers: np.random.Generator) -> Any:
    """A value of this kind."""
    if isinstance(kind, list):
        return tuple(draw(each, numbers) for each in kind)
    return np.asarray(numbers.standard_normal([int(eval(dim, SIZES.copy())) for dim in kind]))


def write(seed: object) -> Program:
    """The program of this seed."""
    rng = random.Random(str(seed))
    source = _Source(rng)
    for _ in range(rng.randint(1, 4)):
        source.parameter()
    for _ in range(rng.randint(2, 14)):
        rng.choice(STEPS)(source)
        if rng.random() < source.checkpoints:
            source.checkpoint()
    return source.program()


def _tensor(kind: Kind) -> str:
    dims = "".join(f"{d if d.isdigit() else repr(d)}, " for d in kind if isinstance(d, str))
    return f"R.Tensor(({dims}), 'float64')"


def _annotation(kind: Kind) -> str:
    if isinstance(kind, list):
        return f"R.Tuple({', '.join(map(_annotation, kind))})"
    return _tensor(kind)


@dataclass
class _Source:
    """A program under construction; `checkpoints` is how often it has one."""

    rng: random.Random
    checkpoints: float = 0
    params: dict[str, tuple[str, Kind | None]] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)
    kinds: dict[str, Kind] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoints = self.rng.choice([0, 0.2, 0.6])

    def parameter(self) -> None:
        name, rng = f"p{len(self.params)}", self.rng
        number = rng.random()
        if number < 0.1:
            self.params[name] = ("R.Tensor((3,), 'int64')", None)
            return
        shape = self.new_shape()
        if number < 0.25:
            self.params[name] = (f"R.Tensor('float64', ndim={len(shape)})", shape)
            self.cast(name, shape)
            return
        kind: Kind = shape
        if number < 0.4:
            kind = [shape, self.new_shape()] if number < 0.35 else [[self.new_shape()], shape]
        self.params[name] = (_annotation(kind), kind)
        self.kinds[name] = kind
        if isinstance(kind, list):
            item = self.bind(f"{name}[{len(kind) - 1}]", kind[-1])
            assert self.kinds[item] == kind[-1]

    def new_shape(self) -> Shape:
        return tuple(
            self.rng.choice(["n", "m", "2", "1", "4"]) for _ in range(self.rng.randint(0, 3))
        )

    def bind(self, value: str, kind: Kind) -> str:
        """Bind a value to a new variable."""
        name = f"v{len(self.lines)}"
        self.lines.append((name, value))
        self.kinds[name] = kind
        return name

    def pick(self) -> tuple[str, Shape]:
        """A tensor, often a late one, with its shape."""
        names = [name for name, kind in self.kinds.items() if isinstance(kind, tuple)]
        if not names:
            return self.bind("R.const(0.7, 'float64')", ()), ()
        name = self.rng.choice(names[-4:] if self.rng.random() < 0.6 else names)
        kind = self.kinds[name]
        assert isinstance(kind, tuple)
        return name, kind

    def pick_of(self, *ranks: int) -> tuple[str, Shape]:
        """A tensor of one of these ranks."""
        for _ in range(10):
            name, shape = self.pick()
            if len(shape) in ranks:
                return name, shape
        rank = ranks[0]
        return self.bind(f"R.full(({'2, ' * rank}), R.const(0.3, 'float64'))", ("2",) * rank), (
            "2",
        ) * rank

    def checkpoint(self) -> None:
        name, _ = self.pick()
        if self.rng.random() < 0.2:
            name, *_ = self.rng.choices(list(self.kinds))
        kind = self.kinds[name]
        self.bind(f"R.grad.{self.rng.choice(['start', 'end'])}_checkpoint({name})", kind)

    def cast(self, name: str, shape: Shape) -> None:
        new = tuple(
            dim if dim.isdigit() or self.rng.random() < 0.5 else self.symbol(dim) for dim in shape
        )
        if not set(new) & set(SIZES):
            dims = "".join(f"{dim}, " for dim in new)
            self.bind(f"R.match_cast({name}, R.Tensor(({dims}), 'float64'))", new)
        else:
            self.cast(name, shape)

    def symbol(self, dim: str) -> str:
        name = f"{dim}{len(self.sizes)}_"
        self.sizes[name] = dim
        return name

    def program(self) -> Program:
        rng = self.rng
        terms = [f"R.sum(R.sin({self.pick()[0]}))" for _ in range(rng.randint(1, 3))]
        terms += [f"R.mean(R.square({self.pick()[0]}))"] * rng.randint(0, 1)
        value = terms[0]
        for term in terms[1:]:
            value = f"R.add({value}, {term})"
        target = self.bind(value, ())
        if rng.random() < 0.2:
            target = self.bind(f"R.grad.end_checkpoint({target})", ())
        names = {name for name, _ in self.lines}
        others = [n for n in self.kinds if n in names and n != target and rng.random() < 0.1]
        results = (target, *others) if rng.random() < 0.5 else (*others, target)
        floats = [name for name, (_, kind) in self.params.items() if kind is not None]
        inside = [name for name in self.kinds if name in names]
        required = None
        if len(floats) < len(self.params) or rng.random() < 0.5:
            required = tuple(rng.sample(floats, rng.randint(0, len(floats))))
            required += tuple(rng.sample(inside, min(len(inside), rng.randint(0, 3))))
        symbols = [*SIZES, *self.sizes]
        used = "".join(annotation for annotation, _ in self.params.values())
        symbols = [s for s in symbols if s in self.sizes or f"'{s}'" in used]
        return Program(
            "".join(f"        {name} = T.int64()\n" for name in symbols),
            self.params,
            tuple(self.lines),
            self.kinds,
            results,
            results.index(target),
            required,
        )


def _unary(s: _Source) -> None:
    name, shape = s.pick()
    s.bind(s.rng.choice(UNARY).format(name), shape)


def _binary(s: _Source) -> None:
    (a, first), (b, second) = s.pick(), s.pick()
    shape = _broadcast(first, second)
    if shape is None:
        b, shape = s.bind(f"R.sum({b})", ()), first
    s.bind(s.rng.choice(BINARY).format(a, b), shape)


def _broadcast(first: Shape, second: Shape) -> Shape | None:
    rank = max(len(first), len(second))
    out = []
    for a, b in zip(_padded(first, rank), _padded(second, rank), strict=True):
        if a != b and "1" not in (a, b):
            return None
        out.append(b if a == "1" else a)
    return tuple(out)


def _padded(shape: Shape, rank: int) -> Shape:
    return ("1",) * (rank - len(shape)) + shape


def _reduction(s: _Source) -> None:
    name, shape = s.pick()
    operator = s.rng.choice(["sum", "mean", "variance", "prod"])
    keepdims = s.rng.random() < 0.5
    axes = [k for k in range(len(shape)) if s.rng.random() < 0.5]
    reduced = axes or range(len(shape))
    kept = tuple(d for k, d in enumerate(shape) if k not in reduced)
    if keepdims:
        kept = tuple("1" if k in reduced else d for k, d in enumerate(shape))
    axis = [k - s.rng.choice([0, len(shape)]) for k in axes]
    s.bind(f"R.{operator}({name}, {axis or None}, keepdims={keepdims})", kept)


def _along_axis(s: _Source) -> None:
    name, shape = s.pick_of(1, 2, 3)
    axis = s.rng.randrange(-len(shape), len(shape))
    operator = s.rng.choice(["nn.softmax", "nn.log_softmax", "cumsum", "cumprod", "flip"])
    s.bind(f"R.{operator}({name}, {axis})", shape)


def _matmul(s: _Source) -> None:
    (a, first), (b, second) = s.pick_of(2, 1, 3), s.pick_of(2, 1, 3)
    if first[-1] != second[-2:][0]:
        b = s.bind(f"R.permute_dims({a})", first[::-1])
        second = first[::-1]
    batch = _broadcast(first[:-2], second[:-2])
    if batch is not None and first[-1] == second[-2:][0]:
        rows = first[-2:-1]
        columns = second[-1:] if len(second) > 1 else ()
        s.bind(f"R.matmul({a}, {b})", (*batch, *rows, *columns))


def _permute(s: _Source) -> None:
    name, shape = s.pick_of(2, 3)
    axes = s.rng.sample(range(len(shape)), len(shape))
    if s.rng.random() < 0.3:
        s.bind(f"R.permute_dims({name})", shape[::-1])
    else:
        s.bind(f"R.permute_dims({name}, {axes})", tuple(shape[k] for k in axes))


def _shapes(s: _Source) -> None:
    name, shape = s.pick()
    axis = s.rng.randint(0, len(shape))
    expanded = (*shape[:axis], "1", *shape[axis:])
    kind = s.rng.randrange(4)
    if kind == 0 and len(shape) < 4:
        s.bind(f"R.expand_dims({name}, {axis})", expanded)
    elif kind == 1:
        ones = [k for k, dim in enumerate(shape) if dim == "1"]
        s.bind(f"R.squeeze({name}, {ones})", tuple(dim for dim in shape if dim != "1"))
    elif kind == 2 and len(shape) > 1:
        dims = "".join(f"{dim}, " for dim in shape[::-1])
        s.bind(f"R.reshape({name}, ({dims}))", shape[::-1])
    elif len(shape) < 4:
        size = s.rng.choice(["2", *(dim for dim in shape if dim != "1")])
        wide = tuple("3" if dim == "1" else dim for dim in shape)
        dims = "".join(f"{dim}, " for dim in (size, *wide))
        s.bind(f"R.broadcast_to({name}, ({dims}))", (size, *wide))


def _join(s: _Source) -> None:
    name, shape = s.pick_of(1, 2, 3)
    alike = [n for n, kind in s.kinds.items() if kind == shape]
    other = s.rng.choice(alike)
    if s.rng.random() < 0.4:
        s.bind(f"R.stack(({name}, {other}), axis=0)", ("2", *shape))
        return
    axis = s.rng.choice([k for k, dim in enumerate(shape)])
    if shape[axis].isdigit():
        long = (*shape[:axis], str(2 * int(shape[axis])), *shape[axis + 1 :])
        s.bind(f"R.concat(({name}, {other}), axis={axis})", long)


def _split(s: _Source) -> None:
    name, shape = s.pick_of(1, 2, 3)
    axes = [k for k, dim in enumerate(shape) if dim in ("2", "4", "8")]
    if not axes:
        return
    axis = s.rng.choice(axes)
    size = int(shape[axis])
    halves = (*shape[:axis], str(size // 2), *shape[axis + 1 :])
    pair = s.bind(f"R.split({name}, 2, axis={axis})", [halves, halves])
    s.bind(f"{pair}[{s.rng.randint(0, 1)}]", halves)


def _select(s: _Source) -> None:
    name, shape = s.pick_of(1, 2, 3)
    axes = [k for k, dim in enumerate(shape) if dim in ("2", "4", "8", "n", "m")]
    if not axes:
        return
    axis = s.rng.choice(axes)
    if s.rng.random() < 0.5:
        one = (*shape[:axis], "1", *shape[axis + 1 :])
        s.bind(f"R.strided_slice({name}, [{axis}], [1], [2])", one)
        return
    three = (*shape[:axis], "3", *shape[axis + 1 :])
    integers = [n for n, (_, kind) in s.params.items() if kind is None]
    index = s.rng.choice([*integers, "R.const([0, 1, 1], 'int64')"])
    s.bind(f"R.take({name}, {index}, axis={axis})", three)


def _tuples(s: _Source) -> None:
    names = s.rng.choices(list(s.kinds) or [s.pick()[0]], k=s.rng.randint(1, 3))
    kinds = [s.kinds[name] for name in names]
    outer = s.bind(f"({', '.join(names)},)", list(kinds))
    while s.rng.random() < 0.8:
        kind = s.kinds[outer]
        if not isinstance(kind, list):
            break
        index = s.rng.randrange(len(kind))
        outer = s.bind(f"{outer}[{index}]", kind[index])


def _item(s: _Source) -> None:
    tuples = [(name, kind) for name, kind in s.kinds.items() if isinstance(kind, list)]
    if tuples:
        name, kind = s.rng.choice(tuples)
        index = s.rng.randrange(len(kind))
        s.bind(f"{name}[{index}]", kind[index])


def _alias(s: _Source) -> None:
    if s.kinds:
        name = s.rng.choice(list(s.kinds))
        s.bind(name, s.kinds[name])


def _cast(s: _Source) -> None:
    s.cast(*s.pick())


STEPS = (
    *(_unary,) * 3,
    *(_binary,) * 4,
    _reduction,
    _along_axis,
    *(_matmul,) * 2,
    _permute,
    _shapes,
    _join,
    _split,
    _select,
    _tuples,
    _item,
    _alias,
    _cast,
)
