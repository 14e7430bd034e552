"""One walk over a program that notes what the criteria of well-formedness ask about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from relaxpy.errors import Span
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.sharing import VisitBudget
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple as TupleExpr,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations.shape_vars import (
    Division,
    bound_shape_vars,
    definable_shape_vars,
    sizes_of,
    unconditional_divisions,
    variables_of,
)
from relaxpy.ir.tir import expr as tir

Fault: TypeAlias = Literal["unbound", "early", "self", "gone", "block", "captured"]
SIZES_COME_FROM = "a dimension of a parameter or of an R.match_cast binds it"
Role: TypeAlias = Literal["param", "return", "var", "cast", "sinfo_arg"]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSite:
    """A function of the program: a global one by its name, or a local one inside `parent`."""

    func: Function
    name: str
    parent: FunctionSite | None
    var: Var | None = None

    @property
    def outermost(self) -> FunctionSite:
        """The global function that it stands in, or is."""
        site = self
        while site.parent is not None:
            site = site.parent
        return site


@dataclass(frozen=True, slots=True, eq=False)
class BindingSite:
    """A binding, and whether a dataflow block holds it."""

    binding: Binding
    dataflow: bool
    function: FunctionSite

    @property
    def span(self) -> Span | None:
        """Where the binding stands."""
        return self.binding.span or self.binding.value.span


@dataclass(frozen=True, slots=True, eq=False)
class VarUse:
    """A use of a variable that something is wrong with."""

    var: Var | GlobalVar
    fault: Fault
    span: Span | None
    as_shape: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SizeUse:
    """A use of a shape variable that is not in scope."""

    var: tir.Var
    fault: Literal["unbound", "early", "gone"]
    span: Span | None
    inside: Node
    role: Role | None
    compound: tir.PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Annotation:
    """One info in an annotation, at whatever depth."""

    info: StructInfo
    role: Role
    span: Span | None
    of: str


@dataclass(frozen=True, slots=True, eq=False)
class CallSite:
    """A call, the function whose body makes it, and whether a dataflow block does so directly."""

    call: Call
    function: FunctionSite
    dataflow: bool
    span: Span | None


@dataclass(slots=True, eq=False)
class Survey:
    """What was found in a program."""

    module: IRModule | None
    functions: list[FunctionSite] = field(default_factory=list)
    bindings: list[BindingSite] = field(default_factory=list)
    binders: dict[Var, list[Span | None]] = field(default_factory=dict)
    dataflow_params: list[tuple[Var, FunctionSite]] = field(default_factory=list)
    var_faults: list[VarUse] = field(default_factory=list)
    size_faults: list[SizeUse] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    calls: list[CallSite] = field(default_factory=list)
    dataflow_ifs: list[If] = field(default_factory=list)
    prim_values: list[tuple[PrimValue, Span | None]] = field(default_factory=list)
    divisions: list[tuple[Division, Span | None]] = field(default_factory=list)
    stray: list[tuple[object, Span | None]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Place:
    """Where the walk is: the function, its nesting, and the dataflow block if directly in one."""

    function: FunctionSite
    depth: int
    dataflow: bool = False


class _Homes:
    """Where each variable is bound, so that an early use can be told from a late one."""

    def __init__(self) -> None:
        self.of: dict[Var, object] = {}
        self.of_size: dict[tir.Var, set[int]] = {}

    def enter(self, root: Function) -> None:
        """Enter what is bound in a function, nested ones included."""
        waiting: list[object] = [root]
        shared: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in shared:
                continue
            shared.add(id(node))
            if isinstance(node, Function):
                infos = [p.struct_info for p in node.params if p.struct_info is not None]
                for param in node.params:
                    self.of[param] = node
                for size in definable_shape_vars(*infos):
                    self.of_size.setdefault(size, set()).add(id(node))
                waiting.append(node.body)
            elif isinstance(node, SeqExpr):
                for block in node.blocks:
                    for binding in block.bindings:
                        self._enter_binding(binding, node, block)
                        waiting.append(binding.value)
                waiting.append(node.body)
            else:
                waiting += _parts(node)

    def _enter_binding(self, binding: Binding, seq: SeqExpr, block: BindingBlock) -> None:
        if binding.var is not None:
            local = isinstance(binding.var, DataflowVar)
            self.of[binding.var] = block if local else seq
        if isinstance(binding, MatchCast):
            for size in definable_shape_vars(binding.struct_info):
                self.of_size.setdefault(size, set()).add(id(seq))


class Surveyor:
    """Walks a program, scope by scope, and writes down what it finds.

    Rule:
        SC-1, SC-2, SC-3, SC-4, SC-5, SC-6, SC-7, SC-8, SC-9, SC-12, SC-13, SC-14, SC-15, SC-16.
    """

    def __init__(self, module: IRModule | None) -> None:
        self.found = Survey(module)
        self._roots: list[Function] = []
        self._begun: set[int] = set()
        self._vars: dict[Var, int] = {}
        self._seen: set[Var] = set()
        self._sizes: set[tir.Var] = set()
        self._seen_sizes: set[tir.Var] = set()
        self._being_bound: set[Var | None] = set()
        self._visits: VisitBudget | None = None

    def module(self, mod: IRModule) -> Survey:
        """The survey of all Relax functions of a module."""
        functions = [(v.name_hint, f) for v, f in mod.items() if isinstance(f, Function)]
        self._roots = [func for _, func in functions]
        for name, func in functions:
            self._visits = VisitBudget(func)
            self.function(FunctionSite(func, name, None), 0)
        return self.found

    def single(self, func: Function) -> Survey:
        """The survey of one function on its own."""
        self._roots = [func]
        self._visits = VisitBudget(func)
        name = func.attrs.get("global_symbol")
        self.function(FunctionSite(func, str(name or "the function"), None), 0)
        return self.found

    @cached_property
    def _homes(self) -> _Homes:
        """Where variables are bound, which is looked for once something is wrong with one."""
        homes = _Homes()
        for root in self._roots:
            homes.enter(root)
        return homes

    def function(self, site: FunctionSite, depth: int) -> None:
        """A function: its signature, then its body in a scope of its own."""
        func = site.func
        found = self.found
        found.functions.append(site)
        params = list(func.params)
        for param in params:
            found.binders.setdefault(param, []).append(param.span or func.span)
            self._enter(param, depth)
            if isinstance(param, DataflowVar):
                found.dataflow_params.append((param, site))
        infos = [p.struct_info for p in params if p.struct_info is not None]
        sizes = self._enter_sizes(definable_shape_vars(*infos))
        place = _Place(site, depth)
        for param in params:
            if param.struct_info is not None:
                where = param.span or func.span
                self._annotation(param.struct_info, "param", where, param.name_hint, place)
        if func.ret_struct_info is not None:
            self._annotation(func.ret_struct_info, "return", func.span, site.name, place)
        self._expr(func.body, place, func.span)
        self._leave(params)
        self._sizes.difference_update(sizes)

    def _enter(self, var: Var, depth: int) -> None:
        self._vars[var] = depth
        self._seen.add(var)

    def _leave(self, variables: Sequence[Var]) -> None:
        for var in variables:
            self._vars.pop(var, None)

    def _enter_sizes(self, sizes: Sequence[tir.Var]) -> list[tir.Var]:
        new = [size for size in sizes if size not in self._sizes]
        self._sizes.update(new)
        self._seen_sizes.update(new)
        return new

    def _sequence(self, seq: SeqExpr, place: _Place, span: Span | None) -> None:
        self._begun.add(id(seq))
        bound: list[Var] = []
        sizes: list[tir.Var] = []
        for block in seq.blocks:
            self._block(block, place, bound, sizes, span)
        self._expr(seq.body, place, seq.span or span)
        self._leave(bound)
        self._sizes.difference_update(sizes)

    def _block(
        self,
        block: BindingBlock,
        place: _Place,
        bound: list[Var],
        sizes: list[tir.Var],
        span: Span | None,
    ) -> None:
        dataflow = isinstance(block, DataflowBlock)
        inside = _Place(place.function, place.depth, dataflow or place.dataflow)
        local: list[Var] = []
        self._begun.add(id(block))
        for binding in block.bindings:
            self._bind(binding, inside, dataflow, sizes, binding.span or span)
            if binding.var is not None:
                (local if isinstance(binding.var, DataflowVar) else bound).append(binding.var)
        self._leave(local)

    def _bind(
        self,
        binding: Binding,
        place: _Place,
        dataflow: bool,
        sizes: list[tir.Var],
        span: Span | None,
    ) -> None:
        var, value = binding.var, binding.value
        self.found.bindings.append(BindingSite(binding, dataflow, place.function))
        if isinstance(value, Function):
            if var is not None:
                self._enter(var, place.depth)
            name = var.name_hint if var is not None else "the function"
            self.function(FunctionSite(value, name, place.function, var), place.depth + 1)
        else:
            self._being_bound.add(var)
            self._expr(value, place, span)
            self._being_bound.discard(var)
        if isinstance(binding, MatchCast):
            self._annotation(binding.struct_info, "cast", span, _name(var), place)
            sizes += self._enter_sizes(definable_shape_vars(binding.struct_info))
        if var is None:
            return
        self.found.binders.setdefault(var, []).append(var.span or span)
        if var.struct_info is not None:
            self._annotation(var.struct_info, "var", var.span or span, var.name_hint, place)
        self._enter(var, place.depth)

    def _expr(self, root: Expr, place: _Place, span: Span | None) -> None:
        """An expression, operands first to last; what nests in the text recurses.

        Nothing is bound on the way, so a call or tuple that stands in several places is seen once.
        """
        if self._visits is not None:
            self._visits.spend()
        waiting: list[tuple[Expr, Span | None]] = [(root, span)]
        shared: set[int] = set()
        while waiting:
            expr, outer = waiting.pop()
            if isinstance(expr, (Call, TupleExpr, TupleGetItem)):
                if id(expr) in shared:
                    continue
                shared.add(id(expr))
            where = getattr(expr, "span", None) or outer
            match expr:
                case Var():
                    self._use(expr, place, outer)
                case Call(op=op, args=args, sinfo_args=infos):
                    self.found.calls.append(CallSite(expr, place.function, place.dataflow, where))
                    for info in infos:
                        self._annotation(info, "sinfo_arg", where, _name(op), place)
                    waiting += [(a, where) for a in reversed(args)]
                    if not isinstance(op, Op):
                        waiting.append((op, where))
                case TupleExpr(fields=fields):
                    waiting += [(f, where) for f in reversed(fields)]
                case GlobalVar():
                    self._use_global(expr, outer)
                case ShapeExpr(values=values):
                    for value in values:
                        self._size(value, expr, None, where)
                case PrimValue(value=value):
                    self.found.prim_values.append((expr, where))
                    self._size(value, expr, None, where)
                case TupleGetItem(tuple_value=value):
                    waiting.append((value, where))
                case If():
                    if place.dataflow:
                        self.found.dataflow_ifs.append(expr)
                    self._expr(expr.cond, place, where)
                    self._expr(expr.true_branch, place, where)
                    self._expr(expr.false_branch, place, where)
                case SeqExpr():
                    self._sequence(expr, place, outer)
                case Function():
                    site = FunctionSite(expr, "the function", place.function)
                    self.function(site, place.depth + 1)
                case Expr():
                    pass
                case _:
                    self.found.stray.append((expr, outer))

    def _use(self, var: Var, place: _Place, span: Span | None, *, as_shape: bool = False) -> None:
        depth = self._vars.get(var)
        if depth is not None:
            if isinstance(var, DataflowVar) and depth < place.depth:
                self.found.var_faults.append(VarUse(var, "captured", span, as_shape))
            return
        self.found.var_faults.append(VarUse(var, self._var_fault(var), span, as_shape))

    def _var_fault(self, var: Var) -> Fault:
        home = self._homes.of.get(var)
        if home is None:
            return "unbound"
        if var in self._being_bound:
            return "self"
        if var not in self._seen and id(home) in self._begun:
            return "early"
        return "block" if isinstance(var, DataflowVar) else "gone"

    def _use_global(self, var: GlobalVar, span: Span | None) -> None:
        module = self.found.module
        if module is not None and var.name_hint not in module:
            self.found.var_faults.append(VarUse(var, "unbound", span))

    def _size(
        self,
        size: tir.PrimExpr,
        inside: Node,
        role: Role | None,
        span: Span | None,
        own: Set[tir.Var] = frozenset(),
    ) -> None:
        if size.height:
            self.found.divisions += [(division, span) for division in unconditional_divisions(size)]
        for var in variables_of(size):
            if var in self._sizes or var in own:
                continue
            homes = self._homes.of_size.get(var, set())
            fault: Literal["unbound", "early", "gone"] = "unbound"
            if homes & self._begun and var not in self._seen_sizes:
                fault = "early"
            elif homes:
                fault = "gone"
            self.found.size_faults.append(SizeUse(var, fault, span, inside, role, size))

    def _annotation(
        self, root: StructInfo, role: Role, span: Span | None, of: str, place: _Place
    ) -> None:
        """An annotation, part by part, with what the Func infos around each part own (SC-16).

        A part without a position is where the one around it is.
        """
        binds: set[tir.Var] = set()
        waiting: list[tuple[StructInfo, frozenset[tir.Var] | None, Span | None]]
        waiting = [(root, None, span)]  # None: outside all Func infos
        while waiting:
            info, own, outer = waiting.pop()
            where = info_span(info) or outer
            self.found.annotations.append(Annotation(info, role, where, of))
            if isinstance(info, TupleStructInfo):
                waiting += [(f, own, where) for f in reversed(info.fields)]
            elif isinstance(info, DTensorStructInfo):
                waiting.append((info.tensor_sinfo, own, where))
            elif isinstance(info, FuncStructInfo):
                inner = frozenset((*(own or ()), *bound_shape_vars(info)))
                waiting.append((info.ret, inner, where))
                waiting += [(p, inner, where) for p in reversed(info.params or ())]
            else:
                if isinstance(info, TensorStructInfo) and isinstance(info.shape, Var):
                    self._use(info.shape, place, where, as_shape=True)
                for size in sizes_of(info):
                    if role == "cast" and own is None and isinstance(size, tir.Var):
                        binds.add(size)
                    else:
                        self._size(size, info, role, where, binds | own if own else binds)


def _parts(node: object) -> Iterator[object]:
    """The expressions inside one, those of bindings excluded."""
    match node:
        case Call(op=op, args=args):
            yield op
            yield from args
        case TupleExpr(fields=fields):
            yield from fields
        case TupleGetItem(tuple_value=value):
            yield value
        case If(cond=cond, true_branch=yes, false_branch=no):
            yield from (cond, yes, no)
        case _:
            pass


def info_span(info: StructInfo) -> Span | None:
    """Where an info stands in the text."""
    span: Span | None = getattr(info, "span", None)
    return span


def _name(found: object) -> str:
    if isinstance(found, Op):
        return found.name
    if isinstance(found, ExternFunc):
        return found.global_symbol
    return getattr(found, "name_hint", "") or "this"


def survey(program: IRModule | BaseFunc) -> Survey:
    """The survey of a module, or of one Relax function on its own."""
    if isinstance(program, IRModule):
        return Surveyor(program).module(program)
    if isinstance(program, Function):
        return Surveyor(None).single(program)
    return Survey(None)
