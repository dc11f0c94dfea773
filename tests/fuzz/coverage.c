/* Counts the places of the core that were reached, for builds with -fsanitize-coverage=trace-pc. */
#include <stdint.h>

#define HIDDEN __attribute__((no_sanitize_coverage, no_sanitize("address", "undefined")))

static uint8_t seen[1 << 18];
static uint32_t count;

HIDDEN __attribute__((visibility("default"))) uint32_t squall_places_reached(void) {
    return count;
}

HIDDEN void __sanitizer_cov_trace_pc(void);
HIDDEN void __sanitizer_cov_trace_pc(void) {
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    uint8_t *place = &seen[(pc ^ pc >> 18) & (sizeof seen - 1)];
    if (!*place) {
        *place = 1;
        count++;
    }
}
