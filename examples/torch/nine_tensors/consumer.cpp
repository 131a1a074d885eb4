// SPDX-License-Identifier: MIT
// Opens the tensors whose tickets are on standard input, adds 1 to each element, and writes the sum of what was in each to
// standard output. The producer starts it.
#include <cinttypes>
#include <vector>

#include "tensor.hpp"

int main() {
    gpuipc_context *context;
    uint32_t device_count;
    must(gpuipc_context_create(nullptr, &context));
    must(gpuipc_device_count(context, &device_count));
    const bool has_gpu = at::hasCUDA();
    const at::Device device =
        has_gpu ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device_count - 1))
                : at::Device(at::kCPU);

    char text[GPUIPC_TICKET_TEXT_SIZE];
    int type, dimensions;
    static_assert(GPUIPC_TICKET_TEXT_SIZE == 95, "of the ticket's text, below");
    while (std::scanf("%94s %d %d", text, &type, &dimensions) == 3) {
        std::vector<int64_t> sizes(static_cast<size_t>(dimensions));
        for (int64_t &size : sizes) {
            if (std::scanf("%" SCNd64, &size) != 1) {
                return 1;
            }
        }
        gpuipc_ticket ticket;
        gpuipc_buffer *buffer;
        gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
        config.device = has_gpu ? GPUIPC_DEVICE(device_count - 1) : 0;
        must(gpuipc_ticket_from_text(text, &ticket));
        must(gpuipc_buffer_open(context, &ticket, &config, &buffer));
        at::Tensor tensor = tensor_over(buffer, sizes, static_cast<at::ScalarType>(type), device);
        std::printf("%g\n", sum_of(tensor));
        std::fflush(stdout);
        tensor.add_(1);
    } // the end of the tensor returns its buffer, after the addition
    must(gpuipc_context_destroy(context));
    return 0;
}
