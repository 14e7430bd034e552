"""Writes the JavaScript that loads an exported program, and its types for TypeScript.

The text has a table of the functions, their tensors and sizes; all else is the same for every
program (`module.js`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from relaxpy import __version__
from relaxpy.errors import CompileError
from relaxpy.exec.export.c_header import safe
from relaxpy.exec.export.table import ExportedFunction, ExportedProgram, ExportedTensor, Field
from relaxpy.exec.native.llvm.narrow_floats import FLOATS_OF_8_BITS
from relaxpy.ir.arith.algebra.folding import operands_of_choice
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir

_ARRAYS: Final = {
    "bool": "Uint8Array",
    **{f"int{n}": f"Int{n}Array" for n in (8, 16, 32)},
    **{f"uint{n}": f"Uint{n}Array" for n in (8, 16, 32)},
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    **dict.fromkeys(("float16", "bfloat16"), "Uint16Array"),
    **dict.fromkeys(FLOATS_OF_8_BITS, "Uint8Array"),
    "float32": "Float32Array",
    "float64": "Float64Array",
}
"""The typed array of each datatype; floats of 8 and 16 bits are given as their bits."""
_BYTES: Final = {"pointer": 4, "int64": 8}
_RUNTIME: Final = Path(__file__).with_name("module.js")


def javascript_of(
    program: ExportedProgram, builds: Mapping[str, str], weights: str | None = None
) -> str:
    """The module that loads `program`; `builds` are the files by the CPU that they are for.

    The first one that the engine has the instructions for is taken. `weights` is the file of the
    weights, if they are in one.

    Errors:
        CompileError: a dimension has an operation that is not written in JavaScript.
    """
    functions = {function.name: _table(function) for function in program.functions}
    lines = (f"  {json.dumps(name)}: {_listed(table)},\n" for name, table in functions.items())
    text = _RUNTIME.read_text(encoding="utf-8")
    values = {
        "@NAME@": program.name,
        "@VERSION@": __version__,
        "@FUNCTIONS_IN_WORDS@": "\n".join(f"//   {line}" for line in _described(program)),
        "@BUILDS@": json.dumps([{"cpu": cpu, "file": file} for cpu, file in builds.items()]),
        "@WEIGHTS@": json.dumps(weights),
        "@WEIGHTS_BYTES@": str(program.weights_bytes),
        "@PREFIX@": json.dumps(program.name),
        "@FUNCTIONS@": "".join(lines),
    }
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def _described(program: ExportedProgram) -> Iterable[str]:
    for function in program.functions:
        given = ", ".join(map(_in_words, function.inputs))
        found = ", ".join(map(_in_words, function.outputs))
        yield f"{safe(function.name)}: ({given}) -> ({found})"


def _in_words(tensor: ExportedTensor) -> str:
    sizes = ", ".join(ShortText().prim(size, INT64) for size in tensor.sizes)
    return safe(f"{tensor.name}: {tensor.dtype}[{sizes}]")


def _table(function: ExportedFunction) -> Mapping[str, str]:
    """The entries of a function's table, as text of JavaScript."""
    names = {id(var): name for name, var in function.sizes.items()}
    variables = ", ".join(function.sizes)
    head = f"({{ {variables} }}) =>" if variables else "() =>"

    def tensor(each: ExportedTensor) -> str:
        shape = ", ".join(_text(size, names) for size in each.shape)
        entries = {
            "name": json.dumps(each.name),
            "label": json.dumps(each.label),
            "dtype": json.dumps(each.dtype),
            "array": _ARRAYS[each.dtype],
            "shape": f"{head} [{shape}]",
        }
        if each.written:
            entries["written"] = "true"
            if all(isinstance(size, tir.IntImm) for size in each.shape):
                entries["kept"] = "true"
        if each.actual is not None:
            entries["measured"] = "true"
        if each.same_as:
            entries["sameAs"] = json.dumps(each.same_as)
        given = [names.get(id(size)) for size in each.shape]
        if any(given):
            entries["sizes"] = json.dumps(given)
        return _listed(entries)

    def tensors(every: Sequence[ExportedTensor]) -> str:
        return "[" + "".join(f"\n      {tensor(each)}," for each in every) + "\n    ]"

    return {
        "symbol": json.dumps(function.symbol),
        "sizes": json.dumps([*function.sizes]),
        "inputs": tensors(function.inputs),
        "outputs": tensors(function.outputs),
        "inputFields": json.dumps(_places(function.input_fields())),
        "outputFields": json.dumps(_places(function.output_fields())),
    }


def _listed(entries: Mapping[str, str]) -> str:
    return "{ " + ", ".join(f"{name}: {value}" for name, value in entries.items()) + " }"


def _places(fields: Iterable[Field]) -> dict[str, int]:
    """The offsets of the fields of a struct, and its size as that of the field ""."""
    places, end = dict[str, int](), 0
    for field in fields:
        width = _BYTES[field.kind]
        start = -(-end // width) * width
        places[field.name], end = start, start + width * field.count
    return {**places, "": -(-end // 8) * 8}


_BINARY: Final[Mapping[type[tir.PrimExpr], str]] = {
    tir.Add: "({a} + {b})",
    tir.Sub: "({a} - {b})",
    tir.Mul: "({a} * {b})",
    tir.FloorDiv: "Math.floor({a} / {b})",
    tir.FloorMod: "({a} - Math.floor({a} / {b}) * {b})",
    tir.Div: "Math.trunc({a} / {b})",
    tir.Mod: "({a} % {b})",
    tir.Min: "Math.min({a}, {b})",
    tir.Max: "Math.max({a}, {b})",
    tir.And: "({a} && {b})",
    tir.Or: "({a} || {b})",
    tir.EQ: "({a} === {b})",
    tir.NE: "({a} !== {b})",
    tir.LT: "({a} < {b})",
    tir.LE: "({a} <= {b})",
    tir.GT: "({a} > {b})",
    tir.GE: "({a} >= {b})",
}


def _text(size: tir.PrimExpr, names: Mapping[int, str]) -> str:
    """A dimension over the variables of a function in JavaScript."""
    match size:
        case tir.IntImm():
            return str(size.value)
        case tir.Var():
            return names[id(size)]
        case tir.Cast():
            return _text(size.value, names)
        case _ if choice := operands_of_choice(size):
            return "({} ? {} : {})".format(*(_text(each, names) for each in choice))
        case _:
            form = _BINARY.get(type(size))
    if form is None:
        raise CompileError(
            f"the dimension {size} has an operation that model.js does not compute",
            hint="compute the size in the program, and pass it as a parameter",
        )
    a, b = (_text(each, names) for each in (size.a, size.b))  # type: ignore[attr-defined]
    return form.format(a=a, b=b)


def declarations_of(program: ExportedProgram) -> str:
    """The types of TypeScript for the module of `javascript_of`."""
    lines = [f"// Written by relaxpy {__version__}: the types of {program.name}.js.", ""]
    lines += _DECLARED.splitlines()
    entries: dict[str, str] = {}
    for function in program.functions:
        title = "".join(part[:1].upper() + part[1:] for part in function.symbol.split("_"))
        sizes = ", ".join(f"{name}: number" for name in function.sizes)
        lines += [f"/** The inputs of `{safe(function.name)}`: arrays, or those with shapes. */"]
        lines += [f"export interface {title}Inputs {{"]
        lines += [
            f"  /** {_in_words(t)} */\n  {t.name}: {_ARRAYS[t.dtype]} | Shaped<{_ARRAYS[t.dtype]}>;"
            for t in function.inputs
        ]
        lines += [
            "}",
            f"/** The outputs of `{safe(function.name)}`. */",
            f"export interface {title}Outputs {{",
        ]
        lines += [
            f"  /** {_in_words(t)} */\n  {t.name}: Tensor<{_ARRAYS[t.dtype]}>;"
            for t in function.outputs
        ]
        lines += ["}"]
        views = "; ".join(f"readonly {t.name}: {_ARRAYS[t.dtype]}" for t in function.inputs)
        entry = f"Compiled<{title}Inputs, {title}Outputs, {{ {views} }}, {{ {sizes} }}>"
        entries[function.name] = entry
    lines += ["export interface Model {", *_MODEL.splitlines(), "  readonly functions: {"]
    lines += [f"    readonly {json.dumps(name)}: {entry};" for name, entry in entries.items()]
    first = next(iter(entries.values()))
    lines += ["  };", "  /** The first function. */", f"  readonly main: {first};"]
    shortcuts = ("inputs", "outputs", "sizes", "resize", "run")
    lines += [f'  readonly {name}: Model["main"]["{name}"];' for name in shortcuts]
    return "\n".join([*lines, "}", ""])


_DECLARED: Final = """\
/** A typed array with the shape of its elements, in row-major order. */
export type Tensor<A> = A & { readonly shape: number[] };
/** Elements with a shape, for tensors whose sizes do not follow from their number. */
export interface Shaped<A> { data: A; shape: number[]; }
/** An error of the model (`status` > 0) or of its use, with the index and the size it is about. */
export class ModelError extends Error { status: number; index: number; size: number; }
export type Source = string | URL | BufferSource | Response;
export interface Options {
  /** An address, the bytes, a response, or a compiled module; or one of these for each CPU. */
  wasm?: Source | WebAssembly.Module | Record<string, Source | WebAssembly.Module>;
  /** Where the weights are, if they are a file of their own. */
  weights?: Source;
  /** The instructions to use; by default the best that the engine has. */
  cpu?: string;
}
export interface Compiled<Inputs, Outputs, Views, Sizes> {
  /** The memory of the inputs, to be filled without a copy; new sizes change it. */
  readonly inputs: Views;
  /** The memory of the outputs, which the next call overwrites. */
  readonly outputs: Outputs;
  /** The sizes that the memory is for. */
  readonly sizes: Sizes;
  /** Make room for other sizes. */
  resize(sizes: Sizes): void;
  /** The outputs, as copies, for these inputs; those that are missing stay. */
  run(inputs?: Partial<Inputs>): Outputs;
  /** Run with the inputs in memory; the results are `outputs`. */
  runInPlace(): void;
}
export function load(options?: Options): Promise<Model>;
"""
_MODEL: Final = """\
  /** The instructions in use. */
  readonly cpu: string;
  /** Whether the engine rounds a product and a sum once, as native code does. */
  readonly fuses: boolean;
  readonly memory: WebAssembly.Memory;
"""
