"""States and hooks beside models whose weights do the same, and beside transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy.llm import ModelError, load
from tests.plugins.llm import tiny

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")
RAW = tiny.config(num_hidden_layers=1)
WIDTH = RAW["hidden_size"]
TEXT = "the cat sat on the mat"
ADDED = np.random.default_rng(5).standard_normal(WIDTH).astype("float32") * 3
OPTIONS: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "repetition_penalty": 10.0}
#: A GPT-2, whose layers have biases.
GPT2 = {
    "model_type": "gpt2",
    "n_embd": WIDTH,
    "n_inner": 96,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": RAW["vocab_size"],
    "layer_norm_epsilon": 1e-5,
    "eos_token_id": 1,
}


def gpt2_weights() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {
        "wte.weight": (RAW["vocab_size"], WIDTH),
        "wpe.weight": (64, WIDTH),
        "ln_f.weight": (WIDTH,),
        "ln_f.bias": (WIDTH,),
    }
    for layer in range(2):
        for name, shape in {
            "ln_1.weight": (WIDTH,),
            "ln_1.bias": (WIDTH,),
            "ln_2.weight": (WIDTH,),
            "ln_2.bias": (WIDTH,),
            "attn.c_attn.weight": (WIDTH, 3 * WIDTH),
            "attn.c_attn.bias": (3 * WIDTH,),
            "attn.c_proj.weight": (WIDTH, WIDTH),
            "attn.c_proj.bias": (WIDTH,),
            "mlp.c_fc.weight": (WIDTH, 96),
            "mlp.c_fc.bias": (96,),
            "mlp.c_proj.weight": (96, WIDTH),
            "mlp.c_proj.bias": (WIDTH,),
        }.items():
            shapes[f"h.{layer}.{name}"] = shape
    return {name: (rng.standard_normal(s) * 0.3).astype("float32") for name, s in shapes.items()}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a Llama with an adapter, of a GPT-2, and of this with other biases."""
    root = tmp_path_factory.mktemp("hooks")
    found = {"llama": tiny.write_folder(root / "llama", RAW)}
    factors = tiny.lora(RAW, ("q_proj", "down_proj"), 4, seed=1)
    found["lora"] = tiny.write_lora(root / "lora", factors, 8)
    found["merged"] = tiny.write_folder(root / "merged", RAW, tiny.merged(RAW, factors, 2))
    values = gpt2_weights()
    found["gpt2"] = tiny.write_folder(root / "gpt2", GPT2, values)
    moved = {**values, "h.0.mlp.c_proj.bias": values["h.0.mlp.c_proj.bias"] + ADDED}
    found["moved"] = tiny.write_folder(root / "moved", GPT2, moved)
    return found


@pytest.fixture(scope="module")
def lm(places: dict[str, Path]) -> Any:
    return load(places["llama"], target="numpy")


@pytest.fixture(scope="module")
def gpt2(places: dict[str, Path]) -> Any:
    return load(places["gpt2"])


def steer(states: Any) -> Any:
    return states + ADDED


def chosen(lm: Any, *models: Any) -> list[list[int]]:
    """The tokens of models in one batch, each about once."""
    started = [one.start(one.tokens(TEXT), **OPTIONS) for one in models]
    while not all(one.request.done for one in started):
        lm.step()
    for one in started:
        if one.request.error is not None:
            raise one.request.error
    return [one.request.tokens for one in started]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_states_are_those_of_transformers(name: str, places: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    lm = load(places[name], target="numpy")
    model = transformers.AutoModelForCausalLM.from_pretrained(places[name])
    with torch.no_grad():
        found = model(torch.tensor([lm.tokens(TEXT)]), output_hidden_states=True)
    states = lm.states(TEXT)
    last_layer = lm.decoder.config.layers
    assert [*states] == [*range(last_layer + 1)]
    for layer in range(last_layer):
        wanted = found.hidden_states[layer][0].numpy()
        np.testing.assert_allclose(states[layer], wanted, rtol=2e-4, atol=2e-4)
    # transformers has the last ones after the norm, as embed has
    last = found.hidden_states[-1][0].numpy()
    np.testing.assert_allclose(lm.embed(TEXT), last.mean(axis=0), rtol=2e-4, atol=2e-4)
    norm = model.model.norm if name == "llama" else model.transformer.ln_f
    with torch.no_grad():
        normed = norm(torch.tensor(states[2])).numpy()
    np.testing.assert_allclose(normed, last, rtol=2e-4, atol=2e-4)


def normed(x: Any, values: dict[str, Any], name: str) -> Any:
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * values[f"{name}.weight"] + values[f"{name}.bias"]


def after_block(x: Any, values: dict[str, Any], at: str) -> Any:
    """The states after a block of GPT-2, by its definition."""

    def product(y: Any, name: str) -> Any:
        return y @ values[f"{at}.{name}.weight"] + values[f"{at}.{name}.bias"]

    parts = np.split(product(normed(x, values, f"{at}.ln_1"), "attn.c_attn"), 3, axis=1)
    q, k, v = (part.reshape(len(x), 4, WIDTH // 4).swapaxes(0, 1) for part in parts)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(WIDTH // 4)
    shares = np.exp(np.where(np.tri(len(x), dtype=bool), scores, -np.inf))
    mixed = (shares / shares.sum(-1, keepdims=True)) @ v
    x = x + product(mixed.swapaxes(0, 1).reshape(len(x), WIDTH), "attn.c_proj")
    up = product(normed(x, values, f"{at}.ln_2"), "mlp.c_fc")
    up = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
    return x + product(up, "mlp.c_proj")


def test_states_are_those_of_the_definition(gpt2: Any) -> None:
    values = {name: value.astype("float64") for name, value in gpt2_weights().items()}
    tokens = gpt2.tokens(TEXT)
    wanted = [values["wte.weight"][tokens] + values["wpe.weight"][: len(tokens)]]
    for layer in range(2):
        wanted.append(after_block(wanted[-1], values, f"h.{layer}"))
    states = gpt2.states(TEXT)
    assert [*states] == [0, 1, 2]
    for layer, found in states.items():
        assert found.dtype == "float32"
        np.testing.assert_allclose(found, wanted[layer], rtol=1e-4, atol=1e-4)
    last = normed(wanted[2], values, "ln_f").mean(axis=0)
    np.testing.assert_allclose(gpt2.embed(TEXT), last, rtol=1e-4, atol=1e-4)


def test_states_of_some_layers_come_in_chunks_too(lm: Any) -> None:
    whole = lm.states(TEXT, layers=[1, 0])
    assert [*whole] == [1, 0]
    tokens = lm.tokens(TEXT)
    table = lm.decoder.values["embedding.weight"]
    np.testing.assert_array_equal(whole[0], table[tokens])
    first, second = [], []
    for layer, kept in ((0, first), (1, second)):
        reader = lm.hook(layer, kept.append)
        reader._read(tokens, reader._scores, 3)
    assert [len(part) for part in first] == [3, 3, 1]
    np.testing.assert_allclose(np.concatenate(second), whole[1], rtol=1e-4, atol=1e-4)


def test_a_vector_that_is_added_is_a_bias(gpt2: Any, places: dict[str, Path]) -> None:
    moved, steered = load(places["moved"]), gpt2.hook(1, steer)
    wanted = moved.logits(TEXT)
    assert abs(gpt2.logits(TEXT) - wanted).max() > 0.1
    np.testing.assert_allclose(steered.logits(TEXT), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(steered.embed(TEXT), moved.embed(TEXT), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(steered.states(TEXT)[2], moved.states(TEXT)[2], rtol=1e-4, atol=1e-4)
    assert chosen(gpt2, steered) == chosen(moved, moved) != chosen(gpt2, gpt2)


def in_place(states: Any) -> None:
    states += ADDED


def test_hooks_follow_each_other_and_may_change_their_array(lm: Any) -> None:
    twice = lm.hook(1, steer).hook(1, in_place).logits(TEXT)
    np.testing.assert_allclose(twice, lm.hook(1, lambda x: x + 2 * ADDED).logits(TEXT), atol=1e-4)
    seen: list[Any] = []
    kept = lm.hook(1, seen.append).hook(1, in_place).hook(1, seen.append)
    kept.logits(TEXT)
    np.testing.assert_array_equal(seen[0] + ADDED, seen[1])  # the first was not changed later


def test_a_perplexity_is_that_of_the_hooked_model(lm: Any) -> None:
    text = "the cat sat on the mat and the dog sat on the cat"
    hooked, raising = lm.hook(1, lambda states: -states), lm.hook(1, lambda states: 1 / 0)
    tokens = lm.tokenizer.encode(text)
    scores = hooked.logits(tokens[:8]).astype(float)
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    expected = np.exp(-np.mean([logs[n, tokens[n + 1]] for n in range(4, 7)]))
    assert hooked.perplexity(text, context=8, chunks=1).value == pytest.approx(expected, rel=1e-4)
    assert lm.perplexity(text, context=8, chunks=1).value != pytest.approx(expected, rel=1e-4)
    with pytest.raises(ZeroDivisionError):
        raising.perplexity(text, context=8, chunks=1)


def test_requests_with_and_without_hooks_share_a_batch_and_no_prefix(lm: Any) -> None:
    steered = lm.hook(1, steer)
    plain, other = chosen(lm, lm)[0], chosen(lm, steered)[0]
    assert plain != other
    for _ in range(2):  # the second time, the plain prefix is in the cache
        assert chosen(lm, steered, lm, steered, lm) == [other, plain, other, plain]
    seen: list[int] = []
    reader = lm.hook(0, lambda states: seen.append(len(states)))
    length = len(lm.tokens(TEXT))
    assert chosen(lm, reader, reader) == [plain] * 2
    assert sorted(seen) == [1] * 22 + [length] * 2  # all of the prompt, each time
    request = lm.start(lm.tokens(TEXT), max_tokens=1).request
    lm.step()
    assert request.shared == length - 1
    used = len(lm.engine.running) + len(lm.engine.kept) + len(lm.engine.free)
    assert used == lm.decoder.sequences


def test_a_model_with_an_adapter_has_hooks(lm: Any, places: dict[str, Path]) -> None:
    lm.add_adapter("own", places["lora"])
    adapted, merged = lm.adapted("own"), load(places["merged"], target="numpy")
    wanted = merged.hook(1, steer).logits(TEXT)
    for one in (adapted.hook(1, steer), lm.hook(1, steer).adapted("own")):
        np.testing.assert_allclose(one.logits(TEXT), wanted, rtol=1e-4, atol=1e-4)
    found = chosen(lm, adapted.hook(1, steer), adapted, lm)
    assert found == [chosen(m, m)[0] for m in (merged.hook(1, steer), merged, lm)]


def fails(states: Any) -> Any:
    raise ZeroDivisionError("of the user")


BAD: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "raises": (fails, ZeroDivisionError, "of the user"),
    "shape": (lambda x: x[:, :1], ModelError, r"of layer 1 returns states of the shape \(\d, 64"),
    "dtype": (lambda x: x + ADDED.astype("float64"), ModelError, "float32, found float64"),
    "kind": (lambda x: x.tolist(), ModelError, "an array or None, found"),
    "resized": (lambda x: x.resize((1, 64), refcheck=False), ModelError, "of the shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_hook_ends_its_request_alone(name: str, lm: Any) -> None:
    hook, kind, message = BAD[name]
    bad = lm.hook(1, hook)
    for call in (bad.generate, bad.logits, bad.states, bad.embed, lambda x: [*bad.stream(x)]):
        with pytest.raises(kind, match=message):
            call(TEXT)
    plain = chosen(lm, lm)[0]
    started = [m.start(m.tokens(TEXT), **OPTIONS) for m in (lm, bad, lm)]
    while not all(one.request.done for one in started):
        lm.step()
    errors = [one.request.error for one in started]
    assert isinstance(errors[1], kind)
    assert errors[::2] == [None, None]
    assert [one.request.tokens for one in started] == [plain, [], plain]
    assert len(lm.engine.kept) + len(lm.engine.free) == lm.decoder.sequences


@pytest.mark.parametrize("use", ["generate", "logits", "embed", "states", "next"])
def test_a_hook_cannot_use_its_model(use: str, lm: Any) -> None:
    streams = [lm.stream(TEXT, max_tokens=50, ignore_eos=True) for _ in range(3)]
    for stream in streams:
        next(stream)
    call = (lambda _: next(streams.pop())) if use == "next" else getattr(lm, use)
    hooked = lm.hook(0, lambda _: call(TEXT))
    for outer in (hooked.logits, hooked.generate):
        with pytest.raises(ModelError, match="a hook cannot use the model that calls it"):
            outer(TEXT)
    assert all(map("".join, streams))  # the others went on
    lm.engine.run()
    assert not lm.engine.running
    assert not lm.engine.waiting


def test_an_interrupted_hook_leaves_all_as_before(lm: Any) -> None:
    wanted, calls = chosen(lm, lm)[0], list[int]()

    def interrupted(states: Any) -> None:
        calls.append(len(states))
        if len(calls) == 3:
            raise KeyboardInterrupt  # as Ctrl-C does in a loop that does not end

    hooked = lm.hook(1, interrupted)
    first = hooked.start(hooked.tokens(TEXT), **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        lm.engine.run()
    assert len(first.request.tokens) == 2
    lm.engine.run()
    assert first.request.tokens == wanted
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        hooked.generate(TEXT)
    assert not lm.engine.running
    assert chosen(lm, lm)[0] == wanted


@pytest.mark.parametrize("layer", [-1, 2, True, 1.0, "1", None, 10**400])
def test_layers_that_are_not_there(layer: Any, lm: Any) -> None:
    with pytest.raises(ModelError, match="layer"):
        lm.hook(layer, steer)
    with pytest.raises(ModelError, match="layer"):
        lm.states(TEXT, layers=[layer])


def test_what_is_no_hook(lm: Any) -> None:
    with pytest.raises(ModelError, match="a hook is a function of states, found 3"):
        lm.hook(1, 3)
    with pytest.raises(ModelError, match="layers are a list of integers, found 1"):
        lm.states(TEXT, layers=1)
    with pytest.raises(ModelError, match="has hooks, which a library has not"):
        lm.hook(1, steer).export("model.so")
