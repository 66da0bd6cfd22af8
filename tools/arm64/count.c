/* Counts a guest's instructions between the runner's marks: a plug-in of qemu 7 or later.
 *
 *     qemu-aarch64 -plugin count.so,to=COUNTS runner …
 *
 * For each pair of marks: u32 count, then u32 word and u64 executions of every instruction word
 * that ran. Debian has no header of qemu's plug-ins; what is used of that interface (version 1,
 * docs/devel/tcg-plugins) is declared here.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t Id;
struct qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void Syscall(Id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t, uint64_t, uint64_t);
enum { INLINE_ADD_U64 = 0 };
extern void qemu_plugin_register_vcpu_tb_trans_cb(Id, void (*)(Id, struct qemu_plugin_tb*));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb*, int, void*, uint64_t);
extern void qemu_plugin_register_vcpu_syscall_cb(Id, Syscall*);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
extern struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
extern const void* qemu_plugin_insn_data(const struct qemu_plugin_insn*);

int qemu_plugin_version = 1;

enum { GETPRIORITY = 141, MARK = 0x53570 };

typedef struct Block {
  struct Block* next;
  uint64_t runs, before;
  size_t length;
  uint32_t words[];
} Block;

typedef struct {
  uint32_t word;
  uint64_t runs;
} Entry;

static Block* blocks;
static FILE* file;

static void translated(Id id, struct qemu_plugin_tb* translation) {
  const size_t length = qemu_plugin_tb_n_insns(translation);
  Block* block = calloc(1, sizeof(Block) + length * sizeof(uint32_t));
  (void)id;
  block->length = length;
  for (size_t n = 0; n < length; ++n)
    memcpy(&block->words[n], qemu_plugin_insn_data(qemu_plugin_tb_get_insn(translation, n)), 4);
  block->next = blocks;
  blocks = block;
  qemu_plugin_register_vcpu_tb_exec_inline(translation, INLINE_ADD_U64, &block->runs, 1);
}

static int by_word(const void* a, const void* b) {
  const uint32_t left = ((const Entry*)a)->word, right = ((const Entry*)b)->word;
  return (left > right) - (left < right);
}

static void report(void) {
  size_t count = 0, kept = 0;
  for (Block* block = blocks; block; block = block->next)
    if (block->runs != block->before) count += block->length;
  Entry* entries = malloc((count + 1) * sizeof(Entry));
  count = 0;
  for (Block* block = blocks; block; block = block->next)
    if (block->runs != block->before)
      for (size_t n = 0; n < block->length; ++n)
        entries[count++] = (Entry){block->words[n], block->runs - block->before};
  qsort(entries, count, sizeof(Entry), by_word);
  for (size_t n = 0; n < count; ++n)
    if (kept && entries[kept - 1].word == entries[n].word)
      entries[kept - 1].runs += entries[n].runs;
    else
      entries[kept++] = entries[n];
  const uint32_t number = (uint32_t)kept;
  fwrite(&number, sizeof number, 1, file);
  for (size_t n = 0; n < kept; ++n) {
    fwrite(&entries[n].word, sizeof(uint32_t), 1, file);
    fwrite(&entries[n].runs, sizeof(uint64_t), 1, file);
  }
  fflush(file);
  free(entries);
}

static void called(Id id, unsigned cpu, int64_t number, uint64_t which, uint64_t starts, uint64_t c,
                   uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
  (void)id, (void)cpu, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
  if (number != GETPRIORITY || which != MARK) return;
  if (!starts) report();
  for (Block* block = blocks; block; block = block->next) block->before = block->runs;
}

int qemu_plugin_install(Id id, const struct qemu_info_t* info, int count, char** arguments) {
  (void)info;
  for (int i = 0; i < count; ++i)
    if (strncmp(arguments[i], "to=", 3) == 0) file = fopen(arguments[i] + 3, "wb");
  if (file == NULL) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
