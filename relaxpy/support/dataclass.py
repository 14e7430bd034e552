"""The decorator of the dataclasses of relaxpy, which creates them faster than the standard one.

`dataclasses.dataclass` compiles the text of every method when a class is created, which would take
almost half of the time of importing relaxpy. Here it compiles the constructor only, on first use.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import lru_cache, partial
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

T = TypeVar("T")


def _dataclass(
    cls: type | None = None,
    /,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    """Make `cls` a dataclass as the standard library does; there are no fields of type InitVar.

    The functions of `dataclasses` apply, and a standard dataclass may be derived from one of these.
    """

    def decorated(cls: type) -> type:
        own = _own_fields(cls, kw_only)
        cls = _with_slots(cls, own) if slots else _with_defaults(cls, own)
        inherited = (vars(base).get("__dataclass_fields__", {}) for base in cls.__mro__[:0:-1])
        members: dict[str, Field[Any]] = {}
        for more in (*inherited, own):
            members |= more
        cls.__dataclass_fields__ = members  # type: ignore[attr-defined]
        cls.__dataclass_params__ = _FROZEN if frozen else _CHANGEABLE  # type: ignore[attr-defined]
        fields = dataclasses.fields(cls)
        if init:
            _add(cls, "__init__", _Constructor(cls, fields, frozen=frozen))
        if repr:
            _add(cls, "__repr__", _representation(tuple(f.name for f in fields if f.repr)))
        if eq:
            _add_equality(cls, fields, frozen=frozen)
        if frozen:
            _add_protection(cls, frozenset(members))
            if slots:
                _add(cls, "__getstate__", _state)
                _add(cls, "__setstate__", _set_state)
        _add(cls, "__match_args__", tuple(f.name for f in fields if f.init and not f.kw_only))
        return cls

    return decorated if cls is None else decorated(cls)


class _Arguments(dict[type, tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]]):
    """The names of the fields of each class that its constructor takes, and what reads them."""

    def __missing__(self, cls: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
        names = tuple(field.name for field in dataclasses.fields(cls) if field.init)
        self[cls] = found = names, attributes(names)
        return found


_arguments: Final = _Arguments()


def _replace(instance: T, **changes: object) -> T:
    """An instance with some fields replaced, which `dataclasses.replace` creates more slowly."""
    cls = type(instance)
    names, values = _arguments[cls]
    return cls(**dict(zip(names, values(instance), strict=True)) | changes)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass, replace as replace
else:
    dataclass, replace = _dataclass, _replace


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Changeable:
    """A class with the attributes by which the standard library recognises dataclasses."""

    field: int


@dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True)
class _Frozen:
    """The same, of a frozen class."""


_CHANGEABLE: Final = _Changeable.__dataclass_params__  # type: ignore[attr-defined]
_FROZEN: Final = _Frozen.__dataclass_params__  # type: ignore[attr-defined]
_FACTORY: Final = dataclasses._HAS_DEFAULT_FACTORY  # type: ignore[attr-defined]
_INSTANCES: Final = 8
"""The number of instances for which no constructor is compiled."""
_SELF, _ABSENT, _SET = "self", "_absent", "_set"
"""Names in constructors, which no field has."""
_FIELD_TYPE: Final = dataclasses.fields(_Changeable)[0]._field_type  # type: ignore[attr-defined]


def _own_fields(cls: type, kw_only: bool) -> Mapping[str, Field[Any]]:
    """The fields that the body of a class declares."""
    own: dict[str, Field[Any]] = {}
    for name, kind in inspect.get_annotations(cls).items():
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        value = vars(cls).get(name, dataclasses.MISSING)
        field: Any = value if isinstance(value, Field) else dataclasses.field(default=value)
        if type(field.default).__hash__ is None:
            raise ValueError(f"field {name} needs a default_factory: its default can be changed")
        field.name, field.type = name, kind
        field._field_type = _FIELD_TYPE
        if field.kw_only is dataclasses.MISSING:
            field.kw_only = kw_only
        own[name] = field
    return own


def _with_slots(cls: type, own: Mapping[str, Field[Any]]) -> type:
    """The class again, with its own fields in slots."""
    inherited: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = vars(base).get("__slots__", ())
        inherited |= {slots} if isinstance(slots, str) else set(slots)
    body = {name: value for name, value in vars(cls).items() if name not in own}
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    body["__slots__"] = tuple(name for name in own if name not in inherited)
    body["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, body)


def _with_defaults(cls: type, own: Mapping[str, Field[Any]]) -> type:
    """The class, in which a default value is an attribute and not a Field."""
    for name, field in own.items():
        if field.default is not dataclasses.MISSING:
            setattr(cls, name, field.default)
        elif name in vars(cls):
            delattr(cls, name)
    return cls


def _add(cls: type, name: str, value: object) -> None:
    """Set an attribute, unless the body of the class defines it."""
    if name not in cls.__dict__:
        if isinstance(value, FunctionType):
            value.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, value)


class _Constructor:
    """The constructor of a class until it has been used some times, when it is compiled.

    Most classes have few instances in a process, or none: compiling takes as long as 30 of them.
    """

    def __init__(self, cls: type, fields: tuple[Field[Any], ...], *, frozen: bool) -> None:
        self._cls, self._fields, self._frozen = cls, fields, frozen
        self._positions = [f.name for f in fields if f.init and not f.kw_only]
        self._left = _INSTANCES

    def __get__(self, instance: object, owner: type) -> Callable[..., None]:
        if instance is None or self._left <= 0:
            return self._compiled().__get__(instance, owner)  # type: ignore[no-any-return]
        self._left -= 1
        return partial(self._fill, instance)

    def _compiled(self) -> Any:
        function: Any = _compiled_constructor(self._cls, self._fields, frozen=self._frozen)
        function.__qualname__ = f"{self._cls.__qualname__}.__init__"
        if vars(self._cls).get("__init__") is self:
            self._cls.__init__ = function
        return function

    def _fill(self, instance: Any, /, *args: Any, **values: Any) -> None:
        """Do what the compiled constructor does, which raises the errors for other arguments."""
        named = dict(zip(self._positions, args, strict=False))
        given = {**named, **values}
        attributes: dict[str, Any] = {}
        for field in self._fields:
            if field.init and field.name in given:
                attributes[field.name] = given.pop(field.name)
            elif _has_factory(field):
                attributes[field.name] = field.default_factory()  # type: ignore[operator]
            elif field.default is not dataclasses.MISSING:
                attributes[field.name] = field.default
            elif field.init:
                break
        else:
            if not given and len(named) == len(args) and named.keys().isdisjoint(values):
                set_field = object.__setattr__ if self._frozen else setattr
                for name, value in attributes.items():
                    set_field(instance, name, value)
                if hasattr(self._cls, "__post_init__"):
                    instance.__post_init__()
                return
        self._compiled()(instance, *args, **values)


def _compiled_constructor(
    cls: type, fields: tuple[Field[Any], ...], *, frozen: bool
) -> Callable[..., None]:
    """The constructor that the standard decorator compiles for a class with these fields."""
    # The name tells whose frames those of the constructor are.
    names: dict[str, Any] = {
        "__name__": cls.__module__,
        _ABSENT: _FACTORY,
        _SET: object.__setattr__,
    }
    for number, field in enumerate(fields):
        names[f"_new{number}"], names[f"_default{number}"] = field.default_factory, field.default
        slot = getattr(cls, field.name, None)
        if frozen and isinstance(slot, MemberDescriptorType):
            names[f"{_SET}{number}"] = slot.__set__
    kinds = tuple([(*_kind(f), f"{_SET}{number}" in names) for number, f in enumerate(fields)])
    template = _template(kinds, frozen=frozen, is_continued=hasattr(cls, "__post_init__"))
    renamed = {f"_field{number}": field.name for number, field in enumerate(fields)}
    code = template.replace(
        co_varnames=tuple([renamed.get(name, name) for name in template.co_varnames]),
        co_names=tuple([renamed.get(name, name) for name in template.co_names]),
        co_consts=tuple([renamed.get(c, c) if type(c) is str else c for c in template.co_consts]),
    )
    defaults: dict[str, Any] = {}
    positional: list[Any] = []
    for field in fields:
        default = _FACTORY if _has_factory(field) else field.default
        if field.init and default is not dataclasses.MISSING:
            if field.kw_only:
                defaults[field.name] = default
            else:
                positional.append(default)
        elif field.init and positional and not field.kw_only:
            raise TypeError(f"non-default argument {field.name!r} follows default argument")
    constructor = FunctionType(code, names, "__init__", tuple(positional))
    constructor.__kwdefaults__ = defaults
    constructor.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    return constructor


def _has_factory(field: Field[Any]) -> bool:
    return field.default_factory is not dataclasses.MISSING


_Kind: TypeAlias = tuple[str, bool, bool]
"""How a constructor gets a field (by "position" or "name", "nowhere" or as a "constant"), whether
a function computes its default, and whether the constructor fills its slot directly."""


def _kind(field: Field[Any]) -> tuple[str, bool]:
    has_factory = _has_factory(field)
    if field.init:
        return "name" if field.kw_only else "position", has_factory
    if has_factory or field.default is dataclasses.MISSING:
        return "nowhere", has_factory
    return "constant", False


@lru_cache(maxsize=1 << 10)
def _template(kinds: tuple[_Kind, ...], *, frozen: bool, is_continued: bool) -> CodeType:
    """The code of constructors for fields of these kinds, with their numbers as names.

    Classes share it, since compiling a text takes longer than renaming variables. Defaults
    are not part of it: they belong to the function.
    """
    lines: list[str] = []
    by_position, by_name = [_SELF], ["*"]
    for number, (source, has_factory, has_slot) in enumerate(kinds):
        name = value = f"_field{number}"
        if source == "position":
            by_position.append(name)
        elif source == "name":
            by_name.append(name)
        elif source == "constant":
            value = f"_default{number}"
        if has_factory:
            new = f"_new{number}()"
            value = new if source == "nowhere" else f"{new} if {name} is {_ABSENT} else {name}"
        elif source == "nowhere":
            continue
        by_slot = f"{_SET}{number}({_SELF}, {value})"
        set_field = by_slot if has_slot else f"{_SET}({_SELF}, {name!r}, {value})"
        lines.append(set_field if frozen else f"{_SELF}.{name} = {value}")
    if is_continued:
        lines.append(f"{_SELF}.__post_init__()")
    params = ", ".join((*by_position, *(by_name if len(by_name) > 1 else ())))
    text = f"def __init__({params}):\n " + "\n ".join(lines or ["pass"])
    # The code of a function is a constant of that of its module, which need not run.
    constants = compile(text, "<string>", "exec").co_consts
    return next(constant for constant in constants if isinstance(constant, CodeType))


def _representation(names: tuple[str, ...]) -> Callable[[object], str]:
    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        values = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({', '.join(values)})"

    return __repr__


def attributes(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    """A function that returns these attributes of an object."""
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _add_equality(cls: type, fields: tuple[Field[Any], ...], *, frozen: bool) -> None:
    compared = attributes(tuple(f.name for f in fields if f.compare))
    hashed = attributes(tuple(f.name for f in fields if (f.compare if f.hash is None else f.hash)))

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self))

    implied = vars(cls).get("__hash__", 0) is None and "__eq__" in vars(cls)
    if implied:  # Python sets it to None in a class that defines __eq__
        del cls.__hash__
    _add(cls, "__eq__", __eq__)
    _add(cls, "__hash__", __hash__ if frozen else None)


def _add_protection(cls: Any, names: frozenset[str]) -> None:
    """Make instances immutable: fields, and for exact instances of `cls` all attributes."""

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    _add(cls, "__setattr__", __setattr__)
    _add(cls, "__delattr__", __delattr__)


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
