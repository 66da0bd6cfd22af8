/* Kernels in plain C99, bit for bit what CMSIS-NN computes in its default build.
 *
 * Sections begin with a line `section NAME: what it needs`; a program gets those that it calls.
 * Nothing here allocates, recurses, or depends on how a compiler shifts or narrows a negative number.
 */

/* section clamp: */
static inline int8_t sw_clamp8(int32_t value, int32_t low, int32_t high)
{
    const int32_t floor_ = (value < low) ? low : value;
    return (int8_t)((floor_ > high) ? high : floor_);
}

/* section fixed_point: clamp */
static inline int32_t sw_low32(uint32_t value)
{
    return (value <= (uint32_t)INT32_MAX) ? (int32_t)value : (-(int32_t)(UINT32_MAX - value) - 1);
}

static inline int64_t sw_shift_right(int64_t value, int32_t bits)
{
    return (value < 0) ? ~(~value >> bits) : (value >> bits);
}

static inline int32_t sw_shift_left(int32_t value, int32_t bits)
{
    return sw_low32((uint32_t)value << (uint32_t)bits);
}

/* (a * b + 2^30) >> 31 */
static inline int32_t sw_high_mult(int32_t a, int32_t b)
{
    return (int32_t)sw_shift_right(((int64_t)a * b) + ((int64_t)1 << 30), 31);
}

/* value / 2^bits, half away from zero */
static inline int32_t sw_divide_pow2(int32_t value, int32_t bits)
{
    const int32_t mask = (int32_t)(((int64_t)1 << bits) - 1);
    const int32_t quotient = (int32_t)sw_shift_right(value, bits);
    const int32_t rest = (int32_t)((int64_t)value - ((int64_t)quotient * ((int64_t)1 << bits)));
    const int32_t limit = (mask >> 1) + ((quotient < 0) ? 1 : 0);
    return quotient + ((rest > limit) ? 1 : 0);
}

static inline int32_t sw_requantize(int32_t value, int32_t multiplier, int32_t shift)
{
    const int32_t left = (shift > 0) ? shift : 0;
    const int32_t right = (shift < 0) ? -shift : 0;
    return sw_divide_pow2(sw_high_mult(sw_shift_left(value, left), multiplier), right);
}

/* section conv_params: */
typedef struct {
    int32_t batch, in_h, in_w, in_c;
    int32_t kernel_h, kernel_w, kernel_c;
    int32_t out_h, out_w, out_c;
    int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int32_t in_offset, out_offset, low, high;
} sw_conv_params;

/* section conv2d: fixed_point conv_params */
static void sw_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, const int32_t *multiplier, const int32_t *shift, int8_t *out)
{
    const int32_t per_group = p->out_c / (p->in_c / p->kernel_c);
    for (int32_t n = 0; n < p->batch; n++) {
        for (int32_t oy = 0; oy < p->out_h; oy++) {
            for (int32_t ox = 0; ox < p->out_w; ox++) {
                const int8_t *w = weight;
                for (int32_t oc = 0; oc < p->out_c; oc++) {
                    const int32_t first = (oc / per_group) * p->kernel_c;
                    int32_t sum = (bias != NULL) ? bias[oc] : 0;
                    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
                        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
                        for (int32_t kx = 0; kx < p->kernel_w; kx++) {
                            const int32_t ix = (ox * p->stride_w) - p->pad_w + (kx * p->dilation_w);
                            if ((iy >= 0) && (iy < p->in_h) && (ix >= 0) && (ix < p->in_w)) {
                                const int8_t *x =
                                    &in[((((n * p->in_h) + iy) * p->in_w) + ix) * p->in_c + first];
                                for (int32_t c = 0; c < p->kernel_c; c++) {
                                    sum += ((int32_t)x[c] + p->in_offset) * (int32_t)w[c];
                                }
                            }
                            w += p->kernel_c;
                        }
                    }
                    sum = sw_requantize(sum, multiplier[oc], shift[oc]) + p->out_offset;
                    *out = sw_clamp8(sum, p->low, p->high);
                    out++;
                }
            }
        }
    }
}

/* section depthwise_conv2d: fixed_point conv_params */
static void sw_depthwise_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                int8_t *out)
{
    const int32_t copies = p->out_c / p->in_c;
    for (int32_t n = 0; n < p->batch; n++) {
        for (int32_t oy = 0; oy < p->out_h; oy++) {
            for (int32_t ox = 0; ox < p->out_w; ox++) {
                for (int32_t oc = 0; oc < p->out_c; oc++) {
                    int32_t sum = (bias != NULL) ? bias[oc] : 0;
                    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
                        const int32_t iy = (oy * p->stride_h) - p->pad_h + (ky * p->dilation_h);
                        for (int32_t kx = 0; kx < p->kernel_w; kx++) {
                            const int32_t ix = (ox * p->stride_w) - p->pad_w + (kx * p->dilation_w);
                            if ((iy >= 0) && (iy < p->in_h) && (ix >= 0) && (ix < p->in_w)) {
                                const int32_t at = ((((n * p->in_h) + iy) * p->in_w) + ix) * p->in_c;
                                const int32_t x = (int32_t)in[at + (oc / copies)] + p->in_offset;
                                sum += x * (int32_t)weight[(((ky * p->kernel_w) + kx) * p->out_c) + oc];
                            }
                        }
                    }
                    sum = sw_requantize(sum, multiplier[oc], shift[oc]) + p->out_offset;
                    *out = sw_clamp8(sum, p->low, p->high);
                    out++;
                }
            }
        }
    }
}

/* section transpose_conv2d: fixed_point conv_params */
static void sw_transpose_conv2d(const sw_conv_params *p, const int8_t *in, const int8_t *weight,
                                const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
                                int8_t *out)
{
    for (int32_t n = 0; n < p->batch; n++) {
        for (int32_t oy = 0; oy < p->out_h; oy++) {
            for (int32_t ox = 0; ox < p->out_w; ox++) {
                const int8_t *w = weight;
                for (int32_t oc = 0; oc < p->out_c; oc++) {
                    int32_t sum = (bias != NULL) ? bias[oc] : 0;
                    for (int32_t ky = 0; ky < p->kernel_h; ky++) {
                        const int32_t dy = oy + p->pad_h - ky;
                        for (int32_t kx = 0; kx < p->kernel_w; kx++) {
                            const int32_t dx = ox + p->pad_w - kx;
                            const int32_t iy = dy / p->stride_h;
                            const int32_t ix = dx / p->stride_w;
                            if ((dy >= 0) && (dx >= 0) && ((dy % p->stride_h) == 0) &&
                                ((dx % p->stride_w) == 0) && (iy < p->in_h) && (ix < p->in_w)) {
                                const int8_t *x = &in[((((n * p->in_h) + iy) * p->in_w) + ix) * p->in_c];
                                for (int32_t c = 0; c < p->in_c; c++) {
                                    sum += ((int32_t)x[c] + p->in_offset) * (int32_t)w[c];
                                }
                            }
                            w += p->in_c;
                        }
                    }
                    sum = sw_requantize(sum, multiplier[oc], shift[oc]) + p->out_offset;
                    *out = sw_clamp8(sum, p->low, p->high);
                    out++;
                }
            }
        }
    }
}

/* section matmul_params: */
typedef struct {
    int32_t batch, rows, inner, columns;
    int32_t in_offset, filter_offset, out_offset, multiplier, shift, low, high;
} sw_matmul_params;

/* section linear: fixed_point matmul_params */
static void sw_linear(const sw_matmul_params *p, const int8_t *in, const int8_t *weight,
                      const int32_t *bias, int8_t *out)
{
    for (int32_t row = 0; row < p->rows; row++) {
        const int8_t *x = &in[row * p->inner];
        for (int32_t column = 0; column < p->columns; column++) {
            const int8_t *w = &weight[column * p->inner];
            int32_t sum = (bias != NULL) ? bias[column] : 0;
            for (int32_t k = 0; k < p->inner; k++) {
                sum += ((int32_t)x[k] + p->in_offset) * ((int32_t)w[k] + p->filter_offset);
            }
            sum = sw_requantize(sum, p->multiplier, p->shift) + p->out_offset;
            out[(row * p->columns) + column] = sw_clamp8(sum, p->low, p->high);
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
    for (int32_t i = 0; i < p->count; i++) {
        const int32_t x = sw_shift_left((int32_t)a[i] + p->a_offset, 20);
        const int32_t y = sw_shift_left((int32_t)b[i % p->period] + p->b_offset, 20);
        const int32_t left = sw_requantize(x, p->a_multiplier, p->a_shift);
        const int32_t right = sw_requantize(y, p->b_multiplier, p->b_shift);
        const int32_t sum = sw_low32((uint32_t)left + (uint32_t)right);
        const int32_t scaled = sw_requantize(sum, p->out_multiplier, p->out_shift);
        out[i] = sw_clamp8(scaled + p->out_offset, p->low, p->high);
    }
}

/* section mul: fixed_point */
typedef struct {
    int32_t count, period, a_offset, b_offset, out_offset, out_multiplier, out_shift;
} sw_mul_params;

static void sw_mul(const sw_mul_params *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    for (int32_t i = 0; i < p->count; i++) {
        const int32_t product =
            ((int32_t)a[i] + p->a_offset) * ((int32_t)b[i % p->period] + p->b_offset);
        const int32_t scaled = sw_requantize(product, p->out_multiplier, p->out_shift);
        out[i] = sw_clamp8(scaled + p->out_offset, -128, 127);
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

/* section avg_pool2d: clamp pool_params */
static void sw_avg_pool2d(const sw_pool_params *p, const int8_t *in, int8_t *out)
{
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const int32_t n = at / (p->out_h * p->out_w);
        const int32_t oy = (at / p->out_w) % p->out_h;
        const int32_t ox = at % p->out_w;
        for (int32_t c = 0; c < p->channels; c++) {
            int32_t sum = 0;
            int32_t count = 0;
            for (int32_t ky = 0; ky < p->kernel_h; ky++) {
                const int32_t iy = (oy * p->stride_h) - p->pad_h + ky;
                for (int32_t kx = 0; kx < p->kernel_w; kx++) {
                    const int32_t ix = (ox * p->stride_w) - p->pad_w + kx;
                    if ((iy >= 0) && (iy < p->in_h) && (ix >= 0) && (ix < p->in_w)) {
                        sum += in[(((((n * p->in_h) + iy) * p->in_w) + ix) * p->channels) + c];
                        count++;
                    }
                }
            }
            if (count > 0) {
                sum = (sum > 0) ? ((sum + (count / 2)) / count) : ((sum - (count / 2)) / count);
            }
            out[(at * p->channels) + c] = sw_clamp8(sum, p->low, p->high);
        }
    }
}

/* section max_pool2d: clamp pool_params */
static void sw_max_pool2d(const sw_pool_params *p, const int8_t *in, int8_t *out)
{
    for (int32_t at = 0; at < (p->batch * p->out_h * p->out_w); at++) {
        const int32_t n = at / (p->out_h * p->out_w);
        const int32_t oy = (at / p->out_w) % p->out_h;
        const int32_t ox = at % p->out_w;
        for (int32_t c = 0; c < p->channels; c++) {
            int32_t most = -128;
            for (int32_t ky = 0; ky < p->kernel_h; ky++) {
                const int32_t iy = (oy * p->stride_h) - p->pad_h + ky;
                for (int32_t kx = 0; kx < p->kernel_w; kx++) {
                    const int32_t ix = (ox * p->stride_w) - p->pad_w + kx;
                    if ((iy >= 0) && (iy < p->in_h) && (ix >= 0) && (ix < p->in_w)) {
                        const int32_t x =
                            in[(((((n * p->in_h) + iy) * p->in_w) + ix) * p->channels) + c];
                        most = (x > most) ? x : most;
                    }
                }
            }
            out[(at * p->channels) + c] = sw_clamp8(most, p->low, p->high);
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
