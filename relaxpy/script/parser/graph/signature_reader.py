"""Signatures of graph functions: parameters, their shape variables, result struct info."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field

from relaxpy.errors import MisuseError, RelaxpyError, close_names
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.infer import function_sinfo
from relaxpy.ir.tir import expr as tir
from relaxpy.script.language.annotations import Prim, is_annotation, resolve, string_dims
from relaxpy.script.language.records import DatatypeName, as_dtype
from relaxpy.script.language.wording import as_parse_error, describe
from relaxpy.script.parser.graph.expressions import GraphEvaluator
from relaxpy.script.parser.source import (
    MISSING,
    POISON,
    Poisoned,
    Report,
    quoted_tree,
    type_parameters,
)
from relaxpy.support.dataclass import dataclass


@dataclass(slots=True)
class Signature:
    """The signature of a function: parameters and shape variables by name.

    A parameter may have the name of a shape variable; without quotes, the name is the parameter.
    With `returns_tuple`, the result is a tuple whose fields are derived (`-> R.Tuple`).
    """

    params: tuple[rx.Var, ...] = ()
    ret: rx.StructInfo | None = None
    names: dict[str, object] = field(default_factory=dict)
    shape_vars: dict[str, tir.Var] = field(default_factory=dict)
    returns_tuple: bool = False
    complete: bool = True

    def func_struct_info(self, *, pure: bool) -> rx.FuncStructInfo:
        """The struct info that callers use (DER-1, DER-44)."""
        ret = self.ret if self.ret is not None else rx.ObjectStructInfo()
        body = rx.SeqExpr((), rx.Tuple(()))
        return function_sinfo(rx.Function(self.params, body, self.ret, pure), ret)


class SignatureReader:
    """Parses one signature.

    A bare name among string dimensions defines a shape variable, in any position, and may declare
    its datatype, "n: int32"; other strings are expressions over those.
    """

    def __init__(self, values: GraphEvaluator, report: Report) -> None:
        self.values = values
        self.report = report
        self.result = Signature()
        self.pending: dict[str, ast.arg] = {}
        self.quoted: set[str] = set()
        self.dtypes: dict[str, DataType] = {}
        self.literals: dict[ast.expr, dict[str, ast.Constant]] = {}
        self.size_vars: frozenset[str] = frozenset()
        self.used: set[str] = set()
        """The names in the annotations."""
        self.scalars: dict[str, rx.Var] = {}
        """The parameters whose names and values annotations use: there, `n` is the value."""
        self.values_in_body: set[str] = set()
        """Those that are written `n: T.int64`: their names are the values in the body, too."""

    def read(self, node: ast.FunctionDef) -> Signature:
        """Parse the signature of `node`; errors in it are reported."""
        args = [*node.args.posonlyargs, *node.args.args]
        self.refuse_extras(node.args)
        self.size_vars = frozenset(_declared_size_vars(node.body))
        outer, self.values.shape_var_of = self.values.shape_var_of, self.variable
        try:
            self.read_parameters(node, args)
        finally:
            self.values.shape_var_of = outer
        return self.result

    def read_parameters(self, node: ast.FunctionDef, args: Sequence[ast.arg]) -> None:
        """Parse the parameters and the result."""
        with self.values.scope.inner() as names:
            self.result.names = names
            names.update((extra.arg, POISON) for extra in _extras(node.args))
            for name in type_parameters(node, self.values.error, self.report):
                names[name] = self.variable(name)
            self.pending = {arg.arg: arg for arg in args}
            annotations = [arg.annotation for arg in args if arg.annotation is not None]
            self.quoted = {_split_dtype(str(n.value))[0] for a in annotations for n in _strings(a)}
            written = filter(None, [*annotations, node.returns])
            self.used = {n.id for a in written for n in ast.walk(a) if isinstance(n, ast.Name)}
            for name, dtype in _declared_dtypes(annotations):
                self.dtypes.setdefault(name, dtype)
            for arg in args:
                self.parameter(arg.arg)
            if node.returns is not None:
                # A Callable in the result binds shape variables, which may occur to its left.
                self.quoted |= {_split_dtype(str(n.value))[0] for n in _strings(node.returns)}
                ret = self.struct_info(node.returns, binds=False)
                match node.returns, ret:
                    case ast.Attribute(attr="Tuple"), rx.TupleStructInfo(fields=()):
                        self.result.returns_tuple = True
                    case _:
                        self.result.ret = ret
            params = [self.scalars.get(arg.arg, names[arg.arg]) for arg in args]
            names.update((n, p) for n, p in self.scalars.items() if n not in self.values_in_body)
        self.result.params = tuple(p for p in params if isinstance(p, rx.Var))
        self.result.complete &= len(self.result.params) == len(args)

    def refuse_extras(self, spec: ast.arguments) -> None:
        """Report parameters other than plain positional ones, and names that occur twice."""
        for error in self.values.program.repeated(spec):
            self.wrong(error)
        for extra in _extras(spec):
            self.wrong(
                self.values.error(
                    extra,
                    "a function has plain positional parameters only",
                    hint="for several values take a tuple, R.Tuple(..., ...)",
                )
            )
        for default in filter(None, [*spec.defaults, *spec.kw_defaults]):
            self.wrong(
                self.values.error(
                    default,
                    "parameters of a function have no defaults",
                    hint="use the value in the body",
                )
            )

    def wrong(self, error: RelaxpyError) -> None:
        """Report an error, so that callers do not rely on this signature."""
        self.result.complete = False
        self.report.add(error)

    def variable(self, name: str) -> tir.Var:
        """The shape variable of this name: one in scope (SC-15), or a new one."""
        known = self.result.shape_vars.get(name)
        if known is not None:
            return known
        outer = self.values.scope.find_bound(name)
        kind = tir.SizeVar if name in self.size_vars else tir.Var
        dtype = self.dtypes.get(name, INT64)
        var = outer if isinstance(outer, tir.Var) else kind(name, dtype)
        self.result.shape_vars[name] = var
        return var

    def parameter(self, name: str) -> object:
        """Create the parameter of this name, after the parameters that its annotation uses."""
        arg = self.pending.pop(name, None)
        names = self.result.names
        if arg is None:
            return names.get(name, POISON)
        sinfo: rx.StructInfo | None = rx.ObjectStructInfo()
        if arg.annotation is None and name == "self":
            error = self.values.error(
                arg,
                "functions of a module are not methods: they take no self",
                hint="leave it out; others are called by the name of the class",
            )
            self.wrong(error)
            sinfo = None
        elif arg.annotation is not None:
            for used in ast.walk(arg.annotation):
                if isinstance(used, ast.Name) and used.id in self.pending:
                    self.parameter(used.id)
            sinfo = self.struct_info(arg.annotation, scalar=name if name in self.used else "")
        param = POISON if sinfo is None else rx.Var(name, sinfo, self.values.span(arg))
        names[name] = param
        if isinstance(param, rx.Var) and isinstance(param.struct_info, rx.PrimStructInfo):
            value = param.struct_info.value
            if name in self.used and isinstance(value, tir.Var) and value.name == name:
                self.scalars[name], names[name] = param, value
        return param

    def struct_info(
        self, node: ast.expr, *, binds: bool = True, scalar: str = ""
    ) -> rx.StructInfo | None:
        """The struct info of an annotation, or None if it has errors, which are reported.

        Without `binds`, as for the result, its names must be bound already. If the annotation is
        `T.int64`, that is a value called `scalar`, which others use.
        """
        try:
            with self.values.in_annotation():
                value = self.values.value(node)
            if scalar and isinstance(value, DatatypeName) and value.dtype == INT64:
                value = Prim(
                    value=self.result.shape_vars.setdefault(scalar, tir.Var(scalar, INT64))
                )
                self.values_in_body.add(scalar)
            if not is_annotation(value) and value is not None:
                raise self.values.error(
                    node,
                    f"an annotation is a struct info such as R.Tensor, found {describe(value)}",
                    rule="LEG-7" if isinstance(value, tuple) else "AST-5",
                    hint="leave out the quotes"
                    if isinstance(value, str)
                    else _REPLACEMENTS["tuple"]
                    if isinstance(value, tuple)
                    else _REPLACEMENTS.get(
                        getattr(value, "__name__", getattr(value, "display_name", ""))
                    ),
                )
            for text in () if binds else string_dims(value, in_functions=False):
                self.check_bound(text, node)
            return resolve(value, lambda text: self.dim(text, node))
        except Poisoned:
            self.result.complete = False
        except RelaxpyError as error:
            self.wrong(as_parse_error(error, self.values.span(node)))
        return None

    def check_bound(self, text: str, annotation: ast.expr) -> None:
        """Check that parameters or the enclosing scope bind the names of the result (WF-4)."""
        name, _ = _split_dtype(text)
        is_name = name.isidentifier()
        for used in (name,) if is_name else _names_in(name):
            outer = self.values.scope.find_bound(used) if is_name else self.values.scope.find(used)
            known = isinstance(outer, tir.Var) if is_name else outer is not MISSING
            if known or used in self.result.shape_vars:
                continue
            self.result.names[used] = POISON
            raise self.values.error(
                self.literal_of(text, annotation),
                f"shape variable {used!r} of the result is bound by no parameter",
                rule="WF-4",
                hint=close_names(used, self.result.shape_vars)
                or "use dimensions of the parameters, or an unknown shape: R.Tensor(ndim=...)",
            )

    def dim(self, text: str, annotation: ast.expr) -> tir.PrimExpr:
        """The expression of a string dimension."""
        name, dtype = _split_dtype(text)
        if name.isidentifier() and not dtype:
            return self.variable(name)
        literal = self.literal_of(text, annotation)
        if name.isidentifier():
            var = self.variable(name)
            try:
                if var.dtype == as_dtype(dtype):
                    return var
            except MisuseError as error:
                raise as_parse_error(error, self.values.span(literal)) from None
            message = f"{name!r} is {var.dtype} already, it cannot be {dtype}"
            raise self.values.error(literal, message, rule="PX-9")
        for used in _names_in(name):
            if used in self.quoted:
                self.variable(used)
            elif used not in self.result.shape_vars and self.values.scope.find(used) is MISSING:
                self.result.names[used] = POISON
                raise self.values.error(
                    literal,
                    f"shape variable {used!r} is bound nowhere: it is not a whole dimension of any "
                    "parameter",
                    rule="WF-6a",
                    hint=close_names(used, (q for q in self.quoted if q.isidentifier()))
                    or f'pass it in by a parameter, as in s: R.Shape(["{used}"])',
                )
        with self.values.scope.inner(self.result.shape_vars):
            value = self.values.quoted(literal)
        if isinstance(value, bool) or not isinstance(value, (int, tir.PrimExpr)):
            raise self.values.error(
                literal, f"a dimension is an integer expression, found {describe(value)}"
            )
        return value if isinstance(value, tir.PrimExpr) else tir.IntImm(INT64, value)

    def literal_of(self, text: str, annotation: ast.expr) -> ast.Constant:
        """The literal of a dimension; for a computed string, one at the annotation."""
        if annotation not in self.literals:
            strings = reversed(_strings(annotation))  # of equal ones, the first is kept
            self.literals[annotation] = {str(node.value): node for node in strings}
        literal = self.literals[annotation].get(text)
        return ast.copy_location(ast.Constant(text), annotation) if literal is None else literal


#: Hints for values that are not annotations, by their names or classes.
_REPLACEMENTS = {
    "T.Buffer": 'tensors of a graph function are written as in R.Tensor((4, 4), "float32")',
    "ndarray": 'tensors are written as in R.Tensor((4, 4), "float32")',
    "int": 'for a number write R.Prim("int64")',
    "float": 'for a number write R.Prim("float32")',
    "bool": 'for a truth value write R.Prim("bool")',
    "str": 'struct info is written as in R.Tensor((4, 4), "float32")',
    "list": "for several values write R.Tuple(..., ...)",
    "tuple": "for several values write R.Tuple(..., ...)",
}


def _extras(spec: ast.arguments) -> list[ast.arg]:
    """The parameters of the kinds that functions cannot have."""
    return [arg for arg in (spec.vararg, *spec.kwonlyargs, spec.kwarg) if arg is not None]


def _declared_size_vars(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that `n = T.int64(is_size_var=True)` in a body declares as SizeVars."""
    for statement in body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    keywords=[ast.keyword(arg="is_size_var", value=ast.Constant(value=True))]
                ),
            ):
                yield name
            case _:
                pass


def _split_dtype(text: str) -> tuple[str, str]:
    """Split a string dimension into the dimension and the datatype that may follow a name."""
    name, _, dtype = text.partition(":")
    return (name.strip(), dtype.strip()) if name.strip().isidentifier() else (text.strip(), "")


def _declared_dtypes(annotations: Iterable[ast.expr]) -> Iterator[tuple[str, DataType]]:
    """Shape variables with declared datatypes: "n: int32", R.Prim("int32", value="n")."""
    for node in (n for annotation in annotations for n in ast.walk(annotation)):
        name = dtype = ""
        match node:
            case ast.Constant(value=str() as text):
                name, dtype = _split_dtype(text)
            case ast.Call(func=ast.Attribute(attr="Prim"), args=args, keywords=keywords):
                operands = dict(zip(("dtype", "value"), args, strict=False))
                operands.update((k.arg, k.value) for k in keywords if k.arg is not None)
                texts = [getattr(operands.get(key), "value", None) for key in ("dtype", "value")]
                dtype, name = (text.strip() if isinstance(text, str) else "" for text in texts)
            case _:
                pass
        if name.isidentifier() and dtype:
            with suppress(MisuseError):  # reported when the annotation is evaluated
                yield name, as_dtype(dtype)


def _strings(node: ast.expr) -> list[ast.Constant]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _names_in(text: str) -> set[str]:
    tree = quoted_tree(text)
    return (
        set()
        if isinstance(tree, str)
        else {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    )
