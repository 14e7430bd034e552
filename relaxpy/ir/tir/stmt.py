"""TIR statements: loops, stores, blocks, allocations and annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.core.node import (
    EMPTY_ATTRS,
    Attr,
    Attrs,
    Conversions,
    Copied,
    Node,
    as_attrs,
    checks_of,
    freeze,
    set_fields,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, check_access
from relaxpy.ir.tir.expr import ExprLike, IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range, check_integer, enumerated
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.errors import Span


class ForKind(IntEnum):
    """The kind of a loop: how its iterations are executed."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


Condition: TypeAlias = PrimExpr
"""An expression that the constructor checks to be a Bool."""


class Stmt(Copied):
    """The base class of statements, which compare by identity.

    Fields are converted by their annotations (`_CONVERSIONS`).
    """

    __slots__ = ()
    _bits = 1  # which no expression has inside

    if not TYPE_CHECKING:  # which each kind with more checks would have to override

        def __post_init__(self):
            _CONVERSIONS.apply(self)


def _statement(value: object) -> Stmt:
    """`value`. Errors: MisuseError (also TypeError) if it is not a statement."""
    if not isinstance(value, Stmt):
        raise unexpected(
            value, "expected a statement", hint="tir.Evaluate converts an expression to a statement"
        )
    return value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LetStmt(Stmt):
    """`body` with `var` bound to `value`."""

    _fields = ("value", "var", "body")
    _binds = frozenset(("var",))
    var: Var
    value: PrimExpr
    body: Stmt
    span: Span | None = None

    def __post_init__(self) -> None:
        ops.check_variable(self.var, "a let")
        _CONVERSIONS.apply(self)
        if self.value.dtype != self.var.dtype:
            raise MisuseError(f"{self.var.name} of {self.var.dtype} is bound to {self.value.dtype}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AttrStmt(Stmt):
    """`body` with the annotation `attr_key` = `value` on `node`."""

    _fields = ("node", "attr_key", "value", "body")
    node: Attr
    attr_key: str
    value: PrimExpr
    body: Stmt
    span: Span | None = None

    def __post_init__(self) -> None:
        check_type(self.attr_key, str, "an annotation is named by a string")
        _CONVERSIONS.apply(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AssertStmt(Stmt):
    """`body` after a check of `condition`, which fails with the error `message`."""

    _fields = ("condition", "message", "body")
    condition: Condition
    message: PrimExpr
    body: Stmt
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class While(Stmt):
    """A loop over `body` while `condition` holds."""

    _fields = ("condition", "body")
    condition: Condition
    body: Stmt
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """A loop over `body` with `loop_var` in the range [min, min + extent)."""

    _fields = ("min", "extent", "loop_var", "kind", "thread_binding", "annotations", "body")
    _binds = frozenset(("loop_var",))
    loop_var: Var
    min: PrimExpr
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: Attrs = EMPTY_ATTRS
    span: Span | None = None

    def __post_init__(self) -> None:
        ops.check_variable(self.loop_var, "a loop")
        _CONVERSIONS.apply(self)
        kind = self.loop_var.dtype
        if not kind.is_int or kind.vector:
            raise MisuseError(
                f"a loop counts integers, found {self.loop_var.name} of {kind}", about=self.loop_var
            )
        for name in ("min", "extent"):
            bound: PrimExpr = getattr(self, name)
            if isinstance(bound, IntImm):
                bound = ops.cast_to(bound, kind)
            if bound.dtype != kind:
                raise MisuseError(
                    f"loop variable {self.loop_var.name} of {kind} has a bound of {bound.dtype}"
                )
            object.__setattr__(self, name, bound)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferStore(Stmt):
    """`buffer[indices] = value`."""

    _fields = ("buffer", "indices", "value", "predicate")
    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        dtype, _, indices = check_access(self.buffer, self.indices)
        value = ops.convert(self.value)
        if value.dtype != dtype:
            raise MisuseError(
                f"dtype mismatch on BufferStore: {self.buffer.name} holds {dtype}, "
                f"the value is {value.dtype}"
            )
        ops.check_predicate(self.predicate, indices[-1].dtype if indices else INT32)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "value", value)


def store_at(
    buffer: Buffer, begin: Sequence[ExprLike], value: ExprLike, predicate: PrimExpr | None
) -> BufferStore:
    """A store of `value` at `begin`; see `Buffer.vstore`."""
    stored = ops.convert(value)
    return BufferStore(buffer, stored, buffer.lanes_at(begin, stored.dtype), predicate)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferRealize(Stmt):
    """`body` with the region `bounds` of `buffer` realised."""

    _fields = ("buffer", "bounds", "condition", "body")
    buffer: Buffer
    bounds: tuple[Range, ...]
    condition: PrimExpr
    body: Stmt
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Allocate(Stmt):
    """`body` with new memory of shape `extents`, to which `buffer_var` points."""

    _fields = ("extents", "dtype", "condition", "buffer_var", "annotations", "body")
    _binds = frozenset(("buffer_var",))
    buffer_var: Var
    dtype: DataType
    extents: tuple[PrimExpr, ...]
    condition: PrimExpr
    body: Stmt
    annotations: Attrs = EMPTY_ATTRS
    span: Span | None = None

    def __post_init__(self) -> None:
        ops.check_variable(self.buffer_var, "an allocation")
        _CONVERSIONS.apply(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AllocateConst(Stmt):
    """`body` with the constant `data`, to which `buffer_var` points; arrays become tuples."""

    _fields = ("extents", "dtype", "data", "buffer_var", "annotations", "body")
    _binds = frozenset(("buffer_var",))
    buffer_var: Var
    dtype: DataType
    extents: tuple[PrimExpr, ...]
    data: Attr
    body: Stmt
    annotations: Attrs = EMPTY_ATTRS
    span: Span | None = None

    def __post_init__(self) -> None:
        ops.check_variable(self.buffer_var, "an allocation")
        if isinstance(self.data, np.ndarray):
            set_fields(self, data=self.data.tolist())
        _CONVERSIONS.apply(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeclBuffer(Stmt):
    """`body` with `buffer` declared over existing memory."""

    _fields = ("buffer", "body")
    _binds = frozenset(("buffer",))
    buffer: Buffer
    body: Stmt
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeqStmt(Stmt):
    """A sequence of statements; nested sequences are flattened."""

    _fields = ("seq",)
    seq: tuple[Stmt, ...]
    span: Span | None = None

    def __post_init__(self) -> None:
        check_type(self.seq, (list, tuple), "expected a list of statements")
        flat: list[Stmt] = []
        for stmt in self.seq:
            flat += stmt.seq if isinstance(stmt, SeqStmt) else (_statement(stmt),)
        set_fields(self, seq=tuple(flat))

    def __len__(self) -> int:
        return len(self.seq)

    def __iter__(self) -> Iterator[Stmt]:
        return iter(self.seq)

    def __getitem__(self, index: int) -> Stmt:
        return self.seq[index]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IfThenElse(Stmt):
    """A conditional statement; `else_case` may be None."""

    _fields = ("condition", "then_case", "else_case")
    condition: Condition
    then_case: Stmt
    else_case: Stmt | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluate(Stmt):
    """An expression that is evaluated for its effect."""

    _fields = ("value",)
    value: PrimExpr
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MatchBufferRegion(Node):
    """Declares `buffer` as a view of the region `source`."""

    _bits = Stmt._bits  # only blocks have them
    _fields = ("source", "buffer")
    _binds = frozenset(("buffer",))
    buffer: Buffer
    source: BufferRegion

    def __post_init__(self) -> None:
        _CONVERSIONS.apply(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Block(Stmt):
    """A computation over block iteration variables, with declared reads and writes."""

    _fields = (
        "iter_vars",
        "alloc_buffers",
        "match_buffers",
        "reads",
        "writes",
        "annotations",
        "init",
        "body",
    )
    _binds = frozenset(("alloc_buffers",))
    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Attrs = EMPTY_ATTRS
    span: Span | None = None

    def __post_init__(self) -> None:
        check_type(self.name_hint, str, "a block is named by a string")
        _CONVERSIONS.apply(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockRealize(Stmt):
    """An execution of `block` with `iter_values` for its variables, if `predicate` holds."""

    _fields = ("iter_values", "predicate", "block")
    iter_values: tuple[PrimExpr, ...]
    predicate: Condition
    block: Block
    span: Span | None = None

    def __post_init__(self) -> None:
        _CONVERSIONS.apply(self)
        values = self.iter_values
        if len(values) != len(self.block.iter_vars):
            raise MisuseError(
                f"block {self.block.name_hint} has {len(self.block.iter_vars)} iteration "
                f"variables, found {len(values)} values"
            )
        for axis, value in zip(self.block.iter_vars, values, strict=True):
            for expr in (axis.var, value):
                check_integer(expr, f"the iteration variable {axis.var.name}")


_CONVERSIONS = Conversions(
    {
        "PrimExpr": ops.convert,
        "Condition": ops.truth,
        "tuple[PrimExpr, ...]": ops.convert_all,
        "Stmt": _statement,
        "Stmt | None": lambda value: None if value is None else _statement(value),
        "Attr": freeze,
        "Attrs": as_attrs,
        "DataType": DataType,
        "ForKind": partial(enumerated, ForKind),
        **checks_of(
            {
                kind: kind.__name__
                for kind in (IterVar, Range, Buffer, BufferRegion, MatchBufferRegion, Block)
            }
        ),
    }
)

AnyStmt: TypeAlias = (
    LetStmt
    | AttrStmt
    | AssertStmt
    | While
    | For
    | BufferStore
    | BufferRealize
    | Allocate
    | AllocateConst
    | DeclBuffer
    | SeqStmt
    | IfThenElse
    | Evaluate
    | Block
    | BlockRealize
)


def serial_loops(variables: Sequence[Var], extents: Sequence[PrimExpr], body: Stmt) -> Stmt:
    """Serial loops from 0 around `body`, by their variables and extents, outermost first."""
    for var, extent in zip(reversed(variables), reversed(extents), strict=True):
        body = For(var, ops.const(0, extent.dtype), extent, ForKind.SERIAL, body)
    return body


def stmt_seq(*stmts: Stmt | ExprLike) -> Stmt:
    """Build a sequence; a single statement is returned itself, an expression is evaluated."""
    sequence = [s if isinstance(s, Stmt) else Evaluate(ops.convert(s)) for s in stmts]
    return sequence[0] if len(sequence) == 1 else SeqStmt(tuple(sequence))


def regions(items: Sequence[BufferRegion | BufferLoad]) -> tuple[BufferRegion, ...]:
    """Convert loads to regions of one element, and return regions unchanged."""
    return tuple(
        BufferRegion(item.buffer, tuple(Range.point(index) for index in item.indices))
        if isinstance(item, BufferLoad)
        else item
        for item in items
    )
