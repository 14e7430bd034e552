"""Answers of a form: every text that may be drawn has it, and others are as without forms."""

import json
import re
import subprocess
import sys
import time
from itertools import product
from typing import Any

import numpy as np
import pytest

from relaxpy.llm import ModelError
from relaxpy.plugins.llm.config import ParameterError
from relaxpy.plugins.llm.gbnf import lark_of_gbnf
from relaxpy.plugins.llm.structured import Forms
from relaxpy.plugins.llm.tokens import Tokenizer
from tests.plugins.llm import tiny

llguidance = pytest.importorskip("llguidance")
ENDS = (1, 3)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"anyOf": [{"const": "x"}, {"type": "boolean"}]}},
}
PARENTHESES = 'root ::= "(" root ")" root | ""'
CALCULATION = r"""
# sums of numbers, in parentheses
root  ::= term ( ("+" | "-") term )*
term  ::= digits | "(" root ")"
digits ::= [1-9] [0-9]{0,2}   # at most three
"""


@pytest.fixture(scope="module")
def forms() -> Forms:
    return Forms(Tokenizer(tiny.tokenizer()), 300, ENDS)


def drawn(forms: Forms, seed: int, most: int = 400, **given: Any) -> str | None:
    """A text of random tokens that a form allows; None if it is not whole after so many."""
    follower, rng, tokens = forms.form(given).begin(), np.random.default_rng(seed), []
    while len(tokens) < most:
        allowed = np.flatnonzero(follower.allowed())
        ends = [token for token in allowed if token in ENDS]
        token = int(rng.choice(ends if ends and rng.random() < 0.5 else allowed))
        if token in ENDS:
            return forms._tokenizer.decode(tokens)
        tokens.append(token)
        follower.add(token)
        if follower.is_whole:
            return forms._tokenizer.decode(tokens)
    return None


def is_balanced(text: str) -> bool:
    while "()" in text:
        text = text.replace("()", "")
    return not text


def test_every_answer_is_of_its_schema(forms: Forms) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    texts = [drawn(forms, seed, schema=PERSON) for seed in range(20)]
    assert None not in texts
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)
    assert len(set(texts)) > 15
    anything = {json.loads(text)["kind"] for text in texts}
    assert anything == {"cat", "dog", None}


@pytest.mark.parametrize(
    ("given", "is_right"),
    [
        (
            {"regex": r"[A-Z]\d{2,4}(-\d+)?"},
            lambda t: re.fullmatch(r"[A-Z][0-9]{2,4}(-[0-9]+)?", t),
        ),
        ({"regex": r"^(yes|no)\.$"}, lambda t: t in ("yes.", "no.")),
        ({"regex": r"\\\$"}, lambda t: t == r"\$"),
        ({"choice": ["yes", "no", 'say "é"\n']}, lambda t: t in ("yes", "no", 'say "é"\n')),
        ({"grammar": PARENTHESES}, is_balanced),
        ({"grammar": CALCULATION}, lambda t: isinstance(eval(t), int)),
        ({"schema": True and {"type": "boolean"}}, lambda t: t in ("true", "false")),
        (
            {"schema": {"type": "string", "format": "path", "pattern": "^[ab]$"}},
            lambda t: t in ('"a"', '"b"'),
        ),
        (
            {"schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}},
            lambda t: 0 < float(t) <= 0.5,
        ),
        (
            {"schema": {"type": "number", "minimum": -1.5, "exclusiveMaximum": -1}},
            lambda t: -1.5 <= float(t) < -1,
        ),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_every_answer_is_of_its_form(forms: Forms, given: Any, is_right: Any) -> None:
    texts = {drawn(forms, seed, **given) for seed in range(30)} - {None}
    assert len(texts) > 1 or given == {"regex": r"\\\$"}
    for text in texts:
        assert is_right(text), text


@pytest.mark.parametrize(
    ("grammar", "expression"),
    [
        ('root ::= "a" [bc]* "c"', "a[bc]*c"),  # what a greedy lexer would not find
        ('root ::= a+ | ""\na ::= "a" b?\nb ::= [^ac]', "(ab?)*"),
        ('root ::= (\n "a" |\n "b" # or\n){1,2} .', "[ab]{1,2}[abc]"),
        ('root ::= x x\nx ::= "a"{2} | "b"{0,1}', "(aa|b?){2}"),
        (r'root ::= "\x61\u0062" | "\U00000063"', "ab|c"),
        ("root ::= [a-b]{2,}\r\n\n", "[ab]{2,}"),
        ('root ::= [\\-a-] | "b" root', "b*[a-]"),
        ('root ::= "a" root "b" | "c"', "c|acb|aacbb"),
        ("root ::= ((a)*)*\na ::= [a]", "a*"),
        ('root ::= a "c" | "b" root\na ::= "c"*', "b*c+"),  # neighbours that are an alternative
        ('root ::= | "a" ( | "b")', "|ab?"),
    ],
)
def test_grammars_of_llama_cpp_accept_what_they_say(grammar: str, expression: str) -> None:
    """All texts of three letters, in tokens of one byte, beside Python's expressions."""
    own = tiny.tokenizer()
    tokens = llguidance.LLTokenizer(own.to_str(), eos_token=[1])
    made = llguidance.LLMatcher(
        tokens, llguidance.LLMatcher.grammar_from_lark(lark_of_gbnf(grammar)), log_level=0
    )
    assert not made.is_error(), made.get_error()
    for length in range(6):
        for letters in product("abc-" if "-" in grammar else "abc", repeat=length):
            text, matcher = "".join(letters), made.deep_copy()
            ids = [own.token_to_id(letter) for letter in letters]
            accepts = matcher.validate_tokens(ids) == len(ids)
            accepts = accepts and (not ids or matcher.consume_tokens(ids))
            accepts = bool(accepts and matcher.is_accepting())
            assert accepts == bool(re.fullmatch(expression, text)), text


def test_names_of_properties_are_written_as_they_are(forms: Forms) -> None:
    """Otherwise `\\u0061` would be another property than `a`."""
    matcher = forms.form({"schema": {"properties": {"a": {"type": "null"}}}}).begin()._matcher
    for text, known in (('{"b": 1}', 8), ('{"a": 1}', 6), ('{"\\u0061": 1}', 3)):
        ids = [forms._tokenizer.own.token_to_id("Ġ" if c == " " else c) for c in text]
        assert matcher.validate_tokens(ids) == known


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"schema": {"properties": {"a": {"items": {"type": "strin"}}}}},
            "schema cannot be followed at #/properties/a/items: Invalid type: strin",
        ),
        (
            {"schema": {"type": "string", "format": "iri"}},
            "schema cannot be followed at #: Unknown format: iri",
        ),
        (
            {
                "schema": {
                    "$defs": {
                        "x": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "("}]}
                    },
                    "properties": {"q": {"$ref": "#/$defs/x"}},
                }
            },
            r"at #/\$defs/x/anyOf/1: regex parse error",
        ),
        ({"schema": {"properties": {"a": {"not": {}}}}}, 'at #/properties/a: .*"not"'),
        ({"schema": {"$ref": "#"}}, "no text fits it"),
        ({"schema": {"$ref": "http://localhost/x"}}, "cannot be followed"),
        ({"schema": [1]}, "schema cannot be .* expected a JSON schema, which is an object"),
        ({"schema": '{"type": '}, "schema is not one of JSON: Expecting value: line 1 column 10"),
        ({"schema": {"enum": [{1, 2}]}}, "schema is not one of JSON"),
        ({"schema": {"const": "\ud800"}}, "cannot be followed"),
        ({"schema": {"const": {"minimum": [10**400]}}}, "at #/const/minimum/0: expected numbers"),
        ({"schema": {"properties": {"a/~": {"minimum": -(2**63)}}}}, "at #/properties/a~1~0/mini"),
        ({"schema": {"type": "integer", "enum": [-1e20]}}, "at #/enum/0: expected numbers from"),
        ({"schema": {"x-guidance": []}}, r"at #/x-guidance: expected an object, found \[\]"),
        ({"regex": "a(b"}, r"(?s)regex cannot be followed: regex parse error:\n    a\(b\n     \^"),
        ({"regex": "\ud800"}, "regex has half of a character"),
        ({"regex": 3}, "regex cannot be 3"),
        ({"choice": []}, "choice cannot be"),
        ({"choice": ["a", ""]}, "choice cannot be"),
        ({"grammar": 'root ::= "a" b'}, "grammar: line 1, column 14: there is no rule 'b'"),
        ({"grammar": 'x ::= "a"\n\ny ::= )'}, r"grammar: line 3, column 7: unexpected '\)'"),
        ({"grammar": 'x ::= "a"'}, "there is no rule 'root'"),
        ({"grammar": 'root ::= "a"\nroot ::= "b"'}, "line 2, column 1: there are two rules"),
        ({"grammar": "root ::= [b-a]"}, "line 1, column 10: the range from 'b' to 'a'"),
        ({"grammar": r'root ::= "\q"'}, r"line 1, column 11: unknown escape"),
        ({"grammar": r'root ::= "\uD800"'}, "column 11: .* is not a character"),
        ({"grammar": 'root ::= ("a"\n'}, "column 10: this group has no end"),
        ({"grammar": 'root ::= "a"**'}, r"column 14: unexpected '\*'"),
        ({"grammar": "root = a"}, "column 6: unexpected '= a'"),
        ({"grammar": "root ::= root"}, "no text fits it"),
        ({"regex": "a", "choice": ["b"]}, "an answer has one form, found regex and choice"),
        ({"choice": ["b"] * 30000}, "choice has more than 65536 characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_forms_that_make_no_sense(forms: Forms, given: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        forms.form(given)
    assert caught.value.param in given


HOSTILE = """
import json, sys
from relaxpy.plugins.llm.structured import Forms
from relaxpy.plugins.llm.tokens import Tokenizer
from tests.plugins.llm import tiny

def chain(n, link):
    defs = {str(k): json.loads(link % ("#/$defs/%d" % (k + 1))) for k in range(n)}
    return {"$ref": "#/$defs/0", "$defs": {**defs, str(n): {"type": "string"}}}

def rules(n, body):
    lines = [f"r{k} ::= {body.format(k + 1)}" for k in range(n)]
    return "\\n".join(["root ::= r0", *lines, f'r{n} ::= "x"'])

def ways(n, way):
    return {"anyOf": [way(k) for k in range(n)]}

forms = Forms(Tokenizer(tiny.tokenizer()), 300, (1, 3))
for given in eval(sys.argv[1]):
    try:
        follower = forms.form(given).begin()
        for _ in range(5):
            follower.add(int(follower.allowed().nonzero()[0][-1]))
        print("followed")
    except Exception as error:
        print(type(error).__name__, str(error)[:90].replace(chr(10), " "))
"""
CASES = [
    """{"schema": chain(240, '{"properties": {"a": {"$ref": "%s"}}}')}""",
    """{"schema": chain(240, '{"items": {"items": {"items": {"items": {"$ref": "%s"}}}}}')}""",
    """{"schema": chain(300, '{"anyOf": [{"$ref": "%s"}]}')}""",
    """{"schema": ways(240, lambda k: {"items": {"$ref": "#"}, "minItems": k})}""",
    """{"schema": json.loads('{"items":' * 900 + "{}" + "}" * 900)}""",
    """{"schema": {"allOf": [ways(2, lambda k: {"required": [f"{j}{k}"]}) for j in range(30)]}}""",
    """{"schema": {"enum": ["x" * 20 + str(k) for k in range(9000)]}}""",
    """{"regex": "((a{1000}){1000}){1000}"}""",
    """{"regex": "((((a{50}){50}){50}){50}){50}"}""",
    """{"choice": ["x" * 60000]}""",
    """{"schema": {"allOf": [{"type": "integer", "multipleOf": k} for k in (9973, 9967, 9949)]}}""",
    """{"schema": ways(99, lambda k: {"type": "number", "multipleOf": 99.99, "minimum": k})}""",
    """{"regex": "(a|b)*a(a|b){999}(.{999}c.{999}){9}"}""",
    """{"regex": "(" * 30000}""",
    """{"grammar": "root ::= " + "(" * 30000}""",
    """{"grammar": 'root ::= "a"' + "*" * 30000}""",
    """{"grammar": rules(4000, "r{}")}""",
    """{"grammar": rules(2500, "r{0} r{0}")}""",
    """{"grammar": rules(99, "r{0} r{0}")}""",
    """{"grammar": rules(3000, '"x" root r{}')}""",
    """{"grammar": "root ::= a a a a a\\na ::= root root | "}""",
    """{"grammar": "root ::= " + " | ".join(['"x" root "y"'] * 2500)}""",
    """{"grammar": "root ::= " + '"x" root ' * 240 + "|"}""",
]


def test_hostile_forms_take_little() -> None:
    """All in one process, which none of them may end, and whose CPU time is measured."""
    resource = pytest.importorskip("resource")
    begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    program = [sys.executable, "-c", HOSTILE, f"[{', '.join(CASES)}]"]
    found = subprocess.run(program, capture_output=True, text=True, timeout=200, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    lines = found.stdout.splitlines()
    assert len(lines) == len(CASES)
    assert all(line == "followed" or line.startswith("ParameterError") for line in lines), lines
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin < 12


def test_an_answer_takes_little_time_to_follow_its_form(
    forms: Forms, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, clock = forms.form({"regex": "a+"}).begin(), iter(range(0, 999, 4))
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    follower.allowed()
    follower.allowed()
    with pytest.raises(ParameterError, match="cannot be followed: it is too complex"):
        follower.allowed()


def test_panics_of_the_package_are_errors(forms: Forms, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    class Broken:
        def compute_bitmask(self) -> bytes:
            raise PanicException("index out of bounds")

    follower = forms.form({"regex": "a+"}).begin()
    monkeypatch.setattr(follower, "_matcher", Broken())
    with pytest.raises(ModelError, match="cannot be followed: index out of bounds"):
        follower.allowed()


def test_compiled_forms_are_kept_and_their_number_is_bounded(forms: Forms) -> None:
    first = forms.form({"regex": "a+"})
    assert forms.form({"regex": "a+"}) is first
    for k in range(40):
        forms.form({"regex": f"a{{{k + 1}}}"})
    assert len(forms._kept) == 16
    assert forms.form({"regex": "a+"}) is not first


# --- of a model


def test_the_best_allowed_token_is_chosen(lm: Any) -> None:
    tokens, given = lm.tokens("the cat"), {"schema": PERSON}
    wanted, follower = [], lm.forms.form(given).begin()
    while not follower.is_whole:
        scores = lm.logits([*tokens, *wanted])[-1]
        allowed = np.flatnonzero(follower.allowed())
        wanted.append(int(allowed[scores[allowed].argmax()]))
        follower.add(wanted[-1])
    assert lm.generate("the cat", max_tokens=200, **given) == lm.tokenizer.decode(wanted)


def test_forms_share_a_batch_with_texts_without_one(lm: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    options: list[dict[str, Any]] = [
        {"schema": PERSON, "temperature": 2.0, "seed": 1, "max_tokens": 120},
        {"max_tokens": 20},
        {"regex": "[a-z]{5}", "repetition_penalty": 1.3},
        {"choice": ["yes", "no"], "logit_bias": {30: 100.0}},
        {
            "schema": PERSON,
            "top_k": 3,
            "top_p": 0.9,
            "temperature": 1,
            "seed": 2,
            "max_tokens": 120,
        },
    ]
    alone = [lm.generate("the cat sat", **own) for own in options]
    started = [lm.start(lm.tokens("the cat sat"), **own) for own in options]
    while not all(one.request.done for one in started):
        lm.step()
    assert [one.take() for one in started] == alone
    assert [one.reason for one in started] == ["stop", "length", "stop", "stop", "stop"]
    for text in (alone[0], alone[4]):
        jsonschema.validate(json.loads(text), PERSON)


def test_a_form_ends_at_the_last_token_or_is_cut_off(lm: Any) -> None:
    for most, reason, text in ((3, "stop", "aaa"), (2, "length", "aa")):
        one = lm.start(lm.tokens("a"), regex="aaa", max_tokens=most)
        while not one.request.done:
            lm.step()
        assert (one.take(), one.reason) == (text, reason)
    assert lm.generate("a", regex="ab+c", stop="bb", logit_bias={69: 50}) == "a"


def test_models_of_pydantic_are_schemas(lm: Any) -> None:
    pydantic = pytest.importorskip("pydantic")
    age, closed = (int, pydantic.Field(ge=0, lt=10)), pydantic.ConfigDict(extra="forbid")
    person = pydantic.create_model("Person", age=age, is_cat=(bool, ...), __config__=closed)
    text = lm.generate("the cat", schema=person, temperature=1, seed=0)
    assert 0 <= person.model_validate_json(text).age < 10


def test_scores_that_are_impossible_are_errors(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = type(lm.decoder).run

    def none_of_them(*args: Any) -> Any:
        return np.where(np.arange(lm.decoder.config.vocabulary) < 4, 0.0, -np.inf) + 0 * run(*args)

    monkeypatch.setattr(type(lm.decoder), "run", none_of_them)
    for options in ({}, {"temperature": 1, "seed": 0}, {"presence_penalty": 1}):
        with pytest.raises(ModelError, match="no token can be chosen: the best score is -inf"):
            lm.generate("a", regex="[a-z]+", **options)


def test_the_missing_package_is_named(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(lm.__dict__, "forms", raising=False)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ModelError, match="need the package llguidance") as caught:
        lm.generate("a", regex="a")
    assert "relaxpy[structured]" in str(caught.value.diagnostics[0].hint)
