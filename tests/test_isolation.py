"""Tests leave the process as they found it."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest

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


def test_torch_draws_the_same_in_every_test() -> None:
    torch = pytest.importorskip("torch")
    with isolation.restored():
        torch.rand(3)
    first = torch.rand(3)
    with isolation.restored():
        torch.manual_seed(5)
    assert torch.equal(torch.rand(3), first)


def test_torch_begins_with_the_same_seed_in_every_process() -> None:
    pytest.importorskip("torch")
    program = (
        "import sys; from tests import isolation; sys.meta_path.insert(0, isolation.SeededTorch());"
        "import torch; print(torch.initial_seed())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
