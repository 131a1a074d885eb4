/* SPDX-License-Identifier: MIT */
/** @file Contexts, each with the server that answers its tickets. */
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>

#include "failure.hpp"
#include "opened.hpp"

namespace binding {

/** A context of the library. Buffers hold on to it, because sharing them needs its server. */
class context {
  public:
    /** Takes the context over. */
    context(gpuipc_context *taken, const gpuipc_context_info &known,
            uint32_t max_connections_per_user = 0)
        : handle_(taken), max_connections_per_user_(max_connections_per_user) {
        std::memcpy(instance_, known.instance_id, sizeof(instance_));
    }
    context(const context &) = delete;
    context &operator=(const context &) = delete;
    ~context() {
        close();
    }

    /** Of a context that was closed, a handle that the library refuses. */
    gpuipc_context *handle() const {
        return handle_;
    }
    bool is_closed() const {
        return is_closed_;
    }
    /** This process was forked since it was made, and cannot use it. */
    bool is_of_the_parent() const {
        return made_after_ != forks_;
    }
    /** For the servers of contexts that have no limit of their own; 0: the library's. */
    static void set_max_connections_per_user(uint32_t limit) {
        usual_connections_per_user_ = limit;
    }
    static void note_fork() {
        forks_++;
    }
    /** Whether an id of an exporter is this one's. */
    bool is_instance(const uint8_t *id) const {
        return std::memcmp(instance_, id, sizeof(instance_)) == 0;
    }

    /** The server, made when it is first asked for. Without the GIL: the lock is held while it is made. */
    gpuipc_status server(gpuipc_server **out_server);

    /** The server if there is one. */
    gpuipc_server *server_if_any() const {
        return server_;
    }

    /** What is open in it by tickets. */
    opened_holds &opened() {
        return opened_;
    }

    /** Ends the server, and gives the context up. What is made of it stays usable. Blocks; with or without the GIL. */
    void close();

  private:
    gpuipc_context *handle_;
    const uint32_t max_connections_per_user_; /* 0: as set_max_connections_per_user() said */
    uint8_t instance_[sizeof(gpuipc_context_info::instance_id)];
    std::atomic<gpuipc_server *> server_{nullptr};
    std::mutex server_lock_;
    std::atomic<bool> is_closed_{false};
    opened_holds opened_;
    inline static std::atomic<uint32_t> usual_connections_per_user_{0};
    inline static std::atomic<uint32_t> forks_{0}; /* of which this process is the child */
    const uint32_t made_after_ = forks_;
};

/** What Python holds: its own identity is that of the context behind it. */
struct context_object {
    std::shared_ptr<context> core;
};

/** The context that an argument names; None: the default one, which is made at first use. */
std::shared_ptr<context> context_from(nb::handle argument);

/** The default context; NULL: nobody has used it yet. */
std::shared_ptr<context> context_if_any();

/** The GPU that an argument names, as structs that are passed in have it: a number, "cuda:1", or a device of PyTorch, CuPy
 *  or gpuipc. Throws TypeError or ValueError. */
uint32_t device_from(nb::handle argument);
/** The same as a plain number. */
uint32_t device_number_from(nb::handle argument);

/** The same; None: the GPU that owns the memory. */
uint32_t device_or_owner(nb::handle argument);

/** The transport of this name; None: the default. Throws ValueError. */
gpuipc_transport transport_from(nb::handle argument);

void bind_context(nb::module_ &m);

} // namespace binding
