"""The text of a request, as its tokens come: ends at stop texts, and why it ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

from relaxpy.plugins.llm.answer_parts import begun
from relaxpy.plugins.llm.config import ParameterError
from relaxpy.plugins.llm.engine import Request
from relaxpy.plugins.llm.tokens import TextStream, Tokenizer

Reason: TypeAlias = Literal["stop", "length"]
_MOST_STOPS, _LONGEST_STOP = 16, 1000


class Continuation:
    """The text of a request, which ends where one of the texts of `stop` would begin."""

    def __init__(
        self,
        request: Request,
        tokenizer: Tokenizer,
        stop: Sequence[str],
        shown: Collection[int] = (),
    ) -> None:
        """The text has the names of tokens that are `shown`, which control the model."""
        self.request, self.stop, self.shown = request, stop, shown
        self.reason: Reason | None = None
        """Why the text ended; None as long as it goes on, and after an error or `cancel`."""
        self._tokenizer = tokenizer
        self._held = ""
        self.read = 0
        """How many tokens of the request are in the text, or end it."""

    @cached_property
    def _stream(self) -> TextStream:
        return TextStream(self._tokenizer, self.request.prompt)

    def take(self) -> str:
        """The text of the tokens that came since the last call.

        A text that may become a stop text is held back. The request is cancelled at a stop text.
        """
        request, text = self.request, self._held
        for token in request.tokens[self.read :]:
            self.read += 1
            if token in request.stop:
                break
            if token in self.shown:
                text += self._stream.end() + self._tokenizer.piece(token)
            else:
                text += self._stream.add(token)
            if (end := self._stop_in(text)) is not None:
                request.cancel()
                self._held, self.reason = "", "stop"
                return text[:end]
        if not request.done:
            kept = len(text) - begun(text, self.stop)
            self._held = text[kept:]
            return text[:kept]
        text += self._stream.end()
        self._held = ""
        end = self._stop_in(text)
        if request.error is None:
            ended = end is not None or (request.tokens and request.tokens[-1] in request.stop)
            ended = ended or (request.form is not None and request.form.is_whole)
            full = len(request.tokens) == request.max_tokens
            self.reason = "stop" if ended else "length" if full else None
        return text[:end]

    def _stop_in(self, text: str) -> int | None:
        found = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return min(found, default=None)


def stop_texts(stop: object) -> tuple[str, ...]:
    """The texts that end an answer: one, or several, or None. Errors: ParameterError."""
    listed: Any = [] if stop is None else [stop] if isinstance(stop, str) else stop
    is_right = isinstance(listed, (list, tuple)) and len(listed) <= _MOST_STOPS
    if not is_right or not all(
        isinstance(text, str) and 0 < len(text) <= _LONGEST_STOP for text in listed
    ):
        expected = f"a text of 1 to {_LONGEST_STOP} characters, or at most {_MOST_STOPS} of them"
        raise ParameterError.of("stop", stop, expected)
    return tuple(listed)
