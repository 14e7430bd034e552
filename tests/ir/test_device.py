"""Devices by kind and number."""

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.core.device import Device, cpu, cuda, device, split_device


def test_devices_are_named_by_kind_and_number() -> None:
    assert device("cuda:1") == device("cuda", 1) == cuda(1) == Device("cuda", 1)
    assert device("cpu") == cpu() == cpu(0)
    assert device("cuda:1", 1).index == 1
    assert str(cuda(3)) == "cuda:3"
    assert (device(1), device(2, 1), device(15)) == (cpu(), cuda(1), Device("webgpu"))
    assert (device("llvm"), device("c", 1), device("nvptx:2")) == (cpu(), cpu(1), cuda(2))
    assert [one.exist for one in (cpu(), cpu(1), cuda())] == [True, False, False]
    assert [one.dlpack_device_type() for one in (cpu(1), cuda(1), device(15))] == [1, 2, 15]
    assert cuda(1)._DEVICE_TYPE_TO_NAME[cuda(1).dlpack_device_type()] == "cuda"
    assert split_device("cuda:12") == ("cuda", 12)


@pytest.mark.parametrize(
    "name", ["", ":1", "cuda:", "cuda:x", "cuda:-1", "cuda:\u0661", "cuda:" + "9" * 30, None, 3]
)
def test_other_names_are_not_devices(name: object) -> None:
    with pytest.raises(MisuseError, match="a device is its kind and number, found"):
        device(name)  # type: ignore[arg-type]


def test_a_number_is_said_once_or_twice_alike() -> None:
    with pytest.raises(MisuseError, match="device cuda:1 does not have the number 2"):
        device("cuda:1", 2)
    for index in (-1, 1.5, True):
        with pytest.raises(MisuseError, match="numbered from 0"):
            device("cuda", index)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="did you mean 'cuda'"):
        device("cudda")
