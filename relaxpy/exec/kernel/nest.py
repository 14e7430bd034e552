"""A kernel's statements without blocks: loops, branches and stores, as the reader leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from relaxpy.ir.node import Node
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.traverse import walk

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """What a loop runs through: `var` from `start` to below `stop`."""

    var: Var
    start: PrimExpr
    stop: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """`body` for each value of the axis, in order."""

    axis: Axis
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """`body` where `condition` holds, else `orelse`.

    In a block's init the condition is that the loops of `first` are in their first round; what a
    reduction without any round gives is open, and an emitter may let it be the initial value.
    """

    condition: PrimExpr
    body: tuple[Item, ...]
    orelse: tuple[Item, ...] = ()
    first: frozenset[Var] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """`body` as long as `condition` holds."""

    condition: PrimExpr
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """`buffer[indices] = value`."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr
    block: str | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Bind:
    """`var` stands for `value`, as it is here, in what follows."""

    var: Var
    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """The program stops with `message` unless `condition` holds."""

    condition: PrimExpr
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """The end of the kernel, with its result."""

    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """The end of the innermost loop, or of this round of it."""

    kind: Literal["break", "continue"]


Item: TypeAlias = Loop | Branch | Repeat | Store | Bind | Check | Leave | Jump


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A buffer that lives within one round of the loops `axes`."""

    buffer: Buffer
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """A whole kernel: its items, the buffers it makes, and those laid over another's memory."""

    items: tuple[Item, ...]
    local: tuple[Local, ...]
    views: dict[Buffer, Buffer]


def bodies(item: Item) -> tuple[tuple[Item, ...], ...]:
    """The item sequences inside `item`."""
    match item:
        case Loop(body=body) | Repeat(body=body):
            return (body,)
        case Branch(body=body, orelse=orelse):
            return body, orelse
        case _:
            return ()


def expressions(item: Item) -> tuple[PrimExpr, ...]:
    """The expressions that `item` itself evaluates, those inside its bodies left out."""
    match item:
        case Loop(axis=axis):
            return axis.start, axis.stop
        case Branch(condition=condition) | Repeat(condition=condition):
            return (condition,)
        case Store(indices=indices, value=value):
            return *indices, value
        case Bind(value=value) | Leave(value=value):
            return (value,)
        case Check(condition=condition):
            return (condition,)
        case Jump():
            return ()


def every(items: tuple[Item, ...]) -> Iterator[Item]:
    """All items, outer before inner."""
    for item in items:
        yield item
        for body in bodies(item):
            yield from every(body)


def loads(expr: Node) -> Iterator[BufferLoad]:
    """The loads in `expr`, those in indices included."""
    return (part for part in walk(expr) if isinstance(part, BufferLoad))


def stored(items: tuple[Item, ...]) -> set[Buffer]:
    """The buffers that `items` write."""
    return {item.buffer for item in every(items) if isinstance(item, Store)}
