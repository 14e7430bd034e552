"""The options of the command line, and its exit codes."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

from relaxpy import __version__
from relaxpy.errors import RelaxpyError, UnknownNameError, close_names
from relaxpy.plugins.cli import commands, language_models
from relaxpy.plugins.cli.show import FORMATS, UsageError, show_error, show_os_error, shown_warnings

_HELP: Final = """Check, transform, compile and run Relax programs.

A program is a file of TVMScript, of which nothing is executed as Python; a module in JSON; a saved
executable; or an ONNX model, whose name ends in .onnx. A dash stands for standard input. With
--import, or written as FILE.py:NAME or package.module:NAME, it is imported as Python does it, so
its code runs."""
_EXIT_CODES: Final = """exit codes:
  0  success
  1  the program or its input is wrong, or it failed while it ran
  2  the command is wrong: an option, a name in one, or a file that cannot be read or written"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, which `--help` lists.

    Errors go to standard error, without a traceback.
    """
    _prepare_streams()
    try:
        options = _options(argv)
    except SystemExit as stop:  # after --help and --version, or a message about an option
        return int(stop.code or 0)
    try:
        with shown_warnings(sys.stderr):
            code: int = options.command(options)
            sys.stdout.flush()
            return code
    except RelaxpyError as raised:
        error = _of_option(raised, options)
        show_error(error, sys.stderr, "relaxpy")
        of_program = any(diagnostic.where for diagnostic in error.diagnostics)
        return 2 if isinstance(error, (UsageError, UnknownNameError)) and not of_program else 1
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        show_os_error(error)
        return 2
    except MemoryError as error:
        print(f"relaxpy: error: there is not enough memory{error and ': '}{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _of_option(error: RelaxpyError, options: argparse.Namespace) -> RelaxpyError:
    """The error with the name of an option in its written form, if it is about the value of one."""
    name = getattr(error, "param", "")
    if not name or name not in options:
        return error
    return UsageError(f"--{name.replace('_', '-')}{str(error).removeprefix(name)}")


_TEXT: Final = ("utf-8", "strict")


def _prepare_streams() -> None:
    """Drop output to closed streams, and escape characters that an encoding lacks."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    stdin = sys.stdin
    if isinstance(stdin, io.TextIOWrapper) and (stdin.encoding, stdin.errors) != _TEXT:
        stdin.reconfigure(encoding=_TEXT[0], errors=_TEXT[1])


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser, known = _parser()
    command = next(iter(sys.argv[1:] if argv is None else argv), "")
    if command not in known and (close := close_names(command, known)):
        parser.error(f"there is no command {command!r}; {close}")
    options, rest = parser.parse_known_args(argv)
    # Inputs may follow options, which argparse does not allow for a list that may be empty.
    if rest and hasattr(options, "inputs") and not any(word.startswith("-") for word in rest):
        options.inputs = [*options.inputs, *rest]
    elif rest:
        usage = known[command]
        options_of_it = re.findall(r"--[\w-]+", usage.format_help())
        # Of abbreviations, such as --temp, the edit distance knows nothing.
        whole = (o for word in rest if len(word) > 3 for o in options_of_it if o.startswith(word))
        near = (close_names(word, options_of_it) for word in rest)
        found = filter(None, chain((f"did you mean {option!r}?" for option in whole), near))
        hint = next((f"; {hint}" for hint in found), "")
        usage.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    return options


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser, and those of the commands by name."""
    parser = argparse.ArgumentParser(
        "relaxpy",
        description=_HELP,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"relaxpy {__version__}")
    listed = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = ""
    ) -> argparse.ArgumentParser:
        about = f"{text[0].upper()}{text[1:]}.{more and ' '}{more}"
        command = listed.add_parser(name, help=text, description=about, allow_abbrev=False)
        command.set_defaults(command=run)
        return command

    command = add("check", commands.check, "report the errors of programs")
    command.add_argument(
        "files", nargs="+", metavar="FILE", help="a program, a folder, or - (stdin)"
    )
    command.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    command.add_argument(
        "--format",
        choices=("text", *FORMATS),
        default="text",
        help="text (the default), a list in JSON, or annotations of GitHub's workflows",
    )
    command.add_argument(
        "--json", dest="format", action="store_const", const="json", help="--format json"
    )
    command.add_argument("--watch", action="store_true", help="check again after each change")
    _add_import(command)

    command = add(
        "print", commands.print_, "print a program in normal form, in colour on a terminal"
    )
    _add_file(command)
    _add_program_output(command)

    command = add(
        "opt",
        commands.opt,
        "print a module after passes",
        "Without --passes and --pipeline, a reproducer runs the passes that it names.",
    )
    _add_file(command)
    group = command.add_mutually_exclusive_group()
    group.add_argument(
        "--passes",
        metavar="LIST",
        help="passes in order, with options: 'LegalizeOps,FuseOps(fuse_opt_level=0)'",
    )
    group.add_argument("--pipeline", metavar="NAME", help="a pipeline, such as default")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--explain", action="store_true", help="print a row for each pass instead")
    group.add_argument("--diff", action="store_true", help="print what each pass changed instead")
    group.add_argument(
        "--bisect",
        action="store_true",
        help="print the first pass that changes what the reference computes from random values",
    )
    command.add_argument("--random", type=_seed, metavar="SEED", help="the seed of --bisect")
    _add_program_output(command)

    command = add("compile", commands.compile_, "compile a program and save the executable")
    _add_compiled(command)
    command.add_argument(
        "--for",
        dest="codes",
        action="append",
        metavar="SYSTEM[:CPU]",
        help="save machine code for another system, such as linux-aarch64:neoverse-n1, or for"
        " `native`, this one; several are possible",
    )
    _add_sizes(command)
    _add_output(command, "the file of the executable", required=True)

    command = add(
        "export",
        commands.export,
        "write a program as a library for C, without Python, with its header",
        "OUT decides what: .o, .a, .wasm, or .so, .dylib and .dll, which a C compiler links. FILE"
        " may be a language model: a Hugging Face folder, or a GGUF file.",
    )
    _add_compiled(command)
    command.add_argument(
        "--for",
        dest="systems",
        action="append",
        metavar="SYSTEM[:CPU]",
        help="for another system, such as linux-aarch64:generic (default: this kind of CPU)",
    )
    _add_sizes(command)
    command.add_argument("--name", metavar="NAME", help="the prefix of symbols (default: OUT)")
    command.add_argument(
        "--weights",
        type=_written,
        metavar="FILE",
        help="write the constants to a file beside the library",
    )
    command.add_argument(
        "--pool", action="store_true", help="write a header with a pool of threads, too"
    )
    command.add_argument(
        "--extern",
        action="append",
        default=[],
        metavar="NAME",
        help="a packed function that is given in C; several are possible",
    )
    command.add_argument(
        "--at-most",
        action="append",
        metavar="NAME=SIZE",
        help="the largest value of a size that depends on data; several are possible",
    )
    language_models.add_model_options(command)
    command.add_argument(
        "--page", action="store_true", help="write a page that talks to a language model, for .wasm"
    )
    command.add_argument(
        "--tokens", action="store_true", help="write the tokenizer of a language model for C, too"
    )
    command.add_argument(
        "--sequences",
        type=_count,
        metavar="N",
        help="the texts that the cache of a language model has at a time (default: 1)",
    )
    _add_output(command, "the library", required=True)

    command = add(
        "warm",
        commands.warm,
        "compile programs for the cache on disk, so that they start fast",
        "Of a folder, all programs, ONNX models and executables (.rxp) in and below it.",
    )
    command.add_argument("files", nargs="+", metavar="FILE", help="a program, or a folder")
    _add_import(command)
    command.add_argument(
        "--target", metavar="NAME", help="that of all programs but executables, which have one"
    )

    command = add(
        "cache",
        commands.cache,
        "print what the cache on disk has, or remove it",
        "It may be removed at any time: what is missing is compiled again.",
    )
    command.add_argument("--clear", action="store_true", help="remove all files of the cache")

    command = add(
        "run",
        commands.run,
        "call a function of a program",
        "An INPUT is a .npy file, a .npz file with arrays by name, or a Python literal.",
    )
    _add_compiled(command)
    _add_inputs(command)
    _add_output(command, "write the result to a .npy or .npz file")

    command = add(
        "profile",
        commands.profile,
        "print the time of a call by kernel",
        "With --prompt, FILE is a language model: its prompt and a token, by operator and layer.",
    )
    _add_compiled(command)
    _add_inputs(command)
    command.add_argument("--prompt", metavar="TEXT", help="what a language model reads")
    language_models.add_model_options(command)
    command.add_argument("--repeat", type=_count, default=5, metavar="N", help="calls (default: 5)")
    command.add_argument(
        "--trace",
        type=_written,
        metavar="OUT",
        help="write the time line in JSON, for Chrome or Perfetto",
    )
    command.add_argument("--json", action="store_true", help="print a list in JSON")

    command = add("report", commands.report, "print how each kernel runs, and why")
    _add_compiled(command)
    command.add_argument("--json", action="store_true", help="print a list in JSON")

    command = add("source", commands.source, "print the generated code")
    _add_compiled(command)
    command.add_argument(
        "--kind",
        choices=("python", "llvm", "asm", "tree"),
        default="python",
        help="Python code (the default), LLVM IR, assembly, or the loops of kernels",
    )
    command.add_argument("--kernel", metavar="NAME", help="only this kernel")

    command = add(
        "graph",
        commands.graph,
        "draw the dataflow of a program",
        "Without --output, the text of Mermaid is printed. Faults are marked in the picture.",
    )
    _add_file(command)
    _add_output(command, "a file: .svg, .html, .mmd (Mermaid) or .dot")
    command.add_argument("--pipeline", metavar="NAME", help="draw the program after these passes")
    command.add_argument(
        "--fold",
        choices=("auto", "all", "none"),
        default="auto",
        help="which boxes are closed: layers and fused groups (the default), all, or none",
    )

    command = add(
        "lsp",
        commands.lsp,
        "answer an editor, as a language server",
        "It needs the extra lsp. Editors start it, and speak to it over standard input and output.",
    )
    command.add_argument(
        "--stdio", action="store_true", help="use standard input and output, as always"
    )

    command = add("passes", commands.passes, "list the passes and pipelines, or explain a pass")
    command.add_argument("name", nargs="?", metavar="PASS", help="such as FuseOps")
    add("targets", commands.targets, "list the targets, and say which is the default here")
    add("doctor", commands.doctor, "print what affects speed on this machine")
    command = add("explain", commands.explain_rule, "explain rules that errors cite")
    command.add_argument("rules", nargs="+", metavar="RULE", help="such as DER-36")
    language_models.add_commands(add)
    return parser, listed.choices


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="a program, or - for standard input")
    _add_import(command)


def _add_import(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--import",
        dest="imported",
        action="store_true",
        help="import FILE as Python does, which runs its code, instead of only reading it",
    )


def _add_output(command: argparse.ArgumentParser, text: str, *, required: bool = False) -> None:
    command.add_argument(
        "-o", "--output", type=_written, required=required, metavar="OUT", help=text
    )


def _add_program_output(command: argparse.ArgumentParser) -> None:
    _add_output(command, "write the program to a file; JSON if it ends so")


def _add_compiled(command: argparse.ArgumentParser) -> None:
    _add_file(command)
    command.add_argument(
        "--target", metavar="NAME", help="one of `relaxpy targets`, which names the default"
    )
    command.add_argument(
        "--pipeline", metavar="NAME", help="the passes before compilation (default: default)"
    )


def _add_sizes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dim",
        dest="sizes",
        action="append",
        metavar="NAME=SIZE",
        help="fix a dimension, such as the batch; several are possible",
    )


def _add_inputs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "inputs",
        nargs="*",
        default=[],  # which makes INPUT optional in messages too
        metavar="INPUT",
        help="an argument, or NAME=INPUT for a parameter",
    )
    command.add_argument(
        "--input", action="append", default=[], metavar="NAME=INPUT", help="the same as INPUT"
    )
    command.add_argument(
        "--random", type=_seed, metavar="SEED", help="random values for all other parameters"
    )
    command.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="for --random"
    )
    command.add_argument("--function", metavar="NAME", help="default: main, or the only one")


def _written(path: str) -> str:
    """The path of a file to write, which is checked before the work that it takes."""
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"there is no folder {folder!r}")
    return path


def _count(text: str) -> int:
    """The positive integer that `text` writes."""
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, found {text!r:.60}")
    return int(text)


def _seed(text: str) -> int:
    """The natural number that `text` writes."""
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(
            f"expected 0, 1, 2, ... with up to 18 digits, found {text!r:.60}"
        )
    return int(text)
