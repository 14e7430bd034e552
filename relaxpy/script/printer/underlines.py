"""Components of a program that its text underlines or annotates, line numbers, and excerpts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from relaxpy.errors import check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.mismatch import AccessPath
from relaxpy.ir.short_text.document import Concat, Doc
from relaxpy.script.printer.options import Options

START, END = "\ufdd0", "\ufdd1"  # no text contains these: string literals escape them


class Marks:
    """The components to underline and to annotate, and the lines that were written for them.

    A path means the component at its end or, where the text does not show that one, the longest
    prefix whose component it shows. `shown` has the components that were written so far.
    """

    def __init__(self, root: Node, options: Options, shown: frozenset[int] | None = None) -> None:
        self.shown: set[int] = set()
        self._underlined: set[int] = set()
        self._annotations: dict[int, str] = {}
        self._lines: list[range] = []
        self._comments: list[tuple[int, str]] = []
        for component in options.obj_to_underline or ():
            self._underlined.add(id(component))
        for component, text in (options.obj_to_annotate or {}).items():
            self._annotations[id(component)] = text
        for path in options.path_to_underline or ():
            self._underlined.update(_targets(root, path, shown))
        for path, text in (options.path_to_annotate or {}).items():
            self._annotations.update(dict.fromkeys(_targets(root, path, shown), text))

    @contextmanager
    def statement(self, lines: list[str], nodes: Iterable[Node]) -> Iterator[None]:
        """Mark the lines that are written inside as those of `nodes`."""
        start = len(lines)
        yield
        for key in map(id, nodes):
            self.shown.add(key)
            if key in self._underlined:
                self._lines.append(range(start, len(lines)))
            if key in self._annotations:
                self._comments.append((start, self._annotations[key]))

    def doc(self, node: object, doc: Doc) -> Doc:
        """Return `doc`, the text of `node`, marked if it is to be underlined."""
        self.shown.add(id(node))
        if id(node) not in self._underlined:
            return doc
        marked = Concat(START, doc, END)
        marked.width -= 2  # the marks are removed
        return marked

    def name(self, node: object, name: str) -> str:
        """Return the name of a variable, marked if it is to be underlined."""
        self.shown.add(id(node))
        return f"{START}{name}{END}" if id(node) in self._underlined else name

    def finished(self, lines: list[str], options: Options) -> list[str]:
        """Return the lines with underlines and comments, numbered and cut as in `options`."""
        plain, spans = _without_marks(lines)
        for marked in self._lines:
            for index in marked:
                text = plain[index]
                if text:
                    spans[index].append((len(text) - len(text.lstrip()), len(text)))
        for index, comment in self._comments:
            plain[index] += f"  # {comment}"
        return _shown(plain, spans, options.print_line_numbers, options.num_context_lines)


def underlined_text(lines: Iterable[str], *, numbered: bool, context: int) -> list[str]:
    """Return lines with what is between marks underlined; a `context` below 0 keeps all lines."""
    plain, spans = _without_marks(lines)
    return _shown(plain, spans, numbered, context)


def _shown(
    plain: list[str], spans: list[list[tuple[int, int]]], numbered: bool, context: int
) -> list[str]:
    """Return the lines with the columns in `spans` underlined, and others left out."""
    kept = _excerpt([bool(found) for found in spans], context)
    width = len(str(len(plain))) + 1 if numbered else 0
    out: list[str] = []
    skipped = 0
    for index, text in enumerate(plain):
        if not kept[index]:
            skipped += 1
            if index + 1 == len(plain) or kept[index + 1]:
                out.append(f"(... {skipped} lines skipped ...)")
                skipped = 0
            continue
        number = f"{index + 1:>{width - 1}} " if width else ""
        out.append(f"{number}{text}".rstrip())
        if spans[index]:
            out.append(" " * width + _underline(spans[index]))
    return out


def _targets(root: Node, path: AccessPath, shown: frozenset[int] | None) -> list[int]:
    """Return the component that `path` means; all that it may mean while `shown` is unknown."""
    check_type(path, AccessPath, "expected an AccessPath")
    value: object = root
    found = [id(root)]
    for kind, step in path.steps:
        try:
            value = getattr(value, str(step)) if kind == "attr" else value[step]  # type: ignore[index]
        except (AttributeError, LookupError, TypeError):
            break
        found.append(id(value))
    if shown is None:
        return []
    return [key for key in found if key in shown][-1:]


def _without_marks(lines: Iterable[str]) -> tuple[list[str], list[list[tuple[int, int]]]]:
    """Remove the marks; return the lines and the columns of what is marked in each of them."""
    plain: list[str] = []
    spans: list[list[tuple[int, int]]] = []
    opened = 0
    for line in lines:
        text = ""
        found: list[tuple[int, int]] = []
        indent = len(line) - len(line.lstrip())
        begin = [indent] * opened
        for char in line:
            if char == START:
                begin.append(len(text))
            elif char == END:
                found.append((begin.pop(), len(text)))
            else:
                text += char
        opened = len(begin)
        found += ((start, len(text)) for start in begin)
        plain.append(text)
        spans.append([span for span in found if span[0] < span[1]])
    return plain, spans


def _excerpt(is_marked: list[bool], context: int) -> list[bool]:
    """Return which lines to keep: those around a mark; a single line is not left out."""
    if context < 0 or not any(is_marked):
        return [True] * len(is_marked)
    kept = [any(is_marked[max(0, i - context) : i + context + 1]) for i in range(len(is_marked))]
    for i, keep in enumerate(kept):
        before, after = kept[i - 1] if i else True, kept[i + 1] if i + 1 < len(kept) else True
        if not keep and before and after:
            kept[i] = True
    return kept


def _underline(spans: list[tuple[int, int]]) -> str:
    columns = {column for start, stop in spans for column in range(start, stop)}
    return "".join("^" if i in columns else " " for i in range(max(columns) + 1))


def is_marked(options: Options) -> bool:
    """True if the text has underlines, comments or line numbers."""
    paths: tuple[object, ...] = (options.path_to_underline, options.path_to_annotate)
    objects: tuple[object, ...] = (options.obj_to_underline, options.obj_to_annotate)
    return bool(options.print_line_numbers or any(paths) or any(objects))


def has_paths(options: Options) -> bool:
    """True if components are given by their paths."""
    return bool(options.path_to_underline or options.path_to_annotate)
