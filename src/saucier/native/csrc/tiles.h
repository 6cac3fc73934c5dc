/* Products of a tile of tokens with a panel: what rows.c does most of its time in. Floats by any registers; whole numbers
 * in plain C, by AVX2, and where a set has one by an instruction that sums four products of bytes (vnni.h).
 * Letters: R tokens of the tile; k counts inputs. */
#ifndef TILES_H
#define TILES_H
#include "numbers.h"

#define PANEL PANEL_ROWS
#define UNIT SUMMED_INPUTS
#define STEP (4 * PANEL) /* bytes of a panel that inner loops read in a step */
/* What will be multiplied is asked for so many bytes early: AHEAD, of floats AHEAD_OF_FLOATS where panels lie side by side, each
 * a stream of its own, and of codes that two tokens meet AHEAD_OF_TWO. One token meets STREAMS panels at once, which ask
 * AHEAD_OF_STREAMS, and up to MOST_STREAMED tokens of floats meet two. Each as it was measured, see README.md. */
#if defined __AVX512F__ && (!defined __AVX512BF16__ || defined __AMX_TILE__)
#define ON_INTEL
#define AHEAD 65536
#define AHEAD_OF_FLOATS 49152
#elif defined __AVX512F__
#define AHEAD 8192
#define AHEAD_OF_FLOATS 8192
#define STREAMS 4
#define MOST_STREAMED 1
#define AHEAD_OF_STREAMS 2048
#define AHEAD_OF_TWO 3072
#else
#define AHEAD 16384
#define AHEAD_OF_FLOATS 8192
#endif
#if defined __AVX2__ && !defined __AVX512F__ && !defined __AVXVNNI__
#define ON_AVX2_ALONE
#define STREAMS 4
#define MOST_STREAMED 3
#endif
#ifndef STREAMS
#define STREAMS 1
#define MOST_STREAMED 0
#endif
#ifndef AHEAD_OF_STREAMS
#define AHEAD_OF_STREAMS 0 /* for nothing */
#define AHEAD_OF_TWO AHEAD
#endif
#define ASKING 4 /* tiles that ask for a share each, at most: a request takes the place of a load */
#define LONGEST_BLOCK 128 /* inputs that are rounded together, at most; with a step of the panels a part */
#define DEEP 768          /* inputs at a time, a part: what a panel has of them stays in the first cache */

/* R is a constant in each case: sums stay in registers. */
#if defined WIDTH && WIDTH == 16
#define TILE 12
#define MORE_SIZES(DO) \
        case 6: DO(6); break; \
        case 7: DO(7); break; \
        case 8: DO(8); break; \
        case 9: DO(9); break; \
        case 10: DO(10); break; \
        case 11: DO(11); break;
#else
#define TILE 6
#define MORE_SIZES(DO)
#endif
#if defined ON_INTEL && !defined __AMX_TILE__
#define WHOLE_TILES /* of codes: see whole.h */
#endif
#define FEW 6 /* tokens whose sums in whole numbers, and in floats, the registers hold */
#define FIRST_SIZES(DO) \
        case 1: DO(1); break; \
        case 2: DO(2); break; \
        case 3: DO(3); break; \
        case 4: DO(4); break; \
        case 5: DO(5); break;
#define EACH_FEW(size, DO) \
    switch (size) { \
        FIRST_SIZES(DO) \
        default: DO(FEW); \
    }
#define EACH_SIZE(size, DO) \
    switch (size) { \
        FIRST_SIZES(DO) \
        MORE_SIZES(DO) \
        default: DO(TILE); \
    }

#ifdef WIDTH
#define PARTS (PANEL / WIDTH) /* registers that hold a number of each row of a panel */
#endif
#if defined WIDTH && WIDTH == 16
#define SIDE_BY_SIDE 2 /* panels whose sums with a tile the registers hold */
#else
#define SIDE_BY_SIDE 1
#endif
#define MOST_SIDES (STREAMS > 2 ? STREAMS : 2)

/* Ask the caches for what comes `next`. A first cache waits for 16 to 24 lines at a time, which is less than memory gives in
 * that time; Intel's second waits for 48. So that one is asked early, and the first one late. AMD's second is asked by tiles
 * that memory keeps waiting (`far`), which are not whole; the first one by the others. */
INLINE void fetch(const void *weights, const char *next, const int far) {
#ifdef ON_INTEL
    (void)far;
    __builtin_prefetch((const char *)weights + 2048, 0, 3);
    __builtin_prefetch(next, 0, 2);
#elif defined __AVX512F__
    (void)weights;
    if (far) __builtin_prefetch(next, 0, 2);
    else __builtin_prefetch(next, 0, 3);
#else
    (void)weights, (void)far;
    __builtin_prefetch(next, 0, 3);
#endif
}

/* What a tile asks the caches for: so many bytes behind the weights that it begins with, and from there in these steps. */
typedef struct {
    int64_t bytes, step;
} Ahead;
#define NOTHING_AHEAD ((Ahead){0, 0})
#define IS_NOTHING(ahead) (__builtin_constant_p(ahead.bytes) && !ahead.bytes)

/* The same for a smaller tile. */
INLINE int64_t side_by_side(int64_t R) { return R <= TILE / 2 ? 2 : SIDE_BY_SIDE; }

#ifdef WIDTH
/* Add what an input gives; of BFLOAT16 that of a pair which is `odd`, or the other one. */
INLINE void add_input(Vector (*sum)[MOST_SIDES * PARTS], const float *a, const int64_t to_next_token, const char *b,
                      int64_t apart, const int format, const int odd, const int R, const int P) {
    Vector read[MOST_SIDES * PARTS];
    for (int h = 0; h < P * PARTS; h++) {
        const char *from = b + h / PARTS * apart + h % PARTS * WIDTH * 4;
        read[h] = format != BFLOAT16 ? load((const float *)from) : odd ? load_odd(from) : load_even(from);
    }
    for (int r = 0; r < R; r++) {
        Vector one = load_one(a + r * to_next_token);
        for (int h = 0; h < P * PARTS; h++) sum[r][h] = add_product(one, read[h], sum[r][h]);
    }
}
#endif

/* c[r, 0..15] += sum over k of a[r, k] * b[k, 0..15], or = without `adds`; of P panels, which lie `apart` from each other in
 * numbers, and their sums `beyond` each other. BFLOAT16: pairs of inputs. The caches are asked for what lies `ahead`; 0: for
 * nothing, as where all is in the first cache. */
INLINE void add_numbers(const float *a, const int64_t to_next_input, const int64_t to_next_token, const void *b,
                        const int64_t step, int64_t apart, int64_t count, float *c, int64_t stride, const int64_t beyond,
                        const int format, const Ahead ahead, const int adds, const int R, const int P) {
    const int together = format == BFLOAT16 ? 2 : 1; /* inputs that lie side by side, in a line of a panel */
#ifdef WIDTH
    const char *line = b, *next = line + ahead.bytes;
    const int64_t bytes = step * 4;
    const int far = R < TILE && (R > 4 || P > 1); /* few tokens of one panel are up to 1.05 times as fast by the first cache */
    int64_t k = 0;
    Vector sum[TILE][MOST_SIDES * PARTS];
    apart *= format == FLOAT32 ? 4 : 2;
    for (int r = 0; r < R; r++)
        for (int h = 0; h < P * PARTS; h++) sum[r][h] = no_numbers();
    for (; k + together <= count; k += together, line += bytes, a += together * to_next_input, next += ahead.step) {
        for (int h = 0; h < P && !IS_NOTHING(ahead); h++) fetch(line + h * apart, next + h * apart, far);
        for (int odd = 0; odd < together; odd++)
            add_input(sum, a + odd * to_next_input, to_next_token, line, apart, format, odd, R, P);
    }
    if (k < count) add_input(sum, a, to_next_token, line, apart, format, 0, R, P); /* the half of a last pair */
    for (int r = 0; r < R; r++)
        for (int h = 0; h < P * PARTS; h++) {
            float *to = c + r * stride + h / PARTS * beyond + h % PARTS * WIDTH;
            store(to, adds ? add(load(to), sum[r][h]) : sum[r][h]);
        }
#else
    (void)ahead;
    for (int r = 0; r < R; r++)
        for (int h = 0; h < P; h++) {
            float sum[PANEL] = {0};
            for (int64_t begin = 0; begin < count; begin += UNIT) { /* sums of sums: errors stay small */
                float part[PANEL] = {0};
                for (int64_t k = begin; k < count && k < begin + UNIT; k++) {
                    float one = a[k * to_next_input + r * to_next_token];
                    const int64_t from = h * apart + k / together * together * step + k % together;
#pragma omp simd
                    for (int i = 0; i < PANEL; i++) part[i] += one * read_number(b, from + together * i, format);
                }
                for (int i = 0; i < PANEL; i++) sum[i] += part[i];
            }
            float *to = c + r * stride + h * beyond;
            for (int i = 0; i < PANEL; i++) to[i] = adds ? to[i] + sum[i] : sum[i];
        }
#endif
}

/* c[r, 0..15] = the same sum, where nothing is asked for ahead: attention. */
INLINE void multiply_numbers(const float *a, const int64_t to_next_token, const void *b, const int64_t step, int64_t apart,
                             int64_t count, float *c, int64_t stride, const int format, const int R, const int P) {
    add_numbers(a, 1, to_next_token, b, step, apart, count, c, stride, PANEL, format, NOTHING_AHEAD, 0, R, P);
}

INLINE void multiply_floats(const float *a, const int64_t to_next_token, const float *b, const int64_t step, int64_t apart,
                            int64_t count, float *c, int64_t stride, const int R, const int P) {
    multiply_numbers(a, to_next_token, b, step, apart, count, c, stride, FLOAT32, R, P);
}

#ifdef __AVX512BF16__
/* Round numbers to bfloat16, and fill up the last pair with zero. */
INLINE void round_pairs(const float *from, int64_t count, char *to) {
    for (int64_t k = 0; k < count; k += WIDTH) {
        int64_t left = count - k, pairs = (left + 1) / 2;
        __m512 x = left < WIDTH ? _mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), from + k) : _mm512_loadu_ps(from + k);
        __m256i rounded = (__m256i)_mm512_cvtneps_pbh(x);
        if (left < WIDTH) _mm256_mask_storeu_epi32(to + 2 * k, (__mmask8)((1u << pairs) - 1), rounded);
        else _mm256_storeu_si256((__m256i *)(to + 2 * k), rounded);
    }
}

/* As `add_numbers`, of numbers of bfloat16, two at a time: vdpbf16ps. `to_next_token` in bytes. Pairs are whole. */
INLINE void add_pairs(const char *a, int64_t to_next_token, const uint16_t *b, int64_t apart, int64_t count, float *c,
                      int64_t stride, const int64_t beyond, const Ahead ahead, const int R, const int P) {
    const char *next = (const char *)b + ahead.bytes;
    Vector sum[TILE][MOST_SIDES];
    const char *third[(TILE + 2) / 3]; /* of the tokens: hidden from GCC, which would keep 12 offsets in vector registers */
    for (int r = 0; r < R; r++)
        for (int h = 0; h < P; h++) sum[r][h] = no_numbers();
    for (int i = 0; 3 * i < R; i++) {
        third[i] = a + 3 * i * to_next_token;
        __asm__("" : "+r"(third[i]));
    }
    for (int64_t k = 0; k < count; k += 2, b += 2 * PANEL) {
        __m512i pairs[MOST_SIDES];
        for (int h = 0; h < P; h++) {
            pairs[h] = _mm512_loadu_si512(b + h * apart);
            if (!IS_NOTHING(ahead)) fetch(b + h * apart, next + 2 * h * apart, R < TILE);
        }
        for (int r = 0; r < R; r++) {
            __m512bh one = (__m512bh)load_one((const float *)(third[r / 3] + r % 3 * to_next_token));
            for (int h = 0; h < P; h++) sum[r][h] = _mm512_dpbf16_ps(sum[r][h], (__m512bh)pairs[h], one);
        }
        for (int i = 0; 3 * i < R; i++) third[i] += 4;
        next += ahead.step;
    }
    for (int r = 0; r < R; r++)
        for (int h = 0; h < P; h++) {
            float *to = c + r * stride + h * beyond;
            store(to, add(load(to), sum[r][h]));
        }
}
#endif

/* ---- whole numbers ---- */

/* What turns whole numbers of a tile and panels into floats, from input `begin` on. */
typedef struct {
    const void *rows;    /* the scales of a panel: [groups, PANEL] */
    const float *tokens; /* those of a tile: [blocks, stride] */
    int64_t stride, group, groups, block, begin; /* groups: from one panel to the next */
    int format; /* of those of the panel */
} Scales;

/* The scales of a group, of P panels. They wait in memory: branches while sums are in registers let compilers spill these. */
INLINE void read_scales(const Scales *s, int64_t group, float *to, const int P) {
    for (int p = 0; p < P; p++, group += s->groups, to += PANEL) {
#ifdef WIDTH
        for (int h = 0; h < PANEL; h += WIDTH) store(to + h, load_numbers(s->rows, group * PANEL + h, s->format));
#else
        for (int i = 0; i < PANEL; i++) to[i] = read_number(s->rows, group * PANEL + i, s->format);
#endif
    }
}

/* How each set is fed, and multiplies:
 *   CODES_OF(inputs, block)  bytes of a token for codes of 8 bits
 *   lay_out_codes            of a block of a token; returns where the next one begins
 *   add_codes                c[r, 0..15] += what inputs begin..begin + count of R tokens and P panels give
 *   lay_out_unit, add_short_codes  likewise for codes of 4 bits, 8 too large, unit after unit */
#define UNIT_BYTES (UNIT + 4) /* of a token: codes [quads of inputs, R, 4], then where sums begin [R], 4 bytes each */

/* The sum of the codes of a block, whose last unit is filled up with zeros. */
INLINE int32_t add_up_codes(const int8_t *codes, const int64_t count) {
#ifdef __AVX512VNNI__
    if (count <= UNIT) {
        __m256i few = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), _mm256_loadu_si256((const __m256i *)codes));
        return _mm512_reduce_add_epi32(_mm512_zextsi256_si512(few));
    }
    __m512i sum = _mm512_setzero_si512(); /* codes are filled up with zeros to whole registers */
    for (int64_t k = 0; k < count; k += 2 * UNIT)
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(codes + k));
    return _mm512_reduce_add_epi32(sum);
#else
    int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < count; k++) sum += codes[k];
    return sum;
#endif
}

#if defined __AVX512VNNI__ || defined __AVXVNNI__ || defined __ARM_FEATURE_DOTPROD
#include "vnni.h"
#else
#define CODE_OFFSET 128
#define CODES_OF(inputs, block) (((inputs) + 3) / 4 * 8 + ((inputs) + (block) - 1) / (block) * 4)

/* As numbers of 16 bits, of each quad the even inputs before the odd ones, then -CODE_OFFSET times their sum: what the offset
 * of the weights makes too much. Returns where the next block begins. */
INLINE char *lay_out_codes(const int8_t *codes, const int64_t count, char *to) {
    int16_t wide[DEEP];
    int32_t sum = -CODE_OFFSET * add_up_codes(codes, count);
#ifdef __AVX2__
    for (int64_t k = 0; k < count; k += 16) {
        __m256i some = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(codes + k)));
        _mm256_storeu_si256((__m256i *)(wide + k), _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(some, 0xd8), 0xd8));
    }
#else
    for (int64_t quad = 0; quad < (count + UNIT - 1) / UNIT * (UNIT / 4); quad++)
        for (int i = 0; i < 4; i++) wide[4 * quad + i] = codes[4 * quad + i % 2 * 2 + i / 2];
#endif
    memcpy(to, wide, (size_t)((count + 3) / 4 * 8));
    memcpy(to + (count + 3) / 4 * 8, &sum, 4);
    return to + (count + 3) / 4 * 8 + 4;
}

/* Four inputs at a time, the even ones and the odd ones by themselves, which a shift makes of bytes. vpmaddwd multiplies 16
 * bits and sums pairs in 32, exactly; vpmaddubsw would take 8 bits, but saturates. */
INLINE void add_codes(const char *a, int64_t to_next_token, const uint8_t *b, int64_t apart, int64_t count, const Scales *s,
                      float *c, int64_t stride, const int64_t beyond, const Ahead ahead, const int R, const int P) {
    int64_t group = s->begin / s->group, next = (group + 1) * s->group; /* blocks are whole parts of groups */
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[MOST_SIDES * PANEL];
    read_scales(s, group, row_scales, P);
    for (int64_t start = 0; start < count; start += s->block, token_scales += s->stride) {
        int64_t quads = (count - start < s->block ? count - start + 3 : s->block) / 4;
        const char *begin = a + 8 * quads;
        if (s->begin + start == next) read_scales(s, ++group, row_scales, P), next += s->group;
#ifdef __AVX2__
        __m256i sum[TILE][2 * MOST_SIDES];
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2 * P; h++)
                sum[r][h] = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(begin + r * to_next_token)));
        for (int64_t k = 0; k < quads; k++, a += 8, b += 4 * PANEL) {
            if (!IS_NOTHING(ahead)) fetch(b, (const char *)b + ahead.bytes, 0);
            for (int p = 0; p < P; p++)
                for (int odd = 0; odd < 2; odd++) {
                    const __m256i *from = (const __m256i *)(b + p * apart), mask = _mm256_set1_epi16(255);
                    __asm__("" : "+r"(from), "+x"(sum[R - 1][2 * p + 1])); /* Clang would keep both halves, and spill sums */
                    __m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);
                    low = odd ? _mm256_srli_epi16(low, 8) : _mm256_and_si256(low, mask);
                    high = odd ? _mm256_srli_epi16(high, 8) : _mm256_and_si256(high, mask);
                    for (int r = 0; r < R; r++) {
                        __m256i one, part; /* in assembly: compilers spill a sum or copy registers, and there are just enough */
                        __asm__("vbroadcastss %[x], %[one]\n\t"
                                "vpmaddwd %[low], %[one], %[part]\n\tvpmaddwd %[high], %[one], %[one]\n\t"
                                "vpaddd %[part], %[first], %[first]\n\tvpaddd %[one], %[second], %[second]"
                                : [first] "+x"(sum[r][2 * p]), [second] "+x"(sum[r][2 * p + 1]), [one] "=&x"(one),
                                  [part] "=&x"(part)
                                : [low] "x"(low), [high] "x"(high), [x] "m"(*(const int32_t *)(a + 4 * odd + r * to_next_token)));
                    }
                }
        }
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2 * P; h++) {
                __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(row_scales + 8 * h), _mm256_broadcast_ss(token_scales + r));
                float *to = c + r * stride + h / 2 * beyond + h % 2 * 8;
                _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][h]), factor, _mm256_loadu_ps(to)));
            }
#else
        (void)apart, (void)beyond, (void)ahead; /* one panel */
        for (int r = 0; r < R; r++) {
            int32_t sum[PANEL];
            for (int i = 0; i < PANEL; i++) memcpy(sum + i, begin + r * to_next_token, 4);
            for (int64_t k = 0; k < quads; k++) {
                const int16_t *one = (const int16_t *)(a + r * to_next_token) + 4 * k;
                const uint8_t *two = b + 4 * k * PANEL;
#pragma omp simd
                for (int i = 0; i < PANEL; i++)
                    sum[i] += one[0] * two[4 * i] + one[2] * two[4 * i + 1] + one[1] * two[4 * i + 2] + one[3] * two[4 * i + 3];
            }
            for (int i = 0; i < PANEL; i++) c[r * stride + i] += (float)sum[i] * (row_scales[i] * token_scales[r]);
        }
        a += quads * 8, b += quads * 4 * PANEL;
#endif
        a += 4; /* where sums began */
    }
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

/* The same of codes of 4 bits, 8 too large, unit after unit. vpmaddubsw multiplies bytes and sums pairs in 16 bits. A lane
 * begins with what the 8 makes too much; on the way it may wrap, but the sum of its 16 products of -8..7 and -127..127 fits. */
INLINE void add_short_codes(const int8_t *a, const uint8_t *b, int64_t apart, int64_t count, const Scales *s, float *c,
                            int64_t stride, const int64_t beyond, const int R, const int P) {
    int64_t group = s->begin / s->group, next = (group + 1) * s->group;
    int64_t next_block = s->begin + s->block;
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[MOST_SIDES * PANEL];
    read_scales(s, group, row_scales, P);
    for (int64_t k = s->begin; k < s->begin + count; k += UNIT, a += R * UNIT_BYTES, b += UNIT / 2 * PANEL) {
        const int8_t *starts = a + R * UNIT;
        if (k == next) read_scales(s, ++group, row_scales, P), next += s->group;
        if (k == next_block) token_scales += s->stride, next_block += s->block;
#ifdef __AVX2__
        __m256i sum[TILE][2 * MOST_SIDES];
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2 * P; h++)
                sum[r][h] = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(starts + 4 * r)));
#ifdef __clang__ /* each compiler keeps 12 sums in registers in one order of the loops alone; sums of whole numbers are alike */
        for (int half = 0; half < 2; half++)
#pragma clang loop unroll(disable)
            for (int64_t quad = 0; quad < UNIT / 8; quad++)
#else
        for (int64_t quad = 0; quad < UNIT / 8; quad++)
            for (int half = 0; half < 2; half++)
#endif
                for (int p = 0; p < P; p++) {
                    const __m256i *from = (const __m256i *)(b + p * apart + quad * 4 * PANEL), mask = _mm256_set1_epi8(15);
                    __m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);
                    low = _mm256_and_si256(half ? _mm256_srli_epi16(low, 4) : low, mask);
                    high = _mm256_and_si256(half ? _mm256_srli_epi16(high, 4) : high, mask);
                    const int8_t *x = a + (half * UNIT / 8 + quad) * R * 4;
                    for (int r = 0; r < R; r++) {
                        __m256i one = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(x + 4 * r)));
                        __m256i part; /* in assembly as above */
                        __asm__("vpmaddubsw %[one], %[low], %[part]\n\tvpmaddubsw %[one], %[high], %[one]\n\t"
                                "vpaddw %[part], %[first], %[first]\n\tvpaddw %[one], %[second], %[second]"
                                : [first] "+x"(sum[r][2 * p]), [second] "+x"(sum[r][2 * p + 1]), [one] "+x"(one),
                                  [part] "=&x"(part)
                                : [low] "x"(low), [high] "x"(high));
                    }
                }
        const __m256i ones = _mm256_set1_epi16(1);
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2 * P; h++) {
                __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(row_scales + 8 * h), _mm256_broadcast_ss(token_scales + r));
                float *to = c + r * stride + h / 2 * beyond + h % 2 * 8;
                __m256 whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[r][h], ones));
                _mm256_storeu_ps(to, _mm256_fmadd_ps(whole, factor, _mm256_loadu_ps(to)));
            }
#else
        (void)apart, (void)beyond; /* one panel */
        for (int r = 0; r < R; r++) {
            int16_t start[2];
            memcpy(start, starts + 4 * r, 4);
            for (int i = 0; i < PANEL; i++) {
                int32_t sum = start[0] + start[1];
                for (int k = 0; k < UNIT; k++)
                    sum += a[(k / 4 * R + r) * 4 + k % 4] * (b[(k / 4 % 4 * PANEL + i) * 4 + k % 4] >> k / 16 * 4 & 15);
                c[r * stride + i] += (float)sum * (row_scales[i] * token_scales[r]);
            }
        }
#endif
    }
}

#endif
#endif
