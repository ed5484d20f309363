# SPDX-License-Identifier: Apache-2.0
"""The container engine that these tests use: the one that runs, or one that is started for them and ended
with them; and the images, made from Debian's packages where none can be pulled."""
import atexit
import contextlib
import functools
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = "debian:bookworm-slim"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cairn-docker-ccache"
SKIPPED, HANG_S = 77, 300
ENGINE_STARTS_S = 60
sys.path += [str(path) for path in ROOT.glob("build/venv/lib/python3*/site-packages")]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
TARGETS = {"server": "cairn-server", "uploader": "cairn-uploader", "trainer": "cairn-example-job", "cli": "cairn"}


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def run(*words, check=True, timeout=HANG_S, **options):
    done = subprocess.run([*map(str, words)], text=True, capture_output=True, timeout=timeout, check=False, **options)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def docker(*words, **options):
    return run("docker", *words, **options)


def shown(*words, cwd=None, env=None):
    """As run, of what takes minutes, in processes of the engine: a dot says that it goes on."""
    print("+", *words, flush=True)
    with subprocess.Popen([*map(str, words)], stderr=subprocess.STDOUT, cwd=cwd, env=env) as process:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            print(".", end="", flush=True)
    if process.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: status {process.returncode}")


def wait_until(what, seconds=HANG_S, every=0.2):
    end, told = time.monotonic() + seconds, time.monotonic()
    while not (value := what()):
        if time.monotonic() > end:
            raise AssertionError(f"never came: {what.__code__.co_filename}:{what.__code__.co_firstlineno}")
        if time.monotonic() > told + 20:
            told = time.monotonic()
            print(".", flush=True)  # it waits, and does not hang
        time.sleep(every)  # step of a poll
    return value


# ---- the engine ----

def answers():
    return run("docker", "info", check=False).returncode == 0


def start_engine():
    """Starts a daemon where none runs; it ends with this program."""
    log = open(tempfile.gettempdir() + "/cairn-dockerd.log", "wb")
    daemon = subprocess.Popen(["dockerd"], stdout=log, stderr=log, start_new_session=True)

    def end():
        daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(60)
    atexit.register(end)
    end_at = time.monotonic() + ENGINE_STARTS_S
    while not answers():
        if daemon.poll() is not None or time.monotonic() > end_at:
            said = pathlib.Path(log.name).read_text(errors="replace")[-600:]
            skip(f"the container engine does not start here:\n{said}")
        time.sleep(0.3)  # step of a poll


def needed():
    """Ends the program as skipped where there is no engine and none can be started."""
    if not shutil.which("docker"):
        skip("there is no docker: apt-get install docker.io")
    if answers():
        return
    if os.geteuid() or not shutil.which("dockerd"):
        skip("no container engine answers, and none can be started (it takes root and dockerd)")
    start_engine()


# ---- the base image ----

def make_base():
    if any(docker(*words, BASE, check=False).returncode == 0 for words in (("image", "inspect"), ("pull", "-q"))):
        return
    sources = [path for path in (pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*"))
               if path.suffix in (".list", ".sources") and path.is_file() and path.stat().st_size]
    make_image(BASE, "bookworm", ("ca-certificates",), sources)


def make_image(name, suite, packages, sources=()):
    """Of Debian's packages alone, kept by the engine under that name."""
    if docker("image", "inspect", name, check=False).returncode == 0:
        return
    if not shutil.which("mmdebstrap"):
        skip(f"there is no mmdebstrap to make {name}: apt-get install mmdebstrap")
    with tempfile.TemporaryDirectory() as folder:
        tar = pathlib.Path(folder) / "base.tar"
        without = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("man", "doc", "locale", "info")]
        try:
            shown("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}", *without, suite, tar, *sources)
        except AssertionError as why:
            skip(f"no image {name} can be made: {why}")
        shown("docker", "import", tar, name)


# ---- ccache, so that a build after the first one takes seconds ----

def of_this_machine():
    """The folder of the ccache that builds on this machine have filled, as ./quickstart with the same preset."""
    if not shutil.which("ccache"):
        return None
    return pathlib.Path(run("ccache", "--get-config", "cache_dir").stdout.strip())


class Store(http.server.BaseHTTPRequestHandler):
    """What ccache asks of a remote storage: GET, PUT, HEAD and DELETE of a key."""
    protocol_version = "HTTP/1.1"
    further = None

    def path_of(self):
        return CACHE / self.path.strip("/").replace("/", "")

    def found(self):
        """The file of the key, here or in the machine's own ccache, whose files are the same bytes under
        folders of one letter, with a letter for their kind at the end of their names."""
        path = self.path_of()
        if path.is_file() or not self.further:
            return path
        letters, folder = path.name, self.further
        while letters and (folder := folder / letters[0]).is_dir():
            letters = letters[1:]
            for kind in ("R", "M"):
                if (folder / (letters + kind)).is_file():
                    return folder / (letters + kind)
        return path

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.found()
        self.answer(200, path.read_bytes()) if path.is_file() else self.answer(404)

    do_HEAD = do_GET

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as file:
            file.write(body)
        os.rename(file.name, self.path_of())
        self.answer(201)

    def do_DELETE(self):
        self.path_of().unlink(missing_ok=True)
        self.answer(204)

    def log_message(self, *_):
        pass


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def ccache():
    CACHE.mkdir(parents=True, exist_ok=True)
    Store.further = of_this_machine()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


# ---- images ----

def build(target, tag, *words):
    """Of the build stage the others take what the first one has made."""
    shown("docker", "build", "--network", "host", "-q", "-f", ROOT / "docker/Dockerfile", "--target", target, "-t", tag,
          *words, ROOT, env={**os.environ, "DOCKER_BUILDKIT": "0"})


def fingerprint():
    """Of all files that an image is built of, and of the base."""
    digest = hashlib.sha256(inspect(BASE)["Id"].encode() + (ROOT / "docker/Dockerfile").read_bytes())
    for top in sorted(ROOT.iterdir()):
        if top.name in (".git", ".ci", "build", "docs", "docker", "packaging", "tests"):
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_mode}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def build_all():
    """Once for all tests that use them: images tell by a label what they were built of."""
    make_base()
    label = f"cairn.tests.built-of={fingerprint()}"
    if all(docker("images", "-q", "--filter", f"label={label}", f"{tag}:latest").stdout for tag in TARGETS.values()):
        return
    with ccache() as url:
        for target, tag in TARGETS.items():
            build(target, tag, "--build-arg", f"CCACHE_REMOTE_STORAGE={url}", "--label", label)


def build_torch():
    """The trainer's image with torch, of what this machine's pip can have: pip in a build has neither its settings nor its
    folders. Where that is nothing, the test is skipped."""
    named = (ROOT / "docker/compose.yaml").read_text()
    torch = re.search(r"TORCH:-([0-9.]+)", named).group(1)
    with tempfile.TemporaryDirectory() as folder:
        done = run(sys.executable, "-m", "pip", "download", "-q", "-d", folder, "--python-version", "3.11", "--only-binary", ":all:",
                   f"torch=={torch}", "numpy", "fsspec", check=False, timeout=2 * HANG_S)
        if done.returncode:
            raise unittest.SkipTest(f"pip has no torch {torch}: {done.stderr[-400:]}")
        handler = functools.partial(Quiet, directory=folder)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, ccache() as url:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            build("trainer", "cairn-example-torch", "--build-arg", f"CCACHE_REMOTE_STORAGE={url}", "--build-arg", f"TORCH={torch}",
                  "--build-arg", "PIP_NO_INDEX=1", "--build-arg", f"PIP_FIND_LINKS=http://127.0.0.1:{server.server_address[1]}/")
            server.shutdown()


def build_services():
    """Of others' packages: where these cannot be had, that is no fault of Cairn's."""
    for target in ("postgres", "radosgw", "prometheus"):
        try:
            shown("docker", "build", "--network", "host", "-q", "--target", target, "-t", f"cairn-demo-{target}",
                  ROOT / "docker/services", env={**os.environ, "DOCKER_BUILDKIT": "0"})
        except AssertionError as why:
            skip(f"what the site stands on cannot be built: {why}")


# ---- compose, of both kinds ----

def next_debian_s(package, into):
    """The files of a package of the next Debian, below the folder: of it nothing is installed."""
    said = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm").stdout.split()
    for name in ("lists/partial", "cache/archives/partial", "files"):
        (into / name).mkdir(parents=True, exist_ok=True)
    (into / "sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {said[0]} trixie main\n")
    options = ["-o", f"Dir::Etc::sourcelist={into}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null", "-o",
               f"Dir::State::lists={into}/lists", "-o", f"Dir::Cache={into}/cache", "-o", "APT::Sandbox::User=root"]
    shown("apt-get", "-qq", *options, "update")
    shown("apt-get", "-qq", *options, "download", package, cwd=into)
    run("dpkg-deb", "-x", *into.glob(f"{package}_*.deb"), into / "files")


def composes():
    """The words by which each kind of compose is called that is here or can be had: 2 first, Debian's 1.29 last."""
    found = []
    kept = CACHE.parent / "cairn-compose-2/docker-compose"
    if run("docker", "compose", "version", check=False).returncode == 0:
        found.append(["docker", "compose"])
    elif kept.is_file():
        found.append([kept])
    else:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(AssertionError, OSError, IndexError):
            next_debian_s("docker-compose", pathlib.Path(folder))
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(next(pathlib.Path(folder).glob("files/usr/libexec/docker/cli-plugins/docker-compose")), kept)
            found.append([kept])
    if shutil.which("docker-compose"):
        found.append(["docker-compose"])
    if not found:
        skip("there is no docker compose and no docker-compose")
    return found


# ---- what they made ----

def inspect(name):
    return json.loads(docker("inspect", name).stdout)[0]


def host_users(container):
    """User ids of a container's processes, as the host's kernel has them."""
    said = docker("top", container, "-eo", "uid,pid,args").stdout.splitlines()[1:]
    return {int(line.split()[0]): line.split(None, 2)[2] for line in said}


# What systemd needs as process 1; the second where the engine itself is not allowed all that `--privileged` asks for.
BOOTS = (["--privileged"], ["--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "seccomp=unconfined",
                            "--security-opt", "apparmor=unconfined"])
BOOTED_S = 60


def boot(image, *more, network="none"):
    """The id of a container of which systemd is process 1 and whose units have started; a test that needs it is
    skipped where none comes up."""
    for rights in BOOTS:
        done = docker("run", "-d", *rights, "--network", network, "--tmpfs", "/run:exec", "--tmpfs", "/tmp", "-v",
                      "/sys/fs/cgroup:/sys/fs/cgroup:rw", *more, image, "/lib/systemd/systemd", check=False)
        container = done.stdout.strip()
        end = time.monotonic() + BOOTED_S
        while not done.returncode and time.monotonic() < end:
            state = docker("exec", container, "systemctl", "is-system-running", check=False)
            if state.stdout.strip() in ("running", "degraded"):
                # As on a machine; credentials are mounted by a process of their own.
                docker("exec", container, "mount", "--make-rshared", "/")
                return container
            time.sleep(0.5)  # step of a poll
        why = (done.stderr or docker("logs", container, check=False).stdout)[-400:]
        if container:
            docker("rm", "-f", "-v", container, check=False)
    raise unittest.SkipTest(f"systemd does not start as process 1 of a container here: {why}")


def blocks(chapter):
    """The commands of a chapter of docs/deploy.md, as a reader types them."""
    page = (ROOT / "docs/deploy.md").read_text()
    text = re.search(rf"^## {chapter}$(.*?)^## ", page, re.S | re.M).group(1)
    return re.findall(r"^```\n(.*?)^```", text, re.S | re.M)


class Case(unittest.TestCase):
    maxDiff = None

    def run(self, result=None):
        begun = time.monotonic()
        super().run(result)
        print(f"{time.monotonic() - begun:.1f} s: {self.id()}", flush=True)


def main():
    unittest.main(verbosity=2)
