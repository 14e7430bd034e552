"""What a Relax function that is being lowered sees around it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from relaxpy.exec.kernel import Kernel, Unchecked
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.dynamic import DynamicPrograms
from relaxpy.exec.runtime.tail_calls import FunctionKey, Jumps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.pysource import Names


@dataclass(frozen=True, slots=True)
class GlobalCallee:
    """A function of the module: its Python name, and the signature that calls are checked by.

    Of a kernel also what it was compiled to, and the parameters that it may write. Of a function
    that calls others in circles also the name of its `step`, which returns before the next call.
    """

    name: str
    signature: Signature
    prim_func: PrimFunc | None = None
    kernel: Kernel | None = None
    written: frozenset[int] = frozenset()
    step: str | None = None


class Globals(Protocol):
    """What a function needs to know of the module around it."""

    names: Names
    is_watched: bool
    own_functions: dict[str, object]
    programs: DynamicPrograms
    jumps: Mapping[FunctionKey, Jumps]

    def callee(self, var: rx.GlobalVar) -> GlobalCallee | rx.ExternFunc:
        """What a GlobalVar stands for."""

    def python_callee(self, name: str) -> rx.ExternFunc:
        """What `call_py_func` calls by a name."""

    def unchecked(self, callee: GlobalCallee) -> Unchecked:
        """The kernel of `callee` without its checks, which becomes part of the text."""

    def function_value(self, var: rx.GlobalVar) -> ast.expr:
        """The function that a GlobalVar stands for, as a value."""

    def share(self, hint: str, value: object) -> ast.expr:
        """A global name for `value`."""

    def dtype_name(self, dtype: str) -> str:
        """The global name of a datatype."""


@dataclass(slots=True)
class Scope:
    """What is bound where a function stands: variables, sizes, and what is surely known of them."""

    values: dict[rx.Var, ast.expr] = field(default_factory=dict)
    sizes: dict[tir.Var, str] = field(default_factory=dict)
    origins: dict[tir.Var, str] = field(default_factory=dict)
    known: dict[rx.Var, rx.StructInfo] = field(default_factory=dict)
    functions: dict[rx.Var, tuple[str, int]] = field(default_factory=dict)

    def captured(self, itself: rx.Var | None) -> Scope:
        """What the function `itself` sees here: itself, but no other DataflowVar (EV-9, EV-11)."""
        inner = self.opened()
        for var in [v for v in inner.values if isinstance(v, rx.DataflowVar) and v is not itself]:
            del inner.values[var]
            inner.functions.pop(var, None)
        return inner

    def opened(self) -> Scope:
        """The surroundings of a branch that stands here."""
        return replace(
            self,
            values=dict(self.values),
            sizes=dict(self.sizes),
            origins=dict(self.origins),
            known=dict(self.known),
            functions=dict(self.functions),
        )
