"""Profiles of language models, by operator and by layer."""

import json
from pathlib import Path
from typing import Any

import pytest

from relaxpy.exec.inspect.profile import Profile, ProfileRow
from relaxpy.llm import ModelError
from relaxpy.plugins.cli.main import main
from relaxpy.plugins.llm.profiled import StepProfile

TEXT = "the cat sat on the mat"


def test_a_profile_has_each_operator_in_its_layer(lm: Any) -> None:
    before, length = lm.logits(TEXT), len(lm.tokens(TEXT))
    found = lm.profile(TEXT, repeat=1)
    assert (found.prompt.tokens, found.prompt.context) == (length, 0)
    assert (found.token.tokens, found.token.context) == (1, length)
    names = ["embedding", "layer 1", "layer 2", "head"]
    for step in (found.prompt, found.token):
        assert [*step.layers] == names
        calls = {row.name: row.calls for row in step.whole if row.calls}
        assert calls == {
            name: sum(row.calls for p in step.layers.values() for row in p if row.name == name)
            for name in calls
        }
        assert [row.name for row in step.by_layer] == [*names, "between operators"]
        assert sum(row.duration for row in step.by_layer) == pytest.approx(step.whole.duration)
        assert min(row.duration for row in step.by_layer) > 0
        for layer in names[1:3]:
            own = {row.name: row for row in step.layers[layer]}
            seen = step.context + step.tokens
            assert own["attention"].bytes == 2 * seen * 2 * 16 * 4  # 2 heads of 16 float32
            assert own["attention"].calls == 1
            assert str(own["attention"].calls) in str(step)
        rows = [row.bytes for row in step.layers["embedding"]]
        assert rows == [step.tokens * (4 + 2 * 4 * 64)]  # a number, and 64 float32 in and out
    weights = {name: value.nbytes for name, value in lm.decoder.values.items()}
    for layer, part in (("layer 1", "blocks.0."), ("layer 2", "blocks.1."), ("head", "head.")):
        size = sum(nbytes for name, nbytes in weights.items() if name.startswith(part))
        read = sum(row.bytes for row in found.token.layers[layer])
        assert size < read < 1.2 * size  # and what layers pass on
    assert "this machine copies" in str(found) or found.bandwidth is None
    assert (lm.logits(TEXT) == before).all()
    assert lm.generate(TEXT, max_tokens=3)


def test_a_layer_has_a_share_of_the_peak_where_an_operator_has_one() -> None:
    plain, measured = ProfileRow("a", "", 1, 0.1), ProfileRow("b", "", 1, 0.3, share=0.5)
    layers = {"first": Profile((plain,), 0.1), "second": Profile((plain, measured), 0.4)}
    step = StepProfile(1, 0, Profile((plain, measured), 0.5), layers)
    shares = [row.share for row in step.by_layer]
    assert shares == [None, pytest.approx(0.5 * 0.3 / 0.4), None]


def test_the_last_chunk_of_a_prompt_counts(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm.decoder, "chunk", 3)
    found = lm.profile([1, 2, 3, 4, 5, 6, 7, 8], repeat=1)
    assert (found.prompt.tokens, found.prompt.context) == (2, 6)
    assert (found.token.tokens, found.token.context) == (1, 8)


def test_prompts_that_leave_no_room(lm: Any) -> None:
    with pytest.raises(ModelError, match="a prompt of 256 tokens leaves no room for another"):
        lm.profile([1] * 256)
    with pytest.raises(ModelError, match="the model has the tokens 0 to"):
        lm.profile([10**6])
    with pytest.raises(ModelError, match="a hook cannot use the model"):
        lm.hook(0, lambda _: lm.profile(TEXT)).logits(TEXT)


def test_the_command_prints_a_profile(
    lm: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("relaxpy.llm.load", lambda *_, **__: lm)
    words = ["profile", str(folder), "--prompt", TEXT, "--repeat", "1"]
    assert main(words) == 0
    out = capsys.readouterr().out
    for text in ("prompt: 7 tokens after 0", "next token: 1 token after 7", "layer 2", "attention"):
        assert text in out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [*found["token"]["layers"]] == ["embedding", "layer 1", "layer 2", "head"]
    assert found["prompt"]["tokens"] == 7
    for more, message in (
        (["--random", "0"], "--random cannot be with --prompt"),
        (["x.npy"], "an input cannot be with --prompt"),
        (["--trace", "a.json"], "--trace cannot be with --prompt"),
    ):
        assert main([*words, *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["profile", str(folder), "--quantize", "q4f32_1"]) == 2
    assert "--quantize needs --prompt" in capsys.readouterr().err
