/* The compiled decoder of record sections: see engine.py, which says what it must do, and plain.py,
 * which does the same in Python, in the same order and with the same words for what it refuses.
 *
 * Here is Python's side: the builder, the blocks of memory that it hands out, the checksum. The pass
 * over records is in sections.h. Every value is copied once; nothing of the input is trusted; the
 * interpreter's lock is given up for the whole pass. Plain CPython API, stable ABI of 3.11.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "crc32c.h"
#include "sections.h"

#define MAX_TARGET_BYTES ((1 << 30) - 1)

/* ---- Memory used again ---------------------------------------------------------------------- */

/* Fresh memory costs more than filling it does (page faults: measured 3 times the time of a copy), so
 * what a batch leaves is kept for the one after the next. Touched with the interpreter's lock only.
 */
#define KEPT_CHUNKS 32
#define KEPT_BYTES (32 << 20)
#define LEAST_KEPT_BYTES (32 << 10)

static struct {
    uint8_t *at;
    int64_t room;
} kept[KEPT_CHUNKS];
static int kept_count;
static int64_t kept_bytes;

static void give_back(uint8_t *at, int64_t room)
{
    if (room < LEAST_KEPT_BYTES || kept_bytes + room > KEPT_BYTES || kept_count == KEPT_CHUNKS) {
        free(at);
        return;
    }
    kept[kept_count].at = at;
    kept[kept_count].room = room;
    kept_count++;
    kept_bytes += room;
}

/* Give a buffer without memory the smallest kept that has its usual room, unless far too large. */
static void take_kept(Buffer *b)
{
    int best = -1;
    if (b->at != NULL || b->usual < LEAST_KEPT_BYTES)
        return;
    for (int at = 0; at < kept_count; at++)
        if (kept[at].room >= b->usual && kept[at].room <= 2 * b->usual
            && (best < 0 || kept[at].room < kept[best].room))
            best = at;
    if (best < 0)
        return;
    b->at = kept[best].at;
    b->room = kept[best].room;
    kept_bytes -= b->room;
    kept[best] = kept[--kept_count];
}

/* ---- Python's side: a block of memory ------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    uint8_t *at;
    int64_t size, room;
} Block;

static PyTypeObject *block_type, *builder_type;

static int block_get(PyObject *self, Py_buffer *view, int flags)
{
    Block *block = (Block *)self;
    void *at = block->size ? (void *)block->at : (void *)"";
    return PyBuffer_FillInfo(view, self, at, (Py_ssize_t)block->size, 1, flags);
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static void block_free(PyObject *self)
{
    Block *block = (Block *)self;
    give_back(block->at, block->room);
    free_object(self);
}

/* The buffer's memory as an object that keeps it; the buffer is empty afterwards. */
static PyObject *block_of(Buffer *b)
{
    Block *block = (Block *)PyType_GenericAlloc(block_type, 0);
    if (block == NULL)
        return NULL;
    block->at = b->at;
    block->size = b->used;
    block->room = b->room;
    b->usual = b->used + b->used / 16 + WIDE;
    if (b->room > 2 * b->usual) {
        uint8_t *smaller = realloc(b->at, (size_t)b->usual);
        block->at = smaller ? smaller : b->at;
        block->room = smaller ? b->usual : b->room;
    }
    b->at = NULL;
    b->used = b->room = 0;
    return (PyObject *)block;
}

static PyType_Slot block_slots[] = {
    {Py_bf_getbuffer, block_get},
    {Py_tp_dealloc, block_free},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "rlm_spark.decode._native.Block",
    .basicsize = sizeof(Block),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};

/* ---- Python's side: the builder ------------------------------------------------------------- */

/* Every buffer of a builder, for whoever treats all alike. */
#define BUFFERS(b)                                                                               \
    {&(b)->key.valid, &(b)->key.ends, &(b)->key.data,                                            \
     &(b)->value.valid, &(b)->value.ends, &(b)->value.data,                                      \
     &(b)->offsets, &(b)->timestamps, &(b)->types, &(b)->headers.valid, &(b)->headers.ends,      \
     &(b)->headers.names.valid, &(b)->headers.names.ends, &(b)->headers.names.data,              \
     &(b)->headers.values.valid, &(b)->headers.values.ends, &(b)->headers.values.data}
#define BUFFER_COUNT 17

/* What a batch of the builder before took: a worker's next task reads much the same. */
static int64_t usual_rooms[BUFFER_COUNT];

/* Back to no rows; memory that no block took over is used again. */
static void clear(RowBuilder *b)
{
    Buffer *all[BUFFER_COUNT] = BUFFERS(b);
    Strings *strings[] = {&b->key, &b->value, &b->headers.names, &b->headers.values};
    for (int at = 0; at < BUFFER_COUNT; at++)
        all[at]->used = 0;
    for (int at = 0; at < 4; at++)
        strings[at]->count = strings[at]->nulls = 0;
    b->headers.count = b->headers.nulls = 0;
    b->row_count = b->size_bytes = 0;
}

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"columns", "target_bytes", "constant_row_bytes", NULL};
    static const int widths[][2] = {{KEY, 5}, {VALUE, 5}, {OFFSET, 8}, {TIMESTAMP, 8},
                                    {TIMESTAMP_TYPE, 4}, {HEADERS, 5}};
    int columns;
    long long target_bytes, constant_row_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iLL", names, &columns, &target_bytes,
                                     &constant_row_bytes))
        return NULL;
    if (target_bytes <= 0 || target_bytes > MAX_TARGET_BYTES)
        return PyErr_Format(PyExc_ValueError, "target of %lld bytes is not in 1..%d",
                            target_bytes, MAX_TARGET_BYTES);
    RowBuilder *b = (RowBuilder *)PyType_GenericAlloc(type, 0);
    if (b == NULL)
        return NULL;
    b->columns = columns;
    b->target_bytes = target_bytes;
    b->row_bytes = constant_row_bytes;
    for (int at = 0; at < 6; at++)
        b->row_bytes += columns & widths[at][0] ? widths[at][1] : 0;
    if (b->row_bytes < 1)
        b->row_bytes = 1;
    Buffer *all[BUFFER_COUNT] = BUFFERS(b);
    for (int at = 0; at < BUFFER_COUNT; at++)
        all[at]->usual = usual_rooms[at];
    return (PyObject *)b;
}

static void builder_free(PyObject *self)
{
    Buffer *all[BUFFER_COUNT] = BUFFERS((RowBuilder *)self);
    for (int at = 0; at < BUFFER_COUNT; at++) {
        usual_rooms[at] = all[at]->usual;
        give_back(all[at]->at, all[at]->room);
    }
    free_object(self);
}

static bool is_busy(RowBuilder *b)
{
    if (b->busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread is using this builder");
    return b->busy;
}

static PyObject *builder_append(PyObject *self, PyObject *args)
{
    RowBuilder *b = (RowBuilder *)self;
    PyObject *result = NULL;
    Section s = {0};
    Py_buffer view;
    if (is_busy(b))
        return NULL;
    if (!PyArg_ParseTuple(args, "(y*nnLLLpLL)nn", &view, &s.end, &s.record_count, &s.base_offset,
                          &s.last_offset, &s.timestamp_ms, &s.is_log_append_time,
                          &s.first_offset, &s.until_offset, &s.at, &s.index))
        return NULL;
    s.data = view.buf;
    s.length = view.len;
    if (s.at < 0 || s.at > s.end || s.end > s.length || s.index < 0 || s.index > s.record_count
        || s.base_offset < 0 || s.last_offset < s.base_offset) {
        PyErr_Format(PyExc_ValueError, "no place in a section: byte %zd of %zd, record %zd", s.at,
                     s.end, s.index);
    } else if (s.record_count - s.index > (s.end - s.at) / LEAST_RECORD_BYTES) {
        PyErr_Format(PyExc_ValueError, "%zd records are claimed to be in %zd bytes",
                     s.record_count - s.index, s.end - s.at);
    } else {
        Buffer *all[BUFFER_COUNT] = BUFFERS(b);
        for (int at = 0; at < BUFFER_COUNT; at++)
            take_kept(all[at]);
        b->busy = true;
        s.thread = PyEval_SaveThread();
        int taken = take_records(&s, b);
        PyEval_RestoreThread(s.thread);
        b->busy = false;
        if (taken == 0)
            result = Py_BuildValue("nn", s.at, s.index);
        else if (s.failure.no_memory)
            PyErr_NoMemory();
        else
            PyErr_SetString(PyExc_ValueError, s.failure.message);
    }
    if (result == NULL)
        clear(b);
    PyBuffer_Release(&view);
    return result;
}

/* The validity bits of so many rows, None where no row is null. */
static PyObject *validity(Buffer *bits, int64_t nulls)
{
    if (nulls > 0)
        return block_of(bits);
    bits->used = 0;
    Py_INCREF(Py_None);
    return Py_None;
}

/* Offsets begin with a zero, even of no rows. */
static PyObject *ends_of(Buffer *ends)
{
    static const char zero[4];
    return ends->used ? block_of(ends) : PyBytes_FromStringAndSize(zero, sizeof zero);
}

static PyObject *strings_of(Strings *column)
{
    return Py_BuildValue("LNNN", (long long)column->nulls,
                         validity(&column->valid, column->nulls), ends_of(&column->ends),
                         block_of(&column->data));
}

static PyObject *builder_finish(PyObject *self, PyObject *Py_UNUSED(none))
{
    RowBuilder *b = (RowBuilder *)self;
    HeaderLists *lists = &b->headers;
    if (is_busy(b))
        return NULL;
    PyObject *headers = Py_BuildValue(
        "LNNLNN", (long long)lists->nulls, validity(&lists->valid, lists->nulls),
        ends_of(&lists->ends), (long long)lists->names.count, strings_of(&lists->names),
        strings_of(&lists->values));
    PyObject *rows = Py_BuildValue(
        "LNNNNNN", (long long)b->row_count, strings_of(&b->key), strings_of(&b->value),
        block_of(&b->offsets), block_of(&b->timestamps), block_of(&b->types), headers);
    clear(b);
    return rows;
}

static PyObject *builder_row_count(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(((RowBuilder *)self)->row_count);
}

static PyMethodDef builder_methods[] = {
    {"append", builder_append, METH_VARARGS, "See rlm_spark.decode.engine.RowBuilder."},
    {"finish", builder_finish, METH_NOARGS, "See rlm_spark.decode.engine.RowBuilder."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef builder_properties[] = {
    {"row_count", builder_row_count, NULL, "Rows since the last finish().", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_free},
    {Py_tp_methods, builder_methods},
    {Py_tp_getset, builder_properties},
    {Py_tp_doc, "Appends records to growing Arrow buffers."},
    {0, NULL},
};

static PyType_Spec builder_spec = {
    .name = "rlm_spark.decode._native.RowBuilder",
    .basicsize = sizeof(RowBuilder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = builder_slots,
};

/* ---- The module ----------------------------------------------------------------------------- */

static PyObject *crc32c(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end;
    uint32_t crc = 0;
    if (!PyArg_ParseTuple(args, "y*nn", &view, &start, &end))
        return NULL;
    bool inside = start >= 0 && start <= end && end <= view.len;
    if (inside) {
        Py_BEGIN_ALLOW_THREADS
        crc = crc_of((const uint8_t *)view.buf + start, end - start);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    if (!inside)
        return PyErr_Format(PyExc_ValueError, "no bytes %zd..%zd", start, end);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef functions[] = {
    {"crc32c", crc32c, METH_VARARGS, "CRC-32C of data[start:end]."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The compiled decoder of record sections; see rlm_spark.decode.engine.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    crc_make_tables();
    block_type = (PyTypeObject *)PyType_FromSpec(&block_spec);
    builder_type = (PyTypeObject *)PyType_FromSpec(&builder_spec);
    if (block_type == NULL || builder_type == NULL || PyModule_AddType(module, builder_type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
