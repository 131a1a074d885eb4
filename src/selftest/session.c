/* SPDX-License-Identifier: MIT */
/** @file See session.h. */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "doctor.h"
#include "wrap.h"

/* Whom this end refused, and why, the other end is not told. */
static void tell(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    if (level == GPUIPC_LOG_WARNING) {
        wrap_complain("%s", sentence);
    }
}

static gpuipc_status open_context(const options *wanted, const char *choice,
                                  gpuipc_context **out_context) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config),
        .driver = choice,
        .flags = wanted->admit != NULL ? GPUIPC_CONTEXT_SHARED_DIRECTORY : 0,
        .log = wanted->command == COMMAND_DOCTOR ? tell : NULL};
    return gpuipc_context_create(&config, out_context);
}

/* What the library calls the choice: its "auto" never turns to the emulated driver. */
static const char *library_choice(const char *choice) {
    return strcmp(choice, "auto") == 0 || strcmp(choice, "cuda") == 0 ? "auto" : choice;
}

static bool has_no_gpu(gpuipc_status status) {
    return status == GPUIPC_ERR_NO_DRIVER || status == GPUIPC_ERR_NO_DEVICE;
}

static int complain(const char *choice, gpuipc_status status) {
    /* The emulated driver without a device is a machine on which there is nothing to be tested; that
     * another one has none is a failure, since it was asked for by name. */
    bool nothing = strcmp(choice, "emulated") == 0 && status == GPUIPC_ERR_NO_DEVICE;
    wrap_complain("%s: driver \"%s\": %s", nothing ? "nothing to test" : "FAIL", choice,
                  gpuipc_error_text());
    return nothing ? EXIT_NOTHING : EXIT_FAIL;
}

static int choose(const options *wanted, session *self) {
    self->choice = strcmp(wanted->driver, "auto") == 0 ? "cuda" : wanted->driver;
    gpuipc_status status = open_context(wanted, library_choice(wanted->driver), &self->context);
    if (strcmp(wanted->driver, "auto") == 0 && has_no_gpu(status)) {
        (void)snprintf(self->why_emulated, sizeof(self->why_emulated), "%s",
                       gpuipc_error_get()->sentence);
        self->choice = "emulated";
        doctor_look(wanted); /* while the environment is still that of the command doctor */
        /* What hid the machine's own GPUs is not meant to hide the emulated ones. */
        child_forget_variable("CUDA_VISIBLE_DEVICES");
        status = open_context(wanted, self->choice, &self->context);
    }
    return status == GPUIPC_OK ? EXIT_PASS : complain(self->choice, status);
}

int session_open(const options *wanted, session *out_session) {
    session self = {.info = {.struct_size = sizeof(self.info)}};
    int code = choose(wanted, &self);
    if (code != EXIT_PASS) {
        return code;
    }
    gpuipc_status status = gpuipc_context_get_info(self.context, &self.info);
    if (status == GPUIPC_OK && strcmp(wanted->driver, "cuda") == 0 && self.info.is_emulated) {
        status_enter(__func__);
        status = status_fail(GPUIPC_ERR_NO_DRIVER,
                             "what is found as the installed driver is the emulated one: %s",
                             self.info.driver_path);
    }
    if (status == GPUIPC_OK) {
        status = driver_open(library_choice(self.choice), &self.driver);
    }
    if (status != GPUIPC_OK) {
        goto destroy_context;
    }
    self.primary = calloc((size_t)self.info.device_count + 1, sizeof(CUcontext));
    if (self.primary == NULL) {
        status = status_out_of_memory(self.info.device_count * sizeof(CUcontext));
        goto destroy_context;
    }
    *out_session = self;
    return EXIT_PASS;

destroy_context:
    code = complain(self.choice, status);
    (void)gpuipc_context_destroy(self.context);
    return code;
}

void session_close(session *self) {
    for (uint32_t i = 0; i < self->info.device_count; i++) {
        CUdevice ordinal;
        if (self->primary[i] != NULL &&
            self->driver.cuDeviceGet(&ordinal, (int)i) == CUDA_SUCCESS) {
            (void)self->driver.cuDevicePrimaryCtxRelease(ordinal);
        }
    }
    free(self->primary);
    (void)gpuipc_context_destroy(self->context);
}

void session_describe(const session *self, char *text, size_t capacity) {
    const int version = self->info.driver_version;
    const char *kind = self->info.is_emulated ? "emulated in software, NOT a GPU" : "real";
    (void)snprintf(
        text, capacity, "gpuipc-selftest %d.%d.%d; driver: %s%s%s%s; CUDA %d.%d; %u device%s; %s",
        GPUIPC_VERSION_MAJOR, GPUIPC_VERSION_MINOR, GPUIPC_VERSION_PATCH, kind,
        self->why_emulated[0] != '\0' ? " (because " : "", self->why_emulated,
        self->why_emulated[0] != '\0' ? ")" : "", version / 1000, version % 1000 / 10,
        self->info.device_count, self->info.device_count == 1 ? "" : "s", self->info.driver_path);
}

static gpuipc_status retain(session *self, uint32_t device) {
    const driver *drv = &self->driver;
    CUdevice ordinal;
    gpuipc_status status = driver_status(drv, drv->cuDeviceGet(&ordinal, (int)device),
                                         "cuDeviceGet", "looking at a device");
    return status != GPUIPC_OK
               ? status
               : driver_status(drv, drv->cuDevicePrimaryCtxRetain(&self->primary[device], ordinal),
                               "cuDevicePrimaryCtxRetain", "starting to use a device");
}

gpuipc_status session_enter(session *self, uint32_t device) {
    status_enter(__func__);
    gpuipc_status status = GPUIPC_OK;
    if (device >= self->info.device_count) {
        return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND, "there is no device %u in this process",
                           device);
    }
    if (self->primary[device] == NULL) {
        status = retain(self, device);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    return driver_status(&self->driver, self->driver.cuCtxPushCurrent(self->primary[device]),
                         "cuCtxPushCurrent", "entering a device's context");
}

void session_leave(const session *self) {
    CUcontext popped;
    (void)self->driver.cuCtxPopCurrent(&popped); /* undoes the push of session_enter */
}

gpuipc_status session_free_memory(session *self, uint32_t device, uint64_t *out_bytes) {
    status_enter(__func__);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    gpuipc_status status = session_enter(self, device);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = driver_status(&self->driver, self->driver.cuMemGetInfo(&free_bytes, &total_bytes),
                           "cuMemGetInfo", "asking for a device's free memory");
    session_leave(self);
    if (status == GPUIPC_OK) {
        *out_bytes = free_bytes;
    }
    return status;
}

gpuipc_status session_device(const session *self, uint32_t device, gpuipc_device_info *out_info) {
    *out_info = (gpuipc_device_info){.struct_size = sizeof(*out_info)};
    return gpuipc_device_get_info(self->context, device, out_info);
}
