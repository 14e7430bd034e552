"""ConvertLayout: operators take and return tensors in the layouts that a user desires.

ChannelsLast: images have their channels last where their convolutions have constant filters.

SplitLayoutRewritePreproc: kernels that first rewrite weights become two kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, check_type, unexpected
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, preorder, rebuild, rewrite, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import apply_column, is_of_relaxpy
from relaxpy.ir.ops.definition.axis_rules import (
    AttributeLayout,
    InferredLayouts,
    Layouts,
    broadcast_axes,
    has_blocks,
    initial_layouts,
    layouts_of,
    units,
)
from relaxpy.ir.ops.definition.registry import OpDef, R, find, with_all_attributes
from relaxpy.ir.ops.definition.rules import is_one, same
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code, without_unreachable
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import called_kernel, dims_of, rank_of, shape_of
from relaxpy.ir.relax.rewrite.map_bindings import (
    BindingRewriter,
    PrecedingBindings,
    Rewritten,
    map_with_builder,
    replace_variables,
    with_bindings,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.analysis.regions import loaded_buffers, stored_buffers
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.layout import BijectiveLayout, Layout
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, SeqStmt, Stmt, stmt_seq
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span

_FIRST_AXIS = "A"

Desired: TypeAlias = Mapping[str, Sequence[str]]
"""The layouts of operators' operands and results, by the names of the operators."""


@dataclass(frozen=True)
class ConvertLayout(RewritePass):
    """Converts the layouts of operators in dataflow blocks to the desired ones.

    `desired_layouts` has, by the name of an operator, the layouts of its data and weight, and that
    of its result unless it is that of the data: `{"relax.nn.conv2d": ["NHWC", "OHWI"]}`.
    `layout_cb` returns such a dict for a call, instead of `desired_layouts`.
    Operators that can be computed in other layouts take those of their operands; all others, and
    code outside the block, see the layouts of the program. Tensors are converted by
    `permute_dims`, and by `layout_transform` to and from blocks.

    Errors:
        MisuseError: an operator is unknown or has no desired layout, or a layout has other axes.
    """

    desired_layouts: Desired
    layout_cb: Callable[[rx.Call], Desired] | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        for layouts in self.desired_layouts.values():
            for layout in layouts:
                Layout.of(layout)

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        callback = self.layout_cb
        if callback is not None:
            return lambda func: converted_function(func, lambda call: _checked(callback(call)))
        desired = _checked(self.desired_layouts)
        return lambda func: converted_function(func, lambda _: desired)


def _checked(desired: Desired) -> Desired:
    """Desired layouts of operators that have them. Errors: MisuseError."""
    check_type(desired, Mapping, "layout_cb returns a dict of the layouts of operators")
    for name, layouts in desired.items():
        operator = find(Op.get(name))
        if operator is None:
            raise MisuseError(f"{name} is computed in one layout only", about=name)
        _require_desirable(operator, layouts)
    return dict(desired)


def converted_function(func: rx.Function, desired: Callable[[rx.Call], Desired]) -> rx.Function:
    """A function in normal form, with the layouts desired of calls in its dataflow blocks."""
    return _Blocks(desired).expr(func)


def _require_desirable(operator: OpDef, wanted: Sequence[str]) -> None:
    """Check the desired layouts of an operator; a rule of a user takes what it wants."""
    rule, name = operator.record.layout, operator.name
    if rule is None:
        raise MisuseError(f"{name} is computed in one layout only", about=name)
    if not isinstance(rule, AttributeLayout) or not rule.desirable:
        if is_of_relaxpy(rule):
            raise MisuseError(
                f"{name} takes the layouts of its operands, found a desired one",
                hint="desire layouts of convolutions and of image.resize2d",
                about=wanted,
            )
        return
    counts = {len(rule.operands), len(rule.names)}
    if len(wanted) not in counts:
        raise MisuseError(
            f"the desired layouts of {name} are {' or '.join(map(str, sorted(counts)))} "
            f"({', '.join(rule.names)}), found {list(wanted)}",
            about=wanted,
        )
    defaults = {p.name: p.default for p in operator.parameters}
    for attribute, target in zip(rule.names, wanted, strict=False):
        default = str(defaults[attribute] or defaults[rule.operands[0]])
        if _primal_axes(target) != _primal_axes(default):
            raise MisuseError(
                f"the desired {attribute} of {name} arranges the axes of {default!r}, found "
                f"{target!r}",
                about=target,
            )


def _primal_axes(layout: str) -> set[str]:
    return {axis for axis in Layout.of(layout).names if axis.isupper()}


class _Blocks(BindingRewriter):
    """Converts the dataflow blocks of one function."""

    def __init__(self, desired: Callable[[rx.Call], Desired]) -> None:
        super().__init__()
        self.desired = desired

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if not isinstance(block, rx.DataflowBlock):
            return super().block(block)
        converter = _Converter(self.desired)
        for binding in block.bindings:
            value = self.expr(binding.value)
            new = binding if value is binding.value else replace(binding, value=value)
            converter.convert(new)
        return [with_bindings(block, converter.bindings)]


class _Converter:
    """The new bindings of one dataflow block.

    A variable of another layout than its initial one is in `layouts`, and the variable in that
    layout is in `images`. All other variables keep their values.
    """

    def __init__(self, desired: Callable[[rx.Call], Desired]) -> None:
        self.desired = desired
        self.bindings: list[rx.Binding] = []
        self.layouts: dict[rx.Var, Layouts] = {}
        self.images: dict[rx.Var, rx.Var] = {}
        self.span: Span | None = None

    def convert(self, binding: rx.Binding) -> None:
        """Add the replacement of a binding."""
        self.span = binding.span
        if isinstance(binding, rx.MatchCast):
            self._cast(binding)
            return
        match binding.value:
            case rx.Call(op=Op()) as call:
                self._call(binding, call)
            case rx.Tuple(fields=fields) as value:
                known = self.layouts if isinstance(binding.var, rx.DataflowVar) else {}
                items = [self._in_layout(item, layouts_of(item, known)) for item in fields]
                self._bind(binding, _with(value, fields=items), layouts_of(value, known))
            case rx.TupleGetItem(tuple_value=value, index=index) as item:
                layouts = layouts_of(value, self.layouts)
                source = self._in_layout(value, layouts)
                layout = layouts[index] if isinstance(layouts, tuple) else None
                self._bind(binding, _with(item, tuple_value=source), layout)
            case rx.Var() as value:
                self._bind(binding, self.images.get(value, value), layouts_of(value, self.layouts))
            case value:
                self.bindings.append(_with_value(binding, self._initial(value)))

    def _call(self, binding: rx.VarBinding, call: rx.Call) -> None:
        initial = initial_layouts(call.struct_info)
        completed = with_all_attributes(call)
        inferred = self._inferred(completed)
        if inferred is None or not _of_one_kind(inferred.result, initial):
            inferred = InferredLayouts((), initial, completed.attrs)
        args = [
            self._in_layout(
                arg,
                inferred.operands[k]
                if k < len(inferred.operands)
                else initial_layouts(arg.struct_info),
            )
            for k, arg in enumerate(call.args)
        ]
        for position, arg in inferred.args.items():
            args[position] = arg
        value = _with(call, args=args)
        if inferred.attrs is not completed.attrs:
            value = rebuild(value, attrs=inferred.attrs)
        self._bind(binding, value, inferred.result)

    def _inferred(self, call: rx.Call) -> InferredLayouts | None:
        """The layouts of a call by the rule of its operator, if that applies."""
        assert isinstance(call.op, Op)
        rule = call.op.record.layout
        if rule is None or any(_has_unknown_rank(arg) for arg in call.args):
            return None
        name = call.op.name
        try:
            inferred = apply_column(
                name, "layout", rule, call=call, desired=self.desired(call), known=self.layouts
            )
        except RelaxpyError as error:
            error.located(call.span)
            raise
        if inferred is None or isinstance(inferred, InferredLayouts):
            return inferred
        raise unexpected(
            inferred, f"the layout rule of {name} returns InferredLayouts", span=call.span
        )

    def _bind(self, binding: rx.VarBinding, value: rx.Expr, layouts: Layouts) -> None:
        """Bind a value that is stored in some layouts.

        A variable has its initial layouts if it outlives the block, or if its struct info does not
        tell the layouts of the value.
        """
        var = binding.var
        initial = initial_layouts(binding.value.struct_info)
        if _agree(layouts, initial):
            self.bindings.append(_with_value(binding, value))
            return
        image = rx.DataflowVar(var.name_hint, span=var.span)
        self.bindings.append(replace(binding, var=image, value=value))
        self.layouts[var], self.images[var] = layouts, image
        if not isinstance(var, rx.DataflowVar) or initial_layouts(var.struct_info) != initial:
            self.bindings.append(replace(binding, value=self._converted(image, layouts, initial)))
            del self.layouts[var], self.images[var]

    def _cast(self, binding: rx.MatchCast) -> None:
        """Cast a value in the layout that it has, if that only permutes the axes."""
        layout = layouts_of(binding.value, self.layouts)
        var, target = binding.var, binding.struct_info
        follows = (
            binding.value in self.layouts
            and (var is None or isinstance(var, rx.DataflowVar))
            and isinstance(layout, str)
            and not has_blocks(layout)
            and isinstance(target, rx.TensorStructInfo)
            and target.ndim == len(layout)
            and (target.shape is None or isinstance(target.shape, rx.ShapeExpr))
        )
        if not follows:
            self.bindings.append(_with_value(binding, self._initial(binding.value)))
            return
        assert isinstance(target, rx.TensorStructInfo)
        assert isinstance(layout, str)
        if isinstance(target.shape, rx.ShapeExpr):
            sizes = [target.shape.values[ord(letter) - ord(_FIRST_AXIS)] for letter in layout]
            target = replace(target, shape=rx.ShapeExpr(tuple(sizes)))
        value = self._in_layout(binding.value, layout)
        if var is not None:
            image = rx.DataflowVar(var.name_hint, span=var.span)
            self.layouts[var], self.images[var] = layout, image
            var = image
        self.bindings.append(replace(binding, var=var, value=value, struct_info=target))

    def _initial(self, value: rx.Expr) -> rx.Expr:
        """A value whose variables are in their initial layouts."""
        table = {
            var: self._in_layout(var, initial_layouts(var.struct_info))
            for var in occurring_vars(value)
            if var in self.layouts
        }
        return replace_variables(value, table) if table else value

    def _in_layout(self, expr: rx.Expr, target: Layouts) -> rx.Expr:
        """An operand in a layout, after bindings that convert it."""
        if isinstance(expr, rx.Tuple):
            targets = target if isinstance(target, tuple) else (None,) * len(expr.fields)
            items = [self._in_layout(*pair) for pair in zip(expr.fields, targets, strict=True)]
            return _with(expr, fields=items)
        source = self.images.get(expr, expr) if isinstance(expr, rx.Var) else expr
        return self._bound(self._converted(source, layouts_of(expr, self.layouts), target))

    def _converted(self, source: rx.Expr, layouts: Layouts, target: Layouts) -> rx.Expr:
        """The conversion of a leaf; the fields of a tuple are bound."""
        if _agree(layouts, target):
            return source
        if isinstance(layouts, tuple) and isinstance(target, tuple):
            items = []
            for k, (old, new) in enumerate(zip(layouts, target, strict=True)):
                item = self._bound(rx.TupleGetItem(source, k, span=self.span))
                items.append(self._bound(self._converted(item, old, new)))
            return rx.Tuple(tuple(items), span=self.span)
        assert isinstance(layouts, str)
        assert isinstance(target, str)
        return _conversion(source, layouts, target, self.span)

    def _bound(self, value: rx.Expr) -> rx.Expr:
        """A variable of the value, or the value itself if it is a leaf."""
        if not isinstance(value, (rx.Call, rx.TupleGetItem)):
            return value
        source = value.args[0] if isinstance(value, rx.Call) else value.tuple_value
        var = rx.DataflowVar(source.name_hint if isinstance(source, rx.Var) else "lv")
        self.bindings.append(rx.VarBinding(var, value, self.span))
        return var


def _conversion(source: rx.Expr, layout: str, target: str, span: Span | None) -> rx.Expr:
    """The call that converts a tensor from one layout to another."""
    axes = units(layout)
    if sorted(axes) == sorted(units(target)):
        permutation = tuple(map(axes.index, units(target)))
        return cast("rx.Expr", R.permute_dims(source, permutation, span=span))
    indices = tuple(tir.Var(f"i{k}", "int32") for k in range(len(axes)))
    final = BijectiveLayout(layout, target).forward_index(indices)
    index_map = IndexMap(indices, tuple(final))
    return cast("rx.Expr", R.layout_transform(source, index_map, span=span))


def _agree(layouts: Layouts, target: Layouts) -> bool:
    """True if no conversion is needed; a value without a layout matches every layout."""
    if isinstance(layouts, tuple) and isinstance(target, tuple):
        return all(map(_agree, layouts, target))
    return layouts is None or target is None or layouts == target


def _of_one_kind(layouts: Layouts, initial: Layouts) -> bool:
    """True if layouts are those of values with these initial layouts."""
    if isinstance(layouts, tuple) and isinstance(initial, tuple):
        return len(layouts) == len(initial) and all(map(_of_one_kind, layouts, initial))
    return type(layouts) is type(initial)


def _has_unknown_rank(expr: rx.Expr) -> bool:
    """True if an operand is a tensor of unknown rank, or a tuple with one."""
    infos = preorder([expr.struct_info], lambda s: getattr(s, "fields", ()))
    return any(isinstance(s, rx.TensorStructInfo) and initial_layouts(s) is None for s in infos)


def _with(expr: rx.Expr, **fields: rx.Expr | Iterable[rx.Expr]) -> rx.Expr:
    """The expression with new operands; itself if they are the same."""
    new = {name: v if isinstance(v, rx.Expr) else tuple(v) for name, v in fields.items()}
    if all(_identical(getattr(expr, name), value) for name, value in new.items()):
        return expr
    return rebuild(expr, **new)


def _identical(old: object, new: object) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
    return old is new


def _with_value(binding: rx.Binding, value: rx.Expr) -> rx.Binding:
    return binding if value is binding.value else replace(binding, value=value)


_CONV: Final = "relax.nn.conv2d"
_FILTER: Final = "HWIO"
"""The layout of filters of one channel, whose elements are added up as vectors of channels."""
_VECTOR: Final = 16
"""From this many channels of a result, vectors run along channels; with fewer, along pixels."""
_LANES: Final = 4
"""The channels of a group that fill the shortest vectors."""
_SLOWDOWN: Final = 500
"""The multiplications that have to become faster for each one in groups with fewer channels."""
_SIZE: Final = 32
"""The assumed value of an unknown size."""
_PRODUCTS: Final = 200
"""The multiplications that have to become faster for each element that is transposed."""


@dataclass(frozen=True)
class ChannelsLast(RewritePass):
    """Converts all convolutions of a function to channels last, if their filters are constant.

    The channels of a result are then the columns of a GEMM, whose second operand, the filter, is
    stored once in the order in which tiles read it, and images of any width fill these. A bias
    then needs no axes of size 1 after its own: operators that broadcast take the vector itself. A
    function stays unchanged if that takes more transpositions than pay off.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        after = super().transform(mod, ctx)
        if after is mod:
            return mod
        return normalize_module(map_functions(after, rx.Function, _with_vectors))

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return _converted


def _converted(func: rx.Function) -> rx.Function:
    products = sum(map(_suited_products, _calls(func, _CONV)))
    if products <= 0:
        return func
    result = cast("rx.Function", rewrite(converted_function(func, _channels_last), _with_filter))
    more = _transposed_elements(result) - _transposed_elements(func)
    return result if products >= more * _PRODUCTS else func


def _channels_last(call: rx.Call) -> Desired:
    """The desired layouts of a call; filters of many channels keep theirs.

    Those of fewer results than fill a vector are read along the channels, as the image.
    """
    if not rx.is_call_of(call, _CONV):
        return {}
    layout = str(call.attrs["kernel_layout"])
    shape = shape_of(call.args[1].struct_info)
    if shape is not None:
        sizes = dict(zip(units(layout), shape, strict=True))
        if is_one(sizes["I"]):
            layout = _FILTER
        elif isinstance(sizes["O"], tir.IntImm) and sizes["O"].value < _LANES:
            layout = "OHWI"
    return {_CONV: ["NHWC", layout]}


def _calls(func: rx.Function, name: str) -> Iterator[rx.Call]:
    return (call for call in occurrences(func, rx.Call) if rx.is_call_of(call, name))


def _suited_products(call: rx.Call) -> int:
    """The number of products of a convolution that channels last make faster, or else 0.

    It is negative if that is far slower.
    """
    attrs, [_, weight] = with_all_attributes(call).attrs, call.args
    layouts = attrs["data_layout"], attrs["kernel_layout"]
    if not isinstance(weight, rx.Constant) or layouts != ("NCHW", "OIHW"):
        return 0
    channels, per_group, *window = weight.elements.shape
    products, groups = _elements(call) * per_group * math.prod(window), cast("int", attrs["groups"])
    if groups not in (1, channels):
        return -_SLOWDOWN * products if channels < _LANES * groups else 0
    return products if channels >= _VECTOR else 0


def _transposed_elements(func: rx.Function) -> int:
    """The elements of images that transpositions copy in a call."""
    calls = _calls(func, "relax.permute_dims")
    return sum(_elements(c) for c in calls if not isinstance(c.args[0], rx.Constant))


def _elements(expr: rx.Expr) -> int:
    sinfo = expr.struct_info
    shape = shape_of(sinfo)
    return math.prod(n.value if isinstance(n, tir.IntImm) else _SIZE for n in shape or ())


def _with_vectors(func: rx.Function) -> rx.Function:
    after = _Broadcasts().expr(func)
    return func if after is func else without_dead_code(after)


class _Broadcasts(BindingRewriter):
    """Passes vectors, such as biases, to operators that add the axes of size 1 before them."""

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not (isinstance(call, rx.Call) and isinstance(call.op, Op)):
            return None
        if call.op.record.axes is not broadcast_axes:
            return None
        args = list(call.args)
        for k, arg in enumerate(args):
            rank = rank_of(arg)
            if any(rank_of(other) >= rank > 1 for n, other in enumerate(args) if n != k):
                args[k] = self._vector(arg)
        return _with(call, args=args)

    def _vector(self, arg: rx.Expr) -> rx.Expr:
        """The vector of which a tensor has the elements along its last axis, or else the tensor."""
        shape, source = shape_of(arg), arg
        if shape is None or not all(map(is_one, shape[:-1])):
            return arg
        while (view := self.value_of(source)) is not None and _keeps_order(view):
            source = cast("rx.Call", view).args[0]
            if rank_of(source) == 1 and same(dims_of(source)[0], shape[-1]):
                return source
        return arg


def _keeps_order(view: rx.Expr) -> bool:
    """True for a reshape, and for a transposition of a tensor that is long along one axis only."""
    if not rx.is_call_of(view, "relax.permute_dims"):
        return rx.is_call_of(view, "relax.reshape")
    shape = shape_of(view)
    return shape is not None and sum(not is_one(size) for size in shape) <= 1


def _with_filter(node: Node) -> Node | None:
    """A transposed constant of a filter that changes, which kernels read in its stored layout."""
    match node:
        case rx.Call(args=(rx.Constant() as literal,)) if rx.is_call_of(node, "relax.permute_dims"):
            shape = literal.elements.shape
            if len(shape) == len(_FILTER) and (shape[1] == 1 or shape[0] < _LANES):
                axes = cast("tuple[int, ...]", with_all_attributes(node).attrs["axes"])
                data = np.ascontiguousarray(literal.data.transpose(axes))
                return rx.Constant(data, span=node.span)
    return None


PREPROC = "meta_schedule.layout_rewrite_preproc"
"""The annotation of blocks that only copy a weight to another layout."""
LAYOUT_FREE = "layout_free_buffers"
"""The attribute of a PrimFunc that lists the parameters whose layout is free."""


@dataclass(frozen=True)
class SplitLayoutRewritePreproc(Pass):
    """Divides kernels into one that rewrites the layouts of weights, and one that computes.

    In such a kernel, blocks with the annotation `meta_schedule.layout_rewrite_preproc` compute a
    buffer from an operand, in one step or in several, which all other blocks read instead. The
    result is a call of `<name>_weight_prepack` on these operands, which need not be repeated, and
    one of `<name>_prepacked`. Functions that nothing calls are removed, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        kernels = {
            var.name_hint: divided
            for var, func in mod.items()
            if isinstance(func, PrimFunc) and (divided := _divided(func)) is not None
        }
        if not kernels:
            return mod

        def split(func: rx.Function, builder: BlockBuilder) -> rx.Function:
            return _Splitting(kernels, builder).expr(func)

        result = map_with_builder(mod, split)
        return mod if result is mod else without_unreachable(normalize_module(result))


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The two PrimFuncs, and the rewritten buffers by the positions of their parameters."""

    prepack: PrimFunc
    compute: PrimFunc
    rewritten: dict[int, Buffer]


class _Splitting(BindingRewriter):
    """Replaces the calls of one function."""

    def __init__(self, kernels: dict[str, _Kernels], builder: BlockBuilder) -> None:
        super().__init__()
        self.kernels, self.builder = kernels, builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        called = called_kernel(call) if isinstance(binding, rx.VarBinding) else None
        if called is None or not isinstance(call, rx.Call):
            return None
        name, operands = called[0], [*called[1]]
        kernels = self.kernels.get(name)
        if kernels is None or max(kernels.rewritten) >= len(operands):
            return None
        prepack = self.builder.add_func(kernels.prepack, f"{name}_weight_prepack")
        compute = self.builder.add_func(kernels.compute, f"{name}_prepacked")
        weights = tuple(operands[k] for k in kernels.rewritten)
        sinfos = [
            rx.TensorStructInfo(rx.ShapeExpr(b.shape), b.dtype) for b in kernels.rewritten.values()
        ]
        whole = sinfos[0] if len(sinfos) == 1 else rx.TupleStructInfo(tuple(sinfos))
        new = PrecedingBindings(binding, block)
        packed = new.bound(
            rx.Call(call.op, (prepack, rx.Tuple(weights)), call.attrs, (whole,), span=call.span),
            "_weight",
        )
        for k, position in enumerate(kernels.rewritten):
            item = rx.TupleGetItem(packed, k, span=call.span)
            operands[position] = packed if len(sinfos) == 1 else new.bound(item, "_weight")
        arguments = (compute, rx.Tuple(tuple(operands)), *call.args[2:])
        return new.ended(new.bound(rebuild(call, args=arguments), "_value"))


def _divided(func: PrimFunc) -> _Kernels | None:
    """The kernels into which a PrimFunc is divided; None if it cannot be."""
    root = func.body.block if isinstance(func.body, BlockRealize) else None
    statements = root.body.seq if root is not None and isinstance(root.body, SeqStmt) else ()
    preproc = [stmt for stmt in statements if _is_preproc(stmt)]
    rest = [stmt for stmt in statements if not any(stmt is other for other in preproc)]
    if root is None or not preproc or not rest:
        return None
    sources: dict[Buffer, Buffer] = {}
    for stmt in preproc:
        [written] = stored_buffers(stmt)
        read = {sources.get(b, b) for b in loaded_buffers(stmt) if b is not written}
        if written in sources or written not in root.alloc_buffers or len(read) != 1:
            return None
        sources[written] = read.pop()
    buffers = func.buffer_map_items
    mentioned = set[Buffer | tir.Var]().union(*map(_mentioned, rest))
    rewritten = {buffers.index(p): b for b, p in sources.items() if b in mentioned and p in buffers}
    steps = [b for b in root.alloc_buffers if b in sources and b not in rewritten.values()]
    originals = {*sources.values()}
    constant = all(isinstance(n, tir.IntImm) for b in rewritten.values() for n in b.shape)
    is_private = mentioned.isdisjoint(originals | {b.data for b in originals}) and all(
        stored_buffers(s).isdisjoint(sources) for s in rest
    )
    if mentioned & {*steps} or not constant or not is_private or len(rewritten) < len(originals):
        return None
    positions = dict(sorted(rewritten.items()))
    attrs = func.without_attr(LAYOUT_FREE).without_attr("global_symbol").attrs
    pairs = [(func.params[k], buffers[k]) for k in positions]
    pairs += [(tir.Var(b.name, "handle"), b) for b in positions.values()]
    prepack = PrimFunc(
        tuple(param for param, _ in pairs),
        _root(root, map(_without_annotation, preproc), steps),
        None,
        {param: cast("Buffer", buffer) for param, buffer in pairs},
        attrs,
        span=func.span,
    )
    left = [b for b in root.alloc_buffers if b not in sources]
    new = {**func.buffer_map, **{func.params[k]: b for k, b in positions.items()}}
    compute = PrimFunc(func.params, _root(root, rest, left), None, new, attrs, span=func.span)
    return _Kernels(prepack, compute, positions)


def _root(root: Block, statements: Iterable[Stmt], buffers: Sequence[Buffer]) -> BlockRealize:
    block = Block((), (), (), root.name_hint, stmt_seq(*statements), None, tuple(buffers))
    return BlockRealize((), tir.IntImm("bool", 1), block)


def _blocks(stmt: Stmt) -> list[Block]:
    return [*occurrences(stmt, Block)]


def _is_preproc(stmt: Stmt) -> bool:
    """True if a statement is one annotated block in loops, which computes one buffer."""
    blocks = _blocks(stmt)
    return (
        len(blocks) == 1
        and bool(blocks[0].annotations.get(PREPROC))
        and not blocks[0].alloc_buffers
        and len(stored_buffers(stmt)) == 1
    )


def _mentioned(stmt: Stmt) -> set[Buffer | tir.Var]:
    """The buffers that a statement may access, and all variables, among them their pointers."""
    result: set[Buffer | tir.Var] = set()
    for node in walk(stmt):
        if isinstance(node, (BufferLoad, BufferStore, BufferRegion)):
            result.add(node.buffer)
        elif isinstance(node, tir.Var):
            result.add(node)
    return result


def _without_annotation(stmt: Stmt) -> Stmt:
    """A statement whose block is not annotated any more."""
    [block] = _blocks(stmt)

    def plain(node: Node) -> Node | None:
        return (
            replace(block, annotations=block.annotations.without(PREPROC))
            if node is block
            else None
        )

    return cast("Stmt", rewrite(stmt, plain))
