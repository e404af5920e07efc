"""Attention over a window and compressed entries (spec 4.2 to 4.4)."""

import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F

from layers import Linear8, Norm, Weight, matrix, stored
from numerics import (Mode, Rope, fp4_vectors, fp8_entries, hadamard, product, rotate,
                      straight_through, unit_rms)

CSA_RATIO = 4
SPAN = 2048  # queries whose scores exist at a time


@dataclasses.dataclass
class IndexReport:
    """How a layer's indexer did: inputs of its loss, and the selection of the last position."""
    loss: torch.Tensor                  # KL divergence, mean over queries
    selected: torch.Tensor | None = None  # [batch, entries] bool


class Compressor(nn.Module):
    """Pools `ratio` tokens, of CSA also the ones before, into one entry (spec 4.3)."""

    def __init__(self, config, ratio: int, channels: int):
        super().__init__()
        self._ratio, self._overlaps = ratio, ratio == CSA_RATIO
        width = 2 * channels if self._overlaps else channels
        self.ape = nn.Parameter(torch.zeros(ratio, width))
        self.wkv, self.wgate = Weight(width, config.hidden_size), Weight(width, config.hidden_size)
        self.norm = Norm(channels, config.rms_norm_eps)

    def forward(self, h: torch.Tensor, rope: Rope) -> torch.Tensor:
        """h [batch, T, D] -> normed and rotated entries [batch, T // ratio, channels]."""
        entries = h.shape[1] // self._ratio
        h = h[:, :entries * self._ratio].float().unflatten(1, (entries, self._ratio))
        values = F.linear(h, stored(self.wkv.weight))
        gates = F.linear(h, stored(self.wgate.weight)) + stored(self.ape)
        if self._overlaps:
            values, gates = _with_previous(values, 0.0), _with_previous(gates, -torch.inf)
        pooled = (gates.softmax(2) * values).sum(2).bfloat16()
        positions = torch.arange(entries, device=h.device) * self._ratio
        return rotate(self.norm(pooled), rope.rotation(positions))


def _with_previous(x: torch.Tensor, missing: float) -> torch.Tensor:
    """[b, n, ratio, 2d] -> [b, n, 2 ratio, d]: first halves of the group before, second halves."""
    first, second = x.chunk(2, -1)
    return torch.cat((F.pad(first, (0, 0, 0, 0, 1, 0), value=missing)[:, :-1], second), 2)


class Indexer(nn.Module):
    """Scores compressed entries for every query (spec 4.4). Trained by its own loss only."""

    def __init__(self, config):
        super().__init__()
        self._heads, self._channels = config.index_n_heads, config.index_head_dim
        self.wq_b = Linear8(self._heads * self._channels, config.q_lora_rank)
        self.weights_proj = Weight(self._heads, config.hidden_size)
        self.compressor = Compressor(config, CSA_RATIO, self._channels)

    def vectors(self, h: torch.Tensor, qr: torch.Tensor, rope: Rope, rotation, mode: Mode):
        """Queries [b, T, heads, d], their weights [b, T, heads], keys [b, n, d]."""
        h, qr = h.detach(), qr.detach()
        queries = self.wq_b(qr, mode).unflatten(-1, (self._heads, self._channels))
        queries, keys = hadamard(rotate(queries, rotation)), hadamard(self.compressor(h, rope))
        if mode.quantized:
            queries, keys = straight_through(fp4_vectors, queries), straight_through(fp4_vectors, keys)
        weights = product(h, self.weights_proj.weight.bfloat16())
        return queries, weights * (self._channels * self._heads)**-0.5, keys

    @staticmethod
    def scores(queries: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """[b, T, n], in the BF16 steps of the reference."""
        dots = product(queries.flatten(1, 2), keys).unflatten(1, queries.shape[1:3])
        return (dots.relu() * weights[..., None]).sum(2).float()


class Attention(nn.Module):
    def __init__(self, config, ratio: int):
        super().__init__()
        self._config, self._ratio = config, ratio
        heads, values = config.num_attention_heads, config.num_attention_heads * config.head_dim
        eps = config.rms_norm_eps
        self.wq_a = Linear8(config.q_lora_rank, config.hidden_size)
        self.q_norm = Norm(config.q_lora_rank, eps)
        self.wq_b = Linear8(values, config.q_lora_rank)
        self.wkv = Linear8(config.head_dim, config.hidden_size)
        self.kv_norm = Norm(config.head_dim, eps)
        self.attn_sink = nn.Parameter(torch.zeros(heads))
        self.wo_a = Linear8(config.o_groups * config.o_lora_rank, values // config.o_groups)
        self.wo_b = Linear8(config.hidden_size, config.o_groups * config.o_lora_rank)
        self._rope = Rope(config, compressed=ratio > 0)
        if ratio:
            self.compressor = Compressor(config, ratio, config.head_dim)
        if ratio == CSA_RATIO:
            self.indexer = Indexer(config)

    def forward(self, h: torch.Tensor, mode: Mode) -> tuple[torch.Tensor, IndexReport | None]:
        config, T = self._config, h.shape[1]
        rotation = self._rope.rotation(torch.arange(T, device=h.device))
        qr = self.q_norm(self.wq_a(h, mode))
        q = self.wq_b(qr, mode).unflatten(-1, (config.num_attention_heads, config.head_dim))
        q = rotate(unit_rms(q, config.rms_norm_eps), rotation)
        kv = self._cached(rotate(self.kv_norm(self.wkv(h, mode)), rotation), mode)
        entries = self._cached(self.compressor(h, self._rope), mode) if self._ratio else None
        index = self.indexer.vectors(h, qr, self._rope, rotation, mode) if self._ratio == CSA_RATIO else None

        window = F.pad(kv, (0, 0, config.sliding_window, -T % config.sliding_window))
        outputs, losses, selected = [], [], None
        for begin in range(0, T, SPAN):
            queries = q[:, begin:begin + SPAN]
            allowed = scores = None
            if self._ratio:
                allowed = self._visible(begin, queries.shape[1], entries)
            if index is not None:
                scores = self.indexer.scores(*(x[:, begin:begin + SPAN] for x in index[:2]), index[2])
                allowed = selected = self._select(scores, allowed, mode)
            o, shares = attend(queries, window[:, begin:begin + SPAN + config.sliding_window],
                               entries, allowed, stored(self.attn_sink), config.sliding_window,
                               first=begin == 0)
            outputs.append(o)
            if scores is not None and self.training:
                losses.append(index_divergence(scores, shares, allowed) * queries.shape[1] / T)
        o = rotate(torch.cat(outputs, 1), rotation, inverse=True)
        report = None
        if index is not None:
            report = IndexReport(sum(losses, h.new_zeros((), dtype=torch.float32)), selected[:, -1])
        return self._project(o, mode), report

    def _cached(self, entries: torch.Tensor, mode: Mode) -> torch.Tensor:
        """What a cache entry holds: FP8 but for the rotated channels."""
        if not mode.quantized:
            return entries
        rotated = self._config.qk_rope_head_dim
        plain, rest = entries.split((entries.shape[-1] - rotated, rotated), -1)
        return torch.cat((straight_through(fp8_entries, plain), rest), -1)

    def _visible(self, begin: int, count: int, entries: torch.Tensor) -> torch.Tensor:
        t = torch.arange(begin, begin + count, device=entries.device)
        j = torch.arange(entries.shape[1], device=entries.device)
        return (j < ((t + 1) // self._ratio)[:, None])[None]  # [1, T, n]

    def _select(self, scores: torch.Tensor, visible: torch.Tensor, mode: Mode) -> torch.Tensor:
        """[b, T, n]: the visible entries of the highest scores."""
        visible = visible.expand_as(scores)
        if not mode.sparse or scores.shape[-1] <= self._config.index_topk:
            return visible
        best = scores.detach().masked_fill(~visible, -torch.inf).topk(self._config.index_topk).indices
        return torch.zeros_like(visible).scatter(-1, best, True) & visible

    def _project(self, o: torch.Tensor, mode: Mode) -> torch.Tensor:
        """Grouped output projection: each group of heads has rows of wo_a, in BF16."""
        groups = self._config.o_groups
        rows = o.flatten(0, 1).unflatten(1, (groups, -1)).flatten(2).transpose(0, 1)
        weight = self.wo_a.value(mode).unflatten(0, (groups, -1))
        z = product(rows, weight).transpose(0, 1).flatten(1)
        return self.wo_b(z, mode).unflatten(0, o.shape[:2])


def attend(q, window, entries, allowed, sink, W: int, first: bool):
    """Attention of T queries with a sink per head; keys are values too.

    q [b, T, H, d]; window [b, W + T rounded up to W, d], the first W positions being those before
    the first query (absent where `first`); entries [b, n, d] or None, with allowed [b or 1, T, n].
    Returns o [b, T, H, d], and of entries the shares [b, T, n] of attention, mean over heads.
    """
    b, T, H, d = q.shape
    padded = -T % W + T
    blocks = padded // W
    # A block of W queries needs its own keys and those of the block before.
    each = window.float().unflatten(1, (-1, W))
    keys = torch.cat((each[:, :-1], each[:, 1:]), 2)  # [b, blocks, 2W, d]
    grouped = F.pad(q.float(), (0, 0, 0, 0, 0, padded - T)).reshape(b, blocks, W * H, d)
    near = torch.matmul(grouped, keys.mT).view(b, blocks, W, H, 2 * W) * d**-0.5
    i = torch.arange(W, device=q.device)[:, None]
    j = torch.arange(2 * W, device=q.device)
    inside = ((j > i) & (j <= i + W)).repeat(blocks, 1, 1)
    if first:
        inside[0] &= j >= W
    near = near.masked_fill(~inside[:, :, None], -torch.inf)
    peak = near.detach().amax(-1).view(b, padded, H)
    if entries is not None:
        far = torch.matmul(q.float().flatten(1, 2), entries.float().mT).unflatten(1, (T, H)) * d**-0.5
        far = far.masked_fill(~allowed[:, :, None], -torch.inf)
        if entries.shape[1]:
            peak[:, :T] = torch.maximum(peak[:, :T], far.detach().amax(-1))
    p_near = torch.exp(near - peak.view(b, blocks, W, H, 1))
    total = p_near.sum(-1).view(b, padded, H)[:, :T] + torch.exp(sink - peak[:, :T])
    # Only the value product sees rounded probabilities.
    o = torch.matmul(p_near.bfloat16().float().flatten(2, 3), keys).view(b, padded, H, d)[:, :T]
    shares = None
    if entries is not None:
        p_far = torch.exp(far - peak[:, :T, :, None])
        total = total + p_far.sum(-1)
        o = o + torch.matmul(p_far.bfloat16().float().flatten(1, 2), entries.float()).view(b, T, H, d)
        shares = (p_far / total[..., None]).detach().mean(2)
    return (o / total[..., None]).bfloat16(), shares


def index_divergence(scores: torch.Tensor, shares: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """KL(attention over the allowed entries || softmax of their index scores), mean over queries."""
    target = shares / shares.sum(-1, keepdim=True).clamp_min(1e-20)
    # Rows without an entry have target 0 everywhere; a finite filling keeps their gradient finite.
    guess = scores.masked_fill(~allowed, -1e4).log_softmax(-1)
    return (target * (target.clamp_min(1e-20).log() - guess)).sum(-1).mean()
