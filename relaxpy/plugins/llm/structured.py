"""Answers of a form that the user asks for: which tokens may come next, by a grammar.

The package llguidance follows the grammar. It is written in Rust and recurses into schemas, so that
these are bounded, and compiled in a thread whose stack has room for all of them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import numpy as np

from relaxpy.plugins.llm.answer_parts import Thoughts
from relaxpy.plugins.llm.config import ModelError, ParameterError
from relaxpy.plugins.llm.gbnf import lark_of_gbnf
from relaxpy.plugins.llm.json_schema import SHARED, TABLES, followable
from relaxpy.plugins.llm.tokens import Tokenizer, failures_as_errors
from relaxpy.support.dataclass import dataclass

_T = TypeVar("_T")
FORMS: Final[tuple[str, ...]] = ("schema", "grammar", "regex", "choice")
"""The options that ask for a form: a JSON schema, a grammar of llama.cpp, an expression, texts."""
_LONGEST: Final = 64 * 1024
"""The most characters of a form."""
_MOST_REFERENCES: Final = 250
"""The references in a form: a token takes the cube of those that are alternatives of each other."""
_MOST_SECONDS: Final = 10.0
"""The CPU time that an answer may take to follow its form; 10,000 tokens take one or two."""
_KEPT: Final = 16
"""The compiled grammars that are kept."""
_STACK: Final = 512 * 1024 * 1024
"""The bytes of address space for the stack; the worst schema of that length uses 110 MB."""
_MOST_TRIALS: Final = 200
"""The compilations by which the place of an error in a schema is found."""
_UNFORCED: Final = '%llguidance {"no_forcing": true}'
"""The text that has to come is not computed, which may be endless, before each token."""
_LIMITS: Final = {
    "initial_lexer_fuel": 300_000,  # some 1 s
    "max_lexer_states": 20_000,  # 40 MB at most
    "max_items_in_row": 10_000,
    "max_grammar_size": 100_000,
    "verbose_errors": False,
}


def require_llguidance() -> Any:
    """The package. Errors: ModelError if it is not installed."""
    try:
        import llguidance
    except ModuleNotFoundError:
        raise ModelError(
            "answers of a form need the package llguidance",
            hint="python -m pip install 'relaxpy[structured]'",
        ) from None
    return llguidance


@dataclass(frozen=True)
class Form:
    """A grammar that is compiled for the tokens of a model; each answer follows it by `begin`."""

    prototype: Any
    words: int
    """The number of tokens that the model has scores for."""

    def begin(self) -> Follower:
        """The state of an answer that has no tokens yet."""
        return Follower(self.prototype.deep_copy(), self.words)


class Follower:
    """The state of an answer that follows a grammar."""

    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher, self._words, self._left = matcher, words, _MOST_SECONDS

    def allowed(self) -> Any:
        """For each token whether it may come next, booleans; ends may where the answer is whole.

        Errors:
            ParameterError: none may, or finding them takes too much time or memory.
        """
        begin = time.thread_time()
        with failures_as_errors("the form of the answer cannot be followed"):
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._left -= time.thread_time() - begin
        found = np.unpackbits(bits, count=self._words, bitorder="little").view(bool)
        if self._matcher.is_error() or not found.any() or self._left < 0:
            error = self._matcher.get_error()
            is_large = self._left < 0 or any(w in error for w in ("limit", "max is", "too big"))
            why = "it is too complex" if is_large else "no text fits it"
            raise ParameterError(
                f"the form of the answer cannot be followed: {why}", param="grammar"
            )
        return found

    def add(self, token: int) -> None:
        """Go on after a token that was allowed."""
        with failures_as_errors("the form of the answer cannot be followed"):
            self._matcher.consume_token(token)

    @property
    def is_whole(self) -> bool:
        """True if nothing more may come."""
        return bool(self._matcher.is_stopped() and not self._matcher.is_error())


class Forms:
    """The grammars that are compiled for a model, the last ones of which are kept."""

    def __init__(self, tokenizer: Tokenizer, words: int, ends: Collection[int]) -> None:
        """`words` is the number of the model's tokens, and `ends` are those that end texts.

        Errors:
            ModelError: llguidance is not installed, or does not read the tokenizer.
        """
        self._package, self.words = require_llguidance(), words
        ends = sorted(token for token in ends if token < words)
        if not ends:
            raise ModelError(
                "the model has no token that ends a text, which answers of a form need"
            )
        count = max(words, tokenizer.own.get_vocab_size())
        try:
            self._tokens = self._package.LLTokenizer(
                tokenizer.own.to_str(), n_vocab=count, eos_token=ends
            )
        except ValueError as error:
            raise ModelError(f"answers of this model cannot have a form: {error}") from None
        self._tokenizer = tokenizer
        self._limits = self._package.LLParserLimits(**_LIMITS)
        self._kept: OrderedDict[str, Form] = OrderedDict()
        self._turn = threading.Lock()

    def form(
        self,
        given: Mapping[str, Any],
        thoughts: Thoughts | None = None,
        calls: Callable[[Callable[[str], str]], str] | None = None,
    ) -> Form:
        """The form that one of the options `FORMS`, or calls of tools, or either of them have.

        Thoughts may come before the answer. `calls` writes the rules of a grammar, one of which is
        that of `calls`, with the texts that a function writes in them.

        Errors:
            ParameterError: the value of the option is not such, too large or too complex, or no
                text is of the form.
        """
        if len(given) > 1:
            raise ParameterError(
                f"an answer has one form, found {' and '.join(given)}", param=[*given][1]
            )
        name, own = "tools", []
        for name, value in given.items():
            try:
                own = [{"name": "answer", **_GRAMMARS[name](value)}]
            except UnicodeEncodeError:  # the package takes no surrogates
                raise ParameterError(f"{name} has half of a character", param=name) from None
        ways = [*(["calls"] if calls is not None else []), *(["@answer"] if own else [])]
        before = "" if thoughts is None else "thoughts " if thoughts.is_open else "thoughts? "
        rules = [_UNFORCED, f"start: {before}({' | '.join(ways)})"]
        rules += [] if thoughts is None else [self._rule_of(thoughts)]
        rules += [] if calls is None else [calls(self._literal)]
        own.insert(0, {"lark_grammar": "\n".join(rules)})
        return self._compiled(name, json.dumps({"grammars": own}))

    def _literal(self, text: str) -> str:
        """A text in a rule of a grammar, which may be a token that stands for itself."""
        token = self._tokenizer.own.token_to_id(text)
        if token is not None and token < self.words and self._tokens.is_special_token(token):
            return f"<[{token}]>"
        return json.dumps(text)

    def _rule_of(self, thoughts: Thoughts) -> str:
        """The rule of a grammar for what is thought, and the ends of lines after it."""
        begin = "" if thoughts.is_open else f"{self._literal(thoughts.begin)} "
        end = self._literal(thoughts.end)
        if end.startswith("<"):
            return f"thoughts: {begin}/(?s:.*)/ {end} /\\n{{0,2}}/"
        return f"thoughts: {begin}thought /\\n{{0,2}}/\nthought[suffix={end}]: /(?s:.*)/"

    def _compiled(self, name: str, grammar: str) -> Form:
        if len(grammar) > 2 * _LONGEST:  # which is written with escapes
            raise ParameterError(f"{name} has more than {_LONGEST} characters", param=name)
        if grammar.count("$ref") > _MOST_REFERENCES:
            raise ParameterError(f"{name} has more than {_MOST_REFERENCES} references", param=name)
        with self._turn:
            found = self._kept.pop(grammar, None) or _with_stack(lambda: self._new(name, grammar))
            self._kept[grammar] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return found

    def _new(self, name: str, grammar: str) -> Form:
        with failures_as_errors(f"{name} cannot be followed"):
            matcher = self._package.LLMatcher(
                self._tokens, grammar, log_level=0, limits=self._limits
            )
        if matcher.is_error():
            message = _short(matcher.get_error())
            schema = json.loads(grammar)["grammars"][-1].get("json_schema")
            is_cheap = schema is not None and "too big" not in message
            place = f" at {self._place(schema, message)}" if is_cheap else ""
            raise ParameterError(f"{name} cannot be followed{place}: {message}", param=name)
        form = Form(matcher, self.words)
        try:
            form.begin().allowed()
        except ParameterError as error:
            raise ParameterError(str(error), param=name) from None
        return form

    def _place(self, schema: Mapping[str, Any], message: str) -> str:
        """Where the smallest schema within a schema is that has the same error, as a pointer."""
        shared = {name: schema[name] for name in SHARED if name in schema}
        path, node, left = "#", schema, _MOST_TRIALS
        while True:
            for step, child in _schemas_in(node):
                left -= 1
                if left < 0:
                    return path
                trial = json.dumps({"grammars": [{"json_schema": {**shared, **child}}]})
                if message == _short(
                    self._package.LLMatcher.validate_grammar(trial, limits=self._limits)
                ):
                    path, node = f"{path}/{step}", child
                    break
            else:
                return path


def _schemas_in(node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schemas within a schema with their pointers; those that others refer to come first."""
    for name in sorted(node, key=lambda name: name not in SHARED):
        value = node[name]
        if isinstance(value, Mapping) and name not in TABLES:
            yield name, value
        elif isinstance(value, (Mapping, list)):
            steps = value.items() if isinstance(value, Mapping) else enumerate(value)
            for step, child in steps:
                if isinstance(child, Mapping):
                    yield f"{name}/{step}", child


def _with_stack(function: Callable[[], _T]) -> _T:
    """The result of a function that may recurse deeply in Rust."""
    before = threading.stack_size(_STACK)
    with ThreadPoolExecutor(1, "relaxpy grammar") as thread:
        try:
            result = thread.submit(function)
        except RuntimeError as error:
            message = f"there is no room for a stack of {_STACK >> 20} MB: {error}"
            raise ModelError(message) from None
        finally:
            threading.stack_size(before)
        return result.result()


def _short(message: str) -> str:
    """A message of the package without what tells where it was in other texts."""
    message = message[max(0, message.find("regex parse error:")) :]
    return re.split(r"\n +\d+ \| |\n *while processing ", message)[0].strip()[:1000]


def _of_schema(schema: Any) -> dict[str, Any]:
    if hasattr(schema, "model_json_schema"):  # a model of pydantic
        schema = schema.model_json_schema()
    try:
        if isinstance(schema, str) and len(schema) <= _LONGEST:
            schema = json.loads(schema)
        if isinstance(schema, Mapping):
            own = json.loads(json.dumps(schema))  # of this moment, and of JSON
            return {"json_schema": followable({"": own})[""]}
    except ParameterError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(f"schema is not one of JSON: {error}", param="schema") from None
    expected = "a JSON schema, which is an object, or a model of pydantic"
    raise ParameterError.of("schema", schema, expected)


def _of_grammar(grammar: Any) -> dict[str, Any]:
    if not isinstance(grammar, str) or len(grammar) > _LONGEST:
        raise ParameterError.of("grammar", grammar, f"at most {_LONGEST} characters of GBNF")
    return {"lark_grammar": lark_of_gbnf(grammar)}


def _of_regex(regex: Any) -> dict[str, Any]:
    if not isinstance(regex, str) or len(regex) > _LONGEST:
        raise ParameterError.of("regex", regex, f"an expression of at most {_LONGEST} characters")
    # All of an answer matches, so that anchors at its ends change nothing.
    regex = re.sub(r"(?<!\\)((?:\\\\)*)\$$", r"\1", regex.removeprefix("^"))
    return {"lark_grammar": f"start: /{require_llguidance().regex_to_lark(regex, 'd')}/"}


def _of_choice(choice: Any) -> dict[str, Any]:
    is_right = isinstance(choice, (list, tuple)) and choice
    if not is_right or not all(isinstance(text, str) and text for text in choice):
        raise ParameterError.of("choice", choice, "a list of at least one text")
    return {"lark_grammar": f"start: {' | '.join(map(json.dumps, choice))}"}


_GRAMMARS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "schema": _of_schema,
    "grammar": _of_grammar,
    "regex": _of_regex,
    "choice": _of_choice,
}
