/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage: copy a save while training goes on.
 *
 * Why:     a copy takes time in proportion to its bytes, and the sources of a save do not change
 *          until the optimizer's next step: until then training need not stop.
 * Promise: P4  a save holds what its sources held between cairn_save_stage_begin and the fence;
 *              after the fence they may be changed, whatever it returned except CAIRN_TIMEOUT and
 *              CAIRN_INTERRUPTED.
 *          P9  begin waits for neither the copy nor the uploader; the fence ends by its timeout.
 * Limits:  saves of a session are copied one after the other, each by at most `copy_threads`
 *          threads, at a lower priority than the calling thread's.
 * Threads: cairn_save_stage_begin as cairn_save_stage; any thread may call the fences, several
 *          times, until cairn_save_free.
 * Next:    cairn/cairn.h; cairn/poll.h for event loops: cairn_save_fd becomes readable when the
 *          copy is done, and cairn_save_poll(save, CAIRN_COPIED, err) confirms it.
 *
 *     cairn_save_stage_begin(save, &err);              the parameters do not change from here ...
 *     loss = forward(batch);
 *     backward(loss);
 *     cairn_save_fence(save, 0, &err);                 ... to here
 *     optimizer_step();
 *
 * The trainer must not write to or free any source between the two calls (reading, as training
 * does, is fine). The library does not detect a violation: the save then mixes old and new bytes.
 * In tests, `verify_sources` of cairn_save_options detects it.
 *
 *     the trainer dies          before the copy is complete and sealed: the save fails for all
 *                               ranks. After the seal the save goes on without the trainer.
 *     cairn_save_cancel, _fail  stop the copy; the fence returns CAIRN_CANCELLED.
 *     cairn_save_free           before the copy is complete: fails the save, and returns when no
 *                               source is read any more. After that the save goes on.
 *     another cairn_save_begin  uses the other half of the memory; its copy comes after this one.
 *                               The begin after that waits for memory, as always.
 *     cairn_close, _renew       wait until the copies are complete and sealed, at most the
 *                               session's timeout; a save that is not copied by then fails.
 *     the uploader dies         the copy goes on, and is sealed with the next uploader; `away` of
 *                               cairn_save_status is 1 from the end of the copy until then.
 */
#ifndef CAIRN_STAGE_H
#define CAIRN_STAGE_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Starts what cairn_save_stage does, and returns: it lays out every piece, then library threads
 * copy and seal, and call `fill` functions. cairn_save_stage equals this call plus
 * cairn_save_fence, on the caller's thread. CAIRN_INVALID (wrong order of calls, also after
 * cairn_save_copy) changes nothing; any other error is final, as for cairn_save_stage. Later
 * failures are returned by the fence or by cairn_save_wait, else by cairn_session_problem. */
enum cairn_code cairn_save_stage_begin(struct cairn_save *save, struct cairn_error *err);
/* Waits until the sources may be changed. CAIRN_OK also without an uploader: the next one seals the
 * save. CAIRN_TIMEOUT, CAIRN_INTERRUPTED: the sources are still being read; the call may be
 * repeated. CAIRN_INVALID: no copy is under way; the save is unaffected. Any other error ends the
 * save: CAIRN_CANCELLED, or an error of cairn_save_stage. Time spent here counts in `stall_us`.
 * After cairn_save_stage or cairn_save_copy it returns CAIRN_OK at once. */
enum cairn_code cairn_save_fence(struct cairn_save *save, uint32_t timeout_ms,
                                 struct cairn_error *err);
/* Makes a CUDA stream (cudaStream_t) wait, on the device, for the copy of the sources in device
 * memory: work queued on it afterwards, such as the optimizer's step, may change them. The host
 * waits only until the copies are queued. Sources in host memory need cairn_save_fence. CAIRN_OK at
 * once if no source is in device memory, or all are copied. After an error the stream may not wait;
 * call cairn_save_fence. CAIRN_INVALID: also with `verify_sources`. */
enum cairn_code cairn_save_fence_stream(struct cairn_save *save, void *stream,
                                        struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
