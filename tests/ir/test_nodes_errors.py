"""Diagnostics: what a reader of an error sees."""

import pytest

from relaxpy import errors

TEXT = "first = 1\ny = R.add(x, z)\n\tz = 名前(é, w)\nlast\n"


def span(
    line: int, start: int, stop: int, *, end_line: int | None = None, first: int = 1
) -> errors.Span:
    return errors.Span(errors.Source("model.py", TEXT, first), line, start, end_line or line, stop)


def test_a_diagnostic_shows_place_rule_line_carets_notes_and_hint():
    found = errors.Diagnostic(
        "z is unknown", "SC-1", span(2, 14, 15), "did you mean 'x'?", ("in f",)
    )
    assert str(found) == (
        "model.py:2:14: z is unknown [SC-1]\n"
        "    y = R.add(x, z)\n"
        "                 ^\n"
        "  note: in f\n"
        "  hint: did you mean 'x'?"
    )


def test_a_diagnostic_without_a_place_is_its_message():
    assert str(errors.Diagnostic("wrong")) == "wrong"
    assert str(errors.Diagnostic("wrong", "WF-1")) == "wrong [WF-1]"


def test_lines_are_counted_from_the_first_line_of_the_source():
    found = errors.Diagnostic("here", span=span(11, 5, 10, first=10))
    assert str(found).splitlines()[1:] == ["    y = R.add(x, z)", "        ^^^^^"]


def test_carets_stop_at_the_end_of_the_first_line():
    found = errors.Diagnostic("here", span=span(2, 5, 3, end_line=4))
    assert str(found).splitlines()[2] == "        ^^^^^^^^^^^"


def test_tabs_stay_and_wide_characters_take_two_carets():
    found = errors.Diagnostic("here", span=span(3, 6, 8))
    assert str(found).splitlines()[1:] == ["    \tz = 名前(é, w)", "    \t    ^^^^"]
    after = errors.Diagnostic("here", span=span(3, 9, 10))
    assert str(after).splitlines()[2] == "    \t         ^"


def test_combining_characters_take_no_caret():
    source = errors.Source("m.py", "e\u0301\u200d = bad")
    found = errors.Diagnostic("here", span=errors.Span(source, 1, 7, 1, 10))
    assert str(found).splitlines()[2] == "        ^^^"


@pytest.mark.parametrize("line", [0, 5, 99])
def test_a_line_that_is_not_there_shows_no_excerpt(line: int):
    assert str(errors.Diagnostic("here", span=span(line, 1, 2))) == f"model.py:{line}:1: here"


def test_only_line_ends_of_python_end_lines():
    source = errors.Source("m.py", "a\x0cb\u2028c\r\nd\re")
    assert [source.line(i) for i in (1, 2, 3)] == ["a\x0cb\u2028c", "d", "e"]


def test_an_error_has_one_or_many_diagnostics():
    one = errors.ParseError("wrong", rule="AST-1", span=span(2, 1, 2), hint="h", notes=["n"])
    assert (one.diagnostic.rule, one.diagnostic.hint, one.diagnostic.notes) == (
        "AST-1",
        "h",
        ("n",),
    )
    many = errors.WellFormedError([errors.Diagnostic("a", "WF-1"), errors.Diagnostic("b", "WF-2")])
    assert str(many) == "a [WF-1]\nb [WF-2]"
    assert len(many.diagnostics) == 2
    assert errors.RelaxpyError(errors.Diagnostic("a")).diagnostics == (errors.Diagnostic("a"),)


def test_located_fills_in_only_what_is_missing():
    here, there = span(1, 1, 2), span(2, 1, 2)
    error = errors.RelaxpyError(
        [errors.Diagnostic("a"), errors.Diagnostic("b", span=here)]
    ).located(there)
    assert [d.span for d in error.diagnostics] == [there, here]
    assert errors.RelaxpyError("a").located(None).diagnostic.span is None


def test_errors_are_also_the_classes_that_python_users_expect():
    assert isinstance(errors.UnknownNameError("x"), KeyError)
    assert str(errors.UnknownNameError("no x")) == "no x"
    assert isinstance(errors.MisuseError("x"), TypeError)
    assert isinstance(errors.MisuseError("x"), ValueError)
    assert isinstance(errors.RuntimeCheckError("x"), ValueError)
    assert all(
        issubclass(c, errors.RelaxpyError)
        for c in (errors.ParseError, errors.WellFormedError, errors.RuntimeCheckError)
    )


def test_close_names():
    assert errors.close_names("sofmax", ["softmax", "add"]) == "did you mean 'softmax'?"
    assert errors.close_names("qqq", ["softmax", "add"]) is None
