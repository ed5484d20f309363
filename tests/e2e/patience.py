# SPDX-License-Identifier: Apache-2.0
"""How long a test waits for a state that must come. On a busy machine everything takes longer and ends the
same, so nothing is chosen on a quiet one: a state that is not there after HANG_S never comes. The mutants
(tests/mutants/run), many of which keep a state from coming, set CAIRN_TEST_WAIT_S lower."""
import os

HANG_S = float(os.environ.get("CAIRN_TEST_WAIT_S", 300))
