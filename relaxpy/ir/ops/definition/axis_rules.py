"""How the axes of operands become those of the result: rules of families of operators.

The column `axes` returns for each axis of each operand a label. A label >= 0 is the axis of the
result along which the same elements lie, and a negative one means axes that are reduced or
contracted together. An axis without a label is needed whole.

The column `layout` says how a call reads operands whose axes are stored in another order.
A layout of a tensor names its axes as `tir.Layout` does. A is the axis that was the first one
originally, B the second: a tensor of layout ACDB has its second axis last, and ABCD4b has blocks of
4 of it. A rule returns the layouts in which a call takes its operands, that of its result, and the
attributes of the call on such operands.

Families that have both columns are dictionaries of columns, such as `BY_ELEMENT`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import AxisColumns
from relaxpy.ir.ops.definition.rules import same
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape, rank_of, shape_of
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import found_at, user_facing

if TYPE_CHECKING:
    from relaxpy.ir.op_record import LayoutRule

Sinfos: TypeAlias = Sequence[rx.StructInfo]
Labels: TypeAlias = Sequence[int | None]
"""The labels of the axes of an operand."""
Layouts: TypeAlias = "str | tuple[Layouts, ...] | None"
"""The layout of a tensor, those of the fields of a tuple, or None of anything else."""
Desired: TypeAlias = Mapping[str, Sequence[str]]
_UNIT = re.compile(r"\d*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class InferredLayouts:
    """The layouts of a call's leading operands and result, and the changes that follow from them.

    Operands without an entry are taken in their initial layouts. `attrs` are all attributes of the
    new call, and `args` those of its operands that are other expressions, by position.
    """

    operands: Sequence[Layouts]
    result: Layouts
    attrs: Mapping[str, Any]
    args: Mapping[int, rx.Expr] = field(default_factory=dict)


def initial_layout(ndim: int) -> str | None:
    """The default (row-major) layout of a tensor of this rank; None if unknown or above 26."""
    return ascii_uppercase[:ndim] if 0 <= ndim <= len(ascii_uppercase) else None


def initial_layouts(sinfo: rx.StructInfo | None) -> Layouts:
    """The default (row-major) layouts of a value of this struct info."""
    if isinstance(sinfo, rx.TensorStructInfo):
        return initial_layout(sinfo.ndim)
    if isinstance(sinfo, rx.TupleStructInfo):
        return tuple(map(initial_layouts, sinfo.fields))
    return None


def layouts_of(expr: rx.Expr, known: Mapping[rx.Var, Layouts]) -> Layouts:
    """The layouts of an operand; variables that are not `known` have their initial ones."""
    if isinstance(expr, rx.Var) and expr in known:
        return known[expr]
    if isinstance(expr, rx.Tuple):
        return tuple(layouts_of(item, known) for item in expr.fields)
    return initial_layouts(expr.struct_info)


def units(layout: str) -> list[str]:
    """The axes of a layout, each with the size of its block: those of ABC4b are A, B, C and 4b."""
    return _UNIT.findall(layout)


def has_blocks(layout: str) -> bool:
    """True if a layout divides an axis in blocks."""
    return not layout.isupper() and layout != ""


def fills_layout(sinfo: rx.StructInfo | None, layout: str) -> bool:
    """True if blocks are known to divide the axes of a tensor, without padding."""
    if not has_blocks(layout):
        return True
    shape = literal_shape(sinfo)
    if shape is None:
        return False
    for letter, block in Layout.of(layout).factors.items():
        size = shape[_number(letter.upper())]
        if not same(size % ops.const(block, size.dtype), ops.const(0, size.dtype)):
            return False
    return True


def _letter(axis: int) -> str:
    return ascii_uppercase[axis]


def _number(letter: str) -> int:
    return ascii_uppercase.index(letter)


def _rank(layout: str) -> int:
    """The number of original axes."""
    return sum(map(str.isupper, layout))


def _unblocked(layout: str) -> str:
    """The layout if it has no blocks, else the initial one."""
    return ascii_uppercase[: _rank(layout)] if has_blocks(layout) else layout


def _is_initial(layout: str) -> bool:
    return ascii_uppercase.startswith(layout)


def _position(layout: str, axis: int) -> int:
    """The position in a layout of an axis, which may count from the end."""
    return units(layout).index(_letter(axis % _rank(layout)))


def _axis_of(unit: str) -> int:
    return _number(unit[-1].upper())


def _is_divided(layout: str, axis: int) -> bool:
    """True if an axis, which may count from the end, is divided in blocks."""
    return _letter(axis % _rank(layout)).lower() in layout


def _renumbered(layout: str) -> str:
    """The layout with its axes renamed in ascending order, from A on."""
    axes = sorted(set(map(_axis_of, units(layout))))
    table = {_letter(axis): _letter(k) for k, axis in enumerate(axes)}
    table |= {old.lower(): new.lower() for old, new in table.items()}
    return "".join(table.get(character, character) for character in layout)


def _without(layout: str, axes: Sequence[int]) -> str:
    """The layout that remains without these axes."""
    return _renumbered("".join(unit for unit in units(layout) if _axis_of(unit) not in axes))


def _like(layout: str, sinfo: rx.StructInfo | None) -> Layouts:
    """The layouts of a result whose tensors have this layout if they are of its rank."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return tuple(_like(layout, item) for item in sinfo.fields)
    initial = initial_layouts(sinfo)
    return layout if isinstance(initial, str) and len(initial) == _rank(layout) else initial


# ---- rules that follow the first operand

Following: TypeAlias = Callable[[rx.Call, str], "InferredLayouts | None"]
"""A rule by the call and the layout of its first operand; None if it does not apply."""


def following(rule: Following, *, blocks: bool = False) -> LayoutRule:
    """The rule of an operator that follows the layout of its first operand.

    Unless it takes `blocks`, an operand that has them is taken in its initial layout.
    """

    @user_facing
    def infer(call: rx.Call, desired: Desired, known: Mapping[rx.Var, Layouts]) -> Any:
        layout = layouts_of(call.args[0], known)
        if not isinstance(layout, str):
            return None
        return rule(call, layout if blocks else _unblocked(layout))

    return infer


def _same(call: rx.Call, layout: str) -> InferredLayouts:
    return InferredLayouts((layout,), _like(layout, call.struct_info), call.attrs)


same_layout = found_at(__name__, following(_same, blocks=True), "same_layout")
"""The rule of an operator on each element of its first operand."""


def _whole(operands: Sinfos) -> list[Labels]:
    """No labels: the operands are needed whole."""
    return [(None,) * max(rank_of(sinfo), 0) for sinfo in operands]


_MOST_AXES = 1_000
"""More axes than a placement can split."""


def same_axes(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
    """The labels of an operator on each element of its first operand."""
    rank = operands[0].ndim if isinstance(operands[0], rx.TensorStructInfo) else 0
    return [range(rank if rank >= 0 else _MOST_AXES), *_whole(operands[1:])]


BY_ELEMENT = AxisColumns(axes=same_axes, layout=same_layout)
"""An operator on each element of its first operand."""


def moved_axes(value: Any, layout: str) -> Any:
    """The positions in a layout of the axes that an attribute lists."""
    if isinstance(value, int):
        return _position(layout, value)
    return tuple(_position(layout, axis) for axis in value)


def along(*names: str, together: bool = False) -> LayoutRule:
    """The rule of an operator along the axes in these attributes.

    With `together`, all operands have the layout of the first one. Without an axis, the elements
    are taken in row-major order, and the operands keep their initial layouts, as they do if one of
    the axes is divided in blocks.
    """

    def rule(call: rx.Call, layout: str) -> InferredLayouts | None:
        if any(call.attrs[name] is None for name in names) or (together and has_blocks(layout)):
            return None
        axes = [axis for name in names for axis in _as_tuple(call.attrs[name])]
        if any(_is_divided(layout, axis) for axis in axes):
            return None
        attrs: Mapping[str, Any] = call.attrs
        if not _is_initial(layout):
            attrs = {**attrs, **{name: moved_axes(attrs[name], layout) for name in names}}
        operands = (layout,) * len(call.args) if together else (layout,)
        return InferredLayouts(operands, _like(layout, call.struct_info), attrs)

    return following(rule, blocks=True)


def _as_tuple(axes: Any) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)


def whole_along(name: str) -> AxisColumns:
    """An operator that needs all elements along the axes in an attribute at once."""

    def labels(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
        rank = rank_of(operands[0])
        whole = _normal(call.attrs[name], rank)
        return [[None if k in whole else k for k in range(rank)], *_whole(operands[1:])]

    return AxisColumns(axes=labels, layout=along(name))


def _normal(axes: Any, rank: int) -> list[int]:
    """The axes counted from the first one; all of them if there is no attribute."""
    return [axis % rank for axis in (range(rank) if axes is None else _as_tuple(axes))]


def _split(call: rx.Call, layout: str) -> InferredLayouts | None:
    axis, cuts = cast("int", call.attrs["axis"]), cast("Any", call.attrs["indices_or_sections"])
    result = call.struct_info
    attrs: Mapping[str, Any] = call.attrs
    if _is_divided(layout, axis):
        sections = result.fields if isinstance(result, rx.TupleStructInfo) else ()
        block = Layout.of(layout).factors[_letter(axis % _rank(layout)).lower()]
        whole = isinstance(cuts, int) or not any(cut % block for cut in cuts)
        if not whole or not all(fills_layout(section, layout) for section in sections):
            return None
        if not isinstance(cuts, int):
            attrs = {**attrs, "indices_or_sections": tuple(cut // block for cut in cuts)}
    if not _is_initial(layout):
        attrs = {**attrs, "axis": _position(layout, axis)}
    return InferredLayouts((layout,), _like(layout, result), attrs)


split_layout = following(_split, blocks=True)
"""The rule of an operator that divides `axis` in sections, which consist of whole blocks."""


def _reduced(call: rx.Call, layout: str) -> InferredLayouts | None:
    axes, keepdims = cast("Any", call.attrs["axis"]), call.attrs["keepdims"]
    rank = _rank(layout)
    gone = _normal(axes, rank)
    if keepdims and any(_is_divided(layout, axis) for axis in gone):
        return None
    attrs: Mapping[str, Any] = call.attrs
    if axes is not None and not _is_initial(layout):
        moved = tuple(k for k, unit in enumerate(units(layout)) if _axis_of(unit) in gone)
        attrs = {**attrs, "axis": moved[0] if isinstance(axes, int) and len(moved) == 1 else moved}
    return InferredLayouts((layout,), layout if keepdims else _without(layout, gone), attrs)


def _reduced_axes(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
    rank = rank_of(operands[0])
    gone = _normal(call.attrs["axis"], rank)
    labels: list[int | None] = []
    position = 0
    for axis in range(rank):
        labels.append(-1 - axis if axis in gone else position)
        position += axis not in gone or bool(call.attrs["keepdims"])
    return [labels]


REDUCED = AxisColumns(axes=_reduced_axes, layout=following(_reduced, blocks=True))
"""A reduction along `axis`, which may be divided in blocks unless `keepdims` is set."""


def _position_of_extremum(call: rx.Call, layout: str) -> InferredLayouts | None:
    axis = cast("int | None", call.attrs["axis"])
    return None if axis is None or _is_divided(layout, axis) else _reduced(call, layout)


extremum_layout = following(_position_of_extremum, blocks=True)
"""The rule of an operator that returns positions along `axis`, else in row-major order."""


def _permuted(call: rx.Call, layout: str) -> InferredLayouts:
    rank = len(layout)
    attrs: Mapping[str, Any] = call.attrs
    if not _is_initial(layout):
        axes = cast("Any", attrs["axes"])
        order = tuple(range(rank))[::-1] if axes is None else axes
        attrs = {**attrs, "axes": moved_axes(order, layout)}
    return InferredLayouts((layout,), initial_layout(rank), attrs)


def _permuted_axes(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
    rank = result.ndim
    axes = cast("tuple[int, ...] | None", call.attrs["axes"])
    order = list(range(rank))[::-1] if axes is None else _normal(axes, rank)
    return [[order.index(axis) for axis in range(rank)]]


PERMUTED = AxisColumns(axes=_permuted_axes, layout=following(_permuted))
"""A transposition, which takes any layout and returns the initial one."""


def _new_axes(layout: str, axes: Sequence[int]) -> str:
    """The layout after new axes, which stay where they are."""
    rank = len(layout) + len(axes)
    new = {axis % rank for axis in axes}
    old = [letter for k, letter in enumerate(ascii_uppercase[:rank]) if k not in new]
    rest = iter(layout)
    return "".join(
        letter if k in new else old[_number(next(rest))]
        for k, letter in enumerate(ascii_uppercase[:rank])
    )


def _expanded(call: rx.Call, layout: str) -> InferredLayouts | None:
    axes = cast("tuple[int, ...]", call.attrs["axis"])
    if initial_layout(len(layout) + len(axes)) is None:
        return None
    return InferredLayouts((layout,), _new_axes(layout, axes), call.attrs)


expanded_layout = following(_expanded)
"""The rule of an operator that adds axes at the positions `axis` of its result."""


def _squeezed(call: rx.Call, layout: str) -> InferredLayouts | None:
    axes = cast("tuple[int, ...] | None", call.attrs["axis"])
    result = call.struct_info
    if not isinstance(result, rx.TensorStructInfo) or result.ndim < 0:
        return None
    if axes is None:
        x = call.args[0].struct_info
        shape = x.get_shape() if isinstance(x, rx.TensorStructInfo) else None
        if shape is None:
            return None
        one = ops.const(1, "int64")
        axes = tuple(axis for axis, size in enumerate(shape) if same(size, one))
    if _is_initial(layout):
        return InferredLayouts((layout,), initial_layout(result.ndim), call.attrs)
    gone = [axis % len(layout) for axis in axes]
    attrs = {**call.attrs, "axis": tuple(sorted(moved_axes(gone, layout)))}
    return InferredLayouts((layout,), _without(layout, gone), attrs)


squeezed_layout = following(_squeezed)
"""The rule of an operator that drops the axes `axis` of size 1."""


def per_axis(name: str, count: int = 1) -> LayoutRule:
    """The rule of an operator with `count` numbers for each axis in an attribute.

    If there are fewer, they are those of the last axes, and 1 that of the others.
    """

    def rule(call: rx.Call, layout: str) -> InferredLayouts | None:
        values = cast("tuple[int, ...]", call.attrs[name])
        rank = len(layout)
        if len(values) > rank * count:
            return None
        attrs: Mapping[str, Any] = call.attrs
        if not _is_initial(layout):
            whole = (1,) * (rank * count - len(values)) + tuple(values)
            groups = [whole[k * count : (k + 1) * count] for k in map(_number, layout)]
            attrs = {**attrs, name: tuple(value for group in groups for value in group)}
        return InferredLayouts((layout,), layout, attrs)

    return following(rule)


def _taken(call: rx.Call, layout: str) -> InferredLayouts | None:
    axis, indices = cast("int | None", call.attrs["axis"]), call.args[1].struct_info
    count = 0 if isinstance(indices, rx.PrimStructInfo) else getattr(indices, "ndim", -1)
    if count < 0 or initial_layout(len(layout) - 1 + count) is None:
        return None
    gone = (axis or 0) % len(layout)

    def axes_of(letter: str) -> str:
        number = _number(letter)
        if number == gone:
            return ascii_uppercase[gone : gone + count]
        return _letter(number if number < gone else number + count - 1)

    attrs: Mapping[str, Any] = call.attrs
    if not _is_initial(layout):
        attrs = {**attrs, "axis": layout.index(_letter(gone))}
    return InferredLayouts((layout,), "".join(map(axes_of, layout)), attrs)


taken_layout = following(_taken)
"""The rule of an operator that replaces `axis` by the axes of its second operand."""


def repeated_axes(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
    """The labels of an operator that repeats each slice along the attribute `axis`."""
    rank = max(rank_of(operands[0]), 0)
    return [range(rank) if call.attrs["axis"] is not None or rank == 1 else (None,) * rank]


def reshaped_axes(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
    """The labels of an operator that keeps the order of elements.

    Axes that become others together can be split along the first of them.
    """
    old, new = shape_of(operands[0]), shape_of(result)
    labels: list[int | None] = [None] * max(rank_of(operands[0]), 0)
    if old is not None and new is not None:
        sources = [axis for axis, size in enumerate(old) if not ops.is_const(size, 1)]
        targets = [axis for axis, size in enumerate(new) if not ops.is_const(size, 1)]
        while sources and targets:
            source, target = _next_group(old, sources, new, targets)
            labels[sources[0]] = targets[0]
            sources, targets = sources[source:], targets[target:]
    return [labels, *([] for _ in operands[1:])]


def _next_group(
    old: Sequence[PrimExpr], sources: Sequence[int], new: Sequence[PrimExpr], targets: Sequence[int]
) -> tuple[int, int]:
    """The numbers of leading old and new axes in the smallest group with equally many elements."""
    for total in range(2, len(sources) + len(targets)):
        for count in range(1, total):
            if count > len(sources) or total - count > len(targets):
                continue
            before = product([old[axis] for axis in sources[:count]])
            after = product([new[axis] for axis in targets[: total - count]])
            if prove_equal(before, after) is True:
                return count, total - count
    return len(sources), len(targets)


# ---- rules of several operands


def _common(layouts: Sequence[str]) -> str:
    """The most frequent layout; of several, the first."""
    return Counter(layouts).most_common(1)[0][0]


def elementwise_layout(
    call: rx.Call, desired: Desired, known: Mapping[rx.Var, Layouts]
) -> InferredLayouts | None:
    """The rule of an operator on the elements of operands that broadcast.

    All operands have one layout; those of lower rank have its last axes: the most frequent
    layout of the operands that are as large as the result, else of those of the highest rank that
    have one in which the axes that others lack come first; of several, the first. A layout with
    blocks is taken before others that are as frequent, if all operands have its axes, and can be
    divided in such blocks. A single element of lower rank fits any layout.
    """
    sinfos = [arg.struct_info for arg in call.args]
    if not all(isinstance(s, (rx.TensorStructInfo, rx.PrimStructInfo)) for s in sinfos):
        return None
    layouts = [layouts_of(arg, known) for arg in call.args]
    every = [(x, s) for x, s in zip(layouts, sinfos, strict=True) if isinstance(x, str) and x]
    if not every:
        return InferredLayouts(layouts, initial_layouts(call.struct_info), call.attrs)
    high = max(_rank(layout) for layout, _ in every)
    tensors = [(x, s) for x, s in every if _rank(x) == high or not _is_single(s)]

    def taken(chosen: str, operand: Callable[[str, str], str]) -> InferredLayouts:
        """The result in a layout, and the operands in that for it and theirs, unless they fit."""
        operands = [
            operand(chosen, x)
            if isinstance(x, str) and x and (_rank(x) == high or not _is_single(s))
            else x
            for x, s in zip(layouts, sinfos, strict=True)
        ]
        return InferredLayouts(operands, chosen, call.attrs)

    ranks = {_rank(layout) for layout, _ in tensors}
    counts = Counter(layout for layout, _ in tensors)
    frequent = (layout for layout, _ in tensors if counts[layout] == max(counts.values()))
    for blocked in filter(has_blocks, frequent):
        if len(ranks) == 1 and all(fills_layout(sinfo, blocked) for _, sinfo in tensors):
            return taken(blocked, lambda whole, _: whole)
    whole = [x for x, s in tensors if _has_shape_of(s, call.struct_info)]
    ranked = ([x for x, _ in tensors if _rank(x) == rank] for rank in sorted(ranks, reverse=True))
    fitting = (_fitting(voters, ranks, high) for voters in (whole, *ranked))
    chosen = _common(next(filter(None, fitting)))  # those of the lowest rank fit
    return taken(chosen, lambda whole, layout: _renumbered(whole[len(whole) - _rank(layout) :]))


def broadcast_axes(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
    """The labels of an operator on the elements of operands that broadcast."""
    return [_last_labels(sinfo, result, result.ndim) for sinfo in operands]


def _last_labels(
    sinfo: rx.StructInfo, result: rx.TensorStructInfo, end: int, count: int | None = None
) -> list[int | None]:
    """The labels of axes that broadcast to those of the result before axis `end`.

    These are the first `count` axes of an operand, all by default.
    """
    count = rank_of(sinfo) if count is None else count
    if count < 0 or end < 0:
        return []
    old, new = shape_of(sinfo), shape_of(result)
    labels: list[int | None] = []
    for axis in range(count):
        label = end - count + axis
        one = old is not None and ops.is_const(old[axis], 1)
        is_repeated = one and (new is None or not ops.is_const(new[label], 1))
        labels.append(None if is_repeated else label)
    return labels


BROADCASTING = AxisColumns(axes=broadcast_axes, layout=elementwise_layout)
"""An operator on the elements of operands that broadcast."""


def _is_single(sinfo: rx.StructInfo | None) -> bool:
    """True if a tensor is known to have one element."""
    shape = literal_shape(sinfo)
    return shape is not None and all(ops.is_const(n, 1) for n in shape)


def _has_shape_of(sinfo: rx.StructInfo | None, result: rx.StructInfo | None) -> bool:
    """True if an operand is known to have the shape of the result."""
    if not isinstance(sinfo, rx.TensorStructInfo) or not isinstance(result, rx.TensorStructInfo):
        return False
    shape, target = literal_shape(sinfo), literal_shape(result)
    if shape is None or target is None or len(shape) != len(target):
        return False
    return all(map(same, shape, target))


def _fitting(layouts: Sequence[str], ranks: Collection[int], high: int) -> list[str]:
    """Layouts as those of the highest rank, where the axes come first that lower ranks lack."""
    plain = [_with_leading_axes(_unblocked(layout), high) for layout in layouts]
    fronts = [set(ascii_uppercase[: high - rank]) for rank in ranks]
    return [x for x in plain if all(set(x[: len(front)]) == front for front in fronts)]


def _with_leading_axes(layout: str, rank: int) -> str:
    more = rank - len(layout)
    return ascii_uppercase[:more] + "".join(_letter(_number(c) + more) for c in layout)


def matmul_axes(call: rx.Call, operands: Sinfos, result: rx.TensorStructInfo) -> list[Labels]:
    """The labels of matmul, which contracts the common axis."""
    first, second = operands
    rank = result.ndim
    if rank < 0:
        return [[], []]
    rows, columns = rank_of(first) > 1, rank_of(second) > 1
    batch = rank - rows - columns
    left = _last_labels(first, result, batch, max(rank_of(first) - 2, 0))
    right = _last_labels(second, result, batch, max(rank_of(second) - 2, 0))
    return [[*left, *([batch] if rows else []), -1], [*right, -1, *([rank - 1] if columns else [])]]


def _joined(
    call: rx.Call, known: Mapping[rx.Var, Layouts]
) -> list[tuple[str, rx.StructInfo]] | None:
    """The layouts of the tensors in the first operand with their struct info."""
    layouts, sinfo = layouts_of(call.args[0], known), call.args[0].struct_info
    if not isinstance(layouts, tuple) or not isinstance(sinfo, rx.TupleStructInfo):
        return None
    found = [(x, s) for x, s in zip(layouts, sinfo.fields, strict=True) if isinstance(x, str)]
    return found if len(found) == len(layouts) else None


def concat_layout(
    call: rx.Call, desired: Desired, known: Mapping[rx.Var, Layouts]
) -> InferredLayouts | None:
    """The rule of an operator that joins tensors along `axis`, in the layout of the first one.

    A layout with blocks is taken if all tensors can be divided in such blocks.
    """
    fields = _joined(call, known)
    if not fields or call.attrs["axis"] is None:
        return None
    plain = (layout for layout, _ in fields if not has_blocks(layout))
    layout = next(plain, _unblocked(fields[0][0]))
    for candidate in (layout for layout, _ in fields if has_blocks(layout)):
        if all(fills_layout(sinfo, candidate) for _, sinfo in fields):
            layout = candidate
            break
    attrs: Mapping[str, Any] = call.attrs
    if not _is_initial(layout):
        attrs = {**attrs, "axis": _position(layout, cast("int", attrs["axis"]))}
    return InferredLayouts(((layout,) * len(fields),), layout, attrs)


def stack_layout(
    call: rx.Call, desired: Desired, known: Mapping[rx.Var, Layouts]
) -> InferredLayouts | None:
    """The rule of an operator that joins tensors along a new axis, which stays where it is."""
    fields = _joined(call, known)
    layout = _unblocked(fields[0][0]) if fields else None
    if fields is None or layout is None or initial_layout(len(layout) + 1) is None:
        return None
    result = _new_axes(layout, (cast("int", call.attrs["axis"]),))
    return InferredLayouts(((layout,) * len(fields),), result, call.attrs)


# ---- rules of operators with layouts among their attributes


def _relabeled(attribute: str, layout: str) -> str:
    """The layout that an attribute names of a tensor that now has the layout `layout`."""
    names = units(attribute)

    def name(letter: re.Match[str]) -> str:
        unit = names[_number(letter[0].upper())]
        return unit if letter[0].isupper() else unit.lower()

    return re.sub("[A-Za-z]", name, layout)


def _layout_for(attribute: str, desired: str) -> str | None:
    """The layout that a tensor of the layout in an attribute needs to have a desired one."""
    names = units(attribute)
    result = []
    for unit in units(desired):
        if unit in names:
            result.append(_letter(names.index(unit)))
        elif unit[-1].islower() and unit[-1].upper() in names and not has_blocks(attribute):
            result.append(unit[:-1] + _letter(names.index(unit[-1].upper())).lower())
        else:
            return None
    layout = "".join(result)
    return layout if _rank(layout) == len(names) else None


@dataclass(frozen=True, slots=True)
class AttributeLayout:
    """The rule of an operator whose attributes name the layouts of `operands` and of its `result`.

    If it is `desirable`, the desired layouts are those of the operands, and of the result unless it
    is that of the first operand. They are taken if all tensors are known to be divided by their
    blocks; otherwise, the operands keep the layouts that they have, without blocks.
    """

    operands: tuple[str, ...]
    result: str
    desirable: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes."""
        distinct = self.result not in self.operands
        return (*self.operands, self.result) if distinct else self.operands

    def __call__(
        self, call: rx.Call, desired: Desired, known: Mapping[rx.Var, Layouts]
    ) -> InferredLayouts | None:
        """The layouts of a call."""
        wanted, operands, result = desired.get(cast("Op", call.op).name), self.operands, self.result
        attrs = {k: cast("str", call.attrs[k] or call.attrs[operands[0]]) for k in self.names}
        if wanted is not None:
            taken = _desired_layouts(call, attrs, operands, wanted)
            if taken is not None:
                return taken
        layouts = [layouts_of(arg, known) for arg, _ in zip(call.args, operands, strict=False)]
        if not all(isinstance(x, str) and x for x in layouts):
            return None
        plain = [cast("str", layout) for layout in layouts]
        if len(units(attrs[result])) != len(units(attrs[operands[0]])):
            return None
        blocked = len(operands) == 1 and has_blocks(plain[0])
        if not blocked or not _takes_blocks(call, plain[0], attrs):
            plain = list(map(_unblocked, plain))
        new = {name: _relabeled(attrs[name], x) for name, x in zip(operands, plain, strict=True)}
        new[result] = _relabeled(attrs[result], plain[0])
        return InferredLayouts(plain, plain[0], _changed(call, attrs, new))


def _changed(call: rx.Call, old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, Any]:
    """The attributes of a call, with other layouts if they differ."""
    return call.attrs if new == old else {**call.attrs, **new}


def _takes_blocks(call: rx.Call, layout: str, attrs: Mapping[str, str]) -> bool:
    """True if operand and result are divided by blocks, and no attribute has some already."""
    if any(map(has_blocks, attrs.values())):
        return False
    return all(
        fills_layout(sinfo, layout) for sinfo in (call.args[0].struct_info, call.struct_info)
    )


def _desired_layouts(
    call: rx.Call, attrs: Mapping[str, str], operands: Sequence[str], wanted: Sequence[str]
) -> InferredLayouts | None:
    """The desired layouts instead of those in `attrs`, if blocks divide the tensors."""
    targets = dict(zip(attrs, [*wanted, wanted[0]], strict=False))
    tensors = [*(arg.struct_info for arg in call.args[: len(operands)]), call.struct_info]
    layouts: list[str] = []
    for (name, attribute), sinfo in zip(attrs.items(), tensors, strict=False):
        layout = _layout_for(attribute, targets[name])
        if layout is None or not fills_layout(sinfo, layout):
            return None
        layouts.append(layout)
    return InferredLayouts(layouts[: len(operands)], layouts[-1], _changed(call, attrs, targets))
