"""Tests leave the process as they found it."""

import os
import random

import numpy as np

import relaxpy
from tests import isolation


def test_what_a_test_changes_is_restored() -> None:
    def change() -> tuple[float, float]:
        relaxpy.register_func("test.isolation", abs, pure=True)
        relaxpy.register_func("vm.builtin.shape_of", abs, override=True)
        os.environ["RELAXPY_ISOLATION"] = "1"
        del os.environ["PATH"]
        return random.random(), np.random.rand()

    path = os.environ["PATH"]
    with isolation.restored():
        first = change()
    assert relaxpy.get_global_func("test.isolation", allow_missing=True) is None
    assert relaxpy.get_global_func("vm.builtin.shape_of") is not abs
    assert os.environ.get("RELAXPY_ISOLATION") is None
    assert os.environ["PATH"] == path
    with isolation.restored():
        assert change() == first
