"""Lines of random `forward` functions: views, changes in place, new tensors, layers of images.

`x`, `y` and `z` stand for values, `F` for a floating one, `C` for a complex one, `I` for one of
integers, `B` for one of Booleans, `E` for one whose elements are exact, `N` for one that may
change; `a` and `b` for axes of the first value, `i` for an index, `k` for a small integer, `c` for
a number of Python, `d` for a datatype. What jumps at some elements (`floor`, comparisons, `argmax`)
is written with `E`.

In lines of layers, `X` stands for images of four channels, `{2|3}` for one of these texts, `{size}`
for an expression of the sizes of `X`, and `{number}` for one or a small integer.
"""

import random
import re
from collections.abc import Callable


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in re.split(r"\s{2,}|\n", text) if line)


VIEWS = _lines("""
x.transpose(a, b)  x.movedim(a, b)  x.mT  x.unsqueeze(a)  x.unsqueeze(-1)  x.squeeze()
x.squeeze(a)  x.select(a, i)  x.narrow(a, 0, 1)  x[..., ::2]  x[1:]  x[:, None]  x[-1]
x[..., -1:]  x[i]  x[..., None, :]  x.flatten()  x.reshape(-1)  x.view(-1)  x.view(x.shape)
x.reshape(*x.shape, 1)  x.unflatten(-1, (1, -1))  x.expand(2, *x.shape)  x.diagonal()
x[..., None].expand(*x.shape, k)  x.diagonal(k, a, b)  x.unfold(a, 1, 1)  x.unfold(a, 2, 1)
x.chunk(2, a)[0]  x.chunk(2, a)[-1]  x.unbind(a)[0]  x.split(1, a)[-1]  x.detach()
x.permute(*reversed(range(x.ndim)))  x.contiguous()  x.view_as(x)
x.contiguous().as_strided((2, 2), (2, 1))
x.tensor_split(2, a)[1]  x.swapaxes(a, b)  x[:, 0]  x[..., 1:-1]  x.reshape(x.shape[0], -1)
nn.dropout(F, 0.5, False)  nn.feature_alpha_dropout(F)  torch.einsum('...ij->...ji', x)
torch.atleast_2d(x)  torch.ravel(x)  x.expand_as(x)
torch.broadcast_to(x, (k, *x.shape))  x.to(x.dtype)  x.view(*x.shape, 1)  x.view(torch.int32)
""")
CHANGES = _lines("""
N.add_(c)  N.mul_(k)  N.sub_(x)  N.mul_(x)  N.copy_(x)  N.zero_()  N.fill_(c)  N.neg_()
N.clamp_(-1, 1)  N.relu_()  N.masked_fill_(E > 0, c)  N[i] = c  N[:] = x  N[..., ::2] = c
N[1:] += 1  N[B] = c  N[..., -1] = c  N[torch.tensor([0, -1])] = c  N.transpose(a, b).add_(1)
N.t_()  N.unsqueeze_(a)  N.squeeze_()  N.view(-1)[0] = c  N.flatten()[0] = c
N.diagonal().fill_(c)  N.select(a, i).mul_(2)  N.add_(N)  N.mul_(N.mT)  N.transpose_(a, b)
N.copy_(N.flip(a))  N[:-1].copy_(N[1:])  N.index_fill_(a, torch.tensor([0]), c)  N.abs_()
N.index_add_(a, torch.tensor([0, 0]), N.index_select(a, torch.tensor([0, 0])))  N.tril_()
N.swapaxes(a, b).zero_()  N.cumsum_(a)  N.index_put_((torch.tensor(0),), N[0] + 1)
N.logical_not_()  N.add_(x, alpha=2)  N.unbind(a)[0].add_(1)  N += x  N *= c  N -= c
N[..., 0] = x  N.narrow(a, 0, 1).copy_(x)  N.scatter_(a, torch.zeros_like(N).long(), c)
N.unfold(a, 1, k).add_(1)  N.unfold(a, 2, 1)[..., 0].mul_(2)  N.expand(2, *N.shape)[1].neg_()
N.contiguous().as_strided((2, 2), (1, 2)).mul_(2)  N.movedim(a, b)[0].zero_()
N.masked_scatter_(B, N.clone())  N[torch.tensor(0)] += 1  N.set_(N.clone())  N.sqrt_()
""")
NEW = _lines("""
x + y  x - y  x * y  x + c  c - x  x * c  x / c  F / 2  torch.maximum(x, y)  x ** 2  -x
torch.where(B, x, y)  torch.where(B, x, c)  E > c  E == z  E // 2  E % 3  E > z  x.abs()
(2 ** F.clamp(-2, 2)).contiguous()  x.float()  x.to(d)  x.double()
(E * {9|999}).to(torch.float8_{e4m3fn|e5m2|e4m3fnuz|e5m2fnuz}).float()
F.sigmoid()  F.tanh()  F.sin()
torch.relu(x)  nn.gelu(F)  nn.silu(F)  F.clamp(-1, 1).exp()  F.abs().sqrt()  F.abs().log1p()
E.floor()  E.round()  E.sign()  E.trunc()  E.logical_not()  I.bitwise_and(3)  I << 1  ~I
I ^ I  B & B  B | B  ~B  x.clamp(min=c)  x.sum()  x.sum(a)  x.sum(a, True)  F.mean()
x.mean(a, dtype=torch.float32)  x.amax(a)  x.amin()  F.var(a)  F.std()  E.any()  E.all(a)
x.prod(a)  E.argmax(a)  E.argmin()  E.max(a)[0]  x.cumsum(a)  E.sort(a)[0]  E.topk(1, a)[0]
F.softmax(a)  F.log_softmax(-1)  F.logsumexp(a)  torch.cat([x, x], a)  torch.stack([x, x], a)
torch.cat([x, y])  x.flip(a)  x.roll(1, a)  x.repeat(2, *[1] * x.ndim)  x.tile(2)  I.sqrt()
x.repeat_interleave(2, a)  x.index_select(a, torch.tensor([0]))  x[torch.tensor([0, -1])]
x.gather(a, torch.zeros_like(x).long())  x.take(torch.tensor([0]))  x.tril()  x.triu(k)
x @ x.mT  x @ y.mT  F @ F.mT  torch.outer(x.flatten(), x.flatten())  x.clone()  x.new_zeros(x.shape)
torch.einsum('...i,...j->...ij', F, F)  torch.zeros_like(x)  torch.full_like(x, c)
torch.ones_like(F) * c  torch.arange(x.shape[a])  torch.full((2, x.shape[0]), c)
torch.tensor(c)  torch.zeros(3, k)  nn.layer_norm(F, F.shape[-1:])  nn.pad(x, (1, 1))
nn.pad(x, (0, 1), value=c)  nn.one_hot(I.clamp(0, 2).long(), 3)  nn.normalize(F, dim=a)
x.masked_fill(B, c)  x.nan_to_num()  x.scatter(a, torch.zeros_like(x).long(), x)
x.scatter_add(a, torch.zeros_like(x).long(), x)  x.select_scatter(x.select(a, i), a, i)
x.slice_scatter(x[1:], 0, 1)  x.to(torch.bool)  x.type_as(y)  torch.lerp(F, F, 0.5)
torch.addcmul(F, F, F)  x.diff(dim=a)  x.mT.contiguous()  x.diag_embed()  E.isnan()
nn.avg_pool1d(F, 2)  nn.interpolate(F, scale_factor=2)  x.numel() * x  x.shape[0] * F
x.ndim + x  F.rsqrt().nan_to_num(0, 0, 0)  x.count_nonzero()  E.eq(c)  E.ne(0)  E.fmod(3)
torch.remainder(E, 2)  torch.atan2(F, F)  nn.softplus(F)  torch.floor_divide(E, 2)  x.mT.clone()
torch.meshgrid(x.flatten(), x.flatten(), indexing='ij')[1]  x[B]  E.nonzero()  E.unique()
""")
#: PyTorch fills one column with its first element if it filters (`antialias`): there are two.
COMPLEX = _lines("""
torch.complex(F, F)  torch.complex(F, -F.abs())  F * 1j  F + 2j  C * C  C + C  C - 1j  C * F
C.conj()  C.real  C.imag  C.conj().imag  torch.view_as_real(C)  C.abs()  C @ C.mT  C.sum(a)
torch.view_as_complex(F.unflatten(-1, (-1, 2)))  torch.view_as_complex(torch.stack([F, F], -1))
C.square()  C.flip(a)  torch.cat([C, C], a)  (F * 1j).exp()  C.mean()  C.resolve_conj()  C.mH
F.view(torch.complex64)  C.view(torch.float32)  C.resolve_neg()  torch.polar(F, F)
""")
#: Changes of complex numbers, and of the real ones that are their parts.
COMPLEX_CHANGES = _lines("""
C.mul_(1j)  C.real.mul_(2)  C.imag.fill_(c)  torch.view_as_real(C).add_(1)  C.conj().add_(1j)
C.copy_(x)  C[:1] = 1j  C.add_(C)
""")
BITS = _lines("""
E.view(torch.uint8)  E.view(torch.int16)  E.view(torch.int32)  E.view(torch.int64)
E.contiguous().view(torch.int8)  I.view(torch.uint8)  I.view(torch.int64)[..., :1]
""")
BIT_CHANGES = _lines("""
E.view(torch.int16).zero_()  E.view(torch.uint8)[..., 1:].zero_()  E.view(torch.int32).neg_()
""")
BREAKS = ("torch._dynamo.graph_break()",)
LAYERS = _lines("""
nn.conv2d(X, b{0|1|2}, None, {1|2|(1, 2)|(2, 1)}, {0|1|(1, 0)|(0, 2)}, {1|1|2})
nn.conv2d(X, b3, groups=4, padding={0|1}, stride={1|2})
nn.conv2d(X, b{1|2}, padding='same', dilation={1|2})
nn.conv_transpose2d(X, b{1|2}, None, {1|2|(2, 3)}, {0|1})
nn.conv_transpose2d(X, b2, None, 3, 1, ({0|1|2}, {0|1|2}))
nn.{max|avg}_pool2d(X, {2|3|(3, 2)|(1, 3)}, {None|1|2|(2, 1)}, {0|0|1}, ceil_mode={True|False})
nn.max_pool2d(X, 2, 2, dilation=2, ceil_mode={True|False})
nn.avg_pool2d(X, {2|3}, 2, 1, {True|False}, {True|False}, {None|None|5})
nn.adaptive_avg_pool2d(X, ({number}, {number}))  nn.adaptive_max_pool2d(X, ({1|2|3}, {1|2|3}))
nn.interpolate(X, ({number}, {number}), mode='nearest{|-exact}')
nn.interpolate(X, ({number}, {number} + 1), None, 'bi{linear|cubic}', \
{True|False}, None, {True|False})
nn.interpolate(X, None, {2|0.5|1.5|(2.0, 0.7)}, '{nearest|bilinear|bicubic|area}')
nn.interpolate(X, None, {2.0|0.5|1.3}, 'bilinear', {True|False}, {True|False})
nn.pad(X, ({0|1|X.shape[3] // 2}, {0|1|2}, {0|1|-1}, 1), '{constant|reflect|replicate|circular}')
nn.pad(X, ({size}, 0, 0, {size}), value=1.5)  nn.group_norm(X, {1|2|4}, b4, b4)
nn.instance_norm(X)  nn.batch_norm(X, b4, b4.abs() + 1, b4, b4)  nn.layer_norm(X, X.shape[-2:])
nn.rms_norm(X, X.shape[-1:])  nn.local_response_norm(X, {2|3})
X.roll(({size}, {1|-1|{size}}), (2, 3))
X[:, :, {size} // 3:]  X[..., :-({size} // 4 + 1)]  X[:, :, ::{2|3}, -1:]
torch.cat([X, X[:, :, :{number} // 2]], 2)
torch.cat([X, X.new_zeros(X.shape[0], 4, X.shape[2], {number})], 3)
nn.scaled_dot_product_attention(X, X, X, is_causal={True|False}, scale={None|0.3})
nn.scaled_dot_product_attention(X, X, X, torch.ones_like(X @ X.mT).tril({0|1|-1}){|.bool()})
X.softmax({1|2|3})  X.{cumsum|logcumsumexp}({1|2|3})  X.sort({2|3})[0]  X.topk(1, {2|3})[0]
X.topk(X.shape[3] // 2 + 1, 3)[0]  X.unfold({2|3}, {1|2}, {1|2}).sum(-1)
nn.unfold(X, {1|2}, {1|2}, {0|1}, {1|2})[:, :4, :, None]  nn.channel_shuffle(X, {2|4})
nn.pixel_shuffle(X, 2).repeat(1, 4, 1, 1)
nn.grid_sample(X, X.new_ones(X.shape[0], {number}, {number}, 2).cumsum(1).sub(2).div(4), \
'{bilinear|nearest}', '{zeros|border|reflection}', {True|False})
nn.grid_sample(X, nn.affine_grid(X.new_tensor([[[0.5, 0, 0.1], [0.1, 1, 0]]]).expand( \
X.shape[0], -1, -1), (X.shape[0], 4, {number}, {number}), {True|False}), align_corners=False)
X.flatten(2).mT.reshape(X.shape[0], -1, 4).mT[..., None]  X.mT.contiguous()  X.mT @ X
torch.einsum('bchw,bcwk->bchk', X, X.mT)  X.reshape(X.shape[0], 4, -1, 1)
X.view(X.shape[0], 4, 1, X.shape[2] * X.shape[3])  X.repeat(1, 1, X.shape[3], 1)[:, :, :7]
X + torch.arange(X.shape[3]) / X.shape[2]  X * torch.linspace(0, 1, X.shape[3])
torch.where(torch.arange(X.shape[2])[:, None] < {size} // 2, X, -1.0)
X.mean({2|3|(2, 3)}, True)  X - X.{amax|amin}(({2|3},), True)  X.var({2|3}, {True|False}, True)
torch.stack(X.tensor_split(2, 1), 1).sum(2).repeat(1, 2, 1, 1)
torch.cat(X.chunk({2|4}, 1)[::-1], 1)
X.index_select({2|3}, torch.zeros({number}).long())  nn.lp_pool2d(X.abs() + 0.1, {1|2}, {1|2})
torch.tensordot(X, b0[:, :, 0, 0], ([1], [1])).movedim(-1, 1)
nn.one_hot((E[:, 0] > 0).long(), 4).movedim(-1, 1).to(X.dtype)
nn.embedding((E > 0).long().sum(1)[:, :, :1].squeeze(-1) % 4, b0[:, :, 0, 0]).mT[..., None]
X.masked_fill(E > {0|0.5}, {-1|2})  X.diagonal(0, 2, 3)[..., None]  X.triu({0|1|-1})
torch.bmm(X[:, 0], X[:, 1].mT)[:, None].expand(-1, 4, -1, -1)
X.flip({2|3|(2, 3)}).diff(dim={2|3})
X.movedim(1, -1).reshape(-1, 4).matmul(b0[:, :, 0, 0].T).view(X.shape[0], X.shape[2], \
X.shape[3], 4).movedim(-1, 1)
X.split([1, X.shape[3] - 1], 3)[0]  X.narrow(3, 0, (X.shape[3] + 1) // 2)
nn.cosine_similarity(X, X.flip(3), dim=1)[:, None].expand(-1, 4, -1, -1)
nn.normalize(X, dim={1|2|3})
torch.cdist(X, X, compute_mode='donot_use_mm_for_euclid_dist')
""")
_SIZES = (
    "X.shape[0]|X.shape[2]|X.shape[3]|X.shape[2] // 2|X.shape[3] // 2 + 1|X.shape[3] + 1"
    "|X.shape[2] * 2|X.shape[2] + X.shape[3]|(X.shape[2] + 1) // 2"
)
_NAMED = {"size": _SIZES, "number": f"1|2|3|{_SIZES}"}
#: Operators whose result is rounded.
ROUNDED = re.compile(
    r"sqrt|exp|log|sig|tanh|sin|softmax|mean|var|std|norm|lu\(F|lerp|/ |avg|atan2|polar"
    r"|polate|sample|attention|cdist|lp_pool|linspace|cosine"
)
_LETTER = re.compile(r"(?<![\w.'])[XxyzFEIBCNabikcd](?![\w'(])")


def expanded(template: str, rng: random.Random) -> str:
    """The template with one of the texts of each pair of braces."""
    while "{" in template:
        template = re.sub(
            r"\{([^{}]*)\}", lambda found: _one_of(_NAMED.get(found[1], found[1]), rng), template
        )
    return template


def _one_of(texts: str, rng: random.Random) -> str:
    return rng.choice(texts.split("|"))


def filled(template: str, choose: Callable[[str], str]) -> str:
    """The template with what is chosen for each of its letters."""
    chosen: dict[str, str] = {}

    def one(match: re.Match[str]) -> str:
        letter = match[0]
        if letter not in chosen:
            chosen[letter] = choose(letter)
        return chosen[letter]

    return _LETTER.sub(one, template)
