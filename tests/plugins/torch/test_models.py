"""Whole models with random weights, by one executable for several sizes, beside PyTorch.

Three of PyTorch alone run always; all of them, and those of torchvision, timm and transformers with
--whole-table, where these are installed (`make models`).
"""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import relaxpy

torch: Any = pytest.importorskip("torch")
from relaxpy.relax.frontend.torch import from_exported_program  # noqa: E402
from tests.rows import whole_tables  # noqa: E402

nn = torch.nn
#: A model, the arguments that it is exported with, and which of their axes are dynamic.
Model = tuple[Any, tuple[Any, ...], tuple[dict[int, Any] | None, ...]]
BATCH = torch.export.Dim("batch", min=2, max=64)
LENGTH = torch.export.Dim("length", min=2, max=48)
WORDS = 100


# ---- PyTorch models alone


class Tagger(nn.Module):  # type: ignore[misc]
    """A class for each word, by a recurrent network in both directions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.recurrent = getattr(nn, kind)(16, 12, 2, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(24, 5)

    def forward(self, words: Any) -> Any:
        rows, _ = self.recurrent(self.embedding(words))
        return self.classes(rows).log_softmax(-1)


class GraphNetwork(nn.Module):  # type: ignore[misc]
    """Nodes that add what their neighbours send along the edges, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.updates = nn.ModuleList([nn.GRUCell(8, 8), nn.GRUCell(8, 8)])

    def forward(self, nodes: Any, edges: Any) -> Any:
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = message(nodes)[edges[0]].relu()
            received = torch.zeros_like(nodes).index_add(0, edges[1], sent)
            degree = torch.zeros_like(nodes[:, 0]).scatter_add(
                0, edges[1], torch.ones_like(sent[:, 0])
            )
            nodes = update(received / degree.clamp(min=1)[:, None], nodes)
        return nodes, nodes.amax(0)


class Block(nn.Module):  # type: ignore[misc]
    """A residual block of a diffusion network, shifted by the embedding of a time."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(4, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1)
        )
        self.time = nn.Linear(16, 2 * outer)
        self.norm = nn.GroupNorm(4, outer)
        self.second = nn.Sequential(nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1))
        self.skip = nn.Conv2d(inner, outer, 1)

    def forward(self, x: Any, time: Any) -> Any:
        scale, shift = self.time(time)[..., None, None].chunk(2, dim=1)
        return self.second(self.norm(self.first(x)) * (1 + scale) + shift) + self.skip(x)


class UNet(nn.Module):  # type: ignore[misc]
    """Two levels, with attention between the pixels of the lower one."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Conv2d(3, 8, 3, padding=1)
        self.down, self.middle, self.up = Block(8, 16), Block(16, 16), Block(24, 8)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.wider = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.end = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Any, time: Any) -> Any:
        rates = 0.5 ** torch.arange(8, dtype=x.dtype)
        angles = time[:, None] * rates
        turned = torch.cat([angles.sin(), angles.cos()], -1)
        top = self.begin(x)
        low = self.middle(self.down(nn.functional.avg_pool2d(top, 2), turned), turned)
        rows = low.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        low = self.wider(rows.transpose(1, 2).reshape(low.shape))
        return self.end(self.up(torch.cat([low, top], 1), turned))


def transformer() -> Model:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
    decoder = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)

    class Both(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.decoder = nn.TransformerDecoder(decoder, 2)

        def forward(self, x: Any, y: Any) -> Any:
            mask = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).triu(1)
            return self.decoder(y, self.encoder(x), tgt_mask=mask, tgt_is_causal=True)

    dims = ({0: BATCH, 1: LENGTH}, {0: BATCH, 1: torch.export.Dim("more", min=2, max=48)})
    return Both(), (torch.randn(2, 5, 16), torch.randn(2, 4, 16)), dims


def edges(nodes: int, count: int) -> Any:
    return torch.randint(0, nodes, (2, count))


def graph() -> Model:
    axes = ({0: torch.export.Dim("nodes", min=6)}, {1: torch.export.Dim("edges", min=2)})
    return GraphNetwork(), (torch.randn(6, 8), edges(6, 10)), axes


OF_PYTORCH: dict[str, Callable[[], Model]] = {
    "LSTM tagger": lambda: (Tagger("LSTM"), (words(),), ({0: BATCH},)),
    "GRU tagger": lambda: (Tagger("GRU"), (words(),), ({0: BATCH},)),
    "graph network": graph,
    "diffusion": lambda: (UNet(), (torch.randn(2, 3, 8, 8), torch.rand(2)), ({0: BATCH},) * 2),
    "transformer": transformer,
}


# ---- models of libraries


class Outputs(nn.Module):  # type: ignore[misc]
    """A model of transformers, whose results are a tuple of tensors."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: Any) -> Any:
        found = self.model(**dict(zip(self.names, args, strict=True)))
        return tuple(v for v in found.values() if isinstance(v, torch.Tensor))


def words(length: int = 7) -> Any:
    return torch.randint(3, WORDS, (2, length))


def image(size: int, channels: int = 3) -> Any:
    return torch.randn(2, channels, size, size)


def torchvision() -> Any:
    """The library, also where its own operators, which no model here needs, are not built.

    Other libraries import it, so it has to be imported first.
    """
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    try:
        return importlib.import_module("torchvision")
    except ImportError:
        return pytest.skip("torchvision is not installed")


LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
_LAYERS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def hugging(
    model: str,
    config: str,
    inputs: str,
    sizes: dict[str, Any] = _LAYERS,
    *,
    length: Any = LENGTH,
    **changes: Any,
) -> Callable[[], Model]:
    """A model of transformers with a small configuration; `inputs` names what it is called with.

    A `length` of None is a model that PyTorch exports for one number of words only.
    """

    def build() -> Model:
        torchvision()
        library: Any = pytest.importorskip("transformers")
        made = getattr(library, model)(getattr(library, config)(**{**sizes, **changes}))
        made.config.use_cache = False
        names = tuple(inputs.split())
        args, axes = zip(*(_INPUTS[name](made.config) for name in names), strict=True)
        kept = ({k: dim for k, dim in part.items() if length or k == 0} for part in axes)
        return Outputs(made, names), tuple(args), tuple(kept)

    return build


_TEXT = {0: BATCH, 1: LENGTH}
_INPUTS: dict[str, Callable[[Any], tuple[Any, dict[int, Any]]]] = {
    "input_ids": lambda config: (words(), _TEXT),
    "decoder_input_ids": lambda config: (
        words(5), {0: BATCH, 1: torch.export.Dim("more", min=2, max=48)},
    ),
    "attention_mask": lambda config: (torch.ones(2, 7, dtype=torch.long), _TEXT),
    "pixel_values": lambda config: (image(config.image_size), {0: BATCH}),
    "input_features": lambda config: (torch.randn(2, 80, 40), {0: BATCH}),
    "input_values": lambda config: (torch.randn(2, 2000), {0: BATCH}),
}  # fmt: skip


def vision(name: str, size: int = 64, **options: Any) -> Callable[[], Model]:
    """A model of torchvision for images of a size."""

    def build() -> Model:
        models = torchvision().models
        family = models.segmentation if "lab" in name or "fcn" in name else models
        made = getattr(family, name)(weights=None, **options)
        return made, (image(size),), ({0: BATCH},)

    return build


def image_model(name: str, size: int = 64, **options: Any) -> Callable[[], Model]:
    """A model of timm for images of a size."""

    def build() -> Model:
        torchvision()
        timm: Any = pytest.importorskip("timm")
        return timm.create_model(name, pretrained=False, **options), (image(size),), ({0: BATCH},)

    return build


_DECODER = {**_LAYERS, "vocab_size": WORDS, "num_key_value_heads": 2}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "n_positions": 64}
_T5 = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64, "vocab_size": WORDS}
_WHISPER = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": WORDS,
    "max_source_positions": 20,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_BART = {
    **{k: v for k, v in _WHISPER.items() if k != "max_source_positions"},
    "max_position_embeddings": 64,
}
OF_LIBRARIES: dict[str, Callable[[], Model]] = {
    "ResNet-18": vision("resnet18"),
    "ResNet-50": vision("resnet50"),
    "MobileNetV3": vision("mobilenet_v3_small"),
    "EfficientNet": vision("efficientnet_b0"),
    "ConvNeXt": vision("convnext_tiny"),
    "DenseNet": vision("densenet121"),
    "ViT": vision("vit_b_32", 64, image_size=64),
    "Swin": vision("swin_t"),
    "DeepLab": vision("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    "ShuffleNet": vision("shufflenet_v2_x0_5"),
    "SqueezeNet": vision("squeezenet1_1"),
    "RegNet": vision("regnet_y_400mf"),
    "GoogLeNet": vision("googlenet", 64, aux_logits=False, init_weights=False),
    "FCN": vision("fcn_resnet50", weights_backbone=None),
    "MLP-Mixer": image_model("mixer_s32_224", 224),
    "BEiT": image_model("beit_base_patch16_224", 224, depth=2),
    "GhostNet": image_model("ghostnet_050"),
    "MobileViT": image_model("mobilevit_xxs"),
    "PoolFormer": image_model("poolformer_s12"),
    "RepVGG": image_model("repvgg_a0"),
    "EdgeNeXt": image_model("edgenext_xx_small"),
    "NFNet": image_model("nfnet_l0"),
    "HRNet": image_model("hrnet_w18_small"),
    "XCiT": image_model("xcit_nano_12_p16_224", 64),
    "CaiT": image_model("cait_xxs24_224", 64, img_size=64, depth=2),
    "BERT": hugging("BertModel", "BertConfig", "input_ids attention_mask", vocab_size=WORDS),
    "RoBERTa": hugging("RobertaModel", "RobertaConfig", "input_ids", vocab_size=WORDS),
    "ALBERT": hugging("AlbertModel", "AlbertConfig", "input_ids", vocab_size=WORDS),
    "ELECTRA": hugging("ElectraModel", "ElectraConfig", "input_ids", vocab_size=WORDS),
    "DistilBERT": hugging(
        *("DistilBertModel", "DistilBertConfig", "input_ids"),
        sizes={"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        vocab_size=WORDS,
    ),
    "DeBERTa": hugging("DebertaV2Model", "DebertaV2Config", "input_ids", vocab_size=WORDS),
    "GPT-2": hugging("GPT2LMHeadModel", "GPT2Config", "input_ids", sizes=_GPT2),
    "GPT-Neo": hugging(
        *("GPTNeoForCausalLM", "GPTNeoConfig", "input_ids"),
        sizes={"hidden_size": 32, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS},
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
    ),
    "OPT": hugging(
        *("OPTForCausalLM", "OPTConfig", "input_ids"),
        vocab_size=WORDS,
        ffn_dim=64,
        word_embed_proj_dim=32,
    ),
    "BLOOM": hugging(
        *("BloomForCausalLM", "BloomConfig", "input_ids"),
        sizes={"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS},
    ),
    **{
        name: hugging(f"{name}ForCausalLM", f"{name}Config", "input_ids", sizes=_DECODER)
        for name in ("Llama", "Qwen2", "Mistral", "StableLm", "Starcoder2")
    },
    "Phi-3": hugging(
        *("Phi3ForCausalLM", "Phi3Config", "input_ids"), sizes={**_DECODER, "pad_token_id": 0}
    ),
    "Gemma": hugging(
        *("GemmaForCausalLM", "GemmaConfig", "input_ids"), sizes={**_DECODER, "head_dim": 8}
    ),
    "Qwen3": hugging(
        *("Qwen3ForCausalLM", "Qwen3Config", "input_ids"), sizes={**_DECODER, "head_dim": 8}
    ),
    "Mixtral": hugging(
        *("MixtralForCausalLM", "MixtralConfig", "input_ids"),
        sizes={**_DECODER, "num_local_experts": 4},
    ),
    "Phi": hugging("PhiForCausalLM", "PhiConfig", "input_ids", vocab_size=WORDS),
    "Falcon": hugging("FalconForCausalLM", "FalconConfig", "input_ids", vocab_size=WORDS),
    "GPT-NeoX": hugging("GPTNeoXForCausalLM", "GPTNeoXConfig", "input_ids", vocab_size=WORDS),
    "T5 encoder": hugging("T5EncoderModel", "T5Config", "input_ids", sizes=_T5),
    "T5": hugging("T5Model", "T5Config", "input_ids decoder_input_ids", sizes=_T5),
    "BART": hugging("BartModel", "BartConfig", "input_ids decoder_input_ids", sizes=_BART),
    "Marian": hugging("MarianModel", "MarianConfig", "input_ids decoder_input_ids", sizes=_BART),
    "Whisper": hugging(
        "WhisperModel", "WhisperConfig", "input_features decoder_input_ids", sizes=_WHISPER
    ),
    "CLIP text": hugging("CLIPTextModel", "CLIPTextConfig", "input_ids", vocab_size=WORDS),
    "CLIP image": hugging(
        *("CLIPVisionModel", "CLIPVisionConfig", "pixel_values"), image_size=32, patch_size=8
    ),
    "SigLIP image": hugging(
        *("SiglipVisionModel", "SiglipVisionConfig", "pixel_values"), image_size=32, patch_size=8
    ),
    "DINOv2": hugging("Dinov2Model", "Dinov2Config", "pixel_values", image_size=28, patch_size=14),
    "SegFormer": hugging(
        *("SegformerModel", "SegformerConfig", "pixel_values"),
        sizes={"image_size": 32, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]},
    ),
    "Wav2Vec2": hugging("Wav2Vec2Model", "Wav2Vec2Config", "input_values", vocab_size=WORDS),
    "Mamba": hugging(
        *("MambaForCausalLM", "MambaConfig", "input_ids"),
        length=None,
        sizes={"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": WORDS, "state_size": 8},
    ),
}


def larger(tensor: Any, axes: dict[int, Any] | None) -> Any:
    """An argument with more rows along its dynamic axes."""
    for axis in axes or {}:
        more = tensor.narrow(axis, 0, 1 if axis == 0 else 2)
        tensor = torch.cat([tensor, more], axis)
    return tensor


def compare(build: Callable[[], Model], target: str | None) -> None:
    torch.manual_seed(0)
    model, args, dims = build()
    model = model.eval()
    options = {"dynamic_shapes": dims} if not isinstance(model, Outputs) else {
        "dynamic_shapes": {"args": dims}
    }  # fmt: skip
    program = torch.export.export(model, args, **options)
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    others = tuple(larger(arg, axes) for arg, axes in zip(args, dims, strict=True))
    for given in (args, others):
        with torch.no_grad():
            expected = torch.utils._pytree.tree_leaves(model(*given))
        expected = [value for value in expected if isinstance(value, torch.Tensor)]
        for result, value in zip(run(*given), expected, strict=True):
            size = float(value.abs().max())
            torch.testing.assert_close(result, value, rtol=1e-4, atol=2e-5 * max(size, 1))


#: Layers like those of the taggers and of the transformer have tests of their own.
DRAWN = OF_PYTORCH if whole_tables() else ("graph network", "diffusion")


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.filterwarnings("ignore")
def test_models_of_pytorch_alone(name: str) -> None:
    compare(OF_PYTORCH[name], None)


@pytest.mark.parametrize("name", OF_LIBRARIES)
@pytest.mark.filterwarnings("ignore")
def test_models_of_libraries(name: str, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--whole-table"):
        pytest.skip("models of libraries run with --whole-table")
    compare(OF_LIBRARIES[name], "native")
