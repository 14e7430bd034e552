"""Brings a module into the form that exports read: public functions without calls of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.exec.program.graph.largest import UPPER_BOUND
from relaxpy.exec.program.graph.local_functions import MAX_DEPTH
from relaxpy.exec.runtime.registry import legalization
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import EMPTY_ATTRS, Node
from relaxpy.ir.core.traverse import occurrences, rewrite, strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.passes.append_in_place import declared_bounds
from relaxpy.ir.passes.legalize import Legalization, is_known, legalized
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import defined_symbolic_vars
from relaxpy.ir.relax.rewrite.bind import inline_functions
from relaxpy.ir.relax.rewrite.map_bindings import Refined, copy_with_new_vars, is_sharper
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace

_MOST: Final = 4
"""The most functions that call each other and are local functions of each other."""


def with_bounds(module: IRModule, at_most: Mapping[str, int]) -> IRModule:
    """The module, whose functions declare these largest values of sizes that depend on data.

    Errors:
        MisuseError (also TypeError, ValueError): no size has the name, or a value is not a number.
    """
    if not at_most:
        return module
    functions = module.functions_by_name
    graphs = {name: func for name, func in functions.items() if isinstance(func, rx.Function)}
    names = {var.name for func in graphs.values() for var in defined_symbolic_vars(func)}
    for name, most in at_most.items():
        if name not in names:
            raise MisuseError(
                f"the program has no size {name!r:.60}", hint=close_names(name, sorted(names))
            )
        if type(most) is not int or most < 0:
            raise unexpected(most, f"the largest value of {name} is an integer from 0 on")
    result = module.clone()
    for name, func in graphs.items():
        bounds = {**declared_bounds(func, UPPER_BOUND), **at_most}
        result[name] = func.with_attr(UPPER_BOUND, bounds)
    return result


def prepared(module: IRModule) -> IRModule:
    """The public functions of a module in a form that has no calls of Relax functions.

    The bodies of others are in them; a function that calls itself, perhaps by way of others, has
    local ones that do; and shapes that are parameters are written as their sizes.
    """
    functions = module.functions_by_name
    graphs = {n: f for n, f in functions.items() if isinstance(f, rx.Function)}
    graphs |= {n: _merged(n, group, graphs) for group in _groups(graphs) for n in group}
    group_of = {n: {n} for n, func in graphs.items() if n in _callees(func)}
    group_of |= {n: {*group} for group in _groups(graphs) for n in group if len(group) <= _MOST}
    table = {n: _closed(n, graphs, group_of[n]) if n in group_of else f for n, f in graphs.items()}
    mutual = {name for group in _groups(table) for name in group}
    result = module.clone()
    for name, func in table.items():
        if "global_symbol" not in func.attrs:
            del result[name]
            continue
        others: dict[rx.GlobalVar | str, rx.Function] = {
            n: f for n, f in table.items() if n != name and n not in mutual
        }
        if not others.keys().isdisjoint(_callees(func)):
            func = inline_functions(func, others)
        result[name] = func
    return legalized(_with_sizes(result), _legalization)


def _with_sizes(module: IRModule) -> IRModule:
    """The module in which dimensions and sizes that depend on data are variables."""
    functions = module.functions_by_name
    graphs = {name: func for name, func in functions.items() if isinstance(func, rx.Function)}
    params = [param for func in graphs.values() for param in func.params]
    rewriter = _WithSizes(module, _with_dimensions(params))
    changed = {name: rewriter.visit_expr(func) for name, func in graphs.items()}
    result = rewriter.builder_.get()
    for name, func in changed.items():
        result[name] = func
    return result


class _WithSizes(Refined):
    """Replaces the calls of operators whose sizes depend on data by kernels that store them.

    The sizes are variables, and those of all that follows are known. Shapes are written as their
    sizes.
    """

    def __init__(self, module: IRModule, sinfos: Mapping[rx.Var, rx.StructInfo]) -> None:
        self._known = dict(sinfos)
        super().__init__(module, self._known)
        self._results = set[rx.Expr]()
        """The results of sequences, which need no sizes; one may be the call of a loop."""

    @override
    def visit_var_(self, op: rx.Var) -> rx.Expr:
        var: rx.Var = super().visit_var_(op)
        sinfo = var.struct_info
        if isinstance(sinfo, rx.ShapeStructInfo) and sinfo.values is not None:
            return rx.ShapeExpr(sinfo.values)
        return var

    @override
    def visit_var_binding_(self, binding: rx.VarBinding) -> None:
        """The result of a function may have sizes that only its body, which is here now, names."""
        var, known = binding.var, binding.value.struct_info
        if known is not None and var.struct_info is not None and is_sharper(known, var.struct_info):
            self._known[var] = known
        computes = isinstance(binding.value, rx.If) or _is_local_call(binding.value)
        if not computes or var in self._results or _sized(binding.value.struct_info) is None:
            super().visit_var_binding_(binding)
            return
        value = self.builder_.emit(self.visit_expr(binding.value), var.name_hint)
        sized = _sized(value.struct_info) or self.builder_.struct_info_of(value)
        self._known[var] = sized
        self.visit_match_cast_(rx.MatchCast(var, value, sized, binding.span))

    @override
    def visit_seq_expr_(self, op: rx.SeqExpr) -> rx.Expr:
        self._results.add(op.body)
        found: rx.Expr = super().visit_seq_expr_(op)
        return found

    @override
    def visit_call_(self, call: rx.Call) -> rx.Expr:
        new = self.builder_.normalize(super().visit_call_(call))
        if not isinstance(new, rx.Call) or not isinstance(new.op, Op):
            return new
        callee = new.args[0] if new.op.name == "relax.call_pure_packed" else None
        if isinstance(callee, rx.ExternFunc) and (rule := legalization(callee.global_symbol)):
            return cast("rx.Expr", rule(self.builder_, new))
        record = new.op.record
        known = all(is_known(self.builder_.struct_info_of(arg)) for arg in new.args)
        if not record.data_dependent or record.legalize_alone is None or not known:
            return new
        return cast("rx.Expr", record.legalize_alone(self.builder_, new))


def _is_local_call(value: rx.Expr) -> bool:
    return isinstance(value, rx.Call) and isinstance(value.op, rx.Var)


def _sized(sinfo: rx.StructInfo | None) -> rx.StructInfo | None:
    """Struct info with variables for the dimensions that are not known; None if all are."""
    match sinfo:
        case rx.TupleStructInfo(fields=fields):
            found = [_sized(each) for each in fields]
            if all(each is None for each in found):
                return None
            pairs = zip(found, fields, strict=True)
            return rx.TupleStructInfo([each or field for each, field in pairs])
        case rx.TensorStructInfo(shape=None, ndim=ndim) if ndim >= 0:
            sizes = [tir.Var(f"size{n}", INT64) for n in range(ndim)]
            return rx.TensorStructInfo(rx.ShapeExpr(sizes), sinfo.dtype)
        case _:
            return None


def _legalization(op: Op) -> Legalization | None:
    """The legalisation of an operator; those of others are for sizes that were not known before."""
    record = op.record
    return record.legalize_alone or record.legalize_in_loops


def _with_dimensions(params: Sequence[rx.Var]) -> dict[rx.Var, rx.StructInfo]:
    """The struct info, with variables as dimensions, of parameters of known rank."""
    found: dict[rx.Var, rx.StructInfo] = {}
    for param in params:
        sinfo, name = param.struct_info, param.name_hint
        if isinstance(sinfo, rx.TensorStructInfo) and sinfo.shape is None and sinfo.ndim >= 0:
            sizes = [tir.Var(f"{name}_dim{n}", INT64) for n in range(sinfo.ndim)]
            found[param] = rx.TensorStructInfo(rx.ShapeExpr(sizes), sinfo.dtype)
    return found


def _closed(name: str, graphs: Mapping[str, rx.Function], group: Set[str]) -> rx.Function:
    """A function of a group that calls itself, as a call of a local function that does so.

    The others of the group are local functions of those that call them.
    """
    func, local = graphs[name], _local(name, graphs)
    params = tuple(rx.Var(p.name_hint, p.struct_info, span=p.span) for p in func.params)
    call = rx.Call(local, params, struct_info=func.ret_struct_info)
    result = rx.Var("result", func.ret_struct_info)
    inner = _with_local_calls(name, graphs, group, {name: local})
    block = rx.BindingBlock([rx.VarBinding(local, inner), rx.VarBinding(result, call)])
    return replace(func, params=params, body=rx.SeqExpr([block], result))


def _local(name: str, graphs: Mapping[str, rx.Function]) -> rx.Var:
    """The variable of a local function, whose sizes are others in each call."""
    return rx.Var(name, copy_with_new_vars(graphs[name]).struct_info)


def _with_local_calls(
    name: str, graphs: Mapping[str, rx.Function], group: Set[str], known: Mapping[str, rx.Var]
) -> rx.Function:
    """A function whose calls of a group are calls of local functions; it defines some of them."""
    func = copy_with_new_vars(graphs[name])
    new = {n: _local(n, graphs) for n in sorted(_callees(func) & group - known.keys())}
    local = {**known, **new}

    def rule(node: Node) -> Node | None:
        return local.get(node.name_hint) if isinstance(node, rx.GlobalVar) else None

    body = _rewritten(func.body, rule)
    if new:
        inner = {n: _with_local_calls(n, graphs, group, {**known, n: new[n]}) for n in new}
        block = rx.BindingBlock([rx.VarBinding(new[n], inner[n]) for n in new])
        body = replace(body, blocks=(block, *body.blocks))
    attrs = {key: value for key, value in func.attrs.items() if key in (MAX_DEPTH, UPPER_BOUND)}
    return replace(func, body=body, attrs=EMPTY_ATTRS.updated(attrs))


def _rewritten(body: rx.SeqExpr, rule: Callable[[Node], Node | None]) -> rx.SeqExpr:
    return cast("rx.SeqExpr", rewrite(body, rule))


def _callees(func: rx.Function) -> set[str]:
    calls = occurrences(func.body, rx.Call)
    return {call.op.name_hint for call in calls if isinstance(call.op, rx.GlobalVar)}


def _groups(graphs: Mapping[str, rx.Function]) -> list[Sequence[str]]:
    """The functions that may call themselves by way of others, with these."""
    reached = {name: _callees(func) & graphs.keys() for name, func in graphs.items()}
    return [group for group in strongly_connected(reached) if len(group) > 1]


def _merged(name: str, group: Sequence[str], graphs: Mapping[str, rx.Function]) -> rx.Function:
    """A function of a group with the bodies of the others, so that it calls itself alone.

    The same function if the others call themselves without it.
    """
    others: dict[rx.GlobalVar | str, rx.Function] = {n: graphs[n] for n in group if n != name}
    rest = {n: graphs[n] for n in group if n != name}
    if _groups(rest) or any(n in _callees(func) for n, func in rest.items()):
        return graphs[name]
    return inline_functions(graphs[name], others)
