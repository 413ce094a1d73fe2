/* Arrow's buffers while they grow: bytes, 32-bit offsets, validity bits. Without Python. */
#ifndef KAFKA_RLM_BUFFERS_H
#define KAFKA_RLM_BUFFERS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Short values are copied by this many bytes at once, into room that is always there. */
#define WIDE 32
#define LONGEST_WIDE 512
#define FIRST_ROOM 4096
#define MESSAGE_BYTES 160

typedef struct {
    uint8_t *at;
    int64_t used, room;
    int64_t usual; /* What the batch before took: the first room of the next. */
} Buffer;

typedef struct {
    Buffer valid, ends, data;
    int64_t count, nulls;
} Strings;

/* Why something could not be done, in one line. */
typedef struct {
    bool no_memory;
    char message[MESSAGE_BYTES];
} Failure;

__attribute__((format(printf, 2, 3), cold)) static void explain(Failure *why, const char *form, ...)
{
    va_list values;
    va_start(values, form);
    vsnprintf(why->message, sizeof why->message, form, values);
    va_end(values);
}

/* An expression of value -1, which the compiler sees at once. */
#define refuse(...) (explain(__VA_ARGS__), -1)

__attribute__((cold)) static int grow(Failure *why, Buffer *b, int64_t more)
{
    if (b->used + more > INT32_MAX)
        return refuse(why, "a record is too large for one Arrow batch");
    int64_t room = b->room ? 2 * b->room : b->usual > FIRST_ROOM ? b->usual : FIRST_ROOM;
    if (room < b->used + more + WIDE)
        room = b->used + more + WIDE;
    uint8_t *at = realloc(b->at, (size_t)room);
    if (at == NULL) {
        why->no_memory = true;
        return -1;
    }
    b->at = at;
    b->room = room;
    return 0;
}

/* Make sure that `more` bytes can be appended, and WIDE - 1 beyond them overwritten. */
static inline int need(Failure *why, Buffer *b, int64_t more)
{
    return b->room - b->used >= more + WIDE ? 0 : grow(why, b, more);
}

static inline int put_int32(Failure *why, Buffer *b, int64_t value)
{
    int32_t narrow = (int32_t)value;
    if (need(why, b, 4) < 0)
        return -1;
    memcpy(b->at + b->used, &narrow, 4);
    b->used += 4;
    return 0;
}

static inline int put_int64(Failure *why, Buffer *b, int64_t value)
{
    if (need(why, b, 8) < 0)
        return -1;
    memcpy(b->at + b->used, &value, 8);
    b->used += 8;
    return 0;
}

static inline int put_bit(Failure *why, Buffer *b, int64_t row, bool set)
{
    if ((row & 7) == 0) {
        if (need(why, b, 1) < 0)
            return -1;
        b->at[b->used++] = 0;
    }
    b->at[row >> 3] |= (uint8_t)(set << (row & 7));
    return 0;
}

/* `left`: how many bytes of the source are ours to read. */
static inline void copy(uint8_t *to, const uint8_t *from, int64_t size, int64_t left)
{
    if (size > LONGEST_WIDE || left < size + WIDE) {
        memcpy(to, from, (size_t)size);
        return;
    }
    for (int64_t at = 0; at < size; at += WIDE)
        memcpy(to + at, from + at, WIDE);
}

/* Append bytes, or null where `from` is. */
static inline int put_string(Failure *why, Strings *column, const uint8_t *from, int64_t size,
                             int64_t left)
{
    if (column->count == 0 && put_int32(why, &column->ends, 0) < 0)
        return -1;
    if (put_bit(why, &column->valid, column->count, from != NULL) < 0)
        return -1;
    if (from != NULL) {
        if (need(why, &column->data, size) < 0)
            return -1;
        copy(column->data.at + column->data.used, from, size, left);
        column->data.used += size;
    }
    column->nulls += from == NULL;
    column->count++;
    return put_int32(why, &column->ends, column->data.used);
}

#endif
