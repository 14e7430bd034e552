"""BlockBuilder: builds Relax programs in normal form and derives their struct info."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, overload
from weakref import ref

from relaxpy.errors import BuilderStateError, Span, check_type, unexpected
from relaxpy.ir.core.node import Attrs, as_attrs
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.emitter import Emitter
from relaxpy.ir.relax.block_builder.function_table import (
    FunctionTable,
    Signatures,
    as_gvar,
    normalize_global_names,
)
from relaxpy.ir.relax.block_builder.normalize import Normalizer, is_leaf
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.ir.relax.nodes.expr import evaluating, set_name
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.scopes import ScopedValue

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.te_call import KernelTable


@dataclass(slots=True, eq=False)
class _OpenFunction:
    """A function of the module that is being built, `depth` scopes below the outermost one."""

    name: str
    params: tuple[rx.Var, ...] | None
    attrs: Attrs
    pure: bool
    private: bool
    depth: int
    is_complete: bool = False


def _as_params(params: rx.Var | Sequence[rx.Var]) -> tuple[rx.Var, ...]:
    if isinstance(params, (rx.Var, list, tuple)):
        return (params,) if isinstance(params, rx.Var) else tuple(params)
    raise unexpected(params, "parameters are a Var or a list of them")


_active: ScopedValue[BlockBuilder] = ScopedValue("relaxpy_builders")


class BlockBuilder:
    """Builds a module binding by binding, and normalises and derives each value at once.

    `emit` creates names that are unique in the builder (`lv`, `lv1`, … in dataflow blocks, `gv`,
    `gv1`, … outside); a front end with names of its own passes variables as `var`. A pass that
    rebuilds a program sets `suppress_warnings`, since the warnings were issued when it was built.

    Errors:
        BuilderStateError (also RuntimeError): the open scopes do not allow the call.
        StructInfoError: the struct info of an expression and its operands do not fit together.
    """

    def __init__(self, mod: IRModule | None = None, *, suppress_warnings: bool = False) -> None:
        check_type(mod, IRModule | None, "a builder starts from an IRModule")
        copy = IRModule() if mod is None else mod.clone()
        self._out = Emitter(copy, Signatures(copy))
        self._table = FunctionTable(copy, self._out.declare_global)
        self._out.ctx.suppress_warnings = suppress_warnings
        self._preceding: list[rx.BindingBlock] = []
        self._normalizer = Normalizer(self._out)
        self._functions: list[_OpenFunction] = []
        # Without cycles, the nodes that a pass has built are freed with its builder.
        self._normalizer.add_callee = partial(
            self._table.add_with_callees, reserved=self._out.ctx.signatures
        )
        self._normalizer.builder = ref(self)
        self.kernels: KernelTable = {}

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function or testing scope is the innermost open one, or None."""
        return _active.get()

    def _derived(self, func: rx.BaseFunc) -> rx.BaseFunc:
        """The function with its struct info, which is derived unless it is known."""
        if isinstance(func, rx.Function) and func.struct_info is None:
            return self._normalizer.function(func)
        return func

    @contextmanager
    def function(
        self,
        name: str,
        params: rx.Var | Sequence[rx.Var] | None = None,
        attrs: Mapping[str, object] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> Iterator[None]:
        """The scope of a new function of the module, which `emit_func_output` completes.

        Unless it is `private`, the function has its name as `global_symbol`. Either this method or
        `emit_func_output` takes the parameters.
        """
        check_name(name, "the name of a function")
        declared = None if params is None else _as_params(params)
        depth = len(self._out.scopes)
        opened = _OpenFunction(name, declared, as_attrs(attrs), pure, private, depth)
        with self._out.dropping_scopes(), self._activated():
            self._out.open_scope(declared or ())
            self._functions.append(opened)
            self.claim_names([name])
            try:
                yield
                if not opened.is_complete:
                    raise BuilderStateError(
                        f"function {name} ends without emit_func_output",
                        rule="AST-11",
                        hint="name its result: bb.emit_func_output(result)",
                    )
            finally:
                self._functions.remove(opened)
                self._table.claimed.discard(name)

    @contextmanager
    def _activated(self) -> Iterator[None]:
        with _active.set(self), evaluating(None):
            yield

    @contextmanager
    def testing_scope(self, def_vars: Sequence[tir.Var] = ()) -> Iterator[None]:
        """A dataflow block outside any function, with shape variables in scope."""
        with self._out.dropping_scopes(), self._activated():
            self._out.open_scope((), def_vars)
            self._out.begin_dataflow()
            yield

    @contextmanager
    def located(self, span: Span | None) -> Iterator[None]:
        """The scope in which calls that are bound get this span, unless they have one."""
        before, self._out.location = self._out.location, span
        try:
            yield
        finally:
            self._out.location = before

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """The scope of a DataflowBlock: only variables of `emit_output` are visible after it."""
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

    def _begin_binding_block(self, origin: rx.BindingBlock | None = None) -> None:
        """Begin a block that `_end_block` returns, inside or outside a function.

        `_end_block` returns `origin` itself if the block has the same bindings.
        """
        self._out.open_block(dataflow=False, origin=origin)

    def _begin_dataflow_block(self, origin: rx.BindingBlock | None = None) -> None:
        """Begin a DataflowBlock that `_end_block` returns, inside or outside a function."""
        self._out.open_block(dataflow=True, origin=origin)

    def _end_block(self) -> rx.BindingBlock:
        """End the block that was begun last, and return it."""
        *preceding, block = self._out.close_block()
        self._preceding += preceding
        return block

    def take_preceding_blocks(self) -> list[rx.BindingBlock]:
        """The blocks that precede the one that `_end_block` returned.

        There are some when a sequence with a DataflowBlock was bound in it (NF-16).
        """
        blocks, self._preceding = self._preceding, []
        return blocks

    def current_block_is_dataflow(self) -> bool:
        """True if the next binding goes into a DataflowBlock."""
        return self._out.scope.dataflow

    @user_facing
    def emit(
        self,
        expr: object,
        name_hint: str = "",
        *,
        annotation: rx.StructInfo | None = None,
        output: bool = False,
        var: rx.Var | None = None,
        span: Span | None = None,
    ) -> rx.Var:
        """Bind `expr` to a new variable and return that; lists and numbers become expressions.

        `annotation` is the declared struct info of the variable (DER-18, DER-19, DER-20). With
        `output` the variable outlives its dataflow block. `var` is bound itself if it was declared
        or has a struct info, which is then its annotation; otherwise a copy of it is bound.

        Errors:
            StructInfoError: the expression or its annotation is rejected, or it is an impure call
                in a dataflow block (PU-5). `about` is the operand at fault.
        """
        value = self._normalizer.value(rx.convert_to_expr(expr))
        if annotation is not None:
            var = self._annotated(name_hint, annotation, var, output=output, span=span)
        return self._out.bind(value, var, hint=name_hint, output=output, span=span)

    def _annotated(
        self,
        name_hint: str,
        annotation: rx.StructInfo,
        var: rx.Var | None,
        *,
        output: bool,
        span: Span | None,
    ) -> rx.Var:
        """The variable to bind: a new one with the annotation, unless `var` has struct info."""
        if var is None:
            annotation = rx.as_struct_info(annotation)
            return self._out.new_variable(name_hint, annotation, output=output, span=span)
        return var if var.struct_info is not None else type(var)(var.name_hint, annotation, span)

    @user_facing
    def emit_output(self, output: object, name_hint: str = "") -> rx.Var:
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
        struct_info: rx.StructInfo,
        name_hint: str = "",
        *,
        annotation: rx.StructInfo | None = None,
        bind: bool = True,
        output: bool = False,
        var: rx.Var | None = None,
        span: Span | None = None,
    ) -> rx.Var | None:
        """Check `value` against `struct_info` at run time and bind it; without `bind`, only check.

        A new shape variable that is a dimension of `struct_info` is bound by the cast.

        Errors:
            StructInfoError: `struct_info` does not fit the annotation of the variable (DER-25).
        """
        expr = self._normalizer.value(rx.convert_to_expr(value))
        if annotation is not None:
            var = self._annotated(name_hint, annotation, var, output=output, span=span)
        return self._out.cast(
            expr,
            rx.as_struct_info(struct_info),
            var,
            bind=bind,
            hint=name_hint,
            output=output,
            span=span,
        )

    @user_facing
    def emit_normalized(self, binding: rx.VarBinding | rx.MatchCast) -> rx.Var | None:
        """Add a binding whose value is in normal form, and return its variable.

        Errors:
            MisuseError (also TypeError): `binding` is not a binding.
        """
        check_type(binding, (rx.VarBinding, rx.MatchCast), "expected a binding")
        if isinstance(binding, rx.VarBinding):
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
    def normalize(self, expr: rx.Expr) -> rx.Expr:
        """`expr` in normal form with its struct info; its operands are bound in the open block.

        Errors:
            BuilderStateError: something must be bound, and no scope is open.
        """
        if isinstance(expr, rx.SeqExpr):
            return self._normalizer.sequence(expr)
        return self._normalizer.value(expr)

    def evaluate(self, expr: rx.Expr, *, shared: bool = False) -> rx.Expr:
        """`expr` as a value that is bound once, before anything that is bound after this call.

        A following `emit` may still name it, unless something else is bound first. It is `shared`
        if variables of Python refer to it, too.

        Errors:
            StructInfoError, WellFormedError: it has no struct info, or no normal form.
        """
        self._out.remembers = True
        if expr is self._out.deferred:
            self._out.shared = shared
        if not self._out.scopes or self._out.bound_value(expr) is not None:
            return expr
        self._out.flush()
        value = self._normalizer.value(expr)
        if is_leaf(value):
            return value
        self._out.defer(value, shared=shared)
        return value

    def flush(self) -> None:
        """Bind the expression that was evaluated last."""
        self._out.flush()

    def discard(self) -> None:
        """Drop the expression that was evaluated last, unless it is bound already."""
        self._out.deferred = None

    def evaluated(self, expr: rx.Expr) -> rx.Expr:
        """The variable to which `expr` was bound when it was evaluated, else `expr` itself."""
        bound = self._out.bound_value(expr) if self._out.remembers else None
        return bound if isinstance(bound, rx.Var) else expr

    def name_evaluated(self, expr: rx.Expr, name: str, kind: type[rx.Var]) -> rx.Var | None:
        """Name the variable to which `expr` was bound; None if it cannot have this name or kind.

        A variable that a program has named is not renamed; a variable only refers to it then.
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
    def normalize_function(self, func: rx.Function) -> rx.Function:
        """`func` in normal form with its struct info."""
        return self._normalizer.function(func)

    @user_facing
    def begin_scope(
        self, params: rx.Var | Sequence[rx.Var] | None = None, shape_vars: Sequence[tir.Var] = ()
    ) -> None:
        """Begin a SeqExpr, as for a branch or the body of a local function.

        `params`, the shape variables that they define, and `shape_vars` are visible in it.
        """
        self._out.open_scope(() if params is None else _as_params(params), shape_vars)
        self._out.scope.is_explicit = True

    @user_facing
    def add_params(self, params: rx.Var | Sequence[rx.Var]) -> None:
        """Make parameters, and the shape variables that they define, visible in this scope.

        Errors:
            MisuseError (also TypeError): a parameter is not a Var, or has no struct info.
        """
        self._out.add_params(_as_params(params))

    @contextmanager
    def inner_scope(self, params: Sequence[rx.Var] | None = None) -> Iterator[None]:
        """A scope in which `params` and what they define are visible; `end_scope` may end it.

        Otherwise, the bindings in it are dropped at the end of the context.
        """
        with self._out.dropping_scopes():
            self.begin_scope(params)
            yield

    @overload
    def end_scope(self) -> None: ...
    @overload
    def end_scope(self, result: object) -> rx.SeqExpr: ...
    @user_facing
    def end_scope(self, result: object = None) -> rx.SeqExpr | None:
        """End the scope that `begin_scope` began; the SeqExpr with `result`, or None without one.

        Errors:
            BuilderStateError: `begin_scope` did not begin the innermost scope.
            StructInfoError: the result is rejected.
        """
        if not self._out.scopes or not self._out.scope.is_explicit:
            raise BuilderStateError("there is no scope to end", hint="begin_scope begins one")
        if result is None:
            self._out.drop_scope()
            return None
        return self._out.close_scope(self._normalizer.leaf(rx.convert_to_expr(result)))

    def splice(self, seq: rx.SeqExpr) -> rx.Expr:
        """The value of `seq`, after its bindings are added to the open block (NF-14).

        The shape variables that it binds are visible from here on.
        """
        return self._normalizer.flatten(seq, is_copy=False)

    def last_binding(self) -> rx.Binding | None:
        """The last binding of the innermost scope, unless it is in a dataflow block."""
        block = self._out.last_block()
        return None if block is None else block.bindings[-1]

    def unbind_last(self) -> None:
        """Drop that binding, which must bind a variable."""
        self._out.unbind_last()

    def binds(self, var: object) -> bool:
        """True if `var` is bound in the innermost scope."""
        return var in self._out.scope.variables

    def scope_is_empty(self) -> bool:
        """True if nothing was emitted in the innermost scope."""
        return not any(block.bindings for block in self._out.scope.blocks)

    def declare(self, var: rx.Var) -> None:
        """Make `var` visible before it is bound: a local function may call itself (SC-4)."""
        self._out.declare(var)

    @user_facing
    def lookup_binding(self, var: rx.Var) -> rx.Expr | None:
        """The value that `var` is bound to, or None for a parameter."""
        return self._out.values.get(var)

    def get_unique_name(self, name_prefix: str) -> str:
        """`name_prefix`, followed by a number if the builder has used that name before."""
        return self._out.unique_name(name_prefix)

    @property
    def context(self) -> Context:
        """The context of derivation at this point of the program."""
        return self._out.ctx

    @user_facing
    def struct_info_of(self, expr: rx.Expr) -> rx.StructInfo:
        """The struct info of a leaf, or of an expression that has been derived.

        Errors:
            StructInfoError: nothing is known about it.
        """
        return self._out.ctx.sinfo_of(expr)

    @user_facing
    def emit_func_output(
        self, output: object, params: rx.Var | Sequence[rx.Var] | None = None
    ) -> rx.GlobalVar:
        """Complete the innermost function, which returns `output`, and add it to the module.

        Errors:
            BuilderStateError: no function is open, it has its output already, or its parameters are
                declared twice or not at all.
        """
        if not self._functions:
            raise BuilderStateError("emit_func_output belongs inside bb.function")
        opened = self._functions[-1]
        if opened.is_complete:
            raise BuilderStateError(f"function {opened.name} has its output already")
        if len(self._out.scopes) != opened.depth + 1:
            raise BuilderStateError(f"a scope inside function {opened.name} is still open")
        if (params is None) == (opened.params is None):
            times = "nowhere" if params is None else "twice"
            hint = "declare them once: with bb.function(name, params), params=[] for none"
            raise BuilderStateError(f"parameters of {opened.name} are declared {times}", hint=hint)
        if params is not None:
            opened.params = _as_params(params)
            self._out.add_params(opened.params)
        assert opened.params is not None
        body = self._out.close_scope(self._normalizer.leaf(rx.convert_to_expr(output)))
        self._table.claimed.discard(opened.name)
        attrs, name = opened.attrs, self._table.free_name(opened.name)
        if not opened.private and "global_symbol" not in attrs:
            attrs = attrs.updated({"global_symbol": name})
        func = rx.Function(tuple(opened.params), body, None, opened.pure, attrs)
        opened.is_complete = True
        return self.add_func(self._out.finish_function(func), name)

    def claim_names(self, names: Iterable[str]) -> None:
        """Keep names for the functions that `function` will complete, as it does for its own."""
        self._table.claimed.update(names)

    def declare_global(self, gvar: rx.GlobalVar, struct_info: rx.StructInfo) -> None:
        """Declare the signature of a function of the module that is defined later."""
        self._out.declare_global(as_gvar(gvar).name_hint, rx.as_struct_info(struct_info))

    @user_facing
    def add_func(self, func: rx.BaseFunc, func_name: str) -> rx.GlobalVar:
        """Add `func` to the module, under its name followed by a number if the name is taken.

        If the module has a structurally equal function, that one is used instead.
        """
        check_name(func_name, "the name of a function")
        return self._table.add(self._derived(func), func_name)

    @user_facing
    def has_func(self, gvar: rx.GlobalVar, func: rx.BaseFunc) -> bool:
        """True if `gvar` is `func`, or a structurally equal function, in the module."""
        return self._table.has(gvar, func)

    @user_facing
    def call_te(
        self,
        func: Callable[..., Any],
        *args: object,
        primfunc_name_hint: str | None = None,
        primfunc_attrs: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> rx.Call:
        """A call of the kernel that computes the tensor expressions that `func` returns.

        `func` receives a placeholder for each tensor, lists for shapes and tuples, scalar
        expressions for scalars with a value, and everything else unchanged. The kernel is called
        `primfunc_name_hint` or like `func`; equal kernels are shared. Shape variables that no
        buffer binds become scalar parameters at the end. In TVM after v0.27, the options are called
        `function_name_hint` and `function_attrs`.

        Errors:
            MisuseError (also TypeError): the shape or datatype of a tensor is unknown, an argument
                has another kind, or `func` does not return tensors.
        """
        if not callable(func):
            raise unexpected(func, "expected a function of tensors")
        name: Any = kwargs.pop("function_name_hint", primfunc_name_hint)
        attrs: Any = kwargs.pop("function_attrs", primfunc_attrs)
        return self._call_te(func, args, kwargs, name=name, attrs=attrs)

    def call_te_cached(
        self,
        func: Callable[..., Any],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        name: str | None,
        attrs: Mapping[str, object] | None = None,
    ) -> rx.Call:
        """As `call_te`, for a `func` that depends on its arguments alone: kernels are reused."""
        return self._call_te(func, args, kwargs, name=name, attrs=attrs, reuse=True)

    def _call_te(self, *args: Any, **options: Any) -> rx.Call:
        from relaxpy.ir.relax.block_builder.te_call import call_te  # parsing needs none

        return call_te(self, *args, **options)

    @user_facing
    def emit_te(
        self, func: Callable[..., Any], *args: object, name_hint: str = "", **options: Any
    ) -> rx.Var:
        """Bind the result of `call_te` to a new variable and return that."""
        return self.emit(self.call_te(func, *args, **options), name_hint)

    @user_facing
    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: object,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> rx.Call:
        """As `call_te`, with the gradient that is registered as `te_grad_name`.

        The gradient will be called with the arguments of `func` and `te_grad_kwargs`.

        Errors:
            MisuseError (also TypeError): as for `call_te`, or `te_grad_name` is not a string.
        """
        from relaxpy.ir.relax.block_builder.te_call import with_gradient

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
    ) -> rx.Var:
        """Bind the result of `call_te_with_grad` to a new variable and return that."""
        options |= {"te_grad_name": te_grad_name, "te_grad_kwargs": te_grad_kwargs}
        return self.emit(self.call_te_with_grad(func, *args, **options), name_hint)

    @user_facing
    def update_func(self, gv: rx.GlobalVar, updated_func: rx.BaseFunc) -> None:
        """Replace the function `gv` of the module."""
        self._table.set(as_gvar(gv), self._derived(updated_func))

    def get(self) -> IRModule:
        """A copy of the module in its present state."""
        return self._table.mod.clone()

    @user_facing
    def finalize(self) -> IRModule:
        """The finished module, in which public functions have their symbols as names.

        Errors:
            TransformError: two public functions have the same symbol.
        """
        return normalize_global_names(self.get())
