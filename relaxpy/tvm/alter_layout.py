"""AlterOpImpl: kernels are replaced by others, which may take tensors in other layouts.

AttachAttrLayoutFreeBuffers: kernels list the operands whose layout may be changed in advance.

OptimizeLayoutTransform: transforms that undo each other are removed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, StructInfoError, TransformError, counted
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R, with_all_attributes
from relaxpy.ir.ops.definition.rules import Sizes, same
from relaxpy.ir.ops.layouts import of_sizes
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.passes.cleanup.dead_code_elimination import DeadCodeElimination, without_dead_code
from relaxpy.ir.passes.cleanup.eliminate_common_subexpr import EliminateCommonSubexpr
from relaxpy.ir.passes.convert_layout import LAYOUT_FREE
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import fields_of, literal_shape
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass

LayoutMap: TypeAlias = IndexMap | tuple[IndexMap, Sequence[int]] | Callable[..., object] | None
Separators: TypeAlias = Mapping[str, Sequence[Sequence[int]] | None]

OPERATOR_NAME = "operator_name"
"""The attribute of a PrimFunc that names the operator it implements."""
REMOVE_PAD = "remove_pad"
"""The operator of kernels that return the leading elements of a padded tensor."""


@dataclass(frozen=True)
class AlterOpImpl(Pass):
    """Calls other PrimFuncs for those that implement the operators in `op_impl_map`.

    The attribute `operator_name` of a PrimFunc names the operator that it implements. For each
    operator, `op_buffer_transforms` may have the map from the indices of each buffer of the old
    PrimFunc to those of the new one, or None where they are the same. Operands are then transformed
    before the call and results are transformed back, without the padding that the map has added.
    The axis separators of a buffer and of what it is transformed from are passed to
    `layout_transform`; of a pair, as `IndexMap.from_func_with_separators` returns it, only the map
    is used.

    Errors:
        MisuseError: an argument is of another kind.
        TransformError: the PrimFuncs have different numbers of parameters, there is not one map
            for each of them, or a map does not fit a tensor.
    """

    op_impl_map: Mapping[str, PrimFunc]
    op_buffer_transforms: Mapping[str, Sequence[LayoutMap] | None] = field(default_factory=dict)
    op_buffer_axis_separators: Separators = field(default_factory=dict)
    op_buffer_input_axis_separators: Separators = field(default_factory=dict)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def altered(func: rx.Function, builder: BlockBuilder) -> rx.Function:
            return _Altering(self, mod, builder).expr(func)

        return normalize_module(rewriting.map_with_builder(mod, altered))


@dataclass(frozen=True, slots=True)
class _Transform:
    """The layout transform of one buffer."""

    index_map: IndexMap
    separators: tuple[int, ...]
    input_separators: tuple[int, ...]

    def of(self, x: rx.Expr, index_map: IndexMap) -> rx.Call:
        """The call that transforms a tensor by a map."""
        call = R.layout_transform(
            x,
            index_map,
            axis_separators=self.separators,
            input_axis_separators=self.input_separators,
        )
        return cast("rx.Call", call)


class _Altering(rewriting.BindingRewriter):
    """Replaces the calls of one function."""

    def __init__(self, options: AlterOpImpl, mod: IRModule, builder: BlockBuilder) -> None:
        super().__init__()
        self.options, self.mod, self.builder = options, mod, builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        call = binding.value
        if not isinstance(binding, rx.VarBinding) or not rx.is_call_of(call, "relax.call_tir"):
            return None
        if not isinstance(call.args[0], rx.GlobalVar):
            return None
        old = self.mod[call.args[0].name_hint]
        name = old.attrs.get(OPERATOR_NAME)
        if not isinstance(old, PrimFunc) or name not in self.options.op_impl_map:
            return None
        operator = str(name)
        new = self.options.op_impl_map[operator]
        if len(new.params) != len(old.params):
            raise _refused(
                operator,
                f"the new PrimFunc has {counted(len(new.params), 'parameter')}, that of the call "
                f"of {binding.var.name_hint} has {len(old.params)}",
                call,
            )
        func = new.with_attr(OPERATOR_NAME, operator).without_attr("global_symbol")
        gvar = self.builder.add_func(func, f"{operator.replace('.', '_')}_replacement")
        if gvar.name_hint == call.args[0].name_hint:
            return None
        transforms = self.transforms(operator, old, call)
        return _Replacement(binding, block, self, operator).bindings_of(gvar, transforms)

    def transforms(self, operator: str, old: PrimFunc, call: rx.Call) -> list[_Transform | None]:
        """The transform of each buffer; none if all buffers stay unchanged."""
        maps = self.options.op_buffer_transforms.get(operator)
        if not maps:
            return [None] * len(old.params)
        if len(maps) != len(old.params):
            raise _refused(
                operator,
                f"there is one transform for each of {counted(len(old.params), 'parameter')}, or "
                f"none, found {len(maps)}",
                call,
            )
        result: list[_Transform | None] = []
        for k, (given, buffer) in enumerate(zip(maps, old.buffer_map_items, strict=True)):
            index_map = _map_of(given)
            if index_map is None:
                result.append(None)
                continue
            if not isinstance(index_map, IndexMap):
                rank = None if buffer is None else len(buffer.shape)
                index_map = IndexMap.from_func(index_map, _rank_of_variadic(index_map, rank))
            separators = [
                _listed(table.get(operator), k)
                for table in (
                    self.options.op_buffer_axis_separators,
                    self.options.op_buffer_input_axis_separators,
                )
            ]
            result.append(_Transform(index_map, *separators))
        return result

    def remove_pad(self, rank: int, dtype: DataType) -> rx.GlobalVar:
        """The kernel that returns the leading elements of a tensor."""
        padded, shape = (
            [tir.Var(f"{letter}{axis}", "int64") for axis in range(rank)] for letter in "pi"
        )
        source = te.placeholder(padded, str(dtype), "input")
        result: te.Tensor = te.compute(shape, lambda *i: source(*i), "output", tag="elemwise")
        func = create_prim_func([source, result]).with_attr(OPERATOR_NAME, REMOVE_PAD)
        return self.builder.add_func(func.without_attr("global_symbol"), REMOVE_PAD)


def _map_of(given: LayoutMap) -> IndexMap | Callable[..., object] | None:
    """The map of a pair of a map and its axis separators; anything else unchanged."""
    match given:
        case (IndexMap() as index_map, _):
            return index_map
        case _:
            return given


def _rank_of_variadic(function: Callable[..., object], rank: int | None) -> int | None:
    """The rank for a function of any number of indices."""
    code = getattr(function, "__code__", None)
    return rank if code is not None and code.co_flags & inspect.CO_VARARGS else None


def _listed(lists: Sequence[Sequence[int]] | None, index: int) -> tuple[int, ...]:
    return tuple(lists[index]) if lists is not None and index < len(lists) else ()


def _refused(operator: str, message: str, call: rx.Call) -> TransformError:
    return TransformError(f"AlterOpImpl, {operator}: {message}", span=call.span, about=call)


class _Replacement(rewriting.PrecedingBindings):
    """The bindings that replace that of one call."""

    def __init__(
        self, binding: rx.VarBinding, block: rx.BindingBlock, altering: _Altering, operator: str
    ) -> None:
        super().__init__(binding, block)
        self.altering, self.operator = altering, operator

    def bindings_of(
        self, gvar: rx.GlobalVar, transforms: Sequence[_Transform | None]
    ) -> list[rx.Binding]:
        """The call of the new PrimFunc between the transforms of operands and results."""
        call = cast("rx.Call", self.binding.value)
        old_operands = cast("rx.Tuple", call.args[1]).fields
        [declared] = call.sinfo_args
        outputs = fields_of(declared)
        args = [self.operand(x, t) for x, t in zip(old_operands, transforms, strict=False)]
        results = list(zip(outputs, transforms[len(transforms) - len(outputs) :], strict=True))
        sinfos = [self.output(sinfo, transform) for sinfo, transform in results]
        whole = (
            rx.TupleStructInfo(tuple(sinfos))
            if isinstance(declared, rx.TupleStructInfo)
            else sinfos[0]
        )
        operands = (gvar, rx.Tuple(tuple(args)), *call.args[2:])
        value: rx.Expr = rx.Call(call.op, operands, call.attrs, (whole,), span=call.span)
        if any(transform is not None for _, transform in results):
            source = self.bound(value)
            if isinstance(declared, rx.TupleStructInfo):
                fields = []
                for k, (sinfo, transform) in enumerate(results):
                    item = self.bound(rx.TupleGetItem(source, k))
                    fields.append(self.bound(self.original(item, sinfo, transform)))
                value = rx.Tuple(tuple(fields), span=self.binding.span)
            else:
                value = self.original(source, *results[0])
        return self.ended(value)

    def operand(self, x: rx.Expr, transform: _Transform | None) -> rx.Expr:
        """An operand as the new PrimFunc takes it; scalar literals stay."""
        if transform is None or (isinstance(x, rx.Constant) and not x.data.ndim):
            return x
        try:
            return self.bound(transform.of(x, transform.index_map))
        except StructInfoError as error:
            raise self.refused(error) from None

    def output(self, sinfo: rx.StructInfo, transform: _Transform | None) -> rx.StructInfo:
        """The struct info of the outputs of the new PrimFunc."""
        if transform is None:
            return sinfo
        try:
            new = of_sizes(transform.index_map).map_shape(_shape(sinfo))
        except MisuseError as error:
            raise self.refused(error) from None
        assert isinstance(sinfo, rx.TensorStructInfo)
        return rx.TensorStructInfo(rx.ShapeExpr(tuple(new)), sinfo.dtype, sinfo.vdevice)

    def original(self, x: rx.Expr, sinfo: rx.StructInfo, transform: _Transform | None) -> rx.Expr:
        """A result in the layout that the program expects."""
        if transform is None:
            return x
        shape = _shape(sinfo)
        try:
            inverse, padding = of_sizes(transform.index_map).non_surjective_inverse(shape)
        except MisuseError as error:
            raise self.refused(error) from None
        back = transform.of(x, inverse)
        if isinstance(padding, tir.IntImm) and not padding.value:
            return back
        kernel = self.altering.remove_pad(len(shape), cast("rx.TensorStructInfo", sinfo).dtype)
        return cast("rx.Expr", R.call_tir(kernel, (self.bound(back),), sinfo))

    def refused(self, error: RelaxpyError) -> TransformError:
        """The error of a map that does not fit a tensor of the call."""
        message = f"{self.name}: {error.diagnostic.message}"
        return _refused(self.operator, message, cast("rx.Call", self.binding.value))


def _shape(sinfo: rx.StructInfo) -> Sizes:
    """The dimensions of an output. Errors: MisuseError if it is not a tensor of known shape."""
    shape = literal_shape(sinfo)
    if shape is None:
        raise MisuseError(f"expected a tensor of known shape, found {sinfo}")
    return shape


@dataclass(frozen=True)
class AttachAttrLayoutFreeBuffers(Pass):
    """Calls copies of PrimFuncs that list which of their operands are weights or constants.

    The weights of a function are its parameters from the number `num_input` on, which is an
    attribute. The attribute `layout_free_buffers` has the positions of such operands. PrimFuncs
    that are not called any more are removed, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def attached(func: rx.Function, builder: BlockBuilder) -> rx.Function:
            return _Attaching(mod, builder, func).expr(func)

        result = rewriting.map_with_builder(mod, attached)
        return mod if result is mod else DeadCodeElimination().transform(result, ctx)


class _Attaching(rewriting.BindingRewriter):
    """Replaces the callees of one function."""

    def __init__(self, mod: IRModule, builder: BlockBuilder, func: rx.Function) -> None:
        super().__init__()
        self.mod, self.builder = mod, builder
        count = func.attrs.get("num_input")
        self.weights = frozenset(func.params[count:] if isinstance(count, int) else ())

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        call = binding.value
        if not rx.is_call_of(call, "relax.call_tir"):
            return None
        callee = call.args[0]
        func = self.mod[callee.name_hint] if isinstance(callee, rx.GlobalVar) else None
        operands = cast("rx.Tuple", call.args[1]).fields
        free = [k for k, arg in enumerate(operands) if self._is_free(arg)]
        if not free or not isinstance(func, PrimFunc) or _layout_free(func) == free:
            return None
        new = func.with_attr(LAYOUT_FREE, free).without_attr("global_symbol")
        gvar = self.builder.add_func(new, cast("rx.GlobalVar", callee).name_hint)
        return rebuild(call, args=(gvar, *call.args[1:]))

    def _is_free(self, arg: rx.Expr) -> bool:
        is_constant = isinstance(arg, rx.Constant) or isinstance(self.value_of(arg), rx.Constant)
        return is_constant or arg in self.weights


def _layout_free(func: PrimFunc) -> list[int]:
    """The positions that a PrimFunc lists."""
    return [int(position) for position in cast("list[int]", func.attrs.get(LAYOUT_FREE) or ())]


@dataclass(frozen=True)
class OptimizeLayoutTransform(Pass):
    """Uses a tensor itself where it is transformed to another layout and back again.

    AlterOpImpl leaves such transforms between two kernels. Padding that is removed and added again
    without a `pad_value` then has the value that it had before. Functions in which a transform is
    removed are simplified as by EliminateCommonSubexpr and CanonicalizeBindings, so that a tensor
    is transformed only once for several kernels.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def optimized(func: rx.Function) -> rx.Function:
            after = _Optimizing(mod).expr(func)
            return func if after is func else without_dead_code(after)

        after = normalize_module(map_functions(mod, rx.Function, optimized))
        if after is mod:
            return mod
        simple = EliminateCommonSubexpr().transform(after, ctx)
        simple = CanonicalizeBindings().transform(simple, ctx)
        result = after.clone()
        for var, func in after.items():
            if func is not mod[var.name_hint]:
                result[var] = simple[var.name_hint]
        return result


class _Optimizing(rewriting.BindingRewriter):
    """Removes the transforms of one function."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        second = _transform(binding.value)
        if second is None:
            return None
        value = self.value_of(second.args[0])
        unpadded = self._unpadded(value)
        first = _transform(value if unpadded is None else self.value_of(unpadded.args[1].fields[0]))
        if first is None or (unpadded is not None and second.attrs["pad_value"] is not None):
            return None
        [source] = first.args
        shape = literal_shape(source.struct_info)
        between = None if unpadded is None else literal_shape(unpadded.sinfo_args[0])
        if shape is None or not _is_inverse(_map(first), _map(second), shape, between):
            return None
        return source

    def _unpadded(self, value: rx.Expr | None) -> Any:
        """The call of a kernel that removes padding, if `value` is one."""
        if not rx.is_call_of(value, "relax.call_tir"):
            return None
        callee = value.args[0]
        if not isinstance(callee, rx.GlobalVar) or callee not in self.mod:
            return None
        kernel = self.mod[callee.name_hint]
        return value if kernel.attrs.get(OPERATOR_NAME) == REMOVE_PAD else None


def _transform(value: rx.Expr | None) -> rx.Call | None:
    """The value if it is a call of layout_transform."""
    return with_all_attributes(value) if rx.is_call_of(value, "relax.layout_transform") else None


def _map(call: rx.Call) -> IndexMap:
    return of_sizes(cast("IndexMap", call.attrs["index_map"]))


def _is_inverse(first: IndexMap, second: IndexMap, shape: Sizes, between: Sizes | None) -> bool:
    """True if a tensor of this shape is transformed to itself.

    `between` is the shape of the operand of the second map if padding is removed.
    """
    try:
        result = second.map_shape(first.map_shape(shape) if between is None else between)
    except MisuseError:
        return False
    if len(result) != len(shape) or not all(map(same, result, shape)):
        return False
    analyzer = Analyzer()
    indices = [tir.Var(f"i{k}", "int64") for k in range(len(shape))]
    for index, size in zip(indices, shape, strict=True):
        analyzer.bind(index, Range(0, size))
    images = second.map_indices(first.map_indices(indices))
    return all(map(analyzer.can_prove_equal, images, indices))
