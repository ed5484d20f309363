/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage: a save that is copied while training goes on.
 *
 * Why:     a copy takes as long as the memory is large, and the sources of a save do not change
 *          until the optimizer's next step: until then nobody need stand still for it.
 * Promise: P4  what is saved is what the sources held from cairn_save_stage_begin until the fence;
 *              after the fence they may be changed, whatever it returned but CAIRN_TIMEOUT and
 *              CAIRN_INTERRUPTED.
 *          P9  begin waits for neither the copy nor the uploader; the fence ends by its timeout.
 * Limits:  saves of a session are copied one after the other, each with at most `copy_threads`, at
 *          a lower priority than the calling thread's.
 * Threads: cairn_save_stage_begin as cairn_save_stage; the fences may come from any thread at any
 *          time until cairn_save_free, several times.
 * Next:    cairn/cairn.h; cairn/poll.h for loops of events: cairn_save_fd is readable when it is
 *          copied, and cairn_save_poll(save, CAIRN_COPIED, err) says so.
 *
 *     cairn_save_stage_begin(save, &err);              the parameters do not change from here ...
 *     loss = forward(batch);
 *     backward(loss);
 *     cairn_save_fence(save, 0, &err);                 ... to here
 *     optimizer_step();
 *
 * What the trainer promises: between the two calls it writes to no source and frees none (reading
 * them is what training does). Nobody notices where it does not: the save holds what was read, some
 * of it old and some new. `verify_sources` of cairn_save_options finds that out, in tests.
 *
 *     the trainer dies          before the copy is whole and sealed: the save fails for all ranks.
 *                               After the seal it goes on without the trainer.
 *     cairn_save_cancel, _fail  no more is copied; the fence returns CAIRN_CANCELLED.
 *     cairn_save_free           before the copy is whole, it fails the save, and returns when no
 *                               source is read any more. After that the save goes on.
 *     another cairn_save_begin  goes on in the other half of the memory; its copy comes after this
 *                               one's. The one after that waits for memory, as always.
 *     cairn_close, _renew       wait until the copies are whole and sealed, at most the session's
 *                               timeout; a save that is not copied by then fails.
 *     the uploader dies         the copy goes on, and is sealed with the next uploader.
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

/* Begin what cairn_save_stage does, and return: every piece gets its place, and threads of the
 * library copy and seal. `fill` functions are called by them. cairn_save_stage is this call and
 * cairn_save_fence in a row, on the caller's thread. CAIRN_INVALID (an order of calls, also after
 * cairn_save_copy) changes nothing; any other error is final, as of cairn_save_stage. What goes
 * wrong later is returned by the fence or by cairn_save_wait, else by cairn_session_problem. */
enum cairn_code cairn_save_stage_begin(struct cairn_save *save, struct cairn_error *err);
/* Wait until the sources may be changed. CAIRN_OK also where no uploader is there: the save is
 * sealed with the next one. CAIRN_TIMEOUT, CAIRN_INTERRUPTED: they are read still, and the call may
 * be repeated. Any other error is the save's end: CAIRN_CANCELLED, and what cairn_save_stage
 * returns. CAIRN_INVALID: nothing is being copied, which is the end of no save. Time spent here is
 * part of `stall_us`. After cairn_save_stage or cairn_save_copy it is CAIRN_OK at once. */
enum cairn_code cairn_save_fence(struct cairn_save *save, uint32_t timeout_ms,
                                 struct cairn_error *err);
/* Have a CUDA stream (cudaStream_t) wait, on the device, for the copy of the sources that are
 * memory of devices: work that is queued in it from here on, such as the optimizer's step, may
 * change them. The host waits for nothing but that the copies are queued. Sources in host memory
 * need cairn_save_fence. CAIRN_OK at once where no source is memory of a device, or all is copied.
 * An error: the stream waits for nothing; cairn_save_fence is to be called. CAIRN_INVALID: also
 * with `verify_sources`. */
enum cairn_code cairn_save_fence_stream(struct cairn_save *save, void *stream,
                                        struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
