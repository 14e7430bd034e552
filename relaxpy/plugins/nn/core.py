"""The values of models while they are exported: tensors, parameters, objects and effects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Self, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import BuilderStateError, MisuseError, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.tensor import is_torch, read_array
from relaxpy.ir.op import Op
from relaxpy.ir.ops import python_syntax
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn.methods import TensorMethods
from relaxpy.support.entry import line_span, user_facing

Array: TypeAlias = np.ndarray[Any, Any]
Dim: TypeAlias = int | str | tir.PrimExpr
"""A dimension; a string is the name of a new shape variable."""
_LITERAL: Final = "nn.Tensor.from_const(array) is a literal"
_default_dtype: ContextVar[str] = ContextVar("relaxpy_nn_dtype", default="float32")


def get_default_dtype() -> str:
    """The datatype of parameters that are created without one: float32 unless it was set."""
    return _default_dtype.get()


@user_facing
def set_default_dtype(dtype: str) -> None:
    """Set the datatype of parameters that are created without one.

    Errors:
        MisuseError (also ValueError): there is no such datatype.
    """
    _default_dtype.set(str(DataType(dtype)))


def _operator(
    op: str, name: str | None = None, *, reflected: bool = False
) -> Callable[[Tensor, object], Tensor]:
    """The method for an operator of Python; a reflected one has the tensor on its right."""

    @user_facing
    def method(self: Tensor, other: object) -> Tensor:
        return _binary(op, self, other, name, reflected=reflected)

    return method


def _binary(
    op: str, tensor: Tensor, other: object, name: str | None = None, *, reflected: bool = False
) -> Tensor:
    operands = (tensor._expr, as_operand(other, tensor))
    return emit_tensor(getattr(R, op)(*(reversed(operands) if reflected else operands)), name or op)


def _sign(sign: str, *, reflected: bool = False) -> Callable[[Tensor, object], Tensor]:
    """The method for a sign of Python, whose operator may depend on the datatypes."""

    @user_facing
    def method(self: Tensor, other: object) -> Tensor:
        operands = (self._expr, as_operand(other, self))
        return _emit_call(
            python_syntax.apply(sign, *(reversed(operands) if reflected else operands))
        )

    return method


def _unary_sign(sign: str) -> Callable[[Tensor], Tensor]:
    """The method for a sign of Python before a tensor."""

    @user_facing
    def method(self: Tensor) -> Tensor:
        return _emit_call(python_syntax.apply_unary(sign, self._expr))

    return method


def _emit_call(call: rx.Call) -> Tensor:
    """Bind the call of an operator to a variable that is named after it."""
    assert isinstance(call.op, Op)
    return emit_tensor(call, call.op.name.removeprefix("relax."))


class Tensor(TensorMethods):
    """A tensor of a model: a Relax expression with known shape and datatype.

    Python operators emit calls of Relax operators where the model is exported. A number takes the
    datatype of the other operand.
    """

    _expr: rx.Expr

    def __init__(self, *, _expr: rx.Expr) -> None:
        """Errors: MisuseError if the expression is not a tensor of known shape."""
        self._expr = _with_known_shape(_expr)

    @staticmethod
    @user_facing
    def from_const(data: object) -> Tensor:
        """A literal. Errors: as for `relax.const`."""
        return Tensor(_expr=rx.const(data))

    @staticmethod
    @user_facing
    def from_scalar(data: float, dtype: str) -> Tensor:
        """A literal of rank 0. Errors: as for `relax.const`."""
        return Tensor(_expr=rx.const(data, dtype))

    @staticmethod
    @user_facing
    def from_struct_info(struct_info: rx.TensorStructInfo, name: str = "tensor") -> Tensor:
        """A new variable with this struct info."""
        return Tensor(_expr=rx.Var(name, struct_info))

    @staticmethod
    @user_facing
    def placeholder(shape: Sequence[Dim], dtype: str, name: str = "tensor") -> Tensor:
        """A new variable. It describes the results of external functions, for example.

        Errors:
            MisuseError (also TypeError, ValueError): a dimension is negative, or not a dimension.
        """
        return Tensor(_expr=rx.Var(name, rx.TensorStructInfo(_dims(shape), dtype)))

    @property
    def struct_info(self) -> rx.TensorStructInfo:
        """The struct info of the expression."""
        sinfo = self._expr.struct_info
        assert isinstance(sinfo, rx.TensorStructInfo)
        return sinfo

    @override
    def _bound(self, expr: rx.Expr, name: str) -> Self:
        return emit_tensor(expr, name)  # type: ignore[return-value]

    @property
    @override
    def shape(self) -> list[int | tir.PrimExpr]:
        """The dimensions: integers where they are literals, otherwise scalar expressions."""
        dims = self.struct_info.get_shape()
        assert dims is not None
        return [dim.value if isinstance(dim, tir.IntImm) else dim for dim in dims]

    @property
    def ndim(self) -> int:
        """The rank."""
        return self.struct_info.ndim

    @property
    def dtype(self) -> str:
        """The datatype."""
        return self.struct_info.dtype

    @override
    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'

    __add__ = __radd__ = _operator("add")
    __sub__ = _operator("subtract")
    __rsub__ = _operator("subtract", reflected=True)
    __mul__ = __rmul__ = _operator("multiply", "mul")
    __truediv__ = _operator("divide")
    __rtruediv__ = _operator("divide", reflected=True)
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")
    __floordiv__, __rfloordiv__ = _sign("//"), _sign("//", reflected=True)
    __mod__, __rmod__ = _sign("%"), _sign("%", reflected=True)
    __pow__, __rpow__ = _sign("**"), _sign("**", reflected=True)
    __matmul__, __rmatmul__ = _sign("@"), _sign("@", reflected=True)
    __and__, __rand__ = _sign("&"), _sign("&", reflected=True)
    __or__, __ror__ = _sign("|"), _sign("|", reflected=True)
    __xor__, __rxor__ = _sign("^"), _sign("^", reflected=True)
    __lshift__, __rlshift__ = _sign("<<"), _sign("<<", reflected=True)
    __rshift__, __rrshift__ = _sign(">>"), _sign(">>", reflected=True)
    __neg__, __pos__ = _unary_sign("-"), _unary_sign("+")
    __invert__, __abs__ = _unary_sign("~"), _unary_sign("abs")

    @user_facing
    def maximum(self, other: object) -> Tensor:
        """The greater of each two elements."""
        return _binary("maximum", self, other)

    @user_facing
    def minimum(self, other: object) -> Tensor:
        """The lesser of each two elements."""
        return _binary("minimum", self, other)

    @user_facing
    def astype(self, dtype: str) -> Tensor:
        """The tensor in another datatype, or itself if it has this one."""
        return self if self.dtype == dtype else emit_tensor(R.astype(self._expr, dtype), "astype")

    @user_facing
    def reshape(self, *shape: int | tir.PrimExpr) -> Tensor:
        """The elements in another shape, in which one dimension may be -1."""
        return emit_tensor(R.reshape(self._expr, shape), "reshape")

    @user_facing
    def permute_dims(self, *axes: int) -> Tensor:
        """The tensor with its axes in another order."""
        return emit_tensor(R.permute_dims(self._expr, axes), "permute_dims")

    @user_facing
    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """The tensor with each element repeated along an axis, or in one row."""
        return emit_tensor(R.repeat(self._expr, repeats, axis), "repeat")


class Parameter(Tensor):
    """A weight of a layer, which may have a value. `attrs` is for the attributes that users set."""

    @user_facing
    def __init__(self, shape: Sequence[Dim], dtype: str | None = None) -> None:
        """Errors: MisuseError if a dimension is negative, or not a dimension."""
        super().__init__(
            _expr=Tensor.placeholder(shape, dtype or get_default_dtype(), "param")._expr
        )
        self._data: Array | None = None
        self.attrs: dict[str, Any] = {}

    @override
    def __bool__(self) -> bool:
        """True: a layer has this weight, where `None` is that it has none."""
        return True

    @property
    def data(self) -> Array | None:
        """The value, or None if there is none yet."""
        return self._data

    @data.setter
    @user_facing
    def data(self, data: object) -> None:
        """Set the value: an array, a tensor of another library that supports DLPack, or None.

        Errors:
            MisuseError (also TypeError, ValueError): the value is not a tensor of this shape and
                datatype.
        """
        if data is None:
            self._data = None
            return
        self._data = self.checked(data)

    def checked(self, data: object) -> Array:
        """The array over the memory of a value. Errors: as when `data` is set."""
        try:
            array = read_array(data)
        except BufferError as error:
            raise MisuseError(f"a parameter has a tensor as value: {error}", about=data) from None
        if not isinstance(array, np.ndarray):
            raise unexpected(data, "a parameter has a tensor as value")
        if array.shape != tuple(self.shape):
            raise MisuseError(
                f"a parameter of shape {tuple(self.shape)} cannot have a value of shape "
                f"{array.shape}",
                about=data,
            )
        if DataType(array.dtype) != self.dtype:
            convert = f"to(torch.{self.dtype})" if is_torch(data) else f'astype("{self.dtype}")'
            raise MisuseError(
                f"a parameter of {self.dtype} cannot have a value of {array.dtype}",
                hint=f"convert it: value.{convert}, or set the datatype of the model before "
                f'it has values: model.to("{array.dtype}")',
                about=data,
            )
        return array

    @user_facing
    def to(self, dtype: str | None = None) -> None:
        """Change the datatype, if one is passed.

        Errors:
            MisuseError (also ValueError): the parameter has a value already.
        """
        if dtype is None:
            return
        if self._data is not None:
            raise MisuseError(
                f"the datatype of a parameter with a value stays {self.dtype}",
                hint="call to(dtype) before the value is set",
            )
        self._expr = Tensor.placeholder(self.shape, dtype, "param")._expr


class Object:
    """A value that is not a tensor, such as a cache: a variable whose struct info is `R.Object`.

    Errors:
        MisuseError: the expression has another struct info.
    """

    _expr: rx.Var

    def __init__(self, *, _expr: rx.Expr, _name: str) -> None:
        self._expr = _expr if isinstance(_expr, rx.Var) else current_builder().emit(_expr, _name)
        if not isinstance(self._expr.struct_info, rx.ObjectStructInfo):
            raise MisuseError(
                f"an nn.Object is an R.Object, found {self._expr.struct_info}", about=_expr
            )


class Effect:
    """A state that methods of a model change, such as a cache or printed output.

    Exported methods take its variables after their inputs, and return them after their result.
    Subclasses define the methods.
    """

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[rx.Var]:
        """Emit the initial state in `_initialize_effect`; return its variables."""
        raise self._undefined("emit_init")

    def create(self, name_hint: str) -> list[rx.Var]:
        """New parameters for the state, in a method that is being exported."""
        raise self._undefined("create")

    def set_state(self, state_vars: list[rx.Var]) -> None:
        """Set the variables of the present state."""
        raise self._undefined("set_state")

    def finalize(self) -> list[rx.Var]:
        """The variables of the state at the end of a method, which are then forgotten."""
        raise self._undefined("finalize")

    def to(self, dtype: str | None = None) -> None:
        """Change the datatype of the state, if it has one."""

    def _undefined(self, method: str) -> MisuseError:
        return MisuseError(
            f"effect {type(self).__name__} has no method {method}",
            hint="an effect defines emit_init, create, set_state and finalize",
            about=self,
        )


def _with_known_shape(expr: rx.Expr) -> rx.Expr:
    sinfo = expr.struct_info if isinstance(expr, rx.Expr) else None
    if not isinstance(sinfo, rx.TensorStructInfo) or sinfo.get_shape() is None:
        found = sinfo if isinstance(expr, rx.Expr) else f"{expr!r:.60}"
        raise MisuseError(
            f"an nn.Tensor has a known shape, found {found}",
            hint="dimensions of operands that may differ make the shape of a result unknown",
            about=expr,
        )
    return expr


def _dims(shape: Sequence[Dim]) -> list[int | tir.PrimExpr]:
    """The dimensions of a placeholder, with shape variables for names."""
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise unexpected(shape, "a shape is a sequence of dimensions")
    return [tir.Var(dim, "int64") if isinstance(dim, str) else dim for dim in shape]


def current_builder() -> BlockBuilder:
    """The builder of the function that is being exported.

    Errors:
        BuilderStateError (also RuntimeError): nothing is being exported.
    """
    builder = BlockBuilder.current()
    if builder is None:
        raise BuilderStateError(
            "an operator of nn is called where nothing is being exported",
            hint="call it in a method of an nn.Module; model.jit(spec) compiles the method, so "
            "that it takes arrays, and model.export_tvm(spec) exports it",
        )
    return builder


def as_operand(value: object, like: Tensor) -> rx.Expr:
    """The expression of an operand; a number becomes a literal in the datatype of `like`.

    Errors:
        MisuseError (also TypeError): `value` is neither a tensor nor a number.
    """
    if isinstance(value, Tensor):
        return value._expr
    if isinstance(value, (tir.IntImm, tir.FloatImm)):
        value = value.value
    if isinstance(value, (int, float, np.number)):
        return rx.const(value, like.dtype)
    raise unexpected(value, "expected an nn.Tensor or a number", hint=_LITERAL)


def expr_of(value: object) -> rx.Expr:
    """The expression of a tensor. Errors: MisuseError (also TypeError) if it is none."""
    if isinstance(value, Tensor):
        return value._expr
    raise unexpected(value, "expected an nn.Tensor", hint=_LITERAL)


def items_of(values: object, what: str) -> list[Any]:
    """The items of a collection. Errors: MisuseError (also TypeError) if it is none."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise unexpected(values, f"expected a list of {what}")
    return list(values)


@user_facing
def wrap_nested(expr: rx.Expr, name: str) -> Any:
    """Bind an expression; return it as a Tensor, or as a tuple of them, bound field by field.

    Errors:
        MisuseError (also TypeError): the expression is neither a tensor nor a tuple of tensors.
    """
    bound = expr
    if not isinstance(expr, rx.DataflowVar):
        if isinstance(expr, rx.Call) and expr.span is None:
            expr = replace(expr, span=line_span(sys._getframe(1)))
        bound = current_builder().emit(expr, name)
    match bound.struct_info:
        case rx.TensorStructInfo():
            return Tensor(_expr=bound)
        case rx.TupleStructInfo(fields=fields):
            return tuple(
                wrap_nested(rx.TupleGetItem(bound, i), f"{name}.{i}") for i in range(len(fields))
            )
        case sinfo:
            raise MisuseError(f"an operator of nn returns tensors, found {sinfo}", about=expr)


def emit_tensor(expr: rx.Expr, name: str) -> Tensor:
    """Bind an expression whose value is one tensor."""
    result: Tensor = wrap_nested(expr, name)
    return result
