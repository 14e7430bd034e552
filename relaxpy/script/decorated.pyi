"""The metaclasses of decorated classes for mypy; relaxpy.testing.mypy_plugin says which has one."""

from typing import Any

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.dpl.rewriter import PatternMatchingRewriter

class ModuleClass(IRModule, type):  # type: ignore[misc]
    @override
    def __call__(cls, *args: Any, **kwargs: Any) -> Any: ...

class RewriterClass(PatternMatchingRewriter, type):  # type: ignore[misc]
    @override
    def __call__(cls, *args: Any, **kwargs: Any) -> Any: ...
