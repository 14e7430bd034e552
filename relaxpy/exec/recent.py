"""The executables in use by what they were compiled from, so that it is not compiled again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final
from weakref import ref

from relaxpy.exec.executable import Executable
from relaxpy.exec.runtime.threads import thread_count
from relaxpy.ir.core.fork_lock import ForkLock
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.module import IRModule

_MOST: Final = 64
"""The number of executables that are looked up; the least recently used ones are forgotten."""
_recent: Final[OrderedDict[object, tuple[list[ref[Any]], ref[Executable], Attrs]]] = OrderedDict()
"""An entry keeps the attributes of its module, whose address is a part of its key."""
_lock: Final = ForkLock()


def shared_or_new(
    module: IRModule, target: str, compiled: Callable[[IRModule], Executable]
) -> Executable:
    """The executable of a module with default settings: one that shares code, or a new one.

    It shares the code of an executable that is in use and was compiled from the same functions and
    attributes by identity, for the same target. Each has its own stored arguments.
    """
    functions = module.functions_by_name
    identities = tuple((name, id(func)) for name, func in functions.items())
    attrs = module.attrs
    key = identities, id(attrs), target, thread_count()
    with _lock:
        known, executable, _ = _recent.get(key, ((), lambda: None, attrs))
        same = all(one() is func for one, func in zip(known, functions.values(), strict=False))
        found = executable() if same else None
        if found is not None:
            _recent.move_to_end(key)
            return found.sharing()
    new = compiled(module.clone())
    with _lock:
        _recent[key] = [*map(ref, functions.values())], ref(new), attrs
        if len(_recent) > _MOST:
            _recent.popitem(last=False)
    return new
