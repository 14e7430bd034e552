"""Names of variables: unique in their scope, and deterministic."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from relaxpy.ir.core.node import Node
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.short_text.document import Doc
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var

_PYTHON = frozenset((*keyword.kwlist, *dir(builtins)))
#: No names for the functions of a module, which may have other built-in names such as `sum`.
_NOT_FUNCTIONS = frozenset((*keyword.kwlist, "range"))


def hint_of(node: Node) -> str:
    """The preferred name of a variable."""
    if isinstance(node, (Var, Buffer)):
        return node.name
    return str(getattr(node, "name_hint", ""))


def as_identifier(hint: str) -> str:
    """A Python name like `hint`, without the leading underscores that the parser rejects."""
    if hint.isascii() and hint.isidentifier() and not hint.startswith("__"):
        return hint
    name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", hint))
    name = re.sub(r"^__+", "_", name)
    return name if name.isidentifier() else f"v{name}"


def is_name(text: str) -> bool:
    """True if `text` is an identifier that Python's normalisation (NFKC) leaves unchanged."""
    plain = text.isascii() or unicodedata.normalize("NFKC", text) == text
    return plain and text.isidentifier() and not keyword.iskeyword(text)


def function_names(hints: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """The names in the text of the functions called `hints`: the same where that is possible.

    The functions of a module are attributes of its class, so few other names clash with theirs.
    """
    taken = {*_NOT_FUNCTIONS, *reserved}
    names: dict[str, str] = {}
    for hint in sorted(hints, key=lambda h: as_identifier(h) != h):
        base = name = as_identifier(hint)
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        names[hint] = name
    return names


def _key(node: Node) -> int | str:
    """The key of a variable; a GlobalVar is identified by its name (AST-8)."""
    return node.name_hint if isinstance(node, GlobalVar) else id(node)


class Marking(Protocol):
    """Marks the texts to underline."""

    def doc(self, node: object, doc: Doc) -> Doc:
        """Return `doc`, the text of `node`, marked if it is to be underlined."""

    def name(self, node: object, name: str) -> str:
        """Return the name of `node`, marked if it is to be underlined."""


class Names:
    """The names of variables in a text, none of which is in `reserved`.

    `functions` has the text for each function of the module, such as `cls.main`.
    """

    def __init__(
        self, reserved: Iterable[str] = (), functions: Mapping[str, str] | None = None
    ) -> None:
        self.marks: Marking | None = None
        self.show_address = False
        self._taken = {*_PYTHON, *reserved}
        self._counts: dict[str, int] = {}
        self._functions: Mapping[Any, str] = functions or {}
        self._names: dict[int | str, str] = {}
        self._undo: list[tuple[Node | None, str, str, int]] = []

    def __contains__(self, node: Node) -> bool:
        return _key(node) in self._names or _key(node) in self._functions

    def fresh(self, hint: str) -> str:
        """An unused name."""
        return self._claim(None, hint)

    def bind(self, node: Node, hint: str | None = None) -> str:
        """Choose a new name for `node`, like `hint` or else its preferred name."""
        hint = hint_of(node) if hint is None else hint
        name = self._claim(node, f"{hint}_{id(node):#x}" if self.show_address else hint)
        self._names[_key(node)] = name
        return name

    def alias(self, node: Node, name: str) -> None:
        """Give `node` a name that is already in use."""
        self._names[_key(node)] = name

    def of(self, node: Node) -> str:
        """The name of `node`; one without a definition gets a name here."""
        key = _key(node)
        name = self._names.get(key) or self._functions.get(key)
        name = self.bind(node) if name is None else name
        return name if self.marks is None else self.marks.name(node, name)

    def _claim(self, node: Node | None, hint: str) -> str:
        base = as_identifier(hint)
        previous = count = self._counts.get(base, 0)
        name = base
        if count or name in self._taken:
            stem = base if base.endswith("_") else f"{base}_"
            count = max(count, 1)
            while (name := f"{stem}{count}") in self._taken:
                count += 1
        self._undo.append((node, name, base, previous))
        self._taken.add(name)
        self._counts[base] = count + 1
        return name

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Open a scope, whose names are available again when it ends."""
        start = len(self._undo)
        yield
        while len(self._undo) > start:
            node, name, base, count = self._undo.pop()
            self._taken.discard(name)
            self._counts[base] = count
            if node is not None:
                self._names.pop(_key(node), None)
