"""Underlines, comments, line numbers and excerpts in the text of a program."""

from itertools import pairwise

import pytest

import relaxpy
from relaxpy.ir import AccessPath
from relaxpy.script import ir as I, relax as R, tir as T


@T.prim_func
def scalars(a: T.int32, b: T.int32):
    T.evaluate(a)
    T.evaluate(b)
    T.evaluate(a + b * 2)
    T.evaluate(b)


@I.ir_module
class Model:
    @T.prim_func
    def double(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + A[vi, vj]

    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        cls = Model
        with R.dataflow():
            y = R.exp(x)
            z = R.call_tir(cls.double, (y,), R.Tensor((4, 4), "float32"))
            R.output(z)
        return z


def marked(text: str) -> list[tuple[str, str]]:
    """Each underlined line, and what is underlined in it."""
    out = []
    for line, below in pairwise(text.split("\n")):
        if set(below) == {" ", "^"} or set(below) == {"^"}:
            padded = below.ljust(len(line))
            chars = (c if m == "^" else " " for c, m in zip(line, padded, strict=True))
            out.append((line.strip(), "".join(chars).strip()))
    return out


def test_operands_bindings_and_struct_info_are_underlined() -> None:
    main = Model["main"]
    block = main.body.blocks[0]
    exp = block.bindings[0]
    assert [found for _, found in marked(Model.script(obj_to_underline=[exp.value]))] == [
        "R.exp(x)"
    ]
    assert marked(Model.script(obj_to_underline=[exp.var])) == [
        ('cls.double, (y,), out_sinfo=R.Tensor((4, 4), dtype="float32")', "y")
    ]
    assert next(line for line, _ in marked(main.script(obj_to_underline=[block]))) == (
        "with R.dataflow():"
    )
    assert marked(exp.var.struct_info.script(obj_to_underline=[exp.var.struct_info])) == [
        ('R.Tensor((4, 4), dtype="float32")',) * 2
    ]


def test_paths_mean_the_longest_prefix_that_is_shown() -> None:
    path = AccessPath.root().attr("body").attr("seq").array_item(2)
    for inner in (path, path.attr("no_field"), path.attr("value").attr("dtype")):
        [(line, _)] = marked(scalars.script(path_to_underline=[inner]))
        assert line == "T.evaluate(a + b * 2)"
    found = marked(scalars.script(path_to_underline=[path.attr("value").attr("b")]))
    assert found == [("T.evaluate(a + b * 2)", "b * 2")]


def test_functions_and_modules_are_underlined() -> None:
    function = AccessPath.root().attr("functions").map_item(Model.get_global_var("double"))
    lines = [found for _, found in marked(Model.script(path_to_underline=[function]))]
    assert (lines[0], lines[-1]) == ("@T.prim_func", "B[vi, vj] = A[vi, vj] + A[vi, vj]")
    lines = [found for _, found in marked(Model.script(path_to_underline=[AccessPath.root()]))]
    assert (lines[:2], lines[-1]) == (["@I.ir_module", "class Module:"], "return z")


def test_statements_are_annotated() -> None:
    seq = AccessPath.root().attr("body").attr("seq")
    by_path = scalars.script(path_to_annotate={seq.array_item(1): "one", seq.array_item(3): "two"})
    body = scalars.body.seq
    assert by_path == scalars.script(obj_to_annotate={body[1]: "one", body[3]: "two"})
    assert by_path.split("\n")[-4:] == [
        "    T.evaluate(a)",
        "    T.evaluate(b)  # one",
        "    T.evaluate(a + b * 2)",
        "    T.evaluate(b)  # two",
    ]


def test_line_numbers_and_excerpts() -> None:
    exp = Model["main"].body.blocks[0].bindings[0].value
    text = Model.script(obj_to_underline=[exp], num_context_lines=1, print_line_numbers=True)
    number = (
        Model.script()
        .split("\n")
        .index('            y: R.Tensor((4, 4), dtype="float32") = R.exp(x)')
    )
    assert text.split("\n") == [
        f"(... {number - 1} lines skipped ...)",
        f"{number} {' ' * 8}with R.dataflow():",
        f'{number + 1} {" " * 12}y: R.Tensor((4, 4), dtype="float32") = R.exp(x)',
        f"{' ' * 54}^^^^^^^^",
        f'{number + 2} {" " * 12}z: R.Tensor((4, 4), dtype="float32") = R.call_tir(',
        "(... 4 lines skipped ...)",
    ]


def test_what_the_text_does_not_show_changes_nothing() -> None:
    assert scalars.script(obj_to_underline=[Model["main"]], num_context_lines=0) == scalars.script()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"obj_to_underline": 3}, "obj_to_underline is a list, found 3"),
        ({"path_to_underline": ["body"]}, "expected an AccessPath, found 'body'"),
        ({"obj_to_annotate": [1]}, "obj_to_annotate is a mapping to texts"),
        ({"print_line_numbers": 1}, "print_line_numbers is True or False, found 1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(relaxpy.errors.MisuseError, match=message):
        scalars.script(**options)
