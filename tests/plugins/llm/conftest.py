"""A small model, compiled once."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.plugins.llm import parts, tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a model."""
    for package in ("safetensors", "tokenizers", "jinja2"):
        pytest.importorskip(package)
    return tiny.write_folder(tmp_path_factory.mktemp("models") / "tiny", tiny.config())


@pytest.fixture(scope="session")
def lm(folder: Path) -> Any:
    """The model, compiled; its cache has room for about three prompts with answers."""
    from relaxpy.llm import load

    return load(folder, sequences=5)


class Running:
    """A server that runs in a thread, as others may reach it."""

    def __init__(self, model: Any, **limits: Any) -> None:
        import uvicorn

        from relaxpy.plugins.llm.server import application, configuration

        self.server = uvicorn.Server(configuration(application(model, **limits), port=0))
        self.thread = Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.clients: list[Any] = []

    def client(self, key: str = "none") -> Any:
        from openai import OpenAI

        self.clients.append(OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0))
        return self.clients[-1]

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def running(lm: Any) -> Iterator[Running]:
    """A server of the model."""
    for package in ("starlette", "uvicorn", "openai", "httpx"):
        pytest.importorskip(package)
    server = Running(lm, max_tokens=100)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Models that share a decoder, by the names of their templates."""
    for package in ("safetensors", "tokenizers", "jinja2", "llguidance"):
        pytest.importorskip(package)
    from tokenizers import AddedToken

    from relaxpy.llm import LanguageModel, load
    from relaxpy.support.dataclass import replace

    own = tiny.tokenizer()
    own.add_special_tokens(parts.HIDDEN)
    own.add_tokens([AddedToken(text, special=False, normalized=False) for text in parts.SHOWN])
    raw = tiny.config(vocab_size=own.get_vocab_size(), max_position_embeddings=1024)
    folder: Path = tiny.write_folder(tmp_path_factory.mktemp("parts") / "tiny", raw)
    own.save(str(folder / "tokenizer.json"))
    first = load(folder, sequences=4)
    named = {**parts.TEMPLATES, "thinks": parts.THINKS, "plain": tiny.TEMPLATE}
    return {
        name: LanguageModel(replace(first._files, template=text), first.decoder)
        for name, text in named.items()
    }


@pytest.fixture
def serve(models: Any) -> Iterator[Any]:
    """Starts a server of one of these models; the client of the package openai."""
    for package in ("starlette", "uvicorn", "openai", "httpx"):
        pytest.importorskip(package)
    servers: list[Running] = []

    def start(name: str) -> Any:
        servers.append(Running(models[name], max_tokens=400))
        return servers[-1].client()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets models write a text, whatever their scores."""
    from relaxpy.llm import Sampling

    def start(lm: Any, text: str) -> None:
        tokens = [*lm.tokenizer.encode(text, is_rendered=True), 3]
        # Beside the other arguments of `choose`: the tokens that were chosen.
        monkeypatch.setattr(Sampling, "choose", lambda *args: tokens[len(args[4])])

    return start
