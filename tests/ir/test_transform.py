"""Passes: what runs when, in which context, watched by whom, and what a failing one says."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from typing_extensions import override

from relaxpy import IRModule, errors
from relaxpy.ir import structural_equal, transform
from relaxpy.ir.pass_infra import passes
from relaxpy.ir.passes.fusion.fuse_ops import FuseOps
from relaxpy.ir.passes.rewrite_pass import Normalize
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import well_formed
from relaxpy.ir.transform import (
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    Sequential,
    get_pipeline,
    list_pipelines,
    module_pass,
    pass_instrument,
    register_pipeline,
)
from relaxpy.tir.transform import Apply, Filter, UseAssumeToReduceBranches
from relaxpy.tvm.cleanup.module_passes import (
    DataflowBlockPass,
    FunctionPass,
    dataflowblock_pass,
    function_pass,
)
from relaxpy.tvm.tir.bind_target import PrimFuncPass, prim_func_pass
from tests.ir.relax import graphs
from tests.ir.relax.sinfos import tensor

DECORATORS = (module_pass, function_pass, dataflowblock_pass, prim_func_pass)


@pytest.fixture
def mod() -> IRModule:
    x = graphs.var("x", tensor(2))
    return graphs.module(
        main=graphs.function([x], graphs.pure("f", graphs.shape_of(x))), k=graphs.kernel((2,))
    )


@dataclass(frozen=True)
class Note(Pass):
    """Writes its name into the module."""

    text: str = "note"
    opt_level = 1

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        notes = mod.get_attr("notes") or ()
        return mod.with_attr("notes", (*notes, self.text))  # type: ignore[misc]


@dataclass(frozen=True)
class Needy(Note):
    """Asks for a Note before it."""

    text: str = "needy"
    required = ("Note",)


@dataclass(frozen=True)
class Spoil(Pass):
    """Breaks the module."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return IRModule({"main": graphs.function([], graphs.var("nowhere", tensor(2)))}, mod.attrs)


@dataclass(frozen=True)
class Recorder(PassInstrument):
    """Notes down what it sees."""

    seen: list[str]
    refuse: str = ""

    @override
    def enter_pass_ctx(self) -> None:
        self.seen.append("enter")

    @override
    def exit_pass_ctx(self) -> None:
        self.seen.append("exit")

    @override
    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        if info.name == self.refuse:
            self.seen.append(f"refused {info.name}")
        return info.name != self.refuse

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.seen.append(f"before {info.name}")

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.seen.append(f"after {info.name}")


def notes(mod: IRModule) -> object:
    return mod.get_attr("notes")


@pytest.mark.rule("NF-21", "NF-22")
def test_normalize_gives_normal_form_and_the_same_module_when_done(mod: IRModule) -> None:
    before = mod.functions
    once = Normalize()(mod)
    assert once is not mod
    assert mod.functions == before
    assert graphs.called(once["main"]) == ["relax.shape_of", "f"]
    assert once["k"] is mod["k"]
    assert well_formed(once, normal_form=True)
    assert Normalize()(once) is once


def test_a_pass_takes_a_module(mod: IRModule) -> None:
    with pytest.raises(errors.MisuseError, match=r"Normalize takes an IRModule(?s:.*)from_expr"):
        Normalize()(mod["main"])  # type: ignore[arg-type]


def test_a_pass_has_a_name_and_a_level() -> None:
    assert Note().info == PassInfo(1, "Note")
    assert Needy("x").info == PassInfo(1, "Needy", ("Note",))
    named = Sequential([Note()], opt_level=3, name="mine", required=["Note"])
    assert named.info == PassInfo(3, "mine", ("Note",))


def test_a_sequence_runs_its_passes_in_order(mod: IRModule) -> None:
    assert notes(Sequential([Note("a"), Note("b")])(mod)) == ("a", "b")
    assert Sequential([])(mod) is mod
    with pytest.raises(errors.MisuseError, match="expected a pass"):
        Sequential([Note])  # type: ignore[list-item]


@pytest.mark.parametrize("kind", [FuseOps, UseAssumeToReduceBranches, Note, Sequential])
def test_a_module_is_not_an_option(kind: type[Pass], mod: IRModule) -> None:
    with pytest.raises(errors.MisuseError) as raised:
        kind(mod)  # type: ignore[call-arg]
    [problem] = raised.value.diagnostics
    assert problem.hint == f"write {kind.__name__}()(mod)"
    assert problem.span is not None
    assert "\n" not in problem.message


def test_what_a_pass_requires_runs_before_it_in_a_sequence(mod: IRModule) -> None:
    assert notes(Sequential([Needy()])(mod)) == ("note", "needy")
    assert passes.required_pass("relax.transform.Normalize") == Normalize()
    with pytest.raises(errors.UnknownNameError, match="did you mean 'Normalize'"):
        passes.required_pass("Normalise")


def test_the_name_of_a_pass_of_relaxpy_means_that_one(mod: IRModule) -> None:
    mine = type("Normalize", (Note,), {"__module__": "mine"})
    assert passes.required_pass("Normalize") == Normalize()
    whole = Sequential([Sequential([Note("last")], required=["Normalize"])])
    after = whole(mod)
    assert notes(after) == ("last",)
    assert well_formed(after, normal_form=True)
    for required in (mine, mine(), "mine.Normalize"):
        whole = Sequential([Sequential([Note("last")], required=[required])])
        assert notes(whole(mod)) == ("note", "last")


def test_a_name_that_several_classes_have_is_not_guessed(mod: IRModule) -> None:
    def one() -> type[Note]:
        class Twin(Note):
            pass

        return Twin

    def other() -> type[Note]:
        class Twin(Note):
            pass

        return Twin

    first = one()
    assert type(passes.required_pass("Twin")) is first
    again = one()  # as when a cell of a notebook runs a second time
    assert type(passes.required_pass("Twin")) is again
    other()
    with pytest.raises(
        errors.MisuseError, match=r"several passes are called Twin: .*one.*Twin, .*other"
    ):
        passes.required_pass("Twin")
    with pytest.raises(errors.MisuseError, match="a required pass is a pass or its name, found 3"):
        passes.required_pass(3)


def test_a_context_decides_which_passes_of_a_sequence_run(mod: IRModule) -> None:
    both = Sequential([Note("low"), Needy("needs")])
    with PassContext(opt_level=0):
        assert both(mod) is mod
    with PassContext(opt_level=0, required_pass=["Note"]):
        assert notes(both(mod)) == ("low",)
    with PassContext(disabled_pass=["Needy"]):
        assert notes(both(mod)) == ("low",)
    with PassContext(opt_level=0):
        assert notes(Note("asked for by name")(mod)) == ("asked for by name",)


def test_a_misspelt_name_of_a_pass_is_a_warning(mod: IRModule) -> None:
    for option in ("disabled_pass", "required_pass"):
        with (
            pytest.warns(
                errors.RelaxpyWarning, match=r"no pass named 'FuzeOps'; did you mean 'FuseOps'"
            ),
            PassContext(**{option: ["FuzeOps"]}),  # type: ignore[arg-type]
        ):
            Normalize()(mod)
    with (
        pytest.warns(errors.RelaxpyWarning, match="Notr"),
        PassContext(disabled_pass=["FuseOps"], required_pass=["Notr"]),
    ):
        Note("x")(mod)


def test_names_of_passes_that_run_and_of_other_packages_are_not_misspelt(mod: IRModule) -> None:
    @module_pass(opt_level=0, name="FuzeOps")
    def mine(mod: IRModule, ctx: PassContext) -> IRModule:
        return mod

    names = ["FuseOps", "relaxpy.ir.passes.rewrite_pass.Normalize"]
    with PassContext(disabled_pass=names), PassContext(required_pass=["tir.UnrollLoop"]):
        pass
    with PassContext(disabled_pass=["FuzeOps"]):
        Sequential([mine])(mod)


def test_passes_of_one_name_are_distinguished_by_their_modules(mod: IRModule) -> None:
    first, second = (type("Shared", (Note,), {"__module__": name}) for name in ("mine", "yours"))
    both = Sequential([first("first"), second("second")])
    assert [step.info.name for step in both.passes] == ["mine.Shared", "yours.Shared"]
    seen: list[str] = []
    with PassContext(disabled_pass=["yours.Shared"], instruments=[Recorder(seen)]):
        assert notes(both(mod)) == ("first",)
    assert [line for line in seen if "Shared" in line] == [
        *("before mine.Shared", "after mine.Shared")
    ]
    with PassContext(opt_level=0, required_pass=["yours.Shared"]):
        assert notes(both(mod)) == ("second",)
    for option in ("disabled_pass", "required_pass"):
        with (
            PassContext(opt_level=0, **{option: ["Shared"]}),  # type: ignore[arg-type]
            pytest.raises(errors.MisuseError, match=r"called Shared: mine\.Shared, yours\.Shared"),
        ):
            both(mod)


def test_a_plain_name_that_a_pass_of_relaxpy_has_too_lists_that_one_alone(mod: IRModule) -> None:
    mine = type("Normalize", (Note,), {"__module__": "mine"})
    both = Sequential([mine("mine"), Normalize()])
    assert [step.info.name for step in both.passes] == ["mine.Normalize", "Normalize"]
    with PassContext(disabled_pass=["Normalize"]):
        after = both(mod)
    assert notes(after) == ("mine",)
    assert not well_formed(after, normal_form=True)
    with PassContext(disabled_pass=["relaxpy.ir.passes.rewrite_pass.Normalize"]):
        assert not well_formed(both(mod), normal_form=True)
    with PassContext(disabled_pass=["mine.Normalize"]):
        after = both(mod)
    assert notes(after) is None
    assert well_formed(after, normal_form=True)


def test_what_a_pass_requires_needs_no_options(mod: IRModule) -> None:
    @module_pass(opt_level=0, required=["FunctionalPass"])
    def needy(mod: IRModule, ctx: PassContext) -> IRModule:
        return mod

    with pytest.raises(errors.MisuseError, match="pass FunctionalPass has options"):
        Sequential([needy])(mod)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"opt_level": "2"}, "opt_level is an integer, found '2'"),
        ({"opt_level": True}, "opt_level is an integer"),
        ({"disabled_pass": "Note"}, "a list of names of passes, found 'Note'"),
        ({"required_pass": 3}, "a list of names of passes, found 3"),
        ({"instruments": Recorder([])}, "a list of instruments, found Recorder"),
        ({"config": [1]}, r"config is a table, found \[1\]"),
        ({"config": {3: 4}}, "no option 3 for passes"),
    ],
)
def test_contexts_of_other_things_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(errors.MisuseError, match=says):
        PassContext(**options)  # type: ignore[arg-type]
    with pytest.raises(errors.MisuseError, match="a list of passes, found 3"):
        Sequential(3)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"no option 'relax\.Fold'"):
        PassContext(config={"relax.Fold": 1})


def test_contexts_nest(mod: IRModule) -> None:
    assert PassContext.current().opt_level == 2
    with PassContext(opt_level=1) as outer:
        with PassContext(opt_level=3) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
        with pytest.raises(ZeroDivisionError), PassContext(opt_level=0):
            _ = 1 // 0
        assert PassContext.current() is outer


def test_instruments_of_the_default_context_stay_until_they_are_replaced(mod: IRModule) -> None:
    seen: list[str] = []
    default = PassContext.current()
    default.override_instruments([Recorder(seen)])
    try:
        Normalize()(mod)
        assert PassContext.current() is default
        assert not default.is_default
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(PassContext.current).result().is_default
        with PassContext():
            Normalize()(mod)
    finally:
        default.override_instruments(None)
    Normalize()(mod)
    assert seen == ["enter", "before Normalize", "after Normalize", "exit"]
    assert PassContext.current().is_default


def test_options_are_known_and_of_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_configs", {})
    passes.register_config("relax.test.depth", int)
    with PassContext(config={"relax.test.depth": 3}) as ctx:
        assert ctx.config == {"relax.test.depth": 3}
    assert PassContext.list_configs() == {"relax.test.depth": {"type": "int"}}
    with pytest.raises(errors.MisuseError, match=r"did you mean 'relax\.test\.depth'"):
        PassContext(config={"relax.test.deep": 3})
    with pytest.raises(errors.UnknownOptionError, match="is of type int"):
        PassContext(config={"relax.test.depth": "3"})


def test_fields_of_an_option_have_defaults() -> None:
    config = PassContext(config={"tir.UnrollLoop": {"auto_max_step": 10}}).config or {}
    assert config["tir.UnrollLoop"].auto_max_step == 10
    assert config["tir.UnrollLoop"].explicit_unroll is True
    with pytest.raises(TypeError, match="has no option 'auto_step'"):
        PassContext(config={"tir.UnrollLoop": {"auto_step": 1}})


#: The keys of passes for kernels that TVM 0.22 registers (src/tir/ir/transform.cc, and files of
#: src/tir/transforms and src/arith).
TVM_KEYS = (
    "Simplify HoistIfThenElse HoistExpression LoopPartition UnrollLoop RemoveNoOp "
    "InjectDoubleBuffer ReduceBranchingThroughOvercompute noalias detect_global_barrier "
    "instrument_bound_checkers disable_assert disable_vectorize enable_buffer_level_predication "
    "disable_cse_tir enable_debug enable_equiv_terms_in_cse_tir disable_storage_rewrite "
    "is_entry_func add_lower_pass debug_keep_trivial_loop use_async_copy merge_static_smem "
    "instrument_lwp vtcm_capacity ptx_ldg32 lwp_disable_func_prof lwp_max_depth lwp_min_height "
    "instr_siblings reset_start_id"
)


@pytest.mark.parametrize("key", TVM_KEYS.split())
def test_keys_of_tvm_have_an_effect_or_a_warning(key: str) -> None:
    kind = PassContext.list_configs()[f"tir.{key}"]["type"]
    value = {"Mapping": {}, "Sequence": [], "bool": True, "int": 1}[kind]
    context = PassContext(config={f"tir.{key}": value})
    with pytest.raises(errors.UnknownOptionError, match=f"is of type {kind}"):
        PassContext(config={f"tir.{key}": None})
    if key in ("Simplify", "HoistIfThenElse"):
        with context:
            return
    with (
        pytest.warns(errors.RelaxpyWarning, match=f"option tir.{key} has no effect: ") as warned,
        context,
        PassContext(config={f"tir.{key}": value}),
    ):
        pass
    assert [warning.filename for warning in warned] == [__file__]


def test_instruments_see_every_pass(mod: IRModule) -> None:
    seen: list[str] = []
    with PassContext(instruments=[Recorder(seen)]):
        Sequential([Note()], name="all")(mod)
    assert seen == ["enter", "before all", "before Note", "after Note", "after all", "exit"]


def test_an_instrument_may_skip_a_pass_unless_it_is_required(mod: IRModule) -> None:
    recorder = Recorder([], refuse="Note")
    with PassContext(instruments=[recorder]):
        assert Note()(mod) is mod
    assert recorder.seen == ["enter", "refused Note", "exit"]
    recorder.seen.clear()
    with PassContext(instruments=[recorder], required_pass=["Note"]):
        assert notes(Note()(mod)) == ("note",)
    assert recorder.seen == ["enter", "before Note", "after Note", "exit"]


def test_instruments_can_be_exchanged(mod: IRModule) -> None:
    first: list[str] = []
    second: list[str] = []
    with PassContext(instruments=[Recorder(first)]) as ctx:
        ctx.override_instruments([Recorder(second)])
        Note()(mod)
    assert first == ["enter", "exit"]
    assert second == ["enter", "before Note", "after Note", "exit"]


def test_an_instrument_that_fails_to_begin_ends_those_before_it(mod: IRModule) -> None:
    seen: list[str] = []

    @pass_instrument
    class Broken:
        def enter_pass_ctx(self) -> None:
            raise errors.TransformError("no")

    with pytest.raises(errors.TransformError), PassContext(instruments=[Recorder(seen), Broken()]):
        pass
    assert seen == ["enter", "exit"]
    assert PassContext.current().instruments == ()

    with PassContext(instruments=[Recorder(seen)]) as ctx:
        with pytest.raises(errors.TransformError):
            ctx.override_instruments([Recorder(seen), Broken()])
        assert ctx.instruments == ()
    assert seen == ["enter", "exit"] * 3


def test_an_instrument_that_fails_to_end_does_not_keep_the_others() -> None:
    seen: list[str] = []

    @pass_instrument
    class Broken:
        def exit_pass_ctx(self) -> None:
            seen.append("broken")
            raise errors.TransformError("no")

    with (
        pytest.raises(errors.TransformError, match="no"),
        PassContext(instruments=[Recorder(seen), Broken(), Recorder(seen)]),
    ):
        pass
    assert seen == ["enter", "enter", "exit", "broken", "exit"]
    assert PassContext.current().instruments == ()


def test_any_class_can_become_an_instrument(mod: IRModule) -> None:
    @pass_instrument
    class Count:
        count = 0

        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            self.count += 1

    counter = Count()
    with PassContext(instruments=[counter]):
        Note()(Note()(mod))
    assert counter.count == 2  # type: ignore[attr-defined]
    assert counter.name == "Count"
    assert pass_instrument(Recorder) is Recorder
    with pytest.raises(errors.MisuseError, match="an instrument is a class"):
        pass_instrument(3)  # type: ignore[arg-type]


def test_debug_mode_checks_what_each_pass_makes(mod: IRModule) -> None:
    with PassContext(check=True):
        assert well_formed(Normalize()(mod))
        with pytest.raises(errors.WellFormedError, match="WF-2a") as caught:
            Sequential([Normalize(), Spoil()])(mod)
    assert caught.value.__notes__ == ["after pass Spoil"]
    Spoil()(mod)


def test_an_error_says_in_which_pass_it_happened(mod: IRModule) -> None:
    with pytest.raises(errors.StructInfoError) as caught:
        Sequential([Spoil(), Normalize()])(mod)
    assert caught.value.__notes__ == ["in pass Normalize"]


def test_a_module_pass_is_a_decorated_function(mod: IRModule) -> None:
    @module_pass(opt_level=3, name="mine")
    def rename(mod: IRModule, ctx: PassContext) -> IRModule:
        return mod.with_attr("by", ctx.opt_level)

    assert isinstance(rename, Pass)
    assert rename.info == PassInfo(3, "mine")
    assert rename(mod).get_attr("by") == 2


def test_passes_of_functions_say_by_their_class_what_they_go_over() -> None:
    def same(found: object, mod: IRModule, ctx: PassContext) -> object:
        return found

    for decorator, kind in (
        (module_pass, transform.ModulePass),
        (function_pass, FunctionPass),
        (dataflowblock_pass, DataflowBlockPass),
        (prim_func_pass, PrimFuncPass),
    ):
        made = decorator(opt_level=0)(same)
        assert type(made) is kind
        assert isinstance(made, Pass)


def test_a_module_pass_is_a_decorated_class(mod: IRModule) -> None:
    @module_pass(opt_level=1)
    class Stamp:
        def __init__(self, text: str) -> None:
            self.text = text

        def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
            return mod.with_attr("stamp", self.text)

    stamp = Stamp("ok")
    assert isinstance(stamp, Pass)
    assert stamp.info == PassInfo(1, "Stamp")
    assert stamp.text == "ok"
    assert stamp(mod).get_attr("stamp") == "ok"


def test_a_pass_gives_a_module(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def forgets(mod: IRModule, ctx: PassContext) -> None:
        return None

    with pytest.raises(errors.TransformError, match="forgets returned NoneType"):
        forgets(mod)


def test_a_pass_over_functions_shows_the_attributes_of_its_object(mod: IRModule) -> None:
    @function_pass(opt_level=0)
    class Stamp:
        text = "ok"

        def transform_function(
            self, func: rx.Function, mod: IRModule, ctx: PassContext
        ) -> rx.Function:
            return func

    assert Stamp().text == "ok"
    with pytest.raises(AttributeError, match="'Stamp' object has no attribute 'nothing'"):
        _ = Stamp().nothing
    plain = module_pass(lambda mod, ctx: mod, opt_level=0)
    with pytest.raises(AttributeError, match="a ModulePass has no attribute 'nothing'"):
        _ = plain.nothing


def test_what_cannot_be_a_pass_is_refused() -> None:
    with pytest.raises(errors.MisuseError, match="needs an opt_level"):
        module_pass(lambda mod, ctx: mod)
    with pytest.raises(errors.MisuseError, match="has no method transform_module"):
        module_pass(opt_level=0)(int)
    with pytest.raises(errors.MisuseError, match="a pass is a function or a class"):
        module_pass(opt_level=0)(3)


def test_a_function_pass_sees_each_relax_function(mod: IRModule) -> None:
    seen = []

    @function_pass(opt_level=0)
    def look(func: rx.Function, mod: IRModule, ctx: PassContext) -> rx.Function:
        seen.append(func)
        return func

    assert look(mod) is mod
    assert seen == [mod["main"]]


def test_what_a_function_pass_builds_is_normalised(mod: IRModule) -> None:
    @function_pass(opt_level=0)
    class Wrap:
        def transform_function(
            self, func: rx.Function, mod: IRModule, ctx: PassContext
        ) -> rx.Function:
            x = graphs.var("x", tensor(2))
            return graphs.function([x], graphs.pure("g", graphs.pure("h", x)), global_symbol="main")

    result = Wrap()(mod)
    assert graphs.called(result["main"]) == ["h", "g"]
    assert graphs.called(Normalize()(mod)["main"]) == ["relax.shape_of", "f"]


def test_a_function_pass_gives_functions(mod: IRModule) -> None:
    @function_pass(opt_level=0)
    def wrong(func: rx.Function, mod: IRModule, ctx: PassContext) -> int:
        return 3

    with pytest.raises(errors.TransformError, match="a pass over Functions returned int for main"):
        wrong(mod)


def test_a_dataflow_block_pass_sees_each_dataflow_block() -> None:
    x, y = graphs.var("x", tensor(2)), graphs.var("y")
    inner = graphs.function([], graphs.seq(graphs.dataflow(graphs.bind(graphs.local("a"), x)), x))
    body = graphs.seq(
        graphs.dataflow(graphs.bind(graphs.local("b"), x)), graphs.block(graphs.bind(y, inner)), x
    )
    mod = Normalize()(graphs.module(main=graphs.function([x], body)))

    @dataflowblock_pass(opt_level=0)
    def empty(found: rx.DataflowBlock, mod: IRModule, ctx: PassContext) -> rx.DataflowBlock:
        return rx.DataflowBlock(())

    [only] = graphs.bindings(empty(mod)["main"])
    assert isinstance(only.value, rx.Function)
    assert graphs.bindings(only.value) == []

    @dataflowblock_pass(opt_level=0)
    def wrong(found: rx.DataflowBlock, mod: IRModule, ctx: PassContext) -> rx.BindingBlock:
        return rx.BindingBlock(())

    with pytest.raises(errors.TransformError, match="returned BindingBlock"):
        wrong(mod)


def test_pipelines_are_known_by_name(mod: IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform, "_pipelines", dict(transform._pipelines))
    assert "default" in list_pipelines()
    assert structural_equal(get_pipeline("legalize")(mod), Normalize()(mod))
    assert get_pipeline().info.name == "default"

    @register_pipeline("mine")
    def mine(text: str) -> Pass:
        return Note(text)

    assert notes(get_pipeline("mine", text="hello")(mod)) == ("hello",)
    with pytest.raises(errors.MisuseError, match="already registered"):
        register_pipeline("mine")
    with pytest.raises(errors.UnknownNameError, match="did you mean 'default'") as caught:
        get_pipeline("defualt")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("misuse", "says"),
    [
        (get_pipeline, "the name of a pipeline is a string, found"),
        (register_pipeline, "the name of a pipeline is a string, found"),
        (pass_instrument, "an instrument is a class, found"),
        (Apply, "expected a function of PrimFuncs, found"),
        (Filter, "expected a function of PrimFuncs, found"),
        *((make, "a pass is a function or a class, found") for make in DECORATORS),
        (lambda mod: PassContext(opt_level=mod), "opt_level is an integer, found"),
        (lambda mod: FuseOps(rule=mod), "rule is a function, found"),
        (lambda mod: FuseOps(fuse_opt_level=mod), "fuse_opt_level is an integer, found"),
    ],
)
def test_a_module_in_place_of_an_option_is_named_by_its_type(mod, misuse, says) -> None:
    with pytest.raises(errors.MisuseError) as raised:
        misuse(mod)
    assert str(raised.value.diagnostic.message) == f"{says} a value of type IRModule"
    assert isinstance(raised.value, TypeError)
