/* Numbers: those that are stored in 16 bits, and e^x. Included by what is compiled once for each instruction set. */
#ifndef NUMBERS_H
#define NUMBERS_H
#include <math.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "saucier.h"

#define INLINE static inline __attribute__((always_inline))

INLINE float widen_bfloat16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

INLINE float widen_float16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff, wide;
    float value;
    if (rest >= 0x7c00) wide = 0x7f800000 | rest << 13;     /* infinite, or none */
    else if (rest >= 0x0400) wide = (rest << 13) + 0x38000000;
    else {                                                   /* subnormal: rest * 2^-24 */
        value = (float)rest * 5.9604644775390625e-8f;
        memcpy(&wide, &value, 4);
    }
    wide |= sign;
    memcpy(&value, &wide, 4);
    return value;
}

/* The nearest number of bfloat16, the even one of two; what is none stays none. Without branches. */
INLINE uint16_t narrow_bfloat16(float value) {
    uint32_t wide;
    memcpy(&wide, &value, 4);
    uint32_t nearest = (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
    return (uint16_t)((wide & 0x7fffffff) > 0x7f800000 ? wide >> 16 | 0x40 : nearest);
}

/* Where a number lies among those of a format, FLOAT32 or one of 16 bits. */
INLINE const void *number_at(const void *from, int64_t place, int format) {
    return (const char *)from + place * (format == FLOAT32 ? 4 : 2);
}

INLINE float read_number(const void *from, int64_t place, int format) {
    if (format == FLOAT32) return ((const float *)from)[place];
    uint16_t bits = ((const uint16_t *)from)[place];
    return format == BFLOAT16 ? widen_bfloat16(bits) : widen_float16(bits);
}

/* A register of floats, of as many as the set has; all that takes them is written once. */
#ifdef __AVX512F__
#define WIDTH 16
typedef __m512 Vector;
INLINE Vector no_numbers(void) { return _mm512_setzero_ps(); }
INLINE Vector load(const float *from) { return _mm512_loadu_ps(from); }
INLINE Vector load_one(const float *from) { return _mm512_set1_ps(*from); }
INLINE void store(float *to, Vector x) { _mm512_storeu_ps(to, x); }
INLINE Vector times(Vector x, Vector y) { return _mm512_mul_ps(x, y); }
INLINE Vector add(Vector x, Vector y) { return _mm512_add_ps(x, y); }
INLINE Vector add_product(Vector x, Vector y, Vector sum) { return _mm512_fmadd_ps(x, y, sum); }
INLINE float add_up(Vector x) { return _mm512_reduce_add_ps(x); }
INLINE void interleave(Vector x, Vector y, Vector to[2]) { /* x0 y0 x1 y1 .. */
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    to[0] = _mm512_permutex2var_ps(x, first, y);
    to[1] = _mm512_permutex2var_ps(x, _mm512_add_epi32(first, _mm512_set1_epi32(8)), y);
}
INLINE Vector load_numbers(const void *from, int64_t place, int format) {
    if (format == FLOAT32) return _mm512_loadu_ps((const float *)from + place);
    __m256i bits = _mm256_loadu_si256((const __m256i *)((const uint16_t *)from + place));
    if (format == FLOAT16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
/* The even ones of so many pairs of bfloat16 as a register has numbers, and the odd ones. */
INLINE Vector load_even(const void *pairs) { return (Vector)_mm512_slli_epi32(_mm512_loadu_si512(pairs), 16); }
INLINE Vector load_odd(const void *pairs) {
    return (Vector)_mm512_and_si512(_mm512_loadu_si512(pairs), _mm512_set1_epi32(-65536));
}
/* The first of some numbers, so many or a whole register; zeros fill it up. */
INLINE Vector load_first(const float *from, int64_t count) {
    if (count >= WIDTH) return load(from);
    return _mm512_maskz_loadu_ps((__mmask16)(count > 0 ? (1 << count) - 1 : 0), from);
}
INLINE Vector absolute(Vector x) { return _mm512_abs_ps(x); }
INLINE Vector larger(Vector x, Vector y) { return _mm512_max_ps(x, y); } /* y where x is no number */
INLINE float largest_of(Vector x) { return _mm512_reduce_max_ps(x); }
INLINE __m512i round_some(Vector x) {
    const __m512i half = (__m512i)_mm512_set1_ps(0.5f), sign = _mm512_set1_epi32(INT32_MIN);
    return _mm512_cvttps_epi32(add(x, (Vector)_mm512_ternarylogic_epi32(half, (__m512i)x, sign, 0xf8)));
}
/* To the nearest whole numbers, halves away from zero, in a byte each. Lanes of 128 bits are packed by themselves. */
#define CODES_AT_ONCE 64
INLINE void round_away(const Vector x[4], int8_t *to) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i first = _mm512_packs_epi32(round_some(x[0]), round_some(x[1]));
    __m512i second = _mm512_packs_epi32(round_some(x[2]), round_some(x[3]));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second)));
}
#elif defined __AVX2__
#define WIDTH 8
typedef __m256 Vector;
INLINE Vector no_numbers(void) { return _mm256_setzero_ps(); }
INLINE Vector load(const float *from) { return _mm256_loadu_ps(from); }
INLINE Vector load_one(const float *from) { return _mm256_broadcast_ss(from); }
INLINE void store(float *to, Vector x) { _mm256_storeu_ps(to, x); }
INLINE Vector times(Vector x, Vector y) { return _mm256_mul_ps(x, y); }
INLINE Vector add(Vector x, Vector y) { return _mm256_add_ps(x, y); }
INLINE Vector add_product(Vector x, Vector y, Vector sum) { return _mm256_fmadd_ps(x, y, sum); }
INLINE float add_up(Vector x) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
INLINE void interleave(Vector x, Vector y, Vector to[2]) {
    Vector low = _mm256_unpacklo_ps(x, y), high = _mm256_unpackhi_ps(x, y);
    to[0] = _mm256_permute2f128_ps(low, high, 0x20);
    to[1] = _mm256_permute2f128_ps(low, high, 0x31);
}
INLINE Vector load_numbers(const void *from, int64_t place, int format) {
    if (format == FLOAT32) return _mm256_loadu_ps((const float *)from + place);
    __m128i bits = _mm_loadu_si128((const __m128i *)((const uint16_t *)from + place));
    if (format == FLOAT16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
INLINE Vector load_even(const void *pairs) {
    return (Vector)_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)pairs), 16);
}
INLINE Vector load_odd(const void *pairs) {
    return (Vector)_mm256_and_si256(_mm256_loadu_si256((const __m256i *)pairs), _mm256_set1_epi32(-65536));
}
INLINE Vector load_first(const float *from, int64_t count) {
    if (count >= WIDTH) return load(from);
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(count > 0 ? (int)count : 0), place));
}
INLINE Vector absolute(Vector x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
INLINE Vector larger(Vector x, Vector y) { return _mm256_max_ps(x, y); }
INLINE float largest_of(Vector x) {
    __m128 most = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    most = _mm_max_ps(most, _mm_movehl_ps(most, most));
    return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}
INLINE __m256i round_some(Vector x) {
    Vector away = _mm256_or_ps(_mm256_and_ps(x, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(0.5f));
    return _mm256_cvttps_epi32(add(x, away));
}
#define CODES_AT_ONCE 32
INLINE void round_away(const Vector x[4], int8_t *to) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i first = _mm256_packs_epi32(round_some(x[0]), round_some(x[1]));
    __m256i second = _mm256_packs_epi32(round_some(x[2]), round_some(x[3]));
    _mm256_storeu_si256((__m256i *)to, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order));
}
#elif defined __ARM_FEATURE_DOTPROD
#include "neon.h"
#endif

#ifdef WIDTH
/* Turn columns into rows: [WIDTH, WIDTH], rows `stride` from each other on both sides. Every round interleaves the first half
 * of the registers with the second one. */
INLINE void transpose(const float *from, int64_t stride, float *to, int64_t to_stride) {
    Vector x[WIDTH], y[WIDTH];
    for (int i = 0; i < WIDTH; i++) x[i] = load(from + i * stride);
    for (int round = 1; round < WIDTH; round *= 2) {
        for (int i = 0; i < WIDTH / 2; i++) interleave(x[i], x[i + WIDTH / 2], y + 2 * i);
        for (int i = 0; i < WIDTH; i++) x[i] = y[i];
    }
    for (int i = 0; i < WIDTH; i++) store(to + i * to_stride, x[i]);
}
#endif

/* The sum of whole panels of numbers. GCC adds up what `reduction` leaves in a register one number after the other. */
INLINE float add_all(const float *x, int64_t count) {
#ifdef WIDTH
    Vector sum = no_numbers();
    for (int64_t t = 0; t < count; t += WIDTH) sum = add(sum, load(x + t));
    return add_up(sum);
#else
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t t = 0; t < count; t++) sum += x[t];
    return sum;
#endif
}

/* The largest of some numbers. Clang does not vectorize `reduction(max)`. */
INLINE float find_largest(const float *x, int64_t count) {
    float largest = -INFINITY;
    int64_t t = 0;
#ifdef WIDTH
    Vector most = load_one(&largest);
    for (; t + WIDTH <= count; t += WIDTH) most = larger(load(x + t), most);
    largest = largest_of(most);
#endif
    for (; t < count; t++) largest = x[t] > largest ? x[t] : largest;
    return largest;
}

/* x * y + z, in one instruction where the set has it. By themselves compilers may choose it in one of two loops, which then
 * give different numbers for the same token. */
INLINE float multiply_add(float x, float y, float z) {
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fmaf(x, y, z);
#else
    return x * y + z;
#endif
}

/* e^x for x from -87 to 88, to about one unit in the last place; Cephes' expf in a form that compilers vectorize: without
 * branches, and rounded to a whole number by adding one so large that nothing behind the point is left. */
INLINE float exponential_within(float x) {
    const float large = 12582912.0f; /* 1.5 * 2^23 */
    float shifted = multiply_add(x, 1.44269504f, large), whole = shifted - large;
    float rest = multiply_add(whole, 2.12194440e-4f, multiply_add(whole, -0.693359375f, x));
    float sum = multiply_add(1.9875691500e-4f, rest, 1.3981999507e-3f);
    sum = multiply_add(sum, rest, 8.3334519073e-3f);
    sum = multiply_add(sum, rest, 4.1665795894e-2f);
    sum = multiply_add(sum, rest, 1.6666665459e-1f);
    sum = multiply_add(sum, rest, 5.0000001201e-1f);
    sum = multiply_add(sum * rest, rest, rest + 1.0f);
    int32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (int32_t)((uint32_t)(bits + 127) << 23); /* the large number's own bits are shifted out */
    float power;
    memcpy(&power, &bits, 4);
    return sum * power;
}

INLINE float exponential(float x) {
    x = x > -87.0f ? x : -87.0f;
    return exponential_within(x < 88.0f ? x : 88.0f);
}
#endif
