"""A small model, compiled once."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.plugins.llm import tiny


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

    def __init__(self, model: Any, **limits: int) -> None:
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
