"""The text of Relax functions, blocks, bindings and expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import bound_vars
from relaxpy.ir.relax.block_builder.infer import signature_of
from relaxpy.ir.relax.op import registered_ops
from relaxpy.ir.short_text.document import Concat, Doc, Group, call, keyword, tuple_doc
from relaxpy.ir.short_text.literals import string_text
from relaxpy.ir.short_text.nodes import lambda_variables
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import IntImm, SizeVar, Var
from relaxpy.ir.tir.reduce import CommReducer
from relaxpy.script.printer.names import Names, is_name
from relaxpy.script.printer.options import Options
from relaxpy.script.printer.writer import ELIDED, ScriptText, Writer

_COMPOUND = (rx.Call, rx.Tuple, rx.TupleGetItem)
_STATEMENTS = (rx.If, rx.SeqExpr, rx.Function)
_NESTED = (*_COMPOUND, *_STATEMENTS)
_UNIT = rx.TupleStructInfo(())


@dataclass(slots=True)
class Contents:
    """The variables used in the body of a function, except inside nested functions."""

    symbols: dict[Var, None] = field(default_factory=dict)
    inner_symbols: set[Var] = field(default_factory=set)
    used: set[rx.Var] = field(default_factory=set)
    names_module: bool = False


class GraphWriter:
    """Writes Relax. `names` are the names used in the text."""

    def __init__(self, writer: Writer, text: ScriptText, names: Names, options: Options) -> None:
        self.writer = writer
        self.text = text
        self.names = names
        self.r = text.relax_prefix
        self._annotated = options.show_all_struct_info
        self._used: set[rx.Var] = set()
        self._visible: set[Var] = set()

    # Functions

    def function(
        self,
        func: rx.Function,
        name: str,
        *,
        options: Iterable[str] = (),
        attrs: Attrs,
        module: str | None = None,
    ) -> None:
        """Write `func`; `module` is the line that names the module, if there is one."""
        writer, r = self.writer, self.r
        options = [*options, *([] if func.is_pure else ["pure=False"])]
        writer.line(f"@{r}.function" + (f"({', '.join(options)})" if options else ""))
        signature = [i for p in func.params if (i := p.struct_info) is not None]
        symbols = dict.fromkeys(v for v in _symbols(signature) if v not in self._visible)
        own = frozenset(symbols)
        # Parameters may stand in each other's infos (SC-17), and callers may go by their names.
        named = [(self.names.bind(p), _declared(p)) for p in func.params]
        params = [Concat(f"{p}: ", self.text.struct_info_doc(info, own)) for p, info in named]
        result: Doc | None = None
        if (returned := func.ret_struct_info) is not None:
            # Functions that are returned have sizes of their own, which stand nowhere else.
            theirs = [v for v in _symbols([returned]) if v not in self._visible]
            result = self.text.struct_info_doc(returned, own.union(theirs))
        writer.header(name, params, result)
        contents = self._contents(func.body)
        around, self._visible = self._visible, self._visible | own
        outer_used, self._used = self._used, self._used | contents.used
        with writer.indented():
            if attrs:
                writer.line(call(f"{r}.func_attr", self.text.table_doc(attrs)))
            self._declare(contents, symbols, around)
            if module is not None and contents.names_module:
                writer.line(module)
            writer.line("return ", self.sequence(func.body))
        self._visible = around
        self._used = outer_used

    def _declare(self, contents: Contents, own: dict[Var, None], around: set[Var]) -> None:
        """Write `n = T.int64()` for the shape variables that the body uses."""
        mentioned = contents.inner_symbols | contents.symbols.keys()
        # Strings make plain variables: what is a size is said even if nothing else is said of it.
        wanted = [v for v in own if v in mentioned or isinstance(v, SizeVar)]
        wanted += [v for v in contents.symbols if v not in own and v not in around]
        for symbol in wanted:
            self._declare_symbol(symbol)

    def fragment(self, node: rx.BindingBlock | rx.Binding | rx.Expr) -> None:
        """Write a block, a binding or an expression by itself."""
        self._used = self._contents(node).used
        match node:
            case rx.BindingBlock():
                self.block(node)
            case rx.VarBinding() | rx.MatchCast():
                self.binding(node)
            case _:
                self.writer.line(self.sequence(node))

    def declare_free(self, node: Node) -> None:
        """Write a line that describes each free variable of `node`."""
        bound = set(bound_vars(node))
        for part in walk(node):
            if isinstance(part, Var):
                self._declare_symbols([part])
            elif isinstance(part, rx.Var) and part not in bound:
                self._declare_symbols(_symbols([_declared(part)]))
                info = self.text.struct_info_doc(_declared(part))
                self.writer.line(f"{self.names.of(part)}: ", info)

    def _declare_symbols(self, symbols: Iterable[Var]) -> None:
        for symbol in symbols:
            if symbol not in self._visible:
                self._declare_symbol(symbol)

    def _declare_symbol(self, symbol: Var) -> None:
        sized = "is_size_var=True" if isinstance(symbol, SizeVar) else ""
        created = f"{self.text.tir_prefix}.{symbol.dtype}({sized})"
        self.writer.line(f"{self.names.of(symbol)} = {created}")
        self._visible.add(symbol)

    def _contents(self, body: Node) -> Contents:
        """The contents of `body`."""
        found = Contents()
        seen: set[int] = set()
        stack: list[Node] = [body]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            match node:
                case rx.Call(op=op, args=args, attrs=attrs, sinfo_args=infos):
                    stack += [*reversed(infos), *reversed(args)]
                    stack += [v for v in attrs.values() if isinstance(v, Node)] if attrs else ()
                    if not isinstance(op, Op):
                        stack.append(op)
                case rx.Var():
                    found.used.add(node)
                case rx.VarBinding(var=var, value=value):
                    stack.append(value)
                    if self._annotated and not isinstance(value, rx.Function):
                        stack += _parts(var.struct_info)
                case rx.GlobalVar():
                    found.names_module = True
                case Var():
                    found.symbols[node] = None
                case IndexMap() | CommReducer():
                    nodes = list(walk(node))
                    bound = {v for n in nodes for v in lambda_variables(n)}
                    stack += [n for n in nodes if isinstance(n, Var) and n not in bound]
                case rx.MatchCast(var=var, value=value, struct_info=info):
                    stack += [info, value]
                    if self._annotated and var is not None:
                        stack += _parts(var.struct_info)
                case rx.Function():
                    self._inner(node, found)
                case _:
                    stack += reversed(list(children(node)))
        return found

    def _inner(self, func: rx.Function, found: Contents) -> None:
        """Add what a function inside mentions, as far as it may be of the outer one."""
        inside = self._contents(func.body)
        signature = [i for p in func.params if (i := p.struct_info) is not None]
        if func.ret_struct_info is not None:
            signature.append(func.ret_struct_info)
        found.used |= inside.used
        found.names_module |= inside.names_module
        found.inner_symbols |= inside.inner_symbols | set(inside.symbols) | set(_symbols(signature))

    # Sequences of bindings

    def sequence(self, expr: rx.Expr) -> Doc:
        """Write the bindings of `expr` and return its result."""
        if not isinstance(expr, rx.SeqExpr):
            return self.expr(expr)
        for block in expr.blocks:
            self.block(block)
        return self.expr(expr.body)

    def block(self, block: rx.BindingBlock) -> None:
        """Write the bindings of a block."""
        if not isinstance(block, rx.DataflowBlock):
            for binding in block.bindings:
                self.binding(binding)
            return
        outputs = [
            b.var
            for b in block.bindings
            if b.var is not None and not isinstance(b.var, rx.DataflowVar)
        ]
        self._used.update(outputs)
        self.writer.line(f"with {self.r}.dataflow():")
        with self.writer.indented():
            for binding in block.bindings:
                self.binding(binding)
            self.writer.line(call(f"{self.r}.output", *map(self.names.of, outputs)))

    def binding(self, binding: rx.Binding) -> None:
        """Write a binding."""
        match binding:
            case rx.VarBinding(var=var, value=rx.If() | rx.Function() as value):
                self._statement(value, self.names.bind(var), var, value.struct_info)
            case rx.MatchCast(value=rx.If() | rx.Function() as value):
                self._cast_statement(binding, value)
            case rx.VarBinding(var=var, value=rx.Call() as value) if (
                var not in self._used and _is_unit(var) and value.struct_info in (None, _UNIT)
            ):
                self.writer.line(self.expr(value))
            case rx.VarBinding(var=var, value=value):
                shown = self.sequence(value)
                self._assign(self.names.bind(var), var, shown)
            case rx.MatchCast(var=var, value=value, struct_info=info):
                shown = call(
                    f"{self.r}.match_cast", self.expr(value), self.text.struct_info_doc(info)
                )
                if var is None:
                    self.writer.line(shown)
                else:
                    annotated = var.struct_info is not None and var.struct_info != info
                    self._assign(self.names.bind(var), var if annotated else None, shown)

    def _statement(
        self,
        value: rx.If | rx.Function,
        name: str,
        var: rx.Var,
        info: rx.StructInfo | None,
        *,
        is_cast: bool = False,
    ) -> None:
        """An if or a function that `name` is bound to, and more than `info` if `var` says it.

        Where it `is_cast`, the info of `var` is none of what the branches give.
        """
        if info is None and isinstance(value, rx.Function) and value.ret_struct_info is not None:
            info = signature_of(value)
        said = self._annotated and None not in (info, var.struct_info) and var.struct_info != info
        if said and var.struct_info is not None:
            self.writer.line(f"{name}: ", self.text.struct_info_doc(var.struct_info))
        if isinstance(value, rx.Function):
            self._local_function(value, name)
        else:
            self._branches(value, name, None if said or is_cast else var)

    def _cast_statement(self, binding: rx.MatchCast, value: rx.If | rx.Function) -> None:
        """An if or a function that is cast; without a variable it has the name that binds none."""
        info, var = binding.struct_info, binding.var
        cast = call(f"{self.r}.match_cast", "...", self.text.struct_info_doc(info))
        self.writer.line("with ", cast, ":")
        with self.writer.indented():
            if var is None:
                self._statement(value, "_", rx.Var("_"), None)
            else:
                hint = f"{var.name_hint}_1" if var.name_hint == "_" else None
                self._statement(value, self.names.bind(var, hint), var, info, is_cast=True)

    def _assign(self, name: str, annotated: rx.Var | None, value: Doc) -> None:
        """`name: annotation = value`."""
        info = annotated.struct_info if annotated is not None and self._annotated else None
        if info is None:
            self.writer.line(f"{name} = ", value)
        else:
            self.writer.line(f"{name}: ", self.text.struct_info_doc(info), " = ", value)

    def _local_function(self, func: rx.Function, name: str) -> None:
        """Write a local function, with an empty line on either side."""
        if self.writer.is_too_deep:
            self._assign(name, None, ELIDED)
            return
        lines = self.writer.lines
        if lines and not lines[-1].endswith(":"):
            self.writer.blank()
        self.function(func, name, attrs=func.attrs)
        self.writer.blank()

    def _branches(self, expr: rx.If, name: str, annotated: rx.Var | None) -> None:
        """Write two branches that end in a binding of `name`."""
        if self.writer.is_too_deep:
            self._assign(name, annotated, ELIDED)
            return
        self.writer.line("if ", self.expr(expr.cond), ":")
        self._branch(expr.true_branch, name, annotated)
        self.writer.line("else:")
        self._branch(expr.false_branch, name, annotated)

    def _branch(self, expr: rx.Expr, name: str, annotated: rx.Var | None) -> None:
        with self.writer.indented():
            blocks = expr.blocks if isinstance(expr, rx.SeqExpr) else ()
            last = _result_binding(expr)
            if last is None or last.var is None:
                self._assign(name, annotated, self.sequence(expr))
                return
            for block in blocks[:-1]:
                self.block(block)
            for binding in blocks[-1].bindings[:-1]:
                self.binding(binding)
            self.names.alias(last.var, name)
            match last:
                case rx.VarBinding(value=rx.If() as inner):
                    self._statement(inner, name, last.var, inner.struct_info)
                case rx.VarBinding(value=value):
                    self._assign(name, last.var, self.expr(value))
                case rx.MatchCast(value=value, struct_info=info):
                    shown = call(
                        f"{self.r}.match_cast", self.expr(value), self.text.struct_info_doc(info)
                    )
                    self._assign(name, last.var, shown)

    # Expressions

    def expr(self, root: rx.Expr) -> Doc:
        """`root` as an expression; statements inside it are written first, and named.

        The parts are written from the left and from within, as they are evaluated.
        """
        if not isinstance(root, _NESTED):
            return self.text.leaf_doc(root)
        if isinstance(root, rx.Call) and not any(isinstance(a, _NESTED) for a in _operands(root)):
            return self._call(root, {})
        done: dict[int, Doc] = {}
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            if isinstance(node, _COMPOUND) and not ready:
                stack.append((node, True))
                stack += [(child, False) for child in reversed(_operands(node))]
            elif isinstance(node, rx.Call):
                done[id(node)] = self._call(node, done)
            elif isinstance(node, rx.Tuple):
                fields = [done[id(f)] for f in node.fields]
                done[id(node)] = tuple_doc(fields) if fields else f"{self.r}.tuple()"
            elif isinstance(node, rx.TupleGetItem):
                done[id(node)] = self._projection(node, done[id(node.tuple_value)])
            elif isinstance(node, _STATEMENTS):
                done[id(node)] = self._hoisted(node)
            else:
                done[id(node)] = self.text.leaf_doc(node)
        return done[id(root)]

    def _projection(self, expr: rx.TupleGetItem, shown: Doc) -> Doc:
        """A field of a tuple; of one that is written out, `[0]` would be read as the field."""
        if isinstance(expr.tuple_value, rx.Tuple):
            return call(f"{self.r}.TupleGetItem", shown, str(expr.index))
        return Concat(shown, f"[{expr.index}]")

    def _hoisted(self, expr: rx.If | rx.SeqExpr | rx.Function) -> Doc:
        """The name of an expression that must be written as statements."""
        match expr:
            case rx.SeqExpr():
                return self.sequence(expr)
            case rx.Function():
                name = self.names.fresh("func")
                self._local_function(expr, name)
                return name
            case rx.If():
                name = self.names.fresh("v")
                self._branches(expr, name, None)
                return name

    def _call(self, expr: rx.Call, done: Mapping[int, Doc]) -> Doc:
        match expr.op:
            case Op(name=name) as op:
                shown = f"{self.r}.{name.removeprefix('relax.')}"
                record = registered_ops().get(op.name)
                if record is not None:
                    try:
                        args, named = record.arguments(expr)
                    except (RelaxpyError, LookupError, ValueError):  # a malformed call
                        return self._plain_call(shown, expr, done)
                    docs = [self._argument(a, done) for a in args]
                    return call(shown, *docs, *self._keywords(named, done))
                return self._plain_call(shown, expr, done)
            case rx.ExternFunc(global_symbol=symbol, struct_info=info) as func:
                plain = info == rx.ExternFunc(symbol).struct_info
                callee = string_text(symbol) if plain else self.text.leaf_doc(func)
                return self._plain_call(f"{self.r}.call_packed", expr, done, callee)
            case callee:
                doc = self._argument(callee, done)
                called = doc if isinstance(doc, str) else None
                if called is not None:
                    return self._plain_call(called, expr, done)
                return Concat(doc, self._plain_call("", expr, done))

    def _plain_call(self, name: str, expr: rx.Call, done: Mapping[int, Doc], *first: Doc) -> Doc:
        """A call in generic form, with operands, attributes and struct infos."""
        named: dict[str, object] = dict(expr.attrs)
        if expr.sinfo_args:
            named["sinfo_args"] = expr.sinfo_args
        docs = [self._argument(a, done) for a in expr.args]
        return call(name, *first, *docs, *self._keywords(named, done))

    def _keywords(self, named: Mapping[str, object], done: Mapping[int, Doc]) -> Iterator[Doc]:
        for key, value in named.items():
            if key == "sinfo_args" and isinstance(value, (list, tuple)):
                yield keyword(key, tuple_doc(self._argument(v, done) for v in value))
            elif is_name(key):
                yield keyword(key, self._argument(value, done))
            else:
                yield Concat("**", self.text.table_doc({key: value}))

    def _argument(self, value: object, done: Mapping[int, Doc]) -> Doc:
        """An operand, or whatever else an operator takes."""
        if isinstance(value, rx.Expr):
            found = done.get(id(value))
            return self.expr(value) if found is None else found
        if isinstance(value, (list, tuple)):
            return Group("[", (self._argument(v, done) for v in value), "]")
        return self.text.attr_doc(value)


def _operands(expr: Node) -> Sequence[Node]:
    """The subexpressions in order of evaluation."""
    match expr:
        case rx.Call(op=Op() | rx.ExternFunc(), args=args):
            return args
        case rx.Call(op=op, args=args):
            return (op, *args)
        case rx.Tuple(fields=fields):
            return fields
        case rx.TupleGetItem(tuple_value=value):
            return (value,)
        case _:
            return ()


def _declared(param: rx.Var) -> rx.StructInfo:
    return rx.ObjectStructInfo() if param.struct_info is None else param.struct_info


def _is_unit(expr: rx.Expr) -> bool:
    return expr.struct_info == _UNIT


def _parts(info: rx.StructInfo | None) -> Iterable[Node]:
    """What is to be searched for variables in an info; most are tensors of a few plain sizes."""
    match info:
        case None:
            return ()
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=values)):
            return [value for value in values if not isinstance(value, IntImm)]
        case _:
            return (info,)


def _symbols(infos: Sequence[rx.StructInfo]) -> Iterator[Var]:
    """The shape variables in `infos`."""
    for info in infos:
        for node in walk(info):
            if isinstance(node, Var):
                yield node


def _result_binding(branch: rx.Expr) -> rx.Binding | None:
    """The last binding of a branch, where it binds the result and says more than another name."""
    if not isinstance(branch, rx.SeqExpr) or not branch.blocks:
        return None
    block = branch.blocks[-1]
    if isinstance(block, rx.DataflowBlock) or not block.bindings:
        return None
    last = block.bindings[-1]
    if last.var is None or last.var is not branch.body:
        return None
    wanted = (rx.Call, rx.TupleGetItem)
    if isinstance(last, rx.VarBinding):
        return last if isinstance(last.value, (*wanted, rx.If)) else None
    return None if isinstance(last.value, (rx.If, rx.Function)) else last
