"""Each dimension that a generator claims to vary is drawn often enough to find faults."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest

from tests.fuzz import calls, graphs, signatures
from tests.fuzz.adversary import Adversary
from tests.fuzz.kernels.generate import generate
from tests.fuzz.partial_kernels import Partial

DRAWS = 300


def onnx_text(seed: str) -> str:
    """The text of a random ONNX model, with the types of its results."""
    onnx = pytest.importorskip("onnx")
    from tests.fuzz.onnx_models import write

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return onnx.printer.to_text(write(seed).proto)  # type: ignore[no-any-return]


GENERATORS: dict[str, tuple[Callable[[str], str], int]] = {
    "kernels": (lambda seed: generate(seed).text, DRAWS),
    "callers of kernels": (lambda seed: generate(seed).caller, DRAWS),
    "partial kernels": (lambda seed: Partial(Random(seed)).text(), DRAWS),
    "schedules": (lambda seed: Adversary(Random(seed)).text(), DRAWS),
    "signatures": (lambda seed: signatures.write(seed).text, DRAWS),
    "graphs": (lambda seed: graphs.write(seed).relax, DRAWS),
    "calls": (lambda seed: calls.write(seed).script(), 60),
    "ONNX models": (onnx_text, 60),
}


def is_init(node: ast.AST) -> bool:
    """Whether a statement is the init of a block."""
    return isinstance(node, ast.With) and "T.init" in ast.unparse(node.items[0])


def has_init(node: ast.AST) -> bool:
    """Whether there is an init in a statement."""
    return any(map(is_init, ast.walk(node)))


def predicate_on_init(tree: ast.AST) -> bool:
    """A block with a predicate and an init of its own."""
    return any(
        "T.where(" in ast.unparse(node) and any(map(is_init, node.body))
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
    )


def branch_on_init(tree: ast.AST) -> bool:
    """An init in a branch around its block."""
    return any(isinstance(node, ast.If) and has_init(node) for node in ast.walk(tree))


def strided_store(tree: ast.AST) -> bool:
    """A store to every second or third element."""
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mult)
        and any(isinstance(x, ast.Constant) and x.value in (2, 3) for x in (part.left, part.right))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
        for part in ast.walk(node.targets[0].slice)
    )


def functions(tree: ast.AST, decorator: str) -> list[ast.FunctionDef]:
    """The functions under a decorator."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [f for f in found if any(decorator in ast.unparse(d) for d in f.decorator_list)]


def main_of(tree: ast.AST) -> ast.FunctionDef:
    """The function that is called."""
    return next(f for f in functions(tree, "R.function") if f.name == "main")


def symbolic_in_fixed(tree: ast.AST) -> bool:
    """A kernel of symbolic sizes beside a function of fixed ones."""
    kernels = "".join(map(ast.unparse, functions(tree, "prim_func")))
    return "T.int64()" in kernels and "T.int64()" not in ast.unparse(main_of(tree))


def one_call(tree: ast.AST) -> bool:
    """A function with exactly one call of a kernel or an operator."""
    calls = [node for node in ast.walk(main_of(tree)) if isinstance(node, ast.Call)]
    return (
        len(
            [
                c
                for c in calls
                if re.match(r"R\.(?!const|shape|dataflow|output)[a-z]", ast.unparse(c))
            ]
        )
        == 1
    )


def activations_of_three_dimensions(tree: ast.AST) -> bool:
    """A product of an operand of three dimensions and of weights in few bits."""
    text = ast.unparse(tree)
    expanded = re.findall(r"(\w+) = R\.expand_dims\(\w+, 0\)", text)
    decoded = re.findall(r"(\w+) = R\.call_tir\(cls\.decoded", text)
    moved = re.findall(rf"(\w+) = R\.permute_dims\((?:{'|'.join(decoded)})\)", text)
    products = re.findall(r"R\.matmul\((\w+), (\w+)\)", text)
    return any(x in expanded and w in moved for x, w in products)


def has(pattern: str) -> Callable[[ast.AST], bool]:
    """Whether the text has a pattern."""
    return lambda tree: re.search(pattern, ast.unparse(tree)) is not None


DIMENSIONS: dict[str, dict[str, tuple[Callable[[Any], bool], float]]] = {
    "kernels": {
        "a predicate on a block": (has(r"T\.where\("), 0.08),
        "a predicate on an initialisation": (predicate_on_init, 0.03),
        "a branch around an initialisation": (branch_on_init, 0.03),
        "a strided store": (strided_store, 0.02),
        "a scalar that may wrap": (has(r"\bc\w*: T\.int(64|32)"), 0.05),
        "a large integer in an index": (has(r"\[T\.\w+\([^=\n]*T\.int(32|64)\(-?\d{9,}\)"), 0.02),
        "an extent that wraps": (has(r"(range|serial)\(T\.(floormod|min)\(.*T\.Cast"), 0.005),
        "three casts of casts": (has(r"(T\.Cast\('\w+', ){3}"), 0.05),
        "a view of other memory": (has(r"T\.decl_buffer"), 0.05),
        "a function that gets a buffer": (has(r"T\.call_(extern|intrin)"), 0.02),
        "a passed view that moves": (has(r"elem_offset=\w+ \* .*\n.*tests\.fuzz\.digest"), 0.005),
        "a long argument": (has(r"\((1031|70001),\)"), 0.005),
    },
    "callers of kernels": {
        "a caller that passes handles": (has("handles"), 0.04),
        "a caller that passes buffers": (has("buffers"), 0.04),
    },
    "partial kernels": {
        "a predicate on a block": (has(r"T\.where\("), 0.3),
        "a predicate on an initialisation": (predicate_on_init, 0.1),
        "a branch around an initialisation": (branch_on_init, 0.1),
        "a strided store": (strided_store, 0.1),
        "loops of any number of iterations": (has(r"range\(n\)"), 0.3),
    },
    "schedules": {
        "a predicate on a block": (has(r"T\.where\("), 0.1),
        "a predicate on an initialisation": (predicate_on_init, 0.05),
        "a branch": (has(r"\n +if "), 0.3),
        "a strided store": (strided_store, 0.05),
    },
    "signatures": {
        "exactly one call": (one_call, 0.3),
        "symbolic kernels in fixed functions": (symbolic_in_fixed, 0.1),
        "a predicate on what is written in place": (has(r"T\.where\("), 0.03),
        "a branch around what is written in place": (has(r"if i\d"), 0.03),
        "several results": (has(r"y\d+\[1\]"), 0.05),
        "numbers": (has("tir_vars"), 0.1),
    },
    "graphs": {
        "exactly one call": (one_call, 0.03),
        "symbolic kernels in fixed functions": (symbolic_in_fixed, 0.03),
        "weights of few bits": (has(r"def decoded"), 0.1),
        "few bits and three dimensions": (activations_of_three_dimensions, 0.05),
        "packed weights as parameters": (has(r"w\d+: R\.Tensor\(\(\d+, \d+\), 'uint32'\)"), 0.03),
        "kernels in place that write a part": (has(r"def (later_rows|even_columns)"), 0.1),
    },
    "calls": {
        "packed functions that overwrite": (has("call_inplace_packed"), 0.1),
        "shapes that elements decide": (has(r"R\.(nonzero|unique)"), 0.1),
    },
    "ONNX models": {
        "text": (lambda text: "string[" in text, 0.2),
        "labels and categories that are text": (
            lambda text: "labels_strings" in text or "cats_strings" in text,
            0.03,
        ),
    },
}


@cache
def drawn(generator: str) -> list[Any]:
    """What a generator draws for some seeds, as trees of Python, but for ONNX."""
    draw, count = GENERATORS[generator]
    found = [draw(f"dimension {k}") for k in range(count)]
    return found if draw is onnx_text else [*map(ast.parse, found)]


@pytest.mark.parametrize(
    ("generator", "dimension"), [(g, name) for g, found in DIMENSIONS.items() for name in found]
)
def test_a_generator_reaches_its_dimensions(generator: str, dimension: str) -> None:
    reaches, least = DIMENSIONS[generator][dimension]
    count = sum(map(reaches, drawn(generator)))
    assert count >= least * len(drawn(generator)), f"{count} of {len(drawn(generator))}"
