"""What a test changes for the whole process, which is restored after it."""

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import numpy as np
from typing_extensions import override

from relaxpy.exec.runtime import registry
from relaxpy.ir.op import Op

_OF_PYTEST = "PYTEST_CURRENT_TEST"


class SeededTorch(MetaPathFinder):
    """Seeds the generator of PyTorch, which begins with a random seed, when it is imported."""

    @override
    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def seeded(module: ModuleType) -> None:
                execute(module)
                _seed(module)

            spec.loader.exec_module = seeded  # type: ignore[method-assign]
        return spec


def _seed(torch: ModuleType) -> None:
    torch.default_generator.manual_seed(0)


@contextmanager
def restored() -> Iterator[None]:
    """Restore packed functions, environment variables and the states of random generators.

    Programs may be kept on disk again if the test registered an operator.
    """
    tables = registry._functions, registry.python_functions
    functions, pure_names = [dict(table) for table in tables], set(registry._pure_names)
    environment, state, numpy_state = _environment(), random.getstate(), np.random.get_state()
    user_changes = Op.user_changes
    yield
    for table, before in zip(tables, functions, strict=True):
        if table != before:
            # Modules of relaxpy that a test was the first to import have registered theirs once.
            ours = {n: f for n, f in table.items() if n not in before and _is_ours(f)}
            pure_names |= registry._pure_names & ours.keys()
            table.clear()
            table.update(before | ours)
    registry._pure_names.intersection_update(pure_names)
    registry._pure_names.update(pure_names)
    if _environment() != environment:
        for name in _environment().keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
    Op.user_changes = user_changes
    random.setstate(state)
    np.random.set_state(numpy_state)
    if torch := sys.modules.get("torch"):
        _seed(torch)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != _OF_PYTEST}


def _is_ours(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith("relaxpy.")
