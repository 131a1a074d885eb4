/* SPDX-License-Identifier: MIT */
/** @file See packets.h; ld(1), --wrap: the names with two underscores are the linker's. */
#include "packets.h"

#include <stdatomic.h>

#include "os.h"

static atomic_uint_least64_t sent;
static atomic_uint_least64_t came_ns;

gpuipc_status __real_os_connection_send(os_connection *connection, const void *bytes, size_t size,
                                        const os_handle *handles, size_t count,
                                        os_deadline deadline);
gpuipc_status __wrap_os_connection_send(os_connection *connection, const void *bytes, size_t size,
                                        const os_handle *handles, size_t count,
                                        os_deadline deadline);

gpuipc_status __wrap_os_connection_send(os_connection *connection, const void *bytes, size_t size,
                                        const os_handle *handles, size_t count,
                                        os_deadline deadline) {
    atomic_fetch_add_explicit(&sent, 1, memory_order_relaxed);
    return __real_os_connection_send(connection, bytes, size, handles, count, deadline);
}

gpuipc_status __real_os_connection_receive(os_connection *connection, void *bytes, size_t capacity,
                                           size_t *out_size, os_handle *handles, size_t *out_count,
                                           os_deadline deadline);
gpuipc_status __wrap_os_connection_receive(os_connection *connection, void *bytes, size_t capacity,
                                           size_t *out_size, os_handle *handles, size_t *out_count,
                                           os_deadline deadline);

gpuipc_status __wrap_os_connection_receive(os_connection *connection, void *bytes, size_t capacity,
                                           size_t *out_size, os_handle *handles, size_t *out_count,
                                           os_deadline deadline) {
    const gpuipc_status status = __real_os_connection_receive(connection, bytes, capacity, out_size,
                                                              handles, out_count, deadline);
    atomic_store_explicit(&came_ns, os_clock_ns(), memory_order_relaxed);
    return status;
}

uint64_t packets_came_ns(void) {
    return atomic_load_explicit(&came_ns, memory_order_relaxed);
}

uint64_t packets_sent(void) {
    return atomic_load_explicit(&sent, memory_order_relaxed);
}
