"""The frames of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from relaxpy.errors import BuilderStateError
from relaxpy.script.ir_builder.base import IRBuilder, IRBuilderFrame, TIRFrame
from relaxpy.script.ir_builder.ir.frame import IRModuleFrame, add_function
from relaxpy.script.language.kernel_builder import KernelBuilder


class PrimFuncFrame(IRBuilderFrame):
    """A kernel."""

    display_name = "T.prim_func"

    def __init__(self, *, is_private: bool = False) -> None:
        super().__init__()
        self.name: str | None = None
        self.is_private = is_private

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        if builder.frames and builder.innermost(IRModuleFrame) is None:
            raise BuilderStateError(f"a kernel cannot be inside {builder.frames[-1]}")
        kernel = self.kernel = KernelBuilder()
        with kernel.body("function") as body:
            yield
        symbol = None if self.is_private else self.name
        private_as = self.name or "" if self.is_private else None
        func = kernel.finish(body, symbol, private_as=private_as, at=None)
        add_function(builder, func, self.name)


__all__ = ["PrimFuncFrame", "TIRFrame"]
