"""Compares the forward pass with recorded outputs of the official reference (tests/golden).

    python golden.py [--cases n300,full300] [--max-tokens 2100] [--device cuda]

Bounds are those of tests/golden/README.md. Exit status 1: a case is outside.
"""

import argparse
import json
import pathlib
import statistics
import sys

import numpy as np
import torch

import checkpoint
import export
from numerics import Mode

FILE = pathlib.Path(__file__).resolve().parents[3] / "tests/golden/needle-17m.safetensors"
MEDIAN_BOUND, LARGEST_BOUND, STREAMS_BOUND, SELECTION_BOUND = 0.04, 0.6, 0.06, 0.10


def ratio(ours: np.ndarray, golden: np.ndarray) -> np.ndarray:
    """Of each row: RMS of the differences over the standard deviation of the reference."""
    return np.sqrt(((ours - golden)**2).mean(-1)) / golden.std(-1)


def run(model, ids, device):
    with torch.no_grad():
        return model(torch.from_numpy(np.array(ids, np.int64))[None].to(device), Mode())


def compare_case(model, tensors, name: str, device) -> tuple[np.ndarray, float | None, bool]:
    """Ratios of its steps, share of selected entries that differ, and whether the tokens are equal."""
    prompt, out, golden = (tensors[f"{name}.{what}"].array for what in ("ids", "out", "logits"))
    output = run(model, np.concatenate((prompt, out[:-1])), device)
    logits = output.logits[0, len(prompt) - 1:].cpu().numpy()
    differing = []
    for layer, report in output.index_reports.items():
        expected = {int(i) for i in tensors[f"{name}.topk.{layer}"].array if i >= 0}
        ours = set(report.selected[0].nonzero().flatten().tolist())
        if len(ours) < report.selected.shape[-1]:
            differing.append(len(expected - ours) / len(expected))
    same = bool((logits.argmax(-1) == out).all())
    return ratio(logits, golden), max(differing, default=None), same


def compare_everywhere(model, tensors, device) -> list[tuple[str, float]]:
    """Median ratios of the case with every position recorded."""
    output = run(model, tensors["n300.ids"].array, device)
    pairs = [("logits", output.logits), ("mtp_logits", output.mtp_logits)]
    figures = [(f"full300 {what}", float(np.median(ratio(ours[0].cpu().numpy(), tensors[f"full300.{what}"].array))))
               for what, ours in pairs]
    for layer, streams in enumerate(output.streams):
        golden = checkpoint.unpack_bf16(tensors[f"full300.streams.{layer}"]).reshape(300, -1)
        ours = streams[0].float().cpu().numpy().reshape(300, -1)
        figures.append((f"full300 streams {layer}", float(np.median(ratio(ours, golden)))))
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, default=export.MODEL)
    parser.add_argument("--cases", help="names, separated by commas; all by default")
    parser.add_argument("--max-tokens", type=int, default=100_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    model = export.read(arguments.model).to(arguments.device).eval()
    content = FILE.read_bytes()
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
    cases = json.loads(header["__metadata__"]["cases"])
    tensors = checkpoint.read_file(FILE)

    misses, ratios = [], []
    for name in sorted(cases, key=lambda name: int(name[1:])):
        if arguments.cases and name not in arguments.cases.split(",") or int(name[1:]) > arguments.max_tokens:
            continue
        steps, differing, same = compare_case(model, tensors, name, arguments.device)
        ratios += list(steps)
        selection = "" if differing is None else f"   selection differs {differing:6.2%}"
        print(f"{name:>7}  ratio first {steps[0]:.5f} largest {steps.max():.5f}   "
              f"tokens {'equal' if same else 'differ'}{selection}", flush=True)
        if steps.max() > LARGEST_BOUND or not same and cases[name]["found"]:
            misses.append(name)
        if differing is not None and differing > SELECTION_BOUND:
            misses.append(f"{name} selection")
    if ratios:
        print(f"median logits ratio {statistics.median(ratios):.5f}")
        if statistics.median(ratios) > MEDIAN_BOUND:
            misses.append("median")
    if not arguments.cases or "full300" in arguments.cases.split(","):
        for what, figure in compare_everywhere(model, tensors, arguments.device):
            print(f"{what}: median ratio {figure:.5f}")
            if figure > STREAMS_BOUND:
                misses.append(what)
    print(f"outside the bounds: {', '.join(misses)}" if misses else "all inside the bounds")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
