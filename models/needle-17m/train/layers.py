"""The parts of a block outside attention: linear layers, norms, hyper-connections, experts.

Parameters are FP32 masters named as in the checkpoint. What takes part in a forward pass is what the
checkpoint will hold: FP8 or FP4 grid values where it stores those, BF16 values everywhere else.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from numerics import (Mode, fp4_vectors, fp8_activations, fp8_block_grid, product, rms_norm,
                      straight_through)


def matrix(*shape: int, gain: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * gain * shape[-1]**-0.5)


def stored(parameter: torch.Tensor) -> torch.Tensor:
    """FP32 of the BF16 value. TF32 holds it exactly, so tensor cores multiply it exactly."""
    return parameter.bfloat16().float()


class Weight(nn.Module):
    """A matrix that is stored in BF16."""

    def __init__(self, rows: int, columns: int, gain: float = 1.0):
        super().__init__()
        self.weight = matrix(rows, columns, gain=gain)


class Linear8(nn.Module):
    """A matrix that is stored in FP8, for FP8 activations."""

    def __init__(self, rows: int, columns: int, gain: float = 1.0):
        super().__init__()
        self.weight = matrix(rows, columns, gain=gain)

    def value(self, mode: Mode) -> torch.Tensor:
        grid = straight_through(fp8_block_grid, self.weight) if mode.quantized else self.weight
        return grid.bfloat16()

    def forward(self, x: torch.Tensor, mode: Mode) -> torch.Tensor:
        if mode.quantized:
            x = straight_through(fp8_activations, x)
        return product(x, self.value(mode))


class Norm(nn.Module):
    def __init__(self, channels: int, eps: float):
        super().__init__()
        self.weight, self._eps = nn.Parameter(torch.ones(channels)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, stored(self.weight), self._eps)


class StreamMix(nn.Module):
    """Manifold-constrained hyper-connection round a sub-block (spec 4.1)."""

    def __init__(self, config):
        super().__init__()
        n = self._streams = config.hc_mult
        self._iterations, self._eps = config.hc_sinkhorn_iters, config.hc_eps
        self._norm_eps = config.rms_norm_eps
        self.fn = matrix(n * (2 + n), n * config.hidden_size)
        self.scale = nn.Parameter(torch.full((3,), 0.1))
        # Starts as a plain residual: the mean of the streams goes in, the output is added to each.
        self.base = nn.Parameter(torch.cat((torch.full((n,), -1.1), torch.zeros(n),
                                            4 * torch.eye(n).flatten())))

    def enter(self, streams: torch.Tensor):
        """Streams [..., n, D] -> input of the sub-block [..., D], and what `leave` needs."""
        n = self._streams
        flat = streams.flatten(-2).float()
        mix = stream_scores(flat, self.fn, self._norm_eps)
        scale, base = stored(self.scale), stored(self.base)
        pre = torch.sigmoid(mix[..., :n] * scale[0] + base[:n]) + self._eps
        post = 2 * torch.sigmoid(mix[..., n:2 * n] * scale[1] + base[n:2 * n])
        return collapse(streams, pre), (streams, post, self._sinkhorn(mix[..., 2 * n:] * scale[2] + base[2 * n:]))

    def leave(self, output: torch.Tensor, entered) -> torch.Tensor:
        streams, post, across = entered
        mixed = torch.matmul(across.mT, streams.float())
        return (post[..., None] * output.float()[..., None, :] + mixed).bfloat16()

    def _sinkhorn(self, scores: torch.Tensor) -> torch.Tensor:
        """Scores [..., n n] -> matrices [..., n, n] whose rows and columns sum to 1."""
        n = self._streams
        # Positions last: the sums of n numbers then run side by side.
        c = scores.movedim(-1, 0).contiguous().unflatten(0, (n, n))
        c = c.softmax(1) + self._eps
        c = c / (c.sum(0, keepdim=True) + self._eps)
        for _ in range(self._iterations - 1):
            c = c / (c.sum(1, keepdim=True) + self._eps)
            c = c / (c.sum(0, keepdim=True) + self._eps)
        return c.flatten(0, 1).movedim(0, -1).unflatten(-1, (n, n))


def stream_scores(flat: torch.Tensor, fn: torch.Tensor, eps: float) -> torch.Tensor:
    return F.linear(flat, stored(fn)) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)


def collapse(streams: torch.Tensor, pre: torch.Tensor) -> torch.Tensor:
    return (pre[..., None] * streams.float()).sum(-2).bfloat16()


class Gate(nn.Module):
    def __init__(self, config, by_hash: bool):
        super().__init__()
        self._config = config
        experts, chosen = config.n_routed_experts, config.num_experts_per_tok
        self.weight = matrix(experts, config.hidden_size)
        if by_hash:
            pairs = torch.rand(config.vocab_size, experts).topk(chosen).indices
            self.register_buffer("tid2eid", pairs)
        else:
            self.register_buffer("bias", torch.zeros(experts))
            self.register_buffer("load", torch.zeros(experts), persistent=False)

    def forward(self, h: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Weight of every expert [rows, experts], 0 where it is not chosen."""
        scores = F.softplus(F.linear(h.float(), stored(self.weight))).sqrt()
        if hasattr(self, "tid2eid"):
            chosen = self.tid2eid[ids]
        else:
            chosen = (scores + self.bias).topk(self._config.num_experts_per_tok).indices
        mask = torch.zeros_like(scores).scatter_(-1, chosen, 1.0)
        if self.training and hasattr(self, "load"):
            self.load.copy_(mask.sum(0))
        kept = scores * mask
        return kept / kept.sum(-1, keepdim=True) * self._config.routed_scaling_factor

    @torch.no_grad()
    def balance(self, rate: float) -> None:
        """Makes experts that the last batch chose too rarely likelier, and the others rarer."""
        if hasattr(self, "load"):
            self.bias += rate * torch.sign(self.load.mean() - self.load)


def gated(a: torch.Tensor, b: torch.Tensor, limit: float) -> torch.Tensor:
    return F.silu(a.float().clamp(max=limit)) * b.float().clamp(-limit, limit)


class SharedExpert(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner, hidden = config.moe_intermediate_size, config.hidden_size
        self._limit = config.swiglu_limit
        self.w1, self.w3, self.w2 = Linear8(inner, hidden), Linear8(inner, hidden), Linear8(hidden, inner)

    def forward(self, h: torch.Tensor, mode: Mode) -> torch.Tensor:
        return self.w2(gated(self.w1(h, mode), self.w3(h, mode), self._limit).bfloat16(), mode)


class Experts(nn.Module):
    """All routed experts. Every one sees every token: at this size that costs less than sorting."""

    def __init__(self, config):
        super().__init__()
        self._limit = config.swiglu_limit
        n, inner, hidden = config.n_routed_experts, config.moe_intermediate_size, config.hidden_size
        self.w1, self.w3, self.w2 = matrix(n, inner, hidden), matrix(n, inner, hidden), matrix(n, hidden, inner)

    def forward(self, h: torch.Tensor, weights: torch.Tensor, mode: Mode) -> torch.Tensor:
        """h [rows, D], weights [rows, experts] -> FP32 sum of the weighted experts [rows, D]."""
        w1, w3, w2 = (self._value(w, mode) for w in (self.w1, self.w3, self.w2))
        x = straight_through(fp8_activations, h) if mode.quantized else h
        v = gated(product(x, w1), product(x, w3), self._limit) * weights.mT[..., None]
        v = v.bfloat16()  # [experts, rows, inner]
        if mode.quantized:
            v = straight_through(fp8_activations, v)
        return product(v, w2).sum(0, dtype=torch.float32)

    @staticmethod
    def _value(weight: torch.Tensor, mode: Mode) -> torch.Tensor:
        grid = straight_through(fp4_vectors, weight) if mode.quantized else weight
        return grid.bfloat16()


class Moe(nn.Module):
    """Experts (spec 4.5)."""

    def __init__(self, config, by_hash: bool):
        super().__init__()
        self.gate = Gate(config, by_hash)
        self.experts, self.shared_experts = Experts(config), SharedExpert(config)

    def forward(self, h: torch.Tensor, ids: torch.Tensor, mode: Mode) -> torch.Tensor:
        rows = h.flatten(0, -2)
        routed = self.experts(rows, self.gate(rows, ids.flatten()), mode)
        return (routed + self.shared_experts(rows, mode).float()).bfloat16().view_as(h)
