"""Whose memory values are: random functions run again with memory shared as their places allow."""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest
from relaxpy.exec.program.lower.python_module import ModuleLowering, NumpyBackend, dynamic_programs
from tests.exec.program.steps import write

from relaxpy import IRModule, relax
from relaxpy.exec.program.lower.known import allocation_of, is_release, is_reshape
from relaxpy.exec.program.lower.places import Places
from relaxpy.exec.runtime.checks import output_sinfos
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from tests.fuzz import overwritten
from tests.fuzz.seed import COUNT, SEED
from tests.ir.relax.texts import module


class Block:
    """Memory with its contents."""

    def __init__(self, contents: object = None) -> None:
        self.contents = contents


class Tensor:
    """A tensor in memory of its own, and where the places of the function put it."""

    def __init__(self, alone: Block, shared: Block) -> None:
        self.alone, self.shared = alone, shared

    def read(self) -> object:
        assert self.alone.contents == self.shared.contents
        return self.alone.contents

    def write(self, contents: object) -> None:
        self.alone.contents = self.shared.contents = contents


def new(contents: object = None) -> Tensor:
    return Tensor(Block(contents), Block(contents))


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for field in value:
            yield from tensors(field)


class Replay:
    """Runs a function of a module, whose packed functions keep, change and return what they get.

    Every operand has the contents that it has without shared memory, and so has all that is kept.
    """

    def __init__(self, mod: IRModule, random: Random, kind: type[Places] = Places) -> None:
        lowering = ModuleLowering(
            mod, NumpyBackend(), dynamic_programs(NumpyBackend), is_instrumented=False
        )
        self.lowering, self.kernel_of = lowering, lowering.kernel_of
        self.random, self.kind = random, kind
        self.number, self.shared, self.depth = count(), 0, 0
        self.kept: list[Tensor] = []
        self.literals: dict[rx.Constant, Block] = {}
        self.decisions: dict[tuple[rx.Call, rx.Expr], tuple[bool, bool]] = {}

    def run(self, func: rx.Function) -> None:
        self.places = self.kind(func, self.kernel_of)
        self.scope: dict[rx.Var, Any] = {}
        for _ in range(3):
            args = [self.argument(param.struct_info) for param in func.params]
            self.keep(self.call_function(func, args))
        for tensor in self.kept:
            tensor.read()

    def argument(self, sinfo: rx.StructInfo | None) -> Any:
        if isinstance(sinfo, rx.TupleStructInfo):
            return tuple(map(self.argument, sinfo.fields))
        return new(next(self.number))

    def call_function(self, func: rx.Function, args: list[Any]) -> Any:
        self.depth += 1
        outer, self.scope = self.scope, {**self.scope, **dict(zip(func.params, args, strict=True))}
        result = self.value(func.body)
        self.scope = outer
        self.depth -= 1
        return result

    def keep(self, value: Any) -> None:
        self.kept += tensors(value)

    def value(self, expr: Any) -> Any:
        match expr:
            case rx.Var():
                return self.scope.get(expr)
            case rx.Constant():
                tensor = new(id(expr))
                if self.places.is_only_read(expr):
                    tensor.shared = self.literals.setdefault(expr, tensor.shared)
                return tensor
            case rx.Tuple(fields=fields):
                return tuple(map(self.value, fields))
            case rx.TupleGetItem(tuple_value=whole, index=index):
                found = self.value(whole)
                return found[index] if isinstance(found, tuple) else found
            case rx.SeqExpr(blocks=blocks, body=body):
                for binding in (binding for block in blocks for binding in block.bindings):
                    value = self.value(binding.value)
                    if binding.var is not None:
                        self.scope[binding.var] = value
                return self.value(body)
            case rx.If(cond=cond, true_branch=first, false_branch=second):
                for tensor in tensors(self.value(cond)):
                    tensor.read()
                is_first = self.random.random() < 0.5 + (self.depth > 4)
                return self.value(first if is_first else second)
            case rx.Function():
                return expr
            case rx.Call():
                return self.call(expr)
            case _:
                return None

    def call(self, call: rx.Call) -> Any:
        name, operands = call.op, call.args
        if isinstance(name, Op) and call.args and self.kernel_of(call.args[0]) is not None:
            name, whole = call.args[:2]
            fields = len(whole.struct_info.fields)
            operands = getattr(whole, "fields", [rx.TupleGetItem(whole, n) for n in range(fields)])
        callee = self.kernel_of(name) if isinstance(name, rx.GlobalVar) else None
        if callee is not None and len(operands) == 1 and self.lowering.is_reshape(callee):
            return self.copy(call, operands[0])
        if callee is not None:
            values = [*map(self.value, operands)]
            return self.kernel(call, operands, values, callee.written)
        args = [self.value(arg) for arg in call.args]
        if is_release(call):
            return None
        if is_reshape(call):
            return self.copy(call, call.args[0])
        if allocation_of(call) is not None:
            return new(next(self.number))
        func = self.value(call.op) if isinstance(call.op, rx.Var) else None
        if isinstance(func, rx.Function) and self.depth < 8:
            return self.call_function(func, args)
        return self.packed(args, call.struct_info)

    def copy(self, call: rx.Call, operand: rx.Expr) -> Tensor:
        source = self.value(operand)
        copy = new(source.read())
        if any(self.decide(call, operand, is_copy=True)):
            copy.shared = source.shared
        return copy

    def decide(
        self, call: rx.Call, operand: rx.Expr, *, is_copy: bool = False
    ) -> tuple[bool, bool]:
        """Whether an operand is free, or a copy of it may be a view, as is asked once."""
        if (call, operand) not in self.decisions:
            place = self.places.of(operand)
            is_free = self.places.is_free(place, call)
            is_shared = not is_free and is_copy and self.places.share(place, call)
            self.decisions[call, operand] = is_free, is_shared
            self.shared += is_free or is_shared
        return self.decisions[call, operand]

    def kernel(self, call: rx.Call, operands: Any, values: list[Any], written: Any) -> Any:
        contents = [tensor.read() for tensor in tensors(tuple(values))]
        free = [v for o, v in zip(operands, values, strict=False) if self.decide(call, o)[0]]
        sinfos = output_sinfos(call) if call.sinfo_args else ()
        results = []
        for index in call.attrs.get("inplace_indices", [-1] * len(sinfos)):
            results.append(values[index] if index >= 0 else new())
            if index < 0 and free:
                results[-1].shared = free.pop().shared
        changed = [values[n] for n in written if n < len(values)]
        for number, tensor in enumerate({id(t): t for t in (*changed, *results)}.values()):
            tensor.write((id(call), number, hash(tuple(contents))))
        is_tuple = bool(call.sinfo_args) and isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        return tuple(results) if is_tuple else (results or [None])[0]

    def packed(self, args: list[Any], sinfo: rx.StructInfo | None) -> Any:
        """What a packed function returns: new tensors and those it has had; it changes some."""
        self.keep(tuple(args))
        for tensor in self.kept:
            tensor.read()
            if self.random.random() < 0.1:
                tensor.write(next(self.number))
        return self.returned(sinfo)

    def returned(self, sinfo: rx.StructInfo | None) -> Any:
        if isinstance(sinfo, rx.TupleStructInfo):
            return tuple(map(self.returned, sinfo.fields))
        return self.random.choice([*self.kept, new(next(self.number))])


def programs(seed: str, k: int) -> Iterator[IRModule]:
    """Random modules, whose operators are kernels."""
    yield module(write(Random(seed), symbolic=k % 2 == 0, aliases=k % 3 > 0)[0])
    for other in range(4):
        yield module(overwritten.text(f"{seed}.{other}"))


def replay(seed: str, k: int, kind: type[Places] = Places) -> int:
    """How often the functions of the programs of a seed share memory."""
    shared = 0
    for mod in programs(seed, k):
        legal = relax.transform.LegalizeOps()(mod)
        for run in range(2):
            again = Replay(legal, Random(f"{seed}.{run}"), kind)
            for func in legal.functions_by_name.values():
                if isinstance(func, rx.Function):
                    again.run(func)
            shared += again.shared
    return shared


@pytest.mark.rule("OPT-10", "OPT-11", "EV-2")
@pytest.mark.parametrize("k", range(COUNT))
def test_no_step_reads_memory_after_a_write_that_places_allow(k: int) -> None:
    replay(f"{SEED}.{k}", k)


BROKEN: dict[str, dict[str, Callable[..., object]]] = {
    "uses": {"is_free": lambda _, place, call: getattr(place, "origin", "") == "new"},
    "changes": {"share": lambda *_: True},
    "what is kept": {"_keep": lambda self, place: self._use(place)},
    "literals": {"is_only_read": lambda *_: True},
}
"""Methods of places that do not know of something."""


@pytest.mark.parametrize("unknown", BROKEN)
def test_the_replay_refuses_memory_that_is_still_read(unknown: str) -> None:
    kind = type("Broken", (Places,), BROKEN[unknown])

    def run() -> None:
        for k in range(20):
            replay(f"refused.{k}", k, kind)

    with pytest.raises(AssertionError):
        run()


def test_places_are_shown_with_the_uses_of_memory() -> None:
    body = "a = R.exp(x)\n    t = (a, x)\n    b = R.add(t[0], x)\n    return b"
    mod = relax.transform.LegalizeOps()(module(f"def main(x: f32[4]):\n    {body}"))
    again = Replay(mod, Random(0))
    again.run(mod["main"])
    assert str(again.places).splitlines() == [
        "x: parameter 0 used 1 4",
        "a: new 1 used 4",
        "t: (new 1 used 4, parameter 0 used 1 4)",
        "gv: new 1 used 4",
        "b: new 2 used 5 kept 5",
    ]
    assert again.shared == 1
