"""Loop nests: loops, branches and stores without blocks, as the reader creates them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, preorder, walk
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Call, PrimExpr, StringImm, Var
from relaxpy.ir.tir.intrinsics import is_external
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import may_divide_by_zero
from relaxpy.ir.tir.stmt import ForKind
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """The values of a loop: `var` from `start` up to, but not including, `stop`.

    The `span` is that of the bounds.
    """

    var: Var
    start: PrimExpr
    stop: PrimExpr
    span: Span | None = None

    @property
    def extent(self) -> IndexPoly:
        """The number of iterations, unless that is negative."""
        return as_poly(self.stop) - as_poly(self.start)

    def may_fail(self) -> bool:
        """True if a bound reads an element or divides by what may be 0."""
        nodes = (node for bound in (self.start, self.stop) for node in walk(bound))
        return any(isinstance(node, BufferLoad) or may_divide_by_zero(node) for node in nodes)

    def has_bounds_of(self, other: Axis) -> bool:
        """True if both axes provably have the same start and stop."""
        start, stop = as_poly(other.start), as_poly(other.stop)
        return as_poly(self.start).same(start) and as_poly(self.stop).same(stop)


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """`body` for each value of the axis, in order."""

    axis: Axis
    body: tuple[Item, ...]

    @property
    def span(self) -> Span | None:
        """The position of the bounds."""
        return self.axis.span


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """`body` if `condition` holds, else `orelse`.

    The init of a block has the reduction loops as `init_loops` when it is read. If one of these is
    empty, the body still runs, once for all of them, with their variables at the starts. Enclosing
    conditions on an empty loop are then not evaluated. `with_initialisation` runs first and
    rewrites this without `init_loops`.
    """

    condition: PrimExpr
    body: tuple[Item, ...]
    orelse: tuple[Item, ...] = ()
    init_loops: tuple[Axis, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class WhileLoop:
    """`body` as long as `condition` holds."""

    condition: PrimExpr
    body: tuple[Item, ...]
    span: Span | None = None


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
    """Assigns the current value of `value` to `var`, for all subsequent items."""

    var: Var
    value: PrimExpr
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """Stops the program with `message` unless `condition` holds."""

    condition: PrimExpr
    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Return:
    """Returns `value` from the kernel."""

    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """Leaves the innermost loop, or its current iteration."""

    kind: Literal["break", "continue"]


@dataclass(frozen=True, slots=True, eq=False)
class Invoke:
    """A call for its effect."""

    call: Call
    block: str | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Alloc:
    """Allocates `buffer` here, as its shape is not known earlier; or reinterprets `root`, flat."""

    buffer: Buffer
    root: Buffer | None = None


Item: TypeAlias = Loop | Branch | WhileLoop | Store | Bind | Check | Return | Jump | Invoke | Alloc


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layout(Node):
    """The layout, in the memory of another buffer, of the view `name` in one iteration."""

    _fields = ("shape", "strides", "offset")
    name: str
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...]
    offset: PrimExpr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassedMemory(Node):
    """A buffer as an argument of a call: all of it, or `region` without `drop` leading axes.

    With a `layout`, the region is one of the view that has it.
    """

    _fields = ("buffer", "region", "layout")
    buffer: Buffer
    region: tuple[Range, ...] = ()
    drop: int = 0
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A buffer whose live range is one iteration of the loops `axes`."""

    buffer: Buffer
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """A kernel: its items, the buffers it allocates, and `views` of the memory of other buffers.

    `constants` are only read. `pointers` represent arguments that are pointers; their datatype and
    shape have no meaning. Unless the nest `allows_aliasing`, it is only correct for arguments that
    do not share memory. `kinds` are those of loops that are not serial in the source.
    """

    items: tuple[Item, ...]
    local: tuple[Local, ...]
    views: Mapping[Buffer, Buffer]
    constants: Mapping[Buffer, object]
    pointers: Mapping[Var, Buffer]
    allows_aliasing: bool
    kinds: Mapping[Var, ForKind] = field(default_factory=dict)

    def memory(self, buffer: Buffer) -> Buffer:
        """The buffer that owns the memory of `buffer`."""
        return self.views.get(buffer, buffer)


def bodies(item: Item) -> tuple[tuple[Item, ...], ...]:
    """The item sequences inside `item`."""
    match item:
        case Loop(body=body) | WhileLoop(body=body):
            return (body,)
        case Branch(body=body, orelse=orelse):
            return body, orelse
        case _:
            return ()


def expressions(item: Item) -> tuple[PrimExpr, ...]:
    """The expressions that `item` evaluates, without those inside its bodies."""
    match item:
        case Loop(axis=axis):
            return axis.start, axis.stop
        case Branch(condition=condition) | WhileLoop(condition=condition):
            return (condition,)
        case Store(indices=indices, value=value):
            return *indices, value
        case Bind(value=value) | Return(value=value):
            return (value,)
        case Check(condition=condition):
            return (condition,)
        case Invoke(call=call):
            return (call,)
        case Alloc(buffer=buffer):
            return buffer.shape
        case Jump():
            return ()


def walk_items(items: tuple[Item, ...]) -> Iterator[Item]:
    """All items, outer before inner."""
    return preorder(items, lambda item: chain.from_iterable(bodies(item)))


def jumps(items: tuple[Item, ...]) -> Iterator[Jump]:
    """The jumps that leave the loop whose body is `items`, or one of its iterations."""
    for item in items:
        match item:
            case Jump():
                yield item
            case Branch(body=body, orelse=orelse):
                yield from jumps((*body, *orelse))
            case _:
                pass


def map_expressions(item: Item, change: Callable[[PrimExpr], PrimExpr]) -> Item:
    """`item` with `change` applied to all its expressions, also inside its bodies."""

    def inside(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(map_expressions(i, change) for i in items)

    def changed_axis(axis: Axis) -> Axis:
        start, stop = change(axis.start), change(axis.stop)
        same = start is axis.start and stop is axis.stop
        return axis if same else replace(axis, start=start, stop=stop)

    match item:
        case Loop(axis=axis, body=body):
            return Loop(changed_axis(axis), inside(body))
        case Branch(condition=condition, body=body, orelse=orelse, init_loops=loops):
            changed_loops = tuple(map(changed_axis, loops))
            return Branch(change(condition), inside(body), inside(orelse), changed_loops)
        case WhileLoop(condition=condition, body=body):
            return replace(item, condition=change(condition), body=inside(body))
        case Store(indices=indices, value=value):
            return replace(item, indices=tuple(map(change, indices)), value=change(value))
        case Bind(value=value) | Return(value=value):
            return replace(item, value=change(value))
        case Check(condition=condition):
            return replace(item, condition=change(condition))
        case Invoke(call=call):
            changed = change(call)
            assert isinstance(changed, Call)
            return replace(item, call=changed)
        case Jump() | Alloc():
            return item


def substituted(items: tuple[Item, ...], values: Mapping[Var, PrimExpr]) -> tuple[Item, ...]:
    """`items` with `values` for variables in all their expressions."""
    return tuple(map_expressions(item, lambda expr: substitute(expr, values)) for item in items)


def loads(expr: Node) -> Iterator[BufferLoad]:
    """The loads in `expr`, including those in indices."""
    return occurrences(expr, BufferLoad)


def stored_buffers(items: tuple[Item, ...]) -> set[Buffer]:
    """The buffers that `items` write."""
    return {item.buffer for item in walk_items(items) if isinstance(item, Store)}


def external_calls(expr: Node) -> Iterator[Call]:
    """The calls in `expr` of functions outside the kernel, which may have effects."""
    return filter(is_external, occurrences(expr, Call))


def callee_name(call: Call) -> str:
    """The name of the external function that `call` calls."""
    if isinstance(call.op, GlobalVar):
        return call.op.name_hint
    symbol = call.args[0]
    return symbol.value if isinstance(symbol, StringImm) else str(symbol)


def passed_memory(expr: Node) -> Iterator[PassedMemory]:
    """The memory that calls in `expr` take as arguments."""
    return occurrences(expr, PassedMemory)
