// The submitter's side of MLPerf Tiny's harness (`benchmark/api`), over C from stepwell.
//
// The board adds a clock, characters of its serial port and, for the energy mode, a pin: the
// functions of board.h. Inputs are what the reference submissions take (README.md).

#include "api/submitter_implemented.h"

#include <math.h>
#include <stdint.h>

#include "api/internally_implemented.h"
#include "board.h"
#include "model.h"
#include "quantization.h"

static int8_t input[MODEL_INPUT_COUNT];
static int8_t output[MODEL_OUTPUT_COUNT];
#ifdef SENT_FLOATS
static float sent[MODEL_INPUT_COUNT];
#else
static uint8_t sent[MODEL_INPUT_COUNT];
#endif

static int8_t quantized(float value)
{
    const float scaled = roundf(value / INPUT_SCALE) + (float)INPUT_ZERO_POINT;
    return (int8_t)fminf(fmaxf(scaled, -128.0f), 127.0f);
}

static float real(int8_t value)
{
    return (float)((int)value - OUTPUT_ZERO_POINT) * OUTPUT_SCALE;
}

void th_load_tensor(void)
{
    const size_t bytes = ee_get_buffer((uint8_t *)sent, sizeof sent);
    if (bytes != sizeof sent) {
        th_printf("Input db has %d bytes, expected %d\n", (int)bytes, (int)sizeof sent);
        return;
    }
    for (int i = 0; i < MODEL_INPUT_COUNT; i++) {
#ifdef SENT_FLOATS
        input[i] = quantized(sent[i]);
#else
        input[i] = quantized((float)((int)(SENT_TYPE)sent[i] - SENT_ZERO_POINT) * SENT_SCALE);
#endif
    }
}

void th_infer(void)
{
    (void)model_run(input, output);
}

// Three decimals without a printf of floats, which many boards' libraries lack.
static void print_real(float value)
{
    const long thousandths = lroundf(value * 1000.0f);
    th_printf("%ld.%03ld", thousandths / 1000, thousandths % 1000);
}

void th_results(void)
{
    th_printf("m-results-[");
#ifdef SENT_FLOATS
    // The anomaly is the mean square of the reconstruction's error.
    float sum = 0.0f;
    for (int i = 0; i < MODEL_OUTPUT_COUNT; i++) {
        const float off = real(output[i]) - sent[i];
        sum += off * off;
    }
    print_real(sum / (float)MODEL_OUTPUT_COUNT);
#else
    for (int i = 0; i < MODEL_OUTPUT_COUNT; i++) {
        if (i > 0) {
            th_printf(",");
        }
        print_real(real(output[i]));
    }
#endif
    th_printf("]\r\n");
}

void th_timestamp(void)
{
#if EE_CFG_ENERGY_MODE == 1
    board_timestamp_pin();
#else
    th_printf(EE_MSG_TIMESTAMP, board_microseconds());
#endif
}

void th_timestamp_initialize(void)
{
    th_printf(EE_MSG_TIMESTAMP_MODE);
    th_timestamp();
}

void th_serialport_initialize(void)
{
    board_serial_start(EE_CFG_ENERGY_MODE == 1 ? 9600 : 115200);
}

void th_final_initialize(void) {}
void th_pre(void) {}
void th_post(void) {}

void th_command_ready(char volatile *command)
{
    ee_serial_command_parser_callback((char *)command);
}

char th_getchar(void)
{
    return board_getchar();
}

int th_vprintf(const char *format, va_list arguments)
{
    return board_vprintf(format, arguments);
}

void th_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)th_vprintf(format, arguments);
    va_end(arguments);
}

int th_strncmp(const char *one, const char *other, size_t n) { return strncmp(one, other, n); }
char *th_strncpy(char *to, const char *from, size_t n) { return strncpy(to, from, n); }
size_t th_strnlen(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length] != 0) {
        length++;
    }
    return length;
}
char *th_strcat(char *to, const char *from) { return strcat(to, from); }
char *th_strtok(char *text, const char *separators) { return strtok(text, separators); }
int th_atoi(const char *text) { return atoi(text); }
void *th_memset(void *to, int value, size_t n) { return memset(to, value, n); }
void *th_memcpy(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
