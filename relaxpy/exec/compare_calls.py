"""An instrument that compares the calls of a machine with those of other functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from relaxpy.exec.compile import compile
from relaxpy.exec.executable import Executable
from relaxpy.exec.runtime.compare import assert_allclose
from relaxpy.ir.core.device import Device
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.prim_func import PrimFunc


class LibCompareVMInstrument:
    """Compares each kernel that a machine calls with a function of the same name.

    `mod` has these functions: a dict, an executable, or a module, whose kernels the reference
    evaluator runs. A function gets copies of the arguments; the last one is the output. A subclass
    may override `skip_instrument` and `compare`.
    """

    def __init__(
        self,
        mod: IRModule | Executable | Mapping[str, Callable[..., Any]],
        device: Device | None = None,
        verbose: bool = True,
        rtol: float = 1e-5,
        atol: float = 1e-5,
    ) -> None:
        self.mod: Any = _reference_kernels(mod) if isinstance(mod, IRModule) else mod
        self.device = device
        self.verbose = verbose
        self.counter = 0
        self.rtol = rtol
        self.atol = atol

    def compare(
        self,
        name: str,
        ref_args: Sequence[Any],
        new_args: Sequence[Any],
        ret_indices: Iterable[int],
    ) -> None:
        """Call the function with `new_args`, and compare the outputs with those of `ref_args`.

        Errors:
            AssertionError: they differ.
        """
        if self.verbose:
            print(f"[{self.counter}] comparing {name}")
        self.mod[name](*new_args)
        for index in ret_indices:
            assert_allclose(new_args[index], ref_args[index], rtol=self.rtol, atol=self.atol)
        self.counter += 1

    def skip_instrument(
        self, func: object, name: str, before_run: bool, ret_val: object, *args: object
    ) -> bool:
        """Return whether a call is not compared."""
        return False

    def __call__(
        self, func: object, name: str, before_run: bool, ret_val: object, *args: Any
    ) -> None:
        """Compare a call that has returned.

        Errors:
            AssertionError: the results differ.
        """
        if before_run or not args or not all(isinstance(arg, np.ndarray) for arg in args):
            return
        if name not in self.mod or self.skip_instrument(func, name, before_run, ret_val, *args):
            return
        new_args = [*(np.array(arg) for arg in args[:-1]), np.empty_like(args[-1])]
        self.compare(name, args, new_args, (len(args) - 1,))


def _reference_kernels(mod: IRModule) -> dict[str, Callable[..., Any]]:
    return {
        name: compile(IRModule({name: func.with_attr("global_symbol", name)}), "reference")[name]
        for name, func in mod.functions_by_name.items()
        if isinstance(func, PrimFunc)
    }
