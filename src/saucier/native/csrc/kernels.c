/* The inner loops. This file is compiled once for each instruction set (-DPATH=...): plain C that defines every kernel,
 * and next to it, where the set has AVX2, the matrix products with intrinsics.
 * Letters: R rows of a tile, B tokens of a tile; k counts inputs. */
#include <math.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "numbers.h"

#define UNIT 32   /* inputs that are rounded and multiplied together */
#define WHOLE 128 /* inputs of a block where a row has one scale: loops over them have a known length */

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

/* Round every vector, block by block, to codes of -127..127; what fills up the last unit is zero. INT4 reads the codes
 * of a unit in the order of its half bytes: those at even places, then those at odd ones. */
static void round_input(const Matrix *matrix, Input *in) {
    int64_t inputs = matrix->inputs, halves = matrix->format == INT4;
    for (int64_t i = 0; i < in->n; i++) {
        const float *from = in->values + i * in->stride;
        int8_t *codes = in->codes + i * in->unit_stride;
        float *scales = in->scales + i * in->block_stride, *sums = in->sums + i * in->block_stride;
        memset(scales, 0, (size_t)in->block_stride * sizeof(float));
        memset(sums, 0, (size_t)in->block_stride * sizeof(float));
        for (int64_t start = 0, block = 0; start < inputs; start += in->block, block++) {
            int64_t count = inputs - start < in->block ? inputs - start : in->block;
            float largest = 0;
#pragma omp simd reduction(max : largest)
            for (int64_t k = 0; k < count; k++) {
                float size = fabsf(from[start + k]);
                largest = size > largest ? size : largest;
            }
            float scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0;
            int32_t total = 0;
            for (int64_t unit = 0; unit < count; unit += UNIT) {
                int8_t rounded[UNIT] = {0}, *to = codes + start + unit;
                int64_t filled = count - unit < UNIT ? count - unit : UNIT;
                for (int64_t k = 0; k < filled; k++) {
                    float value = from[start + unit + k] * inverse;
                    rounded[k] = (int8_t)(value + (value < 0 ? -0.5f : 0.5f));
                }
                for (int64_t k = 0; k < UNIT; k++) {
                    total += rounded[k];
                    to[halves ? k / 2 + (k % 2) * (UNIT / 2) : k] = rounded[k];
                }
            }
            scales[block] = scale;
            sums[block] = (float)total * scale;
        }
    }
}

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

/* What defines a product, for matrices of any shape: one row and one token. */
static float multiply(const Matrix *m, const Input *in, int64_t row, int64_t i) {
    const float *values = in->values + i * in->stride;
    if (m->format == FLOAT32) return dot((const float *)m->codes + row * m->inputs, values, m->inputs);
    float sum = 0;
    if (m->format == BFLOAT16) {
        const uint16_t *codes = (const uint16_t *)m->codes + row * m->inputs;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < m->inputs; k++) sum += widen_bfloat16(codes[k]) * values[k];
        return sum;
    }
    const int8_t *x = in->codes + i * in->unit_stride;
    for (int64_t start = 0, block = 0; start < m->inputs; start += in->block, block++) {
        int64_t end = m->inputs - start < in->block ? m->inputs : start + in->block;
        int32_t total = 0;
        for (int64_t k = start; k < end; k++) {
            int64_t half = k / UNIT * UNIT + k % UNIT / 2 + (k % 2) * (UNIT / 2); /* see round_input */
            total += read_code(m, row, k) * x[m->format == INT4 ? half : k];
        }
        sum += (float)total * (read_scale(m, row, start) * in->scales[i * in->block_stride + block]);
    }
    return sum;
}

#ifdef __AVX2__
INLINE float total_of(__m256 x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

INLINE __m256 load_eight(const void *from, int64_t place, int format) {
    if (format == FLOAT32) return _mm256_loadu_ps((const float *)from + place);
    __m128i bits = _mm_loadu_si128((const __m128i *)((const uint16_t *)from + place));
    if (format == FLOAT16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* Rows are short streams, which processors do not foresee: ask for the same place three tiles ahead. */
#define FETCH_NEXT(from, bytes) _mm_prefetch((const char *)(from) + 3 * (bytes), _MM_HINT_T0)

/* A tile of R rows and B tokens of FLOAT32 or BFLOAT16. */
INLINE void multiply_floats(const Matrix *m, const Input *in, int64_t row, int64_t i, float *to, int64_t stride,
                            const int format, const int R, const int B) {
    __m256 sum[4][3];
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) sum[r][b] = _mm256_setzero_ps();
    int64_t inputs = m->inputs, k = 0, size = format == FLOAT32 ? 4 : 2;
    const char *codes = (const char *)m->codes + row * inputs * size;
    const float *x = in->values + i * in->stride;
    for (; k + 8 <= inputs; k += 8) {
        __m256 read[3];
        for (int b = 0; b < B; b++) read[b] = _mm256_loadu_ps(x + b * in->stride + k);
        for (int r = 0; r < R; r++) {
            FETCH_NEXT(codes + (r * inputs + k) * size, R * inputs * size);
            __m256 weight = load_eight(codes + r * inputs * size, k, format);
            for (int b = 0; b < B; b++) sum[r][b] = _mm256_fmadd_ps(weight, read[b], sum[r][b]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) {
            float total = total_of(sum[r][b]);
            for (int64_t rest = k; rest < inputs; rest++)
                total += read_number(codes + r * inputs * size, rest, format) * x[b * in->stride + rest];
            to[b * stride + r] = total;
        }
}

/* INT8: the signs of the activations go to the weights, since vpmaddubsw takes one side without signs: both sides are
 * at most 127, so that no pair of products is beyond 16 bits. */
INLINE void multiply_int8(const Matrix *m, const Input *in, int64_t row, int64_t i, float *to, int64_t stride,
                          const int whole, const int R, const int B) {
    const __m256i ones = _mm256_set1_epi16(1), offset = _mm256_set1_epi8((char)128);
    const int64_t step = whole ? WHOLE : in->block;
    int64_t inputs = m->inputs, groups = (inputs + m->group - 1) / m->group;
    const uint8_t *codes = (const uint8_t *)m->codes + row * inputs;
    const int8_t *x = in->codes + i * in->unit_stride;
    __m256 sum[4][3];
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) sum[r][b] = _mm256_setzero_ps();
    __m256 scale[4];
    for (int64_t start = 0, block = 0, group = 0, next = 0; start < inputs; start += step, block++) {
        int64_t end = !whole && inputs - start < step ? inputs : start + step;
        if (start == next) { /* blocks are whole parts of groups */
            for (int r = 0; r < R; r++)
                scale[r] = _mm256_set1_ps(read_number(m->scales, (row + r) * groups + group, m->scale_format));
            group++, next += m->group;
        }
        __m256i part[4][3];
        for (int r = 0; r < R; r++)
            for (int b = 0; b < B; b++) part[r][b] = _mm256_setzero_si256();
        for (int64_t k = start; k < end; k += UNIT) {
            __m256i read[3], size[3];
            for (int b = 0; b < B; b++) {
                read[b] = _mm256_loadu_si256((const __m256i *)(x + b * in->unit_stride + k));
                size[b] = _mm256_abs_epi8(read[b]);
            }
            for (int r = 0; r < R; r++) {
                const uint8_t *from = codes + r * inputs + k;
                FETCH_NEXT(from, R * inputs);
                __m256i weight = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)from), offset);
                for (int b = 0; b < B; b++) {
                    __m256i pairs = _mm256_maddubs_epi16(size[b], _mm256_sign_epi8(weight, read[b]));
                    part[r][b] = _mm256_add_epi32(part[r][b], _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        for (int b = 0; b < B; b++) {
            __m256 factor = _mm256_set1_ps(in->scales[(i + b) * in->block_stride + block]);
            for (int r = 0; r < R; r++)
                sum[r][b] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(part[r][b]), _mm256_mul_ps(scale[r], factor), sum[r][b]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) to[b * stride + r] = total_of(sum[r][b]);
}

INLINE __m256 load_scales(const Matrix *m, int64_t place, int64_t count) {
    if (count >= 8) return load_eight(m->scales, place, m->scale_format);
    float some[8] = {0};
    for (int64_t g = 0; g < count; g++) some[g] = read_number(m->scales, place + g, m->scale_format);
    return _mm256_loadu_ps(some);
}

/* INT4: the stored codes are 0..15, 8 too large; that is taken away at once for a group, by the sum of its
 * activations. Sums of products stay within 16 bits for groups of up to 256 (16 * 15 * 127 < 2^15). */
INLINE void multiply_int4(const Matrix *m, const Input *in, int64_t row, int64_t i, float *to, int64_t stride,
                          const int64_t group, const int R, const int B) {
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15), shifts = _mm256_setr_epi64x(0, 0, 4, 4);
    int64_t inputs = m->inputs, groups = (inputs + group - 1) / group;
    const uint8_t *codes = (const uint8_t *)m->codes + row * (inputs / 2);
    const int8_t *x = in->codes + i * in->unit_stride;
    __m256 sum[4][3], eights[4][3];
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) sum[r][b] = eights[r][b] = _mm256_setzero_ps();
    for (int64_t first = 0; first < groups; first += 8) {
        float factors[4][3][8];
        int64_t count = groups - first < 8 ? groups - first : 8;
        for (int r = 0; r < R; r++) {
            __m256 scale = load_scales(m, (row + r) * groups + first, count);
            for (int b = 0; b < B; b++) {
                int64_t place = (i + b) * in->block_stride + first;
                _mm256_storeu_ps(factors[r][b], _mm256_mul_ps(scale, _mm256_loadu_ps(in->scales + place)));
                eights[r][b] = _mm256_fmadd_ps(scale, _mm256_loadu_ps(in->sums + place), eights[r][b]);
            }
        }
        for (int64_t g = 0; g < count; g++) {
            int64_t start = (first + g) * group;
            int64_t end = group > UNIT && inputs - start < group ? inputs : start + group;
            for (int r = 0; r < R; r++) {
                __m256i part[3];
                for (int b = 0; b < B; b++) part[b] = _mm256_setzero_si256();
                for (int64_t k = start; k < end; k += UNIT) {
                    const uint8_t *from = codes + r * (inputs / 2) + k / 2;
                    if (k % 128 == 0) FETCH_NEXT(from, R * inputs / 2);
                    __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)from));
                    __m256i weight = _mm256_and_si256(_mm256_srlv_epi64(both, shifts), low);
                    for (int b = 0; b < B; b++)
                        part[b] = _mm256_add_epi16(part[b], _mm256_maddubs_epi16(weight, _mm256_loadu_si256(
                            (const __m256i *)(x + b * in->unit_stride + k))));
                }
                for (int b = 0; b < B; b++)
                    sum[r][b] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(part[b], ones)),
                                                _mm256_set1_ps(factors[r][b][g]), sum[r][b]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++)
            to[b * stride + r] = total_of(_mm256_fnmadd_ps(_mm256_set1_ps(8), eights[r][b], sum[r][b]));
}

#define MULTIPLY(R, B) \
    switch (m->format) { \
        case INT8: \
            if (in->block == WHOLE && m->inputs % WHOLE == 0) multiply_int8(m, in, row, i, at, stride, 1, R, B); \
            else multiply_int8(m, in, row, i, at, stride, 0, R, B); \
            break; \
        case INT4: \
            if (m->group == UNIT) multiply_int4(m, in, row, i, at, stride, UNIT, R, B); \
            else multiply_int4(m, in, row, i, at, stride, m->group, R, B); \
            break; \
        case BFLOAT16: multiply_floats(m, in, row, i, at, stride, BFLOAT16, R, B); break; \
        default: multiply_floats(m, in, row, i, at, stride, FLOAT32, R, B); \
    }

/* Say whether the tiles take this matrix; others go row by row. */
INLINE int has_tiles(const Matrix *m) {
    return m->format == FLOAT32 || m->format == BFLOAT16 ||
           (m->inputs % UNIT == 0 && m->group % UNIT == 0 && (m->format == INT8 || m->group <= 256));
}

/* Tiles of R rows share what is read of B tokens, as many as the registers hold. */
static void multiply_rows(const Matrix *m, const Input *in, int64_t row, int64_t end, float *to, int64_t stride) {
#define MULTIPLY_ALL(R) \
    for (; row + R <= end; row += R, to += R) { \
        float *at = to; \
        for (int64_t i = 0; i < in->n; i += 3, at += 3 * stride) \
            if (i + 3 <= in->n) MULTIPLY(R, 3) \
            else if (i + 2 == in->n) MULTIPLY(R, 2) \
            else MULTIPLY(R, 1) \
    }
    if (m->format == INT8 && in->n > 1) MULTIPLY_ALL(2) /* more would not stay in the registers */
    MULTIPLY_ALL(4)
    MULTIPLY_ALL(1)
}
#else
INLINE int has_tiles(const Matrix *m) { return (void)m, 0; }
static void multiply_rows(const Matrix *m, const Input *in, int64_t row, int64_t end, float *to, int64_t stride) {
    (void)m, (void)in, (void)row, (void)end, (void)to, (void)stride;
}
#endif

/* Rows begin..end of a product for all its tokens, with all that follows while they are in the cache. */
#define AT_ONCE 64
static void product(const Product *p, int64_t begin, int64_t end) {
    const Matrix *m = p->matrix;
    float found[AT_ONCE * 32]; /* tokens of a pass: at most 32, see Session */
    for (int64_t row = begin; row < end; row += AT_ONCE) {
        int64_t rows = end - row < AT_ONCE ? end - row : AT_ONCE;
        if (has_tiles(m)) multiply_rows(m, &p->input, row, row + rows, found, AT_ONCE);
        else
            for (int64_t i = 0; i < p->input.n; i++)
                for (int64_t r = 0; r < rows; r++) found[i * AT_ONCE + r] = multiply(m, &p->input, row + r, i);
        for (int64_t i = 0; i < p->input.n; i++) {
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
const Kernels TABLE(PATH) = {NAME_OF(PATH), weight, product, round_input, norm, activate, gate, attend, rotate};
