"""Models with quantised weights: layers that decode them, and packed parameters from plain ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, check_type
from relaxpy.ir.core.target import Target, target_facts, target_kind
from relaxpy.ir.core.tensor import read_array
from relaxpy.ir.relax.group_quantization import (
    Quantization,
    as_quantization,
    rounded_rows,
    scaled_sums,
)
from relaxpy.plugins.nn.core import Dim, Effect, Parameter, Tensor, current_builder, wrap_nested
from relaxpy.plugins.nn.exporter import Branch, named_items
from relaxpy.plugins.nn.module import Module, ModuleDict, ModuleList, ParameterDict, ParameterList
from relaxpy.plugins.nn.modules import Embedding, Linear
from relaxpy.plugins.nn.ops import layers
from relaxpy.support.entry import user_facing
from relaxpy.support.progress import long_work


class Mutator:
    """Visits a model; the result of a method replaces the node that it was called with.

    A subclass overrides methods for the kinds of nodes that it replaces. `visit` continues with
    the children. Names are paths, such as `layers.0.weight`.
    """

    def visit_module(self, name: str, node: Module) -> Any:
        """The replacement of a module that is not a collection."""
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        """The replacement of an effect."""
        return self.visit(name, node)

    def visit_param(self, name: str, node: Parameter) -> Any:
        """The replacement of a parameter."""
        return self.visit(name, node)

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """The replacement of a ModuleDict."""
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """The replacement of a ModuleList."""
        return self.visit(name, node)

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        """The replacement of a ParameterDict."""
        return self.visit(name, node)

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        """The replacement of a ParameterList."""
        return self.visit(name, node)

    def visit(self, name: str, node: Any) -> Any:
        """Replace the children of `node`, and return it."""
        if isinstance(node, Branch):
            for item_name, item in node.items_by_name():
                path = f"{name}.{item_name}" if name else item_name
                replacement = self._visit_item(path, item)
                if replacement is not item:
                    node.replace_item(item_name, replacement)
        return node

    def _visit_item(self, path: str, item: Any) -> Any:
        match item:
            case ParameterDict():
                return self.visit_parameterdict(path, item)
            case ParameterList():
                return self.visit_parameterlist(path, item)
            case ModuleDict():
                return self.visit_moduledict(path, item)
            case ModuleList():
                return self.visit_modulelist(path, item)
            case Module():
                return self.visit_module(path, item)
            case Effect():
                return self.visit_effect(path, item)
            case Parameter():
                return self.visit_param(path, item)
            case _:
                return item


Array: TypeAlias = NDArray[Any]


class _Quantized(Module):
    """A layer with a matrix of packed weights.

    Shapes:
        q_weight  (rows, elements in memory of a row), as `Quantization` says
        q_scale   (rows, groups of a row)
    """

    def __init__(self, quantization: Quantization, rows: Dim, size: Dim) -> None:
        if not isinstance(size, int):
            raise MisuseError(
                f"rows of quantised weights have a known size, found {size}", about=size
            )
        self.quantization = quantization
        self._size = size
        words, groups = quantization.row_sizes(size)
        self.q_weight = Parameter((rows, words), quantization.storage_dtype)
        self.q_scale = Parameter((rows, groups), quantization.dtype)

    def decoded(self, packed: Tensor, scale: Tensor) -> Tensor:
        """The weights of rows of the parameters."""
        return self._weights(Quantization.decoded, packed, scale)

    def _weights(self, function: Callable[..., Any], packed: Tensor, scale: Tensor) -> Tensor:
        of_rows = _of_rows(function, self.quantization, self._size)
        weights: Tensor = _by_one_kernel(of_rows, "dequantize", [packed, scale])
        return weights

    def product(self, x: Tensor, out_dtype: str | None) -> Tensor:
        """`x @ weight^T`."""
        if self.quantization.rounds_operands:
            return self._product_of_integers(x, out_dtype or x.dtype)
        if self._is_decoded_when_read(x, out_dtype or x.dtype):
            inside = _of_rows(Quantization.product, self.quantization, self._size)
            operands = [self.q_weight, self.q_scale, x]
            found: Tensor = _by_one_kernel(inside, "dequantize_matmul", operands)
            return found
        weight = self.decoded(self.q_weight, self.q_scale)
        return layers.matmul(x, layers.permute_dims(weight), out_dtype=out_dtype)

    def _is_decoded_when_read(self, x: Tensor, dtype: str) -> bool:
        """True if the product is one kernel, which the pass InlineDecoding would make for it."""
        # Programs from the disk cache need no passes.
        from relaxpy.ir.passes.fusion.inline_decoding import FEW_ROWS, has_fast_groups

        own = self.quantization
        if not (own.group and x.ndim == 2 and {x.dtype, own.dtype, dtype} == {"float32"}):
            return False
        rows, columns = x.shape[0], self.q_weight.shape[0]
        is_known = isinstance(columns, int) and has_fast_groups(own.group, self._size)
        are_few = not isinstance(rows, int) or rows <= FEW_ROWS
        return is_known and are_few and target_facts(target_kind(Target.current())).is_native

    def _product_of_integers(self, x: Tensor, dtype: str) -> Tensor:
        """`x @ weight^T`, where the rows of `x` are rounded to int8."""
        integers, row_scale = _by_one_kernel(rounded_rows, "quantize_rows", [x])
        scales = [row_scale]
        if self.quantization.group:
            weight = self._weights(Quantization.factors, self.q_weight, self.q_scale)
            weight = layers.permute_dims(weight)
            sums = layers.matmul(integers.astype("float32"), weight, out_dtype="float32")
        else:
            weight = layers.permute_dims(self.q_weight)
            sums = layers.matmul(integers, weight, out_dtype="int32")
            scales.append(self.q_scale)
        result: Tensor = _by_one_kernel(scaled_sums, "scaled", [sums, *scales], dtype=dtype)
        return result

    @override
    def to(self, dtype: str | None = None) -> None:
        """Errors: MisuseError (also ValueError) if that is not the datatype of the scales."""
        if dtype is not None and dtype != self.quantization.dtype:
            own = self.quantization
            raise MisuseError(
                f"weights of {own.name} are of {own.dtype}, not {dtype}",
                hint="choose a quantisation of that datatype",
            )


@lru_cache(256)
def _of_rows(function: Callable[..., Any], quantization: Quantization, size: int) -> Any:
    """The function of packed rows, their scales, and maybe another operand."""
    return lambda *tensors: function(quantization, *tensors, size)


def _by_one_kernel(
    function: Callable[..., Any], name: str, args: Sequence[Tensor], **options: object
) -> Any:
    """The tensors that a function of tensor expressions computes.

    Its kernel is built once for all arguments of the same kinds.
    """
    builder = current_builder()
    operands = [arg._expr for arg in args]
    call = builder.call_te_cached(function, operands, options, name=name)
    return wrap_nested(builder.emit(call), name)


class QuantizedLinear(_Quantized):
    """x @ weight^T + bias, for packed weights."""

    def __init__(self, linear: Linear, quantization: Quantization) -> None:
        """The layer that replaces `linear`."""
        super().__init__(quantization, linear.out_features, linear.in_features)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.out_dtype, self.bias = linear.out_dtype, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """The result for `x`, of shape (..., in_features)."""
        result = self.product(x, self.out_dtype)
        return result if self.bias is None else result + self.bias


class QuantizedEmbedding(_Quantized):
    """A row of packed weights for each integer."""

    def __init__(self, embedding: Embedding, quantization: Quantization) -> None:
        """The layer that replaces `embedding`."""
        super().__init__(quantization, embedding.num, embedding.dim)
        self.num, self.dim = embedding.num, self._size

    def forward(self, x: Tensor) -> Tensor:
        """The rows for integers of any shape."""
        indices = x if x.ndim == 1 else layers.reshape(x, [-1])
        packed, scale = (layers.take(p, indices, axis=0) for p in (self.q_weight, self.q_scale))
        rows = self.decoded(packed, scale)
        return rows if x.ndim == 1 else layers.reshape(rows, [*x.shape, self.dim])

    def lm_head_forward(self, x: Tensor) -> Tensor:
        """`x @ weight^T` in float32, for models whose last layer has the weights of the first."""
        return self.product(x, "float32")


_PACKED = ("q_weight", "q_scale")


class _Quantizing(Mutator):
    def __init__(self, quantization: Quantization) -> None:
        self.quantization = quantization

    @override
    def visit_module(self, name: str, node: Module) -> Any:
        match node:
            case Linear():
                return QuantizedLinear(node, self.quantization)
            case Embedding():
                return QuantizedEmbedding(node, self.quantization)
            case _:
                return self.visit(name, node)


@user_facing
def quantize_model(model: Module, quantization: str | Quantization) -> Module:
    """Replace Linear and Embedding of a model by layers that decode packed weights; return it.

    Parameters of other layers have the datatype of the quantisation. The model must not have
    values yet.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no quantisation of that name.
        MisuseError (also TypeError, ValueError): a parameter has a value, or rows of weights have
            no known size, or the model is not an nn.Module.
    """
    chosen = as_quantization(quantization)
    check_type(model, Module, "expected an nn.Module")
    model.to(dtype=chosen.dtype)
    if not chosen.is_packed:
        return model
    result: Module = _Quantizing(chosen).visit_module("", model)
    return result


@user_facing
def quantize_state_dict(model: Module, state_dict: Mapping[str, Any]) -> dict[str, Array]:
    """The values of the parameters of a quantised model, from those of the plain model.

    Packed parameters are computed from the value at the path of the plain `weight`, unless there is
    one at the path of `q_weight`. Others are converted to the datatype of the parameter. Values
    that the model does not use are left out.

    Errors:
        UnknownNameError (also KeyError, ValueError): values are missing; all are named.
        MisuseError (also TypeError, ValueError): a value is not a tensor, or has another shape, or
            the weights are not finite.
    """
    if not isinstance(model, Module) or not isinstance(state_dict, Mapping):
        raise MisuseError(
            f"expected an nn.Module and a table of values by path, found {model!r:.60} and "
            f"{state_dict!r:.60}",
            about=state_dict,
        )
    return rounded(model, state_dict)


def rounded(
    model: Module, state_dict: Mapping[str, Any], progress: bool | None = None
) -> dict[str, Array]:
    """The result of `quantize_state_dict`; one value after the other is read from the table."""
    quantized = {"": model} if isinstance(model, _Quantized) else {}
    quantized.update(named_items(model, _Quantized))
    result: dict[str, Array] = {}
    missing: list[str] = []

    def value(path: str) -> Array | None:
        found = state_dict.get(path)
        data = found.data if isinstance(found, Parameter) else found
        if data is None:
            missing.append(path)
            return None
        return np.asarray(read_array(data))

    given = list(model.named_parameters())
    with long_work("rounding weights", len(given), shown=progress) as work:
        for path, param in given:
            work.advance(path)
            prefix, _, last = path.rpartition(".")
            layer = quantized.get(prefix)
            is_plain = f"{prefix}.q_weight".lstrip(".") not in state_dict
            if layer is None or last not in _PACKED or not is_plain:
                if (own := value(path)) is not None:
                    _check_shape(path, own, tuple(param.shape))
                    result[path] = own.astype(param.dtype, copy=False)
            elif last == "q_weight":
                plain = f"{prefix}.weight" if prefix else "weight"
                if (weight := value(plain)) is not None:
                    _check_shape(plain, weight, (param.shape[0], layer._size))
                    scale = path.removesuffix("q_weight") + "q_scale"
                    result[path], result[scale] = layer.quantization.quantize(weight)
    if missing:
        raise UnknownNameError(f"values are missing: {', '.join(missing)}")
    return result


def _check_shape(path: str, value: Array, shape: tuple[object, ...]) -> None:
    known = zip(value.shape, shape, strict=False)
    if value.ndim != len(shape) or any(isinstance(n, int) and m != n for m, n in known):
        raise MisuseError(
            f"parameter {path} has shape {shape}, found a value of {value.shape}", about=value
        )
