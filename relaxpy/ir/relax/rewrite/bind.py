"""Binding of parameters and shape variables, arguments with casts, and inlining of functions."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeVar, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    MisuseError,
    Span,
    StructInfoError,
    TransformError,
    UnknownNameError,
    close_names,
    counted,
    unexpected,
)
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.tensor import may_change
from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.relax import nodes as rx, relations
from relaxpy.ir.relax.analysis.effects import computes, contains_impure_call
from relaxpy.ir.relax.analysis.variables import (
    defined_symbolic_vars,
    free_symbolic_vars,
    occurring_vars,
)
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations import Compatibility, check_compatibility, shape_vars
from relaxpy.ir.relax.relations.derivation import Except
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import replace


def in_place_of_parameters(
    pairs: Sequence[tuple[rx.Var, rx.Expr]], body: rx.SeqExpr, span: Span | None = None
) -> tuple[rx.SeqExpr, dict[Node, Node]]:
    """`body` after the checks that a call with these arguments makes, and images of variables.

    The images are those of parameters and of the shape variables that the arguments determine.

    Errors:
        StructInfoError: an argument does not fit its parameter.
    """
    sizes = shape_var_images(pairs)
    images: dict[Node, Node] = dict(sizes.items())
    # A constant is a new tensor in each use (EV-2), a parameter the same one.
    exposed = _exposed_vars(body) if any(_has_constants(arg) for _, arg in pairs) else ()
    before: list[rx.Binding] = []
    unproved: list[tuple[rx.Var, rx.Expr, rx.StructInfo]] = []

    def named(arg: rx.Expr, param: rx.Var) -> rx.Expr:
        """The argument with variables instead of constants."""
        if isinstance(arg, rx.Tuple):
            return rx.Tuple(tuple(named(field, param) for field in arg.fields))
        if not isinstance(arg, rx.Constant):
            return arg
        var = rx.Var(param.name_hint, arg.struct_info)
        before.append(rx.VarBinding(var, arg, span))
        return var

    for param, arg in pairs:
        sinfo = _require_compatible(param, arg, sizes)
        if fits(param, arg, sizes):
            if is_leaf(arg):
                images[param] = named(arg, param) if param in exposed else arg
            else:
                before.append(rx.VarBinding(param, arg, span))
            continue
        if not is_leaf(arg):
            value = rx.Var(param.name_hint, arg.struct_info)
            before.append(rx.VarBinding(value, arg, span))
            arg = value
        unproved.append((param, arg, sinfo))
    before += _casts(unproved, sizes, span)
    if before:
        body = rx.SeqExpr((rx.BindingBlock(before), *body.blocks), body.body)
    return body, images


def _has_constants(expr: rx.Expr) -> bool:
    return any(isinstance(node, rx.Constant) for node in walk(expr))


def _exposed_vars(body: rx.SeqExpr) -> set[rx.Var]:
    """The variables of a body with effects whose tensors code may write, or read what it wrote."""
    if not contains_impure_call(body):
        return set()
    values = (node.value for node in walk(body) if isinstance(node, rx.Binding))
    leaves = (v for v in values if not isinstance(v, (rx.If, rx.Function)))
    return {var for value in leaves if not computes(value) for var in occurring_vars(value)}


def shape_var_images(pairs: Sequence[tuple[rx.Var, rx.Expr]]) -> Mapping[tir.Var, tir.PrimExpr]:
    """The values of the shape variables of parameters, as far as the arguments determine them."""
    sinfos = [(p.struct_info, a.struct_info) for p, a in pairs]
    known = [(p, a) for p, a in sinfos if p is not None and a is not None]
    return shape_vars.map_params([p for p, _ in known], [a for _, a in known])


def fit_parameters(params: Sequence[rx.Var], args: Sequence[rx.Expr]) -> bool:
    """True if a call with these arguments makes no check that may fail."""
    pairs = list(zip(params, args, strict=True))
    sizes = shape_var_images(pairs)
    return all(fits(param, arg, sizes) for param, arg in pairs)


def fits(param: rx.Var, arg: rx.Expr, sizes: Mapping[tir.Var, tir.PrimExpr]) -> bool:
    """True if an argument certainly fits and determines all that the parameter defines."""
    sinfo, actual = param.struct_info, arg.struct_info
    if sinfo is None or isinstance(sinfo, rx.ObjectStructInfo):
        return True
    if actual is None or not all(var in sizes for var in shape_vars.definable_shape_vars(sinfo)):
        return False
    expected = relations.substitute_info(sinfo, sizes)
    compatible = relations.Compatibility.COMPATIBLE
    return relations.check_compatibility(actual, expected) is compatible


def _require_compatible(
    param: rx.Var, arg: rx.Expr, sizes: Mapping[tir.Var, tir.PrimExpr]
) -> rx.StructInfo:
    """The struct info of a parameter. Errors: StructInfoError if an argument cannot fit it."""
    sinfo, actual = param.struct_info or rx.ObjectStructInfo(), arg.struct_info
    expected = relations.substitute_info(sinfo, sizes)
    incompatible = relations.Compatibility.INCOMPATIBLE
    if actual is not None and relations.check_compatibility(actual, expected) is incompatible:
        raise StructInfoError(
            f"parameter {param.name_hint} is {expected}, the value for it {actual}: "
            f"{relations.explain_incompatibility(actual, expected)}",
            rule="DER-41",
            about=arg,
        )
    return sinfo


def _casts(
    unproved: Sequence[tuple[rx.Var, rx.Expr, rx.StructInfo]],
    sizes: Container[tir.Var],
    span: Span | None,
) -> list[rx.Binding]:
    """The casts that check arguments as a signature does, in which the order does not matter.

    A cast defines only variables that are whole dimensions (WF-5b). If another dimension mentions a
    variable without a value, the former are defined first and the whole is checked last.
    """
    definable = shape_vars.definable_shape_vars(*(sinfo for _, _, sinfo in unproved))
    unbound = {var for var in definable if var not in sizes}
    casts: list[rx.Binding] = []
    last: list[rx.Binding] = []
    for param, arg, sinfo in unproved:
        defining = _without_compounds(sinfo, unbound)
        whole = rx.MatchCast(param, arg, sinfo, span)
        if defining is sinfo:
            casts.append(whole)
        else:
            last.append(whole)
            if not unbound.isdisjoint(shape_vars.definable_shape_vars(sinfo)):
                casts.append(rx.MatchCast(None, arg, defining, span))
        unbound.difference_update(shape_vars.definable_shape_vars(sinfo))
    return casts + last


def _without_compounds(sinfo: rx.StructInfo, unbound: Container[tir.Var]) -> rx.StructInfo:
    """`sinfo` with new variables for compound dimensions that mention unbound variables."""
    if isinstance(sinfo, rx.FuncStructInfo):
        mentions = any(v in unbound for v in shape_vars.free_shape_vars(sinfo, Except(())))
        return rx.ObjectStructInfo() if mentions else sinfo
    if isinstance(sinfo, (rx.TupleStructInfo, DTensorStructInfo)):
        return shape_vars.map_nested(lambda field: _without_compounds(field, unbound), sinfo)

    def simple(dim: tir.PrimExpr) -> tir.PrimExpr:
        if isinstance(dim, tir.Var) or not any(v in unbound for v in shape_vars.variables_of(dim)):
            return dim
        return tir.Var("size", dim.dtype)

    return shape_vars.map_sizes(simple, sinfo)


V = TypeVar("V", tir.Var, rx.Var)


def bind_symbolic_vars(
    func: rx.Function, binding_map: Mapping[tir.Var | str, tir.PrimExpr | int]
) -> rx.Function:
    """`func` with the values in `binding_map` instead of its shape variables.

    The parameters stay. Shape variables that the values mention must still be defined.

    Errors:
        UnknownNameError: the function defines no such shape variable.
        MisuseError: a name means several variables, a variable is bound twice, a value is not an
            integer, or it mentions a variable that nothing defines (WF-6a).
    """
    return with_sizes(func, values_of_sizes(func, binding_map))


def with_sizes(func: rx.Function, images: Mapping[tir.Var, tir.PrimExpr]) -> rx.Function:
    """`func` with these values instead of its shape variables; errors as `bind_symbolic_vars`."""
    if not images:
        return func
    after = rewriting.replace_variables(func, images)
    _check_defined(after, func)
    return cast("rx.Function", _knowing(PyExprMutator(), _values(after)).visit_expr(after))


def values_of_sizes(
    func: rx.Function, binding_map: Mapping[tir.Var | str, tir.PrimExpr | int]
) -> dict[tir.Var, tir.PrimExpr]:
    """The values in `binding_map` by shape variables of `func`; errors as `bind_symbolic_vars`."""
    defined = defined_symbolic_vars(func)
    own = shape_vars.definable_shape_vars(*_declared(func))
    values = _by_variable(binding_map, defined, own, "name", "shape variable", "defines")
    return {var: ops.cast_to(_integer(var, value), var.dtype) for var, value in values.items()}


def _integer(var: tir.Var, value: Any) -> Any:
    """`value`, which is an integer or an integer expression."""
    if isinstance(value, tir.PrimExpr):
        is_integer = value.dtype.is_int
    else:
        is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer:
        raise unexpected(value, f"shape variable {var.name} is an integer")
    return value


def _by_variable(
    binding_map: Mapping[Any, Any],
    variables: Sequence[V],
    own: Container[V],
    attribute: str,
    what: str,
    verb: str,
) -> dict[V, Any]:
    """The values of the variables that the keys are, or that have the keys as names.

    Of several variables with one name, one that the function's `own` parameters define is meant.
    """
    named: dict[str, list[V]] = {}
    for var in variables:
        named.setdefault(getattr(var, attribute), []).append(var)
    values: dict[V, Any] = {}
    for key, value in binding_map.items():
        name = str(getattr(key, attribute, key))
        matches = named.get(name, [])
        if not isinstance(key, str):
            matches = [var for var in matches if var is key]
        if len(matches) > 1:
            # Local functions define sizes of their own, and these may have the same names.
            matches = [var for var in matches if var in own] or matches
        if len(matches) > 1:
            several = f"several {what}s of the function are called {name}"
            raise MisuseError(f"{several}; pass the variable")
        if not matches:
            raise UnknownNameError(
                f"the function {verb} no {what} {name}"
                + (f"; it {verb} {', '.join(named)}" if named else ""),
                hint=close_names(name, named),
            )
        if matches[0] in values:
            raise MisuseError(f"{what} {name} is bound twice", about=matches[0])
        values[matches[0]] = value
    return values


def _declared(func: rx.Function) -> list[rx.StructInfo]:
    return [sinfo for p in func.params if (sinfo := p.struct_info) is not None]


def _check_defined(after: rx.Function, before: rx.Function) -> None:
    """Check that all shape variables have definitions, in the signature by parameters."""
    free = set(free_symbolic_vars(before))
    sinfos = _declared(after)
    signature = [*sinfos] if after.ret_struct_info is None else [*sinfos, after.ret_struct_info]
    scope = free.union(shape_vars.definable_shape_vars(*sinfos))
    used = [
        var
        for sinfo in signature
        for var in shape_vars.free_shape_vars(sinfo, scope)
        if var not in scope
    ]
    for var in (*used, *free_symbolic_vars(after)):
        if var not in free:
            raise MisuseError(
                f"nothing defines shape variable {var.name} any more", rule="WF-6a", about=var
            )


def bind_params(func: rx.Function, binding_map: Mapping[rx.Var | str, object]) -> rx.Function:
    """`func` with the values in `binding_map` instead of those parameters.

    Values are expressions, arrays, numbers or tuples of these, and determine shape variables. A
    value that is not known to fit its parameter is checked by a match_cast.

    Errors:
        UnknownNameError: the function has no such parameter.
        MisuseError: a name means several parameters, a parameter is bound twice, or nothing defines
            a shape variable any more (WF-6a).
        StructInfoError: a value does not fit its parameter.
    """
    declared = _by_variable(binding_map, func.params, (), "name_hint", "parameter", "has")
    values = {param: _as_value(value, param.struct_info) for param, value in declared.items()}
    if not values:
        return func
    body, images = in_place_of_parameters(list(values.items()), func.body)
    sizes = {var: image for var, image in images.items() if isinstance(var, tir.Var)}
    sized = rewriting.replace_variables(rebuild(func, body=body), sizes)
    new_params = dict(zip(func.params, sized.params, strict=True))
    rest = rebuild(
        sized,
        params=tuple(new for old, new in new_params.items() if old not in values),
        attrs=_with_fewer_inputs(func, values),
    )
    leaves = {new_params[p]: cast(rx.Expr, images[p]) for p in values if p in images}
    after: rx.Function = _knowing(_Bind(leaves), _values(rest)).visit_expr(rest)
    _check_defined(after, func)
    return after


class _Bind(PyExprMutator):
    """Replaces variables by values, and derives the struct info that follows."""

    def __init__(self, values: Mapping[rx.Var, rx.Expr]) -> None:
        super().__init__()
        self.values = values

    @override
    def visit_var_(self, op: rx.Var) -> Any:
        return self.values[op] if op in self.values else super().visit_var_(op)


def _with_fewer_inputs(func: rx.Function, bound: Mapping[rx.Var, rx.Expr]) -> Attrs:
    """The attributes with a `num_input` that does not count bound parameters."""
    inputs = func.attrs.get("num_input")
    if not isinstance(inputs, int):
        return func.attrs
    left = sum(param not in bound for param in func.params[:inputs])
    return func.attrs.updated({"num_input": left})


def _as_value(value: object, sinfo: rx.StructInfo | None) -> rx.Expr:
    """The value of a parameter with this struct info, as an expression."""
    if isinstance(value, rx.Expr):
        return value
    match sinfo:
        case rx.PrimStructInfo(dtype=dtype) if isinstance(
            value, (int, float, np.bool_, np.integer, np.floating)
        ):
            number = value if isinstance(value, (int, float)) else value.item()
            _check_kind(number, dtype)
            return rx.PrimValue(ops.const(number, dtype))
        case rx.TensorStructInfo(dtype=dtype) if isinstance(value, (int, float)):
            _check_kind(value, dtype)
            return rx.const(value, None if dtype.is_void else dtype)
        case rx.TensorStructInfo() if isinstance(value, (tuple, list)):
            raise StructInfoError(
                f"a {type(value).__name__} is not a tensor",
                rule="DER-41",
                hint="convert it to an array: numpy.asarray(...)",
                about=value,
            )
        case rx.ShapeStructInfo() if isinstance(value, (tuple, list)):
            if all(isinstance(n, (int, np.integer)) for n in value):
                return rx.ShapeExpr(tuple(map(int, value)))
        case rx.TupleStructInfo(fields=fields) if isinstance(value, (tuple, list)):
            known = fields if len(value) == len(fields) else repeat(None)
            return rx.Tuple(tuple(map(_as_value, value, known)))
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        array: Any = value
        is_shared = isinstance(value, np.ndarray) and may_change(value)
        return rx.Constant(array.copy() if is_shared else array)
    return rx.convert_to_expr(value)


def _check_kind(value: float, dtype: DataType) -> None:
    """Check that a number is a value of `dtype` (MC-3)."""
    is_other = isinstance(value, bool) and not dtype.is_bool
    if dtype.is_void or (dtype.is_float and not is_other):
        return
    low, high = (0, 1) if dtype.is_bool else ops.int_range(dtype)
    if is_other or not low <= value <= high or value != int(value):
        raise MisuseError(f"{value} is not a value of type {dtype}", rule="MC-3", about=value)


def inline_functions(
    func: rx.Function, function_map: Mapping[rx.GlobalVar | str, rx.Function]
) -> rx.Function:
    """`func` with the bodies of the functions instead of calls of them, at every depth.

    An ordinary block in a body splits the dataflow block of the call. If an argument is not known
    to fit its parameter, or the result its annotation, a match_cast checks it as the call does.

    Errors:
        MisuseError (also TypeError, ValueError): a name occurs twice, or is not that of a Relax
            function.
        TransformError: a function would be inlined into itself, or too many bodies would be.
    """
    table: dict[str, rx.Function] = {}
    for key, callee in function_map.items():
        name = key if isinstance(key, str) else key.name_hint
        if name in table:
            raise MisuseError(f"function {name} occurs twice in function_map")
        if not isinstance(callee, rx.Function):
            raise MisuseError(f"{name} is not a Relax function, but {type(callee).__name__}")
        table[name] = callee
    values = _values(func, *table.values())
    table = {name: _derived(callee, values) for name, callee in table.items()}
    func = _derived(func, values)
    after = _Inliner(table).expr(func)
    return func if after is func else _derived(after, values)


def _derived(func: rx.Function, values: Mapping[str, rx.StructInfo]) -> rx.Function:
    return _knowing(PyExprMutator(), values).builder_.normalize_function(func)


M = TypeVar("M", bound=PyExprMutator)


def _knowing(mutator: M, values: Mapping[str, rx.StructInfo]) -> M:
    """The mutator, which knows the struct info of functions of the module that are values."""
    mutator.builder_.context.values = values
    return mutator


def _values(*funcs: rx.Function) -> dict[str, rx.StructInfo]:
    """The struct info of functions of the module that are values in these functions."""
    found: dict[str, rx.StructInfo] = {}

    def note(value: rx.Expr, sinfo: rx.StructInfo | None) -> None:
        if isinstance(value, rx.GlobalVar) and sinfo is not None:
            found.setdefault(value.name_hint, sinfo)
        elif isinstance(value, rx.Tuple) and isinstance(sinfo, rx.TupleStructInfo):
            for operand, known in zip(value.fields, sinfo.fields, strict=True):
                note(operand, known)

    for node in (node for func in funcs for node in walk(func)):
        match node:
            case rx.VarBinding(var=var, value=value):
                note(value, var.struct_info)
            case rx.Tuple(struct_info=sinfo):
                note(node, sinfo)
            case rx.SeqExpr(body=result, struct_info=sinfo):
                note(result, sinfo)
            case _:
                pass
    return found


MOST_BODIES = 20_000
"""The most bodies in a function: each function that calls the next one twice doubles them."""


class _Inliner(rewriting.BindingRewriter):
    """Replaces calls by the bodies of the functions in `table`; `open` are being inlined."""

    def __init__(self, table: Mapping[str, rx.Function]) -> None:
        super().__init__()
        self.table = table
        self.open: list[str] = []
        self.count = 0

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        after = super().sequence(seq)
        return after if after is seq else _with_outputs(after)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        name = call.op.name_hint
        return self._inlined(name, call, binding, type(block)) if name in self.table else None

    def _inlined(
        self, name: str, call: rx.Call, binding: rx.Binding, kind: type[rx.BindingBlock]
    ) -> rewriting.Rewritten:
        """The blocks of a copy of the function; the last one binds the result of the call."""
        if name in self.open:
            cycle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise TransformError(
                f"{name} cannot be inlined, as it calls itself: {cycle}", span=binding.span
            )
        self.count += 1
        if self.count > MOST_BODIES:
            raise TransformError(
                f"{name} cannot be inlined: there are more than {MOST_BODIES:,} calls of"
                " functions, with those in inlined functions",
                span=binding.span,
            )
        func = rewriting.copy_with_new_vars(self.table[name])
        if len(func.params) != len(call.args):
            params = counted(len(func.params), "parameter")
            raise TransformError(
                f"a call of a function of {params} has {counted(len(call.args), 'argument')}",
                rule="DER-39",
                span=call.span,
            )
        pairs = list(zip(func.params, call.args, strict=True))
        checked, images = in_place_of_parameters(pairs, func.body, call.span)
        body = rewriting.replace_variables(checked, images)
        checks = len(checked.blocks) - len(func.body.blocks)
        blocks = (*(kind(b.bindings) for b in body.blocks[:checks]), *body.blocks[checks:])
        declared = unproved_result(func)
        if declared is not None:
            declared = rewriting.replace_variables(declared, images)
        body = rebuild(body, blocks=blocks)
        if isinstance(binding, rx.VarBinding) and declared is None and body.body in _bound(body):
            body = rename(body, {body.body: binding.var})  # now, while the body is short
        self.open.append(name)
        body = super().sequence(body)
        self.open.pop()
        if issubclass(kind, rx.DataflowBlock) and all(isinstance(b, kind) for b in body.blocks):
            outputs = {
                var: rx.DataflowVar(var.name_hint, var.struct_info, var.span)
                for var in _bound(body)
                if not isinstance(var, rx.DataflowVar) and var is not binding.var
            }
            body = rename(body, outputs) if outputs else body
        result = body.body
        if declared is not None:
            if isinstance(binding, rx.VarBinding):
                last = rx.MatchCast(binding.var, result, declared, binding.span)
                return [*body.blocks, kind((last,))]
            check = rx.MatchCast(None, result, declared, binding.span)
            return [*body.blocks, kind((check, replace(binding, value=result)))]
        if result is binding.var:
            return body.blocks
        return [*body.blocks, kind((replace(binding, value=result),))]


def _bound(seq: rx.SeqExpr) -> set[rx.Var]:
    """The variables that a sequence binds itself."""
    bindings = (binding for block in seq.blocks for binding in block.bindings)
    return {binding.var for binding in bindings if binding.var is not None}


def unproved_result(func: rx.Function) -> rx.StructInfo | None:
    """The result annotation, if a call must check that the body satisfies it (FN-8)."""
    actual, declared = func.body.struct_info, func.ret_struct_info
    if actual is None or declared is None:
        return declared
    known = check_compatibility(actual, declared) is Compatibility.COMPATIBLE
    return None if known else declared


def _with_outputs(seq: rx.SeqExpr) -> rx.SeqExpr:
    """The sequence with a Var for each DataflowVar that is used outside its block."""
    home: dict[rx.Var, int] = {}
    for index, block in enumerate(seq.blocks):
        for binding in block.bindings:
            if isinstance(binding.var, rx.DataflowVar):
                home[binding.var] = index if isinstance(block, rx.DataflowBlock) else -1
    outputs = {var for var, index in home.items() if index == -1}
    for index, block in enumerate(seq.blocks):
        outputs.update(v for v in occurring_vars(block) if home.get(v, index) != index)
    outputs.update(v for v in occurring_vars(seq.body) if v in home)
    return rename(seq, {v: rx.Var(v.name_hint, v.struct_info, v.span) for v in outputs})
