"""Convolutions, their transposes and gradients, and what pools share with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

from typing_extensions import Unpack

from relaxpy.errors import MisuseError, counted
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.op_record import CallArguments, Columns, OpRecord
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.axis_rules import AttributeLayout
from relaxpy.ir.ops.definition.gradients import is_differentiable, no_gradient, shape_like
from relaxpy.ir.ops.definition.registry import OpDef, R, enter, find
from relaxpy.ir.ops.definition.rules import (
    Legalize,
    differ,
    joint_dtype,
    joint_vdevice,
    known_shape,
    refuse,
    same,
    shown,
    te_kernel,
    tensor,
)
from relaxpy.ir.ops.definition.signature import integer_literal
from relaxpy.ir.relax.known import literal_shape, tensor_of, tensor_sinfo
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo, Var
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.te.topi.windows import (
    Windows,
    both_sides,
    number,
    per_axis,
    spatial_axes,
    whole_shape,
)
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.ir.tir.layout import BijectiveLayout, Layout
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def parsed_layout(text: str, axes: str, attribute: str) -> Layout:
    """Parse the layout in an attribute, which must have these axes.

    Errors:
        StructInfoError: there is no such layout, or it has other axes.
    """
    try:
        layout = Layout.of(text)
    except MisuseError:
        layout = Layout.of("")
    if {axis for axis in layout.names if axis.isupper()} != set(axes):
        blocked = axes + "16" + next(axis for axis in axes if axis in "CO").lower()
        raise rules.refuse(
            f"{attribute} arranges the axes {axes}, found {text!r}",
            text,
            hint=f"such as {axes!r}, {axes[0] + axes[2:] + axes[1]!r} or {blocked!r}",
        )
    return layout


def sizes_by_axis(
    sinfo: TensorStructInfo, layout: Layout, name: str, *, proved: bool = False
) -> dict[str, PrimExpr] | None:
    """The dimensions by the letters of whole axes; None if the shape is unknown.

    A block whose size is symbolic is compared with that of the layout when values arrive. With
    `proved`, the result is None as long as one has to be.

    Errors:
        StructInfoError: the tensor has another rank, or an axis another size than its blocks have.
    """
    if 0 <= sinfo.ndim != len(layout):
        raise rules.refuse_type(
            f"{name} has the axes {layout.name}, found {sinfo} of rank {sinfo.ndim}",
            sinfo,
            hint="add an axis by R.expand_dims" if sinfo.ndim == len(layout) - 1 else None,
        )
    shape = literal_shape(sinfo)
    if shape is None:
        return None
    sizes = list(shape)
    for axis, (letter, size) in enumerate(zip(layout.names, shape, strict=True)):
        block = layout.factors.get(letter)
        if block is None:
            continue
        equal = prove_equal(size, number(block))
        if proved and equal is None:
            return None
        sizes[axis] = number(block)
        if equal is False:
            raise rules.refuse(
                f"dimension {axis} of {name} {shape_text(shape)} is {rules.shown(size)}, "
                f"blocks in {layout.name} have {block}",
                sinfo,
            )
    order = [axis for axis in layout.names if axis.isupper()]
    return dict(zip(order, whole_shape(sizes, layout), strict=True))


def in_blocks(sizes: Mapping[str, PrimExpr], layout: Layout) -> list[PrimExpr]:
    """The dimensions of a result in a layout.

    Errors:
        StructInfoError: blocks do not divide an axis.
    """
    if not layout.factors:
        return [sizes[axis] for axis in layout.names]
    for letter, block in layout.factors.items():
        size = sizes[letter.upper()]
        if rules.differ(size % number(block), number(0)):
            raise rules.refuse(
                f"axis {letter.upper()} of the result has size {rules.shown(size)}, which blocks "
                f"of "
                f"{block} do not divide, as {layout.name} has them",
                layout.name,
            )
    shape = BijectiveLayout("".join(sizes), layout).forward_shape(list(sizes.values()))
    return [simplify(size) for size in shape]


def fills_blocks(sizes: Mapping[str, PrimExpr], layout: Layout) -> bool:
    """True if it is known that blocks divide the axes."""
    return all(
        rules.same(sizes[letter.upper()] % number(block), number(0))
        for letter, block in layout.factors.items()
    )


def numbers_by_axis(
    values: Sequence[int], count: int, name: str, smallest: int
) -> Mapping[str, int]:
    """A number for each spatial axis.

    Errors:
        StructInfoError: there are too many or too few, or one is too small.
    """
    try:
        numbers = per_axis(values, count)
    except MisuseError:
        expected = "1 number" if count == 1 else f"1 or {count} numbers"
        raise rules.refuse(f"{name} has {expected}, found {list(values)}", values) from None
    if min(numbers) < smallest:
        raise rules.refuse(f"{name} is at least {smallest}, found {list(values)}", values)
    return dict(zip(spatial_axes(count), numbers, strict=True))


def window_attrs(
    count: int, strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Windows:
    """The attributes of windows along `count` axes.

    Errors:
        StructInfoError: there are too many or too few numbers, or one is too small.
    """
    try:
        sides = both_sides(padding, count)
    except MisuseError:
        expected = "1 or 2 numbers" if count == 1 else f"1, {count} or {2 * count} numbers"
        raise rules.refuse(f"padding has {expected}, found {list(padding)}", padding) from None
    if min(*sides[0], *sides[1]) < 0:
        raise rules.refuse(f"padding is at least 0, found {list(padding)}", padding)
    before, after = (dict(zip(spatial_axes(count), side, strict=True)) for side in sides)
    steps = numbers_by_axis(strides, count, "strides", 1)
    return Windows(steps, before, after, numbers_by_axis(dilation, count, "dilation", 1))


def count_windows(
    windows: Windows, axis: str, size: PrimExpr, kernel: PrimExpr, *, ceil_mode: bool = False
) -> PrimExpr:
    """The number of windows along an axis.

    Errors:
        StructInfoError: a window is known to be larger than the axis.
    """
    count = windows.count(axis, size, kernel, ceil_mode=ceil_mode)
    if isinstance(count, IntImm) and count.value < 0:
        dilation = windows.dilation[axis]
        spread = f" with dilation {dilation}" if dilation > 1 else ""
        raise rules.refuse(
            f"a window of {rules.shown(kernel)}{spread} does not fit in axis {axis}, which has "
            f"size {rules.shown(size)} and {windows.padding(axis)} of padding"
        )
    return count


def enter_windowed(
    name: str,
    rule: Callable[..., TensorStructInfo],
    parameters: Mapping[str, type],
    attributes: Callable[..., None],
    doc: str,
    count: int,
    **columns: Unpack[Columns],
) -> OpDef:
    """Register an operator with windows along `count` axes.

    Its rule gets by name the `parameters`, which are operands or the call, and those of
    `attributes`, which are the attributes of all operators of a family.
    """
    usual = Parameter.POSITIONAL_OR_KEYWORD
    named = [Parameter(n, usual, annotation=kind.__name__) for n, kind in parameters.items()]
    shared = signature(attributes).parameters.values()
    rule.__signature__ = Signature([*named, *shared])  # type: ignore[attr-defined]
    rule.__annotations__ = {**parameters, **get_type_hints(attributes), "return": TensorStructInfo}
    common = Columns(pure=True, adapt=completed(count), unmake=shortest)
    return enter(OpRecord(name, rule, doc, **(common | columns)))


def completed(count: int) -> Callable[[dict[str, Any]], None]:
    """The adapter that repeats single numbers and fills in the layout of the result."""

    def adapt(arguments: dict[str, Any]) -> None:
        for name in ("pool_size", "strides", "dilation", "output_padding"):
            if name in arguments:
                arguments[name] = _repeated(arguments[name], count)
        if "padding" in arguments:
            padding = _repeated(arguments["padding"], count)
            if isinstance(padding, tuple) and len(padding) == count:
                padding = (*padding, *padding)
            arguments["padding"] = padding
        if arguments["out_layout"] is None:
            arguments["out_layout"] = arguments.get("data_layout", arguments.get("layout"))
        kind = arguments.get("out_dtype")
        if isinstance(kind, str) and kind in ("", "void"):
            arguments["out_dtype"] = None

    return adapt


def _repeated(value: object, count: int) -> object:
    """A list of numbers for all axes, where `value` is one number; else `value`."""
    if isinstance(value, (list, tuple)):
        return tuple(value) * count if len(value) == 1 else tuple(value)
    return value if integer_literal(value) is None else (value,) * count


def shortest(call: Call) -> CallArguments:
    """The arguments that rebuild a call, without those that `completed` adds."""
    operator = find(call.op)  # type: ignore[arg-type]
    assert operator is not None
    args, named = operator.signature.call_arguments(call)
    attrs = call.attrs
    if attrs["out_layout"] == attrs.get("data_layout", attrs.get("layout")):
        named.pop("out_layout", None)
    padding = named.get("padding")
    if isinstance(padding, tuple) and padding[: len(padding) // 2] == padding[len(padding) // 2 :]:
        del named["padding"]
        if any(padding):
            named["padding"] = padding[: len(padding) // 2]
    return args, named


def is_gradient(
    gradient: TensorStructInfo, layout: Layout, result: Mapping[str, PrimExpr] | None
) -> bool:
    """True if a gradient is known to have the shape of the result.

    Errors:
        StructInfoError: it has another one.
    """
    sizes = sizes_by_axis(gradient, layout, "output_grad", proved=True)
    if sizes is None or result is None:
        return False
    for axis, size in result.items():
        if rules.differ(size, sizes[axis]):
            raise rules.refuse(
                f"output_grad has the shape of the result, whose axis {axis} has size "
                f"{rules.shown(size)}, found {gradient} in {layout.name}",
                gradient,
            )
    return all(rules.same(size, sizes[axis]) for axis, size in result.items())


Ints: TypeAlias = tuple[int, ...]
Sizes: TypeAlias = dict[str, PrimExpr]
Gradients: TypeAlias = Callable[[Var, Call, Expr, "BlockBuilder"], list[Expr]]

_SWAPPED = str.maketrans("IOio", "OIoi")
RANKS = (1, 2, 3)


def swapped(layout: str) -> str:
    """The layout of a filter with its channel letters exchanged, as in the transpose."""
    return layout.translate(_SWAPPED)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The attributes of a convolution, or of a transposed one, along `count` axes."""

    windows: Windows
    groups: int
    data: Layout
    kernel: Layout
    out: Layout
    axes: str

    @staticmethod
    def of(count: int, attrs: Mapping[str, Any]) -> Convolution:
        """The attributes of a call.

        Errors:
            StructInfoError: one has a value that no convolution has.
        """
        axes, groups = spatial_axes(count), attrs["groups"]
        windows = window_attrs(count, attrs["strides"], attrs["padding"], attrs["dilation"])
        if groups < 1:
            raise refuse(f"groups is at least 1, found {groups}", groups)
        data_layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
        out_layout = attrs["out_layout"] or data_layout
        return Convolution(
            windows,
            groups,
            parsed_layout(data_layout, f"NC{axes}", "data_layout"),
            parsed_layout(kernel_layout, f"OI{axes}", "kernel_layout"),
            parsed_layout(out_layout, f"NC{axes}", "out_layout"),
            axes,
        )

    def operands(
        self,
        data: TensorStructInfo,
        weight: TensorStructInfo,
        *,
        transposed: bool = False,
        proved: bool = False,
    ) -> tuple[Sizes, Sizes] | None:
        """The dimensions of data and weight by the letters of their axes, None if one is unknown.

        With `proved`, also None as long as blocks have to be compared with those of a layout.

        Errors:
            StructInfoError: their ranks, blocks or channels do not fit.
        """
        x = sizes_by_axis(data, self.data, "data", proved=proved)
        w = sizes_by_axis(weight, self.kernel, "weight", proved=proved)
        if w is not None:
            kind = "input" if transposed else "output"
            divided = w["I" if transposed else "O"]
            if differ(divided % number(self.groups), number(0)):
                raise refuse(
                    f"{self.groups} groups do not divide the {shown(divided)} {kind} channels of "
                    f"the weight, found {weight} in {self.kernel.name}",
                    weight,
                )
        if x is None or w is None:
            return None
        channels = self._channels(w, transposed=transposed)
        if differ(x["C"], channels):
            raise refuse(
                f"data has {shown(x['C'])} channels, the weight is for {shown(channels)} in "
                f"{counted(self.groups, 'group')}: data is {data} in {self.data.name}, weight is "
                f"{weight} in {self.kernel.name}",
                weight,
                hint=None if transposed else _right_groups(x["C"], w["I"], w["O"]),
            )
        return x, w

    def _channels(self, w: Sizes, *, transposed: bool) -> PrimExpr:
        """The number of channels of data that fit a weight."""
        return w["I"] if transposed else w["I"] * number(self.groups)

    def result(self, x: Sizes, w: Sizes) -> Sizes:
        """The dimensions of a convolution."""
        counts = {a: count_windows(self.windows, a, x[a], w[a]) for a in self.axes}
        return {"N": x["N"], "C": w["O"], **counts}

    def transposed_result(self, x: Sizes, w: Sizes, output_padding: Ints) -> Sizes:
        """The dimensions of a transposed convolution."""
        sizes = {"N": x["N"], "C": w["O"] * number(self.groups)}
        for axis, extra in zip(self.axes, output_padding, strict=True):
            size = sizes[axis] = self.windows.span(axis, x[axis], w[axis], extra)
            if isinstance(size, IntImm) and size.value < 0:
                padding = self.windows.padding(axis)
                raise refuse(
                    f"padding removes {padding} elements of axis {axis}, which without it has "
                    f"size {size.value + padding}"
                )
        return sizes

    def is_decided(self, x: Sizes, w: Sizes, result: Sizes, *, transposed: bool = False) -> bool:
        """True if it is known that groups, channels and blocks fit."""
        divided = w["I" if transposed else "O"]
        return (
            same(x["C"], self._channels(w, transposed=transposed))
            and same(divided % number(self.groups), number(0))
            and fills_blocks(result, self.out)
        )


def _right_groups(channels: PrimExpr, per_group: PrimExpr, out: PrimExpr) -> str | None:
    """The hint for data whose channels fit another number of groups."""
    match channels, per_group, out:
        case IntImm(value=c), IntImm(value=i), IntImm(value=o) if 0 < i <= c and not c % i:
            return f"write groups={c // i}" if not o % (c // i) else None
        case _:
            return None


def joint_type(
    first: TensorStructInfo,
    second: TensorStructInfo,
    names: tuple[str, str],
    out_dtype: DataType | None,
) -> tuple[DataType, object]:
    """The datatype and the device of the result of two operands.

    Errors:
        StructInfoTypeError: the devices differ, or the datatypes, and `out_dtype` is missing.
    """
    dtype = out_dtype or joint_dtype(first, second, names)
    return dtype, joint_vdevice((first, second), strict=True)


def shapes_of(
    builder: BlockBuilder, operands: Sequence[Expr]
) -> tuple[TensorStructInfo, TensorStructInfo]:
    """The struct info of data and weight, whose shapes are known where a call is legalised."""
    first, second = (tensor(known_shape(builder, arg), VOID) for arg in operands)
    return first, second


def dtype_of(builder: BlockBuilder, call: Call) -> str:
    """The datatype of the result of a call."""
    sinfo = tensor_of(builder.struct_info_of(call))
    return str(sinfo.dtype)


def arguments_of(attrs: Any) -> list[Any]:
    """The attributes of windows, groups and layouts, as functions of topi take them."""
    names = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout")
    return [*(attrs[name] for name in names), attrs["out_dtype"], attrs["out_layout"]]


# ---- convolutions

_OPERANDS = {"data": TensorStructInfo, "weight": TensorStructInfo}
_LAYOUT = AttributeLayout(("data_layout", "kernel_layout"), "out_layout", desirable=True)


def _conv(x: Tensor, w: Tensor, *attrs: Any, dtype: str) -> Tensor:
    return as_dtype(topi.nn.conv(x, w, *attrs), DataType(dtype))


def _legalize_conv(count: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        convolution = Convolution.of(count, attrs)
        sizes = convolution.operands(*shapes_of(builder, call.args), proved=True)
        if sizes is None or not convolution.is_decided(*sizes, convolution.result(*sizes)):
            return call
        dtype = dtype_of(builder, call)
        name = f"conv{count}d"
        return te_kernel(builder, _conv, name, *call.args, *arguments_of(attrs), dtype=dtype)

    return legalize


_OF_CONV = "nn.conv{}d"
_OF_DATA, _OF_WEIGHT = "grad.conv{}d_backward_data", "grad.conv{}d_backward_weight"


def _bilinear(
    count: int, *sources: tuple[str, str], attributes: Callable[[Any], Any] = dict
) -> Gradients:
    """The gradient rule of an operator that is linear in each of its first two operands.

    For each of these, `sources` has the operator that computes its gradient, and the operands of
    that: the gradient `g` of the result, and the operands `a` and `b`. `attributes` are its own.
    """

    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        attrs, named = attributes(call.attrs), {"g": gradient, "a": call.args[0], "b": call.args[1]}
        gradients: list[Expr] = []
        for operand, (name, letters) in zip(call.args, sources, strict=False):
            sinfo = tensor_sinfo(operand)
            if sinfo is None or not is_differentiable(operand):
                gradients.append(R.grad.no_grad(operand))
                continue
            shape = [] if name == _OF_CONV else [shape_like(operand)]
            attrs["out_dtype"] = None if sinfo.dtype.is_void else sinfo.dtype
            operator = attrgetter(name.format(count))(R)
            gradients.append(operator(*map(named.get, letters), *shape, **attrs))
        gradients += map(R.grad.no_grad, call.args[len(sources) :])
        return gradients

    return rule


def _of_transpose(attrs: Any) -> Any:
    """The attributes of a convolution whose transpose has these."""
    changed = {
        "data_layout": attrs["out_layout"],
        "kernel_layout": swapped(attrs["kernel_layout"]),
        "out_layout": attrs["data_layout"],
    }
    return {k: v for k, v in attrs.items() if k != "output_padding"} | changed


def _in_precision(call: Call, out_dtype: str) -> Expr:
    """Rebuild the call with sums and the result in a datatype."""
    operator = find(call.op)  # type: ignore[arg-type]
    assert operator is not None
    attrs: Any = dict(call.attrs) | {"out_dtype": out_dtype}
    return operator.make(*call.args, **attrs, span=call.span)


def conv_attributes(count: int) -> Callable[..., None]:
    """A function whose parameters are the attributes of convolutions and of their gradients."""
    axes = spatial_axes(count)

    def attributes(
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"OI{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> None:
        pass

    return attributes


_CONV_DOC = """The convolution (as cross-correlation) of the padded data with the weight.

Shapes:
    data    batch, channels and spatial axes, in `data_layout`
    weight  output channels, input channels of one group and spatial axes, in `kernel_layout`;
            `groups` divides the channels of data and result into equal groups
    result  batch, output channels and (n + padding - dilation * (k - 1) - 1) // stride + 1 along an
            axis of n elements, in `out_layout`, which is that of data by default; in `out_dtype`,
            in which sums are taken
Errors:
    StructInfoError: an attribute has a wrong number of values or a value out of its range, a rank
        is not that of the layout, the channels do not fit the weight and the groups, a window does
        not fit in an axis, or the datatypes differ and `out_dtype` is missing.
"""


def _register_conv(count: int) -> OpDef:
    def conv(data: TensorStructInfo, weight: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        convolution = Convolution.of(count, attrs)
        dtype, vdevice = joint_type(data, weight, ("data", "weight"), attrs["out_dtype"])
        sizes = convolution.operands(data, weight)
        if sizes is None:
            return tensor(None, dtype, vdevice, len(convolution.out))
        return tensor(in_blocks(convolution.result(*sizes), convolution.out), dtype, vdevice)

    return enter_windowed(
        f"relax.nn.conv{count}d",
        conv,
        _OPERANDS,
        conv_attributes(count),
        _CONV_DOC,
        count,
        legalize=_legalize_conv(count),
        layout=_LAYOUT,
        gradient=_bilinear(count, (_OF_DATA, "gb"), (_OF_WEIGHT, "ga")),
        precision_policy=0,
        mixed_precision=_in_precision,
    )


conv1d, conv2d, conv3d = map(_register_conv, RANKS)


# ---- transposed convolutions


def _transposed(x: Tensor, w: Tensor, output_padding: Ints, *attrs: Any, dtype: str) -> Tensor:
    arguments: list[Any] = [x, w, *attrs, output_padding]
    return as_dtype(topi.nn.conv_transpose(*arguments), DataType(dtype))


def _legalize_transposed(count: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        convolution = Convolution.of(count, attrs)
        operands = shapes_of(builder, call.args)
        sizes = convolution.operands(*operands, transposed=True, proved=True)
        if sizes is None:
            return call
        output_padding = tuple(
            numbers_by_axis(attrs["output_padding"], count, "output_padding", 0).values()
        )
        result = convolution.transposed_result(*sizes, output_padding)
        if not convolution.is_decided(*sizes, result, transposed=True):
            return call
        return te_kernel(
            builder,
            _transposed,
            f"conv{count}d_transpose",
            *call.args,
            output_padding,
            *arguments_of(attrs),
            dtype=dtype_of(builder, call),
        )

    return legalize


_TRANSPOSED_DOC = """Transposed convolution: the weight times each element, summed at its window.

Shapes:
    data    batch, channels and spatial axes, in `data_layout`
    weight  the channels of data, output channels of one group and spatial axes, in `kernel_layout`
    result  batch, output channels of all groups and
            (n - 1) * stride + dilation * (k - 1) + 1 - padding + output_padding along an axis of n
            elements, in `out_layout`, which is that of data by default; in `out_dtype`, in which
            sums are taken
Errors:
    StructInfoError: an attribute has a wrong number of values or a value out of its range, a rank
        is not that of the layout, the channels do not fit the weight and the groups, an output
        padding is not less than the stride, padding leaves nothing, or the datatypes differ and
        `out_dtype` is missing.
"""


def _register_transposed(count: int) -> OpDef:
    axes = spatial_axes(count)

    def attributes(
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        output_padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"IO{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> None:
        pass

    def conv_transpose(
        data: TensorStructInfo, weight: TensorStructInfo, **attrs: Any
    ) -> TensorStructInfo:
        convolution, output_padding = Convolution.of(count, attrs), attrs["output_padding"]
        paddings = numbers_by_axis(output_padding, count, "output_padding", 0)
        for axis, extra in paddings.items():
            step = convolution.windows.strides[axis]
            if extra >= step:
                raise refuse(
                    f"output_padding is less than the stride, found {extra} and stride {step} "
                    f"along axis {axis}",
                    output_padding,
                )
        dtype, vdevice = joint_type(data, weight, ("data", "weight"), attrs["out_dtype"])
        sizes = convolution.operands(data, weight, transposed=True)
        if sizes is None:
            return tensor(None, dtype, vdevice, len(convolution.out))
        result = convolution.transposed_result(*sizes, tuple(paddings.values()))
        return tensor(in_blocks(result, convolution.out), dtype, vdevice)

    return enter_windowed(
        f"relax.nn.conv{count}d_transpose",
        conv_transpose,
        _OPERANDS,
        attributes,
        _TRANSPOSED_DOC,
        count,
        legalize=_legalize_transposed(count),
        layout=_LAYOUT,
        gradient=_bilinear(count, (_OF_CONV, "gb"), (_OF_WEIGHT, "ag"), attributes=_of_transpose),
        precision_policy=2,
    )


conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_register_transposed, RANKS)


def _check_gradient(
    convolution: Convolution,
    gradient: TensorStructInfo,
    data: TensorStructInfo,
    weight: TensorStructInfo,
) -> bool:
    """True if a gradient is known to have the shape of the result of a convolution."""
    sizes = convolution.operands(data, weight, proved=True)
    result = None if sizes is None else convolution.result(*sizes)
    if not is_gradient(gradient, convolution.out, result) or sizes is None or result is None:
        return False
    return convolution.is_decided(*sizes, result)


def _backward_data(
    gradient: Tensor,
    weight: Tensor,
    shape: Sequence[PrimExpr],
    strides: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str | None,
    out_layout: str,
    *,
    dtype: str,
) -> Tensor:
    layout = Layout.of(data_layout)
    order = [axis for axis in layout.names if axis.isupper()]
    sizes = dict(zip(order, whole_shape(shape, layout), strict=True))
    result = topi.nn.conv_transpose(
        gradient,
        weight,
        strides,
        padding,
        dilation,
        groups,
        out_layout,
        swapped(kernel_layout),
        out_dtype,
        data_layout,
        0,
        [sizes[axis] for axis in spatial_axes(len(order) - 2)],
    )
    return as_dtype(result, DataType(dtype))


def _backward_weight(
    gradient: Tensor, data: Tensor, shape: Sequence[PrimExpr], *attrs: Any, dtype: str
) -> Tensor:
    result = topi.nn.conv_backward_weight(gradient, data, shape, *attrs)
    return as_dtype(result, DataType(dtype))


def _legalize_backward(count: int, kernel: Callable[..., Tensor], kind: str) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        gradient, other = shapes_of(builder, call.args[:2])
        result = rules.tensor(rules.known_shape(builder, call), VOID)
        data, weight = (result, other) if kind == "data" else (other, result)
        if not _check_gradient(Convolution.of(count, attrs), gradient, data, weight):
            return call
        return rules.te_kernel(
            builder,
            kernel,
            f"conv{count}d_backward_{kind}",
            *call.args[:2],
            ShapeExpr(rules.known_shape(builder, call)),
            *arguments_of(attrs),
            dtype=dtype_of(builder, call),
        )

    return legalize


_DOC = """The gradient of the {0} of a convolution, from that of its result.

Shapes:
    output_grad  as the result of the convolution of {1}
    result       `shape`; in `out_dtype`, in which sums are taken
Errors:
    StructInfoError: the convolution refuses the attributes, the shape or the {2}, the shape of
        its result is another one than that of the gradient, or the datatypes differ and `out_dtype`
        is missing.
"""
_GRADIENT_OPERANDS = {
    "data": "data of this shape with the weight",
    "weight": "the data with a weight of this shape",
}


def _register_backward(count: int, kind: str) -> None:
    [other] = _GRADIENT_OPERANDS.keys() - {kind}

    def backward(
        output_grad: TensorStructInfo, shape: ShapeStructInfo, call: Call, **named: Any
    ) -> TensorStructInfo:
        convolution, operand = Convolution.of(count, named), named[other]
        names = ("output_grad", other)
        dtype, vdevice = joint_type(output_grad, operand, names, named["out_dtype"])
        shaped = rules.tensor(shape.values, VOID, None, shape.ndim)
        data, weight = (shaped, operand) if kind == "data" else (operand, shaped)
        _check_gradient(convolution, output_grad, data, weight)
        result = rules.shape_operand(call.args[2], shape)
        layout = convolution.data if kind == "data" else convolution.kernel
        return rules.tensor(result, dtype, vdevice, len(layout))

    tensor = TensorStructInfo
    enter_windowed(
        f"relax.grad.conv{count}d_backward_{kind}",
        backward,
        {"output_grad": tensor, other: tensor, "shape": ShapeStructInfo, "call": Call},
        conv_attributes(count),
        _DOC.format(kind, _GRADIENT_OPERANDS[kind], other),
        count,
        legalize=_legalize_backward(count, _KERNELS[kind], kind),
        gradient=_bilinear(count, *_SOURCES[kind]),
        precision_policy=2,
    )


_KERNELS: Mapping[str, Callable[..., Tensor]] = {"data": _backward_data, "weight": _backward_weight}
_SOURCES = {
    "data": ((_OF_CONV, "gb"), (_OF_WEIGHT, "ag")),
    "weight": ((_OF_CONV, "bg"), (_OF_DATA, "ag")),
}
for _count in RANKS:
    for _kind in _KERNELS:
        _register_backward(_count, _kind)
