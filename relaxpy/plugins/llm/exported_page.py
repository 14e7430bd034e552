"""Pages that talk to an exported model: its tokenizer and its conversations as JavaScript."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Final

from relaxpy import __version__
from relaxpy.plugins.llm.exported_tokens import (
    NUMBERS_IN_ORDER,
    SECTIONS,
    SPACE,
    filled,
    tables_of,
    turns_of,
)

if TYPE_CHECKING:
    from relaxpy.plugins.llm.language_model import LanguageModel

_SOURCES: Final = {".chat.js": "chat.js", ".html": "chat.html"}


def page_of(lm: LanguageModel, name: str) -> dict[str, str]:
    """The files of a page for the module `name`, by the ends of their names.

    Errors:
        ModelError: the tokenizer or the chat template has no form without Python.
    """
    texts = {
        "@NAME@": name,
        "@VERSION@": __version__,
        "@TABLES@": b64encode(tables_of(lm, turns_of(lm))).decode(),
        "@SECTIONS@": json.dumps(SECTIONS),
        "@NUMBERS@": json.dumps(NUMBERS_IN_ORDER),
        "@SPACE@": f"{ord(SPACE):x}",
    }
    return {end: filled(file, texts) for end, file in _SOURCES.items()}
