"""Random Relay programs run the same evaluated and compiled; ill-typed twins are refused.

`RELAXPY_FUZZ_SEED` runs the programs of another day again, `RELAXPY_FUZZ_COUNT` more of them.
"""

import random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, relay
from relaxpy.errors import ParseError, RelayTypeError
from tests.fuzz.relay_texts import mutant, write
from tests.fuzz.seed import COUNT, SEED
from tests.relay_programs import prelude

PASSES = [
    relay.transform.DeadCodeElimination(inline_once=True),
    relay.transform.DefuseOps(),
    relay.transform.EliminateCommonSubexpr(),
    relay.transform.EtaExpand(expand_constructor=True, expand_global_var=True),
    relay.transform.FoldConstant(),
    relay.transform.FuseOps(2),
    relay.transform.LambdaLift(),
    relay.transform.PartialEvaluate(),
    relay.transform.ToANormalForm(),
    relay.transform.ToBasicBlockNormalForm(),
    relay.transform.ToGraphNormalForm(),
]
ARGS = (
    np.array([[1, -2, 3], [0, 2, -1]], "float32"),
    np.array([[2, 0, -3], [1, 1, 4]], "int32"),
    np.array(True),
    np.array(2, "float32"),
    (np.array(1, "int32"), np.array([1, 2, 3], "float32")),
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        pairs = isinstance(other, tuple) and len(one) == len(other)
        return pairs and all(map(same, one, other))
    return one.dtype == other.dtype and np.array_equal(one, other)


def evaluated(module: relay.IRModule, kind: str) -> Any:
    return relay.create_executor(kind, mod=module).evaluate()(*ARGS)


@pytest.mark.parametrize("k", range(-(-COUNT // 10)))
def test_translated_programs_return_what_the_evaluator_returns(k: int) -> None:
    """RLY-1, RLY-110: most numbers are small integers, so that all results are exact."""
    text = write(f"{SEED}.{k}")
    try:
        module = relay.parse(text, init_module=prelude())
        translated = relay.to_relax(module)
        assert relax.analysis.check_well_formed(translated) == []
        found = relaxpy.compile(translated)["main"](*ARGS)
        assert same(found, evaluated(module, "debug"))
    except Exception as error:
        error.add_note(f"seed {SEED}.{k}\n{text}")
        raise


@pytest.mark.parametrize("k", range(-(-COUNT // 20)))
def test_programs_with_data_types_run_the_same_in_all_executors(k: int) -> None:
    """RLY-34, RLY-107: what is not translated is evaluated."""
    text = write(f"{SEED}.{k}", with_data=True)
    try:
        module = relay.parse(text, init_module=prelude())
        assert same(evaluated(module, "vm"), evaluated(module, "debug"))
    except Exception as error:
        error.add_note(f"seed {SEED}.{k}\n{text}")
        raise


@pytest.mark.parametrize("k", range(-(-COUNT // 20)))
def test_passes_keep_the_values_of_random_programs(k: int) -> None:
    """RLY-106, RLY-108: three passes one after the other, from all that there are."""
    text = write(f"{SEED}.{k}", with_data=k % 2 == 0)
    chosen = random.Random(f"{SEED}.{k}").sample(PASSES, 3)
    try:
        module = relay.parse(text, init_module=prelude())
        result = module
        for step in chosen:
            result = step(result)
        assert str(result["main"].checked_type) == str(module["main"].checked_type)
        assert same(evaluated(result, "debug"), evaluated(module, "debug"))
    except Exception as error:
        error.add_note(f"seed {SEED}.{k}, {chosen}\n{text}")
        raise


@pytest.mark.parametrize("k", range(-(-COUNT // 10)))
def test_faults_are_refused(k: int) -> None:
    """RLY-23, RLY-94, RLY-95: each error has a rule and a position."""
    text, fault = mutant(f"{SEED}.{k}")
    try:
        relay.parse(text, init_module=prelude())
    except (RelayTypeError, ParseError) as error:
        diagnostics = error.diagnostics
    else:
        pytest.fail(f"accepted {fault} in\n{text}")
    for diagnostic in diagnostics:
        assert diagnostic.rule is not None, f"{diagnostic}\n{text}"
        assert diagnostic.span is not None, f"{diagnostic}\n{text}"


def test_programs_are_the_same_for_one_seed() -> None:
    assert write("a") == write("a")
    assert write("a") != write("b")
