"""Trees of Python source: expressions and statements, which `to_python_script` writes as text.

The classes are those of TVM. A document has the paths of the components that it is the text of, by
which the text can be underlined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum
from typing import TypeAlias

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.ir.equality.access_path import AccessPath

Literal: TypeAlias = "str | float | bool | None"


class Doc:
    """Base of all documents; two documents are equal only if they are the same object."""

    _source_paths: tuple[AccessPath, ...] = ()

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, list):
                setattr(self, item.name, tuple(value))

    @property
    def source_paths(self) -> Sequence[AccessPath]:
        """The paths of the components that this is the text of."""
        return self._source_paths

    @source_paths.setter
    def source_paths(self, paths: Sequence[AccessPath]) -> None:
        self._source_paths = tuple(paths)

    def children(self) -> Iterator[Doc]:
        """Yield the documents that this one consists of."""
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Doc):
                    yield part


class ExprDoc(Doc):
    """An expression."""

    def attr(self, name: str) -> AttrAccessDoc:
        """Return `self.name`."""
        return AttrAccessDoc(self, name)

    def call(self, *args: ExprDoc, **kwargs: ExprDoc) -> CallDoc:
        """Return `self(*args, **kwargs)`."""
        return CallDoc(self, *args, **kwargs)

    def __getitem__(self, indices: IndexItem | tuple[IndexItem, ...]) -> IndexDoc:
        return IndexDoc(self, indices if isinstance(indices, tuple) else (indices,))

    def __iter__(self) -> Iterator[ExprDoc]:
        raise MisuseError(f"a {type(self).__name__} cannot be iterated over", about=self)


@dataclass(eq=False)
class LiteralDoc(ExprDoc):
    """A number, a string, a Boolean or None."""

    value: Literal


@dataclass(eq=False)
class IdDoc(ExprDoc):
    """A name."""

    name: str


@dataclass(eq=False)
class AttrAccessDoc(ExprDoc):
    """`value.name`."""

    value: ExprDoc
    name: str


@dataclass(eq=False)
class IndexDoc(ExprDoc):
    """`value[indices]`."""

    value: ExprDoc
    indices: Sequence[IndexItem]


class CallDoc(ExprDoc):
    """`callee(*args, **kwargs)`; the keywords and their values are two lists."""

    def __init__(self, callee: ExprDoc, *args: ExprDoc, **kwargs: ExprDoc) -> None:
        self.callee = callee
        self.args = args
        self.kwargs_keys = tuple(kwargs)
        self.kwargs_values = tuple(kwargs.values())

    @override
    def children(self) -> Iterator[Doc]:
        yield from (self.callee, *self.args, *self.kwargs_values)


class OperationKind(IntEnum):
    """The operators; those without an underscore have operands."""

    _UnaryStart = 0
    USub = 1
    Invert = 2
    Not = 3
    _UnaryEnd = 4
    _BinaryStart = 5
    Add = 6
    Sub = 7
    Mult = 8
    Div = 9
    FloorDiv = 10
    Mod = 11
    Pow = 12
    LShift = 13
    RShift = 14
    BitAnd = 15
    BitOr = 16
    BitXor = 17
    Lt = 18
    LtE = 19
    Eq = 20
    NotEq = 21
    Gt = 22
    GtE = 23
    And = 24
    Or = 25
    _BinaryEnd = 26
    _SpecialStart = 27
    IfThenElse = 28
    _SpecialEnd = 29


@dataclass(eq=False)
class OperationDoc(ExprDoc):
    """An operator with its operands; of IfThenElse the condition is the first one."""

    kind: OperationKind
    operands: Sequence[ExprDoc]


@dataclass(eq=False)
class LambdaDoc(ExprDoc):
    """`lambda args: body`."""

    args: Sequence[IdDoc]
    body: ExprDoc


@dataclass(eq=False)
class TupleDoc(ExprDoc):
    """A tuple."""

    elements: Sequence[ExprDoc]


@dataclass(eq=False)
class ListDoc(ExprDoc):
    """A list."""

    elements: Sequence[ExprDoc]


class DictDoc(ExprDoc):
    """A dictionary, as a list of keys and a list of values."""

    def __init__(self, content: Mapping[ExprDoc, ExprDoc]) -> None:
        self.keys = tuple(content)
        self.values = tuple(content.values())

    @override
    def children(self) -> Iterator[Doc]:
        yield from (*self.keys, *self.values)


@dataclass(eq=False)
class SliceDoc(Doc):
    """`start:stop:step`, which is only an index."""

    start: ExprDoc | None = None
    stop: ExprDoc | None = None
    step: ExprDoc | None = None


IndexItem: TypeAlias = ExprDoc | SliceDoc


class StmtDoc(Doc):
    """A statement, which may have a comment."""

    _comment: str | None = None

    @property
    def comment(self) -> str | None:
        """The comment above or after the statement; of a function or class, its docstring."""
        return self._comment

    @comment.setter
    def comment(self, value: str | None) -> None:
        self._comment = value


@dataclass(eq=False)
class StmtBlockDoc(Doc):
    """Statements one after another."""

    stmts: Sequence[StmtDoc]


@dataclass(eq=False)
class AssignDoc(StmtDoc):
    """`lhs: annotation = rhs`, without the value or without the annotation."""

    lhs: ExprDoc
    rhs: ExprDoc | None = None
    annotation: ExprDoc | None = None

    @override
    def __post_init__(self) -> None:
        if self.rhs is None and self.annotation is None:
            raise MisuseError("an assignment has a value or an annotation", about=self.lhs)
        if self.annotation is not None and isinstance(self.lhs, TupleDoc):
            raise MisuseError("several names have no annotation", about=self.annotation)


@dataclass(eq=False)
class IfDoc(StmtDoc):
    """`if predicate: then_branch else: else_branch`."""

    predicate: ExprDoc
    then_branch: Sequence[StmtDoc]
    else_branch: Sequence[StmtDoc]

    @override
    def __post_init__(self) -> None:
        StmtDoc.__post_init__(self)
        if not self.then_branch and not self.else_branch:
            raise MisuseError("one branch of an if has a statement", about=self.predicate)


@dataclass(eq=False)
class WhileDoc(StmtDoc):
    """`while predicate: body`."""

    predicate: ExprDoc
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ForDoc(StmtDoc):
    """`for lhs in rhs: body`."""

    lhs: ExprDoc
    rhs: ExprDoc
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ScopeDoc(StmtDoc):
    """`with rhs as lhs: body`; `lhs` may be missing."""

    lhs: ExprDoc | None
    rhs: ExprDoc
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ExprStmtDoc(StmtDoc):
    """An expression as a statement."""

    expr: ExprDoc


@dataclass(eq=False)
class AssertDoc(StmtDoc):
    """`assert test, msg`."""

    test: ExprDoc
    msg: ExprDoc | None = None


@dataclass(eq=False)
class ReturnDoc(StmtDoc):
    """`return value`."""

    value: ExprDoc


@dataclass(eq=False)
class FunctionDoc(StmtDoc):
    """A function; each parameter is an AssignDoc, whose value is the default."""

    name: IdDoc
    args: Sequence[AssignDoc]
    decorators: Sequence[ExprDoc]
    return_type: ExprDoc | None
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ClassDoc(StmtDoc):
    """A class."""

    name: IdDoc
    decorators: Sequence[ExprDoc]
    body: Sequence[StmtDoc]


class CommentDoc(StmtDoc):
    """A comment on lines of its own."""

    def __init__(self, comment: str) -> None:
        self.comment = comment

    @override
    def children(self) -> Iterator[Doc]:
        yield from ()


class DocStringDoc(CommentDoc):
    """A docstring."""
