/* A stand-in for the header of MLPerf Tiny's harness: the functions that a submission calls. */
#ifndef INTERNALLY_IMPLEMENTED_H
#define INTERNALLY_IMPLEMENTED_H

#include <stddef.h>
#include <stdint.h>

void ee_serial_command_parser_callback(char *command);
size_t ee_get_buffer(uint8_t *buffer, size_t most);

#endif
