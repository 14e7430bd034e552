from collections.abc import Iterator
from functools import partial

import pytest

from relaxpy.errors import MisuseError, PackedFuncError, UnknownNameError, UnknownPackedFuncError
from relaxpy.exec import registry
from relaxpy.exec.registry import (
    get_global_func,
    is_registered_pure,
    list_global_func_names,
    register_func,
    remove_global_func,
)


@pytest.fixture(autouse=True)
def names() -> Iterator[None]:
    before = dict(registry._functions)
    yield
    for name in list_global_func_names():
        if name not in before:
            remove_global_func(name)


def identity(x: object) -> object:
    return x


def test_a_function_is_found_under_its_name() -> None:
    assert register_func("test.identity", identity) is identity
    assert get_global_func("test.identity") is identity
    assert "test.identity" in list_global_func_names()


def test_register_func_decorates() -> None:
    @register_func("test.decorated")
    def decorated() -> int:
        return 1

    assert get_global_func("test.decorated") is decorated

    @register_func
    def test_own_name() -> int:
        return 2

    assert get_global_func("test_own_name") is test_own_name


def test_a_taken_name_needs_override() -> None:
    register_func("test.twice", identity)
    with pytest.raises(PackedFuncError, match=r"'test\.twice' is already registered") as caught:
        register_func("test.twice", len)
    assert isinstance(caught.value, ValueError)
    register_func("test.twice", len, override=True)
    assert get_global_func("test.twice") is len


@pytest.mark.rule("EV-13")
def test_an_unknown_name_is_refused_with_close_names() -> None:
    register_func("test.identity", identity)
    with pytest.raises(UnknownPackedFuncError, match=r"no packed function .* 'test\.identty'") as e:
        get_global_func("test.identty")
    assert "did you mean 'test.identity'?" in str(e.value)
    assert isinstance(e.value, (KeyError, PackedFuncError))
    assert isinstance(e.value, UnknownNameError)
    assert get_global_func("test.identty", allow_missing=True) is None
    with pytest.raises(UnknownPackedFuncError, match=r"\['f'\]"):
        get_global_func(["f"])  # type: ignore[call-overload]


def test_a_removed_function_is_gone() -> None:
    register_func("test.gone", identity)
    remove_global_func("test.gone")
    with pytest.raises(UnknownPackedFuncError):
        remove_global_func("test.gone")


@pytest.mark.rule("PU-4")
def test_a_function_may_be_registered_as_pure() -> None:
    register_func("test.pure", identity, pure=True)
    register_func("test.impure", identity)
    assert is_registered_pure("test.pure")
    assert not is_registered_pure("test.impure")
    register_func("test.pure", identity, override=True)
    assert not is_registered_pure("test.pure")


@pytest.mark.parametrize(
    ("name", "func"), [(3, identity), ("", identity), ("test.x", 5), (partial(identity), None)]
)
def test_misuse_is_named(name: object, func: object) -> None:
    with pytest.raises(MisuseError, match="packed function") as caught:
        register_func(name, func)  # type: ignore[call-overload]
    assert isinstance(caught.value, TypeError)
