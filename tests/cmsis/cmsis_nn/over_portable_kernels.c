/* CMSIS-NN's functions over this project's portable kernels, for tests on machines without it.
 * Scratch is filled with rubbish, as a kernel may. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "arm_nnfunctions.h"
#include "portable_kernels.c"

static void spoil(const cmsis_nn_context *context)
{
    if (context->size > 0) {
        memset(context->buf, 0x55, (size_t)context->size);
    }
}

#define FIELDS(p)                                                                                     \
    .batch = in->n, .in_h = in->h, .in_w = in->w, .in_c = in->c, .kernel_h = filter->h,               \
    .kernel_w = filter->w, .kernel_c = filter->c, .out_h = out->h, .out_w = out->w, .out_c = out->c,  \
    .stride_h = p->stride.h, .stride_w = p->stride.w, .pad_h = p->padding.h, .pad_w = p->padding.w,   \
    .dilation_h = p->dilation.h, .dilation_w = p->dilation.w, .in_offset = p->input_offset,           \
    .out_offset = p->output_offset, .low = p->activation.min, .high = p->activation.max

static const cmsis_nn_context nothing = {NULL, 0};
static const cmsis_nn_context *const none = &nothing;

#define CONVOLVE(kernel, params, second)                                                                      \
    const params *p, const cmsis_nn_per_channel_quant_params *q, const cmsis_nn_dims *in,             \
        const int8_t *x, const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *bias,     \
        const int32_t *b, const cmsis_nn_dims *out, int8_t *y)                                        \
    {                                                                                                 \
        const sw_conv_params own = {FIELDS(p)};                                                       \
        spoil(context);                                                                               \
        spoil(second);                                                                                \
        kernel(&own, x, w, b, q->multiplier, q->shift, y);                                            \
        return (bias->c == out->c) ? ARM_CMSIS_NN_SUCCESS : ARM_CMSIS_NN_ARG_ERROR;                   \
    }

arm_cmsis_nn_status arm_convolve_wrapper_s8(const cmsis_nn_context *context,
                                            CONVOLVE(sw_conv2d, cmsis_nn_conv_params, none)
arm_cmsis_nn_status arm_depthwise_conv_wrapper_s8(const cmsis_nn_context *context,
                                                  CONVOLVE(sw_depthwise_conv2d, cmsis_nn_dw_conv_params, none)
arm_cmsis_nn_status arm_transpose_conv_wrapper_s8(const cmsis_nn_context *context,
                                                  const cmsis_nn_context *output,
                                                  CONVOLVE(sw_transpose_conv2d, cmsis_nn_transpose_conv_params, output)

static sw_matmul_params matmul(const cmsis_nn_fc_params *p, const cmsis_nn_per_tensor_quant_params *q,
                               int32_t batch, int32_t rows, int32_t inner, int32_t columns)
{
    const sw_matmul_params own = {batch, rows, inner, columns, p->input_offset, p->filter_offset,
                                  p->output_offset, q->multiplier, q->shift, p->activation.min,
                                  p->activation.max};
    return own;
}

/* The sums of kernels, where a program has them, hold the bias and the input's offset. */
arm_cmsis_nn_status arm_fully_connected_s8(const cmsis_nn_context *context, const cmsis_nn_fc_params *p,
                                           const cmsis_nn_per_tensor_quant_params *q,
                                           const cmsis_nn_dims *in, const int8_t *x,
                                           const cmsis_nn_dims *filter, const int8_t *w,
                                           const cmsis_nn_dims *bias, const int32_t *b,
                                           const cmsis_nn_dims *out, int8_t *y)
{
    sw_matmul_params own = matmul(p, q, 1, in->n, filter->n, out->c);
    own.in_offset = (context->buf != NULL) ? 0 : own.in_offset;
    sw_linear(&own, x, w, (context->buf != NULL) ? (const int32_t *)context->buf : b, y);
    return ((bias->c == out->c) && (in->c == filter->n)) ? ARM_CMSIS_NN_SUCCESS : ARM_CMSIS_NN_ARG_ERROR;
}

arm_cmsis_nn_status arm_batch_matmul_s8(const cmsis_nn_context *context, const cmsis_nn_bmm_params *p,
                                        const cmsis_nn_per_tensor_quant_params *q,
                                        const cmsis_nn_dims *left, const int8_t *x,
                                        const cmsis_nn_dims *right, const int8_t *w,
                                        const cmsis_nn_dims *out, int8_t *y)
{
    const sw_matmul_params own = matmul(&p->fc_params, q, left->h, left->w, left->c, right->w);
    spoil(context);
    sw_batch_matmul(&own, x, w, y);
    return (out->c == right->w) ? ARM_CMSIS_NN_SUCCESS : ARM_CMSIS_NN_ARG_ERROR;
}

arm_cmsis_nn_status arm_elementwise_add_s8(const int8_t *a, const int8_t *b, int32_t a_offset,
                                           int32_t a_multiplier, int32_t a_shift, int32_t b_offset,
                                           int32_t b_multiplier, int32_t b_shift, int32_t left,
                                           int8_t *y, int32_t offset, int32_t multiplier, int32_t shift,
                                           int32_t low, int32_t high, int32_t count)
{
    const sw_add_params own = {count, count, a_offset, a_multiplier, a_shift, b_offset, b_multiplier,
                               b_shift, offset, multiplier, shift, low, high};
    sw_add(&own, a, b, y);
    return (left == 20) ? ARM_CMSIS_NN_SUCCESS : ARM_CMSIS_NN_ARG_ERROR;
}

arm_cmsis_nn_status arm_elementwise_mul_s8(const int8_t *a, const int8_t *b, int32_t a_offset,
                                           int32_t b_offset, int8_t *y, int32_t offset,
                                           int32_t multiplier, int32_t shift, int32_t low, int32_t high,
                                           int32_t count)
{
    const sw_mul_params own = {count, count, a_offset, b_offset, offset, multiplier, shift};
    sw_mul(&own, a, b, y);
    return ((low == -128) && (high == 127)) ? ARM_CMSIS_NN_SUCCESS : ARM_CMSIS_NN_ARG_ERROR;
}

static void steps(const cmsis_nn_dims *d, int32_t *stride)
{
    stride[0] = (d->n == 1) ? 0 : (d->h * d->w * d->c);
    stride[1] = (d->h == 1) ? 0 : (d->w * d->c);
    stride[2] = (d->w == 1) ? 0 : d->c;
    stride[3] = (d->c == 1) ? 0 : 1;
}

#define SELECT(name, which)                                                                           \
    arm_cmsis_nn_status name(const cmsis_nn_context *context, const int8_t *a,                        \
                             const cmsis_nn_dims *a_dims, const int8_t *b,                            \
                             const cmsis_nn_dims *b_dims, int8_t *y, const cmsis_nn_dims *out)        \
    {                                                                                                 \
        sw_select_params own = {.size = {out->n, out->h, out->w, out->c}, .greater = which};          \
        steps(a_dims, own.a_stride);                                                                  \
        steps(b_dims, own.b_stride);                                                                  \
        sw_select(&own, a, b, y);                                                                     \
        return (context == NULL) ? ARM_CMSIS_NN_SUCCESS : ARM_CMSIS_NN_ARG_ERROR;                     \
    }

SELECT(arm_minimum_s8, 0)
SELECT(arm_maximum_s8, 1)

#define POOLED(name, kernel)                                                                          \
    arm_cmsis_nn_status name(const cmsis_nn_context *context, const cmsis_nn_pool_params *p,          \
                             const cmsis_nn_dims *in, const int8_t *x, const cmsis_nn_dims *filter,   \
                             const cmsis_nn_dims *out, int8_t *y)                                     \
    {                                                                                                 \
        const sw_pool_params own = {in->n, in->h, in->w, in->c, out->h, out->w, filter->h, filter->w, \
                                    p->stride.h, p->stride.w, p->padding.h, p->padding.w,             \
                                    p->activation.min, p->activation.max};                            \
        spoil(context);                                                                               \
        kernel(&own, x, y);                                                                           \
        return ARM_CMSIS_NN_SUCCESS;                                                                  \
    }

POOLED(arm_avgpool_s8, sw_avg_pool2d)
POOLED(arm_max_pool_s8, sw_max_pool2d)

void arm_softmax_s8(const int8_t *x, int32_t rows, int32_t size, int32_t multiplier, int32_t shift,
                    int32_t diff_min, int8_t *y)
{
    sw_softmax(rows, size, multiplier, shift, diff_min, x, y);
}

arm_cmsis_nn_status arm_transpose_s8(const int8_t *x, int8_t *y, const cmsis_nn_dims *in,
                                     const cmsis_nn_dims *out, const cmsis_nn_transpose_params *p)
{
    const int32_t given[4] = {in->n, in->h, in->w, in->c};
    const int32_t made[4] = {out->n, out->h, out->w, out->c};
    const int32_t stride[4] = {in->h * in->w * in->c, in->w * in->c, in->c, 1};
    sw_permute_params own = {.bytes = 1, .size = {1, 1, 1, 1, 1, 1}};
    for (int32_t axis = 0; axis < 4; axis++) {
        const uint32_t from = p->permutations[axis];
        if (given[from] != made[axis]) {
            return ARM_CMSIS_NN_ARG_ERROR;
        }
        own.size[axis + 2] = given[from];
        own.stride[axis + 2] = stride[from];
    }
    sw_permute(&own, (const uint8_t *)x, (uint8_t *)y);
    return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_pad_s8(const int8_t *x, int8_t *y, int8_t value, const cmsis_nn_dims *in,
                               const cmsis_nn_dims *before, const cmsis_nn_dims *after)
{
    const sw_pad_params own = {{in->n, in->h, in->w, in->c},
                               {before->n, before->h, before->w, before->c},
                               {after->n, after->h, after->w, after->c},
                               value};
    sw_pad(&own, x, y);
    return ARM_CMSIS_NN_SUCCESS;
}
