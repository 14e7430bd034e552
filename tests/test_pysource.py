import ast
import csv
import gc
import inspect
import linecache
import shlex
import sys
import textwrap
import traceback

import pytest
from hypothesis import given, strategies as st

from relaxpy.errors import Source, Span
from relaxpy.support.pysource import Names, identifier, load, render, set_span, spans_by_line

TEXT = """def divide(a, b):
    return a / b
"""


def test_rendered_text_is_the_same_tree_again() -> None:
    tree = ast.parse(TEXT)
    assert ast.dump(ast.parse(render(tree))) == ast.dump(ast.parse(TEXT))


def test_tracebacks_show_generated_lines() -> None:
    divide = load(TEXT, "divide", {})["divide"]
    with pytest.raises(ZeroDivisionError) as caught:
        divide(1, 0)
    lines = traceback.extract_tb(caught.value.__traceback__)
    assert lines[-1].line == "return a / b"


def test_inspect_finds_generated_source() -> None:
    assert inspect.getsource(load(TEXT, "divide", {})["divide"]) == TEXT


def test_lines_live_as_long_as_the_last_code_that_has_them() -> None:
    text = TEXT.replace("divide", "quotient")
    first, second = load(text, "q", {})["quotient"], load(text, "q", {})["quotient"]
    filename = first.__code__.co_filename
    assert filename == second.__code__.co_filename
    del first
    gc.collect()
    assert linecache.getline(filename, 2) == "    return a / b\n"
    del second
    gc.collect()
    assert filename not in linecache.cache


def test_the_namespace_is_visible_and_not_changed() -> None:
    given_names = {"k": 3}
    names = load("def f():\n    return k\n", "f", given_names)
    assert names["f"]() == 3
    assert given_names == {"k": 3}


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("x", "x"),
        ("lambda", "lambda_1"),
        ("match", "match_1"),
        ("print", "print_1"),
        ("np", "np_1"),
        ("3d", "_3d"),
        ("a.b", "a_b"),
        ("", "v"),
        ("__class__", "_class__"),
        ("größe", "größe"),
        ("ﬁt", "fit"),
        ("x y", "x_y"),
    ],
)
def test_hints_become_identifiers(hint: str, expected: str) -> None:
    assert Names(["np"]).fresh(hint) == expected


@given(st.lists(st.text(max_size=5) | st.sampled_from(["x", "x_1", "x_2", "if"]), max_size=20))
def test_identifiers_are_valid_and_never_given_twice(hints: list[str]) -> None:
    names = Names()
    given_out = [names.fresh(hint) for hint in hints]
    assert len(set(given_out)) == len(hints)
    for name in given_out:
        [statement] = ast.parse(f"{name} = 0").body
        assert isinstance(statement, ast.Assign)
        assert isinstance(statement.targets[0], ast.Name)
        assert statement.targets[0].id == name
        assert not name.startswith("__")


def test_a_name_that_is_freed_is_given_out_again() -> None:
    names = Names(["taken"])
    assert [names.fresh("i"), names.fresh("i"), names.fresh("j")] == ["i", "i_1", "j"]
    names.free("i")
    assert [names.fresh("i"), names.fresh("i"), names.fresh("j")] == ["i", "i_2", "j_1"]


def test_an_identifier_is_kept() -> None:
    assert identifier("lv1") == "lv1"


@pytest.mark.parametrize("width", [88, 60, 30])
@pytest.mark.parametrize("module", [csv, shlex, textwrap], ids=lambda module: module.__name__)
def test_folded_lines_are_the_same_program(module, width, monkeypatch) -> None:
    tree = ast.parse(inspect.getsource(module))
    texts = []
    for limit in (sys.maxsize, width):
        monkeypatch.setattr("relaxpy.support.pysource._WIDTH", limit)
        texts.append(render(tree))
    plain, folded = texts
    assert ast.dump(ast.parse(folded)) == ast.dump(ast.parse(plain))
    long = [sum(len(line) > width for line in text.splitlines()) for text in (plain, folded)]
    assert width == 30 or long[1] < long[0]


def test_lines_are_folded_as_people_fold_them() -> None:
    names = [f"a_name_of_{n}" for n in range(6)]
    call = f"f(x, g({', '.join(names)}), out=y)"
    test = " and ".join(f"{name} > 0" for name in names)
    many = ", ".join(map(str, range(10, 50)))
    tree = ast.parse(f"y = {call}\nif {test}:\n    z = [{many}]\n")
    assert render(tree).splitlines() == [
        "y = f(",
        *(
            "    x,",
            "    g(a_name_of_0, a_name_of_1, a_name_of_2, a_name_of_3, a_name_of_4, a_name_of_5),",
        ),
        *("    out=y,", ")", "if ("),
        *("    a_name_of_0 > 0", *(f"    and {name} > 0" for name in names[1:])),
        *("):", "    z = ["),
        *(f"        {', '.join(map(str, range(10, 30)))},",),
        *(f"        {', '.join(map(str, range(30, 50)))},",),
        "    ]",
    ]


def test_very_wide_lines_take_no_time() -> None:
    tree = ast.parse(f"x = ({', '.join('y' for _ in range(20_000))})\nz = 1\n")
    text = render(tree)
    assert ast.dump(ast.parse(text)) == ast.dump(tree)
    assert 500 < len(text.splitlines()) < 1000


def test_lines_that_cannot_be_read_now_have_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 miscounts if a collection parses while Python parses: the error stays itself."""
    tree = ast.parse(TEXT)
    set_span(tree.body, span := Span(Source(TEXT, "program.py"), 1, 1, 1, 1))
    span_of_line = spans_by_line(tree, TEXT)

    def miscounted(text: str) -> ast.Module:
        raise SystemError("AST constructor recursion depth mismatch (before=1, after=2)")

    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", miscounted)
        assert span_of_line(1) is None
    assert span_of_line(1) == span
