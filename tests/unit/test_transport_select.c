/* SPDX-License-Identifier: MIT */
/** @file Transports chosen by policy, and why the others were not. */
#include <string.h>

#include "cuda/context.h"
#include "query/answers.h"
#include "transport_machine.h"

TestSuite(transport_select, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

static gpuipc_selection choose(gpuipc_context *made, const gpuipc_transport_pair *pair,
                               gpuipc_buffer *buffer, gpuipc_policy policy,
                               gpuipc_status expected) {
    gpuipc_selection selection = {.struct_size = sizeof(selection)};
    check_status(expected, gpuipc_transport_select(made, pair, buffer, policy, &selection));
    return selection;
}

#define R(name) GPUIPC_REASON_##name

Test(transport_select, zero_copy_is_the_first_choice) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_selection selection = choose(made, &pair, NULL, GPUIPC_POLICY_ZERO_COPY, GPUIPC_OK);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_VMM);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_VMM], R(NONE));
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_LEGACY], R(NONE), "it would do as well");
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_HOST], R(POLICY));
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_P2P], R(SAME_PROCESS_ONLY));
    cr_assert_neq(selection.refused[GPUIPC_TRANSPORT_FABRIC], R(NONE));
    selection = choose(made, &pair, NULL, GPUIPC_POLICY_PREFER_ZERO_COPY, GPUIPC_OK);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_VMM);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_HOST], R(NONE));
    selection = choose(made, &pair, NULL, GPUIPC_POLICY_ANY, GPUIPC_OK);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_VMM);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_select, staged_copies_are_chosen_only_where_they_may) {
    gpuipc_context *made = machine_context("p2p=none");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_selection selection =
        choose(made, &pair, NULL, GPUIPC_POLICY_ZERO_COPY, GPUIPC_ERR_NO_TRANSPORT);
    cr_assert_not_null(strstr(gpuipc_error_get()->sentence, "no peer access"), "%s",
                       gpuipc_error_get()->sentence);
    cr_assert_eq(strncmp(gpuipc_error_get()->sentence, "vmm: ", 5), 0);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_DEFAULT);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_VMM], R(NO_P2P));
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_HOST], R(POLICY));
    selection = choose(made, &pair, NULL, GPUIPC_POLICY_PREFER_ZERO_COPY, GPUIPC_OK);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_HOST);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_VMM], R(NO_P2P));
    selection = choose(made, &pair, NULL, GPUIPC_POLICY_ANY, GPUIPC_OK);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_HOST);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_select, without_virtual_memory_legacy_is_next) {
    gpuipc_context *made = machine_context("vmm=0");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    const gpuipc_selection selection =
        choose(made, &pair, NULL, GPUIPC_POLICY_ZERO_COPY, GPUIPC_OK);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_VMM], R(NO_VMM));
    cr_assert(selection.chosen == GPUIPC_TRANSPORT_LEGACY ||
              selection.chosen == GPUIPC_TRANSPORT_POOL);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_select, peer_access_is_chosen_for_the_own_process) {
    gpuipc_context *made = machine_context("vmm=0");
    core_pair ends;
    core_pair_open(&ends, made, made);
    gpuipc_transport_pair pair = machine_pair(0, 1);
    pair.connection = ends.client;
    const gpuipc_selection selection =
        choose(made, &pair, NULL, GPUIPC_POLICY_ZERO_COPY, GPUIPC_OK);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_P2P], R(NONE));
    core_pair_close(&ends);
    check_ok(gpuipc_context_destroy(made));
}

/* A figure in the place of the known one. */
static void set_bandwidth(gpuipc_context *made, gpuipc_transport which, uint64_t bandwidth) {
    context *ctx;
    gpuipc_transport_info info;
    check_ok(context_acquire(made, &ctx));
    cr_assert(answers_find(ctx->answers, which, 0, 1, &info));
    info.bandwidth_bytes_per_second = bandwidth;
    check_ok(answers_keep(ctx->answers, 0, 1, &info));
    context_unreference(ctx);
}

Test(transport_select, the_faster_one_is_chosen_when_it_is_clearly_faster) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    (void)choose(made, &pair, NULL, GPUIPC_POLICY_ANY, GPUIPC_OK);
    set_bandwidth(made, GPUIPC_TRANSPORT_VMM, 100);
    set_bandwidth(made, GPUIPC_TRANSPORT_LEGACY, 109);
    if (!machine_is_windows()) {
        set_bandwidth(made, GPUIPC_TRANSPORT_POOL, 99);
    }
    set_bandwidth(made, GPUIPC_TRANSPORT_HOST, 90);
    cr_assert_eq(choose(made, &pair, NULL, GPUIPC_POLICY_ANY, GPUIPC_OK).chosen,
                 GPUIPC_TRANSPORT_VMM);
    set_bandwidth(made, GPUIPC_TRANSPORT_LEGACY, 130);
    cr_assert_eq(choose(made, &pair, NULL, GPUIPC_POLICY_ZERO_COPY, GPUIPC_OK).chosen,
                 GPUIPC_TRANSPORT_LEGACY);
    set_bandwidth(made, GPUIPC_TRANSPORT_HOST, 1000);
    cr_assert_eq(choose(made, &pair, NULL, GPUIPC_POLICY_PREFER_ZERO_COPY, GPUIPC_OK).chosen,
                 GPUIPC_TRANSPORT_LEGACY);
    cr_assert_eq(choose(made, &pair, NULL, GPUIPC_POLICY_ANY, GPUIPC_OK).chosen,
                 GPUIPC_TRANSPORT_HOST);
    check_ok(gpuipc_context_destroy(made));
}

static gpuipc_selection choose_for_pool(gpuipc_context *made, uint32_t user,
                                        const gpuipc_buffer_config *config) {
    const gpuipc_transport_pair pair = machine_pair(0, user);
    gpuipc_buffer *buffer = NULL;
    check_ok(gpuipc_buffer_create(made, config, &buffer));
    const gpuipc_selection found = choose(made, &pair, buffer, GPUIPC_POLICY_ZERO_COPY, GPUIPC_OK);
    check_ok(gpuipc_buffer_release(buffer));
    return found;
}

/* Its exporter's death would take the context of the GPU that reads it: measured on two H200. */
Test(transport_select, pool_is_chosen_between_two_devices_only_for_its_own_memory) {
    gpuipc_context *made = machine_context("");
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_POOL, .bytes = 1};
    if (machine_is_windows()) {
        cr_skip_test("Windows shares no pools");
    }
    const gpuipc_transport_pair across = machine_pair(0, 1);
    const gpuipc_transport_pair alone = machine_pair(0, 0);
    (void)choose(made, &across, NULL, GPUIPC_POLICY_ANY, GPUIPC_OK);
    set_bandwidth(made, GPUIPC_TRANSPORT_POOL, UINT64_C(1) << 62); /* however fast it is */
    for (gpuipc_policy policy = GPUIPC_POLICY_ZERO_COPY; policy <= GPUIPC_POLICY_ANY; policy++) {
        const gpuipc_selection found = choose(made, &across, NULL, policy, GPUIPC_OK);
        cr_assert_eq(found.chosen, GPUIPC_TRANSPORT_VMM);
        cr_assert_eq(found.refused[GPUIPC_TRANSPORT_POOL], R(POOL_ACROSS_GPUS));
    }
    cr_assert_eq(choose(made, &alone, NULL, GPUIPC_POLICY_ZERO_COPY, GPUIPC_OK)
                     .refused[GPUIPC_TRANSPORT_POOL],
                 R(NONE), "on one device it would do as well");
    cr_assert_eq(choose_for_pool(made, 1, &config).chosen, GPUIPC_TRANSPORT_POOL);
    cr_assert_eq(choose_for_pool(made, 0, &config).chosen, GPUIPC_TRANSPORT_POOL);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_select, a_buffer_goes_by_the_transport_it_is_of) {
    gpuipc_context *made = machine_context("");
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_buffer *buffer = NULL;
    check_ok(gpuipc_buffer_create(made, &config, &buffer));
    gpuipc_selection selection = choose(made, &pair, buffer, GPUIPC_POLICY_ANY, GPUIPC_OK);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_VMM);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_LEGACY], R(WRONG_MEMORY));
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_POOL], R(WRONG_MEMORY));
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_FABRIC], R(WRONG_MEMORY));
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_HOST], R(NONE));
    check_ok(gpuipc_buffer_release(buffer));
    gpuipc_selection none = {.struct_size = sizeof(none)};
    check_status(GPUIPC_ERR_RELEASED,
                 gpuipc_transport_select(made, &pair, buffer, GPUIPC_POLICY_ANY, &none));
    check_ok(gpuipc_context_destroy(made));
}

/* Such memory stays in its process, so who asks about it means that. */
Test(transport_select, memory_of_peer_access_goes_by_it_in_the_own_process) {
    gpuipc_context *made = machine_context("");
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_P2P, .bytes = 1};
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_buffer *plain = NULL;
    check_ok(gpuipc_buffer_create(made, &config, &plain));
    const gpuipc_selection selection =
        choose(made, &pair, plain, GPUIPC_POLICY_ZERO_COPY, GPUIPC_OK);
    cr_assert_eq(selection.chosen, GPUIPC_TRANSPORT_P2P);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_VMM], R(WRONG_MEMORY));
    check_ok(gpuipc_buffer_release(plain));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_select, what_the_policy_refuses_is_told_by_it) {
    gpuipc_context *made = machine_context("");
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_HOST, .bytes = 1};
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_buffer *of_host = NULL;
    check_ok(gpuipc_buffer_create(made, &config, &of_host));
    const gpuipc_selection selection =
        choose(made, &pair, of_host, GPUIPC_POLICY_ZERO_COPY, GPUIPC_ERR_NO_TRANSPORT);
    cr_assert_eq(strncmp(gpuipc_error_get()->sentence, "host: ", 6), 0, "%s",
                 gpuipc_error_get()->sentence);
    cr_assert_eq(selection.refused[GPUIPC_TRANSPORT_HOST], R(POLICY));
    check_ok(gpuipc_buffer_release(of_host));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_select, wrong_questions_are_refused) {
    gpuipc_context *made = machine_context("");
    gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_selection selection = {.struct_size = sizeof(selection)};
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_select(made, &pair, NULL, (gpuipc_policy)3, &selection));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_select(NULL, &pair, NULL, GPUIPC_POLICY_ANY, &selection));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_select(made, &pair, NULL, GPUIPC_POLICY_ANY, NULL));
    pair.owner = 99;
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_transport_select(made, &pair, NULL, GPUIPC_POLICY_ANY, &selection));
    selection.struct_size = 8;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_transport_select(made, &pair, NULL, GPUIPC_POLICY_ANY, &selection));
    check_ok(gpuipc_context_destroy(made));
}
