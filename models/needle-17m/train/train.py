"""Trains a checkpoint that finds needles, exports it and checks the export.

    python train.py --out DIR                       the whole recipe: about 18 minutes on one H200
    python train.py --out DIR --plan smoke           does it learn? 95 seconds and a check
    python train.py --out DIR --plan smoke --steps 400,300,200,60   exactly these steps: repeats a run
    python train.py --out DIR --plan tiny --steps 3 --device cpu    does everything work?

DIR becomes a model directory, with curve.csv and curve.svg of the training beside the weights.
"""

import argparse
import dataclasses
import itertools
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

import check
import curve
import export
from config import Config
from data import ExampleMaker, make_batch
from model import Model, Output
from numerics import Mode
from tokenizer import Tokenizer

PEAK_RATE, FINAL_RATE, WARMUP_STEPS = 2e-3, 2e-5, 100
OTHER_WEIGHT, MTP_WEIGHT, INDEX_WEIGHT = 0.2, 0.2, 0.3  # of losses, next to 1 for answers
BALANCE_RATE = 1e-3   # of the biases that keep experts evenly used
EAGER_STEPS = 3       # of a phase, before its step is captured as a CUDA graph
TIMED_STEPS = 24      # of a phase, from which the time of a step is known


@dataclasses.dataclass(frozen=True)
class Phase:
    tokens: int      # a sequence
    rows: int        # a batch
    seconds: float   # of the plan's default length; the share of the learning rate's way down
    mode: Mode


DENSE, SIMULATED, SPARSE = Mode(False, False), Mode(True, False), Mode(True, True)
PLANS = {
    "full": (Phase(512, 64, 190, DENSE), Phase(2048, 16, 170, DENSE), Phase(2048, 16, 150, SIMULATED),
             Phase(8192, 4, 220, SPARSE), Phase(16384, 2, 130, SPARSE), Phase(1024, 32, 160, SPARSE)),
    "smoke": (Phase(256, 32, 38, DENSE), Phase(512, 16, 24, DENSE), Phase(512, 16, 18, SIMULATED),
              Phase(4096, 2, 15, SPARSE)),
    "tiny": (Phase(128, 2, 10, SPARSE),),
}


class Batches(torch.utils.data.Dataset):
    """Batch i of a phase is a function of seed, phase and i, whichever process makes it."""

    def __init__(self, seed: str, phase: Phase):
        self._seed, self._phase = seed, phase
        self._maker = ExampleMaker(Tokenizer(export.MODEL / "tokenizer.json"))

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = make_batch(self._maker, self._phase.tokens, self._phase.rows, f"{self._seed}/{i}")
        return torch.tensor([row.ids for row in rows]), torch.tensor([row.is_answer for row in rows])


def losses(output: Output, ids: torch.Tensor, is_answer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and the figures of curve.FIGURES."""
    answers = is_answer[:, 1:]
    each = F.cross_entropy(output.logits[:, :-1].mT, ids[:, 1:], reduction="none")
    answer = (each * answers).sum() / answers.sum()
    other = (each * ~answers).sum() / (~answers).sum()
    mtp = F.cross_entropy(output.mtp_logits[:, :-2].mT, ids[:, 2:])
    index = torch.stack([report.loss for report in output.index_reports.values()]).mean()
    right = output.logits[:, :-1].argmax(-1) == ids[:, 1:]
    recalled = (right & answers).sum() / answers.sum()
    loss = answer + OTHER_WEIGHT * other + MTP_WEIGHT * mtp + INDEX_WEIGHT * index
    return loss, torch.stack([x.detach() for x in (loss, answer, other, mtp, index, recalled)])


class Stepper:
    """An optimisation step on batches of one shape; on a GPU a CUDA graph after the first few."""

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, rate: torch.Tensor, phase: Phase):
        self._model, self._optimizer, self._rate, self._phase = model, optimizer, rate, phase
        shape = (phase.rows, phase.tokens)
        self._ids = torch.zeros(shape, dtype=torch.int64, device=rate.device)
        self._is_answer = torch.zeros(shape, dtype=torch.bool, device=rate.device)
        self._graph = self._figures = None
        self._eager_left = EAGER_STEPS if rate.is_cuda else None

    def __call__(self, batch: tuple[torch.Tensor, torch.Tensor], rate: float) -> torch.Tensor:
        """Figures of the step."""
        self._ids.copy_(batch[0])
        self._is_answer.copy_(batch[1])
        self._rate.fill_(rate)
        if self._eager_left is None:
            return self._run()
        if self._eager_left:
            return self._run_beside()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            self._optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self._graph):
                self._figures = self._run()
        self._graph.replay()
        return self._figures.clone()

    def _run_beside(self) -> torch.Tensor:
        """On a side stream, as what is captured later has to have run before."""
        self._eager_left -= 1
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            figures = self._run()
        torch.cuda.current_stream().wait_stream(side)
        return figures

    def _run(self) -> torch.Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        loss, figures = losses(self._model(self._ids, self._phase.mode), self._ids, self._is_answer)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._model.balance_experts(BALANCE_RATE)
        return figures


class Trainer:
    def __init__(self, model: Model, device: str, seed: int, phases: tuple[Phase, ...]):
        self._model, self._seed, self._phases = model.to(device).train(), seed, phases
        self._rate = torch.tensor(0.0, device=device)
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
            lr=self._rate, betas=(0.9, 0.95), fused=True, capturable=self._rate.is_cuda)
        self._log, self._step = curve.Log(), 0

    def run(self, seconds: float, steps: list[int] | None) -> tuple[curve.Log, list[int]]:
        """The log, and the steps of each phase; `steps` None: as many as fit into `seconds`."""
        total, done, taken = sum(phase.seconds for phase in self._phases), 0.0, []
        for i, phase in enumerate(self._phases):
            share = phase.seconds / total
            taken.append(self._run_phase(i, phase, (done, share), seconds * share, steps and steps[i]))
            done += share
        return self._log, taken

    def _run_phase(self, i: int, phase: Phase, way: tuple[float, float], seconds: float, steps: int | None) -> int:
        begin = time.monotonic()
        stepper = Stepper(self._model, self._optimizer, self._rate, phase)
        workers = min(torch.get_num_threads(), 12) if self._rate.is_cuda else 0
        loader = iter(torch.utils.data.DataLoader(
            Batches(f"{self._seed}/{i}", phase), batch_size=None, sampler=itertools.count(), num_workers=workers))
        for step in itertools.count():
            if steps is None and step == TIMED_STEPS:
                steps = self._steps_that_fit(stepper, loader, begin, seconds)
            if step == steps:
                break
            # The rate stands while the number of steps may be unknown, so that a repeated run has the same.
            within = 0.0 if step < TIMED_STEPS else (step - TIMED_STEPS) / (steps - TIMED_STEPS)
            figures = stepper(next(loader), self._learning_rate(way[0] + way[1] * within))
            self._log.add(self._step, i, phase.tokens * phase.rows, figures)
            self._step += 1
            self._log.show(f"phase {i + 1}/{len(self._phases)} {phase.tokens} x {phase.rows}", step + 1, steps)
        return steps

    def _steps_that_fit(self, stepper: Stepper, loader, begin: float, seconds: float) -> int:
        if self._rate.is_cuda:
            torch.cuda.synchronize()
        now = time.monotonic()
        per_step = (now - self._log.time_of(-10)) / 10
        return TIMED_STEPS + max(1, int((begin + seconds - now) / per_step))

    def _learning_rate(self, fraction: float) -> float:
        cosine = (1 + math.cos(math.pi * fraction)) / 2
        warm = min(1.0, (self._step + 1) / WARMUP_STEPS)
        return warm * (FINAL_RATE + (PEAK_RATE - FINAL_RATE) * cosine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="model directory to write")
    parser.add_argument("--plan", choices=PLANS, default="full")
    parser.add_argument("--seconds", type=float, help="of training; the plan's own length by default")
    parser.add_argument("--steps", help="of each phase, separated by commas, instead of a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    phases = PLANS[arguments.plan]
    steps = arguments.steps and [int(n) for n in arguments.steps.split(",")]
    if steps and len(steps) != len(phases):
        parser.error(f"--steps: plan {arguments.plan} has {len(phases)} phases")

    torch.manual_seed(arguments.seed)
    # Every operand of a forward product is a BF16 value, which TF32 multiplies exactly.
    torch.set_float32_matmul_precision("high")
    model = Model(Config.read(export.MODEL / "config.json"))
    seconds = arguments.seconds or sum(phase.seconds for phase in phases)
    log, taken = Trainer(model, arguments.device, arguments.seed, phases).run(seconds, steps)
    export.write(model, arguments.out)
    log.write(arguments.out)
    print(f"same run again: --plan {arguments.plan} --steps {','.join(map(str, taken))} --seed {arguments.seed}")
    if arguments.device == "cpu":  # a smoke test: one short question
        return check.check(arguments.out, "cpu", lengths=check.LENGTHS[:1], questions=1, trained=model)
    return check.check(arguments.out, arguments.device, trained=model)


if __name__ == "__main__":
    sys.exit(main())
