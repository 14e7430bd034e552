"""The text of Relax functions, blocks, bindings and expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.ops import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import bound_vars
from relaxpy.ir.relax.block_builder.infer import signature_of
from relaxpy.ir.short_text.document import Concat, Doc, Group, call, keyword, string_text, tuple_doc
from relaxpy.ir.short_text.nodes import lambda_variables
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import IntImm, SizeVar, Var
from relaxpy.ir.tir.reduce import CommReducer
from relaxpy.script.printer.writer import ELIDED, Names, Options, ScriptText, Writer, is_name
from relaxpy.support.dataclass import dataclass

_COMPOUND = (rx.Call, rx.Tuple, rx.TupleGetItem)
_STATEMENTS = (rx.If, rx.SeqExpr, rx.Function)
_NESTED = (*_COMPOUND, *_STATEMENTS)
_UNIT = rx.TupleStructInfo(())


@dataclass(slots=True)
class Contents:
    """The variables that the body of a function uses, and whether it mentions other functions."""

    shape_vars: dict[Var, None] = field(default_factory=dict)
    nested_shape_vars: set[Var] = field(default_factory=set)
    used: set[rx.Var] = field(default_factory=set)
    names_module: bool = False


class GraphWriter:
    """Writes Relax: functions, blocks, bindings, expressions."""

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
        """Write `func`; `module` is a line that assigns the module's alias, for functions used."""
        writer, r = self.writer, self.r
        options = [*options, *([] if func.is_pure else ["pure=False"])]
        writer.line(f"@{r}.function" + (f"({', '.join(options)})" if options else ""))
        bound = frozenset(_signature_vars(func.params)) - self._visible
        # The struct info of one parameter may mention another one (SC-17), so all are bound first.
        names = [self.names.bind(param) for param in func.params]
        params = [
            Concat(f"{name}: ", self.text.struct_info_doc(_declared(param), bound))
            for name, param in zip(names, func.params, strict=True)
        ]
        result: Doc | None = None
        if func.ret_struct_info is not None:
            # The struct info of a function that is returned binds further variables.
            quoted = bound.union(_shape_vars(func.ret_struct_info)) - self._visible
            result = self.text.struct_info_doc(func.ret_struct_info, quoted)
        writer.header(name, params, result)
        contents = self._contents(func.body)
        outer_visible, self._visible = self._visible, self._visible | bound
        outer_used, self._used = self._used, self._used | contents.used
        with writer.indented():
            if attrs:
                writer.line(call(f"{r}.func_attr", self.text.function_attrs_doc(attrs)))
            mentioned = contents.nested_shape_vars | contents.shape_vars.keys()
            for var in dict.fromkeys(_signature_vars(func.params)):
                # A string dimension makes a plain variable, so that a SizeVar is declared anyway.
                if var in bound and (var in mentioned or isinstance(var, SizeVar)):
                    self._declare(var)
            self._declare_new(contents.shape_vars)
            if module is not None and contents.names_module:
                writer.line(module)
            writer.line("return ", self.sequence(func.body))
        self._visible = outer_visible
        self._used = outer_used

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
        for child in walk(node):
            if isinstance(child, Var):
                self._declare_new([child])
            elif isinstance(child, rx.Var) and child not in bound:
                self._declare_new(_shape_vars(_declared(child)))
                sinfo = self.text.struct_info_doc(_declared(child))
                self.writer.line(f"{self.names.of(child)}: ", sinfo)

    def _declare_new(self, shape_vars: Iterable[Var]) -> None:
        for var in shape_vars:
            if var not in self._visible:
                self._declare(var)

    def _declare(self, var: Var) -> None:
        """Write `n = T.int64()`."""
        argument = "is_size_var=True" if isinstance(var, SizeVar) else ""
        self.writer.line(f"{self.names.of(var)} = {self.text.tir_prefix}.{var.dtype}({argument})")
        self._visible.add(var)

    def _contents(self, body: Node) -> Contents:
        contents = Contents()
        seen: set[int] = set()
        stack: list[Node] = [body]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            match node:
                case rx.Call(op=op, args=args, attrs=attrs, sinfo_args=sinfo_args):
                    stack += [*reversed(sinfo_args), *reversed(args)]
                    stack += [v for v in attrs.values() if isinstance(v, Node)] if attrs else ()
                    if not isinstance(op, Op):
                        stack.append(op)
                case rx.Var():
                    contents.used.add(node)
                case rx.VarBinding(var=var, value=value):
                    stack.append(value)
                    if self._annotated and not isinstance(value, rx.Function):
                        stack += _variable_nodes(var.struct_info)
                case rx.GlobalVar():
                    contents.names_module = True
                case Var():
                    contents.shape_vars[node] = None
                case IndexMap() | CommReducer():
                    nodes = list(walk(node))
                    bound = {v for n in nodes for v in lambda_variables(n)}
                    stack += [n for n in nodes if isinstance(n, Var) and n not in bound]
                case rx.MatchCast(var=var, value=value, struct_info=sinfo):
                    stack += [sinfo, value]
                    if self._annotated and var is not None:
                        stack += _variable_nodes(var.struct_info)
                case rx.Function():
                    self._add_nested(node, contents)
                case _:
                    stack += reversed(list(children(node)))
        return contents

    def _add_nested(self, func: rx.Function, contents: Contents) -> None:
        """Add the variables of a nested function, which may be those of the outer one."""
        nested = self._contents(func.body)
        contents.used |= nested.used
        contents.names_module |= nested.names_module
        contents.nested_shape_vars |= nested.nested_shape_vars | nested.shape_vars.keys()
        contents.nested_shape_vars.update(_signature_vars(func.params))
        if func.ret_struct_info is not None:
            contents.nested_shape_vars.update(_shape_vars(func.ret_struct_info))

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
        with self.writer.marked(block):
            self._block(block)

    def _block(self, block: rx.BindingBlock) -> None:
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
        with self.writer.marked(binding):
            self._binding(binding)

    def _binding(self, binding: rx.Binding) -> None:
        match binding:
            case rx.VarBinding(var=var, value=rx.If() | rx.Function() as value):
                self._statement(value, self.names.bind(var), var, value.struct_info)
            case rx.MatchCast(value=rx.If() | rx.Function() as value):
                self._cast_statement(binding, value)
            case rx.VarBinding(var=var, value=rx.Call() as value) if (
                var not in self._used
                and var.struct_info == _UNIT
                and value.struct_info in (None, _UNIT)
            ):
                self.writer.line(self.expr(value))
            case rx.VarBinding(var=var, value=value):
                doc = self.sequence(value)
                self._assign(self.names.bind(var), var, doc)
            case rx.MatchCast(var=var, value=value, struct_info=sinfo):
                doc = self._cast(self.expr(value), sinfo)
                if var is None:
                    self.writer.line(doc)
                else:
                    annotated = None if var.struct_info == sinfo else var
                    self._assign(self.names.bind(var), annotated, doc)

    def _cast(self, value: Doc, sinfo: rx.StructInfo) -> Doc:
        return call(f"{self.r}.match_cast", value, self.text.struct_info_doc(sinfo))

    def _statement(
        self,
        value: rx.If | rx.Function,
        name: str,
        var: rx.Var,
        sinfo: rx.StructInfo | None,
        *,
        is_cast: bool = False,
    ) -> None:
        """Write an if or a function that defines `name`; first an annotation if `sinfo` differs.

        `sinfo` is the struct info of `value`. The branches of a cast are not annotated: the struct
        info of `var` is that of the cast.
        """
        if sinfo is None and isinstance(value, rx.Function) and value.ret_struct_info is not None:
            sinfo = signature_of(value)
        annotation = var.struct_info if self._annotated and sinfo is not None else None
        if annotation == sinfo:
            annotation = None
        if annotation is not None:
            self.writer.line(f"{name}: ", self.text.struct_info_doc(annotation))
        if isinstance(value, rx.Function):
            self._nested_function(value, name)
        else:
            self._branches(value, name, None if is_cast or annotation is not None else var)

    def _cast_statement(self, binding: rx.MatchCast, value: rx.If | rx.Function) -> None:
        """Write the cast of an if or a function; one without a variable defines `_`."""
        sinfo, var = binding.struct_info, binding.var
        self.writer.line("with ", self._cast("...", sinfo), ":")
        with self.writer.indented():
            if var is None:
                self._statement(value, "_", rx.Var("_"), None)
            else:
                hint = f"{var.name_hint}_1" if var.name_hint == "_" else None
                self._statement(value, self.names.bind(var, hint), var, sinfo, is_cast=True)

    def _assign(self, name: str, annotated: rx.Var | None, value: Doc) -> None:
        """Write `name: annotation = value`."""
        sinfo = annotated.struct_info if annotated is not None and self._annotated else None
        if sinfo is None:
            self.writer.line(f"{name} = ", value)
        else:
            self.writer.line(f"{name}: ", self.text.struct_info_doc(sinfo), " = ", value)

    def _nested_function(self, func: rx.Function, name: str) -> None:
        """Write a nested function, with an empty line on either side."""
        if self.writer.is_too_deep:
            self._assign(name, None, ELIDED)
            return
        lines = self.writer.lines
        if lines and not lines[-1].endswith(":"):
            self.writer.blank()
        with self.writer.marked(func):
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
                case rx.MatchCast(value=value, struct_info=sinfo):
                    self._assign(name, last.var, self._cast(self.expr(value), sinfo))

    # Expressions

    def expr(self, root: rx.Expr) -> Doc:
        """`root` as an expression; what must be a statement is written first and gets a name.

        Operands are written before their users and from left to right, as they are evaluated.
        """
        if not isinstance(root, _NESTED):
            return self.text.leaf_doc(root)
        if isinstance(root, rx.Call) and not any(isinstance(a, _NESTED) for a in _operands(root)):
            return self.text.written(root, self._call(root, {}))
        done: dict[int, Doc] = {}
        doc: Doc
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            if isinstance(node, _COMPOUND) and not ready:
                stack.append((node, True))
                stack += [(child, False) for child in reversed(_operands(node))]
                continue
            match node:
                case rx.Call():
                    doc = self._call(node, done)
                case rx.Tuple():
                    doc = tuple_doc(done[id(f)] for f in node.fields)
                    doc = doc if node.fields else f"{self.r}.tuple()"
                case rx.TupleGetItem():
                    doc = self._projection(node, done[id(node.tuple_value)])
                case rx.If() | rx.SeqExpr() | rx.Function():
                    doc = self._hoisted(node)
                case _:
                    done[id(node)] = self.text.leaf_doc(node)
                    continue
            done[id(node)] = self.text.written(node, doc)
        return done[id(root)]

    def _projection(self, expr: rx.TupleGetItem, operand: Doc) -> Doc:
        """`operand[0]`, which of a literal tuple would be read as its field."""
        if isinstance(expr.tuple_value, rx.Tuple):
            return call(f"{self.r}.TupleGetItem", operand, str(expr.index))
        return Concat(operand, f"[{expr.index}]")

    def _hoisted(self, expr: rx.If | rx.SeqExpr | rx.Function) -> Doc:
        """Write an expression that consists of statements, and return its name or result."""
        match expr:
            case rx.SeqExpr():
                return self.sequence(expr)
            case rx.Function():
                name = self.names.fresh("func")
                self._nested_function(expr, name)
                return name
            case rx.If():
                name = self.names.fresh("v")
                self._branches(expr, name, None)
                return name

    def _call(self, expr: rx.Call, done: Mapping[int, Doc]) -> Doc:
        match expr.op:
            case Op(name=name):
                path = f"{self.r}.{name.removeprefix('relax.')}"
                record = registered_ops().get(name)
                if record is None:
                    return self._plain_call(path, expr, done)
                try:
                    args, named = record.arguments(expr)
                except (RelaxpyError, LookupError, ValueError):  # a malformed call
                    return self._plain_call(path, expr, done)
                docs = [self._argument(a, done) for a in args]
                return call(path, *docs, *self._keywords(named, done))
            case rx.ExternFunc(global_symbol=symbol, struct_info=sinfo) as func:
                is_plain = sinfo == rx.ExternFunc(symbol).struct_info
                callee = string_text(symbol) if is_plain else self.text.leaf_doc(func)
                return self._plain_call(f"{self.r}.call_packed", expr, done, callee)
            case op:
                callee = self._argument(op, done)
                if isinstance(callee, str):
                    return self._plain_call(callee, expr, done)
                return Concat(callee, self._plain_call("", expr, done))

    def _plain_call(self, name: str, expr: rx.Call, done: Mapping[int, Doc], *first: Doc) -> Doc:
        """A call with its operands, attributes and struct info arguments."""
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
        """An operand or an attribute."""
        if isinstance(value, rx.Var):
            return self.names.of(value)
        if isinstance(value, rx.Expr):
            doc = done.get(id(value))
            return self.expr(value) if doc is None else doc
        if isinstance(value, (list, tuple)):
            return Group("[", (self._argument(v, done) for v in value), "]")
        return self.text.attr_doc(value)


def _operands(expr: Node) -> Sequence[Node]:
    """The operands in order of evaluation."""
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


def _variable_nodes(sinfo: rx.StructInfo | None) -> Iterable[Node]:
    """The nodes in a struct info that may contain variables; mostly a tensor's few dimensions."""
    match sinfo:
        case None:
            return ()
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=values)):
            return [value for value in values if not isinstance(value, IntImm)]
        case _:
            return (sinfo,)


def _shape_vars(sinfo: rx.StructInfo) -> Iterator[Var]:
    return (node for node in walk(sinfo) if isinstance(node, Var))


def _signature_vars(params: Iterable[rx.Var]) -> Iterator[Var]:
    """The shape variables in the struct info of parameters."""
    for param in params:
        if param.struct_info is not None:
            yield from _shape_vars(param.struct_info)


def _result_binding(branch: rx.Expr) -> rx.Binding | None:
    """The last binding of a branch if it defines the result by a call, a projection or a cast."""
    if not isinstance(branch, rx.SeqExpr) or not branch.blocks:
        return None
    block = branch.blocks[-1]
    if isinstance(block, rx.DataflowBlock) or not block.bindings:
        return None
    last = block.bindings[-1]
    if last.var is None or last.var is not branch.body:
        return None
    if isinstance(last, rx.VarBinding):
        return last if isinstance(last.value, (rx.Call, rx.TupleGetItem, rx.If)) else None
    return None if isinstance(last.value, (rx.If, rx.Function)) else last
