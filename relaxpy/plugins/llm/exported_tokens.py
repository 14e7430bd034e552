"""The tables of a tokenizer for code without Python, which `tokens.h` and `chat.js` read.

They are one block of 32-bit integers: a mark, the number of words, the position and the number of
the words of each section, and these sections. Texts are UTF-8, except those that are searched for,
which are numbers of characters.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxpy import __version__
from relaxpy.plugins.llm.answer_parts import Thoughts
from relaxpy.plugins.llm.config import ModelError
from relaxpy.plugins.llm.expressions import (
    CODES,
    NUMBER,
    NUMBERS,
    ExpressionError,
    expressions_of,
    sampled,
)

if TYPE_CHECKING:
    from relaxpy.plugins.llm.language_model import LanguageModel

MARK: Final = 0x314B4F54
SECTIONS: Final = (
    *("numbers", "starts", "texts", "hidden", "bytes", "characters", "merges", "whole", "added"),
    *("normal_added", "added_texts", "ranges", "sets", "program", "splits", "first", "ends"),
    *("turn_starts", "turn_texts", "decomposed", "decompositions", "classes", "composed"),
)
"""The names of sections, in order.

    numbers         those of `NUMBERS_IN_ORDER`
    starts          where the text of each token begins, in bytes of `texts`, and the end
    hidden          for each token 1 if texts do not show it
    bytes           the token of each byte, or nothing
    characters      pairs (character, token), sorted
    merges          (left token, right token, rank, new token), sorted
    whole           tokens that pieces are without merges, sorted by their bytes
    added           (token, position in `added_texts`, length) of texts that are one token, sorted
                    by these texts, which differ: before texts are normal, and after that
    ranges, sets, program, splits  the expressions that split texts (`expressions.py`)
    first, ends     the tokens that begin a text, and those that end an answer
    turn_starts     where the texts of `Turns` begin in `turn_texts`, and the end; or nothing
    decomposed      triples (character, position in `decompositions`, length), sorted
    classes         pairs (character, combining class), sorted
    composed        triples (first, second, composed character), sorted
"""
NUMBERS_IN_ORDER: Final = (
    "unknown",
    "fuses",
    "prefix",
    "spaces",
    "strips",
    "growth",
    "form",
    "kinds",
    "question",
    "answer",
    "thoughts",
)
"""Single numbers.

    unknown  the token of characters that are none, or -1: they are left out
    fuses    1 if several unknown characters in a row are one token
    prefix   the space before a text: 0 none, 1 always, before it is searched for tokens; or after
             that 2 unless there is one, 3 so at the start only, 4 none
    spaces   1 if a space is the character `SPACE`
    strips   1 if the space before a text does not belong to it
    growth   how many times the bytes of a text it has in its normal form, at most
    form     0 if texts stay unchanged, 1 if characters are decomposed, 2 if also composed
    kinds    the number of kinds of characters that expressions distinguish
    question, answer  1 if templates take off the white space at the start of questions, and of
             earlier answers; plus 2, that at the end
    thoughts 1 if templates leave out the thoughts of earlier answers, 2 also new lines after them
"""
SPACE: Final = "▁"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_FORMS: Final = ("NFC", "NFD", "NFKC", "NFKD")
_MOST_TEXT: Final = 1 << 30


def tokenizer_files(lm: LanguageModel, prefix: str, limits: Mapping[str, int]) -> dict[str, bytes]:
    """The header and the tables of a tokenizer for C, by the ends of the names of their files.

    Errors:
        ModelError: the tokenizer has parts that the tables cannot have; it names them.
    """
    from relaxpy.exec.export.c_header import safe

    try:
        turns, why = turns_of(lm), ""
    except ModelError as error:
        turns, why = None, safe(f" It is null: {error.diagnostics[0].message}.")
    header = header_of(prefix, limits, why)
    return {"_tokens.h": header.encode(), ".tokens": tables_of(lm, turns)}


def header_of(prefix: str, limits: Mapping[str, int], about_turns: str = "") -> str:
    """The code in C that reads tables; its names begin with `prefix`, also those of `limits`."""
    texts = {
        "@ABOUT_TURNS@": about_turns,
        "@LIMITS@": "".join(
            f"#define {prefix.upper()}_{name} {value}\n" for name, value in limits.items()
        ),
        "NAME": prefix,
        "@GUARD@": f"{prefix.upper()}_TOKENS_H",
        "@VERSION@": __version__,
        "@MARK@": f"0x{MARK:X}",
        "@SPACE@": f"0x{ord(SPACE):X}",
        "@SECTIONS_IN_ORDER@": ", ".join(f"{prefix}_T_{name}" for name in SECTIONS),
        "@NUMBERS_IN_ORDER@": ", ".join(f"{prefix}_N_{name}" for name in NUMBERS_IN_ORDER),
        "@CODES_IN_ORDER@": ", ".join(f"{prefix}_{name}" for name in CODES),
    }
    return filled("tokens.h", texts)


def filled(file: str, texts: Mapping[str, str]) -> str:
    """A file of this folder with texts instead of others, which are all replaced at once."""
    pattern = re.compile("|".join(map(re.escape, texts)))
    source = Path(__file__).with_name(file).read_text("utf-8")
    return pattern.sub(lambda found: texts[found[0]], source)


def refused(what: str) -> ModelError:
    """The error for what has no form without Python."""
    return ModelError(
        f"the tokenizer has no form without Python: {what}",
        hint="export the model without it, and write the tokens by another tokenizer",
    )


@dataclass(frozen=True)
class Turns:
    """The texts of a chat template around messages from both in turns, and its changes of these.

    Fields:
        texts: before the first question, before others, between a question and the answer that
            begins, or an earlier one; and what ends thoughts.
        question, answer, thoughts: the numbers of these names.
    """

    texts: tuple[str, str, str, str, str]
    question: int
    answer: int
    thoughts: int


def tables_of(lm: LanguageModel, turns: Turns | None) -> bytes:
    """The tables of the tokenizer of a model, and of its conversations.

    Errors:
        ModelError: the tokenizer has parts that the tables cannot have; it names them.
    """
    own = lm.tokenizer.own
    sections = _sections(json.loads(own.to_str()), own)
    sections |= {"first": _first(lm), "ends": sorted(lm.ends)}
    if turns is not None:
        texts = [text.encode() for text in turns.texts]
        sections |= {"turn_starts": np.cumsum([0, *map(len, texts)]), "turn_texts": b"".join(texts)}
        changes = [turns.question, turns.answer, turns.thoughts]
        sections["numbers"][NUMBERS_IN_ORDER.index("question") :] = changes
    head, body, at = [], [], 2 + 2 * len(SECTIONS)
    for name in SECTIONS:
        section = sections[name]
        if isinstance(section, bytes):
            section = np.frombuffer(section + bytes(-len(section) % 4), "<i4")
        words = np.asarray(section, "<i4").reshape(-1)
        head += [at, len(words)]
        at += len(words)
        body.append(words.tobytes())
    if at > _MOST_TEXT:
        raise refused(f"its tables have {at} words")
    return np.array([MARK, at, *head], "<i4").tobytes() + b"".join(body)


def _sections(raw: Mapping[str, Any], own: Any) -> dict[str, Any]:
    """The sections that follow from a tokenizer alone."""
    model = raw["model"]
    if model["type"] != "BPE":
        raise refused(f"it is of the kind {model['type']}, expected BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise refused(f"it has the option {option}")
    vocabulary: dict[str, int] = model["vocab"]
    numbers = dict.fromkeys(NUMBERS_IN_ORDER, 0) | {"unknown": -1, "growth": 1}
    sections: dict[str, Any] = {name: [] for name in SECTIONS}
    is_of_bytes = (raw.get("decoder") or {}).get("type") == "ByteLevel"
    kind, written = (
        (_byte_pairs, _bytes_of_pairs) if is_of_bytes else (_sentence_pieces, _bytes_of_piece)
    )
    sections |= kind(raw, vocabulary, numbers)
    text_of = {number: written(text) for text, number in vocabulary.items()}
    added: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for token in raw["added_tokens"]:
        text, number = token["content"], token["id"]
        for option in ("single_word", "lstrip", "rstrip"):
            if token[option]:
                raise refused(f"its token {text!r:.40} has the option {option}")
        normal = text
        if token["normalized"] and own.normalizer is not None:
            normal = own.normalizer.normalize_str(text)
        shown = own.decode([number], skip_special_tokens=False)
        for each in (normal, text):  # versions of the package differ
            content = written(each)
            first = content[content[:1] == b" " :] if numbers["strips"] else content
            if first.decode(errors="replace") == shown:
                text_of[number] = content
                break
        else:
            raise refused(f"its token {text!r:.40} is written as {shown!r:.40}")
        if normal:
            added[bool(token["normalized"])].setdefault(normal, number)
    form = next((step["type"] for step in _steps(raw["normalizer"]) if step["type"] in _FORMS), "")
    if form:
        sections |= _normal(form)
        numbers["growth"] = _growth(sections["decomposed"], sections["decompositions"])
        numbers["form"] = 2 if form.endswith("C") else 1
    texts = [text_of.get(number, b"") for number in range(1 + max(text_of, default=-1))]
    sections["texts"] = b"".join(texts)
    sections["starts"] = np.cumsum([0, *map(len, texts)])
    special = {token["id"] for token in raw["added_tokens"] if token["special"]}
    hidden = {token for token in special if not own.decode([token])}  # not all that are normalized
    sections["hidden"] = [int(token in hidden) for token in range(len(texts))]
    sections["merges"] = _merges(model["merges"], vocabulary)
    if model.get("ignore_merges"):
        if not is_of_bytes:
            raise refused("it has the option ignore_merges")
        known = (number for text, number in vocabulary.items() if _is_of_pairs(text))
        sections["whole"] = sorted(known, key=lambda number: texts[number])
    pool: list[int] = []
    for name, listed in zip(("added", "normal_added"), added, strict=True):
        rows = []
        for text, number in sorted(listed.items()):
            rows.append((number, len(pool), len(text)))
            pool += map(ord, text)
        sections[name] = rows
    sections["added_texts"] = pool
    sections["numbers"] = [numbers[name] for name in NUMBERS_IN_ORDER]
    return sections


def _merges(
    merges: Iterable[str | Sequence[str]], vocabulary: Mapping[str, int]
) -> list[tuple[int, int, int, int]]:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(merges):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        pair = vocabulary[left], vocabulary[right]
        found[pair] = rank, vocabulary[left + right]  # a later one replaces an earlier one
    return sorted((*pair, *new) for pair, new in found.items())


# --- byte pairs


def _byte_characters() -> list[str]:
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (chr(256 + n) for n in range(256))
    return [chr(byte) if byte in visible else next(others) for byte in range(256)]


_BYTE_OF: Final = {character: byte for byte, character in enumerate(_byte_characters())}


def _is_of_pairs(text: str) -> bool:
    return all(character in _BYTE_OF for character in text)


def _bytes_of_pairs(text: str) -> bytes:
    """The bytes of a token of bytes that are written as characters, or of a text that is none."""
    if _is_of_pairs(text):
        return bytes(_BYTE_OF[character] for character in text)
    return text.encode()


def _byte_pairs(
    raw: Mapping[str, Any], vocabulary: Mapping[str, int], numbers: dict[str, int]
) -> dict[str, Any]:
    """The sections for bytes, which are merged in the pieces that expressions find."""
    if raw["model"].get("byte_fallback"):
        raise refused("it has the option byte_fallback")
    for step in _steps(raw["normalizer"]):
        if step["type"] not in _FORMS or raw["normalizer"]["type"] == "Sequence":
            raise refused(f"it has the normalizer {step['type']}")
    characters = _byte_characters()
    if missing := [character for character in characters if character not in vocabulary]:
        raise refused(f"it has no token for the byte {missing[0]!r}")
    texts = [*_splits(raw["pre_tokenizer"])]
    try:
        found = expressions_of(texts)
    except ExpressionError as error:
        raise refused(f"it splits texts by {error} in {' and '.join(texts)!r:.120}") from None
    numbers["kinds"] = found.sets.shape[1]
    return {
        "bytes": [vocabulary[character] for character in characters],
        "ranges": found.ranges,
        "sets": found.sets,
        "program": found.program,
        "splits": found.starts,
    }


def _splits(step: Mapping[str, Any] | None) -> Iterator[str]:
    """The expressions that split texts, one after another."""
    match step:
        case {"type": "Sequence", "pretokenizers": steps}:
            for each in steps:
                yield from _splits(each)
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": text}}:
            yield text
        case {"type": "Digits", "individual_digits": each}:
            yield NUMBER if each else NUMBERS
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": uses}:
            if uses:
                yield _GPT2
        case _:
            raise refused(f"it splits texts by {json.dumps(step):.200}")


# --- SentencePiece


def _bytes_of_piece(text: str) -> bytes:
    """The bytes of a token of SentencePiece: one, or those of a text with visible spaces."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return bytes.fromhex(text[3:5])
        except ValueError:
            pass
    return text.replace(SPACE, " ").encode()


_DECODERS: Final = (
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
)
_STRIP: Final = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def _sentence_pieces(
    raw: Mapping[str, Any], vocabulary: Mapping[str, int], numbers: dict[str, int]
) -> dict[str, Any]:
    """The sections for characters, which are merged in the whole text; others are bytes."""
    steps = [*_steps(raw["decoder"], "decoders")]
    if [*map(dict, steps[:3])] != [*_DECODERS] or steps[3:] not in ([], [_STRIP]):
        kind = (raw.get("decoder") or {"type": "none"})["type"]
        raise refused(f"it has the decoder {kind}, expected ByteLevel, or that of SentencePiece")
    numbers["strips"] = int(len(steps) > 3)
    for step in _steps(raw["normalizer"]):
        match step:
            case {"type": "Prepend", "prepend": "▁"} if not numbers["spaces"]:
                numbers["prefix"] = 1
            case {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
                numbers["spaces"] = 1
            case _:
                raise refused(f"it has the normalizer {step['type']}")
    match raw["pre_tokenizer"]:
        case None:
            pass
        # No spaces are left that it could find.
        case {"type": "Split", "pattern": {"String": " "}} if numbers["spaces"]:
            pass
        case {"type": "Metaspace", "replacement": "▁", "split": False, "prepend_scheme": where} if (
            not numbers["prefix"]
        ):
            numbers["spaces"] = 1
            numbers["prefix"] = {"never": 4, "always": 2, "first": 3}[where]
        case step:
            raise refused(f"it splits texts by {json.dumps(step):.200}")
    model = raw["model"]
    bytes_ = [vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)]
    if not model.get("byte_fallback") or all(token is None for token in bytes_):
        bytes_ = []
    elif None in bytes_:
        raise refused(f"it has no token for the byte {bytes_.index(None)}")
    if (unknown := model.get("unk_token")) is not None:
        if unknown not in vocabulary:
            raise refused(f"it has no token {unknown!r:.40}")
        numbers["unknown"] = vocabulary[unknown]
    numbers["fuses"] = int(bool(model.get("fuse_unk")))
    if numbers["spaces"] and SPACE not in vocabulary:
        numbers["growth"] = len(SPACE.encode())
    characters = [(ord(text), token) for text, token in vocabulary.items() if len(text) == 1]
    return {"bytes": bytes_, "characters": sorted(characters)}


def _steps(step: Mapping[str, Any] | None, name: str = "normalizers") -> Iterator[Any]:
    """The steps that a step consists of."""
    if step is None:
        return
    if step["type"] == "Sequence":
        for each in step[name]:
            yield from _steps(each, name)
    else:
        yield step


# --- normal forms


@lru_cache(4)
def _normal(form: str) -> dict[str, Any]:
    """The sections of a normal form of Unicode, as the package tokenizers has it."""
    from tokenizers import normalizers

    compatible = form.replace("NFC", "NFD").replace("NFKC", "NFKD")
    pool: list[int] = []
    decomposed = []
    for character, text in zip(sampled(), _each(compatible, sampled()), strict=True):
        if character != text and not "가" <= character <= "힣":
            decomposed.append((ord(character), len(pool), len(text)))
            pool += map(ord, text)
    found = {"decomposed": decomposed, "decompositions": pool, "classes": _classes()}
    if form.endswith("C"):
        both = zip(sampled(), _each("NFD", sampled()), _each("NFC", sampled()), strict=True)
        composed = []
        for character, text, again in both:
            if again == character != text and not "가" <= character <= "힣":
                first = normalizers.NFC().normalize_str(text[:-1])
                composed.append((ord(first), ord(text[-1]), ord(character)))
        found["composed"] = sorted(composed)
    return found


def _each(form: str, characters: str, before: str = "", after: str = "") -> list[str]:
    """The normal forms of characters between texts, each on its own."""
    from tokenizers import normalizers

    between = "\n"  # is part of no other character
    joined = between.join(f"{before}{c}{after}" for c in characters if c != between)
    found = str(getattr(normalizers, form)().normalize_str(joined)).split(between)
    if between in characters:
        found.insert(characters.index(between), between)
    return found


def _growth(decomposed: Sequence[tuple[int, int, int]], pool: Sequence[int]) -> int:
    """How many times its bytes a character has as its decomposition; syllables of Hangul: 3."""
    texts = ((chr(c), "".join(map(chr, pool[at : at + n]))) for c, at, n in decomposed)
    return max(3, *(-(-len(text.encode()) // len(c.encode())) for c, text in texts))


@lru_cache(1)
def _classes() -> list[tuple[int, int]]:
    """Characters that are put in order, with their combining classes.

    Those are left out that the package does not know yet.
    """
    low, high = "\u0334", "\u0345"  # of the first and the last class
    known = "".join(c for c in sampled() if unicodedata.combining(c))
    after = _each("NFD", known, before=high)
    before = _each("NFD", known, after=low)
    moved = (x[-1] == high or y[0] == low for x, y in zip(after, before, strict=True))
    pairs = zip(known, moved, strict=True)
    return [(ord(c), unicodedata.combining(c)) for c, is_moved in pairs if is_moved or c == low]


def _first(lm: LanguageModel) -> list[int]:
    """The tokens that begin a text outside of conversations."""
    tokens, own = lm.tokenizer.encode("a"), lm.tokenizer.encode("a", is_rendered=True)
    if tokens[len(tokens) - len(own) :] != own:
        raise refused("it adds tokens after a text")
    return tokens[: len(tokens) - len(own)]


# --- conversations

_MARKS: Final = ("Aquestion", "Banswer", "Cquestion")
"""Messages that a template shows unchanged."""
_TRIMS: Final[Sequence[Callable[[str], str]]] = (str, str.lstrip, str.rstrip, str.strip)
"""Changes of messages, by the numbers of `question` and `answer`."""


def turns_of(lm: LanguageModel) -> Turns | None:
    """The texts around messages, which are from both in turns; nothing without a chat template.

    Errors:
        ModelError: the template changes messages, or does not write them in turns.
    """
    if lm.template_text is None:
        return None
    a, b, c = _MARKS
    roles = ("user", "assistant", "user")

    def rendered(*texts: str) -> str:
        pairs = zip(roles, texts, strict=False)
        return lm.template.render([{"role": role, "content": text} for role, text in pairs])

    first, _, last = rendered(a).partition(a)
    start, found, rest = rendered(a, b, c).partition(b)
    if not (last and found and start.startswith(first + a) and rest.endswith(c + last)):
        raise refused("its chat template does not write messages in turns")
    before, following = start.removeprefix(first + a), rest.removesuffix(c + last)

    def change(found: str, before: str, shown: Sequence[str], after: str) -> int:
        """The number of the text that a template shows between others."""
        for n, text in enumerate(shown):
            if found == before + text + after:
                return n
        raise refused("its chat template changes messages")

    asked, own = (f" \n{text}\n {text} \n" for text in (a, b))
    question = change(rendered(asked), first, [trim(asked) for trim in _TRIMS], last)
    answer = change(rendered(a, own, c), start, [trim(own) for trim in _TRIMS], rest)
    thoughts, dropped = Thoughts.of(lm.template.text, ""), 0
    if thoughts is not None:
        own = f"{thoughts.begin}\n{a}\n{thoughts.end}\n\n {b}"
        left = own.rpartition(thoughts.end)[2]
        shown = [_TRIMS[answer](text) for text in (own, left, left.lstrip("\n"))]
        dropped = change(rendered(a, own, c), start, shown, rest)
    end = thoughts.end if thoughts else ""
    return Turns((first, following, last, before, end), question, answer, dropped)
