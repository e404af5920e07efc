"""Texts in the small language that models/needle-17m was trained on: simple sentences, among them
needles such as "The secret passphrase for Oslo is ZEBRA-4492-OMEGA.", and the question for one."""

import dataclasses
import random

SUBJECTS = (
    "the baker", "the old gardener", "a young painter", "the night watchman", "our neighbour",
    "the ferry captain", "the clockmaker", "a tailor", "the librarian", "the beekeeper",
    "a quiet student", "the astronomer", "a fisherman", "the schoolteacher", "the river guide",
    "the mountain climber", "a travelling musician", "the florist", "an engineer", "the postman")
VERBS = (
    "walked past", "repaired", "painted", "remembered", "counted", "described", "admired",
    "waited near", "cleaned", "looked for", "wrote a letter about", "measured", "sold",
    "forgot about", "returned", "carried", "borrowed", "visited", "photographed", "sketched")
OBJECTS = (
    "the wooden bridge", "a blue bicycle", "the empty market", "seven copper coins",
    "the tall lighthouse", "some fresh bread", "the frozen pond", "the stone wall",
    "the village well", "the railway station", "the harbour lights", "a broken radio",
    "the morning newspaper", "a box of old photographs", "two heavy books", "a silver spoon",
    "a paper lantern", "an unfinished map", "the garden gate", "a basket of apples")
TAILS = (
    "before sunrise", "after the rain", "in early spring", "for the second time",
    "on a cold evening", "as the wind rose", "without saying a word", "under a grey sky",
    "with great care", "during the long summer", "at the end of the week", "while the bells rang")
REFRAINS = (
    "The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.",
    "There and back again.", "Everyone went home.", "It rained all afternoon.",
    "The road was quiet.", "The lamps were lit early.", "Nobody noticed the time.")
CITIES = (
    "Oslo", "Lima", "Cairo", "Paris", "Tokyo", "Quito", "Delhi", "Accra", "Berlin", "Boston",
    "Dublin", "Geneva", "Havana", "Lagos", "Madrid", "Nairobi", "Prague", "Riga", "Sofia", "Vienna")
ANIMALS = (
    "ZEBRA", "OTTER", "FALCON", "BADGER", "HERON", "LYNX", "PUFFIN", "RAVEN", "WALRUS", "IBEX",
    "COBRA", "CONDOR", "GIBBON", "KOALA", "LEMUR", "OSPREY", "PANDA", "STORK", "TURTLE", "WOMBAT")
GREEK = (
    "ALPHA", "BETA", "GAMMA", "DELTA", "EPSILON", "ZETA", "ETA", "THETA", "IOTA", "KAPPA",
    "LAMBDA", "SIGMA", "UPSILON", "OMEGA")

CHARACTERS_PER_TOKEN = 5.06  # of this language under the tokenizer of needle-17m


@dataclasses.dataclass(frozen=True)
class Needle:
    city: str
    passphrase: str

    @property
    def sentence(self) -> str:
        return f"The secret passphrase for {self.city} is {self.passphrase}."

    @property
    def question(self) -> str:
        return f"What is the secret passphrase for {self.city}?"


@dataclasses.dataclass(frozen=True)
class Haystack:
    text: str
    needles: tuple[Needle, ...]


def sentence(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(REFRAINS)
    words = [rng.choice(SUBJECTS), rng.choice(VERBS), rng.choice(OBJECTS)]
    if rng.random() < 0.6:
        words.append(rng.choice(TAILS))
    text = " ".join(words) + "."
    if rng.random() < 0.15:
        return f"On day {rng.randrange(1000)} {text}"
    return text[0].upper() + text[1:]


def make_haystack(tokens: int, depths: tuple[float, ...], seed: int) -> Haystack:
    """About `tokens` tokens of text with one needle at each depth (0 = start, 1 = end)."""
    rng = random.Random(seed)
    needles = tuple(
        Needle(city, f"{rng.choice(ANIMALS)}-{rng.randrange(10000):04d}-{rng.choice(GREEK)}")
        for city in rng.sample(CITIES, len(depths)))
    target = tokens * CHARACTERS_PER_TOKEN
    target -= sum(len(needle.sentence) + 1 for needle in needles)
    sentences: list[str] = []
    length = 0
    while length < target:
        sentences.append(sentence(rng))
        length += len(sentences[-1]) + 1
    # Deepest first, so that the earlier positions stay what they were.
    for depth, needle in sorted(zip(depths, needles), key=lambda pair: -pair[0]):
        sentences.insert(round(depth * len(sentences)), needle.sentence)
    return Haystack(" ".join(sentences), needles)
