/* SPDX-License-Identifier: MIT */
/** @file Frames whose words kernels have, and calls of the driver that fail. */
#include "base/status.h"
#include "kernel_case.h"

TestSuite(channel_kernel_failure, .init = channel_start, .fini = channel_finish, .timeout = 60);

static void check_publish_fails(const char *how, const gpuipc_frame *frame, CUstream stream) {
    gpuipc_word word;
    size_t count = 0;
    core_set_failures(how);
    check_status(GPUIPC_ERR_CUDA, gpuipc_channel_publish_by_kernel(channel_case_channel, frame,
                                                                   stream, &word, 1, &count));
    core_set_failures("");
}

static void check_take_fails(const char *how, gpuipc_subscription *reader, CUstream stream) {
    gpuipc_word word;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    core_set_failures(how);
    check_status(GPUIPC_ERR_CUDA,
                 gpuipc_subscription_take_for_kernel(reader, stream, 0, &came, &word, &word));
    core_set_failures("");
}

/* What failed is as before: it is on loan, the next call's, or owed. */
Test(channel_kernel_failure, a_failure_leaves_all_as_it_was) {
    atomic_bool may_run = false;
    kernel_case writes = {.may_run = &may_run};
    kernel_case uses_it = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame frame = kernel_case_loan(makes);
    check_publish_fails("cuMemHostRegister:1=999", &frame, makes);
    check_publish_fails("cuMemHostGetDevicePointer:1=999", &frame, makes);
    check_publish_fails("cuEventCreate:1=999", &frame, makes);
    channel_case_check_nothing(reader);
    kernel_case_publish(&frame, makes, &writes);
    kernel_case_launch(&writes, makes);
    core_set_failures("cuEventRecord:1=999");
    check_status(GPUIPC_ERR_CUDA,
                 gpuipc_channel_kernel_launched(channel_case_channel, &frame, makes));
    check_take_fails("cuMemHostRegister:1=999", reader, uses);
    check_take_fails("cuEventCreate:1=999", reader, uses);
    check_take_fails("cuEventCreate:2=999", reader, uses); /* it has to wait, so it has two turns */
    const gpuipc_frame came = kernel_case_take(reader, uses, &uses_it);
    kernel_case_launch(&uses_it, uses);
    kernel_case_say_written(&frame, makes);
    kernel_case_check_is_on_loan_no_more(&frame, makes);
    cr_assert_eq(channel_case_reader().lag, 0); /* it was offered once */
    atomic_store(&may_run, true);
    core_set_failures("cuEventRecord:1=999");
    check_status(GPUIPC_ERR_CUDA, gpuipc_subscription_kernel_launched(reader, &came, uses));
    core_set_failures("cuEventRecord:2=999");
    check_status(GPUIPC_ERR_CUDA, gpuipc_subscription_kernel_launched(reader, &came, uses));
    core_set_failures("");
    check_ok(gpuipc_subscription_kernel_launched(reader, &came, uses));
    stream_gate_synchronize(uses);
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 2);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* The kernel has given the slot back, and the writer has offered it again, when its reader's word of it comes to nothing. */
Test(channel_kernel_failure, a_kernel_that_could_not_be_told_of_is_given_back_by_its_stream) {
    kernel_case uses_it = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (uint64_t i = 1; i < 6; i += 2) {
        channel_case_send();
        const gpuipc_frame came = kernel_case_take(reader, uses, &uses_it);
        kernel_case_launch(&uses_it, uses);
        stream_gate_synchronize(uses);
        core_set_failures("cuEventRecord:1=999");
        check_status(GPUIPC_ERR_CUDA, gpuipc_subscription_kernel_launched(reader, &came, uses));
        core_set_failures("");
        channel_case_send();
        check_ok(gpuipc_subscription_give_back(reader, &came, i == 3 ? GPUIPC_NO_STREAM : uses));
        cr_assert_eq(channel_case_receive(reader), i + 1);
    }
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(uses);
    stream_gate_end();
}

Test(channel_kernel_failure, a_kernel_that_could_not_be_told_of_is_published_by_its_stream) {
    kernel_case writes = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (uint64_t i = 1; i < 6; i++) {
        const gpuipc_frame frame = kernel_case_loan(makes);
        kernel_case_publish(&frame, makes, &writes);
        kernel_case_launch(&writes, makes);
        stream_gate_synchronize(makes);
        core_set_failures("cuEventRecord:1=999");
        check_status(GPUIPC_ERR_CUDA,
                     gpuipc_channel_kernel_launched(channel_case_channel, &frame, makes));
        if (i % 2 == 0) { /* and once more */
            core_set_failures("cuStreamWriteValue64:1=999");
            check_status(GPUIPC_ERR_CUDA,
                         gpuipc_channel_publish(channel_case_channel, &frame, makes));
        }
        core_set_failures("");
        cr_assert_eq(channel_case_receive(reader), i);
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame,
                                        i == 3 ? GPUIPC_NO_STREAM : makes));
        kernel_case_check_is_on_loan_no_more(&frame, makes);
    }
    stream_gate_synchronize(makes);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* A frame that the slot had before, or none of this channel. */
Test(channel_kernel_failure, a_kernel_of_another_frame_was_not_launched) {
    kernel_case writes = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream another = stream_gate_stream();
    const gpuipc_frame frame = kernel_case_loan(makes);
    gpuipc_frame stale = frame;
    kernel_case_publish(&frame, makes, &writes);
    stale.id = frame.id + 256;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_kernel_launched(channel_case_channel, &stale, makes));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_kernel_launched(channel_case_channel, &frame, another));
    kernel_case_launch(&writes, makes);
    kernel_case_say_written(&frame, makes);
    stream_gate_synchronize(makes);
    stream_gate_stream_end(makes);
    stream_gate_stream_end(another);
    stream_gate_end();
}
