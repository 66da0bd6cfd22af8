/* What a board's owner implements; board_stdio.cpp does so for a host and for semihosting. */
#ifndef BOARD_H
#define BOARD_H

#include <stdarg.h>

/* Start the serial port. */
void board_serial_start(int baud);
/* Return the next character of the serial port, waiting for it. */
char board_getchar(void);
int board_vprintf(const char *format, va_list arguments);
/* Microseconds since any fixed moment. */
unsigned long board_microseconds(void);
/* A falling edge on the pin that the energy monitor watches: low for at least a microsecond. */
void board_timestamp_pin(void);

#endif
