# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=15 lacks=prometheus
"""The dashboard and the alerts over what real daemons tell a real Prometheus: each query is answered, and those of
what has happened have values. promtool tells whether each alert fires by its series and is quiet without cause."""
import json
import os
import pathlib
import re
import socket
import subprocess
import unittest
import urllib.parse
import urllib.request

from outcome import leave
from world import HANG_S, wait_until, World

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "build/prometheus"
DASHBOARD, RULES = ROOT / "docker/grafana/cairn.json", ROOT / "docker/prometheus"
# Of what does not happen in this world: failures, keys that end, restores from other nodes, names of runs.
MAY_BE_EMPTY = re.compile(r"store_errors|retries_total|credential_expiry|retention_deleted|orphan_|range_read|end!~")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def queries():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")


class Written(unittest.TestCase):
    def test_the_dashboard_is_what_its_rows_say(self):
        subprocess.run([ROOT / "docker/grafana/make", "--check"], check=True, timeout=HANG_S)

    def test_the_dashboard_and_the_alerts_name_no_series_that_there_is_not(self):
        known = set()
        for part in ("server", "uploader"):
            known |= set(re.findall(r'^METRIC\w*\(\s*(?:\w+,\s*)*?"?(cairn_\w+)', (ROOT / part / "metrics.def").read_text(), re.M))
        page = (ROOT / "docs/metrics.md").read_text()
        known |= set(re.findall(r"^\| `(cairn_\w+)`", page, re.M))
        texts = [expression for _, expression in queries()] + [(RULES / "alerts.yml").read_text()]
        for name in {name for text in texts for name in re.findall(r"\bcairn_[a-z_]+\b", text)}:
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            self.assertIn(base, known, f"{name} is in no table of docs/metrics.md")


@unittest.skipUnless((PROGRAMS / "promtool").exists(), "Prometheus was not fetched (setup/extras.sh)")
class Real(unittest.TestCase):
    def test_each_alert_fires_by_its_series_and_is_quiet_without_cause(self):
        done = subprocess.run([PROGRAMS / "promtool", "test", "rules", "alerts.test.yml"], cwd=RULES, text=True,
                              capture_output=True, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        named = set(re.findall(r"alert: (\w+)", (RULES / "alerts.yml").read_text()))
        fired = re.findall(r"alertname: (\w+)\n        exp_alerts:\n", (RULES / "alerts.test.yml").read_text())
        self.assertEqual(set(fired), named)

    def test_each_query_of_the_dashboard_is_answered_by_a_real_prometheus(self):
        ports = [free_port(), free_port()]
        world = World(server_arguments=["--metrics-runs-max", "10"], uploader_arguments=["--metrics-listen", f"127.0.0.1:{ports[0]}"])
        self.addCleanup(world.close)
        world.cairn("bench", "save", "llm/7b", "--ranks", "2", "--bytes", "2MiB", "--steps", "3")
        world.cairn("bench", "restore", "llm/7b", "--ranks", "2", "--bytes", "2MiB", "--steps", "1")
        (world.root / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES / "alerts.yml")],
            "scrape_configs": [{"job_name": "cairn-server", "static_configs": [{"targets": [world.url.split("//")[1]]}]},
                               {"job_name": "cairn-uploader", "static_configs": [{"targets": [f"127.0.0.1:{ports[0]}"]}]}]}))
        prometheus = subprocess.Popen(
            [PROGRAMS / "prometheus", "--config.file", world.root / "prometheus.yml", "--storage.tsdb.path", world.root / "tsdb",
             "--web.listen-address", f"127.0.0.1:{ports[1]}"], stdout=subprocess.DEVNULL,
            stderr=open(world.root / "prometheus.log", "wb"), env={**os.environ, "GOMAXPROCS": "1"})
        self.addCleanup(lambda: (prometheus.terminate(), prometheus.wait(HANG_S)))
        base = f"http://127.0.0.1:{ports[1]}/api/v1"

        def ask(path, **query):
            with urllib.request.urlopen(f"{base}/{path}?{urllib.parse.urlencode(query)}", timeout=HANG_S) as answer:
                said = json.load(answer)
            self.assertEqual(said["status"], "success", said)
            return said["data"]

        def scraped():
            try:
                found = ask("query", query="min(count_over_time(up[1m])) >= 4 and sum(up) == 2")
            except OSError:
                return False
            return found["result"]
        wait_until(scraped)
        for title, query in queries():
            found = ask("query", query=query)["result"]
            self.assertTrue(found or MAY_BE_EMPTY.search(query), f"{title}: {query}: no value")
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        self.assertEqual([rule for rule in rules if rule["health"] == "err"], [])
        self.assertEqual([rule["name"] for rule in rules if rule.get("state") == "firing"], [])


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
