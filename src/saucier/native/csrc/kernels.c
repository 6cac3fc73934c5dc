/* The inner loops. This file is compiled once for each instruction set (-DPATH=...): plain C that defines every kernel,
 * and next to it, where the set has registers of many floats, the matrix products by these.
 * Letters: R rows of a tile, B tokens of a tile; k counts inputs. */
#include <math.h>
#include <string.h>
#include "numbers.h"

#define DEEP 512 /* inputs at a time where there are many tokens */

/* ---- activations ---- */

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
INLINE float hyperbolic_tangent(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

/* Abramowitz and Stegun 1964, eq 7.1.26: within 1.5e-7. */
INLINE float error_function(float x) {
    float size = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.3275911f * size);
    float sum = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    float value = 1.0f - sum * exponential(-size * size);
    return x < 0 ? -value : value;
}

INLINE float activation_of(int kind, float x) {
    switch (kind) {
        case RELU: return x > 0 ? x : 0;
        case GELU: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
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

/* Products of a query with the KEYS_AT_ONCE keys of a block, which lie value by value: no sums across a register. */
INLINE void score_block(const float *query, const float *block, int64_t head, float scale, float *to) {
    float sum[4][KEYS_AT_ONCE] = {{0}};
    int64_t e = 0;
    for (; e + 4 <= head; e += 4)
        for (int u = 0; u < 4; u++)
#pragma omp simd
            for (int k = 0; k < KEYS_AT_ONCE; k++) sum[u][k] += query[e + u] * block[(e + u) * KEYS_AT_ONCE + k];
    for (; e < head; e++)
        for (int k = 0; k < KEYS_AT_ONCE; k++) sum[0][k] += query[e] * block[e * KEYS_AT_ONCE + k];
    for (int k = 0; k < KEYS_AT_ONCE; k++) to[k] = scale * (sum[0][k] + sum[1][k] + (sum[2][k] + sum[3][k]));
}

/* The vector of the distance between a key and a query. */
INLINE const float *by_distance(const float *table, int64_t distance, int64_t reach, int64_t head) {
    return table + (distance < reach ? distance : reach - 1) * head;
}

/* Add what relative vectors give to the scores of a query head. `keys`: those of the row, from its first block on. */
static void add_relative(const Relative *r, const float *query, const float *keys, int64_t head_number, int64_t head,
                         int64_t first, int64_t count, float *row) {
    const float *table = r->keys + (r->tables > 1 ? head_number * r->reach * head : 0);
    for (int64_t t = 0; t < count; t++) {
        const float *vector = by_distance(table, count - 1 - t, r->reach, head);
        float sum = dot(query, vector, head);
        if (r->meets_key) {
            const float *key = keys + (first + t) / KEYS_AT_ONCE * KEYS_AT_ONCE * head + (first + t) % KEYS_AT_ONCE;
            for (int64_t e = 0; e < head; e++) sum += key[e * KEYS_AT_ONCE] * vector[e];
        }
        row[t] += r->scale * sum;
    }
}

/* Attention of the query heads that share one key head. `scores`: room for (heads / groups) * capacity numbers. */
static void attend(const Attention *a, int64_t token, int64_t group, float *scores) {
    int64_t head = a->head, sharing = a->heads / a->groups, row_number = a->rows[token], place = a->places[token];
    int64_t capacity = a->capacity, cache = (row_number * a->groups + group) * capacity * head;
    if (a->sources) { /* all of a source, of whatever length */
        int64_t source = a->sources[row_number];
        place = a->lengths[source] - 1;
        capacity = (place + KEYS_AT_ONCE) / KEYS_AT_ONCE * KEYS_AT_ONCE;
        cache = (a->starts[source] * a->groups + group * capacity) * head;
    }
    int64_t first = a->window && place >= a->window ? place - a->window + 1 : 0, count = place - first + 1;
    int64_t start = first / KEYS_AT_ONCE * KEYS_AT_ONCE; /* of the block that holds the first key */
    const float *keys = a->keys + cache, *values = a->values + cache + first * head;
    const float *query = a->query + token * a->stride + group * sharing * head;
    float *to = a->to + token * a->to_stride + group * sharing * head;
    for (int64_t t = start; t <= place; t += KEYS_AT_ONCE)
        for (int64_t h = 0; h < sharing; h++)
            score_block(query + h * head, keys + t * head, head, a->scale, scores + h * a->capacity + t - start);
    for (int64_t h = 0; h < sharing; h++) {
        float *row = scores + h * a->capacity + first - start, largest = -INFINITY, sum = 0;
        if (a->bias) {
            const float *bias = a->bias + (group * sharing + h) * a->reach;
            for (int64_t t = 0; t < count; t++) {
                int64_t distance = count - 1 - t;
                row[t] += bias[distance < a->reach ? distance : a->reach - 1];
            }
        }
        if (a->relative) add_relative(a->relative, query + h * head, keys, group * sharing + h, head, first, count, row);
        if (a->seen)
            for (int64_t t = 0; t < count; t++)
                if (!a->seen[place * a->reach + first + t]) row[t] = -INFINITY;
#pragma omp simd reduction(max : largest)
        for (int64_t t = 0; t < count; t++) largest = row[t] > largest ? row[t] : largest;
        int nothing = largest == -INFINITY; /* what sees nothing gets zeros */
        if (nothing) largest = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t t = 0; t < count; t++) {
            row[t] = exponential(row[t] - largest);
            sum += row[t];
        }
        float factor = nothing ? 0 : 1.0f / sum;
        float *mixed = to + h * head;
        memset(mixed, 0, (size_t)head * sizeof(float));
        int64_t t = 0;
        for (; t + 4 <= count; t += 4) { /* four keys at a time: fewer loads of what is summed */
            const float *v = values + t * head;
            float w0 = row[t] * factor, w1 = row[t + 1] * factor, w2 = row[t + 2] * factor, w3 = row[t + 3] * factor;
#pragma omp simd
            for (int64_t e = 0; e < head; e++)
                mixed[e] += w0 * v[e] + w1 * v[head + e] + w2 * v[2 * head + e] + w3 * v[3 * head + e];
        }
        for (; t < count; t++) {
            float weight = row[t] * factor;
            const float *v = values + t * head;
#pragma omp simd
            for (int64_t e = 0; e < head; e++) mixed[e] += weight * v[e];
        }
        for (t = 0; a->relative && a->relative->values && t < count; t++) {
            float weight = row[t] * factor;
            const float *v = by_distance(a->relative->values, count - 1 - t, a->relative->reach, head);
#pragma omp simd
            for (int64_t e = 0; e < head; e++) mixed[e] += weight * v[e];
        }
    }
}

/* ---- products ---- */

/* The whole number that is stored for a weight. */
INLINE int32_t read_code(const Matrix *m, int64_t row, int64_t k) {
    if (m->format == INT8) return ((const uint8_t *)m->codes)[row * m->inputs + k] - 128;
    return (((const uint8_t *)m->codes)[row * ((m->inputs + 1) / 2) + k / 2] >> (k % 2) * 4 & 15) - 8;
}

INLINE float read_scale(const Matrix *m, int64_t row, int64_t k) {
    return read_number(m->scales, row * ((m->inputs + m->group - 1) / m->group) + k / m->group, m->scale_format);
}

/* The number that a weight stands for. */
static float weight(const Matrix *m, int64_t row, int64_t k) {
    if (m->format != INT8 && m->format != INT4) return read_number(m->codes, row * m->inputs + k, m->format);
    return (float)read_code(m, row, k) * read_scale(m, row, k);
}

#ifdef WIDTH
#define TOGETHER (WIDTH == 16 ? 6 : 3) /* tokens whose sums with 4 rows the registers hold */

/* Rows are short streams, which processors do not foresee: ask for the same place three tiles ahead. */
#define FETCH_NEXT(from, bytes) _mm_prefetch((const char *)(from) + 2 * (bytes), _MM_HINT_T0)

/* Products of R rows with B tokens, a register of inputs at a time. */
INLINE void add_products(const char *codes, int64_t apart, const float *x, int64_t stride, int64_t count,
                         Vector sum[4][TOGETHER], const int format, const int fetches, const int R, const int B) {
    const int64_t size = format == FLOAT32 ? 4 : 2;
    for (int64_t k = 0; k < count; k += WIDTH) {
        Vector read[TOGETHER];
        for (int b = 0; b < B; b++) read[b] = load(x + b * stride + k);
        for (int r = 0; r < R; r++) {
            if (fetches) FETCH_NEXT(codes + (k * R + r * WIDTH) * size, R * apart);
            Vector weight = load_numbers(codes + r * apart, k, format);
            for (int b = 0; b < B; b++) sum[r][b] = add_product(weight, read[b], sum[r][b]);
        }
    }
}

/* R rows for all tokens, as many tokens at a time as the registers hold. Where there are more, some inputs at a time, which
 * stay in the first cache, widened once; the sums wait, so that their order is the same. */
INLINE void multiply_some(const Product *p, int64_t row, float *to, int64_t stride, const int format, const int R) {
    const Matrix *m = p->matrix;
    const int64_t inputs = m->inputs, whole = inputs / WIDTH * WIDTH, size = format == FLOAT32 ? 4 : 2;
    const int many = p->n > (format == FLOAT32 ? TOGETHER : 9); /* widening pays for some ten tokens */
    const char *codes = (const char *)m->codes + row * inputs * size;
    Vector sums[MOST_TOKENS / TOGETHER][4][TOGETHER];
    float wide[4 * DEEP];
    for (int64_t k = 0; k == 0 || k < whole; k += many ? DEEP : inputs) {
        int64_t count = many && whole - k > DEEP ? DEEP : whole - k, apart = inputs * size;
        const char *from = codes + k * size;
        if (many && format == BFLOAT16) {
            for (int r = 0; r < R; r++)
                for (int64_t i = 0; i < count; i += WIDTH) {
                    FETCH_NEXT(from + r * apart + i * size, R * apart);
                    store(wide + r * DEEP + i, load_numbers(from + r * apart, i, format));
                }
            from = (const char *)wide, apart = DEEP * sizeof(float);
        }
        for (int64_t i = 0; i < p->n; i += TOGETHER) {
            const float *x = p->values + i * p->from_stride + k;
            Vector sum[4][TOGETHER], (*waiting)[TOGETHER] = sums[i / TOGETHER];
            for (int r = 0; r < R; r++)
                for (int b = 0; b < TOGETHER; b++) sum[r][b] = k ? waiting[r][b] : no_numbers();
#define ADD(B) \
    if (!many) add_products(from, apart, x, p->from_stride, count, sum, format, 1, R, B); \
    else if (format == FLOAT32 && i == 0) add_products(from, apart, x, p->from_stride, count, sum, FLOAT32, 1, R, B); \
    else add_products(from, apart, x, p->from_stride, count, sum, FLOAT32, 0, R, B)
            switch (p->n - i) {
                case 1: ADD(1); break;
                case 2: ADD(2); break;
#if WIDTH == 16
                case 3: ADD(3); break;
                case 4: ADD(4); break;
                case 5: ADD(5); break;
#endif
                default: ADD(TOGETHER);
            }
            for (int r = 0; r < R; r++)
                for (int b = 0; b < TOGETHER; b++) waiting[r][b] = sum[r][b];
        }
    }
    for (int64_t i = 0; i < p->n; i++)
        for (int r = 0; r < R; r++) {
            float total = total_of(sums[i / TOGETHER][r][i % TOGETHER]);
            for (int64_t rest = whole; rest < inputs; rest++)
                total += read_number(codes + r * inputs * size, rest, format) * p->values[i * p->from_stride + rest];
            to[i * stride + r] = total;
        }
}

#define MULTIPLY_ALL(R) \
    for (; row + R <= end; row += R, to += R) \
        if (p->matrix->format == FLOAT32) multiply_some(p, row, to, stride, FLOAT32, R); \
        else multiply_some(p, row, to, stride, BFLOAT16, R);
static void multiply_rows(const Product *p, int64_t row, int64_t end, float *to, int64_t stride) {
    MULTIPLY_ALL(4)
    MULTIPLY_ALL(1)
}
#else
static void multiply_rows(const Product *p, int64_t row, int64_t end, float *to, int64_t stride) {
    const Matrix *m = p->matrix;
    for (; row < end; row++, to++)
        for (int64_t i = 0; i < p->n; i++) {
            const float *values = p->values + i * p->from_stride;
            float sum = 0;
            if (m->format == FLOAT32) sum = dot((const float *)m->codes + row * m->inputs, values, m->inputs);
            else {
                const uint16_t *codes = (const uint16_t *)m->codes + row * m->inputs;
#pragma omp simd reduction(+ : sum)
                for (int64_t k = 0; k < m->inputs; k++) sum += widen_bfloat16(codes[k]) * values[k];
            }
            to[i * stride] = sum;
        }
}
#endif

/* Rows begin..end of a product for all its tokens, with all that follows while they are in the cache. */
#define AT_ONCE 64
static void product(const Product *p, int64_t begin, int64_t end) {
    float found[AT_ONCE * MOST_TOKENS];
    for (int64_t row = begin; row < end; row += AT_ONCE) {
        int64_t rows = end - row < AT_ONCE ? end - row : AT_ONCE;
        multiply_rows(p, row, row + rows, found, AT_ONCE);
        for (int64_t i = 0; i < p->n; i++) {
            float *from = found + i * AT_ONCE, *to = p->to + i * p->stride + row;
            if (p->bias)
                for (int64_t r = 0; r < rows; r++) from[r] += p->bias[row + r];
            activate(p->activation, from, rows);
            if (p->adds)
                for (int64_t r = 0; r < rows; r++) to[r] += from[r];
            else memcpy(to, from, (size_t)rows * sizeof(float));
        }
    }
}

#define NAME_OF_(path) #path
#define NAME_OF(path) NAME_OF_(path)
#define TABLE_(path) kernels_##path
#define TABLE(path) TABLE_(path)
#define ROWS_(path) rows_##path
#define ROWS(path) ROWS_(path)
extern const RowKernels ROWS(PATH);
const Kernels TABLE(PATH) = {NAME_OF(PATH), weight, product, norm, activate, gate, attend, rotate, &ROWS(PATH)};
