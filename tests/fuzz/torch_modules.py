"""Random modules of PyTorch beside PyTorch: `python -m tests.fuzz.torch_modules COUNT [SEED]`.

A module is the text of a `forward` function, drawn line by line (`torch_lines.py`) while PyTorch
runs it. What is varied, each by itself:

- inputs: 1 to 3, and up to two buffers, of ranks 0 to 4, of every datatype, contiguous or with
  other strides; sizes 0, 1 and more; the first axis a number or dynamic, and then the executable
  runs at another size as well;
- views of views, of inputs and of buffers: permuted, sliced, with steps, expanded, overlapping;
- changes in place: of new tensors, views, inputs and buffers, by numbers and tensors, at slices,
  masks and indices, also of the shape of a tensor;
- datatypes of two operands, equal or not; numbers of Python and tensors of rank 0 as operands;
- results: one or several, nested in tuples, lists and dicts; inputs, buffers, views of one memory,
  one of them twice, numbers and None;
- layers of images, one on another, whose arguments are numbers or expressions of sizes; the number
  of images and both sizes of them are dynamic, and 0 or 1 in some calls;
- complex numbers, their parts, and the bits of elements as those of other datatypes, in a part of
  the modules; parts and bits are changed as well;
- exported and compiled for a target, or compiled while it runs by `torch.compile`; then with breaks
  between graphs, so that views and what they are of meet changes in another graph, with strides
  compared, and in a part of the modules with gradients of the inputs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import relaxpy
from relaxpy.relax.frontend.torch import from_exported_program, relax_dynamo
from tests.fuzz.progress import command_line, report
from tests.fuzz.torch_lines import (
    BIT_CHANGES,
    BITS,
    BREAKS,
    CHANGES,
    COMPLEX,
    COMPLEX_CHANGES,
    LAYERS,
    NEW,
    ROUNDED,
    VIEWS,
    expanded,
    filled,
)

WAYS = ("native", "numpy", "torch.compile")
FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *FLOATS, *INTEGERS, torch.bool)
#: The size of dynamic axes where the module is drawn.
DYNAMIC = 5
#: The number of images and their sizes; modules are drawn with the first.
IMAGES = ((2, 5, 6), (3, 7, 4), (1, 9, 9), (2, 2, 3), (1, 12, 8), (0, 5, 6), (1, 1, 1))
#: The shapes of the buffers beside images: weights of convolutions, a number for each channel.
WEIGHTS = ((4, 4, 1, 1), (4, 4, 3, 3), (4, 4, 3, 2), (4, 1, 3, 3), (4,))
#: What PyTorch says about lines that do not fit their operands.
REFUSED = (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AttributeError)


class Redraw(Exception):  # noqa: N818
    """There is no such line, or no such module."""


class Drawn(torch.nn.Module):  # type: ignore[misc]
    """A module with the text of its `forward` function."""

    def __init__(self, text: str, buffers: Mapping[str, Any]) -> None:
        super().__init__()
        scope: dict[str, Any] = {"torch": torch, "nn": torch.nn.functional}
        exec(text, scope)
        self.function: Callable[..., Any] = scope["forward"]
        for name, tensor in buffers.items():
            self.register_buffer(name, copied(tensor))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


@dataclass
class Case:
    """The text of a module, its buffers, and the arguments of each call."""

    text: str
    buffers: Mapping[str, Any]
    calls: Sequence[Sequence[Any]]
    #: The axes of the inputs that are dynamic, if there are several calls.
    dynamic: Sequence[int] = (0,)
    #: Whether gradients are compared, where it is compiled while it runs.
    trains: bool = False

    def module(self) -> Drawn:
        return Drawn(self.text, self.buffers)


def copied(x: Any) -> Any:
    """A tensor of these elements with these strides in other memory."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)


@dataclass
class Draw:
    """A `forward` function while it is drawn: its lines, and the values of its variables."""

    rng: random.Random
    given: dict[str, Any] = field(default_factory=dict)
    kinds: Sequence[tuple[str, ...]] = (VIEWS, VIEWS, CHANGES, CHANGES, NEW, NEW, NEW, BREAKS)
    lines: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    #: Variables whose elements may differ by rounding.
    rounded: set[str] = field(default_factory=set)

    def tensor(self, letter: str) -> str:
        """The name of a value of the kind that the letter stands for."""
        fits: dict[str, Callable[[str, Any], bool]] = {
            "F": lambda name, x: x.is_floating_point(),
            "C": lambda name, x: x.is_complex(),
            "I": lambda name, x: x.dtype in INTEGERS,
            "B": lambda name, x: x.dtype == torch.bool and name not in self.rounded,
            "E": lambda name, x: name not in self.rounded,
            "X": lambda name, x: x.ndim == 4 and x.shape[1] == 4 and name[0] != "b",
        }
        fit = fits.get(letter, lambda name, x: True)
        names = [name for name, value in self.values.items() if fit(name, value)]
        if not names:
            raise Redraw
        recent = names[-1:] if letter == "X" else names[-4:]
        return self.rng.choice(recent if self.rng.random() < 0.6 else names)

    def line(self, template: str) -> str:
        """The template with values in place of its letters."""
        first: list[int] = []
        choices: dict[str, Sequence[object]] = {
            "i": (0, -1, 0, 1),
            "k": (0, 1, 1, 2, 3),
            "c": (0, 1, -2, 3, 0.5, -1.25, True, 2.0),
            "d": DTYPES,
        }

        def choose(letter: str) -> str:
            if letter in choices:
                return str(self.rng.choice(choices[letter]))
            if letter in "ab":
                rank = max(first[0] if first else 1, 1)
                return str(self.rng.randrange(-rank, rank))
            name = self.tensor(letter)
            first.append(self.values[name].ndim)
            return name

        return filled(expanded(template, self.rng), choose)

    def step(self) -> None:
        """Draw a line that runs; it is not added if no line does."""
        kind = self.rng.choice(self.kinds)
        name = f"v{len(self.lines)}"
        try:
            text = self.line(self.rng.choice(kind))
            used = set(re.findall(r"\b[bvx]\d+\b", text))
            operands = [self.values[key] for key in used]
            is_change = kind in (CHANGES, COMPLEX_CHANGES, BIT_CHANGES, BREAKS)
            if mixes_signs(operands) or (is_change and any(map(overlaps, operands))):
                return
            line = text if is_change else f"{name} = {text}"
            values = self.after([*self.lines, line])
        except (Redraw, *REFUSED):
            return
        rounded = set(self.rounded)
        if ROUNDED.search(text) or used & rounded or any(x.is_complex() for x in operands):
            rounded |= used if is_change else {name}
        rounded |= {key for key, x in values.items() if x.dtype in FLOATS[4:]}
        places = {values[key].untyped_storage().data_ptr() for key in rounded & values.keys()}
        rounded |= {key for key, x in values.items() if x.untyped_storage().data_ptr() in places}
        if any(values[key].dtype in INTEGERS for key in rounded & values.keys()):
            return  # the bits of what differs by rounding
        self.lines.append(line)
        self.values, self.rounded = values, rounded

    def after(self, lines: Sequence[str]) -> dict[str, Any]:
        """The values of all variables after these lines."""
        scope: dict[str, Any] = {"torch": torch, "nn": torch.nn.functional}
        names = {name: copied(tensor) for name, tensor in self.given.items()}
        exec("\n".join(lines), scope, names)
        if not all(is_tame(value) for value in names.values()):
            raise Redraw
        return names


def is_tame(x: Any) -> bool:
    """Whether a tensor is small, and rounding does not decide whether its elements are finite."""
    small = isinstance(x, torch.Tensor) and x.numel() < 5000 and x.ndim < 7
    if not small or not (x.is_floating_point() or x.is_complex()):  # which may be bits of others
        return small
    return bool(((x if x.is_complex() else x.double()).abs() < 2e3).all())


def overlaps(x: Any) -> bool:
    """Whether elements share memory, so that PyTorch leaves open what changes do to them."""
    return bool(torch._debug_has_internal_overlap(x))


def mixes_signs(values: Sequence[Any]) -> bool:
    """Whether a conversion of a negative number to an unsigned one, which C leaves open, may be."""
    unsigned = any(x.dtype == torch.uint8 for x in values)
    return unsigned and any(x.is_floating_point() for x in values)


def tensor(rng: random.Random, shape: Sequence[int], dtype: Any = None) -> Any:
    """A tensor of few bits, of a random datatype and layout."""
    dtype = dtype or rng.choice(DTYPES)
    low = 0 if dtype in (torch.bool, torch.uint8) else -8
    order = list(range(len(shape)))
    if rng.random() < 0.3:
        rng.shuffle(order)
    strided = [shape[k] for k in order]
    count = torch.Size(strided).numel()
    x = torch.tensor([rng.randrange(low, 8) for _ in range(count)]).reshape(strided)
    x = (x / 4 if dtype.is_floating_point else x % 2 if dtype == torch.bool else x // 2).to(dtype)
    return x.permute([order.index(k) for k in range(len(shape))])


def write(seed: object) -> Case:
    """The module of this seed."""
    for k in range(20):
        try:
            return _write(random.Random(f"{seed}.{k}"))
        except (Redraw, *REFUSED):
            continue
    raise AssertionError(f"no module for the seed {seed}")


def _write(rng: random.Random) -> Case:
    if rng.random() < 0.3:
        return _images(rng)
    base = (DYNAMIC, *rng.choices((1, 2, 3, 4, 0), (2, 3, 3, 2, 0.4), k=3))
    shapes: dict[str, tuple[int, ...]] = {}
    for k in range(rng.choice((1, 1, 2, 3))):
        shapes[f"x{k}"] = base[: rng.choice((1, 2, 2, 3, 3, 4))]
    for k in range(rng.choice((0, 0, 1, 2))):
        shapes[f"b{k}"] = base[rng.randrange(1, 3) : rng.randrange(1, 5)]
    if rng.random() < 0.2:
        shapes["x1"] = ()
    trains = rng.random() < 0.3
    dtypes = (torch.float32, torch.float64) if trains else DTYPES
    given = {name: tensor(rng, shape, rng.choice(dtypes)) for name, shape in sorted(shapes.items())}
    more = rng.choice(((), (), (COMPLEX, COMPLEX, COMPLEX_CHANGES), (BITS, BIT_CHANGES)))
    draw = Draw(rng, given)
    draw.kinds = (*draw.kinds, *more)
    text, buffers, call = _drawn(draw, rng.choice((1, 2, 3, 4, 6, 9, 12)))
    calls = [call]
    if rng.random() < 0.5:
        longer = [x for x in call if x.ndim]
        calls.append([torch.cat([x, x[:2]]) if x.ndim else x for x in call] if longer else [])
    case = Case(text, buffers, calls, trains=trains and "float16" not in text)
    for call in calls:
        case.module()(*map(copied, call))
    return case


def _images(rng: random.Random) -> Case:
    dtype = rng.choice((torch.float32, torch.float32, torch.float64))
    given = {f"b{k}": tensor(rng, shape, dtype) for k, shape in enumerate(WEIGHTS)}
    images = [tensor(rng, (n, 4, *sizes), dtype) for n, *sizes in IMAGES]
    kinds = (*[LAYERS] * 8, VIEWS, CHANGES, NEW)
    draw = Draw(rng, {"x0": images[0], **given}, kinds)
    text, buffers, call = _drawn(draw, rng.choice((1, 2, 3)))
    case = Case(text, buffers, [call, *([x] for x in rng.sample(images[1:], 3))], (0, 2, 3))
    return replace(case, calls=[call for call in case.calls if runs(case.module(), call)])


def runs(module: Callable[..., Any], call: Sequence[Any]) -> bool:
    """Whether PyTorch takes arguments of these sizes."""
    try:
        module(*map(copied, call))
    except (*REFUSED, AssertionError):  # an AssertionError of what a program was exported for
        return False
    return True


def _drawn(draw: Draw, count: int) -> tuple[str, Mapping[str, Any], Sequence[Any]]:
    """The text of a module of up to so many lines, its buffers, and the arguments of a call."""
    draw.values = draw.after([])
    for _ in range(10 * count):
        if len(draw.lines) < count:
            draw.step()
    names = [name for name in draw.given if name.startswith("x")]
    buffers = {name: x for name, x in draw.given.items() if name not in names}
    text = "\n    ".join(
        [
            f"def forward(self, {', '.join(names)}):",
            *(f"{name} = self.{name}" for name in buffers),
            *draw.lines,
            f"return {result(draw)}",
        ]
    )
    return text, buffers, [draw.given[name] for name in names]


def result(draw: Draw) -> str:
    """The text of what the function returns."""
    rng = draw.rng
    names = [*draw.values]
    chosen = names[-1:] + rng.choices(names, k=rng.choice((0, 0, 1, 2)))
    forms = ("{0}", "({all},)", "[{all}]", "{{'r': {0}, 's': [{all}]}}", "({all}, None, 3)")
    sizes = ("({all}, {0}.numel())", "({all}, ({0}, {0}))", "({all}, {0}.ndim, 1.5)")
    return rng.choice((*forms, *forms, *sizes)).format(*chosen, all=", ".join(chosen))


def leaves(values: Any) -> list[Any]:
    """Results as tensors; None is none of them."""
    found = torch.utils._pytree.tree_leaves(values)
    return [torch.as_tensor(value) for value in found if value is not None]


def agree(found: Any, expected: Any, what: str) -> None:
    """Compare two lists of tensors.

    Errors:
        AssertionError: they differ by more than rounding.
    """
    assert len(found) == len(expected), f"{len(found)} {what} instead of {len(expected)}"
    for x, y in zip(found, expected, strict=True):
        fine = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float64: 1e-6}.get(y.dtype, 3e-4)
        torch.testing.assert_close(
            torch.as_tensor(x),
            y,
            rtol=fine,
            atol=fine,
            equal_nan=True,
            msg=lambda m: f"{what}: {m}",
        )


def run(case: Case, way: str) -> None:
    """Import or compile the module, and call it.

    Errors:
        AssertionError: it returns or changes something else than PyTorch.
        Redraw: PyTorch itself does not export or compile it.
    """
    if way == "torch.compile":
        run_compiled(case)
    else:
        run_exported(case, way)


def run_compiled(case: Case) -> None:
    torch._dynamo.reset()
    plain, theirs, module = case.module(), case.module(), case.module()
    try:
        eager = [called(case, plain, call) for call in case.calls]
        # Of decomposed operators, as Inductor returns them: the strides of kernels may be others.
        traced = torch.compile(theirs, backend="aot_eager_decomp_partition")
        layouts = [*map(layout, compared(case, traced, eager)[0])]
        agree([*theirs.buffers()], [*plain.buffers()], "buffers")
    except (*REFUSED, AssertionError) as error:  # what PyTorch itself compiles to differs
        raise Redraw from error
    compiled = torch.compile(module, backend=relax_dynamo(target="numpy"))
    try:
        found = compared(case, compiled, eager)[0]
    except torch._dynamo.exc.BackendCompilerFailed as error:
        if "by unfold" in str(error):  # of which PyTorch has lost only elements that are 0
            raise Redraw from error
        raise
    assert [*map(layout, found)] == layouts, "strides of results"
    agree([*module.buffers()], [*plain.buffers()], "buffers")


def compared(case: Case, run: Callable[..., Any], eager: Sequence[Any]) -> tuple[list[Any], ...]:
    """What the first call gives, after all calls have been compared with those of eager mode."""
    made = [called(case, run, call) for call in case.calls]
    for ours, theirs in zip(made, eager, strict=True):
        for found, expected, what in zip(ours, theirs, KINDS, strict=True):
            agree(found, expected, what)
    return made[0]


KINDS = ("results", "arguments", "gradients")


def called(case: Case, run: Callable[..., Any], call: Sequence[Any]) -> tuple[list[Any], ...]:
    """The results, the arguments after the call, and the gradients of these."""
    given = [*map(copied, call)]
    if not case.trains:
        return leaves(run(*given)), given, []
    roots = [x.requires_grad_(x.is_floating_point()) for x in given]
    args = [x * 1 if x.requires_grad else x for x in roots]
    results = leaves(run(*args))
    sums = [y.abs().square().mean() for y in results if y.requires_grad and y.numel()]
    some = [x for x in roots if x.requires_grad] if sums else []
    gradients = torch.autograd.grad(sum(sums), some, allow_unused=True) if some else []
    zeros = [torch.zeros_like(x) if g is None else g for x, g in zip(some, gradients, strict=True)]
    return [y.detach() for y in results], [x.detach() for x in args], zeros


def layout(x: Any) -> list[tuple[int, int]]:
    """The sizes of a tensor that are not 1, with its strides; none if it has no elements."""
    pairs = zip(x.shape, x.stride(), strict=True)
    return [(size, stride) for size, stride in pairs if size > 1 and x.numel()]


def run_exported(case: Case, target: str) -> None:
    module, dynamic = case.module(), None
    if len(case.calls) > 1:
        shape = dict.fromkeys(case.dynamic, torch.export.Dim.AUTO)
        dynamic = (tuple(shape if x.ndim else {} for x in case.calls[0]),)
    try:
        exported = torch.export.export(
            module, tuple(map(copied, case.calls[0])), {}, dynamic_shapes=dynamic
        )
        plain = exported.run_decompositions({})
        guarded = exported.module(), plain.module()  # decomposing may add guards
    except Exception as error:  # of PyTorch, which refuses modules with many kinds
        raise Redraw from error
    changed = changed_names(case, plain.graph_signature)
    run = relaxpy.compile(from_exported_program(exported), target)["main"]
    inputs = plain.graph_signature.user_inputs
    known = {node.name: node.meta["val"].shape for node in plain.graph.find_nodes(op="placeholder")}
    for call in case.calls:
        sizes = (
            (n, m)
            for name, x in zip(inputs, call, strict=True)
            for n, m in zip(known[name], x.shape, strict=True)
        )
        if any(number_of(n) not in (None, m) for n, m in sizes) or not all(
            runs(accepts, call) for accepts in guarded
        ):
            continue  # PyTorch has found that this size cannot vary
        if ".contiguous().as_strided((2, 2), (1, 2)).mul_" in case.text and any(
            x.is_contiguous() != y.is_contiguous() for x, y in zip(call, case.calls[0], strict=True)
        ):
            continue  # it changes the input or a copy of it, by the strides of the first call
        module, args = case.module(), [*map(copied, call)]
        expected = leaves(module(*args))
        after = dict(zip(inputs, args, strict=True)) | dict(module.named_buffers())
        right = [*(after[name] for name in changed), *expected]
        pairs = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in right]
        agree(run(*map(copied, call)), pairs, "results")


class Writes(TorchDispatchMode):  # type: ignore[misc]
    """A scope in which the memory that operators change in place is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable and torch.Tag.inplace_view not in func.tags:
            self.memory.add(args[0].untyped_storage().data_ptr())
        return func(*args, **(kwargs or {}))


def changed_names(case: Case, signature: Any) -> list[str]:
    """The buffers and inputs that a module changes, as PyTorch says.

    Its decompositions copy the operand of dropout that leaves nothing out; eager mode does not.
    """
    names = [spec.target or spec.arg.name for spec in signature.input_specs]
    changed = {s.target for s in signature.output_specs if "MUTATION" in s.kind.name}
    if "dropout" in case.text:
        module, args = case.module(), [*map(copied, case.calls[0])]
        tensors = [*module.named_buffers(), *zip(signature.user_inputs, args, strict=True)]
        with Writes() as writes:
            module(*args)
        changed |= {n for n, x in tensors if x.untyped_storage().data_ptr() in writes.memory}
    return sorted(changed, key=names.index)


def number_of(size: Any) -> int | None:
    """The number that a size of PyTorch always is, or None."""
    found: int | None = size if isinstance(size, int) else size.node.maybe_as_int()
    return found


def check(seed: str, way: str) -> None:
    """Draw modules of this seed until PyTorch itself runs one this way; compare with it.

    Errors:
        AssertionError: it differs, or PyTorch refuses all modules.
    """
    for again in range(20):
        case = write(f"{seed}.{again}" if again else seed)
        try:
            return run(case, way)
        except Redraw:
            continue
        except Exception as error:
            given = [[(tuple(x.shape), x.stride(), x.dtype) for x in call] for call in case.calls]
            error.add_note(f"seed {seed}\n{case.text}\n{given}")
            raise
    raise AssertionError(f"PyTorch refuses all modules of the seed {seed}")


def main(count: int, seed: str) -> int:
    """Report failures of `count` modules; 1 if there are any."""
    return report("PyTorch modules", count, seed, lambda name, k: check(name, WAYS[k % 3]))


if __name__ == "__main__":
    command_line(main)
