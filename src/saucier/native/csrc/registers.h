/* Registers of AMX, and products of floats by them: a float is split in two numbers of bfloat16, itself, rounded, and what that
 * leaves of it, rounded. Both halves take the place of the floats: of vectors 32 numbers, then their rests. Included by what
 * attends and multiplies, for the set that has them. */
#ifndef REGISTERS_H
#define REGISTERS_H
#define REGISTER_ROWS 16
#define REGISTER_BYTES 64
#define SPLIT 32 /* numbers of a step */

/* Registers of tokens (4, 5) have so many bytes of each, those of panels (6, 7) a quarter of that in rows, all others are sums
 * (0 to 3). `tokens`: rows of the first two kinds, 16 at most. */
INLINE void shape_registers(int64_t width, int64_t tokens) {
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.bytes[i] = (uint16_t)(i == 4 || i == 5 ? width : REGISTER_BYTES);
        shapes.rows[i] = (uint8_t)(i >= 6 ? width / 4 : tokens);
    }
    _tile_loadconfig(&shapes);
}

INLINE Vector round_half(Vector x) { /* to bfloat16 */
    return (Vector)_mm512_and_si512(_mm512_add_epi32((__m512i)x, _mm512_set1_epi32(1 << 15)), _mm512_set1_epi32(-65536));
}

/* A step of a vector, of so many numbers, filled up with zeros. */
INLINE void split_vector(const float *from, int64_t count, float *to) {
    Vector first = load_first(from, count), second = load_first(from + WIDTH, count - WIDTH);
    Vector half = round_half(first), other = round_half(second);
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(other, half));
    _mm512_storeu_si512(to + WIDTH, (__m512i)_mm512_cvtne2ps_pbh(_mm512_sub_ps(second, other), _mm512_sub_ps(first, half)));
}

/* Panels of pairs of inputs: a step of one has 16 rows, `stride` bytes from each other, and takes `step` bytes; the next panel
 * lies `apart`, in bytes too. `rests`: of its numbers follow them, in 16 rows more; without, they are what bfloat16 stores. */
typedef struct {
    const char *at;
    int64_t stride, step, apart;
} Pairs;

/* Begin the sums of panels, four at most. */
INLINE void begin_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* Add what `inputs` of vectors, `to_next` floats from each other, give with P panels. Three products stand for one of floats, all
 * but that of the rests, which is 2^-16 of it at most, and two for one with stored numbers. */
INLINE void add_split(const float *x, int64_t to_next, Pairs panels, int64_t inputs, const int rests, const int P) {
    __asm__ volatile("" : : : "memory"); /* GCC does not know that registers are loaded from there */
    for (int64_t k = 0; k < inputs; k += SPLIT, x += SPLIT, panels.at += panels.step) {
        _tile_loadd(4, x, to_next * 4);
        _tile_loadd(5, x + WIDTH, to_next * 4);
#define LOAD_PANEL(p, into, rest) \
    if (p < P) _tile_loadd(into, panels.at + p * panels.apart + rest * REGISTER_ROWS * REGISTER_BYTES, panels.stride);
#define MEET_PANEL(p, half, weights) \
    if (p < P) _tile_dpbf16ps(p, half, weights);
#define MEET_TWO(p, q) /* a register waits long for its own sums: two take turns */ \
        LOAD_PANEL(p, 6, 0) LOAD_PANEL(q, 7, 0) \
        MEET_PANEL(p, 4, 6) MEET_PANEL(q, 4, 7) MEET_PANEL(p, 5, 6) MEET_PANEL(q, 5, 7)
#define MEET_RESTS(p, q) LOAD_PANEL(p, 6, 1) LOAD_PANEL(q, 7, 1) MEET_PANEL(p, 4, 6) MEET_PANEL(q, 4, 7)
        MEET_TWO(0, 1) MEET_TWO(2, 3)
        if (rests) {
            MEET_RESTS(0, 1) MEET_RESTS(2, 3)
        }
    }
}

/* to[r, 0..16 P] = the sums. */
INLINE void store_sums(float *to, int64_t stride, const int P) {
#define STORE_PANEL(p) \
    if (p < P) _tile_stored(p, to + p * PANEL, stride * 4);
    STORE_PANEL(0) STORE_PANEL(1) STORE_PANEL(2) STORE_PANEL(3)
    __asm__ volatile("" : : : "memory");
}

/* The case of so many panels. */
#define EACH_PANELS(panels, DO) \
    switch (panels) { \
        case 1: DO(1); break; \
        case 2: DO(2); break; \
        case 3: DO(3); break; \
        default: DO(4); \
    }
INLINE int64_t split_up(int64_t count) { return (count + SPLIT - 1) / SPLIT * SPLIT; }
#endif
