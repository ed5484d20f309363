/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reports: what a sanitizer says about a program that a test started.
 *
 * Why:     a daemon's sanitizer writes to its standard error, which nobody reads, and a daemon that
 *          is killed has no exit status to tell by. So each report goes to a file of its own.
 * Promise: 1   every process that is started after begin writes its reports to the test's folder:
 *              CAIRN_TEST_REPORTS, which ctest sets, or a new one below TMPDIR.
 *          2   check tells of each file once; the files stay for the last look that ctest takes
 *              (tests/support/reports.sh), also when the test is run again and passes.
 *          3   a process that is killed while its sanitizer looks for leaks is no finding: all that
 *              such a report says is of which thread there were no registers any more.
 * Limits:  1,024 reports a test program; the first 16 KiB of each are shown.
 * Threads: main thread only.
 * Next:    tests/harness.c calls check at the end of each test; tests/e2e/reports.py is its twin.
 */
#pragma once

/* Aborts when the folder cannot be made. */
void cairn_reports_begin(void);
/* How many reports are there that were not told yet; each is printed to standard error. */
unsigned cairn_reports_check(void);
/* Removes the folder if it was made here and is empty. */
void cairn_reports_end(void);
