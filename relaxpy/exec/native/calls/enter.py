"""Writes the function that all builtins of native code share.

It checks the arguments against a table in the object that a builtin is bound to, calls the code,
and builds the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from relaxpy.exec.machine.tuning import Allocations
from relaxpy.exec.native.calls import entry_table as table
from relaxpy.exec.native.calls.entry import CONTENT, table_offset
from relaxpy.exec.native.calls.interpreter import (
    DATA,
    DTYPE,
    FIELDS,
    FLAGS,
    LENGTH,
    PYTHON,
    RANK,
    SHAPE,
    STRIDES,
    TYPE,
    VALUE,
    WRITABLE,
    call_python,
    declare_python,
    field_of,
    is_second,
    kind_of,
    python,
)
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import (
    BOOL,
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
from relaxpy.exec.native.machine_code.machine import current
from relaxpy.exec.native.maths.numbers import widen
from relaxpy.exec.native.threads.code import POOL

_ELEMENTS = {"float16": "half", "bfloat16": "bfloat", "float32": "float"}
"""The types in LLVM IR of the values of floats."""
_COLUMNS = 7
"""The tables: words, fields of tuples, new arrays, fields of results, and three of spans."""


def entry_texts() -> tuple[str, str]:
    """The LLVM IR of the entry, and of the functions that it calls for rarer parameters.

    The latter need not be fast, and are compiled in less time.
    """
    module = Module(current().triple, current().vector_bits)
    declare_python(module)
    module.words(POOL, 2)

    def function(name: str, pointers: str, numbers: str = "", result: Type = I32) -> Function:
        params = [(POINTER, param) for param in pointers.split()]
        params += [(I64, param) for param in numbers.split()]
        return module.function(name, params, result)

    _Number(function("number", "item spec words")).emit()
    _Layout(function("layout", "item spec words span", "total")).emit()
    rarer = list(module.functions)
    _Answer(function("answer", "ops items arrays built", "count", POINTER)).emit()
    params = [(POINTER, "self"), (POINTER, "args"), (I64, "count"), (POINTER, "keywords")]
    _Enter(module.function("enter", params, POINTER)).emit()
    return module.part(["answer", "enter"]).text(), module.part(rarer, has_variables=True).text()


class _Words:
    """Emits instructions of `f` that read and write words."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.null = Value(f, POINTER, "null")

    def at(self, words: Value, number: Operand) -> Value:
        """The word of that number."""
        return self.f.load(I64, self.f.element(words, number, I64))

    def pointer_at(self, pointers: Value, number: Operand) -> Value:
        """The address of that number."""
        return self.f.load(POINTER, self.f.element(pointers, number, POINTER), 8)

    def put(self, value: Value, words: Value, number: Operand) -> None:
        """Store a word or an address."""
        self.f.store(value, self.f.element(words, number, I64), 8)

    def require(self, *conditions: Value) -> None:
        """Leave the attempt unless all conditions hold."""
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.f.arithmetic("and", result, condition)
        self.f.leave(self.f.arithmetic("xor", result, 1))

    def equal(self, value: Value, other: Operand) -> Value:
        """True if both are equal."""
        return self.f.compare("eq", value, other)

    def expected(self, found: Value, size: Value, words: Value) -> Value:
        """The size that a specification expects; the first one of a name is stored."""
        f = self.f

        def named() -> list[Value]:
            code = size - table.NAMES
            word = f.element(words, f.arithmetic("lshr", code, table.NAME), I64)

            def define() -> None:
                limit = f.arithmetic("and", f.arithmetic("lshr", code, 1), 63)
                self.require(self.equal(*(f.arithmetic("ashr", found, n) for n in (limit, 63))))
                f.store(found, word)

            f.branch(f.compare("ne", f.arithmetic("and", code, 1), 0), define)
            return [f.load(I64, word)]

        is_known = f.compare("sge", size, table.NAMES // 2)
        return f.branch(is_known, lambda: [size], named)[0]

    def entry(self, spec: Value) -> Value:
        """The object of Python that a specification names."""
        return self.pointer_at(Value(self.f, POINTER, f"@{PYTHON}"), self.at(spec, table.NUMBER))

    def itemsize(self, spec: Value) -> Value:
        """The bytes of an element of an array."""
        return self.f.arithmetic("shl", self.f.index(1), self.at(spec, table.SHIFT))

    def returns_status(self, body: Callable[[], None]) -> None:
        """End the function, whose status is 0 unless the body leaves."""
        f = self.f

        def run() -> list[Value]:
            body()
            return [f.const(I32, 0)]

        f.ret(f.attempt(run, lambda: [f.const(I32, 1)])[0])


class _Enter(_Words):
    """Emits the entry in a function that has the parameters of a builtin."""

    def __init__(self, f: Function) -> None:
        super().__init__(f)
        self.instance, self.args, self.count, self.keywords = f.params
        found = f.load(POINTER, f.element(self.instance, table_offset(), I8), 8)
        self.table = f.element(found, CONTENT, I8)
        self.created, self.queued = f.alloca(I64, 1), f.alloca(I64, 1)
        """The numbers of new arrays, and of the items that are known."""
        f.store(f.const(I64, 0), self.created)
        self.width = self.word(table.WIDTH)
        self.is_large = f.compare("sgt", self.width, Allocations.ENTRY)
        stack, size = f.alloca(I64, _COLUMNS * Allocations.ENTRY), self.width * (_COLUMNS * 8)
        [self.words] = f.branch(self.is_large, lambda: [f.take(size)], lambda: [stack])
        self.fields, self.arrays, self.built, self.spans = map(self._column, range(1, 5))
        self.has_fields = f.compare("ne", self.word(table.HAS_FIELDS), 0)
        self.items = f.select(self.has_fields, self.fields, self.args)
        self.ndarray = python(f, "ndarray")

    def _column(self, number: int) -> Value:
        return self.f.element(self.words, self.width * number, I64)

    def emit(self) -> None:
        """Emit the entry."""
        f = self.f
        has_memory = f.compare("ne", self.words, self.null)

        def accepted() -> list[Value]:
            self.require(has_memory)
            return self._accepted()

        [found] = f.attempt(accepted, lambda: [self.null])
        f.branch(f.arithmetic("and", self.is_large, has_memory), lambda: f.give(self.words))
        f.ret(f.branch(f.compare("ne", found, self.null), lambda: [found], self._refused)[0])

    def word(self, number: int) -> Value:
        """The word of that number in the table."""
        return self.at(self.table, number)

    def _called_for(self, name: str, *operands: Value) -> None:
        """Refuse the arguments if a function of the entry does."""
        self.require(self.equal(self.f.call(name, I32, *operands), 0))

    # ---- arguments

    def _accepted(self) -> list[Value]:
        """The result for arguments that the function takes."""
        f, count = self.f, self.word(table.COUNT)
        self.require(self.equal(self.keywords, self.null), self.equal(self.count, count))

        def copy(n: Value) -> None:
            self.put(self.pointer_at(self.args, n), self.fields, n)

        f.branch(self.has_fields, lambda: f.loop(0, count, 1, [], copy))
        f.store(count, self.queued)
        first, items = f.element(self.table, table.SPECS, I64), self.word(table.ITEMS)
        [specs] = f.loop(0, items, 1, [first], lambda n, spec: [self._argument(n, spec)])
        is_written = f.compare("ne", self.word(table.IS_WRITTEN), 0)
        stop = items * 24
        f.branch(
            is_written, lambda: f.loop(0, stop, 24, [], lambda i: self._apart(i, stop)) and None
        )
        return f.attempt(lambda: self._called(specs), self._dropped)

    def _argument(self, n: Value, spec: Value) -> Value:
        """Check an argument; return the address of the next specification."""
        f, kind, item = self.f, self.at(spec, table.KIND), self.pointer_at(self.items, n)
        span = f.element(self.spans, n * 3, I64)

        def other() -> None:
            for word in range(3):
                self.put(f.const(I64, 0), span, word)
            number = lambda: self._called_for("number", item, spec, self.words)  # noqa: E731
            is_number, is_tuple = (self.equal(kind, k) for k in (table.SCALAR, table.FIELDS))
            f.branch(is_number, number)
            f.branch(is_tuple, lambda: self._open(item, spec))

        f.branch(self.equal(kind, table.ARRAY), lambda: self._array(item, spec, span), other)
        sizes = self.at(spec, table.AXES) + self.at(spec, table.STRIDED)
        return f.element(spec, sizes + table.DIMS, I64)

    def _array(self, item: Value, spec: Value, span: Value) -> None:
        """Check an array, and store its span."""
        f = self.f
        self.require(self.equal(field_of(f, item, TYPE, POINTER), self.ndarray))
        rank, needed = (self.at(spec, n) for n in (table.AXES, table.FLAG_BITS))
        needed = f.cast("trunc", needed, "i32")
        usable = f.arithmetic("and", field_of(f, item, FLAGS, I32), needed)
        has_rank = self.equal(field_of(f, item, RANK, I32), f.cast("trunc", rank, "i32"))
        dtypes = field_of(f, item, DTYPE, POINTER), self.entry(spec)
        kinds = [kind_of(f, dtype) for dtype in dtypes]
        self.require(self.equal(usable, needed), has_rank)
        f.branch(f.compare("ne", *kinds), lambda: self.require(is_second(f, *kinds)))
        dims, shape = f.element(spec, table.DIMS, I64), field_of(f, item, SHAPE, POINTER)

        def fits(axis: Value, total: Value) -> list[Value]:
            dim = self.at(shape, axis)
            expected = self.expected(dim, self.at(dims, axis), self.words)
            self.require(self.equal(dim, expected))
            return [total * dim]

        [total] = f.loop(0, rank, 1, [self.itemsize(spec)], fits)
        data = field_of(f, item, DATA, I64)
        self.put(data, self.words, self.at(spec, table.WORD))
        is_strided = f.compare("ne", self.at(spec, table.STRIDED), 0)

        def strided() -> None:
            self._called_for("layout", item, spec, self.words, span, total)

        def contiguous() -> None:
            self.put(data, span, 0)
            self.put(data + total, span, 1)

        f.branch(is_strided, strided, contiguous)
        self.put(f.arithmetic("and", self.at(spec, table.FLAG_BITS), WRITABLE), span, 2)

    def _open(self, item: Value, spec: Value) -> None:
        """Check the type and the length of a tuple, whose fields become the last items."""
        f, count = self.f, self.at(spec, table.SHIFT)
        self.require(self.equal(field_of(f, item, TYPE, POINTER), self.entry(spec)))
        self.require(self.equal(field_of(f, item, LENGTH, I64), count))
        start, queued = f.element(item, FIELDS, I8), f.load(I64, self.queued)

        def add(n: Value) -> None:
            self.put(self.pointer_at(start, n), self.fields, queued + n)

        f.loop(0, count, 1, [], add)
        f.store(queued + count, self.queued)

    def _apart(self, i: Value, stop: Value) -> None:
        """Check that an array overlaps no other before `stop` if it is written."""
        f, one = self.f, self.f.element(self.spans, i, I8)

        def pair(j: Value) -> None:
            other = f.element(self.spans, j, I8)
            before = f.compare("ule", self.at(one, 1), self.at(other, 0))
            after = f.compare("ule", self.at(other, 1), self.at(one, 0))
            is_apart = f.arithmetic("or", before, after)
            self.require(f.arithmetic("or", self.equal(i, j), is_apart))

        is_written = f.compare("ne", self.at(one, 2), 0)
        f.branch(is_written, lambda: f.loop(0, stop, 24, [], pair))

    # ---- results

    def _called(self, specs: Value) -> list[Value]:
        """The result of the function, with new arrays."""
        f = self.f
        sizes = self.pointer_at(self.table, table.SIZES)
        function = self.pointer_at(self.table, table.FUNCTION)
        f.branch(f.compare("ne", sizes, self.null), lambda: self._succeeds(sizes, self.words))
        results = self.word(table.RESULTS)
        [ops] = f.loop(0, results, 1, [specs], lambda m, spec: [self._create(m, spec)])
        f.branch(f.compare("ne", function, self.null), lambda: self._run(function))
        count = self.word(table.ANSWER)

        def built() -> list[Value]:
            operands = ops, self.items, self.arrays, self.built, count
            f.store(f.const(I64, 0), self.created)  # the result has them
            result = f.call("answer", POINTER, *operands)
            self.require(f.compare("ne", result, self.null))
            return [result]

        return f.branch(self.equal(count, 0), lambda: [self.pointer_at(self.arrays, 0)], built)

    def _status(self, function: Value, *operands: Value) -> list[Value]:
        return [self.f.new(I32, f"call i32 {function.name}({', '.join(map(str, operands))})")]

    def _succeeds(self, function: Value, *operands: Value) -> None:
        [status] = self._status(function, *operands)
        self.require(self.equal(status, 0))

    def _run(self, function: Value) -> None:
        """Call the function; refuse the arguments if it does."""
        f, tasks = self.f, self.word(table.TASKS)
        releases = f.compare("ne", self.word(table.RELEASES), 0)
        save = partial(call_python, f, "PyEval_SaveThread", POINTER)
        [state] = f.branch(releases, lambda: [save()], lambda: [self.null])

        def direct() -> list[Value]:
            words = (self.at(self.words, n) for n in range(table.PASSED))
            return self._status(function, *words)

        def parallel() -> list[Value]:
            run = self.pointer_at(Value(f, POINTER, f"@{POOL}"), 0)
            return self._status(run, function, self.words, tasks, self.word(table.SCRATCH))

        def other() -> list[Value]:
            by_words = partial(self._status, function, self.words)
            return f.branch(f.compare("sgt", tasks, 0), parallel, by_words)

        [status] = f.branch(self.equal(tasks, 0), direct, other)

        def restore() -> None:
            call_python(f, "PyEval_RestoreThread", VOID, state)

        f.branch(releases, restore)
        self.require(self.equal(status, 0))

    def _create(self, m: Value, spec: Value) -> Value:
        """Create the array of a result; return the address of the next specification."""
        f, rank = self.f, self.at(spec, table.AXES)
        sizes = f.element(spec, table.DIMS, I64)

        def put(axis: Value) -> None:
            size = self.at(sizes, axis)
            self.put(self.expected(size, size, self.words), self.built, axis)

        def known() -> list[Value]:
            f.loop(0, rank, 1, [], put)
            return [self.built]

        has_names = f.compare("ne", self.at(spec, table.FLAG_BITS), 0)
        [dims] = f.branch(has_names, known, lambda: [sizes])
        dtype = self.entry(spec)
        call_python(f, "Py_IncRef", VOID, dtype)
        operands = f.cast("trunc", rank, "i32"), dims, dtype, f.const(I32, 0)
        array = call_python(f, "PyArray_Empty", POINTER, *operands)

        def clear() -> None:
            call_python(f, "PyErr_Clear", VOID)  # the fallback will fail in the same way

        f.leave(self.equal(array, self.null), clear)
        self.put(array, self.arrays, m)
        f.store(m + 1, self.created)
        self.put(field_of(f, array, DATA, I64), self.words, self.at(spec, table.WORD))
        return f.element(sizes, rank, I64)

    def _dropped(self) -> list[Value]:
        """Drop the results, and refuse the arguments."""
        f = self.f

        def drop(n: Value) -> None:
            call_python(f, "Py_DecRef", VOID, self.pointer_at(self.arrays, n))

        f.loop(0, f.load(I64, self.created), 1, [], drop)
        f.leave(f.const(BOOL, 1))
        return [self.null]

    def _refused(self) -> list[Value]:
        """The result of the fallback, or null if it raises.

        The fallback of a graph is called instead of an error of a kernel, as it knows the position
        of the call. All other errors are raised.
        """
        f, raised = self.f, call_python(self.f, "PyErr_Occurred", POINTER)
        operands = self.instance, self.args, self.count, self.keywords

        def call() -> list[Value]:
            return [call_python(f, "PyObject_Vectorcall", POINTER, *operands)]

        def call_again() -> list[Value]:
            call_python(f, "PyErr_Clear", VOID)
            return call()

        def failed() -> list[Value]:
            matches = call_python(f, "PyErr_GivenExceptionMatches", I32, raised, python(f, "error"))
            is_graph = f.compare("ne", self.word(table.IS_GRAPH), 0)
            of_kernel = f.arithmetic("and", is_graph, f.compare("ne", matches, 0))
            return f.branch(of_kernel, call_again, lambda: [self.null])

        return f.branch(f.compare("eq", raised, self.null), call, failed)


class _Answer(_Words):
    """Emits a function that returns a new reference to a result, or null."""

    def emit(self) -> None:
        """Emit the function."""
        f = self.f
        ops, items, arrays, built, count = f.params

        def share(item: Value) -> None:
            call_python(f, "Py_IncRef", VOID, item)

        def step(n: Value, top: Value) -> list[Value]:
            how, number = self.at(ops, n * 2), self.at(ops, n * 2 + 1)

            def fields() -> list[Value]:
                first = top - number
                result = call_python(f, "PyTuple_New", POINTER, number)
                self.require(f.compare("ne", result, self.null))

                def put(field: Value) -> None:
                    item = self.pointer_at(built, first + field)
                    call_python(f, "PyTuple_SetItem", I32, result, field, item)

                f.loop(0, number, 1, [], put)
                self.put(result, built, first)
                return [first + 1]

            def reference() -> list[Value]:
                known = f.select(self.equal(how, table.ITEM), items, arrays)
                item = self.pointer_at(known, number)
                is_shared = f.compare("ne", how, table.RESULT)
                f.branch(is_shared, lambda: share(item))
                self.put(item, built, top)
                return [top + 1]

            return f.branch(self.equal(how, table.TUPLE), fields, reference)

        def run() -> list[Value]:
            f.loop(0, count, 1, [f.index(0)], step)
            return [self.pointer_at(built, 0)]

        f.ret(f.attempt(run, lambda: [self.null])[0])


class _Number(_Words):
    """Emits a function that checks a number, and stores it among the words."""

    def emit(self) -> None:
        """Emit the function."""
        f = self.f
        self.item, self.spec, words = f.params
        self.type, self.overflow = field_of(f, self.item, TYPE, POINTER), f.alloca(I32, 1)
        self.form = self.at(self.spec, table.FLAG_BITS)
        self.is_numpy = self.equal(self.type, self.entry(self.spec))

        def body() -> None:
            is_integer = f.compare("ule", self.form, table.FORMS.index("uint"))
            [value] = f.branch(is_integer, self._integer, self._number)

            def compare() -> None:
                size = self.at(self.spec, table.DIMS)
                self.require(self.equal(value, self.expected(value, size, words)))

            f.branch(f.compare("ne", self.at(self.spec, table.AXES), 0), compare)
            self.put(value, words, self.at(self.spec, table.WORD))

        self.returns_status(body)

    def _integer(self) -> list[Value]:
        """An integer, which fits into an int64."""
        f = self.f

        def of_numpy() -> list[Value]:
            # The scalars of NumPy have eight bytes for each value.
            size = f.arithmetic("shl", f.index(8), self.at(self.spec, table.SHIFT))
            unused, is_signed = 64 - size, self.equal(self.form, table.FORMS.index("int"))
            upper = f.arithmetic("shl", field_of(f, self.item, VALUE, I64), unused)
            value = f.select(is_signed, *(f.arithmetic(n, upper, unused) for n in ("ashr", "lshr")))
            self.require(f.arithmetic("or", is_signed, f.compare("sge", value, 0)))
            return [value]

        def of_python() -> list[Value]:
            self.require(self.equal(self.type, python(f, "integer")))
            convert = python(f, "PyLong_AsLongLongAndOverflow")
            value = f.new(I64, f"call i64 {convert.name}({self.item}, {self.overflow})")
            self.require(self.equal(f.load(I32, self.overflow), 0))
            return [value]

        return f.branch(self.is_numpy, of_numpy, of_python)

    def _number(self) -> list[Value]:
        """The bits of a truth value or a float as a float64."""
        f = self.f
        is_truth = self.equal(self.form, table.FORMS.index("bool"))
        expected = f.select(is_truth, *(python(f, kind) for kind in ("truth value", "float")))
        self.require(f.arithmetic("or", self.is_numpy, self.equal(self.type, expected)))

        def truth() -> list[Value]:
            of_numpy = f.compare("ne", field_of(f, self.item, VALUE, I8), 0)
            value = f.select(self.is_numpy, of_numpy, self.equal(self.item, python(f, "True")))
            return [f.cast("uitofp", value, "double")]

        def shorter(dtypes: Sequence[str] = ("float32", "float16", "bfloat16")) -> list[Value]:
            def read() -> list[Value]:
                value = field_of(f, self.item, VALUE, Type(_ELEMENTS[dtypes[0]]))
                value = value if dtypes[0] == "float32" else widen(value)
                return [f.cast("fpext", value, "double")]

            if len(dtypes) == 1:
                return read()
            is_first = self.equal(self.form, table.FORMS.index(dtypes[0]))
            return f.branch(is_first, read, lambda: shorter(dtypes[1:]))

        def real() -> list[Value]:
            is_short = f.compare("ne", self.form, table.FORMS.index("float64"))
            is_short = f.arithmetic("and", self.is_numpy, is_short)
            double = lambda: [field_of(f, self.item, VALUE, Type("double"))]  # noqa: E731
            return f.branch(is_short, shorter, double)

        [value] = f.branch(is_truth, truth, real)
        return [f.cast("bitcast", value, "i64")]


class _Layout(_Words):
    """Emits a function that checks the strides of an array, and writes its span.

    The span is the addresses of the first byte, and of the one after the last byte. Strides are the
    expected ones, where there are several elements along them; no two elements of a written array
    may share an address.
    """

    def emit(self) -> None:
        """Emit the function."""
        self.returns_status(self._body)

    def _body(self) -> None:
        f = self.f
        item, spec, words, span, total = f.params
        self.shape = field_of(f, item, SHAPE, POINTER)
        self.strides = field_of(f, item, STRIDES, POINTER)
        self.rank, self.is_empty = self.at(spec, table.AXES), self.equal(total, 0)
        self.size = self.itemsize(spec)
        shift, sizes = self.at(spec, table.SHIFT), f.element(spec, self.rank + table.DIMS, I64)

        def fits(axis: Value, first: Value, last: Value) -> list[Value]:
            dim, stride = self.at(self.shape, axis), self.at(self.strides, axis)
            number = f.arithmetic("ashr", stride, shift)
            expected = self.expected(number, self.at(sizes, axis), words)
            same = self.equal(stride, expected * self.size)
            self.require(f.arithmetic("or", same, self._is_single(dim)))
            reach = (dim - 1) * stride
            low, high = f.intrinsic("smin", reach, 0), f.intrinsic("smax", reach, 0)
            return [first + low, last + high]

        data = field_of(f, item, DATA, I64)
        first, last = f.loop(0, self.rank, 1, [data, data + self.size], fits)
        written = f.arithmetic("and", self.at(spec, table.FLAG_BITS), WRITABLE)
        f.branch(f.compare("ne", written, 0), lambda: self.require(self._is_injective()))
        self.put(first, span, 0)
        self.put(f.select(self.is_empty, first, last), span, 1)

    def _is_single(self, dim: Value) -> Value:
        """True if the stride along a dimension does not matter."""
        return self.f.arithmetic("or", self.f.compare("sle", dim, 1), self.is_empty)

    def _is_injective(self) -> Value:
        """True if no two elements share an address, as axes nest in the order of their strides."""
        f = self.f

        def nests(_: Value, holds: Value, reach: Value, last: Value, done: Value) -> list[Value]:
            def nearer(axis: Value, least: Value, found: Value) -> list[Value]:
                stride = self.at(self.strides, axis)
                size = f.intrinsic("smax", stride, 0 - stride)
                same = f.arithmetic("and", self.equal(size, last), f.compare("sgt", axis, done))
                is_later = f.arithmetic("or", f.compare("sgt", size, last), same)
                is_next = f.arithmetic("and", is_later, f.compare("slt", size, least))
                return [f.select(is_next, size, least), f.select(is_next, axis, found)]

            size, axis = f.loop(0, self.rank, 1, [f.index((1 << 63) - 1), f.index(0)], nearer)
            dim = self.at(self.shape, axis)
            apart = f.arithmetic("or", f.compare("sge", size, reach), self._is_single(dim))
            return [f.arithmetic("and", holds, apart), reach + size * (dim - 1), size, axis]

        start = [f.const(BOOL, 1), self.size, f.index(-1), f.index(-1)]
        return f.arithmetic("or", f.loop(0, self.rank, 1, start, nests)[0], self.is_empty)
