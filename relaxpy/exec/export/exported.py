"""Makes an exported program of a module: its functions without Python, or all that prevents it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from typing_extensions import override

from relaxpy import __version__
from relaxpy.errors import CompileError, MisuseError, close_names
from relaxpy.exec.api.lowered import dynamic_programs
from relaxpy.exec.export.c_types import declaration
from relaxpy.exec.export.cpu import emit_cpu, public_attributes
from relaxpy.exec.export.entries import FunctionEmitter, emit_texts
from relaxpy.exec.export.prepare import prepared
from relaxpy.exec.export.table import (
    HEADER_BYTES,
    SUFFIXES,
    THREADS,
    ExportedConstant,
    ExportedFunction,
    ExportedProgram,
    ExportedTensor,
    raw_bytes,
    shared_names,
)
from relaxpy.exec.machine.fast_paths import LENIENT_TESTS, OUTLINING, PACKED_CALLS
from relaxpy.exec.machine.platforms import LINE_BYTES, WEB
from relaxpy.exec.native.calls.entry import Anything, leaves_of
from relaxpy.exec.native.calls.jit import PartsAhead
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.machine_code.machine import Machine, current, generating_for
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.trees.program import KernelProgram, program_of
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.native.values.failures import FailureTable
from relaxpy.exec.program.graph.emit_region import workspace_bytes
from relaxpy.exec.program.graph.largest import largest
from relaxpy.exec.program.graph.program import (
    Assertion,
    Check,
    Constant,
    ExternCall,
    Graph,
    KernelCall,
    Passed,
    RecursiveCall,
    Step,
    Tensor,
    tensors_of,
)
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.exec.program.lower.python_module import ModuleLowering, lower_module
from relaxpy.exec.program.memory import Memory
from relaxpy.exec.runtime.checks import Signature, public_signatures
from relaxpy.exec.runtime.dynamic import dynamic_calls, operator_name
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.traverse import leaves, occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.passes.legalize import is_known
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.ops import floordiv, maximum
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.exec.numpy.compiler import Kernel

_UNKNOWN: Final = "a kernel gets sizes that do not fit its parameters, or that are too large"
"""The text of status 1."""
_LONGEST_NAME: Final = 60


def exported_program(
    module: IRModule,
    machine: Machine,
    name: str,
    *,
    weights_inside: bool = True,
    externs: Sequence[str] = (),
) -> ExportedProgram:
    """The exported form of a module, after all passes, for a machine.

    The packed functions `externs` are functions of C, which the caller defines.

    Errors:
        CompileError: a public function needs Python, or has no native form; all reasons are listed.
    """
    with generating_for(machine), LENIENT_TESTS.off(), OUTLINING.off(), PACKED_CALLS.off():
        return _Exporter(prepared(module), name, weights_inside, externs).program()


def _cpu(machine: Machine) -> str:
    """The instructions that code for a machine uses, for people."""
    present = (name[1:] for name in machine.features.split(",") if name[:1] == "+")
    return " ".join(sorted(set(present) - {machine.platform.features[1:]}))


def _definition(name: str, header: bytes, size: int) -> str:
    """The weights in LLVM IR: their header, and zeros, which the constants replace in an object."""
    rest = size - len(header)
    types = f"[{len(header)} x i8], [{rest} x i8]"
    types = f"<{{ {types} }}>"
    begin = header.hex("\\")
    values = f'[{len(header)} x i8] c"\\{begin}", [{rest} x i8] zeroinitializer'
    kind = "internal constant"
    return f"@{name}_weights = {kind} {types} <{{ {values} }}>, align {LINE_BYTES}"


class _Together(PartsAhead):
    """Parts of a module that are not compiled before the module is whole."""

    @override
    def add(self, module: Module, names: Sequence[str]) -> None:
        """Leave the functions to the whole."""


class ErrorTable(FailureTable):
    """The texts of errors by number, from 1 on; later ones may be withdrawn."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Any] = [_UNKNOWN]

    @override
    def add(self, kernel: str, func: PrimFunc, obligation: Obligation) -> int:
        """The number of an obligation of a kernel."""
        buffer = obligation.buffer
        if buffer is not None:
            text = f"an index is outside dimension {obligation.dimension} of buffer {buffer.name}"
        else:
            text = obligation.message if obligation.message is not None else "division by zero"
        span = obligation.span or func.span
        where = f" ({os.path.basename(span.file)}:{span.line})" if span is not None else ""
        return self.add_text(f"{kernel}: {text}{where}")

    def add_text(self, text: str) -> int:
        """The number of an error with this text."""
        self.entries.append(text)
        return len(self.entries)


class ExportBackend(GraphBackend):
    """Compiles the kernels of a module, and reads its functions, for callers without Python."""

    runs_once = True

    def __init__(self, externs: Sequence[str] = ()) -> None:
        super().__init__()
        self.externs = externs
        machine = current()
        self.module = machine.module(is_exported=True)
        self.errors = self.failures = ErrorTable()
        self._ahead = _Together()
        self.kernels: dict[KernelCall, str] = {}
        """The functions of the calls of kernels."""
        self.read_functions: dict[str, Graph] = {}
        """The functions that have a native form, by name."""

    @override
    def _program(self, kernel: Kernel, *, is_short: bool = False) -> KernelProgram:
        """The native program of a kernel, however slow it is: nothing else runs it."""
        from relaxpy.exec.native.price import check_constructs

        check_constructs(kernel.plan)
        return program_of(kernel.plan, is_short=is_short)

    @override
    def compile_graph(self, context: ModuleLowering, func: rx.Function, name: str) -> bool:
        """Read a Relax function; return whether it has a native form."""
        try:
            with self.faults_refused(f"{name} cannot be native code", f"{name} is not exported"):
                graph = self.read(context, func)
                if any(isinstance(leaf, Anything) for leaf in leaves_of(graph.params)):
                    raise RefusedError(
                        "a parameter is an object of Python: declare it as a tensor of known rank"
                        " and datatype, a tuple, a shape or R.Prim"
                    )
                if any(isinstance(value, Passed) for value in leaves(graph.result)):
                    raise RefusedError("a result is a number that is a parameter")
                self.kernels.update(self.forms_of(graph))
        except RefusedError as error:
            self.refusals[name] = str(error)
            return False
        self.read_functions[name] = graph
        return True


class _Exporter:
    """Makes the exported program of a module; as `Exported`, it is what emitted functions share."""

    def __init__(
        self, module: IRModule, name: str, weights_inside: bool, externs: Sequence[str]
    ) -> None:
        self._externs: dict[str, ExternCall] = {}
        self._names: set[str] = set()  # of the library in C, in small letters
        self.source, self.name, self.weights_inside = module, name, weights_inside
        new_backend = partial(ExportBackend, externs)
        lowered = lower_module(module, new_backend, dynamic_programs(new_backend))
        self.backend, self.lowered = cast("ExportBackend", lowered.backend), lowered
        self.constants: list[ExportedConstant] = []
        self._end = HEADER_BYTES
        self._positions: dict[tuple[rx.Constant, object], int] = {}
        self._graph: Graph | None = None

    # ---- what emitted functions share

    def number_of(self, check: Check | Assertion | RecursiveCall) -> int:
        """The number of the error of a check, or of calls that are nested too deep."""
        errors = self.backend.errors
        if isinstance(check, RecursiveCall):
            return errors.add_text(f"calls of {check.name} are nested more than {check.most} deep")
        if isinstance(check, Assertion):
            return errors.add_text(f"assertion failed: {check.message}".removesuffix(": "))
        expected = ShortText().prim(check.expected, INT64)
        return errors.add_text(f"a size is expected to be {expected}, and is not")

    def extern(self, step: ExternCall) -> tuple[str, int]:
        """The symbol of a function of C, and the number of the error that it has failed."""
        symbol = identifier(step.name)
        known = self._externs.setdefault(symbol, step)
        problem = (
            f"which {known.name} is, too"
            if known.name != step.name
            else "which has other datatypes or ranks in another call"
            if _types(known) != _types(step)
            else "which is a name of the library"
            if symbol.lower() in self._names
            else "which is a word of C"
            if symbol in _WORDS
            else None
        )
        if problem is not None:
            raise CompileError(
                f"the packed function {step.name} is {symbol} in C, {problem}",
                hint="each function of C has a name of its own, and takes the same datatypes and"
                " ranks in all calls",
            )
        return symbol, self.backend.errors.add_text(f"{symbol} returned a status")

    def largest(self, size: Var) -> tuple[PrimExpr, int]:
        """The largest value of a size that depends on data, and the number of the error."""
        assert self._graph is not None
        most = self._graph.found[size]
        about = f"{size.name}, a size that depends on data"
        text = f"{about}, is more than {ShortText().prim(most, INT64)}, or negative"
        return most, self.backend.errors.add_text(text)

    def position(self, memory: Memory) -> int:
        """The position of a constant of the current graph."""
        assert self._graph is not None
        return self._position(self._graph.constants[memory.index])

    def _position(self, constant: Constant) -> int:
        key = constant.literal, constant.packing
        if key not in self._positions:
            literal, packing = key
            elements = literal.memory(aligned=packing is None)
            if packing is not None:
                elements = packing.packed(elements)
            self._positions[key] = self._end
            self.constants.append(ExportedConstant(self._end, elements, packing))
            self._end += -(-elements.nbytes // LINE_BYTES) * LINE_BYTES
        return self._positions[key]

    # ---- the program

    def program(self) -> ExportedProgram:
        """The exported program. Errors: as for `exported_program`."""
        self._check()
        for graph in self.backend.read_functions.values():
            for constant in graph.constants:
                self._position(constant)
        machine, header = current(), self._header()
        module = self.backend.module
        emit_cpu(module, self.name, machine)
        self._names.update(map(str.lower, shared_names(self.name)))
        signatures = public_signatures(self.source).values()
        public = [each for each in signatures if each[0] in self.backend.read_functions]
        # Names differ in more than case, as those of macros are in capitals.
        symbols = [
            unique(f"{self.name}_{identifier(name)}", self._names, SUFFIXES, str.lower)
            for name, _ in public
        ]
        pairs = zip(symbols, public, strict=True)
        functions = [self._function(symbol, *each, header) for symbol, each in pairs]
        texts = {"version": __version__, "cpu_needed": f"{machine.platform.name}: {_cpu(machine)}"}
        emit_texts(module, self.name, texts, self.backend.errors.entries)
        if self.weights_inside and self.constants:
            module.add_text(_definition(self.name, header, self._end))
        called = {call.name for call in self._externs.values()}
        for given in self.backend.externs:
            if given not in called:
                near = close_names(given, sorted(called))
                raise MisuseError(f"no exported function calls {given!r:.60}", hint=near)
        text = module.text() + public_attributes(machine)
        return ExportedProgram(
            self.name,
            machine,
            functions,
            text,
            self.constants,
            self._end if self.constants else 0,
            header,
            self.weights_inside,
            self.backend.errors.entries,
            {symbol: declaration(symbol, step) for symbol, step in self._externs.items()},
        )

    def _header(self) -> bytes:
        """The begin of the weights: their identity, with the order that the machine wants."""
        digest = hashlib.sha256()
        for constant in self.constants:
            digest.update(f"{constant.offset} {constant.packing}".encode())
            digest.update(raw_bytes(constant.elements))
        return (b"relaxpy weights\0" + digest.digest()).ljust(HEADER_BYTES, b"\0")

    def _function(
        self, symbol: str, name: str, signature: Signature, header: bytes
    ) -> ExportedFunction:
        graph = self._graph = self.backend.read_functions[name]
        fields = set(_RESERVED_FIELDS)
        sizes = {unique(_field(var.name), fields): var for var in graph.variables}
        labels = [*_labels(signature)]
        written = set(graph.written)
        inputs = [
            _tensor(tensor, labels[number], fields, written=number in written)
            for number, tensor in graph.tensors.items()
        ]
        names = {t.memory: i for t, i in zip(graph.tensors.values(), inputs, strict=True)}
        outputs = [*_outputs(graph, names, signature)]
        workspace = workspace_bytes(graph.region, self._memory_of, _largest, _aligned)
        if graph.found:
            workspace = as_poly(largest(workspace.expr(), graph.found))
        function = ExportedFunction(
            name,
            symbol,
            inputs,
            sizes,
            outputs,
            graph.limit,
            simplify((workspace + (LINE_BYTES - 1)).expr()),
            bool(graph.constants),
            bool(graph.constants) and not self.weights_inside,
        )
        emitter = FunctionEmitter(self.backend.module, function, graph, self.backend.kernels, self)
        emitter.emit(self.name, header, self._end)
        return function

    def _memory_of(self, step: Step) -> IndexPoly:
        """The memory of a kernel, over the sizes of its caller; other steps have none."""
        if not isinstance(step, KernelCall):
            return as_poly(0)
        memory = self.backend.memory[self.backend.kernels[step]]
        found = memory.of_call([*step.arguments, *step.sizes])
        blocks, of_tasks = (
            sum(map(_aligned, each), as_poly(0)) for each in (found.blocks, found.of_tasks)
        )
        return blocks + of_tasks * as_poly(THREADS)

    # ---- what prevents it

    def _check(self) -> None:
        problems = [*self._problems()]
        if not problems:
            return
        listed = "\n".join(f"  {where}: {why}" for where, why in problems)
        raise CompileError(
            f"{self.name} cannot be exported, since this needs Python or has no native form:"
            f"\n{listed}",
            hint="`save` writes a file that runs it in Python; packed functions on tensors may be"
            " given in C: export(..., extern=[name])",
        )

    def _problems(self) -> Iterator[tuple[str, str]]:
        """All that prevents the export: the function or the kernel, and the reason."""
        backend, functions = self.backend, self.source.functions_by_name
        found = False
        public = {name for name, _ in public_signatures(self.source).values()}
        dynamic = [*dynamic_calls(self.lowered.program)]
        for name, func in functions.items():
            if not isinstance(func, rx.Function) or name not in public:
                continue
            if name in backend.read_functions:
                found = True
                continue
            reasons = [
                f"it calls the packed function {n}"
                for n in _packed_functions(func)
                if n not in backend.externs
            ]
            reasons += [_without_sizes(call) for caller, call in dynamic if caller == name]
            kernels = dict.fromkeys(_kernels_called(func, self.lowered.lowering))
            reasons += [
                f"the kernel {kernel}: {backend.refusals[kernel]}"
                for kernel in kernels
                if kernel in backend.refusals
            ]
            yield from ((name, why) for why in reasons or [backend.refusals[name]])
        if not found and not any(isinstance(functions[n], rx.Function) for n in public):
            yield self.name, "there is no public Relax function"


def _without_sizes(call: rx.Call) -> str:
    """Why a call that is lowered when it runs is not exported, and what to write."""
    text = f"the sizes of {operator_name(call)} are not known before it runs"
    for arg in (field for each in call.args for field in _fields(each)):
        match arg:
            case rx.Var(name_hint=name, struct_info=rx.ShapeStructInfo(values=None) as sinfo):
                return f"{text}: {name} is {sinfo}; R.match_cast it to R.Shape([...])"
            case rx.Var(name_hint=name, struct_info=rx.StructInfo() as sinfo) if not is_known(
                sinfo
            ):
                return f"{text}: {name} is {sinfo}; R.match_cast it to R.Tensor((...), ...)"
            case _:
                pass
    return text


def _fields(arg: rx.Expr) -> Sequence[rx.Expr]:
    return arg.fields if isinstance(arg, rx.Tuple) else (arg,)


def _types(call: ExternCall) -> list[list[tuple[DataType, int]]]:
    """The datatypes and the ranks of the operands and of the results of a function of C."""
    return [[(t.sinfo.dtype, t.sinfo.ndim) for t in side] for side in (call.inputs, call.outputs)]


def _packed_functions(func: rx.Function) -> Iterator[str]:
    yield from dict.fromkeys(node.global_symbol for node in occurrences(func, rx.ExternFunc))


def _kernels_called(func: rx.Function, lowering: ModuleLowering) -> Iterator[str]:
    for call in occurrences(func, rx.Call):
        if isinstance(call.op, Op) and call.op.record.calls and call.op.record.calls.is_kernel:
            callee = call.args[0]
            if isinstance(callee, rx.GlobalVar):
                yield lowering.python_name(callee.name_hint)


def _aligned(size: IndexPoly) -> IndexPoly:
    """A size that may be negative, as memory that begins and ends at multiples of 64 bytes."""
    if size.constant is not None:
        return as_poly(-(-max(size.constant, 0) // LINE_BYTES) * LINE_BYTES)
    lines = floordiv(maximum(size.expr(), 0) + (LINE_BYTES - 1), LINE_BYTES)
    return as_poly(lines) * LINE_BYTES


def _largest(a: IndexPoly, b: IndexPoly) -> IndexPoly:
    """The larger of two sizes, which are not negative."""
    if a.same(b) or b.constant == 0:
        return a
    if a.constant == 0:
        return b
    if a.constant is not None and b.constant is not None:
        return as_poly(max(a.constant, b.constant))
    return as_poly(maximum(a.expr(), b.expr()))


# ---- names

_WORDS: Final = re.findall(
    r"\w+",
    # the keywords of C and C++, the types of the header, and macros of compilers and systems
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t"
    " char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr"
    " constinit continue decltype default delete do double dynamic_cast else enum explicit export"
    " extern false float for friend goto if inline int long mutable namespace new noexcept not"
    " not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires"
    " restrict return short signed sizeof static static_assert static_cast struct switch template"
    " this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned"
    " using virtual void volatile wchar_t while xor xor_eq"
    " int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"
    " I NULL complex errno far i386 imaginary linux math_errhandling near noreturn stderr stdin"
    " stdout unix"
    # the keywords of JavaScript, and what its objects have
    " arguments await debugger eval finally function implements import in instanceof interface let"
    " null package super undefined var with yield Math"
    " constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString"
    " valueOf",
)
_RESERVED_FIELDS: Final = (
    *("weights", "weights_bytes", "threads", "workspace_bytes", "failed_index", "failed_size"),
    *_WORDS,
)
"""The names that fields of structs do not have."""


def identifier(text: str) -> str:
    """An identifier of C like a text."""
    found = re.sub(r"[^0-9A-Za-z_]", "_", text).strip("_")[:_LONGEST_NAME] or "value"
    return f"v{found}" if found[0].isdigit() else found


def _field(text: str) -> str:
    """A name of a field, which is none in capitals in C, as those of macros are."""
    found = identifier(text)
    if current().platform.system is WEB:
        return found
    is_macro = _MACROS.fullmatch(found) or (len(found) > 1 and found.isupper())
    return found.lower() if is_macro else found


_MACROS: Final = re.compile("(PRI|SCN)[dioux]\\w*|[LP]_[a-z]\\w*")
"""Names of macros of C that are not in capitals; `_WORDS` has those in small letters."""


def unique(
    name: str, taken: set[str], suffixes: Sequence[str] = ("",), key: Callable[[str], str] = str
) -> str:
    """A name that is not taken with any of the suffixes, and is from here on.

    Names are told apart by their keys.
    """
    found, count = name, 1
    while not taken.isdisjoint(key(found + suffix) for suffix in suffixes):
        count += 1
        found = f"{name}_{count}"
    taken.update(key(found + suffix) for suffix in suffixes)
    return found


def _labels(signature: Signature) -> Iterator[str]:
    """The names of the leaves of parameters."""
    for param in signature.params:
        yield from _labels_in(param.name_hint, param.struct_info)


def _labels_in(name: str, sinfo: rx.StructInfo | None) -> Iterator[str]:
    if isinstance(sinfo, rx.TupleStructInfo):
        for number, field in enumerate(sinfo.fields):
            yield from _labels_in(f"{name}[{number}]", field)
    elif isinstance(sinfo, rx.ShapeStructInfo) and sinfo.values is not None:
        yield from (f"{name}[{number}]" for number in range(len(sinfo.values)))
    else:
        yield name


def _tensor(
    tensor: Tensor, label: str, fields: set[str], *, written: bool = False
) -> ExportedTensor:
    name = unique(_field(label), fields, ("", "_shape"))
    return ExportedTensor(name, label, str(tensor.sinfo.dtype), tensor.shape, written=written)


def _outputs(
    graph: Graph, inputs: Mapping[Memory, ExportedTensor], signature: Signature
) -> Iterator[ExportedTensor]:
    """The tensors of the result; the first one of each memory has its own."""
    known = {memory: tensor.name for memory, tensor in inputs.items()}
    new: dict[Tensor, str] = {}
    measured = {graph.results[number] for number in graph.measured}
    fields = {*_RESERVED_FIELDS, *known.values()}  # a result is never named as an input
    for label, tensor in _named_results(graph, signature):
        found = _tensor(tensor, label, fields)
        if tensor in measured:
            room = tuple(largest(size, graph.found) for size in tensor.shape)
            found = replace(found, shape=room, actual=tensor.shape)
        if tensor in graph.results:
            same = new.get(tensor, "")
            new.setdefault(tensor, found.name)
        else:
            same = known[tensor.memory]
        yield replace(found, same_as=same)


def _named_results(graph: Graph, signature: Signature) -> Iterator[tuple[str, Tensor]]:
    fields = graph.result if isinstance(graph.result, tuple) else (graph.result,)
    names = [*signature.output_names, *[""] * len(fields)]
    for number, (field, name) in enumerate(zip(fields, names, strict=False)):
        own = name or (f"result{number}" if isinstance(graph.result, tuple) else "result")
        tensors = tensors_of(field)
        for position, tensor in enumerate(tensors):
            yield (own if len(tensors) == 1 else f"{own}[{position}]"), tensor
