"""The tuning constants: the only place for numbers on which the speed of code depends.

They are for one machine: an AMD EPYC of Zen 4 with two CPUs, vectors of 512 bits, and caches of
32 KiB (L1), 1 MiB (L2) and 32 MiB (L3). A comment names a script of `benchmarks/` and the row whose
compilation or run reads the constant, or for which the commit that chose it was made: measure that
row on another machine. "Not measured" are limits, and values that no row reads. Tables that depend
on the machine have a value for each width of vector registers in bits, or number of registers.
Facts of an instruction set, a format or the order of sums stand where they are used, or in
`platforms.py`.
"""

from __future__ import annotations

from typing import Final


class Products:
    """Matmuls and other sums of products: the form that computes them."""

    SHORT_AXIS: Final = 32  # operators: matmul
    """The extent below which the column axis is chosen by the costs of vectors and packing."""
    DEEP: Final = 256  # operators: matmul
    """The length of a sum from which these costs dominate the contraction."""
    FEW_ROWS: Final = 4  # models: conv 3 x 3, bias, relu
    """The rows from which an axis fills a good part of a tile."""
    FEW_OPERATIONS: Final = 5  # kernels: dense + relu
    """The operations of an epilogue up to which tiles apply it to their registers."""
    SMALL: Final = 1 << 15  # not measured
    """Multiplications up to which a matmul takes less time than a call of BLAS (`price.py`)."""
    SHORT_SUM: Final = 16  # not measured
    """Sums up to this length gain less from BLAS than it costs to compute its operands; `price.py`
    has times."""
    DEEP_BYTES: Final = 256  # llm: w8a8
    """The length of int8 sums from which more than a few rows are read along the sum."""
    DEEP_ROWS: Final = 128  # models: MLP, any batch
    """The same for other elements: the extent of the innermost reduction axis."""
    SPAN_BYTE_ROWS: Final = 1  # kernels: int8 matmul
    """The most int8 rows that are read along the columns where tiles pack the second operand."""
    SERIAL: Final = 1 << 18  # kernels: product 512^3
    """A contraction with fewer multiply-adds is faster than starting threads."""


class Tiles:
    """Matmuls in register tiles (GEMM)."""

    ROWS: Final = 128  # kernels: product 512^3
    """The rows of a task, up to a multiple of those of a tile."""
    SIZES: Final = {14: (5, 2), 15: (6, 2), 16: (4, 3), 32: (8, 3)}  # kernels: product 512^3
    """The rows and the vectors of columns of a tile, by the number of registers."""
    BANDS: Final = {14: 30, 15: 30}  # models: BERT-base layer
    """Of what the rows of a task are a multiple, if not of those of a tile: packing is the same."""
    STEPS: Final = {14: 2, 15: 2}  # models: BERT-base layer
    """The steps of the sum of an iteration, where addresses take instructions; elsewhere one."""
    MANY_ROWS: Final = 256  # models: BERT-base layer
    """The same where they share a packed block of columns, whose packing takes a part of the time.
"""
    MANY_BLOCKS: Final = 32  # models: BERT-base layer
    """With so many blocks of columns there are enough tasks for any number of rows."""
    DEPTH: Final = 1024  # models: BERT-base layer
    """The k-block: the most steps of the sum at a time, which is the rows of a packed block."""
    BLOCKS: Final = 8  # llm: float16
    """The most blocks of columns of a task that packs its rows; there are twice as many tasks."""
    UNROLL: Final = 48  # start: voice
    """The most instructions of a tile for which the innermost axes of the sum are unrolled. As many
    multiply-adds take longer than the end of a loop."""
    FEW_ROWS: Final = 128  # start: MobileNetV3
    """The number of rows up to which the last tile, which has fewer, takes a part of the time."""
    DYNAMIC_EXTENT: Final = 480  # models: MLP, any batch
    """The assumed value of a dynamic extent, most likely a multiple of powers of two."""
    LATENCY: Final = 8  # models: conv 3 x 3, bias, relu
    """The number of independent sums that hides the latency of an addition."""
    REUSED_ROWS: Final = 3  # breadth: convolution in
    """A vector that is loaded twice has to be used by more rows than this."""
    THREADS: Final = 2, 4  # models: MLP, batch
    """The thread counts for which blocks of columns are chosen; others run the same blocks."""
    MANY_TASKS: Final = 64  # models: MLP, batch
    """The number of tasks from which the load is balanced for any number of threads."""
    PLACE_BYTES: Final = 256 * 1024  # models: BERT-base layer
    """The packing threshold: larger second operands miss the TLB if they are read in place."""
    PLACE_PAGES: Final = 128  # models: BERT-base layer
    """Larger ones are read in place up to so many pages, if each has `PAGE_ROWS` of their rows."""
    PAGE_ROWS: Final = 8  # models: BERT-base layer
    NEAREST_BYTES: Final = 16 * 1024  # models: ResNet-18
    """The size up to which an operand stays in the L1 cache in any access order."""
    AHEAD: Final = 4  # models: ResNet-18
    """The prefetch distance, in vectors of a column."""
    STEPS_AHEAD: Final = 18  # models: conv 3 x 3, bias, relu
    """The prefetch distance where the second operand is read in place, in steps of the sum."""


class Gemv:
    """Matmuls of few rows, which are bound by the bandwidth of the second operand (GEMV)."""

    MOST_ROWS: Final = 4  # models: MLP, batch
    """The most rows that are read along the columns."""
    MOST_DOT_ROWS: Final = 8  # models: MLP, any batch
    """The most rows that are read along the sum; tiles would transpose the columns."""
    DYNAMIC_ROWS: Final = 3  # models: MLP, any batch
    """The rows whose sums are computed together if their number is known only in a call."""
    CONVERTED_ROWS: Final = {128: 3, 256: 3, 512: 4}  # llm: float16
    """The same where elements are converted, by the vector's bits."""
    DIGIT_ROWS: Final = {128: 3, 256: 3, 512: 8}  # llm: w8a8
    """The same for int8."""
    MOST_DIGIT_ROWS: Final = 16  # llm: w8a8
    """The most int8 rows that are read along the sum if their number is known only in a call."""
    DOTS: Final = 64  # models: MLP, batch
    """The columns of a task that reads along the sum."""
    GROUP: Final = 4  # models: MLP, batch
    """The most columns that such a task reads at a time."""
    STREAMED_ROWS: Final = 1  # llm: float16
    """With so few rows, an operand of so many elements is read in memory order."""
    STREAMED_ELEMENTS: Final = 1 << 20  # models: MLP, batch
    CONVERTED_ELEMENTS: Final = 1 << 18  # llm: float16
    """The same where they are converted."""
    STREAMED_SUMS: Final = 4  # llm: float16
    """The vectors of sums of a column then, to hide the latency of addition."""
    CONVERTED: Final = 1 << 14  # operators: linear
    """The longest sum for which rows are converted before all columns of a task."""
    SUMS: Final = {128: 6, 256: 6, 512: 16}  # models: MLP, any batch
    """The most sums of such a task that are in registers, or in pairs of them, by their bits."""
    SPAN: Final = 4096  # models: decoder, a token after 173
    """The most sums of a task that reads along the columns."""
    LEAST_SPAN: Final = 1024  # models: decoder, a token after 173
    """The columns that are too few to be divided into two tasks."""
    SHORT_BYTES: Final = 512  # models: decoder, a token after 173
    """Adjacent rows up to this size are prefetched, since they are read by columns, out of order.
"""
    AHEAD: Final = 1 << 11  # models: decoder, a token after 173
    """The prefetch distance in bytes."""
    COLUMNS: Final = 64  # llm: float16
    """The columns of a task."""
    LONGEST: Final = 256  # llm: float16
    """The longest sum: the rows and some columns stay in the L1 cache."""
    UNROLL: Final = 4  # llm: float16
    """The unroll factor of the sum."""


class Weights:
    """Matmuls with weights of few bits, which are decoded when they are read."""

    LANES: Final = 16, 8  # breadth: product with weights of 4 bits
    """The candidate vector lengths, in lanes; a block has several vectors of the first that fits.
"""
    BLOCK: Final = 128  # breadth: product with weights of 4 bits
    """The most iterations of a block."""
    PART: Final = 32  # llm: 8 bits
    """The iterations of a block that is a part of a long loop."""
    DIGITS: Final = 32, 64, 128  # llm: 4 bits
    """The possible numbers of these in a block."""
    PANEL: Final = 64  # llm: 4 bits
    """The columns of a panel that is decoded for many rows."""
    LARGEST: Final = 256  # breadth: product with weights of 4 bits
    """The most nodes of a value."""
    LEAST_ROWS: Final = 12  # llm: 4 bits
    """The rows from which panels of floats are decoded once for all of them."""
    LEAST_DIGIT_ROWS: Final = {256: 5, 512: 24}  # llm: w4a8
    """The same for int8 panels, by the vector's bits."""
    DEPTH: Final = 512  # llm: 4 bits
    """The most rows of a panel of floats, which stays in cache for all rows of the other factor."""
    DIGIT_DEPTH: Final = 4096  # llm: w4a8
    """The same for an int8 panel."""
    ROWS: Final = 4  # llm: w4a8
    """The rows whose sums of digits are in registers together."""
    VECTORS: Final = 2  # llm: w4a8
    """The vectors of columns of these."""
    OF_A_SUM: Final = 8  # llm: 4 bits
    """The digits that are summed in a lane."""
    _FEW: Final = {1: 1, 2: 2, 4: 1}  # llm: 4 bits
    CELLS: Final = {128: _FEW, 256: _FEW, 512: {1: 1, 2: 4, 4: 4, 8: 2}}  # llm: 4 bits
    """The columns of sums that fit into registers, by their bits and the number of rows. Those of
    a single row are read one by one, in memory order: they are bandwidth-bound."""
    _DIGITS: Final = {1: 1, 2: 2, 4: 2}  # llm: w4a8
    CELLS_OF_DIGITS: Final = {256: _DIGITS, 512: {**_DIGITS, 8: 2}}  # llm: w4a8
    """The same for columns whose products are added as integers."""
    PREPARED: Final = 1 << 14  # llm: w4a8
    """The most elements of a row that is converted before all columns."""
    AHEAD: Final = 1 << 11  # llm: w4a8
    """The prefetch distance in bytes; hardware prefetchers detect the access pattern too late."""


class Rows:
    """Steps that share a block of rows, so that what is between them stays in a cache."""

    ELEMENTS: Final = 64  # models: softmax 4096 x 1024
    """Rows of fewer elements run in blocks of several rows."""
    BLOCK_ELEMENTS: Final = 1024  # operators: topk 10
    """The elements of such a block."""
    PRODUCT_ROWS: Final = 64  # not measured
    """The rows of a block with a matmul, which share each pass over a factor."""
    COLUMNS: Final = 256  # operators: softmax axis 0
    """The size of blocks whose rows are columns of memory."""
    CHAIN_BYTES: Final = 1 << 19  # models: causal attention
    """The size of the rows of a block in one buffer, half of the L2 cache."""
    LEAST_CHAIN: Final = 16  # models: causal attention
    MOST_CHAIN: Final = 128  # models: causal attention
    """The least and the most rows of a block, a multiple of eight."""
    DYNAMIC_LENGTH: Final = 2048  # llm: float32
    """The length of a row if it is not known."""
    PANEL: Final = 128  # breadth: causal attention
    """The most columns that are skipped together, a multiple of all vector lengths."""
    LEAST_PANEL: Final = 32  # models: causal attention
    """The fewest: two vectors, and as many rows fill some tiles."""
    PANELS: Final = 4  # models: causal attention
    """The number of panels with `LEAST_PANEL` columns from which a mask is tested."""
    LEAST_MASKED: Final = 9  # breadth: causal attention
    """The rows of a block from which its contractions run in tiles, which can skip columns."""


class RowLanes:
    """Short rows, several of which are in the lanes of a vector."""

    CHEAP: Final = 6  # breadth: maxima of
    """The elements of a row up to which this is faster for runs without functions and
    accumulations. Runs with functions have fewer than a 256-bit vector."""
    LONGEST: Final = 16  # breadth: maxima of
    """The most iterations of loops inside a row: those of a product with a 4x4 matrix."""
    LEAST: Final = 16  # breadth: maxima of
    """The rows from which their lanes are worth elements of rows that are not adjacent."""
    FUNCTION: Final = 40  # breadth: softmax of
    """The operations of a mathematical function."""
    OPERATIONS: Final = 1000  # breadth: softmax of
    """The most operations of a row: compile time grows faster than their number."""


class Vectors:
    """The axis of a loop that fills vectors, and the iterations that are computed together."""

    REVERSED: Final = 2  # operators: permute_dims
    """The cost of elements in reversed order, relative to consecutive ones."""
    GATHER: Final = 12  # operators: permute_dims
    """The cost of a gather, relative to consecutive elements."""
    FUNCTION: Final = 8  # breadth: variance of columns
    """The cost of a mathematical function."""
    FOLD: Final = 5  # breadth: maxima of
    """The cost of reducing lanes to their max or min, for each lane."""
    LONGEST_STEP: Final = 8  # operators: concat
    """Up to this stride, elements are loaded by vectors, at the cost of as many loads."""
    LEAST_SHARED: Final = 8  # operators: depthwise
    """The elements that iterations without sums must read to be unrolled and jammed."""
    REPEATS: Final = (2, 4, 8)  # operators: resize2d nearest
    """Extents of axes that are parts of vectors, in which elements are repeated."""
    CHAINS: Final = 4  # breadth: cumsum
    """The number of independent recurrences that are interleaved to hide latency."""
    LEAST_RECURRENCES: Final = 32  # not measured
    """The iterations from which they run as the lanes of a vector."""
    LEAST_SWEPT: Final = 16  # operators: max axis 0
    """The rows from which sums of columns are added in the order of memory."""
    LEAST_WIDE: Final = 16  # operators: max axis 0
    """The columns from which several vectors of such sums are added together."""
    TRANSPOSED_NODES: Final = 24  # breadth: transpose
    """Up to so many nodes, the value of an element is emitted for each row of a square."""
    SWEPT_ROWS: Final = 8  # kernels: column sums
    """The rows that are added in one pass over the accumulators of columns."""
    BESIDE: Final = 4  # operators: depthwise
    """The unroll-and-jam factor of iterations that read the same elements."""
    FEW_REGISTERS: Final = 16  # models: softmax 4096 x 1024
    """Where there are more, long code computes a vector of values register by register: the values
    of all its registers and the sums would not fit. With fewer, each would load its constants
    again, which took 1.06 to 1.2 times as long with AVX2; only sums beside stores wait for the
    vector before."""
    SUMS: Final = 4  # operators: sum axis 0
    """The vectors of sums of columns that are computed together, to hide the latency of addition.
"""
    UNROLLED: Final = 64  # schedules
    """The most iterations that are unrolled."""
    DIVIDED: Final = 4  # models: softmax 4096 x 1024
    """The registers from which a division by one number is faster by its reciprocal."""
    TESTED: Final = 8  # operators: take
    """The iterations whose obligation is tested at a time."""
    SEPARATE: Final = 4  # not measured
    """The most lanes of an unknown mask that are accessed one by one, without masked accesses. They
    are in loops of matmuls, whose sums would be spilled around the call that reads more of them."""


class Cost:
    """The estimate of the time of a loop on one thread, in picoseconds.

    The figures are for float32 with 512-bit vectors and data from the last-level cache or memory;
    those of others differ by less than the error of the estimates.
    """

    GRAIN: Final = 10_000_000  # models: softmax 4096 x 1024
    """The least time of a task, about that of waking a thread."""
    MOST_TASKS: Final = 64  # models: softmax 4096 x 1024
    """The most tasks of a loop."""
    LONG: Final = 10**11  # not measured
    """The time of loops during which Python signals may wait."""
    BYTE: Final = 60  # operators: add
    SAME: Final = 5  # operators: add
    """A read of an element that all iterations read; the others are those of one element."""
    GATHERED: Final = 600  # operators: gather_elements
    OPERATION: Final = 10  # operators: where
    FUNCTION: Final = 150  # operators: exp
    DIVISION: Final = 300  # operators: layer_norm
    PRODUCT: Final = 10  # kernels: product 512^3
    """A multiply-add of a matmul in tiles."""
    ITERATION: Final = 1000  # operators: cumsum
    """An iteration of a loop without vectors."""
    LONG_CODE: Final = 150  # start: MobileNetV3
    """The time of code that is longer than the loop around it."""
    UNKNOWN: Final = 64  # not measured
    """The extent of an axis whose bounds depend on other axes."""


class Parallel:
    """The division of loops into tasks of threads."""

    UNKNOWN: Final = 64  # kernels: column sums
    """The assumed extent of dynamic axes."""
    MANY: Final = 64  # operators: batch_norm
    """The number of blocks that balances the load of many threads."""
    LANES: Final = 256  # kernels: tanh-GELU
    """The least number of consecutive elements in a block."""
    SQUARES: Final = 64  # breadth: transpose
    """The same for tiled transposes."""
    COLUMNS: Final = 1024  # operators: sum axis 0
    """The number of consecutive results for which reading by rows is as fast as reading everything.
"""
    FEW: Final = 16  # kernels: column sums
    """With at most so many blocks, a reduction is split instead of its results."""
    BLOCKS_OF_ONE: Final = 4  # torch_models
    """The number of blocks of each element of a dynamic batch, which may be large."""
    SHARE: Final = 16  # kernels: column sums
    """The least number of elements that are accumulated into a partial result."""
    SEGMENT: Final = 8192  # not measured
    """The number of consecutive elements after which reading on elsewhere costs little."""
    CACHED: Final = 1 << 13  # models: causal attention
    """The most elements of a row that stays in the first-level cache for several passes."""
    UNROLLED: Final = 8  # kernels: column sums
    """The size of a partial reduction is a multiple of this unroll factor."""
    LEAST_ROW: Final = 64  # torch_models
    """The elements from which a row is a block of its own."""
    SPINS: Final = 5_000  # models: MLP, batch
    """The pauses of a thread that waits for work, before it sleeps."""
    JOBS: Final = 64  # not measured
    """The most parallel loops that share the pool, and ranges of the tasks of one."""


class Shared:
    """Code that several kernels, or calls of a function, share."""

    LANES: Final = 16  # models: 100 operations on 16 floats
    """Elements of a vector: shorter loops are unrolled, and multiples need no remainder. All
    extents that are arguments have as many iterations, more than the rows of products that have
    code of their own."""
    LONG_ROW: Final = 64  # models: decoder, prompt of 128
    """The extent of rows from which long kernels do not spend their time around these."""
    LONG_SUM: Final = 128  # models: decoder, prompt of 128
    """The extent from which the code of a reduction does not depend on its length."""
    LONG_SUM_OF_ROW: Final = 64  # models: decoder, prompt of 128
    """The same for multiples of no vector, in kernels that also compute each element of the row."""
    SHORT_KERNEL: Final = 1 << 15  # models: 100 operations on 16 floats
    """The iterations up to which a kernel takes less time than to start threads."""
    CHEAP_PRODUCT: Final = 1 << 18  # start: small_kernels
    """The multiply-adds up to which a product is cheap: it takes some 10 microseconds, on one
    thread. Its code for all sizes takes up to 1.5 times as long, and that for its own sizes 15
    milliseconds of compilation: a thousand calls take less time."""
    MANY: Final = 4  # start: small_kernels
    """The least members of a class whose code is longer or slower than that of each of them."""
    MOST_TOKENS: Final = 1 << 12  # start: small_kernels
    """The longest text of a kernel that is compared with those of others."""
    FEWEST_CALLS: Final = 2  # start: llama
    """The kernel calls of a run that is worth a function; Python calls a single kernel as fast."""


class CodeSize:
    """The length of the code that LLVM compiles at a time, on which its time depends."""

    LONGEST_BLOCK: Final = 4000  # start: chain
    """Instructions between two jumps up to which LLVM takes less than a second."""
    SHORT: Final = 512  # start: chain
    """Functions of fewer values have no long blocks."""
    FEW: Final = 64  # start: small_kernels
    """Functions with so many values are compiled in a separate part."""
    PART: Final = 1 << 12  # start: chain
    """About the number of values in the functions of a part, which LLVM compiles in 0.1 s."""
    LONG: Final = 1 << 15  # start: small_kernels
    """The characters of a module from which LLVM's memory is returned to the system."""


class Signals:
    """How often loops look for signals of Python."""

    ITERATIONS: Final = 1 << 12  # not measured
    """The iterations after which the clock is read."""
    STRETCH: Final = 1 << 12  # not measured
    """The iterations of a loop between two polls of signals."""
    SHORT: Final = 1 << 10  # not measured
    """The most iterations of nested loops without a poll of signals."""
    TURNS: Final = 1 << 6  # not measured
    """The weight of an iteration that runs kernels, in the count for polling signals."""
    WITH_GIL: Final = 1 << 18  # not measured
    """The most iterations of kernels during which other threads of Python may wait."""


class Allocations:
    """Memory of calls and of threads."""

    WORKSPACE: Final = 1 << 14  # models: 100 operations on 16 floats
    """The most bytes of a workspace on the stack."""
    STACK: Final = 1 << 13  # not measured
    """The most bytes on the stack of a function that has other memory."""
    TASK: Final = 1 << 14  # not measured
    """The most bytes of a local buffer of a task that is in memory of its thread."""
    ENTRY: Final = 48  # operators: add
    """The most words of a call in each of its tables on the stack."""
    LARGE: Final = 1 << 17  # operators: add
    """The bytes from which a block is kept when it is freed."""
    KEPT: Final = 64  # operators: add
    """The most blocks that are kept."""
    AGE: Final = 1024  # operators: add
    """The requests after which an unused block is freed."""
    SHARE: Final = 1 / 8  # operators: add
    """The most memory that is kept, as a share of the machine's."""
    HUGE: Final = 1 << 22  # operators: add
    """The bytes from which a block has huge pages, of 2 MiB."""
    SLACK: Final = 1 << 24  # operators: add
    """The bytes of memory, kept or in use, beyond five quarters of the peak usage."""
    LARGEST_COPY: Final = 1 << 30  # not measured
    """The most bytes of a copy that is larger than its array, such as a broadcast one."""
    POPULATED: Final = 1 << 20  # start: llama
    """The bytes of packed weights from which the system maps all pages at once."""
    DYNAMIC_ELEMENTS: Final = 1 << 13  # models: MLP, any batch
    """The elements of tensors up to which a call may keep the GIL, and the unknown dimension."""


class Kept:
    """Results of compilation that are kept for later calls and processes, and lazy constants."""

    PACKED_LAZILY: Final = 1 << 24  # start: llama
    """Bytes of constants from which they are packed lazily."""
    AT_ONCE: Final = 20  # start: llama
    """The share of the constants that is packed at a time, unless one is larger."""
    LOADED_LAZILY: Final = 1 << 20  # start: llama
    """Bytes of a literal from which it is loaded lazily: native code may have a copy."""
    FOLDED: Final = 1 << 27  # not measured
    """Bytes of constants that passes have computed, which are stored with the code."""
    SAMPLES: Final = 1 << 8  # start: bert
    """The number of elements by which packed constants that may be equal are looked up."""
    OF_FILE: Final = 1 << 20  # start: llama
    """Bytes of an array from which its file is looked for."""
    DIGEST_KEPT: Final = 1 << 16  # start: llama
    """The bytes of a constant from which its hash is kept while it is in use."""
    EXECUTABLES: Final = 64  # not measured
    """The number of executables that are looked up; the least recently used ones are forgotten."""
    PROGRAMS: Final = 256  # not measured
    """The capacity of a cache of lowered operators."""
    SHAPES: Final = 4096  # not measured
    """The number of combinations of shapes for which a call caches its program."""
    DISK: Final = 1 << 29  # not measured
    """Bytes of all files. Beyond that, the least recently used ones are removed."""
    FILES: Final = 1 << 14  # not measured
    """The most files, likewise."""
    SWEEP: Final = 0.25  # not measured
    """The seconds for which a process looks for those, and again for removing them."""
    ABANDONED: Final = 3600  # not measured
    """The seconds after which a file that nobody has completed is removed."""


class Plans:
    """Expansion, copies and substitution by the planner of loops."""

    BOXES: Final = 16  # operators: pad constant
    """The most boxes into which a condition divides iterations."""
    TREE: Final = 512  # not measured
    """A chain of lets may double a value at each step, so larger values are not substituted."""
    REPEATED: Final = 16  # not measured
    """The most nodes of a value in a loop that its further uses repeat.

    torch.hypot of 52,000 float64 on NumPy takes 4.3 ms with 64, 0.77 with 16, and 0.75 with 8.
    """
    LONG_RUN: Final = 64  # operators: scatter_nd
    """The number of contiguous elements from which slices are as fast to read as a copy."""
    GROWTH: Final = 16  # schedules
    ELEMENTS: Final = 1 << 22  # schedules
    """The limit on an expanded buffer: this many times the largest argument, or this many elements.
"""
    UNKNOWN: Final = 1 << 20  # not measured
    """The estimate for a symbolic dimension: much more than any literal in a shape."""
    PEELED: Final = 8  # not measured
    """The least ratio of a loop's iterations to those of its digits for peeling it."""


class Blocks:
    """Blocks of rows on the target `numpy`, and the threads that share them."""

    LEAST_PASSES: Final = 4  # models: GELU, residual, layer norm
    """The number of passes over the elements from which blocks pay."""
    LEAST_BYTES: Final = 1 << 16  # models: GELU, residual, layer norm
    """The number of bytes up to which all rows are one block, which easily fits into any cache."""
    ELEMENT_WORK: Final = 4  # models: GELU, residual, layer norm
    """The time of an elementwise operation, in multiply-adds of a matmul."""
    COSTLY_OPERATIONS: Final = 8  # models: softmax 4096 x 1024
    """The operations that take as long as a costly one."""
    MUCH_WORK: Final = 1 << 24  # models: softmax 4096 x 1024
    """The work from which blocks pay for threads, even with few passes."""
    LEAST_DIVIDED: Final = 1 << 22  # models: sum, mean, variance, max
    """The number of bytes up to which accumulations are faster without a split."""
    ROWS_OF_PART: Final = 1 << 4  # models: sum, mean, variance, max
    """The number of rows from which partial results need much less memory than operands."""
    ANY_BLOCK: Final = 1 << 20  # models: sum, mean, variance, max
    """The number of bytes up to which the least size of a block does not matter."""
    LEAST_LONG: Final = 1 << 5  # operators: argmax axis 0
    """The length of an innermost axis from which the time of a few passes follows their work."""
    TARGET: Final = 1 << 21  # models: GELU, residual, layer norm
    """The bytes that a block may access, so that intermediate results stay in the cache of a core.
    Four times as many where threads share the blocks: with more blocks they wait more often for
    the GIL."""
    SHORTEST_RUN: Final = 1 << 12  # models: sum, mean, variance, max
    """Blocks with shorter contiguous runs (in bytes) lose more to gaps than the cache saves."""
    WORTH_SCRATCH: Final = 1 << 16  # models: softmax 4096 x 1024
    """From so many bytes on, new memory from the system costs more than `Scratch`."""
    WORTH_THREADS: Final = 1 << 24  # models: softmax 4096 x 1024
    """The amount of work from which several threads are faster than one. The unit is a multiply-add
    of a matmul; this is about 0.3 milliseconds."""
    MOST_WORK: Final = 1 << 32  # not measured
    """The work of a block in a fraction of a second, so that signals interrupt it within one."""


class NumPy:
    """The calls of NumPy of the target `numpy`."""

    MOST_REDUCED: Final = 1 << 24  # not measured
    """The elements that NumPy reduces in a fraction of a second; signals wait for its end."""

    REPETITIONS: Final = 1 << 12  # not measured
    """The most subexpressions of a statement that are computed again for other iterations."""
    LITERAL: Final = 32  # not measured
    """The largest number of elements of a constant that is written as numbers."""
    SMALL: Final = 1 << 30  # not measured
    """Buffers of fewer elements are assumed to fit in memory."""
    SMALL_BITS: Final = 2**30  # not measured
    """The number of bits below which an allocation is assumed to succeed."""
    FEW_POSITIONS: Final = 32  # operators: one_hot
    """Along an axis with fewer positions it is faster to compare each one."""
    LIMITED: Final = 1 << 12  # operators: relu
    """The number of elements from which `ndarray.clip` is faster than a minimum or maximum."""
    MANY_CHOSEN: Final = 1 << 15  # operators: where
    """The number of elements from which selecting bits, in chunks of it, beats `np.where`."""
    MANY_POSITIONS: Final = 1 << 27  # not measured
    """The iterations of a loop from which the machine's memory is checked."""
    ARRAYS: Final = 8  # not measured
    """The most arrays over all iterations that such a loop may need at a time."""
    FEW_PRODUCTS: Final = 1 << 19  # models: MLP, batch
    """Fewer multiply-adds take less than fifty microseconds."""
    SHORT_AXIS: Final = 4  # operators: permute_dims
    """The longest axis that a Python loop runs over."""
    NEAR: Final = 32  # operators: permute_dims
    """The largest stride, in bytes, of the elements that such a loop stores."""
    LEAST_LONG: Final = 1 << 10  # operators: resize2d nearest
    """The number of elements from which a strided store outweighs the overhead of its call."""
    MANY_PRODUCTS: Final = 1 << 14  # kernels: int8 matmul
    """The number of multiply-adds from which a conversion to floats is faster."""
    FEW_MATRICES: Final = 4  # not measured
    """Up to this number of matrices for each row of one, LAPACK is called for each."""
    WORTH_DOTS: Final = 1 << 20  # not measured
    """The bytes of windows (im2col) from which it pays not to copy them."""
    MOST_DOTS: Final = 64  # not measured
    """With at most so many columns, windows are multiplied with a row one by one."""
    MOST_COPIED: Final = 1 << 22  # models: conv 3 x 3, bias, relu
    """Operands that have to be copied are multiplied in chunks of so many bytes."""
