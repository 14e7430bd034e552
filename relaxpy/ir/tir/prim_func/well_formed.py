"""Whether each variable of a kernel is defined where it is used, and in one place."""

from __future__ import annotations

from typing import Literal, TypeAlias

from relaxpy.entry import user_facing
from relaxpy.errors import Diagnostic, MisuseError, Span, WellFormedError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.buffer import Buffer, IterVar
from relaxpy.ir.tir.expr import ConstExpr, IterVarKind, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import (
    AttrStmt,
    BufferRealize,
    DeclBuffer,
    For,
    MatchBufferRegion,
    Stmt,
)

Scope: TypeAlias = list[Var]
Kind: TypeAlias = Literal["visit", "bind", "bind again", "leave"]
Step: TypeAlias = tuple[Kind, object, Scope]
"""What to do with which node, and what ends with the node around it.

An expression may stand in several places, and bind its variables in each of them."""


class _Definitions:
    """The variables that are defined at a place of a kernel, and what is wrong with their uses."""

    def __init__(self) -> None:
        self.now: set[Var] = set()
        self.ever: set[Var] = set()
        self.threads: dict[str, Var] = {}
        self.faults: dict[tuple[str, Var], Diagnostic] = {}
        self.span: Span | None = None

    def fault(self, message: str, var: Var, rule: str | None = None) -> None:
        diagnostic = Diagnostic(f"{message} {var.name!r}", rule=rule, span=self.span)
        self.faults.setdefault((message, var), diagnostic)

    def use(self, var: Var) -> None:
        if var not in self.now:
            when = "behind the end of its scope" if var in self.ever else "that nothing defines"
            self.fault(f"a variable is used {when}:", var, "PX-7")

    def define(self, var: Var, scope: Scope, *, again: bool = False) -> None:
        if var in self.ever and not again:
            self.fault("two places define the variable", var)
        if var not in self.now:  # what is defined further out already ends there
            scope.append(var)
        self.now.add(var)
        self.ever.add(var)

    def free(self, buffer: Buffer, scope: Scope, *, shape: bool = False) -> None:
        """Define the variables that stand alone in a buffer, as its declaration does."""
        for size in (*(buffer.shape if shape else ()), *buffer.strides, buffer.elem_offset):
            if isinstance(size, Var) and size not in self.now:
                self.define(size, scope)

    def parameters(self, func: PrimFunc) -> None:
        scope: Scope = []
        for param in func.params:
            self.define(param, scope)
        for buffer in func.buffer_map.values():
            self.define(buffer.data, scope, again=True)
            self.free(buffer, scope, shape=True)

    def thread(self, axis: IterVar) -> None:
        """One hardware index has one variable at a time."""
        known = self.threads.get(axis.thread_tag)
        if known is not None and known is not axis.var and known in self.now:
            self.fault(f"{axis.thread_tag} is {known.name!r} already, and becomes", axis.var)
        self.threads[axis.thread_tag] = axis.var

    def walk(self, body: Node) -> None:
        """Go through the kernel in the order in which its variables come into being."""
        steps: list[Step] = [("visit", body, [])]
        while steps:
            kind, item, scope = steps.pop()
            match kind, item:
                case "leave", _:
                    self.now.difference_update(scope)
                case "visit", Var():
                    self.use(item)
                case "bind" | "bind again", _:
                    self.bound(item, scope, again=kind == "bind again")
                case _, Buffer():
                    self.use(item.data)
                case _, MatchBufferRegion():
                    steps += [("bind", item, scope), ("visit", item.source, scope)]
                case _, Node() if not isinstance(item, ConstExpr):
                    self.span = getattr(item, "span", None) or self.span
                    steps += reversed(_parts(item))
                case _:
                    pass

    def bound(self, item: object, scope: Scope, *, again: bool) -> None:
        """Define what stands in a place that defines."""
        match item:
            case Var():
                self.define(item, scope, again=again)
            case IterVar(var=var):
                index = item.iter_type == IterVarKind.ThreadIndex
                if index:
                    self.thread(item)
                self.define(var, scope, again=again or index)
            case MatchBufferRegion(buffer=buffer) | BufferRealize(buffer=buffer):
                self.define(buffer.data, scope, again=isinstance(item, BufferRealize))
                self.declared(buffer, scope)
            case DeclBuffer(buffer=buffer):
                self.use(buffer.data)
                self.declared(buffer, scope)
            case Buffer():
                self.define(item.data, scope)
                self.declared(item, scope)
            case _:
                raise AssertionError(item)

    def declared(self, buffer: Buffer, scope: Scope) -> None:
        """The sizes of a buffer that is declared here."""
        self.free(buffer, scope)
        for size in buffer.shape:
            for part in walk(size):
                if isinstance(part, Var):
                    self.use(part)


def _parts(node: Node) -> list[Step]:
    """The steps through what is in a node."""
    own: Scope = []
    if isinstance(node, (DeclBuffer, BufferRealize)):
        found: list[Step] = [("bind", node, own)]
    else:
        found = []
    for name in node._fields:
        value = getattr(node, name)
        if isinstance(value, Buffer) and isinstance(node, (AttrStmt, DeclBuffer, BufferRealize)):
            continue  # told apart before, or an annotation of what comes into being further in
        if isinstance(node, For) and name == "thread_binding":
            continue  # a name for the index, whose values the loop variable has
        binds: Kind = "bind" if isinstance(node, Stmt) else "bind again"
        members = value if type(value) is tuple else (value,)
        for member in members:
            if isinstance(member, IterVar) and member.dom is not None:
                found.append(("visit", member.dom, own))
            if name in node._binds or isinstance(member, IterVar):
                found.append((binds, member, own))
            elif isinstance(member, Node):
                found.append(("visit", member, own))
    found.append(("leave", None, own))
    return found


def kernel_faults(func: PrimFunc) -> list[Diagnostic]:
    """What is wrong with the variables of a kernel: used where undefined, or defined twice."""
    found = _Definitions()
    found.parameters(func)
    found.walk(func.body)
    return list(found.faults.values())


@user_facing
def verify_well_formed(obj: PrimFunc | IRModule, assert_mode: bool = True) -> bool:
    """Whether every variable of the kernels is defined where it is used, and in one place.

    Errors:
        WellFormedError (also ValueError): one is not, and `assert_mode` is set.
        MisuseError (also TypeError): `obj` is neither a kernel nor a module.
    """
    if not isinstance(obj, (PrimFunc, IRModule)):
        raise MisuseError(f"expected a PrimFunc or a module, found {obj!r:.60}", about=obj)
    funcs = [obj] if isinstance(obj, PrimFunc) else obj.functions.values()
    found = [fault for f in funcs if isinstance(f, PrimFunc) for fault in kernel_faults(f)]
    if found and assert_mode:
        raise WellFormedError(found)
    return not found
