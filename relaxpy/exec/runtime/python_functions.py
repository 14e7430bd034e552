"""Python functions of a module, as methods of an instance and by symbol."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import ExternFunc
from relaxpy.ir.relax.nodes.python_function import python_function, python_function_of, text_of


def takes_self(function: Callable[..., Any]) -> bool:
    """Return whether a function is an unbound method."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C
        return False
    return names[:1] == ["self"]


def bound_to(instance: object, module: IRModule) -> IRModule:
    """`module` with its Python functions as methods of `instance`."""
    result = module
    for name, function in module.pyfuncs.items():
        if takes_self(function):
            result = module.clone() if result is module else result
            method = MethodType(function, instance)
            result[name] = python_function(name, text_of(module[name]), method)
    return result


def with_instance(module: IRModule) -> IRModule:
    """`module` with its Python functions as methods of an instance of their class."""
    if not any(map(takes_self, module.pyfuncs.values())):
        return module
    return bound_to(module(), module)


def symbols(module: IRModule) -> Mapping[str, Callable[..., Any]]:
    """The Python functions of `module` by symbol; packed functions cannot have these symbols."""
    funcs = (func for func in module.functions.values() if isinstance(func, ExternFunc))
    pairs = ((symbol_of(func), python_function_of(func)) for func in funcs)
    return {symbol: function for symbol, function in pairs if function is not None}


def resolve_python_callee(module: IRModule, name: str) -> ExternFunc:
    """The callee of `call_py_func`: a Python function of the module or a packed function."""
    func = module.functions_by_name.get(name)
    is_python = isinstance(func, ExternFunc) and python_function_of(func) is not None
    return func if is_python else ExternFunc(name)  # type: ignore[return-value]


def symbol_of(func: ExternFunc) -> str:
    """The symbol by which generated code looks up a packed or a Python function."""
    name = func.global_symbol
    return name if python_function_of(func) is None else f"@I.pyfunc {name}"
