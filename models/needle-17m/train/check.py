"""Asks an exported checkpoint for needles.

    python check.py DIR [--lengths 64,1024,8192] [--device cuda]

An answer counts when every one of its tokens, EOS included, is the likeliest: greedy decoding then
gives exactly it.
"""

import argparse
import pathlib
import sys

import torch

import export
from data import ExampleMaker, make_batch
from model import Model
from numerics import Mode
from tokenizer import Tokenizer

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
QUESTIONS = 64        # of a length
BATCH_TOKENS = 65536  # at most at a time, so that memory is bounded


def recall(model: Model, tokens: int, questions: int, device: str) -> int:
    """Needles found in texts that training has not seen."""
    maker = ExampleMaker(Tokenizer(export.MODEL / "tokenizer.json"))
    examples = make_batch(maker, tokens, questions, f"check/{tokens}", questions=1)
    rows = max(1, BATCH_TOKENS // tokens)
    found = 0
    for begin in range(0, questions, rows):
        ids = torch.tensor([example.ids for example in examples[begin:begin + rows]], device=device)
        answers = torch.tensor([example.is_answer for example in examples[begin:begin + rows]], device=device)
        with torch.no_grad():
            likeliest = model(ids, Mode()).logits[:, :-1].argmax(-1)
        found += int(((likeliest == ids[:, 1:]) | ~answers[:, 1:]).all(-1).sum())
    return found


def difference(trained: Model, exported: Model, device: str) -> float:
    """Largest difference of logits between the module that was trained and its export."""
    maker = ExampleMaker(Tokenizer(export.MODEL / "tokenizer.json"))
    ids = torch.tensor([make_batch(maker, 300, 1, "difference")[0].ids], device=device)
    with torch.no_grad():
        a, b = (model.eval()(ids, Mode()) for model in (trained, exported))
    return max((a.logits - b.logits).abs().max().item(), (a.mtp_logits - b.mtp_logits).abs().max().item())


def check(folder: pathlib.Path, device: str, lengths=LENGTHS, questions=QUESTIONS,
          trained: Model | None = None) -> int:
    """0, or 1 if the export is not what was trained."""
    exported = export.read(folder).to(device).eval()
    if trained is not None:
        largest = difference(trained, exported, device)
        print(f"logits of the export differ from those of the trained module by {largest}")
        if largest != 0:
            return 1
    for tokens in lengths:
        found = recall(exported, tokens, questions, device)
        print(f"{tokens:>6} tokens: {found} of {questions} needles found", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of each length")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    lengths = [int(n) for n in arguments.lengths.split(",")]
    return check(arguments.folder, arguments.device, lengths, arguments.questions)


if __name__ == "__main__":
    sys.exit(main())
