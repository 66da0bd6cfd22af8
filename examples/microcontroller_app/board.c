/* The start of qemu's board mps3-an547; a device brings its own. */
#include <stdint.h>
#include <stdlib.h>

extern uint32_t stack_top, bss_start, bss_end;
extern void initialise_monitor_handles(void);
int main(void);
void reset(void);
void _init(void);
void _fini(void);

void _init(void) {}
void _fini(void) {}

void reset(void)
{
    for (volatile uint32_t *word = &bss_start; word < &bss_end; word++) {
        *word = 0;
    }
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* floating point and vectors on */
    __asm__ volatile("dsb; isb");
    initialise_monitor_handles(); /* printf, by semihosting */
    exit(main());
}

__attribute__((section(".vectors"), used)) static const void *const vectors[2] = {
    &stack_top, (const void *)reset};
