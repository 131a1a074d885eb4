/* SPDX-License-Identifier: MIT */
/** @file Registers GPU memory with a network card by a dma-buf (Linux, libibverbs), so that the card reads and writes it
 *  without the host. The memory may as well be another process's, opened by its ticket. */
#include <gpuipc/gpuipc_native.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

static struct ibv_context *open_first_card(void) {
    int count = 0;
    struct ibv_device **cards = ibv_get_device_list(&count);
    struct ibv_context *opened = count > 0 ? ibv_open_device(cards[0]) : NULL;
    if (cards != NULL) {
        ibv_free_device_list(cards);
    }
    return opened;
}

int main(void) {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_native_dmabuf part = GPUIPC_NATIVE_DMABUF_INIT;
    int code = 1;

    config.bytes = 1 << 20;
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &buffer));
    must(gpuipc_native_export_dmabuf(buffer, 0, config.bytes, &part));

    struct ibv_context *card = open_first_card();
    struct ibv_pd *domain = card == NULL ? NULL : ibv_alloc_pd(card);
    if (domain == NULL) {
        fprintf(stderr, "there is no RDMA card here\n");
        code = 77;
    } else {
        /* The range begins at part.offset of the dma-buf; the card calls it by the addresses from 0 on. */
        struct ibv_mr *registered = ibv_reg_dmabuf_mr(
            domain, part.offset, config.bytes, 0, (int)part.handle.value,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
        if (registered == NULL) {
            perror("ibv_reg_dmabuf_mr");
        } else {
            printf("registered, key %u\n", (unsigned)registered->rkey);
            code = ibv_dereg_mr(registered) == 0 ? 0 : 1;
        }
        ibv_dealloc_pd(domain);
    }
    if (card != NULL) {
        ibv_close_device(card);
    }
    close((int)part.handle.value); /* the registration has its own */
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return code;
}
