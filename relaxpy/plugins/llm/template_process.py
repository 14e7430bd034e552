"""The process that renders chat templates: a program of its own, which imports Jinja alone.

It reads requests from standard input, a line of JSON for each, and writes a line of JSON for each.
The system bounds its memory, and the CPU time of each request, whatever a template computes: it
ends the process. Where the system has no such limits, the parent bounds the time.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

MOST_LETTERS = 16_000_000
"""The most characters of a rendered text."""


def environment() -> Any:
    """Jinja's sandbox, with what transformers has in it for templates."""
    import jinja2
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """The block `generation`, which marks answers for training, is its content."""

        tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

        # `override` is of a package that this program does not need.
        def parse(self, parser: Any) -> Any:  # type: ignore[explicit-override,unused-ignore]
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Environment(ImmutableSandboxedEnvironment):  # type: ignore[misc,unused-ignore]
        def _parse(self, *args: Any) -> Any:  # type: ignore[explicit-override,unused-ignore]
            tree: Any = super()._parse(*args)
            for name in tree.find_all(nodes.NSRef):
                public(name.attr)
            return tree

    def public(name: object) -> None:
        if str(name).startswith("_"):  # Python would find it in place of its own attributes
            raise SecurityError(f"a namespace has no attribute {name!r:.60}")

    def names(*args: Any, **options: Any) -> Any:
        attributes = dict(*args, **options)
        for name in attributes:
            public(name)
        return Namespace(attributes)

    def refuse(message: object) -> None:
        raise jinja2.TemplateError(str(message))

    def now(form: str) -> str:
        return datetime.now().strftime(form)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    own = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    del own.globals["lipsum"]
    own.globals |= {"raise_exception": refuse, "strftime_now": now, "namespace": names}
    own.filters["tojson"] = to_json
    return own


def answer(compiled: Callable[[str], Any], text: str, values: dict[str, Any] | None) -> list[str]:
    """The text of a template, or why there is none; without values whether it can be read."""
    from jinja2 import TemplateError

    try:
        template = compiled(text)
    except Exception as error:  # of Jinja, or of Python's compiler
        return ["error", f"cannot be read: {error}"[:1000]]
    if values is None:
        return ["text", ""]
    parts, size = [], 0
    try:
        for part in template.generate(values):
            parts.append(part)
            size += len(part)
            if size > MOST_LETTERS:
                return ["error", f"writes more than {MOST_LETTERS} letters"]
        return ["text", "".join(parts)]
    except TemplateError as error:
        return ["error", f"refuses the messages: {error}"[:1000]]
    except Exception as error:  # of any operation that a template may write
        return ["error", f"fails: {error!r:.200}"]


def limit_memory(memory: int) -> None:
    """Bound this process to so many bytes of memory and to no files, where the system does that."""
    if hasattr(signal, "setitimer"):
        import resource

        for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0)):
            _, limit = resource.getrlimit(kind)
            # macOS refuses fewer bytes than the libraries of the system have.
            with suppress(OSError, ValueError):
                resource.setrlimit(kind, (most if limit < 0 else min(most, limit), limit))


def main(seconds: float, memory: int) -> None:
    """Answer requests, with limits of CPU time in seconds and of memory in bytes."""
    own = environment()
    compiled = lru_cache(maxsize=4)(own.from_string)
    import jinja2.debug  # noqa: F401  # which an error would import

    has_limits = hasattr(signal, "setitimer")
    limit_memory(memory)
    for line in sys.stdin.buffer:
        if has_limits:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # whose signal ends the process
        try:
            reply = json.dumps(answer(compiled, *json.loads(line)))
        except MemoryError:
            reply = json.dumps(["error", "needs too much memory"])
        if has_limits:
            signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path += sys.argv[3:]
    main(float(sys.argv[1]), int(sys.argv[2]))
