"""A smaller program that fails in the same way."""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.fuzz.kernels.compare import TARGETS, Failure, examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.kernels.program import Call, Memory, Program, Scalar, View
from tests.fuzz.kernels.semantics import FLOATS

TRIES = 500
"""Programs that are looked at before what has been reached is good enough."""


def shrink(program: Program, failure: Failure, tries: int = TRIES) -> Program:
    """The smallest program found that still fails in the way of `failure`."""
    targets = [t for t in TARGETS if t in failure.kind] or TARGETS[:1]
    left = tries

    def fails(candidate: Program) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            return False
        try:
            found = examine(candidate, targets, trip="trip" in failure.kind).failures
        except (
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ):
            return False  # the oracle cannot make sense of it
        return any(_cause(f) == _cause(failure) for f in found)

    best = program
    shorter = True
    while shorter and left > 0:
        shorter = False
        for reduce in (_calls, _statements, _arguments, _expressions):
            while (found := _first(reduce(best), fails)) is not None:
                best, shorter = found, True
    return best


def _first(candidates: Iterator[Program], fails: Callable[[Program], bool]) -> Program | None:
    return next((c for c in candidates if fails(c)), None)


def _cause(failure: Failure) -> str:
    """The kind, and of an exception its type."""
    if failure.kind.startswith("bare"):
        return f"{failure.kind}: {failure.detail.split(':')[0]}"
    if "no error" in failure.kind:
        return f"{failure.kind}: {failure.detail.split(':')[0]}"
    if "refused" in failure.kind:
        return (
            f"{failure.kind}: {''.join(c for c in failure.detail if c.isalpha() or c == ' ')[:12]}"
        )
    return failure.kind


# ---- calls and arguments


def _calls(program: Program) -> Iterator[Program]:
    if program.block:
        yield replace(program, block=0)
    if program.caller:
        yield replace(program, caller="")
    if len(program.calls) > 1:
        for call in program.calls:
            yield replace(program, calls=(call,))


def _arguments(program: Program) -> Iterator[Program]:
    for number, call in enumerate(program.calls):
        for smaller in _smaller_calls(call):
            calls = list(program.calls)
            calls[number] = smaller
            yield replace(program, calls=tuple(calls))


def _smaller_calls(call: Call) -> Iterator[Call]:
    for k, argument in enumerate(call.arguments):
        for other in _simpler(argument, call):
            arguments = list(call.arguments)
            arguments[k] = other
            yield replace(call, arguments=tuple(arguments))
    for k, memory in enumerate(call.memories):
        one = 1.0 if memory.dtype in FLOATS else memory.dtype == "bool" or 1
        for value in (
            tuple(one for _ in memory.values),
            tuple(type(one)(0) for _ in memory.values),
        ):
            if memory.values != value and not all(v == one for v in memory.values):
                yield _with_memory(call, k, replace(memory, values=value))
        for place, old in enumerate(memory.values):
            if old not in (one, 0):
                values = (*memory.values[:place], one, *memory.values[place + 1 :])
                yield _with_memory(call, k, replace(memory, values=values))


def _with_memory(call: Call, number: int, memory: Memory) -> Call:
    memories = list(call.memories)
    memories[number] = memory
    return replace(call, memories=tuple(memories))


def _simpler(argument: Scalar | View, call: Call) -> Iterator[Scalar | View]:
    if isinstance(argument, Scalar):
        return
    if argument.frozen:
        yield replace(argument, frozen=False)
    if argument.origin != "view":
        yield replace(argument, origin="view")
    steps = []
    step = 1
    for size in reversed(argument.shape):
        steps.insert(0, step)
        step *= size
    plain = replace(argument, offset=0, strides=tuple(steps))
    if plain != argument and len(call.memories[argument.memory].values) >= step:
        yield plain


# ---- the text


def _statements(program: Program) -> Iterator[Program]:
    """Without one statement, or with what it holds in its place; without one parameter."""
    tree = ast.parse(program.text)
    sites = [
        (node, field)
        for node in ast.walk(tree)
        for field in ("body", "orelse")
        if isinstance(getattr(node, field, None), list) and not isinstance(node, ast.Module)
    ]
    for number, (node, field) in enumerate(sites):
        suite = getattr(node, field)
        for place in reversed(range(len(suite))):
            for inside in (False, True):
                again = ast.parse(program.text)
                others = [
                    (n, f)
                    for n in ast.walk(again)
                    for f in ("body", "orelse")
                    if isinstance(getattr(n, f, None), list) and not isinstance(n, ast.Module)
                ]
                owner, name = others[number]
                lines = getattr(owner, name)
                statement = lines[place]
                kept = getattr(statement, "body", None) if inside else []
                if kept is None:
                    continue
                lines[place : place + 1] = kept
                if not lines and name == "body":
                    lines.append(ast.parse("T.evaluate(0)").body[0])
                if ast.dump(again) != ast.dump(tree):
                    yield replace(program, text=ast.unparse(again) + "\n")
    yield from _parameters(program, tree)


def _parameters(program: Program, tree: ast.Module) -> Iterator[Program]:
    [function] = tree.body
    assert isinstance(function, ast.FunctionDef)
    for k, param in enumerate(function.args.args):
        smaller = copy.deepcopy(function)
        del smaller.args.args[k]
        smaller.body = [
            s
            for s in smaller.body
            if not (
                isinstance(s, ast.Assign)
                and isinstance(s.value, ast.Call)
                and s.value.args
                and isinstance(s.value.args[0], ast.Name)
                and s.value.args[0].id == param.arg
            )
        ] or ast.parse("T.evaluate(0)").body
        calls = tuple(
            replace(c, arguments=c.arguments[:k] + c.arguments[k + 1 :]) for c in program.calls
        )
        text = ast.unparse(ast.Module([smaller], [])) + "\n"
        yield replace(program, text=text, calls=calls)


def _expressions(program: Program) -> Iterator[Program]:
    """With one expression replaced by a part of it, or by a literal."""
    tree = ast.parse(program.text)
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.expr)]
    for number, node in enumerate(nodes):
        for other in _parts(node):
            again = ast.parse(program.text)
            old = [n for n in ast.walk(again) if isinstance(n, ast.expr)][number]
            changed = ast.unparse(_Replace(old, other).visit(again)) + "\n"
            if len(changed) < len(ast.unparse(tree)):
                yield replace(program, text=changed)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left=a, right=b):
            yield from (a, b)
        case ast.BoolOp(values=values):
            yield from values
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.IfExp(body=a, orelse=b):
            yield from (a, b)
        case ast.Call(func=ast.Attribute(attr=name), args=[*args]) if name not in (
            *("match_buffer", "alloc_buffer", "decl_buffer", "Buffer", "block", "remap"),
        ):
            yield from (a for a in args if not isinstance(a, ast.Constant) or len(args) == 1)
            if name == "Cast" and isinstance(args[0], ast.Constant):
                yield ast.parse(f"T.{args[0].value}(1)", mode="eval").body
        case ast.Compare(left=a):
            yield ast.parse("T.bool(True)", mode="eval").body
    match node:
        case ast.BinOp() | ast.Subscript(ctx=ast.Load()) | ast.Name(ctx=ast.Load()):
            for dtype in ("float32", "int32", "int64"):
                yield ast.parse(f"T.{dtype}(1)", mode="eval").body
            yield ast.Constant(1)
            yield ast.Constant(0)
        case ast.Call():
            for dtype in ("float32", "int32", "bool"):
                yield ast.parse(f"T.{dtype}(1)", mode="eval").body


def main(seeds: Sequence[str]) -> None:
    """Print a short program for each failure of the programs of some seeds."""
    for seed in seeds:
        program = generate(seed)
        for failure in examine(program).failures:
            small = shrink(program, failure)
            found = [str(f) for f in examine(small).failures if f.kind == failure.kind]
            print(small.standalone([f"seed {seed}", *found]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
