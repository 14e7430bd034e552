"""Chat templates from anywhere: what they may compute, and how long others wait for them."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest

from relaxpy.plugins.llm import template as module, template_process
from relaxpy.plugins.llm.config import ModelError
from relaxpy.plugins.llm.template import ChatTemplate

pytest.importorskip("jinja2")
MESSAGES: Any = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
SECONDS = 0.15
SLACK = 0.3
"""Of the CPU: the start of a process, and the reading of a request."""


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little time for each template, so that the tests take little."""
    renderer = module._renderer(os.getpid())
    renderer.end()
    monkeypatch.setattr(module, "_SECONDS", SECONDS)
    yield
    renderer.end()


def rendered(text: str) -> str:
    """What a template writes, or the error; its process keeps to its bounds."""
    before, begin = os.times(), time.process_time()
    try:
        found = ChatTemplate(text, {}).render(MESSAGES)
    except ModelError as error:
        found = str(error)
        assert "chat template" in found
    # All work is that of the other process, whose lock others wait for, and which others outlive.
    assert time.process_time() - begin < SLACK
    process = module._renderer(os.getpid())._process
    ended = os.times()
    used = ended.children_user + ended.children_system
    used -= before.children_user + before.children_system
    if process is not None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        [peak] = re.findall(r"VmPeak:\s*(\d+) kB", status)
        assert int(peak) * 1024 <= module._MEMORY
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    assert used < 2 * SECONDS + SLACK  # one to be read, one to be rendered
    return found


LARGE = "{% set x = 'a' * 3999999 %}"


HOSTILE = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in [1] * 99 %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in [1] * 99 %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in (1,) * 99 %}{% set n.x = n.x * 2 %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(99) %}"
    "{% set n.x = n.x | replace('a', 'aaaaaaaaa') %}{% endfor %}",
    "{{ 'a' * 10**12 }}",
    "{{ [0] * 10**12 }}",
    "{{ 2 ** (10 ** 10) }}",
    "{{ 'a'.ljust(10**11) }}",
    "{{ 'a' | center(10**11) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '%*d' % (2000000000, 1) }}",
    "{{ '{:{w[0]}}'.format(1, w=[2000000000]) }}",
    LARGE + "{% for i in range(9999) %}{{ x }}{% endfor %}",
    LARGE + "{% for i in range(99999) %}{% set y = x | upper %}{% endfor %}",
    LARGE + "{{ ([x] * 9999) | join }}",
    LARGE + "{{ ('a' * 999).replace('a', x) }}",
    LARGE + "{{ ('%s' * 999) % ([x] * 999) }}",
    LARGE + "{{ ('{0}' * 999).format(x) }}",
    LARGE + "{{ [" + "x, " * 999 + "] }}",
    "{{ ('\\n' * 999) | indent(3999999, true, true) }}",
    "{{ ('\\t' * 999).expandtabs(3999999) }}",
    "{{ [1] | tojson(indent=2000000000) }}",
    "{{ lipsum(n=100000) }}",
    "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ messages.append(1) }}",
    "{% set n = namespace() %}{% set n.__call__ = strftime_now %}{{ n('%Y') }}",
    "{{ namespace(**{'__call__': strftime_now})('%Y') }}",
    "{{ 1 / 0 }}",
    "{{ 1 + 'a' }}",
    "{{ messages[9].content }}",
    "{% include '/etc/passwd' %}",
    "{{ raise_exception(messages) }}",
    # Work in one call, or before a call; and in what is no call.
    "{{ ([1] | slice(3000000) | join('x' * 10000)) | length }}",
    "{{ 'x'.join([1] | map('center', 990) | list) }}{{ ['x' * 990] * 999999999 }}",
    "{% set x %}{% for i in range(60000) %}" + "a" * 40000 + "{% endfor %}{% endset %}",
    "{% filter upper %}{% for i in range(60000) %}" + "a" * 40000 + "{% endfor %}{% endfilter %}",
    "{% macro m() %}{% for i in range(60000) %}" + "a" * 40000 + "{% endfor %}{% endmacro %}"
    "{{ m() | length }}",
    "{{ ([[1]] * 99999) | sum(start=[]) | length }}",
    LARGE + "{% for i in range(99999) %}{% if 'aaaaaaaaaaab' in x %}{% endif %}{% endfor %}",
    LARGE + "{% for i in range(99999) %}{% if x is lower %}{% endif %}{% endfor %}",
    LARGE + "{% set y = x ~ '' %}{% for i in range(99999) %}{% if x == y %}{% endif %}{% endfor %}",
    LARGE + "{% for i in range(99999) %}{% set y = x[1:] %}{% endfor %}",
    LARGE + "{% for i in range(99999) %}{% set y = x.split('a') %}{% endfor %}",
    "{{ 1 | round(39999999, 'ceil') }}",
    "{{ ('{' ~ ':' * 3000000).format(1) }}",
    "{{ ('{' ~ ':' * 3000000) | format(1) }}",
    "{{ '%' * 3999999 % 1 }}",
    # Work of the compilers.
    "{% if x %}a{% endif %}" * 99999,
    "{% if x %}a{% endif %}" * 11000 + "{{ raise_exception('x') }}",
    "{% for a in [1] %}" * 21 + "{% endfor %}" * 21,
    "{% if 1 %}" * 100 + "{% endif %}" * 100,
    "{{ " + "(" * 9999 + ")" * 9999 + " }}",
    "{{ " + "-" * 99999 + "1 }}",
    "{{ 1" + " | abs" * 30000 + " }}",
    "{{ " + "[" * 150 + "]" * 150 + "",
]


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_template_is_an_error_of_the_model(text: str) -> None:
    assert "chat template" in rendered(text)
    assert ChatTemplate("{{ messages | length }}", {}).render(MESSAGES) == "2"


VALUES = ("x", "y", "messages", "'ab'", "3", "999999", "[1, 'a']", "'a' * 999999", "range(99999)")
FILTERS = """
    abs attr('x') batch(2) capitalize center(999999) default(1) dictsort escape first float
    format(x) groupby(0) indent(99999) int items join(y) last length list lower map('upper') max min
    pprint random reject replace('a', y) reverse round(9999,'ceil') select slice(999999) sort string
    striptags sum(start=[]) title tojson(indent=9999) trim truncate unique upper urlencode urlize
    wordcount wordwrap(2) xmlattr
"""
FORMS = (
    *("{% for x in (E) %}B{% endfor %}", "{% if (E) in (E) %}B{% endif %}", "{{ E }}"),
    *("{% set x %}B{% endset %}B", "{% set x = E %}B", "{% set y = (E)[1:] %}B", "BB", "text"),
    *("{% filter upper %}B{% endfilter %}", "{% macro m(x, y) %}B{% endmacro %}{{ m(E, E) }}"),
    *("{% if (E) == (E) %}B{% else %}B{% endif %}", "{% for x in range(99999) %}B{% endfor %}"),
    "{% call(x) m(E) %}B{% endcall %}",
)
EXPRESSIONS = (
    *("V", "(E) + (E)", "(E) ~ (E)", "(E) * (E)", "(E) | F", "(E)[::2]", "(E) is lower", "V"),
    *("(E) ** (E)", "(E).split(E)", "(E).join(E)", "'{:>{}}'.format(E, E)", "(E) % (E)", "V"),
    "(E) if (E) < (E) else (E)",
)


def drawn(rng: random.Random, letter: str, depth: int) -> str:
    """A template (B), or an expression (E), with parts of the grammar."""
    if depth == 0:
        return rng.choice(VALUES) if letter == "E" else "{{ x }}"
    form = rng.choice(FORMS if letter == "B" else EXPRESSIONS)
    filters = re.findall(r"\w+(?:\([^)]*\))?", FILTERS)
    choices = {"V": lambda: rng.choice(VALUES), "F": lambda: rng.choice(filters)}
    parts = re.split(r"\b([BEVF]+)\b", form)
    return "".join(
        part
        if not re.fullmatch("[BEVF]+", part)
        else "".join(choices.get(p, lambda p=p: drawn(rng, p, depth - 1))() for p in part)
        for part in parts
    )


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("seed", range(5))
def test_no_drawn_template_takes_more_than_its_time_and_memory(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        rendered("{% set x, y = 'ab', 7 %}" + drawn(rng, "B", rng.randrange(2, 7)))


@pytest.mark.usefixtures("_short")
def test_others_wait_no_longer_than_a_template_may_take() -> None:
    text = "{% for i in range(99999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"
    slow, quick = ChatTemplate(text, {}), ChatTemplate("done", {})
    failed: list[str] = []

    def fail() -> None:
        with pytest.raises(ModelError, match=r"more than 0\.15 seconds of CPU time") as caught:
            slow.render(MESSAGES)
        failed.append(str(caught.value))

    threads = [Thread(target=fail) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert quick.render(MESSAGES) == "done"
    for thread in threads:
        thread.join()
    assert len(failed) == 3


@pytest.mark.usefixtures("_short")
def test_a_process_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", 60)
    text = "{% for i in range(99999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"
    slow = ChatTemplate(text, {})
    monkeypatch.setattr(module, "_WAIT", 0.5)
    begin = time.perf_counter()
    with pytest.raises(ModelError, match=r"the chat template takes more than 0\.5 seconds, or"):
        slow.render(MESSAGES)
    assert time.perf_counter() - begin < 10


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("program", [None, "/nothing/python", "/bin/false"])
def test_a_process_that_cannot_run_is_an_error(program: Any, monkeypatch: Any) -> None:
    module._renderer(os.getpid()).end()
    monkeypatch.setattr("sys.executable", program)
    with pytest.raises(ModelError, match=r"sys\.executable names none|does not start|code 1$"):
        ChatTemplate("x", {})


def test_a_process_that_somebody_ended_is_started_again() -> None:
    template = ChatTemplate("{{ messages | length }}", {})
    for _ in range(3):
        process = module._renderer(os.getpid())._process
        assert process is not None
        process.kill()
        process.wait()
        assert template.render(MESSAGES) == "2"


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_after_an_interrupt_the_next_text_is_its_own() -> None:
    slow = ChatTemplate("{% for i in range(99999) %}{% endfor %}" * 8 + "other", {})
    quick = ChatTemplate("own", {})
    slow.render(MESSAGES)
    timer = Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _ = [slow.render(MESSAGES) for _ in range(100)]
    assert quick.render(MESSAGES) == "own"


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limits")
def test_a_system_that_refuses_a_limit_of_memory_is_no_error(monkeypatch) -> None:
    import resource

    asked = []

    def refuse(kind: int, limits: tuple[int, int]) -> None:
        asked.append(kind)
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    template_process.limit_memory(1 << 20)
    assert asked == [resource.RLIMIT_AS, resource.RLIMIT_FSIZE]


def test_a_template_that_is_too_long_is_not_compiled() -> None:
    with pytest.raises(ModelError, match=r"has 262145 characters, expected at most 262144"):
        ChatTemplate("x" * (256 * 1024 + 1), {})


def test_a_forked_process_renders_by_one_of_its_own() -> None:
    template = ChatTemplate("{{ messages | length }}", {})
    template.render(MESSAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        os._exit(0 if template.render(MESSAGES) == "2" else 1)
    assert template.render(MESSAGES) == "2"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_values_that_are_not_of_json_are_errors() -> None:
    with pytest.raises(ModelError, match="a value that is not one of JSON"):
        ChatTemplate("x", {}).render([{"role": "user", "content": "a", "more": object()}])


def test_variables_reach_a_template() -> None:
    template = ChatTemplate("{{ enable_thinking }}{{ messages | length }}", {})
    assert (
        template.render(MESSAGES, variables={"enable_thinking": False, "messages": 1}) == "False2"
    )


def test_texts_of_users_are_no_formats() -> None:
    content = "%12345678d {:>12345678} {:{x}} %*d 3.14159265 id=12345678 " * 500
    template = ChatTemplate(
        "{% for m in messages %}{% set c = m.content.strip().split('</think>')[-1] %}"
        "{{ c.replace('~', '') | trim ~ '|' ~ '%s' % m.role }}{% endfor %}",
        {},
    )
    many = [{"role": "user", "content": content}] * 100
    assert template.render(many) == f"{content.strip()}|user" * 100


def test_long_conversations_take_few_steps() -> None:
    template = ChatTemplate(
        "{% for m in messages[::-1] %}{% set k = messages | length - loop.index %}{% endfor %}"
        "{% for m in messages %}{{ m.content.strip() | trim + '\\n' }}{% endfor %}",
        {},
    )
    for count, size in ((5000, 10), (3, 1_000_000)):
        messages = [{"role": "user", "content": "x" * size}] * count
        assert template.render(messages) == ("x" * size + "\n") * count
