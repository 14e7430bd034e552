"""All exception classes of relaxpy, and how they are shown."""

from __future__ import annotations

import linecache
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from inspect import isclass, ismodule, isroutine
from types import TracebackType, UnionType
from typing import Any, Final, Self

from typing_extensions import override

from relaxpy.support.absent import instead_of
from relaxpy.support.dataclass import replace
from relaxpy.support.diagnostics import Diagnostic as Diagnostic, Source as Source, Span as Span
from relaxpy.support.frames import (
    FULL_TRACEBACK,
    is_user_frame,
    keep_callback_frames,
    user_frames,
    user_lines,
    was_handled_inside,
)
from relaxpy.support.missing import described, nearest
from relaxpy.support.screen import coloured, ipython, takes_colour

#: The line of an annotation of a parameter or of a result.
_ANNOTATION: Final = re.compile(r"(?::|->)\s*[RT]\.\w+\(")


def _without_program(message: str, about: object) -> str:
    """The message with the type of `about` where the beginning of its text has several lines."""
    if "\n" not in message:
        return message
    found = type(about).__name__
    for quoted in (repr(about), f"{about!r:.60}"):
        if "\n" in quoted:
            message = message.replace(f"{found} {quoted}", quoted)
            message = message.replace(quoted, f"a value of type {found}")
    return message


class RelaxpyError(RuntimeError):
    """The base class of all errors in a program, its input or its use, with their `diagnostics`.

    `about` is the object that caused the error, if there is one. The parser, which created the
    object, finds its position by identity. A message that quotes a whole program has its type.
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
            message = _without_program(message, about)
            diagnostics = (Diagnostic(message, rule, span, hint, tuple(notes)),)
        else:
            diagnostics = tuple(message)
        super().__init__(diagnostics)
        self.diagnostics = diagnostics
        self.about = about
        show_uncaught_errors()

    @property
    def diagnostic(self) -> Diagnostic:
        """The first diagnostic."""
        return self.diagnostics[0]

    def located(self, span: Span | None) -> RelaxpyError:
        """Set `span` on each diagnostic that has none; return this error."""
        if span is not None:
            self.diagnostics = tuple(
                d if d.span is not None else replace(d, span=span) for d in self.diagnostics
            )
        return self

    def hinted(self, hint: str) -> Self:
        """Set the hint of all diagnostics; return this error."""
        self.diagnostics = tuple(replace(d, hint=hint) for d in self.diagnostics)
        return self

    def ruled(self, rule: str) -> Self:
        """Set `rule` on each diagnostic that cites none; return this error."""
        self.diagnostics = tuple(replace(d, rule=d.rule or rule) for d in self.diagnostics)
        return self

    def noted(self, note: str | None) -> Self:
        """Add a note to the first diagnostic; return this error."""
        if note is not None:
            first, *rest = self.diagnostics
            self.diagnostics = (replace(first, notes=(*first.notes, note)), *rest)
        return self

    def hide_internal_frames(self) -> None:
        """Keep only the user's frames in the traceback, and drop errors handled inside relaxpy.

        A run-time error without a position gets the position of the line that ran.
        """
        found_by_running = isinstance(self, (RuntimeCheckError, UnknownPackedFuncError))
        if found_by_running and not any(d.span for d in self.diagnostics):
            self._locate_by_generated_lines()
        if os.environ.get(FULL_TRACEBACK):
            return
        self.__traceback__ = user_frames(self.__traceback__)
        while (context := self.__context__) is not None and was_handled_inside(context):
            self.__context__ = context.__context__
        self.__suppress_context__ = self.__cause__ is not None

    def _locate_by_generated_lines(self) -> None:
        """Use the span of the innermost generated line that has one; add a note with the caller."""
        spans = list(_spans_of_generated_lines(self.__traceback__))
        if not spans:
            return
        inner = spans[-1]
        outer = [span for span in spans if not span.covers(inner)]
        notes = (f"called at {outer[-1]}",) if outer else ()
        self.diagnostics = tuple(
            replace(d, span=inner, notes=(*d.notes, *notes)) for d in self.diagnostics
        )

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython and Jupyter show: user code, then the message."""
        if os.environ.get(FULL_TRACEBACK):
            import traceback

            text = "".join(traceback.format_exception(self))
            return text.rstrip("\n").split("\n")
        lines: list[str] = []
        for file, line in list(user_lines(self.__traceback__))[-2:]:
            lines += [
                f"{_display_name(file)}, line {line}",
                "    " + linecache.getline(file, line).strip(),
            ]
        styled = [list(d.styled_texts(_readable(d.span))) for d in self.diagnostics]
        message = "\n".join("".join(text for text, _ in texts) for texts in styled)
        lines += [f"{type(self).__name__}: {message}", *getattr(self, "__notes__", ())]
        cause = self.__cause__
        if cause is not None:
            lines.append(f"caused by {type(cause).__name__}: {cause}")
        text = "\n".join(lines)
        plain = str(getattr(ipython(), "colors", "")).lower() == "nocolor"
        in_notebook = hasattr(ipython(), "kernel") and not os.environ.get("NO_COLOR")
        if in_notebook:
            styled = [[(part, _ON_RED.get(style, style)) for part, style in d] for d in styled]
        if (takes_colour(sys.stdout) or in_notebook) and not plain:
            text = coloured(text, styled, sys.stdout)
        return text.split("\n")

    @override
    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.diagnostics)


_ON_RED: Final = {
    "bold red": "bold",
    "magenta": "bright_cyan",
    "cyan": "bold bright_cyan",
    "green": "bold bright_cyan",
}
"""Styles that can be read on the background of errors in notebooks, light red or dark red."""


def show_uncaught_errors() -> None:
    """Let `show_uncaught` print the errors that end a program, unless the program has a hook.

    IPython, which has a hook of its own, shows hints of errors about names.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show_uncaught
    shell = ipython()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((NameError,), _show_name_error)


def _show_name_error(
    shell: Any,
    kind: type[BaseException],
    error: NameError,
    trace: TracebackType,
    tb_offset: int | None = None,
) -> None:
    """Show an error about a name as IPython does, with a hint."""
    add_quotation_hint(error)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset, running_compiled_code=True)


def add_quotation_hint(error: NameError) -> None:
    """Add a note to an error about a name in an annotation that is to be a string."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    if frames and error.name and _ANNOTATION.search(frames[-1].line or ""):
        error.add_note(f'hint: write "{error.name}", if it is the name of a size or a datatype')


def show_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an uncaught error as Python does, without relaxpy's own frames.

    On a terminal, errors of relaxpy are coloured. It replaces Python's own
    `sys.excepthook` when `relaxpy.script` is imported or the first RelaxpyError is created.
    """
    import traceback

    stream = sys.stderr
    if isinstance(error, NameError):
        add_quotation_hint(error)
    if isinstance(error, RelaxpyError) and not os.environ.get(FULL_TRACEBACK):
        trace = user_frames(trace)
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
    stream.write(coloured(text, (list(d.styled_texts(d.where)) for d in diagnostics), stream))


SPAN_OF_LINE: Final = "__relaxpy_span_of_line__"
"""The global variable of generated code with the function from its lines to program spans."""


def _spans_of_generated_lines(trace: TracebackType | None) -> Iterator[Span]:
    """The program spans of the generated lines that ran, the outermost first."""
    while trace is not None:
        span_of_line = trace.tb_frame.f_globals.get(SPAN_OF_LINE)
        span = span_of_line and span_of_line(trace.tb_lineno)
        if span is not None:
            yield span
        trace = trace.tb_next


def _display_name(file: str) -> str:
    """A notebook's name of a cell, or "File" and the file name."""
    shell = ipython()
    name = None if shell is None else shell.compile.format_code_name(file)
    return f"File {file}" if name is None else " ".join(name)


def _readable(span: Span | None) -> str:
    """A position in the format that notebooks turn into a link."""
    if span is None:
        return ""
    return f"{_display_name(span.file)}, line {span.line}, column {span.column}: "


class ParseError(RelaxpyError, ValueError):
    """The text is not a program of the language."""


class ParseNameError(ParseError, NameError):
    """A ParseError because of a name that is not defined."""


class ParseTypeError(ParseError, TypeError):
    """A ParseError because of arguments of a wrong kind, datatype or number."""


class WellFormedError(RelaxpyError, ValueError):
    """The program breaks a well-formedness criterion (WF-n)."""


class StructInfoError(RelaxpyError, ValueError):
    """The struct info of operands, arguments or results does not match (DER-n, CMP-n, PU-n)."""


class StructInfoTypeError(StructInfoError, TypeError):
    """A StructInfoError because of a wrong kind or datatype."""


class RelayTypeError(RelaxpyError, TypeError):
    """A Relay program is not well-typed (RLY-n): its types, kinds, relations or patterns."""


class TransformError(RelaxpyError, ValueError):
    """A pass cannot be applied to this module, or is misused."""


class ScheduleError(RelaxpyError, ValueError):
    """A primitive of a Schedule cannot be applied to this kernel."""


class CompileError(RelaxpyError, ValueError):
    """The module cannot be compiled for this target."""


class RuntimeCheckError(RelaxpyError, ValueError, TypeError, RuntimeError):
    """A check at run time failed: the program stops (FN-10, MC-18)."""


class AssertionFailedError(RuntimeCheckError, AssertionError):
    """The condition of an `R.assert_op` is false."""


class MatchCastError(RuntimeCheckError):
    """A value does not match the struct info of a match_cast (MC-n)."""


class FunctionSignatureError(RuntimeCheckError):
    """An argument or result does not match the function's signature (FN-n)."""


class PackedFuncError(RelaxpyError, ValueError):
    """A packed function is unknown, already registered, or failed.

    If it failed, `failure` is its exception, and this error is an instance of that class, too.
    """

    failure: Exception | None = None

    @override
    def hide_internal_frames(self) -> None:
        if self.failure is None:
            super().hide_internal_frames()
        else:
            if not any(d.span for d in self.diagnostics):
                self._locate_by_generated_lines()
            keep_callback_frames(self)


class UnknownNameError(RelaxpyError, KeyError, ValueError, AttributeError):
    """A module, executable or registry does not have this name."""

    __str__ = RelaxpyError.__str__  # a KeyError shows the repr of its argument


class UnknownAttributeError(RelaxpyError, AttributeError):
    """A namespace of the language does not have this attribute."""

    # Python sets `name`, and would then append a suggestion of its own to that of the hint.
    name = property(lambda self: None, lambda self, value: None)


class UnknownImportError(RelaxpyError, ImportError):
    """A module of relaxpy does not have the name that is imported from it."""


def unknown_attribute(
    owner: object, name: str, display_name: str, functions: Iterable[str]
) -> AttributeError:
    """The error for a missing attribute of `owner`, whose functions are its items."""
    message = f"{type(owner).__name__} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(message, name=name, obj=owner)
    known = list(functions)
    if name in known:
        hint: str | None = f'functions are items: {display_name}["{name}"]'
    else:
        hint = instead_of(f"{type(owner).__name__}.{name}") or close_names(
            name, (n for n in dir(type(owner)) if not n.startswith("_"))
        )
        near = nearest(name, known) if hint is None else []
        if near:
            hint = f'functions are items: did you mean {display_name}["{near[0]}"]?'
        elif hint is None and known:
            entry = "main" if "main" in known else known[0]
            hint = f'functions are items, as {display_name}["{entry}"]; dir() lists the attributes'
    return UnknownAttributeError(message, hint=hint, about=name)


class UnknownPackedFuncError(PackedFuncError, UnknownNameError):
    """No packed function is registered under a name."""


class MisuseError(RelaxpyError, TypeError, ValueError):
    """An argument of relaxpy's Python API has the wrong type or value."""


def unexpected(value: object, expected: str, **details: Any) -> MisuseError:
    """The error that an argument is not what is expected of it."""
    is_named = isclass(value) or isroutine(value) or ismodule(value)
    is_named = is_named or hasattr(value, "display_name")
    found = described(value) if is_named else f"{value!r:.60}"
    return MisuseError(f"{expected}, found {found}", **{"about": value, **details})


def check_type(
    value: object, kind: type | UnionType | tuple[type, ...], expected: str, **details: Any
) -> None:
    """Errors: MisuseError (also TypeError) if an argument is not of a kind."""
    if not isinstance(value, kind):
        raise unexpected(value, expected, **details)


class UnknownOptionError(MisuseError, AttributeError):
    """No pass has an option of this name, or its value has another type."""


class MissingArgumentError(MisuseError):
    """A required argument is missing."""


class BuilderStateError(MisuseError):
    """The open scopes of a BlockBuilder do not allow this call."""


class TrainerStateError(MisuseError):
    """A parameter or a state of a Trainer has no value yet."""


class RelaxpyWarning(UserWarning):
    """A check is undecided at compile time, or the program is probably not what the user means."""

    diagnostic: Diagnostic | None = None


def warn(diagnostic: Diagnostic) -> None:
    """Issue a RelaxpyWarning at the position of `diagnostic`.

    Python's warning filters apply to the module and line of the user's program.
    """
    warning = RelaxpyWarning(diagnostic.text(""))
    warning.diagnostic = diagnostic
    span = diagnostic.span
    if span is None:
        frame, level = sys._getframe(1), 2
        while not is_user_frame(frame) and frame.f_back is not None:
            frame, level = frame.f_back, level + 1
        warnings.warn(warning, stacklevel=level)
        return
    file = os.path.abspath(span.file)
    modules = (m for m in list(sys.modules.values()) if _file_of(m) == file)
    names = vars(next(modules, sys.modules[__name__]))
    registry = names.setdefault("__warningregistry__", {})
    module = names["__name__"] if _file_of(names) == file else "__main__"
    warnings.warn_explicit(warning, RelaxpyWarning, span.file, span.line, module, registry)


def _file_of(module: object) -> str | None:
    names = module if isinstance(module, dict) else getattr(module, "__dict__", {})
    file = names.get("__file__")
    return os.path.abspath(file) if isinstance(file, str) else None


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`count` with `noun` in the singular or plural; the default plural appends an s."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def close_names(name: str, known: Iterable[str], owner: str = "") -> str | None:
    """A hint with the names in `known` that are spelt like `name`, or None.

    Of a name of TVM that `owner` does not have, the hint says what to use instead.
    """
    if owner and (instead := instead_of(f"{owner}.{name}")):
        return instead
    names = nearest(name, known)
    return f"did you mean {' or '.join(map(repr, names))}?" if names else None
