"""AppendInPlace: rows that a function concatenates to a parameter are appended in its memory.

AttachExternModules: functions from outside of the program are made available to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, Span, TransformError, close_names
from relaxpy.ir import hooks
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.call import call_packed, call_tir_inplace
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.ops.definition.rules import normal_axis
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.dataflow_blocks import ToNonDataflow
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.passes.rewrite_pass import find_function
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import defined_symbolic_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import dims_of, tensor_of
from relaxpy.ir.relax.relations.shape_vars import shape_vars_of, variables_of
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.ir.te.tensor import Tensor, compute
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, serial_loops
from relaxpy.support.dataclass import dataclass, replace

_PASS: Final = "AppendInPlace"


@dataclass(frozen=True)
class AppendInPlace(Pass):
    """Appends rows that a function concatenates to a parameter in its memory, without a copy.

    This is for functions that return `concat((past, rows), axis)`, where `past` is a parameter with
    a shape variable as this dimension, to take it as `past` in the next call, as language models
    with KV caches do. The result is a view of memory with twice the capacity. A call that takes it
    writes its rows into this spare capacity, unless an earlier call did so; then, and for all other
    arrays, it takes a copy. Results are therefore what they would be without this pass, in whatever
    order they are passed. But they share memory, so they are read-only, and they are not contiguous
    if the axis is not the first one. For callers with tensors of torch they are copied, so that
    this pass saves nothing.

    `params` are the names of the parameters; by default all that are concatenated in this way.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no function `func_name`.
        TransformError: it is not a Relax function, or does not return a parameter of `params` in
            this way.
    """

    func_name: str | rx.GlobalVar = "main"
    params: Sequence[str] | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        name, func = find_function(mod, self.func_name, _PASS)
        func = cast("rx.Function", ToNonDataflow()(mod).functions_by_name[name])
        appends = self._chosen(func, list(_appends(func)))
        if not appends:
            return mod
        builder = BlockBuilder(mod.clone())
        new = _Appending(builder, func, appends)
        callee = builder.add_func(new.appending(), f"{name}_appending")
        result = builder.get()
        result[name] = new.caller(callee)
        return normalize_module(result)

    def _chosen(self, func: rx.Function, appends: list[_Append]) -> list[_Append]:
        if self.params is None:
            return appends
        found = {append.past.name_hint: append for append in appends}
        for name in self.params:
            if name not in found:
                raise TransformError(
                    f"{_PASS}: the function does not return a concatenation of {name!r} and what "
                    "follows it",
                    hint=close_names(name, found)
                    or "the parameter is first, its dimension a variable, the result returned",
                    span=func.span,
                )
        return [found[name] for name in dict.fromkeys(self.params)]


@dataclass(frozen=True, slots=True, eq=False)
class _Append:
    """The binding of `present`, a result, to the concatenation of the parameter `past` and `rows`.

    `size` is the dimension of the parameter along the axis, `count` that of the rows.
    """

    past: rx.Var
    present: rx.Var
    rows: Sequence[rx.Expr]
    axis: int
    size: tir.Var
    count: tir.PrimExpr
    span: Span | None


def _appends(func: rx.Function) -> Iterator[_Append]:
    """The concatenations to parameters that a function returns, the first one of each parameter."""
    values = _values(func)
    bound = shape_vars_of(func.params)
    seen: set[rx.Expr] = set()
    for leaf in dict.fromkeys(_leaves(func.body.body, values)):
        call = values.get(leaf)
        if not isinstance(leaf, rx.Var) or not rx.is_call_of(call, "relax.concat"):
            continue
        operands = _original(call.args[0], values)
        if not isinstance(operands, rx.Tuple) or len(operands.fields) < 2:
            continue
        past, *rows = (_original(field, values) for field in operands.fields)
        is_first = isinstance(past, rx.Var) and past in func.params and past not in seen
        if not is_first or not all(map(_has_shape, (leaf, past, *rows))):
            continue
        assert isinstance(past, rx.Var)
        axis = normal_axis(cast("int", call.attrs["axis"] or 0), tensor_of(past).ndim)
        size, end = dims_of(past)[axis], dims_of(leaf)[axis]
        count = simplify(end - size)
        is_variable = isinstance(size, tir.Var) and size.dtype == INT64
        if is_variable and all(var in bound for var in variables_of(count)):
            seen.add(past)
            yield _Append(past, leaf, rows, axis, cast("tir.Var", size), count, call.span)


class _Appending:
    """The two functions that replace `func`; kernels are added to the builder."""

    def __init__(self, builder: BlockBuilder, func: rx.Function, appends: list[_Append]) -> None:
        self.builder, self.func, self.appends = builder, func, appends
        self.values = _values(func)
        presents = {append.present: append for append in appends}
        self.leaves = [*dict.fromkeys(_leaves(func.body.body, self.values))]
        self.others = [x for x in self.leaves if x not in presents and x not in func.params]
        self.sizes = {
            append.size: rx.Var(append.size.name, rx.PrimStructInfo(value=append.size))
            for append in appends
        }
        self.bindings: list[rx.Binding] = []
        """The bindings of the function that writes."""
        self.written: dict[_Append, rx.Var] = {}
        self.memory = {
            a.past: rx.Var(a.past.name_hint, _with_size(a, tir.Var("room", "int64")), a.past.span)
            for a in appends
        }

    def appending(self) -> rx.Function:
        """The function that writes into memory that it takes instead of parameters."""
        func = self.func
        presents = {append.present: append for append in self.appends}
        pending: dict[rx.Var, _Append] = {}
        for block in func.body.blocks:
            for binding in block.bindings:
                if any(node in pending for node in walk(binding.value)):
                    self._flush(pending)
                if binding.var in presents:
                    pending[binding.var] = presents[binding.var]
                else:
                    self.bindings.append(binding)
        self._flush(pending)
        used = {node for binding in self.bindings for node in walk(binding.value)}
        before = [
            self._view(a, a.past, self.memory[a.past]) for a in self.appends if a.past in used
        ]
        params = (*(self.memory.get(p, p) for p in func.params), *self.sizes.values())
        results = (*self.others, *(self.written[append] for append in self.appends))
        body = rx.SeqExpr((rx.BindingBlock((*before, *self.bindings)),), rx.Tuple(results))
        attrs = {k: v for k, v in func.attrs.items() if k not in {"global_symbol", "num_input"}}
        new = rx.Function(params, body, None, func.is_pure, Attrs(attrs), span=func.span)
        # Numbers that are sizes of the caller's memory: fusion need not keep a check of them.
        sizes = {var: tir.SizeVar(var.name, var.dtype) for var in self.sizes}
        return copy_with_new_vars(rename(without_dead_code(new), sizes))

    def _view(self, append: _Append, var: rx.Var, memory: rx.Var) -> rx.Binding:
        """The binding of a variable to the first elements of memory."""
        size = dims_of(var)[append.axis]

        def first(x: Tensor) -> Tensor:
            shape = [size if k == append.axis else dim for k, dim in enumerate(x.shape)]
            return cast("Tensor", compute(shape, lambda *i: x(*i), "first"))

        return _binding(var, self.builder.call_te(first, memory), append.span)

    def _flush(self, pending: dict[rx.Var, _Append]) -> None:
        """Append first, and then take views of all that was written."""
        for append in pending.values():
            self._write(append)
        for append in pending.values():
            self.bindings.append(self._view(append, append.present, self.written[append]))
        pending.clear()

    def _write(self, append: _Append) -> None:
        """Write rows into memory."""
        rows, memory = append.rows[0], self.memory[append.past]
        if len(append.rows) > 1:
            joined = R.concat(rx.Tuple(tuple(append.rows)), append.axis)
            rows = rx.Var("rows", _with_size(append, append.count))
            self.bindings.append(_binding(rows, joined, append.span))
        kernel = _write_kernel(dims_of(memory), dims_of(rows), tensor_of(memory).dtype, append.axis)
        name = self.builder.add_func(kernel, "append")
        written = rx.Var(append.present.name_hint, memory.struct_info)
        self.written[append] = written
        call = call_tir_inplace(
            name, rx.Tuple((memory, rows)), [0], tensor_of(memory), tir_vars=[append.size]
        )
        self.bindings.append(_binding(written, call, append.span))

    def caller(self, callee: rx.GlobalVar) -> rx.Function:
        """The function with its parameters, which calls the other one."""
        func = self.func
        bindings: list[rx.Binding] = []

        def bind(name: str, value: rx.Expr, span: Span | None) -> rx.Var:
            var = rx.Var(name)
            bindings.append(_binding(var, value, span))
            return var

        memory: dict[rx.Var, rx.Var] = {}
        for a in self.appends:
            old = tensor_of(a.past)
            sinfo = rx.TensorStructInfo(dtype=old.dtype, ndim=old.ndim)
            reserved = call_packed(
                "relaxpy.growing.reserve", a.past, a.axis, rx.PrimValue(a.count), sinfo_args=sinfo
            )
            room = bind("room", reserved, a.span)
            var = memory[a.past] = rx.Var(a.past.name_hint)
            known = _with_size(a, tir.Var("room", "int64"))
            bindings.append(rx.MatchCast(var, room, known, a.span))
        args = (*(memory.get(p, p) for p in func.params), *map(rx.PrimValue, self.sizes))
        found = bind("results", rx.Call(callee, args), func.span)
        fields = [
            bind("result", rx.TupleGetItem(found, index), func.span)
            for index in range(len(self.others) + len(self.appends))
        ]
        images: dict[rx.Expr, rx.Expr] = dict(zip(self.others, fields, strict=False))
        for a, written in zip(self.appends, fields[len(self.others) :], strict=True):
            shape = rx.ShapeExpr(dims_of(a.present))
            grown = call_packed(
                "relaxpy.growing.grown", written, shape, sinfo_args=tensor_of(a.present)
            )
            images[a.present] = bind(a.present.name_hint, grown, a.span)
        result = _rebuilt(func.body.body, self.values, images)
        attrs = {**func.attrs, **({"relax.force_pure": True} if func.is_pure else {})}
        body = rx.SeqExpr((rx.BindingBlock(tuple(bindings)),), result)
        return replace(func, body=body, attrs=Attrs(attrs), struct_info=None)


def _write_kernel(
    memory: Sequence[tir.PrimExpr], rows: Sequence[tir.PrimExpr], dtype: DataType, axis: int
) -> PrimFunc:
    """The kernel that writes rows into memory, after the first `size` elements along an axis."""

    def buffer(name: str, shape: Sequence[tir.PrimExpr], sizes: Sequence[tir.PrimExpr]) -> Buffer:
        own = [d if isinstance(d, tir.IntImm) else s for d, s in zip(shape, sizes, strict=True)]
        return decl_buffer(own, dtype, name)

    sizes = [tir.Var(f"d{k}", "int64") for k in range(len(memory))]
    target = buffer("memory", memory, sizes)
    sizes[axis] = tir.Var("count", "int64")
    source = buffer("rows", rows, sizes)
    size = tir.Var("size", "int64")
    index = [tir.Var(f"i{k}", "int64") for k in range(len(memory))]
    places = tuple(size + i if k == axis else i for k, i in enumerate(index))
    store = BufferStore(target, BufferLoad(source, index), places)
    body = serial_loops(index, source.shape, store)
    buffers = {tir.Var(b.name, "handle"): b for b in (target, source)}
    return PrimFunc((*buffers, size), body, buffer_map=buffers, attrs=Attrs({"tir.noalias": True}))


def _values(func: rx.Function) -> Mapping[rx.Expr | None, rx.Expr]:
    """The values of variables that bindings have, without casts."""
    bindings = (binding for block in func.body.blocks for binding in block.bindings)
    return {b.var: b.value for b in bindings if isinstance(b, rx.VarBinding)}


def _original(expr: rx.Expr, values: Mapping[rx.Expr | None, rx.Expr]) -> rx.Expr:
    """The original of an alias, or the tuple that an expression is."""
    while isinstance(values.get(expr), (rx.Var, rx.Tuple)):
        expr = values[expr]
    return expr


def _leaves(expr: rx.Expr, values: Mapping[rx.Expr | None, rx.Expr]) -> Iterator[rx.Expr]:
    """The leaves of a tuple; another value is a leaf itself."""
    expr = _original(expr, values)
    if isinstance(expr, rx.Tuple):
        for field in expr.fields:
            yield from _leaves(field, values)
    else:
        yield expr


def _rebuilt(
    expr: rx.Expr, values: Mapping[rx.Expr | None, rx.Expr], images: Mapping[rx.Expr, rx.Expr]
) -> rx.Expr:
    """A tuple with other leaves."""
    expr = _original(expr, values)
    if isinstance(expr, rx.Tuple):
        return rx.Tuple(tuple(_rebuilt(field, values, images) for field in expr.fields))
    return images.get(expr, expr)


def _binding(var: rx.Var, call: rx.Expr, span: Span | None) -> rx.Binding:
    return rx.VarBinding(var, rebuild(call, span=span), span)


def _has_shape(expr: rx.Expr) -> bool:
    """True if this is a tensor of known shape and datatype."""
    sinfo = expr.struct_info
    if not isinstance(sinfo, rx.TensorStructInfo) or sinfo.dtype.is_void:
        return False
    return isinstance(sinfo.shape, rx.ShapeExpr)


def _with_size(append: _Append, size: tir.PrimExpr) -> rx.TensorStructInfo:
    """The struct info of the parameter with another size along the axis."""
    shape = list(dims_of(append.past))
    shape[append.axis] = size
    return replace(tensor_of(append.past), shape=rx.ShapeExpr(tuple(shape)))


_ATTRIBUTE: Final = "external_mods"


@dataclass(frozen=True)
class AttachExternModules(Pass):
    """Registers the functions of extern modules as packed functions, which the module lists.

    An extern module is a table of Python functions by name, or an object whose method `load`
    returns one. The attribute `external_mods` of the module has the names.

    Errors:
        MisuseError (also TypeError): an item is neither a table of functions nor loads one.
        PackedFuncError (also ValueError): another function is registered under a name.
    """

    extern_modules: Sequence[Any]

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        present = cast("Sequence[str]", mod.get_attr(_ATTRIBUTE) or ())
        names = dict.fromkeys(present)
        known = len(names)
        for extern in self.extern_modules:
            for name, function in _functions(extern).items():
                if hooks.call("packed_function", name, True) is not function:
                    hooks.call("register_packed", name, function)
                names[name] = None
        return mod if len(names) == known else mod.with_attr(_ATTRIBUTE, tuple(names))


def _functions(extern: object) -> Mapping[str, Callable[..., Any]]:
    """The functions of an extern module by name."""
    load = getattr(extern, "load", None)
    table = load() if callable(load) else extern
    if not isinstance(table, Mapping) or not all(map(callable, table.values())):
        raise MisuseError(
            f"an extern module is a table of functions by name, found {table!r:.60}",
            hint='write {"name": function}, or pass an object whose method load returns that',
            about=extern,
        )
    return table


_LARGEST = 2**62


class SizeBounds:
    """The bounds of shape variables, by name."""

    def __init__(
        self, upper: Mapping[str, int] | None = None, lower: Mapping[str, int] | None = None
    ) -> None:
        self._upper, self._lower = upper or {}, lower or {}

    @classmethod
    def of(cls, func: rx.Function) -> Self:
        """The bounds that the attributes of a function declare.

        Errors:
            TransformError: an attribute is not a mapping from names to integers.
        """
        return cls(
            declared_bounds(func, "tir_var_upper_bound"),
            declared_bounds(func, "tir_var_lower_bound"),
        )

    def largest(self, size: tir.PrimExpr) -> tir.PrimExpr:
        """The largest value of a size in bytes, as a constant, or the size if it has no bound."""
        variables = dict.fromkeys(v for v in walk(size) if isinstance(v, tir.Var))
        if not any(var.name in self._upper for var in variables):
            return size
        analyzer = Analyzer()
        for var in variables:
            low = self._lower.get(var.name, 0)
            if var.name in self._upper:
                extent = self._upper[var.name] - low + 1
                if extent < 1:
                    return size
                analyzer.bind(var, Range.from_min_extent(low, extent))
        bound = analyzer.const_int_bound(size).max_value
        return ops.const(bound, INT64) if 0 <= bound < _LARGEST else size


def upper_bounds(func: rx.Function) -> dict[tir.Var, int]:
    """The upper bounds that the attribute `tir_var_upper_bound` declares, by shape variable.

    Errors:
        TransformError: it is not a mapping from names to integers.
    """
    bounds = declared_bounds(func, "tir_var_upper_bound")
    sizes = (v for v in defined_symbolic_vars(func) if v.name in bounds) if bounds else ()
    return {var: bounds[var.name] for var in sizes}


def declared_bounds(func: rx.Function, name: str) -> dict[str, int]:
    """The bounds in the attribute `name` of a function, by the names of variables.

    Errors:
        TransformError: it is not a mapping from names to integers.
    """
    bounds = func.attrs.get(name, {})
    if not isinstance(bounds, Mapping):
        raise TransformError(
            f"attribute {name} is a mapping from names to integers, found {bounds!r:.60}",
            span=func.span,
        )
    result: dict[str, int] = {}
    for key, value in bounds.items():
        number = value.value if isinstance(value, tir.IntImm) else value
        if not isinstance(key, str) or type(number) is not int:
            raise TransformError(
                f"attribute {name} maps names to integers, found {key!r:.40}: {value!r:.40}",
                span=func.span,
            )
        result[key] = number
    return result
