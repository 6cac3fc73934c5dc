/* Whole numbers by VNNI: vpdpbusd adds to a sum of 32 bits the products of four bytes without a sign and four with one.
 * Weights are those without: 128 is added to codes of 8 bits as they are read, and those of 4 bits are 8 too large as they
 * are stored. So sums begin at what that makes of the activations, which is laid out behind the codes of a block.
 * Included by tiles.h, in two widths. */
#ifdef __AVX512VNNI__
typedef __m512i Codes;
INLINE Codes add_quads(Codes sum, Codes weights, Codes x) { return _mm512_dpbusd_epi32(sum, weights, x); }
INLINE Codes load_quad(const char *x) {
    int32_t quad;
    memcpy(&quad, x, 4);
    return _mm512_set1_epi32(quad);
}
INLINE Codes load_codes(const void *from) { return _mm512_loadu_si512(from); }
INLINE Codes add_whole(Codes x, Codes y) { return _mm512_add_epi32(x, y); }
INLINE Codes low_halves(Codes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
INLINE Codes high_halves(Codes x) { return low_halves(_mm512_srli_epi16(x, 4)); }
INLINE Vector as_floats(Codes x) { return _mm512_cvtepi32_ps(x); }

/* Four inputs of all rows from two pairs [2, 16, 2] (or one): the pairs of a row side by side. */
INLINE void load_quads(const int8_t *b, const int one, Codes to[PARTS]) {
    Codes pairs = one ? _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)b)) : _mm512_loadu_si512(b);
    to[0] = _mm512_xor_si512(join_pairs(pairs), _mm512_set1_epi8(-128));
}
INLINE void order_rows(Codes sum[PARTS]) { (void)sum; }
#else
typedef __m256i Codes;
INLINE Codes add_quads(Codes sum, Codes weights, Codes x) { return _mm256_dpbusd_avx_epi32(sum, weights, x); }
INLINE Codes load_quad(const char *x) { return _mm256_castps_si256(_mm256_broadcast_ss((const float *)x)); }
INLINE Codes load_codes(const void *from) { return _mm256_loadu_si256(from); }
INLINE Codes add_whole(Codes x, Codes y) { return _mm256_add_epi32(x, y); }
INLINE Codes low_halves(Codes x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
INLINE Codes high_halves(Codes x) { return low_halves(_mm256_srli_epi16(x, 4)); }
INLINE Vector as_floats(Codes x) { return _mm256_cvtepi32_ps(x); }

/* Likewise; rows come as 0..3 and 8..11, then 4..7 and 12..15. */
INLINE void load_quads(const int8_t *b, const int one, Codes to[PARTS]) {
    Codes low = load_codes(b), high = one ? low : load_codes(b + 2 * PANEL), sign = _mm256_set1_epi8(-128);
    to[0] = _mm256_xor_si256(_mm256_unpacklo_epi16(low, high), sign);
    to[1] = _mm256_xor_si256(_mm256_unpackhi_epi16(low, high), sign);
}
INLINE void order_rows(Codes sum[PARTS]) {
    Codes first = _mm256_permute2x128_si256(sum[0], sum[1], 0x20);
    sum[1] = _mm256_permute2x128_si256(sum[0], sum[1], 0x31);
    sum[0] = first;
}
#endif

#define CODES_OF(inputs, block) (((inputs) + 3) / 4 * 4 + ((inputs) + (block) - 1) / (block) * 4)
#define CHAINS 4 /* sums of a token that go on side by side where there are few: one waits for itself */

/* Quads of codes [quads, R, 4], then -128 times their sum. */
INLINE void lay_out_codes(const int8_t *codes, int64_t count, char *to, int64_t r, int64_t R) {
    int32_t sum = 0;
    int64_t quads = (count + 3) / 4;
    for (int64_t k = 0; k < count; k++) sum += codes[k];
    for (int64_t k = 0; k < quads; k++) memcpy(to + (k * R + r) * 4, codes + 4 * k, 4);
    sum *= -128;
    memcpy(to + (quads * R + r) * 4, &sum, 4);
}

INLINE void add_codes(const char *a, const int8_t *b, int64_t count, const Scales *s, float *c, const int R) {
    const int chains = R == 1 ? CHAINS : R <= 3 ? 2 : 1;
    int64_t group = s->begin / s->group, next = (group + 1) * s->group; /* blocks are whole parts of groups */
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[PANEL];
    read_scales(s, group, row_scales);
    for (int64_t start = 0; start < count; start += s->block, token_scales += s->stride) {
        int64_t inputs = count - start < s->block ? count - start : s->block, whole = (inputs + 1) / 4, k = 0;
        const char *begin = a + (inputs + 3) / 4 * 4 * R;
        if (s->begin + start == next) read_scales(s, ++group, row_scales), next += s->group;
        Codes sum[CHAINS][TILE][PARTS], quads[PARTS];
        for (int r = 0; r < R; r++)
            for (int i = 0; i < chains; i++)
                for (int h = 0; h < PARTS; h++) sum[i][r][h] = i ? (Codes){0} : load_quad(begin + 4 * r);
        for (; k + chains <= whole; k += chains)
            for (int i = 0; i < chains; i++, a += 4 * R, b += 4 * PANEL) {
                load_quads(b, 0, quads);
                _mm_prefetch((const char *)b + 8192, _MM_HINT_T0);
                for (int r = 0; r < R; r++)
                    for (int h = 0; h < PARTS; h++) sum[i][r][h] = add_quads(sum[i][r][h], quads[h], load_quad(a + 4 * r));
            }
        for (; k * 4 < inputs; k++, a += 4 * R, b += 4 * PANEL) { /* the last quad may have one pair */
            if (k < whole) load_quads(b, 0, quads);
            else load_quads(b, 1, quads);
            for (int r = 0; r < R; r++)
                for (int h = 0; h < PARTS; h++) sum[0][r][h] = add_quads(sum[0][r][h], quads[h], load_quad(a + 4 * r));
        }
        a += 4 * R; /* where sums began */
        for (int r = 0; r < R; r++) {
            for (int i = 1; i < chains; i++)
                for (int h = 0; h < PARTS; h++) sum[0][r][h] = add_whole(sum[0][r][h], sum[i][r][h]);
            order_rows(sum[0][r]);
            for (int h = 0; h < PARTS; h++) {
                float *to = c + r * PANEL + h * WIDTH;
                Vector factor = times(load(row_scales + h * WIDTH), load_one(token_scales + r));
                store(to, add_product(as_floats(sum[0][r][h]), factor, load(to)));
            }
        }
    }
}

/* Quads of codes, then -8 times their sum. */
INLINE void lay_out_unit(const int8_t *codes, int8_t *to, int64_t r, int64_t R) {
    int32_t sum = 0;
    for (int k = 0; k < UNIT; k++) sum += codes[k];
    for (int quad = 0; quad < UNIT / 4; quad++) memcpy(to + (quad * R + r) * 4, codes + 4 * quad, 4);
    sum *= -8;
    memcpy(to + R * UNIT + 4 * r, &sum, 4);
}

INLINE void add_short_codes(const int8_t *tile, const uint8_t *b, int64_t count, const Scales *s, float *c, const int R) {
    const char *a = (const char *)tile;
    int64_t group = s->begin / s->group, next = (group + 1) * s->group;
    int64_t next_block = s->begin + s->block;
    const float *token_scales = s->tokens + s->begin / s->block * s->stride;
    float row_scales[PANEL];
    read_scales(s, group, row_scales);
    for (int64_t k = s->begin; k < s->begin + count; k += UNIT, a += R * UNIT_BYTES, b += UNIT / 2 * PANEL) {
        if (k == next) read_scales(s, ++group, row_scales), next += s->group;
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
            _mm_prefetch((const char *)b + quad * 4 * PANEL + 8192, _MM_HINT_T0);
            for (int r = 0; r < R; r++)
                for (int h = 0; h < PARTS; h++) {
                    sum[r][h] = add_quads(sum[r][h], low[h], load_quad(a + (quad * R + r) * 4));
                    sum[r][h] = add_quads(sum[r][h], high[h], load_quad(a + ((quad + UNIT / 8) * R + r) * 4));
                }
        }
        for (int r = 0; r < R; r++)
            for (int h = 0; h < PARTS; h++) {
                float *to = c + r * PANEL + h * WIDTH;
                Vector factor = times(load(row_scales + h * WIDTH), load_one(token_scales + r));
                store(to, add_product(as_floats(sum[r][h]), factor, load(to)));
            }
    }
}
