/* Talks with a language model that relaxpy has written as a library: see README.md. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "chat.h"
#include "chat_pool.h"
#include "chat_tokens.h"

enum { MOST_BYTES = 64 * 1024, MOST_OF_ANSWER = CHAT_CONTEXT / 4, THREADS = 4 };

static int32_t tokens[CHAT_CONTEXT]; /* the conversation, of which the first ones are in the cache */
static int64_t count;
static float logits[CHAT_VOCABULARY];

static void *mapped(const char *path, int64_t *bytes) {
    struct stat about;
    int file = open(path, O_RDONLY);
    void *found = MAP_FAILED;
    if (file >= 0 && fstat(file, &about) == 0) {
        *bytes = about.st_size;
        found = mmap(NULL, (size_t)*bytes, PROT_READ, MAP_SHARED, file, 0);
    }
    if (found == MAP_FAILED) fprintf(stderr, "%s cannot be read\n", path), exit(1);
    return found;
}

static void check(int64_t status, const char *about) {
    if (status < 0 || (status > 0 && about != NULL)) {
        fprintf(stderr, "%s\n", about != NULL ? about : chat_tokens_error(status));
        exit(1);
    }
}

/* Compute the scores after the tokens from a position on. */
static void read_tokens(chat_prefill_inputs *in, int64_t position, void *workspace) {
    chat_prefill_outputs out = {.logits = logits};
    in->ids = tokens + position;
    in->n = count - position;
    in->position = position;
    int32_t status = chat_prefill(in, &out, workspace);
    check(status, chat_error(status));
}

/* Write the next turn of the conversation, and return its bytes. */
static int64_t write_turn(const chat_tokens *tokenizer, const char *line, char *text) {
    int64_t sizes[3] = {0, (int64_t)strcspn(line, "\n"), 0}, length = 0;
    const char *parts[3];
    parts[0] = chat_tokens_turn(tokenizer, count > 0, &sizes[0]);
    parts[1] = chat_tokens_message(tokenizer, line, &sizes[1]);
    parts[2] = chat_tokens_turn(tokenizer, 2, &sizes[2]);
    for (int n = 0; n < 3; n++) { /* without a chat template, there is the message alone */
        check(sizes[n] > MOST_BYTES - length ? -3 : 0, NULL);
        if (sizes[n] > 0) memcpy(text + length, parts[n], (size_t)sizes[n]);
        length += sizes[n];
    }
    return length;
}

int main(void) {
    int64_t weights_bytes, tables_bytes, bytes;
    const void *weights = mapped("chat.weights", &weights_bytes);
    const void *tables = mapped("chat.tokens", &tables_bytes);
    chat_tokens tokenizer;
    check(chat_tokens_open(&tokenizer, tables, tables_bytes), NULL);

    chat_pool pool;
    chat_threads threads;
    if (chat_pool_start(&pool, THREADS, &threads) != 0) return 1;
    chat_prefill_inputs in = {.weights = weights, .weights_bytes = weights_bytes, .threads = &threads};
    in.keys = calloc(CHAT_CACHE, sizeof *in.keys);
    in.values = calloc(CHAT_CACHE, sizeof *in.values);
    in.n = CHAT_CONTEXT; /* which needs the most memory */
    void *workspace = malloc((size_t)chat_prefill_workspace(&in));
    void *memory = malloc((size_t)chat_tokens_workspace(&tokenizer, MOST_BYTES));
    if (!in.keys || !in.values || !workspace || !memory) return 1;

    static char line[4096], text[MOST_BYTES];
    int has_turns = chat_tokens_turn(&tokenizer, 0, &bytes) != NULL;
    while (printf("> "), fflush(stdout), fgets(line, sizeof line, stdin) != NULL) {
        int64_t length = write_turn(&tokenizer, line, text), position = count;
        int64_t found = chat_tokens_encode(&tokenizer, text, length, !has_turns && count == 0,
                                           tokens + count, CHAT_CONTEXT - count, memory);
        check(found, NULL);
        count += found;
        for (int n = 0; position < count; n++) {
            int32_t best = 0;
            read_tokens(&in, position, workspace);
            for (int32_t word = 1; word < CHAT_VOCABULARY; word++)
                if (logits[word] > logits[best]) best = word;
            position = count;
            if (n == MOST_OF_ANSWER || count == CHAT_CONTEXT) break;
            if (chat_tokens_is_end(&tokenizer, best)) break;
            const char *piece = chat_tokens_text(&tokenizer, best, &bytes);
            fwrite(piece, 1, (size_t)bytes, stdout), fflush(stdout);
            tokens[count++] = best;
        }
        putchar('\n');
    }
    chat_pool_stop(&pool);
    return 0;
}
