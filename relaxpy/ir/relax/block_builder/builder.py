"""BlockBuilder: what all who make Relax programs go through, normalised and derived at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, overload

from relaxpy.entry import user_facing
from relaxpy.errors import BuilderStateError, MisuseError, Span
from relaxpy.ir.core.node import Attrs, as_attrs
from relaxpy.ir.link import brought_along
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.emitter import Emitter
from relaxpy.ir.relax.block_builder.frames import close_block, open_block
from relaxpy.ir.relax.block_builder.function_table import FunctionTable
from relaxpy.ir.relax.block_builder.global_names import normalize_global_names
from relaxpy.ir.relax.block_builder.normalize import Normalizer, is_leaf
from relaxpy.ir.relax.block_builder.signatures import Signatures, known_signature
from relaxpy.ir.relax.block_builder.te_call import KernelTable, call_te, with_gradient
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    MatchCast,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
    as_struct_info,
    convert_to_expr,
)
from relaxpy.ir.relax.nodes.base import check_name
from relaxpy.ir.relax.nodes.evaluation import evaluating
from relaxpy.ir.relax.nodes.naming import set_name
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.tir import expr as tir


@dataclass(slots=True, eq=False)
class _OpenFunction:
    """A function of the module that is being built."""

    name: str
    params: tuple[Var, ...] | None
    attrs: Attrs
    pure: bool
    private: bool
    depth: int
    done: bool = False


def _as_params(params: Var | Sequence[Var]) -> tuple[Var, ...]:
    if isinstance(params, Var):
        return (params,)
    if isinstance(params, (list, tuple)):
        return tuple(params)
    raise MisuseError(f"parameters are a Var or a list of them, found {params!r:.60}", about=params)


def _as_gvar(gvar: object) -> GlobalVar:
    if not isinstance(gvar, GlobalVar):
        raise MisuseError(f"a function is known by its GlobalVar, found {gvar!r:.60}", about=gvar)
    return gvar


_active: ContextVar[tuple[BlockBuilder, ...]] = ContextVar("relaxpy_builders", default=())


class BlockBuilder:
    """Builds a module binding by binding: each value is normalised and derived at once.

    `emit` makes names unique over the builder (`lv`, `lv1`, … in dataflow blocks, `gv`, `gv1`, …
    outside); a front end that has names of its own hands in variables with `var=`. With
    `suppress_warnings` it issues none: what it rebuilds was warned of when it was built.

    Errors:
        BuilderStateError (also RuntimeError): a call that the open scopes do not allow.
        StructInfoError: a program whose infos do not fit together, at the call that completes it.
    """

    def __init__(self, mod: IRModule | None = None, *, suppress_warnings: bool = False) -> None:
        if mod is not None and not isinstance(mod, IRModule):
            raise MisuseError(f"a builder starts from an IRModule, found {mod!r:.60}", about=mod)
        copy = IRModule() if mod is None else mod.clone()
        self._table = FunctionTable(copy)
        self._out = Emitter(copy, Signatures(copy))
        self._out.ctx.suppress_warnings = suppress_warnings
        self._broken_off: list[BindingBlock] = []
        self._normalizer = Normalizer(self._out)
        self._normalizer.enter = self._enter_callee
        self._functions: list[_OpenFunction] = []
        self.kernels = KernelTable()

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function or testing scope is the innermost open one, or None."""
        builders = _active.get()
        return builders[-1] if builders else None

    def _enter(self, gvar: GlobalVar, func: BaseFunc) -> None:
        """Store a function of the module and declare its signature."""
        self._table.set(gvar, func)
        self._out.declare_global(gvar.name_hint, known_signature(func))

    @contextmanager
    def function(
        self,
        name: str,
        params: Var | Sequence[Var] | None = None,
        attrs: Mapping[str, object] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> Iterator[None]:
        """The scope of a new function of the module, which `emit_func_output` completes.

        Unless `private`, the function has its name as `global_symbol`. Parameters may be given to
        `emit_func_output` instead.
        """
        check_name(name, "the name of a function")
        given = None if params is None else _as_params(params)
        depth = len(self._out.scopes)
        opened = _OpenFunction(name, given, as_attrs(attrs), pure, private, depth)
        self._out.open_scope(given or ())
        self._functions.append(opened)
        with self._activated():
            try:
                yield
                if not opened.done:
                    raise BuilderStateError(
                        f"function {name} ends without emit_func_output", rule="AST-11"
                    )
            finally:
                self._functions.remove(opened)
                while len(self._out.scopes) > depth:
                    self._out.drop_scope()

    @contextmanager
    def _activated(self) -> Iterator[None]:
        token = _active.set((*_active.get(), self))
        try:
            with evaluating(None):
                yield
        finally:
            _active.reset(token)

    @contextmanager
    def testing_scope(self, def_vars: Sequence[tir.Var] = ()) -> Iterator[None]:
        """A dataflow block outside any function, with the given shape variables in scope."""
        depth = len(self._out.scopes)
        self._out.open_scope((), def_vars)
        self._out.begin_dataflow()
        with self._activated():
            try:
                yield
            finally:
                while len(self._out.scopes) > depth:
                    self._out.drop_scope()

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """The scope of a DataflowBlock: what `emit` binds is gone after it, `emit_output` stays."""
        self._out.begin_dataflow()
        scope = self._out.scope
        try:
            yield
        finally:
            if scope.dataflow and self._out.scopes and self._out.scope is scope:
                self._out.end_dataflow()

    @user_facing
    def begin_dataflow(self) -> None:
        """Begin a DataflowBlock."""
        self._out.begin_dataflow()

    @user_facing
    def end_dataflow(self) -> None:
        """End the DataflowBlock."""
        self._out.end_dataflow()

    def _begin_binding_block(self, origin: BindingBlock | None = None) -> None:
        """Begin a block that `_end_block` gives back, in or outside a function.

        That is `origin` itself if it binds the same in the end.
        """
        open_block(self._out, dataflow=False, origin=origin)

    def _begin_dataflow_block(self, origin: BindingBlock | None = None) -> None:
        """Begin a DataflowBlock that `_end_block` gives back, in or outside a function."""
        open_block(self._out, dataflow=True, origin=origin)

    def _end_block(self) -> BindingBlock:
        """The block that was begun last.

        Errors:
            BuilderStateError: there is none.
        """
        *before, block = close_block(self._out)
        self._broken_off += before
        return block

    def take_broken_off(self) -> list[BindingBlock]:
        """The blocks that stand in front of the one `_end_block` has given back.

        There are some when a sequence with a DataflowBlock was bound in it (NF-16).
        """
        found, self._broken_off = self._broken_off, []
        return found

    def current_block_is_dataflow(self) -> bool:
        """Whether the next binding goes into a DataflowBlock."""
        return self._out.scope.dataflow

    @user_facing
    def emit(
        self,
        expr: object,
        name_hint: str = "",
        *,
        annotation: StructInfo | None = None,
        output: bool = False,
        var: Var | None = None,
        span: Span | None = None,
    ) -> Var:
        """Bind `expr` to a new variable and return that; lists and numbers become expressions.

        `annotation` is the declared struct info of the variable (DER-18, DER-19, DER-20). With
        `output` the variable outlives its dataflow block. `var` is bound itself if it was declared
        or has a struct info, which is then its annotation; otherwise a copy of it is bound.

        Errors:
            StructInfoError: the expression or its annotation is refused; `about` is the operand at
                fault. An impure call in a dataflow block (PU-5) among them.
        """
        value = self._normalizer.value(
            convert_to_expr(expr) if not isinstance(expr, Expr) else expr
        )
        if annotation is not None:
            var = self._annotated(name_hint, annotation, var, output=output, span=span)
        return self._out.bind(value, var, hint=name_hint, output=output, span=span)

    def _annotated(
        self,
        name_hint: str,
        annotation: StructInfo,
        var: Var | None,
        *,
        output: bool,
        span: Span | None,
    ) -> Var:
        if var is not None:
            return (
                var if var.struct_info is not None else type(var)(var.name_hint, annotation, span)
            )
        return self._out.new_variable(
            name_hint, as_struct_info(annotation), output=output, span=span
        )

    @user_facing
    def emit_output(self, output: object, name_hint: str = "") -> Var:
        """Bind `output` to a variable that outlives the dataflow block.

        Errors:
            BuilderStateError: no dataflow block is open.
        """
        if not self.current_block_is_dataflow():
            raise BuilderStateError("emit_output belongs inside a dataflow block", hint="use emit")
        return self.emit(output, name_hint, output=True)

    @user_facing
    def match_cast(
        self,
        value: object,
        struct_info: StructInfo,
        name_hint: str = "",
        *,
        annotation: StructInfo | None = None,
        bind: bool = True,
        output: bool = False,
        var: Var | None = None,
        span: Span | None = None,
    ) -> Var | None:
        """Check `value` against `struct_info` at run time and bind it; without `bind`, only check.

        Shape variables that stand alone in `struct_info` and are new are bound by it.

        Errors:
            StructInfoError: the variable's annotation does not admit the info (DER-25).
        """
        expr = self._normalizer.value(convert_to_expr(value))
        if annotation is not None:
            var = self._annotated(name_hint, annotation, var, output=output, span=span)
        return self._out.cast(
            expr,
            as_struct_info(struct_info),
            var,
            bind=bind,
            hint=name_hint,
            output=output,
            span=span,
        )

    @user_facing
    def emit_normalized(self, binding: VarBinding | MatchCast) -> Var | None:
        """Bind what is in normal form already, to the variable that the binding names.

        Errors:
            MisuseError (also TypeError): it is no binding.
        """
        if not isinstance(binding, (VarBinding, MatchCast)):
            raise MisuseError(f"expected a binding, found {binding!r:.60}", about=binding)
        if isinstance(binding, VarBinding):
            return self._out.bind(binding.value, binding.var, span=binding.span, origin=binding)
        return self._out.cast(
            binding.value,
            binding.struct_info,
            binding.var,
            bind=binding.var is not None,
            span=binding.span,
            origin=binding,
        )

    @user_facing
    def normalize(self, expr: Expr) -> Expr:
        """`expr` in normal form with its info; what it needs bound is bound in the open block.

        Errors:
            BuilderStateError: something needs to be bound, and no scope is open.
        """
        if isinstance(expr, SeqExpr):
            return self._normalizer.sequence(expr)
        return self._normalizer.value(expr)

    def evaluate(self, expr: Expr, *, shared: bool = False) -> Expr:
        """`expr` as a value that is bound once, before anything that is bound after this call.

        `emit` may still give it a name, unless something else was bound first. It is `shared` if
        others than the caller hold it.

        Errors:
            StructInfoError, WellFormedError: it has no info, or no normal form.
        """
        self._out.remembers = True
        if expr is self._out.deferred:
            self._out.shared = shared
        if not self._out.scopes or self._out.known(expr) is not None:
            return expr
        self._out.flush()
        value = self._normalizer.value(expr)
        if is_leaf(value):
            return value
        self._out.defer(value, shared=shared)
        return value

    def flush(self) -> None:
        """Bind what was evaluated last."""
        self._out.flush()

    def discard(self) -> None:
        """Forget what was evaluated last and is not bound yet."""
        self._out.deferred = None

    def evaluated(self, expr: Expr) -> Expr:
        """The variable to which `expr` was bound when it was evaluated, else `expr` itself."""
        found = self._out.known(expr) if self._out.remembers else None
        return found if isinstance(found, Var) else expr

    def name_evaluated(self, expr: Expr, name: str, kind: type[Var]) -> Var | None:
        """The variable of this kind to which `expr` was bound, from now on called `name`.

        None if there is none: a variable that has a name of its own only stands for other values.
        """
        var = self.evaluated(expr)
        is_free = var in self._out.unnamed
        if type(var) is not kind or (var is expr and not is_free):
            return None
        if is_free:
            self._out.unnamed.discard(var)
            set_name(var, name)
        return var

    @user_facing
    def normalize_function(self, func: Function) -> Function:
        """`func` in normal form with its info."""
        return self._normalizer.function(func)

    @user_facing
    def begin_scope(
        self, params: Var | Sequence[Var] | None = None, shape_vars: Sequence[tir.Var] = ()
    ) -> None:
        """Begin a SeqExpr of its own, as branches and local functions have; `end_scope` ends it.

        `params`, what their infos bind, and `shape_vars` are visible in it.
        """
        self._out.open_scope(() if params is None else _as_params(params), shape_vars)
        self._out.scope.begun = True

    @user_facing
    def add_params(self, params: Var | Sequence[Var]) -> None:
        """Make parameters, and what their infos bind, visible in the innermost scope.

        Errors:
            MisuseError (also TypeError): a parameter is none, or has no info.
        """
        self._out.add_params(_as_params(params))

    @contextmanager
    def inner_scope(self, params: Sequence[Var] | None = None) -> Iterator[None]:
        """A scope in which `params` and what they bind are visible; what is left of it is dropped.

        For visiting what is normalised later on.
        """
        depth = len(self._out.scopes)
        self._out.open_scope(params or ())
        try:
            yield
        finally:
            while len(self._out.scopes) > depth:
                self._out.drop_scope()

    @overload
    def end_scope(self) -> None: ...
    @overload
    def end_scope(self, result: object) -> SeqExpr: ...
    @user_facing
    def end_scope(self, result: object = None) -> SeqExpr | None:
        """End the scope begun last: the SeqExpr with `result`, or None where there is none.

        Errors:
            BuilderStateError: the innermost scope is none of `begin_scope`.
            StructInfoError: the result is refused.
        """
        if not self._out.scopes or not self._out.scope.begun:
            raise BuilderStateError("there is no scope to end", hint="begin_scope begins one")
        if result is None:
            self._out.drop_scope()
            return None
        return self._out.close_scope(self._normalizer.leaf(convert_to_expr(result)))

    @property
    def scope_is_empty(self) -> bool:
        """Whether nothing was bound yet in the innermost scope."""
        return not any(block.bindings for block in self._out.scope.blocks)

    def declare(self, var: Var) -> None:
        """Make `var` visible before it is bound, as a function that may call itself is (SC-4)."""
        self._out.declare(var)

    def lookup_binding(self, var: Var) -> Expr | None:
        """The value that `var` is bound to, or None for a parameter."""
        return self._out.values.get(var)

    def get_unique_name(self, name_prefix: str) -> str:
        """The prefix, with a number behind it if the builder has given it out before."""
        return self._out.unique_name(name_prefix)

    @property
    def context(self) -> Context:
        """What derivation knows at this place of the program."""
        return self._out.ctx

    @user_facing
    def struct_info_of(self, expr: Expr) -> StructInfo:
        """The info of a leaf, or of an expression that has been derived.

        Errors:
            StructInfoError: nothing is known about it.
        """
        return self._out.ctx.info_of(expr)

    @user_facing
    def emit_func_output(
        self, output: object, params: Var | Sequence[Var] | None = None
    ) -> GlobalVar:
        """Complete the innermost function, which returns `output`, and enter it into the module.

        Errors:
            BuilderStateError: no function is open, it is complete already, or parameters are given
                twice or not at all.
        """
        if not self._functions:
            raise BuilderStateError("emit_func_output belongs inside bb.function")
        opened = self._functions[-1]
        if opened.done:
            raise BuilderStateError(f"function {opened.name} has its output already")
        if len(self._out.scopes) != opened.depth + 1:
            raise BuilderStateError(f"a scope inside function {opened.name} is still open")
        if (params is None) == (opened.params is None):
            times = "not at all" if params is None else "twice"
            raise BuilderStateError(f"the parameters of {opened.name} are given {times}")
        if params is not None:
            opened.params = _as_params(params)
            self._out.add_params(opened.params)
        assert opened.params is not None
        body = self._out.close_scope(self._normalizer.leaf(convert_to_expr(output)))
        attrs, name = opened.attrs, self._table.free_name(opened.name)
        if not opened.private and "global_symbol" not in attrs:
            attrs = attrs.updated({"global_symbol": name})
        func = Function(tuple(opened.params), body, None, opened.pure, attrs)
        opened.done = True
        return self.add_func(self._out.finish_function(func), name)

    def declare_global(self, gvar: GlobalVar, info: StructInfo) -> None:
        """Give the signature of a function of the module before its definition is known."""
        self._out.declare_global(_as_gvar(gvar).name_hint, as_struct_info(info))

    def global_info(self, gvar: GlobalVar) -> StructInfo:
        """The signature of a function of the module.

        Errors:
            StructInfoError: it is not known.
        """
        return self._out.ctx.global_info(gvar)

    @user_facing
    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Enter `func` under the name, with a number behind it if that is taken.

        A structurally equal function that the module has already is used instead.
        """
        check_name(func_name, "the name of a function")
        if isinstance(func, Function) and func.struct_info is None:
            func = self._normalizer.function(func)
        known = self._table.equal_to(func)
        if known is not None:
            return known
        gvar = GlobalVar(self._table.free_name(func_name))
        self._enter(gvar, func)
        return gvar

    def _enter_callee(self, func: BaseFunc, symbol: str) -> GlobalVar:
        """Enter `func`, which is called by its symbol, under another one if that is taken."""
        known = self._table.equal_to(func)
        if known is not None:
            return known
        mod = self._table.mod
        present = mod.functions_by_name
        declared = self._out.ctx.signatures
        taken = {*present, *declared, *(opened.name for opened in self._functions)}
        own, entries = brought_along(func, symbol, present, taken)
        for name, entry in entries.items():
            if name not in mod:
                self._enter(GlobalVar(name), entry)
        return mod.get_global_var(own)

    def has_func(self, gvar: GlobalVar, func: BaseFunc) -> bool:
        """Whether `gvar` stands for `func`, or a structurally equal function, in the module."""
        return self._table.holds(gvar, func)

    @user_facing
    def call_te(
        self,
        func: Callable[..., Any],
        *args: object,
        primfunc_name_hint: str | None = None,
        primfunc_attrs: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> Call:
        """A call of the kernel that computes the tensor expressions which `func` gives for `args`.

        `func` receives a placeholder for each tensor, lists for shapes and tuples, scalar
        expressions for scalars with a value, and everything else as it is. The kernel is entered
        under `primfunc_name_hint` or the function's name; an equal one is shared. Shape variables
        that no buffer binds become scalars at the end.

        Errors:
            MisuseError (also TypeError): shape or datatype of a tensor is unknown, an argument is
                of another kind, or `func` gives no tensors.
        """
        if not callable(func):
            raise MisuseError(f"expected a function of tensors, found {func!r:.60}", about=func)
        return call_te(self, func, args, kwargs, name=primfunc_name_hint, attrs=primfunc_attrs)

    def call_te_cached(
        self,
        func: Callable[..., Any],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        name: str | None,
    ) -> Call:
        """As `call_te`, for a `func` of its arguments alone: like calls share a kernel."""
        return call_te(self, func, args, kwargs, name=name, reuse=True)

    @user_facing
    def emit_te(
        self,
        func: Callable[..., Any],
        *args: object,
        name_hint: str = "",
        **options: Any,
    ) -> Var:
        """Bind what `call_te` gives to a new variable and return that."""
        return self.emit(self.call_te(func, *args, **options), name_hint)

    @user_facing
    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: object,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Call:
        """As `call_te`, with a gradient: the one registered as `te_grad_name`.

        It will be called with `te_grad_kwargs` beside what `func` was called with.

        Errors:
            MisuseError (also TypeError): as for `call_te`, or the gradient is named by no string.
        """
        return with_gradient(self.call_te(func, *args, **options), te_grad_name, te_grad_kwargs)

    @user_facing
    def emit_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: object,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, object] | None = None,
        name_hint: str = "",
        **options: Any,
    ) -> Var:
        """Bind what `call_te_with_grad` gives to a new variable and return that."""
        call = with_gradient(self.call_te(func, *args, **options), te_grad_name, te_grad_kwargs)
        return self.emit(call, name_hint)

    @user_facing
    def update_func(self, gv: GlobalVar, updated_func: BaseFunc) -> None:
        """Enter a function in place of the one that `gv` stands for."""
        gv = _as_gvar(gv)
        if isinstance(updated_func, Function) and updated_func.struct_info is None:
            updated_func = self._normalizer.function(updated_func)
        self._enter(gv, updated_func)

    def get(self) -> IRModule:
        """The module as far as it is built."""
        return self._table.mod.clone()

    @user_facing
    def finalize(self) -> IRModule:
        """The module, complete: public functions under their symbols.

        Errors:
            TransformError: two public functions have one symbol.
        """
        return normalize_global_names(self.get())
