"""Lowering of a module to Python source with its kernels and Relax functions.

What writes the source is imported where it is needed: a module may be native code as a whole.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from relaxpy.errors import CompileError
from relaxpy.exec.machine.fast_paths import VIEWS
from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.numpy.compiler import Kernel, compile_kernel
from relaxpy.exec.numpy.emit.emitted import NativeUnchecked, Unchecked
from relaxpy.exec.program.lower.scope import GlobalCallee, LateLiteral
from relaxpy.exec.runtime.checks import Signature, signature_of
from relaxpy.exec.runtime.dynamic import DynamicPrograms
from relaxpy.exec.runtime.python_functions import resolve_python_callee, symbol_of, symbols
from relaxpy.exec.runtime.tail_calls import FunctionKey, Jumps, find_jumps
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.fork_lock import Late
from relaxpy.ir.core.tensor import Tensor
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.op_pattern import has_reshape_pattern
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support import progress
from relaxpy.support.pysource import Names

if TYPE_CHECKING:
    from relaxpy.exec.native.trees.program import KernelProgram
    from relaxpy.exec.program.graph.whole_modules import GraphBackend
    from relaxpy.exec.program.lower.text import Text


class Backend(Protocol):
    """Compiles the PrimFuncs of one module; without own methods, for NumPy."""

    @property
    def native(self) -> GraphBackend | None:
        """The back end itself if it writes machine code."""
        return None

    def program(self, module: IRModule) -> IRModule:
        """The module to compile instead of this one; the functions of both are called alike."""
        return module

    def compile_kernel(
        self, func: PrimFunc, name: str, unchecked_name: str, functions: Mapping[str, str]
    ) -> Kernel:
        """The kernel of `func`."""
        return compile_kernel(func, name, unchecked_name, functions)

    def compile_graph(self, context: ModuleLowering, func: rx.Function, name: str) -> bool:
        """Compile a Relax function, after all kernels; False if it stays in Python."""
        return False

    def outlined(
        self,
        context: ModuleLowering,
        func: rx.Function,
        compiled: Callable[[rx.Function], rx.GlobalVar | None],
    ) -> rx.Function:
        """A function that stays in Python, which may call new functions.

        `compiled` compiles these; it returns None if there is no native form.
        """
        return func

    def link(self, namespace: dict[str, Any]) -> None:
        """Replace the work of kernels in the namespace of the module's source."""

    def loops(self, func: PrimFunc, kernel: Kernel) -> KernelProgram:
        """The loops of the kernel of `func`."""
        from relaxpy.exec.native.backend import rewritten
        from relaxpy.exec.native.trees.program import program_of

        return rewritten(program_of(kernel.plan))

    def machine_code(self, name: str, kind: Literal["llvm", "asm"]) -> str | None:
        """The LLVM IR or assembly of the kernel of that Python name, if it has any."""
        return None


class NumpyBackend(Backend):
    """The back end that runs all kernels on NumPy."""


class ModuleLowering:
    """The names and shared objects of the source of one module."""

    def __init__(
        self,
        module: IRModule,
        backend: Backend,
        programs: DynamicPrograms,
        *,
        is_instrumented: bool,
    ) -> None:
        self.is_instrumented = is_instrumented
        self.module = module
        self.program = program = backend.program(module)
        """The module to compile, with more kernels than the source calls."""

        self._backend = backend
        self.programs = programs
        self.names = Names(("np", "math", "rt", "rx", "ndarray"))
        self.module_functions: dict[str, Value] = dict(symbols(module))
        self.namespace: dict[str, Any] = {}
        self.dtypes: dict[str, str] = {}
        self.value_names: dict[str, str] = {}
        self.variables: dict[tuple[str, str], rx.Var] = {}
        """The variables of names in Relax functions, those with shapes if there are several."""
        self._shared: dict[int, tuple[object, str]] = {}
        self._definitions: dict[str, list[ast.FunctionDef]] = {}
        self.texts: dict[str, rx.BaseFunc] = dict(module.functions_by_name)
        """The functions of the source: those of the module, and outlined ones, which they call."""
        self._literals: dict[rx.Constant, LateLiteral] = {}
        self._without_checks: set[str] = set()
        functions = {**program.functions_by_name, **module.functions_by_name}
        graphs = {name: func for name, func in functions.items() if isinstance(func, rx.Function)}
        # An instrument observes every call, so that none of them can be a jump.
        self.jumps: Mapping[FunctionKey, Jumps] = {} if is_instrumented else find_jumps(graphs)
        names = {name: self.names.fresh(name) for name in functions}
        self._python_names = {
            name: python_name
            for name, python_name in names.items()
            if not isinstance(functions[name], rx.ExternFunc)
        }
        self.callees = {
            name: func if isinstance(func, rx.ExternFunc) else self._callee(name, names[name], func)
            for name, func in functions.items()
        }

    def _callee(self, name: str, python_name: str, func: rx.BaseFunc) -> GlobalCallee:
        progress.now(name)
        signature = signature_of(func, name)
        if not isinstance(func, PrimFunc):
            by_steps = (name, None) in self.jumps and self.jumps[name, None].by_steps
            step = self.names.fresh(f"{python_name}_step") if by_steps else None
            return GlobalCallee(python_name, signature, step=step)
        unchecked = self.names.fresh(f"{python_name}_unchecked")
        kernel = self._backend.compile_kernel(func, python_name, unchecked, self._python_names)
        return GlobalCallee(python_name, signature, func, kernel)

    def python_name(self, name: str) -> str:
        """The Python name of a function of the module."""
        return self._python_names[name]

    def functions(self) -> list[tuple[rx.GlobalVar, rx.Function]]:
        """The Relax functions that are compiled."""
        functions = self.program.functions.items()
        return [(var, func) for var, func in functions if isinstance(func, rx.Function)]

    def add_outlined(self, name: str, func: rx.Function) -> None:
        """Add an outlined function, which has a native form."""
        self.texts[name] = func
        self._python_names[name] = python_name = self.names.fresh(name)
        self.callees[name] = GlobalCallee(python_name, Signature.of(func, name))

    def is_outlined(self, name: str) -> bool:
        """True if a function was outlined."""
        return name not in self.program.functions_by_name

    def callee(self, var: rx.GlobalVar) -> GlobalCallee | rx.ExternFunc:
        """The function that a GlobalVar refers to. Errors: CompileError if it is unknown (SC-1)."""
        if var.name_hint not in self.callees:
            raise CompileError(f"the module has no function {var.name_hint}", rule="SC-1")
        return self.callees[var.name_hint]

    def kernel_of(self, callee: rx.Expr) -> GlobalCallee | None:
        """The kernel of the module that an expression refers to, if it is one."""
        found = self.callee(callee) if isinstance(callee, rx.GlobalVar) else None
        return found if isinstance(found, GlobalCallee) and found.prim_func is not None else None

    def python_callee(self, name: str) -> rx.ExternFunc:
        """The callee of `call_py_func`."""
        return resolve_python_callee(self.module, name)

    def packed_symbol(self, func: rx.ExternFunc) -> str:
        """The symbol of a packed function; a new one if the node contains the function."""
        symbol, function = symbol_of(func), python_function_of(func)
        if function is None:
            return symbol
        name, count = symbol, 0
        while self.module_functions.setdefault(name, function) is not function:
            count += 1
            name = f"{symbol} {count}"
        return name

    def unchecked(self, callee: GlobalCallee) -> Unchecked | NativeUnchecked:
        """The kernel of `callee` without its checks, which is added to the source."""
        assert callee.kernel is not None
        assert callee.kernel.unchecked is not None
        self._without_checks.add(callee.name)
        return callee.kernel.unchecked

    def overwritable(self, callee: GlobalCallee) -> frozenset[tuple[int, int]]:
        """The pairs of an input and an output of a kernel that may be the same tensor."""
        assert callee.kernel is not None
        # Properties of the Python kernel do not hold for native code.
        return frozenset() if callee.kernel.is_native else callee.kernel.overwritable

    def is_reshape(self, callee: GlobalCallee) -> bool:
        """True if a kernel only copies its input to its output in row-major order."""
        kernel = callee.prim_func if VIEWS and not self.is_instrumented else None
        return kernel is not None and has_reshape_pattern(kernel)

    def kernel_definitions(self, callee: GlobalCallee) -> list[ast.FunctionDef]:
        """The functions of the kernel of `callee`."""
        assert callee.kernel is not None
        unchecked = callee.kernel.unchecked
        if callee.name in self._without_checks and isinstance(unchecked, Unchecked):
            return [unchecked.tree, self._checked(callee.name, callee.kernel, unchecked.entry)]
        return [self._checked(callee.name, callee.kernel, callee.kernel.tree)]

    def _checked(self, name: str, kernel: Kernel, tree: ast.FunctionDef) -> ast.FunctionDef:
        """The kernel that checks its arguments."""
        signature = self.share(f"{name}_signature", kernel.checked)
        params = [arg.arg for arg in tree.args.args]
        return py.function(name, params, tree.body, [py.attribute(signature, "checked")])

    def work_name(self, callee: GlobalCallee) -> str:
        """The name of the function that does the work of `callee`."""
        is_apart = callee.kernel is not None and callee.name in self._without_checks
        return self.unchecked(callee).name if is_apart else callee.name

    def function_value(self, var: rx.GlobalVar) -> ast.expr:
        """The function that a GlobalVar refers to, as a value."""
        callee = self.callee(var)
        if isinstance(callee, rx.ExternFunc):
            from relaxpy.exec.runtime.support import CompiledPackedCall

            packed_call = CompiledPackedCall(
                symbol_of(callee), (), {}, self.module_functions, var.span, is_called=False
            )
            return py.call(py.attribute(self.share(callee.global_symbol, packed_call), "function"))
        name = var.name_hint
        if name not in self.value_names:
            self.value_names[name] = self.names.fresh(f"{callee.name}_value")
        return py.path(self.value_names[name])

    def note_variable(self, function: str, name: str, var: rx.Var) -> None:
        """Note the variable whose value a name in the text of a function has."""
        known = self.variables.setdefault((function, name), var)
        if getattr(known.struct_info, "shape", None) is None:
            self.variables[function, name] = var

    def share(self, hint: str, value: object) -> ast.expr:
        """The global name of the object `value`."""
        entry = self._shared.get(id(value))
        if entry is None:
            entry = self._shared[id(value)] = value, self.names.fresh(hint)
            self.namespace[entry[1]] = np.asarray(value) if isinstance(value, Tensor) else value
        return py.path(entry[1])

    def literal(self, expr: rx.Constant) -> ast.expr:
        """The array of a literal; a large one is loaded at run time."""
        if expr.nbytes < Kept.LOADED_LAZILY:
            return self.share("const", expr.data)
        return py.call(self.share("const", self._literals.setdefault(expr, LateLiteral(expr))))

    def dtype_name(self, dtype: str) -> str:
        """The global name of a datatype."""
        if dtype not in self.dtypes:
            self.dtypes[dtype] = self.names.fresh("boolean" if dtype == "bool" else dtype)
        return self.dtypes[dtype]

    def definitions(self, name: str) -> list[ast.FunctionDef]:
        """The Python function for a Relax function, preceded by its step, if there is one."""
        if name not in self._definitions:
            func, callee = self.texts[name], self.callees[name]
            assert isinstance(func, rx.Function)
            assert isinstance(callee, GlobalCallee)
            from relaxpy.exec.program.lower.relax_function import FunctionLowering

            self._definitions[name] = FunctionLowering(self, func, name).lower(callee)
        return self._definitions[name]

    def called_from(self, names: Iterable[str], native: Container[str]) -> list[str]:
        """The functions `names`, and those of the module that their source calls or refers to.

        The `native` ones have no source.
        """
        callees = {n: c for n, c in self.callees.items() if isinstance(c, GlobalCallee)}
        owners = {python_name: n for n, c in callees.items() for python_name in (c.name, c.step)}
        owners |= {c.kernel.unchecked_name: n for n, c in callees.items() if c.kernel is not None}
        found = list(names)
        for name in found:
            kernel = callees[name].kernel
            if name not in native if kernel is None else not kernel.is_native:
                trees = self.definitions(name) if kernel is None else [kernel.tree]
                owners |= {value: n for n, value in self.value_names.items()}
                used = (node.id for node in py.nodes_in(trees) if isinstance(node, ast.Name))
                more = dict.fromkeys(owners[name] for name in used if name in owners)
                found += [name for name in more if name not in found]  # the list grows meanwhile
        return found


def lower_module(
    module: IRModule,
    new_backend: Callable[[], Backend],
    programs: DynamicPrograms,
    *,
    is_instrumented: bool = False,
) -> LoweredModule:
    """Lower every function of `module`, natively or else to Python.

    A new back end compiles the kernels; operators that are lowered at run time are `programs`.

    Errors:
        CompileError: something in the module cannot be lowered.
    """
    with progress.stage("lowering of functions"):
        backend = new_backend()
        lowering = ModuleLowering(module, backend, programs, is_instrumented=is_instrumented)
        lowered = LoweredModule(lowering, backend)
        if not is_instrumented:
            lowered.emit_graphs()
    return lowered


class LoweredModule:
    """The functions of a module: those with a native form, and the texts of the others."""

    def __init__(self, lowering: ModuleLowering, backend: Backend) -> None:
        self.lowering, self.backend = lowering, backend
        self.native: set[str] = set()
        """The Relax functions that have a native form."""
        self.kernels: Mapping[str, Kernel] = {
            name: callee.kernel
            for name, callee in lowering.callees.items()
            if isinstance(callee, GlobalCallee) and callee.kernel is not None
        }
        self.whole = Late(lambda: self._text_of([*lowering.texts], has_kernels=True))
        """The text of all functions and kernels."""

    def emit_graphs(self) -> None:
        """Emit the Relax functions, or parts of them, that have a native form."""
        for var, func in self.lowering.functions():
            progress.now(var.name_hint)
            if not self._compile_graph(func, var.name_hint):
                self._outline(var.name_hint)

    def _compile_graph(self, func: rx.Function, name: str) -> bool:
        """Compile a Relax function; return whether it has a native form."""
        is_native = self.backend.compile_graph(self.lowering, func, name)
        if is_native:
            self.native.add(name)
        return is_native

    def _outline(self, caller: str) -> None:
        """Compile the parts of a function that have a native form."""
        lowering = self.lowering

        def compiled(func: rx.Function) -> rx.GlobalVar | None:
            name = Names(lowering.callees).fresh(f"{caller}_kernels")
            if not self._compile_graph(func, name):
                return None
            lowering.add_outlined(name, func)
            return rx.GlobalVar(name)

        if isinstance(func := lowering.texts.get(caller), rx.Function):
            lowering.texts[caller] = self.backend.outlined(lowering, func, compiled)

    @property
    def program(self) -> IRModule:
        """The module to compile instead of the original one."""
        return self.lowering.program

    def text(self) -> Text | None:
        """The text of what runs in Python: what is not native with all that it calls, if any.

        Public kernels are in it as values.
        """
        callees, functions = self.lowering.callees, self.lowering.program.functions_by_name
        in_python = {var.name_hint for var, _ in self.lowering.functions()} - self.native
        in_python |= {name for name, kernel in self.kernels.items() if not kernel.is_native}
        public = {n for n in self.kernels if "global_symbol" in functions[n].attrs}
        called = [name for name in callees if name in in_python | public]
        if in_python:
            called = self.lowering.called_from(called, self.native)
        if len(called) == len(callees) and not any(k.is_native for k in self.kernels.values()):
            return self.whole()
        names = [name for name in callees if name in called]
        return self._text_of(names, self.native) if names else None

    def text_of_functions(self) -> Text:
        """The text of all Relax functions, and of the kernels that are not native."""
        return self._text_of([*self.lowering.texts])

    def text_of_kernels(self) -> Text:
        """The text of all kernels, native ones too."""
        return self._text_of([*self.kernels], has_kernels=True)

    def _text_of(
        self, names: Sequence[str], native: Container[str] = (), *, has_kernels: bool = False
    ) -> Text:
        from relaxpy.exec.program.lower.text import text_of

        with progress.stage("Python functions"):
            return text_of(self.lowering, names, native, has_kernels=has_kernels)
