/* SPDX-License-Identifier: MIT */
/**
 * @file Tensors of PyTorch on their way: a Parcel is what goes out, a Delivery what arrives. Many tensors share one
 * ticket, one ready point and one loan for each piece of memory that they lie in.
 */
#pragma once

#include <gpuipc/gpuipc_dlpack.h>

#include <memory>
#include <vector>

#include "array.hpp"
#include "process.hpp"

namespace binding {

/** Memory that tensors lie in: a segment of a pool, a buffer of gpuipc's own, or what was wrapped. */
class home {
  public:
    /** Takes the reference over. @p core stands for what is no segment of a pool. */
    home(const std::shared_ptr<context> &of, gpuipc_buffer *taken, const gpuipc_buffer_info &info,
         std::shared_ptr<memory> core, gpuipc_stream stream)
        : of_(of), buffer_(taken), info_(info), core_(std::move(core)), stream_(stream) {
    }
    home(const home &) = delete;
    home &operator=(const home &) = delete;
    ~home();

    gpuipc_buffer *buffer() const {
        return buffer_;
    }
    uint64_t address() const {
        return info_.address;
    }
    uint64_t bytes() const {
        return info_.bytes;
    }
    uint32_t device() const {
        return info_.access_device;
    }
    bool is_on_host() const {
        return info_.transport == GPUIPC_TRANSPORT_HOST;
    }
    bool holds(uint64_t address, uint64_t bytes) const {
        return address >= info_.address && address - info_.address <= info_.bytes &&
               bytes <= info_.bytes - (address - info_.address);
    }
    gpuipc_ticket ticket() const;
    /** It is a segment of a pool of PyTorch's, which is used again when its tensors are gone. */
    bool is_segment() const {
        return core_ == nullptr;
    }
    /** It was handed over with this loan. With the GIL. */
    void note_loan(const gpuipc_mark &loan) const;
    /** Which PyTorch asked for it; NULL also where that is not known. */
    gpuipc_stream stream() const {
        return stream_;
    }

  private:
    std::shared_ptr<context> of_;
    gpuipc_buffer *buffer_;
    gpuipc_buffer_info info_;
    std::shared_ptr<memory> core_;
    gpuipc_stream stream_;
};

/** From now on it is the home of what lies in it. With the GIL. */
void home_begin(const std::shared_ptr<memory> &made);

using homes = std::vector<std::shared_ptr<home>>;

/** A tensor, or memory that several share: where it lies. */
struct place {
    uint32_t home;
    uint64_t offset;
    uint64_t bytes;
};

/** A tensor within its home. */
struct part {
    place at;
    uint32_t type;   /* GPUIPC_ELEMENT_TYPE */
    uint32_t common; /* which of the common places it shares with others; no_common: it is alone */
    bool is_in_segment = false; /* home::is_segment() */
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;
};
constexpr uint32_t no_common = UINT32_MAX;

/** How many bytes there are from the first element to the last. Throws ValueError for numbers that nobody would write. */
uint64_t extent_of(const part &of);

/** What is said of the tensors of a parcel. */
struct contents {
    std::vector<place> commons;
    std::vector<part> parts;

    /** As bytes, for those who get it. */
    std::string written() const;
};
/** Throws ValueError for what nobody has written. */
contents contents_read(const std::string &bytes);

/** DLPack's table of functions (DLPackExchangeAPI of DLPack 1.3), by which tensors are asked and made without Python's
 *  calls. Each gives 0, or -1 with Python's error set. */
struct exchange {
    uint32_t major;
    uint32_t minor;
    const exchange *previous;
    int (*allocate)(gpuipc_dlpack_tensor *, gpuipc_dlpack_versioned **, void *,
                    void (*)(void *, const char *, const char *));
    int (*take)(void *object, gpuipc_dlpack_versioned **out_tensor);
    int (*make)(gpuipc_dlpack_versioned *tensor, void **out_object);
    int (*look)(void *object, gpuipc_dlpack_tensor *out_tensor);
    int (*current_stream)(int device_type, int32_t device_id, void **out_stream);
};
/** What PyTorch's capsule holds; NULL: it is something else, or of another kind of DLPack. */
const exchange *exchange_from(nb::handle capsule);

/** Tensors that are handed over together. */
class parcel {
  public:
    /** @p kept is what keeps their memory. @p wraps: also memory that gpuipc has not made. */
    parcel(const nb::list &tensors, nb::object kept, bool wraps, const exchange *by);
    /** Of one tensor. */
    parcel(nb::handle tensor, nb::object kept, const exchange *by);
    parcel(const parcel &) = delete;
    parcel &operator=(const parcel &) = delete;

    const homes &of() const {
        return of_;
    }
    nb::bytes contents() const {
        return nb::bytes(written_.data(), written_.size());
    }
    size_t segments() const {
        return of_.size();
    }
    /** GPUIPC_DEVICE_NONE: memory of the host. */
    std::vector<uint32_t> devices() const;
    std::vector<uintptr_t> streams() const;

    /** Everything in it to one receiver: a ticket and a loan for each home, made on these streams. @p to: the receiver,
     *  with whose end the hand-over ends that it has not taken; NULL: any process. */
    nb::tuple hand_over(const std::vector<uintptr_t> &streams, double open_seconds,
                        std::shared_ptr<process> to = nullptr);
    /** How many loans of it are out. */
    size_t lent();
    /** Takes back every loan that no receiver has taken. */
    void cancel_lent();
    void await_returns(std::optional<double> timeout);

  private:
    void add(const std::shared_ptr<context> &of, nb::handle tensor, bool wraps, const exchange *by);
    uint32_t home_with(const std::shared_ptr<context> &of, uint64_t address, uint64_t bytes,
                       bool wraps);
    void find_commons();
    void note_loans(const std::vector<gpuipc_mark> &made);
    void forget_those_over();

    std::shared_ptr<owner> kept_;
    homes of_;
    uint32_t last_ = 0;
    binding::contents said_;
    std::string written_;
    std::vector<gpuipc_mark> loans_;
    size_t look_at_ = 16; /* when there are so many loans, those that are over are forgotten */
};

/** Throws ValueError for bytes of another length. */
gpuipc_mark mark_from(const nb::bytes &bytes);

/** Of a hand-over of this very process that nobody else is to have any more: who keeps the memory. NULL: there is no
 *  such hand-over. */
std::shared_ptr<owner> hand_over_end(const gpuipc_mark &loan);
/** Takes back all loans of a transfer of this process, unless a receiver has taken them. Returns whether it did. */
bool hand_over_cancel(const std::vector<gpuipc_mark> &loans);
/** Lets go of what has been given back, or that nobody has taken in its time. On any thread, with or without the GIL. */
void hand_overs_look_after();
size_t hand_overs_count();
/** In a forked child: what is out is its parent's. */
void hand_overs_forget();

void bind_parcel(nb::module_ &m);
void bind_delivery(nb::module_ &m);
void bind_reduce(nb::module_ &m);

} // namespace binding
