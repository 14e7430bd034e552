"""Random kernels: the text of a PrimFunc and the arguments to call it with.

What is varied, each by itself:

- names: single letters, or those of builtins, of the runtime and of generated code (`names`);
- parameters: handles matched in the body, buffers annotated in the signature, scalars of any
  datatype, in any order; buffers declared in another order than they are filled in;
- sizes: literals, now and then one above the ends of int16 and float16, shape variables, scalar
  arguments (zero and negative ones too), and sums, products, differences and quotients of these,
  among them divisions by zero;
- arguments: other sizes in each of several calls of one kernel, the same memory twice, overlapping
  views, gaps, offsets, negative and zero strides, read-only arrays, arrays from a pickle, wrong
  shapes; strides and offsets that the buffer declares, as numbers or as variables; what lies
  around each memory is compared, too, or is a page that must not be accessed;
- large integers in every place of one: scalars of any datatype, literals and elements near the ends
  of their datatypes, and operators that overflow, in indices, extents, conditions, lets and values;
- threads that call native functions: with usual stacks and with small ones;
- buffers: arguments, scratch of the whole function or of a block, views of the memory of others,
  copies of arguments and copied to them, in their shape or in one dimension, matched regions; ranks
  0 to 3; every datatype; buffers of no elements;
- loops: of every kind, over sizes, scalars and data, from other starts than zero, triangular,
  split, fused, permuted, with no iteration, left early; while loops;
- callers: another kernel now and then, which passes on its handles, or the data of its buffers;
- guards: `if` and `else`, `T.where`, always, at times and never true;
- statements: elementwise, over one long axis and sums along it, recurrences, colliding stores at
  affine, divided, clamped and indirect places, updates in place, reductions with and without init,
  sums of products of narrower datatypes, chains of stages over the rows and columns of a matrix,
  several statements to a loop, lets, assertions, evaluations of what nothing uses,
  functions outside of the program that get a buffer, a view or an address, by two intrinsics,
  also a view that moves in a loop, or a row that is matched in a block;
- blocks: spatial and reduction axes, remapped or bound to sums of loops, nested and opaque blocks;
- values: small numbers whose sums are exact in any order, special ones (NaN, infinities, -0.0,
  denormals, the extremes of integers and of floats from 8 bits on), any floats; literals, elements,
  lets, casts, chains of three through any datatypes, choices, conditions that short-circuit,
  arithmetic and intrinsics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace

from tests.fuzz.kernels.expressions import Index, Size, Tensor
from tests.fuzz.kernels.layouts import Arguments
from tests.fuzz.kernels.program import CALLERS, Program
from tests.fuzz.kernels.semantics import BITS, FLOATS

_T = SimpleNamespace(min=min, max=max, int64=int, int32=int)
_PALETTES = (
    *(["float32"],) * 6,
    ["int8", "uint8", "int32"],
    ["float16", "float32"],
    ["float32", "int32"],
    ["float32", "bool"],
    ["int32"],
    ["int64", "int32"],
    ["int32", "bool"],
    ["float64", "int64"],
    ["bfloat16", "float32"],
    ["float16", "int8"],
    ["uint8", "int16"],
    ["uint32", "uint64"],
    ["int8", "float32"],
    ["uint16", "bfloat16"],
    ["float8_e5m2", "float32"],
    ["float8_e4m3fn", "int32"],
)
#: Numbers of elements of a long argument, the second of which int16 and float16 cannot count.
_LONG = (1_031, 70_001)
#: Datatypes in which sums along a long axis are the same in any order.
_EXACT = ("float64", "int8", "int32", "int64", "uint8", "uint32")
#: Datatypes of operands whose products are summed in a wider one.
_NARROWER = {
    "int32": ("int8", "uint8", "int16", "float8_e4m3fn"),
    "int64": ("int32",),
    "float32": ("float16", "bfloat16", "int8", "float8_e5m2"),
    "float64": ("float32", "int64"),
    "int16": ("uint8",),
}
_EVERY_DTYPE = ("bool", *BITS, *FLOATS)


def generate(seed: int | str) -> Program:
    """The program of a seed."""
    return Generator(Random(seed)).program()


class Generator(Arguments):
    """Writes one program."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.sizes: list[Size] = []
        self.views: set[str] = set()
        self.local: dict[str, str] = {}
        """The lines that declare the scratch of the whole function."""
        self.palette = (
            self.random.sample(_EVERY_DTYPE, 5) if self.chance(0.08) else self.pick(_PALETTES)
        )
        self.symbols: list[str] = []
        self.arguments: list[Tensor] = []
        self.long: Tensor | None = None
        """An argument of very many elements, which only `long_axis` uses."""

    def program(self) -> Program:
        """The program, and calls of it."""
        name = self.fresh("f")
        self._declare_integers()
        declarations = self._declare_arguments()
        self._declare_scratch()
        views = self._declare_views()
        for dtype in self.palette:
            if self.chance(0.2):
                self.carriers[dtype] = self.fresh("lv")
        self._body()
        self._order_parameters()
        head = [f"{v} = T.{d}()" for d, v in self.carriers.items()]
        head = [*self._symbol_lines(), *head]
        if self.chance(0.3):
            declarations = [*declarations, *self.local.values()]
            self.random.shuffle(declarations)
        else:
            self.random.shuffle(declarations)
            own = list(self.local.values())
            self.random.shuffle(own)
            declarations += own
        params = ", ".join(f"{n}: {a}" for n, a in self.params)
        body = ["    " + line for line in [*head, *declarations, *views]] + self.lines
        text = "\n".join(["@T.prim_func", f"def {name}({params}):", *body]) + "\n"
        first = self.call(self.values)
        others = [self.call(self._other_values()) for _ in range(self.random.choice([0, 1, 2]))]
        block = self.pick([0, 0, 1 << self.random.randint(0, 9)])
        stack = self.pick([64, 80, 128]) << 10 if self.chance(0.1) else 0
        threads = self.chance(0.7)
        caller = self.pick([*CALLERS, *[""] * 8])
        return Program(text, (first, *others), block, threads=threads, stack=stack, caller=caller)

    # ---- sizes

    def _declare_integers(self) -> None:
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            name = self.fresh("n" if not self.symbols else "k")
            self.symbols.append(name)
            self.values[name] = self.pick([0, 1, 1, 2, 3, 4])
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2])):
            name = self.fresh("m")
            dtype = self.pick(["int64", "int64", "int32"])
            self.params.append((name, f"T.{dtype}"))
            self.values[name] = self.pick([0, 1, 2, 3, 4, 5, -1, -2])
        while self.chance(0.3):
            name, dtype = self.fresh("c"), self.pick(["int64", "int64", "int32", "int32", *BITS])
            self.params.append((name, f"T.{dtype}"))
            self.wide.append((name, dtype))
        if self.chance(0.1):
            name, dtype = self.fresh("s"), self.pick(["float32", "bool", "uint8", *self.palette])
            self.params.append((name, f"T.{dtype}"))
            self.scalars.append((name, dtype))
        self.integers = [Index(n, v, v) for n, v in self.values.items()]

    def _other_values(self) -> dict[str, int]:
        return {
            name: self.pick([0, 1, 2, 3, 4] if name in self.symbols else [0, 1, 2, 3, 5, -1, -3])
            for name in self.values
        }

    def _symbol_lines(self) -> list[str]:
        return [f"{name} = T.int64()" for name in self.symbols]

    def size(self) -> Size:
        """A size, mostly a small positive one, and often one that was drawn before."""
        if self.sizes and self.chance(0.5):
            return self.pick(self.sizes)
        found = self._size()
        for _ in range(4):
            if 0 < found.value <= 6 or (found.value <= 0 and self.chance(0.08)):
                break
            found = self._size()
        self.sizes.append(found)
        return found

    def _size(self) -> Size:
        if not self.values or self.chance(0.4):
            value = self.pick([1, 2, 2, 3, 3, 4, 0])
            text = [str(value), str(value), str(value), f"T.int64({value})", f"({value} + 0)"]
            return self.sized(self.pick(text))
        a, b = self.pick(list(self.values)), self.pick(list(self.values))
        forms = [a] * 8 + [f"({a} + 1)", f"({a} * 2)", f"({a} - 1)", f"({a} // 2)", f"({a} + {b})"]
        forms += [f"({a} + 2)", f"({a} - {b})", f"T.min({a}, {b})"]
        forms += [f"({a} // {b})"]
        forms += [f"T.max({a}, 1)", f"({a} * {b})", f"(({a} + 1) // 2)", f"({a} % 3)"]
        return self.sized(self.pick(forms))

    def sized(self, text: str) -> Size:
        return Size(text, self.evaluated(text, self.values))

    def evaluated(self, text: str, values: dict[str, int]) -> int:
        """A size in one call; 0 where it divides by zero."""
        try:
            return int(eval(text, {"T": _T, **values}))
        except ZeroDivisionError:
            return 0

    def shape(self) -> tuple[Size, ...]:
        while True:
            rank = self.random.choices([0, 1, 2, 3], [12, 50, 30, 8])[0]
            found = tuple(self.size() for _ in range(rank))
            if math.prod(max(s.value, 1) for s in found) <= 60:
                return found

    # ---- declarations

    def _declare_arguments(self) -> list[str]:
        shapes = [self.shape() for _ in range(self.random.choice([1, 2, 2, 3, 4]))]
        for name in self.symbols:
            if not any(s.text == name for shape in shapes for s in shape):
                shapes.append((self.sized(name), *([self.size()] if self.chance(0.2) else [])))
        declarations = []
        self.random.shuffle(shapes)
        for shape in shapes:
            buffer = Tensor(self.fresh(), self.pick(self.palette), shape)
            layout = self._declared_layout(buffer)
            literal = all(
                s.text not in self.symbols and not _mentions(s.text, self.symbols) for s in shape
            )
            if literal and "=" not in layout and self.chance(0.3):
                self.params.append((buffer.name, f"T.Buffer({_tuple(shape)}, {buffer.dtype!r})"))
                self.passed[buffer.name] = buffer
            else:
                handle = self.fresh(f"{buffer.name.lower()}_handle")
                self.params.append((handle, "T.handle"))
                self.passed[handle] = buffer
                declarations.append(
                    f"{buffer.name} = T.match_buffer"
                    f"({handle}, {_tuple(shape)}, {buffer.dtype!r}{layout})"
                )
            self.arguments.append(buffer)
        self.buffers += self.arguments
        if self.chance(0.02):
            count = self.sized(str(self.pick(_LONG)))
            self.long = Tensor(self.fresh(), self.pick(self.palette), (count,))
            self.params.append((self.long.name, f"T.Buffer(({count},), {self.long.dtype!r})"))
            self.passed[self.long.name] = self.long
        return declarations

    def _declared_layout(self, buffer: Tensor) -> str:
        more = ""
        if buffer.shape and self.chance(0.1):
            steps = []
            step = 1
            for size in reversed(buffer.shape):
                kind = self.random.random()
                if kind < 0.5:
                    name = self.fresh("st")
                    self.symbols.append(name)
                    steps.insert(0, name)
                else:
                    steps.insert(0, str(step if kind < 0.9 else step + 1))
                step *= max(size.value, 1)
            self.strides[buffer] = steps
            more += f", strides=[{', '.join(steps)}]"
        if self.chance(0.15 if more else 0.04):
            offset = self.pick(["0", "0", "1", "", "", ""])
            if not offset:
                offset = self.fresh("o")
                self.symbols.append(offset)
            more += f", elem_offset={offset}"
        return more

    def _order_parameters(self) -> None:
        """Any order in which sizes stand before the annotations that use them."""
        scalars = [p for p in self.params if not p[1].startswith(("T.Buffer", "T.handle"))]
        others = [p for p in self.params if p not in scalars]
        self.random.shuffle(others)
        for scalar in scalars:
            last = next(
                (k for k, (_, a) in enumerate(others) if _mentions(a, [scalar[0]])), len(others)
            )
            others.insert(self.random.randint(0, last), scalar)
        self.params = others

    def _declare_scratch(self) -> None:
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            shape = self.pick(self.arguments).shape if self.chance(0.5) else self.shape()
            self.buffers.append(self._scratch(self.pick(self.palette), shape))

    def _scratch(self, dtype: str, shape: tuple[Size, ...]) -> Tensor:
        """A new buffer of the whole function."""
        buffer = Tensor(self.fresh(), dtype, shape, filled=False)
        self.lasting.add(buffer.name)
        scope = self.pick(["", "", "", ', scope="shared"', ', scope="local"'])
        self.local[buffer.name] = (
            f"{buffer.name} = T.alloc_buffer({_tuple(shape)}, {dtype!r}{scope})"
        )
        return buffer

    def _declare_views(self) -> list[str]:
        if not self.chance(0.1):
            return []
        if self.chance(0.3):
            base = self.pick(self.buffers)
            return [self._view(base, base.shape, "")]
        # A view that is larger than its memory, or whose strides overlap, is not checked dimension
        # by dimension: such views are left out until it is.
        found = [b for b in self.buffers if all(s.text.isdigit() for s in b.shape)]
        if not found:
            return []
        base = self.pick(found)
        count = math.prod(s.value for s in base.shape)
        sizes = [self.random.randint(1, max(count, 1))]
        if self.chance(0.4) and sizes[0] > 1:
            sizes = [sizes[0] // 2, 2]
        if math.prod(sizes) > count:
            return []
        shape = tuple(self.sized(str(size)) for size in sizes)
        offset = self.random.randint(0, count - math.prod(sizes))
        more = f", elem_offset={offset}" if offset or self.chance(0.3) else ""
        return [self._view(base, shape, more)]

    def _view(self, base: Tensor, shape: tuple[Size, ...], more: str) -> str:
        """The declaration of a buffer in the memory of `base`."""
        view = Tensor(self.fresh(), base.dtype, shape, filled=base.filled)
        self.buffers.append(view)
        self.views.add(view.name)
        layout = f"{_tuple(shape)}, {base.dtype!r}, data={base.name}.data{more}"
        return f"{view.name} = T.decl_buffer({layout})"

    # ---- statements

    def _body(self) -> None:
        scratch = [b for b in self.buffers if b.name in self.local]
        self.random.shuffle(scratch)
        for buffer in scratch:
            if self.chance(0.2):
                self.statement(2)
            if self.chance(0.95):
                self.fill(buffer)
        if self.views and self.chance(0.5):
            self.passing(0)
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            self.statement(self.pick([1, 1, 2, 3]))

    def several(self, depth: int) -> None:
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        """One statement, perhaps with others inside."""
        if depth <= 0 or self.nested > 3:
            self.store()
            return
        kinds = {
            self.loop: 14,
            self.store: 6 if self.loops else 2,
            self.elementwise: 10,
            self.reduction: 8,
            self.recurrence: 6,
            self.collision: 6,
            self.branch: 5 if self.loops else 2,
            self.block: 8,
            self.let: 3,
            self.evaluation: 1,
            self.repeat: 1,
            self.contraction: 5,
            self.extreme: 2 if not self.loops else 0,
            self.stages: 6 if not self.loops else 0,
            self.copy: 5 if not self.loops else 0,
            self.passing: 4 if self.depth == 1 else 0,
            self.long_axis: 40 if self.long and not self.loops else 0,
        }
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        before = self.tame
        self.tame = before or self.chance(0.35)
        kind(depth)
        self.tame = before

    def targets(self) -> list[Tensor]:
        found = [b for b in self.buffers if b.stored and (not b.empty or self.dead)]
        return found or [b for b in self.buffers if b.stored]

    def store(self, depth: int = 0, target: Tensor | None = None, places: str = "") -> None:
        """A store, perhaps an update of what is there."""
        buffer = target or self.pick(self.targets())
        at = places or self.places(buffer)
        element = f"{buffer.name}[{at}]"
        value = self.value(buffer.dtype, self.random.choice([1, 1, 1, 2, 2, 3, 3, 4]))
        if not buffer.filled or self.chance(0.6):
            self.write(f"{element} = {value}")
        else:
            self.write(f"{element} = {self.updated(buffer.dtype, element, value)}")

    def updated(self, dtype: str, element: str, value: str) -> str:
        """`element` combined with `value`."""
        if dtype == "bool":
            return f"({element} {self.pick(['and', 'or'])} {value})"
        kinds = ["+", "+", "+", "*", "-", "min", "max"]
        if dtype in BITS:
            kinds += ["^", "&", "|"]
        kind = self.pick(kinds)
        a, b = (element, value) if self.chance(0.85) else (value, element)
        return f"T.{kind}({a}, {b})" if kind in ("min", "max") else f"({a} {kind} {b})"

    def fill(self, buffer: Tensor) -> None:
        """Give every element of scratch a value."""
        if self.chance(0.2) and buffer.shape:
            self._filling_block(buffer)
        else:
            with self.nest(buffer.shape) as at:
                self.store(0, buffer, _at(at))
        buffer.filled = True

    def _filling_block(self, buffer: Tensor) -> None:
        head = f'with T.block("{self.pick(["b", "fill", "root"])}"):'
        with self.nest(buffer.shape) as at, self.suite(head):
            axes = self._axes("S" * len(at), at, buffer.shape)
            self.store(0, buffer, _at(axes))

    def elementwise(self, depth: int) -> None:
        buffer = self.pick(self.targets())
        with self.nest(buffer.shape) as at:
            if self.chance(0.2):
                with self.suite(f"if {self.condition()}:"):
                    self.store(0, buffer, _at(at))
            else:
                self.store(0, buffer, _at(at))
            if self.chance(0.3):
                self.statement(depth - 1)
        if not buffer.filled and self.chance(0.8):
            self.fill(buffer)

    def recurrence(self, depth: int) -> None:
        """Each element made of the one before it, or after it."""
        found = [b for b in self.targets() if b.shape and b.filled]
        if not found:
            self.store()
            return
        buffer = self.pick(found)
        axis = self.random.randrange(len(buffer.shape))
        shape = list(buffer.shape)
        size = shape.pop(axis)
        step = self.pick([1, 1, 1, 2])
        with (
            self.nest(shape) as at,
            self.loop_over(f"range({step}, {size})", step, size.value - 1) as i,
        ):
            here, there = list(at), list(at)
            back = self.chance(0.3)
            end = f"({size} - 1 - {i})"
            here.insert(axis, Index(end, 0, 0) if back else i)
            there.insert(axis, Index(f"({end} + {step})" if back else f"({i} - {step})", 0, 0))
            before = f"{buffer.name}[{_at(there)}]"
            value = self.value(buffer.dtype, 1)
            self.write(f"{buffer.name}[{_at(here)}] = {self.updated(buffer.dtype, before, value)}")
            if self.chance(0.3):
                self.store()

    def collision(self, depth: int) -> None:
        """Stores of several iterations to one element, beside others."""
        with self.nest([self.size() for _ in range(self.random.choice([1, 2, 2]))]):
            for _ in range(self.random.choice([1, 2, 2, 3])):
                self.store()

    def reduction(self, depth: int) -> None:
        """A sum, a product, an extreme along some axes."""
        targets = [b for b in self.targets() if b.filled] or self.targets()
        buffer = self.pick(targets)
        over = [self.size() for _ in range(self.random.choice([1, 1, 2]))]
        if self.chance(0.6):
            self._reduction_block(buffer, over)
            return
        order = self.chance(0.7)
        shapes = (buffer.shape, over) if order else (over, buffer.shape)
        with self.nest(shapes[0]) as first, self.nest(shapes[1]) as second:
            at = _at(first if order else second)
            element = f"{buffer.name}[{at}]"
            value = self.value(buffer.dtype, 2)
            if self.chance(0.3):
                value = self.product(buffer.dtype)
            line = f"{element} = {self.updated(buffer.dtype, element, value)}"
            if self.chance(0.2):
                with self.suite(f"if {self.condition()}:"):
                    self.write(line)
            else:
                self.write(line)

    def contraction(self, depth: int) -> None:
        """A sum of products over a dimension that two buffers share."""
        found = [b for b in self.readable() if b.shape and b.dtype != "bool"]
        targets = [b for b in self.targets() if b.filled and b.dtype != "bool"]
        if not (found and targets):
            self.store()
            return
        target, left = self.pick(targets), self.pick(found)
        before, self.tame = self.tame, True
        with self.nest([*target.shape, self.pick(left.shape)]) as at:
            element = f"{target.name}[{_at(at[: len(target.shape)])}]"
            self.write(f"{element} = ({element} + {self.product(target.dtype)})")
        self.tame = before

    def extreme(self, depth: int) -> None:
        """The largest or smallest of a row, and where it is."""
        found = [b for b in self.readable() if b.shape and b.dtype != "bool"]
        if not found:
            self.store()
            return
        source = self.pick(found)
        best = self._scratch(source.dtype, source.shape[:-1])
        place = self._scratch(self.pick(["int32", "int64"]), source.shape[:-1])
        with self.nest(source.shape) as at, self.suite('with T.block("extreme"):'):
            axes = self._axes("S" * (len(at) - 1) + "R", at, source.shape)
            kept = _at(axes[:-1])
            one, where = f"{best.name}[{kept}]", f"{place.name}[{kept}]"
            value = f"{source.name}[{_at(axes)}]"
            with self.suite("with T.init():"):
                self.write(f"{where} = T.{place.dtype}({self.pick([-1, 0])})")
                self.write(f"{one} = {self.literal(source.dtype)}")
            test = f"{one} {self.pick(['>', '>=', '<', '<='])} {value}"
            if self.chance(0.2):
                test = f"({test} or ({one} == {value} and {where} < {axes[-1]}))"
            names = self.fresh("t"), self.fresh("u")
            number = f'T.Cast("{place.dtype}", {axes[-1]})'
            self.write(f"{names[0]} = T.Select({test}, {where}, {number})")
            self.write(f"{names[1]} = T.Select({test}, {one}, {value})")
            stores = [f"{where} = {names[0]}", f"{one} = {names[1]}"]
            self.random.shuffle(stores)
            for line in stores:
                self.write(line)
        best.filled = place.filled = True
        self.buffers += [best, place]
        targets = [b for b in self.targets() if b.dtype in (best.dtype, place.dtype)]
        for buffer in targets[:1]:
            with self.nest(buffer.shape) as at:
                self.store(0, buffer, _at(at))

    def stages(self, depth: int) -> None:
        """Matrices, and vectors of their rows and columns, each computed from those before it."""
        shape = (self.size(), self.size())
        found = [b for b in self.readable() if b.shape and b.dtype != "bool"]
        if not found or shape[0].text == shape[1].text:
            self.store()
            return
        source = self.pick(found)
        outer, self.buffers, self.tame = self.buffers, [source], True
        made: list[Tensor] = []
        for _ in range(self.random.randint(2, 7)):
            kept = self.pick([shape, shape, shape, shape[:1], shape[1:]])
            stage = self._scratch(source.dtype, kept)
            if kept == shape:
                with self.nest(shape) as at:
                    self.store(0, stage, _at(at))
            else:
                summed = shape[1] if kept == shape[:1] else shape[0]
                self._reduction_block(stage, [summed], init=1.0)
            stage.filled = True
            made.append(stage)
            self.buffers = [stage] if self.chance(0.3) else [source, *made[-4:]]
        self.buffers = outer + made
        targets = [b for b in outer if b.stored and not b.empty and b.filled]
        if targets:
            target = self.pick(targets)
            with self.nest(target.shape) as at:
                self.store(0, target, _at(at))

    def copy(self, depth: int) -> None:
        """Scratch with the elements of an argument, from which or to which all are copied."""
        found = [b for b in self.arguments if b.shape and b.stored]
        found = [b for b in found if b in self.strides] or found
        if not found:
            self.store()
            return
        buffer, flat = self.pick(found), self.chance(0.25)
        count = self.sized(f"({' * '.join(map(str, buffer.shape))})")
        scratch = self._scratch(buffer.dtype, (count,) if flat else buffer.shape)

        def copied(target: Tensor) -> None:
            with self.nest(buffer.shape) as at:
                part = _at(at)
                if flat:
                    part = str(at[0])
                    for index, size in zip(at[1:], buffer.shape[1:], strict=True):
                        part = f"({part} * {size} + {index})"
                pair = f"{buffer.name}[{_at(at)}]", f"{scratch.name}[{part}]"
                self.write(" = ".join(pair if target is buffer else pair[::-1]))

        self.buffers.append(scratch)
        if self.chance(0.5):
            copied(scratch)
            scratch.filled = True
            self.statement(depth)
        else:
            self.fill(scratch)
            if self.chance(0.5):
                self.statement(depth - 1)
            copied(buffer)

    def long_axis(self, depth: int) -> None:
        """A statement for each element of the long argument, or a sum of them."""
        assert self.long is not None
        [count], long = self.long.shape, self.long
        if count.value == max(_LONG):
            self.long = None  # one such loop takes the oracle a second
        sums = [b for b in self.targets() if b.filled and b.dtype in _EXACT and not b.empty]
        with self.loop_over(
            f"{self.pick(['range', 'T.serial', 'T.parallel'])}({count})", 0, count.value - 1
        ) as i:
            here, before = f"{long.name}[{i}]", self.buffers
            value = self.value(long.dtype, 2)
            if not sums or self.chance(0.4):
                self.write(f"{here} = {self.updated(long.dtype, here, value)}")
                return
            self.buffers = [b for b in before if not b.shape]
            target = self.pick(sums)
            place = self.random.randrange(max(math.prod(s.value for s in target.shape), 1))
            at = []
            for size in reversed(target.shape):
                at.insert(0, str(place % size.value))
                place //= size.value
            element = f"{target.name}[{', '.join(at) or '()'}]"
            kind = self.pick(["+", "min", "max"])
            term = f'T.Cast("{target.dtype}", {here})'
            if kind == "+":
                self.write(f"{element} = ({element} + {term})")
            else:
                self.write(f"{element} = T.{kind}({element}, {term})")
            self.buffers = before

    def product(self, dtype: str) -> str:
        """A product of elements, as in a matrix multiplication, perhaps of a narrower datatype."""
        if dtype == "bool":
            return self.condition()
        narrower = [d for d in _NARROWER.get(dtype, ()) if d in self.palette]
        if narrower and self.chance(0.5):
            own = [self.pick(narrower) for _ in range(2)]
            return "(" + " * ".join(f'T.Cast("{dtype}", {self.leaf(d)})' for d in own) + ")"
        return "(" + " * ".join(self.leaf(dtype) for _ in range(self.pick([2, 3]))) + ")"

    def _reduction_block(self, buffer: Tensor, over: Sequence[Size], *, init: float = 0.8) -> None:
        """A reduction into `buffer`, with an init in so large a share of all."""
        shape = [*buffer.shape, *over]
        letters = "S" * len(buffer.shape) + "R" * len(over)
        with self.nest(shape) as at, self.suite(f'with T.block("{self.pick(["b", "sum"])}"):'):
            axes = self._axes(letters, at, shape)
            if self.chance(0.2):
                self.write(f"T.where({self.condition_over(at)})")
            place = _at(axes[: len(buffer.shape)])
            element = f"{buffer.name}[{place}]"
            if self.chance(init):
                with self.suite("with T.init():"):
                    kept = self.loops
                    self.loops = axes[: len(buffer.shape)]
                    value = (
                        self.literal(buffer.dtype) if self.chance(0.8) else self.leaf(buffer.dtype)
                    )
                    self.write(f"{element} = {value}")
                    self.loops = kept
            value = self.value(buffer.dtype, 2) if self.chance(0.6) else self.product(buffer.dtype)
            self.write(f"{element} = {self.updated(buffer.dtype, element, value)}")
            if self.chance(0.1) and self.targets():
                self.store()

    def condition_over(self, at: Sequence[Index]) -> str:
        """A condition on the loops themselves."""
        loops, self.loops = self.loops, list(at)
        found = self.condition(1)
        self.loops = loops
        return found

    def _axes(self, letters: str, at: Sequence[Index], shape: Sequence[Size]) -> list[Index]:
        """Axes of a block, bound to what the loops count."""
        names = [self.fresh(f"v{'ijklmo'[k % 6]}") for k in range(len(at))]
        axes = [Index(n, i.low, i.high, i.over) for n, i in zip(names, at, strict=True)]
        plain = all(i.text.isidentifier() for i in at) and at
        if plain and self.chance(0.6):
            values = ", ".join(map(str, at))
            self.write(f'{", ".join(names)} = T.axis.remap("{letters}", [{values}])')
        else:
            for name, letter, index, size in zip(names, letters, at, shape, strict=True):
                kind = "spatial" if letter == "S" else "reduce"
                bound = self.index(size) if self.chance(0.06) else index
                self.write(f"{name} = T.axis.{kind}({size}, {bound})")
        self.loops += axes
        return axes

    def block(self, depth: int) -> None:
        """A block with axes or without, with scratch or a region of its own."""
        sizes = [self.size() for _ in range(self.random.choice([0, 1, 1, 2]))]
        with self.nest(sizes) as at, self.suite(f'with T.block("{self.pick(["b", "opaque"])}"):'):
            self._axes("S" * len(at), at, sizes)
            if at and self.chance(0.25):
                self.write(f"T.where({self.condition_over(at)})")
            if self.chance(0.25):
                self._scratch_of_block()
            if self.chance(0.3):
                self._region()
            self.several(depth - 1)

    def _scratch_of_block(self) -> None:
        shape = self.shape()
        buffer = Tensor(self.fresh(), self.pick(self.palette), shape, filled=False)
        self.write(f"{buffer.name} = T.alloc_buffer({_tuple(shape)}, {buffer.dtype!r})")
        self.buffers.append(buffer)
        if self.chance(0.95):
            self.fill(buffer)

    def _region(self) -> None:
        found = [b for b in self.buffers if b.shape and (not b.empty or self.dead)]
        if not found:
            return
        base = self.pick(found)
        parts, shape = [], []
        for axis, size in enumerate(base.shape):
            if self.chance(0.4) and len(parts) == axis and not shape:
                parts.append(self.index(size))
                continue
            extent = self.random.randint(1, max(size.value, 1)) if self.chance(0.95) else 5
            low = self.random.randint(0, max(size.value - extent, 0))
            start = str(low)
            near = [i for i in self.loops if i.low >= 0 and i.high + extent <= size.value]
            if near and self.chance(0.5):
                start = str(self.pick(near))
            if self.chance(0.2):
                parts.append(f"0:{size}")
                shape.append(size)
            else:
                parts.append(f"{start}:{start} + {extent}")
                shape.append(Size(str(extent), extent))
        if not shape and not self.chance(0.3):
            return
        view = Tensor(self.fresh(), base.dtype, tuple(shape), base.filled)
        region = f"{base.name}[{', '.join(parts)}]"
        self.write(f"{view.name} = T.match_buffer({region}, {_tuple(shape)}, {base.dtype!r})")
        self.buffers.append(view)

    def branch(self, depth: int) -> None:
        with self.suite(f"if {self.condition()}:"):
            self.several(depth - 1)
        if self.chance(0.35):
            with self.suite("else:"):
                self.several(depth - 1)

    def let(self, depth: int) -> None:
        dtype = self.pick([*self.palette, "int32"])
        value = self.value(dtype, 2)
        if self.wide and self.chance(0.5):
            dtype = self.pick(["int32", "int64"])
            value = self.wrapped(dtype, 2)
        name = self.fresh("t")
        self.write(f"{name}: T.{dtype} = {value}" if self.chance(0.2) else f"{name} = {value}")
        self.lets.append((name, dtype))
        self.statement(depth - 1)

    def passing(self, depth: int) -> None:
        """A number that a function outside of the program returns for a buffer."""
        found = [b for b in self.buffers if b.dtype in BITS]
        if not found:
            self.store()
            return
        base = self.pick([b for b in found if b.name in self.views] or found)
        count = math.prod(size.value for size in base.shape)
        if base.name in self.views or self.chance(0.5):
            self._passed(base)
        elif count and all(size.text.isdigit() for size in base.shape):
            length, step = self.random.randint(1, count), self.random.randint(1, 2)
            last = (count - length) // step
            with self.loop_over(f"range({last + 1})", 0, last) as i:
                at = self.pick([f"{i} * {step}", f"{last} * {step} - {i} * {step}"])
                shape = (Size(str(length), length),)
                self.write(self._view(base, shape, f", elem_offset={at}"))
                self._passed(self.buffers[-1])
        elif base.shape:
            size, *inner = base.shape
            with self.nest([size]) as at, self.suite('with T.block("part"):'):
                (i,) = self._axes("S", at, [size])
                view = Tensor(self.fresh(), base.dtype, tuple(inner), base.filled)
                region = ", ".join([str(i), *(f"0:{n}" for n in inner)])
                layout = f"{_tuple(view.shape)}, {base.dtype!r}"
                self.write(f"{view.name} = T.match_buffer({base.name}[{region}], {layout})")
                self.buffers.append(view)
                self._passed(view)

    def _passed(self, buffer: Tensor) -> None:
        """Store what a function returns for a buffer."""
        name, taken = self.fresh("t"), buffer.name
        if buffer.shape and self.chance(0.3):
            taken = f"T.address_of({taken}[{', '.join('0' * len(buffer.shape))}])"
        begin = self.pick(('extern("int32"', 'intrin("int32", "tir.call_extern"'))
        self.write(f'{name} = T.call_{begin}, "tests.fuzz.digest", {taken})')
        self.lets.append((name, "int32"))
        if targets := [b for b in self.targets() if b.dtype in BITS and b is not buffer]:
            target = self.pick(targets)
            value = f"T.Cast({target.dtype!r}, {name})"
            self.write(f"{target.name}[{self.places(target)}] = {value}")
        else:
            self.store()

    def evaluation(self, depth: int) -> None:
        if self.chance(0.3):
            self.write(f'assert {self.condition()}, "asserted"')
        else:
            self.write(f"T.evaluate({self.value(self.pick(self.palette), 2)})")

    def repeat(self, depth: int) -> None:
        """A while loop that counts in a buffer of its own."""
        with self.suite('with T.block("while"):'):
            name = self.fresh("count")
            self.write(f'{name} = T.alloc_buffer((1,), "int32")')
            self.write(f"{name}[0] = 0")
            self.buffers.append(Tensor(name, "int32", (Size("1", 1),), stored=False))
            test = f"{name}[0] < {self.random.randint(0, 3)}"
            with self.suite(
                f"while {test if self.chance(0.7) else f'{test} and {self.condition()}'}:"
            ):
                self.several(depth - 1)
                self.write(f"{name}[0] = {name}[0] + 1")

    # ---- loops

    def loop(self, depth: int) -> None:
        """A loop, or a few, over anything."""
        kind = self.random.random()
        if kind < 0.6:
            with self.nest([self.size() for _ in range(self.random.choice([1, 1, 2, 3]))]):
                self.several(depth - 1)
            return
        head, low, high = self._bounds()
        with self.loop_over(head, low, high):
            self.several(depth - 1)
            if self.chance(0.05):
                with self.suite(f"if {self.condition()}:"):
                    self.write(self.pick(["break", "continue"]))
                if self.chance(0.5):
                    self.store()

    def _bounds(self) -> tuple[str, int, int]:
        kind = self.random.randint(0, 5)
        serial = self.pick(["range", "T.serial"])
        if self.wide and self.chance(0.5):
            dtype = self.pick(["int32", "int64"])
            found, most = self.wrapped(dtype, 2), self.random.randint(1, 3)
            if self.chance(0.5):
                return f"{serial}(T.floormod({found}, T.{dtype}({most + 1})))", 0, most - 1
            return f"{serial}(T.min({found}, T.{dtype}({most})))", 0, most - 1
        if kind == 0 and self.loops:
            i = self.pick(self.loops)
            return f"{serial}({i} + 1)", 0, i.high
        if kind == 1 and self.loops:
            i, size = self.pick(self.loops), self.size()
            return f"{serial}({i}, {size})", i.low, size.value - 1
        if kind == 2 and self.integers:
            i = self.pick(self.integers)
            return f"{serial}({i})", 0, i.high - 1
        if kind == 3:
            found = [b for b in self.readable() if b.dtype in ("int32", "int64") and not b.empty]
            if found:
                buffer = self.pick(found)
                return f"{serial}({buffer.name}[{self.places(buffer)}])", 0, 1
        low, size = self.random.randint(0, 2), self.size()
        return f"{serial}({low}, {size})", low, size.value - 1


def _tuple(shape: Sequence[Size]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def _at(indices: Sequence[Index]) -> str:
    return ", ".join(map(str, indices)) or "()"


def _mentions(text: str, names: Sequence[str]) -> bool:
    return bool(set(re.findall(r"[A-Za-z_]\w*", text)) & set(names))
