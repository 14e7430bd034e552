"""Random programs of many workers compute what one computes.

`RELAXPY_FUZZ_COUNT` draws more of them, by `RELAXPY_FUZZ_SEED`; 30 are always the same.
"""

import math
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.distributed import communication, own_parts, use
from relaxpy.errors import MisuseError, TransformError
from relaxpy.relax import get_pipeline
from relaxpy.relax.distributed.transform import PropagateSharding
from relaxpy.relax.frontend.weights import open_weights, save_weights
from relaxpy.script import ir as I, relax as R
from relaxpy.transform import explain
from tests.fuzz.seed import COUNT, SEED
from tests.plugins.distributed.draw import drawn_program
from tests.plugins.distributed.team import Member, Team


def compared(seed: int | str) -> str:
    """The communication of the program of a seed, or "" if its annotations cannot be followed."""
    whole, _, shapes = drawn_program(random.Random(seed), annotate=False)
    split, mesh, _ = drawn_program(random.Random(seed), annotate=True)
    rng = np.random.default_rng(random.Random(seed).getrandbits(64))
    args = [rng.uniform(-1, 1, shape) for shape in shapes]
    expected = relaxpy.compile(whole, "reference")["main"](*args)
    try:
        placed = PropagateSharding()(split)["main"].body.body.struct_info
        program = relaxpy.compile(split, relax_pipeline=get_pipeline("distributed"))
    except TransformError:
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
    done = [compared(seed) for seed in (*range(15), *(f"{SEED} {k}" for k in range(15, COUNT)))]
    assert sum(map(bool, done)) >= 0.7 * len(done)
    text = " ".join(done)
    for name in ("broadcast_from_worker0", "allreduce", "allgather", "replica_to_shard"):
        assert name in text, f"no program has {name}"


@I.ir_module
class Mlp:
    I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

    @R.function
    def main(
        x: R.Tensor((8, 16), "float32"),
        up: R.Tensor((16, 32), "float32"),
        down: R.Tensor((32, 16), "float32"),
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            rows = R.dist.annotate_sharding(x, "mesh[0]", "S[0], R")
            columns = R.dist.annotate_sharding(up, "mesh[0]", "R, S[1]")
            y = R.matmul(R.nn.silu(R.matmul(rows, columns)), down)
            R.output(y)
        return y


@pytest.mark.parametrize("kind", ["list", "names", "file"])
def test_each_worker_has_its_part_of_the_weights(kind: str, tmp_path: Path) -> None:
    pipeline = get_pipeline("distributed", own_params=True)
    program = relaxpy.compile(Mlp, relax_pipeline=pipeline)["main"]
    rng = np.random.default_rng(0)
    x, up, down = (rng.standard_normal(s).astype("float16") for s in ((8, 16), (16, 32), (32, 16)))
    path = tmp_path / "weights.safetensors"
    save_weights(path, {"down": down, "up": up})
    values = {"list": [up, down], "names": {"up": up, "down": down}, "file": path}[kind]

    def work(x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        own = own_parts(Mlp, values)
        return program(x, *own), own

    inputs = [x.astype("float32"), *[np.zeros((8, 16), "float32")] * 3]
    for rank, (found, (own_up, own_down)) in enumerate(Team(4).run(work, inputs)):
        hidden = x.astype("float64") @ up
        expected = (hidden / (1 + np.exp(-hidden))) @ down
        np.testing.assert_allclose(found, np.split(expected, 2)[rank // 2], rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(own_up, np.split(up, 2, 1)[rank % 2])
        np.testing.assert_array_equal(own_down, np.split(down, 2, 0)[rank % 2])


@pytest.mark.skipif(sys.platform != "linux", reason="it counts what /proc says")
def test_a_worker_reads_its_part_of_a_file(tmp_path: Path) -> None:
    @I.ir_module
    class Wide:
        I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

        @R.function
        def main(
            x: R.Tensor((1, 2), "float32"),
            rows: R.Tensor((2, 4194304), "float32"),
            columns: R.Tensor((4194304, 2), "float32"),
        ):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                a = R.dist.annotate_sharding(rows, "mesh[0]", "S[0], S[1]")
                b = R.dist.annotate_sharding(columns, "mesh[0]", "R, S[0]")
                y = R.matmul(R.matmul(x, a), b)
                R.output(y)
            return y

    path, size = tmp_path / "weights.safetensors", 2 * 4194304 * 4
    numbers = np.arange(2 * 4194304, dtype="float32")
    save_weights(path, {"rows": numbers.reshape(2, -1), "columns": numbers.reshape(-1, 2)})
    mapped = dict(open_weights(path))

    def resident() -> int:
        """The bytes of the file that this process has read."""
        text = Path("/proc/self/smaps").read_text(encoding="utf-8")
        counts = re.findall(rf"{re.escape(str(path))}\n(?:\w+: .*\n)*?Rss: +(\d+) kB", text)
        return 1024 * sum(map(int, counts))

    assert resident() < 0.1 * size
    with use(Member(Team(4), 3)):
        rows, columns = own_parts(Wide, mapped)
    np.testing.assert_array_equal(rows, numbers.reshape(2, 1, 2, -1)[1, :, 1])
    np.testing.assert_array_equal(columns, numbers.reshape(2, -1, 2)[1])
    assert np.shares_memory(columns, mapped["columns"])
    assert 0.75 * size <= resident() < 0.9 * size  # pages are read with their neighbours


def test_weights_that_do_not_fit() -> None:
    for change, found in (
        ({"down": np.zeros((16, 32))}, r"weight down is .*, found float64 of shape \(16, 32\)"),
        ({"up": np.zeros(16)}, r"weight up is .*, found float64 of shape \(16,\)"),
        ({"up": np.zeros((16, 32), "int32")}, "weight up is .*, found int32"),
    ):
        whole = {"up": np.zeros((16, 32)), "down": np.zeros((32, 16)), **change}
        with pytest.raises(MisuseError, match=found), use(Member(Team(4), 1)):
            own_parts(Mlp, whole)
    with pytest.raises(FileNotFoundError):
        own_parts(Mlp, "missing.safetensors")
    with pytest.raises(MisuseError, match=r"the mesh .* has 4 workers, there are 1"):
        own_parts(Mlp, [np.zeros((16, 32)), np.zeros((32, 16))])
    with pytest.raises(MisuseError, match=r"main takes 2 tensors of weights, found 1"):
        own_parts(Mlp, [np.zeros((16, 32))])
    with pytest.raises(MisuseError, match=r"there is none for \['down'\]"):
        own_parts(Mlp, {"up": np.zeros((16, 32))})
    with pytest.raises(MisuseError, match="no Relax function 'other'"):
        own_parts(Mlp, [], "other")
    bare = Mlp.clone()
    bare["main"] = bare["main"].without_attr("num_input")
    with pytest.raises(TransformError, match="num_input says how many parameters are no weights"):
        get_pipeline("distributed", own_params=True)(bare)


def test_what_workers_send_is_known_before() -> None:
    mod = get_pipeline("distributed", own_params=True)(Mlp)
    found = communication(mod, 4)
    assert [(call.op, call.workers) for call in found.calls] == [
        ("ccl.broadcast_from_worker0", 4),
        ("ccl.allreduce", 2),
    ]
    # The inputs go to all, and half of the rows of the result are summed by two workers.
    assert found.sent == 2 * (8 * 16 * 4) * 3 // 4 + 2 * (4 * 16 * 4) * 1 // 2
    assert found.seconds(1e-3, 1e6) == pytest.approx((2 * 2 + 2 * 1) * 1e-3 + found.sent / 1e6)
    for latency, bandwidth in ((-1, 1), (0, 0), (float("nan"), 1)):
        with pytest.raises(MisuseError, match="latency is at least 0"):
            found.seconds(latency, bandwidth)
    assert "ccl.allreduce" in str(found)
    assert str(found.sent) in str(found).splitlines()[-1]
    assert str(found).splitlines()[-1].startswith("2 calls ")
    assert communication(mod) == found
    explained = explain(Mlp, get_pipeline("distributed", own_params=True))
    assert explained.communication == {"main": found}
    title = "communication of main, by the busiest of 4 workers:"
    assert str(explained).endswith(f"\n\n{title}\n{found}")
    assert title in explained._repr_html_()
    assert "communication" not in str(explain(Mlp, "zero"))

    @I.ir_module
    class Symbolic:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            y = R.ccl.allgather(x, 3)
            return R.ccl.allreduce(y)

    n = Symbolic["main"].params[0].struct_info.shape[0]
    sent = communication(Symbolic, 3).sent
    assert relaxpy.arith.Analyzer().can_prove_equal(sent, n * 96)
    assert communication(Symbolic).workers == 3

    @I.ir_module
    class Unknown:
        @R.function
        def main(x: R.Tensor(dtype="float32")):
            return R.ccl.allreduce(x)

    assert communication(Unknown, 3).sent is None
    assert communication(Unknown).workers == 1
    assert str(communication(Unknown, 3)).count("unknown") == 2
    for unknown in (Symbolic, Unknown):
        with pytest.raises(MisuseError, match="bytes, which is not a number"):
            communication(unknown, 3).seconds(0, 1)
    with pytest.raises(MisuseError, match="no Relax function 'other'"):
        communication(Symbolic, 3, "other")
