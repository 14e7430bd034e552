"""Outlining: groups of bindings of a dataflow block become calls of functions.

The fusion rule of the default pipeline says which pairs of kernels may be fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from operator import is_
from typing import Final, TypeAlias

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import EMPTY_ATTRS, Attr, Attrs, Node
from relaxpy.ir.core.traverse import occurrences, postorder, rebuild, rename, strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import register_config
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Dependencies, mutates
from relaxpy.ir.relax.analysis.variables import (
    binding_vars,
    defined_symbolic_vars,
    free_symbolic_vars,
    free_vars,
    occurring_vars,
    used_shape_vars,
)
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.function_table import FunctionTable
from relaxpy.ir.relax.block_builder.normalize import derived_like
from relaxpy.ir.relax.known import is_kernel_call
from relaxpy.ir.relax.relations.shape_vars import dimension_vars
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import AssertStmt, BufferStore, Evaluate, IfThenElse, LetStmt, Stmt, While
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

MAX_NAMES: Final = 16
"""The maximum number of kernel names in the name of a function."""


@dataclass(frozen=True, slots=True, eq=False)
class FunctionGroup:
    """Bindings that become a function with these attributes; groups are compared by identity."""

    attrs: Mapping[str, Attr] = field(default_factory=dict)


Unit: TypeAlias = rx.Binding | FunctionGroup
_Needs: TypeAlias = dict[Unit, dict[Unit, None]]
Grouping: TypeAlias = Callable[[rx.DataflowBlock], Mapping[rx.Binding, FunctionGroup]]


def group_bindings(
    mod: IRModule,
    groups_of: Grouping,
    *,
    lift_constants: bool,
    entries: Sequence[str] | None = None,
    refuses_cycles: bool = False,
) -> IRModule:
    """The module with a call of a new private function instead of each group of bindings.

    The functions have the attribute `Primitive`. Those in the module that have it already, or are
    for a back end, are left alone, and so are those that are not `entries` if there are any. The
    operands of a group are passed to its function; constants only if `lift_constants`. A group
    whose results nothing uses is removed. A group is left alone if its bindings cannot be computed
    one after the other, since others depend on some and are needed by others.

    Errors:
        TransformError: `refuses_cycles`, and there is such a group.
    """
    before = normalize_module(mod)
    result = before.clone()
    table = FunctionTable(result, lambda name, sinfo: None)
    changed = False
    for var, func in before.items():
        if not isinstance(func, rx.Function) or _is_grouped(func):
            continue
        if entries and var.name_hint not in entries:
            continue
        after = _Grouper(table, groups_of, lift_constants, refuses_cycles).expr(func)
        if after is not func:
            result[var] = after
            changed = True
    return normalize_module(result) if changed else before


def _is_grouped(func: rx.Function) -> bool:
    return any(func.attrs.get(name) for name in ("Primitive", "Composite", "Codegen"))


class _Grouper(BindingRewriter):
    def __init__(
        self, table: FunctionTable, groups_of: Grouping, lift_constants: bool, refuses_cycles: bool
    ) -> None:
        super().__init__()
        self.table, self.groups_of, self.lift_constants = table, groups_of, lift_constants
        self.refuses_cycles = refuses_cycles
        self._functions: dict[object, tuple[rx.GlobalVar, tuple[rx.Expr, ...]]] = {}

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        return [
            self._grouped(new) if isinstance(new, rx.DataflowBlock) else new
            for new in super().block(block)
        ]

    def _grouped(self, block: rx.DataflowBlock) -> rx.DataflowBlock:
        groups = dict(self.groups_of(block))
        if not groups:
            return block
        _leave_out_items_of_others(block, groups)
        order = _order(block, groups, refuses_cycles=self.refuses_cycles)
        if not groups:
            return block
        members: dict[FunctionGroup, list[rx.Binding]] = {}
        for binding, group in groups.items():
            members.setdefault(group, []).append(binding)
        outputs = outputs_of(block, groups)
        bindings: list[rx.Binding] = []
        for unit in order:
            if isinstance(unit, FunctionGroup):
                bindings += self._call(unit, members[unit], outputs[unit])
            else:
                bindings.append(unit)
        return replace(block, bindings=tuple(bindings))

    def _call(
        self, group: FunctionGroup, bindings: list[rx.Binding], outputs: list[rx.Var]
    ) -> Sequence[rx.Binding]:
        """The call of the function of a group, and the bindings of its outputs."""
        if not outputs:
            return bindings if any(map(mutates, bindings)) else ()
        creator = _FunctionOf(bindings, outputs, lift_constants=self.lift_constants)
        key = creator.key(group.attrs)
        known = None if key is None else self._functions.get(key)
        if known is None:
            built = creator.build(group.attrs)
            if built is None:
                return bindings
            func, sizes = built
            known = self.table.add(func, creator.name), sizes
            if key is not None:
                self._functions[key] = known
        name, sizes = known
        span = bindings[-1].value.span
        call = rx.Call(name, (*creator.arguments, *sizes), span=span)
        if len(outputs) == 1:
            return [rx.VarBinding(outputs[0], call, bindings[-1].span)]
        whole = rx.DataflowVar("lv", rx.TupleStructInfo(_sinfos(outputs)))
        values: list[tuple[rx.Var, rx.Expr]] = [(whole, call)]
        for binding in bindings:
            if binding.var in outputs:
                item = rx.TupleGetItem(whole, outputs.index(binding.var), span=span)
                values.append((binding.var, item))
        return [rx.VarBinding(var, value, bindings[-1].span) for var, value in values]


def _sinfos(variables: Sequence[rx.Var]) -> tuple[rx.StructInfo, ...]:
    sinfos = (var.struct_info for var in variables)
    return tuple(sinfo for sinfo in sinfos if sinfo is not None)


def _leave_out_items_of_others(
    block: rx.DataflowBlock, groups: dict[rx.Binding, FunctionGroup]
) -> None:
    """Take out of each group the fields of tuples that it does not compute: it receives these."""
    group_of: dict[rx.Expr | None, FunctionGroup] = {b.var: group for b, group in groups.items()}
    size: dict[FunctionGroup, int] = {}
    for binding in block.bindings:
        group = groups.get(binding)
        if group is None:
            continue
        value = binding.value
        if isinstance(value, rx.TupleGetItem) and group_of.get(value.tuple_value) is not group:
            del groups[binding], group_of[binding.var]
        else:
            size[group] = size.get(group, 0) + 1
    for binding, group in [*groups.items()]:
        if size[group] == 1 and not group.attrs:
            del groups[binding]


def _order(
    block: rx.DataflowBlock, groups: dict[rx.Binding, FunctionGroup], *, refuses_cycles: bool
) -> list[Unit]:
    """The groups and the other bindings, in topological order.

    Groups that depend on each other are removed from `groups`, or refused.
    """
    while True:
        needs = _needs(block, groups)
        cycles = [cycle for cycle in strongly_connected(needs) if len(cycle) > 1]
        if not cycles:
            return list(postorder(needs, needs.__getitem__))
        if refuses_cycles:
            raise _cycle_error(cycles[0], groups)
        cyclic = {unit for cycle in cycles for unit in cycle}
        for binding, group in [*groups.items()]:
            if group in cyclic:
                del groups[binding]


def _cycle_error(
    cycle: Sequence[Unit], groups: Mapping[rx.Binding, FunctionGroup]
) -> TransformError:
    """The error for groups and other bindings that depend on each other."""
    fused = [binding for binding, group in groups.items() if group in cycle]
    others = [unit for unit in cycle if not isinstance(unit, FunctionGroup)]
    if others:
        reason = f"{_names(others)} needs some of them, and others need {_names(others)}"
    else:
        reason = "their functions need results of each other"
    return TransformError(
        f"A cyclic dependency detected: {_names(fused)} match a pattern and cannot be computed "
        f"together, because {reason}",
        hint="let the pattern match what is between them, or its check refuse the match",
        span=fused[-1].span,
    )


def _names(bindings: Iterable[rx.Binding]) -> str:
    return ", ".join("a cast" if b.var is None else b.var.name_hint for b in bindings)


def _needs(block: rx.DataflowBlock, groups: Mapping[rx.Binding, FunctionGroup]) -> _Needs:
    """The dependencies of each group and each other binding, in order."""
    needs: _Needs = {}
    for binding, required in Dependencies(block.bindings).needs.items():
        unit: Unit = groups.get(binding, binding)
        homes: Iterable[Unit] = (groups.get(need, need) for need in required)  # type: ignore[arg-type]
        needs.setdefault(unit, {}).update(dict.fromkeys(homes))
        needs[unit].pop(unit, None)
    return needs


def outputs_of(
    block: rx.DataflowBlock, groups: Mapping[rx.Binding, FunctionGroup]
) -> dict[FunctionGroup, list[rx.Var]]:
    """The variables of each group that others use: first those that are visible after the block."""
    group_of = {b.var: group for b, group in groups.items() if b.var is not None}
    outputs: dict[FunctionGroup, dict[rx.Var, None]] = {group: {} for group in groups.values()}
    for var, group in group_of.items():
        if not isinstance(var, rx.DataflowVar):
            outputs[group][var] = None
    for binding in block.bindings:
        for used in binding_vars(binding):
            if used in group_of and group_of[used] is not groups.get(binding):
                outputs[group_of[used]][used] = None
    return {group: list(variables) for group, variables in outputs.items()}


def known_dimensions(*functions: rx.BaseFunc) -> set[tir.Var]:
    """The shape variables that are dimensions of tensors received or matched: at least 0."""
    sinfos: list[rx.StructInfo | None] = []
    for func in functions:
        sinfos += [p.struct_info for f in occurrences(func, rx.Function) for p in f.params]
        sinfos += [cast.struct_info for cast in occurrences(func, rx.MatchCast)]
    return set(dimension_vars(*(sinfo for sinfo in sinfos if sinfo is not None)))


def _result_sinfo(results: Sequence[rx.Var]) -> rx.StructInfo:
    """The struct info of one result, or of a tuple of several."""
    fields = tuple(var.struct_info or rx.ObjectStructInfo() for var in results)
    return fields[0] if len(fields) == 1 else rx.TupleStructInfo(fields)


class _Incomparable(Exception):  # noqa: N818
    """Bindings that have no cheap key."""


class _FunctionOf:
    """A function of bindings: its parameters are their operands, its result their outputs.

    `arguments` are the operands that a call of the function passes, in the order of their first
    use.
    """

    def __init__(
        self, bindings: Sequence[rx.Binding], outputs: Sequence[rx.Var], *, lift_constants: bool
    ) -> None:
        self.bindings, self.outputs = bindings, outputs
        self.lift_constants = lift_constants
        names = [name for b in bindings if (name := _callee_of(b))]
        more = [f"and_{len(names) - MAX_NAMES}_more"] if len(names) > MAX_NAMES else []
        self.name = "_".join(["fused", *names[:MAX_NAMES], *more])
        defined = [binding.var for binding in bindings if binding.var is not None]
        self._defined = {var: number for number, var in enumerate(defined)}
        self._params: dict[rx.Expr, rx.Var] = {}
        self._images: dict[rx.Expr, rx.Var] = {}
        self._numbers: dict[rx.Expr, int] = {}

    @property
    def arguments(self) -> Iterable[rx.Expr]:
        return self._params

    def key(self, attrs: Mapping[str, Attr]) -> object:
        """A key that groups of one function share if their functions are equal; None without one.

        It has the structure of the bindings, with the struct info of their operands instead of
        these, so that the function need not be built again.
        """
        if any(type(value) not in (str, bool) for value in attrs.values()):
            return None
        try:
            bindings = tuple(map(self._binding_key, self.bindings))
        except _Incomparable:
            return None
        passed = tuple(_sinfo_key(arg.struct_info) for arg in self._params)
        results = tuple(self._defined[var] for var in self.outputs)
        return tuple(attrs.items()), bindings, passed, results

    def _binding_key(self, binding: rx.Binding) -> object:
        if not isinstance(binding, rx.VarBinding):
            raise _Incomparable
        value, sinfo = binding.value, _sinfo_key(binding.var.struct_info)
        if isinstance(value, rx.TupleGetItem):
            return sinfo, value.index, self._operand_key(value.tuple_value)
        if not isinstance(value, rx.Call) or value.attrs is not EMPTY_ATTRS:
            raise _Incomparable
        callee = value.op if isinstance(value.op, Op) else self._operand_key(value.op)
        return (
            sinfo,
            callee,
            *map(self._operand_key, value.args),
            *map(_sinfo_key, value.sinfo_args),
        )

    def _operand_key(self, arg: rx.Expr) -> object:
        match arg:
            case rx.Var():
                number = self._defined.get(arg)
                return ("passed", self._number(arg)) if number is None else ("bound", number)
            case rx.Constant():
                return ("passed", self._number(arg)) if self.lift_constants else arg
            case rx.Tuple(fields=fields):
                return "tuple", *map(self._operand_key, fields)
            case rx.ShapeExpr(values=values):
                return "shape", values
            case rx.PrimValue(value=value):
                return "value", value
            case rx.GlobalVar(name_hint=name):
                return "global", name
            case _:
                raise _Incomparable

    def _number(self, arg: rx.Expr) -> int:
        """The position of the parameter for an operand."""
        self._operand(arg)
        return self._numbers.setdefault(arg, len(self._numbers))

    def build(self, attrs: Mapping[str, Attr]) -> tuple[rx.Function, tuple[rx.Expr, ...]] | None:
        """The function, and the shape that its calls pass after the operands, if it needs one.

        None if a shape is a variable that the function lacks.
        """
        for var in self._defined:
            kind = rx.Var if var in self.outputs else rx.DataflowVar
            self._images[var] = kind(var.name_hint, var.struct_info, var.span)
        inside = [
            replace(b, var=b.var and self._images[b.var], value=self._value(b.value))  # type: ignore[arg-type]
            for b in self.bindings
        ]
        results = tuple(self._images[var] for var in self.outputs)
        func = rx.Function(
            tuple(self._params.values()),
            rx.SeqExpr(
                (rx.DataflowBlock(tuple(inside)),),
                results[0] if len(results) == 1 else rx.Tuple(results),
            ),
            attrs=Attrs({**attrs, "Primitive": True}),
        )
        used = tuple(free_symbolic_vars(func))
        sizes = (rx.ShapeExpr(used),) if used else ()
        if used:
            param = rx.Var("tir_vars", rx.ShapeStructInfo(used))
            func = rebuild(func, params=(*func.params, param))
        table = {**self._params, **self._images}
        free = free_vars(func)
        if not table.keys() >= set(free):
            return None
        defined = defined_symbolic_vars(func)
        sinfo = _result_sinfo(results)
        if set(defined).issuperset(used_shape_vars(sinfo)):
            func = rebuild(func, ret_struct_info=sinfo)
        func = rename(func, {var: table[var] for var in free})
        return rename(func, {var: var.renamed(var.name) for var in defined}), sizes

    def _value(self, value: rx.Expr) -> rx.Expr:
        """The value over the variables of the function, as far as these are operands."""
        if isinstance(value, rx.Call):
            args = tuple(self._operand(arg) for arg in value.args)
            if all(map(is_, args, value.args)):
                return value
            new = replace(value, args=args)
            return derived_like(value, new) if is_kernel_call(value) else new
        if isinstance(value, rx.TupleGetItem):
            return replace(value, tuple_value=self._operand(value.tuple_value))
        return value

    def _operand(self, arg: rx.Expr) -> rx.Expr:
        match arg:
            case rx.Tuple(fields=fields):
                new = tuple(map(self._operand, fields))
                return arg if all(map(is_, new, fields)) else replace(arg, fields=new)
            case rx.Var():
                if arg in self._defined:
                    return self._images.get(arg, arg)
                return self._param(arg, arg.name_hint)
            case rx.Constant() if self.lift_constants:
                return self._param(arg, f"param_{len(self._params)}")
            case _:
                return arg

    def _param(self, arg: rx.Expr, name: str) -> rx.Var:
        if arg not in self._params:
            self._params[arg] = rx.Var(name, arg.struct_info)
        return self._params[arg]


def _sinfo_key(sinfo: rx.StructInfo | None) -> object:
    """The struct info as a part of a key, which has no variables."""
    if sinfo is not None and occurring_vars(sinfo):
        raise _Incomparable
    return sinfo


def _callee_of(binding: rx.Binding) -> str:
    """The name of a binding's callee, for the name of the function; "" without a call."""
    call = binding.value
    if not isinstance(call, rx.Call):
        return ""
    if isinstance(call.op, rx.GlobalVar):
        return call.op.name_hint.removeprefix("fused_")
    if isinstance(call.op, Op):
        if is_kernel_call(call) and isinstance(call.args[0], rx.GlobalVar):
            return call.args[0].name_hint
        return call.op.name.replace(".", "_")
    return ""


FusionRule: TypeAlias = Callable[[PrimFunc, PrimFunc], bool]
"""Decides whether a kernel is fused with one that uses its result."""
RULE_OPTION: Final = "relax.FuseOps.rule"
register_config(RULE_OPTION, object)
_DIVISIONS: Final = (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)


@user_facing
def fusion_pays(producer: PrimFunc, consumer: PrimFunc) -> bool:
    """True if a kernel may be fused with one that uses its result, in the default pipeline.

    A fused kernel runs in blocks of rows, so that the result of one step is in cache for the next
    one, and needs no memory of the size of an intermediate result. Results are never computed
    twice. Hence there is no cost model: all kernels that FuseOps can group are fused, except for
    those that may fail at run time, whose errors then name their line and buffers.
    """
    return not (may_fail(producer) or may_fail(consumer))


@memoised
def may_fail(kernel: PrimFunc) -> bool:
    """True if a kernel can raise an error that depends on the elements of its operands.

    These are indices that are elements of a tensor, divisions by integers that may be zero,
    assertions, and calls of other functions.
    """
    return any(_fails(node) for node in _computing(kernel.body))


def _fails(node: Node) -> bool:
    match node:
        case AssertStmt() | Evaluate():
            return True
        case BufferLoad(indices=indices) | BufferStore(indices=indices):
            return any(True for i in indices for _ in occurrences(i, BufferLoad))
        case tir.PrimExpr() if isinstance(node, _DIVISIONS) and node.dtype.is_int:
            return not isinstance(node.b, tir.IntImm) or node.b.value == 0
        case _:
            return False


def _computing(root: Node) -> Iterator[Node]:
    """The nodes that compute elements: all but those in indices, bounds and regions."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case BufferLoad():
                pass
            case BufferStore(value=value):
                waiting.append(value)
            case tir.PrimExpr() | LetStmt() | IfThenElse() | While():
                waiting += node._children()
            case _:
                waiting += [c for c in node._children() if isinstance(c, Stmt)]
