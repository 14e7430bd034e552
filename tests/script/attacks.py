"""Attacks on `from_source`: each text with the reason for which it is refused.

Run as a program with two numbers, it reads the attacks between them with little memory and time and
prints what came of each; a text that calls what it must not, leaves a file in the working
directory. A third number divides the limits on tokens and steps, and the memory and time of texts
that reach the latter: the same work is counted, and each step is as expensive.
"""

import json
import resource
import signal
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from relaxpy import IRModule
from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.budget import MAX_STEPS, MAX_TOKENS, Budget
from relaxpy.script import from_source, relax as R, tir as T
from relaxpy.script.parser import source
from relaxpy.script.parser.evaluate import guard

#: Bytes beyond what the interpreter takes with everything imported, and seconds for one text.
MEMORY = 2_000_000_000
SECONDS = 60

HEADER = '@R.function\ndef main(x: R.Tensor(("n", 4), "float32")):\n'
FUNCTION = "@R.function\ndef f(x: R.Tensor):\n    return x\n"


class Attack(NamedTuple):
    text: str
    reason: str
    handed_in: bool = False


def body(lines: str) -> str:
    """A function around these lines."""
    return HEADER + "".join(f"    {line}\n" for line in lines.split("\n")) + "    return x\n"


def handed_in() -> dict[str, Any]:
    """What a caller may hand in: a container of what nobody is to call, and harmless functions."""

    def tool(*args: object, **kwargs: object) -> None:
        Path("called").write_text(repr(args))

    class Proxy:
        """Answers to every attribute, as clients of remote objects do."""

        def __getattr__(self, name: str) -> object:
            return tool

        def __call__(self, *args: object) -> None:
            tool(*args)

    return {
        "R": R,
        "T": T,
        "tools": [tool, Path, Proxy(), print],
        "module": IRModule(),
        "half": lambda v: v / 2,
    }


UNDERSCORES = "attributes beginning with an underscore are refused in text"
UNUSABLE = "cannot be used in text"
UNREACHABLE = "text can call only functions of I, R, T and extra_vars"
BUILT_IN = "is not available inside a program"
STEPS = "parsing the text takes more than 3000000 steps"
BITS = "an integer of more than 4096 bits is refused in text"
MEMBERS = "more than 100000 members are refused in text"
TOKENS = "the text has more than 1000000 tokens"
FIELDS = "f-strings of too many fields"
UNROLLED = "unroll to more than 50000 statements"
DEEP = "nested too deeply"
NO_MEMBERS = "only a tuple whose fields are known can be iterated over"
HASHES = "more than 16 keys of one hash are refused"
KEYS = "more than 10000 keys are refused in text"
NO_INFO = "an annotation is a struct info such as R.Tensor"
LARGE = "is too large to work with"
ITERATORS = "iterators nested more than 90 deep are refused"
SLICES = "the bounds of a slice are numbers, found a slice"
TOO_DEEP = "a value that is computed here is nested too deeply"

#: Expressions that reach for more than the language, by the reason of their refusal.
REACHING = {
    UNDERSCORES: [
        "x.__class__.__base__.__subclasses__()",
        "(1).__class__",
        "''.__class__.__mro__",
        "R.__builtins__",
        "R.__dict__",
        "R._words",
        "T._ops",
        "I._forms",
        "R.shape_of._function.__globals__",
        "R.function.__call__",
        "T.Add.__mro__",
        "T.Add._make",
        "f'{x.__class__}'",
        "(lambda f: f.__globals__)(lambda: 0)",
        "[c for c in ().__class__.__bases__]",
        "R.emit_te(R.call_packed.__wrapped__, x)",
        "R.DynTensorType.__wrapped__",
        "R.RuntimeDepShape.__call__",
    ],
    UNUSABLE: [
        "R.shape_of.infer",
        "R.shape_of.op.set_attr('FPurity', True)",
        "R.Tensor.to_struct_info",
        "R.Tensor((4,)).shape",
        "x.span.source.text",
        "x.struct_info.key",
        "x.script()",
        "'{0.__class__}'.format(x)",
        "max([x], key=x.script)",
        "R.macro.dialect",
        "R.DynTensorType.takes_arguments",
        "I.vdevice('cuda').target",
        "(lambda v: v).node",
        "(lambda v: v).scope",
    ],
    "getattr takes the name of a public attribute": ["getattr(x, '__class__')"],
    BUILT_IN: [
        "open('/etc/passwd')",
        "eval('1')",
        "exec('1')",
        "compile('1', '', 'eval')",
        "globals()",
        "vars(x)",
        "type(x)",
        "input()",
        "breakpoint()",
        "R.emit_te(open, x)",
    ],
    "names beginning with two underscores are refused in text": ["__import__('os').system('true')"],
    "R has no attribute 'annotations'": ["R.annotations"],
    "T has no attribute 'Any'": ["T.Any"],
    "only numbers, strings and scalar expressions go into an f-string": ["f'{x!r}'"],
    "a macro decorates a function, found a lambda": ["R.macro(lambda v: v)"],
    "R.function decorates a function, found lambda": ["R.function(lambda v: v)"],
    "T.prim_func decorates a function, found lambda": ["T.prim_func(lambda v: v)"],
    "only values can be indexed in text": ["list[4]"],
}

#: Lines that would take much time or memory.
WORK = {
    STEPS: [
        "y = 'a' * 10**10",
        "y = [0] * 10**10",
        "y = list(range(10**12))",
        "y = sum(range(10**12))",
        "y = sum(range(10**30))",
        "y = 1.5 in range(10**12)",
        "y = R.const(range(10**9))",
        "y = R.const([[range(10**9)]])",
        "y = R.const(shape=range(10**9), value=1)",
        "y = R.device_mesh((2,), range(10**12))",
        "y = T.allocate_const(range(10**10), 'int32', [4])",
        "y = R.call_packed('f', x, key=range(10**12))",
        "y = (lambda v: v)(range(10**12))",
        "y = list(map(list, [range(10**12)]))",
        "y = list(map(R.const, [range(10**12)]))",
        "y = sorted([range(10**12)], key=list)",
        "y = max([range(10**12), range(3)], key=sum)",
        "y = list(filter(list, [range(10**12)]))",
        "y = list(map(R.const, enumerate([range(10**12)])))",
        "y = list(enumerate(map(lambda v: 'a' * 300000 + 'b', range(100000))))",
        "s = 'a' * 300000\ny = str([s] * 100000)",
        "s = 'a' * 300000\ny = R.const({s: [s] * 100000})",
        "a = [0] * 100000\n" + "y = max(a)\n" * 40,
        "a = [0] * 100000\n" + "y = a == a\n" * 40,
        "b = [[0] * 300] * 300\nc = [[0] * 300] * 300\n" + "y = b == c\n" * 40,
        "y = [R.split(x, [0] * 1000) for i in range(1000)]",
        "y = max(*range(10**8))",
        "y = sum(zip(range(160_000)), ())",
        "y = sum([[1]] * 49_000, [])\n" * 10,
        "y = sum([(1,)] * 49_000, ())",
        "y = (lambda f, n: f(f, n))(lambda f, n: 0 if n == 0 else f(f, n - 1) + f(f, n - 1), 40)",
        "y = [i for i in range(10**12)]",
        "y = [[[0] * 100000 for i in range(100000)] for j in range(1000)]",
        "y: Annotated[R.Tensor, range(10**12)] = x",
        "y = R.zeros([T.int64()] * 20000, 'float32')\nz = R.reshape(y, (-1,))",
        "n = T.int64()\ny = R.reshape(x, [n] * 20000)",
        "y = (lambda t: [R.call_packed('f', t, sinfo_args=R.Tensor) for i in range(90000)])("
        + "(lambda t: R.tuple(t, t))(" * 15
        + "x"
        + ")" * 16,
        "y = (lambda t: [R.match_cast(x, t) for i in range(90000)])("
        + "(lambda t: R.Tuple(t, t))(" * 15
        + "R.Tensor"
        + ")" * 16,
    ],
    ITERATORS: [
        "z = enumerate([1])\nfor i in range(400): z = enumerate(z)\ny = list(z)",
        "z = enumerate([1])\nfor i in range(400): z = enumerate(iterable=z)",
        "z = zip([1])\nfor i in range(400): z = zip([1], z)",
        "z = map(lambda v: v, [1])\nfor i in range(400): z = map(lambda v: v, z)",
        "z = filter(None, [1])\nfor i in range(400): z = filter(None, z)",
        "z = zip([1])\nfor i in range(400): z = (lambda v: enumerate(v))(z)",
    ],
    SLICES: ["z = slice(1)\nfor i in range(400): z = " + "slice(" * 20 + "z" + ")" * 20],
    TOO_DEEP: [
        "z = [1]\nfor i in range(2000): z = [z]\ny = R.const(z)",
        "z = (1,)\nfor i in range(2000): z = (z,)",
    ],
    BITS: [
        "y = 10 ** 10 ** 10",
        "y = 2 ** -(10 ** 5)\nz = 9 ** 9 ** 9",
        "y = 1 << 10**10",
        "y = int('f' * 100000, 16)",
        "y = 0x" + "f" * 10_000_000,
    ],
    MEMBERS: [
        "a = [0]\n" + "\n".join("a = ['', *a, *a]" for _ in range(40)),
        "a = ['']\n" + "\n".join("a = [a, a]" for _ in range(60)) + "\ny = str(a)",
    ],
    HASHES: [
        "y = {i * (2**61 - 1) for i in range(9000)}",
        "y = {i * (2**61 - 1): 0 for i in range(9000)}",
        "y = set([i * (2**61 - 1) for i in range(9000)])",
        "y = set(map(lambda i: i * (2**61 - 1), range(9000)))",
        "y = dict([(i * (2**61 - 1), 0) for i in range(9000)])",
        "y = dict(zip([i * (2**61 - 1) for i in range(9000)], range(9000)))",
        "y = {(1, i * (2**61 - 1)) for i in range(9000)}",
        "a = [{i * (2**61 - 1) for i in range(10 * k, 10 * k + 10)} for k in range(3)]\n"
        "y = a[0] | a[1] | a[2]",
        "y = {" + ", ".join(f"{i * (2**61 - 1)}: 0" for i in range(90)) + "}",
    ],
    KEYS: ["y = {i for i in range(20000)}", "y = {2**18 * i: 0 for i in range(20000)}"],
    UNROLLED: [
        "for i in range(10**12): x = R.exp(x)",
        "for i in range(40000):\n    for j in range(40000): pass",
        "for i in [0] * 99999: pass",
    ],
    DEEP: [
        "y = (lambda f: f(f))(lambda f: f(f))",
        "y = " + "-" * 5000 + "1",
        "y = x" + ".a" * 20000,
        "y = R.shape(" + "+".join(["1"] * 50000) + ")",
    ],
    "nested more than 90 levels deep": ["y = " + "-" * 900 + "1"],
    "too many nested parentheses": ["y = " + "(" * 1000 + "1" + ")" * 1000],
    NO_MEMBERS: ["y = list(x)", "y = [i for i in x]", "y = R.tuple(*x)", "y = [*zip(x, x)]"],
    "in is not defined between 3 and Var 'x'": ["y = 3 in x"],
    LARGE: [
        "y = (x, x)\n" + "\n".join("y = (y, y)" for _ in range(60)),
        "y: " + "(lambda t: R.Tuple(t, t))(" * 60 + "R.Object" + ")" * 60 + " = x",
        "y: " + "(lambda t: R.Callable((t,), t))(" * 60 + "R.Object" + ")" * 60 + " = x",
    ],
    "an expression of more than 100000 nodes is refused in text": [
        "n = T.int64()\ny = (lambda f: " + "f(" * 40 + "n" + ")" * 40 + ")(lambda v: v + v)"
    ],
    "rounding to this number of digits is refused in text": [
        "y = round(5, -(10**9))",
        "y = round(5, ndigits=-(10**9))",
    ],
    "is refused in text": ["y = f'{1:1000000000}'", "y = f'{1:.999999999f}'"],
    "formatting with % is refused in text": ["y = '%1000000000d' % 1"],
    "Exceeds the limit (4300 digits)": ["y = int('9' * 5000)", "y = " + "9" * 10_000_000],
    "these cannot be members of a set": ["y = {[1]}", "y = {[i] for i in range(3)}"],
    "a list cannot be a key": ["y = {[i]: i for i in range(3)}"],
    "unknown name": ["y = " + "a" * 10_000_000, "y = 'a' + " + "é" * 3_000_000],
}

#: Lines that call what only stands inside of what was handed in.
CALLING = [
    "y = tools[0]('x')",
    "y = tools[2]('x')",
    "y = tools[3]('x')",
    "y = R.const(list(map(tools[0], [1])))",
    "y = R.const(sorted([1, 2], key=tools[0]))",
    "y = R.const(max(*[1, 2], **{'key': tools[0]}))",
    "y = list(filter(tools[2], [1]))",
    "z = T.index_map(tools[0])",
    "z = T.comm_reducer(tools[0], [T.float32(0)])",
    "y = R.emit_te(tools[0], x)",
    "y = R.const(list(map(tools[1], [1])))",
    "y = R.const(list(map(module, [1])))",
    "y = R.call_packed('f', x, key=tools[0])",
    "y = (lambda f: f(1))(tools[0])",
    "for f in tools:\n    y = f(1)",
    "a, *b = tools\ny = a('x')",
]

#: Texts that are no programs.
TEXTS = {
    "the text defines no function and no module": ["", " ", "\t\n"],
    "the text is not valid Python": ["\x00", "def f(:", "\ud800", "(" * 100000, "'" * 3],
    "a text imports nothing but the namespaces": [
        f"{line}\n{FUNCTION}"
        for line in (
            "import os",
            "from os import path",
            "from relaxpy.script import tir as T, os",
            "from relaxpy.script.parser import decorate",
            "from relaxpy import script",
            "from .script import tir",
        )
    ],
    "a text consists of functions and classes with decorators": [
        f"{line}\n{FUNCTION}" for line in ("print('hello')", "x = 1", "for i in range(3): pass")
    ],
    "a class in a text is decorated with @I.ir_module": [f"class A: pass\n{FUNCTION}"],
    "is not available inside a program": [
        FUNCTION.replace("R.function", "R.function(pure=open('/etc/passwd'))"),
        FUNCTION.replace("R.Tensor", "open('/etc/passwd')"),
        "@I.ir_module\nclass M:\n    y = open('/etc/passwd')\n",
        "@I.ir_module(metaclass=open('/etc/passwd'))\nclass M:\n    pass\n",
    ],
    UNDERSCORES: [FUNCTION.replace("R.Tensor", "R.Tensor(('n.__class__', 'n'))")],
    "names beginning with two underscores are refused in text": [
        FUNCTION.replace("R.function", "__import__('os').system('true')")
    ],
    "parameters of a function have no defaults": [
        FUNCTION.replace("R.Tensor", "R.Tensor = open('/etc/passwd')")
    ],
    NO_INFO: [
        "from typing import Annotated\n" + FUNCTION.replace("R.Tensor", f"Annotated[{given}]")
        for given in ("list, 3", "dict, 1", "R.function, 1", "T.int32, 3", "(lambda v: v), 3")
    ],
    STEPS: [
        "from typing import Annotated\n"
        + FUNCTION.replace("R.Tensor", "Annotated[list, range(10**10)]"),
        "@R.function\ndef f(x: R.Tuple(*[R.Tensor((4,))] * 50000)):\n"
        "    y = [R.concat(x) for i in range(90000)]\n    return x\n",
        *(
            "@R.function\ndef f(x: R.Tensor(tuple(f'n{i}' for i in range(1000)), 'float32')):\n"
            f"    y = [{call} for i in range(90000)]\n    return x\n"
            for call in ("R.add(x, x)", "x + x", "sum([x] * 900)", "R.reshape(x, (-1,))")
        ),
        FUNCTION.replace("R.Tensor", f"R.Tensor(('n', *['n if 1 else ({'1,' * 49_000})'] * 50))"),
    ],
    LARGE: [FUNCTION.replace("R.Tensor", "R.Tuple(*[R.Tensor(('n',) * 1000)] * 1000)")],
    "shape variable 'open' is bound nowhere": [
        FUNCTION.replace("R.Tensor", "R.Tensor(('open(1)',))")
    ],
    "characters, more than 100000 are not read": [
        FUNCTION.replace("R.Tensor", "R.Tensor(('1,' * 500000,))")
    ],
    FIELDS: [
        body("y = f'" + "{1}" * 300_000 + "'"),
        body("y = f'" + "a" * 15_000_000 + "{1}" * 2000 + "'"),
        FUNCTION.replace("R.Tensor", "R.Tensor((\"f'" + "{1}" * 30_000 + "'\",))"),
    ],
    TOKENS: [
        body("y = [" + "1," * 7_900_000 + "]"),
        body("y = f'{[" + "1," * 7_900_000 + "]}'"),
        "x\n" * 7_000_000,
        "\n" * 15_000_000,
        body("y = " + "-" * 15_000_000 + "1"),
    ],
    "the text has 16000001 characters": [" " * 16_000_001],
}


def attacks() -> Iterator[Attack]:
    """All of them."""
    for reason, expressions in REACHING.items():
        yield from (Attack(body(f"y = {e}"), reason) for e in expressions)
    for reason, works in WORK.items():
        for lines in works:
            start = "from typing import Annotated\n" if "Annotated" in lines else ""
            yield Attack(start + body(lines), reason)
    for reason, texts in TEXTS.items():
        yield from (Attack(text, reason) for text in texts)
    for lines in CALLING:
        yield Attack(body(lines), UNREACHABLE, handed_in=True)
    annotated = "from typing import Annotated\n" + FUNCTION
    for given in ("tools[0], 'touch called'", "tools[1], 'called'", "half, 1"):
        text = annotated.replace("R.Tensor", f"Annotated[{given}]")
        yield Attack(text, NO_INFO, handed_in=True)
    yield Attack(body("y = module.script()"), UNUSABLE, handed_in=True)
    yield Attack(body("y = tools[2].run(1)"), UNUSABLE, handed_in=True)


def outcome(attack: Attack) -> tuple[str, str, int]:
    """How reading ends: the class of the error, its first message, and how long its text is."""
    try:
        from_source(attack.text, handed_in() if attack.handed_in else None)
    except RelaxpyError as error:
        return type(error).__name__, error.diagnostic.message, len(str(error))
    except (Exception, MemoryError) as error:
        return type(error).__name__, str(error)[:200], 0
    return "", "", 0


def limited(attack: Attack, divisor: int) -> tuple[str, str, int]:
    """What comes of an attack within the limits, those on its steps and tokens divided."""
    parts = divisor if attack.reason == STEPS else 1
    source.MAX_TOKENS = MAX_TOKENS // (divisor if attack.reason == TOKENS else 1)
    guard.MAX_STEPS = MAX_STEPS // parts
    guard.Budget = partial(Budget, steps=guard.MAX_STEPS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY // parts, most))
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS / parts)
    kind, message, length = outcome(attack)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return kind, message.replace(f"{source.MAX_TOKENS} tokens", f"{MAX_TOKENS} tokens"), length


def main(first: int, last: int, divisor: int) -> None:
    """Read those between `first` and `last` within the limits."""

    def late(*_: object) -> None:
        raise TimeoutError("not read in time")

    signal.signal(signal.SIGVTALRM, late)
    for attack in islice(attacks(), first, last):
        print(json.dumps(limited(attack, divisor)), flush=True)
    print(json.dumps(("called", str(Path("called").exists()), 0)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
