"""Built-in operators by name: one object a name, whatever level of the IR it belongs to."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, close_names
from relaxpy.ir.node import Node


@final
class Op(Node):
    """A built-in operator (AST-14): two references to one name are the same object.

    `Op.get` answers for registered operators only; the constructor makes the object of any name, so
    that programs can be read before they are checked (OP-16).
    """

    __slots__ = ("_attrs", "name")
    __match_args__ = ("name",)
    _fields = ("name",)
    _table: ClassVar[dict[str, Op]] = {}
    name: str
    _attrs: dict[str, object]
    span: ClassVar[None] = None
    """Operators stand in no text: where one is used wrongly, what is around it says the place."""

    def __new__(cls, name: str) -> Self:
        """The object that stands for `name`."""
        if not isinstance(name, str):
            raise MisuseError(f"an operator is named by a string, found {name!r:.60}", about=name)
        op = cls._table.get(name)
        if op is None:
            made = object.__new__(cls)
            object.__setattr__(made, "name", name)
            object.__setattr__(made, "_attrs", {})
            op = cls._table.setdefault(name, made)
        return op

    @override
    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError("an operator cannot be changed; set_attr extends its record")

    @classmethod
    def get(cls, name: str) -> Op:
        """The registered operator `name`.

        Errors:
            UnknownNameError (also ValueError, KeyError): nothing was registered under it.
        """
        op = cls._table.get(name) if isinstance(name, str) else None
        if op is None or not op._attrs:
            known = cls.list_op_names()
            raise UnknownNameError(
                f"no operator is registered as {name!r:.60}",
                rule="OP-16",
                hint=close_names(str(name), known),
            )
        return op

    @classmethod
    def list_op_names(cls) -> list[str]:
        """The names of all registered operators, sorted."""
        return sorted(name for name, op in cls._table.items() if op._attrs)

    def get_attr(self, key: str) -> object | None:
        """What column `key` of the registry holds for this operator, or None."""
        return self._attrs.get(key)

    def has_attr(self, key: str) -> bool:
        """Whether column `key` of the registry holds anything for this operator."""
        return key in self._attrs

    def set_attr(self, key: str, value: object) -> None:
        """Enter `value` in column `key`, in place of what was there."""
        self._attrs[key] = value

    def reset_attr(self, key: str) -> None:
        """Empty column `key`."""
        self._attrs.pop(key, None)

    @override
    def __str__(self) -> str:
        return f"Op({self.name})"

    @override
    def __reduce__(self) -> tuple[type[Op], tuple[str]]:
        return Op, (self.name,)


_levels: dict[tuple[str, str], int] = {}


def register_op_attr(
    op_name: str, attr_key: str, value: object | None = None, level: int = 10
) -> Any:
    """Enter `value` in a column of the record of `op_name`; without one, a decorator that does.

    What was entered so at a higher level stays.
    """

    def enter(found: Any) -> Any:
        present = _levels.get((op_name, attr_key))
        if present is None or present <= level:
            Op(op_name).set_attr(attr_key, found)
            _levels[op_name, attr_key] = level
        return found

    return enter if value is None else enter(value)
