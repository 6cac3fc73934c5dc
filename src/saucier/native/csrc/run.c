/* A pass over a plan: every step for all tokens, with nothing of Python in it; and which instruction set is used. */
#include <string.h>

#include "saucier.h"
#ifdef HAS_AVX2
#include <cpuid.h>
#endif

extern const Kernels kernels_portable;
#ifdef HAS_AVX2
extern const Kernels kernels_avx2;

/* AVX2, FMA and F16C of the processor, and registers of 256 bits that the system keeps. */
static int runs_avx2(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_F16C) || !(c & bit_OSXSAVE)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
#endif

/* The kernels of a path; NULL where this machine, or this build, has it not. */
const Kernels *saucier_kernels(const char *path) {
    if (!strcmp(path, "portable")) return &kernels_portable;
#ifdef HAS_AVX2
    if (!strcmp(path, "avx2") && runs_avx2()) return &kernels_avx2;
#endif
    return NULL;
}

const char *saucier_best_path(void) { return saucier_kernels("avx2") ? "avx2" : "portable"; }

typedef struct {
    const Kernels *kernels;
    const Product *product;
    const Attention *attention;
    int64_t chunk;
    float *scores;
    int64_t score_stride;
} Work;

static void run_rows(void *argument, int64_t chunk, int thread) {
    const Work *work = argument;
    int64_t begin = chunk * work->chunk, rows = work->product->matrix->rows;
    (void)thread;
    work->kernels->product(work->product, begin, begin + work->chunk < rows ? begin + work->chunk : rows);
}

static void run_heads(void *argument, int64_t chunk, int thread) {
    const Work *work = argument;
    int64_t groups = work->attention->groups;
    work->kernels->attend(work->attention, chunk / groups, chunk % groups, work->scores + thread * work->score_stride);
}

/* Chunks of whole tiles, small enough that nobody waits long for the last one and large enough to be worth claiming. */
static void run_product(const Kernels *kernels, Product *p, int threads) {
    const Matrix *m = p->matrix;
    if (m->format == INT8 || m->format == INT4) kernels->round_input(m, &p->input);
    int64_t chunk = (m->rows / (threads * 8) + 63) / 64 * 64;
    chunk = chunk < 64 ? 64 : chunk > 1024 ? 1024 : chunk;
    Work work = {.kernels = kernels, .product = p, .chunk = threads == 1 ? m->rows : chunk};
    saucier_parallel(threads, (m->rows + work.chunk - 1) / work.chunk, run_rows, &work);
}

/* Activations that are rounded together: those of a group of weights, or of a part of a long one. */
int64_t saucier_block(const Matrix *m) {
    if (m->format != INT8 && m->format != INT4) return 128;
    return m->group <= 256 ? m->group : m->group >= m->inputs || m->group % 128 == 0 ? 128 : 32;
}

/* One product, for tests and measurements. */
void saucier_product(const char *path, const Product *product, int threads) {
    Product copy = *product;
    threads = saucier_enter(threads);
    run_product(saucier_kernels(path), &copy, threads);
    saucier_leave();
}

typedef struct {
    const Kernels *kernels;
    const Session *session;
    int64_t n;
    const int32_t *tokens, *rows, *places, *wanted;
    int64_t wanted_count;
    int threads;
} Pass;

static float *row_of(const Pass *pass, int buffer, int64_t i) {
    return pass->session->buffers[buffer] + i * pass->session->strides[buffer];
}

/* Copy, or add, a stored row of any format, times a factor. */
static void read_row(const Kernels *kernels, const Matrix *m, int64_t row, float *to, float scale, int adds) {
    for (int64_t k = 0; k < m->inputs; k++) to[k] = (adds ? to[k] : 0) + kernels->weight(m, row, k) * scale;
}

static void run_matrix(const Pass *pass, const Op *op) {
    const Session *s = pass->session;
    int64_t inputs = op->matrix->inputs, units = (inputs + 31) / 32 * 32;
    int64_t block = saucier_block(op->matrix), blocks = (inputs + block - 1) / block;
    Product product = {
        .matrix = op->matrix,
        .input = {.values = s->buffers[op->from], .stride = s->strides[op->from], .codes = s->codes, .scales = s->scales,
                  .sums = s->sums, .n = pass->n, .unit_stride = units, .block_stride = (blocks + 7) / 8 * 8, .block = block},
        .bias = op->bias, .to = s->buffers[op->to], .stride = s->strides[op->to], .activation = op->activation,
        .adds = op->adds};
    run_product(pass->kernels, &product, pass->threads);
}

/* Write the new keys and values of all tokens, then let all attend: tokens of one row see each other by their places. */
static void run_attention(const Pass *pass, const Op *op) {
    const Session *s = pass->session;
    int64_t head = op->head, queries = op->heads * head, width = op->groups * head;
    int64_t layer = op->slot * s->rows * s->capacity;
    for (int64_t i = 0; i < pass->n; i++) {
        const float *key = row_of(pass, op->from, i) + queries;
        for (int64_t g = 0; g < op->groups; g++) {
            int64_t row = layer + (pass->rows[i] * op->groups + g) * s->capacity * head, at = row + pass->places[i] * head;
            float *block = s->keys + row + pass->places[i] / KEYS_AT_ONCE * KEYS_AT_ONCE * head;
            for (int64_t e = 0; e < head; e++)
                block[e * KEYS_AT_ONCE + pass->places[i] % KEYS_AT_ONCE] = key[g * head + e];
            memcpy(s->values + at, key + width + g * head, (size_t)head * sizeof(float));
        }
    }
    Attention attention = {.query = s->buffers[op->from], .to = s->buffers[op->to], .stride = s->strides[op->from],
                           .to_stride = s->strides[op->to], .keys = s->keys + layer, .values = s->values + layer,
                           .capacity = s->capacity, .rows = pass->rows, .places = pass->places, .heads = op->heads,
                           .groups = op->groups, .head = op->head, .window = op->window, .scale = op->scale,
                           .bias = op->table, .reach = op->reach};
    Work work = {.kernels = pass->kernels, .attention = &attention, .scores = s->scores, .score_stride = s->score_stride};
    saucier_parallel(pass->threads, pass->n * op->groups, run_heads, &work);
}

static void run_op(Pass *pass, const Op *op) {
    const Kernels *kernels = pass->kernels;
    if (op->kind == PRODUCT) return run_matrix(pass, op);
    if (op->kind == ATTEND) return run_attention(pass, op);
    if (op->kind == SELECT) { /* from here on only the tokens whose scores are wanted; they come in rising order */
        for (int64_t i = 0; i < pass->wanted_count; i++)
            memmove(row_of(pass, op->to, i), row_of(pass, op->from, pass->wanted[i]), (size_t)op->width * sizeof(float));
        pass->n = pass->wanted_count;
        return;
    }
    for (int64_t i = 0; i < pass->n; i++) {
        float *from = row_of(pass, op->from, i), *to = row_of(pass, op->to, i);
        int64_t place = pass->places[i];
        switch (op->kind) {
            case EMBED: read_row(kernels, op->matrix, pass->tokens[i], to, op->scale, 0); break;
            case PLACES: read_row(kernels, op->matrix, place + op->offset, to, 1.0f, 1); break;
            case NORM: kernels->norm(op->norm, from, to, op->width, op->gain, op->bias, op->eps); break;
            case ROTATE: kernels->rotate(to, op->heads, op->head, op->turned, op->neighbours, op->table + place * op->turned); break;
            case GATE: kernels->gate(op->activation, to, op->width); break;
            case ACTIVATE: kernels->activate(op->activation, to, op->width); break;
            case ADD: for (int64_t k = 0; k < op->width; k++) to[k] += from[k]; break;
            case SCALE: for (int64_t k = 0; k < op->width; k++) to[k] *= op->scale; break;
        }
    }
}

/* Read n tokens (at most `most`), each at its place of its row of the cache. The tokens that `wanted` numbers, in
 * rising order, leave what the last step of the plan gives in the first rows of its buffer. */
void saucier_run(const char *path, const Plan *plan, const Session *session, int64_t n, const int32_t *tokens,
                 const int32_t *rows, const int32_t *places, const int32_t *wanted, int64_t wanted_count, int threads) {
    Pass pass = {.kernels = saucier_kernels(path), .session = session, .n = n, .tokens = tokens, .rows = rows,
                 .places = places, .wanted = wanted, .wanted_count = wanted_count, .threads = saucier_enter(threads)};
    for (int32_t i = 0; i < plan->count && pass.n; i++) run_op(&pass, plan->ops + i);
    saucier_leave();
}
