"""Intrinsics of `T` that need special hardware or TVM's runtime, or take a datatype by keyword.

The first kind can be parsed and printed. Running one on NumPy is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import Call, ExprLike, PrimExpr, StringImm
from relaxpy.script.language.records import as_dtype


def intrinsic(name: str) -> Callable[..., PrimExpr]:
    """The intrinsic `name` as a function of its operands."""
    function: Callable[..., PrimExpr] | None = getattr(intrin, name, None)
    if function is not None:
        return function

    def call(x: ExprLike) -> PrimExpr:
        value = ops.convert(x)
        return tir.Call(value.dtype, f"tir.{name}", (value,))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name} of x, of the datatype of x."
    return call


def ignoring_dtype(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """Wrap `function` so that it accepts `dtype=`, as in TVM, and ignores it."""

    @wraps(function)
    def call(*args: Any, dtype: object = None, **kwargs: Any) -> PrimExpr:
        return function(*args, **kwargs)

    return call


def leading_dtype(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """Wrap `function` so that `dtype=` may replace its first argument, as in TVM."""

    @wraps(function)
    def call(*args: Any, dtype: str | None = None, **kwargs: Any) -> PrimExpr:
        return function(*args, **kwargs) if dtype is None else function(dtype, *args, **kwargs)

    return call


_ANY = (0, 255)
_NAMED = (1, 255)

#: Intrinsics by result datatype, each with its least and largest number of operands.
_BY_RESULT_DTYPE: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "handle": {
        **dict.fromkeys(
            ("lookup_param", "start_profile_intrinsic", "end_profile_intrinsic"), (1, 1)
        ),
        "TVMBackendAllocWorkspace": (5, 5),
        "anylist_getitem": (2, 2),
        "end_profile_intrinsic": (1, 1),
        "handle_add_byte_offset": (2, 2),
        "lookup_param": (1, 1),
        "make_filled_simdgroup_matrix": (3, 5),
        "simdgroup_load": (4, 7),
        "simdgroup_multiply_accumulate": (8, 8),
        "simdgroup_store": (4, 7),
        "start_profile_intrinsic": (1, 1),
        "tvm_access_ptr": (5, 5),
        "tvm_bmma_sync": (8, 8),
        "tvm_fill_fragment": (6, 6),
        "tvm_load_matrix_sync": (8, 8),
        "tvm_mma_sync": (8, 8),
        "tvm_stack_alloca": (2, 2),
        "tvm_stack_make_array": (6, 6),
        "tvm_stack_make_shape": _ANY,
        "tvm_store_matrix_sync": (8, 8),
        "tvm_thread_allreduce": _ANY,
        "tvm_throw_last_error": (0, 0),
        "tvm_tuple": _ANY,
    },
    "int32": {
        "TVMBackendFreeWorkspace": (3, 3),
        "anylist_resetitem": (2, 2),
        "anylist_setitem_call_cpacked": _ANY,
        "anylist_setitem_call_packed": _ANY,
        "dp4a": (2, 3),
        "q_multiply_shift": (4, 4),
        "q_multiply_shift_per_axis": (7, 7),
        "tvm_call_cpacked": _NAMED,
        "tvm_call_cpacked_lowered": _NAMED,
        "tvm_call_packed": _NAMED,
        "tvm_call_packed_lowered": _NAMED,
        "tvm_storage_sync": (1, 3),
        "tvm_struct_set": (4, 4),
    },
    "": {
        "create_barriers": (1, 1),
        "ptx_arrive_barrier": (1, 1),
        "ptx_arrive_barrier_expect_tx": (2, 2),
        "ptx_commit_group": (0, 0),
        "ptx_cp_async_barrier": (1, 1),
        "ptx_init_barrier_thread_count": (2, 2),
        "ptx_wait_barrier": (1, 1),
        "ptx_wait_group": (1, 1),
        "thread_return": (0, 0),
    },
    "bool": {"ignore_loop_partition": (1, 1), "isnullptr": (1, 1)},
    "uint32": {"tvm_warp_activemask": (0, 0)},
}

#: Intrinsics whose result has the datatype of one operand: its index, and the operand counts.
_AS_OPERAND: Mapping[str, tuple[int, tuple[int, int]]] = {
    "tvm_thread_invariant": (0, (1, 1)),
    "tvm_warp_shuffle": (1, (5, 5)),
    "tvm_warp_shuffle_down": (1, (5, 5)),
    "tvm_warp_shuffle_up": (1, (5, 5)),
}

#: Intrinsics that take the result datatype first, or as `dtype=`.
_DTYPE_FIRST: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("call_llvm_intrin", "call_llvm_pure_intrin"), _NAMED),
    "get_active_lane_mask": (2, 2),
    "mma_fill": (3, 3),
    "mma_store": (6, 6),
    "ptx_cp_async": (5, 5),
    "ptx_cp_async_bulk": (6, 6),
    "ptx_ldmatrix": (7, 7),
    "ptx_mma": (13, 15),
    "ptx_mma_sp": (16, 16),
    "type_annotation": (0, 0),
    **dict.fromkeys(("vectorhigh", "vectorlow"), (1, 1)),
    "vectorcombine": (2, 2),
}

#: Alternative names.
_ALIASES = {
    "call_cpacked_lowered": "tvm_call_cpacked_lowered",
    "call_packed_lowered": "tvm_call_packed_lowered",
}


def _operands(name: str, args: tuple[Any, ...], count: tuple[int, int]) -> list[PrimExpr]:
    least, most = count
    if not least <= len(args) <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        raise MisuseError(f"{name} takes {expected} operands, found {len(args)}")
    return [intrin.pointer_or_value(arg) for arg in args]


def _named(name: str, result: str, function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"A call of the intrinsic {name}, {result}."
    return function


def _with_result_dtype(name: str, dtype: str, count: tuple[int, int]) -> Callable[..., PrimExpr]:
    def call(*args: Any) -> PrimExpr:
        return Call(dtype, f"tir.{name}", _operands(name, args, count))

    return ignoring_dtype(_named(name, f"which returns {dtype or 'nothing'}", call))


def _as_operand(name: str, index: int, count: tuple[int, int]) -> Callable[..., PrimExpr]:
    def call(*args: Any) -> PrimExpr:
        values = _operands(name, args, count)
        return Call(values[index].dtype, f"tir.{name}", values)

    return ignoring_dtype(_named(name, f"of the datatype of operand {index + 1}", call))


def _with_leading_dtype(name: str, count: tuple[int, int]) -> Callable[..., PrimExpr]:
    def call(*args: Any, dtype: object = None) -> PrimExpr:
        if dtype is None:
            if not args:
                raise MisuseError(f"{name} takes a datatype first")
            dtype, *rest = args
            args = tuple(rest)
        kind: DataType = as_dtype(dtype)
        return Call(kind, f"tir.{name}", _operands(name, args, count))

    return _named(name, "whose datatype is the first argument", call)


def struct_get(arr: Any, index: Any, field: Any, dtype: object) -> PrimExpr:
    """Field `field` of entry `index` of an array of structures, read as `dtype`."""
    return Call(
        as_dtype(dtype),
        "tir.tvm_struct_get",
        [intrin.pointer_or_value(v) for v in (arr, index, field)],
    )


def llvm_lookup_intrinsic_id(name: str) -> PrimExpr:
    """The LLVM intrinsic `name` for `T.call_llvm_intrin`, identified by name, not number.

    Errors:
        MisuseError: `name` is not a name.
    """
    if not isinstance(name, str) or not name:
        raise unexpected(name, "an intrinsic is named by a string")
    return StringImm(name)


def _intrinsics() -> dict[str, Callable[..., PrimExpr]]:
    table: dict[str, Callable[..., PrimExpr]] = {}
    for dtype, names in _BY_RESULT_DTYPE.items():
        table |= {name: _with_result_dtype(name, dtype, count) for name, count in names.items()}
    for name, (index, operands) in _AS_OPERAND.items():
        table[name] = _as_operand(name, index, operands)
    table |= {name: _with_leading_dtype(name, count) for name, count in _DTYPE_FIRST.items()}
    table["tvm_struct_get"] = struct_get
    table |= {alias: table[name] for alias, name in _ALIASES.items()}
    return {name: function for name, function in table.items() if not hasattr(intrin, name)}


INTRINSICS: Mapping[str, Callable[..., PrimExpr]] = _intrinsics()
