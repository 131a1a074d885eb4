/* SPDX-License-Identifier: MIT */
/** @file See session.h: the hostile peer. It calls nothing of the library but what encodes and decodes. */
#include <fcntl.h>
#include <gpuipc/gpuipc_native.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel/channel_page.h"
#include "contents/contents_ring.h"
#include "fuzz.h"
#include "raw_handle.h"
#include "session.h"
#include "sync/mark.h"

#define RAW_KINDS_MAX 24
#define OWN_PAGES     2
/* No process of Linux has such a number: PID_MAX_LIMIT, include/linux/threads.h. */
#define FIRST_PROCESS UINT64_C(4194305)

static hostile_memory memory_of_all;
static int ring;
static int raw[RAW_KINDS_MAX];
static struct {
    int fd;
    uint8_t *words;
    bool is_used;
} own_pages[OWN_PAGES];

/* ---- once -------------------------------------------------------------------------------------- */

static void export_memory(gpuipc_buffer *of) {
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    FUZZ_CHECK(gpuipc_native_export(of, &segment, 1, &layout, &count) == GPUIPC_OK);
    memory_of_all = (hostile_memory){.buffer = {.buffer_id = 1,
                                                .bytes = layout.bytes,
                                                .segment_count = 1,
                                                .memory = SEGMENT_MEMORY_VMM,
                                                .handle_type = (uint16_t)os_shareable_handle_type,
                                                .access = GPUIPC_ACCESS_READ_WRITE},
                                     .segment = {.bytes = segment.bytes},
                                     .fd = (int)segment.handle.value};
    memcpy(memory_of_all.buffer.device_uuid, layout.device_uuid.bytes,
           sizeof(memory_of_all.buffer.device_uuid));
}

/* Its size is fixed, as the library wants it of shared memory. */
static int make_memory(size_t bytes) {
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 &&
               fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    return fd;
}

static void *map_page(int fd) {
    void *at = mmap(NULL, POINT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

void hostile_prepare(gpuipc_buffer *memory) {
    export_memory(memory);
    ring = make_memory(CONTENTS_RING_BYTES);
    for (int i = 0; i < OWN_PAGES; i++) {
        own_pages[i].fd = make_memory(POINT_PAGE_BYTES);
        own_pages[i].words = map_page(own_pages[i].fd);
        FUZZ_CHECK(own_pages[i].words != NULL);
    }
    FUZZ_CHECK(raw_handle_kinds <= RAW_KINDS_MAX);
    for (int i = 0; i < raw_handle_kinds; i++) {
        raw[i] = (int)raw_handle_open(i);
    }
    now.peer.process.lives = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    FUZZ_CHECK(now.peer.process.lives >= 0);
}

const hostile_memory *hostile_memory_of_all(void) {
    return &memory_of_all;
}

int hostile_descriptor(uint8_t kind) {
    const hostile_heard *heard = &now.peer.heard;
    switch (kind) {
    case HOSTILE_MEMORY:
        return memory_of_all.fd;
    case HOSTILE_PAGE:
    case HOSTILE_PAGE_2:
        own_pages[kind - HOSTILE_PAGE].is_used = true;
        return own_pages[kind - HOSTILE_PAGE].fd;
    case HOSTILE_RING:
        return ring;
    case HOSTILE_HEARD:
        return heard->fd_count == 0 ? -1 : heard->fds[0];
    default:
        return raw[(kind - HOSTILE_KINDS) % raw_handle_kinds];
    }
}

/* ---- what its page says ------------------------------------------------------------------------ */

static void write_word(uint32_t at, uint64_t value) {
    memcpy(own_pages[0].words + at * sizeof(value), &value, sizeof(value));
}

static uint64_t read_word(uint32_t at) {
    uint64_t value;
    memcpy(&value, own_pages[0].words + at * sizeof(value), sizeof(value));
    return value;
}

/* By the rules, unless something stands there. */
void hostile_writes_points(void) {
    if (read_word(POINT_WORDS_END) == 0) {
        write_word(POINT_WORDS_END, 1);
        write_word(POINT_WORDS_END + 1, 1);
    }
}

void hostile_writes_channel(void) {
    if (read_word(CHANNEL_MAGIC_WORD) == 0) {
        write_word(CHANNEL_MAGIC_WORD, CHANNEL_MAGIC);
        write_word(CHANNEL_SLOTS, SESSION_SLOTS);
        write_word(CHANNEL_SLOT_BYTES, SESSION_SLOT_BYTES);
        write_word(CHANNEL_HEADER_BYTES, SESSION_HEADER);
    }
}

void hostile_publishes(script *from) {
    const uint64_t number = ++now.peer.frames;
    const uint32_t slot = (uint32_t)(number % SESSION_SLOTS);
    own_pages[0].is_used = true;
    write_word(channel_offered_at(number, CHANNEL_SEQUENCE), number);
    write_word(channel_offered_at(number, CHANNEL_USED), script_byte(from));
    write_word(channel_offered_at(number, CHANNEL_HEADER), SESSION_HEADER);
    write_word(channel_offered_at(number, CHANNEL_WAS_READY), number % 2);
    write_word(channel_entry(slot, CHANNEL_READY), number << 1 | 1u);
    write_word(channel_offered_at(number, CHANNEL_PLACE), channel_place(number, slot));
    write_word(CHANNEL_TAIL, number);
}

/* ---- a session --------------------------------------------------------------------------------- */

static void forget_heard(void) {
    hostile_heard *heard = &now.peer.heard;
    for (size_t i = 0; i < heard->fd_count; i++) {
        close(heard->fds[i]);
    }
    heard->fd_count = 0;
    heard->size = 0;
}

static void forget_page(void) {
    if (now.peer.page != NULL) {
        (void)munmap(now.peer.page, POINT_PAGE_BYTES);
        now.peer.page = NULL;
    }
}

static const memory_process *listens(const char *name) {
    char of_ticket[TICKET_ENDPOINT_SIZE];
    ticket decoded;
    gpuipc_ticket made;
    hostile_ticket(&made);
    FUZZ_CHECK(ticket_decode(&made, &decoded) == GPUIPC_OK);
    ticket_endpoint(decoded.server_id, of_ticket);
    const bool is_own = strcmp(name, SESSION_HOSTILE_NAME) == 0 || strcmp(name, of_ticket) == 0 ||
                        strcmp(name, "channel-" SESSION_HOSTILE_NAME) == 0;
    return is_own && now.peer.listens ? &now.peer.process : NULL;
}

static void hang_up(hostile_end *end) {
    if (end->os != NULL) {
        memory_close(end->os);
    }
    *end = (hostile_end){.os = NULL};
}

/* Where it has too many it lets go of the last. */
static void accepts(os_connection *os) {
    hostile_end *ends = now.peer.ends;
    unsigned at = 0;
    while (at < SESSION_ENDS - 1 && ends[at].os != NULL) {
        at++;
    }
    hang_up(&ends[at]);
    ends[at].os = os;
}

void hostile_begin(bool is_same_user) {
    now.peer.process.process_id = FIRST_PROCESS;
    now.peer.process.is_same_user = is_same_user;
    now.peer.listens = true;
    now.peer.frames = 0;
    memory_listens = listens;
    memory_accepts = accepts;
}

void hostile_leaves(bool dies) {
    const uint64_t one = 1;
    for (unsigned i = 0; i < SESSION_ENDS; i++) {
        hang_up(&now.peer.ends[i]);
    }
    if (dies) {
        (void)!write(now.peer.process.lives, &one, sizeof(one));
    }
}

void hostile_end_all(void) {
    uint64_t count;
    hostile_leaves(false);
    forget_heard();
    forget_page();
    for (int i = 0; i < OWN_PAGES; i++) {
        if (own_pages[i].is_used) {
            memset(own_pages[i].words, 0, POINT_PAGE_BYTES);
            own_pages[i].is_used = false;
        }
    }
    (void)!read(now.peer.process.lives, &count, sizeof(count)); /* the next one lives */
}

void hostile_ticket(gpuipc_ticket *out_ticket) {
    const ticket made = {.server_id = "hostile", .share = 1, .bytes = SESSION_BYTES};
    ticket_encode(&made, out_ticket);
}

/* ---- what it does ------------------------------------------------------------------------------ */

/* The end that a byte says, or another one that is there. */
static hostile_end *choose_end(script *from) {
    const uint8_t first = script_byte(from);
    for (unsigned i = 0; i < SESSION_ENDS; i++) {
        hostile_end *end = &now.peer.ends[(first + i) % SESSION_ENDS];
        if (end->os != NULL) {
            return end;
        }
    }
    return NULL;
}

void hostile_sends(script *from) {
    hostile_end *by = choose_end(from);
    if (by != NULL) {
        packet_send(from, by);
    }
}

/* What the library sends keeps the rules, whatever has come to it. */
static void check_heard(const hostile_heard *heard, const script *from) {
    uint8_t again[WIRE_HEADER_BYTES];
    wire_packet packet;
    FUZZ_CHECK(wire_decode_packet(heard->bytes, heard->size, heard->fd_count, &packet) ==
               GPUIPC_OK);
    wire_encode_header(&packet.header, again);
    fuzz_check_same(again, heard->bytes, sizeof(again), from->data, from->size);
    if (wire_is_page(packet.header.kind)) {
        forget_page();
        now.peer.page = map_page(heard->fds[0]);
        FUZZ_CHECK(now.peer.page != NULL);
    }
}

void hostile_hears(script *from) {
    hostile_heard *heard = &now.peer.heard;
    hostile_end *end = choose_end(from);
    if (end == NULL) {
        return;
    }
    forget_heard();
    if (memory_receive(end->os, heard->bytes, sizeof(heard->bytes), &heard->size, heard->fds,
                       &heard->fd_count)) {
        check_heard(heard, from);
    }
}

/* The words that say something: of points, marks and loans, of a channel, of a ring; or any. */
static void scribble(uint8_t *page, script *from) {
    static const uint16_t words[] = {
        0,    1,    2,    3,    4,    5,    6,    7,    8,     9,     10,    11,    16,   24,
        32,   40,   48,   128,  136,  137,  144,  152,  153,   160,   168,   169,   1152, 1153,
        1154, 1155, 1156, 1160, 1161, 1162, 1163, 1164, 1168,  1169,  1172,  2048,  2112, 8190,
        8191, 8192, 8193, 8194, 8448, 9216, 9217, 9218, 11262, 11263, 11264, 11265, 13311};
    const size_t count = sizeof(words) / sizeof(*words);
    const uint8_t which = script_byte(from);
    size_t word = which < count ? words[which] : (size_t)script_byte(from) << 8 | which;
    uint64_t value;
    word %= POINT_PAGE_BYTES / sizeof(value);
    memcpy(&value, page + word * sizeof(value), sizeof(value));
    value = script_number(from, value);
    memcpy(page + word * sizeof(value), &value, sizeof(value));
}

void hostile_scribbles(script *from) {
    if (now.peer.page != NULL) {
        scribble(now.peer.page, from);
    }
}

void hostile_scribbles_own(script *from) {
    const uint8_t which = script_byte(from) % OWN_PAGES;
    own_pages[which].is_used = true;
    scribble(own_pages[which].words, from);
}

void hostile_hangs_up(script *from) {
    hostile_end *end = choose_end(from);
    if (end != NULL) {
        hang_up(end);
    }
}

static void connect_to(const char *name) {
    os_connection *os = memory_connect(name, &now.peer.process);
    if (os != NULL) {
        accepts(os);
    }
}

void hostile_connects(script *from) {
    (void)from;
    connect_to(SESSION_NAME);
}

void hostile_connects_to_server(script *from) {
    char name[TICKET_ENDPOINT_SIZE];
    ticket decoded;
    (void)from;
    if (now.program.ticket_count > 0 &&
        ticket_decode(&now.program.tickets[0], &decoded) == GPUIPC_OK) {
        ticket_endpoint(decoded.server_id, name);
        connect_to(name);
    }
}

/* Its sockets are closed with it; some other process may still have them, who goes on. */
void hostile_ends(script *from) {
    const uint64_t one = 1;
    if (script_byte(from) % 2 == 0) {
        hostile_leaves(true);
    } else {
        (void)!write(now.peer.process.lives, &one, sizeof(one));
    }
}

void hostile_waits(script *from) {
    memory_pass(UINT64_C(1) << script_byte(from) % 14);
}

void hostile_listens(script *from) {
    now.peer.listens = script_byte(from) % 2 != 0;
}
