"""The examples of passes in examples/passes: the module `Before` becomes the module `After`."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.ir import assert_structural_equal, structural_hash
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.pass_infra.functional import FunctionalPass
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax import backend, training, transform
from relaxpy.relax.distributed import transform as distributed
from relaxpy.tir.transform import UseAssumeToReduceBranches
from relaxpy.transform import bisect

PASSES = {
    name: cls
    for module in (transform, training, backend, distributed)
    for name in dir(module)
    if isinstance(cls := getattr(module, name), type)
    and issubclass(cls, Pass)
    and not issubclass(cls, FunctionalPass)
    if not cls.__doc__.startswith("A no-op:")
} | {"UseAssumeToReduceBranches": UseAssumeToReduceBranches}
EXAMPLES = Path(__file__).parents[3] / "examples" / "passes"
#: Passes that a second run changes again, with the reason.
NOT_IDEMPOTENT: dict[str, str] = {
    "VMShapeLower": "each run allocates memory for dimensions",
    "AppendLoss": "each run adds a function",
    "BindParams": "the parameter is gone",
    "BindSymbolicVars": "the shape variable is gone",
    "BundleModelParams": "each run makes a tuple",
    "Gradient": "each run adds an adjoint",
    "SetupTrainer": "each run adds functions",
    "ToMixedPrecision": "sums that the first run left in float32 are stored in float16",
}

#: Passes that add what no text says, with the reason.
WITHOUT_SOURCE: dict[str, str] = {
    "AppendLoss": "a loss is built without a text",
    "SetupTrainer": "an optimiser is built without a text",
}


def run_example(cls: type[Pass]) -> tuple[IRModule, IRModule, Pass]:
    """The modules and the pass of an example."""
    names: dict[str, Any] = runpy.run_path(str(EXAMPLES / f"{cls.__name__}.py"))
    assert type(names["step"]) is cls
    return names["Before"], names["After"], names["step"]


def test_every_pass_has_an_example() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == {
        cls.__name__ for cls in PASSES.values()
    }


#: Passes whose example computes something else, with the reason.
OTHER_VALUES: dict[str, str] = {
    "DecomposeOpsForInference": "it uses the moving moments even in training",
    "LowerAllocTensor": "elements of new tensors are undefined",
}
#: Arguments in place of random ones: variances are positive.
ARGUMENTS: dict[str, tuple[np.ndarray, ...]] = {  # type: ignore[type-arg]
    "FoldBatchnormToConv2D": tuple(
        np.linspace(0.5, 2, np.prod(shape)).reshape(shape).astype("float32")
        for shape in ((2, 3, 3, 3), (4, 3, 3, 3), *[(4,)] * 4)
    )
}


@pytest.fixture(autouse=True)
def options() -> Iterator[None]:
    """The options without which a pass does nothing."""
    with PassContext(config={"relax.backend.use_cuda_graph": True}):
        yield


@pytest.mark.filterwarnings("ignore:QuantizeWeights found no weight")  # it has packed them
@pytest.mark.parametrize("name", PASSES)
def test_the_example_of_a_pass_is_what_it_does(name: str) -> None:
    before, after, step = run_example(PASSES[name])
    hash_before = structural_hash(before)
    found = step(before)
    assert_structural_equal(found, after)
    assert structural_hash(before) == hash_before
    assert found is not before
    assert check_well_formed(found, normal_form=True) == []
    if name not in NOT_IDEMPOTENT:
        assert step(found) is found


@pytest.mark.rule("OPT-1")
@pytest.mark.parametrize(
    "name", sorted({cls.__name__ for cls in PASSES.values()} - OTHER_VALUES.keys())
)
def test_a_pass_that_changes_its_example_keeps_the_values(name: str) -> None:
    before, _, step = run_example(PASSES[name])
    assert bisect(before, [step], *ARGUMENTS.get(name, ())) is None


def without_span(mod: IRModule) -> list[Node]:
    """The bindings and calls of Relax functions that have no span."""
    return [
        node
        for func in mod.functions.values()
        if isinstance(func, rx.Function)
        for node in walk(func)
        if isinstance(node, (rx.VarBinding, rx.MatchCast, rx.Call)) and node.span is None
    ]


@pytest.mark.parametrize("name", sorted(PASSES.keys() - WITHOUT_SOURCE.keys()))
def test_bindings_and_calls_have_spans_after_a_pass(name: str) -> None:
    before, _, step = run_example(PASSES[name])
    assert without_span(before) or not without_span(step(before))
