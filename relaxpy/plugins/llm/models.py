"""The models of a server: loaded when a request names them, and unloaded when nobody needs them."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, Final

from relaxpy.errors import RelaxpyError
from relaxpy.exec.runtime.values import memory_bytes
from relaxpy.plugins.llm.config import Config, ModelError, ParameterError, shown
from relaxpy.plugins.llm.cross_encoder import (
    CrossEncoder,
    is_cross_encoder,
    memory_of_cross_encoder,
)
from relaxpy.plugins.llm.files import open_model
from relaxpy.plugins.llm.hub import models_at
from relaxpy.plugins.llm.language_model import DEFAULT_CONTEXT, LanguageModel, load, memory_needed
from relaxpy.plugins.llm.openai_api import ApiError
from relaxpy.plugins.llm.worker import Worker, settle
from relaxpy.support.dataclass import dataclass

_LOG: Final = logging.getLogger("uvicorn.error")
_SHARE: Final = 0.8
"""The share of the machine's memory that models may take, if nobody says how much."""
_AFTER: Final = 5
"""The seconds after which a client should ask again for a model that has no room."""
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def seconds_of(given: Any, name: str = "keep_alive") -> float:
    """The seconds of a number or a text such as "5m"; infinity for those below 0.

    Errors:
        ParameterError: it is neither.
    """
    if type(given) is str and len(given) <= 40:  # the expression takes quadratic time
        sign, text = given[:1] == "-", given.lstrip("+-")
        parts = _PART.findall(text)
        if parts and "".join(map("".join, parts)) == text:
            found = sum(float(number) * _UNITS[unit] for number, unit in parts)
            return math.inf if sign else found
        with suppress(ValueError):
            given = float(given)
    if type(given) not in (int, float) or given != given:  # NaN
        expected = 'seconds, or a text such as "5m"; a negative one is for ever'
        raise ParameterError.of(name, given, expected)
    return math.inf if given < 0 or given > 1e9 else float(given)


def _bytes_text(size: float) -> str:
    """A number of bytes, in the unit by which it is from 1 to 1,000."""
    step = min(len(f"{size:.0f}") - 1, 12) // 3
    return f"{size / 1000**step:.4g} {('bytes', 'kB', 'MB', 'GB', 'TB')[step]}"


@dataclass(frozen=True)
class Place:
    """Where a model is, and how it is loaded."""

    name: str
    path: Path
    options: Mapping[str, Any]
    """Those of `load`."""
    adapters: Mapping[str, Path]
    """Adapters by their names."""

    @property
    def is_cross_encoder(self) -> bool:
        """True for a model that only orders documents."""
        return is_cross_encoder(self.path)

    def load(self) -> LanguageModel | CrossEncoder:
        """The model, ready for texts. Errors: as of `load`."""
        if self.is_cross_encoder:
            if self.adapters:
                raise ModelError(f"{self.name} is a cross-encoder, which takes no adapters")
            quantize, target = (self.options.get(name) for name in ("quantize", "target"))
            found: Any = CrossEncoder(self.path, name=self.name, quantize=quantize, target=target)
        else:
            found = load(self.path, name=self.name, adapters=self.adapters, **self.options)
        found.tokenizer  # noqa: B018  # a model without one has no texts
        return found  # type: ignore[no-any-return]

    def memory_needed(self) -> int:
        """The bytes of the loaded model. Errors: as of `load`."""
        if self.is_cross_encoder:
            return memory_of_cross_encoder(self.path, self.options.get("quantize"))
        return memory_needed(self.path, adapters=self.adapters, **self.options)


class _Entry:
    """A model, and who uses it."""

    def __init__(self, name: str, place: Place | None) -> None:
        self.name, self.place = name, place
        self.model: LanguageModel | CrossEncoder | None = None
        self.worker: Worker | None = None
        self.loading: asyncio.Future[None] | None = None
        self.ending: asyncio.Future[None] | None = None
        """Waits until it is unloaded."""
        self.users, self.size = 0, 0
        self.keep = math.inf
        """The seconds for which it stays when nobody uses it, as who asked last said."""
        self.used, self.until = 0.0, math.inf
        """When it was used last, and when it is unloaded if nobody uses it again."""

    @property
    def adapters(self) -> Sequence[str]:
        """The names of its adapters, some of which may come and go while it is loaded."""
        if self.model is not None:
            return self.model.adapters
        return [] if self.place is None else [*self.place.adapters]

    @property
    def is_well(self) -> bool:
        """True if it answers."""
        return self.worker is not None and self.worker.is_alive

    @property
    def seconds_left(self) -> float:
        """The seconds until it is unloaded, if nobody uses it; at most a year."""
        return 365 * 86400.0 if self.users else min(self.until - time.monotonic(), 365 * 86400)

    @property
    def bytes(self) -> int:
        """The bytes of its weights, or of its files."""
        if isinstance(self.model, CrossEncoder):
            return self.model.memory
        if self.model is not None:
            return sum(value.nbytes for value in self.model.decoder.values.values())
        assert self.place is not None
        path = self.place.path
        files = [path] if path.is_file() else path.glob("*.safetensors")
        return sum(file.stat().st_size for file in files)

    def facts(self) -> tuple[Config, str | None, int, str | None]:
        """The configuration, chat template, context and quantization, without loading it.

        Errors:
            ApiError: it is not a language model, or its files cannot be read.
        """
        model = self.model
        if isinstance(model, CrossEncoder) or (self.place and self.place.is_cross_encoder):
            raise only_orders(self.name)
        if model is not None:
            decoder = model.decoder
            return decoder.config, model.template_text, decoder.context, decoder.quantization
        assert self.place is not None
        options = self.place.options
        try:
            files = open_model(self.place.path)
        except (OSError, RelaxpyError) as error:
            raise self.unreadable(error) from error
        context = options.get("context") or min(files.config.positions, DEFAULT_CONTEXT)
        return files.config, files.template, context, options.get("quantize")

    def unreadable(self, error: Exception) -> ApiError:
        """The answer for an error of its files, which the client does not know."""
        _LOG.warning("%s cannot be loaded: %s", self.name, error)
        return ApiError(
            500, f"the model {self.name!r} cannot be loaded, the log of the server says why"
        )

    @property
    def is_idle(self) -> bool:
        """True if it is loaded, and may be unloaded now."""
        return self.model is not None and self.place is not None and not self.users


def only_orders(name: str) -> ApiError:
    """The error of a request for texts of a cross-encoder."""
    message = f"the model {name!r} is a cross-encoder, which only orders documents: /v1/rerank"
    return ApiError(400, message, param="model")


class Lease:
    """A loaded model that stays until it is released."""

    def __init__(self, models: Models, entry: _Entry, adapter: str | None) -> None:
        assert entry.model is not None
        assert entry.worker is not None
        model: Any = entry.model
        self.model: Any = model if adapter is None else model.adapted(adapter)
        self.worker = entry.worker
        self._models, self._entry = models, entry

    def release(self) -> None:
        """Give the model back; once is enough."""
        if self._entry is not None:
            self._models.release(self._entry)
            self._entry = None  # type: ignore[assignment]


class Models:
    """The models of a server, which its loop of events asks for.

    They take at most `memory` bytes for weights and caches: by default a share of the machine's.
    One that nobody has used for `keep_alive` seconds is unloaded. Requests beyond `most` that wait
    for one model are refused.
    """

    def __init__(
        self,
        places: Sequence[Place],
        memory: float | None = None,
        keep_alive: float = math.inf,
        *,
        most: int = 64,
        log: Callable[[str], object] = lambda line: None,
    ) -> None:
        self.memory = memory_bytes() * _SHARE if memory is None else memory
        self.keep_alive, self.most, self.log = keep_alive, most, log
        self.entries = {p.name: _Entry(p.name, p) for p in places}
        self._tasks: set[asyncio.Future[Any]] = set()

    @classmethod
    def of(cls, model: LanguageModel) -> Models:
        """A single model, which stays."""
        found = cls([])
        found.put(model)
        return found

    def put(self, model: LanguageModel | CrossEncoder) -> None:
        """Take a model that is loaded already."""
        entry = self.entries.setdefault(model.name, _Entry(model.name, None))
        entry.model, entry.size = model, model.memory

    @property
    def loaded(self) -> list[_Entry]:
        """The models that are loaded."""
        return [entry for entry in self.entries.values() if entry.model is not None]

    @property
    def names(self) -> list[str]:
        """The names of models, and those with their adapters."""
        return [
            name
            for entry in self.entries.values()
            for name in (entry.name, *(f"{entry.name}:{adapter}" for adapter in entry.adapters))
        ]

    def start(self) -> None:
        """Begin, in the loop that runs."""
        self._changes = asyncio.Lock()
        for entry in self.loaded:
            self._begin(entry)

    def stop(self) -> None:
        """End all that runs."""
        for task in self._tasks:
            task.cancel()
        for entry in self.loaded:
            if entry.worker is not None:
                entry.worker.stop()

    def found(self, name: Any) -> tuple[_Entry, str | None]:
        """The model of a name, and the name of the adapter; without one the only model.

        Errors:
            ApiError: there is none.
        """
        listed = " and ".join(repr(own) for own in self.names[:10])
        if name is None:
            if len(self.entries) == 1:
                return next(iter(self.entries.values())), None
            raise ApiError(400, f"model is missing, this server has {listed}", param="model")
        for entry in self.entries.values():
            if name in (entry.name, f"{entry.name}:latest"):  # as Ollama has it
                return entry, None
            if isinstance(name, str) and name.startswith(f"{entry.name}:"):
                adapter = name[len(entry.name) + 1 :]
                if adapter in entry.adapters:
                    return entry, adapter
        raise ApiError(
            404,
            f"there is no model {shown(name, 80)}, this server has {listed}",
            param="model",
            code="model_not_found",
        )

    async def lease(self, name: Any, keep_alive: Any = None) -> Lease:
        """A model, loaded if it is not. `keep_alive` is that of a request, or None.

        Errors:
            ApiError: there is no such model, or no room for it, or it cannot be loaded.
            ParameterError: `keep_alive` is not a time.
        """
        keep = self.keep_alive if keep_alive is None else seconds_of(keep_alive)
        entry, adapter = self.found(name)
        if entry.model is None and entry.users >= self.most:
            raise ApiError(429, f"too many requests wait for the model {entry.name!r}")
        entry.keep = keep
        entry.users += 1  # from now on nobody unloads it
        try:
            while entry.model is None:
                if entry.loading is None:
                    entry.loading = self._task(self._loaded(entry))
                await asyncio.shield(entry.loading)
            return Lease(self, entry, adapter)
        except BaseException:
            self.release(entry)
            raise

    def release(self, entry: _Entry) -> None:
        """Count a user less; after the last one the model stays for some time."""
        entry.users -= 1
        entry.used, keep = time.monotonic(), entry.keep
        entry.until = entry.used + keep
        if entry.is_idle:
            if entry.ending is not None:
                entry.ending.cancel()
            entry.ending = self._task(self._ended(entry, keep)) if keep < math.inf else None

    async def unload(self, name: Any) -> None:
        """Unload a model once nobody uses it. Errors: ApiError if there is none."""
        entry, _ = self.found(name)
        entry.keep, entry.until = 0, time.monotonic()
        if entry.is_idle:
            await self._ended(entry, 0)

    def _task(self, work: Any) -> asyncio.Future[Any]:
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)

        def ended(task: asyncio.Future[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # those who waited have it

        task.add_done_callback(ended)
        return task

    async def _ended(self, entry: _Entry, keep: float) -> None:
        """Unload a model after a time, unless it was used again."""
        await asyncio.sleep(keep)
        async with self._changes:
            if entry.is_idle and time.monotonic() >= entry.until:
                await self._unloaded(entry)

    async def _loaded(self, entry: _Entry) -> None:
        """Load a model. One is loaded at a time, as that takes all threads and much memory."""
        assert entry.place is not None
        try:
            async with self._changes:
                begin = time.monotonic()
                needed = await _in_thread(entry.place.memory_needed)
                await self._make_room(entry, needed)
                entry.model = await _in_thread(entry.place.load)
                entry.size = entry.model.memory
                self._begin(entry)
                entry.users += 1
                self.release(entry)  # all who wanted it may have left
                seconds = time.monotonic() - begin
                size = _bytes_text(entry.size)
                self.log(f"{entry.name} was loaded in {seconds:.1f} s and takes {size}")
                for note in entry.model.notes:
                    self.log(f"{entry.name}: {note}")
        except (ApiError, asyncio.CancelledError):
            raise
        except Exception as error:  # of any reader of its files
            raise entry.unreadable(error) from error
        finally:
            entry.loading = None

    def _begin(self, entry: _Entry) -> None:
        entry.worker = Worker(entry.model)
        entry.worker.start()

    async def _make_room(self, entry: _Entry, needed: int) -> None:
        """Unload what was not used for the longest time. Errors: ApiError if that is not enough."""
        asks = f"the model {entry.name!r} needs {_bytes_text(needed)}"
        if needed > self.memory:
            raise ApiError(503, self.too_large(entry.name, needed), code="model_too_large")
        busy = [other for other in self.loaded if not other.is_idle]
        if sum(other.size for other in busy) + needed > self.memory:
            names = ", ".join(other.name for other in busy)
            message = f"{asks}, but {names} answer: all may have {_bytes_text(self.memory)}"
            raise ApiError(503, message, code="no_memory", retry_after=_AFTER)
        while sum(other.size for other in self.loaded) + needed > self.memory:
            idle = [other for other in self.loaded if other.is_idle]
            if not idle:  # one of them was asked for meanwhile
                raise ApiError(503, f"{asks}, try again", code="no_memory", retry_after=_AFTER)
            await self._unloaded(min(idle, key=lambda other: other.used))

    def too_large(self, name: str, needed: float) -> str:
        """The message for a model that has no room even alone."""
        return (
            f"the model {name!r} needs {_bytes_text(needed)}, and all models together may have "
            f"{_bytes_text(self.memory)}, or what --memory says"
        )

    async def _unloaded(self, entry: _Entry) -> None:
        """Unload a model that nobody uses."""
        worker, entry.worker, entry.model = entry.worker, None, None
        if worker is not None:
            await _in_thread(worker.stop)
        entry.size = 0
        del worker
        # The program is frozen, and with it the cycles of what is unloaded.
        frozen = gc.get_freeze_count()
        gc.unfreeze()
        gc.collect()
        if frozen:
            gc.freeze()
        self.log(f"{entry.name} was unloaded")


async def _in_thread(function: Callable[[], Any]) -> Any:
    """The result of a function in a thread, for which the end of the program does not wait."""
    result: Future[Any] = Future()
    Thread(target=settle, args=(function, result), name="relaxpy loads", daemon=True).start()
    return await asyncio.wrap_future(result)


def places_of(
    paths: Sequence[str],
    adapters: Sequence[tuple[str, str]],
    options: Mapping[str, Any],
    *,
    download: bool = False,
) -> list[Place]:
    """The models of paths, each a model or a folder of models, with adapters by their names.

    The name of an adapter is `MODEL:NAME`, or `NAME` if there is one model.

    Errors:
        FileNotFoundError, ModelError: there is no model there, or two have one name.
    """
    found: dict[str, Path] = {}
    for name, path in (one for given in paths for one in models_at(given, download=download)):
        if name in found:
            raise ModelError(f"{found[name]} and {path} have the same name, {name!r}")
        found[name] = path
    own: dict[str, dict[str, Path]] = {name: {} for name in found}
    for full, given in adapters:
        name, _, adapter = full.rpartition(":")
        name = name or (next(iter(found)) if len(found) == 1 else "")
        if name not in own:
            listed = ", ".join(f"{model}:{adapter}" for model in [*found][:10])
            raise ModelError(f"the adapter {full!r:.80} is of no model here, expected {listed}")
        if adapter in own[name]:
            raise ModelError(f"there are two adapters {name}:{adapter}")
        own[name][adapter] = Path(given)
    return [Place(name, path, options, own[name]) for name, path in found.items()]
