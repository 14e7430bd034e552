"""Pages that talk to an exported model: its tokenizer and its conversations as JavaScript."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unicodedata import is_normalized

from relaxpy import __version__
from relaxpy.plugins.llm.answer_parts import Thoughts
from relaxpy.plugins.llm.config import ModelError

if TYPE_CHECKING:
    from relaxpy.plugins.llm.language_model import LanguageModel

_SOURCES: Final = {".chat.js": "chat.js", ".html": "chat.html"}
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_MARKS: Final = ("Aquestion", "Banswer", "Cquestion")
"""Messages that a template shows unchanged."""
_CHANGES: Final[Mapping[str, Callable[[str], str]]] = {
    "toString": str,
    "trim": str.strip,
    "trimStart": str.lstrip,
    "trimEnd": str.rstrip,
}
"""What templates do to messages, by the methods of JavaScript that do the same."""
_SYNTAX: Final = (
    r"\\[pP]\{\w+\}|\\.|\(\?i:|\(\?[:!=]?|(?:[?*+]|\{\d+(?:,\d*)?\})[?+]?|\[\^?\]?|&&|."
)
"""The parts of a regular expression."""
_SPELLINGS: Final = {r"\s": r"\p{White_Space}", r"\S": r"\P{White_Space}", r"\d": r"\p{Nd}"}
_FOLDED: Final = {"s": "\u017f", "k": "\u212a"}
"""Letters that stand for others where cases are ignored."""


def page_of(lm: LanguageModel, name: str) -> dict[str, str]:
    """The files of a page for the module `name`, by the ends of their names.

    Errors:
        ModelError: the tokenizer is not one of byte pairs, or it or the chat template has parts
            that are not written in JavaScript.
    """
    tokenizer = lm.tokenizer
    tables = _tables(json.loads(tokenizer.own.to_str()))
    first = [] if lm.template_text is not None else _first(lm)
    turns = None if lm.template_text is None else _turns(lm)
    ends = sorted(lm.ends)
    values = {**tables, "FIRST": first, "ENDS": ends, "TURNS": turns}
    texts = {f"@{key}@": json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    # A text of a table may be the name of another one: all are replaced at once.
    texts |= {"@NAME@": name, "@VERSION@": __version__}
    pattern = re.compile("|".join(map(re.escape, texts)))
    folder = Path(__file__).parent
    return {
        end: pattern.sub(lambda found: texts[found[0]], (folder / file).read_text("utf-8"))
        for end, file in _SOURCES.items()
    }


def _refused(what: str) -> ModelError:
    return ModelError(
        f"the page cannot talk to the model: {what}",
        hint="export it without the page, and write the tokens by another tokenizer",
    )


def _tables(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a tokenizer, by their names in the JavaScript."""
    model = raw["model"]
    if model["type"] != "BPE":
        raise _refused(f"its tokenizer is of the kind {model['type']}, expected BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise _refused(f"its tokenizer has the option {option}")
    normal = raw.get("normalizer")
    if normal is not None and normal["type"] not in {"NFC", "NFD", "NFKC", "NFKD"}:
        raise _refused(f"its tokenizer has the normalizer {normal['type']}")
    if (raw.get("decoder") or {}).get("type") != "ByteLevel":
        kind = (raw.get("decoder") or {"type": "none"})["type"]
        raise _refused(f"its tokenizer has the decoder {kind}, expected ByteLevel")
    words: dict[str, int] = dict(model["vocab"])
    if missing := [character for character in _byte_characters() if character not in words]:
        raise _refused(f"its tokenizer has no token for the byte {missing[0]!r}")
    added: tuple[list[str], list[str]] = ([], [])
    for token in raw["added_tokens"]:
        for option in ("single_word", "lstrip", "rstrip"):
            if token[option]:
                raise _refused(f"its token {token['content']!r:.40} has the option {option}")
        if normal and token["normalized"] and not is_normalized(normal["type"], token["content"]):
            raise _refused(f"its normalizer changes its token {token['content']!r:.40}")
        words[token["content"]] = token["id"]
        added[bool(token["normalized"])].append(token["content"])
    texts: list[str | None] = [None] * (max(words.values()) + 1)
    for word, token in words.items():
        texts[token] = word
    merges = (m if isinstance(m, str) else " ".join(m) for m in model["merges"])
    return {
        "TOKENS": texts,
        "MERGES": list(merges),
        "SPECIAL": [token["id"] for token in raw["added_tokens"] if token["special"]],
        "ADDED": added,
        "NORMAL": normal and normal["type"],
        "SPLITS": [*_splits(raw["pre_tokenizer"])],
        "WHOLE": bool(model.get("ignore_merges")),
    }


def _byte_characters() -> list[str]:
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (chr(256 + n) for n in range(256))
    return [chr(byte) if byte in visible else next(others) for byte in range(256)]


def _splits(step: Mapping[str, Any] | None) -> Iterator[str]:
    """The expressions of JavaScript that split texts, one after another."""
    match step:
        case {"type": "Sequence", "pretokenizers": steps}:
            for each in steps:
                yield from _splits(each)
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": text}}:
            yield _expression(text)
        case {"type": "Digits", "individual_digits": each}:
            yield r"\p{N}" if each else r"\p{N}+"
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": uses}:
            if uses:
                yield _expression(_GPT2)
        case _:
            raise _refused(f"its tokenizer splits texts by {json.dumps(step):.200}")


def _expression(text: str) -> str:
    """A regular expression of Oniguruma as one of JavaScript that finds the same."""
    found, in_class, folds = "", False, [False]
    for part in re.findall(_SYNTAX, text, re.DOTALL):
        is_known, spelled = True, part
        if part[0] == "\\":
            is_kind = re.fullmatch(r"\\(?:[pP]\{[A-Z][a-z]?\}|[rntsSd])", part) is not None
            is_known = is_kind or not part[1].isalnum()
            # Others than these are characters that JavaScript wants without a stroke.
            is_escaped = part[1] in "^$\\.*+?()[]{}|/" or (in_class and part[1] == "-")
            spelled = _SPELLINGS.get(part, part) if is_kind or is_escaped else part[1]
        elif in_class:
            is_known = part[0] != "[" and part != "&&" and not (folds[-1] and part.isalpha())
            in_class = part != "]"
        elif part[0] == "[":
            is_known = part[-1] != "]"
            in_class = True
        elif part[0] == "(":
            is_known = part != "(?"
            folds.append(folds[-1] or part == "(?i:")
            spelled = "(?:" if part == "(?i:" else part
        elif part == ")":
            folds.pop()
        elif len(part) > 1 or part in "^$.{}":
            is_known = part[0] in "?*+{" and len(part) > 1 and part[-1] != "+"
        elif folds[-1] and part.isalpha():
            spelled = f"[{part.lower()}{part.upper()}{_FOLDED.get(part.lower(), '')}]"
        if not is_known:
            raise _refused(f"its tokenizer splits texts by {part} in {text!r:.120}")
        found += spelled
    return found


def _first(lm: LanguageModel) -> list[int]:
    """The tokens that begin a text which is no conversation."""
    tokens, own = lm.tokenizer.encode("a"), lm.tokenizer.encode("a", is_rendered=True)
    if tokens[len(tokens) - len(own) :] != own:
        raise _refused("its tokenizer adds tokens after a text")
    return tokens[: len(tokens) - len(own)]


def _turns(lm: LanguageModel) -> dict[str, str | None]:
    """The texts of the chat template around messages from both in turns, and what it does to these.

    Methods of JavaScript change a message as the template does. Of earlier answers, it shows what
    follows the end of their thoughts, if there is one.
    """
    a, b, c = _MARKS

    def shown(*contents: str) -> str:
        roles = ("user", "assistant", "user")[: len(contents)]
        messages = [{"role": r, "content": m} for r, m in zip(roles, contents, strict=True)]
        return lm.template.render(messages)

    one, three = shown(a), shown(a, b, c)
    first, _, last = one.partition(a)
    begin, end = first + a + last + b, c + last
    if not (last and three.startswith(begin) and three.endswith(end)):
        raise _refused("its chat template changes messages, or does not write them in turns")
    between = three[len(begin) : len(three) - len(end)]
    around = (first, last), (first + a + last, between + c + last)

    def change(own: str, answer: str | None = None) -> str:
        """The method that changes a question, or else an answer, as the template does."""
        text = shown(own) if answer is None else shown(a, answer, c)
        before, after = around[answer is not None]
        for method, changed in _CHANGES.items():
            if text == before + changed(own) + after:
                return method
        raise _refused("its chat template changes messages")

    spaced = " \n{0}\n {0} \n"
    answer, thoughts = spaced.format(b), Thoughts.of(lm.template.text, "")
    turns = {"first": first, "next": between, "last": last, "end": None}
    turns |= {"question": change(spaced.format(a)), "answer": change(answer, answer)}
    if thoughts is not None:
        thought = f"{thoughts.begin}\n{a}\n{thoughts.end}\n\n{b}"
        if shown(a, thought, c) != around[1][0] + thought + around[1][1]:
            change(b, thought)
            turns["end"] = thoughts.end
    return turns
