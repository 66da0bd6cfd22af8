#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_ARENA_BYTES 32
#define MODEL_FLASH_BYTES 0
/* input: float, 3 */
#define MODEL_INPUT_COUNT 3
/* output: float, 3 */
#define MODEL_OUTPUT_COUNT 3

/* 0, 1 if a pointer is NULL, or 3 if an index lies outside of a table. Not reentrant:
   there is one arena. */
int model_run(const float *input, float *output);
/* State as it was before the first call. */
void model_reset(void);

#ifdef __cplusplus
}
#endif

#endif
