"""Normal form (NF): any expression becomes bindings and a value, with struct info derived.

FNormalize gives the normal forms that operators define for their own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from operator import is_
from typing import TYPE_CHECKING, Final, TypeVar, assert_never, cast

from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError, WellFormedError, unexpected
from relaxpy.ir.core.memo import NodeTable, VisitBudget, memoised
from relaxpy.ir.core.node import Node, set_fields
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import apply_column
from relaxpy.ir.ops.definition.registry import find
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder import infer
from relaxpy.ir.relax.block_builder.emitter import Emitter
from relaxpy.ir.relax.relations import definable_shape_vars, is_base_of
from relaxpy.ir.relax.relations.compatibility import shape_rank
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.relations.shape_vars import over_sizes_info
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.relax.block_builder.emitter import Emitter


class StrongerAnnotations:
    """Collects one diagnostic for each node with such an annotation, however often it is used."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._nodes: set[rx.Expr] = set()

    def add(
        self, node: rx.Expr, declared: rx.StructInfo, derived: rx.StructInfo, rule: str
    ) -> None:
        """Report that `node` declares more than can be derived, unless an operand does so."""
        if node in self._nodes:
            return
        self._nodes.add(node)
        if not self._repeats_operand(node):
            self.diagnostics.append(
                Diagnostic(
                    f"this {type(node).__name__} declares the struct info {declared}, "
                    f"derivation gives {derived}",
                    rule,
                    node.span,
                    "leave struct_info out when you build or replace a node, it is derived",
                )
            )

    def add_form(self, call: rx.Call) -> None:
        """Report that the normalisation of its operator would change `call`."""
        if call not in self._nodes:
            self._nodes.add(call)
            self.diagnostics.append(
                Diagnostic(
                    f"the normalisation of {call.op} changes this call",
                    span=call.span,
                    hint="relax.transform.Normalize applies it",
                )
            )

    def _repeats_operand(self, node: rx.Expr) -> bool:
        """True if the annotation of `node` follows from that of an operand that was reported."""
        reported = self._nodes
        match node:
            case rx.Tuple(fields=fields):
                return node.has_field_sinfos and not reported.isdisjoint(fields)
            case rx.TupleGetItem(tuple_value=value, index=index) if value in reported:
                return node.struct_info == rx.TupleGetItem(value, index).struct_info
            case rx.SeqExpr(body=body):
                return body in reported and node.struct_info == body.struct_info
            case rx.If(true_branch=yes, false_branch=no):
                return any(s in reported and node.struct_info == s.struct_info for s in (yes, no))
            case rx.Function(body=body, struct_info=rx.FuncStructInfo(ret=ret)):
                return body in reported and ret == body.struct_info
            case _:
                return False


S = TypeVar("S", bound=rx.StructInfo)
N = TypeVar("N", rx.Call, rx.If, rx.TupleGetItem)

ATOMS: frozenset[type] = frozenset(
    (
        rx.Var,
        rx.DataflowVar,
        rx.GlobalVar,
        rx.Constant,
        rx.ShapeExpr,
        rx.PrimValue,
        rx.StringImm,
        rx.DataTypeImm,
    )
)
_VARIABLES = frozenset((rx.Var, rx.DataflowVar))
MAX_RULES: Final = 50
"""The maximum number of chained FNormalize steps."""
_VISIT_COST = 16
"""The cost of normalising a sequence or an operand, in visits of a node."""


def is_leaf(expr: rx.Expr) -> bool:
    """NF-1, NF-3: a variable, a literal, or a tuple of leaves."""
    waiting = [expr]
    seen: set[rx.Tuple] = set()
    while waiting:
        part = waiting.pop()
        if type(part) is rx.Tuple:
            if part not in seen:
                seen.add(part)
                waiting += part.fields
        elif type(part) not in ATOMS:
            return False
    return True


def is_callee(call: rx.Call, index: int) -> bool:
    """NF-4: whether argument `index` is the function that the operator calls; it stays unbound."""
    if index or not isinstance(call.op, Op):
        return False
    kind = call.op.record.calls
    return kind is not None and kind.callee_is_operand


def is_normal_value(expr: rx.Expr) -> bool:
    """NF-2, NF-4, NF-13: a leaf, or an operation whose operands are leaves."""
    match expr:
        case rx.Call(op=op, args=args):
            if not (type(op) in ATOMS or isinstance(op, (Op, rx.ExternFunc))):
                return False
            return all(
                is_leaf(a) or (isinstance(a, rx.ExternFunc) and is_callee(expr, i))
                for i, a in enumerate(args)
            )
        case rx.TupleGetItem(tuple_value=value):
            return is_leaf(value)
        case rx.If(cond=cond):
            return is_leaf(cond)
        case rx.Function() | rx.ExternFunc():
            return True
        case _:
            return is_leaf(expr)


def _is_normal_leaf(value: rx.Expr) -> bool:
    """True if a value in normal form is a leaf: a tuple in normal form has leaves as fields."""
    return type(value) in ATOMS or type(value) is rx.Tuple


def _has_sinfo_of(value: rx.Expr, operand: rx.Expr) -> bool:
    """True if a rule reads the same from an operand and from the variable to which it is bound.

    A variable for a shape of unknown sizes may be the shape of the result.
    """
    sinfo = value.struct_info
    is_shape = isinstance(sinfo, rx.ShapeStructInfo) and sinfo.values is None
    is_bound = type(value) in _VARIABLES and sinfo is operand.struct_info is not None
    return value is operand or (is_bound and not is_shape)


@dataclass(slots=True, eq=False)
class _Pending:
    """An expression whose operands are being normalised; `done` are the leaves so far."""

    node: rx.Expr
    operands: Sequence[rx.Expr]
    done: list[rx.Expr] = field(default_factory=list)


_FITTING_CALLS: Final[NodeTable[rx.StructInfo]] = NodeTable()
"""Calls of kernels that are derived and in normal form, with the signatures that they fit."""


def note_fit(call: rx.Call, signature: rx.StructInfo) -> None:
    """Note that a call of a kernel, which is derived and in normal form, fits a signature."""
    _FITTING_CALLS[call] = signature


def fitting_signature(call: rx.Call) -> rx.StructInfo | None:
    """The signature of its kernel that a call is known to fit."""
    return _FITTING_CALLS.get(call)


def derived_like(call: rx.Call, new: rx.Call) -> rx.Call:
    """The call `new`, for which holds what is known about the struct info of `call`."""
    set_fields(new, sinfo_is_derived=call.sinfo_is_derived)
    signature = fitting_signature(call)
    if signature is not None:
        note_fit(new, signature)
    return new


def _signature(call: rx.Call, ctx: Context) -> rx.StructInfo | None:
    """The signature of the kernel that is called, if the module has it."""
    callee = call.args[0]
    return ctx.signatures.get(callee.name_hint) if isinstance(callee, rx.GlobalVar) else None


class Normalizer:
    """Writes expressions to an emitter in normal form, each with its struct info.

    Variables and parameters without struct info are replaced by new ones: `_vars` maps them. The
    shape variables of moved bindings are renamed: `_shape_vars` maps them (NF-23).

    Derived struct info replaces the one that a node declares. If a node declares more than can be
    derived, `stronger` reports it.
    """

    def __init__(self, emitter: Emitter, stronger: StrongerAnnotations | None = None) -> None:
        self.out = emitter
        self._stronger = stronger
        self._vars: dict[rx.Var, rx.Var] = {}
        self._shape_vars: dict[tir.Var, tir.PrimExpr] = {}
        self._visits: VisitBudget | None = None
        #: Adds a public function that is an operand to the module that is built, if there is one.
        self.add_callee: Callable[[rx.BaseFunc, str], rx.GlobalVar] | None = None
        #: The builder that rules of operators use.
        self.builder: Callable[[], BlockBuilder | None] | None = None
        self._rules_inside = 0

    def value(self, expr: rx.Expr) -> rx.Expr:
        """`expr` as the value of a binding, after its operands are bound.

        Errors:
            StructInfoError, WellFormedError: it has no struct info, or no normal form.
        """
        if self.out.remembers:
            known = self.out.bound_value(expr)
            if known is not None:
                return known
        if type(expr) is rx.Call and self._is_final(expr):
            return self._derive_call(expr, expr)
        return self._atom(expr) if type(expr) in ATOMS else self._value(expr)

    def leaf(self, expr: rx.Expr) -> rx.Expr:
        """`expr` as a leaf: if it is not one, the variable to which it is bound (NF-12, NF-13)."""
        value = self.value(expr)
        return value if _is_normal_leaf(value) else self.out.bind(value, span=expr.span)

    def _is_final(self, call: rx.Call) -> bool:
        """True if a call needs nothing but its own struct info, as most do."""
        if self._shape_vars or (self._vars and call.sinfo_args):
            return False
        op = call.op
        called = type(op) is Op or type(op) is rx.ExternFunc or self._are_final((op,))
        return called and self._are_final(call.args)

    def _are_final(self, args: tuple[rx.Expr, ...]) -> bool:
        """True if these are leaves that have struct info and need no replacement."""
        ctx, replaced = self.out.ctx, self._vars
        for arg in args:
            kind = type(arg)
            if kind in _VARIABLES:
                if arg.struct_info is None or (ctx.closed and arg not in ctx.variables):
                    return False
                if replaced and arg in replaced:
                    return False
            elif type(arg) is rx.Tuple:
                if arg.struct_info is None or not self._are_final(arg.fields):
                    return False
            elif kind not in ATOMS:
                return False
        return True

    def _is_derived(self, call: rx.Expr) -> bool:
        """True if a value is a call that would be derived to be itself.

        That of an operator follows from operands that are the same objects, and that of a kernel
        has been checked against its signature.
        """
        ctx = self.out.ctx
        if type(call) is not rx.Call or not call.sinfo_is_derived or type(call.op) is not Op:
            return False
        if ctx.as_written or self.out.remembers or self._vars or not self._is_final(call):
            return False
        operator, record = find(call.op), call.op.record
        if operator is None or record.literal or record.normalize is not None:
            return False
        if record.calls is not None and record.calls.is_kernel:
            return fitting_signature(call) is _signature(call, ctx) is not None
        return not (operator.needs_context or ctx.sizes)

    def _value(self, root: rx.Expr) -> rx.Expr:
        """The value of `root` after its operands: the callee, then the arguments in order (NF-17).

        `bound` maps pure calls and tuples to their leaves, so that a node that occurs again is
        bound once, as long as nothing impure is evaluated in between. An impure call is evaluated
        wherever it occurs, which may be too often.
        """
        stack: list[_Pending] = []
        bound: dict[rx.Expr, rx.Expr] = {}
        visits = VisitBudget(root)
        value = self._begin(root, stack)
        while stack:
            top = stack[-1]
            if value is not None:
                top.done.append(self._operand(top, value, bound))
                if not bound:
                    visits.spend(_VISIT_COST)
            if len(top.done) < len(top.operands):
                operand = top.operands[len(top.done)]
                value = bound.get(operand)
                if value is None and self.out.remembers:
                    value = self.out.bound_value(operand)
                if value is None and isinstance(operand, rx.BaseFunc):
                    value = self._global_var(operand)
                if value is None:
                    value = self._begin(operand, stack)
            else:
                stack.pop()
                value = self._finish(top)
        assert value is not None
        return value

    def _global_var(self, func: rx.BaseFunc) -> rx.GlobalVar | None:
        """The GlobalVar of a public function that is an operand, if a module is being built."""
        symbol = func.attrs.get("global_symbol")
        if (
            self.add_callee is None
            or not isinstance(symbol, str)
            or isinstance(func, rx.ExternFunc)
        ):
            return None
        return self.add_callee(func, symbol)

    def _begin(self, expr: rx.Expr, stack: list[_Pending]) -> rx.Expr | None:
        """The value of an expression without operands, or None if it is put on the stack."""
        match expr:
            case rx.Call(op=op, args=args):
                named = isinstance(op, (Op, rx.ExternFunc))
                stack.append(_Pending(expr, args if named else (cast("rx.Expr", op), *args)))
            case rx.Tuple(fields=fields):
                stack.append(_Pending(expr, fields))
            case rx.TupleGetItem(tuple_value=value):
                stack.append(_Pending(expr, (value,)))
            case rx.If(cond=cond):
                stack.append(_Pending(expr, (cond,)))
            case rx.SeqExpr():
                return self.flatten(expr)
            case rx.Function():
                return self.function(expr)
            case _:
                return self._atom(expr)
        return None

    def _operand(self, top: _Pending, value: rx.Expr, bound: dict[rx.Expr, rx.Expr]) -> rx.Expr:
        """The value of an operand of `top` as a leaf, or a packed function as a callee (NF-4)."""
        index = len(top.done)
        node, operand = top.node, top.operands[index]
        if isinstance(operand, rx.SeqExpr):
            bound.clear()
        if _is_normal_leaf(value):
            if type(value) is rx.Tuple:
                bound[operand] = value
            return value
        if (
            isinstance(value, rx.ExternFunc)
            and isinstance(node, rx.Call)
            and is_callee(node, index)
        ):
            return value
        var = self.out.bind(value, span=operand.span)
        if self.out.remembers:
            self.out.remember(operand, var)
        if isinstance(operand, (rx.Call, rx.TupleGetItem)):
            if not isinstance(value, rx.Call) or infer.is_pure_call(value, self.out.ctx):
                bound[operand] = var
            else:
                bound.clear()
        elif not isinstance(value, (rx.Function, rx.ExternFunc)):
            bound.clear()
        return var

    def _finish(self, top: _Pending) -> rx.Expr:
        """The expression over its normalised operands, with its struct info."""
        node, done = top.node, top.done
        same = all(map(is_, done, top.operands))
        match node:
            case rx.Call():
                sinfos = tuple(map(self.renamed, node.sinfo_args))
                if not same or not all(map(is_, sinfos, node.sinfo_args)):
                    callee, args = node.op, done
                    if len(done) > len(node.args):
                        callee, args = done[0], done[1:]
                    derived = node.sinfo_is_derived and not sinfos
                    node = replace(node, op=callee, args=tuple(args), sinfo_args=sinfos)
                    if derived and all(map(_has_sinfo_of, done, top.operands)):
                        set_fields(node, sinfo_is_derived=True)
                return self._derive_call(node, top.node)
            case rx.Tuple():
                if same and node.has_field_sinfos:
                    return node
                fields = rx.TupleStructInfo(tuple(self.out.ctx.sinfo_of(f) for f in done))
                self._check_annotation(node, fields, "DER-5")
                return replace(node, fields=tuple(done), struct_info=fields)
            case rx.TupleGetItem():
                sinfo = infer.infer_tuple_get_item(done[0], node.index, node.span, self.out.ctx)
                if not same:
                    node = replace(node, tuple_value=done[0])
                return self._with_sinfo(node, sinfo, "DER-33", top.node)
            case rx.If():
                return self._branches(node, done[0])
            case _:
                raise AssertionError(f"{type(node).__name__} has no operands")

    def _derive_call(self, call: rx.Call, original: rx.Expr) -> rx.Expr:
        """The call with its struct info, derived once if it depends on the operands alone."""
        op = call.op
        operator = find(op) if type(op) is Op else None
        as_written = self.out.ctx.as_written
        calls = None if operator is None else operator.record.calls
        if calls is not None and calls.is_kernel and not as_written:
            call = with_written_operands(call, self.out, self.leaf)
        if not call.sinfo_is_derived or operator is None or operator.needs_context:
            rule = "DER-35" if type(op) is Op else "DER-42"
            derived = infer.infer_call(call, self.out.ctx)
            if operator is not None:
                call = operator.signature.completed(call)
            call = self._with_sinfo(call, derived, rule, original)
            set_fields(call, sinfo_is_derived=True)
            if calls is not None and calls.is_kernel and not as_written:
                signature = _signature(call, self.out.ctx)
                if signature is not None:
                    note_fit(call, signature)
        elif not call.sinfo_args and self.out.ctx.sizes:
            assert call.struct_info is not None
            known = over_sizes_info(call.struct_info, self.out.ctx.sizes)
            if known is not call.struct_info:
                call = replace(call, struct_info=known)
                set_fields(call, sinfo_is_derived=True)
        if operator is not None and operator.record.literal:
            sinfo = call.struct_info
            if isinstance(sinfo, rx.PrimStructInfo) and sinfo.value is not None:
                return rx.PrimValue(sinfo.value, span=call.span)
        if type(op) is Op and op.record.normalize is not None and not as_written:
            builder = self.builder and self.builder()
            return call if builder is None else self._normalized_call(call, builder)
        return call

    def _normalized_call(self, call: rx.Call, builder: BlockBuilder) -> rx.Expr:
        """The form that the operator of a call defines for it, itself in normal form."""
        result = normalized_call(call, builder)
        if result is call:
            return call
        if self._stronger is not None:
            self._stronger.add_form(call)
        if self._rules_inside >= MAX_RULES:
            raise MisuseError(
                f"the normalisation of {call.op} does not end",
                span=call.span,
                hint="for a call in normal form, return the call itself",
            )
        self._rules_inside += 1
        try:
            return self.value(result)
        finally:
            self._rules_inside -= 1

    def _atom(self, expr: rx.Expr) -> rx.Expr:
        """A variable or literal, with its variables replaced."""
        if isinstance(expr, rx.Var):
            var = self._vars.get(expr, expr)
            self.out.ctx.sinfo_of(var)
            return var
        if self._shape_vars and isinstance(expr, rx.ShapeExpr):
            values = tuple(substitute(v, self._shape_vars) for v in expr.values)
            same = all(map(is_, values, expr.values))
            return expr if same else rx.ShapeExpr(values, span=expr.span)
        if self._shape_vars and isinstance(expr, rx.PrimValue):
            value = substitute(expr.value, self._shape_vars)
            return expr if value is expr.value else rx.PrimValue(value, span=expr.span)
        if not isinstance(expr, rx.GlobalVar):
            self.out.ctx.sinfo_of(expr)
        return expr

    def renamed(self, sinfo: S) -> S:
        """An annotation with its variables replaced."""
        if not self._vars and not self._shape_vars:
            return sinfo

        def rule(node: Node) -> Node | None:
            if isinstance(node, rx.Var):
                return self._vars.get(node)
            if isinstance(node, tir.Var):
                return self._shape_vars.get(node)
            if isinstance(node, rx.TensorStructInfo) and node.ndim == -1 != shape_rank(node):
                # Its shape is a variable whose rank was unknown until now (SI-11).
                return replace(node, ndim=shape_rank(node))
            return None

        return cast("S", rewrite(sinfo, rule))

    def _branches(self, node: rx.If, cond: rx.Expr) -> rx.Expr:
        """The If with each branch normalised as a SeqExpr (NF-7, NF-18)."""
        true_branch = self.sequence(node.true_branch)
        false_branch = self.sequence(node.false_branch)
        original = node
        if (
            cond is not node.cond
            or true_branch is not node.true_branch
            or false_branch is not node.false_branch
        ):
            node = replace(node, cond=cond, true_branch=true_branch, false_branch=false_branch)
        return self._with_sinfo(node, infer.infer_if(node, self.out.ctx), "DER-10", original)

    def _with_sinfo(self, node: N, sinfo: rx.StructInfo, rule: str, original: rx.Expr) -> N:
        """The node with the derived struct info: itself if it has that already."""
        if node.struct_info == sinfo:
            return node
        self._check_annotation(original, sinfo, rule)
        return replace(node, struct_info=sinfo)

    def _check_annotation(self, node: rx.Expr, derived: rx.StructInfo, rule: str) -> None:
        """Report a node that declares more than the derived struct info."""
        if self._stronger is None or node.struct_info is None:
            return
        declared = self.renamed(node.struct_info)
        ctx = self.out.ctx
        if not is_base_of(over_sizes_info(declared, ctx.sizes), derived, ctx.shape_vars):
            self._stronger.add(node, declared, derived, rule)

    def sequence(self, seq: rx.SeqExpr, params: Sequence[rx.Var] = ()) -> rx.SeqExpr:
        """`seq` in normal form (NF-5, NF-6, NF-12, NF-13), where `params` are in scope."""
        if not self._shape_vars and self.out.is_finished(seq):
            return seq
        outer = self._visits
        self._visits = VisitBudget(seq) if outer is None else outer
        self._visits.spend(_VISIT_COST)
        try:
            with self.out.dropping_scopes():
                self.out.open_scope(params)
                self._blocks(seq.blocks)
                result = self.out.close_scope(self.leaf(seq.body), seq)
            self._check_annotation(seq, self.out.ctx.sinfo_of(result), "DER-13")
            return result
        finally:
            self._visits = outer

    def _blocks(self, blocks: Sequence[rx.BindingBlock]) -> None:
        """Write the bindings of blocks that are not inside a dataflow block."""
        for block in blocks:
            if not block.bindings:
                continue
            if isinstance(block, rx.DataflowBlock):
                self.out.begin_dataflow(block)
                try:
                    self._bindings(block.bindings)
                finally:
                    self.out.end_dataflow()
            else:
                self.out.begin_block(block)
                self._bindings(block.bindings)

    def _bindings(self, bindings: Sequence[rx.Binding]) -> None:
        for binding in bindings:
            try:
                self.binding(binding)
            except RelaxpyError as error:
                error.located(binding.value.span or binding.span)
                raise

    def flatten(self, seq: rx.SeqExpr, *, is_copy: bool = True) -> rx.Expr:
        """The value of a nested SeqExpr, after its bindings (NF-14, NF-15, NF-16, NF-23).

        A SeqExpr that is not a copy keeps the shape variables that it binds.
        """
        scope = self.out.scope
        blocks = [block for block in seq.blocks if block.bindings]
        outer = self._shape_vars
        renamed = self._moved_shape_vars(blocks) if is_copy else {}
        self._shape_vars = {**outer, **renamed} if renamed else outer
        try:
            if not scope.dataflow:
                self._blocks(blocks)
            else:
                for block in blocks:
                    if not isinstance(block, rx.DataflowBlock):
                        raise WellFormedError(
                            "an ordinary binding block is inside a dataflow block",
                            rule="NF-15",
                            span=block.bindings[0].span or block.span or seq.span,
                            hint="begin the inner bindings with R.dataflow(), too",
                        )
                    self._bindings(block.bindings)
            return self._value(seq.body)
        finally:
            self._shape_vars = outer

    def _moved_shape_vars(self, blocks: Sequence[rx.BindingBlock]) -> dict[tir.Var, tir.PrimExpr]:
        """New shape variables for those that casts of a nested SeqExpr bind."""
        bound = [
            var
            for block in blocks
            for binding in block.bindings
            if isinstance(binding, rx.MatchCast)
            for var in definable_shape_vars(binding.struct_info)
            if self._shape_vars.get(var, var) not in self.out.ctx.shape_vars
        ]
        return {var: var.renamed(var.name) for var in bound}

    def binding(self, binding: rx.Binding) -> None:
        """Write one binding, after those that its value needs."""
        if (
            type(binding) is rx.VarBinding
            and self._is_derived(binding.value)
            and self.out.keep(binding)
        ):
            return
        var = declared = new = binding.var
        if var is not None and isinstance(binding.value, rx.Function):
            declared = self._declared_function(var, binding, binding.value)
        value = self.value(binding.value)
        if var is not None and declared is var:
            declared = self._declared(var)
        match binding:
            case rx.VarBinding():
                new = self.out.bind(value, declared, span=binding.span, origin=binding)
            case rx.MatchCast(struct_info=sinfo):
                new = self.out.cast(
                    value,
                    self.renamed(sinfo),
                    declared,
                    bind=var is not None,
                    span=binding.span,
                    origin=binding,
                )
            case _:
                assert_never(binding)
        if new is not var:
            self._vars[cast("rx.Var", var)] = cast("rx.Var", new)

    def _declared(self, var: rx.Var) -> rx.Var:
        """The variable with the variables in its annotation replaced."""
        if var.struct_info is None:
            return var
        sinfo = self.renamed(var.struct_info)
        return var if sinfo is var.struct_info else replace(var, struct_info=sinfo)

    def _declared_function(
        self, named: rx.Var, binding: rx.Binding, literal: rx.Function
    ) -> rx.Var:
        """The variable of a local function, which is visible in the function (DER-21, RES-42)."""
        var = self._declared(named)
        if var.struct_info is None and mentions(literal, named):
            if isinstance(binding, rx.MatchCast):
                sinfo = self.renamed(binding.struct_info)
            else:
                params = self._parameters(literal.params)
                ret = literal.ret_struct_info
                ret = None if ret is None else self.renamed(ret)
                sinfo = infer.signature_of(replace(literal, params=params, ret_struct_info=ret))
            var = replace(var, struct_info=sinfo)
        if var.struct_info is not None:
            if var is not named:
                self._vars[named] = var
            self.out.declare(var)
        return var

    def _parameter(self, param: rx.Var) -> rx.Var:
        sinfo = (
            rx.ObjectStructInfo() if param.struct_info is None else self.renamed(param.struct_info)
        )
        return param if sinfo is param.struct_info else replace(param, struct_info=sinfo)

    def function(self, func: rx.Function) -> rx.Function:
        """The function in normal form, with its struct info; itself if it is so already.

        Errors:
            StructInfoError, WellFormedError: an expression has no struct info or no normal form.
        """
        ctx = self.out.ctx
        suppress_warnings, ctx.suppress_warnings = (
            ctx.suppress_warnings,
            ctx.suppress_warnings or func.struct_info is not None,
        )
        try:
            result = self.out.finish_function(self._over_normal_body(func))
            if result is not func:
                self._check_annotation(func, self.out.ctx.sinfo_of(result), "DER-43")
            return result
        except RelaxpyError as error:
            error.located(func.body.span or func.span)
            raise
        finally:
            ctx.suppress_warnings = suppress_warnings

    def _over_normal_body(self, func: rx.Function) -> rx.Function:
        params = self._parameters(func.params)
        body = self.sequence(func.body, params)
        ret = None if func.ret_struct_info is None else self.renamed(func.ret_struct_info)
        if body is func.body and ret is func.ret_struct_info and all(map(is_, params, func.params)):
            return func
        return replace(func, params=params, body=body, ret_struct_info=ret, struct_info=None)

    def _parameters(self, params: Sequence[rx.Var]) -> tuple[rx.Var, ...]:
        """The parameters, each with struct info (DER-15); shapes refer to the new parameters."""
        new: dict[rx.Var, rx.Var] = {}
        for param in sorted(params, key=_mentions_variable):
            new[param] = self._parameter(param)
            if new[param] is not param:
                self._vars[param] = new[param]
        return tuple(new[p] for p in params)


@memoised
def _mentions_variable(param: rx.Var) -> bool:
    """True if the struct info of a parameter has a variable as a shape (RES-75)."""
    sinfo = param.struct_info
    return sinfo is not None and any(isinstance(node, rx.Var) for node in walk(sinfo))


def mentions(func: rx.Function, var: rx.Var) -> bool:
    """True if `var` occurs in `func`."""
    return any(node is var for node in walk(func))


def with_written_operands(
    call: rx.Call, out: Emitter, leaf: Callable[[rx.Expr], rx.Expr]
) -> rx.Call:
    """The call of a kernel with a tuple of operands instead of a variable that holds one.

    The operands are the fields of the tuple that the variable is bound to, if they are in scope;
    otherwise `leaf` binds each field of the variable.
    """
    packed = call.args[1] if len(call.args) > 1 else None
    if not isinstance(packed, rx.Var):
        return call
    sinfo = out.ctx.sinfo_of(packed)
    if not isinstance(sinfo, rx.TupleStructInfo):
        return call
    value, in_block = out.values.get(packed), isinstance(packed, rx.DataflowVar)
    if not isinstance(value, rx.Tuple) or not (
        in_block or not any(isinstance(field, rx.DataflowVar) for field in value.fields)
    ):
        items = (rx.TupleGetItem(packed, i, span=call.span) for i in range(len(sinfo.fields)))
        value = rx.Tuple(tuple(map(leaf, items)), span=packed.span)
    return replace(call, args=(call.args[0], value, *call.args[2:]))


def normalized_call(call: rx.Call, builder: BlockBuilder) -> rx.Expr:
    """The replacement of a normal-form call by its operator's FNormalize rule; itself to keep it.

    Errors:
        MisuseError: the rule does not return an expression.
    """
    op = call.op
    assert isinstance(op, Op)
    rule = op.record.normalize
    assert rule is not None
    result = apply_column(op.name, "normalisation", rule, builder=builder, call=call)
    if not isinstance(result, rx.Expr):
        raise unexpected(
            result, f"the normalisation of {op.name} returns an expression", span=call.span
        )
    if _is_same_call(result, call):
        return call
    if result.span is None and isinstance(result, rx.Call):
        return replace(result, span=call.span)
    return result


def _is_same_call(value: rx.Expr, call: rx.Call) -> bool:
    """True if a value is a call of the same operator with the same operands and attributes."""
    return (
        isinstance(value, rx.Call)
        and value.op is call.op
        and len(value.args) == len(call.args)
        and all(map(is_, value.args, call.args))
        and value.attrs == call.attrs
        and value.sinfo_args == call.sinfo_args
    )
