"""Recurrent layers: the products with the inputs at once, then one kernel that walks the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.registry import converter
from relaxpy.frontend.shared.tensors import Size, dtype_of, shape_of
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.ir.relax.nodes import Expr, Tuple, TupleGetItem
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr

Activation: TypeAlias = Callable[[PrimExpr], PrimExpr]
Element: TypeAlias = Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
#: The inputs, the two weights, the bias, the lengths of sequences, and the initial states.
Operands: TypeAlias = tuple[Expr, Expr, Expr, Expr | None, Expr | None, *tuple[Expr | None, ...]]


def _number(value: float, like: PrimExpr) -> PrimExpr:
    return ops.const(value, like.dtype)


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """The function that an activation's name stands for."""

    def a(default: float) -> float:
        return default if alpha is None else alpha

    def b(default: float) -> float:
        return default if beta is None else beta

    def zero(x: PrimExpr) -> PrimExpr:
        return _number(0, x)

    table: dict[str, Activation] = {
        "tanh": intrin.tanh,
        "sigmoid": intrin.sigmoid,
        "relu": lambda x: ops.maximum(x, zero(x)),
        "affine": lambda x: x * _number(a(1.0), x) + _number(b(0.0), x),
        "leakyrelu": lambda x: tir.Select(x >= zero(x), x, x * _number(a(0.01), x)),
        "thresholdedrelu": lambda x: tir.Select(x > _number(a(1.0), x), x, zero(x)),
        "scaledtanh": lambda x: intrin.tanh(x * _number(b(1.0), x)) * _number(a(1.0), x),
        "hardsigmoid": lambda x: ops.maximum(
            ops.minimum(x * _number(a(0.2), x) + _number(b(0.5), x), _number(1, x)), zero(x)
        ),
        "elu": lambda x: tir.Select(
            x >= zero(x), x, (intrin.exp(x) - _number(1, x)) * _number(a(1.0), x)
        ),
        "softsign": lambda x: x / (_number(1, x) + intrin.abs(x)),
        "softplus": lambda x: intrin.log(_number(1, x) + intrin.exp(x)),
    }
    if name.lower() not in table:
        raise UnsupportedError(f"the activation {name!r} is not one of {', '.join(table)}")
    return table[name.lower()]


@dataclass(frozen=True)
class _Options:
    """The attributes of a layer; `functions` are the activations of each direction."""

    functions: list[list[Activation]]
    reverse: list[bool]
    clip: float | None
    layout: int


def _options(
    defaults: Sequence[str],
    direction: str,
    activations: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
    layout: int,
) -> _Options:
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction.lower() not in reverse:
        raise UnsupportedError(f"direction {direction!r} is not one of {', '.join(reverse)}")
    names = list(activations or [*defaults] * len(reverse[direction.lower()]))
    count = len(defaults)
    if len(names) != count * len(reverse[direction.lower()]):
        raise UnsupportedError(f"{len(names)} activations do not fit the direction {direction!r}")
    # The parameters are listed for the activations that have some, or for all.
    with_alpha = [
        n for n in names if n.lower() not in ("tanh", "sigmoid", "relu", "softsign", "softplus")
    ]
    with_beta = [n for n in with_alpha if n.lower() in ("affine", "scaledtanh", "hardsigmoid")]
    left = {
        "alpha": (list(alphas or []), len(alphas or []) > len(with_alpha)),
        "beta": (list(betas or []), len(betas or []) > len(with_beta)),
    }

    def taken(kind: str, name: str, admitted: Sequence[str]) -> float | None:
        values, for_all = left[kind]
        if values and (for_all or name in admitted):
            return float(values.pop(0))
        return None

    functions = [
        _activation(n, taken("alpha", n, with_alpha), taken("beta", n, with_beta)) for n in names
    ]
    grouped = [functions[k : k + count] for k in range(0, len(functions), count)]
    return _Options(grouped, reverse[direction.lower()], clip, layout)


def _computed(shape: Sequence[Any], element: Callable[..., PrimExpr], name: str) -> Tensor:
    result = te.compute(tuple(shape), element, name=name)
    assert isinstance(result, Tensor)
    return result


@dataclass(frozen=True, eq=False)
class _Walk:
    """A walk over the inputs of one direction: states of shape (length + 1, batch, hidden).

    Step t computes state t, from state t - 1 and the input at `position(t)`.
    """

    inputs: Tensor
    reverse: bool
    clip: float | None
    lengths: Tensor | None
    hidden: Size

    @property
    def count(self) -> PrimExpr:
        length = self.inputs.shape[0]
        return ops.add(length, ops.const(1, length.dtype))

    def position(self, t: PrimExpr) -> PrimExpr:
        return self.inputs.shape[0] - t if self.reverse else t - 1

    def state(self, name: str) -> Tensor:
        batch = self.inputs.shape[1]
        result = te.placeholder((self.count, batch, self.hidden), self.inputs.dtype, name)
        assert isinstance(result, Tensor)
        return result

    def stage(self, width: Any, element: Element, name: str) -> Tensor:
        return _computed((self.count, self.inputs.shape[1], width), element, name)

    def product(
        self, states: Element, weights: Tensor, rows: Any, offset: Any, name: str
    ) -> Tensor:
        """The sums over k of states(t, b, k) * weights(offset + j, k)."""

        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            axis = te.reduce_axis((0, self.hidden), "k")
            return reduce.sum(states(t, b, axis.var) * weights(j + offset, axis.var), axis=axis)

        return self.stage(rows, element, name)

    def rounded(self, state: Tensor) -> Element:
        """The state before each step, rounded to 256 steps between its extremes and 0."""
        batch = self.inputs.shape[1]

        def extreme(fold: Callable[..., PrimExpr], name: str) -> Tensor:
            def element(t: PrimExpr) -> PrimExpr:
                b, k = te.reduce_axis((0, batch), "b"), te.reduce_axis((0, self.hidden), "k")
                return fold(state(t - 1, b.var, k.var), axis=[b, k])

            return _computed((self.count,), element, name)

        least, most = extreme(reduce.min, "least"), extreme(reduce.max, "most")

        def low(t: PrimExpr) -> PrimExpr:
            return ops.minimum(least(t), _number(0, least(t)))

        def width(t: PrimExpr) -> PrimExpr:
            exact = (ops.maximum(most(t), _number(0, most(t))) - low(t)) / _number(255, most(t))
            return tir.Select(exact > _number(0, exact), exact, _number(1, exact))

        step = _computed((self.count,), width, "step")
        zero = _computed((self.count,), lambda t: intrin.round(-low(t) / step(t)), "zero")

        def element(t: PrimExpr, b: PrimExpr, k: PrimExpr) -> PrimExpr:
            place = intrin.round(state(t - 1, b, k) / step(t)) + zero(t)
            inside = ops.maximum(ops.minimum(place, _number(255, place)), _number(0, place))
            return (inside - zero(t)) * step(t)

        return self.stage(self.hidden, element, "h_rounded")

    def clipped(self, x: PrimExpr) -> PrimExpr:
        if self.clip is None:
            return x
        return ops.maximum(ops.minimum(x, _number(self.clip, x)), _number(-self.clip, x))

    def results(
        self, first: Sequence[Tensor], new: Sequence[Element], states: Sequence[Tensor]
    ) -> list[Tensor]:
        """The hidden states of all positions, then each state after the last step."""
        lengths = self.lengths

        def kept(state: Tensor, value: Element) -> Element:
            def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
                if lengths is None:
                    return value(t, b, j)
                inside = self.position(t) < lengths(b).astype("int64")
                return tir.Select(inside, value(t, b, j), state(t - 1, b, j))

            return element

        updates = [
            self.stage(self.hidden, kept(state, value), f"{state.name}_next")
            for state, value in zip(states, new, strict=True)
        ]
        walked = te.scan(list(first), updates, list(states), name="walk")
        found = [walked] if isinstance(walked, Tensor) else walked
        length, batch, _ = self.inputs.shape

        def output(p: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            value: PrimExpr = found[0](length - p if self.reverse else p + 1, b, j)
            if lengths is None:
                return value
            return tir.Select(p < lengths(b).astype("int64"), value, _number(0, value))

        every = _computed((length, batch, self.hidden), output, "Y")
        return [every, *(_last(state, length) for state in found)]


def _last(states: Tensor, position: PrimExpr) -> Tensor:
    """The state at the position where a walk ends."""
    return _computed(states.shape[1:], lambda b, j: states(position, b, j), "last")


def _first(state: Tensor) -> Tensor:
    """The state of shape (batch, hidden) as the first of a walk."""
    return _computed((1, *state.shape), lambda _, b, j: state(b, j), "first")


def _rnn_kernel(
    inputs: Tensor,
    weights: Tensor,
    state: Tensor,
    lengths: Tensor | None,
    *,
    functions: list[Activation],
    reverse: bool,
    clip: float | None,
) -> list[Tensor]:
    hidden = weights.shape[1]
    walk = _Walk(inputs, reverse, clip, lengths, hidden)
    h = walk.state("h")
    from_state = walk.product(lambda t, b, k: h(t - 1, b, k), weights, hidden, 0, "h2h")

    def new(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return functions[0](walk.clipped(inputs(walk.position(t), b, j) + from_state(t, b, j)))

    return walk.results([_first(state)], [new], [h])


def _gru_kernel(
    inputs: Tensor,
    weights: Tensor,
    state: Tensor,
    lengths: Tensor | None,
    bias: Tensor | None,
    *,
    functions: list[Activation],
    reverse: bool,
    clip: float | None,
) -> list[Tensor]:
    """`bias` is that of the products with the state in the hidden gate, if these come first."""
    hidden = weights.shape[1]
    walk = _Walk(inputs, reverse, clip, lengths, hidden)
    h = walk.state("h")
    f, g = functions

    def before(t: PrimExpr, b: PrimExpr, k: PrimExpr) -> PrimExpr:
        return h(t - 1, b, k)

    linear_first = bias is not None
    rows = hidden * (3 if linear_first else 2)
    from_state = walk.product(before, weights, rows, 0, "h2h")

    def gate(number: int, name: str) -> Tensor:
        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            row = j + hidden * number
            return f(walk.clipped(inputs(walk.position(t), b, row) + from_state(t, b, row)))

        return walk.stage(hidden, element, name)

    update, reset = gate(0, "z"), gate(1, "r")
    if bias is None:
        scaled = walk.stage(hidden, lambda t, b, k: reset(t, b, k) * h(t - 1, b, k), "rh")
        from_reset = walk.product(scaled, weights, hidden, hidden * 2, "rh2h")

    def candidate(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        row = j + hidden * 2
        x = inputs(walk.position(t), b, row)
        if bias is None:
            return g(walk.clipped(x + from_reset(t, b, j)))
        return g(walk.clipped(x + reset(t, b, j) * (from_state(t, b, row) + bias(j))))

    candidates = walk.stage(hidden, candidate, "n")

    def new(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        z = update(t, b, j)
        return (_number(1, z) - z) * candidates(t, b, j) + z * h(t - 1, b, j)

    return walk.results([_first(state)], [new], [h])


def _lstm_kernel(
    inputs: Tensor,
    weights: Tensor,
    state: Tensor,
    cell: Tensor,
    lengths: Tensor | None,
    peepholes: Tensor | None,
    *,
    functions: list[Activation],
    reverse: bool,
    clip: float | None,
    coupled: bool,
    quantized: bool,
) -> list[Tensor]:
    """`quantized`: the product with the weights is that of the hidden state in 8 bits."""
    hidden = weights.shape[1]
    walk = _Walk(inputs, reverse, clip, lengths, hidden)
    h, c = walk.state("h"), walk.state("c")
    f, g, last = functions
    before = walk.rounded(h) if quantized else lambda t, b, k: h(t - 1, b, k)
    from_state = walk.product(before, weights, hidden * 4, 0, "h2h")

    def gate(number: int, function: Activation, name: str, seen: Element | None) -> Tensor:
        """Gate `number` of the order input, output, forget, cell."""

        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            row = j + hidden * number
            total: PrimExpr = inputs(walk.position(t), b, row) + from_state(t, b, row)
            if peepholes is not None and seen is not None:
                total = total + peepholes(row) * seen(t, b, j)
            return function(walk.clipped(total))

        return walk.stage(hidden, element, name)

    def previous(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return c(t - 1, b, j)

    into, content = gate(0, f, "i", previous), gate(3, g, "g", None)
    forget = None if coupled else gate(2, f, "f", previous)

    def kept(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        if forget is not None:
            return forget(t, b, j)
        i = into(t, b, j)
        return _number(1, i) - i

    def new_cell(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return kept(t, b, j) * previous(t, b, j) + into(t, b, j) * content(t, b, j)

    cells = walk.stage(hidden, new_cell, "c_new")
    out = gate(1, f, "o", cells)
    return walk.results(
        [_first(state), _first(cell)],
        [lambda t, b, j: out(t, b, j) * last(cells(t, b, j)), cells],
        [h, c],
    )


def _part(x: Expr, direction: int) -> Expr:
    """The part of a tensor that belongs to a direction, which is its first axis."""
    return R.squeeze(R.strided_slice(x, [0], [direction], [direction + 1]), [0])


def _columns(x: Expr, begin: Size, end: Size) -> Expr:
    return R.strided_slice(x, [0], [begin], [end])


def _layer(
    cx: Context,
    operands: Operands,
    options: _Options,
    gates: int,
    kernel: Callable[..., Sequence[Expr]],
    states: int,
    linear_before_reset: bool = False,
) -> list[Expr]:
    """The outputs of a layer: `kernel` walks one direction from what was computed of its inputs."""
    x, w, r, bias, _, *first = operands
    if options.layout:
        x = R.permute_dims(x, [1, 0, 2])
        first = [None if s is None else R.permute_dims(s, [1, 0, 2]) for s in first]
    x = cx.emit(x)
    hidden = shape_of(r)[2]
    every, lasts = [], []
    for d, reverse in enumerate(options.reverse):
        inputs = R.matmul(x, R.permute_dims(_part(w, d)))
        reset_bias: Expr | None = None
        if bias is not None:
            both = cx.emit(_part(bias, d))
            size = hidden * gates
            of_inputs = _columns(both, 0, size)
            of_state = _columns(both, size, size * 2)
            if linear_before_reset:
                reset_bias = _columns(of_state, hidden * 2, size)
                zero = R.zeros((hidden,), dtype_of(x))
                of_state = R.concat([_columns(of_state, 0, hidden * 2), zero], axis=0)
            inputs = R.add(inputs, R.add(of_inputs, of_state))
        inputs = cx.emit(inputs)
        batch = shape_of(inputs)[1]  # as the kernel sees it, also where the bias decides sizes
        begin = [
            R.zeros((batch, hidden), dtype_of(x)) if s is None else _part(s, d)
            for s in (*first, *[None] * states)[:states]
        ]
        if linear_before_reset and reset_bias is None:
            reset_bias = R.zeros((hidden,), dtype_of(x))
        found = kernel(d, reverse, inputs, _part(r, d), begin, reset_bias)
        every.append(found[0])
        lasts.append(found[1:])
    axis = 2 if options.layout else 1
    outputs = [R.permute_dims(y, [1, 0, 2]) for y in every] if options.layout else every
    finals = [[parts[k] for parts in lasts] for k in range(states)]
    return [
        _stacked(outputs, axis),
        *(_stacked(parts, 1 if options.layout else 0) for parts in finals),
    ]


def _stacked(parts: Sequence[Expr], axis: int) -> Expr:
    return R.expand_dims(parts[0], axis) if len(parts) == 1 else R.stack(Tuple(tuple(parts)), axis)


def _called(
    cx: Context, kernel: Callable[..., Any], count: int, *args: Any, **options: Any
) -> list[Expr]:
    """The `count` results of a kernel."""

    def built(*tensors: Any) -> Any:
        return kernel(*tensors, **options)

    bound = [cx.emit(a) if isinstance(a, Expr) else a for a in args]
    name = kernel.__name__.strip("_").removesuffix("_kernel")
    result = cx.te(built, *bound, name=name)
    return [TupleGetItem(result, k) for k in range(count)]


def _rnn(
    cx: Context,
    X: Expr,  # noqa: N803
    W: Expr,  # noqa: N803
    R: Expr,  # noqa: N803
    B: Expr | None = None,  # noqa: N803
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> list[Expr]:
    options = _options(
        ["Tanh"], direction, activations, activation_alpha, activation_beta, clip, layout
    )

    def kernel(d: int, reverse: bool, x: Expr, r: Expr, begin: list[Expr], _: Any) -> list[Expr]:
        return _called(
            cx,
            _rnn_kernel,
            2,
            x,
            r,
            begin[0],
            sequence_lens,
            functions=options.functions[d],
            reverse=reverse,
            clip=clip,
        )

    return _layer(cx, (X, W, R, B, sequence_lens, initial_h), options, 1, kernel, 1)


converter("RNN", ignored=["output_sequence"])(_rnn)


@converter("GRU", ignored=["output_sequence"])
def gru(
    cx: Context,
    X: Expr,  # noqa: N803
    W: Expr,  # noqa: N803
    R: Expr,  # noqa: N803
    B: Expr | None = None,  # noqa: N803
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> list[Expr]:
    options = _options(
        ["Sigmoid", "Tanh"], direction, activations, activation_alpha, activation_beta, clip, layout
    )

    def kernel(
        d: int, reverse: bool, x: Expr, r: Expr, begin: list[Expr], bias: Expr | None
    ) -> list[Expr]:
        return _called(
            cx,
            _gru_kernel,
            2,
            x,
            r,
            begin[0],
            sequence_lens,
            bias,
            functions=options.functions[d],
            reverse=reverse,
            clip=clip,
        )

    operands = X, W, R, B, sequence_lens, initial_h
    return _layer(cx, operands, options, 3, kernel, 1, bool(linear_before_reset))


@converter("LSTM", ignored=["output_sequence"])
def lstm(
    cx: Context,
    X: Expr,  # noqa: N803
    W: Expr,  # noqa: N803
    R: Expr,  # noqa: N803
    B: Expr | None = None,  # noqa: N803
    sequence_lens: Expr | None = None,
    initial_h: Expr | None = None,
    initial_c: Expr | None = None,
    P: Expr | None = None,  # noqa: N803
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> list[Expr]:
    operands = X, W, R, B, sequence_lens, initial_h, initial_c
    functions = activations, activation_alpha, activation_beta
    return lstm_layer(cx, operands, P, direction, functions, clip, layout, bool(input_forget))


def lstm_layer(
    cx: Context,
    operands: Operands,
    peepholes: Expr | None,
    direction: str,
    functions: tuple[list[str] | None, list[float] | None, list[float] | None],
    clip: float | None,
    layout: int,
    coupled: bool,
    quantized: bool = False,
) -> list[Expr]:
    """The outputs of a layer; `functions` are the activations and their parameters."""
    options = _options(["Sigmoid", "Tanh", "Tanh"], direction, *functions, clip, layout)

    def kernel(d: int, reverse: bool, x: Expr, r: Expr, begin: list[Expr], _: Any) -> list[Expr]:
        return _called(
            cx,
            _lstm_kernel,
            3,
            x,
            r,
            *begin,
            operands[4],
            None if peepholes is None else _part(peepholes, d),
            functions=options.functions[d],
            reverse=reverse,
            clip=clip,
            coupled=coupled,
            quantized=quantized,
        )

    return _layer(cx, operands, options, 4, kernel, 2)
