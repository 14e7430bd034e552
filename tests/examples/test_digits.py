import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import relaxpy
from relaxpy import relax
from relaxpy.errors import FunctionSignatureError, MisuseError, RuntimeCheckError
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source
from tests.examples.loading import load_example

FOLDER = Path(__file__).parents[2] / "examples" / "digits"

EXAMPLE = load_example(FOLDER)
model, train, data = EXAMPLE.model, EXAMPLE.train, EXAMPLE.data


@pytest.fixture(scope="module")
def digits() -> object:
    return data.load()


@pytest.fixture(scope="module")
def weights(digits) -> dict[str, np.ndarray]:
    return train.train(digits)


@pytest.fixture(scope="module")
def executable() -> object:
    return relaxpy.compile(model.Digits)


def test_split_is_the_same_every_time(digits) -> None:
    again = data.load()
    assert np.array_equal(digits.x_test, again.x_test)
    assert np.array_equal(digits.y_train, again.y_train)
    assert not np.array_equal(digits.x_test, data.load(seed=1).x_test)


def test_split_holds_every_picture_once(digits) -> None:
    both = np.concatenate([digits.x_train, digits.x_test])
    assert both.shape == (1797, 64)
    assert both.dtype == np.float32
    assert (both.min(), both.max()) == (0, 1)
    reference = data.load(test_share=0)
    assert sorted(map(bytes, both)) == sorted(map(bytes, reference.x_train))


def test_missing_scikit_learn_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match="pip install 'scikit-learn"):
        data.load()


def test_gradients_are_the_slopes_of_the_loss(digits) -> None:
    x, y = digits.x_train[:5].astype(np.float64), digits.y_train[:5]
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(0, 0.3, shape) for name, shape in train.SHAPES.items()}

    def loss() -> float:
        probabilities, _ = EXAMPLE.numpy_model.main(x, *train.arguments(weights))
        return float(-np.mean(np.log(probabilities[np.arange(5), y])))

    slopes = train.gradients(weights, x, y)
    for name, value in weights.items():
        for _ in range(5):
            at = tuple(rng.integers(size) for size in value.shape)
            kept, h = value[at], 1e-6
            value[at] = kept + h
            above = loss()
            value[at] = kept - h
            slope = (above - loss()) / (2 * h)
            value[at] = kept
            assert slopes[name][at] == pytest.approx(slope, abs=1e-7)


def test_training_tells_the_digits_apart(digits, weights) -> None:
    assert train.accuracy(weights, digits.x_test, digits.y_test) >= 0.97


def test_training_repeats_exactly(digits) -> None:
    first, second = (train.train(digits, epochs=1) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in train.SHAPES)


def test_weights_come_back_from_their_file(weights, tmp_path: Path) -> None:
    path = tmp_path / "new" / "weights.npz"
    train.save_weights(path, weights)
    loaded = train.load_weights(path)
    assert list(loaded) == list(train.SHAPES)
    assert all(np.array_equal(loaded[name], weights[name]) for name in train.SHAPES)


def write_pickle(path: Path, weights: dict[str, np.ndarray]) -> None:
    np.savez(path, **{**weights, "w1": np.array([print], dtype=object)})


def write_single_array(path: Path, weights: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.save(file, weights["w1"])


def write_first_half(path: Path, weights: dict[str, np.ndarray]) -> None:
    np.savez(path, **weights)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_damaged_member(path: Path, weights: dict[str, np.ndarray]) -> None:
    np.savez(path, **weights)
    content = bytearray(path.read_bytes())
    content[1000] ^= 255
    path.write_bytes(content)


BAD_FILES: dict[str, tuple[Callable[[Path, dict[str, np.ndarray]], object], str]] = {
    "missing": (lambda path, weights: None, "there are no weights at"),
    "folder": (lambda path, weights: path.mkdir(), "cannot be read as weights"),
    "empty": (lambda path, weights: path.touch(), "cannot be read as weights"),
    "text": (lambda path, weights: path.write_text("w1 = 3"), "cannot be read as weights"),
    "pickle": (write_pickle, "cannot be read as weights: .*allow_pickle"),
    "single array": (write_single_array, "cannot be read as weights: it holds a single array"),
    "half": (write_first_half, "cannot be read as weights"),
    "damaged": (write_damaged_member, "cannot be read as weights"),
    "lacking": (
        lambda path, weights: np.savez(path, w1=weights["w1"]),
        r"has no 'b1'; a file of weights has w1, b1, w2, b2",
    ),
    "shape": (
        lambda path, weights: np.savez(path, **{**weights, "w2": weights["w2"].T}),
        r"'w2' in .* is float32 of shape \(10, 32\), not float32 of shape \(32, 10\)",
    ),
    "dtype": (
        lambda path, weights: np.savez(path, **{**weights, "b1": weights["b1"].astype("f8")}),
        r"'b1' in .* is float64 of shape \(32,\), not float32",
    ),
    "not finite": (
        lambda path, weights: np.savez(path, **{**weights, "b2": weights["b2"] + np.nan}),
        "'b2' in .* has values that are not finite",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_of_weights_is_refused_by_name(name: str, weights, tmp_path: Path) -> None:
    write, message = BAD_FILES[name]
    path = tmp_path / "weights.npz"
    write(path, weights)
    with pytest.raises(MisuseError, match=message) as caught:
        train.load_weights(path)
    assert str(path) in caught.value.diagnostic.message
    assert f"train.py --weights {path}" in (caught.value.diagnostic.hint or "")


def test_model_is_well_formed() -> None:
    assert relax.analysis.check_well_formed(model.Digits) == []
    assert relax.analysis.well_formed(model.Digits)


def test_model_prints_and_parses_back() -> None:
    assert_structural_equal(from_source(model.Digits.script()), model.Digits)


@pytest.mark.parametrize("count", [0, 1, 7, 32, 359])
def test_compiled_model_predicts_as_plain_numpy(count: int, digits, weights, executable) -> None:
    x, arguments = digits.x_test[:count], train.arguments(weights)
    probabilities, labels = executable["main"](x, *arguments)
    expected_probabilities, expected_labels = EXAMPLE.numpy_model.main(x, *arguments)
    assert labels.dtype == np.int64
    assert np.array_equal(labels, expected_labels)
    # Sums of 64 and 32 products and an exp, in float32 (epsilon 1.2e-7), in any order.
    np.testing.assert_allclose(probabilities, expected_probabilities, rtol=2e-5, atol=1e-7)


def every_second_of_a_larger_array(x: np.ndarray) -> np.ndarray:
    larger = np.zeros((2 * x.shape[0], 2 * x.shape[1]), x.dtype)
    larger[::2, ::2] = x
    return larger[::2, ::2]


@pytest.mark.parametrize(
    "laid_out", [np.asfortranarray, every_second_of_a_larger_array], ids=["columns", "strided"]
)
def test_layout_of_the_input_changes_no_prediction(laid_out, digits, weights, executable) -> None:
    arguments = train.arguments(weights)
    _, labels = executable["main"](laid_out(digits.x_test), *map(np.asfortranarray, arguments))
    assert np.array_equal(labels, EXAMPLE.numpy_model.main(digits.x_test, *arguments)[1])


def test_compiled_model_reaches_the_accuracy_on_real_data(digits, weights, executable) -> None:
    _, labels = executable["main"](digits.x_test, *train.arguments(weights))
    assert np.mean(labels == digits.y_test) >= 0.97


def test_reference_evaluator_predicts_as_plain_numpy(digits, weights) -> None:
    x, arguments = digits.x_test[:2], train.arguments(weights)
    main = relaxpy.compile(model.Digits, target="reference")["main"]
    probabilities, labels = main(x, *arguments)
    expected_probabilities, expected_labels = EXAMPLE.numpy_model.main(x, *arguments)
    assert np.array_equal(labels, expected_labels)
    np.testing.assert_allclose(probabilities, expected_probabilities, rtol=2e-5, atol=1e-7)


def test_softmax_asks_for_no_size_in_its_rows() -> None:
    executable = relaxpy.compile(model.Digits, "numpy")
    source = executable.source.partition("def fused_dense_softmax_unchecked")[2]
    text = source.partition("def fused_dense_softmax(")[0]
    assert text.count("initial=") == 2
    assert "if " not in text


def test_argmax_takes_the_first_of_equals(executable) -> None:
    weights = {name: np.zeros(shape, np.float32) for name, shape in train.SHAPES.items()}
    weights["b2"][[3, 7]] = 1
    _, labels = executable["main"](np.ones((2, 64), np.float32), *train.arguments(weights))
    assert labels.tolist() == [3, 3]


BAD_INPUTS: dict[str, tuple[Callable[[np.ndarray], object], str]] = {
    "shape": (lambda x: x[:, :63], "a float32 tensor of shape (2, 63): dimension 1 is 63, not 64"),
    "rank": (lambda x: x[0], "a float32 tensor of shape (64,): its rank (ndim) is 1, not 2"),
    "dtype": (lambda x: x.astype("f8"), "a float64 tensor of shape (2, 64): its dtype is float64"),
    "no array": (lambda x: "pictures", "an object of class str"),
}


@pytest.mark.rule("FN-1", "FN-10")
@pytest.mark.parametrize("name", BAD_INPUTS)
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_input_that_does_not_fit_is_refused(name: str, target: str, digits, weights) -> None:
    change, found = BAD_INPUTS[name]
    main = relaxpy.compile(model.Digits, target=target)["main"]
    with pytest.raises(FunctionSignatureError) as caught:
        main(change(digits.x_test[:2]), *train.arguments(weights))
    diagnostic = caught.value.diagnostic
    expected = 'parameter x of main: expected R.Tensor((n, 64), dtype="float32"), found '
    assert diagnostic.message.startswith(expected + found)
    assert diagnostic.excerpt() is not None
    assert diagnostic.excerpt()[0].strip() == 'x: R.Tensor(("n", 64), "float32"),'


@pytest.mark.rule("FN-11")
def test_wrong_number_of_arguments_is_refused(digits, executable) -> None:
    with pytest.raises(RuntimeCheckError, match="main takes 5 arguments, found 1"):
        executable["main"](digits.x_test)


def test_demo_runs_and_keeps_its_promises(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "demo.py", "--quick", "--weights", tmp_path / "weights.npz"],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Trained in plain NumPy" in done.stdout
    assert "359 of 359 predictions as plain NumPy's" in done.stdout
    assert "\x1b" not in done.stdout
    assert (tmp_path / "weights.npz").exists()


def test_demo_takes_up_the_weights_of_an_earlier_run(weights, tmp_path, capsys) -> None:
    path = tmp_path / "weights.npz"
    train.save_weights(path, weights)
    assert EXAMPLE.demo.main(["--quick", "--weights", str(path)]) == 0
    assert "Weights of an earlier run" in capsys.readouterr().out


def test_demo_refuses_a_bad_file_of_weights(tmp_path, capsys) -> None:
    path = tmp_path / "weights.npz"
    path.write_text("nothing of the kind", encoding="utf-8")
    assert EXAMPLE.demo.main(["--quick", "--weights", str(path)]) == 1
    assert f"{path} cannot be read as weights" in capsys.readouterr().err


def test_demo_fails_on_weights_that_know_nothing(tmp_path, capsys) -> None:
    path = tmp_path / "weights.npz"
    train.save_weights(path, train.initial_weights(seed=0))
    assert EXAMPLE.demo.main(["--quick", "--weights", str(path)]) == 1
    assert "is below 95%" in capsys.readouterr().err


def test_demo_without_scikit_learn_says_what_to_install(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert EXAMPLE.demo.main(["--quick"]) == 1
    assert "pip install 'scikit-learn" in capsys.readouterr().err


def test_demo_writes_to_a_screen_that_knows_only_ascii(weights, tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    train.save_weights(path, weights)
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    EXAMPLE.demo.demo(Console(file=screen, width=80), path=path, samples=1)


PICTURE = np.array([[0, 0.4, 0.6, 1], [0, 0.6, 0.4, 1]])


def drawn(encoding: str, **options: object) -> str:
    console = SimpleNamespace(encoding=encoding, color_system=None, no_color=False)
    vars(console).update(options)
    return EXAMPLE.picture.draw(PICTURE, console)


def test_picture_without_colour_has_half_blocks_for_dark_pixels() -> None:
    assert drawn("utf-8").plain == " ▄▀█"


def test_picture_with_colour_has_a_grey_for_each_half() -> None:
    text = drawn("utf-8", color_system="truecolor")
    assert text.plain == "▀▀▀▀"
    styles = [(span.style.color.name, span.style.bgcolor.name) for span in text.spans]
    assert styles[1] == ("rgb(126,126,126)", "rgb(169,169,169)")


def test_picture_in_ascii_has_a_character_for_each_mean() -> None:
    assert drawn("latin-1").plain == " ::@"


def test_timing_calls_each_once_a_round() -> None:
    called: list[str] = []
    times = EXAMPLE.timing.interleaved(
        [lambda: called.append("one"), lambda: called.append("two")], samples=3, sample_seconds=0
    )
    assert called[:4] == ["one", "one", "two", "two"]
    assert [{*called[at : at + 2]} for at in (4, 6, 8)] == [{"one", "two"}] * 3
    assert [len(time.samples) for time in times] == [3, 3]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0125, "12.5 ms"), (4.2e-6, "4.2 us"), (3e-8, "30.0 ns")],
)
def test_timing_prints_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert str(EXAMPLE.timing.Timing((seconds,))) == text


def test_timing_gives_quartiles_and_paired_ratios() -> None:
    timing = EXAMPLE.timing.Timing
    slow, fast = timing((4e-3, 2e-3, 9e-3, 1e-3, 8e-3)), timing((2e-3, 1e-3, 3e-3, 1e-3, 2e-3))
    assert slow.spread() == "4.0 ms (2.0 to 8.0)"
    assert slow.ratio(fast) == pytest.approx(2)
