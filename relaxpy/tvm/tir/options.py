"""Options of TVM's passes for kernels that have no effect here: contexts accept them and warn."""

from collections.abc import Mapping, Sequence

from relaxpy.ir.pass_infra.passes import register_config

_LOWERED = "kernels are compiled without the passes that lower them in TVM"
_NO_DEVICE = "programs run on the CPU"
_PROFILED = "ex.profile measures kernels"

for kind, names, reason in (
    (
        bool,
        "noalias enable_debug disable_cse_tir enable_equiv_terms_in_cse_tir is_entry_func "
        "debug_keep_trivial_loop disable_assert disable_vectorize disable_storage_rewrite "
        "enable_buffer_level_predication",
        _LOWERED,
    ),
    (
        Mapping,
        "LoopPartition HoistExpression InjectDoubleBuffer ReduceBranchingThroughOvercompute",
        _LOWERED,
    ),
    (Sequence, "add_lower_pass", "passes run where they are called, before relaxpy.compile"),
    (bool, "detect_global_barrier use_async_copy merge_static_smem ptx_ldg32", _NO_DEVICE),
    (int, "vtcm_capacity", _NO_DEVICE),
    (bool, "instrument_bound_checkers", "each run checks indices, by default"),
    (bool, "instrument_lwp lwp_disable_func_prof instr_siblings reset_start_id", _PROFILED),
    (int, "lwp_max_depth lwp_min_height", _PROFILED),
):
    for name in names.split():
        register_config(f"tir.{name}", kind, no_effect=reason)
