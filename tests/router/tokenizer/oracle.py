#!/usr/bin/env python3
"""Compares baton-tokenize with the Python package `tokenizers` on random strings.

Usage: oracle.py BATON_TOKENIZE TOKENIZER_JSON [--count 10000] [--seed 1] [--golden FILE]
Exit status 0: all equal; 1: a difference, printed; 77: the package is absent, nothing compared.
--golden writes the strings with the reference ids instead of comparing: the committed test data.
"""

import argparse
import json
import random
import subprocess
import sys

try:
    import tokenizers
except ImportError:
    print("SKIPPED: the Python package `tokenizers` is not installed, nothing was compared")
    sys.exit(77)

# (first, last) code points; a string mixes a few of these.
BLOCKS = {
    "ascii": (0x20, 0x7E), "letters": (0x61, 0x7A), "upper": (0x41, 0x5A), "digits": (0x30, 0x39),
    "latin1": (0xA1, 0xFF), "latin": (0x100, 0x24F), "ipa": (0x250, 0x2FF), "marks": (0x300, 0x36F),
    "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x4FF), "hebrew": (0x590, 0x5FF),
    "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F), "tamil": (0xB80, 0xBFF),
    "thai": (0xE00, 0xE7F), "tibetan": (0xF00, 0xFFF), "hangul jamo": (0x1100, 0x11FF),
    "mongolian": (0x1800, 0x18AF), "punctuation": (0x2000, 0x206F), "symbols": (0x20A0, 0x214F),
    "numbers": (0x2150, 0x218F), "math": (0x2200, 0x22FF), "enclosed": (0x2460, 0x24FF),
    "cjk punctuation": (0x3000, 0x303F), "hiragana": (0x3040, 0x309F), "katakana": (0x30A0, 0x30FF),
    "cjk": (0x4E00, 0x9FFF), "cjk a": (0x3400, 0x4DBF), "hangul": (0xAC00, 0xD7A3),
    "compatibility": (0xF900, 0xFAFF), "full width": (0xFF00, 0xFFEF), "linear b": (0x10000, 0x100FF),
    "math letters": (0x1D400, 0x1D7FF), "emoji": (0x1F300, 0x1FAFF), "cjk b": (0x20000, 0x2A6DF),
    "cjk h": (0x31350, 0x323AF), "private": (0xE000, 0xE0FF), "controls": (0x00, 0x1F),
    "c1": (0x7F, 0x9F), "any": (0x00, 0x10FFFF),
}
SPACES = [" ", "  ", "\n", "\r\n", "\t", "   \n", "\n\n", " \n ", "\u00a0", "\u3000", "\u2003",
          "\u180e", "\u0085", "\x0b", "\x1c", "\u2028", "\u200b"]
WORDS = ["The secret passphrase for Oslo is ZEBRA-4492-OMEGA.", "it's", "don't", "I'LL", "(x+y)",
         "foo_bar", "3.14159", "1234567", "http://a.b/c?d=e&f=%20", "e\u0301t\u00e9", "你好，世界。",
         "今日は、ドナー", "ア・イ", "안녕하세요", "Привет, мир!", "שלום", "مرحبا", "नमस्ते", "สวัสดี",
         "👩‍👩‍👧‍👦", "🇫🇷", "x\u0308", "#include <a.h>", "-->", "...", "!!a", "'quoted'", "½ ²",
         "<", ">", "think>", "</", "<\uff5c", "\uff5c>"]


def random_part(rng, added):
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3])
    if kind < 0.45:
        return rng.choice(WORDS)
    if kind < 0.52:
        token = rng.choice(added)
        return token if rng.random() < 0.7 else token[:rng.randrange(len(token))]
    if kind < 0.57:
        return rng.choice("a1 .\u4e00\n") * rng.choice([2, 3, 4, 7, 50])
    first, last = rng.choice(list(BLOCKS.values()))
    return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8)))


def random_text(rng, added):
    parts = [random_part(rng, added) for _ in range(rng.randint(1, 12))]
    return "".join(c for c in "".join(parts) if not 0xD800 <= ord(c) < 0xE000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("tokenizer")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden")
    args = parser.parse_args()

    reference = tokenizers.Tokenizer.from_file(args.tokenizer)
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    rng = random.Random(args.seed)
    texts = [""] + [random_text(rng, added) for _ in range(args.count - 1)]
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    if args.golden:
        with open(args.golden, "w", encoding="utf-8") as out:
            rows = [json.dumps({"text": t, "ids": i}) for t, i in zip(texts, expected)]
            out.write("[\n" + ",\n".join(rows) + "\n]\n")
        return 0

    lines = "".join(json.dumps(text) + "\n" for text in texts)
    run = subprocess.run([args.binary, args.tokenizer], input=lines, capture_output=True, text=True,
                         encoding="utf-8", check=True)
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    if len(answers) != len(texts):
        print(f"FAILED: {len(texts)} texts sent, {len(answers)} answers")
        return 1
    failures = 0
    for text, ids, answer in zip(texts, expected, answers):
        decoded = reference.decode(ids, skip_special_tokens=False)
        plain_has_text = all(token not in text for token in added)
        if answer["match"] != ids or answer["text"] != decoded or (
                plain_has_text and answer["plain"] != ids):
            failures += 1
            if failures <= 10:
                print(f"text {json.dumps(text)}\n  expected {ids}\n  got      {answer}")
    print(f"{'FAILED' if failures else 'OK'}: {len(texts)} texts, {failures} differences, "
          f"tokenizers {tokenizers.__version__}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
