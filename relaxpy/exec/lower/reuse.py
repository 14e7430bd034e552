"""Reuse of the memory of tensors that die in a call of a kernel, for its outputs."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from relaxpy.dataclass import dataclass
from relaxpy.exec import python_ast as py
from relaxpy.exec.lower.scope import GlobalCallee


@dataclass(slots=True)
class KernelCalls:
    """The calls of kernels without checks in a function, and the new tensors that are for them.

    Kernels keep no reference to their arguments. So the memory of a tensor that is only an argument
    of such calls is free after the last one.
    """

    overwritable: Callable[[GlobalCallee], Collection[tuple[int, int]]]
    _calls: dict[int, tuple[ast.Call, GlobalCallee, Collection[str]]] = field(default_factory=dict)
    _allocations: dict[str, ast.Assign] = field(default_factory=dict)
    _uses: Counter[str] = field(default_factory=Counter)
    _kinds: dict[str, str] = field(default_factory=dict)

    def add_allocation(self, name: str, stmt: ast.Assign) -> None:
        """Note that `stmt` assigns a new tensor to `name`."""
        self._allocations[name] = stmt
        self._uses[name] += 1

    def add_call(self, stmt: ast.Expr, callee: GlobalCallee, outputs: Iterable[ast.expr]) -> None:
        """Note a call of a kernel, with the new tensors among its arguments."""
        call = stmt.value
        assert isinstance(call, ast.Call)
        names = [output.id for output in outputs if isinstance(output, ast.Name)]
        self._calls[id(stmt)] = call, callee, names
        self._uses.update(arg.id for arg in call.args if isinstance(arg, ast.Name))

    def reuse(
        self,
        body: Sequence[ast.stmt],
        dying: Mapping[int, Collection[str]],
        totals: Mapping[str, int],
    ) -> None:
        """Let outputs of the calls in `body` have the memory of inputs that die in these calls.

        `dying` has the names that are not used after each statement, `totals` how often each name
        occurs in the whole function.
        """
        for index, stmt in enumerate(body):
            found = self._calls.get(id(stmt))
            if found is None or index not in dying:
                continue
            call, callee, outputs = found
            free = [
                name
                for name in dying[index]
                if name not in outputs
                and name in self._allocations
                and self._uses[name] == totals[name]
            ]
            before = body[max(0, index - len(outputs)) : index]
            for output in outputs if free else ():
                if self._allocations[output] not in before:
                    continue
                source = self._source_for(output, free, call, callee)
                if source is not None:
                    free.remove(source)
                    self._allocations[output].value = py.path(source)

    def _source_for(
        self, output: str, free: Iterable[str], call: ast.Call, callee: GlobalCallee
    ) -> str | None:
        """The input whose memory an output can have."""
        names = [arg.id if isinstance(arg, ast.Name) else None for arg in call.args]
        target = names.index(output)
        for name in free:
            if self._kind(name) == self._kind(output) and all(
                (position, target) in self.overwritable(callee)
                for position, arg in enumerate(names)
                if arg == name
            ):
                self._kinds[output] = self._kind(name)
                return name
        return None

    def _kind(self, name: str) -> str:
        """The shape and the datatype of a new tensor, as text."""
        if name not in self._kinds:
            self._kinds[name] = ast.dump(self._allocations[name].value)
        return self._kinds[name]
