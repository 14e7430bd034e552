"""Whose memory values are: random functions run again with memory shared as their places allow."""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from relaxpy import IRModule, relax
from relaxpy.exec.api.lowered import dynamic_programs
from relaxpy.exec.program.lower.known import allocation_of, is_release, is_reshape
from relaxpy.exec.program.lower.places import Places
from relaxpy.exec.program.lower.python_module import ModuleLowering, NumpyBackend
from relaxpy.exec.runtime.checks import output_sinfos
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from tests.exec.program.steps import write
from tests.fuzz import overwritten
from tests.fuzz.seed import COUNT, SEED
from tests.ir.relax.texts import module


class Tensor:
    """A tensor: its contents in memory of its own, and those where places put it, in lists."""

    def __init__(self, contents: object = None) -> None:
        self.alone, self.shared = [contents], [contents]

    def read(self) -> object:
        assert self.alone == self.shared
        return self.alone[0]

    def write(self, contents: object) -> None:
        self.alone[0] = self.shared[0] = contents


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for field in value:
            yield from tensors(field)


def filled(sinfo: rx.StructInfo | None, tensor: Callable[[], Tensor]) -> Any:
    """A value of this struct info."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return tuple(filled(field, tensor) for field in sinfo.fields)
    return tensor()


class Replay:
    """Runs functions of a module, whose packed functions keep, change and return what they get.

    Every operand has the contents that it has without shared memory, and so has all that is kept.
    """

    def __init__(self, mod: IRModule, random: Random, kind: type[Places] = Places) -> None:
        programs = dynamic_programs(NumpyBackend)
        self.lowering = ModuleLowering(mod, NumpyBackend(), programs, is_instrumented=False)
        self.random, self.kind = random, kind
        self.number, self.count, self.depth = count(), 0, 0
        self.kept: list[Tensor] = []
        self.literals: dict[rx.Constant, list[object]] = {}
        self.decisions: dict[tuple[rx.Call, rx.Expr], bool] = {}

    def run(self, func: rx.Function) -> None:
        self.places = self.kind(func, self.lowering.kernel_of)
        self.scope: dict[rx.Var, Any] = {}
        for _ in range(3):
            args = [filled(param.struct_info, self.new) for param in func.params]
            self.kept += tensors(self.call_function(func, args))
        for tensor in self.kept:
            tensor.read()

    def new(self) -> Tensor:
        return Tensor(next(self.number))

    def call_function(self, func: rx.Function, args: list[Any]) -> Any:
        outer, self.scope = self.scope, {**self.scope, **dict(zip(func.params, args, strict=True))}
        self.depth += 1
        result = self.value(func.body)
        self.depth -= 1
        self.scope = outer
        return result

    def value(self, expr: Any) -> Any:
        match expr:
            case rx.Var():
                return self.scope.get(expr)
            case rx.Constant():
                tensor = Tensor(id(expr))
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
        if isinstance(name, Op) and operands and self.lowering.kernel_of(operands[0]) is not None:
            name, whole = call.args[:2]
            numbers = range(len(whole.struct_info.fields))
            operands = getattr(whole, "fields", [rx.TupleGetItem(whole, n) for n in numbers])
        callee = self.lowering.kernel_of(name) if isinstance(name, rx.GlobalVar) else None
        is_copy = callee is not None and len(operands) == 1 and self.lowering.is_reshape(callee)
        values = [*map(self.value, operands)]
        if is_copy or is_reshape(call):
            copy = Tensor(values[0].read())
            if self.decide(call, operands[0], is_copy=True):
                copy.shared = values[0].shared
            return copy
        if callee is not None:
            return self.kernel(call, operands, values, callee.written)
        if is_release(call) or allocation_of(call) is not None:
            return None if is_release(call) else self.new()
        func = self.value(call.op) if isinstance(call.op, rx.Var) else None
        if isinstance(func, rx.Function) and self.depth < 8:
            return self.call_function(func, values)
        return self.packed(values, call.struct_info)

    def decide(self, call: rx.Call, operand: rx.Expr, *, is_copy: bool = False) -> bool:
        """Whether the result may have the memory of an operand, as is asked once."""
        if (call, operand) not in self.decisions:
            place = self.places.of(operand)
            is_free = self.places.is_free(place, call)
            shares = is_free or (is_copy and self.places.share(place, call))
            self.decisions[call, operand] = shares
            self.count += shares
        return self.decisions[call, operand]

    def kernel(self, call: rx.Call, operands: Any, values: list[Any], written: Any) -> Any:
        contents = [tensor.read() for tensor in tensors(tuple(values))]
        free = [v for o, v in zip(operands, values, strict=False) if self.decide(call, o)]
        sinfos = output_sinfos(call) if call.sinfo_args else ()
        results = []
        for index in call.attrs.get("inplace_indices", [-1] * len(sinfos)):
            results.append(values[index] if index >= 0 else Tensor())
            if index < 0 and free:
                results[-1].shared = free.pop().shared
        changed = [values[n] for n in written if n < len(values)]
        for number, tensor in enumerate({id(t): t for t in (*changed, *results)}.values()):
            tensor.write((id(call), number, hash(tuple(contents))))
        is_tuple = bool(call.sinfo_args) and isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        return tuple(results) if is_tuple else (results or [None])[0]

    def packed(self, args: list[Any], sinfo: rx.StructInfo | None) -> Any:
        """What a packed function returns: new tensors and those it has had; it changes some."""
        self.kept += tensors(tuple(args))
        for tensor in self.kept:
            tensor.read()
            if self.random.random() < 0.1:
                tensor.write(next(self.number))
        return filled(sinfo, lambda: self.random.choice([*self.kept, self.new()]))


def replay(seed: str, k: int, kind: type[Places] = Places) -> None:
    """Replay the functions of random modules, whose operators are kernels."""
    texts = [write(Random(seed), symbolic=k % 2 == 0, aliases=k % 3 > 0)[0]]
    for text in texts + [overwritten.text(f"{seed}.{other}") for other in range(4)]:
        mod = relax.transform.LegalizeOps()(module(text))
        for run in range(2):
            again = Replay(mod, Random(f"{seed}.{run}"), kind)
            for func in mod.functions_by_name.values():
                if isinstance(func, rx.Function):
                    again.run(func)


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
    assert again.count == 1
