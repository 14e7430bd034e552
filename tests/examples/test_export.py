import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


needs_make = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("make") is None or sys.platform != "linux",
    reason="there is no C compiler or no make",
)


def make(folder: Path, *variables: str, given: str = "") -> str:
    """What `make` prints in a folder of the examples, without warnings."""
    # A make that started the tests would hand its options and its depth down by these.
    inherited = {name: text for name, text in os.environ.items() if "MAKE" not in name}
    env = {**inherited, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    done = subprocess.run(
        ["make", *variables],
        cwd=folder,
        env=env,
        input=given.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"warning" not in done.stderr
    return done.stdout.decode(errors="replace")


@needs_make
def test_digits_in_c_are_read_right(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("llvmlite")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder = tmp_path / "examples" / "export" / "c"
    found = make(folder)
    *_, last = found.splitlines()
    right, _, count, *_ = last.split()
    assert int(count) == 359
    assert int(right) >= 0.95 * int(count)
    assert found.count("it is a") == 3


@needs_make
def test_a_conversation_in_c_is_that_of_python(tmp_path: Path) -> None:
    for package in ("llvmlite", "tokenizers", "safetensors", "jinja2"):
        pytest.importorskip(package)
    from relaxpy.llm import load
    from tests.plugins.llm import tiny

    model = tiny.write_folder(tmp_path / "drawn", tiny.config(max_position_embeddings=400))
    folder = tmp_path / "chat"
    shutil.copytree(ROOT / "examples" / "export" / "chat", folder)
    questions = ["hello cat\N{PARTY POPPER}", "  the dog\u00a0"]
    found = make(
        folder, f"MODEL={model}", "CONTEXT=400", "--silent", given="\n".join(questions) + "\n"
    )
    lm = load(model, target="native", context=400)
    text = ""
    answers: list[str] = []
    for question in questions:
        start = lm.template.render([{"role": "user", "content": question}])
        text += f"{answers[-1]}<|im_end|>\n{start.removeprefix('<s>')}" if answers else start
        tokens = lm.tokenizer.encode(text, is_rendered=True)
        started = lm.start(tokens, max_tokens=min(100, 400 - len(tokens)), temperature=0)
        while not started.request.done:
            lm.step()
            started.take()
        own = [*started.request.tokens]
        own = own[:-1] if own[-1] in lm.ends else own
        answers.append(lm.tokenizer.decode(own))
    _, _, found = found.partition("> ")
    assert found == "".join(f"{answer}\n> " for answer in answers)
