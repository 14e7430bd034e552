"""Positions in source text, diagnostics, and every exception class that relaxpy raises."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import override


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


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing wrong with a program: which rule, where, what was found, what to write instead."""

    message: str
    rule: str | None = None
    span: Span | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()

    def excerpt(self) -> tuple[str, str] | None:
        """The source line and, below it, the carets; None without a position."""
        span = self.span
        if span is None:
            return None
        text = span.source.line(span.line)
        if not text.strip():
            return None
        start = span.column - 1
        end = span.end_column - 1 if span.end_line == span.line else len(text)
        width = max(1, len(_cells(text[start:end].rstrip())))
        return text, _cells(text[:start]) + "^" * width

    @override
    def __str__(self) -> str:
        where = f"{self.span}: " if self.span is not None else ""
        rule = f" [{self.rule}]" if self.rule else ""
        lines = [f"{where}{self.message}{rule}"]
        excerpt = self.excerpt()
        if excerpt is not None:
            lines += [f"    {part}" for part in excerpt]
        lines += [f"  note: {note}" for note in self.notes]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class RelaxpyError(Exception):
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

    @override
    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.diagnostics)


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


class RuntimeCheckError(RelaxpyError, ValueError, TypeError):
    """A check at run time failed: the program stops (FN-10, MC-18)."""


class MatchCastError(RuntimeCheckError):
    """A value does not fit the info of a match_cast (MC-n)."""


class FunctionSignatureError(RuntimeCheckError):
    """An argument or result does not fit the function's signature (FN-n)."""


class PackedFuncError(RelaxpyError, ValueError):
    """A packed function is unknown, already registered, or failed."""


class UnknownNameError(RelaxpyError, KeyError, ValueError):
    """A name that the module, executable or registry does not have."""

    __str__ = RelaxpyError.__str__  # a KeyError shows the repr of its argument


class UnknownPackedFuncError(PackedFuncError, UnknownNameError):
    """No packed function is registered under a name."""


class MisuseError(RelaxpyError, TypeError, ValueError):
    """An argument of relaxpy's own Python interface is of the wrong kind or value."""


class BuilderStateError(MisuseError, RuntimeError):
    """A BlockBuilder is asked for what its open scopes do not allow."""


class RelaxpyWarning(UserWarning):
    """What can be neither proved nor refuted at compile time, or surely fails at run time."""


def close_names(name: str, known: Iterable[str]) -> str | None:
    """A hint naming what of `known` is spelt most like `name`, or None if nothing is."""
    found = difflib.get_close_matches(name, list(known), n=2, cutoff=0.7)
    return f"did you mean {' or '.join(repr(f) for f in found)}?" if found else None
