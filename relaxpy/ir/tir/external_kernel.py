"""Calls of external kernels in another language, such as CUDA, which relaxpy cannot run."""

from __future__ import annotations

from keyword import iskeyword
from typing import Any

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.core.dtype import HANDLE, INT32
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Call, PrimExpr, StringImm


def call_kernel(
    kernel: Any, launch_args: object, *args: object, dtype: object = None, **options: object
) -> Call:
    """Build a call of an external kernel, launched over `launch_args`, nested lists of extents.

    `kernel` is its source, with `kernel_name` among the options, or its name, or a Triton
    function.

    Errors:
        MisuseError (also TypeError): `kernel` is none of these.
    """
    if not isinstance(kernel, str) and isinstance(getattr(kernel, "src", None), str):
        kernel, options = kernel.src, {"kernel_name": kernel.__name__, **options}
    if not isinstance(kernel, str) or not kernel:
        raise unexpected(kernel, "an external kernel is a text, a name or a function of Triton")
    if not isinstance(options.get("kernel_name", ""), str):
        raise unexpected(options["kernel_name"], "kernel_name is a string")
    check_type(launch_args, (tuple, list), "a kernel is launched over a list of extents")
    flat_options = [item for option in options.items() for item in option]
    operands = [arg.data if isinstance(arg, Buffer) else ops.convert(arg) for arg in args]
    return Call(
        INT32,
        "tir.call_kernel",
        (StringImm(kernel), _tuple(launch_args), _tuple(flat_options), *operands),
    )


def _tuple(members: Any) -> PrimExpr:
    """Return a `tvm_tuple` call of values and nested lists."""
    args = [_tuple(m) if isinstance(m, (tuple, list)) else ops.convert(m) for m in members]
    return Call(HANDLE, "tir.tvm_tuple", args)


def members(expr: PrimExpr) -> Any:
    """Invert `_tuple`: return nested lists for tuples, and Python strings for string literals."""
    match expr:
        case Call(op=Op(name="tir.tvm_tuple"), args=args):
            return [members(arg) for arg in args]
        case StringImm(value=text):
            return text
        case _:
            return expr


def kernel_call(call: Call) -> tuple[str, list[Any], dict[str, Any]] | None:
    """Return the source, launch arguments and options of a call of an external kernel, or None."""
    match call:
        case Call(
            op=Op(name="tir.call_kernel"), args=(StringImm(value=kernel), launch, flat_options, *_)
        ):
            extents, options = members(launch), members(flat_options)
        case _:
            return None
    if not isinstance(extents, list) or not isinstance(options, list) or len(options) % 2:
        return None
    if not all(isinstance(name, str) and is_identifier(name) for name in options[::2]):
        return None
    return kernel, extents, dict(zip(options[::2], options[1::2], strict=True))


def is_identifier(name: str) -> bool:
    """Return whether `name` is a Python identifier and not a keyword."""
    return name.isidentifier() and not iskeyword(name)


def kernel_name(call: Call) -> str | None:
    """Return the name of the external kernel that `call` calls, or None."""
    external = kernel_call(call)
    return None if external is None else str(external[2].get("kernel_name", external[0]))
