"""Which names count as close, and the position of an argument in a call."""

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given, strategies as st
from typing_extensions import override

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError, UnknownAttributeError, close_names
from relaxpy.script import from_source, relax as R, tir as T
from relaxpy.support.entry import attribute_span, line_span, user_facing
from relaxpy.support.missing import edit_distance, nearest
from tests.counting import calls

MAIN = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return R.exp(x)
"""


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("reluu", ["relu", "gelu"], ["relu"]),
        ("wieght", ["weight", "height"], ["weight"]),
        ("Tensr", ["Tensor", "Tuple"], ["Tensor"]),
        ("tensor", ["Tensor", "tanh"], ["Tensor"]),
        ("maxx", ["Max", "max"], ["max"]),
        ("foo", ["floor", "fold"], []),
        ("z", ["x", "y"], []),
        ("abd", ["abc", "abe", "abf"], ["abc", "abe"]),
        ("same", ["same"], []),
    ],
)
def test_close_names_are_few_edits_away(name: str, known: list[str], found: list[str]) -> None:
    assert nearest(name, known) == found
    hint = close_names(name, known)
    assert hint == (f"did you mean {' or '.join(map(repr, found))}?" if found else None)


@pytest.mark.parametrize(
    ("path", "name", "right"),
    [
        ("relaxpy", "compille", "compile"),
        ("relaxpy.transform", "Sequental", "Sequential"),
        ("relaxpy.arith", "Analizer", "Analyzer"),
        ("relaxpy.nd", "arrray", "array"),
        ("relaxpy.relax.analysis", "wellformed", "well_formed"),
        ("relaxpy.relax.dpl", "wildcrd", "wildcard"),
        ("relaxpy.relax.frontend", "onx", "onnx"),
        ("relaxpy.relax.op", "permute_dim", "permute_dims"),
        ("relaxpy.relax.op.nn", "sofmax", "softmax"),
        ("relaxpy.relax.training", "Trianer", "Trainer"),
    ],
)
def test_modules_suggest_the_name_that_is_meant(path: str, name: str, right: str) -> None:
    module = resolve_name(path)
    with pytest.raises(UnknownAttributeError, match=f"did you mean '{right}'"):
        getattr(module, name)
    unknown = "nothing_of_this_kind"
    with pytest.raises(AttributeError) as error:
        getattr(module, unknown)
    assert "did you mean" not in str(error.value)
    assert not hasattr(module, f"_{name}")


def test_an_item_of_nearly_the_name_of_an_attribute_is_suggested() -> None:
    mod = from_source(MAIN)
    for owner, name in ((mod, "mod"), (relaxpy.compile(mod), "ex")):
        with pytest.raises(UnknownAttributeError) as error:
            owner.mian  # noqa: B018
        assert f'did you mean {name}["main"]?' in str(error.value)


def plain_distance(a: str, b: str) -> int:
    """The distance by its definition, without a limit."""
    if not a or not b:
        return len(a) + len(b)
    ways = [
        plain_distance(a[1:], b) + 1,
        plain_distance(a, b[1:]) + 1,
        plain_distance(a[1:], b[1:]) + (a[0] != b[0]),
    ]
    if a[:2] == b[1::-1] and len(a) > 1 and len(b) > 1:
        ways.append(plain_distance(a[2:], b[2:]) + 1)
    return min(ways)


words = st.text("ab", max_size=5)


@given(words, words, st.integers(0, 5))
def test_edit_distance_is_right_up_to_its_limit(a: str, b: str, limit: int) -> None:
    assert min(edit_distance(a, b, limit), limit + 1) == min(plain_distance(a, b), limit + 1)


@user_facing
def refuse(*args: object, about: object = None, **kwargs: object) -> None:
    raise MisuseError("no", about=about)


class Refusing:
    @user_facing
    def refuse(self, *args: object, about: object = None) -> None:
        raise MisuseError("no", about=about)


def excerpt(error: RelaxpyError) -> str:
    found = error.diagnostic.excerpt()
    assert found is not None
    line, carets = found
    start = len(carets) - len(carets.lstrip())
    return line[start : len(carets)]


def test_an_error_points_at_the_argument_it_is_about() -> None:
    wrong = object()
    with pytest.raises(MisuseError) as caught:
        refuse(1, wrong, about=wrong)
    assert excerpt(caught.value) == "wrong"
    with pytest.raises(MisuseError) as caught:
        refuse((1, [2, wrong]), about=wrong)
    assert excerpt(caught.value) == "wrong"
    with pytest.raises(MisuseError) as caught:
        refuse(other=wrong, about=wrong)
    assert excerpt(caught.value) == "wrong"
    with pytest.raises(MisuseError) as caught:
        Refusing().refuse(1, "text", about="text")
    assert excerpt(caught.value) == '"text"'


def test_without_an_argument_at_fault_the_name_of_what_is_called_is_shown() -> None:
    with pytest.raises(MisuseError) as caught:
        # fmt: off
        Refusing().refuse(
            1,
        )
        # fmt: on
    assert excerpt(caught.value) == "refuse"
    arguments = (1, object())
    with pytest.raises(MisuseError) as caught:
        refuse(*arguments)
    assert excerpt(caught.value) == "refuse"


def test_names_that_namespaces_lack_are_attribute_errors() -> None:
    with pytest.raises(UnknownAttributeError, match=r"`R\.nn\.softmax`") as caught:
        _ = R.softmax
    assert excerpt(caught.value) == "softmax"
    with pytest.raises(AttributeError, match=r"`T\.serial`"):
        _ = T.seril
    with pytest.raises(AttributeError) as plain:
        _ = R._private
    assert not isinstance(plain.value, RelaxpyError)
    assert not hasattr(R, "nothing_of_the_kind")
    assert not hasattr(R.nn, "nothing_of_the_kind")
    assert getattr(T, "nothing_of_the_kind", 5) == 5


def test_code_without_text_gets_no_position() -> None:
    names: dict[str, object] = {"__name__": "nowhere", "refuse": refuse}
    exec("def call():\n    refuse(1, about=1)\n", names)
    call = names["call"]
    assert callable(call)
    with pytest.raises(MisuseError) as caught:
        call()
    assert caught.value.diagnostic.span is None
    assert attribute_span(sys._getframe(), "nothing") is None


def test_python_adds_no_suggestion_of_its_own() -> None:
    with pytest.raises(UnknownAttributeError) as caught:
        _ = T.call_packd
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("call_packed") == 1


def test_a_file_is_parsed_once_for_all_that_is_refused_in_it(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from relaxpy import relax\n\ndef refused():\n    relax.op.exp('a')\n\n"
        "def other(f):\n" + "    f(f(1))\n" * 300
    )
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(path.read_text(), str(path), "exec"), names)

    def attempt() -> None:
        with pytest.raises(RelaxpyError) as caught:
            names["refused"]()
        span = caught.value.diagnostic.span
        assert span is not None
        assert (span.line, span.column, span.end_column) == (4, 18, 21)

    first, second = calls(attempt), calls(attempt)
    assert 10 * second < first


def test_the_text_of_a_file_is_joined_once_for_the_spans_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = []

    class Lines(list[str]):
        @override
        def __iter__(self) -> Iterator[str]:
            joined.append(len(self))
            return super().__iter__()

    lines = Lines(Path(__file__).read_text(encoding="utf-8").splitlines(keepends=True))
    monkeypatch.setattr("linecache.getlines", lambda *_: lines)
    assert all(line_span(sys._getframe()) for _ in range(3))
    assert len(joined) == 1
