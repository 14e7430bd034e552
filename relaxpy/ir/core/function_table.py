"""The base of Relax and Relay modules: a table of functions by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar

from typing_extensions import override

from relaxpy.errors import unexpected
from relaxpy.ir.core.node import Node
from relaxpy.support.entry import user_facing

V = TypeVar("V", bound=Node)
F = TypeVar("F", bound=Node)


class FunctionTable(Node, Generic[V, F]):
    """Functions by global variables, which have unique names.

    A derived class enters functions, and raises the error for a name that the table does not have.
    """

    __slots__ = ("_functions", "_vars")
    _vars: dict[str, V]
    _functions: dict[str, F]
    _kind: ClassVar[type[Node]]
    """The class of the variables."""

    @override
    def _children(self) -> tuple[Node, ...]:
        return tuple(self._nodes_in_fields())  # not stored, since a module can be changed

    @property
    def functions(self) -> dict[V, F]:
        """A copy of the table of functions, in insertion order."""
        return {var: self._functions[name] for name, var in self._vars.items()}

    @property
    def functions_by_name(self) -> dict[str, F]:
        """A copy of the table of functions, keyed by plain names."""
        return dict(self._functions)

    def items(self) -> ItemsView[V, F]:
        """The entries in insertion order."""
        return self.functions.items()

    def get_global_vars(self) -> list[V]:
        """The variables of all functions, in insertion order."""
        return list(self._vars.values())

    def _hint(self, name: object) -> str:
        """A name. Errors: MisuseError (also TypeError) if it is not one, nor a variable."""
        hint = getattr(name, "name_hint", None) if isinstance(name, self._kind) else name
        if not isinstance(hint, str):
            raise unexpected(name, "a function of a module is named by a string or a GlobalVar")
        return hint

    @abstractmethod
    def _find(self, name: Any) -> V:
        """The variable of a name or a variable. Errors: those of a derived class."""

    @user_facing
    def __delitem__(self, name: V | str) -> None:
        hint = self._hint(self._find(name))
        del self._functions[hint]
        del self._vars[hint]

    def __contains__(self, name: object) -> bool:
        hint = getattr(name, "name_hint", None) if isinstance(name, self._kind) else name
        return isinstance(hint, str) and hint in self._vars

    def __iter__(self) -> Iterator[V]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self._functions)

    @abstractmethod
    def clone(self) -> Self:
        """A copy; changes of one module do not affect the other."""

    @override
    def __copy__(self) -> Self:
        return self.clone()

    @override
    def __deepcopy__(self, memo: object) -> Self:
        return self.clone()

    @override
    def __hash__(self) -> int:
        return id(self) >> 4
