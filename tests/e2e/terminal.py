# SPDX-License-Identifier: Apache-2.0
"""A terminal without a window: what a program gives it, and that as a page of HTML."""
import html
import os
import pty
import re
import subprocess

from patience import HANG_S

ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
# Of the sixteen colours and the two weights, those that the command uses.
PALETTES = {
    False: {"paper": "#fbfbf9", "ink": "#1c2126", "1": "font-weight:bold", "2": "color:#6b747d", "31": "color:#a3243b", "32": "color:#1d6b3a",
            "33": "color:#8a5208"},
    True: {"paper": "#14181c", "ink": "#e8ebee", "1": "font-weight:bold", "2": "color:#8a949d", "31": "color:#ff8b9c", "32": "color:#7fd19b",
           "33": "color:#f0b45a"},
}


def on_terminal(command, env):
    """What a terminal is given by a program that ends well."""
    master, slave = pty.openpty()
    child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    assert child.wait(HANG_S) == 0, seen
    return seen.decode().replace("\r\n", "\n")


def plain(text):
    return ESCAPE.sub("", text)


def page(text, dark):
    """The text as a terminal shows it."""
    palette, spans = PALETTES[dark], 0
    body = ""
    for at, piece in enumerate(ESCAPE.split(text)):
        if at % 2 == 0:
            body += html.escape(piece)
            continue
        body += "</span>" * spans
        spans = 0 if piece in ("", "0") else 1
        body += f'<span style="{palette[piece]}">' if spans else ""
    return (f'<!doctype html><meta charset="utf-8"><body style="margin:0;overflow:hidden;background:{palette["paper"]};color:{palette["ink"]}">'
            f'<pre style="margin:18px 22px;font:14px/1.45 ui-monospace,DejaVu Sans Mono,monospace">{body}{"</span>" * spans}</pre>')
