# SPDX-License-Identifier: Apache-2.0
"""How long a test waits for a state that must come. On a busy machine everything takes longer and ends the
same, so nothing is chosen on a quiet one: a state that is not there after HANG_S never comes."""

HANG_S = 300.0
