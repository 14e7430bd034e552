"""The base class of the IR: immutable nodes that declare their structural fields."""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from dataclasses import fields as dataclass_fields
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.support.dataclass import attributes
from relaxpy.support.entry import user_facing


class CopiedByReference:
    """A mixin for immutable objects, whose copies are the objects themselves."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Node(CopiedByReference):
    """The base class of all IR nodes, which are frozen and printable.

    `_fields` are the structural fields, in the order in which they define variables; spans, cached
    and derived values are not among them. `_binds` are the fields whose variables are defined
    there, `_binds_shape_vars` those that define shape variables, too, and
    `_binds_bare_shape_vars` those that define only shape variables that are a whole dimension. The
    definitions inside a node with `_scope` end with that node. A `_variable` has identity:
    structural equality compares its fields where it is defined, and its definition at each use. A
    variable that `_defines_itself` is defined at its first use if it is not defined elsewhere.
    `_compared_as` maps a field to the attribute that structural equality compares instead.
    `_derived_from` are the fields from whose struct info that of the node follows; None means that
    it depends on all fields. Nodes that are `_shared` form a graph: two programs are equal only if
    they use the same ones several times. A class has `_bits`, and `_bits_inside` are those of the
    classes that may occur in a node, itself included; where that is not known, all bits are set.
    """

    __slots__ = ("__weakref__", "_nodes")
    _nodes: tuple[Node, ...]
    _fields: ClassVar[tuple[str, ...]] = ()
    _compared_as: ClassVar[Mapping[str, str]] = {}
    _binds: ClassVar[frozenset[str]] = frozenset()
    _binds_shape_vars: ClassVar[frozenset[str]] = frozenset()
    _binds_bare_shape_vars: ClassVar[frozenset[str]] = frozenset()
    _derived_from: ClassVar[frozenset[str] | None] = None
    _scope: ClassVar[bool] = False
    _variable: ClassVar[bool] = False
    _defines_itself: ClassVar[bool] = False
    _shared: ClassVar[bool] = False
    _bits: ClassVar[int] = -1
    _bits_inside: int = -1

    def same_as(self, other: object) -> bool:
        """True if `other` is this node itself."""
        return self is other

    def _children(self) -> tuple[Node, ...]:
        """The nodes in the fields, in order; tuples and mappings are searched."""
        try:
            return self._nodes
        except AttributeError:
            nodes = tuple(self._nodes_in_fields())
            object.__setattr__(self, "_nodes", nodes)
            return nodes

    def _nodes_in_fields(self) -> list[Node]:
        nodes: list[Node] = []
        for value in _GETTERS[type(self)](self):
            kind = type(value)
            if kind is tuple:
                for item in value:
                    if isinstance(item, Node):
                        nodes.append(item)
                    else:
                        collect_nodes(item, nodes)
            elif isinstance(value, Node):
                nodes.append(value)
            elif kind not in PLAIN_TYPES and value is not EMPTY_ATTRS:
                collect_nodes(value, nodes)
        return nodes

    def _alike(self, changes: Mapping[str, object]) -> Self | None:
        """This node over other operands of the same kinds and datatypes, which are not checked.

        None if the constructor has to derive something.
        """
        return None

    @user_facing
    def script(self, **options: object) -> str:
        """The TVMScript text; for `options` see `relaxpy.script.printer.script`."""
        text: str = hooks.call("script", self, **options)
        return text

    def astext(self, show_meta_data: bool = True) -> str:
        """The TVMScript text, by the name that it had in TVM before `script`."""
        return self.script(show_meta=show_meta_data)

    @user_facing
    def show(
        self, style: str | None = None, black_format: bool | None = None, **options: object
    ) -> None:
        """Print the TVMScript text, in colour on a terminal and in a notebook.

        With a `style` of "light", "dark" or "ansi" the text is coloured everywhere. `options` are
        those of `script`, which always lays text out as black does.
        """
        hooks.call("show", self, style, black_format, **options)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The HTML that a notebook shows."""
        bundle: dict[str, str] = hooks.call("html", self)
        return bundle

    @override
    def __str__(self) -> str:
        try:
            return self.script()
        except MisuseError:  # the printer refuses nodes that are too deep or too large
            return too_deep(self)

    @override
    def __repr__(self) -> str:
        return str(self)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle this node with all nodes below it as one text, so that depth is not limited.

        Nodes that are pickled together share their variables when they are loaded.
        """
        result: tuple[Any, ...] = hooks.call("reduced", self)
        return result


class Copied(Node):
    """The base class of the nodes of kernels that derive nothing from their fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[Mapping[str, object]]

    @override
    def _alike(self, changes: Mapping[str, object]) -> Self:
        new = object.__new__(type(self))
        for name in self.__dataclass_fields__:
            value = changes[name] if name in changes else getattr(self, name)
            object.__setattr__(new, name, value)
        return new


class _Getters(dict[type[Node], Callable[[Node], tuple[Any, ...]]]):
    """The functions that read the structural fields of each class of nodes."""

    def __missing__(self, cls: type[Node]) -> Callable[[Node], tuple[Any, ...]]:
        self[cls] = getter = attributes(cls._fields)
        return getter


_GETTERS: Final = _Getters()


def field_values(node: Node) -> tuple[Any, ...]:
    """The values of the structural fields, in order."""
    return _GETTERS[type(node)](node)


def is_function(value: object) -> bool:
    """True if this is a Python callable other than a node (nodes can be called, too)."""
    return callable(value) and not isinstance(value, Node)


def too_deep(node: Node) -> str:
    """A placeholder for a node that is nested too deeply, or is too large, to be printed."""
    return f"<{type(node).__name__}, nested too deeply to be shown>"


#: Types without nodes inside. Most fields have one of them, and `isinstance(.., Mapping)` is slow.
PLAIN_TYPES: Final = frozenset((str, int, bool, float, DataType, type(None)))


def collect_nodes(value: object, nodes: list[Node]) -> None:
    """Append the nodes in a value to `nodes`, however deep in tuples and mappings."""
    if isinstance(value, Node):
        nodes.append(value)
    elif isinstance(value, tuple):
        for item in value:
            if isinstance(item, Node):
                nodes.append(item)
            elif type(item) not in PLAIN_TYPES:
                collect_nodes(item, nodes)
    elif (
        type(value) not in PLAIN_TYPES
        and not isinstance(value, int)  # kinds of loops
        and isinstance(value, Mapping)
    ):
        for key, item in value.items():
            collect_nodes(key, nodes)
            collect_nodes(item, nodes)


class TypedInt(int):
    """An integer attribute as code written for TVM reads it, where it is an `IntImm`."""

    dtype: ClassVar[DataType] = DataType("int64")

    @property
    def value(self) -> int:
        """The number itself."""
        return int(self)


def _typed(value: Attr) -> Attr:
    if type(value) is int:
        return TypedInt(value)
    return tuple(map(_typed, value)) if type(value) is tuple else value


class Attrs(CopiedByReference, Mapping[str, "Attr"]):
    """An immutable table of compile-time parameters, readable as a mapping or by attribute."""

    __slots__ = ("_items",)
    _items: Mapping[str, Attr]

    def __init__(self, items: Mapping[str, object] | Iterable[tuple[str, object]] = ()) -> None:
        try:
            table = {str(k): freeze(v) for k, v in dict(items).items()}
        except RecursionError:
            raise MisuseError("an attribute is nested too deeply, or contains itself") from None
        except MisuseError:
            raise
        except (TypeError, ValueError):
            raise unexpected(items, "attributes are a table of names and values") from None
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

    @override
    def __contains__(self, key: object) -> bool:
        return key in self._items

    @override
    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or else `default`."""
        return self._items.get(key, default)

    @override
    def items(self) -> ItemsView[str, Attr]:
        """The names and values."""
        return self._items.items()

    def __getattr__(self, key: str) -> Attr:
        try:
            return _typed(self._items[key])
        except KeyError:
            raise AttributeError(
                f"no attribute {key!r} among {', '.join(self) or 'none'}"
            ) from None

    def get_int(self, key: str) -> int:
        """The integer under `key`."""
        return int(self._of_kind(key, int, "an integer"))

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        """The integers under `key`."""
        return tuple(map(int, self._of_kind(key, tuple, "integers")))

    def get_str(self, key: str) -> str:
        """The string under `key`."""
        return str(self._of_kind(key, str, "a string"))

    def _of_kind(self, key: str, kind: type, noun: str) -> Any:
        value = self.__getattr__(key)
        check_type(value, kind, f"expected {noun} under {key!r}")
        return value

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
        return hash(frozenset(self._items))  # of the keys alone: values need not be hashable

    @override
    def __repr__(self) -> str:
        return repr(dict(self._items))

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return Attrs, (dict(self._items),)

    def updated(self, changes: Mapping[str, object]) -> Attrs:
        """These attributes updated with `changes`."""
        return Attrs({**self._items, **changes})

    def without(self, *keys: str) -> Attrs:
        """These attributes without `keys`."""
        return Attrs({k: v for k, v in self._items.items() if k not in keys})


def _same(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return one is other or bool(np.array_equal(one, other))  # type: ignore[arg-type]
    return one is other or bool(one == other)


Attr: TypeAlias = bool | int | float | str | tuple["Attr", ...] | Attrs | Node | object | None
EMPTY_ATTRS = Attrs()


_SCALARS = frozenset((bool, int, float, str, type(None)))


def freeze(value: object) -> Attr:
    """Convert `value` to an immutable attribute.

    At every depth, lists become tuples, dicts become Attrs and arrays become read-only. Literals of
    TIR and NumPy scalars become Python scalars, and annotations such as `R.Tensor` become struct
    info.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, (list, tuple)):
        try:
            return tuple(freeze(v) for v in value)
        except RecursionError:
            raise MisuseError("a list is nested too deeply, or contains itself") from None
    if isinstance(value, Mapping) and not isinstance(value, Attrs):
        return Attrs(value)
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.copy()
        value.flags.writeable = False
    if isinstance(value, (np.bool_, np.number, np.str_)) and not isinstance(value, np.longdouble):
        plain_value: Attr = value.item()
        return plain_value
    convert = getattr(value, "__attr__", None)
    if convert is None and not isinstance(value, Node):
        convert = getattr(value, "__struct_info__", None)
    return value if convert is None else convert()


def as_attrs(value: Mapping[str, object] | None) -> Attrs:
    """Convert `value` to Attrs; None and an empty table give EMPTY_ATTRS."""
    if value is None:
        return EMPTY_ATTRS
    return (value if isinstance(value, Attrs) else Attrs(value)) or EMPTY_ATTRS


_MODULES: Final = re.compile(r"\b\w+\.(?=\w)")
"""The modules before names in an annotation."""


class Conversions:
    """Field conversions in the constructors of some kinds of node: functions by annotations.

    An annotation names classes without their modules. A missing list that has a default is read as
    that.
    """

    def __init__(self, by_annotation: Mapping[str, Callable[[Any], object]]) -> None:
        self._by_annotation = by_annotation
        self._steps: dict[type[Node], list[tuple[str, Any, Callable[[Any], object]]]] = {}

    def apply(self, node: Node) -> None:
        """Convert the structural fields of a node under construction."""
        steps = self._steps.get(type(node))
        if steps is None:
            steps = self._steps[type(node)] = [
                (field.name, field.default, self._by_annotation[kind])
                for field in dataclass_fields(type(node))  # type: ignore[arg-type]
                if field.name in node._fields
                and (kind := _MODULES.sub("", str(field.type))) in self._by_annotation
            ]
        for name, default, convert in steps:
            value = getattr(node, name)
            new = convert(default if value is None and default == () else value)
            if new is not value:
                object.__setattr__(node, name, new)


def checks_of(
    nouns: Mapping[type[Node], str], rule: str | None = None
) -> dict[str, Callable[[Any], Any]]:
    """The functions that check fields of these kinds, and lists of them, by annotations.

    Their errors cite the rule of the fields of nodes.
    """
    found: dict[str, Callable[[Any], Any]] = {}
    for kind, noun in nouns.items():
        found[kind.__name__] = partial(_check, kind, noun, rule, optional=False)
        found[f"{kind.__name__} | None"] = partial(_check, kind, noun, rule, optional=True)
        found[f"tuple[{kind.__name__}, ...]"] = partial(_check_all, kind, noun, rule)
    return found


def _check(
    kind: type[Node], noun: str, rule: str | None, value: object, *, optional: bool
) -> object:
    if not isinstance(value, kind) and not (optional and value is None):
        raise unexpected(value, f"expected a {noun}", rule=rule)
    return value


def _check_all(kind: type[Node], noun: str, rule: str | None, values: Any) -> tuple[object, ...]:
    if type(values) is not tuple and (
        isinstance(values, (str, Node)) or not isinstance(values, Iterable)
    ):
        raise unexpected(values, f"expected a list of {noun}s", rule=rule)
    items = tuple(values)
    for item in items:
        if not isinstance(item, kind):
            message = f"expected a list of {noun}s, found {item!r:.60} in it"
            raise MisuseError(message, rule=rule, about=item)
    return items


def set_fields(node: object, **fields: object) -> None:
    """Set fields of a frozen node that is under construction."""
    for name, value in fields.items():
        object.__setattr__(node, name, value)
