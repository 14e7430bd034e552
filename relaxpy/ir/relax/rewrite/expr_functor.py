"""Functions over Relax expressions as classes with one method for each kind of node.

This is the style of user code and of TVM; passes of relaxpy itself use `map_bindings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from types import new_class
from typing import Any, Final, TypeVar, cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.memo import VisitBudget
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, rewrite, visit_methods
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.normalize import mentions
from relaxpy.ir.relax.relations import Compatibility, check_compatibility
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import nested_too_deeply
from relaxpy.support.missing import described

C = TypeVar("C", bound="type[ExprFunctor]")
_VISIT_COST = 8  # the cost of a method, in visits of `VisitBudget`


def _no_such_kind(what: str, node: object) -> MisuseError:
    return MisuseError(f"expected {what}, found {described(node)}", about=node)


_EXPRS = """
    Constant Tuple Var DataflowVar ShapeExpr ExternFunc GlobalVar Function Call SeqExpr If
    TupleGetItem PrimValue StringImm DataTypeImm
"""
EXPR_HOOKS: Final[Mapping[type, str]] = visit_methods(
    (*(getattr(rx, name) for name in _EXPRS.split()), Op), "_"
)
"""The method for each kind of expression."""
_BINDING_HOOKS: Final[Mapping[type, str]] = visit_methods((rx.VarBinding, rx.MatchCast), "_")
_BLOCK_HOOKS: Final[Mapping[type, str]] = visit_methods((rx.BindingBlock, rx.DataflowBlock), "_")
_DEFINITION_HOOKS: Final[Mapping[type, str]] = visit_methods((rx.Var, rx.DataflowVar), "_def_")


def hook_of(kind: type, hooks: Mapping[type, str] = EXPR_HOOKS) -> str | None:
    """The name of the method for a kind of node, or for its nearest base class."""
    hook = hooks.get(kind)
    return hook or next((hooks[base] for base in kind.__mro__ if base in hooks), None)


def _undefined(hook: str) -> Callable[[Any, Any], Any]:
    def visit(self: object, node: Any) -> Any:
        raise MisuseError(
            f"{type(self).__name__} has no method for a {type(node).__name__}",
            hint=f"define {hook}",
            about=node,
        )

    return visit


class ExprFunctor:
    """A function over expressions: `visit_expr` calls the method for the kind of the expression.

    Subclasses define the methods. There is one for each kind of expression, binding and block, such
    as `visit_call_`, `visit_match_cast_` and `visit_dataflow_block_`, which takes the node. A
    variable is visited by `visit_var_` where it is used, by `visit_var_def_` where it is defined.

    Errors:
        MisuseError (also TypeError): a node is not an expression, binding, block or variable, or
            the subclass has no method for its kind; or an expression is nested too deeply, or has
            so many shared nodes that the visit takes too long.
    """

    _visits: VisitBudget | None = None

    def visit_expr(self, expr: rx.Expr | Op) -> Any:
        """The result of the method for the kind of `expr`."""
        if not isinstance(expr, (rx.Expr, Op)):
            raise _no_such_kind("a Relax expression", expr)
        outer = self._visits
        if outer is None:
            self._visits = VisitBudget(expr)
        else:
            outer.spend(_VISIT_COST)
        try:
            return self._visited(expr, "a Relax expression", EXPR_HOOKS)
        except RecursionError:
            raise nested_too_deeply() from None
        finally:
            self._visits = outer

    def _visited(self, node: Node, what: str, hooks: Mapping[type, str]) -> Any:
        """The result of the method for the kind of `node`."""
        hook = hook_of(type(node), hooks)
        if hook is None:
            raise _no_such_kind(what, node)
        return getattr(self, hook)(node)

    def visit_binding(self, binding: rx.Binding) -> None:
        """Call the method for the kind of `binding`."""
        self._visited(binding, "a binding", _BINDING_HOOKS)

    def visit_binding_block(self, block: rx.BindingBlock) -> Any:
        """The result of the method for the kind of `block`."""
        return self._visited(block, "a block", _BLOCK_HOOKS)

    def visit_var_def(self, var: rx.Var) -> Any:
        """The result of the method for the kind of `var`, where `var` is defined."""
        return self._visited(var, "a variable", _DEFINITION_HOOKS)

    visit_constant_ = _undefined("visit_constant_")
    visit_tuple_ = _undefined("visit_tuple_")
    visit_var_ = _undefined("visit_var_")
    visit_dataflow_var_ = _undefined("visit_dataflow_var_")
    visit_shape_expr_ = _undefined("visit_shape_expr_")
    visit_extern_func_ = _undefined("visit_extern_func_")
    visit_global_var_ = _undefined("visit_global_var_")
    visit_function_ = _undefined("visit_function_")
    visit_call_ = _undefined("visit_call_")
    visit_seq_expr_ = _undefined("visit_seq_expr_")
    visit_if_ = _undefined("visit_if_")
    visit_op_ = _undefined("visit_op_")
    visit_tuple_getitem_ = _undefined("visit_tuple_getitem_")
    visit_prim_value_ = _undefined("visit_prim_value_")
    visit_string_imm_ = _undefined("visit_string_imm_")
    visit_data_type_imm_ = _undefined("visit_data_type_imm_")
    visit_var_binding_ = _undefined("visit_var_binding_")
    visit_match_cast_ = _undefined("visit_match_cast_")
    visit_binding_block_ = _undefined("visit_binding_block_")
    visit_dataflow_block_ = _undefined("visit_dataflow_block_")
    visit_var_def_ = _undefined("visit_var_def_")
    visit_dataflow_var_def_ = _undefined("visit_dataflow_var_def_")


def decorated(cls: C, base: type[ExprFunctor]) -> C:
    """The subclass that replaces a decorated class, which is its `_cls`.

    Errors:
        MisuseError (also TypeError): `cls` is not a subclass of `base`, or is one of a decorated
            class; TVM has users inherit from the `_cls` of that.
    """
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise MisuseError(f"the decorator is for classes that inherit from {base.__name__}")
    if any("_cls" in vars(ancestor) for ancestor in cls.__mro__):
        raise MisuseError(
            f"Inheritance from a decorated object `{cls.__name__}` is not allowed. "
            f"Please inherit from `{cls.__name__}._cls`."
        )
    names = ("__module__", "__qualname__", "__doc__")
    kept = {name: getattr(cls, name) for name in names}
    return new_class(  # type: ignore[return-value]
        cls.__name__, (cls,), exec_body=lambda body: body.update(kept, _cls=cls)
    )


M = TypeVar("M", bound="type[PyExprMutator]")


class PyExprMutator(ExprFunctor):
    """Rebuilds expressions over the results for their operands; unchanged ones are shared.

    `builder_` normalises and derives each result and receives the bindings; a subclass may emit
    more of them. If the struct info of a bound value changes, a new variable replaces the old one.
    `mod` has the functions that are called; a call of another one keeps its struct info.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.builder_ = BlockBuilder(mod, suppress_warnings=True)
        self.builder_.context.assumed = _AS_BEFORE
        self._remap: dict[rx.Var, rx.Var] = {}

    @override
    def visit_expr(self, expr: rx.Expr | Op) -> Any:
        """The result for an expression, in normal form and with its struct info."""
        return self._normalized(super().visit_expr(expr))

    def visit_expr_post_order(self, expr: rx.Expr | Op) -> Any:
        """The expression over the results for its operands.

        The method for a kind of expression uses it before it changes the expression itself.
        """
        hook = hook_of(rx.Var if isinstance(expr, rx.Var) else type(expr))
        if hook is None:
            return self.visit_expr(expr)
        return self._normalized(getattr(PyExprMutator, hook)(self, expr))

    def _normalized(self, result: Any) -> Any:
        if isinstance(result, Op):
            return result
        if not isinstance(result, rx.Expr):
            raise MisuseError(
                f"{type(self).__name__} returned {described(result)} for an "
                "expression, expected an expression",
                about=result,
            )
        return self.builder_.normalize(result)

    def visit_with_new_scope(
        self, expr: rx.Expr, params: Sequence[rx.Var] | None = None
    ) -> rx.SeqExpr:
        """The result for the body of a function, with which the scope of `params` ends."""
        if not isinstance(expr, rx.SeqExpr):
            expr = rx.SeqExpr((), expr, span=expr.span)
        with self.builder_.inner_scope(params):
            return cast("rx.SeqExpr", self.visit_expr(expr))

    def set_var_remap(self, vid: rx.Id | rx.Var, var: rx.Var) -> None:
        """Replace later uses of the variable `vid` by `var`."""
        self._remap[_variable(vid)] = var

    def get_var_remap(self, vid: rx.Id | rx.Var) -> rx.Var:
        """The variable that replaces uses of the variable `vid`: itself unless it was remapped."""
        var = _variable(vid)
        return self._remap.get(var, var)

    def lookup_binding(self, var: rx.Var) -> rx.Expr | None:
        """The value that a variable of the new program is bound to, or None for a parameter."""
        return self.builder_.lookup_binding(var)

    def with_struct_info(self, var: rx.Var, struct_info: rx.StructInfo) -> rx.Var:
        """`var` with this struct info: itself if it has an equal one."""
        return var if var.struct_info == struct_info else replace(var, struct_info=struct_info)

    def _sinfo(self, sinfo: rx.StructInfo) -> rx.StructInfo:
        """The struct info over the results for its shapes; in a Callable none is of this scope."""
        match sinfo:
            case rx.TensorStructInfo(shape=shape) if shape is not None:
                new = self.visit_expr(shape)
                return sinfo if new is shape else replace(sinfo, shape=new)
            case rx.TupleStructInfo():
                fields = sinfo.fields
                parts = tuple(self._sinfo(f) for f in fields)
                same = all(map(is_, parts, fields))
                return sinfo if same else replace(sinfo, fields=parts)
            case _:
                return sinfo

    def _is_stable(self, sinfo: rx.StructInfo | None) -> bool:
        return sinfo is None or self._sinfo(sinfo) is sinfo

    def _visit_leaf(self, op: Any) -> Any:
        return op

    visit_constant_ = _visit_leaf
    visit_shape_expr_ = _visit_leaf
    visit_extern_func_ = _visit_leaf
    visit_global_var_ = _visit_leaf
    visit_op_ = _visit_leaf
    visit_prim_value_ = _visit_leaf
    visit_string_imm_ = _visit_leaf
    visit_data_type_imm_ = _visit_leaf

    @override
    def visit_tuple_(self, op: rx.Tuple) -> Any:
        fields = tuple(self.visit_expr(f) for f in op.fields)
        if all(map(is_, fields, op.fields)):
            return op
        return rebuild(op, fields=fields)

    @override
    def visit_var_(self, op: rx.Var) -> Any:
        return self._remap.get(op, op)

    @override
    def visit_dataflow_var_(self, op: rx.DataflowVar) -> Any:
        return self.visit_var_(op)

    @override
    def visit_function_(self, op: rx.Function) -> Any:
        params = tuple(self._parameter(p) for p in op.params)
        body = self.visit_with_new_scope(op.body, params)
        ret = None if op.ret_struct_info is None else self._sinfo(op.ret_struct_info)
        same = body is op.body and ret is op.ret_struct_info
        if same and all(map(is_, params, op.params)):
            return op
        actual = body.struct_info
        if ret is not None and actual is not None:
            fits = check_compatibility(actual, ret) is not Compatibility.INCOMPATIBLE
            ret = ret if fits else actual
        return rebuild(op, params=params, body=body, ret_struct_info=ret)

    def _parameter(self, param: rx.Var) -> rx.Var:
        new: rx.Var = self.visit_var_def(param)
        if new is not param:
            self._remap[param] = new
        return new

    @override
    def visit_call_(self, op: rx.Call) -> Any:
        callee = self.visit_expr(op.op)
        sinfos = tuple(self._sinfo(i) for i in op.sinfo_args)
        args = tuple(self.visit_expr(a) for a in op.args)
        if (
            callee is op.op
            and all(map(is_, sinfos, op.sinfo_args))
            and all(map(is_, args, op.args))
            and self._is_stable(op.struct_info)
        ):
            return op
        new = rebuild(op, op=callee, args=args, sinfo_args=sinfos)
        if isinstance(callee, rx.GlobalVar) and op.struct_info is not None:
            return new.with_struct_info(self._sinfo(op.struct_info))
        return new

    @override
    def visit_seq_expr_(self, op: rx.SeqExpr) -> Any:
        with self.builder_.inner_scope():
            blocks, body = self._sequence(op)
        blocks = [b for b in blocks if b.bindings]
        if (
            body is op.body
            and len(blocks) == len(op.blocks)
            and all(map(is_, blocks, op.blocks))
            and self._is_stable(op.struct_info)
        ):
            return op
        return rebuild(op, blocks=tuple(blocks), body=body)

    def _sequence(self, op: rx.SeqExpr) -> tuple[list[rx.BindingBlock], rx.Expr]:
        bb = self.builder_
        blocks: list[rx.BindingBlock] = []
        for block in op.blocks:
            new = self.visit_binding_block(block)
            blocks += (*bb.take_preceding_blocks(), new)
        bb._begin_binding_block()
        body = self.visit_expr(op.body)
        last = bb._end_block()
        blocks += (*bb.take_preceding_blocks(), last)
        return blocks, body

    @override
    def visit_if_(self, op: rx.If) -> Any:
        cond = self.visit_expr(op.cond)
        true_branch = self.visit_with_new_scope(op.true_branch)
        false_branch = self.visit_with_new_scope(op.false_branch)
        if (
            cond is op.cond
            and true_branch is op.true_branch
            and false_branch is op.false_branch
            and self._is_stable(op.struct_info)
        ):
            return op
        return rebuild(op, cond=cond, true_branch=true_branch, false_branch=false_branch)

    @override
    def visit_tuple_getitem_(self, op: rx.TupleGetItem) -> Any:
        value = self.visit_expr(op.tuple_value)
        return op if value is op.tuple_value else rebuild(op, tuple_value=value)

    @override
    def visit_var_binding_(self, binding: rx.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        var = self.visit_var_def(binding.var)
        if var is not binding.var or value is not binding.value:
            if not isinstance(value, rx.GlobalVar):
                var = self.with_struct_info(var, self.builder_.struct_info_of(value))
            value = self._with_own_variable(value, binding.var, var)
            binding = self._changed(binding, replace(binding, var=var, value=value))
        self._emit(binding)

    def _with_own_variable(self, value: rx.Expr, old: rx.Var, new: rx.Var) -> rx.Expr:
        """The value; in a local function that calls itself, with the new variable (SC-4)."""
        if new is old or not isinstance(value, rx.Function) or not mentions(value, old):
            return value
        called = cast("rx.Function", rewrite(value, lambda node: new if node is old else None))
        return self.builder_.normalize_function(called)

    @override
    def visit_match_cast_(self, binding: rx.MatchCast) -> None:
        value = self.visit_expr(binding.value)
        sinfo = self._sinfo(binding.struct_info)
        var = None if binding.var is None else self.visit_var_def(binding.var)
        if var is not binding.var or value is not binding.value or sinfo is not binding.struct_info:
            if var is not None:
                var = self.with_struct_info(var, sinfo)
            new = replace(binding, var=var, value=value, struct_info=sinfo)
            binding = self._changed(binding, new)
        self._emit(binding)

    def _changed(self, old: Any, new: Any) -> Any:
        if old.var is not None and new.var is not None:
            self._remap[old.var] = self._remap[new.var] = new.var
        return new

    def _emit(self, binding: rx.VarBinding | rx.MatchCast) -> None:
        bound = self.builder_.emit_normalized(binding)
        if bound is not None and binding.var is not None and bound is not binding.var:
            for old, new in list(self._remap.items()):
                if new is binding.var:
                    self._remap[old] = bound
            self._remap[binding.var] = bound

    @override
    def visit_binding_block_(self, block: rx.BindingBlock) -> rx.BindingBlock:
        self.builder_._begin_binding_block(block)
        for binding in block.bindings:
            self.visit_binding(binding)
        return self.builder_._end_block()

    @override
    def visit_dataflow_block_(self, block: rx.DataflowBlock) -> rx.BindingBlock:
        self.builder_._begin_dataflow_block(block)
        for binding in block.bindings:
            self.visit_binding(binding)
        return self.builder_._end_block()

    @override
    def visit_var_def_(self, var: rx.Var) -> Any:
        if var.struct_info is None:
            return var
        sinfo = self._sinfo(var.struct_info)
        return var if sinfo is var.struct_info else replace(var, struct_info=sinfo)

    @override
    def visit_dataflow_var_def_(self, var: rx.DataflowVar) -> Any:
        new: rx.Var = self.visit_var_def_(var)
        if isinstance(new, rx.DataflowVar):
            return new
        return rx.DataflowVar(new.name_hint, new.struct_info, new.span)


def _as_before(call: rx.Call, context: object) -> rx.StructInfo:
    return call.struct_info or rx.ObjectStructInfo()


_AS_BEFORE = rx.FuncStructInfo.opaque_func(
    derive_func=rx.EnvFunc("as before", _as_before), purity=True
)


def _variable(vid: rx.Id | rx.Var) -> rx.Var:
    return vid.var if isinstance(vid, rx.Id) else vid


def mutator(mutator_cls: M) -> M:
    """The class, ready for use: `@relax.expr_functor.mutator` is the decorator of subclasses.

    Errors:
        MisuseError (also TypeError): it is not a subclass, or one of a class that is decorated.
    """
    return decorated(mutator_cls, PyExprMutator)
