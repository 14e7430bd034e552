"""Dataclasses of relaxpy behave as those of the standard library, which is the oracle."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from relaxpy.support.dataclass import dataclass

OPTIONS = [
    dict(zip(("frozen", "slots", "eq", "kw_only", "repr"), flags, strict=True))
    for flags in itertools.product((False, True), repeat=5)
]


def declared(decorator: Callable[..., Any], **options: bool) -> tuple[type, type]:
    """A class with fields of all kinds, and one derived from it."""

    @decorator(**options)
    class Base:
        """A base class."""

        kind: ClassVar[str] = "base"
        size: int
        name: str = "n"
        members: list[int] = dataclasses.field(default_factory=list)
        note: str = dataclasses.field(default="", kw_only=True, compare=False, repr=False)
        total: int = dataclasses.field(init=False, default=0)
        later: int = dataclasses.field(init=False, repr=False, compare=False)
        unset: int = dataclasses.field(init=False, default=5)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.size + len(self.members))
            object.__setattr__(self, "later", -self.size)

    @decorator(**options)
    class Derived(Base):
        """A derived class."""

        size: int = 7
        more: tuple[int, ...] = ()

    return Base, Derived


def outcome(run: Callable[[], object]) -> object:
    """The result of `run`, or the class of the error that it raises, with the text."""
    try:
        return run()
    except (TypeError, AttributeError, dataclasses.FrozenInstanceError) as error:
        return type(error), str(error)


def observed(classes: tuple[type, type]) -> list[object]:
    """What programs can see of two dataclasses."""
    seen: list[object] = []
    for cls in classes:
        assert dataclasses.is_dataclass(cls)
        one, same = cls(size=3, name="a", note="x"), cls(size=3, name="a", note="y")
        other = cls(size=4, name="a")
        changed = dataclasses.replace(one, size=5)
        seen += [repr(one).startswith(f"{cls.__qualname__}("), one == same, one == other, one == 3]
        seen += [(f.name, f.type, f.init, f.kw_only, f.compare) for f in dataclasses.fields(cls)]
        seen += [cls.__match_args__, hasattr(cls, "__slots__") and cls.__slots__, cls.__doc__]
        seen += [changed.size, changed.total, changed.later, one.later, one.unset, one.kind]
        seen += [one.members, one.members is same.members, inspect.signature(cls).parameters.keys()]
        defaults = [p.default for p in inspect.signature(cls).parameters.values()]
        seen += [repr(default) for default in defaults]
        seen += [[p.kind for p in inspect.signature(cls).parameters.values()]]
        seen += [[p.annotation for p in inspect.signature(cls).parameters.values()]]
        seen += [cls.__hash__ is None, cls.__hash__ is object.__hash__]
        seen += [outcome(lambda one=one: setattr(one, "size", 9)), one.size]
        seen += [outcome(lambda one=one: delattr(one, "name"))]
        seen += [outcome(lambda cls=cls: cls(1, 2, 3, 4, 5, 6, 7, 8)) is None]
        seen += [copy.copy(other).size, copy.deepcopy(other).members, cls.__init__.__qualname__]
    return seen


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_class_is_as_the_standard_library_makes_it(options: dict[str, bool]) -> None:
    assert observed(declared(dataclass, **options)) == observed(
        declared(dataclasses.dataclass, **options)
    )


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((3,), {}),
    ((3, "a"), {"note": "x"}),
    ((), {"size": 4, "members": [1, 2]}),
    ((3,), {"size": 4}),
    ((3, "a", [], "x", 5, 6, 7), {}),
    ((), {"name": "a"}),
    ((3,), {"total": 1}),
    ((3,), {"unknown": 1}),
    ((3,), {"self": 1}),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_first_instances_are_as_later_ones(options: dict[str, bool]) -> None:
    def instances(decorator: Callable[..., Any]) -> list[object]:
        return [
            [outcome(lambda: fields_of(cls(*args, **kwargs))) for cls in classes]  # noqa: B023
            for args, kwargs in CALLS
            for classes in [declared(decorator, **options)]
            for _ in range(12)
        ]

    assert instances(dataclass) == instances(dataclasses.dataclass)


def fields_of(value: Any) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def test_the_representation_is_that_of_the_standard_library() -> None:
    kinds = (dataclass, dataclasses.dataclass)
    texts = [repr(declared(decorator)[1](2, "b")) for decorator in kinds]
    assert texts[0] == texts[1]


def test_a_value_that_contains_itself_is_printed() -> None:
    value = declared(dataclass)[0](1)
    value.members.append(value)
    assert repr(value).endswith("members=[...], total=1, unset=5)")


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Same:
    x: int
    y: int = 0


@dataclasses.dataclass(frozen=True)
class Standard(Point):
    z: int = 0


def test_equal_values_have_equal_hashes_and_another_class_is_never_equal() -> None:
    assert len({Point(1, 2), Point(1, 2), Point(2, 1)}) == 2
    assert Point(1, 2) != Same(1, 2)
    with pytest.raises(TypeError):
        hash(declared(dataclass)[0](1))


def test_a_not_a_number_equals_itself_as_in_a_tuple() -> None:
    nan = float("nan")

    @dataclass(frozen=True)
    class One:
        value: float

    assert One(nan) == One(nan)
    assert One(nan) != One(float("nan"))


def test_a_frozen_value_with_slots_is_copied_and_pickled() -> None:
    point = Point(1, 2)
    assert copy.copy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point


def test_a_standard_dataclass_may_be_derived() -> None:
    value = Standard(1, 2, 3)
    assert (value.x, value.y, value.z) == (1, 2, 3)
    assert dataclasses.replace(value, x=5) == Standard(5, 2, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.x = 2  # type: ignore[misc]


def test_a_frozen_value_has_no_other_attributes() -> None:
    for options in OPTIONS:
        if options["frozen"]:
            with pytest.raises(dataclasses.FrozenInstanceError):
                declared(dataclass, **options)[1](size=1).unknown = 2


def test_methods_of_the_body_are_kept() -> None:
    @dataclass(frozen=True, slots=True)
    class Even:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Even) and (self.value - other.value) % 2 == 0

        def __repr__(self) -> str:
            return "even"

    assert Even(1) == Even(3)
    assert Even(1) != Even(2)
    assert repr(Even(1)) == "even"
    assert hash(Even(1)) == hash((1,))


def test_a_mutable_default_is_refused() -> None:
    with pytest.raises(ValueError, match="members needs a default_factory"):

        @dataclass
        class Group:
            members: list[int] = []  # noqa: RUF012


def test_a_class_that_is_not_a_dataclass_inherits_the_constructor() -> None:
    class Named(Point):
        name = "p"

    assert (Named(1).x, Named(1, y=4).y) == (1, 4)
    assert inspect.signature(Named) == inspect.signature(Point)


def test_classes_with_fields_of_the_same_kinds_have_their_own_names_and_defaults() -> None:
    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2

    @dataclass(frozen=True)
    class Span:
        first: int
        last: int

    assert (Point(1), Span(last=4, first=3)) == (Point(x=1, y=2), Span(3, 4))
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 2) -> None"
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'last'"):
        Span(1)  # type: ignore[call-arg]


def test_a_field_without_a_default_after_one_that_has_one_is_refused() -> None:
    message = "non-default argument 'last' follows default argument"

    def declare(decorator: Callable[..., Any]) -> Any:
        @decorator
        class Span:
            first: int = 0
            last: int

        return Span()

    for decorator in (dataclass, dataclasses.dataclass):
        with pytest.raises(TypeError, match=message):
            declare(decorator)
