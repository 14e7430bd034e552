"""Where users' code calls relaxpy: errors leave it without its insides and say which argument."""

from __future__ import annotations

import ast
import functools
import linecache
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import ParamSpec, TypeAlias, TypeVar

from relaxpy.errors import (
    MisuseError,
    RelaxpyError,
    RuntimeCheckError,
    Source,
    Span,
    UnknownAttributeError,
    is_users,
    leave_foreign,
)

P = ParamSpec("P")
T = TypeVar("T")
Position: TypeAlias = tuple[int, int, int, int]


def user_facing(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose errors have the frames of the user's code alone.

    An error without a position gets that of the argument it is about, in the line of the call. A
    program for which the stack is too small is an error, too.
    """

    @functools.wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            try:
                return function(*args, **kwargs)
            except RecursionError as error:
                if isinstance(error, RelaxpyError) or not is_users(sys._getframe().f_back):
                    raise  # it is told already, or further out there is room to say so
                raise nested_too_deeply() from None
        except RelaxpyError as error:
            tell(error, sys._getframe().f_back, args, kwargs)
            raise  # without an argument: that does not enter this frame into the traceback again
        except Exception as error:  # of whatever users' code raised: it goes on as it is
            if is_users(sys._getframe().f_back):
                leave_foreign(error)
            raise

    return entry


def user_constructed(kind: type[T]) -> type[T]:
    """The class `kind`, a dataclass, with a constructor that is `user_facing`."""
    kind.__init__ = user_facing(kind.__init__)  # type: ignore[method-assign]
    return kind


def nested_too_deeply() -> MisuseError:
    """What users meet in place of a RecursionError."""
    return MisuseError(
        "the program is nested too deeply for Python's stack",
        hint="bind parts of it to variables, or allow more with sys.setrecursionlimit(...)",
    )


def tell(
    error: RelaxpyError,
    caller: FrameType | None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
) -> None:
    """Make `error` what the code in `caller` shall meet, unless that is relaxpy itself.

    What a running program finds wrong is no mistake of the line that runs it.
    """
    if not is_users(caller):
        return
    if caller is None:
        pass
    elif isinstance(error, UnknownAttributeError):
        error.located(attribute_span(caller, str(error.about)))
    elif not any(d.span for d in error.diagnostics) and not isinstance(error, RuntimeCheckError):
        error.located(argument_span(caller, args, kwargs or {}, error.about))
    error.leave_insides()


def position_now(frame: FrameType) -> Position | None:
    """What a frame is executing: lines from 1 and byte columns from 0, begin and end."""
    places = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, end_line, column, end_column = next(places, (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, column, end_line, end_column


def argument_span(
    frame: FrameType, args: Sequence[object], kwargs: Mapping[str, object], about: object
) -> Span | None:
    """Where the argument `about` stands in the call that `frame` is making.

    That is the name of what is called where no argument is at fault, or none can be told apart;
    what stands behind `with` where a block of it ends; None where there is no text to look at.
    """
    place = position_now(frame)
    if place is None:
        return None
    source = _source_of(frame)
    node = None if source is None else _executed(source.text, place)
    if source is None or node is None:
        return None
    if isinstance(node, ast.With):
        first, last = node.items[0].context_expr, node.items[-1].context_expr
        header = ast.copy_location(ast.Name(""), first)
        header.end_lineno, header.end_col_offset = last.end_lineno, last.end_col_offset
        return span_of(header, source)
    if isinstance(node, ast.Subscript):
        return span_of(node.slice, source)
    count = len(node.args)
    # Methods are called without `self`, and of dataclasses all fields are known.
    ways = (args[max(0, len(args) - count) :], args[1 : count + 1], args[:count])
    found = (culprit(node, own, kwargs, about) for own in ways)
    return span_of(next(filter(None, found), None) or last_name(node.func), source)


def attribute_span(frame: FrameType, name: str) -> Span | None:
    """Where the attribute `name` stands that `frame` is reading."""
    place, source = position_now(frame), _source_of(frame)
    if place is None or source is None:
        return None
    line = source.line(place[2]).encode()
    start = place[3] - len(name.encode())
    if line[max(start, 0) : place[3]].decode(errors="replace") != name:
        return None
    word = ast.Name(name)
    word.lineno = word.end_lineno = place[2]
    word.col_offset, word.end_col_offset = start, place[3]
    return span_of(word, source)


def _source_of(frame: FrameType) -> Source | None:
    file = frame.f_code.co_filename
    lines = linecache.getlines(file, frame.f_globals)
    return Source(file, "".join(lines)) if lines else None


def _executed(text: str, place: Position) -> ast.Call | ast.Subscript | ast.With | None:
    """The call or subscript that ends there, as no two of them do, or the block that ends."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # a notebook cell with magic commands in it
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Call, ast.Subscript, ast.With)):
            continue
        begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        if end == place[2:] and (begin == place[:2] or not isinstance(node, ast.With)):
            return node
    return None


def span_of(node: ast.expr, source: Source) -> Span:
    """Where `node`, read from the whole of `source`, stands."""
    line, end_line = node.lineno, node.end_lineno or node.lineno
    end = node.col_offset if node.end_col_offset is None else node.end_col_offset
    return Span(
        source,
        line,
        _characters(source.line(line), node.col_offset) + 1,
        end_line,
        _characters(source.line(end_line), end) + 1,
    )


def _characters(text: str, offset: int) -> int:
    """How many characters the first `offset` bytes of a line are."""
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def culprit(
    node: ast.Call, args: Sequence[object], kwargs: Mapping[str, object], about: object
) -> ast.expr | None:
    """The argument, or member of one, whose value is the very object `about`."""
    if about is None:
        return None
    given = list(_given(node, args, kwargs))
    found = (part_about(at, value, about) for at, value in given)
    inside = (_written(at, about) for at, _ in given if isinstance(about, str))
    return next(filter(None, (*found, *inside)), None)


def _given(
    node: ast.Call, args: Sequence[object], kwargs: Mapping[str, object]
) -> Iterator[tuple[ast.expr, object]]:
    if not any(isinstance(arg, ast.Starred) for arg in node.args) and len(node.args) == len(args):
        yield from zip(node.args, args, strict=True)
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg in kwargs:
            yield keyword.value, kwargs[keyword.arg]


def _written(node: ast.expr, text: object) -> ast.expr | None:
    """Where in `node` a string stands that became part of another value."""
    literals = (n for n in ast.walk(node) if isinstance(n, ast.Constant))
    return next((n for n in literals if isinstance(n.value, str) and n.value == text), None)


def part_about(node: ast.expr, value: object, about: object) -> ast.expr | None:
    """The part of the text of `value` that gave the very object `about`."""
    if about is None:
        return None
    if value is about or _same_members(value, about):
        return node
    if not isinstance(node, (ast.Tuple, ast.List)) or not isinstance(value, (tuple, list)):
        return None
    if len(node.elts) != len(value):
        return None
    parts = zip(node.elts, value, strict=True)
    found = (part_about(part, member, about) for part, member in parts)
    return next(filter(None, found), None)


def _same_members(value: object, about: object) -> bool:
    """Whether `about` is what a list or tuple of the program, `value`, was converted to."""
    members = about if isinstance(about, tuple) else getattr(about, "fields", None)
    if not isinstance(value, (tuple, list)) or not isinstance(members, tuple) or not members:
        return False
    return len(value) == len(members) and all(map(operator.is_, value, members))


def last_name(node: ast.expr) -> ast.expr:
    """A stand-in for the last name of an attribute path, where it can be told apart."""
    end = node.end_col_offset
    if not isinstance(node, ast.Attribute) or end is None or node.end_lineno is None:
        return node
    tail = ast.Name(node.attr)
    tail.lineno = tail.end_lineno = node.end_lineno
    tail.end_col_offset = end
    tail.col_offset = end - len(node.attr.encode())
    return tail
