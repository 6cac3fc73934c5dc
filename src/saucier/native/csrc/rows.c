/* Products of many tokens, and attention among the tokens of whole rows: what an encoder needs. Compiled once for each
 * instruction set, as kernels.c is. Here arithmetic is what takes time, not the reading of weights: matrices are laid
 * out in panels (see `Panels`), activations in tiles, and both are cut so that what is read again stays in the caches
 * (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication").
 * Letters: R tokens of a tile; k counts inputs. */
#include <math.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "numbers.h"

#define TILE TILE_TOKENS
#define PANEL PANEL_ROWS
#define DEEP 512          /* inputs at a time: what a panel has of them stays in the first cache */
#define ROUNDED ROUNDED_INPUTS
#define UNIT SUMMED_INPUTS
#define UNIT_BYTES (TILE * (UNIT + 4)) /* of a tile: codes [quads of inputs, TILE, 4], then the sums [TILE] in 32 bits */
#define BLOCK (24 * TILE) /* tokens at a time: what they have of these stays in the second one */

#define EACH_SIZE(size, DO) \
    switch (size) { \
        case 1: DO(1); break; \
        case 2: DO(2); break; \
        case 3: DO(3); break; \
        case 4: DO(4); break; \
        case 5: DO(5); break; \
        default: DO(TILE); \
    }

/* ---- tiles ---- */

/* c[r, 0..15] += sum over k of a[r, k] * b[k, 0..15]. The sum begins at zero: in front of a residual, which may be large,
 * every addition would be rounded to its size. */
INLINE void add_floats(const float *a, const int64_t to_next_input, const int64_t to_next_token, const float *b,
                       int64_t count, float *c, int64_t stride, const int R) {
#ifdef __AVX2__
    __m256 sum[TILE][2];
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) sum[r][h] = _mm256_setzero_ps();
    for (int64_t k = 0; k < count; k++, a += to_next_input, b += PANEL) {
        __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
        for (int r = 0; r < R; r++) {
            __m256 one = _mm256_broadcast_ss(a + r * to_next_token);
            sum[r][0] = _mm256_fmadd_ps(one, low, sum[r][0]);
            sum[r][1] = _mm256_fmadd_ps(one, high, sum[r][1]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) {
            float *to = c + r * stride + 8 * h;
            _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), sum[r][h]));
        }
#else
    for (int r = 0; r < R; r++) {
        float sum[PANEL] = {0};
        for (int64_t k = 0; k < count; k++) {
            float one = a[k * to_next_input + r * to_next_token];
#pragma omp simd
            for (int i = 0; i < PANEL; i++) sum[i] += one * b[k * PANEL + i];
        }
        for (int i = 0; i < PANEL; i++) c[r * stride + i] += sum[i];
    }
#endif
}

/* The same of whole numbers, two inputs at a time, times the scales of rows and tokens. vpmaddwd multiplies 16 bits and
 * sums pairs in 32, exactly; vpmaddubsw would take 8 bits, but needs as many instructions for the signs. */
INLINE void add_codes(const int16_t *a, const int16_t *b, int64_t pairs, const float *row_scales,
                      const float *token_scales, float *c, int64_t stride, const int R) {
#ifdef __AVX2__
    __m256i sum[TILE][2];
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) sum[r][h] = _mm256_setzero_si256();
    for (int64_t k = 0; k < pairs; k++, a += 2 * TILE, b += 2 * PANEL) {
        __m256i low = _mm256_loadu_si256((const __m256i *)b), high = _mm256_loadu_si256((const __m256i *)(b + PANEL));
        for (int r = 0; r < R; r++) {
            __m256i one = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(a + 2 * r)));
            __m256i pairs_of_low; /* in assembly: compilers spill a sum or copy registers, and there are just enough */
            __asm__("vpmaddwd %[low], %[one], %[part]\n\tvpmaddwd %[high], %[one], %[one]\n\t"
                    "vpaddd %[part], %[first], %[first]\n\tvpaddd %[one], %[second], %[second]"
                    : [first] "+x"(sum[r][0]), [second] "+x"(sum[r][1]), [one] "+x"(one), [part] "=&x"(pairs_of_low)
                    : [low] "x"(low), [high] "x"(high));
        }
    }
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) {
            __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(row_scales + 8 * h), _mm256_set1_ps(token_scales[r]));
            float *to = c + r * stride + 8 * h;
            _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][h]), scale, _mm256_loadu_ps(to)));
        }
#else
    for (int r = 0; r < R; r++) {
        int32_t sum[PANEL] = {0};
        for (int64_t k = 0; k < pairs; k++) {
            const int16_t *one = a + 2 * (k * TILE + r), *two = b + 2 * k * PANEL;
#pragma omp simd
            for (int i = 0; i < PANEL; i++) sum[i] += one[0] * two[2 * i] + one[1] * two[2 * i + 1];
        }
        for (int i = 0; i < PANEL; i++) c[r * stride + i] += (float)sum[i] * (row_scales[i] * token_scales[r]);
    }
#endif
}

/* The same of weights 0..15, 8 too large, and codes of bytes, unit after unit, from input `begin` on: vpmaddubsw multiplies
 * bytes and sums pairs in 16 bits, which hold the 32 products of a unit (each lane 16 of at most 15 * 127). */
INLINE void add_short_codes(const int8_t *a, const uint8_t *b, const WideProduct *p, int64_t panel, int64_t begin,
                            int64_t count, int64_t token, int64_t tokens, float *c, int64_t stride, const int R) {
    const Panels *m = p->panels;
    const int32_t group = (int32_t)m->group;
    const float *all_scales = m->scales + panel * ((m->inputs + m->group - 1) / m->group) * PANEL;
    float found[TILE * PANEL] = {0};
    for (int64_t k = begin; k < begin + count; k += UNIT, a += UNIT_BYTES, b += UNIT * PANEL) {
        const float *row_scales = all_scales + (int32_t)k / group * PANEL, *token_scales = p->token_scales + k / ROUNDED * tokens + token;
        const int32_t *sums = (const int32_t *)(a + TILE * UNIT);
#ifdef __AVX2__
        __m256i sum[TILE][2];
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2; h++) sum[r][h] = _mm256_setzero_si256();
        for (int64_t quad = 0; quad < UNIT / 4; quad++) {
            const __m256i *from = (const __m256i *)(b + quad * 4 * PANEL);
            __m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);
            for (int r = 0; r < R; r++) {
                __m256i one = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(a + (quad * TILE + r) * 4)));
                __m256i part; /* in assembly as above */
                __asm__("vpmaddubsw %[one], %[low], %[part]\n\tvpmaddubsw %[one], %[high], %[one]\n\t"
                        "vpaddw %[part], %[first], %[first]\n\tvpaddw %[one], %[second], %[second]"
                        : [first] "+x"(sum[r][0]), [second] "+x"(sum[r][1]), [one] "+x"(one), [part] "=&x"(part)
                        : [low] "x"(low), [high] "x"(high));
            }
        }
        const __m256i ones = _mm256_set1_epi16(1);
        for (int h = 0; h < 2; h++) {
            __m256 scale = _mm256_loadu_ps(row_scales + 8 * h);
            for (int r = 0; r < R; r++) {
                __m256i whole = _mm256_sub_epi32(_mm256_madd_epi16(sum[r][h], ones), _mm256_set1_epi32(sums[r]));
                float *to = found + r * PANEL + 8 * h;
                _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(whole), scale),
                                                     _mm256_set1_ps(token_scales[r]), _mm256_loadu_ps(to)));
            }
        }
#else
        for (int r = 0; r < R; r++)
            for (int i = 0; i < PANEL; i++) {
                int32_t sum = -sums[r];
                for (int k = 0; k < UNIT; k++) sum += a[(k / 4 * TILE + r) * 4 + k % 4] * b[(k / 4 * PANEL + i) * 4 + k % 4];
                found[r * PANEL + i] += (float)sum * row_scales[i] * token_scales[r];
            }
#endif
    }
    for (int r = 0; r < R; r++)
#pragma omp simd
        for (int i = 0; i < PANEL; i++) c[r * stride + i] += found[r * PANEL + i];
}

/* ---- products ---- */

/* Round up to ROUNDED numbers to codes of -127..127, the rest to zero; returns the number that a step stands for. */
INLINE float round_block(const float *x, int64_t count, int16_t *codes) {
    float largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t k = 0; k < count; k++) {
        float value = fabsf(x[k]);
        largest = value > largest ? value : largest;
    }
    float inverse = largest > 0 ? 127.0f / largest : 0;
#pragma omp simd
    for (int64_t k = 0; k < count; k++) {
        float value = x[k] * inverse;
        codes[k] = (int16_t)(int32_t)(value + (value < 0 ? -0.5f : 0.5f));
    }
    for (int64_t k = count; k < ROUNDED; k++) codes[k] = 0;
    return largest / 127.0f;
}

/* Lay out the codes of a block for `add_short_codes`, as token r of a tile. Each sum is 8 times that of a unit's codes. */
INLINE void lay_out_units(const int16_t *codes, int64_t count, int8_t *to, int64_t r) {
    for (int64_t unit = 0; unit < (count + UNIT - 1) / UNIT; unit++, codes += UNIT, to += UNIT_BYTES) {
        int8_t narrow[UNIT];
        int32_t sum = 0;
        for (int k = 0; k < UNIT; k++) {
            narrow[k] = (int8_t)codes[k];
            sum += 8 * codes[k];
        }
        for (int quad = 0; quad < UNIT / 4; quad++) memcpy(to + (quad * TILE + r) * 4, narrow + 4 * quad, 4);
        memcpy(to + TILE * UNIT + 4 * r, &sum, 4);
    }
}

/* Lay out a tile of tokens: [inputs, TILE]; for whole numbers [pairs of inputs, TILE, 2], or units of bytes with their
 * sums, and scales, a row of them for each block of inputs. */
static void lay_out(const WideProduct *p, int64_t tile) {
    int64_t inputs = p->panels->inputs, first = tile * TILE, size = p->n - first < TILE ? p->n - first : TILE;
    const float *from = p->values + first * p->from_stride;
    if (!p->rounds) {
        float *to = (float *)p->tiles + first * inputs;
        for (int64_t k = 0; k < inputs; k++)
            for (int64_t r = 0; r < TILE; r++) to[k * TILE + r] = r < size ? from[r * p->from_stride + k] : 0;
        return;
    }
    int64_t pairs = (inputs + 1) / 2, tokens = (p->n + TILE - 1) / TILE * TILE, short_codes = p->panels->format == INT4;
    int16_t *to = (int16_t *)p->tiles + first * pairs * 2;
    int8_t *units = (int8_t *)p->tiles + tile * ((inputs + UNIT - 1) / UNIT) * UNIT_BYTES;
    if (!short_codes) memset(to, 0, (size_t)(pairs * 2 * TILE) * sizeof(int16_t));
    for (int64_t r = 0; r < size; r++)
        for (int64_t start = 0; start < inputs; start += ROUNDED) {
            int64_t count = inputs - start < ROUNDED ? inputs - start : ROUNDED;
            int16_t codes[ROUNDED], *at = to + start * TILE + 2 * r;
            p->token_scales[start / ROUNDED * tokens + first + r] = round_block(from + r * p->from_stride + start, count, codes);
            if (short_codes) lay_out_units(codes, count, units + start / UNIT * UNIT_BYTES, r);
            else for (int64_t k = 0; k < (count + 1) / 2; k++) memcpy(at + 2 * k * TILE, codes + 2 * k, 4);
        }
}

/* Inputs begin..begin + count of a panel as floats [count, PANEL], or, to be multiplied as whole numbers, as int16. */
INLINE const void *read_panel(const WideProduct *p, int64_t panel, int64_t begin, int64_t count, void *room) {
    const Panels *m = p->panels;
    int64_t place = (panel * m->inputs + begin) * PANEL;
    if (m->format == FLOAT32) return (const float *)m->codes + place;
    if (m->format == INT4) return (const uint8_t *)m->codes + (panel * ((m->inputs + UNIT - 1) / UNIT) * UNIT + begin) * PANEL;
    float *to = room;
    if (m->format == BFLOAT16) {
        const uint16_t *from = (const uint16_t *)m->codes + place;
#pragma omp simd
        for (int64_t i = 0; i < count * PANEL; i++) to[i] = widen_bfloat16(from[i]);
        return to;
    }
    const int8_t *from = (const int8_t *)m->codes + (panel * ((m->inputs + 1) / 2) * 2 + begin) * PANEL; /* begin is even */
    if (p->rounds) {
        int16_t *wide = room;
#pragma omp simd
        for (int64_t i = 0; i < (count + 1) / 2 * 2 * PANEL; i++) wide[i] = from[i];
        return wide;
    }
    const float *scales = m->scales + panel * ((m->inputs + m->group - 1) / m->group) * PANEL;
    for (int64_t k = 0; k < count; k += 2) { /* groups are even, and so is the room: the code that fills up a pair is zero */
        const float *scale = scales + (begin + k) / m->group * PANEL;
        const int16_t *pairs = (const int16_t *)from + k / 2 * PANEL; /* the first code of a pair is in the lower byte */
#pragma omp simd
        for (int64_t i = 0; i < PANEL; i++) {
            to[k * PANEL + i] = (float)(int8_t)pairs[i] * scale[i];
            to[(k + 1) * PANEL + i] = (float)(pairs[i] >> 8) * scale[i];
        }
    }
    return to;
}

/* Ask for a part of what a panel has of some inputs, while another one is multiplied: weights that lie in memory would let
 * the first tile of every panel wait. */
INLINE void fetch_panel(const Panels *m, int64_t panel, int64_t begin, int64_t count, int64_t part, int64_t parts) {
    int64_t size = m->format == FLOAT32 ? 4 : m->format == BFLOAT16 ? 2 : 1, row = PANEL * size;
    int64_t whole = m->format == INT4 ? UNIT : m->format == INT8 ? 2 : 1, inputs = (m->inputs + whole - 1) / whole * whole;
    const char *from = (const char *)m->codes + (panel * inputs + begin) * row;
    for (int64_t at = count * part / parts * row; at < count * (part + 1) / parts * row; at += 64)
        __builtin_prefetch(from + at, 0, 2);
}

/* Panels begin..end of a product for all its tokens, with what follows while it is in the cache.
 * `room`: a panel of DEEP inputs as floats. */
static void multiply_panels(const WideProduct *p, int64_t begin, int64_t end, void *room) {
    const Panels *m = p->panels;
    int64_t inputs = m->inputs, tokens = (p->n + TILE - 1) / TILE * TILE, first = begin * PANEL, width = (end * PANEL < m->rows ? end * PANEL : m->rows) - first;
    for (int64_t block = 0; block < p->n; block += BLOCK) {
        int64_t last = p->n - block < BLOCK ? p->n : block + BLOCK;
        for (int64_t i = block; i < last; i++) {
            float *to = p->to + i * p->stride + first;
            if (!p->adds) memset(to, 0, (size_t)width * sizeof(float));
            if (p->bias)
                for (int64_t r = 0; r < width; r++) to[r] += p->bias[first + r];
        }
        for (int64_t k = 0; k < inputs; k += DEEP) {
            int64_t count = inputs - k < DEEP ? inputs - k : DEEP;
            for (int64_t panel = begin; panel < end; panel++) {
                const void *weights = read_panel(p, panel, k, count, room);
                int64_t rows = m->rows - panel * PANEL < PANEL ? m->rows - panel * PANEL : PANEL;
                for (int64_t i = block; i < last; i += TILE) {
                    float *to = p->to + i * p->stride + panel * PANEL, part[TILE * PANEL] = {0}, *c = to;
                    int64_t size = last - i < TILE ? last - i : TILE, stride = p->stride;
                    if (rows < PANEL) c = part, stride = PANEL; /* the last panel, which is not full */
                    if (panel + 1 < end)
                        fetch_panel(m, panel + 1, k, count, (i - block) / TILE, (last - block + TILE - 1) / TILE);
                    if (m->format == INT4) {
                        const int8_t *x = (const int8_t *)p->tiles + (i / TILE * ((inputs + UNIT - 1) / UNIT) + k / UNIT) * UNIT_BYTES;
#define ADD_SHORT(R) add_short_codes(x, weights, p, panel, k, count, i, tokens, c, stride, R)
                        EACH_SIZE(size, ADD_SHORT)
                    } else if (p->rounds) {
                        const int16_t *x = (const int16_t *)p->tiles + i * ((inputs + 1) / 2 * 2) + k * TILE;
                        for (int64_t part = 0; part < count; part += ROUNDED) {
                            int64_t pairs = (count - part < ROUNDED ? count - part + 1 : ROUNDED) / 2;
                            const float *scales = p->token_scales + (k + part) / ROUNDED * tokens + i;
#define ADD_CODES(R) \
    add_codes(x + part * TILE, (const int16_t *)weights + part * PANEL, pairs, m->scales + panel * PANEL, scales, c, stride, R)
                            EACH_SIZE(size, ADD_CODES)
                        }
                    } else {
                        const float *x = (const float *)p->tiles + i * inputs + k * TILE;
#define ADD_FLOATS(R) add_floats(x, TILE, 1, weights, count, c, stride, R)
                        EACH_SIZE(size, ADD_FLOATS)
                    }
                    if (rows < PANEL)
                        for (int64_t r = 0; r < size; r++)
                            for (int64_t q = 0; q < rows; q++) to[r * p->stride + q] += part[r * PANEL + q];
                }
            }
        }
        if (p->activation != IDENTITY)
            for (int64_t i = block; i < last; i++) p->activate(p->activation, p->to + i * p->stride + first, width);
    }
}

/* ---- attention ---- */

/* Fill room for PANEL columns with keys or values: [keys, E], every one `stride` from the next. */
static void lay_out_keys(const float *keys, int64_t stride, int64_t count, int64_t head, float *to) {
    for (int64_t start = 0; start < count; start += PANEL, to += head * PANEL)
        for (int64_t t = 0; t < PANEL; t++)
            for (int64_t e = 0; e < head; e++) to[e * PANEL + t] = start + t < count ? keys[(start + t) * stride + e] : 0;
}

static void lay_out_values(const float *values, int64_t stride, int64_t count, int64_t head, float *to) {
    for (int64_t start = 0; start < head; start += PANEL, to += count * PANEL)
        for (int64_t t = 0; t < count; t++)
            for (int64_t e = 0; e < PANEL; e++) to[t * PANEL + e] = start + e < head ? values[t * stride + start + e] : 0;
}

/* Turn scores into weights. */
static void weigh(float *scores, int64_t count) {
    float largest = -INFINITY, sum = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t t = 0; t < count; t++) largest = scores[t] > largest ? scores[t] : largest;
#pragma omp simd
    for (int64_t t = 0; t < count; t++) scores[t] = exponential(scores[t] - largest);
#pragma omp simd reduction(+ : sum)
    for (int64_t t = 0; t < count; t++) sum += scores[t];
    float factor = 1.0f / sum;
#pragma omp simd
    for (int64_t t = 0; t < count; t++) scores[t] *= factor;
}

/* Attention of a tile of queries of one head: their scores, row by row, stay in the first cache. */
static void attend_tile(const RowAttention *a, const float *query, float *to, int64_t start, int64_t size, int64_t count,
                        const float *bias, const float *keys, const float *values, float *scores) {
    int64_t head = a->head, room = (count + PANEL - 1) / PANEL * PANEL;
    int64_t begin = a->before < start ? start - a->before : 0, end = start + size + a->after;
    end = end < count ? end : count;
    begin = begin / PANEL * PANEL;
    for (int64_t r = 0; r < size; r++) memset(scores + r * room + begin, 0, (size_t)(room - begin) * sizeof(float));
    for (int64_t t = begin; t < end; t += PANEL) {
#define SCORE(R) add_floats(query, 1, a->stride, keys + t * head, head, scores + t, room, R)
        EACH_SIZE(size, SCORE)
    }
    for (int64_t r = 0; r < size; r++) {
        int64_t place = start + r, first = a->before < place ? place - a->before : 0;
        int64_t last = place + a->after < count ? place + a->after : count - 1;
        float *row = scores + r * room;
        if (bias) {
            const float *from = bias + a->reach - 1 - place; /* the rows of a pass are shorter than what it reaches */
#pragma omp simd
            for (int64_t t = first; t <= last; t++) row[t] = row[t] * a->scale + from[t];
        } else {
#pragma omp simd
            for (int64_t t = first; t <= last; t++) row[t] *= a->scale;
        }
        weigh(row + first, last + 1 - first);
        memset(row + begin, 0, (size_t)(first - begin) * sizeof(float));
        memset(row + last + 1, 0, (size_t)(end - last - 1) * sizeof(float));
    }
    for (int64_t e = 0; e < head; e += PANEL) {
        float part[TILE * PANEL] = {0};
        const float *from = values + e * count + begin * PANEL;
#define MIX(R) add_floats(scores + begin, 1, room, from, end - begin, part, PANEL, R)
        EACH_SIZE(size, MIX)
        int64_t width = head - e < PANEL ? head - e : PANEL;
        for (int64_t r = 0; r < size; r++)
            memcpy(to + r * a->to_stride + e, part + r * PANEL, (size_t)width * sizeof(float));
    }
}

/* Attention among the tokens of a row, of all heads that share a key head.
 * `room`: keys and values in whole panels, and TILE rows of scores. */
static void attend_row(const RowAttention *a, int64_t row, int64_t group, float *room) {
    int64_t head = a->head, sharing = a->heads / a->groups, first = a->starts[row], count = a->starts[row + 1] - first;
    const float *from = a->query + first * a->stride, *key = from + (a->heads + group) * head;
    float *values = room + (count + PANEL - 1) / PANEL * PANEL * head;
    float *scores = values + (head + PANEL - 1) / PANEL * PANEL * count;
    lay_out_keys(key, a->stride, count, head, room);
    lay_out_values(key + a->groups * head, a->stride, count, head, values);
    for (int64_t h = group * sharing; h < (group + 1) * sharing; h++)
        for (int64_t start = 0; start < count; start += TILE) {
            int64_t size = count - start < TILE ? count - start : TILE;
            attend_tile(a, from + start * a->stride + h * head, a->to + (first + start) * a->to_stride + h * head, start,
                        size, count, a->bias ? a->bias + h * (2 * a->reach - 1) : NULL, room, values, scores);
        }
}

#define TABLE_(path) rows_##path
#define TABLE(path) TABLE_(path)
const RowKernels TABLE(PATH) = {lay_out, multiply_panels, attend_row};
