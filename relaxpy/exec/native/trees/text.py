"""Prints loop trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from relaxpy.exec.loops.nest import nodes as nest
from relaxpy.exec.loops.plan.statements import Assignment, Statement
from relaxpy.exec.loops.plan.tree import For, Run, Tile, Tree
from relaxpy.exec.native.trees.masks import Masked
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.trees.program import KernelProgram, ObligationTests, Tasks
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.stmt import ForKind

_INDENT = "    "


def tree_text(program: KernelProgram) -> str:
    """The loops of a kernel, and the stores of each iteration.

    `for` runs in source order, `each` in any order, and `tasks` in parallel, each from
    `lo` to below `hi`. A target with `over` accumulates over these loops. Buffers in registers are
    not in memory. Loops that run as scheduled have the kinds of the source.
    """
    lines = [line for tree in program.trees for line in _tree(tree, program.annotated)]
    if program.elided:
        lines.insert(0, f"in registers: {', '.join(sorted(b.name for b in program.elided))}")
    return "\n".join(lines)


def _tree(tree: Tree, kinds: Mapping[Var, ForKind]) -> Iterator[str]:
    match tree:
        case For(axis=axis, body=body):
            yield f"for {_axis(axis)}:"
            yield from _indented(line for inner in body for line in _tree(inner, kinds))
        case Tile(axis=axis, size=size, body=body):
            blocks = f" in blocks of {size}" if size != 1 else ""
            columns = ""
            if isinstance(tree, Masked):
                seen = tree.seen.assignments[0].value
                columns = f", columns from {tree.first} to below {tree.last} by {seen}"
            yield f"each {_axis(axis)}{blocks}{columns}:"
            yield from _indented(line for inner in body for line in _tree(inner, kinds))
        case Tasks(outer=outer, axis=axis, size=size, body=inner):
            blocks = f" in blocks of {size}" if size > 1 else ""
            yield f"tasks of {', '.join(map(_axis, (*outer, axis)))}{blocks}:"
            yield from _indented(_tree(inner, kinds))
        case Run() if tree.is_scalar:
            yield _head("for", tree.loops, (), tree.tests)
            yield from _indented(_statement(tree.statement, kinds))
        case Run():
            yield from _run(tree)
        case ObligationTests(obligations=required, tests=tests):
            for obligation in required:
                yield _head("each", obligation.axes, (), tests)
                yield from _indented((_obligation(obligation),))
        case _:
            pass


def _obligation(obligation: Obligation) -> str:
    test = f"{obligation.index} != 0"
    if obligation.size is not None:
        test = f"0 <= {obligation.index} < {obligation.size}"
    return f"test {test}" + (f" where {_all(obligation.path)}" if obligation.path else "")


def _run(run: Run) -> Iterator[str]:
    yield _head("for" if run.is_serial else "each", run.axes, run.over, run.tests)
    yield from _indented(map(_assignment, run.assignments))
    if run.after:
        yield from _indented(["then:", *_indented(map(_assignment, run.after))])


def _head(
    word: str, axes: Sequence[nest.Axis], over: Sequence[nest.Axis], tests: Sequence[PrimExpr]
) -> str:
    loops = [f"{word} {', '.join(map(_axis, axes))}"] if axes else []
    loops += [f"over {', '.join(map(_axis, over))}"] if over else []
    condition = f" if {_all(tests)}" if tests else ""
    return f"{', '.join(loops) or 'once'}{condition}:"


def _assignment(statement: Assignment) -> str:
    target, value = _element(statement.target, statement.indices), str(statement.value)
    where = f" where {_all(statement.guards)}" if statement.guards else ""
    if statement.combine is None:
        return f"{target} = {value}{where}"
    start = "" if statement.initial is None else f", from {statement.initial}"
    return f"{target} = {statement.combine}({target}, {value}){where}{start}"


def _statement(statement: Statement, kinds: Mapping[Var, ForKind]) -> Iterator[str]:
    if isinstance(statement, Assignment):
        yield _assignment(statement)
    else:
        yield from _items(statement.items, kinds)


def _items(items: Sequence[nest.Item], kinds: Mapping[Var, ForKind]) -> Iterator[str]:
    for item in items:
        match item:
            case nest.Loop(axis=axis, body=body):
                kind = f", {kinds[axis.var].name.lower()}" if axis.var in kinds else ""
                yield f"for {_axis(axis)}{kind}:"
                yield from _indented(_items(body, kinds))
            case nest.Branch(condition=condition, body=body, orelse=orelse):
                yield f"if {condition}:"
                yield from _indented(_items(body, kinds))
                if orelse:
                    yield "else:"
                    yield from _indented(_items(orelse, kinds))
            case nest.WhileLoop(condition=condition, body=body):
                yield f"while {condition}:"
                yield from _indented(_items(body, kinds))
            case nest.Store(buffer=buffer, indices=indices, value=value):
                yield f"{_element(buffer, indices)} = {value}"
            case nest.Bind(var=var, value=value):
                yield f"{var.name} = {value}"
            case nest.Check(condition=condition, message=message):
                yield f"assert {condition}, {message!r}"
            case nest.Return(value=value):
                yield f"return {value}"
            case nest.Jump(kind=kind):
                yield kind
            case nest.Invoke(call=call):
                yield str(call)
            case nest.Alloc(buffer=buffer):
                yield f"{buffer.name} = new memory"
            case _:
                assert_never(item)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (_INDENT + line for line in lines)


def _axis(axis: nest.Axis) -> str:
    if isinstance(axis.start, IntImm) and axis.start.value == 0:
        return f"{axis.var.name} < {axis.stop}"
    return f"{axis.start} <= {axis.var.name} < {axis.stop}"


def _element(buffer: Buffer, indices: Sequence[PrimExpr]) -> str:
    return f"{buffer.name}[{', '.join(map(str, indices)) or '()'}]"


def _all(conditions: Sequence[PrimExpr]) -> str:
    return " and ".join(map(str, conditions))
