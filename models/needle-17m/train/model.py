"""DeepSeek-V4 as a PyTorch module, for training and as a reference (spec section 4).

One forward pass of whole sequences from position 0; no cache. Every parameter and buffer has its name
in the checkpoint, but for the routed experts, which are stacked.
"""

import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from attention import Attention, IndexReport
from layers import Linear8, Moe, Norm, StreamMix, Weight, collapse, matrix, stored, stream_scores
from numerics import Mode

RECOMPUTE_ABOVE = 1024  # tokens a sequence, from where activations are computed twice to save memory


@dataclasses.dataclass
class Output:
    logits: torch.Tensor                      # [b, T, vocabulary], FP32
    mtp_logits: torch.Tensor                  # the same; position t predicts token t + 2
    index_reports: dict[int, IndexReport]     # by layer
    streams: list[torch.Tensor]               # [b, T, 4, D] after each layer


class Block(nn.Module):
    def __init__(self, config, ratio: int, by_hash: bool):
        super().__init__()
        self.attn_norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.ffn_norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.attn, self.ffn = Attention(config, ratio), Moe(config, by_hash)
        self.hc_attn, self.hc_ffn = StreamMix(config), StreamMix(config)

    def forward(self, streams: torch.Tensor, ids: torch.Tensor, mode: Mode):
        x, entered = self.hc_attn.enter(streams)
        o, report = self.attn(self.attn_norm(x), mode)
        x, entered = self.hc_ffn.enter(self.hc_attn.leave(o, entered))
        return self.hc_ffn.leave(self.ffn(self.ffn_norm(x), ids, mode), entered), report


class StreamCollapse(nn.Module):
    """Streams -> hidden vector, before the head."""

    def __init__(self, config):
        super().__init__()
        n = config.hc_mult
        self.fn = matrix(n, n * config.hidden_size)
        self.base, self.scale = nn.Parameter(torch.full((n,), -1.1)), nn.Parameter(torch.full((1,), 0.1))
        self._eps, self._norm_eps = config.hc_eps, config.rms_norm_eps

    def forward(self, streams: torch.Tensor) -> torch.Tensor:
        scores = stream_scores(streams.flatten(-2).float(), self.fn, self._norm_eps)
        return collapse(streams, torch.sigmoid(scores * stored(self.scale) + stored(self.base)) + self._eps)


class MtpBlock(Block):
    """Drafts the token after next from the streams of a position and the next token (spec 4.6)."""

    def __init__(self, config):
        super().__init__(config, config.compress_ratios[-1], by_hash=False)
        D, eps = config.hidden_size, config.rms_norm_eps
        self.e_proj, self.h_proj = Linear8(D, D), Linear8(D, D)
        self.enorm, self.hnorm, self.norm = Norm(D, eps), Norm(D, eps), Norm(D, eps)
        self.hc_head = StreamCollapse(config)

    def draft(self, streams, next_ids, next_embeddings, mode: Mode) -> torch.Tensor:
        embedded = self.e_proj(self.enorm(next_embeddings), mode)
        streams, _ = self(embedded[..., None, :] + self.h_proj(self.hnorm(streams), mode), next_ids, mode)
        return self.norm(self.hc_head(streams))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = Weight(config.vocab_size, config.hidden_size, gain=0.5 * config.hidden_size**0.5)
        self.head = Weight(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Block(config, config.compress_ratios[l], by_hash=l < config.num_hash_layers)
            for l in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.hc_head = StreamCollapse(config)
        self.mtp = nn.ModuleList([MtpBlock(config)])

    def forward(self, ids: torch.Tensor, mode: Mode) -> Output:
        """ids [b, T]. The MTP block sees token T - 1 again at the last position."""
        embeddings = F.embedding(ids, self.embed.weight).bfloat16()
        streams = embeddings[..., None, :].expand(-1, -1, self.config.hc_mult, -1)
        after, reports = [], {}
        for l, block in enumerate(self.layers):
            if self.training and ids.shape[1] > RECOMPUTE_ABOVE:
                streams, report = checkpoint(block, streams, ids, mode, use_reentrant=False,
                                             preserve_rng_state=False)
            else:
                streams, report = block(streams, ids, mode)
            after.append(streams)
            if report is not None:
                reports[l] = report
        following = torch.cat((ids[:, 1:], ids[:, -1:]), 1)
        following_embeddings = torch.cat((embeddings[:, 1:], embeddings[:, -1:]), 1)
        drafted = self.mtp[0].draft(streams, following, following_embeddings, mode)
        return Output(self._logits(self.norm(self.hc_head(streams))), self._logits(drafted), reports, after)

    def balance_experts(self, rate: float) -> None:
        for block in (*self.layers, *self.mtp):
            block.ffn.gate.balance(rate)

    def _logits(self, y: torch.Tensor) -> torch.Tensor:
        return F.linear(y.float(), stored(self.head.weight))
