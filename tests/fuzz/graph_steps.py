"""The statements of random graph programs, each written as Relax and as its twin in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fuzz.graph_body import INTS, LARGEST, REACH, Body, Tensor, extent_of, sinfo_text
from tests.fuzz.graph_kernels import decoding
from tests.fuzz.graph_moves import move, unchanged
from tests.fuzz.twin import COMPARISONS, FLOATS, SLOPES

# The kinds of statement: each adds one, or nothing where it does not fit.


def unary(b: Body) -> None:
    x = b.pick()
    if x is None:
        return
    if x.dtype == "bool":
        b.bind(x, f"R.logical_not({x.name})", f't.unary("logical_not", {x.name})')
    elif not x.is_float:
        name = b.rng.choice(("abs", "negative", "square", "sign", "bitwise_not", "nn.relu"))
        b.bind(x, f"R.{name}({x.name})", f't.unary("{name}", {x.name})', reach=1e9)
    elif x.exact and b.rng.random() < 0.5:
        name = b.rng.choice(
            ("abs", "negative", "floor", "ceil", "round", "trunc", "sign", "nn.relu")
        )
        b.bind(x, f"R.{name}({x.name})", f't.unary("{name}", {x.name})', reach=x.reach + 1)
    else:
        name = b.rng.choice(tuple(SLOPES))
        if name == "exp" and x.reach > 4:
            name = "tanh"
        relax, python = f"{x.name}", x.name
        if name in ("sqrt", "log", "rsqrt"):  # of 1 + |x|, written as one expression
            one = f'R.const(1.0, "{x.dtype}")'
            relax = f"R.add(R.abs({relax}), {one})"
            python = f't.binary("add", t.unary("abs", {python}), t.number(1.0, "{x.dtype}"))'
        reach = {"exp": 60.0, "sqrt": x.reach, "log": 6.0, "nn.silu": x.reach}.get(name, 2.0)
        b.bind(x, f"R.{name}({relax})", f't.unary("{name}", {python})', reach=reach, quarters=None)


def partner(b: Body, x: Tensor) -> Tensor | None:
    """Another tensor that broadcasts with x, of its datatype."""

    def fits(y: Tensor) -> bool:
        pairs = zip(x.shape[::-1], y.shape[::-1], strict=False)
        return x.dtype == y.dtype and all(p == q or 1 in (p, q) for p, q in pairs)

    return b.pick(fits)


def joint(x: Tensor, y: Tensor) -> tuple[int | str, ...]:
    ndim = max(len(x.shape), len(y.shape))
    a, c = ((1,) * (ndim - len(t.shape)) + t.shape for t in (x, y))
    return tuple(q if p == 1 else p for p, q in zip(a, c, strict=True))


def binary(b: Body) -> None:
    x = b.pick()
    y = None if x is None else partner(b, x)
    if x is None or y is None:
        return
    quarters = None if None in (x.quarters, y.quarters) else max(x.quarters, y.quarters)  # type: ignore[type-var]
    both = replace(x, shape=joint(x, y), quarters=quarters)
    arguments = f"{x.name}, {y.name}"
    if x.dtype == "bool":
        name = b.rng.choice(("logical_and", "logical_or", "logical_xor", "equal"))
        b.bind(both, f"R.{name}({arguments})", f't.binary("{name}", {arguments})')
        return
    choices = ["add", "subtract", "multiply", "maximum", "minimum"]
    if x.exact and y.exact:
        choices += [*COMPARISONS, "floor_divide", "floor_mod", "mod"]
        choices += [] if x.is_float else ["bitwise_and", "bitwise_or", "bitwise_xor", "divide"]
    name = b.rng.choice(choices)
    signs = {"add": "+", "subtract": "-", "multiply": "*", "less": "<", "greater_equal": ">="}
    text = f"R.{name}({arguments})"
    if name in signs and b.rng.random() < 0.3:
        text = f"{x.name} {signs[name]} {y.name}"
    if name in COMPARISONS:
        b.bind(both, text, f't.binary("{name}", {arguments})', dtype="bool", reach=1, quarters=0)
    elif name in ("floor_divide", "floor_mod", "mod", "divide"):
        division(b, name, x, y, both)
    else:
        reach = x.reach * y.reach if name == "multiply" else x.reach + y.reach
        if x.is_float and reach > REACH:
            return
        if name == "multiply" and quarters is not None:
            both = replace(both, quarters=x.quarters + y.quarters)  # type: ignore[operator]
        b.bind(both, text, f't.binary("{name}", {arguments})', reach=min(reach, 1e9))


def division(b: Body, name: str, x: Tensor, y: Tensor, both: Tensor) -> None:
    """x by y where y is not 0, else by 3: nothing divides by 0, and nothing by -1."""
    if y.is_float and y.reach > 60:
        return
    if not y.is_float and b.rng.random() < 0.5:
        y = b.bind(y, f"R.abs({y.name})", f't.unary("abs", {y.name})')
    three, zero, least = (f'R.const({v}, "{x.dtype}")' for v in (3, 0, -1))
    if x.dtype == "uint8":
        least = zero
    small = f"R.logical_or(R.equal({y.name}, {zero}), R.equal({y.name}, {least}))"
    bad = f't.binary("logical_or", t.binary("equal", {y.name}, t.number(0, "{x.dtype}")), '
    bad += f't.binary("equal", {y.name}, t.number({0 if x.dtype == "uint8" else -1}, "{x.dtype}")))'
    safe = b.bind(
        y,
        f"R.where({small}, {three}, {y.name})",
        f't.where({bad}, t.number(3, "{x.dtype}"), {y.name})',
        reach=max(3.0, y.reach),
    )
    arguments = f"{x.name}, {safe.name}"
    if x.is_float:
        quarters = 0 if name == "floor_divide" else both.quarters
        assert y.quarters is not None
        reach = x.reach * 2**y.quarters + 1 if name == "floor_divide" else x.reach + safe.reach
        if reach > REACH or not replace(both, reach=reach, quarters=quarters).exact:
            return
        both = replace(both, quarters=quarters, reach=reach)
    b.bind(both, f"R.{name}({arguments})", f't.binary("{name}", {arguments})')


def choose(b: Body) -> None:
    condition = b.pick(lambda t: t.dtype == "bool")
    x = b.pick()
    y = None if x is None else partner(b, x)
    if condition is None or x is None or y is None:
        return
    both = replace(x, shape=joint(x, y))
    whole = [p == q or 1 in (p, q) for p, q in zip(both.shape[::-1], condition.shape[::-1])]  # noqa: B905
    if not all(whole):
        return
    arguments = f"{condition.name}, {x.name}, {y.name}"
    quarters = None if None in (x.quarters, y.quarters) else max(x.quarters, y.quarters)  # type: ignore[type-var]
    b.bind(
        replace(both, shape=joint(both, condition), quarters=quarters),
        f"R.where({arguments})",
        f"t.where({arguments})",
        reach=max(x.reach, y.reach),
    )


def convert(b: Body) -> None:
    x = b.pick()
    if x is None:
        return
    wanted = (*FLOATS, *INTS, "bool") if x.exact and x.reach < 100 else FLOATS
    if not x.is_float and x.reach > REACH:
        wanted = INTS
    dtype = b.rng.choice(wanted)
    if dtype == "uint8" and x.is_float:  # a negative float has no value there
        return
    reach, quarters = (x.reach, x.quarters) if dtype in FLOATS else (extent_of(dtype)[0] + 200.0, 0)
    if dtype == "bool":
        reach = 1
    b.bind(
        x,
        f'R.astype({x.name}, "{dtype}")',
        f't.astype({x.name}, "{dtype}")',
        dtype=dtype,
        reach=reach,
        quarters=quarters,
    )


def reduction(b: Body) -> None:
    x = b.pick(lambda t: len(t.shape) > 0)
    if x is None:
        return
    axis = b.rng.randrange(len(x.shape))
    axis -= b.rng.choice((0, len(x.shape)))
    keep = b.rng.random() < 0.5
    size = x.shape[axis]
    names = ["sum"]
    if isinstance(size, int) and size and x.dtype != "bool":
        names += ["mean", "max", "min", *(("argmax", "argmin") if x.exact else ())]
    name = b.rng.choice(names)
    shape = list(x.shape)
    if keep:
        shape[axis] = 1
    else:
        del shape[axis]
    text = f"{x.name}, axis={axis}, keepdims={keep}"
    made = replace(x, shape=tuple(shape))
    if name in ("argmax", "argmin"):
        text = f"{x.name}, {axis}, {keep}"
        made = replace(made, dtype="int64", reach=100, quarters=0)
        b.bind(made, f"R.{name}({text})", f't.argument("{name}", {text})')
        return
    if name == "sum":
        reach = x.reach * (size if isinstance(size, int) else 4 * LARGEST)
        if x.is_float and reach > REACH:
            return
        made = replace(made, reach=reach)
    if name == "mean":
        made = replace(made, quarters=None if x.is_float else 0)
    b.bind(made, f"R.{name}({text})", f't.reduce("{name}", {x.name}, {axis}, {keep})')


def product(b: Body) -> None:
    x = b.pick(lambda t: len(t.shape) == 2 and t.dtype != "bool")
    if x is None:
        return
    y = b.pick(lambda t: len(t.shape) == 2 and t.dtype == x.dtype and t.shape[0] == x.shape[1])
    if y is None:
        return
    reach = x.reach * y.reach * 4 * LARGEST
    if x.is_float and reach > REACH:
        return
    made = replace(x, shape=(x.shape[0], y.shape[1]), reach=reach, quarters=None)
    if not x.is_float:
        made = replace(made, quarters=0)
    b.bind(made, f"R.matmul({x.name}, {y.name})", f"t.matmul({x.name}, {y.name})")


def softmax(b: Body) -> None:
    x = b.pick(lambda t: t.is_float and len(t.shape) > 0 and isinstance(t.shape[-1], int))
    if x is not None and x.shape[-1]:
        b.bind(x, f"R.nn.softmax({x.name})", f"t.softmax({x.name}, -1)", reach=1, quarters=None)


def tuples(b: Body) -> None:
    """A tuple made, or a field of one taken."""
    if b.tuples and b.rng.random() < 0.6:
        name, fields = b.rng.choice(b.tuples)
        k = b.rng.randrange(len(fields))
        b.bind(fields[k], f"{name}[{k}]", f"{name}[{k}]")
        return
    x, y = b.pick(), b.pick()
    if x is not None and y is not None:
        name = b.source.fresh("t")
        b.line(f"{name} = ({x.name}, {y.name})")
        b.tuples.append((name, (x, y)))


def cast(b: Body) -> None:
    """A tensor said to be what it is, perhaps after nothing was known of it."""
    x = b.pick()
    if x is None:
        return
    sinfo = sinfo_text(x.dtype, x.shape)
    vague = b.rng.choice(("", f"R.Tensor(ndim={len(x.shape)})", "R.Object", "R.Tensor"))
    if vague:
        name = b.source.fresh("w")
        b.line(f"{name}: {vague} = {x.name}", f"{name} = {x.name}")
        b.bind(x, f"R.match_cast({name}, {sinfo})", name)
    else:
        b.bind(x, f"R.match_cast({x.name}, {sinfo})", x.name)


def effect(b: Body) -> None:
    x = b.pick() if b.impure else None
    if x is not None:
        sinfo = sinfo_text(x.dtype, x.shape)
        packed = f'R.call_packed("tests.fuzz.record", {x.name}, sinfo_args={sinfo})'
        if b.rng.random() < 0.5:
            b.line(f"_ = {packed}", f"_ = t.record({x.name})")
        else:
            b.bind(x, packed, f"t.record({x.name})")


def kernel(b: Body) -> None:
    name = b.rng.choice(("doubled", "columns"))
    dtype = "float32" if name == "doubled" else "int32"
    x = None if b.alone else b.pick(lambda t: t.dtype == dtype and len(t.shape) == 2)
    if x is None or x.reach * 2 > 1e9 or (x.is_float and x.reach * 2 > REACH):
        return
    shape = x.shape if name == "doubled" else x.shape[1:]
    sinfo = sinfo_text(dtype, shape)
    b.source.kernels.add(name)
    python = f't.binary("add", {x.name}, {x.name})'
    reach = x.reach * 2
    if name == "columns":
        python, reach = f't.reduce("sum", {x.name}, 0, False)', 1e9
    relax = f"R.call_tir(cls.{name}, ({x.name},), out_sinfo={sinfo})"
    b.bind(x, relax, python, shape=shape, reach=reach)


def overwrite(b: Body) -> None:
    """A kernel that writes into a new tensor, which is used before that only."""
    x = None if b.alone else b.pick(lambda t: t.dtype == "float32" and len(t.shape) == 2)
    if x is None or x.reach * 4 > REACH:
        return
    kernel = b.rng.choice(("overwritten", "overwritten", "later_rows", "even_columns"))
    b.source.kernels.add(kernel)
    new = replace(x, name=b.source.fresh("o"), reach=x.reach * 2)
    python = f't.binary("add", {x.name}, {x.name})'
    b.line(f"{new.name} = R.add({x.name}, {x.name})", f"{new.name} = {python}")
    source = new.name
    if b.rng.random() < 0.3:  # through calls that may return their operand
        source = b.source.fresh("o")
        call = b.rng.choice(("astype", "wrap_param"))
        b.line(f'{source} = R.{call}({new.name}, "float32")', f"{source} = {new.name}")
    if b.rng.random() < 0.5:
        b.bind(new, f"R.negative({new.name})", f't.unary("negative", {new.name})')
    if b.rng.random() < 0.5:  # through a tuple
        pair = b.source.fresh("t")
        b.line(f"{pair} = ({x.name}, {source})")
        source = b.source.fresh("o")
        b.line(f"{source} = {pair}[1]")
    sinfo = sinfo_text("float32", x.shape)
    relax = f"R.call_tir_inplace(cls.{kernel}, ({source},), [0], {sinfo})"
    b.bind(new, relax, f't.doubled({source}, "{kernel}")', reach=x.reach * 4)


def packed(b: Body) -> None:
    """A product with weights of few bits, mostly of an operand of three dimensions."""
    x = b.pick(
        lambda t: (
            t.dtype in ("float32", "float16")
            and 0 < len(t.shape) < 4
            and isinstance(t.shape[-1], int)
            and t.shape[-1] > 0
        )
    )
    repeats, rows = b.rng.choice((1, 8, 16, 20)), b.rng.choice((1, 3, 8, 9))
    if x is None or b.alone or x.shape[-1] > 6 or x.reach * repeats * x.shape[-1] > REACH:  # type: ignore[operator]
        return
    assert isinstance(x.shape[-1], int)
    size, bits, rank = x.shape[-1] * repeats, b.rng.choice((2, 3, 4, 4, 8)), len(x.shape)
    if repeats > 1:
        twin = f"t.place(lambda v: np.tile(v, {(*[1] * (rank - 1), repeats)}), {x.name})"
        joined = f"R.concat([{', '.join([x.name] * repeats)}], axis=-1)"
        x = b.bind(x, joined, twin, shape=(*x.shape[:-1], size))
    while len(x.shape) == 1 or (len(x.shape) == 2 and b.rng.random() < 0.6):
        twin = f"t.place(lambda v: v[None], {x.name})"
        x = b.bind(x, f"R.expand_dims({x.name}, 0)", twin, shape=(1, *x.shape))
    group = 32 // bits * b.rng.choice((1, 2, 4))
    groups = -(-size // group)
    words, name = b.source.fresh("w"), b.source.fresh("decoded")
    shape = (rows, groups * group // (32 // bits))
    if b.source.weights is not None and b.rng.random() < 0.5:
        b.source.weights.append(Tensor(words, "uint32", shape))
    else:
        drawn = [[b.rng.getrandbits(32) for _ in range(shape[1])] for _ in range(rows)]
        b.line(f'{words} = R.const({drawn}, "uint32")', f'{words} = t.number({drawn}, "uint32")')
    drawn = [[2.0 ** -(bits + b.rng.randrange(2)) for _ in range(groups)] for _ in range(rows)]
    scales = f'({drawn}, "{x.dtype}")'
    b.source.decoders[name] = decoding(name, rows, size, bits, group, x.dtype)
    weights = b.bind(
        replace(x, shape=(rows, size), reach=0.5, quarters=None),
        f"R.call_tir(cls.{name}, ({words}, R.const{scales}), "
        f"out_sinfo={sinfo_text(x.dtype, (rows, size))})",
        f"t.decoded({words}, t.number{scales}, {bits}, {group}, {size})",
    )
    moved = b.bind(
        replace(weights, shape=(size, rows)),
        f"R.permute_dims({weights.name})",
        f"t.place(np.transpose, {weights.name})",
    )
    b.bind(
        replace(x, shape=(*x.shape[:-1], rows), reach=x.reach * size / 2, quarters=None),
        f"R.matmul({x.name}, {moved.name})",
        f"t.matmul({x.name}, {moved.name})",
    )


def recursion(b: Body) -> None:
    """A call of two functions that call each other: each changes the sign."""
    x = None if b.alone else b.pick(lambda t: t.dtype == "float32" and len(t.shape) == 2)
    if x is None:
        return
    b.source.kernels.add("repeated")
    count = b.rng.randrange(4)
    python = f't.unary("negative", {x.name})' if count % 2 else x.name
    b.bind(x, f'cls.repeated({x.name}, R.const({count}, "int64"))', python)


def local_recursion(b: Body) -> None:
    """A local function that calls itself, and perhaps uses a variable around it."""
    x = b.pick(lambda t: t.is_float)
    if x is None or b.depth > 1:
        return
    name, sinfo, count = b.source.fresh("f"), sinfo_text(x.dtype, x.shape), b.rng.randrange(4)
    step = f"R.negative({x.name})" if b.rng.random() < 0.5 else "R.negative(p)"
    one = 'R.const(1, "int64")'
    for line in (
        "@R.function",
        f'def {name}(p: {sinfo}, left: R.Tensor((), "int64")) -> {sinfo}:',
        f"    ends = R.less(left, {one})",
        "    if ends:",
        "        r = p",
        "    else:",
        f"        r = {name}({step}, R.subtract(left, {one}))",
        "    return r",
    ):
        b.line(line, "")
    captures = x.name in step
    negative = count % 2 == 1 or (captures and count > 0)
    python = f't.unary("negative", {x.name})' if negative else x.name
    b.bind(x, f'{name}({x.name}, R.const({count}, "int64"))', python)


def inner(b: Body, tensors: list[Tensor], count: int, **changes: Any) -> Body:
    found = replace(
        b,
        tensors=tensors,
        indent=b.indent + "    ",
        depth=b.depth + 1,
        relax=[],
        python=[],
        tuples=list(b.tuples),
        **changes,
    )
    fill(found, count)
    return found


def dataflow(b: Body) -> None:
    """A dataflow block, some of whose values are used after it."""
    block = inner(b, list(b.tensors), b.rng.randint(1, 5), impure=False, dataflow=True)
    new = block.tensors[len(b.tensors) :]
    outputs = [t for t in new if b.rng.random() < 0.5] or new[-1:]
    if not outputs:
        return
    block.line(f"R.output({', '.join(t.name for t in outputs)})", "")
    b.line("with R.dataflow():", "if True:")
    b.relax += block.relax
    b.python += block.python
    b.tensors += outputs


def branch(b: Body) -> None:
    if b.depth > 1:
        return
    condition = b.pick(lambda t: t.dtype == "bool" and t.shape == ())
    x = b.pick()
    if condition is None or x is None:
        return
    name = b.source.fresh()
    b.line(f"if {condition.name}:", f"if t.truth({condition.name}):")
    ends = []
    for keyword in ("", "else:"):
        if keyword:
            b.line(keyword)
        arm = inner(b, list(b.tensors), b.rng.randint(0, 3))
        # Both arms end in a tensor of one kind.
        end = arm.pick(lambda t: (t.dtype, t.shape) == (x.dtype, x.shape))
        assert end is not None
        ends.append(end)
        sinfo = sinfo_text(x.dtype, x.shape)
        arm.line(f"{name} = R.match_cast({end.name}, {sinfo})", f"{name} = {end.name}")
        b.relax += arm.relax
        b.python += arm.python
    quarters = [e.quarters for e in ends]
    made = replace(
        x,
        name=name,
        reach=max(e.reach for e in ends),
        quarters=None if None in quarters else max(quarters),  # type: ignore[type-var]
    )
    b.tensors.append(made)


def closure(b: Body) -> None:
    """A local function that uses what is around it, called once or twice."""
    if b.depth > 1:
        return
    x = b.pick()
    if x is None:
        return
    name = b.source.fresh("f")
    param = replace(x, name=b.source.fresh("p"))
    sinfo = sinfo_text(x.dtype, x.shape)
    body = inner(b, [*b.tensors, param], b.rng.randint(1, 3), impure=False)
    end = body.rng.choice(body.tensors)
    out = sinfo_text(end.dtype, end.shape)
    b.line("@R.function", "")
    b.line(f"def {name}({param.name}: {sinfo}) -> {out}:", f"def {name}({param.name}):")
    body.line(f"return {end.name}")
    b.relax += body.relax
    b.python += body.python
    for y in (
        x,
        b.pick(
            lambda t: (
                (t.dtype, t.shape) == (x.dtype, x.shape)
                and t.reach <= x.reach
                and (t.quarters == x.quarters)
            )
        ),
    ):
        if y is not None:
            b.bind(end, f"{name}({y.name})", f"{name}({y.name})")


def helper(b: Body) -> None:
    """A Python function that is read where it is called: its values are values."""
    x = b.pick(lambda t: t.is_float)
    if x is None or x.reach * 2 > REACH:
        return
    name = b.source.fresh("h")
    b.source.helpers.append(
        (
            f"def {name}(a, b):\n    c = R.add(R.tanh(a), b)\n    return c, R.maximum(c, a)\n",
            f"def {name}(a, b):\n    c = t.binary('add', t.unary('tanh', a), b)\n"
            "    return c, t.binary('maximum', c, a)\n",
        )
    )
    first, second = b.source.fresh(), b.source.fresh()
    b.line(f"{first}, {second} = {name}({x.name}, {x.name})")
    made = replace(x, quarters=None, reach=x.reach + 1)
    b.tensors += [replace(made, name=first), replace(made, name=second)]


def call(b: Body) -> None:
    """A call of another function, of the module or decorated by itself."""
    known = [c for c in b.source.callable if not (b.alone and c[0].startswith("cls."))]
    if not known:
        return
    name, params, result = b.rng.choice(known)
    sizes: dict[str, int | str] = {}
    args = []
    for param in params:

        def fits(y: Tensor, param: Tensor = param) -> bool:
            pairs = list(zip(param.shape, y.shape, strict=False))
            return (
                (y.dtype, len(y.shape)) == (param.dtype, len(param.shape))
                and y.reach <= param.reach
                and (
                    param.quarters is None
                    or (y.quarters is not None and y.quarters <= param.quarters)
                )
                and all(p == q or (isinstance(p, str) and sizes.get(p, q) == q) for p, q in pairs)
                and not any(
                    p != q and isinstance(p, str) and param.shape.count(p) > 1 for p, q in pairs
                )
            )

        arg = b.pick(fits)
        if arg is None:
            return
        for p, q in zip(param.shape, arg.shape, strict=True):
            if isinstance(p, str) and sizes.setdefault(p, q) != q:
                return
        args.append(arg.name)

    def substituted(size: int | str) -> int | str:
        if isinstance(size, int):
            return size
        text = re.sub(r"[a-z]\w*", lambda m: str(sizes[m[0]]), size)
        return int(text) if text.isdigit() else text

    shape = tuple(map(substituted, result.shape))
    made = replace(result, shape=shape)
    text = f"{name}({', '.join(args)})"
    if made.dtype == "float32" and made.exact is False and b.rng.random() < 0.3:
        python = f't.binary("maximum", {text}, {text})'.replace("cls.", "")
        b.bind(made, f"R.maximum({text}, {text})", python)
    else:
        b.bind(made, text, text.removeprefix("cls."))


def fill(body: Body, count: int) -> None:
    """Add so many statements, as far as there are any that fit."""
    for _ in range(10 * count):
        before = len(body.relax)
        body.rng.choice(FLOWING if body.dataflow else STEPS)(body)
        count -= len(body.relax) > before
        if count <= 0:
            return


FLOWING: list[Callable[[Body], None]] = [
    *(unary, unary, binary, binary, binary, binary, choose, convert, reduction, reduction),
    *(
        product,
        softmax,
        move,
        move,
        move,
        unchanged,
        tuples,
        cast,
        kernel,
        helper,
        call,
        call,
        call,
    ),
    *(overwrite, overwrite, packed, recursion),
]
"""The kinds of statement that a dataflow block may have."""
STEPS = [*FLOWING, effect, branch, closure, local_recursion, dataflow]
