"""One traversal of a program, which collects the facts for the criteria of well-formedness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import field
from typing import Literal, TypeAlias

from relaxpy.errors import Span
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.memo import VisitBudget
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import Tuple as TupleExpr
from relaxpy.ir.relax.relations.shape_vars import (
    Division,
    bound_shape_vars,
    definable_shape_vars,
    nested_infos,
    shape_vars_of,
    sizes_of,
    unconditional_divisions,
    variables_of,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace

Fault: TypeAlias = Literal["unbound", "early", "self", "gone", "block", "captured"]
BIND_SHAPE_VAR = "bind it by a dimension of a parameter or of an R.match_cast"
Role: TypeAlias = Literal["param", "return", "var", "cast", "sinfo_arg"]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSite:
    """A function of the program: a global one, or a local one inside `parent`."""

    func: rx.Function
    name: str
    parent: FunctionSite | None
    var: rx.Var | None = None

    @property
    def enclosing(self) -> list[FunctionSite]:
        """This function and those that contain it, from the inside out."""
        sites = [self]
        while (parent := sites[-1].parent) is not None:
            sites.append(parent)
        return sites

    @property
    def outermost(self) -> FunctionSite:
        """The global function that contains this one, or this one itself."""
        return self.enclosing[-1]


@dataclass(frozen=True, slots=True, eq=False)
class BindingSite:
    """A binding, and whether it is in a dataflow block."""

    binding: rx.Binding
    dataflow: bool
    function: FunctionSite

    @property
    def span(self) -> Span | None:
        """The position of the binding."""
        return self.binding.span or self.binding.value.span


@dataclass(frozen=True, slots=True, eq=False)
class VarUse:
    """A faulty use of a variable."""

    var: rx.Var | rx.GlobalVar
    fault: Fault
    span: Span | None
    as_shape: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ShapeVarUse:
    """A use of a shape variable that is not in scope, in the expression `size` of `node`."""

    var: tir.Var
    fault: Literal["unbound", "early", "gone"]
    span: Span | None
    node: Node
    role: Role | None
    size: tir.PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Annotation:
    """A struct info in the annotation of `owner` (a name), at any depth."""

    sinfo: rx.StructInfo
    role: Role
    span: Span | None
    owner: str


@dataclass(frozen=True, slots=True, eq=False)
class CallSite:
    """A call, the function that contains it, and whether it is directly in a dataflow block."""

    call: rx.Call
    function: FunctionSite
    dataflow: bool
    span: Span | None


@dataclass(slots=True, eq=False)
class Survey:
    """The collected facts about a program."""

    module: IRModule | None
    functions: list[FunctionSite] = field(default_factory=list)
    bindings: list[BindingSite] = field(default_factory=list)
    binders: dict[rx.Var, list[Span | None]] = field(default_factory=dict)
    dataflow_params: list[tuple[rx.Var, FunctionSite]] = field(default_factory=list)
    var_faults: list[VarUse] = field(default_factory=list)
    shape_var_faults: list[ShapeVarUse] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    calls: list[CallSite] = field(default_factory=list)
    dataflow_ifs: list[rx.If] = field(default_factory=list)
    prim_values: list[tuple[rx.PrimValue, Span | None]] = field(default_factory=list)
    divisions: list[tuple[Division, Span | None]] = field(default_factory=list)
    non_expressions: list[tuple[object, Span | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class _Position:
    """A function, its nesting depth, and whether the position is directly in a dataflow block."""

    function: FunctionSite
    depth: int
    dataflow: bool = False


class _Definitions:
    """The scopes in which variables are bound; they tell too early uses from too late ones."""

    def __init__(self, roots: Sequence[rx.Function]) -> None:
        self.scope_of: dict[rx.Var, Node] = {}
        self.scopes_of_shape_var: dict[tir.Var, set[int]] = {}
        for node in (node for root in roots for node in walk(root)):
            if isinstance(node, rx.Function):
                self.scope_of.update(dict.fromkeys(node.params, node))
                self._add_shape_vars(node, shape_vars_of(node.params))
            elif isinstance(node, rx.SeqExpr):
                for block in node.blocks:
                    for binding in block.bindings:
                        self._add_binding(binding, node, block)

    def _add_binding(self, binding: rx.Binding, seq: rx.SeqExpr, block: rx.BindingBlock) -> None:
        if binding.var is not None:
            local = isinstance(binding.var, rx.DataflowVar)
            self.scope_of[binding.var] = block if local else seq
        if isinstance(binding, rx.MatchCast):
            self._add_shape_vars(seq, definable_shape_vars(binding.struct_info))

    def _add_shape_vars(self, scope: Node, defined: Iterable[tir.Var]) -> None:
        for var in defined:
            self.scopes_of_shape_var.setdefault(var, set()).add(id(scope))


class Surveyor:
    """Visits a program scope by scope and collects the facts about it.

    Rule:
        SC-1, SC-2, SC-3, SC-4, SC-5, SC-6, SC-7, SC-8, SC-9, SC-12, SC-13, SC-14, SC-15, SC-16.
    """

    def __init__(self, module: IRModule | None) -> None:
        self.result = Survey(module)
        self._roots: list[rx.Function] = []
        self._entered: set[int] = set()
        """The scopes entered so far, by identity."""
        self._depths: dict[rx.Var, int] = {}
        """The variables in scope, with the nesting depth of the function that binds them."""
        self._bound: set[rx.Var] = set()
        self._shape_vars: set[tir.Var] = set()
        self._bound_shape_vars: set[tir.Var] = set()
        self._unbound: set[tir.Var] = set()
        self._being_bound: set[rx.Var | None] = set()
        self._visits: VisitBudget

    def module(self, mod: IRModule) -> Survey:
        """The survey of all Relax functions of a module."""
        functions = [(v.name_hint, f) for v, f in mod.items() if isinstance(f, rx.Function)]
        self._roots = [func for _, func in functions]
        for name, func in functions:
            self._visits = VisitBudget(func)
            self.function(FunctionSite(func, name, None), 0)
        return self.result

    def single(self, func: rx.Function) -> Survey:
        """The survey of a single function."""
        self._roots = [func]
        self._visits = VisitBudget(func)
        name = func.attrs.get("global_symbol")
        self.function(FunctionSite(func, str(name or "the function"), None), 0)
        return self.result

    @late_property
    def _definitions(self) -> _Definitions:
        """The scopes of all variables, which only faulty uses need."""
        return _Definitions(self._roots)

    def function(self, site: FunctionSite, depth: int) -> None:
        """Visit the signature of a function, then its body in a scope of its own."""
        func, result = site.func, self.result
        result.functions.append(site)
        for param in func.params:
            result.binders.setdefault(param, []).append(param.span or func.span)
            self._enter(param, depth)
            if isinstance(param, rx.DataflowVar):
                result.dataflow_params.append((param, site))
        shape_vars = self._enter_shape_vars(shape_vars_of(func.params))
        position = _Position(site, depth)
        for param in func.params:
            if param.struct_info is not None:
                span = param.span or func.span
                self._annotation(param.struct_info, "param", span, param.name_hint, position)
        if func.ret_struct_info is not None:
            self._annotation(func.ret_struct_info, "return", func.span, site.name, position)
        self._expr(func.body, position, func.span)
        self._leave(func.params)
        self._shape_vars.difference_update(shape_vars)

    def _enter(self, var: rx.Var, depth: int) -> None:
        self._depths[var] = depth
        self._bound.add(var)

    def _leave(self, variables: Sequence[rx.Var]) -> None:
        for var in variables:
            self._depths.pop(var, None)

    def _enter_shape_vars(self, variables: Sequence[tir.Var]) -> list[tir.Var]:
        new = [var for var in variables if var not in self._shape_vars]
        self._shape_vars.update(new)
        self._bound_shape_vars.update(new)
        return new

    def _sequence(self, seq: rx.SeqExpr, position: _Position, span: Span | None) -> None:
        self._entered.add(id(seq))
        bound: list[rx.Var] = []
        shape_vars: list[tir.Var] = []
        for block in seq.blocks:
            dataflow = isinstance(block, rx.DataflowBlock)
            inner = replace(position, dataflow=dataflow or position.dataflow)
            local: list[rx.Var] = []
            self._entered.add(id(block))
            for binding in block.bindings:
                self.result.bindings.append(BindingSite(binding, dataflow, position.function))
                shape_vars += self._bind(binding, inner, binding.span or span)
                if binding.var is not None:
                    (local if isinstance(binding.var, rx.DataflowVar) else bound).append(
                        binding.var
                    )
            self._leave(local)
        self._expr(seq.body, position, seq.span or span)
        self._leave(bound)
        self._shape_vars.difference_update(shape_vars)

    def _bind(
        self, binding: rx.Binding, position: _Position, span: Span | None
    ) -> Sequence[tir.Var]:
        """Visit a binding; returns the shape variables that it binds."""
        var, value = binding.var, binding.value
        if isinstance(value, rx.Function):
            if var is not None:
                self._enter(var, position.depth)
            name = var.name_hint if var is not None else "the function"
            self.function(FunctionSite(value, name, position.function, var), position.depth + 1)
        else:
            self._being_bound.add(var)
            self._expr(value, position, span)
            self._being_bound.discard(var)
        shape_vars: Sequence[tir.Var] = ()
        if isinstance(binding, rx.MatchCast):
            self._annotation(binding.struct_info, "cast", span, _name(var), position)
            shape_vars = self._enter_shape_vars(definable_shape_vars(binding.struct_info))
        if var is not None:
            self.result.binders.setdefault(var, []).append(var.span or span)
            if var.struct_info is not None:
                self._annotation(var.struct_info, "var", var.span or span, var.name_hint, position)
            self._enter(var, position.depth)
        return shape_vars

    def _expr(self, root: rx.Expr, position: _Position, span: Span | None) -> None:
        """Visit an expression, its operands from left to right; scopes are visited recursively.

        Calls and tuples bind nothing, so a shared one is visited once.
        """
        self._visits.spend()
        waiting: list[tuple[rx.Expr, Span | None]] = [(root, span)]
        visited: set[int] = set()
        while waiting:
            expr, outer = waiting.pop()
            if isinstance(expr, (rx.Call, TupleExpr, rx.TupleGetItem)):
                if id(expr) in visited:
                    continue
                visited.add(id(expr))
            where = getattr(expr, "span", None) or outer
            match expr:
                case rx.Var():
                    self._use(expr, position, outer)
                case rx.Call(op=op, args=args, sinfo_args=sinfos):
                    site = CallSite(expr, position.function, position.dataflow, where)
                    self.result.calls.append(site)
                    for sinfo in sinfos:
                        self._annotation(sinfo, "sinfo_arg", where, _name(op), position)
                    waiting += [(a, where) for a in reversed(args)]
                    if not isinstance(op, Op):
                        waiting.append((op, where))
                case TupleExpr(fields=fields):
                    waiting += [(f, where) for f in reversed(fields)]
                case rx.GlobalVar():
                    self._use_global(expr, outer)
                case rx.ShapeExpr(values=values):
                    for value in values:
                        self._size(value, expr, None, where)
                case rx.PrimValue(value=value):
                    self.result.prim_values.append((expr, where))
                    self._size(value, expr, None, where)
                case rx.TupleGetItem(tuple_value=value):
                    waiting.append((value, where))
                case rx.If():
                    if position.dataflow:
                        self.result.dataflow_ifs.append(expr)
                    for child in (expr.cond, expr.true_branch, expr.false_branch):
                        self._expr(child, position, where)
                case rx.SeqExpr():
                    self._sequence(expr, position, outer)
                case rx.Function():
                    local = FunctionSite(expr, "the function", position.function)
                    self.function(local, position.depth + 1)
                case rx.Expr():
                    pass
                case _:
                    self.result.non_expressions.append((expr, outer))

    def _use(
        self, var: rx.Var, position: _Position, span: Span | None, *, as_shape: bool = False
    ) -> None:
        depth = self._depths.get(var)
        if depth is None:
            fault = self._var_fault(var)
        elif isinstance(var, rx.DataflowVar) and depth < position.depth:
            fault = "captured"
        else:
            return
        self.result.var_faults.append(VarUse(var, fault, span, as_shape))

    def _var_fault(self, var: rx.Var) -> Fault:
        scope = self._definitions.scope_of.get(var)
        if scope is None:
            return "unbound"
        if var in self._being_bound:
            return "self"
        if var not in self._bound and id(scope) in self._entered:
            return "early"
        return "block" if isinstance(var, rx.DataflowVar) else "gone"

    def _use_global(self, var: rx.GlobalVar, span: Span | None) -> None:
        module = self.result.module
        if module is not None and var.name_hint not in module:
            self.result.var_faults.append(VarUse(var, "unbound", span))

    def _size(
        self,
        size: tir.PrimExpr,
        node: Node,
        role: Role | None,
        span: Span | None,
        bound: Set[tir.Var] = frozenset(),
    ) -> None:
        """Visit a dimension, member or value of `node`, inside which `bound` are in scope."""
        if size.height:
            divisions = unconditional_divisions(size)
            self.result.divisions += [(division, span) for division in divisions]
        for var in variables_of(size):
            if var in self._shape_vars or var in bound:
                continue
            scopes = self._definitions.scopes_of_shape_var.get(var, set())
            fault: Literal["unbound", "early", "gone"] = "gone" if scopes else "unbound"
            if scopes & self._entered and var not in self._bound_shape_vars:
                fault = "early"
            if fault == "unbound" and var in self._unbound:
                continue  # its first use is reported
            self._unbound.add(var)
            self.result.shape_var_faults.append(ShapeVarUse(var, fault, span, node, role, size))

    def _annotation(
        self, root: rx.StructInfo, role: Role, span: Span | None, owner: str, position: _Position
    ) -> None:
        """Visit an annotation with all nested struct infos (SC-16).

        A struct info without a position has that of the enclosing one.
        """
        cast_vars: set[tir.Var] = set()
        waiting: list[tuple[rx.StructInfo, frozenset[tir.Var] | None, Span | None]]
        waiting = [(root, None, span)]  # None: outside all Callables
        while waiting:
            sinfo, bound, outer = waiting.pop()
            where = getattr(sinfo, "span", None) or outer
            self.result.annotations.append(Annotation(sinfo, role, where, owner))
            if isinstance(sinfo, rx.FuncStructInfo):
                bound = frozenset((*(bound or ()), *bound_shape_vars(sinfo)))
            elif isinstance(sinfo, rx.TensorStructInfo) and isinstance(sinfo.shape, rx.Var):
                self._use(sinfo.shape, position, where, as_shape=True)
            for size in sizes_of(sinfo):
                if role == "cast" and bound is None and isinstance(size, tir.Var):
                    cast_vars.add(size)
                else:
                    self._size(size, sinfo, role, where, cast_vars | bound if bound else cast_vars)
            waiting += [(nested, bound, where) for nested in reversed(nested_infos(sinfo))]


def _name(callee: object) -> str:
    if isinstance(callee, Op):
        return callee.name
    if isinstance(callee, rx.ExternFunc):
        return callee.global_symbol
    return getattr(callee, "name_hint", "") or "this"


def survey(program: IRModule | rx.BaseFunc) -> Survey:
    """The survey of a module, or of a single Relax function."""
    if isinstance(program, IRModule):
        return Surveyor(program).module(program)
    if isinstance(program, rx.Function):
        return Surveyor(None).single(program)
    return Survey(None)
