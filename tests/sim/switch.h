/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switch: from one stack to another.
 *
 * Why:     swapcontext asks the kernel twice each time, and AddressSanitizer wipes the shadow of
 *          the whole stack on top.
 * Promise: 1   sim_switch keeps what a call keeps, and returns when somebody switches back.
 * Limits:  x86-64; elsewhere swapcontext.
 * Threads: one.
 * Next:    kernel.c.
 */
#pragma once

#include "common/base.h"

#if defined(__x86_64__)
struct sim_context {
    void *stack_pointer;
};
void sim_switch_stacks(void **keep, void *to);
__asm__(".text\n"
        ".type sim_switch_stacks, @function\n"
        "sim_switch_stacks:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\n"
        "ret\n"
        ".size sim_switch_stacks, .-sim_switch_stacks\n");

static inline void sim_switch(struct sim_context *from, struct sim_context *to) {
    sim_switch_stacks(&from->stack_pointer, to->stack_pointer);
}

static inline void sim_context_make(struct sim_context *context, void *stack, size_t size,
                                    void (*run)(void)) {
    enum { KEPT = 6 };
    void **top = (void **)(void *)((uint8_t *)stack + size - 8); /* as after a call */
    *top = NULL;
    *--top = (void *)(uintptr_t)run;
    for (int i = 0; i < KEPT; i++) *--top = NULL;
    context->stack_pointer = top;
}
#else
#include <ucontext.h>

struct sim_context {
    ucontext_t context;
};

static inline void sim_switch(struct sim_context *from, struct sim_context *to) {
    swapcontext(&from->context, &to->context);
}

static inline void sim_context_make(struct sim_context *context, void *stack, size_t size,
                                    void (*run)(void)) {
    getcontext(&context->context);
    context->context.uc_stack.ss_sp = stack;
    context->context.uc_stack.ss_size = size;
    makecontext(&context->context, run, 0);
}
#endif
