"""ToMixedPrecision: contractions in float16, the rest where it costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import Span
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import apply_column
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import call_graph
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.support.dataclass import dataclass, replace

ALWAYS, FOLLOW = 0, 1
NARROW, WIDE = DataType("float16"), DataType("float32")
_LIMITS: Final = np.finfo(np.float16)
_WRAP_PARAM = Op("relax.wrap_param")
Precision: TypeAlias = "DataType | tuple[Precision, ...] | None"
"""The required precision of a tensor, or those of the fields of a tuple; None if there is none.

The order is None < float16 < float32: uses of one value are joined to the maximum.
"""


@dataclass(frozen=True)
class ToMixedPrecision(Pass):
    """Computes float32 contractions in dataflow blocks, and users that can follow, in float16.

    The precision policy of an operator decides. Operands of matmuls and convolutions become
    float16; their sums are of `out_dtype`, and their results are stored in float16. Operators that
    follow use float16 if all operands have it or are constants in its range, and scalars that are
    not subnormal in it, as an epsilon may be. All others use the datatypes of the program.
    Parameters, results of blocks, and code outside of blocks keep their datatypes. Parameters in
    `fp16_input_names` become float16, but not those of local functions and of functions that the
    module mentions, whose arguments stay unchanged.

    Errors:
        MisuseError (also TypeError, ValueError): `out_dtype` is neither float16 nor float32, or
            `fp16_input_names` are not names.
    """

    out_dtype: Literal["float16", "float32"] = "float32"
    fp16_input_names: Sequence[str] | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        names = frozenset(self.fp16_input_names or ())
        called = {mod.find_function(n) for mentioned in call_graph(mod).values() for n in mentioned}
        builder = BlockBuilder(mod, suppress_warnings=True)

        def converted(func: rx.Function) -> rx.Function:
            narrow = frozenset() if func in called else names
            return _Function(builder, self.out_dtype, narrow).expr(func)

        return rewriting.with_derived_results(
            mod, normalize_module(map_functions(mod, rx.Function, converted))
        )


class _Function(rewriting.BindingRewriter):
    """Rewrites the dataflow blocks of a function."""

    def __init__(self, builder: BlockBuilder, out_dtype: str, narrow: frozenset[str]) -> None:
        super().__init__()
        self._builder, self._out_dtype, self._narrow = builder, out_dtype, narrow
        self._params: dict[rx.Var, rx.Var] = {}
        self._is_local = False

    @override
    def function(self, func: rx.Function) -> rx.Function:
        is_local, self._is_local = self._is_local, True
        images = {p: p if is_local else self._parameter(p) for p in func.params}
        outer, self._params = self._params, images
        params, narrowed = tuple(self._params.values()), self._params
        new = super().function(func)
        self._params, self._is_local = outer, is_local
        if params == func.params:
            return new
        used = set(occurring_vars(new.body))
        widened = tuple(
            rx.VarBinding(old, cast("rx.Expr", R.astype(param, WIDE)), old.span)
            for old, param in narrowed.items()
            if param is not old and old in used
        )
        blocks = (rx.BindingBlock(widened), *new.body.blocks) if widened else new.body.blocks
        return rebuild(new, params=params, body=rebuild(new.body, blocks=blocks))

    def _parameter(self, param: rx.Var) -> rx.Var:
        sinfo = param.struct_info
        if param.name_hint not in self._narrow or not isinstance(sinfo, rx.TensorStructInfo):
            return param
        if sinfo.dtype != WIDE:
            return param
        return rx.Var(param.name_hint, replace(sinfo, dtype=NARROW), param.span)

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if not isinstance(block, rx.DataflowBlock):
            return super().block(block)
        builder = self._builder
        builder._begin_dataflow_block(block)
        rewriter = _Block(builder, self._out_dtype, block.bindings)
        rewriter.take_parameters(self._params)
        for binding in block.bindings:
            rewriter.rewrite(binding)
        last = builder._end_block()
        return [*builder.take_preceding_blocks(), last]


class _Block:
    """The rewriting of one dataflow block: `images` maps variables to their stored forms."""

    def __init__(
        self, builder: BlockBuilder, out_dtype: str, bindings: Sequence[rx.Binding]
    ) -> None:
        self._builder, self._out_dtype = builder, out_dtype
        self._remap: dict[rx.Var, rx.Var] = {}
        self._uses: dict[rx.Var, Precision] = {}
        self._span: Span | None = None
        for binding in reversed(bindings):
            self._collect_uses(binding)

    def take_parameters(self, params: Mapping[rx.Var, rx.Var]) -> None:
        """Use these variables for parameters, cast where only contractions use them."""
        for param, image in params.items():
            self._span = param.span
            if param is not image:
                self._remap[param] = image
            self._store_narrow(param)

    def rewrite(self, binding: rx.Binding) -> None:
        """Emit the replacement of a binding."""
        self._span = binding.span
        match binding:
            case rx.VarBinding(value=rx.Call(op=Op()) as call):
                self._rewrite_call(binding, call)
            case rx.VarBinding(value=rx.Var() | rx.Tuple() | rx.TupleGetItem() as value):
                self._bind(binding, self._stored(value))
            case _:
                self._bind(binding, self._original(binding.value))
        if binding.var is not None:
            self._store_narrow(binding.var)

    def _collect_uses(self, binding: rx.Binding) -> None:
        """Join the precision that a binding requires of its operands to that of other uses."""
        value, wanted = binding.value, self._uses.get(binding.var)  # type: ignore[arg-type]
        if not isinstance(binding.var, rx.DataflowVar):
            wanted = _uniform(_precision(value), WIDE)
        match value:
            case rx.Var() if isinstance(binding, rx.VarBinding):
                self._require(value, wanted)
            case rx.Call() if _is_contraction(value):
                for arg in value.args:
                    self._require(arg, _uniform(_precision(arg), NARROW))
            case rx.Tuple(fields=fields):
                for k, field in enumerate(fields):
                    self._require(field, wanted[k] if isinstance(wanted, tuple) else None)
            case rx.TupleGetItem(tuple_value=source, index=index):
                sinfo = source.struct_info
                assert isinstance(sinfo, rx.TupleStructInfo)
                count = len(sinfo.fields)
                self._require(source, tuple(wanted if k == index else None for k in range(count)))
            case _:
                for var in occurring_vars(value):
                    self._require(var, _uniform(_precision(var), WIDE))

    def _require(self, expr: rx.Expr, precision: Precision) -> None:
        if isinstance(expr, rx.Var):
            self._uses[expr] = _merged(self._uses.get(expr), precision)
        elif isinstance(expr, rx.Tuple):
            for k, field in enumerate(expr.fields):
                self._require(field, precision[k] if isinstance(precision, tuple) else None)

    def _store_narrow(self, var: rx.Var) -> None:
        """Store a variable in float16 where only contractions use it."""
        uses = self._uses.get(var)
        present = self._remap.get(var, var)
        stored = self._cast(present, _where_narrow(_precision(present), uses))
        if stored is not present:
            self._remap[var] = self._emit(stored)

    def _rewrite_call(self, binding: rx.VarBinding, call: rx.Call) -> None:
        assert isinstance(call.op, Op)
        if call.op == _WRAP_PARAM:
            self._bind(binding, self._stored(call.args[0]))
            return
        policy = call.op.record.precision_policy
        contraction = _is_contraction(call)
        args = tuple(map(self._stored, call.args))
        if not contraction and policy != FOLLOW:
            self._bind(binding, self._original(call))
            return
        dtype = NARROW if contraction or all(map(_fits_narrow, args)) else WIDE
        args = tuple(self._cast(arg, _uniform(_precision(arg), dtype)) for arg in args)
        same = all(new is old for new, old in zip(args, call.args, strict=True))
        value: rx.Expr = call if same else rebuild(call, args=args)
        if contraction:
            value = _with_sums(cast("rx.Call", value), self._out_dtype)
        if value is call:
            self._bind(binding, call)
            return
        value = self._builder.normalize(value)
        if contraction and isinstance(binding.var, rx.DataflowVar):
            value = self._cast(value, _uniform(_precision(value), NARROW))
        self._bind(binding, value)

    def _bind(self, binding: rx.Binding, value: rx.Expr) -> None:
        """Bind a value: with the datatype of the program, if the variable outlives the block."""
        if value is binding.value:
            self._builder.emit_normalized(binding)
            return
        var = binding.var
        value = self._builder.normalize(value)
        if isinstance(binding, rx.VarBinding) and isinstance(var, rx.DataflowVar):
            if _precision(value) != _precision(var):
                self._remap[var] = self._builder.emit(value, var.name_hint, span=binding.span)
                return
        else:
            original = _precision(binding.value)
            value = self._builder.normalize(self._cast(value, original))
        self._builder.emit_normalized(replace(binding, value=value))

    def _stored(self, expr: rx.Expr) -> rx.Expr:
        """`expr` on the stored forms of its variables."""
        match expr:
            case rx.Var():
                return self._remap.get(expr, expr)
            case rx.Tuple(fields=fields):
                new = tuple(map(self._stored, fields))
                same = all(a is b for a, b in zip(new, fields, strict=True))
                return expr if same else rebuild(expr, fields=new)
            case rx.TupleGetItem(tuple_value=value):
                source = self._stored(value)
                return expr if source is value else rebuild(expr, tuple_value=source)
            case _:
                return expr

    def _original(self, expr: rx.Expr) -> rx.Expr:
        """`expr` on variables with the datatypes of the program."""
        images: dict[rx.Var, rx.Expr] = {}
        for var in occurring_vars(expr):
            stored = self._remap.get(var)
            if stored is not None:
                value = self._cast(stored, _precision(var))
                images[var] = value if isinstance(value, rx.Var) else self._emit(value)
        return rewriting.replace_variables(expr, images) if images else expr

    def _cast(self, expr: rx.Expr, to: Precision) -> rx.Expr:
        """`expr` with its tensors in the datatypes `to`; itself if it has them already."""
        present = _precision(expr)
        if not _differs(present, to):
            return expr
        if isinstance(to, tuple):
            return rx.Tuple(tuple(self._cast(self._field(expr, k), d) for k, d in enumerate(to)))
        return cast("rx.Expr", replace(R.astype(expr, to), span=self._span))

    def _emit(self, value: rx.Expr) -> rx.Var:
        return self._builder.emit(value, span=self._span)

    def _field(self, expr: rx.Expr, index: int) -> rx.Expr:
        if isinstance(expr, rx.Tuple):
            return expr.fields[index]
        return self._emit(rx.TupleGetItem(expr, index, span=self._span))


def _precision(expr: rx.Expr) -> Precision:
    """The datatype of a tensor that can be cast, or those of the fields of a tuple."""
    if isinstance(expr, rx.Tuple):
        return tuple(map(_precision, expr.fields))
    return _precision_of(expr.struct_info)


def _precision_of(sinfo: rx.StructInfo | None) -> Precision:
    if isinstance(sinfo, rx.TupleStructInfo):
        return tuple(map(_precision_of, sinfo.fields))
    castable = isinstance(sinfo, rx.TensorStructInfo) and sinfo.dtype in (NARROW, WIDE)
    return sinfo.dtype if castable else None  # type: ignore[union-attr]


def _uniform(present: Precision, dtype: DataType) -> Precision:
    """`dtype` for each tensor that can be cast."""
    if isinstance(present, tuple):
        return tuple(_uniform(field, dtype) for field in present)
    return None if present is None else dtype


def _merged(first: Precision, second: Precision) -> Precision:
    """The join of the precisions that two uses require: float32 if either does."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, tuple) and isinstance(second, tuple):
        return tuple(map(_merged, first, second))
    return WIDE if WIDE in (first, second) else NARROW


def _where_narrow(present: Precision, uses: Precision) -> Precision:
    """The datatypes with float16 for values that are only used in it."""
    if isinstance(present, tuple) and isinstance(uses, tuple):
        return tuple(map(_where_narrow, present, uses))
    return NARROW if uses == NARROW and present is not None else present


def _differs(present: Precision, to: Precision) -> bool:
    """True if a tensor is to have another datatype."""
    if isinstance(present, tuple) and isinstance(to, tuple):
        return any(map(_differs, present, to))
    return present is not None and to is not None and present != to


def _is_contraction(call: rx.Call) -> bool:
    """True if a call always uses float16: its operands and result are tensors that can be cast."""
    policy = call.op.record.precision_policy if isinstance(call.op, Op) else None
    tensors = (
        value for value in (call, *call.args) if isinstance(value.struct_info, rx.TensorStructInfo)
    )
    return policy == ALWAYS and all(_precision(tensor) is not None for tensor in tensors)


def _fits_narrow(arg: rx.Expr) -> bool:
    """True if an argument has float16, is a constant in its range, or holds no tensors."""
    if isinstance(arg, rx.Constant):
        data = np.asarray(arg.data)
        if data.dtype == np.float16:
            return True
        return data.dtype.kind in "fi" and _is_in_range(data.astype("float64"))
    if isinstance(arg, rx.Tuple):
        return all(map(_fits_narrow, arg.fields))
    sinfo = arg.struct_info
    if isinstance(sinfo, rx.TupleStructInfo):
        return all(isinstance(f, rx.TensorStructInfo) and f.dtype == NARROW for f in sinfo.fields)
    return not isinstance(sinfo, rx.TensorStructInfo) or sinfo.dtype == NARROW


def _is_in_range(data: Array) -> bool:
    """True if float16 has numbers of these sizes, and all digits of a scalar, as an epsilon."""
    sizes = np.abs(data)
    least = _LIMITS.tiny if data.size == 1 else _LIMITS.smallest_subnormal
    return bool(np.all((sizes == 0) | ((sizes >= least) & (sizes <= _LIMITS.max))))


def _with_sums(call: rx.Call, out_dtype: str) -> rx.Expr:
    """The contraction with sums and the result in `out_dtype`."""
    assert isinstance(call.op, Op)
    rule = call.op.record.mixed_precision
    if rule is not None:
        return cast(
            "rx.Expr",
            apply_column(call.op.name, "mixed_precision", rule, call=call, out_dtype=out_dtype),
        )
    if "out_dtype" in call.attrs:
        return rebuild(call, attrs=call.attrs.updated({"out_dtype": DataType(out_dtype)}))
    return call
