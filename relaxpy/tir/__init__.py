"""The loop level: scalar expressions, statements, buffers and PrimFuncs."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.errors import ScheduleError as ScheduleError
    from relaxpy.ir.te.tensor import ProducerLoad as ProducerLoad
    from relaxpy.ir.tir.analysis.index_map import IndexMap as IndexMap
    from relaxpy.ir.tir.buffer import (
        Buffer as Buffer,
        BufferLoad as BufferLoad,
        BufferRegion as BufferRegion,
        decl_buffer as decl_buffer,
    )
    from relaxpy.ir.tir.expr import (
        EQ as EQ,
        GE as GE,
        GT as GT,
        LE as LE,
        LT as LT,
        NE as NE,
        Add as Add,
        And as And,
        BinaryOpExpr as BinaryOpExpr,
        Broadcast as Broadcast,
        Call as Call,
        Cast as Cast,
        CmpExpr as CmpExpr,
        ConstExpr as ConstExpr,
        Div as Div,
        FloatImm as FloatImm,
        FloorDiv as FloorDiv,
        FloorMod as FloorMod,
        IntImm as IntImm,
        IterVarKind as IterVarKind,
        Let as Let,
        LogicalExpr as LogicalExpr,
        Max as Max,
        Min as Min,
        Mod as Mod,
        Mul as Mul,
        Not as Not,
        Or as Or,
        PrimExpr as PrimExpr,
        Ramp as Ramp,
        Select as Select,
        Shuffle as Shuffle,
        SizeVar as SizeVar,
        StringImm as StringImm,
        Sub as Sub,
        Var as Var,
    )
    from relaxpy.ir.tir.functor import (
        PyStmtExprMutator as PyStmtExprMutator,
        PyStmtExprMutatorWithAnalyzer as PyStmtExprMutatorWithAnalyzer,
        PyStmtExprVisitor as PyStmtExprVisitor,
        PyStmtExprVisitorWithAnalyzer as PyStmtExprVisitorWithAnalyzer,
    )
    from relaxpy.ir.tir.intrin import (
        CallEffectKind as CallEffectKind,
        address_of as address_of,
        assume as assume,
        atan2 as atan2,
        bitwise_and as bitwise_and,
        bitwise_not as bitwise_not,
        bitwise_or as bitwise_or,
        bitwise_xor as bitwise_xor,
        break_loop as break_loop,
        call_cpacked as call_cpacked,
        call_extern as call_extern,
        call_intrin as call_intrin,
        call_packed as call_packed,
        call_pure_extern as call_pure_extern,
        clz as clz,
        continue_loop as continue_loop,
        copysign as copysign,
        exp2 as exp2,
        exp10 as exp10,
        hypot as hypot,
        infinity as infinity,
        isnullptr as isnullptr,
        ldexp as ldexp,
        likely as likely,
        log1p as log1p,
        logaddexp as logaddexp,
        nextafter as nextafter,
        pow as pow,
        pow as power,
        reinterpret as reinterpret,
        ret as ret,
        shift_left as shift_left,
        shift_right as shift_right,
        undef as undef,
        vscale as vscale,
    )
    from relaxpy.ir.tir.iteration import IterVar as IterVar, Range as Range
    from relaxpy.ir.tir.layout import (
        BijectiveLayout as BijectiveLayout,
        Layout as Layout,
        bijective_layout as bijective_layout,
        layout as layout,
    )
    from relaxpy.ir.tir.maths import *
    from relaxpy.ir.tir.ops import (
        all_of as all,
        any_of as any,
        const as const,
        convert as convert,
        floordiv as floordiv,
        floordiv as indexdiv,
        floormod as floormod,
        floormod as indexmod,
        logical_not as logical_not,
        mul as multiply,
        sub as subtract,
    )
    from relaxpy.ir.tir.prim_func.function import PrimFunc as PrimFunc
    from relaxpy.ir.tir.reduce import CommReducer as CommReducer, Reduce as Reduce
    from relaxpy.ir.tir.schedule.schedule import Schedule as Schedule
    from relaxpy.ir.tir.schedule.scheduled import StmtSRef as StmtSRef
    from relaxpy.ir.tir.stmt import (
        Allocate as Allocate,
        AllocateConst as AllocateConst,
        AssertStmt as AssertStmt,
        AttrStmt as AttrStmt,
        Block as Block,
        Block as SBlock,
        BlockRealize as BlockRealize,
        BlockRealize as SBlockRealize,
        BufferRealize as BufferRealize,
        BufferStore as BufferStore,
        DeclBuffer as DeclBuffer,
        Evaluate as Evaluate,
        For as For,
        ForKind as ForKind,
        IfThenElse as IfThenElse,
        LetStmt as LetStmt,
        MatchBufferRegion as MatchBufferRegion,
        SeqStmt as SeqStmt,
        Stmt as Stmt,
        While as While,
        stmt_seq as stmt_seq,
    )
    from relaxpy.tir import (
        analysis as analysis,
        buffer as buffer,
        data_layout as data_layout,
        expr as expr,
        function as function,
        functor as functor,
        generic as generic,
        op as op,
        schedule as schedule,
        stmt as stmt,
        stmt_functor as stmt_functor,
        transform as transform,
    )
else:
    _face(
        globals(),
        """
        relaxpy.errors: ScheduleError
        relaxpy.ir.te.tensor: ProducerLoad
        relaxpy.ir.tir.analysis.index_map: IndexMap
        relaxpy.ir.tir.buffer: Buffer BufferLoad BufferRegion decl_buffer
        relaxpy.ir.tir.expr: EQ GE GT LE LT NE Add And BinaryOpExpr Broadcast Call Cast CmpExpr
            ConstExpr Div FloatImm FloorDiv FloorMod IntImm IterVarKind Let LogicalExpr Max Min Mod Mul
            Not Or PrimExpr Ramp Select Shuffle SizeVar StringImm Sub Var
        relaxpy.ir.tir.functor: PyStmtExprMutator PyStmtExprMutatorWithAnalyzer PyStmtExprVisitor
            PyStmtExprVisitorWithAnalyzer
        relaxpy.ir.tir.intrin: CallEffectKind address_of assume atan2 bitwise_and bitwise_not bitwise_or
            bitwise_xor break_loop call_cpacked call_extern call_intrin call_packed call_pure_extern clz
            continue_loop copysign exp2 exp10 hypot infinity isnullptr ldexp likely log1p logaddexp
            nextafter pow reinterpret ret shift_left shift_right undef vscale power=pow
        relaxpy.ir.tir.iteration: IterVar Range
        relaxpy.ir.tir.layout: BijectiveLayout Layout bijective_layout layout
        relaxpy.ir.tir.maths: *
        relaxpy.ir.tir.ops: const convert floordiv floormod logical_not all=all_of any=any_of
            indexdiv=floordiv indexmod=floormod multiply=mul subtract=sub
        relaxpy.ir.tir.prim_func.function: PrimFunc
        relaxpy.ir.tir.reduce: CommReducer Reduce
        relaxpy.ir.tir.schedule.schedule: Schedule
        relaxpy.ir.tir.schedule.scheduled: StmtSRef
        relaxpy.ir.tir.stmt: Allocate AllocateConst AssertStmt AttrStmt Block BlockRealize BufferRealize
            BufferStore DeclBuffer Evaluate For ForKind IfThenElse LetStmt MatchBufferRegion SeqStmt
            Stmt While stmt_seq SBlock=Block SBlockRealize=BlockRealize
        relaxpy.tir.: analysis buffer data_layout expr function functor generic op schedule stmt
            stmt_functor transform
        relaxpy.script.language.hardware:INTRINSICS: *
        """,
    )
