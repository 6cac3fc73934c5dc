/* Products with matrices in panels, of one token or of many, and attention among the tokens of whole rows. Compiled once for
 * each instruction set, as kernels.c is. Matrices are laid out in panels (see `Panels`), activations in tiles, and both are
 * cut so that what is read again stays in the caches (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix
 * Multiplication").
 * Letters: R tokens of a tile; k counts inputs. */
#include <math.h>
#include <string.h>
#include "numbers.h"

#define TILE TILE_TOKENS
#define PANEL PANEL_ROWS
#define DEEP 512          /* inputs at a time: what a panel has of them stays in the first cache */
#define UNIT SUMMED_INPUTS
#define UNIT_BYTES (UNIT + 4) /* of a token of a tile: codes [quads of inputs, R, 4], then where sums begin [R, 2] */
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

/* What turns whole numbers of a tile and a panel into floats, from input `begin` on. */
typedef struct {
    const void *rows;    /* the scales of a panel: [groups, PANEL] */
    const float *tokens; /* those of a tile: [blocks, stride] */
    int64_t stride, group, block, begin;
    int format; /* of those of the panel */
} Scales;

/* The scales of a group. They wait in memory: branches while sums are in registers let compilers spill these. */
INLINE void read_scales(const Scales *s, int64_t group, float *to) {
#ifdef __AVX2__
    for (int h = 0; h < PANEL; h += 8) _mm256_storeu_ps(to + h, load_eight(s->rows, group * PANEL + h, s->format));
#else
    for (int i = 0; i < PANEL; i++) to[i] = read_number(s->rows, group * PANEL + i, s->format);
#endif
}

/* c[r, 0..15] += what inputs begin..begin + count of a tile and a panel give, two at a time. vpmaddwd multiplies 16 bits and
 * sums pairs in 32, exactly; vpmaddubsw would take 8 bits, but needs as many instructions for the signs. */
INLINE void add_codes(const int16_t *a, const int8_t *b, int64_t count, const Scales *s, float *c, const int R) {
    int64_t group = s->begin / s->group, next = (group + 1) * s->group; /* blocks are whole parts of groups */
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[PANEL];
    read_scales(s, group, row_scales);
    for (int64_t start = 0; start < count; start += s->block, token_scales += s->stride) {
        int64_t pairs = (count - start < s->block ? count - start + 1 : s->block) / 2;
        if (s->begin + start == next) read_scales(s, ++group, row_scales), next += s->group;
#ifdef __AVX2__
        __m256i sum[TILE][2];
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2; h++) sum[r][h] = _mm256_setzero_si256();
        for (int64_t k = 0; k < pairs; k++, a += 2 * R, b += 2 * PANEL) {
            __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
            __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b + 1));
            _mm_prefetch((const char *)b + 1024, _MM_HINT_T0);
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
                __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(row_scales + 8 * h), _mm256_broadcast_ss(token_scales + r));
                float *to = c + r * PANEL + 8 * h;
                _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][h]), factor, _mm256_loadu_ps(to)));
            }
#else
        for (int r = 0; r < R; r++) {
            int32_t sum[PANEL] = {0};
            for (int64_t k = 0; k < pairs; k++) {
                const int16_t *one = a + 2 * (k * R + r);
                const int8_t *two = b + 2 * k * PANEL;
#pragma omp simd
                for (int i = 0; i < PANEL; i++) sum[i] += one[0] * two[2 * i] + one[1] * two[2 * i + 1];
            }
            for (int i = 0; i < PANEL; i++) c[r * PANEL + i] += (float)sum[i] * (row_scales[i] * token_scales[r]);
        }
        a += pairs * 2 * R, b += pairs * 2 * PANEL;
#endif
    }
}

/* The same of codes of 4 bits, 8 too large, unit after unit. vpmaddubsw multiplies bytes and sums pairs in 16 bits. A lane
 * begins with what the 8 makes too much; on the way it may wrap, but the sum of its 16 products of -8..7 and -127..127 fits. */
INLINE void add_short_codes(const int8_t *a, const uint8_t *b, int64_t count, const Scales *s, float *c, const int R) {
    int64_t group = s->begin / s->group, next = (group + 1) * s->group;
    int64_t next_block = s->begin + s->block;
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[PANEL];
    read_scales(s, group, row_scales);
    for (int64_t k = s->begin; k < s->begin + count; k += UNIT, a += R * UNIT_BYTES, b += UNIT / 2 * PANEL) {
        const int8_t *starts = a + R * UNIT;
        if (k == next) read_scales(s, ++group, row_scales), next += s->group;
        if (k == next_block) token_scales += s->stride, next_block += s->block;
#ifdef __AVX2__
        __m256i sum[TILE][2];
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2; h++)
                sum[r][h] = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(starts + 4 * r)));
        for (int64_t quad = 0; quad < UNIT / 8; quad++)
            for (int half = 0; half < 2; half++) {
                const __m256i *from = (const __m256i *)(b + quad * 4 * PANEL), mask = _mm256_set1_epi8(15);
                __m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);
                low = _mm256_and_si256(half ? _mm256_srli_epi16(low, 4) : low, mask);
                high = _mm256_and_si256(half ? _mm256_srli_epi16(high, 4) : high, mask);
                const int8_t *x = a + (half * UNIT / 8 + quad) * R * 4;
                for (int r = 0; r < R; r++) {
                    __m256i one = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(x + 4 * r)));
                    __m256i part; /* in assembly as above */
                    __asm__("vpmaddubsw %[one], %[low], %[part]\n\tvpmaddubsw %[one], %[high], %[one]\n\t"
                            "vpaddw %[part], %[first], %[first]\n\tvpaddw %[one], %[second], %[second]"
                            : [first] "+x"(sum[r][0]), [second] "+x"(sum[r][1]), [one] "+x"(one), [part] "=&x"(part)
                            : [low] "x"(low), [high] "x"(high));
                }
            }
        const __m256i ones = _mm256_set1_epi16(1);
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2; h++) {
                __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(row_scales + 8 * h), _mm256_broadcast_ss(token_scales + r));
                float *to = c + r * PANEL + 8 * h;
                __m256 whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[r][h], ones));
                _mm256_storeu_ps(to, _mm256_fmadd_ps(whole, factor, _mm256_loadu_ps(to)));
            }
#else
        for (int r = 0; r < R; r++) {
            int16_t start[2];
            memcpy(start, starts + 4 * r, 4);
            for (int i = 0; i < PANEL; i++) {
                int32_t sum = start[0] + start[1];
                for (int k = 0; k < UNIT; k++)
                    sum += a[(k / 4 * R + r) * 4 + k % 4] * (b[(k / 4 % 4 * PANEL + i) * 4 + k % 4] >> k / 16 * 4 & 15);
                c[r * PANEL + i] += (float)sum * (row_scales[i] * token_scales[r]);
            }
        }
#endif
    }
}

/* ---- products ---- */

/* Inputs of a token that are rounded together: as many as groups, and what is multiplied at once, are whole multiples of. */
INLINE int64_t rounded_inputs(const Panels *m) {
    return m->group >= m->inputs || m->group % 128 == 0 ? 128 : m->group % 64 == 0 ? 64 : UNIT;
}

/* Round numbers to codes of -127..127, the rest of whole units to zero; returns the number that a step stands for. */
INLINE float round_block(const float *x, int64_t count, int8_t *codes) {
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
        codes[k] = (int8_t)(int32_t)(value + (value < 0 ? -0.5f : 0.5f));
    }
    for (int64_t k = count; k % UNIT; k++) codes[k] = 0;
    return largest / 127.0f;
}

/* Lay out the codes of a unit for `add_short_codes`, as token r of R: its quads, and -8 times the sums of the halves of all. */
INLINE void lay_out_unit(const int8_t *codes, int8_t *to, int64_t r, int64_t R) {
    int16_t starts[2] = {0};
    for (int quad = 0; quad < UNIT / 4; quad++, codes += 4) {
        memcpy(to + (quad * R + r) * 4, codes, 4);
        for (int k = 0; k < 4; k++) starts[k / 2] = (int16_t)(starts[k / 2] - 8 * codes[k]);
    }
    memcpy(to + R * UNIT + 4 * r, starts, 4);
}

/* Tokens of a tile. Two tiles are alike, since a small one leaves registers idle. */
INLINE int64_t tile_tokens(const WideProduct *p) { return p->n > TILE && p->n <= 2 * TILE ? (p->n + 1) / 2 : TILE; }

/* Where a tile's tokens begin: floats [inputs, R]; whole numbers as pairs of 16 bits [pairs, R, 2], or for those of 4 bits
 * in units of bytes, see UNIT_BYTES. R are the tokens of this tile. */
INLINE char *tile_of(const WideProduct *p, int64_t token) {
    int64_t inputs = p->panels->inputs;
    switch (p->panels->format) {
        case INT8: return (char *)p->tiles + token * ((inputs + 1) / 2) * 4;
        case INT4: return (char *)p->tiles + token * ((inputs + UNIT - 1) / UNIT) * UNIT_BYTES;
        default: return (char *)p->tiles + token * inputs * 4;
    }
}

/* Lay out a tile of tokens, and for whole numbers its scales. */
static void lay_out(const WideProduct *p, int64_t tile) {
    const Panels *m = p->panels;
    int64_t inputs = m->inputs, first = tile * tile_tokens(p), left = p->n - first, block = rounded_inputs(m);
    int64_t R = left < tile_tokens(p) ? left : tile_tokens(p);
    const float *from = p->values + first * p->from_stride;
    char *to = tile_of(p, first);
    if (m->format != INT8 && m->format != INT4) {
        for (int64_t k = 0; k < inputs; k++)
            for (int64_t r = 0; r < R; r++) ((float *)to)[k * R + r] = from[r * p->from_stride + k];
        return;
    }
    for (int64_t r = 0; r < R; r++)
        for (int64_t start = 0; start < inputs; start += block) {
            int64_t count = inputs - start < block ? inputs - start : block;
            int8_t codes[128] = {0};
            p->token_scales[start / block * p->n + first + r] = round_block(from + r * p->from_stride + start, count, codes);
            if (m->format == INT4)
                for (int64_t k = 0; k < count; k += UNIT)
                    lay_out_unit(codes + k, (int8_t *)to + (start + k) / UNIT * R * UNIT_BYTES, r, R);
            else {
                int16_t wide[128], *pair = (int16_t *)to + start * R + 2 * r;
#pragma omp simd
                for (int k = 0; k < 128; k++) wide[k] = codes[k];
                for (int64_t k = 0; k < count; k += 2, pair += 2 * R) memcpy(pair, wide + k, 4);
            }
        }
}

/* Where a panel has its numbers from input k on; one of units begins with them. */
INLINE const char *panel_of(const Panels *m, int64_t panel, int64_t k) {
    switch (m->format) {
        case INT8: return (const char *)m->codes + (panel * ((m->inputs + 1) / 2 * 2) + k) * PANEL;
        case INT4: return (const char *)m->codes + (panel * ((m->inputs + UNIT - 1) / UNIT * UNIT) + k) * PANEL / 2;
        default: return (const char *)m->codes + (panel * m->inputs + k) * PANEL * (m->format == BFLOAT16 ? 2 : 4);
    }
}

/* Inputs k..k + count of a panel as they are multiplied: numbers of bfloat16 as floats, in `room`. */
INLINE const void *read_panel(const Panels *m, int64_t panel, int64_t k, int64_t count, float *room) {
    const void *from = panel_of(m, panel, k);
    if (m->format != BFLOAT16) return from;
#pragma omp simd
    for (int64_t i = 0; i < count * PANEL; i++) room[i] = widen_bfloat16(((const uint16_t *)from)[i]);
    return room;
}

/* Ask for a part of what a panel has of some inputs, while another one is multiplied: weights that lie in memory would let
 * the first tile of every panel wait. */
INLINE void fetch_panel(const Panels *m, int64_t panel, int64_t k, int64_t count, int64_t part, int64_t parts) {
    const char *from = panel_of(m, panel, k);
    int64_t size = panel_of(m, panel, k + count) - from;
    for (int64_t at = size * part / parts; at < size * (part + 1) / parts; at += 64) __builtin_prefetch(from + at, 0, 2);
}

/* Inputs k..k + count of a panel for a tile of tokens, `size` from `token` on: what they give is added. */
INLINE void multiply_tile(const WideProduct *p, int64_t panel, const void *weights, int64_t k, int64_t count, int64_t token,
                          int64_t size) {
    const Panels *m = p->panels;
    const char *x = tile_of(p, token);
    float found[TILE * PANEL] = {0};
    int64_t groups = (m->inputs + m->group - 1) / m->group, size_of_scale = m->scale_format == FLOAT32 ? 4 : 2;
    Scales scales = {
        .rows = (const char *)m->scales + panel * groups * PANEL * size_of_scale,
        .tokens = p->token_scales + token, .stride = p->n, .group = m->group, .block = rounded_inputs(m), .begin = k,
        .format = m->scale_format};
#define ADD_CODES(R) add_codes((const int16_t *)x + k * R, weights, count, &scales, found, R)
#define ADD_SHORT(R) add_short_codes((const int8_t *)x + k / UNIT * R * UNIT_BYTES, weights, count, &scales, found, R)
#define ADD_FLOATS(R) add_floats((const float *)x + k * R, R, 1, weights, count, found, PANEL, R)
    if (m->format == INT8) EACH_SIZE(size, ADD_CODES)
    else if (m->format == INT4) EACH_SIZE(size, ADD_SHORT)
    else EACH_SIZE(size, ADD_FLOATS)
    int64_t rows = m->rows - panel * PANEL < PANEL ? m->rows - panel * PANEL : PANEL; /* the last panel may not be full */
    for (int64_t r = 0; r < size; r++) {
        float *to = p->to + (token + r) * p->stride + panel * PANEL;
#pragma omp simd
        for (int64_t i = 0; i < rows; i++) to[i] += found[r * PANEL + i];
    }
}

/* Panels begin..end of a product for all its tokens, with what follows while it is in the cache. Sums end every DEEP inputs,
 * whatever the order of parts is, so that a token gives the same in any company. `room`: a panel of DEEP inputs as floats. */
static void multiply_panels(const WideProduct *p, int64_t begin, int64_t end, void *room) {
    const Panels *m = p->panels;
    int64_t first = begin * PANEL, width = (end * PANEL < m->rows ? end * PANEL : m->rows) - first;
    int64_t panels = end - begin, deep = (m->inputs + DEEP - 1) / DEEP, tile = tile_tokens(p);
    for (int64_t block = 0; block < p->n; block += BLOCK) {
        int64_t last = p->n - block < BLOCK ? p->n : block + BLOCK;
        for (int64_t i = block; i < last; i++) {
            float *to = p->to + i * p->stride + first;
            if (!p->adds) memset(to, 0, (size_t)width * sizeof(float));
            if (p->bias)
                for (int64_t r = 0; r < width; r++) to[r] += p->bias[first + r];
        }
        for (int64_t part = 0; part < panels * deep; part++) {
            int few = p->n <= MOST_TOKENS; /* their tiles stay in the second cache: panels are read as they lie in memory */
            int64_t panel = begin + (few ? part / deep : part % panels), k = (few ? part % deep : part / panels) * DEEP;
            int64_t count = m->inputs - k < DEEP ? m->inputs - k : DEEP;
            const void *weights = read_panel(m, panel, k, count, room);
            for (int64_t i = block; i < last; i += tile) {
                if (!few && panel + 1 < end)
                    fetch_panel(m, panel + 1, k, count, (i - block) / tile, (last - block + tile - 1) / tile);
                multiply_tile(p, panel, weights, k, count, i, last - i < tile ? last - i : tile);
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
