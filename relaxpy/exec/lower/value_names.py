"""The Python names of the values of a function: when to delete them, and whose memory is free."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from relaxpy.exec import python_ast as py
from relaxpy.exec.lower.lifetimes import Key, Lifetimes, Point
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _New:
    """A statement that creates a tensor in memory of its own."""

    stmt: ast.Assign
    sinfo: rx.TensorStructInfo


class ValueNames:
    """The names in a Python function that are deleted after the last use of their values.

    A name has the values of one or more variables, or is temporary. Kernels keep no reference to
    their arguments, so that the memory of a new tensor that only they use is free after its last
    use; unless `shares`, it is not used again.
    """

    def __init__(self, lifetimes: Lifetimes, *, shares: bool) -> None:
        self.point = Point()
        """The position after the statements that are being written."""
        self._lifetimes, self._shares = lifetimes, shares
        self._values: dict[str, set[Key]] = {}
        self._names: dict[Key, dict[str, None]] = {}
        self._without: list[str] = []
        """Names without values, each in its turn."""
        self._new: dict[str, _New] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def add(self, name: str) -> None:
        """Add a temporary name."""
        self._values[name] = set()
        self._without.append(name)

    def bind(self, var: rx.Var, value: ast.expr) -> None:
        """Note that the names in `value` have the values of a variable."""
        names = [n.id if isinstance(n, ast.Name) else "" for n in _fields(value)]
        keys = self._lifetimes.keys(var)
        for number, name in enumerate(names):
            if name in self._values:
                values = keys if len(keys) != len(names) else keys[number : number + 1]
                self._values[name].update(values)
                for key in values:
                    self._names.setdefault(key, {})[name] = None

    def end(self, point: Point) -> None:
        """Note that values have been used for the last time."""
        for key in point.ending:
            for name in self._names.pop(key, ()):
                self._values[name].discard(key)
                self._without.append(name)

    @property
    def mark(self) -> int:
        """The position of the next name without values."""
        return len(self._without)

    def take(self, mark: int) -> list[str]:
        """Remove the names since `mark` that have no values; return them."""
        names = dict.fromkeys(self._without[mark:])
        del self._without[mark:]
        return [name for name in names if not self._values[name]]

    # ---- memory

    def add_new(self, stmt: ast.stmt, sinfo: rx.TensorStructInfo) -> None:
        """Note a statement that creates a tensor, or takes over the memory of another."""
        assert isinstance(stmt, ast.Assign)
        [target] = stmt.targets
        assert isinstance(target, ast.Name)
        self._new[target.id] = _New(stmt, sinfo)

    def is_free(self, tensor: ast.expr) -> bool:
        """True if the memory of a tensor is free after this position."""
        if not self._shares or not isinstance(tensor, ast.Name) or tensor.id not in self._new:
            return False
        values = self._values[tensor.id]
        used = values.isdisjoint(self._lifetimes.observed)
        return bool(values) and values <= self.point.ending.keys() and used

    def keep(self, tensor: ast.expr) -> bool:
        """True if a result may be a view of a tensor, whose memory then is not used again."""
        if not self._shares or not self.point.keeps_operand:
            return False
        if isinstance(tensor, ast.Name):
            self._new.pop(tensor.id, None)
        return True

    def overwrite(
        self,
        before: Sequence[ast.stmt],
        args: Sequence[ast.expr],
        outputs: Collection[int],
        allowed: Collection[tuple[int, int]],
    ) -> None:
        """Let outputs of a kernel have the memory of inputs of the same shape and datatype.

        The last statements `before` the call create the outputs. `allowed` are the pairs of
        arguments that may be one tensor.
        """
        names = [arg.id if isinstance(arg, ast.Name) else "" for arg in args]
        written = {names[output] for output in outputs}
        free = [n for n, arg in zip(names, args, strict=True) if self.is_free(arg)]
        free = [name for name in dict.fromkeys(free) if name not in written]
        recent = [s for s in before[-2 * len(outputs) :] if not isinstance(s, ast.Delete)]
        for target in outputs if free else ():
            new = self._new.get(names[target])
            if new is None or new.stmt not in recent[-len(outputs) :]:
                continue
            for name in free:
                uses = {(number, target) for number, other in enumerate(names) if other == name}
                if self._new[name].sinfo == new.sinfo and uses.issubset(allowed):
                    free.remove(name)
                    new.stmt.value = py.path(name)
                    break


def _fields(value: ast.expr) -> Sequence[ast.expr]:
    return value.elts if py.is_tuple_of_names(value) else [value]
