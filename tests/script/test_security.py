"""Text that may be hostile: nothing of it runs, and reading it takes bounded work."""

import json
import os
import random
import re
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, strategies as st

import relaxpy
from relaxpy.errors import Diagnostic, ParseError, RelaxpyError, StructInfoError
from relaxpy.script import from_source, relax as R
from relaxpy.script.language import wording
from relaxpy.support.diagnostics import MAX_LINE
from relaxpy.support.missing import nearest
from tests.counting import calls
from tests.fuzz import namespaces
from tests.script.attacks import HEADER, attacks

pytestmark = pytest.mark.timeout(60)  # what is refused is refused in bounded time

ATTACKS = list(attacks())


#: So many attacks are read by one process.
TOGETHER = 110


@pytest.mark.timeout(900)  # many texts, each in bounded time
@pytest.mark.parametrize("first", range(0, len(ATTACKS), TOGETHER))
def test_attacks_are_refused_for_their_own_reasons_and_call_nothing(first, request) -> None:
    """Steps, and the memory and time for them, are limited to a twentieth, but for all rows."""
    divisor = 1 if request.config.getoption("--whole-table") else 20
    names = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.script.attacks"]
    command += map(str, (first, first + TOGETHER, divisor))
    with TemporaryDirectory() as directory:
        done = subprocess.run(
            command, cwd=directory, env=names, capture_output=True, text=True, check=False
        )
    *found, called = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    assert called == ("called", "False", 0), done.stderr
    ends = [
        (attack.reason, attack.text[-300:], kind, message[:200], length)
        for attack, (kind, message, length) in zip(
            ATTACKS[first : first + TOGETHER], found, strict=True
        )
        if not re.fullmatch("Parse(Name|Type)?Error|StructInfoError", kind)
        or attack.reason not in message
        or length >= 5_000  # up to 20 errors
    ]
    assert ends == []


def test_functions_and_datatypes_that_are_handed_in_may_be_arguments() -> None:
    names = {"R": R, "half": lambda v: v / 2, "known": {"dtype": np.float16}}
    text = f"{HEADER}    return R.const(list(map(half, [1, 3])), known['dtype'])\n"
    assert 'R.const([0.5, 1.5], "float16")' in from_source(text, names).script()


def test_sizes_that_no_tensor_has_are_refused() -> None:
    with pytest.raises(StructInfoError, match="at most 1024"):
        from_source(f"{HEADER}    return R.split(x, 10**9)\n")
    for rank in ("R.Tensor(ndim=10**9)", "R.Shape(ndim=10**9)", "R.DynTensorType(10**9)"):
        with pytest.raises(ParseError, match="a rank is at most 1024"):
            from_source(f"@R.function\ndef main(x: {rank}):\n    return x\n")


@pytest.mark.parametrize("display", ["{key: 0 for key in keys}", "{key for key in keys}"])
def test_keys_of_one_hash_are_refused_before_they_are_compared_with_each_other(display) -> None:
    compared = []

    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return self is other

    with pytest.raises(ParseError, match="more than 16 keys of one hash are refused"):
        from_source(f"{HEADER}    y = {display}\n", {"R": R, "keys": [Key() for _ in range(100)]})
    assert len(compared) < 17 * 17


@pytest.mark.parametrize(
    "size", ["n" + "+n" * 5000 + "+", "-" * 5000 + "n", "(" * 5000, "n" * 5000 + "+"]
)
def test_a_long_text_for_a_size_is_not_repeated_in_full(size: str) -> None:
    text = f"@R.function\ndef f(x: R.Tensor(('n',)), y: R.Tensor(({size!r},))):\n    return x\n"
    with pytest.raises(ParseError, match=r"is not an expression|is nested too deeply") as caught:
        from_source(text)
    assert len(caught.value.diagnostic.message) < 100


def test_text_that_is_not_a_string() -> None:
    with pytest.raises(ParseError, match="a program is a string, found int"):
        from_source(5)  # type: ignore[arg-type]


VALID = """
@I.ir_module
class Module:
    @T.prim_func
    def f(a: T.handle, B: T.Buffer((16, 16), "float32"), m: T.int32) -> T.float32:
        T.func_attr({"tir.noalias": True})
        n = T.int32()
        A = T.match_buffer(a, (16, n), "float32", strides=[n, 1])
        for i, j in T.grid(16, 16):
            with T.block("C"):
                vi, vj = T.axis.remap("SR", [i, j])
                T.where(i < 3)
                with T.init():
                    B[vi, vj] = T.float32("inf")
                B[vi, vj] += A[vi, vj] * T.max(B[vj, vi], 1) if vi < 3 and not vj == 2 else 0
        for r in range(1, m + 2):
            y: T.int64 = T.cast(r, "int64")
            while y > 3:
                if r == 1:
                    break
                B[r, r:r + 4] = T.broadcast(1.0, 4)
        assert m > 0, "m"
        return B[0, 0]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(ndim=2):
        n = T.int64()
        with R.dataflow():
            y = R.match_cast(x, R.Tensor((n, 4), "float32"))
            z = (y, R.shape([n, 2 * n]), [i for i in range(3)][0])
            R.output(y)
        if c:
            w = Module.main(y, c)
        else:
            w = x
        return w
"""
WORDS = [
    *("x", "n", "R", "T", "Module", "None", "True", "-1", "[]", "()", "{}", "1.5", "'a'", "*x"),
    *("lambda: 0", "R.Tensor", "T.int32", "T.int32()", "...", "range(3)", "T.grid", "slice", "1j"),
    *("not", "x[0:1]", "(x := 1)", "if x:", "else:", "2**70", "R.output(x)", "T.init()", "0", ":"),
]


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@given(st.integers(0, 2**32))
def test_damaged_programs_are_refused_or_read_but_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    words = VALID.replace("(", " ( ").replace(")", " ) ").split(" ")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        words[at] = rng.choice(["", rng.choice(WORDS), rng.choice(words), words[at] * 2])
    with suppress(RelaxpyError):
        from_source(" ".join(words), check_well_formed=False)


@given(st.text(max_size=60))
def test_any_text_is_refused_or_read(text: str) -> None:
    for whole in (text, f"{HEADER}    return {text}\n"):
        with suppress(RelaxpyError):
            from_source(whole)


def bundle(count: int) -> str:
    """A program that takes so many parameters in one tuple, and each of them out of it."""
    fields = ", ".join(f'R.Tensor(("n", "m + {k}"), "float32")' for k in range(count))
    lines = "".join(f"    y{k} = x[{k}]\n" for k in range(count))
    return (
        f'@R.function\ndef main(s: R.Shape(["n", "m"]), x: R.Tuple({fields})):\n{lines}'
        f"    return (x, {', '.join(f'y{k}' for k in range(count))})\n"
    )


def test_a_bundle_of_many_parameters_is_read() -> None:
    """Looking at a field is no work: only an operator derives fields. Names are found at once."""
    func = from_source(bundle(400))
    assert len(func.body.blocks[0].bindings) == 400
    few, many = (calls(lambda n=n: from_source(bundle(n))) for n in (50, 200))
    assert many < 5 * few


@pytest.mark.parametrize("count", [2, 400])
def test_a_long_line_is_quoted_around_the_caret(count: int) -> None:
    line = "    y = (" + "x, " * 1000 + "where, " + "é, " * count + "x)"
    with pytest.raises(ParseError) as caught:
        from_source(f"{HEADER}{line}\n    return x\n")
    _, quoted, carets, *_ = str(caught.value).split("\n")
    assert len(quoted) < MAX_LINE + 10
    assert quoted.strip().startswith("…")
    assert quoted[carets.index("^") : carets.rindex("^") + 1] == "where"


def test_positions_in_a_long_line_take_time_for_their_part_of_it_alone() -> None:
    """Bytes are turned into characters from the nearest mark, not from the beginning."""
    few, many = (
        calls(
            lambda n=n: from_source(f"{HEADER}    y = ({'x, ' * 200})  # {'é' * n}\n    return x")
        )
        for n in (10_000, 1_000_000)
    )
    assert many < few + 2_000


@pytest.mark.parametrize(
    ("text", "head", "length"),
    [
        ("a" * 200, "a" * 200, 200),
        ("a" * 201, "a" * 80 + "…" + "a" * 20, 101),
        ("found " + "b" * 10**6 + " in it", "found " + "b" * 80 + "…" + "b" * 20 + " in it", 113),
        ("ab " * 10**6, "ab " * 2666 + "ab… (2992000 more characters)", 8027),
    ],
)
def test_messages_are_clipped(text: str, head: str, length: int) -> None:
    diagnostic = Diagnostic(text, hint=text, notes=(text,))
    assert len(diagnostic.message) == length
    assert diagnostic.message == head
    assert diagnostic.hint == head
    assert diagnostic.notes == (head,)


def test_names_are_compared_with_few_and_short_ones() -> None:
    names = [f"{'name' * 20}{k}" for k in range(10_000)]
    assert nearest("name" * 20, names[:100]) != []
    assert calls(lambda: nearest("name" * 20, names)) < 100
    assert nearest("n" * 500, ["n" * 499]) == []


def test_a_text_of_many_tokens_in_strings_is_read() -> None:
    text = f"{HEADER}    y = R.str({'+/-' * 600_000!r})\n    return x\n"
    assert len(from_source(text).body.blocks[0].bindings[0].value.value) == 1_800_000


def test_namespaces_that_the_caller_forgot_are_named() -> None:
    text = "@R.function\ndef f(x: R.Tensor):\n    return x\n"
    with pytest.raises(ParseError) as caught:
        from_source(text, extra_vars={"n": 4})
    assert caught.value.diagnostic.message == "unknown name 'R'"
    assert caught.value.diagnostic.hint == (
        "extra_vars replaces I, R and T: add 'R' to it, or write from relaxpy.script "
        "import relax as R"
    )
    assert from_source("from relaxpy.script import relax as R\n" + text, extra_vars={"n": 4})


def test_braces_and_quotes_that_belong_to_no_f_string_are_not_fields() -> None:
    """Python looks for the fields of each f-string from its beginning; for others it does not."""
    text = f"{HEADER}    y = (R.str({'f{' * 90_000!r}), R.str(f'{{1}}'))\n    return x\n"
    assert "f{f{f{" in from_source(text).script()


def test_a_mark_of_the_byte_order_is_not_part_of_a_text() -> None:
    assert from_source("\ufeff" + f"{HEADER}    return x\n").params


@pytest.mark.parametrize(
    "text",
    [
        "@R.function\ndef f(x: R.Tensor, x: R.Tensor):\n    return x\n",
        "@T.prim_func\ndef f(x: T.Buffer(3), x: T.Buffer(4)):\n    x[0] = 1.0\n",
        f"@R.macro\ndef m(x, *, x):\n    return x\n{HEADER}    return m(x, x=x)\n",
        f"{HEADER}    return (lambda x, x: x)(x, x)\n",
    ],
)
def test_parameters_have_names_of_their_own(text: str) -> None:
    """Python notices when it compiles, which a text is not."""
    with pytest.raises(ParseError, match="two parameters are called 'x'") as caught:
        from_source(text, check_well_formed=False)
    span = caught.value.diagnostic.span
    line = text.split("\n")[span.line - 1]
    assert line[span.column - 1] == "x"
    assert line.index("x") < span.column - 1


@pytest.mark.parametrize(
    "call",
    ["R.sum(x, axis=0, axis=1)", "R.sum(x, axis=0, **{'axis': 1})", "R.sum(x=x, **{'x': x})"],
)
def test_an_argument_is_given_once(call: str) -> None:
    with pytest.raises(ParseError, match=r"argument '(axis|x)' is given twice"):
        from_source(f"{HEADER}    return {call}\n")


def read(text: str) -> None:
    with suppress(ParseError):
        from_source(text)


def functions(count: int) -> str:
    return "".join(f"@R.function\ndef f{k}(x: R.Tensor):\n    return x\n" for k in range(count))


def matched(count: int) -> str:
    """A kernel of so many parameters, each with its buffer."""
    params = ", ".join(f"a{k}: T.handle" for k in range(count))
    lines = "".join(f"    A{k} = T.match_buffer(a{k}, (4,))\n" for k in range(count))
    return f"@T.prim_func\ndef f({params}):\n{lines}    A0[0] = 1.0\n"


@pytest.mark.parametrize(("write", "first"), [(functions, 50), (matched, 50)])
def test_reading_takes_work_and_memory_in_proportion_to_the_text(write, first) -> None:
    def peak(text: str) -> int:
        tracemalloc.start()
        read(text)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    read(write(first))  # what is made once, is made
    texts = [write(first), write(8 * first)]
    few, many = (calls(lambda t=t: read(t)) for t in texts)
    assert many < 10 * few
    few, many = map(peak, texts)
    assert many < 10 * few


def test_each_error_looks_for_a_hint_in_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(errors: int) -> int:
        wrong = "".join(f"    y = z{k}\n" for k in range(errors))
        text = HEADER + wrong + "    y = x\n" * 3000 + "    return x\n"
        with pytest.raises(ParseError) as caught:
            from_source(text)
        assert len(caught.value.diagnostics) == errors
        return calls(lambda: read(text))

    monkeypatch.setattr(wording, "MAX_NODES_SEARCHED", 100)
    assert work(18) < work(1) + 18 * 10_000


@pytest.mark.timeout(300)
def test_every_public_name_takes_hostile_arguments() -> None:
    """In a process of little memory; `make fuzz` writes more of them."""
    names = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.fuzz.namespaces", "1", "0"]
    done = subprocess.run(command, env=names, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The operators that other tests register are not there.
    found = re.fullmatch(r"1 texts for each of (\d+) names from seed 0, 0 failures\n", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) > 600


@pytest.mark.parametrize("error", [KeyError("a"), MemoryError(), TimeoutError()])
def test_the_fuzzer_of_namespaces_would_notice(error, monkeypatch) -> None:
    def fail(text: str) -> None:
        raise error

    monkeypatch.setattr(namespaces, "from_source", fail)
    assert type(error).__name__ in (namespaces.examine("") or "")


def test_functions_of_a_module_may_be_called_as_attributes_of_python_objects_are() -> None:
    module = from_source(
        "@I.ir_module\nclass M:\n"
        "    @R.function\n    def __class__(x: R.Tensor):\n        return x\n"
        "    @R.function\n    def main(x: R.Tensor):\n        return M.__class__(x)\n"
    )
    assert module["main"].body.blocks[0].bindings[0].value.op.name_hint == "__class__"


def test_iterators_are_nested_as_deeply_as_programs_need() -> None:
    lines = (
        "z = [1, 2]\n    for i in range(80): z = map(lambda v: v + 1, z)\n    y = R.const(list(z))"
    )
    func = from_source(f"{HEADER}    {lines}\n    return y\n")
    assert func.body.body.struct_info.shape.values == (2,)


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [("z = z", "z = z"), ("if 1:\n        z = z", "z = z"), ("y = R.const(z)", "z")],
)
def test_a_value_that_is_nested_too_deeply_is_located(lines: str, quoted: str) -> None:
    text = f"{HEADER}    z = 1\n    for i in range(2000): z = [z]\n    {lines}\n    return x\n"
    with pytest.raises(ParseError, match="a value that is computed here") as caught:
        from_source(text)
    span = caught.value.diagnostic.span
    assert text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1] in (
        "z = [z]",
        quoted,
    )


def test_a_size_of_many_terms_is_simplified() -> None:
    product = "*".join(["(a + b + c + d + 1)"] * 40)
    func = from_source(
        f"@R.function\ndef f(s: R.Shape(['a', 'b', 'c', 'd']), x: R.Tensor(('{product}',))):\n"
        "    return R.reshape(x, (-1, 3))\n"
    )
    assert func.struct_info.ret.ndim == 2


def test_what_cannot_be_called_is_named() -> None:
    with pytest.raises(ParseError, match="3 cannot be called") as caught:
        from_source(f"{HEADER}    return 3(4)\n")
    assert caught.value.diagnostic.span.column == 12


def test_a_power_beyond_all_floats_is_explained_without_the_number_of_the_error() -> None:
    with pytest.raises(ParseError, match=r"3:9: Numerical result out of range"):
        from_source(f"{HEADER}    y = 2.0 ** 10 ** 30\n    return x\n")


@pytest.mark.parametrize(
    ("first", "step"),
    [
        ("T.int64(3)", "{0} * {0} * {0}"),
        ("k", "({0} * {0}) // ({1} + 1)"),
        ("k", "({0} % (({1} * {1}) + 3)) * {0}"),
        ("k", "{0} * {0} - {0} // ({0} + 1) * {1}"),
        ("k", "T.min(T.max({0}, {1}), {0} + {1}) * {0}"),
    ],
)
def test_chains_of_named_values_take_time_for_their_length(first: str, step: str) -> None:
    """Each value has two of those before: put together, the last has more than 2**30 parts."""
    lines = [f"x{i} = {step.format(f'x{i - 1}', f'x{max(i - 2, 0)}')}" for i in range(1, 32)]
    body = "\n    ".join([f"x0 = {first}", *lines, "a[0] = x31"])
    text = f"@T.prim_func\ndef f(a: T.Buffer((4,), 'int64'), k: T.int64):\n    {body}\n"
    kernel = from_source(text)
    for target in ("native", "numpy"):
        assert relaxpy.compile(relaxpy.IRModule({"f": kernel}), target) is not None
