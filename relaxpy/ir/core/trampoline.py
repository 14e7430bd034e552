"""Recursion without Python's stack: generators that yield the generators they wait for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

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
