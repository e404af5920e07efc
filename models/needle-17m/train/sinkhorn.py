"""Stream mixing matrices from scores: a row softmax, then columns and rows normalised in turn (spec 4.1).

Training runs it as one kernel each way. As PyTorch operations its forty steps would be half of all
kernels of a training step, and each would wait for its launch longer than it runs.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs comes without it
    triton = None

BLOCK = 64  # positions a program


def balanced(scores: torch.Tensor, n: int, iterations: int, eps: float) -> torch.Tensor:
    """Scores [..., n n] -> matrices [..., n, n] whose rows and columns sum to 1."""
    # Positions last: the sums of n numbers then run side by side.
    columns = scores.movedim(-1, 0).flatten(1).contiguous()
    if scores.requires_grad and triton and scores.is_cuda:
        c = _Fused.apply(columns, n, iterations, eps)
    else:
        c = _stepwise(columns.unflatten(0, (n, n)), iterations, eps).flatten(0, 1)
    return c.mT.unflatten(1, (n, n)).unflatten(0, scores.shape[:-1])


def _stepwise(scores: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
    c = scores.softmax(1) + eps
    c = c / (c.sum(0, keepdim=True) + eps)
    for _ in range(iterations - 1):
        c = c / (c.sum(1, keepdim=True) + eps)
        c = c / (c.sum(0, keepdim=True) + eps)
    return c


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, n, iterations, eps):
        rows = scores.shape[1]
        c = torch.empty_like(scores)
        divisors = scores.new_empty(2 * iterations - 1, n, rows)
        _forward[(triton.cdiv(rows, BLOCK),)](scores, c, divisors, rows, eps, n, iterations, BLOCK)
        ctx.save_for_backward(c, divisors)
        ctx.arguments = (n, iterations, eps)
        return c

    @staticmethod
    def backward(ctx, gradient):
        c, divisors = ctx.saved_tensors
        n, iterations, eps = ctx.arguments
        rows = c.shape[1]
        result = torch.empty_like(c)
        _backward[(triton.cdiv(rows, BLOCK),)](gradient.contiguous(), c, divisors, result, rows, eps,
                                               n, iterations, BLOCK)
        return result, None, None, None


if triton:
    @triton.jit
    def _places(rows, n: tl.constexpr, block: tl.constexpr):
        """Offsets of the matrices [n, n, block] and of a step's divisors [n, block], and what exists of them."""
        position = tl.program_id(0) * block + tl.arange(0, block)
        j = tl.arange(0, n)
        matrix = (j[:, None, None] * n + j[None, :, None]) * rows + position[None, None, :]
        exists = position < rows
        return (matrix, exists[None, None, :] & (matrix >= 0),
                j[:, None] * rows + position[None, :], exists[None, :] & (j[:, None] >= 0))

    @triton.jit
    def _forward(scores, out, divisors, rows, eps, n: tl.constexpr, iterations: tl.constexpr, block: tl.constexpr):
        matrix, exists, vector, vector_exists = _places(rows, n, block)
        a = tl.load(scores + matrix, exists, 0.0)
        e = tl.exp(a - tl.max(a, 1)[:, None, :])
        c = e / tl.sum(e, 1)[:, None, :] + eps
        d = tl.sum(c, 0) + eps
        tl.store(divisors + vector, d, vector_exists)
        c = c / d[None, :, :]
        for i in range(iterations - 1):
            step = divisors + (2 * i + 1) * n * rows
            d = tl.sum(c, 1) + eps
            tl.store(step + vector, d, vector_exists)
            c = c / d[:, None, :]
            d = tl.sum(c, 0) + eps
            tl.store(step + n * rows + vector, d, vector_exists)
            c = c / d[None, :, :]
        tl.store(out + matrix, c, exists)

    @triton.jit
    def _backward(gradient, out, divisors, result, rows, eps, n: tl.constexpr, iterations: tl.constexpr,
                  block: tl.constexpr):
        """Walks back from the result: multiplying by a step's divisors gives what the step was given."""
        matrix, exists, vector, vector_exists = _places(rows, n, block)
        g = tl.load(gradient + matrix, exists, 0.0)
        c = tl.load(out + matrix, exists, 0.0)
        for back in range(iterations - 1):
            step = divisors + (2 * (iterations - 2 - back) + 1) * n * rows
            d = tl.load(step + n * rows + vector, vector_exists, 1.0)[None, :, :]
            g = (g - tl.sum(g * c, 0)[None, :, :]) / d
            c = c * d
            d = tl.load(step + vector, vector_exists, 1.0)[:, None, :]
            g = (g - tl.sum(g * c, 1)[:, None, :]) / d
            c = c * d
        d = tl.load(divisors + vector, vector_exists, 1.0)[None, :, :]
        g = (g - tl.sum(g * c, 0)[None, :, :]) / d
        p = c * d - eps
        tl.store(result + matrix, p * (g - tl.sum(g * p, 1)[:, None, :]), exists)
