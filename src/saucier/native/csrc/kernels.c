/* The inner loops but for products with matrices: activations, norms, rotation, and attention to the cache. This file is
 * compiled once for each instruction set (-DPATH=...).
 * Letters: R tokens of a tile; k counts inputs. */
#include <math.h>
#include <string.h>
#include "tiles.h"
#ifdef __AMX_TILE__
#include "registers.h"
#define QUERIES REGISTER_ROWS
#else
#define QUERIES TILE
#endif

/* ---- activations ---- */

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
INLINE float hyperbolic_tangent(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

/* max(x, 0) - a P(-a), a = |x|, of the normal distribution P: a polynomial of 0.375 a - 1.0625, fitted to where a times its
 * error is largest, that is 0 at 5.5 and stands for 0 beyond. Within 4e-7, near 0 within 4e-7 x. */
INLINE float gelu(float x) {
    float size = fabsf(x);
    size = size < 5.5f ? size : 5.5f;
    float t = multiply_add(size, 0.375f, -1.0625f), sum = 0.00123329542f;
    sum = multiply_add(sum, t, -0.00424102228f);
    sum = multiply_add(sum, t, -0.00285668019f);
    sum = multiply_add(sum, t, 0.0240232218f);
    sum = multiply_add(sum, t, -0.0145414323f);
    sum = multiply_add(sum, t, -0.0485877767f);
    sum = multiply_add(sum, t, 0.0786769986f);
    sum = multiply_add(sum, t, 0.00491406396f);
    sum = multiply_add(sum, t, -0.12853089f);
    sum = multiply_add(sum, t, 0.142550141f);
    sum = multiply_add(sum, t, -0.0082439119f);
    sum = multiply_add(sum, t, -0.156307325f);
    sum = multiply_add(sum, t, 0.216272205f);
    sum = multiply_add(sum, t, -0.160042852f);
    sum = multiply_add(sum, t, 0.0725952461f);
    sum = multiply_add(sum, t, -0.0192165375f);
    sum = multiply_add(sum, t, 0.00230325758f);
    return multiply_add(-size, sum, x > 0 ? x : 0);
}

INLINE float activation_of(int kind, float x) {
    switch (kind) {
        case RELU: return x > 0 ? x : 0;
        case GELU: return gelu(x);
        case GELU_TANH: return 0.5f * x * (1.0f + hyperbolic_tangent(0.79788456f * (x + 0.044715f * x * x * x)));
        case SILU: return x * sigmoid(x);
        case TANH: return hyperbolic_tangent(x);
        case QUICK_GELU: return x * sigmoid(1.702f * x);
        case SQUARED_RELU: return x > 0 ? x * x : 0;
        case RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
        case LEAKY_RELU: return x > 0 ? x : 0.01f * x;
        case SIGMOID: return sigmoid(x);
        default: return x;
    }
}

/* The kind is a constant inside each case, so that every loop is vectorized. */
#define EACH_ACTIVATION(DO) \
    switch (activation) { \
        case RELU: DO(RELU); break; \
        case GELU: DO(GELU); break; \
        case GELU_TANH: DO(GELU_TANH); break; \
        case SILU: DO(SILU); break; \
        case TANH: DO(TANH); break; \
        case QUICK_GELU: DO(QUICK_GELU); break; \
        case SQUARED_RELU: DO(SQUARED_RELU); break; \
        case RELU6: DO(RELU6); break; \
        case LEAKY_RELU: DO(LEAKY_RELU); break; \
        case SIGMOID: DO(SIGMOID); break; \
        default: DO(IDENTITY); \
    }

static __attribute__((noinline)) void activate(int activation, float *values, int64_t count) {
    if (activation == IDENTITY) return;
#define ALL(KIND) _Pragma("omp simd") for (int64_t i = 0; i < count; i++) values[i] = activation_of(KIND, values[i])
    EACH_ACTIVATION(ALL)
}

static void gate(int activation, float *values, int64_t width) {
    float *up = values + width;
#define BOTH(KIND) \
    _Pragma("omp simd") for (int64_t i = 0; i < width; i++) values[i] = activation_of(KIND, values[i]) * up[i]
    EACH_ACTIVATION(BOTH)
}

INLINE float dot(const float *left, const float *right, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += left[i] * right[i];
    return sum;
}

/* ---- norms, rotation, attention ---- */

static void norm(int kind, const float *from, float *to, int64_t width, const float *gain, const float *bias,
                 float eps) {
    float mean = 0, square = 0;
    if (kind == LAYER_NORM) {
#pragma omp simd reduction(+ : mean)
        for (int64_t i = 0; i < width; i++) mean += from[i];
        mean /= (float)width;
    }
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < width; i++) square += (from[i] - mean) * (from[i] - mean);
    float factor = 1.0f / sqrtf(square / (float)width + eps);
#pragma omp simd
    for (int64_t i = 0; i < width; i++)
        to[i] = (from[i] - mean) * factor * (gain ? gain[i] : 1.0f) + (bias ? bias[i] : 0.0f);
}

/* Turn the first `width` values of each head. `turns`: width / 2 cosines, then as many sines. */
static void rotate(float *heads, int64_t count, int64_t head, int64_t width, int neighbours, const float *turns) {
    int64_t half = width / 2, step = neighbours ? 2 : 1, away = neighbours ? 1 : half;
    for (float *end = heads + count * head; heads < end; heads += head)
        for (int64_t i = 0; i < half; i++) {
            float *first = heads + i * step, *second = first + away, x = *first, y = *second;
            *first = x * turns[i] - y * turns[half + i];
            *second = y * turns[i] + x * turns[half + i];
        }
}

/* The vector of the distance between a key and a query. */
INLINE const float *by_distance(const float *table, int64_t distance, int64_t reach, int64_t head) {
    return table + (distance < reach ? distance : reach - 1) * head;
}

/* Add what relative vectors give to the scores of a query head. `keys`: those of the row, from its first block on. */
static void add_relative(const Relative *r, const float *query, const void *keys, int stored, int64_t head_number, int64_t head,
                         int64_t first, int64_t count, float *row) {
    const float *table = r->keys + (r->tables > 1 ? head_number * r->reach * head : 0);
    for (int64_t t = 0; t < count; t++) {
        const float *vector = by_distance(table, count - 1 - t, r->reach, head);
        float sum = dot(query, vector, head);
        if (r->meets_key) {
            for (int64_t e = 0; e < head; e++) sum += read_number(keys, key_at(first + t, e, head, stored), stored) * vector[e];
        }
        row[t] += r->scale * sum;
    }
}

/* Turn the products of a query with the keys first..first + count into what they weigh, but for a factor, which it returns;
 * what sees nothing gets zeros. `keys`: those of the row, from its first block on. */
static float weigh_keys(const Attention *a, const float *query, const void *keys, int64_t head_number, int64_t first,
                        int64_t count, float *row) {
    float sum = 0;
#pragma omp simd
    for (int64_t t = 0; t < count; t++) row[t] *= a->scale;
    if (a->bias) {
        const float *bias = a->bias + head_number * a->reach;
        for (int64_t t = 0; t < count; t++) {
            int64_t distance = count - 1 - t;
            row[t] += bias[distance < a->reach ? distance : a->reach - 1];
        }
    }
    if (a->relative) add_relative(a->relative, query, keys, a->stored, head_number, a->head, first, count, row);
    if (a->seen)
        for (int64_t t = 0; t < count; t++)
            if (!a->seen[(first + count - 1) * a->reach + first + t]) row[t] = -INFINITY;
    float largest = find_largest(row, count);
    int nothing = largest == -INFINITY;
    if (nothing) largest = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t t = 0; t < count; t++) {
        row[t] = exponential(row[t] - largest);
        sum += row[t];
    }
    return nothing ? 0 : 1.0f / sum;
}

/* Make log probabilities of scores, in place. Sums end with a part, so that their errors stay small. */
static void log_softmax(float *scores, int64_t count) {
    float largest = find_largest(scores, count), total = 0;
    for (int64_t k = 0; k < count; k += DEEP) {
        int64_t end = count - k < DEEP ? count : k + DEEP;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = k; i < end; i++) sum += exponential(scores[i] - largest);
        total += sum;
    }
    total = logf(total);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) scores[i] = scores[i] - largest - total;
}

/* Queries that read the same keys: tokens of a row in their order, by one head; or heads of one token. */
typedef struct {
    const float *query; /* of the first */
    float *to;
    int64_t next_query, next_to; /* from one to the next */
    int64_t head, next_head, place, next_place;
} Queries;

/* Turn the products of query r with the keys start..end into what they weigh, but for a factor, which it returns. `row`: where
 * that of the key at place 0 would be. */
static float weigh_query(const Attention *a, const Queries *q, int64_t r, const void *keys, int64_t start, int64_t end,
                         float *row) {
    int64_t place = q->place + r * q->next_place, first = a->window && place >= a->window ? place - a->window + 1 : 0;
    float factor = weigh_keys(a, q->query + r * q->next_query, keys, q->head + r * q->next_head, first, place + 1 - first,
                              row + first);
    memset(row + start, 0, (size_t)(first - start) * sizeof(float));
    memset(row + place + 1, 0, (size_t)(end - place - 1) * sizeof(float));
    return factor;
}

/* Panels that are met at once where so many are `left`, `side` at most. */
INLINE int64_t panels_of(int64_t left, int64_t side) { return left >= side ? side : left > 1 && side > 2 ? 2 : 1; }

/* Attention of R queries. `scores`: room for R rows of `capacity` numbers. Each query's sums are the same in any company:
 * keys that it does not see weigh nothing. */
static void attend_queries(const Attention *a, Queries q, int64_t R, const void *keys, const void *values, float *scores) {
    int64_t head = a->head, last = q.place + (R - 1) * q.next_place, stride = a->capacity;
    int64_t earliest = a->window && q.place >= a->window ? q.place - a->window + 1 : 0;
    int64_t start = earliest / KEYS_AT_ONCE * KEYS_AT_ONCE, all = last + 1 - start;
    int64_t side = R == 1 ? MOST_SIDES : side_by_side(R); /* sums of one query wait for each other: four panels take turns */
    float factors[TILE];
    for (int64_t t = 0, panels; t < all; t += panels * KEYS_AT_ONCE) {
        const void *block = number_at(keys, (start + t) * head, a->stored);
        panels = panels_of((all - t + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE, side);
#define SCORES(R, P, format) \
    multiply_numbers(q.query, q.next_query, block, PANEL, head * PANEL, head, scores + t, stride, format, R, P)
#define SCORE_OF(R, format) \
    if ((R) == 1 && panels == MOST_SIDES) SCORES(R, MOST_SIDES, format); \
    else if (panels == 2) SCORES(R, 2, format); \
    else SCORES(R, 1, format)
#define SCORE(R) SCORE_OF(R, FLOAT32)
#define SCORE_PAIRS(R) SCORE_OF(R, BFLOAT16)
        if (a->stored == BFLOAT16) EACH_SIZE(R, SCORE_PAIRS)
        else EACH_SIZE(R, SCORE)
    }
    for (int64_t r = 0; r < R; r++) factors[r] = weigh_query(a, &q, r, keys, start, last + 1, scores + r * stride - start);
    values = number_at(values, start * head, a->stored);
    int64_t e = 0;
    for (int64_t panels; e + PANEL <= head; e += panels * PANEL) {
        float mixed[TILE * 2 * PANEL];
        panels = panels_of((head - e) / PANEL, side);
        const void *from = number_at(values, value_at(0, e, head, a->stored), a->stored);
        const int64_t apart = value_at(0, PANEL, head, a->stored);
#define MIXED(R, P, format) multiply_numbers(scores, stride, from, head, apart, all, mixed, 2 * PANEL, format, R, P)
#define MIX_OF(R, format) \
    if ((R) == 1 && panels == MOST_SIDES) MIXED(R, MOST_SIDES, format); \
    else if (panels == 2) MIXED(R, 2, format); \
    else MIXED(R, 1, format)
#define MIX(R) MIX_OF(R, FLOAT32)
#define MIX_PAIRS(R) MIX_OF(R, BFLOAT16)
        if (a->stored == BFLOAT16) EACH_SIZE(R, MIX_PAIRS)
        else EACH_SIZE(R, MIX)
        for (int64_t r = 0; r < R; r++)
            for (int64_t i = 0; i < panels * PANEL; i++) q.to[r * q.next_to + e + i] = mixed[r * 2 * PANEL + i] * factors[r];
    }
    for (; e < head; e++)
        for (int64_t r = 0; r < R; r++) {
            float sum = 0;
            for (int64_t t = 0; t < all; t++)
                sum += scores[r * stride + t] * read_number(values, value_at(t, e, head, a->stored), a->stored);
            q.to[r * q.next_to + e] = sum * factors[r];
        }
    if (!a->relative || !a->relative->values) return;
    for (int64_t r = 0; r < R; r++) {
        float *to = q.to + r * q.next_to;
        int64_t place = q.place + r * q.next_place;
        for (int64_t t = start; t <= place; t++) {
            float weight = scores[r * stride + t - start] * factors[r];
            const float *v = by_distance(a->relative->values, place - t, a->relative->reach, head);
#pragma omp simd
            for (int64_t i = 0; i < head; i++) to[i] += weight * v[i];
        }
    }
}

#ifdef __AMX_TILE__
#define WIDEST_HEAD 256 /* of which 16 queries and a step of values have room on the stack */
INLINE int by_registers(const Attention *a) {
    return a->stored == BFLOAT16 && a->head % SPLIT == 0 && a->head <= WIDEST_HEAD && !(a->relative && a->relative->values);
}

/* The same by AMX, of stored numbers of bfloat16. A query's sums go by steps of 32 keys, wherever it begins. `scores`: room for
 * R rows of `capacity` numbers, rounded up to 32. */
static void attend_by_registers(const Attention *a, Queries q, int64_t R, const void *keys, const void *values, float *scores) {
    _Alignas(64) float queries[REGISTER_ROWS * WIDEST_HEAD], part[REGISTER_ROWS * 4 * PANEL];
    _Alignas(64) uint16_t rest[SPLIT * WIDEST_HEAD]; /* the values of the last step, where that is not whole */
    float factors[REGISTER_ROWS];
    int64_t head = a->head, last = q.place + (R - 1) * q.next_place, stride = split_up(a->capacity);
    int64_t start = (a->window && q.place >= a->window ? q.place - a->window + 1 : 0) / SPLIT * SPLIT, all = last + 1 - start;
    int64_t whole = all / SPLIT * SPLIT;
    shape_registers(REGISTER_BYTES, R);
    for (int64_t r = 0; r < R; r++)
        for (int64_t e = 0; e < head; e += SPLIT) split_vector(q.query + r * q.next_query + e, SPLIT, queries + r * head + e);
    for (int64_t t = 0; t < all; t += 4 * PANEL) {
        const Pairs panels = {number_at(keys, (start + t) * head, BFLOAT16), REGISTER_BYTES, SPLIT * PANEL * 2, PANEL * head * 2};
        begin_sums();
#define MEET_KEYS(P) \
    add_split(queries, head, panels, head, 0, P); \
    store_sums(scores + t, stride, P)
        EACH_PANELS((all - t + PANEL - 1) / PANEL, MEET_KEYS)
    }
    for (int64_t r = 0; r < R; r++) {
        float *row = scores + r * stride;
        factors[r] = weigh_query(a, &q, r, keys, start, start + split_up(all), row - start);
        for (int64_t t = 0; t < all; t += SPLIT) split_vector(row + t, SPLIT, row + t);
    }
    values = number_at(values, start * head, BFLOAT16);
    if (whole < all) {
        memset(rest, 0, (size_t)(SPLIT * head) * sizeof *rest);
        memcpy(rest, number_at(values, whole * head, BFLOAT16), (size_t)((all - whole + 1) / 2 * 2 * head) * sizeof *rest);
        for (int64_t e = 0; all % 2 && e < head; e++) rest[value_at(all - whole, e, head, BFLOAT16)] = 0; /* nobody wrote it */
    }
    for (int64_t e = 0; e < head; e += 4 * PANEL) {
        int64_t width = head - e < 4 * PANEL ? head - e : 4 * PANEL;
        Pairs panels = {number_at(values, 2 * e, BFLOAT16), head * 4, SPLIT * head * 2, PANEL * 4}, few = panels;
        few.at = (const char *)(rest + 2 * e);
        begin_sums();
#define MIX_VALUES(P) \
    add_split(scores, stride, panels, whole, 0, P); \
    if (whole < all) add_split(scores + whole, stride, few, SPLIT, 0, P); \
    store_sums(part, 4 * PANEL, P)
        EACH_PANELS(width / PANEL, MIX_VALUES)
        for (int64_t r = 0; r < R; r++)
#pragma omp simd
            for (int64_t i = 0; i < width; i++) q.to[r * q.next_to + e + i] = part[r * 4 * PANEL + i] * factors[r];
    }
    _tile_release();
}
#endif

/* Attention of some queries, as many at once as registers take. */
static void attend_some(const Attention *a, Queries q, int64_t count, const void *keys, const void *values, float *scores) {
    int64_t most = TILE;
#ifdef __AMX_TILE__
    if (by_registers(a)) most = REGISTER_ROWS;
#endif
    for (int64_t some; count > 0; count -= some) {
        some = count < most ? count : most;
#ifdef __AMX_TILE__
        if (by_registers(a)) attend_by_registers(a, q, some, keys, values, scores);
        else
#endif
        attend_queries(a, q, some, keys, values, scores);
        q.query += some * q.next_query, q.to += some * q.next_to, q.head += some * q.next_head, q.place += some * q.next_place;
    }
}

/* Attention of some tokens of one row, one place after the other, or of rows that read one source; by the heads that share
 * one key head. `scores`: room for TOGETHER rows of `capacity` numbers, rounded up to 32. */
static void attend(const Attention *a, int64_t token, int64_t tokens, int64_t group, float *scores) {
    int64_t head = a->head, sharing = a->heads / a->groups, row = a->rows[token], place = a->places[token];
    int64_t cache = (row * a->groups + group) * a->capacity * head;
    if (a->sources) { /* all of a source, of whatever length */
        int64_t source = a->sources[row], length = a->lengths[source];
        int64_t capacity = (length + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE * KEYS_AT_ONCE;
        place = length - 1;
        cache = (a->starts[source] * a->groups + group * capacity) * head;
    }
    Queries q = {
        .query = a->query + token * a->stride + group * sharing * head,
        .to = a->to + token * a->to_stride + group * sharing * head, .head = group * sharing, .place = place};
    const void *keys = number_at(a->keys, cache, a->stored), *values = number_at(a->values, cache, a->stored);
    if (tokens == 1) {
        q.next_query = q.next_to = head, q.next_head = 1;
        attend_some(a, q, sharing, keys, values, scores);
        return;
    }
    q.next_query = a->stride, q.next_to = a->to_stride, q.next_place = a->sources ? 0 : 1;
    for (int64_t h = 0; h < sharing; h++, q.query += head, q.to += head, q.head++)
        attend_some(a, q, tokens, keys, values, scores);
}

static void narrow(const float *from, int64_t count, uint16_t *to) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] = narrow_bfloat16(from[i]);
}

/* ---- weights ---- */

/* The whole number that is stored for a weight. */
INLINE int32_t read_code(const Matrix *m, int64_t row, int64_t k) {
    if (m->format == INT8) return ((const uint8_t *)m->codes)[row * m->inputs + k] - 128;
    return (((const uint8_t *)m->codes)[row * ((m->inputs + 1) / 2) + k / 2] >> (k % 2) * 4 & 15) - 8;
}

INLINE int64_t find_group(const Matrix *m, int64_t row, int64_t k) {
    return row * ((m->inputs + m->group - 1) / m->group) + k / m->group;
}

INLINE float read_scale(const Matrix *m, int64_t row, int64_t k) {
    return read_number(m->scales, find_group(m, row, k), m->scale_format);
}

/* The number that a weight stands for. */
static float weight(const Matrix *m, int64_t row, int64_t k) {
    if (m->format != INT8 && m->format != INT4) return read_number(m->codes, row * m->inputs + k, m->format);
    float value = (float)read_code(m, row, k) * read_scale(m, row, k);
    return m->shifts ? value + m->shifts[find_group(m, row, k)] : value;
}

#define NAME_OF_(path) #path
#define NAME_OF(path) NAME_OF_(path)
#define TABLE_(path) kernels_##path
#define TABLE(path) TABLE_(path)
#define ROWS_(path) rows_##path
#define ROWS(path) ROWS_(path)
extern const RowKernels ROWS(PATH);
const Kernels TABLE(PATH) = {NAME_OF(PATH), weight, norm, activate, gate, attend, rotate, log_softmax, narrow, &ROWS(PATH), QUERIES};
