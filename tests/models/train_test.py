"""Training of models/needle-17m: its texts, its checkpoint format, and its forward pass."""

import importlib.util
import pathlib
import random
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)  # ctest: skipped

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/needle-17m"
sys.path.insert(0, str(MODEL / "train"))

import checkpoint  # noqa: E402
from checkpoint import Tensor  # noqa: E402
from data import MIN_TOKENS, ExampleMaker, make_batch  # noqa: E402
from tokenizer import BOS, EOS, USER, Tokenizer  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None
NEEDS_TORCH = "PyTorch is not installed; it is too large for this suite (models/needle-17m/train/README.md)"
EOS_TEXT = "<｜end▁of▁sentence｜>"


class Texts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tokenizer = Tokenizer(MODEL / "tokenizer.json")
        cls.maker = ExampleMaker(cls.tokenizer)

    def examples(self):
        for seed in range(60):
            rng = random.Random(seed)
            yield self.maker.make(rng.choice((MIN_TOKENS, 65, 100, 257, 700)), rng)

    def test_tokens_are_those_of_the_tokenizers_package(self):
        from tokenizers import Tokenizer as Oracle
        oracle = Oracle.from_file(str(MODEL / "tokenizer.json"))
        texts = [self.tokenizer.decode(example.ids[2:]) for example in self.examples()]
        texts += ["", " ", "a  b\n\n c\t", "x1234567y 89", "?!\n\n(no)\r\n\x7f \x01", "It's -OMEGA. \n\nWhat"]
        for text in texts:
            self.assertEqual([id for part in text.split(EOS_TEXT) for id in self.without_control(part)],
                             [id for part in text.split(EOS_TEXT) for id in self.without_control(part, oracle)])

    def without_control(self, text: str, oracle=None) -> list[int]:
        """Ids of the text between control tokens, which the trainer places by id."""
        ids = []
        for part in text.replace("<｜User｜>", "\0").replace("<｜Assistant｜></think>", "\0").split("\0"):
            ids += oracle.encode(part, add_special_tokens=False).ids if oracle else self.tokenizer.encode(part)
        return ids

    def test_text_that_is_not_ascii_is_refused(self):
        with self.assertRaisesRegex(ValueError, "not ASCII"):
            self.tokenizer.encode("Malmö")

    def test_an_example_is_as_its_whole_text_would_be_encoded(self):
        for example in self.examples():
            ids = example.ids
            self.assertEqual(ids[:2], [BOS, USER])
            # The front may be cut inside a word, so whole sentences are looked at.
            text = self.tokenizer.decode(ids)
            body = text[text.index(". ") + 1:] if ". " in text else ""
            encoded = [id for part in body.split(EOS_TEXT) for id in self.without_control(part)]
            plain = [id for id in ids if id > 7]
            self.assertEqual(plain[len(plain) - len(encoded):], encoded)

    def test_an_answer_is_the_passphrase_that_the_text_gives_for_the_city_asked(self):
        for example in self.examples():
            self.assertEqual(len(example.ids), len(example.is_answer))
            self.assertTrue(example.is_answer[-1])
            text = self.tokenizer.decode(example.ids)
            answers = 0
            for turn in text.split("What is the secret passphrase for ")[1:]:
                city, answer = turn.split("?<｜Assistant｜></think>")
                answer = answer.split(EOS_TEXT)[0]
                self.assertEqual(text.count(f"The secret passphrase for {city} is {answer}."), 1, text)
                answers += len(self.tokenizer.encode(answer)) + 1
            self.assertEqual(sum(example.is_answer), answers)
            self.assertEqual(example.ids[-1], EOS)

    def test_a_seed_gives_the_same_batch_and_another_seed_another(self):
        batch = make_batch(self.maker, 128, 4, "a")
        self.assertEqual(batch, make_batch(self.maker, 128, 4, "a"))
        self.assertNotEqual(batch, make_batch(self.maker, 128, 4, "b"))
        self.assertNotEqual(batch[0], batch[1])

    def test_an_example_without_room_for_a_needle_is_refused(self):
        with self.assertRaisesRegex(ValueError, "at least 64"):
            self.maker.make(MIN_TOKENS - 1, random.Random(0))


class Format(unittest.TestCase):
    def test_fp8_codes_are_nearest_with_ties_to_even(self):
        row = np.zeros((128, 128), np.float32)
        # With 448 in the block the scale is 1. 17 lies between 16 and 18, 19 between 18 and 20.
        row[0, :9] = [448, 1, -1, 17, 19, 0.5, 2.0**-9, 2.0**-10, -300]
        packed = checkpoint.pack_fp8("w", row)
        self.assertEqual(packed["w.scale"].array.tolist(), [[127]])
        self.assertEqual(packed["w.weight"].array[0, :9].tolist(),
                         [0x7E, 0x38, 0xB8, 0x58, 0x5A, 0x30, 0x01, 0x00, 0xF9])

    def test_fp4_codes_are_nearest_with_ties_to_even_and_the_even_column_low(self):
        row = np.zeros((1, 32), np.float32)
        row[0, :8] = [6, 5, -2.5, 0.25, 0.75, 1.75, -1.25, 3.5]
        packed = checkpoint.pack_fp4("w", row)
        self.assertEqual(packed["w.scale"].array.tolist(), [[127]])
        self.assertEqual(packed["w.weight"].array[0, :4].tolist(), [0x67, 0x0C, 0x42, 0x6A])

    def test_packing_again_changes_no_value(self):
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((256, 384), np.float32) * np.exp2(rng.integers(-6, 6, (256, 1)))
        for pack, unpack in ((checkpoint.pack_fp8, checkpoint.unpack_fp8),
                             (checkpoint.pack_fp4, checkpoint.unpack_fp4)):
            once = unpack(*pack("w", weight.astype(np.float32)).values())
            self.assertTrue((unpack(*pack("w", once).values()) == once).all())

    def test_the_carried_checkpoint_keeps_its_values_through_packing(self):
        tensors = checkpoint.read(MODEL)
        for name in (f"layers.2.{part}" for part in ("attn.wq_b", "attn.wo_a", "ffn.experts.0.w1", "ffn.experts.5.w2")):
            weight, scale = tensors[f"{name}.weight"], tensors[f"{name}.scale"]
            is_fp8 = weight.dtype == "F8_E4M3"
            unpack = checkpoint.unpack_fp8 if is_fp8 else checkpoint.unpack_fp4
            values = unpack(weight, scale)
            packed = (checkpoint.pack_fp8 if is_fp8 else checkpoint.pack_fp4)(name, values)
            for kind, original in (("weight", weight), ("scale", scale)):
                self.assertEqual(packed[f"{name}.{kind}"].dtype, original.dtype)
                self.assertEqual(packed[f"{name}.{kind}"].array.shape, original.array.shape)
            self.assertTrue((unpack(*packed.values()) == values).all(), name)

    def test_what_is_written_is_read_again(self):
        tensors = checkpoint.read(MODEL)
        shards = [{n: t for n, t in tensors.items() if n.startswith("mtp.") is second} for second in (False, True)]
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.write(pathlib.Path(folder), shards)
            again = checkpoint.read(pathlib.Path(folder))
            total = sum((pathlib.Path(folder) / f).stat().st_size for f in ("model-00001-of-00002.safetensors",
                                                                            "model-00002-of-00002.safetensors"))
        self.assertLess(total, 20_000_000)
        self.assertEqual(set(again), set(tensors))
        for name, tensor in tensors.items():
            self.assertEqual(again[name].dtype, tensor.dtype)
            self.assertTrue((again[name].array == tensor.array).all(), name)

    def test_values_that_bf16_does_not_hold_are_refused(self):
        with self.assertRaisesRegex(ValueError, "not BF16"):
            checkpoint.pack_bf16(np.array([1 + 2.0**-10], np.float32))

    def test_a_shape_without_whole_blocks_is_refused_by_name(self):
        with self.assertRaisesRegex(ValueError, "w: shape .*128"):
            checkpoint.pack_fp8("w", np.zeros((128, 100), np.float32))
        with self.assertRaisesRegex(ValueError, "w: 40 columns"):
            checkpoint.pack_fp4("w", np.zeros((1, 40), np.float32))

    def test_an_array_of_another_type_is_not_written(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "x: int64"):
            checkpoint.write(pathlib.Path(folder), [{"x": Tensor("I32", np.zeros(3, np.int64))}])


@unittest.skipUnless(HAS_TORCH, NEEDS_TORCH)
class Module(unittest.TestCase):
    def test_short_prompts_have_the_logits_of_the_reference_to_six_digits(self):
        import export
        import golden
        model = export.read(MODEL).eval()
        tensors = checkpoint.read_file(golden.FILE)
        for name in ("n1", "n3", "n7"):
            ratios, _, same = golden.compare_case(model, tensors, name, "cpu")
            self.assertLess(ratios[0], 1e-6)
            self.assertTrue(same)

    def test_a_few_steps_give_the_carried_checkpoints_tensors_and_the_same_logits(self):
        import export
        import train
        with tempfile.TemporaryDirectory() as folder:
            sys.argv = ["train.py", "--out", folder, "--plan", "tiny", "--steps", "3", "--device", "cpu"]
            self.assertEqual(train.main(), 0)
            trained, carried = checkpoint.read(pathlib.Path(folder)), checkpoint.read(MODEL)
        self.assertEqual({n: (t.dtype, t.array.shape) for n, t in trained.items()},
                         {n: (t.dtype, t.array.shape) for n, t in carried.items()})


if __name__ == "__main__":
    unittest.main()
