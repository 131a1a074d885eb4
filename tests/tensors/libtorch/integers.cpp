// SPDX-License-Identifier: MIT
// Nine small tensors of integers, from one process of LibTorch to another, both started by a third: exact where they
// arrive, unchanged at home. Way "legacy": PyTorch's own memory. Way "vmm": memory that gpuipc made.
#include <gpuipc/gpuipc.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int count = 9;
constexpr int timeout_ms = 60000;
const torch::ScalarType types[] = {torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32,
                                   torch::kInt64};

void must(gpuipc_status status, const char *what) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s: %s\n", what, gpuipc_error_text());
        exit(1);
    }
}

torch::Tensor expected(int number) {
    return (torch::arange(number + 1) * 3 + number).to(types[number % 5]);
}

gpuipc_context *begin() {
    gpuipc_context *context;
    must(gpuipc_context_create(nullptr, &context), "gpuipc_context_create");
    return context;
}

void end_buffer(void *buffer) {
    (void)gpuipc_buffer_drop(static_cast<gpuipc_buffer *>(buffer));
}

// A tensor over a buffer, which it keeps; of the device that uses it, whichever owns it.
torch::Tensor tensor_over(gpuipc_buffer *buffer, int number, int device) {
    const torch::Device on(torch::kCUDA, static_cast<torch::DeviceIndex>(device));
    return at::from_blob(
        reinterpret_cast<void *>(gpuipc_buffer_address(buffer)), {number + 1},
        [buffer](void *) { end_buffer(buffer); },
        torch::TensorOptions().dtype(types[number % 5]).device(on), on);
}

torch::Tensor make(gpuipc_context *context, bool is_legacy, int number,
                   gpuipc_buffer **out_buffer) {
    const torch::Tensor host = expected(number);
    if (is_legacy) {
        torch::Tensor tensor = host.to(torch::Device(torch::kCUDA, 0));
        must(gpuipc_buffer_wrap(context, reinterpret_cast<uint64_t>(tensor.data_ptr()),
                                tensor.nbytes(), out_buffer),
             "gpuipc_buffer_wrap");
        return tensor;
    }
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    config.bytes = host.nbytes();
    must(gpuipc_buffer_create(context, &config, out_buffer), "gpuipc_buffer_create");
    must(gpuipc_buffer_retain(*out_buffer), "gpuipc_buffer_retain");
    return tensor_over(*out_buffer, number, 0).copy_(host);
}

int produce(const std::string &name, bool is_legacy) {
    gpuipc_context *context = begin();
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    std::vector<torch::Tensor> tensors;
    gpuipc_buffer *buffers[count];
    must(gpuipc_listener_open(context, name.c_str(), nullptr, &listener), "gpuipc_listener_open");
    for (int i = 0; i < count; i++) {
        tensors.push_back(make(context, is_legacy, i, &buffers[i]));
        gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
        must(gpuipc_buffer_get_info(buffers[i], &info), "gpuipc_buffer_get_info");
        if (info.transport != (is_legacy ? GPUIPC_TRANSPORT_LEGACY : GPUIPC_TRANSPORT_VMM)) {
            fprintf(stderr, "another transport: %s\n", gpuipc_transport_name(info.transport));
            return 1;
        }
    }
    must(gpuipc_listener_accept(listener, timeout_ms, &connection), "gpuipc_listener_accept");
    gpuipc_outgoing message = GPUIPC_OUTGOING_INIT;
    message.buffers = buffers;
    message.buffer_count = count;
    must(gpuipc_connection_send(connection, &message, timeout_ms), "gpuipc_connection_send");
    for (gpuipc_buffer *each : buffers) {
        must(gpuipc_buffer_await_returns(each, timeout_ms), "gpuipc_buffer_await_returns");
    }
    for (int i = 0; i < count; i++) {
        if (!torch::equal(tensors[static_cast<size_t>(i)].cpu(), expected(i))) {
            fprintf(stderr, "tensor %d has changed at home\n", i);
            return 1;
        }
        (void)gpuipc_buffer_release(buffers[i]);
    }
    (void)gpuipc_connection_close(connection);
    (void)gpuipc_listener_close(listener);
    return 0;
}

int consume(const std::string &name, int device) {
    gpuipc_context *context = begin();
    gpuipc_connection *connection;
    gpuipc_buffer *buffers[count];
    must(gpuipc_connection_open(context, name.c_str(), nullptr, timeout_ms, &connection),
         "gpuipc_connection_open");
    gpuipc_incoming message = GPUIPC_INCOMING_INIT;
    message.buffers = buffers;
    message.buffer_capacity = count;
    message.device = GPUIPC_DEVICE(device);
    must(gpuipc_connection_receive(connection, &message, timeout_ms), "gpuipc_connection_receive");
    int wrong = message.buffer_count == count ? 0 : 1;
    for (int i = 0; i < static_cast<int>(message.buffer_count); i++) {
        const torch::Tensor tensor = tensor_over(buffers[i], i, device);
        if (!torch::equal(tensor.cpu(), expected(i))) {
            fprintf(stderr, "tensor %d arrived with other contents\n", i);
            wrong++;
        }
    }
    (void)gpuipc_connection_close(connection);
    return wrong == 0 ? 0 : 1;
}

pid_t start(const char *program, const char *role, const char *name, const char *way,
            const char *device) {
    const pid_t child = fork();
    if (child == 0) {
        execl(program, program, role, name, way, device, static_cast<char *>(nullptr));
        _exit(127);
    }
    return child;
}

bool ends_well(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

int main(int count_of, char **arguments) {
    if (count_of == 5) {
        return strcmp(arguments[1], "produce") == 0
                   ? produce(arguments[2], strcmp(arguments[3], "legacy") == 0)
                   : consume(arguments[2], atoi(arguments[4]));
    }
    // This process touches no GPU: torch::cuda::device_count() would.
    const char *devices = count_of > 1 ? arguments[1] : "0";
    int failed = 0;
    for (const char *device = devices; *device != '\0'; device++) {
        for (const char *way : {"legacy", "vmm"}) {
            const char number[] = {*device, '\0'};
            const std::string name =
                "integers-" + std::to_string(getpid()) + "-" + way + "-" + number;
            const pid_t producer = start("/proc/self/exe", "produce", name.c_str(), way, number);
            const pid_t consumer = start("/proc/self/exe", "consume", name.c_str(), way, number);
            const bool is_well = ends_well(consumer);
            const bool are_well = ends_well(producer) && is_well;
            printf("%s LibTorch, nine tensors of integers to GPU %s by %s\n",
                   are_well ? "PASS" : "FAIL", number, way);
            failed += are_well ? 0 : 1;
        }
    }
    return failed == 0 ? 0 : 1;
}
