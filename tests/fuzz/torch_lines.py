"""Lines of random `forward` functions: views, changes in place, and operators of new tensors.

`x`, `y` and `z` stand for values, `F` for a floating one, `I` for one of integers, `B` for one of
Booleans, `E` for one whose elements are exact, `N` for one that may change; `a` and `b` for axes of
the first value, `i` for an index, `k` for a small integer, `c` for a number of Python, `d` for a
datatype. What jumps at some elements (`floor`, comparisons, `argmax`) is written with `E`.
"""

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
N.masked_scatter_(B, N.clone())  N[torch.tensor(0)] += 1  N.set_(N.clone())  N.sqrt_()
""")
NEW = _lines("""
x + y  x - y  x * y  x + c  c - x  x * c  x / c  F / 2  torch.maximum(x, y)  x ** 2  -x
torch.where(B, x, y)  torch.where(B, x, c)  E > c  E == z  E // 2  E % 3  E > z  x.abs()
2 ** F.clamp(-2, 2)  x.float()  x.to(d)  x.double()  F.sigmoid()  F.tanh()  F.sin()
torch.relu(x)  nn.gelu(F)  nn.silu(F)  F.clamp(-1, 1).exp()  F.abs().sqrt()  F.abs().log1p()
E.floor()  E.round()  E.sign()  E.trunc()  E.logical_not()  I.bitwise_and(3)  I << 1  ~I
I ^ I  B & B  B | B  ~B  x.clamp(min=c)  x.sum()  x.sum(a)  x.sum(a, True)  F.mean()
x.mean(a, dtype=torch.float32)  x.amax(a)  x.amin()  F.var(a)  F.std()  E.any()  E.all(a)
x.prod(a)  E.argmax(a)  E.argmin()  E.max(a)[0]  x.cumsum(a)  E.sort(a)[0]  E.topk(1, a)[0]
F.softmax(a)  F.log_softmax(-1)  F.logsumexp(a)  torch.cat([x, x], a)  torch.stack([x, x], a)
torch.cat([x, y])  x.flip(a)  x.roll(1, a)  x.repeat(2, *[1] * x.ndim)  x.tile(2)  I.sqrt()
x.repeat_interleave(2, a)  x.index_select(a, torch.tensor([0]))  x[torch.tensor([0, -1])]
x.gather(a, torch.zeros_like(x).long())  x.take(torch.tensor([0]))  x.tril()  x.triu(k)
x @ x.mT  F @ F.mT  torch.outer(x.flatten(), x.flatten())  x.clone()  x.new_zeros(x.shape)
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
#: Operators whose result is rounded.
ROUNDED = re.compile(r"sqrt|exp|log|sig|tanh|sin|softmax|mean|var|std|norm|lu\(F|lerp|/ |avg|atan2")
_LETTER = re.compile(r"(?<![\w.'])[xyzFEIBNabikcd](?![\w'(])")


def filled(template: str, choose: Callable[[str], str]) -> str:
    """The template with what is chosen for each of its letters."""
    chosen: dict[str, str] = {}

    def one(match: re.Match[str]) -> str:
        letter = match[0]
        if letter not in chosen:
            chosen[letter] = choose(letter)
        return chosen[letter]

    return _LETTER.sub(one, template)
