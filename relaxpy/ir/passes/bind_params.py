"""BindParams: parameters of a function are replaced by values.

BindSymbolicVars: shape variables are replaced by values.

BundleModelParams: the parameters after the inputs become one tuple.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from typing_extensions import override

from relaxpy.errors import TransformError, UnknownNameError, close_names
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.private_functions import used_as_values
from relaxpy.ir.passes.rewrite_pass import RewritePass, find_function, name_of_function
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import (
    defined_symbolic_vars,
    occurring_vars,
    used_shape_vars,
)
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Function, GlobalVar, Var
from relaxpy.ir.relax.relations.shape_vars import map_params, shape_vars_of
from relaxpy.ir.relax.rewrite.bind import (
    bind_params,
    bind_symbolic_vars,
    values_of_sizes,
    with_sizes,
)
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, joined, replace_variables
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class BindParams(Pass):
    """Replaces parameters of a function, by name or variable, by values, and drops them.

    Values are expressions, arrays, numbers, or tuples of these. Arrays become constants, whose
    shapes determine shape variables.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no such function or parameter.
        MisuseError (also TypeError): a parameter is bound twice, or `params` is not a mapping.
        StructInfoError: a value does not fit its parameter.
    """

    func_name: str | GlobalVar
    params: Mapping[Var | str, object]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "func_name", name_of_function(self.func_name))

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        name, func = find_function(mod, self.func_name, "BindParams")
        return _with_function(mod, name, bind_params(func, self.params))


def _with_function(mod: IRModule, name: str, func: Function) -> IRModule:
    """The module in normal form with this function; itself if it has it already."""
    if func is mod[name]:
        return mod
    result = mod.clone()
    result[name] = func
    return normalize_module(result)


@dataclass(frozen=True)
class BindSymbolicVars(Pass):
    """Replaces shape variables by values, in one function or in all that define them.

    The keys are variables or their names. With `func_name` the function defines each of them, and
    otherwise one function of the module at least; a parameter's size that a call in the module
    gives another value, or an unknown one, stays a variable.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no such function or shape variable,
            or calls give it other values.
        MisuseError (also TypeError): a variable is bound twice, several have one name, or
            `binding_map` is not a mapping.
    """

    binding_map: Mapping[tir.Var | str, Any]
    func_name: str | GlobalVar | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.func_name is not None:
            object.__setattr__(self, "func_name", name_of_function(self.func_name))

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if self.func_name is not None:
            name, func = find_function(mod, self.func_name, "BindSymbolicVars")
            return _with_function(mod, name, bind_symbolic_vars(func, self.binding_map))
        unused = dict.fromkeys(self.binding_map)
        names: dict[str, None] = {}
        values: dict[str, dict[tir.Var, tir.PrimExpr]] = {}
        funcs = {n: f for n, f in mod.functions_by_name.items() if isinstance(f, Function)}
        for name, func in funcs.items():
            defined = defined_symbolic_vars(func)
            names.update((var.name, None) for var in defined)
            known = {*defined, *(var.name for var in defined)}
            here = {key: value for key, value in self.binding_map.items() if key in known}
            values[name] = values_of_sizes(func, here)
        _keep_what_calls_give(mod, funcs, values)
        for var in (var for images in values.values() for var in images):
            unused.pop(var, None)
            unused.pop(var.name, None)
        for key in unused:
            if (key if isinstance(key, str) else key.name) in names:
                message = f"calls in the module give shape variable {key} other values"
            else:
                message = f"no function of the module defines shape variable {key}"
            hint = close_names(str(key), names)
            hint = hint or (f"its shape variables are {', '.join(names)}" if names else None)
            raise UnknownNameError(f"BindSymbolicVars: {message}", hint=hint, about=key)
        result = mod
        for name, func in funcs.items():
            if values[name]:
                result = mod.clone() if result is mod else result
                result[name] = with_sizes(func, values[name])
        return result if result is mod else normalize_module(result)


def _keep_what_calls_give(
    mod: IRModule, funcs: Mapping[str, Function], values: Mapping[str, dict[tir.Var, tir.PrimExpr]]
) -> None:
    """Remove values of parameters' sizes, by function, that calls in the module do not give."""
    calls: list[tuple[str, str, rx.Call]] = []
    for name, func in mod.functions_by_name.items():
        for node in walk(func):
            for callee in values.keys() & {*used_as_values(node)}:
                for var in shape_vars_of(funcs[callee].params):
                    values[callee].pop(var, None)
            if isinstance(node, rx.Call) and isinstance(node.op, GlobalVar):
                callee = node.op.name_hint
                if values.get(callee):
                    calls.append((name, callee, node))
    is_stable = False
    while not is_stable:
        is_stable = True
        for name, callee, call in calls:
            here, there = values.get(name, {}), values[callee]
            params = funcs[callee].params
            given = map_params(_infos(params), _infos(call.args))
            for var in shape_vars_of(params):
                if var in there and not (
                    var in given and prove_equal(substitute(given[var], here), there[var])
                ):
                    del there[var]
                    is_stable = False


def _infos(values: Iterable[rx.Expr]) -> list[rx.StructInfo]:
    return [value.struct_info or rx.ObjectStructInfo() for value in values]


N = TypeVar("N", bound=Node)


class ReadBeforeUse(BindingRewriter):
    """Binds variables just before they are used, in each scope where they are not bound yet.

    Those that define the shape variables of `sizes` are bound in the outermost scope, before
    anything that mentions one of these.
    """

    def __init__(self, variables: Sequence[rx.Var], sizes: Iterable[tir.Var] = ()) -> None:
        super().__init__()
        self.index_of = {var: index for index, var in enumerate(variables)}
        self._bound: dict[rx.Var, rx.Var] = {}
        self._depth = 0
        open_sizes = set(sizes)
        self._definers: dict[tir.Var, rx.Var] = {}
        for var in variables:
            for size in shape_vars_of([var]):
                if size in open_sizes:
                    self._definers.setdefault(size, var)

    @abstractmethod
    def read(self, index: int, var: rx.Var, kind: type[rx.Var]) -> list[rx.Binding]:
        """The bindings that give `var` the value of a parameter."""

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        outer = dict(self._bound)
        self._depth += 1
        after = super().sequence(seq)
        before = self._early(after.body)
        reads, body = self._with_reads(after.body, rx.Var)
        before += reads
        self._depth -= 1
        self._bound = outer
        if before:
            blocks = joined((*after.blocks, rx.BindingBlock(tuple(before))))
            return rebuild(after, blocks=tuple(blocks), body=body)
        return after if body is after.body else rebuild(after, body=body)

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if not isinstance(block, rx.DataflowBlock):
            return super().block(block)
        before = self._early(block)
        outer = dict(self._bound)
        after = super().block(block)
        self._bound = outer
        return [rx.BindingBlock(tuple(before)), *after] if before else after

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        before = [] if isinstance(block, rx.DataflowBlock) else self._early(binding)
        if isinstance(binding.value, rx.If):
            reads, cond = self._with_reads(binding.value.cond, block.var_type)
            if cond is not binding.value.cond:
                binding = replace(binding, value=rebuild(binding.value, cond=cond))
        elif isinstance(binding.value, rx.Function):
            reads = []
        else:
            reads, binding = self._with_reads(binding, block.var_type)
        return [*before, *reads, *super().binding(binding, block)]

    def _early(self, node: Node) -> list[rx.Binding]:
        """The reads of parameters that define the shape variables that a node needs."""
        if self._depth != 1 or not self._definers:
            return []
        waiting: list[Node] = [node, *(v for v in occurring_vars(node) if v in self.index_of)]
        needed: dict[rx.Var, set[rx.Var]] = {}
        while waiting:
            var = waiting.pop()
            info = var.struct_info if isinstance(var, rx.Var) else var
            sizes = () if info is None else used_shape_vars(info)
            definers = {self._definers[size] for size in sizes if size in self._definers}
            definers -= self._bound.keys()
            if isinstance(var, rx.Var) and var in definers:
                needed[var] = definers - {var}
                definers -= needed.keys()
            waiting += definers
        reads: list[rx.Binding] = []
        while needed:
            ready = [var for var in needed if needed[var].isdisjoint(needed)]
            if not ready:
                var = next(iter(needed))
                raise TransformError(
                    f"the shapes of parameters mention sizes that are read later: {var.name_hint}",
                    span=var.span,
                )
            for var in sorted(ready, key=self.index_of.__getitem__):
                reads += self._read(var, rx.Var)
                del needed[var]
        return reads

    def _read(self, var: rx.Var, kind: type[rx.Var]) -> list[rx.Binding]:
        new = self._bound[var] = kind(var.name_hint, None, var.span)
        return self.read(self.index_of[var], new, kind)

    def _with_reads(self, node: N, kind: type[rx.Var]) -> tuple[list[rx.Binding], N]:
        """The bindings needed before a node is evaluated, and the node with the new variables."""
        used = [var for var in occurring_vars(node) if var in self.index_of]
        reads = [b for var in used if var not in self._bound for b in self._read(var, kind)]
        if used:
            node = replace_variables(node, {var: self._bound[var] for var in used})
        return reads, node


@dataclass(frozen=True)
class BundleModelParams(RewritePass):
    """Puts the parameters after the first `num_input` ones into one tuple, the last parameter.

    Functions without the attribute `num_input` stay unchanged. A field is read before its first
    use. The tuple is named `param_tuple_name`, or else `model_params`.

    Errors:
        TransformError: `num_input` is not a number of parameters of its function.
        MisuseError (also TypeError): `param_tuple_name` is not a string.
    """

    param_tuple_name: str | None = None

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: bundled(func, self.param_tuple_name or "model_params")


def input_count(func: rx.Function, pass_name: str) -> int | None:
    """The attribute `num_input` of a function: how many parameters are inputs, not weights.

    Errors:
        TransformError: it is not a number of parameters of the function.
    """
    count = func.attrs.get("num_input")
    if count is None:
        return None
    if not isinstance(count, int) or not 0 <= count <= len(func.params):
        raise TransformError(
            f"{pass_name}: num_input counts some of the {len(func.params)} parameters, found "
            f"{count!r:.60}",
            span=func.span,
        )
    return count


def bundled(func: rx.Function, name: str) -> rx.Function:
    """The function with one tuple instead of the parameters after its inputs."""
    count = input_count(func, "BundleModelParams")
    if count is None:
        return func
    weights = func.params[count:]
    sinfos = tuple(param.struct_info or rx.ObjectStructInfo() for param in weights)
    pack = rx.Var(name, rx.TupleStructInfo(sinfos), func.span)
    body = _Fields(pack, weights).sequence(func.body)
    return rebuild(func, params=(*func.params[:count], pack), body=body)


class _Fields(ReadBeforeUse):
    def __init__(self, pack: rx.Var, weights: Sequence[rx.Var]) -> None:
        super().__init__(weights)
        self.pack = pack

    @override
    def read(self, index: int, var: rx.Var, kind: type[rx.Var]) -> list[rx.Binding]:
        return [rx.VarBinding(var, rx.TupleGetItem(self.pack, index, span=var.span), var.span)]
