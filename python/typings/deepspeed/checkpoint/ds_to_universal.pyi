# SPDX-License-Identifier: Apache-2.0
import argparse

def main(args: argparse.Namespace) -> None: ...
