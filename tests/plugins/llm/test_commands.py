"""The commands generate, chat and serve."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import relaxpy
from relaxpy.plugins.cli.chat_history import History, history_file
from relaxpy.plugins.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def as_loaded(lm: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Commands use the compiled model; the options with which they load it."""
    calls: list[dict[str, Any]] = []

    def load(path: str, **options: Any) -> Any:
        calls.append({"path": Path(path).name, **options})
        return lm

    monkeypatch.setattr("relaxpy.llm.load", load)
    return calls


def test_generate_prints_what_the_interface_returns(capsys, lm, folder, as_loaded, monkeypatch):
    options = {
        "max_tokens": 9,
        "temperature": 0.8,
        "top_p": 0.9,
        "top_k": 20,
        "seed": 4,
        "min_p": 0.01,
    }
    words = [w for name, v in options.items() for w in (f"--{name.replace('_', '-')}", v)]
    wanted = lm.generate("the cat", **options)
    assert run(capsys, "generate", folder, "the cat", *words) == (0, f"{wanted}\n", "")
    stopped = run(capsys, "generate", folder, "the cat", *words, "--stop", wanted[2])
    assert stopped == (0, f"{wanted[: wanted.index(wanted[2])]}\n", "")
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat"))
    assert run(capsys, "generate", folder, "-", *words)[1] == f"{wanted}\n"
    more = ("--quantize", "q8f32_1", "--context", 99, "--target", "numpy")
    run(capsys, "generate", folder, "a", "--max-tokens", 1, *more, "--cache-dtype", "float16")
    assert as_loaded[-1] == {
        "path": "tiny",
        "quantize": "q8f32_1",
        "context": 99,
        "target": "numpy",
        "cache_dtype": "float16",
        "sequences": 1,
    }


def test_guesses_are_options_of_the_model(capsys, lm, folder, as_loaded, tmp_path) -> None:
    wanted = run(capsys, "generate", folder, "the cat", "--max-tokens", 5)
    guesses = ("--draft", "SMALL", "--lookup", 7)
    assert run(capsys, "generate", folder, "the cat", "--max-tokens", 5, *guesses) == wanted
    assert (as_loaded[-1]["draft"], as_loaded[-1]["lookup"]) == ("SMALL", 7)
    code, _, err = run(capsys, "serve", folder, copytree(folder, tmp_path / "other"), *guesses)
    assert (code, "--draft guesses the tokens of one model, found 2" in err) == (2, True)
    code, _, err = run(capsys, "chat", folder, "--lookup", 65)
    assert (code, "expected an integer from 0 to 64, found '65'" in err) == (2, True)


def test_perplexity_prints_what_the_interface_returns(capsys, lm, folder, as_loaded, tmp_path):
    text, path = "the cat sat on the mat " * 30, tmp_path / "text.txt"
    path.write_text(text)
    wanted = lm.perplexity(text, context=40, chunks=3)
    line = f"perplexity: {wanted.value:.4f} ± {wanted.error:.4f} over {wanted.tokens} tokens\n"
    words = ("perplexity", folder, path, "--context", 40, "--chunks", 3)
    assert run(capsys, *words) == (0, line, "")
    code, out, _ = run(capsys, *words, "--quantize", "q4f32_1", "--against", folder)
    assert (code, out.splitlines()[1:]) == (
        0,
        ["the same best token as tiny: 100.000%", "mean Kullback-Leibler divergence: 0.000000"],
    )
    assert [call["quantize"] for call in as_loaded[-2:]] == ["q4f32_1", None]
    path.write_bytes(b"\xff")
    code, _, err = run(capsys, *words)
    assert (code, f"{path} is not UTF-8" in err) == (2, True)
    assert run(capsys, "perplexity", folder, tmp_path / "none")[0] == 2


def test_chat_answers_lines_until_the_end(capsys, lm, folder, as_loaded, monkeypatch) -> None:
    def answer(*contents: str) -> str:
        roles = ("system", "user", "assistant", "user")
        messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
        return str(lm.generate(messages, max_tokens=6))

    first = answer("Be kind.", "hello")
    second = answer("Be kind.", "hello", first, "so?")
    lines = f"hello\n\nso?\n{'x' * 900}\n/clear\nhello\n/exit\nmore\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    words = ("--system", "Be kind.", "--max-tokens", 6)
    code, out, err = run(capsys, "chat", folder, *words)
    assert (code, out) == (0, f"{first}\n{second}\n{first}\n")
    assert "leaves no room for an answer" in err
    monkeypatch.setattr("sys.stdin", io.StringIO("hello"))
    code, out, _ = run(capsys, "chat", folder)  # the context has room for a longer answer
    assert (code, lm.tokenizer.encode(out) != []) == (0, True)


@pytest.fixture
def asked(lm: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The messages of conversations that the model is to answer."""
    found: list[list[str]] = []
    stream = type(lm).stream

    def recorded(self: Any, prompt: Any, **options: Any) -> Any:
        found.append([message["content"] for message in prompt])
        return stream(self, prompt, **options)

    monkeypatch.setattr(type(lm), "stream", recorded)
    return found


def test_chat_shows_its_commands(capsys, folder, as_loaded, asked, monkeypatch) -> None:
    typed = io.StringIO("/help\n/?\n/foo\n/set temperature 1\n/\n//etc\n/etc/passwd\n/bye\nhello\n")
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setenv("RELAXPY_CHAT_HISTORY", "0")
    monkeypatch.setattr("sys.stdin", typed)
    code, _, err = run(capsys, "chat", folder, "--max-tokens", 2)
    assert code == 0
    assert [contents[-1] for contents in asked] == ["/etc", "/etc/passwd"]
    assert err.startswith("tiny: /help shows the commands, /exit or Ctrl-D ends\n/clear starts ag")
    assert err.count("/clear starts again, /exit or Ctrl-D ends, /help shows this") == 5
    for name in ("/foo", "/set", "/"):
        assert f"there is no command '{name}': /clear starts again" in err


@pytest.mark.parametrize("words", [(), ("--max-tokens", 20), ("--system", "the cat sat")])
def test_chat_leaves_out_the_oldest_turns(
    capsys, lm, folder, as_loaded, asked, monkeypatch, words
) -> None:
    """The context has 256 tokens."""
    questions = [f"{number} hello world the cat" for number in range(24)]
    typed = [*questions[:12], "x" * 900, *questions[12:], "/clear", *questions]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed)))
    code, _, err = run(capsys, "chat", folder, *words, "--stop", " ")
    assert code == 0
    assert err.count("the context is full: from now on the oldest turns are left out") == 2
    assert err.count("leaves no room for an answer") == 1
    first = list(words[1:]) if "--system" in words else []
    assert [contents[-1] for contents in asked] == [q for q in typed if q != "/clear"]
    cuts, answered = 0, [contents for contents in asked if len(contents[-1]) < 900]
    for before, contents in zip([[*first], *answered], answered, strict=False):
        turns = contents[len(first) :]
        assert contents[: len(first)] == first
        assert (len(turns) % 2, turns[::2][-1:]) == (1, [contents[-1]])
        roles = ["system"] * len(first) + ["user", "assistant"] * len(turns)
        messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
        assert len(lm.tokens(messages)) + (20 if "--max-tokens" in words else 1) <= 256
        if len(contents) <= len(before) and contents[len(first)] != questions[0]:
            cuts += 1
            assert len(lm.tokens(messages)) <= 128
            assert len(turns) == 1 or before[2 - len(turns) :] == turns[:-2]
    assert 3 < cuts < 24  # not each turn reads all of the conversation again


def test_lines_of_a_chat_are_edited_and_remembered(folder: Path, lm: Any, tmp_path: Path) -> None:
    pytest.importorskip("readline")
    pty = pytest.importorskip("pty")
    own, other = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(Path(relaxpy.__file__).parents[1]), "TERM": "xterm"}
    history = tmp_path / "states" / "relaxpy" / "chat_history"
    history.parent.mkdir(parents=True)
    history.write_text("/before\n")
    env |= {"XDG_STATE_HOME": str(tmp_path / "states"), "RELAXPY_CHAT_HISTORY": ""}
    command = [sys.executable, "-m", "relaxpy", "chat", str(folder), "--max-tokens", "2"]
    with subprocess.Popen(command, env=env, stdin=other, stdout=other, stderr=other) as process:
        os.close(other)

        def until(mark: bytes) -> bytes:
            seen = b""
            while mark not in seen:
                seen += os.read(own, 1000)
            return seen

        assert until(b"\n> ").count(b"\n") == 1  # the banner
        os.write(own, b"\x1b[A\n")  # the last line of the chat before
        assert b"there is no command '/before'" in until(b"\n> ")
        os.write(own, b"/foo\x01\x1b[C\x1b[C\x08\n")  # the start, two letters on, and back
        assert b"there is no command '/oo'" in until(b"\n> ")
        os.write(own, b"\x1b[A\x7fk\n")  # the line before, with another end
        assert b"there is no command '/ok'" in until(b"\n> ")
        os.write(own, b"/exit\n")
        assert process.wait(20) == 0
    os.close(own)
    kept = history.read_text().splitlines()
    assert [line for line in kept if line != "_HiStOrY_V2_"] == ["/before", "/oo", "/ok", "/exit"]


def test_the_history_of_chats_is_private_and_bounded(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    path, length = tmp_path / "a" / "b" / "lines", readline.get_history_length()
    readline.clear_history()
    try:
        first = History(readline, path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        first.keep()
        assert path.read_bytes() == b""
        readline.add_history("one")
        first.keep()
        path.write_text(f"{path.read_text()}of another chat\n")
        readline.add_history("two")
        first.keep()
        first.keep()
        lines = [line for line in path.read_text().splitlines() if line != "_HiStOrY_V2_"]
        assert lines == ["one", "of another chat", "two"]
        for number in range(1100):
            readline.add_history(f"{number}")
        first.keep()
        kept = path.read_text().splitlines()
        assert len(kept) in (1000, 1001)  # some write a line of their own
        assert kept[-1] == "1099"
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(OSError, match="lines"):
            History(readline, path / "c")
    finally:
        readline.clear_history()
        readline.set_history_length(length)


def test_where_the_history_of_chats_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("RELAXPY_CHAT_HISTORY", raising=False)
    assert history_file() == tmp_path / ".local" / "state" / "relaxpy" / "chat_history"
    for relative in ("", "states"):
        monkeypatch.setenv("XDG_STATE_HOME", relative)
        assert history_file() == tmp_path / ".local" / "state" / "relaxpy" / "chat_history"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "x"))
    assert history_file() == tmp_path / "x" / "relaxpy" / "chat_history"
    monkeypatch.setenv("RELAXPY_CHAT_HISTORY", "~/lines")
    assert history_file() == tmp_path / "lines"
    monkeypatch.setenv("RELAXPY_CHAT_HISTORY", "0")
    assert history_file() is None


def test_nothing_is_kept_of_a_chat_that_does_not_want_it(
    capsys, folder, as_loaded, monkeypatch, tmp_path
) -> None:
    history = tmp_path / "lines"
    monkeypatch.setenv("RELAXPY_CHAT_HISTORY", str(history))
    monkeypatch.setattr("sys.stdin", io.StringIO("/help\n"))
    assert run(capsys, "chat", folder)[0] == 0  # no terminal
    typed = io.StringIO("/help\n")
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    assert run(capsys, "chat", folder, "--no-history")[0] == 0
    assert not history.exists()
    pytest.importorskip("readline")
    monkeypatch.setenv("RELAXPY_CHAT_HISTORY", str(tmp_path))  # a folder
    typed.seek(0)
    code, _, err = run(capsys, "chat", folder)
    assert code == 0
    assert "relaxpy: lines are not kept for later chats: " in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("generate", "none", "x"), 2, "there is no folder or file 'none'; `hf download"),
        (("generate", "{folder}", "x", "--temperature", "-1"), 2, ": --temperature cannot be -1."),
        (("generate", "{folder}", "x", "--temperature", "hot"), 2, "expected a number, found"),
        (("generate", "{folder}", "x", "--max-tokens", "0"), 2, "expected an integer from 1"),
        (("generate", "{folder}", "x", "--seed", "-1"), 2, "expected an integer from 0"),
        (
            ("generate", "{folder}", "x", "--threads", "99999"),
            2,
            "an integer from 1 to 4096, found",
        ),
        (
            ("generate", "{folder}", "x", "--cache-dtype", "int8"),
            2,
            "--cache-dtype cannot be 'int8', expected one of float16, bfloat16, float32",
        ),
        (("generate", "{folder}", "x", "--stop", ""), 2, "error: --stop cannot be ['']"),
        (("generate", "{folder}", "x", "--max-tokens", "999"), 1, "999 more are too many"),
        (("generate", "{folder}", "x" * 999), 1, "leaves no room for an answer"),
        (("generate", "{folder}", "x", "--target", "gpu"), 2, "there is no target 'gpu'"),
        (
            ("generate", "{folder}", "x", "--context", "999"),
            2,
            "--context cannot be 999, expected at most the 256 tokens that the model reads",
        ),
        (("serve", "{folder}", "--context", "999"), 2, "--context cannot be 999, expected at"),
        (
            ("perplexity", "{folder}", "{folder}/config.json", "--context", "1"),
            2,
            "--context cannot be 1, expected an integer from",
        ),
        (
            ("serve", "{folder}", "--memory", "12"),
            2,
            "expected a size with its unit, such as 8GB, found '12'",
        ),
        (("generate", "{folder}", "x", "--quantize", "q9"), 2, "unknown quantisation 'q9'"),
        (("generate", "{folder}", "x", "--temprature", "1"), 2, "did you mean '--temperature'?"),
        (("generate", "{folder}", "x", "--temp", "1"), 2, "did you mean '--temperature'?"),
        (("serve", "{folder}", "--cors", "localhost:3000"), 2, "expected an origin, such as http"),
        (
            ("serve", "{folder}", "--port", "99999"),
            2,
            "expected a port, up to 65535, found '99999'",
        ),
        (
            ("chat", "none", "--top-p", "2"),
            2,
            "--top-p cannot be 2.0, expected a number from 0 to 1",
        ),
        (("profile", "{folder}"), 2, "is a folder: a language model needs --prompt TEXT"),
        (("chat", "{folder}/config.json"), 1, "neither a folder of a model nor a GGUF file"),
    ],
)
def test_what_is_wrong(capsys, folder, words, code, message) -> None:
    found, out, err = run(capsys, *(word.format(folder=folder) for word in words))
    assert (found, out) == (code, "")
    assert message in err


def test_generate_fills_the_room_of_a_small_context(capsys, lm, folder, as_loaded) -> None:
    wanted = lm.generate("the cat", max_tokens=253)  # of 256, the prompt has 3
    assert run(capsys, "generate", folder, "the cat") == (0, f"{wanted}\n", "")


@pytest.mark.parametrize("words", [("generate", "{folder}", "-"), ("chat", "{folder}")])
def test_input_that_is_no_text(capsys, folder, as_loaded, monkeypatch, words) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"\xff\xfehello\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", stream)
    code, out, err = run(capsys, *(word.format(folder=folder) for word in words))
    assert (code, out) == (2, "")
    assert "standard input is not UTF-8: 'utf-8' codec can't decode byte 0xff" in err


def test_chat_of_a_model_of_its_own(capsys, folder, lm, monkeypatch) -> None:
    turns = [{"role": "user", "content": "hello"}]
    for text in ("so?", "and?"):
        answer = lm.generate(turns, max_tokens=60)
        turns += [{"role": "assistant", "content": answer}, {"role": "user", "content": text}]
    wanted = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nso?\n"))
    code, out, err = run(capsys, "chat", folder, "--max-tokens", 60)
    assert (code, out, err) == (0, "".join(f"{text}\n" for text in wanted), "")


def test_serve_refuses_a_port_that_is_taken(capsys, folder, as_loaded) -> None:
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = run(capsys, "serve", folder, "--port", taken.getsockname()[1])
    assert (code, out, as_loaded) == (2, "", [])
    assert "is in use\n  hint: --port takes another one" in err


def test_serve_refuses_the_only_model_that_is_left_if_it_is_too_large(
    capsys, folder, as_loaded, tmp_path
) -> None:
    pytest.importorskip("uvicorn")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{}")
    code, out, err = run(capsys, "serve", tmp_path / "bad", folder, "--memory", "1KB")
    assert (code, out, as_loaded) == (2, "", [])
    assert "bad is not served: " in err
    assert re.search(r"'tiny' needs [1-9]\S* [kM]B, and all models together may have 1 kB, or", err)


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_packages_of_the_server_are_needed_before_the_model(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    as_loaded: list[dict[str, Any]],
    package: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("starlette")
    monkeypatch.setitem(sys.modules, package, None)
    code, out, err = run(capsys, "serve", folder)
    assert (code, out, as_loaded) == (1, "", [])
    assert f"the server needs the package {package}\n" in err
    assert "pip install 'relaxpy[serve]'" in err


@pytest.mark.parametrize("package", ["safetensors", "tokenizers", "uvicorn"])
def test_packages_that_are_not_installed(capsys, folder, package, monkeypatch, request) -> None:
    if package != "safetensors":
        request.getfixturevalue("as_loaded")
    lm = request.getfixturevalue("lm")
    monkeypatch.delitem(lm.__dict__, "tokenizer", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    code, out, err = run(capsys, "serve", folder)
    assert (code != 0, out) == (True, "")
    assert re.search(r"pip install 'relaxpy\[\w+\]'", err)


def hear_interrupts() -> None:
    """Make SIGINT arrive in a child, also where these tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_serve_says_where_and_ends_by_a_signal(folder: Path, lm: Any) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "relaxpy", "serve", str(folder), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(Path(relaxpy.__file__).parents[1])}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.match(r"tiny is served at (http://127\.0\.0\.1:\d+) \(OpenAI's API at", line)
        assert found is not None, line
        body = {"prompt": "the cat", "max_tokens": 5, "temperature": 0}
        answer = httpx.post(f"{found[1]}/v1/completions", json=body, timeout=60)
        assert answer.json()["choices"][0]["text"] == lm.generate("the cat", max_tokens=5)
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 130


@pytest.mark.parametrize(
    ("signals", "codes"),
    [
        ([signal.SIGTERM], [-signal.SIGTERM]),
        ([signal.SIGINT], [130]),
        # A shell shows 130 for both: the second one may end Python while it finishes.
        ([signal.SIGINT, signal.SIGINT], [130, -signal.SIGINT]),
    ],
)
def test_a_signal_ends_the_server_during_answers(folder, signals, codes) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "relaxpy", "serve", str(folder), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(Path(relaxpy.__file__).parents[1])}
    body = {"prompt": "the cat", "max_tokens": 250, "stream": True, "logit_bias": {"1": -100}}
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=env, text=True, preexec_fn=hear_interrupts, **out) as server:  # type: ignore[call-overload]
        url = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())[0]
        with (
            suppress(httpx.TransportError),
            httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer,
        ):
            lines = answer.iter_lines()
            next(lines)
            for number in signals:
                server.send_signal(number)
                time.sleep(0.2)
            list(lines)
        assert server.wait(20) in codes
        assert "Traceback" not in server.stderr.read()


def test_the_model_with_random_weights_of_the_page_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tokenizers")
    page = Path(__file__).parents[3] / "docs" / "how-to" / "talk-to-a-language-model.md"
    [program] = re.findall(r"^```py\n(import json\n.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    page_names: dict[str, Any] = {}
    exec(program, page_names)
    answer = page_names["lm"].generate("hello", max_tokens=3)
    assert run(capsys, "generate", "tiny", "hello", "--max-tokens", 3)[:2] == (0, f"{answer}\n")
