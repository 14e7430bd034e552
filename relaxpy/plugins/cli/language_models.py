"""The commands of language models: generate, chat and serve."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relaxpy.errors import RelaxpyError
from relaxpy.plugins.cli.show import UsageError, show_error
from relaxpy.support.gc_pause import gc_paused

if TYPE_CHECKING:
    from relaxpy.llm import LanguageModel

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop")
_HELP = (
    "/clear starts again, /exit or Ctrl-D ends, /help shows this; Ctrl-C interrupts an answer; "
    "// begins a text with a /"
)
Add = Callable[..., ArgumentParser]


def add_commands(add: Add) -> None:
    """Add the commands; `add` takes a name, a function and a help text, and returns a parser."""
    command = add("generate", generate, "continue a text by a language model")
    _add_model(command)
    command.add_argument("text", metavar="TEXT", help="a text, or - for standard input")
    _add_sampling(command, "256, or what the context has room for")

    command = add("chat", chat, "chat with a language model", f"{_HELP}.")
    _add_model(command)
    command.add_argument("--system", metavar="TEXT", help="what the model is told first")
    _add_sampling(command, "what the context has room for")

    command = add(
        "serve",
        serve,
        "serve a language model by OpenAI's HTTP API, with a page to chat",
        "It needs the extra serve. RELAXPY_API_KEY is the key that requests have to name.",
    )
    _add_model(command)
    command.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
    command.add_argument("--port", type=_port, default=8000, metavar="N", help="default: 8000")
    command.add_argument(
        "--parallel", type=_positive, default=8, metavar="N", help="answers at a time (default: 8)"
    )
    command.add_argument(
        "--queue", type=_number, default=64, metavar="N", help="requests that wait (default: 64)"
    )
    command.add_argument(
        "--max-tokens",
        type=_positive,
        default=2048,
        metavar="N",
        help="the most tokens of an answer (default: 2048)",
    )
    command.add_argument(
        "--cors",
        type=_origin,
        action="append",
        default=[],
        metavar="ORIGIN",
        help="pages of this origin, such as http://localhost:3000, may use it; may be repeated",
    )


def _add_model(command: ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a Hugging Face folder, or a GGUF file")
    add_model_options(command)
    command.add_argument(
        "--target", metavar="NAME", help="one of `relaxpy targets`, which names the default"
    )
    command.add_argument(
        "--threads", type=_threads, metavar="N", help="the threads of kernels (default: all)"
    )


def add_model_options(command: ArgumentParser) -> None:
    """Add the options that decide which program a language model is."""
    command.add_argument(
        "--quantize", metavar="NAME", help="weights in few bits, such as q4f32_1 or w4a8f32"
    )
    command.add_argument(
        "--context",
        type=_positive,
        metavar="N",
        help="the most tokens of a prompt and its answer (default: 4096)",
    )
    command.add_argument(
        "--cache-dtype", metavar="DTYPE", help="of keys and values, such as float16"
    )


def _add_sampling(command: ArgumentParser, most: str) -> None:
    command.add_argument(
        "--max-tokens",
        type=_positive,
        metavar="N",
        help=f"the most tokens of an answer (default: {most})",
    )
    numbers: dict[str, tuple[Callable[[str], Any], str]] = {
        "temperature": (_float, "0 takes the most probable token (default: 0)"),
        "top-p": (_float, "only the fewest tokens whose probabilities sum to this"),
        "top-k": (_positive, "only this number of the most probable tokens"),
        "min-p": (_float, "only tokens with this share of the best probability"),
        "repetition-penalty": (_float, "divides the scores of tokens that were there before"),
        "seed": (_number, "the same seed draws the same tokens"),
    }
    for name, (kind, text) in numbers.items():
        command.add_argument(f"--{name}", type=kind, metavar="N", help=text)
    command.add_argument(
        "--stop", action="append", metavar="TEXT", help="ends an answer; may be repeated"
    )


def generate(options: Namespace) -> int:
    """Print the text that continues a text, as its tokens come."""
    text = _typed(sys.stdin.read) if options.text == "-" else options.text
    lm = load_model(options, sequences=1)
    _print_stream(lm, text, _sampling(options))
    return 0


def chat(options: Namespace) -> int:
    """Read messages and print the answers, until the input ends."""
    from relaxpy.plugins.llm.config import ContextError

    lm = load_model(options, sequences=2)  # a turn, and the one before, with which it shares pages
    chosen = _sampling(options)
    first = [] if options.system is None else [{"role": "system", "content": options.system}]
    messages = list(first)
    is_terminal = sys.stdin.isatty()
    lm.template  # noqa: B018  # a model without one is not for conversations
    if is_terminal:
        print(f"{lm.name}: /help shows the commands, /exit or Ctrl-D ends", file=sys.stderr)
    while True:
        try:
            line = _typed(input, "> " if is_terminal else "").strip()
        except EOFError:
            return 0
        if line in {"/exit", "/quit", "/bye"}:
            return 0
        if line == "/clear":
            messages = list(first)
        elif line in {"/help", "/?"}:
            print(_HELP, file=sys.stderr)
        elif re.match(r"/\w*(\s|$)", line):
            _note(f"there is no command {line.split()[0]!r:.40}: {_HELP}")
        elif line:
            line = line.removeprefix("/") if line.startswith("//") else line
            asked = [*messages, {"role": "user", "content": line}]
            try:
                answer = _print_stream(lm, asked, chosen | _rest(lm, asked, chosen))
            except RelaxpyError as error:
                show_error(error, sys.stderr, "relaxpy")
                if isinstance(error, ContextError) and len(messages) > len(first):
                    _note("the conversation is full: /clear starts again, --context has more room")
                continue
            messages = [*asked, {"role": "assistant", "content": answer}]


def serve(options: Namespace) -> int:
    """Serve a model until a signal ends it."""
    from relaxpy.plugins.llm.server import KEY, require_packages, serve as run

    require_packages()  # before the model is loaded, which takes long
    lm = load_model(options, sequences=options.parallel)
    lm.tokenizer  # noqa: B018  # a server without one has no texts
    if options.host not in {"127.0.0.1", "localhost", "::1"} and not os.environ.get(KEY):
        _note(f"{options.host} may be reached by others: {KEY} is the key that they need")

    def ready(url: str) -> None:
        print(f"{lm.name} is served at {url} (OpenAI's API at {url}/v1)", flush=True)

    run(
        lm,
        options.host,
        options.port,
        max_tokens=options.max_tokens,
        queue=options.queue,
        cors=options.cors,
        log=lambda line: print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True),
        ready=ready,
    )
    return 0


@gc_paused
def load_model(options: Namespace, **limits: Any) -> LanguageModel:
    """The model, and what the user should know of it."""
    from relaxpy.exec.runtime.threads import THREADS

    if options.threads is not None:
        os.environ[THREADS] = str(options.threads)
    from relaxpy.ir.core.target import target_kind
    from relaxpy.llm import load

    try:
        target_kind(options.target)
    except RelaxpyError as error:
        raise UsageError(error.diagnostics) from None
    try:
        lm = load(
            options.model,
            quantize=options.quantize,
            target=options.target,
            context=options.context,
            cache_dtype=options.cache_dtype,
            **limits,
        )
    except ModuleNotFoundError as error:  # of an extra that reads these files
        raise UsageError(str(error)) from None
    gc.freeze()  # no collection visits all of the program, which takes 20 ms and more
    for note in lm.notes:
        _note(note)
    return lm


def _note(text: str) -> None:
    print(f"relaxpy: {text}", file=sys.stderr)


def _sampling(options: Namespace) -> dict[str, Any]:
    chosen = {name: getattr(options, name) for name in _SAMPLING}
    given = {name: value for name, value in chosen.items() if value is not None}
    return {"max_tokens": options.max_tokens, **given}


def _rest(lm: LanguageModel, messages: Any, chosen: dict[str, Any]) -> dict[str, int]:
    """The number of tokens for which the context has room, where none is chosen."""
    if chosen["max_tokens"] is not None:
        return {}
    return {"max_tokens": max(1, lm.decoder.context - len(lm.tokens(messages)))}


def _print_stream(lm: LanguageModel, prompt: Any, options: dict[str, Any]) -> str:
    """Print an answer as it comes; the text that was printed, which Ctrl-C may have ended."""
    begin, pieces = time.perf_counter(), []
    try:
        for piece in lm.stream(prompt, **options):
            pieces.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        if isinstance(prompt, str):
            raise
    finally:
        if pieces:
            print()
    text = "".join(pieces)
    if sys.stderr.isatty():
        rate = len(lm.tokenizer.encode(text)) / (time.perf_counter() - begin)
        print(f"{rate:.1f} tokens per second", file=sys.stderr)
    return text


def _typed(read: Callable[..., str], *args: str) -> str:
    """The text of standard input. Errors: UsageError if it is not UTF-8."""
    try:
        return read(*args)
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8: {error}") from None


def _port(text: str) -> int:
    """The number of a port that `text` writes."""
    if (port := _number(text)) > 65535:
        raise ArgumentTypeError(f"expected a port, up to 65535, found {text!r:.60}")
    return port


def _origin(text: str) -> str:
    """The origin that `text` writes; `*` means any."""
    if text != "*" and not re.fullmatch(r"https?://[^/\s]+", text):
        raise ArgumentTypeError(
            f"expected an origin, such as http://localhost:3000, found {text!r:.60}"
        )
    return text


def _positive(text: str) -> int:
    """The positive integer that `text` writes."""
    return _number(text, least=1)


def _threads(text: str) -> int:
    """The number of threads that `text` writes."""
    from relaxpy.exec.runtime.threads import MOST_THREADS

    return _number(text, 1, MOST_THREADS)


def _number(text: str, least: int = 0, most: int | None = None) -> int:
    if not text.isdecimal() or len(text) > 18 or not least <= int(text) <= (most or int(text)):
        limits = f"from {least}" if most is None else f"from {least} to {most}"
        raise ArgumentTypeError(f"expected an integer {limits}, found {text!r:.60}")
    return int(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a number, found {text!r:.60}") from None
