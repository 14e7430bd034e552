"""A program may use any names, those that generated code uses too."""

import ast
import keyword
from collections.abc import Mapping
from random import Random

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.api.executable import Executable
from relaxpy.script import from_source

ROWS = """
@T.prim_func
def {f}({x}: T.handle, {y}: T.handle, {s}: T.int64, {p}: T.Buffer((4,), "int64")):
    {n} = T.int64()
    {m} = T.int64()
    {X} = T.match_buffer({x}, ({n}, {m}), "float32")
    {Y} = T.match_buffer({y}, ({n}, {m}), "float32")
    {Q} = T.alloc_buffer(({n}, {m}), "float32")
    {R} = T.alloc_buffer(({n},), "float32")
    for {i} in range({n}):
        {R}[{i}] = T.Cast("float32", {s})
        for {j} in range({m}):
            {Q}[{i}, {j}] = T.exp({X}[{i}, {j}]) + T.Cast("float32", {j} * {n})
            {R}[{i}] = {R}[{i}] + {Q}[{i}, {j}]
    for {i}, {j} in T.grid({n}, {m}):
        {Y}[{i}, {j}] = {Q}[{i}, {j}] / {R}[{i}] + T.if_then_else({X}[{i}, {j}] > T.float32(0),
            T.Cast("float32", {m}), {X}[{p}[{j} % 4] % {n}, {j}])
"""
ORDER = """
@T.prim_func
def {f}({x}: T.handle, {y}: T.handle, {s}: T.int64, {p}: T.Buffer((4,), "int64")):
    {n} = T.int64()
    {m} = T.int64()
    {X} = T.match_buffer({x}, ({n}, {m}), "float32")
    {Y} = T.match_buffer({y}, ({n}, {m}), "float32")
    {Q} = T.alloc_buffer((), "int64")
    {R} = T.alloc_buffer(({n},), "float32")
    {Q}[()] = {s}
    while {Q}[()] > T.int64(1):
        {Q}[()] = {Q}[()] // T.int64(2)
    for {i} in range({n}):
        with T.block("{b}"):
            {v} = T.axis.spatial({n}, {i})
            {w} = {X}[{v}, 0]
            {Y}[{v}, 0] = {X}[{v}, {m} - 1] + T.Cast("float32", {Q}[()])
            {Y}[{v}, {m} - 1] = {w}
    for {i} in range({n}):
        {R}[{i}] = {X}[{i}, 0]
        for {j} in range({i}):
            {R}[{i}] = {R}[{i}] * {R}[{j}] + T.Cast("float32", {n})
            {Y}[{p}[{j} % 4] % {n}, 0] = {R}[{i}]
    for {i}, {j} in T.grid({n}, {m} - 1):
        {Y}[{i}, {j} + 1] = {Y}[{i}, {j}] + {R}[{i}]
"""
GRAPH = """
@I.ir_module
class M:
    @T.prim_func(private=True)
    def {f}({X}: T.Buffer((3, 4), "float32"), {Y}: T.Buffer((3, 4), "float32")):
        for {i}, {j} in T.grid(3, 4):
            {Y}[{i}, {j}] = {X}[{i}, {j}] + T.float32(1)

    @R.function(private=True)
    def {g}({x}: R.Tensor(("{n}", "{m}"), "float32")) -> R.Tensor(("{n}", "{m}"), "float32"):
        {v} = R.exp({x})
        {w} = R.add({v}, {x})
        return {w}

    @R.function
    def main({x}: R.Tensor((3, 4), "float32"), {y}: R.Tensor(("{n}", "{m}"), "float32"),
             {s}: R.Prim("int64"), {p}: R.Object) -> R.Tensor(("{n}", "{m}"), "float32"):
        {n} = T.int64()
        {m} = T.int64()
        {v} = R.call_tir(M.{f}, ({x},), R.Tensor((3, 4), "float32"))
        {w} = R.match_cast({v}, R.Tensor(({n}, {m}), "float32"))
        {q}: R.Tensor(({n}, {m}), "float32") = M.{g}({w})
        {b} = R.call_pure_packed("test.names", {q}, sinfo_args=R.Tensor(({n}, {m}), "float32"))
        if R.const(True):
            {c} = R.add({b}, R.const(2.0, "float32"))
        else:
            {c} = {y}
        return {c}
"""
SLOTS = ("f", "g", "x", "y", "s", "p", "n", "m", "X", "Y", "Q", "R", "i", "j", "b", "v", "w")
SLOTS += ("q", "c")
IN_TEXT = {"T", "R", "I", "M", "range", "main", "__name__"}


def batched(names: list[str], count: int) -> list[list[str]]:
    return [names[k : k + count] for k in range(0, len(names), count)]


@pytest.fixture(autouse=True)
def packed() -> None:
    relaxpy.register_global_func("test.names", lambda x: x * 2, override=True)


def executable(text: str, names: Mapping[str, str]) -> Executable:
    return relaxpy.compile(from_source(text.format(**names)))


def results(made: Executable, function: str) -> list[np.ndarray]:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    y = np.full((3, 4), 7, np.float32)
    found = made[function](x, y, 5, np.array([0, 2, 1, 5]))
    return [y] if found is None else [y, found]


def names_in(made: Executable) -> list[str]:
    """Every name that the text of an executable uses, except those that all programs use."""
    tree = ast.parse(made.source)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    used |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    used |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    used |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    return sorted(n for n in used if n not in IN_TEXT and not keyword.iskeyword(n))


@pytest.mark.parametrize("text", [ROWS, ORDER, GRAPH], ids=["rows", "order", "graph"])
def test_names_in_a_program_do_not_collide_with_those_of_generated_code(text: str) -> None:
    plain = {slot: f"{slot}_own" for slot in SLOTS}
    function = "main" if text is GRAPH else plain["f"]
    made = executable(text, plain)
    expected = results(made, function)
    taken = [name for name in names_in(made) if not name.endswith("_own")]
    used = [slot for slot in SLOTS if f"{{{slot}}}" in text]
    random = Random(7)
    # Each name is in two slots, each time beside other names, while half of the slots have plain
    # ones; then all slots, at random.
    trials = [
        dict(zip(random.sample(used, len(names)), names, strict=True))
        for _ in range(2)
        for names in batched(random.sample(taken, len(taken)), len(used) // 2)
    ]
    trials += [dict(zip(used, random.sample(taken, len(used)), strict=True)) for _ in range(4)]
    for trial in trials:
        names = {**plain, **trial}
        found = results(executable(text, names), "main" if text is GRAPH else names["f"])
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(trial))
