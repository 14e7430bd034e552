"""Shared parts of the rules of convolutions and pools: layouts, and attributes of windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from typing_extensions import Unpack

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.op_record import CallArguments, Columns, OpRecord
from relaxpy.ir.relax.nodes import Call, TensorStructInfo
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.parameter import integer_literal
from relaxpy.ir.relax.op.definition.registry import OpDef, enter, find
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.te.topi.windows import (
    Windows,
    both_sides,
    number,
    per_axis,
    spatial_axes,
    whole_shape,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.ir.tir.layout import BijectiveLayout, Layout


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
    shape = rules.literal_shape(sinfo)
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
        if rules.differ(ops.floormod(size, number(block)), number(0)):
            raise rules.refuse(
                f"axis {letter.upper()} of the result has size {rules.shown(size)}, which blocks "
                f"of "
                f"{block} do not divide, as {layout.name} has them",
                layout.name,
            )
    shape = BijectiveLayout("".join(sizes), layout).forward_shape(list(sizes.values()))
    return [simplify(size) for size in shape]


def fills_blocks(sizes: Mapping[str, PrimExpr], layout: Layout) -> bool:
    """Return whether it is known that blocks divide the axes."""
    return all(
        rules.same(ops.floormod(sizes[letter.upper()], number(block)), number(0))
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
        if arguments.get("out_dtype") in ("", "void"):
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
    """Return whether a gradient is known to have the shape of the result.

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
