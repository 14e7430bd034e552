"""ConvertLayout: operators take and return tensors in the layouts that a user desires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, check_type, unexpected
from relaxpy.ir.core.traverse import preorder, rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import apply_column, is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.op.definition.layouts import (
    AttributeLayout,
    InferredLayouts,
    Layouts,
    has_blocks,
    initial_layouts,
    layouts_of,
    units,
)
from relaxpy.ir.relax.op.definition.registry import OpDef, R, find, with_all_attributes
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, with_bindings
from relaxpy.ir.relax.rewrite.replace import replace_variables
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.layout import BijectiveLayout, Layout
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
    """Return desired layouts of operators that have them. Errors: MisuseError."""
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
    """Check the desired layouts of an operator; a rule of a user takes what it wants.

    Errors:
        MisuseError: the operator is computed in one layout, or in those of its operands; there are
            too few or too many layouts, or one has other axes.
    """
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
        """The layouts of a call by the rule of its operator, if that applies.

        Errors:
            MisuseError: the rule returns something else.
        """
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
        return replace(_conversion(source, layouts, target), span=self.span)

    def _bound(self, value: rx.Expr) -> rx.Expr:
        """A variable of the value, or the value itself if it is a leaf."""
        if not isinstance(value, (rx.Call, rx.TupleGetItem)):
            return value
        source = value.args[0] if isinstance(value, rx.Call) else value.tuple_value
        var = rx.DataflowVar(source.name_hint if isinstance(source, rx.Var) else "lv")
        self.bindings.append(rx.VarBinding(var, value, self.span))
        return var


def _conversion(source: rx.Expr, layout: str, target: str) -> rx.Call:
    """The call that converts a tensor from one layout to another."""
    axes = units(layout)
    if sorted(axes) == sorted(units(target)):
        return cast("rx.Call", R.permute_dims(source, tuple(map(axes.index, units(target)))))
    indices = tuple(tir.Var(f"i{k}", "int32") for k in range(len(axes)))
    final = BijectiveLayout(layout, target).forward_index(indices)
    return cast("rx.Call", R.layout_transform(source, IndexMap(indices, tuple(final))))


def _agree(layouts: Layouts, target: Layouts) -> bool:
    """Return whether no conversion is needed; a value without a layout matches every layout."""
    if isinstance(layouts, tuple) and isinstance(target, tuple):
        return all(map(_agree, layouts, target))
    return layouts is None or target is None or layouts == target


def _of_one_kind(layouts: Layouts, initial: Layouts) -> bool:
    """Return whether layouts are those of values with these initial layouts."""
    if isinstance(layouts, tuple) and isinstance(initial, tuple):
        return len(layouts) == len(initial) and all(map(_of_one_kind, layouts, initial))
    return type(layouts) is type(initial)


def _has_unknown_rank(expr: rx.Expr) -> bool:
    """Return whether an operand is a tensor of unknown rank, or a tuple with one."""
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
