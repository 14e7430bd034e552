"""Tests leave the process as they found it."""

import os
import random

import numpy as np

import relaxpy
from relaxpy.ir.op import Op
from tests import isolation


def test_what_a_test_changes_is_restored() -> None:
    def change() -> tuple[float, float]:
        relaxpy.register_func("test.isolation", abs, pure=True)
        relaxpy.register_func("vm.builtin.shape_of", abs, override=True)
        Op.get("relax.exp").set_attr("TIsolation", 1)
        os.environ["RELAXPY_ISOLATION"] = "1"
        del os.environ["PATH"]
        return random.random(), np.random.rand()

    path, user_changes = os.environ["PATH"], Op.user_changes
    with isolation.restored():
        first = change()
    assert relaxpy.get_global_func("test.isolation", allow_missing=True) is None
    assert relaxpy.get_global_func("vm.builtin.shape_of") is not abs
    assert os.environ.get("RELAXPY_ISOLATION") is None
    assert os.environ["PATH"] == path
    assert Op.user_changes == user_changes
    with isolation.restored():
        assert change() == first
