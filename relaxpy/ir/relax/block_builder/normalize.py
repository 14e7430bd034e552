"""Normal form: expressions of any shape become leaves and bindings (NF), derived on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never, cast

from relaxpy.errors import RelaxpyError, WellFormedError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.sharing import VisitBudget
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax.block_builder.claims import FalseClaims
from relaxpy.ir.relax.block_builder.emitter import Emitter
from relaxpy.ir.relax.block_builder.infer import (
    infer_call,
    infer_if,
    infer_tuple_get_item,
    is_pure_call,
    signature_of,
)
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    within_size_limit,
)
from relaxpy.ir.relax.nodes.base import set_fields
from relaxpy.ir.relax.op.registry import find
from relaxpy.ir.relax.relations import definable_shape_vars, is_base_of
from relaxpy.ir.relax.relations.compatibility import shape_rank
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute

S = TypeVar("S", bound=StructInfo)
N = TypeVar("N", Call, If, TupleGetItem)

ATOMS: frozenset[type] = frozenset(
    (Var, DataflowVar, GlobalVar, Constant, ShapeExpr, PrimValue, StringImm, DataTypeImm)
)
_VARIABLES = frozenset((Var, DataflowVar))
# What a sequence costs beside a look at a node.
_SLOW = 16


def is_leaf(expr: Expr) -> bool:
    """NF-1, NF-3: a variable, a literal, or a tuple of leaves."""
    waiting = [expr]
    seen: set[Tuple] = set()
    while waiting:
        found = waiting.pop()
        if type(found) is Tuple:
            if found not in seen:
                seen.add(found)
                waiting += found.fields
        elif type(found) not in ATOMS:
            return False
    return True


def is_callee(call: Call, index: int) -> bool:
    """NF-4: whether argument `index` is what the operator calls, which need not be bound."""
    if index or not isinstance(call.op, Op):
        return False
    kind = call.op.record.calls
    return kind is not None and kind.callee_is_operand


def is_normal_value(expr: Expr) -> bool:
    """NF-2, NF-4, NF-13: a leaf, or a non-leaf whose immediate parts are leaves."""
    match expr:
        case Call(op=op, args=args):
            if not (type(op) in ATOMS or isinstance(op, (Op, ExternFunc))):
                return False
            return all(
                is_leaf(a) or (isinstance(a, ExternFunc) and is_callee(expr, i))
                for i, a in enumerate(args)
            )
        case TupleGetItem(tuple_value=value):
            return is_leaf(value)
        case If(cond=cond):
            return is_leaf(cond)
        case Function() | ExternFunc():
            return True
        case _:
            return is_leaf(expr)


def _stays(value: Expr) -> bool:
    """Whether a value in normal form is a leaf: the fields of such a tuple are."""
    return type(value) in ATOMS or type(value) is Tuple


@dataclass(slots=True, eq=False)
class _Pending:
    """An expression whose parts are being made leaves, those done so far in order."""

    node: Expr
    parts: Sequence[Expr]
    done: list[Expr] = field(default_factory=list)


class Normalizer:
    """Writes expressions to an emitter in normal form, each with its info.

    Variables without info are built anew with it, and so are parameters; `_vars` says what stands
    for them, `_sizes` what shape variables of moved bindings became (NF-23).

    The struct info that a node declares is replaced by the derived one. Where it promises more than
    that, `false_claims` reports it.
    """

    def __init__(self, emitter: Emitter, false_claims: FalseClaims | None = None) -> None:
        self.out = emitter
        self._false_claims = false_claims
        self._vars: dict[Var, Var] = {}
        self._sizes: dict[tir.Var, tir.PrimExpr] = {}
        self._visits: VisitBudget | None = None
        #: Enters a public function that an operand is into the module, if there is one.
        self.enter: Callable[[BaseFunc, str], GlobalVar] | None = None

    def value(self, expr: Expr) -> Expr:
        """`expr` as the value of a binding; what it needs bound before it is bound.

        Errors:
            StructInfoError, WellFormedError: it has no info, or no normal form.
        """
        if self.out.remembers:
            known = self.out.known(expr)
            if known is not None:
                return known
        if type(expr) is Call and self._is_final(expr):
            return self._derive_call(expr, expr)
        return self._atom(expr) if type(expr) in ATOMS else self._value(expr)

    def leaf(self, expr: Expr) -> Expr:
        """`expr` as a leaf: bound to a fresh variable if it is none (NF-12, NF-13)."""
        value = self.value(expr)
        return value if _stays(value) else self.out.bind(value, span=expr.span)

    def _is_final(self, call: Call) -> bool:
        """Whether nothing but its own info is missing from a call, as is the case for most."""
        if self._sizes or (self._vars and call.sinfo_args):
            return False
        op = call.op
        called = type(op) is Op or type(op) is ExternFunc or self._are_final((op,))
        return called and self._are_final(call.args)

    def _are_final(self, args: tuple[Expr, ...]) -> bool:
        """Whether these are leaves, with infos, for which nothing else stands."""
        ctx, replaced = self.out.ctx, self._vars
        for arg in args:
            kind = type(arg)
            if kind in _VARIABLES:
                if arg.struct_info is None or (ctx.closed and arg not in ctx.variables):
                    return False
                if replaced and arg in replaced:
                    return False
            elif kind is Tuple:
                if arg.struct_info is None or not self._are_final(cast("Tuple", arg).fields):
                    return False
            elif kind not in ATOMS:
                return False
        return True

    def _value(self, root: Expr) -> Expr:
        """Operands first: the callee, then arguments from left to right (NF-17); no recursion.

        What `bound` holds are pure calls and tuples that an operand was before: where the very same
        node stands again, it is the same value as long as nothing impure has been done in between.
        An impure call is made at each of its places, of which there may be too many.
        """
        stack: list[_Pending] = []
        bound: dict[Expr, Expr] = {}
        visits = VisitBudget(root)
        value = self._begin(root, stack)
        while stack:
            top = stack[-1]
            if value is not None:
                top.done.append(self._operand(top, value, bound))
                if not bound:
                    visits.spend(_SLOW)
            if len(top.done) < len(top.parts):
                part = top.parts[len(top.done)]
                value = bound.get(part)
                if value is None and self.out.remembers:
                    value = self.out.known(part)
                if value is None and isinstance(part, BaseFunc):
                    value = self._global_var(part)
                if value is None:
                    value = self._begin(part, stack)
            else:
                stack.pop()
                value = self._finish(top)
        assert value is not None
        return value

    def _global_var(self, func: BaseFunc) -> GlobalVar | None:
        """What an operand that is a public function becomes, where there is a module to enter."""
        symbol = func.attrs.get("global_symbol")
        if self.enter is None or not isinstance(symbol, str) or isinstance(func, ExternFunc):
            return None
        return self.enter(func, symbol)

    def _begin(self, expr: Expr, stack: list[_Pending]) -> Expr | None:
        """The value of an expression without parts, or None when its parts are on the stack."""
        match expr:
            case Call(op=op, args=args):
                stays = isinstance(op, (Op, ExternFunc))
                stack.append(_Pending(expr, args if stays else (cast("Expr", op), *args)))
            case Tuple(fields=fields):
                stack.append(_Pending(expr, fields))
            case TupleGetItem(tuple_value=value):
                stack.append(_Pending(expr, (value,)))
            case If(cond=cond):
                stack.append(_Pending(expr, (cond,)))
            case SeqExpr():
                return self._flatten(expr)
            case Function():
                return self.function(expr)
            case _:
                return self._atom(expr)
        return None

    def _operand(self, top: _Pending, value: Expr, bound: dict[Expr, Expr]) -> Expr:
        """A finished part of `top` as a leaf; callees that need no binding stay (NF-4)."""
        index = len(top.done)
        node, part = top.node, top.parts[index]
        if isinstance(part, SeqExpr):
            bound.clear()
        if _stays(value):
            if type(value) is Tuple:
                bound[part] = value
            return value
        if isinstance(value, ExternFunc) and isinstance(node, Call) and is_callee(node, index):
            return value
        var = self.out.bind(value, span=part.span)
        if self.out.remembers:
            self.out.remember(part, var)
        if isinstance(part, (Call, TupleGetItem)):
            if not isinstance(value, Call) or is_pure_call(value, self.out.ctx):
                bound[part] = var
            else:
                bound.clear()
        elif not isinstance(value, (Function, ExternFunc)):
            bound.clear()
        return var

    def _finish(self, top: _Pending) -> Expr:
        node, done = top.node, top.done
        same = all(a is b for a, b in zip(done, top.parts, strict=True))
        match node:
            case Call():
                infos = tuple(self.info(s) for s in node.sinfo_args)
                if not same or any(a is not b for a, b in zip(infos, node.sinfo_args, strict=True)):
                    callee, args = node.op, done
                    if len(done) > len(node.args):
                        callee, args = done[0], done[1:]
                    node = replace(node, op=callee, args=tuple(args), sinfo_args=infos)
                return self._derive_call(node, top.node)
            case Tuple():
                if same and node.has_field_infos:
                    return node
                fields = within_size_limit(
                    TupleStructInfo(tuple(self.out.ctx.info_of(f) for f in done))
                )
                self._check_claim(node, fields, "DER-5")
                return replace(node, fields=tuple(done), struct_info=fields)
            case TupleGetItem():
                info = infer_tuple_get_item(done[0], node.index, node.span, self.out.ctx)
                if not same:
                    node = replace(node, tuple_value=done[0])
                return self._with_info(node, info, "DER-33", top.node)
            case If():
                return self._branches(node, done[0])
            case _:
                raise AssertionError(f"{type(node).__name__} has no parts")

    def _derive_call(self, call: Call, original: Expr) -> Expr:
        """The call with its info; what depends on the operands alone is not derived twice."""
        op = call.op
        found = find(op) if type(op) is Op else None
        if not call.info_is_derived or found is None or found.needs_context:
            rule = "DER-35" if type(op) is Op else "DER-42"
            call = self._with_info(call, infer_call(call, self.out.ctx), rule, original)
            set_fields(call, info_is_derived=True)
        if found is not None and found.record.literal:
            info = call.struct_info
            if isinstance(info, PrimStructInfo) and info.value is not None:
                return PrimValue(info.value, span=call.span)
        return call

    def _atom(self, expr: Expr) -> Expr:
        """A variable or literal, with what stands for its variables."""
        if isinstance(expr, Var):
            found = self._vars.get(expr, expr)
            self.out.ctx.info_of(found)
            return found
        if self._sizes and isinstance(expr, ShapeExpr):
            values = tuple(substitute(v, self._sizes) for v in expr.values)
            changed = any(a is not b for a, b in zip(values, expr.values, strict=True))
            return ShapeExpr(values, span=expr.span) if changed else expr
        if self._sizes and isinstance(expr, PrimValue):
            value = substitute(expr.value, self._sizes)
            return expr if value is expr.value else PrimValue(value, span=expr.span)
        if not isinstance(expr, GlobalVar):
            self.out.ctx.info_of(expr)
        return expr

    def info(self, info: S) -> S:
        """An annotation, with what stands for its variables."""
        if not self._vars and not self._sizes:
            return info

        def rule(found: Node) -> Node | None:
            if isinstance(found, Var):
                return self._vars.get(found)
            if isinstance(found, tir.Var):
                return self._sizes.get(found)
            if isinstance(found, TensorStructInfo) and found.ndim == -1 != shape_rank(found):
                # A shape variable that had no info when `ndim` was left out (SI-11).
                return replace(found, ndim=shape_rank(found))
            return None

        return cast("S", rewrite(info, rule))

    def _branches(self, node: If, cond: Expr) -> Expr:
        """NF-7, NF-18: each branch is a SeqExpr of its own, with what it needs bound inside."""
        true_branch = self.sequence(node.true_branch)
        false_branch = self.sequence(node.false_branch)
        original = node
        if (
            cond is not node.cond
            or true_branch is not node.true_branch
            or false_branch is not node.false_branch
        ):
            node = replace(node, cond=cond, true_branch=true_branch, false_branch=false_branch)
        return self._with_info(node, infer_if(node, self.out.ctx), "DER-10", original)

    def _with_info(self, node: N, info: StructInfo, rule: str, original: Expr) -> N:
        """The node with the derived struct info: itself if it has an equal one."""
        if node.struct_info == info:
            return node
        self._check_claim(original, info, rule)
        return replace(node, struct_info=info)

    def _check_claim(self, node: Expr, derived: StructInfo, rule: str) -> None:
        """Report the struct info that a node declares where it promises more than the derived."""
        if self._false_claims is None or node.struct_info is None:
            return
        declared = self.info(node.struct_info)
        if not is_base_of(declared, derived, self.out.ctx.sizes):
            self._false_claims.add(node, declared, derived, rule)

    def sequence(self, seq: SeqExpr, params: Sequence[Var] = ()) -> SeqExpr:
        """`seq` in normal form (NF-5, NF-6, NF-12, NF-13), where `params` are in scope."""
        if not self._sizes and self.out.is_finished(seq):
            return seq
        outer = self._visits
        self._visits = VisitBudget(seq) if outer is None else outer
        self._visits.spend(_SLOW)
        depth = len(self.out.scopes)
        self.out.open_scope(params)
        try:
            self._blocks(seq.blocks)
            found = self.out.close_scope(self.leaf(seq.body), seq)
            self._check_claim(seq, self.out.ctx.info_of(found), "DER-13")
            return found
        finally:
            self._visits = outer
            while len(self.out.scopes) > depth:
                self.out.drop_scope()

    def _blocks(self, blocks: Sequence[BindingBlock]) -> None:
        """The bindings of blocks that do not stand inside a dataflow block."""
        for block in blocks:
            if not block.bindings:
                continue
            if isinstance(block, DataflowBlock):
                self.out.begin_dataflow(block)
                try:
                    self._bindings(block.bindings)
                finally:
                    self.out.end_dataflow()
            else:
                self.out.begin_block(block)
                self._bindings(block.bindings)

    def _bindings(self, bindings: Sequence[Binding]) -> None:
        for binding in bindings:
            try:
                self.binding(binding)
            except RelaxpyError as error:
                error.located(binding.value.span or binding.span)
                raise

    def _flatten(self, seq: SeqExpr) -> Expr:
        """NF-14, NF-15, NF-16, NF-23: the value of an inner SeqExpr, whose bindings move here."""
        scope = self.out.scope
        blocks = [block for block in seq.blocks if block.bindings]
        renamed = self._moved_sizes(blocks)
        outer = self._sizes
        self._sizes = {**outer, **renamed} if renamed else outer
        try:
            if not scope.dataflow:
                self._blocks(blocks)
            else:
                for block in blocks:
                    if not isinstance(block, DataflowBlock):
                        raise WellFormedError(
                            "an ordinary binding block stands inside a dataflow block",
                            rule="NF-15",
                            span=block.bindings[0].span or block.span or seq.span,
                            hint="begin the inner bindings with R.dataflow(), too",
                        )
                    self._bindings(block.bindings)
            return self._value(seq.body)
        finally:
            self._sizes = outer

    def _moved_sizes(self, blocks: Sequence[BindingBlock]) -> dict[tir.Var, tir.PrimExpr]:
        """New shape variables for those that moved casts bind: their scope was the old SeqExpr."""
        bound = [
            var
            for block in blocks
            for binding in block.bindings
            if isinstance(binding, MatchCast)
            for var in definable_shape_vars(binding.struct_info)
            if self._sizes.get(var, var) not in self.out.ctx.sizes
        ]
        return {var: var.renamed(var.name) for var in bound}

    def binding(self, binding: Binding) -> None:
        """Write one binding, after those that its value needs."""
        var = wanted = found = binding.var
        if var is not None and isinstance(binding.value, Function):
            wanted = self._declared_function(var, binding, binding.value)
        value = self.value(binding.value)
        if var is not None and wanted is var:
            wanted = self._declared(var)
        match binding:
            case VarBinding():
                found = self.out.bind(value, wanted, span=binding.span, origin=binding)
            case MatchCast(struct_info=info):
                found = self.out.cast(
                    value,
                    self.info(info),
                    wanted,
                    bind=var is not None,
                    span=binding.span,
                    origin=binding,
                )
            case _:
                assert_never(binding)
        if found is not var:
            self._vars[cast("Var", var)] = cast("Var", found)

    def _declared(self, var: Var) -> Var:
        """The variable with what stands for the variables in its annotation."""
        if var.struct_info is None:
            return var
        info = self.info(var.struct_info)
        return var if info is var.struct_info else replace(var, struct_info=info)

    def _declared_function(self, named: Var, binding: Binding, literal: Function) -> Var:
        """DER-21, RES-42: the variable of a function that may mention it, visible from here on."""
        var = self._declared(named)
        if var.struct_info is None and mentions(literal, named):
            if isinstance(binding, MatchCast):
                info = self.info(binding.struct_info)
            else:
                params = self._parameters(literal.params)
                ret = literal.ret_struct_info
                known = None if ret is None else self.info(ret)
                info = signature_of(replace(literal, params=params, ret_struct_info=known))
            var = replace(var, struct_info=info)
        if var.struct_info is not None:
            if var is not named:
                self._vars[named] = var
            self.out.declare(var)
        return var

    def _parameter(self, param: Var) -> Var:
        info = ObjectStructInfo() if param.struct_info is None else self.info(param.struct_info)
        return param if info is param.struct_info else replace(param, struct_info=info)

    def function(self, func: Function) -> Function:
        """A function in normal form, with its info; itself if it has been.

        Errors:
            StructInfoError, WellFormedError: some part has no info, or no normal form.
        """
        ctx = self.out.ctx
        suppress_warnings, ctx.suppress_warnings = (
            ctx.suppress_warnings,
            ctx.suppress_warnings or func.struct_info is not None,
        )
        try:
            found = self.out.finish_function(self._function_parts(func))
            if found is not func:
                self._check_claim(func, self.out.ctx.info_of(found), "DER-43")
            return found
        except RelaxpyError as error:
            error.located(func.body.span or func.span)
            raise
        finally:
            ctx.suppress_warnings = suppress_warnings

    def _function_parts(self, func: Function) -> Function:
        params = self._parameters(func.params)
        body = self.sequence(func.body, params)
        ret = None if func.ret_struct_info is None else self.info(func.ret_struct_info)
        if (
            body is func.body
            and ret is func.ret_struct_info
            and all(a is b for a, b in zip(params, func.params, strict=True))
        ):
            return func
        return replace(func, params=params, body=body, ret_struct_info=ret, struct_info=None)

    def _parameters(self, params: Sequence[Var]) -> tuple[Var, ...]:
        """DER-15: the parameters with an info each; what others' infos say of them follows."""
        found: dict[Var, Var] = {}
        for param in sorted(params, key=_names_a_variable):
            found[param] = self._parameter(param)
            if found[param] is not param:
                self._vars[param] = found[param]
        return tuple(found[p] for p in params)


def _names_a_variable(param: Var) -> bool:
    """Whether the info of a parameter has a variable as shape (RES-75)."""
    info = param.struct_info
    return info is not None and any(isinstance(node, Var) for node in walk(info))


def mentions(func: Function, var: Var) -> bool:
    """Whether `var` occurs in `func`."""
    return any(node is var for node in walk(func))
