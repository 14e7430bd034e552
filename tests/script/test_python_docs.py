"""Trees of Python source: their text is what Python reads as the same tree."""

import ast
import random
from textwrap import dedent

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.equality.access_path import AccessPath
from relaxpy.script.printer.doc import (
    AssertDoc,
    AssignDoc,
    ClassDoc,
    CommentDoc,
    DictDoc,
    DocStringDoc,
    ExprDoc,
    ExprStmtDoc,
    ForDoc,
    FunctionDoc,
    IdDoc,
    IfDoc,
    LambdaDoc,
    ListDoc,
    LiteralDoc,
    OperationDoc,
    OperationKind as Kind,
    ReturnDoc,
    ScopeDoc,
    SliceDoc,
    StmtBlockDoc,
    TupleDoc,
    WhileDoc,
)
from relaxpy.script.printer.doc_printer import to_python_script
from tests.fuzz.seed import COUNT

UNARY = {"USub": ast.USub, "Invert": ast.Invert, "Not": ast.Not}
COMPARISONS = ("Lt", "LtE", "Eq", "NotEq", "Gt", "GtE")
BINARY = (
    *("Add", "Sub", "Mult", "Div", "FloorDiv", "Mod", "Pow", "LShift", "RShift"),
    *("BitAnd", "BitOr", "BitXor", *COMPARISONS, "And", "Or"),
)


def pair(rng: random.Random, depth: int) -> tuple[ExprDoc, ast.expr]:
    """A random expression, and Python's tree of it."""
    if depth == 0:
        name, value = rng.choice("xyz"), rng.choice([0, 7, 2.5, 'a"\\\n', True, None])
        if rng.random() < 0.5:
            return IdDoc(name), ast.Name(name)
        return LiteralDoc(value), ast.Constant(value)
    (a, x), (b, y), (c, z) = (pair(rng, depth - 1) for _ in range(3))
    form = rng.randrange(10)
    if form == 0:
        return a.attr("name"), ast.Attribute(x, "name")
    if form == 1:
        return a[b, SliceDoc(b, None, c)], ast.Subscript(x, ast.Tuple([y, ast.Slice(y, None, z)]))
    if form == 2:
        return a.call(b, key=c), ast.Call(x, [y], [ast.keyword("key", z)])
    if form == 3:
        name = rng.choice(list(UNARY))
        return OperationDoc(Kind[name], [a]), ast.UnaryOp(UNARY[name](), x)
    if form == 4:
        args = ast.arguments([], [ast.arg("x")], None, [], [], None, [])
        return LambdaDoc([IdDoc("x")], b), ast.Lambda(args, y)
    if form == 5:
        return OperationDoc(Kind.IfThenElse, [a, b, c]), ast.IfExp(x, y, z)
    if form == 6:
        return TupleDoc([a]), ast.Tuple([x])
    if form == 7:
        return DictDoc({a: ListDoc([b, c])}), ast.Dict([x], [ast.List([y, z])])
    name = rng.choice(BINARY)
    doc = OperationDoc(Kind[name], [a, b])
    operator = getattr(ast, name)()
    if name in COMPARISONS:
        return doc, ast.Compare(x, [operator], [y])
    return doc, ast.BoolOp(operator, [x, y]) if name in ("And", "Or") else ast.BinOp(x, operator, y)


def flat(tree: ast.AST) -> str:
    """The dump of a tree, in which `a and b and c` groups to the left and contexts are equal."""

    class Grouped(ast.NodeTransformer):
        def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
            self.generic_visit(node)
            left, *rest = node.values
            for value in rest:
                left = ast.BoolOp(node.op, [left, value])
            return left

    text = ast.dump(Grouped().visit(tree))
    for context in (", ctx=Load()", "ctx=Load()"):
        text = text.replace(context, "")
    return text


@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_python_reads_an_expression_as_the_same_tree(seed: int) -> None:
    doc, tree = pair(random.Random(seed), 1 + seed % 4)
    assert flat(ast.parse(to_python_script(doc), mode="eval").body) == flat(tree)


def test_negative_numbers_are_operands_in_parentheses_where_they_bind_less() -> None:
    x, minus = IdDoc("x"), LiteralDoc(-1)
    assert to_python_script(OperationDoc(Kind.Pow, [minus, x])) == "(-1) ** x"
    assert to_python_script(OperationDoc(Kind.Pow, [x, minus])) == "x ** -1"
    assert to_python_script(minus.attr("real")) == "(-1).real"


def test_statements() -> None:
    x, y, f = map(IdDoc, "xyf")
    body = [
        AssignDoc(x, LiteralDoc(1), IdDoc("int")),
        AssignDoc(TupleDoc([x, TupleDoc([y])]), f.call()),
        IfDoc(x, [], [ExprStmtDoc(f.call(x))]),
        WhileDoc(x, [ReturnDoc(y)]),
        ForDoc(TupleDoc([x, y]), f, [ScopeDoc(None, f, []), ScopeDoc(x, f.call(), [])]),
        AssertDoc(x),
        AssertDoc(x, LiteralDoc("no")),
        CommentDoc("one\ntwo"),
        DocStringDoc(""),
    ]
    body[0].comment = "beside"
    body[2].comment = "above\nit"
    func = FunctionDoc(f, [AssignDoc(x, LiteralDoc(1), IdDoc("int"))], [y], LiteralDoc(None), body)
    func.comment = 'A "docstring" \\ with\n\n"""quotes"""'
    empty = FunctionDoc(x, [AssignDoc(y, None, f)], [], None, [])
    expected = '''
        class f:
            @y
            def f(x: int = 1) -> None:
                """
                A "docstring" \\\\ with

                \\"\\"\\"quotes\\"\\"\\"
                """
                x: int = 1  # beside
                x, (y,) = f()
                # above
                # it
                if x:
                    pass
                else:
                    f(x)
                while x:
                    return y
                for x, y in f:
                    with f:
                        pass
                    with f() as x:
                        pass
                assert x
                assert x, "no"
                # one
                # two

            def x(y: f):
                pass
    '''
    shown = to_python_script(ClassDoc(f, [], [func, empty]))
    assert shown == dedent(expected).strip()
    [read] = ast.parse(shown).body
    assert ast.get_docstring(read.body[0]) == func.comment


def test_the_longest_prefix_of_a_path_is_underlined() -> None:
    def named(name: str, path: AccessPath) -> ExprStmtDoc:
        doc = IdDoc(name)
        doc.source_paths = [path]
        return ExprStmtDoc(doc)

    root = AccessPath.root()
    lines = [named(f"line{n}", root.attr("a") if n == 6 else root) for n in range(12)]
    block = StmtBlockDoc([*lines, named("inner", root.attr("a").attr("b"))])
    path = root.attr("a").attr("c")
    shown = to_python_script(
        block, print_line_numbers=True, num_context_lines=1, path_to_underline=[path]
    )
    assert shown.splitlines() == [
        "(... 5 lines skipped ...)",
        " 6 line5",
        " 7 line6",
        "   ^^^^^",
        " 8 line7",
        "(... 5 lines skipped ...)",
    ]
    whole = StmtBlockDoc(lines[:2])
    whole.source_paths = [path]
    assert to_python_script(whole, path_to_underline=[path]) == "line0\n^^^^^\nline1\n^^^^^"


def test_documents_that_are_not_python() -> None:
    x = IdDoc("x")
    with pytest.raises(ValueError, match="an assignment has a value or an annotation"):
        AssignDoc(x)
    with pytest.raises(ValueError, match="several names have no annotation"):
        AssignDoc(TupleDoc([x]), x, x)
    with pytest.raises(ValueError, match="one branch of an if has a statement"):
        IfDoc(x, [], [])
    statement = ReturnDoc(x)
    statement.comment = "two\nlines"
    with pytest.raises(ValueError, match="the comment beside a ReturnDoc cannot have newlines"):
        to_python_script(statement)
    with pytest.raises(MisuseError, match="Add with 1 operands is not an operation"):
        to_python_script(OperationDoc(Kind.Add, [x]))
    with pytest.raises(MisuseError, match="a ReturnDoc is not an expression"):
        to_python_script(ExprStmtDoc(ReturnDoc(x)))
    with pytest.raises(MisuseError, match="expected a Doc, found 'x'"):
        to_python_script("x")
    with pytest.raises(TypeError, match="a IdDoc cannot be iterated over"):
        list(x)
