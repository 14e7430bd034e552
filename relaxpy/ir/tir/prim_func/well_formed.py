"""The verifier of kernels: each variable is defined before its uses, and only once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from relaxpy.errors import Diagnostic, Span, WellFormedError, check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IterVarKind, Let, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.stmt import AttrStmt, BufferRealize, DeclBuffer, For, MatchBufferRegion, Stmt
from relaxpy.support.entry import user_facing

Scope: TypeAlias = list[Var]
Kind: TypeAlias = Literal["visit", "bind", "bind again", "leave"]
Step: TypeAlias = tuple[Kind, object, Scope]
"""A step of the traversal: its kind, the node, and the variables that end with the parent node.

A shared expression may be visited several times, and binds its variables each time."""


class _Definitions:
    """The variables in scope during the traversal, and the errors in their uses."""

    def __init__(self) -> None:
        self.live: set[Var] = set()
        self.defined: set[Var] = set()
        self.faults: dict[tuple[str, Var], Diagnostic] = {}
        self.missing: dict[Var, None] = {}
        self.span: Span | None = None

    def fault(self, message: str, var: Var, rule: str | None = None) -> None:
        name = repr(var.name) if var.name else f"one of {var.dtype} without a name"
        diagnostic = Diagnostic(f"{message} {name}", rule=rule, span=self.span)
        self.faults.setdefault((message, var), diagnostic)

    def use(self, var: Var) -> None:
        if var not in self.live:
            self.missing[var] = None
            when = "after the end of its scope" if var in self.defined else "without a definition"
            self.fault(f"a variable is used {when}:", var, "PX-7")

    def define(self, var: Var, scope: Scope, *, again: bool = False) -> None:
        if var in self.defined and not again:
            self.fault("two places define the variable", var)
        if var not in self.live:  # a variable of an enclosing scope ends there
            scope.append(var)
        self.live.add(var)
        self.defined.add(var)

    def free(self, buffer: Buffer, scope: Scope, *, shape: bool = False) -> None:
        """Define the variables that are a whole stride or offset of a declared buffer."""
        for size in (*(buffer.shape if shape else ()), *buffer.strides, buffer.elem_offset):
            if isinstance(size, Var) and size.dtype == "handle":
                self.fault("a size is an address:", size)
            if isinstance(size, Var) and size not in self.live:
                self.define(size, scope)

    def parameters(self, func: PrimFunc) -> None:
        scope: Scope = []
        for param in func.params:
            self.define(param, scope)
        for buffer in func.buffer_map.values():
            self.define(buffer.data, scope, again=True)
            self.free(buffer, scope, shape=True)

    def walk(self, body: Node) -> None:
        """Visit the kernel in the order in which its variables are defined."""
        steps: list[Step] = [("visit", body, [])]
        while steps:
            kind, item, scope = steps.pop()
            if kind == "leave":
                self.live.difference_update(scope)
            elif kind != "visit":
                self.bound(item, scope, again=kind == "bind again")
            elif isinstance(item, Var):
                self.use(item)
            elif isinstance(item, Buffer):
                self.use(item.data)
            elif isinstance(item, MatchBufferRegion):
                steps += [("bind", item, scope), ("visit", item.source, scope)]
            elif isinstance(item, PrimExpr) and next(occurrences(item, Let, Reduce), None) is None:
                for node in walk(item):
                    if isinstance(node, Var):
                        self.use(node)
                    elif isinstance(node, Buffer):
                        self.use(node.data)
            elif isinstance(item, Node):
                self.span = getattr(item, "span", None) or self.span
                steps += reversed(_steps(item))

    def bound(self, item: object, scope: Scope, *, again: bool) -> None:
        """Define the variables of a binding position."""
        match item:
            case Var():
                self.define(item, scope, again=again)
            case IterVar(var=var):
                index = item.iter_type == IterVarKind.ThreadIndex
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
        """Check the shape of a buffer that is declared here, and define its strides and offset."""
        self.span = buffer.span or self.span
        self.free(buffer, scope)
        for size in buffer.shape:
            for child in walk(size):
                if isinstance(child, Var):
                    self.use(child)


def _steps(node: Node) -> list[Step]:
    """Return the steps through the fields of a node."""
    scope: Scope = []
    if isinstance(node, (DeclBuffer, BufferRealize)):
        steps: list[Step] = [("bind", node, scope)]
    else:
        steps = []
    for name in node._fields:
        value = getattr(node, name)
        if name == "node" and getattr(node, "attr_key", None) == "buffer_bind_scope":
            match value:
                case (Buffer() as view, Buffer() as source):  # a view and its source
                    steps += [("visit", source, scope), ("bind", view, scope)]
                    continue
                case _:
                    pass
        if isinstance(value, Buffer) and isinstance(node, (AttrStmt, DeclBuffer, BufferRealize)):
            continue  # handled above, or annotated and defined in the body
        if isinstance(node, For) and name == "thread_binding":
            continue  # the name of the thread index; its value is the loop variable
        binds: Kind = "bind" if isinstance(node, Stmt) else "bind again"
        members = value if type(value) is tuple else (value,)
        for member in members:
            if isinstance(member, IterVar) and member.dom is not None:
                steps.append(("visit", member.dom, scope))
            if name in node._binds or isinstance(member, IterVar):
                steps.append((binds, member, scope))
            elif isinstance(member, Node):
                steps.append(("visit", member, scope))
    steps.append(("leave", None, scope))
    return steps


def undefined_in(node: Node, defined: Iterable[Var]) -> list[Var]:
    """Return the variables that a statement or expression uses without a definition."""
    found = _Definitions()
    found.live.update(defined)
    found.walk(node)
    return list(found.missing)


def kernel_faults(func: PrimFunc) -> list[Diagnostic]:
    """Return the errors in the variables of a kernel: undefined uses and double definitions."""
    return list(_definitions(func).faults.values())


def defined_variables(func: PrimFunc) -> set[Var]:
    """Return the variables that a kernel defines, by parameters, loops, blocks and buffers."""
    return _definitions(func).defined


def defined_in(node: Node) -> set[Var]:
    """Return the variables that a statement defines, by loops, blocks and buffers."""
    definitions = _Definitions()
    definitions.walk(node)
    return definitions.defined


def _definitions(func: PrimFunc) -> _Definitions:
    definitions = _Definitions()
    definitions.parameters(func)
    definitions.walk(func.body)
    return definitions


@user_facing
def verify_well_formed(obj: PrimFunc | IRModule, assert_mode: bool = True) -> bool:
    """Return whether every variable of the kernels is defined before its uses, and only once.

    Two kernels of a module may not define the same variable, unless they are the same kernel.

    Errors:
        WellFormedError (also ValueError): a variable is not, and `assert_mode` is set.
        MisuseError (also TypeError): `obj` is neither a kernel nor a module.
    """
    check_type(obj, (PrimFunc, IRModule), "expected a PrimFunc or a module")
    members = [obj] if isinstance(obj, PrimFunc) else obj.functions.values()
    faults: list[Diagnostic] = []
    defined: set[Var] = set()
    for func in dict.fromkeys(func for func in members if isinstance(func, PrimFunc)):
        definitions = _definitions(func)
        definitions.span = func.span
        for var in definitions.defined & defined:
            definitions.fault("two kernels define the variable", var)
        defined |= definitions.defined
        faults += definitions.faults.values()
    if faults and assert_mode:
        raise WellFormedError(faults)
    return not faults
