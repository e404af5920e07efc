"""Rounding to the grids of inference, with gradients that pass straight through; rotations.

Values on a grid are products of a short significand and a power of two, so BF16 holds them exactly
and a BF16 product of them is the FP8 or FP4 product of the reference.
"""

import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F

FP8_GROUP = 128      # activations of a linear layer that share a scale
FP8_KV_GROUP = 64    # channels of a cache entry that share a scale
FP8_BLOCK = 128      # rows and columns of an FP8 weight that share a scale
FP4_GROUP = 32       # columns of an FP4 weight, or channels of an index vector, that share a scale
FP8_MAX, FP4_MAX = 448.0, 6.0


@dataclasses.dataclass(frozen=True)
class Mode:
    """What of inference a forward pass simulates."""
    quantized: bool = True  # FP8 and FP4 rounding of weights, activations and cache entries
    sparse: bool = True     # at most index_topk entries of a CSA layer are attended


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rounding):
        return rounding(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def straight_through(rounding, x: torch.Tensor) -> torch.Tensor:
    return _StraightThrough.apply(x, rounding)


def power_of_two_above(x: torch.Tensor) -> torch.Tensor:
    """The smallest power of two >= x, for normal positive FP32."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def fp8_grid(x: torch.Tensor, amax: torch.Tensor) -> torch.Tensor:
    scale = power_of_two_above(amax.clamp_min(1e-4) * (1 / FP8_MAX))
    codes = (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return codes.float() * scale


def fp4_grid(x: torch.Tensor, amax: torch.Tensor) -> torch.Tensor:
    scale = power_of_two_above(amax.clamp_min(FP4_MAX * 2.0**-126) * (1 / FP4_MAX))
    y = (x / scale).clamp(-FP4_MAX, FP4_MAX)
    # Steps of 0.5 below 2, 1 below 4, 2 above: rounding to an even multiple is rounding to an even code.
    step = torch.where(y.abs() < 2, 0.5, torch.where(y.abs() < 4, 1.0, 2.0))
    return (y / step).round() * step * scale


def _in_groups(grid, group: int):
    def rounding(x: torch.Tensor) -> torch.Tensor:
        values = x.float().unflatten(-1, (-1, group))
        return grid(values, values.abs().amax(-1, keepdim=True)).flatten(-2).to(x.dtype)
    return rounding


def fp8_block_grid(weight: torch.Tensor) -> torch.Tensor:
    rows, columns = weight.shape
    blocks = weight.view(rows // FP8_BLOCK, FP8_BLOCK, columns // FP8_BLOCK, FP8_BLOCK)
    return fp8_grid(blocks, blocks.abs().amax((1, 3), keepdim=True)).view(rows, columns)


fp8_activations = _in_groups(fp8_grid, FP8_GROUP)
fp8_entries = _in_groups(fp8_grid, FP8_KV_GROUP)
fp4_vectors = _in_groups(fp4_grid, FP4_GROUP)


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x weight^T of BF16 tensors: FP32 accumulation, BF16 result."""
    if x.is_cuda:
        return torch.matmul(x, weight.mT)
    return torch.matmul(x.float(), weight.float().mT).bfloat16()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    v = x.float()
    return (weight * (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps))).bfloat16()


def unit_rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Of queries, in a chain of BF16 operations as in the reference."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class Rope(nn.Module):
    """Rotation of the last channels of a vector, as interleaved pairs."""

    def __init__(self, config, compressed: bool):
        super().__init__()
        channels = config.qk_rope_head_dim
        theta = config.compress_rope_theta if compressed else config.rope_theta
        frequencies = 1.0 / theta**(torch.arange(0, channels, 2, dtype=torch.float32) / channels)
        if compressed:
            frequencies = _yarn(frequencies, theta, config.rope_scaling)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin [positions, pairs] of the angles as FP32 rounds them."""
        angles = (positions.float()[:, None] * self.frequencies).double()
        return angles.cos().float(), angles.sin().float()


def rotate(x: torch.Tensor, rotation, inverse: bool = False) -> torch.Tensor:
    """x [batch, positions, ..., channels]; BF16 in and out."""
    cos, sin = (t.view(len(t), *[1] * (x.dim() - 3), t.shape[1]) for t in rotation)
    if inverse:
        sin = -sin
    rest, rotated = x.split((x.shape[-1] - 2 * cos.shape[-1], 2 * cos.shape[-1]), -1)
    a, b = rotated.float().unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack((a * cos - b * sin, a * sin + b * cos), -1)
    return torch.cat((rest, pairs.flatten(-2).to(x.dtype)), -1)


def _yarn(frequencies: torch.Tensor, theta: float, scaling: dict) -> torch.Tensor:
    pairs = len(frequencies)
    base = torch.log(torch.tensor(float(theta), dtype=torch.float64))

    def pair_of(rotations: float) -> torch.Tensor:
        window = scaling["original_max_position_embeddings"] / (rotations * 2 * torch.pi)
        return pairs * torch.log(torch.tensor(window, dtype=torch.float64)) / base

    low, high = pair_of(scaling["beta_fast"]).floor(), pair_of(scaling["beta_slow"]).ceil()
    ramp = ((torch.arange(pairs, dtype=torch.float32) - low) / (high - low)).clamp(0, 1).float()
    return frequencies * (1 - ramp) + frequencies / scaling["factor"] * ramp


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """Walsh matrix in natural order times n^-0.5, over the last axis; BF16 in and out."""
    n = x.shape[-1]
    matrix = torch.ones(1, 1, device=x.device)
    while matrix.shape[0] < n:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return (F.linear(x.float(), matrix) * n**-0.5).to(x.dtype)
