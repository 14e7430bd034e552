"""The language server over standard input and output: from its protocol to documents and back."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import PositionCodec

from relaxpy import __version__
from relaxpy.errors import Span
from relaxpy.plugins.cli.lsp.answers import Call, Document, Item, rule_text
from relaxpy.plugins.cli.lsp.findings import Finding

T = TypeVar("T")

#: How long after a change a text is checked, unless it changes again, and how long an answer takes
#: at most, in seconds.
_DELAY: Final = 0.15
_PATIENCE: Final = 5.0
_STACK: Final = 1 << 26
_EXPLAIN: Final = "relaxpy.explainRule"
_SEVERITIES: Final = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "information": lsp.DiagnosticSeverity.Information,
}
_KINDS: Final = {
    "class": lsp.CompletionItemKind.Class,
    "function": lsp.CompletionItemKind.Function,
    "module": lsp.CompletionItemKind.Module,
}


def serve() -> None:
    """Answer an editor until it ends the connection; what is printed goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        create_server().start_io(sys.stdin.buffer, answers.buffer)
    finally:
        if not answers.closed:
            sys.stdout = answers


def create_server() -> LanguageServer:
    """The server with its features."""
    server = LanguageServer(
        "relaxpy", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full
    )
    documents = _Documents(server)
    completion = lsp.CompletionOptions(trigger_characters=["."], resolve_provider=True)
    signature = lsp.SignatureHelpOptions(trigger_characters=["(", ","])
    features: dict[str, tuple[Callable[..., object], object]] = {
        lsp.TEXT_DOCUMENT_DID_OPEN: (documents.opened, None),
        lsp.TEXT_DOCUMENT_DID_CHANGE: (documents.changed, None),
        lsp.TEXT_DOCUMENT_DID_CLOSE: (documents.closed, None),
        lsp.TEXT_DOCUMENT_HOVER: (documents.hover, None),
        lsp.TEXT_DOCUMENT_DEFINITION: (documents.definition, None),
        lsp.TEXT_DOCUMENT_COMPLETION: (documents.completion, completion),
        lsp.COMPLETION_ITEM_RESOLVE: (documents.resolve, None),
        lsp.TEXT_DOCUMENT_SIGNATURE_HELP: (documents.signature, signature),
        lsp.TEXT_DOCUMENT_CODE_ACTION: (documents.actions, None),
    }
    for name, (function, options) in features.items():
        server.feature(name, options)(partial(function))  # which, unlike methods, has attributes
    server.command(_EXPLAIN)(partial(documents.explain))
    return server


class _Documents:
    """The open documents. One thread reads them, so that the connection stays responsive."""

    def __init__(self, server: LanguageServer) -> None:
        self.server = server
        self.read: dict[str, Document] = {}
        before = threading.stack_size(_STACK)  # deeply nested texts need much of it
        self.worker = ThreadPoolExecutor(1, "relaxpy-lsp")
        self.worker.submit(int).result()
        threading.stack_size(before)

    @property
    def codec(self) -> PositionCodec:
        """How the editor counts the characters of a line."""
        return self.server.workspace.position_codec

    def document(self, uri: str) -> Document:
        """The document with the text that the editor has now; empty if it has not opened one."""
        opened = self.server.workspace.text_documents.get(uri)
        text = "" if opened is None else opened.source
        known = self.read.get(uri)
        if known is not None and known.text == text:
            return known
        document = Document(text, to_fs_path(uri) or uri)
        if opened is not None:
            self.read[uri] = document
        return document

    async def answer(self, function: Callable[[], T]) -> T | None:
        """The result of a function in the reader's thread; None if it needs too much."""
        loop = asyncio.get_running_loop()
        task = loop.run_in_executor(self.worker, function)
        try:
            return await asyncio.wait_for(task, _PATIENCE)
        except (TimeoutError, RecursionError, MemoryError):
            return None

    async def opened(self, params: lsp.DidOpenTextDocumentParams) -> None:
        """Check a document."""
        await self.publish(params.text_document.uri, params.text_document.version)

    async def changed(self, params: lsp.DidChangeTextDocumentParams) -> None:
        """Check a document, unless it changes again soon."""
        await asyncio.sleep(_DELAY)
        await self.publish(params.text_document.uri, params.text_document.version)

    def closed(self, params: lsp.DidCloseTextDocumentParams) -> None:
        """Forget a document."""
        uri = params.text_document.uri
        self.read.pop(uri, None)
        self.send(uri, None, [])

    async def publish(self, uri: str, version: int) -> None:
        """Publish the diagnostics of one version of a document, unless there is a later one."""
        if not self.is_current(uri, version):
            return
        document = self.document(uri)

        def check() -> list[Finding] | None:
            return document.findings if self.is_current(uri, version) else None

        found = await asyncio.get_running_loop().run_in_executor(self.worker, check)
        if found is not None and self.is_current(uri, version):
            self.send(uri, version, [self.diagnostic(document, each) for each in found])

    def is_current(self, uri: str, version: int) -> bool:
        """True if a document is open and has not changed since a version of it."""
        known = self.server.workspace.text_documents.get(uri)
        return known is not None and known.version == version

    def send(self, uri: str, version: int | None, found: list[lsp.Diagnostic]) -> None:
        """Send the diagnostics of a document, which replace earlier ones."""
        self.server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri, found, version)
        )

    def diagnostic(self, document: Document, finding: Finding) -> lsp.Diagnostic:
        """A finding as the protocol has it: with notes and hints in its message."""
        diagnostic = finding.diagnostic
        lines = [diagnostic.message, *(f"note: {note}" for note in diagnostic.notes)]
        lines += [f"hint: {diagnostic.hint}"] if diagnostic.hint else []
        return lsp.Diagnostic(
            self.range(document, diagnostic.span),
            "\n".join(lines),
            _SEVERITIES[finding.severity],
            diagnostic.rule,
            source="relaxpy",
        )

    def range(self, document: Document, span: Span | None) -> lsp.Range:
        """A span as the protocol has it; the first character of the text for None."""
        if span is None:
            return lsp.Range(lsp.Position(0, 0), lsp.Position(0, 1))

        def position(line: int, column: int) -> lsp.Position:
            text = document.lines[line - 1] if line <= len(document.lines) else ""
            return lsp.Position(line - 1, self.codec.client_num_units(text[: column - 1]))

        return lsp.Range(position(span.line, span.column), position(span.end_line, span.end_column))

    def place(self, uri: str, position: lsp.Position) -> tuple[Document, int, int]:
        """A document, and a position in it in lines and columns from 1."""
        document = self.document(uri)
        line = position.line
        text = document.lines[line] if line < len(document.lines) else ""
        column, units = 1, 0
        for char in text:
            if units >= position.character:
                break
            units += self.codec.client_num_units(char)
            column += 1
        return document, line + 1, column

    async def hover(self, params: lsp.HoverParams) -> lsp.Hover | None:
        """The hover text of a position."""
        document, line, column = self.place(params.text_document.uri, params.position)
        text = await self.answer(lambda: document.hover(line, column))
        if not text:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text))

    async def definition(self, params: lsp.DefinitionParams) -> lsp.Location | None:
        """Where a name is defined."""
        document, line, column = self.place(params.text_document.uri, params.position)
        span = await self.answer(lambda: document.definition(line, column))
        if span is None:
            return None
        return lsp.Location(params.text_document.uri, self.range(document, span))

    async def completion(self, params: lsp.CompletionParams) -> lsp.CompletionList:
        """The names after a dot."""
        document, line, column = self.place(params.text_document.uri, params.position)
        items = await self.answer(lambda: document.completions(line, column))
        uri = params.text_document.uri
        return lsp.CompletionList(False, [_completion(item, uri) for item in items or ()])

    async def resolve(self, item: lsp.CompletionItem) -> lsp.CompletionItem:
        """A completion with its documentation."""
        match item.data:
            case [str(uri), str(path)] if uri in self.read:
                document = self.read[uri]
                text = await self.answer(lambda: document.documentation(path))
                if text:
                    item.documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, text)
            case _:
                pass
        return item

    async def signature(self, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        """The signature of the call whose arguments are typed."""
        document, line, column = self.place(params.text_document.uri, params.position)
        call = await self.answer(lambda: document.call(line, column))
        return None if call is None else _signature(call)

    async def actions(self, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        """An explanation of each rule that errors on some lines cite."""
        document = self.document(params.text_document.uri)
        first, last = params.range.start.line + 1, params.range.end.line + 1
        rules = await self.answer(lambda: document.rules(first, last))
        return [
            lsp.CodeAction(
                f"Explain {rule}",
                lsp.CodeActionKind.QuickFix,
                command=lsp.Command(f"Explain {rule}", _EXPLAIN, arguments=[rule]),
            )
            for rule in rules or ()
        ]

    def explain(self, rule: str) -> str | None:
        """Show the explanation of a rule, and return it."""
        text = rule_text(rule)
        if text is not None:
            self.server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, text))
        return text


def _completion(item: Item, uri: str) -> lsp.CompletionItem:
    return lsp.CompletionItem(
        item.name,
        kind=_KINDS[item.kind],
        detail=f"{item.path}{item.signature}" if item.signature else None,
        data=[uri, item.path],
    )


def _signature(call: Call) -> lsp.SignatureHelp:
    parameters = [lsp.ParameterInformation(parameter) for parameter in call.parameters]
    active = min(call.active, max(len(parameters) - 1, 0))
    doc = lsp.MarkupContent(lsp.MarkupKind.Markdown, call.doc)
    return lsp.SignatureHelp(
        [lsp.SignatureInformation(call.signature, doc, parameters, active)], 0, active
    )
