"""Random programs of many workers compute what one computes."""

import math
import random
import re

import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import StructInfoError, TransformError
from relaxpy.relax import get_pipeline
from relaxpy.relax.distributed.transform import PropagateSharding
from tests.distributed.draw import drawn_program
from tests.distributed.team import Team


def compared(seed: int) -> str:
    """The communication of the program of a seed, or "" if its annotations cannot be followed."""
    whole, _, shapes = drawn_program(random.Random(seed), annotate=False)
    split, mesh, _ = drawn_program(random.Random(seed), annotate=True)
    rng = np.random.default_rng(seed)
    args = [rng.uniform(-1, 1, shape) for shape in shapes]
    expected = relaxpy.compile(whole, "reference")["main"](*args)
    try:
        placed = PropagateSharding()(split)["main"].body.body.struct_info
        program = relaxpy.compile(split, relax_pipeline=get_pipeline("distributed"))
    except TransformError:
        return ""
    except StructInfoError as error:
        if "has to be whole on every device" not in str(error):
            raise
        return ""
    count = math.prod(mesh)
    operands = [[arg, *[np.zeros_like(arg)] * (count - 1)] for arg in args]
    results = Team(count).run(program["main"], *operands)
    for place, found in zip(np.ndindex(mesh), results, strict=True):
        own = expected
        for spec, number, parts in zip(placed.placement.dim_specs, place, mesh, strict=True):
            if spec.kind == "sharding":
                own = np.split(own, parts, spec.axis)[number]
        np.testing.assert_allclose(found, own, 1e-9, 1e-9, err_msg=f"seed {seed}, device {place}")
    return " ".join(re.findall(r"(?:ccl|dist)\.\w+", lowered(split).script()))


def lowered(mod: IRModule) -> IRModule:
    return get_pipeline("distributed")(mod)


def test_workers_compute_together_what_one_computes() -> None:
    done = [compared(seed) for seed in range(40)]
    assert sum(map(bool, done)) >= 20
    text = " ".join(done)
    for name in ("broadcast_from_worker0", "allreduce", "allgather", "replica_to_shard"):
        assert name in text, f"no program has {name}"
