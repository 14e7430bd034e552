"""Bindings, blocks and scopes as they come into being: what builders write to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from relaxpy.errors import (
    BuilderStateError,
    MisuseError,
    RelaxpyError,
    Span,
    WellFormedError,
)
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.infer import (
    check_annotation,
    check_match_cast,
    check_pure_here,
    check_purity,
    function_info,
    is_pure_call,
)
from relaxpy.ir.relax.block_builder.signatures import Signatures
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    SeqExpr,
    StructInfo,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.nodes.base import check_name
from relaxpy.ir.relax.relations import (
    alpha_rename,
    definable_shape_vars,
    erase_to_well_defined,
)
from relaxpy.ir.relax.relations.context import Context, Except
from relaxpy.ir.tir import expr as tir

_EVERYTHING = Except(())


@dataclass(slots=True, eq=False)
class Block:
    """A block that is being filled; `origin` is the one it was read from, if that may come back."""

    dataflow: bool
    origin: BindingBlock | None
    bindings: list[Binding] = field(default_factory=list)

    def finish(self) -> BindingBlock:
        """The block, or the very one it was read from if its bindings are the same."""
        found = self.origin
        if found is not None and len(found.bindings) == len(self.bindings):
            pairs = zip(found.bindings, self.bindings, strict=True)
            if all(a is b for a, b in pairs):
                return found
        kind = DataflowBlock if self.dataflow else BindingBlock
        return kind(tuple(self.bindings), found.span if found is not None else None)


@dataclass(slots=True, eq=False)
class Scope:
    """What an open SeqExpr holds so far, and what leaves Δ and Σ when it ends.

    The user has `begun` it and is to end it; others end with the function or block they belong to.
    """

    blocks: list[Block] = field(default_factory=list)
    variables: list[Var] = field(default_factory=list)
    sizes: list[tir.Var] = field(default_factory=list)
    params: list[Var] = field(default_factory=list)
    own_sizes: list[tir.Var] = field(default_factory=list)
    dataflow: bool = False
    local: set[Var] = field(default_factory=set)
    outlasting: list[Var] = field(default_factory=list)
    impure: Call | None = None
    begun: bool = False


class Emitter:
    """Open scopes, the innermost last, and the context of derivation that goes with them.

    One that `remembers` binds each expression once: `evaluated` has its variable, which is
    `unnamed` until a program names it. The expression that was evaluated last is `deferred`: it is
    bound before anything else is, or as the value that is bound next. Python code may hold one that
    is `shared`.
    """

    def __init__(self, mod: IRModule, signatures: Signatures) -> None:
        self.ctx = Context(signatures=signatures, find_function=mod.find_function)
        self.scopes: list[Scope] = []
        self.remembers = False
        self.evaluated: dict[Expr, Var] = {}
        self.unnamed: set[Var] = set()
        self.deferred: Expr | None = None
        self.shared = False
        self.values: dict[Var, Expr] = {}
        self._finished: dict[SeqExpr, Call | None] = {}
        self._names: dict[str, int] = {}

    @property
    def scope(self) -> Scope:
        """The innermost scope.

        Errors:
            BuilderStateError (also RuntimeError): there is none.
        """
        if not self.scopes:
            raise BuilderStateError(
                "nothing can be bound outside a function",
                hint="open one: with bb.function(name, params): ...",
            )
        return self.scopes[-1]

    def unique_name(self, prefix: str) -> str:
        """`prefix`, with a number behind it if the builder has given it out before."""
        check_name(prefix, "the name of a variable")
        name = prefix.replace(".", "_")
        count = self._names.get(name)
        if count is None:
            self._names[name] = 0
            return name
        candidate = name
        while candidate in self._names:
            count += 1
            candidate = f"{name}{count}"
        self._names[name] = count
        self._names[candidate] = 0
        return candidate

    def open_scope(self, params: Sequence[Var] = (), sizes: Iterable[tir.Var] = ()) -> None:
        """Begin a SeqExpr; `params` and what their infos bind, and `sizes`, are visible in it.

        Errors:
            MisuseError: a parameter is none, or has no info; nothing is begun then.
        """
        self.flush()
        self.scopes.append(Scope())
        try:
            self.add_params(params, sizes)
        except MisuseError:
            self.drop_scope()
            raise

    def add_params(self, params: Sequence[Var], sizes: Iterable[tir.Var] = ()) -> None:
        """Make parameters, and shape variables that are new in them, visible (DER-15, DER-16)."""
        scope = self.scope
        infos = []
        for param in params:
            if not isinstance(param, Var):
                raise MisuseError(
                    f"a parameter is a Var, found {type(param).__name__} {param!r:.60}",
                    rule="AST-11",
                    about=param,
                )
            if param.struct_info is None:
                raise MisuseError(f"parameter {param.name_hint} has no info", rule="DER-15")
            infos.append(param.struct_info)
        scope.params += params
        self.ctx.variables.update(params)
        self._add_sizes((*sizes, *definable_shape_vars(*infos)), scope.own_sizes)
        for param in params:
            self._keep_own_sizes(param)

    def _add_sizes(self, sizes: Iterable[tir.Var], log: list[tir.Var]) -> None:
        known = self.ctx.sizes
        for size in sizes:
            if size not in known:
                known.add(size)
                log.append(size)

    def close_scope(self, result: Expr, original: SeqExpr | None = None) -> SeqExpr:
        """End the SeqExpr with `result`, a leaf; `original` itself if that is what it amounts to.

        Its info is erased to what remains in scope (DER-13, DER-14); parameters still count.
        """
        self.flush()
        scope = self.scope
        if scope.dataflow:
            raise BuilderStateError("the scope ends inside a dataflow block")
        info = self.ctx.info_of(result)
        info = erase_to_well_defined(info, Except(scope.variables), Except(scope.sizes))
        blocks = tuple(b.finish() for b in scope.blocks if b.bindings)
        seq = original
        if (
            seq is None
            or seq.body is not result
            or seq.struct_info != info
            or len(blocks) != len(seq.blocks)
            or any(a is not b for a, b in zip(blocks, seq.blocks, strict=True))
        ):
            span = original.span if original is not None else result.span
            seq = SeqExpr(blocks, result, struct_info=info, span=span)
        self._finished[seq] = scope.impure
        self.drop_scope()
        return seq

    def drop_scope(self) -> None:
        """Leave the innermost scope and forget what was put into it."""
        self.deferred = None
        scope = self.scopes.pop()
        self.ctx.variables.difference_update(scope.variables, scope.params)
        self.ctx.sizes.difference_update(scope.sizes, scope.own_sizes)
        if not self.scopes:
            self.evaluated.clear()
            self.unnamed.clear()

    def is_finished(self, seq: SeqExpr) -> bool:
        """Whether `seq` was built here, so that nothing is left to be done."""
        return seq in self._finished

    def begin_dataflow(self, origin: BindingBlock | None = None) -> None:
        """Begin a DataflowBlock, or go on with one that has just ended (NF-9)."""
        self.flush()
        scope = self.scope
        if scope.dataflow:
            raise BuilderStateError("a dataflow block cannot stand inside another")
        scope.dataflow = True
        self._block(scope, origin)

    def end_dataflow(self) -> None:
        """End the DataflowBlock; its DataflowVars leave Δ (DER-12)."""
        scope = self.scope
        if not scope.dataflow:
            raise BuilderStateError("there is no dataflow block to end")
        self.flush()
        scope.dataflow = False
        self.ctx.variables.difference_update(scope.local)
        for var in scope.outlasting:
            del self.ctx.infos[var]
            self._keep_own_sizes(var)
        scope.local, scope.outlasting = set(), []

    def begin_block(self, origin: BindingBlock) -> None:
        """Begin an ordinary block, or go on with one (NF-8)."""
        self._block(self.scope, origin)

    def _block(self, scope: Scope, origin: BindingBlock | None = None) -> Block:
        """The block for the next binding, the last one if it fits (NF-8, NF-9, NF-10, NF-11)."""
        while scope.blocks and not scope.blocks[-1].bindings:
            scope.blocks.pop()
        if not scope.blocks or scope.blocks[-1].dataflow is not scope.dataflow:
            scope.blocks.append(Block(scope.dataflow, origin))
        return scope.blocks[-1]

    def _append(self, scope: Scope, binding: Binding) -> None:
        blocks = scope.blocks
        if blocks and blocks[-1].dataflow is scope.dataflow:
            blocks[-1].bindings.append(binding)
        else:
            self._block(scope).bindings.append(binding)
        var = binding.var
        if var is None:
            return
        scope.variables.append(var)
        self.ctx.variables.add(var)
        self._keep_own_sizes(var)
        self.values[var] = binding.value
        if scope.dataflow and isinstance(var, DataflowVar):
            scope.local.add(var)

    def _note_effects(self, value: Expr, scope: Scope) -> None:
        """PU-5 inside a dataflow block; elsewhere remember the first impure call (PU-15, PU-16)."""
        if isinstance(value, Call):
            if scope.dataflow:
                check_pure_here(value, self.ctx)
            elif scope.impure is None and not is_pure_call(value, self.ctx):
                scope.impure = value
        elif isinstance(value, If) and scope.impure is None:
            for branch in (value.true_branch, value.false_branch):
                scope.impure = scope.impure or self._finished.get(branch)

    # --- values that are evaluated before they are bound

    def defer(self, value: Expr, *, shared: bool) -> None:
        """Let `value`, in normal form and derived, be the next to be bound."""
        self.flush()
        self.deferred, self.shared = value, shared

    def flush(self) -> Var | None:
        """Bind what is deferred; the variable, or None if nothing is.

        Errors:
            StructInfoError: it is an impure call in a dataflow block.
        """
        value, self.deferred = self.deferred, None
        if value is None:
            return None
        try:
            return self.bind(value, span=value.span)
        except RelaxpyError as error:
            error.located(value.span)
            raise

    def _settled(self, value: Expr, *, changes: bool) -> Expr:
        """What to bind for `value`, with what was evaluated before it bound before it.

        A variable of its own, where Python code holds the value and the binding `changes` its info.
        """
        deferred = self.deferred
        if deferred is None:
            return value
        if deferred is value and not (changes and self.shared):
            self.deferred = None
            return value
        var = self.flush()
        return var if deferred is value and var is not None else value

    def remember(self, value: Expr, var: Var) -> None:
        """Note the variable to which `value` is bound."""
        if isinstance(value, (Call, TupleGetItem, If, Function)):
            self.evaluated[value] = var

    def known(self, value: Expr) -> Expr | None:
        """The variable to which `value` is bound, or itself if that is about to happen.

        Errors:
            WellFormedError: it is an impure call whose variable is not visible here.
        """
        if value is self.deferred:
            return value
        var = self.evaluated.get(value)
        if var is None or var in self.ctx.variables:
            return var
        if isinstance(value, Call) and not is_pure_call(value, self.ctx):
            raise WellFormedError(
                "the result of this call is not visible here: the branch or function that makes"
                " the call has ended",
                rule="WF-24",
                span=value.span,
                hint="bind it before the branch, or return it from the branch",
            )
        return None

    def bind(
        self,
        value: Expr,
        var: Var | None = None,
        *,
        hint: str = "",
        output: bool = False,
        span: Span | None = None,
        origin: VarBinding | None = None,
    ) -> Var:
        """Bind `value`, in normal form and derived, to `var` or to a new variable, and return it.

        The struct info of a given variable is its annotation (DER-18, DER-19, DER-20); a variable
        without is built anew. `origin` is the binding this one was read from, used again if nothing
        has changed.

        Errors:
            StructInfoError: the value does not fit the annotation, or is an impure call in a
                dataflow block.
        """
        scope = self.scope
        annotated = var is not None and var.struct_info is not None
        value = self._settled(value, changes=annotated)
        self._note_effects(value, scope)
        info = self.ctx.info_of(value)
        rule = "DER-22" if isinstance(value, Function) else "DER-18"
        is_unnamed = var is None and not hint
        var = self._variable(scope, var, info, value, hint, rule, output=output, span=span)
        if self.remembers and not annotated:
            self.remember(value, var)
            if is_unnamed:
                self.unnamed.add(var)
        if origin is None or origin.var is not var or origin.value is not value:
            origin = VarBinding(var, value, span)
        self._append(scope, origin)
        return var

    def cast(
        self,
        value: Expr,
        info: StructInfo,
        var: Var | None = None,
        *,
        bind: bool = True,
        hint: str = "",
        output: bool = False,
        span: Span | None = None,
        origin: MatchCast | None = None,
    ) -> Var | None:
        """Cast `value`, in normal form and derived, to `info`; without `bind` only check it.

        Errors:
            StructInfoError: the variable's annotation does not admit `info` (DER-25).
        """
        scope = self.scope
        value = self._settled(value, changes=True)
        self._note_effects(value, scope)
        check_match_cast(value, info, self.ctx)
        self._add_sizes(definable_shape_vars(info), scope.sizes)
        if bind:
            found = self._variable(
                scope, var, info, value, hint, "DER-25", output=output, span=span
            )
            if self.remembers and var is None and not hint:
                self.unnamed.add(found)
        else:
            found = None
        same = origin is not None and origin.value is value and origin.struct_info is info
        if origin is None or not same or origin.var is not found:
            origin = MatchCast(found, value, info, span)
        self._append(scope, origin)
        return found

    def _variable(
        self,
        scope: Scope,
        var: Var | None,
        info: StructInfo,
        value: Expr,
        hint: str,
        rule: str,
        *,
        output: bool,
        span: Span | None,
    ) -> Var:
        """The variable to bind: `var` where it can stay, with its info checked or filled in.

        DER-12: one that outlives its dataflow block does not mention what ends there, though inside
        the block more is known of it.
        """
        local = scope.dataflow and not output if var is None else isinstance(var, DataflowVar)
        annotation = None if var is None else var.struct_info
        if var is not None and annotation is not None:
            if annotation is not info:
                check_annotation(var.name_hint, rule, info, annotation, about=value, ctx=self.ctx)
            info = annotation
        kept = info
        if scope.local and not local:
            kept = erase_to_well_defined(info, Except(scope.local), _EVERYTHING)
        if var is None:
            var = self.new_variable(hint, kept, output=output, span=span)
        elif annotation is None:
            var = type(var)(var.name_hint, kept, var.span)
        elif kept is not annotation:
            var = replace(var, struct_info=kept)
        if kept is not info:
            self.ctx.infos[var] = info
            scope.outlasting.append(var)
        return var

    def new_variable(
        self, hint: str, info: StructInfo, *, output: bool = False, span: Span | None = None
    ) -> Var:
        """A variable of the kind that the open block binds, under a name of its own."""
        if self.scope.dataflow and not output:
            return DataflowVar(self.unique_name(hint or "lv"), info, span)
        return Var(self.unique_name(hint or "gv"), info, span)

    def finish_function(self, func: Function) -> Function:
        """`func`, its body being finished, with its info; itself if it has that already.

        Errors:
            StructInfoError: the result does not fit its annotation (DER-45), or a function declared
                pure makes an impure call (PU-8).
        """
        with self._signature_sizes(func.params):
            check_purity(func, self._finished[func.body])
            body = self.ctx.info_of(func.body)
            ret = func.ret_struct_info
            if ret is None:
                ret = body
            else:
                check_annotation("the result", "DER-45", body, ret, about=func.body, ctx=self.ctx)
            info = function_info(func, ret)
        return func if func.struct_info == info else replace(func, struct_info=info)

    @contextmanager
    def _signature_sizes(self, params: Sequence[Var]) -> Iterator[None]:
        added: list[tir.Var] = []
        infos = [p.struct_info or ObjectStructInfo() for p in params]
        self._add_sizes(definable_shape_vars(*infos), added)
        try:
            yield
        finally:
            self.ctx.sizes.difference_update(added)

    def declare(self, var: Var) -> None:
        """Make `var` visible before it is bound, as a function that calls itself needs (DER-21)."""
        self.ctx.variables.add(var)
        self._keep_own_sizes(var)

    def _keep_own_sizes(self, var: Var) -> None:
        """DER-51: what Func infos of a variable own stays their own, whatever is bound later on."""
        info = var.struct_info
        if isinstance(info, (FuncStructInfo, TupleStructInfo)) and var not in self.ctx.infos:
            renamed = alpha_rename(info, self.ctx.sizes)
            if renamed is not info:
                self.ctx.infos[var] = renamed

    def declare_global(self, name: str, info: StructInfo) -> None:
        """Enter the signature of a function of the module; what it owns stays its own (DER-51)."""
        self.ctx.signatures[name] = info
        self.ctx.apart.pop(name, None)
