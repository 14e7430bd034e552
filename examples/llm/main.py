"""Continue a text by the model of a Hugging Face folder.

    python examples/llm/main.py FOLDER "Once upon a time" --max-tokens 50 --temperature 0.8

Texts need the package tokenizers and the folder's tokenizer.json; `--tokens "1 2 3"` needs neither.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from config import ModelError
from engine import Engine
from model import LanguageModel
from sampling import Sampling


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", help="has config.json and safetensors")
    parser.add_argument("text", nargs="?", help="what is continued")
    parser.add_argument("--tokens", help="the numbers of the tokens that are continued: '3 1 4'")
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--quantization", help="weights in few bits, such as q4f32_1 or q8f32_1")
    parser.add_argument("--cache-dtype", help="the datatype of keys and values, such as float16")
    parser.add_argument("--target", help="native or numpy; without it, RELAXPY_TARGET decides")
    arguments = parser.parse_args()
    if (arguments.text is None) == (arguments.tokens is None):
        parser.error("give a text or --tokens")
    return arguments


def tokenizer_of(folder: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelError("texts need a package: pip install tokenizers") from None
    path = Path(folder) / "tokenizer.json"
    if not path.exists():
        raise ModelError(f"there is no {path}; --tokens takes numbers of tokens")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises no other class
        raise ModelError(f"{path} is not a tokenizer: {error}") from None


def run(arguments: argparse.Namespace) -> None:
    if not Path(arguments.folder).is_dir():
        raise ModelError(
            f"there is no folder {arguments.folder!r}; "
            "`hf download OWNER/MODEL --local-dir FOLDER` fetches a model"
        )
    tokenizer = None if arguments.text is None else tokenizer_of(arguments.folder)
    sampling = Sampling(
        arguments.temperature,
        arguments.top_k,
        arguments.top_p,
        arguments.repetition_penalty,
        arguments.seed,
    )
    model = LanguageModel.from_folder(
        arguments.folder,
        quantization=arguments.quantization,
        cache_dtype=arguments.cache_dtype,
        target=arguments.target,
    )
    if tokenizer is None:
        try:
            prompt = [int(number) for number in arguments.tokens.split()]
        except ValueError:
            raise ModelError(f"--tokens takes numbers, found {arguments.tokens!r}") from None
    else:
        prompt = tokenizer.encode(arguments.text).ids
    request = Engine(model).add(prompt, sampling, arguments.max_tokens, model.config.stop)
    begin, shown = time.perf_counter(), ""
    for token in request:
        if tokenizer is None:
            print(token, end=" ", flush=True)
        else:  # several tokens may be needed for a character
            text = tokenizer.decode(request.tokens)
            if not text.endswith("\N{REPLACEMENT CHARACTER}"):
                print(text[len(shown) :], end="", flush=True)
                shown = text
    seconds = time.perf_counter() - begin
    print()
    rate = len(request.tokens) / seconds
    print(f"{len(request.tokens)} tokens, {rate:.1f} per second", file=sys.stderr)


def main() -> None:
    try:
        run(read_arguments())
    except (ValueError, ImportError) as error:  # ModelError; what weights and options raise
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
