"""Gradients of generated programs are what small differences say, with checkpoints and without.

Each day other programs are drawn; `RELAXPY_FUZZ_SEED` and `RELAXPY_FUZZ_COUNT` choose them.
"""

import itertools
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import RelaxpyWarning
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.nodes import Var
from relaxpy.relax.transform import Gradient
from tests.fuzz.differentiable import Program, draw, write
from tests.fuzz.seed import COUNT, SEED

NUMBERS = itertools.count()


def module_of(text: str, folder: Path) -> IRModule:
    path = folder / f"program_{next(NUMBERS)}.py"
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), names)
    module = names["Module"]
    assert isinstance(module, IRModule)
    return module


def leaves(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, tuple):
        for field in value:
            yield from leaves(field)
    else:
        yield np.asarray(value)


def moved(value: Any, direction: Any, step: float) -> Any:
    if isinstance(value, tuple):
        return tuple(moved(v, d, step) for v, d in zip(value, direction, strict=True))
    return value + step * direction


def variables(mod: IRModule) -> dict[str, Var]:
    main = mod["main"]
    assert isinstance(main, relaxpy.relax.Function)
    bound = [b.var for block in main.body.blocks for b in block.bindings if b.var is not None]
    return {var.name_hint: var for var in (*main.params, *bound)}


def adjoint_of(program: Program, folder: Path, *, checkpoints: bool) -> IRModule:
    mod = module_of(program.text(checkpoints=checkpoints), folder)
    known = variables(mod)
    required = None if program.required is None else [known[name] for name in program.required]
    adjoint = Gradient("main", required, program.target)(mod)
    assert check_well_formed(adjoint, normal_form=True) == []
    return adjoint


def same(found: Any, expected: Any) -> None:
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def compare(program: Program, seed: str, folder: Path) -> int:
    """Compare the gradients; the number of directions in which differences say something."""
    compared = 0
    values = program.arguments(seed)
    inputs = tuple(values.values())
    adjoint = adjoint_of(program, folder, checkpoints=True)
    compiled = relaxpy.compile(adjoint)
    main = compiled["main"]
    result, gradients = compiled["main_adjoint"](*inputs)
    same(result, main(*inputs))
    same(relaxpy.compile(adjoint, target="reference")["main_adjoint"](*inputs), (result, gradients))
    plain = relaxpy.compile(adjoint_of(program, folder, checkpoints=False))["main_adjoint"]
    same(plain(*inputs), (result, gradients))

    numbers = np.random.default_rng(random.Random(seed).getrandbits(64))
    names = program.required if program.required is not None else tuple(program.params)
    for name, gradient in zip(names, gradients, strict=True):
        function, given, at, value = main, inputs, 0, 0.0
        if name in program.params:
            at = list(program.params).index(name)
            value = inputs[at]
        elif isinstance(program.kinds[name], tuple):
            function = relaxpy.compile(module_of(program.text(added=name), folder))["main"]
            at, value = len(inputs), np.zeros(np.shape(gradient))
            given = (*inputs, value)
        else:
            continue
        for _ in range(3):
            direction = (
                draw(program.params[name][1], numbers)  # type: ignore[arg-type]
                if name in program.params
                else np.asarray(numbers.standard_normal(np.shape(gradient)))
            )
            slopes = []
            for step in (1e-5, 2e-6):
                above, below = (
                    function(*given[:at], moved(value, direction, by), *given[at + 1 :])
                    for by in (step, -step)
                )
                if isinstance(above, tuple):
                    above, below = above[program.target], below[program.target]
                slopes.append((float(above) - float(below)) / (2 * step))
            expected = slopes[0]
            if not np.isclose(*slopes, rtol=1e-5, atol=1e-7):
                continue  # too steep or too large for differences
            compared += 1
            products = zip(leaves(gradient), leaves(direction), strict=True)
            found = sum(float(np.sum(a * b)) for a, b in products)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=name)
    return compared


def test_gradients_are_small_differences(tmp_path: Path) -> None:
    compared = 0
    for k in range(-(-COUNT // 10)):
        seed = f"{SEED}.{k}"
        program = write(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RelaxpyWarning)
                compared += compare(program, seed, tmp_path)
        except BaseException as error:
            error.add_note(f"seed {seed}\n{program.text()}\nrequired: {program.required}")
            raise
    assert compared
