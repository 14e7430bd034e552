"""Positions in source text, diagnostics, and every exception class that relaxpy raises."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Final, Literal, Self

from typing_extensions import override

from relaxpy.screen import Piece, coloured, ipython, takes_colour

_GENERATED: Final = "relaxpy_generated"
_OURS: Final = frozenset(("relaxpy", _GENERATED))
_BENEATH: Final = sys.stdlib_module_names | {"numpy"}
_NOTEBOOK: Final = frozenset(("IPython", "ipykernel"))
#: The environment variable that keeps the frames of relaxpy in tracebacks.
FULL_TRACEBACK: Final = "RELAXPY_FULL_TRACEBACK"

#: The characters of a message, of a word in one, and of a source line quoted below one.
MAX_MESSAGE: Final = 8_000
MAX_WORD: Final = 200
MAX_LINE: Final = 160
_LONG_WORD: Final = re.compile(rf"\S{{{MAX_WORD + 1},}}")


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A text to read programs from; `first_line` is the number of its first line in the file."""

    name: str
    text: str = field(repr=False)
    first_line: int = 1
    _lines: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lines", re.split(r"\r\n|\r|\n", self.text))

    def line(self, number: int) -> str:
        """The text of line `number` of the file, without its end; empty where there is none."""
        index = number - self.first_line
        return self._lines[index] if 0 <= index < len(self._lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a source: lines and character columns from 1, `end_column` exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def file(self) -> str:
        """The name of the file, or of what stands for one."""
        return self.source.name

    def covers(self, other: Span) -> bool:
        """Whether `other` is part of this stretch, or all of it."""
        return (
            self.file == other.file
            and (self.line, self.column) <= (other.line, other.column)
            and (other.end_line, other.end_column) <= (self.end_line, self.end_column)
        )

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def _cells(text: str) -> str:
    """Blanks as wide as `text` is on a terminal; tabs stay tabs, wide characters take two."""
    out = []
    for char in text:
        if char == "\t":
            out.append("\t")
        elif unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        else:
            out.append("  " if unicodedata.east_asian_width(char) in "WF" else " ")
    return "".join(out)


def clipped(text: str) -> str:
    """`text` with long words shortened in their middle, and cut where it is too long itself."""
    if len(text) <= MAX_WORD:
        return text
    text = _LONG_WORD.sub(lambda word: f"{word[0][:80]}…{word[0][-20:]}", text)
    rest = len(text) - MAX_MESSAGE
    return text if rest <= 0 else f"{text[:MAX_MESSAGE]}… ({rest} more characters)"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing wrong with a program: which rule, where, what was found, what to write instead.

    Its texts are clipped here, whoever writes them: they quote names, strings and digits of a
    program, each of which may be megabytes long.
    """

    message: str
    rule: str | None = None
    span: Span | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", clipped(self.message))
        object.__setattr__(self, "hint", self.hint and clipped(self.hint))
        object.__setattr__(self, "notes", tuple(map(clipped, self.notes)))

    @property
    def where(self) -> str:
        """The position as messages begin with it; empty without one."""
        return "" if self.span is None else f"{self.span}: "

    def excerpt(self) -> tuple[str, str] | None:
        """The source line and, below it, the carets; None without a position.

        Of a long line it is the part around the first caret.
        """
        span = self.span
        if span is None:
            return None
        text = span.source.line(span.line)
        if not text.strip():
            return None
        start = span.column - 1
        end = span.end_column - 1 if span.end_line == span.line else len(text)
        if len(text) > MAX_LINE:
            first = max(0, min(start - MAX_LINE // 2, len(text) - MAX_LINE))
            last = first + MAX_LINE
            before, after = "…" if first else "", "…" if last < len(text) else ""
            text = before + text[first:last] + after
            moved = len(before) - first
            start, end = start + moved, min(end, last) + moved
        width = max(1, len(_cells(text[start:end].rstrip())))
        return text, _cells(text[:start]) + "^" * width

    @override
    def __str__(self) -> str:
        return self.text(self.where)

    def text(self, where: str) -> str:
        """The message behind the position `where`, the excerpt, notes and hint below it."""
        return "".join(part for part, _ in self.pieces(where))

    def pieces(self, where: str) -> Iterator[Piece]:
        """The parts of that text, with their styles."""
        yield where, "bold"
        yield self.message, "bold red"
        if self.rule:
            yield f" [{self.rule}]", "magenta"
        excerpt = self.excerpt()
        if excerpt is not None:
            line, carets = excerpt
            yield f"\n    {line}\n    ", ""
            yield carets, "bold red"
        for note in self.notes:
            yield "\n  note: ", "cyan"
            yield note, ""
        if self.hint:
            yield "\n  hint: ", "green"
            yield self.hint, ""


class RelaxpyError(RuntimeError):
    """Whatever is wrong with a program, its input or its use: `diagnostics`, all at once.

    `about` is the very value at fault, where there is one: whoever read it knows where it stands.
    """

    diagnostics: tuple[Diagnostic, ...]
    about: object

    def __init__(
        self,
        message: str | Diagnostic | Sequence[Diagnostic] = "",
        *,
        rule: str | None = None,
        span: Span | None = None,
        hint: str | None = None,
        notes: Iterable[str] = (),
        about: object = None,
    ) -> None:
        if isinstance(message, Diagnostic):
            diagnostics: tuple[Diagnostic, ...] = (message,)
        elif isinstance(message, str):
            diagnostics = (Diagnostic(message, rule, span, hint, tuple(notes)),)
        else:
            diagnostics = tuple(message)
        super().__init__(diagnostics)
        self.diagnostics = diagnostics
        self.about = about
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = show_uncaught

    @property
    def diagnostic(self) -> Diagnostic:
        """The first diagnostic."""
        return self.diagnostics[0]

    def located(self, span: Span | None) -> RelaxpyError:
        """This error with `span` given to each diagnostic that has none yet."""
        if span is not None:
            self.diagnostics = tuple(
                d if d.span is not None else replace(d, span=span) for d in self.diagnostics
            )
        return self

    def hinted(self, hint: str) -> Self:
        """This error with `hint` for what to write instead."""
        self.diagnostics = tuple(replace(d, hint=hint) for d in self.diagnostics)
        return self

    def noted(self, note: str | None) -> Self:
        """This error with one more note on its first diagnostic."""
        if note is not None:
            first, *rest = self.diagnostics
            self.diagnostics = (replace(first, notes=(*first.notes, note)), *rest)
        return self

    def leave_insides(self) -> None:
        """Make this error what users meet: with their frames alone.

        What relaxpy was handling is no context of theirs. What a running program finds wrong
        without a place has that of the line that ran.
        """
        if isinstance(self, RuntimeCheckError) and not any(d.span for d in self.diagnostics):
            self._located_by_lines()
        if os.environ.get(FULL_TRACEBACK):
            return
        self.__traceback__ = users_part(self.__traceback__)
        while (context := self.__context__) is not None and _began_inside(context):
            self.__context__ = context.__context__
        self.__suppress_context__ = self.__cause__ is not None

    def _located_by_lines(self) -> None:
        """Take the position of the innermost line that has one; a note names the call around it."""
        found = list(_places_of_lines(self.__traceback__))
        if not found:
            return
        inner = found[-1]
        outer = [span for span in found if not span.covers(inner)]
        notes = (f"called at {outer[-1]}",) if outer else ()
        self.diagnostics = tuple(
            replace(d, span=inner, notes=(*d.notes, *notes)) for d in self.diagnostics
        )

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython and Jupyter show: where the user's own code was, the message."""
        if os.environ.get(FULL_TRACEBACK):
            text = "".join(traceback.format_exception(self))
            return text.rstrip("\n").split("\n")
        lines: list[str] = []
        for file, line in list(_users_lines(self.__traceback__))[-2:]:
            lines += [
                f"{_place(file)}, line {line}",
                "    " + linecache.getline(file, line).strip(),
            ]
        marked = [list(d.pieces(_readable(d.span))) for d in self.diagnostics]
        message = "\n".join("".join(part for part, _ in pieces) for pieces in marked)
        lines += [f"{type(self).__name__}: {message}", *getattr(self, "__notes__", ())]
        cause = self.__cause__
        if cause is not None:
            lines.append(f"caused by {type(cause).__name__}: {cause}")
        text = "\n".join(lines)
        plain = str(getattr(ipython(), "colors", "")).lower() == "nocolor"
        if takes_colour(sys.stdout) and not plain:
            text = coloured(text, marked, sys.stdout)
        return text.split("\n")

    @override
    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.diagnostics)


def show_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an error that nobody caught as Python does; those of relaxpy without its insides.

    On a terminal they are in colour. It stands in the place of Python's own `sys.excepthook` from
    the first of them on.
    """
    stream = sys.stderr
    if isinstance(error, RelaxpyError) and not os.environ.get(FULL_TRACEBACK):
        trace = users_part(trace)
        error.__traceback__ = trace
    if not isinstance(error, RelaxpyError) or not takes_colour(stream):
        sys.__excepthook__(kind, error, trace)
        return
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.insert(0, current)
        implied = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or implied
    diagnostics = (d for e in chain if isinstance(e, RelaxpyError) for d in e.diagnostics)
    text = "".join(traceback.format_exception(kind, error, trace))
    stream.write(coloured(text, (list(d.pieces(d.where)) for d in diagnostics), stream))


PLACE_OF_LINE: Final = "__relaxpy_place_of_line__"
"""The global of a generated text that tells what its lines stand for."""


def _places_of_lines(trace: TracebackType | None) -> Iterator[Span]:
    """What the lines that ran stand for, the outermost first, of those that stand for something."""
    while trace is not None:
        place = trace.tb_frame.f_globals.get(PLACE_OF_LINE)
        span = place and place(trace.tb_lineno)
        if span is not None:
            yield span
        trace = trace.tb_next


def is_users(frame: FrameType | None) -> bool:
    """Whether a frame runs code that is neither relaxpy's nor generated by it.

    So it does where there is no frame, as the interpreter itself calls what is run at exit.
    """
    return frame is None or _package(frame) not in _OURS


def _began_inside(error: BaseException) -> bool:
    """Whether an error was handled by relaxpy or a library beneath, not by users' code."""
    trace = error.__traceback__
    return trace is None or _package(trace.tb_frame) in _OURS | _BENEATH


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of relaxpy and of the libraries it calls itself by."""
    return _joined(entry for entry, place in _places(trace) if place == "users'")


def leave_foreign(error: BaseException) -> None:
    """Of an error from users' code that relaxpy called, keep their frames and the program's lines.

    Where relaxpy itself went wrong, its frames tell where.
    """
    places = list(_places(error.__traceback__))
    if os.environ.get(FULL_TRACEBACK) or not places or places[-1][1] == "inside":
        return
    error.__traceback__ = _joined(
        entry
        for entry, place in places
        if place == "users'" or _package(entry.tb_frame) == _GENERATED
    )


def _places(
    trace: TracebackType | None,
) -> Iterator[tuple[TracebackType, Literal["users'", "inside", "between"]]]:
    """Where each frame of a traceback is: between are those of relaxpy that call users' code.

    Such functions have a local variable named `_calls_users`.
    """
    place: Literal["users'", "inside", "between"] = "users'"
    while trace is not None:
        package = _package(trace.tb_frame)
        if package in _OURS:
            calls_users = "_calls_users" in trace.tb_frame.f_code.co_varnames
            place = "between" if calls_users else "inside"
        elif place == "between" or package not in _BENEATH:
            place = "users'"
        yield trace, place
        trace = trace.tb_next


def _joined(entries: Iterable[TracebackType]) -> TracebackType | None:
    found: TracebackType | None = None
    for entry in reversed(list(entries)):
        found = TracebackType(found, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return found


def _users_lines(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    """Where in the user's own code an error passed, but for decorators: they tell nothing."""
    for frame, line in traceback.walk_tb(users_part(trace)):
        file = frame.f_code.co_filename
        text = linecache.getline(file, line).strip()
        if _package(frame) not in _NOTEBOOK and text and not text.startswith("@"):
            yield file, line


def _place(file: str) -> str:
    """What a notebook calls one of its cells; other files as they are."""
    shell = ipython()
    name = None if shell is None else shell.compile.format_code_name(file)
    return f"File {file}" if name is None else " ".join(name)


def _readable(span: Span | None) -> str:
    """A position in words that notebooks make a link of."""
    if span is None:
        return ""
    return f"{_place(span.file)}, line {span.line}, column {span.column}: "


class ParseError(RelaxpyError, ValueError):
    """The text is not a program of the language."""


class WellFormedError(RelaxpyError, ValueError):
    """The program breaks a well-formedness criterion (WF-n)."""


class StructInfoError(RelaxpyError, ValueError):
    """The infos of a program's parts do not fit together (DER-n, CMP-n, PU-n)."""


class StructInfoTypeError(StructInfoError, TypeError):
    """As StructInfoError, where the kind or datatype is wrong."""


class TransformError(RelaxpyError, ValueError):
    """A pass cannot be applied to this module, or is used wrongly."""


class CompileError(RelaxpyError, ValueError):
    """The module cannot be turned into running code for this target."""


class RuntimeCheckError(RelaxpyError, ValueError, TypeError, RuntimeError):
    """A check at run time failed: the program stops (FN-10, MC-18)."""


class AssertionFailedError(RuntimeCheckError, AssertionError):
    """What an `R.assert_op` demands does not hold."""


class MatchCastError(RuntimeCheckError):
    """A value does not fit the info of a match_cast (MC-n)."""


class FunctionSignatureError(RuntimeCheckError):
    """An argument or result does not fit the function's signature (FN-n)."""


class PackedFuncError(RelaxpyError, ValueError):
    """A packed function is unknown, already registered, or failed.

    Where it failed, `failure` is the exception it raised, and the error is of that class as well.
    """

    failure: Exception | None = None

    @override
    def leave_insides(self) -> None:
        if self.failure is None:
            super().leave_insides()
        else:
            if not any(d.span for d in self.diagnostics):
                self._located_by_lines()
            leave_foreign(self)


class UnknownNameError(RelaxpyError, KeyError, ValueError):
    """A name that the module, executable or registry does not have."""

    __str__ = RelaxpyError.__str__  # a KeyError shows the repr of its argument


class UnknownAttributeError(RelaxpyError, AttributeError):
    """A name that a namespace of the language does not have."""

    # Python sets it, and adds a suggestion of its own to the text, where the hint has one.
    name = property(lambda self: None, lambda self, value: None)


def unknown_attribute(
    owner: object, name: str, display_name: str, functions: Iterable[str]
) -> AttributeError:
    """The error for an attribute that `owner`, whose functions are items, does not have."""
    message = f"{type(owner).__name__} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(message, name=name, obj=owner)
    known = list(functions)
    if name in known:
        hint: str | None = f'functions are items: {display_name}["{name}"]'
    else:
        hint = close_names(name, (n for n in dir(type(owner)) if not n.startswith("_")))
        if hint is None and known:
            entry = "main" if "main" in known else known[0]
            hint = f'functions are called by name, as in {display_name}["{entry}"](...)'
    return UnknownAttributeError(message, hint=hint, about=name)


class UnknownPackedFuncError(PackedFuncError, UnknownNameError):
    """No packed function is registered under a name."""


class MisuseError(RelaxpyError, TypeError, ValueError):
    """An argument of relaxpy's own Python interface is of the wrong kind or value."""


class MissingArgumentError(MisuseError):
    """An argument that is needed was not given."""


class BuilderStateError(MisuseError):
    """A BlockBuilder is asked for what its open scopes do not allow."""


class RelaxpyWarning(UserWarning):
    """What can be neither proved nor refuted at compile time, or surely is not what is meant."""

    diagnostic: Diagnostic | None = None


def warn(diagnostic: Diagnostic) -> None:
    """Issue a RelaxpyWarning at the place in the program that `diagnostic` names.

    Python's filters for modules and lines see the user's program, which is shown once for a line.
    """
    warning = RelaxpyWarning(diagnostic.text(""))
    warning.diagnostic = diagnostic
    span = diagnostic.span
    if span is None:
        warnings.warn(warning, stacklevel=3)
        return
    file = os.path.abspath(span.file)
    known = (m for m in list(sys.modules.values()) if _file_of(m) == file)
    names = vars(next(known, sys.modules[__name__]))
    registry = names.setdefault("__warningregistry__", {})
    module = names["__name__"] if _file_of(names) == file else "__main__"
    warnings.warn_explicit(warning, RelaxpyWarning, span.file, span.line, module, registry)


def _file_of(module: object) -> str | None:
    names = module if isinstance(module, dict) else getattr(module, "__dict__", {})
    file = names.get("__file__")
    return os.path.abspath(file) if isinstance(file, str) else None


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`count` of `noun`; the plural is the noun with an s unless it is given."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def digits(value: object) -> str:
    """A value as Python writes it; an integer of very many digits by how large it is."""
    if isinstance(value, int) and value.bit_length() > 400:
        return f"{'-' if value < 0 else ''}2**{value.bit_length() - 1}…"
    try:
        return f"{value!r:.130}"
    except ValueError:
        return f"a {type(value).__name__} of integers of too many digits"


def close_names(name: str, known: Iterable[str]) -> str | None:
    """A hint naming what of `known` is spelt most like `name`, or None if nothing is."""
    found = nearest(name, known)
    return f"did you mean {' or '.join(repr(f) for f in found)}?" if found else None


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most two of `known` that are as few edits from `name` as any: one for three letters.

    A longer name than MAX_WORD is no misspelling, and among more than MAX_MESSAGE names none is
    looked for: each comparison takes the product of two lengths.
    """
    limit = len(name) // 3
    ranks: dict[tuple[int, int], list[str]] = {}
    others = set(known) - {name}
    if len(name) > MAX_WORD or len(others) > MAX_MESSAGE:
        return []
    for other in sorted(others):
        edits = edit_distance(name.casefold(), other.casefold(), limit)
        if edits <= limit:
            # Capitals are no edits, but of names otherwise as near the one with the same is meant.
            capitals = sum(a.isupper() != b.isupper() for a, b in zip(name, other, strict=False))
            ranks.setdefault((edits, capitals), []).append(other)
            limit = edits
    return ranks[min(ranks)][:2] if ranks else []


def edit_distance(a: str, b: str, limit: int) -> int:
    """How many letters to insert, delete, change or exchange with their neighbour make `a` `b`.

    Where that is more than `limit`, some number above it.

    Rule:
        Optimal string alignment distance (Damerau, CACM 7(3), 1964).
    """
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        earlier, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]
