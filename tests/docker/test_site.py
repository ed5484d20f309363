# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker seconds=270 thirds=6
"""docker/compose.yaml brought up whole: a job that was killed resumes, and what breaks in a site of containers
loses no save: killed trainers, a cut network, a newer server, stops, other host names, memory limits."""
import contextlib
import ipaddress
import json
import os
import re
import subprocess
import time
import unittest
import urllib.parse

import engine
from engine import docker, inspect, wait_until
import ports  # of tests/e2e
from test_kubernetes import rendered

PROJECT = "cairntest"
SERVICES = ("postgres", "s3", "server-a", "server-b", "uploader", "prometheus")
GRACE_S = 60  # stop_grace_period of compose.yaml
site = folder = coming = None


class Site:
    """A profile of compose.yaml under a project name of its own."""

    def __init__(self, compose_words, project=PROJECT, profile="s3"):
        self.port, self.prometheus = ports.free(), ports.free()
        self.compose_words, self.project, self.profile = compose_words, project, profile
        self.jobs = []

    def compose(self, *words, check=True, show=False, beside=False):
        env = {**os.environ, "CAIRN_PORT": str(self.port), "PROMETHEUS_PORT": str(self.prometheus)}
        command = [*self.compose_words, "-p", self.project, "-f", engine.ROOT / "docker/compose.yaml", "--profile",
                   self.profile, *words]
        if beside:
            return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    cwd=engine.ROOT / "docker", env=env)
        if show:
            return engine.shown(*command, cwd=engine.ROOT / "docker", env=env)
        return engine.run(*command, check=check, cwd=engine.ROOT / "docker", env=env)

    def container(self, service):
        said = docker("ps", "-aq", "--no-trunc", "--filter", f"label=com.docker.compose.project={self.project}",
                      "--filter", f"label=com.docker.compose.service={service}").stdout.split()
        assert len(said) == 1, (service, said)
        return said[0]

    def logs(self, service):
        done = docker("logs", self.container(service))
        return done.stdout + done.stderr

    def secret(self, name):
        return docker("run", "--rm", "-v", f"{self.project}_secrets:/s:ro", "--entrypoint", "cat", "cairn", f"/s/{name}").stdout.strip()

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

    @contextlib.contextmanager
    def address_taken(self, before):
        """Others have the free addresses up to the one that this container had, so the next one gets another."""
        taken = []
        try:
            while not taken or address(inspect(taken[-1])) < address(before):
                taken.append(docker("run", "-d", "--network", f"{PROJECT}_default", "--entrypoint", "sleep", "cairn",
                                    "600").stdout.strip())
            yield
        finally:
            docker("rm", "-f", *taken)

    def remove(self):
        for job in self.jobs:
            docker("rm", "-f", job, check=False)
        self.compose("down", "-v", "--remove-orphans", check=False)
        left = [docker(what, *words, "-q", "--filter", f"label=com.docker.compose.project={self.project}").stdout.split()
                for what, words in (("ps", ["-a"]), ("volume", ["ls"]), ("network", ["ls"]))]
        assert not any(left), f"down -v has left {left}"


def setUpModule():
    global site, folder, coming
    engine.needed()
    engine.build_all()
    engine.build_services()
    composes = engine.composes()
    site, folder = Site(composes[0]), Site(composes[-1], f"{PROJECT}folder", "folder")
    print("brought up by", *site.compose_words, flush=True)
    site.remove()
    folder.remove()
    begun = time.monotonic()
    site.compose("up", "-d", "--no-build", show=True)
    wait_until(lambda: inspect(site.container("job"))["State"]["Status"] == "exited")
    print(f"from nothing to a job that was killed and resumed: {time.monotonic() - begun:.0f} s", flush=True)
    coming = folder.compose("up", "-d", "--no-build", beside=True)
    site.token = site.secret("reader.token")
    # The run of the tests keeps all: what is counted must not be removed meanwhile.
    site.cairn("policy", "set", "test", "--keep-all", "--yes")


def tearDownModule():
    if coming and coming.poll() is None:
        coming.communicate(timeout=engine.HANG_S)
    if site:
        site.remove()
        folder.remove()


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


    def test_a7_what_docs_deploy_says_shows_the_checkpoint_and_makes_another_one(self):
        words = "\n".join(engine.blocks("A site to look at")[1:3]).replace("docker_", f"{PROJECT}_")
        words = words.replace(":7420/", f":{site.port}/").replace(":9090/", f":{site.prometheus}/")
        said = engine.run("bash", "-euo", "pipefail", "-c", words).stdout
        self.assertIn('"state":"committed"', said.replace(" ", ""))
        self.assertRegex(said, r'"value":\[[0-9.]+,"[1-9]')
        self.assertIn("done at step 20", said)


def address(container):
    return ipaddress.ip_address(container["NetworkSettings"]["Networks"][f"{PROJECT}_default"]["IPAddress"])


def digest(said):
    return re.search(r"digest (\w+)", said).group(1)


def counted(said):
    """(saves, failed) that a job tells at its end."""
    found = re.search(r"(\d+) saves of which (\d+) failed", said)
    return (int(found.group(1)), int(found.group(2))) if found else None


class Broken(engine.Case):
    def stands(self, job):
        """The process of the job stands still until it is told to go on, however long what it waits for takes."""
        docker("kill", "-s", "STOP", job)
        self.addCleanup(docker, "kill", "-s", "CONT", job, check=False)

    def goes_on(self, job):
        docker("kill", "-s", "CONT", job)

    def whole(self, job, run, steps, every):
        """The job ends well, no save of it failed, and each is committed."""
        code, said = site.end_of(job)
        self.assertEqual(code, 0, said)
        self.assertEqual(counted(said)[1], 0, said)
        wait_until(lambda: site.steps(run) >= set(range(every, steps + 1, every)))

    def test_b1_a_job_that_docker_kills_goes_on_in_another_container(self):
        words = ("test/killed", "--steps", "60", "--every", "5", "--step-ms")
        job = site.start_job("killed", *words, "1000")
        wait_until(lambda: "step 10 staged" in site.said(job))
        docker("kill", job)
        self.assertEqual(site.end_of(job)[0], 137)
        code, said = site.end_of(site.start_job("resumed", *words, "100"))
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
        self.addCleanup(docker, "tag", inspect("cairn-server")["Id"], "cairn-server")
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
            before = inspect(site.container(service))
            docker("stop", "-t", GRACE_S, before["Id"])
            docker("rm", before["Id"])
            with site.address_taken(before):
                site.compose("up", "-d", "--no-build", "--no-deps", service)
                wait_until(lambda: inspect(site.container(service))["State"]["Health"]["Status"] == "healthy")
            after = inspect(site.container(service))
            self.assertNotEqual(after["Image"], before["Image"], service)
            self.assertNotEqual(after["Config"]["Hostname"], before["Config"]["Hostname"], service)
            self.assertNotEqual(address(after), address(before), service)
        self.assertIsNone(asking.poll(), asking.stdout.read() if asking.poll() is not None else "")
        docker("stop", f"{PROJECT}-asking")
        self.assertEqual(asking.wait(engine.HANG_S), 0, asking.stdout.read())
        asking.stdout.close()
        for i, job in enumerate(jobs):
            self.whole(job, f"test/rolling{i}", 60, 2)

    def test_b4_each_service_stops_by_itself_within_its_grace_and_nothing_is_lost(self):
        # Two saves have memory: those that wait to be sent. So each service is away for one save of the job, and for as
        # long as this machine takes to stop and start it the job stands still.
        job = site.start_job("stops", "test/stops", "--steps", "300", "--every", "25", "--step-ms", "200")
        wait_until(lambda: "step 25 staged" in site.said(job))
        for service in ("uploader", "server-a", "server-b", "s3", "postgres"):
            container = site.container(service)
            self.stands(job)
            begun = time.monotonic()
            docker("stop", "-t", GRACE_S, container)
            print(f"{service} stopped in {time.monotonic() - begun:.1f} s", flush=True)
            self.assertEqual(inspect(container)["State"]["ExitCode"], 0, f"{service}: {site.logs(service)[-2000:]}")
            self.goes_on(job)
            before = site.said(job).count("staged")
            wait_until(lambda: site.said(job).count("staged") > before)
            self.stands(job)
            docker("start", container)
            wait_until(lambda: inspect(container)["State"].get("Health", {}).get("Status") == "healthy")
            self.goes_on(job)
        self.whole(job, "test/stops", 300, 25)

    def test_b5_an_uploader_that_is_killed_is_found_again_under_another_host_name_and_address(self):
        # While it is away two saves have memory: those that wait to be sent.
        job = site.start_job("moved", "test/moved", "--steps", "60", "--every", "20", "--step-ms", "200", "--elements", "4000000")
        wait_until(lambda: "step 20 staged" in site.said(job))
        before = inspect(site.container("uploader"))
        docker("kill", before["Id"])
        docker("rm", "-f", before["Id"])
        with site.address_taken(before):
            site.compose("up", "-d", "--no-build", "--no-deps", "uploader")
            after = inspect(site.container("uploader"))
            self.assertNotEqual(after["Config"]["Hostname"], before["Config"]["Hostname"])
            self.assertNotEqual(address(after), address(before))
            self.whole(job, "test/moved", 60, 20)
        said = json.loads(site.cairn("nodes", "--json").stdout)
        self.assertEqual([node["node"] for node in said], ["node-1"])

    def test_b6_a_job_that_wants_more_memory_than_there_is_is_told_which_limit(self):
        code, said = site.end_of(site.start_job("large", "test/large", "--steps", "5", "--elements", "36000000",
                                                memory="512m"))
        self.assertNotEqual(code, 0, said)
        self.assertIn(f"the uploader's memory_budget is {256 << 20} of which", said)
        docker("exec", site.container("uploader"), "cairn", "health", "uploader")


@unittest.skipUnless(os.environ.get("CAIRN_TEST_SLOW") == "1", "CAIRN_TEST_SLOW=1 runs it: an image with torch is built")
class Torch(engine.Case):
    """The profile `torch`: the job of examples/python."""

    def end_of(self, service):
        site.compose("--profile", "torch", "up", "-d", "--no-build", "--no-deps", service)
        site.jobs.append(site.container(service))
        return site.end_of(site.jobs[-1])

    def test_b7_a_job_of_torch_whose_container_ends_goes_on_with_twice_the_ranks(self):
        engine.build_torch()
        code, said = self.end_of("torch-job-killed")
        self.assertEqual(code, 0, said)
        code, said = self.end_of("torch-job")
        self.assertEqual(code, 0, said)
        resumed = re.search(r"goes on from step (\d+)", said)
        self.assertTrue(resumed and 5 <= int(resumed.group(1)) < 60, said)
        self.assertIn("step 60: loss", said)
        self.assertIn(60, site.steps("demo/gpt"))


class Sidecar(engine.Case):
    """The pod of kubernetes/overlays/sidecar, its containers run as the kubelet runs them: users, group, limits, rights,
    volumes and variables are the manifest's; server, store and secrets are those of the site here."""

    def volume(self, name, *filled):
        """As an emptyDir or a secret is: root's, for the group of the pod."""
        full = f"{PROJECT}_pod_{name}"
        docker("volume", "create", "--label", f"com.docker.compose.project={PROJECT}", full)
        docker("run", "--rm", "-u", "0", "-v", f"{full}:/v", "-v", f"{PROJECT}_secrets:/s:ro", "--entrypoint", "sh", "cairn", "-c",
               "chown 0:7420 /v && chmod 2777 /v" + "".join(f" && {one}" for one in filled))
        self.addCleanup(docker, "volume", "rm", "-f", full)
        return full

    def words(self, pod, container, values, volumes):
        """What docker is to be told of one container of a pod."""
        context = container["securityContext"]
        self.assertTrue(context["readOnlyRootFilesystem"])
        self.assertEqual((context["capabilities"], context["allowPrivilegeEscalation"]), ({"drop": ["ALL"]}, False))
        memory = container["resources"]["limits"]["memory"].replace("Mi", "m")
        words = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "-m", memory, "-u",
                 f"{context['runAsUser']}:{context['runAsGroup']}", "--group-add", str(pod["securityContext"]["fsGroup"])]
        for name in [item["name"] for item in container["env"]]:
            words += ["-e", f"{name}={values[name]}"]
        for mount in container["volumeMounts"]:
            mode = "ro,nocopy" if mount.get("readOnly") else "nocopy"
            words += ["-v", f"{volumes[mount['name']]}:{mount['mountPath']}:{mode}"]
        return words

    def test_c1_the_trainer_of_a_pod_saves_through_its_sidecar_which_ends_after_it(self):
        pod = next(one for one in rendered("sidecar") if one["kind"] == "Job")["spec"]["template"]["spec"]
        sidecar, trainer = pod["initContainers"][0], pod["containers"][0]
        self.assertEqual(sidecar["restartPolicy"], "Always")
        volumes = {"socket": self.volume("socket"), "journal": self.volume("journal"), "tls": self.volume("tls", "echo none >/v/ca.crt"),
                   "secrets": self.volume("secrets", "cp /s/uploader.token /v/token && cp /s/s3.credentials /v/",
                                          "chown 0:7420 /v/* && chmod 0440 /v/*")}
        self.assertEqual(set(volumes), {one["name"] for one in pod["volumes"]})
        values = {item["name"]: item.get("value") for item in [*sidecar["env"], *trainer["env"]]}
        # The site's own: a pod asks its job's name of the API, and calls servers and stores by TLS.
        values |= {"CAIRN_NODE": "trainer", "CAIRN_SERVER": "http://server-a:7420,http://server-b:7420"}
        ours = ["-e", "CAIRN_STORE=s3://cairn/site", "-e", "CAIRN_ENDPOINT=http://s3:7480", "-e", "CAIRN_ALLOW_PLAIN_HTTP=true",
                "-e", "AWS_EC2_METADATA_DISABLED=true"]
        names = [f"{PROJECT}-pod-{one['name']}" for one in (sidecar, trainer)]
        self.addCleanup(docker, "rm", "-f", *names, check=False)
        docker("run", "-d", "--name", names[0], "--network", f"{PROJECT}_default", *ours,
               *self.words(pod, sidecar, values, volumes), "cairn-uploader")
        probe = sidecar["startupProbe"]["exec"]["command"]
        wait_until(lambda: docker("exec", names[0], *probe, check=False).returncode == 0)
        run, *args = trainer["args"]
        docker("run", "-d", "--name", names[1], "--network", f"container:{names[0]}",
               *self.words(pod, trainer, values, volumes), "cairn-example-job", run.replace("demo/", "test/"), *args)
        code, said = site.end_of(names[1])
        self.assertEqual((code, counted(said)), (0, (10, 0)), said)
        docker("stop", "-t", pod["terminationGracePeriodSeconds"], names[0])
        self.assertEqual(inspect(names[0])["State"]["ExitCode"], 0)
        self.assertEqual(site.steps("test/sidecar"), set(range(10, 101, 10)))


class Folder(engine.Case):
    """The profile without S3 and PostgreSQL, by the other kind of compose where both are here."""

    def test_d1_the_job_is_killed_and_resumes(self):
        print("brought up by", *folder.compose_words, flush=True)
        said = coming.communicate(timeout=engine.HANG_S)[0]
        self.assertEqual(coming.returncode, 0, said)
        code, said = folder.end_of(folder.container("folder-job"))
        self.assertEqual(code, 0, said)
        self.assertEqual(digest(said), digest(site.logs("job")))
        folder.token = folder.secret("reader.token")
        status, body = folder.get("/v1/runs/demo/job/checkpoints/latest")
        self.assertEqual((status, json.loads(body)["step"]), (200, 60), body)


if __name__ == "__main__":
    engine.main()
