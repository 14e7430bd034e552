"""Statements that move elements of random graph programs, or leave them where they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.fuzz.graph_body import Body, sinfo_text


def move(b: Body) -> None:
    """Elements in other places."""
    x = b.pick()
    if x is None:
        return
    rank = len(x.shape)
    match b.rng.choice(("permute", "expand", "flatten", "concat", "stack", "slice", "split")):
        case "permute" if rank:
            axes = b.rng.sample(range(rank), rank)
            shape = tuple(x.shape[a] for a in axes)
            twin_ = f"t.place(lambda v: v.transpose({axes}), {x.name})"
            b.bind(x, f"R.permute_dims({x.name}, {axes})", twin_, shape=shape)
        case "expand" if rank < 4:
            axis = b.rng.randrange(rank + 1)
            shape = (*x.shape[:axis], 1, *x.shape[axis:])
            twin_ = f"t.place(lambda v: np.expand_dims(v, {axis}), {x.name})"
            b.bind(x, f"R.expand_dims({x.name}, {axis})", twin_, shape=shape)
        case "flatten" if rank:
            sizes = " * ".join(map(str, x.shape))
            if all(isinstance(s, int) for s in x.shape):
                sizes = str(np.prod(x.shape, dtype=int))
            shape = (int(sizes) if sizes.isdigit() else f"({sizes})" if rank > 1 else sizes,)
            twin_ = f"t.place(lambda v: v.reshape(-1), {x.name})"
            b.bind(
                x,
                b.rng.choice((f"R.flatten({x.name})", f"R.reshape({x.name}, (-1,))"))
                if 0 not in x.shape
                else f"R.flatten({x.name})",
                twin_,
                shape=shape,
            )
        case "concat" if rank and len(str(x.shape)) < 40:
            axis = b.rng.randrange(rank)
            others = (*x.shape[:axis], *x.shape[axis + 1 :])
            y = b.pick(
                lambda t: (
                    (t.dtype, len(t.shape)) == (x.dtype, rank)
                    and (*t.shape[:axis], *t.shape[axis + 1 :]) == others
                )
            )
            assert y is not None
            first, second = x.shape[axis], y.shape[axis]
            axis -= b.rng.choice((0, rank))
            both_known = isinstance(first, int) and isinstance(second, int)
            size = first + second if both_known else f"({first} + {second})"  # type: ignore[operator]
            quarters = None if None in (x.quarters, y.quarters) else max(x.quarters, y.quarters)  # type: ignore[type-var]
            twin_ = f"t.place(lambda v, w: np.concatenate((v, w), {axis}), {x.name}, {y.name})"
            shape = list(x.shape)
            shape[axis] = size
            b.bind(
                x,
                f"R.concat(({x.name}, {y.name}), {axis})",
                twin_,
                shape=tuple(shape),
                reach=max(x.reach, y.reach),
                quarters=quarters,
            )
        case "stack" if rank < 4:
            axis = b.rng.randrange(rank + 1)
            shape = (*x.shape[:axis], 2, *x.shape[axis:])
            twin_ = f"t.place(lambda v: np.stack((v, v), {axis}), {x.name})"
            b.bind(x, f"R.stack([{x.name}, {x.name}], {axis})", twin_, shape=shape)
        case "slice" if rank and isinstance(x.shape[0], int) and x.shape[0]:
            first, last, step = b.rng.choice(((0, 1, 1), (0, x.shape[0], 2), (-1, -9, -1)))
            size = len(range(x.shape[0])[first:last:step])
            twin_ = f"t.place(lambda v: v[{first}:{last}:{step}], {x.name})"
            b.bind(
                x,
                f"R.strided_slice({x.name}, [0], [{first}], [{last}], [{step}])",
                twin_,
                shape=(size, *x.shape[1:]),
            )
        case "slice" if rank and isinstance(x.shape[0], str) and len(x.shape[0]) < 40:
            size = x.shape[0]  # the first or last of the elements of a symbolic axis, in two ways
            first, last = b.rng.choice((("0", size), (size, f"{size} + {size}")))
            name = b.source.fresh("c")
            twin_ = f"t.place(lambda v: np.concatenate((v, v)), {x.name})"
            b.line(f"{name} = R.concat(({x.name}, {x.name}))", f"{name} = {twin_}")
            cut = f"[0], [{first}], [{last}], assume_inbound={b.rng.random() < 0.5}"
            vague = b.bind(x, f"R.strided_slice({name}, {cut})", x.name)
            sinfo = sinfo_text(x.dtype, x.shape)
            b.tensors.remove(vague)
            b.bind(x, f"R.match_cast({vague.name}, {sinfo})", x.name)
        case "split" if (
            rank and isinstance(x.shape[-1], int) and x.shape[-1] % 2 == 0 and x.shape[-1]
        ):
            name, half = b.source.fresh("s"), x.shape[-1] // 2
            b.line(
                f"{name} = R.split({x.name}, 2, -1)",
                f"{name} = [t.place(lambda v: np.split(v, 2, -1)[0], {x.name}),"
                f" t.place(lambda v: np.split(v, 2, -1)[1], {x.name})]",
            )
            shape = (*x.shape[:-1], half)
            b.tuples.append((name, (replace(x, shape=shape), replace(x, shape=shape))))


def unchanged(b: Body) -> None:
    """A call whose result is its operand, or equal to it."""
    x = b.pick()
    if x is None:
        return
    rank, sizes = len(x.shape), ", ".join(map(str, x.shape))
    axis = b.rng.randrange(-rank, rank) if rank else 0
    calls = [f'R.astype({x.name}, "{x.dtype}")', f'R.wrap_param({x.name}, "{x.dtype}")']
    calls += [f"R.permute_dims({x.name}, {list(range(rank))})", f"R.tile({x.name}, {[1] * rank})"]
    calls.append(f"R.broadcast_to({x.name}, R.shape([{sizes}]))")
    if rank:
        calls += [f"R.repeat({x.name}, 1, {axis})", f"R.concat(({x.name},), {axis})"]
        calls.append(f"R.roll({x.name}, 0, {axis})")
        end = f"[{x.shape[0]}], assume_inbound=True"
        calls.append(f"R.strided_slice({x.name}, [0], [0], {end})")
    b.bind(x, b.rng.choice(calls), x.name)
