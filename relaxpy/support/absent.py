"""Names of TVM that are absent or differ here: one table, with what to use instead of each.

Errors of imports, modules and objects quote it, and docs/differences.md begins with it. Whatever
adds a name removes it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

_NO_SCHEDULE = "tir.Schedule transforms a kernel, which te.create_prim_func makes of tensors"
_NO_STATE = "a tir.Schedule looks up blocks and loops by the names that it returned"
_NOT_TUNED = "nothing is tuned: kernels become vectors and threads without schedules"
_EXACT = "the exact operators and functions, such as topi.exp and topi.nn.softmax, are as fast"
_PROOFS = "arith.Analyzer bounds, simplifies and proves expressions; nothing solves them"
_NO_LIBRARY = "no compiler and no library of kernels is called; relaxpy.doctor() says what is there"
_DEVICE = "relaxpy.device('metal') describes a device; programs run on the CPU"
_ONE_PROCESS = "collective operators run among processes that MPI starts (relaxpy.distributed)"
_THREADS = "the environment variable RELAXPY_NUM_THREADS decides it, when the first program runs"
_TARGET = "write relaxpy.target.Target('native'), or omit the target"
_TO_RELAX = (
    "relay.to_relax makes a Relax module, which relaxpy.compile and the passes of Relax take"
)
_IMPORTER = (
    "there is no importer of it: export the model to ONNX, or write it with "
    "relax.frontend.nn, "
    "whose load_state_dict takes the weights"
)

#: A module below `tvm`, or a class; its names; and what to use instead of all of them.
ABSENT: tuple[tuple[str, str, str], ...] = (
    ("relax.frontend", "stablehlo tflite", _IMPORTER),
    ("tir", "ScheduleState TensorIntrin BlockDependenceInfo tensor_intrin", _NO_STATE),
    ("s_tir", "ScheduleState TensorIntrin tensor_intrin", _NO_STATE),
    ("te", "create_schedule thread_axis", _NO_SCHEDULE),
    ("tir", "ir_builder", "write a kernel as a function under @T.prim_func"),
    (
        "Schedule",
        "cache_index cache_inplace read_at write_at sample_partitioned_tile",
        "cache_read, cache_write, reindex and compute_at stage data, and sample_perfect_tile draws "
        "factors",
    ),
    ("Schedule", "unsafe_hide_buffer_access", "blocks have the regions that their bodies access"),
    ("te", "hybrid", "write a kernel as a function under @T.prim_func"),
    ("", "hybrid", "write a kernel as a function under @T.prim_func"),
    ("", "meta_schedule auto_scheduler autotvm", _NOT_TUNED),
    ("s_tir", "meta_schedule", _NOT_TUNED),
    (
        "relax.transform",
        "tuning_api FewShotTuning MetaScheduleApplyDatabase MetaScheduleTuneIRMod "
        "MetaScheduleTuneTIR",
        _NOT_TUNED,
    ),
    ("relax", "static_shape_tuning_pipeline", _NOT_TUNED),
    ("relax.pipeline", "static_shape_tuning_pipeline", _NOT_TUNED),
    ("get_pipeline", "static_shape_tuning", _NOT_TUNED),
    ("relax.transform", "FastMathTransform", _EXACT),
    (
        "arith",
        "IntConstraints IntConstraintsTransform IntGroupBounds deduce_bound "
        "estimate_region_lower_bound estimate_region_strict_bound estimate_region_upper_bound "
        "int_solver narrow_predicate_expression solve_linear_equations solve_linear_inequalities",
        _PROOFS,
    ),
    (
        "script.printer",
        "doc doc_printer",
        "mod.script() is the text of a program, and ast.unparse of Python that of a syntax tree",
    ),
    ("topi", "fast_exp fast_tanh fast_erf", _EXACT),
    ("topi.nn", "fast_softmax", _EXACT),
    ("", "lower driver", "relaxpy.compile(func) compiles a kernel, too"),
    ("tir", "Load Store ProducerStore", "write tir.BufferLoad and tir.BufferStore"),
    ("tir", "Any", "a dimension that is not known is a variable, tir.Var('n', 'int64')"),
    ("", "ffi _ffi", "register_global_func is in relaxpy, and convert in relaxpy.runtime"),
    ("", "register_object", "nodes are classes of Python, which need no registration"),
    ("", "ext_dev hexagon metal opencl rocm vpi vulkan webgpu", _DEVICE),
    ("runtime", "ext_dev hexagon metal opencl rocm vpi vulkan webgpu", _DEVICE),
    ("", "rpc micro", _ONE_PROCESS),
    ("support", "libinfo describe", _NO_LIBRARY),
    ("runtime", "disco", _ONE_PROCESS),
    (
        "runtime",
        "PackedFunc",
        "packed functions are functions of Python, which register_func names",
    ),
    ("runtime", "ndarray", "relaxpy.runtime.tensor makes a tensor of an array"),
    ("runtime", "String", "strings are those of Python"),
    ("runtime", "enabled system_lib load_static_library", _NO_LIBRARY),
    ("runtime", "num_threads", _THREADS),
    ("relay", "frontend", "relax.frontend.onnx and relax.frontend.torch import models"),
    ("relay", "build build_module optimize build_config loops dataflow_pattern random", _TO_RELAX),
    (
        "relay.transform",
        "AlterOpLayout AnnotateTarget BackwardFoldScaleAxis CanonicalizeCast CanonicalizeOps "
        "CombineParallelBatchMatmul CombineParallelConv2D CombineParallelDense ConvertLayout "
        "DivToMul DynamicToStatic FastMath FirstOrderGradient FoldScaleAxis ForwardFoldScaleAxis "
        "Legalize ManifestLifetimes MergeCompilerRegions MergeComposite PartitionGraph PlanDevices "
        "SplitArgs ToMixedPrecision gradient",
        _TO_RELAX,
    ),
    (
        "Executable",
        "get_source inspect_source imported_modules import_module get_lib",
        "ex.source is the Python text, and ex.kernel_source(name, 'llvm') the code of a kernel",
    ),
    (
        "IRModule",
        "export_library save",
        "compile it first: relaxpy.compile(mod).save(path); mod.script() is the text",
    ),
    (
        "Executable",
        "entry_func",
        "functions are called by name, as in ex['main'](...); 'main' in ex says if there is one",
    ),
    (
        "Executable",
        "save_function invoke_closure set_instrument",
        "relaxpy.VirtualMachine(ex) has it",
    ),
    (
        "Executable",
        "to state_dict load_state_dict parameters eval train",
        "weights are arguments of a call or constants of the program, which runs on this CPU",
    ),
    (
        "Profile",
        "save export export_chrome_trace",
        "to_chrome_trace(path) writes a time line; csv() and to_json() are the rows as text",
    ),
    ("Profile", "key_averages", "by_operator() and by_line() are sums of the rows"),
    ("relax", "vm", "relax.build compiles, and relax.VirtualMachine runs what it returns"),
    (
        "contrib",
        "graph_executor graph_runtime debugger",
        "relaxpy.compile(relay.to_relax(mod)) is called, or run by relax.VirtualMachine",
    ),
    (
        "contrib",
        "cc nvcc ndk xcode emcc tar clang hipcc rocm hexagon cblas cublas cudnn mkl dnnl mps "
        "nnpack cutlass thrust coreml_runtime tflite_runtime",
        _NO_LIBRARY,
    ),
    ("contrib", "download pickle_memoize", "urllib and functools of Python do it"),
    ("contrib", "popen_pool", "concurrent.futures of Python calls functions in other processes"),
    ("contrib", "dlpack", "relaxpy.runtime.from_dlpack reads what supports DLPack"),
    ("topi", "cuda gpu x86 arm_cpu cpp", "relaxpy.topi has one form of each function"),
    ("topi", "vision", "the operators of relax.op.vision find regions and boxes"),
    (
        "topi",
        "signal sparse sparse_reshape sparse_fill_empty_rows rnn random unique strided_set "
        "fixed_point_multiply",
        "te.compute makes a tensor of a formula, and te.extern one of a kernel",
    ),
    ("target", "arm_cpu cuda hexagon intel_graphics mali rocm", _TARGET),
    ("target", "codegen list_kinds list_tags register_tag", _TARGET),
    (
        "tir.transform",
        "CommonSubexprElimTIR ConvertSSA HoistExpression "
        "LoopPartition VectorizeLoop ConvertForLoopsToSerial StorageRewrite "
        "CompactBufferAllocation PlanAndUpdateBufferAllocationLocation "
        "LowerMatchBuffer LowerOpaqueBlock LowerIntrin LowerTVMBuiltin LowerCustomDatatypes "
        "LowerCrossThreadReduction LowerThreadAllreduce LowerWarpMemory LowerAsyncDMA "
        "LowerAutoCopy LowerVtcmAlloc LowerDeviceKernelLaunch "
        "FlattenBuffer NarrowDataType BF16ComputeLegalize "
        "BF16StorageLegalize FP8ComputeLegalize FP8StorageLegalize InjectDoubleBuffer "
        "InjectRollingBuffer InjectSoftwarePipeline InjectVirtualThread InjectPermutedLayout "
        "InjectPTXAsyncCopy InlinePrivateFunctions InferFragment InstrumentBoundCheckers "
        "InstrumentProfileIntrinsics AnnotateEntryFunc AnnotateIrregularLoop "
        "AnnotateDeviceRegions CombineContextCall DecorateDeviceScope "
        "DefaultGPUSchedule ExtractPrimFuncConstants LiftThreadBinding MakePackedAPI "
        "MakeUnpackedAPI ManifestSharedMemoryLocalStage MergeSharedMemoryAllocations "
        "PointerValueTypeRewrite ReduceBranchingThroughOvercompute "
        "RemoveStoreUndef RemoveWeightLayoutRewriteBlock RenormalizeSplitPattern "
        "RewriteUnsafeSelect SkipAssert SplitHostDevice ThreadSync TransformMmaBufferLayout "
        "UnifyThreadBinding VerifyMemory VerifyVTCMLimit",
        "relaxpy.compile does all that its targets need; Analyzer().simplify of relaxpy.arith "
        "simplifies an expression",
    ),
    (
        "tir.analysis",
        "verify_memory verify_gpu_code calculate_allocated_bytes OOBChecker",
        "verify_well_formed checks a kernel, and each run its indices; ex.profile(...) counts its "
        "operations and bytes",
    ),
)

_CHAT = (
    "relaxpy.llm.load(path) reads a language model, whose generate(text) continues a text; the "
    "commands relaxpy chat and relaxpy serve run one"
)
_LOAD = "relaxpy.compile(model) and relaxpy.load(model) take PyTorch's models, ONNX's, and paths"
_ARRAYS = (
    "tensors at run time are NumPy arrays; R.Tensor of relaxpy.script describes one in a program"
)
_DECORATED = (
    "decorate a function with @R.function of relaxpy.script: a call compiles it for its arguments"
)

#: Names that users of other libraries expect, in the form of ABSENT.
EXPECTED: tuple[tuple[str, str, str], ...] = (
    (
        "",
        "import_onnx import_torch load_onnx load_torch onnx torch pytorch frontend importers "
        "convert hub pipeline",
        _LOAD,
    ),
    ("", "from_pretrained from_gguf load_gguf generate chat serve", _CHAT),
    (
        "",
        "to_onnx export_onnx",
        "programs are not exported to ONNX; executables are saved: ex.save(path)",
    ),
    ("", "compile_model optimize", "relaxpy.compile(model) optimises and compiles a model"),
    ("", "tune autotune", _NOT_TUNED),
    ("", "InferenceSession Session Model Module", _LOAD),
    ("", "jit function trace", _DECORATED),
    (
        "",
        "vmap pmap",
        "a batch is a dimension; its size may be a name, as in R.Tensor(('n', 64), 'float32')",
    ),
    (
        "",
        "Tensor tensor array ndarray asarray from_numpy zeros ones full empty arange rand randn "
        "random",
        _ARRAYS,
    ),
    ("", "eval no_grad inference_mode", "relaxpy.compile(model) runs a model for inference"),
    ("", "gpu mps xpu", "programs run on the CPU, which needs no name"),
    ("", "nn", "relaxpy.relax.frontend.nn has modules and layers"),
    ("", "run predict infer", "relaxpy.compile(model)(x) runs a model"),
    ("", "dtype float16 float32 bfloat16 int8 int32 int64", "datatypes are strings, as 'float32'"),
    (
        "",
        "save",
        "relaxpy.compile(model).save(path) writes an executable, and mod.script() is text",
    ),
    (
        "",
        "grad value_and_grad autograd gradient",
        "relaxpy.relax.transform.Gradient('main')(mod) adds main_adjoint, which returns gradients",
    ),
    ("", "optim optimizer", "relaxpy.relax.training has optimisers and a trainer"),
    ("", "set_num_threads get_num_threads num_threads set_threads get_threads threads", _THREADS),
    (
        "",
        "config options settings set_option",
        "relaxpy.transform.PassContext(config={...}) has options of passes, and RELAXPY_* in the "
        "environment those of a process; relaxpy.doctor() shows them",
    ),
    (
        "",
        "backends list_targets devices default_device info print_config",
        "relaxpy.doctor() shows the CPU, the targets and the settings of this process",
    ),
    (
        "",
        "set_target set_default_target",
        "relaxpy.compile(model, target='numpy') has a target, and RELAXPY_TARGET is the default",
    ),
    (
        "",
        "cache clear_cache disable_cache",
        "the command relaxpy cache --clear empties the cache on disk; RELAXPY_CACHE=0 uses none",
    ),
    ("", "version", "it is relaxpy.__version__"),
    (
        "",
        "debug_nans detect_anomaly",
        "with relaxpy.check_values(): finds the first operator that makes NaN or infinity",
    ),
    (
        "",
        "debug debugger",
        "relaxpy.compile(model, target='numpy') runs Python, through which a debugger steps",
    ),
    ("", "show print_module", "mod.show() prints the program, and mod.graph() draws it"),
    (
        "",
        "profile profiler benchmark timeit",
        "relaxpy.compile(model).profile(x) times each kernel",
    ),
    ("", "quantize quantization", "relax.transform.QuantizeWeights('q4f32_1')(mod) packs weights"),
    ("", "export", "relaxpy.compile(model).save(path) writes an executable"),
    (
        "IRModule",
        "to_onnx export_onnx",
        "programs are not exported to ONNX; mod.script() is the text",
    ),
    ("IRModule", "compile build optimize", "relaxpy.compile(mod)"),
    ("IRModule", "run forward predict", "a module is called, mod(x), or one of its functions"),
    ("IRModule", "params inputs", "mod['main'].params has the parameters of a function"),
    (
        "IRModule",
        "print visualize plot draw",
        "mod.show() prints the program, and mod.graph() draws it",
    ),
    ("IRModule", "to_json", "relaxpy.ir.save_json(mod)"),
    (
        "IRModule",
        "text to_text code source dump pretty_print",
        "mod.script() is the program as text",
    ),
    ("IRModule", "keys names", "mod.functions_by_name has the functions"),
    ("IRModule", "outputs shape dtype", "mod['main'].ret_struct_info describes the result"),
    (
        "IRModule",
        "to cuda eval train parameters state_dict",
        "weights are parameters of functions or constants, and programs run on the CPU",
    ),
    ("IRModule", "summary", "mod.show() prints the program, and mod.graph() draws it"),
    (
        "Executable",
        "predict infer run forward evaluate",
        "an executable is called: ex(x), or ex['main'](x)",
    ),
    (
        "Executable",
        "code asm llvm kernels",
        "ex.report() lists the kernels, and ex.kernel_source(name, 'llvm') has the code of one",
    ),
    (
        "Executable",
        "show print script",
        "ex.source is the program as Python, and mod.show() prints it",
    ),
    (
        "Executable",
        "params weights",
        "ex.inputs lists the inputs, and ex.memory() has the size of weights",
    ),
    ("Executable", "set_num_threads num_threads threads", _THREADS),
    ("Executable", "device cpu cuda", "an executable runs on the CPU; ex.target says by what code"),
    ("Executable", "functions keys names", "[*ex] lists the names of the functions"),
    ("Executable", "summary info", "print(ex) shows the functions, and ex.report() the kernels"),
    (
        "Executable",
        "benchmark time timeit",
        "ex.profile(x) times each kernel, and ex.time_evaluator('main')(x) the function",
    ),
    ("Executable", "to_onnx", "ex.save(path) writes a file that relaxpy.load_executable reads"),
    (
        "Executable",
        "get_inputs input_names input_shapes shapes dtype signature",
        "ex.inputs lists the inputs",
    ),
    ("Executable", "output_names output_shapes", "ex.outputs lists the outputs"),
)

#: Those that are modules which programs import at the top, and use in some branches only.
ABSENT_MODULES = frozenset(
    {
        *("rpc", "micro", "meta_schedule", "auto_scheduler", "autotvm"),
        *(
            f"contrib.{name}"
            for parent, names, _ in ABSENT
            if parent == "contrib"
            for name in names.split()
        ),
    }
)


@cache
def _instead() -> Mapping[str, str]:
    return {
        f"{parent}.{name}".removeprefix("."): instead
        for parent, names, instead in (*EXPECTED, *ABSENT)
        for name in names.split()
    }


def instead_of(path: str) -> str | None:
    """The replacement of a name that relaxpy does not have, or of an attribute, if it is listed.

    A path inside an absent module has the hint of the module.
    """
    path = path.removeprefix("relaxpy.")
    module = next((m for m in ABSENT_MODULES if path.startswith(f"{m}.")), path)
    return _instead().get(module)
