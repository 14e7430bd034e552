"""The text of tokens at the seam of a prompt, and tokenizers as llama.cpp has them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy.plugins.llm.tokens import Metadata, TextStream, Tokenizer, tokenizer_of_metadata

pytest.importorskip("tokenizers")
LETTERS = "xé中🎉 y\N{REPLACEMENT CHARACTER}ß語🚀\n"
"""Characters of one to four bytes."""


def metadata(model: str, tokens: list[str], **entries: Any) -> Metadata:
    values = {"model": model, "tokens": tokens, **entries}
    return Metadata({f"tokenizer.ggml.{name}": value for name, value in values.items()}, "m.gguf")


def written(data: bytes) -> str:
    """Bytes as characters, as GPT-2 writes them: the visible ones of Latin-1 are themselves."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in visible]
    return "".join(chr(b) if b in visible else chr(256 + others.index(b)) for b in data)


def of_byte_pairs(text: str, rng: random.Random) -> tuple[Tokenizer, list[int], list[int]]:
    """A tokenizer that merges pairs of a text, also across characters; tokens, and their bytes."""
    bytes_of = [bytes([byte]) for byte in range(256)]
    merges = []
    for first, second in rng.sample([*pairwise(text.encode())], min(8, len(text.encode()) - 1)):
        pair = bytes([first, second])
        if pair not in bytes_of:
            merges.append(f"{written(pair[:1])} {written(pair[1:])}")
            bytes_of.append(pair)
    own = tokenizer_of_metadata(
        metadata("gpt2", [*map(written, bytes_of)], merges=merges, pre="qwen2")
    )
    tokens = own.encode(text)
    return own, tokens, [len(bytes_of[token]) for token in tokens]


def of_byte_fallback(text: str, rng: random.Random) -> tuple[Tokenizer, list[int], list[int]]:
    """A tokenizer of SentencePiece without most characters; tokens, and their bytes."""
    known = rng.sample(LETTERS.replace(" ", ""), 3)
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *known]
    kinds = np.array([2, 3, 3] + [6] * 256 + [1] * 4, "i4")
    scores = np.zeros(len(words), "f4")
    entries = {"scores": scores, "token_type": kinds, "unknown_token_id": 0}
    own = tokenizer_of_metadata(metadata("llama", words, add_bos_token=False, **entries))
    tokens = own.encode(text)
    assert own.own.decode(tokens) == text
    sizes = [1 if token < 260 else len(words[token].encode()) for token in tokens]
    sizes[0] = 0  # the space before the text
    return own, tokens, sizes


def texts(rng: random.Random) -> Iterator[str]:
    yield from ("🎉🎉🎉 x", "ab中xyz", "🎉xy", "�x", "x�", "🎉" * 9 + "x")
    for _ in range(20):
        yield "x" + "".join(rng.choices(LETTERS, k=rng.randint(2, 14))) + "y"


@pytest.mark.parametrize("kind", [of_byte_pairs, of_byte_fallback])
@pytest.mark.parametrize("seed", range(4))
def test_texts_are_whole_wherever_the_prompt_is_cut(kind: Any, seed: int) -> None:
    rng = random.Random(seed)
    for text in texts(rng):
        own, tokens, sizes = kind(text, rng)
        assert sum(sizes) == len(text.encode())
        for cut in range(1, len(tokens)):
            # A character that the prompt has in part belongs to what follows.
            data = text.encode()[: sum(sizes[:cut])]
            wanted = text[len(data.decode(errors="ignore")) :]
            if wanted[:1] == "\N{REPLACEMENT CHARACTER}" and not text.encode().startswith(
                data + wanted.encode()
            ):
                continue  # half of this character looks like all of it
            stream = TextStream(own, tokens[:cut])
            found = "".join(map(stream.add, tokens[cut:])) + stream.end()
            assert found == wanted, (text, cut)


def test_bytes_that_never_become_a_character() -> None:
    own, tokens, _ = of_byte_fallback("🎉x🎉🎉", random.Random(0))
    [x] = own.encode("x")[1:]
    bang = tokens[1:5]
    for before, new, wanted in (
        (bang[:2], [x, x], "xx"),
        (bang + bang[:1], [x], "x"),
        ([x], [*bang, bang[0], x, *bang], "🎉�x🎉"),
        ([x], bang[:3], "���"),
    ):
        stream = TextStream(own, before)
        assert "".join(map(stream.add, new)) + stream.end() == wanted


WHOLE = ["llama-bpe", "llama3", "llama-v3", "tekken", "pixtral", "falcon3", "lfm2", "falcon-h1"]


@pytest.mark.parametrize("pre", [*WHOLE, "qwen2", "gpt-2", "smollm", "default"])
def test_first_tokens_and_merges_as_llama_cpp_has_them(pre: str) -> None:
    """As measured with its library: of these kinds, 0 comes first, and "abc" is one token."""
    words = ["<s>", "</s>", "a", "b", "c", "ab", "abc"]
    entries = {"merges": ["a b"], "bos_token_id": 0, "token_type": np.array([3, 3] + [1] * 5)}
    own = tokenizer_of_metadata(metadata("gpt2", words, pre=pre, **entries))
    assert own.encode("abc") == ([0, 6] if pre in WHOLE else [5, 4])
    assert own.encode("abc", is_rendered=True) == ([6] if pre in WHOLE else [5, 4])
    said = tokenizer_of_metadata(metadata("gpt2", words, pre=pre, add_bos_token=False, **entries))
    assert said.encode("abc") == own.encode("abc")[-1:] if pre in WHOLE else [5, 4]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        # By llama.cpp's four expressions: runs of punctuation, words, runs of digits, three digits.
        (None, ["a", "Ġb", "Ġ", "+<", "c", "123", "456", "7", "!?'", "s"]),
        ("default", ["a", "Ġb", "Ġ", "+<", "c", "123", "456", "7", "!?'", "s"]),
        ("gpt-2", ["a", "Ġb", "Ġ+<", "c", "1234567", "!?'", "s"]),
        ("smollm", ["a", "Ġb", "Ġ+<", "c", "1", "2", "3", "4", "5", "6", "7", "!?'", "s"]),
        ("llama-bpe", ["a", "Ġb", "Ġ+<", "c", "123", "456", "7", "!?'", "s"]),
        ("dbrx", ["a", "Ġb", "Ġ+<", "c", "123", "456", "7", "!?'", "s"]),
        ("tekken", ["a", "Ġb", "Ġ+<", "c", "1", "2", "3", "4", "5", "6", "7", "!?'", "s"]),
        ("gpt-4o", ["a", "Ġb", "Ġ+<", "c", "123", "456", "7", "!?'", "s"]),
    ],
)
def test_how_texts_are_split(pre: str | None, pieces: list[str]) -> None:
    entries = {} if pre is None else {"pre": pre}
    words = [written(bytes([byte])) for byte in range(256)]
    own = tokenizer_of_metadata(metadata("gpt2", words, merges=[], **entries))
    split = own.own.pre_tokenizer.pre_tokenize_str("a b +<c1234567!?'s")
    assert [piece for piece, _ in split] == pieces


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("tekken", ["don", "'t", "Ġsay", "Hello", "World", "//"]),
        ("gpt-4o", ["don't", "Ġsay", "Hello", "World", "//"]),
        ("smaug-bpe", ["don", "'t", "ĠsayHelloWorld", "//"]),
    ],
)
def test_words_end_where_their_letters_become_large_again(pre: str, pieces: list[str]) -> None:
    words = [written(bytes([byte])) for byte in range(256)]
    own = tokenizer_of_metadata(metadata("gpt2", words, merges=[], pre=pre))
    split = own.own.pre_tokenizer.pre_tokenize_str("don't sayHelloWorld//")
    assert [piece for piece, _ in split] == pieces


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_does_not_grow_with_each_different_text() -> None:
    """A tokenizer that takes texts whole remembers them for each thread that encodes."""
    from tokenizers import Tokenizer as Own, models

    letters = "abcdefghijklmnopqrstuvwxyz .,!?"
    vocabulary = {letter: token for token, letter in enumerate(letters)}
    own = Tokenizer(Own(models.BPE(vocab=vocabulary, merges=[])))
    rng, sizes = random.Random(0), []

    def resident() -> float:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            listed = ["".join(rng.choices(letters, k=200)) for _ in range(5000)]
            list(pool.map(own.encode, listed))
            sizes.append(resident())
    assert sizes[-1] - sizes[0] < 15  # 66 MB where 10,000 texts are kept
