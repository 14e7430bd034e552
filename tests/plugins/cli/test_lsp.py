"""The language server, as an editor talks to it: messages over standard input and output."""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest

from relaxpy.plugins.cli.main import main
from tests.fuzz.seed import SEED

MODEL = """\
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Model:
    @T.prim_func
    def double(x: T.Buffer((4,), "float32"), out: T.Buffer((4,), "float32")):
        for i in range(4):
            out[i] = x[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")):
        cls = Model
        v = R.call_tir(cls.double, (w,), R.Tensor((4,), "float32"))
        y = R.add(x, v)
        y = R.exp(y)
        z = R.sum(y, axis=1)
        return z
"""


class Editor:
    """A client: requests wait for their answers; diagnostics are kept by file and version."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "relaxpy", "lsp", "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.answers: Queue[Any] = Queue()
        self.published: Queue[Any] = Queue()
        self.shown: Queue[Any] = Queue()
        self.last = self.version = 0
        threading.Thread(target=self._receive, daemon=True).start()
        self.capabilities = self.ask("initialize", processId=None, rootUri=None, capabilities={})[
            "capabilities"
        ]
        self.tell("initialized")

    def _receive(self) -> None:
        assert self.process.stdout is not None
        while header := self.process.stdout.readline():
            length = int(header.removeprefix(b"Content-Length: "))
            while self.process.stdout.readline().strip():
                pass
            message = json.loads(self.process.stdout.read(length))
            if "id" in message:
                self.answers.put(message)
            elif message["method"] == "textDocument/publishDiagnostics":
                self.published.put(message["params"])
            else:
                self.shown.put(message["params"])

    def _send(self, **message: object) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def tell(self, method: str, **params: object) -> None:
        self._send(method=method, params=params)

    def ask(self, method: str, **params: object) -> Any:
        self.last += 1
        self._send(id=self.last, method=method, params=params)
        answer = self.answers.get(timeout=20)
        assert answer["id"] == self.last
        assert "error" not in answer, answer
        return answer["result"]

    def type(self, text: str, file: str = "model.py") -> list[dict[str, Any]]:
        """The diagnostics of a file after its text has changed."""
        self.version += 1
        document = {"uri": f"file:///tmp/{file}", "version": self.version}
        if self.version == 1:
            opened = {**document, "languageId": "python", "text": text}
            self.tell("textDocument/didOpen", textDocument=opened)
        else:
            changes = [{"text": text}]
            self.tell("textDocument/didChange", textDocument=document, contentChanges=changes)
        while (found := self.published.get(timeout=20))["version"] != self.version:
            assert found["version"] < self.version
        return list(found["diagnostics"])

    def at(self, method: str, text: str, mark: str, file: str = "model.py") -> Any:
        """The answer at the end of the first occurrence of `mark` in the text."""
        before = text[: text.index(mark) + len(mark)]
        line = before.count("\n")
        units = len(before[before.rfind("\n") + 1 :].encode("utf-16-le")) // 2
        return self.ask(
            f"textDocument/{method}",
            textDocument={"uri": f"file:///tmp/{file}"},
            position={"line": line, "character": units},
        )

    def close(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            assert self.process.wait(10) == 0

    def hover(self, text: str, mark: str) -> str:
        answer = self.at("hover", text, mark)
        return str(answer["contents"]["value"]) if answer else ""


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    editor = Editor()
    yield editor
    editor.ask("shutdown")
    editor.tell("exit")
    editor.close()


def test_a_correct_program_has_no_diagnostics(editor: Editor) -> None:
    assert editor.type(MODEL) == []


FAULTY = [
    ("R.exp(y)", "R.exq(y)"),
    ("R.add(x, v)", "R.add(x, 'é')"),
    ("R.add(x, v)", "R.matmul(x, R.const([[1.0]]))"),
    ("return z", "return zz"),
    ("R.sum(y, axis=1)", "R.sum(y, axis=7)"),
    ("out[i] = x[i]", "out[i] = q[i]"),
    ("cls.double, (w,)", "cls.double, (w, w)"),
    ("R.exp(y)", "R.exp(y"),
    ("R.exp(y)\n        z", "R.exq(y)\n        z = 𝜋 = R.nn.rel(x)\n        z"),
    ('"float32"))\n        y', '"float33"))\n        y = R.foo()\n        y'),
    ("def main(", "def main(\n"),
]


@pytest.mark.parametrize(("right", "wrong"), FAULTY)
def test_diagnostics_are_those_of_check(editor, right, wrong, tmp_path, capsys) -> None:
    text = MODEL.replace(right, wrong, 1)
    (tmp_path / "model.py").write_text(text)
    main(["check", "--json", str(tmp_path / "model.py")])
    expected = json.loads(capsys.readouterr().out)
    found = editor.type(text)
    lines = text.split("\n")

    def units(line: int, column: int) -> dict[str, int]:
        before = lines[line - 1][: column - 1]
        return {"line": line - 1, "character": len(before.encode("utf-16-le")) // 2}

    assert [d.get("code") for d in found] == [d["rule"] for d in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["severity"] == 1
        assert one["message"].startswith(other["message"])
        assert (other["hint"] or "") in one["message"]
        start = units(other["line"], other["column"])
        end = units(other["end_line"], other["end_column"])
        assert one["range"] == {"start": start, "end": end}
    assert bool(found) == (wrong != "def main(\n")


def test_doubts_are_warnings(editor: Editor) -> None:
    (found,) = editor.type(MODEL.replace("R.sum(y, axis=1)", "R.matmul(y, y)"))
    assert found["severity"] == 2
    assert "runs for special sizes only" in found["message"]


PYTHON = """\
import numpy as np
from relaxpy.script import relax as R, tir as T

raise SystemExit("this text is not executed")
SIZE = 4
weights = np.ones(SIZE)


def helper(x):
    return R.exp(x)


@T.prim_func
def double(x: T.Buffer((SIZE,), "float32"), out: T.Buffer((SIZE,), "float32")):
    for i in range(SIZE):
        out[i] = x[i] * T.float32(2)


@R.function
def uses_python(x: R.Tensor((SIZE,), "float32")):
    return R.add(helper(x), R.const(weights))


@R.function
def main(x: R.Tensor((SIZE,), "float32")):
    y = R.call_tir(double, (x,), R.Tensor((SIZE,), "float32"))
    return R.exp(y)
"""


def test_programs_between_python_are_checked_and_python_is_not_run(editor: Editor) -> None:
    (note,) = editor.type(PYTHON)
    assert note["severity"] == 3
    assert note["range"]["start"] == {"line": 0, "character": 0}
    assert "are not executed" in note["message"]
    assert 'y: R.Tensor((4,), dtype="float32")' in editor.hover(PYTHON, "R.exp(y")
    assert 'x: R.Tensor((4,), dtype="float32")' in editor.hover(PYTHON, "R.add(helper(x")
    _, error = editor.type(PYTHON.replace("R.exp(y)", "R.exq(y)"))
    assert error["severity"] == 1
    assert "R.exp" in error["message"]
    _, error = editor.type(PYTHON.replace("out[i] = x[i]", "out[i] = y[i]"))
    assert error["range"]["start"]["line"] == PYTHON.split("\n").index(
        "        out[i] = x[i] * T.float32(2)"
    )
    special = 'def main(x: R.Tensor(("n",))):\n    return R.reshape(x, (5,))\n'
    notes = editor.type(f"import numpy as np\n\n\n@R.function\n{special}")
    assert [note["severity"] for note in notes] == [3, 2]
    assert editor.type("import os\n\n\ndef ordinary():\n    return os.name\n") == []


HOVERS = [
    ("def main(x", 'x: R.Tensor((n, 4), dtype="float32")'),
    ("R.add(x, v", 'v: R.Tensor((4,), dtype="float32")'),
    ("y = R.exp(y", 'y: R.Tensor((n, 4), dtype="float32")'),
    ("return z", 'z: R.Tensor((n,), dtype="float32")'),
    ("R.sum", 'R.sum(x, axis=None, keepdims=False) -> R.Tensor((n,), dtype="float32")'),
    ("R.sum", "The sum"),
    ("cls.double", "double: R.Callable("),
    ("out[i", "i: T.int32"),
    ("out", 'out: T.Buffer((4,), "float32")'),
    ("R.Tensor", "A tensor"),
    ("def main", "main: R.Callable("),
]


@pytest.mark.parametrize(
    "typed",
    [
        ("", ""),
        ("axis=1)", "axis=1)\n        u = R.matmul(y, ("),
        ("v)\n", "v)\n        a = R.exq(y)\n"),
    ],
)
def test_hover_shows_struct_info_and_signatures(editor: Editor, typed: tuple[str, str]) -> None:
    text = MODEL.replace(*typed, 1)
    editor.type(text)
    for mark, expected in HOVERS:
        assert expected in editor.hover(text, mark), mark


def test_hover_on_an_error_explains_its_rule(editor: Editor) -> None:
    text = MODEL.replace("cls.double, (w,)", "cls.double, (w, w)")
    (error,) = editor.type(text)
    shown = editor.hover(text, "(w,")
    assert error["message"].split("\n")[0] in shown
    assert f"**{error['code']}**" in shown
    actions = editor.ask(
        "textDocument/codeAction",
        textDocument={"uri": "file:///tmp/model.py"},
        range=error["range"],
        context={"diagnostics": [error]},
    )
    (action,) = actions
    assert action["title"] == f"Explain {error['code']}"
    command = action["command"]
    explained = editor.ask(
        "workspace/executeCommand", command=command["command"], arguments=command["arguments"]
    )
    assert explained.startswith(f"**{error['code']}**")
    assert editor.shown.get(timeout=20)["message"] == explained


@pytest.mark.parametrize(
    ("line", "name", "signature"),
    [
        ("R.", "matmul", "R.matmul(x1, x2, out_dtype=None)"),
        ("R.nn.", "relu", "R.nn.relu("),
        ("R.nn.re", "relu", "R.nn.relu("),
        ("T.", "grid", "T.grid(*extents)"),
        ("I.", "module_attrs", "I.module_attrs("),
        ("cls.", "double", "cls.double(x:"),
        ("Model.", "main", "Model.main(x:"),
        ("w = R.call_tir(cls.", "double", "cls.double(x:"),
    ],
)
def test_completions_have_signatures(editor: Editor, line: str, name: str, signature: str) -> None:
    text = MODEL.replace("return z", line)
    editor.type(text)
    items = {i["label"]: i for i in editor.at("completion", text, line)["items"]}
    assert not any(label.startswith("_") for label in items)
    assert items[name]["detail"].startswith(signature)
    resolved = editor.ask("completionItem/resolve", **items[name])
    assert ("documentation" in resolved) == (line[0] in "RTI")


@pytest.mark.parametrize(
    ("typed", "label", "active"),
    [
        ("R.matmul(x, ", "R.matmul(x1, x2, out_dtype=None)", 1),
        ("R.matmul(R.exp(x), [1, (2, 3)], ", "R.matmul(x1, x2, out_dtype=None)", 2),
        ("R.concat((x, y), ", "R.concat(tensors, axis=0)", 1),
        ("R.concat((x, y", "R.concat(tensors, axis=0)", 0),
        ("nothing(", None, 0),
    ],
)
def test_signatures_show_while_arguments_are_typed(editor, typed, label, active) -> None:
    text = MODEL.replace("return z", typed)
    editor.type(text)
    help_ = editor.at("signatureHelp", text, typed)
    assert (help_ and help_["signatures"][0]["label"]) == label
    assert label is None or help_["activeParameter"] == active


DEFINITIONS = [
    ("cls.double", "double(x"),
    ("cls", "cls = Model"),
    ("= Model", "Model:"),
    ("R.add(x, v", "v = R.call_tir"),
    ("y = R.exp(y", "y = R.add"),
    ("R.sum(y", "y = R.exp"),
    ("R.add(x", 'x: R.Tensor(("n"'),
    ("out[i", "i in range"),
    ("def main", "main("),
    ("axis=1", None),
]


@pytest.mark.parametrize("typed", [("", ""), ("axis=1)", "axis=1)\n        u = (")])
def test_definitions_are_found(editor: Editor, typed: tuple[str, str]) -> None:
    text = MODEL.replace(*typed, 1)
    editor.type(text)
    for mark, target in DEFINITIONS:
        found = editor.at("definition", text, mark)
        assert (found is None) == (target is None), mark
        if found is not None and target is not None:
            start = found["range"]["start"]
            assert text.split("\n")[start["line"]][start["character"] :].startswith(target), mark


HOSTILE = [
    *(
        "",
        " ",
        "(" * 10_000,
        "@R.function\n" + "x." * 5_000,
        "\x00",
        "é\u2028\x0c\r\r\n@R.function",
    ),
    *("x = " + "-" * 50_000 + "1", "'''", "@R.function\ndef f(:", "def f(" * 3_000, "\t\n  x\n y"),
    *(
        "a" * 1_200_000,
        "class A:\n" * 200,
        "@R.function\ndef f(x: R.Tensor((4,)):",
        "@",
        "# \ud83d",
    ),
    "@R.function\ndef f(x: R.Tensor((4,))):\n    return " + "R.exp(" * 150 + "x" + ")" * 150,
    "@R.function\ndef f(x: R.Tensor((4,))):\n" + "    x = R.exp(x)\n" * 3_000 + "    return x\n",
    "import os\n" * 3 + "@R.function\ndef f():\n    return os.system('touch /tmp/never')\n",
    "x = " + "[" * 150 + "]" * 150 + "\n@R.function\ndef f(a: R.Tensor(x)):\n    return a\n",
    *(MODEL[:cut] for cut in range(40, len(MODEL), 211)),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_ends_the_server(editor: Editor, text: str) -> None:
    editor.type(text)
    for line, character in ((0, 0), (1, 10), (2, 18), (10**6, 10**6)):
        place = {
            "textDocument": {"uri": "file:///tmp/model.py"},
            "position": {"line": line, "character": character},
        }
        for method in ("hover", "completion", "definition", "signatureHelp"):
            editor.ask(f"textDocument/{method}", **place)


PIECES = [
    *("(", ")", "[", "'", '"""', ":", "\n", "\t", "\r", "R.", "T.", "@", "😀", "\u2028", "\x00"),
    *("lambda ", "1e999", "**", "->", "#", "\\", "match x:\n", 'f"{', "R.Tensor((", "async "),
]


def test_no_changes_of_a_text_end_the_server(editor: Editor) -> None:
    rng, text = random.Random(SEED), MODEL
    for _ in range(40):
        at = rng.randrange(len(text) + 1)
        step = rng.random()
        if step < 0.6:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif step < 0.9:
            text = text[:at] + text[at + rng.randrange(12) :]
        else:
            text = text[:at] or MODEL
        editor.type(text)
        for method in ("hover", "completion", "definition", "signatureHelp"):
            place = {"line": rng.randrange(25), "character": rng.choice([0, 8, 30, 10**6])}
            document = {"uri": f"file:///tmp/{rng.choice(['model.py', 'never opened.py'])}"}
            editor.ask(f"textDocument/{method}", textDocument=document, position=place)


def test_only_the_last_of_fast_changes_is_checked(editor: Editor) -> None:
    editor.type(MODEL)
    while not editor.published.empty():
        editor.published.get()
    uri = "file:///tmp/model.py"
    for k in range(len(MODEL) - 20, len(MODEL)):
        editor.version += 1
        editor.tell(
            "textDocument/didChange",
            textDocument={"uri": uri, "version": editor.version},
            contentChanges=[{"text": MODEL[:k]}],
        )
    assert editor.published.get(timeout=20)["version"] == editor.version


def test_documents_are_forgotten_when_they_are_closed(editor: Editor) -> None:
    editor.type(MODEL)
    editor.tell("textDocument/didClose", textDocument={"uri": "file:///tmp/model.py"})
    assert editor.published.get(timeout=20)["diagnostics"] == []
    editor.version = 0
    assert editor.type(MODEL) == []


def test_the_server_ends_with_its_input() -> None:
    editor = Editor()
    editor.close()
