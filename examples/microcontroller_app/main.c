/* Gives the network numbers, and prints its scores as numbers. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "model.h"

/* In a device: the sensor. */
static float sensor(int index)
{
    return 0.1f * (float)(index % 21 - 10);
}

static int8_t to_int8(float number)
{
    long rounded = lroundf(number / MODEL_INPUT_SCALE) + MODEL_INPUT_ZERO_POINT;
    return (int8_t)(rounded < -128 ? -128 : rounded > 127 ? 127 : rounded);
}

int main(void)
{
    static int8_t input[MODEL_INPUT_COUNT];
    static int8_t output[MODEL_OUTPUT_COUNT];
    for (int index = 0; index < MODEL_INPUT_COUNT; index++) {
        input[index] = to_int8(sensor(index));
    }
    if (model_run(input, output) != 0) {
        return 1;
    }
    for (int index = 0; index < MODEL_OUTPUT_COUNT; index++) {
        int score = output[index] - MODEL_OUTPUT_ZERO_POINT;
        printf("%d: %.6f\n", index, (double)((float)score * MODEL_OUTPUT_SCALE));
    }
    return 0;
}
