"""Records outputs of a checkpoint in the format of tests/golden.

    python record.py DIR --out FILE [--lengths 64,512,4096] [--device cuda]
    baton-golden --model DIR FILE

The second command then compares the engine with this forward pass, for a checkpoint of any training.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch

import checkpoint
import export
from checkpoint import Tensor
from data import ExampleMaker, make_batch
from model import Model, Output
from numerics import Mode
from tokenizer import EOS, Tokenizer

LENGTHS = (64, 129, 256, 512, 1024, 2100, 4096)
MAX_NEW_TOKENS = 12
TRACED_TOKENS = 300  # of the case whose every position is recorded; tests/golden expects this number


def forward(model: Model, ids: list[int], device: str) -> Output:
    with torch.no_grad():
        return model(torch.tensor([ids], device=device), Mode())


def greedy(model: Model, prompt: list[int], device: str) -> list[int]:
    """Each step runs the whole sequence again: slow, and independent of any cache."""
    out: list[int] = []
    while len(out) < MAX_NEW_TOKENS and EOS not in out:
        out.append(int(forward(model, prompt + out, device).logits[0, -1].argmax()))
    return out


def record(name: str, model: Model, prompt: list[int], device: str) -> tuple[dict[str, Tensor], list[int]]:
    out = greedy(model, prompt, device)
    output = forward(model, prompt + out[:-1], device)
    tensors = {f"{name}.ids": Tensor("I32", np.array(prompt, np.int32)),
               f"{name}.out": Tensor("I32", np.array(out, np.int32)),
               f"{name}.logits": Tensor("F32", output.logits[0, len(prompt) - 1:].cpu().numpy())}
    for layer, report in output.index_reports.items():
        selected = report.selected[0].nonzero().flatten().cpu().numpy()
        tensors[f"{name}.topk.{layer}"] = Tensor("I32", selected.astype(np.int32))
    return tensors, out


def record_trace(model: Model, ids: list[int], device: str) -> dict[str, Tensor]:
    output = forward(model, ids, device)
    tensors = {"full300.logits": Tensor("F32", output.logits[0].cpu().numpy()),
               "full300.mtp_logits": Tensor("F32", output.mtp_logits[0].cpu().numpy())}
    for layer, streams in enumerate(output.streams):
        tensors[f"full300.streams.{layer}"] = checkpoint.pack_bf16(streams[0].float().cpu().numpy())
    return tensors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="of prompt and answer")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    model = export.read(arguments.folder).to(arguments.device).eval()
    tokenizer = Tokenizer(arguments.folder / "tokenizer.json")
    maker = ExampleMaker(tokenizer)

    tensors, cases = {}, {}
    for tokens in map(int, arguments.lengths.split(",")):
        example = make_batch(maker, tokens, 1, f"record/{tokens}", questions=1)[0]
        begin = example.is_answer.index(True)
        prompt, answer = example.ids[:begin], example.ids[begin:]
        recorded, out = record(f"n{begin}", model, prompt, arguments.device)
        tensors |= recorded
        cases[f"n{begin}"] = {"answer": tokenizer.decode(answer[:-1]), "output": tokenizer.decode(out),
                              "found": out == answer}
        print(f"n{begin}: asked for {tokenizer.decode(answer)}, answered {tokenizer.decode(out)}", flush=True)
    traced = make_batch(maker, 2 * TRACED_TOKENS, 1, "record/trace")[0].ids[:TRACED_TOKENS]
    recorded, out = record(f"n{TRACED_TOKENS}", model, traced, arguments.device)
    tensors |= recorded | record_trace(model, traced, arguments.device)
    cases[f"n{TRACED_TOKENS}"] = {"answer": None, "output": tokenizer.decode(out), "found": None}
    checkpoint.write_file(arguments.out, tensors, {"cases": json.dumps(cases)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
