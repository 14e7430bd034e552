"""Packed functions that tests of programs call, and a check of saved functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relaxpy.exec.runtime.compare import assert_allclose
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Array
from relaxpy.ir.core.device import Device

if TYPE_CHECKING:
    from relaxpy.exec.vm import VirtualMachine


def check_saved_func(vm: VirtualMachine, func_name: str, *inputs: object) -> Any:
    """The result of a function, which is also saved with its arguments and called again.

    The saved function is called as `func_name`, followed by "_saved".

    Errors:
        AssertionError: the results differ.
    """
    saved_name = f"{func_name}_saved"
    vm.save_function(func_name, saved_name, *inputs)
    result = vm[func_name](*inputs)
    assert_allclose(vm[saved_name](), result)
    return result


@provided("test.vm.move")
def _move(value: Any) -> Any:
    return value


@provided("test.vm.add")
def _add(a: Array, b: Array) -> Array:
    return np.asarray(a + b)


@provided("test.vm.mul")
def _mul(a: Array, b: Array) -> Array:
    return np.asarray(a * b)


@provided("test.vm.equal_zero")
def _equal_zero(a: Array) -> Array:
    return np.asarray(not a.any())


@provided("test.vm.subtract_one")
def _subtract_one(a: Array) -> Array:
    return np.subtract(a, 1)


@provided("test.vm.identity")
def _identity(a: Array, output: Array) -> None:
    output[:] = a


@provided("test.vm.tile")
def _tile(a: Array, output: Array) -> None:
    output[:] = np.tile(a, (1, 2))


@provided("test.vm.add_scalar")
def _add_scalar(a: int, b: int) -> int:
    return a + b


@provided("test.vm.get_device_id")
def _get_device_id(device: Device) -> int:
    return device.index


@provided("test.vm.check_if_defined")
def _check_if_defined(value: object) -> bool:
    return value is not None
