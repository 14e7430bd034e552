"""Documents: text that knows where its lines may break, and the one place that breaks them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from relaxpy.errors import MisuseError

WIDTH = 100
INDENT = 4
_FEW = 12  # of more words than these, as many as fit stand on a line
_LONGEST = 1 << 24  # no one reads more characters, and what is shared may well have 2**40
_DEEPEST = 40  # beyond this nesting, indentation leaves nothing to gain


class Concat:
    """Documents one after the other."""

    __slots__ = ("parts", "width")

    def __init__(self, *parts: Doc) -> None:
        self.parts = parts
        self.width = sum(map(width_of, parts))

    def pieces(self) -> Sequence[Doc]:
        """What stands on the line when nothing breaks."""
        return self.parts


class Group:
    """Items between brackets: on one line, or broken after the opening one.

    With `lone_comma` a single item is followed by a comma, as Python's tuples need it. One that
    stands in many places has its `text` on one line kept.
    """

    __slots__ = ("close", "items", "lone_comma", "open", "text", "width")

    def __init__(
        self, open: str, items: Iterable[Doc], close: str, *, lone_comma: bool = False
    ) -> None:
        self.text: str | None = None
        self.open = open
        self.close = close
        self.items = tuple(items)
        self.lone_comma = lone_comma and len(self.items) == 1
        inside = sum(map(width_of, self.items)) + 2 * max(0, len(self.items) - 1)
        self.width = len(open) + inside + len(close) + self.lone_comma

    def pieces(self) -> Sequence[Doc]:
        """What stands on the line when nothing breaks."""
        if self.text is not None:
            return (self.text,)
        out: list[Doc] = [self.open]
        for item in self.items:
            out += (item, ", ")
        if self.items:
            out[-1] = "," if self.lone_comma else ""
        out.append(self.close)
        return out


class Infix:
    """`left sign right`; broken, it stands in parentheses with each sign at a line's beginning."""

    __slots__ = ("left", "level", "right", "sign", "width")

    def __init__(self, left: Doc, sign: str, right: Doc, level: int) -> None:
        self.left = left
        self.sign = sign
        self.right = right
        self.level = level
        self.width = width_of(left) + width_of(right) + len(sign) + 2

    def pieces(self) -> Sequence[Doc]:
        """What stands on the line when nothing breaks."""
        return (self.left, f" {self.sign} ", self.right)

    def chain(self) -> list[tuple[str, Doc]]:
        """The operands from the left, each with the sign before it ("" for the first)."""
        out: list[tuple[str, Doc]] = []
        doc: Doc = self
        while isinstance(doc, Infix) and doc.level == self.level:
            out.append((doc.sign, doc.right))
            doc = doc.left
        out.append(("", doc))
        return out[::-1]


Doc: TypeAlias = str | Concat | Group | Infix


def width_of(doc: Doc) -> int:
    """Characters that `doc` takes when nothing breaks."""
    return len(doc) if isinstance(doc, str) else doc.width


def flat(doc: Doc) -> str:
    """The text of `doc` on one line.

    Errors:
        MisuseError: it is longer than 16 million characters.
    """
    if isinstance(doc, str):
        return doc
    _check_length(doc)
    out: list[str] = []
    stack: list[Doc] = [doc]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
        else:
            stack += top.pieces()[::-1]
    return "".join(out)


def _check_length(doc: Doc) -> None:
    if width_of(doc) > _LONGEST:
        raise MisuseError(
            f"the text has more than 2**{width_of(doc).bit_length() - 1} characters, too many to "
            "be shown",
            hint="bind to a variable what stands in several places",
        )


def call(name: str, *args: Doc) -> Group:
    """`name(args...)`."""
    return Group(f"{name}(", args, ")")


def tuple_doc(items: Iterable[Doc]) -> Group:
    """`(a, b)`, `(a,)` or `()`."""
    return Group("(", items, ")", lone_comma=True)


def keyword(name: str, value: Doc) -> Concat:
    """`name=value`."""
    return Concat(f"{name}=", value)


class Layout:
    """Writes documents as lines of at most `width` characters, where their brackets allow it."""

    def __init__(self, width: int = WIDTH, indent: int = INDENT) -> None:
        self.width = width
        self.step = indent

    def lines(self, doc: Doc, indent: int) -> Iterator[str]:
        """The lines of `doc`, the first and all others with their indentation."""
        if indent + width_of(doc) <= self.width:
            yield " " * indent + flat(doc)
            return
        _check_length(doc)
        out: list[str] = [" " * indent]
        self._lay(doc, indent, indent, 0, out, 0)
        yield from "".join(out).split("\n")

    def _lay(
        self, doc: Doc, indent: int, column: int, tail: int, out: list[str], depth: int
    ) -> int:
        """Write `doc` from `column` on; `tail` characters follow. Gives the column after it."""
        size = width_of(doc)
        if isinstance(doc, str) or column + size + tail <= self.width or depth > _DEEPEST:
            out.append(flat(doc))
            return column + size
        match doc:
            case Concat(parts=parts):
                for i, part in enumerate(parts):
                    rest, breaks = _head(parts[i + 1 :])
                    rest += 0 if breaks else tail
                    column = self._lay(part, indent, column, rest, out, depth + 1)
                return column
            case Group(items=()):
                out.append(flat(doc))
                return column + size
            case Group():
                out.append(doc.open)
                self._lay_items(doc, indent + self.step, out, depth)
            case Infix():
                out.append("(")
                inner = indent + self.step
                for sign, operand in doc.chain():
                    lead = f"{sign} " if sign else ""
                    out.append(f"\n{' ' * inner}{lead}")
                    self._lay(operand, inner, inner + len(lead), 0, out, depth + 1)
        close = ")" if isinstance(doc, Infix) else doc.close
        out.append(f"\n{' ' * indent}{close}")
        return indent + len(close)

    def _lay_items(self, group: Group, indent: int, out: list[str], depth: int) -> None:
        """The items on one line of their own if they fit, else one a line; many words fill up."""
        inside = group.width - len(group.open) - len(group.close)
        newline = "\n" + " " * indent
        if indent + inside <= self.width:
            out.append(newline)
            out += flat(Group("", group.items, "", lone_comma=group.lone_comma))
            return
        room = 0
        for item in group.items:
            size = width_of(item) + 1
            if isinstance(item, str) and len(group.items) > _FEW and size < room:
                out.append(f" {item},")
                room -= size + 1
                continue
            out.append(newline)
            self._lay(item, indent, indent, 1, out, depth + 1)
            out.append(",")
            room = self.width - indent - size if isinstance(item, str) else 0


def _head(parts: Sequence[Doc]) -> tuple[int, bool]:
    """Characters before the first place where `parts` may break, and whether there is one."""
    total = 0
    for part in parts:
        match part:
            case Concat(parts=inner):
                size, breaks = _head(inner)
            case Group(open=opening, items=(_, *_)):
                size, breaks = len(opening), True
            case Infix():
                size, breaks = 1, True
            case _:
                size, breaks = width_of(part), False
        total += size
        if breaks:
            return total, True
    return total, False
