"""Executes a kernel in the order of its text, and records the reads and the writer of each value.

A small interpreter of TIR over Python's numbers. It shares no code with the kernel compiler.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from relaxpy.ir import DataType, Op
from relaxpy.ir.core.traverse import map_children, walk
from relaxpy.ir.tir import expr as e, stmt as s
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.prim_func import PrimFunc

Cell: TypeAlias = tuple[str, int]
"""An element in the text: the buffer that owns the memory, and the position in it."""
Token: TypeAlias = object
"""The writer of an element: None, the number of a store, or an accumulation as a tuple."""
Env: TypeAlias = dict[e.Var, Any]


@dataclass(frozen=True)
class Bound:
    """The value of a variable, and the elements read for it."""

    value: Any
    reads: Mapping[Cell, set[Token]]


Read: TypeAlias = Callable[["BufferLoad | Bound", Env], Any]


class UnsupportedError(Exception):
    """The program contains a construct that cannot be replayed."""


# ---- values


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    e.Add: lambda a, b: a + b,
    e.Sub: lambda a, b: a - b,
    e.Mul: lambda a, b: a * b,
    e.Min: min,
    e.Max: max,
    e.FloorDiv: lambda a, b: a // b,
    e.FloorMod: lambda a, b: a % b,
    e.EQ: lambda a, b: a == b,
    e.NE: lambda a, b: a != b,
    e.LT: lambda a, b: a < b,
    e.LE: lambda a, b: a <= b,
    e.GT: lambda a, b: a > b,
    e.GE: lambda a, b: a >= b,
}


def wrapped(value: Any, dtype: DataType) -> Any:
    """`value` converted to `dtype`."""
    if dtype.is_bool:
        return bool(value)
    if not dtype.is_int:
        return float(value)
    number = int(value) % (1 << dtype.bits)
    return number - (1 << dtype.bits) * (dtype.family == "int" and number >> (dtype.bits - 1))


def evaluate(expr: e.PrimExpr, env: Env, read: Read) -> Any:
    """The value of `expr`; only the branches that conditions choose are evaluated."""

    def go(node: e.PrimExpr) -> Any:
        match node:
            case e.IntImm(value=value) | e.FloatImm(value=value):
                return value
            case e.Var():
                value = env[node]
                return read(value, env) if isinstance(value, Bound) else value
            case BufferLoad():
                return read(node, env)
            case e.Or(a=a, b=b):
                return go(a) or go(b)
            case e.And(a=a, b=b):
                return go(a) and go(b)
            case e.Not(a=a):
                return not go(a)
            case e.Select(condition=test, true_value=yes, false_value=no):
                return go(yes) if go(test) else go(no)
            case e.Call(op=Op(name="tir.if_then_else"), args=(test, yes, no)):
                return go(yes) if go(test) else go(no)
            case e.Call(op=Op(name="tir.likely"), args=(inner,)):
                return go(inner)
            case e.Cast(value=inner, dtype=dtype):
                return wrapped(go(inner), dtype)
            case e.Call(args=args) if isinstance(node.op, Op):
                return wrapped(sum(map(go, args)), node.dtype)  # any function of the arguments
            case e.Div(a=a, b=b) if node.dtype.is_float:
                below = go(b)
                return go(a) / below if below else math.inf
            case e.Let(var=var, value=value, body=body):
                env[var] = go(value)
                return go(body)
            case e.BinaryOpExpr(a=a, b=b) if type(node) in _ARITHMETIC:
                return wrapped(_ARITHMETIC[type(node)](go(a), go(b)), node.dtype)
            case _:
                raise UnsupportedError(type(node).__name__)

    return go(expr)


# ---- memory


@dataclass(frozen=True)
class Layout:
    """The positions of the elements of a buffer in the memory of `root`."""

    root: str
    offset: int
    strides: tuple[int, ...]

    def cell(self, indices: tuple[int, ...]) -> Cell:
        return self.root, self.offset + sum(map(int.__mul__, indices, self.strides))


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))


def sizes_of(func: PrimFunc, args: tuple[Any, ...]) -> Env:
    """The values of variables in shapes of arguments, and of scalar arguments."""
    env: Env = {}
    for param, arg in zip(func.params, args, strict=True):
        buffer = func.buffer_of(param)
        if buffer is None:
            env[param] = arg
            continue
        for size, extent in zip(buffer.shape, arg.shape, strict=True):
            if isinstance(size, e.Var):
                env[size] = extent
    return env


# ---- the text


@dataclass
class Stored:
    """One store: its statement and iteration, the element, and the writers of the elements it read.

    `sources` are the other elements that its value and indices read. An accumulation has a `kind`,
    and `before` is the writer of the previous value. `value` is what the element becomes.
    """

    number: int
    position: str
    loops: Mapping[e.Var, int]
    cell: Cell
    sources: frozenset[Cell]
    reads: Mapping[Cell, set[Token]]
    kind: str | None
    before: Token
    value: Any

    def __str__(self) -> str:
        name, where = self.cell
        iteration = ", ".join(f"{var.name}={value}" for var, value in self.loops.items())
        return f"{self.position} at {iteration or 'once'} (stores {name}[{where}])"


def position_of(store: Any) -> str:
    """The position of a store, by which the text and the plan identify it."""
    if store.span is None:
        raise UnsupportedError("a store without a position")
    return f"line {store.span.line}, column {store.span.column}"


def accumulated(value: e.PrimExpr, own: BufferLoad) -> str | None:
    """The operation that combines `own` with the rest of `value`, if that does not read it."""
    kinds = {e.Add: "+", e.Sub: "+", e.Mul: "*", e.Min: "min", e.Max: "max"}
    kind = kinds.get(type(value))
    sides = [value]
    while len(sides) == 1 and kind == kinds.get(type(sides[0])) and kind is not None:
        [inner] = sides
        loads = [any(node is own for node in walk(side)) for side in (inner.a, inner.b)]
        if all(loads) or not any(loads) or (isinstance(inner, e.Sub) and loads[1]):
            return None
        chosen = inner.a if loads[0] else inner.b
        if chosen is own:
            return kind
        sides = [chosen]
    return None


def chosen(value: e.PrimExpr, env: Env, read: Read) -> e.PrimExpr:
    """`value` with the operands of choices that variables of loops alone decide, in their place.

    A compiler that knows the range of a loop may have nothing else of the choice.
    """
    match value:
        case BufferLoad():
            return value
        case (
            e.Select(condition=test, true_value=yes, false_value=no)
            | e.Call(op=Op(name="tir.if_then_else"), args=(test, yes, no))
        ):
            nodes = list(walk(test))
            loads = any(isinstance(node, BufferLoad | e.Call) for node in nodes)
            known = all(isinstance(env.get(n), int) for n in nodes if isinstance(n, e.Var))
            if known and not loads:
                return chosen(yes if evaluate(test, env, read) else no, env, read)
        case _:
            pass
    return map_children(
        lambda child: chosen(child, env, read) if isinstance(child, e.PrimExpr) else child, value
    )


def accumulation(kind: str, before: Token, number: int) -> Token:
    """`before` with store `number` accumulated; the order of several does not matter."""
    match before:
        case (str() as other, base, frozenset() as numbers) if other == kind:
            return kind, base, numbers | {number}
        case _:
            return kind, before, frozenset({number})


@dataclass
class TextRun:
    """Executes a function in the order of its text and records each store."""

    func: PrimFunc
    args: tuple[Any, ...]
    stores: list[Stored] = field(default_factory=list)
    values: dict[tuple[Cell, int], Any] = field(default_factory=dict)
    tokens: dict[tuple[Cell, int], Token] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.env = sizes_of(self.func, self.args)
        self.layouts: dict[Buffer, Layout] = {}
        self.roots: dict[e.Var, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.versions: defaultdict[str, int] = defaultdict(int)
        self.loops: list[e.Var] = []
        self.conditions: list[dict[Cell, set[Token]]] = []
        self.fresh = count(1)
        for param, arg in zip(self.func.params, self.args, strict=True):
            buffer = self.func.buffer_of(param)
            if buffer is not None:
                self.own(buffer)
                self.roots[param] = buffer.name
                for where, value in enumerate(arg.reshape(-1).tolist()):
                    self.values[(buffer.name, where), 0] = value
        self.initial = dict(self.values)
        self.run(self.func.body)

    # -- memory

    def own(self, buffer: Buffer) -> None:
        if buffer.strides or not all(isinstance(self.number(d), int) for d in buffer.shape):
            raise UnsupportedError("strides")
        if self.shapes.get(buffer.name) and buffer not in self.layouts:
            raise UnsupportedError("two buffers of one name")
        shape = tuple(map(self.number, buffer.shape))
        self.shapes[buffer.name] = shape
        self.layouts[buffer] = Layout(buffer.name, 0, compact(shape))
        self.roots[buffer.data] = buffer.name

    def layout(self, buffer: Buffer) -> Layout:
        if buffer not in self.layouts:
            if buffer.data not in self.roots:
                raise UnsupportedError("memory without a declaration")
            shape = tuple(map(self.number, buffer.shape))
            strides = tuple(map(self.number, buffer.strides)) or compact(shape)
            root, offset = self.roots[buffer.data], self.number(buffer.elem_offset)
            return Layout(root, offset, strides)
        return self.layouts[buffer]

    def number(self, expr: Any) -> int:
        value = evaluate(expr, self.env, self.reader({}))
        assert isinstance(value, int)
        return value

    def reader(self, reads: dict[Cell, set[Token]], skipped: BufferLoad | None = None) -> Read:
        """A function that loads elements and records them in `reads`, except for one load."""

        def read(load: BufferLoad | Bound, env: Env) -> Any:
            if isinstance(load, Bound):
                for cell, tokens in load.reads.items():
                    reads.setdefault(cell, set()).update(tokens)
                return load.value
            indices = tuple(evaluate(i, env, read) for i in load.indices)
            cell = self.layout(load.buffer).cell(indices)
            key = cell, self.versions[cell[0]]
            if load is not skipped:
                reads.setdefault(cell, set()).add(self.tokens.get(key))
            return self.values.get(key, 0)

        return read

    # -- statements

    def run(self, stmt: Any) -> None:
        match stmt:
            case s.SeqStmt(seq=seq):
                for node in seq:
                    self.run(node)
            case s.For(loop_var=var, min=low, extent=extent, body=body):
                reads: dict[Cell, set[Token]] = {}
                first = evaluate(low, self.env, self.reader(reads))
                iterations = evaluate(extent, self.env, self.reader(reads))
                self.conditions.append(reads)
                self.loops.append(var)
                for n in range(first, first + iterations):
                    self.env[var] = n
                    self.run(body)
                self.loops.pop()
                self.conditions.pop()
            case s.IfThenElse(condition=condition, then_case=yes, else_case=no):
                with_reads: dict[Cell, set[Token]] = {}
                holds = evaluate(condition, self.env, self.reader(with_reads))
                self.conditions.append(with_reads)
                if holds or no is not None:
                    self.run(yes if holds else no)
                self.conditions.pop()
            case s.While(condition=condition, body=body):
                cells: dict[Cell, set[Token]] = {}
                self.conditions.append(cells)
                for _ in range(1000):
                    if not evaluate(condition, self.env, self.reader(cells)):
                        break
                    self.run(body)
                else:
                    raise UnsupportedError("an endless loop")
                self.conditions.pop()
            case s.LetStmt(var=var, value=value, body=body):
                let_reads: dict[Cell, set[Token]] = {}
                bound = evaluate(value, self.env, self.reader(let_reads))
                self.env[var] = Bound(bound, let_reads)
                self.run(body)
            case s.BlockRealize():
                self.block(stmt)
            case s.Block():
                self.block(s.BlockRealize((), True, stmt))
            case s.DeclBuffer(body=body) | s.AttrStmt(body=body) | s.AssertStmt(body=body):
                self.run(body)
            case s.Evaluate(value=e.IntImm()):
                pass
            case s.BufferStore(predicate=None):
                self.store(stmt)
            case _:
                raise UnsupportedError(type(stmt).__name__)

    def block(self, realize: s.BlockRealize) -> None:
        block = realize.block
        is_first = True
        for var, bound in zip(block.iter_vars, realize.iter_values, strict=True):
            self.env[var.var] = self.number(bound)
            if var.iter_type == e.IterVarKind.CommReduce:
                is_first &= self.env[var.var] == self.number(var.dom.min)
        reads: dict[Cell, set[Token]] = {}
        if not evaluate(realize.predicate, self.env, self.reader(reads)):
            return
        for buffer in block.alloc_buffers:
            self.own(buffer)
            self.versions[buffer.name] = next(self.fresh)
        for match in block.match_buffers:
            source = self.layout(match.source.buffer)
            starts = tuple(self.number(r.min) for r in match.source.region)
            offset = source.cell(starts)[1]
            last = source.strides[len(source.strides) - match.buffer.ndim :]
            if match.buffer.strides and any(isinstance(t, e.Var) for t in match.buffer.strides):
                raise UnsupportedError("strides of a matched region")
            self.layouts[match.buffer] = Layout(source.root, offset, last)
        self.conditions.append(reads)
        if block.init is not None and is_first:
            self.run(block.init)
        self.run(block.body)
        self.conditions.pop()

    def store(self, store: s.BufferStore) -> None:
        reads: dict[Cell, set[Token]] = {}
        own = BufferLoad(store.buffer, store.indices)
        expr = chosen(store.value, self.env, self.reader({}))
        kind = accumulated(expr, own)
        read = self.reader(reads, None if kind is None else own)
        indices = tuple(evaluate(i, self.env, read) for i in store.indices)
        value = evaluate(expr, self.env, read)
        cell = self.layout(store.buffer).cell(indices)
        key = cell, self.versions[cell[0]]
        number = len(self.stores)
        sources = frozenset(reads) - {cell}
        before = self.tokens.get(key)
        if kind is not None:
            self.tokens[key] = accumulation(kind, before, number)
        else:
            self.tokens[key] = number
        for condition in self.conditions:
            for cells, tokens in condition.items():
                reads.setdefault(cells, set()).update(tokens)
        loops = {v: self.env[v] for v in self.loops}
        self.values[key] = wrapped(value, store.buffer.dtype)
        place = position_of(store)
        self.stores.append(
            Stored(number, place, loops, cell, sources, reads, kind, before, self.values[key])
        )

    def results(self) -> Iterator[tuple[Cell, Token]]:
        """The last writer of each element of the arguments."""
        for param, arg in zip(self.func.params, self.args, strict=True):
            buffer = self.func.buffer_of(param)
            for where in range(arg.size if isinstance(arg, np.ndarray) and buffer else 0):
                cell = buffer.name, where
                yield cell, self.tokens.get((cell, 0))
