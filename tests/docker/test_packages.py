# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker,full seconds=400 thirds=6
"""Debian packages: made twice with the same bytes, judged by lintian, installed in an empty root, upgraded and
purged there; and the units, with systemd as process 1 of a container: packages, units, a save."""
import hashlib
import pathlib
import shutil
import tempfile
import time

import engine
from engine import docker, run, wait_until

SERVER_EXPOSURE_MAX = 30  # tenths, of systemd-analyze security
made = None
NAMES = ("libcairn1", "libcairn-dev", "cairn", "cairn-server", "cairn-uploader", "cairn-cuda")


def pack(folder, release):
    run("cpack", "-B", folder, "-D", f"CPACK_DEBIAN_PACKAGE_RELEASE={release}", cwd=engine.ROOT / "build/packages",
        env={**engine.os.environ, "SOURCE_DATE_EPOCH": "1000000000"})
    return {path.name.split("_")[0]: path for path in pathlib.Path(folder).glob("*.deb")}


def setUpModule():
    global made
    engine.needed()
    engine.make_base()
    made = pathlib.Path(tempfile.mkdtemp(prefix="cairn-packages-"))
    engine.shown(engine.ROOT / "packaging/build", made / "first")
    for release in ("1", "2"):
        pack(made / release, release)


def tearDownModule():
    if made:
        shutil.rmtree(made)


def debs(release, *names):
    return [f"/debs/{release}/{path.name}" for name in names for path in sorted((made / release).glob(f"{name}_*.deb"))]


class Container:
    """A root of Debian alone, in which commands are run."""

    def __init__(self, image=engine.BASE, words=("sleep", "infinity"), more=("--network", "host")):
        self.id = docker("run", "-d", "-v", f"{made}:/debs:ro", *more, image, *words).stdout.strip()

    def run(self, text, check=True):
        return docker("exec", self.id, "bash", "-c", text, check=check)

    def install(self, *files):
        return self.run("export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq "
                        f"--no-install-recommends {' '.join(files)} 2>&1")

    def remove(self):
        docker("rm", "-f", "-v", self.id, check=False)


class Files(engine.Case):
    def test_there_is_one_of_each_and_the_same_build_is_packed_to_the_same_bytes(self):
        again = pack(made / "again", "1")
        self.assertEqual(set(again), set(NAMES))
        for path in again.values():
            other = made / "1" / path.name
            self.assertEqual(hashlib.sha256(path.read_bytes()).digest(), hashlib.sha256(other.read_bytes()).digest(), path.name)

    def test_lintian_finds_no_error(self):
        if not shutil.which("lintian"):
            self.skipTest("there is no lintian")
        done = run("lintian", "--fail-on", "error", "--tag-display-limit", "0", *sorted((made / "first").glob("*.deb")), check=False)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_what_is_needed_is_named_and_the_daemons_files_of_settings_are_kept(self):
        def field(name, what):
            return run("dpkg-deb", "-f", *(made / "1").glob(f"{name}_*.deb"), what).stdout.strip()
        self.assertIn("libmicrohttpd12", field("cairn-server", "Depends"))
        self.assertIn("libjansson4", field("libcairn1", "Depends"))
        self.assertNotIn("libmicrohttpd", field("cairn-uploader", "Depends"))
        self.assertIn("/etc/cairn/server.conf", run("dpkg-deb", "-I", *(made / "1").glob("cairn-server_*.deb"), "conffiles").stdout)

    def test_the_tar_runs_from_any_folder_and_the_list_of_parts_names_each_package(self):
        with tempfile.TemporaryDirectory() as folder:
            run("tar", "-xzf", *(made / "first").glob("cairn-*.tar.gz"), "-C", folder)
            done = run(*pathlib.Path(folder).glob("cairn-*/bin/cairn"), "version", env={})
            self.assertIn("cairn 0.", done.stdout)
        listed = engine.json.loads(next((made / "first").glob("*.spdx.json")).read_text())
        self.assertEqual(listed["spdxVersion"], "SPDX-2.3")
        self.assertLessEqual(set(NAMES), {package["name"] for package in listed["packages"]})
        self.assertIn("libcurl4", {package["name"] for package in listed["packages"]})


class EmptyRoot(engine.Case):
    def test_packages_are_installed_upgraded_and_purged(self):
        root = Container()
        self.addCleanup(root.remove)
        root.install(*debs("1", *NAMES))
        self.assertIn("uid=7420(cairn) gid=7420(cairn)", root.run("id cairn").stdout)
        self.assertEqual(root.run("stat -c '%U %a' /var/lib/cairn /etc/cairn/secrets").stdout, "cairn 750\ncairn 750\n")
        self.assertIn("cairn 0.", root.run("cairn version && cairn-server --version && cairn-uploader --version").stdout)
        root.run("[ -s /usr/share/bash-completion/completions/cairn ] && [ -s /lib/systemd/system/cairn-server.service ]")
        root.run("echo '#mine' >> /etc/cairn/server.conf; touch /var/lib/cairn/server/kept")
        said = root.install(*debs("2", *NAMES)).stdout
        self.assertIn("0.2.0-2", root.run("dpkg-query -W cairn-server").stdout, said)
        root.run("grep -q '#mine' /etc/cairn/server.conf && [ -e /var/lib/cairn/server/kept ]")
        root.run("apt-get purge -y -qq " + " ".join(NAMES) + " 2>&1")
        left = root.run("ls -d /var/lib/cairn /etc/cairn /usr/bin/cairn* /usr/lib/*/libcairn* /lib/systemd/system/cairn* "
                        "2>/dev/null; true").stdout
        self.assertEqual(left, "")


class Units(engine.Case):
    """What systemd says of them, and what they start, where it is not process 1."""

    @classmethod
    def setUpClass(cls):
        cls.root = Container()
        cls.addClassCleanup(cls.root.remove)
        cls.root.install("systemd", "curl", *debs("1", "libcairn1", "cairn", "cairn-server", "cairn-uploader"))

    def test_a1_the_server_s_exposure_is_small_and_both_are_well_formed(self):
        for name in ("cairn-server", "cairn-uploader"):
            print(self.root.run(f"systemd-analyze security --offline=yes --no-pager {name}.service | tail -1").stdout)
        self.root.run(f"systemd-analyze security --offline=yes --threshold={SERVER_EXPOSURE_MAX} cairn-server.service >/dev/null")
        said = self.root.run("systemd-analyze verify --man=no cairn-server.service cairn-uploader.service 2>&1; true").stdout
        self.assertNotRegex(said, r"cairn-\w+\.service:\d+:")

    def test_a2_what_the_units_start_saves(self):
        self.root.run("""
            install -d -o cairn -g cairn -m 0750 /srv/store /run/cairn /var/lib/cairn/server /var/lib/cairn/uploader
            printf 'store = /srv/store\\nport_file = /tmp/port\\n' > /etc/cairn/server.conf
            printf 'store = /srv/store\\nmemory_budget = 128MiB\\nready_file = /tmp/ready\\n' > /etc/cairn/uploader.conf
            for unit in server uploader; do
                file=/lib/systemd/system/cairn-$unit.service
                read -r -a set < <(sed -n 's/^Environment=//p' $file)
                env "${set[@]}" setpriv --reuid cairn --regid cairn --clear-groups --no-new-privs \
                    $(sed -n 's/^ExecStart=//p' $file) > /tmp/$unit.log 2>&1 &
            done""")
        wait_until(lambda: self.root.run("cairn health --ready && cairn health --ready uploader", check=False).returncode == 0)
        self.root.run("mkdir /srv/model && head -c 100000 /dev/urandom > /srv/model/w && cairn put /srv/model llm/7b@1")
        self.assertIn("llm/7b", self.root.run("cairn ls && curl -sf http://127.0.0.1:7420/v1/runs/llm/7b/checkpoints/latest").stdout)


class Booted(engine.Case):
    """systemd as process 1: packages, units, a save."""

    @classmethod
    def setUpClass(cls):
        root = Container()
        cls.addClassCleanup(root.remove)
        root.install("systemd", "systemd-sysv", "dbus", "curl", *debs("1", "libcairn1", "cairn", "cairn-server", "cairn-uploader"))
        image = docker("commit", root.id, "cairn-test-systemd").stdout.strip()
        cls.addClassCleanup(lambda: docker("image", "rm", "-f", image, check=False))
        try:
            cls.root = Container("cairn-test-systemd", ("/lib/systemd/systemd",), (
                "--privileged", "--network", "none", "--tmpfs", "/run:exec", "--tmpfs", "/tmp",
                "-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw"))
        except AssertionError as why:
            raise engine.unittest.SkipTest("no privileged container starts here, as systemd needs for process 1") from why
        cls.addClassCleanup(cls.root.remove)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            said = cls.root.run("systemctl is-system-running", check=False).stdout.strip()
            if said in ("running", "degraded"):
                return
            time.sleep(0.5)  # step of a poll
        raise engine.unittest.SkipTest("systemd does not start as process 1 of a container here")

    def test_a2_packages_then_units_then_a_save(self):
        self.root.run("""
            install -d -o cairn -g cairn -m 0750 /srv/store
            cat > /etc/cairn/server.conf <<END
store = /srv/store
END
            cat > /etc/cairn/uploader.conf <<END
store = /srv/store
memory_budget = 128MiB
END
            for unit in server uploader; do
                mkdir -p /etc/systemd/system/cairn-$unit.service.d
                printf '[Service]\\nReadWritePaths=/srv/store\\n' > /etc/systemd/system/cairn-$unit.service.d/store.conf
            done
            systemctl daemon-reload""")
        for unit in ("cairn-server", "cairn-uploader"):
            done = self.root.run(f"systemctl enable --now {unit} 2>&1", check=False)
            self.assertEqual(done.returncode, 0, done.stdout + self.root.run(f"journalctl -u {unit} --no-pager | tail -30").stdout)
        self.root.run("cairn health --ready && cairn health --ready uploader")
        self.root.run("mkdir /srv/model && head -c 100000 /dev/urandom > /srv/model/w && cairn put /srv/model llm/7b@1")
        self.assertIn("llm/7b", self.root.run("cairn ls && curl -sf http://127.0.0.1:7420/v1/runs/llm/7b/checkpoints/latest").stdout)
        for unit in ("cairn-server", "cairn-uploader"):
            self.assertEqual(self.root.run(f"ps -o user= -C {unit} || cat /proc/$(pidof {unit})/status | grep Uid").stdout.split()[-1]
                             in ("cairn", "7420"), True)

    def test_a3_reload_stop_and_a_loop_that_stands_still(self):
        self.root.run("systemctl reload cairn-server && systemctl restart cairn-uploader && systemctl stop cairn-server")
        self.assertEqual(self.root.run("systemctl show -p Result --value cairn-server").stdout.strip(), "success")
        # The watchdog: a daemon that is stopped in its tracks is started anew.
        self.root.run("mkdir -p /run/systemd/system/cairn-server.service.d && printf '[Service]\\nWatchdogSec=3\\n' > "
                      "/run/systemd/system/cairn-server.service.d/fast.conf && systemctl daemon-reload && systemctl start cairn-server")
        before = self.root.run("systemctl show -p MainPID --value cairn-server").stdout.strip()
        self.root.run(f"kill -STOP {before}")
        wait_until(lambda: self.root.run("systemctl show -p MainPID --value cairn-server").stdout.strip() not in ("0", before))
        wait_until(lambda: self.root.run("cairn health", check=False).returncode == 0)


if __name__ == "__main__":
    engine.main()
