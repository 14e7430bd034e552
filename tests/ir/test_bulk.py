"""The collector rests while much is built, and is as it was afterwards."""

import gc

import pytest

from relaxpy.ir.bulk import in_bulk


@in_bulk
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
