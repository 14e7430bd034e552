"""A kernel's statements without blocks: loops, branches and stores, as the reader leaves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, Range
from relaxpy.ir.tir.expr import Call, PrimExpr, Var

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

    A block's init has the loops that only reduce as `first`, as they were written. Where one of
    these has no round the body is performed all the same, once for all of them, with the variables
    at the starts; and the conditions around it on a loop that has no round are not asked.
    """

    condition: PrimExpr
    body: tuple[Item, ...]
    orelse: tuple[Item, ...] = ()
    first: tuple[Axis, ...] = ()


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
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """The program stops with `message` unless `condition` holds."""

    condition: PrimExpr
    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """The end of the kernel, with its result."""

    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """The end of the innermost loop, or of this round of it."""

    kind: Literal["break", "continue"]


@dataclass(frozen=True, slots=True, eq=False)
class Invoke:
    """A call for its effect."""

    call: Call
    block: str | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Make:
    """Fresh memory for `buffer` here, as its size is known no sooner; or `root`'s, laid flat."""

    buffer: Buffer
    root: Buffer | None = None


Item: TypeAlias = Loop | Branch | Repeat | Store | Bind | Check | Leave | Jump | Invoke | Make


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Memory(Node):
    """What a call is handed of `buffer`: all, or a `region` less `drop` leading dimensions."""

    _fields = ("buffer", "region")
    buffer: Buffer
    region: tuple[Range, ...] = ()
    drop: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A buffer that lives within one round of the loops `axes`."""

    buffer: Buffer
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """A whole kernel: its items, the buffers it makes, and those laid over another's memory.

    `constants` are made with what they hold, and only read. `pointers` stand for the memory of
    arguments that are no buffers: their own datatype and size mean nothing. The items mean what the
    program means `in_any_memory`, or else only where no two arguments share any.
    """

    items: tuple[Item, ...]
    local: tuple[Local, ...]
    views: Mapping[Buffer, Buffer]
    constants: Mapping[Buffer, object]
    pointers: Mapping[Var, Buffer]
    in_any_memory: bool

    def memory(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory `buffer` is laid over; by itself, that is its own."""
        return self.views.get(buffer, buffer)


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
        case Branch(condition=condition, first=first):
            return condition, *(bound for axis in first for bound in (axis.start, axis.stop))
        case Repeat(condition=condition):
            return (condition,)
        case Store(indices=indices, value=value):
            return *indices, value
        case Bind(value=value) | Leave(value=value):
            return (value,)
        case Check(condition=condition):
            return (condition,)
        case Invoke(call=call):
            return (call,)
        case Make(buffer=buffer):
            return buffer.shape
        case Jump():
            return ()


def every(items: tuple[Item, ...]) -> Iterator[Item]:
    """All items, outer before inner."""
    for item in items:
        yield item
        for body in bodies(item):
            yield from every(body)


def jumps(items: tuple[Item, ...]) -> Iterator[Jump]:
    """The jumps that end the loop of which `items` are the body, or a round of it."""
    for item in items:
        match item:
            case Jump():
                yield item
            case Branch(body=body, orelse=orelse):
                yield from jumps((*body, *orelse))
            case _:
                pass


def mapped(item: Item, change: Callable[[PrimExpr], PrimExpr]) -> Item:
    """`item` with `change` of all its expressions, those inside its bodies included."""

    def inside(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(mapped(i, change) for i in items)

    def moved(axis: Axis) -> Axis:
        start, stop = change(axis.start), change(axis.stop)
        same = start is axis.start and stop is axis.stop
        return axis if same else Axis(axis.var, start, stop)

    match item:
        case Loop(axis=axis, body=body):
            return Loop(moved(axis), inside(body))
        case Branch(condition=condition, body=body, orelse=orelse, first=first):
            changed_first = tuple(map(moved, first))
            return Branch(change(condition), inside(body), inside(orelse), changed_first)
        case Repeat(condition=condition, body=body):
            return Repeat(change(condition), inside(body))
        case Store(indices=indices, value=value):
            return replace(item, indices=tuple(map(change, indices)), value=change(value))
        case Bind(value=value) | Leave(value=value):
            return replace(item, value=change(value))
        case Check(condition=condition):
            return replace(item, condition=change(condition))
        case Invoke(call=call):
            changed = change(call)
            assert isinstance(changed, Call)
            return replace(item, call=changed)
        case Jump() | Make():
            return item


def loads(expr: Node) -> Iterator[BufferLoad]:
    """The loads in `expr`, those in indices included."""
    return (part for part in walk(expr) if isinstance(part, BufferLoad))


def stored(items: tuple[Item, ...]) -> set[Buffer]:
    """The buffers that `items` write."""
    return {item.buffer for item in every(items) if isinstance(item, Store)}


OUTSIDE = frozenset(
    Op(f"tir.{name}")
    for name in (
        *("call_extern", "call_pure_extern", "tvm_call_packed", "tvm_call_cpacked"),
        "call_kernel",
    )
)
"""The intrinsics that call functions which are registered by name, or kernels found elsewhere."""


def outside_calls(expr: Node) -> Iterator[Call]:
    """The calls in `expr` that leave the kernel, and may have effects."""
    return (part for part in walk(expr) if isinstance(part, Call) and is_outside(part))


def is_outside(call: Call) -> bool:
    """Whether `call` leaves the kernel: for a function by name, or one of the module."""
    return call.op in OUTSIDE or not isinstance(call.op, Op)


def passed_memory(expr: Node) -> Iterator[Memory]:
    """The memory that calls in `expr` are handed."""
    return (part for part in walk(expr) if isinstance(part, Memory))
