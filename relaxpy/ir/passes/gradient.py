"""Gradient: adds the adjoint of a function, in reverse mode.

The gradients of the target with respect to the variables are summed over their uses.
Values between checkpoints are rematerialised in the backward pass instead of stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, Span, TransformError, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.call import call_tir_with_grad, without_gradient
from relaxpy.ir.ops.definition.registry import R, find
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.rewrite_pass import find_function, name_of_function
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.normalize import derived_like
from relaxpy.ir.relax.known import tensor_of
from relaxpy.ir.relax.nodes import Binding, Call, DataflowVar, Expr, Var, VarBinding
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.support.dataclass import dataclass, replace

_NO_GRAD = Op("relax.grad.no_grad")


class Adjoints:
    """The adjoint of each variable: the variable that `builder` binds to the sum of its gradients.

    `span` is that of the bindings that follow.
    """

    def __init__(self, builder: BlockBuilder) -> None:
        self._builder = builder
        self._table: dict[rx.Var, rx.Var] = {}
        self.span: Span | None = None

    def get(self, var: rx.Var) -> rx.Var | None:
        """The adjoint of `var`; None if no gradient was added, so that it is 0."""
        return self._table.get(var)

    def get_or_zeros(self, var: rx.Var) -> rx.Var:
        """The adjoint of `var`, zeros if no gradient was added."""
        if var not in self._table:
            self._bind(var, _zeros(var, var.struct_info))
        return self._table[var]

    def add(self, operand: rx.Expr, gradient: rx.Expr) -> None:
        """Add `gradient` to the adjoints of the variables in `operand`."""
        if _is_zero(gradient):
            return
        if isinstance(operand, rx.Var):
            self._bind(operand, self._sum(self._table.get(operand), operand, gradient))
        elif isinstance(operand, rx.Tuple):
            gradient = self._leaf(gradient)
            for k, field in enumerate(operand.fields):
                self.add(field, _item(gradient, k))

    def add_field(self, operand: rx.Expr, index: int, gradient: rx.Expr) -> None:
        """Add `gradient` to the adjoint of field `index` of the tuple `operand`."""
        if isinstance(operand, rx.Tuple):
            self.add(operand.fields[index], gradient)
            return
        assert isinstance(operand, rx.Var)
        sinfo = operand.struct_info
        assert isinstance(sinfo, rx.TupleStructInfo)
        present = self._table.get(operand)
        fields: list[rx.Expr] = []
        for k, info in enumerate(sinfo.fields):
            item = rx.TupleGetItem(operand, k)
            before = None if present is None else rx.TupleGetItem(present, k)
            if k == index:
                field = self._sum(before, item, gradient, info)
            else:
                field = _zeros(item, info) if before is None else before
            fields.append(self._leaf(field))
        self._bind(operand, rx.Tuple(tuple(fields)))

    def _bind(self, var: rx.Var, adjoint: rx.Expr) -> None:
        self._table[var] = self._builder.emit(adjoint, f"{var.name_hint}_adjoint", span=self.span)

    def _leaf(self, expr: rx.Expr) -> rx.Expr:
        """`expr`, bound to a variable unless it is a variable or a tuple."""
        return expr if isinstance(expr, (rx.Var, rx.Tuple)) else self._builder.emit(expr)

    def _sum(
        self,
        adjoint: rx.Expr | None,
        value: rx.Expr,
        gradient: rx.Expr,
        sinfo: rx.StructInfo | None = None,
    ) -> rx.Expr:
        """The adjoint of `value`, which is 0 for None, with another gradient added."""
        sinfo = value.struct_info if sinfo is None else sinfo
        if _is_zero(gradient):
            return _zeros(value, sinfo) if adjoint is None else adjoint
        if not isinstance(sinfo, rx.TupleStructInfo):
            return gradient if adjoint is None else cast("rx.Expr", R.add(adjoint, gradient))
        if adjoint is None and not isinstance(gradient, rx.Tuple):
            return gradient
        first: rx.Expr | None = None
        if adjoint is not None:
            adjoint = self._leaf(adjoint)
            first = self._leaf(_item(adjoint, 0)) if sinfo.fields else None
        gradient = self._leaf(gradient)
        fields: list[rx.Expr] = []
        for k, info in enumerate(sinfo.fields):
            before = first if adjoint is None or k == 0 else _item(adjoint, k)
            field = self._sum(before, rx.TupleGetItem(value, k), _item(gradient, k), info)
            fields.append(self._leaf(field))
        return rx.Tuple(tuple(fields))


def _is_zero(gradient: rx.Expr) -> bool:
    return isinstance(gradient, rx.Call) and gradient.op == _NO_GRAD


def _item(value: rx.Expr, index: int) -> rx.Expr:
    return value.fields[index] if isinstance(value, rx.Tuple) else rx.TupleGetItem(value, index)


def _zeros(value: rx.Expr, sinfo: rx.StructInfo | None) -> rx.Expr:
    """Zeros like `value`, which has this struct info."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return rx.Tuple(tuple(_zeros(_item(value, k), s) for k, s in enumerate(sinfo.fields)))
    if isinstance(sinfo, rx.TensorStructInfo) and not sinfo.dtype.is_void:
        shape = sinfo.shape
        if isinstance(shape, rx.ShapeExpr):
            return cast("rx.Expr", R.zeros(shape, sinfo.dtype))
    return cast("rx.Expr", R.zeros_like(value))


N = TypeVar("N", bound=Node)

_START = Op("relax.grad.start_checkpoint")
_END = Op("relax.grad.end_checkpoint")


class Checkpoints:
    """The bindings of a block without its checkpoints, and the rematerialised ones.

    The result of `start_checkpoint` is not stored for the backward pass, and neither is anything
    that depends on it, up to the results of `end_checkpoint`. Such a result is stored if another
    `start_checkpoint` takes it, so that consecutive sections are rematerialised separately.
    `result` is what the function returns, and the gradients are by `wanted`.

    Reference:
        Chen, Xu, Zhang & Guestrin, "Training deep nets with sublinear memory cost",
        arXiv:1604.06174, 2016.
    """

    def __init__(self, bindings: Sequence[Binding], result: Expr, wanted: Collection[Var]) -> None:
        self.bindings: list[Binding] = []
        #: The rematerialised bindings of the copies of variables, in the order of evaluation.
        self._again: dict[Var, Expr] = {}
        self._remap: dict[Var, Var] = {}
        self._copies: dict[Var, Var] = {}
        opened: set[Var] = set()
        closed: set[Var] = set()
        values = (*(binding.value for binding in bindings), result)
        uses = Counter(var for value in values for var in occurring_vars(value))
        shared = {var for var, count in uses.items() if count > 1}
        for old in bindings:
            depends = any(v in opened and v not in closed for v in occurring_vars(old.value))
            binding = self._with(self._remap, old)
            var, value = binding.var, binding.value
            if isinstance(value, Call) and value.op in (_START, _END):
                [source] = value.args
                assert old.var is not None
                (opened if value.op == _START else closed).add(old.var)
                if not isinstance(source, Var):  # a constant, which is stored anyway
                    self.bindings.append(VarBinding(old.var, source, span=binding.span))
                    continue
                if value.op == _START and closed.intersection(occurring_vars(old.value)):
                    self._again.pop(source, None)
                # Other uses of the source count for its gradient, but not for that of the result.
                is_other = any(v in shared for v in occurring_vars(old.value))
                if is_other:
                    shared.add(old.var)
                is_kept = is_other and old.var in wanted
                if not is_kept:
                    self._remap[old.var] = source
                if is_kept or not isinstance(old.var, DataflowVar):
                    self.bindings.append(VarBinding(old.var, source, span=binding.span))
                continue
            self.bindings.append(binding)
            if depends and var is not None and isinstance(binding, VarBinding):
                assert old.var is not None
                opened.add(old.var)
                self._again[var] = value

    def image(self, var: Var) -> Var:
        """The variable that replaces `var`: the source of a checkpoint, or itself."""
        return self._remap.get(var, var)

    def stored(self, value: N, builder: BlockBuilder) -> N:
        """`value` with variables that are stored; `builder` receives the rematerialised ones."""
        for var in occurring_vars(value):
            self._compute(var, builder)
        return self._with(self._copies, value)

    def _compute(self, var: Var, builder: BlockBuilder) -> None:
        waiting = [var]
        while waiting:
            last = waiting[-1]
            if last not in self._again or last in self._copies:
                waiting.pop()
                continue
            value = self._again[last]
            missing = [
                v for v in occurring_vars(value) if v in self._again and v not in self._copies
            ]
            if missing:
                waiting += reversed(missing)
            else:
                again = self._with(self._copies, value)
                self._copies[last] = builder.emit(again, f"{last.name_hint}_cp")

    @staticmethod
    def _with(table: dict[Var, Var], node: N) -> N:
        return rewriting.replace_variables(node, table) if table else node


@dataclass(frozen=True)
class Gradient(Pass):
    """Adds to a function `f` its adjoint `f_adjoint`, which returns the gradients of a result too.

    The adjoint has the parameters of `f`. It returns the result of `f` and the tuple of the
    gradients by `require_grads`: parameters, or variables of the dataflow block of `f`; None means
    all parameters. A gradient has the struct info of its variable. The target is the result of `f`,
    or if that is a tuple its field `target_index`: a float of rank 0.

    The body of `f` is one DataflowBlock, maybe after assertions. Gradients pass through operators
    with a gradient, tuples, casts, and `call_tir_with_grad`. What lies between
    `R.grad.start_checkpoint` and `R.grad.end_checkpoint` is rematerialised instead of stored.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no such function.
        MisuseError (also TypeError, ValueError): `require_grads` are not different variables of
            the function.
        TransformError: the body of the function has another form, the target is not a float of
            rank 0, a required variable is not made of floats, or something that the target depends
            on has no gradient.
    """

    func_name: str | rx.GlobalVar
    require_grads: rx.Var | Sequence[rx.Var] | None = None
    target_index: int = 0

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "func_name", name_of_function(self.func_name))
        if isinstance(self.require_grads, rx.Var):
            object.__setattr__(self, "require_grads", (self.require_grads,))

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        name, func = find_function(mod, self.func_name, "Gradient")
        return _Differentiation(mod, name, func, self.target_index).run(self._required(func))

    def _required(self, func: rx.Function) -> Sequence[rx.Var]:
        if self.require_grads is None:
            return func.params
        assert isinstance(self.require_grads, tuple)
        known = {*func.params, *(b.var for block in func.body.blocks for b in block.bindings)}
        for k, var in enumerate(self.require_grads):
            if var not in known:
                raise MisuseError(
                    f"Gradient: {var.name_hint} of require_grads is not a variable of "
                    f"{self.func_name}",
                    hint=f'take it from the module: mod["{self.func_name}"].params',
                    about=var,
                )
            if var in self.require_grads[:k]:
                raise MisuseError(
                    f"Gradient: require_grads has {var.name_hint} twice", about=self.require_grads
                )
        return self.require_grads


class _Differentiation:
    """The construction of the adjoint of one function."""

    def __init__(self, mod: IRModule, name: str, func: rx.Function, target_index: int) -> None:
        self.name = name
        self.original = func
        self.func = rewriting.copy_with_new_vars(func)
        self.target_index = target_index
        self.builder = BlockBuilder(mod, suppress_warnings=True)
        self.adjoints = Adjoints(self.builder)

    def run(self, required: Sequence[rx.Var]) -> IRModule:
        """The module with the adjoint, which returns gradients by variables of the original."""
        assertions, block = self._blocks()
        target = self._target()
        copies = self._copies()
        wanted = [copies[var] for var in required]
        for var in wanted:
            if not _is_float(var.struct_info):
                raise TransformError(
                    f"Gradient: there is no gradient by {var.name_hint}, which is "
                    f"{var.struct_info}, not made of floats",
                    hint="name the variables to differentiate by in require_grads",
                    about=var,
                )
        builder, func = self.builder, self.func
        checkpoints = Checkpoints(block.bindings, func.body.body, set(wanted))
        wanted = [checkpoints.image(var) for var in wanted]
        active = _dependents(checkpoints.bindings, wanted)
        symbol = f"{self.name}_adjoint"
        attrs = func.attrs.without("global_symbol")
        private = "global_symbol" not in func.attrs
        with builder.function(symbol, func.params, attrs, func.is_pure, private):
            for assertion in assertions:
                builder.emit(assertion.value, assertion.var.name_hint)
            with builder.dataflow():
                for binding in checkpoints.bindings:
                    self._forward(binding)
                if target in active:
                    self.adjoints.add(target, R.ones((), tensor_of(target).dtype))
                for binding in reversed(checkpoints.bindings):
                    if binding.var in active:
                        self._backward(binding, checkpoints)
                results = tuple(
                    builder.emit_output(
                        self.adjoints.get_or_zeros(var), f"{var.name_hint}_adjoint_out"
                    )
                    for var in wanted
                )
            gvar = builder.emit_func_output(rx.Tuple((func.body.body, rx.Tuple(results))))
        result = builder.get()
        adjoint = result[gvar]
        assert isinstance(adjoint, rx.Function)
        result[gvar] = _with_spans(rewriting.remove_all_unused(simplified(adjoint)))
        return normalize_module(result)

    def _blocks(self) -> tuple[Sequence[rx.VarBinding], rx.DataflowBlock]:
        """Assertions, and the dataflow block after them, which are the body of the function."""
        blocks = self.func.body.blocks
        if not blocks:  # a parameter is returned
            return [], rx.DataflowBlock(())
        bindings = [binding for block in blocks[:-1] for binding in block.bindings]
        assertions = [b for b in bindings if isinstance(b, rx.VarBinding) and _is_assertion(b)]
        block = blocks[-1]
        if isinstance(block, rx.DataflowBlock) and len(assertions) == len(bindings):
            return assertions, block
        values = [binding.value for each in blocks for binding in each.bindings]
        branching = next((value for value in values if isinstance(value, rx.If)), None)
        if branching is not None:
            raise TransformError(
                f"Gradient: an if in {self.name} has no gradient",
                span=branching.span,
                hint="compute both values, and choose by R.where",
                about=self.original,
            )
        raise TransformError(
            f"Gradient: the body of {self.name} is not one DataflowBlock",
            hint="apply relax.transform.ConvertToDataflow(min_size=1) to pure code before",
            about=self.original,
        )

    def _target(self) -> rx.Var:
        """The variable whose gradient is computed."""
        index, result = self.target_index, self.func.body.body
        results = list(result.fields) if isinstance(result, rx.Tuple) else [result]
        if not 0 <= index < len(results):
            raise TransformError(
                f"Gradient: {self.name} has {counted(len(results), 'result')}, so target_index is "
                f"not {index}",
                hint="a tuple that is not a literal in the return statement is one result",
                about=self.original,
            )
        target = results[index]
        sinfo = target.struct_info
        is_scalar = isinstance(sinfo, rx.TensorStructInfo) and sinfo.ndim == 0
        if isinstance(target, rx.Var) and is_scalar and sinfo.dtype.is_float:  # type: ignore[union-attr]
            return target
        raise TransformError(
            f"Gradient: the target, result {index} of {self.name}, is a float of rank 0 that the "
            f"function computes, found {sinfo}",
            hint="bind it to a variable, as by R.astype(value, 'float32')"
            if is_scalar
            else "reduce it, as by R.sum or R.mean",
            about=self.original,
        )

    def _copies(self) -> dict[rx.Var, rx.Var]:
        """The variable of the copy for each variable of the original function."""
        pairs = list(zip(self.original.params, self.func.params, strict=True))
        for old, new in zip(self.original.body.blocks, self.func.body.blocks, strict=True):
            for a, b in zip(old.bindings, new.bindings, strict=True):
                if a.var is not None and b.var is not None:
                    pairs.append((a.var, b.var))
        return dict(pairs)

    def _forward(self, binding: rx.Binding) -> None:
        """Bind the value of a binding again; operands that were checkpoints are replaced."""
        if isinstance(binding, rx.VarBinding):
            self.builder.emit(binding.value, var=binding.var, span=binding.span)
        else:
            self.builder.emit_normalized(binding)

    def _backward(self, binding: rx.Binding, checkpoints: Checkpoints) -> None:
        """Add the gradients of the operands of a binding to their adjoints."""
        var = binding.var
        adjoint = None if var is None else self.adjoints.get(var)
        if var is None or adjoint is None:
            return
        self.adjoints.span = binding.value.span or binding.span
        match binding.value:
            case rx.Call() as call:
                self._through_call(var, call, adjoint, checkpoints)
            case rx.TupleGetItem(tuple_value=value, index=index):
                self.adjoints.add_field(value, index, adjoint)
            case rx.Var() | rx.Tuple() as value:
                if isinstance(binding, rx.MatchCast):
                    adjoint = self._of_source(value, adjoint)
                self.adjoints.add(value, adjoint)
            case rx.Constant() | rx.PrimValue() | rx.ShapeExpr():
                pass
            case value:
                raise self._without_gradient(f"the {type(value).__name__}", var, value)

    def _of_source(self, value: rx.Expr, adjoint: rx.Var) -> rx.Var:
        """The adjoint of the result of a cast, with the sizes that the source has."""
        before, after = value.struct_info, adjoint.struct_info
        if before is None or after is None or is_base_of(before, after):
            return adjoint
        cast = self.builder.match_cast(adjoint, before)
        assert cast is not None
        return cast

    def _through_call(
        self, var: rx.Var, call: rx.Call, gradient: rx.Var, checkpoints: Checkpoints
    ) -> None:
        operator = find(call.op) if isinstance(call.op, Op) else None
        if operator is None or operator.gradient is None:
            raise self._without_gradient(f"the call of {_callee(call)}", var, call)
        builder = self.builder
        stored = checkpoints.stored(call, builder)
        if stored is not call:
            value = builder.normalize(stored)
            assert isinstance(value, rx.Call)
            stored = value
        result = checkpoints.stored(var, builder)
        try:
            gradients = [
                self._normal(partial)
                for partial in operator.operand_gradients(result, stored, gradient, builder)
            ]
        except RelaxpyError as error:
            error.located(call.span)
            raise
        for operand, partial in zip(call.args, gradients, strict=True):
            self.adjoints.add(operand, partial)

    def _normal(self, partial: rx.Expr) -> rx.Expr:
        """The normal form of a gradient; the fields of a tuple are bound where they are added."""
        if isinstance(partial, rx.Tuple):
            return rx.Tuple(tuple(self._normal(field) for field in partial.fields))
        return self.builder.normalize(partial)

    def _without_gradient(self, what: str, var: rx.Var, value: rx.Expr) -> TransformError:
        callee = value.op if isinstance(value, rx.Call) else None
        if callee == Op("relax.call_tir"):
            hint = (
                "differentiate before LegalizeOps, use call_tir_with_grad, or import a program "
                "with run_ep_decomposition=True"
            )
        elif isinstance(callee, rx.GlobalVar):
            hint = "apply relax.transform.InlinePrivateFunctions before, if the function is private"
        elif isinstance(callee, Op) and not callee.name.startswith("relax.call_"):
            hint = f'register it: relax.op.register_gradient("{callee.name}", ...)'
        else:
            hint = "stop the gradient before it by R.grad.no_grad"
        return TransformError(
            f"Gradient: {what}, which {var.name_hint} of {self.name} is bound to, has no gradient",
            span=value.span,
            hint=hint,
            about=value,
        )


def _is_assertion(binding: rx.VarBinding) -> bool:
    return isinstance(binding.value, rx.Call) and binding.value.op == Op("relax.assert_op")


def _with_spans(func: rx.Function) -> rx.Function:
    """The adjoint with the span of the next binding that has one, where there is none."""
    span: Span | None = None
    spans: dict[rx.Binding, Span | None] = {}
    for block in reversed(func.body.blocks):
        for binding in reversed(block.bindings):
            spans[binding] = span = binding.span or binding.value.span or span

    def step(binding: rx.Binding, block: rx.BindingBlock) -> rx.Binding:
        span, value = spans.get(binding), binding.value
        if isinstance(value, rx.Call) and value.span is None and span is not None:
            value = derived_like(value, replace(value, span=span))
        if value is binding.value and binding.span is not None:
            return binding
        return replace(binding, value=value, span=binding.span or span)

    return rewriting.map_bindings(func, step)


def _callee(call: rx.Call) -> str:
    callee = call.op
    return callee.name if isinstance(callee, Op) else getattr(callee, "name_hint", str(callee))


def _is_float(sinfo: rx.StructInfo | None) -> bool:
    """True if a value is a tensor of floats, or a tuple of such values."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return all(map(_is_float, sinfo.fields))
    return isinstance(sinfo, rx.TensorStructInfo) and (sinfo.dtype.is_float or sinfo.dtype.is_void)


def _dependents(bindings: Iterable[rx.Binding], sources: Iterable[rx.Var]) -> set[rx.Var | None]:
    """The variables that depend on one of the sources, these included."""
    result: set[rx.Var | None] = set(sources)
    for binding in bindings:
        if any(var in result for var in occurring_vars(binding.value)):
            result.add(binding.var)
    return result


_PERMUTE = Op("relax.permute_dims")
_MATMUL = Op("relax.matmul")


def simplified(func: rx.Function) -> rx.Function:
    """The function with x instead of (x')', and with b @ a' instead of (a @ b')'.

    Calls of kernels with gradients become `call_tir`. Bindings that become unused stay.
    """
    return _Simplifier().expr(func)


class _Simplifier(rewriting.BindingRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        if isinstance(binding.value, rx.Call) and binding.value.op == call_tir_with_grad.op:
            return without_gradient(None, binding.value)
        source = _transposed(binding.value)
        value = None if source is None else self.value_of(source)
        if value is None or not isinstance(binding, rx.VarBinding):
            return None
        inner = _transposed(value)
        if inner is not None:
            return inner
        if not (isinstance(value, rx.Call) and value.op == _MATMUL):
            return None
        a, b = value.args
        if not (_is_matrix(a) and _is_matrix(b)):
            return None
        out_dtype = value.attrs["out_dtype"]
        return cast("rx.Expr", R.matmul(self._transpose(b), self._transpose(a), out_dtype))

    def _transpose(self, matrix: rx.Expr) -> rx.Expr:
        source = _transposed(self.value_of(matrix))
        return cast("rx.Expr", R.permute_dims(matrix, [1, 0])) if source is None else source


def _is_matrix(expr: rx.Expr) -> bool:
    return isinstance(expr.struct_info, rx.TensorStructInfo) and expr.struct_info.ndim == 2


def _transposed(expr: rx.Expr | None) -> rx.Expr | None:
    """The matrix that `expr` transposes."""
    if isinstance(expr, rx.Call) and expr.op == _PERMUTE and _is_matrix(expr.args[0]):
        axes = cast("tuple[int, ...] | None", expr.attrs["axes"])
        if axes is None or tuple(a % 2 for a in axes) == (1, 0):
            return expr.args[0]
    return None
