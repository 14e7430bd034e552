"""Models of PyTorch: imported and compiled by relaxpy, beside PyTorch and `torch.compile`.

`PYTHONPATH=. python benchmarks/torch_models.py [NAME]` prints, for each model, the times of import
and compilation, the least time of the fastest of PyTorch's two, and the ratios to it of the
executable and of `torch.compile` on relaxpy; then the geometric means. All are called in turn, with
as many threads. The program fails if `torch.compile` on relaxpy takes longer than PyTorch's own
backend in the mean.

With `--libraries`, the models are those of torchvision and transformers (`make models`), and
ONNX Runtime runs them too, where PyTorch can export them. With `--arguments`, the weights of what
`torch.compile` compiles are arguments. With `--processor-time` each has one thread, whose time on a
processor is measured: less than the time that passes, it depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import copy
import io
import os
import sys
import time
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import torch

from benchmarks import onnx_models
from relaxpy.exec.api.compile import compile
from relaxpy.relax.frontend.torch import from_exported_program, relax_dynamo

THREADS = len(os.sched_getaffinity(0))
nn = torch.nn


class Block(nn.Module):  # type: ignore[misc]
    """A residual block of convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Any) -> Any:
        """The block's result plus its operand."""
        return torch.relu(x + self.body(x))


class Tagger(nn.Module):  # type: ignore[misc]
    """A label for each word, by a recurrent layer."""

    def __init__(self, layer: type[nn.RNNBase] = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.layer = layer(64, 64, batch_first=True, **options)
        self.labels = nn.Linear(64 * (1 + self.layer.bidirectional), 12)

    def forward(self, words: Any) -> Any:
        """The scores of the labels."""
        return self.labels(self.layer(self.words(words))[0])


def images() -> Any:
    """A small residual network."""
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), Block(64), Block(64), *head)


def encoder() -> Any:
    """Two layers of a transformer."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def perceptron() -> Any:
    """Three linear layers."""
    layers = (nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
    return nn.Sequential(*layers)


class Separable(nn.Module):  # type: ignore[misc]
    """A residual block of a depthwise convolution between two pointwise ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = channels * 4
        middle = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False)
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()),
            *(middle, nn.BatchNorm2d(wide), nn.Hardswish()),
            *(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)),
        )

    def forward(self, x: Any) -> Any:
        """The block's result plus its operand."""
        return x + self.body(x)


class Mixer(nn.Module):  # type: ignore[misc]
    """Linear layers over the patches of an image and over their channels, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.of_patches = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
        self.of_channels = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
        self.norms = nn.ModuleList([nn.LayerNorm(256), nn.LayerNorm(256)])

    def forward(self, x: Any) -> Any:
        """The patches after both."""
        x = x + self.of_patches(self.norms[0](x).mT).mT
        return x + self.of_channels(self.norms[1](x))


class Decoder(nn.Module):  # type: ignore[misc]
    """A layer of a language model, whose words see those before them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(1000, 256), nn.RMSNorm(256)
        self.joint, self.out = nn.Linear(256, 768, bias=False), nn.Linear(256, 256, bias=False)
        self.gate, self.up = nn.Linear(256, 688, bias=False), nn.Linear(256, 688, bias=False)
        self.down, self.scores = nn.Linear(688, 256, bias=False), nn.Linear(256, 1000, bias=False)

    def forward(self, words: Any) -> Any:
        """The scores of the next words."""
        x = self.words(words)
        heads = self.joint(self.norm(x)).unflatten(-1, (3, 4, 64)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.norm(x)
        return self.scores(x + self.down(nn.functional.silu(self.gate(y)) * self.up(y)))


def separable() -> Any:
    """A small network of depthwise convolutions."""
    stem = (nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.Hardswish())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return nn.Sequential(*stem, *(Separable(32) for _ in range(3)), *head)


def autoencoder() -> Any:
    """Convolutions to fewer pixels, and back."""
    down = (nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU())
    up = (nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))
    return nn.Sequential(*down, *up, nn.Sigmoid())


def words(batch: int, length: int) -> Any:
    """Random numbers of words."""
    return torch.randint(0, 1000, (batch, length))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "perceptron, 1 row": (perceptron, lambda: torch.randn(1, 256)),
    "perceptron, 64 rows": (perceptron, lambda: torch.randn(64, 256)),
    "residual network": (images, lambda: torch.randn(1, 3, 112, 112)),
    "encoder, 64 words": (encoder, lambda: torch.randn(1, 64, 256)),
    "tagger, 20 words": (Tagger, lambda: words(1, 20)),
    "tagger of 8, 50 words": (
        lambda: Tagger(nn.GRU, bidirectional=True, num_layers=2),
        lambda: words(8, 50),
    ),
    "tagger without gates": (lambda: Tagger(nn.RNN), lambda: words(4, 30)),
    "separable network": (separable, lambda: torch.randn(1, 3, 96, 96)),
    "autoencoder": (autoencoder, lambda: torch.randn(4, 3, 32, 32)),
    "mixer, 64 patches": (Mixer, lambda: torch.randn(2, 64, 256)),
    "decoder, 64 words": (Decoder, lambda: words(1, 64)),
    "decoder, 1 word": (Decoder, lambda: words(1, 1)),
}


def libraries() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Models of libraries: images of 128 pixels, texts of 64 words, in small configurations."""
    from tests.plugins.torch import test_models as known

    layers = {
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }
    decoder = {**layers, "vocab_size": known.WORDS, "num_key_value_heads": 2}
    distil = {"dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024}
    gpt2 = {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": known.WORDS}
    t5 = {"d_model": 256, "num_layers": 4, "num_heads": 4, "d_kv": 64, "d_ff": 1024}
    whisper = {k: 256 if k == "d_model" else v for k, v in known._WHISPER.items()}
    bert = ("BertModel", "BertConfig", "input_ids")
    builders = {
        **{n: known.vision(n, 128) for n in ("resnet18", "resnet50", "mobilenet_v3_large")},
        **{n: known.vision(n, 128) for n in ("efficientnet_b0", "convnext_tiny", "densenet121")},
        "vit_b_16": known.vision("vit_b_16", 128, image_size=128),
        "swin_t": known.vision("swin_t", 128),
        "DeepLabV3": known.vision("deeplabv3_mobilenet_v3_large", 128, weights_backbone=None),
        "U-Net": known.OF_PYTORCH["diffusion"],
        "BERT": known.hugging(*bert, sizes=layers, vocab_size=known.WORDS),
        "DistilBERT": known.hugging(
            "DistilBertModel", "DistilBertConfig", "input_ids", sizes=distil
        ),
        "GPT-2": known.hugging("GPT2LMHeadModel", "GPT2Config", "input_ids", sizes=gpt2),
        **{
            name: known.hugging(f"{name}ForCausalLM", f"{name}Config", "input_ids", sizes=decoder)
            for name in ("Llama", "Qwen2", "Mistral")
        },
        "Gemma": known.hugging(
            "GemmaForCausalLM", "GemmaConfig", "input_ids", sizes={**decoder, "head_dim": 64}
        ),
        "T5": known.hugging("T5Model", "T5Config", "input_ids decoder_input_ids", sizes=t5),
        "Whisper": known.hugging(
            *("WhisperModel", "WhisperConfig", "input_features decoder_input_ids"), sizes=whisper
        ),
        "CLIP image": known.hugging(
            *("CLIPVisionModel", "CLIPVisionConfig", "pixel_values"),
            sizes=layers,
            image_size=128,
            patch_size=16,
        ),
        "Mamba": known.hugging(
            *("MambaForCausalLM", "MambaConfig", "input_ids"),
            length=None,
            sizes={"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": known.WORDS},
        ),
        "LSTM tagger": known.OF_PYTORCH["LSTM tagger"],
        "GRU tagger": known.OF_PYTORCH["GRU tagger"],
        "graph network": known.OF_PYTORCH["graph network"],
    }

    def arguments(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """One image, or one text of 64 words, of those of a test."""
        if name == "graph network":
            return args
        words = 24 if name in ("Mamba", "LSTM tagger", "GRU tagger", "Whisper") else 64
        return tuple(
            x[:1] if x.is_floating_point() else x.repeat(1, words)[:1, :words].contiguous()
            for x in args
        )

    def made(name: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        found: list[Any] = []

        def model() -> Any:
            found[:] = builders[name]()
            return found[0]

        return model, lambda: arguments(name, found[1])

    return {name: made(name) for name in builders}


def apart(model: Any) -> Any:
    """A copy whose code is its own, as PyTorch never compiles code again that it has given up."""
    kind = type(model)
    old = kind.forward
    forward = FunctionType(old.__code__.replace(), old.__globals__, old.__name__, old.__defaults__)
    found = copy.deepcopy(model)
    found.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return found


def session(program: Any, args: tuple[Any, ...], threads: int) -> Callable[[], Any]:
    """A call of ONNX Runtime.

    Errors:
        Exception: PyTorch does not export the model, or ONNX Runtime does not run it.
    """
    import onnxruntime

    file = io.BytesIO()
    torch.onnx.export(program, args, dynamo=True, verbose=False).save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    found = onnxruntime.InferenceSession(file.getvalue(), options, ["CPUExecutionProvider"])
    given = {i.name: x.numpy() for i, x in zip(found.get_inputs(), args, strict=True)}
    return lambda: found.run(None, given)


def main() -> None:
    """Print a row for each model whose name contains the argument."""
    parser = argparse.ArgumentParser()
    parser.add_argument("chosen", nargs="?", default="")
    parser.add_argument("--libraries", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--arguments", action="store_true", help="weights are arguments")
    parser.add_argument("--peers", default="eager,inductor,ORT", help="those that are measured")
    options = parser.parse_args()
    threads = 1 if options.processor_time else THREADS
    if options.processor_time:
        os.environ["RELAXPY_NUM_THREADS"] = "1"
        onnx_models.CLOCK = time.thread_time
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    print(
        f"{'model':22}{'import s':>9}{'compile s':>10}{'eager ms':>9}{'inductor':>9}{'ORT':>7}"
        f"{'exported':>9}{'compiled':>9} error"
    )
    ratios: list[tuple[float, float, float]] = []
    for name, (make, draw) in (libraries() if options.libraries else MODELS).items():
        if options.chosen not in name:
            continue
        torch.manual_seed(0)
        model, args = make().eval(), draw()
        args = args if isinstance(args, tuple) else (args,)
        program = torch.export.export(model, args)
        begin = time.process_time()
        module = from_exported_program(program, unwrap_unit_return_tuple=True)
        imported = time.process_time()
        run = compile(module)["main"]
        found = run(*args)
        built = time.process_time()
        torch._dynamo.reset()
        backend = relax_dynamo(freezing=not options.arguments)
        ours = torch.compile(copy.deepcopy(model), backend=backend)
        with torch.inference_mode():
            expected = model(*args)
            peers: dict[str, Callable[[], Any]] = {"eager": lambda: model(*args)}  # noqa: B023
            if "inductor" in options.peers:
                other = torch.compile(apart(model))
                with torch._dynamo.config.patch(allow_rnn=False):  # as where relaxpy is not used
                    other(*args)
                peers["inductor"] = lambda: other(*args)  # noqa: B023
            if options.libraries and "ORT" in options.peers:
                try:
                    peers["ORT"] = session(program, args, threads)
                except Exception as error:  # of any kind: the row has no figure then
                    print(f"{name}: no ONNX Runtime: {str(error)[:90]!r}")
            calls = [*peers.values(), lambda: run(*args), lambda: ours(*args)]  # noqa: B023
            for call in calls:
                call()
            *others, exported, compiled = onnx_models.least(calls)
        times = dict(zip(peers, others, strict=True))
        best, eager = min(others), times["eager"]
        inductor, runtime = (times.get(n, np.nan) / eager for n in ("inductor", "ORT"))
        ratios.append((exported / best, compiled / best, compiled / times.get("inductor", np.nan)))
        leaves = torch.utils._pytree.tree_leaves
        pairs = zip(leaves(found), leaves(expected), strict=False)
        error = max(float((torch.as_tensor(a) - b).abs().max()) for a, b in pairs)
        print(
            f"{name:22}{imported - begin:9.2f}{built - imported:10.2f}{times['eager'] * 1e3:9.3f}"
            f"{inductor:9.2f}{runtime:7.2f}{ratios[-1][0]:9.2f}{ratios[-1][1]:9.2f} {error:.1e}",
            flush=True,
        )
    means = np.exp(np.log(np.array(ratios)).mean(axis=0))
    print(f"geometric means {means[0]:.2f} {means[1]:.2f}, to inductor {means[2]:.2f}")
    if means[2] > 1:
        sys.exit("torch.compile on relaxpy takes longer than PyTorch's own backend")


if __name__ == "__main__":
    main()
