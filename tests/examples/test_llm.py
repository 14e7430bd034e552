"""Models of examples/llm beside plain NumPy, and requests together beside one by one."""

import json
import math
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.relax.frontend.nn.quantization import QUANTIZATIONS
from tests.examples.loading import load_example
from tests.fuzz.seed import COUNT, SEED

FOLDER = Path(__file__).parents[2] / "examples" / "llm"
EXAMPLE = load_example(FOLDER)
LanguageModel, Engine, Sampling = (
    EXAMPLE.model.LanguageModel,
    EXAMPLE.engine.Engine,
    EXAMPLE.sampling.Sampling,
)
ModelError, generate = EXAMPLE.config.ModelError, EXAMPLE.engine.generate

VOCABULARY = 41
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 96,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 4.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES, "rope_theta": 500.0, "rope_scaling": LLAMA3},
    "mistral": {"model_type": "mistral", **SIZES, "head_dim": 8, "sliding_window": None},
    "qwen2": {
        "model_type": "qwen2",
        **SIZES,
        "tie_word_embeddings": True,
        "rope_scaling": YARN,
        "sliding_window": 8,  # of which Qwen makes no use unless it says so
    },
    "qwen3": {
        "model_type": "qwen3",
        **SIZES,
        "head_dim": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    },
    "gemma": {"model_type": "gemma", **SIZES, "head_dim": 6, "tie_word_embeddings": True},
    "mixtral": {"model_type": "mixtral", **SIZES, "num_local_experts": 5, "num_experts_per_tok": 2},
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 20,  # heads of an odd size
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": VOCABULARY,
        "n_positions": 96,
    },
}
CONFIGS["gpt2, untied"] = {**CONFIGS["gpt2"], "tie_word_embeddings": False}


# --- the same models in NumPy, by the names of the files


def rotated(x: Any, raw: dict[str, Any]) -> Any:
    """Queries or keys (n, heads, d), rotated by their positions."""
    half = x.shape[-1] // 2
    rope = raw.get("rope_parameters") or {}
    standard = 1e6 if raw["model_type"] == "mixtral" else 10000.0
    theta = rope.get("rope_theta") or raw.get("rope_theta", standard)
    frequencies = theta ** -(np.arange(half) / half)
    scaling, magnitude = raw.get("rope_scaling") or {}, 1.0
    if "type" in scaling:  # YaRN
        low, high = (
            half
            * math.log(scaling["original_max_position_embeddings"] / (turns * 2 * math.pi))
            / math.log(theta)
            for turns in (scaling["beta_fast"], 1)
        )
        first, last = max(math.floor(low), 0), math.ceil(high)
        slowed = np.clip((np.arange(half) - first) / (last - first), 0, 1)
        frequencies *= slowed / scaling["factor"] + 1 - slowed
        magnitude = 0.1 * math.log(scaling["factor"]) + 1
    elif scaling:
        old, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        for k, frequency in enumerate(frequencies):
            length = 2 * math.pi / frequency
            if length > old / scaling["low_freq_factor"]:
                frequencies[k] = frequency / factor
            elif length >= old / scaling["high_freq_factor"]:
                smooth = (old / length - scaling["low_freq_factor"]) / (
                    scaling["high_freq_factor"] - scaling["low_freq_factor"]
                )
                frequencies[k] = (1 - smooth) * frequency / factor + smooth * frequency
    angles = np.outer(np.arange(len(x)), frequencies)[:, np.newaxis]
    first, second = x[..., :half], x[..., half:]
    cos, sin = magnitude * np.cos(angles), magnitude * np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention; groups of query heads share keys. All are (n, heads, d)."""
    n, heads, d = q.shape
    k, v = (np.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(d)
    scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", shares, v).reshape(n, heads * d)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def llama_scores(raw: dict[str, Any], w: dict[str, Any], ids: list[int]) -> Any:
    family, width, heads = raw["model_type"], raw["hidden_size"], raw["num_attention_heads"]
    d = raw.get("head_dim") or width // heads

    def norm(x: Any, name: str) -> Any:
        weight = w[name] + (family == "gemma")
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + raw["rms_norm_eps"]) * weight

    def mlp(x: Any, gate: str, up: str, down: str) -> Any:
        activate = gelu if family == "gemma" else silu
        return (activate(x @ w[gate].T) * (x @ w[up].T)) @ w[down].T

    x = w["model.embed_tokens.weight"][ids] * (math.sqrt(width) if family == "gemma" else 1)
    for layer in range(raw["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = norm(x, f"{at}input_layernorm.weight")
        q, k, v = (
            (
                y @ w[f"{at}self_attn.{p}_proj.weight"].T + w.get(f"{at}self_attn.{p}_proj.bias", 0)
            ).reshape(len(ids), -1, d)
            for p in "qkv"
        )
        if family == "qwen3":
            q, k = norm(q, f"{at}self_attn.q_norm.weight"), norm(k, f"{at}self_attn.k_norm.weight")
        x = x + attention(rotated(q, raw), rotated(k, raw), v) @ w[f"{at}self_attn.o_proj.weight"].T
        y = norm(x, f"{at}post_attention_layernorm.weight")
        if family == "mixtral":
            moe = f"{at}block_sparse_moe."
            gates = y @ w[f"{moe}gate.weight"].T
            for row, gate in enumerate(gates):
                best = np.argsort(-gate)[: raw["num_experts_per_tok"]]
                shares = np.exp(gate[best]) / np.exp(gate[best]).sum()
                for share, e in zip(shares, best, strict=True):
                    names = (f"{moe}experts.{e}.{m}.weight" for m in ("w1", "w3", "w2"))
                    x[row] += share * mlp(y[row], *names)
        else:
            x = x + mlp(y, *(f"{at}mlp.{m}_proj.weight" for m in ("gate", "up", "down")))
    head = "model.embed_tokens" if raw["tie_word_embeddings"] else "lm_head"
    return norm(x, "model.norm.weight") @ w[f"{head}.weight"].T


def gpt2_scores(raw: dict[str, Any], w: dict[str, Any], ids: list[int]) -> Any:
    def norm(x: Any, name: str) -> Any:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def product(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for layer in range(raw["n_layer"]):
        at = f"h.{layer}."
        parts = np.split(product(norm(x, f"{at}ln_1"), f"{at}attn.c_attn"), 3, axis=1)
        q, k, v = (p.reshape(len(ids), raw["n_head"], -1) for p in parts)
        x = x + product(attention(q, k, v), f"{at}attn.c_proj")
        hidden = gelu(product(norm(x, f"{at}ln_2"), f"{at}mlp.c_fc"))
        x = x + product(hidden, f"{at}mlp.c_proj")
    return norm(x, "ln_f") @ w.get("lm_head.weight", w["wte.weight"]).T


def weights_of(raw: dict[str, Any], seed: int) -> dict[str, Any]:
    """Random weights as the files of the family have them."""
    shapes: dict[str, tuple[int, ...]] = {}
    if raw["model_type"] == "gpt2":
        n = raw["n_embd"]
        shapes = {"wte.weight": (VOCABULARY, n), "wpe.weight": (raw["n_positions"], n)}
        if not raw.get("tie_word_embeddings", True):
            shapes["lm_head.weight"] = (VOCABULARY, n)
        norms = ["ln_f", *(f"h.{k}.{ln}" for k in range(raw["n_layer"]) for ln in ("ln_1", "ln_2"))]
        shapes |= {f"{name}.{kind}": (n,) for name in norms for kind in ("weight", "bias")}
        sizes = {"attn.c_attn": (n, 3 * n), "attn.c_proj": (n, n)}
        sizes |= {"mlp.c_fc": (n, 4 * n), "mlp.c_proj": (4 * n, n)}
        for layer in range(raw["n_layer"]):
            for name, shape in sizes.items():
                shapes[f"h.{layer}.{name}.weight"] = shape
                shapes[f"h.{layer}.{name}.bias"] = shape[1:]
    else:
        n, hidden = raw["hidden_size"], raw["intermediate_size"]
        d = raw.get("head_dim") or n // raw["num_attention_heads"]
        heads, kv = raw["num_attention_heads"] * d, raw["num_key_value_heads"] * d
        shapes = {"model.embed_tokens.weight": (VOCABULARY, n), "model.norm.weight": (n,)}
        if not raw["tie_word_embeddings"]:
            shapes["lm_head.weight"] = (VOCABULARY, n)
        for layer in range(raw["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            shapes |= {f"{at}{ln}_layernorm.weight": (n,) for ln in ("input", "post_attention")}
            for part, size in (("q", heads), ("k", kv), ("v", kv)):
                shapes[f"{at}self_attn.{part}_proj.weight"] = (size, n)
                if raw["model_type"] == "qwen2":
                    shapes[f"{at}self_attn.{part}_proj.bias"] = (size,)
                if raw["model_type"] == "qwen3" and part != "v":
                    shapes[f"{at}self_attn.{part}_norm.weight"] = (d,)
            shapes[f"{at}self_attn.o_proj.weight"] = (n, heads)
            if raw["model_type"] == "mixtral":
                moe = f"{at}block_sparse_moe."
                shapes[f"{moe}gate.weight"] = (raw["num_local_experts"], n)
                for e in range(raw["num_local_experts"]):
                    shapes |= {f"{moe}experts.{e}.{m}.weight": (hidden, n) for m in ("w1", "w3")}
                    shapes[f"{moe}experts.{e}.w2.weight"] = (n, hidden)
            else:
                shapes |= {f"{at}mlp.{m}_proj.weight": (hidden, n) for m in ("gate", "up")}
                shapes[f"{at}mlp.down_proj.weight"] = (n, hidden)
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * 0.4 + ("norm" in name or "ln_" in name)).astype(
            "float32"
        )
        for name, shape in shapes.items()
    }


def saved(folder: Path, family: str, seed: int = 0) -> dict[str, Any]:
    """Write a model as Hugging Face does; its weights."""
    from safetensors.numpy import save_file

    raw = CONFIGS[family]
    weights = weights_of(raw, seed)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(raw))
    return weights


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("safetensors")
    folder = tmp_path_factory.mktemp("llama")
    saved(folder, "llama")
    return LanguageModel.from_folder(folder, chunk=8, page=4, sequences=3)


@pytest.mark.each_choice
@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("target", ["native", "numpy"])
def test_scores_of_prompts_and_tokens_equal_numpy(family: str, target: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    weights = {name: w.astype("float64") for name, w in saved(tmp_path, family).items()}
    ids = np.random.default_rng(1).integers(0, VOCABULARY, 30).tolist()
    evaluate = gpt2_scores if family.startswith("gpt2") else llama_scores
    wanted = evaluate(CONFIGS[family], weights, ids)
    model = LanguageModel.from_folder(tmp_path, target=target, chunk=16, page=4)
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = []
    for start, end in [(0, 11), (11, 25), *((k, k + 1) for k in range(25, 30))]:
        found.append(model.run(cache, [0], [ids[start:end]], range(end - start)))
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("family", CONFIGS)
def test_greedy_tokens_equal_transformers(family: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("safetensors")
    saved(tmp_path, family)
    try:
        peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"transformers cannot load its own model here: {error}")
    prompt = np.random.default_rng(2).integers(0, VOCABULARY, 20).tolist()
    wanted = list(prompt)
    with torch.no_grad():
        for _ in range(20):
            wanted.append(int(peer(torch.tensor([wanted])).logits[0, -1].argmax()))
    model = LanguageModel.from_folder(tmp_path, chunk=8)
    assert generate(model, [prompt], max_tokens=20) == [wanted[20:]]


@pytest.mark.parametrize("options", [{"quantization": "q0f16"}, {"cache_dtype": "float16"}])
def test_scores_in_float16(options: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    weights = {name: w.astype("float64") for name, w in saved(tmp_path, "qwen3").items()}
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    wanted = llama_scores(CONFIGS["qwen3"], weights, ids)
    model = LanguageModel.from_folder(tmp_path, **options)
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = [model.run(cache, [0], [ids[:5]], range(5))]
    found += [model.run(cache, [0], [[token]], [0]) for token in ids[5:]]
    assert found[0].dtype == "float32"
    error = np.abs(np.concatenate(found) - wanted).max()
    assert error < 20 * 2**-11 * np.abs(wanted).max()


# --- the engine


class Failing(Sampling):
    """Raises `raised` in place of the choice of a token, the first after those in `left`."""

    def choose(self, scores: Any, before: Any, random: Any) -> int:
        self.left[0] -= 1
        if self.left[0] == 0:
            raise self.raised
        return super().choose(scores, before, random)


def failing(rng: random.Random, sampling: Any) -> Any:
    result = Failing(sampling.temperature, top_p=sampling.top_p, seed=sampling.seed)
    kind = rng.choice([ValueError, ZeroDivisionError, KeyboardInterrupt])
    result.__dict__.update(left=[rng.randint(1, 6)], raised=kind("no token"))
    return result


@pytest.mark.parametrize("number", range(max(3, COUNT // 10)))
def test_requests_together_get_the_tokens_that_they_get_alone(llama: Any, number: int) -> None:
    rng = random.Random(f"{SEED} {number}")
    start = [rng.randrange(VOCABULARY) for _ in range(12)]
    engine, requests, cancelled = Engine(llama), [], set()
    for _ in range(60):
        if rng.random() < 0.25 and len(requests) < 10:
            own = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 25))]
            prompt = start[: rng.randint(0, 12)] + own
            options = {
                "sampling": Sampling(rng.choice([0, 0, 0.8]), top_p=0.9, seed=rng.randrange(99)),
                "max_tokens": rng.randint(1, 20),
                "stop": {rng.randrange(VOCABULARY)},
            }
            sampling = options["sampling"]
            asked = failing(rng, sampling) if rng.random() < 0.3 else sampling
            request = engine.add(prompt, **{**options, "sampling": asked})
            requests.append((request, prompt, options))
        if requests and rng.random() < 0.05:
            chosen = rng.choice(requests)[0]
            if not chosen.done:
                cancelled.add(chosen)
            chosen.cancel()
        with suppress(KeyboardInterrupt):
            engine.step()
    while engine.waiting or engine.running:
        with suppress(KeyboardInterrupt):
            engine.run()
    for request, prompt, options in requests:
        (alone,) = generate(llama, [prompt], **options)
        tokens = request.tokens
        if request.error is not None:
            assert request.error is request.sampling.raised
            with pytest.raises(type(request.error), match="no token"):
                list(request)
        is_part = request in cancelled or request.error is not None
        assert tokens == (alone[: len(tokens)] if is_part else alone)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("odd", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_a_request_without_a_token_to_choose_ends_alone(
    llama: Any, temperature: float, odd: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, run = Engine(llama), llama.run
    options = {"max_tokens": 4, "sampling": Sampling(temperature, seed=1)}
    bad, good = (engine.add(prompt, **options) for prompt in ([1, 2], [3, 4]))

    def odd_scores(cache: Any, sequences: Any, ids: Any, rows: Any) -> Any:
        scores = np.array(run(cache, sequences, ids, rows))
        if bad.sequence in sequences and len(bad.tokens) == 2:
            row = list(sequences).index(bad.sequence)
            scores[row] = np.resize(odd, VOCABULARY)
        return scores

    with monkeypatch.context() as patched:
        patched.setattr(llama, "run", odd_scores)
        engine.run()
        with pytest.raises(ModelError, match="no token can be chosen: the best score is"):
            list(bad)
    assert [bad.tokens, good.tokens] == [
        tokens[:length]
        for tokens, length in zip(generate(llama, [[1, 2], [3, 4]], **options), (2, 4), strict=True)
    ]


def test_generate_raises_what_a_choice_raises(llama: Any) -> None:
    sampling = Failing()
    sampling.__dict__.update(left=[3], raised=ZeroDivisionError("no token"))
    with pytest.raises(ZeroDivisionError, match="no token"):
        generate(llama, [[1], [2]], sampling=sampling, max_tokens=3)


@pytest.mark.parametrize("option", ["sequences", "tokens", "chunk", "page"])
def test_limits_are_positive(option: str) -> None:
    config = EXAMPLE.config.config_of(CONFIGS["gpt2"])
    with pytest.raises(ModelError, match=f"{option} is a positive integer, found 0"):
        LanguageModel(config, {}, **{option: 0})


def test_a_call_that_fails_leaves_sequences_as_they_were(llama: Any) -> None:
    cache, found = llama.new_cache(), []
    for seq_id in range(2):
        llama.state("add_sequence", cache, seq_id)
        llama.run(cache, [seq_id], [[1, 2, 3]], [2])
        if seq_id:
            for ids, rows in (([[4, VOCABULARY]], [1]), ([[4, 5]], [7])):
                with pytest.raises(RuntimeCheckError, match="is outside dimension"):
                    llama.run(cache, [seq_id], ids, rows)
        found.append(llama.run(cache, [seq_id], [[6]], [0]))
    np.testing.assert_array_equal(*found)


def test_a_common_prefix_is_read_once(llama: Any) -> None:
    engine = Engine(llama)
    prompt = list(range(20))
    first = engine.add([*prompt, 30], max_tokens=2)
    engine.run()
    second = engine.add([*prompt, 31], max_tokens=2)
    engine.step()  # a chunk has 8 tokens: all of the prompt would take three steps
    assert len(second.tokens) == 1
    assert generate(llama, [first.prompt], max_tokens=2) == [first.tokens]


def test_tokens_come_one_by_one(llama: Any) -> None:
    engine = Engine(llama)
    request, other = engine.add([1, 2, 3], max_tokens=6), engine.add([4, 5], max_tokens=3)
    stream = iter(request)
    first = next(stream)
    assert request.tokens == [first]
    assert [first, *stream] == request.tokens
    assert len(request.tokens) == 6
    assert other.done


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("activation_function", "relu"),
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
    ],
)
def test_variants_of_gpt2_that_the_example_does_not_compute(entry: str, value: object) -> None:
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9, "n_positions": 16}
    raw = {"model_type": "gpt2", "activation_function": "gelu_new", **sizes}
    assert EXAMPLE.config.config_of(raw).activation == "gelu_tanh"
    with pytest.raises(ModelError, match=f"'{entry}': {value!r}, expected"):
        EXAMPLE.config.config_of({**raw, entry: value})


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "a prompt has at least one token"),
        ([3, VOCABULARY], {}, "the model has the tokens 0 to 40, found 41"),
        ([3], {"max_tokens": 0}, "chooses at least one token"),
        ([3], {"max_tokens": 2.5}, "tokens and their number are integers: 'float'"),
        ([3], {"stop": ["."]}, "tokens and their number are integers: 'str'"),
        ([3.0], {}, "tokens and their number are integers: 'float'"),
        ([3] * 90, {"max_tokens": 7}, "90 tokens and 7 more are too many: .* at most 96"),
    ],
)
def test_requests_that_cannot_be_run(
    llama: Any, prompt: list[Any], options: dict[str, Any], message: str
) -> None:
    engine = Engine(llama)
    with pytest.raises(ModelError, match=message):
        engine.add(prompt, **options)
    assert len(generate(llama, [[1]], max_tokens=2)[0]) == 2


# --- the choice of tokens


def test_sampling() -> None:
    scores = np.log([0.5, 0.3, 0.15, 0.05])
    np.testing.assert_allclose(Sampling(1.0).probabilities(scores), [0.5, 0.3, 0.15, 0.05])
    np.testing.assert_allclose(Sampling(1.0, top_k=2).probabilities(scores), [0.625, 0.375, 0, 0])
    np.testing.assert_allclose(Sampling(1.0, top_p=0.7).probabilities(scores), [0.625, 0.375, 0, 0])
    np.testing.assert_allclose(Sampling(1.0, top_p=0.1).probabilities(scores), [1, 0, 0, 0])
    np.testing.assert_allclose(Sampling(1e-320).probabilities(scores), [1, 0, 0, 0])
    hot = Sampling(2.0).probabilities(scores)
    np.testing.assert_allclose(hot, np.sqrt([0.5, 0.3, 0.15, 0.05]) / hot_sum())
    penalised = Sampling(repetition_penalty=4.0).probabilities([2.0, 1.0, -1.0], [0, 0])
    assert penalised.argmax() == 1
    negative = Sampling(1.0, repetition_penalty=2.0).probabilities([-1.0, -1.5], [0])
    np.testing.assert_allclose(negative, np.exp([-2, -1.5]) / np.exp([-2, -1.5]).sum())


def hot_sum() -> float:
    return float(np.sqrt([0.5, 0.3, 0.15, 0.05]).sum())


@pytest.mark.parametrize(
    "options",
    [
        *({"temperature": -1}, {"temperature": "hot"}, {"top_k": 0}, {"top_k": 2.5}, {"top_p": 0}),
        *({"top_p": 1.5}, {"repetition_penalty": 0}, {"seed": -1}, {"seed": "a"}),
    ],
)
def test_options_of_sampling_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Sampling(**options)


# --- folders that are not models


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(ModelError, match="there is no configuration"):
        LanguageModel.from_folder(tmp_path)
    config = tmp_path / "config.json"
    for text, message in [
        ("{", "is not JSON"),
        ("[]", "is not a table"),
        ('{"model_type": "bert"}', "of 'bert'; this example has llama, mistral"),
        ('{"model_type": "llama"}', "has no 'hidden_size'"),
        ("[" * 100000, "is not JSON"),
        ('{"model_type": ["llama"]}', r"of \['llama'\]; this example"),
        *(
            (json.dumps(CONFIGS["llama"] | entries), message)
            for entries, message in [
                ({"rope_scaling": {"type": "dynamic"}}, "scaled by 'dynamic'; .* llama3, yarn"),
                ({"rope_scaling": {"type": "yarn"}}, "of positions of .* has no 'factor'"),
                ({"rope_scaling": {**YARN, "truncate": 1}}, "'truncate': 1, expected true or"),
                ({"attention_bias": True}, "'attention_bias': True, expected False"),
                ({"mlp_bias": True}, "'mlp_bias': True, expected False"),
                ({"rope_scaling": {"type": "linear", "factor": "8"}}, "'8', expected a positive"),
                ({"rope_scaling": [8]}, "expected a table of names and values"),
                ({"vocab_size": 2**70}, "expected a positive integer of 31 bits"),
                ({"num_hidden_layers": True}, "'num_hidden_layers': True, expected a positive"),
                ({"rms_norm_eps": float("nan")}, "'rms_norm_eps': nan, expected a positive number"),
                ({"num_key_value_heads": 3}, "3 heads of keys, which do not divide"),
                ({"eos_token_id": ["a"]}, "expected a token or a list of them"),
                ({"tie_word_embeddings": "no"}, "'no', expected true or false"),
                ({"hidden_act": "relu"}, "'relu', expected 'silu' or 'swish'"),
            ]
        ),
    ]:
        config.write_text(text)
        with pytest.raises(ModelError, match=message):
            LanguageModel.from_folder(tmp_path)
    weights = saved(tmp_path, "llama")
    from safetensors.numpy import save_file

    del weights["model.norm.weight"]
    weights["extra"] = weights["lm_head.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FrontendError, match=r"(?s)model.norm.weight.*extra"):
        LanguageModel.from_folder(tmp_path)


WATCHED = """
import os, sys, runpy
if sys.argv.pop(1) == "absent":
    sys.modules["llvmlite"] = None
import relaxpy
compile = relaxpy.compile
def watched(*args, **options):
    compiled = compile(*args, **options)
    print(compiled.target)
    return compiled
relaxpy.compile = watched
command = sys.argv.pop(1)
sys.path.insert(0, os.path.dirname(command))
runpy.run_path(command, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("llvmlite", "variable", "option", "target"),
    [
        ("present", None, None, "native"),
        ("present", "numpy", None, "numpy"),
        ("present", "numpy", "native", "native"),
        ("absent", None, None, "numpy"),
    ],
)
def test_the_command_continues_token_numbers_on_each_target(
    llvmlite: str, variable: str | None, option: str | None, target: str, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    saved(tmp_path, "qwen3")
    command = [sys.executable, "-c", WATCHED, llvmlite, str(FOLDER / "main.py"), str(tmp_path)]
    command += ["--tokens", "3 1 4", "--max-tokens", "5"]
    env = {name: value for name, value in os.environ.items() if name != "RELAXPY_TARGET"}
    done = subprocess.run(
        command if option is None else [*command, "--target", option],
        env=env if variable is None else {**env, "RELAXPY_TARGET": variable},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    model = LanguageModel.from_folder(tmp_path, target=target)
    (wanted,) = generate(model, [[3, 1, 4]], max_tokens=5)
    compiled_for, tokens = done.stdout.splitlines()
    assert [int(token) for token in tokens.split()] == wanted
    assert compiled_for == target


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "error: there is no folder 'none'; `hf download OWNER/MODEL --local-dir"),
        ({"tokenizer.json": "{"}, "tokenizer.json is not a tokenizer: "),
        ({}, "tokenizer.json; --tokens takes numbers of tokens"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_folder(
    files: dict[str, str] | None, message: str, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers")
    folder = tmp_path if files is not None else "none"
    for name, text in (files or {}).items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, str(FOLDER / "main.py"), str(folder), "once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert message in done.stderr
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])  # one has its embedding as last layer
def test_scores_with_weights_in_few_bits(family: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    raw, weights = CONFIGS[family], saved(tmp_path, family)
    own = QUANTIZATIONS["q4f32_1"]
    rounded = {}
    for name, weight in weights.items():
        exchanged = family == "gpt2" and not name.startswith(("wte", "wpe"))
        rows = weight.T if exchanged else weight
        if weight.ndim == 2:
            packed, scale = own.quantize(np.ascontiguousarray(rows))
            integers = packed[..., np.newaxis] >> np.arange(0, 32, 4, dtype="uint32") & 15
            groups = integers.reshape(*scale.shape, 32).astype("float64") - 7
            decoded = (groups * scale[..., np.newaxis]).reshape(len(rows), -1)
            rows = decoded[:, : rows.shape[1]]
        rounded[name] = (rows.T if exchanged else rows).astype("float64")
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    wanted = (gpt2_scores if family == "gpt2" else llama_scores)(raw, rounded, ids)
    model = LanguageModel.from_folder(tmp_path, quantization="q4f32_1")
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = [model.run(cache, [0], [ids[:5]], range(5))]
    found += [model.run(cache, [0], [[token]], [0]) for token in ids[5:]]
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=2e-4, atol=2e-4)
