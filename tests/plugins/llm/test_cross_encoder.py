"""Cross-encoders: the scores of pairs of texts, by definition, and documents in their order."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.llm import CrossEncoder, ModelError
from relaxpy.plugins.llm.config import ContextError, encoder_config_of
from relaxpy.plugins.llm.models import Models, Place
from tests.plugins.llm.conftest import Running

for package in ("safetensors", "tokenizers"):
    pytest.importorskip(package)

WORDS = ["<s>", "</s>", "<unk>", "<pad>", "the", "cat", "sat", "on", "mat", "dog", "log", "hello"]
QUERY = "cat on the log"
TEXTS = ["the cat sat on the mat", "dog", "hello the log"]
CONFIG: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "vocab_size": len(WORDS),
    "type_vocab_size": 2,
    "max_position_embeddings": 24,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "id2label": {"0": "LABEL_0"},
    "pad_token_id": 3,
    "tie_word_embeddings": True,
}
WIDTH, HIDDEN = 24, 40


def weights(family: str, seed: int = 0) -> dict[str, Any]:
    """Random weights by the names of Hugging Face."""
    prefix = "bert" if family == "bert" else "roberta"
    shapes: dict[str, tuple[int, ...]] = {}

    def product(name: str, out: int, width: int) -> None:
        shapes.update({f"{name}.weight": (out, width), f"{name}.bias": (out,)})

    def norm(name: str) -> None:
        shapes.update({f"{name}.{kind}": (WIDTH,) for kind in ("weight", "bias")})

    tables = {"word": len(WORDS), "position": 24, "token_type": 2}
    for name, count in tables.items():
        shapes[f"{prefix}.embeddings.{name}_embeddings.weight"] = (count, WIDTH)
    norm(f"{prefix}.embeddings.LayerNorm")
    for layer in range(2):
        at = f"{prefix}.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            product(f"{at}.attention.self.{part}", WIDTH, WIDTH)
        product(f"{at}.attention.output.dense", WIDTH, WIDTH)
        product(f"{at}.intermediate.dense", HIDDEN, WIDTH)
        product(f"{at}.output.dense", WIDTH, HIDDEN)
        norm(f"{at}.attention.output.LayerNorm")
        norm(f"{at}.output.LayerNorm")
    first, last = ("bert.pooler.dense", "classifier")
    if prefix == "roberta":
        first, last = "classifier.dense", "classifier.out_proj"
    product(first, WIDTH, WIDTH)
    product(last, 1, WIDTH)
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * 0.4 + name.endswith("Norm.weight")).astype("float32")
        for name, shape in shapes.items()
    }


def tokenizer(family: str) -> Any:
    """Words, and what such a model puts around two texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    found = Tokenizer(models.WordLevel({w: k for k, w in enumerate(WORDS)}, unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    kind = processors.BertProcessing if family == "bert" else processors.RobertaProcessing
    found.post_processor = kind(("</s>", 1), ("<s>", 0))
    return found


def write(folder: Path, family: str, **entries: Any) -> Path:
    """The folder of a cross-encoder."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": family, **entries}))
    save_file(weights(family), folder / "model.safetensors")
    tokenizer(family).save(str(folder / "tokenizer.json"))
    return folder


ERF = np.vectorize(math.erf)
ACTIVATIONS: dict[str, Any] = {
    "gelu": lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2))),
    "gelu_new": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
}


def expected(family: str, activation: str, ids: list[int], kinds: list[int]) -> float:
    """The score of tokens, by definition, in float64."""
    prefix = "bert" if family == "bert" else "roberta"
    w = {name: value.astype("float64") for name, value in weights(family).items()}

    def product(name: str, x: Any) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    at = f"{prefix}.embeddings"
    first = 0 if family == "bert" else CONFIG["pad_token_id"] + 1
    x = w[f"{at}.word_embeddings.weight"][ids]
    x = x + w[f"{at}.position_embeddings.weight"][first : first + len(ids)]
    x = norm(f"{at}.LayerNorm", x + w[f"{at}.token_type_embeddings.weight"][kinds])
    for layer in range(2):
        at = f"{prefix}.encoder.layer.{layer}"
        q, k, v = (
            product(f"{at}.attention.self.{part}", x).reshape(len(ids), 3, 8).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        shares = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(8))
        shares /= shares.sum(-1, keepdims=True)
        mixed = (shares @ v).swapaxes(0, 1).reshape(len(ids), WIDTH)
        mixed = product(f"{at}.attention.output.dense", mixed)
        x = norm(f"{at}.attention.output.LayerNorm", x + mixed)
        hidden = ACTIVATIONS[activation](product(f"{at}.intermediate.dense", x))
        x = norm(f"{at}.output.LayerNorm", x + product(f"{at}.output.dense", hidden))
    names = ("bert.pooler.dense", "classifier")
    if family != "bert":
        names = ("classifier.dense", "classifier.out_proj")
    return float(product(names[1], np.tanh(product(names[0], x[0])))[0])


def tokens_of(family: str, text: str) -> tuple[list[int], list[int]]:
    """What is around a query and a document, and which of them each token belongs to."""
    query, document = ([WORDS.index(word) for word in one.split()] for one in (QUERY, text))
    if family == "bert":
        kinds = [0] * (len(query) + 2) + [1] * (len(document) + 1)
        return [0, *query, 1, *document, 1], kinds
    ids = [0, *query, 1, 1, *document, 1]
    return ids, [0] * len(ids)


@pytest.mark.parametrize(
    ("family", "activation", "target"),
    [
        ("bert", "gelu", "numpy"),
        ("bert", "gelu", "native"),
        ("roberta", "gelu_new", "numpy"),
        ("xlm-roberta", "relu", "numpy"),
    ],
)
def test_scores_are_those_of_the_definition(
    family: str, activation: str, target: str, tmp_path: Path
) -> None:
    if target == "native":
        pytest.importorskip("llvmlite")
    model = CrossEncoder(write(tmp_path / "m", family, hidden_act=activation), target=target)
    wanted = [expected(family, activation, *tokens_of(family, text)) for text in TEXTS]
    assert max(wanted) - min(wanted) > 0.05  # they tell the texts apart
    np.testing.assert_allclose(model.scores(QUERY, TEXTS), wanted, rtol=1e-4, atol=1e-4)


def test_weights_in_few_bits_are_near(tmp_path: Path) -> None:
    path = write(tmp_path / "m", "bert", hidden_size=24)
    plain = CrossEncoder(path, target="numpy")
    small = CrossEncoder(path, target="numpy", quantize="q8f32_1")
    assert small.memory < 0.6 * plain.memory
    np.testing.assert_allclose(small.scores(QUERY, TEXTS), plain.scores(QUERY, TEXTS), atol=0.1)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "has 2 labels, expected 1"),
        ({"id2label": None}, "has 2 labels, expected 1"),
        ({"position_embedding_type": "relative_key"}, "'position_embedding_type'"),
        ({"is_decoder": True}, "'is_decoder'"),
        ({"hidden_act": "silu"}, "'hidden_act': 'silu', expected one of gelu"),
        ({"num_attention_heads": 5}, "expected a divisor of 24"),
        ({"embedding_size": 12}, "has 'embedding_size': 12, which is not supported"),
        ({"model_type": "deberta-v2"}, "'deberta-v2', expected one of bert, roberta"),
        ({"model_type": "roberta", "pad_token_id": -1}, "expected a token"),
        ({"model_type": "roberta", "pad_token_id": 23}, "expected more than 24"),
    ],
)
def test_other_encoders_are_refused_by_what_differs(entries: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        encoder_config_of({**CONFIG, "model_type": "bert", **entries})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    return CrossEncoder(write(tmp_path_factory.mktemp("m") / "order", "bert"), target="numpy")


def test_texts_that_cannot_be_read_are_errors(model: CrossEncoder, tmp_path: Path) -> None:
    bad: Any
    for bad in (3, "cat", [3], b"x", None):
        with pytest.raises(ModelError, match="documents cannot be"):
            model.scores(QUERY, bad)
    bad = None
    with pytest.raises(ModelError, match="query cannot be None"):
        model.scores(bad, TEXTS)
    with pytest.raises(ContextError, match=r"have 25 tokens together.*at most 24 tokens"):
        model.scores(QUERY, ["cat " * 18])
    with pytest.raises(ContextError, match="characters together"):
        model.scores(QUERY, ["c" * 9999])
    with pytest.raises(ModelError, match="half of a character"):
        model.scores(QUERY, ["\ud800"])
    assert model.scores(QUERY, []).shape == (0,)
    assert len(model.scores(QUERY, ["cat " * 17])) == 1
    with pytest.raises(ModelError, match=r"generates no text") as caught:
        relaxpy.llm.load(model._folder)
    assert "CrossEncoder" in str(caught.value)
    with pytest.raises(FileNotFoundError):
        CrossEncoder(tmp_path / "none")
    (tmp_path / "m.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match="no folder"):
        CrossEncoder(tmp_path / "m.gguf")


def test_a_server_orders_documents_by_it_and_does_nothing_else(
    model: CrossEncoder, lm: Any
) -> None:
    httpx = pytest.importorskip("httpx")
    for package in ("starlette", "uvicorn"):
        pytest.importorskip(package)
    models = Models.of(lm)
    models.put(model)
    server = Running(models)
    client = httpx.Client(base_url=server.url, timeout=60)
    try:
        scores = [1 / (1 + math.exp(-score)) for score in model.scores(QUERY, TEXTS)]
        order = sorted(range(3), key=lambda k: -scores[k])
        body = {"model": "order", "query": QUERY, "documents": TEXTS, "top_n": 2}
        found = client.post("/v1/rerank", json=body).json()
        assert [one["index"] for one in found["results"]] == order[:2]
        given = [one["relevance_score"] for one in found["results"]]
        assert given == pytest.approx([scores[k] for k in order[:2]])
        assert found["usage"]["prompt_tokens"] == sum(len(tokens_of("bert", t)[0]) for t in TEXTS)
        long = {**body, "documents": ["cat", "cat " * 18]}
        answer = client.post("/v1/rerank", json=long)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        many = {**body, "documents": ["cat"] * 257}
        answer = client.post("/v1/rerank", json=many)
        assert answer.json()["error"]["message"] == "a request has at most 256 documents"
        for path, fields in (
            ("v1/completions", {"prompt": "cat"}),
            ("v1/chat/completions", {"messages": [{"role": "user", "content": "cat"}]}),
            ("v1/responses", {"input": "cat"}),
            ("v1/embeddings", {"input": "cat"}),
            ("api/embed", {"input": "cat"}),
            ("api/generate", {"prompt": "cat"}),
            ("api/show", {}),
        ):
            answer = client.post(f"/{path}", json={**fields, "model": "order"})
            assert (answer.status_code, path) == (400, path)
            assert "only orders documents" in answer.text
        listed = client.get("/api/ps").json()["models"]
        assert {one["name"] for one in listed} == {f"{lm.name}:latest", "order:latest"}
        assert "relaxpy_models 2" in client.get("/metrics").text
        assert models.entries["order"].users == 0
        assert models.entries["order"].size == model.memory
    finally:
        client.close()
        server.stop()


def test_a_server_loads_it_when_it_is_asked_for(model: CrossEncoder, tmp_path: Path) -> None:
    options = {"target": "numpy", "context": 9, "sequences": 2}
    place = Place("own", model._folder, options, {})
    assert place.is_cross_encoder
    assert place.memory_needed() == model.memory
    found = place.load()
    assert isinstance(found, CrossEncoder)
    assert found.name == "own"
    np.testing.assert_array_equal(found.scores(QUERY, TEXTS), model.scores(QUERY, TEXTS))
    assert not Place("none", tmp_path, options, {}).is_cross_encoder
    with pytest.raises(ModelError, match="takes no adapters"):
        Place("own", model._folder, options, {"a": tmp_path}).load()
