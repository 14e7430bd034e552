"""A compiled decoder with its weights, which runs tokens over caches of pages."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from pathlib import Path
from threading import get_ident
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from relaxpy.exec.api.compile import compile, compile_made
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.machine.fast_paths import SHARED_WEIGHTS
from relaxpy.exec.runtime.registry import get_global_func, registered
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.group_quantization import as_quantization
from relaxpy.ir.relax.outputs import OUTPUT_TREE
from relaxpy.plugins.llm.adapters import AdaptedDecoder, Adapter, AdapterSet, Kinds
from relaxpy.plugins.llm.config import Config, ModelError, ParameterError, config_of, read_table
from relaxpy.plugins.llm.decoders import Decoder
from relaxpy.plugins.llm.hooks import Hooks, with_hooks
from relaxpy.plugins.llm.packed import Packed, WithPacked, packed_as
from relaxpy.plugins.llm.weight_names import UNUSED, names_of, sources_of
from relaxpy.plugins.nn.core import get_default_dtype
from relaxpy.plugins.nn.quantization import quantize_model, rounded
from relaxpy.plugins.weights.files import open_weights
from relaxpy.plugins.weights.load import Values
from relaxpy.support.dataclass import dataclass, replace

_CACHE_DTYPES: Final = "float16", "bfloat16", "float32"
"""The datatypes of keys and values."""
_STEPS: Final[tuple[str, ...]] = "decode", "forward"
"""The methods that bring requests on."""


class CompiledDecoder:
    """A decoder, compiled, that runs sequences of tokens over caches of pages.

    `sequences` are how many a cache has at a time, `tokens` how many all of them have together,
    `chunk` how many a call takes, `context` how many one sequence has. `quantization` is the name
    of one, such as "q4f32_1"; of those of float16 all else is float16, too. Layers that are
    `packed` with the same bits and groups keep their values. Keys and values of `cache_dtype`
    "float16" need half the memory, and attention half the time. Without a `target`, it is that of
    `relaxpy.compile`: "native" where its packages are installed, or RELAXPY_TARGET.
    """

    def __init__(
        self,
        config: Config,
        source: str | Path | Mapping[str, Any],
        *,
        names: Mapping[str, Any] | None = None,
        packed: Packed | None = None,
        quantization: str | None = None,
        cache_dtype: str | None = None,
        target: str | None = None,
        context: int | None = None,
        sequences: int = 8,
        tokens: int | None = None,
        chunk: int = 512,
        page: int = 16,
        progress: bool | None = None,
    ) -> None:
        context = config.positions if context is None else context
        tokens = context if tokens is None else tokens
        limits = {
            "context": context,
            "sequences": sequences,
            "tokens": tokens,
            "chunk": chunk,
            "page": page,
        }
        for name, limit in limits.items():
            if type(limit) is not int or limit < 1:
                raise ModelError(f"{name} is a positive integer, found {limit!r:.60}")
        _check(config, context, cache_dtype)
        self.context = min(context, tokens)
        factors = config.factors_within(context)
        config = replace(config, cache_dtype=cache_dtype, rope_factors=factors)
        self.config, self.sequences, self.chunk, self.page = config, sequences, chunk, page
        self.tokens = tokens
        self.pages = -(-tokens // page) + sequences
        self._packed = packed_as(quantization, packed or {})
        self.quantization, self._target = quantization, target
        self._decoder: Any = decoder_of(config, self._packed, quantization)
        self._thread: int | None = None
        """The thread in which a program runs, which may call hooks."""
        self._alone: WeakKeyDictionary[Adapter, _Adapting] = WeakKeyDictionary()
        self._together: _Adapting | None = None
        """How adapters run, each alone, and the last ones that ran in one call."""
        weights = source if isinstance(source, Mapping) else open_weights(source)
        names = names_of(config, weights) if names is None else names
        self.values = self._loaded(weights, names, progress)
        decoder = self._decoder
        methods = (*_STEPS, "create_cache")
        first = self._program(decoder, decoder.specification(*methods), methods)
        self._programs: dict[Any, Any] = {(_STEPS, (), False): first}
        """Programs by their methods, the kinds of adapted layers, and whether there are hooks."""
        self.params = tuple(self.values[name] for name, _ in decoder.named_parameters())
        self.target: str = first.target
        self.limits = [ShapeTuple([n]) for n in (sequences, tokens, chunk, page, 0)]

    @classmethod
    def from_folder(cls, folder: str | Path, **options: Any) -> CompiledDecoder:
        """The model of a Hugging Face folder. Errors: ModelError, or those of `load_weights`."""
        path = Path(folder) / "config.json"
        return cls(config_of(read_table(path), str(path)), folder, **options)

    def _loaded(
        self, weights: Any, names: Mapping[str, Any], progress: bool | None
    ) -> Mapping[str, Any]:
        """The values of all parameters of the model, whose layers become those of these values."""
        plain = Decoder(self.config).state_dict()
        own = {
            name: p for name, p in plain.items() if name.removesuffix(".weight") not in self._packed
        }
        skipped = [names.get(name, name) for name in plain.keys() - own.keys()]
        ignored = [name for given in skipped for name in sources_of(given)]
        values: Any = Values(weights, own, names, [*UNUSED, *ignored])
        packed: dict[str, Any] = {}
        for layer, weight in self._packed.items():
            packed |= {f"{layer}.{name}": array for name, array in weight.read().items()}
        if self.quantization is None:
            return {**values.read(progress), **packed}
        return rounded(self._decoder, ChainMap(packed, values), progress)

    def _program(self, decoder: Any, specification: Any, what: object) -> Any:
        """The program of a decoder, which `what` tells from others of this model."""
        forms = [(name, w.quantization, w.has_offset) for name, w in self._packed.items()]
        quantization = self.quantization and as_quantization(self.quantization)
        return compile_made(
            lambda: decoder.export_tvm(specification)[0],
            repr((self.config, get_default_dtype(), quantization, forms, what)),
            target=self._target,
        )

    @property
    def program(self) -> Any:
        """The program without adapters and hooks, which also makes caches."""
        return self._programs[_STEPS, (), False]

    @property
    def dtype(self) -> str:
        """The datatype of what the layers compute."""
        return str(self._decoder.norm.weight.dtype)

    def prepare(self, adapter: Adapter | None, *, hooked: bool = False) -> None:
        """Compile the program that an adapter or hooks need, so that no batch waits for that."""
        kinds = AdapterSet([] if adapter is None else [adapter]).kinds
        self._program_with(kinds, hooked, *_STEPS)

    def forget_adapters(self) -> None:
        """Free what several adapters together need; those that nobody refers to are free then."""
        self._together = None

    def _adapting(self, adapters: Sequence[Adapter | None]) -> _Adapting:
        """The program with some adapters, and its parameters."""
        own = [*dict.fromkeys(adapter for adapter in adapters if adapter is not None)]
        found = self._alone.get(own[0]) if len(own) == 1 else self._together
        if found is None or not found.adapters.has(own):
            together = AdapterSet(own)
            decoder = self._decoder_with(together.kinds)
            values = {**self.values, **together.values(decoder.layers, self.dtype)}
            found = _Adapting(together, tuple(values[name] for name in decoder.names()))
            if len(own) == 1:
                self._alone[own[0]] = found
            else:
                self._together = found
        return found

    def _decoder_with(self, kinds: Kinds, *, hooked: bool = False) -> Any:
        """The decoder with adapters of some kinds of layers, or with hooks."""
        plain = decoder_of(self.config, self._packed, self.quantization, hooked=hooked)
        return AdaptedDecoder(plain, kinds, self.dtype) if kinds else plain

    def _program_with(self, kinds: Kinds, hooked: bool, *methods: str) -> Any:
        """The program of methods of such a decoder."""
        key = methods, tuple(sorted(kinds)), hooked
        if key not in self._programs:
            decoder = self._decoder_with(kinds, hooked=hooked)
            self._programs[key] = self._program(decoder, decoder.specification(*methods), key)
        return self._programs[key]

    @property
    def packed_layers(self) -> int:
        """The number of matrices whose weights are in few bits."""
        return sum(name.endswith(".q_weight") for name in self.values)

    def exportable(self, sequences: int = 1) -> Executable:
        """The program of `prefill` and `decode` for a sequence of at most `context` tokens.

        It has the weights, and no cache: keys and values are in tensors that a call changes. For
        several `sequences` these have all of them, and there is a function `decode_batch`.
        """
        from relaxpy.plugins.llm.exported import ExportedDecoder  # which reads a script

        decoder = ExportedDecoder(self._decoder, self.context, sequences)
        specification = decoder.specification()
        module, _ = decoder.export_tvm(specification)
        weights = {f"decoder.{name}": rx.const(value) for name, value in self.values.items()}
        outputs = {"logits": 0, "new_keys": 1, "new_values": 2}
        for name in specification:
            func = module[name].bind_params(weights)
            module[name] = func.with_attrs({OUTPUT_TREE: outputs, SHARED_WEIGHTS: True})
        return compile(module, "native")

    def limits_of_exports(self, sequences: int = 1) -> dict[str, int]:
        """The numbers that callers of an exported program need for their memory, by names."""
        from relaxpy.plugins.llm.exported import cache_shape

        return {
            "CONTEXT": self.context,
            "VOCABULARY": self.config.vocabulary,
            "SEQUENCES": sequences,
            "CACHE": prod(cache_shape(self.config, self.context, sequences)),
        }

    def new_cache(self) -> Any:
        """A cache of keys and values without sequences."""
        return self.program["create_cache"](*self.limits)

    @cached_property
    def single_cache(self) -> Any:
        """A cache for one sequence at a time, without it."""
        return self.cache_for(1, self.context)

    def cache_for(self, sequences: int, context: int) -> Any:
        """A cache without sequences, for some of at most `context` tokens each."""
        limits = (sequences, sequences * context, self.chunk, self.page, 0)
        return self.program["create_cache"](*(ShapeTuple([n]) for n in limits))

    def pages_for(self, tokens: int) -> int:
        """The most pages that a sequence of so many tokens needs; the first may be a copy."""
        return -(-tokens // self.page) + 1

    def state(self, name: str, cache: Any, *args: Any) -> None:
        """Change the sequences of a cache: add_sequence, fork_sequence, popn, and so on."""
        self.check_free()
        symbol = f"vm.builtin.kv_state_{name}"
        (registered(symbol) or get_global_func(symbol))(cache, *args)

    def check_free(self) -> None:
        """Errors: ModelError if this is called by a hook, in the middle of a call of the model."""
        if self._thread == get_ident():
            raise ModelError("a hook cannot use the model that calls it")

    def run(
        self,
        cache: Any,
        sequences: Sequence[int],
        ids: Sequence[Sequence[int]],
        rows: Sequence[int] | None,
        adapters: Sequence[Adapter | None] = (),
        hooks: Sequence[Hooks] = (),
        errors: dict[int, Exception] | None = None,
    ) -> Any:
        """Append tokens to sequences; the scores, (len(rows), vocabulary), after some of them.

        `rows` count through the tokens of all sequences; None asks for the states of all tokens
        that the last layer sees, (tokens, width). `adapters` and `hooks` are those of the
        sequences; the errors of hooks are added to `errors` by their places, or else raised. After
        another error sequences are as before.
        """
        program, name, args = self.prepared(ids, rows, adapters, hooked=any(hooks))
        lengths = tuple(map(len, ids))
        self.state("begin_forward", cache, tuple(sequences), lengths)
        self._thread = get_ident()
        try:
            call = partial(program[name], *args(cache))
            found, failed = with_hooks(cache, hooks, lengths, call)
        except BaseException:  # some layers may have no keys of these tokens
            self._thread = None
            self.state("end_forward", cache)
            for sequence, count in zip(sequences, lengths, strict=True):
                self.state("popn", cache, sequence, count)
            raise
        self._thread = None
        self.state("end_forward", cache)
        if errors is not None:
            errors |= failed
        elif failed:
            raise next(iter(failed.values()))
        return found

    def prepared(
        self,
        ids: Sequence[Sequence[int]],
        rows: Sequence[int] | None,
        adapters: Sequence[Adapter | None],
        *,
        hooked: bool,
    ) -> tuple[Any, str, Callable[[Any], tuple[Any, ...]]]:
        """The program and its function for tokens, and the arguments by the cache."""
        flat = np.array([token for own in ids for token in own], np.int32)
        last: tuple[Any, ...] = ()
        name, methods = "decode", _STEPS
        if rows is None:
            name, methods = "states", ("states",)
        elif not len(flat) == len(rows) == 1:
            name, last = "forward", (np.array(rows, np.int32),)
        kinds: Kinds = frozenset()
        params = self.params
        if any(adapters):
            own = self._adapting(adapters)
            kinds, params = own.adapters.kinds, own.params
            last = (*last, own.adapters.mask(adapters, [*map(len, ids)], self.dtype))
        program = self._program_with(kinds, hooked, *methods)
        return program, name, lambda cache: (flat, *last, cache, params)


@dataclass(frozen=True)
class _Adapting:
    """Adapters that run together, and the parameters of their program."""

    adapters: AdapterSet
    params: tuple[Any, ...]


def decoder_of(
    config: Config, packed: Packed, quantization: str | None, *, hooked: bool = False
) -> Any:
    """The decoder with the layers that its weights need."""
    found: Any = WithPacked(packed).visit("", Decoder(config, hooked=hooked))
    return found if quantization is None else quantize_model(found, quantization)


def _check(config: Config, context: int, cache_dtype: str | None) -> None:
    """Errors: ParameterError if a model has no such context or cache."""
    if cache_dtype not in (None, *_CACHE_DTYPES):
        expected = f"one of {', '.join(_CACHE_DTYPES)}"
        raise ParameterError.of("cache_dtype", cache_dtype, expected)
    if context > config.positions:
        expected = f"at most the {config.positions} tokens that the model reads"
        raise ParameterError.of("context", context, expected)


def memory_of(decoder: Any, sequences: int, tokens: int, context: int, page: int = 16) -> int:
    """The bytes of the weights of a decoder, and of the keys and values of its caches.

    Errors:
        ParameterError: it reads fewer tokens than the `context`.
    """
    config: Config = decoder.config
    _check(config, context, config.cache_dtype)
    own = {id(p): p for _, p in decoder.named_parameters()}.values()
    weights = sum(prod(map(int, p.shape)) * DataType(p.dtype).numpy().itemsize for p in own)
    dtype = DataType(config.cache_dtype or decoder.norm.weight.dtype).numpy()
    row = 2 * config.layers * config.kv_heads * config.head_dim * dtype.itemsize
    pages = -(-tokens // page) + sequences + -(-context // page) + 1  # that of one sequence, too
    return weights + pages * page * row
