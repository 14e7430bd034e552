"""The commands of language models: generate, chat, perplexity and serve."""

from __future__ import annotations

import errno
import gc
import math
import os
import re
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxpy.errors import RelaxpyError
from relaxpy.plugins.cli.chat_history import History, history_file
from relaxpy.plugins.cli.show import UsageError, show_error
from relaxpy.support.gc_pause import gc_paused

if TYPE_CHECKING:
    from relaxpy.llm import LanguageModel
    from relaxpy.plugins.llm.models import Place

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
    command.add_argument(
        "--no-history", action="store_true", help="keep no lines that are typed for later chats"
    )
    _add_sampling(command, "what the context has room for")

    command = add(
        "perplexity",
        perplexity,
        "how well a language model foresees a text",
        "All of the text is cut into chunks, the second halves of which count, as llama.cpp's tool "
        "has it.",
    )
    _add_model(command, context="the tokens of a chunk (default: 512)")
    command.add_argument("text", metavar="TEXT_FILE", help="a text, or - for standard input")
    command.add_argument(
        "--chunks", type=_positive, metavar="N", help="read only so many chunks (default: all)"
    )
    command.add_argument(
        "--against",
        metavar="MODEL",
        help="compare with this model, not quantized: the share of equal best tokens, and the "
        "mean Kullback-Leibler divergence",
    )

    command = add(
        "serve",
        serve,
        "serve a language model by OpenAI's HTTP API, with a page to chat",
        "It needs the extra serve. RELAXPY_API_KEY is the key that requests have to name.",
    )
    _add_model(command, several=True)
    command.add_argument(
        "--keep-alive",
        type=_duration,
        default=math.inf,
        metavar="TIME",
        help="unload a model that nobody has used for this time, such as 5m (default: never)",
    )
    command.add_argument(
        "--memory",
        type=_bytes,
        metavar="SIZE",
        help="the most that models take, such as 8GB (default: 80 percent of the machine's)",
    )
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


def _add_model(
    command: ArgumentParser, *, several: bool = False, context: str | None = None
) -> None:
    what = "a Hugging Face folder, a GGUF file, or OWNER/NAME in the cache of huggingface_hub"
    if several:
        what += "; or a folder of models; several are loaded when they are asked for"
        command.add_argument("model", nargs="+", metavar="MODEL", help=what)
        form, text = "[MODEL:][NAME=]PATH", "an adapter, asked for as MODEL:NAME; may be repeated"
        command.add_argument(
            "--lora", type=_adapter, action="append", default=[], metavar=form, help=text
        )
    else:
        command.add_argument("model", metavar="MODEL", help=what)
        command.add_argument("--lora", metavar="PATH", help="an adapter: a folder or a GGUF file")
    if context is None:
        command.add_argument(
            "--draft", metavar="MODEL", help="a smaller model of the same tokens that guesses them"
        )
        command.add_argument(
            "--lookup",
            type=_looked_up,
            metavar="N",
            help="guess at most N tokens at a time by what followed the last ones before",
        )
    command.add_argument(
        "--download", action="store_true", help="fetch OWNER/NAME, or what the cache lacks of it"
    )
    add_model_options(command, **({} if context is None else {"context": context}))
    command.add_argument(
        "--target", metavar="NAME", help="one of `relaxpy targets`, which names the default"
    )
    command.add_argument(
        "--threads", type=_threads, metavar="N", help="the threads of kernels (default: all)"
    )


def add_model_options(
    command: ArgumentParser,
    context: str = "the most tokens of a prompt and its answer (default: 4096)",
) -> None:
    """Add the options that decide which program a language model is."""
    command.add_argument(
        "--quantize", metavar="NAME", help="weights in few bits, such as q4f32_1 or w4a8f32"
    )
    command.add_argument("--context", type=_positive, metavar="N", help=context)
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
    chosen = _sampling(options)
    _print_stream(_adapted(options, sequences=1), text, chosen)
    return 0


def perplexity(options: Namespace) -> int:
    """Print the perplexity of a text, and how the model agrees with another one."""
    try:
        text = sys.stdin.read() if options.text == "-" else Path(options.text).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{options.text} is not UTF-8: {error}") from None
    lm, other = _adapted(options, sequences=1), None
    if options.against is not None:
        plain = Namespace(**{**vars(options), "quantize": None, "lora": None})
        plain.model = options.against
        other = _adapted(plain, sequences=1)
    found = lm.perplexity(text, context=options.context, chunks=options.chunks, against=other)
    print(f"perplexity: {found.value:.4f} ± {found.error:.4f} over {found.tokens} tokens")
    if other is not None:
        print(f"the same best token as {other.name}: {found.same_best:.3%}")
        print(f"mean Kullback-Leibler divergence: {found.divergence:.6f}")
    return 0


def chat(options: Namespace) -> int:
    """Read messages and print the answers, until the input ends."""
    chosen = _sampling(options)
    lm = _adapted(options, sequences=2)  # a turn, and the one before, with which it shares pages
    first = [] if options.system is None else [{"role": "system", "content": options.system}]
    messages = list(first)
    is_terminal, is_cut = sys.stdin.isatty(), False
    keep = _history(is_kept=not options.no_history) if is_terminal else None
    lm.template  # noqa: B018  # a model without one is not for conversations
    if is_terminal:
        print(f"{lm.name}: /help shows the commands, /exit or Ctrl-D ends", file=sys.stderr)
    while True:
        try:
            line = _typed(input, "> " if is_terminal else "").strip()
        except EOFError:
            return 0
        if keep is not None:
            keep()
        if line in {"/exit", "/quit", "/bye"}:
            return 0
        if line == "/clear":
            messages, is_cut = list(first), False
        elif line in {"/help", "/?"}:
            print(_HELP, file=sys.stderr)
        elif re.match(r"/\w*(\s|$)", line):
            _note(f"there is no command {line.split()[0]!r:.40}: {_HELP}")
        elif line:
            line = line.removeprefix("/") if line.startswith("//") else line
            whole = [*messages, {"role": "user", "content": line}]
            try:
                asked = _fitting(lm, whole, len(first), chosen["max_tokens"])
                if len(asked) < len(whole) and not is_cut:
                    is_cut = True
                    _note("the context is full: from now on the oldest turns are left out")
                answer = _print_stream(lm, asked, chosen | _rest(lm, asked, chosen))
            except RelaxpyError as error:
                show_error(error, sys.stderr, "relaxpy")
                continue
            messages = [*asked, {"role": "assistant", "content": answer}]


def _history(*, is_kept: bool) -> Callable[[], None] | None:
    """Let `input` edit lines, with those of earlier chats; what keeps new ones, if that is wanted.

    A file that cannot be used is no reason not to chat: a note tells why nothing is kept.
    """
    try:
        import readline  # which not every Python has
    except ImportError:
        return None
    try:
        if not is_kept or (path := history_file()) is None:
            return None
        own = History(readline, path)
    except (OSError, RuntimeError) as error:
        _note(f"lines are not kept for later chats: {error}")
        return None

    def keep() -> None:
        with suppress(OSError):  # as where the disk is full
            own.keep()

    return keep


def _fitting(
    lm: LanguageModel, messages: list[dict[str, str]], first: int, max_tokens: int | None
) -> list[dict[str, str]]:
    """A conversation that leaves room for an answer: its oldest turns may be missing.

    Half of the context is free then, so that not each turn needs all to be read again. The `first`
    messages stay. Where not even the last message alone fits, nothing is left out.
    """
    from relaxpy.plugins.llm.config import ContextError

    context = lm.decoder.context

    def length(found: list[dict[str, str]]) -> int:
        try:
            return len(lm.tokens(found))
        except ContextError:  # as its text tells
            return context + 1

    if length(messages) + (max_tokens or context // 4) <= context:
        return messages
    found, most = messages, context - max(max_tokens or 1, context // 2)
    while length(found) > most and len(found) > first + 1:
        found = [*found[:first], *found[first + 2 :]]
    return found if length(found) + (max_tokens or 1) <= context else messages


def serve(options: Namespace) -> int:
    """Serve models until a signal ends it."""
    from relaxpy.plugins.llm.files import open_model
    from relaxpy.plugins.llm.models import Models, places_of
    from relaxpy.plugins.llm.server import KEY, listening, require_packages, serve as run

    require_packages()  # before a model is loaded, which takes long
    try:
        listening(options.host, options.port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        hint = "--port takes another one; 0 is any that is free"
        raise UsageError(f"the port {options.port} is in use", hint=hint) from None
    given = _options(options) | {"sequences": options.parallel}
    with _extras():
        if options.draft is not None and options.download:
            open_model(options.draft, download=True)
        places = places_of(options.model, options.lora, given, download=options.download)
        if options.draft is not None and len(places) > 1:
            raise UsageError(
                f"--draft guesses the tokens of one model, found {len(places)} of them"
            )
        sized = [(place, _size(place, is_only=len(places) == 1)) for place in places]
    sizes = {place.name: size for place, size in sized if size is not None}
    places = [place for place in places if place.name in sizes]
    if not places:
        raise UsageError(f"there is no model to serve in {', '.join(options.model)}")

    def log(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)

    most = options.queue + options.parallel
    models = Models(places, options.memory, options.keep_alive, most=most, log=log)
    if len(places) == 1:
        [place] = places
        if sizes[place.name] > models.memory:
            raise UsageError(models.too_large(place.name, sizes[place.name]))
        with _extras():
            loaded = place.load()
        for note in loaded.notes:
            _note(note)
        models.put(loaded)
    if options.host not in {"127.0.0.1", "localhost", "::1"} and not os.environ.get(KEY):
        _note(f"{options.host} may be reached by others: {KEY} is the key that they need")

    def ready(url: str) -> None:
        *others, last = (place.name for place in places)
        names, verb = (f"{', '.join(others)} and {last}", "are") if others else (last, "is")
        print(f"{names} {verb} served at {url} (OpenAI's API at {url}/v1)", flush=True)

    run(
        models,
        options.host,
        options.port,
        max_tokens=options.max_tokens,
        queue=options.queue,
        cors=options.cors,
        log=log,
        ready=ready,
    )
    return 0


def _size(place: Place, *, is_only: bool) -> int | None:
    """The bytes that a model takes; of one of several that has none, a note says why."""
    try:
        return place.memory_needed()
    except (RelaxpyError, OSError) as error:
        if is_only:
            raise
        _note(f"{place.name} is not served: {error}")
        return None


def _adapted(options: Namespace, **limits: Any) -> LanguageModel:
    """The model, with an adapter if one is given."""
    more: dict[str, Any] = {"download": True} if options.download else {}
    if options.lora is None:
        return load_model(options, options.model, **more, **limits)
    name, path = _adapter(options.lora)
    return load_model(options, options.model, adapters={name: path}, **more, **limits).adapted(name)


def _options(options: Namespace) -> dict[str, Any]:
    """The options of `load` that are given for all models."""
    from relaxpy.exec.runtime.threads import THREADS

    if options.threads is not None:
        os.environ[THREADS] = str(options.threads)
    from relaxpy.ir.core.target import target_kind

    try:
        target_kind(options.target)
    except RelaxpyError as error:
        raise UsageError(error.diagnostics) from None
    names = ("quantize", "target", "context", "cache_dtype")
    guesses = {name: getattr(options, name, None) for name in ("draft", "lookup")}
    given = {name: value for name, value in guesses.items() if value is not None}
    return {name: getattr(options, name) for name in names} | given


@contextmanager
def _extras() -> Iterator[None]:
    """Errors: UsageError names an extra that reads the files of a model, if it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from None


@gc_paused
def load_model(options: Namespace, model: str | Path, **more: Any) -> LanguageModel:
    """The model, and what the user should know of it."""
    given = _options(options)
    from relaxpy.llm import load

    with _extras():
        lm = load(model, **given, **more)
    gc.freeze()  # no collection visits all of the program, which takes 20 ms and more
    for note in lm.notes:
        _note(note)
    return lm


def _note(text: str) -> None:
    print(f"relaxpy: {text}", file=sys.stderr)


def _sampling(options: Namespace) -> dict[str, Any]:
    """The options of an answer. Errors: ParameterError if one has no such value."""
    from relaxpy.plugins.llm.continuation import stop_texts
    from relaxpy.plugins.llm.sampling import Sampling

    chosen = {name: getattr(options, name) for name in _SAMPLING}
    given = {name: value for name, value in chosen.items() if value is not None}
    Sampling(**{name: value for name, value in given.items() if name != "stop"})
    stop_texts(options.stop)
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


def _adapter(text: str) -> tuple[str, str]:
    """The name of an adapter, that of its files if none is written, and its path."""
    name, is_named, path = text.rpartition("=")
    model, colon, name = name.rpartition(":") if is_named else ("", "", "")
    return f"{model}{colon}{name or Path(path).stem}", path


def _duration(text: str) -> float:
    """The seconds that `text` writes; infinity for those below 0."""
    from relaxpy.plugins.llm.models import seconds_of

    try:
        return seconds_of(text)
    except RelaxpyError:
        raise ArgumentTypeError(
            f"expected a time, such as 90, 5m or -1, found {text!r:.60}"
        ) from None


def _bytes(text: str) -> int:
    """The number of bytes that `text` writes, which has a unit: others mean 12 as 12 GB or MB."""
    form = r"(\d{1,12}(?:\.\d{1,6})?)(?:([KMGT])(i?)B?|B)"
    found = re.fullmatch(form, text, re.IGNORECASE | re.ASCII)
    if found is None:
        raise ArgumentTypeError(f"expected a size with its unit, such as 8GB, found {text!r:.60}")
    unit = (1024 if found[3] else 1000) ** " KMGT".index((found[2] or " ").upper())
    return int(float(found[1]) * unit)


def _threads(text: str) -> int:
    """The number of threads that `text` writes."""
    from relaxpy.exec.runtime.threads import MOST_THREADS

    return _number(text, 1, MOST_THREADS)


def _looked_up(text: str) -> int:
    """The number of tokens to look up that `text` writes."""
    from relaxpy.plugins.llm.drafts import MOST_LOOKED_UP

    return _number(text, 0, MOST_LOOKED_UP)


def _number(text: str, least: int = 0, most: int | None = None) -> int:
    if not text.isdecimal() or len(text) > 18 or not least <= int(text) <= (most or int(text)):
        limits = f"from {least}" if most is None else f"from {least} to {most}"
        raise ArgumentTypeError(f"expected an integer {limits}, found {text!r:.60}")
    return int(text)


_positive = partial(_number, least=1)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a number, found {text!r:.60}") from None
