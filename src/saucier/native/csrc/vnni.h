/* Whole numbers by instructions that sum four products of bytes: VNNI here, NEON in neon.h.
 * vpdpbusd adds to a sum of 32 bits the products of four bytes without a sign and four with one. Weights are those without:
 * codes of 8 bits are stored 128 too large, and those of 4 bits 8. So sums begin at what that makes of the activations, which
 * is laid out behind the codes of a block. Included by tiles.h, for each set. */
#ifdef __AVX512VNNI__
#define CODE_OFFSET 128
typedef __m512i Codes;
INLINE void add_quads(Codes *sum, Codes weights, const char *x) { /* in assembly: GCC copies the sums around */
    __asm__("vpdpbusd %[x]%{1to16%}, %[weights], %[sum]"
            : [sum] "+v"(*sum) : [weights] "v"(weights), [x] "m"(*(const int32_t *)x));
}
INLINE void add_quads_of_two(Codes *sum, const Codes *weights, const char *x) { /* one load for both: loads are the limit */
    Codes one;
    __asm__("vpbroadcastd %[x], %[one]\n\tvpdpbusd %[one], %[left], %[first]\n\tvpdpbusd %[one], %[right], %[second]"
            : [first] "+v"(sum[0]), [second] "+v"(sum[1]), [one] "=&v"(one)
            : [left] "v"(weights[0]), [right] "v"(weights[1]), [x] "m"(*(const int32_t *)x));
}
#define MEET_BOTH(x, first, second) \
    "vpbroadcastd " x ", %%zmm29\n\tvpdpbusd %%zmm29, %%zmm30, %[" first "]\n\tvpdpbusd %%zmm29, %%zmm31, %[" second "]\n\t"
#define MEET_FEW(x, w) \
    "vmovdqu64 " w "(%%r10), %%zmm30\n\tvmovdqu64 " w "(%%r10,%[apart]), %%zmm31\n\t" \
    MEET_BOTH(x "(%%r8)", "s0", "t0") MEET_BOTH(x "(%%r8,%[next])", "s1", "t1") MEET_BOTH(x "(%%r8,%[next],2)", "s2", "t2") \
    MEET_BOTH(x "(%%r9)", "s3", "t3") MEET_BOTH(x "(%%r9,%[next])", "s4", "t4") MEET_BOTH(x "(%%r9,%[next],2)", "s5", "t5")
/* Of FEW tokens and two panels what 16 inputs give, `count` times. GCC moves the sums of a loop to other registers and back, and
 * puts half of what was found so far into memory for want of registers; here it cannot. */
INLINE void add_quads_of_few(Codes (*sum)[MOST_SIDES], const char *a, int64_t next, const uint8_t *b, int64_t apart,
                             int64_t count) {
    __asm__("mov %[a], %%r8\n\tlea (%[next],%[next],2), %%r9\n\tadd %[a], %%r9\n\tmov %[b], %%r10\n\tmov %[count], %%rcx\n"
            "1:\n\t" MEET_FEW("0", "0") MEET_FEW("4", "64") MEET_FEW("8", "128") MEET_FEW("12", "192")
            "add $16, %%r8\n\tadd $16, %%r9\n\tadd $256, %%r10\n\tdec %%rcx\n\tjnz 1b"
            : [s0] "+v"(sum[0][0]), [t0] "+v"(sum[0][1]), [s1] "+v"(sum[1][0]), [t1] "+v"(sum[1][1]), [s2] "+v"(sum[2][0]),
              [t2] "+v"(sum[2][1]), [s3] "+v"(sum[3][0]), [t3] "+v"(sum[3][1]), [s4] "+v"(sum[4][0]), [t4] "+v"(sum[4][1]),
              [s5] "+v"(sum[5][0]), [t5] "+v"(sum[5][1])
            : [a] "r"(a), [next] "r"(next), [b] "r"(b), [apart] "r"(apart), [count] "r"(count)
            : "r8", "r9", "r10", "rcx", "xmm29", "xmm30", "xmm31", "cc", "memory");
}
INLINE Codes load_quad(const char *x) {
    int32_t quad;
    memcpy(&quad, x, 4);
    return _mm512_set1_epi32(quad);
}
INLINE Codes load_codes(const void *from) { return _mm512_loadu_si512(from); }
INLINE Codes low_halves(Codes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
INLINE Codes high_halves(Codes x) { return low_halves(_mm512_srli_epi16(x, 4)); }
INLINE Vector as_floats(Codes x) { return _mm512_cvtepi32_ps(x); }
#elif defined __AVXVNNI__
#define CODE_OFFSET 128
typedef __m256i Codes;
INLINE Codes load_quad(const char *x) { return _mm256_castps_si256(_mm256_broadcast_ss((const float *)x)); }
INLINE void add_quads(Codes *sum, Codes weights, const char *x) {
    *sum = _mm256_dpbusd_avx_epi32(*sum, weights, load_quad(x));
}
INLINE Codes load_codes(const void *from) { return _mm256_loadu_si256(from); }
INLINE Codes low_halves(Codes x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
INLINE Codes high_halves(Codes x) { return low_halves(_mm256_srli_epi16(x, 4)); }
INLINE Vector as_floats(Codes x) { return _mm256_cvtepi32_ps(x); }
#endif

#define CODES_OF(inputs, block) (((inputs) + 3) / 4 * 4 + ((inputs) + (block) - 1) / (block) * 4)

#if CODE_OFFSET /* NEON takes it away */
INLINE Codes load_weights(const uint8_t *from) { return load_codes(from); }
#endif

/* Codes, then -CODE_OFFSET times their sum; returns where the next block begins. */
INLINE char *lay_out_codes(const int8_t *codes, const int64_t count, char *to) {
    int32_t sum = -CODE_OFFSET * add_up_codes(codes, count);
    memcpy(to, codes, (size_t)((count + 3) / 4 * 4));
    memcpy(to + (count + 3) / 4 * 4, &sum, 4);
    return to + (count + 3) / 4 * 4 + 4;
}

/* Add what a tile found, in steps of the scales of its rows, and begin again. */
INLINE void end_group(Vector (*found)[MOST_SIDES * PARTS], const float *row_scales, float *c, int64_t stride,
                      const int64_t beyond, const int R, const int P) {
    for (int r = 0; r < R; r++)
        for (int h = 0; h < P * PARTS; h++) {
            float *to = c + r * stride + h / PARTS * beyond + h % PARTS * WIDTH;
            store(to, add_product(found[r][h], load(row_scales + h * WIDTH), load(to)));
            found[r][h] = no_numbers();
        }
}

/* Add to sums of whole numbers what four inputs give. */
INLINE void add_quad(Codes (*sum)[MOST_SIDES * PARTS], const char *a, int64_t to_next_token, const uint8_t *b, int64_t apart,
                     const int R, const int P) {
    Codes quads[MOST_SIDES * PARTS];
    for (int p = 0; p < P; p++)
        for (int h = 0; h < PARTS; h++) quads[p * PARTS + h] = load_weights(b + p * apart + h * 4 * WIDTH);
    for (int r = 0; r < R; r++) {
#ifdef __AVX512VNNI__
        if (P == 2) add_quads_of_two(sum[r], quads, a + r * to_next_token);
        else
#endif
            for (int h = 0; h < P * PARTS; h++) add_quads(&sum[r][h], quads[h], a + r * to_next_token);
    }
}

INLINE void add_codes(const char *a, int64_t to_next_token, const uint8_t *b, int64_t apart, int64_t count, const Scales *s,
                      float *c, int64_t stride, const int64_t beyond, const Ahead ahead, const int R, const int P) {
    int64_t group = s->begin / s->group, following = (group + 1) * s->group; /* blocks are whole parts of groups */
    const char *next = (const char *)b + ahead.bytes;
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[MOST_SIDES * PANEL];
    Vector found[TILE][MOST_SIDES * PARTS];
    for (int r = 0; r < R; r++)
        for (int h = 0; h < P * PARTS; h++) found[r][h] = no_numbers();
    read_scales(s, group, row_scales, P);
    for (int64_t start = 0; start < count; start += s->block, token_scales += s->stride) {
        int64_t inputs = count - start < s->block ? count - start : s->block, quads = (inputs + 3) / 4;
        const char *begin = a + 4 * quads;
        if (s->begin + start == following) {
            end_group(found, row_scales, c, stride, beyond, R, P);
            read_scales(s, ++group, row_scales, P), following += s->group;
        }
        /* One sum each, of one token too: several at once outrun the memory, which then stalls. */
        Codes sum[TILE][MOST_SIDES * PARTS];
        for (int r = 0; r < R; r++)
            for (int h = 0; h < P * PARTS; h++) sum[r][h] = load_quad(begin + r * to_next_token);
        int64_t k = 0;
#ifdef __AVX512VNNI__
        if (R == FEW && P == 2 && IS_NOTHING(ahead) && quads >= 4) {
            add_quads_of_few(sum, a, to_next_token, b, apart, quads / 4);
            k = quads / 4 * 4, a += 4 * k, b += 4 * PANEL * k;
        }
#endif
#pragma GCC unroll 4
        for (; k < quads; k++, a += 4, b += 4 * PANEL) {
            if (!IS_NOTHING(ahead))
                for (int p = 0; p < P; p++) fetch(b + p * apart, next + p * apart, P != 2 || R < FEW);
            next += ahead.step;
            add_quad(sum, a, to_next_token, b, apart, R, P);
        }
        a += 4; /* where sums began */
        for (int r = 0; r < R; r++)
            for (int h = 0; h < P * PARTS; h++)
                found[r][h] = add_product(as_floats(sum[r][h]), load_one(token_scales + r), found[r][h]);
    }
    end_group(found, row_scales, c, stride, beyond, R, P);
}

/* Quads of codes, then -8 times their sum. */
INLINE void lay_out_unit(const int8_t *codes, int8_t *to, int64_t r, int64_t R) {
    int32_t sum = -8 * add_up_codes(codes, UNIT);
    for (int quad = 0; quad < UNIT / 4; quad++) memcpy(to + (quad * R + r) * 4, codes + 4 * quad, 4);
    memcpy(to + R * UNIT + 4 * r, &sum, 4);
}

INLINE void add_short_codes(const int8_t *tile, const uint8_t *b, int64_t apart, int64_t count, const Scales *s, float *c,
                            int64_t stride, const int64_t beyond, const int R, const int P) {
    (void)apart, (void)beyond, (void)P; /* one panel */
    const char *a = (const char *)tile;
    int64_t group = s->begin / s->group, next = (group + 1) * s->group;
    int64_t next_block = s->begin + s->block;
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[PANEL];
    Vector found[TILE][PARTS];
    for (int r = 0; r < R; r++)
        for (int h = 0; h < PARTS; h++) found[r][h] = load(c + r * stride + h * WIDTH);
    read_scales(s, group, row_scales, 1);
    for (int64_t k = s->begin; k < s->begin + count; k += UNIT, a += R * UNIT_BYTES, b += UNIT / 2 * PANEL) {
        if (k == next) read_scales(s, ++group, row_scales, 1), next += s->group;
        if (k == next_block) token_scales += s->stride, next_block += s->block;
        Codes sum[TILE][PARTS];
        for (int r = 0; r < R; r++)
            for (int h = 0; h < PARTS; h++) sum[r][h] = load_quad(a + R * UNIT + 4 * r);
        for (int quad = 0; quad < UNIT / 8; quad++) {
            Codes low[PARTS], high[PARTS];
            for (int h = 0; h < PARTS; h++) {
                Codes both = load_codes(b + quad * 4 * PANEL + h * 4 * WIDTH);
                low[h] = low_halves(both), high[h] = high_halves(both);
            }
            fetch(b + quad * 4 * PANEL, (const char *)b + quad * 4 * PANEL + AHEAD, R < TILE);
#pragma clang loop unroll(full) /* of 11 and 12 tokens it would not, and keep the sums in memory */
            for (int r = 0; r < R; r++)
                for (int h = 0; h < PARTS; h++) {
                    add_quads(&sum[r][h], low[h], a + (quad * R + r) * 4);
                    add_quads(&sum[r][h], high[h], a + ((quad + UNIT / 8) * R + r) * 4);
                }
        }
        for (int r = 0; r < R; r++)
            for (int h = 0; h < PARTS; h++) {
                Vector factor = times(load(row_scales + h * WIDTH), load_one(token_scales + r));
                found[r][h] = add_product(as_floats(sum[r][h]), factor, found[r][h]);
            }
    }
    for (int r = 0; r < R; r++)
        for (int h = 0; h < PARTS; h++) store(c + r * stride + h * WIDTH, found[r][h]);
}
