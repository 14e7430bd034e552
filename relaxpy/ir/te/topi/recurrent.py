"""Recurrent layers as scans, which walk the states from the products with the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.support.dataclass import dataclass

__all__ = ["lstm"]

Size: TypeAlias = int | PrimExpr
Activation: TypeAlias = Callable[[PrimExpr], PrimExpr]
Element: TypeAlias = Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
#: The weights by which a gate sees the cell state, for each sequence of a batch and unit.
Seen: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]


def like(value: float, other: PrimExpr) -> PrimExpr:
    """A number of the datatype of another one."""
    return ops.const(value, other.dtype)


def _computed(shape: Sequence[Any], element: Callable[..., PrimExpr], name: str) -> Tensor:
    result = te.compute(tuple(shape), element, name=name)
    assert isinstance(result, Tensor)
    return result


@dataclass(frozen=True, eq=False)
class _OfBytes:
    """Row data of 8-bit weights: scales, sums without zero points, and the zero points.

    `zeros` is None if all zero points are 0.
    """

    scales: Tensor
    sums: Tensor
    zeros: Tensor | None


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
        return length + ops.const(1, length.dtype)

    def position(self, t: PrimExpr) -> PrimExpr:
        return self.inputs.shape[0] - t if self.reverse else t - 1

    def state(self, name: str, width: Size | None = None) -> Tensor:
        shape = (self.count, self.inputs.shape[1], self.hidden if width is None else width)
        result = te.placeholder(shape, self.inputs.dtype, name)
        assert isinstance(result, Tensor)
        return result

    def stage(self, width: Any, element: Element, name: str) -> Tensor:
        return _computed((self.count, self.inputs.shape[1], width), element, name)

    def product(
        self, states: Element, weights: Tensor, rows: Any, offset: Any, name: str
    ) -> Tensor:
        """The sums over k of states(t, b, k) * weights(offset + j, k)."""

        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            axis = te.reduce_axis((0, weights.shape[1]), "k")
            terms = states(t, b, axis.var) * weights(j + offset, axis.var)
            total: PrimExpr = reduce.sum(terms, axis=axis)
            return total

        return self.stage(rows, element, name)

    def product_of_rows(
        self, states: Element, weights: Tensor, rows: Any, offset: Any, name: str
    ) -> Tensor:
        """The sums over k, up to `rows`, of states(t, b, k) * weights(offset + k, j)."""

        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            axis = te.reduce_axis((0, rows), "k")
            terms = states(t, b, axis.var) * weights(axis.var + offset, j)
            total: PrimExpr = reduce.sum(terms, axis=axis)
            return total

        return self.stage(weights.shape[1], element, name)

    def product_of_bytes(self, state: Tensor, weights: Tensor, of: _OfBytes) -> Tensor:
        """The matmul of the quantised state before each step with 8-bit weights."""
        rows = weights.shape[0]
        before, step, zero = self.rounded(state)

        def whole(t: PrimExpr, b: PrimExpr, k: PrimExpr) -> PrimExpr:
            return before(t, b, k).astype("int32")

        def products(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            axis = te.reduce_axis((0, self.hidden), "k")
            row = whole(t, b, axis.var) * weights(j, axis.var).astype("int32")
            total: PrimExpr = reduce.sum(row, axis=axis)
            return total

        def row_sum(t: PrimExpr, b: PrimExpr) -> PrimExpr:
            axis = te.reduce_axis((0, self.hidden), "k")
            total: PrimExpr = reduce.sum(whole(t, b, axis.var), axis=axis)
            return total

        total = self.stage(rows, products, "products")
        batch = self.inputs.shape[1]
        row_sums = None if of.zeros is None else _computed((self.count, batch), row_sum, "row_sums")

        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            value = total(t, b, j) - zero(t).astype("int32") * of.sums(j)
            if row_sums is not None and of.zeros is not None:
                value = value - of.zeros(j) * row_sums(t, b)
            return value.astype("float32") * (step(t) * of.scales(j))

        return self.stage(rows, element, "h2h")

    def rounded(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The state before each step, quantised to 8 bits over the range of its elements and 0.

        The result is the quantised state, its scale, and its zero point.
        """
        batch = self.inputs.shape[1]

        def extreme(fold: Callable[..., PrimExpr], name: str) -> Tensor:
            def element(t: PrimExpr) -> PrimExpr:
                b, k = te.reduce_axis((0, batch), "b"), te.reduce_axis((0, self.hidden), "k")
                return fold(state(t - 1, b.var, k.var), axis=[b, k])

            return _computed((self.count,), element, name)

        least, most = extreme(reduce.min, "least"), extreme(reduce.max, "most")

        def low(t: PrimExpr) -> PrimExpr:
            return ops.minimum(least(t), like(0, least(t)))

        def width(t: PrimExpr) -> PrimExpr:
            exact = (ops.maximum(most(t), like(0, most(t))) - low(t)) / like(255, most(t))
            return tir.Select(exact > like(0, exact), exact, like(1, exact))

        step = _computed((self.count,), width, "step")
        zero = _computed((self.count,), lambda t: intrin.round(-low(t) / step(t)), "zero")

        def element(t: PrimExpr, b: PrimExpr, k: PrimExpr) -> PrimExpr:
            place = intrin.round(state(t - 1, b, k) / step(t)) + zero(t)
            inside = ops.maximum(ops.minimum(place, like(255, place)), like(0, place))
            return inside.astype("uint8")

        return self.stage(self.hidden, element, "h_rounded"), step, zero

    def clipped(self, x: PrimExpr) -> PrimExpr:
        if self.clip is None:
            return x
        return ops.maximum(ops.minimum(x, like(self.clip, x)), like(-self.clip, x))

    def walked(
        self, first: Sequence[Tensor], new: Sequence[Element], states: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Each state before the first step and after each one."""
        lengths = self.lengths

        def kept(state: Tensor, value: Element) -> Element:
            def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
                if lengths is None:
                    return value(t, b, j)
                inside = self.position(t) < lengths(b).astype("int64")
                return tir.Select(inside, value(t, b, j), state(t - 1, b, j))

            return element

        updates = [
            self.stage(state.shape[2], kept(state, value), f"{state.name}_next")
            for state, value in zip(states, new, strict=True)
        ]
        walked = te.scan(list(first), updates, list(states), name="walk")
        return [walked] if isinstance(walked, Tensor) else walked

    def results(
        self, first: Sequence[Tensor], new: Sequence[Element], states: Sequence[Tensor]
    ) -> list[Tensor]:
        """The hidden states of all positions, then each state after the last step."""
        found = self.walked(first, new, states)
        length = self.inputs.shape[0]
        return [self.at_positions(found[0], 0), *(_last(state, length) for state in found)]

    def at_positions(self, states: Tensor, steps: int) -> Tensor:
        """The states of all positions, each from some steps before its own."""
        (length, batch, _), lengths = self.inputs.shape, self.lengths

        def output(p: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            value: PrimExpr = states((length - p if self.reverse else p + 1) - steps, b, j)
            if lengths is None:
                return value
            return tir.Select(p < lengths(b).astype("int64"), value, like(0, value))

        return _computed((length, batch, states.shape[2]), output, "Y")


def _last(states: Tensor, position: PrimExpr) -> Tensor:
    """The state at the position where a walk ends."""
    return _computed(states.shape[1:], lambda b, j: states(position, b, j), "last")


def _after(states: Tensor, length: PrimExpr) -> Tensor:
    """The states after each of `length` steps."""
    return _computed((length, *states.shape[1:]), lambda t, b, j: states(t + 1, b, j), "states")


def _first(state: Tensor) -> Tensor:
    """The state of shape (batch, hidden) as the first of a walk."""
    return _computed((1, *state.shape), lambda _, b, j: state(b, j), "first")


def rnn_kernel(
    inputs: Tensor,
    weights: Tensor,
    state: Tensor,
    lengths: Tensor | None = None,
    *,
    functions: list[Activation],
    reverse: bool,
    clip: float | None = None,
) -> list[Tensor]:
    """The hidden states of all positions, and the last one, of a layer without gates."""
    hidden = weights.shape[1]
    walk = _Walk(inputs, reverse, clip, lengths, hidden)
    h = walk.state("h")
    from_state = walk.product(lambda t, b, k: h(t - 1, b, k), weights, hidden, 0, "h2h")

    def new(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return functions[0](walk.clipped(inputs(walk.position(t), b, j) + from_state(t, b, j)))

    return walk.results([_first(state)], [new], [h])


def gru_kernel(
    inputs: Tensor,
    weights: Tensor,
    state: Tensor,
    lengths: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    functions: list[Activation],
    reverse: bool,
    clip: float | None = None,
    order: str = "ZR",
) -> list[Tensor]:
    """The same of gated recurrent units, whose gates are update, reset (Z, R) and hidden.

    `bias` is that of the products with the state in the hidden gate, if these come first.
    """
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

    update, reset = gate(order.index("Z"), "z"), gate(order.index("R"), "r")
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
        return (like(1, z) - z) * candidates(t, b, j) + z * h(t - 1, b, j)

    return walk.results([_first(state)], [new], [h])


def lstm_kernel(
    inputs: Tensor,
    weights: Tensor,
    state: Tensor,
    cell: Tensor,
    lengths: Tensor | None = None,
    peepholes: Tensor | None = None,
    scales: Tensor | None = None,
    sums: Tensor | None = None,
    zeros: Tensor | None = None,
    projection: Tensor | None = None,
    *,
    functions: list[Activation],
    reverse: bool,
    clip: float | None = None,
    coupled: bool = False,
    order: str = "IOFG",
    every_cell: bool = False,
) -> list[Tensor]:
    """The hidden states, the last one and the last cell state of a long short-term memory.

    The gates are input, output, forget and cell. Where `weights` are 8-bit with scales, the hidden
    state is quantised before matmuls. Hidden states are multiplied by the `projection`, if any.
    With `every_cell`, the result is the hidden and the cell states of all positions.
    """
    hidden = cell.shape[1]
    walk = _Walk(inputs, reverse, clip, lengths, hidden)
    h, c = walk.state("h", state.shape[1]), walk.state("c")
    if scales is not None and sums is not None:
        from_state = walk.product_of_bytes(h, weights, _OfBytes(scales, sums, zeros))
    else:
        from_state = walk.product(lambda t, b, k: h(t - 1, b, k), weights, hidden * 4, 0, "h2h")
    seen: dict[str, Seen] = {}
    if peepholes is not None:
        seen = {x: _rows_from(peepholes, hidden * k) for k, x in enumerate("IOF")}
    new, cells = _lstm_step(walk, c, from_state, functions, order, seen, projection, coupled)
    first = [_first(state), _first(cell)]
    updates: list[Element] = [new, cells]
    if every_cell:
        return [walk.at_positions(states, 0) for states in walk.walked(first, updates, [h, c])]
    return walk.results(first, updates, [h, c])


def gradient_kernel(
    of_states: Tensor,
    factors: Tensor,
    kept: Tensor,
    weights: Tensor,
    of_cells: Tensor | None = None,
    seen: Tensor | None = None,
    projection: Tensor | None = None,
    *,
    reverse: bool,
) -> list[Tensor]:
    """The terms of steps in the gradients of the states before them, from the last step on.

    The results are these gradients after the step of each position, and before the first step, for
    the hidden states, and then for the cell states, if any. The gradients of the hidden states,
    of those before the projection, and of the cell states are h, u and c. Those of the gates are
    `factors` * (c, c, c, u), or without cells `factors` * h for each gate. A step keeps `kept` of
    c, or without cells of h, and a cell is `seen` by u.

    Shapes:
        of_states, of_cells   (length, batch, projection or hidden), (length, batch, hidden)
        factors               (length, batch, gates * hidden)
        kept, seen            (length, batch, hidden)
        weights, projection   (gates * hidden, projection or hidden), (projection, hidden)
    """
    hidden = kept.shape[2]
    walk = _Walk(of_states, not reverse, None, None, hidden)
    width = weights.shape[1]
    h, c = walk.state("dh", width), walk.state("dc")

    def at(given: Tensor) -> Element:
        return lambda t, b, j: given(walk.position(t), b, j)

    def total(given: Tensor, state: Tensor, name: str) -> Tensor:
        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            return at(given)(t, b, j) + state(t - 1, b, j)

        return walk.stage(given.shape[2], element, name)

    of_h = total(of_states, h, "of_h")
    of_u, of_kept = of_h, of_h
    if projection is not None:
        of_u = walk.product_of_rows(of_h, projection, width, 0, "of_u")
    if of_cells is not None and seen is not None:
        direct, through = total(of_cells, c, "direct"), at(seen)

        def cell(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            return direct(t, b, j) + of_u(t, b, j) * through(t, b, j)

        of_kept = walk.stage(hidden, cell, "of_c")
    count = simplify(weights.shape[0] // hidden)
    assert isinstance(count, tir.IntImm)

    def product(gate: int) -> Tensor:
        """The term of a gate in the gradient of the state before."""
        of_gate, offset = of_u if gate == count.value - 1 else of_kept, hidden * gate

        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            return at(factors)(t, b, j + offset) * of_gate(t, b, j)

        gradient = walk.stage(hidden, element, f"of_gate_{gate}")
        return walk.product_of_rows(gradient, weights, hidden, offset, f"product_{gate}")

    products = [product(gate) for gate in range(count.value)]

    def remaining(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return at(kept)(t, b, j) * of_kept(t, b, j)

    def new(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        value = sum((product(t, b, j) for product in products[1:]), products[0](t, b, j))
        return value if of_cells is not None else value + remaining(t, b, j)

    states, updates = [h], [new]
    if of_cells is not None:
        states, updates = [h, c], [new, remaining]
    batch, dtype = of_states.shape[1], of_states.dtype
    first = [
        _computed((1, batch, s.shape[2]), lambda *_: ops.const(0, dtype), "zeros") for s in states
    ]
    found = walk.walked(first, updates, states)
    length = of_states.shape[0]
    return [part for s in found for part in (walk.at_positions(s, 1), _last(s, length))]


def _rows_from(weights: Tensor, offset: Any) -> Seen:
    """The weights of one gate, which are the same for all sequences."""
    return lambda _, j: weights(j + offset)


def _lstm_step(
    walk: _Walk,
    state: Tensor,
    from_state: Tensor,
    functions: Sequence[Activation],
    order: str,
    seen: Mapping[str, Seen],
    projection: Tensor | None,
    coupled: bool = False,
) -> tuple[Element, Tensor]:
    """The hidden and the cell state after a step, the latter computed from that before, `state`.

    Rows are those of the input, forget, cell and output gates, I, F, G and O, in the `order`;
    `seen` has the weights by which gates see the cell state.
    """
    hidden = walk.hidden
    f, g, last = functions

    def gate(letter: str, function: Activation, name: str, cell: Element) -> Tensor:
        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
            row = j + hidden * order.index(letter)
            total: PrimExpr = walk.inputs(walk.position(t), b, row) + from_state(t, b, row)
            if letter in seen:
                total = total + seen[letter](b, j) * cell(t, b, j)
            return function(walk.clipped(total))

        return walk.stage(hidden, element, name)

    def previous(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return state(t - 1, b, j)

    into, content = gate("I", f, "i", previous), gate("G", g, "g", previous)
    forget = None if coupled else gate("F", f, "f", previous)

    def kept(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        if forget is not None:
            return forget(t, b, j)
        i = into(t, b, j)
        return like(1, i) - i

    def new_cell(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return kept(t, b, j) * previous(t, b, j) + into(t, b, j) * content(t, b, j)

    cells = walk.stage(hidden, new_cell, "c_new")
    out = gate("O", f, "o", cells)

    def unprojected(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        return out(t, b, j) * last(cells(t, b, j))

    new: Element = unprojected
    if projection is not None:
        before = walk.stage(hidden, unprojected, "h_unprojected")
        new = walk.product(before, projection, projection.shape[0], 0, "h_projected")
    return new, cells


def lstm(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None = None,
    Bh: Tensor | None = None,
    h_init: Tensor | None = None,
    c_init: Tensor | None = None,
    proj: Tensor | None = None,
    p_i: Tensor | None = None,
    p_f: Tensor | None = None,
    p_o: Tensor | None = None,
    f_act: Activation = intrin.sigmoid,
    g_act: Activation = intrin.tanh,
    h_act: Activation = intrin.tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Tensor, Tensor]:
    """The hidden states and the cell states of a long short-term memory.

    Shapes:
        Xs             (length, batch, input)
        Wi, Wh         (4 * hidden, input), (4 * hidden, hidden or projection), by `weight_layout`
        Bi, Bh         (4 * hidden,), biases in the same order
        h_init, c_init (batch, hidden or projection), (batch, hidden): 0 by default
        proj           (projection, hidden), applied to the hidden state
        p_i, p_f, p_o  (batch, hidden), the weights by which the gates see the cell state
        result         (length, batch, hidden or projection), (length, batch, hidden)
    Errors:
        MisuseError: the layout does not list the input, forget, cell and output gates as I, F, G
            and O, a rank is not that above, or 4 does not divide the rows of Wi.
    Rule:
        Hochreiter and Schmidhuber, Neural Computation 9(8), 1997; peepholes: Gers et al., JMLR 3,
        2002; projection: Sak et al., INTERSPEECH 2014. With `reverse`, the last input comes first.
    """
    _check(Xs, Wi, Wh, weight_layout)
    length, batch, inputs = Xs.shape
    rows = Wi.shape[0]
    hidden = simplify(rows // ops.const(4, rows.dtype))
    width = hidden if proj is None else proj.shape[0]

    def product(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        axis = te.reduce_axis((0, inputs), "k")
        total: PrimExpr = reduce.sum(Xs(t, b, axis.var) * Wi(j, axis.var), axis=axis)
        return total

    def biased(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        total: PrimExpr = products(t, b, j)
        for bias in (Bi, Bh):
            total = total if bias is None else total + bias(j)
        return total

    products = _computed((length, batch, rows), product, "Xi2h")
    walk = _Walk(_computed(products.shape, biased, "biased"), reverse, None, None, hidden)
    h, c = walk.state("h_state", width), walk.state("c_state")
    from_state = walk.product(lambda t, b, k: h(t - 1, b, k), Wh, rows, 0, "s_h2h")
    peepholes = {"I": p_i, "F": p_f, "O": p_o}
    seen: dict[str, Seen] = {x: weights for x, weights in peepholes.items() if weights is not None}
    functions = (f_act, g_act, h_act)
    new, cells = _lstm_step(walk, c, from_state, functions, weight_layout, seen, proj)

    def begin(state: Tensor | None, size: Size) -> Tensor:
        if state is not None:
            return _first(state)
        return _computed((1, batch, size), lambda *_: ops.const(0, Xs.dtype), "zeros")

    states = walk.walked([begin(h_init, width), begin(c_init, hidden)], [new, cells], [h, c])
    return _after(states[0], length), _after(states[1], length)


def _check(Xs: Tensor, Wi: Tensor, Wh: Tensor, weight_layout: str) -> None:
    if sorted(weight_layout) != sorted("IFGO"):
        raise unexpected(weight_layout, "weight_layout orders the gates IFGO")
    if (Xs.ndim, Wi.ndim, Wh.ndim) != (3, 2, 2):
        shapes = ", ".join(shape_text(t.shape) for t in (Xs, Wi, Wh))
        raise MisuseError(f"Xs, Wi and Wh have ranks 3, 2 and 2, found shapes {shapes}")
    rows = Wi.shape[0]
    if isinstance(rows, tir.IntImm) and rows.value % 4:
        raise MisuseError(f"Wi has 4 rows for each hidden unit, found {rows.value} rows")
