"""A language model that one talks to: texts and messages in, texts out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from importlib.util import find_spec
from operator import index
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from typing_extensions import override

from relaxpy.errors import unexpected
from relaxpy.ir.core.target import Target, target_facts, target_name
from relaxpy.plugins.llm.adapters import Adapter, AdapterSet, adapters_memory, read_adapter
from relaxpy.plugins.llm.compiled import CompiledDecoder, decoder_of, memory_of
from relaxpy.plugins.llm.config import (
    ContextError,
    ModelError,
    ParameterError,
    integer_of,
    is_integer,
    shown,
)
from relaxpy.plugins.llm.continuation import Continuation, stop_texts
from relaxpy.plugins.llm.drafts import MOST_LOOKED_UP, Draft, draft_of
from relaxpy.plugins.llm.engine import Engine, Request, logprobs_of
from relaxpy.plugins.llm.exported_page import page_of
from relaxpy.plugins.llm.exported_tokens import tokenizer_files
from relaxpy.plugins.llm.files import ModelFiles, ends_of_turns, open_model
from relaxpy.plugins.llm.hooks import Hook, Hooks
from relaxpy.plugins.llm.packed import packed_as
from relaxpy.plugins.llm.perplexity import Perplexity, perplexity
from relaxpy.plugins.llm.sampling import Sampling
from relaxpy.plugins.llm.structured import FORMS, Form, Forms
from relaxpy.plugins.llm.template import ChatTemplate, Messages
from relaxpy.plugins.llm.tokens import Tokenizer
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

if TYPE_CHECKING:
    from relaxpy.plugins.llm.profiled import ModelProfile

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | Sequence[int]
"""A text to continue, the messages of a conversation, or tokens."""
DEFAULT_MAX_TOKENS = 256
DEFAULT_CONTEXT = 4096
_SCORED = 32
"""The tokens whose scores are in memory at a time, where only some of them are kept."""


@user_facing
@gc_paused  # which would visit all that was imported, twice
def load(
    model: str | Path,
    *,
    quantize: str | None = None,
    target: str | None = None,
    context: int | None = None,
    sequences: int = 8,
    cache_dtype: str | None = None,
    adapters: Mapping[str, str | Path] | None = None,
    draft: str | Path | LanguageModel | None = None,
    lookup: int = 0,
    download: bool = False,
    name: str | None = None,
    progress: bool | None = None,
) -> LanguageModel:
    """The language model of a Hugging Face folder or a GGUF file, compiled.

    A `model` may also be OWNER/NAME, or OWNER/NAME:PART of a GGUF file, in the cache of
    huggingface_hub; with `download` it is fetched. Its `name` is otherwise that of the files.

    `quantize` rounds weights to few bits ("q4f32_1", "q8f32_1", "w4a8f32", and others of
    docs/weights.md), except packed weights of GGUF with as many; without it, these stay packed
    where products can read them, which those of NumPy do not. `target` is "native" or "numpy". A
    prompt and its answer have at most `context` tokens, by default 4,096 or what the model was
    trained for; `sequences` run at a time. Keys and values of `cache_dtype` "float16" need half the
    memory. `adapters` are LoRAs by names, as of `add_adapter`.

    Answers come sooner, and are the same, where their next tokens can be guessed: at most `lookup`
    by what came after the last ones where these occurred before, or some by a smaller model of the
    same tokens, the `draft`.

    Errors:
        FileNotFoundError: there is no such file or folder.
        ModelError (also ValueError): it is not a model, or of an unknown architecture, or the
            draft has other tokens.
        FrontendError (also ValueError): weights cannot be read, or do not fit.
    """
    if not isinstance(model, (str, Path)):
        raise unexpected(model, "expected the path of a model")
    files = open_model(model, download=download)
    given, limits = _given(files, quantize, target, context, sequences, cache_dtype)
    decoder = CompiledDecoder(files.config, files.weights, progress=progress, **given, **limits)
    found = LanguageModel(files if name is None else replace(files, name=name), decoder)
    for own, path in (adapters or {}).items():
        found.add_adapter(own, path)
    found.lookup = integer_of("lookup", lookup, 0, MOST_LOOKED_UP)
    if draft is not None:
        if not isinstance(draft, LanguageModel):
            most = min(decoder.context, open_model(draft, download=download).config.positions)
            draft = load(draft, target=target, context=most, sequences=sequences, progress=progress)
        found.draft = draft_of(draft, found)
    return found


def memory_needed(
    model: str | Path,
    *,
    adapters: Mapping[str, str | Path] | None = None,
    draft: str | Path | None = None,
    lookup: int = 0,
    **options: Any,
) -> int:
    """The bytes that weights and caches take of what `load` returns for these options."""
    files = open_model(model)
    given, limits = _given(files, **options)
    config = replace(files.config, cache_dtype=given["cache_dtype"])
    quantize, packed = given["quantization"], given["packed"] or {}
    decoder = decoder_of(config, packed_as(quantize, packed), quantize)
    dtype = decoder.norm.weight.dtype
    loras = [read_adapter(Path(path), config, dtype) for path in (adapters or {}).values()]
    whole = memory_of(decoder, **limits) + adapters_memory(loras)
    if draft is not None:
        most = min(limits["context"], open_model(draft).config.positions)
        own = {"target": given["target"], "sequences": limits["sequences"]}
        whole += memory_needed(draft, context=most, **own)
    return whole


def _given(
    files: ModelFiles,
    quantize: str | None = None,
    target: str | None = None,
    context: int | None = None,
    sequences: int = 8,
    cache_dtype: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a compiled decoder for those of `load`, and the limits of its cache."""
    if context is None:
        context = min(files.config.positions, DEFAULT_CONTEXT)
    name = target_name(Target.current() if target is None else target)
    reads_packed = target_facts(name).is_native
    given = {
        "names": files.names,
        "packed": files.packed if reads_packed or quantize is not None else None,
        "quantization": quantize,
        "cache_dtype": cache_dtype,
        "target": target,
    }
    tokens = context * min(sequences, 4) if type(sequences) is int else context
    return given, {"context": context, "tokens": tokens, "sequences": sequences}


class LanguageModel:
    """A language model, which several threads may use; `load` creates it.

    A prompt is a text, the messages of a conversation (`[{"role": "user", "content": "..."}]`), or
    tokens. The options of `generate` and `stream` are `max_tokens`, `stop` (one text or several),
    `stop_token_ids`, `ignore_eos` (the model's own ends do not end a text), and those of
    `Sampling`: temperature, top_p, top_k, min_p, seed, repetition_penalty, presence_penalty,
    frequency_penalty and logit_bias; one that is None is as if it were not given. Without a
    temperature the most probable token is taken. The text has a form with `schema` (a JSON schema,
    or a model of pydantic), `grammar` (of llama.cpp), `regex` or `choice` (texts). `variables` are
    those that the chat template may name besides the messages. `lookup` and `draft` (a language
    model) guess tokens as those of `load`, which they replace.
    """

    def __init__(self, files: ModelFiles, decoder: CompiledDecoder) -> None:
        self.name, self.decoder = files.name, decoder
        self.engine = Engine(decoder)
        self.turn = RLock()
        """Whoever uses the engine holds it."""
        self._files = files
        self._adapters: dict[str, Adapter] = {}
        self._adapter: Adapter | None = None
        self._hooks: Hooks = ()
        self.draft: Draft | None = None
        """Guesses the tokens of answers, by a smaller model."""
        self.lookup = 0
        """How many tokens are guessed for a call by what came before."""

    # --- adapters

    @property
    def adapters(self) -> list[str]:
        """The names of the adapters."""
        return [*self._adapters]

    @user_facing
    def add_adapter(self, name: str, path: str | Path) -> None:
        """Add a LoRA: a folder of PEFT, or a GGUF file of llama.cpp.

        Errors:
            FileNotFoundError: there is no such file or folder.
            ModelError: it is not an adapter of this model, or the name is not one or taken.
            FrontendError: its tensors cannot be read.
        """
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name) or name == "latest":
            raise ModelError(
                f"the name of an adapter has letters, digits, _, . and -, found {name!r:.60}"
            )
        if name in self._adapters:
            raise ModelError(f"{self.name} has an adapter {name!r}")
        if not isinstance(path, (str, Path)):  # as a value of the table of `load`
            raise unexpected(path, "expected the path of an adapter")
        own = read_adapter(Path(path), self.decoder.config, self.decoder.dtype)
        kinds = AdapterSet([own, *self._adapters.values()]).kinds
        if len(dict(kinds)) < len(kinds):
            raise ModelError(f"{path} has other parts of layers than the adapters before it")
        self.decoder.prepare(own)
        self._adapters[name] = own

    @user_facing
    def remove_adapter(self, name: str) -> None:
        """Remove an adapter; what it has begun, it ends. Errors: ModelError if there is none."""
        self.adapted(name)
        del self._adapters[name]
        self.decoder.forget_adapters()

    @user_facing
    def adapted(self, name: str) -> LanguageModel:
        """This model with an adapter: weights, cache and batch are one.

        Errors:
            ModelError: there is no such adapter.
        """
        if name not in self._adapters:
            known = ", ".join(self._adapters) or "none"
            raise ModelError(f"{self.name} has no adapter {name!r:.60}, but {known}")
        found = copy(self)
        found.name, found._adapter = f"{self._files.name}:{name}", self._adapters[name]
        return found

    # --- what one sees of it

    @user_facing
    def hook(self, layer: int, hook: Hook) -> LanguageModel:
        """This model with a function that reads or changes the states after a layer.

        Weights, cache and batch are one; this model itself stays without the hook, and requests
        share a batch whether they have hooks or not. The layer 0 is the embedding. The hook gets an
        array of its own, (tokens, width), for each part of a sequence that is read: a prompt in
        chunks, then each token that was chosen, in the thread that brings the batch on. It returns
        an array of the same shape and datatype, or None if it only reads, or has changed the array.
        Several hooks of a layer follow each other. A request whose hook raises ends with its error.

        Errors:
            ModelError (also ValueError): there is no such layer, or the hook is not a function.
        """
        if not callable(hook):
            raise ModelError(f"a hook is a function of states, found {shown(hook)}")
        found = copy(self)
        found._hooks = (*self._hooks, (self._layer(layer), hook))
        self.decoder.prepare(self._adapter, hooked=True)
        return found

    def _layer(self, layer: Any) -> int:
        last = self.decoder.config.layers
        if not is_integer(layer):
            raise ModelError(f"a layer is an integer, found {shown(layer)}")
        if not 0 <= layer <= last:
            raise ModelError(f"the layers are 0, the embedding, to {last}, found {layer!s:.20}")
        return int(layer)

    @user_facing
    def states(self, prompt: Prompt, layers: Iterable[int] | None = None) -> dict[int, Any]:
        """The states after each token of a prompt, by layers: all, or these.

        The layer 0 is the embedding. The last one is before the norm, which `embed` has.

        Shapes:
            result  (tokens, width) for each layer, float32

        Errors:
            ModelError (also ValueError): there is no such layer, or the prompt is not one.
        """
        if layers is not None and not isinstance(layers, Iterable):
            raise ModelError(f"layers are a list of integers, found {shown(layers)}")
        every = range(self.decoder.config.layers + 1)
        found: dict[int, list[Any]] = {
            self._layer(layer): [] for layer in (every if layers is None else layers)
        }
        reader = copy(self)
        reader._hooks = (*self._hooks, *((layer, own.append) for layer, own in found.items()))
        reader._read(self.tokens(prompt), reader._last_states)
        return {layer: np.concatenate(own, dtype="float32") for layer, own in found.items()}

    @user_facing
    def profile(self, prompt: Prompt, *, repeat: int = 5) -> ModelProfile:
        """The time of a prompt, and of a token after it, by operator and by layer.

        Of a prompt that is read in chunks the last one counts. Each is called `repeat` times; the
        fastest call counts. Operators run one by one for this, and other requests wait.

        Errors:
            ModelError (also ValueError): the prompt is not one, or too long.
            MisuseError (also TypeError, ValueError): `repeat` is not a positive integer.
        """
        tokens = self._known(self.tokens(prompt))
        with self.turn:
            self.decoder.check_free()
            from relaxpy.plugins.llm.profiled import profile_of  # which few programs need

            return profile_of(self.decoder, tokens, repeat, self._adapter)

    @property
    def memory(self) -> int:
        """The bytes of weights, caches and adapters."""
        decoder = self.decoder
        whole = memory_of(decoder._decoder, decoder.sequences, decoder.tokens, decoder.context)
        whole += adapters_memory(self._adapters.values())
        return whole if self.draft is None else whole + self.draft.model.memory

    @cached_property
    def token_names(self) -> object:
        """The meanings of its tokens, to compare them with those of another model."""
        try:
            return self.tokenizer.own.get_vocab()
        except ModelError:  # a model of tokens alone
            return self.decoder.config.vocabulary

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Errors: ModelError if the model has none, or its package is missing."""
        return self._files.tokenizer()

    @property
    def template_text(self) -> str | None:
        """The text of the chat template, if the model has one."""
        return self._files.template

    @cached_property
    def template(self) -> ChatTemplate:
        """The chat template. Errors: ModelError if the model has none."""
        if self._files.template is None:
            raise ModelError(
                f"{self.name} has no chat template, so it cannot read messages",
                hint="pass a text, or use a model that was trained for conversations",
            )
        return ChatTemplate(self._files.template, self.tokenizer.special)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        try:
            return ends_of_turns(self.decoder.config, self.tokenizer)
        except ModelError:  # without a tokenizer, prompts are tokens
            return self.decoder.config.stop

    @cached_property
    def forms(self) -> Forms:
        """The forms that answers may have. Errors: ModelError if a package is missing."""
        return Forms(self.tokenizer, self.decoder.config.vocabulary, self.ends)

    @property
    def notes(self) -> list[str]:
        """Warnings about the speed and the memory of this model here."""
        found = []
        if self._files.note is not None and not self.decoder.quantization:
            found.append(self._files.note)
        if not target_facts(self.decoder.target).is_native:
            if self.decoder.packed_layers:
                speed = (
                    "which takes some 10 times as long for weights in few bits as for float32, and "
                    "50 times as long as native code"
                )
            else:
                widened = "to which all packed weights are widened, " if self._files.packed else ""
                speed = f"in float32, {widened}some 5 times as slow as native code for few bits"
            install = "" if find_spec("llvmlite") else ": python -m pip install 'relaxpy[native]'"
            found.append(f"the model runs on NumPy, {speed}{install}")
        return found

    def tokens(self, prompt: Prompt, *, variables: Mapping[str, Any] | None = None) -> list[int]:
        """The tokens of a prompt.

        `variables` are those that the chat template may name besides the messages.

        Errors:
            ModelError: it is not one, or so long that it cannot fit the context (ContextError).
        """
        if isinstance(prompt, str):
            if found := self._encoded(prompt):
                return found
            raise ModelError(f"the text {prompt!r:.60} has no tokens, so nothing can continue it")
        is_listed = isinstance(prompt, (Sequence, np.ndarray))
        if not is_listed or isinstance(prompt, (bytes, bytearray)):
            raise ModelError(
                f"a prompt is a text, messages or tokens, found {shown(prompt)}",
                hint="messages are a list, also one" if isinstance(prompt, Mapping) else None,
            )
        if not len(prompt):
            raise ModelError("a prompt is a text, messages or tokens, found an empty list")
        if isinstance(prompt[0], Mapping):
            return self.conversation(prompt, variables)[0]  # type: ignore[arg-type]
        tokens = []
        for token in prompt:
            try:
                tokens.append(index(token))  # type: ignore[arg-type]
            except TypeError:
                raise ModelError(
                    f"a prompt of tokens has integers alone, found {shown(token)}",
                    hint="lists of prompts are for generate and embed",
                ) from None
        return tokens

    def conversation(
        self, messages: Messages, variables: Mapping[str, Any] | None = None
    ) -> tuple[list[int], str]:
        """The tokens of messages, and their text. Errors: as of `tokens`."""
        text = self.template.render(messages, variables=variables)
        return self._encoded(text, is_rendered=True), text

    def _encoded(self, text: str, **options: Any) -> list[int]:
        """The tokens of a text that is not longer than any that fits the context."""
        if self.tokenizer.is_too_long(len(text), self.decoder.context):
            raise ContextError(
                f"the prompt has {len(text)} characters, more than the {self.decoder.context} "
                "tokens that a sequence has at most"
            )
        return self.tokenizer.encode(text, **options)

    def start(
        self,
        tokens: Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: object = None,
        logprobs: int | None = None,
        form: Form | None = None,
        shown: Iterable[str] = (),
        stop_token_ids: Sequence[int] | None = None,
        ignore_eos: bool | None = None,
        lookup: int | None = None,
        draft: LanguageModel | None = None,
        **options: Any,
    ) -> Continuation:
        """A new request, whose text the continuation has; `step` brings it on.

        `options` are those of `Sampling`, and one of `FORMS` instead of a compiled `form`. The
        text has the names of tokens that are `shown`, even though they control the model.

        Errors:
            ModelError: the prompt or an option is not such, or there is no room for them.
        """
        options = {name: value for name, value in options.items() if value is not None}
        unknown = options.keys() - Sampling.__dataclass_fields__.keys() - {*FORMS}
        if unknown:
            others = ("max_tokens", "stop", "stop_token_ids", "ignore_eos", "logprobs")
            known = (*others, "lookup", "draft", *FORMS, *Sampling.__dataclass_fields__)
            raise ParameterError.unknown(min(unknown), known)
        texts = stop_texts(stop)
        room = self.decoder.context - len(tokens)
        if room < 1:
            raise ContextError(
                f"the prompt has {len(tokens)} tokens, which leaves no room for an answer: "
                f"a sequence has at most {self.decoder.context}"
            )
        if max_tokens is None:
            max_tokens = min(room, DEFAULT_MAX_TOKENS)
        if not is_integer(max_tokens) or max_tokens < 1:
            raise ParameterError.of("max_tokens", max_tokens, "a positive integer")
        if max_tokens > room:
            raise ContextError(
                f"the prompt has {len(tokens)} tokens, and {max_tokens} more are too many: "
                f"a sequence has at most {self.decoder.context}"
            )
        if wanted := {name: options.pop(name) for name in FORMS if name in options}:
            form = self.forms.form(wanted)
        chosen = Sampling(**options)
        words = self.decoder.config.vocabulary
        if (most := max(chosen.logit_bias, default=0)) >= words:
            raise ParameterError.of("logit_bias", most, f"tokens from 0 to {words - 1}")
        if ignore_eos is not None and not isinstance(ignore_eos, bool):
            raise ParameterError.of("ignore_eos", ignore_eos, "True or False")
        ends = set() if ignore_eos else {*self.ends}
        own = [] if stop_token_ids is None else stop_token_ids
        for token in own if isinstance(own, Iterable) else [own]:
            is_token = isinstance(token, (int, np.integer)) and not isinstance(token, bool)
            if not is_token or not isinstance(own, Iterable) or not 0 <= token < words:
                expected = f"a list of tokens from 0 to {words - 1}"
                raise ParameterError.of("stop_token_ids", token, expected)
            ends.add(int(token))
        lookup = self.lookup if lookup is None else lookup
        # It only enters a queue, which needs no turn.
        request = self.engine.add(
            *(tokens, chosen, max_tokens, ends, logprobs, form, self._adapter, self._hooks),
            lookup=integer_of("lookup", lookup, 0, MOST_LOOKED_UP),
            draft=self.draft if draft is None else self._draft_of(draft),
        )
        return Continuation(request, self.tokenizer, texts, self.tokenizer.hidden(shown))

    def _draft_of(self, small: object) -> Draft:
        if not isinstance(small, LanguageModel):
            raise ParameterError.of("draft", small, "a language model")
        return draft_of(small, self)

    def step(self) -> None:
        """Bring all requests on by one call of the model; those that fail end with their errors."""
        with self.turn:
            self.decoder.check_free()
            try:
                self.engine.step()
            except Exception as error:  # of a request that is not known yet
                self.engine.end_failing(error)

    def cancel(self, request: Request) -> None:
        """End a request, whose pages are free then."""
        with self.turn:
            request.cancel()

    @overload
    def generate(self, prompts: Prompt, **options: Any) -> str: ...
    @overload
    def generate(self, prompts: Sequence[Prompt], **options: Any) -> list[str]: ...
    @user_facing
    def generate(
        self, prompts: Any, *, variables: Mapping[str, Any] | None = None, **options: Any
    ) -> str | list[str]:
        """The text that continues a prompt, or answers messages; a list of them for several.

        Errors:
            ModelError (also ValueError): a prompt or an option is not such, or no token could be
                chosen.
        """
        several = _is_list_of_prompts(prompts)
        listed = [
            self.tokens(prompt, variables=variables)
            for prompt in (prompts if several else [prompts])
        ]
        started: list[Continuation] = []
        try:
            started.extend(self.start(tokens, **options) for tokens in listed)
            texts = ["".join(self._pieces(continuation)) for continuation in started]
        finally:
            for continuation in started:
                self.cancel(continuation.request)
        return texts if several else texts[0]

    @user_facing
    def stream(
        self, prompt: Prompt, *, variables: Mapping[str, Any] | None = None, **options: Any
    ) -> Iterator[str]:
        """The same text as that of `generate`, in pieces as they come."""
        continuation = self.start(self.tokens(prompt, variables=variables), **options)

        def pieces() -> Iterator[str]:
            try:
                yield ""  # so that it ends the request though nobody asks for a piece
                yield from self._pieces(continuation)
            finally:
                self.cancel(continuation.request)

        found = pieces()
        next(found)
        return found

    def _pieces(self, continuation: Continuation) -> Iterator[str]:
        request = continuation.request
        while True:
            with self.turn:
                piece = continuation.take()
                is_over = request.done
            if piece:
                yield piece
            if is_over:
                if request.error is not None:
                    raise request.error
                return
            self.step()

    @user_facing
    def export(
        self,
        path: str | PathLike[str],
        *,
        page: bool = False,
        tokens: bool = False,
        sequences: int = 1,
        name: str | None = None,
        weights: str | PathLike[str] | None = None,
        **options: Any,
    ) -> tuple[Path, ...]:
        """Write `prefill` and `decode` for one sequence as a library without Python.

        Both append tokens at a position and return the scores of the next one; keys and values are
        tensors of the caller. These have several `sequences`, if wanted, and there is a function
        `decode_batch` that appends a token to each of them. With `tokens`, the tokenizer is written
        beside the library, as a header for C and a file of tables; for a `.wasm`, a `page` that
        talks to the model, which has it inside. Other options are those of `Executable.export`.

        Errors:
            ModelError: the tokenizer or the chat template has parts that these have not; they are
                those of byte pairs or SentencePiece, and a page writes messages in turns.
            As for `Executable.export`: CompileError names what has no form without Python.
        """
        from relaxpy.exec.export.exported import identifier
        from relaxpy.exec.export.files import write_files

        if self._adapter is not None or self._hooks:
            what = "hooks" if self._adapter is None else "an adapter"
            raise ModelError(f"{self.name} has {what}, which a library has not")
        out = Path(path)
        is_web = out.suffix.lower() == ".wasm"
        if page and not is_web:
            raise ParameterError.of("page", page, "False, as only a .wasm has one")
        integer_of("sequences", sequences, 1)
        if page and sequences > 1:
            raise ParameterError.of("sequences", sequences, "1, as a page has one conversation")
        if tokens and is_web:
            raise ParameterError.of("tokens", tokens, "False, as a .wasm has them in its page")
        stem = out.stem
        if page and not re.fullmatch(r"[\w.-]+", stem):
            raise ParameterError.of("path", str(path), "a name of letters, digits, _, . and -")
        texts = page_of(self, stem) if page else {}
        beside = {out.with_name(f"{stem}{end}"): text.encode() for end, text in texts.items()}
        if tokens:
            prefix = identifier(name if name is not None else out.name.partition(".")[0])
            made = tokenizer_files(self, prefix, self.decoder.limits_of_exports(sequences))
            for end, content in made.items():
                beside[out.with_name(f"{prefix}{end}")] = content
        if weights is not None and Path(weights) in beside:
            raise ParameterError.of("weights", str(weights), "a file that is not written otherwise")
        files = self.decoder.exportable(sequences).export(
            path, name=name, weights=weights, **options
        )
        write_files(beside)
        return (*files, *beside)

    @user_facing
    def logits(self, prompt: Prompt) -> Any:
        """The scores of the next token after each token of a prompt, (tokens, vocabulary)."""
        return np.concatenate(self._read(self.tokens(prompt), self._scores))

    def prompt_logprobs(
        self, tokens: Sequence[int], top: int = 0
    ) -> list[tuple[float, list[tuple[int, float]]]]:
        """For each token but the first its logprob, and the most probable ones with theirs."""
        rest = iter(tokens[1:])

        def scored(cache: Any, part: Sequence[int]) -> list[Any]:
            rows = self._scores(cache, part)
            return [logprobs_of(row, token, top) for row, token in zip(rows, rest, strict=False)]

        return [row for rows in self._read(tokens[:-1], scored, _SCORED) for row in rows]

    @user_facing
    def perplexity(
        self,
        text: str,
        *,
        context: int | None = None,
        chunks: int | None = None,
        against: LanguageModel | None = None,
    ) -> Perplexity:
        """The perplexity of a text, as llama.cpp's tool counts it.

        All of the text is cut into chunks of `context` tokens, by default 512, and the first
        `chunks` are read; what is left at the end does not count. The first token of each is the
        one that begins texts, where the model has such. The tokens of the second half of each chunk
        count. `against` is a model of the same tokens with which the probabilities are compared.

        Errors:
            ModelError: the text is shorter than a chunk, an option has no such value, or the other
                model has other tokens.
        """
        if against is not None and not isinstance(against, LanguageModel):
            raise ParameterError.of("against", against, "a language model")
        return perplexity(self, text, context, chunks, against)

    @user_facing
    def embed(self, prompts: Any) -> Any:
        """The mean of the last layer's states over the tokens of a prompt, float32.

        A GGUF file may say that it is the first or the last one instead.

        Shapes:
            result  (width,), or (prompts, width) for a list of them
        """
        if _is_list_of_prompts(prompts):
            return np.stack([self.embed(prompt) for prompt in prompts])
        states = np.concatenate(self._read(self.tokens(prompts), self._last_states))
        pooling = self.decoder.config.pooling
        return {"first": states[:1], "last": states[-1:]}.get(pooling, states).mean(axis=0)

    def _scores(self, cache: Any, part: Sequence[int]) -> Any:
        """The scores after each token of a part of a single sequence."""
        return self._run(cache, part, range(len(part)))

    def _last_states(self, cache: Any, part: Sequence[int]) -> Any:
        """The normed states of the last layer for a part of a single sequence."""
        return self._run(cache, part, None)

    def _run(self, cache: Any, part: Sequence[int], rows: Sequence[int] | None) -> Any:
        return self.decoder.run(cache, [0], [part], rows, [self._adapter], [self._hooks])

    def _read(self, tokens: Sequence[int], call: Any, chunk: int | None = None) -> list[Any]:
        """The results of calls for the tokens of a prompt, a chunk at a time."""
        tokens = self._known(tokens)
        cache, chunk = self.decoder.single_cache, chunk or self.decoder.chunk
        parts = [tokens[start : start + chunk] for start in range(0, len(tokens), chunk)]
        with self.turn:
            self.decoder.check_free()
            self.decoder.state("add_sequence", cache, 0)
            try:
                return [call(cache, part) for part in parts]
            finally:
                self.decoder.state("remove_sequence", cache, 0)

    def _known(self, tokens: Sequence[int]) -> Sequence[int]:
        """These tokens. Errors: ModelError if they are too many, or the model lacks one."""
        words, limit = self.decoder.config.vocabulary, self.decoder.context
        if len(tokens) > limit:
            raise ContextError(f"a prompt has 1 to {limit} tokens, found {len(tokens)}")
        if unknown := [token for token in tokens if not 0 <= token < words]:
            raise ModelError(f"the model has the tokens 0 to {words - 1}, found {unknown[0]}")
        return tokens

    @override
    def __repr__(self) -> str:
        config = self.decoder.config
        return (
            f"<language model {self.name}: {config.family}, {config.layers} layers of "
            f"{config.width}, context {self.decoder.context}, {self.decoder.target}>"
        )


def _is_list_of_prompts(prompts: Any) -> bool:
    if isinstance(prompts, str) or not isinstance(prompts, (list, tuple)) or not prompts:
        return False
    return isinstance(prompts[0], (str, list, tuple))
