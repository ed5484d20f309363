# SPDX-License-Identifier: Apache-2.0
"""Prints what a quickstart run did as a short table, from the JSON lines of its programs."""
import json
import sys


def main():
    work, ranks, restored, restore_ms = sys.argv[1], *map(int, sys.argv[2:5])
    saves = [json.load(open(f"{work}/save-{r}.json")) for r in range(ranks)]
    restores = [json.load(open(f"{work}/restore-{r}.json")) for r in range(restored)]
    check = json.load(open(f"{work}/check.json"))
    saved = sum(s["bytes"] for s in saves)
    stall = [s["stall_us"] / 1e6 for s in saves]
    commit = max(s["committed_us"] for s in saves) / 1e6
    rows = [
        ("checkpoint", f"step {restores[0]['step']}, {saves[0]['version']}"),
        ("tensors", f"{check['tensors']} (one replicated, one tied)"),
        ("bytes saved", f"{saved:,} ({saved / 2**30:.2f} GiB)"),
        ("saved by", f"{ranks} processes, flat pieces of {min(s['bytes'] for s in saves):,}"
                     f" to {max(s['bytes'] for s in saves):,} bytes"),
        ("restored by", f"{restored} processes, rows and flat ranges,"
                        f" {sum(r['bytes'] for r in restores):,} bytes"),
        ("stall", f"{min(stall):.3f} to {max(stall):.3f} s (begin + stage)"),
        ("save, to commit", f"{commit:.2f} s from the slowest rank's begin,"
                            f" {saved / 1e9 / commit:.2f} GB/s"),
        ("restore", f"{restore_ms / 1e3:.2f} s with process start and writing files,"
                    f" {sum(r['bytes'] for r in restores) / 1e6 / restore_ms:.2f} GB/s"),
        ("elements wrong", f"{check['wrong']} of {check['bytes']:,} bytes recomputed"),
    ]
    for name, value in rows:
        print(f"  {name:<16} {value}")
    if check["wrong"] or len({s["version"] for s in saves}) != 1:
        sys.exit("quickstart: DIFFERENCE")


main()
