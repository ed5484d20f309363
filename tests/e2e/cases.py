# SPDX-License-Identifier: Apache-2.0
"""What a test case opens ends with it, or, opened by a class, with all cases of that class."""
import functools
import http.server
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest

from patience import HANG_S


def at_the_end(case, call, *arguments, **options):
    """case: a test case, or a class of them."""
    (case.addClassCleanup if isinstance(case, type) else case.addCleanup)(call, *arguments, **options)


def folder(case, prefix="cairn-"):
    """A new one."""
    made = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    at_the_end(case, shutil.rmtree, made, ignore_errors=True)
    return made


class Case(unittest.TestCase):
    """One with a `folder` of its own, which is made when it is first used."""

    @functools.cached_property
    def folder(self):
        return folder(self)


def made(path):
    """A folder that is not there yet."""
    path.mkdir()
    return path


def file(path, content):
    """A new file of that text, or of those bytes."""
    (path.write_text if isinstance(content, str) else path.write_bytes)(content)
    return path


def tree(path, files):
    """A new folder of these files: {name: bytes, or so many of random ones}."""
    made(path)
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(os.urandom(content) if isinstance(content, int) else content)
    return path


def content(folder):
    """{name: bytes} of all files below it."""
    paths = [pathlib.Path(where, name) for where, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def flip(path, *offsets):
    """The lowest bit of these bytes, in place: size and name stay right. Returns the path."""
    path.chmod(0o644)
    with open(path, "r+b") as opened:
        for offset in offsets:
            data = bytearray(path.read_bytes())
            opened.seek(offset % len(data))
            opened.write(bytes([data[offset] ^ 1]))
    return path


def safetensors(path, tensors, texts=None):
    """A file of them: {name: (dtype, shape, bytes)}; texts: its __metadata__."""
    header, data = {} if texts is None else {"__metadata__": texts}, b""
    for name, (dtype, shape, own) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    return file(path, struct.pack("<Q", len(text)) + text + data)


def tensors(path, count):
    """A file of so many of 1,024 bytes."""
    return safetensors(path, {f"t{number}": ("F32", [256], os.urandom(1024)) for number in range(count)})


def run(words, status=0, **options):
    """A program that must end with that status (None: any): what subprocess.run returns."""
    done = subprocess.run([str(word) for word in words], check=False, **{
        "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": HANG_S, **options})
    if status is not None and done.returncode != status:
        raise AssertionError(f"{words}: status {done.returncode}, wanted {status}\n{done.stdout}\n{done.stderr}")
    return done


def has(text, *words):
    """All of them stand in it."""
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} stand nowhere in: {text}"


def begin(words, case=None, **options):
    """A program that goes on beside the test; case: it is killed at its end."""
    process = subprocess.Popen([str(word) for word in words], **{
        "text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})
    if case:
        at_the_end(case, process.communicate)
        at_the_end(case, process.kill)
    return process


P_256 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def certificate(folder, name="cairn", alt=None, cert="cert", key="key", kind=P_256):
    """One that vouches for itself, and its key. alt: its subjectAltName; kind: of key, one of RSA takes long to make."""
    run(["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "2", "-subj", f"/CN={name}",
         *(["-addext", f"subjectAltName={alt}"] if alt else []), "-keyout", folder / key, "-out", folder / cert])
    (folder / key).chmod(0o600)


class StandIn(http.server.ThreadingHTTPServer):
    """A server in place of another one. answer(request): (status, body), bytes or what JSON can say, and headers, if
    it likes; None: it hangs up. request: command, path and headers as http.server has them, and body."""

    daemon_threads = True

    def __init__(self, answer, case=None):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                said = answer(self)
                if said is None:
                    self.close_connection = True
                    return
                status, body, headers = said if len(said) == 3 else (*said, {})
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                kind = {"Content-Type": "application/problem+json" if status >= 400 else "application/json"}
                for name, value in {**kind, **headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = reply

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()
        if case:
            at_the_end(case, self.stop)

    def handle_error(self, *_):
        """A caller that was killed has reset its connection."""

    def stop(self):
        self.shutdown()
        self.server_close()
