"""The scopes, blocks and bindings of a program that is being built, with their struct info."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from operator import is_

from relaxpy.errors import BuilderStateError, MisuseError, RelaxpyError, Span, WellFormedError
from relaxpy.ir.core.node import set_fields
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder import infer
from relaxpy.ir.relax.block_builder.function_table import Signatures
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.ir.relax.relations import alpha_rename, definable_shape_vars, erase_to_well_defined
from relaxpy.ir.relax.relations.derivation import Context, Except
from relaxpy.ir.relax.relations.shape_vars import dimension_vars, known_inside
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.missing import described

_EVERYTHING = Except(())


@dataclass(slots=True, eq=False)
class Block:
    """A block that is being built; `origin` is the block that it may turn out to equal."""

    dataflow: bool
    origin: rx.BindingBlock | None
    bindings: list[rx.Binding] = field(default_factory=list)

    def finish(self) -> rx.BindingBlock:
        """The block: `origin` itself if the bindings are the same."""
        kind = rx.DataflowBlock if self.dataflow else rx.BindingBlock
        if self.origin is None:
            return kind(tuple(self.bindings))
        old = self.origin.bindings
        same = len(old) == len(self.bindings) and all(map(is_, old, self.bindings))
        return self.origin if same else kind(tuple(self.bindings), self.origin.span)


@dataclass(slots=True, eq=False)
class Scope:
    """The blocks of an open SeqExpr, and the variables that leave Δ and Σ when it ends.

    `sizes` are the shape variables that are known to be at least 0 until then.
    In the open dataflow block, `local` are the variables that end with it, and `erased` those that
    outlive it and of which less is known after it. The user ends a scope that `is_explicit`; any
    other ends with its function or block.
    """

    blocks: list[Block] = field(default_factory=list)
    variables: list[rx.Var] = field(default_factory=list)
    shape_vars: list[tir.Var] = field(default_factory=list)
    params: list[rx.Var] = field(default_factory=list)
    param_shape_vars: list[tir.Var] = field(default_factory=list)
    sizes: list[tir.Var] = field(default_factory=list)
    dataflow: bool = False
    local: set[rx.Var] = field(default_factory=set)
    erased: list[rx.Var] = field(default_factory=list)
    impure: rx.Call | None = None
    is_explicit: bool = False


class Emitter:
    """The open scopes, the innermost last, and the context in which expressions are derived.

    An emitter that `remembers` binds each expression once: `evaluated` has its variable, which is
    `unnamed` until a program names it. The expression that was evaluated last is `deferred`: it is
    bound before anything else is, or as the value that is bound next. Variables of Python may refer
    to an expression that is `shared`.
    """

    def __init__(self, mod: IRModule, signatures: Signatures) -> None:
        self.ctx = Context(signatures=signatures, find_function=mod.find_function)
        self.scopes: list[Scope] = []
        self.remembers = False
        self.evaluated: dict[rx.Expr, rx.Var] = {}
        self.unnamed: set[rx.Var] = set()
        self.deferred: rx.Expr | None = None
        self.shared = False
        #: The span of the calls that are bound and have none.
        self.location: Span | None = None
        self.values: dict[rx.Var, rx.Expr] = {}
        self._finished: dict[rx.SeqExpr, rx.Call | None] = {}
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
        """`prefix`, followed by a number if that name has been used before."""
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

    def open_scope(self, params: Sequence[rx.Var] = (), sizes: Iterable[tir.Var] = ()) -> None:
        """Begin a SeqExpr in which `params`, what they define, and `sizes` are visible.

        Errors:
            MisuseError: a parameter is not a Var, or has no struct info; nothing is begun then.
        """
        self.flush()
        self.scopes.append(Scope())
        try:
            self.add_params(params, sizes)
        except MisuseError:
            self.drop_scope()
            raise

    def add_params(self, params: Sequence[rx.Var], sizes: Iterable[tir.Var] = ()) -> None:
        """Make parameters, and shape variables that are new in them, visible (DER-15, DER-16)."""
        scope = self.scope
        sinfos = []
        for param in params:
            if not isinstance(param, rx.Var):
                raise MisuseError(
                    f"a parameter is a Var, found {described(param)}", rule="AST-11", about=param
                )
            if param.struct_info is None:
                raise MisuseError(f"parameter {param.name_hint} has no struct info", rule="DER-15")
            sinfos.append(param.struct_info)
        scope.params += params
        self.ctx.variables.update(params)
        self._add_shape_vars((*sizes, *definable_shape_vars(*sinfos)), scope.param_shape_vars)
        self._add_sizes(sinfos, scope.sizes)
        for param in params:
            self._rename_bound_shape_vars(param)

    def _add_shape_vars(self, sizes: Iterable[tir.Var], log: list[tir.Var]) -> None:
        known = self.ctx.shape_vars
        for size in sizes:
            if size not in known:
                known.add(size)
                log.append(size)

    def _add_sizes(self, sinfos: Iterable[rx.StructInfo], log: list[tir.Var]) -> None:
        """Note that a tensor has no dimension below 0, where a value has these struct infos."""
        known = self.ctx.sizes
        for size in dimension_vars(*sinfos):
            if size not in known:
                known.add(size)
                log.append(size)

    def close_scope(self, result: rx.Expr, original: rx.SeqExpr | None = None) -> rx.SeqExpr:
        """End the SeqExpr with `result`, a leaf, and return it: `original` if that is the same.

        Its struct info is erased to what remains in scope, parameters included (DER-13, DER-14).
        """
        self.flush()
        scope = self.scope
        if scope.dataflow:
            raise BuilderStateError("the scope ends inside a dataflow block")
        sinfo = self.ctx.sinfo_of(result)
        sinfo = erase_to_well_defined(sinfo, Except(scope.variables), Except(scope.shape_vars))
        blocks = tuple(b.finish() for b in scope.blocks if b.bindings)
        seq = original
        if (
            seq is None
            or seq.body is not result
            or seq.struct_info != sinfo
            or len(blocks) != len(seq.blocks)
            or not all(map(is_, blocks, seq.blocks))
        ):
            span = original.span if original is not None else result.span
            seq = rx.SeqExpr(blocks, result, struct_info=sinfo, span=span)
        self._finished[seq] = scope.impure
        self.drop_scope()
        return seq

    def drop_scope(self) -> None:
        """Leave the innermost scope and drop its bindings."""
        self.deferred = None
        scope = self.scopes.pop()
        self.ctx.variables.difference_update(scope.variables, scope.params)
        self.ctx.shape_vars.difference_update(scope.shape_vars, scope.param_shape_vars)
        self.ctx.sizes.difference_update(scope.sizes)
        if not self.scopes:
            self.evaluated.clear()
            self.unnamed.clear()

    @contextmanager
    def dropping_scopes(self) -> Iterator[None]:
        """Drop, at the end, the scopes that were opened inside and are still open."""
        depth = len(self.scopes)
        try:
            yield
        finally:
            while len(self.scopes) > depth:
                self.drop_scope()

    def is_finished(self, seq: rx.SeqExpr) -> bool:
        """True if this emitter built `seq`, which therefore is in normal form and derived."""
        return seq in self._finished

    def open_block(self, *, dataflow: bool, origin: rx.BindingBlock | None) -> None:
        """Begin a block outside any sequence; `origin` is returned if nothing changes."""
        self.scopes.append(Scope(dataflow=dataflow, blocks=[Block(dataflow, origin)]))

    def close_block(self) -> list[rx.BindingBlock]:
        """End the block that `open_block` began; blocks that its bindings split off precede it.

        Its variables stay visible in the enclosing scope, except for DataflowVars (SC-7, SC-8). A
        binding of a sequence that has blocks splits off blocks (NF-16).

        Errors:
            BuilderStateError: no block is open.
        """
        if not self.scopes or not self.scopes[-1].blocks:
            raise BuilderStateError("there is no block to end")
        ended = self.scopes.pop()
        self.ctx.variables.difference_update(ended.local)
        if self.scopes:
            self.scope.variables += (var for var in ended.variables if var not in ended.local)
            self.scope.shape_vars += ended.shape_vars
            self.scope.sizes += ended.sizes
        blocks = [block.finish() for block in ended.blocks if block.bindings]
        if blocks and isinstance(blocks[-1], rx.DataflowBlock) is ended.dataflow:
            return blocks
        return [*blocks, rx.DataflowBlock(()) if ended.dataflow else rx.BindingBlock(())]

    def begin_dataflow(self, origin: rx.BindingBlock | None = None) -> None:
        """Begin a DataflowBlock, or continue one that has just ended (NF-9)."""
        self.flush()
        scope = self.scope
        if scope.dataflow:
            raise BuilderStateError("a dataflow block cannot be inside another one")
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
        for var in scope.erased:
            del self.ctx.sinfo_by_var[var]
            self._rename_bound_shape_vars(var)
        scope.local, scope.erased = set(), []

    def begin_block(self, origin: rx.BindingBlock) -> None:
        """Begin an ordinary block, or continue one (NF-8)."""
        self._block(self.scope, origin)

    def _block(self, scope: Scope, origin: rx.BindingBlock | None = None) -> Block:
        """The block for the next binding: the last one if it fits (NF-8, NF-9, NF-10, NF-11)."""
        while scope.blocks and not scope.blocks[-1].bindings:
            scope.blocks.pop()
        if not scope.blocks or scope.blocks[-1].dataflow is not scope.dataflow:
            scope.blocks.append(Block(scope.dataflow, origin))
        return scope.blocks[-1]

    def _append(self, scope: Scope, binding: rx.Binding) -> None:
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
        self._rename_bound_shape_vars(var)
        self.values[var] = binding.value
        if scope.dataflow and isinstance(var, rx.DataflowVar):
            scope.local.add(var)

    def last_block(self) -> Block | None:
        """The last block of the innermost scope that has bindings, if it is an ordinary one."""
        block = next((b for b in reversed(self.scope.blocks) if b.bindings), None)
        return None if block is None or block.dataflow else block

    def unbind_last(self) -> None:
        """Drop the last binding of `last_block`, which binds a variable."""
        block = self.last_block()
        assert block is not None
        block.bindings.pop()
        self.ctx.variables.discard(self.scope.variables.pop())

    def _note_effects(self, value: rx.Expr, scope: Scope) -> None:
        """Check PU-5 in a dataflow block; elsewhere store the first impure call (PU-15, PU-16)."""
        if isinstance(value, rx.Call):
            if scope.dataflow:
                infer.check_pure_here(value, self.ctx)
            elif scope.impure is None and not infer.is_pure_call(value, self.ctx):
                scope.impure = value
        elif isinstance(value, rx.If) and scope.impure is None:
            for branch in (value.true_branch, value.false_branch):
                scope.impure = scope.impure or self._finished.get(branch)

    # --- values that are evaluated before they are bound

    def defer(self, value: rx.Expr, *, shared: bool) -> None:
        """Make `value`, in normal form and derived, the next value that is bound."""
        self.flush()
        self.deferred, self.shared = value, shared

    def flush(self) -> rx.Var | None:
        """Bind the deferred expression and return its variable; None if there is none.

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

    def _with_deferred_bound(self, value: rx.Expr, *, changes: bool) -> rx.Expr:
        """The value to bind for `value`, after the deferred expression is bound.

        If that is `value` itself, it is bound only once. But if variables of Python refer to it and
        the binding `changes` its struct info, it is bound first, and its variable is the value.
        """
        deferred = self.deferred
        if deferred is None:
            return value
        if deferred is value and not (changes and self.shared):
            self.deferred = None
            return value
        var = self.flush()
        return var if deferred is value and var is not None else value

    def remember(self, value: rx.Expr, var: rx.Var) -> None:
        """Store the variable to which `value` is bound."""
        if isinstance(value, (rx.Call, rx.TupleGetItem, rx.If, rx.Function)):
            self.evaluated[value] = var

    def bound_value(self, value: rx.Expr) -> rx.Expr | None:
        """The variable to which `value` is bound, or `value` itself if it is deferred.

        Errors:
            WellFormedError: it is an impure call whose variable is not visible here.
        """
        if value is self.deferred:
            return value
        var = self.evaluated.get(value)
        if var is None or var in self.ctx.variables:
            return var
        if isinstance(value, rx.Call) and not infer.is_pure_call(value, self.ctx):
            raise WellFormedError(
                "the result of this call is not visible here: the branch or function of the call "
                "has ended",
                rule="WF-24",
                span=value.span,
                hint="bind it before the branch, or return it from the branch",
            )
        return None

    def bind(
        self,
        value: rx.Expr,
        var: rx.Var | None = None,
        *,
        hint: str = "",
        output: bool = False,
        span: Span | None = None,
        origin: rx.VarBinding | None = None,
    ) -> rx.Var:
        """Bind `value`, in normal form and derived, to `var` or to a new variable, and return it.

        The struct info of `var` is its annotation (DER-18, DER-19, DER-20); a `var` without struct
        info is replaced. `origin` is reused if it is the same binding.

        Errors:
            StructInfoError: the value does not fit the annotation, or is an impure call in a
                dataflow block.
        """
        scope = self.scope
        changes = var is not None and var.struct_info not in (None, value.struct_info)
        value = self._with_deferred_bound(value, changes=changes)
        self._note_effects(value, scope)
        sinfo = self.ctx.sinfo_of(value)
        rule = "DER-22" if isinstance(value, rx.Function) else "DER-18"
        is_unnamed = var is None and not hint
        var = self._variable(scope, var, sinfo, value, hint, rule, output=output, span=span)
        if self.remembers and not changes:
            self.remember(value, var)
            if is_unnamed:
                self.unnamed.add(var)
        if self.location is not None and type(value) is rx.Call and value.span is None:
            set_fields(value, span=self.location)
        if origin is None or origin.var is not var or origin.value is not value:
            origin = rx.VarBinding(var, value, span)
        self._append(scope, origin)
        return var

    def keep(self, binding: rx.VarBinding) -> bool:
        """Bind a derived value again, unless its variable has another struct info.

        Errors:
            StructInfoError: it is an impure call in a dataflow block.
        """
        scope, var, value = self.scope, binding.var, binding.value
        if self.location is not None or var.struct_info != value.struct_info:
            return False
        if scope.local and not isinstance(var, rx.DataflowVar):
            return False  # it outlives variables that its struct info may mention
        self.flush()
        self._note_effects(value, scope)
        self._append(scope, binding)
        return True

    def cast(
        self,
        value: rx.Expr,
        sinfo: rx.StructInfo,
        var: rx.Var | None = None,
        *,
        bind: bool = True,
        hint: str = "",
        output: bool = False,
        span: Span | None = None,
        origin: rx.MatchCast | None = None,
    ) -> rx.Var | None:
        """Cast `value`, in normal form and derived, to `sinfo`; without `bind` only check it.

        Errors:
            StructInfoError: `sinfo` does not fit the annotation of the variable (DER-25).
        """
        scope = self.scope
        value = self._with_deferred_bound(value, changes=True)
        self._note_effects(value, scope)
        infer.check_match_cast(value, sinfo, self.ctx)
        span = span or self.location
        self._add_shape_vars(definable_shape_vars(sinfo), scope.shape_vars)
        self._add_sizes((sinfo,), scope.sizes)
        bound = None
        if bind:
            bound = self._variable(
                scope, var, sinfo, value, hint, "DER-25", output=output, span=span
            )
            if self.remembers and var is None and not hint:
                self.unnamed.add(bound)
        same = origin is not None and origin.value is value and origin.struct_info is sinfo
        if origin is None or not same or origin.var is not bound:
            origin = rx.MatchCast(bound, value, sinfo, span)
        self._append(scope, origin)
        return bound

    def _variable(
        self,
        scope: Scope,
        var: rx.Var | None,
        sinfo: rx.StructInfo,
        value: rx.Expr,
        hint: str,
        rule: str,
        *,
        output: bool,
        span: Span | None,
    ) -> rx.Var:
        """The variable to bind: `var` if it has the right struct info, or else a new one.

        DER-12: the struct info of a variable that outlives its dataflow block mentions no variable
        that ends there. Inside the block more is known of it.
        """
        local = scope.dataflow and not output if var is None else isinstance(var, rx.DataflowVar)
        annotation = None if var is None else var.struct_info
        if var is not None and annotation is not None:
            if annotation is not sinfo:
                infer.check_annotation(
                    var.name_hint, rule, sinfo, annotation, about=value, ctx=self.ctx
                )
            sinfo = annotation
        kept = sinfo
        if scope.local and not local:
            kept = erase_to_well_defined(sinfo, Except(scope.local), _EVERYTHING)
        if var is None:
            var = self.new_variable(hint, kept, output=output, span=span)
        elif annotation is None:
            var = type(var)(var.name_hint, kept, var.span)
        elif kept is not annotation:
            var = replace(var, struct_info=kept)
        if kept is not sinfo:
            self.ctx.sinfo_by_var[var] = sinfo
            scope.erased.append(var)
        return var

    def new_variable(
        self, hint: str, sinfo: rx.StructInfo, *, output: bool = False, span: Span | None = None
    ) -> rx.Var:
        """A variable of the kind that the open block binds, with a unique name."""
        if self.scope.dataflow and not output:
            return rx.DataflowVar(self.unique_name(hint or "lv"), sinfo, span)
        return rx.Var(self.unique_name(hint or "gv"), sinfo, span)

    def finish_function(self, func: rx.Function) -> rx.Function:
        """`func`, whose body is finished, with its struct info; itself if it has that already.

        Errors:
            StructInfoError: the result does not fit its annotation (DER-45), or a function that is
                declared pure makes an impure call (PU-8).
        """
        with self._shape_vars_of(func.params):
            infer.check_purity(func, self._finished[func.body])
            body = self.ctx.sinfo_of(func.body)
            ret = func.ret_struct_info
            if ret is None:
                ret = body
            else:
                infer.check_annotation(
                    "the result", "DER-45", body, ret, about=func.body, ctx=self.ctx
                )
            sinfo = infer.function_sinfo(func, ret)
        return func if func.struct_info == sinfo else replace(func, struct_info=sinfo)

    @contextmanager
    def _shape_vars_of(self, params: Sequence[rx.Var]) -> Iterator[None]:
        added: list[tir.Var] = []
        sinfos = [p.struct_info or rx.ObjectStructInfo() for p in params]
        self._add_shape_vars(definable_shape_vars(*sinfos), added)
        try:
            with known_inside(self.ctx.sizes, *sinfos):
                yield
        finally:
            self.ctx.shape_vars.difference_update(added)

    def declare(self, var: rx.Var) -> None:
        """Make `var` visible before it is bound: a function may call itself (DER-21)."""
        self.ctx.variables.add(var)
        self._rename_bound_shape_vars(var)

    def _rename_bound_shape_vars(self, var: rx.Var) -> None:
        """DER-51: rename shape variables that a Callable binds, so that they are not in scope."""
        sinfo, sinfo_by_var = var.struct_info, self.ctx.sinfo_by_var
        if isinstance(sinfo, (rx.FuncStructInfo, rx.TupleStructInfo)) and var not in sinfo_by_var:
            renamed = alpha_rename(sinfo, self.ctx.shape_vars)
            if renamed is not sinfo:
                sinfo_by_var[var] = renamed

    def declare_global(self, name: str, sinfo: rx.StructInfo) -> None:
        """Declare the signature of a function of the module."""
        self.ctx.signatures[name] = sinfo
        self.ctx.renamed.pop(name, None)
