"""QuantizeWeights: weights of matmuls and embedding tables are stored in few bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, Literal, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import Diagnostic, MisuseError, counted, warn
from relaxpy.ir.core.dtype import INT64, Array, DataType
from relaxpy.ir.core.traverse import children, rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.ops.definition.rules import te_kernel
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.algebra.matmuls import is_transposition
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.passes.cleanup.fold_constant import IS_DECODER
from relaxpy.ir.passes.cleanup.private_functions import calls_of
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.group_quantization import (
    Quantization,
    as_quantization,
    rounded_rows,
    scaled_sums,
)
from relaxpy.ir.relax.known import shape_of, tensor_sinfo
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing
from relaxpy.support.progress import long_work

_Layout: TypeAlias = Literal["rows", "columns"]
"""The axis of a weight along which a matmul sums: its rows, or its columns."""
_NAMES: Final = "{}_q_weight", "{}_q_scale"


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Stores weights as packed integers and scales, from which kernels compute the weights.

    Weights are matrices of floats that are the second operand of `matmul`, or of its transposition,
    or from which `take` takes rows: constants, and the parameters whose names are in `params`,
    which may be patterns such as "*_weight". Such a parameter `w` is replaced by `w_q_weight` and
    `w_q_scale`; `pack` computes their values. A parameter that is used otherwise stays, and so do
    parameters of functions that the module calls. `quantization` is the name of one of
    `nn.quantization.QUANTIZATIONS`, or a `Quantization`; groups are along the axis of the sum.
    A module without weights gives a warning.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no quantisation of that name.
        MisuseError (also TypeError, ValueError): `params` are not names, or constants not finite.
    """

    quantization: str | Quantization = "q4f32_1"
    params: Sequence[str] = ()

    @override
    def __post_init__(self) -> None:
        object.__setattr__(self, "quantization", as_quantization(self.quantization))
        super().__post_init__()

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        quantization, layouts = as_quantization(self.quantization), self._layouts(mod)
        called = {mod.functions_by_name.get(name) for name in calls_of(mod)}

        def quantized(func: rx.Function, builder: BlockBuilder) -> rx.Function:
            rewriter = _Quantizing(builder, quantization, {} if func in called else layouts, func)
            after = rewriter.expr(func)
            if after is func:
                return func
            return without_dead_code(rewriter.with_params(after))

        result = rewriting.map_with_builder(mod, quantized)
        if result is mod:
            message = (
                "QuantizeWeights found no weight: constants, or parameters named in `params`, that "
                "are matrices of floats, and second operands of matmul or tables of take"
            )
            warn(Diagnostic(message))
            return mod
        return normalize_module(result)

    @user_facing
    def summary(self, mod: IRModule) -> str:
        """One line: how many weights of `mod` the pass packs, and the bytes of its constants.

        Weights are constants of floats with two axes or more, and the parameters in `params`.
        """
        after = self(mod)
        old, new = _constants(mod), _constants(after)
        weights = [c for c in old if c.data.ndim >= 2 and DataType(c.data.dtype).is_float]
        named = {p.name_hint for f in _functions(mod) for p in f.params if self._names(p)}
        packed = sum(weight not in new for weight in weights) + len(self._layouts(mod))
        before, bytes_after = (sum(c.nbytes for c in constants) for constants in (old, new))
        return (
            f"{packed} of {counted(len(weights) + len(named), 'weight')} packed; constants have "
            f"{before:,} bytes before and {bytes_after:,} after"
        )

    def _names(self, param: rx.Var) -> bool:
        """True if `params` has the name of a parameter, or a pattern of it."""
        return any(fnmatchcase(param.name_hint, name) for name in self.params)

    @user_facing
    def pack(self, mod: IRModule, params: Mapping[str, Array]) -> dict[str, Array]:
        """The values of the parameters of the transformed `mod`, from those of `mod` by name.

        Values of parameters that stay are in the result, too.

        Errors:
            MisuseError (also TypeError, ValueError): a value is not a matrix of finite floats.
        """
        quantization, layouts = as_quantization(self.quantization), self._layouts(mod)
        result: dict[str, Array] = {}
        with long_work("rounding weights", len(params)) as work:
            for name, value in params.items():
                work.advance(name)
                if name not in layouts:
                    result[name] = value
                    continue
                if not isinstance(value, np.ndarray) or value.ndim != 2:
                    found = f"found {value!r:.60}"
                    raise MisuseError(f"weight {name} is a matrix, {found}", about=value)
                stored = _stored(quantization, value, layouts[name])
                result.update(zip(_names(quantization, name), stored, strict=True))
        return result

    def _layouts(self, mod: IRModule) -> dict[str, _Layout]:
        """The layouts of the parameters that are quantised, by their names.

        One of several functions may use a weight otherwise; then it stays in all of them.
        """
        found: dict[str, _Layout | None] = {}
        called = calls_of(mod)
        for var, func in mod.items():
            if not isinstance(func, rx.Function) or var.name_hint in called:
                continue
            for param in filter(self._names, func.params):
                layout = _layout_of(func, param) if _is_weight(param) else None
                name = param.name_hint
                found[name] = layout if found.setdefault(name, layout) == layout else None
        return {name: layout for name, layout in found.items() if layout is not None}


def _functions(mod: IRModule) -> list[rx.Function]:
    return [func for _, func in mod.items() if isinstance(func, rx.Function)]


def _constants(mod: IRModule) -> set[rx.Constant]:
    nodes = (node for func in _functions(mod) for node in walk(func))
    return {node for node in nodes if isinstance(node, rx.Constant)}


def _names(quantization: Quantization, name: str) -> tuple[str, ...]:
    """The names of the parameters that replace one."""
    return tuple(x.format(name) for x in _NAMES) if quantization.is_packed else (name,)


def _stored(quantization: Quantization, weight: Array, layout: _Layout) -> tuple[Array, ...]:
    """The stored form of a weight, with rows along the sum."""
    rows = weight if layout == "rows" else np.ascontiguousarray(weight.T)
    return (
        quantization.quantize(rows)
        if quantization.is_packed
        else (rows.astype(quantization.dtype),)
    )


def _is_weight(expr: rx.Expr) -> bool:
    """True if this is a matrix of floats, whose sizes are known, except for shape variables."""
    sinfo, shape = tensor_sinfo(expr), shape_of(expr)
    if sinfo is None or shape is None or len(shape) != 2 or not sinfo.dtype.is_float:
        return False
    return sinfo.dtype.bits >= 16 and all(isinstance(n, (tir.IntImm, tir.Var)) for n in shape)


def _layout_of(func: rx.Function, param: rx.Var) -> _Layout | None:
    """The layout in which all uses of a parameter have it, or None."""
    turned = {
        b.var
        for b in _bindings(func)
        if rx.is_call_of(b.value, "relax.permute_dims") and b.value.args[0] is param
    }
    layouts: set[_Layout | None] = set()
    for node in walk(func):
        if isinstance(node, rx.Function) or param not in children(node):
            continue
        layouts.add(_layout_in(node, param) if isinstance(node, rx.Call) else None)
    for node in walk(func):
        if isinstance(node, rx.Call) and any(arg in turned for arg in node.args):
            second = rx.is_call_of(node, "relax.matmul") and node.args[0] not in turned
            layouts.add("rows" if second else None)
    [layout, *others] = layouts or {None}
    sizes = shape_of(param)
    assert sizes is not None
    is_known = isinstance(sizes[1 if layout == "rows" else 0], tir.IntImm)
    return layout if not others and is_known else None


def _layout_in(call: rx.Call, weight: rx.Expr) -> _Layout | None:
    """The layout of the weight of a matmul or an embedding table; None in any other call."""
    first, *others = call.args
    if rx.is_call_of(call, "relax.matmul"):
        return "columns" if others[0] is weight and first is not weight else None
    if rx.is_call_of(call, "relax.permute_dims"):
        return "rows" if is_transposition(call) else None
    is_table = rx.is_call_of(call, "relax.take") and call.attrs["axis"] == 0
    return "rows" if is_table and first is weight else None


def _bindings(func: rx.Function) -> Iterator[rx.VarBinding]:
    return (node for node in walk(func) if isinstance(node, rx.VarBinding))


class _Quantizing(rewriting.BindingRewriter):
    """Decodes the weights of one function where they are used."""

    def __init__(
        self,
        builder: BlockBuilder,
        quantization: Quantization,
        layouts: Mapping[str, _Layout],
        func: rx.Function,
    ) -> None:
        super().__init__()
        self.builder, self.quantization = builder, quantization
        self.by_param = {p: layouts[p.name_hint] for p in func.params if p.name_hint in layouts}
        self.stored: dict[tuple[rx.Expr, _Layout], tuple[rx.Expr, ...]] = {}
        self.turned: dict[rx.Expr, rx.Expr] = {}
        """The weights of which variables are the transpositions."""
        self.func = func

    def with_params(self, func: rx.Function) -> rx.Function:
        """The function with stored weights instead of parameters."""
        params: list[rx.Var] = []
        inputs = func.attrs.get("num_input")
        for number, param in enumerate(self.func.params):
            layout = self.by_param.get(param)
            new = (param,) if layout is None else self._stored(param, layout)
            params += cast("tuple[rx.Var, ...]", new)
            if isinstance(inputs, int) and number < cast("int", self.func.attrs["num_input"]):
                inputs += len(new) - 1
        attrs = func.attrs if inputs is None else func.attrs.updated({"num_input": inputs})
        return rebuild(func, params=tuple(params), attrs=attrs)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        call = binding.value
        if not isinstance(binding, rx.VarBinding) or not isinstance(call, rx.Call):
            return None
        steps = rewriting.PrecedingBindings(binding, block)
        if rx.is_call_of(call, "relax.matmul") and call.args[1] in self.turned:
            return self._of_integers(steps, call, self.turned[call.args[1]], "rows")
        for weight in call.args[:2]:
            layout = _layout_in(call, weight)
            if layout is not None and self._is_quantised(weight, layout):
                return self._with_decoded(steps, call, weight, layout)
        return None

    def _of_integers(
        self, steps: rewriting.PrecedingBindings, call: rx.Call, weight: rx.Expr, layout: _Layout
    ) -> list[rx.Binding]:
        """The bindings that replace a matmul whose operands are quantised."""
        stored = self._stored(weight, layout)
        sinfo, (factors, scale) = tensor_sinfo(call), stored
        assert sinfo is not None
        build = partial(te_kernel, self.builder)
        rounded = steps.bound(build(rounded_rows, "quantize_rows", call.args[0]), "_rounded")
        integers = steps.bound(rx.TupleGetItem(rounded, 0), "_integers")
        scales: list[rx.Expr] = [steps.bound(rx.TupleGetItem(rounded, 1), "_scale")]
        dtype = "int32"
        if self.quantization.group:
            integers = steps.bound(R.astype(integers, "float32"), "_numbers")
            dtype = "float32"
            factors = steps.bound(self._decoded(stored, weight, layout, dtype), "_weights")
        else:
            scales.append(scale)
        turned = steps.bound(R.permute_dims(factors), "_turned")
        sums = steps.bound(R.matmul(integers, turned, out_dtype=dtype), "_sums")
        return steps.ended(build(scaled_sums, "scaled", sums, *scales, dtype=str(sinfo.dtype)))

    def _with_decoded(
        self, steps: rewriting.PrecedingBindings, call: rx.Call, weight: rx.Expr, layout: _Layout
    ) -> list[rx.Binding] | None:
        """The bindings that replace one that uses a weight."""
        stored = self._stored(weight, layout)
        if self.quantization.rounds_operands and not rx.is_call_of(call, "relax.take"):
            if rx.is_call_of(call, "relax.matmul"):
                return self._of_integers(steps, call, weight, layout)
            assert steps.binding.var is not None
            self.turned[steps.binding.var] = weight
            return []
        if rx.is_call_of(call, "relax.take"):
            taken = [
                steps.bound(R.take(x, call.args[1], **dict(call.attrs)), "_stored") for x in stored
            ]
            return steps.ended(self._decoded(taken, weight, layout))
        weights = steps.bound(self._decoded(stored, weight, layout), "_weights")
        if rx.is_call_of(call, "relax.permute_dims"):
            args: tuple[rx.Expr, ...] = (weights,)
        else:
            args = (call.args[0], steps.bound(R.permute_dims(weights), "_turned"))
        return steps.ended(replace(call, args=args))

    def _is_quantised(self, weight: rx.Expr, layout: _Layout) -> bool:
        if isinstance(weight, rx.Constant):
            return _is_weight(weight) and weight.data.size > 0
        return self.by_param.get(cast("rx.Var", weight)) == layout

    def _stored(self, weight: rx.Expr, layout: _Layout) -> tuple[rx.Expr, ...]:
        """The constants or parameters with the stored form of a weight."""
        key = weight, layout
        if key not in self.stored:
            if isinstance(weight, rx.Constant):
                arrays = _stored(self.quantization, weight.data, layout)
                self.stored[key] = tuple(map(rx.Constant, arrays))
            else:
                assert isinstance(weight, rx.Var)
                self.stored[key] = self._parameters(weight, layout)
        return self.stored[key]

    def _parameters(self, param: rx.Var, layout: _Layout) -> tuple[rx.Var, ...]:
        shape = shape_of(param)
        assert shape is not None
        rows, size = shape if layout == "rows" else reversed(shape)
        own = self.quantization
        shapes = [((rows, size), own.dtype)]
        if own.is_packed:
            assert isinstance(size, tir.IntImm)
            words, groups = (const(n, INT64) for n in own.row_sizes(size.value))
            shapes = [((rows, words), own.storage_dtype), ((rows, groups), own.dtype)]
        sinfos = [
            rx.TensorStructInfo(rx.ShapeExpr(shape), DataType(dtype)) for shape, dtype in shapes
        ]
        names = _names(own, param.name_hint)
        return tuple(rx.Var(n, s, param.span) for n, s in zip(names, sinfos, strict=True))

    def _decoded(
        self, stored: Sequence[rx.Expr], weight: rx.Expr, layout: _Layout, dtype: str | None = None
    ) -> rx.Call:
        """The weights of stored rows as `dtype`, or in the datatype that the program has."""
        sinfo, shape = tensor_sinfo(weight), shape_of(weight)
        assert sinfo is not None
        assert shape is not None
        if not self.quantization.is_packed:
            return self._decoder(_converted, "convert", stored, {"dtype": str(sinfo.dtype)})
        size = shape[1 if layout == "rows" else 0]
        assert isinstance(size, tir.IntImm)
        options = {
            "size": size.value,
            "dtype": dtype or str(sinfo.dtype),
            "bits": self.quantization.bits,
            "group": self.quantization.group,
            "scale_dtype": dtype or self.quantization.dtype,
        }
        return self._decoder(_weights, "dequantize", stored, options)

    def _decoder(
        self,
        function: Callable[..., Tensor],
        name: str,
        stored: Sequence[rx.Expr],
        options: Mapping[str, object],
    ) -> rx.Call:
        """The call of a kernel on stored rows that stays a kernel where these are constants."""
        return self.builder.call_te_cached(
            function, stored, options, name=name, attrs={IS_DECODER: True}
        )


def _converted(rows: Tensor, *, dtype: str) -> Tensor:
    return topi.cast(rows, dtype)


def _weights(
    packed: Tensor, scale: Tensor, *, size: int, dtype: str, bits: int, group: int, scale_dtype: str
) -> Tensor:
    quantization = Quantization("", bits, group, scale_dtype)
    return quantization.decoded(packed, scale, size, None if dtype == scale_dtype else dtype)
