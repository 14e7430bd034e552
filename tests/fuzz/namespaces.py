"""Random calls of every public name of I, R and T: `python -m tests.fuzz.namespaces COUNT [SEED]`.

Each is a text from a stranger, with arguments of all kinds: it is read or refused with an error of
relaxpy, within the bounds of memory and time that `tests/script/attacks.py` has. What was read is
printed and read again.
"""

from __future__ import annotations

import inspect
import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.language.wording import public_names
from tests.fuzz.progress import counted
from tests.rows import table

MEMORY = 1_500_000_000
SECONDS = 20
LONGEST = 20_000


def _pool(text: str) -> list[str]:
    """The expressions of a text, with semicolons between them."""
    return [part.strip() for part in text.split(" ;")]


def _lines(text: str) -> list[str]:
    """The statements of a text, in which `\\n` ends a line."""
    return [part.replace(r"\n", "\n") for part in _pool(text)]


NUMBERS = _pool(r"""
0 ; 1 ; -1 ; 3 ; 10**9 ; 2**31 ; 2**62 ; -2**63 ; 2**64 ; 10**1000 ; 2**4000 ; 1.5 ; -0.0 ;
1e308 ; float('inf') ; float('nan') ; True ; None
""")
STRINGS = _pool(r"""
'' ; 'a' ; 'n' ; 'n + 1' ; 'n // 0' ; '1 +' ; 'x' ; 'SR' ; 'é' ; '\x00' ; 'a b' ; '\ud800' ;
'a' * 70000 ; 'float32' ; 'bool' ; 'int8' ; 'handle' ; 'void' ; 'int0' ; 'float32x4' ; 'uint1' ;
'float99999999999' ; 'int64x99999999999999999999' ; 'global' ; 'shared' ; 'threadIdx.x' ;
'llvm' ; 'cuda:99999999999' ; 'NCHW' ; 'NCHW16c' ; '{}' ; 'constant' ; 'tir.abs' ; 'relax.add' ;
'bfloat16' ; 'float8_e4m3fn' ; '__class__'
""")
CONTAINERS = _pool(r"""
[] ; () ; {} ; [[]] ; [0] ; [-1] ; (1, 2) ; [0, 0] ; [1] * 3000 ; [10**9] * 64 ; [2**40, 2**40] ;
[1.5, 'a', None] ; [[1, 2], [3]] ; {'a': 1} ; {1: 2} ; {'a': {'b': []}} ; {1, 2} ; range(3) ;
range(10**12) ; slice(0, 3) ; enumerate([1]) ; zip([1], [2]) ; map(lambda a: a, [1]) ;
reversed([1]) ; [[[[[[[[0]]]]]]]] ; ['a', 'b'] ; [True, False] ; (None, None) ; [range(3)] ;
{'a': range(10**12)} ; [lambda: 0] ; {'a': lambda: 0}
""")
FUNCTIONS = _pool(r"""
lambda: 0 ; lambda a: a ; lambda a, b: a + b ; lambda a, b: (b, a) ; lambda a: a // 0 ;
lambda i, j: [i, j] ; lambda a: [a] * 3000 ; lambda a: nothing ; int ; len ; isinstance ; max ;
R ; T ; I ; R.function ; R.Tensor ; R.nn ; T.prim_func ; T.axis ; R.macro ; T.int32 ; T.handle ;
T.Buffer ; R.add ; T.exp ; R.Object ; I.ir_module ; T.block
""")
SCALARS = _pool(r"""
T.int32(3) ; T.int64(2**40) ; T.float32(1) ; T.bool(True) ; T.int8(1) ; T.float16(2) ;
T.int32(0) ; T.uint64(7) ; T.float32('nan') ; T.Var('v', 'int64') ; T.int32() ;
T.Broadcast(1, 4) ; T.Ramp(0, 1, 4) ; T.StringImm('a') ; T.handle() ; T.min(3, 4)
""")
GRAPHS = _pool(r"""
x ; y ; s ; p ; t ; n ; n + 1 ; n // 0 ; n - n ; (x, y) ; [x, y] ; x[0] ; t[0] ;
R.Tensor((3,), 'int8') ; R.Tensor((n,)) ; R.Tensor(ndim=2) ; R.Shape([n]) ; R.Tuple() ;
R.shape([n, 4]) ; R.shape([]) ; R.const(1) ; R.const([1.5]) ; R.prim_value(n) ; main ;
R.str('a') ; R.Prim('int64') ; R.Callable() ; R.dtype('int8') ; R.ExternFunc('f') ;
R.dataflow() ; {'a': x} ; [x] * 300 ; R.zeros((3,), 'int8') ; R.emit(x) ; R.tuple() ;
x.struct_info ; lambda a: R.exp(a) ; R.Tensor((n, 4), 'float32') ; I.vdevice('cuda')
""")
KERNELS = _pool(r"""
A ; B ; A[0] ; A[0:4] ; A[i] ; B[i + m] ; i ; m ; h ; m // 0 ; A.data ; C ; C[0] ; A[10**9] ;
A[-1] ; A[i:i] ; T.Buffer((3,)) ; T.Buffer((m,), 'int8') ; T.match_buffer ; T.grid(2, 3) ;
T.serial(3) ; T.axis.spatial(3, i) ; i < m ; T.Cast('int8', m) ; T.init() ;
T.iter_var(m, (0, 4), 'S', '') ; T.reads(A[0]) ; T.env_thread('threadIdx.x') ; lambda a: A[a] ;
T.min_value('int8') ; [A, B] ; A[0:4] + 1 ; B[0] // B[0] ; (0, 8) ; T.address_of(A[0]) ;
T.comm_reducer(lambda a, b: a + b, [T.float32(0)]) ; T.index_map(lambda a: a) ; T.evaluate(0)
""")
GRAPH = """
@R.function{options}
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((3, 4), "int8"), s: R.Shape(["n", 4]),
         p: R.Prim("int64"), t: R.Tuple(R.Tensor((3,)), R.Object)):
    n = T.int64()
{lines}
    return x
"""
KERNEL = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), h: T.handle, m: T.int32):
    C = T.match_buffer(h, (m, 4), "float16")
    for i in T.serial(8):
{lines}
"""
MODULE = """
@I.ir_module
class M:
    {line}
    @R.function
    def main(x: R.Tensor):
        return x
"""
#: What is done with a call, as lines of a graph function, a kernel, or something else.
IN_GRAPHS = _lines(r"""
y = {} ; {} ; {}; {} ; y: {} = x ; y = R.match_cast(x, {}) ; return {} ; x = x + {} ;
with {}:\n    y = R.exp(x) ; with {} as z:\n    y = z ; if {}:\n    y = x\nelse:\n    y = x ;
for z in {}:\n    y = z ; y = ({}).struct_info ; y = ({})[0] ; y, z = {} ; y = -{} ;
with R.dataflow():\n    y = {}\n    R.output(y) ; y = {} == {} ; y = [*{}] ; y = f'{{{}}}' ;
y = isinstance({}, int) ; y = {{{}: 1}} ; y = str({}) ; y = sorted([{}, {}]) ; y = {}(x)
""")
IN_KERNELS = _lines(r"""
{} ; A[i] = {} ; A[{}] = 1 ; z = {} ; z: {} = 1 ; z: T.int32 = {} ; with {}:\n    A[i] = 1 ;
with {} as z:\n    A[i] = 1 ; for z in {}:\n    A[i] = 1 ; if {}:\n    A[i] = 1 ; A[i] += {} ;
while {}:\n    A[i] = 1 ; assert {}, 'a' ; z, w = {} ; T.evaluate({}) ; A[i] = ({})[0] ;
with T.block('b'):\n    {}\n    A[i] = 1 ; with T.block('b'):\n    z = {}\n    A[z] = 1 ;
T.where({}) ; return {} ; z = {}\nA[i] = z[0] ; z = ({}) == ({}) ; z = [*{}] ; z = ({}).dtype ;
with T.block('b'):\n    z = T.axis.spatial({}, i)\n    A[z] = 1 ; z = T.meta_var({}) ; z = {}(i)
""")
OTHERS = [
    "@R.function\ndef f(x: {}):\n    return x\n",
    "@R.function\ndef f(x: R.Tensor) -> {}:\n    return x\n",
    "@T.prim_func\ndef f(x: {}):\n    x[0] = 1\n",
    "@T.prim_func\ndef f(x: T.Buffer(4)) -> {}:\n    return 1\n",
    "@{}\ndef f(x: R.Tensor):\n    return x\n",
    "@{}\nclass M:\n    @R.function\n    def f(x: R.Tensor):\n        return x\n",
    MODULE.replace("{line}", "{}"),
    MODULE.replace("{line}", "z = {}"),
    "metadata = {}\n" + GRAPH.format(options="", lines="    y = metadata['a'][0]"),
]


def public(space: object, name: str, seen: set[int]) -> Iterator[str]:
    """Every name that a text may use in a namespace, and in those in it."""
    if id(space) in seen:
        return
    seen.add(id(space))
    for part in sorted({*getattr(space, "__all__", ()), *public_names(space)}):
        yield f"{name}.{part}"
        found = getattr(space, part)
        if hasattr(found, "__all__") or hasattr(found, "_public_names"):
            yield from public(found, f"{name}.{part}", seen)


NAMES = [
    name for space, short in ((R, "R"), (T, "T"), (I, "I")) for name in public(space, short, set())
]
KEYWORDS = _pool("""
axis ; axes ; dtype ; shape ; name ; value ; out_sinfo ; scope ; annotations ; data ; strides ;
elem_offset ; attrs ; layout ; keepdims ; begin ; end ; thread ; key ; pure
""")
#: What parameters of these names may take.
FITTING = table("""
dtype out_dtype : 'float32' ; 'int8' ; 'bool' ; 'float16' ; T.int32 ; 'float32x4' ; ''
shape extents size fields : [n, 4] ; (3,) ; [] ; (m, 2) ; [2**40] ; R.shape([n]) ; s
strides indices axes begin end placement : [0] ; [1, 0] ; [m] ; (-1,) ; [] ; [[0], 1]
axis ndim lanes index stop start step offset bitwidth align : 0 ; -1 ; 1 ; 4 ; [0, 1] ; m
func function combiner f mapping lambda : lambda a: a ; lambda a, b: a + b ; lambda *a: a
annotations attrs options infos : {} ; {'a': 1} ; {'a': [1, 'b']} ; {'pragma_x': m}
name scope thread thread_tag storage_scope kinds : 'a' ; 'shared' ; 'threadIdx.x' ; 'SR'
args tensors values tuple_value : (x, y) ; [x] ; x ; R.tuple(x) ; [A[0], m] ; t ; []
out_sinfo sinfo_args struct_info : R.Tensor((n, 4), 'float32') ; [R.Object] ; R.Tuple()
""")
FITS = {word: _pool(found) for words, found in FITTING for word in words.split()}


def taken(name: str) -> list[str]:
    """The names of the parameters of what a name means."""
    found: object = {"R": R, "T": T, "I": I}[name[0]]
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    try:
        return list(inspect.signature(found).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []


class Writer:
    """Writes random texts."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def argument(self, own: list[str], depth: int) -> str:
        """Any expression."""
        rng = self.rng
        if depth and rng.random() < 0.15:
            return self.call(rng.choice(NAMES), own, depth - 1)
        kinds = (NUMBERS, STRINGS, CONTAINERS, FUNCTIONS, SCALARS, own, own, own)
        found = rng.choice(rng.choice(kinds))
        return f"({found})" if found.startswith("lambda") else found

    def call(self, name: str, own: list[str], depth: int = 2) -> str:
        """A call of the name, mostly, with up to five arguments."""
        rng = self.rng
        if rng.random() < 0.05:
            return name
        if rng.random() < 0.05:
            return f"{name}[{self.argument(own, depth)}]"
        names = taken(name)
        count = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))
        if rng.random() < 0.7:
            count = min(count, len(names))
        names += [""] * (count - len(names))
        given = [
            rng.choice(FITS[known])
            if known in FITS and rng.random() < 0.7
            else rng.choice(own)
            if rng.random() < 0.4
            else self.argument(own, depth)
            for known in names[:count]
        ]
        if rng.random() < 0.25:
            given.append(f"{rng.choice([*names, *KEYWORDS]) or 'a'}={self.argument(own, depth)}")
        return f"{name}({', '.join(given)})"

    def text(self, name: str) -> str:
        """A program that uses the name once or twice."""
        rng = self.rng
        where = rng.choice("gggkkko")
        own = KERNELS if where == "k" else GRAPHS
        frame = rng.choice({"g": IN_GRAPHS, "k": IN_KERNELS, "o": OTHERS}[where])
        blanks = frame.count("{}")
        filled = frame.format(*(self.call(name, own) for _ in range(blanks)))
        if where == "o":
            return filled
        indent = " " * (8 if where == "k" else 4)
        lines = "\n".join(indent + line for line in filled.split("\n"))
        if where == "k":
            return KERNEL.format(lines=lines)
        return GRAPH.format(lines=lines, options=rng.choice(("", "(pure=False)")))


def examine(text: str) -> str | None:
    """What is wrong with how a text is read, if anything."""
    try:
        found = from_source(text)
    except RelaxpyError as error:
        length = len(str(error))
        return None if length < LONGEST else f"a message of {length} characters"
    except BaseException:
        return traceback.format_exc(limit=-4)
    try:
        if hasattr(found, "script"):
            from_source(found.script(), check_well_formed=False)
    except BaseException:
        return f"read again, {found.script()}\n{traceback.format_exc(limit=-4)}"
    return None


def limited() -> None:
    """Let this process take no more than MEMORY beyond what it has."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    signal.signal(signal.SIGVTALRM, late)


def run(seeds: Iterator[str]) -> int:
    """Read a text for each name and seed, and print what is wrong; how many those are."""
    warnings.simplefilter("ignore")
    limited()
    wrong = 0
    for seed in seeds:
        for name in NAMES:
            text = Writer(random.Random(f"{seed} {name}")).text(name)
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            found = examine(text)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if found is not None:
                wrong += 1
                print(f"--- {seed} {name}\n{text}\n{found}", flush=True)
    return wrong


def main(count: int = 1, seed: str = "0") -> int:
    """Read `count` texts for each name; how many were wrong."""
    wrong = run(f"{seed}.{k}" for k in counted(count, "texts for each name"))
    print(f"{count} texts for each of {len(NAMES)} names from seed {seed}, {wrong} failures")
    return wrong


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(int(arguments[0]) if arguments else 1, *arguments[1:2]) > 0)
