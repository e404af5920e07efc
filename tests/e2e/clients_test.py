"""Clients that were not written for us: the OpenAI Python package and grpcio with health checking
and reflection."""

import math
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

import haystack  # noqa: E402
from cluster import Cluster  # noqa: E402

try:
    import grpc
    import openai
    from google.protobuf import descriptor_pool, message_factory
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase)
except ImportError as error:
    raise unittest.SkipTest(f"{error}; see tests/requirements.txt") from None

MODEL = ROOT / "models/needle-17m"
TEXT = haystack.make_haystack(700, (0.3, 0.7), seed=3)


def setUpModule():
    global cluster
    cluster = Cluster(pathlib.Path(os.environ["BATON_BINARIES"]), MODEL).__enter__()
    unittest.addModuleCleanup(cluster.stop)


class OpenAiPackage(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=cluster.url + "/v1", api_key="unused", max_retries=0)

    def ask(self, needle, **options):
        messages = [{"role": "user", "content": f"{TEXT.text}\n\n{needle.question}"}]
        return self.client.chat.completions.create(
            model=MODEL.name, messages=messages, temperature=0, max_tokens=24, **options)

    def test_chat_completion(self):
        for needle in TEXT.needles:
            completion = self.ask(needle)
            self.assertEqual(completion.choices[0].message.content, needle.passphrase)
            self.assertEqual(completion.choices[0].finish_reason, "stop")
            self.assertEqual(completion.usage.total_tokens,
                             completion.usage.prompt_tokens + completion.usage.completion_tokens)

    def test_streamed_chat_completion(self):
        needle = TEXT.needles[0]
        chunks = list(self.ask(needle, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, needle.passphrase)
        self.assertGreater(len(chunks), 3)
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})
        self.assertEqual(chunks[-1].choices, [])
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    def test_completion(self):
        completion = self.client.completions.create(
            model=MODEL.name, prompt="The sky is", max_tokens=5, temperature=0)
        self.assertEqual(completion.choices[0].finish_reason, "length")
        self.assertEqual(completion.usage.completion_tokens, 5)

    def test_a_stop_string_ends_the_text_and_nothing_else(self):
        def repeat(prompt, **options):
            return self.client.completions.create(model=MODEL.name, prompt=prompt, temperature=0,
                                                  logit_bias={"77": 100}, **options)
        word = repeat("The sky is", max_tokens=1).choices[0].text
        completion = repeat("No other test has this prompt", max_tokens=9, stop=word * 3)
        self.assertEqual(completion.choices[0].text, "")
        self.assertEqual(completion.choices[0].finish_reason, "stop")
        self.assertEqual(completion.usage.completion_tokens, 3)
        served = completion.model_extra["baton"]
        self.assertGreater(served["handoff_bytes"], 0)
        self.assertIsNotNone(served["prefill_worker"])
        self.assertGreater(served["prefill_ms"], 0)

    def test_same_seed_same_text(self):
        texts = [self.client.completions.create(
            model=MODEL.name, prompt="The", max_tokens=20, temperature=1, seed=5).choices[0].text
            for _ in range(2)]
        self.assertEqual(texts[0], texts[1])

    def test_choices_are_what_their_seeds_give_alone(self):
        options = {"model": MODEL.name, "prompt": "The", "max_tokens": 12, "temperature": 1}
        alone = [self.client.completions.create(seed=seed, **options) for seed in (5, 6, 7)]
        together = self.client.completions.create(seed=5, n=3, **options)
        self.assertEqual([choice.index for choice in together.choices], [0, 1, 2])
        self.assertEqual([choice.text for choice in together.choices],
                         [completion.choices[0].text for completion in alone])
        self.assertEqual(together.usage.prompt_tokens, alone[0].usage.prompt_tokens)
        self.assertEqual(together.usage.completion_tokens,
                         sum(completion.usage.completion_tokens for completion in alone))
        texts = ["", "", ""]
        for chunk in self.client.completions.create(seed=5, n=3, stream=True, **options):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        self.assertEqual(texts, [choice.text for choice in together.choices])

    # 77 is any token of text, 1024 is one more than there are.
    def test_biases_force_and_ban_tokens_and_penalties_make_repeats_rarer(self):
        def ask(prompt="The sky is", **options):
            options = {"max_tokens": 40, "temperature": 0, "logprobs": 0,
                       "extra_body": {"ignore_eos": True}} | options
            return self.client.completions.create(
                model=MODEL.name, prompt=prompt, **options).choices[0].logprobs.tokens
        forced = ask(logit_bias={"77": 100})
        self.assertEqual(len(set(forced)), 1)
        self.assertEqual(len(forced), 40)
        self.assertNotIn(forced[0], ask(logit_bias={"77": -100}, prompt="".join(forced)))
        plain = ask()
        for options in ({"presence_penalty": 2}, {"frequency_penalty": 2},
                        {"extra_body": {"ignore_eos": True, "repetition_penalty": 2}}):
            self.assertGreater(len(set(ask(**options))), len(set(plain)), options)
        with self.assertRaisesRegex(openai.BadRequestError, "logit_bias has the token id 1024"):
            ask(logit_bias={"1024": 1})

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL.name])
        self.assertEqual(self.client.models.retrieve(MODEL.name).id, MODEL.name)

    def test_errors_arrive_as_the_exceptions_of_the_package(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.completions.create(model="no-such-model", prompt="x")
        self.assertEqual(raised.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.completions.create(model=MODEL.name, prompt="x", temperature=-1)
        self.assertEqual(raised.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.completions.create(model=MODEL.name, prompt="x", n=17)
        self.assertEqual(raised.exception.param, "n")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.chat.completions.create(
                model=MODEL.name, messages=[{"role": "user", "content": "x"}],
                max_completion_tokens=2**31 - 1)
        self.assertEqual(raised.exception.param, "max_completion_tokens")
        self.assertEqual(raised.exception.code, "context_length_exceeded")

    def test_a_closed_stream_cancels_the_request(self):
        stream = self.client.completions.create(model=MODEL.name, prompt="The", max_tokens=4000,
                                                temperature=0, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        # The cluster is free again: the next request is served at once.
        self.test_completion()


class LogprobsOfTheOpenAiPackage(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=cluster.url + "/v1", api_key="unused", max_retries=0)

    def chat(self, **options):
        options = {"temperature": 0, "logprobs": True, "top_logprobs": 5} | options
        messages = [{"role": "user", "content": f"{TEXT.text}\n\n{TEXT.needles[0].question}"}]
        return self.client.chat.completions.create(
            model=MODEL.name, messages=messages, max_tokens=24, **options)

    def complete(self, **options):
        options = {"temperature": 0, "logprobs": 5} | options
        return self.client.completions.create(
            model=MODEL.name, prompt="The sky is", max_tokens=12, **options)

    def test_a_greedy_chat_takes_the_likeliest_token_each_time(self):
        choice = self.chat().choices[0]
        self.assertEqual(b"".join(bytes(token.bytes) for token in choice.logprobs.content).decode(),
                         choice.message.content)
        for token in choice.logprobs.content:
            values = [other.logprob for other in token.top_logprobs]
            self.assertEqual(len(values), 5)
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLessEqual(sum(map(math.exp, values)), 1 + 1e-5)
            best = token.top_logprobs[0]
            self.assertEqual((token.token, token.logprob, token.bytes),
                             (best.token, best.logprob, best.bytes))

    # The first is computed by the prefill worker, the second found in the decode worker's cache.
    def test_streamed_or_not_handed_over_or_cached_they_are_the_same(self):
        expected = self.chat().choices[0].logprobs.content
        streamed = []
        for chunk in self.chat(stream=True):
            logprobs = chunk.choices[0].logprobs
            if logprobs is not None:
                streamed += logprobs.content
        self.assertEqual(streamed, expected)

    def test_sampling_changes_the_tokens_but_not_what_the_values_mean(self):
        greedy = self.complete().choices[0].logprobs.top_logprobs[0]
        hot = self.complete(temperature=1.5, seed=4).choices[0].logprobs.top_logprobs[0]
        self.assertEqual({token: hot[token] for token in greedy}, greedy)

    def test_completions_have_their_older_format(self):
        choice = self.complete().choices[0]
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), choice.text)
        self.assertEqual(len(logprobs.tokens), 12)
        for token, value, top, offset in zip(logprobs.tokens, logprobs.token_logprobs,
                                             logprobs.top_logprobs, logprobs.text_offset):
            self.assertEqual(choice.text[offset:offset + len(token)], token)
            self.assertEqual(top[token], value)
            self.assertEqual(max(top.values()), value)
        lists = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for chunk in self.complete(stream=True):
            for name, values in lists.items():
                if chunk.choices[0].logprobs is not None:
                    values += getattr(chunk.choices[0].logprobs, name)
        self.assertEqual(lists, {name: getattr(logprobs, name) for name in lists})

    def test_what_cannot_be_given_is_refused_by_name(self):
        for ask, param, options in ((self.chat, "top_logprobs", {"top_logprobs": 21}),
                                    (self.chat, "top_logprobs", {"logprobs": False}),
                                    (self.complete, "logprobs", {"logprobs": 6}),
                                    (self.complete, "echo", {"echo": True})):
            with self.assertRaises(openai.BadRequestError) as raised:
                ask(**options)
            self.assertEqual(raised.exception.param, param)


class GrpcClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.channel = grpc.insecure_channel(cluster.router.addresses["grpc"])
        cls.addClassCleanup(cls.channel.close)
        cls.pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(cls.channel))

    def message(self, name: str):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"baton.v1.{name}"))

    def test_reflection_lists_the_services(self):
        services = ProtoReflectionDescriptorDatabase(self.channel).get_services()
        self.assertIn("baton.v1.Inference", services)
        self.assertIn("grpc.health.v1.Health", services)

    def test_health_is_serving(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        for service in ("", "baton.v1.Inference"):
            reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            self.assertEqual(reply.status, health_pb2.HealthCheckResponse.SERVING)

    def generate(self, request):
        call = self.channel.unary_stream(
            "/baton.v1.Inference/Generate",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self.message("GenerateResponse").FromString)
        return list(call(request, timeout=60))

    def test_generate_streams_the_answer(self):
        needle = TEXT.needles[1]
        request = self.message("GenerateRequest")(model=MODEL.name)
        request.chat.messages.add(role="user", content=f"{TEXT.text}\n\n{needle.question}")
        request.sampling.temperature = 0
        request.sampling.max_tokens = 24
        replies = self.generate(request)
        self.assertEqual("".join(reply.text for reply in replies), needle.passphrase)
        self.assertGreater(replies[-1].served_by.handoff_bytes, 0)

    def test_generate_gives_logprobs_of_its_tokens(self):
        request = self.message("GenerateRequest")(model=MODEL.name, prompt="The sky is")
        request.sampling.temperature = 0
        request.sampling.max_tokens = 12
        request.sampling.top_logprobs = 0
        replies = self.generate(request)
        self.assertEqual([place.chosen.token_id for reply in replies for place in reply.logprobs],
                         [token for reply in replies for token in reply.token_ids])

    def test_errors_are_statuses(self):
        request = self.message("GenerateRequest")(model="no-such-model", prompt="x")
        with self.assertRaises(grpc.RpcError) as raised:
            self.generate(request)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn("no-such-model", raised.exception.details())


if __name__ == "__main__":
    unittest.main()
