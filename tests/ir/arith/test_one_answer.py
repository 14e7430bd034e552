"""One question has one answer: whatever was asked before, however deep the stack, in any thread."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from relaxpy import arith, tir as T
from relaxpy.ir.arith import canonical, prove
from relaxpy.ir.arith.canonical import Canonical
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
from tests.counting import depth
from tests.fuzz.scalars import Expressions

Question = Callable[[], Any]
#: Frames that are left where what is asked still has to be answered.
ROOM = 40


def questions(seed: int, count: int) -> list[tuple[Question, Question]]:
    """Random questions, each to integer reasoning in general and to one Analyzer."""
    chosen = random.Random(seed)
    source = Expressions(chosen, ("int32", "int64", "uint8"))
    made, shared = arith.Analyzer(), arith.Analyzer()
    x, y, _ = source.variables["int32"]
    for analyzer in (made, shared):
        analyzer.bind(x, Range(0, 16))
        analyzer.update(y, canonical_bound())
    found: list[tuple[Question, Question]] = []
    for _ in range(count):
        a, b = source.number("int64", 6), source.number("int64", 4)
        i, test = source.number("int32", 6), source.condition(3)
        asked: list[Callable[[arith.Analyzer], Question]] = [
            lambda _, a=a: lambda: arith.simplify(a),
            lambda _, a=a, b=b: lambda: arith.prove_equal(a, b),
            lambda _, a=a: lambda: arith.prove_equal(a, arith.simplify(a)),
            lambda an, i=i: lambda: an.simplify(i),
            lambda an, i=i: lambda: an.const_int_bound(i),
            lambda an, i=i: lambda: an.modular_set(i),
            lambda an, i=i: lambda: an.int_set(i, {y: Range(0, 4)}),
            lambda an, test=test: lambda: an.can_prove(test),
            lambda _, i=i: lambda: arith.detect_linear_equation(i, [x, y]),
            lambda _, test=test: lambda: arith.detect_clip_bound(test, [x, y]),
            lambda _, i=i: (
                lambda: arith.detect_iter_map([i], {x: Range(0, 4), y: Range(0, 4)}).indices
            ),
        ]
        ask = chosen.choice(asked)
        found.append((ask(made), ask(shared)))
    return found


def canonical_bound() -> Any:
    from relaxpy.arith import ConstIntBound

    return ConstIntBound(-4, 90)


def forget() -> None:
    """Let integer reasoning begin anew."""
    canonical.GENERAL._forget()
    prove._decided.cache_clear()


def deeper(frames: int, ask: Question) -> Any:
    return ask() if frames <= 0 else deeper(frames - 1, ask)


def near_the_limit(ask: Question, room: int = ROOM) -> Any:
    """What `ask` gives where so many frames are left."""
    return deeper(sys.getrecursionlimit() - depth() - room, ask)


@pytest.mark.parametrize("seed", range(4))
def test_answers_depend_neither_on_order_nor_on_the_stack_nor_on_threads(seed: int) -> None:
    asked = questions(seed, 60)
    expected = []
    for alone, _ in asked:
        forget()
        expected.append(str(alone()))
    chosen = random.Random(seed)
    orders = [chosen.sample(range(len(asked)), len(asked)) for _ in range(6)]

    def run(order: list[int], at: Callable[[Question], Any], wrong: list[str]) -> None:
        for k in order:
            found = str(at(asked[k][1]))
            if found != expected[k]:
                wrong.append(f"{found}, alone {expected[k]}")

    wrong: list[str] = []
    forget()
    run(orders[0], near_the_limit, wrong)
    run(orders[1], lambda ask: ask(), wrong)
    forget()
    ways = (near_the_limit, lambda ask: ask(), near_the_limit, lambda ask: ask())
    threads = [
        threading.Thread(target=run, args=(order, way, wrong))
        for order, way in zip(orders[2:], ways, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_was_asked_near_the_limit_is_not_unknown_afterwards() -> None:
    n, m = T.Var("n", "int64"), T.Var("m", "int64")
    for room in range(1, 90):
        a, b = (n + room) * (m + 1), n * m + n + m * room + room
        try:
            assert near_the_limit(lambda a=a, b=b: arith.prove_equal(a, b), room) is True
        except RecursionError:
            assert room < ROOM  # nothing can be called there
        assert arith.prove_equal(a, b) is True


def test_a_low_limit_changes_no_answer() -> None:
    x = T.Var("x", "int32")
    expr = reduce(lambda e, k: ops.floormod(e * 3 + x, 7 + k), range(30), x)
    expected = str(Canonical().simplify(expr))
    before = sys.getrecursionlimit()
    for limit in (depth() + ROOM, depth() + 120, 700, 5000):
        sys.setrecursionlimit(limit)
        try:
            found = Canonical().simplify(expr)
            now = sys.getrecursionlimit()
        finally:
            sys.setrecursionlimit(before)
        assert now == limit
        assert str(found) == expected


def nested(make: Callable[[T.PrimExpr, int], T.PrimExpr], size: int) -> T.PrimExpr:
    return reduce(make, range(size), T.Var("x", "int32"))


y, other = T.Var("y", "int32"), T.Var("other", "int32")
NESTED = {
    "floormod": lambda e, k: T.FloorMod(e * 3 + y, ops.const(7 + k)),
    "select": lambda e, k: T.Select(T.LT(e, y + k), y, e + 1),
    "max": lambda e, k: T.Max(e, T.Var(f"v{k}", "int32") * 2),
    "and": lambda e, k: T.Select(T.And(T.LT(e, y), T.LT(y, other + k)), e * 2, y),
    "lets": lambda e, k: (lambda v: T.Let(v, e, v * 2 + y))(T.Var("v", "int32")),
    "cast": lambda e, k: T.Cast("int32", T.Cast("uint8", e)),
}


@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED)
def test_nested_expressions_have_answers_from_below(make) -> None:
    expr = nested(make, 30)
    once, parts = arith.Analyzer(), arith.Analyzer()
    found = once.simplify(expr), once.const_int_bound(expr), once.modular_set(expr)
    for part in walk(expr):  # asked for its parts before
        if isinstance(part, T.PrimExpr) and part.dtype.is_int:
            parts.const_int_bound(part)
    assert parts.simplify(expr) is found[0]
    assert parts.const_int_bound(expr) == found[1]
    assert parts.modular_set(expr) == found[2]


@pytest.mark.parametrize("name", ["floormod", "lets", "cast"])
def test_no_expression_is_too_deep(name: str) -> None:
    expr = nested(NESTED[name], 250)
    made = arith.Analyzer()
    made.simplify(expr)
    made.int_set(expr, {y: Range(0, 4)})
    assert made.modular_set(expr).coeff >= 0
    assert arith.prove_equal(expr, y + 1) in (None, False)


PROGRAM = """
from relaxpy import tir as T
from relaxpy.arith import simplify
{junk}
vs = [T.Var("i", "int32") for _ in range(12)]
total = sum(((a + 1) * (b - 2) // 3 for a, b in zip(vs, vs[::-1])), start=T.IntImm("int32", 0))
names = {{v: f"i{{k}}" for k, v in enumerate(vs)}}
from relaxpy.ir.tir.substitution import substitute
print(substitute(simplify(total), {{v: T.Var(name, "int32") for v, name in names.items()}}))
"""


def test_variables_of_one_name_are_written_in_one_order() -> None:
    texts = set()
    for junk in (
        "",
        "kept = [T.Var('i', 'int32') for _ in range(999)][::3]",
        "x = bytearray(9999)",
    ):
        run = [sys.executable, "-c", PROGRAM.format(junk=junk)]
        texts.add(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert len(texts) == 1
