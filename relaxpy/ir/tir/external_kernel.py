"""Calls of kernels in another language, such as CUDA: they are kept, and run elsewhere."""

from __future__ import annotations

from keyword import iskeyword
from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import HANDLE, INT32
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Call, PrimExpr, StringImm


def call_kernel(
    kernel: Any, launch_args: object, *args: object, dtype: object = None, **options: object
) -> Call:
    """A call of a kernel in another language, launched over `launch_args`, nested lists of sizes.

    `kernel` is its text, with `kernel_name` among the options, or its name alone; for a function of
    Triton its text and name are taken.

    Errors:
        MisuseError (also TypeError): it is none of these.
    """
    if not isinstance(kernel, str) and isinstance(getattr(kernel, "src", None), str):
        kernel, options = kernel.src, {"kernel_name": kernel.__name__, **options}
    if not isinstance(kernel, str) or not kernel:
        raise MisuseError(
            f"an external kernel is a text, a name or a function of Triton, found {kernel!r:.60}",
            about=kernel,
        )
    if not isinstance(options.get("kernel_name", ""), str):
        raise MisuseError(
            f"kernel_name is a string, found {options['kernel_name']!r:.60}",
            about=options["kernel_name"],
        )
    if not isinstance(launch_args, (tuple, list)):
        raise MisuseError(
            f"a kernel is launched over a list of sizes, found {launch_args!r:.60}",
            about=launch_args,
        )
    said = [part for option in options.items() for part in option]
    operands = [arg.data if isinstance(arg, Buffer) else ops.convert(arg) for arg in args]
    return Call(
        INT32, "tir.call_kernel", (StringImm(kernel), _tuple(launch_args), _tuple(said), *operands)
    )


def _tuple(members: Any) -> PrimExpr:
    """Members that may be lists of members."""
    parts = [_tuple(m) if isinstance(m, (tuple, list)) else ops.convert(m) for m in members]
    return Call(HANDLE, "tir.tvm_tuple", parts)


def members(expr: PrimExpr) -> Any:
    """What `expr` was made of: lists for tuples, strings for those of Python."""
    match expr:
        case Call(op=Op(name="tir.tvm_tuple"), args=parts):
            return [members(part) for part in parts]
        case StringImm(value=text):
            return text
        case _:
            return expr


def kernel_call(call: Call) -> tuple[str, list[Any], dict[str, Any]] | None:
    """Text, launch arguments and options of a call of an external kernel; None if it is none."""
    match call:
        case Call(op=Op(name="tir.call_kernel"), args=(StringImm(value=kernel), launch, said, *_)):
            sizes, options = members(launch), members(said)
        case _:
            return None
    if not isinstance(sizes, list) or not isinstance(options, list) or len(options) % 2:
        return None
    if not all(isinstance(name, str) and is_identifier(name) for name in options[::2]):
        return None
    return kernel, sizes, dict(zip(options[::2], options[1::2], strict=True))


def is_identifier(name: str) -> bool:
    """Whether Python reads `name` as one."""
    return name.isidentifier() and not iskeyword(name)


def kernel_name(call: Call) -> str | None:
    """What the external kernel that `call` calls is named; None if it calls none."""
    found = kernel_call(call)
    return None if found is None else str(found[2].get("kernel_name", found[0]))
