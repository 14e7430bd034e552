"""Configurations of models, read from the entries of a `config.json` of Hugging Face."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

from relaxpy.errors import RelaxpyError
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.missing import nearest

_MOST = 4096
"""The most layers, and the most experts of one."""
LARGEST = 16 * 1024 * 1024
"""The most bytes of a file in JSON, tokenizers apart."""


class ModelError(RelaxpyError, ValueError):
    """A model, its files or a request that cannot be taken."""


def shown(value: object, most: int = 60, depth: int = 2) -> str:
    """The first characters of the representation of a value of a request.

    No more of it is computed, as that would take as long as the value is large.
    """
    match value:
        case str():
            text = repr(value[:most])
        case list() if depth:
            items = (shown(item, most, depth - 1) for item in value[: most // 3])
            text = f"[{', '.join(items)}]"
        case dict() if depth:
            first = islice(value.items(), most // 3)
            pairs = (f"{shown(key)}: {shown(item, most, depth - 1)}" for key, item in first)
            text = f"{{{', '.join(pairs)}}}"
        case list() | dict() if value:
            text = "[...]" if isinstance(value, list) else "{...}"
        case _:
            text = repr(value)
    return text[:most]


class ContextError(ModelError):
    """A prompt that is too long for the context of the model."""


class ParameterError(ModelError):
    """An option of a request that has no such value; `param` is its name."""

    def __init__(self, message: Any = "", *, param: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param

    @classmethod
    def of(cls, param: str, value: object, expected: str) -> ParameterError:
        """The error that an option has this value."""
        return cls(f"{param} cannot be {shown(value)}, expected {expected}", param=param)

    @classmethod
    def unknown(cls, param: str, known: Sequence[str]) -> ParameterError:
        """The error of an option that does not exist."""
        near = nearest(param, known)
        hint = f"did you mean {' or '.join(near)}?" if near else f"options are {', '.join(known)}"
        return cls(f"there is no option {param!r:.60}", param=param, hint=hint)


def integer_of(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The integer that an option is. Errors: ParameterError if it is none, or not within these."""
    if not is_integer(value) or value < least or (most is not None and value > most):
        limits = f"from {least}" if most is None else f"from {least} to {most}"
        raise ParameterError.of(name, value, f"an integer {limits}")
    return int(value)


def is_integer(value: Any) -> bool:
    """True for an integer that is not a Boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """True for a finite number that is not a Boolean."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer that no float is near
        return False


@dataclass(frozen=True)
class Config:
    """The sizes of a decoder, and what its family does differently from Llama."""

    family: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocabulary: int
    positions: int
    eps: float
    theta: float = 10000.0
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    rope_factors: tuple[float, ...] = ()
    """Multiply the divisors of positions; there may be others for short texts."""
    short_factors: tuple[float, ...] = ()
    rotated: int | None = None
    """How many elements of a head positions rotate; None for all of them."""
    local_theta: float | None = None
    """The base of rotations in layers that see a window, if it is another one (Gemma 3)."""
    tied: bool = False
    """True if the embedding is the last layer, too."""
    qkv_bias: bool = False
    qk_norm: bool = False
    """True if the heads of queries and keys are normalised (Qwen 3, Gemma 3)."""
    activation: str = "silu"
    norm_offset: float = 0.0
    """Added to the weights of norms, which Gemma stores without 1."""
    embedding_scale: float = 1.0
    post_norms: bool = False
    """True if the results of attention and of the MLP are normalised, too (Gemma 2 and 3)."""
    score_scale: float | None = None
    """The factor of products of queries and keys; None for head_dim**-0.5."""
    score_cap: float = 0.0
    """Scores of attention are capped smoothly by cap * tanh(score / cap), where it is not 0."""
    logit_cap: float = 0.0
    """The cap of the scores of tokens."""
    window: int | None = None
    """How many tokens the layers of `sliding` see."""
    sliding: tuple[bool, ...] = ()
    """For each layer whether it sees a window; empty if none does."""
    experts: int = 0
    chosen_experts: int = 0
    chosen_sum_to_one: bool = True
    """True if the shares of the chosen experts are divided by their sum."""
    stop: tuple[int, ...] = ()
    """The tokens that end a text."""
    pooling: str = field(default="mean", repr=False)
    """How states become an embedding: their mean, or the first or last one."""
    cache_dtype: str | None = None
    """The datatype of keys and values in caches; None for that of the model."""
    unknown: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Entries of the file that nobody knows, and that do not seem to change the model."""

    @property
    def cache_rotates(self) -> bool:
        """True if positions rotate queries and keys in all layers alike, which the cache does."""
        return self.family != "gpt2" and self.local_theta is None

    def factors_within(self, context: int) -> tuple[float, ...]:
        """The factors for texts of at most so many tokens: the keys of a cache have the same."""
        is_short = context <= self.rope_scaling.get(_ORIGINAL, 0)
        return self.short_factors if self.short_factors and is_short else self.rope_factors


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of an encoder that gives a text a score."""

    family: str
    width: int
    layers: int
    heads: int
    hidden: int
    vocabulary: int
    positions: int
    """How many tokens it reads."""
    first: int
    """The number of the first position."""
    kinds: int
    """How many texts are told from each other; without, 1."""
    eps: float
    activation: str
    """A name of `_ACTIVATIONS`."""


def read_text(path: Path, what: str) -> str:
    """The text of a file. Errors: ModelError if there is none, or it is too large or not UTF-8."""
    try:
        if path.stat().st_size > LARGEST:
            raise ModelError(f"{path} has more than {LARGEST >> 20} MB, which no {what} has")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelError(f"there is no {path}, which has the {what} of the model") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not a text: {error}") from None


def read_table(path: Path, what: str = "configuration") -> Mapping[str, Any]:
    """The table in a file of JSON. Errors: ModelError if there is none."""
    text = read_text(path, what)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise ModelError(f"{path} is not a table of names and values")
    return found


def config_of(raw: Mapping[str, Any], source: str = "the configuration") -> Config:
    """The configuration that the entries of a `config.json` describe.

    Errors:
        ModelError: entries are missing or wrong, or the architecture is not one of `FAMILIES`.
    """
    family = raw.get("model_type")
    _refuse_quantized(raw, source)
    if family == "gemma3" and isinstance(raw.get("text_config"), Mapping):
        # A model of images and texts, of which this is the part for texts.
        outer = {"eos_token_id": raw.get("eos_token_id")}
        raw = {**_GEMMA3_TEXT, **outer, **raw["text_config"], "model_type": "gemma3_text"}
        family = "gemma3_text"
    if isinstance(family, str) and family in ENCODERS:
        raise ModelError(
            f"{source} is of the architecture {family!r}, an encoder, which generates no text",
            hint="relaxpy.llm.CrossEncoder and `relaxpy serve` order documents by one with a score",
        )
    if not isinstance(family, str) or family not in FAMILIES:
        raise unknown_architecture(family, FAMILIES, source)
    _refuse_quantized(raw, source)
    entries = _Entries(raw, source)
    config = _gpt2(entries) if family == "gpt2" else _llama_like(entries)
    if config.heads % config.kv_heads:
        raise ModelError(
            f"{source} has {config.kv_heads} heads of keys, which do not divide {config.heads}"
        )
    if config.chosen_experts > config.experts:
        raise ModelError(f"{source} chooses {config.chosen_experts} of {config.experts} experts")
    check_factors(config, source)
    return replace(config, unknown=entries.unknown())


def check_factors(config: Config, source: str) -> None:
    """Raise a ModelError if there are not as many factors of positions as pairs that rotate."""
    count = (config.rotated or config.head_dim) // 2
    for factors in (config.rope_factors, config.short_factors):
        if factors and len(factors) != count:
            raise ModelError(
                f"{source} has {len(factors)} factors of positions, expected {count}, half of the "
                "elements of a head that positions rotate"
            )


def _refuse_quantized(raw: Mapping[str, Any], source: str) -> None:
    """Raise a ModelError for weights that are stored in few bits, in ways that are not read."""
    for name in ("quantization_config", "compression_config", "quantization"):
        if found := raw.get(name):
            method = found.get("quant_method", "") if isinstance(found, Mapping) else found
            raise ModelError(
                f"{source} has a {name}{method and f' of {method!r:.60}'}: its weights are "
                "quantised, which folders of Hugging Face cannot be here",
                hint="take the folder with weights in BF16 or F16 and load(..., quantize='q4f32_1')"
                ", or a GGUF file",
            )


def unknown_architecture(
    name: object,
    known: Iterable[str],
    source: str,
    hint: str = "relaxpy.plugins.llm.config.FAMILIES says how an architecture differs from Llama",
) -> ModelError:
    """The error of an architecture without a definition."""
    expected = ", ".join(known)
    return ModelError(
        f"{source} is of the architecture {name!r:.60}, expected one of {expected}", hint=hint
    )


_CHANGES: Final = re.compile(
    "attn|attention|rope|rotary|position|expert|moe|router|norm|scal|softcap|window|sliding|bias"
    "|activation|act_|_act|multiplier|mlp|residual|kv|lora|layer|hidden|logit|causal|cross|ssm"
    "|mamba|conv|gate|head|embed|alibi|quant|skip|parallel|sparse|vision|audio|altup|laurel|clip"
    "|dense|shared"
)
"""Parts of names of entries that change what a model computes."""
_HARMLESS: Final = {
    # What other models of the family have, and transformers does not read for this one.
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    *("sliding_window_pattern", "_sliding_window_pattern", "sliding_window_size"),
    "original_max_position_embeddings",
    *("intermediate_size", "head_dim", "hidden_act", "hidden_activation", "model_type"),
    *("rope_scaling", "rope_parameters", "n_ctx", "query_pre_attn_scalar"),
    # Training, and what is returned or how it is computed.
    *("router_jitter_noise", "output_router_logits", "output_hidden_states", "output_attentions"),
    *("output_scores", "return_dict", "return_dict_in_generate", "use_cache", "use_bfloat16"),
    *("cache_implementation", "_attn_implementation", "_attn_implementation_autoset"),
    *("attn_implementation", "reorder_and_upcast_attn", "gradient_checkpointing", "torchscript"),
    *("pretraining_tp", "chunk_size_feed_forward", "cross_attention_hidden_size", "is_decoder"),
    *("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type"),
    *("summary_use_proj", "dtype", "torch_dtype", "ignore_keys_at_rope_validation"),
    # What other programs read: how they compute attention.
    "dual_chunk_attention_config",
    # Names, versions, and texts.
    *("_name_or_path", "architectures", "auto_map", "transformers_version", "tokenizer_class"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id"),
    *("decoder_start_token_id", "task_specific_params", "finetuning_task", "problem_type"),
    *("unsloth_version", "unsloth_fixed", "_commit_hash", "prefix", "base_model", "num_labels"),
    *("id2label", "label2id", "transformers.js_config", "max_sequence_length"),
    *("bos_token", "eos_token", "pad_token", "model_max_length", "tf_legacy_loss"),
    # Options of generation, which older versions write here.
    *("do_sample", "temperature", "top_k", "top_p", "typical_p", "num_beams", "num_beam_groups"),
    *("repetition_penalty", "length_penalty", "diversity_penalty", "max_length", "min_length"),
    *("max_new_tokens", "num_return_sequences", "no_repeat_ngram_size", "early_stopping"),
    *("encoder_no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "remove_invalid_values"),
    *("begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id"),
    *("exponential_decay_length_penalty",),
}
"""Entries that change nothing where they are not read."""
_HARMLESS_PARTS: Final = re.compile("dropout|pdrop|flash|sdpa|fused|loss|initializer|init_std")
"""Parts of names of entries about training, and about implementations of the same function."""


def _is_neutral(name: str, value: object) -> bool:
    """True for a value by which an entry changes nothing, whatever it is about."""
    if type(value) in {int, float} and value == 1:
        return re.search("multiplier|scale|scaling|factor", name) is not None
    return value is None or value in (False, 0, "", [], {})


class _Entries:
    """The entries of a `config.json`, each of which is checked when it is read."""

    def __init__(self, raw: Mapping[str, Any], source: str) -> None:
        self.raw, self.source = raw, source
        self.read: set[str] = set()
        """The names that were asked for."""

    def get(self, name: str) -> Any:
        """An entry, or None."""
        self.read.add(name)
        return self.raw.get(name)

    def unknown(self) -> tuple[str, ...]:
        """The names that were not read, and that are not known to change nothing.

        Errors:
            ModelError: by its name, one of them changes the model.
        """
        names = [name for name in self.raw if name not in self.read | _HARMLESS]
        names = [name for name in names if not _HARMLESS_PARTS.search(name)]
        found = [name for name in names if not _is_neutral(name, self.raw[name])]
        for name in found:
            if _CHANGES.search(name):
                raise ModelError(
                    f"{self.source} has {name!r:.80}: {self.raw[name]!r:.60}, which is not "
                    "supported for this architecture",
                    hint="take this entry out of the file if the model was trained without it",
                )
        return tuple(found)

    def wrong(self, name: str, expected: str) -> ModelError:
        found = self.raw.get(name)
        return ModelError(f"{self.source} has {name!r}: {found!r:.60}, expected {expected}")

    def present(self, name: str, default: Any) -> Any:
        """An entry; null counts as absent. Errors: ModelError if there is no default, too."""
        value = self.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"{self.source} has no {name!r}")
        return value

    def count(self, name: str, default: int | None = None, most: int = (1 << 31) - 1) -> int:
        """A positive integer. Errors: ModelError."""
        value = self.present(name, default)
        if type(value) is not int or not 0 < value <= most:
            limit = "of 31 bits" if most >> 30 else f"up to {most}"
            raise self.wrong(name, f"a positive integer {limit}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number. Errors: ModelError."""
        value = self.present(name, default)
        if not is_number(value) or value <= 0:
            raise self.wrong(name, "a positive number")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A truth. Errors: ModelError."""
        value = self.present(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def table(self, *names: str) -> dict[str, Any]:
        """The first entry of several that is not empty. Errors: ModelError if it is not a table."""
        for name in names:
            if value := self.get(name):
                if not isinstance(value, dict):
                    raise self.wrong(name, "a table of names and values")
                return dict(value)
        return {}

    def expect(self, name: str, *values: object) -> None:
        """Refuse any other value of an entry that may be absent. Errors: ModelError."""
        if self.present(name, values[0]) not in values:
            raise self.wrong(name, " or ".join(map(repr, values)))

    def stop(self) -> tuple[int, ...]:
        """The tokens that end a text. Errors: ModelError."""
        value = self.get("eos_token_id")
        tokens = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(token) is int for token in tokens):
            raise self.wrong("eos_token_id", "a token or a list of them")
        return tuple(tokens)


_GEMMA3_TEXT: Mapping[str, Any] = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
}
"""Entries that configurations for images and texts leave out, as transformers has them."""
_GEMMA: Mapping[str, Any] = {"activation": "gelu_tanh", "norm_offset": 1.0, "head_dim": 256}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "head_dim": 128},
    "qwen3_moe": {"qk_norm": True, "head_dim": 128},
    "gemma": _GEMMA,
    "gemma2": {**_GEMMA, "post_norms": True},
    "gemma3_text": {**_GEMMA, "post_norms": True, "qk_norm": True, "theta": 1e6},
    "phi3": {},
    "mixtral": {"theta": 1e6},
    "gpt2": {},
}
"""The differences of an architecture from Llama, and the values of entries that are absent."""


def _llama_like(raw: _Entries) -> Config:
    family, width = raw.present("model_type", None), raw.count("hidden_size")
    heads, layers = raw.count("num_attention_heads"), raw.count("num_hidden_layers", most=_MOST)
    differences = dict(FAMILIES[family])
    equal_parts = width // heads if width % heads == 0 else None
    head_dim = raw.count("head_dim", differences.pop("head_dim", equal_parts))
    is_gemma = family.startswith("gemma")
    raw.expect("attention_bias", False)
    raw.expect("mlp_bias", False)
    if is_gemma:
        raw.expect("use_bidirectional_attention", False)  # embeddings that see what follows
        differences["embedding_scale"] = width**0.5
    if is_gemma and family != "gemma":
        raw.expect("hidden_activation", *_GELU)
    else:
        raw.expect("hidden_act", *(("gelu", *_GELU) if is_gemma else ("silu", "swish")))
    if family in {"gemma2", "gemma3_text"}:
        differences["score_scale"] = raw.number("query_pre_attn_scalar", 256) ** -0.5
        standard = (50.0, 30.0) if family == "gemma2" else (None, None)
        caps = ("attn_logit_softcapping", "final_logit_softcapping")
        for name, ours, cap in zip(caps, ("score_cap", "logit_cap"), standard, strict=True):
            if (raw.get(name) if name in raw.raw else cap) is not None:
                differences[ours] = raw.number(name, cap)
    if family == "phi3":
        rope = raw.table("rope_parameters", "rope_scaling")
        share = raw.number("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0))
        if share > 1:
            raise raw.wrong("partial_rotary_factor", "a number up to 1")
        differences["rotated"] = int(head_dim * share)
        raw.expect("interpolate_factor", 1)
        raw.expect("full_attn_mod", 1)
    else:
        raw.expect("partial_rotary_factor", 1)
    if family in {"mixtral", "qwen3_moe"}:
        differences |= _experts(raw, family)
    window, sliding = _windows(raw, family, layers)
    return Config(
        family,
        width,
        layers,
        heads,
        raw.count("num_key_value_heads", heads),
        head_dim,
        raw.count("moe_intermediate_size" if family == "qwen3_moe" else "intermediate_size"),
        raw.count("vocab_size"),
        raw.count("max_position_embeddings"),
        raw.number("rms_norm_eps", 1e-6 if is_gemma else None),
        **_rotation(raw, differences.pop("theta", 10000.0)),
        tied=raw.flag("tie_word_embeddings", default=is_gemma),
        window=window,
        sliding=sliding,
        stop=raw.stop(),
        **differences,
    )


def _experts(raw: _Entries, family: str) -> dict[str, Any]:
    if family == "mixtral":
        name, sums_to_one = "num_local_experts", True
        raw.get("num_experts")
    else:
        # Both are names of it, in versions of transformers.
        name = "num_experts" if raw.get("num_experts") is not None else "num_local_experts"
        raw.get("num_local_experts")
        sums_to_one = raw.flag("norm_topk_prob", default=False)
        raw.expect("decoder_sparse_step", 1)
        raw.expect("mlp_only_layers", [])
    return {
        "experts": raw.count(name, most=_MOST),
        "chosen_experts": raw.count("num_experts_per_tok"),
        "chosen_sum_to_one": sums_to_one,
    }


def _windows(raw: _Entries, family: str, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """The window, and which layers see no more than it."""
    if family in {"llama", "gemma"}:
        return None, ()
    is_qwen, is_gemma = family.startswith("qwen"), family.startswith("gemma")
    # Qwen says whether it slides.
    slides = raw.flag("use_sliding_window", default=not is_qwen)
    if not slides or (raw.get("sliding_window") is None and not is_gemma):
        return None, ()
    window = raw.count("sliding_window", 4096 if is_gemma else None)
    listed = raw.present("layer_types", [])
    if is_gemma:
        period = 2 if family == "gemma2" else raw.count("sliding_window_pattern", 6)
        sliding = [(layer + 1) % period != 0 for layer in range(layers)]
    elif is_qwen:
        first = raw.present("max_window_layers", 28)
        if type(first) is not int:
            raise raw.wrong("max_window_layers", "an integer")
        sliding = [layer >= first for layer in range(layers)]
    else:
        sliding = [True] * layers
    if listed and (is_gemma or is_qwen):
        is_right = isinstance(listed, list) and len(listed) == layers
        if not is_right or not all(kind in _LAYERS for kind in listed):
            raise raw.wrong("layer_types", f"one of {' and '.join(_LAYERS)} for each layer")
        sliding = [kind == "sliding_attention" for kind in listed]
    return (window, tuple(sliding)) if any(sliding) else (None, ())


def _rotation(raw: _Entries, standard: float) -> dict[str, Any]:
    """The base of rotations, and how positions are scaled."""
    scaling = raw.table("rope_parameters", "rope_scaling")
    local = raw.get("rope_local_base_freq")
    if isinstance(scaling.get("full_attention"), dict):  # one table for each kind of layer
        local_table = scaling.get("sliding_attention")
        if isinstance(local_table, dict):
            sliding = _Entries(local_table, f"the rotation of windows of {raw.source}")
            sliding.expect("rope_type", "default")
            local = sliding.get("rope_theta")
            sliding.unknown()
        scaling = dict(scaling["full_attention"])
    rope = _Entries(scaling, f"the scaling of positions of {raw.source}")
    theta = rope.number("rope_theta", raw.number("rope_theta", standard))
    kind = rope.present("rope_type", scaling.get("type", "default"))
    if raw.raw["model_type"] == "phi3" and kind == "su":  # as older versions call it
        kind = "longrope"
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise ModelError(
            f"positions of {raw.source} are scaled by {kind!r:.60}, expected one of "
            f"{', '.join(_SCALINGS)}"
        )
    factors: dict[str, list[float]] = {}
    if kind == "longrope":
        original = raw.get(_ORIGINAL) or scaling.get(_ORIGINAL)
        rope.raw = {**scaling, _ORIGINAL: original, _LONGEST: raw.count(_LONGEST)}
        for name in ("long_factor", "short_factor"):
            given = rope.present(name, None)
            if not isinstance(given, list) or not all(is_number(n) and n > 0 for n in given):
                raise rope.wrong(name, "a list of positive numbers")
            factors[name] = given
    numbers: dict[str, Any] = {name: rope.number(name) for name in _SCALINGS[kind]}
    if kind == "yarn":
        numbers |= {name: rope.number(name) for name in _YARN if scaling.get(name) is not None}
        numbers["truncate"] = rope.flag("truncate", default=True)
    if raw.raw["model_type"] != "phi3":
        rope.expect("partial_rotary_factor", 1)
    rope.read |= {"type", "partial_rotary_factor", "finetuned", _ORIGINAL}
    if kind == "longrope":
        rope.read |= {"factor"}  # which follows from the numbers of positions
    if found := rope.unknown():
        raise ModelError(f"{rope.source} have {found[0]!r:.80}, which is not supported")
    is_gemma3 = raw.raw["model_type"] == "gemma3_text"
    return {
        "theta": theta,
        "rope_scaling": {"rope_type": kind, **numbers} if numbers else {},
        "rope_factors": tuple(map(float, factors.get("long_factor", ()))),
        "short_factors": tuple(map(float, factors.get("short_factor", ()))),
        "local_theta": _Entries({"base": local}, raw.source).number("base", 1e4)
        if is_gemma3
        else None,
    }


_LAYERS = ("full_attention", "sliding_attention")
_GELU = ("gelu_pytorch_tanh", "gelu_new")
_ORIGINAL, _LONGEST = "original_max_position_embeddings", "max_position_embeddings"
_SCALINGS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
    "longrope": (_ORIGINAL, _LONGEST),
    "yarn": ("factor", _ORIGINAL),
}
"""The numbers that each scaling of positions needs."""
_YARN = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
"""Those that YaRN may have besides."""


def _gpt2(raw: _Entries) -> Config:
    width, heads = raw.count("n_embd"), raw.count("n_head")
    if width % heads:
        raise raw.wrong("n_head", f"a divisor of {width}")
    raw.expect("activation_function", *_GELU)
    raw.expect("scale_attn_weights", True)
    raw.expect("scale_attn_by_inverse_layer_idx", False)
    return Config(
        "gpt2",
        width,
        raw.count("n_layer", most=_MOST),
        heads,
        heads,
        width // heads,
        raw.count("n_inner", 4 * width),
        raw.count("vocab_size"),
        raw.count("n_positions"),
        raw.number("layer_norm_epsilon", 1e-5),
        tied=raw.flag("tie_word_embeddings", default=True),
        qkv_bias=True,
        activation="gelu_tanh",
        stop=raw.stop(),
    )


ENCODERS: Final = ("bert", "roberta", "xlm-roberta")
"""The architectures of encoders."""
_ACTIVATIONS: Final = {"gelu": "gelu", **dict.fromkeys(_GELU, "gelu_tanh"), "relu": "relu"}


def encoder_config_of(raw: Mapping[str, Any], source: str = "the configuration") -> EncoderConfig:
    """The configuration of an encoder with one score, of the entries of a `config.json`.

    Errors:
        ModelError: entries are missing or wrong, there is not one score, or the architecture is not
            one of `ENCODERS`.
    """
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in ENCODERS:
        raise unknown_architecture(family, ENCODERS, source, "others give no score here")
    _refuse_quantized(raw, source)
    entries = _Entries(raw, source)
    labels = entries.table("id2label")
    if (count := len(labels) or raw.get("num_labels", 2)) != 1:
        raise ModelError(
            f"{source} has {count!r:.20} labels, expected 1: a cross-encoder gives a pair of texts "
            "one score"
        )
    width, heads = entries.count("hidden_size"), entries.count("num_attention_heads")
    if width % heads:
        raise entries.wrong("num_attention_heads", f"a divisor of {width}")
    entries.expect("position_embedding_type", "absolute")
    for name in ("is_decoder", "add_cross_attention"):
        entries.expect(name, False)
    activation = entries.get("hidden_act") or "gelu"
    if activation not in _ACTIVATIONS:
        raise entries.wrong("hidden_act", f"one of {', '.join(_ACTIVATIONS)}")
    # Whatever becomes of scores, their order stays; words are never predicted here.
    entries.read |= {"sbert_ce_default_activation_function", "tie_word_embeddings"}
    first = 0 if family == "bert" else _token_of(entries, "pad_token_id", 1) + 1
    config = EncoderConfig(
        family,
        width,
        entries.count("num_hidden_layers", most=_MOST),
        heads,
        entries.count("intermediate_size"),
        entries.count("vocab_size"),
        entries.count("max_position_embeddings") - first,
        first,
        entries.count("type_vocab_size", 2),
        entries.number("layer_norm_eps", 1e-12),
        _ACTIVATIONS[activation],
    )
    if config.positions < 1:
        raise entries.wrong("max_position_embeddings", f"more than {first}")
    entries.unknown()
    return config


def _token_of(raw: _Entries, name: str, default: int) -> int:
    value = raw.present(name, default)
    if type(value) is not int or value < 0:
        raise raw.wrong(name, "a token")
    return value
