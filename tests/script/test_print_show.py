"""What a screen and a notebook show."""

import ast
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import static_type as ty
from relaxpy.ir.tir import expr as tir, stmt
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Evaluate
from relaxpy.script import relax as R
from relaxpy.script.highlight import cprint
from relaxpy.script.printer import html, show

X = rx.Var("x", rx.TensorStructInfo((tir.Var("n", "int64"),)))
FUNC = rx.Function([X], rx.Tuple([X, rx.StringImm("<script>alert('&')</script>")]))


class Reader(HTMLParser):
    """Collects the text and the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.styles: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.styles |= {value or "" for _, value in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_gets_plain_text_and_html_of_the_same_words():
    bundle = FUNC._repr_mimebundle_(include=None, exclude=None)
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == FUNC.script()
    page = Reader(bundle["text/html"])
    assert page.text == FUNC.script()
    assert page.tags == {"pre", "span"}


def test_nothing_in_the_page_is_run_or_fetched():
    page = html(FUNC)["text/html"]
    assert "<script" not in page
    assert not re.search(r"https?:|src=|href=|on\w+=|url\(", page)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_are_legible_on_light_and_on_dark_pages():
    styles = Reader(html(FUNC)["text/html"]).styles
    colours = [s.removeprefix("color: ") for s in styles if s.startswith("color: ")]
    assert len(colours) >= 4
    for colour in colours:
        on_white = 1.05 / (luminance(colour) + 0.05)
        on_black = (luminance(colour) + 0.05) / 0.05
        assert min(on_white, on_black) > 4


def test_every_node_can_be_shown_in_a_notebook():
    for node in (
        X,
        X.struct_info,
        tir.Var("n") + 1,
        Evaluate(0),
        rx.ExternFunc("f"),
        rx.Tuple([X]),
    ):
        bundle = node._repr_mimebundle_()
        assert Reader(bundle["text/html"]).text == bundle["text/plain"] == node.script()


def test_a_long_program_is_cut_in_html_and_whole_in_text():
    bindings = [rx.VarBinding(rx.Var("y"), X) for _ in range(3000)]
    bundle = rx.BindingBlock(bindings)._repr_mimebundle_()
    assert bundle["text/plain"].count("\n") == 2999
    assert "and 1000 more lines" in bundle["text/html"]


def test_suites_beyond_what_python_reads_are_left_out():
    expr: rx.Expr = X
    body: stmt.Stmt = stmt.Evaluate(0)
    for _ in range(3000):
        expr = rx.If(X, expr, X)
        body = stmt.For(tir.Var("i", "int32"), 0, 4, 1, body)
    for node in (expr, PrimFunc([], body)):
        text = str(node)
        assert "...  # nested too deeply to be shown" in text
        assert max(len(line) - len(line.lstrip()) for line in text.splitlines()) == 4 * 96
        ast.parse(text)


def test_what_is_nested_too_deeply_is_named():
    func = rx.Function([], rx.Tuple(()))
    for _ in range(3000):
        inner = rx.Var("f")
        block = rx.BindingBlock([rx.VarBinding(inner, func)])
        func = rx.Function([], rx.SeqExpr([block], inner))
    assert str(func) == "<Function, nested too deeply to be shown>"
    assert func._repr_mimebundle_()["text/plain"] == str(func)
    with pytest.raises(MisuseError, match="nested too deeply to be shown"):
        func.script()


def test_types_are_shown_as_the_struct_infos_that_say_no_more():
    kind: ty.Type = ty.TupleType([ty.ObjectType(), ty.DynTensorType(2)])
    shown = 'Q.Tuple(Q.Object, Q.Tensor(dtype="float32", ndim=2))'
    assert kind.script(relax_prefix="Q") == shown
    assert kind._repr_mimebundle_()["text/plain"] == repr(kind) == shown.replace("Q", "R")
    for _ in range(5000):
        kind = ty.TupleType([kind])
    assert str(kind) == "<TupleType, nested too deeply to be shown>"
    with pytest.raises(MisuseError, match="nested too deeply to be shown"):
        kind.script()


def test_elsewhere_the_text_is_printed_plainly(capsys: pytest.CaptureFixture[str]):
    show(FUNC, name="f")
    assert capsys.readouterr().out == FUNC.script(name="f") + "\n"
    FUNC.show()
    assert capsys.readouterr().out == FUNC.script() + "\n"


@pytest.mark.parametrize("style", ["light", "dark", "ansi"])
def test_a_style_colours_everywhere(style: str, capsys: pytest.CaptureFixture[str]):
    FUNC.show(style, black_format=False, name="f")
    text = capsys.readouterr().out
    assert "\x1b[" in text
    assert re.sub(r"\x1b\[[\d;]*m", "", text).rstrip() == FUNC.script(name="f")


def test_a_program_or_its_text_is_printed_in_colour(capsys: pytest.CaptureFixture[str]):
    cprint(FUNC)
    cprint(FUNC.script())
    assert capsys.readouterr().out == (FUNC.script() + "\n") * 2
    cprint(FUNC, "light")
    shown = capsys.readouterr().out
    cprint(FUNC.script(), style="light", black_format=True)
    assert capsys.readouterr().out == shown
    assert "\x1b[" in shown
    with pytest.raises(MisuseError, match="a style is one of"):
        cprint("x", "zork")
    with pytest.raises(MisuseError, match="expected a program or a text, found 3"):
        cprint(3)


def test_an_unknown_style_is_refused():
    with pytest.raises(MisuseError, match="a style is one of light, dark, ansi, found 'zork'"):
        FUNC.show("zork")


def test_a_terminal_gets_colours(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    FUNC.show()
    shown = capsys.readouterr().out
    assert "\x1b[" in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == FUNC.script() + "\n"


def test_show_in_a_notebook_displays_what_the_repr_does(monkeypatch: pytest.MonkeyPatch):
    shown: list[object] = []
    shell = SimpleNamespace(kernel=object())
    fake = SimpleNamespace(
        get_ipython=lambda: shell, display=lambda page, raw: shown.append((page, raw))
    )
    monkeypatch.setitem(sys.modules, "IPython", fake)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", fake)  # type: ignore[arg-type]
    FUNC.show()
    assert shown == [(FUNC._repr_mimebundle_(), True)]


def test_output_that_goes_to_a_file_is_plain_wherever_it_comes_from(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    long = rx.Function([X], rx.Tuple([X] * 60))
    long.show()
    assert capsys.readouterr().out == long.script() + "\n"


def test_rich_is_loaded_only_for_a_screen():
    code = (
        "import sys, relaxpy.script.printer as p; from relaxpy.ir.relax import nodes as rx;"
        "p.show(rx.const(1)); p.html(rx.const(1)); assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (R.Tensor(("n", 3), "float32"), 'R.Tensor((n, 3), dtype="float32")'),
        (R.Tensor(ndim=2), "R.Tensor(ndim=2)"),
        (R.Tuple(R.Shape(["n + 1"]), R.Object), "R.Tuple(R.Shape([n + 1]), R.Object)"),
        (R.Callable((R.Tensor(("n",)),), R.Prim("int64")), 'R.Prim("int64")'),
    ],
)
def test_annotations_show_what_they_declare(annotation: object, text: str):
    assert text in repr(annotation)
    assert " object at " not in repr(annotation)
