"""The header of an exported program for C and C++."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import cast

from relaxpy.exec.export.c_types import c_type
from relaxpy.exec.export.table import MISUSE, ExportedFunction, ExportedProgram, ExportedTensor
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.op import Op
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir.expr import Call, IntImm, PrimExpr


def header_of(program: ExportedProgram) -> str:
    """The text of the header."""
    name = program.name
    guard = f"{name.upper()}_H"
    inside = "inside of the library" if program.weights_inside else f"in {name}.weights"
    about = [
        f"A model as a library, written by relaxpy for {program.machine.platform.name}.",
        "",
        "A call allocates nothing, and changes nothing but results, the workspace and the inputs"
        " that are said to be written. Calls may run at the same time if these differ. Tensors are"
        " contiguous, in row-major order, and aligned to their elements; a bool is 0 or 1; results"
        " overlap no other tensor. A workspace has any alignment. After an error, results are"
        " undefined, and inputs that are written may be changed in part.",
    ]
    if program.constants:
        about += ["", f"The weights ({program.weights_bytes} bytes) are {inside}."]
    lines = [
        *_comment(about),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_comment(["The version of relaxpy that has written the library."]),
        f"const char *{name}_version(void);",
        *_comment(["The instructions of the CPU that the library uses."]),
        f"const char *{name}_cpu_needed(void);",
        *_comment(["0 if this CPU has them, otherwise the status of every call."]),
        f"int32_t {name}_cpu(void);",
        *_comment(["The text of a status: 0 is success.", *_statuses(program)]),
        f"const char *{name}_error(int32_t status);",
        "",
        *_comment(
            [
                "Threads that run tasks: parallel_for calls task(work, n, thread) once for each n"
                " below tasks, and returns after all of them. The number of the thread is below"
                " count, and differs between calls that run at the same time."
            ]
        ),
        f"typedef struct {name}_threads {{",
        "    void (*parallel_for)(void *owner,",
        "                         void (*task)(void *work, int64_t n, int64_t thread),",
        "                         void *work, int64_t tasks);",
        "    void *owner;   /* the first argument of parallel_for */",
        "    int64_t count; /* the number of threads, at least 1 */",
        f"}} {name}_threads;",
        "",
    ]
    for function in program.functions:
        lines += _function(program, function)
    for declaration in program.externs.values():
        yours = "Your function, which the program calls: 0, or a status that ends the call."
        lines += [*_comment([yours]), declaration, ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _statuses(program: ExportedProgram) -> Iterator[str]:
    for number, text in (*sorted(MISUSE.items(), reverse=True), *enumerate(program.errors, 1)):
        yield f"{number}: {text}"


def _function(program: ExportedProgram, function: ExportedFunction) -> Iterator[str]:
    name, symbol = program.name, function.symbol
    fields = [*function.input_fields()]
    labels = {tensor.name: tensor for tensor in function.inputs}
    yield from _comment([f"The inputs of {function.name}."])
    yield f"typedef struct {symbol}_inputs {{"
    for field in fields:
        if field.name in labels:
            tensor = labels[field.name]
            const = "" if tensor.written else "const "
            note = ", written in place" if tensor.written else ""
            yield f"    {const}{c_type(tensor.dtype)} *{field.name}; /* {_about(tensor)}{note} */"
        elif field.name == "weights":
            yield f"    const void *weights; /* {name}.weights, at a multiple of 64 bytes */"
        elif field.name == "weights_bytes":
            yield "    int64_t weights_bytes; /* of the weights, checked if not 0 */"
        elif field.name == "threads":
            yield f"    const {name}_threads *threads; /* null: the caller runs all tasks */"
        elif field.name == "workspace_bytes":
            yield "    int64_t workspace_bytes; /* of the workspace, checked if not 0 */"
        else:
            limit = f"its absolute value is below {function.limit}"
            yield f"    int64_t {field.name}; /* a size; {limit} */"
    yield f"}} {symbol}_inputs;"
    yield ""
    yield from _comment([f"The results of {function.name}.", *_same(function.outputs)])
    yield f"typedef struct {symbol}_outputs {{"
    results = {tensor.name: tensor for tensor in function.outputs if not tensor.same_as}
    found = {f"{name}_shape" for name, tensor in results.items() if tensor.actual is not None}
    for field in function.output_fields():
        if field.name in results:
            tensor = results[field.name]
            yield f"    {c_type(tensor.dtype)} *{field.name}; /* {_about(tensor)} */"
        elif field.name == "failed_index":
            yield "    int64_t failed_index; /* after an error: the index or size that is wrong */"
        elif field.name == "failed_size":
            yield "    int64_t failed_size;  /* and the size that limits it, or is expected */"
        else:
            by = "the call" if field.name in found else f"{symbol}_result_sizes"
            yield f"    int64_t {field.name}[{field.count}]; /* set by {by} */"
    yield f"}} {symbol}_outputs;"
    yield ""
    yield from _comment(
        [
            "The bytes of the workspace of a call, which depend on the sizes and the threads of the"
            f" inputs alone: {written(function.workspace)}. A negative number is a status."
        ]
    )
    if isinstance(function.workspace, IntImm):
        yield f"#define {symbol.upper()}_WORKSPACE {function.workspace.value}"
    yield f"int64_t {symbol}_workspace(const {symbol}_inputs *inputs);"
    largest = "; the largest ones of those that depend on data" if found else ""
    yield from _comment(
        [
            "Store the shapes of the results, which depend on the sizes of the inputs"
            f" alone{largest or '.'}"
        ]
    )
    yield f"int32_t {symbol}_result_sizes(const {symbol}_inputs *inputs,"
    yield f"{' ' * len(f'int32_t {symbol}_result_sizes(')}{symbol}_outputs *outputs);"
    yield from _comment([f"Run {function.name}: 0, or a status."])
    yield f"int32_t {symbol}(const {symbol}_inputs *inputs, {symbol}_outputs *outputs,"
    yield f"{' ' * len(f'int32_t {symbol}(')}void *workspace);"
    yield ""


def _same(outputs: Sequence[ExportedTensor]) -> Iterator[str]:
    for tensor in outputs:
        if tensor.same_as:
            yield f"The result {tensor.label} is {tensor.same_as} itself."


def _about(tensor: ExportedTensor) -> str:
    """The datatype, the shape, and the name in the program if it is another one."""
    shape, most = ", ".join(map(written, tensor.sizes)), ""
    if tensor.actual is not None:
        most = f", with room for ({', '.join(map(written, tensor.shape))})"
    label = "" if tensor.label == tensor.name else f"{tensor.label}: "
    return safe(f"{label}{tensor.dtype} ({shape}){most}")


def written(size: PrimExpr) -> str:
    """A size as the program writes it."""
    size = cast("PrimExpr", rewrite(size, _computed_plainly))
    return safe(ShortText().prim(size, INT64).replace("T.max", "max").replace("T.min", "min"))


def _computed_plainly(node: Node) -> Node | None:
    """An expression without the marks of arithmetic that wraps (`loops/nest/wrapping.py`)."""
    match node:
        case Call(op=Op(name="tir.reinterpret"), args=(value,)) if value.dtype == node.dtype:
            return rewrite(value, _computed_plainly)
        case _:
            return None


def safe(text: str) -> str:
    """Text of a program in a comment of C, which it does not end."""
    return (
        "".join(c if " " <= c <= "~" else "?" for c in text)
        .replace("*/", "* /")
        .replace("/*", "/ *")
    )


def _comment(paragraphs: Sequence[str]) -> Iterator[str]:
    """A comment; short ones are one line."""
    lines = [line for text in paragraphs for line in (wrap(safe(text), 94) or [""])]
    if len(lines) == 1:
        yield f"/* {lines[0]} */"
        return
    yield f"/* {lines[0]}"
    yield from (f" * {line}".rstrip() for line in lines[1:-1])
    yield f" * {lines[-1]} */"
