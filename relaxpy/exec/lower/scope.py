"""The module and the scope of a Relax function that is being lowered."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from relaxpy.exec.kernel import Kernel, NativeUnchecked, Unchecked
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.dynamic import DynamicPrograms
from relaxpy.exec.runtime.tail_calls import FunctionKey, Jumps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.pysource import Names


@dataclass(frozen=True, slots=True)
class GlobalCallee:
    """A function of the module, with its Python name and the signature for checks of calls.

    A kernel has its PrimFunc and its compiled form. A function with recursive tail calls may have a
    `step`, which returns these calls.
    """

    name: str
    signature: Signature
    prim_func: PrimFunc | None = None
    kernel: Kernel | None = None
    step: str | None = None

    @property
    def written(self) -> frozenset[int]:
        """The positions of the parameters that a kernel may write."""
        return frozenset() if self.kernel is None else self.kernel.written


class ModuleContext(Protocol):
    """The state of a module that the lowering of its functions shares."""

    names: Names
    is_instrumented: bool
    module_functions: dict[str, object]
    programs: DynamicPrograms
    jumps: Mapping[FunctionKey, Jumps]

    def callee(self, var: rx.GlobalVar) -> GlobalCallee | rx.ExternFunc:
        """The function that a GlobalVar refers to."""

    def python_callee(self, name: str) -> rx.ExternFunc:
        """The callee of `call_py_func`."""

    def literal(self, expr: rx.Constant) -> ast.expr:
        """The array of a literal; a large one is loaded at run time."""

    def packed_symbol(self, func: rx.ExternFunc) -> str:
        """The symbol of a packed function."""

    def unchecked(self, callee: GlobalCallee) -> Unchecked | NativeUnchecked:
        """The kernel of `callee` without its checks, which is added to the source."""

    def overwritable(self, callee: GlobalCallee) -> frozenset[tuple[int, int]]:
        """The pairs of an input and an output of a kernel that may be the same tensor."""

    def is_reshape(self, callee: GlobalCallee) -> bool:
        """Return whether a kernel only copies its input to its output in row-major order."""

    def function_value(self, var: rx.GlobalVar) -> ast.expr:
        """The function that a GlobalVar refers to, as a value."""

    def share(self, hint: str, value: object) -> ast.expr:
        """A global name for `value`."""

    def dtype_name(self, dtype: str) -> str:
        """The global name of a datatype."""


@dataclass(slots=True)
class Scope:
    """The variables and sizes in scope, with their known struct info, and local functions."""

    values: dict[rx.Var, ast.expr] = field(default_factory=dict)
    sizes: dict[tir.Var, str] = field(default_factory=dict)
    origins: dict[tir.Var, str] = field(default_factory=dict)
    known: dict[rx.Var, rx.StructInfo] = field(default_factory=dict)
    functions: dict[rx.Var, tuple[str, int]] = field(default_factory=dict)

    def captured(self, itself: rx.Var | None) -> Scope:
        """The scope that the function `itself` captures: no other DataflowVar (EV-9, EV-11)."""
        inner = self.nested()
        for var in [v for v in inner.values if isinstance(v, rx.DataflowVar) and v is not itself]:
            del inner.values[var]
            inner.functions.pop(var, None)
        return inner

    def nested(self) -> Scope:
        """A scope nested in this one."""
        return replace(
            self,
            values=dict(self.values),
            sizes=dict(self.sizes),
            origins=dict(self.origins),
            known=dict(self.known),
            functions=dict(self.functions),
        )
