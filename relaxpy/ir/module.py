"""The module: the one mutable thing, a table from global names to frozen functions."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, UnknownNameError, close_names, unknown_attribute
from relaxpy.ir import hooks
from relaxpy.ir.core.node import Attrs, Node, as_attrs
from relaxpy.ir.core.traverse import rename, walk
from relaxpy.ir.link import alone, linked, renamed_in
from relaxpy.ir.relax.nodes import BaseFunc, Function, GlobalVar
from relaxpy.ir.relax.nodes.python_function import python_function_of


class IRModule(Node):
    """Global functions by name (AST-20), with attributes and global infos of the whole.

    Errors:
        UnknownNameError (also KeyError, ValueError): a name that the module does not have.
        MisuseError (also TypeError): what is entered is no function.
    """

    __slots__ = ("_functions", "_python_class", "_vars", "attrs", "global_infos")
    _fields = ("functions_by_name", "attrs", "global_infos")

    def __init__(
        self,
        functions: Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc] | None = None,
        attrs: Mapping[str, object] | None = None,
        global_infos: Mapping[str, Sequence[object]] | None = None,
    ) -> None:
        self._vars: dict[str, GlobalVar] = {}
        self._functions: dict[str, BaseFunc] = {}
        self._python_class: Callable[..., Any] | None = None
        self.attrs: Attrs = as_attrs(attrs)
        if not isinstance(global_infos, Mapping | None):
            raise MisuseError(
                f"global infos are a table of lists, found {global_infos!r:.60}", about=global_infos
            )
        self.global_infos: dict[str, tuple[object, ...]] = {
            name: _listed(infos) for name, infos in (global_infos or {}).items()
        }
        if not isinstance(functions, Mapping | None):
            raise MisuseError(
                f"a module is made of a table from names to functions, found {functions!r:.60}",
                about=functions,
            )
        for name, func in (functions or {}).items():
            if (name.name_hint if isinstance(name, GlobalVar) else name) in self._vars:
                raise MisuseError(f"two functions are called {name}", rule="SC-9", about=name)
            self._enter(name, func)
        for name, func in self.functions_by_name.items():
            self._functions[name] = self._with_callees(func)

    @property
    def functions(self) -> dict[GlobalVar, BaseFunc]:
        """A copy of the table, in order of entry."""
        return {var: self._functions[name] for name, var in self._vars.items()}

    @property
    def functions_by_name(self) -> dict[str, BaseFunc]:
        """A copy of the table keyed by plain names."""
        return dict(self._functions)

    def written_as(self, python_class: Callable[..., Any]) -> IRModule:
        """This module as a Python class; a call of it gives an instance."""
        made = self.clone()
        made._python_class = python_class
        return made

    @property
    def is_python_class(self) -> bool:
        """Whether it was written as a class derived from BasePyModule."""
        return self._python_class is not None

    @user_facing
    def __call__(
        self, device: object = None, target: object = None, *args: object, **kwargs: object
    ) -> Any:
        """An instance of the class derived from BasePyModule that the module was written as.

        Errors:
            MisuseError (also TypeError): it was written as no such class.
        """
        if self._python_class is not None:
            return self._python_class(self, device, target, *args, **kwargs)
        if self.pyfuncs:
            return hooks.call("python_module", self, device, target, *args, **kwargs)
        entry = "main" if "main" in self._vars else next(iter(self._vars), "main")
        raise MisuseError(
            f"a module is not a function; its functions are {', '.join(self._vars) or 'none'}",
            hint=f'compile it, then call one: relaxpy.compile(mod)["{entry}"](...)',
        )

    if not TYPE_CHECKING:  # a type checker that saw it would believe in every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), which says what there is."""
            functions = () if name.startswith("_") else self._vars
            raise unknown_attribute(self, name, "mod", functions)

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """The entries in alphabetical order."""
        return [(self._vars[name], func) for name, func in sorted(self._functions.items())]

    @property
    def pyfuncs(self) -> dict[str, Callable[..., object]]:
        """The Python functions of the module by name (`@I.pyfunc`), a copy of the table."""
        found = {name: python_function_of(func) for name, func in self.functions_by_name.items()}
        return {name: function for name, function in found.items() if function is not None}

    def items(self) -> ItemsView[GlobalVar, BaseFunc]:
        """The entries in order of entry."""
        return self.functions.items()

    @user_facing
    def get_global_var(self, name: str) -> GlobalVar:
        """The GlobalVar that stands for entry `name`."""
        var = self._vars.get(name)
        if var is None:
            raise UnknownNameError(
                f"the module has no function {name!r}"
                + (f"; it has {', '.join(self._vars)}" if self._vars else " (it is empty)"),
                hint=close_names(str(name), self._vars),
                about=name,
            )
        return var

    def get_global_vars(self) -> list[GlobalVar]:
        """All GlobalVars, in order of entry."""
        return list(self._vars.values())

    def _find(self, name: GlobalVar | str) -> GlobalVar:
        return self.get_global_var(
            name.name_hint if isinstance(name, GlobalVar) else _checked_name(name)
        )

    def find_function(self, name: str) -> BaseFunc | None:
        """The function under a name, or None."""
        return self._functions.get(name)

    @user_facing
    def __getitem__(self, name: GlobalVar | str) -> BaseFunc:
        return self._functions[self._find(name).name_hint]

    @user_facing
    def __setitem__(self, name: GlobalVar | str, func: BaseFunc) -> None:
        self._enter(name, self._with_callees(func))

    def _enter(self, name: GlobalVar | str, func: BaseFunc) -> None:
        if not isinstance(func, BaseFunc):
            raise MisuseError(
                f"a module holds functions, found {type(func).__name__} for {name!s}",
                rule="AST-20",
                about=func,
            )
        hint = name.name_hint if isinstance(name, GlobalVar) else _checked_name(name)
        if isinstance(name, GlobalVar) or hint not in self._vars:
            self._vars[hint] = name if isinstance(name, GlobalVar) else GlobalVar(hint)
        self._functions[hint] = func

    def _with_callees(self, func: BaseFunc) -> BaseFunc:
        """`func` as the module has it: what it brings along becomes functions of the module."""
        if not isinstance(func, Function) or not func.callees:
            return func
        callees = cast("Mapping[str, BaseFunc]", func.callees)
        names: dict[str, str] = {}
        for old, (new, callee) in linked(callees, self._functions, self._vars.keys()).items():
            names[old] = new
            if new not in self._vars:
                self._enter(new, callee)
        return renamed_in(alone(func), names)

    @user_facing
    def __delitem__(self, name: GlobalVar | str) -> None:
        var = self._find(name)
        del self._functions[var.name_hint]
        del self._vars[var.name_hint]

    def __contains__(self, name: object) -> bool:
        hint = name.name_hint if isinstance(name, GlobalVar) else name
        return isinstance(hint, str) and hint in self._vars

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self._functions)

    @user_facing
    def update(
        self, other: IRModule | Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc]
    ) -> None:
        """Enter every function of `other`, in place of those of the same names."""
        entries = other.functions if isinstance(other, IRModule) else IRModule(other).functions
        for name, func in entries.items():
            self[name.name_hint if isinstance(name, GlobalVar) else name] = func

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        """Enter `func` under `var`."""
        self[var] = func

    def clone(self) -> IRModule:
        """A module with the same entries; changing one leaves the other as it is."""
        made = IRModule(None, self.attrs, self.global_infos)
        made._vars, made._functions = dict(self._vars), dict(self._functions)
        made._python_class = self._python_class
        return made

    def with_fields(self, **changes: Any) -> IRModule:
        """A copy with some of `_fields` replaced, under the same GlobalVars."""
        functions = changes.get("functions_by_name", self.functions_by_name)
        made = IRModule(
            {var: functions[name] for name, var in self._vars.items()},
            changes.get("attrs", self.attrs),
            changes.get("global_infos", self.global_infos),
        )
        made._python_class = self._python_class
        return made

    @override
    def __copy__(self) -> IRModule:
        return self.clone()

    @override
    def __deepcopy__(self, memo: object) -> IRModule:
        return self.clone()

    def get_attr(self, key: str) -> object | None:
        """Attribute `key` of the module, or None."""
        return self.attrs.get(key)

    def with_attr(self, key: str, value: object) -> IRModule:
        """A copy with attribute `key` set."""
        return self.with_attrs({key: value})

    def with_attrs(self, attrs: Mapping[str, object]) -> IRModule:
        """A copy with a table of attributes set."""
        return self.with_fields(attrs=self.attrs.updated(attrs))

    def without_attr(self, key: str) -> IRModule:
        """A copy less attribute `key`."""
        return self.with_fields(attrs=self.attrs.without(key))

    def update_global_info(self, name: str, infos: Sequence[object]) -> None:
        """Set the global infos listed under `name`."""
        self.global_infos[name] = _listed(infos)

    def replace_global_vars(
        self, replacements: Mapping[GlobalVar | str, GlobalVar | str]
    ) -> IRModule:
        """A copy in which functions go by other names, at every use of them, too.

        A function that is public is so under its new name.

        Errors:
            UnknownNameError: the module has no function of such a name.
            MisuseError (also ValueError): two functions would have one name.
        """
        renamed = {
            self._find(old): new if isinstance(new, GlobalVar) else GlobalVar(new)
            for old, new in replacements.items()
        }
        names = {old.name_hint: new for old, new in renamed.items()}
        result = IRModule(None, self.attrs, self.global_infos)
        result._python_class = self._python_class
        for var, func in self.items():
            target = renamed.get(var, var)
            if target.name_hint in result:
                raise MisuseError(f"two functions would be called {target.name_hint}", rule="SC-9")
            uses = {
                node: names[node.name_hint]
                for node in walk(func)
                if isinstance(node, GlobalVar) and node.name_hint in names
            }
            after = rename(func, uses) if uses else func
            if target is not var and func.attrs.get("global_symbol") is not None:
                after = after.with_attr("global_symbol", target.name_hint)
            result[target] = after
        return result

    @staticmethod
    def from_expr(func: BaseFunc) -> IRModule:
        """A module of this one function, named by its `global_symbol`, else `main`."""
        if not isinstance(func, BaseFunc):
            raise MisuseError(f"expected a function, found {func!r:.60}", about=func)
        return IRModule({str(func.attrs.get("global_symbol") or "main"): func})

    @override
    def __hash__(self) -> int:
        return id(self) >> 4


def _listed(infos: object) -> tuple[object, ...]:
    """Errors: MisuseError (also TypeError) if the infos of one name are not in a list."""
    if not isinstance(infos, (list, tuple)):
        raise MisuseError(f"global infos stand in a list, found {infos!r:.60}", about=infos)
    return tuple(infos)


def _checked_name(name: object) -> str:
    """`name`. Errors: MisuseError (also TypeError) if it is no string."""
    if not isinstance(name, str):
        raise MisuseError(
            f"a function of a module is named by a string or a GlobalVar, found {name!r:.60}",
            about=name,
        )
    return name
