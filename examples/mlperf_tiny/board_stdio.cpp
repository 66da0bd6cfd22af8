// A "board" of standard input and output, on which the harness runs on a host or an emulator.

#include "board.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void board_serial_start(int baud) { (void)baud; }

char board_getchar(void)
{
    const int c = getchar();
    if (c == EOF) {
        exit(0);
    }
    return (char)c;
}

int board_vprintf(const char *format, va_list arguments) { return vprintf(format, arguments); }

unsigned long board_microseconds(void)
{
    return (unsigned long)((double)clock() * (1e6 / (double)CLOCKS_PER_SEC));
}

void board_timestamp_pin(void) {}
