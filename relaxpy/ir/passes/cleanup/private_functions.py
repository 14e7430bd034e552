"""InlinePrivateFunctions: calls of private functions become their bodies.

LambdaLift: local functions become functions of the module; recursive ones leave dataflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, cast

from typing_extensions import override

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rebuild, strongly_connected, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import (
    binding_vars,
    free_vars,
    mention_counts,
    used_shape_vars,
)
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import call_graph, detect_recursion, reachable, recursive_groups
from relaxpy.ir.relax.nodes import Function, GlobalVar
from relaxpy.ir.relax.relations import Compatibility, check_compatibility
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, shape_vars_of
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.ir.relax.rewrite.bind import inline_functions
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace


def only_called(mod: IRModule) -> dict[str, rx.Function]:
    """The private Relax functions that are called and not used in any other way."""
    used = {
        name
        for func in mod.functions_by_name.values()
        for node in walk(func)
        for name in used_as_values(node)
    }
    return {
        name: func
        for name, func in mod.functions_by_name.items()
        if isinstance(func, rx.Function) and "global_symbol" not in func.attrs and name not in used
    }


def used_as_values(node: Node) -> Iterator[str]:
    """The functions that a node mentions other than as a callee."""
    operands = node.args if isinstance(node, rx.Call) else children(node)
    return (n.name_hint for n in operands if isinstance(n, rx.GlobalVar))


def calls_of(mod: IRModule) -> dict[str, list[rx.Call]]:
    """The calls of each function of the module."""
    calls: dict[str, list[rx.Call]] = {}
    for func in mod.functions_by_name.values():
        for node in walk(func):
            if isinstance(node, rx.Call) and isinstance(node.op, rx.GlobalVar):
                calls.setdefault(node.op.name_hint, []).append(node)
    return calls


def with_calls(mod: IRModule, replacements: Mapping[str, Callable[[rx.Call], rx.Expr]]) -> IRModule:
    """The module with other expressions instead of the calls of functions.

    The struct info of the variables of such calls is derived again.
    """
    return map_functions(mod, rx.Function, lambda func: _Calls(replacements).expr(func))


class _Calls(rewriting.BindingRewriter):
    def __init__(self, replacements: Mapping[str, Callable[[rx.Call], rx.Expr]]) -> None:
        super().__init__()
        self.replacements = replacements

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        replacement = self.replacements.get(call.op.name_hint)
        if replacement is None:
            return None
        value = replacement(call)
        if value is call or not isinstance(binding, rx.VarBinding):
            return value
        return rx.VarBinding(self.rederived(binding.var), value, binding.span)


_LEVELS: Final = 32
"""The number of call levels that are inlined by recursion."""


@dataclass(frozen=True)
class InlinePrivateFunctions(Pass):
    """Replaces calls of private functions by their bodies, and removes these functions.

    Recursive ones stay, and so do those that are used as values. The functions that called them are
    simplified as by CanonicalizeBindings, and lose unused bindings, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        order = [name for group in strongly_connected(call_graph(mod)) for name in group]
        recursive = {name for group in recursive_groups(mod) for name in group}
        inlined = {n: func for n, func in only_called(mod).items() if n not in recursive}
        if not inlined:
            return mod
        result = mod.clone()
        for name in inlined:
            del result[name]
        for name, expanded in _expanded(mod, order, inlined):
            result[name] = expanded
        result = normalize_module(result)
        simple = CanonicalizeBindings().transform(result, ctx)
        for var, func in result.clone().items():
            if isinstance(func, Function) and func is not mod[var.name_hint]:
                result[var.name_hint] = without_dead_code(cast("Function", simple[var.name_hint]))
        return normalize_module(result)


def _expanded(
    mod: IRModule, order: Sequence[str], inlined: Mapping[str, Function]
) -> Iterator[tuple[str, Function]]:
    """The functions that stay, with the bodies of `inlined` instead of calls of these.

    Functions are visited in `order`, each after those that it calls. Of `inlined`, those of every
    `_LEVELS`th level of calls are expanded beforehand, as inlining recurses at each level.
    """
    graph = call_graph(mod)
    called = {name: [n for n in names if n in inlined] for name, names in graph.items()}
    needed = reachable(called, [name for name in order if name not in inlined])
    bodies = dict(inlined)
    inner = {**called}
    level: dict[str, int] = {}
    for name in order:
        level[name] = 1 + max((level[n] for n in called[name]), default=0)
        if name not in needed or not called[name]:
            continue
        if name not in inlined or level[name] % _LEVELS == 0:
            func = mod.functions_by_name[name]
            assert isinstance(func, Function)
            table: dict[GlobalVar | str, Function] = {
                n: bodies[n] for n in reachable(inner, called[name])
            }
            after = inline_functions(func, table)
            if name in inlined:
                bodies[name], inner[name] = after, []
            else:
                yield name, after


@dataclass(frozen=True)
class LambdaLift(Pass):
    """Makes each local function a private function of the module.

    One that captures variables takes them as its last parameters. A closure binds them, and
    `invoke_pure_closure` or `invoke_closure` calls it; it calls itself directly. A closure has
    struct info Object; where it is an argument, `match_cast` declares its type. Captured shape
    variables are passed, too, unless the arguments of all calls are known to have them. Calls that
    become recursive are moved out of dataflow blocks.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        names = _names(mod)
        if not names:
            return mod
        result = mod.clone()
        for var, func in mod.items():
            if isinstance(func, rx.Function):
                lifter = _Lifter(names, func)
                result[var] = lifter.expr(func)
                for name, lifted in lifter.lifted.items():
                    result[name] = lifted
        return rewriting.with_derived_results(mod, normalize_module(outside_dataflow(result)))


def _places(seq: rx.SeqExpr, path: tuple[str, ...]) -> Iterator[tuple[rx.Var, tuple[str, ...]]]:
    """The variables of local functions, with the names from the function of the module to them."""
    for binding in (b for block in seq.blocks for b in block.bindings):
        match binding:
            case rx.VarBinding(var=var, value=rx.Function(body=body)):
                inner = (*path, var.name_hint)
                yield var, inner
                yield from _places(body, inner)
            case rx.VarBinding(value=rx.If(true_branch=yes, false_branch=no)):
                yield from _places(yes, path)
                yield from _places(no, path)
            case _:
                pass


def _names(mod: IRModule) -> dict[rx.Var, str]:
    """The names of the functions that are lifted, by the variables of the local functions."""
    places: dict[rx.Var, tuple[str, ...]] = {}
    for target, func in mod.items():
        if isinstance(func, rx.Function):
            places.update(_places(func.body, (target.name_hint,)))
    taken = {target.name_hint for target in mod}
    short = {var: f"{path[0]}_{path[-1]}" for var, path in places.items()}
    long = {var: "_".join(path) for var, path in places.items()}
    names: dict[rx.Var, str] = {}
    for choices in (short, long):
        uses = Counter(choices[var] for var in places if var not in names)
        for var, name in choices.items():
            if var not in names and uses[name] == 1 and name not in taken:
                names[var] = name
                taken.add(name)
    numbers: Counter[str] = Counter()
    for var in (var for var in places if var not in names):
        while f"{short[var]}_{numbers[short[var]]}" in taken:
            numbers[short[var]] += 1
        names[var] = f"{short[var]}_{numbers[short[var]]}"
        taken.add(names[var])
    return names


def _proved(func: rx.Function) -> Collection[rx.Var]:
    """The local functions that are only called, with arguments that are known to fit."""
    params: dict[rx.Var, tuple[rx.StructInfo | None, ...]] = {}
    calls: dict[rx.Var, int] = {}
    uses = mention_counts(func)
    nodes = list(walk(func))
    for node in nodes:
        if isinstance(node, rx.VarBinding) and isinstance(node.value, rx.Function):
            params[node.var] = tuple(param.struct_info for param in node.value.params)
    for node in nodes:
        if isinstance(node, rx.Call) and isinstance(node.op, rx.Var) and node.op in params:
            args = tuple(arg.struct_info for arg in node.args)
            if len(args) == len(params[node.op]) and all(map(_fits, args, params[node.op])):
                calls[node.op] = calls.get(node.op, 0) + 1
    # The definition of a variable is one of its uses here.
    return {var for var in params if uses[var] == calls.get(var, 0) + 1}


def _fits(actual: rx.StructInfo | None, declared: rx.StructInfo | None) -> bool:
    """True if an argument has the struct info that a parameter declares, in both scopes."""
    if actual is None or declared is None:
        return declared is None
    scope = set(definable_shape_vars(declared))
    return check_compatibility(actual, declared, scope) is Compatibility.COMPATIBLE


class _Lifter(rewriting.BindingRewriter):
    """Lifts the local functions of one function; `lifted` has them by name.

    `closures` are the variables that may hold closures, each with whether calls of it are pure, and
    `declared` the struct info that they and tuples of them had before.
    `itself` has how the function that is being lifted calls itself.
    """

    def __init__(self, names: Mapping[rx.Var, str], func: rx.Function) -> None:
        super().__init__()
        self.names, self.proved, self.captured = names, _proved(func), _captured_sizes(func)
        self.lifted: dict[str, rx.Function] = {}
        self.closures: dict[rx.Expr, bool] = {}
        self.declared: dict[rx.Expr, rx.StructInfo] = {}
        self.itself: dict[rx.Expr, tuple[rx.GlobalVar, tuple[rx.Expr, ...]]] = {}

    @override
    def function(self, func: rx.Function) -> rx.Function:
        params = tuple(map(self._known, func.params))
        after = super().function(func if params == func.params else rebuild(func, params=params))
        declared, result = after.ret_struct_info, after.body.body
        if declared is None or not _has_functions(declared):
            return after
        is_known = result in after.params or isinstance(result, rx.GlobalVar)
        lifted = _with_closures(declared) if is_known else _of_closures(declared)
        return after if lifted == declared else rebuild(after, ret_struct_info=lifted)

    def _known(self, var: rx.Var) -> rx.Var:
        """The variable of a value that is not a closure made here, but whose results may be."""
        sinfo = var.struct_info
        after = sinfo if sinfo is None else _with_closures(sinfo)
        return var if after == sinfo else self.rederived(var, after)

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        if isinstance(binding, rx.MatchCast):
            if binding.var is not None:
                self._known(binding.var)
            target = _with_closures(binding.struct_info)
            if target != binding.struct_info:
                binding = replace(binding, struct_info=target)
            return super().binding(binding, block)
        var, sinfo = binding.var, binding.var.struct_info
        if isinstance(binding.value, rx.Function):
            return self._lift(var, binding.value)
        if isinstance(self._remapped(binding.value), rx.GlobalVar):
            self._known(var)
        elif isinstance(sinfo, rx.FuncStructInfo):
            self._enter_closure(var, pure=sinfo.purity)
        elif sinfo is not None and _has_functions(sinfo):
            self.declared[self.rederived(var, _of_closures(sinfo))] = _with_closures(sinfo)
        return super().binding(binding, block)

    def _enter_closure(self, var: rx.Var, *, pure: bool) -> rx.Var:
        new = self.rederived(var, rx.ObjectStructInfo())
        self.closures[new] = pure
        if var.struct_info is not None:
            self.declared[new] = _with_closures(var.struct_info)
        return new

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call):
            return None
        if call.op in self.itself:
            target, captured = self.itself[call.op]
            call = rebuild(call, op=target, args=(*call.args, *captured))
        if call.op not in self.closures:
            return self._cast_arguments(binding, call, block)
        sinfo = None if binding.var is None else binding.var.struct_info
        name = "invoke_pure_closure" if self.closures[call.op] else "invoke_closure"
        return rx.Call(
            Op.get(f"relax.{name}"),
            (call.op, rx.Tuple(call.args)),
            sinfo_args=() if sinfo is None else (sinfo,),
            span=call.span,
        )

    def _cast_arguments(
        self, binding: rx.Binding, call: rx.Call, block: rx.BindingBlock
    ) -> Sequence[rx.Binding]:
        """The binding of a call of a function; its arguments are cast to what they were before."""
        casts: list[rx.MatchCast] = []

        def cast(arg: rx.Expr) -> rx.Expr:
            if isinstance(arg, rx.Tuple):
                return rebuild(arg, fields=tuple(map(cast, arg.fields)))
            if not isinstance(arg, rx.Var) or arg not in self.declared:
                return arg
            sinfo = self._remapped(self.declared[arg])
            new = block.var_type(arg.name_hint, sinfo)
            casts.append(rx.MatchCast(new, arg, sinfo, call.span))
            return new

        if isinstance(call.op, (rx.GlobalVar, rx.Var)):
            call = rebuild(call, args=tuple(map(cast, call.args)))
        return [*casts, replace(binding, value=call)]

    def _lift(self, var: rx.Var, func: rx.Function) -> Iterable[rx.Binding]:
        """The value bound instead of a local function, which is entered in `lifted`."""
        target = rx.GlobalVar(self.names[var])
        outside = [v for v in free_vars(func) if v is not var]
        images = [self._remapped(v) for v in outside]
        params = [image for image in images if isinstance(image, rx.Var)]
        sizes = self._sizes(var, func, outside)
        captured = (*params, *(rx.PrimValue(size) for size in sizes))
        if not captured:
            self._remap[var] = target
            self.lifted[target.name_hint] = self._renewed(func, (), ())
            return ()
        closure = self._enter_closure(var, pure=func.is_pure)
        outer, self.itself = self.itself, {closure: (target, captured)}
        own = [rx.Var(size.name, rx.PrimStructInfo(size.dtype, size)) for size in sizes]
        value = rx.Call(Op.get("relax.make_closure"), (target, rx.Tuple(captured)), span=func.span)
        binding = rx.VarBinding(closure, value, func.span)
        self.lifted[target.name_hint] = self._renewed(func, (*params, *own), (binding,))
        self.itself = outer
        return (binding,)

    def _sizes(self, var: rx.Var, func: rx.Function, outside: Iterable[rx.Var]) -> list[tir.Var]:
        """The captured shape variables that the lifted function must be given."""
        defined = shape_vars_of((*func.params, *outside))
        checked = () if var in self.proved else shape_vars_of(func.params)
        return [v for v in self.captured[var] if v not in defined or v in checked]

    def _renewed(
        self, func: rx.Function, params: tuple[rx.Var, ...], closure: tuple[rx.VarBinding, ...]
    ) -> rx.Function:
        """The function with more parameters, and with new variables, so that it stands alone.

        It declares its result, since it may be recursive now (WF-8b).
        """
        sinfo = func.struct_info
        if func.ret_struct_info is None and isinstance(sinfo, rx.FuncStructInfo):
            func = rebuild(func, ret_struct_info=sinfo.ret)
        after = self.function(self._remapped(func))
        body = after.body
        if any(binding.var in free_vars(body) for binding in closure):
            body = rx.SeqExpr((rx.BindingBlock(closure), *body.blocks), body.body)
        return rewriting.copy_with_new_vars(
            rebuild(after, params=(*after.params, *params), body=body)
        )


def _captured_sizes(func: rx.Function) -> dict[rx.Var, list[tir.Var]]:
    """The shape variables that each local function captures."""
    captured: dict[rx.Var, list[tir.Var]] = {}

    def enter(seq: rx.SeqExpr, scope: frozenset[tir.Var]) -> None:
        for binding in (b for block in seq.blocks for b in block.bindings):
            match binding:
                case rx.MatchCast(struct_info=sinfo):
                    scope = scope | set(definable_shape_vars(sinfo))
                case rx.VarBinding(var=var, value=rx.Function() as inner):
                    used = dict.fromkeys(used_shape_vars(inner, scope=scope))
                    captured[var] = [size for size in used if size in scope]
                    enter(inner.body, scope.union(shape_vars_of(inner.params)))
                case rx.VarBinding(value=rx.If(true_branch=yes, false_branch=no)):
                    enter(yes, scope)
                    enter(no, scope)
                case _:
                    pass

    enter(func.body, frozenset(shape_vars_of(func.params)))
    return captured


def _of_closures(sinfo: rx.StructInfo) -> rx.StructInfo:
    """The struct info of a result in which functions are closures, whose struct info is Object."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return replace(sinfo, fields=tuple(map(_of_closures, sinfo.fields)))
    return rx.ObjectStructInfo() if isinstance(sinfo, rx.FuncStructInfo) else sinfo


def _with_closures(sinfo: rx.StructInfo) -> rx.StructInfo:
    """The struct info in which functions that functions return are closures."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return replace(sinfo, fields=tuple(map(_with_closures, sinfo.fields)))
    if not isinstance(sinfo, rx.FuncStructInfo):
        return sinfo
    params = None if sinfo.params is None else tuple(map(_with_closures, sinfo.params))
    return replace(sinfo, params=params, ret=_of_closures(sinfo.ret))


def _has_functions(sinfo: rx.StructInfo) -> bool:
    return any(isinstance(node, rx.FuncStructInfo) for node in walk(sinfo))


def outside_dataflow(mod: IRModule) -> IRModule:
    """The module with dataflow blocks divided at calls of functions that call the present one."""
    result = mod.clone()
    for group in detect_recursion(mod):
        names = {var.name_hint for var in group}
        for name in names:
            func = mod[name]
            assert isinstance(func, rx.Function)
            result[name] = _Divider(names).expr(func)
    return result


class _Divider(rewriting.BindingRewriter):
    """Divides the dataflow blocks of a function that is in a cycle of calls with `group`."""

    def __init__(self, group: Collection[str]) -> None:
        super().__init__()
        self.group = group
        self.in_nested_function = False

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer, self.in_nested_function = self.in_nested_function, True
        after = super().function(func) if not outer else func  # PU-20
        self.in_nested_function = outer
        return after

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if not isinstance(block, rx.DataflowBlock) or not any(
            map(self._is_recursive, block.bindings)
        ):
            return super().block(block)
        runs = [(key, tuple(run)) for key, run in groupby(block.bindings, self._is_recursive)]
        home = {binding.var: k for k, (_, run) in enumerate(runs) for binding in run}
        for k, (is_ordinary, run) in enumerate(runs):
            visible = {b.var for b in run} if is_ordinary else set()
            used = {v for b in run for v in binding_vars(b)}
            for var in visible | {v for v in used if home.get(v, k) != k}:
                if isinstance(var, rx.DataflowVar):
                    self._remap[var] = rx.Var(var.name_hint, var.struct_info, var.span)
        return [
            new
            for is_ordinary, run in runs
            for new in super(_Divider, self).block(
                rx.BindingBlock(run, block.span) if is_ordinary else replace(block, bindings=run)
            )
        ]

    def _is_recursive(self, binding: rx.Binding) -> bool:
        call = binding.value
        callee = call.op if isinstance(call, rx.Call) else None
        return isinstance(callee, rx.GlobalVar) and callee.name_hint in self.group
