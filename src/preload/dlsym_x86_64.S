/* SPDX-License-Identifier: MIT */
/*
 * void *dlsym(void *handle, const char *name), before the C library's own.
 *
 * RTLD_NEXT and RTLD_DEFAULT mean something else for each caller, whom the C library knows by the return address. So
 * what is not answered here is passed on by a jump, with the stack as the caller left it. No compiler promises that
 * for a call in C.
 */
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $24, %rsp
    .cfi_adjust_cfa_offset 24
    movq 40(%rsp), %rdx             /* the caller */
    movq %rsp, %rcx                 /* room for the answer */
    call interpose_look_up
    testq %rax, %rax
    je .Lanswered
    addq $24, %rsp
    .cfi_adjust_cfa_offset -24
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
.Lanswered:
    .cfi_adjust_cfa_offset 40
    movq (%rsp), %rax
    addq $40, %rsp
    .cfi_adjust_cfa_offset -40
    ret
    .cfi_endproc
    .size dlsym, . - dlsym
    .section .note.GNU-stack, "", @progbits
