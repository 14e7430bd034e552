"""The limits on reading one source: steps, bytes, nodes of types, and depth.

All readers of possibly hostile sources count with a budget: `from_source`, the reader of Relay text
and `load_json`. A source that reaches a limit takes about fifteen seconds.

Recursion without Python's stack: generators that yield the generators they wait for.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from relaxpy.errors import MisuseError, ParseError, RelaxpyError
from relaxpy.support.dataclass import dataclass

#: Characters, other than those of data that the source itself contains.
MAX_CHARACTERS = 16_000_000
MAX_TOKENS = 1_000_000
MAX_STEPS = 3_000_000
#: Bytes of arrays that are filled with one value, of which a short source can create many.
MAX_BYTES = 1 << 28
#: Nodes of types that are visited or created during type inference.
MAX_TYPE_NODES = 1_000_000
#: The nesting depth of functions.
MAX_DEPTH = 1_000


@dataclass(slots=True, eq=False)
class Budget:
    """The remaining limits for one source; errors are of the class `error`."""

    steps: int = MAX_STEPS
    bytes: int = MAX_BYTES
    type_nodes: int = MAX_TYPE_NODES
    depth: int = MAX_DEPTH
    error: type[ParseError] | type[MisuseError] = ParseError

    def spend_steps(self, count: int = 1) -> None:
        """Count units of work.

        Errors:
            `error`: there have been more than MAX_STEPS.
        """
        self.steps -= count
        if self.steps < 0:
            raise self._exceeded(f"takes more than {MAX_STEPS} steps")

    def spend_bytes(self, count: int) -> None:
        """Count the bytes of an array before it is created.

        Errors:
            `error`: there have been more than MAX_BYTES.
        """
        self.bytes -= count
        if self.bytes < 0:
            raise self._exceeded(f"takes more than {MAX_BYTES} bytes of constants")

    def spend_type_nodes(self, count: int) -> None:
        """Count nodes of types.

        Errors:
            `error`: there have been more than MAX_TYPE_NODES.
        """
        self.type_nodes -= count
        if self.type_nodes < 0:
            raise self._exceeded(f"visits more than {MAX_TYPE_NODES} nodes of types")

    def _exceeded(self, what: str) -> RelaxpyError:
        return self.error(f"parsing the text {what}")


def written_out(
    name: str, values: list[object], counts: list[int], *, counted: bool, limit: int
) -> int:
    """Count the counted nodes in a saved node with these fields, each shared one once per use.

    With a limit of 0, nothing is counted.

    Errors:
        MisuseError: they are more than the limit.
    """
    if limit == 0:
        return 0
    count, worklist = int(counted), list(values)
    while worklist:
        value = worklist.pop()
        if isinstance(value, dict):
            value = value.get("table")
        if isinstance(value, list):
            worklist += value
        elif type(value) is int and 0 <= value < len(counts):
            count += counts[value]
    if count > limit:
        raise MisuseError(
            f"a {name} has {count} nodes when shared nodes are expanded: more than {limit}"
        )
    return count


T = TypeVar("T")

Task: TypeAlias = Generator["Task[Any]", Any, T]
"""A computation that yields other tasks, and receives their results."""


def run(task: Task[T]) -> T:
    """Run a task and all that it waits for, and return its result.

    An exception of a task is raised in the task that waits for it.
    """
    stack: list[Task[Any]] = [task]
    value: Any = None
    error: BaseException | None = None
    while stack:
        try:
            step = stack[-1].send(value) if error is None else stack[-1].throw(error)
        except StopIteration as stop:
            stack.pop()
            value, error = stop.value, None
        except BaseException as raised:
            stack.pop()
            if not stack:
                raise
            value, error = None, raised
        else:
            stack.append(step)
            value = error = None
    result: T = value
    return result
