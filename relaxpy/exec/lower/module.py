"""A whole module as one Python text: kernels, Relax functions, and the objects they name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

from relaxpy.errors import CompileError
from relaxpy.exec import python_ast as py
from relaxpy.exec.kernel import Kernel, Unchecked
from relaxpy.exec.lower.function import FunctionLowering
from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.exec.lower.uses import written_params
from relaxpy.exec.runtime import support
from relaxpy.exec.runtime.dynamic import DynamicOperator, DynamicPrograms
from relaxpy.exec.runtime.instrument import Instrument, Watched
from relaxpy.exec.runtime.python_functions import symbol_of, symbols
from relaxpy.exec.runtime.signatures import function_info, signature_of
from relaxpy.exec.runtime.support import WatchedPackedCall, invoke_watched
from relaxpy.exec.runtime.tail_calls import FunctionKey, Jumps, find_jumps
from relaxpy.exec.runtime.values import Closure, PrimFuncValue, Value
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.pysource import Names, load, render, spans_by_line

KernelCompiler: TypeAlias = Callable[[PrimFunc, str, str, Mapping[str, str]], Kernel]


@dataclass(frozen=True, slots=True)
class LoweredModule:
    """The text of a module, and its functions: Relax functions plain, PrimFuncs as values."""

    source: str
    functions: Mapping[str, Callable[..., Value]]
    kernels: Mapping[str, Kernel]


class ModuleLowering:
    """Names and shared objects of one module's text."""

    def __init__(
        self,
        module: IRModule,
        compile_kernel: KernelCompiler,
        programs: DynamicPrograms,
        *,
        is_watched: bool,
    ) -> None:
        self.is_watched = is_watched
        self._module = module
        self._compile_kernel = compile_kernel
        self.programs = programs
        self.names = Names(("np", "math", "rt", "rx", "ndarray"))
        self.own_functions: dict[str, Value] = dict(symbols(module))
        self.namespace: dict[str, Any] = {}
        self.dtypes: dict[str, str] = {}
        self.value_names: dict[str, str] = {}
        self._shared: dict[int, tuple[object, str]] = {}
        self._without_checks: set[str] = set()
        functions = module.functions_by_name
        graphs = {own: func for own, func in functions.items() if isinstance(func, rx.Function)}
        # An instrument sees every call, so that there all of them are calls.
        self.jumps: Mapping[FunctionKey, Jumps] = {} if is_watched else find_jumps(graphs)
        names = {own: self.names.fresh(own) for own in functions}
        self._own_names = {
            own: name
            for own, name in names.items()
            if not isinstance(functions[own], rx.ExternFunc)
        }
        self.callees = {
            own: func if isinstance(func, rx.ExternFunc) else self._callee(own, names[own], func)
            for own, func in functions.items()
        }

    def _callee(self, own: str, name: str, func: rx.BaseFunc) -> GlobalCallee:
        signature = signature_of(func, own)
        if not isinstance(func, PrimFunc):
            by_steps = (own, None) in self.jumps and self.jumps[own, None].by_steps
            step = self.names.fresh(f"{name}_step") if by_steps else None
            return GlobalCallee(name, signature, step=step)
        unchecked = self.names.fresh(f"{name}_unchecked")
        kernel = self._compile_kernel(func, name, unchecked, self._own_names)
        return GlobalCallee(name, signature, func, kernel, written_params(func))

    def callee(self, var: rx.GlobalVar) -> GlobalCallee | rx.ExternFunc:
        """What a GlobalVar stands for.

        Errors:
            CompileError: it is not in the module (SC-1).
        """
        if var.name_hint not in self.callees:
            raise CompileError(f"the module has no function {var.name_hint}", rule="SC-1")
        return self.callees[var.name_hint]

    def python_callee(self, name: str) -> rx.ExternFunc:
        """What `call_py_func` calls by a name: a Python function of the module, or a packed one."""
        own = self.callees.get(name)
        return (
            own
            if isinstance(own, rx.ExternFunc) and python_function_of(own)
            else rx.ExternFunc(name)
        )

    def unchecked(self, callee: GlobalCallee) -> Unchecked:
        """The kernel of `callee` without its checks, which becomes part of the text."""
        assert callee.kernel is not None
        assert callee.kernel.unchecked is not None
        self._without_checks.add(callee.name)
        return callee.kernel.unchecked

    def kernel_definitions(self, callee: GlobalCallee) -> list[ast.FunctionDef]:
        """The functions that are the kernel of `callee`: that which does the work comes first."""
        assert callee.kernel is not None
        found = callee.kernel.unchecked
        if found is None or callee.name not in self._without_checks:
            return [callee.kernel.tree]
        return [found.tree, found.entry]

    def function_value(self, var: rx.GlobalVar) -> ast.expr:
        """The function that a GlobalVar stands for, as a value."""
        callee = self.callee(var)
        if isinstance(callee, rx.ExternFunc):
            made = support.CompiledPackedCall(
                symbol_of(callee), (), {}, self.own_functions, var.span
            )
            return py.call(py.attribute(self.share(callee.global_symbol, made), "function"))
        own = var.name_hint
        if own not in self.value_names:
            self.value_names[own] = self.names.fresh(f"{callee.name}_value")
        return py.path(self.value_names[own])

    def share(self, hint: str, value: object) -> ast.expr:
        """A global name for `value`; one name for one object."""
        found = self._shared.get(id(value))
        if found is None:
            found = self._shared[id(value)] = value, self.names.fresh(hint)
            self.namespace[found[1]] = value
        return py.path(found[1])

    def dtype_name(self, dtype: str) -> str:
        """The global name of a datatype."""
        if dtype not in self.dtypes:
            self.dtypes[dtype] = self.names.fresh("boolean" if dtype == "bool" else dtype)
        return self.dtypes[dtype]

    def definitions(self, func: rx.Function, var: rx.GlobalVar) -> list[ast.FunctionDef]:
        """The Python function for a Relax function, after its step if it has one."""
        callee = self.callee(var)
        assert isinstance(callee, GlobalCallee)
        return FunctionLowering(self, func, var.name_hint).lower(callee)


def lower_module(
    module: IRModule,
    compile_kernel: KernelCompiler,
    runtime: object,
    instrument: Instrument | None = None,
) -> LoweredModule:
    """Every function of `module` as Python, loaded; `runtime` is what kernels call `rt`.

    The calls that functions make of each other, of kernels, packed functions and operators lowered
    at run time are shown to `instrument`.

    Errors:
        CompileError: something in the module cannot be lowered.
    """

    def build(program: IRModule) -> Callable[..., Value]:
        return lower_module(program, compile_kernel, runtime).functions["main"]

    is_watched = instrument is not None
    lowering = ModuleLowering(module, compile_kernel, DynamicPrograms(build), is_watched=is_watched)
    functions_of_graphs = [
        definition
        for var, func in module.functions.items()
        if isinstance(func, rx.Function)
        for definition in lowering.definitions(func, var)
    ]
    kernels: dict[str, Kernel] = {}
    definitions: list[ast.stmt] = []
    for own, callee in lowering.callees.items():
        if isinstance(callee, GlobalCallee) and callee.kernel is not None:
            kernels[own] = callee.kernel
            definitions += lowering.kernel_definitions(callee)
    tree = ast.Module([*_header(lowering), *definitions, *functions_of_graphs], [])
    source = render(tree)
    try:
        names = {**lowering.namespace, "rt": runtime}
        namespace = load(source, "module", names, spans_by_line(tree, source))
    except IndentationError:
        raise CompileError(
            "branches and local functions nest deeper than Python's 100 levels of indentation",
            hint="make functions of the module of the inner ones",
        ) from None
    except SyntaxError as error:  # of what was generated: Python nests no more blocks
        raise CompileError(
            f"the loops of a kernel nest deeper than Python does: {error.msg}",
            hint='fuse loops, or use target="reference"',
        ) from None
    plain_functions = dict(namespace)
    if instrument is not None:
        _watch(lowering, namespace, instrument)
    functions = {}
    for own, callee in lowering.callees.items():
        if isinstance(callee, rx.ExternFunc):
            continue
        plain = (plain_functions if callee.prim_func is None else namespace)[callee.name]
        value = _function_value(module[own], callee, plain)
        if isinstance(value, PrimFuncValue):
            symbol = callee.prim_func.attrs.get("global_symbol") if callee.prim_func else None
            if symbol is not None:
                lowering.own_functions[str(symbol)] = value
        if own in lowering.value_names:
            namespace[lowering.value_names[own]] = value
        functions[own] = value if isinstance(value, PrimFuncValue) else plain
    return LoweredModule(source, functions, kernels)


def _watch(lowering: ModuleLowering, namespace: dict[str, Any], instrument: Instrument) -> None:
    """Put what shows its calls in the place of every function that the text calls by a name."""
    for name, value in lowering.namespace.items():
        if isinstance(value, support.CompiledPackedCall):
            namespace[name] = WatchedPackedCall(value, instrument)
        elif isinstance(value, DynamicOperator):
            namespace[name] = Watched(value, value.name, instrument)
    for own, callee in lowering.callees.items():
        if isinstance(callee, rx.ExternFunc):
            continue
        name = callee.name
        if callee.kernel is not None:
            name = lowering.kernel_definitions(callee)[0].name
        count = len(callee.signature.params)
        namespace[name] = Watched(namespace[name], own, instrument, count)
    watched = {"invoke": partial(invoke_watched, instrument)}
    namespace["rx"] = SimpleNamespace(**vars(support) | watched)


def _header(lowering: ModuleLowering) -> list[ast.stmt]:
    """Imports and datatypes."""
    imports = "import math\nimport numpy as np\nfrom relaxpy.exec.runtime import support as rx\n"
    dtypes = [
        py.assign(name, py.call("rx.dtype", py.text(str(dtype))))
        for dtype, name in lowering.dtypes.items()
    ]
    return [*ast.parse(imports).body, py.assign("ndarray", py.path("np.ndarray")), *dtypes]


def _function_value(
    func: rx.BaseFunc, callee: GlobalCallee, run: Callable[..., Value]
) -> Closure | PrimFuncValue:
    name = callee.signature.name
    if isinstance(func, rx.Function):
        return Closure(run, function_info(func), name)
    assert isinstance(func.struct_info, rx.FuncStructInfo)
    return PrimFuncValue(partial(support.run_kernel, run), func.struct_info, name)
