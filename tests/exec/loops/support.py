"""Runs compiled kernels and compares them with the reference evaluator."""

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxpy.exec.numpy import runtime
from relaxpy.exec.numpy.compiler import Kernel, compile_kernel
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support import pysource


def rendered(kernel: Kernel) -> str:
    """The generated source of a compiled kernel."""
    return pysource.render(ast.Module([kernel.tree], []))


def source_of(func: PrimFunc, name: str = "kernel") -> str:
    """The generated source of `func`."""
    return rendered(compile_kernel(func, name))


def function_of(kernel: Kernel) -> Callable[..., Any]:
    """The function of a compiled kernel."""
    names = {"np": np, "math": math, "rt": runtime}
    work = pysource.load(rendered(kernel), kernel.name, names)[kernel.name]
    return kernel.checked.checked(work)


def load(func: PrimFunc, name: str = "kernel") -> Callable[..., Any]:
    """The compiled function of `func`."""
    return function_of(compile_kernel(func, name))


def check(
    func: PrimFunc,
    *args: Any,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    compiled: Sequence[Callable[..., Any]] = (),
) -> None:
    """Run `func` by the reference and by NumPy, or as it is `compiled`, on copies of `args`.

    All arrays must agree after.
    """
    theirs = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in args]
    expected = run_prim_func(func, theirs, "kernel")
    for run in compiled or [load(func)]:
        ours = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in args]
        result = run(*ours)
        if expected is not None:
            np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
        for found, wanted in zip(ours, theirs, strict=True):
            if isinstance(found, np.ndarray):
                assert found.dtype == wanted.dtype
                if found.dtype.kind in "biu":
                    np.testing.assert_array_equal(found, wanted)
                else:
                    np.testing.assert_allclose(
                        found.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol
                    )


def methods(func: PrimFunc) -> list[str]:
    """How each statement of `func` runs."""
    return [entry.method for entry in compile_kernel(func, "kernel").report]
