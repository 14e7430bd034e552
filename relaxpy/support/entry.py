"""The boundary between user code and relaxpy: tracebacks and positions of errors at API calls."""

from __future__ import annotations

import ast
import functools
import linecache
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import Final, ParamSpec, TypeAlias, TypeVar

from relaxpy.errors import (
    MisuseError,
    RelaxpyError,
    RuntimeCheckError,
    Source,
    Span,
    UnknownAttributeError,
    close_names,
)
from relaxpy.support.frames import is_user_frame, keep_callback_frames, user_frames

P = ParamSpec("P")
T = TypeVar("T")
_MISFIT: Final = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of Python inside of a function that arguments of other types cause."""
Position: TypeAlias = tuple[int, int, int, int]


def found_at(module: str, function: Callable[P, T], name: str = "") -> Callable[P, T]:
    """The function, which pickles refer to by a module, and its name there."""
    function.__module__, function.__qualname__ = module, name or function.__name__
    return function


def user_facing(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of the API so that tracebacks of its errors show only user frames.

    An error without a position gets the position of the argument that caused it, in the line of the
    call. A RecursionError becomes a MisuseError, and so does the TypeError of Python for arguments
    that the function does not take. So does an error of Python inside of the function, if an
    argument does not match its annotation.
    """

    @functools.wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            try:
                return function(*args, **kwargs)
            except RecursionError as error:
                if isinstance(error, RelaxpyError) or not is_user_frame(sys._getframe().f_back):
                    raise  # already reported, or an outer frame has enough stack to report it
                raise nested_too_deeply() from None
            except TypeError as error:
                if isinstance(error, RelaxpyError) or not is_user_frame(sys._getframe().f_back):
                    raise
                from relaxpy.support.misfit import binds  # only for an error

                if binds(function, args, kwargs):
                    raise
                raise _other_arguments(function, error, kwargs) from None
        except RelaxpyError as error:
            attach_position(error, sys._getframe().f_back, args, kwargs)
            raise  # a bare raise does not add this frame to the traceback again
        except (Exception, KeyboardInterrupt) as error:  # one of user code is propagated
            caller = sys._getframe().f_back
            if is_user_frame(caller):
                if isinstance(error, _MISFIT) and user_frames(error.__traceback__) is None:
                    from relaxpy.support.misfit import first_misfit  # only for an error

                    refused = first_misfit(function, args, kwargs)
                    if refused is not None:
                        attach_position(refused, caller, args, kwargs)
                        raise refused from None
                keep_callback_frames(error)
            raise

    return entry


def _other_arguments(
    function: Callable[..., object], error: TypeError, kwargs: Mapping[str, object]
) -> MisuseError:
    """The error for a call whose arguments do not fit the parameters of a function."""
    import inspect  # only for an error: `import relaxpy` is fast

    name = function.__qualname__.removesuffix(".__init__")
    signature = inspect.signature(function)
    params = [
        param.replace(annotation=param.empty)
        for param in signature.parameters.values()
        if param.name not in {"self", "cls"}
    ]
    listed = str(signature.replace(parameters=params, return_annotation=signature.empty))
    names = [param.name for param in params]
    unknown = next((given for given in kwargs if given not in names), None)
    return MisuseError(
        str(error).replace(f"{function.__qualname__}()", f"{name}()"),
        hint=unknown and close_names(unknown, names),
        notes=(f"its signature is {name}{listed}",),
    )


def user_constructed(kind: type[T]) -> type[T]:
    """Decorate a class so that its constructor is `user_facing`."""
    kind.__init__ = user_facing(kind.__init__)  # type: ignore[method-assign]
    return kind


def nested_too_deeply() -> MisuseError:
    """The error that replaces a RecursionError."""
    return MisuseError(
        "the program is nested too deeply for Python's stack",
        hint="bind subexpressions to variables, or use sys.setrecursionlimit(...)",
    )


def attach_position(
    error: RelaxpyError,
    caller: FrameType | None,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> None:
    """Set the position of `error` in `caller`, and hide internal frames, if that is user code.

    The position of a run-time error is never the line that runs the program.
    """
    if not is_user_frame(caller):
        return
    if caller is None:
        pass
    elif isinstance(error, UnknownAttributeError):
        error.located(attribute_span(caller, str(error.about)))
    elif not any(d.span for d in error.diagnostics) and not isinstance(error, RuntimeCheckError):
        error.located(argument_span(caller, args, kwargs, error.about))
    error.hide_internal_frames()


def position_now(frame: FrameType) -> Position | None:
    """The position that a frame is executing: lines from 1 and byte columns from 0."""
    positions = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, end_line, column, end_column = next(positions, (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, column, end_line, end_column


def argument_span(
    frame: FrameType, args: Sequence[object], kwargs: Mapping[str, object], about: object
) -> Span | None:
    """The span of the argument `about` in the call that `frame` executes.

    If the argument is not found, the span is that of the callee's name. For an operator of Python
    it is the whole expression, and for the end of a `with` block the context managers. Without
    source text it is None.
    """
    position = position_now(frame)
    if position is None:
        return None
    source = _source_of(frame)
    node = None if source is None else _executed(source.text, position)
    if source is None or node is None:
        return None
    if isinstance(node, ast.With):
        first, last = node.items[0].context_expr, node.items[-1].context_expr
        header = ast.copy_location(ast.Name(""), first)
        header.end_lineno, header.end_col_offset = last.end_lineno, last.end_col_offset
        return span_of(header, source)
    if isinstance(node, ast.Subscript):
        return span_of(node.slice, source)
    if not isinstance(node, ast.Call):
        return span_of(node, source)
    count = len(node.args)
    # `args` may include `self` of a method, or all fields of a dataclass.
    alignments = (args[max(0, len(args) - count) :], args[1 : count + 1], args[:count])
    nodes = (argument_node(node, values, kwargs, about) for values in alignments)
    return span_of(next(filter(None, nodes), None) or last_name(node.func), source)


def attribute_span(frame: FrameType, name: str) -> Span | None:
    """The span of the attribute `name` that `frame` is reading."""
    position, source = position_now(frame), _source_of(frame)
    if position is None or source is None:
        return None
    line = source.line(position[2]).encode()
    start = position[3] - len(name.encode())
    if line[max(start, 0) : position[3]].decode(errors="replace") != name:
        return None
    node = ast.Name(name)
    node.lineno = node.end_lineno = position[2]
    node.col_offset, node.end_col_offset = start, position[3]
    return span_of(node, source)


def line_span(frame: FrameType | None) -> Span | None:
    """The span of what the innermost user frame executes, from `frame` outwards."""
    while frame is not None and not is_user_frame(frame):
        frame = frame.f_back
    if frame is None or (position := position_now(frame)) is None:
        return None
    source = _source_of(frame)
    line, column, end_line, end_column = position
    starts = ast.Name("", lineno=line, col_offset=column)
    starts.end_lineno, starts.end_col_offset = end_line, end_column
    return None if source is None else span_of(starts, source)


def _source_of(frame: FrameType) -> Source | None:
    file = frame.f_code.co_filename
    lines = linecache.getlines(file, frame.f_globals)
    known, source = _sources.get(file, (None, None))
    if lines and known is not lines:
        source = Source(file, "".join(lines))
        if len(_sources) == _FILES:
            _sources.clear()
        _sources[file] = lines, source
    return source if lines else None


_FILES: Final = 16
_sources: Final[dict[str, tuple[list[str], Source]]] = {}
"""The lines of some files, and the source of all spans in each: few calls are in other files."""


_Executable: TypeAlias = ast.Call | ast.Subscript | ast.BinOp | ast.Compare | ast.With


def _executed(text: str, position: Position) -> ast.expr | ast.With | None:
    """The node that is executed at a position; calls and subscripts have unique ends."""
    for node in _executables(text).get(position[2:], ()):
        is_at_position = (node.lineno, node.col_offset) == position[:2]
        if isinstance(node, (ast.Call, ast.Subscript)) or is_at_position:
            return node
    return None


@functools.lru_cache(maxsize=4)
def _executables(text: str) -> dict[tuple[int | None, int | None], list[ast.expr | ast.With]]:
    """The calls, subscripts, operators, decorators and `with` blocks of a file, by where they end.

    Files are kept, so that a loop over calls that are refused parses its file once.
    """
    by_end: dict[tuple[int | None, int | None], list[ast.expr | ast.With]] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return by_end  # a notebook cell with magic commands in it
    for node in ast.walk(tree):
        executed = [node] if isinstance(node, _Executable) else getattr(node, "decorator_list", ())
        for each in executed:
            by_end.setdefault((each.end_lineno, each.end_col_offset), []).append(each)
    return by_end


def span_of(node: ast.expr, source: Source) -> Span:
    """The span of `node`, which was parsed from the whole of `source`."""
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
    """The number of characters in the first `offset` bytes of a line."""
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def argument_node(
    node: ast.Call, args: Sequence[object], kwargs: Mapping[str, object], about: object
) -> ast.expr | None:
    """The argument, or an element of one, whose value is the object `about`."""
    if about is None:
        return None
    arguments = list(_arguments(node, args, kwargs))
    nodes = (node_about(argument, value, about) for argument, value in arguments)
    literals = (_literal(argument, about) for argument, _ in arguments if isinstance(about, str))
    return next(filter(None, (*nodes, *literals)), None)


def _arguments(
    node: ast.Call, args: Sequence[object], kwargs: Mapping[str, object]
) -> Iterator[tuple[ast.expr, object]]:
    if not any(isinstance(arg, ast.Starred) for arg in node.args) and len(node.args) == len(args):
        yield from zip(node.args, args, strict=True)
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg in kwargs:
            yield keyword.value, kwargs[keyword.arg]


def _literal(node: ast.expr, text: object) -> ast.expr | None:
    """The string literal `text` inside `node`."""
    literals = (n for n in ast.walk(node) if isinstance(n, ast.Constant))
    return next((n for n in literals if isinstance(n.value, str) and n.value == text), None)


def node_about(node: ast.expr, value: object, about: object) -> ast.expr | None:
    """The subexpression of `node` that evaluated to the object `about`."""
    if about is None:
        return None
    if value is about or _same_members(value, about):
        return node
    if isinstance(node, ast.Slice) and isinstance(value, slice):
        bounds = (node.lower, value.start), (node.upper, value.stop), (node.step, value.step)
        found = (node_about(bound, member, about) for bound, member in bounds if bound is not None)
        return next(filter(None, found), None)
    if not isinstance(node, (ast.Tuple, ast.List)) or not isinstance(value, (tuple, list)):
        return None
    if len(node.elts) != len(value):
        return None
    elements = zip(node.elts, value, strict=True)
    nodes = (node_about(element, member, about) for element, member in elements)
    return next(filter(None, nodes), None)


def _same_members(value: object, about: object) -> bool:
    """True if `about` is the node that the list or tuple `value` was converted to."""
    # An object of the user may have any attribute, or fail when it is asked for one.
    members = getattr(about, "fields", None) if hasattr(type(about), "fields") else about
    if not isinstance(value, (tuple, list)) or not isinstance(members, tuple) or not members:
        return False
    return len(value) == len(members) and all(map(operator.is_, value, members))


def last_name(node: ast.expr) -> ast.expr:
    """A node at the position of the last name of an attribute path."""
    end = node.end_col_offset
    if not isinstance(node, ast.Attribute) or end is None or node.end_lineno is None:
        return node
    tail = ast.Name(node.attr)
    tail.lineno = tail.end_lineno = node.end_lineno
    tail.end_col_offset = end
    tail.col_offset = end - len(node.attr.encode())
    return tail
