"""Random numbers of Relay beside the published vectors of Threefry, and their distributions."""

from __future__ import annotations

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError, RelaxpyError
from tests.ir.relay.operator_checks import check
from tests.ir.relay.test_operators import program

MASK = 2**64 - 1
PARITY = 0x1BD11BDAA9FC1A22
#: Random123, kat_vectors: threefry 4x64 of 20 rounds; counter, key, result.
VECTORS = [
    (
        [0] * 4,
        [0] * 4,
        [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B],
    ),
    (
        [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
        [0x452821E638D01377, 0xBE5466CF34E90C6C, 0xBE5466CF34E90C6C, 0xC0AC29B7C97C50DD],
        [0xA7E8FDE591651BD9, 0xBAAFD0C30138319B, 0x84A5C1A729E685B9, 0x901D406CCEBC1BA4],
    ),
]
#: The vector of a counter and a key of ones.
OF_ONES = [0x29C24097942BBA1B, 0x0371BBFB0F6F4E11, 0x3C231FFA33F83A1C, 0xCD29113FDE32D168]


def words(*values: int) -> np.ndarray:
    return np.array(values, "uint64")


def without_last_key(vector: list[int], key: list[int]) -> list[int]:
    """The cipher before the key is added for the last time, as the random numbers are."""
    parity = PARITY
    for word in key:
        parity ^= word
    extended = [*key, parity]
    last = [extended[(5 + k) % 5] + (5 if k == 3 else 0) for k in range(4)]
    return [(v - k) & MASK for v, k in zip(vector, last, strict=True)]


def generated(key: np.ndarray, shape: list[int]) -> list[np.ndarray]:
    """The next generator and the words, in the evaluator."""
    text = program(f"random.threefry_generate(%0, out_shape={shape})", (key,))
    return relay.create_executor(mod=relay.parse(text)).evaluate()(key)


@pytest.mark.rule("RLY-28")
@pytest.mark.parametrize(("counter", "key", "vector"), VECTORS)
def test_words_are_those_of_the_cipher(
    counter: list[int], key: list[int], vector: list[int]
) -> None:
    generator = words(*key, *counter, 1 << 63, 0)
    expected = words(*without_last_key(vector, key))
    after = words(*key, *counter[:2], 0, counter[3] + 4, 1 << 63, 0)
    call = "random.threefry_generate(%0, out_shape=[2, 2])"
    check(call, (generator,), (after, expected.reshape(2, 2)))


def test_a_used_up_generator_gets_a_new_key() -> None:
    generator = words(*[MASK] * 4, 7, 8, 9, MASK - 1, 0, 0)
    after, _ = generated(generator, [4])
    key = words(*without_last_key(OF_ONES, [MASK] * 4))
    assert after.tolist() == [*key.tolist(), 0, 0, 0, 4, 1 << 63, 0]


def test_a_counter_that_ends_sets_a_bit_of_the_path() -> None:
    generator = words(1, 2, 3, 4, 1 << 63, 0, 0, MASK - 1, 1, 0)
    after, drawn = generated(generator, [4])
    assert after.tolist() == [1, 2, 3, 4, 1 << 63 | 1, 0, 0, 4, 0, 1 << 63]
    _, again = generated(words(1, 2, 3, 4, 1 << 63 | 1, 0, 0, 0, 0, 1 << 63), [4])
    assert drawn.tolist() == again.tolist()


def test_words_follow_the_counter_and_may_end_within_a_block() -> None:
    generator = words(1, 2, 3, 4, 0, 0, 0, 0, 1 << 63, 0)
    after, seven = generated(generator, [7])
    _, first = generated(generator, [4])
    _, rest = generated(words(1, 2, 3, 4, 0, 0, 0, 4, 1 << 63, 0), [4])
    assert seven.tolist() == [*first.tolist(), *rest.tolist()[:3]]
    assert after[7] == 8


def test_splits_extend_the_path() -> None:
    generator = words(1, 2, 3, 4, 0, 0, 0, 9, 1 << 63, 0)
    left = words(1, 2, 3, 4, 0, 0, 0, 9, 1 << 62, 0)
    right = words(1, 2, 3, 4, 1 << 63, 0, 0, 9, 1 << 62, 0)
    check("random.threefry_split", (generator,), (left, right))


def test_a_split_without_room_in_the_path_hashes_the_key() -> None:
    counter, key, vector = VECTORS[1]
    generator = words(*key, *counter, 0, 0)
    hashed = without_last_key(vector, key)
    left = words(*hashed, 0, 0, 0, 0, 1 << 62, 0)
    right = words(*hashed, 1 << 63, 0, 0, 0, 1 << 62, 0)
    check("random.threefry_split", (generator,), (left, right))


def test_keys_are_those_of_seeds() -> None:
    seed = int.from_bytes(b"".join(w.to_bytes(8, "little") for w in (5, 6, 7, 8)), "big")
    assert relay.random.threefry_key(seed).data.tolist() == [5, 6, 7, 8, 0, 0, 0, 0, 1 << 63, 0]
    with pytest.raises(MisuseError, match="at most 256 bits"):
        relay.random.threefry_key(-1)


KEY = relay.random.threefry_key(1).data


def drawn(call: str, *inputs: np.ndarray) -> np.ndarray:
    module = relay.parse(program(call, (KEY, *inputs)))
    return relay.create_executor(mod=module).evaluate()(KEY, *inputs)[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_are_words_as_fractions(dtype: str) -> None:
    low, high = np.array(-1, dtype), np.array(3, dtype)
    call = f'random.uniform(%0, %1, %2, out_shape=[5, 8], out_dtype="{dtype}")'
    digits = {"float32": 23, "float64": 52}[dtype]
    after, bits = generated(KEY, [40])
    expected = (bits >> np.uint64(64 - digits)).astype(dtype) / 2**digits * 4 - 1
    check(call, (KEY, low, high), (after, expected.reshape(5, 8)))
    assert expected.min() < -0.7
    assert expected.max() > 2.7


def test_normal_numbers_have_the_mean_and_the_deviation() -> None:
    call = 'random.normal(%0, 3f, 2f, out_shape=[50, 400], out_dtype="float32")'
    numbers = drawn(call)
    assert numbers.shape == (50, 400)
    assert abs(numbers.mean() - 3) < 0.06
    assert abs(numbers.std() - 2) < 0.06
    within = [np.mean(abs(numbers - 3) < 2 * k) for k in (1, 2)]
    assert np.allclose(within, [0.683, 0.954], atol=0.015)


def test_samples_are_as_likely_as_their_weights() -> None:
    weights = np.array([[1, 0, 3, 4], [0, 5, 0, -2]], "float32")
    samples = drawn("random.multinomial(%0, %1, num_samples=4000)", weights)
    assert samples.shape == (2, 4000)
    assert samples.dtype == np.int32
    counts = np.bincount(samples[0], minlength=4) / 4000
    assert np.allclose(counts, [1 / 8, 0, 3 / 8, 1 / 2], atol=0.03)
    assert counts[1] == 0
    assert set(samples[1]) == {1}


def test_the_type_of_a_generator_is_inferred() -> None:
    module = relay.parse("fn(%key) { random.threefry_split(%key) }")
    assert str(module["main"].params[0].type_annotation) == "Tensor[(10,), uint64]"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("random.threefry_generate(%0, out_shape=[2, 0])", "out_shape is a list of positive"),
        ("random.threefry_generate(%0)", "needs the attribute out_shape"),
        ("random.threefry_split(1f)", "float32"),
        (
            'random.uniform(%0, 0f, 1f, out_shape=[4], out_dtype="int32")',
            "out_dtype is float32 or float64, found int32",
        ),
        ('random.normal(%0, 0f, 1f64, out_shape=[4], out_dtype="float32")', "float64"),
        ("random.multinomial(%0, 1f)", "at least a vector"),
        ("random.multinomial(%0, %0, num_samples=0)", "num_samples is a positive number"),
    ],
)
def test_what_generators_do_not_take_is_refused(call: str, message: str) -> None:
    with pytest.raises(RelaxpyError, match=message):
        relay.parse(program(call, (KEY,)))
