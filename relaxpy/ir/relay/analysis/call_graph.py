"""Which functions of a module refer to which, and how often."""

from __future__ import annotations

from collections import Counter

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.relax.call_graph import strongly_connected
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.module import RelayModule


class CallGraph:
    """The references of the functions of a module to each other; `module` is the module.

    Functions are looked up by name or GlobalVar.
    """

    def __init__(self, module: RelayModule) -> None:
        if not isinstance(module, RelayModule):
            raise MisuseError(f"expected a Relay module, found {module!r:.60}", about=module)
        self.module = module
        self._references = {
            name: Counter(
                child.name_hint
                for node in walk(function)
                for child in children(node)
                if isinstance(child, rl.GlobalVar)
            )
            for name, function in module.functions_by_name.items()
        }

    def _name(self, var: str | rl.GlobalVar) -> str:
        return self.module.get_global_var(
            var.name_hint if isinstance(var, rl.GlobalVar) else var
        ).name_hint

    @user_facing
    def ref_count(self, var: str | rl.GlobalVar) -> int:
        """Return how many references to a function there are in the module.

        Errors:
            UnknownNameError (also KeyError, ValueError): the module has no such function.
        """
        name = self._name(var)
        return sum(references[name] for references in self._references.values())

    @user_facing
    def global_call_count(self, var: str | rl.GlobalVar) -> int:
        """Return how many references to functions of the module a function has.

        Errors:
            UnknownNameError (also KeyError, ValueError): the module has no such function.
        """
        return sum(self._references[self._name(var)].values())

    @user_facing
    def is_recursive(self, var: str | rl.GlobalVar) -> bool:
        """Return whether a function refers to itself, directly or through others.

        Errors:
            UnknownNameError (also KeyError, ValueError): the module has no such function.
        """
        name = self._name(var)
        graph = {caller: tuple(callees) for caller, callees in self._references.items()}
        group = next(group for group in strongly_connected(graph) if name in group)
        return len(group) > 1 or name in graph[name]

    @user_facing
    def print_var(self, var: str | rl.GlobalVar) -> str:
        """Return a text of the references of a function.

        Errors:
            UnknownNameError (also KeyError, ValueError): the module has no such function.
        """
        name = self._name(var)
        lines = [f"@{callee}: {count}" for callee, count in self._references[name].items()]
        return "\n".join([f"@{name}, referred to {self.ref_count(name)} times", *lines])

    @override
    def __str__(self) -> str:
        return "\n\n".join(map(self.print_var, self._references))
