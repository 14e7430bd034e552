"""Modules of PyTorch, exported, traced and compiled while they run, beside PyTorch itself."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import relaxpy

torch: Any = pytest.importorskip("torch")
from relaxpy.errors import RelaxpyError  # noqa: E402
from relaxpy.plugins.importing.unsupported import FrontendError  # noqa: E402
from relaxpy.plugins.torch import decompose, dynamo, mutation  # noqa: E402
from relaxpy.relax.frontend.torch import (  # noqa: E402
    dynamo_capture_subgraphs,
    from_exported_program,
    from_fx,
    relax_dynamo,
)

F = torch.nn.functional
# A warning of PyTorch about what its own compiler asks.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
TARGETS = ["numpy", "native"]
BATCH = torch.export.Dim("batch", min=1, max=64)


class Module(torch.nn.Module):  # type: ignore[misc]
    """A module whose forward function is given."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def leaves(values: Any) -> list[Any]:
    found = torch.utils._pytree.tree_leaves(values)
    return [torch.as_tensor(value).detach() for value in found if value is not None]


def assert_same(results: Any, expected: Any) -> None:
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(result), value, equal_nan=True)


def changed_in_place(self: Any, x: Any) -> Any:
    y = x * 2
    y.add_(1).relu_()
    z = y.view(-1)
    z[0] = 7
    y[:, 1:].mul_(3)
    return y, z


def changed_before_a_view(self: Any, x: Any) -> Any:
    y = F.hardswish(self.linear(x), inplace=True)
    y += x
    return y.flatten(), y.t()


def a_view_of_what_changes_later(self: Any, x: Any) -> Any:
    y = x + 1
    z = y[0]
    y.mul_(2)
    return z, y


def sizes_in_shapes(self: Any, x: Any) -> Any:
    n = x.shape[0]
    y = x.reshape(n * 2, -1)
    ramps = torch.arange(n), torch.arange(n, -n, -1.0), torch.arange(n, -n, -1.0, dtype=torch.long)
    return y[1:], x.expand(3, n, 4).sum(0) / n, *ramps, x.new_zeros(n, 2 * n), n + 1, x * abs(n - 5)


def last_rows(self: Any, x: Any) -> Any:
    n = x.shape[0]
    twice, more = torch.cat([x, x]), torch.cat([x, x[:1]])
    written = torch.zeros_like(x).copy_(more[-n:])
    return twice[-n:], more[-n:], twice[:-n], written, x[-2 * n :], twice[-n - 1 :]


def padded_by_sizes(self: Any, x: Any) -> Any:
    n, more = x.shape[0], torch.sym_max(x.shape[0] - 3, 0)
    return F.pad(x, (n, more, more, n), value=2.5), F.pad(x, (0, n)), F.pad(x, (more, 0))


def checked(self: Any, x: Any) -> Any:
    torch._check((x == x).all().item())
    return x + 1


def images_of_any_number(self: Any, x: Any) -> Any:
    images = x[:, None, :, None].expand(-1, 2, 4, 3)
    pools = torch.nn.AdaptiveMaxPool2d((3, 2), return_indices=True), torch.nn.AdaptiveMaxPool2d(1)
    return *pools[0](images), pools[1](images), pools[1](images.mT[0])


def promoted(self: Any, x: Any) -> Any:
    i = torch.arange(4)
    h = x.half()
    return (
        *(i + 1.5, i / 2, i // 3, i * True, h + 1, h * x, x + i, i > 1.5, i.sum(), i.bool().sum()),
        *(torch.where(x > 0, 1, 2), torch.sqrt(i), x.clamp(min=i), i**2, 2**x, -7 % (i + 1)),
    )


def indexed(self: Any, x: Any) -> Any:
    i = torch.tensor([0, -1])
    y = x.clone()
    y[:, i] = 5
    return x[0], x[..., -1], x[:, i], x[x > 0], x[:, None, 1::2], y, x.nonzero(), x[i, i]


def branched(self: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2, (x,))


def looped(self: Any, x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, y * 2

    return torch._higher_order_ops.while_loop(lambda i, y: i < 5, body, (torch.tensor(0), x))


def scanned(self: Any, x: Any) -> Any:
    return torch._higher_order_ops.scan(lambda c, row: (c + row, c * row), x[0], x)


def attended(self: Any, x: Any) -> Any:
    q = x.reshape(1, 1, -1, 4)
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(-1)
    plain = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return plain, F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def changes_its_input(self: Any, x: Any) -> Any:
    x.mul_(2)
    return x + 1


def drawn(self: Any, x: Any) -> Any:
    none: Any = None  # which is passed by functions that take a generator
    return (
        *(F.dropout(x, 0.5, training=True), torch.rand_like(x), torch.randint(0, 9, (3,))),
        *(draw(2, 3, generator=none) for draw in (torch.rand, torch.randn)),
        *(torch.randint(*ends, (3,), generator=none) for ends in ((5,), (2, 5))),
        torch.randperm(6, generator=none),
    )


def members(self: Any, x: Any) -> Any:
    none, whole = torch.zeros(0), torch.arange(-7, 8)
    return (
        *(torch.isin(x.round(), whole.float()), torch.isin(x, 0.5, invert=True)),
        *(torch.isin(x.round(), whole), torch.isin(whole, x), torch.isin(x, none)),
    )


def turned_by_sizes(self: Any, x: Any) -> Any:
    n = x.shape[0]
    return x.roll((n // 2, -1), (0, 1)), x.roll(n + 1), x.roll((1, -n), (0, 1))


def first_row_between_axes(self: Any, x: Any) -> Any:
    return x[:1].expand(x.shape[0], 3, -1), x[None, :1].expand(2, 3, -1) + x[:1]


def summed_over_several_axes(self: Any, x: Any) -> Any:
    y = x[:, None, :, None].expand(-1, 3, -1, 2)
    one = x[:, :1, None]
    return (
        *(torch.tensordot(y, y, ([0, 3], [0, 3])), torch.tensordot(x, x.mT, 0)),
        *(torch.tensordot(y, one, ([2, 0], [1, 0])), torch.tensordot(one, y, ([1], [-2]))),
        torch.tensordot(y[:0], y[:0], ([2, 0], [2, 0])),
    )


def indexed_under_a_mask(self: Any, x: Any) -> Any:
    aten, at = torch.ops.aten, torch.tensor([0, -1, 99, -99])
    mask, rows = torch.tensor([True, True, False, False]), x.sum(0, True).expand(4, 4)
    return (
        aten._unsafe_masked_index(x, mask, [at], 2.5),
        aten._unsafe_masked_index(x, mask, [None, at], -1),
        aten._unsafe_masked_index(x[:0], mask, [at, None], -1),
        aten._unsafe_masked_index_put_accumulate(x, mask, [at], rows),
        aten._unsafe_masked_index_put_accumulate(x[:0], mask, [at], rows),
    )


def shared_by_any_number(self: Any, x: Any) -> Any:
    key = x[None, :, None]
    query = key.repeat(1, 3, 1, 1)
    return F.scaled_dot_product_attention(query, key, key, enable_gqa=True)


def linear() -> Any:
    return torch.nn.Linear(4, 4)


PROGRAMS = {
    "changed in place": lambda: Module(changed_in_place),
    "changed before a view": lambda: Module(changed_before_a_view, linear=linear()),
    "a view of what changes later": lambda: Module(a_view_of_what_changes_later),
    "sizes in shapes": lambda: Module(sizes_in_shapes),
    "last rows": lambda: Module(last_rows),
    "padded by sizes": lambda: Module(padded_by_sizes),
    "checked": lambda: Module(checked),
    "images of any number": lambda: Module(images_of_any_number),
    "promoted": lambda: Module(promoted),
    "indexed": lambda: Module(indexed),
    "branched": lambda: Module(branched),
    "looped": lambda: Module(looped),
    "scanned": lambda: Module(scanned),
    "attended": lambda: Module(attended),
    "drawn": lambda: Module(drawn),
    "members": lambda: Module(members),
    "turned by sizes": lambda: Module(turned_by_sizes),
    "first row between axes": lambda: Module(first_row_between_axes),
    "summed over several axes": lambda: Module(summed_over_several_axes),
    "indexed under a mask": lambda: Module(indexed_under_a_mask),
    "shared by any number": lambda: Module(shared_by_any_number),
    "normalised": lambda: torch.nn.Sequential(linear(), torch.nn.BatchNorm1d(4), torch.nn.GELU()),
    "of two bytes": lambda: Module(
        lambda self, x: self.linear(x.bfloat16()), linear=linear().bfloat16()
    ),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_pytorch_gives_at_every_size(name: str, target: str) -> None:
    torch.manual_seed(0)
    model = PROGRAMS[name]().eval()
    fixed = name in ("branched", "scanned", "promoted")
    sizes = (
        None
        if fixed
        else ({0: BATCH},)
        if isinstance(model, torch.nn.Sequential)
        else (({0: BATCH},),)
    )
    program = torch.export.export(model, (torch.randn(4, 4),), dynamic_shapes=sizes)
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    for size in (4,) if fixed else (4, 1, 7):
        x = torch.randn(size, 4)
        torch.manual_seed(1)
        expected = leaves(model(x.clone()))
        torch.manual_seed(1)
        assert_same(run(x), expected)


class Drawing(torch.nn.Module):  # type: ignore[misc]
    """Draws from two generators that the caller passes, and from the one of PyTorch."""

    def forward(self, later: Any, first: Any, x: Any) -> Any:
        whole = torch.randint(0, 99, (5,), generator=first)
        return (
            *(x + torch.rand(x.shape, generator=later), whole, torch.rand(2)),
            *(torch.bernoulli(x / 2, generator=first), torch.randperm(5, generator=later)),
            *(torch.normal(x, 1.0, generator=first), x.clone().uniform_(generator=later)),
            torch.multinomial(x, 2, generator=later),
        )


@pytest.mark.parametrize("target", TARGETS)
def test_random_numbers_are_those_of_generators_that_the_caller_passes(target: str) -> None:
    def generators() -> list[torch.Generator]:
        torch.manual_seed(5)
        return [torch.Generator().manual_seed(seed) for seed in (3, 4)]

    model, given = Drawing(), (*generators(), torch.ones(4, 3))
    program = torch.export.export(model, given)  # PyTorch has no dynamic sizes beside generators
    main = relaxpy.compile(from_exported_program(program), target=target)["main"]
    x, ours, theirs = torch.rand(4, 3) + 0.1, generators(), generators()
    for _ in range(2):  # the second time they go on
        state = torch.get_rng_state()
        expected = model(*theirs, x)
        torch.set_rng_state(state)
        assert_same(main(*ours, x), leaves(expected))
    with pytest.raises(RelaxpyError, match=r"expected a torch\.Generator, found int"):
        main(3, generators()[0], torch.ones(4, 3))


def test_a_generator_that_is_no_argument_is_refused() -> None:
    generator = torch.Generator()
    model = Module(lambda self, x: x + torch.rand(4, generator=generator))
    program = torch.export.export(model, (torch.ones(4),))
    with pytest.raises(RelaxpyError, match="custom_obj") as caught:
        from_exported_program(program)
    assert "pass the generator as an argument of the model" in str(caught.value)


@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_of_transformers_without_gradients_are_one_operator(norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=norm_first, activation="gelu"
    ).eval()
    x, padding = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False] * 3])
    with torch.inference_mode():
        program = torch.export.export(layer, (x,), {"src_key_padding_mask": padding})
        expected = layer(x, src_key_padding_mask=padding)
    (result,) = relaxpy.compile(from_exported_program(program))["main"](x, padding)
    torch.testing.assert_close(result, expected)


def pooled(self: Any, x: Any) -> Any:
    h, w = x.shape[2:]
    pools = torch.nn.AdaptiveAvgPool2d((2, None)), torch.nn.AdaptiveAvgPool3d((None, 3, None))
    most, several = (
        torch.nn.AdaptiveMaxPool2d(sizes, return_indices=True) for sizes in (1, (3, 2))
    )
    rows, fixed = torch.nn.AdaptiveMaxPool1d(3, return_indices=True), torch.ones(1, 2, 4, 3)
    return (
        *(pools[0](x), pools[0](x[0]), pools[1](x[None])),
        *(*most(x), *several(x), *several(x[0]), *rows(x[0]), *rows(x[1].log())),
        *(F.adaptive_avg_pool2d(x, (h + 2, 2 * w)), F.adaptive_avg_pool3d(x, (2, h, 2 * w))),
        *(F.adaptive_avg_pool2d(fixed, (0, 2)), F.adaptive_avg_pool3d(fixed, (2, 0, 2))),
        *F.adaptive_max_pool2d(fixed, (0, 2), return_indices=True),
    )


def resized(self: Any, x: Any) -> Any:
    h, w = x.shape[2:]
    options: list[dict[str, Any]] = [
        {"size": (h // 2 + 1, w + 1), "mode": "bicubic", "antialias": True},
        {"size": (2 * h, 3), "mode": "bilinear", "antialias": True, "align_corners": True},
        {"scale_factor": 1.7, "mode": "bilinear", "antialias": True},
        {"size": (h // 2 + 1, w + 1), "mode": "bilinear"},
    ]
    images = x, x.mul(60).add(127).clamp(0, 255).byte()
    return [F.interpolate(image, **given) for given in options for image in images]


@pytest.mark.parametrize("shape", [(8, 9), (40, 33)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_an_infinity_is_in_windows_near_it_alone(mode: str, shape: Any) -> None:
    """A smooth resize has no products of other elements with it, which would be NaN."""
    x = torch.randn(1, 2, 41, 37)
    x[0, 0, 30, 20] = torch.inf
    model = Module(lambda _, x: F.interpolate(x, size=shape, mode=mode, antialias=True))
    run = relaxpy.compile(from_exported_program(torch.export.export(model, (x,))))["main"]
    (found,), expected = run(x), model(x)
    rows, columns = slice(shape[0] // 3), slice(shape[1] // 4)
    torch.testing.assert_close(found[:, :, rows], expected[:, :, rows], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[..., columns], expected[..., columns], rtol=1e-4, atol=1e-5)


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("shape", [(8, 9), (2, 50), (50, 2), (70, 61), (1, 41), (41, 37)])
def test_known_and_symbolic_sizes_are_resized_alike(
    shape: tuple[int, int], dtype: str, mode: str, target: str
) -> None:
    """The former sum the elements of windows; the latter multiply by a matrix."""
    kind = getattr(torch, dtype)
    x = (torch.rand(2, 3, 41, 37) * 255).to(kind)
    model = Module(lambda _, x: F.interpolate(x, size=shape, mode=mode, antialias=True))
    dims = {2: torch.export.Dim("height", min=2), 3: torch.export.Dim("width", min=2)}
    # Sums of 160 terms below 255; bytes are rounded alike.
    expected, error = model(x), 160 * 255 * 2.0**-24 if kind.is_floating_point else 0.0
    for dynamic in (None, (dims,)):
        program = torch.export.export(model, (x,), dynamic_shapes=dynamic and (dynamic,))
        (found,) = relaxpy.compile(from_exported_program(program), target=target)["main"](x)
        torch.testing.assert_close(found, expected, rtol=0, atol=error)


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [pooled, resized])
def test_images_of_any_size_are_pooled_and_resized(function: Any, target: str) -> None:
    sizes = [torch.export.Dim(name, min=2, max=64) for name in ("height", "width")]
    program = torch.export.export(
        Module(function),
        (torch.randn(2, 3, 5, 7),),
        dynamic_shapes=(({2: sizes[0], 3: sizes[1]},),),
    )
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    for height, width in [(5, 7), (2, 3), (9, 4)]:
        x = torch.randn(2, 3, height, width)
        assert_same(run(x), function(None, x))


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 0)},
        {"kernel_size": (3, 5), "stride": 2, "padding": (1, 2)},
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": (1, 2), "stride": (3, 4)},
        {"kernel_size": 2, "stride": 3, "dilation": 2, "padding": 2},
    ],
)
def test_windows_are_added_to_images(options: dict[str, Any], dtype: str, target: str) -> None:
    """Those of batches of any size, and of one image."""
    is_complex = dtype == "complex64"
    image = torch.randn(2, 3, 7, 8).to(torch.float32 if is_complex else getattr(torch, dtype))
    x = F.unfold(image, **options)

    def fold(_: Any, x: Any) -> Any:
        columns = torch.complex(x, 1 - x) if is_complex else x
        folded = F.fold(columns, (7, 8), **options), F.fold(columns[0], (7, 8), **options)
        return tuple(map(torch.view_as_real, folded)) if is_complex else folded

    dims = {0: torch.export.Dim("n", min=1)}
    program = torch.export.export(Module(fold), (x,), dynamic_shapes=((dims,),))
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    for data in (x, x[:1]):
        for found, expected in zip(run(data), fold(None, data), strict=True):
            # PyTorch rounds each sum of at most 15 terms to 16 bits.
            rough = {"rtol": 15 / 256, "atol": 15 / 256} if dtype == "bfloat16" else {}
            torch.testing.assert_close(found, expected, **rough)


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("fill", ["ties", "NaN", "-inf"])
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((3, 8, 8), (4, 2)),
        ((2, 3, 7, 9), (3, 4)),
        ((2, 3, 3, 4), (5, 7)),
        ((2, 5, 6, 7), (2, 3, 2)),
    ],
)
def test_indices_of_adaptive_maxima(shape: Any, size: Any, fill: str, target: str) -> None:
    """Of equal elements the first one, of NaN the last one."""
    x = torch.randint(0, 3, shape).float()
    if fill == "NaN":
        x[torch.rand(shape) < 0.2] = torch.nan
    if fill == "-inf":
        x[:] = -torch.inf
    pool = {2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}[len(size)]
    model = Module(lambda _, x: pool(x, size, return_indices=True))
    run = relaxpy.compile(from_exported_program(torch.export.export(model, (x,))), target=target)
    for found, expected in zip(run["main"](x), model(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_an_input_that_changes_is_the_first_result() -> None:
    program = torch.export.export(Module(changes_its_input), (torch.ones(2),))
    changed, result = relaxpy.compile(from_exported_program(program))["main"](torch.ones(2))
    assert changed.tolist() == [2, 2]
    assert result.tolist() == [3, 3]


def test_tied_parameters_are_one_constant() -> None:
    first = linear()
    model = torch.nn.Sequential(first, torch.nn.ReLU(), first)
    program = torch.export.export(model, (torch.ones(2, 4),))
    mod = from_exported_program(program, keep_params_as_input=True)
    weights = {value.__array_interface__["data"] for value in mod["main"].attrs["params"]}
    assert weights == {(p.data_ptr(), True) for p in first.parameters()}


def test_a_converter_of_the_caller_is_used() -> None:
    def relu(node: Any, importer: Any) -> Any:
        (x,) = importer.retrieve_args(node)
        return importer.block_builder.emit(relaxpy.relax.op.nn.leakyrelu(x, 0.5))

    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    mod = from_exported_program(
        program, custom_convert_map={"relu.default": relu}, unwrap_unit_return_tuple=True
    )
    x = np.array([-2.0, 4.0], "float32")
    assert relaxpy.compile(mod)["main"](x).tolist() == [-1, 4]


def test_a_traced_module_is_imported_for_shapes_with_names() -> None:
    model = torch.nn.Sequential(linear(), torch.nn.ReLU()).eval()
    mod = from_fx(torch.fx.symbolic_trace(model), [(("n", 4), "float32")])
    (param,) = mod["main"].params
    assert (param.name_hint, str(param.struct_info.shape[0])) == ("inp_0", "n")
    run = relaxpy.compile(mod)["main"]
    for size in (1, 6):
        x = torch.randn(size, 4)
        torch.testing.assert_close(run(x), model(x).detach())


class Nested(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        y = x.add_(1)
        return y * 2, [y, {"rows": y.unbind(0)}]


def test_results_of_a_traced_module_are_nested_as_it_returns_them() -> None:
    mod = from_fx(torch.fx.symbolic_trace(Nested()), [((2, 3), "float32")])
    x = torch.randn(2, 3)
    result = relaxpy.compile(mod)["main"](x)
    twice, (y, rows) = Nested()(x.clone())
    torch.testing.assert_close(result, (twice, (y, (tuple(rows["rows"]),))))


@dataclass
class Pair:
    first: Any
    second: Any


torch.export.register_dataclass(Pair)


def test_a_class_that_pytorch_knows_is_a_tuple_of_its_members() -> None:
    class Pairs(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2, Pair(x, Pair(x + 1, None))

    mod = from_fx(torch.fx.symbolic_trace(Pairs()), [((2, 3), "float32")])
    x = torch.randn(2, 3)
    torch.testing.assert_close(relaxpy.compile(mod)["main"](x), (x * 2, (x, (x + 1,))))


TRACED = torch.fx.symbolic_trace(torch.nn.ReLU())


@pytest.mark.parametrize(
    ("model", "info", "message"),
    [
        (torch.nn.ReLU(), [((2,), "float32")], "expected a GraphModule, found ReLU"),
        (TRACED, [(2, "nope")], "by its shape and its datatype"),
        (TRACED, [((2.5,), "float32")], "by its shape and its datatype"),
        (TRACED, [((-1,), "float32")], "by its shape and its datatype"),
        (TRACED, [("ab", "float32")], "by its shape and its datatype"),
        (TRACED, [(("a b",), "float32")], "by its shape and its datatype"),
        (TRACED, None, "a list of inputs, found NoneType"),
        (TRACED, [((2,), "float32")] * 2, "expected 1, found 2"),
    ],
)
def test_from_fx_says_what_it_expects(model: Any, info: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        from_fx(model, info)


def test_inputs_that_a_traced_module_does_not_take_are_refused() -> None:
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(linear()))
    with pytest.raises(FrontendError, match=r"cannot export the module.*reduction"):
        from_fx(traced, [((2, 5), "float32")])
    with pytest.raises(TypeError, match="expected a module or a function, found int"):
        dynamo_capture_subgraphs(3, torch.ones(2))


def test_captured_graphs_are_functions_of_one_module_with_the_weights_in_it() -> None:
    layer = linear()

    def model(x: Any) -> Any:
        y = layer(x)
        return y + 1 if y.sum() > 1e9 else torch.cos(y)

    x = torch.ones(2, 4)
    mod = dynamo_capture_subgraphs(model, x)
    assert [gvar.name_hint for gvar in mod.get_global_vars()] == ["subgraph_0", "subgraph_1"]
    executable = relaxpy.compile(mod)
    _, y = executable["subgraph_0"](x)
    torch.testing.assert_close(executable["subgraph_1"](y)[0], model(x).detach())
    kept = dynamo_capture_subgraphs(model, x, keep_params_as_input=True)
    assert len(kept["subgraph_0"].params) == 3


def trained(model: Any, compiled: Any, sizes: tuple[int, ...]) -> list[Any]:
    """The results for batches of these sizes, and the gradients after them."""
    found: list[Any] = []
    for size in sizes:
        torch.manual_seed(size)
        result = compiled(torch.randn(size, 4))
        result.square().sum().backward()
        found.append(result.detach())
    return [*found, *(p.grad for p in model.parameters()), *model.buffers()]


def test_torch_compile_trains_as_pytorch_does() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        layers = (linear(), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Dropout(0.5))
        return torch.nn.Sequential(*layers, linear())

    torch._dynamo.reset()
    one, other = make(), make()
    compiled = torch.compile(one, backend=relax_dynamo(), dynamic=True)
    sizes = (3, 5, 6)
    for a, b in zip(trained(one, compiled, sizes), trained(other, other, sizes), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_numbers_that_a_compiled_function_is_called_with_are_sizes() -> None:
    def f(x: Any, n: int) -> Any:
        return x[:n] * n, x.new_zeros(n, 2), n // 2

    torch._dynamo.reset()
    compiled, x = torch.compile(f, backend=relax_dynamo(), dynamic=True), torch.randn(9, 4)
    for n in (2, 3, 9, 0):
        torch.testing.assert_close(compiled(x, n), f(x, n))


def test_results_of_computed_sizes_have_the_strides_of_pytorch() -> None:
    def f(x: Any) -> Any:
        half = x[::2] @ x[::2].mT  # PyTorch takes Max(1, size) for a stride, which 0 cannot be
        return half[:, None].expand(-1, 3, -1), (x[::2] + 1).mT * 2, half.flatten()[None]

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=relax_dynamo(target="numpy"), dynamic=True)
    for size in (6, 9, 3):
        x = torch.randn(size, 4)
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("is_trained", [False, True])
def test_results_of_compiled_functions_have_the_strides_of_pytorch(is_trained: bool) -> None:
    def f(x: Any) -> Any:
        transposed, moved = x.t() * 2, x.view(-1, 2, 2).movedim(0, 1) + 1
        torch._dynamo.graph_break()
        return transposed, transposed.t().view(-1), moved, (x.t() + 1j).clone()

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=relax_dynamo(target="numpy"))
    for size in (3, 5):
        x = torch.randn(size, 4, requires_grad=is_trained)
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_optimisers_can_be_compiled() -> None:
    torch._dynamo.reset()
    one, other = (torch.nn.Parameter(torch.arange(4.0)) for _ in range(2))
    first, second = (torch.optim.Adam([p], 0.1) for p in (one, other))
    for step in (torch.compile(first.step, backend=relax_dynamo(target="numpy")), second.step):
        for parameter in (one, other):
            parameter.grad = torch.ones(4)
        step()
        step()
    torch.testing.assert_close(one, other)


def test_tensors_made_within_a_compiled_function_are_constants() -> None:
    def f(x: Any) -> Any:
        return torch.cat([x + torch.tensor([1.5]), torch.tensor([2.0, 3.0])])

    compiled = torch.compile(f, backend=relax_dynamo())
    torch.testing.assert_close(compiled(torch.ones(3)), f(torch.ones(3)))


def test_torch_compile_goes_on_after_a_graph_break_and_with_changed_weights() -> None:
    layer = linear()

    def model(x: Any) -> Any:
        y = layer(x)
        return y * 2 if float(y.detach().sum()) > 0 else y - 1

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=relax_dynamo(target="numpy"))
    for scale in (1, 2):
        with torch.no_grad():
            layer.weight.mul_(scale)
            for sign in (1, -1):
                x = sign * torch.ones(2, 4)
                torch.testing.assert_close(compiled(x), model(x))


class Affine(torch.nn.Module):  # type: ignore[misc]
    """A linear layer, a normalisation whose statistics are buffers, and the first layer's bias."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x)), self.linear.bias * 2, self.linear.bias.view(2, 2)


def _step(model: Any, **options: Any) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, **options)
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    optimiser.step()


def _through_data(model: Any) -> None:
    for param in model.parameters():
        param.data.mul_(0.5)


def _through_numpy(model: Any) -> None:
    model.linear.weight.detach().numpy()[:] += 1


def _replace(model: Any) -> None:
    model.linear.weight = torch.nn.Parameter(torch.ones(4, 4))


def _set_data(model: Any) -> None:
    model.linear.weight.data = torch.full((4, 4), 2.0)


CHANGES: list[Callable[[Any], Any]] = [
    lambda model: None,
    lambda model: model.linear.weight.mul_(2),
    lambda model: model.linear.weight[0].add_(1),
    lambda model: torch.nn.init.ones_(model.linear.bias),
    lambda model: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
    lambda model: model.norm.running_mean.add_(1),
    lambda model: torch._foreach_add_(list(model.parameters()), 1.0),
    _step,
    lambda model: _step(model, fused=True),
    _replace,
    _set_data,
    _through_data,
    _through_numpy,
]


@pytest.mark.parametrize("freezing", [False, True])
def test_weights_that_change_after_compilation_are_seen(freezing: bool) -> None:
    model, x = Affine().eval(), torch.randn(3, 4)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=relax_dynamo(target="numpy", freezing=freezing))
    for context in (torch.no_grad, torch.inference_mode):
        for change in CHANGES:
            with torch.no_grad():
                change(model)
            for _ in range(3):
                with context():
                    found, expected = compiled(x), model(x)
                    torch.testing.assert_close(found, expected)
                    found[1].zero_()  # which is not a weight
    model.train()
    found, expected = compiled(x), copy.deepcopy(model)(x)
    torch.testing.assert_close(found, expected)
    alive = weakref.ref(model.linear.weight)
    del model, compiled, found, expected
    gc.collect()
    assert alive() is None


def test_weights_that_change_are_seen_without_the_guards_of_modules() -> None:
    model, x = Affine().eval(), torch.randn(3, 4)
    torch._dynamo.reset()
    options = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
    compiled = torch.compile(model, backend=relax_dynamo(target="numpy"), options=options)
    with torch.no_grad():
        for change in CHANGES:
            change(model)
            torch.testing.assert_close(compiled(x), model(x))


def test_frozen_weights_are_constants_of_an_executable_for_each_module(monkeypatch) -> None:
    made: list[Any] = []

    def compile_module(mod: Any, *args: Any, **options: Any) -> Any:
        made.append(len(mod["main"].params))
        return relaxpy.compile(mod, *args, **options)

    monkeypatch.setattr(dynamo, "compile_module", compile_module)
    models = [Affine().eval(), Affine().eval()]

    def both(x: Any) -> Any:
        for model in models:
            torch._dynamo.graph_break()
            x, *_ = model(x)
        return x

    torch._dynamo.reset()
    x = torch.randn(4, 4)
    compiled = torch.compile(both, backend=relax_dynamo(target="numpy"))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), both(x))
        assert set(made) == {1}
        assert len(made) == 2
        for _ in range(20):
            models[0].linear.weight.add_(1)
            torch.testing.assert_close(compiled(x), both(x))
        assert made[2:] == [7]  # weights that change in every call are arguments
        for _ in range(5):
            torch.testing.assert_close(compiled(x), both(x))
        assert made[2:] == [7, 1]


UNCOUNTED: list[Callable[[Any], Any]] = [
    lambda data: data[:150].zero_(),
    lambda data: data[:, 7].add_(1),
    lambda data: data.clamp_(-0.05, 0.05),
    lambda data: data.mul_(torch.rand(data.shape) > 0.3),
    lambda data: data[1::2].neg_(),
]


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.t().contiguous().t()])
def test_changes_of_rows_and_columns_that_pytorch_does_not_count_are_seen(layout) -> None:
    layer, x = torch.nn.Linear(400, 300), torch.randn(16, 400)
    layer.weight = torch.nn.Parameter(layout(torch.randn(300, 400) / 20))
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=relax_dynamo())
    with torch.no_grad():
        for change in UNCOUNTED:
            for _ in range(2):
                torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-4)
            change(layer.weight.data)
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("freezing", [False, True])
def test_weights_without_memory_are_refused(freezing: bool) -> None:
    layer = linear().to("meta")
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=relax_dynamo(target="numpy", freezing=freezing))
    with torch.no_grad(), pytest.raises(relaxpy.errors.RuntimeCheckError, match="it is on meta"):
        compiled(torch.ones(2, 4, device="meta"))


def test_few_executables_are_compiled_for_weights_that_are_soon_replaced(monkeypatch) -> None:
    made: list[int] = []

    def compiled(mod: Any, *args: Any, **options: Any) -> Any:
        made.append(len(mod["main"].params))
        return relaxpy.compile(mod, *args, **options)

    monkeypatch.setattr(dynamo, "compile_module", compiled)
    layer, x = linear(), torch.ones(2, 4)
    torch._dynamo.reset()
    model = torch.compile(layer, backend=relax_dynamo(target="numpy"))
    with torch.no_grad():
        for _ in range(40):
            layer.weight = torch.nn.Parameter(torch.randn(layer.weight.shape))
            torch.testing.assert_close(model(x), layer(x))
    assert made == [1] * 16 + [3]  # then weights are arguments


def test_weights_that_a_graph_changes_are_its_arguments() -> None:
    model, x = torch.nn.BatchNorm1d(4).train(), torch.randn(3, 4)
    other = copy.deepcopy(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=relax_dynamo(target="numpy"))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), other(x))
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_weights_whose_changes_pytorch_does_not_count_are_arguments() -> None:
    with torch.inference_mode():
        model, x = linear().eval(), torch.ones(2, 4)
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=relax_dynamo(target="numpy"))
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
            model.weight.add_(1)


def test_the_backend_needs_no_compiler_of_c(monkeypatch) -> None:
    """It starts no process at all; PyTorch's own backend runs a compiler of C++."""

    def refused(*words: object, **options: object) -> None:
        raise AssertionError(f"a process is started: {words}")

    layer, x = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh()).eval(), torch.ones(7, 5)
    expected = layer(x)
    monkeypatch.setattr("subprocess.Popen.__init__", refused)
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    with torch.no_grad():
        found = torch.compile(layer, backend=relax_dynamo())(x)
    torch.testing.assert_close(found, expected)


def test_the_backend_is_found_by_its_name() -> None:
    from importlib.metadata import entry_points

    found = [e for e in entry_points(group="torch_dynamo_backends") if e.name == "relaxpy"]
    if not found:
        pytest.skip("relaxpy is not installed, only imported")
    torch._dynamo.reset()
    x = torch.ones(3)
    compiled = torch.compile(torch.sin, backend="relaxpy", options={"target": "numpy"})
    torch.testing.assert_close(compiled(x), torch.sin(x))
    torch._dynamo.reset()
    tuned = torch.compile(torch.cos, backend="relaxpy", mode="max-autotune")
    torch.testing.assert_close(tuned(x), torch.cos(x))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="expected one of the modes default, reduce-overhead"):
        torch.compile(torch.tan, backend="relaxpy", mode="fastest")(x)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"there is no option 'tagret'(.|\n)*did you mean 'target'"):
        torch.compile(torch.tan, backend="relaxpy", options={"tagret": "numpy"})(x)


# ---- complex numbers


class Rotary(torch.nn.Module):  # type: ignore[misc]
    """Rows turned by their positions, as products of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(16.0), 0.5 ** torch.arange(4.0))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.scale = torch.nn.Parameter(torch.tensor([1 + 2j, 0.5j, -1, 2]))

    def forward(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.turns[: x.shape[1]] * self.scale
        return torch.view_as_real(turned).flatten(2), turned


@pytest.mark.parametrize("keep", [False, True])
def test_products_of_complex_numbers_turn_rows_of_any_number(keep: bool) -> None:
    model, rows = Rotary(), torch.export.Dim("rows", max=16)
    program = torch.export.export(model, (torch.randn(2, 5, 8),), dynamic_shapes=({1: rows},))
    mod = from_exported_program(program, keep_params_as_input=keep)
    mod, params = relaxpy.relax.frontend.detach_params(mod)
    run = relaxpy.compile(mod)["main"]
    for count in (3, 7):
        x = torch.randn(2, count, 8)
        flat, turned = run(x, *params.get("main", []))
        torch.testing.assert_close(flat, model(x)[0].detach())
        torch.testing.assert_close(torch.view_as_complex(turned), model(x)[1].detach())


def filtered(x: Any, z: Any) -> Any:
    return torch.fft.ifft(torch.fft.fft(x) * z.conj()).abs().square().sum(), z.exp()


def of_sums(x: Any, z: Any) -> Any:
    padded = torch.nn.functional.pad(z[None], (1, 2), mode="replicate")
    return x.sum() * z.logsumexp(0).abs(), padded * x[:1]


def solved(x: Any, z: Any) -> Any:
    matrix = z[:, None] * x + torch.eye(6) * (3 + 1j)
    both = torch.linalg.solve(matrix, torch.stack([z, z * x], 1))
    return both.abs().sum(), torch.linalg.solve(matrix, z) + torch.linalg.solve_ex(matrix, z)[0]


@pytest.mark.parametrize("f", [filtered, of_sums, solved])
def test_torch_compile_takes_and_returns_complex_tensors_and_their_gradients(f: Any) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(f, backend=relax_dynamo())
    x, z = torch.randn(6), torch.randn(6, dtype=torch.complex64)
    found = []
    for function in (f, compiled):
        a, b = x.clone().requires_grad_(), z.clone().requires_grad_()
        total, grown = function(a, b)
        (total + grown.real.sum()).backward()
        found.append((total.detach(), grown.detach(), a.grad, b.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(compiled(x, z.conj())[1], f(x, z.conj())[1])  # a lazy conjugate


def branched_and_looped(self: Any, x: Any) -> Any:
    def body(i: Any, z: Any) -> Any:
        return i + 1, z * (0.5 + 1j) + 1

    z = torch.cond(x.sum() > 0, lambda z: z * 2j, lambda z: z + 1j, (x * (1 + 2j),))
    last = torch._higher_order_ops.while_loop(lambda i, z: i < 3, body, (torch.tensor(0), z))
    return last[1].real, last[1].abs().sum(0)


@pytest.mark.parametrize("target", TARGETS)
def test_complex_numbers_go_through_branches_and_loops(target: str) -> None:
    model, x = Module(branched_and_looped), torch.randn(3, 2)
    program = torch.export.export(model, (x,))
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    for given in (x.abs(), -x.abs()):
        for result, value in zip(run(given), model(given), strict=True):
            torch.testing.assert_close(result, value)


def scanned_and_mapped(self: Any, x: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        return state * 0.5 + row, (state * row).abs()

    z = torch.complex(x, x + 1)
    last, sizes = torch._higher_order_ops.scan(step, z[0] * 1j, z)
    turned = torch._higher_order_ops.map(lambda row, factor: row * factor, z, torch.tensor(1 - 2j))
    return last, sizes, turned


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [3, 70])  # written out, and a loop
def test_complex_numbers_go_through_scans_and_maps(target: str, count: int) -> None:
    model, x = Module(scanned_and_mapped), torch.randn(count, 2)
    program = torch.export.export(model, (x,))
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    given = -x
    for result, value in zip(run(given), model(given), strict=True):
        expected = torch.view_as_real(value) if value.is_complex() else value
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@torch.library.custom_op("relaxpy_tests::scaled", mutates_args=())  # type: ignore[untyped-decorator]
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    result = torch.empty_like(x)
    for row, own in zip(result, x, strict=True):
        row.copy_(own).mul_(factor)
    return result.relu_()


@torch.library.custom_op("relaxpy_tests::hidden", mutates_args=())  # type: ignore[untyped-decorator]
def hidden(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


for _operator in (scaled, hidden):
    _operator.register_fake(lambda x, *rest: torch.empty_like(x))


def test_an_operator_of_an_extension_is_what_its_function_computes() -> None:
    model = Module(lambda self, x: scaled(x, 2.0))
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(model, (x,))
    assert_same(relaxpy.compile(from_exported_program(program))["main"](x), [model(x)])
    torch._dynamo.reset()
    assert_same([torch.compile(model, backend=relax_dynamo())(x)], [model(x)])


def test_an_operator_whose_function_hides_what_it_computes_is_refused() -> None:
    program = torch.export.export(Module(lambda self, x: hidden(x) + 1), (torch.ones(2),))
    with pytest.raises(NotImplementedError, match=r"relaxpy_tests\.hidden.*no converter"):
        from_exported_program(program)


class OtherOverloads(torch.nn.Module):  # type: ignore[misc]
    """Operators in place, whose overloads have other names than those that return a result.

    The float64 of `x` is exact, that of its power holds what each side rounds to float32.
    """

    def forward(self, x: Any) -> Any:
        y = x.abs() + 1
        y.pow_(x)
        y[0].floor_divide_(x[1])
        return x.float_power(2), y


class MadeInForward(torch.nn.Module):  # type: ignore[misc]
    """Constants that the function makes; it changes one and a view of it."""

    def forward(self, x: Any) -> Any:
        y = torch.tensor([1.0, 2.0, 3.0, 4.0])
        y[1:].mul_(3)
        y += 1
        return x * y, x / torch.tensor(3.0), y


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (torch.nn.GRUCell(4, 3), [(5, 4), (5, 3)]),
        (torch.nn.InstanceNorm2d(4, affine=True), [(5, 4, 6, 6)]),
        (OtherOverloads(), [(5, 4)]),
        (MadeInForward(), [(5, 4)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_operators_are_decomposed_where_they_are(layer, shapes, monkeypatch) -> None:
    args = [torch.randn(shape) for shape in shapes]
    program = torch.export.export(
        layer.eval(), tuple(args), dynamic_shapes=({0: BATCH},) * len(args)
    )
    monkeypatch.delattr(torch.export.ExportedProgram, "run_decompositions")
    run = relaxpy.compile(from_exported_program(program))["main"]
    for more in (args, [torch.cat([x, x[:2]]) for x in args]):
        assert_same(run(*more), leaves(layer(*more)))


def test_an_operator_that_is_applied_often_is_decomposed_once(monkeypatch) -> None:
    cell = torch.nn.GRUCell(4, 4).eval()

    def states(_: Any, x: Any) -> Any:
        h = cell(x, x)  # the only one whose operands are one tensor
        for _ in range(3):
            h = cell(x, h)
        return h

    x = torch.randn(5, 4)
    model = Module(states, cell=cell)
    program = torch.export.export(model, (x,), dynamic_shapes={"args": ({0: BATCH},)})
    make_fx = Mock(side_effect=decompose.make_fx)
    monkeypatch.setattr(decompose, "make_fx", make_fx)
    run = relaxpy.compile(from_exported_program(program))["main"]
    assert make_fx.call_count == 2 * 2  # again where operators change values in place
    assert_same(run(x), leaves(model(x)))


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize(
    ("layer", "options", "kernels"),
    [
        (torch.nn.LSTM, {"bias": False, "batch_first": True}, 1),
        (torch.nn.LSTM, {"proj_size": 2, "bidirectional": True}, 2),
        (torch.nn.GRU, {"bidirectional": True, "num_layers": 2, "dropout": 0.5}, 4),
        (torch.nn.GRU, {"bias": False}, 1),
        (torch.nn.RNN, {}, 1),
        (torch.nn.RNN, {"num_layers": 2, "nonlinearity": "relu"}, 2),
    ],
)
def test_recurrent_layers_are_one_kernel_in_each_direction(layer, options, kernels) -> None:
    model = layer(4, 3, **options).train("dropout" in options)
    x = torch.randn(5, 7, 4)
    batch = 0 if "batch_first" in options else 1
    program = torch.export.export(model, (x,), dynamic_shapes=({batch: BATCH},))
    mod = from_exported_program(program)
    assert mod.script().count("R.call_tir") == kernels
    run = relaxpy.compile(mod)["main"]
    for more in (x, torch.cat([x, x], batch)):
        torch.manual_seed(0)
        expected = leaves(model(more))
        torch.manual_seed(0)
        assert_same(run(more), expected)


def a_part_of_what_changes(x: Any) -> Any:
    x[..., ::2] = -1.25
    part = x[1:]
    x.add_(-2)
    return part.reshape(part.shape[0], -1), x.mT


def views_of_an_argument(x: Any) -> Any:
    return x.reshape(*x.shape, 1).movedim(1, -2), x[1:, ::2], x.sum()


SCALES = torch.full((3,), 2.0), torch.full((4, 1), 3.0)


def a_view_of_the_last_argument(x: Any) -> Any:
    scale = SCALES[0] * SCALES[1]
    return x.unbind(1)[1], (x * scale).sum()


def parts_of_one_tensor(x: Any) -> Any:
    y = x * 2
    return x.mT, y[:2], y[2:]


@pytest.mark.parametrize(
    "function",
    [
        a_part_of_what_changes,
        views_of_an_argument,
        a_view_of_the_last_argument,
        parts_of_one_tensor,
    ],
)
def test_torch_compile_returns_views_at_all_sizes(function: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=relax_dynamo())
    for size in (5, 7, 3):
        x = torch.randn(size, 4, 3, generator=torch.Generator().manual_seed(0))
        ours, theirs = x.clone(), x.clone()
        found, expected = compiled(ours), function(theirs)
        assert_same([*found, ours], [*expected, theirs])
        assert [v.stride() for v in found] == [v.stride() for v in expected]
        assert found[0].untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()


def turned(x: Any) -> Any:
    return torch.complex(x, x + 1)


def image(x: Any) -> Any:
    return torch.stack([x, x])[None].to(memory_format=torch.channels_last)


#: Views by strides that are read or written, of tensors of 3 and 4 columns.
STRIDED: dict[str, Callable[[Any, Any], Any]] = {
    "in order": lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (3, 1), 1),
    "transposed": lambda x, y: torch.as_strided_scatter(x.t(), y, (2, 2), (1, 2), 1) + 1,
    "rows, from the first": lambda x, y: torch.as_strided_scatter(x[1:], y, (2, 2), (1, 2)),
    "rows": lambda x, y: torch.as_strided_scatter(x[1:] + 1, y, (2, 2), (1, 2), 1),
    "gaps": lambda x, y: torch.as_strided_scatter((x + 1)[:, ::2], y[0], (2,), (3,), 0),
    "in a gap": lambda x, y: torch.as_strided_scatter((x + 1)[:, ::2], y[0], (2,), (1,), 0),
    "repeated": lambda x, y: torch.as_strided_scatter(x[:1].expand(3, -1), y, (2, 2), (1, 1), 0),
    "one element": lambda x, y: torch.as_strided_scatter(x, y[0, 0], (), (), 2),
    "read from the first": lambda x, y: x[1:].as_strided((2, 2), (1, 3)) + y,
}


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("name", STRIDED)
def test_views_by_strides_are_those_of_the_memory(name: str, is_dynamic: bool) -> None:
    f, y = STRIDED[name], torch.arange(4.0).reshape(2, 2)
    compiled = torch.compile(f, backend=relax_dynamo(), dynamic=is_dynamic)
    for columns in (3, 4):
        x = torch.rand(3, columns)
        assert_same([compiled(x, y)], [f(x, y)])


#: Tensors that are computed, and views of them, of which the last one changes later.
COMPUTED: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "rows": lambda x: (y := x + 1, y[1:]),
    "a base of a view": lambda x: (y := x + 1, y[..., 1:], y)[1:],
    "rows of rows": lambda x: (y := x.clone(), y[1:], y[1:][1:])[1:],
    "parts": lambda x: (x + 1).chunk(2, 1),
    "rows of columns": lambda x: (y := x.t() + 1, y[1:], y),
    "elements in order": lambda x: (y := (x.t() + 1)[::2], y.diagonal()),
    "copies": lambda x: (y := x + 1, y[None, :, ::2].expand(2, -1, -1), y),
    "windows": lambda x: (y := x + 1, y.unfold(1, 2, 1), y.as_strided((2, 2), (1, 1), 1), y),
    "bits": lambda x: (y := x + 1, y.view(torch.int32)[:, 1:], y.view(torch.uint8), y),
    "parts of complex numbers": lambda x: (y := turned(x), y.real, y.imag[1:], y),
    "pairs": lambda x: (y := turned(x), y[1:], torch.view_as_real(y)),
    "conjugates": lambda x: (y := turned(x), y.conj(), y.conj().imag, y[..., 1:]),
    "16 bits": lambda x: (y := x.bfloat16() + 1, y[:, 1:]),
    "images": lambda x: (y := image(x) * 2, y[..., 1:]),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("name", COMPUTED)
def test_changes_after_a_graph_break_are_those_of_all_views(name: str, is_trained: bool) -> None:
    def f(x: Any) -> Any:
        views = COMPUTED[name](x * 1 if is_trained else x)
        torch._dynamo.graph_break()
        views[-1].mul_(2)
        torch._dynamo.graph_break()
        return views

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=relax_dynamo(target="numpy"), dynamic=True)
    for size in (3, 5):
        x = torch.randn(size, 4, requires_grad=is_trained)
        try:
            expected = f(x)
        except RuntimeError:  # PyTorch changes no result of an operator that has several
            assert is_trained
            assert name == "parts"
            return
        found = compiled(x)
        assert_same(found, expected)
        assert [v.stride() for v in found] == [v.stride() for v in expected]
        assert [v.storage_offset() for v in found] == [v.storage_offset() for v in expected]
        assert len({v.untyped_storage().data_ptr() for v in found}) == 1


def test_torch_compile_returns_copies_in_memory_of_their_own() -> None:
    def copies(x: Any) -> Any:
        y = x + 1
        return x.clone(), x.clone(), x.reshape(-1).clone(), torch.cat([x]), y, y.clone()

    torch._dynamo.reset()
    compiled = torch.compile(copies, backend=relax_dynamo(target="numpy"))
    for x in (torch.randn(3, 4), torch.randn(4, 3).mT, torch.randn(3, 8)[:, ::2]):
        found = compiled(x)
        assert [v.stride() for v in found] == [v.stride() for v in copies(x)]
        places = {tensor.untyped_storage().data_ptr() for tensor in (x, *found)}
        assert len(places) == 1 + len(found)


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("kind", ["diagonal", "columns", "parts", "rows of columns"])
def test_torch_compile_keeps_gaps_in_the_memory_of_results(kind: str, is_dynamic: bool) -> None:
    def f(x: Any) -> tuple[Any, ...]:
        y = x.select_scatter(x.select(0, -1) + 1, 0, -1)
        return y, x.slice_scatter(x[:1], 0, 1, 2), y + 1

    view: dict[str, Callable[[Any], Any]] = {
        "diagonal": lambda x: x.diagonal(),
        "columns": lambda x: x[:, 1::2],
        "parts": lambda x: torch.complex(x, x).real,
        "rows of columns": lambda x: x.t()[::2],
    }
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=relax_dynamo(target="numpy"), dynamic=is_dynamic)
    for columns in (4, 6):
        x = torch.randn(5, columns)
        found, expected = compiled(view[kind](x)), f(view[kind](x.clone()))
        assert_same(found, expected)
        assert [v.stride() for v in found] == [v.stride() for v in expected]


def test_torch_compile_returns_an_empty_tensor_that_can_grow() -> None:
    def doubled(x: Any) -> Any:
        return torch.mul(x, 2, out=x.new_empty(0))

    torch._dynamo.reset()
    x = torch.randn(3, 4)
    assert_same([torch.compile(doubled, backend=relax_dynamo(target="numpy"))(x)], [doubled(x)])


@pytest.mark.parametrize("target", TARGETS)
def test_questions_about_no_elements(target: str) -> None:
    model = Module(lambda self, x: (x[1:1].any(), x[1:1].all(), x[:, 4:].any(1)))
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    program = torch.export.export(model, (x,))
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    assert [torch.as_tensor(v).tolist() for v in run(x)] == [False, True, [False, False]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_tensor_of_another_datatype_is_told_how_to_convert(dtype: torch.dtype) -> None:
    program = torch.export.export(Module(lambda self, x: x + 1), (torch.ones(2),))
    run = relaxpy.compile(from_exported_program(program))["main"]
    with pytest.raises(RelaxpyError, match=r"convert it with \.to\(torch\.float32\)$"):
        run(torch.ones(2, dtype=dtype))


def views_of_views(x: Any) -> Any:
    y = x * 2
    v = y[1:]
    w = v.t()
    w[0] = 5
    y.add_(1)
    return y, v, w


def parts_that_overlap(x: Any) -> Any:
    y = x.clone()
    a, b = y.split([1, 2])
    a.mul_(3)
    y.view(-1)[::2] = -1
    return a, b, y


def rows_of_columns(x: Any) -> Any:
    y = x + 0
    rows = list(y.unbind(1))
    rows[0].zero_()
    rows[2].copy_(rows[1])
    y.diagonal().fill_(9)
    return y, rows[2], rows[3]


def permuted(x: Any) -> Any:
    y = x.clone()
    q = y.permute(1, 0)[1:3]
    q += 1
    z = y.permute(1, 0).reshape(2, 6)  # a copy
    z.mul_(2)
    return y, q, z


def unflattened(x: Any) -> Any:
    y = x.expand(2, 3, 4).clone()
    y[0, 1].sub_(y[1, 2])
    n = y.narrow(2, 1, 2)
    n.clamp_(0, 1)
    m = y.unflatten(2, (2, 2))
    m[..., 0] = 7
    return y, n, m


def written_by_indices(x: Any) -> Any:
    y = torch.zeros(5, 4)
    y[1:4] = x
    y[:, 1] += x.sum()
    y[torch.tensor([0, 2])] = 3.0
    y[y > 2] = 0
    return y


def squeezed_and_moved(x: Any) -> Any:
    y = x.clone()
    u = y.view(4, 3).squeeze().unsqueeze(0).movedim(0, -1)
    u[..., 0].exp_()
    return y, u


def scattered(x: Any) -> Any:
    y = x.clone()
    v = y[0]
    v.masked_fill_(v > 0, -1.0)
    v.index_fill_(0, torch.tensor([1]), 4.0)
    y.select(1, 2).scatter_(0, torch.tensor([0]), 8.0)
    return y


def parts_of_complex_numbers(x: Any) -> Any:
    z = torch.view_as_real(torch.complex(x, x))
    z[..., 0].neg_()
    return z


def chunks_and_copies(x: Any) -> Any:
    a = x.clone()
    b = a.chunk(2, 1)[1]
    c = b.flatten()  # a copy
    b.add_(10)
    c.mul_(2)
    return a, b, c


def of_operators_that_declare_no_views(x: Any) -> Any:
    a = x.clone()
    torch.einsum("ij->ji", a)[1].neg_()
    torch.atleast_2d(a[1], a)[0].mul_(3)
    torch.meshgrid(a[2], a[2, :1], indexing="ij")[0].sub_(5)
    return a, torch.einsum("ij,kj->ik", a, a)


def given(x: Any) -> Any:
    x[1].mul_(2)
    return x[0] + 1, x.t()


def given_through_an_operator(x: Any) -> Any:
    torch.einsum("ij->ji", torch.conj_physical(x.type_as(x)))[1].neg_()
    x.sum_to_size(3, 4)[0].mul_(2)
    return x + 1


EXTENSION = torch.library.Library("relaxpy_tests", "FRAGMENT")
EXTENSION.define("view(Tensor(a) x) -> Tensor(a)")
EXTENSION.impl("view", torch.t, "CompositeImplicitAutograd")


def named_as_another_operator(x: Any) -> Any:
    y = x.clone()
    torch.ops.relaxpy_tests.view(y)[0].neg_()
    return y + 1


def from_a_computed_place(x: Any) -> Any:
    y = x.clone()
    place = (x[0, 0] * 0 + 1).long().item()
    torch._check(place >= 0)
    torch._check(place < 3)
    torch.einsum("ij->ji", y).narrow(0, place, 1).neg_()
    return y + 1


def windows_with_gaps(x: Any) -> Any:
    y = x.t() + 0  # whose axes are in memory in the other order
    y.unfold(0, 1, 2).mul_(2)
    y.unfold(1, 1, 3)[1:].neg_()
    return y, y.unfold(0, 1, 3)


def windows_that_overlap(x: Any) -> Any:
    y = x.clone()
    w = y.unfold(1, 3, 1)
    w[:, 1].mul_(5)
    y[0] = 1
    w[1, :, 0].sub_(2)
    return y, w


def copies_of_rows(x: Any) -> Any:
    y = x.clone()
    e = y.expand(2, 3, 4)
    e[1].add_(1)
    e[0, 1].neg_()
    return y, e


def by_strides(x: Any) -> Any:
    y = x * 1
    s = y.as_strided((2, 3), (6, 1), 2)
    s.t()[1].fill_(9)
    y.as_strided((2, 2), (1, 5)).abs_()
    return y, s


def parts_by_other_operators(x: Any) -> Any:
    y = x.clone()
    for part in (y.hsplit(2)[1], y.movedim(0, 1)[0], y.moveaxis(1, 0)[1:], y.vsplit([1])[1]):
        part.mul_(3)
    torch.linalg.diagonal(y).zero_()
    return y


def complex_windows(x: Any) -> Any:
    z = torch.complex(x, x + 1)
    z.unfold(1, 1, 2).mul_(2)
    return torch.view_as_real(z)


CHANGED = (
    *(windows_with_gaps, windows_that_overlap, copies_of_rows, by_strides),
    *(parts_by_other_operators, complex_windows),
    *(views_of_views, parts_that_overlap, rows_of_columns, permuted, unflattened),
    *(
        written_by_indices,
        squeezed_and_moved,
        scattered,
        parts_of_complex_numbers,
        chunks_and_copies,
        of_operators_that_declare_no_views,
        given,
        given_through_an_operator,
        named_as_another_operator,
        from_a_computed_place,
    ),
)


@pytest.mark.parametrize("function", CHANGED)
def test_changes_of_views_are_those_of_their_memory(function: Callable[..., Any]) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    other = torch.ones(2)  # which stays
    program = torch.export.export(Module(lambda self, _, x: function(x)), (other, x.clone()))
    run = relaxpy.compile(from_exported_program(program))["main"]
    results = list(leaves(run(other, x.clone())))
    changed = x.clone()
    expected = leaves(function(changed))
    if function in (given, given_through_an_operator):
        expected = [changed, *expected]
    assert_same(results, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
@pytest.mark.parametrize("function", [windows_with_gaps, windows_that_overlap])
def test_changes_of_views_by_strides_are_for_all_sizes(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    sizes = {1: torch.export.Dim("columns", min=4, max=9)}
    model, x = Module(lambda self, x: function(x)), torch.zeros(3, 5, dtype=dtype)
    program = torch.export.export(model, (x,), dynamic_shapes=((sizes,),))
    run = relaxpy.compile(from_exported_program(program))["main"]
    for columns in (5, 4, 9):
        x = torch.arange(3 * columns).reshape(3, columns).to(dtype)
        assert_same(list(leaves(run(x))), leaves(function(x)))


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_changes_of_windows_are_refused_where_pytorch_would_lose_elements(is_dynamic: bool) -> None:
    def f(x: Any, size: int, step: int) -> Any:
        y = x + 0
        y.unfold(0, size, step).add_(1)
        return y

    kept, lost = [(6, 2, 2), (6, 6, 7), (4, 1, 1)], [(5, 1, 2), (5, 2, 2), (6, 2, 4), (7, 3, 5)]
    for length, size, step in (*kept, *lost):
        torch._dynamo.reset()
        x = torch.arange(float(length))
        compiled = torch.compile(f, backend=relax_dynamo(target="numpy"), dynamic=is_dynamic)
        if (length, size, step) in kept:
            assert_same([compiled(x, size, step)], [f(x, size, step)])
            continue
        message = rf"unfold\(0, {size}, {step}\) changes in place.*as_strided"
        with pytest.raises(Exception, match=message):
            compiled(x, size, step)

    bits = Module(lambda self, x: (f(x, 1, 2), (y := x + 0).view(torch.int32).zero_(), y)[::2])
    with pytest.raises(NotImplementedError, match=r"unfold\(0, 1, 2\) changes in place"):
        from_exported_program(torch.export.export(bits, (torch.ones(5),)))


def test_gradients_of_windows_with_gaps_are_imported() -> None:
    torch._dynamo.reset()
    x = torch.arange(8.0, requires_grad=True)
    compiled = torch.compile(lambda x: x.unfold(0, 2, 3).square().sum(), backend=relax_dynamo())
    (found,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(found, torch.tensor([0.0, 2, 0, 6, 8, 0, 12, 14]))


def test_memory_is_looked_for_near_changes_alone(monkeypatch) -> None:
    def function(_: Any, x: Any) -> Any:
        mask = torch.full((4, 4), -torch.inf).triu_(1)
        return torch.einsum("ij,jk->ik", x, x).exp() + mask

    x = torch.randn(4, 4)
    program = torch.export.export(Module(function), (x,))
    values_for = Mock(side_effect=mutation._Propagation.values_for)
    monkeypatch.setattr(mutation._Propagation, "values_for", values_for)  # runs nodes
    run = relaxpy.compile(from_exported_program(program))["main"]
    values_for.assert_not_called()
    assert_same(run(x), leaves(function(None, x)))


def test_memory_is_looked_for_once(monkeypatch) -> None:
    def function(_: Any, x: Any) -> Any:
        y = F.dropout(x + 1, 0.5, False)
        return torch.linalg.inv(y.relu_() + 2 * torch.eye(4))  # decomposed, so imported again

    x = torch.rand(4, 4)
    program = torch.export.export(Module(function), (x,))
    memories = Mock(side_effect=mutation._memories)
    monkeypatch.setattr(mutation, "_memories", memories)
    run = relaxpy.compile(from_exported_program(program))["main"]
    memories.assert_called_once()
    assert_same(run(x), leaves(function(None, x)))


def test_changes_are_kept_where_pytorch_cannot_show_the_memory(monkeypatch) -> None:
    def function(_: Any, x: Any) -> Any:
        y = x.clone()
        torch.einsum("ij->ji", y)[1].neg_()
        return y + 1

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(Module(function), (x,))
    failing = Mock(side_effect=RuntimeError("values decide"))
    monkeypatch.setattr(mutation._Propagation, "values_for", failing)
    assert_same(
        relaxpy.compile(from_exported_program(program))["main"](x), leaves(function(None, x))
    )
    failing.assert_called()


@pytest.mark.parametrize("name", ["dropout", "feature_dropout", "alpha_dropout"])
@pytest.mark.parametrize(
    "change",  # those that PyTorch makes functional, and one that the importer does
    [
        lambda a: a.t_(),
        lambda a: a.unsqueeze_(0),
        lambda a: a.as_strided((3,), (5,)).add_(1),
        lambda a: torch.einsum("ij->ji", a)[1].neg_(),
        lambda a: a.mul_(2),
    ],
)
def test_dropout_that_leaves_nothing_out_returns_its_operand(
    name: str, change: Callable[[Any], Any]
) -> None:
    dropout = getattr(torch, name)

    def function(x: Any) -> Any:
        a = x.clone()
        change(a)
        b = dropout(dropout(a, 0.5, False), 0.0, True)
        b[0].add_(3)
        a.mul_(5)
        return a, b

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(Module(lambda self, x: function(x)), (x,))
    compiled = relaxpy.compile(from_exported_program(program))
    assert_same(list(leaves(compiled["main"](x))), leaves(function(x)))
