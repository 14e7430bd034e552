"""Calls that operators refuse, and why; `notation` explains the text."""

REFUSED = """
# grids
image.grid_sample(f32(1, 3, 4, 5, 6), f32(n, 2, m, 7))
    !! data has rank 4 for layout 'NCHW', found R.Tensor((1, 3,
image.grid_sample(f32(n, 3, 5, 6), f32(n, 2, 7))
    !! grid has rank 4 for layout 'NCHW', found R.Tensor((n, 2,
image.grid_sample(i8(1, 2, 3, 4), f32(n, 2, m, 7))
    !! data holds floats, found R.Tensor( !! convert it with R.astype first
image.grid_sample(f32(n, 3, 5, 6), i8(n, 2, 3, 4))
    !! grid holds floats, found R.Tensor( !! convert it with R.astype first
image.grid_sample(f32(n, 3, 5, 6), f32(n, 5, 6, 2))
    !! dimension 1 of grid (n, 5, 6, 2) is 2, a coordinate for each axis; found 5
image.grid_sample(f32(2, 3, 5, 6), f32(1, 2, 5, 6))
    !! data (2, 3, 5, 6) and grid (1, 2, 5, 6) have one batch, found 2 and 1
image.grid_sample(f32(1, 3, 4, 5, 6), f32(1, 3, 2, 2, m), layout="NCDHW", method="bicubic")
    !! 'bicubic' is a method for layout 'NCHW' !! write 'bilinear'
grad.grid_sample_backward(f32(2), f32(n, 3, 5, 6), f32(n, 2, m, 7)) !! output_grad has rank 4
grad.grid_sample_backward(f32(n, 3, m, 6), f32(n, 3, 5, 6), f32(n, 2, m, 7))
    !! output_grad has the shape of the result, (n, 3, m, 7), found (n, 3, m, 6)
image.affine_grid(f32(2, 3), shape(4, 5)) !! data has rank 3, found R.Tensor((2, 3)
image.affine_grid(f32(1, 3, 3), shape(4, 5))
    !! dimension 1 of data (1, 3, 3) is 2, a row for each of x and y; found 3
image.affine_grid(f32(1, 2, 4), shape(4, 5))
    !! dimension 2 of data (1, 2, 4) is 3, the coefficients of x, y and 1; found 4
image.affine_grid(f32(1, 2, 3), shape(4, 5, 6)) !! size has 2 members, found R.Shape([4,

# images
image.resize2d(f32(2, 3, 4), shape(7, 7)) !! data has rank 4 for layout 'NCHW', found R.Tensor(
image.resize2d(f32(2, 3, n, 5), shape(7, 7, 7)) !! size has 2 members, found R.Shape([7, 7, 7])
image.resize2d(f32(2, 3, n, 5), (7, -1)) !! size is at least 0, found R.Shape([7, -1])
image.resize2d(f32(2, 3, n, 5), 7, layout="NCDHW") !! layout has the axes of 'NCHW', found 'NCDHW'
image.resize2d(f32(2, 3, n, 5), 7, layout="HWC") !! layout has the axes of 'NCHW', found 'HWC'
image.resize2d(f32(2, 3, n, 5), 7, layout="N?") !! layout has the axes of 'NCHW', found 'N?'
image.resize2d(f32(1, 1, 2, 2, 2), 7, layout="NCHW2w")
    !! layout has the axes of 'NCHW', found 'NCHW2w'
image.resize2d(f32(2, 3, n, 5), 7, (0.0, 1.0)) !! roi is one number or 4, found [0.0, 1.0]
image.resize2d(f32(2, 3, n, 5), 7, coordinate_transformation_mode="tf_crop_and_resize")
    !! 'tf_crop_and_resize' needs a region !! pass roi=[...] with 2 starts and 2 ends from 0 to 1
image.resize3d(f32(2, 3, n, 5), shape(7, 7, 7)) !! data has rank 5 for layout 'NCDHW'
grad.resize2d_backward(f32(2, 3), f32(2, 3, n, 5)) !! data has rank 4 for layout 'NCHW'

# lowered programs
memory.view(f32(2, 3), [7]) !! a view of 28 bytes from byte 0 on leaves
memory.view(f32(2, 3), [5], relative_byte_offset=8) !! ...which has 24 bytes
memory.view(f32(n), [n + 1]) !! ...leaves the tensor
memory.view(f32(2, 3), relative_byte_offset=-1) !! ...begins at byte -1
memory.view(f32(2, 3), None, None, prim("int32")) !! ...an int64, found
memory.kill_tensor(shape(2)) !! tensor is a tensor, found R.Shape
builtin.alloc_tensor([2], obj, 0) !! the datatype is a literal
memory.alloc_tensor(obj, 0, [2], "") !! ...has a datatype, found none
memory.kill_storage(f32(2, 3)) !! storage is an object, found
tensor_to_shape(f32(2, 3)) !! takes integers of rank 1
tensor_to_shape(f32(2)) !! takes integers of rank 1
make_closure(f32(2, 3), ()) !! expected a function, found R.Tensor
make_closure(func(obj, ret=obj), (at(0), at(0))) !! the function takes 1 argument, 2 are bound
call_inplace_packed("f", f32(2, 3), inplace_indices=[-1], sinfo_args=sinfo(f32(2, 3)))
    !! ...names different arguments, at least one
call_inplace_packed("f", f32(2, 3), inplace_indices=[1], sinfo_args=sinfo(f32(2, 3)))
    !! inplace index 1 names none of 1 argument
call_inplace_packed("f", f32(2, 3), inplace_indices=[0, 0], sinfo_args=sinfo(f32(2, 3)))
    !! ...one entry for each of 1 result
call_inplace_packed("f", f32(2, 3), inplace_indices=[0], sinfo_args=sinfo(f32(4)))
    !! ...cannot be the result
call_builtin_with_ctx(f32(2, 3), ()) !! expected a packed function
vm.call_tir_dyn(fn("k"), (f32(2, 3),)) !! the last argument is a shape
vm.call_tir_dyn(obj, ()) !! takes a kernel and a tuple of arguments

# activations, normalisations, losses, attention
nn.selu(i64(2)) !! data holds floats !! convert it with R.astype first
nn.softplus(f32(2), 0.0) !! beta is other than 0
nn.softplus(i64(2)) !! data holds floats !! convert it with R.astype first
nn.prelu(f32(2, 3), f32(2)) !! alpha (2,) has 2 slopes, but axis 1 of data (2, 3)
nn.prelu(f32(2, 3), f32(2, 3)) !! alpha is a vector
nn.prelu(f32(2, 3), i64(3)) !! alpha has the datatype of data
nn.prelu(f32(2), f32(1)) !! axis 1 is out of range for rank 1
nn.batch_norm(f32(2, n, 3), f32(n), f32(n), f32(n), f32(n + 1), axis=1)
    !! moving_var (n + 1,) has n + 1 elements, but axis 1
nn.batch_norm(f32(2, n, 3), f32(n), i64(n), f32(n), f32(n), axis=1)
    !! beta has the datatype of data, found int64 and float32
nn.batch_norm(i64(2, 3), f32(n), f32(n), f32(n), f32(n), axis=1)
    !! data holds floats !! convert it with R.astype first
nn.batch_norm(f32(2, n, 3), f32(n), f32(n), f32(n), f32(n), axis=3)
    !! axis 3 is out of range for rank 3
nn.instance_norm(f32(2, n, 3), f32(2, n, 3), f32(n), channel_axis=1, axes=(2,))
    !! gamma is a vector with one element for each channel
nn.instance_norm(f32(2, n, 3), f32(n), f32(n), channel_axis=1, axes=(2, 2)) !! axes: 2 occurs twice
nn.group_norm(f32(2, n, 3), f32(n), f32(n), num_groups=0, channel_axis=1, axes=(2,))
    !! num_groups is positive, found 0
nn.group_norm(f32(2, 5), f32(5), f32(5), num_groups=2, channel_axis=1, axes=(2,))
    !! axes: 2 is out of range
nn.group_norm(f32(2, 5), f32(5), f32(5), num_groups=2, channel_axis=1, axes=())
    !! ...5 channels, which are not 2
nn.group_norm(f32(2, n, 3), f32(n), f32(n), num_groups=1, channel_axis=1, axes=(1,))
    !! ...along the channel axis 1
nn.cross_entropy_with_logits(f32(2, 3), f32(2, 4)) !! ...predictions (2, 3) is 3, of labels (2, 4) 4
nn.cross_entropy_with_logits(f32(2, 3), f32(2)) !! ...have one rank
nn.nll_loss(f32(2, 3), f32(2)) !! targets holds integers
    !! convert it with R.astype first
nn.nll_loss(f32(2, 3), i64(2, 3)) !! targets has rank 1 for predictions
nn.nll_loss(f32(2, 3), i64(3)) !! ...shape (2,) for predictions (2, 3), found (3,)
nn.nll_loss(f32(), i64()) !! predictions has rank at least 1
nn.nll_loss(f32(2, 3), i64(2), f32(4)) !! weights (4,) has 4 elements, but predictions (2, 3)
nn.nll_loss(f32(2, 3), i64(2), i64(3)) !! weights has the datatype of predictions
nn.nll_loss(f32(2, 3), i64(2), f32(3, 1)) !! weights is a vector
grad.nll_loss_backward(f32(2), f32(2, 3), i64(2)) !! output_grad is as the result of nll_loss
grad.nll_loss_backward(f32(2, 4), f32(2, 3, 5), i64(2, 5), reduction="none")
    !! output_grad is as the result of nll_loss
nn.attention(f32(2, 3), f32(2, m, 2, 8), f32(2, m, 2, 5))
    !! query has rank 4 (batch, sequence, heads, width)
nn.attention(f32(2, n, 4, 8), f32(3, m, 2, 8), f32(2, m, 2, 5))
    !! the batches of query and key are equal
nn.attention(f32(2, n, 4, 8), f32(2, m, 3, 8), f32(2, m, 3, 5))
    !! ...divide those of query, found 3 and 4
nn.attention(f32(2, n, 4, 8), f32(2, m, 2, 7), f32(2, m, 2, 5))
    !! ...found 8 and 7: query is (2, n, 4, 8), key is (2, m, 2, 7)
nn.attention(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), f32(2, 3, n, m))
    !! ...bias (2, 3, n, m) is 1 or 4, found 3
nn.attention(f32(2), f32(2, m, 2, 8), f32(2, m, 2, 5), f32(2, 3, n, m)) !! query has rank 4
nn.attention_bias(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), f32(2, n)) !! bias has rank 4
nn.attention_bias(f32(2, n, 4, 8), f32(2), f32(2, m, 2, 5), f32(2, 3, n, m)) !! key has rank 4
nn.attention(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), window_size=0)
    !! window_size is positive, found 0
nn.attention_var_len(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), f32(3), 7)
    !! seqstart_q holds integers
    !! convert it with R.astype first
nn.attention_var_len(f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5), i64(3, 1), 7)
    !! seqstart_q is a vector
grad.attention_var_len_backward(f32(2, n, 3), f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5),
    i64(3)) !! output_grad has rank 4
grad.attention_var_len_backward(f32(2, n, 4, 8), f32(2, n, 4, 8), f32(2, m, 2, 8), f32(2, m, 2, 5),
    f32(3)) !! seqstart_q holds integers
    !! convert it with R.astype first

# padding
nn.pad(f32(2, 3), (1, 1))
    !! pad_width holds two widths for each axis, found 2 widths for R.Tensor((2, 3) !! list
    (before, after) of every axis, as in [0, 0,...
nn.pad(f32[...], (1, 1, 1)) !! pad_width holds pairs of widths, found [1, 1, 1]
nn.pad(f32(2), (-2, -1))
    !! pad_width (-2, -1) of axis 0 of data R.Tensor((2,), dtype="float32") removes more
nn.pad(f32(9, 3), (0, 0, 3, 0), "reflect")
    !! pad_width (3, 0) of axis 1 of data R.Tensor((9, 3), dtype="float32") is at most 2 in mode
    'reflect'
nn.pad(f32(3), (0, 4), "circular")
    !! pad_width (0, 4) of axis 0 of data R.Tensor((3,), dtype="float32") is at most 3 in mode
    'circular'
nn.pad(f32(0), (0, 1), "replicate") !! ...repeats elements of an axis that has none
nn.pad(i32(3), (1, 1), pad_value=0.5)
    !! pad_value is an integer for R.Tensor((3,), dtype="int32"), found 0.5
nn.pixel_shuffle(f32[...], 0) !! upscale_factor is positive, found 0
nn.pixel_shuffle(f32(4, 4), 2) !! data has rank at least 3, found R.Tens
nn.pixel_shuffle(f32(6, 4, 4), 2)
    !! the channels of data, axis 0, are a multiple of upscale_factor**2 = 4, found R.Tensor((6, 4,
    4)

# quantization
quantize(u8(2, n), f32(), i8())
    !! data holds floats, found R.Tensor((2, n) !! convert it with R.astype first
quantize(f32(2, n), i8(), i8())
    !! scale holds floats, found R.Tensor(() !! convert it with R.astype first
quantize(f32(2, n), f32(), b()) !! zero_point holds numbers, found R.Tensor(()
quantize(f32(2, n), f32(1, 2), i8()) !! scale is a scalar or a vector, found R.Tensor((1, 2)
quantize(f32(2, n), f32(3), i8(), axis=0)
    !! scale (3,) has one element for each index along axis 0 of data (2, n): 2, found 3
quantize(f32(2, n), f32(), i8(3), axis=-2)
    !! zero_point (3,) has one element for each index along axis -2 of data (2, n): 2, found 3
quantize(f32(2, n), f32(n), i8(), axis=2) !! axis 2 is out of range for rank 2
quantize(f32(2, n), f32(), i8(), out_dtype="int32")
    !! out_dtype is one of int8, uint8, int16, uint16, float8_e4m3fn, float8_e5m2, found int32
dequantize(b(), f32(), i8()) !! data holds numbers, found R.Tensor(()
dequantize(u8(2, n), f32(), i8(), out_dtype="int8")
    !! out_dtype is one of float16, bfloat16, float32, float64, found int8
dequantize(f32(2), f32(2), i8(), axis=1) !! axis 1 is out of range

# repetition, masks, products by labels
repeat(f32(2), -1) !! repeats is at least 0, found -1
repeat(f32(2), 2, 1) !! axis 1 is out of range for rank 1
tile(f32(2), (2, -3)) !! repeats is at least 0, found -3
flip(f32[2], 2) !! axis 2 is out of range for rank 2
roll(f32(2), (1, 2)) !! without an axis there is one shift
roll(f32[2], 1, (0, 1)) !! each axis has a shift, found [1] for axes [0, 1]
roll(f32[2], 1, 3) !! axis 3 is out of range for rank 2
reverse_sequence(f32(2, 3), i32(4))
    !! seq_lengths has a length for each of 2 along axis 0 of data (2, 3), found 4
reverse_sequence(f32(2, 3), f32(2)) !! seq_lengths holds int32 or int64
reverse_sequence(f32(2, 3), i32[2]) !! seq_lengths is a vector
reverse_sequence(f32(3), i32[1]) !! seq_axis 1 is out of range for rank 1
reverse_sequence(f32(2, 3), i32[1], 1, -1) !! seq_axis and batch_axis are two axes, found 1 and -1
meshgrid(tup()) !! tensors holds at least one vector, found none
meshgrid(tup(f32(2, 3))) !! tensors holds vectors, found R.Tensor((2, 3)
meshgrid(tup(shape(2))) !! tensors holds tensors, found R.Shape([2]) as number 1
meshgrid(tup(f32(2), i8(2))) !! tensors have one datatype
one_hot(f32(2), 1, 0, 4) !! indices holds integers
    !! convert it with R.astype first
one_hot(i8(2), 1, 0, 0) !! depth is positive, found 0
one_hot(i8(2), 1, 0.5, 3) !! on_value and off_value have one datatype, found int64 and float64
one_hot(i8(2), 1, 0, 4, 2) !! axis 2 is out of range for rank 2
tril(f32(3)) !! x has rank at least 2, found R.Tensor((3,)
triu(f32(3, 3), 0.5) !! k is an integer, found R.Prim
eye(prim("float32")) !! n is an integer
eye(2, dtype="") !! a tensor is created in a datatype
eye_like(f32(3)) !! x has rank 2, found R.Tensor((3,)
hamming_window(0, True, 0.5, 0.5, "float32") !! window_size is positive, found 0
hamming_window(4, True, 0.5, 0.5, "int8") !! dtype is one of floats, found int8
outer(f32(2, 3), f32(2)) !! x1 is a vector, found R.Tensor((2, 3)
outer(f32(2), i8(2)) !! x1 and x2 have one datatype !! write R.astype(x1, "int8")
einsum((f32(2, 3), f32(4, 5)), "ij,jk")
    !! label 'j' of 'ij,jk' has sizes 3 and 4: the operands are R.Tensor((2, 3)
einsum((f32(2, 3), f32(4, 5)), "ij") !! subscripts 'ij' have 1 operand
einsum((f32(2, 3),), "ijk") !! operand 0 has rank 2, but 'ijk' of 'ijk' labels 3 axes
einsum((f32(2, 3),), "ij->ii") !! label 'i' occurs twice in the result
einsum((f32(2, 3),), "ij->k") !! label 'k' of the result of 'ij->k' is on no operand
einsum((f32(2, 3),), "i*") !! subscripts are letters, commas, '...' and '->'
einsum((), "i") !! operands holds at least one tensor, found none
einsum((shape(2),), "i") !! operands holds tensors, found R.Shape([2])

# gather and scatter
scatter_elements(b(2, 2), i64(2, 2), b(2, 2), reduction="mean") !! Booleans have no mean
scatter_nd(b(2, 2), i64(2, 2), b(2), "mean") !! Booleans have no mean
gather_elements(f32(2, n), f32(2, 2)) !! indices holds integers, found R.Tensor((2, 2)
    !! convert it with R.astype first
gather_elements(f32(2, n), i64(2)) !! data and indices have one rank
gather_elements(f32(2, n), i64(2, 2), 2) !! axis 2 is out of range for rank 2
gather_nd(f32(2, n), f32(2, 1)) !! indices holds integers
    !! convert it with R.astype first
gather_nd(f32(2, n), i64()) !! indices has rank at least 1, found R.Tensor(()
gather_nd(f32(2, n), i64(4, 3)) !! ...hold 3 positions, but data R.Tensor((2, n)
gather_nd(f32(2, n), i64(4, 1), 3) !! batch_dims is from 0 to 2 for data
gather_nd(f32(2, n), i64(4, 1), -1) !! batch_dims is from 0
index_tensor(f32(2, n), tup()) !! indices holds at least one tensor, found none
index_tensor(f32(2, n), tup(f32(2))) !! number 1 of indices holds integers
    !! convert it with R.astype first
index_tensor(f32(2, n), tup(shape(2))) !! indices holds tensors, found R.Shape([2])
index_tensor(f32(2, n), tup(i64(2), i64(2), i64(2))) !! ...has 2 axes, found 3 indices
index_tensor(f32(2, n), tup(i64(2), i64(3))) !! indices[0] and indices[1] do not broadcast
index_put(f32(2, n), (i64(4), i64(4)), f32(3))
    !! values (3,) do not broadcast to (4,): dimension -1 is 3, not 4
index_put(f32(2, n), (i64(4), i64(4)), f32(4, 4)) !! ...have more axes than data[indices]
index_put(f32(2, n), (i64(4),), i64(3))
    !! data and values have one datatype, found float32 and int64
scatter_elements(f32(2, n), i64(2, 1), f32(2, 3)) !! ...dimension 1 differs
scatter_elements(f32(2, n), i64(2, 1), i64(2, 1)) !! data and updates have one datatype
scatter_elements(f32(2, n), i64(2), f32(2)) !! data and indices have one rank
scatter_nd(f32(2, n), i64(4, 3), f32(4)) !! ...hold 3 positions, but data
scatter_nd(f32(2, n), i64(4, 1), f32(4)) !! updates has rank 2 for data
scatter_nd(f32(2, n), i64(4, 2), f32(5))
    !! updates has shape (4,) for data (2, n) and indices (4, 2), found (5,): dimension 0
slice_scatter(f32(2, n), f32(2, n), 0, 1, 0) !! step is positive, found 0
slice_scatter(f32(2, n), f32(2, n), 2, 1) !! end is not before start 2, found 1
slice_scatter(f32(2, n), f32(2, n), -1, 1) !! start is at least 0, found -1
slice_scatter(f32(2, n), f32(2, n), 0, 3) !! end is at most 2, the size of axis 0
slice_scatter(f32(2, n), f32(2, n), 0, 1) !! dimension 0 of src (2, n) is 2, not 1
slice_scatter(f32(2, n), f32(2, n), 0.5, 1) !! start is an integer, found R.Prim

# sorting
sort(f32(2, n), 2) !! axis 2 is out of range for rank 2
sort(f32()) !! axis -1 is out of range for rank 0
argsort(f32[2], -3) !! axis -3 is out of range for rank 2
grad.linear_recurrence(f32(2, n), f32(2), 0) !! factors and terms have one rank, found 2 and 1
grad.linear_recurrence(f32(2, 3), f32(2, 4), 0) !! factors (2, 3) and terms (2, 4) have one shape
grad.linear_recurrence(i32(2), i32(2), 0) !! factors holds floats !! convert it with R.astype first
grad.linear_recurrence(f32(2, 3), f16(2, 3), 0)
    !! ...float32 and float16 !! write R.astype(factors, "float16"), R.astype(terms, "float32")
grad.linear_recurrence(f32(2, n), f32(2, n), 2) !! axis 2 is out of range for rank 2
topk(f32(2, n), 1, 2) !! axis 2 is out of range for rank 2
median(f32(2, n), 2) !! axis 2 is out of range for rank 2
median(f32(2, n), [0, -2]) !! axis -2 occurs twice
median(f32(2, n), []) !! axis is None or has at least one axis
nth_index(f32(2, n), i64(), 2) !! axis 2 is out of range for rank 2
nth_index(f32(2, n), f32()) !! n holds integers, found !! convert it with R.astype first
nth_index(f32(2, n), i64(2)) !! nth_index have one rank, found 2 and 1
nth_index(f32(2, n), i64(3, 1)) !! ...of the result and n differ in dimension 0: 2 in number 1
tree_leaves(i32(2, n), i32(5, 4), i32(2), 2) !! x holds float32 or float64 !! convert it
tree_leaves(f32(2), i32(5, 4), i32(2), 2) !! x has rank 2
tree_leaves(f32(2, n), i64(5, 4), i32(2), 2) !! nodes holds int32, found R.Tensor((5, 4)
tree_leaves(f32(2, n), i32(5, 3), i32(2), 2) !! a node has 4 numbers, found R.Tensor((5, 3)
tree_leaves(f32(2, n), i32(5, 4), i32(2), -1) !! depth is 0 or more, found -1
bucketize(f32(2, n), f32(2, n)) !! boundaries is a vector, found R.Tensor((2, n)
unique(f32(2, n), axis=2) !! axis 2 is out of range for rank 2
multinomial_from_uniform(f32(n, 1), f32(n, 1), f32(n, 1)) !! sample_indices holds integers
multinomial_from_uniform(f32(3), f32(n, 1), void[...]) !! prob has rank 2
multinomial_from_uniform(f32(2, n), f32(n, 2), void[...]) !! uniform_sample has one column
multinomial_from_uniform(f32(2, n), f32(2, 1), i64(3, 1)) !! ...have as many rows
cumsum(b(2))
    !! data holds numbers, found R.Tensor((2,), dtype="bool") !! pass a datatype: dtype="int64"
cumprod(f32(2, n), 2) !! axis 2 is out of range for rank 2

# convolutions and pools
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), strides=(1, 1)) / strides=(1, 1, 1)
    !! strides has 1 or 2 numbers, found [1, 1, 1]
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), strides=1) / strides=0
    !! strides is at least 1, found [0, 0]
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), padding=(1, 1, 1, 1)) / padding=(1, 1, 1)
    !! padding has 1, 2 or 4 numbers, found [1, 1, 1]
nn.conv1d(f32[3], f32[3], padding=(1, 1)) / padding=(1, 1, 1)
    !! padding has 1 or 2 numbers, found [1, 1, 1]
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), padding=0) / padding=-1
    !! padding is at least 0, found [-1
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), dilation=1) / dilation=0 !! dilation is at least 1
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), groups=1) / groups=0 !! groups is at least 1, found 0
nn.conv2d(f32(n, 6, h, w), f32(8, 3, 3, 3), groups=2) / groups=1
    !! data has 6 channels, the weight is for 3 in 1 group: data is R.Tensor((n, 6, h, w),
    dtype="float32") in NCHW, weight is R.Tensor((8, 3, 3, 3), dtype="float32") in OIHW !! write
    groups=2
nn.conv2d(f32(n, c, h, w), f32(8, 3, 3, 3), groups=2) / groups=3
    !! 3 groups do not divide the 8 output channels of the weight
nn.conv2d(f32[4], f32(8, 3, 3, 3), data_layout="NHCW") / data_layout="NHCD"
    !! data_layout arranges the axes NCHW, found 'NHCD' !! such as 'NCHW', 'NHWC' or 'NCHW16c'
nn.conv2d(f32[4], f32[4], kernel_layout="OIHW") / kernel_layout="IO"
    !! kernel_layout arranges the axes OIHW, found 'IO' !! such as 'OIHW', 'OHWI' or 'OIHW16o'
nn.conv2d(f32[4], f32[4], out_layout="NHWC") / out_layout="nchw"
    !! out_layout arranges the axes NCHW, found 'nchw' !! such as 'NCHW', 'NHWC' or 'NCHW16c'
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3), out_layout="NCHW4c") / out_layout="NCHW3c"
    !! axis C of the result has size 8, which blocks of 3 do not divide, as NCHW3c has them
nn.conv2d(f32(n, 1, h, w, 3), f32(8, 3, 3, 3), data_layout="NCHW3c", out_layout="NCHW") /
    data_layout="NCHW8c" !! dimension 4 of data (n, 1, h, w, 3) is 3, blocks in NCHW8c have 8
nn.conv2d(f32(1, 3, 7, 8), f32(8, 3, 3, 3), dilation=3) / dilation=4
    !! a window of 3 with dilation 4 does not fit in axis H, which has size 7 and 0 of padding
nn.conv2d_transpose(f32(n, 3, h, w), f32(3, 8, 3, 3), strides=(2, 3), output_padding=1) /
    strides=(1, 3) !! output_padding is less than the stride, found 1 and stride 1 along axis H
nn.conv2d_transpose(f32(1, 3, 5, 5), f32(3, 8, 3, 3), padding=3) / padding=4
    !! padding removes 8 elements of axis H, which without it has size 7
nn.conv2d_transpose(f32(n, 3, h, w), f32(3, 8, 3, 3), kernel_layout="IOHW") / kernel_layout="OIHW"
    !! data has 3 channels, the weight is for 8 in 1 group
nn.conv2d_transpose(f32(n, 3, h, w), f32(3, 8, 3, 3), groups=3) / groups=2
    !! 2 groups do not divide the 3 input channels of the weight
nn.max_pool2d(f32(n, 3, h, w), pool_size=(1, 2)) / pool_size=(1, 2, 3)
    !! pool_size has 1 or 2 numbers
nn.max_pool2d(f32(n, 3, h, w), pool_size=1) / pool_size=0 !! pool_size is at least 1
nn.avg_pool2d(f32(1, 3, 7, 7), pool_size=8) / pool_size=9
    !! a window of 9 does not fit in axis H, which has size 7 and 0 of padding
nn.avg_pool2d(f32(1, 1, 5, 5, 1, 1), layout="NCWH1w1h") / layout="NCWH1w2h"
    !! dimension 5 of data (1, 1, 5, 5, 1, 1) is 1, blocks in NCWH1w2h have 2
nn.adaptive_avg_pool2d(f32(n, 3, h, w), output_size=(1, 2)) / output_size=(1, 2, 3)
    !! output_size has 1 or 2 numbers, found [1, 2, 3]
nn.adaptive_avg_pool2d(f32(n, 3, h, w), output_size=1) / output_size=0
    !! output_size is at least 1, found [0, 0]
grad.conv2d_backward_data(f32(1, 8, 3, 3), f32(8, 3, 3, 3), shape(1, 3, 5, 5), padding=0) /
    padding=1 !! output_grad has the shape of the result, whose axis H has size 5, found R.Tensor(
grad.avg_pool2d_backward(f32(1, 8, 3, 3), f32(1, 8, 5, 5), pool_size=3) / pool_size=2
    !! output_grad has the shape of the result, whose axis H has size 4, found R.Tensor(
grad.adaptive_avg_pool2d_backward(f32(1, 8, 3, 3), shape(1, 8, 5, 5), output_size=3) / output_size=2
    !! output_grad has the shape of the result, whose axis H has size 2
nn.conv2d(f32(1, 3, h, w), f32(8, 3, 3, 3)) / x0=f32(3, h, w)
    !! data has the axes NCHW, found R.Tensor((3, h, w), dtype="float32") of rank 3 !! add an axis
    by R.expand_dims
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3)) / x1=f32(8, 3)
    !! weight has the axes OIHW, found R.Tensor((8, 3), dtype="float32") of rank 2
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3)) / x1=f16(8, 3, 3, 3)
    !! data and weight have one datatype, found float32 and float16 !! write
    R.astype(data, "float16"), R.astype(weight, "float32"), or a constant as R.const(value, dtype)
nn.conv2d(on("cpu", f32(n, 3, h, w)), on("cpu", f32(8, 3, 3, 3))) / x1=on("gpu", f32(8, 3, 3, 3))
    !! the operands are on one device, found cpu and gpu
nn.conv2d(f32(n, 3, h, w), f32(8, 3, 3, 3)) / x1=shape(8, 3, 3, 3)
    !! weight is a tensor, found R.Shape
nn.max_pool2d(f32(1, 3, h, w)) / x0=f32(3, h, w)
    !! data has the axes NCHW, found R.Tensor((3, h, w), dtype="float32") of rank 3 !! add an axis
    by R.expand_dims
nn.avg_pool2d(i8(1, 3, h, w)) / x0=b(1, 3, h, w)
    !! data holds numbers, found R.Tensor((1, 3, h, w), dtype="bool") !! convert it first:
    R.astype(data, "float32")
grad.max_pool2d_selected(f32(1, 3, 4, 4), f32(1, 3, 4, 4)) / x1=f32(1, 3, 4, 5)
    !! values has the shape of data, found R.Tensor((1, 3, 4, 4)
grad.max_pool2d_backward(f32(1, 3, 4, 4), f32(1, 3, 4, 4)) / x1=f16(1, 3, 4, 4)
    !! output_grad and data have one datatype, found float32 and float16 !! write
    R.astype(output_grad, "float16")

# boxes
vision.all_class_non_max_suppression(f32(2, n), f32(2, 3, n), prim("int64"), prim("float32"), f32())
    !! boxes has rank 3, found R.Tensor((2, n)
vision.all_class_non_max_suppression(f32(2, n, 4), f32(3, n), prim("int64"), prim("float32"), f32())
    !! scores has rank 3, found R.Tensor((3, n)
vision.all_class_non_max_suppression(i64(2, n, 4), f32(2, 3, n), prim("int64"), prim("float32"),
    f32()) !! boxes holds floats, found R.Tensor((2, n, 4) !! convert it with R.astype first
vision.all_class_non_max_suppression(f32(2, n, 5), f32(2, 3, n), prim("int64"), prim("float32"),
    f32()) !! dimension 2 of boxes (2, n, 5) is 4, 4 coordinates of a box; found 5
vision.all_class_non_max_suppression(f32(1, n, 4), f32(2, 3, n), prim("int64"), prim("float32"),
    f32()) !! dimension 0 of boxes (1, n, 4) is 2, as scores (2, 3, n) has; found 1
vision.all_class_non_max_suppression(f32(2, 7, 4), f32(2, 3, 8), prim("int64"), prim("float32"),
    f32()) !! dimension 1 of boxes (2, 7, 4) is 8, as scores (2, 3, 8) has; found 7
vision.all_class_non_max_suppression(f32(2, n, 4), f32(2, 3, n), prim("float32"), prim("float32"),
    prim("float32")) !! max_output_boxes_per_class holds integers, found R.Prim
vision.all_class_non_max_suppression(f32(2, n, 4), f32(2, 3, n), prim("int64"), f32(2),
    prim("float32")) !! iou_threshold is one number, found R.Tensor((2,)

# shapes, datatypes and memory
broadcast_to(f32(2, 3), (3,)) !! x of rank 2 does not broadcast to
reshape(f32(2, 3), (4, 2)) !! x has 6 elements, R.Shape([4, 2]) has 8
reshape(f32(2, 3), (-1, 4)) !! x has 6 elements
expand_dims(f32(2, 3), 3) !! axis 3 is out of range for rank 3
expand_dims(f32(2, 3), [0, 0]) !! axis 0 occurs twice
nn.batch_flatten(f32(3)) !! data has rank 2 or more, found R.Tensor((3,)
squeeze(f32(1, 3), 1) !! axis 1 of x has size 3, not 1
squeeze(f32[2], 2) !! axis 2 is out of range for rank 2
permute_dims(f32(2, 3), [0]) !! axes [0] do not permute rank 2
permute_dims(f32(2, 3), [1, 1]) !! axes: 1 occurs twice in [1, 1]
reshape(f32.by(listed), (4, 2)) !! x has 6 elements, R.Shape([4, 2]) has 8
split(f32(4), 0) !! indices_or_sections is a number of sections above 0
split(f32(4), 2, 1) !! axis 1 is out of range for rank 1
take(f32(2, 3), 0) !! without an axis x has rank 1
take(f32[...], 0) !! without an axis x has rank 1
take(f32(2, 3), 0, 2) !! axis 2 is out of range for rank 2
take(f32(2, 3), void[...], 2) !! axis 2 is out of range
take(f32(2, 3), f32(2), 0) !! indices holds integers
    !! convert it with R.astype first
nn.softmax(f32(2, 3), 2) !! axis 2 is out of range for rank 2
nn.log_softmax(i8(2)) !! data holds floats !! convert it with R.astype first
nn.gelu(i8(2)) !! data holds floats !! convert it with R.astype first
nn.leakyrelu(i8(2)) !! data holds floats !! convert it with R.astype first
full_like(f32(2), f32(2)) !! fill_value has rank 0
full((2,), f32[...]) !! fill_value has rank 0
concat([f32(2), at(1)]) !! tensors holds tensors, found
memory.view(void(16), (17,)) !! a view of 17 elements
memory.view(void(n), (n + 1,)) !! ...of n + 1 elements
memory.view(f32(n), (n // 4 + 1, 4)) !! ...leaves the tensor
memory.view(f32[...], dtype="") !! a tensor in memory has a datatype, found none
memory.view(i8(16), dtype="float16") !! a view of 32 bytes
memory.view(void[...], relative_byte_offset=16) !! a view of the whole tensor
broadcast_to(f32(3), (4, 2)) !! dimension 0 of x (3,) is 3

# three tensors
ewise_fma(f32(2), f32(3), f32(2)) !! ...differ in dimension 0: 2 in number 1
ewise_fma(f32(2), f32(n), f32(2))
    !! ...cannot be proved !! declare one shape for them with R.match_cast first
ewise_fma(f32(2), f32(2, 2), f32(2)) !! ...one rank, found 1 and 2
ewise_fma(f32(2), i8(2), f32(2)) !! ...one datatype
where(f32(2), f32(2), f32(2)) !! condition holds Booleans, found
    !! compare it, as in R.not_equal(condition, R.const(0, ...))
where(void[...], f32(2), f32(2)) !! condition holds Booleans, found
where(b(4), f32(2), f32(2)) !! ...dimension 0 of condition (4,) is 4, dimension 0 of x1 (2,) is 2
where(b(4), f32(), f32(3)) !! condition and x2 do not broadcast
where(b[2], f32(3), f32(4)) !! x1 and x2 do not broadcast
where(b(3, 1), f32(n, 3), f32(3, 4)) !! x1 and x2 do not

# joining
concat([]) !! ...holds at least one tensor
concat((f32(2), f32(2, 2))) !! ...one rank, found 1 and 2
concat((f32(2), i8(2))) !! ...one datatype
concat((f32(2), f32(2)), 3) !! axis 3 is out of range
stack([]) !! ...holds at least one tensor
stack((f32(2), f32(2, 2))) !! ...one rank, found 1 and 2
stack((f32(2), i8(2))) !! ...one datatype
stack((f32(2), f32(2)), 3) !! axis 3 is out of range
concat((f32(2, 3), f32(4, 3)), 1) !! ...differ in dimension 0: 2 in
stack((f32[2], f32(2, 3), f32(2, 4)))
    !! ...differ in dimension 1: 3 in number 2 of shape (2, 3), 4 in
concat((f32(2, 3), f32[2]), None) !! without an axis, the tensors have rank 1, found rank 2
concat((f32(),), None) !! ...the tensors have rank 1, found rank 0
concat((f32(2), i32(2)), None) !! tensors

# take
take(i8(4), i64(2), 0, "nan") !! x holds floats !! convert it with R.astype first

# slices
strided_slice(f32(4, 4), [0], [1, 2], [3]) !! ...are as many, found 1 axes, 2 begin, 1 end
strided_slice(f32(4, 4), [2], [0], [1]) !! axes: 2 is out of range for rank 2
strided_slice(f32(4, 4), [0, -2], [0, 0], [1, 1]) !! axes: -2 occurs twice
strided_slice(f32(4, 4), [0], [0], [1], [0]) !! strides are other than 0
strided_slice(f32(4, 4), [0], [0.5], [1]) !! begin holds int64 scalars, found

# creation
arange(0, 5, 0) !! step is other than 0
arange(0, nan) !! start, end and step are finite, found
arange(0, inf) !! start, end and step are finite, found
arange(0, 10, 1e-300) !! step is other than 0 in its datatype
arange(0, 1e300, 1e-300, "float64") !! start, end and step give too many elements
zeros(f32(2), "int8") !! shape is a shape, found
zeros((2,), "") !! a tensor is created in a datatype

# layers
nn.layer_norm(f32(n, 4), f32(5), f32(4), axes=[-1])
    !! dimension 0 of gamma (5,) is 5, axis 1 of data (n, 4) is 4
nn.layer_norm(f32(n, 4), f32(4), f32(2, 2), axes=[-1]) !! beta has rank 1, as many as axes
nn.layer_norm(f32(n, 4), f32(4), f16(4), axes=[-1]) !! beta has the datatype of data
nn.rms_norm(i8(4), i8(4)) !! ...holds floats !! convert it with R.astype first
nn.layer_norm(f32(n, 4), f32(4), f32(4), axes=[2]) !! axes: 2 is out of range

# products
matmul(f32(), f32(3)) !! x1 has rank at least 1
matmul(f32(2, 3), f32(4, 5)) !! the last dimension of x1 is 3, but x2 is
matmul(f32(2, 1, 3), f32(4, 5, 1)) !! ...is 3
matmul(f32(2, 2, 3), f32(4, 3, 1)) !! the leading axes of x1 and those of x2
matmul(f32(2, 3), i8(3, 4)) !! ...have one datatype !! write R.astype(x1, "int8")

# angles
atan2(i32(2), f32(2)) !! ...holds floats, found !! convert it with R.astype first
atan2(f32(2), prim("int64")) !! ...holds floats, found !! convert it with R.astype first

# boxes that cannot be counted
vision.get_valid_counts(f32(2, 3)) !! data has rank 3, found R.Tensor((2, 3)
vision.get_valid_counts(i32(2, 3, 6)) !! data holds floats !! convert it with R.astype first
vision.get_valid_counts(f32(2, 3, 6), score_index=6)
    !! score_index is at least 0 and below the number of fields, found 6
vision.get_valid_counts(f32(2, 3, 6), score_index=-1) !! score_index is at least 0
vision.get_valid_counts(f32(2, 3, 6), id_index=-2) !! id_index is at least -1
vision.get_valid_counts(f32(2, 3, 6), id_index=7)
    !! id_index is at least -1 and below the number of fields, found 7

# boxes of which some remain
vision.non_max_suppression(f32(2, 3), i32(2), i32(2, 3)) !! data has rank 3, found R.Tensor((2, 3)
vision.non_max_suppression(f32(2, 3, 6), i64(2), i32(2, 3)) !! valid_count is int32, found
vision.non_max_suppression(f32(2, 3, 6), i32(2), i32(2, 4)) !! indices has the sizes of data
vision.non_max_suppression(f32(2, 3, 6), i32(2), i32(2, 3), coord_start=3)
    !! coord_start is at least 0 and that of a field, found 3
vision.non_max_suppression(f32(2, 3, 6), i32(2), i32(2, 3), id_index=-2) !! id_index is at least -1

# regions
vision.roi_align(f32(2, 3, 8), f32(2, 5), (2, 2), 1.0) !! data has rank 4, found R.Tensor((2, 3, 8)
vision.roi_align(f32(2, 3, 8, 8), f32(2, 4), (2, 2), 1.0) !! a region is five numbers
vision.roi_pool(f32(2, 3, 8, 8), f32(2, 5), (2, 0), 1.0) !! pooled_size is one number of at least 1
vision.roi_pool(f32(2, 3, 8, 8), i32(2, 5), (2, 2), 1.0) !! rois holds floats
    !! convert it with R.astype first

# boxes that are moved
vision.multibox_transform_loc(f32(2, 3), f32(2, 20), f32(1, 5, 4))
    !! cls_pred has rank 3, found R.Tensor((2, 3)
vision.multibox_transform_loc(f32(2, 3, 5), f32(2, 3, 5), f32(1, 5, 4))
    !! loc_pred has rank 2, found R.Tensor((2, 3, 5)
vision.multibox_transform_loc(f32(2, 3, 5), f32(2, 20), f32(5, 4))
    !! anchor has rank 3, found R.Tensor((5, 4)
vision.multibox_transform_loc(f32(2, 3, 5), f32(2, 20), i64(1, 5, 4))
    !! anchor holds floats !! convert it with R.astype first
vision.multibox_transform_loc(f32(2, 3, 5), f64(2, 20), f32(1, 5, 4))
    !! loc_pred has the datatype of cls_pred, float32
vision.multibox_transform_loc(f32(2, 3, 5), f32(2, 24), f32(1, 5, 4))
    !! loc_pred has the shape (2, 20) for cls_pred (2, 3, 5), found (2, 24)
vision.multibox_transform_loc(f32(2, 3, 5), f32(2, 20), f32(1, 4, 5))
    !! anchor has the shape (1, 5, 4) for cls_pred (2, 3, 5), found (1, 4, 5)
vision.multibox_transform_loc(f32(2, 3, 5), f32(2, 20), f32(1, 5, 4), variances=(1.0, 2.0))
    !! variances are four numbers, found [1.0, 2.0]

# collective operators
ccl.allgather(f32(4, n), 0) !! num_workers is at least 1, found 0
ccl.allgather(f32(), 2) !! x has rank at least 1, found R.Tensor(() !! reshape it to (1,)
ccl.scatter_from_worker0(f32(4, n), 3)
    !! dimension 0 of x (4, n) is 4, which is not a multiple of 3 workers
ccl.scatter_from_worker0(f32(4, n), 2, axis=2) !! axis 2 is out of range for rank 2
ccl.reduce_scatter(f32(4, n), 3) !! ...which is not a multiple of 3 workers
ccl.reduce_scatter(f32(), 2) !! x has rank at least 1, found R.Tensor(() !! reshape it to (1,)
ccl.gather_to_worker0(f32(4, n), 0) !! num_workers is at least 1, found 0
ccl.gather_to_worker0(f32(4, n), 2, 2) !! axis 2 is out of range for rank 2
ccl.scatter_from_worker0(f32(4, n), -1) !! num_workers is at least 1, found -1
dynamic_strided_slice(f32(2, 3), i32(2), i64(2), i64(2)) !! begin holds int64, found R.Tensor
    !! convert it: R.astype(x, "int64")
dynamic_strided_slice(f32(2, 3), i64(2), i64[2], i64(2)) !! end is a vector, found R.Tensor
dynamic_strided_slice(f32(2, 3), i64(2), i64(2), i64(3))
    !! strides has one element for each axis of x R.Tensor((2, 3), dtype="float32"), found
layout_transform(f32(2), blocks) !! index_map takes 2 indices, x is R.Tensor((2,)
layout_transform(f32(2, 9), blocks, FloatImm("float16", 1.0))
    !! pad_value has the datatype of x R.Tensor((2, 9), dtype="float32"), found float16
layout_transform(i8(2, 9), blocks, 0.5)
    !! pad_value is an integer for x R.Tensor((2, 9), dtype="int8"), found 0.5
layout_transform(f32(4), lambda i: i // 2)
    !! IndexMap(lambda i: (i // T.int64(2))) loses elements of x R.Tensor((4,)
    !! for another inverse pass a T.index_map with inverse_index_map
layout_transform(f32(2, 9), blocks, axis_separators=[4])
    !! axis_separators are ascending positions of 3 axes at most, found [4]
layout_transform(f32(2, 9), blocks, input_axis_separators=[2, 1])
    !! input_axis_separators are ascending positions of 2 axes at most, found [2, 1]
add(f32.by(by(n, 3)), f32.by(by(n, 4))) !! x1 and x2 do not broadcast
nn.batch_norm(f32(2, n, 4, 5), f32(n + 1), f32(n), f32(n), f32(n), axis=1) !! ...has n channels
nn.nll_loss(f32(3, 5), f32(3), reduction="none") !! targets holds integers
    !! convert it with R.astype first
nn.max_pool2d(f32(n, 2, 8, 8, 4), layout="NCHW16c", out_layout="NHWC")
    !! ...blocks in NCHW16c have 16
"""
