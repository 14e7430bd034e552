"""Python functions over native kernels: a builtin that checks its arguments in native code.

The builtin compares the fields of arrays (type, datatype, rank, shape, layout) with what the kernel
takes, at the offsets that CPython and NumPy have today; a test at the start checks these. Any
mismatch, and a kernel that refuses its data, goes to a function in Python, which has the errors and
accepts everything else. Where the test fails, no kernel is native.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any, Final, TypeAlias

from relaxpy.exec.native.calls.interpreter import (
    ALIGNED,
    CONTIGUOUS,
    DATA,
    DTYPE,
    DTYPES,
    FIELDS,
    FLAGS,
    LENGTH,
    RANK,
    SHAPE,
    STRIDES,
    TYPE,
    VALUE,
    WRITABLE,
    call_python,
    declare_python,
    field_of,
    kind_of,
    python,
)
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import (
    BOOL,
    F64,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    Function,
    Operand,
    Type,
    Value,
)
from relaxpy.exec.native.machine_code.objects import Library
from relaxpy.exec.native.threads.freed_memory import memory
from relaxpy.exec.runtime.values import empty
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """An array at run time: its dimensions, and its strides in bytes."""

    dims: Sequence[Value]
    strides: Sequence[Value]
    itemsize: int

    @property
    def function(self) -> Function:
        """The function that has the values."""
        return self.strides[0].function

    def span(self, data: Value) -> tuple[Value, Value]:
        """The addresses of the first byte, and of the one after the last byte."""
        f = self.function
        first = f.cast("ptrtoint", data, "i64")
        last = first + self.itemsize
        for dim, stride in zip(self.dims, self.strides, strict=True):
            reach = (dim - 1) * stride
            first = first + f.intrinsic("smin", reach, 0)
            last = last + f.intrinsic("smax", reach, 0)
        empty = self._is_empty()
        return first, f.select(empty, first, last)

    def matches(
        self, expected: Sequence[int | str], known: MutableMapping[str, Value]
    ) -> list[Value]:
        """The conditions that the strides are the expected ones, where they matter.

        They do not matter along a dimension with one element, or if the array is empty.
        """
        f = self.function
        conditions = []
        for dim, stride, wanted in zip(self.dims, self.strides, expected, strict=True):
            if isinstance(wanted, str):
                shift = self.itemsize.bit_length() - 1
                number = known.setdefault(wanted, f.arithmetic("ashr", stride, shift))
            else:
                number = f.const(I64, wanted)
            same = f.compare("eq", stride, number * self.itemsize)
            one = f.arithmetic("or", f.compare("sle", dim, 1), self._is_empty())
            conditions.append(f.arithmetic("or", same, one))
        return conditions

    def is_injective(self) -> Value:
        """The condition that no two elements share an address, in row- or column-major order."""
        f = self.function
        axes = list(zip(self.dims, self.strides, strict=True))
        result = self._is_empty()
        for order in (axes, axes[::-1]):
            reach = f.const(I64, self.itemsize)
            nests = f.const(BOOL, 1)
            for dim, stride in reversed(order):
                size = f.intrinsic("smax", stride, 0 - stride)
                apart = f.compare("sge", size, reach)
                apart = f.arithmetic("or", apart, f.compare("sle", dim, 1))
                nests = f.arithmetic("and", nests, apart)
                reach = reach + size * (dim - 1)
            result = f.arithmetic("or", result, nests)
        return result

    def _is_empty(self) -> Value:
        f = self.function
        empty = f.const(BOOL, 0)
        for dim in self.dims:
            empty = f.arithmetic("or", empty, f.compare("eq", dim, 0))
        return empty


_FASTCALL_WITH_KEYWORDS: Final = 0x82
_MATCHES: Final = "PyErr_GivenExceptionMatches"


@dataclass(frozen=True, slots=True)
class Array:
    """A parameter that is an array.

    Sizes with the same name are equal. Without strides, which may have names too, the array is
    contiguous.

    Units:
        strides  elements
    """

    dtype: str
    shape: tuple[int | str, ...]
    written: bool = False
    strides: tuple[int | str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer parameter, referred to by its name like a size, passed as an i64."""

    name: str
    dtype: str = "int64"


@dataclass(frozen=True, slots=True)
class Number:
    """A parameter that is a bool or a float, passed as the bits of a float64."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Anything:
    """A parameter of any type, which a kernel does not take."""


@dataclass(frozen=True, slots=True)
class Fields:
    """A parameter that is a tuple, or a shape, whose fields are integers."""

    params: tuple[Tree, ...]
    type: str = "tuple"


Param: TypeAlias = Array | Integer | Number
Leaf: TypeAlias = Param | Anything
Tree: TypeAlias = Leaf | Fields

Result: TypeAlias = Callable[[Function, Sequence[Value], Sequence[Value]], Value]


def leaves_of(params: Iterable[Tree]) -> list[Leaf]:
    """The parameters, with the fields of tuples, from left to right."""
    leaves: list[Leaf] = []
    for param in params:
        leaves += leaves_of(param.params) if isinstance(param, Fields) else [param]
    return leaves


def size_names(params: Iterable[Leaf]) -> list[str]:
    """The names of sizes that are not parameters, in the order in which a kernel takes them."""
    params = list(params)
    known = {param.name for param in params if isinstance(param, Integer)}
    arrays = [param for param in params if isinstance(param, Array)]
    sizes = (size for a in arrays for size in (*a.shape, *(a.strides or ())))
    named = [size for size in sizes if isinstance(size, str)]
    return [name for name in dict.fromkeys(named) if name not in known]


def emit_entry(
    module: Module, kernel: str, params: Sequence[Tree], *, result: Result | None = None
) -> None:
    """Write the function of the builtin for `kernel`, a function of the module.

    The kernel takes the address of each array and each scalar as i64, in the order of `leaves_of`
    the parameters, and then the `size_names` of these as i64. It returns an i32, which is 0 unless
    it refuses the data; then it has written nothing, or has raised an error.

    If there is a `result`, `result(f, objects, arguments)` calls it in `f`: it returns a new
    reference to the result for the objects that are `leaves_of` the parameters, and the arguments
    of a kernel; or null, which calls the fallback, also instead of an error of a kernel.
    """
    declare_python(module)
    f = module.function(
        entry_name(kernel),
        [(POINTER, "self"), (POINTER, "args"), (I64, "count"), (POINTER, "keywords")],
        POINTER,
        optimised=False,  # it waits for memory, and is as long as a small kernel
    )
    instance, args, count, keywords = f.params
    null = Value(f, POINTER, "null")
    leaves = leaves_of(params)

    def none() -> list[Value]:
        return [null]

    def called(objects: Sequence[Value], arguments: Sequence[Value]) -> list[Value]:
        if result is not None:
            return [result(f, objects, arguments)]
        status = call_kernel(f, kernel, arguments, release_gil=True)
        return f.branch(_same(f, status, 0), lambda: [_unit(f)], none)

    def positional() -> list[Value]:
        objects = [f.load(POINTER, f.element(args, n, POINTER), 8) for n in range(len(params))]
        return with_fields(list(zip(objects, params, strict=True)))

    def with_fields(pairs: Sequence[tuple[Value, Tree]]) -> list[Value]:
        """Check the types of objects, and then those of the fields of tuples among them."""
        match = [_has_type(f, o, p) for o, p in pairs if not isinstance(p, Anything)]
        tuples = [(o, p) for o, p in pairs if isinstance(p, Fields)]
        if not tuples:
            return f.branch(_all(f, match), lambda: typed([o for o, _ in pairs]), none)

        def sized() -> list[Value]:
            lengths = [(field_of(f, o, LENGTH, I64), len(p.params)) for o, p in tuples]
            return f.branch(_all(f, [_same(f, *pair) for pair in lengths]), opened, none)

        def opened() -> list[Value]:
            return with_fields([pair for o, p in pairs for pair in _fields(f, o, p)])

        return f.branch(_all(f, match), sized, none)

    def typed(objects: Sequence[Value]) -> list[Value]:
        pairs = zip(objects, leaves, strict=True)
        match = [test for o, p in pairs if isinstance(p, Array) for test in _has_form(f, o, p)]
        return f.branch(_all(f, match), lambda: formed(objects), none)

    def formed(objects: Sequence[Value]) -> list[Value]:
        read = _Arguments(f, leaves, objects)
        fits = _all(f, [*read.tests, *read.apart()])
        return f.branch(fits, lambda: called(objects, read.arguments), none)

    no_keywords = _same(f, keywords, null)
    complete = f.arithmetic("and", no_keywords, _same(f, count, len(params)))
    (found,) = f.branch(complete, positional, none)

    def refused() -> list[Value]:
        is_graph = f.const(BOOL, int(result is not None))
        return [fall_back(f, (instance, args, count, keywords), is_graph)]

    f.ret(f.branch(f.compare("ne", found, null), lambda: [found], refused)[0])


def fall_back(f: Function, operands: Sequence[Value], is_graph: Value) -> Value:
    """The result of the fallback of a builtin for its operands, or null if it raises.

    The fallback of a graph is called instead of an error of a kernel, as it knows the position of
    the call.
    """
    null = Value(f, POINTER, "null")
    raised = call_python(f, "PyErr_Occurred", POINTER)

    def call() -> list[Value]:
        return [call_python(f, "PyObject_Vectorcall", POINTER, *operands)]

    def call_again() -> list[Value]:
        call_python(f, "PyErr_Clear", VOID)
        return call()

    def failed() -> list[Value]:
        matches = call_python(f, _MATCHES, I32, raised, python(f, "error"))
        of_kernel = f.arithmetic("and", is_graph, f.compare("ne", matches, 0))
        return f.branch(of_kernel, call_again, lambda: [null])

    [value] = f.branch(f.compare("eq", raised, null), call, failed)
    return value


class _Arguments:
    """The arguments of a kernel, from objects of the types and ranks of its parameters.

    `tests` are the conditions for that: sizes and strides are those of the parameters.
    """

    def __init__(self, f: Function, params: Sequence[Leaf], objects: Sequence[Value]) -> None:
        self.function = f
        self.arguments: list[Value] = []
        self.tests: list[Value] = []
        self._sizes: dict[str, Value] = {}
        self._spans: list[tuple[Value, Value, bool]] = []
        overflow = f.alloca(I32, 1)
        for param, item in zip(params, objects, strict=True):
            match param:
                case Integer(name=name):
                    value, fits = _integer(f, item, param, overflow)
                    self.tests.append(fits)
                    self.arguments.append(value)
                    self._test_size(name, value)
                case Number():
                    self.arguments.append(_bits(f, item, param))
                case Array():
                    self._read_array(param, item)
                case Anything():
                    pass
        self.arguments += [self._sizes[name] for name in size_names(params)]

    def _read_array(self, param: Array, item: Value) -> None:
        f = self.function
        shape = field_of(f, item, SHAPE, POINTER)
        dims = [f.load(I64, f.element(shape, n, I64)) for n in range(len(param.shape))]
        data = field_of(f, item, DATA, POINTER)
        self.arguments.append(data)
        layout = _layout(f, item, param, dims)
        if layout is None:
            number = f.index(DTYPES[param.dtype].itemsize)
            for dim in dims:
                number = number * dim
            start = f.cast("ptrtoint", data, "i64")
            self._spans.append((start, start + number, param.written))
        else:
            self._spans.append((*layout.span(data), param.written))
        for size, value in zip(param.shape, dims, strict=True):
            self._test_size(size, value)
        if layout is not None:
            self.tests += layout.matches(param.strides or (), self._sizes)
            if param.written:
                self.tests.append(layout.is_injective())

    def _test_size(self, size: int | str, value: Value) -> None:
        """Test a size; the first one with a name defines it."""
        if isinstance(size, str):
            known = self._sizes.setdefault(size, value)
            if known is not value:
                self.tests.append(_same(self.function, value, known))
        else:
            self.tests.append(_same(self.function, value, size))

    def apart(self) -> Iterator[Value]:
        """The noalias checks: no written array overlaps another one."""
        f = self.function
        for (first, last, also), (start, stop, written) in combinations(self._spans, 2):
            if written or also:
                either = f.compare("ule", stop, first), f.compare("ule", last, start)
                yield f.arithmetic("or", *either)


def _unit(f: Function) -> Value:
    """A new reference to the result of a kernel."""
    unit = python(f, "unit")
    call_python(f, "Py_IncRef", VOID, unit)
    return unit


def call_kernel(
    f: Function, kernel: str, arguments: Sequence[Value], *, release_gil: bool
) -> Value:
    """The status that a kernel returns; other threads of Python may run while it does."""
    if not release_gil:
        return f.call(kernel, I32, *arguments)
    state = call_python(f, "PyEval_SaveThread", POINTER)
    status = f.call(kernel, I32, *arguments)
    call_python(f, "PyEval_RestoreThread", VOID, state)
    return status


def entry_name(kernel: str) -> str:
    """The name of the function of the builtin for a kernel; the library has to export it."""
    return f"{kernel}.entry"


def make_entry(
    library: Library, kernel: str, fallback: Callable[..., object]
) -> Callable[..., object]:
    """A function that runs a kernel on arrays, and calls `fallback` on all other arguments.

    The library exports `entry_name(kernel)`, and lives as long as the function. It writes to arrays
    and returns `()`. `fallback` gets arguments of other types, datatypes, ranks and shapes, arrays
    that are not contiguous, aligned or, where written, writable, written arrays that overlap
    others, keyword arguments, and arguments that the kernel refuses.
    """
    return builtin_at(library[entry_name(kernel)], kernel, library, fallback)


def builtin_at(
    address: int, name: str, library: Library, fallback: Callable[..., object], table: bytes = b""
) -> Callable[..., object]:
    """The builtin of a function at an address, bound to an object with the `table`."""
    return _builtin(_Fallback(fallback, library, (name, address), table))


@cache
def empty_builtin() -> Callable[..., object]:
    """The function `empty` of the run time as a builtin; large tensors reuse freed memory."""
    return builtin_at(memory().library["empty"], "empty", memory().library, empty)


CONTENT: Final = bytes.__basicsize__ - 1
"""The offset of the elements in bytes of Python."""


@cache
def table_offset() -> int:
    """The offset of the reference to the table in the object that a builtin is bound to; or 0."""
    table = b"\1\2\3\4\5\6\7"
    owner = _Fallback(table_offset, None, ("", 0), table)
    if ctypes.string_at(id(table) + CONTENT, len(table)) != table:
        return 0
    offsets = range(object.__basicsize__, _Fallback.__basicsize__, 8)
    found = (n for n in offsets if ctypes.c_uint64.from_address(id(owner) + n).value == id(table))
    return next(found, 0)


def is_entry(function: object) -> bool:
    """True if `function` is a builtin of `make_entry`."""
    return isinstance(getattr(function, "__self__", None), _Fallback)


def with_fallback(entry: Any, fallback: Callable[..., object]) -> Callable[..., Any]:
    """The builtin `entry` of `make_entry` with another fallback."""
    owner: _Fallback = entry.__self__
    return _builtin(_Fallback(fallback, (owner.library, entry), owner.function, owner.table))


def _builtin(owner: _Fallback) -> Callable[..., object]:
    # The builtin keeps the object that it is bound to, and this keeps the code and its table.
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    builtin: Callable[..., object] = new(owner.definition(), owner, None)
    return builtin


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_void_p),
    )


class _Fallback(bytearray):
    """Calls the fallback of a builtin, without a frame, and keeps the code that it runs.

    Its bytes are the definition of the builtin, which reads it when it is freed, and then frees
    what it is bound to. No other object that it owns is certain to be there: the garbage collector
    clears the objects of a cycle in an order of its own, but not the bytes of one.
    """

    __slots__ = ("__call__", "function", "library", "table")

    def __init__(
        self,
        fallback: Callable[..., object],
        library: object,
        function: tuple[str, int],
        table: bytes,
    ) -> None:
        name, address = function
        start = ctypes.sizeof(_MethodDef)
        super().__init__(bytes(start) + name.encode() + b"\0")
        content = _MethodDef.from_address(self.definition())
        content.name, content.function = self.definition() + start, address
        content.flags = _FASTCALL_WITH_KEYWORDS
        self.__call__ = fallback
        self.library, self.function, self.table = library, function, table

    def definition(self) -> int:
        """The address of the definition, which is the same as long as the object lives."""
        address: int = _CONTENT_OF(self)
        return address


_CONTENT_OF: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyByteArray_AsString", ctypes.pythonapi)
)


def _fields(f: Function, item: Value, param: Tree) -> Iterator[tuple[Value, Tree]]:
    """The fields of a tuple with their parameters; any other object itself."""
    if not isinstance(param, Fields):
        yield item, param
        return
    start = f.element(item, FIELDS, I8)
    for n, field in enumerate(param.params):
        yield f.load(POINTER, f.element(start, n, POINTER), 8), field


def _types_of(param: Param | Fields) -> tuple[str, ...]:
    """The object types of an argument: those of Python, and that of NumPy."""
    match param:
        case Fields(type=type):
            return (type,)
        case Array():
            return ("ndarray",)
        case Integer(dtype=dtype):
            return "integer", f"scalar {dtype}"
        case Number(dtype="bool"):
            return "truth value", "scalar bool"
        case Number(dtype=dtype):
            return "float", f"scalar {dtype}"


def _has_type(f: Function, item: Value, param: Param | Fields) -> Value:
    result = f.const(BOOL, 0)
    for name in _types_of(param):
        same = _same(f, field_of(f, item, TYPE, POINTER), python(f, name))
        result = f.arithmetic("or", result, same)
    return result


def _has_form(f: Function, item: Value, param: Array) -> Iterator[Value]:
    """The conditions that an array has the layout, rank and datatype of a parameter."""
    flags = _flags_of(param)
    found = field_of(f, item, DTYPE, POINTER)
    yield _same(f, f.arithmetic("and", field_of(f, item, FLAGS, I32), flags), flags)
    yield _same(f, field_of(f, item, RANK, I32), len(param.shape))
    yield _same(f, *(kind_of(f, d) for d in (found, python(f, param.dtype))))


def _is_scalar(f: Function, item: Value, param: Integer | Number) -> Value:
    """True if an argument is a scalar of NumPy."""
    return _same(f, field_of(f, item, TYPE, POINTER), python(f, f"scalar {param.dtype}"))


def _integer(f: Function, item: Value, param: Integer, overflow: Value) -> tuple[Value, Value]:
    """An integer argument, and whether it fits into 64 bits."""
    bits = DTYPES[param.dtype].itemsize * 8

    def from_numpy() -> list[Value]:
        value = field_of(f, item, VALUE, Type(f"i{bits}"))
        if bits < 64:
            value = f.cast("zext" if param.dtype[0] == "u" else "sext", value, "i64")
        fits = f.compare("sge", value, 0) if param.dtype == "uint64" else f.const(BOOL, 1)
        return [value, fits]

    def from_python() -> list[Value]:
        convert = python(f, "PyLong_AsLongLongAndOverflow")
        value = f.new(I64, f"call i64 {convert.name}({item}, {overflow})")
        return [value, _same(f, f.load(I32, overflow), 0)]

    value, fits = f.branch(_is_scalar(f, item, param), from_numpy, from_python)
    return value, fits


def _flags_of(param: Array) -> int:
    layout = CONTIGUOUS if param.strides is None else 0
    return layout | ALIGNED | (WRITABLE if param.written else 0)


def _bits(f: Function, item: Value, param: Number) -> Value:
    """The bits that the kernel takes for a number."""
    if param.dtype == "bool":
        is_true = _same(f, item, python(f, "True"))
        is_numpy = _is_scalar(f, item, param)
        # The byte is read from an object of either type.
        byte = f.arithmetic("and", is_numpy, f.compare("ne", field_of(f, item, VALUE, I8), 0))
        number = f.cast("uitofp", f.arithmetic("or", is_true, byte), "double")
        return f.cast("bitcast", number, "i64")

    def from_numpy() -> list[Value]:
        from relaxpy.exec.native.maths.numbers import widen  # programs from the disk: unused

        element = {"float16": "half", "bfloat16": "bfloat", "float32": "float"}[param.dtype]
        value = field_of(f, item, VALUE, Type(element))
        return [f.cast("fpext", value if element == "float" else widen(value), "double")]

    def from_python() -> list[Value]:
        return [field_of(f, item, VALUE, F64)]

    if param.dtype == "float64":
        (number,) = from_python()
    else:
        (number,) = f.branch(_is_scalar(f, item, param), from_numpy, from_python)
    return f.cast("bitcast", number, "i64")


def _layout(f: Function, item: Value, param: Array, dims: Sequence[Value]) -> Layout | None:
    """The layout of an array that need not be contiguous."""
    if not param.strides:
        return None
    strides = field_of(f, item, STRIDES, POINTER)
    values = [f.load(I64, f.element(strides, n, I64)) for n in range(len(dims))]
    return Layout(dims, values, DTYPES[param.dtype].itemsize)


def _same(f: Function, value: Value, other: Operand) -> Value:
    return f.compare("eq", value, other)


def _all(f: Function, conditions: Sequence[Value]) -> Value:
    """True if all conditions hold."""
    result = f.const(BOOL, 1)
    for condition in conditions:
        result = f.arithmetic("and", result, condition)
    return result
