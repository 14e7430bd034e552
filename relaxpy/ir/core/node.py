"""The base of everything in the IR: immutable nodes that name those fields that are structure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir import hooks


class Node:
    """Data of the language: frozen, printable, compared as its kind says.

    `_fields` are the fields that make the node what it is, in the order in which variables come
    into being; positions, cached and derived values are not among them. In `_binds` are those whose
    variables are defined there, in `_binds_sizes` those where shape variables are, too, in
    `_owns_sizes` those where only shape variables that stand alone are. What a node
    with `_scope` defines ends with it. A `_variable` is an identity: it is compared field by field
    where it is defined, and by its definition everywhere else; one that `_defines_itself` is
    defined where it is first met, if nowhere else. Where `_judged_by` names another attribute for a
    field, sameness of programs is judged by that one.
    """

    __slots__ = ("__weakref__",)
    _fields: ClassVar[tuple[str, ...]] = ()
    _judged_by: ClassVar[Mapping[str, str]] = {}
    _binds: ClassVar[frozenset[str]] = frozenset()
    _binds_sizes: ClassVar[frozenset[str]] = frozenset()
    _owns_sizes: ClassVar[frozenset[str]] = frozenset()
    _scope: ClassVar[bool] = False
    _variable: ClassVar[bool] = False
    _defines_itself: ClassVar[bool] = False

    def same_as(self, other: object) -> bool:
        """Whether `other` is this very node."""
        return self is other

    def script(self, **options: object) -> str:
        """The TVMScript text of this node; for `options` see `relaxpy.script.printer.script`."""
        text: str = hooks.call("script", self, **options)
        return text

    def show(
        self, style: str | None = None, black_format: bool | None = None, **options: object
    ) -> None:
        """Print the TVMScript text, in colour on a terminal and in a notebook.

        A `style`, "light", "dark" or "ansi", colours it everywhere; `options` are those of
        `script`, whose layout is always that of black.
        """
        hooks.call("show", self, style, black_format, **options)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """What a notebook shows."""
        bundle: dict[str, str] = hooks.call("html", self)
        return bundle

    @override
    def __str__(self) -> str:
        try:
            return self.script()
        except MisuseError:  # the printer refuses what is too deep or too large
            return too_deep(self)

    @override
    def __repr__(self) -> str:
        return str(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        """How pickle takes this node apart: all below it in one piece, so that depth is no limit.

        What is pickled together mentions the same variables afterwards, too.
        """
        from relaxpy.ir.serialize import reduced

        return reduced(self)


def too_deep(node: Node) -> str:
    """What stands for a node with more in each other than the stack, or any text, can hold."""
    return f"<{type(node).__name__}, nested too deeply to be shown>"


class Attrs(Mapping[str, "Attr"]):
    """An immutable table of compile-time parameters, readable as a mapping or by attribute."""

    __slots__ = ("_items",)
    _items: Mapping[str, Attr]

    def __init__(self, items: Mapping[str, object] | Iterable[tuple[str, object]] = ()) -> None:
        try:
            table = {str(k): freeze(v) for k, v in dict(items).items()}
        except RecursionError:
            raise MisuseError("an attribute is nested too deeply, or holds itself") from None
        except (TypeError, ValueError):
            raise MisuseError(
                f"attributes are a table of names and values, found {items!r:.60}", about=items
            ) from None
        object.__setattr__(self, "_items", MappingProxyType(table))

    @override
    def __getitem__(self, key: str) -> Attr:
        return self._items[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    @override
    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, key: str) -> Attr:
        try:
            return self._items[key]
        except KeyError:
            raise AttributeError(
                f"no attribute {key!r} among {', '.join(self) or 'none'}"
            ) from None

    @override
    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError("attributes of a node cannot be changed; build a new node")

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.keys() == other.keys() and all(_same(v, other[k]) for k, v in self.items())

    @override
    def __hash__(self) -> int:
        return hash(frozenset(self._items))  # equal values can have other texts, as 1 and 1.0 have

    @override
    def __repr__(self) -> str:
        return repr(dict(self._items))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return Attrs, (dict(self._items),)

    def updated(self, changes: Mapping[str, object]) -> Attrs:
        """These attributes with `changes` laid over them."""
        return Attrs({**self._items, **changes})

    def without(self, *keys: str) -> Attrs:
        """These attributes less those named."""
        return Attrs({k: v for k, v in self._items.items() if k not in keys})


def _same(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return one is other or bool(np.array_equal(one, other))  # type: ignore[arg-type]
    return one is other or bool(one == other)


Attr: TypeAlias = bool | int | float | str | tuple["Attr", ...] | Attrs | Node | object | None
EMPTY_ATTRS = Attrs()


_AS_THEY_ARE = frozenset((bool, int, float, str, type(None)))


def freeze(value: object) -> Attr:
    """`value` with lists as tuples, dicts as Attrs and arrays read-only, at every depth.

    Literals of the loop level and NumPy's numbers are what Python writes for them, annotations of a
    program the infos that they stand for.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, Mapping) and not isinstance(value, Attrs):
        return Attrs(value)
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.copy()
        value.flags.writeable = False
    if isinstance(value, (np.bool_, np.number, np.str_)) and not isinstance(value, np.longdouble):
        plain_value: Attr = value.item()
        return plain_value
    if not isinstance(value, Node):
        as_info = getattr(value, "__struct_info__", None)
        return value if as_info is None else as_info()
    plain = getattr(value, "__attr__", None)
    return value if plain is None else plain()


def as_attrs(value: Mapping[str, object] | None) -> Attrs:
    """`value` as Attrs; None gives the empty ones."""
    if value is None:
        return EMPTY_ATTRS
    return value if isinstance(value, Attrs) else Attrs(value)
