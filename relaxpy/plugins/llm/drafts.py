"""Tokens that may come next, found in little time, which a model reads all at once.

The model chooses each token as it does without them, by the same scores and the same random number,
and goes on as long as its choice is the one that was guessed. So guesses change the time alone: for
a seed, the tokens are those without guesses, whoever guesses (Daliri, Musco & Suresh, "Coupling
without communication and drafter-invariant speculative decoding", 2024). A guess that does not
depend on the random number is as often right as by the rejection sampling of Leviathan, Kalman &
Matias (2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from relaxpy.plugins.llm.config import ModelError
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.plugins.llm.engine import Request
    from relaxpy.plugins.llm.language_model import LanguageModel

PAUSE: Final = 8
"""The tokens without guesses after guesses that were mostly wrong."""
MOST_DRAFTED: Final = 8
"""The most tokens that a smaller model guesses for a call."""
MOST_LOOKED_UP: Final = 64
"""The most tokens that are looked up for a call."""
_SIZES: Final = (3, 2)
"""The numbers of last tokens that are looked for in the text before."""


class Lookup:
    """The text of a request, in which its last tokens may have occurred before."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._next: dict[tuple[int, ...], int] = {}
        """The places after some tokens, where these occurred last."""
        self._known = 0

    def guess(self, tokens: Sequence[int], most: int) -> list[int]:
        """The tokens after the last ones where these occurred before; none if nowhere.

        `tokens` begin with those of the call before.
        """
        for place in range(self._known, len(tokens)):
            for size in _SIZES:
                if place >= size:
                    self._next[tuple(tokens[place - size : place])] = place
        self._known = len(tokens)
        places = (self._next.get(tuple(tokens[-size:])) for size in _SIZES)
        first = next((place for place in places if place is not None), None)
        found: list[int] = []
        if first is None:
            return found
        for place in range(first, first + min(most, self.most)):
            rest = place - len(tokens)  # what is repeated may go on into the guess itself
            found.append(tokens[place] if rest < 0 else found[rest])
        return found


@dataclass(frozen=True)
class Draft:
    """A smaller model that guesses what another one, of the same tokens, chooses."""

    model: LanguageModel
    words: int
    """The number of tokens that the other one has scores for."""

    def guess(self, asked: Sequence[tuple[Request, int]]) -> Mapping[Request, list[int]]:
        """The next tokens of requests, at most the number that each asks for.

        The engine of the model keeps what it has read, so that it reads only what is new. There are
        no guesses while another thread uses the model, which may wait for the one that asks.
        """
        if not self.model.turn.acquire(blocking=False):
            return {}
        engine, decoder = self.model.engine, self.model.decoder
        others = None, None, self.model._adapter, self.model._hooks
        begun: dict[Request, Request] = {}
        try:
            for request, most in asked:
                tokens = request.all_tokens
                count = min(most, decoder.context - len(tokens))
                if count < 1 or max(tokens) >= decoder.config.vocabulary:
                    continue
                own = engine.add(tokens, request.sampling, count, request.stop, *others)
                begun[request] = own
                if request.sampling.temperature:
                    own.random = deepcopy(request.random)
            while not all(own.done for own in begun.values()):
                engine.step(may_draft=False)  # the model that asks may be a draft for others here
        finally:
            for own in begun.values():
                engine.remove(own)
            self.model.turn.release()
        if errors := [own.error for own in begun.values() if own.error is not None]:
            raise errors[0]
        return {request: self._known(own.tokens) for request, own in begun.items()}

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """The first tokens, as far as the other model has scores for them."""
        end = next((n for n, token in enumerate(tokens) if token >= self.words), len(tokens))
        return list(tokens[:end])


def draft_of(small: LanguageModel, large: LanguageModel) -> Draft:
    """Guesses for a model by another one. Errors: ModelError if their tokens differ."""
    if small.engine is large.engine:
        raise ModelError(f"{small.name} cannot draft its own answers")
    if small.draft is not None:
        raise ModelError(f"{small.name} is drafted itself, so it cannot draft answers")
    if small.token_names != large.token_names:
        raise ModelError(f"{small.name} has other tokens than {large.name}, so cannot draft it")
    return Draft(small, large.decoder.config.vocabulary)
