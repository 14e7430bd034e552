"""Generated programs do after each pass what they did before it, on a target or on both.

Each day other programs are drawn; `RELAXPY_FUZZ_SEED` and `RELAXPY_FUZZ_COUNT` choose them.
"""

import random
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from relaxpy import IRModule
from relaxpy.errors import RelaxpyWarning
from relaxpy.ir import structural_hash
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.relations import is_base_of
from tests.exec.passes import PASSES
from tests.fuzz.graphs import run, write
from tests.fuzz.seed import COUNT, SEED
from tests.rows import whole_tables

NOT_IDEMPOTENT: Mapping[str, str] = {
    "DataflowUseInplaceCalls": "as ConvertToDataflow(1)",
    "MergeCompositeFunctions": "as ConvertToDataflow(1)",
    "FuseOpsByPattern": "as ConvertToDataflow(1)",
    "FoldViews": "as ConvertToDataflow(1)",
    "RemoveUnusedKernelOutputs": "as ConvertToDataflow(1)",
    "FuseOps": "as ConvertToDataflow(1)",
    "AllocateWorkspace": "as ConvertToDataflow(1)",
    "CombineParallelMatmul": "as ConvertToDataflow(1)",
    "FuseTransposeMatmul": "as ConvertToDataflow(1)",
    "FuseOps(rule)": "as FuseTIR",
    "default": "as FuseTIR",
    "VMShapeLower": "each run allocates memory for dimensions",
    "default_build": "as VMShapeLower",
    "get_default_pipeline": "as VMShapeLower",
    "zero": "as FuseTIR",
    "SplitCallTIRByPattern": "as FuseTIR",
    "FuseTIR": "kernels that resulted from fusion are annotated, and can be fused again",
    "RewriteDataflowReshape": "the reshapes are legalised again",
    "CanonicalizeBindings": "constants that aliases kept are moved to their uses",
    "ConvertToDataflow": "as CanonicalizeBindings",
    "ConvertToDataflow(1)": "as CanonicalizeBindings",
}
"""Passes that a second run may change again, with the reason."""
PROGRAMS = -(-COUNT // 34)
TARGETS = ("numpy", "reference")


def checked(step: Callable[[IRModule], IRModule], before: IRModule, *, again: bool) -> IRModule:
    """The module after a pass, with what every pass promises checked."""
    hash_before = structural_hash(before)
    after = step(before)
    assert structural_hash(before) == hash_before, "the module itself was changed"
    if after is not before:
        assert check_well_formed(after, normal_form=True) == []
        assert results_of(before).keys() <= results_of(after).keys()
        for name, sinfo in results_of(before).items():
            assert is_base_of(sinfo, results_of(after)[name]), name
    if again:
        assert step(after) is after, "a second run changes the module again"
    return after


def results_of(mod: IRModule) -> dict[str, rx.StructInfo]:
    """The struct info of the results of public functions."""
    return {
        name: func.struct_info.ret
        for name, func in mod.functions_by_name.items()
        if isinstance(func, rx.Function)
        and "global_symbol" in func.attrs
        and isinstance(func.struct_info, rx.FuncStructInfo)
    }


@pytest.mark.rule("OPT-1", "OPT-2")
@pytest.mark.parametrize("name", PASSES)
def test_a_pass_changes_no_program(name: str, tmp_path: Path) -> None:
    for k in range(PROGRAMS):
        seed = f"{SEED}.{name}.{k}"
        step = partial(checked, PASSES[name], again=name not in NOT_IDEMPOTENT)
        preserve(seed, step, tmp_path)


def test_passes_in_any_order_change_no_program(tmp_path: Path) -> None:
    for k in range(2 * PROGRAMS):
        seed = f"{SEED}.{k}"
        rng = random.Random(seed)
        names = [rng.choice(sorted(PASSES)) for _ in range(6)]
        step = partial(checked, lambda mod, names=names: chain(names, mod), again=False)
        try:
            preserve(seed, step, tmp_path)
        except BaseException as error:
            error.add_note(f"passes {names}")
            raise


def chain(names: list[str], mod: IRModule) -> IRModule:
    for name in names:
        mod = PASSES[name](mod)
    return mod


def preserve(seed: str, step: Callable[[IRModule], IRModule], folder: Path) -> None:
    program = write(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RelaxpyWarning)
            targets = TARGETS if whole_tables() else (random.Random(seed).choice(TARGETS),)
            run(program, seed, folder, targets, step)
    except BaseException as error:
        error.add_note(f"seed {seed}\n{program.relax}\n{program.python}")
        raise
