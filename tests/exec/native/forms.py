"""Programs in all forms between which native code chooses, with operands and right results.

Operands are small integers, so that sums are exact in each datatype, whatever their order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

import relaxpy
from relaxpy import IRModule
from relaxpy.exec.api.as_module import as_module
from relaxpy.exec.api.lowered import pipeline
from relaxpy.exec.native.machine_code.machine import Machine, generating_for, llvm
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.fuzz.seed import SEED

Array = np.ndarray[Any, Any]
Sizes = Sequence[int]
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int32")


@dataclass(frozen=True)
class Form:
    """A program that returns `body` of its operands, and the right result.

    Of operands named in `symbolic`, the axes of these numbers have symbolic sizes. Those in
    `constant` are bound.
    """

    body: str
    operands: Mapping[str, Array]
    wanted: Array
    symbolic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    constant: Sequence[str] = ()

    def module(self) -> IRModule:
        """The module of the function `main`."""
        params = ", ".join(
            f"{name}: R.Tensor(({self._shape(name)}), {array.dtype.name!r})"
            for name, array in self.operands.items()
        )
        lines = "".join(f"    {line}\n" for line in self.body.splitlines())
        func = from_source(f"@R.function\ndef main({params}):\n{lines}")
        if self.constant:
            func = func.bind_params({name: self.operands[name] for name in self.constant})
        return as_module(func, "compile")

    def _shape(self, name: str) -> str:
        names = self.symbolic.get(name, {})
        shape = self.operands[name].shape
        return "".join(f"{names[n]!r}, " if n in names else f"{k}, " for n, k in enumerate(shape))

    def run(self, machine: Machine) -> None:
        """Run the program in native code for a machine, and check its result."""
        with generating_for(machine, runs_here=True):
            executable = relaxpy.compile(self.module(), target="native")
        assert {row.backend for row in executable.report()} == {"native"}
        found = executable["main"](
            *(a for name, a in self.operands.items() if name not in self.constant)
        )
        assert found.dtype == self.wanted.dtype
        np.testing.assert_array_equal(found.astype("float64"), self.wanted.astype("float64"))


def emit(module: IRModule, machine: Machine) -> None:
    """Plan and write the kernels of a module that has passed the passes; LLVM reads their code.

    What native code does not expect is a warning, and so an error of the test.
    """
    with generating_for(machine):
        backend = GraphBackend()
        backend.program(module)
        for name, func in module.functions_by_name.items():
            if isinstance(func, PrimFunc):
                kernel = backend.compile_kernel(func, name, f"{name}_unchecked", {})
                assert kernel.is_native, kernel.report
        text = backend.module.text()
    binding = llvm()
    with binding.create_context() as context, binding.parse_assembly(text, context) as parsed:
        parsed.verify()


def lowered(form: Form) -> IRModule:
    """The module of a form after the passes for native code."""
    found: IRModule = pipeline("default", "native")(form.module())
    return found


def generator(*names: object) -> random.Random:
    """A generator of random numbers for these names, and the seed of the run."""
    return random.Random(f"{SEED} {names}")


def integers(rng: random.Random, shape: Sizes, dtype: str, most: int = 2) -> Array:
    """Integers from `-most` to `most`."""
    draw = np.random.default_rng(rng.getrandbits(32))
    return draw.integers(-most, most + 1, shape).astype(typed(dtype))


def typed(dtype: str) -> np.dtype[Any]:
    """The datatype of NumPy of that name."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


@dataclass(frozen=True)
class ProductForm:
    """A matmul of some `rows`, with symbolic sizes of these axes of "m", "k" and "n"."""

    rows: int
    symbolic: str
    is_transposed: bool


ROWS = range(1, 18)
PRODUCTS = [
    ProductForm(rows, "".join(names), is_transposed)
    for rows, is_m, is_k, is_n, is_transposed in product(ROWS, *[(False, True)] * 4)
    for names in [[x for x, is_one in zip("mkn", (is_m, is_k, is_n), strict=True) if is_one]]
]


def product_of(
    how: ProductForm,
    dtype: str,
    sizes: Sizes,
    *,
    batch: int | str | None = None,
    is_constant: bool = False,
    has_bias: bool = False,
) -> Form:
    """A matmul with `sizes` of "k" and "n"; `batch` is the size of an axis before the rows."""
    rng = generator("product", how, dtype, sizes)
    k, n = sizes
    before = () if batch is None else (batch if isinstance(batch, int) else 2,)
    x = integers(rng, (*before, how.rows, k), dtype)
    w = integers(rng, (n, k) if how.is_transposed else (k, n), dtype)
    out = "int32" if dtype == "int8" else dtype
    operands = {"x": x, "w": w}
    right = "R.permute_dims(w)" if how.is_transposed else "w"
    body = f"v = {right}\ny = R.matmul(x, v, out_dtype={out!r})\n"
    wide = x.astype("int64") @ (w.T if how.is_transposed else w).astype("int64")
    wanted = wide.astype("float64").astype(typed(out))
    if has_bias:
        operands["b"] = b = integers(rng, (n,), out)
        body += "z = R.nn.relu(R.add(y, b))\nreturn z"
        wanted = np.maximum((wanted + b).astype(typed(out)), 0).astype(typed(out))
    else:
        body += "return y"
    axes = {
        "x": (*("" for _ in before), "m", "k"),
        "w": ("n", "k") if how.is_transposed else ("k", "n"),
    }
    axes["b"] = ("n",)
    names = {*how.symbolic}
    symbolic = {
        name: {number: axis for number, axis in enumerate(axes[name]) if axis in names}
        for name in operands
    }
    if isinstance(batch, str):
        symbolic["x"][0] = batch
    is_fixed = names.isdisjoint("kn")
    return Form(body, operands, wanted, symbolic, ("w",) if is_constant and is_fixed else ())


def drawn_product(how: ProductForm, dtype: str, *names: object) -> Form:
    """A product in which everything else is drawn."""
    rng = generator("drawn product", how, dtype, names)
    sizes = rng.choice((1, 24, 70, 300)), rng.choice((1, 16, 37, 130))
    return product_of(
        how,
        dtype,
        sizes,
        batch=rng.choice((None, None, 1, 2, "b")),
        is_constant=rng.random() < 0.5,
        has_bias=rng.random() < 0.5,
    )


EXTENTS = (1, 2, 3, 4, 7, 8, 16, 17, 33, 100)
"""Around the lengths of vectors, of short rows and of the sides of transposed squares."""


def drawn_shape(rng: random.Random, ranks: Sizes, most: int) -> tuple[int, ...]:
    """A shape of at most so many elements."""
    while True:
        shape = tuple(rng.choice(EXTENTS) for _ in range(rng.choice(ranks)))
        if prod(shape) <= most:
            return shape


def drawn_names(rng: random.Random, shape: Sizes) -> Mapping[int, str]:
    """The names of the axes that have symbolic sizes."""
    return {n: f"n{n}" for n in range(len(shape)) if rng.random() < 0.4}


def convolution(rng: random.Random) -> Form:
    """A convolution of one or two axes, in either layout, with or without groups and bias."""
    dtype = rng.choice(DTYPES)
    out = "int32" if dtype == "int8" else dtype
    ndim = rng.choice((1, 2))
    groups = rng.choice((1, 1, 1, 2, 8))
    inner, outer = groups * rng.choice((1, 3, 16)), groups * rng.choice((1, 2, 9, 17))
    window = tuple(rng.choice((1, 3, 5)) for _ in range(ndim))
    stride, dilation, padding = rng.choice((1, 2)), rng.choice((1, 1, 2)), rng.choice((0, 1, 2))
    image = tuple(rng.choice((9, 12, 20)) for _ in range(ndim))
    x = integers(rng, (rng.choice((1, 1, 3)), inner, *image), dtype, 1)
    w = integers(rng, (outer, inner // groups, *window), dtype, 1)
    wide = convolved(x.astype("int64"), w.astype("int64"), stride, padding, dilation, groups)
    wanted = wide.astype("float64").astype(typed(out))
    names: dict[int, str] = {0: "b"} if rng.random() < 0.3 else {}
    names |= {2 + n: f"h{n}" for n in range(ndim) if rng.random() < 0.3}
    layout, kernel = "NCHW", "OIHW"
    if ndim == 1:
        layout, kernel = "NCW", "OIW"
    if rng.random() < 0.5:
        x, wanted = np.moveaxis(x, 1, -1).copy(), np.moveaxis(wanted, 1, -1).copy()
        names = {n - (n > 1): name for n, name in names.items()}
        layout = layout.replace("C", "") + "C"
        if groups == 1:
            w, kernel = np.moveaxis(w, (0, 1), (-1, -2)).copy(), kernel[2:] + "IO"
    options = f"{stride}, {padding}, {dilation}, {groups}, {layout!r}, {kernel!r}"
    body = f"y = R.nn.conv{ndim}d(x, w, {options}, out_dtype={out!r})\n"
    body += "z = R.nn.relu(y)\nreturn z" if (has_relu := rng.random() < 0.5) else "return y"
    if has_relu:
        wanted = np.maximum(wanted, 0).astype(typed(out))
    constant = ("w",) if rng.random() < 0.5 else ()
    return Form(body, {"x": x, "w": w}, wanted, {"x": names}, constant)


def convolved(x: Array, w: Array, stride: int, padding: int, dilation: int, groups: int) -> Array:
    """The convolution of `x` (N, C, ...) with `w` (O, C / groups, ...), by its definition."""
    ndim = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * ndim])
    spans = [(n - 1) * dilation + 1 for n in w.shape[2:]]
    sizes = [(n - span) // stride + 1 for n, span in zip(x.shape[2:], spans, strict=True)]
    parts = np.split(w, groups), np.split(x, groups, axis=1)
    found = []
    for own, part in zip(*parts, strict=True):
        total = np.zeros((len(x), len(own), *sizes), "int64")
        for place in np.ndindex(*w.shape[2:]):
            window = tuple(
                slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride)
                for at, size in zip(place, sizes, strict=True)
            )
            weights = own[(..., *place)]
            total += np.einsum("nc...,oc->no...", part[(..., *window)], weights)
        found.append(total)
    return np.concatenate(found, axis=1)


def reduction(rng: random.Random) -> Form:
    """A sum, an extremum or its position along some axes."""
    dtype = rng.choice((*DTYPES, "int64", "uint8"))
    x = abs(integers(rng, drawn_shape(rng, (1, 2, 2, 3), 20_000), "int64")).astype(typed(dtype))
    name = rng.choice(("sum", "max", "min", "argmax", "argmin", "any"))
    count = 1 if name.startswith("arg") else rng.randint(1, x.ndim)
    axes = tuple(sorted(rng.sample(range(x.ndim), count)))
    keepdims = rng.random() < 0.5
    names = {"x": drawn_names(rng, x.shape)}
    if name.startswith("arg"):
        body = f"R.{name}(x, {axes[0]}, {keepdims})"
        wanted = getattr(np, name)(x.astype("int64"), axes[0], keepdims=keepdims)
    elif name == "any":
        body = f"R.max(R.greater(x, R.const(1, {dtype!r})), {[*axes]}, {keepdims})"
        wanted = (x > 1).any(axes, keepdims=keepdims)
    else:
        body = f"R.{name}(R.multiply(x, x), {[*axes]}, {keepdims})"
        wide = getattr(np, name)(x.astype("int64") ** 2, axes, keepdims=keepdims)
        wanted = wide.astype("float64").astype(typed(dtype)) if "f" in dtype else wide.astype(dtype)
    return Form(f"return {body}", {"x": x}, np.asarray(wanted), names)


def transpose(rng: random.Random) -> Form:
    """Permuted axes, maybe with another operand that is not permuted."""
    dtype = rng.choice((*DTYPES, "int64", "bool"))
    x = integers(rng, drawn_shape(rng, (2, 3, 4), 20_000), dtype)
    axes = rng.sample(range(x.ndim), x.ndim)
    names = drawn_names(rng, x.shape)
    wanted = x.transpose(axes)
    if dtype == "bool" or rng.random() < 0.5:
        return Form(f"return R.permute_dims(x, {axes})", {"x": x}, wanted, {"x": names})
    y = integers(rng, wanted.shape, dtype)
    body = f"return R.add(R.permute_dims(x, {axes}), y)"
    others = {n: names[axis] for n, axis in enumerate(axes) if axis in names}
    return Form(body, {"x": x, "y": y}, (wanted + y).astype(y.dtype), {"x": names, "y": others})


def scan(rng: random.Random) -> Form:
    """Running sums, or products of signs, along an axis."""
    dtype = rng.choice((*DTYPES, "int64"))
    x = integers(rng, drawn_shape(rng, (1, 2, 3), 20_000), dtype, 1)
    axis, exclusive = rng.randrange(x.ndim), rng.random() < 0.3
    name, wide = rng.choice(("cumsum", "cumprod")), x.astype("int64")
    if name == "cumprod":
        wide[wide == 0] = 1
        x = wide.astype(x.dtype)
    wanted = getattr(np, name)(wide, axis=axis)
    if exclusive:
        wanted = np.roll(wanted, 1, axis)
        wanted[(slice(None),) * axis + (0,)] = name == "cumprod"
    body = f"return R.{name}(x, {axis}, {dtype!r}, {exclusive})"
    wanted = wanted.astype("float64").astype(x.dtype)
    return Form(body, {"x": x}, wanted, {"x": drawn_names(rng, x.shape)})


KINDS: Mapping[str, Callable[[random.Random], Form]] = {
    "convolutions": convolution,
    "reductions": reduction,
    "transposes": transpose,
    "scans": scan,
}
