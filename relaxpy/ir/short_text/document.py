"""A document tree for pretty printing (Wadler style), and literals of Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType

if TYPE_CHECKING:
    import numpy.typing as npt

WIDTH = 100
INDENT = 4
_FEW = 12  # a group with more short items than these is filled: as many as fit on each line
_LONGEST = 1 << 24  # the text of a node with shared operands may have more than 2**40 characters
_DEEPEST = 40  # documents nested deeper than this are not broken


class Concat:
    """A concatenation of documents."""

    __slots__ = ("docs", "width")

    def __init__(self, *docs: Doc) -> None:
        self.docs = docs
        self.width = sum(map(width_of, docs))

    def flat_docs(self) -> Sequence[Doc]:
        """The documents to concatenate on one line."""
        return self.docs


class Group:
    """Items between brackets: on one line, or broken after the opening bracket.

    With `lone_comma` a single item is followed by a comma, as in a Python tuple. `text` caches the
    text on one line of a group of strings, and of one that is used often.
    """

    __slots__ = ("close", "items", "lone_comma", "open", "text", "width")

    def __init__(
        self, open: str, items: Iterable[Doc], close: str, *, lone_comma: bool = False
    ) -> None:
        self.open = open
        self.close = close
        self.items = tuple(items)
        self.lone_comma = lone_comma and len(self.items) == 1
        self.text: str | None = None
        if all(type(item) is str for item in self.items):
            strings: Iterable[str] = self.items  # type: ignore[assignment]
            self.text = f"{open}{', '.join(strings)}{',' if self.lone_comma else ''}{close}"
            self.width = len(self.text)
        else:
            inside = sum(map(width_of, self.items)) + 2 * max(0, len(self.items) - 1)
            self.width = len(open) + inside + len(close) + self.lone_comma

    def flat_docs(self) -> Sequence[Doc]:
        """The documents to concatenate on one line."""
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
    """`left sign right`; a broken one is parenthesised, and each line begins with a sign."""

    __slots__ = ("left", "level", "right", "sign", "width")

    def __init__(self, left: Doc, sign: str, right: Doc, level: int) -> None:
        self.left = left
        self.sign = sign
        self.right = right
        self.level = level
        self.width = width_of(left) + width_of(right) + len(sign) + 2

    def flat_docs(self) -> Sequence[Doc]:
        """The documents to concatenate on one line."""
        return (self.left, f" {self.sign} ", self.right)

    def chain(self) -> list[tuple[str, Doc]]:
        """The operands from left to right, each with its preceding operator."""
        out: list[tuple[str, Doc]] = []
        doc: Doc = self
        while isinstance(doc, Infix) and doc.level == self.level:
            out.append((doc.sign, doc.right))
            doc = doc.left
        out.append(("", doc))
        return out[::-1]


Doc: TypeAlias = str | Concat | Group | Infix


def width_of(doc: Doc) -> int:
    """The number of characters of `doc` on one line."""
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
        elif isinstance(top, Group) and top.text is not None:
            out.append(top.text)
        else:
            stack += top.flat_docs()[::-1]
    return "".join(out)


def _check_length(doc: Doc) -> None:
    if width_of(doc) > _LONGEST:
        raise MisuseError(
            f"the text has more than 2**{width_of(doc).bit_length() - 1} characters, too many to "
            "be shown",
            hint="bind what is used several times to a variable",
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
    """Lays documents out on lines of at most `width` characters, where brackets allow a break."""

    def __init__(self, width: int = WIDTH, indent: int = INDENT) -> None:
        self.width = width
        self.step = indent

    def lines(self, doc: Doc, indent: int) -> Iterator[str]:
        """The lines of `doc`, each with its indentation."""
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
        """Write `doc` at `column`, before `tail` more characters; return the column after it."""
        size = width_of(doc)
        if isinstance(doc, str) or column + size + tail <= self.width or depth > _DEEPEST:
            out.append(flat(doc))
            return column + size
        match doc:
            case Concat(docs=docs):
                for i, item_doc in enumerate(docs):
                    rest, breaks = _unbreakable_width(docs[i + 1 :])
                    rest += 0 if breaks else tail
                    column = self._lay(item_doc, indent, column, rest, out, depth + 1)
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
        """Write the items on one line of their own, or one per line, or filled."""
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


def _unbreakable_width(docs: Sequence[Doc]) -> tuple[int, bool]:
    """Count the characters before the first possible break; return whether there is a break."""
    total = 0
    for item_doc in docs:
        match item_doc:
            case Concat(docs=inner):
                size, breaks = _unbreakable_width(inner)
            case Group(open=opening, items=(_, *_)):
                size, breaks = len(opening), True
            case Infix():
                size, breaks = 1, True
            case _:
                size, breaks = width_of(item_doc), False
        total += size
        if breaks:
            return total, True
    return total, False


def string_text(value: str) -> str:
    """A string literal, in double quotes where no escapes are needed."""
    text = str.__repr__(value)  # members of a `StrEnum` override `__repr__`
    return text if '"' in text else f'"{text[1:-1]}"'


def float_text(value: float) -> str:
    """A float as the argument of a datatype; infinities and NaN are strings."""
    if math.isfinite(value):
        return repr(value)
    # Python writes NaN without its sign, and reads it with one.
    return '"-nan"' if math.isnan(value) and math.copysign(1, value) < 0 else f'"{value}"'


def python_float_text(value: float) -> str:
    """A float as a Python expression."""
    if math.isnan(value):  # the sign of 1e999 - 1e999 is that of the machine that reads it
        return f"float({float_text(value)})"
    return float.__repr__(value).replace("inf", "1e999")


def constant_literal(data: npt.NDArray[np.generic]) -> tuple[Doc, ...]:
    """The arguments of `R.const` that evaluate to `data` bit by bit."""
    dtype = DataType(data.dtype)
    dtype_text = f'"{dtype}"'
    if 0 in data.shape[:-1]:  # nested lists cannot express the columns of an array without rows
        return "[]", dtype_text, keyword("shape", tuple_doc(map(str, data.shape)))
    if not dtype.is_float:
        return _nested([str(v) for v in data.ravel().tolist()], data.shape), dtype_text
    return _nested(_float_elements(data), data.shape), dtype_text


def _float_elements(data: npt.NDArray[np.generic]) -> list[str]:
    """Floats as the shortest literals that round-trip; as their bits where none does."""
    values = data.ravel()
    texts = [str(v) for v in values]
    parsed = np.array([float(t) for t in texts]).astype(data.dtype)
    bits_dtype = np.dtype(f"u{data.dtype.itemsize}")
    bits = np.ascontiguousarray(values).view(bits_dtype)
    for i in np.flatnonzero(bits != parsed.view(bits_dtype)):
        # Some datatypes print fewer digits than they have, and NaN is printed without its sign.
        texts[i] = f"0x{bits[i]:x}"
        for text in (repr(float(values[i])), "-nan"):
            if np.array([float(text)]).astype(data.dtype).view(bits_dtype)[0] == bits[i]:
                texts[i] = text
                break
    return [_float_element(text) for text in texts]


def _float_element(text: str) -> str:
    if text.endswith(("nan", "inf")) or text.startswith("0x"):
        return f'"{text}"'
    return f"{text}.0" if text.lstrip("-").isdigit() else text  # -0 would be the integer 0


def _nested(values: list[str], shape: tuple[int, ...]) -> Doc:
    """The elements as nested lists."""
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    rows = (_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))
    return Group("[", rows, "]")
