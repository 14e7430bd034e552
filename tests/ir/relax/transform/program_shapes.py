"""Programs of a size, of shapes that are hard for passes: long, wide, nested, many of a kind."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache

from relaxpy import IRModule, topi
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.relax.transform import Normalize
from tests.ir.relax.sinfos import rank, tensor

SQUARE = tensor(4, 4)
SCALAR = tensor(dtype="bool")
Fill = Callable[[BlockBuilder, rx.Var, int], rx.Expr]
SHAPES: dict[str, Callable[[int], IRModule]] = {}


def _enter(name: str, make: Callable[[int], IRModule]) -> None:
    SHAPES[name] = cache(lambda count: Normalize()(make(count)))


def shape(make: Callable[[int], IRModule]) -> Callable[[int], IRModule]:
    """Enter the function from a size to a module."""
    _enter(make.__name__, make)
    return make


def _main(builder: BlockBuilder, fill: Fill, count: int, *, dataflow: bool) -> None:
    x = rx.Var("x", SQUARE)
    with builder.function("main", [x], attrs={"num_input": 1}):
        with builder.dataflow() if dataflow else nullcontext():
            result = fill(builder, x, count)
            if dataflow:
                result = builder.emit_output(result)
        builder.emit_func_output(result)


def body(fill: Fill) -> Fill:
    """Enter the bindings as those of `main`, in a dataflow block and without one."""
    for dataflow in (False, True):

        def make(count: int, dataflow: bool = dataflow) -> IRModule:
            builder = BlockBuilder()
            _main(builder, fill, count, dataflow=dataflow)
            return builder.finalize()

        _enter(f"{fill.__name__}{'_in_dataflow' if dataflow else ''}", make)
    return fill


def _sum(builder: BlockBuilder, values: Sequence[rx.Expr]) -> rx.Expr:
    return builder.emit(op.add(values[0], values[-1]))


@body
def chain(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    for _ in range(count):
        x = builder.emit(op.exp(x))
    return x


@body
def fan(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """One value is used by all, whose results nothing uses except the first and the last."""
    x = builder.emit(op.abs(x))
    return _sum(builder, [builder.emit(op.exp(x)) for _ in range(count)])


@body
def fan_of_constants(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """As `fan`, with different values, all of which are in one tuple."""
    values = [builder.emit(op.add(x, rx.const(float(k), "float32"))) for k in range(count)]
    return builder.emit(rx.Tuple(tuple(values)))


@body
def fold(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Only constants."""
    y = builder.emit(rx.const([1.0] * 4, "float32"))
    for _ in range(count):
        y = builder.emit(op.add(y, rx.const(1.0, "float32")))
    return builder.emit(op.add(x, y))


@body
def diamonds(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Each value is used twice by the next one, through two others: 2 ** count paths."""
    for _ in range(count // 3):
        x = builder.emit(op.add(builder.emit(op.exp(x)), builder.emit(op.abs(x))))
    return x


@body
def fibonacci(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Each sum is of the two before it, and a product uses the last: exponentially many paths."""
    first, second = x, builder.emit(op.abs(x))
    for _ in range(count):
        first, second = second, builder.emit(op.add(first, second))
    return builder.emit(op.matmul(x, second))


@body
def squares(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Each product is of the one before it with itself, and a vector is multiplied by the last."""
    vector = builder.emit(op.sum(x, axis=0))
    for _ in range(count):
        x = builder.emit(op.matmul(x, x))
    return builder.emit(op.matmul(vector, x))


@body
def products(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    y = x
    for _ in range(count // 2):
        y = builder.emit(op.matmul(builder.emit(op.permute_dims(y)), x))
    return y


@body
def parallel_products(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    values = [builder.emit(op.matmul(x, rx.const([[float(k)] * 4] * 4))) for k in range(count)]
    return builder.emit(rx.Tuple(tuple(values)))


@body
def transpositions(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    for _ in range(count):
        x = builder.emit(op.permute_dims(x))
    return x


@body
def concatenation(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """One concatenation of so many values."""
    values = [builder.emit(op.permute_dims(x)) for _ in range(count)]
    return builder.emit(op.concat(values, axis=0))


@body
def reshapes(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    for _ in range(count // 2):
        x = builder.emit(op.reshape(builder.emit(op.reshape(x, (16,))), (4, 4)))
    return x


@body
def aliases(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    for _ in range(count):
        x = builder.emit(x)
    return builder.emit(op.exp(x))


@body
def one_tuple(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """A tuple of so many fields, each of which is projected."""
    whole = builder.emit(rx.Tuple((x,) * (count // 2)))
    items = [builder.emit(rx.TupleGetItem(whole, k)) for k in range(count // 2)]
    return _sum(builder, items)


@body
def pairs(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    for _ in range(count // 2):
        pair = builder.emit(rx.Tuple((x, x)))
        x = builder.emit(rx.TupleGetItem(pair, 1))
    return builder.emit(op.exp(x))


@body
def casts(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Each cast binds a shape variable."""
    y = builder.match_cast(x, rank(2))
    for k in range(count):
        y = builder.match_cast(y, tensor(tir.Var(f"n{k}", "int64"), 4))
    assert y is not None
    return y


@body
def unused(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    y = x
    for _ in range(count):
        y = builder.emit(op.exp(y))
    return builder.emit(op.abs(x))


@body
def statistics(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Normalisations, each with several results."""
    row = rx.const([1.0] * 4, "float32")
    for _ in range(count // 2):
        normed = builder.emit(op.nn.batch_norm(x, row, row, row, row, axis=1))
        x = builder.emit(rx.TupleGetItem(normed, 0))
    return x


@body
def mixed(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Aliases, equal calls, tuples, casts, constants, reshapes, and unused values."""
    for k in range(count // 10):
        one = builder.emit(op.exp(x))
        other = builder.emit(op.exp(x))
        alias = builder.emit(one)
        pair = builder.emit(rx.Tuple((alias, other)))
        field = builder.emit(rx.TupleGetItem(pair, 1))
        total = builder.emit(op.add(builder.match_cast(field, SQUARE), rx.const(float(k))))
        builder.emit(op.abs(total))
        x = builder.emit(op.reshape(builder.emit(op.reshape(total, (16,))), (4, 4)))
    return x


@body
def scans(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    """Products of a matrix with two others, one transposed, and scans."""
    w = builder.emit(op.abs(x))
    for _ in range(count // 6):
        turned = builder.emit(op.permute_dims(w))
        total = op.add(builder.emit(op.matmul(x, w)), builder.emit(op.matmul(x, turned)))
        x = builder.emit(op.cumsum(builder.emit(op.exp(builder.emit(total))), 0))
    return x


def _kernels(builder: BlockBuilder, x: rx.Var, count: int) -> rx.Expr:
    for k in range(count):
        x = builder.emit_te(topi.add, x, float(k), primfunc_name_hint="add")
    return x


@shape
def kernels(count: int) -> IRModule:
    """As many PrimFuncs as bindings."""
    builder = BlockBuilder()
    _main(builder, _kernels, count, dataflow=True)
    return builder.finalize()


@shape
def effects(count: int) -> IRModule:
    """Impure calls and kernels that change their argument."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    with builder.function("main", [x], pure=False):
        for _ in range(count // 2):
            builder.emit(rx.Call(rx.ExternFunc("effect"), [x]))
            x = builder.emit(op.exp(x))
        builder.emit_func_output(x)
    return builder.finalize()


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
def blocks(count: int) -> IRModule:
    """As many dataflow blocks as bindings, with others between them."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    with builder.function("main", [x], pure=False):
        for _ in range(count // 2):
            with builder.dataflow():
                x = builder.emit_output(op.exp(x))
            builder.emit(rx.Call(rx.ExternFunc("effect"), [x]))
        builder.emit_func_output(x)
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


@shape
def weights(count: int) -> IRModule:
    """Sums with values that only a weight decides."""
    builder, y, w = BlockBuilder(), rx.Var("y", SQUARE), rx.Var("w", SQUARE)
    with builder.function("main", [y, w], attrs={"num_input": 1}):
        with builder.dataflow():
            for _ in range(count // 2):
                y = builder.emit(op.add(y, builder.emit(op.negative(w))))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.finalize()


@shape
def images(count: int) -> IRModule:
    """Normalised convolutions, with operators between them that have any layout or but one."""
    x, w, g = (rx.Var("x", sinfo) for sinfo in (tensor(1, 4, 6, 6), tensor(4, 4, 3, 3), tensor(4)))
    builder = BlockBuilder()
    with builder.function("main", [x, w, g]):
        with builder.dataflow():
            for k in range(count // 4):
                convolved = builder.emit(op.nn.conv2d(x, w, padding=1))
                normed = builder.emit(op.nn.batch_norm(convolved, g, g, g, g, 1, training=False))
                first = builder.emit(rx.TupleGetItem(normed, 0))
                x = builder.emit(op.nn.softmax(first, 1) if k % 3 else op.nn.relu(first))
            result = builder.emit_output(x)
        builder.emit_func_output(result)
    return builder.finalize()


@shape
def conditionals(count: int) -> IRModule:
    """One after the other."""
    builder, x, c = BlockBuilder(), rx.Var("x", SQUARE), rx.Var("c", SCALAR)
    with builder.function("main", [x, c]):
        for _ in range(count // 3):
            x = builder.emit(rx.If(c, rx.SeqExpr((), op.exp(x)), rx.SeqExpr((), op.abs(x))))
        builder.emit_func_output(x)
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


@shape
def local_functions(count: int) -> IRModule:
    """One after the other, each capturing the result of the one before it."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        for _ in range(count // 3):
            p = rx.Var("p", SQUARE)
            local = builder.emit(rx.Function([p], rx.SeqExpr([], op.add(p, x)), SQUARE))
            x = builder.emit(rx.Call(local, (x,)))
        builder.emit_func_output(x)
    return builder.finalize()


@shape
def nested_conditionals(count: int) -> IRModule:
    builder, x, c = BlockBuilder(), rx.Var("x", SQUARE), rx.Var("c", SCALAR)
    inner: rx.Expr = op.exp(x)
    for _ in range(count):
        inner = rx.If(c, rx.SeqExpr((), inner), rx.SeqExpr((), x))
    with builder.function("main", [x, c]):
        builder.emit_func_output(builder.emit(inner))
    return builder.finalize()


@shape
def nested_functions(count: int) -> IRModule:
    """Local functions, each in the one before it, that capture all parameters around them."""
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    inner: rx.Expr = op.exp(x)
    for _ in range(count):
        p, local, y = rx.Var("p", SQUARE), rx.Var("local"), rx.Var("y", SQUARE)
        func = rx.Function([p], rx.SeqExpr([], inner), SQUARE)
        bindings = [rx.VarBinding(local, func), rx.VarBinding(y, rx.Call(local, (x,)))]
        inner = rx.SeqExpr([rx.BindingBlock(bindings)], op.add(p, y))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(inner))
    return builder.finalize()


@shape
def nested_tuples(count: int) -> IRModule:
    builder, x = BlockBuilder(), rx.Var("x", SQUARE)
    with builder.function("main", [x]):
        y = x
        for _ in range(count):
            y = builder.emit(rx.Tuple((y, x)))
        for _ in range(count):
            y = builder.emit(rx.TupleGetItem(y, 0))
        builder.emit_func_output(builder.emit(op.exp(y)))
    return builder.finalize()
