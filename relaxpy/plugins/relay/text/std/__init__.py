"""The standard library of Relay, written in Relay (RLY-113)."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Final

from relaxpy.errors import UnknownNameError, close_names
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.text.parser import parse

#: The files, each with those whose functions it calls.
FILES: Final = {"prelude.rly": (), "nat.rly": ("prelude.rly",), "gradient.rly": (), "core.rly": ()}


@lru_cache(maxsize=8)
def load(file: str) -> RelayModule:
    """The module of a file, with the modules that it needs.

    Errors:
        UnknownNameError (also ValueError): there is no such file.
    """
    if file not in FILES:
        raise UnknownNameError(
            f"the standard library has no file {file!r:.60}",
            hint=close_names(str(file), FILES) or f"files are {', '.join(FILES)}",
            about=file,
        )
    needed = RelayModule()
    for other in FILES[file]:
        needed.update(load(other))
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    return parse(text, file, needed)
