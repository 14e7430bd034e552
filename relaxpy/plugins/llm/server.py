"""A server of OpenAI's HTTP API, with a page to chat in a browser."""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import os
import re
import socket
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from relaxpy import __version__
from relaxpy.plugins.llm.config import ModelError, ParameterError
from relaxpy.plugins.llm.cross_encoder import CrossEncoder
from relaxpy.plugins.llm.language_model import LanguageModel
from relaxpy.plugins.llm.models import Lease, Models, only_orders, seconds_of
from relaxpy.plugins.llm.ollama_api import (
    OllamaAnswer,
    Path as OllamaPath,
    asked_ollama,
    asked_ollama_embeddings,
    described,
    is_empty,
    loaded,
    moment,
    named_model,
    shown_model,
)
from relaxpy.plugins.llm.openai_api import (
    Answer,
    ApiError,
    Asked,
    Kind,
    asked,
    asked_embeddings,
    asked_reranking,
    embeddings_body,
    error_of,
    fields_of,
    reranking_body,
    unit,
)
from relaxpy.plugins.llm.responses_api import ResponsesAnswer, asked_response
from relaxpy.plugins.llm.worker import Job

KEY: Final = "RELAXPY_API_KEY"
"""The environment variable with the key that requests have to name, if it is not empty."""
_PAGE: Final = Path(__file__).with_name("page.html")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1", "[::1]")
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_STREAMED: Final = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
"""The headers of a stream beside its type."""
_READERS: Final = 2
"""How many requests are read at a time: templates and tokenizers take memory and CPU time."""
_MOST_BODIES: Final = 16
"""The bodies of the largest size that are in memory until they are read."""
_MOST_HEADERS: Final = 64 * 1024
"""The most bytes of the headers of a request."""
_MOST_NAMES: Final = 100
"""The most fields of requests that the log names."""
_BUSY: Final = "rate_limit_exceeded"
_LOG: Final = logging.getLogger("uvicorn.error")
Handler: TypeAlias = Callable[[Any], Coroutine[Any, Any, Any]]
"""Answers a request by a response, or by the body of one."""


def serve(
    model: LanguageModel | Models,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    max_tokens: int = 2048,
    queue: int = 64,
    cors: Sequence[str] = (),
    log: Callable[[str], object] = lambda line: None,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Serve models until a signal ends it; `ready` gets the address that it listens at.

    Answers have at most `max_tokens`; requests beyond `queue` that wait are refused. Pages of the
    origins `cors` may use it. `log` gets a line for each request.

    Errors:
        ModelError: the packages of the extra `serve` are not installed.
        OSError: the port is taken, or the address is not one of this machine.
    """
    require_packages()
    import uvicorn

    app = application(model, host=host, max_tokens=max_tokens, queue=queue, cors=cors, log=log)
    config = configuration(app)
    with listening(host, port, config.backlog) as found:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{found.getsockname()[1]}")
        gc.freeze()  # a collection that visits all of the program stops everything for 50 ms
        try:
            uvicorn.Server(config).run(sockets=[found])
        finally:
            gc.unfreeze()


def listening(host: str, port: int, backlog: int | None = None) -> socket.socket:
    """A socket that listens at an address. Errors: OSError if the port is taken, or the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)


def configuration(app: Any, **options: Any) -> Any:
    """The configuration of uvicorn for an application; `options` are others of it."""
    import uvicorn

    from relaxpy.plugins.llm.connections import connection_class

    _LOG.addFilter(_is_failure)
    return uvicorn.Config(
        app,
        log_level="warning",
        ws="none",
        timeout_graceful_shutdown=3,
        http=connection_class(),
        **options,
    )


def _is_failure(record: logging.LogRecord) -> bool:
    """False for the tracebacks of answers that a second signal cuts off."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def require_packages() -> None:
    """Import what the server needs. Errors: ModelError if it is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise _missing(error) from None


def _missing(error: ModuleNotFoundError) -> ModelError:
    return ModelError(
        f"the server needs the package {(error.name or '').partition('.')[0]}",
        hint="python -m pip install 'relaxpy[serve]'",
    )


def application(
    model: LanguageModel | Models,
    *,
    host: str = "127.0.0.1",
    max_tokens: int = 2048,
    queue: int = 64,
    max_body: int = 4 * 1024 * 1024,
    cors: Sequence[str] = (),
    log: Callable[[str], object] = lambda line: None,
) -> Any:
    """The application, for servers of ASGI. Errors: ModelError if starlette is not installed."""
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.middleware import Middleware
        from starlette.middleware.cors import CORSMiddleware
        from starlette.routing import Route
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    models = Models.of(model) if isinstance(model, LanguageModel) else model
    server = _Server(models, max_tokens, queue, max_body)

    async def not_there(request: Any, error: HTTPException) -> Any:
        path, methods = request.url.path, (error.headers or {}).get("Allow", "")
        near = [known for _, known in handlers if known.endswith(path) or path.endswith(known)]
        message = f"there is no path {path[:100]!r}"
        if methods:
            message = f"{path[:100]} expects {' or '.join(sorted(methods.split(', ')))}"
        elif near:
            message += f", did you mean {' or '.join(near)}?"
        response = _failed(request, ApiError(error.status_code, message))
        response.headers.update(error.headers or {})
        return response

    handlers: dict[tuple[str, str], Handler] = {
        ("GET", "/v1/models"): server.models,
        ("GET", "/v1/models/{name:path}"): server.models,
        ("POST", "/v1/completions"): partial(server.answer, "text"),
        ("POST", "/v1/chat/completions"): partial(server.answer, "chat"),
        ("POST", "/v1/responses"): server.response,
        ("POST", "/v1/embeddings"): server.embeddings,
        ("POST", "/v1/rerank"): server.reranking,
        ("POST", "/rerank"): server.reranking,
        ("POST", "/v2/rerank"): server.reranking,
        ("POST", "/api/generate"): partial(server.ollama_answer, "generate"),
        ("POST", "/api/chat"): partial(server.ollama_answer, "chat"),
        ("POST", "/api/embed"): partial(server.ollama_embeddings, "embed"),
        ("POST", "/api/embeddings"): partial(server.ollama_embeddings, "embeddings"),
        ("POST", "/api/show"): server.ollama_model,
        ("GET", "/api/tags"): partial(server.ollama_models, is_loaded=False),
        ("GET", "/api/ps"): partial(server.ollama_models, is_loaded=True),
        ("GET", "/api/version"): server.ollama_version,
    }
    routes = [
        Route("/", server.page),
        Route("/health", server.health),
        Route("/metrics", server.metrics),
        *(
            Route(path, server.guarded(handle), methods=[method])
            for (method, path), handle in handlers.items()
        ),
    ]
    shared = Middleware(
        CORSMiddleware,
        allow_origins=list(cors),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],  # clients for pages have some of their own, such as x-stainless-os
    )
    return Starlette(
        routes=routes,
        lifespan=server.lifespan,
        middleware=[
            Middleware(_Logged, log),
            Middleware(_WithHeaders, _LOOPBACK if host in _LOOPBACK else ()),
            *([shared] if cors else []),
        ],
        exception_handlers={HTTPException: not_there},  # type: ignore[dict-item]
    )


class _Server:
    """The handlers of requests."""

    def __init__(self, models: Models, max_tokens: int, queue: int, max_body: int) -> None:
        self.own = models
        self.max_tokens, self.queue, self.max_body = max_tokens, queue, max_body
        self.key, self.created = os.environ.get(KEY, ""), int(time.time())
        self.reads = ThreadPoolExecutor(_READERS, "relaxpy reads")
        self.held = 0
        """The bytes of bodies in memory."""
        self.ignored: set[str] = set()
        self.answered: Counter[int] = Counter()
        self.tokens: Counter[str] = Counter()

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """The life of the models."""
        self.own.start()
        try:
            with suppress(asyncio.CancelledError):  # by a second signal, which needs no traceback
                yield
        finally:
            self.own.stop()
            self.reads.shutdown(wait=False, cancel_futures=True)

    def guarded(self, handle: Handler) -> Handler:
        """A handler that needs the key, and whose errors are answers."""
        from starlette.responses import JSONResponse

        async def handler(request: Any) -> Any:
            try:
                self._check_key(request)
                found = await handle(request)
                response = JSONResponse(found) if isinstance(found, dict) else found
            except (ApiError, ModelError, RecursionError) as error:
                response = _failed(request, error_of(error))
            self.answered[response.status_code] += 1
            return response

        return handler

    def _check_key(self, request: Any) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        # Headers are bytes, which are read as if they were Latin-1.
        key = self.key.encode("utf-8", "surrogateescape")
        if key and not hmac.compare_digest(given.encode("latin-1"), key):
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key")

    async def page(self, _: Any) -> Any:
        """The page to chat."""
        from starlette.responses import HTMLResponse

        headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"), headers=headers)

    async def health(self, _: Any) -> Any:
        """Tell whether answers can be computed."""
        from starlette.responses import JSONResponse

        is_well = all(entry.is_well for entry in self.own.loaded)
        return JSONResponse({"status": "ok" if is_well else "stopped"}, 200 if is_well else 503)

    async def models(self, request: Any) -> Any:
        """The models."""

        def own(name: str) -> dict[str, Any]:
            fields = {"object": "model", "created": self.created, "owned_by": "relaxpy"}
            return {"id": name, **fields}

        name = request.path_params.get("name")
        if name is None:
            return {"object": "list", "data": [*map(own, self.own.names)]}
        self.own.found(name)
        return own(name)

    async def metrics(self, _: Any) -> Any:
        """Counters, as Prometheus reads them."""
        from starlette.responses import PlainTextResponse

        models = [entry.model for entry in self.own.loaded]
        engines = [model.engine for model in models if isinstance(model, LanguageModel)]
        gauges = {
            "models": len(models),
            "requests_running": sum(len(engine.running) for engine in engines),
            "requests_waiting": sum(len(engine.waiting) for engine in engines),
            "pages": sum(engine.model.pages for engine in engines),
            "pages_free": sum(engine.free_pages for engine in engines),
        }
        lines = [f"# TYPE relaxpy_{name} gauge\nrelaxpy_{name} {n}" for name, n in gauges.items()]
        lines.append("# TYPE relaxpy_requests_total counter")
        lines += [
            f'relaxpy_requests_total{{status="{status}"}} {count}'
            for status, count in sorted(self.answered.items())
        ]
        lines.append("# TYPE relaxpy_tokens_total counter")
        lines += [
            f'relaxpy_tokens_total{{kind="{kind}"}} {self.tokens[kind]}'
            for kind in ("prompt", "completion")
        ]
        text = "\n".join(lines) + "\n"
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def answer(self, kind: Kind, request: Any) -> Any:
        """The answer to a prompt or a conversation."""
        async with self._body(request) as fields:
            lease, what = await self._read(
                request, fields, partial(asked, kind, most_tokens=self.max_tokens)
            )
        return await self._answered(request, lease, what, Answer)

    async def response(self, request: Any) -> Any:
        """The answer to a conversation, as OpenAI's API of responses has it."""
        async with self._body(request) as fields:
            read = partial(asked_response, most_tokens=self.max_tokens)
            lease, what = await self._read(request, fields, read)
        return await self._answered(request, lease, what, partial(ResponsesAnswer, fields))

    async def ollama_answer(self, path: OllamaPath, request: Any) -> Any:
        """The answer to a prompt or a conversation, as Ollama has it; without one, (un)load."""
        async with self._body(request) as fields:
            keep = fields.get("keep_alive")
            if is_empty(fields) and keep is not None and not seconds_of(keep):
                name = named_model(fields)
                await self.own.unload(name)
                return loaded(path, name, "unload")
            read = partial(asked_ollama, path, most_tokens=self.max_tokens)
            lease, what = await self._read(request, fields, read)
        if what is None:
            lease.release()
            return loaded(path, lease.model.name)
        return await self._answered(request, lease, what, partial(OllamaAnswer, path))

    async def _answered(
        self, request: Any, lease: Lease, what: Asked, answer_of: Callable[..., Answer]
    ) -> Any:
        """The response to what is asked for, at whose end the model is released."""
        from starlette.responses import Response

        model, worker, end = lease.model, lease.worker, lease.release
        try:
            self._note(what.ignored)
            self._check_room(lease, len(what.prompts) * what.choices)
            scores = []
            for prompt in what.prompts if what.echo and what.with_logprobs else ():
                own = partial(model.prompt_logprobs, prompt, what.options["logprobs"])
                scores.append(await worker.call(own))
            started = what.begin(model)
            job = worker.submit(started)
            answer = answer_of(what, model, started)
            end = partial(self._end, answer, job, lease)
            answer.scores = scores
            if what.stream:
                return _Stream(answer, job, end)
            whole = await _unless_left(request, _whole(job, answer))
            text = await asyncio.to_thread(answer.whole, *whole)
        except BaseException:
            end()
            raise
        end()
        return Response(text, media_type="application/json")

    async def embeddings(self, request: Any) -> Any:
        """The embeddings of texts."""
        async with self._body(request) as fields:
            lease, asked = await self._read(request, fields, asked_embeddings)
        prompts, is_base64, dimensions, ignored = asked
        found, count = await self._computed(request, lease, prompts, ignored)
        vectors = [unit(vector[:dimensions]) for vector in found]
        return embeddings_body(lease.model, vectors, count, is_base64=is_base64)

    async def reranking(self, request: Any) -> Any:
        """Documents in the order of what they have to do with a query."""
        async with self._body(request) as fields:
            lease, what = await self._read(request, fields, asked_reranking, orders=True)
        found, count = await self._computed(request, lease, what.inputs, what.ignored)
        return reranking_body(lease.model, what, found, count)

    async def ollama_embeddings(self, path: str, request: Any) -> Any:
        """The embeddings of texts, or of one text, as Ollama has it."""
        begin = time.monotonic_ns()
        async with self._body(request) as fields:
            read = partial(asked_ollama_embeddings, path)
            lease, (prompts, _, dimensions, ignored) = await self._read(request, fields, read)
        found, count = await self._computed(request, lease, prompts, ignored)
        vectors = [unit(vector[:dimensions]).tolist() for vector in found]
        if path == "embeddings":
            return {"embedding": vectors[0]}
        body = {"model": lease.model.name, "embeddings": vectors, "prompt_eval_count": count}
        return body | {"total_duration": time.monotonic_ns() - begin, "load_duration": 0}

    async def ollama_model(self, request: Any) -> Any:
        """The facts about a model that need no loading."""
        async with self._body(request) as fields:
            entry, _ = self.own.found(named_model(fields))
        return await self._in_reader(lambda: shown_model(*entry.facts()))

    async def ollama_models(self, _: Any, *, is_loaded: bool) -> Any:
        """The models, or those that are loaded."""
        own = []
        for name in self.own.names:
            entry, _ = self.own.found(name)
            model = entry.model if isinstance(entry.model, LanguageModel) else None
            one = described(name, model, entry.bytes, self.created)
            if is_loaded:
                one |= {"expires_at": moment(time.time() + entry.seconds_left), "size_vram": 0}
                one |= {} if model is None else {"context_length": model.decoder.context}
            if entry.model is not None or not is_loaded:
                own.append(one)
        return {"models": own}

    async def ollama_version(self, _: Any) -> Any:
        """The version of this program."""
        return {"version": __version__}

    async def _computed(
        self, request: Any, lease: Lease, inputs: Sequence[Any], ignored: Sequence[str]
    ) -> tuple[list[Any], int]:
        """Embeddings or scores, computed between the steps of the engine, and the tokens."""
        self._note(ignored)
        model = lease.model
        compute = model.score if isinstance(model, CrossEncoder) else model.embed

        async def results() -> list[Any]:
            return [await lease.worker.call(partial(compute, tokens)) for tokens in inputs]

        try:
            found = await _unless_left(request, results())
        finally:
            lease.release()
        count = sum(map(len, inputs))
        self.tokens["prompt"] += count
        return found, count

    def _check_room(self, lease: Lease, count: int) -> None:
        """Raise an ApiError if the queue has no room for that many more choices of answers."""
        model = lease.model
        sequences = 1 if isinstance(model, CrossEncoder) else model.decoder.sequences
        if lease.worker.unfinished + count > self.queue + sequences:
            raise ApiError(429, "the queue is full, try again later", code=_BUSY)

    def _note(self, ignored: Iterable[str]) -> None:
        """Name fields in the log, each of them once."""
        for name in ignored:
            if name not in self.ignored and len(self.ignored) < _MOST_NAMES:
                self.ignored.add(name)
                _LOG.warning("requests have the field %r, which is not known and ignored", name)

    @asynccontextmanager
    async def _body(self, request: Any) -> AsyncIterator[dict[str, Any]]:
        """The fields of a request, whose body counts until they are read.

        Errors:
            ApiError: of the body, or there are too many others that have not been read.
        """
        body = bytearray()
        try:
            await self._receive(request, body)
            yield await self._in_reader(lambda: fields_of(bytes(body)))
        finally:
            self.held -= len(body)

    async def _read(
        self,
        request: Any,
        fields: Mapping[str, Any],
        read: Callable[..., Any],
        *,
        orders: bool = False,
    ) -> tuple[Lease, Any]:
        """The model that a request names, loaded, and what `read` makes of the fields."""
        is_ollama = request.url.path.startswith("/api/")
        name = named_model(fields) if is_ollama else fields.get("model")
        lease = await _unless_left(request, self.own.lease(name, fields.get("keep_alive")))
        try:
            if isinstance(lease.model, CrossEncoder) and not orders:
                raise only_orders(lease.model.name)
            self._check_room(lease, 1)
            found = await self._in_reader(lambda: read(fields, lease.model))
        except BaseException:
            lease.release()
            raise
        return lease, found

    async def _in_reader(self, read: Callable[[], Any]) -> Any:
        """The result of a function; few run at a time, and others are served meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.reads, read)

    async def _receive(self, request: Any, body: bytearray) -> None:
        """Read a body. Errors: ApiError if it is too large or cut off, or not JSON of a page."""
        from starlette.requests import ClientDisconnect

        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        # A browser names the origin of a page, and asks for leave before it sends this type only.
        if "origin" in request.headers and kind != "application/json":
            found = f"found {kind[:100]!r}" if kind else "found none"
            raise ApiError(415, f"a page sends the Content-Type application/json, {found}")
        length = int(request.headers.get("content-length", 0))  # h11 checks that it is one
        if length > self.max_body:
            raise self._too_large()
        try:
            async for chunk in request.stream():
                body += chunk
                self.held += len(chunk)
                if len(body) > self.max_body:
                    raise self._too_large()
                if self.held > _MOST_BODIES * self.max_body:
                    raise ApiError(429, "too many requests are read, try again later", code=_BUSY)
        except ClientDisconnect:
            raise ApiError(499, "the client has left") from None

    def _too_large(self) -> ApiError:
        return ApiError(413, f"a request has at most {self.max_body} bytes")

    def _end(self, answer: Answer, job: Job, lease: Lease) -> None:
        job.cancel()
        lease.release()
        usage = answer.usage()
        for kind in ("prompt", "completion"):
            self.tokens[kind] += usage[f"{kind}_tokens"]


def _failed(request: Any, error: ApiError) -> Any:
    """The response for an error, as the API of the path has it."""
    from starlette.responses import JSONResponse

    return JSONResponse(error.body(request.url.path), error.status, headers=error.headers)


class _Logged:
    """An application each of whose requests has a line in a log when it has ended."""

    def __init__(self, app: Any, log: Callable[[str], object]) -> None:
        self.app, self.log = app, log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.monotonic(), 499

        async def send_noted(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        finally:
            client = (scope.get("client") or ["-"])[0]
            path = scope["path"][:100].encode("unicode_escape").decode()
            seconds = time.monotonic() - begin
            self.log(f"{client} {scope['method']} {path} {status} {seconds:.3f} s")


class _WithHeaders:
    """An application that gets requests for some hosts, whose headers are few and of one meaning.

    A page of another name that leads to this address is not let in by the browser's user.
    """

    def __init__(self, app: Any, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import Request

        headers = scope.get("headers", ())
        error = None
        if sum(len(name) + len(value) for name, value in headers) > _MOST_HEADERS:
            error = ApiError(431, f"a request has at most {_MOST_HEADERS} bytes of headers")
        elif {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
            # A proxy that goes by the length would take a part of the body for another request.
            error = ApiError(400, "a request has a Content-Length or a Transfer-Encoding, not both")
        elif self.hosts and scope["type"] == "http":
            host = dict(headers).get(b"host", b"").decode("latin-1")
            if re.sub(r":\d*$", "", host).lower() not in self.hosts:
                known = " or ".join(self.hosts)
                error = ApiError(400, f"the Host of a request is {known}, found {host[:100]!r}")
        if error is None:
            await self.app(scope, receive, send)
        else:
            response = _failed(Request(scope), error)
            response.headers["connection"] = "close"
            await response(scope, receive, send)


class _Stream:
    """The response that streams an answer, and what is to be done at its end.

    Each token comes through here, so that the usual response of starlette would take as long again
    as all else that a token needs.
    """

    status_code = 200

    def __init__(self, answer: Answer, job: Job, end: Callable[[], None]) -> None:
        self.answer, self.job, self.end = answer, job, end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        left = asyncio.ensure_future(_left(receive))
        left.add_done_callback(lambda _: self.job.cancel())  # which ends the pieces
        try:
            headers = ((b"content-type", self.answer.media_type.encode()), *_STREAMED)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send(send, self.answer.first())
            ended = await self._send_pieces(send)
            await self._send(send, ended, more_body=False)
        finally:
            left.cancel()
            self.end()

    async def _send_pieces(self, send: Any) -> str:
        """Send what comes; the events that end the stream."""
        while new := await self.job.received():
            self.answer.received()
            events = ""
            for piece in new:
                if piece.error is not None:
                    return events + self.answer.failed(_failure(piece.error))
                events += self.answer.chunk(piece)
            await self._send(send, events)
        return self.answer.last()

    async def _send(self, send: Any, events: str, *, more_body: bool = True) -> None:
        body = events.encode()
        await send({"type": "http.response.body", "body": body, "more_body": more_body})


async def _whole(job: Job, answer: Answer) -> tuple[list[str], list[str | None]]:
    """The texts of all choices, and why they ended. Errors: ApiError if one of them failed."""
    texts: list[str] = [""] * len(job.choices)
    reasons: list[str | None] = [None] * len(texts)
    while new := await job.received():
        answer.received()
        for piece in new:
            if piece.error is not None:
                raise _failure(piece.error)
            texts[piece.index] += piece.text
            reasons[piece.index] = piece.reason
    return texts, reasons


def _failure(error: Exception) -> ApiError:
    if isinstance(error, ParameterError):  # the form that it asks for
        return error_of(error)
    return ApiError(500, f"no answer can be computed: {error}")


async def _unless_left(request: Any, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of some work. Errors: ApiError if the client leaves before it is done."""
    whole = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait({whole, left}, return_when=asyncio.FIRST_COMPLETED)
        if not whole.done():
            raise ApiError(499, "the client has left")
        return whole.result()
    finally:
        whole.cancel()
        left.cancel()


async def _left(receive: Any) -> None:
    """Wait until the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
