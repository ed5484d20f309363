# SPDX-License-Identifier: Apache-2.0
"""The programs of Cairn (cairn, cairn-server, cairn-uploader) for those who install by pip: wheel `cairn-ckpt-daemons`."""
from __future__ import annotations

import os
import pathlib
import sys

BIN = pathlib.Path(__file__).with_name("bin")
# Where systems keep the certificates that they trust. The libcurl in the wheel knows Debian's place alone.
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                 "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem")


def _start(name: str) -> None:
    found = next((path for path in _CERTIFICATES if os.path.exists(path)), None)
    if found and found != _CERTIFICATES[0]:
        os.environ.setdefault("AWS_CA_BUNDLE", found)
    program = str(BIN / name)
    os.execv(program, [program, *sys.argv[1:]])


def command() -> None:
    _start("cairn")


def server() -> None:
    _start("cairn-server")


def uploader() -> None:
    _start("cairn-uploader")
