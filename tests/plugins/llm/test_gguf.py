"""Files of GGUF, written by the package gguf, beside folders with the same weights."""

import math
import random
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RelaxpyError
from relaxpy.llm import CompiledDecoder, ModelError, config_of, load
from relaxpy.plugins.llm.decoders import Decoder
from relaxpy.plugins.llm.files import open_model
from relaxpy.plugins.llm.gguf import _GPT2, _NAMES, ARCHITECTURES, config_of_gguf, names_in_gguf
from relaxpy.plugins.llm.packed import FORMATS, PackedWeight, packed_as
from relaxpy.plugins.llm.tokens import Metadata, TextStream, tokenizer_of_metadata
from relaxpy.plugins.weights.files import Header, read_header
from relaxpy.relax.frontend.weights import load_weights
from relaxpy.target import Target
from tests.plugins.llm import tiny
from tests.plugins.llm.test_models import CONFIGS, llama_scores, weights_of

gguf = pytest.importorskip("gguf")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")
TEXT = "the cat sat on the mat"
SMALL = {"num_hidden_layers": 1}
#: Blocks of 256 elements.
WIDE = {"num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 256, "head_dim": 64}


TIED = {"tie_word_embeddings": True}


@pytest.mark.parametrize(
    ("kind", "entries", "others", "packed"),
    [
        ("Q8_0", SMALL, {}, 6),
        ("Q8_0", {**SMALL, **TIED}, {}, 5),
        ("Q4_0", SMALL, {}, 6),
        ("Q4_1", {**SMALL, **TIED}, {"lm_head": "Q8_0"}, 5),
        ("Q5_0", SMALL, {"o_proj": "Q5_1", "gate_proj": "F16"}, 5),
        ("Q4_K", WIDE, {}, 6),
        # As the mixtures that are named Q4_K_M have it.
        ("Q4_K", {**WIDE, **TIED}, {"v_proj": "Q6_K", "down": "Q6_K", "embed": "Q6_K"}, 5),
        ("Q4_K", {**WIDE, **TIED}, {"k_proj": "Q5_0", "up_proj": "Q5_K"}, 5),
    ],
)
def test_scores_of_packed_weights(kind, entries, others, packed, tmp_path) -> None:
    raw, ids = tiny.config(**entries), [0, *range(5, 40, 3)]
    stored = tiny.write_gguf(tmp_path / "m.gguf", raw, tiny.weights(raw), kind, others)
    files = open_model(tmp_path / "m.gguf")
    decoder = CompiledDecoder(
        files.config, files.weights, names=files.names, packed=files.packed, context=64
    )
    assert decoder.packed_layers == packed
    assert (files.note is None) == ("F16" not in others.values())
    cache = decoder.new_cache()
    decoder.state("add_sequence", cache, 0)
    found = [decoder.run(cache, [0], [ids[:-1]], range(len(ids) - 1))]
    found.append(decoder.run(cache, [0], [ids[-1:]], [0]))
    wanted = llama_scores(raw, {name: w.astype("float64") for name, w in stored.items()}, ids)
    error = np.abs(np.concatenate(found) - wanted).max()
    assert error < 1e-4 * np.abs(wanted).max()


def test_quantize_keeps_packed_weights_of_as_many_bits(tmp_path: Path) -> None:
    """So activations alone are rounded: the scores are near those of float32."""
    raw, ids = tiny.config(**WIDE, **TIED), [0, *range(5, 40, 3)]
    path = tmp_path / "m.gguf"
    others = {"o_proj": "Q4_0", "embed": "Q4_1"}
    stored = tiny.write_gguf(path, raw, tiny.weights(raw), "Q4_K", others)
    own = {name: w.astype("float64") for name, w in stored.items()}
    wanted = llama_scores(raw, own, ids)
    rounded = load(path, quantize="w4a8f32")
    assert rounded.decoder.packed_layers == 5
    found = rounded.logits(ids)
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert 1e-3 < error < 0.05
    slow = load(path, quantize="w4a8f32", target="numpy")
    np.testing.assert_allclose(slow.logits(ids), found, rtol=0, atol=0.01 * np.abs(found).max())
    for layer, weight in open_model(path).packed.items():
        for name, value in weight.read().items():
            np.testing.assert_array_equal(rounded.decoder.values[f"{layer}.{name}"], value)
    tiny.write_gguf(path, raw, tiny.weights(raw), "Q4_K", {"v_proj": "Q6_K"})
    packed = open_model(path).packed
    four = packed.keys() - {"blocks.0.attention.qkv"}
    assert packed_as("w4a8f32", packed).keys() == packed_as("q4f32_1", packed).keys() == four
    assert not packed_as("q8f32_1", packed)
    assert not packed_as("q4f16_1", packed)


@pytest.mark.parametrize("entered", [False, True])
def test_packed_weights_are_float32_on_numpy(entered: bool, tmp_path: Path) -> None:
    raw, ids = tiny.config(**SMALL), [0, *range(5, 40, 3)]
    stored = tiny.write_gguf(tmp_path / "m.gguf", raw, tiny.weights(raw), "Q4_0")
    if entered:
        with Target("numpy"):
            slow = load(tmp_path / "m.gguf")
    else:
        slow = load(tmp_path / "m.gguf", target="numpy")
    assert (slow.decoder.target, slow.decoder.packed_layers) == ("numpy", 0)
    [note] = slow.notes
    assert "runs on NumPy, in float32, to which all packed weights are widened" in note
    wanted = llama_scores(raw, {name: w.astype("float64") for name, w in stored.items()}, ids)
    np.testing.assert_allclose(slow.logits(ids), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q2_K", "Q3_K"])
def test_other_weights_are_those_of_the_folder(kind: str, tmp_path: Path) -> None:
    raw = tiny.config(**WIDE)
    stored = tiny.write_gguf(tmp_path / "m.gguf", raw, tiny.weights(raw), kind)
    folder = open_model(tiny.write_folder(tmp_path / "m", raw, stored))
    file = open_model(tmp_path / "m.gguf")
    assert file.packed == {}
    model: Any = Decoder(file.config)
    found = load_weights(file.weights, model, file.names)
    for name, value in load_weights(folder.weights, model, folder.names).items():
        np.testing.assert_array_equal(found[name], value)
    if kind[-1] == "K":
        assert f"tensors 9 of {kind}; --quantize q4f32_1" in str(file.note)
    else:
        assert file.note is None


def test_a_file_is_a_model(lm: Any, tmp_path: Path) -> None:
    raw = tiny.config()
    tiny.write_gguf(tmp_path / "own.gguf", raw, tiny.weights(raw), "F32")
    own = load(tmp_path / "own.gguf")
    messages = [{"role": "user", "content": "hello, ünï 123!"}]
    assert own.name == "own"
    assert own.tokens(messages) == lm.tokens(messages)
    assert own.tokens("  the  cat\n 🎉") == lm.tokens("  the  cat\n 🎉")
    assert own.generate(messages, max_tokens=8) == lm.generate(messages, max_tokens=8)
    assert own.ends == lm.ends


@pytest.mark.parametrize("kind", FORMATS)
def test_packed_weights_keep_the_values_of_the_file(kind: str, tmp_path: Path) -> None:
    """Random blocks; the sum of a product and an offset is rounded once more or less."""
    rng, wanted = np.random.default_rng(0), gguf.GGMLQuantizationType[kind]
    size = gguf.GGML_QUANT_SIZES[wanted][1]
    blocks = rng.integers(0, 256, (6, 3, size), dtype=np.uint8)
    for place in tiny.SCALES[kind]:
        drawn = rng.standard_normal((6, 3, 1)).astype("<f2")
        blocks[..., place : place + 2] = drawn.view(np.uint8)
    flat = blocks.reshape(6, -1)
    part: Any = SimpleNamespace(blocks=lambda: flat, kind=SimpleNamespace(name=kind))
    weight = PackedWeight.of([part], lambda array: array)
    assert weight is not None
    found = weight.read()
    values = gguf.quants.dequantize(flat, wanted)
    own = weight.quantization.dequantize(found["q_weight"], found["q_scale"], values.shape[1])
    if weight.has_offset:
        own = own + np.repeat(found["q_offset"], weight.quantization.group, axis=1)
        np.testing.assert_allclose(own, values, rtol=0, atol=4e-7 * np.abs(values).max())
    else:
        np.testing.assert_array_equal(own, values)


def test_layers_of_other_formats_are_not_packed() -> None:
    parts: Any = [SimpleNamespace(kind=SimpleNamespace(name=kind)) for kind in ("Q4_K", "Q3_K")]
    assert PackedWeight.of(parts, lambda *arrays: arrays) is None


# --- configurations of other architectures


def header_of(
    path: Path, arch: str, entries: dict[str, Any], shape: Any = (40, 16), freqs: Any = None
) -> Any:
    """The header of a file with these entries below the name of the architecture."""
    writer = gguf.GGUFWriter(path, arch)
    for name, value in entries.items():
        if isinstance(value, bool):
            writer.add_bool(f"{arch}.{name}", value)
        elif isinstance(value, str):
            writer.add_string(f"{arch}.{name}", value)
        elif isinstance(value, list):
            writer.add_array(f"{arch}.{name}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{name}", value)
        else:
            writer.add_uint32(f"{arch}.{name}", value)
    writer.add_tensor("token_embd.weight", np.zeros(shape, "float32"))
    rotated = entries.get("rope.dimension_count") or COMMON["attention.key_length"]
    count = int(rotated // 2) if freqs is None else len(freqs)
    values = np.ones(count, "float32") if freqs is None else freqs
    if count:
        writer.add_tensor("rope_freqs.weight", values)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    return read_header(path)


COMMON = {
    "context_length": 64,
    "embedding_length": 16,
    "block_count": 6,
    "feed_forward_length": 24,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 8,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 5000.0,
}


@pytest.mark.parametrize(
    ("arch", "entries", "wanted"),
    [
        ("llama", {}, {"family": "llama", "theta": 5000.0, "rope_factors": (1.0,) * 4}),
        (
            "llama",
            {"expert_count": 4, "expert_used_count": 2},
            {"family": "mixtral", "experts": 4, "chosen_experts": 2},
        ),
        ("qwen2", {}, {"qkv_bias": True, "tied": True}),
        ("qwen3", {}, {"qk_norm": True, "head_dim": 8}),
        (
            "qwen3moe",
            {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 12},
            {"hidden": 12, "chosen_sum_to_one": True},
        ),
        ("gemma", {}, {"norm_offset": 0.0, "embedding_scale": 4.0, "activation": "gelu_tanh"}),
        (
            "gemma2",
            {
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
                "attention.sliding_window": 12,
            },
            {
                "score_cap": 50.0,
                "logit_cap": 30.0,
                "window": 12,
                "sliding": (True, False) * 3,
                "score_scale": 8**-0.5,
            },
        ),
        (
            "gemma3",
            {"attention.sliding_window": 12},
            {"local_theta": 1e4, "sliding": (True,) * 5 + (False,), "qk_norm": True},
        ),
        (
            "gemma3",
            {"attention.sliding_window": 12, "attention.sliding_window_pattern": 3},
            {"sliding": (True, True, False) * 2},
        ),
        (
            "gemma3",
            {
                "attention.sliding_window": 12,
                "attention.sliding_window_pattern": [True, False, False] * 2,
            },
            {"sliding": (True, False, False) * 2},
        ),
        ("llama", {"attention.scale": 0.5}, {"score_scale": 0.5}),
        ("qwen3", {"pooling_type": 3}, {"pooling": "last"}),
        ("phi3", {"rope.dimension_count": 4}, {"rotated": 4}),
    ],
)
def test_configurations_of_metadata(arch, entries, wanted, tmp_path) -> None:
    header = header_of(tmp_path / "m.gguf", arch, COMMON | entries)
    config = config_of_gguf(header, "m.gguf")
    common = {"width": 16, "layers": 6, "heads": 4, "kv_heads": 2, "vocabulary": 40}
    assert {name: getattr(config, name) for name in common | wanted} == common | wanted


@pytest.mark.parametrize(
    ("arch", "entries", "message"),
    [
        ("mamba", {}, "architecture 'mamba', expected one of llama, qwen2"),
        ("llama", {"embedding_length": 0}, "'hidden_size': 0, expected a positive integer"),
        ("llama", {"attention.head_count": 3.5}, "'num_attention_heads': 3.5, expected"),
        ("llama", {"rope.dimension_count": 4}, "rotates 4 elements of heads of 8"),
        ("qwen2", {"attention.key_length": 2**31}, "'head_dim': 2147483648, expected"),
        ("qwen2", {"attention.causal": False}, "has qwen2.attention.causal: False, which is not s"),
        ("qwen3", {"pooling_type": 4}, "has qwen3.pooling_type: 4, which is not supported"),
        ("gemma2", {"attention.sliding_window_pattern": 6}, "sliding_window_pattern: 6, which"),
        ("llama", {"rope.scaling.factor": 2.0}, "scales positions by metadata and by rope_freqs"),
    ],
)
def test_metadata_that_are_no_configuration(arch, entries, message, tmp_path) -> None:
    header = header_of(tmp_path / "m.gguf", arch, COMMON | entries)
    with pytest.raises(ModelError, match=message):
        config_of_gguf(header, "m.gguf")


SCALED = {"rope.scaling.factor": 4.0, "rope.scaling.type": "yarn"}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64.0,
    "attention_factor": pytest.approx(1 + 0.1 * math.log(4)),
    "truncate": True,
}


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        ({}, {}),
        # As llama.cpp reads them: without a type it is linear, and the first name is an old one.
        ({"rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scaling.factor": 4.0, "rope.scale_linear": 2.0}, {"factor": 4.0}),
        ({"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}, {}),
        (SCALED, YARN),
        (
            SCALED | {"rope.scaling.original_context_length": 16},
            {"original_max_position_embeddings": 16.0},
        ),
        (
            SCALED | {"rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 2.0},
            YARN | {"beta_fast": 8.0, "beta_slow": 2.0},
        ),
        (
            SCALED | {"rope.scaling.attn_factor": 0.5, "rope.scaling.yarn_attn_factor": 3.0},
            {"attention_factor": pytest.approx(1.5 * (1 + 0.1 * math.log(4)))},
        ),
    ],
)
def test_scalings_of_positions_as_llama_cpp_reads_them(entries, wanted, tmp_path) -> None:
    header = header_of(tmp_path / "m.gguf", "llama", COMMON | entries, freqs=[])
    found = config_of_gguf(header, "m.gguf").rope_scaling
    assert {name: found.get(name) for name in wanted} == wanted
    assert bool(found) == bool(wanted)


@pytest.mark.parametrize(
    ("freqs", "message"),
    [
        (np.zeros(4, "float32"), "other values than positive numbers in rope_freqs.weight"),
        (np.array([1, 1, np.nan, 1], "float32"), "other values than positive numbers"),
        (np.ones(3, "float32"), "m.gguf has 3 factors of positions, expected 4"),
    ],
)
def test_factors_of_positions_that_are_none(freqs: Any, message: str, tmp_path: Path) -> None:
    header = header_of(tmp_path / "m.gguf", "llama", COMMON, freqs=freqs)
    with pytest.raises(ModelError, match=message):
        config_of_gguf(header, "m.gguf")


NO_EFFECT = {
    "vocab_size": "the rows of the embedding are counted",
    "tensor_data_layout": "llama has one",
    "decoder_start_token_id": "there is no encoder",
    "attention.layer_norm_epsilon": "all but GPT-2 have the other norm",
    "attention.layer_norm_rms_epsilon": "GPT-2 has the other norm",
    "rope.scaling.finetuned": "of training",
    "rope.scaling.original_context_length": "of a scaling that there is none of",
    "rope.scaling.type": "yarn and others need a factor, which is an error",
    "rope.scaling.yarn_beta_fast": "of yarn",
    "rope.scaling.yarn_beta_slow": "of yarn",
    "rope.freq_base": "GPT-2 has no rotation",
    "expert_feed_forward_length": "of experts",
    "expert_used_count": "of experts",
    "expert_gating_func": "1 is softmax",
    "attention.sliding_window": "these have none",
    "attention.sliding_window_pattern": "of windows",
    "rope.dimension_count": "GPT-2 has no rotation",
    "attention.head_count_kv": "GPT-2 has as many as of queries",
    "feed_forward_length": "of layers that are no experts",
    "rope.scaling.yarn_ext_factor": "of yarn",
    "expert_weights_norm": "it is the standard",
}
"""Metadata that change nothing for some architectures, and why."""
NAMED: Any = {
    "attention.head_count": ["heads of keys", "attention.key_length"],
    "embedding_length": ["n_head", "attention.key_length"],
    "attention.head_count_kv": ["heads of keys"],
    "rope.dimension_count": ["rotates"],
    "rope.scaling.type": ["positions of m.gguf are scaled by", "rope.scaling.factor"],
    "expert_used_count": ["chooses 7 of 4 experts"],
    "rope.freq_base_swa": ["'base'"],
    "attention.sliding_window_pattern": ["sliding_window_pattern", "layer_types"],
}
"""How errors name metadata: by the entries of a config.json, or in words."""
KEYS = sorted(
    key.removeprefix("{arch}.")
    for group in vars(gguf.Keys).values()
    if isinstance(group, type)
    for key in vars(group).values()
    if isinstance(key, str) and key.startswith("{arch}.") and "{" not in key[6:]
)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_metadata_of_llama_cpp_are_read_or_refused(arch: str, tmp_path: Path) -> None:
    """Whatever changes a model there changes it here, or is an error that names it."""
    common = COMMON | {"attention.layer_norm_epsilon": 1e-5}
    if arch == "gpt2":
        common |= {"attention.key_length": 4, "attention.head_count_kv": 4}
    if arch == "qwen3moe":
        common |= {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 12}
    if arch.startswith("gemma") and arch != "gemma":
        common |= {"attention.sliding_window": 12}

    written = header_of(tmp_path / "m.gguf", arch, common, freqs=[])

    def found(entries: dict[str, Any]) -> Any:
        given = {
            f"{arch}.{name}": np.array(value) if isinstance(value, list) else value
            for name, value in entries.items()
        }
        return config_of_gguf(Header(written.metadata | given, written.tensors), "m.gguf")

    plain, ignored = found({}), set()
    assert len(KEYS) > 90
    for key in KEYS:
        for value in (7, 0.75, key != "attention.causal", "yarn", [1, 0, 1, 0, 1, 0]):
            message = ""
            try:
                config = found({key: value})
            except RelaxpyError as error:
                message = str(error)
            names = [key, *NAMED.get(key, ()), *_NAMES.get(key, ())]
            names += [ours for ours, theirs in _GPT2.items() if theirs == key]
            assert not message or any(name in message for name in names), (key, value, message)
            if value is not True and not message and config == plain and common.get(key) != value:
                ignored.add(key)
    assert not ignored - NO_EFFECT.keys()


def test_files_of_gemma3_may_name_bases_otherwise_and_have_a_part_for_images(tmp_path) -> None:
    common = COMMON | {"attention.sliding_window": 12}
    common.pop("rope.freq_base", None)
    bases = {"rope.global.freq_base": 5e5, "rope.local.freq_base": 2e4}
    images = {"vision.block_count": 27, "mm.tokens_per_image": 256}

    def found(entries: dict[str, Any]) -> Any:
        header = header_of(tmp_path / "m.gguf", "gemma3", common | entries, freqs=[])
        return config_of_gguf(header, "m.gguf")

    assert found(images) == found({})
    assert found(bases) == found({"rope.freq_base": 5e5, "rope.freq_base_swa": 2e4}) != found({})


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_tensors_have_the_names_of_llama_cpp(arch: str) -> None:
    """Those that the package gives the tensors of transformers."""
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.TensorNameMap(numbers[arch], 8)
    raw = CONFIGS[ARCHITECTURES[arch]]
    wanted = {
        table.get_name(re.sub(r"experts\.\d+", "experts", name), (".weight", ".bias"))
        for name in weights_of(raw, 0)
    }
    plain = SimpleNamespace(kind=SimpleNamespace(name="F32"))
    header: Any = SimpleNamespace(tensors=dict.fromkeys(wanted, plain))
    names, _ = names_in_gguf(config_of(raw), header)
    found = [own if isinstance(own, str) else own[0] for own in names.values()]
    assert {n for own in found for n in ([own] if isinstance(own, str) else own)} == wanted
    assert names.keys() == Decoder(config_of(raw)).state_dict().keys()  # type: ignore[attr-defined]


# --- models in several files


def split(folder: Path, raw: dict[str, Any], name: str = "m-{:05}-of-00003.gguf") -> list[Path]:
    """The parts of a model, as llama-gguf-split writes them."""
    whole = folder / "whole.gguf"
    tiny.write_gguf(whole, raw, tiny.weights(raw), "F32")
    header, paths = read_header(whole), []
    tensors = list(header.tensors.items())
    for part in range(3):
        path = folder / name.format(part + 1)
        writer = gguf.GGUFWriter(path, "llama")
        if part == 0:
            reader = gguf.GGUFReader(whole)
            for field in reader.fields.values():
                if "." in field.name and field.name != "general.architecture":
                    kinds = field.types[1] if len(field.types) > 1 else None
                    writer.add_key_value(field.name, field.contents(), field.types[0], kinds)
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", 3)
        writer.add_int32("split.tensors.count", len(tensors))
        for tensor_name, tensor in tensors[part::3]:
            writer.add_tensor(tensor_name, tensor.entry().read())
        for step in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{step}_to_file")()
        writer.close()
        paths.append(path)
    return paths


def test_a_model_in_parts_is_that_of_one_file(tmp_path: Path) -> None:
    raw = tiny.config(**SMALL)
    paths, whole = split(tmp_path, raw), open_model(tmp_path / "whole.gguf")
    for path in paths:
        found = open_model(path)
        assert (found.name, found.config) == ("m", whole.config)
        assert not found.config.tied
        assert found.weights.keys() == whole.weights.keys()
        for name in whole.weights:
            np.testing.assert_array_equal(found.weights[name], whole.weights[name])
        assert found.tokenizer().encode(TEXT) == whole.tokenizer().encode(TEXT)


def test_parts_that_are_missing_or_do_not_belong_together(tmp_path: Path) -> None:
    raw = tiny.config(**SMALL)
    first, second, third = split(tmp_path, raw)
    renamed = tmp_path / "first.gguf"
    renamed.write_bytes(first.read_bytes())
    with pytest.raises(
        ModelError, match=r"first\.gguf is one of 3 parts .* NAME-00001-of"
    ) as caught:
        open_model(renamed)
    assert "llama-gguf-split --merge" in str(caught.value)
    kept = second.read_bytes()
    second.write_bytes(third.read_bytes())
    with pytest.raises(ModelError, match=r"m-00002-of-00003\.gguf is not part 2 of 3 of one model"):
        open_model(first)
    second.unlink()
    with pytest.raises(ModelError, match=r"is part 3 of 3: there is no .*m-00002-of-00003\.gguf"):
        open_model(third)
    second.write_bytes(kept)
    assert open_model(third).name == "m"


def test_a_file_of_the_other_byte_order_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    with pytest.raises(RelaxpyError, match=r"the other byte order \(big-endian\)"):
        open_model(path)


def test_files_that_are_no_models_say_what_they_are(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_type("adapter")
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    with pytest.raises(ModelError, match="of the type 'adapter', expected a model"):
        open_model(tmp_path / "m.gguf")


# --- tokenizers


def sentence_pieces(**entries: Any) -> Metadata:
    words = ["<unk>", "<s>", "</s>", *(f"<0x{k:02X}>" for k in range(256))]
    kinds = [2, 3, 3, *[6] * 256]
    pieces = ["▁", "t", "h", "e", "c", "a", "▁t", "he", "▁the", "▁c", "at", "▁cat", "th", "ca"]
    scores = [0.0] * len(words) + [-float(k) for k in range(1, len(pieces) + 1)]
    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*words, *pieces],
        "tokenizer.ggml.token_type": np.array([*kinds, *[1] * len(pieces)]),
        "tokenizer.ggml.scores": np.array(scores),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return Metadata({**values, **entries}, "m.gguf")


def by_best_scores(meta: Metadata, text: str) -> list[int]:
    """The tokens as SentencePiece defines them: again and again the pair with the best score."""
    words = meta.values["tokenizer.ggml.tokens"]
    scores = dict(zip(words, meta.values["tokenizer.ggml.scores"].tolist(), strict=True))
    pieces = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [
            (-scores[a + b], k) for k, (a, b) in enumerate(pairwise(pieces)) if a + b in scores
        ]
        if not pairs:
            break
        _, k = min(pairs)
        pieces[k : k + 2] = [pieces[k] + pieces[k + 1]]
    found = [1]
    for piece in pieces:
        known = piece in scores
        found += [words.index(piece)] if known else [3 + byte for byte in piece.encode()]
    return found


def test_sentence_pieces() -> None:
    meta = sentence_pieces()
    own = tokenizer_of_metadata(meta)
    rng = random.Random(0)
    texts = [
        "the cat",
        "",
        "the  cat é",
        "hthe",
        *("".join(rng.choices("the ca", k=9)) for _ in range(30)),
    ]
    for text in texts:
        tokens = own.encode(text)
        if text:
            assert tokens == by_best_scores(meta, text), text
        assert own.decode(tokens) == text
    assert own.special["bos_token"] == "<s>"
    *before, cat = own.encode("the cat")
    assert TextStream(own, before).add(cat) == " cat"
    assert TextStream(own).add(cat) == "cat"
    plain = tokenizer_of_metadata(sentence_pieces(**{"tokenizer.ggml.add_bos_token": False}))
    assert plain.encode("the")[0] != 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model": "bert"}, "tokenizer of the kind 'bert', expected one of gpt2, llama"),
        ({"model": 3}, "has 3 as tokenizer.ggml.model, expected a str"),
        ({"tokens": None}, "has nothing as tokenizer.ggml.tokens, expected a list"),
        ({"tokens": [1, 2]}, "other values than strings"),
        ({"tokens": ["a" * 10**7] * 273}, "a token of more than 1000 characters"),
        ({"scores": np.zeros(3)}, "no array of 273 numbers tokenizer.ggml.scores"),
        ({"token_type": np.zeros(1)}, "no array of 273 numbers tokenizer.ggml.token_type"),
        ({"bos_token_id": 999}, "has the bos token 999, which is unknown"),
        ({"model": "gpt2", "pre": "new"}, "splits texts by 'new', expected one of default"),
        ({"model": "gpt2", "merges": ["x"]}, "the tokenizer of m.gguf is damaged"),
        ({"add_sep_token": True}, "has tokenizer.ggml.add_sep_token: True, which is not supported"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces: True, which is not supp"),
        ({"precompiled_charsmap": np.ones(3)}, "tokenizer.ggml.precompiled_charsmap: array"),
    ],
)
def test_tokenizers_that_are_damaged(entries: dict[str, Any], message: str) -> None:
    meta = sentence_pieces(**{f"tokenizer.ggml.{name}": v for name, v in entries.items()})
    with pytest.raises(ModelError, match=message):
        tokenizer_of_metadata(meta)


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    raw = tiny.config(**SMALL)
    path = tmp_path / "m.gguf"
    tiny.write_gguf(path, raw, tiny.weights(raw), "Q8_0")
    whole = path.read_bytes()
    header = len(whole) - sum(tensor.blocks().size for tensor in read_header(path).tensors.values())
    rng = random.Random(0)
    for number in range(60):
        data = bytearray(whole)
        if number % 3:
            for _ in range(rng.randint(1, 4)):
                place = rng.randrange(min(header, 2000) if number % 2 else header)
                data[place] = rng.choice([0, 1, 127, 255, rng.randrange(256)])
        else:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            files = open_model(path)
            files.tokenizer().encode(TEXT)
        except RelaxpyError:
            pass
