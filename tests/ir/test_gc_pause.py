"""The collector rests while much is built, and is as it was afterwards."""

import gc
from collections.abc import Callable, Iterator
from weakref import ref

import pytest

import relaxpy
from relaxpy import relax
from relaxpy.ir import load_json, save_json, structural_equal, structural_hash
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.script import from_source
from relaxpy.support import gc_pause
from relaxpy.support.gc_pause import gc_paused


@gc_paused
def is_collecting(*, fail: bool = False) -> bool:
    if fail:
        raise KeyError("gone")
    return gc.isenabled()


def test_the_collector_rests_and_goes_on():
    assert gc.isenabled()
    assert not is_collecting()
    assert gc.isenabled()
    with pytest.raises(KeyError):
        is_collecting(fail=True)
    assert gc.isenabled()


def test_who_has_stopped_the_collector_keeps_it_stopped():
    gc.disable()
    try:
        assert not is_collecting()
        assert not gc.isenabled()
    finally:
        gc.enable()


def searches(work: Callable[[], object]) -> int:
    """How often Python looked for garbage in cycles during `work`."""
    found: list[str] = []

    def note(phase: str, sinfo: dict[str, int]) -> None:
        found.append(phase)

    gc.callbacks.append(note)
    try:
        work()
    finally:
        gc.callbacks.remove(note)
    return found.count("start")


@gc_paused
def linked_lists(number: int = 100_000) -> list[object]:
    """More objects than a first visit may take, the first of which refers to itself."""
    first = Linked()
    first.other = first
    return [first, *([] for _ in range(number))]


class Linked:
    """An object with a weak reference."""

    other: object = None


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program that starts, and has frozen no object."""
    gc.unfreeze()
    monkeypatch.setattr(gc_pause, "_new_objects", gc_pause._NewObjects())
    yield
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("often", "thawed")
@pytest.mark.parametrize("number", [10_000, 100_000])
def test_what_was_built_is_not_visited_when_the_collector_goes_on(number: int) -> None:
    kept: list[object] = []

    def work() -> None:
        kept.append(linked_lists(number))
        kept.append([[] for _ in range(100)])

    assert min(searches(work) for _ in range(2)) == 0
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("often", "thawed")
@pytest.mark.parametrize("number", [10_000, 100_000])
def test_garbage_in_cycles_of_many_builds_is_found(number: int) -> None:
    found = [ref(linked_lists(number)[0]) for _ in range(40)]
    assert any(entry() is None for entry in found)


@pytest.mark.usefixtures("often", "thawed")
@pytest.mark.parametrize("number", [3000, 10_000, 100_000])
def test_garbage_in_cycles_of_users_is_found_beside_many_builds(number: int) -> None:
    """As soon as without builds, but for a few: each may hold much memory."""
    given_up: list[ref[Linked]] = []
    most = 0
    for _ in range(60):
        own = Linked()
        own.other = own
        given_up.append(ref(own))
        linked_lists(number)
        _more = [[] for _ in range(3000)]
        most = max(most, sum(entry() is not None for entry in given_up))
    assert most <= 40


def test_objects_that_others_froze_stay_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    assert linked_lists()
    # Some of them may be released, and are not counted any more.
    assert 0 < gc.get_freeze_count() <= before


@pytest.fixture
def often() -> Iterator[None]:
    """The collector runs as often as it does by default."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("often")
def test_large_programs_are_handled_without_searching_them_for_cycles() -> None:
    x = rx.Var("x", rx.TensorStructInfo((4,), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        value: rx.Expr = x
        for _ in range(2000):
            value = builder.emit(relax.op.add(value, x))
        builder.emit_func_output(value)
    module = builder.finalize()
    text = save_json(module)
    uses: dict[str, Callable[[], object]] = {
        "check": lambda: relax.analysis.check_well_formed(module),
        "normalize": lambda: relax.transform.Normalize()(load_json(text)),
        "print": lambda: module.script(),
        "read": lambda: from_source(module.script()),
        "save": lambda: save_json(module),
        "compare": lambda: structural_equal(module, load_json(text)),
        "hash": lambda: structural_hash(module),
        "legalize": lambda: relax.transform.LegalizeOps()(module),
        "compile": lambda: relaxpy.compile(module),
    }
    module.script(), relax.transform.Normalize()(module)  # import the printer and the pass
    assert searches(lambda: [[] for _ in range(100_000)])  # so that the count below says something
    # One may come between the functions that are called, none in the course of them.
    counts = {name: searches(use) for name, use in uses.items()}
    assert {name: count for name, count in counts.items() if count > 2} == {}
