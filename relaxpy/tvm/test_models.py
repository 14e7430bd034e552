"""Small models for tests: layers that emit kernels, matmuls, and attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.known import expect, shape_of
from relaxpy.ir.relax.nodes import Expr, Function, TensorStructInfo, Var
from relaxpy.ir.te import topi
from relaxpy.ir.tir.expr import IntImm
from relaxpy.plugins.nn.core import current_builder
from relaxpy.plugins.nn.subroutine import SubroutineMixin
from relaxpy.support.entry import user_facing


@user_facing
def emit(expr: Expr, name_hint: str = "") -> Var:
    """Bind an expression in the function that is being built; return the variable.

    Errors:
        BuilderStateError (also RuntimeError): no function is being built.
    """
    return current_builder().emit(expr, name_hint)


@user_facing
def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Bind the result of a tensor expression in the function that is being built.

    Errors:
        BuilderStateError (also RuntimeError): no function is being built.
        MisuseError (also TypeError): as for `BlockBuilder.emit_te`.
    """
    return current_builder().emit_te(func, *args, **kwargs)


def _tensor_variable(shape: Sequence[Any], dtype: str, name: str) -> Var:
    """A new variable; its name is unique in the function that is being built, if there is one."""
    check_type(shape, (list, tuple), "a shape is a list or a tuple")
    builder = BlockBuilder.current()
    unique = name if builder is None else builder.get_unique_name(name)
    return Var(unique, TensorStructInfo(shape, dtype))


@user_facing
def Placeholder(  # noqa: N802  # TVM's name
    shape: Sequence[Any], dtype: str = "float32", name: str = "data"
) -> Var:
    """A new variable for an input.

    Errors:
        MisuseError (also TypeError): the shape is neither a list nor a tuple.
    """
    return _tensor_variable(shape, dtype, name)


@user_facing
def Parameter(  # noqa: N802  # TVM's name
    shape: Sequence[Any], dtype: str = "float32", name: str = "param"
) -> Var:
    """A new variable for a parameter; as an attribute of a module it is one of its parameters.

    Errors:
        MisuseError (also TypeError): the shape is neither a list nor a tuple.
    """
    return _tensor_variable(shape, dtype, name)


class Module(SubroutineMixin):
    """A layer; its parameters are the variables among its attributes, and in those of its parts."""

    @override
    def parameters(self) -> list[Var]:
        """The parameters in the order of attributes."""
        return list(_variables(vars(self)))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the layer. Errors: MisuseError, since a subclass defines it."""
        raise MisuseError(f"module {type(self).__name__} has no method forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`."""
        return self.forward(*args, **kwargs)


def _variables(value: object) -> list[Var]:
    if isinstance(value, Var):
        return [value]
    if isinstance(value, Module):
        return value.parameters()
    fields: Sequence[object] = ()
    if isinstance(value, Mapping):
        fields = list(value.values())
    elif isinstance(value, (list, tuple)):
        fields = value
    return [var for field in fields for var in _variables(field)]


@user_facing
def init_params(mod: IRModule) -> list[Array]:
    """Zeros in float32 for the parameters of `main`, except those whose names begin with `data`.

    Errors:
        MisuseError (also TypeError): the shape of a parameter is not known.
    """
    expect(mod, IRModule)
    main = mod["main"]
    expect(main, Function)
    assert isinstance(main, Function)
    return [_zeros(param) for param in main.params if not param.name_hint.startswith("data")]


def _zeros(param: Var) -> Array:
    sinfo = param.struct_info
    dims = shape_of(sinfo)
    sizes = [dim.value for dim in dims or () if isinstance(dim, IntImm)]
    if dims is None or len(sizes) != len(dims):
        raise MisuseError(
            f"parameter {param.name_hint} is {sinfo}, whose shape is not known", about=param
        )
    return np.zeros(sizes, "float32")


class Sequential(Module):
    """Modules one after the other."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    @override
    def forward(self, input: Expr) -> Any:
        """The result of the last module, which gets that of the one before it, and so on."""
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """max(x, 0)."""

    @override
    def forward(self, input: Expr) -> Var:
        """Emit the kernel."""
        return emit_te(topi.nn.relu, input)


class LogSoftmax(Module):
    """The logarithm of softmax along the last axis."""

    @override
    def forward(self, input: Expr) -> Var:
        """Emit the kernel."""
        return emit_te(topi.nn.log_softmax, input)


class Linear(Module):
    """x @ weight + bias.

    Shapes:
        weight  (in_features, out_features)
        bias    (out_features,)
    """

    def __init__(self, in_features: Any, out_features: Any, bias: bool = True) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    @override
    def forward(self, input: Expr) -> Var:
        """Emit the kernels of the matmul and of the sum."""
        product = emit_te(topi.matmul, input, self.weight)
        return product if self.bias is None else emit_te(topi.add, product, self.bias)


def _module_of(params: Sequence[Var], body: Callable[[BlockBuilder], Expr]) -> IRModule:
    """A module whose function `main` has one dataflow block, which `body` emits."""
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder))
        builder.emit_func_output(result)
    return builder.get()


def _tensor(name: str, shape: Sequence[Any], dtype: str) -> Var:
    return Var(name, TensorStructInfo(tuple(shape), dtype))


@user_facing
def get_relax_matmul_module(
    x_shape: Sequence[Any],
    y_shape: Sequence[Any],
    in_dtype: str,
    out_dtype: str | None = None,
    transposed_y: bool = False,
    bias_shape: Sequence[Any] | None = None,
    activation: Callable[[Expr], Expr] | None = None,
    residual_bin_op: Callable[[Expr, Expr], Expr] | None = None,
    residual_activation: Callable[[Expr], Expr] | None = None,
) -> IRModule:
    """A module whose function `main` is a matmul.

    It may be followed by a bias, an activation, an operator on it and `x`, and an
    activation of that, in this order.
    """
    result_dtype = out_dtype or in_dtype
    x, y = _tensor("x", x_shape, in_dtype), _tensor("y", y_shape, in_dtype)
    bias = None if bias_shape is None else _tensor("bias", bias_shape, result_dtype)

    def body(builder: BlockBuilder) -> Expr:
        rhs: Expr = y
        if transposed_y:
            rhs = builder.emit(R.permute_dims(y, [*range(len(y_shape) - 2), -1, -2]))
        steps: list[Callable[[Expr], Expr] | None] = [
            None if bias is None else lambda result: R.add(result, bias),
            activation,
        ]
        if residual_bin_op is not None:
            steps += [lambda result: residual_bin_op(result, x), residual_activation]
        result: Expr = R.matmul(x, rhs, out_dtype=result_dtype)
        for step in steps:
            if step is not None:
                result = step(builder.emit(result))
        return result

    return _module_of([x, y] if bias is None else [x, y, bias], body)


@user_facing
def get_relax_attention_module(
    q_shape: Sequence[Any],
    k_shape: Sequence[Any],
    v_shape: Sequence[Any],
    *,
    dtype: str,
    bias_shape: Sequence[Any] | Literal["none"] | None = None,
    qk_scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> IRModule:
    """A module whose function `main` is scaled dot-product attention."""
    shapes = {"q": q_shape, "k": k_shape, "v": v_shape}
    params = [_tensor(name, shape, dtype) for name, shape in shapes.items()]
    if bias_shape is not None and bias_shape != "none":
        params.append(_tensor("bias", bias_shape, dtype))
    options = {"scale": qk_scale, "causal_mask": causal_mask, "window_size": window_size}
    return _module_of(params, lambda _: R.nn.attention(*params, **options))


@user_facing
def get_relax_stacked_attention_module(
    qkv: Any,
    b: int,
    s: int,
    n: int,
    h: int,
    h_v: int,
    op: Literal["split", "strided_slice"],
    bias: Any = None,
    qk_scale: float | None = None,
    single_shape: bool = False,
    layout: Literal["BS3NH", "SBN3H"] = "BS3NH",
    causal_mask: str | None = None,
) -> IRModule:
    """A module whose function `main` is attention of queries, keys and values in one tensor.

    `qkv` and `bias` are arrays, whose shapes and datatype count. They are divided by `op`.

    Shapes:
        qkv  (b, s, n * (2 * h + h_v)) for layout BS3NH, (s, b, n, 2 * h + h_v) for SBN3H
    Errors:
        MisuseError (also ValueError): the layout or `op` is unknown.
    """
    if layout not in ("BS3NH", "SBN3H") or op not in ("split", "strided_slice"):
        raise MisuseError(
            "the layout is BS3NH or SBN3H and op is split or strided_slice, "
            f"found {layout!r:.60} and {op!r:.60}"
        )
    dtype = str(qkv.dtype)
    stacked = _tensor("qkv", qkv.shape, dtype)
    params = [stacked] if bias is None else [stacked, _tensor("bias", bias.shape, dtype)]
    batch_first = layout == "BS3NH"
    axis = 2 if batch_first else 3
    size = n * h if batch_first else h

    def third(index: int) -> Expr:
        end = (index + 1) * size if index < 2 else int(qkv.shape[axis])
        return R.strided_slice(stacked, [axis], [index * size], [end], [1])  # type: ignore[no-any-return]

    def body(builder: BlockBuilder) -> Expr:
        if op == "split":
            whole = R.split(stacked, [size, 2 * size], axis=axis)
            parts: list[Expr] = [whole[i] for i in range(3)]
        else:
            parts = [third(i) for i in range(3)]
        if batch_first:
            widths = (h, h, h if single_shape else h_v)
            pairs = zip(parts, widths, strict=True)
            parts = [R.reshape(part, (b, s, n, width)) for part, width in pairs]
        else:
            parts = [R.permute_dims(part, [1, 0, 2, 3]) for part in parts]
        result = R.nn.attention(*parts, *params[1:], scale=qk_scale, causal_mask=causal_mask)
        if batch_first:
            return result  # type: ignore[no-any-return]
        return R.permute_dims(builder.emit(result), [1, 0, 2, 3])  # type: ignore[no-any-return]

    return _module_of(params, body)
