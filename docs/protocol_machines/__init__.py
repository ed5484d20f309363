# SPDX-License-Identifier: Apache-2.0
"""The machines of docs/protocol_model.py: each a small world of processes, faults and rules.

A machine is built from a set of rules (names of docs/protocol_model.py, RULES) and the parameters of a
scenario. Every action may wait for ever and every timeout may fire, so a pause, a delay and a partition
are nothing but other orders of the same actions."""
