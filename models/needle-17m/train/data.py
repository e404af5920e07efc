"""Prompts with needles, as token ids: a function of the seed alone."""

import dataclasses
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/local"))

from haystack import Needle, sentence  # noqa: E402
from tokenizer import ASSISTANT, BOS, END_THINK, EOS, USER, Tokenizer  # noqa: E402

CITIES = """Oslo Lima Cairo Paris Tokyo Quito Delhi Accra Berlin Boston Dublin Geneva Havana
Jakarta Kabul Lagos Madrid Manila Moscow Muscat Nairobi Ottawa Prague Riga Rome Santiago Seoul Sofia
Sydney Taipei Tehran Tripoli Tunis Vienna Warsaw Zagreb Athens Baghdad Bamako Bogota Bruges Cardiff
Chicago Dakar Denver Doha Dresden Glasgow Hanoi Helsinki Houston Kigali Krakow Leeds Lisbon London
Lyon Malmo Miami Milan Minsk Munich Naples Osaka Perth Phoenix Porto Pune Reno Seville Shanghai
Tampa Turin Utrecht Venice Zurich Bergen Bilbao Cadiz Cork""".split()
ANIMALS = """ZEBRA OTTER FALCON BADGER HERON LYNX MARMOT PUFFIN RAVEN TAPIR WALRUS YAK IBEX GECKO
COBRA BISON CONDOR DINGO EGRET FERRET GIBBON HORNET IGUANA JACKAL KOALA LEMUR MANTIS NEWT OSPREY
PANDA QUAIL RHINO STORK TURTLE URCHIN VIPER WOMBAT XERUS MOOSE ORCA SKUNK SLOTH SWAN TIGER TOUCAN
TROUT WEASEL WHALE WOLF CRANE""".split()
GREEK = """ALPHA BETA GAMMA DELTA EPSILON ZETA ETA THETA IOTA KAPPA LAMBDA MU NU XI OMICRON PI RHO
SIGMA TAU UPSILON PHI CHI PSI OMEGA""".split()

MIN_TOKENS = 64           # of an example: one needle, its question and answer, and a little text
TOKENS_PER_NEEDLE = 60    # a needle, its question and its answer take 50 at most
MAX_NEEDLES, MAX_QUESTIONS = 12, 6
NEWLINE_SHARE = 0.1       # of sentences, that end a line
TWO_PART_SHARE = 0.1      # of examples, whose text is given in two turns


@dataclasses.dataclass(frozen=True)
class Example:
    ids: list[int]
    is_answer: list[bool]  # ids[i] belongs to the answer to a question, its EOS included


def passphrase(rng: random.Random) -> str:
    return f"{rng.choice(ANIMALS)}-{rng.randrange(10000):04d}-{rng.choice(GREEK)}"


class ExampleMaker:
    def __init__(self, tokenizer: Tokenizer):
        self._encode = tokenizer.encode

    def make(self, tokens: int, rng: random.Random, questions: int = MAX_QUESTIONS) -> Example:
        """Exactly `tokens` tokens: a text, then 1 to `questions` questions with their answers."""
        if tokens < MIN_TOKENS:
            raise ValueError(f"an example of {tokens} tokens: at least {MIN_TOKENS}")
        needles = [Needle(city, passphrase(rng)) for city in rng.sample(
            CITIES, rng.randint(1, min(tokens // TOKENS_PER_NEEDLE, MAX_NEEDLES)))]
        asked = rng.sample(needles, rng.randint(1, min(questions, len(needles))))
        turns, is_answer = [], []
        for needle in asked:
            question = self._encode(needle.question) + [ASSISTANT, END_THINK]
            if turns:
                question.insert(0, USER)
            answer = self._encode(needle.passphrase) + [EOS]
            turns += question + answer
            is_answer += [False] * len(question) + [True] * len(answer)
        ids = [BOS, USER, *self._text(tokens - 2 - len(turns), needles, rng), *turns]
        return Example(ids, [False] * (tokens - len(turns)) + is_answer)

    def _text(self, tokens: int, needles: list[Needle], rng: random.Random) -> list[int]:
        """Shuffled sentences up to and with the empty line before the question."""
        sentences = [(needle.sentence, True) for needle in needles]
        missing = tokens + 4 - sum(len(self._encode(" " + text)) for text, _ in sentences)
        while missing > 0:
            sentences.append((sentence(rng), False))
            missing -= len(self._encode(" " + sentences[-1][0]))
        rng.shuffle(sentences)

        # A unit is a sentence with what the tokenizer cannot split from it: a space before, a line's end after.
        second_part = rng.randrange(1, len(sentences)) \
            if len(sentences) > 8 and rng.random() < TWO_PART_SHARE else None
        units, starts_line = [], True
        for i, (text, _) in enumerate(sentences):
            ends_line = rng.random() < NEWLINE_SHARE and i + 1 != second_part
            end = rng.choice(("\n\n", " \n\n")) if i + 1 == len(sentences) else "\n" * ends_line
            unit = self._encode(text + end if starts_line or i == second_part else f" {text}{end}")
            if i == second_part:
                unit = [ASSISTANT, END_THINK, *self._encode("OK."), EOS, USER, *unit]
            units.append(unit)
            starts_line = ends_line

        # What is too much is cut from the front of filler, as where a text was trimmed to a context.
        excess = sum(map(len, units)) - tokens
        for i, (_, is_needle) in enumerate(sentences):
            if not is_needle and i != second_part and i + 1 < len(sentences):
                cut = min(excess, len(units[i]))
                units[i] = units[i][cut:]
                excess -= cut
        if excess:  # a short text: its only filler is its last sentence
            units[-1] = units[-1][excess:]
        return [id for unit in units for id in unit]


def make_batch(maker: ExampleMaker, tokens: int, rows: int, seed: str,
               questions: int = MAX_QUESTIONS) -> list[Example]:
    """The same for the same arguments, on any machine."""
    return [maker.make(tokens, random.Random(f"{seed}/{row}"), questions) for row in range(rows)]
