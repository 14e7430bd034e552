"""The module: a mutable table from global names to frozen functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from relaxpy.errors import (
    MisuseError,
    UnknownNameError,
    check_type,
    close_names,
    unexpected,
    unknown_attribute,
)
from relaxpy.ir import hooks
from relaxpy.ir.core.function_table import FunctionTable
from relaxpy.ir.core.node import Attrs, as_attrs
from relaxpy.ir.core.traverse import rename, walk
from relaxpy.ir.link import link_functions, rename_callees, without_callees
from relaxpy.ir.relax.nodes import BaseFunc, Function, GlobalVar
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.support.entry import user_facing


class IRModule(FunctionTable[GlobalVar, BaseFunc]):
    """Global functions by name (AST-20), with attributes and global infos.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module does not have a name.
        MisuseError (also TypeError): a value is not a function.
    """

    __slots__ = ("__name__", "_python_class", "attrs", "global_infos")
    _fields = ("functions_by_name", "attrs", "global_infos")
    _kind = GlobalVar
    __name__: str

    def __init__(
        self,
        functions: Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc] | None = None,
        attrs: Mapping[str, object] | None = None,
        global_infos: Mapping[str, Sequence[object]] | None = None,
    ) -> None:
        self._vars, self._functions = {}, {}
        self._python_class: Callable[..., Any] | None = None
        self.attrs: Attrs = as_attrs(attrs)
        check_type(global_infos, Mapping | None, "global infos are a table of lists")
        self.global_infos: dict[str, tuple[object, ...]] = {
            name: _listed(infos) for name, infos in (global_infos or {}).items()
        }
        check_type(functions, Mapping | None, "a module is a table from names to functions")
        for name, func in (functions or {}).items():
            if (name.name_hint if isinstance(name, GlobalVar) else name) in self._vars:
                raise MisuseError(f"two functions are called {name}", rule="SC-9", about=name)
            self._enter(name, func)
        for name, func in self.functions_by_name.items():
            self._functions[name] = self._with_callees(func)

    def written_as(self, python_class: Callable[..., Any]) -> IRModule:
        """This module as a Python class, so that a call returns an instance."""
        module = self.clone()
        module._python_class = python_class
        return module

    @property
    def is_python_class(self) -> bool:
        """True if this module was written as a class derived from BasePyModule."""
        return self._python_class is not None

    @user_facing
    def __call__(
        self, device: object = None, target: object = None, *args: object, **kwargs: object
    ) -> Any:
        """An instance of the class derived from BasePyModule.

        Errors:
            MisuseError (also TypeError): the module was not written as such a class.
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

    if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), which lists the functions."""
            functions = () if name.startswith("_") else self._vars
            raise unknown_attribute(self, name, "mod", functions)

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """The entries in alphabetical order."""
        return [(self._vars[name], func) for name, func in sorted(self._functions.items())]

    @property
    def pyfuncs(self) -> dict[str, Callable[..., object]]:
        """The Python functions of the module (`@I.pyfunc`) by name."""
        table = {name: python_function_of(func) for name, func in self.functions_by_name.items()}
        return {name: function for name, function in table.items() if function is not None}

    @user_facing
    def get_global_var(self, name: str) -> GlobalVar:
        """The GlobalVar of the function `name`."""
        var = self._vars.get(name)
        if var is None:
            raise UnknownNameError(
                f"the module has no function {name!r}"
                + (f"; it has {', '.join(self._vars)}" if self._vars else " (it is empty)"),
                hint=close_names(str(name), self._vars),
                about=name,
            )
        return var

    @override
    def _find(self, name: GlobalVar | str) -> GlobalVar:
        return self.get_global_var(self._hint(name))

    def find_function(self, name: str) -> BaseFunc | None:
        """The function with a name, or None."""
        return self._functions.get(name)

    @user_facing
    def __getitem__(self, name: GlobalVar | str) -> Any:
        """The function with a name: a `relax.Function`, a `tir.PrimFunc`, or one of a dialect."""
        return self._functions[self._find(name).name_hint]

    @user_facing
    def __setitem__(self, name: GlobalVar | str, func: BaseFunc) -> None:
        self._enter(name, self._with_callees(func))

    def _enter(self, name: GlobalVar | str, func: BaseFunc) -> None:
        if not isinstance(func, BaseFunc):
            raise MisuseError(
                f"a module contains functions, found {type(func).__name__} for {name!s}",
                rule="AST-20",
                hint=_hint_for(func),
                about=func,
            )
        hint = self._hint(name)
        if isinstance(name, GlobalVar) or hint not in self._vars:
            self._vars[hint] = name if isinstance(name, GlobalVar) else GlobalVar(hint)
        self._functions[hint] = func

    def _with_callees(self, func: BaseFunc) -> BaseFunc:
        """Add the callees of `func` to the module; returns `func` with calls of these."""
        if not isinstance(func, Function) or not func.callees:
            return func
        callees = cast("Mapping[str, BaseFunc]", func.callees)
        names: dict[str, str] = {}
        for old, (new, callee) in link_functions(
            callees, self._functions, self._vars.keys()
        ).items():
            names[old] = new
            if new not in self._vars:
                self._enter(new, callee)
        return rename_callees(without_callees(func), names)

    @user_facing
    def update(
        self, other: IRModule | Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc]
    ) -> None:
        """Add every function of `other`; functions with the same names are replaced."""
        entries = other.functions if isinstance(other, IRModule) else IRModule(other).functions
        for name, func in entries.items():
            self[name.name_hint if isinstance(name, GlobalVar) else name] = func

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        """Set the function of `var`."""
        self[var] = func

    @override
    def clone(self) -> IRModule:
        module = IRModule(None, self.attrs, self.global_infos)
        module._vars, module._functions = dict(self._vars), dict(self._functions)
        module._python_class = self._python_class
        return module

    def with_fields(self, **changes: Any) -> IRModule:
        """A copy with some of `_fields` replaced and the same GlobalVars."""
        functions = changes.get("functions_by_name", self.functions_by_name)
        module = IRModule(
            {var: functions[name] for name, var in self._vars.items()},
            changes.get("attrs", self.attrs),
            changes.get("global_infos", self.global_infos),
        )
        module._python_class = self._python_class
        return module

    @user_facing
    def graph(self, fold: bool | None = None) -> Any:
        """The dataflow as a picture, which notebooks show."""
        return hooks.call("graph", self, fold)

    @user_facing
    def memory_chart(
        self, function: str | None = None, sizes: Mapping[str, int] | None = None
    ) -> Any:
        """The bytes that a function holds over its bindings, as a picture."""
        return hooks.call("memory_chart", self, function, sizes)

    @user_facing
    def get_attr(self, attr_key: str) -> object | None:
        """The attribute `attr_key` of the module, or None."""
        value: object | None = self.attrs.get(attr_key)
        return value

    @user_facing
    def with_attr(self, attr_key: str, attr_value: object) -> IRModule:
        """A copy with the attribute `attr_key` set."""
        return self.with_attrs({attr_key: attr_value})

    @user_facing
    def with_attrs(self, attr_map: Mapping[str, object]) -> IRModule:
        """A copy with a mapping of attributes set."""
        return self.with_fields(attrs=self.attrs.updated(attr_map))

    def without_attr(self, attr_key: str) -> IRModule:
        """A copy without the attribute `attr_key`."""
        return self.with_fields(attrs=self.attrs.without(attr_key))

    @user_facing
    def update_global_info(self, name: str, global_info: Sequence[object]) -> None:
        """Set the global infos listed under `name`."""
        self.global_infos[name] = _listed(global_info)

    @user_facing
    def replace_global_vars(
        self, replacements: Mapping[GlobalVar | str, GlobalVar | str]
    ) -> IRModule:
        """A copy with renamed functions, also at their uses; the module itself if none is.

        The `global_symbol` of a public function is renamed, too.

        Errors:
            UnknownNameError: the module does not have a function of that name.
            MisuseError (also ValueError): two functions would have one name.
        """
        renamed = {
            self._find(old): new if isinstance(new, GlobalVar) else GlobalVar(new)
            for old, new in replacements.items()
        }
        if not renamed:
            return self
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
            new_func = rename(func, uses) if uses else func
            if target is not var and func.attrs.get("global_symbol") is not None:
                new_func = new_func.with_attr("global_symbol", target.name_hint)
            result[target] = new_func
        return result

    @staticmethod
    def from_expr(
        expr: BaseFunc,
        functions: Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc] | None = None,
    ) -> IRModule:
        """A module of `functions` and one more, named by its `global_symbol` or `main`.

        Its `global_symbol` replaces the function of that name; `main` becomes `main_1` if there is
        one.
        """
        check_type(expr, BaseFunc, "expected a function", hint=_hint_for(expr))
        check_type(functions, Mapping | None, "functions of a module are in a dict")
        entries: dict[GlobalVar | str, BaseFunc] = {}
        entries.update(cast("dict[GlobalVar | str, BaseFunc]", functions or {}))
        known = {key.name_hint if isinstance(key, GlobalVar) else key: key for key in entries}
        names = chain(("main",), map("main_{}".format, count(1)))
        name = expr.attrs.get("global_symbol") or next(n for n in names if n not in known)
        entries[known.get(str(name), str(name))] = expr
        return IRModule(cast("Mapping[str, BaseFunc]", entries))


def _hint_for(func: object) -> str | None:
    """Where functions of another language belong, as their class says."""
    return getattr(type(func), "module_hint", None)


def _listed(infos: object) -> tuple[object, ...]:
    """Errors: MisuseError (also TypeError) if the global infos of a name are not a list."""
    if not isinstance(infos, (list, tuple)):
        raise unexpected(infos, "global infos are in a list")
    return tuple(infos)
