// SPDX-License-Identifier: MIT
// Nine tensors of LibTorch for another process, which this one starts with posix_spawn and two pipes. Build and start:
//
//     gpuipc=$(python3 -c 'import gpuipc; print(gpuipc.get_cmake_dir())')
//     torch=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
//     cmake -S . -B build -G Ninja -Dgpuipc_DIR="$gpuipc" -DCMAKE_PREFIX_PATH="$torch"
//     cmake --build build && build/producer
//
// The tensors are on the first GPU, the consumer uses the last one. Without a GPU, set GPUIPC_CUDA_DRIVER=emulated: the
// tensors are then in host memory. It prints a line for each tensor, and at the end "nine tensors came back":
//
//     Byte [3]: sum 3, the consumer has added 1 to each element
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <filesystem>
#include <sstream>
#include <vector>

#include "tensor.hpp"

static const at::ScalarType types[] = {at::kByte, at::kChar,     at::kShort, at::kInt,   at::kLong,
                                       at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
static const std::vector<int64_t> shapes[] = {{3},       {2, 4}, {5, 3},    {2, 3, 4}, {16},
                                              {1, 1, 9}, {4, 8}, {2, 2, 6}, {10, 10}};

struct shared_tensor {
    gpuipc_buffer *buffer;
    at::Tensor tensor;
};

// Memory that other processes can open. Of memory that PyTorch has allocated, gpuipc_buffer_wrap() makes a buffer.
static shared_tensor make_tensor(gpuipc_context *context, size_t index, at::Device device) {
    shared_tensor made{};
    const at::Tensor values = at::arange(c10::multiply_integers(shapes[index]), at::kLong);
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    config.bytes = static_cast<uint64_t>(values.numel()) * c10::elementSize(types[index]);
    config.transport = device.is_cuda() ? GPUIPC_TRANSPORT_DEFAULT : GPUIPC_TRANSPORT_HOST;
    must(gpuipc_buffer_create(context, &config, &made.buffer));
    must(gpuipc_buffer_retain(made.buffer)); // a reference for the tensor
    made.tensor = tensor_over(made.buffer, shapes[index], types[index], device);
    made.tensor.copy_(values.reshape(shapes[index]));
    return made;
}

static pid_t start_consumer(FILE **to, FILE **from) {
    const std::string path =
        std::filesystem::read_symlink("/proc/self/exe").replace_filename("consumer");
    char *const arguments[] = {const_cast<char *>(path.c_str()), nullptr};
    int input[2], output[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) {
        std::perror("pipe2");
        std::exit(1);
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    if (posix_spawn(&child, path.c_str(), &actions, nullptr, arguments, environ) != 0) {
        std::fprintf(stderr, "cannot start %s\n", path.c_str());
        std::exit(1);
    }
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    *to = fdopen(input[1], "w");
    *from = fdopen(output[0], "r");
    return child;
}

int main() {
    FILE *to, *from;
    const pid_t child = start_consumer(&to, &from);
    const at::Device device(at::hasCUDA() ? "cuda:0" : "cpu");
    gpuipc_context *context;
    gpuipc_server *server;
    must(gpuipc_context_create(nullptr, &context));
    must(gpuipc_server_create(context, nullptr, &server));

    std::vector<shared_tensor> all;
    for (size_t i = 0; i < 9; i++) {
        all.push_back(make_tensor(context, i, device));
        gpuipc_ticket ticket;
        char text[GPUIPC_TICKET_TEXT_SIZE];
        must(gpuipc_buffer_share(server, all[i].buffer, nullptr,
                                 &ticket)); // when its contents are ready
        must(gpuipc_ticket_to_text(&ticket, text));
        std::fprintf(to, "%s %d %zu", text, static_cast<int>(types[i]), shapes[i].size());
        for (const int64_t size : shapes[i]) {
            std::fprintf(to, " %" PRId64, size);
        }
        std::fputc('\n', to);
    }
    std::fclose(to);

    int wrong = 0;
    for (size_t i = 0; i < 9; i++) {
        const double count = static_cast<double>(all[i].tensor.numel()),
                     expected = count * (count - 1) / 2;
        double found = 0;
        std::ostringstream name;
        name << types[i] << ' ' << all[i].tensor.sizes();
        if (std::fscanf(from, "%lf", &found) != 1 || found != expected) {
            std::printf("%s: the consumer has found %g in place of %g\n", name.str().c_str(), found,
                        expected);
            wrong++;
            continue;
        }
        must(gpuipc_buffer_await_returns(all[i].buffer, 60000));
        if (sum_of(all[i].tensor) != expected + count) {
            std::printf("%s: what the consumer wrote has not come back\n", name.str().c_str());
            wrong++;
            continue;
        }
        std::printf("%s: sum %g, the consumer has added 1 to each element\n", name.str().c_str(),
                    found);
    }
    int status = 1;
    waitpid(child, &status, 0);
    for (shared_tensor &each : all) {
        must(gpuipc_buffer_release(each.buffer));
    }
    all.clear();
    must(gpuipc_server_destroy(server));
    must(gpuipc_context_destroy(context));
    if (wrong == 0 && status == 0) {
        std::puts("nine tensors came back");
    }
    return wrong == 0 && status == 0 ? 0 : 1;
}
