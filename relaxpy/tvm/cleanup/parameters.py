"""RemoveUnusedOutputs: private functions return only the fields that calls use.

RemoveUnusedParameters: private functions take only the parameters that they use.

ExpandTupleArguments: private functions take the fields of tuples.

UpdateParamStructInfo: parameters with other struct info.

RemoveRedundantReshape: reshapes of reshapes, and those that change nothing.

RewriteDataflowReshape: kernels that only reshape become reshapes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import children, rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.passes.cleanup.dead_code_elimination import DeadCodeElimination, without_dead_code
from relaxpy.ir.passes.cleanup.private_functions import calls_of, only_called, with_calls
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, Escapes, computes, may_fail
from relaxpy.ir.relax.analysis.op_pattern import has_reshape_pattern
from relaxpy.ir.relax.analysis.variables import free_symbolic_vars, used_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import called_kernel
from relaxpy.ir.relax.nodes import Function, StructInfo, Var, as_struct_info
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.relations.shape_vars import shape_vars_of
from relaxpy.ir.relax.rewrite.bind import fits, shape_var_images
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, without_unused
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class RemoveUnusedOutputs(Pass):
    """Removes the fields of the tuples that private functions return and no call uses.

    If one field is left, the function returns it itself. Bindings that only the removed fields
    needed are removed, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        used = _used_fields(mod)
        if not used:
            return mod
        result = mod.clone()
        for name, fields in used.items():
            func = mod[name]
            assert isinstance(func, rx.Function)
            result[name] = _with_fields(func, fields)
        result = map_functions(result, rx.Function, lambda func: _Callers(used).expr(func))
        result = normalize_module(result)
        for name in used:
            func = result[name]
            assert isinstance(func, rx.Function)
            result[name] = without_dead_code(func)
        return normalize_module(result)


def _used_fields(mod: IRModule) -> dict[str, Sequence[int]]:
    """The fields that calls use of the results of functions that return others, too."""
    counts: dict[str, int] = {}
    for name, func in only_called(mod).items():
        sinfo = func.body.struct_info
        declared = func.ret_struct_info
        if isinstance(sinfo, rx.TupleStructInfo) and (
            declared is None or is_base_of(declared, sinfo)
        ):
            counts[name] = len(sinfo.fields)
    used: dict[str, set[int]] = {name: set() for name in counts}
    for user in mod.functions_by_name.values():
        if isinstance(user, rx.Function):
            _collect(user, used, counts)
    return {name: sorted(fields) for name, fields in used.items() if len(fields) < counts[name]}


def _collect(func: rx.Function, used: Mapping[str, set[int]], counts: Mapping[str, int]) -> None:
    """Add the fields of results of calls that a function uses."""
    nodes = list(walk(func))
    results: dict[rx.Expr, str] = {
        node.var: name
        for node in nodes
        if isinstance(node, rx.VarBinding) and (name := _callee(node.value)) in counts
    }
    for node in nodes:
        if isinstance(node, rx.VarBinding) and node.var in results:
            continue
        if isinstance(node, rx.TupleGetItem) and node.tuple_value in results:
            used[results[node.tuple_value]].add(node.index)
            continue
        for child in (node.value,) if isinstance(node, rx.VarBinding) else children(node):
            name = results.get(child, "") if isinstance(child, rx.Var) else _callee(child)
            if name in counts:
                used[name].update(range(counts[name]))


def _callee(node: object) -> str:
    """The name of the function that a call calls."""
    is_call = isinstance(node, rx.Call) and isinstance(node.op, rx.GlobalVar)
    return node.op.name_hint if is_call else ""  # type: ignore[attr-defined]


def _with_fields(func: rx.Function, fields: Sequence[int]) -> rx.Function:
    """The function that returns only these fields."""
    body, result = func.body, func.body.body
    blocks = body.blocks
    if isinstance(result, rx.Tuple):
        values = [result.fields[k] for k in fields]
    else:
        taken = [
            rx.VarBinding(rx.Var(f"field{k}"), rx.TupleGetItem(result, k), func.span)
            for k in fields
        ]
        values = [binding.var for binding in taken]
        blocks = (*blocks, rx.BindingBlock(tuple(taken)))
    new = values[0] if len(values) == 1 else rx.Tuple(tuple(values))
    return rebuild(func, body=rx.SeqExpr(blocks, new, span=body.span), ret_struct_info=None)


class _Callers(BindingRewriter):
    """Takes the fields that are left of the results of calls."""

    def __init__(self, used: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self.used = used
        self.results: dict[rx.Expr, tuple[Sequence[int], rx.StructInfo | None]] = {}

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if isinstance(value, rx.TupleGetItem) and value.tuple_value in self.results:
            fields, before = self.results[value.tuple_value]
            if len(fields) == 1:
                return value.tuple_value
            field = rebuild(value, index=fields.index(value.index))
            known = before.fields[value.index] if isinstance(before, rx.TupleStructInfo) else None
            if not isinstance(binding, rx.VarBinding) or binding.var.struct_info != known:
                return field
            return rx.VarBinding(self.rederived(binding.var), field, binding.span)
        if not isinstance(binding, rx.VarBinding) or _callee(value) not in self.used:
            return None
        assert isinstance(value, rx.Call)
        new = self.rederived(binding.var)
        self.results[new] = self.used[_callee(value)], binding.var.struct_info
        return rx.VarBinding(
            new, rx.Call(value.op, value.args, value.attrs, span=value.span), binding.span
        )


@dataclass(frozen=True)
class RemoveUnusedParameters(Pass):
    """Removes parameters that private functions do not use, and the arguments of all calls.

    If the struct info of such a parameter defines shape variables that are still used, parameters
    for their values replace it. A parameter stays if a call may fail because of its argument
    (OPT-8). Bindings of arguments that nothing uses any more are removed.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        while True:
            after = _without_unused_parameters(mod)
            if after is mod:
                return mod
            mod = after


def _without_unused_parameters(mod: IRModule) -> IRModule:
    """The module after one round, which may leave other parameters unused."""
    calls = calls_of(mod)
    changed = {
        name: change
        for name, func in only_called(mod).items()
        if (change := _Change.of(func, calls.get(name, ()))) is not None
    }
    if not changed:
        return mod
    result = mod.clone()
    for name, change in changed.items():
        result[name] = change.after
    called = with_calls(result, {name: change.call for name, change in changed.items()})
    called = normalize_module(called)
    for var, func in called.items():
        if isinstance(func, rx.Function) and func is not mod.find_function(var.name_hint):
            called[var] = without_dead_code(func)
    return normalize_module(called)


@dataclass(frozen=True)
class _Change:
    """A function before and after, with the values that it takes for shape variables."""

    before: rx.Function
    after: rx.Function
    kept: Sequence[bool]
    sizes: Sequence[tir.Var]

    @staticmethod
    def of(func: rx.Function, calls: Sequence[rx.Call]) -> _Change | None:
        """The replacement of a function; None if it uses all parameters."""
        if "num_input" in func.attrs or any(len(c.args) != len(func.params) for c in calls):
            return None
        used = set(used_vars(func))
        kept = [p in used or not all(_fits(func, p, c) for c in calls) for p in func.params]
        if all(kept):
            return None
        _, sizes = _completed(func, kept)
        if not all(v in shape_var_images(_pairs(func, c)) for c in calls for v in sizes):
            return None
        for k, param in enumerate(func.params):
            # A parameter for the value of a shape variable would be removed and added again.
            if not kept[k] and set(shape_vars_of([param])) <= set(sizes) and _is_size(param):
                kept[k] = True
        if all(kept):
            return None
        params, sizes = _completed(func, kept)
        after = rebuild(func, params=(*params, *map(_parameter_for, sizes)))
        return _Change(func, after, kept, sizes)

    def call(self, call: rx.Call) -> rx.Expr:
        """A call of the function after the change."""
        args = [arg for arg, kept in zip(call.args, self.kept, strict=True) if kept]
        images = shape_var_images(_pairs(self.before, call)) if self.sizes else {}
        return rebuild(call, args=(*args, *(rx.PrimValue(images[var]) for var in self.sizes)))


def _completed(func: rx.Function, kept: Sequence[bool]) -> tuple[list[rx.Var], list[tir.Var]]:
    """The kept parameters, and the shape variables that are used and that none of them defines."""
    params = [param for param, keep in zip(func.params, kept, strict=True) if keep]
    missing = set(free_symbolic_vars(rebuild(func, params=tuple(params))))
    missing -= set(free_symbolic_vars(func))
    defined = shape_vars_of(func.params)
    return params, [var for var in reversed(defined) if var in missing]


def _is_size(param: rx.Var) -> bool:
    """True if a parameter is the value of one shape variable."""
    sinfo = param.struct_info
    return isinstance(sinfo, rx.PrimStructInfo) and isinstance(sinfo.value, tir.Var)


def _parameter_for(var: tir.Var) -> rx.Var:
    return rx.Var(f"param_{var.name}", rx.PrimStructInfo(var.dtype, var))


def _pairs(func: rx.Function, call: rx.Call) -> list[tuple[rx.Var, rx.Expr]]:
    return list(zip(func.params, call.args, strict=True))


def _fits(func: rx.Function, param: rx.Var, call: rx.Call) -> bool:
    """True if the argument of a parameter is known to fit it."""
    argument = call.args[func.params.index(param)]
    return fits(param, argument, shape_var_images(_pairs(func, call)))


@dataclass(frozen=True)
class ExpandTupleArguments(Pass):
    """Replaces each parameter of a private function that is a tuple by parameters for its fields.

    If there is one, the module is then cleaned by CanonicalizeBindings and DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        calls = calls_of(mod)
        expanded = {
            name: func
            for name, func in only_called(mod).items()
            if any(isinstance(p.struct_info, rx.TupleStructInfo) for p in func.params)
            and "num_input" not in func.attrs
            and all(_fits_expanded(func, call) for call in calls.get(name, ()))
        }
        if not expanded:
            return mod
        result = mod.clone()
        for name, func in expanded.items():
            result[name] = _expanded(func)
        result = normalize_module(with_calls(result, dict.fromkeys(expanded, _expanded_call)))
        return DeadCodeElimination().transform(CanonicalizeBindings().transform(result, ctx), ctx)


def _fits_expanded(func: rx.Function, call: rx.Call) -> bool:
    """True if each argument is known to have the tuples, and fields, of its parameter."""
    params = [param.struct_info for param in func.params]
    args = [arg.struct_info for arg in call.args]
    return len(params) == len(args) and all(map(_same_tuples, params, args))


def _same_tuples(declared: rx.StructInfo | None, actual: rx.StructInfo | None) -> bool:
    if not isinstance(declared, rx.TupleStructInfo):
        return not isinstance(actual, rx.TupleStructInfo)
    if not isinstance(actual, rx.TupleStructInfo) or len(actual.fields) != len(declared.fields):
        return False
    return all(map(_same_tuples, declared.fields, actual.fields))


def _expanded(func: rx.Function) -> rx.Function:
    """The function with parameters for the fields, from which it builds the tuples."""
    params: list[rx.Var] = []
    bindings: list[rx.VarBinding] = []

    def expand(param: rx.Var) -> None:
        if not isinstance(param.struct_info, rx.TupleStructInfo):
            params.append(param)
            return
        fields = tuple(
            rx.Var(f"{param.name_hint}_{k}", sinfo, param.span)
            for k, sinfo in enumerate(param.struct_info.fields)
        )
        for field in fields:
            expand(field)
        bindings.append(rx.VarBinding(param, rx.Tuple(fields, span=param.span), param.span))

    for param in func.params:
        expand(param)
    body = rx.SeqExpr((rx.BindingBlock(tuple(bindings)), *func.body.blocks), func.body.body)
    return rebuild(func, params=tuple(params), body=body)


def _expanded_call(call: rx.Call) -> rx.Call:
    def leaves(arg: rx.Expr) -> Iterator[rx.Expr]:
        if isinstance(arg, rx.Tuple):
            for field in arg.fields:
                yield from leaves(field)
        elif isinstance(arg.struct_info, rx.TupleStructInfo):
            for k, sinfo in enumerate(arg.struct_info.fields):
                yield from leaves(rx.TupleGetItem(arg, k, struct_info=sinfo, span=call.span))
        else:
            yield arg

    return rebuild(call, args=tuple(leaf for arg in call.args for leaf in leaves(arg)))


@dataclass(frozen=True)
class UpdateParamStructInfo(RewritePass):
    """Gives the parameters of functions the struct info that `sinfo_func` returns for them.

    A parameter for which it returns None stays. The struct info of bindings and results is derived
    from that of the parameters.

    Errors:
        MisuseError: `sinfo_func` is not a function.
        TransformError: it returns something else.
        StructInfoError: the operands in a function no longer fit together.
    """

    sinfo_func: Callable[[Var], StructInfo | None]

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        return self._updated

    def _updated(self, func: Function) -> Function:
        params = tuple(map(self._param, func.params))
        if params == func.params:
            return func
        mutator = PyExprMutator()
        for old, new in zip(func.params, params, strict=True):
            mutator.set_var_remap(old, new)
        body: Any = mutator.visit_with_new_scope(func.body, params)
        return rebuild(func, params=params, body=body, ret_struct_info=body.struct_info)

    def _param(self, param: Var) -> Var:
        sinfo = self.sinfo_func(param)
        if sinfo is None or sinfo == param.struct_info:
            return param
        try:
            return Var(param.name_hint, as_struct_info(sinfo), param.span)
        except MisuseError as error:
            raise TransformError(
                f"sinfo_func returned {sinfo!r:.60} for parameter {param.name_hint}, expected "
                "struct info or None"
            ) from error


@dataclass(frozen=True)
class RemoveRedundantReshape(RewritePass):
    """Reshapes the operand of a reshape directly, and removes reshapes to the shape there is.

    The first of two reshapes is removed if nothing else uses it, unless it may fail outside a
    dataflow block (OPT-8).

    A reshape that copies stays a copy where mutation could show the difference (OPT-11).
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        def shortened(func: rx.Function) -> rx.Function:
            shorter = _Shorter(Effects(Context(), mod.functions_by_name, func))
            after = shorter.expr(func)
            passed = shorter.passed_over
            return without_unused(after, lambda b: b.var not in passed) if passed else after

        return shortened


class _Shorter(BindingRewriter):
    """Remembers the operands of reshapes until they may have changed."""

    def __init__(self, effects: Effects) -> None:
        super().__init__()
        self.effects = effects
        self.operands: dict[rx.Expr, rx.Expr] = {}
        self.escapes: Escapes | None = None
        #: The representatives of variables that escape.
        self.escaping: set[rx.Expr] = set()
        #: Reshapes that need not be kept, and those of them that lost a user.
        self.removable: set[rx.Expr] = set()
        self.passed_over: set[rx.Expr] = set()

    @override
    def function(self, func: rx.Function) -> rx.Function:
        with self.effects.inside(func):
            return super().function(func)

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        outer = self.operands, self.escapes
        self.operands, self.escapes = {}, Escapes(seq, self.effects)
        after = super().sequence(seq)
        self.operands, self.escapes = outer
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value, var = binding.value, binding.var
        if self.effects.is_barrier(binding):
            self.operands.clear()
        if not rx.is_call_of(value, "relax.reshape") or var is None:
            return None
        direct, shape = value.args
        source = direct
        while source in self.operands:
            source = self.operands[source]
        self.operands[var] = source
        if isinstance(block, rx.DataflowBlock) or not may_fail(binding):
            self.removable.add(var)
        if source is not direct:
            self.passed_over |= {direct} & self.removable
        if _has_shape_of(source, var) and not self._both_escape(source, var):
            return source
        return None if source is direct else rebuild(value, args=(source, shape))

    def _both_escape(self, first: rx.Expr, second: rx.Var) -> bool:
        assert isinstance(first, rx.Var)
        assert self.escapes is not None
        value = self.value_of(first)
        one = value is None or not computes(value) or first in self.escaping
        one = one or self.escapes.escapes(self.original_of(first))
        other = self.escapes.escapes(self.original_of(second))
        if other and not one:
            self.escaping.add(first)
        return one and other


def _has_shape_of(operand: rx.Expr, result: rx.Var) -> bool:
    """True if a variable is known to have the shape of the result."""
    actual, expected = operand.struct_info, result.struct_info
    if not isinstance(operand, rx.Var) or actual is None or expected is None:
        return False
    return is_base_of(expected, actual)


@dataclass(frozen=True)
class RewriteDataflowReshape(RewritePass):
    """Replaces calls of kernels that only reshape, inside dataflow blocks, by reshapes.

    Outputs of the blocks stay, so that they are new tensors.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        kinds: dict[str, bool] = {}
        return lambda func: _Reshapes(mod.functions_by_name, kinds).expr(func)


class _Reshapes(BindingRewriter):
    """Rewrites bindings; `kinds` caches whether kernels only reshape."""

    def __init__(self, functions: Mapping[str, rx.BaseFunc], kinds: dict[str, bool]) -> None:
        super().__init__()
        self.functions, self.kinds = functions, kinds

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(block, rx.DataflowBlock) or not isinstance(binding.var, rx.DataflowVar):
            return None
        called = called_kernel(call)
        if called is None or not called[1] or not self._reshapes(called[0]):
            return None
        [operand, *_], result = called[1], binding.var.struct_info
        if not _is_reshape(operand.struct_info, result):
            return None
        assert isinstance(result, rx.TensorStructInfo)
        assert isinstance(result.shape, rx.ShapeExpr)
        return rx.Call(Op.get("relax.reshape"), (operand, result.shape), span=call.span)

    def _reshapes(self, name: str) -> bool:
        if name not in self.kinds:
            func = self.functions.get(name)
            self.kinds[name] = isinstance(func, PrimFunc) and has_reshape_pattern(func)
        return self.kinds[name]


def _is_reshape(source: object, result: object) -> bool:
    """True if two tensors are known to have the same datatype and equally many elements."""
    if not isinstance(source, rx.TensorStructInfo) or not isinstance(result, rx.TensorStructInfo):
        return False
    before, after = source.get_shape(), result.get_shape()
    if before is None or after is None or source.dtype.is_void or source.dtype != result.dtype:
        return False
    return (
        isinstance(result.shape, rx.ShapeExpr)
        and prove_equal(product(before), product(after)) is True
    )
