/* Kernels in plain C99, bit for bit what CMSIS-NN computes in its default build.
 *
 * Sections begin with a line `section NAME: what it needs`; a program gets those that it calls.
 * Nothing here allocates, recurses, or depends on how a compiler narrows a negative number. Shifts of
 * negative numbers to the right keep the sign, as in C++20 and in every compiler of these cores.
 */

/* section clamp: */
static inline int8_t sw_clamp8(int32_t value, int32_t low, int32_t high)
{
    const int32_t floor_ = (value < low) ? low : value;
    return (int8_t)((floor_ > high) ? high : floor_);
}

/* section fixed_point: clamp */
#if (-1 >> 1) != -1
#error "this compiler shifts negative numbers in its own way"
#endif

static inline int32_t sw_low32(uint32_t value)
{
    return (value <= (uint32_t)INT32_MAX) ? (int32_t)value : (-(int32_t)(UINT32_MAX - value) - 1);
}

static inline int32_t sw_shift_left(int32_t value, int32_t bits)
{
    return sw_low32((uint32_t)value << (uint32_t)bits);
}

/* (a * b + 2^30) >> 31 */
static inline int32_t sw_high_mult(int32_t a, int32_t b)
{
    return sw_low32((uint32_t)((((int64_t)a * b) + ((int64_t)1 << 30)) >> 31));
}

/* value / 2^bits, half away from zero, for a value above INT32_MIN */
static inline int32_t sw_divide_pow2(int32_t value, int32_t bits)
{
    return (bits > 0) ? ((((value - ((value < 0) ? 1 : 0)) >> (bits - 1)) + 1) >> 1) : value;
}

static inline int32_t sw_requantize(int32_t value, int32_t multiplier, int32_t shift)
{
    if (shift < 0) {
        return sw_divide_pow2(sw_high_mult(value, multiplier), -shift);
    }
    return sw_high_mult(sw_shift_left(value, shift), multiplier);
}

/* section conv_params: */
typedef struct {
    int32_t batch, in_h, in_w, in_c;
    int32_t kernel_h, kernel_w, kernel_c;
    int32_t out_h, out_w, out_c;
    int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int32_t in_offset, out_offset, low, high;
} sw_conv_params;

/* section own_registers: */
/* A loop that needs all registers of a core is a function of its own. */
#if defined(__GNUC__)
#define SW_OWN __attribute__((noinline, unused))
#else
#define SW_OWN
#endif

/* section put_channels: fixed_point conv_params own_registers */
/* The bytes of some channels of a pixel. */
SW_OWN static void sw_put_channels(const sw_conv_params *p, const int32_t *sum, int32_t count,
                             const int32_t *multiplier, const int32_t *shift, int8_t *out)
{
    const int32_t offset = p->out_offset;
    const int32_t low = p->low;
    const int32_t high = p->high;
    for (int32_t k = 0; k < count; k++) {
        out[k] = sw_clamp8(sw_requantize(sum[k], multiplier[k], shift[k]) + offset, low, high);
    }
}

/* section biases: */
static inline void sw_begin(const int32_t *bias, int32_t first, int32_t count, int32_t *sum)
{
    if (bias == NULL) {
        memset(sum, 0, 4 * sizeof(*sum));
        return;
    }
    sum[0] = bias[first];
    if (count == 4) {
        sum[1] = bias[first + 1];
        sum[2] = bias[first + 2];
        sum[3] = bias[first + 3];
    }
}

/* section pairs: */
/* Pairs of bytes as pairs of 16 bits, where a core multiplies pairs (the DSP extension). */
#if defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__)
#define SW_PAIRS 1
#include <arm_acle.h>

static inline int8x4_t sw_four(const int8_t *from)
{
    int8x4_t four;
    memcpy(&four, from, sizeof(four));
    return four;
}

static inline int16x2_t sw_twice(int32_t value)
{
    return (int16x2_t)(((uint32_t)value & 0xFFFFu) * 0x10001u);
}

/* Filters are loaded one after the other: a core has no registers for four of them. */
static inline void sw_in_order(void)
{
    __asm__ volatile("" ::: "memory");
}

static inline int16x2_t sw_odd(int8x4_t four)
{
    int16x2_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(four));
    return pair;
}

static inline int16x2_t sw_odd_plus(int16x2_t offset, int8x4_t four)
{
    int16x2_t pair;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(pair) : "r"(offset), "r"(four));
    return pair;
}
#endif

/* section lanes: */
#if defined(__wasm_simd128__)
#define SW_LANES 1
#include <wasm_simd128.h>

static inline v128_t sw_dot_lanes(v128_t sum, v128_t x, const int8_t *w)
{
    return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(x, wasm_i16x8_load8x8(w)));
}

static inline int32_t sw_sum_lanes(v128_t sum)
{
    const v128_t pairs = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
    return wasm_i32x4_extract_lane(pairs, 0) + wasm_i32x4_extract_lane(pairs, 1);
}
#endif

/* section filters: biases pairs lanes own_registers */
/* Add the products of a run of bytes with four filters that lie `apart` from each other. */
SW_OWN static void sw_filters4(const int8_t *x, int32_t offset, const int8_t *w, int32_t apart,
                           int32_t count, int32_t *sum)
{
    int32_t a = sum[0];
    int32_t b = sum[1];
    int32_t c = sum[2];
    int32_t d = sum[3];
    int32_t left = count;
#ifdef SW_PAIRS
    const int16x2_t offsets = sw_twice(offset);
    for (; left >= 4; left -= 4) {
        const int8_t *second = &w[apart];
        const int8x4_t four = sw_four(x);
        const int16x2_t even = __sxtab16(offsets, four);
        const int16x2_t odd = sw_odd_plus(offsets, four);
        const int8x4_t e = sw_four(w);
        a = __smlad(odd, sw_odd(e), __smlad(even, __sxtb16(e), a));
        sw_in_order();
        const int8x4_t f = sw_four(second);
        b = __smlad(odd, sw_odd(f), __smlad(even, __sxtb16(f), b));
        sw_in_order();
        const int8x4_t g = sw_four(&w[2 * apart]);
        c = __smlad(odd, sw_odd(g), __smlad(even, __sxtb16(g), c));
        sw_in_order();
        const int8x4_t h = sw_four(&second[2 * apart]);
        d = __smlad(odd, sw_odd(h), __smlad(even, __sxtb16(h), d));
        x += 4;
        w += 4;
    }
#elif defined(SW_LANES)
    const v128_t offsets = wasm_i16x8_splat((int16_t)offset);
    v128_t lanes[4] = {wasm_i32x4_splat(0), wasm_i32x4_splat(0), wasm_i32x4_splat(0), wasm_i32x4_splat(0)};
    for (; left >= 8; left -= 8) {
        const v128_t eight = wasm_i16x8_add(wasm_i16x8_load8x8(x), offsets);
        lanes[0] = sw_dot_lanes(lanes[0], eight, w);
        lanes[1] = sw_dot_lanes(lanes[1], eight, &w[apart]);
        lanes[2] = sw_dot_lanes(lanes[2], eight, &w[2 * apart]);
        lanes[3] = sw_dot_lanes(lanes[3], eight, &w[3 * apart]);
        x += 8;
        w += 8;
    }
    a += sw_sum_lanes(lanes[0]);
    b += sw_sum_lanes(lanes[1]);
    c += sw_sum_lanes(lanes[2]);
    d += sw_sum_lanes(lanes[3]);
#else
    for (; left >= 2; left -= 2) {
        const int8_t *second = &w[apart];
        const int8_t *third = &w[2 * apart];
        const int8_t *fourth = &second[2 * apart];
        const int32_t even = (int32_t)x[0] + offset;
        const int32_t odd = (int32_t)x[1] + offset;
        a += (even * (int32_t)w[0]) + (odd * (int32_t)w[1]);
        b += (even * (int32_t)second[0]) + (odd * (int32_t)second[1]);
        c += (even * (int32_t)third[0]) + (odd * (int32_t)third[1]);
        d += (even * (int32_t)fourth[0]) + (odd * (int32_t)fourth[1]);
        x += 2;
        w += 2;
    }
#endif
    for (; left > 0; left--) {
        const int8_t *second = &w[apart];
        const int32_t value = (int32_t)*x + offset;
        a += value * (int32_t)w[0];
        b += value * (int32_t)second[0];
        c += value * (int32_t)w[2 * apart];
        d += value * (int32_t)second[2 * apart];
        x++;
        w++;
    }
    sum[0] = a;
    sum[1] = b;
    sum[2] = c;
    sum[3] = d;
}

static inline int32_t sw_filter1(const int8_t *x, int32_t offset, const int8_t *w, int32_t count)
{
    int32_t sum = 0;
    for (int32_t k = 0; k < count; k++) {
        sum += ((int32_t)x[k] + offset) * (int32_t)w[k];
    }
    return sum;
}

/* section bounds: */
/* The first position of a window at `begin` that is inside, and how many are before the end. */
static inline int32_t sw_first(int32_t begin, int32_t dilation)
{
    const int32_t outside = (begin < 0) ? -begin : 0;
    return (dilation == 1) ? outside : ((outside + dilation - 1) / dilation);
}

static inline int32_t sw_end(int32_t begin, int32_t dilation, int32_t size, int32_t kernel)
{
    const int32_t left = (size > begin) ? (size - begin) : 0;
    const int32_t count = (dilation == 1) ? left : ((left + dilation - 1) / dilation);
    return (count < kernel) ? count : kernel;
}

/* section windows: conv_params bounds */
/* The part inside the image of the window of output cell `at`: how many rows and cells, where it
 * begins in the image and in the filter, and how far apart its cells and rows are.
 */
typedef struct {
    int32_t rows, cells, from, cell, next, next_row;
} sw_window;

static inline sw_window sw_window_at(const sw_conv_params *p, int32_t at)
{
    const int32_t n = at / (p->out_h * p->out_w);
    const int32_t y = (((at / p->out_w) % p->out_h) * p->stride_h) - p->pad_h;
    const int32_t x = ((at % p->out_w) * p->stride_w) - p->pad_w;
    const int32_t top = sw_first(y, p->dilation_h);
    const int32_t left = sw_first(x, p->dilation_w);
    const int32_t rows = sw_end(y, p->dilation_h, p->in_h, p->kernel_h) - top;
    const int32_t cells = sw_end(x, p->dilation_w, p->in_w, p->kernel_w) - left;
    const int32_t iy = (n * p->in_h) + y + (top * p->dilation_h);
    sw_window v;
    v.rows = (cells > 0) ? rows : 0;
    v.cells = cells;
    v.from = ((iy * p->in_w) + x + (left * p->dilation_w)) * p->in_c;
    v.cell = (top * p->kernel_w) + left;
    v.next = p->dilation_w * p->in_c;
    v.next_row = p->dilation_h * p->in_w * p->in_c;
    return v;
}

/* section conv2d: put_channels filters windows */
#ifndef SW_GATHERED
#define SW_GATHERED 256 /* bytes of the largest window that is gathered on the stack */
#endif

/* Gather a window of one group; what is outside the image is the input's zero point. */
static void sw_gather(const sw_conv_params *p, const sw_window *v, const int8_t *in, int8_t *window)
{
    const int32_t row = p->kernel_w * p->kernel_c;
    if ((v->rows * v->cells) < (p->kernel_h * p->kernel_w)) {
        memset(window, -p->in_offset, (size_t)(p->kernel_h * row));
    }
    for (int32_t ky = 0; ky < v->rows; ky++) {
        int8_t *to = &window[(v->cell * p->kernel_c) + (ky * row)];
        const int8_t *from = &in[v->from + (ky * v->next_row)];
        if (v->next == p->kernel_c) {
            memcpy(to, from, (size_t)(v->cells * p->kernel_c));
            continue;
        }
        for (int32_t kx = 0; kx < v->cells; kx++) {
            memcpy(&to[kx * p->kernel_c], &from[kx * v->next], (size_t)p->kernel_c);
        }
    }
}

/* Add the products of a window where it lies, in runs: a row, or a cell if cells are apart. */
static void sw_runs(const sw_conv_params *p, const sw_window *v, const int8_t *in, const int8_t *weight,
                    int32_t count, int32_t *sum)
{
    const int32_t row = p->kernel_w * p->kernel_c;
    const int is_joined = v->next == p->kernel_c;
    const int32_t length = (is_joined ? v->cells : 1) * p->kernel_c;
    for (int32_t ky = 0; ky < v->rows; ky++) {
        for (int32_t run = 0; run < (is_joined ? 1 : v->cells); run++) {
            const int8_t *x = &in[v->from + (ky * v->next_row) + (run * v->next)];
            const int8_t *w = &weight[((v->cell + run) * p->kernel_c) + (ky * row)];
            if (count == 4) {
                sw_filters4(x, p->in_offset, w, p->kernel_h * row, length, sum);
            } else {
                sum[0] += sw_filter1(x, p->in_offset, w, length);
            }
        }
    }
}

static void sw_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, const int32_t *multiplier, const int32_t *shift, int8_t *out)
{
    const int32_t groups = p->in_c / p->kernel_c;
    const int32_t filter = p->kernel_h * p->kernel_w * p->kernel_c;
    const int is_row = (p->kernel_h == 1) && ((p->kernel_w == 1) || (p->dilation_w * groups == 1));
    int8_t window[SW_GATHERED];
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const sw_window v = sw_window_at(p, at);
        int32_t oc = 0;
        for (int32_t group = 0; group < groups; group++) {
            const int8_t *image = &in[group * p->kernel_c];
            const int8_t *x = window;
            if (is_row && (v.rows == 1) && (v.cells == p->kernel_w)) {
                x = &image[v.from];
            } else if (filter <= SW_GATHERED) {
                sw_gather(p, &v, image, window);
            } else {
                x = NULL;
            }
            const int32_t end = (group + 1) * (p->out_c / groups);
            while (oc < end) {
                const int32_t some = ((end - oc) >= 4) ? 4 : 1;
                const int8_t *w = &weight[oc * filter];
                int32_t sum[4];
                sw_begin(bias, oc, some, sum);
                if (x == NULL) {
                    sw_runs(p, &v, image, w, some, sum);
                } else if (some == 4) {
                    sw_filters4(x, p->in_offset, w, filter, filter, sum);
                } else {
                    sum[0] += sw_filter1(x, p->in_offset, w, filter);
                }
                sw_put_channels(p, sum, some, &multiplier[oc], &shift[oc], out);
                out += some;
                oc += some;
            }
        }
    }
}

/* section depthwise_conv2d: put_channels biases pairs windows */
/* Add the products of the cells of a row with four channels. */
static inline void sw_cells4(const int8_t *x, int32_t x_next, int32_t offset, const int8_t *w,
                             int32_t w_next, int32_t count, int32_t *sum)
{
    int32_t a = sum[0];
    int32_t b = sum[1];
    int32_t c = sum[2];
    int32_t d = sum[3];
#ifdef SW_PAIRS
    const int16x2_t offsets = sw_twice(offset);
#endif
    for (int32_t k = 0; k < count; k++) {
#ifdef SW_PAIRS
        const int8x4_t four = sw_four(x);
        const int8x4_t filter = sw_four(w);
        const int16x2_t even = __sxtab16(offsets, four);
        const int16x2_t odd = sw_odd_plus(offsets, four);
        const int16x2_t even_filter = __sxtb16(filter);
        const int16x2_t odd_filter = sw_odd(filter);
        a = __smlabb(even, even_filter, a);
        b = __smlabb(odd, odd_filter, b);
        c = __smlatt(even, even_filter, c);
        d = __smlatt(odd, odd_filter, d);
#else
        a += ((int32_t)x[0] + offset) * (int32_t)w[0];
        b += ((int32_t)x[1] + offset) * (int32_t)w[1];
        c += ((int32_t)x[2] + offset) * (int32_t)w[2];
        d += ((int32_t)x[3] + offset) * (int32_t)w[3];
#endif
        x += x_next;
        w += w_next;
    }
    sum[0] = a;
    sum[1] = b;
    sum[2] = c;
    sum[3] = d;
}

static void sw_depthwise_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                int8_t *out)
{
    const int32_t copies = p->out_c / p->in_c;
    const int32_t row = p->kernel_w * p->out_c;
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const sw_window v = sw_window_at(p, at);
        int32_t oc = 0;
        while (oc < p->out_c) {
            const int32_t some = ((copies == 1) && ((p->out_c - oc) >= 4)) ? 4 : 1;
            int32_t from = v.from + (oc / copies);
            int32_t to = (v.cell * p->out_c) + oc;
            int32_t sum[4];
            sw_begin(bias, oc, some, sum);
            for (int32_t ky = 0; ky < v.rows; ky++) {
                if (some == 4) {
                    sw_cells4(&in[from], v.next, p->in_offset, &weight[to], p->out_c, v.cells, sum);
                } else {
                    for (int32_t kx = 0; kx < v.cells; kx++) {
                        const int32_t x = (int32_t)in[from + (kx * v.next)] + p->in_offset;
                        sum[0] += x * (int32_t)weight[to + (kx * p->out_c)];
                    }
                }
                from += v.next_row;
                to += row;
            }
            sw_put_channels(p, sum, some, &multiplier[oc], &shift[oc], out);
            out += some;
            oc += some;
        }
    }
}

/* section transpose_conv2d: put_channels filters */
/* Cell (ky, kx) of a filter meets the image where its distance is a multiple of the stride. */
static void sw_transpose_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                int8_t *out)
{
    const int32_t filter = p->kernel_h * p->kernel_w * p->in_c;
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const int32_t n = at / (p->out_h * p->out_w);
        const int32_t y = ((at / p->out_w) % p->out_h) + p->pad_h;
        const int32_t x = (at % p->out_w) + p->pad_w;
        int32_t oc = 0;
        while (oc < p->out_c) {
            const int32_t some = ((p->out_c - oc) >= 4) ? 4 : 1;
            int32_t sum[4];
            sw_begin(bias, oc, some, sum);
            for (int32_t ky = y % p->stride_h; (ky < p->kernel_h) && (ky <= y); ky += p->stride_h) {
                const int32_t iy = (y - ky) / p->stride_h;
                for (int32_t kx = x % p->stride_w; (kx < p->kernel_w) && (kx <= x); kx += p->stride_w) {
                    const int32_t ix = (x - kx) / p->stride_w;
                    if ((iy < p->in_h) && (ix < p->in_w)) {
                        const int8_t *from = &in[((((n * p->in_h) + iy) * p->in_w) + ix) * p->in_c];
                        const int8_t *w = &weight[(oc * filter) + (((ky * p->kernel_w) + kx) * p->in_c)];
                        if (some == 4) {
                            sw_filters4(from, p->in_offset, w, filter, p->in_c, sum);
                        } else {
                            sum[0] += sw_filter1(from, p->in_offset, w, p->in_c);
                        }
                    }
                }
            }
            sw_put_channels(p, sum, some, &multiplier[oc], &shift[oc], out);
            out += some;
            oc += some;
        }
    }
}

/* section matmul_params: */
typedef struct {
    int32_t batch, rows, inner, columns;
    int32_t in_offset, filter_offset, out_offset, multiplier, shift, low, high;
} sw_matmul_params;

/* section linear: fixed_point matmul_params filters */
/* Filters with an offset: the offset times the sum of a row is added to each of its products. */
static void sw_linear(const sw_matmul_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, int8_t *out)
{
    for (int32_t row = 0; row < p->rows; row++) {
        const int8_t *x = &in[row * p->inner];
        uint32_t more = 0;
        if (p->filter_offset != 0) {
            for (int32_t k = 0; k < p->inner; k++) {
                more += (uint32_t)((int32_t)x[k] + p->in_offset);
            }
            more *= (uint32_t)p->filter_offset;
        }
        int32_t column = 0;
        while (column < p->columns) {
            const int8_t *w = &weight[column * p->inner];
            const int32_t some = ((p->columns - column) >= 4) ? 4 : 1;
            int32_t sum[4];
            sw_begin(bias, column, some, sum);
            if (some == 4) {
                sw_filters4(x, p->in_offset, w, p->inner, p->inner, sum);
            } else {
                sum[0] += sw_filter1(x, p->in_offset, w, p->inner);
            }
            for (int32_t k = 0; k < some; k++) {
                const int32_t total = sw_low32((uint32_t)sum[k] + more);
                const int32_t scaled = sw_requantize(total, p->multiplier, p->shift);
                *out = sw_clamp8(scaled + p->out_offset, p->low, p->high);
                out++;
                column++;
            }
        }
    }
}

/* section batch_matmul: linear */
static void sw_batch_matmul(const sw_matmul_params *p, const int8_t *lhs, const int8_t *rhs, int8_t *out)
{
    for (int32_t n = 0; n < p->batch; n++) {
        sw_linear(p, &lhs[n * p->rows * p->inner], &rhs[n * p->columns * p->inner], NULL,
                  &out[n * p->rows * p->columns]);
    }
}

/* section add: fixed_point */
typedef struct {
    int32_t count, period;
    int32_t a_offset, a_multiplier, a_shift, b_offset, b_multiplier, b_shift;
    int32_t out_offset, out_multiplier, out_shift, low, high;
} sw_add_params;

static void sw_add(const sw_add_params *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    const sw_add_params q = *p;
    for (int32_t first = 0; first < q.count; first += q.period) {
        for (int32_t i = 0; i < q.period; i++) {
            const int32_t x = sw_shift_left((int32_t)a[first + i] + q.a_offset, 20);
            const int32_t y = sw_shift_left((int32_t)b[i] + q.b_offset, 20);
            const int32_t left = sw_requantize(x, q.a_multiplier, q.a_shift);
            const int32_t right = sw_requantize(y, q.b_multiplier, q.b_shift);
            const int32_t sum = sw_low32((uint32_t)left + (uint32_t)right);
            const int32_t scaled = sw_requantize(sum, q.out_multiplier, q.out_shift);
            out[first + i] = sw_clamp8(scaled + q.out_offset, q.low, q.high);
        }
    }
}

/* section mul: fixed_point */
typedef struct {
    int32_t count, period, a_offset, b_offset, out_offset, out_multiplier, out_shift;
} sw_mul_params;

static void sw_mul(const sw_mul_params *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    const sw_mul_params q = *p;
    for (int32_t first = 0; first < q.count; first += q.period) {
        for (int32_t i = 0; i < q.period; i++) {
            const int32_t y = (int32_t)b[i] + q.b_offset;
            const int32_t product = ((int32_t)a[first + i] + q.a_offset) * y;
            const int32_t scaled = sw_requantize(product, q.out_multiplier, q.out_shift);
            out[first + i] = sw_clamp8(scaled + q.out_offset, -128, 127);
        }
    }
}

/* section select: */
typedef struct {
    int32_t size[4], a_stride[4], b_stride[4];
    int32_t greater;
} sw_select_params;

static void sw_select(const sw_select_params *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    for (int32_t i = 0; i < p->size[0]; i++) {
        for (int32_t j = 0; j < p->size[1]; j++) {
            for (int32_t k = 0; k < p->size[2]; k++) {
                for (int32_t l = 0; l < p->size[3]; l++) {
                    const int8_t x = a[(i * p->a_stride[0]) + (j * p->a_stride[1]) +
                                       (k * p->a_stride[2]) + (l * p->a_stride[3])];
                    const int8_t y = b[(i * p->b_stride[0]) + (j * p->b_stride[1]) +
                                       (k * p->b_stride[2]) + (l * p->b_stride[3])];
                    *out = ((x > y) == (p->greater != 0)) ? x : y;
                    out++;
                }
            }
        }
    }
}

/* section activation: */
static void sw_activation(int32_t count, const int8_t *in, const int8_t *table, int8_t *out)
{
    for (int32_t i = 0; i < count; i++) {
        out[i] = table[(int32_t)in[i] + 128];
    }
}

/* section pool_params: */
typedef struct {
    int32_t batch, in_h, in_w, channels, out_h, out_w;
    int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, low, high;
} sw_pool_params;

/* section pool_windows: pool_params bounds */
/* The part inside the image of the window of output cell `at`: its first byte, rows and cells. */
typedef struct {
    int32_t from, rows, cells;
} sw_pool_window;

static inline sw_pool_window sw_pool_window_at(const sw_pool_params *p, int32_t at)
{
    const int32_t n = at / (p->out_h * p->out_w);
    const int32_t y = (((at / p->out_w) % p->out_h) * p->stride_h) - p->pad_h;
    const int32_t x = ((at % p->out_w) * p->stride_w) - p->pad_w;
    const int32_t top = sw_first(y, 1);
    const int32_t left = sw_first(x, 1);
    sw_pool_window v;
    v.from = ((((n * p->in_h) + y + top) * p->in_w) + x + left) * p->channels;
    v.rows = sw_end(y, 1, p->in_h, p->kernel_h) - top;
    v.cells = sw_end(x, 1, p->in_w, p->kernel_w) - left;
    return v;
}

/* section avg_pool2d: clamp pool_windows */
static void sw_avg_pool2d(const sw_pool_params *p, const int8_t *in, int8_t *out)
{
    const int32_t channels = p->channels;
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const sw_pool_window v = sw_pool_window_at(p, at);
        const int32_t count = ((v.rows > 0) && (v.cells > 0)) ? (v.rows * v.cells) : 0;
        for (int32_t c = 0; c < channels; c++) {
            int32_t sum = 0;
            for (int32_t y = 0; y < v.rows; y++) {
                int32_t from = v.from + (y * p->in_w * channels) + c;
                for (int32_t x = 0; x < v.cells; x++) {
                    sum += in[from];
                    from += channels;
                }
            }
            if (count > 0) {
                sum = (sum > 0) ? ((sum + (count / 2)) / count) : ((sum - (count / 2)) / count);
            }
            out[(at * channels) + c] = sw_clamp8(sum, p->low, p->high);
        }
    }
}

/* section max_pool2d: clamp pool_windows */
static void sw_max_pool2d(const sw_pool_params *p, const int8_t *in, int8_t *out)
{
    const int32_t channels = p->channels;
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const sw_pool_window v = sw_pool_window_at(p, at);
        for (int32_t c = 0; c < channels; c++) {
            int32_t most = -128;
            for (int32_t y = 0; y < v.rows; y++) {
                int32_t from = v.from + (y * p->in_w * channels) + c;
                for (int32_t x = 0; x < v.cells; x++) {
                    most = (in[from] > most) ? in[from] : most;
                    from += channels;
                }
            }
            out[(at * channels) + c] = sw_clamp8(most, p->low, p->high);
        }
    }
}

/* section softmax: fixed_point */
static int32_t sw_doubling_mult(int32_t a, int32_t b)
{
    if ((a == INT32_MIN) && (b == INT32_MIN)) {
        return INT32_MAX;
    }
    const int64_t nudge = ((a < 0) != (b < 0)) ? (1 - ((int64_t)1 << 30)) : ((int64_t)1 << 30);
    return (int32_t)((((int64_t)a * b) + nudge) / ((int64_t)1 << 31));
}

static int32_t sw_saturating_shift(int32_t value, int32_t bits)
{
    const int64_t wide = (int64_t)value * ((int64_t)1 << bits);
    const int64_t low = (wide < INT32_MIN) ? INT32_MIN : wide;
    return (int32_t)((low > INT32_MAX) ? INT32_MAX : low);
}

static int32_t sw_sum(int32_t a, int32_t b)
{
    return sw_low32((uint32_t)a + (uint32_t)b);
}

static int32_t sw_exp_negative(int32_t value)
{
    static const int32_t steps[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    if (value == 0) {
        return INT32_MAX;
    }
    const int32_t quarter = (int32_t)((uint32_t)value & 0xFFFFFFu) - (1 << 24);
    const int32_t x = (quarter * 32) + (1 << 28);
    const int32_t x2 = sw_doubling_mult(x, x);
    const int32_t x3 = sw_doubling_mult(x2, x);
    const int32_t x4 = sw_doubling_mult(x2, x2);
    const int32_t cubic = sw_doubling_mult(sw_sum(sw_divide_pow2(x4, 2), x3), 715827883);
    const int32_t tail = sw_divide_pow2(sw_sum(cubic, x2), 1);
    int32_t result = sw_sum(1895147668, sw_doubling_mult(sw_sum(x, tail), 1895147668));
    const int32_t rest = quarter - value;
    for (int32_t k = 0; k < 7; k++) {
        if (((uint32_t)rest & ((uint32_t)1 << (24 + (uint32_t)k))) != 0u) {
            result = sw_doubling_mult(result, steps[k]);
        }
    }
    return result;
}

static int32_t sw_reciprocal(int32_t value)
{
    const int64_t total = (int64_t)value + INT32_MAX;
    const int32_t half = (int32_t)((total + ((total >= 0) ? 1 : -1)) / 2);
    int32_t x = sw_sum(1515870810, sw_doubling_mult(half, -1010580540));
    for (int32_t step = 0; step < 3; step++) {
        const int32_t error = sw_sum(1 << 29, -sw_doubling_mult(half, x));
        x = sw_sum(x, sw_saturating_shift(sw_doubling_mult(x, error), 2));
    }
    return sw_saturating_shift(x, 1);
}

static void sw_softmax(int32_t rows, int32_t size, int32_t multiplier, int32_t shift, int32_t diff_min,
                       const int8_t *in, int8_t *out)
{
    const int32_t left = (shift > 0) ? shift : 0;
    const int32_t right = (shift < 0) ? -shift : 0;
    for (int32_t row = 0; row < rows; row++) {
        const int8_t *x = &in[row * size];
        int32_t most = -128;
        int32_t sum = 0;
        for (int32_t i = 0; i < size; i++) {
            most = ((int32_t)x[i] > most) ? (int32_t)x[i] : most;
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t apart = (int32_t)x[i] - most;
            if (apart >= diff_min) {
                const int32_t scaled = sw_doubling_mult(sw_shift_left(apart, left), multiplier);
                sum = sw_sum(sum, sw_divide_pow2(sw_exp_negative(sw_divide_pow2(scaled, right)), 12));
            }
        }
        int32_t zeros = 0;
        while ((zeros < 31) && (((uint32_t)sum >> (31 - (uint32_t)zeros)) == 0u)) {
            zeros++;
        }
        const int32_t unit = sw_low32(((uint32_t)sum << (uint32_t)zeros) - ((uint32_t)1 << 31));
        const int32_t factor = sw_reciprocal(unit);
        const int32_t bits = 12 - zeros + 23;
        for (int32_t i = 0; i < size; i++) {
            const int32_t apart = (int32_t)x[i] - most;
            int32_t value = -128;
            if (apart >= diff_min) {
                const int32_t scaled = sw_doubling_mult(sw_shift_left(apart, left), multiplier);
                const int32_t e = sw_exp_negative(sw_divide_pow2(scaled, right));
                value = sw_divide_pow2(sw_doubling_mult(factor, e), bits) - 128;
            }
            out[(row * size) + i] = sw_clamp8(value, -128, 127);
        }
    }
}

/* section permute: */
typedef struct {
    int32_t bytes, size[6], stride[6];
} sw_permute_params;

/* Elements in the order of `size`, read `stride` elements apart. */
static void sw_permute(const sw_permute_params *p, const uint8_t *in, uint8_t *out)
{
    const int32_t step = p->stride[5] * p->bytes;
    int32_t at[5] = {0, 0, 0, 0, 0};
    int32_t rows = 1;
    int32_t source = 0;
    for (int32_t axis = 0; axis < 5; axis++) {
        rows *= p->size[axis];
    }
    for (int32_t row = 0; row < rows; row++) {
        const uint8_t *from = &in[source * p->bytes];
        for (int32_t i = 0; i < p->size[5]; i++) {
            if (p->bytes == 1) {
                *out = *from;
            } else {
                memcpy(out, from, (size_t)p->bytes);
            }
            out += p->bytes;
            from += step;
        }
        for (int32_t axis = 4; axis >= 0; axis--) {
            at[axis]++;
            source += p->stride[axis];
            if (at[axis] < p->size[axis]) {
                break;
            }
            source -= at[axis] * p->stride[axis];
            at[axis] = 0;
        }
    }
}

/* section pad: */
typedef struct {
    int32_t size[4], before[4], after[4], value;
} sw_pad_params;

static void sw_pad(const sw_pad_params *p, const int8_t *in, int8_t *out)
{
    for (int32_t i = -p->before[0]; i < (p->size[0] + p->after[0]); i++) {
        for (int32_t j = -p->before[1]; j < (p->size[1] + p->after[1]); j++) {
            for (int32_t k = -p->before[2]; k < (p->size[2] + p->after[2]); k++) {
                for (int32_t l = -p->before[3]; l < (p->size[3] + p->after[3]); l++) {
                    const int inside = (i >= 0) && (i < p->size[0]) && (j >= 0) && (j < p->size[1]) &&
                                       (k >= 0) && (k < p->size[2]) && (l >= 0) && (l < p->size[3]);
                    const int32_t at = (((((i * p->size[1]) + j) * p->size[2]) + k) * p->size[3]) + l;
                    *out = inside ? in[at] : (int8_t)p->value;
                    out++;
                }
            }
        }
    }
}

/* section quantize: */
static void sw_quantize(int32_t count, float scale, int32_t zero, int32_t low, int32_t high,
                        const uint8_t *in, int8_t *out)
{
    const float inverse = 1.0f / scale;
    for (int32_t i = 0; i < count; i++) {
        float real;
        memcpy(&real, &in[i * 4], sizeof(real));
        const float steps = real * inverse; /* NaN is no step. */
        const float value = ((steps == steps) ? nearbyintf(steps) : 0.0f) + (float)zero;
        const float floor_ = (value > (float)low) ? value : (float)low;
        out[i] = (int8_t)((floor_ > (float)high) ? (float)high : floor_);
    }
}

/* section dequantize: */
static void sw_dequantize(int32_t count, float scale, int32_t zero, const int8_t *in, uint8_t *out)
{
    for (int32_t i = 0; i < count; i++) {
        const float real = (float)((int32_t)in[i] - zero) * scale;
        memcpy(&out[i * 4], &real, sizeof(real));
    }
}

/* section div: clamp */
typedef struct {
    int32_t count, a_zero, b_zero, out_zero;
    float scale;
} sw_div_params;

static void sw_div(const sw_div_params *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    for (int32_t i = 0; i < p->count; i++) {
        const float over = (float)((int32_t)a[i] - p->a_zero);
        const float under = (float)((int32_t)b[i] - p->b_zero);
        const float scaled = ((under < 0.0f) || (under > 0.0f)) ? ((over / under) * p->scale) : 0.0f;
        const double away = floor(fabs((double)scaled) + 0.5);
        const double limited = (away > 1024.0) ? 1024.0 : away;
        const int32_t whole = (scaled < 0.0f) ? -(int32_t)limited : (int32_t)limited;
        out[i] = sw_clamp8(whole + p->out_zero, -128, 127);
    }
}

/* section elements: */
#if defined(__GNUC__)
#define SW_ANY __attribute__((__may_alias__))
#else
#define SW_ANY
#endif
typedef int16_t SW_ANY sw_int16;
typedef int32_t SW_ANY sw_int32;
typedef int64_t SW_ANY sw_int64;
typedef float SW_ANY sw_float;
typedef double SW_ANY sw_double;

/* section whole_numbers: */
static inline int64_t sw_wrap(uint64_t value)
{
    return (value <= (uint64_t)INT64_MAX) ? (int64_t)value : (-(int64_t)(UINT64_MAX - value) - 1);
}

/* towards zero, within the range; 0 of what is no number */
static inline int64_t sw_whole(double value)
{
    if (!(value > -9223372036854775808.0)) {
        return (value != value) ? 0 : INT64_MIN;
    }
    return (value < 9223372036854775808.0) ? (int64_t)value : INT64_MAX;
}

static inline int64_t sw_whole_maximum(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

static inline int64_t sw_whole_minimum(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

static inline int64_t sw_whole_modulo(int64_t a, int64_t b)
{
    const int64_t rest = ((b == 0) || (b == -1)) ? 0 : (a % b);
    return ((rest != 0) && ((rest < 0) != (b < 0))) ? (rest + b) : rest;
}

static inline int64_t sw_whole_quotient(int64_t a, int64_t b)
{
    if ((b == 0) || (b == -1)) {
        return (b == 0) ? 0 : sw_wrap(0U - (uint64_t)a);
    }
    return (a / b) - ((((a % b) != 0) && ((a < 0) != (b < 0))) ? 1 : 0);
}

/* section float_numbers: */
static inline float sw_float_maximum(float a, float b)
{
    return ((a > b) || (a != a)) ? a : b;
}

static inline float sw_float_minimum(float a, float b)
{
    return ((a < b) || (a != a)) ? a : b;
}

static inline float sw_float_modulo(float a, float b)
{
    const float rest = fmodf(a, b);
    return ((rest != 0.0f) && ((rest < 0.0f) != (b < 0.0f))) ? (rest + b) : rest;
}

static inline float sw_float_quotient(float a, float b)
{
    const float whole = (a - sw_float_modulo(a, b)) / b;
    const float below = floorf(whole);
    return (b == 0.0f) ? (a / b) : (((whole - below) > 0.5f) ? (below + 1.0f) : below);
}

/* section double_numbers: */
static inline double sw_double_maximum(double a, double b)
{
    return ((a > b) || (a != a)) ? a : b;
}

static inline double sw_double_minimum(double a, double b)
{
    return ((a < b) || (a != a)) ? a : b;
}

static inline double sw_double_modulo(double a, double b)
{
    const double rest = fmod(a, b);
    return ((rest != 0.0) && ((rest < 0.0) != (b < 0.0))) ? (rest + b) : rest;
}

static inline double sw_double_quotient(double a, double b)
{
    const double whole = (a - sw_double_modulo(a, b)) / b;
    const double below = floor(whole);
    return (b == 0.0) ? (a / b) : (((whole - below) > 0.5) ? (below + 1.0) : below);
}
