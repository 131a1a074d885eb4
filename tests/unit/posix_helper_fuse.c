/* SPDX-License-Identifier: MIT */
/** @file A peer with a file system of its own making, which answers no flush(), and nothing that asks about a file that is
 *  open, until it is told to. */
#include "posix_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "helper.h"
#include "os.h"

#define FILE_NODE  2u
#define KEPT_MAX   1024u
#define PATIENCE_S 40u

static int device = -1;
/* Shared with the process that opens: it has the file open, and nobody who asks for it is answered from now on. */
static atomic_bool *is_open;
static atomic_bool answers; /* again */
static uint64_t kept[KEPT_MAX];
static unsigned kept_count;
static os_mutex kept_mutex;

static void answer(uint64_t unique, int error, const void *body, size_t size) {
    struct fuse_out_header header = {
        .len = (uint32_t)(sizeof(header) + size), .error = -error, .unique = unique};
    struct iovec parts[] = {{&header, sizeof(header)}, {(void *)(uintptr_t)body, size}};
    (void)!writev(device, parts, 2);
}

static struct fuse_attr attributes_of(uint64_t node) {
    return (struct fuse_attr){.ino = node,
                              .size = 4096,
                              .nlink = 1,
                              .mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666};
}

static void answer_request(const struct fuse_in_header *in) {
    const struct fuse_init_out init = {
        .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
    const struct fuse_attr_out attributes = {.attr = attributes_of(in->nodeid)};
    const struct fuse_entry_out entry = {.nodeid = FILE_NODE, .attr = attributes_of(FILE_NODE)};
    const struct fuse_open_out opened = {.fh = 1};
    switch (in->opcode) {
    case FUSE_INIT:
        answer(in->unique, 0, &init, sizeof(init));
        break;
    case FUSE_LOOKUP:
        answer(in->unique, 0, &entry, sizeof(entry));
        break;
    case FUSE_GETATTR:
        answer(in->unique, 0, &attributes, sizeof(attributes));
        break;
    case FUSE_OPEN:
        answer(in->unique, 0, &opened, sizeof(opened));
        break;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
        answer(in->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break; /* which have no answer */
    default:
        answer(in->unique, ENOSYS, NULL, 0);
    }
}

static bool is_kept(const struct fuse_in_header *in) {
    os_mutex_lock(&kept_mutex);
    const bool keeps =
        atomic_load(is_open) && !atomic_load(&answers) &&
        (in->opcode == FUSE_FLUSH || in->opcode == FUSE_GETATTR || in->opcode == FUSE_STATFS) &&
        kept_count < KEPT_MAX;
    if (keeps) {
        kept[kept_count++] = in->unique;
    }
    os_mutex_unlock(&kept_mutex);
    return keeps;
}

static void serve(void *argument) {
    static _Alignas(struct fuse_in_header) char request[1 << 17];
    (void)argument;
    while (read(device, request, sizeof(request)) > 0) {
        const struct fuse_in_header *in = (const void *)request;
        if (!is_kept(in)) {
            answer_request(in);
        }
    }
}

static void answer_kept(void) {
    os_mutex_lock(&kept_mutex);
    atomic_store(&answers, true);
    for (unsigned i = 0; i < kept_count; i++) {
        answer(kept[i], EIO, NULL, 0);
    }
    os_mutex_unlock(&kept_mutex);
}

static bool mount_own(void) {
    char options[80];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    return device >= 0 && unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("test", "/mnt", "fuse", MS_NOSUID | MS_NODEV, options) == 0;
}

/* In a process of its own: what it has open waits for the server when it ends, and the server has nothing open. */
static void send_files(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_handle handles[OS_PACKET_HANDLES_MAX];
    const size_t count = strtoul(arguments[2], NULL, 10);
    os_connection *connection;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(device);
    gpuipc_status status =
        os_connection_open(&directory, arguments[1], os_deadline_after(20000), &connection);
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = os_handle_adopt(open("/mnt/file", O_RDWR | O_CLOEXEC), &handles[i]);
    }
    atomic_store(is_open, true);
    if (status == GPUIPC_OK) {
        status = os_connection_send(connection, "x", 1, handles, count, os_deadline_after(20000));
    }
    helper_say_status(status);
    for (;;) {
        pause();
    }
}

/** fuse DIRECTORY NAME COUNT: connects, sends as many descriptors of a file of its own file system, and answers nothing more
 *  about it until the end of its input. */
int role_fuse(char **arguments) {
    os_thread *server;
    char line[64];
    (void)alarm(PATIENCE_S); /* a test that waits in the kernel could not end this process */
    if (!mount_own()) {
        helper_say("no FUSE: %s", strerror(errno));
        return 0;
    }
    is_open =
        mmap(NULL, sizeof(*is_open), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t sender = is_open == MAP_FAILED ? -1 : fork();
    if (sender == 0) {
        send_files(arguments);
    }
    if (sender < 0 || os_thread_start(serve, NULL, &server) != GPUIPC_OK) {
        return 1;
    }
    while (helper_hear(line, sizeof(line))) {
    }
    answer_kept();
    helper_say("answered");
    for (;;) {
        pause(); /* until the test ends it, and with it the file system */
    }
}
