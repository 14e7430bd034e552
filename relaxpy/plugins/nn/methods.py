"""The methods of tensors of models that users of PyTorch expect, indexing, and hints for names."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, Self, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError, UnknownAttributeError, close_names
from relaxpy.ir.ops.definition.registry import R, registered_ops
from relaxpy.ir.ops.python_syntax import subscript
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir import expr as tir
from relaxpy.support.absent import instead_of
from relaxpy.support.entry import user_facing
from relaxpy.support.missing import LOOKS_UP_NAMES as LOOKS_UP_NAMES, from_import_error

_RUN_TIME: Final = "elements are known at run time only: return the tensor, and read the result"
#: Replacements for names that nn spells otherwise or does not have.
INSTEAD: Final = {
    "F": "its functions are those of nn.op",
    "LSTM": "write its steps in forward, with nn.op and a Python loop",
    "LeakyReLU": "write nn.op.maximum(x, x * slope)",
    "MultiheadAttention": "write nn.Attention or nn.op.scaled_dot_product_attention",
    "Sigmoid": "write nn.op.sigmoid(x)",
    "Softmax": "write nn.op.softmax(x, axis)",
    "Tanh": "write nn.op.tanh(x)",
    "abs": "write x.abs()",
    "bmm": "write nn.op.matmul(a, b)",
    "cat": "write nn.op.concat(tensors, dim)",
    "clamp": "write nn.op.maximum and nn.op.minimum",
    "contiguous": "leave it out: tensors of a model have no strides",
    "cpu": "leave it out: models run on the CPU",
    "cuda": "leave it out: models run on the CPU",
    "detach": "leave it out: a model has no graph of gradients",
    "div": "write a / b, or nn.op.divide",
    "expand": "write nn.op.broadcast_to(x, shape)",
    "flatten": "write x.flatten(1)",
    "float": 'write x.astype("float32")',
    "functional": "its functions are those of nn.op",
    "half": 'write x.astype("float16")',
    "init": "set parameter.data, or call load_state_dict",
    "item": _RUN_TIME,
    "linear": "write nn.Linear, or nn.op.matmul(x, nn.op.permute_dims(weight))",
    "masked_fill": "write nn.op.where(mask, value, x)",
    "mean": "write x.mean(axis)",
    "mm": "write nn.op.matmul(a, b)",
    "mul": "write a * b, or nn.op.multiply",
    "neg": "write -x, or nn.op.negative",
    "numpy": _RUN_TIME,
    "stack": "write nn.op.concat([nn.op.unsqueeze(x, dim) for x in tensors], dim)",
    "sub": "write a - b, or nn.op.subtract",
    "to": 'write x.astype("float16")',
    "tolist": _RUN_TIME,
    "transpose": "write x.transpose(dim0, dim1), or nn.op.permute_dims(x, axes)",
    "view": "write x.view(...), or nn.op.reshape(x, shape)",
}


_NO_MODES: Final = "leave it out: a model is exported for inference, where dropout drops nothing"
_LISTED: Final = "named_parameters() has the parameters by path, and print(model) shows the layers"
_ATTRIBUTE: Final = "write self.name = nn.Parameter(shape): parameters and layers are attributes"
_GRADIENTS: Final = "a model has no graph of gradients: relax.training trains what it exports"
#: Replacements for methods of PyTorch's modules.
MODULE_INSTEAD: Final = {
    "add_module": _ATTRIBUTE,
    "backward": _GRADIENTS,
    "bfloat16": 'write model.to("bfloat16")',
    "children": _LISTED,
    "compile": "model.jit(spec) compiles the methods that the specification names",
    "cpu": INSTEAD["cpu"],
    "cuda": INSTEAD["cuda"],
    "double": 'write model.to("float64")',
    "eval": _NO_MODES,
    "float": 'write model.to("float32")',
    "half": 'write model.to("float16")',
    "modules": _LISTED,
    "named_children": _LISTED,
    "named_modules": _LISTED,
    "register_buffer": _ATTRIBUTE,
    "register_module": _ATTRIBUTE,
    "register_parameter": _ATTRIBUTE,
    "requires_grad_": _GRADIENTS,
    "summary": "print(model) shows the layers and the shapes of parameters",
    "train": _GRADIENTS,
    "zero_grad": _GRADIENTS,
}


def tensor_hint(name: str, known: Iterable[str]) -> str | None:
    """The hint for a method or function of PyTorch or NumPy on a tensor."""
    if name in INSTEAD:
        return INSTEAD[name]
    close = close_names(name, (other for other in known if not other.startswith("_")))
    if close is None and {f"relax.{name}", f"relax.nn.{name}"} & registered_ops().keys():
        return f"write nn.op.{name}(x) if nn.op has it, or the operator in an R.function"
    return close


def missing_name(module: str, name: str) -> NoReturn:
    """Raise the error for a name that a module of nn does not have, with what to write instead.

    Errors:
        UnknownAttributeError (also AttributeError), UnknownImportError in a statement of import
    """
    message = f"{module.partition('frontend.')[2]} has no attribute {name!r}"
    if name.startswith("_"):
        raise AttributeError(message)
    public = [other for other in dir(sys.modules[module]) if not other.startswith("_")]
    hint = instead_of(f"{module}.{name}") or INSTEAD.get(name) or close_names(name, public)
    raise from_import_error(module, name, hint) or UnknownAttributeError(
        message, hint=hint, about=name
    )


#: The method that an operator of an array on the left has, by the function of NumPy.
_REFLECTED: Final = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__",
    "power": "__rpow__",
    "matmul": "__rmatmul__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "left_shift": "__rlshift__",
    "right_shift": "__rrshift__",
}
IntExpr: TypeAlias = int | tir.PrimExpr
Axes: TypeAlias = int | Sequence[int] | None


def _reduction(op: str) -> Callable[..., Any]:
    @user_facing
    def method(
        self: TensorMethods,
        axis: Axes = None,
        keepdims: bool = False,
        *,
        dim: Axes = None,
        keepdim: bool = False,
    ) -> Any:
        axes = dim if axis is None else axis
        return self._bound(getattr(R, op)(self._expr, axes, keepdims or keepdim), op)

    method.__name__ = op
    method.__doc__ = f"`relax.{op}` along some axes, or all; `dim` and `keepdim` as in PyTorch."
    return method


def _elementwise(op: str) -> Callable[..., Any]:
    @user_facing
    def method(self: TensorMethods) -> Any:
        return self._bound(getattr(R, op)(self._expr), op)

    method.__name__ = op
    method.__doc__ = f"`relax.{op}` of each element."
    return method


class TensorMethods:
    """The methods; `_bound` binds the expression of a result."""

    _expr: Expr
    __iter__ = None
    """A tensor is not a sequence of tensors: `nn.op.split` is one."""

    @abstractmethod
    def _bound(self, expr: Expr, name: str) -> Self:
        """The tensor that is the value of an expression."""

    @property
    @abstractmethod
    def shape(self) -> list[IntExpr]:
        """The dimensions."""

    sum, mean = _reduction("sum"), _reduction("mean")
    max, min = _reduction("max"), _reduction("min")
    exp, log, sqrt = _elementwise("exp"), _elementwise("log"), _elementwise("sqrt")
    tanh, sigmoid, square = _elementwise("tanh"), _elementwise("sigmoid"), _elementwise("square")
    abs = _elementwise("abs")

    @user_facing
    def view(self, *shape: Any) -> Self:
        """The elements in another shape, in which one dimension may be -1."""
        return self._bound(R.reshape(self._expr, _flat(shape)), "reshape")

    @user_facing
    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The tensor with the axes from `start_dim` to `end_dim` as one."""
        start, end = self._axis(start_dim), self._axis(end_dim)
        shape = [*self.shape[:start], -1, *self.shape[end + 1 :]]
        return self._bound(R.reshape(self._expr, shape), "reshape")

    @user_facing
    def permute(self, *axes: Any) -> Self:
        """The tensor with its axes in another order."""
        return self._bound(R.permute_dims(self._expr, _flat(axes)), "permute_dims")

    @user_facing
    def transpose(self, dim0: int, dim1: int) -> Self:
        """The tensor with two axes exchanged."""
        axes = list(range(len(self.shape)))
        first, second = self._axis(dim0), self._axis(dim1)
        axes[first], axes[second] = second, first
        return self._bound(R.permute_dims(self._expr, axes), "permute_dims")

    @property
    def T(self) -> Self:  # noqa: N802
        """The tensor with its axes in the reverse order."""
        return self._bound(R.permute_dims(self._expr), "permute_dims")

    @user_facing
    def squeeze(self, axis: Axes = None) -> Self:
        """The tensor without axes of size 1: those of `axis`, or all for None."""
        return self._bound(R.squeeze(self._expr, axis), "squeeze")

    @user_facing
    def unsqueeze(self, dim: int) -> Self:
        """The tensor with a new axis of size 1 at `dim`."""
        return self._bound(R.expand_dims(self._expr, dim), "unsqueeze")

    @user_facing
    def size(self, dim: int | None = None) -> Any:
        """The dimensions, or one of them."""
        return self.shape if dim is None else self.shape[self._axis(dim)]

    def dim(self) -> int:
        """The rank."""
        return len(self.shape)

    @user_facing
    def __getitem__(self, key: object) -> Self:
        """The elements at integers, slices, `...`, `None` and a tensor, as of an array of NumPy.

        Errors:
            MisuseError (also TypeError, ValueError): an index is something else, or outside.
        """
        result = self

        def bind(call: Expr, name: str) -> Expr:
            nonlocal result
            result = result._bound(call, name)
            return result._expr

        keys = key if isinstance(key, tuple) else (key,)
        subscript(self._expr, tuple(map(_expr_of, keys)), bind)
        return result

    def _axis(self, axis: int) -> int:
        """An axis from 0. Errors: MisuseError if the tensor does not have it."""
        ndim = len(self.shape)
        if not isinstance(axis, int) or not -ndim <= axis < ndim:
            raise MisuseError(f"a tensor of rank {ndim} has no axis {axis!r:.60}", about=axis)
        return axis % ndim

    @user_facing
    def __bool__(self) -> bool:
        """Errors: MisuseError, as elements are known at run time only."""
        raise MisuseError(
            "a method of a model cannot branch on a value: it is called once, to be exported",
            hint="nn.op.where(condition, a, b) selects elements; a condition on a shape or on an "
            "option of the model is decided while it is exported",
        )

    @classmethod
    @user_facing
    def __torch_function__(cls, func: Any, types: object, *_: object) -> NoReturn:
        """Errors: MisuseError, as functions of torch do not export."""
        _refuse("torch", func)

    @user_facing
    def __array_function__(self, func: Any, types: object, *_: object) -> NoReturn:
        """Errors: MisuseError, as functions of NumPy do not export."""
        _refuse("np", func)

    @user_facing
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: object) -> Any:
        """The operator of an array and this tensor, which also refuses other arrays.

        Errors:
            MisuseError: it is a function of NumPy, which does not export.
        """
        reflected = _REFLECTED.get(ufunc.__name__)
        if reflected is None or len(inputs) != 2 or inputs[0] is self:
            _refuse("np", ufunc)
        left = inputs[0]  # an array of rank 0 is a number, which comparisons make one of
        number = isinstance(left, np.ndarray) and left.ndim == 0
        return getattr(self, reflected)(left[()] if number else left)

    @user_facing
    def __setitem__(self, key: object, value: object) -> NoReturn:
        """Errors: MisuseError (also TypeError), as tensors do not change."""
        raise MisuseError(
            "the elements of a tensor of a model do not change",
            hint="nn.op.where(mask, value, x) makes another tensor, and nn.op.concat joins some",
            about=value,
        )

    @user_facing
    def __getattr__(self, name: str) -> NoReturn:
        """Errors: UnknownAttributeError (also AttributeError), with what to write instead."""
        message = f"an nn.Tensor has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(message, name=name, obj=self)
        raise UnknownAttributeError(message, hint=tensor_hint(name, dir(type(self))), about=name)


def _refuse(library: str, func: Any) -> NoReturn:
    name = getattr(func, "__name__", "f")
    raise MisuseError(
        f"{library}.{name} cannot be applied to an nn.Tensor, which is exported",
        hint=tensor_hint(name, ()) or f"write an operator of nn.op instead of {name}",
    )


def _flat(sizes: Sequence[Any]) -> Sequence[Any]:
    """The numbers of a call that may have them in one list."""
    return sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes


def _expr_of(item: object) -> object:
    """The expression of a tensor; any other index itself."""
    return item._expr if isinstance(item, TensorMethods) else item
