"""A small Llama is trained on the documents of Python's library, and measured."""

import re
from pathlib import Path

import pytest

from tests.examples.loading import load_example

SIZES = {"words": 400, "width": 32, "heads": 2, "inner": 64, "layers": 1, "window": 32, "batch": 8}


def test_a_small_llama_learns(tmp_path: Path, capsys, monkeypatch) -> None:
    for package in ("safetensors", "tokenizers", "llvmlite"):
        pytest.importorskip(package)
    train = load_example(Path(__file__).parents[2] / "examples" / "llm").train
    monkeypatch.setattr(train, "WIDTHS", (None, "q8f32_1"))
    sizes = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
    more = ["--steps", "80", "--documents", "12", "--rate", "0.01", "--chunks", "20"]
    monkeypatch.setattr("sys.argv", ["train.py", str(tmp_path), *sizes, *more])
    train.main()
    table = capsys.readouterr().out.split("divergence\n")[1]
    plain, packed = [[float(n) for n in re.findall(r"[\d.]+", row)] for row in table.splitlines()]
    # The names of the widths have digits.
    value, same, divergence = plain[1], plain[3], plain[4]
    assert value < 200
    assert (same, divergence) == (100, 0)
    value_8, same_8, divergence_8 = packed[-4], packed[-2], packed[-1]
    assert abs(value_8 - value) < 0.01 * value
    assert 95 < same_8 <= 100
    assert 0 < divergence_8 < 1e-2
