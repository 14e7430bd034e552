"""The Python functions of modules: their symbols in generated code, and methods of instances."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function, python_function_of, text_of


def takes_self(function: Callable[..., Any]) -> bool:
    """True if a function is an unbound method."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C
        return False
    return names[:1] == ["self"]


def with_instance(module: IRModule) -> IRModule:
    """`module` with its Python functions as methods of an instance of their class."""
    methods = {name: f for name, f in module.pyfuncs.items() if takes_self(f)}
    if not methods:
        return module
    instance, result = module(), module.clone()
    for name, function in methods.items():
        method = MethodType(function, instance)
        result[name] = python_function(name, text_of(module[name]), method)
    return result


def symbols(module: IRModule) -> Mapping[str, Callable[..., Any]]:
    """The Python functions of `module` by symbol; packed functions cannot have these symbols."""
    funcs = (func for func in module.functions.values() if isinstance(func, rx.ExternFunc))
    pairs = ((symbol_of(func), python_function_of(func)) for func in funcs)
    return {symbol: function for symbol, function in pairs if function is not None}


def resolve_python_callee(module: IRModule, name: str) -> rx.ExternFunc:
    """The callee of `call_py_func`: a Python function of the module or a packed function."""
    func = module.functions_by_name.get(name)
    is_python = isinstance(func, rx.ExternFunc) and python_function_of(func) is not None
    return func if is_python else rx.ExternFunc(name)  # type: ignore[return-value]


def symbol_of(func: rx.ExternFunc) -> str:
    """The symbol by which generated code looks up a packed or a Python function."""
    name = func.global_symbol
    return name if python_function_of(func) is None else f"@I.pyfunc {name}"
