/* SPDX-License-Identifier: MIT */
/** @file See growth.h: calls about buffers, and what is in them. */
#include "growth.h"
#include "os.h"

/* ---- their beginning and end ------------------------------------------------------------------------ */

static void create(unsigned i) {
    growth_items[i].buffer = growth_buffer(world.context);
}

static void wrap(unsigned i) {
    MUST(gpuipc_buffer_wrap(world.context, gpuipc_buffer_address(world.idle), GROWTH_BYTES,
                            &growth_items[i].buffer));
}

static void release(unsigned i) {
    MUST(gpuipc_buffer_release(growth_items[i].buffer));
}

static void release_async(unsigned i) {
    MUST(gpuipc_buffer_release_async(growth_items[i].buffer, NULL));
}

static void drop(unsigned i) {
    MUST(gpuipc_buffer_drop(growth_items[i].buffer));
}

static void receive(unsigned i) {
    growth_items[i].buffer = growth_hand_over(world.idle, 0, 0);
}

static void receive_unready(unsigned i) {
    growth_items[i].buffer =
        growth_hand_over(world.idle, GPUIPC_SEND_ASYNC, GPUIPC_RECEIVE_DEFERRED);
}

static void retain_idle(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_retain(world.idle));
}

static void release_idle(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_release(world.idle));
}

static void pause_drops(unsigned i) {
    (void)i;
    MUST(gpuipc_drops_pause());
}

static void resume_drops(unsigned i) {
    (void)i;
    MUST(gpuipc_drops_resume());
}

/* ---- what is known of them ------------------------------------------------------------------------------ */

static void get_info(unsigned i) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    (void)i;
    MUST(gpuipc_buffer_get_info(world.own, &info));
}

static void address(unsigned i) {
    (void)i;
    if (gpuipc_buffer_address(world.own) == 0) {
        growth_fail("a buffer has no address");
    }
}

static void find(unsigned i) {
    uint64_t offset = 0;
    const uint64_t wanted = gpuipc_buffer_address(world.idle) + 64;
    MUST(gpuipc_buffer_find(world.context, wanted, &growth_items[i].buffer, &offset));
}

static void set_access(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_set_access(world.idle, 0, GPUIPC_ACCESS_DEFAULT));
}

/* ---- what is in them -------------------------------------------------------------------------------------- */

static char room[4096];

static void copy_async(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_copy_async(world.idle, 0, world.idle, 8192, sizeof(room), NULL));
}

static void fill_async(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_fill_async(world.idle, 0, sizeof(room), 1, 4, NULL));
}

static void write(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_write(world.idle, 0, room, sizeof(room)));
}

static void read(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_read(world.idle, 0, room, sizeof(room)));
}

static void synchronize(unsigned i) {
    (void)i;
    growth_synchronize();
}

/* ---- there and back ------------------------------------------------------------------------------------------ */

static void await_ready(unsigned i) {
    MUST(gpuipc_buffer_await_ready(growth_items[i].buffer, GROWTH_SOON_MS));
}

static void await_ready_async(unsigned i) {
    MUST(gpuipc_buffer_await_ready_async(growth_items[i].buffer, NULL));
}

static void return_async(unsigned i) {
    MUST(gpuipc_buffer_return_async(growth_items[i].buffer, NULL));
}

/* Of one that hand-overs of are out, in one of the populations. */
static void await_returns(unsigned i) {
    (void)i;
    const gpuipc_status status = gpuipc_buffer_await_returns(world.own, 0);
    if (status != GPUIPC_ERR_TIMEOUT) {
        MUST(status);
    }
}

static void await_returns_of_idle(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_await_returns(world.idle, 0));
}

static void await_returns_async(unsigned i) {
    (void)i;
    MUST(gpuipc_buffer_await_returns_async(world.idle, NULL));
}

static void get_returns_wait_handle(unsigned i) {
    intptr_t handle = 0;
    (void)i;
    MUST(gpuipc_buffer_get_returns_wait_handle(world.arena, &handle));
}

static void release_behind_stream(unsigned i) {
    growth_synchronize();
    release(i);
}

/* ---- native handles ---------------------------------------------------------------------------------------- */

static void native_export(unsigned i) {
    size_t count = 0;
    growth_items[i].layout = (gpuipc_native_layout)GPUIPC_NATIVE_LAYOUT_INIT;
    MUST(gpuipc_native_export(world.idle, &growth_items[i].segment, 1, &growth_items[i].layout,
                              &count));
}

static void close_native(unsigned i) {
    os_handle handle;
    MUST(os_handle_adopt(growth_items[i].segment.handle.value, &handle));
    os_handle_close(&handle);
}

static void native_import(unsigned i) {
    MUST(gpuipc_native_import(world.context, &growth_items[i].segment, 1, &growth_items[i].layout,
                              GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_DEFAULT, &growth_items[i].buffer));
}

static void undo_import(unsigned i) {
    release(i);
    close_native(i);
}

static bool has_dmabuf;

static void native_export_dmabuf(unsigned i) {
    gpuipc_native_dmabuf made = GPUIPC_NATIVE_DMABUF_INIT;
    const gpuipc_status status = gpuipc_native_export_dmabuf(world.idle, 0, GROWTH_BYTES, &made);
    has_dmabuf = status != GPUIPC_ERR_NOT_SUPPORTED;
    if (has_dmabuf) {
        MUST(status);
        growth_items[i].segment.handle = made.handle;
    }
}

static void close_dmabuf(unsigned i) {
    if (has_dmabuf) {
        close_native(i);
    }
}

static const growth_call calls[] = {
    {"gpuipc_buffer_create", NULL, NULL, create, release, 0, NULL},
    {"gpuipc_buffer_wrap", NULL, NULL, wrap, release, 0, NULL},
    {"gpuipc_buffer_retain", NULL, NULL, retain_idle, release_idle, 0, NULL},
    {"gpuipc_buffer_release", "of one that was made", create, release, NULL, 0, NULL},
    {"gpuipc_buffer_release", "of one that was received", receive, release, NULL, 0, NULL},
    {"gpuipc_buffer_release_async", NULL, create, release_async, synchronize, 0, NULL},
    {"gpuipc_buffer_drop", NULL, create, drop, NULL, 0, NULL},
    {"gpuipc_drops_pause", NULL, NULL, pause_drops, resume_drops, 0, NULL},
    {"gpuipc_drops_resume", NULL, pause_drops, resume_drops, NULL, 0, NULL},
    {"gpuipc_buffer_get_info", NULL, NULL, get_info, NULL, 0, NULL},
    {"gpuipc_buffer_address", NULL, NULL, address, NULL, 0, NULL},
    {"gpuipc_buffer_find", NULL, NULL, find, release, 0, NULL},
    {"gpuipc_buffer_set_access", NULL, NULL, set_access, NULL, 0, NULL},
    {"gpuipc_buffer_copy_async", NULL, NULL, copy_async, synchronize, 0, NULL},
    {"gpuipc_buffer_fill_async", NULL, NULL, fill_async, synchronize, 0, NULL},
    {"gpuipc_buffer_write", NULL, NULL, write, NULL, 0, NULL},
    {"gpuipc_buffer_read", NULL, NULL, read, NULL, 0, NULL},
    {"gpuipc_buffer_await_ready", NULL, receive_unready, await_ready, release, 0, NULL},
    {"gpuipc_buffer_await_ready_async", NULL, receive_unready, await_ready_async,
     release_behind_stream, 0, NULL},
    {"gpuipc_buffer_return_async", NULL, receive, return_async, release_behind_stream, 0, NULL},
    {"gpuipc_buffer_await_returns", "of one that is out", NULL, await_returns, NULL, 0, NULL},
    {"gpuipc_buffer_await_returns", "of one that is back", NULL, await_returns_of_idle, NULL, 0,
     NULL},
    {"gpuipc_buffer_await_returns_async", NULL, NULL, await_returns_async, synchronize, 0, NULL},
    {"gpuipc_buffer_get_returns_wait_handle", NULL, NULL, get_returns_wait_handle, NULL, 0, NULL},
    {"gpuipc_native_export", NULL, NULL, native_export, close_native, 0, NULL},
    {"gpuipc_native_import", NULL, native_export, native_import, undo_import, 0, NULL},
    {"gpuipc_native_export_dmabuf", NULL, NULL, native_export_dmabuf, close_dmabuf, 0, NULL},
};

const growth_calls growth_buffer_calls = {calls, sizeof(calls) / sizeof(calls[0])};
