/* The kernels of portable_kernels.c for a core with vectors of integers (MVE: Cortex-M55, M85).
 *
 * The same functions with the same bits, 4 or 16 elements at a time. A section stands in the place of
 * the plain one of its name where the compiler is told of such a core. Sums are exact in any order.
 */

/* section mve: */
#if defined(__ARM_FEATURE_MVE) && ((__ARM_FEATURE_MVE & 1) != 0)
#define SW_MVE 1
#include <arm_mve.h>

/* A loop whose registers are its own (a compiler that took it into its caller would spill them),
 * and one that is there once for each value of a flag. */
#if defined(__GNUC__)
#define SW_APART __attribute__((noinline))
#define SW_WITHIN inline __attribute__((always_inline))
/* A count of turns of which nothing else is known, which is not computed anew from pointers. */
#define SW_TURNS(count) __asm__("" : "+r"(count))
#else
#define SW_APART
#define SW_WITHIN inline
#define SW_TURNS(count) (void)(count)
#endif

/* Four times sw_requantize. */
static inline int32x4_t sw_requantize4(int32x4_t value, int32x4_t multiplier, int32x4_t shift)
{
    const int32x4_t left = vmaxq_s32(shift, vdupq_n_s32(0));
    const int32x4_t right = vminq_s32(shift, vdupq_n_s32(0));
    const int32x4_t high = vqrdmulhq_s32(vshlq_s32(value, left), multiplier);
    const int32x4_t below = vshrq_n_s32(vandq_s32(high, right), 31);
    return vrshlq_s32(vqaddq_s32(high, below), right);
}

/* The same by one multiplier and shift. */
static inline int32x4_t sw_requantize4_n(int32x4_t value, int32_t multiplier, int32_t shift)
{
    const int32_t right = (shift < 0) ? shift : 0;
    const int32x4_t high = vqrdmulhq_n_s32(vshlq_r_s32(value, (shift > 0) ? shift : 0), multiplier);
    const int32x4_t below = vshrq_n_s32(vandq_s32(high, vdupq_n_s32(right)), 31);
    return vrshlq_n_s32(vqaddq_s32(high, below), right);
}

static inline int32x4_t sw_clamp4(int32x4_t value, int32_t offset, int32_t low, int32_t high)
{
    const int32x4_t floor_ = vmaxq_s32(vaddq_n_s32(value, offset), vdupq_n_s32(low));
    return vminq_s32(floor_, vdupq_n_s32(high));
}

/* The sum of x * w, and in *sums that of w added. */
static inline int32_t sw_dot(const int8_t *x, const int8_t *w, int32_t count, int32_t *sums)
{
    int32_t products = 0;
    int32_t total = *sums;
    for (int32_t block = count >> 4; block > 0; block--) {
        const int8x16_t b = vldrbq_s8(w);
        products = vmladavaq_s8(products, vldrbq_s8(x), b);
        total = vaddvaq_s8(total, b);
        x += 16;
        w += 16;
    }
    if ((count & 15) != 0) {
        const mve_pred16_t live = vctp8q((uint32_t)count & 15u);
        const int8x16_t b = vldrbq_z_s8(w, live);
        products = vmladavaq_s8(products, vldrbq_z_s8(x, live), b);
        total = vaddvaq_s8(total, b);
    }
    *sums = total;
    return products;
}

static inline int32_t sw_total(const int8_t *w, int32_t count)
{
    int32_t total = 0;
    int32_t blocks = count >> 4;
    SW_TURNS(blocks);
    for (; blocks > 0; blocks--) {
        total = vaddvaq_s8(total, vldrbq_s8(w));
        w += 16;
    }
    if ((count & 15) != 0) {
        total = vaddvaq_s8(total, vldrbq_z_s8(w, vctp8q((uint32_t)count & 15u)));
    }
    return total;
}

/* Products of four x that are `step` apart by the same w, added to sums that are all `first`. */
static SW_WITHIN int32x4_t sw_dot4(const int8_t *x, int32_t step, const int8_t *w, int32_t count,
                                   int32_t first)
{
    const int32_t whole = count & ~15;
    int32_t s0 = first;
    int32_t s1 = first;
    int32_t s2 = first;
    int32_t s3 = first;
    int32_t blocks = count >> 4;
    const int8_t *x0 = x;
    const int8_t *x1 = &x[step];
    const int8_t *x2 = &x1[step];
    const int8_t *x3 = &x2[step];
    const int8_t *y = w;
    SW_TURNS(blocks);
    for (; blocks > 0; blocks--) {
        const int8x16_t b = vldrbq_s8(y);
        s0 = vmladavaq_s8(s0, vldrbq_s8(x0), b);
        s1 = vmladavaq_s8(s1, vldrbq_s8(x1), b);
        s2 = vmladavaq_s8(s2, vldrbq_s8(x2), b);
        s3 = vmladavaq_s8(s3, vldrbq_s8(x3), b);
        x0 += 16;
        x1 += 16;
        x2 += 16;
        x3 += 16;
        y += 16;
    }
    if (whole != count) {
        const mve_pred16_t live = vctp8q((uint32_t)(count - whole));
        const int8x16_t b = vldrbq_z_s8(&w[whole], live);
        x = &x[whole];
        s0 = vmladavaq_s8(s0, vldrbq_z_s8(x, live), b);
        s1 = vmladavaq_s8(s1, vldrbq_z_s8(&x[step], live), b);
        s2 = vmladavaq_s8(s2, vldrbq_z_s8(&x[2 * step], live), b);
        s3 = vmladavaq_s8(s3, vldrbq_z_s8(&x[3 * step], live), b);
    }
    int32x4_t sums = vdupq_n_s32(s0);
    sums = vsetq_lane_s32(s1, sums, 1);
    sums = vsetq_lane_s32(s2, sums, 2);
    return vsetq_lane_s32(s3, sums, 3);
}

/* The same of four, or of the first alone; the sum of w by `in_offset` is in it. */
static inline int32x4_t sw_dot_run(const int8_t *x, int32_t step, const int8_t *w, int32_t length,
                                   int32_t count, int32_t in_offset)
{
    if (count == 4) {
        return sw_dot4(x, step, w, length, in_offset * sw_total(w, length));
    }
    int32_t total = 0;
    const int32_t sum = sw_dot(x, w, length, &total);
    return vdupq_n_s32(sum + (total * in_offset));
}

/* Taps of a filter from `first` on whose places from `at` on, `dilation` apart, lie below `size`. */
static inline int32_t sw_taps(int32_t at, int32_t dilation, int32_t taps, int32_t size, int32_t *first)
{
    int32_t low = 0;
    int32_t high = taps;
    while ((low < high) && ((at + (low * dilation)) < 0)) {
        low++;
    }
    while ((high > low) && ((at + ((high - 1) * dilation)) >= size)) {
        high--;
    }
    *first = low;
    return high - low;
}

static inline void sw_copy(int8_t *to, const int8_t *from, int32_t count)
{
    for (int32_t left = count; left > 0; left -= 16) {
        const mve_pred16_t live = vctp8q((uint32_t)left);
        vstrbq_p_s8(to, vldrbq_z_s8(from, live), live);
        to += 16;
        from += 16;
    }
}

static inline void sw_fill(int8_t *to, int8_t value, int32_t count)
{
    for (int32_t left = count; left > 0; left -= 16) {
        vstrbq_p_s8(to, vdupq_n_s8(value), vctp8q((uint32_t)left));
        to += 16;
    }
}
#endif

/* section tile: mve */
#ifdef SW_MVE
#define SW_PLACES 32
/* Results side by side that one channel's filter computes before the next one's. */

/* Numbers side by side times those of a filter for each channel: a convolution of windows that lie
 * `step` apart. */
typedef struct {
    const int8_t *weight;
    const int32_t *bias, *multiplier, *shift;
    const int8_t *x;
    int32_t count, step, length, weight_step, channels, out_step, scale_step;
    int32_t in_offset, out_offset, low, high;
    int32_t back, out_back; /* How much earlier the last four of `count`, at least 4, begin. */
} sw_tile;

/* One channel of a tile, four results at a time. */
static SW_APART void sw_run_channel(const sw_tile *t, const int8_t *w, int32_t first,
                                    int32_t multiplier, int32_t shift, int8_t *out)
{
    const int32_t step = t->step;
    const int32_t length = t->length;
    const int32_t out_step = t->out_step;
    const int32_t offset = t->out_offset;
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)out_step);
    const int32x4_t low = vdupq_n_s32(t->low);
    const int32x4_t high = vdupq_n_s32(t->high);
    const int8_t *x = t->x;
    for (int32_t left = t->count; left > 0; left -= 4) {
        if (left < 4) {
            x -= t->back;
            out -= t->out_back;
        }
        int32x4_t all = sw_requantize4_n(sw_dot4(x, step, w, length, first), multiplier, shift);
        all = vminq_s32(vmaxq_s32(vaddq_n_s32(all, offset), low), high);
        vstrbq_scatter_offset_s32(out, places, all);
        x += 4 * step;
        out += 4 * out_step;
    }
}

static inline void sw_run_tile(sw_tile *t, const int8_t *x, int32_t count, int8_t *out)
{
    const int32_t back = (4 - (count & 3)) & 3;
    t->x = x;
    t->count = count;
    t->back = back * t->step;
    t->out_back = back * t->out_step;
    for (int32_t channel = 0; channel < t->channels; channel++) {
        const int8_t *w = &t->weight[channel * t->weight_step];
        const int32_t total = t->in_offset * sw_total(w, t->length);
        const int32_t first = total + ((t->bias != NULL) ? t->bias[channel] : 0);
        const int32_t at = channel * t->scale_step;
        sw_run_channel(t, w, first, t->multiplier[at], t->shift[at], &out[channel]);
    }
}

/* Results by the channel, `SW_PLACES` of one before the next one's, or a few more. */
static inline void sw_run_tiles(sw_tile *t, const int8_t *x, int32_t count, int8_t *out)
{
    int32_t at = 0;
    while (at < count) {
        const int32_t left = count - at;
        const int32_t now = (left < (SW_PLACES + 4)) ? left : SW_PLACES;
        sw_run_tile(t, &x[at * t->step], now, &out[at * t->out_step]);
        at += now;
    }
}
#endif

/* section conv2d: tile */
#ifndef SW_WINDOW
#define SW_WINDOW 640
#endif
/* The largest filter whose windows are gathered, four at a time or more, on the stack. */

/* `count` results of channel oc, side by side from ox on, whose windows hold columns kx to kx_end:
 * sums of products, with the weights' own by `in_offset`. */
static inline int32x4_t sw_conv_run(const sw_conv_params *p, const int8_t *in, const int8_t *w,
                                    int32_t oy, int32_t ox, int32_t kx, int32_t kx_end, int32_t count,
                                    int32_t first)
{
    const int is_joined = (p->dilation_w == 1) && (p->kernel_c == p->in_c);
    const int32_t runs = is_joined ? 1 : (kx_end - kx);
    const int32_t length = is_joined ? ((kx_end - kx) * p->in_c) : p->kernel_c;
    const int32_t step = p->stride_w * p->in_c;
    int32x4_t sums = vdupq_n_s32(first);
    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
        if ((iy >= 0) && (iy < p->in_h)) {
            const int32_t ix = (ox * p->stride_w) - p->pad_w + (kx * p->dilation_w);
            const int8_t *x = &in[((iy * p->in_w) + ix) * p->in_c];
            const int8_t *row = &w[((ky * p->kernel_w) + kx) * p->kernel_c];
            for (int32_t run = 0; run < runs; run++) {
                sums = vaddq_s32(sums, sw_dot_run(x, step, row, length, count, p->in_offset));
                x += p->dilation_w * p->in_c;
                row += p->kernel_c;
            }
        }
    }
    return sums;
}

/* A window of an image without groups as it lies in its filter; what is outside adds nothing. */
static SW_APART void sw_conv_window(const sw_conv_params *p, const int8_t *in, int32_t oy, int32_t ox,
                                    int8_t *to)
{
    const int8_t outside = (int8_t)-p->in_offset;
    const int32_t run = (p->dilation_w == 1) ? p->kernel_w : 1; /* Columns that lie side by side. */
    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
        int32_t ix = (ox * p->stride_w) - p->pad_w;
        for (int32_t kx = 0; kx < p->kernel_w; kx += run) {
            int32_t left = (ix < 0) ? -ix : 0;
            int32_t right = ((ix + run) > p->in_w) ? ((ix + run) - p->in_w) : 0;
            if ((iy < 0) || (iy >= p->in_h) || ((left + right) >= run)) {
                left = run;
                right = 0;
            }
            sw_fill(to, outside, left * p->in_c);
            to += left * p->in_c;
            const int32_t inside = (run - left - right) * p->in_c;
            if (inside > 0) {
                sw_copy(to, &in[((iy * p->in_w) + ix + left) * p->in_c], inside);
            }
            to += inside;
            sw_fill(to, outside, right * p->in_c);
            to += right * p->in_c;
            ix += p->dilation_w;
        }
    }
}

/* Four results of each channel, or one, from on `at`, whose windows are not gathered. */
static inline int32_t sw_conv_few(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                  const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                  int32_t at, int8_t *out)
{
    const int32_t per_group = p->out_c / (p->in_c / p->kernel_c);
    const int32_t filter = p->kernel_h * p->kernel_w * p->kernel_c;
    const int32_t oy = at / p->out_w;
    const int32_t ox = at % p->out_w;
    const int32_t ix = (ox * p->stride_w) - p->pad_w;
    const int32_t last = ix + (3 * p->stride_w) + ((p->kernel_w - 1) * p->dilation_w);
    const int32_t count = ((ix >= 0) && (last < p->in_w) && ((ox + 4) <= p->out_w)) ? 4 : 1;
    const mve_pred16_t live = vctp32q((uint32_t)count);
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)p->out_c);
    int32_t kx = 0;
    const int32_t columns = sw_taps(ix, p->dilation_w, p->kernel_w, p->in_w, &kx);
    for (int32_t oc = 0; oc < p->out_c; oc++) {
        const int8_t *x = &in[(oc / per_group) * p->kernel_c];
        const int8_t *w = &weight[oc * filter];
        const int32_t first = (bias != NULL) ? bias[oc] : 0;
        int32x4_t all = sw_conv_run(p, x, w, oy, ox, kx, kx + columns, count, first);
        all = sw_requantize4_n(all, multiplier[oc], shift[oc]);
        all = sw_clamp4(all, p->out_offset, p->low, p->high);
        vstrbq_scatter_offset_p_s32(&out[oc], places, all, live);
    }
    return count;
}

static void sw_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, const int32_t *multiplier, const int32_t *shift, int8_t *out)
{
    int8_t windows[4 * SW_WINDOW] = {0};
    const int32_t filter = p->kernel_h * p->kernel_w * p->kernel_c;
    const int32_t pixels = p->out_h * p->out_w;
    const int is_whole = p->kernel_c == p->in_c;
    const int is_tiled = is_whole && (pixels >= 4);
    const int is_plain = is_tiled && (p->kernel_h == 1) && (p->kernel_w == 1) && (p->stride_h == 1) &&
                         (p->stride_w == 1) && (pixels == (p->in_h * p->in_w));
    const int32_t places = ((4 * SW_WINDOW) / filter) & ~3;
    sw_tile tile = {weight, bias, multiplier, shift, NULL, 0, filter, filter, filter, p->out_c,
                    p->out_c, 1, p->in_offset, p->out_offset, p->low, p->high, 0, 0};
    for (int32_t n = 0; n < p->batch; n++) {
        int32_t at = 0;
        if (is_plain) {
            sw_run_tiles(&tile, in, pixels, out);
            at = pixels;
        }
        while (at < pixels) {
            int32_t count = 0;
            if (is_tiled && (places >= 4)) {
                at = ((pixels - at) < 4) ? (pixels - 4) : at;
                count = ((pixels - at) < places) ? (pixels - at) : places;
                for (int32_t i = 0; i < count; i++) {
                    sw_conv_window(p, in, (at + i) / p->out_w, (at + i) % p->out_w,
                                   &windows[i * filter]);
                }
                sw_run_tile(&tile, windows, count, &out[at * p->out_c]);
            } else {
                count = sw_conv_few(p, in, weight, bias, multiplier, shift, at, &out[at * p->out_c]);
            }
            at += count;
        }
        in += p->in_h * p->in_w * p->in_c;
        out += pixels * p->out_c;
    }
}

/* section depthwise_conv2d: */
/* A filter over one result of a channel, or over two side by side; rows and columns of it that lie
 * inside the image, the same for both. */
typedef struct {
    const int8_t *x, *weight;
    int32_t rows, columns, apart;
    int32_t x_row, x_column, weight_row, weight_column;
} sw_depthwise_window;

/* Eight channels from on `at`, or the live ones, added to sums of the even and of the odd. */
static SW_WITHIN void sw_depthwise8(const sw_depthwise_window *window, int32_t at, int16_t in_offset,
                                 int is_two, int is_whole, mve_pred16_t live, int32x4_t sum[4])
{
    const int8_t *x_row = &window->x[at];
    const int8_t *w_row = &window->weight[at];
    const int32_t apart = window->apart;
    int32x4_t s0 = sum[0];
    int32x4_t s1 = sum[1];
    int32x4_t s2 = sum[0];
    int32x4_t s3 = sum[1];
    for (int32_t row = window->rows; row > 0; row--) {
        const int8_t *x = x_row;
        const int8_t *w = w_row;
        for (int32_t column = window->columns; column > 0; column--) {
            const int16x8_t b = is_whole ? vldrbq_s16(w) : vldrbq_z_s16(w, live);
            int16x8_t a = is_whole ? vldrbq_s16(x) : vldrbq_z_s16(x, live);
            a = vaddq_n_s16(a, in_offset);
            s0 = vaddq_s32(s0, vmullbq_int_s16(a, b));
            s1 = vaddq_s32(s1, vmulltq_int_s16(a, b));
            if (is_two) {
                a = is_whole ? vldrbq_s16(&x[apart]) : vldrbq_z_s16(&x[apart], live);
                a = vaddq_n_s16(a, in_offset);
                s2 = vaddq_s32(s2, vmullbq_int_s16(a, b));
                s3 = vaddq_s32(s3, vmulltq_int_s16(a, b));
            }
            x += window->x_column;
            w += window->weight_column;
        }
        x_row += window->x_row;
        w_row += window->weight_row;
    }
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
}

/* Eight sums as results, the even and the odd of them. */
static SW_WITHIN void sw_depthwise_out(const sw_conv_params *p, int32x4_t even, int32x4_t odd,
                                       const int32x4x2_t *by, const int32x4x2_t *bits, int is_whole,
                                       mve_pred16_t live, int8_t *to)
{
    even = sw_requantize4(even, by->val[0], bits->val[0]);
    odd = sw_requantize4(odd, by->val[1], bits->val[1]);
    int16x8_t both = vqmovntq_s32(vqmovnbq_s32(vreinterpretq_s16_s32(odd), even), odd);
    both = vqaddq_n_s16(both, (int16_t)p->out_offset);
    both = vmaxq_s16(both, vdupq_n_s16((int16_t)p->low));
    both = vminq_s16(both, vdupq_n_s16((int16_t)p->high));
    if (is_whole) {
        vstrbq_s16(to, both);
    } else {
        vstrbq_p_s16(to, both, live);
    }
}

/* Eight channels' results from on `at`, of one place or of two. */
static SW_WITHIN void sw_depthwise_block(const sw_conv_params *p, const sw_depthwise_window *window,
                                         int32_t at, int is_two, int is_whole, const int32_t *bias,
                                         const int32_t *multiplier, const int32_t *shift, int8_t *out)
{
    const mve_pred16_t live = vctp16q((uint32_t)(p->out_c - at));
    int32x4_t sum[4];
    if (bias != NULL) {
        const int32x4x2_t first = vld2q_s32(&bias[at]);
        sum[0] = first.val[0];
        sum[1] = first.val[1];
    } else {
        sum[0] = vdupq_n_s32(0);
        sum[1] = sum[0];
    }
    sw_depthwise8(window, at, (int16_t)p->in_offset, is_two, is_whole, live, sum);
    const int32x4x2_t by = vld2q_s32(&multiplier[at]);
    const int32x4x2_t bits = vld2q_s32(&shift[at]);
    sw_depthwise_out(p, sum[0], sum[1], &by, &bits, is_whole, live, &out[at]);
    if (is_two) {
        sw_depthwise_out(p, sum[2], sum[3], &by, &bits, is_whole, live, &out[p->out_c + at]);
    }
}

static SW_APART void sw_depthwise_two(const sw_conv_params *p, const sw_depthwise_window *window,
                                      const int32_t *bias, const int32_t *multiplier,
                                      const int32_t *shift, int8_t *out)
{
    const int32_t last = (p->out_c > 8) ? (p->out_c - 8) : 0; /* Where the last eight begin. */
    for (int32_t oc = 0; oc < p->out_c; oc += 8) {
        const int32_t at = (oc < last) ? oc : last;
        sw_depthwise_block(p, window, at, 1, 1, bias, multiplier, shift, out);
    }
}

static SW_APART void sw_depthwise_one(const sw_conv_params *p, const sw_depthwise_window *window,
                                      const int32_t *bias, const int32_t *multiplier,
                                      const int32_t *shift, int8_t *out)
{
    const int32_t last = (p->out_c > 8) ? (p->out_c - 8) : 0; /* Where the last eight begin. */
    for (int32_t oc = 0; oc < p->out_c; oc += 8) {
        const int32_t at = (oc < last) ? oc : last;
        sw_depthwise_block(p, window, at, 0, 1, bias, multiplier, shift, out);
    }
}

/* Fewer than eight channels. */
static SW_APART void sw_depthwise_few(const sw_conv_params *p, const sw_depthwise_window *window,
                                      const int32_t *bias, const int32_t *multiplier,
                                      const int32_t *shift, int is_two, int8_t *out)
{
    int32_t own[3][8] = {{0}};
    for (int32_t oc = 0; (oc < p->out_c) && (oc < 8); oc++) {
        own[0][oc] = (bias != NULL) ? bias[oc] : 0;
        own[1][oc] = multiplier[oc];
        own[2][oc] = shift[oc];
    }
    if (is_two) {
        sw_depthwise_block(p, window, 0, 1, 0, own[0], own[1], own[2], out);
    } else {
        sw_depthwise_block(p, window, 0, 0, 0, own[0], own[1], own[2], out);
    }
}

/* One channel of one result, where channels have copies. */
static inline int32_t sw_depthwise1(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                    int32_t oy, int32_t ox, int32_t sum)
{
    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
        for (int32_t kx = 0; kx < p->kernel_w; kx++) {
            const int32_t ix = (ox * p->stride_w) - p->pad_w + (kx * p->dilation_w);
            if ((iy >= 0) && (iy < p->in_h) && (ix >= 0) && (ix < p->in_w)) {
                const int32_t x = (int32_t)in[((iy * p->in_w) + ix) * p->in_c] + p->in_offset;
                sum += x * (int32_t)weight[((ky * p->kernel_w) + kx) * p->out_c];
            }
        }
    }
    return sum;
}

static void sw_depthwise_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                int8_t *out)
{
    const int32_t copies = p->out_c / p->in_c;
    sw_depthwise_window window;
    window.apart = p->stride_w * p->in_c;
    window.x_row = p->dilation_h * p->in_w * p->in_c;
    window.x_column = p->dilation_w * p->in_c;
    window.weight_row = p->kernel_w * p->out_c;
    window.weight_column = p->out_c;
    for (int32_t n = 0; n < p->batch; n++) {
        const int8_t *image = &in[n * p->in_h * p->in_w * p->in_c];
        for (int32_t oy = 0; oy < p->out_h; oy++) {
            const int32_t iy = (oy * p->stride_h) - p->pad_h;
            int32_t ky = 0;
            int32_t ox = 0;
            window.rows = sw_taps(iy, p->dilation_h, p->kernel_h, p->in_h, &ky);
            while (ox < p->out_w) {
                const int32_t ix = (ox * p->stride_w) - p->pad_w;
                const int32_t last = ix + p->stride_w + ((p->kernel_w - 1) * p->dilation_w);
                const int is_two = (ix >= 0) && (last < p->in_w) && ((ox + 2) <= p->out_w);
                const int32_t count = (is_two && (copies == 1)) ? 2 : 1;
                int32_t kx = 0;
                window.columns = sw_taps(ix, p->dilation_w, p->kernel_w, p->in_w, &kx);
                const int32_t y = (window.rows > 0) ? (iy + (ky * p->dilation_h)) : 0;
                const int32_t x = (window.columns > 0) ? (ix + (kx * p->dilation_w)) : 0;
                window.x = &image[((y * p->in_w) + x) * p->in_c];
                window.weight = &weight[((ky * p->kernel_w) + kx) * p->out_c];
                if (copies != 1) {
                    for (int32_t oc = 0; oc < p->out_c; oc++) {
                        int32_t sum = (bias != NULL) ? bias[oc] : 0;
                        sum = sw_depthwise1(p, &image[oc / copies], &weight[oc], oy, ox, sum);
                        sum = sw_requantize(sum, multiplier[oc], shift[oc]) + p->out_offset;
                        out[oc] = sw_clamp8(sum, p->low, p->high);
                    }
                } else if (p->out_c < 8) {
                    sw_depthwise_few(p, &window, bias, multiplier, shift, count == 2, out);
                } else if (count == 2) {
                    sw_depthwise_two(p, &window, bias, multiplier, shift, out);
                } else {
                    sw_depthwise_one(p, &window, bias, multiplier, shift, out);
                }
                out += count * p->out_c;
                ox += count;
            }
        }
    }
}

/* section transpose_conv2d: tile */
/* `count` results of a channel from ox on, a stride apart: they read inputs that are neighbors. */
static inline int32x4_t sw_transpose_run(const sw_conv_params *p, const int8_t *in, const int8_t *w,
                                         int32_t oy, int32_t ox, int32_t count, int32_t first)
{
    int32x4_t sums = vdupq_n_s32(first);
    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
        const int32_t dy = oy + p->pad_h - ky;
        const int32_t iy = dy / p->stride_h;
        if ((dy >= 0) && ((dy % p->stride_h) == 0) && (iy < p->in_h)) {
            for (int32_t kx = 0; kx < p->kernel_w; kx++) {
                const int32_t dx = ox + p->pad_w - kx;
                const int32_t ix = dx / p->stride_w;
                if ((dx >= 0) && ((dx % p->stride_w) == 0) && (ix < p->in_w)) {
                    const int8_t *x = &in[((iy * p->in_w) + ix) * p->in_c];
                    const int8_t *tap = &w[((ky * p->kernel_w) + kx) * p->in_c];
                    sums = vaddq_s32(sums, sw_dot_run(x, p->in_c, tap, p->in_c, count, p->in_offset));
                }
            }
        }
    }
    return sums;
}

/* Whether four results a stride apart have all of their windows' columns inside. */
static inline int sw_transpose_four(const sw_conv_params *p, int32_t ox)
{
    int is_inside = (ox + (3 * p->stride_w)) < p->out_w;
    for (int32_t kx = 0; kx < p->kernel_w; kx++) {
        const int32_t dx = ox + p->pad_w - kx;
        if ((dx % p->stride_w) == 0) {
            is_inside = is_inside && (dx >= 0) && (((dx / p->stride_w) + 3) < p->in_w);
        }
    }
    return is_inside;
}

/* Windows that do not overlap: each tap is a convolution of its own. */
static inline void sw_transpose_apart(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                      const int32_t *bias, const int32_t *multiplier,
                                      const int32_t *shift, int8_t *out)
{
    const int32_t filter = p->kernel_h * p->kernel_w * p->in_c;
    sw_tile tile = {NULL, bias, multiplier, shift, NULL, 0, p->in_c, p->in_c, filter, p->out_c,
                    p->stride_w * p->out_c, 1, p->in_offset, p->out_offset, p->low, p->high, 0, 0};
    for (int32_t row = 0; row < (p->batch * p->in_h); row++) {
        for (int32_t tap = 0; tap < (p->kernel_h * p->kernel_w); tap++) {
            const int32_t y = (row * p->stride_h) + (tap / p->kernel_w);
            tile.weight = &weight[tap * p->in_c];
            sw_run_tiles(&tile, &in[row * p->in_w * p->in_c], p->in_w,
                         &out[((y * p->out_w) + (tap % p->kernel_w)) * p->out_c]);
        }
    }
}

static void sw_transpose_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                int8_t *out)
{
    if ((p->kernel_h == p->stride_h) && (p->kernel_w == p->stride_w) && (p->pad_h == 0) &&
        (p->pad_w == 0) && (p->out_h == (p->in_h * p->stride_h)) &&
        (p->out_w == (p->in_w * p->stride_w)) && (p->in_w >= 4)) {
        sw_transpose_apart(p, in, weight, bias, multiplier, shift, out);
        return;
    }
    const int32_t filter = p->kernel_h * p->kernel_w * p->in_c;
    const uint32_t apart = (uint32_t)(p->stride_w * p->out_c);
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0u, 1), apart);
    for (int32_t n = 0; n < p->batch; n++) {
        for (int32_t oy = 0; oy < p->out_h; oy++) {
            for (int32_t phase = 0; (phase < p->stride_w) && (phase < p->out_w); phase++) {
                int32_t ox = phase;
                while (ox < p->out_w) {
                    const int32_t count = sw_transpose_four(p, ox) ? 4 : 1;
                    const mve_pred16_t live = vctp32q((uint32_t)count);
                    const int8_t *w = weight;
                    for (int32_t oc = 0; oc < p->out_c; oc++) {
                        const int32_t first = (bias != NULL) ? bias[oc] : 0;
                        int32x4_t all = sw_transpose_run(p, in, w, oy, ox, count, first);
                        all = sw_requantize4_n(all, multiplier[oc], shift[oc]);
                        all = sw_clamp4(all, p->out_offset, p->low, p->high);
                        vstrbq_scatter_offset_p_s32(&out[(ox * p->out_c) + oc], places, all, live);
                        w += filter;
                    }
                    ox += count * p->stride_w;
                }
            }
            out += p->out_w * p->out_c;
        }
        in += p->in_h * p->in_w * p->in_c;
    }
}

/* section linear: tile */
/* Four rows by each column. */
static SW_APART void sw_linear_four(const sw_matmul_params *p, const int8_t *x, const int8_t *w,
                                    const int32_t *bias, int8_t *out)
{
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)p->columns);
    int32_t given[4] = {0, 0, 0, 0};
    for (int32_t row = 0; (row < 4) && (p->filter_offset != 0); row++) {
        (void)sw_dot(&x[row * p->inner], &x[row * p->inner], p->inner, &given[row]);
        given[row] = (given[row] + (p->inner * p->in_offset)) * p->filter_offset;
    }
    const int32x4_t first = vldrwq_s32(given);
    for (int32_t column = 0; column < p->columns; column++) {
        int32_t weights = (bias == NULL) ? 0 : bias[column];
        weights += (p->in_offset == 0) ? 0 : (p->in_offset * sw_total(w, p->inner));
        int32x4_t all = vaddq_s32(sw_dot4(x, p->inner, w, p->inner, weights), first);
        all = sw_requantize4_n(all, p->multiplier, p->shift);
        all = sw_clamp4(all, p->out_offset, p->low, p->high);
        vstrbq_scatter_offset_s32(&out[column], places, all);
        w += p->inner;
    }
}

static void sw_linear(const sw_matmul_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, int8_t *out)
{
    int32_t row = 0;
    if ((p->filter_offset == 0) && (p->rows >= 4)) {
        sw_tile tile = {weight, bias, &p->multiplier, &p->shift, NULL, 0, p->inner, p->inner,
                        p->inner, p->columns, p->columns, 0, p->in_offset, p->out_offset, p->low,
                        p->high, 0, 0};
        sw_run_tiles(&tile, in, p->rows, out);
        return;
    }
    for (; (row + 4) <= p->rows; row += 4) {
        sw_linear_four(p, &in[row * p->inner], weight, bias, &out[row * p->columns]);
    }
    for (; row < p->rows; row++) {
        const int8_t *x = &in[row * p->inner];
        int32_t given = 0;
        int32_t column = 0;
        if (p->filter_offset != 0) {
            (void)sw_dot(x, x, p->inner, &given);
            given = (given + (p->inner * p->in_offset)) * p->filter_offset;
        }
        while (column < p->columns) {
            const int8_t *w = &weight[column * p->inner];
            const int32_t count = ((column + 4) <= p->columns) ? 4 : 1;
            int32_t sum[4] = {given, given, given, given};
            const int is_plain = (count == 4) && (p->in_offset == 0);
            if (is_plain) {
                vstrwq_s32(sum, sw_dot4(w, p->inner, x, p->inner, given));
            }
            for (int32_t at = 0; (at < count) && !is_plain; at++) {
                int32_t weights = 0;
                const int32_t products = sw_dot(x, &w[at * p->inner], p->inner, &weights);
                sum[at] = given + products + (weights * p->in_offset);
            }
            if ((bias != NULL) && (count == 4)) {
                vstrwq_s32(sum, vaddq_s32(vldrwq_s32(sum), vldrwq_s32(&bias[column])));
            } else if (bias != NULL) {
                sum[0] += bias[column];
            }
            int8_t *to = &out[(row * p->columns) + column];
            if (count == 4) {
                const int32x4_t all = sw_requantize4_n(vldrwq_s32(sum), p->multiplier, p->shift);
                vstrbq_s32(to, sw_clamp4(all, p->out_offset, p->low, p->high));
            } else {
                const int32_t one = sw_requantize(sum[0], p->multiplier, p->shift) + p->out_offset;
                *to = sw_clamp8(one, p->low, p->high);
            }
            column += count;
        }
    }
}

/* section add: */
typedef struct {
    int32_t count, period;
    int32_t a_offset, a_multiplier, a_shift, b_offset, b_multiplier, b_shift;
    int32_t out_offset, out_multiplier, out_shift, low, high;
} sw_add_params;

static inline int32x4_t sw_add4(const sw_add_params *p, int32x4_t a, int32x4_t b)
{
    int32x4_t x = vshlq_n_s32(vaddq_n_s32(a, p->a_offset), 20);
    int32x4_t y = vshlq_n_s32(vaddq_n_s32(b, p->b_offset), 20);
    x = sw_requantize4_n(x, p->a_multiplier, p->a_shift);
    y = sw_requantize4_n(y, p->b_multiplier, p->b_shift);
    const int32x4_t sum = sw_requantize4_n(vaddq_s32(x, y), p->out_multiplier, p->out_shift);
    return sw_clamp4(sum, p->out_offset, p->low, p->high);
}

static void sw_add(const sw_add_params *given, const int8_t *a, const int8_t *b, int8_t *out)
{
    const sw_add_params own = *given; /* Nothing that is written can be a part of it. */
    const sw_add_params *p = &own;
    for (int32_t row = 0; row < p->count; row += p->period) {
        int32_t i = 0;
        for (; (i + 4) <= p->period; i += 4) {
            const int32x4_t x = vldrbq_s32(&a[row + i]);
            vstrbq_s32(&out[row + i], sw_add4(p, x, vldrbq_s32(&b[i])));
        }
        if (i < p->period) {
            const mve_pred16_t live = vctp32q((uint32_t)(p->period - i));
            const int32x4_t x = vldrbq_z_s32(&a[row + i], live);
            vstrbq_p_s32(&out[row + i], sw_add4(p, x, vldrbq_z_s32(&b[i], live)), live);
        }
    }
}

/* section mul: */
typedef struct {
    int32_t count, period, a_offset, b_offset, out_offset, out_multiplier, out_shift;
} sw_mul_params;

static inline int32x4_t sw_mul4(const sw_mul_params *p, int32x4_t a, int32x4_t b)
{
    const int32x4_t all = vmulq_s32(vaddq_n_s32(a, p->a_offset), vaddq_n_s32(b, p->b_offset));
    const int32x4_t scaled = sw_requantize4_n(all, p->out_multiplier, p->out_shift);
    return sw_clamp4(scaled, p->out_offset, -128, 127);
}

static void sw_mul(const sw_mul_params *given, const int8_t *a, const int8_t *b, int8_t *out)
{
    const sw_mul_params own = *given; /* Nothing that is written can be a part of it. */
    const sw_mul_params *p = &own;
    for (int32_t row = 0; row < p->count; row += p->period) {
        int32_t i = 0;
        for (; (i + 4) <= p->period; i += 4) {
            const int32x4_t x = vldrbq_s32(&a[row + i]);
            vstrbq_s32(&out[row + i], sw_mul4(p, x, vldrbq_s32(&b[i])));
        }
        if (i < p->period) {
            const mve_pred16_t live = vctp32q((uint32_t)(p->period - i));
            const int32x4_t x = vldrbq_z_s32(&a[row + i], live);
            vstrbq_p_s32(&out[row + i], sw_mul4(p, x, vldrbq_z_s32(&b[i], live)), live);
        }
    }
}

/* section activation: */
static void sw_activation(int32_t count, const int8_t *in, const int8_t *table, int8_t *out)
{
    for (int32_t i = 0; i < count; i += 16) {
        const mve_pred16_t live = vctp8q((uint32_t)(count - i));
        const uint8x16_t given = vreinterpretq_u8_s8(vldrbq_z_s8(&in[i], live));
        const uint8x16_t place = veorq_u8(given, vdupq_n_u8(128u));
        vstrbq_p_s8(&out[i], vldrbq_gather_offset_z_s8(table, place, live), live);
    }
}

/* section avg_pool2d: */
static void sw_avg_pool2d(const sw_pool_params *p, const int8_t *in, int8_t *out)
{
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const int8_t *image = &in[(at / (p->out_h * p->out_w)) * p->in_h * p->in_w * p->channels];
        const int32_t oy = (((at / p->out_w) % p->out_h) * p->stride_h) - p->pad_h;
        const int32_t ox = ((at % p->out_w) * p->stride_w) - p->pad_w;
        for (int32_t c = 0; c < p->channels; c += 4) {
            const mve_pred16_t live = vctp32q((uint32_t)(p->channels - c));
            int32x4_t sums = vdupq_n_s32(0);
            int32_t count = 0;
            for (int32_t iy = (oy < 0) ? 0 : oy; (iy < (oy + p->kernel_h)) && (iy < p->in_h); iy++) {
                for (int32_t ix = (ox < 0) ? 0 : ox; (ix < (ox + p->kernel_w)) && (ix < p->in_w);
                     ix++) {
                    const int8_t *x = &image[(((iy * p->in_w) + ix) * p->channels) + c];
                    sums = vaddq_s32(sums, vldrbq_z_s32(x, live));
                    count++;
                }
            }
            int32_t sum[4];
            vstrwq_s32(sum, sums);
            for (int32_t lane = 0; (lane < 4) && ((c + lane) < p->channels); lane++) {
                int32_t one = sum[lane];
                if (count > 0) {
                    one = (one > 0) ? ((one + (count / 2)) / count) : ((one - (count / 2)) / count);
                }
                out[(at * p->channels) + c + lane] = sw_clamp8(one, p->low, p->high);
            }
        }
    }
}

/* section max_pool2d: */
static void sw_max_pool2d(const sw_pool_params *p, const int8_t *in, int8_t *out)
{
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const int8_t *image = &in[(at / (p->out_h * p->out_w)) * p->in_h * p->in_w * p->channels];
        const int32_t oy = (((at / p->out_w) % p->out_h) * p->stride_h) - p->pad_h;
        const int32_t ox = ((at % p->out_w) * p->stride_w) - p->pad_w;
        for (int32_t c = 0; c < p->channels; c += 16) {
            const mve_pred16_t live = vctp8q((uint32_t)(p->channels - c));
            int8x16_t most = vdupq_n_s8(-128);
            for (int32_t iy = (oy < 0) ? 0 : oy; (iy < (oy + p->kernel_h)) && (iy < p->in_h); iy++) {
                for (int32_t ix = (ox < 0) ? 0 : ox; (ix < (ox + p->kernel_w)) && (ix < p->in_w);
                     ix++) {
                    const int8_t *x = &image[(((iy * p->in_w) + ix) * p->channels) + c];
                    most = vmaxq_s8(most, vldrbq_z_s8(x, live));
                }
            }
            most = vmaxq_s8(most, vdupq_n_s8((int8_t)p->low));
            most = vminq_s8(most, vdupq_n_s8((int8_t)p->high));
            vstrbq_p_s8(&out[(at * p->channels) + c], most, live);
        }
    }
}
