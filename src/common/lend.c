/* SPDX-License-Identifier: MIT */
/** @file See lend.h; and waiting until a buffer has been returned. */
#include "lend.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "registry.h"

/* Whether the peer of a page is gone, asked of the system once in a row of lends to it. */
typedef struct answer {
    const point_page *page;
    bool is_gone;
    uint32_t questions; /* how many more may be asked; then every process counts as living */
} answer;

#define ASKS_ALL ((answer){.questions = UINT32_MAX})

/* Whose memory it is: a buffer that has come home (this process holds both ends) ends before its original. */
static buffer *lender_of(buffer *self) {
    return self->original != NULL ? self->original : self;
}

static bool concerns(const lend *self, const buffer *whom) {
    return whom->original == NULL || self->through == whom;
}

static bool is_reached(const lend *self, point_word word, answer *last) {
    if ((self->at.index != 0 && point_is_reached(self->page, &word)) ||
        point_page_is_known_gone(self->page)) {
        return true;
    }
    if (last->page != self->page) {
        if (last->questions == 0) {
            return false;
        }
        *last =
            (answer){self->page, point_page_peer_is_gone_locked(self->page), last->questions - 1};
    }
    return last->is_gone;
}

static bool is_returned(const lend *self, answer *last) {
    return is_reached(self, point_returned_word(&self->at), last);
}

static bool is_released(const lend *self, answer *last) {
    return is_reached(self, point_released_word(&self->at), last);
}

/* The list is empty. The mutex is held. */
static void forget(point_context *points, lend_list *self) {
    if (points->next_lent == self) {
        points->next_lent = self->next;
    }
    if (self->link != NULL) {
        *self->link = self->next;
        if (self->next != NULL) {
            self->next->link = self->link;
        }
    }
    free(self->lends);
    *self = (lend_list){0};
}

/* What is released need not be looked at again: from one on, so many of them. The mutex is held.
 * @return how many of them are left */
static uint32_t reap_some(point_context *points, lend_list *self, uint32_t first, uint32_t count,
                          answer *last) {
    uint32_t kept = first;
    for (uint32_t i = first; i < first + count; i++) {
        if (is_released(&self->lends[i], last)) {
            point_page_unreference_locked(self->lends[i].page);
        } else {
            self->lends[kept++] = self->lends[i];
        }
    }
    const uint32_t gone = first + count - kept;
    if (gone > 0) {
        memmove(&self->lends[kept], &self->lends[first + count],
                (self->count - first - count) * sizeof(lend));
        self->count -= gone;
    }
    if (self->count == 0) {
        forget(points, self);
    }
    return count - gone;
}

static void reap(point_context *points, lend_list *self) {
    answer last = ASKS_ALL;
    (void)reap_some(points, self, 0, self->count, &last);
}

bool lend_is_outstanding(struct buffer *self) {
    os_mutex_lock(&self->context->points.mutex);
    reap(&self->context->points, &self->lends);
    bool outstanding = self->lends.count > 0;
    os_mutex_unlock(&self->context->points.mutex);
    return outstanding;
}

uint32_t lend_count(struct buffer *self) {
    buffer *lender = lender_of(self);
    lend_list *list = &lender->lends;
    answer last = ASKS_ALL;
    uint32_t count = 0;
    os_mutex_lock(&lender->context->points.mutex);
    reap(&lender->context->points, list);
    for (uint32_t i = 0; i < list->count; i++) {
        count += concerns(&list->lends[i], self) && !is_returned(&list->lends[i], &last);
    }
    os_mutex_unlock(&lender->context->points.mutex);
    return count;
}

/* Half of it at least is then free: else each further one might look at all the others. The mutex is held. */
static gpuipc_status make_room(point_context *points, lend_list *self) {
    reap(points, self);
    if (self->count < self->capacity / 2) {
        return GPUIPC_OK;
    }
    const uint32_t capacity = self->capacity == 0 ? 4 : self->capacity * 2;
    lend *lends = realloc(self->lends, capacity * sizeof(*lends));
    if (lends == NULL) {
        return status_out_of_memory("lend_add", capacity * sizeof(*lends));
    }
    self->lends = lends;
    self->capacity = capacity;
    return GPUIPC_OK;
}

gpuipc_status lend_add(struct buffer *self, point_page *page, const point *at) {
    lend_list *list = &lender_of(self)->lends; /* of the same context: lend_check() */
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&self->context->points.mutex);
    if (list->count == list->capacity &&
        (status = make_room(&self->context->points, list)) != GPUIPC_OK) {
        goto unlock;
    }
    if (list->link == NULL) {
        lend_list **first = &self->context->points.lent;
        list->link = first;
        list->next = *first;
        if (list->next != NULL) {
            list->next->link = &list->next;
        }
        *first = list;
    }
    point_page_reference(page);
    list->lends[list->count++] = (lend){page, *at, self};
unlock:
    os_mutex_unlock(&self->context->points.mutex);
    return status;
}

gpuipc_status lend_check(const struct buffer *self) {
    if (self->original != NULL && self->original->context != self->context) {
        return status_fail(
            GPUIPC_ERR_NOT_SHAREABLE, "gpuipc_connection_send",
            "the buffer has come home to another context of this process; send the one "
            "that was made there");
    }
    return GPUIPC_OK;
}

point_page *lend_find_last(struct buffer *self, const point_page *page, point *out_at) {
    const lend_list *list = &lender_of(self)->lends;
    point_page *found = NULL;
    os_mutex_lock(&self->context->points.mutex);
    for (uint32_t i = list->count; i > 0 && found == NULL; i--) {
        if (list->lends[i - 1].page == page) {
            found = list->lends[i - 1].page;
            *out_at = list->lends[i - 1].at;
            point_page_reference(found);
        }
    }
    os_mutex_unlock(&self->context->points.mutex);
    return found;
}

void lend_remove(struct buffer *self, const point_page *page, const point *at) {
    lend_list *list = &lender_of(self)->lends;
    os_mutex_lock(&self->context->points.mutex);
    for (uint32_t i = list->count; i > 0; i--) {
        const lend *found = &list->lends[i - 1];
        if (found->page == page && found->at.index == at->index && found->at.value == at->value) {
            point_page_unreference_locked(found->page);
            memmove(&list->lends[i - 1], &list->lends[i], (list->count - i) * sizeof(lend));
            list->count--;
            break;
        }
    }
    if (list->count == 0) {
        forget(&self->context->points, list);
    }
    os_mutex_unlock(&self->context->points.mutex);
}

/* @return how many of its lends it has looked at, at most @p most */
static uint32_t look_at(point_context *points, lend_list *list, uint32_t most, answer *last) {
    const uint32_t first = list->next_look < list->count ? list->next_look : 0;
    const uint32_t count = list->count - first < most ? list->count - first : most;
    points->next_lent = first + count == list->count ? list->next : list;
    const uint32_t left = reap_some(points, list, first, count, last);
    if (list->count > 0) {
        list->next_look = first + left;
    }
    return count;
}

void lend_collect_some(point_context *points, uint32_t most, uint32_t questions) {
    answer last = {.questions = questions};
    if (points->next_lent == NULL) {
        points->next_lent = points->lent;
    }
    for (uint32_t looks = 0; looks < most && points->next_lent != NULL;) {
        looks += look_at(points, points->next_lent, most - looks, &last);
    }
}

/* Others may be made at the same address. */
static void forget_through(buffer *original, const buffer *through) {
    os_mutex_lock(&original->context->points.mutex);
    for (uint32_t i = 0; i < original->lends.count; i++) {
        if (original->lends.lends[i].through == through) {
            original->lends.lends[i].through = original;
        }
    }
    os_mutex_unlock(&original->context->points.mutex);
}

void lend_clear(struct buffer *self, bool forked) {
    lend_list *list = &self->lends;
    if (self->original != NULL && !forked) {
        forget_through(self->original, self);
    }
    if (forked) { /* the mutex may be held for ever */
        for (uint32_t i = 0; i < list->count; i++) {
            point_page_unreference(list->lends[i].page, true);
        }
        free(list->lends);
        return;
    }
    os_mutex_lock(&self->context->points.mutex);
    for (uint32_t i = 0; i < list->count; i++) {
        point_page_unreference_locked(list->lends[i].page);
    }
    forget(&self->context->points, list);
    os_mutex_unlock(&self->context->points.mutex);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static gpuipc_status await_on_host(buffer *self, os_deadline deadline, const char *operation) {
    unsigned pause = 0;
    uint32_t count;
    while ((count = lend_count(self)) > 0) {
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, operation,
                               "%u of the hand-overs of the buffer are not returned", count);
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return GPUIPC_OK;
}

/* A copy of those not returned, with a reference each; *out_lends is NULL when there are none.
 * @param out_has_points whether all of them have a word to wait for */
static gpuipc_status copy_outstanding(buffer *self, lend **out_lends, uint32_t *out_count,
                                      bool *out_has_points) {
    buffer *lender = lender_of(self);
    lend_list *list = &lender->lends;
    gpuipc_status status = GPUIPC_OK;
    lend *copy = NULL;
    uint32_t count = 0;
    bool has_points = true;
    answer last = ASKS_ALL;
    os_mutex_lock(&lender->context->points.mutex);
    reap(&lender->context->points, list);
    if (list->count > 0 && (copy = malloc(list->count * sizeof(*copy))) == NULL) {
        status = status_out_of_memory("lend", list->count * sizeof(*copy));
        goto unlock;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        if (concerns(&list->lends[i], self) && !is_returned(&list->lends[i], &last)) {
            copy[count++] = list->lends[i];
            point_page_reference(list->lends[i].page);
            has_points = has_points && list->lends[i].at.index != 0;
        }
    }
    *out_lends = copy;
    *out_count = count;
    *out_has_points = has_points;
unlock:
    os_mutex_unlock(&lender->context->points.mutex);
    return status;
}

/* In the stream's CUDA context. ERR_LIMIT: as point_passage_take(). */
static gpuipc_status wait_for(context *ctx, const lend *of, gpuipc_stream stream) {
    const point_word word = point_returned_word(&of->at);
    point_word passage;
    gpuipc_status status = point_passage_take(of->page, &passage);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = watch_add(&ctx->watch, of->page, &word, &passage, NULL);
    if (status != GPUIPC_OK) {
        point_passage_cancel(ctx, &passage);
        return status;
    }
    return point_wait_async(of->page, &word, 1, stream, &passage, false);
}

static gpuipc_status await_on_stream(buffer *self, gpuipc_stream stream, const char *operation) {
    context *ctx = lender_of(self)->context; /* whose pages they are */
    lend *lends = NULL;
    uint32_t count = 0;
    bool has_points = true;
    device_scope scope;
    gpuipc_status status = copy_outstanding(self, &lends, &count, &has_points);
    if (status != GPUIPC_OK || count == 0) {
        free(lends);
        return status;
    }
    status = device_enter_stream(ctx, stream, self->access_device, &scope);
    if (status != GPUIPC_OK) {
        goto free_lends;
    }
    bool by_stream = has_points && point_has_stream_waits(ctx);
    if (by_stream) {
        status = device_check_capture(ctx, stream);
    }
    for (uint32_t i = 0; i < count && status == GPUIPC_OK && by_stream; i++) {
        status = wait_for(ctx, &lends[i], stream);
    }
    device_leave(&scope);
    if ((status == GPUIPC_OK && !by_stream) || status == GPUIPC_ERR_LIMIT) {
        status = await_on_host(self, os_deadline_after(-1), operation);
    }
free_lends:
    for (uint32_t i = 0; i < count; i++) {
        point_page_unreference(lends[i].page, false);
    }
    free(lends);
    return status;
}

gpuipc_status gpuipc_buffer_await_returns(gpuipc_buffer *handle, int timeout_ms) {
    const char *const operation = "gpuipc_buffer_await_returns";
    const os_deadline deadline = os_deadline_after(timeout_ms);
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, operation, &self);
    if (status == GPUIPC_OK) {
        status = await_on_host(self, deadline, operation);
        if (status == GPUIPC_OK) {
            registry_sweep_some(true);
            (void)context_run_deferred(self->context);
        }
        buffer_unreference(self);
    }
    return status;
}

gpuipc_status gpuipc_buffer_await_returns_async(gpuipc_buffer *handle, gpuipc_stream stream) {
    const char *const operation = "gpuipc_buffer_await_returns_async";
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, operation, &self);
    if (status == GPUIPC_OK) {
        status = await_on_stream(self, stream, operation);
        buffer_unreference(self);
    }
    return status;
}
