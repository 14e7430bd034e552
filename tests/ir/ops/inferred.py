"""Calls of operators, and what is known of their results; `notation` explains the text."""

INFERRED = """
# collective operators
ccl.allreduce(f32(4, n)) => f32(4, n)
ccl.allreduce(void[...], "avg", in_group=False) => void[...]
ccl.allgather(f32(4, n), 2) => f32(8, n)
ccl.allgather(f32(n, 2), 3) => f32(n * 3, 2)
ccl.allgather(f32[2], 2) => f32[2]
ccl.allgather(f32[...], 2) => f32[...]
ccl.reduce_scatter(f32(4, n), 2) => f32(2, n)
ccl.reduce_scatter(f32[...], 2) => f32[...]
ccl.reduce_to_worker0(f32(4, n)) => f32(4, n)
ccl.gather_to_worker0(f32(4, n), 3, axis=-1) => f32(4, n * 3)
ccl.gather_to_worker0(f32[2], 3) => f32[2]
ccl.broadcast_from_worker0(f32(4, n)) => f32(4, n)
ccl.scatter_from_worker0(f32(4, n), 2) => f32(2, n)
ccl.scatter_from_worker0(f32(3, 8), 2, axis=-1) => f32(3, 4)
ccl.scatter_from_worker0(f32(n * 2), 2) => f32(n)
ccl.scatter_from_worker0(f32[2], 2) => f32[2]
ccl.scatter_from_worker0(on("cpu", f32(4, n)), 2) => on("cpu", f32(2, n))

# grids
image.grid_sample(f32(n, 3, 5, 6), f32(n, 2, m, 7)) => f32(n, 3, m, 7)
image.grid_sample(f16(2, 3, 5, 6), f32(2, 2, 1, 1)) => f16(2, 3, 1, 1)
image.grid_sample(f32(n, 3, 5, 6), f32(m, 2, 3, 3)) => f32(n, 3, 3, 3)
image.grid_sample(f32(n, 3, 5, 6), f32[4]) => f32[4]
image.grid_sample(f32(n, 3, 5, 6), f32(n, m, 2, 2)) => f32(n, 3, 2, 2)
image.grid_sample(f32[...], f32(n, 2, m, 7)) => f32[4]
image.grid_sample(void[...], void[...]) => void[4]
image.grid_sample(f32(1, 3, 4, 5, 6), f32(1, 3, 2, 2, m), layout="NCDHW", method="bilinear")
    => f32(1, 3, 2, 2, m)
grad.grid_sample_backward(f32[...], f32(n, 3, 5, 6), f32(n, 2, m, 7))
    => tup(f32(n, 3, 5, 6), f32(n, 2, m, 7))
image.affine_grid(f32(n, 2, 3), shape(4, m)) => f32(n, 2, 4, m)
image.affine_grid(f32(1, n, 3), shape(4, 5)) => f32(1, 2, 4, 5)
image.affine_grid(f32[...], shape(4, 5)) => f32[4]
image.affine_grid(f32(1, 2, 3), shape[...]) => f32[4]

# images
image.resize2d(f32(2, 3, n, 5), shape(7, m)) => f32(2, 3, 7, m)
image.resize2d(f32(2, 3, n, 5), shape[2]) => f32[4]
image.resize2d(f32(2, 3, n, 5), shape[...]) => f32[4]
image.resize2d(f32[4], shape(7, 7)) => f32[4]
image.resize2d(f32[...], shape(7, 7)) => f32[4]
image.resize2d(void[...], shape(7, 7)) => void[4]
image.resize2d(on("cpu", f32(2, 3, n, 5)), shape(7, 7)) => on("cpu", f32(2, 3, 7, 7))
image.resize2d(f32(2, 3, n, 5), 7) => f32(2, 3, 7, 7)
image.resize2d(f32(2, 3, n, 5), (7, n), out_dtype="float16") => f16(2, 3, 7, n)
image.resize2d(f32(2, 3, n, 5), (7, 8), layout="NHWC") => f32(2, 7, 8, 5)
image.resize2d(f32(1, 2, 3, n, 4), 7, layout="NCHW4c") => f32(1, 2, 7, 7, 4)
image.resize2d(f32(2, 3, n, 5), 7, 0.5, coordinate_transformation_mode="tf_crop_and_resize")
    => f32(2, 3, 7, 7)
image.resize2d(f32(2, 3, n, 5), 7, [0, 0, 1, 1],
    coordinate_transformation_mode="tf_crop_and_resize") => f32(2, 3, 7, 7)
image.resize3d(f32(1, 2, n, 4, 5), shape(6, 7, 8)) => f32(1, 2, 6, 7, 8)
image.resize3d(f32[5], 6, layout="NDHWC") => f32[5]
grad.resize2d_backward(f32(2, 3, 7, 7), f32(2, 3, n, 5)) => f32(2, 3, n, 5)
grad.resize3d_backward(f32[...], f32[5]) => f32[5]

# lowered programs
builtin.alloc_tensor([2, n], "int8", 0) => i8(2, n)
memory.alloc_tensor(obj, 0, [2, 3], "float32") => f32(2, 3)
vm.alloc_tensor(obj, 0, [2, 3], "float32") => f32(2, 3)
memory.alloc_storage(shape(8), 0, "global", "int8") => obj
vm.alloc_storage(shape(8), 0, "int8") => obj
vm.call_tir_dyn("f", (shape(n),)) => tup()
vm.call_tir_dyn(fn("f"), (shape(n),)) => tup()
memory.kill_storage(obj) => tup()
memory.kill_tensor(f32(2, 3)) => tup()
vm.kill_object(f32(2, 3)) => tup()
memory.ensure_zero_offset(f32(2, 3)) => f32(2, 3)
builtin.stop_lift_params(f32[2]) => f32[2]
memory.view(f32(2, 3)) => f32(2, 3)
memory.view(f32(2, 3), [6]) => f32(6)
memory.view(f32(2, 3), [24], "int8") => i8(24)
memory.view(f32(2, 3), [5], relative_byte_offset=4) => f32(5)
memory.view(f32(2, 3), [n]) => f32(n)
memory.view(f32(2, 3), dtype=obj) => void(2, 3)
shape_to_tensor(shape(2, n)) => i64(2)
shape_to_tensor(shape[...]) => i64[1]
tensor_to_shape(i64(3)) => shape[3]
tensor_to_shape(i32(n)) => shape[...]
tensor_to_shape(void[...]) => shape[...]
make_closure(obj, (at(0),)) => obj
invoke_closure(obj, (at(0),)) => obj
invoke_closure(obj, (at(0),), sinfo(f32(2, 3))) => f32(2, 3)
invoke_pure_closure(obj, (at(0),), [sinfo(f32(2, 3)), sinfo(f32(2, 3))])
    => tup(f32(2, 3), f32(2, 3))
call_inplace_packed("f", f32(2, 3), inplace_indices=[0], sinfo_args=sinfo(f32(2, 3))) => f32(2, 3)
call_inplace_packed("f", f32(2, 3), f32(2, 3), inplace_indices=[-1, 1], sinfo_args=[sinfo(f32(2,
    3)), sinfo(f32[2])]) => tup(f32(2, 3), f32[2])
call_builtin_with_ctx("f", (f32(2, 3),)) => tup()
call_builtin_with_ctx("f", (f32(2, 3),), sinfo_args=sinfo(f32(2, 3))) => f32(2, 3)

# activations, normalisations, losses, attention
nn.selu(f32(2, n, 3)) => f32(2, n, 3)
nn.softplus(void[...]) => void[...]
nn.prelu(f32(2, n, 3), f32(n)) => f32(2, n, 3)
nn.prelu(f32(2, n, 3), f32(1)) => f32(2, n, 3)
nn.prelu(f32[...], f32[...], 7) => f32[...]
nn.dropout(f32(2, n, 3)) => tup(f32(2, n, 3), f32(2, n, 3))
nn.batch_norm(f32(2, n, 3), f32(n), f32(n), f32(n), f32(n), axis=1)
    => tup(f32(2, n, 3), f32(n), f32(n))
nn.batch_norm(f32[3], f32(n), f32(n), f32(n), f32[...], axis=1) => tup(f32[3], f32(n), f32[...])
nn.instance_norm(f32(2, n, 3), f32(n), f32(n), channel_axis=1, axes=(2,)) => f32(2, n, 3)
nn.group_norm(f32(2, n, 3), f32(n), f32(n), num_groups=1, channel_axis=1, axes=(2,)) => f32(2, n, 3)
nn.group_norm(f32(2, n * 2, 3), f32[1], f32[1], num_groups=2, channel_axis=1, axes=(2,))
    => f32(2, n * 2, 3)
nn.group_norm(f32[...], f32[...], f32[...], num_groups=1, channel_axis=1, axes=(2,)) => f32[...]
nn.cross_entropy_with_logits(f32(2, n, 3), f32(2, n, 3)) => f32()
nn.cross_entropy_with_logits(f32(2, n, 3), void[...]) => void()
nn.nll_loss(f32(2, 5, n), i64(2, n)) => f32()
nn.nll_loss(f32(2, 5, n), i64(2, n), reduction="none") => f32(2, n)
nn.nll_loss(f32(2, 5, n), void[...], reduction="none") => f32(2, n)
nn.nll_loss(f32(5), i64(), reduction="none") => f32()
nn.nll_loss(f32[3], void[...], reduction="none") => f32[2]
nn.nll_loss(f32[...], i64(m), reduction="none") => f32[...]
grad.nll_loss_backward(f32(), f32(2, 5), i64(2)) => f32(2, 5)
grad.nll_loss_backward(f32(2, n), f32(2, 3, 5), i64(2, 5), reduction="none") => f32(2, 3, 5)
nn.attention(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5)) => f32(2, n, 4, 5)
nn.attention(f32(2, n, 4, 8), f32(2, m, 2, 8), f32[...]) => f32[4]
nn.attention(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), f32(2, 1, n, m)) => f32(2, n, 4, 5)
nn.attention_bias(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), f32[4]) => f32(2, n, 4, 5)
nn.attention_var_len(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), i64(3), 7)
    => f32(2, n, 4, 5)
nn.relu6(f32(2, n, 3)) => f32(2, n, 3)

# padding
nn.pad(f32(2, n), (0, 1, 2, 3)) => f32(3, n + 5)
nn.pad(f32(2, n), (0, 1, 2, -2)) => f32(3, n)
nn.pad(f32(2), (-1, -1)) => f32(0)
nn.pad(f32(2), (1, 1), "reflect") => f32(4)
nn.pad(void(3), (3, 0), "circular") => void(6)
nn.pad(i8(1), (9, 9), "replicate") => i8(19)
nn.pad(f32(n), (9, 9), "reflect") => f32(n + 18)
nn.pad(f32[2], (1, 1, 0, 0)) => f32[2]
nn.pad(f32[...], (1, 1, 0, 0)) => f32[2]
nn.pad(f32(), ()) => f32()
nn.pixel_shuffle(f32(2, 8, n, 3), 2) => f32(2, 2, n * 2, 6)
nn.pixel_shuffle(f32(n * 9, 1, m), 3) => f32(n, 3, m * 3)
nn.pixel_shuffle(f32(n, 1, 1), 2) => f32(n // 4, 2, 2)
nn.pixel_shuffle(f32[4], 2) => f32[4]
nn.pixel_shuffle(void[...], 2) => void[...]

# quantization
quantize(f32(2, n), f32(), i8()) => i8(2, n)
quantize(f32(), f32(), i8()) => i8()
quantize(f32(2, n), f32(n), u8(1)) => i8(2, n)
quantize(f32(2, n), f32(2), i8(), axis=0) => i8(2, n)
quantize(f32(2, n), f32(m), i8()) => i8[2]
quantize(f32(2, n), f32[1], i8()) => i8(2, n)
quantize(f32(2, n), f32[...], i8()) => i8(2, n)
quantize(f32[2], f32(), i8()) => i8[2]
quantize(f32[2], f32(3), i8()) => i8[2]
quantize(f32[...], f32(3), void[...]) => i8[...]
quantize(on("cpu", f32(2, n)), f32(), i8()) => on("cpu", i8(2, n))
quantize(f32(2, n), f32(), i8(), out_dtype="float8_e5m2") => f8(2, n)
dequantize(u8(2, n), f32(), i8()) => f32(2, n)
dequantize(u8(2, n), f32(n), f32(n)) => f32(2, n)
dequantize(u8(2, n), f32(), i8(), out_dtype="float16") => f16(2, n)
dequantize(void[...], void[...], void[...]) => f32[...]
wrap_param(u8(2, n)) => f32(2, n)
wrap_param(f32[...], "float16") => f16[...]

# repetition, masks, products by labels
repeat(f32(2, n), 3, 1) => f32(2, n * 3)
repeat(f32(2, n), 3) => f32(n * 6)
repeat(f32[2], 3) => f32[1]
repeat(f32[2], 3, -1) => f32[2]
repeat(f32[...], 3, 5) => f32[...]
repeat(f32(2, n), 1, 0) => f32(2, n)
tile(f32(2, n), (2, 1)) => f32(4, n)
tile(f32(2, n), (2, 3, 1)) => f32(2, 6, n)
tile(f32(2, n), 4) => f32(2, n * 4)
tile(f32[2], (2, 3, 1)) => f32[3]
tile(void[...], (2, 3, 1)) => void[...]
flip(f32(2, n), -1) => f32(2, n)
flip(f32[...], 7) => f32[...]
roll(f32(2, n), 1) => f32(2, n)
roll(f32[2], (1, 2), (0, 1)) => f32[2]
reverse_sequence(f32(n, 3), i64(m)) => f32(n, 3)
reverse_sequence(f32(n, 3), i32(3), -2, -1) => f32(n, 3)
reverse_sequence(f32[3], void[...]) => f32[3]
reverse_sequence(f32[...], i32[1], 9, 9) => f32[...]
meshgrid(tup(f32(n), f32(m))) => tup(f32(n, m), f32(n, m))
meshgrid(tup(f32(n), f32(m)), "xy") => tup(f32(m, n), f32(m, n))
meshgrid(tup(f32(2), f32[1])) => tup(f32[2], f32[2])
meshgrid(tup(f32[...])) => tup(f32[1])
one_hot(i32(2, n), 1, 0, 4) => i64(2, n, 4)
one_hot(void(n), 1, 0, 4, 0) => i64(4, n)
one_hot(i8[1], 1, 0, 4) => i64[2]
one_hot(void[...], 1, 0, 4) => i64[...]
tril(f32(2, n)) => f32(2, n)
triu(f32[3], k) => f32[3]
triu(f32[...], prim("int32")) => f32[...]
eye(n, 3) => f32(n, 3)
eye(n, dtype="int8") => i8(n, n)
eye(prim("int64"), 2) => f32[2]
eye_like(f32(n, 3)) => f32(n, 3)
eye_like(f32[...], 1, "bool") => b[...]
hamming_window(n, True, 0.5, 0.5, "float16") => f16(n)
hamming_window(prim("int64")) => f32[1]
outer(f32(n), f32(3)) => f32(n, 3)
outer(f32(n), f32[...]) => f32[2]
einsum((f32(2, n), f32(n, 4)), "ij,jk") => f32(2, 4)
einsum((f32(2, n), f32(m, 4)), "ij,jk->ik") => f32[2]
einsum((f32(2, 1), f32(n, 4)), "ij,jk->k") => f32(4)
einsum((f32(2, n, 3),), "...i->...") => f32(2, n)
einsum((f32[4],), "...i->...") => f32[3]
einsum((f32(2, 3), f32[...]), "ij,jk") => f32[...]

# gather and scatter
gather_elements(f32(2, n), i64(3, m)) => f32(3, m)
gather_elements(f32(2, n), i64[2]) => f32[2]
gather_elements(f32[2], i64(3, m)) => f32(3, m)
gather_elements(f32[...], i64(3, m)) => f32[...]
gather_elements(f32[...], void[...]) => f32[...]
gather_nd(f32(2, n), i64(5, 1)) => f32(5, n)
gather_nd(f32(2, n), i64(5, m, 2)) => f32(5, m)
gather_nd(f32(2, n), i64(2)) => f32()
gather_nd(f32(2, n), i64(5, n)) => f32[...]
gather_nd(f32[3], i64(5, 1)) => f32[3]
gather_nd(f32(n, 3, 4), i64(n, 5, 1), 1) => f32(n, 5, 4)
gather_nd(f32[...], void[...]) => f32[...]
index_tensor(f32(2, n), tup(i64(5, 1), i64(m))) => f32(5, m)
index_tensor(f32(2, n), tup(i64(m))) => f32(m, n)
index_tensor(f32(2, n), tup(i64(n), i64(m))) => f32[1]
index_tensor(f32(2, n), tup(i8[3])) => f32[4]
index_tensor(f32[...], tup(i64(3))) => f32[...]
index_put(f32(2, n), (i64(m), i64(m)), f32(m)) => f32(2, n)
index_put(f32(m), i64(5), f32(5)) => f32(m)
scatter_elements(f32(2, n), i64(1, 1), f32(1, 1), 0, "updates") => f32(2, n)
index_put(f32[...], (void[...],), f32[...]) => f32[...]
scatter_elements(f32(2, n), i64(2, 1), f32(2, 1)) => f32(2, n)
scatter_elements(f32(2, n), i64(2, n), f32(2, m)) => f32(2, n)
scatter_elements(f32[...], void[...], f32[...]) => f32[...]
scatter_nd(f32(2, n), i64(5, 1), f32(5, n)) => f32(2, n)
scatter_nd(f32(2, n), i64(5, m), f32(5)) => f32(2, n)
scatter_nd(f32[2], i64(5, 2), f32(5)) => f32[2]
slice_scatter(f32(2, n), f32(1, n), 0, 1) => f32(2, n)
slice_scatter(f32(2, n), f32[2], 0, n, 2, axis=1) => f32(2, n)
slice_scatter(f32(2, n), f32(2, n), prim("int64"), 2) => f32(2, n)
grad.take_backward(f32[...], f32(2, n), i64(3), axis=1) => f32(2, n)
masked_fill(f32(2, n), b(n), 0) => f32(2, n)

# sorting
sort(f32(2, n)) => f32(2, n)
sort(void[...]) => void[...]
argsort(f32(2, n)) => i32(2, n)
argsort(f32[2], 0, True, "int64") => i64[2]
argsort(f32(2, n), dtype="") => f32(2, n)
topk(f32(2, n), 3, 0) => tup(f32(2, n), i32(2, n))
topk(f32(2, n), 1, 0, "values") => f32(1, n)
topk(f32(2, n), 3, 1, "values") => f32(2, T.min(n, 3))
topk(f32(2, n), 0, 1, "indices", dtype="int64") => i64(2, n)
topk(f32[2], 3, 1, "values") => f32[2]
median(f32(2, n)) => f32()
median(f32(2, n), 1) => tup(f32(2), i64(2))
median(f32[3], [0], True) => tup(f32[3], i64[3])
median(f32(2, 3, n), [0, -1], True) => f32(1, 3, 1)
median(f32[...], 5) => tup(f32[...], i64[...])
nth_index(f32(2, n), i64()) => i64(2, 1)
nth_index(f32(2, n), i64(1, n), 0) => i64(1, n)
nth_index(f32[2], i64[...]) => i64[2]
nth_index(f32[...], i64[2]) => i64[...]
tree_leaves(f32(n, 3), i32(5, 4), i32(m), 2) => i32(n, m)
tree_leaves(f32[...], void[...], i32(m), 2) => i32[2]
tree_leaves(void(n, 3), i64(5, 4), void(m), 0) => i64(n, m)
bucketize(f32(2, n), f32(m)) => i64(2, n)
bucketize(void[...], f32[...], True) => i32[...]
unique(f32(2, n)) => f32[1]
unique(f32()) => f32(1)
unique(f32(), True, True) => tup(f32(1), i64(1))
unique(f32(2, n), axis=0) => f32[2]
unique(f32(2, n), True, True, False, True) => tup(f32[1], i64[1], i64[1])
nonzero(f32(2, n)) => i64[2]
multinomial_from_uniform(f32(2, 3), f32(n, 1), i64(n, 1)) => i64(n, 1)
multinomial_from_uniform(f32(2, n), f32(n, 1), i64[2]) => i64[2]
multinomial_from_uniform(f32[...], f32[...], void[...]) => i64[...]
cumsum(f32(2, n), 1) => f32(2, n)
cumsum(f32(2, n)) => f32(2 * n)
cumprod(f32[3], dtype="float64") => f64[1]
cumprod(f32[...], 5) => f32[...]

# convolutions and pools
nn.conv2d(f32(2, 3, 8, 9), f32(8, 3, 3, 3)) => f32(2, 8, 6, 7)
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3)) => f32(n, 8, h - 2, w - 2)
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), padding=1) => f32(n, 8, h, w)
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), padding=(1, 1)) => f32(n, 8, h, w)
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), padding=(0, 2, 2, 0)) => f32(n, 8, h, w)
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), padding=1, strides=2)
    => f32(n, 8, (h - 1) // 2 + 1, (w - 1) // 2 + 1)
nn.conv2d(f32(1, 3, 9, 7), f32(8, 3, 3, 3), dilation=2) => f32(1, 8, 5, 3)
nn.conv2d(f32(1, 3, 1, 9), f32(1, 3, 3, 3), strides=4) => f32(1, 1, 0, 2)
nn.conv2d(f32(1, 6, 3, 3), f32(9, 2, 3, 3), groups=3) => f32(1, 9, 1, 1)
nn.conv2d(f32(n, c, 5, 5), f32(8, c, 3, 3)) => f32(n, 8, 3, 3)
nn.conv2d(f32(n, c, 5, 5), f32(8, 4, 3, 3)) => f32(n, 8, 3, 3)
nn.conv2d(f32(n, h, w, 3), f32(3, 3, 3, 8), data_layout="NHWC", kernel_layout="HWIO")
    => f32(n, h - 2, w - 2, 8)
nn.conv2d(f32(1, 2, 5, 5, 4), f32(16, 4, 3, 3, 2), data_layout="NCHW4c", out_layout="NHWC8c",
    kernel_layout="OIHW2i") => f32(1, 3, 3, 2, 8)
nn.conv2d(i8(1, 3, 3, 3), u8(8, 3, 3, 3), out_dtype="int32") => i32(1, 8, 1, 1)
nn.conv2d(f32[4], f32(8, 3, 3, 3)) => f32[4]
nn.conv2d(f32(n, 3, h, w), f32.by(s4)) => f32[4]
nn.conv2d(f32.by(s4), f32(8, 3, 3, 3)) => f32[4]
nn.conv2d(void[...], void[...]) => void[4]
nn.conv2d(void[...], f32(8, 3, 3, 3), out_layout="NCHW8c") => void[5]
nn.conv2d(on("cpu", f32(1, 3, 3, 3)), f32(8, 3, 3, 3)) => on("cpu", f32(1, 8, 1, 1))
nn.conv1d(f32(n, 3, w), f32(8, 3, 3)) => f32(n, 8, w - 2)
nn.conv3d(f32(n, 3, 4, h, w), f32(8, 3, 1, 3, 1)) => f32(n, 8, 4, h - 2, w)
nn.conv2d_transpose(f32(n, 3, h, w), f32(3, 8, 3, 3)) => f32(n, 8, h + 2, w + 2)
nn.conv2d_transpose(f32(n, 3, h, w), f32(3, 8, 3, 3), strides=2, padding=1, output_padding=1)
    => f32(n, 8, h * 2, w * 2)
nn.conv2d_transpose(f32(n, 3, h, w), f32(2, 3, 1, 1), groups=3, kernel_layout="OIHW")
    => f32(n, 6, h, w)
nn.conv2d_transpose(f32(n, 3, h, w), void[...]) => void[4]
nn.conv1d_transpose(f32(n, 3, 5), f32(3, 8, 3)) => f32(n, 8, 7)
nn.conv3d_transpose(f32(n, 3, 5, 1, w), f32(3, 8, 3, 1, 2)) => f32(n, 8, 7, 1, w + 1)
nn.max_pool2d(f32(n, 3, h, w), pool_size=3) => f32(n, 3, h - 2, w - 2)
nn.max_pool2d(f32(n, 3, h, w), pool_size=2, strides=2) => f32(n, 3, h // 2, w // 2)
nn.max_pool2d(f32(n, 3, h, w), pool_size=2, strides=2, ceil_mode=True)
    => f32(n, 3, (h - 1) // 2 + 1, (w - 1) // 2 + 1)
nn.avg_pool2d(f32(n, 3, h, w), pool_size=3, padding=1) => f32(n, 3, h, w)
nn.avg_pool2d(f32(n, 8, 8, c), pool_size=3, layout="NHWC") => f32(n, 6, 6, c)
nn.avg_pool2d(f32(n, 2, h, w, 4), layout="NCHW4c") => f32(n, 2, h, w, 4)
nn.avg_pool2d(f32(n, 3, h, w), out_layout="NHWC3c") => f32(n, h, w, 1, 3)
nn.max_pool2d(f32.by(s4)) => f32[4]
nn.max_pool2d(void[...]) => void[4]
nn.max_pool2d(b(1, 2, 3, 3)) => b(1, 2, 3, 3)
nn.avg_pool1d(on("cpu", f32(n, 3, w))) => on("cpu", f32(n, 3, w))
nn.max_pool3d(f32(n, 1, 2, 2, w), pool_size=2) => f32(n, 1, 1, 1, w - 1)
nn.adaptive_avg_pool2d(f32(n, 3, h, w)) => f32(n, 3, h, w)
nn.adaptive_avg_pool2d(f32.by(s)) => f32.by(s)
nn.adaptive_avg_pool2d(f32.by(s4)) => f32.by(s4)
nn.adaptive_avg_pool2d(f32[4]) => f32[4]
nn.adaptive_avg_pool2d(f32[...]) => f32[4]
nn.adaptive_avg_pool2d(f32(n, 3, h, w), output_size=7) => f32(n, 3, 7, 7)
nn.adaptive_avg_pool2d(f32.by(s4), output_size=(1, 7)) => f32[4]
nn.adaptive_avg_pool2d(f32(n, 3, h, w), out_layout="NHWC") => f32(n, h, w, 3)
nn.adaptive_avg_pool1d(f32(n, c, w), output_size=1) => f32(n, c, 1)
grad.conv2d_backward_data(f32(n, 8, h - 2, w - 2), f32(8, 3, 3, 3), (n, 3, h, w)) => f32(n, 3, h, w)
grad.conv2d_backward_weight(f32(n, 8, h - 2, w - 2), f32(n, 3, h, w), (8, 3, 3, 3))
    => f32(8, 3, 3, 3)
grad.max_pool2d_backward(f32(n, 3, h, w), f32(n, 3, h, w)) => f32(n, 3, h, w)
grad.avg_pool2d_backward(void[...], f32(n, 3, h, w)) => f32(n, 3, h, w)
grad.max_pool2d_selected(f32(n, 3, h, w), f32(n, 3, h, w), pool_size=2) => f32(n, 3, h - 1, w - 1)
grad.adaptive_avg_pool2d_backward(f32(n, 3, 1, 1), (n, 3, h, w), output_size=1) => f32(n, 3, h, w)

# boxes
vision.all_class_non_max_suppression(f32(2, n, 4), f32(2, 3, n), prim("int64"), prim("float32"),
    f32()) => tup(i64(6 * n, 3), i64(1))
vision.all_class_non_max_suppression(f32[...], f32(1, 2, 5), prim("int64"), prim("float32"), f32())
    => tup(i64(10, 3), i64(1))
vision.all_class_non_max_suppression(f32(2, n, 4), f32[...], prim("int64"), prim("float32"), f32())
    => tup(i64[2], i64(1))
vision.all_class_non_max_suppression(f32(2, n, 4), f32(2, 3, n), i64(1), prim("float32"), f32(),
    output_format="tensorflow") => tup(i64(2, 3 * n, 2), f32(2, 3 * n), i64(2))
vision.all_class_non_max_suppression(f32(2, n, 4), f32[3], i64(m), prim("float32"), f32(),
    output_format="tensorflow") => tup(i64[3], f32[2], i64(2))
vision.roi_align(f16(n, 3, m, 8), f32(k, 5), (2, 4), 0.5) => f16(k, 3, 2, 4)
vision.roi_align(f32(n, m, 8, 3), f32[2], 7, 0.5, layout="NHWC") => f32[4]
vision.roi_align(f32(n, m, 8, 3), f32(2, 5), 7, 0.5, layout="NHWC") => f32(2, 7, 7, 3)
vision.roi_pool(f32(n, 3, m, 8), f32(k, 5), (2, 4), 0.5) => f32(k, 3, 2, 4)
vision.non_max_suppression(f32(n, m, 6), i32(n), i32(n, m)) => tup(i32(n, m), i32(n, 1))
vision.non_max_suppression(f32[3], i32[1], i32[...], return_indices=False) => f32[3]
vision.non_max_suppression(f32(n, m, 6), i32[1], i32[2], soft_nms_sigma=0.5)
    => tup(f32(n, m, 6), i32(n, m), i32(n, 1))
vision.get_valid_counts(f32(n, m, 6)) => tup(i32(n), f32(n, m, 6), i32(n, m))
vision.get_valid_counts(f32[...]) => tup(i32[1], f32[3], i32[2])
vision.multibox_transform_loc(f32(n, 3, m), f32(n, 4 * m), f32(1, m, 4))
    => tup(f32(n, m, 4), f32(n, 3, m))
vision.multibox_transform_loc(f32(n, 3, m), f32[...], f32[3]) => tup(f32(n, m, 4), f32(n, 3, m))
vision.multibox_transform_loc(f32[3], f32(2, 8), f32[...]) => tup(f32[3], f32[3])
vision.all_class_non_max_suppression(f32[...], f32[...], prim("int64"), prim("float32"), f32(),
    output_format="tensorflow") => tup(i64[3], f32[2], i64[1])

# shapes, datatypes and memory
broadcast_to(f32(2, 1), (4, 2, 3)) => f32(4, 2, 3)
broadcast_to(f32(n), (m, n)) => f32(m, n)
broadcast_to(f32[1], (m, 3)) => f32(m, 3)
broadcast_to(f32(3), s2) => f32.by(s2)
broadcast_to(void[...], (3,)) => void(3)
reshape(f32(2, 3), (6,)) => f32(6)
reshape(f32(2, n), (-1, 2)) => f32(n, 2)
reshape(f32(n, 3, 4), (0, -1)) => f32(n, 12)
reshape(f32(n, 4), [n * 4]) => f32(n * 4)
reshape(f32.by(listed), (1, 0, -1)) => f32(1, 3, 2)
reshape(f32(6), (n, m)) => f32(n, m)
reshape(f32[...], (2, 3)) => f32(2, 3)
reshape(f32(6), s2) => f32.by(s2)
flatten(f32(2, n, 3)) => f32(2 * n * 3)
flatten(f32()) => f32(1)
flatten(f32(n)) => f32(n)
flatten(f32[3]) => f32[1]
flatten(f32[...]) => f32[1]
expand_dims(f32(2, n), 0) => f32(1, 2, n)
expand_dims(f32(2, n), [-1, 1]) => f32(2, 1, n, 1)
expand_dims(f32[2], 1) => f32[3]
expand_dims(f32[...], 7) => f32[...]
expand_dims(f32.by(s2), []) => f32.by(s2)
squeeze(f32(1, n, 1), [0, -1]) => f32(n)
squeeze(f32(1, n), 1) => f32(1)
squeeze(f32(1, 3, 1)) => f32(3)
squeeze(f32(2, 3)) => f32(2, 3)
squeeze(f32(1, n)) => f32[...]
squeeze(f32[2]) => f32[...]
squeeze(f32.by(s2), 0) => f32[1]
squeeze(f32[...], []) => f32[...]
permute_dims(f32(2, n, 4)) => f32(4, n, 2)
permute_dims(f32(2, n), [1, 0]) => f32(n, 2)
permute_dims(f32.by(s2), [0, -1]) => f32.by(s2)
permute_dims(f32.by(s2), [1, 0]) => f32[2]
permute_dims(f32[...]) => f32[...]
split(f32(6, n), 3) => tup(f32(2, n), f32(2, n), f32(2, n))
split(f32(2, 7), 3, 1) => tup(f32(2, 3), f32(2, 3), f32(2, 1))
split(f32(n * 2), 2) => tup(f32(n), f32(n))
split(f32(3, 8), [2, 5], -1) => tup(f32(3, 2), f32(3, 3), f32(3, 3))
split(f32[2], [2], 0) => tup(f32[2], f32[2])
split(f32(10), [-2, 2, 6, 4, 12]) => tup(f32(0), f32(2), f32(4), f32(0), f32(6), f32(0))
split(f32(n), [2, 5]) => tup(f32(T.min(2, n)), f32(T.min(5, n) - T.min(2, n)), f32(T.max(n - 5, 0)))
split(f32(6), 2) => tup(f32(3), f32(3))
split(f32[...], 2, 0) => tup(f32[...], f32[...])
nn.batch_flatten(f32(n, 3, m)) => f32(n, 3 * m)
nn.batch_flatten(f32[...]) => f32[2]
size(f32(n, 3)) => i64()
size(void[...]) => i64()
split(f32(2), 1) => f32(2)
split(f32(2), []) => f32(2)
astype(f32(2, n), "int8") => i8(2, n)
astype(void[...], "float32") => f32[...]
clip(f32.by(s2), 0, 1) => f32.by(s2)
vm.alloc_tensor(f32[...], 0, (4, 5), "float32") => f32(4, 5)
vm.alloc_tensor(obj, 0, s2, "float32") => f32[2]
memory.alloc_tensor(f32[...], 0, s2, "float32") => f32.by(s2)

# three tensors
ewise_fma(f32(2, n), f32(2, n), f32(2, n)) => f32(2, n)
ewise_fma(f32(2), f32[1], f32(2)) => f32[1]
ewise_fma(f32.by(s2), f32.by(s2), f32.by(s2)) => f32.by(s2)
ewise_fma(f32[...], f32(2), f32[...]) => f32[1]
ewise_fma(void(2, 3), f32(2, 3), f32(2, 3)) => void(2, 3)
ewise_fma(f32[...], f32[...], f32[...]) => f32[...]
where(b(2, 3), f32(3), f32(2, 1)) => f32(2, 3)
where(b(2), f32[...], f32(2)) => f32[...]
where(b(n), f32(m), f32(1)) => f32[1]
where(b[1], f32(2), f32(2)) => f32[1]
where(b(2, 3), void(2, 3), f32(3)) => void(2, 3)

# joining
concat((f32(2, 3), f32(4, 3)), 0) => f32(6, 3)
concat((f32(n, 3), f32(n, 3)), 0) => f32(n * 2, 3)
concat((f32(n, 3), f32(m, 3)), -2) => f32(n + m, 3)
concat((f32(n, 3), f32(m, 3)), 1) => f32[2]
concat((f32(2, 3), f32[2]), 1) => f32[2]
concat((f32(2, 3), f32[...]), 1) => f32[2]
concat((f32[...], f32[...]), 1) => f32[...]
concat((void(2, 3), f32(2, 3)), 0) => void(4, 3)
concat((f32(2), f32(3)), None) => f32(5)
concat((f32.by(s2),), 1) => f32.by(s2)
stack((f32(2, n), f32(2, n)), 0) => f32(2, 2, n)
stack((f32(2, n), f32(2, n), f32(2, n)), -1) => f32(2, n, 3)
stack((f32(2, n), f32(2, m)), 1) => f32[3]
stack((f32(2), f32[1]), 1) => f32[2]
stack((f32[...], f32[...]), 1) => f32[...]
concat((f32(n), f32(3)), None) => f32(n + 3)
concat((f32[1], f32[...]), None) => f32[1]
concat((f32[...],), None) => f32[...]

# take
take(f32(n, 4), i32(2, 3), 0) => f32(2, 3, 4)
take(f32(n, 4), i64(m), -1) => f32(n, m)
take(f32(5), i64(2), None) => f32(2)
take(f32(5, 6), prim("int64"), 1) => f32(5)
take(f32(5, 6), u8(), 0) => f32(6)
take(f32[2], i64(2, 3), 0) => f32[3]
take(f32(2, 3), i64[1], 0) => f32[2]
take(f32[...], i64(2), 0) => f32[...]
take(f32(2, 3), void[...], 0) => f32[...]
take(f32(n, 4), i64(2), 0, "nan") => f32(2, 4)

# slices
strided_slice(f32(9, 9), [0, 1], tup(prim("int64"), prim("int64")), tup(prim("int64"),
    prim("int64"))) => f32[2]
strided_slice(f32(9, 9), [0], obj, obj) => f32[2]
strided_slice(f32(9, n), [0], [1], [4]) => f32(3, n)
strided_slice(f32(9, n), [1], [1], [n]) => f32(9, T.max(n - 1, 0))
strided_slice(f32(9, n), [1], [0], [n]) => f32(9, n)
strided_slice(f32(9, n), [1], [0], [m], [1], True) => f32(9, m)
strided_slice(f32(n), [0], [2], [m], [1], True) => f32(m - 2)
strided_slice(f32(9, 9), [0, -1], [-3, 8], [9, 0], [1, -2]) => f32(3, 4)
strided_slice(f32(9), [0], [5], [2]) => f32(0)
strided_slice(f32[2], [0], [0], [4]) => f32[2]
strided_slice(f32[...], [0], [0], [4]) => f32[...]
strided_slice(f32(n), [0], [1], [3]) => f32(T.min(3, n) - T.min(1, n))
strided_slice(f32(n), [0], [1], [8], [3]) => f32((T.min(8, n) + 2 - T.min(1, n)) // 3)
strided_slice(f32.by(listed), [1], [0], [2]) => f32(2, 2)
strided_slice(f32.by(listed), [], [], []) => f32(2, 3)
strided_slice(f32.by(s2), [], [], []) => f32.by(s2)

# creation
zeros((2, n), "int8") => i8(2, n)
ones(s2, "float32") => f32.by(s2)
full((n,), 2.5) => f32(n)
full((n,), 2.5, "int8") => i8(n)
full((2,), i64()) => i64(2)
arange(5) => i64(5)
arange(1, 10, 3) => i64(3)
arange(0, 1, 0.3) => f32(4)
arange(at(n)) => i64(n)
arange(at(n), at(m), 2) => i64((m + 1 - n) // 2)
arange(2, at(n), 1, "float32") => f32(n - 2)
arange(prim("int64")) => i64[1]

# layers
nn.layer_norm(f32(n, 4), f32(4), f32(4), axes=[-1]) => f32(n, 4)
nn.rms_norm(f32(n, 4), f32(4)) => f32(n, 4)
nn.layer_norm(f32(n, 4), f32(m), f32(4), axes=[-1]) => f32[2]
nn.rms_norm(f32(n, 4), f32(m)) => f32[2]
nn.layer_norm(f32[2], f32(4), f32(4), axes=[-1]) => f32[2]
nn.rms_norm(f32[2], f32(4)) => f32[2]
nn.layer_norm(f32[...], f32(4), f32(4), axes=[-1]) => f32[...]
nn.rms_norm(f32[...], f32(4)) => f32[...]
nn.layer_norm(void(n, 4), f32(4), f32(4), axes=[-1]) => void(n, 4)
nn.rms_norm(void(n, 4), f32(4)) => void(n, 4)
nn.layer_norm(f32(n, 4), void(4), void(4), axes=[-1]) => f32(n, 4)
nn.rms_norm(f32(n, 4), void(4)) => f32(n, 4)

# products
matmul(f32(2, 3), f32(3, 4)) => f32(2, 4)
matmul(f32(3), f32(3, 4)) => f32(4)
matmul(f32(2, 3), f32(3)) => f32(2)
matmul(f32(3), f32(3)) => f32()
matmul(f32(n, 2, 3), f32(3, m)) => f32(n, 2, m)
matmul(f32(5, 1, 2, 3), f32(6, 3, 4)) => f32(5, 6, 2, 4)
matmul(f32(n, 2, 3), f32(m, 3, 4)) => f32[3]
matmul(f32(2, n), f32(m, 4)) => f32(2, 4)
matmul(f32[3], f32(3, 4)) => f32[3]
matmul(f32[1], f32[1]) => f32[0]
matmul(f32[...], f32(3, 4)) => f32[...]
matmul(void(2, 3), f32(3, 4)) => void(2, 4)
matmul(f16(2, 3), f16(3, 4), out_dtype="float32") => f32(2, 4)
linear(f32(n, 3), f32(4, 3), f32(4)) => f32(n, 4)
linear(f32(n, 3), f32(4, 3)) => f32(n, 4)

# views
memory.view(f32(n), ((n + 3) // 4, 4)) => f32((n + 3) // 4, 4)
memory.view(u8(16), (8,), "float16") => f16(8)
memory.view(void[...], relative_byte_offset=0) => void[...]

# angles
atan2(f32(2, 1), f32(1, n)) => f32(2, n)

# bounds in tensors
dynamic_strided_slice(f32(n, 3), i64(2), i64(2), i64(2)) => f32[2]
dynamic_strided_slice(f32[2], i64[1], i64(2), void[...]) => f32[2]
dynamic_strided_slice(f32[...], i64(2), i64(2), i64(2)) => f32[...]
dynamic_strided_slice(f32(2, 3), i64(n), i64(2), i64(2)) => f32[2]

# other layouts
layout_transform(f32(2, 8), blocks) => f32(2, 2, 4)
layout_transform(f32(2, 9), blocks) => f32(2, 3, 4)
layout_transform(f32(n, 0), blocks) => f32(n, 0, 4)
layout_transform(f32(n, m * 4), blocks) => f32(n, m, 4)
layout_transform(f32(n, m), blocks) => f32(n, (m + 3) // 4, 4)
layout_transform(f32(n, m * 4), blocks_by_int32) => f32(n, m, 4)
layout_transform(f32[2], blocks) => f32[3]
layout_transform(f32[...], blocks) => f32[3]
layout_transform(f32(2, n, 3), reversed) => f32(3, n, 2)
layout_transform(f32(2, 9), blocks, at(FloatImm("float32", 1.0)), [1]) => f32(2, 3, 4)
layout_transform(f32(4), mirrored) => f32(4)

# shape variables, and sizes that may yet differ
add(f32.by(by(n, 3)), f32.by(by(1, 3))) => f32(n, 3)
less(f32.by(by(n, 1)), f32(3)) => b(n, 3)
add(f32.by(s2), f32(2, 3)) => f32[2]
add(f32.by(s), f32.by(s)) => f32.by(s)
nn.layer_norm(f32.by(s4), f32.by(t), f32.by(s2), axes=[2, 3]) => f32.by(s4)
nn.layer_norm(f32.by(s), f32.by(s2), f32.by(s2), axes=[2, 3]) => f32.by(s)
nn.layer_norm(f32(2, 3, n, 5), f32.by(s2), f32.by(s2), axes=[2, 3]) => f32(2, 3, n, 5)
nn.layer_norm(f32(2, 3, n, 5), f32(m, 5), f32(n, 5), axes=[2, 3]) => f32[4]
nn.rms_norm(f32.by(s4), f32.by(s2), axes=[2, 3]) => f32.by(s4)
nn.batch_norm(f32(2, n, 4, 5), f32(n), f32(n), f32(n), f32(n), axis=1)
    => tup(f32(2, n, 4, 5), f32(n), f32(n))
nn.batch_norm(f32[4], f32(n), f32(n), f32(n), f32(n), axis=1) => tup(f32[4], f32(n), f32(n))
nn.batch_norm(f32(2, n, 4, 5), f32(m), f32(n), f32(n), f32(n), axis=1)
    => tup(f32[4], f32[1], f32[1])
gather_elements(f32(2, 3), i64.by(s2)) => f32.by(s2)
dequantize(i8.by(two), f32(n), f32(n)) => f32.by(two)
layout_transform(f32.by(by(n, 3)), lambda i, j: (j, i)) => f32(3, n)
ccl.allgather(f32.by(by(n, 3)), 2) => f32(n * 2, 3)
nn.nll_loss(f32(n, 5, 4), i64[2], reduction="none") => f32(n, 4)
nn.nll_loss(f32[3], i64(n, 4), reduction="none") => f32[2]
nn.nll_loss(f32[...], i64(n), reduction="none") => f32[...]
nn.nll_loss(f32(3, 5), b(3), reduction="none") => f32(3)
nn.nll_loss(f32(3, 5), i64[1], void[1]) => void()
nn.attention(f32(1, 2, 3, 4), void(1, 2, 3, 4), f32(1, 2, 3, 4)) => f32(1, 2, 3, 4)
nn.max_pool2d(f32(n, 2, 8, 8, m), layout="NCHW16c", out_layout="NHWC") => f32(n, 8, 8, 32)
nn.conv2d(f32(n, 2, 8, 8, m), f32(4, 32, 1, 1), data_layout="NCHW16c", out_layout="NCHW")
    => f32(n, 4, 8, 8)
"""
