"""The frames of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from typing_extensions import override

from relaxpy.errors import BuilderStateError
from relaxpy.script.ir_builder.base import IRBuilder, IRBuilderFrame
from relaxpy.script.ir_builder.ir.frame import IRModuleFrame, finished
from relaxpy.script.parser import forms
from relaxpy.script.parser.kernel_forms import KernelForms


class PrimFuncFrame(IRBuilderFrame):
    """A kernel."""

    spoken = "T.prim_func"

    def __init__(self, *, is_private: bool = False) -> None:
        super().__init__()
        self.name: str | None = None
        self.is_private = is_private

    @override
    @contextmanager
    def hold(self, builder: IRBuilder) -> Iterator[None]:
        if builder.frames and builder.innermost(IRModuleFrame) is None:
            raise BuilderStateError(f"a kernel cannot stand in {builder.frames[-1]}")
        kernel = self.kernel = KernelForms()
        with kernel.body("function") as body:
            yield
        symbol = None if self.is_private else self.name
        private_as = self.name or "" if self.is_private else None
        func = kernel.finished(body, symbol, private_as=private_as, at=None)
        finished(builder, func, self.name)


class TIRFrame(IRBuilderFrame):
    """A loop, a block or the like in a kernel, or what encloses statements of one."""

    def __init__(self, form: forms.Form) -> None:
        super().__init__()
        self.form = form
        self.spoken = form.spoken  # type: ignore[attr-defined]

    @override
    @contextmanager
    def hold(self, builder: IRBuilder) -> Iterator[Any]:
        self.kernel = builder.kernel(str(self))
        names = [""] * len(self.form.bounds) if isinstance(self.form, forms.LoopForm) else []
        held: AbstractContextManager[Any] = self.kernel.frame(self.form, names, None)
        with held as found:
            yield found[0] if isinstance(found, list) and len(found) == 1 else found
