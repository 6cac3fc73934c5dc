/* Products of codes of 8 bits by whole tiles, on Intel: 12 tokens and two panels have 24 sums in whole numbers in registers, and
 * what earlier blocks gave waits in the first cache. FEW tokens need 14 loads for 12 products there, and loads are the limit.
 * Included by rows.c, for the set that gains by it. */

/* Whether panels begin..end are multiplied so, but for tokens that fill no tile: two at a time, in steps of 16 inputs. */
INLINE int by_whole_tiles(const WideProduct *p, int64_t begin, int64_t end) {
    const Panels *m = p->panels;
    return m->format == INT8 && p->n > FEW_OF_CODES && (end - begin) % 2 == 0 && m->inputs % 16 == 0;
}

#define EACH_PLACE(DO, x) \
    DO(x "(%%r8)", 0, 1) DO(x "(%%r8,%[next])", 2, 3) DO(x "(%%r8,%[next],2)", 4, 5) \
    DO(x "(%%r9)", 6, 7) DO(x "(%%r9,%[next])", 8, 9) DO(x "(%%r9,%[next],2)", 10, 11) \
    DO(x "(%%r10)", 12, 13) DO(x "(%%r10,%[next])", 14, 15) DO(x "(%%r10,%[next],2)", 16, 17) \
    DO(x "(%%r11)", 18, 19) DO(x "(%%r11,%[next])", 20, 21) DO(x "(%%r11,%[next],2)", 22, 23)
#define EACH_TOKEN(DO) \
    DO(0, 0, 1) DO(1, 2, 3) DO(2, 4, 5) DO(3, 6, 7) DO(4, 8, 9) DO(5, 10, 11) \
    DO(6, 12, 13) DO(7, 14, 15) DO(8, 16, 17) DO(9, 18, 19) DO(10, 20, 21) DO(11, 22, 23)
#define BEGIN_PAIR(x, s, t) "vpbroadcastd " x ", %%zmm" #s "\n\tvpbroadcastd " x ", %%zmm" #t "\n\t"
#define MEET_PAIR(x, s, t) \
    "vpbroadcastd " x ", %%zmm29\n\tvpdpbusd %%zmm29, %%zmm30, %%zmm" #s "\n\tvpdpbusd %%zmm29, %%zmm31, %%zmm" #t "\n\t"
#define MEET_TILE(x, w) \
    "vmovdqu64 " w "(%%rsi), %%zmm30\n\tvmovdqu64 " w "(%%rsi,%[apart]), %%zmm31\n\t" EACH_PLACE(MEET_PAIR, x)
#define END_ONE(at, s) \
    "vcvtdq2ps %%zmm" #s ", %%zmm" #s "\n\tvfmadd213ps " at "(%[found]), %%zmm29, %%zmm" #s "\n\t" \
    "vmovaps %%zmm" #s ", " at "(%[found])\n\t"
#define END_PAIR(r, s, t) "vbroadcastss 4*" #r "(%[scales]), %%zmm29\n\t" END_ONE("128*" #r, s) END_ONE("128*" #r "+64", t)

/* found += what a block of 16 `steps` inputs gives. Its sums begin at what lies behind its codes. */
INLINE void add_block(Vector (*found)[2], const char *a, int64_t next, const uint8_t *b, int64_t apart, int64_t steps,
                      const float *scales) {
    __asm__("lea (%[next],%[next],2), %%r11\n\tlea (%[a],%[codes]), %%r8\n\tlea (%%r8,%%r11), %%r9\n\t"
            "lea (%%r8,%%r11,2), %%r10\n\tadd %%r10, %%r11\n\tmov %[b], %%rsi\n\tmov %[steps], %%rcx\n\t" EACH_PLACE(BEGIN_PAIR, "")
            "sub %[codes], %%r8\n\tsub %[codes], %%r9\n\tsub %[codes], %%r10\n\tsub %[codes], %%r11\n"
            "1:\n\t" MEET_TILE("0", "0") MEET_TILE("4", "64") MEET_TILE("8", "128") MEET_TILE("12", "192")
            "add $16, %%r8\n\tadd $16, %%r9\n\tadd $16, %%r10\n\tadd $16, %%r11\n\tadd $256, %%rsi\n\tdec %%rcx\n\tjnz 1b\n\t"
            EACH_TOKEN(END_PAIR)
            :
            : [found] "r"(found), [a] "r"(a), [next] "r"(next), [b] "r"(b), [apart] "r"(apart), [steps] "r"(steps),
              [codes] "r"(16 * steps), [scales] "r"(scales)
            : "r8", "r9", "r10", "r11", "rsi", "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
              "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20",
              "xmm21", "xmm22", "xmm23", "xmm29", "xmm30", "xmm31", "cc", "memory");
}

/* The first that is written of a sum: as `end_group`, which adds. */
INLINE void begin_sums(Vector (*found)[2], const float *row_scales, Sums sums) {
    for (int r = 0; r < TILE; r++, sums.at += sums.stride)
        for (int h = 0; h < 2; h++) {
            store(sums.at + h * PANEL, times(found[r][h], load(row_scales + h * PANEL)));
            found[r][h] = no_numbers();
        }
}

/* What a tile asks the caches for while it meets its blocks, a share at each: more than 16 lines at a time would wait. */
typedef struct {
    const char *next; /* of the panels that come next, `apart` from each other: so many lines at a block */
    int64_t apart, lines;
    const float *room; /* where it will be written, [TILE, stride], so many rows at a block; or NULL */
    int64_t stride, rows;
} Asked;

INLINE void ask(Asked *asked, int64_t block) {
    for (int64_t line = 0; line < asked->lines; line++, asked->next += 64) {
        __builtin_prefetch(asked->next, 0, 2);
        __builtin_prefetch(asked->next + asked->apart, 0, 2);
    }
    for (int64_t r = block * asked->rows; asked->room && r < (block + 1) * asked->rows && r < TILE; r++)
        for (int h = 0; h < 2; h++) __builtin_prefetch(asked->room + r * asked->stride + h * PANEL, 1, 3);
}

/* Inputs k..k + count of two panels for a whole tile, from `token` on. What other tiles add to, this one begins. */
static void meet_whole_tile(const WideProduct *p, PanelSet set, int64_t k, int64_t count, int64_t token, Asked asked, Sums sums) {
    const Panels *m = p->panels;
    const int64_t block = rounded_inputs(m), to_next = part_bytes(m, k, count), groups = groups_of(m);
    const Scales s = {.rows = (const char *)m->scales + set.first * groups * PANEL * (m->scale_format == FLOAT32 ? 4 : 2),
                      .groups = groups, .format = m->scale_format};
    const char *a = tile_of(p, token) + TILE * token_bytes(m, k);
    const uint8_t *b = (const uint8_t *)panel_of(m, set.first, k);
    const float *scales = p->token_scales + k / block * p->n + token;
    float row_scales[2 * PANEL];
    Vector found[TILE][2];
    for (int r = 0; r < TILE; r++) found[r][0] = found[r][1] = no_numbers();
    int64_t group = k / m->group;
    read_scales(&s, group, row_scales, 2);
#define END_TILE \
    if (group > 0 || k > 0) end_group(found, row_scales, sums.at, sums.stride, PANEL, TILE, 2); \
    else begin_sums(found, row_scales, sums)
    for (int64_t done = 0; done < count; done += block, scales += p->n) {
        int64_t inputs = count - done < block ? count - done : block;
        if (k + done == (group + 1) * m->group) {
            END_TILE;
            read_scales(&s, ++group, row_scales, 2);
        }
        ask(&asked, done / block);
        add_block(found, a, to_next, b, asked.apart, inputs / 16, scales);
        a += inputs + 4, b += inputs * PANEL;
    }
    END_TILE;
}

/* Panels begin..end for whole tiles, of tokens first..last: as `multiply_block`, which takes what is left. */
static void multiply_whole_tiles(const WideProduct *p, int64_t first, int64_t last, int64_t begin, int64_t end, Sums sums) {
    const Panels *m = p->panels;
    const int64_t tiles = (last - first) / TILE, rounds = count_rounds(p, begin, end);
    for (int64_t i = 0; i < rounds; i++) {
        const Round round = find_round(p, begin, end, i);
        const int64_t k = round.k, blocks = (round.count + rounded_inputs(m) - 1) / rounded_inputs(m);
        const int64_t shares = tiles * blocks, lines = (round.count * PANEL / 64 + shares - 1) / shares;
        const int ends = k + round.count == m->inputs;
        Asked asked = {.next = round.next, .apart = panel_of(m, 1, 0) - panel_of(m, 0, 0), .lines = lines, .stride = p->stride,
                       .rows = (TILE + blocks - 1) / blocks};
        for (int64_t token = first; token < last; token += TILE, asked.next += blocks * lines * 64) {
            Sums at = {sums.at + (token - first) * sums.stride + (round.set.first - begin) * PANEL, sums.stride};
            asked.room = ends && !p->next ? p->to + token * p->stride + round.set.first * PANEL : NULL;
            meet_whole_tile(p, round.set, k, round.count, token, asked, at);
            if (m->shifts && ends) add_shifts(p, round.set, token, TILE, at);
        }
    }
}
