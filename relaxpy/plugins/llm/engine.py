"""Continuous batching: requests join and leave a batch that shares one cache of pages."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Any

import numpy as np

from relaxpy.plugins.llm.adapters import Adapter
from relaxpy.plugins.llm.compiled import CompiledDecoder
from relaxpy.plugins.llm.config import ModelError, integer_of
from relaxpy.plugins.llm.drafts import MOST_DRAFTED, PAUSE, Draft, Lookup
from relaxpy.plugins.llm.hooks import Hooks
from relaxpy.plugins.llm.sampling import Sampling, log_probabilities
from relaxpy.plugins.llm.structured import Follower, Form


@dataclass(eq=False)
class Request:
    """A prompt that is continued. Iterating over it gives its tokens one by one."""

    engine: Engine = field(repr=False)
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    """The tokens chosen so far, a stop token included."""
    done: bool = False
    sequence: int = -1
    """The number of its sequence in the cache, once it has one."""
    read: int = 0
    """How many of its tokens are in the cache."""
    shared: int = 0
    """How many of the prompt were there before it began."""
    scores: Any = field(default=None, repr=False)
    """Rows of scores, once all tokens are in the cache: of the next token, and after guesses."""
    guesses: Sequence[int] = ()
    """The guessed next tokens, which are in the cache."""
    top: int | None = None
    """Of how many of the most probable tokens `logprobs` are kept; None for no logprobs at all."""
    logprobs: list[tuple[float, list[tuple[int, float]]]] = field(default_factory=list)
    """For each token that of it, and the most probable ones with theirs."""
    error: Exception | None = None
    """Why it ended, if no token could be chosen."""
    form: Follower | None = field(default=None, repr=False)
    """The form that its text has, if it has to have one."""
    adapter: Adapter | None = field(default=None, repr=False)
    """The adapter by which the model reads and continues it."""
    hooks: Hooks = field(default=(), repr=False)
    """They read or change its states. It shares no prefix, since hooks see all tokens."""
    lookup: Lookup | None = field(default=None, repr=False)
    """Guesses its next tokens by the text before them."""
    draft: Draft | None = field(default=None, repr=False)
    """Guesses them by a smaller model where the text before does not tell them."""
    most_guesses: int = 0
    """How many tokens are guessed for a call at most."""
    guess_limit: int = 0
    """How many of them for the next call, by how many were right before; below 1 there are none."""

    @cached_property
    def random(self) -> np.random.Generator:
        """Draws the tokens of a positive temperature; NumPy imports its module at the first use."""
        return np.random.default_rng(self.sampling.seed)

    @property
    def all_tokens(self) -> list[int]:
        """The prompt, and what was chosen."""
        return [*self.prompt, *self.tokens]

    @property
    def length(self) -> int:
        """The number of these."""
        return len(self.prompt) + len(self.tokens)

    def choose(self) -> int:
        """The next token, by its scores. Errors: ModelError, and what else the choice raises."""
        sampling, scores = self.sampling, self.scores[0]
        before = self.all_tokens if sampling.repetition_penalty != 1 else ()
        random = self.random if sampling.temperature else None
        known = scores, before, random, self.tokens
        if self.form is None:
            token = sampling.choose(*known)
        else:
            token = sampling.choose(*known, self.form.allowed())
            self.form.add(token)
        if self.top is not None:
            self.logprobs.append(logprobs_of(scores, token, self.top))
        return token

    def unread(self, count: int) -> Sequence[int]:
        """The next tokens that the cache does not have."""
        chosen = self.read - len(self.prompt)
        if chosen >= 0:
            return self.tokens[chosen : chosen + count]
        return self.all_tokens[self.read : self.read + count]

    def __iter__(self) -> Iterator[int]:
        """The tokens. The engine takes steps, in which other requests go on, too.

        Errors:
            ModelError: no token can be chosen; what else the choice of tokens raises.
        """
        given = 0
        while True:
            yield from self.tokens[given:]
            given = len(self.tokens)
            if self.done:
                if self.error is not None:
                    raise self.error
                return
            self.engine.step()
            if len(self.tokens) < given:
                raise RuntimeError("the tokens of a request were taken away")

    def cancel(self) -> None:
        """End the request; what was chosen stays."""
        self.engine.remove(self)


@dataclass(frozen=True)
class _Prefix:
    """What a sequence has in the cache, as later prompts may begin like it."""

    sequence: int
    tokens: tuple[int, ...]
    adapter: object
    """The number of the adapter that it was read with: others have other keys and values."""

    @classmethod
    def of(cls, request: Request) -> _Prefix:
        """That of a request."""
        return cls(request.sequence, tuple(request.all_tokens[: request.read]), _number(request))


class Engine:
    """Runs requests together, at most `sequences` of the model's cache at a time.

    A request waits until the cache surely has pages for its prompt and all of its tokens. Prompts
    are read in chunks beside the tokens that other requests choose. A prompt that begins like a
    sequence of the cache shares the pages of the common prefix.
    """

    def __init__(self, model: CompiledDecoder) -> None:
        self.model = model
        self.cache = model.new_cache()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.kept: list[_Prefix] = []
        self.free = list(range(model.sequences))

    def add(
        self,
        prompt: Sequence[int],
        sampling: Sampling | None = None,
        max_tokens: int = 100,
        stop: Collection[int] = (),
        logprobs: int | None = None,
        form: Form | None = None,
        adapter: Adapter | None = None,
        hooks: Hooks = (),
        *,
        lookup: int = 0,
        draft: Draft | None = None,
    ) -> Request:
        """A new request, which ends after `max_tokens` or a token of `stop`.

        Its text is of the `form`, and it ends where nothing more may come. `logprobs` asks for
        those of the chosen tokens, and of that number of the most probable ones. For each call, at
        most `lookup` tokens are guessed by the text before them, or some by a `draft`.

        Errors:
            ModelError: the prompt is empty, has tokens that the model does not know, or is too
                long for the model or the cache.
        """
        self.model.check_free()
        words, limit = self.model.config.vocabulary, self.model.context
        try:
            tokens, max_tokens = tuple(map(index, prompt)), index(max_tokens)
            ends = frozenset(map(index, stop))
        except TypeError as error:
            raise ModelError(f"tokens and their number are integers: {error}") from None
        if not tokens:
            raise ModelError("a prompt has at least one token")
        unknown = [token for token in tokens if not 0 <= token < words]
        if unknown:
            raise ModelError(f"the model has the tokens 0 to {words - 1}, found {unknown[0]}")
        if max_tokens < 1:
            raise ModelError(f"a request chooses at least one token, found {max_tokens}")
        if len(tokens) + max_tokens > limit:
            raise ModelError(
                f"{len(tokens)} tokens and {max_tokens} more are too many: "
                f"a sequence has at most {limit}"
            )
        top = None if logprobs is None else integer_of("logprobs", logprobs, 0, words)
        request = Request(self, tokens, sampling or Sampling(), max_tokens, ends, top=top)
        request.form = None if form is None else form.begin()
        request.adapter, request.hooks = adapter, hooks
        if not hooks:  # which would see wrong guesses
            request.lookup, request.draft = Lookup(lookup) if lookup else None, draft
            request.most_guesses = request.guess_limit = max(lookup, MOST_DRAFTED if draft else 0)
        self.waiting.append(request)
        return request

    def step(self, *, may_draft: bool = True) -> list[tuple[Request, int]]:
        """One call of the model; the requests that got tokens, with each token.

        Several steps may pass without a token, while prompts are read. A request whose token cannot
        be chosen ends, with the `error`. After an error of the call all is as before. No draft
        guesses tokens unless it `may_draft`.
        """
        self._admit()
        parts = self._parts()
        guesses = self._guesses(parts, may_draft=may_draft)
        if parts := [part for part in parts if not part[0].done]:
            self._read(parts, guesses)
        chosen = []
        # Those of a step that was interrupted come first, as their scores are here.
        for request in [r for r in self.running if r.scores is not None]:
            while request.scores is not None:
                try:
                    token = request.choose()
                except Exception as error:  # the request ends with it, the others go on
                    request.error = error
                    self.remove(request)
                    break
                self._go_on(request, token)
                chosen.append((request, token))
        return chosen

    def _go_on(self, request: Request, token: int) -> None:
        """Append a token that was chosen, which is in the cache already if it was guessed."""
        request.tokens.append(token)
        if request.guesses and request.guesses[0] == token:
            request.guesses, request.scores = request.guesses[1:], request.scores[1:]
            request.read += 1
            request.guess_limit = min(request.guess_limit + 1, request.most_guesses)
        elif request.guesses:
            limit = request.guess_limit - len(request.guesses)
            request.guess_limit = limit if limit > 0 else 1 - PAUSE
            self._drop_guesses(request)
        else:
            request.guess_limit += request.guess_limit < 1 <= request.most_guesses
            self._drop_guesses(request)
        is_full = len(request.tokens) == request.max_tokens
        is_whole = request.form is not None and request.form.is_whole
        if is_full or token in request.stop or is_whole:
            self.remove(request)

    def _drop_guesses(self, request: Request) -> None:
        """Forget the scores, and take guesses that are left out of the cache."""
        if request.guesses:
            self.model.state("popn", self.cache, request.sequence, len(request.guesses))
        request.guesses, request.scores = (), None

    def end_failing(self, error: Exception) -> None:
        """After the error of a step: read for each request alone, and end those that fail."""
        parts = self._parts()
        for part in parts:
            try:
                self._read([part], {})
            except Exception as own:  # the request ends with it, the others go on
                part[0].error = own
                self.remove(part[0])
        if not parts:  # none could begin
            for request in list(self.waiting)[:1] or list(self.running):
                request.error = error
                self.remove(request)

    def run(self) -> None:
        """Take steps until no request is left; those that failed have an `error`."""
        while self.waiting or self.running:
            self.step()

    def remove(self, request: Request) -> None:
        """End a request; its sequence stays in the cache until the room is needed."""
        if request.done:
            return
        self.model.check_free()
        request.done = True
        if request.sequence == -1:
            self.waiting.remove(request)
            return
        self.running.remove(request)
        if request.hooks:
            self._free(request.sequence)
            return
        self._drop_guesses(request)
        self.kept.append(_Prefix.of(request))

    def _read(
        self, parts: Sequence[tuple[Request, int]], guesses: Mapping[Request, Sequence[int]]
    ) -> None:
        """Read so many tokens of each request, and the scores of those that are read to the end.

        The guesses of what follows are read with them.
        """
        ids = [[*request.unread(count), *guesses.get(request, ())] for request, count in parts]
        ends = np.cumsum([len(own) for own in ids])
        ready = {
            request: range(end - len(guesses.get(request, ())) - 1, end)
            for (request, count), end in zip(parts, ends.tolist(), strict=True)
            if request.read + count == request.length
        }
        adapters = [r.adapter for r, _ in parts]
        rows = [row for own in ready.values() for row in own]
        hooks = [r.hooks for r, _ in parts]
        errors: dict[int, Exception] = {}
        others = (adapters, hooks, errors) if any(adapters) or any(hooks) else ()
        scores = self.model.run(self.cache, [r.sequence for r, _ in parts], ids, rows, *others)
        for request, count in parts:
            request.read += count
        start = 0
        for request, own in ready.items():
            request.guesses = guesses.get(request, ())
            request.scores = scores[start : start + len(own)]
            start += len(own)
        for place, error in errors.items():
            parts[place][0].error = error
            self.remove(parts[place][0])

    def _guesses(
        self, parts: Sequence[tuple[Request, int]], *, may_draft: bool
    ) -> Mapping[Request, Sequence[int]]:
        """The tokens that may follow those of a call, as far as it has room for more.

        Requests whose draft fails end.
        """
        left = self.model.chunk - sum(count for _, count in parts)
        found: dict[Request, Sequence[int]] = {}
        asked: dict[Draft, list[tuple[Request, int]]] = {}
        for request, count in parts:
            # After the guesses, at least one more token is chosen.
            most = min(left, request.guess_limit, request.max_tokens - len(request.tokens) - 1)
            if most < 1 or request.read + count < request.length:
                continue
            if request.lookup and (own := request.lookup.guess(request.all_tokens, most)):
                found[request] = own
                left -= len(own)
            elif request.draft is not None and may_draft:
                most = min(most, MOST_DRAFTED)
                asked.setdefault(request.draft, []).append((request, most))
                left -= most
        for draft, requests in asked.items():
            try:
                found |= draft.guess(requests)
            except Exception as error:  # the requests end with it, the others go on
                for request, _ in requests:
                    request.error = error
                    self.remove(request)
        return found

    # --- what runs next

    def _parts(self) -> list[tuple[Request, int]]:
        """The requests of the next call with their numbers of tokens, first those that choose.

        Short prompts come before long ones, but half of the room is for the one that began first.
        """
        unread = {r: r.length - r.read for r in self.running if r.length > r.read}
        prompts = [request for request, count in unread.items() if count > 1]
        order = [(request, 1) for request, count in unread.items() if count == 1]
        half = max(0, self.model.chunk - len(order) + 1) // 2
        order += [(request, half) for request in prompts[:1]]
        order += [(request, unread[request]) for request in sorted(prompts, key=unread.__getitem__)]
        left, counts = self.model.chunk, dict.fromkeys(unread, 0)
        for request, most in order:
            count = min(left, most, unread[request] - counts[request])
            counts[request] += count
            left -= count
        return [(request, count) for request, count in counts.items() if count]

    @property
    def free_pages(self) -> int:
        """The pages that no sequence needs: those of sequences that ended are free when needed."""
        return self.model.pages - self._reserved(kept=False)

    def _reserved(self, *, kept: bool) -> int:
        lengths = [len(r.prompt) + r.max_tokens for r in self.running]
        lengths += [len(prefix.tokens) for prefix in self.kept if kept]
        return sum(map(self.model.pages_for, lengths))

    def _admit(self) -> None:
        """Give waiting requests sequences, in their order, as long as there is room.

        One whose beginning another is about to read waits for that, and shares its pages then.
        """
        for request in list(self.waiting):
            if not (self.free or self.kept):
                return
            if self._is_being_read(request):
                continue
            pages = self.model.pages_for(len(request.prompt) + request.max_tokens)
            while self.kept and not (self.free and self._has_room(pages)):
                # The oldest of those that have least in common with the prompt.
                self._forget(min(self.kept, key=lambda p: _in_common(p, request)))
            if not (self.free and self._has_room(pages)):
                return
            self._start(request)
            self.waiting.remove(request)

    def _is_being_read(self, request: Request) -> bool:
        """True if a running request is to read a page or more that would serve this one, too."""
        prompt, number = request.prompt[:-1], _number(request)
        reading = [r for r in self.running if r.read < len(r.prompt) and _number(r) == number]
        if not reading:
            return False
        soon = max(_common(r.prompt, prompt) for r in reading)
        return soon - self._shared(request)[0] >= self.model.page

    def _has_room(self, pages: int) -> bool:
        return pages + self._reserved(kept=True) <= self.model.pages

    def _forget(self, prefix: _Prefix) -> None:
        self._free(prefix.sequence)
        self.kept.remove(prefix)

    def _free(self, sequence: int) -> None:
        self.model.state("remove_sequence", self.cache, sequence)
        self.free.append(sequence)

    def _start(self, request: Request) -> None:
        """Begin a sequence, with the pages of the longest prefix that a sequence has."""
        sequence = self.free[-1]
        length, parent = self._shared(request)
        if length:
            self.model.state("fork_sequence", self.cache, parent, sequence, length)
        else:
            self.model.state("add_sequence", self.cache, sequence)
        request.sequence, request.read, request.shared = self.free.pop(), length, length
        self.running.append(request)
        for prefix in [p for p in self.kept if p.sequence == parent]:
            if len(prefix.tokens) == length:  # the new sequence has all of it
                self._forget(prefix)

    def _shared(self, request: Request) -> tuple[int, int]:
        """The length of the longest prefix of a prompt that a sequence has, and the sequence."""
        prefixes = [*map(_Prefix.of, self.running), *self.kept]
        # The last token of the prompt is always read, as its scores are needed.
        most = len(request.prompt) - 1
        shared = [(min(_in_common(p, request), most), p.sequence) for p in prefixes]
        return max(shared, default=(0, -1))


def _number(request: Request) -> object:
    """The number of the adapter of a request; one with hooks is equal to no other."""
    if request.hooks:
        return request
    return None if request.adapter is None else request.adapter.number


def _in_common(prefix: _Prefix, request: Request) -> int:
    """The length of the beginning that a prompt shares with a sequence."""
    if prefix.adapter != _number(request):
        return 0
    return _common(prefix.tokens, request.prompt)


def logprobs_of(scores: Any, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
    """The logprob of a token, and the most probable tokens with theirs."""
    found = log_probabilities(scores)
    best = np.argsort(-found, kind="stable")[:top].tolist() if top else []
    return float(found[token]), [(other, float(found[other])) for other in best]


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """The number of tokens that both begin with."""
    if first[:1] != second[:1]:
        return 0
    lengths = range(1, min(len(first), len(second)) + 1)
    return bisect_left(lengths, True, key=lambda n: first[:n] != second[:n])
