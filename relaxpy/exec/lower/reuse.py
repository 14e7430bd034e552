"""In-place reuse: outputs of a kernel call take the memory of tensors that die in it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from relaxpy.exec import python_ast as py
from relaxpy.exec.lower.errstate import is_allocation
from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.support.dataclass import dataclass


@dataclass(slots=True)
class KernelCalls:
    """The unchecked kernel calls in a function, and the new tensors for them.

    Kernels keep no reference to their arguments. So the memory of a tensor that is only an argument
    of such calls is free after the last one.
    """

    overwritable: Callable[[GlobalCallee], Collection[tuple[int, int]]]
    _calls: dict[int, tuple[ast.Call, GlobalCallee, Collection[str]]] = field(default_factory=dict)
    _allocations: dict[str, ast.Assign] = field(default_factory=dict)
    _uses: Counter[str] = field(default_factory=Counter)
    _kinds: dict[str, str] = field(default_factory=dict)
    _reshapes: dict[int, tuple[str, str]] = field(default_factory=dict)

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

    def add_reshape(self, stmt: ast.Assign, source: ast.expr, new: ast.expr) -> None:
        """Note a reshaping copy of a tensor; `new` allocates a tensor like the copy."""
        [target] = stmt.targets
        assert isinstance(target, ast.Name)
        if isinstance(source, ast.Name):
            self.add_allocation(target.id, stmt)
            self._kinds[target.id] = ast.dump(new)
            self._reshapes[id(stmt)] = source.id, target.id
            self._uses[source.id] += 1

    def reuse(
        self,
        body: Sequence[ast.stmt],
        dying: Mapping[int, Collection[str]],
        totals: Mapping[str, int],
    ) -> None:
        """Let outputs of the calls in `body` reuse the memory of inputs that die in these calls.

        A reshape becomes a view of a tensor that dies in it, or if only kernels read the result and
        the tensor is not changed meanwhile.

        `dying` has the names whose last use is in each statement, `totals` the number of
        occurrences of each name in the function.
        """
        last_use = {name: index for index, names in dying.items() for name in names}
        last_write: dict[str, int] = {}
        others: list[int] = []  # the number of statements so far that may run any code
        for index, stmt in enumerate(body):
            _, _, outputs = self._calls.get(id(stmt), (None, None, ()))
            last_write.update(dict.fromkeys(outputs, index))
            known = id(stmt) in self._calls or id(stmt) in self._reshapes or is_allocation(stmt)
            others.append((others[-1] if others else 0) + (not known))
        for index, stmt in enumerate(body):
            if id(stmt) in self._calls and index in dying:
                self._reuse_in_call(stmt, body[max(0, index - 8) : index], dying[index], totals)
            elif id(stmt) in self._reshapes:
                source, target = self._reshapes[id(stmt)]
                assert isinstance(stmt, ast.Assign)
                if self._is_free(source, totals) and source in dying.get(index, ()):
                    stmt.value = _view(stmt.value)
                    continue
                last = last_use.get(target, -1)
                unchanged = last_write.get(source, -1) < index and others[last] == others[index]
                if last >= 0 and unchanged and self._is_free(target, totals):
                    stmt.value = _view(stmt.value)
                    for name in (source, target):
                        self._allocations.pop(name, None)

    def _is_free(self, name: str, totals: Mapping[str, int]) -> bool:
        """Return whether a name has private memory, and only kernels and reshapes use it."""
        return name in self._allocations and self._uses[name] == totals[name]

    def _reuse_in_call(
        self,
        stmt: ast.stmt,
        before: Sequence[ast.stmt],
        dying: Collection[str],
        totals: Mapping[str, int],
    ) -> None:
        """Let outputs of a call reuse the memory of inputs."""
        call, callee, outputs = self._calls[id(stmt)]
        free = [n for n in dying if n not in outputs and self._is_free(n, totals)]
        for output in outputs if free else ():
            if self._allocations.get(output) not in before[-len(outputs) :]:
                continue
            source = self._source_for(output, free, call, callee)
            if source is not None:
                free.remove(source)
                self._allocations[output].value = py.path(source)

    def _source_for(
        self, output: str, free: Iterable[str], call: ast.Call, callee: GlobalCallee
    ) -> str | None:
        """The input whose memory an output can reuse."""
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


def _view(copy: ast.expr) -> ast.expr:
    """The view of an array instead of `rx.reshaped(array, shape)`, which copies it."""
    assert isinstance(copy, ast.Call)
    array, shape = copy.args
    return py.call(py.attribute(array, "reshape"), shape)
