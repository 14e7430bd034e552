"""Tokenizers without Python, in C and in JavaScript: tokens and texts are those of Python."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from hypothesis import HealthCheck, given, settings, strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer as Own,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from relaxpy.plugins.llm import tokens as tokenizers
from relaxpy.plugins.llm.config import ModelError
from relaxpy.plugins.llm.exported_page import page_of
from relaxpy.plugins.llm.exported_tokens import Turns, header_of, tables_of, turns_of
from relaxpy.plugins.llm.expressions import sampled
from relaxpy.plugins.llm.template import ChatTemplate
from relaxpy.plugins.llm.tokens import Tokenizer
from tests.exec.export.in_node import needs_node, talk
from tests.exec.export.test_c import SANITIZERS, WARNINGS, run
from tests.fuzz import hard_texts
from tests.plugins.llm import parts, tiny
from tests.plugins.llm.templates import TEMPLATES
from tests.plugins.llm.test_tokens import metadata, written

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
#: Words in cases and scripts, numbers, punctuation, white space of all kinds, and contractions.
PARTS = [
    *("Hello", "hELLO", "don't", "WE'LL", "'Re", "it\u017f", "'\u017f", "straße", "Ǆungla", "ʰa"),
    *("中文", "日本語", "हिन्दी", "e\u0301", "é", "ﬁ", "🎉", "👩‍💻", "١٢٣", "Ⅻ", "1234567", "3.14"),
    *(" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u0085", "\ufeff", "\u200b", "\x00"),
    *("...", "$+<=>^~|", "//", "_", "-", "—", "<s>", "<|im_end|>", "s>", "user", "\U0010ffff"),
    *("▁", "한국어", "ᄒ\u1161\u11ab", "q\u0323\u0307", "q\u0307\u0323", "ά\u0345", "Å", "ﷺ", "が"),
]
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include "chat_tokens.h"

static void *content(FILE *file, int64_t size) {
    void *found = malloc((size_t)size + 1);
    if (fread(found, 1, (size_t)size, file) != (size_t)size) exit(3);
    return found;
}

static char conversation[100000];
static int64_t written;

static void append(const char *text, int64_t size) {
    memcpy(conversation + written, text, (size_t)size);
    written += size;
}

static void append_turn(const chat_tokens *t, int which) {
    int64_t size;
    const char *text = chat_tokens_turn(t, which, &size);
    append(text, size);
}

/* What a model reads before each answer: questions and answers in turns. */
static void converse(const chat_tokens *t) {
    int64_t size, asked;
    for (int n = 0; fread(&size, 8, 1, stdin) == 1; n++) {
        char *text = (char *)content(stdin, size);
        const char *part;
        if (n % 2) {
            char *valid = (char *)malloc(3 * (size_t)size);
            int64_t bytes = chat_tokens_valid(text, size, valid, 3 * size);
            append_turn(t, 3);
            part = chat_tokens_answer(t, valid, &bytes);
            append(part, bytes);
            free(valid);
        } else {
            append_turn(t, n > 0);
            part = chat_tokens_question(t, text, &size);
            append(part, size);
            asked = written;
            append_turn(t, 2);
            fwrite(&written, 8, 1, stdout);
            fwrite(conversation, 1, (size_t)written, stdout);
            written = asked;
        }
        free(text);
    }
}

/* The tokens of texts, each after its length, and the texts of these, twice. */
int main(int argc, char **argv) {
    FILE *file = fopen(argv[1], "rb");
    chat_tokens t;
    int64_t size, counts[2];
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    void *tables = content(file, size);
    if (chat_tokens_open(&t, tables, size) != 0) {
        free(tables);
        fclose(file);
        return 2;
    }
    if (argc > 2) converse(&t);
    while (fread(&size, 8, 1, stdin) == 1) {
        char *text = (char *)content(stdin, size), *back;
        int64_t bytes = chat_tokens_workspace(&t, size), most = chat_tokens_most(&t, size);
        void *memory = malloc((size_t)bytes);
        int32_t *tokens = (int32_t *)malloc(4 * (size_t)most);
        counts[0] = chat_tokens_encode(&t, text, size, 0, tokens, most, memory);
        fwrite(counts, 8, 1, stdout);
        if (counts[0] > 0) fwrite(tokens, 4, (size_t)counts[0], stdout);
        most = counts[0];
        if (most > 0 && chat_tokens_encode(&t, text, size, 0, tokens, most - 1, memory) != -3)
            return 4;
        if (chat_tokens_encode(&t, text, size, 0, tokens, most, memory) != most) return 5;
        bytes = 12 * size + 64;
        back = (char *)malloc((size_t)bytes);
        counts[1] = chat_tokens_decode(&t, tokens, most < 0 ? 0 : most, 0, back, bytes);
        fwrite(counts + 1, 8, 1, stdout);
        if (counts[1] > 0) fwrite(back, 1, (size_t)counts[1], stdout);
        free(text), free(memory), free(tokens), free(back);
    }
    free(tables);
    fclose(file);
    return 0;
}
"""


def model_of(tokenizer: Tokenizer, template: str | None = None) -> Any:
    """What tables and pages read of a model."""
    made = template and ChatTemplate(template, {"bos_token": "<s>", "eos_token": "</s>"})
    return SimpleNamespace(
        tokenizer=tokenizer, template_text=template, template=made, ends=(1,), name="drawn"
    )


# --- tokenizers of all kinds


def byte_pairs(name: str) -> Tokenizer:
    """A tokenizer of GGUF that splits texts by `name`, and has merged many pairs."""
    rng = random.Random(name)
    words = [written(bytes([byte])) for byte in range(256)]
    merges = []
    for _ in range(600):
        text = written(rng.choice(PARTS).encode() + rng.choice(PARTS).encode())
        cut = rng.randrange(1, len(text))
        left = max((w for w in words if text[:cut].endswith(w)), key=len)
        right = max((w for w in words if text[cut:].startswith(w)), key=len)
        if left + right not in words:
            words.append(left + right)
            merges.append(f"{left} {right}")
    words += ["<s>", "</s>", "<|im_end|>"]
    kinds = [1] * (len(words) - 3) + [3] * 3
    return tokenizers.tokenizer_of_metadata(
        metadata("gpt2", words, merges=merges, pre=name, token_type=np.array(kinds, "i4"))
    )


def sentence_pieces(seed: str, *, has_bytes: bool = True, **entries: Any) -> Tokenizer:
    """A tokenizer of GGUF with drawn pieces, whose unions have drawn scores."""
    rng = random.Random(seed)
    words = ["<unk>", "<s>", "</s>", "<|im_end|>"]
    words += [f"<0x{byte:02X}>" for byte in range(256)] if has_bytes else []
    kinds = [2, 3, 3, 4] + [6] * (len(words) - 4)
    known = {c for part in PARTS for c in part if rng.random() < 0.7} - {*" \x00"}
    pieces = ["▁", *sorted(known)]
    for _ in range(400):
        text = "▁".join(rng.choices(PARTS, k=3)).replace(" ", "▁").replace("\x00", "")
        start = rng.randrange(len(text))
        piece = text[start : start + rng.randrange(2, 7)]
        if {*piece} <= {"▁", *known} and piece not in pieces:
            pieces.append(piece)
    words += [piece for piece in dict.fromkeys(pieces) if piece not in words]
    kinds += [1] * (len(words) - len(kinds))
    scores = [-float(rng.randrange(40)) for _ in words]
    own = {"scores": np.array(scores, "f4"), "token_type": np.array(kinds, "i4")}
    return tokenizers.tokenizer_of_metadata(
        metadata("llama", words, unknown_token_id=0, bos_token_id=1, **own, **entries)
    )


def of_file(change: Callable[[Any], None]) -> Tokenizer:
    own = tiny.tokenizer()
    change(own)
    return Tokenizer(own)


def _normal(form: str) -> Callable[[Any], None]:
    def change(own: Any) -> None:
        own.normalizer = getattr(normalizers, form)()
        own.add_tokens([AddedToken("é", normalized=True), AddedToken("한국", normalized=False)])

    return change


def _split(*steps: Any) -> Callable[[Any], None]:
    def change(own: Any) -> None:
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        own.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])

    return change


def _expression(text: str) -> Any:
    return pre_tokenizers.Split(Regex(text), "isolated")


def metaspace(scheme: str) -> Tokenizer:
    """The pieces of SentencePiece as newer files have them, with a normal token that has spaces."""
    made = sentence_pieces(scheme)
    made.own.normalizer = None
    made.own.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split=False)
    made.own.add_tokens([AddedToken("don't  ", normalized=True)])
    return made


def short_tokens(scheme: str) -> Tokenizer:
    """Texts of one character that are tokens, between which spaces are put, and a hidden one."""
    made = metaspace(scheme)
    made.own.add_tokens([AddedToken("<", normalized=False), AddedToken("<s", normalized=False)])
    made.own.add_tokens([AddedToken("user", normalized=True, special=True)])
    return made


def unknown(fuses: bool) -> Tokenizer:
    """Pieces with a token for unknown characters."""
    own = Own(
        models.BPE({"?": 0, "a": 1, "aa": 2, "▁": 3}, [("a", "a")], unk_token="?", fuse_unk=fuses)
    )
    own.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    own.decoder = decoders.Sequence(steps)
    return Tokenizer(own)


DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {splits: name for name, splits in tokenizers._SPLITS.items()}
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    **{name: lambda name=name: byte_pairs(name) for name in [*SPLITS.values(), "gpt-2", "tekken"]},
    "a file": lambda: of_file(lambda own: None),
    **{f: lambda f=f: of_file(_normal(f)) for f in ("NFC", "NFD", "NFKC", "NFKD")},
    "digits": lambda: of_file(_split(pre_tokenizers.Digits(individual_digits=True))),
    "runs of digits": lambda: of_file(_split(pre_tokenizers.Digits(), _expression(DEEPSEEK))),
    "ranges": lambda: of_file(_split(_expression("[一-龥ぁ-ゟァ-ヿ]+"), _expression(r"\w+?\d"))),
    "others": lambda: of_file(
        _split(
            _expression(
                r"'(?i:[sdmt]|ll|ve|re)|l{2}|\d{1,3}?\.|o{0,2}r|4{2,}|(?=1).|[\p{L}&&[^e]]+"
            )
        )
    ),
    "pieces": lambda: sentence_pieces("a"),
    "pieces without a space before them": lambda: sentence_pieces("b", add_space_prefix=False),
    "pieces without bytes": lambda: sentence_pieces("c", has_bytes=False),
    **{f"spaces {s}": lambda s=s: metaspace(s) for s in ("always", "first", "never")},
    "short tokens": lambda: short_tokens("always"),
    "unknown": lambda: unknown(False),
    "unknown together": lambda: unknown(True),
}


def drawn_texts(seed: str) -> list[str]:
    rng = random.Random(seed)
    texts = ["", " ", "  a", "e<" * 20, "user" * 9, *PARTS, "".join(PARTS)]
    texts += ["".join(rng.choices(PARTS, k=rng.randrange(1, 12))) for _ in range(300)]
    return texts


# --- in C


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "chat_tokens.h").write_text(header_of("chat", {"CONTEXT": 64}), "utf-8")
    (folder / "main.c").write_text(DRIVER)
    run("cc", "-std=c99", *WARNINGS, *SANITIZERS, "main.c", "-o", "main", folder=folder)
    return folder / "main"


def sized(texts: list[bytes]) -> bytes:
    return b"".join(len(text).to_bytes(8, "little") + text for text in texts)


def in_c(driver: Path, tables: bytes, texts: list[bytes]) -> list[tuple[Any, bytes]]:
    """The tokens of texts, or statuses; and the texts of these tokens."""
    place = driver.with_name("chat.tokens")
    place.write_bytes(tables)
    found, at = run(driver, place, given=sized(texts)), 0
    results = []
    for _ in texts:
        count = int.from_bytes(found[at : at + 8], "little", signed=True)
        at += 8 + 4 * max(count, 0)
        tokens = np.frombuffer(found[at - 4 * max(count, 0) : at], "<i4").tolist()
        size = int.from_bytes(found[at : at + 8], "little")
        results.append((tokens if count >= 0 else count, found[at + 8 : at + 8 + size]))
        at += 8 + size
    assert at == len(found)
    return results


@cache
def made(name: str) -> Tokenizer:
    return TOKENIZERS[name]()


def check_in_c(tokenizer: Tokenizer, driver: Path, texts: list[str]) -> None:
    """Check that texts have the tokens that they have in Python, and these their text."""
    tables = tables_of(model_of(tokenizer), None)
    found = in_c(driver, tables, [text.encode() for text in texts])
    for text, (tokens, back) in zip(texts, found, strict=True):
        expected = tokenizer.encode(text, is_rendered=True)
        assert tokens == expected, text
        assert back.decode(errors="replace") == tokenizer.decode(expected), text


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler of C++")
def test_the_header_is_one_of_cpp(tmp_path: Path) -> None:
    (tmp_path / "chat_tokens.h").write_text(header_of("chat", {}), "utf-8")
    use = '#include "chat_tokens.h"\n#include "chat_tokens.h"\n'
    use += "auto used = &chat_tokens_encode; auto other = &chat_tokens_decode;\n"
    (tmp_path / "main.cpp").write_text(use)
    run("g++", "-std=c++17", *WARNINGS, "-c", "main.cpp", "-o", "main.o", folder=tmp_path)


@needs_cc
@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_in_c(name: str, driver: Path) -> None:
    check_in_c(made(name), driver, drawn_texts(name))


@needs_cc
def test_texts_that_are_not_utf8(driver: Path) -> None:
    tables = tables_of(model_of(byte_pairs("qwen2")), None)
    valid = ["", "a", "\u07ff", "\uffff", "\ud7ff", "\ue000", "\U0010ffff"]
    damaged = [text.encode()[:-1] for text in valid[2:]] + [b"\x80", b"a\xc3", b"\xc3a", b"\xff"]
    damaged += [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf"]
    damaged += [b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"]
    found = in_c(driver, tables, [*(text.encode() for text in valid), *damaged])
    assert [type(tokens) for tokens, _ in found] == [list] * len(valid) + [int] * len(damaged)
    assert {tokens for tokens, _ in found[len(valid) :]} == {-2}
    tables = tables_of(model_of(made("gpt-2")), Turns(("", "", "", "", ""), 0, 0, 0))
    driver.with_name("chat.tokens").write_bytes(tables)
    answers = [*damaged, b"".join(damaged), b" ".join(damaged)]
    given = sized([text for answer in answers for text in (answer, b"")])
    found = run(driver, driver.with_name("chat.tokens"), "turns", given=sized([b""]) + given)
    assert found.endswith("".join(answer.decode(errors="replace") for answer in answers).encode())


@needs_cc
@pytest.mark.parametrize("name", ["tekken", "NFKC", "pieces", "spaces first"])
@given(texts=st.lists(hard_texts.strings | hard_texts.hints, min_size=30, max_size=60))
@settings(max_examples=8, deadline=None, suppress_health_check=[*HealthCheck])
def test_hard_texts(name: str, driver: Path, texts: list[str]) -> None:
    check_in_c(made(name), driver, texts)


@needs_cc
@pytest.mark.parametrize("name", ["tekken", "NFC", "spaces always"])
def test_characters(name: str, driver: Path) -> None:
    """Between others, as what is around one decides to which piece it belongs."""
    characters = random.Random(name).sample(sampled(), 6000)
    rows = [characters[n : n + 500] for n in range(0, len(characters), 500)]
    check_in_c(made(name), driver, ["".join(f"a{c}1 {c}" for c in row) for row in rows])


@needs_cc
def test_many_marks_of_one_character(driver: Path) -> None:
    """They are put in order in a time in proportion to their number, not to its square."""
    start = perf_counter()
    check_in_c(made("NFC"), driver, ["e" + "\u0301\u0323" * 20000])
    assert perf_counter() - start < 10


@needs_cc
def test_many_tokens_that_begin_alike(driver: Path) -> None:
    """A text is searched for them in a time that hardly depends on their number."""
    own = byte_pairs("gpt-2").own
    own.add_tokens([AddedToken(f"<unused{n}>", normalized=False) for n in range(3000)])
    start = perf_counter()
    check_in_c(Tokenizer(own), driver, ["<unused2999>" + "<" * 50000 + "<unused1>"])
    assert perf_counter() - start < 10


@needs_cc
def test_damaged_tables(driver: Path, tmp_path: Path) -> None:
    tables = tables_of(model_of(byte_pairs("qwen2")), None)
    file = tmp_path / "chat.tokens"
    for content in (b"", tables[:3], tables[:-4], tables + bytes(4), bytes(4) + tables[4:]):
        file.write_bytes(content)
        assert subprocess.run([driver, file], input=b"", check=False).returncode == 2


@needs_node
@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_in_javascript(name: str, tmp_path: Path) -> None:
    own = made(name)
    script = page_of(model_of(own), "chat")[".chat.js"]
    (tmp_path / "chat.chat.js").write_text(script, "utf-8")
    (tmp_path / "chat.js").write_text("export const load = null;\n")
    texts = drawn_texts(name)
    found = talk(tmp_path, texts)
    for text, tokens, back in zip(texts, found["tokens"], found["written"], strict=True):
        expected = own.encode(text, is_rendered=True)
        assert tokens == expected, text
        assert back == own.decode(expected), text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "WordLevel"}, "of the kind WordLevel, expected BPE"),
        ({"normalizer": "Lowercase"}, "the normalizer Lowercase"),
        ({"decoder": "WordPiece"}, "the decoder WordPiece"),
        ({"pre": "Punctuation"}, "splits texts by .*Punctuation"),
        ({"regex": r"a++"}, r"splits texts by \+\+"),
        ({"regex": r"^a"}, r"splits texts by \^"),
        ({"regex": r"(?<=a)b"}, r"splits texts by \(\?<= in"),
        ({"regex": r"(?>a)b"}, r"splits texts by \(\?> in"),
        ({"regex": r"(?x: a)b"}, r"splits texts by \(\?x: in"),
        ({"regex": r"a\b"}, r"splits texts by \\b in"),
        ({"regex": r"(a)\1"}, r"splits texts by \\1 in"),
        ({"regex": r"(?=ab)a"}, r"splits texts by \(\?= with more than one character"),
        ({"regex": r"a|b*"}, "splits texts by what may be empty"),
        ({"regex": r"(a?)+b"}, r"splits texts by \+ in"),
        ({"regex": r"((a{999}){999}){9}"}, "splits texts by what is repeated too often"),
        ({"regex": r"(?i:cross)"}, r"splits texts by \(\?i:ss\)"),
        ({"regex": r"(?i:ß)"}, r"splits texts by \(\?i:ß\)"),
        ({"regex": r"(?i:[ä])"}, r"splits texts by \[ä\]"),
        ({"regex": r"a{1,3}+"}, r"splits texts by \{1,3\}\+"),
        ({"template": "{% for m in messages %}{{ m.content | upper }}{% endfor %}"}, "template"),
        ({"template": parts.TEMPLATES["json"] + "{{ messages | length }}"}, "template"),
        (
            {"template": TEMPLATES["qwen 2"].replace("content", "content | replace('\n', '')")},
            "its chat template changes messages",
        ),
    ],
)
def test_other_tokenizers_and_templates_are_refused(change: dict[str, str], message: str) -> None:
    from tokenizers import Regex, Tokenizer as Own, decoders, models, normalizers, pre_tokenizers

    own = tiny.tokenizer()
    [(what, how)] = change.items()
    if what == "model":
        own = Own(models.WordLevel({"a": 0}, unk_token="a"))
    elif what == "normalizer":
        own.normalizer = getattr(normalizers, how)()
    elif what == "decoder":
        own.decoder = getattr(decoders, how)()
    elif what == "pre":
        own.pre_tokenizer = getattr(pre_tokenizers, how)()
    elif what == "regex":
        own.pre_tokenizer = pre_tokenizers.Split(Regex(how), "isolated")
    template = how if what == "template" else None
    with pytest.raises(ModelError, match=f"the tokenizer has no form without Python: .*{message}"):
        page_of(model_of(Tokenizer(own), template), "chat")


@pytest.mark.parametrize(
    ("name", "sides", "next_turn"),
    [
        ("llama 2", 3, " </s><s>[INST] "),
        ("mistral", 0, "</s>[INST] "),
        ("gemma", 3, "<end_of_turn>\n<start_of_turn>user\n"),
        ("qwen 2", 0, "<|im_end|>\n<|im_start|>user\n"),
        ("phi 3", 0, "<|end|>\n<|user|>\n"),
    ],
)
def test_turns_of_chat_templates(name: str, sides: int, next_turn: str) -> None:
    template = ChatTemplate(TEMPLATES[name], {"bos_token": "<s>", "eos_token": "</s>"})
    found = turns_of(SimpleNamespace(template_text="", template=template))
    assert found is not None
    first, following, last, before, _ = found.texts
    assert (found.question, following) == (sides, next_turn)
    message = " hello\n"
    shown = message.strip() if sides else message
    roles = ("user", "assistant", "user")
    messages = [
        {"role": role, "content": text}
        for role, text in zip(roles, (message, "hm", "x"), strict=True)
    ]
    assert template.render(messages) == f"{first}{shown}{before}hm{following}x{last}"


#: Templates that keep and take off spaces, and those that drop thoughts, also if they begin them.
CHATS = ["llama 2", "llama 3", "qwen 2", "qwen 3", "gemma", "deepseek"]
QUESTIONS = [" What?\n", "and  then ", "\u3000\x1c\ufeffSo\x85\u2003", "Oh"]
ANSWERS = [" a \nb ", "<think>\nHm\n</think>\n\n\n It is ", "\nc</think>d</think>\u00e9\t", "e"]


def prompts_of(model: Any) -> list[str]:
    """What a model reads before each answer."""
    messages: list[dict[str, str]] = []
    found = []
    for question, answer in zip(QUESTIONS, ANSWERS, strict=True):
        messages.append({"role": "user", "content": question})
        found.append(model.template.render(messages))
        messages.append({"role": "assistant", "content": answer})
    return found


@needs_cc
@pytest.mark.parametrize("name", CHATS)
def test_conversations_in_c_are_those_of_templates(name: str, driver: Path) -> None:
    model = model_of(made("gpt-2"), TEMPLATES[name])
    place = driver.with_name("chat.tokens")
    place.write_bytes(tables_of(model, turns_of(model)))
    texts = [text.encode() for both in zip(QUESTIONS, ANSWERS, strict=True) for text in both]
    found = run(driver, place, "turns", given=sized(texts))
    assert found == sized([text.encode() for text in prompts_of(model)])


#: A model that answers as it is told, and writes the tokens that it gets before each answer.
TOLD = """\
import { writeFileSync } from "node:fs";
const answers = ANSWERS, prompts = [];
let tokens = [], left = [], from = 0;
const logits = new Float32Array(WORDS);
const step = {
  inputs: {
    keys: { shape: [1, 1, 9999, 1] },
    ids: { set: (ids) => { tokens = [...tokens.slice(0, from), ...ids]; } },
  },
  outputs: { logits },
  resize: ({ position }) => { from = position; },
  runInPlace: () => {
    if (left.length === 0) {
      prompts.push(tokens);
      writeFileSync(FILE, JSON.stringify(prompts));
      left = [...answers[(prompts.length - 1) % answers.length]];
    }
    logits.fill(0)[left.shift()] = 1;
  },
};
export const load = async () => ({ functions: { prefill: step, decode: step } });
"""


@needs_node
@pytest.mark.parametrize("name", CHATS)
def test_later_questions_come_after_what_the_template_shows(name: str, tmp_path: Path) -> None:
    """Spaces around messages stay if the template leaves them, and thoughts go if it drops them."""
    model = model_of(made("gpt-2"), TEMPLATES[name])
    (tmp_path / "chat.chat.js").write_text(page_of(model, "chat")[".chat.js"], "utf-8")
    told = [[*model.tokenizer.encode(a, is_rendered=True), *model.ends] for a in ANSWERS]
    values = {"ANSWERS": told, "WORDS": 2000, "FILE": str(tmp_path / "prompts.json")}
    text = TOLD
    for key, value in values.items():
        text = text.replace(key, json.dumps(value))
    (tmp_path / "chat.js").write_text(text)
    assert talk(tmp_path, [], QUESTIONS, most=100)["answers"][: len(ANSWERS)] == ANSWERS
    prompts = json.loads((tmp_path / "prompts.json").read_text())
    for rendered, prompt in zip(prompts_of(model), prompts, strict=False):
        assert prompt == model.tokenizer.encode(rendered, is_rendered=True)
