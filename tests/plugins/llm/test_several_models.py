"""Several models of one server: loaded on demand, unloaded, and bounded."""

import asyncio
import gc
import json
import math
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from relaxpy.llm import LanguageModel, ModelError
from relaxpy.plugins.llm.config import ParameterError
from relaxpy.plugins.llm.hub import models_at
from relaxpy.plugins.llm.language_model import memory_needed
from relaxpy.plugins.llm.models import Models, Place, places_of, seconds_of
from relaxpy.plugins.llm.openai_api import ApiError
from relaxpy.support.dataclass import replace
from tests.plugins.llm.conftest import Running

httpx = pytest.importorskip("httpx")
ASK: dict[str, Any] = {"prompt": "the cat", "temperature": 0, "max_tokens": 8}


class Shelf:
    """Models that share a decoder, so that they load at once; `log` has what happened."""

    def __init__(self, lm: Any, folder: Path) -> None:
        self.lm, self.folder, self.log = lm, folder, []
        self.may_load = threading.Event()
        self.may_load.set()
        self.error: Exception | None = None

    def place(self, name: str) -> Any:
        shelf = self

        class Own(Place):
            def load(self) -> LanguageModel:
                shelf.log.append(f"load {name}")
                assert shelf.may_load.wait(60)
                if shelf.error is not None:
                    raise shelf.error
                return LanguageModel(replace(shelf.lm._files, name=name), shelf.lm.decoder)

            def memory_needed(self) -> int:
                return int(shelf.lm.memory)

        return Own(name, self.folder, {}, {})

    def models(self, names: str, room: float, **options: Any) -> Models:
        places = [self.place(name) for name in names]
        return Models(places, room * self.lm.memory, log=self.log.append, **options)


@pytest.fixture
def shelf(lm: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # which takes long where tests have much
    return Shelf(lm, folder)


def loaded(models: Models) -> list[str]:
    return [entry.name for entry in models.loaded]


def run(models: Models, work: Callable[[], Any]) -> None:
    async def whole() -> None:
        models.start()
        try:
            await work()
        finally:
            models.stop()

    asyncio.run(whole())


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        await asyncio.sleep(0.005)


async def words_of(lease: Any, count: int = 8) -> list[int]:
    lm = lease.model
    one = lm.start(lm.tokens("the cat"), max_tokens=count, ignore_eos=True)
    job = lease.worker.submit([one])
    while await job.received():
        pass
    assert one.request.error is None
    return list(one.request.tokens)


def test_what_was_not_used_for_the_longest_time_makes_room(shelf: Shelf) -> None:
    models = shelf.models("abc", 2.5)

    async def work() -> None:
        for name in "abacb":
            (await models.lease(name)).release()
            assert name in loaded(models)
            assert sum(entry.size for entry in models.loaded) <= models.memory
        assert loaded(models) == ["b", "c"]

    run(models, work)
    assert [line for line in shelf.log if "load " in line or "unloaded" in line] == [
        *("load a", "load b", "b was unloaded", "load c", "a was unloaded", "load b")
    ]


def test_the_memory_of_an_unloaded_model_is_freed(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    models = shelf.models("a", 1.5)

    async def work() -> None:
        lease = await models.lease("a")
        lease.model.loop = [lease.model]  # a cycle, as some may be anywhere
        gone = weakref.ref(lease.model)
        await words_of(lease)
        gc.freeze()
        try:
            lease.release()
            del lease
            await models.unload("a")
            assert gone() is None
            assert gc.get_freeze_count()
        finally:
            gc.unfreeze()

    run(models, work)


def test_a_model_that_answers_is_not_unloaded(shelf: Shelf) -> None:
    models = shelf.models("ab", 1.5)

    async def work() -> None:
        lease = await models.lease("a")
        answer = asyncio.ensure_future(words_of(lease, 30))
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match=r"the model 'b' needs .* MB, but a answer") as caught:
            await models.lease("b")
        assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "5"})
        await models.unload("a")  # it goes when it has answered
        assert loaded(models) == ["a"]
        assert len(await answer) == 30
        lease.release()
        lease.release()
        await until(lambda: not loaded(models))
        (await models.lease("b")).release()
        assert loaded(models) == ["b"]

    run(models, work)


def test_requests_for_one_model_load_it_once(shelf: Shelf) -> None:
    models = shelf.models("ab", 1.5)

    async def work() -> None:
        shelf.may_load.clear()
        waiting = [asyncio.ensure_future(models.lease("a")) for _ in range(6)]
        await until(lambda: shelf.log == ["load a"])
        waiting[0].cancel()  # a client that leaves: the others wait on
        other = asyncio.ensure_future(models.lease("b"))
        await asyncio.sleep(0.02)
        shelf.may_load.set()
        leases = await asyncio.gather(*waiting[1:])
        assert len({id(lease.model) for lease in leases}) == 1
        with pytest.raises(ApiError, match="but a answer"):
            await other
        for lease in leases:
            lease.release()
        assert models.entries["a"].users == models.entries["b"].users == 0
        assert shelf.log.count("load a") == 1

    run(models, work)


def test_all_clients_leave_while_a_model_is_loaded(shelf: Shelf) -> None:
    models = shelf.models("a", 1.5, keep_alive=0)

    async def work() -> None:
        shelf.may_load.clear()
        waiting = [asyncio.ensure_future(models.lease("a")) for _ in range(2)]
        await until(lambda: shelf.log == ["load a"])
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert models.entries["a"].users == 0
        shelf.may_load.set()
        await until(lambda: models.entries["a"].loading is None)
        await until(lambda: not loaded(models))

    run(models, work)


def test_a_model_that_cannot_be_loaded_is_tried_again(shelf: Shelf, caplog: Any) -> None:
    models = shelf.models("a", 1.5)

    async def work() -> None:
        shelf.error = OSError("/secret/path is damaged")
        with pytest.raises(ApiError, match="the model 'a' cannot be loaded, the log") as caught:
            await models.lease("a")
        assert (caught.value.status, "secret" in str(caught.value)) == (500, False)
        assert "/secret/path is damaged" in caplog.text
        shelf.error = None
        (await models.lease("a")).release()
        assert loaded(models) == ["a"]

    run(models, work)


def test_a_model_stays_as_long_as_is_said(shelf: Shelf) -> None:
    models = shelf.models("ab", 2.5, keep_alive=0.05)

    async def work() -> None:
        (await models.lease("a")).release()
        (await models.lease("b", -1)).release()
        await until(lambda: loaded(models) == ["b"])
        lease = await models.lease("a")
        await asyncio.sleep(0.1)
        lease.release()
        (await models.lease("a", "1h")).release()  # who used it last says how long
        await asyncio.sleep(0.1)
        assert loaded(models) == ["a", "b"]
        assert 3500 < models.entries["a"].seconds_left <= 3600
        (await models.lease("a", 0)).release()
        await until(lambda: loaded(models) == ["b"])

    run(models, work)


def test_one_that_never_fits_and_too_many_that_wait(shelf: Shelf) -> None:
    models = shelf.models("a", 0.5)

    async def large() -> None:
        with pytest.raises(ApiError, match="all models together may have") as caught:
            await models.lease("a")
        assert (caught.value.status, caught.value.headers) == (503, {})

    run(models, large)
    few = shelf.models("a", 1.5, most=2)

    async def many() -> None:
        shelf.may_load.clear()
        waiting = [asyncio.ensure_future(few.lease("a")) for _ in range(2)]
        await until(lambda: shelf.log == ["load a"])
        with pytest.raises(ApiError, match="too many requests wait for the model") as caught:
            await few.lease("a")
        assert caught.value.status == 429
        shelf.may_load.set()
        for lease in await asyncio.gather(*waiting):
            lease.release()

    shelf.log.clear()
    run(few, many)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *((0, 0), (-1, math.inf), (300, 300), (1.5, 1.5), ("5m", 300), ("1h30m", 5400), ("0", 0)),
        *(("-1m", math.inf), ("500ms", 0.5), ("-1", math.inf), ("90", 90), (10**300, math.inf)),
    ],
)
def test_times(given: Any, wanted: float) -> None:
    assert seconds_of(given) == pytest.approx(wanted)


@pytest.mark.parametrize(
    "given", ["", "m", "5 m", "5x", "1h2", True, [], {}, "nan", "9" * 41, "1h" * 21]
)
def test_what_is_no_time(given: Any) -> None:
    with pytest.raises(ParameterError, match="keep_alive"):
        seconds_of(given)


def test_a_long_text_is_no_time_at_once() -> None:
    begin = time.process_time()
    for given in ("0" * 40_000, "1." * 20_000):
        with pytest.raises(ParameterError, match="keep_alive"):
            seconds_of(given)
    assert time.process_time() - begin < 1


def test_the_memory_needed_is_that_of_the_loaded_model(lm: Any, folder: Path) -> None:
    assert memory_needed(folder, sequences=5) == lm.memory
    caches = [lm.engine.cache, lm.decoder.single_cache]
    sizes = [array.nbytes for cache in caches for array in (cache.keys, cache.values)]
    values = {id(value): value.nbytes for value in lm.decoder.values.values()}
    assert lm.memory == sum(sizes) + sum(values.values())


@pytest.fixture
def several(shelf: Shelf) -> Iterator[tuple[Running, Models]]:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    models = shelf.models("ab", 1.5)
    server = Running(models, max_tokens=200)
    yield server, models
    server.stop()


def test_a_server_of_two_models(several: Any, lm: Any) -> None:
    server, models = several
    wanted = lm.generate("the cat", max_tokens=8)
    for name in "aba":
        body = httpx.post(f"{server.url}/v1/completions", json={**ASK, "model": name}).json()
        assert (body["model"], body["choices"][0]["text"]) == (name, wanted)
        assert loaded(models) == [name]
        assert [m["name"] for m in httpx.get(f"{server.url}/api/ps").json()["models"]] == [
            f"{name}:latest"
        ]
    listed = httpx.get(f"{server.url}/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["a", "b"]
    for name in ("c", "../a", "/etc/passwd", "a/../b", "a:poet", 3, ["a"]):
        answer = httpx.post(f"{server.url}/v1/completions", json={**ASK, "model": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    answer = httpx.post(f"{server.url}/v1/completions", json=ASK)
    assert answer.status_code == 400
    assert "model is missing, this server has 'a' and 'b'" in answer.text
    assert "relaxpy_models 1" in httpx.get(f"{server.url}/metrics").text


def test_keep_alive_of_ollama(several: Any) -> None:
    server, models = several

    def ask(path: str, **fields: Any) -> Any:
        return httpx.post(f"{server.url}/api/{path}", json=fields)

    shown = ask("show", model="a").json()
    assert shown["model_info"]["general.architecture"] == "llama"
    assert ask("generate", model="a", keep_alive=0).json()["done_reason"] == "unload"
    assert loaded(models) == []  # neither of them loads a model
    assert ask("generate", model="a", keep_alive="5m").json()["done_reason"] == "load"
    [one] = httpx.get(f"{server.url}/api/ps").json()["models"]
    assert one["name"] == "a:latest"
    assert ask("chat", model="a", messages=[], keep_alive=0).json()["done_reason"] == "unload"
    assert loaded(models) == []
    options = {"num_predict": 3}
    answer = ask("generate", model="a", prompt="x", stream=False, keep_alive=0, options=options)
    assert answer.json()["eval_count"] == 3
    end = time.monotonic() + 20
    while loaded(models):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert ask("generate", model="a", prompt="x", keep_alive="soon").status_code == 400
    models.entries["a"].place = replace(models.entries["a"].place, path=Path("/secret/path"))
    answer = ask("show", model="a")
    assert (answer.status_code, "secret" in answer.text) == (500, False)
    assert answer.json()["error"].startswith("the model 'a' cannot be loaded, the log")
    assert models.entries["a"].users == 0


def test_clients_that_leave_give_the_model_back(
    several: Any, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server, models), decoder = several, shelf.lm.decoder
    step = decoder.run

    def slow(*args: Any) -> Any:
        time.sleep(0.01)
        return step(*args)

    monkeypatch.setattr(decoder, "run", slow)
    body = {**ASK, "model": "a", "max_tokens": 200, "logit_bias": {"1": -100}}
    shelf.may_load.clear()
    with pytest.raises(httpx.TimeoutException):  # while it is loaded
        httpx.post(f"{server.url}/v1/completions", json=body, timeout=0.3)
    end = time.monotonic() + 20
    while models.entries["a"].users:
        assert time.monotonic() < end
        time.sleep(0.01)
    shelf.may_load.set()
    for stream in (True, False):
        with suppress(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/completions", json={**body, "stream": stream}, timeout=0.1)
    with httpx.stream("POST", f"{server.url}/v1/completions", json={**body, "stream": True}) as got:
        busy = httpx.post(f"{server.url}/v1/completions", json={**ASK, "model": "b"})
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "5")
        next(got.iter_lines())
    while models.entries["a"].users:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert httpx.post(f"{server.url}/v1/completions", json={**ASK, "model": "b"}).status_code == 200


def test_bad_requests_give_the_model_back(several: Any) -> None:
    server, models = several
    for path, fields in (
        ("completions", {**ASK, "temperature": -1}),
        ("completions", {**ASK, "prompt": "x" * 99999}),
        ("completions", {**ASK, "guided_regex": "("}),
        ("completions", {**ASK, "n": 99}),
        ("chat/completions", {"messages": []}),
        ("embeddings", {"input": []}),
        ("rerank", {"query": "a", "documents": []}),
        ("responses", {"input": 3}),
    ):
        answer = httpx.post(f"{server.url}/v1/{path}", json={**fields, "model": "a"})
        assert answer.status_code == 400, path
        assert models.entries["a"].users == 0, path


def test_documents_are_ranked_by_their_embeddings(running: Running, lm: Any) -> None:
    texts = ["the dog sat on the log", "hello world", "the cat sat"]
    vectors = [lm.embed(text) for text in ("the cat", *texts)]
    query, *others = (vector / (vector**2).sum() ** 0.5 for vector in vectors)
    wanted = sorted(((float(query @ v), k) for k, v in enumerate(others)), reverse=True)
    body = {"query": "the cat", "documents": [texts[0], {"text": texts[1]}, texts[2]]}
    for path in ("/v1/rerank", "/rerank"):
        found = httpx.post(f"{running.url}{path}", json=body).json()["results"]
        assert [one["index"] for one in found] == [k for _, k in wanted]
        assert [one["relevance_score"] for one in found] == pytest.approx([s for s, _ in wanted])
    more = {**body, "top_n": 1, "return_documents": True}
    [best] = httpx.post(f"{running.url}/rerank", json=more).json()["results"]
    assert best["document"] == {"text": texts[wanted[0][1]]}
    bad: tuple[Any, ...] = ({"query": 3}, {"documents": [3]}, {"documents": "x"}, {"top_n": 0})
    for fields in bad:
        assert httpx.post(f"{running.url}/rerank", json={**body, **fields}).status_code == 400


def test_the_models_of_a_folder(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(folder, tmp_path / name)
    (tmp_path / "notes").mkdir()
    for name in ("x-00001-of-00002", "x-00002-of-00002", "y"):
        (tmp_path / f"{name}.gguf").write_bytes(b"")
    found = [(name, path.name) for name, path in models_at(str(tmp_path))]
    files = [("x", "x-00001-of-00002.gguf"), ("y", "y.gguf")]
    assert found == [("one", "one"), ("two", "two"), *files]
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    places = places_of([one, two], [("one:poet", "p"), ("two:poet", "q")], {})
    assert [(p.name, dict(p.adapters)) for p in places] == [
        ("one", {"poet": Path("p")}),
        ("two", {"poet": Path("q")}),
    ]
    [place] = places_of([one], [("poet", "p")], {})
    assert place.adapters == {"poet": Path("p")}
    for paths, adapters, message in (
        ([one, one], [], "have the same name, 'one'"),
        ([one, two], [("poet", "p")], "of no model here, expected one:poet, two:poet"),
        ([one], [("two:poet", "p")], "of no model here, expected one:poet"),
        ([one], [("poet", "p"), ("one:poet", "p")], "there are two adapters one:poet"),
        ([str(tmp_path / "notes")], [], "has no config.json, and no folders and GGUF files"),
    ):
        with pytest.raises(ModelError, match=message):
            places_of(paths, adapters, {})
    (tmp_path / "one" / "config.json").write_text(json.dumps({}))
