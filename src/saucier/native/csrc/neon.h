/* NEON with dot products (armv8.2-a), for what is written for any registers: floats for numbers.h, whole numbers for
 * vnni.h. Two registers are one, since there are 32. SDOT multiplies bytes with signs, so that codes of 8 bits lose their
 * offset as they are read; those of 4 bits are 8 too large here too, which costs nothing. Included by numbers.h. */
#ifndef __clang__ /* GCC has them from armv8.2-a on only; the flag that says so is not known to Zig */
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#include <arm_neon.h>

#define WIDTH 8
typedef struct { float32x4_t low, high; } Vector;
INLINE Vector no_numbers(void) { return (Vector){vdupq_n_f32(0), vdupq_n_f32(0)}; }
INLINE Vector load(const float *from) { return (Vector){vld1q_f32(from), vld1q_f32(from + 4)}; }
INLINE Vector load_one(const float *from) { return (Vector){vld1q_dup_f32(from), vld1q_dup_f32(from)}; }
INLINE void store(float *to, Vector x) { vst1q_f32(to, x.low), vst1q_f32(to + 4, x.high); }
INLINE Vector times(Vector x, Vector y) { return (Vector){vmulq_f32(x.low, y.low), vmulq_f32(x.high, y.high)}; }
INLINE Vector add(Vector x, Vector y) { return (Vector){vaddq_f32(x.low, y.low), vaddq_f32(x.high, y.high)}; }
INLINE Vector add_product(Vector x, Vector y, Vector sum) {
    return (Vector){vfmaq_f32(sum.low, x.low, y.low), vfmaq_f32(sum.high, x.high, y.high)};
}
INLINE Vector larger(Vector x, Vector y) { return (Vector){vmaxnmq_f32(x.low, y.low), vmaxnmq_f32(x.high, y.high)}; }
INLINE float largest_of(Vector x) { return vmaxnmvq_f32(vmaxnmq_f32(x.low, x.high)); }
INLINE float add_up(Vector x) { return vaddvq_f32(vaddq_f32(x.low, x.high)); }
INLINE void interleave(Vector x, Vector y, Vector to[2]) {
    to[0] = (Vector){vzip1q_f32(x.low, y.low), vzip2q_f32(x.low, y.low)};
    to[1] = (Vector){vzip1q_f32(x.high, y.high), vzip2q_f32(x.high, y.high)};
}
INLINE Vector load_numbers(const void *from, int64_t place, int format) {
    if (format == FLOAT32) return load((const float *)from + place);
    uint16x8_t bits = vld1q_u16((const uint16_t *)from + place), none = vdupq_n_u16(0);
    if (format == FLOAT16)
        return (Vector){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits))),
                        vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(bits)))};
    return (Vector){vreinterpretq_f32_u16(vzip1q_u16(none, bits)), vreinterpretq_f32_u16(vzip2q_u16(none, bits))};
}
/* The even ones of so many pairs of bfloat16 as a register has numbers, and the odd ones. */
INLINE Vector load_even(const void *pairs) {
    const uint32_t *from = pairs;
    return (Vector){vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(from), 16)),
                    vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(from + 4), 16))};
}
INLINE Vector load_odd(const void *pairs) {
    const uint32x4_t high = vdupq_n_u32(0xffff0000);
    const uint32_t *from = pairs;
    return (Vector){vreinterpretq_f32_u32(vandq_u32(vld1q_u32(from), high)),
                    vreinterpretq_f32_u32(vandq_u32(vld1q_u32(from + 4), high))};
}

typedef struct { int32x4_t low, high; } Codes; /* four bytes each, or a sum */
#define CODE_OFFSET 0
#define BYTES(x) vreinterpretq_s8_s32(x)
#define BOTH(DO, x, y) (Codes){DO((x).low, (y).low), DO((x).high, (y).high)}
INLINE Codes load_quad(const char *x) {
    int32_t quad;
    memcpy(&quad, x, 4);
    return (Codes){vdupq_n_s32(quad), vdupq_n_s32(quad)};
}
INLINE void add_quads(Codes *sum, Codes weights, const char *x) {
    int8x16_t one = BYTES(load_quad(x).low);
    sum->low = vdotq_s32(sum->low, BYTES(weights.low), one);
    sum->high = vdotq_s32(sum->high, BYTES(weights.high), one);
}
INLINE Codes load_codes(const void *from) { return (Codes){vld1q_s32(from), vld1q_s32((const int32_t *)from + 4)}; }
INLINE Codes low_halves(Codes x) {
    Codes mask = {vdupq_n_s32(0x0f0f0f0f), vdupq_n_s32(0x0f0f0f0f)};
    return BOTH(vandq_s32, x, mask);
}
INLINE int32x4_t high_half(int32x4_t x) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(x), 4)); }
INLINE Codes high_halves(Codes x) { return (Codes){high_half(x.low), high_half(x.high)}; }
INLINE Vector as_floats(Codes x) { return (Vector){vcvtq_f32_s32(x.low), vcvtq_f32_s32(x.high)}; }

INLINE Codes load_weights(const uint8_t *from) {
    const int32x4_t sign = vdupq_n_s32((int32_t)0x80808080);
    Codes found = load_codes(from);
    return (Codes){veorq_s32(found.low, sign), veorq_s32(found.high, sign)};
}
