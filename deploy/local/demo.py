"""Serves models/needle-17m from a router, two prefill and two decode processes and asks them for
needles. Exits with 0 only if every answer is right. Run by `make demo`."""

import argparse
import http.client
import json
import pathlib
import sys
import time
import urllib.parse

import haystack
from cluster import Cluster, ClusterError

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN = not sys.stdout.isatty()


def styled(text: str, code: str) -> str:
    return text if PLAIN else f"\033[{code}m{text}\033[0m"


def stream_chat(url: str, model: str, messages: list[dict]) -> tuple[str, dict]:
    """The streamed answer, printed as it comes, and figures about how it was served."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
    body = {"model": model, "messages": messages, "stream": True, "temperature": 0,
            "max_tokens": 24, "stream_options": {"include_usage": True}}
    started = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise ClusterError(f"HTTP {response.status}: {response.read().decode()}")
    answer, arrivals, last = "", [], {}
    for line in response:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        last = json.loads(line[len(b"data: "):])
        for choice in last["choices"]:
            delta = choice["delta"].get("content") or ""
            if delta:
                arrivals.append(time.monotonic())
                print(styled(delta, "32"), end="", flush=True)
                answer += delta
    print()
    usage = last["usage"]
    span = arrivals[-1] - arrivals[0] if arrivals else 0.0
    figures = dict(last["baton"], prompt_tokens=usage["prompt_tokens"],
                   cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
                   ttft_ms=(arrivals[0] - started) * 1e3 if arrivals else float("nan"),
                   tpot_ms=span * 1e3 / max(1, usage["completion_tokens"] - 1))
    return answer.strip(), figures


def ask(cluster: Cluster, model: str, messages: list[dict], needle: haystack.Needle) -> bool:
    print(f"  {needle.question} ", end="", flush=True)
    answer, figures = stream_chat(cluster.url, model, messages)
    names = {p.addresses["grpc"]: p.name for p in cluster.processes}
    route = names[figures["decode_worker"]]
    if figures["prefill_worker"]:  # null: a short rest of a cached prompt is not handed over
        route = f"{names[figures['prefill_worker']]} -> {route}"
    print(f"    {figures['prompt_tokens']:,} prompt tokens, {figures['cached_tokens']:,} of them "
          f"cached, {route}, "
          f"TTFT {figures['ttft_ms']:,.0f} ms, {figures['tpot_ms']:.1f} ms per output token, "
          f"{figures['handoff_bytes']:,} bytes handed over")
    if answer != needle.passphrase:
        print(styled(f"    WRONG: expected {needle.passphrase}, got {answer!r}", "31"))
    messages.append({"role": "assistant", "content": answer})
    return answer == needle.passphrase


def run(cluster: Cluster, model: str, tokens: int) -> bool:
    print(f"\nOne needle in about {tokens:,} tokens:")
    text = haystack.make_haystack(tokens, (0.35,), seed=7)
    [needle] = text.needles
    prompt = [{"role": "user", "content": f"{text.text}\n\n{needle.question}"}]
    right = ask(cluster, model, prompt, needle)

    print("\nA conversation of three turns over another haystack:")
    text = haystack.make_haystack(tokens, (0.1, 0.5, 0.9), seed=11)
    conversation: list[dict] = []
    for turn, needle in enumerate(text.needles):
        context = f"{text.text}\n\n" if turn == 0 else ""
        conversation.append({"role": "user", "content": context + needle.question})
        right &= ask(cluster, model, conversation, needle)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=pathlib.Path, required=True,
                        help="folder with baton-router, baton-prefill and baton-decode")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/needle-17m")
    parser.add_argument("--tokens", type=int, default=4500, help="length of the haystacks")
    arguments = parser.parse_args()
    try:
        print("Starting 1 router, 2 prefill and 2 decode workers ...", flush=True)
        with Cluster(arguments.binaries, arguments.model, prefill=2, decode=2) as cluster:
            print(f"OpenAI API at {cluster.url}/v1, gRPC at {cluster.router.addresses['grpc']}")
            right = run(cluster, arguments.model.name, arguments.tokens)
    except ClusterError as error:
        print(styled(f"FAILED: {error}", "31"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(styled("\nInterrupted; no process of the cluster is left.", "31"), file=sys.stderr)
        return 130  # as a shell has it of programs that SIGINT ends
    print(styled("\nAll answers right; every process drained and exited with 0." if right
                 else "\nFAILED: an answer was wrong.", "32" if right else "31"))
    print(f"By hand: {arguments.binaries}/baton up --model-dir={arguments.model}, then baton chat")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
