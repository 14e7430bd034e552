"""Random numbers of the family `random`: Threefry, a cipher of a key and a counter.

A generator is a vector of ten words: the key, the path of splits and the counter, and the bit of
the path that the next split sets. Equal generators give equal numbers.

Rule:
    Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC '11, and
    Claessen & Palka, "Splittable pseudorandom number generators using cryptographic hashing",
    Haskell '13. As in TVM, the key is not added once more after the last round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relay.expr import Constant
from relaxpy.ir.relay.op.registry import REQUIRED, Op, OpRecord
from relaxpy.ir.relay.op.relations import Relation, RelationError, Solver, tensor
from relaxpy.ir.relay.ty import TensorType, TupleType, Type
from relaxpy.ir.te import tensor as te, topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.indexing import load, loops
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, Stmt, stmt_seq

_WORD: Final = "uint64"
_KEY: Final = TensorType((10,), DataType(_WORD))
_ROTATIONS: Final = (
    (14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32),
)  # fmt: skip
_ROUNDS: Final = 20
_PARITY: Final = 0x1BD11BDAA9FC1A22
_ONES: Final = 2**64 - 1
_FRACTIONS: Final = {"float32": 23, "float64": 52}


def _word(value: int) -> PrimExpr:
    return ops.const(value, _WORD)


def _index(value: int) -> PrimExpr:
    return ops.const(value, "int64")


def _xor(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return ops.bitwise("tir.bitwise_xor", a, b)


def _or(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return ops.bitwise("tir.bitwise_or", a, b)


def _shifted(name: str, value: PrimExpr, count: int) -> PrimExpr:
    return ops.bitwise(f"tir.shift_{name}", value, _word(count))


def _rotated(value: PrimExpr, count: int) -> PrimExpr:
    return _or(_shifted("left", value, count), _shifted("right", value, 64 - count))


def threefry(words: Tensor, count: int) -> Tensor:
    """Return the cipher (4, count) of counters, of a key and a counter of four words each.

    All words of the counter of number i are i greater than those of the first.
    """

    def store(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        state, keys = outs
        given = [load(ins[0], (_index(k),)) for k in range(8)]
        key = given[0]
        for part in given[1:4]:
            key = _xor(key, part)
        steps: list[Stmt] = [BufferStore(keys, given[k], (_index(k),)) for k in range(4)]
        steps.append(BufferStore(keys, _xor(key, _word(_PARITY)), (_index(4),)))

        def update(row: int, value: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> None:
            """Replace the words of a row by a function of them and of their number."""

            def body(index: list[PrimExpr]) -> Stmt:
                place = _index(row), index[0]
                return BufferStore(state, value(load(state, place), index[0]), place)

            steps.append(loops([_index(count)], body))

        def word(row: int, i: PrimExpr) -> PrimExpr:
            return load(state, (_index(row), i))

        for row in range(4):
            first = given[4 + row]
            update(row, lambda x, i, first=first: ops.add(first, ops.cast_to(i, _WORD)))  # type: ignore[misc]
        rows = [0, 1, 2, 3]  # where the words are that the rounds permute
        for number in range(_ROUNDS):
            if number % 4 == 0:
                step = number // 4
                for k, row in enumerate(rows):
                    added = load(keys, (_index((step + k) % 5),))
                    if k == 3:
                        added = ops.add(added, _word(step))
                    update(row, lambda x, i, added=added: ops.add(x, added))  # type: ignore[misc]
            for half, rotation in enumerate(_ROTATIONS[number % 8]):
                a, b = rows[2 * half : 2 * half + 2]
                update(a, lambda x, i, b=b: ops.add(x, word(b, i)))  # type: ignore[misc]
                update(
                    b,
                    lambda x, i, a=a, r=rotation: _xor(_rotated(x, r), word(a, i)),  # type: ignore[misc]
                )
            rows = [rows[0], rows[3], rows[2], rows[1]]
        return stmt_seq(*steps)

    shapes = [(_index(4), _index(count)), (_index(5),)]
    outputs: Sequence[Tensor] = te.extern(shapes, [words], store, "threefry", [_WORD] * 2)
    return outputs[0]


def _vector(name: str, inputs: Sequence[Tensor], words: Callable[..., Sequence[PrimExpr]]) -> Any:
    """Return a vector of words, which a function returns for those of the inputs."""

    def store(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        given = [
            [load(buffer, (_index(k),)) for k in range(_size(vector))]
            for vector, buffer in zip(inputs, ins, strict=True)
        ]
        return stmt_seq(
            *(BufferStore(outs[0], value, (_index(k),)) for k, value in enumerate(words(*given)))
        )

    count = len(words(*([_word(0)] * _size(vector) for vector in inputs)))
    return te.extern([(_index(count),)], list(inputs), store, name, [_WORD])


def _size(vector: Tensor) -> int:
    (size,) = vector.shape
    assert isinstance(size, tir.IntImm)
    return size.value


def _column(state: Tensor, name: str) -> Tensor:
    """Return the words of the first counter."""
    return te.compute((4,), lambda k: state(k, _index(0)), name)  # type: ignore[no-any-return]


def _is(value: PrimExpr, number: int) -> PrimExpr:
    return ops.compare(tir.EQ, value, _word(number))


def _choose(condition: PrimExpr, yes: Sequence[Any], no: Sequence[Any]) -> list[PrimExpr]:
    """Return one of two lists of words."""
    pairs = ((ops.convert(a), ops.convert(b)) for a, b in zip(yes, no, strict=True))
    return [intrin.if_then_else(condition, a, b) for a, b in pairs]


def _next_bit(high: PrimExpr, low: PrimExpr) -> list[PrimExpr]:
    """Return the position of the next bit of a path, in two words."""
    within = [_shifted("right", high, 1), _word(0)]
    beyond = [_word(0), _shifted("right", low, 1)]
    return _choose(_is(high, 1), [_word(0), _word(1 << 63)], _choose(_is(high, 0), beyond, within))


def _hashed(gen: Tensor, counter: Sequence[int | None]) -> Tensor:
    """Return the cipher of a generator's counter; numbers replace words of it."""
    words = _vector(
        "hashed_words",
        [gen],
        lambda g: [*g[:4], *(g[4 + k] if n is None else _word(n) for k, n in enumerate(counter))],
    )
    return _column(threefry(words, 1), "hashed")


def _with_room(gen: Tensor, count: int) -> Tensor:
    """Return the generator, or one derived from it if its counter ends before so many numbers."""
    zeros = [_word(0)] * 4

    def words(g: Sequence[PrimExpr], key: Sequence[PrimExpr]) -> list[PrimExpr]:
        is_room = ops.compare(tir.LT, g[7], _word(_ONES - count))
        is_full = ops.all_of(_is(g[8], 0), _is(g[9], 0))  # the path has no bit left
        new_key = [*key, *zeros, _word(1 << 63), _word(0)]
        path = [_or(g[4], g[8]), _or(g[5], g[9]), _word(0), _word(0)]
        new_path = [*g[:4], *path, *_next_bit(g[8], g[9])]
        return _choose(is_room, g, _choose(is_full, new_key, new_path))

    return _vector("generator", [gen, _hashed(gen, [_ONES] * 4)], words)  # type: ignore[no-any-return]


def generate(gen: Tensor, shape: Sequence[int]) -> list[Tensor]:
    """Return the generator after, and words of a shape."""
    count = math.prod(shape)
    used = _with_room(gen, count)
    blocks, rest = divmod(count, 4)
    parts = []
    if blocks:
        words = _vector("words", [used], lambda g: g[:8])
        parts.append((4 * blocks, threefry(words, blocks)))
    if rest:
        words = _vector("last_words", [used], lambda g: [*g[:7], ops.add(g[7], _word(4 * blocks))])
        parts.append((4 * blocks + rest, threefry(words, 1)))

    def element(*index: PrimExpr) -> PrimExpr:
        place = _index(0)
        for i, size in zip(index, shape, strict=True):
            place = ops.add(ops.mul(place, _index(size)), i)
        if len(parts) == 2:
            tail = parts[1][1](ops.maximum(ops.sub(place, 4 * blocks), _index(0)), _index(0))
            inside = ops.minimum(place, _index(4 * blocks - 1))
            head = parts[0][1](ops.floormod(inside, 4), ops.floordiv(inside, 4))
            return intrin.if_then_else(place < _index(4 * blocks), head, tail)
        return parts[0][1](ops.floormod(place, 4), ops.floordiv(place, 4))

    step = 4 * (blocks + bool(rest))
    after = _vector(
        "next_generator",
        [used],
        lambda g: [*g[:6], _word(0), ops.add(g[7], _word(step)), *g[8:]],
    )
    sizes = tuple(map(_index, shape))
    return [after, te.compute(sizes, element, "random_words")]


def _split(gen: Tensor) -> list[Tensor]:
    """Return two generators, whose paths end in 0 and in 1."""
    hashed = _hashed(gen, [None] * 4)
    zeros = [_word(0)] * 4
    bit = [_word(1 << 62), _word(0)]

    def side(one: int) -> Tensor:
        def words(g: Sequence[PrimExpr], key: Sequence[PrimExpr]) -> list[PrimExpr]:
            is_full = ops.all_of(_is(g[8], 0), _is(g[9], 0))
            path = [_or(g[4], g[8]), _or(g[5], g[9])] if one else list(g[4:6])
            extended = [*g[:4], *path, *g[6:8], *_next_bit(g[8], g[9])]
            return _choose(is_full, [*key, _word(one << 63), *zeros[1:], *bit], extended)

        return _vector(("left", "right")[one], [gen, hashed], words)  # type: ignore[no-any-return]

    return [side(0), side(1)]


def _standard(gen: Tensor, shape: Sequence[int], dtype: str) -> list[Tensor]:
    """Return the generator after, and numbers between 0 and 1."""
    after, words = generate(gen, shape)
    digits = _FRACTIONS[dtype]
    scale = ops.const(2.0**-digits, dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        return ops.mul(ops.cast_to(_shifted("right", words(*index), 64 - digits), dtype), scale)

    return [after, te.compute(words.shape, element, "standard_uniform")]


def _uniform(attrs: Any, gen: Tensor, low: Tensor, high: Tensor) -> list[Tensor]:
    after, numbers = _standard(gen, _out_shape(attrs), _out_dtype(attrs))
    return [after, topi.add(topi.multiply(numbers, topi.subtract(high, low)), low)]


def _normal(attrs: Any, gen: Tensor, mean: Tensor, scale: Tensor) -> list[Tensor]:
    """Box and Muller: each number is of two that are distributed evenly."""
    dtype = _out_dtype(attrs)
    after, pairs = _standard(gen, (2, *_out_shape(attrs)), dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        one, other = (pairs(_index(k), *index) for k in (0, 1))
        log = intrin.log(ops.sub(ops.const(1, dtype), one))
        radius = intrin.sqrt(ops.mul(ops.const(-2, dtype), log))
        return ops.mul(radius, intrin.sin(ops.mul(ops.const(2 * math.pi, dtype), other)))

    numbers = te.compute(pairs.shape[1:], element, "standard_normal")
    return [after, topi.add(topi.multiply(numbers, scale), mean)]


def _multinomial(attrs: Any, gen: Tensor, probabilities: Tensor) -> list[Tensor]:
    """Positions in the last dimension, each as likely as its number there is great."""
    *outer, last = probabilities.shape
    weights = topi.maximum(topi.cast(probabilities, "float32"), ops.const(0, "float32"))
    total = topi.sum(weights, axis=-1, keepdims=True)
    ends = topi.cumsum(topi.divide(weights, total), axis=-1)
    sizes = [size.value for size in outer if isinstance(size, tir.IntImm)]
    after, drawn = _standard(gen, (*sizes, int(attrs["num_samples"])), "float32")

    def is_before(*index: PrimExpr) -> PrimExpr:
        end = ends(*index[:-2], index[-1])
        return ops.cast_to(ops.compare(tir.LE, end, drawn(*index[:-1])), "int32")

    flags = te.compute((*drawn.shape, last), is_before, "is_before")
    top = ops.cast_to(ops.sub(last, 1), "int32")
    return [after, topi.minimum(topi.sum(flags, axis=-1), top)]


# Types


def _out_shape(attrs: Any) -> tuple[int, ...]:
    """Return the shape of the numbers.

    Errors:
        RelationError: it is not a list of numbers, or there are none to generate.
    """
    given = attrs["out_shape"]
    shape = given if isinstance(given, tuple) else (given,)
    if not all(type(size) is int and size > 0 for size in shape):
        raise RelationError(f"out_shape is a list of positive numbers, found {given!r:.60}")
    return shape


def _out_dtype(attrs: Any) -> str:
    dtype = str(attrs["out_dtype"])
    if dtype not in _FRACTIONS:
        raise RelationError(f"out_dtype is {' or '.join(_FRACTIONS)}, found {dtype or None}")
    return dtype


def _of_generator(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    solver.unify(args[0], _KEY)
    solver.unify(args[1], TupleType((_KEY, TensorType(_out_shape(attrs), DataType(_WORD)))))
    return True


def _of_split(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    solver.unify(args[0], _KEY)
    solver.unify(args[1], TupleType((_KEY, _KEY)))
    return True


def _of_distribution(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    solver.unify(args[0], _KEY)
    dtype = _out_dtype(attrs)
    for arg in args[1:3]:
        solver.unify(arg, TensorType((), DataType(dtype)))
    solver.unify(args[3], TupleType((_KEY, TensorType(_out_shape(attrs), DataType(dtype)))))
    return True


def _of_multinomial(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    solver.unify(args[0], _KEY)
    probabilities = solver.complete(args[1])
    if solver.holes(probabilities):
        return False
    known = tensor(probabilities)  # type: ignore[arg-type]
    assert known is not None
    shape = known.shape
    if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape[:-1]):
        raise RelationError(f"the number of distributions is known, found {known}")
    if not shape:
        raise RelationError("the probabilities are at least a vector, found a number")
    count = attrs["num_samples"]
    if type(count) is not int or count <= 0:
        raise RelationError(f"num_samples is a positive number, found {count!r:.60}")
    samples = TensorType((*shape[:-1], count), DataType("int32"))
    solver.unify(args[2], TupleType((_KEY, samples)))
    return True


def _define(
    name: str,
    operands: str,
    relation: Relation,
    function: Callable[..., list[Tensor]],
    attributes: Mapping[str, object],
) -> None:
    record = OpRecord(
        f"random.{name}",
        tuple(operands.split()),
        attributes=attributes,
        relation=relation,
        compute=lambda attrs, inputs, ty: function(attrs, *inputs),
        results=2,
    )
    Op.enter(record)


_DISTRIBUTION: Final = {"out_shape": REQUIRED, "out_dtype": REQUIRED}
_define(
    "threefry_generate",
    "key",
    _of_generator,
    lambda attrs, gen: generate(gen, _out_shape(attrs)),
    {"out_shape": REQUIRED},
)
_define("threefry_split", "key", _of_split, lambda attrs, gen: _split(gen), {})
_define("uniform", "key low high", _of_distribution, _uniform, _DISTRIBUTION)
_define("normal", "key mean scale", _of_distribution, _normal, _DISTRIBUTION)
_define("multinomial", "key probs", _of_multinomial, _multinomial, {"num_samples": 1})


@user_facing
def threefry_key(seed: int) -> Constant:
    """Return the generator of a seed, of 256 bits.

    Errors:
        MisuseError (also TypeError, ValueError): the seed is not such a number.
    """
    if not isinstance(seed, int) or not 0 <= seed < 2**256:
        raise MisuseError(f"a seed is a number of at most 256 bits, found {seed!r:.60}", about=seed)
    key = np.frombuffer(seed.to_bytes(32, "big"), "<u8")
    return Constant(np.array([*key, 0, 0, 0, 0, 1 << 63, 0], _WORD))
