"""A plug-in of mypy, which ignores what class decorators return.

A class under `@I.ir_module` has the attributes of an IRModule, and is one; a class under
`@R.rewriter` those of a rewriter. In the settings: plugins = ["relaxpy.testing.mypy_plugin"].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy.nodes import ImportFrom, MypyFile, TypeInfo
from mypy.plugin import ClassDefContext, Plugin
from mypy.types import Instance
from typing_extensions import override

_STAND_INS: Final = "relaxpy.script.decorated"
"""The module with the metaclasses that stand for what decorators return."""
_METACLASSES: Final = {"ir_module": "ModuleClass", "rewriter": "RewriterClass"}


class _Decorators(Plugin):
    """Gives decorated classes a metaclass."""

    @override
    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """The module of the metaclasses, for each file that imports the namespaces."""
        imports = any(
            isinstance(s, ImportFrom) and s.id.startswith("relaxpy.script") for s in file.imports
        )
        return [(10, _STAND_INS, -1)] if imports else []

    @override
    def get_class_decorator_hook_2(self, fullname: str) -> Callable[[ClassDefContext], bool] | None:
        """The function for a decorator, which returns whether it is done."""
        module, _, name = fullname.rpartition(".")
        if name not in _METACLASSES or not module.startswith("relaxpy.script"):
            return None

        def decorate(context: ClassDefContext) -> bool:
            place = f"{_STAND_INS}.{_METACLASSES[name]}"
            found = context.api.lookup_fully_qualified_or_none(place)
            if found is not None and isinstance(found.node, TypeInfo):
                kind = Instance(found.node, [])
                context.cls.info.declared_metaclass = context.cls.info.metaclass_type = kind
            return found is not None

        return decorate


def plugin(version: str) -> type[Plugin]:
    """The plug-in, for any version of mypy."""
    return _Decorators
