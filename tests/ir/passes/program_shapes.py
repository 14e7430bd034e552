"""Programs of a size, of shapes that are hard for passes: long, wide, nested, many of a kind."""

from collections.abc import Callable
from functools import cache, partial
from textwrap import indent

from relaxpy import IRModule
from relaxpy.ir import ops as op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.relax.transform import Normalize
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module
from tests.rows import sections

SQUARE = tensor(4, 4)
SHAPES: dict[str, Callable[[int], IRModule]] = {}

#: Lines of `main`, which has the parameter x; in a dataflow block and without one.
BODIES = sections("""
--- chain
for _ in range(count):
    x = R.exp(x)
return x
--- fan
# One value is used by all, whose results nothing uses except the first and the last.
x = R.abs(x)
first = R.exp(x)
for _ in range(count - 1):
    last = R.exp(x)
y = R.add(first, last)
return y
--- fan_of_constants
# As `fan`, with different values, all of which are in one tuple.
y = R.tuple(*[R.add(x, R.const(float(k), "float32")) for k in range(count)])
return y
--- fold
# Only constants.
y = R.const([1.0] * 4, "float32")
for _ in range(count):
    y = R.add(y, R.const(1.0, "float32"))
y = R.add(x, y)
return y
--- diamonds
# Each value is used twice by the next one, through two others: 2 ** count paths.
for _ in range(count // 3):
    x = R.add(R.exp(x), R.abs(x))
return x
--- fibonacci
# Each sum is of the two before it, and a product uses the last: exponentially many paths.
b = R.abs(x)
a = R.add(x, b)
for k in range(count - 1):
    if k % 2:
        a = R.add(a, b)
    else:
        b = R.add(b, a)
y = R.matmul(x, a if count % 2 else b)
return y
--- squares
# Each product is of the one before it with itself, and a vector is multiplied by the last.
vector = R.sum(x, axis=0)
for _ in range(count):
    x = R.matmul(x, x)
y = R.matmul(vector, x)
return y
--- products
y = R.matmul(R.permute_dims(x), x)
for _ in range(count // 2 - 1):
    y = R.matmul(R.permute_dims(y), x)
return y
--- parallel_products
y = R.tuple(*[R.matmul(x, R.const([[float(k)] * 4] * 4)) for k in range(count)])
return y
--- transpositions
for _ in range(count):
    x = R.permute_dims(x)
return x
--- concatenation
# One concatenation of so many values.
y = R.concat([R.permute_dims(x) for _ in range(count)], axis=0)
return y
--- reshapes
for _ in range(count // 2):
    x = R.reshape(R.reshape(x, (16,)), (4, 4))
return x
--- aliases
for _ in range(count):
    x = x
y = R.exp(x)
return y
--- one_tuple
# A tuple of so many fields, each of which is projected.
whole = R.tuple(*[x] * (count // 2))
first = whole[0]
for k in range(1, count // 2):
    last = whole[k]
y = R.add(first, last)
return y
--- casts
# Each cast binds a shape variable.
y = R.match_cast(x, R.Tensor(ndim=2, dtype="float32"))
for size in sizes:
    y = R.match_cast(y, R.Tensor((size, 4), "float32"))
return y
--- statistics
# Normalisations, each with several results.
for _ in range(count // 2):
    normed = R.nn.batch_norm(x, row, row, row, row, axis=1)
    x = normed[0]
return x
--- mixed
# Aliases, equal calls, tuples, casts, constants, reshapes, and unused values.
for k in range(count // 10):
    one = R.exp(x)
    other = R.exp(x)
    alias = one
    pair = (alias, other)
    field = pair[1]
    cast = R.match_cast(field, f32[4, 4])
    total = R.add(cast, R.const(float(k)))
    nothing = R.abs(total)
    x = R.reshape(R.reshape(total, (16,)), (4, 4))
return x
--- scans
# Products of a matrix with two others, one transposed, and scans.
w = R.abs(x)
for _ in range(count // 6):
    turned = R.permute_dims(w)
    x = R.cumsum(R.exp(R.add(R.matmul(x, w), R.matmul(x, turned))), 0)
return x
""")
WHOLE = sections("""
--- effects
# Impure calls and kernels that change their argument.
@impure
def main(x: f32[4, 4]):
    for _ in range(count // 2):
        _ = effect(x)
        x = R.exp(x)
    return x
--- blocks
# As many dataflow blocks as bindings, with others between them.
@impure
def main(x: f32[4, 4]):
    for _ in range(count // 2):
        with R.dataflow():
            x = R.exp(x)
            R.output(x)
        _ = effect(x)
    return x
--- weights
# Sums with values that only a weight decides.
def main(y: f32[4, 4], w: f32[4, 4]):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        for _ in range(count // 2):
            y = R.add(y, R.negative(w))
        z = y
        R.output(z)
    return z
--- images
# Normalised convolutions, with operators between them that have any layout or but one.
def main(x: f32[1, 4, 6, 6], w: f32[4, 4, 3, 3], g: f32[4]):
    with R.dataflow():
        for k in range(count // 4):
            convolved = R.nn.conv2d(x, w, padding=1)
            normed = R.nn.batch_norm(convolved, g, g, g, g, 1, training=False)
            first = normed[0]
            x = R.nn.softmax(first, 1) if k % 3 else R.nn.relu(first)
        y = x
        R.output(y)
    return y
--- conditionals
# One after the other.
def main(x: f32[4, 4], c: bool):
    for _ in range(count // 3):
        if c:
            x = R.exp(x)
        else:
            x = R.abs(x)
    return x
--- local_functions
# One after the other, each capturing the result of the one before it.
def main(x: f32[4, 4]):
    for _ in range(count // 3):
        def local(p: f32[4, 4]) -> f32[4, 4]:
            return R.add(p, x)
        x = local(x)
    return x
""")


def _enter(name: str, make: Callable[[int], IRModule]) -> None:
    SHAPES[name] = cache(lambda count: Normalize()(make(count)))


def _read(text: str, count: int) -> IRModule:
    sizes = [tir.Var(f"n{k}", "int64") for k in range(count)]
    row, effect = rx.const([1.0] * 4, "float32"), rx.ExternFunc("effect")
    return module(text, {"count": count, "sizes": sizes, "row": row, "effect": effect})


for _name, _text in WHOLE.items():
    _enter(_name, partial(_read, _text))
for _name, _text in BODIES.items():
    _lines, _, _result = _text.rpartition("return ")
    _block = indent(f"{_lines}out = {_result}R.output(out)\n", "    ")
    for _kind, _body in (("", _text), ("_in_dataflow", f"with R.dataflow():\n{_block}return out")):
        _body = 'R.func_attr({"num_input": 1})\n' + _body
        _main = f"def main(x: f32[4, 4]):\n{indent(_body, '    ')}"
        _enter(f"{_name}{_kind}", partial(_read, _main))


def shape(make: Callable[[int], IRModule]) -> Callable[[int], IRModule]:
    """Enter the function from a size to a module."""
    _enter(make.__name__, make)
    return make


@shape
def outputs(count: int) -> IRModule:
    """All values of one dataflow block are visible after it."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        y, values = x, []
        with builder.dataflow():
            for _ in range(count):
                y = builder.emit_output(op.exp(y))
                values.append(y)
        builder.emit_func_output(rx.Tuple(tuple(values)))
    return builder.finalize()


@shape
def parameters(count: int) -> IRModule:
    builder = BlockBuilder()
    params = [rx.Var("x", SQUARE) for _ in range(count)]
    with builder.function("main", params, attrs={"num_input": 1}):
        with builder.dataflow():
            y = params[0]
            for param in params:
                y = builder.emit(op.add(y, builder.emit(op.exp(param))))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.finalize()


def _functions(builder: BlockBuilder, count: int) -> list[rx.GlobalVar]:
    names: list[rx.GlobalVar] = []
    for _ in range(count):
        p = rx.Var("p", SQUARE)
        with builder.function("f", [p], private=True):
            with builder.dataflow():
                y = builder.emit_output(op.exp(builder.emit(op.abs(p))))
            names.append(builder.emit_func_output(y))
    return names


@shape
def functions(count: int) -> IRModule:
    """Private functions, each called once by `main`."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    names = _functions(builder, count // 3)
    with builder.function("main", [x]):
        for name in names:
            x = builder.emit(rx.Call(name, (x,)))
        builder.emit_func_output(x)
    return builder.finalize()


@shape
def closures(count: int) -> IRModule:
    """Private functions with tuples, unused parameters and local functions, each called once."""
    builder, names = BlockBuilder(), []
    pair = rx.TupleStructInfo((SQUARE, SQUARE))
    for _ in range(count // 10):
        p, unused, y = rx.Var("p", pair), rx.Var("u", SQUARE), rx.Var("y", SQUARE)
        with builder.function("f", [p, unused], private=True):
            z = builder.emit(rx.TupleGetItem(p, 0))
            local = builder.emit(rx.Function([y], rx.SeqExpr([], op.add(y, z)), SQUARE))
            w = builder.emit(rx.Call(local, (z,)))
            names.append(builder.emit_func_output(rx.Tuple((w, z))))
    x = rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        value = x
        for name in names:
            result = builder.emit(rx.Call(name, (rx.Tuple((value, x)), x)))
            value = builder.emit(rx.TupleGetItem(result, 0))
        builder.emit_func_output(value)
    return builder.finalize()


@shape
def one_function(count: int) -> IRModule:
    """One private function, called by every binding of `main`."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    (name,) = _functions(builder, 1)
    with builder.function("main", [x]):
        for _ in range(count):
            x = builder.emit(rx.Call(name, (x,)))
        builder.emit_func_output(x)
    return builder.finalize()


@shape
def calls_of_calls(count: int) -> IRModule:
    """Private functions, each called by the next one."""
    builder, callee = BlockBuilder(), None
    for k in range(count // 2):
        p = rx.Var("p", SQUARE)
        with builder.function(f"f{k}", [p], private=True):
            y = builder.emit(op.exp(p))
            if callee is not None:
                y = builder.emit(rx.Call(callee, (y,)))
            callee = builder.emit_func_output(y)
    x = rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        assert callee is not None
        builder.emit_func_output(builder.emit(rx.Call(callee, (x,))))
    return builder.finalize()
