# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker seconds=40 thirds=6
"""The images of docker/Dockerfile: what is in them, who runs in them, and that they are made the same
twice."""

import datetime

import engine
from engine import docker, inspect

SERVER_MIB_MAX = 60  # over the base


def setUpModule():
    engine.needed()
    engine.build_all()


def size(image):
    return inspect(image)["Size"]


class Images(engine.Case):
    def test_the_server_s_image_is_at_most_60_mib_over_its_base(self):
        for name in engine.TARGETS.values():
            print(f"{name}: {(size(name) - size(engine.BASE)) / 2**20:.1f} MiB over the base")
        self.assertLess(size("cairn-server") - size(engine.BASE), SERVER_MIB_MAX * 2**20)

    def test_each_runs_as_7420_says_what_it_is_and_has_no_shell_before_its_program(self):
        for target, name in engine.TARGETS.items():
            config = inspect(name)["Config"]
            self.assertEqual(config["User"], "7420:7420", name)
            self.assertEqual(config["StopSignal"], "SIGTERM")
            self.assertEqual(config["Labels"]["org.opencontainers.image.title"], name)
            self.assertEqual(config["Labels"]["org.opencontainers.image.licenses"], "Apache-2.0")
            self.assertEqual(config["Entrypoint"], [name])
            check = (config.get("Healthcheck") or {}).get("Test", ["NONE"])
            self.assertEqual(check[0], "CMD" if target in ("server", "uploader") else "NONE", name)

    def test_none_has_build_tools_or_programs_that_change_users_of_its_own(self):
        with_bits = "find / -xdev -perm /6000 -type f"
        of_base = docker("run", "--rm", engine.BASE, "sh", "-c", with_bits).stdout.split()
        for name in engine.TARGETS.values():
            found = docker("run", "--rm", "--entrypoint", "sh", name, "-c",
                           "command -v cc gcc cmake ninja make curl python3; ls /src /usr/include/cairn 2>/dev/null; true")
            self.assertEqual(found.stdout, "", name)
            mine = docker("run", "--rm", "-u", "0", "--entrypoint", "sh", name, "-c", with_bits).stdout.split()
            self.assertLessEqual(set(mine), set(of_base), name)

    def test_each_program_starts_on_a_read_only_root_without_rights(self):
        for name, words in (("cairn-server", ["--version"]), ("cairn-uploader", ["--version"]), ("cairn", ["version"])):
            done = docker("run", "--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
                          "--network", "none", name, *words)
            self.assertIn("0.", done.stdout)
        done = docker("run", "--rm", "--read-only", "--network", "none", "cairn-example-job", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: job RUN", done.stderr)

    def test_folders_of_state_are_the_user_s_own(self):
        said = docker("run", "--rm", "--entrypoint", "stat", "cairn-uploader", "-c", "%n %u:%g %a", "/var/lib/cairn",
                      "/run/cairn", "/srv/cairn").stdout.split("\n")
        self.assertEqual(said[:3], ["/var/lib/cairn 7420:7420 750", "/run/cairn 7420:7420 755", "/srv/cairn 7420:7420 750"])

    def test_a_server_that_may_not_use_its_folder_or_listens_in_the_clear_says_so_and_ends(self):
        done = docker("run", "--rm", "-u", "12345", "-e", "CAIRN_DATA_DIR=", "-e", "CAIRN_STORE=/tmp",
                      "-e", "CAIRN_ALLOW_REMOTE=true", "cairn-server", check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("user 12345 may not write in /var/lib/cairn", done.stderr)
        done = docker("run", "--rm", "-e", "CAIRN_STORE=/srv/cairn", "cairn-server", check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("beyond loopback: give tls-cert and tls-key", done.stderr)

    def test_a_server_as_process_1_takes_ipv6_logs_in_utc_to_standard_error_and_ends_at_sigterm_whatever_proxies_say(self):
        server = docker("run", "-d", "--read-only", "--network", "none", "--sysctl", "net.ipv6.conf.all.disable_ipv6=0", "-e",
                        "CAIRN_LISTEN=[::]:7420", "-e", "CAIRN_ALLOW_REMOTE=true", "-e", "CAIRN_STORE=/srv/cairn", "-e",
                        "TZ=Asia/Tokyo", "-e", "http_proxy=http://127.0.0.1:9", "--tmpfs", "/srv/cairn:uid=7420", "cairn-server")
        server = server.stdout.strip()
        self.addCleanup(docker, "rm", "-f", "-v", server)
        engine.wait_until(lambda: docker("exec", server, "cairn", "health", "--ready", "server", check=False).returncode == 0)
        docker("exec", "-e", "CAIRN_URL=http://[::1]:7420", server, "cairn", "health", "--ready", "server")
        self.assertEqual(docker("exec", server, "stat", "-c", "%a", "/var/lib/cairn/grant.key").stdout, "600\n")
        docker("stop", "-t", "60", server)
        self.assertEqual(inspect(server)["State"]["ExitCode"], 0)
        logs = docker("logs", server)
        self.assertEqual(logs.stdout, "")
        times = [line.split()[0] for line in logs.stderr.splitlines()]
        now = datetime.datetime.now(datetime.timezone.utc)
        for text in times:
            self.assertLess(abs(now - datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))), datetime.timedelta(hours=1))

    def test_a_budget_beyond_the_container_s_memory_is_refused_and_names_the_limit(self):
        done = docker("run", "--rm", "-m", "128m", "-e", "CAIRN_STORE=/srv/cairn", "-e", "CAIRN_MEMORY_BUDGET=1GiB",
                      "cairn-uploader", check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("memory_budget is 1.0 GiB, and this process may use 128.0 MiB", done.stderr)

    def test_what_packages_make_of_a_layer_is_the_same_in_another_build(self):
        engine.shown("docker", "build", "--network", "host", "-q", "--no-cache", "-f", engine.ROOT / "docker/Dockerfile",
                     "--target", "runtime", "-t", "cairn-again", engine.ROOT,
                     env={**engine.os.environ, "DOCKER_BUILDKIT": "0"})
        self.addCleanup(docker, "image", "rm", "-f", "cairn-again")
        again = inspect("cairn-again")["RootFS"]["Layers"]
        for name in ("cairn-server", "cairn-uploader"):
            self.assertEqual(inspect(name)["RootFS"]["Layers"][:len(again)], again, name)


if __name__ == "__main__":
    engine.main()
