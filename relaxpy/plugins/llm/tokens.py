"""Texts as tokens: the tokenizer of a model, and the text of tokens that come one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from relaxpy.plugins.llm.config import ModelError

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""The text of the first tokens of a character."""
_LONGEST_CHARACTER = 4
"""The most tokens of a character: one for each of its bytes."""
_TOKENS_BEFORE = 6
"""Tokens of the text before that decide whether the next one begins with a space."""
_CHARACTERS = 128
"""The characters that any token may have; few vocabularies have a longer one."""
_CACHED_TEXTS = 1000
"""The most words, or texts without a division into words, whose tokens a thread remembers."""


@contextmanager
def failures_as_errors(what: str) -> Iterator[None]:
    """Raise a ModelError where the package, which is written in Rust, panics or fails."""
    try:
        yield
    except BaseException as error:  # a panic is no Exception, and its class has no import
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{what}: {error}") from None


class Tokenizer:
    """A tokenizer of the package tokenizers, and the tokens that begin and end texts."""

    def __init__(self, own: Any, special: Mapping[str, str] | None = None) -> None:
        """`special` has the texts of tokens by their roles, such as bos_token."""
        self.own, self.special = own, dict(special or {})
        # By default each thread that encodes keeps 10,000 of up to 256 characters, 70 MB of them.
        if hasattr(own.model, "_resize_cache"):
            own.model._resize_cache(_CACHED_TEXTS)

    def is_too_long(self, characters: int, tokens: int) -> bool:
        """True if a text of so many characters surely has more than so many tokens."""
        return characters > tokens * _CHARACTERS and characters > tokens * self._longest

    @cached_property
    def _longest(self) -> int:
        """The characters of the longest token."""
        return max(map(len, self.own.get_vocab()), default=0)

    def encode(self, text: str, *, is_rendered: bool = False) -> list[int]:
        """The tokens of a text; one that a chat template rendered has its first token already."""
        [found] = self._encoded([text], add_special_tokens=not is_rendered)
        tokens: list[int] = found.ids
        return tokens

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """The tokens of pairs of texts, and to which of the two each belongs, (tokens, 2)."""
        return [np.array([one.ids, one.type_ids], np.int32).T for one in self._encoded(pairs)]

    def _encoded(self, texts: Sequence[Any], **options: Any) -> Any:
        try:
            with failures_as_errors("the tokenizer cannot read a text"):
                # Other than `encode`, it lets other threads run.
                return self.own.encode_batch_fast([*texts], **options)
        except (UnicodeEncodeError, TypeError):  # the package takes no surrogates
            raise ModelError(f"a text has half of a character: {texts[0]!r:.60}") from None

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that only control the model."""
        with failures_as_errors("the tokenizer cannot write tokens"):
            return str(self.own.decode(list(tokens)))

    def piece(self, token: int) -> str:
        """The text of one token, also of one that controls the model."""
        with failures_as_errors("the tokenizer cannot write a token"):
            return str(self.own.decode([token], skip_special_tokens=False))

    def hidden(self, texts: Iterable[str]) -> set[int]:
        """The tokens with these names that texts do not show, as they control the model."""
        found = self.ids_of(texts)
        added = self.own.get_added_tokens_decoder() if found else {}
        return {token for token in found if token in added and added[token].special}

    def ids_of(self, texts: Iterable[str]) -> set[int]:
        """The tokens with these names, as far as there are such."""
        found = (self.own.token_to_id(text) for text in texts)
        return {token for token in found if token is not None}


class TextStream:
    """The text of tokens that come one by one: a character may consist of several."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        """`before` are the tokens of the text that is continued."""
        self._decoded = tokenizer.decode
        count = _TOKENS_BEFORE  # and more of them, if these begin within a character
        while count < len(before) and self._decoded(before[-count:]).startswith(_INCOMPLETE):
            count *= 2
        self.tokens = list(before[-count:])
        # The first tokens that are decoded again, as what a token means depends on those before it;
        # and the first whose text has not been returned.
        self._first, self._next = 0, len(self.tokens)
        # The tokens before this one end with a whole character.
        self._whole = self._next
        self._before = self._texts_before()

    def add(self, token: int) -> str:
        """The text that is complete with this token."""
        self.tokens.append(token)
        new = self._rest()
        if not new or new.endswith(_INCOMPLETE):
            return ""
        self._first, self._next = self._whole, len(self.tokens)
        self._before = self._texts_before()
        return new

    def end(self) -> str:
        """The text of the last tokens, which may have half of a character."""
        new = self._rest()
        self._first = self._next = len(self.tokens)
        self._before = [""]
        return new

    def _rest(self) -> str:
        text = self._decoded(self.tokens[self._first :])
        if text.startswith(self._before[0]):
            return text[len(self._before[0]) :]
        returned = [len(before) for before in self._before if text.startswith(before)]
        # A byte that ends no character may make others of a run of bytes invalid afterwards.
        return text[max(returned) :] if returned else self._decoded(self.tokens[self._next :])

    def _texts_before(self) -> list[str]:
        """A possible text of the tokens up to `_next`, once others have come.

        A character of which they have the first bytes alone is not a part of it, if the others
        come: then it belongs to what follows.
        """
        self._whole = self._next
        found = [self._decoded(self.tokens[self._first : self._next])]
        if found[0].endswith(_INCOMPLETE):
            self._whole = self._first
            ends = range(self._next, max(self._first, self._next - _LONGEST_CHARACTER) - 1, -1)
            for end in ends:
                text = self._decoded(self.tokens[self._first : end])
                found += [text, text.rstrip(_INCOMPLETE)]  # they may be there as such
                if not text.endswith(_INCOMPLETE):
                    self._whole = end
                    break
        return found


def require_tokenizers() -> Any:
    """The package. Errors: ModelError if it is not installed."""
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise ModelError(
            "texts need the package tokenizers", hint="python -m pip install 'relaxpy[llm]'"
        ) from None
    return tokenizers


def tokenizer_of_file(path: Path, special: Mapping[str, str]) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`. Errors: ModelError."""
    tokenizers = require_tokenizers()
    try:
        with failures_as_errors("it is damaged"):
            own = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises no other class
        raise ModelError(f"{path} is not a tokenizer: {error}") from None
    # Files may have those of training, which a prompt does not have.
    own.no_truncation()
    own.no_padding()
    return Tokenizer(own, special)


# --- tokenizers in the metadata of GGUF

_NORMAL, _UNKNOWN, _CONTROL, _DEFINED, _UNUSED, _BYTE = range(1, 7)
"""The kinds of tokens."""
_LONGEST = 1000
"""The most characters of a token of SentencePiece."""
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
_CASED_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_OF_LLAMA3 = (
    *("llama-bpe", "llama3", "llama-v3"),
    *("falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0"),
)
_SPLITS: Mapping[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    **dict.fromkeys(("gpt-2", "phi-2"), (_GPT2,)),
    "smollm": (r"\p{N}", _GPT2),
    **dict.fromkeys((*_OF_LLAMA3, "dbrx", "smaug-bpe"), (_WORDS + "{1,3}" + _REST,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), (_WORDS + _REST,)),
    "tekken": ("|".join(_CASED) + r"|\p{N}" + _CASED_REST,),
    "gpt-4o": ("|".join(word + _ENDING for word in _CASED) + r"|\p{N}{1,3}" + _CASED_REST,),
}
"""How texts are split before byte pairs are merged, by names: each expression splits the pieces."""
_WHOLE = {*_OF_LLAMA3, "tekken"}
"""Those whose pieces are tokens without merges where there are such, after a first token."""


class Metadata:
    """Entries of the metadata of a file, each of which is checked when it is read."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        """An entry. Errors: ModelError if it is of another type, or absent without a default."""
        value = self.values.get(name, default)
        if type(value) is not kind and not (value is default and default is not None):
            found = "nothing" if value is None else f"{value!r:.60}"
            raise ModelError(f"{self.source} has {found} as {name}, expected a {kind.__name__}")
        return value

    def scalar(self, name: str) -> Any:
        """A number, string or truth, or None; numbers of all layers are one if they are equal.

        Errors:
            ModelError: it is a list, or the numbers differ.
        """
        value = self.values.get(name)
        if isinstance(value, (list, np.ndarray)):
            listed = value.tolist() if isinstance(value, np.ndarray) else []
            if len(set(listed)) != 1:
                raise ModelError(f"{self.source} has different numbers, or none, as {name}")
            return listed[0]
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings. Errors: ModelError."""
        value = self.get(name, list)
        if not all(type(text) is str for text in value):
            raise ModelError(f"{self.source} has other values than strings in {name}")
        return list(value)

    def numbers(self, name: str, count: int) -> Any:
        """An array of numbers. Errors: ModelError if there are not so many."""
        value = self.values.get(name)
        if not isinstance(value, np.ndarray) or len(value) != count:
            raise ModelError(f"{self.source} has no array of {count} numbers {name}")
        return value

    def token(self, role: str, words: Sequence[str]) -> int | None:
        """A token with a role, such as bos. Errors: ModelError if there is no such token."""
        value = self.values.get(f"tokenizer.ggml.{role}_token_id")
        if value is not None and (type(value) is not int or not 0 <= value < len(words)):
            raise ModelError(f"{self.source} has the {role} token {value!r:.60}, which is unknown")
        return value


def tokenizer_of_metadata(meta: Metadata) -> Tokenizer:
    """The tokenizer that a GGUF file describes.

    Errors:
        ModelError: it is of another kind than BPE ("gpt2") and SentencePiece ("llama"), or damaged.
    """
    tokenizers = require_tokenizers()
    kind = meta.get("tokenizer.ggml.model", str, "")
    makers = {"gpt2": _byte_pairs, "llama": _sentence_pieces}
    if kind not in makers:
        raise ModelError(
            f"{meta.source} has a tokenizer of the kind {kind!r:.60}, "
            f"expected one of {', '.join(makers)}"
        )
    _refuse_others(meta)
    words = meta.texts("tokenizer.ggml.tokens")
    name, kinds = "tokenizer.ggml.token_type", [_NORMAL] * len(words)
    if meta.values.get(name) is not None:
        kinds = meta.numbers(name, len(words)).tolist()
    try:
        with failures_as_errors("its tokens contradict each other"):
            own = makers[kind](meta, words, kinds)
            added = [word for word, kind in zip(words, kinds, strict=True) if kind == _CONTROL]
            own.add_special_tokens(
                [tokenizers.AddedToken(word, special=True, normalized=False) for word in added]
            )
            defined = [word for word, kind in zip(words, kinds, strict=True) if kind == _DEFINED]
            own.add_tokens([tokenizers.AddedToken(word, normalized=False) for word in defined])
        # As llama.cpp: older files do not say it.
        adds_first = kind == "llama" or meta.values.get("tokenizer.ggml.pre") in _WHOLE
        special = _ends(meta, own, words, adds_first=adds_first)
    except ModelError:
        raise
    except Exception as error:  # the package raises no other class
        raise ModelError(f"the tokenizer of {meta.source} is damaged: {error}") from None
    return Tokenizer(own, special)


_READ = {
    *("model", "pre", "tokens", "token_type", "token_type_count", "scores", "merges"),
    *("add_bos_token", "add_eos_token", "add_space_prefix"),
}
"""Metadata of tokenizers that are read, or change nothing."""


def _refuse_others(meta: Metadata) -> None:
    """Raise a ModelError for metadata that may change what a text means, and are not read."""
    for key, found in meta.values.items():
        name = key.removeprefix("tokenizer.ggml.")
        if name != key and name not in _READ and not name.endswith(("_token_id", "_token_ids")):
            is_none = not len(found) if isinstance(found, (str, list, np.ndarray)) else not found
            if not is_none:
                raise ModelError(f"{meta.source} has {key}: {found!r:.60}, which is not supported")


def _byte_pairs(meta: Metadata, words: list[str], kinds: list[int]) -> Any:
    """The tokenizer of GPT-2 and most others: pairs of bytes, written as characters, are merged."""
    from tokenizers import Regex, Tokenizer as Own, decoders, models, pre_tokenizers

    name = meta.get("tokenizer.ggml.pre", str, "default")
    if name not in _SPLITS:
        raise ModelError(
            f"{meta.source} splits texts by {name!r:.60}, expected one of {', '.join(_SPLITS)}",
            hint="the tokenizer.json of the model, in its Hugging Face folder, has no such limit",
        )
    merges: Any = [tuple(merge.split(" ", 1)) for merge in meta.texts("tokenizer.ggml.merges")]
    vocabulary = {word: token for token, word in enumerate(words)}
    own = Own(models.BPE(vocabulary, merges, ignore_merges=name in _WHOLE))
    steps: list[Any] = [pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS[name]]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    own.pre_tokenizer = pre_tokenizers.Sequence(steps)
    own.decoder = decoders.ByteLevel()
    return own


def _sentence_pieces(meta: Metadata, words: list[str], kinds: list[int]) -> Any:
    """The tokenizer of SentencePiece: the two pieces whose union has the best score are merged."""
    from tokenizers import Tokenizer as Own, decoders, models, normalizers

    scores = meta.numbers("tokenizer.ggml.scores", len(words)).tolist()
    vocabulary = {word: token for token, word in enumerate(words)}
    merges = []
    if max(map(len, words), default=0) > _LONGEST:  # every cut of a word is tried
        raise ModelError(f"{meta.source} has a token of more than {_LONGEST} characters")
    for word, kind, score in zip(words, kinds, scores, strict=True):
        if kind in {_NORMAL, _DEFINED}:
            for cut in range(1, len(word)):
                left, right = word[:cut], word[cut:]
                if left in vocabulary and right in vocabulary:
                    merges.append((-score, vocabulary[left], vocabulary[right], left, right))
    merges.sort(key=lambda merge: merge[:3])
    unknown = meta.token("unknown", words)
    own = Own(
        models.BPE(
            vocabulary,
            [merge[3:] for merge in merges],
            unk_token=None if unknown is None else words[unknown],
            fuse_unk=True,
            byte_fallback=_BYTE in kinds,
        )
    )
    begins = meta.get("tokenizer.ggml.add_space_prefix", bool, True)
    spaces = [normalizers.Replace(" ", "▁")]
    own.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), *spaces] if begins else spaces)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    own.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if begins else steps)
    return own


def _ends(meta: Metadata, own: Any, words: list[str], *, adds_first: bool) -> dict[str, str]:
    """Let texts begin and end with the tokens that the file says; the tokens by their roles."""
    from tokenizers import processors

    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    tokens = {role: meta.token(name, words) for role, name in roles.items()}
    special = {role: words[token] for role, token in tokens.items() if token is not None}
    template, used = ["$A"], set()
    for role, place, default in (("bos_token", 0, adds_first), ("eos_token", 2, False)):
        wanted = meta.get(f"tokenizer.ggml.add_{role}", bool, default)
        if wanted and role in special:
            template.insert(place, special[role])
            used.add((special[role], tokens[role]))
    if used:
        own.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=sorted(used)
        )
    return special
