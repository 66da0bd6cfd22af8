/* The kernels of portable_kernels.c for a core with vectors of integers (MVE: Cortex-M55, M85).
 *
 * The same functions with the same bits, 4 or 16 elements at a time. A section stands in the place of
 * the plain one of its name where the compiler is told of such a core. Sums are exact in any order.
 */

/* section mve: */
#if defined(__ARM_FEATURE_MVE) && ((__ARM_FEATURE_MVE & 1) != 0)
#define SW_MVE 1
#include <arm_mve.h>

/* Four times sw_requantize. */
static inline int32x4_t sw_requantize4(int32x4_t value, int32x4_t multiplier, int32x4_t shift)
{
    const int32x4_t left = vmaxq_s32(shift, vdupq_n_s32(0));
    const int32x4_t right = vminq_s32(shift, vdupq_n_s32(0));
    const int32x4_t high = vqrdmulhq_s32(vshlq_s32(value, left), multiplier);
    const int32x4_t below = vshrq_n_s32(vandq_s32(high, right), 31);
    return vrshlq_s32(vqaddq_s32(high, below), right);
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

/* Likewise of four x that are `step` apart, by the same w, added to four sums. */
static inline void sw_dot4(const int8_t *x, int32_t step, const int8_t *w, int32_t count,
                           int32_t products[4], int32_t *sums)
{
    const int8_t *x1 = &x[step];
    const int8_t *x2 = &x1[step];
    const int8_t *x3 = &x2[step];
    int32_t s0 = products[0];
    int32_t s1 = products[1];
    int32_t s2 = products[2];
    int32_t s3 = products[3];
    int32_t total = *sums;
    for (int32_t block = count >> 4; block > 0; block--) {
        const int8x16_t b = vldrbq_s8(w);
        total = vaddvaq_s8(total, b);
        s0 = vmladavaq_s8(s0, vldrbq_s8(x), b);
        s1 = vmladavaq_s8(s1, vldrbq_s8(x1), b);
        s2 = vmladavaq_s8(s2, vldrbq_s8(x2), b);
        s3 = vmladavaq_s8(s3, vldrbq_s8(x3), b);
        x += 16;
        x1 += 16;
        x2 += 16;
        x3 += 16;
        w += 16;
    }
    if ((count & 15) != 0) {
        const mve_pred16_t live = vctp8q((uint32_t)count & 15u);
        const int8x16_t b = vldrbq_z_s8(w, live);
        total = vaddvaq_s8(total, b);
        s0 = vmladavaq_s8(s0, vldrbq_z_s8(x, live), b);
        s1 = vmladavaq_s8(s1, vldrbq_z_s8(x1, live), b);
        s2 = vmladavaq_s8(s2, vldrbq_z_s8(x2, live), b);
        s3 = vmladavaq_s8(s3, vldrbq_z_s8(x3, live), b);
    }
    products[0] = s0;
    products[1] = s1;
    products[2] = s2;
    products[3] = s3;
    *sums = total;
}
#endif

/* section conv2d: */
#ifndef SW_WINDOW
#define SW_WINDOW 640
#endif
/* The largest filter whose windows are gathered, four at a time, on the stack. */

/* `count` results of channel oc, side by side from ox on, whose windows hold columns kx to kx_end. */
static inline void sw_conv_run(const sw_conv_params *p, const int8_t *in, const int8_t *w, int32_t oy,
                               int32_t ox, int32_t kx, int32_t kx_end, int32_t count, int32_t sum[4],
                               int32_t *weights)
{
    const int is_joined = (p->dilation_w == 1) && (p->kernel_c == p->in_c);
    const int32_t runs = is_joined ? 1 : (kx_end - kx);
    const int32_t length = is_joined ? ((kx_end - kx) * p->in_c) : p->kernel_c;
    const int32_t step = p->stride_w * p->in_c;
    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
        if ((iy >= 0) && (iy < p->in_h)) {
            const int32_t ix = (ox * p->stride_w) - p->pad_w + (kx * p->dilation_w);
            const int8_t *x = &in[((iy * p->in_w) + ix) * p->in_c];
            const int8_t *row = &w[((ky * p->kernel_w) + kx) * p->kernel_c];
            for (int32_t run = 0; run < runs; run++) {
                if (count == 4) {
                    sw_dot4(x, step, row, length, sum, weights);
                } else {
                    sum[0] += sw_dot(x, row, length, weights);
                }
                x += p->dilation_w * p->in_c;
                row += p->kernel_c;
            }
        }
    }
}

/* Four results of each channel, whose windows of `length` numbers stand `step` apart in `x`. */
static inline void sw_conv_four(const sw_conv_params *p, const int8_t *x, int32_t step,
                                const int8_t *weight, int32_t length, const int32_t *bias,
                                const int32_t *multiplier, const int32_t *shift, int32_t count,
                                int8_t *out)
{
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)p->out_c);
    const mve_pred16_t live = vctp32q((uint32_t)count);
    for (int32_t oc = 0; oc < p->out_c; oc++) {
        int32_t sum[4] = {0, 0, 0, 0};
        int32_t weights = 0;
        sw_dot4(x, step, weight, length, sum, &weights);
        weights = (weights * p->in_offset) + ((bias != NULL) ? bias[oc] : 0);
        int32x4_t all = vaddq_n_s32(vldrwq_s32(sum), weights);
        all = sw_requantize4(all, vdupq_n_s32(multiplier[oc]), vdupq_n_s32(shift[oc]));
        all = sw_clamp4(all, p->out_offset, p->low, p->high);
        vstrbq_scatter_offset_p_s32(&out[oc], places, all, live);
        weight += length;
    }
}

/* A window of an image without groups as it lies in its filter; what is outside adds nothing. */
static inline void sw_conv_window(const sw_conv_params *p, const int8_t *in, int32_t oy, int32_t ox,
                                  int8_t *to)
{
    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
        int32_t ix = (ox * p->stride_w) - p->pad_w;
        for (int32_t kx = 0; kx < p->kernel_w; kx++) {
            if ((iy >= 0) && (iy < p->in_h) && (ix >= 0) && (ix < p->in_w)) {
                memcpy(to, &in[((iy * p->in_w) + ix) * p->in_c], (size_t)p->in_c);
            } else {
                memset(to, -p->in_offset, (size_t)p->in_c);
            }
            ix += p->dilation_w;
            to += p->in_c;
        }
    }
}

static void sw_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, const int32_t *multiplier, const int32_t *shift, int8_t *out)
{
    int8_t windows[4 * SW_WINDOW] = {0};
    const int32_t per_group = p->out_c / (p->in_c / p->kernel_c);
    const int32_t filter = p->kernel_h * p->kernel_w * p->kernel_c;
    const int32_t pixels = p->out_h * p->out_w;
    const int is_plain = (p->kernel_h == 1) && (p->kernel_w == 1) && (p->stride_h == 1) &&
                         (p->stride_w == 1) && (pixels == (p->in_h * p->in_w));
    const int is_whole = p->kernel_c == p->in_c;
    for (int32_t n = 0; n < p->batch; n++) {
        int32_t at = 0;
        while (at < pixels) {
            const int32_t oy = at / p->out_w;
            const int32_t ox = at % p->out_w;
            const int32_t ix = (ox * p->stride_w) - p->pad_w;
            const int32_t last = ix + (3 * p->stride_w) + ((p->kernel_w - 1) * p->dilation_w);
            const int32_t left = pixels - at;
            int32_t count = (left < 4) ? left : 4;
            if (is_plain && is_whole && (count == 4)) {
                sw_conv_four(p, &in[at * p->in_c], p->in_c, weight, filter, bias, multiplier, shift,
                             4, out);
            } else if (is_whole && (filter <= SW_WINDOW)) {
                for (int32_t i = 0; i < count; i++) {
                    sw_conv_window(p, in, (at + i) / p->out_w, (at + i) % p->out_w,
                                   &windows[i * filter]);
                }
                sw_conv_four(p, windows, filter, weight, filter, bias, multiplier, shift, count, out);
            } else {
                int32_t kx = 0;
                int32_t kx_end = p->kernel_w;
                while ((kx < kx_end) && ((ix + (kx * p->dilation_w)) < 0)) {
                    kx++;
                }
                while ((kx_end > kx) && ((ix + ((kx_end - 1) * p->dilation_w)) >= p->in_w)) {
                    kx_end--;
                }
                const int is_four = (ix >= 0) && (last < p->in_w) && ((ox + 4) <= p->out_w);
                const mve_pred16_t live = vctp32q(is_four ? 4u : 1u);
                const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)p->out_c);
                const int8_t *w = weight;
                count = is_four ? 4 : 1;
                for (int32_t oc = 0; oc < p->out_c; oc++) {
                    const int8_t *x = &in[(oc / per_group) * p->kernel_c];
                    const int32_t first = (bias != NULL) ? bias[oc] : 0;
                    int32_t sum[4] = {first, first, first, first};
                    int32_t weights = 0;
                    sw_conv_run(p, x, w, oy, ox, kx, kx_end, count, sum, &weights);
                    int32x4_t all = vaddq_n_s32(vldrwq_s32(sum), p->in_offset * weights);
                    all = sw_requantize4(all, vdupq_n_s32(multiplier[oc]), vdupq_n_s32(shift[oc]));
                    all = sw_clamp4(all, p->out_offset, p->low, p->high);
                    vstrbq_scatter_offset_p_s32(&out[oc], places, all, live);
                    w += filter;
                }
            }
            out += count * p->out_c;
            at += count;
        }
        in += p->in_h * p->in_w * p->in_c;
    }
}

/* section depthwise_conv2d: */
/* Four channels of `count` results side by side, one copy of each channel. */
static inline void sw_depthwise4(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                 int32_t oy, int32_t ox, int32_t count, mve_pred16_t live,
                                 int32x4_t sum[4])
{
    const int32_t step = p->stride_w * p->in_c;
    int32x4_t weights = vdupq_n_s32(0);
    int32x4_t s0 = sum[0];
    int32x4_t s1 = sum[1];
    int32x4_t s2 = sum[2];
    int32x4_t s3 = sum[3];
    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
        if ((iy >= 0) && (iy < p->in_h)) {
            int32_t ix = (ox * p->stride_w) - p->pad_w;
            for (int32_t kx = 0; kx < p->kernel_w; kx++) {
                if ((ix >= 0) && (ix < p->in_w)) {
                    const int32x4_t w =
                        vldrbq_z_s32(&weight[((ky * p->kernel_w) + kx) * p->out_c], live);
                    const int8_t *x = &in[((iy * p->in_w) + ix) * p->in_c];
                    weights = vaddq_s32(weights, w);
                    s0 = vaddq_s32(s0, vmulq_s32(vldrbq_z_s32(x, live), w));
                    if (count == 4) {
                        x += step;
                        s1 = vaddq_s32(s1, vmulq_s32(vldrbq_z_s32(x, live), w));
                        x += step;
                        s2 = vaddq_s32(s2, vmulq_s32(vldrbq_z_s32(x, live), w));
                        x += step;
                        s3 = vaddq_s32(s3, vmulq_s32(vldrbq_z_s32(x, live), w));
                    }
                }
                ix += p->dilation_w;
            }
        }
    }
    weights = vmulq_n_s32(weights, p->in_offset);
    sum[0] = vaddq_s32(s0, weights);
    sum[1] = vaddq_s32(s1, weights);
    sum[2] = vaddq_s32(s2, weights);
    sum[3] = vaddq_s32(s3, weights);
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
    for (int32_t n = 0; n < p->batch; n++) {
        const int8_t *image = &in[n * p->in_h * p->in_w * p->in_c];
        for (int32_t oy = 0; oy < p->out_h; oy++) {
            int32_t ox = 0;
            while (ox < p->out_w) {
                const int32_t ix = (ox * p->stride_w) - p->pad_w;
                const int32_t last = ix + (3 * p->stride_w) + ((p->kernel_w - 1) * p->dilation_w);
                const int is_four = (ix >= 0) && (last < p->in_w) && ((ox + 4) <= p->out_w);
                const int32_t count = (is_four && (copies == 1)) ? 4 : 1;
                for (int32_t oc = 0; (copies != 1) && (oc < p->out_c); oc++) {
                    int32_t sum = (bias != NULL) ? bias[oc] : 0;
                    sum = sw_depthwise1(p, &image[oc / copies], &weight[oc], oy, ox, sum);
                    sum = sw_requantize(sum, multiplier[oc], shift[oc]) + p->out_offset;
                    out[oc] = sw_clamp8(sum, p->low, p->high);
                }
                for (int32_t oc = 0; (copies == 1) && (oc < p->out_c); oc += 4) {
                    const mve_pred16_t live = vctp32q((uint32_t)(p->out_c - oc));
                    const int32x4_t first =
                        (bias != NULL) ? vldrwq_z_s32(&bias[oc], live) : vdupq_n_s32(0);
                    int32x4_t sum[4] = {first, first, first, first};
                    sw_depthwise4(p, &image[oc], &weight[oc], oy, ox, count, live, sum);
                    const int32x4_t by = vldrwq_z_s32(&multiplier[oc], live);
                    const int32x4_t bits = vldrwq_z_s32(&shift[oc], live);
                    for (int32_t at = 0; at < count; at++) {
                        int32x4_t one = sw_requantize4(sum[at], by, bits);
                        one = sw_clamp4(one, p->out_offset, p->low, p->high);
                        vstrbq_p_s32(&out[(at * p->out_c) + oc], one, live);
                    }
                }
                out += count * p->out_c;
                ox += count;
            }
        }
    }
}

/* section transpose_conv2d: */
/* `count` results of a channel from ox on, a stride apart: they read inputs that are neighbours. */
static inline void sw_transpose_run(const sw_conv_params *p, const int8_t *in, const int8_t *w,
                                    int32_t oy, int32_t ox, int32_t count, int32_t sum[4],
                                    int32_t *weights)
{
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
                    if (count == 4) {
                        sw_dot4(x, p->in_c, tap, p->in_c, sum, weights);
                    } else {
                        sum[0] += sw_dot(x, tap, p->in_c, weights);
                    }
                }
            }
        }
    }
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

static void sw_transpose_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                int8_t *out)
{
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
                        int32_t sum[4] = {first, first, first, first};
                        int32_t weights = 0;
                        sw_transpose_run(p, in, w, oy, ox, count, sum, &weights);
                        int32x4_t all = vaddq_n_s32(vldrwq_s32(sum), p->in_offset * weights);
                        all = sw_requantize4(all, vdupq_n_s32(multiplier[oc]), vdupq_n_s32(shift[oc]));
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

/* section linear: */
static void sw_linear(const sw_matmul_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, int8_t *out)
{
    for (int32_t row = 0; row < p->rows; row++) {
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
                int32_t unused = 0;
                sw_dot4(w, p->inner, x, p->inner, sum, &unused);
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
                const int32x4_t by = vdupq_n_s32(p->multiplier);
                const int32x4_t all = sw_requantize4(vldrwq_s32(sum), by, vdupq_n_s32(p->shift));
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

static void sw_add(const sw_add_params *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    const int32x4_t a_by = vdupq_n_s32(p->a_multiplier);
    const int32x4_t a_bits = vdupq_n_s32(p->a_shift);
    const int32x4_t b_by = vdupq_n_s32(p->b_multiplier);
    const int32x4_t b_bits = vdupq_n_s32(p->b_shift);
    const int32x4_t by = vdupq_n_s32(p->out_multiplier);
    const int32x4_t bits = vdupq_n_s32(p->out_shift);
    for (int32_t row = 0; row < p->count; row += p->period) {
        for (int32_t i = 0; i < p->period; i += 4) {
            const mve_pred16_t live = vctp32q((uint32_t)(p->period - i));
            int32x4_t x = vaddq_n_s32(vldrbq_z_s32(&a[row + i], live), p->a_offset);
            int32x4_t y = vaddq_n_s32(vldrbq_z_s32(&b[i], live), p->b_offset);
            x = sw_requantize4(vshlq_n_s32(x, 20), a_by, a_bits);
            y = sw_requantize4(vshlq_n_s32(y, 20), b_by, b_bits);
            const int32x4_t sum = sw_requantize4(vaddq_s32(x, y), by, bits);
            vstrbq_p_s32(&out[row + i], sw_clamp4(sum, p->out_offset, p->low, p->high), live);
        }
    }
}

/* section mul: */
typedef struct {
    int32_t count, period, a_offset, b_offset, out_offset, out_multiplier, out_shift;
} sw_mul_params;

static void sw_mul(const sw_mul_params *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    const int32x4_t by = vdupq_n_s32(p->out_multiplier);
    const int32x4_t bits = vdupq_n_s32(p->out_shift);
    for (int32_t row = 0; row < p->count; row += p->period) {
        for (int32_t i = 0; i < p->period; i += 4) {
            const mve_pred16_t live = vctp32q((uint32_t)(p->period - i));
            const int32x4_t x = vaddq_n_s32(vldrbq_z_s32(&a[row + i], live), p->a_offset);
            const int32x4_t y = vaddq_n_s32(vldrbq_z_s32(&b[i], live), p->b_offset);
            const int32x4_t scaled = sw_requantize4(vmulq_s32(x, y), by, bits);
            vstrbq_p_s32(&out[row + i], sw_clamp4(scaled, p->out_offset, -128, 127), live);
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
