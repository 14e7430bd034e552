"""Random graph programs beside their twins in NumPy: `python -m tests.fuzz.graphs COUNT [SEED]`.

It also runs half as many sequences of passes (`pass_sequences.py`).

A program is written twice at once, as Relax and as plain Python over `tests.fuzz.twin`, which share
no code. Each runs several times. What is varied, each by itself:

- functions: `main`, which may have one statement only, private ones, and ones outside the module,
  which call each other in order, two that call each other, and local ones that call themselves;
  pure or impure; of one to three parameters and up to two shape variables;
- steps (`graph_steps.py`): operators of every family, in any order, with an operand twice or
  different ones; tuples, casts, conditionals and closures, two deep; kernels, also such that
  overwrite an operand or a part of it; products with weights of few bits, most of them of
  activations of three dimensions; effects;
- results: any of the tensors, and a tuple;
- datatypes of parameters and conversions between them; Boolean, integer and floating operands of
  both signs, whose sums are exact in any order; no infinities and no NaN;
- arguments: other sizes in each run, 0 among them; contiguous, with gaps, reversed, transposed in
  memory; the same array twice; read-only ones;
- a tenth of them are compared by `check_targets`, and again where a target computes an element, a
  NaN, another shape or an error that the oracle does not: that has to be refused.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.exec.machine.fast_paths import FAST_PATHS, FastPath
from tests.fuzz import twin
from tests.fuzz.graph_body import LARGEST, Body, Source, Tensor, extent_of, sinfo_text
from tests.fuzz.graph_kernels import KERNELS
from tests.fuzz.graph_steps import fill
from tests.fuzz.progress import command_line, noted, report
from tests.fuzz.twin import agree, kind


def without(path: FastPath, module: IRModule) -> relaxpy.Executable:
    """The module compiled for the native target without a fast path."""
    with path.off():
        return relaxpy.compile(module, "native")


WAYS: dict[str, Callable[[IRModule], relaxpy.Executable]] = {
    "numpy": partial(relaxpy.compile, target="numpy"),
    "numpy without passes": partial(relaxpy.compile, target="numpy", relax_pipeline=None),
    "native": partial(relaxpy.compile, target="native"),
    "reference": partial(relaxpy.compile, target="reference"),
    **{f"native without {path.name}": partial(without, path) for path in FAST_PATHS},
}
"""How a program is compiled; without passes, operators are legalised when they are called."""
HEADER = "from relaxpy.script import ir as I, relax as R, tir as T\n\n"


@dataclass(frozen=True)
class Program:
    """Both texts, and the parameters of `main`, the last `fields` of which are in a tuple."""

    relax: str
    python: str
    params: tuple[Tensor, ...]
    symbols: tuple[str, ...]
    fields: int = 0

    def passed(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of `main` for these values of all parameters."""
        first = len(values) - self.fields
        return (*values[:first], tuple(values[first:])) if self.fields else tuple(values)


def _function(
    source: Source,
    symbols: tuple[str, ...],
    count: int,
    *,
    impure: bool,
    alone: bool = False,
    private: bool = False,
) -> tuple[tuple[Tensor, ...], Body]:
    params = [source.parameter(symbols) for _ in range(source.rng.randint(1, 3))]
    # Each symbol is bound by a parameter of its own.
    extent = extent_of("float32")
    params += [Tensor(source.fresh("x"), "float32", (symbol, 2), *extent) for symbol in symbols]
    if not alone and not private:  # what other functions can be called with
        wanted = [p for _, listed, _ in source.callable for p in listed]
        size = source.rng.choice((*symbols, 2))
        params += [
            replace(
                p, name=source.fresh("x"), shape=tuple(size if s == "k" else s for s in p.shape)
            )
            for p in wanted
        ]
    body = Body(source, list(params), "    " if alone else "        ", impure, symbols, alone=alone)
    fill(body, count)
    return tuple(params), body


def write(seed: object, *, tuples: bool = False, differs: bool = False) -> Program:
    """The program of this seed; with `tuples`, some parameters may be in one.

    With `differs`, a result passes through a packed function that may change it.
    """
    rng = random.Random(str(seed))
    source = Source(rng)
    for k in range(rng.randint(0, 2)):
        symbols = ("k",) if rng.random() < 0.7 else ()
        alone = rng.random() < 0.5
        count, name = rng.randint(2, 8), f"g{k}"
        params, body = _function(
            source, symbols, count, impure=False, alone=alone, private=not alone
        )
        end = rng.choice(body.tensors)
        body.line(f"return {end.name}")
        _enter(source, name, params, body, private=not alone)
        source.callable.append((name if alone else f"cls.{name}", params, end))
    symbols = ("n", "m")[: rng.randint(0, 2)]
    impure = rng.random() < 0.5
    source.weights = []
    count = 1 if rng.random() < 0.15 else rng.randint(4, 24)
    params, body = _function(source, symbols, count, impure=impure)
    params += tuple(source.weights)
    kept = [t for t in body.tensors if rng.random() < 0.8] or body.tensors[-1:]
    results = [t.name for t in kept]
    results += [name for name, _ in body.tuples[:1]]
    if differs:
        changed = random.Random(f"change {seed}").choice(kept)
        results.append("changed")
        body.impure = True
        sinfo = sinfo_text(changed.dtype, changed.shape)
        body.line(
            f'changed = R.call_packed("tests.fuzz.change", {changed.name}, sinfo_args={sinfo})',
            f"changed = {changed.name}",
        )
    body.line(f"return ({', '.join(results)},)")
    of_tuples = random.Random(f"tuples {seed}")
    fields = of_tuples.randint(1, len(params)) if tuples and of_tuples.random() < 0.5 else 0
    _enter(source, "main", params, body, private=False, fields=fields)
    texts = [KERNELS[k] for k in sorted(source.kernels)]
    kernels = "".join(map(_indented, [*texts, *source.decoders.values()]))
    helpers = "\n".join(text for text, _ in (*source.helpers, *source.decorated))
    relax = HEADER + helpers + "\n@I.ir_module\nclass Module:\n" + kernels
    relax += "\n".join(text for text, _ in source.functions)
    python = "import numpy as np\nfrom tests.fuzz import twin as t\n"
    python += "\n".join(text for _, text in (*source.helpers, *source.decorated, *source.functions))
    return Program(relax, python, params, symbols, fields)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines()) + "\n"


def _enter(
    source: Source,
    name: str,
    params: tuple[Tensor, ...],
    body: Body,
    *,
    private: bool,
    fields: int = 0,
) -> None:
    sinfos = [sinfo_text(p.dtype, p.shape, binds=True) for p in params]
    first = len(params) - fields
    pairs = [(p.name, sinfo) for p, sinfo in zip(params, sinfos, strict=True)][:first]
    if fields:
        pairs.append(("fields", f"R.Tuple({', '.join(sinfos[first:])})"))
    listed = ", ".join(f"{name}: {sinfo}" for name, sinfo in pairs)
    options = [*(["private=True"] if private else []), *(["pure=False"] if body.impure else [])]
    names = ", ".join(name for name, _ in pairs)
    outer = body.indent[:-4]
    relax = [outer + (f"@R.function({', '.join(options)})" if options else "@R.function")]
    relax.append(f"{outer}def {name}({listed}):")
    if not body.alone:
        relax.append(f"{body.indent}cls = Module")
    python = [f"def {name}({names}):"]
    opened = [f"{body.indent}{p.name} = fields[{n}]" for n, p in enumerate(params[first:])]
    python += opened
    for symbol in body.symbols:
        relax.append(f"{body.indent}{symbol} = T.int64()")
        bound = next(p for p in params if p.shape == (symbol, 2))
        python.append(f"{body.indent}{symbol} = {bound.name}.shape[0]")
    relax += opened
    (source.decorated if body.alone else source.functions).append(
        ("\n".join([*relax, *body.relax, ""]), "\n".join([*python, *body.python, ""]))
    )


def arguments(program: Program, seed: object) -> list[np.ndarray[Any, Any]]:
    """Arrays for `main`, some of them views with strides, read-only, or the same as another."""
    rng = np.random.default_rng(_number(seed))
    sizes = {s: int(rng.integers(0, LARGEST + 1)) for s in program.symbols}
    found: list[np.ndarray[Any, Any]] = []
    for param in program.params:
        shape = tuple(s if isinstance(s, int) else sizes[s] for s in param.shape)
        steps = int(rng.integers(1, 3))
        wide = (*shape[:-1], shape[-1] * steps) if shape else ()
        if param.dtype == "bool":
            array = rng.integers(0, 2, wide).astype("bool")
        elif param.dtype == "uint32":  # packed weights
            array = rng.integers(0, 1 << 32, wide, "uint32")
        elif param.is_float:
            array = (rng.integers(-12, 13, wide) / 4).astype(kind(param.dtype))
        else:
            info = np.iinfo(param.dtype)
            array = rng.integers(max(-127, info.min), min(127, info.max), wide).astype(param.dtype)
        array = np.asarray(array)
        if shape:
            array = array[..., ::steps]
            if rng.integers(0, 3) == 0:
                array = array[::-1]
            if len(shape) == 2 and rng.integers(0, 3) == 0:
                array = array.T.copy().T
        alike = [a for a in found if a.shape == array.shape and a.dtype == array.dtype]
        if alike and rng.integers(0, 3) == 0:
            array = alike[int(rng.integers(len(alike)))]
        elif rng.integers(0, 4) == 0:
            array.flags.writeable = False
        found.append(array)
    return found


def _number(seed: object) -> int:
    return int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:8])


relaxpy.register_func("tests.fuzz.record", lambda x: twin.RECORD.append(x) or x, override=True)


DIFFERENCES = ("element", "NaN", "shape", "error")
"""The ways in which a target may differ from the oracle."""


@dataclass
class _Change:
    """Changes the second tensor: the oracle computes first, then a target, then what may differ."""

    difference: str = ""
    calls: int = 0
    done: bool = False

    def __call__(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.calls += 1
        if self.calls != 2:
            return x
        changed = np.array(x)
        match self.difference:
            # The checker accepts what rounding may decide, as Booleans of sums that are nearly
            # equal, and the index of the least of them: the change is to none of the indices.
            case "element" if x.size and x.dtype.kind in "iu":
                changed.flat[-1] ^= 1 << (8 * x.itemsize - 2)
            case "element" if x.size and x.dtype.kind != "b":
                changed.flat[-1] += 4 + 4 * np.abs(x.astype("float64")).max()
            case "NaN" if x.size and x.dtype.kind not in "iub":
                changed.flat[-1] = np.nan
            case "shape":
                changed = changed[None]
            case "error":
                raise ValueError("the target fails")
            case _:
                return x
        self.done = True
        return changed


def check_differences(program: Program, seed: object, folder: Path) -> list[str]:
    """Compare the targets of a program that `differs`, and return the differences there were.

    Errors:
        AssertionError: equal targets are refused, or one that differs is not.
    """
    module = _module(program, seed, folder)
    args = program.passed(arguments(program, seed))
    rng, found = random.Random(f"difference {seed}"), []
    target = rng.choice(("native", "numpy"))
    for difference in ("", rng.choice(DIFFERENCES)):
        change = _Change(difference)
        relaxpy.register_func("tests.fuzz.change", change, override=True)
        refusal = ""
        try:
            relaxpy.testing.check_targets(module, *args, targets=[target])
        except AssertionError as error:
            refusal = str(error)
        differs = change.done or difference == "error"
        about = f"{target}, {difference or 'no'} difference: {refusal}"
        assert refusal.startswith(f"main on {target}: ") if differs else not refusal, about
        found += [difference] if differs else []
    return found


def run(
    program: Program,
    seed: object,
    folder: Path,
    ways: Sequence[str] = ("numpy", "numpy without passes"),
    transform: Callable[[IRModule], IRModule] = lambda mod: mod,
) -> None:
    """Run the program, after `transform`, beside its twin for some arguments.

    Errors:
        AssertionError: they differ.
    """
    module = _module(program, seed, folder)
    other: dict[str, Any] = {}
    exec(compile(program.python, f"<twin {seed}>", "exec"), other)
    again = relaxpy.script.from_source(module.script(show_meta=True))
    relaxpy.ir.assert_structural_equal(again, module)
    module = transform(module)
    ready = [(name, WAYS[name](module)) for name in ways]
    for k in range(3):
        arrays = arguments(program, f"{seed}.{k}")
        with np.errstate(all="ignore"):
            twin.RECORD.clear()
            expected = other["main"](*program.passed([*map(twin.enter, arrays)]))
            effects = list(twin.RECORD)
            for target, executable in ready:
                twin.RECORD.clear()
                found = executable["main"](*program.passed(arrays))
                agree(found, expected, f"the result of {target}")
                agree(list(twin.RECORD), effects, f"the effects of {target}")


def _module(program: Program, seed: object, folder: Path) -> IRModule:
    """The module, which Python has decorated."""
    path = folder / f"program_{_number(seed)}.py"
    path.write_text(program.relax, encoding="utf-8")
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(program.relax, str(path), "exec"), names)
    found = names["Module"]
    assert isinstance(found, IRModule)
    return found


def check(name: str, number: int) -> None:
    """Compare the program of a seed with its twin, compiled in one way, which is drawn.

    Errors:
        AssertionError: it does not do what its twin does.
    """
    program = write(name, tuples=True, differs=number % 10 == 9)
    with tempfile.TemporaryDirectory() as folder, noted(program.relax, program.python):
        if number % 10 == 9:
            check_differences(program, name, Path(folder))
        else:
            run(program, name, Path(folder), [random.Random(f"way {name}").choice([*WAYS])])


def is_decorated(program: Program) -> bool:
    """Whether functions outside of the module take part, which only Python reads."""
    return not program.relax.startswith(f"{HEADER}\n@I.ir_module")


def main(count: int, seed: str) -> int:
    """Report failures of `count` programs, and half as many pass sequences; 1 if there are any."""
    from tests.fuzz import pass_sequences

    bad = report("graphs", count, seed, check)
    return report("sequences of passes", count // 2, seed, pass_sequences.check) or bad


if __name__ == "__main__":
    command_line(main)
