"""Functions for a back end: found by patterns, merged, and compiled by it.

FuseOpsByPattern: matches of patterns become calls of composite functions for a back end.

MergeCompositeFunctions: neighbouring functions for one back end become one function.

RunCodegen: back ends compile the functions that are annotated for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from functools import partial, reduce
from operator import or_
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import TransformError, UnknownNameError, close_names
from relaxpy.ir import hooks
from relaxpy.ir.core.node import Attrs, as_attrs
from relaxpy.ir.core.traverse import Groups, rebuild, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.passes.fusion.grouping import FunctionGroup, group_bindings
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars, udchain
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.dpl.graph import FusionPattern, PatternCheckContext, as_fusion_pattern
from relaxpy.ir.relax.dpl.matcher import Matches, extract_matched_expr
from relaxpy.ir.relax.dpl.pattern import CallPattern, TupleGetItemPattern
from relaxpy.ir.relax.nodes import Binding, Call, DataflowBlock, Expr, Var, VarBinding
from relaxpy.ir.relax.nodes.python_function import compiled_function
from relaxpy.ir.relax.rewrite.map_bindings import Rewritten, copy_with_new_vars, map_bindings
from relaxpy.support.dataclass import dataclass, replace


def codegen_name(func: rx.BaseFunc | None) -> str | None:
    """The back end of a composite function: the name of its pattern up to the first dot.

    Errors:
        TransformError: the name has no dot.
    """
    name = func.attrs.get("Composite") if isinstance(func, rx.Function) else None
    if not isinstance(name, str):
        return None
    backend, dot, _ = name.partition(".")
    if not dot or not backend:
        raise TransformError(
            f"pattern {name!r} names no back end",
            hint='begin the names of patterns with that of the back end and a dot: "mine.matmul"',
        )
    return backend


def annotated_for_codegen(mod: IRModule) -> IRModule:
    """The module with each called composite function wrapped in a function for its back end."""
    wrappers = _Wrappers(mod)

    def redirected(name: str, call: rx.Call) -> rx.Call | None:
        wrapper = wrappers.of(name)
        return None if wrapper is None else rebuild(call, op=wrapper)

    for var, func in mod.items():
        if isinstance(func, rx.Function) and not {"Composite", "Codegen"} & func.attrs.keys():
            after = _with_calls(func, redirected)
            if after is not func:
                wrappers.result[var] = after
    return normalize_module(wrappers.result) if wrappers.names else mod


class _Wrappers:
    """The wrappers of the functions of a module, which they replace in `result`."""

    def __init__(self, mod: IRModule) -> None:
        self.mod, self.result = mod, mod.clone()
        self.names: dict[str, rx.GlobalVar] = {}

    def of(self, name: str) -> rx.GlobalVar | None:
        """The function to call instead of this one, if this one is composite."""
        if name in self.names:
            return self.names[name]
        func = self.mod.find_function(name)
        backend = codegen_name(func)
        if backend is None or not isinstance(func, rx.Function):
            return None
        symbol = f"{name}_{backend}"
        # The shape variables are the same ones, which the composite function takes from around it.
        params = tuple(rx.Var(p.name_hint, p.struct_info, p.span) for p in func.params)
        inner = rx.Var("gv")
        result = rx.Var("gv1")
        bindings = (
            rx.VarBinding(inner, func.without_attr("Primitive"), func.span),
            rx.VarBinding(result, rx.Call(inner, params, span=func.span), func.span),
        )
        self.names[name] = rx.GlobalVar(symbol)
        del self.result[name]
        self.result[self.names[name]] = rx.Function(
            params,
            rx.SeqExpr((rx.BindingBlock(bindings),), result),
            is_pure=func.is_pure,
            attrs=Attrs({"Codegen": backend, "global_symbol": symbol}),
            span=func.span,
        )
        return self.names[name]


def _with_calls(
    func: rx.Function, replacement: Callable[[str, rx.Call], rx.Call | None]
) -> rx.Function:
    """The function with other calls instead of those of functions of the module, by their names."""

    def step(binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        new = replacement(call.op.name_hint, call)
        return None if new is None else replace(binding, value=new)

    return map_bindings(func, step)


@dataclass(frozen=True)
class FuseOpsByPattern(Pass):
    """Groups each match of a pattern in a dataflow block into a function.

    The functions have the attribute `Composite`, the name of the pattern, and the attributes that
    its `attrs_getter` returns. Patterns are tried in order, and a binding is in one match only: the
    first, unless a later match of the same pattern contains all of it.
    Constants stay inside of the functions if `bind_constants`, else they are passed. With
    `annotate_codegen`, each function is wrapped in another one with the attribute `Codegen`, the
    name of the pattern up to the first dot, for RunCodegen. Only `entry_functions` are searched if
    there are any.

    Errors:
        MisuseError (also TypeError): an item is not a FusionPattern, or a tuple of its fields.
        UnknownNameError (also KeyError): the module has no function of an entry's name.
        TransformError: the name of a pattern has no dot, with `annotate_codegen`; or the bindings
            of a match cannot be computed together, since another one needs some and others need it.
    """

    patterns: Sequence[FusionPattern | tuple[Any, ...]]
    bind_constants: bool = True
    annotate_codegen: bool = False
    entry_functions: Sequence[str] | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "patterns", tuple(map(as_fusion_pattern, self.patterns)))

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for name in self.entry_functions or ():
            if name not in mod.functions_by_name:
                hint = close_names(name, mod.functions_by_name)
                raise UnknownNameError(f"the module has no function {name}", hint=hint)
        for pattern in self.patterns:
            assert isinstance(pattern, FusionPattern)
            mod = group_bindings(
                mod,
                partial(_matches, pattern=pattern),
                lift_constants=not self.bind_constants,
                entries=self.entry_functions,
                refuses_cycles=True,
            )
        return annotated_for_codegen(mod) if self.annotate_codegen else mod


def _matches(block: DataflowBlock, pattern: FusionPattern) -> Mapping[Binding, FunctionGroup]:
    """The bindings of a block that a pattern matches, each with its group."""
    bound = {b.var: b.value for b in block.bindings if isinstance(b, VarBinding)}
    var_of = {value: var for var, value in bound.items()}
    groups: dict[Var, FunctionGroup] = {}
    contents: dict[FunctionGroup, Set[Var | None]] = {}
    usages: Mapping[Var, Sequence[Var]] | None = None
    for value in bound.values():
        if not isinstance(value, Call):
            continue
        matches = extract_matched_expr(pattern.pattern, value, bound)
        if matches is None:
            continue
        usages = udchain(block) if usages is None else usages
        members = {var_of.get(match): match for match in _computed(matches, value)}
        context = PatternCheckContext(
            value, _annotated(pattern, matches), _known(members), usages, var_of
        )
        if None in members or (pattern.check is not None and not pattern.check(context)):
            continue
        if any(not contents[groups[m]] <= members.keys() for m in members if m in groups):
            continue
        attrs: dict[str, object] = {"Composite": pattern.name}
        if pattern.attrs_getter is not None:
            attrs |= pattern.attrs_getter(context.annotated_expr)
        group = FunctionGroup(as_attrs(attrs))
        contents[group] = members.keys()
        groups |= dict.fromkeys(_known(members), group)
    return {b: groups[b.var] for b in block.bindings if b.var in groups}


def _computed(matches: Matches, root: Expr) -> list[Expr]:
    """The calls and the fields of tuples in a match."""
    values = [
        match
        for pattern, match in matches.items()
        if isinstance(pattern, (CallPattern, TupleGetItemPattern)) and isinstance(match, Expr)
    ]
    return list(dict.fromkeys([root, *values]))


def _known(members: Mapping[Var | None, Expr]) -> dict[Var, Expr]:
    return {var: value for var, value in members.items() if var is not None}


def _annotated(pattern: FusionPattern, matches: Matches) -> dict[str, Expr]:
    named = ((name, matches.get(p)) for name, p in (pattern.annotation_patterns or {}).items())
    return {name: match for name, match in named if isinstance(match, Expr)}


@dataclass(frozen=True)
class MergeCompositeFunctions(Pass):
    """Merges calls of composite functions of one back end, as FuseOpsByPattern creates them.

    A call is merged with those that compute its arguments, unless another computation lies between
    them. The function that results has the attribute `Codegen`, the name of the back end, for
    RunCodegen; the composite functions are nested in it.

    Errors:
        TransformError: the name of a composite function has no dot.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        before = normalize_module(mod)
        backends = {
            name: backend
            for name, func in before.functions_by_name.items()
            if (backend := codegen_name(func)) is not None
        }
        if not backends:
            return before
        grouped = group_bindings(
            before, lambda block: _groups(block, backends), lift_constants=True
        )
        return before if grouped is before else _with_nested_functions(grouped)


@dataclass(slots=True, eq=False)
class _Merged:
    """A set of calls of one back end, or another binding, and all that it depends on.

    The sets of bindings are bits of integers, so that the dependencies of 10,000 take little time.
    """

    backend: str | None
    members: int
    before: int = 0


def _groups(
    block: rx.DataflowBlock, backends: Mapping[str, str]
) -> Mapping[rx.Binding, FunctionGroup]:
    """The calls of composite functions in a block, with the groups that they are merged into."""
    home: dict[rx.Var, _Merged] = {}
    merged: dict[rx.Binding, _Merged] = {}
    sets = Groups[_Merged]()
    for position, binding in enumerate(block.bindings):
        call = binding.value
        callee = call.op if isinstance(call, rx.Call) else None
        backend = backends.get(callee.name_hint) if isinstance(callee, rx.GlobalVar) else None
        used = (home[var] for var in occurring_vars(call) if var in home)
        operands = dict.fromkeys(map(sets.find, used))
        separated = reduce(or_, (operand.before for operand in operands), 0)
        joined = [
            operand
            for operand in operands
            if backend is not None
            and operand.backend == backend
            and not operand.members & separated
        ]
        needed = reduce(or_, (operand.members for operand in operands), separated)
        unit = joined[0] if joined else _Merged(backend, 0)
        for other in joined[1:]:
            sets.join(unit, other)
            unit.members |= other.members
        unit.members |= 1 << position
        unit.before = (unit.before | needed) & ~unit.members
        merged[binding] = unit
        if binding.var is not None:
            home[binding.var] = unit
    groups: dict[_Merged, FunctionGroup] = {}
    roots = {binding: sets.find(unit) for binding, unit in merged.items()}
    for root in roots.values():
        if root.backend is not None and root not in groups:
            groups[root] = FunctionGroup({"Codegen": root.backend})
    return {binding: groups[root] for binding, root in roots.items() if root in groups}


def _with_nested_functions(mod: IRModule) -> IRModule:
    """The module with composite functions nested in the functions for a back end."""
    result = mod.clone()
    renamed: dict[rx.GlobalVar, rx.GlobalVar] = {}
    for var, func in mod.items():
        if isinstance(func, rx.Function) and "Codegen" in func.attrs and "Primitive" in func.attrs:
            name = f"{var.name_hint}_{func.attrs['Codegen']}"
            renamed[var] = rx.GlobalVar(name)
            del result[var]
            nested = _nested(func, mod).without_attr("Primitive")
            result[renamed[var]] = nested.with_attr("global_symbol", name)
    old_names = {old.name_hint for old in renamed}
    for var, func in result.items():
        if isinstance(func, rx.Function) and not old_names.isdisjoint(mentioned_globals(func)):
            result[var] = rename(func, renamed)
    mentioned = {n for func in result.functions_by_name.values() for n in mentioned_globals(func)}
    for var, func in result.items():
        if "Composite" in func.attrs and var.name_hint not in mentioned:
            del result[var]
    return normalize_module(result)


def _nested(func: rx.Function, mod: IRModule) -> rx.Function:
    """The function with a local function instead of each composite one that it calls."""
    local: dict[str, rx.Var] = {}
    bindings: list[rx.Binding] = []
    table: dict[rx.Expr, rx.Var] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            assert isinstance(binding, rx.VarBinding)
            if isinstance(call, rx.Call) and isinstance(call.op, rx.GlobalVar):
                name = call.op.name_hint
                callee = mod[name]
                assert isinstance(callee, rx.Function)
                if name not in local:
                    local[name] = rx.Var("lv")
                    inner = copy_with_new_vars(callee).without_attr("Primitive")
                    bindings.append(rx.VarBinding(local[name], inner, call.span))
                call = rx.Call(local[name], call.args, span=call.span)
            var = binding.var
            if isinstance(var, rx.DataflowVar):
                table[var] = rx.Var(var.name_hint, var.struct_info, var.span)
            bindings.append(rx.VarBinding(var, call, binding.span))
    body = rx.SeqExpr((rx.BindingBlock(tuple(bindings)),), func.body.body)
    attrs = func.attrs
    whole = rx.Function(func.params, body, is_pure=func.is_pure, attrs=attrs, span=func.span)
    return rename(whole, table)


_PREFIX: Final = "relax.ext."


@dataclass(frozen=True)
class RunCodegen(Pass):
    """Compiles functions with the attribute `Codegen` using the back ends that it names.

    The back end of the name `mine` is the packed function `relax.ext.mine`. It is called with the
    list of its functions, with its options in `target_options`, and with a table of the constants
    in the functions to names for them. It returns a table, or a list of tables, with a Python
    function for the `global_symbol` of each of its functions, which takes the arguments and returns
    the result, and which has no visible effect. Calls of the functions of the module, which are
    removed, become calls of these Python functions. They belong to the calls: no name is registered
    for them, and a saved module does not contain them.

    Errors:
        MisuseError (also TypeError): `target_options` is not a table of tables.
        UnknownPackedFuncError (also ValueError, KeyError): there is no such back end.
        TransformError: a back end returns no function for one of its functions, or that is impure.
    """

    target_options: Mapping[str, Mapping[str, object]] | None = field(default=None, hash=False)
    entry_functions: Sequence[str] | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        by_target: dict[str, dict[str, rx.Function]] = {}
        for name, func in mod.functions_by_name.items():
            target = func.attrs.get("Codegen") if isinstance(func, rx.Function) else None
            if isinstance(target, str) and isinstance(func, rx.Function):
                by_target.setdefault(target, {})[name] = func
        if not by_target:
            return mod
        packed: dict[str, rx.ExternFunc] = {}
        for target, functions in by_target.items():
            options = (self.target_options or {}).get(target, {})
            packed |= _compiled(target, functions, options)

        def of_backend(name: str, call: rx.Call) -> rx.Call | None:
            if name not in packed:
                return None
            assert call.struct_info is not None
            op, args = Op.get("relax.call_pure_packed"), (packed[name], *call.args)
            return rx.Call(op, args, sinfo_args=(call.struct_info,), span=call.span)

        result = mod.clone()
        for name in packed:
            del result[name]
        for var, func in result.items():
            if isinstance(func, rx.Function):
                result[var] = _with_calls(func, of_backend)
        return DeadCodeElimination(self.entry_functions)(normalize_module(result))


def _compiled(
    target: str, functions: Mapping[str, rx.Function], options: Mapping[str, object]
) -> dict[str, rx.ExternFunc]:
    """The functions that a back end provides, by the names of those that it compiled."""
    backend = hooks.call("packed_function", f"{_PREFIX}{target}")
    tables = backend(list(functions.values()), dict(options), _constant_names(functions, target))
    found: dict[str, Callable[..., Any]] = {}
    for table in tables if isinstance(tables, (list, tuple)) else (tables,):
        if not isinstance(table, Mapping):
            raise TransformError(
                f"back end {_PREFIX}{target} returned {table!r:.60}",
                hint="it returns a table of functions by global_symbol, or a list of tables",
            )
        found |= table
    packed: dict[str, rx.ExternFunc] = {}
    for name, func in functions.items():
        symbol = str(func.attrs.get("global_symbol", name))
        if not func.is_pure:
            raise TransformError(f"{name} is impure; back ends compile pure ones", span=func.span)
        if not callable(found.get(symbol)):
            raise TransformError(
                f"back end {_PREFIX}{target} returned no function for {symbol}", span=func.span
            )
        packed[name] = compiled_function(symbol, found[symbol])
    return packed


def _constant_names(functions: Mapping[str, rx.Function], target: str) -> dict[rx.Constant, str]:
    names: dict[rx.Constant, str] = {}
    for name, func in functions.items():
        constants = [node for node in walk(func) if isinstance(node, rx.Constant)]
        for constant in constants:
            names.setdefault(constant, f"{name}_{target}_const_{len(names)}")
    return names
