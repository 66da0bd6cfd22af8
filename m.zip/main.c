/* Inputs from standard input, outputs to standard output, as raw bytes, until it
   ends. Of several methods the first argument names one. */
#include <stdio.h>

#include "model.h"

static int run_forward(void)
{
    static float input[MODEL_INPUT_COUNT];
    static float output[MODEL_OUTPUT_COUNT];
    for (;;) {
        if (fread(input, sizeof(input), 1, stdin) != 1) {
            return 0;
        }
        if (model_run(input, output) != 0) {
            return 1;
        }
        if (fwrite(output, sizeof(output), 1, stdout) != 1) {
            return 3;
        }
    }
}

int main(void)
{
    return run_forward();
}
