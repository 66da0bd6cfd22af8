/* Runs a program's own `main` over picolibc with Linux's calls, which qemu's user mode has. */
#include <stdint.h>
#include <stdio.h>

int main(void);
void start(void);
long call(long number, long a, const void *b, long c);
extern char thread[256], __bss_start[], __bss_end[];
char thread[256];

#ifdef __riscv
enum { READ = 63, WRITE = 64, EXIT = 93 };
__asm__(".globl _start\n_start:\n.option push\n.option norelax\nla gp, __global_pointer$\n"
        ".option pop\nla tp, thread\ncall start\n"
        ".globl call\ncall:\nmv a7, a0\nmv a0, a1\nmv a1, a2\nmv a2, a3\necall\nret\n");
#else
enum { READ = 12, WRITE = 13, EXIT = 118 };
__asm__(".globl _start\n_start:\nmovi a0, start\njx a0\n");
long call(long number, long a, const void *b, long c)
{
    register long a2 __asm__("a2") = number;
    register long a6 __asm__("a6") = a;
    register const void *a3 __asm__("a3") = b;
    register long a4 __asm__("a4") = c;
    __asm__ volatile("syscall" : "+r"(a2) : "r"(a6), "r"(a3), "r"(a4) : "memory");
    return a2;
}

/* What an ESP8266 has in its ROM, and its libgcc therefore not. */
uint32_t __udivsi3(uint32_t a, uint32_t b);
int32_t __divsi3(int32_t a, int32_t b);
uint32_t __umodsi3(uint32_t a, uint32_t b);
int64_t __muldi3(int64_t a, int64_t b);
uint64_t __umulsidi3(uint32_t a, uint32_t b);
uint32_t __udivsi3(uint32_t a, uint32_t b)
{
    uint32_t quotient = 0, rest = 0;
    for (int bit = 31; bit >= 0; bit--) {
        rest = (rest << 1) | ((a >> bit) & 1u);
        quotient <<= 1;
        if (rest >= b) {
            rest -= b;
            quotient |= 1u;
        }
    }
    return quotient;
}
int32_t __divsi3(int32_t a, int32_t b)
{
    const uint32_t above = (a < 0) ? (0u - (uint32_t)a) : (uint32_t)a;
    const uint32_t size = __udivsi3(above, (b < 0) ? (0u - (uint32_t)b) : (uint32_t)b);
    return (int32_t)(((a < 0) != (b < 0)) ? (0u - size) : size);
}
uint32_t __umodsi3(uint32_t a, uint32_t b)
{
    return a - (__udivsi3(a, b) * b);
}
int64_t __muldi3(int64_t a, int64_t b)
{
    uint64_t sum = 0, part = (uint64_t)a;
    for (uint64_t left = (uint64_t)b; left != 0; left >>= 1) {
        sum += ((left & 1u) != 0) ? part : 0;
        part <<= 1;
    }
    return (int64_t)sum;
}
uint64_t __umulsidi3(uint32_t a, uint32_t b)
{
    return (uint64_t)__muldi3(a, b);
}
#endif

static int put(char c, FILE *file)
{
    (void)file;
    return (call(WRITE, 1, &c, 1) == 1) ? (unsigned char)c : EOF;
}
static int get(FILE *file)
{
    unsigned char c;
    (void)file;
    return (call(READ, 0, &c, 1) == 1) ? c : EOF;
}
static FILE in = FDEV_SETUP_STREAM(NULL, get, NULL, _FDEV_SETUP_READ);
static FILE out = FDEV_SETUP_STREAM(put, NULL, NULL, _FDEV_SETUP_WRITE);
FILE *const stdin = &in;
FILE *const stdout = &out;

void start(void)
{
    for (volatile char *to = __bss_start; to < __bss_end; to++) {
        *to = 0;
    }
    call(EXIT, main(), NULL, 0);
    for (;;) { }
}
