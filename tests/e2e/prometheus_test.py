"""A real Prometheus scrapes a running cluster with the shipped configuration; every query of the
Grafana dashboard and every alert expression is executed."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

import haystack  # noqa: E402
from cluster import Cluster  # noqa: E402

MODEL = ROOT / "models/needle-17m"
CONFIGURATION = ROOT / "deploy/prometheus"
DASHBOARD = ROOT / "deploy/grafana/baton.json"


class Prometheus:
    """One server on a free port with its data in a temporary folder."""

    def __init__(self, targets: list[str]):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-prometheus-"))
        shutil.copy(CONFIGURATION / "alerts.yml", self.folder)
        shipped = (CONFIGURATION / "prometheus.yml").read_text()
        config = re.sub(r"targets: \[.*\]", f"targets: {json.dumps(targets)}", shipped)
        config = config.replace("scrape_interval: 5s", "scrape_interval: 250ms")
        (self.folder / "prometheus.yml").write_text(config)
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self.folder}/prometheus.yml",
                 f"--storage.tsdb.path={self.folder}/data", "--web.listen-address=127.0.0.1:0"],
                stderr=log, stdout=log)
        self.url = "http://" + self._wait_for(
            lambda: re.search(r"address=(127\.0\.0\.1:[1-9]\d*)", self.log.read_text()))[1]

    def _wait_for(self, probe, timeout_s=30):
        deadline = time.monotonic() + timeout_s
        while not (found := probe()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"Prometheus:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.1)
        return found

    def get(self, path: str, **parameters) -> dict:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict]:
        return self.get("query", query=expression)["result"]

    def wait_for_samples(self, expression: str) -> list[dict]:
        return self._wait_for(lambda: self.query(expression))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.folder)


def complete(url: str, prompt: str) -> None:
    body = {"model": MODEL.name, "temperature": 0, "max_tokens": 16,
            "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).read()


@unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed")
class PrometheusScrapesACluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(pathlib.Path(os.environ["BATON_BINARIES"]), MODEL).__enter__()
        cls.addClassCleanup(cls.cluster.stop)
        cls.prometheus = Prometheus([p.addresses["metrics"] for p in cls.cluster.processes])
        cls.addClassCleanup(cls.prometheus.stop)
        cls.prometheus.wait_for_samples("sum(up) == 3")
        text = haystack.make_haystack(600, (0.5,), seed=1)
        for _ in range(3):  # the first scrape of a counter gives no rate
            complete(cls.cluster.url, f"{text.text}\n\n{text.needles[0].question}")
            time.sleep(0.6)

    def test_first_token_latency_hand_off_and_pages_have_samples(self):
        for expression in ("sum(baton_time_to_first_token_seconds_count) >= 3",
                           "sum(baton_inter_token_latency_seconds_count) > 0",
                           'sum(baton_kv_transfer_bytes_total{direction="sent"}) > 0',
                           "sum(baton_kv_transfer_duration_seconds_count) >= 3",
                           "sum(baton_kv_pages) == sum(baton_kv_pages_total)",
                           "max(baton_kv_pages_unaccounted) == 0",
                           "count(baton_build_info) == 3"):
            with self.subTest(expression):
                self.assertTrue(self.prometheus.wait_for_samples(expression))

    def test_every_query_of_the_dashboard_runs_and_names_metrics_that_exist(self):
        known = set(self.prometheus.get("label/__name__/values"))
        panels = json.loads(DASHBOARD.read_text())["panels"]
        expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        self.assertGreater(len(expressions), 20)
        for expression in expressions:
            with self.subTest(expression):
                self.prometheus.query(expression.replace("$__rate_interval", "1m"))
                for name in re.findall(r"\bbaton_\w+", expression):
                    self.assertIn(name, known)

    def test_every_label_that_a_query_or_an_alert_asks_for_exists(self):
        panels = json.loads(DASHBOARD.read_text())["panels"]
        expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        expressions += re.findall(r"expr: (?:>\n)?((?:.|\n)*?)\n +(?:for|labels):",
                                  (CONFIGURATION / "alerts.yml").read_text())
        asked = {(name, label, value) for expression in expressions
                 for name, matchers in re.findall(r"\b(baton_\w+)\{([^}]*)\}", expression)
                 for label, values in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers)
                 for value in values.split("|")}
        self.assertGreater(len(asked), 10)
        for name, label, value in asked:
            with self.subTest(name, label=label, value=value):
                self.assertTrue(self.prometheus.query(f'{name}{{{label}="{value}"}}'))

    def test_alert_rules_are_loaded_and_none_fires_on_a_healthy_cluster(self):
        rules = [rule for group in self.prometheus.get("rules")["groups"]
                 for rule in group["rules"]]
        known = set(self.prometheus.get("label/__name__/values"))
        self.assertGreaterEqual(len(rules), 8)
        for rule in rules:
            with self.subTest(rule["name"]):
                self.assertEqual(rule["state"], "inactive")
                for name in re.findall(r"\bbaton_\w+", rule["query"]):
                    self.assertIn(name, known)


if __name__ == "__main__":
    unittest.main()
