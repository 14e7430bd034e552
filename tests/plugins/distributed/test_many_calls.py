"""Many calls on the workers of Dask and Ray: programs travel once, and nothing is lost."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.api import compile as compiling

EXAMPLES = Path(__file__).parents[3] / "examples" / "scaling"
ROWS, BATCH = 400, 10


@pytest.fixture(scope="module")
def examples() -> Iterator[None]:
    """The folder of the examples is found by this process, and by workers that it starts."""
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def client(examples: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("workers")
    options = {"dashboard_address": ":0", "local_directory": str(folder)}
    with distributed.Client(n_workers=2, threads_per_worker=1, **options) as found:
        yield found


def rows() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((ROWS, 64)).astype("float32")


def times_unpickled() -> tuple[int, int]:
    """How often this process has loaded an executable, and got one that it had."""
    info = compiling._unpickled.cache_info()
    return info.misses, info.hits


def times_travelled(client: Any, run: Callable[[], object]) -> set[tuple[int, int]]:
    """How often each worker of Dask has loaded an executable during `run`, and got it again."""
    before = client.run(times_unpickled)
    run()
    after = client.run(times_unpickled)
    return {(after[k][0] - misses, after[k][1] - hits) for k, (misses, hits) in before.items()}


def end_at(batch: np.ndarray, number: int, marker: Path) -> None:
    """End this process like a lost machine when it first has the batch of that number."""
    if (batch == rows()[number * BATCH : (number + 1) * BATCH]).all():
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_model_travels_once_to_each_worker_of_dask(client: Any, tmp_path: Path) -> None:
    import dask.array as da
    import score

    folder = tmp_path / "loaded"
    folder.mkdir()

    def load(block: np.ndarray) -> np.ndarray:
        (folder / str(hash(block.tobytes()))).touch()
        return block

    def count(block: np.ndarray) -> np.ndarray:
        loaded = len(list(folder.iterdir()))
        (folder / str(hash(block.tobytes()))).unlink()
        return np.full((len(block), 1), loaded)

    x, model = rows(), score.model()
    chunks = da.from_array(x, chunks=(BATCH, 64))

    def compare() -> None:
        found = client.compute(score.scores(client, chunks, model)).result()
        np.testing.assert_allclose(found, model["main"](x), rtol=1e-5)

    assert times_travelled(client, compare) == {(1, 0)}
    waiting = chunks.map_blocks(load).map_blocks(count, chunks=(BATCH, 1), dtype="int64")
    assert client.compute(waiting.max()).result() <= 4


def test_a_search_submits_trials_as_others_end(client: Any) -> None:
    import search

    taken = []

    def settings() -> Iterator[tuple[float, float, float]]:
        for k in range(12):
            taken.append(k)
            yield 0.02 * k, 0.5, 0.0

    found = {}

    def run() -> None:
        for setting, loss in search.search(client, settings()):
            found[setting] = loss
            assert len(taken) <= len(found) + 4

    # A worker loads the model once; while Dask copies it to all of them, one may get it again.
    assert times_travelled(client, run) <= {(1, 0), (1, 1)}
    model, data = search.model(), search.data()
    assert len(found) == 12
    for setting in list(found)[::4]:
        np.testing.assert_allclose(found[setting], search.trial(model, data, setting), rtol=1e-4)


def test_a_machine_travels_with_its_inputs(client: Any) -> None:
    import score

    vm = relaxpy.VirtualMachine(score.model())
    vm.set_input("main", rows())

    def run(vm: Any) -> Any:
        vm.invoke_stateful("main")
        return vm.get_outputs("main")

    found = client.submit(run, client.scatter(vm)).result()
    np.testing.assert_allclose(found, vm["main"](rows()), rtol=1e-5)


@pytest.mark.parametrize(("example", "lines"), [("score", 10), ("search", 3)])
def test_the_examples_run(example, lines, client, capsys) -> None:
    import_module(example).main(client)
    assert len(capsys.readouterr().out.splitlines()) == lines


def test_a_killed_worker_of_dask_loses_and_repeats_nothing(client: Any, tmp_path: Path) -> None:
    import dask.array as da
    import score

    marker, x, model = tmp_path / "killed", rows(), score.model()

    def load(block: np.ndarray) -> np.ndarray:
        end_at(block, 17, marker)
        return block

    before = client.run(os.getpid)
    chunks = da.from_array(x, chunks=(BATCH, 64)).map_blocks(load, dtype=x.dtype, meta=x[:0])
    found = score.scores(client, chunks, model)
    classes, total = found[:, 0].astype("int64"), found[:, 1].sum()
    counted, summed = client.gather(client.compute([da.bincount(classes, minlength=10), total]))
    expected = model["main"](x)
    np.testing.assert_array_equal(counted, np.bincount(expected[:, 0].astype(int), minlength=10))
    np.testing.assert_allclose(summed, expected[:, 1].sum(), rtol=1e-5)
    assert marker.exists()
    assert client.run(os.getpid) != before


@pytest.fixture(scope="module")
def ray(examples: None) -> Iterator[Any]:
    found = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    root = str(Path(relaxpy.__file__).parents[1])
    path = os.pathsep.join((str(EXAMPLES), root))
    found.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield found
    found.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, about itself
def test_a_killed_worker_of_ray_loses_and_repeats_nothing(ray: Any, tmp_path: Path) -> None:
    import score
    import score_ray

    marker, x, model = tmp_path / "killed", rows(), score.model()

    def load(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        end_at(batch["data"], 17, marker)
        return batch

    data = ray.data.from_numpy(np.array_split(x, ROWS // BATCH))
    data = data.map_batches(load, batch_size=BATCH)
    found = [row["class"] for row in score_ray.scores(data, model).iter_rows()]
    np.testing.assert_array_equal(np.sort(found), np.sort(model["main"](x)[:, 0]))
    assert marker.exists()


def test_a_model_travels_once_to_each_actor_of_ray(ray: Any) -> None:
    import score

    class Actor:
        def score(self, model: Any, batch: np.ndarray) -> Any:
            return model["main"](batch), times_unpickled()

    model, x = score.model(), rows()
    actor, shared = ray.remote(Actor).remote(), ray.put(model)
    calls = [actor.score.remote(shared, batch) for batch in np.split(x, ROWS // BATCH)]
    found, times = zip(*ray.get(calls), strict=True)
    np.testing.assert_allclose(np.concatenate(found), model["main"](x), rtol=1e-5)
    assert {loaded for loaded, _ in times} == {1}
