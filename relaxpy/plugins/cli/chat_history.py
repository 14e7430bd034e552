"""The lines that one typed in chats, which the keys bring back, also in the next chat."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "RELAXPY_CHAT_HISTORY"
_MOST: Final = 1000
"""The lines that the file keeps."""


def history_file() -> Path | None:
    """The file of the history, or None if the user wants none."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return None if given == "0" else Path(given).expanduser()
    states = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not states.is_absolute():
        states = Path("~/.local/state").expanduser()
    return states / "relaxpy" / "chat_history"


class History:
    """Edits the lines that `input` reads on a terminal, and keeps them in a file.

    Errors:
        OSError: the file cannot be read or written.
        RuntimeError: there is no home for the file.
    """

    def __init__(self, readline: Any, path: Path) -> None:
        """`readline` is the module."""
        self._readline, self._path = readline, path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # for nobody else
        readline.read_history_file(path)
        readline.set_history_length(_MOST)
        self._known = readline.get_current_history_length()

    def keep(self) -> None:
        """Write the lines that are new; those of other chats stay. Errors: as of the class."""
        count = self._readline.get_current_history_length()
        if count > self._known:
            self._readline.append_history_file(count - self._known, self._path)
            self._known = count
