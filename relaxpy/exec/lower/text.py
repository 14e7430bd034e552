"""The text of the functions of a module, and the functions that it defines."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxpy.exec import python_ast as py
from relaxpy.exec.kernel import runtime
from relaxpy.exec.lower.scope import CheckedFunction, GlobalCallee
from relaxpy.exec.python_ast import load_text
from relaxpy.exec.runtime import support
from relaxpy.exec.runtime.checks import closure_sinfo
from relaxpy.exec.runtime.dynamic import DynamicOperator
from relaxpy.exec.runtime.instrument import Instrument, Instrumented
from relaxpy.exec.runtime.support import InstrumentedPackedCall, invoke_instrumented
from relaxpy.exec.runtime.values import Closure, PrimFuncValue, Value
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.exec.lower.python_module import Backend, ModuleLowering

FunctionValues: TypeAlias = Mapping[str, tuple[str, Closure | PrimFuncValue]]
"""The Python name and the value of functions of a module, by name."""


@dataclass(frozen=True, slots=True)
class Text:
    """The source of a module, its names, and its functions; PrimFuncs are values.

    `kernels` has their Python functions, by their names in the source, and `values` has all as
    values.
    """

    source: str
    functions: Mapping[str, Callable[..., Value]]
    kernels: Mapping[str, Callable[..., Value]]
    values: FunctionValues
    problem: str
    namespace: dict[str, Any]


def load_functions(
    lowering: ModuleLowering,
    backend: Backend | None,
    instrument: Instrument | None,
    chosen: Sequence[str],
    late: Callable[..., Value] | None,
    compiled: Mapping[str, Callable[..., Value]],
) -> Text:
    """The source of the functions that are `chosen`, in this order, with kernels of a `backend`.

    With `late`, fallbacks of native kernels are not in the source: `late` runs them, with the name
    of the kernel before the arguments. Relax functions that are `compiled` are not in it either.
    """
    functions_of_text = [(name, lowering.callees[name]) for name in chosen]
    callees = {n: c for n, c in functions_of_text if isinstance(c, GlobalCallee)}
    texts = [n for n, callee in callees.items() if callee.kernel is None and n not in compiled]
    graph_functions = [tree for name in texts for tree in lowering.definitions(name)]
    definitions: list[ast.stmt] = []
    names_of_kernels = []
    natives = {callees[name].name: run for name, run in compiled.items() if name in callees}
    for callee in callees.values():
        if callee.kernel is not None and callee.kernel.is_native and late is not None:
            natives[callee.name] = partial(late, callee.name)
        elif callee.kernel is not None:
            definitions += lowering.kernel_definitions(callee)
            names_of_kernels.append(callee.name)
    definitions += graph_functions
    header, names = _header(lowering, definitions)
    names = {**lowering.namespace, **natives, **names}
    source, namespace = load_text([*header, *definitions], "module", names)
    kernels = {name: namespace[name] for name in names_of_kernels}
    problem = "" if backend is None else backend.link(namespace)
    plain_functions = dict(namespace)
    if instrument is not None:
        _instrument_calls(lowering, callees, namespace, instrument)
    functions, values = {}, {}
    for name, callee in callees.items():
        plain = (plain_functions if callee.prim_func is None else namespace)[callee.name]
        functions[name] = plain
        if lowering.is_outlined(name):
            continue
        value = function_value(lowering.program[name], callee, plain)
        if isinstance(value, PrimFuncValue):
            symbol = callee.prim_func.attrs.get("global_symbol") if callee.prim_func else None
            if symbol is not None:
                lowering.module_functions[str(symbol)] = value
        if name in lowering.value_names:
            namespace[lowering.value_names[name]] = value
        functions[name] = value if isinstance(value, PrimFuncValue) else plain
        values[name] = callee.name, value
    return Text(source, functions, kernels, values, problem, namespace)


def _instrument_calls(
    lowering: ModuleLowering,
    callees: Mapping[str, GlobalCallee],
    namespace: dict[str, Any],
    instrument: Instrument,
) -> None:
    """Replace the functions that the source calls by name with ones that report their calls."""
    for name, value in lowering.namespace.items():
        if isinstance(value, support.CompiledPackedCall):
            namespace[name] = InstrumentedPackedCall(value, instrument)
        elif isinstance(value, DynamicOperator):
            namespace[name] = Instrumented(value, value.name, instrument)
    for symbol, callee in callees.items():
        name, count = lowering.work_name(callee), len(callee.signature.params)
        namespace[name] = Instrumented(
            namespace[name], symbol, instrument, count, is_kernel=callee.kernel is not None
        )
    instrumented = {
        "invoke": partial(invoke_instrumented, instrument, (), {}),
        "invoke_declared": partial(invoke_instrumented, instrument),
    }
    namespace["rx"] = SimpleNamespace(**vars(namespace["rx"]) | instrumented)


def _header(
    lowering: ModuleLowering, definitions: Sequence[ast.stmt]
) -> tuple[list[ast.stmt], dict[str, Any]]:
    """The imports and datatypes that the definitions use, and the values of all of them."""
    dtypes_by_name = {name: support.dtype(dtype) for dtype, name in lowering.dtypes.items()}
    values = {**MODULES, **dtypes_by_name}
    checks = [
        check
        for value in lowering.namespace.values()
        if isinstance(value, CheckedFunction)
        for check in value.checks
    ]
    used = _names_in(definitions)
    needed = used | _names_in(checks)
    imports = [text for name, text in _IMPORTS.items() if name in used or name == "np"]
    dtypes = [
        py.assign(name, py.call("rx.dtype", py.text(str(dtype))))
        for dtype, name in lowering.dtypes.items()
        if name in needed
    ]
    if dtypes and "rx" not in used:
        imports.append(_IMPORTS["rx"])
    return [*ast.parse("\n".join(imports)).body, *dtypes], values


def _names_in(statements: Sequence[ast.stmt]) -> set[str]:
    return {node.id for node in py.nodes_in(statements) if isinstance(node, ast.Name)}


MODULES: Mapping[str, Any] = {
    "math": math,
    "np": np,
    "ndarray": np.ndarray,
    "rt": runtime,
    "rx": support,
}
_IMPORTS: Mapping[str, str] = {
    "math": "import math",
    "np": "import numpy as np",
    "rt": "from relaxpy.exec.kernel import runtime as rt",
    "rx": "from relaxpy.exec.runtime import support as rx",
    "ndarray": "ndarray = np.ndarray",
}
"""The lines of source that define the names of `MODULES`."""


def function_value(
    func: rx.BaseFunc, callee: GlobalCallee, run: Callable[..., Value]
) -> Closure | PrimFuncValue:
    """A function of the module as a value."""
    name = callee.signature.name
    if isinstance(func, rx.Function):
        return Closure(run, closure_sinfo(func), name)
    assert isinstance(func.struct_info, rx.FuncStructInfo)
    if not isinstance(run, BuiltinFunctionType):  # machine code returns unit itself
        run = partial(support.run_kernel, run)
    return PrimFuncValue(run, func.struct_info, name)
