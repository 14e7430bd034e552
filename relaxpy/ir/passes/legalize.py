"""LegalizeOps: operators become calls of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from operator import is_
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError, StructInfoError, unexpected, warn
from relaxpy.ir.core.node import set_fields
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op, register_op_attr
from relaxpy.ir.op_record import apply_column, is_of_relaxpy
from relaxpy.ir.ops.definition.registry import find
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.normalize import derived_like, is_leaf
from relaxpy.ir.relax.known import without_tuples
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations.compatibility import explain_incompatibility, provably_disjoint
from relaxpy.ir.relax.relations.shape_vars import (
    dimension_vars,
    known_inside,
    nested_infos,
    sizes_of,
)
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.te.lower import values_as_written
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.gc_pause import gc_paused

Legalization = Callable[[BlockBuilder, rx.Call], Any]
MAX_STEPS: Final = 50
"""The maximum number of chained legalisations."""


def register_legalize(op_name: str, legal_func: Legalization | None = None) -> Any:
    """Set or replace the legalisation of an operator; without a function, return a decorator."""
    return register_op_attr(op_name, "FLegalize", legal_func)


@dataclass(frozen=True)
class LegalizeOps(Pass):
    """Replaces calls of operators by calls of the kernels that compute them; equal ones are shared.

    The legalisation of an operator is that in `customize_legalize_map`, by its name, or else its
    own. It is a function of a BlockBuilder and the call, which returns an expression and may emit
    bindings. A call without a legalisation stays unchanged, and so does one whose operands or
    result have an unknown shape, rank or datatype; `enable_warning` warns of both. A call on
    distributed tensors becomes a call of the kernel for whole tensors, if that is one kernel. Calls
    of the operators named in `skip_ops` stay, too. With `as_written`, kernels compute values as the
    legalisations write them, and no rule of integer arithmetic changes these. With `in_loops`, an
    operator that has no legalisation becomes loops where that pays for machine code.

    Errors:
        MisuseError: the map names an unknown operator, or a legalisation does not return an
            expression.
    """

    customize_legalize_map: Mapping[str, Legalization] | None = None
    skip_ops: Sequence[str] | None = None
    enable_warning: bool = False
    as_written: bool = False
    in_loops: bool = False

    @override
    @gc_paused
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        custom = self.customize_legalize_map or {}
        skipped = set(map(Op.get, self.skip_ops or ()))
        for name in custom:
            if name not in Op.modules:
                Op.get(name)  # an error, unless it is an operator

        def rule_of(op: Op) -> Legalization | None:
            if op in skipped:
                return None
            record = op.record
            in_loops = record.legalize_in_loops if self.in_loops else None
            return custom.get(op.name) or record.legalize or in_loops

        with values_as_written() if self.as_written else nullcontext():
            return legalized(mod, rule_of, enable_warning=self.enable_warning)


def legalized(
    mod: IRModule, rule_of: Callable[[Op], Legalization | None], *, enable_warning: bool = False
) -> IRModule:
    """The module in normal form with the calls of operators that have a rule replaced by it.

    Errors:
        MisuseError: a rule does not return an expression.
    """
    return _Legalizer(normalize_module(mod), rule_of, enable_warning).run()


class _Legalizer(BindingRewriter):
    """One run over a module."""

    def __init__(
        self, mod: IRModule, rule_of: Callable[[Op], Legalization | None], warns: bool
    ) -> None:
        super().__init__()
        self.mod, self.rule_of, self.warns = mod, rule_of, warns
        self._builder: BlockBuilder | None = None
        self._sizes: set[tir.Var] = set()
        self._inside: list[str] = []
        self._known: dict[object, _Template] = {}

    @property
    def builder(self) -> BlockBuilder:
        """The builder of kernels, created when the first call needs it."""
        if self._builder is None:
            self._builder = BlockBuilder(self.mod)
            self._builder.context.sizes = self._sizes
        return self._builder

    def run(self) -> IRModule:
        """The module with its calls legalised; itself if there is nothing to do."""
        changed: dict[str, rx.Function] = {}
        for var, func in self.mod.items():
            if isinstance(func, rx.Function):
                legalized = self.expr(func)
                if legalized is not func:
                    changed[var.name_hint] = legalized
        if not changed:
            return self.mod
        result = self.builder.get()
        for name, func in changed.items():
            result[name] = func
        return normalize_module(result)

    @override
    def function(self, func: rx.Function) -> rx.Function:
        sinfos = [param.struct_info for param in func.params if param.struct_info is not None]
        with known_inside(self._sizes, *sinfos):
            return super().function(func)

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        with known_inside(self._sizes):
            return super().sequence(seq)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        if isinstance(binding, rx.MatchCast):
            self._sizes.update(dimension_vars(binding.struct_info))
        if not isinstance(binding.value, rx.Call):
            return None
        value = self._call(binding.value, dataflow=isinstance(block, rx.DataflowBlock))
        return None if value is binding.value else replace(binding, value=value)

    def _call(self, call: rx.Call, *, dataflow: bool) -> rx.Expr:
        """The replacement of a call, in which calls are legalised too; itself if there is none."""
        if not isinstance(call.op, Op):
            return call
        rule = self.rule_of(call.op)
        if rule is not None and any(_is_distributed(arg.struct_info) for arg in call.args):
            return self._distributed(rule, call, dataflow=dataflow)
        operands = [*without_tuples(call.args)]
        key = None if rule is None else _key(rule, call, operands)
        template = self._known.get(key)
        if template is not None:
            return _with_span(template.on(operands), call)
        if rule is None or not self._is_known(call):
            self._report(call, "has no legalisation" if rule is None else "has open operands")
            return call
        operator = find(call.op)
        completed = call if operator is None else operator.signature.completed(call)
        result = self._emitted(rule, completed, dataflow=dataflow)
        if result is completed:
            self._report(call, "was left by its legalisation")
            return call
        if isinstance(result, rx.Call) and result.op is call.op:
            return _with_span(result, call)
        result = self._legalized(call.op.name, result, dataflow=dataflow)
        template = _Template.of(result, operands)
        sinfos = (expr.struct_info for expr in (call, *call.args))
        if template is not None and key is not None and all(map(_is_static, sinfos)):
            self._known[key] = template
        return _with_span(result, call)

    def _distributed(self, rule: Legalization, call: rx.Call, *, dataflow: bool) -> rx.Call:
        """The call of the kernel for whole tensors on distributed ones; itself if there is none."""
        result = self.builder.struct_info_of(call)
        wholes = tuple(_whole(arg, k) for k, arg in enumerate(call.args))
        originals = dict(zip(wholes, call.args, strict=True))
        on_wholes = self.builder.normalize(
            rx.Call(call.op, wholes, call.attrs, call.sinfo_args, span=call.span)
        )
        assert isinstance(on_wholes, rx.Call)
        if isinstance(result, DTensorStructInfo) and self._is_known(on_wholes):
            kernel = self._call(on_wholes, dataflow=dataflow)
            if rx.is_call_of(kernel, "relax.call_tir"):
                args = tuple(
                    rx.Tuple(tuple(originals.get(field, field) for field in arg.fields))
                    if isinstance(arg, rx.Tuple)
                    else arg
                    for arg in kernel.args
                )
                return rx.Call(kernel.op, args, kernel.attrs, (result,), span=call.span)
        self._report(call, "has no single kernel for distributed tensors")
        return call

    def _legalized(self, name: str, expr: rx.Expr, *, dataflow: bool) -> rx.Expr:
        """The replacement of a call of operator `name`, with the calls in it legalised."""
        self._inside.append(name)
        if len(self._inside) > MAX_STEPS:
            names = list(dict.fromkeys(self._inside))
            raise MisuseError(
                f"legalisation does not end: {name} becomes calls of {', '.join(names)} again",
                hint="a legalisation returns something simpler than a call of its operator",
            )
        result = self._value(expr, dataflow=dataflow)
        self._inside.pop()
        return result

    def _value(self, expr: rx.Expr, *, dataflow: bool) -> rx.Expr:
        """The result of a legalisation, with the calls in it legalised."""
        if isinstance(expr, rx.Call):
            return self._call(expr, dataflow=dataflow)
        if not isinstance(expr, rx.SeqExpr):
            return self.expr(expr)
        seq = self.sequence(expr)
        body = self._value(seq.body, dataflow=dataflow)
        return seq if body is seq.body else rebuild(seq, body=body)

    def _emitted(self, rule: Legalization, call: rx.Call, *, dataflow: bool) -> rx.Expr:
        """The result of a legalisation in normal form, after the bindings that it emits."""
        assert isinstance(call.op, Op)
        name, builder = call.op.name, self.builder
        builder.begin_scope()
        if dataflow:
            builder.begin_dataflow()
        try:
            result = apply_column(name, "legalisation", rule, builder=builder, call=call)
            if not isinstance(result, rx.Expr):
                raise unexpected(
                    result,
                    f"the legalisation of {name} returns an expression",
                    span=call.span,
                    hint="return builder.call_te(...), or a call of simpler operators",
                )
            if not _is_normal(result):
                result = builder.normalize(result)
            self._check_result(name, result, call)
        except RelaxpyError as error:
            error.located(call.span)
            raise
        finally:
            if dataflow:
                builder.end_dataflow()
            emitted = None if builder.scope_is_empty() else builder.end_scope(rx.Tuple(()))
            if emitted is None:
                builder.end_scope()
        result = _with_derived_shapes(result, call)
        return result if emitted is None else rx.SeqExpr(emitted.blocks, result)

    def _check_result(self, name: str, result: rx.Expr, call: rx.Call) -> None:
        """Errors: StructInfoError if a legalisation certainly returns something else."""
        found, expected = map(self.builder.struct_info_of, (result, call))
        if not _plainly_equal(found, expected) and provably_disjoint(found, expected):
            raise StructInfoError(
                f"the legalisation of {name} returns {found}, expected {expected}: "
                f"{explain_incompatibility(found, expected)}",
                about=result,
            )

    def _is_known(self, call: rx.Call) -> bool:
        assert isinstance(call.op, Op)
        sinfos = [self.builder.struct_info_of(arg) for arg in call.args]
        if not call.op.record.data_dependent:
            sinfos.append(self.builder.struct_info_of(call))
        return all(map(is_known, sinfos))

    def _report(self, call: rx.Call, why: str) -> None:
        if self.warns and isinstance(call.op, Op) and call.op.record.calls is None:
            warn(Diagnostic(f"{call.op.name} {why}, so it is not lowered yet", None, call.span))


@dataclass(frozen=True, slots=True)
class _Template:
    """A call of a kernel, whose operands are those of a call of an operator at `positions`."""

    call: rx.Call
    positions: tuple[int, ...]

    @classmethod
    def of(cls, result: rx.Expr, operands: list[rx.Expr]) -> _Template | None:
        """The template of a call; None if it has other operands."""
        if not rx.is_call_of(result, "relax.call_tir") or not isinstance(result.args[1], rx.Tuple):
            return None
        positions = {operand: k for k, operand in reversed([*enumerate(operands)])}
        fields = result.args[1].fields
        if not all(field in positions for field in fields):
            return None
        return cls(result, tuple(positions[field] for field in fields))

    def on(self, operands: list[rx.Expr]) -> rx.Call:
        """The call of the kernel on these operands."""
        kernel, _, *others = self.call.args
        fields = rx.Tuple(tuple(operands[k] for k in self.positions))
        return derived_like(self.call, replace(self.call, args=(kernel, fields, *others)))


def _key(rule: Legalization, call: rx.Call, operands: list[rx.Expr]) -> object:
    """A key that calls share for which a rule of relaxpy builds the same kernel; None without one.

    Such rules see the elements of scalars alone. The text of attributes has their types.
    """
    if not is_of_relaxpy(rule) or len(call._children()) != 1 + len(call.args):
        return None
    first = {operand: k for k, operand in reversed([*enumerate(operands)])}
    kinds: list[object] = [rule, call.op, call.attrs, repr(call.attrs), call.struct_info]
    for arg in call.args:
        kinds += type(arg), arg.struct_info
    for operand in operands:
        if type(operand) not in _COMPARABLE:
            return None
        kinds += type(operand), first[operand]
        if isinstance(operand, rx.Constant) and operand.size == 1:
            kinds.append(operand.data.tobytes())
    return tuple(kinds)


_COMPARABLE: Final = frozenset((rx.Var, rx.DataflowVar, rx.Constant, rx.ShapeExpr, rx.PrimValue))
"""The kinds of operands whose struct info, with the elements of scalars, is all that rules see."""


def _is_static(sinfo: rx.StructInfo | None) -> bool:
    """True if no variable is a dimension of a tensor, or a member of a shape."""
    if sinfo is None or not all(isinstance(n, tir.ConstExpr) for n in sizes_of(sinfo)):
        return False
    return all(map(_is_static, nested_infos(sinfo)))


def _is_distributed(sinfo: rx.StructInfo | None) -> bool:
    return isinstance(sinfo, DTensorStructInfo)


def _whole(arg: rx.Expr, position: int) -> rx.Expr:
    """A distributed operand as if one device had all of it; any other operand itself."""
    sinfo = arg.struct_info
    return (
        rx.Var(f"x{position}", sinfo.tensor_sinfo) if isinstance(sinfo, DTensorStructInfo) else arg
    )


def _is_normal(expr: rx.Expr) -> bool:
    """True if a call is in normal form and derived; the whole module is checked in the end."""
    return isinstance(expr, rx.Call) and expr.sinfo_is_derived and all(map(is_leaf, expr.args))


def _with_derived_shapes(result: rx.Expr, call: rx.Call) -> rx.Expr:
    """A call of a kernel with the shapes derived for `call`, which may be written in other ways."""
    if not rx.is_call_of(result, "relax.call_tir") or result.sinfo_args == (call.struct_info,):
        return result
    if call.struct_info is None or not _has_dimensions(call.struct_info):
        return result
    new = replace(result, sinfo_args=(call.struct_info,), struct_info=call.struct_info)
    if _plainly_equal(result.sinfo_args[0], call.struct_info):
        return derived_like(result, new)
    set_fields(new, sinfo_is_derived=True)
    return new


def _has_dimensions(sinfo: rx.StructInfo) -> bool:
    """True if all dimensions of a tensor, or of the tensors in a tuple, are known."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return all(map(_has_dimensions, sinfo.fields))
    return isinstance(sinfo, rx.TensorStructInfo) and isinstance(sinfo.shape, rx.ShapeExpr)


def _plainly_equal(first: rx.StructInfo, second: rx.StructInfo) -> bool:
    """True if two tensors visibly have the same dimensions and datatype."""
    if not isinstance(first, rx.TensorStructInfo) or not isinstance(second, rx.TensorStructInfo):
        return False
    a, b = first.shape, second.shape
    if not isinstance(a, rx.ShapeExpr) or not isinstance(b, rx.ShapeExpr):
        return False
    same_shape = a is b or (len(a.values) == len(b.values) and all(map(is_, a.values, b.values)))
    return same_shape and first.dtype == second.dtype


def is_known(sinfo: rx.StructInfo) -> bool:
    """True if shape and datatype of every tensor in a value are known, and none is distributed."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return all(map(is_known, sinfo.fields))
    if isinstance(sinfo, rx.TensorStructInfo):
        return isinstance(sinfo.shape, rx.ShapeExpr) and not sinfo.dtype.is_void
    return not isinstance(sinfo, DTensorStructInfo)


def _with_span(expr: rx.Expr, call: rx.Call) -> rx.Expr:
    """The expression, with the span of the call if it has none."""
    if expr.span is not None or call.span is None:
        return expr
    if isinstance(expr, rx.Call):
        return derived_like(expr, replace(expr, span=call.span))
    return replace(expr, span=call.span) if isinstance(expr, rx.SeqExpr) else expr
