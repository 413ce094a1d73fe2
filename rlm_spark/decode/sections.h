/* One pass over the decompressed records of a batch, into growing buffers.
 *
 * Every number and length is held against the end of its record before it is used. Runs without the
 * interpreter's lock, and takes it for header names alone that are no UTF-8.
 */
#ifndef KAFKA_RLM_SECTIONS_H
#define KAFKA_RLM_SECTIONS_H

#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "buffers.h"

/* The columns, as engine.py numbers them. */
enum { KEY = 1, VALUE = 2, OFFSET = 4, TIMESTAMP = 8, TIMESTAMP_TYPE = 16, HEADERS = 32 };

/* Size, attributes, timestamp, offset, key, value, number of headers: a byte each at least. */
#define LEAST_RECORD_BYTES 7
#define VARINT_BYTES 5
#define VARLONG_BYTES 10
#define HEADER_ROW_BYTES 9

typedef struct {
    Buffer valid, ends;
    int64_t count, nulls;
    Strings names, values;
} HeaderLists;

typedef struct {
    PyObject_HEAD
    bool busy;
    int columns;
    int64_t target_bytes, row_bytes, size_bytes, row_count, last_offset;
    Strings key, value;
    Buffer offsets, timestamps, types;
    HeaderLists headers;
} RowBuilder;

/* One section being read, and why it is refused. */
typedef struct {
    const uint8_t *data;
    Py_ssize_t length, end, record_count;
    long long base_offset, last_offset, timestamp_ms, first_offset, until_offset;
    int is_log_append_time;
    Py_ssize_t at, index;
    PyThreadState *thread;
    Failure failure;
} Section;

/* A place in the section; size -1 is null. */
typedef struct {
    int64_t at, size;
} Field;

typedef struct {
    int64_t size, end, delta_ms, offset, headers_at;
    Field key, value;
    bool is_wanted;
} Record;

static inline int put_field(Section *s, Strings *column, Field field)
{
    if (field.size < 0)
        return put_string(&s->failure, column, NULL, 0, 0);
    return put_string(&s->failure, column, s->data + field.at, field.size, s->length - field.at);
}

/* ---- Numbers and fields --------------------------------------------------------------------- */

/* Zigzag number of at most max_bytes bytes and 64 bits. The place is the caller's local, which stays in
 * a register, and moves behind the number.
 */
static inline int number(Section *s, int64_t *at, int64_t end, int max_bytes, int64_t *result)
{
    int64_t start = *at;
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * max_bytes && *at < end; shift += 7) {
        uint64_t byte = s->data[(*at)++];
        value |= (byte & 127) << shift;
        if (byte < 128) {
            if (shift == 63 && byte > 1)
                break;
            *result = (int64_t)(value >> 1 ^ (~(value & 1) + 1));
            return 0;
        }
    }
    return refuse(&s->failure, "record %lld: number at byte %lld of %lld is cut short or too long",
                  (long long)s->index, (long long)start, (long long)end);
}

static inline int field(Section *s, int64_t *at, int64_t end, Field *result)
{
    if (number(s, at, end, VARINT_BYTES, &result->size) < 0)
        return -1;
    result->at = *at;
    if (result->size < 0) {
        result->size = -1;
        return 0;
    }
    if (result->size > end - *at)
        return refuse(&s->failure, "record %lld: field of %lld bytes at byte %lld of %lld",
                      (long long)s->index, (long long)result->size, (long long)*at,
                      (long long)end);
    *at += result->size;
    return 0;
}

/* Whether the bytes are UTF-8 as Python and Arrow see it: shortest forms, no surrogates. */
static bool is_utf8(const uint8_t *at, int64_t size)
{
    const uint8_t *end = at + size;
    while (at < end) {
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - at < more)
            return false;
        uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (at[0] < least || at[0] > most)
            return false;
        for (int next = 1; next < more; next++)
            if ((at[next] & 0xC0) != 0x80)
                return false;
        at += more;
    }
    return true;
}

/* What is no UTF-8 is replaced, as consumers do: Python knows how. */
__attribute__((cold)) static int put_replaced(Section *s, Strings *names, Field name)
{
    int result = -1;
    PyEval_RestoreThread(s->thread);
    PyObject *text = PyUnicode_DecodeUTF8((const char *)s->data + name.at, (Py_ssize_t)name.size,
                                          "replace");
    PyObject *bytes = text == NULL ? NULL : PyUnicode_AsUTF8String(text);
    if (bytes != NULL) {
        const uint8_t *from = (const uint8_t *)PyBytes_AsString(bytes);
        Py_ssize_t size = PyBytes_Size(bytes);
        result = put_string(&s->failure, names, from, size, size);
    } else {
        PyErr_Clear();
        s->failure.no_memory = true;
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    s->thread = PyEval_SaveThread();
    return result;
}

/* Step over the headers of a record. */
static inline int skip_headers(Section *s, int64_t *at, int64_t end)
{
    Field name, value;
    int64_t count;
    if (number(s, at, end, VARINT_BYTES, &count) < 0)
        return -1;
    if (count < 0 || 2 * count > end - *at)
        return refuse(&s->failure, "record %lld claims %lld headers at byte %lld of %lld",
                      (long long)s->index, (long long)count, (long long)*at, (long long)end);
    for (int64_t header = 0; header < count; header++) {
        if (field(s, at, end, &name) < 0)
            return -1;
        if (name.size < 0)
            return refuse(&s->failure, "record %lld has a header without a name before byte %lld",
                          (long long)s->index, (long long)*at);
        if (field(s, at, end, &value) < 0)
            return -1;
    }
    return 0;
}

/* Append the headers of a record; skip_headers has seen them. */
static int put_headers(Section *s, RowBuilder *b, const Record *record)
{
    HeaderLists *lists = &b->headers;
    Field name, value;
    int64_t count, at = record->headers_at;
    if (number(s, &at, record->end, VARINT_BYTES, &count) < 0
        || (lists->count == 0 && put_int32(&s->failure, &lists->ends, 0) < 0))
        return -1;
    for (int64_t header = 0; header < count; header++) {
        if (field(s, &at, record->end, &name) < 0 || field(s, &at, record->end, &value) < 0)
            return -1;
        int64_t before = lists->names.data.used;
        if (is_utf8(s->data + name.at, name.size) ? put_field(s, &lists->names, name) < 0
                                                  : put_replaced(s, &lists->names, name) < 0)
            return -1;
        if (put_field(s, &lists->values, value) < 0)
            return -1;
        b->size_bytes += HEADER_ROW_BYTES + lists->names.data.used - before
                       + (value.size < 0 ? 0 : value.size);
    }
    if (put_bit(&s->failure, &lists->valid, lists->count, count > 0) < 0)
        return -1;
    lists->nulls += count == 0;
    lists->count++;
    return put_int32(&s->failure, &lists->ends, lists->names.count);
}

/* ---- Records -------------------------------------------------------------------------------- */

static inline int put_time(Section *s, RowBuilder *b, int64_t delta_ms)
{
    int64_t time_ms = s->timestamp_ms, time_us;
    if ((!s->is_log_append_time && __builtin_add_overflow(time_ms, delta_ms, &time_ms))
        || __builtin_mul_overflow(time_ms, (int64_t)1000, &time_us))
        return refuse(&s->failure, "record %lld has a timestamp beyond what microseconds hold",
                      (long long)s->index);
    return put_int64(&s->failure, &b->timestamps, time_us);
}

/* Read the record at s->at; nothing is appended yet. */
static inline int read_record(Section *s, const RowBuilder *b, Record *record)
{
    int64_t delta, at = s->at;
    if (number(s, &at, s->end, VARINT_BYTES, &record->size) < 0)
        return -1;
    if (record->size < 0 || record->size > s->end - at)
        return refuse(&s->failure, "record %lld claims %lld bytes at byte %lld of %lld",
                      (long long)s->index, (long long)record->size, (long long)at,
                      (long long)s->end);
    int64_t end = record->end = at + record->size;
    at++; /* Attributes: none are defined. */
    if (number(s, &at, end, VARLONG_BYTES, &record->delta_ms) < 0
        || number(s, &at, end, VARINT_BYTES, &delta) < 0)
        return -1;
    if (delta > s->last_offset - s->base_offset || s->base_offset + delta <= b->last_offset)
        return refuse(&s->failure,
                      "record %lld has offset %lld + %lld after %lld, its batch ends at %lld",
                      (long long)s->index, s->base_offset, (long long)delta,
                      (long long)b->last_offset, s->last_offset);
    record->offset = s->base_offset + delta;
    record->is_wanted = record->offset >= s->first_offset && record->offset < s->until_offset;
    if (!record->is_wanted)
        return 0;
    if (field(s, &at, end, &record->key) < 0 || field(s, &at, end, &record->value) < 0)
        return -1;
    record->headers_at = at;
    if (skip_headers(s, &at, end) < 0)
        return -1;
    if (at != end)
        return refuse(&s->failure, "record %lld ends at byte %lld, declared %lld",
                      (long long)s->index, (long long)at, (long long)end);
    return 0;
}

/* Append the wanted columns of a record. */
static inline int put_record(Section *s, RowBuilder *b, const Record *record)
{
    int columns = b->columns;
    b->row_count++;
    b->size_bytes += b->row_bytes + (columns & KEY && record->key.size > 0 ? record->key.size : 0)
                   + (columns & VALUE && record->value.size > 0 ? record->value.size : 0);
    if ((columns & OFFSET && put_int64(&s->failure, &b->offsets, record->offset) < 0)
        || (columns & TIMESTAMP && put_time(s, b, record->delta_ms) < 0)
        || (columns & TIMESTAMP_TYPE
            && put_int32(&s->failure, &b->types, s->is_log_append_time) < 0)
        || (columns & KEY && put_field(s, &b->key, record->key) < 0)
        || (columns & VALUE && put_field(s, &b->value, record->value) < 0)
        || (columns & HEADERS && put_headers(s, b, record) < 0))
        return -1;
    return 0;
}

/* Take the record at s->at: 1 taken or stepped over, 0 no room for it, -1 refused. */
static inline int take_record(Section *s, RowBuilder *b)
{
    Record record;
    if (b->size_bytes >= b->target_bytes)
        return 0;
    if (read_record(s, b, &record) < 0)
        return -1;
    if (record.is_wanted) {
        if (b->row_count > 0 && b->size_bytes + record.size > 2 * b->target_bytes)
            return 0;
        if (put_record(s, b, &record) < 0)
            return -1;
    }
    b->last_offset = record.offset;
    s->at = (Py_ssize_t)record.end;
    return 1;
}

/* Take records until the section or the room ends; -1 where the section is refused. */
static int take_records(Section *s, RowBuilder *b)
{
    if (s->index == 0)
        b->last_offset = s->base_offset - 1;
    for (; s->index < s->record_count; s->index++) {
        int taken = take_record(s, b);
        if (taken <= 0)
            return taken;
    }
    if (s->at != s->end)
        return refuse(&s->failure, "%lld bytes are left over after %lld records",
                      (long long)(s->end - s->at), (long long)s->record_count);
    return 0;
}

#endif
