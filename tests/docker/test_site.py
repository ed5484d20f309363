# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker seconds=240 thirds=6
"""docker/compose.yaml brought up whole: a job that was killed resumes, and what breaks in a site of containers
loses no save: killed trainers, a cut network, a newer server, stops, other host names, memory limits."""
import contextlib
import json
import os
import re
import socket
import subprocess
import time
import urllib.parse

import engine
from engine import docker, inspect, wait_until

PROJECT = "cairntest"
SERVICES = ("postgres", "s3", "server-a", "server-b", "uploader", "prometheus")
GRACE_S = 60  # stop_grace_period of compose.yaml
site = None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Site:
    """The profile s3 of compose.yaml under a project name of its own."""

    def __init__(self):
        self.port, self.prometheus = free_port(), free_port()
        v2 = engine.run("docker", "compose", "version", check=False).returncode == 0
        self.compose_words = ["docker", "compose"] if v2 else ["docker-compose"]
        self.jobs = []

    def compose(self, *words, profile="s3", check=True, show=False):
        env = {**os.environ, "CAIRN_PORT": str(self.port), "PROMETHEUS_PORT": str(self.prometheus)}
        command = [*self.compose_words, "-p", PROJECT, "-f", engine.ROOT / "docker/compose.yaml", "--profile", profile, *words]
        if show:
            return engine.shown(*command, cwd=engine.ROOT / "docker", env=env)
        return engine.run(*command, check=check, cwd=engine.ROOT / "docker", env=env)

    def container(self, service):
        said = docker("ps", "-aq", "--no-trunc", "--filter", f"label=com.docker.compose.project={PROJECT}",
                      "--filter", f"label=com.docker.compose.service={service}").stdout.split()
        assert len(said) == 1, (service, said)
        return said[0]

    def logs(self, service):
        done = docker("logs", self.container(service))
        return done.stdout + done.stderr

    def secret(self, name):
        return docker("run", "--rm", "-v", f"{PROJECT}_secrets:/s:ro", "--entrypoint", "cat", "cairn", f"/s/{name}").stdout.strip()

    def get(self, path, port=None):
        """(status, text), asked by curl with the token of a reader."""
        done = engine.run("curl", "-s", "-w", "\n%{http_code}", "-H", f"Authorization: Bearer {self.token}",
                          f"http://127.0.0.1:{port or self.port}{path}", check=False)
        body, _, status = done.stdout.rpartition("\n")
        return int(status or 0), body

    def cairn(self, *words, check=True):
        """The command, of a person who names both servers."""
        return docker("run", "--rm", "--network", f"{PROJECT}_default", "-v", f"{PROJECT}_secrets:/s:ro",
                      "-e", "CAIRN_URL=http://server-a:7420,http://server-b:7420", "-e", "CAIRN_TOKEN_FILE=/s/admin.token",
                      "--read-only", "--cap-drop", "ALL", "cairn", *words, check=check)

    def start_job(self, name, *words, memory="256m"):
        docker("rm", "-f", f"{PROJECT}-{name}", check=False)
        docker("run", "-d", "--name", f"{PROJECT}-{name}", "--network", "none", "-u", "1000:1000", "--read-only",
               "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "-m", memory, "-v",
               f"{PROJECT}_socket:/run/cairn:ro", "cairn-example-job", *words)
        self.jobs.append(f"{PROJECT}-{name}")
        return f"{PROJECT}-{name}"

    def said(self, job):
        done = docker("logs", job)
        return done.stdout + done.stderr

    def end_of(self, job):
        """(exit status, what it said) when it has ended."""
        wait_until(lambda: inspect(job)["State"]["Status"] == "exited")
        return inspect(job)["State"]["ExitCode"], self.said(job)

    def steps(self, run):
        """Of all versions that are committed."""
        said = json.loads(self.cairn("ls", run, "--json").stdout)
        return {item["step"] for item in said if item["state"] == "committed"}

    def remove(self):
        for job in self.jobs:
            docker("rm", "-f", job, check=False)
        self.compose("down", "-v", "--remove-orphans", profile="s3", check=False)


def setUpModule():
    global site
    engine.needed()
    engine.build_all()
    engine.build_services()
    site = Site()
    site.remove()
    begun = time.monotonic()
    site.compose("up", "-d", "--no-build", show=True)
    wait_until(lambda: inspect(site.container("job"))["State"]["Status"] == "exited")
    print(f"from nothing to a job that was killed and resumed: {time.monotonic() - begun:.0f} s", flush=True)
    site.token = site.secret("reader.token")
    # The run of the tests keeps all: what is counted must not be removed meanwhile.
    site.cairn("policy", "set", "test", "--keep-all", "--yes")


def tearDownModule():
    if not site:
        return
    site.remove()
    left = [docker(what, *words, "-q", "--filter", f"label=com.docker.compose.project={PROJECT}").stdout.split()
            for what, words in (("ps", ["-a"]), ("volume", ["ls"]), ("network", ["ls"]))]
    assert not any(left), f"down -v has left {left}"


class AtFirst(engine.Case):
    def test_a1_the_killed_job_went_on_and_came_to_the_weights_of_one_that_was_not_killed(self):
        said = site.logs("job")
        resumed = re.search(r"resumed from step (\d+)", said)
        self.assertTrue(resumed and 0 < int(resumed.group(1)) < 60, said)
        self.assertEqual(inspect(site.container("job-killed"))["State"]["ExitCode"], 0, site.logs("job-killed"))
        code, whole = site.end_of(site.start_job("whole", "test/whole", "--steps", "60", "--every", "60", "--step-ms", "1"))
        self.assertEqual(code, 0, whole)
        self.assertEqual(digest(said), digest(whole))

    def test_a2_the_checkpoint_is_seen_by_curl(self):
        status, body = site.get("/v1/runs/demo/job/checkpoints/latest")
        self.assertEqual(status, 200, body)
        self.assertEqual((json.loads(body)["step"], json.loads(body)["state"]), (60, "committed"))
        site_token, site.token = site.token, "cairn_none"
        self.assertEqual(site.get("/v1/runs/demo/job/checkpoints/latest")[0], 401)
        site.token = site_token

    def test_a3_prometheus_has_commits_and_sees_all_that_it_scrapes(self):
        def asked(query):
            _, body = site.get("/api/v1/query?query=" + urllib.parse.quote(query), site.prometheus)
            result = json.loads(body)["data"]["result"] if body else []
            return float(result[0]["value"][1]) if result else 0
        wait_until(lambda: asked("sum(up)") == 3)
        wait_until(lambda: asked("sum(cairn_commit_duration_seconds_count)") >= 2)

    def test_a4_no_process_is_root_s_and_no_root_can_be_written(self):
        for service in SERVICES:
            container = site.container(service)
            users = engine.host_users(container)
            self.assertNotIn(0, users, f"{service}: {users}")
            host = inspect(container)["HostConfig"]
            self.assertTrue(host["ReadonlyRootfs"], service)
            self.assertEqual(host["CapDrop"], ["ALL"])
            self.assertEqual(docker("exec", container, "touch", "/usr/x", check=False).returncode, 1, service)

    def test_a5_the_logs_of_the_daemons_are_objects_and_hold_no_secret(self):
        secrets = [site.secret(name) for name in ("admin.token", "uploader.token", "postgres.password")]
        for service in ("server-a", "server-b", "uploader"):
            lines = site.logs(service).splitlines()
            self.assertTrue(lines)
            for line in lines:
                self.assertIn("event", json.loads(line), line)
                for secret in secrets:
                    self.assertNotIn(secret, line)

    def test_a6_health_is_told_without_a_token(self):
        for service, words in (("server-a", ["server"]), ("uploader", ["uploader"])):
            for more in ([], ["--ready"]):
                docker("exec", site.container(service), "cairn", "health", *more, *words)
        done = docker("exec", site.container("uploader"), "cairn", "health", "--socket", "/run/cairn/no.sock", check=False)
        self.assertEqual(done.returncode, 5, done.stderr)


def digest(said):
    return re.search(r"digest (\w+)", said).group(1)


def counted(said):
    """(saves, failed) that a job tells at its end."""
    found = re.search(r"(\d+) saves of which (\d+) failed", said)
    return (int(found.group(1)), int(found.group(2))) if found else None


class Broken(engine.Case):
    def whole(self, job, run, steps, every):
        """The job ends well, no save of it failed, and each is committed."""
        code, said = site.end_of(job)
        self.assertEqual(code, 0, said)
        self.assertEqual(counted(said)[1], 0, said)
        wait_until(lambda: site.steps(run) >= set(range(every, steps + 1, every)))

    def test_b1_a_job_that_docker_kills_goes_on_in_another_container(self):
        words = ("test/killed", "--steps", "60", "--every", "5", "--step-ms", "100")
        job = site.start_job("killed", *words)
        wait_until(lambda: "step 10 staged" in site.said(job))
        docker("kill", job)
        self.assertEqual(site.end_of(job)[0], 137)
        code, said = site.end_of(site.start_job("resumed", *words))
        self.assertEqual(code, 0, said)
        self.assertGreaterEqual(int(re.search(r"resumed from step (\d+)", said).group(1)), 10)
        self.assertEqual(digest(said), digest(site.logs("job")))

    def test_b2_a_node_that_is_cut_off_in_the_middle_of_a_save_sends_it_when_it_is_back(self):
        uploader = site.container("uploader")
        job = site.start_job("cut", "test/cut", "--steps", "40", "--every", "5", "--step-ms", "100", "--elements", "4000000")
        wait_until(lambda: "step 5 staged" in site.said(job))
        docker("network", "disconnect", f"{PROJECT}_default", uploader)
        done = wait_until(lambda: (lambda said: said.returncode == 5 and said)(
            docker("exec", uploader, "cairn", "health", "--ready", "uploader", check=False)))
        self.assertIn("nothing is sent", done.stderr)
        docker("network", "connect", "--alias", "uploader", f"{PROJECT}_default", uploader)
        self.whole(job, "test/cut", 40, 5)

    def test_b3_servers_are_replaced_by_newer_ones_while_jobs_save_and_no_call_fails(self):
        engine.run("docker", "build", "-q", "-t", "cairn-server", "-", input="FROM cairn-server\nLABEL newer=1\n")
        jobs = [site.start_job(f"rolling{i}", f"test/rolling{i}", "--steps", "60", "--every", "2", "--step-ms", "200")
                for i in range(2)]
        asking = subprocess.Popen(
            ["docker", "run", "--rm", "--init", "--name", f"{PROJECT}-asking", "--network", f"{PROJECT}_default", "-v",
             f"{PROJECT}_secrets:/s:ro", "-e", "CAIRN_URL=http://server-a:7420,http://server-b:7420", "-e",
             "CAIRN_TOKEN_FILE=/s/admin.token", "--entrypoint", "bash", "cairn", "-c",
             "trap 'exit 0' TERM; n=0; while cairn ls test/rolling0 --json >/dev/null; do n=$((n+1)); done; "
             "echo \"a call failed after $n\"; exit 1"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        site.jobs.append(f"{PROJECT}-asking")
        wait_until(lambda: "staged" in site.said(jobs[0]))
        for service in ("server-a", "server-b"):
            before = site.container(service)
            site.compose("up", "-d", "--no-build", "--no-deps", service)
            wait_until(lambda: inspect(site.container(service))["State"]["Health"]["Status"] == "healthy")
            self.assertNotEqual(site.container(service), before, service)
        self.assertIsNone(asking.poll(), asking.stdout.read() if asking.poll() is not None else "")
        docker("stop", f"{PROJECT}-asking")
        self.assertEqual(asking.wait(engine.HANG_S), 0, asking.stdout.read())
        asking.stdout.close()
        for i, job in enumerate(jobs):
            self.whole(job, f"test/rolling{i}", 60, 2)

    def test_b4_each_service_stops_by_itself_within_its_grace_and_nothing_is_lost(self):
        job = site.start_job("stops", "test/stops", "--steps", "150", "--every", "5", "--step-ms", "200")
        wait_until(lambda: "step 5 staged" in site.said(job))
        for service in ("uploader", "server-a", "server-b", "s3", "postgres"):
            container = site.container(service)
            begun = time.monotonic()
            docker("stop", "-t", GRACE_S, container)
            print(f"{service} stopped in {time.monotonic() - begun:.1f} s", flush=True)
            self.assertEqual(inspect(container)["State"]["ExitCode"], 0, f"{service}: {site.logs(service)[-2000:]}")
            docker("start", container)
            wait_until(lambda: inspect(container)["State"].get("Health", {}).get("Status") == "healthy")
        self.whole(job, "test/stops", 150, 5)

    def test_b5_an_uploader_that_is_killed_is_found_again_under_another_host_name_and_address(self):
        # While it is away two saves have memory: those that wait to be sent.
        job = site.start_job("moved", "test/moved", "--steps", "60", "--every", "20", "--step-ms", "200", "--elements", "4000000")
        wait_until(lambda: "step 20 staged" in site.said(job))
        before = inspect(site.container("uploader"))
        docker("kill", before["Id"])
        # Its address is taken, so the next one has another.
        network = before["NetworkSettings"]["Networks"][f"{PROJECT}_default"]
        docker("rm", "-f", before["Id"])
        with contextlib.ExitStack() as stack:
            taken = docker("run", "-d", "--network", f"{PROJECT}_default", "--ip", network["IPAddress"] or "0.0.0.0",
                           "--entrypoint", "sleep", "cairn", "600", check=False).stdout.strip()
            if taken:
                stack.callback(docker, "rm", "-f", taken)
            site.compose("up", "-d", "--no-build", "--no-deps", "uploader")
            after = inspect(site.container("uploader"))
            self.assertNotEqual(after["Config"]["Hostname"], before["Config"]["Hostname"])
            self.whole(job, "test/moved", 60, 20)
        said = json.loads(site.cairn("nodes", "--json").stdout)
        self.assertEqual([node["node"] for node in said], ["node-1"])

    def test_b6_a_job_that_wants_more_memory_than_there_is_is_told_which_limit(self):
        code, said = site.end_of(site.start_job("large", "test/large", "--steps", "5", "--elements", "36000000",
                                                memory="512m"))
        self.assertNotEqual(code, 0, said)
        self.assertIn(f"the uploader's memory_budget is {256 << 20} of which", said)
        docker("exec", site.container("uploader"), "cairn", "health", "uploader")


if __name__ == "__main__":
    engine.main()
