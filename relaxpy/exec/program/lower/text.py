"""The text of the functions of a module, and the functions that it defines."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxpy.errors import Span
from relaxpy.exec.numpy import python_ast as py, runtime
from relaxpy.exec.numpy.python_ast import load_source, rendered
from relaxpy.exec.program.lower.scope import CheckedFunction, GlobalCallee
from relaxpy.exec.runtime import support
from relaxpy.exec.runtime.checks import closure_sinfo
from relaxpy.exec.runtime.dynamic import DynamicOperator
from relaxpy.exec.runtime.instrument import Instrument, Instrumented
from relaxpy.exec.runtime.support import InstrumentedPackedCall, invoke_instrumented
from relaxpy.exec.runtime.values import Closure, PrimFuncValue, Value
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.exec.program.lower.python_module import ModuleLowering


@dataclass(frozen=True, slots=True, eq=False)
class FunctionValue:
    """A function of the module as a value; it runs the function `python_name`.

    A Relax function is a closure. `alias` is its name as a value in the text, if it has one, and
    `symbol` the one by which packed calls find a kernel.
    """

    name: str
    python_name: str
    alias: str | None
    symbol: str | None
    is_closure: bool
    struct_info: rx.FuncStructInfo
    title: str

    def of(self, run: Callable[..., Value]) -> Closure | PrimFuncValue:
        """The value, which runs a function."""
        if self.is_closure:
            return Closure(run, self.struct_info, self.title)
        if isinstance(self.struct_info.ret, rx.PrimStructInfo):  # others return unit themselves
            run = partial(support.run_kernel, run)
        return PrimFuncValue(run, self.struct_info, self.title)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """The source of functions of a module, with the objects that it uses by their names.

    It does not define the native kernels that it calls, whose names are `kernels`, and native
    functions. The loader adds the kernels with a symbol to `symbols`, where packed calls look.
    """

    source: str
    span_of_line: Callable[[int], Span | None]
    objects: Mapping[str, object]
    values: Sequence[FunctionValue]
    kernels: Sequence[str]
    symbols: dict[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The functions of a loaded text by name, PrimFuncs as values, and its global names.

    `defined` has the names before native functions replaced those that the text defines.
    """

    functions: Mapping[str, Callable[..., Value]]
    namespace: dict[str, Any]
    defined: Mapping[str, Any]


def text_of(
    lowering: ModuleLowering,
    chosen: Sequence[str],
    native: Container[str] = (),
    *,
    has_kernels: bool = False,
) -> Text:
    """The text of the functions that are `chosen`, in this order, without `native` ones.

    Native kernels are in it only if it `has_kernels`.
    """
    functions = [(name, lowering.callees[name]) for name in chosen]
    callees = {name: c for name, c in functions if isinstance(c, GlobalCallee)}
    texts = [n for n, callee in callees.items() if callee.kernel is None and n not in native]
    graph_functions = [tree for name in texts for tree in lowering.definitions(name)]
    definitions: list[ast.stmt] = []
    kernels = []
    for callee in callees.values():
        if callee.kernel is not None and callee.kernel.is_native and not has_kernels:
            kernels.append(callee.name)
        elif callee.kernel is not None:
            definitions += lowering.kernel_definitions(callee)
    definitions += graph_functions
    source, span_of_line = rendered(_with_header(lowering, definitions))
    values = [
        _value(lowering, name, callee)
        for name, callee in callees.items()
        if not lowering.is_outlined(name)
    ]
    objects = dict(lowering.namespace)
    return Text(source, span_of_line, objects, values, kernels, lowering.module_functions)


def _value(lowering: ModuleLowering, name: str, callee: GlobalCallee) -> FunctionValue:
    func, alias = lowering.program[name], lowering.value_names.get(name)
    symbol = None if callee.prim_func is None else callee.prim_func.attrs.get("global_symbol")
    is_closure = isinstance(func, rx.Function)
    sinfo = closure_sinfo(func) if isinstance(func, rx.Function) else func.struct_info
    assert isinstance(sinfo, rx.FuncStructInfo)
    known = None if symbol is None else str(symbol)
    return FunctionValue(name, callee.name, alias, known, is_closure, sinfo, callee.signature.name)


def load_text(
    text: Text,
    native: Mapping[str, Callable[..., Value]],
    run_kernel: Callable[..., Value],
    changed: Mapping[str, object],
    finish: Callable[[dict[str, Any]], None] = lambda namespace: None,
) -> Loaded:
    """Load a text, in which `native` functions and kernels replace those of these Python names.

    `run_kernel` runs the other native kernels, whose name comes before the arguments. Functions of
    `rx` that native code has `changed` replace the others, and `finish` may change what is called.

    Errors:
        CompileError: blocks nest deeper than in Python.
    """
    late = {name: partial(run_kernel, name) for name in text.kernels}
    names = {**MODULES, **text.objects, **late}
    namespace = load_source(text.source, "module", names, text.span_of_line)
    defined = dict(namespace)
    namespace |= native
    if changed:
        namespace["rx"] = SimpleNamespace(**vars(MODULES["rx"]) | changed)
    plain = dict(namespace)
    finish(namespace)
    functions: dict[str, Callable[..., Value]] = {}
    for each in text.values:
        run = (plain if each.is_closure else namespace)[each.python_name]
        value = each.of(run)
        if each.symbol is not None:
            text.symbols.setdefault(each.symbol, value)
        if each.alias is not None:
            namespace[each.alias] = value
        functions[each.name] = run if each.is_closure else value
    return Loaded(functions, namespace, defined)


def with_native_calls(text: Text) -> Text:
    """The text, whose calls of packed functions are in machine code."""
    calls = {n: v for n, v in text.objects.items() if isinstance(v, support.CompiledPackedCall)}
    if not calls:
        return text
    from relaxpy.exec.native.calls.packed import native_call

    native = {name: native_call(call) for name, call in calls.items()}
    return replace(text, objects={**text.objects, **native})


def instrument_calls(
    lowering: ModuleLowering, namespace: dict[str, Any], instrument: Instrument
) -> None:
    """Replace the functions that the source calls by name with ones that report their calls."""
    for name, value in lowering.namespace.items():
        if isinstance(value, support.CompiledPackedCall):
            namespace[name] = InstrumentedPackedCall(value, instrument)
        elif isinstance(value, DynamicOperator):
            namespace[name] = Instrumented(value, value.name, instrument)
    for symbol, callee in lowering.callees.items():
        if not isinstance(callee, GlobalCallee) or callee.name not in namespace:
            continue
        name, count = lowering.work_name(callee), len(callee.signature.params)
        namespace[name] = Instrumented(
            namespace[name], symbol, instrument, count, is_kernel=callee.kernel is not None
        )
    instrumented = {
        "invoke": partial(invoke_instrumented, instrument, (), {}),
        "invoke_declared": partial(invoke_instrumented, instrument),
    }
    namespace["rx"] = SimpleNamespace(**vars(namespace["rx"]) | instrumented)


def _with_header(lowering: ModuleLowering, definitions: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The definitions after the imports and datatypes that they use, if there are any."""
    if not definitions:
        return []
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
    return [*ast.parse("\n".join(imports)).body, *dtypes, *definitions]


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
    "rt": "from relaxpy.exec.numpy import runtime as rt",
    "rx": "from relaxpy.exec.runtime import support as rx",
    "ndarray": "ndarray = np.ndarray",
}
"""The lines of source that define the names of `MODULES`."""
