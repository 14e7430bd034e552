"""Struct info of operators that extend images or rearrange their pixels, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.script import ir as I, relax as R
from tests.ir.relax.op.test_rules import OPEN, UNKNOWN, Infos, M, Made, N, check, refused
from tests.ir.relax.sinfos import rank, tensor

INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (lambda x: op.nn.pad(x, (0, 1, 2, 3)), (tensor(2, N),), tensor(3, N + 5)),
    (lambda x: op.nn.pad(x, (0, 1, 2, -2)), (tensor(2, N),), tensor(3, N)),
    (lambda x: op.nn.pad(x, (-1, -1)), (tensor(2),), tensor(0)),
    (lambda x: op.nn.pad(x, (1, 1), "reflect"), (tensor(2),), tensor(4)),
    (lambda x: op.nn.pad(x, (3, 0), "circular"), (tensor(3, dtype=""),), tensor(6, dtype="")),
    (
        lambda x: op.nn.pad(x, (9, 9), "replicate"),
        (tensor(1, dtype="int8"),),
        tensor(19, dtype="int8"),
    ),
    (lambda x: op.nn.pad(x, (9, 9), "reflect"), (tensor(N),), tensor(N + 18)),
    (lambda x: op.nn.pad(x, (1, 1, 0, 0)), (rank(2),), rank(2)),
    (lambda x: op.nn.pad(x, (1, 1, 0, 0)), (OPEN,), rank(2)),
    (lambda x: op.nn.pad(x, ()), (tensor(),), tensor()),
    (lambda x: op.nn.pixel_shuffle(x, 2), (tensor(2, 8, N, 3),), tensor(2, 2, N * 2, 6)),
    (lambda x: op.nn.pixel_shuffle(x, 3), (tensor(N * 9, 1, M),), tensor(N, 3, M * 3)),
    (lambda x: op.nn.pixel_shuffle(x, 2), (tensor(N, 1, 1),), tensor(N // 4, 2, 2)),
    (lambda x: op.nn.pixel_shuffle(x, 2), (rank(4),), rank(4)),
    (lambda x: op.nn.pixel_shuffle(x, 2), (UNKNOWN,), UNKNOWN),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (
        lambda x: op.nn.pad(x, (1, 1)),
        (tensor(2, 3),),
        "pad_width holds two widths for each axis, found 2 widths for R.Tensor((2, 3)",
    ),
    (
        lambda x: op.nn.pad(x, (1, 1, 1)),
        (OPEN,),
        "pad_width holds pairs of widths, found [1, 1, 1]",
    ),
    (
        lambda x: op.nn.pad(x, (-2, -1)),
        (tensor(2),),
        'pad_width (-2, -1) of axis 0 of data R.Tensor((2,), dtype="float32") removes more',
    ),
    (
        lambda x: op.nn.pad(x, (0, 0, 3, 0), "reflect"),
        (tensor(9, 3),),
        'pad_width (3, 0) of axis 1 of data R.Tensor((9, 3), dtype="float32") is at most 2 in '
        "mode 'reflect'",
    ),
    (
        lambda x: op.nn.pad(x, (0, 4), "circular"),
        (tensor(3),),
        'pad_width (0, 4) of axis 0 of data R.Tensor((3,), dtype="float32") is at most 3 in '
        "mode 'circular'",
    ),
    (
        lambda x: op.nn.pad(x, (0, 1), "replicate"),
        (tensor(0),),
        "repeats elements of an axis that has none",
    ),
    (
        lambda x: op.nn.pad(x, (1, 1), pad_value=0.5),
        (tensor(3, dtype="int32"),),
        'pad_value is an integer for R.Tensor((3,), dtype="int32"), found 0.5',
    ),
    (lambda x: op.nn.pixel_shuffle(x, 0), (OPEN,), "upscale_factor is positive, found 0"),
    (
        lambda x: op.nn.pixel_shuffle(x, 2),
        (tensor(4, 4),),
        "data has rank 3 at least, found R.Tens",
    ),
    (
        lambda x: op.nn.pixel_shuffle(x, 2),
        (tensor(6, 4, 4),),
        "the channels of data, axis 0, are a multiple of upscale_factor**2 = 4, found "
        "R.Tensor((6, 4, 4)",
    ),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    refused(make, sinfos, message)


def test_widths_are_listed_for_every_axis() -> None:
    with pytest.raises(RelaxpyError) as caught:
        op.nn.pad(rx.Var("x", tensor(2, 3)), (1, 1))
    assert caught.value.diagnostic.hint.startswith("list (before, after) of every axis")


def test_modes_of_other_libraries_are_refused() -> None:
    with pytest.raises(
        MisuseError, match=r"pad_mode is 'constant' or 'reflect' or .*, found 'edge'"
    ):
        op.nn.pad(rx.Var("x", tensor(2)), (1, 1), "edge")


@I.ir_module
class Symbolic:
    @R.function
    def reflect(x: R.Tensor(("n", "m"), "float32")):
        return R.nn.pad(x, [1, 2, 3, 0], pad_mode="reflect")

    @R.function
    def shuffle(x: R.Tensor(("n", 4, "h", "w"), "float32")):
        return R.nn.pixel_shuffle(x, 2)

    @R.function
    def channels(x: R.Tensor(("c", 2, 3), "float32")):
        return R.nn.pixel_shuffle(x, 2)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_sizes_of_the_program(target: str) -> None:
    executable = relaxpy.compile(Symbolic, target)
    x = np.arange(20, dtype="float32").reshape(4, 5)
    expected = np.pad(x, ((1, 2), (3, 0)), mode="reflect")
    np.testing.assert_array_equal(executable["reflect"](x), expected)
    for name, shape in (("shuffle", (2, 4, 3, 5)), ("channels", (8, 2, 3))):
        image = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        *lead, c, h, w = shape
        k = len(lead)
        order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
        blocks = image.reshape(*lead, c // 4, 2, 2, h, w).transpose(order)
        expected = blocks.reshape(*lead, c // 4, 2 * h, 2 * w)
        np.testing.assert_array_equal(executable[name](image), expected)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_sizes_that_do_not_fit_are_refused_when_they_arrive(target: str) -> None:
    executable = relaxpy.compile(Symbolic, target)
    with pytest.raises(RelaxpyError):
        executable["reflect"](np.zeros((4, 3), "float32"))
    with pytest.raises(RelaxpyError, match="multiple of upscale_factor"):
        executable["channels"](np.zeros((6, 2, 3), "float32"))
