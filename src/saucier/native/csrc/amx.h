/* Products by AMX, whose registers hold 16 rows of 64 bytes: one of 16 tokens meets one of a panel, just as it lies in memory,
 * and gives 256 sums in 16 cycles, of however many tokens. Codes of 8 bits are summed exactly within a block, and then in
 * floats, to the last bit as vnni.h does it, which is as fast for a few tokens; numbers of bfloat16 in pairs, from the first
 * part to the last. Included by rows.c, for the set that has it.
 * Registers: 0..3 sums of tile t and panel p (t + 2p), 4 and 5 tokens, 6 and 7 panels. */
#define REGISTER_ROWS 16
#define REGISTER_BYTES 64
#define TOKENS_TOGETHER (2 * REGISTER_ROWS)

/* What a register has of a token: inputs, and their bytes. Blocks of 32 codes fill half of it. */
INLINE int64_t inputs_at_once(const Panels *m) {
    return m->format == BFLOAT16 || rounded_inputs(m) == UNIT ? REGISTER_BYTES / 2 : REGISTER_BYTES;
}
INLINE int64_t bytes_at_once(const Panels *m) { return m->format == BFLOAT16 ? REGISTER_BYTES : inputs_at_once(m); }
INLINE int64_t registers_of(const Panels *m, int64_t inputs) { return (inputs + inputs_at_once(m) - 1) / inputs_at_once(m); }

/* Bytes of a token, in registers of 16 tokens; where blocks of codes have sums to begin at, these lie behind: [blocks, 16]. */
INLINE int64_t register_bytes(const Panels *m) {
    int64_t blocks = m->format == BFLOAT16 ? 0 : (m->inputs + rounded_inputs(m) - 1) / rounded_inputs(m);
    return registers_of(m, m->inputs) * bytes_at_once(m) + blocks * 4;
}
INLINE int32_t *starts_of(const Panels *m, char *tile) {
    return (int32_t *)(tile + registers_of(m, m->inputs) * bytes_at_once(m) * REGISTER_ROWS);
}

/* Lay out a block of codes, from input k on, as token r of a tile. They are filled up with zeros, to 64. */
INLINE void fill_registers(const Panels *m, const int8_t *codes, int64_t k, int64_t count, char *tile, int64_t r) {
    int64_t width = inputs_at_once(m);
    starts_of(m, tile)[k / rounded_inputs(m) * REGISTER_ROWS + r] = -CODE_OFFSET * add_up_codes(codes, count);
    if (width == REGISTER_BYTES)
        for (int64_t i = 0; i < count; i += REGISTER_BYTES)
            _mm512_storeu_si512(tile + (k + i) * REGISTER_ROWS + r * REGISTER_BYTES, load_codes(codes + i));
    else memcpy(tile + k * REGISTER_ROWS + r * UNIT, codes, UNIT); /* a block of them */
}

/* The same of numbers, rounded to bfloat16. */
INLINE void fill_pairs(const float *x, int64_t k, int64_t count, char *tile, int64_t r) {
    for (int64_t i = 0; i < count; i += 2 * WIDTH) {
        __m512bh pairs = _mm512_cvtne2ps_pbh(load_first(x + i + WIDTH, count - i - WIDTH), load_first(x + i, count - i));
        _mm512_storeu_si512(tile + (k + i) * 2 * REGISTER_ROWS + r * REGISTER_BYTES, (__m512i)pairs);
    }
}

/* Inputs k..k + count of a panel as registers take them: where they lie, or in `room`, filled up with zeros. */
INLINE const char *weights_of(const Panels *m, int64_t panel, int64_t k, int64_t count, char *room) {
    const char *from = panel_of(m, panel, k);
    int64_t all = registers_of(m, count) * bytes_at_once(m) * PANEL;
    if (count % inputs_at_once(m) == 0) return from;
    int64_t bytes = m->format == BFLOAT16 ? (count + 1) / 2 * 4 * PANEL : (count + 3) / 4 * 4 * PANEL;
    memcpy(room, from, (size_t)bytes);
    memset(room + bytes, 0, (size_t)(all - bytes));
    __asm__ volatile("" : : : "memory"); /* GCC does not know that registers are loaded from there */
    return room;
}

/* What is read and asked for while tokens meet panels. */
typedef struct {
    const char *tokens, *panels[2], *next[2]; /* `next`: of each panel */
    int64_t apart, lines;                     /* bytes to the next tile; lines of `next` that each step asks for */
} Reading;

/* Ask the second cache for some lines: by branches that always go one way, not by a loop. */
INLINE void ask(const char *next, int64_t lines) {
    if (lines > 0)
        for (int i = 0; i < 4; i++) __builtin_prefetch(next + i * 64, 0, 2);
    if (lines > 4)
        for (int i = 4; i < 8; i++) __builtin_prefetch(next + i * 64, 0, 2);
    if (lines > 8)
        for (int i = 8; i < 16; i++) __builtin_prefetch(next + i * 64, 0, 2);
}

/* One step: T tiles of tokens meet P panels. */
INLINE void meet(Reading *x, int64_t width, const int whole, const int T, const int P) {
    _tile_loadd(4, x->tokens, width);
    _tile_loadd(6, x->panels[0], REGISTER_BYTES);
    ask(x->next[0], x->lines);
    if (whole) _tile_dpbsud(0, 4, 6);
    else _tile_dpbf16ps(0, 4, 6);
    if (T == 2) {
        _tile_loadd(5, x->tokens + x->apart, width);
        if (whole) _tile_dpbsud(1, 5, 6);
        else _tile_dpbf16ps(1, 5, 6);
    }
    if (P == 2) {
        _tile_loadd(7, x->panels[1], REGISTER_BYTES);
        ask(x->next[1], x->lines);
        if (whole) _tile_dpbsud(2, 4, 7);
        else _tile_dpbf16ps(2, 4, 7);
        if (T == 2) {
            if (whole) _tile_dpbsud(3, 5, 7);
            else _tile_dpbf16ps(3, 5, 7);
        }
        x->panels[1] += width * PANEL, x->next[1] += x->lines * 64;
    }
    x->tokens += width * REGISTER_ROWS, x->panels[0] += width * PANEL, x->next[0] += x->lines * 64;
}

/* Where whole numbers of R tokens become floats: what a block found is added to what those before it of the group found, and
 * at the `last` one of a group to the sums, in steps of the scales of the rows. The first of all makes the sums. */
enum { FIRST = 1, LAST = 2, NEW = 4 };
INLINE void end_tile(const int32_t *found, const int32_t *starts, const float *token_scales, int64_t R, const float *row_scales,
                     float *held, float *to, int64_t stride, const int where, const int P) {
    Vector scales[2];
    for (int p = 0; p < P && where & LAST; p++) scales[p] = load(row_scales + p * PANEL);
    for (int64_t r = 0; r < R; r++, held += 2 * PANEL, to += stride) {
        Vector token = load_one(token_scales + r);
        __m512i start = _mm512_set1_epi32(starts[r]);
        for (int p = 0; p < P; p++) {
            Vector x = as_floats(_mm512_add_epi32(load_codes(found + (2 * p * REGISTER_ROWS + r) * PANEL), start));
            x = where & FIRST ? times(x, token) : add_product(x, token, load(held + p * PANEL));
            if (!(where & LAST)) store(held + p * PANEL, x);
            else if (where & NEW) store(to + p * PANEL, times(x, scales[p]));
            else store(to + p * PANEL, add_product(x, scales[p], load(to + p * PANEL)));
        }
    }
}

/* A product of R tokens and some panels of codes; `starts` and tokens of the second tile are `apart` from those of the first,
 * in bytes. `held`: what the blocks of a group found so far, [R, 2, 16]. */
typedef struct {
    const Panels *panels;
    const Scales *scales;
    const int32_t *starts;
    int64_t apart, R;
    float *to, *held;
    int64_t stride;
} Block;

/* The block from input k to `next`, which ends the part or not. */
INLINE void end_block(const Block *b, const int32_t (*found)[REGISTER_ROWS * PANEL], int64_t k, int64_t next, int64_t end,
                      int first, int new, const int T, const int P) {
    const Scales *s = b->scales;
    float row_scales[2 * PANEL];
    int where = (first ? FIRST : 0) | (next == end || next % s->group == 0 ? LAST : 0) | (new ? NEW : 0);
    if (where & LAST) read_scales(s, k / s->group, row_scales, P);
    for (int t = 0; t < T; t++) {
        const int32_t *starts = (const int32_t *)((const char *)b->starts + t * b->apart) + k / s->block * REGISTER_ROWS;
        const float *token_scales = s->tokens + k / s->block * s->stride + t * REGISTER_ROWS;
        int64_t some = b->R - t * REGISTER_ROWS < REGISTER_ROWS ? b->R - t * REGISTER_ROWS : REGISTER_ROWS;
        float *held = b->held + t * REGISTER_ROWS * 2 * PANEL, *to = b->to + t * REGISTER_ROWS * b->stride;
#define END(case_) \
    case case_: end_tile(found[t], starts, token_scales, some, row_scales, held, to, b->stride, case_, P); break;
        switch (where & LAST ? where : where & FIRST) {
            END(0) END(FIRST) END(LAST) END(FIRST | LAST) END(LAST | NEW) END(FIRST | LAST | NEW)
        }
    }
}

/* Inputs begin..begin + count of a block. What registers stored is read a block later: it is slow to come out of the buffer of
 * stores. */
INLINE void add_registers_of_codes(const Block *b, Reading x, int64_t count, const int T, const int P) {
    _Alignas(64) int32_t found[2][4][REGISTER_ROWS * PANEL];
    const Scales *s = b->scales;
    int64_t width = inputs_at_once(b->panels), end = s->begin + count, before = -1;
    int turn = 0, first = 1, new = s->begin == 0;
    for (int64_t k = s->begin, next; k < end; k = next, turn = !turn) {
        next = k + s->block < end ? k + s->block : end;
        _tile_zero(0);
        if (T == 2) _tile_zero(1);
        if (P == 2) _tile_zero(2);
        if (T == 2 && P == 2) _tile_zero(3);
        for (int64_t i = k; i < next; i += width) meet(&x, width, 1, T, P);
        if (before >= 0) {
            end_block(b, found[!turn], before, k, end, first, new, T, P);
            first = k % s->group == 0, new = new && !first;
        }
        _tile_stored(0, found[turn][0], REGISTER_BYTES);
        if (T == 2) _tile_stored(1, found[turn][1], REGISTER_BYTES);
        if (P == 2) _tile_stored(2, found[turn][2], REGISTER_BYTES);
        if (T == 2 && P == 2) _tile_stored(3, found[turn][3], REGISTER_BYTES);
        before = k;
    }
    end_block(b, found[!turn], before, end, end, first, new, T, P);
}

/* The same of bfloat16. The sums go on from part to part; what a tile lacks of 16 tokens is there, but is not read. */
INLINE void add_registers_of_pairs(Reading x, int64_t steps, int new, float *to, int64_t stride, const int T, const int P) {
    float *second = to + REGISTER_ROWS * stride;
    if (new) {
        _tile_zero(0);
        if (T == 2) _tile_zero(1);
        if (P == 2) _tile_zero(2);
        if (T == 2 && P == 2) _tile_zero(3);
    } else {
        _tile_loadd(0, to, stride * 4);
        if (T == 2) _tile_loadd(1, second, stride * 4);
        if (P == 2) _tile_loadd(2, to + PANEL, stride * 4);
        if (T == 2 && P == 2) _tile_loadd(3, second + PANEL, stride * 4);
    }
    for (int64_t i = 0; i < steps; i++) meet(&x, REGISTER_BYTES, 0, T, P);
    _tile_stored(0, to, stride * 4);
    if (T == 2) _tile_stored(1, second, stride * 4);
    if (P == 2) _tile_stored(2, to + PANEL, stride * 4);
    if (T == 2 && P == 2) _tile_stored(3, second + PANEL, stride * 4);
}

/* All registers take 16 rows, those of tokens so many bytes of each, and those of panels a quarter of that in rows. */
INLINE void shape_registers(int64_t width) {
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.bytes[i] = (uint16_t)(i == 4 || i == 5 ? width : REGISTER_BYTES);
        shapes.rows[i] = (uint8_t)(i >= 6 ? width / 4 : REGISTER_ROWS);
    }
    _tile_loadconfig(&shapes);
}
