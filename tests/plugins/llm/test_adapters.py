"""Adapters (LoRA) beside models whose weights have their products."""

import gc
import json
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy.llm import ModelError, load
from relaxpy.plugins.llm.adapters import AdapterSet, adapters_memory, read_adapter
from relaxpy.plugins.llm.config import config_of
from tests.plugins.llm import tiny
from tests.plugins.llm.conftest import Running

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")
RAW = tiny.config(num_hidden_layers=1)
CONFIG = config_of(RAW, "config.json")
TARGETS = ("q_proj", "v_proj"), ("k_proj", "o_proj", "gate_proj", "down_proj", "lm_head")
ALPHAS, RANKS = (8, 5), (4, 3)
FACTORS = [tiny.lora(RAW, TARGETS[k], RANKS[k], seed=k + 1) for k in range(2)]
TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the model, of two adapters, and of models that have these merged."""
    root = tmp_path_factory.mktemp("adapters")
    found = {"none": tiny.write_folder(root / "none", RAW)}
    for k, factors in enumerate(FACTORS):
        found[f"a{k}"] = tiny.write_lora(root / f"a{k}", factors, ALPHAS[k])
        values = tiny.merged(RAW, factors, ALPHAS[k] / RANKS[k])
        found[f"m{k}"] = tiny.write_folder(root / f"m{k}", RAW, values)
    return found


@pytest.fixture(scope="module")
def adapted(places: dict[str, Path]) -> Any:
    """The model with both adapters."""
    return load(places["none"], target="numpy", adapters={k: places[k] for k in ("a0", "a1")})


@pytest.fixture(scope="module")
def alone(places: dict[str, Path]) -> list[Any]:
    """The model, and those with an adapter merged into their weights."""
    return [load(places[name], target="numpy") for name in ("none", "m0", "m1")]


def models_of(adapted: Any) -> list[Any]:
    return [adapted, adapted.adapted("a0"), adapted.adapted("a1")]


def tokens_of(models: Sequence[Any], text: str, count: int) -> list[list[int]]:
    """What models choose, of which those that share a batch run together."""
    started = [lm.start(lm.tokens(text), max_tokens=count, ignore_eos=True) for lm in models]
    while not all(one.request.done for one in started):
        for lm in models:
            lm.step()
    for one in started:
        assert one.request.error is None
    return [one.request.tokens for one in started]


def test_each_is_the_model_with_its_products_added(adapted: Any, alone: list[Any]) -> None:
    for lm, wanted in zip(models_of(adapted), alone, strict=True):
        np.testing.assert_allclose(lm.logits(TEXT), wanted.logits(TEXT), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(lm.embed(TEXT), wanted.embed(TEXT), rtol=1e-4, atol=1e-5)
        assert lm.generate(TEXT, max_tokens=20) == wanted.generate(TEXT, max_tokens=20)
    plain, first, second = (lm.logits(TEXT) for lm in alone)
    assert min(abs(plain - first).max(), abs(first - second).max()) > 1


def test_several_run_in_one_batch_and_share_no_prefix(adapted: Any, alone: list[Any]) -> None:
    wanted = tokens_of(alone, TEXT, 20)
    first, second, third = models_of(adapted)
    for _ in range(2):  # the second time, each prefix is in the cache
        order = [third, first, second, second, first, third]
        found = tokens_of(order, TEXT, 20)
        assert found == [wanted[k] for k in (2, 0, 1, 1, 0, 2)]
    request = second.start(second.tokens(TEXT), max_tokens=1).request
    second.step()
    assert request.shared == len(second.tokens(TEXT)) - 1
    assert {prefix.adapter for prefix in adapted.engine.kept} >= {
        None,
        *(lm._adapter.number for lm in (second, third)),
    }


def test_an_adapter_comes_and_goes_while_others_run(
    adapted: Any, alone: list[Any], places: dict[str, Path]
) -> None:
    adapted.add_adapter("late", places["a1"])
    with pytest.raises(ModelError, match="has an adapter 'late'"):
        adapted.add_adapter("late", places["a0"])
    late = adapted.adapted("late")
    assert late.name == f"{adapted.name}:late"
    one = late.start(late.tokens(TEXT), max_tokens=20, ignore_eos=True)
    late.step()
    adapted.remove_adapter("late")
    adapted.add_adapter("late", places["a0"])  # another one of the same name
    other = tokens_of([adapted.adapted("late")], TEXT, 20)[0]
    while not one.request.done:
        adapted.step()
    assert [one.request.tokens, other] == tokens_of([alone[2], alone[1]], TEXT, 20)
    gone = weakref.ref(late._adapter)
    adapted.remove_adapter("late")
    del late, one
    gc.collect()
    assert gone() is None
    with pytest.raises(ModelError, match="has no adapter 'late', but a0, a1"):
        adapted.adapted("late")


def test_a_server_chooses_adapters_by_names(
    alone: list[Any], adapted: Any, places: dict[str, Path], tmp_path: Path
) -> None:
    for package in ("starlette", "uvicorn", "httpx"):
        pytest.importorskip(package)
    import httpx

    server = Running(adapted)
    try:
        listed = httpx.get(f"{server.url}/v1/models").json()["data"]
        assert [one["id"] for one in listed] == ["none", "none:a0", "none:a1"]
        body = {"prompt": TEXT, "max_tokens": 9, "temperature": 0}
        for name, lm in zip(("none", "none:a0", "none:a1"), alone, strict=True):
            options: Any = {"json": {**body, "model": name}, "timeout": 60}
            found = httpx.post(f"{server.url}/v1/completions", **options).json()
            assert found["model"] == name
            assert found["choices"][0]["text"] == lm.generate(TEXT, max_tokens=9)
        adapted.add_adapter("late", places["a1"])
        options = {"json": {**body, "model": "none:late"}, "timeout": 60}
        found = httpx.post(f"{server.url}/v1/completions", **options).json()
        assert found["choices"][0]["text"] == alone[2].generate(TEXT, max_tokens=9)
        adapted.remove_adapter("late")
        assert httpx.post(f"{server.url}/v1/completions", **options).status_code == 404
    finally:
        server.stop()
    with pytest.raises(ModelError, match="has an adapter, which a library has not"):
        adapted.adapted("a0").export(tmp_path / "library.so")


def test_a_file_of_gguf_has_its_rows_in_another_order(
    tmp_path: Path, places: dict[str, Path]
) -> None:
    pytest.importorskip("gguf")
    for k, factors in enumerate(FACTORS):
        path = tiny.write_gguf_lora(tmp_path / f"{k}.gguf", RAW, factors, ALPHAS[k])
        wanted, found = (read_adapter(at, CONFIG, "float32") for at in (places[f"a{k}"], path))
        assert found.factors.keys() == wanted.factors.keys()
        for layer, own in wanted.factors.items():
            np.testing.assert_array_equal(found.factors[layer].down, own.down)
            np.testing.assert_allclose(found.factors[layer].up, own.up, rtol=1e-6)


def test_scales_are_those_of_peft(tmp_path: Path) -> None:
    def up(alpha: float, **entries: Any) -> Any:
        path = tiny.write_lora(tmp_path / "scaled", FACTORS[0], alpha, **entries)
        return read_adapter(path, CONFIG, "float32").factors["blocks.0.attention.qkv"].up

    one = up(RANKS[0])
    for given, scale in (
        ({"alpha": 12}, 3),
        ({"alpha": 12, "use_rslora": True}, 6),
        ({"alpha": 12, "alpha_pattern": {"layers.0.self_attn.q_proj": 2}}, 0.5),
    ):
        np.testing.assert_allclose(up(**given)[0], scale * one[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("entries", "changed", "message"),
    [
        ({"use_dora": True}, {}, "has use_dora, which is not supported"),
        ({"modules_to_save": ["lm_head"]}, {}, "has modules_to_save, which"),
        ({"peft_type": "IA3"}, {}, "has the peft_type 'IA3', expected LORA"),
        ({"bias": "all"}, {}, "has biases, which"),
        ({"lora_alpha": "8"}, {}, "has no numbers as lora_alpha"),
        ({"lora_alpha": 10**400}, {}, "has no numbers as lora_alpha"),
        ({"lora_alpha": 1e300}, {}, "has infinities or NaN"),
        ({"init_lora_weights": "pissa_niter_4"}, {}, "which changes the weights of the model"),
        ({"alpha_pattern": {".*q_proj": 2}}, {}, "has the alpha_pattern '.*q_proj', expected a"),
        (
            {},
            {
                "model.layers.0.self_attn.q_proj.lora_A": (0, 64),
                "model.layers.0.self_attn.q_proj.lora_B": (64, 0),
            },
            "has not two matrices",
        ),
        ({}, {"model.layers.0.self_attn.q_proj.lora_A": (4, 63)}, "does not fit this model: "),
        ({}, {"model.layers.0.self_attn.q_proj.lora_B": (64, 5)}, "does not fit this model: "),
        ({}, {"model.layers.9.self_attn.q_proj.lora_A": (4, 64)}, "has not two matrices"),
        (
            {},
            {"model.layers.0.self_attn.q_proj.lora_magnitude": (64,)},
            "expected factors of layers",
        ),
        (
            {},
            {
                "model.embed_tokens.lora_A": (4, RAW["vocab_size"]),
                "model.embed_tokens.lora_B": (64, 4),
            },
            "adapts what is not a linear layer of this model: model.embed_tokens",
        ),
    ],
)
def test_what_is_no_adapter_of_a_model_is_refused(
    tmp_path: Path, entries: Any, changed: Any, message: str
) -> None:
    factors = dict(FACTORS[0])
    for name, shape in changed.items():
        factors[f"base_model.model.{name}.weight"] = np.zeros(shape, "float32")
    path = tiny.write_lora(tmp_path / "bad", factors, 8, **entries)
    with pytest.raises(ModelError, match=message):
        read_adapter(path, CONFIG, "float32")


def test_files_that_are_damaged_are_refused(tmp_path: Path, places: dict[str, Path]) -> None:
    odd = {name: np.full_like(value, np.nan) for name, value in FACTORS[0].items()}
    for path, message in (
        (tiny.write_lora(tmp_path / "odd", odd, 8), "has infinities or NaN"),
        (tiny.write_lora(tmp_path / "empty", {}, 8), r"has no factors \(lora_A and lora_B\)"),
        (places["none"], r"adapter_config\.json"),
        (places["none"] / "model.safetensors", "GGUF"),
        (tmp_path / "none", "there is no adapter"),
        (Path("x" * 5000), "there is no adapter"),
    ):
        with pytest.raises((ModelError, ValueError, FileNotFoundError), match=message):
            read_adapter(path, CONFIG, "float32")
    (tmp_path / "odd" / "adapter_config.json").write_text(json.dumps([1]))
    with pytest.raises(ModelError, match="is not a table of names and values"):
        read_adapter(tmp_path / "odd", CONFIG, "float32")


def test_the_memory_of_adapters_counts_what_those_in_one_batch_need(
    places: dict[str, Path],
) -> None:
    own = [read_adapter(places["a0"], CONFIG, "float32") for _ in range(2)]
    layers = {
        name: (len(f.down), f.down.shape[2], f.up.shape[2]) for name, f in own[0].factors.items()
    }
    alone = AdapterSet(own[:1]).values(layers, "float32")
    for layer, factors in own[0].factors.items():
        assert np.shares_memory(alone[f"{layer}.lora_a"], factors.down)
        assert np.shares_memory(alone[f"{layer}.lora_b"], factors.up)
    together = AdapterSet(own).values(layers, "float32")
    whole = sum(one.nbytes for one in own) + sum(value.nbytes for value in together.values())
    assert adapters_memory(own) == whole
    assert adapters_memory(own[:1]) == own[0].nbytes


def test_names_of_adapters(adapted: Any, places: dict[str, Path]) -> None:
    for name in ("", "a/b", "a:b", "latest", "../x", 3):
        with pytest.raises(ModelError, match="the name of an adapter has letters"):
            adapted.add_adapter(name, places["a0"])
    with pytest.raises(FileNotFoundError):
        adapted.add_adapter("bad", places["a0"] / "none")
    with pytest.raises(TypeError, match="expected the path of an adapter, found 3"):
        load(places["none"], target="numpy", adapters={"bad": 3})  # type: ignore[dict-item]
    assert adapted.adapters == ["a0", "a1"]


def test_native_programs_and_packed_weights(places: dict[str, Path]) -> None:
    """What is added to packed weights is what is added to the same weights that are not packed."""
    pytest.importorskip("llvmlite")
    models = [
        load(places["none"], quantize="q4f16_1", target=target, adapters={"a0": places["a0"]})
        for target in ("native", "numpy")
    ]
    found, wanted = (lm.adapted("a0").logits(TEXT) for lm in models)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.15)
    assert abs(wanted - models[1].logits(TEXT)).max() > 1


@pytest.mark.filterwarnings("ignore")  # of these packages about each other
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "gemma3_text", "phi3"])
def test_what_peft_saves(family: str, tmp_path: Path) -> None:
    """The same tokens as those of transformers with the adapter."""
    peft = pytest.importorskip("peft")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    own: dict[str, Any] = {
        "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256},
        "gemma3_text": {**sizes, "num_key_value_heads": 2, "head_dim": 16},
        "phi3": {**sizes, "pad_token_id": 0},
    }
    config = transformers.AutoConfig.for_model(
        family,
        vocab_size=tiny.tokenizer().get_vocab_size(),
        **own.get(family, {**sizes, "num_key_value_heads": 2}),
        **({} if family == "gpt2" else {"intermediate_size": 96, "max_position_embeddings": 256}),
    )
    base = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for param in base.parameters():
            param.mul_(3)  # so that tokens differ
    folder = tmp_path / "base"
    base.save_pretrained(folder)
    tiny.tokenizer().save(str(folder / "tokenizer.json"))
    lora = peft.LoraConfig(r=4, lora_alpha=7, target_modules="all-linear", use_rslora=True)
    model = peft.get_peft_model(base, lora).eval()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "lora_" in name:
                param.normal_(0, 0.2)
    model.save_pretrained(tmp_path / "lora")
    lm = load(folder, target="numpy", adapters={"own": tmp_path / "lora"}).adapted("own")
    ids = lm.tokens(TEXT)
    with torch.no_grad():
        given = torch.tensor([ids])
        wanted = model(given).logits[0].numpy()
        known = {"input_ids": given, "attention_mask": torch.ones_like(given)}
        whole = model.generate(**known, max_new_tokens=16, do_sample=False, eos_token_id=None)
    np.testing.assert_allclose(lm.logits(TEXT), wanted, rtol=1e-3, atol=1e-3 * abs(wanted).max())
    assert tokens_of([lm], TEXT, 16) == [whole[0, len(ids) :].tolist()]
